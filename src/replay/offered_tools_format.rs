//! The tools of MCP servers as a run offered them, kept beside its record: a strict replay offers them without a server.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::message::ToolSpec;
use crate::domain::policy::Risk;
use crate::engine::tool::{BoundParameter, Tool};

/// Where they are kept, relative to the run directory.
pub const OFFERED_TOOLS: &str = "artifacts/mcp-tools.json";
/// Version of [`OfferedTools`].
const OFFERED_TOOLS_SCHEMA: &str = "agentd.offered_tools.v1";

/// All of them, in the order in which they were offered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfferedTools {
    /// `agentd.offered_tools.v1`.
    schema_version: String,
    /// The tools.
    pub tools: Vec<OfferedTool>,
}

/// What the gate and a model know of one tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfferedTool {
    /// Name, description, parameters.
    pub spec: ToolSpec,
    /// The server.
    pub source: String,
    /// What it may do.
    pub risk: Risk,
    /// The queue that its calls wait in.
    pub queue: Option<String>,
    /// Parameters that agentd sets, by name.
    pub bound: Vec<String>,
    /// What arguments are checked against.
    pub arguments_schema: Value,
}

impl OfferedTools {
    /// What these tools are.
    pub fn of(tools: &[Arc<dyn Tool>]) -> Self {
        let tools = tools.iter().map(OfferedTool::of).collect();
        Self { schema_version: OFFERED_TOOLS_SCHEMA.to_owned(), tools }
    }

    /// Reads what was kept; the error says what is wrong with it.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let read: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if read.schema_version != OFFERED_TOOLS_SCHEMA {
            return Err(format!("\"{}\" is not {OFFERED_TOOLS_SCHEMA}", read.schema_version));
        }
        Ok(read)
    }
}

impl OfferedTool {
    /// What a tool is.
    pub fn of(tool: &Arc<dyn Tool>) -> Self {
        Self {
            spec: tool.spec().clone(),
            source: tool.source().to_owned(),
            risk: tool.risk(),
            queue: tool.queue().map(str::to_owned),
            bound: tool.bound_parameters().iter().map(|bound| bound.name().to_owned()).collect(),
            arguments_schema: tool.arguments_schema().clone(),
        }
    }

    /// The parameters that agentd sets.
    pub fn bound_parameters(&self) -> Vec<BoundParameter> {
        BoundParameter::ALL
            .into_iter()
            .filter(|known| self.bound.iter().any(|name| name == known.name()))
            .collect()
    }
}
