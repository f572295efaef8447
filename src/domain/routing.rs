//! From a step's output to the next step: normalise, interpret, route.

use serde_json::{Map, Value};

use super::dot_path::{at, put};
use super::flow::{Flow, Gate, Step, StepId, Transition};
use super::intent::{Intent, StepKind};

/// What a gate read in an output.
#[derive(Debug, Clone, PartialEq)]
pub struct Interpreted {
    /// The intent.
    pub intent: Intent,
    /// Why, in the model's words.
    pub reason: Option<String>,
    /// Where a jump wants to go.
    pub target: Option<StepId>,
    /// Handoff values by short name: the last segment of their path, or the whole path with `_` where two would clash.
    pub handoff: Map<String, Value>,
    /// What had to be assumed (a fallback intent); for the record.
    pub warnings: Vec<String>,
}

impl Interpreted {
    /// What StepContext keeps of the visit: the whole output, and also the handoff values by their short names.
    pub fn context_output(&self, output: &Map<String, Value>) -> Map<String, Value> {
        let mut kept = output.clone();
        for (name, value) in &self.handoff {
            if !kept.contains_key(name) {
                kept.insert(name.clone(), value.clone());
            }
        }
        kept
    }
}

/// Where a flow goes after a visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// To a step.
    Step(StepId),
    /// It reached its end.
    Complete,
    /// The model gave up: failure, `agent_aborted` (D11).
    Aborted {
        /// In the model's words.
        reason: String,
    },
    /// A person must decide: `guidance_needed` (D11).
    AskPerson {
        /// In the model's words.
        reason: String,
    },
}

/// An output has no usable intent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// Nothing at the intent's field. Tolerated in the first visit of a run (see [`Flow::without_intent`]).
    #[error("step \"{step}\": the output has no intent at {field}")]
    NoIntent {
        /// The step.
        step: StepId,
        /// Dot path looked at.
        field: String,
    },
    /// A word that the gate does not let through.
    #[error(
        "GATE_INTERPRETATION_ERROR: step \"{step}\" does not allow the intent \"{said}\"; allowed: {allowed}"
    )]
    NotAllowed {
        /// The step.
        step: StepId,
        /// What the output says.
        said: String,
        /// What it may say.
        allowed: String,
    },
}

/// An intent leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct RouteError {
    /// Stable code: `SR-TRANS-…`, `SR-INTENT-001`, `FAILED_STEP_ROUTING`.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
}

fn route_error(code: &'static str, message: String) -> RouteError {
    RouteError { code, message }
}

impl Flow {
    /// Puts an output into canonical words before it is validated (D21, D74): the intent in lower case and without
    /// alias, the fallback where the gate has one, and the step's own id. Gives a note for each replacement.
    pub fn normalise(&self, step: &Step, output: &mut Map<String, Value>) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(said) = output.get("stepId").and_then(Value::as_str)
            && said != step.id
        {
            notes.push(format!("AGENT_STEP_ID_MISMATCH: stepId \"{said}\" corrected to \"{}\"", step.id));
            output.insert("stepId".into(), step.id.clone().into());
        }
        let Some(gate) = &step.gate else { return notes };
        let Some(said) = at(output, &gate.intent_field).and_then(Value::as_str).map(str::to_owned) else {
            return notes;
        };
        let intent = match gate.read(&said) {
            Some(intent) => intent,
            None if gate.fail_fast => return notes,
            None => match gate.fallback() {
                Some(intent) => intent,
                None => return notes,
            },
        };
        if intent.as_str() != said && put(output, &gate.intent_field, intent.as_str().into()) {
            notes.push(format!("intent \"{said}\" read as \"{intent}\""));
        }
        notes
    }

    /// Reads intent, target, reason and handoff values of a gated step's output. `abort` passes every gate, so ask this
    /// before validating: an aborting output need not fit the schema.
    pub fn interpret(&self, step: &Step, output: &Map<String, Value>) -> Result<Interpreted, GateError> {
        let Some(gate) = &step.gate else {
            return Err(GateError::NoIntent { step: step.id.clone(), field: "(no gate)".into() });
        };
        let mut warnings = Vec::new();
        let said = at(output, &gate.intent_field).and_then(Value::as_str);
        let allowed = said.and_then(|word| gate.read(word));
        let intent = match (allowed, said) {
            (Some(intent), _) => intent,
            (None, None) if gate.fail_fast => {
                return Err(GateError::NoIntent { step: step.id.clone(), field: gate.intent_field.clone() });
            }
            (None, Some(said)) if gate.fail_fast => return Err(gate.not_allowed(step, said)),
            (None, said) => {
                let said = said.unwrap_or("");
                let intent = gate.fallback().ok_or_else(|| gate.not_allowed(step, said))?;
                warnings.push(format!(
                    "step \"{}\": intent \"{said}\" is not allowed, {intent} assumed",
                    step.id
                ));
                intent
            }
        };
        let target = gate
            .target_field
            .as_deref()
            .filter(|_| intent == Intent::Jump)
            .and_then(|path| at(output, path)?.as_str())
            .filter(|target| !target.trim().is_empty())
            .map(str::to_owned);
        let reason = ["next_action.reason", "reason", "message"]
            .iter()
            .find_map(|path| at(output, path)?.as_str())
            .map(str::to_owned);
        Ok(Interpreted { intent, reason, target, handoff: gate.handoff(output), warnings })
    }

    /// Where the flow goes with an intent. An unknown target is an error with its code.
    pub fn route(
        &self,
        step: &Step,
        interpreted: &Interpreted,
        output: &Map<String, Value>,
    ) -> Result<Next, RouteError> {
        let intent = interpreted.intent;
        let reason = || interpreted.reason.clone().unwrap_or_else(|| "no reason given".into());
        if let Some(kind) = step.kind
            && !kind.intents().contains(&intent)
        {
            return Err(route_error(
                "SR-INTENT-001",
                format!("step \"{}\" is a {kind} step and cannot ask for {intent}", step.id),
            ));
        }
        let rule = step.transitions.get(&intent);
        match intent {
            Intent::Abort => Ok(Next::Aborted { reason: reason() }),
            Intent::Closing => Ok(Next::Complete),
            Intent::Escalate => match rule {
                None | Some(Transition::Target(None)) => Ok(Next::AskPerson { reason: reason() }),
                Some(rule) => self.follow(step, intent, rule, interpreted, output),
            },
            Intent::Repeat => match rule {
                None | Some(Transition::Target(None)) => Ok(Next::Step(step.id.clone())),
                Some(rule) => self.follow(step, intent, rule, interpreted, output),
            },
            Intent::Jump => match (&interpreted.target, rule) {
                (Some(target), _) => self.existing(step, intent, target),
                (None, Some(rule)) => self.follow(step, intent, rule, interpreted, output),
                (None, None) => Err(route_error(
                    "SR-TRANS-010",
                    format!(
                        "step \"{}\" asks for a jump, but neither output nor transitions name a target",
                        step.id
                    ),
                )),
            },
            Intent::Handoff => match rule {
                Some(rule) => self.follow(step, intent, rule, interpreted, output),
                None => Err(route_error(
                    "SR-TRANS-004",
                    format!("step \"{}\" hands off, but has no transitions.handoff", step.id),
                )),
            },
            Intent::Next => match (rule, self.continuation_of(step)) {
                (Some(rule), _) => self.follow(step, intent, rule, interpreted, output),
                (None, Some(next)) => Ok(Next::Step(next)),
                (None, None) => Err(route_error(
                    "SR-TRANS-003",
                    format!("step \"{}\" has neither transitions.next nor a continuation step", step.id),
                )),
            },
        }
    }

    /// Where a linear step leads: to `transitions.next`, else to its continuation, else to itself until the completion
    /// condition holds (D22).
    pub fn after_linear(&self, step: &Step) -> Next {
        match step.transitions.get(&Intent::Next) {
            Some(Transition::Target(Some(target))) if self.step(target).is_some() => {
                Next::Step(target.clone())
            }
            Some(Transition::Target(None)) => Next::Complete,
            // A closing program that ended well has closed.
            None if step.runner.is_some() && step.kind == Some(StepKind::Closure) => Next::Complete,
            _ => Next::Step(self.continuation_of(step).unwrap_or_else(|| step.id.clone())),
        }
    }

    /// A gated step gave no intent. In the first visit of a run it is repeated; later it fails (E06).
    pub fn without_intent(&self, step: &Step, visit: u32) -> Result<Next, RouteError> {
        if visit <= 1 {
            return Ok(Next::Step(step.id.clone()));
        }
        Err(route_error(
            "FAILED_STEP_ROUTING",
            format!(
                "step \"{}\" put out no intent in visit {visit}; its output needs the intent's field",
                step.id
            ),
        ))
    }

    /// The step that follows `initial.x` by name: `continuation.x`.
    pub fn continuation_of(&self, step: &Step) -> Option<StepId> {
        let name = format!("continuation.{}", step.id.strip_prefix("initial.")?);
        self.step(&name).map(|next| next.id.clone())
    }

    fn follow(
        &self,
        step: &Step,
        intent: Intent,
        rule: &Transition,
        interpreted: &Interpreted,
        output: &Map<String, Value>,
    ) -> Result<Next, RouteError> {
        let target = match rule {
            Transition::Target(target) => target.as_ref(),
            Transition::Conditional { condition, targets, default } => {
                let value = interpreted.handoff.get(condition).or_else(|| at(output, condition));
                let word = value.map(super::step_context::value_text).unwrap_or_default();
                match targets.get(&word).or(default.as_ref()) {
                    Some(target) => target.as_ref(),
                    None => {
                        return Err(route_error(
                            "SR-TRANS-001",
                            format!(
                                "step \"{}\": transitions.{intent} has no target for {condition} = \"{word}\" and no default",
                                step.id
                            ),
                        ));
                    }
                }
            }
        };
        match (target, intent) {
            (Some(target), _) => self.existing(step, intent, target),
            (None, _) if step.kind == Some(StepKind::Closure) || step.kind.is_none() => Ok(Next::Complete),
            (None, Intent::Handoff) => Err(route_error(
                "SR-TRANS-005",
                format!("step \"{}\": transitions.handoff leads nowhere", step.id),
            )),
            (None, _) => Err(route_error(
                "SR-TRANS-002",
                format!("step \"{}\": transitions.{intent} leads nowhere", step.id),
            )),
        }
    }

    fn existing(&self, step: &Step, intent: Intent, target: &str) -> Result<Next, RouteError> {
        if self.step(target).is_some() {
            return Ok(Next::Step(target.to_owned()));
        }
        Err(route_error(
            unknown_target_code(intent),
            format!("step \"{}\" asks for {intent} to \"{target}\", which is no step", step.id),
        ))
    }
}

/// Code of an unknown target, by intent.
pub fn unknown_target_code(intent: Intent) -> &'static str {
    match intent {
        Intent::Handoff => "SR-TRANS-006",
        Intent::Escalate => "SR-TRANS-008",
        Intent::Jump => "SR-TRANS-010",
        _ => "SR-TRANS-001",
    }
}

impl Gate {
    /// Whether the intent may pass; `abort` always may.
    pub fn lets(&self, intent: Intent) -> bool {
        intent == Intent::Abort || self.allowed_intents.contains(&intent)
    }

    /// The intent that a word means here, if the gate lets it through. The oldest word for "this is done" hands over to the
    /// closing step, or closes.
    pub fn read(&self, word: &str) -> Option<Intent> {
        let done = [Intent::Handoff, Intent::Closing]
            .into_iter()
            .filter(|_| word.trim().eq_ignore_ascii_case("complete"));
        Intent::read(word).into_iter().chain(done).find(|intent| self.lets(*intent))
    }

    /// The intent that replaces one that is not allowed, where the gate has a fallback.
    pub fn fallback(&self) -> Option<Intent> {
        if self.fail_fast {
            return None;
        }
        self.fallback_intent
            .or_else(|| self.allowed_intents.contains(&Intent::Next).then_some(Intent::Next))
            .or_else(|| self.allowed_intents.first().copied())
    }

    /// The short name of each handoff field: its last segment, or the path with `_` where two fields share it.
    pub fn handoff_names(&self) -> Vec<(&str, String)> {
        let last = |path: &str| path.rsplit('.').next().unwrap_or(path).to_owned();
        self.handoff_fields
            .iter()
            .map(|path| {
                let clash = path.contains('.')
                    && self.handoff_fields.iter().any(|other| other != path && last(other) == last(path));
                (path.as_str(), if clash { path.replace('.', "_") } else { last(path) })
            })
            .collect()
    }

    fn handoff(&self, output: &Map<String, Value>) -> Map<String, Value> {
        self.handoff_names()
            .into_iter()
            .filter_map(|(path, name)| Some((name, at(output, path)?.clone())))
            .collect()
    }

    fn not_allowed(&self, step: &Step, said: &str) -> GateError {
        let allowed =
            self.allowed_intents.iter().map(|intent| intent.as_str()).collect::<Vec<_>>().join(", ");
        GateError::NotAllowed { step: step.id.clone(), said: said.to_owned(), allowed }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::domain::flow::{Iterations, StepAddress};
    use crate::domain::input_spec::InputSpec;

    fn gate(allowed: &[Intent]) -> Gate {
        Gate {
            allowed_intents: allowed.to_vec(),
            intent_field: "next_action.action".into(),
            target_field: Some("next_action.details.target".into()),
            handoff_fields: Vec::new(),
            fail_fast: true,
            fallback_intent: None,
        }
    }

    fn step(id: &str, kind: StepKind, allowed: &[Intent], to: &[(Intent, Option<&str>)]) -> Step {
        Step {
            id: id.into(),
            name: id.into(),
            description: String::new(),
            kind: Some(kind),
            address: StepAddress {
                c2: "initial".into(),
                c3: "a".into(),
                edition: "default".into(),
                adaptation: None,
            },
            uv_variables: Vec::new(),
            uses_stdin: false,
            output_schema: None,
            inputs: InputSpec::default(),
            gate: Some(gate(allowed)),
            gates_plan: false,
            transitions: to
                .iter()
                .map(|(intent, target)| (*intent, Transition::Target(target.map(str::to_owned))))
                .collect(),
            permission_mode: None,
            runner: None,
            executor: None,
            check: None,
            iterations: Iterations::default(),
        }
    }

    fn flow() -> Flow {
        use Intent::{Closing, Escalate, Handoff, Jump, Next, Repeat};
        Flow {
            c1: "steps".into(),
            entry: "initial.a".into(),
            steps: vec![
                step("initial.a", StepKind::Work, &[Next, Repeat, Jump], &[]),
                step(
                    "continuation.a",
                    StepKind::Work,
                    &[Next, Repeat, Handoff],
                    &[
                        (Next, Some("continuation.a")),
                        (Repeat, Some("initial.a")),
                        (Handoff, Some("closure.a")),
                    ],
                ),
                step("verification.a", StepKind::Verification, &[Next, Escalate], &[(Next, None)]),
                step("closure.a", StepKind::Closure, &[Closing, Repeat], &[(Closing, None)]),
            ],
            validators: BTreeMap::new(),
            failure_patterns: BTreeMap::new(),
            validation_steps: Vec::new(),
        }
    }

    fn go(flow: &Flow, id: &str, output: &Value) -> Result<Next, String> {
        let step = flow.step(id).unwrap();
        let output = output.as_object().unwrap();
        let interpreted = flow.interpret(step, output).map_err(|error| error.to_string())?;
        flow.route(step, &interpreted, output).map_err(|error| error.code.to_owned())
    }

    fn says(intent: &str) -> Value {
        json!({"next_action": {"action": intent, "reason": "because"}})
    }

    #[test]
    fn e01_e02_next_repeat_handoff_and_closing_go_where_the_registry_says() {
        let flow = flow();
        assert_eq!(go(&flow, "initial.a", &says("next")), Ok(Next::Step("continuation.a".into())));
        assert_eq!(go(&flow, "initial.a", &says("repeat")), Ok(Next::Step("initial.a".into())));
        assert_eq!(
            go(&flow, "continuation.a", &says("Retry")),
            Ok(Next::Step("initial.a".into())),
            "repeat's target is honoured"
        );
        assert_eq!(go(&flow, "continuation.a", &says("handoff")), Ok(Next::Step("closure.a".into())));
        assert_eq!(go(&flow, "closure.a", &says("done")), Ok(Next::Complete));
        assert_eq!(go(&flow, "verification.a", &says("next")), Err("SR-TRANS-002".into()));
    }

    #[test]
    fn e03_a_jump_goes_to_the_outputs_target_or_the_transitions() {
        let flow = flow();
        let to = |target: Value| json!({"next_action": {"action": "jump", "details": {"target": target}}});
        assert_eq!(go(&flow, "initial.a", &to(json!("closure.a"))), Ok(Next::Step("closure.a".into())));
        assert_eq!(go(&flow, "initial.a", &to(json!("nowhere"))), Err("SR-TRANS-010".into()));
        assert_eq!(go(&flow, "initial.a", &to(Value::Null)), Err("SR-TRANS-010".into()));
    }

    #[test]
    fn e05_an_intent_that_is_not_allowed_ends_or_falls_back() {
        let mut flow = flow();
        assert!(go(&flow, "initial.a", &says("closing")).unwrap_err().contains("GATE_INTERPRETATION_ERROR"));
        let gate = flow.steps[0].gate.as_mut().unwrap();
        gate.fail_fast = false;
        gate.fallback_intent = Some(Intent::Repeat);
        let step = flow.step("initial.a").unwrap();
        let mut output = says("closing").as_object().unwrap().clone();
        let interpreted = flow.interpret(step, &output).unwrap();
        assert_eq!((interpreted.intent, interpreted.warnings.len()), (Intent::Repeat, 1));
        let notes = flow.normalise(step, &mut output);
        assert_eq!(notes.len(), 1, "the schema's enum sees the fallback: {notes:?}");
        assert_eq!(at(&output, "next_action.action"), Some(&json!("repeat")));
    }

    #[test]
    fn e06_a_missing_intent_is_tolerated_once() {
        let flow = flow();
        let step = flow.step("initial.a").unwrap();
        assert!(matches!(flow.interpret(step, &Map::new()), Err(GateError::NoIntent { .. })));
        assert_eq!(flow.without_intent(step, 1), Ok(Next::Step("initial.a".into())));
        assert_eq!(flow.without_intent(step, 2).unwrap_err().code, "FAILED_STEP_ROUTING");
    }

    #[test]
    fn e07_a_wrong_step_id_is_corrected_and_noted() {
        let flow = flow();
        let mut output = json!({"stepId": "initial.b", "next_action": {"action": "CONTINUE"}})
            .as_object()
            .unwrap()
            .clone();
        let notes = flow.normalise(flow.step("initial.a").unwrap(), &mut output);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert_eq!(Value::Object(output), json!({"stepId": "initial.a", "next_action": {"action": "next"}}));
    }

    #[test]
    fn e08_handoff_names_do_not_clash_and_the_whole_output_is_kept() {
        let mut flow = flow();
        flow.steps[0].gate.as_mut().unwrap().handoff_fields =
            vec!["a.note".into(), "b.note".into(), "deep.only".into(), "gone".into()];
        let output = json!({"a": {"note": 1}, "b": {"note": 2}, "deep": {"only": [3]}, "rest": true,
            "next_action": {"action": "next"}});
        let output = output.as_object().unwrap();
        let interpreted = flow.interpret(flow.step("initial.a").unwrap(), output).unwrap();
        assert_eq!(
            Value::Object(interpreted.handoff.clone()),
            json!({"a_note": 1, "b_note": 2, "only": [3]})
        );
        let kept = interpreted.context_output(output);
        assert_eq!((&kept["rest"], &kept["only"]), (&json!(true), &json!([3])));
    }

    #[test]
    fn e10_d11_abort_fails_from_any_kind_and_escalate_asks_a_person() {
        let flow = flow();
        for id in ["initial.a", "verification.a", "closure.a"] {
            assert_eq!(go(&flow, id, &says("abort")), Ok(Next::Aborted { reason: "because".into() }));
        }
        assert_eq!(
            go(&flow, "verification.a", &says("escalate")),
            Ok(Next::AskPerson { reason: "because".into() })
        );
    }

    #[test]
    fn p10_a_conditional_transition_routes_by_the_values_text() {
        let mut flow = flow();
        let targets = [("0", "closure.a"), ("true", "initial.a")]
            .map(|(value, target)| (value.to_owned(), Some(target.to_owned())));
        flow.steps[1].transitions.insert(
            Intent::Next,
            Transition::Conditional {
                condition: "verdict".into(),
                targets: targets.into(),
                default: Some(Some("verification.a".into())),
            },
        );
        for (value, expected) in [
            (json!(0), "closure.a"),
            (json!("0"), "closure.a"),
            (json!(true), "initial.a"),
            (json!("x"), "verification.a"),
        ] {
            let output = json!({"verdict": value, "next_action": {"action": "next"}});
            assert_eq!(go(&flow, "continuation.a", &output), Ok(Next::Step(expected.into())));
        }
        assert_eq!(
            go(&flow, "continuation.a", &says("next")),
            Ok(Next::Step("verification.a".into())),
            "a missing value takes the default"
        );
    }

    #[test]
    fn d22_a_linear_step_goes_on_by_rule_by_name_or_stays() {
        let flow = flow();
        let after = |id: &str| flow.after_linear(flow.step(id).unwrap());
        assert_eq!(after("initial.a"), Next::Step("continuation.a".into()));
        assert_eq!(after("closure.a"), Next::Step("closure.a".into()));
    }
}
