//! What makes it worth less that the verify commands pass: tests that the change removes, and files beside the commit.

use super::run::Run;
use crate::domain::event::Event;
use crate::domain::facts::RunFacts;
use crate::git::worktree::Worktree;
use crate::record::rendering::{TESTS_REMOVED, VERIFIED_BESIDE};
use crate::record::summary_text::{counted, plain};

/// Names that a warning has.
const NAMED: usize = 5;

/// The times in which the work on an issue may have changed a file.
#[derive(Debug, Clone, Default)]
pub struct WorkTimes {
    /// Since when; milliseconds since 1970.
    begun: i64,
    /// Spans in which agentd itself made the worktree ready, or a verify command ran.
    without: Vec<(i64, i64)>,
}

impl WorkTimes {
    /// Since the first step of the run, or of the one that it goes on with, had begun; `None` = none has.
    pub fn of(run: &Run<'_>) -> Option<Self> {
        let own = run.journal.facts();
        let before = run.lease.predecessor.as_ref().map(|before| &before.facts);
        let Some((before, begun)) = before.and_then(|before| Some((before, briefed_at(before)?))) else {
            return Some(Self { begun: briefed_at(&own)?, without: Vec::new() });
        };
        let verified = before.verification.iter().map(|command| {
            let ended = command.started_at.saturating_add_unsigned(command.duration_ms);
            (command.started_at, ended)
        });
        let set_up = briefed_at(&own).map(|briefed| (own.started_at, briefed));
        Some(Self { begun, without: verified.chain(set_up).collect() })
    }

    /// Whether a file may be of the work that was changed last then.
    pub fn has(&self, at: i64) -> bool {
        at > self.begun && self.without.iter().all(|(from, to)| at < *from || at > *to)
    }
}

/// When a run was told its task: what its worktree is set up with is there by then.
fn briefed_at(facts: &RunFacts) -> Option<i64> {
    let briefed = |event: &Event| matches!(event, Event::BriefingFrozen(_));
    facts.other.iter().find(|(_, event)| briefed(event)).map(|(at, _)| *at)
}

/// Warns of tests that the change removes.
pub fn warn_of_removed_tests(run: &Run<'_>) {
    let facts = run.journal.facts();
    let Some(committed) = &facts.committed else { return };
    let removed = committed.change.removed_tests();
    if !removed.is_empty() {
        let named = removed.iter().map(|path| format!("`{}`", plain(path))).collect();
        let look = if removed.len() == 1 { "looks like a test" } else { "look like tests" };
        let text =
            format!("The change removes {} that {look}: {}.", counted(removed.len(), "file"), list(named));
        run.journal.warn(TESTS_REMOVED, text);
    }
}

/// The files that the commit does not have and that the work wrote, as they are before a verify command runs. Each by its name or its
/// folder's, with their number.
pub async fn beside(run: &Run<'_>, worktree: &Worktree) -> Vec<(String, usize)> {
    let facts = run.journal.facts();
    let (Some(committed), Some(times)) = (&facts.committed, WorkTimes::of(run)) else { return Vec::new() };
    let found = worktree.unkept_files(&committed.tree, move |at| times.has(at)).await;
    found.unwrap_or_else(|error| {
        tracing::warn!(%error, "which files the verify commands find beside the commit is not known");
        Vec::new()
    })
}

/// Warns of them where all verify commands passed.
pub fn warn_of_beside(run: &Run<'_>, beside: &[(String, usize)]) {
    if beside.is_empty() || !run.journal.facts().verification.iter().all(|command| command.passed()) {
        return;
    }
    let named = beside.iter().map(|(path, files)| match files {
        1 => format!("`{}`", plain(path)),
        many => format!("`{}` ({})", plain(path), counted(*many, "file")),
    });
    let text = format!(
        "The verify commands could use files that git does not keep, written since the first step began: {}. A clone of the branch \
         does not have them.",
        list(named.collect())
    );
    run.journal.warn(VERIFIED_BESIDE, text);
}

fn list(named: Vec<String>) -> String {
    let more = named.len().saturating_sub(NAMED);
    let shown = named[..named.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}
