//! The step flow: one visit after the other until the flow completes, fails or is stopped.
//!
//! After a crash a run continues at the border between two visits (D4). A visit takes the variables of its step, runs
//! one session or one program, keeps the validated output in StepContext, and says where the flow goes. Completion is
//! asked at its end, budgets before the next visit (D8).

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use super::checks::{CheckWork, Checked, FailedChecks};
use super::flow_position::Position;
use super::journal::JournalError;
use super::not_done::NotDone;
use super::plan_gate;
use super::variables::{VisitFacts, of_visit};
use super::visit::{Failed, FlowPlan, FlowWorld, StepResult, StepWork};
use super::visits_made::VisitsMade;
use crate::domain::action_block::actions;
use crate::domain::canonical::canonical_sha256;
use crate::domain::completion::{CompletionResult, VisitEnd};
use crate::domain::count::counted;
use crate::domain::event::Event;
use crate::domain::flow::{OnFailure, Step, StepId, ValidationStep};
use crate::domain::message::Messages;
use crate::domain::policy::EnvelopeStatus;
use crate::domain::question::Question;
use crate::domain::routing::{GateError, Interpreted, Next};
use crate::domain::run::{Carried, HeldHandoff, Retry, VisitRecord};
use crate::domain::step_check::StepCheck;
use crate::domain::step_context::{MissingRequiredInput, StepContext};
use crate::domain::stop::{FlowEnd, Stop, StopDetail};
use crate::domain::trace::CheckMoment;
use crate::prompt::template::Values;

/// How many handoffs in a row the policy may deny softly. The step is told of each one; this many are a loop.
const MOST_DENIALS: u32 = 3;

/// One move of a flow.
#[derive(Debug)]
pub enum FlowMove {
    /// A visit ended. The caller keeps it (checkpoint, journal) before it asks for the next one.
    Visited(Box<VisitRecord>),
    /// The flow ended; asking again gives the same answer.
    Ended(FlowEnd),
}

/// A flow under way.
pub struct FlowRun<'a> {
    plan: &'a FlowPlan,
    world: &'a FlowWorld,
    context: StepContext,
    position: Position,
    made: VisitsMade,
    forced_final: bool,
    /// What goes from visit to visit beside the outputs.
    carried: Carried,
    /// Visits that do not count for the agent's own limit: those before it was asked to work once more.
    uncounted: u32,
    /// The conversation that a repetition of that step continues (D4).
    history: Option<(StepId, Messages)>,
}

impl<'a> FlowRun<'a> {
    /// Starts at the entry, or continues after the visits that a killed predecessor finished (D61).
    pub fn new(plan: &'a FlowPlan, world: &'a FlowWorld, finished: Vec<VisitRecord>) -> Self {
        let (mut context, mut made) = (StepContext::default(), VisitsMade::default());
        for visit in &finished {
            context.set(&visit.step_id, visit.output.clone());
            made.add(plan.definition(), visit);
        }
        let forced_final = finished.iter().any(|visit| visit.forced_final.is_some());
        let position = match finished.last() {
            None => Position::At(plan.definition().flow.entry.clone()),
            Some(last) => Position::behind(plan, last, forced_final),
        };
        let carried = finished.last().map(|last| last.carried.clone()).unwrap_or_default();
        Self { plan, world, context, position, made, forced_final, carried, uncounted: 0, history: None }
    }

    /// Has the last step that may change files visited once more, with these words before its prompt. The flow goes on from
    /// there, and its own limit of iterations counts anew. False: no such step was visited.
    pub fn again(&mut self, words: String) -> bool {
        let Some(step_id) = self.made.last_writer.clone() else { return false };
        self.carried.retry = Some(Retry { step_id: step_id.clone(), words });
        self.uncounted = self.made.visits;
        self.position = Position::At(step_id);
        true
    }

    /// How the flow ended, if it has.
    pub fn ended(&self) -> Option<&FlowEnd> {
        match &self.position {
            Position::Ended(end) => Some(end),
            Position::At(_) | Position::Held(_) => None,
        }
    }

    /// Makes the next visit, or says how the flow ended.
    pub async fn advance(&mut self) -> Result<FlowMove, JournalError> {
        let step_id = loop {
            match &self.position {
                Position::Ended(end) => return Ok(FlowMove::Ended(end.clone())),
                Position::At(step_id) => break step_id.clone(),
                Position::Held(last) => {
                    let last = last.clone();
                    self.position = self.propose_held(*last).await?;
                }
            }
        };
        if let Err(not_done) = self.may_visit() {
            let stop = not_done.ended()?;
            return Ok(self.end(FlowEnd::failed(stop)));
        }
        let plan = self.plan;
        let Some(step) = plan.definition().flow.step(&step_id) else {
            let message = plan.definition().flow.lost(&step_id);
            return Ok(self.end(FlowEnd::failed(Stop::new(StopDetail::ConfigInvalid, message))));
        };
        let visit = self.made.visits + 1;
        let started_at = self.world.now();
        let runs_programs = step.runner.is_some() || self.validation(step).is_some();
        let started = Event::VisitStarted { visit, step_id: step_id.clone() };
        self.world.record_before(started, runs_programs)?;
        let worked = match self.checked_before(step, visit).await {
            Ok(retry) => self.work(step, visit, retry.as_deref()).await,
            Err(not_done) => Err(not_done.ended()?.into()),
        };
        let (result, decided) = match worked {
            Ok(mut result) => {
                let decided = self.decide(step, visit, &mut result).await?;
                (result, decided)
            }
            Err(not_done) => {
                let (result, stop) = not_done.ended()?;
                (*result, Decided::failed(stop))
            }
        };
        let repeats = decided.position == Position::At(step_id.clone());
        self.history = (repeats && !result.history.is_empty()).then(|| (step_id, result.history.clone()));
        let record = self.close_visit(step, visit, started_at, result, &decided)?;
        self.position = match plan_gate::pending(self.plan, &record) {
            Some(pending) => Position::Ended(FlowEnd::failed(pending)),
            None => self.stopped_behind(step, &decided).unwrap_or(decided.position),
        };
        Ok(FlowMove::Visited(Box::new(record)))
    }

    /// Where a flow goes that would be complete, and whose agent program gave its report after somebody had asked to stop: the visit
    /// is done, and whoever goes on with the run goes on behind it (C-26).
    fn stopped_behind(&self, step: &Step, decided: &Decided) -> Option<Position> {
        let asked = self.world.asked_to_stop().filter(|_| self.plan.agents.contains_key(&step.id));
        asked.filter(|_| decided.completes()).map(|stop| Position::Ended(FlowEnd::failed(stop)))
    }

    fn end(&mut self, end: FlowEnd) -> FlowMove {
        self.position = Position::Ended(end.clone());
        FlowMove::Ended(end)
    }

    /// Stop requests and budgets, before a visit (C-08, C-12, D24).
    fn may_visit(&self) -> Result<(), NotDone<Stop>> {
        if let Some(stop) = self.world.asked_before_visit() {
            return Err(stop.into());
        }
        if let Some(max) = self.plan.definition().max_iterations
            && self.made.visits - self.uncounted >= max
        {
            let message =
                format!("The agent's own limit of {} is reached.", counted(max as usize, "iteration"));
            return Err(Stop::new(StopDetail::MaxIterations, message).into());
        }
        self.world.open_visit()
    }

    /// Variables, prompt, session or program. Where it ends otherwise, the visit failed, and with it the flow.
    async fn work(
        &self,
        step: &Step,
        visit: u32,
        retry: Option<&str>,
    ) -> Result<StepResult, NotDone<Failed>> {
        let values = self.values(step, visit)?;
        let none = Messages::default();
        let history = self.history.as_ref().filter(|(of, _)| *of == step.id).map_or(&none, |(_, kept)| kept);
        self.world.run_step(self.plan, StepWork { step, visit, values: &values, retry, history }).await
    }

    /// The variables of a visit.
    fn values(&self, step: &Step, visit: u32) -> Result<Values, Stop> {
        let step_visit = 1 + self.made.of.get(&step.id).copied().unwrap_or_default();
        let previous = self.made.last.is_some().then_some(self.made.summary.as_str());
        let max_steps = self.world.max_steps();
        let facts = VisitFacts { visit, step_visit, max_steps, previous_summary: previous };
        of_visit(self.plan.definition(), step, &self.plan.values, &self.context, facts).map_err(|missing| {
            let message = format!("The step \"{}\" cannot start: {missing}.", step.id);
            Stop::new(StopDetail::SchemaInvalid, message)
        })
    }

    /// Where a step without gate leads. Its check decides, else its transitions, within the limits of its visits in a
    /// row.
    async fn without_gate(
        &mut self,
        step: &Step,
        visit: u32,
        result: &StepResult,
    ) -> Result<Unjudged, NotDone<(&'static str, Stop)>> {
        let (verdict, next) = match &step.check {
            Some(check) => match self.step_checked(step, visit, check, result).await {
                Ok(decided) => decided,
                Err(not_done) => return Err(NotDone::Ended(("ng", not_done.ended()?))),
            },
            None => ("next", self.plan.definition().flow.after_linear(step)),
        };
        let in_a_row = self.in_a_row(step);
        if verdict != "ng" && step.iterations.wants_more(in_a_row) {
            return Ok(("repeat", Next::Step(step.id.clone())));
        }
        let again = verdict == "next" && next == Next::Step(step.id.clone());
        if again
            && !step.iterations.allows_more(in_a_row)
            && !self.completion(step, visit, result, false, &mut self.carried.met.clone()).complete
        {
            let message =
                format!("The step \"{}\" was visited {in_a_row} times in a row, its limit.", step.id);
            return Err(NotDone::Ended((verdict, Stop::new(StopDetail::MaxIterations, message))));
        }
        Ok((verdict, next))
    }

    /// How often the step was visited in a row, with the present visit.
    fn in_a_row(&self, step: &Step) -> u32 {
        1 + if self.made.last.as_ref() == Some(&step.id) { self.made.in_a_row } else { 0 }
    }

    /// Asks the check of a step. With `ok` the flow goes on. With `ng` the step is visited again; later the fallback is
    /// taken, and in the end the run fails.
    async fn step_checked(
        &mut self,
        step: &Step,
        visit: u32,
        check: &StepCheck,
        result: &StepResult,
    ) -> Result<Unjudged, NotDone<Stop>> {
        let values = self.values(step, visit)?;
        let said = if result.text.is_empty() {
            Value::Object(result.output.clone()).to_string()
        } else {
            result.text.clone()
        };
        let asking = self.world.ask_step_check(self.plan, (step, visit), check, &values, &said);
        let (ok, reason) = Box::pin(asking).await?;
        if ok {
            self.carried.turned_down = 0;
            return Ok(("ok", check.on_pass.clone().map_or(Next::Complete, Next::Step)));
        }
        let reason = if reason.is_empty() { "no reason given".to_owned() } else { reason };
        self.carried.turned_down += 1;
        if self.carried.turned_down <= check.max_retries && step.iterations.allows_more(self.in_a_row(step)) {
            self.retry(
                step,
                format!("The check of this step's last result says no: {reason}\n\nDo it again, better."),
            );
            return Ok(("ng", Next::Step(step.id.clone())));
        }
        self.carried.turned_down = 0;
        match &check.fallback {
            Some(fallback) => Ok(("ng", Next::Step(fallback.clone()))),
            None => {
                let why = format!("the check of the step \"{}\" says no: {reason}", step.id);
                Err(validation_abort(&why).into())
            }
        }
    }

    /// The step's next visit begins with these words.
    fn retry(&mut self, step: &Step, words: String) {
        self.carried.retry = Some(Retry { step_id: step.id.clone(), words });
    }

    /// What must hold before this step may end the flow.
    fn validation(&self, step: &Step) -> Option<&'a ValidationStep> {
        let definition = self.plan.definition();
        definition.flow.validation_for(step, &definition.completion)
    }

    /// Runs the checks before the work of a closing step. If they fail, gives the words that its prompt begins with, so
    /// that the model can repair the failure (E12).
    async fn checked_before(&mut self, step: &Step, visit: u32) -> Result<Option<String>, NotDone<Stop>> {
        if let Some(retry) = self.carried.retry.take()
            && retry.step_id == step.id
        {
            return Ok(Some(retry.words));
        }
        let Some(validation) = self.validation(step).filter(|own| own.asks_before(step)) else {
            return Ok(None);
        };
        self.check(step, visit, validation, CheckMoment::Before, None).await
    }

    /// Asks the checks. `Ok(None)`: they hold, or their failure is to be skipped. `Ok(Some)`: the words for another try.
    async fn check(
        &mut self,
        step: &Step,
        visit: u32,
        validation: &ValidationStep,
        moment: CheckMoment,
        output: Option<&Map<String, Value>>,
    ) -> Result<Option<String>, NotDone<Stop>> {
        let is_same = self.carried.failed_step.as_ref().is_none_or(|failed| *failed == step.id);
        let attempt = if is_same { self.carried.failed_checks + 1 } else { 1 };
        let work = CheckWork { step, visit, validation, moment, attempt, output };
        let Checked::Failed(failed) = Box::pin(self.world.check(self.plan, work)).await? else {
            self.carried.checks_are_over();
            return Ok(None);
        };
        self.carried.failed_checks = attempt;
        self.carried.failed_step = Some(step.id.clone());
        if let Some(why) = &failed.beyond_repair {
            return Err(validation_abort(why).into());
        }
        match validation.on_failure {
            OnFailure::Skip => {
                self.carried.checks_are_over();
                self.world.warn("validation_skipped", &failed.sentences.join(" "))?;
                Ok(None)
            }
            OnFailure::Abort => Err(validation_abort(&failed.sentences.join(" ")).into()),
            OnFailure::Retry if step.runner.is_some() && moment == CheckMoment::Before => {
                let why =
                    format!("{} A program does this step and cannot repair it.", failed.sentences.join(" "));
                Err(validation_abort(&why).into())
            }
            OnFailure::Retry if attempt >= validation.max_attempts => {
                Err(out_of_attempts(attempt, &failed).into())
            }
            OnFailure::Retry => Ok(Some(failed.prompt)),
        }
    }

    /// Runs the checks when a flow wants to end. It ends when they hold; otherwise its last step is visited again.
    async fn checked_after(
        &mut self,
        step: &Step,
        visit: u32,
        result: &StepResult,
        decided: Decided,
    ) -> Result<Decided, JournalError> {
        let Some(validation) = self.validation(step) else { return Ok(decided) };
        match self.check(step, visit, validation, CheckMoment::After, Some(&result.output)).await {
            Ok(None) => Ok(decided),
            Ok(Some(words)) => {
                self.retry(step, words);
                Ok(Decided { position: Position::At(step.id.clone()), ..decided })
            }
            Err(not_done) => Ok(Decided::failed(not_done.ended()?).said(decided.verdict)),
        }
    }

    /// Where the flow goes after a visit: intent, route, handoff through the gate, completion.
    async fn decide(
        &mut self,
        step: &Step,
        visit: u32,
        result: &mut StepResult,
    ) -> Result<Decided, JournalError> {
        self.heed_actions(step, result)?;
        let flow = &self.plan.definition().flow;
        let (verdict, interpreted, next) = match step.gate {
            None => match self.without_gate(step, visit, result).await {
                Ok((verdict, next)) => (verdict.to_owned(), None, Ok(next)),
                Err(not_done) => {
                    let (verdict, stop) = not_done.ended()?;
                    return Ok(Decided::failed(stop).said(verdict.to_owned()));
                }
            },
            Some(_) => match flow.interpret(step, &result.output) {
                Ok(interpreted) => {
                    for warning in &interpreted.warnings {
                        self.world.warn("intent_assumed", warning)?;
                    }
                    let next = flow.route(step, &interpreted, &result.output);
                    (interpreted.intent.as_str().to_owned(), Some(interpreted), next)
                }
                // A program that succeeded is done. Only a model has to say where to go.
                Err(GateError::NoIntent { .. }) if step.runner.is_some() => {
                    ("next".to_owned(), None, Ok(flow.after_linear(step)))
                }
                Err(GateError::NoIntent { .. }) => {
                    ("none".to_owned(), None, flow.without_intent(step, visit))
                }
                Err(error @ GateError::NotAllowed { .. }) => {
                    let stop = Stop::new(StopDetail::InvalidModelOutput, format!("{error}."));
                    return Ok(Decided::failed(stop));
                }
            },
        };
        self.context.set(&step.id, self.kept_output(interpreted.as_ref(), result));
        let next = match next {
            Ok(next) => next,
            Err(error) => {
                let stop = Stop::new(StopDetail::InvalidModelOutput, format!("{error}."));
                return Ok(Decided::failed(stop).said(verdict));
            }
        };
        self.forced_final |= result.forced_final.is_some();
        let closing = next == Next::Complete;
        if !closing && let Err(not_done) = self.world.ask_completion(self.plan, &step.id, visit, result).await
        {
            return Ok(Decided::failed(not_done.ended()?).said(verdict));
        }
        // Work that a check refused, or that has to be done again, is not complete, whatever else holds.
        let turned_down = verdict == "repeat" || (step.gate.is_none() && verdict == "ng");
        let mut met = std::mem::take(&mut self.carried.met);
        let done = self.completion(step, visit, result, closing, &mut met);
        self.carried.met = met;
        let position = match next {
            Next::Aborted { reason } => {
                let message = format!("The agent gave up: {reason}");
                Position::Ended(FlowEnd::failed(Stop::new(StopDetail::AgentAborted, message)))
            }
            Next::AskPerson { reason } => {
                Position::Ended(FlowEnd::failed(self.ask_people(step, visit, &reason)?))
            }
            Next::Complete | Next::Step(_) if done.complete && !turned_down => {
                Position::Ended(FlowEnd::completed(&done.reason, self.forced_final))
            }
            Next::Complete => {
                Position::Ended(FlowEnd::completed("the flow reached its end", self.forced_final))
            }
            Next::Step(target) => {
                if self.validation(step).is_some_and(|own| !turned_down && own.asks_after(step)) {
                    let decided =
                        Decided { verdict: verdict.clone(), position: Position::At(target.clone()) };
                    let checked = self.checked_after(step, visit, result, decided).await?;
                    if self.carried.retry.is_some() || matches!(checked.position, Position::Ended(_)) {
                        return Ok(checked);
                    }
                }
                return self.hand_over(step, visit, &target, verdict, result).await;
            }
        };
        let decided = Decided { verdict, position };
        if decided.completes() { self.checked_after(step, visit, result, decided).await } else { Ok(decided) }
    }

    /// An agent that does not know how to go on asks people, where it may ask.
    fn ask_people(&self, step: &Step, visit: u32, reason: &str) -> Result<Stop, JournalError> {
        if !self.world.0.tool_catalogs.asks() {
            let message = format!("The agent asks for guidance: {reason}");
            return Ok(Stop::new(StopDetail::GuidanceNeeded, message));
        }
        let question = Question {
            visit,
            step_id: step.id.clone(),
            question: reason.to_owned(),
            options: Vec::new(),
            default: None,
        };
        self.world.record(Event::QuestionAsked(question))?;
        Ok(Stop::new(StopDetail::QuestionPending, format!("The agent asks: {reason}")))
    }

    /// In a flow without a closing step, a block in the model's text closes the issue, just as `closure_action` in an
    /// output would.
    fn heed_actions(&self, step: &Step, result: &mut StepResult) -> Result<(), JournalError> {
        if step.gate.is_some() || self.plan.definition().has_closing_step() {
            return Ok(());
        }
        let asked = actions(&result.text, self.plan.scope.issue.number());
        if asked.closes {
            result.output.entry("closure_action").or_insert_with(|| "close".into());
        }
        if !asked.others.is_empty() {
            let text = format!(
                "The step \"{}\" asked for what agentd does not do by such blocks: {}.",
                step.id,
                asked.others.join(", ")
            );
            self.world.warn("action_ignored", &text)?;
        }
        Ok(())
    }

    fn kept_output(&self, interpreted: Option<&Interpreted>, result: &StepResult) -> Map<String, Value> {
        interpreted
            .map_or_else(|| result.output.clone(), |interpreted| interpreted.context_output(&result.output))
    }

    fn completion(
        &self,
        step: &Step,
        visit: u32,
        result: &StepResult,
        closing: bool,
        met: &mut BTreeSet<String>,
    ) -> CompletionResult {
        let definition = self.plan.definition();
        let snapshot = VisitEnd {
            visits: visit,
            checks: visit,
            closing,
            last_output: step.output_schema.is_some().then_some(&result.output),
            last_text: &result.text,
            prompt: &result.prompt,
            closure_planned: {
                let closure = definition.closure(Some(&result.output));
                let asked = closing || !definition.has_closing_step() && closure.asked.is_some();
                asked && definition.closes_issues() && closure.action.closes()
            },
            programs: &result.programs,
        };
        definition.completion.check(&snapshot, met)
    }

    /// A transition to another step is a proposal like a tool call (P-003). A transition to the same step is not
    /// (C-27). If it lacks what the other step needs, it is rejected, and its step is visited once more.
    async fn hand_over(
        &mut self,
        step: &Step,
        visit: u32,
        target: &str,
        verdict: String,
        result: &StepResult,
    ) -> Result<Decided, JournalError> {
        if target == step.id {
            return Ok(Decided { verdict, position: Position::At(target.to_owned()) });
        }
        if let Some(missing) = self.missing_input(target) {
            if self.carried.sent_back {
                let message =
                    format!("The handoff from \"{}\" to \"{target}\" lacks an input: {missing}.", step.id);
                return Ok(Decided::failed(Stop::new(StopDetail::SchemaInvalid, message)).said(verdict));
            }
            self.carried.sent_back = true;
            self.world.warn("handoff_incomplete", &format!("\"{}\" is visited again: {missing}", step.id))?;
            self.retry(
                step,
                format!(
                    "Your last handoff to \"{target}\" was rejected: that step cannot begin without \"{}\", which \"{}\" \
                     has not put out. Put out what is missing and hand off again.",
                    missing.key, missing.step
                ),
            );
            return Ok(Decided { verdict, position: Position::At(step.id.clone()) });
        }
        self.carried.sent_back = false;
        let position = self.propose(step, visit, target, &result.output).await?;
        Ok(Decided { verdict, position })
    }

    /// Proposes the handoff of the last visit again, which waited for an approval.
    async fn propose_held(&mut self, mut last: VisitRecord) -> Result<Position, JournalError> {
        let step = self.plan.definition().flow.step(&last.step_id);
        let (Some(step), Some(held)) = (step, self.carried.handoff.take()) else {
            let message = format!(
                "The step \"{}\", whose handoff waited for an approval, does not exist.",
                last.step_id
            );
            return Ok(Position::Ended(FlowEnd::failed(Stop::new(StopDetail::ConfigInvalid, message))));
        };
        if let Some(stop) = self.world.asked_before_visit() {
            return Ok(Position::Ended(FlowEnd::failed(stop)));
        }
        let position = self.propose(step, last.visit, &held.to, &held.payload).await?;
        if position != Position::At(held.to) {
            return Ok(position);
        }
        last.leads_on();
        Ok(Position::behind(self.plan, &last, self.forced_final))
    }

    /// Asks the gate for a handoff, and says where the flow goes then. One that waits for an approval is carried on.
    async fn propose(
        &mut self,
        step: &Step,
        visit: u32,
        target: &str,
        payload: &Map<String, Value>,
    ) -> Result<Position, JournalError> {
        let failed = |stop| Ok(Position::Ended(FlowEnd::failed(stop)));
        match Box::pin(self.world.hand_off(self.plan, step, visit, target, payload)).await {
            Ok(envelope) if envelope.status == EnvelopeStatus::Ok => {
                self.carried.handoffs_denied = 0;
                Ok(Position::At(target.to_owned()))
            }
            // The step is told of a soft denial and may choose another way.
            Ok(envelope) => {
                let public = envelope.public_reason.unwrap_or_else(|| "Action not allowed.".to_owned());
                self.carried.handoffs_denied += 1;
                if self.carried.handoffs_denied >= MOST_DENIALS {
                    let message = format!(
                        "The step \"{}\" tried {MOST_DENIALS} handoffs in a row that the policy denies, the last one to \"{target}\": \
                         {public}",
                        step.id
                    );
                    return failed(Stop::new(StopDetail::LoopDetected, message));
                }
                self.world.warn("handoff_denied", &format!("\"{}\" to \"{target}\": {public}", step.id))?;
                self.retry(step, format!("Your last handoff to \"{target}\" was denied: {public}"));
                Ok(Position::At(step.id.clone()))
            }
            Err(abort) => {
                let stop = abort.into_failure().stop;
                if stop.detail == StopDetail::ApprovalPending {
                    self.carried.handoff =
                        Some(HeldHandoff { to: target.to_owned(), payload: payload.clone() });
                }
                failed(stop)
            }
        }
    }

    fn missing_input(&self, target: &str) -> Option<MissingRequiredInput> {
        let step = self.plan.definition().flow.step(target)?;
        self.context.to_uv_variables(&step.inputs).err()
    }

    fn close_visit(
        &mut self,
        step: &Step,
        visit: u32,
        started_at: DateTime<Utc>,
        result: StepResult,
        decided: &Decided,
    ) -> Result<VisitRecord, JournalError> {
        let output = self.context.outputs.get(&step.id).cloned().unwrap_or(result.output);
        let output_sha256 = canonical_sha256(&output).map_err(|error| JournalError {
            path: format!("output of {}", step.id),
            message: error.to_string(),
        })?;
        let (next, failed) = match &decided.position {
            Position::At(next) => (Some(next.clone()), None),
            // A handoff that waits for an approval is proposed again.
            Position::Ended(end) if !end.stop.success() && self.carried.handoff.is_none() => {
                (None, Some(end.stop.clone()))
            }
            Position::Held(_) | Position::Ended(_) => (None, None),
        };
        let record = VisitRecord {
            visit,
            step_id: step.id.clone(),
            verdict: decided.verdict.clone(),
            next,
            failed,
            turns: result.turns,
            attempts: result.attempts,
            forced_final: result.forced_final,
            started_at,
            ended_at: self.world.now(),
            output,
            output_sha256,
            extraction: result.extraction,
            summary: result.summary,
            conversation: result.conversation,
            carried: self.carried.clone(),
        };
        self.made.add(self.plan.definition(), &record);
        Ok(record)
    }
}

/// The word of a step without gate, and where it leads.
type Unjudged = (&'static str, Next);

/// What a visit's end means for the flow.
#[derive(Debug)]
struct Decided {
    verdict: String,
    position: Position,
}

impl Decided {
    fn failed(stop: Stop) -> Self {
        Self { verdict: "failed".to_owned(), position: Position::Ended(FlowEnd::failed(stop)) }
    }

    fn said(self, verdict: String) -> Self {
        Self { verdict, ..self }
    }

    /// Whether the flow ends here, and well.
    fn completes(&self) -> bool {
        matches!(&self.position, Position::Ended(end) if end.stop.success())
    }
}

/// The end of a run whose checks cannot hold (E13, E14).
fn validation_abort(why: &str) -> Stop {
    Stop::new(StopDetail::AgentAborted, format!("AGENT_VALIDATION_ABORT: {why}"))
}

fn out_of_attempts(attempts: u32, failed: &FailedChecks) -> Stop {
    let tries = counted(attempts as usize, "attempt");
    validation_abort(&format!("{} That was the last of {tries}.", failed.sentences.join(" ")))
}
