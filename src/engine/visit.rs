//! One visit of a step: its prompt, then a session or a program, then its output.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::abort::Abort;
use super::agent_task::AgentBackend;
use super::arguments::Scope;
use super::journal::JournalError;
use super::nearest_rules::Background;
use super::not_done::NotDone;
use super::redaction_program::RedactionProgram;
use super::report::{PreparedOutput, ReportShape};
use super::ruling::HandoffRuling;
use super::session::{PromptIdentity, SessionMode, SessionRequest, SessionWorld, run_unconfirmed};
use super::session_outcome::SessionOutcome;
use super::session_trace::{SessionIds, SessionTrace, WITHHELD};
use super::task_text::TaskText;
use super::tool_list::ToolProvider;
use super::workplace::Workplace;
use crate::definition::Loaded;
use crate::domain::answer::OUTCOMES;
use crate::domain::artifact::Artifact;
use crate::domain::canonical::sha256_hex;
use crate::domain::completion::CompletionResult;
use crate::domain::dot_path::at;
use crate::domain::event::Event;
use crate::domain::flow::{Definition, PermissionMode, Step, StepId};
use crate::domain::intent::Intent;
use crate::domain::message::{Message, Messages};
use crate::domain::model_target::SessionSettings;
use crate::domain::output_schema::{ExtractionStrategy, extract};
use crate::domain::policy::ToolResultEnvelope;
use crate::domain::report::ReportFormat;
use crate::domain::routing::{GateError, Interpreted};
use crate::domain::run::{ForcedFinal, RunId, Warning};
use crate::domain::stop::{Stop, StopDetail};
use crate::prompt::library::ResolvedPrompt;
use crate::prompt::template::Values;

/// Longest `previous_summary`, in characters.
const LONGEST_SUMMARY: usize = 4_000;

/// What a flow runs on, frozen for the run (D1).
pub struct FlowPlan {
    /// The definition with its prompts.
    pub loaded: Arc<Loaded>,
    /// Parameters, facts of the issue, and what the completion condition supplies (D68).
    pub values: Values,
    /// What stands around each resolved prompt: the briefing and the facts of the day (D67).
    pub task: TaskText,
    /// What the run has stored and noted for its sessions.
    pub background: Arc<Background>,
    /// Format of reports of steps without schema (D89).
    pub format: ReportFormat,
    /// Filled as steps are visited.
    pub shapes: Shapes,
    /// Limits and targets.
    pub settings: SessionSettings,
    /// Tools on offer.
    pub tools: ToolProvider,
    /// What a planning step may run (D78).
    pub verify_commands: Vec<Vec<String>>,
    /// `record.include_prompt_text`.
    pub include_prompt_text: bool,
    /// For whom and where.
    pub scope: Scope,
    /// Where the definition's own programs run.
    pub workplace: Workplace,
    /// The programs that work on some steps. agentd's session works on the others.
    pub agents: BTreeMap<StepId, AgentBackend>,
    /// Whether people approve a plan before the flow goes on behind a step that is marked for it.
    pub gates_plans: bool,
    /// The run.
    pub run_id: RunId,
}

impl FlowPlan {
    /// The definition.
    pub fn definition(&self) -> &Definition {
        &self.loaded.definition
    }
}

/// What a program is asked in a visit.
pub(super) struct AgentPrompts {
    /// The instructions.
    pub system: String,
    /// The step's prompt, resolved.
    pub prompt: String,
    /// The prompt with what stands around it.
    pub task: String,
}

/// The shapes of the steps' reports. A schema is compiled once for a run and not for each visit.
#[derive(Debug, Default)]
pub struct Shapes(Mutex<BTreeMap<StepId, ReportShape>>);

impl Shapes {
    fn of(&self, step: &Step, format: ReportFormat) -> Result<ReportShape, Stop> {
        let mut shapes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shape) = shapes.get(&step.id) {
            return Ok(shape.clone());
        }
        let schema = step.output_schema.as_ref().map(|schema| schema.json.clone());
        let shape = ReportShape::new(format, schema).map_err(|error| {
            Stop::new(StopDetail::SchemaInvalid, format!("The step \"{}\": {error}.", step.id))
        })?;
        shapes.insert(step.id.clone(), shape.clone());
        Ok(shape)
    }
}

/// What a flow works with: what its sessions share.
pub struct FlowWorld(pub SessionWorld);

/// What a visit is asked for.
#[derive(Clone, Copy)]
pub(super) struct StepWork<'a> {
    /// The step.
    pub step: &'a Step,
    /// 1-based visit of the run.
    pub visit: u32,
    /// Variables of its prompt.
    pub values: &'a Values,
    /// What goes before its prompt: the words on checks that failed.
    pub retry: Option<&'a str>,
    /// The conversation that it continues; empty = a new one (D4).
    pub history: &'a Messages,
}

/// What came of a visit.
#[derive(Debug, Default)]
pub(super) struct StepResult {
    /// Output, normalised and validated.
    pub output: Map<String, Value>,
    /// How it was found in a text (D5).
    pub extraction: Option<ExtractionStrategy>,
    /// The model's own text.
    pub text: String,
    /// The resolved prompt.
    pub prompt: String,
    /// For the next visit's `previous_summary`.
    pub summary: String,
    /// Accepted turns.
    pub turns: u32,
    /// Model requests.
    pub attempts: u32,
    /// Why the final turn was forced.
    pub forced_final: Option<ForcedFinal>,
    /// The conversation as kept.
    pub conversation: Option<Artifact>,
    /// Answers of completion programs.
    pub programs: Vec<(String, CompletionResult)>,
    /// The conversation, for a visit that continues it. It is kept only where the definition asks for it (D4).
    pub history: Messages,
}

/// A visit that failed, with what is known of it.
pub(super) type Failed = (Box<StepResult>, Stop);

impl From<Stop> for NotDone<Failed> {
    fn from(stop: Stop) -> Self {
        Self::Ended((Box::default(), stop))
    }
}

impl FlowWorld {
    pub(super) fn now(&self) -> DateTime<Utc> {
        self.0.clock.now()
    }

    pub(super) fn record(&self, event: Event) -> Result<(), JournalError> {
        self.0.journal.append(event)
    }

    /// Records an event. With `at_once` an effect outside follows at once. Otherwise another event follows first, and
    /// both are written together.
    pub(super) fn record_before(&self, event: Event, at_once: bool) -> Result<(), JournalError> {
        if at_once { self.record(event) } else { self.0.journal.append_with_next(event) }
    }

    /// A note for people.
    pub(super) fn warn(&self, code: &str, text: &str) -> Result<(), JournalError> {
        let at = self.now().timestamp_millis();
        self.record(Event::Warned(Warning { code: code.to_owned(), at, text: text.to_owned() }))
    }

    /// Waits until what a visit cost is written where the run shares it: after each visit, beside what else is written then.
    ///
    /// # Errors
    /// What was spent cannot be told, so the run cannot go on.
    pub async fn wait_confirmed(&self) -> Result<(), Stop> {
        self.0.wait_confirmed().await.map_err(|abort| abort.into_failure().stop)
    }

    /// Waits until that outlives a loss of power, too: at the end of all visits, because between them the next request's reservation
    /// sees to it.
    pub async fn sync_caps(&self) {
        self.0.caps.sync().await;
    }

    pub(super) fn max_steps(&self) -> u32 {
        self.0.meter.budgets().max_steps
    }

    /// Whether someone asked that no further visit is begun.
    pub(super) fn asked_before_visit(&self) -> Option<Stop> {
        self.0.stop.asked_before_visit()
    }

    /// Whether someone asked to stop.
    pub(super) fn asked_to_stop(&self) -> Option<Stop> {
        self.0.stop.asked()
    }

    /// Takes a visit from the budgets, and reports soft limits that were passed.
    pub(super) fn open_visit(&self) -> Result<(), NotDone<Stop>> {
        let opened = self.0.meter.open_visit();
        for soft in self.0.meter.soft_limits_passed() {
            self.record(Event::BudgetSoftLimit { kind: soft.kind, used: soft.used, cap: soft.cap })?;
        }
        opened.map(drop).map_err(NotDone::Ended)
    }

    /// Runs one step: resolves its prompt, opens a session, reads its report. What few steps need is boxed here and
    /// below, because the future of a visit is as large as its largest part and is copied at every level.
    pub(super) async fn run_step(
        &self,
        plan: &FlowPlan,
        work: StepWork<'_>,
    ) -> Result<StepResult, NotDone<Failed>> {
        if let Some(program) = &work.step.runner {
            return Box::pin(self.run_program(plan, work, program)).await;
        }
        let mut resolved = match plan.loaded.resolve_prompt(work.step, None, work.values) {
            Ok(resolved) => resolved,
            Err(error) => {
                let message = format!("The prompt of the step \"{}\" cannot be made: {error}.", work.step.id);
                // An earlier visit did not give this value. The run has begun, so this is not a refused start.
                return Err(Stop::new(StopDetail::SchemaInvalid, message).into());
            }
        };
        if let Some(retry) = work.retry {
            resolved.text = format!("{retry}\n\n{}", resolved.text);
            resolved.text_sha256 = sha256_hex(resolved.text.as_bytes());
        }
        let system = plan.loaded.system_prompt();
        let identity = identity(plan, system, &resolved);
        let agent = plan.agents.get(&work.step.id);
        let told = Event::PromptResolved {
            visit: work.visit,
            step_id: work.step.id.clone(),
            path: resolved.path.clone(),
            fell_back: resolved.fell_back,
            prompt_hash: identity.prompt_hash.clone(),
            template_hash: identity.template_hash.clone(),
            text: plan.include_prompt_text.then(|| resolved.text.clone()),
        };
        // The first request of a session is recorded before it is sent, and this event with it.
        self.record_before(told, agent.is_some())?;
        let notes = Notes::default();
        let shape = shape(plan, work.step, &notes)?;
        let mode = plan.definition().permission_mode(work.step);
        if let Some(agent) = agent {
            let task = plan.task.around(&resolved.text, &resolved.variables);
            let prompts = AgentPrompts { system: system.text.clone(), prompt: resolved.text, task };
            let world = Self(self.session_world(plan, mode));
            return Box::pin(world.run_agent(plan, work, agent, shape, prompts, &identity)).await;
        }
        let mut opening = work.history.clone();
        opening.push(Message::User { content: plan.task.around(&resolved.text, &resolved.variables) });
        let request = SessionRequest {
            ids: self.ids(plan, work.step, work.visit),
            scope: plan.scope.clone(),
            mode: SessionMode::Task,
            system: system.text.clone(),
            opening,
            aside: None,
            report: shape,
            settings: plan.settings.clone(),
            tools: plan.tools.clone(),
            prompt: identity,
            turn_timeout: None,
            background: Arc::clone(&plan.background),
        };
        let outcome = run_unconfirmed(request, &self.session_world(plan, mode)).await;
        let notes = std::mem::take(&mut *notes.lock().unwrap_or_else(PoisonError::into_inner));
        if !notes.is_empty() {
            self.warn("output_normalised", &format!("\"{}\": {}", work.step.id, notes.join("; ")))?;
        }
        read_outcome(plan, work, resolved.text, outcome, self.0.redaction.as_deref()).map_err(NotDone::Ended)
    }

    /// A planning step's policy is narrower (D78).
    pub(super) fn session_world(&self, plan: &FlowPlan, mode: PermissionMode) -> SessionWorld {
        let mut world = self.0.clone();
        if mode == PermissionMode::Plan {
            world.policy = Arc::new(world.policy.as_ref().clone().planning(&plan.verify_commands));
        }
        world
    }

    pub(super) fn ids(&self, plan: &FlowPlan, step: &Step, visit: u32) -> SessionIds {
        SessionIds {
            run: plan.run_id,
            session: Uuid::now_v7(),
            step_id: step.id.clone(),
            visit,
            agent: plan.definition().name.clone(),
            call_path: format!("issue-{}:{}", plan.scope.issue, step.id),
        }
    }

    /// Writes for a visit outside of its sessions.
    pub(super) fn record_of(&self, plan: &FlowPlan, step: &Step, visit: u32) -> SessionTrace {
        self.0.record(self.ids(plan, step, visit))
    }

    /// Asks the gate for a transition. A hard denial is the error; a soft one is in the envelope.
    pub(super) async fn hand_off(
        &self,
        plan: &FlowPlan,
        from: &Step,
        visit: u32,
        to: &str,
        payload: &Map<String, Value>,
    ) -> Result<ToolResultEnvelope, Abort> {
        let record = self.record_of(plan, from, visit);
        let gate = self
            .0
            .gate(record, plan.scope.clone(), &[])
            .map_err(|error| Abort::internal(error.to_string()))?;
        let payload = Value::Object(payload.clone());
        match gate.handoff(&from.id, to, &payload).await? {
            HandoffRuling::Accepted(answer) | HandoffRuling::Denied(answer) => Ok(answer.envelope().clone()),
        }
    }
}

/// Hashes of system prompt and step prompt together, as resolved and as templates (D88).
fn identity(plan: &FlowPlan, system: &ResolvedPrompt, prompt: &ResolvedPrompt) -> PromptIdentity {
    let both = |system: &str, prompt: &str| sha256_hex(format!("{system}\n{prompt}").as_bytes());
    PromptIdentity {
        prompt_hash: both(&system.text_sha256, &prompt.text_sha256),
        template_hash: both(&system.template_sha256, &prompt.template_sha256),
        version: Some(prompt.version()),
        include_text: plan.include_prompt_text,
    }
}

/// What was replaced in an output before its schema was checked (D21).
type Notes = Arc<Mutex<Vec<String>>>;

/// The shape of the step's report. The output is put into canonical words before it is checked (D21, D74).
fn shape(plan: &FlowPlan, step: &Step, notes: &Notes) -> Result<ReportShape, Stop> {
    let mut shape = plan.shapes.of(step, plan.format)?;
    if plan.task.asks_outcomes {
        shape = shape.with_outcomes();
    }
    let (loaded, id, notes) = (Arc::clone(&plan.loaded), step.id.clone(), Arc::clone(notes));
    Ok(shape.prepared_by(Arc::new(move |output| {
        let flow = &loaded.definition.flow;
        if let Some(step) = flow.step(&id) {
            let replaced = flow.normalise(step, output);
            let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
            notes.extend(replaced.into_iter().filter(|note| !note.is_empty()));
            notes.dedup();
            // The message of the gate says more than the enum of the schema (E05).
            match flow.interpret(step, output) {
                Err(error @ GateError::NotAllowed { .. }) => return Err(error.to_string()),
                Ok(Interpreted { intent: Intent::Abort, .. }) => return Ok(PreparedOutput::GivenUp),
                _ => {}
            }
        }
        Ok(PreparedOutput::ForSchema)
    })))
}

pub(super) fn read_outcome(
    plan: &FlowPlan,
    work: StepWork<'_>,
    prompt: String,
    mut outcome: SessionOutcome,
    redaction: Option<&RedactionProgram>,
) -> Result<StepResult, Failed> {
    let text = outcome.report.content.take().unwrap_or_default();
    let outcomes = outcome.report.metadata.as_ref().and_then(|metadata| metadata.get(OUTCOMES).cloned());
    let mut result = StepResult {
        output: outcome.report.content_json.take().unwrap_or_default(),
        extraction: outcome.extraction,
        prompt,
        turns: outcome.turns,
        attempts: outcome.attempts,
        forced_final: outcome.forced_final,
        conversation: outcome.conversation.take(),
        ..StepResult::default()
    };
    if plan.definition().agentd.continue_session {
        result.history = outcome.history();
    }
    result.summary = summary(&result.output, &text);
    result.text = text;
    if let Some(failure) = outcome.failure {
        return Err((Box::new(result), failure.stop));
    }
    // A step without schema gives the object that its text has, if any. Without a schema, lines `key: value` have no
    // known keys.
    if work.step.output_schema.is_none()
        && let Ok(found) = extract(&result.text, &Value::Null)
    {
        (result.output, result.extraction) = (found.data, Some(found.strategy));
    }
    if let Some(stop) = redaction.and_then(|program| withheld_intent(program, work.step, &result.output)) {
        return Err((Box::new(result), stop));
    }
    plan.definition().flow.normalise(work.step, &mut result.output);
    // The session has checked the schema. Only the defaults of the oldest form are left.
    if let Some(fields) = work.step.output_schema.as_ref().and_then(|schema| schema.fields.as_ref()) {
        fields.fill_defaults(&mut result.output);
    }
    // A report of text, or of a closed schema, has no other place for them.
    if let Some(outcomes) = outcomes {
        result.output.entry(OUTCOMES).or_insert(outcomes);
    }
    Ok(result)
}

/// The end of a flow of which nobody knows where it goes, since the program withheld the word that says so. No model is to blame.
fn withheld_intent(program: &RedactionProgram, step: &Step, output: &Map<String, Value>) -> Option<Stop> {
    let said = at(output, &step.gate.as_ref()?.intent_field)?;
    let failure = program.failure().filter(|_| said == WITHHELD)?;
    let message = format!(
        "{failure}. What the step \"{}\" put out is withheld, so that the flow cannot go on; mend the program, or take it out of agentd.toml.",
        step.id
    );
    Some(Stop::new(StopDetail::ConfigInvalid, message))
}

/// What the next visit hears of this one.
pub(super) fn summary(output: &Map<String, Value>, text: &str) -> String {
    let said = ["summary", "next_action.reason", "message"]
        .iter()
        .find_map(|path| at(output, path)?.as_str())
        .unwrap_or(text);
    said.chars().take(LONGEST_SUMMARY).collect()
}
