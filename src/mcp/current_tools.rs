//! The tools of a run or a service as they are now: those of MCP servers among others that never change.

use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use uuid::Uuid;

use super::servers::McpServers;
use crate::engine::journal::JournalError;
use crate::engine::tool::Tool;
use crate::engine::tool_list::{ToolList, ToolSource};

/// The servers, and the list that their tools stand in.
pub struct CurrentTools {
    servers: Arc<McpServers>,
    list: Mutex<Arc<ToolList>>,
    /// One looks at a time.
    turn: tokio::sync::Mutex<()>,
}

impl CurrentTools {
    /// The tools of the servers between these.
    pub fn new(before: Vec<Arc<dyn Tool>>, servers: Arc<McpServers>, after: Vec<Arc<dyn Tool>>) -> Self {
        let served = servers.tools().to_vec();
        let first = before.into_iter().chain(served.iter().cloned()).chain(after).collect();
        let list = Arc::new(ToolList { first, served, ..ToolList::default() });
        Self { servers, list: Mutex::new(list), turn: tokio::sync::Mutex::default() }
    }

    /// The list as it is known.
    pub fn known(&self) -> Arc<ToolList> {
        Arc::clone(&self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The list as it is now: a server that said that its tools changed is asked for them.
    pub async fn now(&self) -> Arc<ToolList> {
        let _turn = self.turn.lock().await;
        let known = self.known();
        let Some(change) = self.servers.changes().await else { return known };
        let problems = change.warnings.into_iter().map(|warning| warning.message).collect();
        let list = Arc::new(ToolList { problems, lost: change.lost, ..known.with_served(change.tools) });
        *self.list.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&list);
        list
    }
}

impl ToolSource for CurrentTools {
    fn list(&self, _session: Uuid, _turn: u32) -> BoxFuture<'_, Result<Arc<ToolList>, JournalError>> {
        self.now().map(Ok).boxed()
    }
}
