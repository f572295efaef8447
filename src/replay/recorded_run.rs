//! A recorded run as a source of replies, tool answers and states of the worktree, for a replay (P-040).

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use regex::Regex;
use serde_json::Value;

use super::offered_tool::as_recorded;
use super::offered_tools_format::{OFFERED_TOOLS, OfferedTools};
use super::recorded_model::{self, Answer, Given, kept, whole};
use super::recorded_programs::{RecordedPlace, RecordedPrograms};
use crate::domain::artifact::Artifact;
use crate::domain::briefing::{BRIEFING_FILE, Briefing};
use crate::domain::budget::Budgets;
use crate::domain::canonical::canonical_sha256;
use crate::domain::event::{Event, VerifyCommand};
use crate::domain::facts::RunFacts;
use crate::domain::ledger_entry::AccountingKind;
use crate::domain::message::{Message, ToolSpec};
use crate::domain::name::CommitId;
use crate::domain::others_merged::OthersMerged;
use crate::domain::policy::{EnvelopeStatus, Risk};
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::trace::{Item, ProgramRan};
use crate::engine::model::{Model, ModelError, ModelErrorClass, ModelReply, ModelRequest};
use crate::engine::new_remarks::NewRemark;
use crate::engine::recorded_programs;
use crate::engine::stop::StopHandle;
use crate::engine::tool::{BoundParameter, CallLimits, Permit, Tool, ToolCalled, ToolError, ToolOutput};
use crate::store::run_dir::RunDir;

/// What is taken from the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayMode {
    /// Everything comes from the record: no model is asked and no tool runs. What the record lacks is an error.
    Strict,
    /// What is there; what it lacks is asked and run.
    Hybrid,
    /// Nothing: model and tools are asked anew, in the scratch worktree.
    Live,
}

impl ReplayMode {
    /// Reads the word of `--mode`.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "strict" => Some(Self::Strict),
            "hybrid" => Some(Self::Hybrid),
            "live" => Some(Self::Live),
            _ => None,
        }
    }
}

/// A record being played.
pub struct RecordedRun {
    mode: ReplayMode,
    sessions: Mutex<VecDeque<RecordedSession>>,
    answers: Mutex<BTreeMap<(String, String), VecDeque<Recorded>>>,
    checkpoints: BTreeMap<u32, CommitId>,
    verified: Vec<VerifyCommand>,
    offered: Option<OfferedTools>,
    changed: Vec<RecordedChange>,
    budgets: Option<Budgets>,
    may_ask: bool,
    gates_plans: bool,
    /// What people said while it worked: visit, turn, remark.
    new_remarks: Vec<(u32, u32, NewRemark)>,
    briefing: Option<Briefing>,
    dir: RunDir,
    /// What it merged of others' commits.
    merged: Vec<OthersMerged>,
    /// How the run was ended from outside: by a person, by its time, or by the death of its process.
    cut_short: Option<Stop>,
    stopper: OnceLock<StopHandle>,
    missing: Mutex<Option<String>>,
    tools_run: AtomicU64,
    models_asked: AtomicU64,
    programs: RecordedPrograms,
}

/// The answers that one session got, and the handles of its stored outputs in the order they were given out.
struct RecordedSession {
    answers: VecDeque<Given>,
    handles: Vec<String>,
    /// Something was said that later requests of the session hold.
    begun: bool,
}

type Recorded = Result<ToolOutput, ToolError>;

fn programs_ran(facts: &RunFacts) -> impl Iterator<Item = ProgramRan> {
    facts.other.iter().filter_map(|(_, event)| match event {
        Event::ProgramRan(ran) => Some((**ran).clone()),
        _ => None,
    })
}

/// The briefing of a run, if it has one.
fn briefing(dir: &RunDir) -> Result<Option<Briefing>, String> {
    let path = dir.path.join(BRIEFING_FILE);
    match std::fs::read(&path) {
        Ok(bytes) => {
            let read = serde_json::from_slice(&bytes);
            read.map(Some).map_err(|error| format!("{}: {error}", path.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// A change of the servers' tools, as the record has it.
struct RecordedChange {
    /// Number of the session.
    session: usize,
    turn: u32,
    file: String,
    problems: Vec<String>,
    lost: Option<String>,
    offered: OfferedTools,
}

/// What the tools of the servers were from a place of the run on.
pub struct ToolsAt {
    /// Number of the session, in the order in which they began.
    pub session: usize,
    /// The turn; 0 = before the session began.
    pub turn: u32,
    /// File of the recorded run's directory.
    pub file: String,
    /// What of the change could not be used.
    pub problems: Vec<String>,
    /// Why a server that had to be there was not.
    pub lost: Option<String>,
    /// The tools.
    pub tools: Vec<Arc<dyn Tool>>,
}

impl RecordedRun {
    /// What the run was told at its start; `None` = it was recorded before there were briefings.
    pub fn briefing(&self) -> Option<&Briefing> {
        self.briefing.as_ref()
    }

    /// A file that the run kept. An error names it.
    pub fn file(&self, file: &Artifact) -> Result<Vec<u8>, String> {
        kept(&self.dir, &file.path)
    }

    /// Reads what a run left. Blocks. An error names the file.
    pub fn read(dir: &RunDir, facts: &RunFacts, mode: ReplayMode) -> Result<Self, String> {
        // What others pushed is checkpointed once more, after the visit before it.
        let mut checkpoints = BTreeMap::new();
        for (visit, commit) in &facts.checkpoints {
            checkpoints.entry(*visit).or_insert_with(|| commit.clone());
        }
        let mut sessions = VecDeque::new();
        let mut texts = BTreeMap::new();
        let rejected = recorded_model::rejected(dir, facts)?;
        for (_, event) in &facts.other {
            let Event::SessionClosed(closed) = event else { continue };
            let Some(kept) = &closed.conversation else { continue };
            let messages = conversation(&dir.path.join(&kept.path))?;
            for message in &messages {
                if let Message::Tool { tool_call_id, content } = message {
                    texts.insert((closed.visit, tool_call_id.clone()), content.clone());
                }
            }
            sessions.push_back(RecordedSession {
                answers: recorded_model::answers(closed.session, &messages, facts, &rejected),
                handles: handles(&messages),
                begun: false,
            });
        }
        Ok(Self {
            mode,
            sessions: Mutex::new(sessions),
            answers: Mutex::new(answers(dir, facts, &texts)?),
            checkpoints,
            verified: facts.verification.clone(),
            offered: offered(dir)?,
            changed: changed(dir, facts)?,
            may_ask: facts.started.as_ref().is_some_and(|started| started.may_ask),
            gates_plans: facts.started.as_ref().is_some_and(|started| started.gates_plans),
            budgets: facts.started.as_ref().map(|started| started.budgets.clone()),
            new_remarks: new_remarks(facts),
            merged: merged(facts),
            briefing: briefing(dir)?,
            dir: dir.clone(),
            cut_short: facts.end.clone().filter(|end| from_outside(end.detail)),
            stopper: OnceLock::new(),
            missing: Mutex::new(None),
            tools_run: AtomicU64::new(0),
            models_asked: AtomicU64::new(0),
            programs: RecordedPrograms::new(programs_ran(facts)),
        })
    }

    /// What people said at a turn of a visit.
    pub fn new_remarks(&self, visit: u32, turn: u32) -> Vec<NewRemark> {
        let there = self.new_remarks.iter().filter(|(at, then, _)| (*at, *then) == (visit, turn));
        there.map(|(_, _, said)| said.clone()).collect()
    }

    /// What others had pushed when so many visits were made, where it conflicted with the work.
    pub fn conflict_after(&self, visits: u32) -> Option<&OthersMerged> {
        self.merged.iter().find(|merged| merged.visit == visits && !merged.conflicts.is_empty())
    }

    /// What others had pushed that merged by itself after the flow.
    pub fn merged_at_end(&self) -> Option<&OthersMerged> {
        self.merged.iter().find(|merged| merged.conflicts.is_empty())
    }

    /// What the record lacked, in words; only a strict replay ends by it.
    pub fn missing(&self) -> Option<String> {
        lock(&self.missing).clone()
    }

    /// Tools that really ran, and model requests that were really made.
    pub fn effects(&self) -> (u64, u64) {
        (self.tools_run.load(Ordering::Relaxed), self.models_asked.load(Ordering::Relaxed))
    }

    pub(super) fn mode(&self) -> ReplayMode {
        self.mode
    }

    pub(super) fn recorded_programs(&self) -> &RecordedPrograms {
        &self.programs
    }

    /// Programs of steps, checks and completion conditions that really ran.
    pub fn programs_run(&self) -> u64 {
        self.programs.run()
    }

    /// The record as the place where programs run.
    pub fn programs(self: &Arc<Self>) -> Arc<dyn recorded_programs::RecordedPrograms> {
        Arc::new(RecordedPlace(Arc::clone(self)))
    }

    /// The state of the worktree after a recorded visit, for a replay that does not make the edits itself.
    pub fn state_after(&self, visit: u32) -> Option<&CommitId> {
        self.checkpoints.get(&visit).filter(|_| self.mode != ReplayMode::Live)
    }

    /// The result of a verify command on exactly this tree. In a strict replay there is always an answer.
    pub fn verified(&self, argv: &[String], tree: &str) -> Option<VerifyCommand> {
        let known = self.verified.iter().find(|run| run.argv == argv && run.tree_before == tree);
        match (self.mode, known) {
            (ReplayMode::Live, _) => None,
            (_, Some(known)) => Some(known.clone()),
            (ReplayMode::Hybrid, None) => None,
            (ReplayMode::Strict, None) => Some(VerifyCommand {
                argv: argv.to_vec(),
                exit_code: None,
                end: Some("not run: the record has no run of it on this tree".to_owned()),
                not_started: true,
                also_red_on_base: None,
                started_at: 0,
                duration_ms: 0,
                stdout_sha256: String::new(),
                stderr_sha256: String::new(),
                stdout_bytes: 0,
                stderr_bytes: 0,
                tail: String::new(),
                output: String::new(),
                output_file: None,
                sandbox: "none".to_owned(),
                executes: Vec::new(),
                rewritten: Vec::new(),
                tree_before: tree.to_owned(),
                tree_after: tree.to_owned(),
            }),
        }
    }

    /// The record as a model; `live` answers what the mode leaves to it.
    pub fn model(self: &Arc<Self>, live: Arc<dyn Model>) -> Arc<dyn Model> {
        Arc::new(RecordedModel { recorded_run: Arc::clone(self), live })
    }

    /// The caps that the run had, whatever an issue or a configuration says now.
    pub fn budgets(&self) -> Option<&Budgets> {
        self.budgets.as_ref()
    }

    /// Whether its agent could ask people.
    pub fn may_ask(&self) -> bool {
        self.may_ask
    }

    /// Whether its plan had to be approved.
    pub fn gates_plans(&self) -> bool {
        self.gates_plans
    }

    /// Whether a model can be asked at all: a strict replay needs no key.
    pub fn asks_models(&self) -> bool {
        self.mode != ReplayMode::Strict
    }

    /// Lets the replay end as the run did that was ended from outside.
    pub fn stops_with(&self, stop: StopHandle) {
        // A replay is walked once.
        let _first = self.stopper.set(stop);
    }

    /// Whether MCP servers are started: a strict replay needs none.
    pub fn starts_servers(&self) -> bool {
        self.mode != ReplayMode::Strict
    }

    /// Whether a model had to be asked, so that what follows is not of the record.
    pub(super) fn has_asked_models(&self) -> bool {
        self.models_asked.load(Ordering::Relaxed) > 0
    }

    /// The tools of MCP servers as the run offered them; `live` are those of the servers that run now, for what the record
    /// cannot answer. `None` = nothing but those counts.
    pub fn offered(&self, live: &[Arc<dyn Tool>]) -> Option<Vec<Arc<dyn Tool>>> {
        match (self.mode, &self.offered) {
            (ReplayMode::Live, _) | (ReplayMode::Hybrid, None) => None,
            (_, offered) => {
                Some(offered.as_ref().map(|offered| as_recorded(offered, live)).unwrap_or_default())
            }
        }
    }

    /// How servers changed their tools while the run went on; `live` as above.
    pub fn tool_changes(&self, live: &[Arc<dyn Tool>]) -> impl Iterator<Item = ToolsAt> {
        self.changed.iter().map(|change| ToolsAt {
            session: change.session,
            turn: change.turn,
            file: change.file.clone(),
            problems: change.problems.clone(),
            lost: change.lost.clone(),
            tools: as_recorded(&change.offered, live),
        })
    }

    /// The record is at its end. If the run was ended from outside here, the replay ends too, and this never returns.
    pub(super) async fn end_as_recorded(&self) {
        if let (ReplayMode::Strict, Some(end), Some(stop)) = (self.mode, &self.cut_short, self.stopper.get())
        {
            stop.abort(end.clone());
            std::future::pending::<()>().await;
        }
    }

    /// The record as tools, in the order and with the words of the real ones.
    pub fn tools(self: &Arc<Self>, real: &[Arc<dyn Tool>]) -> Vec<Arc<dyn Tool>> {
        let recorded = |real: &Arc<dyn Tool>| {
            Arc::new(RecordedTool { recorded_run: Arc::clone(self), real: Arc::clone(real) }) as Arc<dyn Tool>
        };
        real.iter().map(recorded).collect()
    }

    /// Whether it takes no reply from the record.
    pub fn asks_anew(&self) -> bool {
        self.mode == ReplayMode::Live
    }

    pub(super) fn lacks(&self, what: String) -> String {
        lock(&self.missing).get_or_insert(what).clone()
    }

    fn next_answer(&self, request: &ModelRequest) -> Option<Answer> {
        let mut sessions = lock(&self.sessions);
        let first = !request.messages.iter().any(|message| matches!(message, Message::Assistant { .. }));
        while let Some(session) = sessions.front()
            && (session.answers.is_empty() || (first && session.begun))
        {
            sessions.pop_front();
        }
        let session = sessions.front_mut()?;
        let given = session.answers.pop_front()?;
        // A turn whose attempts were all refused adds nothing to the first request of the next turn.
        session.begun |= given.accepted;
        let mut reply = match given.answer {
            Ok(reply) => reply,
            Err(error) => return Some(Err(error)),
        };
        // Every run makes new handles. The recorded one means the one that was given out at the same place.
        let now = handles(&request.messages);
        for (old, new) in session.handles.iter().zip(&now) {
            for call in &mut reply.tool_calls {
                call.arguments = call.arguments.replace(old.as_str(), new);
            }
        }
        Some(Ok(reply))
    }
}

fn new_remarks(facts: &RunFacts) -> Vec<(u32, u32, NewRemark)> {
    let said = facts.other.iter().filter_map(|(_, event)| match event {
        Event::RemarkTold { id, visit, turn, text: Some(text), thread } => {
            Some((*visit, *turn, NewRemark { id: *id, text: text.clone(), thread: thread.clone() }))
        }
        _ => None,
    });
    said.collect()
}

fn merged(facts: &RunFacts) -> Vec<OthersMerged> {
    let merged = facts.other.iter().filter_map(|(_, event)| match event {
        Event::OthersMerged(merged) => Some(merged.as_ref().clone()),
        _ => None,
    });
    merged.collect()
}

/// What no replay comes to by itself.
fn from_outside(detail: StopDetail) -> bool {
    matches!(
        detail,
        StopDetail::UserStop
            | StopDetail::UserAbort
            | StopDetail::Shutdown
            | StopDetail::IssueClosed
            | StopDetail::LabelRemoved
            | StopDetail::Interrupted
            | StopDetail::Overtaken
            | StopDetail::MaxWallTime
            | StopDetail::Taken
    )
}

fn offered(dir: &RunDir) -> Result<Option<OfferedTools>, String> {
    if !dir.path.join(OFFERED_TOOLS).exists() {
        return Ok(None);
    }
    let bytes = kept(dir, OFFERED_TOOLS)?;
    OfferedTools::read(&bytes).map(Some).map_err(|error| format!("{OFFERED_TOOLS}: {error}"))
}

fn changed(dir: &RunDir, facts: &RunFacts) -> Result<Vec<RecordedChange>, String> {
    let mut sessions: Vec<uuid::Uuid> = Vec::new();
    let mut changed = Vec::new();
    for (_, event) in &facts.other {
        let (session, turn, file, problems, lost) = match event {
            Event::SessionOpened(opened) => {
                sessions.push(opened.session);
                (opened.session, 0, &opened.tools_file, Vec::new(), None)
            }
            Event::ToolsChanged(changed) => {
                let (problems, lost) = (changed.problems.clone(), changed.lost.clone());
                (changed.session, changed.turn, &changed.tools_file, problems, lost)
            }
            _ => continue,
        };
        let at = sessions.iter().position(|known| *known == session);
        let (Some(session), Some(file)) = (at, file) else { continue };
        let bytes = kept(dir, file)?;
        let offered = OfferedTools::read(&bytes).map_err(|error| format!("{file}: {error}"))?;
        changed.push(RecordedChange { session, turn, file: file.clone(), problems, lost, offered });
    }
    Ok(changed)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is held is whole after every single step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn conversation(path: &Path) -> Result<Vec<Message>, String> {
    let failed = |error: String| format!("{}: {error}", path.display());
    let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let document: Value = serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string()))?;
    let messages = document.get("messages").cloned().unwrap_or_default();
    serde_json::from_value(messages).map_err(|error| failed(error.to_string()))
}

/// Handles of stored outputs in the tool messages, in order.
fn handles<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Vec<String> {
    static HANDLE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"session-[0-9a-f-]{36}/[0-9a-f-]{36}").ok());
    let mut found: Vec<String> = Vec::new();
    for message in messages {
        let (Message::Tool { content, .. }, Some(shape)) = (message, &*HANDLE) else { continue };
        for handle in shape.find_iter(content).map(|found| found.as_str().to_owned()) {
            if !found.contains(&handle) {
                found.push(handle);
            }
        }
    }
    found
}

/// The answers of calls that ran, by tool and arguments, in order. Denied calls are not among them, because the gate
/// decides about them again.
fn answers(
    dir: &RunDir,
    facts: &RunFacts,
    texts: &BTreeMap<(u32, String), String>,
) -> Result<BTreeMap<(String, String), VecDeque<Recorded>>, String> {
    let mut open: BTreeMap<(u32, String), (String, String)> = BTreeMap::new();
    let mut told: BTreeMap<String, Value> = BTreeMap::new();
    let mut answers: BTreeMap<(String, String), VecDeque<Recorded>> = BTreeMap::new();
    for (_, event) in &facts.other {
        match event {
            Event::ToolFacts { call_id, facts, .. } => {
                told.insert(call_id.clone(), facts.clone());
            }
            Event::ItemRecorded { visit, item, .. } => match item.as_ref() {
                Item::ToolCallItem { call_id, name, arguments, .. } => {
                    let arguments = whole(dir, arguments)?;
                    open.insert((*visit, call_id.clone()), (name.clone(), hash(&arguments)));
                }
                Item::ToolCallOutputItem { call_id, output, .. } => {
                    let at = (*visit, call_id.clone());
                    let Some(key) = open.remove(&at) else { continue };
                    let facts_told = told.remove(call_id);
                    let text = texts.get(&at).map(String::as_str).unwrap_or_default();
                    let recorded = match (output.status, &output.data) {
                        (EnvelopeStatus::Ok, Some(data)) => {
                            ran(dir, facts, &whole(dir, data)?, call_id, *visit, facts_told)?
                        }
                        (EnvelopeStatus::Denied, _) if failure(text).is_some() => Err(ToolError::Refused {
                            code: output.code.clone().unwrap_or_default(),
                            message: failure(text).unwrap_or_default().to_owned(),
                        }),
                        _ => continue,
                    };
                    answers.entry(key).or_default().push_back(recorded);
                }
                Item::Message { .. } | Item::HandoffItem { .. } => {}
            },
            _ => {}
        }
    }
    Ok(answers)
}

/// `(tool failed: …)`
fn failure(text: &str) -> Option<&str> {
    text.strip_prefix("(tool failed: ")?.strip_suffix(')')
}

fn hash(arguments: &Value) -> String {
    canonical_sha256(arguments).unwrap_or_default()
}

fn ran(
    dir: &RunDir,
    facts: &RunFacts,
    data: &Value,
    call_id: &str,
    visit: u32,
    told: Option<Value>,
) -> Result<Recorded, String> {
    let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let entry = facts.ledger.iter().find_map(|entry| match &entry.what {
        AccountingKind::Tool { call_id: of, handle, exit_code, .. }
            if of == call_id && entry.step_visit == visit =>
        {
            Some((handle.clone(), *exit_code))
        }
        _ => None,
    });
    let (handle, exit_code) = entry.unwrap_or_default();
    let output = match (data.get("result"), handle) {
        (Some(Value::String(result)), _) => result.clone(),
        (_, Some(handle)) => {
            String::from_utf8_lossy(&kept(dir, &format!("tool-output/{handle}"))?).into_owned()
        }
        _ if text("error_type") == "Timeout" => return Ok(Err(ToolError::Timeout)),
        _ => {
            return Ok(Err(ToolError::ForModel { error_type: text("error_type"), message: text("message") }));
        }
    };
    Ok(Ok(ToolOutput { text: output, exit_code, facts: told }))
}

struct RecordedModel {
    recorded_run: Arc<RecordedRun>,
    live: Arc<dyn Model>,
}

impl Model for RecordedModel {
    fn complete<'a>(&'a self, request: &'a ModelRequest) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        async move {
            let mode = self.recorded_run.mode;
            if mode != ReplayMode::Live
                && let Some(answer) = self.recorded_run.next_answer(request)
            {
                return answer;
            }
            self.recorded_run.end_as_recorded().await;
            if mode == ReplayMode::Strict {
                let message =
                    self.recorded_run.lacks("the record has no further reply of the model".to_owned());
                return Err(ModelError::new(ModelErrorClass::BadRequest, message));
            }
            self.recorded_run.models_asked.fetch_add(1, Ordering::Relaxed);
            self.live.complete(request).await
        }
        .boxed()
    }
}

struct RecordedTool {
    recorded_run: Arc<RecordedRun>,
    real: Arc<dyn Tool>,
}

impl Tool for RecordedTool {
    fn spec(&self) -> &ToolSpec {
        self.real.spec()
    }

    fn source(&self) -> &str {
        self.real.source()
    }

    fn risk(&self) -> Risk {
        self.real.risk()
    }

    fn only_reads(&self) -> bool {
        self.real.only_reads()
    }

    fn queue(&self) -> Option<&str> {
        self.real.queue()
    }

    fn bound_parameters(&self) -> &[BoundParameter] {
        self.real.bound_parameters()
    }

    fn arguments_schema(&self) -> &Value {
        self.real.arguments_schema()
    }

    fn call<'a>(&'a self, permit: Permit, arguments: &'a Value, limits: CallLimits) -> ToolCalled<'a> {
        async move {
            let (mode, name) = (self.recorded_run.mode, &self.spec().name);
            // The host sets bound parameters. The record has the arguments as the model wrote them.
            let mut asked = arguments.clone();
            if let Some(members) = asked.as_object_mut() {
                for bound in self.bound_parameters() {
                    members.remove(bound.name());
                }
            }
            let key = (name.clone(), hash(&asked));
            if mode != ReplayMode::Live
                && let Some(recorded) =
                    lock(&self.recorded_run.answers).get_mut(&key).and_then(VecDeque::pop_front)
            {
                return recorded;
            }
            self.recorded_run.end_as_recorded().await;
            if mode == ReplayMode::Strict {
                let what = format!("the record has no further answer of {name} to arguments {}", key.1);
                return Err(ToolError::Fatal(self.recorded_run.lacks(what)));
            }
            self.recorded_run.tools_run.fetch_add(1, Ordering::Relaxed);
            self.real.call(permit, arguments, limits).await
        }
        .boxed()
    }
}
