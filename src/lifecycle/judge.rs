//! Stage judge: what the reports claim, held against what their evidence shows.
//!
//! Takes a verified run. Leaves each claim with its evidence, and the stop reason that they allow. After a crash in it the
//! next run judges the same commit again, with the same result.

use super::commit::Committed;
use super::run::Run;
use super::stage::Worked;
use super::verify::Verified;
use crate::domain::event::Event;
use crate::domain::evidence_gate::GateOutcome;
use crate::domain::facts::RunFacts;
use crate::domain::flow::EvidenceMode;
use crate::domain::stop::Stop;
use crate::domain::trace::{GuardrailDecision, GuardrailOutcome};
use crate::engine::journal::JournalError;
use crate::git::Worktree;
use crate::record::evidence::{Scene, weigh};

/// A run whose stop reason rests on what was looked at.
pub struct Judged<'a> {
    worked: Worked<'a>,
}

impl<'a> Judged<'a> {
    /// The run, with that stop reason.
    pub fn into_worked(self) -> Worked<'a> {
        self.worked
    }
}

/// Judges the claims of a run's reports, and with them its stop reason (C-05, D62). Where nothing was committed there is
/// nothing to judge.
pub async fn judge<'a>(verified: Verified<'a>) -> Result<Judged<'a>, JournalError> {
    let Committed { mut worked, has_tree } = verified.into_committed();
    if let Some(workspace) = worked.workspace.as_ref().filter(|_| has_tree) {
        let judged = weigh_claims(worked.run, &workspace.worktree, worked.stop).await?;
        worked.stop = worked.run.end_whatever_comes(&judged).unwrap_or(judged);
    }
    Ok(Judged { worked })
}

async fn weigh_claims(run: &Run<'_>, worktree: &Worktree, stop: Stop) -> Result<Stop, JournalError> {
    let facts = run.facts_with_predecessors().await;
    let judged = weigh(&Scene {
        facts: &facts,
        worktree,
        run_dir: &run.journal.dir().path,
        repo: &run.context.repo.to_string(),
        verify_commands: &run.context.config.verify.commands,
        requires: &run.plan.loaded.definition.agentd.requires,
        evidence_required: run.plan.loaded.definition.agentd.evidence == EvidenceMode::Required,
        denied: &run.plan.policy.denied_to_readers(run.proposal_context()),
        redactor: &run.plan.redactor,
        now: run.context.clock.now(),
    })
    .await;
    let passed = judged.outcome == GateOutcome::Pass;
    run.journal.record(Event::GuardrailDecided(Box::new(GuardrailDecision {
        timestamp: run.context.clock.now_ms(),
        turn: 0,
        guardrail_name: "evidence".to_owned(),
        decision: if passed { GuardrailOutcome::Pass } else { GuardrailOutcome::Triggered },
        reason: (!passed).then(|| judged.outcome.as_str().to_owned()),
        metadata: None,
    })))?;
    let afterwards = judged.stop_after(stop);
    run.journal.record(Event::ClaimsJudged(Box::new(judged)))?;
    Ok(afterwards)
}

/// A claim that the agent's definition requires and that is not verified (D12, D14).
pub fn missing_requirement(run: &Run<'_>, facts: &RunFacts) -> Option<String> {
    let requires = &run.plan.loaded.definition.agentd.requires;
    let judged = facts.other.iter().rev().find_map(|(_, event)| match event {
        Event::ClaimsJudged(judged) => Some(judged),
        _ => None,
    });
    let missing = match judged {
        Some(judged) => judged.unverified_of(requires),
        None => requires.first().copied(),
    };
    missing.map(|kind| kind.as_str().to_owned())
}
