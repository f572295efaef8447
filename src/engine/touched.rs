//! What can have changed files since this was last asked.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::tool::Tool;
use crate::domain::policy::Risk;

/// What can have changed files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// Files of the worktree that agentd's own tools wrote, and nothing else; perhaps none.
    Files(BTreeSet<String>),
    /// Something ran that can change any file.
    Anything,
}

/// What can have changed files since this was last asked. Clones share one answer. Nobody has asked at first, so the
/// first answer is: anything.
#[derive(Debug, Clone)]
pub struct Touched(Arc<Mutex<Changed>>);

impl Default for Touched {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Changed::Anything)))
    }
}

impl Touched {
    fn changed(&self) -> MutexGuard<'_, Changed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something that can change any file runs now.
    pub fn mark(&self) {
        *self.changed() = Changed::Anything;
    }

    /// The same for a call of a tool. Only of agentd's own tools is it known that they just look, or which file they write;
    /// what others say of themselves is not believed.
    pub fn mark_call(&self, tool: &dyn Tool, arguments: &Value) {
        let own = tool.source() == "agentd";
        if own && tool.risk() == Risk::Read {
            return;
        }
        match (tool.only_file(arguments).filter(|_| own), &mut *self.changed()) {
            (Some(file), Changed::Files(files)) => drop(files.insert(file)),
            (Some(_), Changed::Anything) => {}
            (None, changed) => *changed = Changed::Anything,
        }
    }

    /// The answer. From now on it is no file, until something runs again.
    pub fn take(&self) -> Changed {
        std::mem::replace(&mut *self.changed(), Changed::Files(BTreeSet::new()))
    }
}
