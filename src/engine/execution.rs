//! Runs the calls of a reply that passed the gate (C-25).
//!
//! The order is budget → journal → queue → run → redact → size → context guard → envelope → journal. Calls run side by
//! side as long as all their results are sure to fit the context. Otherwise they run one after the other, so that
//! nothing starts after an output was dropped. Calls of the worktree keep the order of the reply around each one
//! that may change it: whoever edits, tests and edits again is told of the tree that stands there in the reply.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

use futures::future::FutureExt as _;
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::abort::Abort;
use super::context_guard::ContextGuard;
use super::envelope::{CONTEXT_EXCEEDED, CallAnswer, CallRefusal};
use super::gate::Gate;
use super::interrupt::{GRACE, Interrupt, Interrupts};
use super::nearest_rules::NearestRules;
use super::policy::Policy;
use super::queue::{AGENT_QUEUE, Queues};
use super::redaction_program::RedactionProgram;
use super::ruling::{ReadyCall, untold_write};
use super::session_trace::{LedgerLine, SessionTrace};
use super::tool::{CallLimits, Permit, Tool, ToolError, ToolOutput};
use super::tool_output::{StoreReason, StoredOutputs};
use super::touched::Touched;
use crate::domain::approval::NamedFile;
use crate::domain::canonical::sha256_hex;
use crate::domain::event::Event;
use crate::domain::ledger_entry::AccountingKind;
use crate::domain::policy::{PROTOCOL_TOOLS, Risk};
use crate::domain::stop::StopDetail;
use crate::domain::trace::{ContextGuardEvaluated, Exclusion};

/// Longest failure text that a model reads, in bytes.
const LONGEST_FAILURE: usize = 4096;
/// Tokens around a tool message.
const MESSAGE_TOKENS: u64 = 4;

/// What the calls of one reply run with.
pub struct Execution<'a> {
    /// The gate that let them through; it learns what came of them.
    pub gate: &'a mut Gate,
    /// The session's record.
    pub record: &'a SessionTrace,
    /// The session's counters.
    pub guard: &'a mut ContextGuard,
    /// The session's stored outputs.
    pub outputs: &'a StoredOutputs,
    /// Rules of folders that the session was not told of yet; `None` = it is told of none.
    pub nearest_rules: Option<&'a mut NearestRules>,
    /// The process's queues.
    pub queues: &'a Queues,
    /// Stop and budgets.
    pub interrupts: &'a Interrupts,
    /// Timeout and inline cap of each call.
    pub limits: CallLimits,
    /// The most tokens that fit into some target.
    pub context_limit: u64,
    /// 1-based turn.
    pub turn: u32,
    /// What the model does not see in full.
    pub exclusions: &'a mut Vec<Exclusion>,
    /// Asked for every output, after the built-in redaction.
    pub redaction: Option<&'a RedactionProgram>,
    /// Learns of each call that can change files.
    pub touched: &'a Touched,
    /// Done once nobody waits for the answers any more: the calls are given up.
    pub left: &'a CancellationToken,
}

/// One call on its way.
struct Seat {
    ready: ReadyCall,
    tool: Arc<dyn Tool>,
    started: OnceLock<(Instant, i64)>,
}

impl Seat {
    /// Whether it works on the run's worktree, as all of agentd's own tools and agent programs do.
    fn is_of_worktree(&self) -> bool {
        self.tool.source() == "agentd" || self.tool.queue() == Some(AGENT_QUEUE)
    }

    /// Whether it may change anything.
    fn may_write(&self) -> bool {
        !self.tool.only_reads() && self.tool.risk() != Risk::Read
    }

    /// Whether it may change the worktree.
    fn may_change_worktree(&self) -> bool {
        self.is_of_worktree() && self.tool.risk() != Risk::Read
    }

    /// Whether it waits until an earlier call of the same reply has ended.
    fn waits_for(&self, earlier: &Self) -> bool {
        (self.may_change_worktree() && earlier.is_of_worktree())
            || (self.is_of_worktree() && earlier.may_change_worktree())
    }
}

/// How a call came back; `None` = it was never started.
type Ended = Option<Result<ToolOutput, ToolError>>;

impl Execution<'_> {
    /// Runs the calls and gives their answers in the same order. A stop, the end of the wall time, or that nobody waits
    /// any more cancels running calls. Every call that was started has its ledger line.
    pub async fn run(mut self, ready: Vec<ReadyCall>) -> Result<Vec<CallAnswer>, Abort> {
        self.interrupts.check()?;
        let mut seats = Vec::with_capacity(ready.len());
        for ready in ready {
            let tool = self.gate.tool(&ready.call.name).cloned();
            let tool = tool.ok_or_else(|| Abort::internal("a call passed the gate without its tool"))?;
            seats.push(Seat { ready, tool, started: OnceLock::new() });
        }
        seats.iter().for_each(|seat| self.touched.mark_call(seat.tool.as_ref(), &seat.ready.arguments));
        if seats.iter().any(|seat| seat.tool.risk() != Risk::Read) {
            self.record.flush().await?;
        }
        let mut answers: Vec<Option<CallAnswer>> = vec![None; seats.len()];
        let (interrupts, left) = (self.interrupts, self.left);
        let work = async {
            if left.is_cancelled() {
                return Ok(());
            }
            tokio::select! {
                biased;
                done = self.drive(&seats, &mut answers) => done,
                () = left.cancelled() => Ok(()),
            }
        };
        let ended = interrupts.watch(Some(GRACE), work).await;
        let interrupt = match ended {
            Ok(Ok(())) => None,
            Ok(Err(abort)) => Some(Interrupt::End(abort)),
            Err(interrupt) => Some(interrupt),
        };
        // What was cut off has its ledger line too.
        for (seat, answer) in seats.iter().zip(&mut answers) {
            if answer.is_none() {
                *answer = Some(self.give_up(seat, interrupt.is_none())?);
            }
        }
        match interrupt {
            Some(Interrupt::End(abort)) => Err(abort),
            Some(Interrupt::GraceOver) | None => Ok(answers.into_iter().flatten().collect()),
        }
    }

    async fn drive(&mut self, seats: &[Seat], answers: &mut [Option<CallAnswer>]) -> Result<(), Abort> {
        let worst = self.guard.estimate().bytes(self.limits.max_inline_bytes.max(LONGEST_FAILURE as u64))
            + MESSAGE_TOKENS;
        let mut waiting = seats.iter().enumerate().peekable();
        let mut running = FuturesUnordered::new();
        let mut under_way: Vec<usize> = Vec::new();
        loop {
            while let Some((place, seat)) = waiting.peek().copied() {
                let reserved = worst.saturating_mul(running.len() as u64 + 1);
                let sure = !self.guard.project(reserved).overflows(self.context_limit);
                if !running.is_empty() && !sure {
                    break;
                }
                if under_way.iter().any(|earlier| seat.waits_for(&seats[*earlier])) {
                    break;
                }
                waiting.next();
                let protocol = PROTOCOL_TOOLS.contains(&seat.ready.call.name.as_str());
                if self.gate.context_spent() && !protocol {
                    answers[place] = Some(CallAnswer::refused(&CallRefusal::ContextBudget));
                    continue;
                }
                let (record, queues, interrupts) = (self.record, self.queues, self.interrupts);
                let (limits, turn) = (self.limits, self.turn);
                let policy = Arc::clone(self.gate.policy());
                under_way.push(place);
                running.push(async move {
                    let ended = match changed_since_approval(seat, &policy).await {
                        Some(refused) => Ok(Some(Err(refused))),
                        None => run_one(seat, record, queues, interrupts, limits, turn).await,
                    };
                    (place, ended)
                });
            }
            let Some((place, ended)) = running.next().await else { return Ok(()) };
            under_way.retain(|other| *other != place);
            match ended? {
                Some(Err(error @ (ToolError::Fatal(_) | ToolError::NoRoom(_)))) => {
                    let error = self.redacted(error);
                    answers[place] = Some(self.fatal(&seats[place], &error)?);
                    return Err(end_of(&error));
                }
                Some(result) => answers[place] = Some(self.finish(&seats[place], result).await?),
                None => answers[place] = Some(CallAnswer::refused(&CallRefusal::Stopping)),
            }
        }
    }

    fn fatal(&self, seat: &Seat, error: &ToolError) -> Result<CallAnswer, Abort> {
        let answer = CallAnswer::error(error);
        self.account(seat, Costs { error: Some(error.to_string()), ..Costs::default() }, answer.text())?;
        Ok(answer)
    }

    /// Redact → size → context guard → envelope → journal.
    async fn finish(
        &mut self,
        seat: &Seat,
        result: Result<ToolOutput, ToolError>,
    ) -> Result<CallAnswer, Abort> {
        let call_id = &seat.ready.call.id;
        let (output, error) = match result {
            Ok(output) => (output, None),
            Err(error @ ToolError::Refused { .. }) => {
                let answer = CallAnswer::error(&self.redacted(error));
                let code = answer.envelope().code.clone().unwrap_or_default();
                self.gate.finished(&seat.ready, format!("refused:{code}"), false);
                return Ok(answer);
            }
            Err(error) => (ToolOutput::text(""), Some(self.redacted(error))),
        };
        let error = match error {
            Some(ToolError::ForModel { error_type, message }) => {
                Some(ToolError::ForModel { error_type, message: self.by_program(message).await })
            }
            other => other,
        };
        let ToolOutput { text, exit_code, facts } = output;
        let text = self.by_program(self.record.redacted(text)).await;
        let sha256 = sha256_hex(match &error {
            None => text.as_bytes(),
            Some(_) => b"",
        });
        // Of what a person let a server's tool write, the server does not say what it is.
        let is_untold =
            seat.ready.approved && error.is_none() && seat.tool.source() != "agentd" && seat.may_write();
        let path = seat.ready.arguments["path"].as_str().filter(|_| is_untold);
        let facts = facts.or_else(|| path.map(untold_write));
        if let Some(facts) = &facts {
            self.record.note(Event::ToolFacts {
                turn: self.turn,
                call_id: call_id.clone(),
                tool: seat.ready.call.name.clone(),
                facts: self.record.redact_json(facts),
                output_sha256: sha256.clone(),
            })?;
        }
        let mut costs = Costs {
            error: error.as_ref().map(ToString::to_string),
            exit_code,
            bytes_out: text.len() as u64,
            handle: None,
        };
        self.gate.finished(&seat.ready, costs.error.clone().unwrap_or(sha256), error.is_none());
        let answer = match &error {
            Some(error) => self.fit(CallAnswer::error(error), None, &mut costs, call_id).await?,
            None if costs.bytes_out > self.limits.max_inline_bytes => {
                let answer = self.store(text, StoreReason::SizeCap, &mut costs).await?;
                self.fit(answer, None, &mut costs, call_id).await?
            }
            None => self.fit(CallAnswer::success(text.clone()), Some(text), &mut costs, call_id).await?,
        };
        let answer = if error.is_none() { self.with_rules(answer, &seat.ready)? } else { answer };
        self.account(seat, costs, answer.text())?;
        Ok(answer)
    }

    /// Adds the rules of the folders that a call is about, the first time, where they fit.
    fn with_rules(&mut self, answer: CallAnswer, ready: &ReadyCall) -> Result<CallAnswer, Abort> {
        let Some(rules) = &self.nearest_rules else { return Ok(answer) };
        let Some((places, text)) = rules.of_call(&ready.arguments) else { return Ok(answer) };
        // A replayed answer may hold them already.
        let is_there = answer.text().contains(&text);
        if !is_there && !self.fits(&format!("{}{text}", answer.text()))? {
            return Ok(answer);
        }
        if let Some(rules) = &mut self.nearest_rules {
            rules.told(places);
        }
        if is_there {
            return Ok(answer);
        }
        self.guard.append_tokens(self.guard.estimate().text(&text));
        Ok(answer.with_appendix(&text))
    }

    /// Asks the configured program about a text. A text on which it fails is dropped (P-032).
    async fn by_program(&self, text: String) -> String {
        match self.redaction {
            None => text,
            Some(program) => self.record.asked_of(program, &text).await,
        }
    }

    /// Lets the context guard decide about an answer: as it is, by handle, or dropped.
    async fn fit(
        &mut self,
        answer: CallAnswer,
        text: Option<String>,
        costs: &mut Costs,
        call_id: &str,
    ) -> Result<CallAnswer, Abort> {
        if self.fits(answer.text())? {
            self.guard.append_tokens(self.tokens(answer.text()));
            return Ok(answer);
        }
        self.gate.spend_context();
        if let Some(text) = text {
            let by_handle = self.store(text, StoreReason::TokenBudget, costs).await?;
            if self.fits(by_handle.text())? {
                self.guard.append_tokens(self.tokens(by_handle.text()));
                return Ok(by_handle);
            }
        }
        let stub = CallAnswer::context_exceeded();
        costs.error = Some(CONTEXT_EXCEEDED.to_owned());
        let reference = costs.handle.clone().unwrap_or_else(|| call_id.to_owned());
        self.exclusions.retain(|exclusion| exclusion.reference != reference);
        self.exclusions.push(Exclusion { reference, why: "context_budget_exceeded".to_owned() });
        self.guard.append_tokens(self.tokens(stub.text()));
        Ok(stub)
    }

    fn tokens(&self, text: &str) -> u64 {
        self.guard.estimate().text(text) + MESSAGE_TOKENS
    }

    /// Whether the text fits. If it does not, the evaluation is recorded.
    fn fits(&self, text: &str) -> Result<bool, Abort> {
        let projection = self.guard.project(self.tokens(text));
        if !projection.overflows(self.context_limit) {
            return Ok(true);
        }
        self.record.note(Event::ContextGuard(Box::new(ContextGuardEvaluated {
            projected: projection.total(),
            current: projection.current,
            pending: projection.pending,
            new: projection.new,
            schema: projection.schema,
            limit: self.context_limit,
            target: "widest".to_owned(),
            turn: self.turn,
        })))?;
        Ok(false)
    }

    async fn store(
        &mut self,
        text: String,
        reason: StoreReason,
        costs: &mut Costs,
    ) -> Result<CallAnswer, Abort> {
        let tokens = self.guard.estimate().text(&text);
        let stored = self.outputs.store(text, tokens, reason).await?;
        let why = reason.as_str().to_owned();
        self.exclusions.push(Exclusion { reference: stored.handle.clone(), why });
        let answer = CallAnswer::stored(&stored.object, &stored.hint());
        costs.handle = Some(stored.handle);
        Ok(answer)
    }

    /// A call that was cut off, or that never started: the run is stopping, or nobody waits for the answer any more.
    fn give_up(&mut self, seat: &Seat, left: bool) -> Result<CallAnswer, Abort> {
        let (refusal, why) = match left {
            true => (
                CallRefusal::CallerLeft,
                "cancelled, because the agent program no longer waits for it; what it had begun may be done",
            ),
            false => (CallRefusal::Stopping, "cancelled, because the run is stopping"),
        };
        if seat.started.get().is_none() {
            return Ok(CallAnswer::refused(&refusal));
        }
        let answer = CallAnswer::failed("Cancelled", why);
        self.account(seat, Costs { error: Some("cancelled".to_owned()), ..Costs::default() }, answer.text())?;
        Ok(answer)
    }

    fn redacted(&self, error: ToolError) -> ToolError {
        let clean = |message: &str| {
            let mut message = self.record.redact(message);
            if message.len() > LONGEST_FAILURE {
                let mut end = LONGEST_FAILURE;
                while !message.is_char_boundary(end) {
                    end -= 1;
                }
                message.truncate(end);
                message.push_str(" … (cut)");
            }
            message
        };
        match error {
            ToolError::Refused { code, message } => ToolError::Refused { code, message: clean(&message) },
            ToolError::ForModel { error_type, message } => {
                ToolError::ForModel { error_type: clean(&error_type), message: clean(&message) }
            }
            ToolError::Timeout => ToolError::Timeout,
            ToolError::NoRoom(what) => ToolError::NoRoom(clean(&what)),
            ToolError::Fatal(technical) => ToolError::Fatal(clean(&technical)),
        }
    }

    /// The ledger line of an execution (A-077…A-081); `shown` is what the model reads.
    fn account(&self, seat: &Seat, costs: Costs, shown: &str) -> Result<(), Abort> {
        let now = Instant::now();
        let (started, timestamp) =
            seat.started.get().copied().unwrap_or_else(|| (now, self.record.clock().now_ms()));
        let entry = self.record.ledger_entry(LedgerLine {
            what: AccountingKind::Tool {
                mcp_server: seat.tool.source().to_owned(),
                command: seat.ready.call.name.clone(),
                characters_in: seat.ready.characters_in,
                characters_out: shown.chars().count() as u64,
                bytes_out: costs.bytes_out,
                call_id: seat.ready.call.id.clone(),
                proposal_hash: seat.ready.proposal_hash.clone(),
                handle: costs.handle,
                exit_code: costs.exit_code,
            },
            turn: self.turn,
            attempt: None,
            timestamp,
            latency: u64::try_from(now.duration_since(started).as_millis()).unwrap_or(u64::MAX),
            error: costs.error,
        });
        self.record.note(Event::ToolFinished { entry })
    }
}

/// The part of a ledger line that the run of a call decides.
#[derive(Default)]
struct Costs {
    error: Option<String>,
    exit_code: Option<i32>,
    bytes_out: u64,
    handle: Option<String>,
}

/// The end of a session by an error that is not for its model.
fn end_of(error: &ToolError) -> Abort {
    let technical = error.to_string();
    match error {
        ToolError::NoRoom(what) => {
            let message =
                format!("There is no room left on the disk of the worktree; make room there ({what}).");
            Abort::new(StopDetail::OutputWriteFailed, "OutputWriteFailed", &message, technical)
        }
        _ => {
            let message = "A tool failed in a way that the run cannot go on after.";
            Abort::new(StopDetail::Internal, "ToolFatal", message, technical)
        }
    }
}

/// Why an approved call is not to run after all: an earlier call of the same reply changed a file that it names.
async fn changed_since_approval(seat: &Seat, policy: &Policy) -> Option<ToolError> {
    let approved = seat.ready.approved_files.as_ref()?;
    let now = policy.named_files(Some(&seat.ready.arguments)).await.unwrap_or_default();
    let changed = NamedFile::changed(approved, &now);
    (!changed.is_empty()).then(|| ToolError::Refused {
        code: "approved_files_changed".to_owned(),
        message: format!(
            "A person approved this call, and since then {} has changed. It did not run. Propose it again, so that a person is asked \
             about the files as they are now.",
            changed.join(", ")
        ),
    })
}

/// Waits in the queue, runs with a timeout, catches a panic.
async fn run_one(
    seat: &Seat,
    record: &SessionTrace,
    queues: &Queues,
    interrupts: &Interrupts,
    limits: CallLimits,
    turn: u32,
) -> Result<Ended, Abort> {
    let call = &seat.ready.call;
    let queue =
        queues.of(&call.name, seat.tool.queue()).map_err(|error| Abort::internal(error.to_string()))?;
    let seat_in_queue = tokio::select! {
        biased;
        () = interrupts.wait_cut_short() => return Ok(None),
        acquired = queue.acquire_owned() => acquired.map_err(|_| Abort::internal("a tool queue was closed"))?,
    };
    record.note(Event::ToolStarted {
        turn,
        call_id: call.id.clone(),
        tool: call.name.clone(),
        proposal_hash: seat.ready.proposal_hash.clone(),
    })?;
    let _ = seat.started.set((Instant::now(), record.clock().now_ms()));
    let permit = Permit::for_a_call(seat.ready.denied_files.clone(), seat.ready.judged_paths.clone());
    let work = async { seat.tool.call(permit, &seat.ready.arguments, limits).await };
    let ended = match tokio::time::timeout(limits.timeout, AssertUnwindSafe(work).catch_unwind()).await {
        Err(_) => Err(ToolError::Timeout),
        Ok(Err(_)) => Err(ToolError::ForModel {
            error_type: "ToolPanicked".to_owned(),
            message: "the tool crashed".to_owned(),
        }),
        Ok(Ok(result)) => result,
    };
    drop(seat_in_queue);
    Ok(Some(ended))
}
