//! The tools of a run where MCP servers change theirs: kept beside the record before they are offered, and taken from there by
//! a replay: a strict one starts no server, a hybrid one offers what servers have once the record is at its end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use uuid::Uuid;

use super::offered_tools_format::{OFFERED_TOOLS, OfferedTools};
use super::recorded_run::RecordedRun;
use crate::domain::redaction::Redactor;
use crate::engine::journal::{Journal, JournalError};
use crate::engine::tool::Tool;
use crate::engine::tool_list::{ToolList, ToolSource};
use crate::mcp::CurrentTools;

/// The tools of servers that run.
pub struct LiveTools {
    current: CurrentTools,
    journal: Arc<dyn Journal>,
    redactor: Arc<Redactor>,
    /// Answers of a recorded run stand for the tools' own, where it has them.
    recorded_run: Option<Arc<RecordedRun>>,
    offered: tokio::sync::Mutex<Offered>,
}

/// What was last offered.
struct Offered {
    /// What it was made of; `None` = nothing was offered yet of what these servers have.
    current: Option<Arc<ToolList>>,
    list: Arc<ToolList>,
    /// Changes so far, the record's too.
    changes: usize,
}

impl LiveTools {
    /// Offers these, as far as the record has to tell of them.
    pub fn new(
        current: CurrentTools,
        journal: Arc<dyn Journal>,
        redactor: Arc<Redactor>,
        recorded_run: Option<Arc<RecordedRun>>,
    ) -> Self {
        let known = current.known();
        let list = Arc::new(recorded(recorded_run.as_ref(), ToolList::clone(&known)));
        let offered = tokio::sync::Mutex::new(Offered { current: Some(known), list, changes: 0 });
        Self { current, journal, redactor, recorded_run, offered }
    }

    /// Takes over from the record, whose changes were so many: what it offers first is one more.
    fn after(self, changes: usize) -> Self {
        Self {
            offered: tokio::sync::Mutex::new(Offered { current: None, list: Arc::default(), changes }),
            ..self
        }
    }

    /// Whether it took over, or has to, since it does not offer what was recorded.
    async fn takes_over(&self, recorded: &ToolList) -> bool {
        self.offered.lock().await.current.is_some()
            || OfferedTools::of(&self.current.now().await.served) != OfferedTools::of(&recorded.served)
    }
}

impl ToolSource for LiveTools {
    fn list(&self, _session: Uuid, _turn: u32) -> BoxFuture<'_, Result<Arc<ToolList>, JournalError>> {
        async move {
            let current = self.current.now().await;
            let mut offered = self.offered.lock().await;
            if !offered.current.as_ref().is_some_and(|before| Arc::ptr_eq(&current, before)) {
                offered.changes += 1;
                let path = format!("artifacts/mcp-tools-{}.json", offered.changes);
                let file = keep(&path, &current.served, self.journal.as_ref(), &self.redactor).await?;
                let list = ToolList { file: file.then_some(path), ..ToolList::clone(&current) };
                offered.list = Arc::new(recorded(self.recorded_run.as_ref(), list));
                offered.current = Some(current);
            }
            Ok(Arc::clone(&offered.list))
        }
        .boxed()
    }
}

/// The tools that servers offer, kept for a replay without them. False where they cannot be redacted: then they are not kept
/// (P-032), and a strict replay lacks them and says so.
async fn keep(
    path: &str,
    offered: &[Arc<dyn Tool>],
    journal: &dyn Journal,
    redactor: &Redactor,
) -> Result<bool, JournalError> {
    let tools = serde_json::to_value(OfferedTools::of(offered)).unwrap_or_default();
    let Ok(clean) = redactor.redact_json(&tools) else { return Ok(false) };
    journal.keep(path, clean.to_string().into_bytes()).await.map(|_| true)
}

/// Keeps the tools that a run begins with.
pub async fn keep_first(
    offered: &[Arc<dyn Tool>],
    journal: &dyn Journal,
    redactor: &Redactor,
) -> Result<(), JournalError> {
    keep(OFFERED_TOOLS, offered, journal, redactor).await.map(drop)
}

/// The list with the record's answers in place of the tools' own.
pub fn recorded(recorded_run: Option<&Arc<RecordedRun>>, list: ToolList) -> ToolList {
    let Some(recorded_run) = recorded_run else { return list };
    ToolList {
        first: recorded_run.tools(&list.first),
        later: recorded_run.tools(&list.later),
        served: recorded_run.tools(&list.served),
        ..list
    }
}

/// The lists of a recorded run, each at its place.
pub struct RecordedTools {
    first: Arc<ToolList>,
    /// By number of the session, counted from its beginning, and turn.
    changes: BTreeMap<(usize, u32), Arc<ToolList>>,
    sessions: Mutex<Vec<Uuid>>,
}

impl RecordedTools {
    /// The lists of `recorded_run` after `first`, which is what the recorded run began with. They are kept as the run kept them.
    /// `live` are the tools of servers that run now.
    pub async fn open(
        first: ToolList,
        live: &[Arc<dyn Tool>],
        recorded_run: &Arc<RecordedRun>,
        journal: &dyn Journal,
        redactor: &Redactor,
    ) -> Result<Self, JournalError> {
        let mut changes = BTreeMap::new();
        let mut last = first.clone();
        for change in recorded_run.tool_changes(live) {
            let served = recorded(Some(recorded_run), ToolList::fixed(change.tools)).first;
            keep(&change.file, &served, journal, redactor).await?;
            let (file, problems) = (Some(change.file), change.problems);
            last = ToolList { file, problems, lost: change.lost, ..last.with_served(served) };
            changes.insert((change.session, change.turn), Arc::new(last.clone()));
        }
        Ok(Self { first: Arc::new(first), changes, sessions: Mutex::default() })
    }
}

impl ToolSource for RecordedTools {
    fn list(&self, session: Uuid, turn: u32) -> BoxFuture<'_, Result<Arc<ToolList>, JournalError>> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let number = sessions.iter().position(|known| *known == session).unwrap_or_else(|| {
            sessions.push(session);
            sessions.len() - 1
        });
        let list = self.changes.range(..=(number, turn)).next_back().map_or(&self.first, |(_, list)| list);
        std::future::ready(Ok(Arc::clone(list))).boxed()
    }
}

/// The lists of a recorded run for as long as it answers; what servers have from the first turn on that it did not answer.
pub struct HybridTools {
    recorded_run: Arc<RecordedRun>,
    recorded: RecordedTools,
    live: LiveTools,
}

impl HybridTools {
    /// The servers' tools behind the record's.
    pub fn new(recorded_run: Arc<RecordedRun>, recorded: RecordedTools, live: LiveTools) -> Self {
        let live = live.after(recorded.changes.len());
        Self { recorded_run, recorded, live }
    }
}

impl ToolSource for HybridTools {
    fn list(&self, session: Uuid, turn: u32) -> BoxFuture<'_, Result<Arc<ToolList>, JournalError>> {
        async move {
            let recorded = self.recorded.list(session, turn).await?;
            if self.recorded_run.has_asked_models() && self.live.takes_over(&recorded).await {
                return self.live.list(session, turn).await;
            }
            Ok(recorded)
        }
        .boxed()
    }
}
