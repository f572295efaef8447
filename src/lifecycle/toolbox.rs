//! The tools of a run, in their fixed order: files and commands, git, MCP servers, REST.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::run::Run;
use crate::config::error::ConfigError;
use crate::config::settings::{Config, McpTransport};
use crate::config::tools_file::BoundParam;
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::journal::{Journal, JournalError};
use crate::engine::tool::{BoundParameter, Tool};
use crate::engine::tool_list::{ToolList, ToolProvider};
use crate::git;
use crate::mcp::{CurrentTools, McpError, McpServers, ServerConfig, ServerTransport};
use crate::replay::changing_tools::{self, LiveTools, RecordedTools};
use crate::repository::context::RepositoryContext;
use crate::sys::worktree_path::WorktreeRoot;
use crate::tools::rest::{RestError, rest_tools};
use crate::tools::{self, ToolWorld};
use tokio_util::sync::CancellationToken;

/// The tools, and what has to be ended with the run.
pub struct Toolbox {
    /// In the order they are offered.
    pub tools: ToolProvider,
    servers: Arc<McpServers>,
    /// Ends commands that still run.
    cancel: CancellationToken,
}

impl Toolbox {
    /// Collects the tools and starts the configured MCP servers in the worktree (D25). A required server that fails
    /// ends the run before any model is asked.
    pub async fn open(run: &Run<'_>, context: &RepositoryContext, root: &WorktreeRoot) -> Result<Self, Stop> {
        let worktree = run
            .worktree()
            .ok_or_else(|| Stop::new(StopDetail::Internal, "There is no worktree to work in."))?;
        let cancel = CancellationToken::new();
        let page_lines = context.config.page_lines();
        let mut all = tools::worktree_tools(ToolWorld {
            root: root.clone(),
            environment: run.child_environment(),
            clock: context.clock.clone(),
            cancel: cancel.clone(),
            sandbox: run.caged().cloned(),
            page_lines,
        });
        all.extend(git::tools::worktree_tools(worktree, &run.lease.mapping.origin.commit, page_lines));
        let rest = rest_tools(&context.config.rest_tools).map_err(|error| unfit(&error))?;
        // A strict replay starts no server, because the record has the tools that they offered (P-040).
        let recorded = context.replay.as_ref().and_then(|recorded_run| recorded_run.offered());
        let mut configs = match &recorded {
            Some(_) => BTreeMap::new(),
            None => servers(&context.config)
                .map_err(|error| Stop::new(StopDetail::ConfigInvalid, error.to_string()))?,
        };
        for server in configs.values_mut() {
            server.start_timeout = server.start_timeout.min(run.wall_time_left());
        }
        let servers = McpServers::connect(configs, worktree.path(), &run.child_environment())
            .await
            .map_err(|error| run.out_of_time().unwrap_or_else(|| stop_of(&error)))?;
        for warning in servers.warnings() {
            run.journal.warn("mcp_server_missing", warning.message.clone());
        }
        let servers = Arc::new(servers);
        let tools = match (&context.replay, recorded) {
            (Some(recorded_run), Some(offered)) => {
                keep(run, &offered).await?;
                let first = all.into_iter().chain(offered.iter().cloned()).chain(rest).collect();
                let list = ToolList { first, served: offered, ..ToolList::default() };
                let list = changing_tools::recorded(Some(recorded_run), list);
                let journal = run.journal.file().as_ref();
                let tools = RecordedTools::open(list, recorded_run, journal, &run.plan.redactor).await;
                ToolProvider::Changing(Arc::new(tools.map_err(|error| unwritten(&error))?))
            }
            (recorded_run, _) => {
                keep(run, servers.tools()).await?;
                ToolProvider::Changing(Arc::new(LiveTools::new(
                    CurrentTools::new(all, Arc::clone(&servers), rest),
                    Arc::clone(run.journal.file()) as Arc<dyn Journal>,
                    Arc::clone(&run.plan.redactor),
                    recorded_run.clone(),
                )))
            }
        };
        Ok(Self { tools, servers, cancel })
    }

    /// Ends servers and commands, and waits for it.
    pub async fn close(&self) {
        self.cancel.cancel();
        self.servers.close().await;
    }
}

/// What the servers offer, for a replay without them.
async fn keep(run: &Run<'_>, offered: &[Arc<dyn Tool>]) -> Result<(), Stop> {
    if offered.is_empty() {
        return Ok(());
    }
    changing_tools::keep_first(offered, run.journal.file().as_ref(), &run.plan.redactor)
        .await
        .map_err(|error| unwritten(&error))
}

fn unwritten(error: &JournalError) -> Stop {
    Stop::new(StopDetail::OutputWriteFailed, format!("{error}."))
}

/// Why a server that cannot be used ends a start.
pub fn stop_of(error: &McpError) -> Stop {
    let detail = match error {
        McpError::Unavailable { .. } => StopDetail::McpUnavailable,
        McpError::Schema { .. } => StopDetail::SchemaInvalid,
        McpError::Glob { .. } => StopDetail::ConfigInvalid,
    };
    Stop::new(detail, format!("{error}."))
}

/// Why a REST tool that cannot be offered ends a start.
pub fn unfit(error: &RestError) -> Stop {
    let detail = match error {
        RestError::Schema { .. } => StopDetail::SchemaInvalid,
        RestError::Config(_) | RestError::Invalid { .. } => StopDetail::ConfigInvalid,
    };
    Stop::new(detail, format!("{error}."))
}

/// The servers of a configuration. Their placeholders are resolved now and not before.
pub fn servers(config: &Config) -> Result<BTreeMap<String, ServerConfig>, ConfigError> {
    let mut servers = BTreeMap::new();
    for (name, server) in &config.mcp_servers {
        let transport = match &server.transport {
            McpTransport::Stdio { command, args, env } => ServerTransport::Stdio {
                command: command.resolve()?,
                args: args.iter().map(|arg| arg.resolve()).collect::<Result<_, _>>()?,
                env: env.iter().map(|(name, value)| Ok((name.clone(), value.secret()?))).collect::<Result<
                    _,
                    ConfigError,
                >>(
                )?,
            },
            McpTransport::Http { url, headers } => ServerTransport::Http {
                url: url.resolve()?,
                headers: headers
                    .iter()
                    .map(|(name, value)| Ok((name.clone(), value.secret()?)))
                    .collect::<Result<_, ConfigError>>()?,
            },
        };
        let mut configured = ServerConfig::new(transport);
        configured.required = server.required;
        configured.allow.clone_from(&server.allow);
        configured.deny.clone_from(&server.deny);
        configured.bind = server.bound_params.iter().map(|param| bound(*param)).collect();
        configured.hide_bound_params = server.hide_bound_params;
        configured.queue.clone_from(&server.queue);
        servers.insert(name.clone(), configured);
    }
    Ok(servers)
}

fn bound(param: BoundParam) -> BoundParameter {
    match param {
        BoundParam::UserId => BoundParameter::UserId,
        BoundParam::Issue => BoundParameter::Issue,
        BoundParam::Repo => BoundParameter::Repo,
        BoundParam::Branch => BoundParameter::Branch,
        BoundParam::Worktree => BoundParameter::Worktree,
    }
}
