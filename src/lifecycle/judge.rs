//! Stage judge: what the reports claim, held against what their evidence shows.

use std::sync::Arc;

use futures::FutureExt as _;

use super::run::Run;
use crate::domain::event::{Change, Event};
use crate::domain::evidence_gate::GateOutcome;
use crate::domain::facts::{Committed, RunFacts};
use crate::domain::flow::EvidenceMode;
use crate::domain::stop::Stop;
use crate::domain::trace::{GuardrailDecision, GuardrailOutcome};
use crate::engine::journal::JournalError;
use crate::engine::session::ClaimCheck;
use crate::git::Worktree;
use crate::record::evidence::{Scene, unbacked, weigh};
use crate::record::run_facts;
use crate::repository::context::RepositoryContext;

/// Judges the claims of a run's reports after the commit and the verify commands. Gives the stop reason afterwards
/// (C-05).
pub async fn judge(run: &Run<'_>, context: &RepositoryContext, stop: Stop) -> Result<Stop, JournalError> {
    let Some(worktree) = run.worktree() else { return Ok(stop) };
    let facts = run_facts::with_predecessors(
        &context.state,
        &context.repo,
        Arc::unwrap_or_clone(run.journal.facts()),
    )
    .await;
    let judged = weigh(&Scene {
        facts: &facts,
        worktree,
        run_dir: &run.journal.dir().path,
        repo: &context.repo.to_string(),
        verify_commands: &context.config.verify.commands,
        requires: &run.plan.loaded.definition.agentd.requires,
        evidence_required: run.plan.loaded.definition.agentd.evidence == EvidenceMode::Required,
        redactor: &run.plan.redactor,
        now: context.clock.now(),
    })
    .await;
    let passed = judged.outcome == GateOutcome::Pass;
    run.journal.record(Event::GuardrailDecided(Box::new(GuardrailDecision {
        timestamp: context.clock.now_ms(),
        turn: 0,
        guardrail_name: "evidence".to_owned(),
        decision: if passed { GuardrailOutcome::Pass } else { GuardrailOutcome::Triggered },
        reason: (!passed).then(|| judged.outcome.as_str().to_owned()),
        metadata: None,
    })))?;
    let settled = judged.settle(stop);
    run.journal.record(Event::ClaimsJudged(Box::new(judged)))?;
    Ok(settled)
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

/// Checks the claims of a report within its turn. Every citation is looked up in the present worktree. Tests and the
/// change are judged at the end of the run.
pub fn in_turn(run: &Run<'_>, context: &RepositoryContext, worktree: &Worktree) -> ClaimCheck {
    let (journal, worktree) = (run.journal.clone(), worktree.clone());
    let (redactor, clock) = (Arc::clone(&run.plan.redactor), context.clock.clone());
    let (repo, refreshed) = (context.repo.to_string(), Arc::new(context.config.verify.commands.clone()));
    Arc::new(move |visit, claims| {
        let refreshed = Arc::clone(&refreshed);
        let (journal, worktree) = (journal.clone(), worktree.clone());
        let (redactor, clock, repo) = (Arc::clone(&redactor), clock.clone(), repo.clone());
        async move {
            let mut facts = Arc::unwrap_or_clone(journal.facts());
            let (Ok(tree), Ok(Some(head))) = (worktree.tree().await, worktree.head().await) else {
                return Vec::new();
            };
            facts.committed = Some(Committed { head, tree, change: Change::default() });
            let scene = Scene {
                facts: &facts,
                worktree: &worktree,
                run_dir: &journal.dir().path,
                repo: &repo,
                verify_commands: &[],
                requires: &[],
                evidence_required: false,
                redactor: &redactor,
                now: clock.now(),
            };
            unbacked(&scene, visit, claims, &refreshed).await
        }
        .boxed()
    })
}
