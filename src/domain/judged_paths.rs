//! The paths of a call that the policy has judged.

use std::collections::BTreeSet;

/// Where the paths that a call names led when the policy judged them, links followed. Where one leads somewhere else by the time of its
/// use, nobody has judged that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JudgedPaths(Option<BTreeSet<String>>);

impl JudgedPaths {
    /// These, named from the worktree's folder. Those of [`JudgedPaths::default`] are all: nobody looked at them.
    pub fn of(paths: impl IntoIterator<Item = String>) -> Self {
        Self(Some(paths.into_iter().collect()))
    }

    /// Whether this path is one of them.
    pub fn has(&self, path: &str) -> bool {
        self.0.as_ref().is_none_or(|paths| paths.contains(path))
    }
}
