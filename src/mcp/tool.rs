//! One tool of a server, as models and the gate see it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::connection::Connection;
use crate::domain::message::ToolSpec;
use crate::domain::policy::Risk;
use crate::engine::tool::{BoundParameter, CallLimits, Permit, Tool, ToolCalled};

/// Longest tool name that all providers accept.
const MAX_NAME: usize = 64;

/// A tool of an MCP server.
#[derive(Debug)]
pub(super) struct McpTool {
    pub connection: Arc<Connection>,
    /// The server's name for it.
    pub bare_name: String,
    pub spec: ToolSpec,
    /// Differs from the spec's where bound parameters are hidden.
    pub schema: Value,
    pub risk: Risk,
    /// The operator says that it changes nothing.
    pub only_reads: bool,
    pub queue: Option<String>,
    /// What the server lets agentd set (D79). The schema does not narrow it: a tool that takes members it does not
    /// declare takes these, too.
    pub bound: Vec<BoundParameter>,
}

impl McpTool {
    /// Whether another tool of the same server is this one, to models and to the gate.
    pub fn is_same(&self, other: &Self) -> bool {
        self.bare_name == other.bare_name
            && self.spec == other.spec
            && self.schema == other.schema
            && self.risk == other.risk
    }
}

impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn source(&self) -> &str {
        self.connection.name()
    }

    fn risk(&self) -> Risk {
        self.risk
    }

    fn only_reads(&self) -> bool {
        self.only_reads
    }

    fn queue(&self) -> Option<&str> {
        self.queue.as_deref()
    }

    fn bound_parameters(&self) -> &[BoundParameter] {
        &self.bound
    }

    fn arguments_schema(&self) -> &Value {
        &self.schema
    }

    fn call<'a>(&'a self, _permit: Permit, arguments: &'a Value, limits: CallLimits) -> ToolCalled<'a> {
        Box::pin(self.connection.call(&self.bare_name, arguments, limits.timeout))
    }
}

/// `<server>__<tool>` in characters and a length that every provider accepts, different from all names taken before (D16).
pub(super) fn offered_name(server: &str, tool: &str, taken: &BTreeSet<String>) -> String {
    let full = format!("{server}__{tool}");
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let name: String = full.chars().map(plain).collect();
    if name.len() <= MAX_NAME && !taken.contains(&name) {
        return name;
    }
    // The hash is over the original names, so that names that look equal now stay different.
    let hash = hex::encode(Sha256::digest(full.as_bytes()));
    let start: String = name.chars().take(MAX_NAME - 9).collect();
    format!("{start}_{}", &hash[..8])
}

/// The schema without the bound parameters, for models (C-18).
pub(super) fn without(schema: &Value, hidden: &[BoundParameter]) -> Value {
    let mut schema = schema.clone();
    let is_hidden = |name: &str| hidden.iter().any(|parameter| parameter.name() == name);
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.retain(|name, _| !is_hidden(name));
    }
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|name| !name.as_str().is_some_and(is_hidden));
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn s_020_names_are_plain_short_and_unique() {
        let mut taken = BTreeSet::new();
        let mut names = Vec::new();
        let long = "x".repeat(80);
        for tool in ["read file", "read.file", "read_file", &long, "ok"] {
            let name = offered_name("my server", tool, &taken);
            taken.insert(name.clone());
            names.push(name);
        }
        assert_eq!(names[0], "my_server__read_file");
        assert_eq!(names[4], "my_server__ok");
        assert_eq!(taken.len(), 5, "{names:?}");
        assert!(names.iter().all(|name| name.len() <= 64), "{names:?}");
        assert_eq!(
            names[3],
            offered_name("my server", &long, &BTreeSet::new()),
            "names do not depend on order"
        );
    }

    #[test]
    fn c_18_bound_parameters_may_be_hidden() {
        let schema = json!({ "type": "object",
            "properties": { "user_id": {}, "repo": {}, "text": {} }, "required": ["user_id", "text"] });
        let seen = without(&schema, &[BoundParameter::UserId, BoundParameter::Repo, BoundParameter::Branch]);
        assert_eq!(seen, json!({ "type": "object", "properties": { "text": {} }, "required": ["text"] }));
    }
}
