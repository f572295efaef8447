//! The files that the rules deny to a call which names a folder above them, or no path at all.

use std::sync::Arc;

use super::call_scope::{CallScope, ScopePath};
use super::policy::{PolicyInput, ProposalKind};
use super::rules::RuleSet;

/// The tool by which a file's content is read. What it may not read, no other tool of agentd's own shows.
pub const READ_FILE: &str = "read_file";

/// In what a tool says of its result: how many files it left out because the policy denies them.
pub const DENIED_COUNT: &str = "files_denied_by_policy";

/// Tools of agentd's own that look below a folder. They leave out what they may not show.
const LOOK_BELOW: [&str; 4] = ["list_files", "search", "git_status", "git_diff"];

/// Whether a tool leaves denied files out by itself.
pub fn leaves_out(tool: &str) -> bool {
    LOOK_BELOW.contains(&tool)
}

/// Whether a tool may look at all of a folder that it is given, and agentd cannot leave anything out: it is somebody
/// else's. The names of agentd's own have no double underscore.
pub fn takes_folders_whole(input: &PolicyInput) -> bool {
    input.kind == ProposalKind::Tool && input.tool.as_deref().is_some_and(|tool| tool.contains("__"))
}

/// Which files of the worktree a call must not show.
#[derive(Debug, Clone, Default)]
pub struct DeniedFiles {
    rules: Arc<RuleSet>,
    /// The call, and for agentd's own tools the same as a call of [`READ_FILE`].
    calls: Vec<(PolicyInput, CallScope)>,
}

impl DeniedFiles {
    /// What these rules deny to a call, by the paths of files.
    pub fn of(rules: &Arc<RuleSet>, input: &PolicyInput) -> Self {
        let mut inputs = vec![input.clone()];
        if leaves_out(input.resource_name()) {
            inputs.push(PolicyInput { tool: Some(READ_FILE.to_owned()), ..input.clone() });
        }
        let calls = inputs
            .into_iter()
            .filter(|input| rules.deny_paths_of(input))
            .map(|input| {
                let scope = CallScope::of(&input, None);
                (input, scope)
            })
            .collect();
        Self { rules: Arc::clone(rules), calls }
    }

    /// Whether no file is denied.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether this file, named from the worktree's folder, is one of them.
    pub fn contains(&self, file: &str) -> bool {
        self.calls.iter().any(|(input, scope)| {
            let paths = vec![ScopePath::Inside(file.to_owned())];
            self.rules.denies_path(input, &CallScope { paths, ..scope.clone() })
        })
    }
}
