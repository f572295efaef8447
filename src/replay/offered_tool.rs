//! A tool of an MCP server in a replay: what models and the gate know of it is from the record.

use std::sync::Arc;

use futures::FutureExt as _;
use serde_json::Value;

use super::offered_tools_format::{OfferedTool, OfferedTools};
use crate::domain::message::ToolSpec;
use crate::domain::policy::Risk;
use crate::engine::tool::{BoundParameter, CallLimits, Permit, Tool, ToolCalled, ToolError};

/// See the module.
struct AsRecorded {
    offered: OfferedTool,
    bound: Vec<BoundParameter>,
    /// The tool of that name that a server offers now; a strict replay starts no server.
    live: Option<Arc<dyn Tool>>,
}

/// The tools as they were offered, with those that `live` has of them for what the record cannot answer.
pub(super) fn as_recorded(offered: &OfferedTools, live: &[Arc<dyn Tool>]) -> Vec<Arc<dyn Tool>> {
    let tool = |offered: &OfferedTool| {
        let live = live.iter().find(|live| live.spec().name == offered.spec.name).cloned();
        Arc::new(AsRecorded { bound: offered.bound_parameters(), offered: offered.clone(), live })
            as Arc<dyn Tool>
    };
    offered.tools.iter().map(tool).collect()
}

impl Tool for AsRecorded {
    fn spec(&self) -> &ToolSpec {
        &self.offered.spec
    }

    fn source(&self) -> &str {
        &self.offered.source
    }

    fn risk(&self) -> Risk {
        self.offered.risk
    }

    fn queue(&self) -> Option<&str> {
        self.offered.queue.as_deref()
    }

    fn bound_parameters(&self) -> &[BoundParameter] {
        &self.bound
    }

    fn arguments_schema(&self) -> &Value {
        &self.offered.arguments_schema
    }

    fn call<'a>(&'a self, permit: Permit, arguments: &'a Value, limits: CallLimits) -> ToolCalled<'a> {
        let (name, server) = (&self.offered.spec.name, &self.offered.source);
        let what = match &self.live {
            // What the gate allowed is what was recorded.
            Some(live) if OfferedTool::of(live) == self.offered => {
                return live.call(permit, arguments, limits);
            }
            Some(_) => format!("{server} offers another {name} now than the one that was recorded"),
            None => format!("{name} is not offered by {server} now"),
        };
        std::future::ready(Err(ToolError::ForModel { error_type: "unknown_tool".into(), message: what }))
            .boxed()
    }
}
