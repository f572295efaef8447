//! Why an MCP server, or one of its tools, cannot be used.

/// How far a server came before it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It could not be started or reached.
    Start,
    /// It did not answer the handshake.
    Initialize,
    /// It did not list its tools.
    ListTools,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Start => "cannot be started",
            Self::Initialize => "did not initialize",
            Self::ListTools => "did not list its tools",
        })
    }
}

/// Why the servers of a configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// A required server is missing or failed: exit 3.
    #[error(
        "MCP server {server} {phase}: {message}. Fix [mcp.servers.{server}], or set required = false there to go on without it"
    )]
    Unavailable {
        /// Its name.
        server: String,
        /// How far it came.
        phase: Phase,
        /// What it, or the system, said.
        message: String,
    },
    /// A tool's input schema is no JSON Schema of an object: exit 5.
    #[error(
        "MCP server {server}: the input schema of its tool {tool} is invalid: {message}. Leave the tool out with deny = [\"{tool}\"] in [mcp.servers.{server}]"
    )]
    Schema {
        /// Its name.
        server: String,
        /// The tool's bare name.
        tool: String,
        /// What is wrong.
        message: String,
    },
    /// A pattern in `allow` or `deny` is no glob: exit 4.
    #[error("mcp.servers.{server}.{key}: {message}")]
    Glob {
        /// Its name.
        server: String,
        /// `allow` or `deny`.
        key: &'static str,
        /// What is wrong.
        message: String,
    },
}

/// Something a run goes on without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerWarning {
    /// The server.
    pub server: String,
    /// What is missing and why.
    pub message: String,
}
