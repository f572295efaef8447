//! A command of the operator that says whether the work is good, and how it ended.

use serde::{Deserialize, Serialize};

use super::artifact::Artifact;
use super::event::Change;

/// One verify command and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyCommand {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// `None`: it did not end by itself.
    pub exit_code: Option<i32>,
    /// The word for an end without exit code: `timeout`, `signal 9`, `not found`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Whether its program could not be started; `end` says why.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_started: bool,
    /// Whether it does not pass on the origin's commit either; absent = it passed, or it could not be tried there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also_red_on_base: Option<bool>,
    /// Start, in milliseconds since 1970.
    pub started_at: i64,
    /// Milliseconds.
    pub duration_ms: u64,
    /// Hash and size of each stream, redacted.
    pub stdout_sha256: String,
    /// See `stdout_sha256`.
    pub stderr_sha256: String,
    /// Bytes of stdout.
    pub stdout_bytes: u64,
    /// Bytes of stderr.
    pub stderr_bytes: u64,
    /// End of the output, for the report, redacted.
    pub tail: String,
    /// Where the whole output is kept, relative to the run directory.
    pub output: String,
    /// The same file with its hash, by which another host gets it; absent in journals of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_file: Option<Artifact>,
    /// What it ran in; `none` = nothing.
    #[serde(default = "unsandboxed")]
    pub sandbox: String,
    /// Files of the worktree that it executes as far as its words show, also those that links lead to; absent in journals of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub executes: Vec<String>,
    /// Those of them that git does not keep and that were written after the run's first step had begun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewritten: Vec<String>,
    /// Tree before.
    pub tree_before: String,
    /// Tree of the tracked files after.
    pub tree_after: String,
}

/// Code of the warning that the worktree could not be made what was committed again behind a verify command.
pub const NOT_PUT_BACK: &str = "verify_not_put_back";

/// Journals from before there was a sandbox.
fn unsandboxed() -> String {
    "none".to_owned()
}

impl VerifyCommand {
    /// The files that it executes and that the run changed: what it says is not independent of the run.
    pub fn changed_by_run(&self, change: Option<&Change>) -> Vec<String> {
        let mut changed =
            change.map(|change| change.executed_by(&self.argv, &self.executes)).unwrap_or_default();
        changed.extend(
            self.rewritten.iter().filter(|path| !changed.contains(path)).cloned().collect::<Vec<_>>(),
        );
        changed
    }

    /// The files that it would execute and that the run removed. Where it could not start, its end says so.
    pub fn removed_by_run(&self, change: Option<&Change>) -> Vec<String> {
        change.filter(|_| !self.not_started).map(|change| change.removed_of(&self.argv)).unwrap_or_default()
    }

    /// Exit code 0.
    pub fn passed(&self) -> bool {
        self.exit_code == Some(0)
    }

    /// Whether files of the repository were others when it had ended.
    pub fn changed_tree(&self) -> bool {
        self.tree_after != self.tree_before
    }

    /// Whether it ran at all. A shell gives exit codes 126 and 127 for a program that does not exist or cannot be run.
    pub fn could_run(&self) -> bool {
        !self.not_started && !matches!(self.exit_code, Some(126 | 127))
    }

    /// How it ended: `exit 1`, `timeout`, `signal 9`.
    pub fn ending(&self) -> String {
        match (self.exit_code, &self.end) {
            (Some(code), _) => format!("exit {code}"),
            (None, Some(end)) => end.clone(),
            (None, None) => "ended without exit code".to_owned(),
        }
    }

    /// The result for people: `passed`, `failed (exit 1)`, `could not run (exit 127)`. One that passes on files that it changed says
    /// nothing of those that were there.
    pub fn outcome(&self) -> String {
        match (self.passed(), self.could_run()) {
            (true, _) if self.changed_tree() => "passed with changes of its own".to_owned(),
            (true, _) => "passed".to_owned(),
            (false, true) => format!("failed ({})", self.ending()),
            (false, false) => format!("could not run ({})", self.ending()),
        }
    }

    /// The last lines of its output, at most this many.
    pub fn last_lines(&self, most: usize) -> String {
        let own = format!("$ {}\n", self.argv.join(" "));
        let output = self.tail.strip_prefix(own.as_str()).unwrap_or(&self.tail);
        let lines: Vec<&str> = output.trim_end().lines().collect();
        lines[lines.len().saturating_sub(most)..].join("\n")
    }
}
