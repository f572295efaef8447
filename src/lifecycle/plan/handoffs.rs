//! Handoffs that a flow names and the policy denies, whatever they hand over: they are told before a model is paid for.

use std::fmt;

use crate::definition::{Loaded, Severity};
use crate::domain::flow::StepId;
use crate::domain::rules::HandoffDenial;
use crate::engine::envelope::POLICY_NOT_CONFIGURED;
use crate::engine::policy::Policy;

/// A handoff of a flow that the policy denies for certain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedHandoff {
    /// What that means: with a defect a run that comes there ends.
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
/// A step that nobody could enter is a defect, unless a rule speaks of it: then somebody wants it so, and the flow may have
/// other ways. So it is where no rule is about handoffs at all (P-003). A run begins all the same: only its model says where it leads.
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
        let is_of_rules = denial.rule_id.is_some() || denial.reason != POLICY_NOT_CONFIGURED;
        let severity = match is_of_rules && (denial.named || is_entered(to)) {
            true => Severity::Warning,
            false => Severity::Defect,
        };
        Some(DeniedHandoff { severity, from: from.clone(), to: to.clone(), denial })
    });
    told.collect()
}
