//! The tools of a run, in their fixed order: files and commands, git, MCP servers, REST.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::stop::{Stop, StopDetail};
use crate::engine::journal::{Journal, JournalError};
use crate::engine::tool::Tool;
use crate::engine::tool_list::{ToolList, ToolProvider, ToolSource};
use crate::git;
use crate::lifecycle::run::Run;
use crate::lifecycle::stage::Workspace;
use crate::mcp::{CurrentTools, McpServers};
use crate::replay::changing_tools::{self, HybridTools, LiveTools, RecordedTools};
use crate::repository::tool_servers::{servers, stop_of, unfit};
use crate::sys::worktree_path::WorktreeRoot;
use crate::tools::rest::rest_tools;
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
    pub async fn open(run: &Run<'_>, workspace: &Workspace, root: &WorktreeRoot) -> Result<Self, Stop> {
        let worktree = &workspace.worktree;
        let cancel = CancellationToken::new();
        let page_lines = run.context.config.page_lines();
        let mut all = tools::worktree_tools(ToolWorld {
            root: root.clone(),
            environment: run.child_environment(),
            clock: run.context.clock.clone(),
            cancel: cancel.clone(),
            sandbox: workspace.of_commands(run).cloned(),
            page_lines,
        });
        all.extend(git::tools::worktree_tools(worktree, &run.lease.mapping.origin.commit, page_lines));
        let rest = rest_tools(&run.context.config.rest_tools).map_err(|error| unfit(&error))?;
        // A strict replay starts no server, because the record has the tools that they offered (P-040).
        let replay = run.context.replay.as_ref();
        let mut configs = match replay.is_none_or(|recorded_run| recorded_run.starts_servers()) {
            false => BTreeMap::new(),
            true => servers(&run.context.config)
                .map_err(|error| Stop::new(StopDetail::ConfigInvalid, error.to_string()))?,
        };
        for server in configs.values_mut() {
            server.start_timeout = server.start_timeout.min(run.wall_time_left());
        }
        let connecting = async {
            let connected = McpServers::connect(configs, worktree.path(), &run.child_environment()).await;
            connected.map_err(|error| run.out_of_time().unwrap_or_else(|| stop_of(&error)))
        };
        // Nothing is lost of servers that start.
        let servers = run.stop().unless_asked(connecting).await?;
        for warning in servers.warnings() {
            run.journal.warn("mcp_server_missing", warning.message.clone());
        }
        let servers = Arc::new(servers);
        let (journal, redactor) = (run.journal.file(), &run.plan.redactor);
        let live = || {
            let current = CurrentTools::new(all.clone(), Arc::clone(&servers), rest.clone());
            LiveTools::new(
                current,
                Arc::clone(journal) as Arc<dyn Journal>,
                Arc::clone(redactor),
                replay.cloned(),
            )
        };
        let offered = replay.and_then(|recorded_run| recorded_run.offered(servers.tools()));
        keep(run, offered.as_deref().unwrap_or(servers.tools())).await?;
        let source: Arc<dyn ToolSource> = match (replay, offered) {
            (Some(recorded_run), Some(offered)) => {
                let first = all.iter().chain(&offered).chain(&rest).cloned().collect();
                let list = ToolList { first, served: offered, ..ToolList::default() };
                let list = changing_tools::recorded(Some(recorded_run), list);
                let tools =
                    RecordedTools::open(list, servers.tools(), recorded_run, journal.as_ref(), redactor)
                        .await;
                let tools = tools.map_err(|error| unwritten(&error))?;
                match recorded_run.starts_servers() {
                    true => Arc::new(HybridTools::new(Arc::clone(recorded_run), tools, live())),
                    false => Arc::new(tools),
                }
            }
            _ => Arc::new(live()),
        };
        let tools = ToolProvider::Changing(source);
        Ok(Self { tools, servers, cancel })
    }

    /// People are told of servers that went away for good during a visit; the run ends for one that is required.
    pub fn look_at_servers(&self, run: &Run<'_>) -> Result<(), Stop> {
        for (gone, is_required) in self.servers.gone() {
            if run.journal.facts().warnings.iter().all(|warning| warning.text != gone.message) {
                run.journal.warn("mcp_server_missing", gone.message.clone());
            }
            if is_required {
                return Err(Stop::new(StopDetail::McpUnavailable, format!("{}.", gone.message)));
            }
        }
        Ok(())
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
