//! Handoffs that a flow names and the policy denies, whatever they hand over: they are told before a model is paid for.

use std::fmt;

use crate::definition::{Loaded, Severity};
use crate::domain::flow::StepId;
use crate::domain::refusal::Refusal;
use crate::domain::rules::HandoffDenial;
use crate::domain::stop::StopDetail;
use crate::engine::envelope::POLICY_NOT_CONFIGURED;
use crate::engine::policy::Policy;

/// A handoff of a flow that the policy denies for certain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedHandoff {
    /// What that means. With an error no run starts; with a defect a run ends there.
    pub severity: Severity,
    from: StepId,
    to: StepId,
    denial: HandoffDenial,
}

impl fmt::Display for DeniedHandoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, denial, .. } = self;
        write!(f, "the policy denies the handoff from \"{from}\" to \"{to}\": ")?;
        match &denial.rule_id {
            Some(rule) => write!(f, "its rule \"{rule}\" does ({})", denial.reason),
            None if denial.reason == POLICY_NOT_CONFIGURED => {
                write!(f, "none of its rules is about handoffs ({})", denial.reason)
            }
            None => write!(f, "none of its rules allows it ({})", denial.reason),
        }
    }
}

impl DeniedHandoff {
    /// What to do, in the form of a rule.
    pub fn remedy(&self) -> String {
        let to = &self.to;
        let place = match &self.denial.rule_id {
            Some(rule) => format!("before the rule \"{rule}\""),
            None => "into a file of policy.files".to_owned(),
        };
        format!(
            "if it may be made, write {place}: [[rule]] with id = \"to-{to}\", kind = \"handoff\", name = \"{to}\", effect = \"allow\", \
             reason = \"a step of this flow\"; otherwise take it out of the flow"
        )
    }
}

/// The handoffs that a flow names and the policy denies for certain.
///
/// A step that nobody could enter is an error, unless a rule speaks of it: then somebody wants it so, and the flow may have
/// other ways. Where no rule is about handoffs at all, a run ends at its first one (P-003).
pub fn denied(loaded: &Loaded, policy: &Policy) -> Vec<DeniedHandoff> {
    let judged: Vec<_> = loaded
        .handoffs()
        .into_iter()
        .map(|(from, to)| (policy.handoff_denial(&from, &to), from, to))
        .collect();
    let is_entered = |step: &StepId| {
        loaded.jumps_anywhere() || judged.iter().any(|(denial, _, to)| denial.is_none() && to == step)
    };
    let told = judged.iter().filter_map(|(denial, from, to)| {
        let denial = denial.clone()?;
        let severity = match () {
            () if denial.reason == POLICY_NOT_CONFIGURED && denial.rule_id.is_none() => Severity::Defect,
            () if denial.named || is_entered(to) => Severity::Warning,
            () => Severity::Error,
        };
        Some(DeniedHandoff { severity, from: from.clone(), to: to.clone(), denial })
    });
    told.collect()
}

/// Refuses a flow with a step that nobody could enter: its run would end there, behind paid visits.
pub fn check(loaded: &Loaded, policy: &Policy) -> Result<(), Refusal> {
    let mut denied = denied(loaded, policy);
    denied.retain(|denied| denied.severity == Severity::Error);
    let Some(first) = denied.first() else { return Ok(()) };
    let all: Vec<String> = denied.iter().map(ToString::to_string).collect();
    let message = format!(
        "The flow of the agent \"{}\" and the policy do not fit: {}.",
        loaded.definition.name,
        all.join("; ")
    );
    Err(Refusal::new(StopDetail::ConfigInvalid, message)
        .hint(first.remedy())
        .hint(format!("agentd agents check {} shows the same, and agentd doctor", loaded.definition.name)))
}
