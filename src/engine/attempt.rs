//! One attempt: choose a target that fits, prepare the request, send it, read the reply, write the ledger line.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::future::FutureExt as _;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::abort::Abort;
use super::allowance::Allowance;
use super::budget::ReservedMoney;
use super::context_guard::widest_limit;
use super::conversation::Conversation;
use super::interrupt::{GRACE, Interrupt, LAST_REPORT};
use super::model::{ModelError, ModelErrorClass, ModelReply, ModelRequest, Spent, ToolChoice};
use super::reply_validation::{self, Rejection, SessionMode, ValidReply};
use super::ruling::Phase;
use super::session::Session;
use super::session_trace::LedgerLine;
use super::shared_caps::Reservations;
use super::token_estimate::MessageSize;
use super::tool_catalog::ToolCatalog;
use crate::domain::event::Event;
use crate::domain::fingerprint::{FINGERPRINT_SCHEMA, Fingerprint};
use crate::domain::ledger_entry::{AccountingKind, CostSource};
use crate::domain::message::{Message, TokenUsage};
use crate::domain::model_target::ModelTarget;
use crate::domain::money::Money;
use crate::domain::run::ForcedFinal;
use crate::domain::trace::{ContextGuardEvaluated, PromptSnapshot, RequestPrepared};

/// How an attempt came back.
pub(super) enum AttemptEnd {
    /// A reply that can be used.
    Accepted {
        /// The reply, its calls named.
        reply: Box<ModelReply>,
        /// What it is worth.
        valid: Box<ValidReply>,
        /// What the reply may do now.
        phase: Phase,
        /// How much was sent.
        sent: MessageSize,
        /// When the request was sent.
        started: Instant,
    },
    /// A reply that cannot.
    Rejected {
        /// The reply.
        reply: Box<ModelReply>,
        /// Why not.
        rejection: Box<Rejection>,
    },
    /// No reply.
    Failed(ModelError),
    /// The grace after a stop was over first.
    GraceOver,
}

impl Session<'_> {
    /// Tools on offer now.
    pub(super) fn offered(&self) -> Result<&ToolCatalog, Abort> {
        self.tools.on(self.is_final())
    }

    /// The first target from `cursor` on that the request fits. When none fits, the final turn is forced
    /// and its smaller tool list is tried. If that does not fit either, the widest targets are asked
    /// anyway.
    pub(super) fn choose_target(&mut self, cursor: &mut usize, tail: &[Message]) -> Result<usize, Abort> {
        if let Some(target) = self.first_that_fits(cursor, tail)? {
            return Ok(target);
        }
        if !self.is_final() {
            self.force(ForcedFinal::Context, self.turn)?;
            self.ceiling = self.turn;
            if let Some(target) = self.first_that_fits(cursor, tail)? {
                return Ok(target);
            }
        }
        let targets = &self.request.settings.targets;
        let widest = widest_limit(self.live.iter().map(|index| &targets[*index]));
        if !std::mem::replace(&mut self.over_told, true) {
            let projected = self.guard.project(self.ephemeral_tokens(tail)).total();
            self.record.note(Event::ContextOverAfterShrink { turn: self.turn, projected, limit: widest })?;
        }
        let (place, target) = self
            .round_robin(*cursor)
            .find(|(_, index)| targets[*index].context_limit() == Some(widest))
            .ok_or_else(|| Abort::internal("no target is left"))?;
        *cursor = place + 1;
        Ok(target)
    }

    fn first_that_fits(&mut self, cursor: &mut usize, tail: &[Message]) -> Result<Option<usize>, Abort> {
        self.guard.set_tools(&self.tools.on(self.forced.is_some())?.sizes);
        let projection = self.guard.project(self.ephemeral_tokens(tail));
        let mut skipped = Vec::new();
        let mut found = None;
        for (place, index) in self.round_robin(*cursor).collect::<Vec<_>>() {
            let target = &self.request.settings.targets[index];
            let limit = target.context_limit().unwrap_or(0);
            self.record.note_with_next(Event::ContextGuard(Box::new(ContextGuardEvaluated {
                projected: projection.total(),
                current: projection.current,
                pending: projection.pending,
                new: projection.new,
                schema: projection.schema,
                limit,
                target: name_of(target),
                turn: self.turn,
            })))?;
            if !projection.overflows(limit) {
                found = Some((place, index));
                break;
            }
            skipped.push(name_of(target));
        }
        let Some((place, index)) = found else { return Ok(None) };
        for target in skipped {
            self.record.note(Event::TargetSkipped { target, reason: "context".to_owned() })?;
        }
        *cursor = place + 1;
        Ok(Some(index))
    }

    /// The live targets in the order of the cycle, from `cursor` on. Each has its position in an endless cycle over all
    /// targets.
    fn round_robin(&self, cursor: usize) -> impl Iterator<Item = (usize, usize)> + use<'_> {
        let count = self.request.settings.targets.len();
        (cursor..cursor + count)
            .map(move |place| (place, place % count))
            .filter(|(_, index)| self.live.contains(index))
    }

    fn ephemeral_tokens(&self, tail: &[Message]) -> u64 {
        let aside = self.conversation.aside().into_iter();
        self.guard.estimate().messages(aside.chain(&self.notice()).chain(tail))
    }

    /// The conversation as it is sent, with the notice and the tail at its end.
    pub(super) fn composed(&self, tail: &[Message]) -> Result<Conversation, Abort> {
        self.conversation.with(self.notice().into_iter().chain(tail.iter().cloned()))
    }

    /// What a final turn is told; sent, never kept.
    fn notice(&self) -> Option<Message> {
        let why = match self.forced? {
            ForcedFinal::Context => "The context is nearly full.",
            ForcedFinal::MaxTurns => "This is the last turn of this session.",
            ForcedFinal::RetryExhaustion => "Too many replies could not be used.",
            ForcedFinal::UserStop => "A person asked to stop.",
            ForcedFinal::MaxCost => "The money of this run is nearly used up.",
            ForcedFinal::TaskStatus => "You said how far you are; now comes the report.",
        };
        let what = match self.request.mode {
            SessionMode::Task => {
                "Call agent__final_report now with what you have; no other tool is available."
            }
            SessionMode::Chat => {
                "No tool is available any more. Sum up what you found and what is still open."
            }
        };
        Some(Message::User { content: format!("{why} {what}") })
    }

    /// Makes the request and records it before it is sent (A-013, A-014, P-026, P-028).
    fn prepare(
        &mut self,
        target: usize,
        attempt: u32,
        tail: &[Message],
        (max_output_tokens, worst_cost): (u64, Option<Money>),
    ) -> Result<Prepared, Abort> {
        let settings = &self.request.settings;
        let target = &settings.targets[target];
        let mut timeout = settings.llm_timeout;
        if let Some(turn_timeout) = self.request.turn_timeout {
            timeout = timeout.min(turn_timeout);
        }
        let (catalog, composed) = (self.offered()?, self.composed(tail)?);
        let request = ModelRequest {
            target: ModelTarget { max_output_tokens, ..target.clone() },
            messages: composed.messages().clone(),
            images: match target.images && !self.without_images {
                true => Arc::clone(&self.request.background.images),
                false => Arc::default(),
            },
            tools: Arc::clone(&catalog.specs),
            tool_choice: if catalog.specs.is_empty() { ToolChoice::None } else { ToolChoice::Auto },
            stream: settings.stream,
            timeout,
        };
        let projection = self.guard.project(self.ephemeral_tokens(tail));
        let (ctx, new, schema) = (projection.current, projection.new_tokens(), projection.schema);
        let expected = projection.total();
        self.record.note_with_next(Event::LlmRequestPrepared(Box::new(RequestPrepared {
            target: name_of(target),
            ctx_tokens: ctx,
            new_tokens: new,
            schema_ctx_tokens: schema,
            expected_tokens: expected,
            context_window: target.context_window,
            turn: self.turn,
            attempt,
            worst_cost,
        })))?;
        if attempt == 1 {
            self.snapshot_prompt(target)?;
        }
        let hashed = &self.offered()?.hashed;
        let hashes = composed.hashed().request(&target.model, hashed, &sent_settings(&request));
        let hashes = hashes.map_err(|error| Abort::internal(error.to_string()))?;
        let request_hash = hashes.request.clone();
        self.record.note(Event::RequestFingerprinted(Box::new(Fingerprint {
            timestamp: self.world.clock.now_ms(),
            step_id: self.request.ids.step_id.clone(),
            step_visit: self.request.ids.visit,
            turn: self.turn,
            attempt,
            provider: target.provider.clone(),
            model: target.model.clone(),
            request_hash: hashes.request,
            system_prompt_hash: hashes.system_prompt,
            messages_hash: hashes.messages,
            tools_hash: hashes.tools,
            model_settings_hash: hashes.model_settings,
            message_count: hashes.message_count,
            tool_count: hashes.tool_count,
            runtime_version: self.world.runtime_version.clone(),
            fingerprint_schema_version: FINGERPRINT_SCHEMA.to_owned(),
        })))?;
        Ok(Prepared { request, request_hash, expected, size: composed.size() })
    }

    fn snapshot_prompt(&self, target: &ModelTarget) -> Result<(), Abort> {
        let prompt = &self.request.prompt;
        self.record.note_with_next(Event::PromptSnapshotTaken(Box::new(PromptSnapshot {
            timestamp: self.world.clock.now_ms(),
            turn: self.turn,
            agent_name: self.request.ids.agent.clone(),
            model: target.model.clone(),
            prompt_version: prompt.version.clone(),
            prompt_hash: prompt.prompt_hash.clone(),
            prompt_text: prompt.include_text.then(|| self.prompt_text()),
            template_hash: prompt.template_hash.clone(),
            step_id: self.request.ids.step_id.clone(),
            step_visit: self.request.ids.visit,
        })))
    }

    /// System prompt and opening, redacted.
    fn prompt_text(&self) -> String {
        let opening = self.request.opening.iter().filter_map(|message| match message {
            Message::User { content } => Some(content.as_str()),
            _ => None,
        });
        let whole: Vec<&str> = std::iter::once(self.request.system.as_str()).chain(opening).collect();
        self.record.redact(&whole.join("\n\n"))
    }

    /// Sends one request and writes its ledger line, however it ends.
    pub(super) async fn ask(
        &mut self,
        target: usize,
        attempt: u32,
        tail: &[Message],
        allowance: Allowance,
    ) -> Result<AttemptEnd, Abort> {
        // The run's money stays set aside until the reply is charged; what it shares, until it is confirmed.
        let Allowance { max_output_tokens, run: held_of_run, shared: held } = allowance;
        let mut held = Some(held);
        let most = (max_output_tokens, held_of_run.as_ref().map(ReservedMoney::amount));
        let Prepared { request, request_hash, expected, size: sent } =
            self.prepare(target, attempt, tail, most)?;
        let started = Instant::now();
        let grace = match self.world.stop.asked() {
            Some(_) => {
                let longest = LAST_REPORT.min(self.request.settings.llm_timeout);
                let until = *self.report_until.get_or_insert(started + longest);
                until.saturating_duration_since(started)
            }
            None => GRACE,
        };
        let timestamp = self.world.clock.now_ms();
        self.attempts += 1;
        let work = AssertUnwindSafe(async { self.world.model.complete(&request).await }).catch_unwind();
        // A stream may take longer than one timeout as long as it goes on. Its reader watches for silence.
        let longest = if request.stream && self.request.turn_timeout.is_none() {
            Duration::MAX
        } else {
            request.timeout
        };
        let work = async {
            match tokio::time::timeout(longest, work).await {
                Err(_) => Err(ModelError {
                    spent: Spent::Unseen,
                    ..failed(ModelErrorClass::Timeout, "no reply within the limit")
                }),
                Ok(Err(_)) => Err(failed(ModelErrorClass::InvalidReply, "the provider's adapter panicked")),
                Ok(Ok(result)) => result,
            }
        };
        let ended = self.interrupts.watch(Some(grace), work).await;
        let line = Line { request: &request, request_hash, attempt, timestamp, started, expected };
        match ended {
            Err(interrupt) => {
                // It was sent, and whoever answers it bills what nobody waited for.
                let spent = Spent::BrokeOff { usage: None, written: 0 };
                let error = Some("cancelled".to_owned());
                self.account(&line, Outcome { spent, error, ..Outcome::default() })?;
                match interrupt {
                    Interrupt::End(abort) => Err(abort),
                    Interrupt::GraceOver => Ok(AttemptEnd::GraceOver),
                }
            }
            Ok(Err(error)) => {
                let spent = error.spent;
                let outcome =
                    Outcome { spent, error: Some(error.to_string()), http_status: error.status, reply: None };
                let cost = self.account(&line, outcome)?;
                if let Some(cost) = cost.or((spent == Spent::Nothing).then_some(Money::ZERO)) {
                    self.charge(held.take(), cost);
                }
                Ok(AttemptEnd::Failed(error))
            }
            Ok(Ok(mut reply)) => {
                let taken =
                    |id: &str| self.conversation.messages().iter().any(|message| calls_it(message, id));
                reply_validation::name_calls(&mut reply, taken);
                // A provider that counts nothing has not counted.
                reply.usage = reply.usage.map(believable).filter(|usage| usage.total_tokens > 0);
                // A turn comes to its end before a person takes the work over.
                let asked = self.world.stop.asked().filter(|stop| !stop.is_taken());
                let phase = match (self.is_final(), asked) {
                    (true, _) => Phase::Final,
                    (false, Some(_)) => Phase::Stopping,
                    (false, None) => Phase::Open,
                };
                let limit = request.target.max_output_tokens;
                let read =
                    reply_validation::read(&reply, phase, self.request.mode, &self.request.report, limit);
                let rejected = read.as_ref().err().map(|rejection| rejection.reason.to_owned());
                let outcome = Outcome { reply: Some(&reply), error: rejected, ..Outcome::default() };
                if let Some(cost) = self.account(&line, outcome)? {
                    self.charge(held.take(), cost);
                }
                // The cost is known now, before any tool of the reply runs.
                self.checkpoint()?;
                let reply = Box::new(reply);
                Ok(match read {
                    Ok(valid) => AttemptEnd::Accepted { reply, valid: Box::new(valid), phase, sent, started },
                    Err(rejection) => AttemptEnd::Rejected { reply, rejection },
                })
            }
        }
    }

    fn charge(&self, held: Option<Reservations>, cost: Money) {
        if let Some(held) = held {
            self.world.caps.confirm_meanwhile(held, cost);
        }
    }

    /// Writes the ledger line of an attempt and gives its cost: the known one, else the estimate.
    fn account(&mut self, line: &Line<'_>, outcome: Outcome<'_>) -> Result<Option<Money>, Abort> {
        let Outcome { reply, spent, error, http_status } = outcome;
        let target = &line.request.target;
        let (tokens, reported, written) = match (reply, spent) {
            (Some(reply), _) => (reply.usage, reply.cost, None),
            (None, Spent::Reply { usage, cost }) => (usage.map(believable), cost, None),
            (None, Spent::BrokeOff { usage, written }) => {
                let is_counted = |usage: &TokenUsage| usage.output_tokens.saturating_mul(2) >= written;
                (usage.map(believable).filter(is_counted), None, Some(written))
            }
            (None, Spent::Unseen) => (None, None, Some(target.max_output_tokens)),
            (None, Spent::Nothing) => (None, None, None),
        };
        let broke_off = reply.is_none() && spent != Spent::Nothing;
        let is_billed = reply.is_some() || broke_off;
        let estimated = (is_billed && tokens.is_none()).then(|| {
            let said = reply.map(|reply| self.guard.estimate().message(&assistant(reply)));
            TokenUsage::new(line.expected, said.or(written).unwrap_or_default(), 0, 0)
        });
        let table = tokens.and_then(|tokens| target.price.as_ref().map(|price| price.cost(&tokens)));
        // Who asks a router with a key of one's own pays another, of whom it may say nothing: tokens with a price are not free.
        let reported =
            reported.filter(|cost| *cost > Money::ZERO || table.is_none_or(|cost| cost == Money::ZERO));
        let (cost_usd, cost_source) = match (reported, table) {
            (Some(cost), _) => (Some(cost), CostSource::Reported),
            (None, Some(cost)) => (Some(cost), CostSource::Table),
            (None, None) => (None, CostSource::Unknown),
        };
        let estimate = estimated.zip(target.price.as_ref()).filter(|_| cost_usd.is_none());
        let estimate = estimate.map(|(tokens, price)| price.cost(&tokens));
        let entry = self.record.ledger_entry(LedgerLine {
            what: AccountingKind::Llm {
                provider: target.provider.clone(),
                model: target.model.clone(),
                actual_provider: reply.and_then(|reply| reply.actual_provider.clone()),
                actual_model: reply.and_then(|reply| reply.actual_model.clone()),
                tokens,
                estimated,
                cost_usd,
                estimated_cost_usd: estimate,
                cost_source,
                stop_reason: reply.and_then(|reply| reply.stop_raw.clone()),
                http_status,
                broke_off,
                fingerprint: line.request_hash.clone(),
            },
            turn: self.turn,
            attempt: Some(line.attempt),
            timestamp: line.timestamp,
            latency: u64::try_from(line.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            error,
        });
        self.record.note(Event::LlmAttempted { entry })?;
        if !is_billed {
            return Ok(None);
        }
        self.usage = sum(&self.usage, &tokens.unwrap_or_default());
        self.cost += cost_usd.unwrap_or_default();
        self.cost_unknown |= cost_usd.is_none();
        let first_unknown = self.world.meter.charge(cost_usd);
        self.world.meter.charge_estimate(estimate.unwrap_or_default());
        if first_unknown {
            let why = match estimate {
                Some(_) if broke_off => {
                    "a reply broke off or was not waited for; an estimate counts against the budget"
                }
                Some(_) => "the provider counts no tokens; an estimate of them counts against the budget",
                None => "the provider does not say it and the target has no price table",
            };
            let text = format!("The cost of requests to {} is unknown: {why}.", name_of(target));
            self.record.warn("cost_unknown", &text)?;
        }
        Ok(cost_usd.or(estimate))
    }
}

/// A request that is on the record.
struct Prepared {
    request: ModelRequest,
    request_hash: String,
    /// Tokens that it is expected to have.
    expected: u64,
    /// The size of its messages.
    size: MessageSize,
}

/// How an attempt came out, for its ledger line.
#[derive(Default)]
struct Outcome<'a> {
    reply: Option<&'a ModelReply>,
    /// What was spent without a reply.
    spent: Spent,
    error: Option<String>,
    http_status: Option<u16>,
}

/// What a ledger line is made of, beside how it came out.
struct Line<'a> {
    request: &'a ModelRequest,
    request_hash: String,
    attempt: u32,
    timestamp: i64,
    started: Instant,
    expected: u64,
}

/// The settings that are sent, by their neutral names. An absent one is not sent (A-095, P-028).
fn sent_settings(request: &ModelRequest) -> Map<String, Value> {
    let mut settings = Map::new();
    settings.insert("maxOutputTokens".to_owned(), request.target.max_output_tokens.into());
    if let Some(temperature) = request.target.temperature {
        settings.insert("temperature".to_owned(), json!(temperature));
    }
    if request.tool_choice != ToolChoice::Auto && !request.tools.is_empty() {
        settings.insert("toolChoice".to_owned(), json!(request.tool_choice));
    }
    if !request.images.is_empty() {
        let images: Vec<&str> = request.images.iter().map(|image| image.sha256.as_str()).collect();
        settings.insert("images".to_owned(), json!(images));
    }
    settings
}

/// A reply as the conversation keeps it.
pub(super) fn assistant(reply: &ModelReply) -> Message {
    Message::Assistant {
        content: reply.text.clone(),
        reasoning: reply.reasoning.clone(),
        tool_calls: reply.tool_calls.clone(),
    }
}

/// `provider/model`.
pub(super) fn name_of(target: &ModelTarget) -> String {
    format!("{}/{}", target.provider, target.model)
}

/// A provider's figures, limited to what a reply can have, so that sums do not overflow.
fn believable(usage: TokenUsage) -> TokenUsage {
    const MOST: u64 = 1 << 40;
    let cut = |tokens: u64| tokens.min(MOST);
    TokenUsage::new(
        cut(usage.input_tokens),
        cut(usage.output_tokens),
        cut(usage.cache_read_input_tokens),
        cut(usage.cache_write_input_tokens),
    )
}

fn calls_it(message: &Message, id: &str) -> bool {
    matches!(message, Message::Assistant { tool_calls, .. } if tool_calls.iter().any(|call| call.id == id))
}

fn failed(class: ModelErrorClass, message: &str) -> ModelError {
    ModelError::new(class, message)
}

fn sum(a: &TokenUsage, b: &TokenUsage) -> TokenUsage {
    TokenUsage::new(
        a.input_tokens.saturating_add(b.input_tokens),
        a.output_tokens.saturating_add(b.output_tokens),
        a.cache_read_input_tokens.saturating_add(b.cache_read_input_tokens),
        a.cache_write_input_tokens.saturating_add(b.cache_write_input_tokens),
    )
}
