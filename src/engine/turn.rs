//! One turn: attempts until a reply can be used, and then its tool phase (A-002, A-009… …A-057).

use serde_json::Value;

use super::abort::Abort;
use super::attempt::{AttemptEnd, assistant, name_of};
use super::context_guard::widest_limit;
use super::envelope::CallAnswer;
use super::execution::Execution;
use super::interrupt::Interrupt;
use super::model::{ModelError, ModelErrorClass, ModelReply, ReplyStop};
use super::new_remarks;
use super::pacing::Refusals;
use super::question::{self, ASK};
use super::reply_validation::{Rejection, ValidReply};
use super::ruling::{Phase, ReportCall, Ruling};
use super::session::Session;
use super::task_status::{self, TASK_STATUS};
use super::token_estimate::MessageSize;
use super::tool::CallLimits;
use super::turn_end::TurnEnd;
use crate::domain::event::Event;
use crate::domain::evidence::short_quote;
use crate::domain::message::Message;
use crate::domain::model_target::OnFatalError;
use crate::domain::policy::EnvelopeStatus;
use crate::domain::run::ForcedFinal;
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::trace::ItemRole;
use crate::domain::untrusted::is_blank;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// When a model refuses, another one is asked, or the same one again, because a filter may be wrong. A second refusal
/// counts.
const MOST_REFUSALS: u32 = 2;

/// What the attempts of a turn remember.
#[derive(Default)]
struct Attempts {
    /// The next position in the cycle of targets. A turn begins with the first target.
    cursor: usize,
    refusals: Refusals,
    /// What follows the conversation in the next request.
    tail: Vec<Message>,
    schema_repairs: u32,
    /// Replies in which the model refused.
    refused: u32,
    last: Option<Fault>,
    /// The reasoning of a rejected reply, and the target that gave it.
    thought: Option<(usize, Value)>,
}

/// Why the last attempt failed.
enum Fault {
    /// The model's fault. The model is told and may get a forced final turn.
    Model { schema: Option<String> },
    /// Not the model's: exhaustion ends the session.
    Transport(ModelError),
}

/// What to do after a failed attempt.
enum After {
    /// Try again.
    Retry,
    /// Stop trying in this turn.
    GiveUp,
}

impl Session<'_> {
    /// Tells the model what people said, once it has the results of its calls. A turn for the report alone does not: what
    /// was said waits for another run.
    pub(super) async fn take_new_remarks(&mut self) -> Result<(), Abort> {
        if self.is_final() || !matches!(self.conversation.messages().last(), Some(Message::Tool { .. })) {
            return Ok(());
        }
        if let Some(content) =
            new_remarks::take(self.world.new_remarks.as_ref(), &self.record, self.turn).await?
        {
            let message = Message::User { content };
            self.guard.append(std::slice::from_ref(&message));
            self.conversation.push(message)?;
        }
        Ok(())
    }

    /// Runs the turn under way.
    pub(super) async fn run_turn(&mut self) -> Result<TurnEnd, Abort> {
        let mut state = Attempts::default();
        for attempt in 1..=self.request.settings.max_retries {
            self.checkpoint()?;
            let target = self.choose_target(&mut state.cursor, &state.tail)?;
            if !self.wait(&mut state, target).await?
                || (!self.is_final() && self.world.stop.asked().is_some())
            {
                return Ok(TurnEnd::StopAsked);
            }
            let allowance = self.allow(target, &state.tail).await?;
            match self.ask(target, attempt, &state.tail, allowance).await? {
                AttemptEnd::Accepted { reply, valid, phase, sent, started } => {
                    let mut reply = *reply;
                    let mut valid = *valid;
                    let last = attempt == self.request.settings.max_retries;
                    if !last && let Some(rejection) = self.unbacked(&mut valid).await {
                        self.rejected(&mut state, attempt, Some(&reply), &rejection).await?;
                        continue;
                    }
                    if let (None, Some((by, thought))) = (&reply.reasoning, state.thought.take())
                        && by == target
                    {
                        reply.reasoning = Some(thought);
                    }
                    return self.accept(reply, valid, phase, sent, started).await;
                }
                AttemptEnd::Rejected { reply, rejection } => {
                    if let Some(thought) = reply.reasoning.clone() {
                        state.thought = Some((target, thought));
                    }
                    if let After::GiveUp =
                        self.rejected(&mut state, attempt, Some(&reply), &rejection).await?
                    {
                        break;
                    }
                    if reply.stop == ReplyStop::Refusal {
                        state.refused += 1;
                        if state.refused == MOST_REFUSALS {
                            return Err(refused(&self.record.redact(&reply.text)));
                        }
                    }
                }
                AttemptEnd::Failed(error) if error.class == ModelErrorClass::InvalidReply => {
                    self.rejected(&mut state, attempt, None, &Rejection::invalid_reply()).await?;
                }
                AttemptEnd::Failed(error) => self.failed(&mut state, target, error)?,
                AttemptEnd::GraceOver => return Ok(TurnEnd::StopAsked),
            }
        }
        match state.last {
            Some(Fault::Transport(error)) => Err(unavailable(&error)),
            Some(Fault::Model { schema }) => Ok(TurnEnd::Exhausted { schema }),
            None => Ok(TurnEnd::Exhausted { schema: None }),
        }
    }

    /// Waits until the target may be asked. False when a stop request came meanwhile. A wait that cannot end within the
    /// wall time is not begun (C-13).
    async fn wait(&mut self, state: &mut Attempts, target: usize) -> Result<bool, Abort> {
        let wait = state.refusals.wait_for(target, &self.live);
        if wait.is_zero() {
            return Ok(true);
        }
        if let Some(stop) = self.world.stop.asked() {
            // The last report is worth a request, not a wait.
            return Err(stop.into());
        }
        let is_limited = matches!(&state.last, Some(Fault::Transport(error))
            if matches!(error.class, ModelErrorClass::RateLimited { .. }));
        match is_limited {
            true => self.world.meter.check_rate_limit(wait)?,
            false => self.world.meter.check_wait(wait)?,
        }
        match self.interrupts.watch(Some(Duration::ZERO), tokio::time::sleep(wait)).await {
            Ok(()) => {
                state.refusals.waited();
                Ok(true)
            }
            Err(Interrupt::GraceOver) => match self.world.stop.asked() {
                Some(stop) if self.is_final() => Err(stop.into()),
                _ => Ok(false),
            },
            Err(Interrupt::End(abort)) => Err(abort),
        }
    }

    /// A report whose claims do not hold is sent back once in a session, while attempts are left. After that
    /// the evidence gate decides.
    async fn unbacked(&mut self, valid: &mut ValidReply) -> Option<Rejection> {
        let check = self.world.claims.as_ref().filter(|_| !self.claims_sent_back)?;
        let report = valid.report.as_ref().filter(|report| !report.claims.is_empty())?;
        let problems = check(self.request.ids.visit, report.claims.clone()).await;
        if problems.is_empty() {
            return None;
        }
        self.claims_sent_back = true;
        Some(Rejection::of_claims(&problems, std::mem::take(&mut valid.proposals)))
    }

    /// A reply that cannot be used is recorded, and the model is told in the next attempt.
    async fn rejected(
        &mut self,
        state: &mut Attempts,
        attempt: u32,
        reply: Option<&ModelReply>,
        rejection: &Rejection,
    ) -> Result<After, Abort> {
        self.remember_error(rejection.reason.to_owned());
        self.record.note(Event::ReplyRejected {
            turn: self.turn,
            attempt,
            reason: rejection.reason.to_owned(),
            guidance: self.record.redact(&rejection.guidance),
        })?;
        if let Some(reply) = reply.filter(|reply| !is_blank(&reply.text)) {
            self.record.message_item(self.turn, ItemRole::Assistant, &reply.text).await?;
        }
        for (proposal, refusal) in &rejection.refused {
            let parsed = super::reply_validation::shown_arguments(proposal);
            self.record.call_item(self.turn, &proposal.call, parsed.as_ref()).await?;
            self.record.answer_item(self.turn, &proposal.call.id, &CallAnswer::refused(refusal)).await?;
        }
        state.tail = rejection.tail(reply);
        state.last = Some(Fault::Model { schema: rejection.schema.clone() });
        if rejection.report_tried {
            self.collapse();
        }
        if rejection.schema.is_some() {
            state.schema_repairs += 1;
        }
        Ok(if state.schema_repairs > self.request.settings.schema_repair_attempts {
            After::GiveUp
        } else {
            After::Retry
        })
    }

    /// No reply: what its class asks for (A-050…A-054).
    fn failed(&mut self, state: &mut Attempts, target: usize, error: ModelError) -> Result<(), Abort> {
        self.remember_error(match error.status {
            Some(status) => format!("{} (HTTP {status})", error.class),
            None => error.class.to_string(),
        });
        let settings = &self.request.settings;
        match error.class {
            ModelErrorClass::Auth if settings.on_auth_error == OnFatalError::Fail => {
                return Err(fatal(&error));
            }
            ModelErrorClass::Quota if settings.on_quota == OnFatalError::Fail => return Err(fatal(&error)),
            ModelErrorClass::BadRequest if self.leave_images_out(target)? => {}
            ModelErrorClass::BadRequest => return Err(fatal(&error)),
            ModelErrorClass::Auth | ModelErrorClass::Quota => {
                self.skip_for_good(target, error.class)?;
                if self.live.is_empty() {
                    return Err(fatal(&error));
                }
            }
            ModelErrorClass::ContextLength => {
                if self.live.len() > 1 {
                    self.skip_for_good(target, error.class)?;
                } else if self.is_final() {
                    return Err(unavailable(&error));
                } else {
                    self.force(ForcedFinal::Context, self.turn)?;
                    self.ceiling = self.turn;
                }
            }
            ModelErrorClass::RateLimited { retry_after } | ModelErrorClass::Server { retry_after } => {
                state.refusals.note(target, retry_after, &self.world.backoff);
            }
            ModelErrorClass::Network | ModelErrorClass::Timeout | ModelErrorClass::InvalidReply => {}
        }
        // The model does not hear of transport faults, so what it was told before stays.
        state.last = Some(Fault::Transport(error));
        Ok(())
    }

    /// A request that a service refuses is asked once more without the images that it had: one that cannot be read, which anybody may
    /// put into an issue, is no fault of the configuration. False = it had none.
    fn leave_images_out(&mut self, target: usize) -> Result<bool, Abort> {
        let target = &self.request.settings.targets[target];
        if self.without_images || !target.images || self.request.background.images.is_empty() {
            return Ok(false);
        }
        let text = format!(
            "{} refused a request with images; the rest of this session has none, and the images are told by name only.",
            name_of(target)
        );
        self.record.warn("images_refused", &text)?;
        self.without_images = true;
        Ok(true)
    }

    fn skip_for_good(&mut self, target: usize, class: ModelErrorClass) -> Result<(), Abort> {
        self.live.retain(|index| *index != target);
        let target = name_of(&self.request.settings.targets[target]);
        self.record.note(Event::TargetSkipped { target, reason: class.to_string() })
    }

    /// The tool phase of an accepted reply. All calls are judged, then run, then answered in the order of the reply
    /// (C-25).
    async fn accept(
        &mut self,
        reply: ModelReply,
        valid: ValidReply,
        phase: Phase,
        sent: MessageSize,
        started: Instant,
    ) -> Result<TurnEnd, Abort> {
        self.accepted += 1;
        let message = assistant(&reply);
        let catalog = self.tools.on(self.forced.is_some())?;
        self.guard.commit(sent, &catalog.sizes, reply.usage.as_ref(), &message);
        self.conversation.push(message)?;
        if !is_blank(&reply.text) {
            self.record.message_item(self.turn, ItemRole::Assistant, &reply.text).await?;
        }
        if valid.failed_report() {
            self.collapse();
        }
        let cap = self.request.settings.max_tool_calls_per_turn;
        let judging = self.gate.judge(self.turn, &valid.proposals, phase, cap);
        let rulings = match self.interrupts.watch(None, judging).await {
            Ok(rulings) => rulings?,
            Err(Interrupt::End(abort)) => return Err(abort),
            Err(Interrupt::GraceOver) => return Ok(TurnEnd::StopAsked),
        };
        let answers = self.run_tools(rulings, &valid, started).await?;
        for (proposal, answer) in valid.proposals.iter().zip(&answers) {
            self.record.answer_item(self.turn, &proposal.call.id, answer).await?;
        }
        if let Some(report) = valid.report {
            if let Some(named) = &report.other_format {
                let text =
                    format!("The report names the format {named}; it is kept in the session's format.");
                self.record.warn("report_format_mismatch", &text)?;
            }
            return Ok(TurnEnd::Reported(Box::new(report)));
        }
        self.end_with_question(&valid, &answers)?;
        for (proposal, answer) in valid.proposals.iter().zip(&answers) {
            self.conversation.push(Message::Tool {
                tool_call_id: proposal.call.id.clone(),
                content: answer.text().to_owned(),
            })?;
        }
        let statuses = valid.proposals.iter().filter(|proposal| proposal.call.name == TASK_STATUS);
        let said: Vec<bool> = statuses
            .filter_map(|proposal| proposal.arguments.as_ref().ok())
            .map(task_status::is_completed)
            .collect();
        let ran = valid.proposals.iter().zip(&answers).any(|(proposal, answer)| {
            proposal.call.name != TASK_STATUS && proposal.report == ReportCall::No && answer.ran_at_all()
        });
        if self.status.take(!said.is_empty(), said.contains(&true), ran) && phase == Phase::Open {
            self.force(ForcedFinal::TaskStatus, self.turn + 1)?;
        }
        Ok(TurnEnd::Next)
    }

    /// A question to people ends the session.
    fn end_with_question(&self, valid: &ValidReply, answers: &[CallAnswer]) -> Result<(), Abort> {
        let asked = valid.proposals.iter().zip(answers).find(|(proposal, answer)| {
            proposal.call.name == ASK && answer.envelope().status == EnvelopeStatus::Ok
        });
        let Some((proposal, _)) = asked else { return Ok(()) };
        let Ok(arguments) = &proposal.arguments else { return Ok(()) };
        let ids = &self.request.ids;
        match question::read(arguments, ids.visit, &ids.step_id) {
            Ok(question) => Err(self.record.ask_people(question)?),
            Err(_) => Ok(()),
        }
    }

    /// Runs what may run; answers in reply order.
    async fn run_tools(
        &mut self,
        rulings: Vec<Ruling>,
        valid: &ValidReply,
        started: Instant,
    ) -> Result<Vec<CallAnswer>, Abort> {
        let mut ready = Vec::new();
        let mut answers: Vec<Option<CallAnswer>> = Vec::with_capacity(rulings.len());
        for (ruling, proposal) in rulings.into_iter().zip(&valid.proposals) {
            let answer = match ruling {
                Ruling::Run(call) => {
                    ready.push(*call);
                    None
                }
                Ruling::Answered(answer) => Some(answer),
                Ruling::Protocol if proposal.report == ReportCall::Captured => {
                    Some(CallAnswer::success("The final report is captured.".to_owned()))
                }
                Ruling::Protocol => Some(CallAnswer::success("Noted.".to_owned())),
            };
            if let Some(answer) = &answer {
                let message = Message::Tool {
                    tool_call_id: proposal.call.id.clone(),
                    content: answer.text().to_owned(),
                };
                self.guard.append([&message]);
            }
            answers.push(answer);
        }
        if !ready.is_empty() {
            self.tools_run += u32::try_from(ready.len()).unwrap_or(u32::MAX);
            let mut ran = Box::pin(self.execute(ready, started)).await?.into_iter();
            for answer in answers.iter_mut().filter(|answer| answer.is_none()) {
                *answer = ran.next();
            }
        }
        let whole: Option<Vec<CallAnswer>> = answers.into_iter().collect();
        whole.ok_or_else(|| Abort::internal("a call was left without an answer"))
    }

    async fn execute(
        &mut self,
        ready: Vec<super::ruling::ReadyCall>,
        started: Instant,
    ) -> Result<Vec<CallAnswer>, Abort> {
        let settings = &self.request.settings;
        let mut timeout = settings.tool_timeout;
        if let Some(turn_timeout) = self.request.turn_timeout {
            timeout = timeout.min(turn_timeout.saturating_sub(started.elapsed()));
        }
        let execution = Execution {
            gate: &mut self.gate,
            record: &self.record,
            guard: &mut self.guard,
            outputs: &self.outputs,
            nearest_rules: Some(&mut self.nearest_rules),
            queues: &self.world.queues,
            interrupts: &self.interrupts,
            limits: CallLimits { timeout, max_inline_bytes: settings.tool_response_max_bytes },
            context_limit: widest_limit(self.live.iter().map(|index| &settings.targets[*index])),
            turn: self.turn,
            exclusions: &mut self.exclusions,
            redaction: self.world.redaction.as_deref(),
            touched: &self.world.touched,
            left: &CancellationToken::new(),
        };
        execution.run(ready).await
    }
}

/// What is said where a provider does not take what it is asked.
pub const REQUEST_REFUSED: &str =
    "The model provider refused the request; check the target's model name and settings.";
/// What is said where there is nothing of that name, whatever is asked.
pub const NO_SUCH_MODEL: &str = "The model provider does not know the model, or has nothing at this address; check the target's model and base_url.";
const CONVERSATION_TOO_LONG: &str = "The conversation does not fit the model's context window.";

/// Whether a run ended for what it asked: a model answers, and what other runs ask of it may well be answered.
pub fn is_of_the_request(stop: &Stop) -> bool {
    let said = |words: &&str| stop.message.starts_with(*words);
    stop.detail == StopDetail::LlmUnavailable && [REQUEST_REFUSED, CONVERSATION_TOO_LONG].iter().any(said)
}

fn fatal(error: &ModelError) -> Abort {
    let (detail, name, message) = match error.class {
        ModelErrorClass::Auth => {
            (StopDetail::AuthError, "AuthError", "The model provider refused the credentials.")
        }
        ModelErrorClass::Quota => {
            (StopDetail::QuotaExceeded, "QuotaExceeded", "The model provider's quota is used up.")
        }
        _ if error.status == Some(404) => (StopDetail::LlmUnavailable, "BadModelRequest", NO_SUCH_MODEL),
        _ => (StopDetail::LlmUnavailable, "BadModelRequest", REQUEST_REFUSED),
    };
    Abort::new(detail, name, message, error.to_string())
}

/// The model will not do it; its words, as far as it gave any.
fn refused(words: &str) -> Abort {
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let message = if words.is_empty() {
        "The model refused to work on this, and gave no reason.".to_owned()
    } else {
        format!("The model refused to work on this: \"{}\"", short_quote(&words))
    };
    Abort::new(StopDetail::InvalidModelOutput, "ModelRefused", &message, message.clone())
}

fn unavailable(error: &ModelError) -> Abort {
    let (name, message) = match error.class {
        ModelErrorClass::RateLimited { .. } => ("RateLimited", "The model provider is limiting requests."),
        ModelErrorClass::Timeout => ("ModelTimeout", "The model provider did not answer in time."),
        ModelErrorClass::ContextLength => ("ModelUnavailable", CONVERSATION_TOO_LONG),
        _ => ("ModelUnavailable", "No model target gave an answer."),
    };
    Abort::new(StopDetail::LlmUnavailable, name, message, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_provider_says_of_one_request_is_not_said_of_all() {
        let is_of_one =
            |error: &ModelError, of: fn(&ModelError) -> Abort| is_of_the_request(&of(error).failure().stop);
        let error = |class, status| ModelError { status, ..ModelError::new(class, "x") };
        assert!(is_of_one(&error(ModelErrorClass::BadRequest, Some(400)), fatal));
        assert!(is_of_one(&error(ModelErrorClass::ContextLength, Some(413)), unavailable));
        let no_such_model = error(ModelErrorClass::BadRequest, Some(404));
        assert!(!is_of_one(&no_such_model, fatal));
        assert!(!is_of_one(&error(ModelErrorClass::Auth, Some(401)), fatal));
        assert!(!is_of_one(&error(ModelErrorClass::Server { retry_after: None }, None), unavailable));
    }
}
