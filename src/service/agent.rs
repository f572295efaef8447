//! `run_agent`: one turn of a conversation with a user, tools included (S-001…S-017, S-052…S-054).

use std::sync::Arc;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::chat_format::{AgentResponse, AgentStatus, ChatMessage, ChatRole, ResponseMeta, ShownMessage};
use super::chat_record;
use super::chat_settings::AgentConfig;
use super::error_text::ErrorClass;
use super::event_log::ERROR_CODE;
use super::history::{self, InvalidRequest};
use super::host::{self, Opened, Service};
use crate::domain::canonical::sha256_hex;
use crate::domain::event::Event;
use crate::domain::message::Message;
use crate::domain::refusal::Refusal;
use crate::domain::report::{ReportFormat, ReportSource};
use crate::domain::run::{ForcedFinal, Principal, Warning};
use crate::domain::stop::{Stop, StopReason};
use crate::domain::trace::SessionFailure;
use crate::engine::abort::Abort;
use crate::engine::report::ReportShape;
use crate::engine::session::{PromptIdentity, SessionMode, SessionRequest, run_session};
use crate::engine::session_outcome::SessionOutcome;
use crate::engine::shortage::is_of_the_day;
use crate::engine::tool_list::{ToolProvider, ToolSource};
use crate::sys::clock::Stopwatch;

/// Role, user, rules of isolation and of tools (S-010, S-044); the same bytes for every turn of a user.
const SYSTEM: &str = include_str!("../../prompts/chat/system.md");

/// Answers a conversation for a user. It asks the model and runs the tools that the model calls, until the model
/// answers in text. When the iterations are used up, it asks for a summary. `config` is the service's own unless given.
///
/// # Errors
/// Only a wrong request is an error, before anything was asked or made. Everything else is in the response.
pub async fn run_agent(
    service: &Service,
    history: &[ChatMessage],
    user: &Principal,
    config: Option<AgentConfig>,
) -> Result<AgentResponse, InvalidRequest> {
    let watch = Stopwatch::start();
    history::check(history)?;
    let config = config.unwrap_or_else(|| service.agent_config());
    let settings = match &service.models {
        Ok(models) => config.apply(&models.session.settings)?,
        Err(refusal) => return Ok(unopened(refusal, history, watch)),
    };
    let opened = match service.begin(user).await {
        Ok(opened) => opened,
        Err(error) => return Ok(unasked(Abort::from(error).failure(), history, watch)),
    };
    let system = system_prompt(user, config.own_instructions());
    let shape = match ReportShape::new(ReportFormat::Markdown, None) {
        Ok(shape) => shape,
        Err(error) => return Ok(unasked(Abort::internal(error.to_string()).failure(), history, watch)),
    };
    let request = SessionRequest {
        ids: host::ids(opened.run, "chat"),
        scope: host::scope(user),
        mode: SessionMode::Chat,
        prompt: PromptIdentity {
            prompt_hash: sha256_hex(system.as_bytes()),
            template_hash: sha256_hex(SYSTEM.as_bytes()),
            version: None,
            include_text: service.config.record.include_prompt_text,
        },
        system,
        aside: Some(time_of(service.clock.now())),
        opening: history.iter().map(message).collect(),
        report: shape,
        settings,
        tools: ToolProvider::Changing(Arc::clone(&service.tools) as Arc<dyn ToolSource>),
        turn_timeout: Some(config.timeout()),
        background: Arc::default(),
    };
    let outcome = run_session(request, &opened.world).await;
    let stop = outcome.stop();
    let response = response(service, &config, history.len(), &opened, outcome, watch).await;
    let asked = history.last().map(history::sanitised).unwrap_or_default();
    chat_record::keep(service, &opened, user, (&asked, &response.final_response), stop).await;
    Ok(response)
}

/// The answer when there is no service. It has the fields of every answer (S-007).
pub fn unopened(refusal: &Refusal, history: &[ChatMessage], watch: Stopwatch) -> AgentResponse {
    let (stop, words) = (&refusal.stop, refusal.stop.message.clone());
    unasked(Abort::new(stop.detail, "ConfigurationError", &words, words.clone()).failure(), history, watch)
}

/// The answer when no model was asked and there is no journal. The log has the technical detail.
fn unasked(failure: &SessionFailure, history: &[ChatMessage], watch: Stopwatch) -> AgentResponse {
    let told = PublicFailure::new(failure);
    tracing::error!(error_id = %told.id, "{}: {}", failure.error_name, failure.error_message);
    let shown = |said: &ChatMessage| ShownMessage::of(&message(said), str::to_owned);
    told.response(history.iter().filter_map(shown).collect(), 0, Uuid::now_v7(), watch)
}

/// A message of the history as the model gets it (S-050).
fn message(said: &ChatMessage) -> Message {
    let content = history::sanitised(said);
    match said.role {
        ChatRole::User => Message::User { content },
        ChatRole::Assistant => Message::Assistant { content, reasoning: None, tool_calls: Vec::new() },
    }
}

fn system_prompt(user: &Principal, own: Option<&str>) -> String {
    let system = SYSTEM.replace("{uv-user_id}", &user.id.to_string());
    match own {
        Some(own) => format!("{}\n\n# Instructions of the host\n\n{}\n", system.trim_end(), own.trim()),
        None => system,
    }
}

/// Told on the user side: the system prompt has no clock (S-053, C-19).
fn time_of(now: DateTime<Utc>) -> String {
    format!("(From the host, for words such as \"today\": it is {}.)", now.format("%A, %Y-%m-%d, %H:%M UTC"))
}

async fn response(
    service: &Service,
    config: &AgentConfig,
    history: usize,
    opened: &Opened,
    outcome: SessionOutcome,
    watch: Stopwatch,
) -> AgentResponse {
    let clean = |text: &str| service.clean(text);
    let messages = outcome.messages.iter().filter_map(|message| ShownMessage::of(message, clean)).collect();
    let iterations = outcome.turns.min(config.iterations());
    let run_id = opened.run.0;
    // An answer that was paid for is the user's, also where money or a stop made it the last one.
    let is_last = outcome.source != ReportSource::Synthetic
        && outcome.failure.as_ref().is_some_and(|failure| {
            matches!(failure.stop.reason(), StopReason::BudgetExceeded | StopReason::HumanRequested)
        });
    let mut response = match outcome.failure.as_ref().filter(|_| !is_last) {
        Some(failure) => {
            let told = PublicFailure::new(failure);
            told.record(opened).await;
            let mut response = told.response(messages, iterations, run_id, watch);
            response.meta.worth_again = ErrorClass::worth_again(failure, service.clock.now());
            response
        }
        None => AgentResponse {
            status: AgentStatus::Completed,
            final_response: outcome.report.content.clone().unwrap_or_default(),
            messages,
            iterations,
            finish_reason: "completed".to_owned(),
            error: None,
            warning: None,
            meta: ResponseMeta {
                run_id,
                execution_time_ms: millis(watch),
                error_id: None,
                error_type: None,
                worth_again: None,
            },
        },
    };
    let mut warnings: Vec<String> = config.history_warning(history).into_iter().collect();
    match outcome.forced_final {
        Some(ForcedFinal::MaxTurns) if outcome.failure.is_none() => {
            response.status = AgentStatus::MaxIterationsReached;
            response.finish_reason = "max_iterations_reached".to_owned();
            warnings.push(format!("All {} iterations were used; the response sums up.", config.iterations()));
        }
        Some(ForcedFinal::Context) => {
            warnings.push("The conversation nearly filled the model's context window.".to_owned());
        }
        Some(ForcedFinal::RetryExhaustion) => {
            warnings.push("The model's replies could not be used more than once.".to_owned());
        }
        _ => {}
    }
    if is_last {
        let stop = outcome.failure.as_ref().map(|failure| &failure.stop);
        let told = match stop.filter(|stop| stop.reason() == StopReason::BudgetExceeded) {
            Some(stop) => without_tools(stop),
            None => "agentd was told to stop; this answer is the last one.",
        };
        warnings.push(told.to_owned());
    }
    response.warning = (!warnings.is_empty()).then(|| warnings.join(" "));
    if let Err(error) = opened.journal.flush().await {
        tracing::error!(%error, "the conversation's record is not on disk");
    }
    response
}

/// What a user is told of an answer for whose next request with tools there was no money. What is left may cover many answers like it.
fn without_tools(stop: &Stop) -> &'static str {
    match is_of_the_day(stop) {
        true => {
            "This answer was given without further tools: what is left of today's money (UTC) does not cover a request with them. \
             Whoever runs this service can allow more for a day."
        }
        false => {
            "This answer was given without further tools: what one answer may cost does not cover a request with them. Whoever \
             runs this service can let an answer cost more."
        }
    }
}

/// An error for the user: a fixed text, and an id that finds the technical detail (S-016, S-017).
struct PublicFailure<'a> {
    id: Uuid,
    class: ErrorClass,
    failure: &'a SessionFailure,
}

impl<'a> PublicFailure<'a> {
    fn new(failure: &'a SessionFailure) -> Self {
        Self { id: Uuid::now_v7(), class: ErrorClass::of(failure), failure }
    }

    async fn record(&self, opened: &Opened) {
        let text = format!("error {}: {}: {}", self.id, self.failure.error_name, self.failure.error_message);
        let note = Warning { code: ERROR_CODE.to_owned(), at: opened.world.clock.now_ms(), text };
        if let Err(error) = opened.journal.append(Event::Warned(note)) {
            tracing::error!(error_id = %self.id, %error, "an error is not in the journal");
        }
    }

    fn response(
        self,
        messages: Vec<ShownMessage>,
        iterations: u32,
        run_id: Uuid,
        watch: Stopwatch,
    ) -> AgentResponse {
        let text = self.class.text().to_owned();
        AgentResponse {
            status: AgentStatus::Error,
            final_response: text.clone(),
            messages,
            iterations,
            finish_reason: self.failure.stop.detail.as_str().to_owned(),
            error: Some(text),
            warning: None,
            meta: ResponseMeta {
                run_id,
                execution_time_ms: millis(watch),
                error_id: Some(self.id),
                error_type: Some(self.class.error_type().to_owned()),
                worth_again: None,
            },
        }
    }
}

fn millis(watch: Stopwatch) -> u64 {
    u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX)
}
