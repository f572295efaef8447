//! What makes it worth less that the verify commands pass: tests that the change removes.

use super::run::Run;
use crate::record::rendering::TESTS_REMOVED;
use crate::record::summary_text::{counted, plain};

/// Names that a warning has.
const NAMED: usize = 5;

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

fn list(named: Vec<String>) -> String {
    let more = named.len().saturating_sub(NAMED);
    let shown = named[..named.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}
