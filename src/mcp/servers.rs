//! All MCP servers of a configuration: started together, their tools offered in a fixed order.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use globset::{Glob, GlobSet, GlobSetBuilder};
use secrecy::SecretString;

use super::connection::{Connection, StartFailed};
use super::listing::{Listing, is_plain};
use super::tool::{McpTool, offered_name, without};
use crate::domain::message::ToolSpec;
use crate::domain::policy::Risk;
use crate::engine::tool::{BoundParameter, Tool};
use crate::engine::tool_schema::closed_schema;
use crate::sys::paths::AbsPath;

/// What a child gets of the host's environment; everything else has to be declared.
const INHERITED: [&str; 3] = ["PATH", "HOME", "LANG"];

/// One entry of `[mcp.servers]`, resolved.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// How it is reached.
    pub transport: ServerTransport,
    /// Whether a run can do without it.
    pub required: bool,
    /// Globs on the tools' bare names (D25).
    pub allow: Vec<String>,
    /// Globs on the tools' bare names; these win over `allow`.
    pub deny: Vec<String>,
    /// Parameters that agentd sets if a tool declares them or gets them (D79).
    pub bind: Vec<BoundParameter>,
    /// Take the parameters that agentd sets out of what models see (C-18).
    pub hide_bound_params: bool,
    /// Queue its calls wait in.
    pub queue: Option<String>,
    /// Longest wait for each of connecting, initializing, and listing tools.
    pub start_timeout: Duration,
}

impl ServerConfig {
    /// Enough for a package runner that has to fetch the server first.
    pub const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(60);

    /// A required server with the defaults: all tools, `user_id` and `issue` bound.
    pub fn new(transport: ServerTransport) -> Self {
        Self {
            transport,
            required: true,
            allow: vec!["*".to_owned()],
            deny: Vec::new(),
            bind: vec![BoundParameter::UserId, BoundParameter::Issue],
            hide_bound_params: false,
            queue: None,
            start_timeout: Self::DEFAULT_START_TIMEOUT,
        }
    }
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub enum ServerTransport {
    /// A child process that speaks on its standard streams.
    Stdio {
        /// A name looked up in `PATH`, or a path.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// The variables it gets beside `PATH`, `HOME` and `LANG`.
        env: BTreeMap<String, SecretString>,
    },
    /// Streamable HTTP.
    Http {
        /// Where.
        url: String,
        /// Sent with every request.
        headers: BTreeMap<String, SecretString>,
    },
}

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

/// The servers that run, and their tools.
pub struct McpServers {
    connections: Vec<Arc<Connection>>,
    tools: Vec<Arc<dyn Tool>>,
    warnings: Vec<ServerWarning>,
}

impl std::fmt::Debug for McpServers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tools: Vec<&str> = self.tools.iter().map(|tool| tool.spec().name.as_str()).collect();
        f.debug_struct("McpServers").field("tools", &tools).field("warnings", &self.warnings).finish()
    }
}

impl McpServers {
    /// Starts all servers at once, in `cwd` (the worktree, D25), and lists their tools. Of `host_env`, children get
    /// `PATH`, `HOME` and `LANG`. Dropping the servers kills what they started.
    pub async fn connect(
        configs: BTreeMap<String, ServerConfig>,
        cwd: &AbsPath,
        host_env: &[(OsString, OsString)],
    ) -> Result<Self, McpError> {
        let inherited: Vec<(OsString, OsString)> = host_env
            .iter()
            .filter(|(name, _)| INHERITED.iter().any(|allowed| name == allowed))
            .cloned()
            .collect();
        let mut filters = Vec::new();
        for (name, config) in &configs {
            filters.push(Filter::new(name, config)?);
        }
        let connections: Vec<Arc<Connection>> = configs
            .iter()
            .map(|(name, config)| {
                let transport = config.transport.clone();
                Arc::new(Connection::new(name, transport, cwd, inherited.clone(), config.start_timeout))
            })
            .collect();
        let started = join_all(connections.iter().map(|connection| connection.start())).await;
        let mut servers = Self { connections, tools: Vec::new(), warnings: Vec::new() };
        let connections = servers.connections.clone();
        let parts = connections.iter().zip(configs.values()).zip(filters).zip(started);
        for (((connection, config), filter), listed) in parts {
            if let Err(error) = servers.adopt(connection, config, &filter, listed) {
                servers.close().await;
                return Err(error);
            }
        }
        Ok(servers)
    }

    /// All tools, by server and name: the same configuration and servers give the same order.
    pub fn tools(&self) -> &[Arc<dyn Tool>] {
        &self.tools
    }

    /// What optional servers could not give.
    pub fn warnings(&self) -> &[ServerWarning] {
        &self.warnings
    }

    /// Ends all servers, and waits until nothing of them runs.
    pub async fn close(&self) {
        join_all(self.connections.iter().map(|connection| connection.close())).await;
    }

    /// The servers, by name.
    #[cfg(test)]
    pub(super) fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.connections.iter().map(AsRef::as_ref)
    }

    fn adopt(
        &mut self,
        connection: &Arc<Connection>,
        config: &ServerConfig,
        filter: &Filter,
        listed: Result<Listing, StartFailed>,
    ) -> Result<(), McpError> {
        let server = connection.name().to_owned();
        let Listing { mut tools, left_out } = match listed {
            Ok(listing) => listing,
            Err(StartFailed { phase, message, .. }) if config.required => {
                return Err(McpError::Unavailable { server, phase, message });
            }
            Err(StartFailed { phase, message, .. }) => {
                let message = format!("MCP server {server} {phase}: {message}");
                self.warnings.push(ServerWarning { server, message });
                return Ok(());
            }
        };
        for (tool, why) in left_out.into_iter().filter(|(tool, _)| tool == "…" || filter.lets_through(tool))
        {
            let message = match tool.trim() {
                "" | "…" => format!("MCP server {server}: of its tools not all are offered: {why}"),
                tool => format!(
                    "MCP server {server}: its tool {tool} is left out: {why}. Tell its author, or leave it out with deny = \
                     [\"{tool}\"] in [mcp.servers.{server}]"
                ),
            };
            self.warnings.push(ServerWarning { server: server.clone(), message });
        }
        tools.retain(|tool| filter.lets_through(&tool.name));
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        let mut taken: BTreeSet<String> = self.tools.iter().map(|tool| tool.spec().name.clone()).collect();
        for tool in tools {
            let schema = match closed_schema(&tool.input_schema) {
                Ok(schema) => schema,
                Err(message) => {
                    let (server, tool) = (server.clone(), tool.name.into_owned());
                    let error = McpError::Schema { server: server.clone(), tool, message };
                    if config.required {
                        return Err(error);
                    }
                    self.warnings.push(ServerWarning { server, message: error.to_string() });
                    continue;
                }
            };
            let parameters =
                if config.hide_bound_params { without(&schema, &config.bind) } else { schema.clone() };
            let name = offered_name(&server, &tool.name, &taken);
            taken.insert(name.clone());
            let read_only = tool.annotations.as_ref().and_then(|hints| hints.read_only_hint) == Some(true);
            self.tools.push(Arc::new(McpTool {
                connection: connection.clone(),
                spec: ToolSpec {
                    name,
                    description: description(tool.description.as_deref().or(tool.title.as_deref())),
                    parameters,
                },
                bare_name: tool.name.into_owned(),
                schema,
                // The server's own hint. It is enough to recognise a reading tool and never enough to allow anything.
                risk: if read_only { Risk::Read } else { Risk::Network },
                queue: config.queue.clone(),
                bound: config.bind.clone(),
            }));
        }
        Ok(())
    }
}

/// A tool's text for models, without parts that people would not see.
fn description(text: Option<&str>) -> String {
    text.unwrap_or_default().chars().filter(|c| is_plain(*c) || matches!(c, '\n' | '\t')).collect()
}

struct Filter {
    allow: GlobSet,
    deny: GlobSet,
}

impl Filter {
    fn new(server: &str, config: &ServerConfig) -> Result<Self, McpError> {
        let set = |key: &'static str, patterns: &[String]| {
            let mut set = GlobSetBuilder::new();
            let refused = |error: globset::Error| McpError::Glob {
                server: server.to_owned(),
                key,
                message: error.to_string(),
            };
            for pattern in patterns {
                set.add(Glob::new(pattern).map_err(refused)?);
            }
            set.build().map_err(refused)
        };
        Ok(Self { allow: set("allow", &config.allow)?, deny: set("deny", &config.deny)? })
    }

    fn lets_through(&self, tool: &str) -> bool {
        self.allow.is_match(tool) && !self.deny.is_match(tool)
    }
}
