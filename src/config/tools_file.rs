//! The tables of `agentd.toml` that declare tools: `[mcp.servers.NAME]` and `[rest.tools.NAME]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::Span;
use super::table_file::table;

/// `[mcp]`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpTable {
    /// The servers, by name.
    pub servers: BTreeMap<String, McpServerTable>,
}

table! {
    /// `[mcp.servers.NAME]`: `command`, `args`, `env` for stdio; `url`, `headers` for HTTP.
    pub struct McpServerTable {
        /// Program to start.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub command: Option<String> = None,
        /// Its arguments.
        pub args: Vec<String> = Vec::new(),
        /// Its environment, beside PATH, HOME and LANG.
        pub env: BTreeMap<String, String> = BTreeMap::new(),
        /// Address of a streamable HTTP server.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub url: Option<String> = None,
        /// Headers sent to it.
        pub headers: BTreeMap<String, String> = BTreeMap::new(),
        /// Whether a run cannot start without it (exit 3).
        pub required: bool = true,
        /// Globs of tool names that are offered.
        pub allow: Vec<String> = vec!["*".to_owned()],
        /// Globs of tool names that are not.
        pub deny: Vec<String> = Vec::new(),
        /// Names of its tools that are known to change nothing: steps that only plan may call these and no others.
        pub reads: Vec<String> = Vec::new(),
        /// Queue of its tools.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub queue: Option<String> = None,
        /// Parameters that the host sets beside user_id and issue, which it always sets: repo, branch and worktree.
        pub bound_params: Vec<BoundParam> = Vec::new(),
        /// Whether the model sees bound parameters in the schemas.
        pub hide_bound_params: bool = false,
    }
}

/// A parameter that the host sets whatever the model wrote (D79).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BoundParam {
    /// The principal's UUID.
    UserId,
    /// The issue's number.
    Issue,
    /// owner/name.
    Repo,
    /// The issue's branch.
    Branch,
    /// The worktree's path.
    Worktree,
}

/// `[rest]`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RestTable {
    /// The tools, by name.
    pub tools: BTreeMap<String, RestToolTable>,
}

/// `[rest.tools.NAME]`; `${parameters.x}` in url, headers and body stands for an argument of the call.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestToolTable {
    /// HTTP method.
    #[serde(default)]
    pub method: HttpMethod,
    /// Address; `${parameters.x}` in it stands for the call's argument `x`.
    pub url: String,
    /// Headers; `${parameters.x}` in a value as in `url`.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Body of the request; `${parameters.x}` in it as in `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Overrides `session.tool_timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// What the model is told about it.
    pub description: String,
    /// JSON Schema of its arguments.
    #[serde(default)]
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// Its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
}

/// An HTTP method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpMethod {
    /// GET.
    #[default]
    Get,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
}
