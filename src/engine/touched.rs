//! Whether something that can change files has run since this was last asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::tool::Tool;
use crate::domain::policy::Risk;

/// Whether something that can change files has run since this was last asked. Clones share one answer. Nobody has asked
/// at first, so the first answer is yes.
#[derive(Debug, Clone)]
pub struct Touched(Arc<AtomicBool>);

impl Default for Touched {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl Touched {
    /// Something that can change files runs now.
    pub fn mark(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// The same for a call of a tool. Only of agentd's own tools is it known that they just look; what others say of
    /// themselves is not believed.
    pub fn mark_call(&self, tool: &dyn Tool) {
        if tool.risk() != Risk::Read || tool.source() != "agentd" {
            self.mark();
        }
    }

    /// The answer. From now on it is no, until something runs again.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}
