//! All MCP servers of a configuration: started together, their tools offered in a fixed order.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::sync::Arc;

use futures::future::join_all;
use tokio::sync::Mutex;

use super::connection::{Connection, StartFailed};
use super::error::{McpError, ServerWarning};
use super::filter::Filter;
use super::listing::{Listing, is_plain};
use super::server_config::ServerConfig;
use super::tool::{McpTool, offered_name, without};
use crate::domain::message::ToolSpec;
use crate::domain::policy::Risk;
use crate::engine::tool::Tool;
use crate::engine::tool_schema::closed_schema;
use crate::sys::paths::AbsPath;

/// What a child gets of the host's environment; everything else has to be declared.
const INHERITED: [&str; 3] = ["PATH", "HOME", "LANG"];

/// The servers that run, and their tools.
pub struct McpServers {
    servers: Vec<Server>,
    tools: Vec<Arc<dyn Tool>>,
    warnings: Vec<ServerWarning>,
    /// What was last listed.
    listed: Mutex<Listed>,
}

/// One server, and what the configuration says of it.
struct Server {
    connection: Arc<Connection>,
    config: ServerConfig,
    filter: Filter,
}

/// The tools of all servers, and what was said about those that cannot be used.
#[derive(Default, Clone)]
struct Listed {
    tools: Vec<Arc<McpTool>>,
    warnings: Vec<ServerWarning>,
}

/// What servers changed of their tools.
pub struct ToolChange {
    /// All tools of all servers as they are now.
    pub tools: Vec<Arc<dyn Tool>>,
    /// What of it cannot be used; only what was not said before.
    pub warnings: Vec<ServerWarning>,
    /// Why a server that is required is not there any more.
    pub lost: Option<String>,
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
        let mut servers = Vec::new();
        for (name, config) in configs {
            let filter = Filter::new(&name, &config)?;
            let connection = Arc::new(Connection::new(
                &name,
                config.transport.clone(),
                cwd,
                inherited.clone(),
                config.start_timeout,
            ));
            servers.push(Server { connection, config, filter });
        }
        let started = join_all(servers.iter().map(|server| server.connection.start())).await;
        let mut listed = Listed::default();
        let mut failed = None;
        for (server, listing) in servers.iter().zip(started) {
            if let Err(error) = listed.add(server, listing) {
                failed = Some(error);
                break;
            }
        }
        let warnings = listed.warnings.clone();
        let servers = Self { tools: listed.offered(), servers, warnings, listed: Mutex::new(listed) };
        match failed {
            Some(error) => {
                servers.close().await;
                Err(error)
            }
            None => Ok(servers),
        }
    }

    /// All tools that the servers began with, by server and name: the same configuration and servers give the same order
    ///
    pub fn tools(&self) -> &[Arc<dyn Tool>] {
        &self.tools
    }

    /// What optional servers could not give.
    pub fn warnings(&self) -> &[ServerWarning] {
        &self.warnings
    }

    /// Lists the tools of those servers anew that said theirs changed; `None` = none did. A server that does not list them
    /// keeps those that it had.
    pub async fn changes(&self) -> Option<ToolChange> {
        let lost: Vec<Option<String>> =
            self.servers.iter().map(|server| server.connection.take_lost()).collect();
        let some_lost = lost.iter().any(Option::is_some);
        if !some_lost && !self.servers.iter().any(|server| server.connection.has_changed()) {
            return None;
        }
        let mut listed = self.listed.lock().await;
        let anew = join_all(self.servers.iter().map(|server| server.connection.list_again())).await;
        if !some_lost && anew.iter().all(Option::is_none) {
            return None;
        }
        let mut now = Listed::default();
        let mut needed = None;
        for ((server, listing), lost) in self.servers.iter().zip(anew).zip(lost) {
            if let Some(why) = lost {
                now.warn(server, &is_gone(&why));
                needed = needed.or(now.warnings.last().filter(|_| server.config.required).cloned());
            }
            match listing {
                Some(Ok(listing)) => now.change(server, listing, &listed.tools),
                Some(Err(failed)) => {
                    let words = "said that its tools changed, and then";
                    now.warn(server, &format!("{words} {}: {}", failed.phase, failed.message));
                    now.keep(server, &listed.tools);
                }
                None => now.keep(server, &listed.tools),
            }
        }
        let mut warnings = now.warnings;
        now.warnings = listed.warnings.clone();
        warnings.retain(|warning| !now.warnings.contains(warning));
        now.warnings.extend(warnings.iter().cloned());
        let before = std::mem::replace(&mut *listed, now).tools;
        let same = before.len() == listed.tools.len()
            && before.iter().zip(&listed.tools).all(|(before, now)| Arc::ptr_eq(before, now));
        let lost = needed.map(|needed| needed.message);
        let is_told = !same || !warnings.is_empty() || lost.is_some();
        is_told.then(|| ToolChange { tools: listed.offered(), warnings, lost })
    }

    /// The servers whose last call did not find them, since they had ended and could not be started again; each with whether it is
    /// required.
    pub fn gone(&self) -> Vec<(ServerWarning, bool)> {
        let of = |server: &Server| {
            let mut told = Listed::default();
            told.warn(server, &is_gone(&server.connection.gone()?));
            Some((told.warnings.pop()?, server.config.required))
        };
        self.servers.iter().filter_map(of).collect()
    }

    /// Ends all servers, and waits until nothing of them runs.
    pub async fn close(&self) {
        join_all(self.servers.iter().map(|server| server.connection.close())).await;
    }

    /// The servers, by name.
    #[cfg(test)]
    pub(super) fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.servers.iter().map(|server| server.connection.as_ref())
    }
}

fn is_gone(why: &str) -> String {
    format!("ended while its tools were called, and is not there: {why}")
}

impl Listed {
    fn offered(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.iter().map(|tool| Arc::clone(tool) as Arc<dyn Tool>).collect()
    }

    fn warn(&mut self, server: &Server, message: &str) {
        let server = server.connection.name().to_owned();
        self.warnings.push(ServerWarning { message: format!("MCP server {server} {message}"), server });
    }

    /// Takes the tools of a server that was started.
    fn add(&mut self, server: &Server, listing: Result<Listing, StartFailed>) -> Result<(), McpError> {
        let name = server.connection.name();
        let listing = match listing {
            Ok(listing) => listing,
            Err(StartFailed { phase, message, .. }) if server.config.required => {
                return Err(McpError::Unavailable { server: name.to_owned(), phase, message });
            }
            Err(StartFailed { phase, message, .. }) => {
                self.warn(server, &format!("{phase}: {message}"));
                return Ok(());
            }
        };
        match self.take(server, listing, &[]).into_iter().next() {
            Some(error) if server.config.required => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes the tools of a server that lists them anew. It has begun already: a tool that cannot be used costs itself.
    fn change(&mut self, server: &Server, listing: Listing, known: &[Arc<McpTool>]) {
        self.take(server, listing, known);
    }

    /// Takes a server's tools as they were.
    fn keep(&mut self, server: &Server, known: &[Arc<McpTool>]) {
        let own = known.iter().filter(|tool| Arc::ptr_eq(&tool.connection, &server.connection));
        self.tools.extend(own.cloned());
    }

    /// Takes what can be used; says what cannot, and gives the schemas that are none. A tool that is as it was stays the
    /// same one, and keeps its name in any case.
    fn take(&mut self, server: &Server, listing: Listing, known: &[Arc<McpTool>]) -> Vec<McpError> {
        let Server { connection, config, filter } = server;
        let Listing { mut tools, left_out } = listing;
        for absent in config.reads.iter().filter(|reads| !tools.iter().any(|tool| *tool.name == **reads)) {
            self.warn(server, &format!("has no tool \"{absent}\", which its `reads` names"));
        }
        for (tool, why) in left_out.into_iter().filter(|(tool, _)| tool == "…" || filter.lets_through(tool))
        {
            self.left_out(connection.name(), tool.trim(), &why);
        }
        tools.retain(|tool| filter.lets_through(&tool.name));
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        let others = known.iter().filter(|tool| !Arc::ptr_eq(&tool.connection, connection));
        let mut taken: BTreeSet<String> =
            self.tools.iter().chain(others).map(|tool| tool.spec.name.clone()).collect();
        let own = |name: &str| {
            known.iter().find(|tool| tool.bare_name == name && Arc::ptr_eq(&tool.connection, connection))
        };
        taken.extend(tools.iter().filter_map(|tool| own(&tool.name)).map(|tool| tool.spec.name.clone()));
        let mut broken = Vec::new();
        for tool in tools {
            let schema = match closed_schema(&tool.input_schema) {
                Ok(schema) => schema,
                Err(message) => {
                    let (server, tool) = (connection.name().to_owned(), tool.name.into_owned());
                    let error = McpError::Schema { server: server.clone(), tool, message };
                    self.warnings.push(ServerWarning { server, message: error.to_string() });
                    broken.push(error);
                    continue;
                }
            };
            let before = own(&tool.name);
            let name = before.map_or_else(
                || offered_name(connection.name(), &tool.name, &taken),
                |before| before.spec.name.clone(),
            );
            taken.insert(name.clone());
            let parameters =
                if config.hide_bound_params { without(&schema, &config.bind) } else { schema.clone() };
            let only_reads = config.reads.iter().any(|reads| *reads == *tool.name);
            let read_only = tool.annotations.as_ref().and_then(|hints| hints.read_only_hint) == Some(true);
            let tool = McpTool {
                connection: connection.clone(),
                spec: ToolSpec {
                    name,
                    description: description(tool.description.as_deref().or(tool.title.as_deref())),
                    parameters,
                },
                bare_name: tool.name.into_owned(),
                schema,
                // The server's own hint. It is enough to recognise a reading tool and never enough to allow anything.
                risk: if read_only || only_reads { Risk::Read } else { Risk::Network },
                only_reads,
                queue: config.queue.clone(),
                bound: config.bind.clone(),
            };
            self.tools.push(
                before.filter(|before| before.is_same(&tool)).map_or_else(|| Arc::new(tool), Arc::clone),
            );
        }
        broken
    }

    fn left_out(&mut self, server: &str, tool: &str, why: &str) {
        let message = match tool {
            "" | "…" => format!("MCP server {server}: of its tools not all are offered: {why}"),
            tool => format!(
                "MCP server {server}: its tool {tool} is left out: {why}. Tell its author, or leave it out with deny = \
                 [\"{tool}\"] in [mcp.servers.{server}]"
            ),
        };
        self.warnings.push(ServerWarning { server: server.to_owned(), message });
    }
}

/// A tool's text for models, without parts that people would not see.
fn description(text: Option<&str>) -> String {
    text.unwrap_or_default().chars().filter(|c| is_plain(*c) || matches!(c, '\n' | '\t')).collect()
}
