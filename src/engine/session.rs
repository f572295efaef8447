//! The built-in session: the turns of one model conversation, until there is a report (A-001…A-088).
//!
//! Read it from the top: `run_session` opens, drives and closes; `turn` is the retry loop and the tool phase of one
//! turn; `attempt` is one request; tool calls go through `gate` and `execution`.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use tokio::time::Instant;

use super::abort::Abort;
use super::arguments::Scope;
use super::budget::Meter;
use super::clock::RunClock;
use super::context_guard::ContextGuard;
use super::conversation::Conversation;
use super::gate::{Gate, UnfitTool};
use super::interrupt::Interrupts;
use super::journal::Journal;
use super::model::Model;
use super::nearest_rules::{Background, NearestRules};
use super::new_remarks::RemarksSince;
use super::pacing::Backoff;
use super::policy::Policy;
use super::queue::Queues;
use super::redaction_program::RedactionProgram;
pub use super::reply_validation::SessionMode;
use super::report::{self, ModelReport, ReportShape, SessionFacts};
use super::session_outcome::SessionOutcome;
use super::session_trace::{SessionIds, SessionTrace, clean_claims, cleaned, prompt_mark};
use super::shared_caps::SharedCaps;
use super::stop::StopSignal;
use super::task_status::StatusWatch;
use super::tool::Tool;
use super::tool_catalog::{SessionTools, ToolCatalogs};
use super::tool_list::{ToolList, ToolProvider};
use super::tool_output::{StoredOutputs, ToolOutputReader};
use super::tool_schema::ArgumentSchemas;
use super::touched::Touched;
use super::turn_end::TurnEnd;
use crate::domain::canonical::sha256_hex;
use crate::domain::event::Event;
use crate::domain::message::{Message, Messages, TokenUsage};
use crate::domain::model_target::SessionSettings;
use crate::domain::money::Money;
use crate::domain::redaction::Redactor;
use crate::domain::report::{ProposedClaim, ReportSource};
use crate::domain::run::ForcedFinal;
use crate::domain::stop::StopDetail;
use crate::domain::trace::{
    Exclusion, ItemRole, ManifestInput, Pointer, SessionClosed, SessionFailure, SessionOpened,
};

/// Errors looked back on in a synthetic report.
const LAST_ERRORS: usize = 5;

/// What one session is to do.
#[derive(Clone)]
pub struct SessionRequest {
    /// Where it stands in the run.
    pub ids: SessionIds,
    /// For whom and where.
    pub scope: Scope,
    /// Task or chat.
    pub mode: SessionMode,
    /// The instructions: the same bytes for the whole session, without clock and counters. Empty = none.
    pub system: String,
    /// The opening messages: for a task one user message (D67), for a chat the history. Never empty.
    pub opening: Messages,
    /// The facts of the moment (date and time). They are sent on the user side just before the last opening message,
    /// so that everything before them stays a stable prefix, and never kept (S-053, C-19).
    pub aside: Option<String>,
    /// What the report must be.
    pub report: ReportShape,
    /// Limits and targets.
    pub settings: SessionSettings,
    /// The tools that are offered, in a fixed order. The protocol tools are added after them.
    pub tools: ToolProvider,
    /// Hashes of the prompt, for the snapshots.
    pub prompt: PromptIdentity,
    /// The longest time of one attempt together with its tools (chat, S-040). `None` = off.
    pub turn_timeout: Option<Duration>,
    /// What was stored and noted before the session.
    pub background: Arc<Background>,
}

/// Which prompt a session runs with (P-026).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PromptIdentity {
    /// Over system prompt and resolved step prompt (D88).
    pub prompt_hash: String,
    /// Over both templates (D88).
    pub template_hash: String,
    /// Template id and version.
    pub version: Option<String>,
    /// `record.include_prompt_text` (P-027).
    pub include_text: bool,
}

/// What a session works with; the sessions of a run share it.
#[derive(Clone)]
pub struct SessionWorld {
    /// The provider side.
    pub model: Arc<dyn Model>,
    /// The run's journal.
    pub journal: Arc<dyn Journal>,
    /// The policy in force for this session.
    pub policy: Arc<Policy>,
    /// The run's redactor.
    pub redactor: Arc<Redactor>,
    /// The run's budgets.
    pub meter: Arc<Meter>,
    /// What the run shares with others: the cap of the day, and that of its issue (D87).
    pub caps: SharedCaps,
    /// The run's stop signal.
    pub stop: StopSignal,
    /// The run's clock.
    pub clock: RunClock,
    /// The process's tool queues.
    pub queues: Arc<Queues>,
    /// What people say to the run while it works. `None` = nobody can.
    pub new_remarks: Option<RemarksSince>,
    /// The tools' argument schemas, compiled.
    pub schemas: ArgumentSchemas,
    /// The tools as they are offered.
    pub tool_catalogs: ToolCatalogs,
    /// Waits between attempts.
    pub backoff: Backoff,
    /// agentd's version, for fingerprints.
    pub runtime_version: String,
    /// Checks the claims of a report before it counts. `None` = they are checked at the end of the run only.
    pub claims: Option<ClaimCheck>,
    /// The program that gets every tool output before it is kept or read. `None` = there is no such program.
    pub redaction: Option<Arc<RedactionProgram>>,
    /// Whether a failed session keeps what it sent and received, redacted (C-20).
    pub fault_snapshots: bool,
    /// Longest text that stands inline in the record, in bytes.
    pub longest_inline: usize,
    /// Learns of each call that can change files.
    pub touched: Touched,
}

impl SessionWorld {
    /// Writes the record of one session.
    pub(super) fn record(&self, ids: SessionIds) -> SessionTrace {
        SessionTrace::new(Arc::clone(&self.journal), Arc::clone(&self.redactor), self.clock, ids)
            .inline_up_to(self.longest_inline)
            .asking(self.redaction.clone())
    }

    /// The gate of a session, a call or a handoff.
    pub fn gate(
        &self,
        record: SessionTrace,
        scope: Scope,
        tools: &[Arc<dyn Tool>],
    ) -> Result<Gate, UnfitTool> {
        let gate = Gate::new(Arc::clone(&self.policy), record, scope, tools, &self.queues, &self.schemas)?;
        Ok(gate.with_questions(self.tool_catalogs.asks()))
    }
}

/// Looks up the citations of a visit's claims. Gives a sentence for each claim that does not hold.
pub type ClaimCheck = Arc<dyn Fn(u32, Vec<ProposedClaim>) -> BoxFuture<'static, Vec<String>> + Send + Sync>;

/// A session under way.
pub(super) struct Session<'a> {
    pub(super) request: &'a SessionRequest,
    pub(super) world: &'a SessionWorld,
    pub(super) record: SessionTrace,
    pub(super) interrupts: Interrupts,
    pub(super) gate: Gate,
    pub(super) guard: ContextGuard,
    pub(super) outputs: Arc<StoredOutputs>,
    /// Rules of folders that it was not told of yet.
    pub(super) nearest_rules: NearestRules,
    /// Offered on open turns, and on the final one.
    pub(super) tools: SessionTools,
    /// What these are made of.
    pub(super) list: Arc<ToolList>,
    /// Reads stored outputs back.
    pub(super) reader: Arc<dyn Tool>,
    pub(super) conversation: Conversation,
    /// What the record has in place of the first messages, if these are prompts that it does not keep (P-027).
    prompt_marks: Vec<String>,
    /// The turn under way, 1-based.
    pub(super) turn: u32,
    /// The last turn that may be opened. It only gets smaller.
    pub(super) ceiling: u32,
    pub(super) accepted: u32,
    pub(super) attempts: u32,
    pub(super) tools_run: u32,
    /// Set once: the session never un-forces.
    pub(super) forced: Option<ForcedFinal>,
    /// Targets that are still asked.
    pub(super) live: Vec<usize>,
    /// Whether a service refused the images.
    pub(super) without_images: bool,
    pub(super) status: StatusWatch,
    pub(super) exclusions: Vec<Exclusion>,
    pub(super) last_errors: VecDeque<String>,
    pub(super) usage: TokenUsage,
    pub(super) cost: Money,
    pub(super) cost_unknown: bool,
    /// Whether the oversized request was told about.
    pub(super) over_told: bool,
    /// Whether claims were sent back once.
    pub(super) claims_sent_back: bool,
    /// The deadline of the last report after a stop.
    pub(super) report_until: Option<Instant>,
    /// That money is left for the last report alone.
    pub(super) out_of_money: Option<Abort>,
}

/// Runs a session to its end. It always gives an outcome and never panics.
pub async fn run_session(request: SessionRequest, world: &SessionWorld) -> SessionOutcome {
    let mut outcome = run_unconfirmed(request, world).await;
    if let Err(abort) = world.wait_confirmed().await
        && outcome.failure.is_none()
    {
        outcome.failure = Some(abort.into_failure());
    }
    world.caps.sync().await;
    outcome
}

/// [`run_session`], while what its last request cost may still be on its way to where the run shares it: the caller waits for it.
pub(super) async fn run_unconfirmed(request: SessionRequest, world: &SessionWorld) -> SessionOutcome {
    let record = world.record(request.ids.clone());
    let list = request.tools.list(request.ids.session, 0).await;
    let opened =
        list.map_err(Abort::from).and_then(|list| Session::new(&request, world, record.clone(), list));
    let mut session = match opened {
        Ok(session) => session,
        Err(abort) => return unopened(&request, world, &record, abort),
    };
    let driven = AssertUnwindSafe(async {
        session.open().await?;
        session.drive().await
    });
    let ended = match driven.catch_unwind().await {
        Ok(ended) => ended,
        Err(_) => Err(Abort::internal("the session panicked")),
    };
    session.close(ended).await
}

impl<'a> Session<'a> {
    fn new(
        request: &'a SessionRequest,
        world: &'a SessionWorld,
        record: SessionTrace,
        list: Arc<ToolList>,
    ) -> Result<Self, Abort> {
        let settings = &request.settings;
        let unusable =
            |problem: &str| Abort::new(StopDetail::ConfigInvalid, "ConfigurationError", problem, problem);
        if settings.targets.is_empty() {
            return Err(unusable("No model target is configured; add a [[session.targets]] entry."));
        }
        if settings.max_retries == 0 || settings.max_turns == 0 {
            return Err(unusable("max_retries and max_turns must be at least 1."));
        }
        if settings.targets.iter().any(|target| target.context_limit().is_none()) {
            return Err(unusable(
                "context_window must be larger than context_window_buffer and max_output_tokens together (A-018).",
            ));
        }
        if request.opening.is_empty() {
            return Err(unusable("A session needs at least one message to begin with."));
        }
        let report = (request.mode == SessionMode::Task).then(|| request.report.tool());
        let offered = world
            .tool_catalogs
            .of(&list, report, settings.read_page_lines, &world.redactor)
            .map_err(|error| Abort::internal(error.to_string()))?;
        let outputs = StoredOutputs::new(request.ids.session, Arc::clone(&world.journal));
        let outputs = Arc::new(outputs.with(&request.background.stored));
        let (reader, page_lines) = (Arc::clone(&offered.reader), settings.read_page_lines);
        let reader: Arc<dyn Tool> =
            Arc::new(ToolOutputReader::offered(reader, Arc::clone(&outputs), page_lines));
        let behind: Vec<Arc<dyn Tool>> = list.all().chain([&reader]).cloned().collect();
        let gate =
            world.gate(record.clone(), request.scope.clone(), &behind)?.with_loop_limits(settings.loop_guard);
        let gate = if request.mode == SessionMode::Task { gate.with_protocol() } else { gate };
        let (conversation, mut guard) = begun(request)?;
        if settings.targets.iter().any(|target| target.images) {
            guard.append_images(request.background.images.len());
        }
        Ok(Self {
            interrupts: Interrupts {
                stop: world.stop.clone(),
                meter: Arc::clone(&world.meter),
                whole_turns: true,
            },
            nearest_rules: NearestRules::new(Arc::clone(&request.background.folder_rules)),
            live: (0..settings.targets.len()).collect(),
            without_images: false,
            ceiling: settings.max_turns,
            request,
            world,
            record,
            gate,
            guard,
            outputs,
            tools: offered,
            list,
            reader,
            conversation,
            prompt_marks: Vec::new(),
            turn: 0,
            accepted: 0,
            attempts: 0,
            tools_run: 0,
            forced: None,
            status: StatusWatch::default(),
            exclusions: Vec::new(),
            last_errors: VecDeque::new(),
            usage: TokenUsage::default(),
            cost: Money::ZERO,
            cost_unknown: false,
            over_told: false,
            claims_sent_back: false,
            report_until: None,
            out_of_money: None,
        })
    }

    /// The manifest and the original input are recorded before the first request (X-030, P-039).
    async fn open(&mut self) -> Result<(), Abort> {
        let request = self.request;
        let mut inputs = Vec::new();
        let mut input = |reference: String, text: &str, why: &str| {
            let sha256 = sha256_hex(text.as_bytes());
            let mark = prompt_mark(&sha256);
            let (tokens, why) = (self.guard.estimate().text(text), why.to_owned());
            inputs.push(ManifestInput { reference, sha256, tokens, why });
            mark
        };
        let mut marks = Vec::with_capacity(request.opening.len() + 1);
        if !request.system.is_empty() {
            marks.push(input("system_prompt".to_owned(), &request.system, "instructions"));
        }
        for (index, message) in request.opening.iter().enumerate() {
            let text = message.text();
            marks.push(match request.mode {
                SessionMode::Task => input(format!("prompt/{}", index + 1), text, "the step's prompt"),
                SessionMode::Chat => input(format!("history/{}", index + 1), text, "the conversation so far"),
            });
        }
        // The opening of a task is prompt text. The opening of a chat is what people wrote (P-027).
        let first = marks.len() - request.opening.len();
        if request.mode == SessionMode::Chat {
            marks.truncate(first);
        }
        if !request.prompt.include_text {
            self.prompt_marks = marks;
        }
        if !self.tools.open.specs.is_empty() {
            inputs.push(ManifestInput {
                reference: "tools".to_owned(),
                sha256: self.tools.open.hashed.sha256().to_owned(),
                tokens: self.guard.estimate().tools(&self.tools.open.sizes),
                why: "tools on offer".to_owned(),
            });
        }
        self.record.note_with_next(Event::SessionOpened(Box::new(SessionOpened {
            session: request.ids.session,
            visit: request.ids.visit,
            step_id: request.ids.step_id.clone(),
            agent: request.ids.agent.clone(),
            input_item_count: u32::try_from(request.opening.len()).unwrap_or(u32::MAX),
            inputs,
            tools: self.tools.open.specs.iter().map(|tool| tool.name.clone()).collect(),
            tools_sha256: self.tools.open.hashed.sha256().to_owned(),
            tools_file: self.list.file.clone(),
        })))?;
        for (index, message) in request.opening.iter().enumerate() {
            let role = match message {
                Message::Assistant { .. } => ItemRole::Assistant,
                _ => ItemRole::User,
            };
            let text = self.prompt_marks.get(first + index).map_or(message.text(), String::as_str);
            self.record.message_item(0, role, text).await?;
        }
        Ok(())
    }

    /// One turn after the other. The ceiling is checked before a turn opens, so no path can exceed it.
    async fn drive(&mut self) -> Result<ModelReport, Abort> {
        loop {
            self.checkpoint()?;
            let asked = self.world.stop.asked();
            if let Some(stop) = asked.as_ref().filter(|stop| stop.is_taken()) {
                // Nobody is asked for a report: a person goes on from here.
                return Err(stop.clone().into());
            }
            if self.turn >= self.ceiling {
                return Err(asked.map_or_else(|| self.without_report(None), Abort::from));
            }
            if asked.is_some() {
                // One last report is granted, not more (C-26).
                self.collapse();
                self.force(ForcedFinal::UserStop, self.turn + 1)?;
            }
            self.turn += 1;
            if self.turn == self.ceiling {
                let all_used = self.turn == self.request.settings.max_turns;
                let reason = if all_used { ForcedFinal::MaxTurns } else { ForcedFinal::RetryExhaustion };
                self.force(reason, self.turn)?;
            }
            self.take_tool_changes().await?;
            self.take_new_remarks().await?;
            match Box::pin(self.run_turn()).await? {
                TurnEnd::Reported(report) => return Ok(*report),
                TurnEnd::Next | TurnEnd::StopAsked => {}
                TurnEnd::Exhausted { .. } if self.world.stop.asked().is_some() => {}
                TurnEnd::Exhausted { schema } if self.is_final() => return Err(self.without_report(schema)),
                TurnEnd::Exhausted { .. } => {
                    self.collapse();
                    self.force(ForcedFinal::RetryExhaustion, self.turn + 1)?;
                }
            }
        }
    }

    /// No request is running here. An abort comes before budgets; soft limits are reported (C-08, X-019).
    pub(super) fn checkpoint(&mut self) -> Result<(), Abort> {
        for limit in self.world.meter.soft_limits_passed() {
            let (kind, used, cap) = (limit.kind, limit.used, limit.cap);
            self.record.note(Event::BudgetSoftLimit { kind, used, cap })?;
        }
        self.interrupts.check()
    }

    /// Whether only the report is accepted in this turn.
    pub(super) fn is_final(&self) -> bool {
        self.forced.is_some()
    }

    /// From `turn` on only the report is accepted. The first reason stays.
    pub(super) fn force(&mut self, reason: ForcedFinal, turn: u32) -> Result<(), Abort> {
        if self.forced.is_some() {
            return Ok(());
        }
        self.forced = Some(reason);
        self.record.note(Event::FinalTurnForced { turn, reason })
    }

    /// One more turn at most.
    pub(super) fn collapse(&mut self) {
        self.ceiling = self.ceiling.min(self.turn + 1);
    }

    /// The end of a session whose final turn gave no report.
    fn without_report(&self, schema: Option<String>) -> Abort {
        if let Some(problem) = schema {
            let message = format!(
                "The model's report did not match its schema, however often it was asked: {problem}."
            );
            Abort::new(StopDetail::SchemaInvalid, "OutputSchemaInvalid", &message, message.clone())
        } else if self.turn >= self.request.settings.max_turns {
            let message = match self.request.settings.max_turns {
                1 => "The only turn was used without a final report.".to_owned(),
                turns => format!("All {turns} turns were used without a final report."),
            };
            Abort::new(StopDetail::MaxTurnsExhausted, "MaxTurnsExceeded", &message, message.clone())
        } else {
            let message = "The model's replies could not be used, however often it was asked.";
            Abort::new(StopDetail::InvalidModelOutput, "InvalidModelOutput", message, message)
        }
    }

    /// Remembers the class of an error for the synthetic report.
    pub(super) fn remember_error(&mut self, class: String) {
        if self.last_errors.len() == LAST_ERRORS {
            self.last_errors.pop_front();
        }
        self.last_errors.push_back(class);
    }

    /// Writes report, guardrail, conversation and closing event. From here on the caller always gets the outcome.
    async fn close(mut self, ended: Result<ModelReport, Abort>) -> SessionOutcome {
        // Whoever asked to stop outranks every other end (C-08, C-26). A report that is there already counts, though, where a
        // person takes the work over: they have it at the visit's end.
        let reported = ended.is_ok();
        let asked = self.world.stop.asked().filter(|stop| !(reported && stop.is_taken()));
        let asked = asked.map(Abort::from).or(self.out_of_money.take()).map(Abort::into_failure);
        let clean = |mut failure: SessionFailure| {
            failure.error_message = self.record.redact(&failure.error_message);
            failure
        };
        let ts = self.world.clock.now_ms();
        let format = self.request.report.format();
        let extraction = ended.as_ref().ok().and_then(|model| model.extraction);
        let (report, source, failure, said) = match ended {
            Ok(model) => {
                let limit = self.request.settings.targets.iter().map(|target| target.max_output_tokens).max();
                let claims = clean_claims(&self.record, &model.claims).await;
                let (source, outcome) = (model.source, model.outcome);
                let report = model.store(format, self.forced, limit.unwrap_or(0), ts);
                (report, source, asked.map(clean), (outcome, claims))
            }
            Err(abort) => {
                let failure = clean(asked.unwrap_or_else(|| abort.into_failure()));
                let report = report::synthetic(format, &failure, &self.facts(), self.forced, ts);
                (report, ReportSource::Synthetic, Some(failure), (None, Vec::new()))
            }
        };
        let (report, leaked) = cleaned(&self.record, report);
        let report = match source {
            ReportSource::Synthetic => report,
            _ => self.record.report_by_program(report).await,
        };
        let (said_outcome, claims) = said;
        let mut outcome = SessionOutcome {
            source,
            extraction,
            outcome: said_outcome,
            claims,
            failure,
            turns: self.accepted,
            attempts: self.attempts,
            forced_final: self.forced,
            messages: std::mem::take(&mut self.conversation).kept(),
            conversation: None,
            usage: self.usage,
            cost: self.cost,
            cost_unknown: self.cost_unknown,
            report,
        };
        if let Err(abort) = self.close_record(&mut outcome, leaked).await
            && outcome.failure.is_none()
        {
            outcome.failure = Some(abort.into_failure());
        }
        outcome
    }

    async fn close_record(&mut self, outcome: &mut SessionOutcome, leaked: bool) -> Result<(), Abort> {
        outcome.capture(&self.record, self.turn, leaked).await?;
        outcome.conversation = Some(self.record.conversation(&outcome.messages, &self.prompt_marks).await?);
        let fault = match &outcome.failure {
            Some(failure) if self.world.fault_snapshots => {
                Some(self.fault(failure, &outcome.messages).await?)
            }
            _ => None,
        };
        self.record.note(Event::SessionClosed(Box::new(SessionClosed {
            fault,
            session: self.request.ids.session,
            visit: self.request.ids.visit,
            turns: outcome.turns,
            attempts: outcome.attempts,
            forced_final: outcome.forced_final,
            failure: outcome.failure.clone(),
            conversation: outcome.conversation.clone(),
            exclusions: std::mem::take(&mut self.exclusions),
        })))
    }

    /// The last request of a session that failed, and why it did (C-20).
    async fn fault(&self, failure: &SessionFailure, messages: &Messages) -> Result<Pointer, Abort> {
        let tools = &*self.offered()?.specs;
        let snapshot = serde_json::json!({
            "failure": failure, "turn": self.turn, "messages": messages, "tools": tools,
            "lastErrors": self.last_errors,
        });
        let snapshot = self.record.redact_json(&snapshot).to_string();
        self.record.keep(snapshot.into_bytes(), "application/json").await
    }

    fn facts(&self) -> SessionFacts {
        SessionFacts {
            step_id: self.request.ids.step_id.clone(),
            visit: self.request.ids.visit,
            turns: (self.accepted, self.request.settings.max_turns),
            attempts: self.attempts,
            tools_run: self.tools_run,
            last_errors: self.last_errors.iter().cloned().collect(),
            program: None,
        }
    }
}

/// The conversation as it begins, and what the guard knows of it. The facts of the moment stand before the last message of the
/// opening, and are counted with each request.
fn begun(request: &SessionRequest) -> Result<(Conversation, ContextGuard), Abort> {
    let (mut conversation, mut guard) = (Conversation::default(), ContextGuard::default());
    if !request.system.is_empty() {
        conversation.push(Message::System { content: request.system.clone() })?;
    }
    let last = request.opening.len().saturating_sub(1);
    for (place, message) in request.opening.shared().enumerate() {
        if let Some(aside) = request.aside.clone().filter(|_| place == last) {
            guard.append(conversation.messages());
            guard.append([&*message]);
            conversation.push_aside(aside)?;
            conversation.push(message)?;
            return Ok((conversation, guard));
        }
        conversation.push(message)?;
    }
    guard.append(conversation.messages());
    Ok((conversation, guard))
}

/// The outcome of a session that could not begin.
fn unopened(
    request: &SessionRequest,
    world: &SessionWorld,
    record: &SessionTrace,
    abort: Abort,
) -> SessionOutcome {
    let mut failure = abort.into_failure();
    failure.error_message = record.redact(&failure.error_message);
    let facts = SessionFacts {
        step_id: request.ids.step_id.clone(),
        visit: request.ids.visit,
        turns: (0, request.settings.max_turns),
        attempts: 0,
        tools_run: 0,
        last_errors: Vec::new(),
        program: None,
    };
    let report = report::synthetic(request.report.format(), &failure, &facts, None, world.clock.now_ms());
    SessionOutcome {
        report,
        source: ReportSource::Synthetic,
        extraction: None,
        outcome: None,
        claims: Vec::new(),
        failure: Some(failure),
        turns: 0,
        attempts: 0,
        forced_final: None,
        messages: request.opening.clone(),
        conversation: None,
        usage: TokenUsage::default(),
        cost: Money::ZERO,
        cost_unknown: false,
    }
}
