//! The flow as a graph: which steps a run can reach, and what is wrong with its transitions.

use std::collections::{BTreeMap, BTreeSet};

use super::agent_file::AgentParts;
use super::diagnostic::Severity;
use super::position::child;
use super::registry::ReadRegistry;
use super::shape;
use super::source::Findings;
use super::steps::ReadStep;
use crate::domain::completion::Completion;
use crate::domain::flow::{Flow, Intent, Step, StepKind, Transition};
use crate::domain::routing::unknown_target_code;
use crate::domain::step_check::StepCheck;

/// Steps that a run can reach.
#[derive(Debug, Clone, Default)]
pub struct ReachableSteps {
    /// From the selected entry.
    pub selected: BTreeSet<String>,
    /// From any entry.
    pub any: BTreeSet<String>,
}

impl ReachableSteps {
    /// Follows every way from the entries.
    pub fn of(registry: &ReadRegistry) -> Self {
        let from = |entries: &[String]| {
            let mut seen = BTreeSet::new();
            let mut open: Vec<String> = entries.to_vec();
            while let Some(id) = open.pop() {
                if let Some(step) = registry.flow.step(&id)
                    && seen.insert(id)
                {
                    // A jump leads to whatever step the model names.
                    if jumps_anywhere(step) {
                        let all = registry.flow.steps.iter().map(|step| &step.id);
                        open.extend(all.filter(|id| !id.starts_with("section.")).cloned());
                    }
                    open.extend(ways(&registry.flow, step).into_iter().map(|(_, target)| target));
                }
            }
            seen
        };
        let selected = registry.entries.get(..1).unwrap_or_default();
        Self { selected: from(selected), any: from(&registry.entries) }
    }

    /// An error where a run can get, else a warning (D65).
    pub fn severity(&self, step: &str) -> Severity {
        if self.selected.contains(step) { Severity::Error } else { Severity::Warning }
    }

    fn defect(&self, step: &str) -> Severity {
        if self.selected.contains(step) { Severity::Defect } else { Severity::Warning }
    }
}

/// Where a step can lead, intent by intent.
fn ways(flow: &Flow, step: &Step) -> Vec<(Intent, String)> {
    let targets = |intent: Intent| -> Vec<String> {
        step.transitions
            .get(&intent)
            .map(|rule| rule.targets().into_iter().cloned().collect())
            .unwrap_or_default()
    };
    let Some(gate) = &step.gate else {
        if let Some(check) = &step.check {
            return check.targets().map(|target| (Intent::Next, target.clone())).collect();
        }
        let next = targets(Intent::Next);
        let next = if next.is_empty() { flow.continuation_of(step).into_iter().collect() } else { next };
        return next.into_iter().map(|target| (Intent::Next, target)).collect();
    };
    let mut ways = Vec::new();
    for intent in &gate.allowed_intents {
        let mut found = targets(*intent);
        match intent {
            Intent::Next if !step.transitions.contains_key(intent) => {
                found.extend(flow.continuation_of(step));
            }
            Intent::Jump => found.extend(jump_targets(step)),
            _ => {}
        }
        ways.extend(found.into_iter().map(|target| (*intent, target)));
    }
    ways
}

/// Whether the output may name any step as the target of a jump.
pub(super) fn jumps_anywhere(step: &Step) -> bool {
    let gate = step.gate.as_ref().filter(|gate| gate.allowed_intents.contains(&Intent::Jump));
    gate.is_some_and(|gate| gate.target_field.is_some()) && jump_targets(step).is_empty()
}

/// The steps that can come behind a step.
pub(super) fn after(flow: &Flow, step: &Step) -> BTreeSet<String> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![step.clone()]);
    while let Some(step) = open.pop() {
        let further: Vec<String> = if jumps_anywhere(&step) {
            flow.steps.iter().map(|step| step.id.clone()).collect()
        } else {
            ways(flow, &step).into_iter().map(|(_, target)| target).collect()
        };
        for id in further {
            if let Some(step) = flow.step(&id)
                && seen.insert(id)
            {
                open.push(step.clone());
            }
        }
    }
    seen
}

/// The handoffs that a flow can make: from each step that its entry leads to, to each other step that the step names.
pub(super) fn handoffs(flow: &Flow) -> Vec<(&Step, String)> {
    let Some(entry) = flow.step(&flow.entry) else { return Vec::new() };
    let mut reached = after(flow, entry);
    reached.insert(entry.id.clone());
    let mut found: Vec<(&Step, String)> = Vec::new();
    for step in flow.steps.iter().filter(|step| reached.contains(&step.id)) {
        for (_, target) in ways(flow, step) {
            let known = found.iter().any(|(from, to)| from.id == step.id && *to == target);
            if target != step.id && !known && flow.step(&target).is_some() {
                found.push((step, target));
            }
        }
    }
    found
}

/// Targets that the output's schema lists for a jump.
fn jump_targets(step: &Step) -> Vec<String> {
    let path = step.gate.as_ref().and_then(|gate| gate.target_field.as_deref());
    let schema = step.output_schema.as_ref().map(|schema| &schema.json);
    let (Some(path), Some(mut schema)) = (path, schema) else { return Vec::new() };
    for key in path.split('.') {
        match schema.get("properties").and_then(|properties| properties.get(key)) {
            Some(inner) => schema = inner,
            None => return Vec::new(),
        }
    }
    let listed = schema.get("enum").and_then(serde_json::Value::as_array);
    listed.into_iter().flatten().filter_map(|id| id.as_str().map(str::to_owned)).collect()
}

/// Adds what is wrong with gates and transitions.
pub fn check(
    registry: &ReadRegistry,
    agent: &AgentParts,
    reach: &ReachableSteps,
    findings: &mut Findings<'_>,
) {
    let completion = agent.completion.as_ref();
    gates(registry, completion, reach, findings);
    waits_in_vain(registry, agent, findings);
    for read in &registry.steps {
        transitions(&registry.flow, read, reach, findings);
        self_loop(read, findings);
        crossings(&registry.flow, read, findings);
    }
    orphans(registry, reach, findings);
    endless(registry, completion, reach, findings);
}

/// A flow that waits for what it cannot do and nobody else does.
fn waits_in_vain(registry: &ReadRegistry, agent: &AgentParts, findings: &mut Findings<'_>) {
    let closes = |read: &ReadStep| read.step.kind == Some(StepKind::Closure);
    if agent.completion == Some(Completion::ExternalState)
        && !agent.github.enabled
        && !registry.steps.iter().any(closes)
    {
        findings.add(
            Severity::Warning,
            "SR-FLOW-003",
            "/steps",
            "no run completes: poll:state waits until the issue is closed, but no step closes, and with github.enabled false nothing is asked of GitHub",
            "add a closing step, write github.enabled true, or choose another completion type",
        );
    }
}

fn gates(
    registry: &ReadRegistry,
    completion: Option<&Completion>,
    reach: &ReachableSteps,
    findings: &mut Findings<'_>,
) {
    let gated = registry.steps.iter().any(|read| read.step.gate.is_some());
    if !gated {
        if completion == Some(&Completion::StepMachine) {
            findings.add(
                Severity::Error,
                "SR-GATE-004",
                "/steps",
                "the agent is done when its flow reaches the end (detect:graph), but no step has a gate",
                "give the steps structuredGate and transitions, or choose another completion type",
            );
        }
        return;
    }
    for read in &registry.steps {
        let step = &read.step;
        if step.id.starts_with("section.") || step.runner.is_some() {
            continue;
        }
        // A gate that is there but broken has been told already.
        let has_schema = step.output_schema.is_some() || read.broken_schema.is_some();
        let lacks: Vec<&str> = [
            ("structuredGate", step.gate.is_none() && read.intent_schema_ref.is_none()),
            ("transitions", step.transitions.is_empty()),
            ("outputSchemaRef", !has_schema),
        ]
        .into_iter()
        .filter_map(|(key, missing)| missing.then_some(key))
        .collect();
        if !lacks.is_empty() {
            findings.add(
                reach.severity(&step.id),
                "SR-GATE-003",
                &read.at,
                format!(
                    "step \"{}\" lacks {}, which every step of a gated flow needs",
                    step.id,
                    lacks.join(", ")
                ),
                "add it, or name the step section.… if it is no step of the flow",
            );
        }
        if let Some(gate) = &step.gate {
            let clashes: Vec<String> = gate
                .handoff_names()
                .into_iter()
                .filter(|(path, name)| path.contains('.') && *name == path.replace('.', "_"))
                .map(|(_, name)| name)
                .collect();
            if !clashes.is_empty() {
                findings.add(
                    Severity::Warning,
                    "SR-GATE-005",
                    &format!("{}/structuredGate/handoffFields", read.at),
                    format!(
                        "handoff fields share their last name; they are handed over as {}",
                        clashes.join(", ")
                    ),
                    "use these names in later steps, or rename the fields",
                );
            }
        }
    }
}

fn transitions(flow: &Flow, read: &ReadStep, reach: &ReachableSteps, findings: &mut Findings<'_>) {
    let step = &read.step;
    let severity = reach.severity(&step.id);
    for target in step.check.iter().flat_map(StepCheck::targets).filter(|target| flow.step(target).is_none())
    {
        findings.add(
            severity,
            "SR-TRANS-001",
            &child(&read.at, "check"),
            format!("step \"{}\": its check leads to \"{target}\", which is no step", step.id),
            match shape::nearest(target, flow.steps.iter().map(|step| step.id.as_str())) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => "name a step of the registry".to_owned(),
            },
        );
    }
    let at = child(&read.at, "transitions");
    for (intent, rule) in &step.transitions {
        let place = child(&at, intent.as_str());
        if step.gate.as_ref().is_some_and(|gate| !gate.lets(*intent)) {
            findings.add(
                Severity::Warning,
                "SR-TRANS-012",
                &place,
                format!("step \"{}\" never emits \"{intent}\"; the transition is dead", step.id),
                "allow the intent or remove the transition",
            );
        }
        for target in rule.targets() {
            if flow.step(target).is_none() {
                findings.add(
                    severity,
                    unknown_target_code(*intent),
                    &place,
                    format!("step \"{}\": {intent} leads to \"{target}\", which is no step", step.id),
                    match shape::nearest(target, flow.steps.iter().map(|step| step.id.as_str())) {
                        Some(near) => format!("did you mean \"{near}\"?"),
                        None => "name a step of the registry".to_owned(),
                    },
                );
            }
        }
        let leads_nowhere = match rule {
            Transition::Target(target) => target.is_none(),
            Transition::Conditional { targets, default, .. } => {
                targets.values().chain(default).any(Option::is_none)
            }
        };
        let code = match intent {
            Intent::Next | Intent::Jump => "SR-TRANS-002",
            Intent::Handoff => "SR-TRANS-005",
            _ => continue,
        };
        if leads_nowhere
            && matches!(step.kind, Some(StepKind::Work | StepKind::Verification))
            && step.gate.is_some()
        {
            findings.add(
                severity,
                code,
                &place,
                format!("step \"{}\": {intent} leads nowhere", step.id),
                "name a step; only a closure step ends the flow, with \"closing\"",
            );
        }
    }
    let Some(gate) = &step.gate else { return };
    for intent in &gate.allowed_intents {
        let there = step.transitions.contains_key(intent);
        let problem = match intent {
            Intent::Next if !there && flow.continuation_of(step).is_none() => Some(("SR-TRANS-003", "next")),
            Intent::Handoff if !there => Some(("SR-TRANS-004", "handoff")),
            Intent::Jump if !there && gate.target_field.is_none() => Some(("SR-TRANS-010", "jump")),
            _ => None,
        };
        if let Some((code, word)) = problem {
            findings.add(
                severity,
                code,
                &at,
                format!("step \"{}\" may emit \"{word}\", but nothing says where that leads", step.id),
                format!("write transitions.{word}.target"),
            );
        }
        if *intent == Intent::Handoff && step.id.starts_with("initial.") {
            findings.add(
                Severity::Warning,
                "SR-TRANS-013",
                &format!("{}/structuredGate/allowedIntents", read.at),
                format!("step \"{}\" can hand off before anything was done in a continuation", step.id),
                "let a continuation step hand off",
            );
        }
    }
}

/// A `next` that leads nowhere else: that is what `repeat` is for.
fn self_loop(read: &ReadStep, findings: &mut Findings<'_>) {
    let step = &read.step;
    let next = step.transitions.get(&Intent::Next);
    if step.gate.is_some() && next.is_some_and(|rule| rule.targets() == [&step.id]) {
        findings.add(
            Severity::Warning,
            "SR-TRANS-014",
            &format!("{}/transitions/next", read.at),
            format!("the next of step \"{}\" leads to itself", step.id),
            "write repeat for once more, or name the step that follows",
        );
    }
}

fn crossings(flow: &Flow, read: &ReadStep, findings: &mut Findings<'_>) {
    let step = &read.step;
    let Some(kind) = step.kind else { return };
    for (intent, target) in ways(flow, step) {
        let Some(to) = flow.step(&target).and_then(|step| step.kind) else { continue };
        let legal = match (kind, intent) {
            (StepKind::Work, Intent::Next | Intent::Jump) => to != StepKind::Closure,
            (StepKind::Work, Intent::Handoff) => to == StepKind::Closure,
            (StepKind::Verification, Intent::Escalate) => to != StepKind::Closure,
            (StepKind::Closure, Intent::Repeat) => to == StepKind::Work || target == step.id,
            _ => true,
        };
        if !legal && step.gate.is_some() {
            findings.add(
                Severity::Warning,
                "SR-CROSS-001",
                &format!("{}/transitions/{intent}", read.at),
                format!(
                    "step \"{}\" is a {kind} step; its {intent} leads to the {to} step \"{target}\"",
                    step.id
                ),
                match (kind, intent) {
                    (StepKind::Work, Intent::Handoff) => {
                        "let handoff lead to a closure step, and next to further work"
                    }
                    (StepKind::Work, _) => "reach closure steps by handoff",
                    _ => "lead back to work",
                },
            );
        }
    }
}

fn orphans(registry: &ReadRegistry, reach: &ReachableSteps, findings: &mut Findings<'_>) {
    for read in &registry.steps {
        if read.step.gate.is_some() && !reach.any.contains(&read.step.id) {
            findings.add(
                Severity::Warning,
                "SR-FLOW-001",
                &read.at,
                format!("no entry leads to step \"{}\"", read.step.id),
                "let a transition or an entry lead there, or remove it",
            );
        }
    }
}

/// Gated steps from which no way leads to an end.
fn endless(
    registry: &ReadRegistry,
    completion: Option<&Completion>,
    reach: &ReachableSteps,
    findings: &mut Findings<'_>,
) {
    let flow = &registry.flow;
    let mut before: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut ends: Vec<String> = Vec::new();
    for step in &flow.steps {
        for (_, target) in ways(flow, step) {
            before.entry(target).or_default().push(step.id.clone());
        }
        if step.may_end() {
            ends.push(step.id.clone());
        }
    }
    let mut ending = BTreeSet::new();
    while let Some(id) = ends.pop() {
        if ending.insert(id.clone()) {
            ends.extend(before.remove(&id).unwrap_or_default());
        }
    }
    let stuck: Vec<&ReadStep> = registry
        .steps
        .iter()
        .filter(|read| reach.any.contains(&read.step.id) && !ending.contains(&read.step.id))
        .collect();
    let Some(first) = stuck.first() else { return };
    let names: Vec<&str> = stuck.iter().map(|read| read.step.id.as_str()).collect();
    // Other completion types end such a flow from outside.
    let needs_end = completion == Some(&Completion::StepMachine);
    let severity = if needs_end { reach.defect(&first.step.id) } else { Severity::Warning };
    findings.add(
        severity,
        "SR-FLOW-002",
        &first.at,
        format!("from {} no way leads to a closure step", names.join(", ")),
        "let one of them hand off to a closure step",
    );
}
