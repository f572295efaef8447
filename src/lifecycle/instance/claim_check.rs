//! The check of a report's claims within its turn: what nothing backs is given back to the model.

use std::sync::Arc;

use futures::FutureExt as _;

use crate::domain::event::Change;
use crate::domain::facts::CommittedWork;
use crate::engine::session::ClaimCheck;
use crate::git::Worktree;
use crate::lifecycle::run::Run;
use crate::record::evidence::{Scene, unbacked};

/// Checks the claims of a report within its turn. Every citation is looked up in the present worktree. Tests and the
/// change are judged at the end of the run.
pub fn in_turn(run: &Run<'_>, worktree: &Worktree) -> ClaimCheck {
    let (journal, worktree) = (run.journal.clone(), worktree.clone());
    let (redactor, clock) = (Arc::clone(&run.plan.redactor), run.context.clock.clone());
    let denied = Arc::new(run.plan.policy.denied_to_readers(run.proposal_context()));
    let (repo, refreshed) =
        (run.context.repo.to_string(), Arc::new(run.context.config.verify.commands.clone()));
    Arc::new(move |visit, claims| {
        let refreshed = Arc::clone(&refreshed);
        let (journal, worktree) = (journal.clone(), worktree.clone());
        let (redactor, clock, repo) = (Arc::clone(&redactor), clock.clone(), repo.clone());
        let denied = Arc::clone(&denied);
        async move {
            let mut facts = Arc::unwrap_or_clone(journal.facts());
            let (Ok(tree), Ok(Some(head))) = (worktree.tree().await, worktree.head().await) else {
                return Vec::new();
            };
            facts.committed = Some(CommittedWork { head, tree, change: Change::default() });
            let scene = Scene {
                facts: &facts,
                worktree: &worktree,
                run_dir: &journal.dir().path,
                repo: &repo,
                verify_commands: &[],
                requires: &[],
                evidence_required: false,
                denied: &denied,
                redactor: &redactor,
                now: clock.now(),
            };
            unbacked(&scene, visit, claims, &refreshed).await
        }
        .boxed()
    })
}
