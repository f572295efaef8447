//! Pushes one branch, only forward: what the remote has is in what replaces it.

use super::checkout::Checkout;
use super::error::{GitError, last_lines};
use super::output;
use super::program::failure;
use super::remote::Remote;
use crate::domain::name::{BranchName, CommitId};

/// How a push ended, short of an error of transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushOutcome {
    /// The remote has the commit now.
    Pushed,
    /// It had it already.
    UpToDate,
    /// The branch on the remote is not at the expected commit. Somebody else pushed or deleted it.
    Stale {
        /// Where it is now; `None`: it is gone.
        actual: Option<CommitId>,
    },
    /// The branch on the remote has commits that this one lacks.
    NotFastForward {
        /// The remote's commit.
        remote: CommitId,
    },
    /// The remote's rules or hooks say no.
    Refused {
        /// What it said.
        detail: String,
        /// Whether that is about what the commits hold, so that other commits may be taken.
        of_content: bool,
    },
}

impl std::fmt::Display for PushOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pushed => f.write_str("pushed"),
            Self::UpToDate => f.write_str("up to date"),
            Self::Stale { actual: Some(actual) } => {
                write!(f, "somebody else moved the branch to {} in the meantime", actual.short())
            }
            Self::Stale { actual: None } => f.write_str("somebody else deleted the branch in the meantime"),
            Self::NotFastForward { remote } => {
                write!(
                    f,
                    "the branch there has commits that this one lacks ({}); pull them in first",
                    remote.short()
                )
            }
            Self::Refused { detail, .. } => f.write_str(detail),
        }
    }
}

/// Rules about who may move which branch, and how, and a remote that takes nothing now: no other commit would be taken.
const OF_OTHERS: &[&str] = &[
    "protected",
    "creations being restricted",
    "updates being restricted",
    "deletions being restricted",
    "must be made through a pull request",
    "through the merge queue",
    "force-push",
    "required status check",
    "required deployment",
    "verified signatures",
    "must not contain merge commits",
    "not allowed to push",
    "permission",
    "read-only",
    "archived",
    "quota",
    "maintenance",
    "try again",
    "temporar",
    "timed out",
    "internal server error",
];
/// What GitHub says of the files, names and messages of commits: push protection, large files, push rulesets, rules for metadata.
const OF_CONTENT: &[&str] = &[
    "cannot contain secrets",
    "push protection",
    "file size limit",
    "gh001",
    "large files",
    "file path",
    "file extension",
    "commit message",
    "author email",
    "committer email",
];

/// Whether the remote says no to what the commits hold. A hook of its own that does not speak of the branch judges that.
fn is_of_content(summary: &str, told: &[&str]) -> bool {
    let told = told.join("\n").to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| told.contains(word));
    let by_hook = summary.contains("pre-receive hook declined") && !told.is_empty();
    says(OF_CONTENT) || by_hook && !says(OF_OTHERS) && !told.contains("gh006")
}

impl Checkout {
    /// Pushes `commit` to `branch` on the remote, if that branch is at `expected` (`None`: it does not exist) and `commit`
    /// contains it. No hook runs.
    pub async fn push(
        &self,
        remote: &Remote,
        branch: &BranchName,
        commit: &CommitId,
        expected: Option<&CommitId>,
    ) -> Result<PushOutcome, GitError> {
        if let Some(expected) = expected
            && !self.is_ancestor(expected, commit).await?
        {
            return Ok(PushOutcome::NotFastForward { remote: expected.clone() });
        }
        self.push_lfs(remote, commit).await?;
        let lease = expected.map_or("", CommitId::as_str);
        let mut args: Vec<String> = [
            "push",
            "--porcelain",
            "--no-verify",
            "--no-follow-tags",
            "--recurse-submodules=no",
            "--no-signed",
        ]
        .map(str::to_owned)
        .to_vec();
        // The branch moves forward from where it was seen, or not at all: the lease also refuses to make a branch again that
        // somebody deleted meanwhile.
        args.push(format!("--force-with-lease={}:{lease}", branch.full()));
        args.extend(["--".into(), remote.target(), format!("{commit}:{}", branch.full())]);
        let exit = self.remote_call(remote, args).await?.exit().await?;
        let answer = exit.stdout.text();
        let outcome = match output::pushed(&answer, branch) {
            Some(('=', _)) => PushOutcome::UpToDate,
            Some(('!', line)) if line.contains("stale info") || line.contains("fetch first") => {
                PushOutcome::Stale { actual: self.remote_branch(remote, branch).await? }
            }
            Some(('!', line)) if line.contains("[remote rejected]") => {
                let told = exit.stderr.text();
                let told = told.lines().filter_map(|line| line.strip_prefix("remote:")).map(str::trim);
                let told: Vec<&str> = told.filter(|line| !line.is_empty()).collect();
                let summary = line.rsplit('\t').next().unwrap_or_default();
                let of_content = is_of_content(summary, &told);
                let detail = last_lines(&[&[summary], told.as_slice()].concat().join("\n"));
                // A lock that another push holds at this moment is a conflict of the lease and not of the rules.
                if line.contains("failed to update ref") || line.contains("cannot lock ref") {
                    let actual = self.remote_branch(remote, branch).await?;
                    if actual.as_ref() != expected {
                        return Ok(PushOutcome::Stale { actual });
                    }
                }
                PushOutcome::Refused { detail, of_content }
            }
            Some(('!', line)) => {
                let detail = line.rsplit('\t').next().unwrap_or_default().to_owned();
                PushOutcome::Refused { detail, of_content: false }
            }
            Some(_) if exit.success() => PushOutcome::Pushed,
            _ => return Err(failure("push", &exit, Some(&remote.display()))),
        };
        if matches!(outcome, PushOutcome::Pushed | PushOutcome::UpToDate) {
            let refs = [remote.pushed_ref(branch), remote.seen_ref(branch)];
            let updates: String = refs.iter().map(|full| format!("update {full} {commit}\n")).collect();
            self.call(["update-ref", "-m", "agentd", "--stdin"]).await?.stdin(updates).done().await?;
        }
        Ok(outcome)
    }

    /// Whether the remote would accept `commit` as a new branch. Nothing is pushed. Rules for single branches are not
    /// checked.
    pub async fn try_push(
        &self,
        remote: &Remote,
        branch: &BranchName,
        commit: &CommitId,
    ) -> Result<(), GitError> {
        let mut args: Vec<String> =
            ["push", "--dry-run", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed"]
                .map(str::to_owned)
                .to_vec();
        args.extend(["--".into(), remote.target(), format!("{commit}:{}", branch.full())]);
        self.remote_call(remote, args).await?.done().await
    }

    /// Notes what another node of the cluster pushed last to a branch on the remote, if that is here.
    pub async fn note_pushed(
        &self,
        remote: &Remote,
        branch: &BranchName,
        commit: &CommitId,
    ) -> Result<(), GitError> {
        match self.has_commit(commit).await? {
            true => self.set_ref(&remote.pushed_ref(branch), commit).await,
            false => Ok(()),
        }
    }

    /// Keeps a commit on a ref of agentd's own, which is never pushed.
    pub async fn keep_at(&self, full: &str, commit: &CommitId) -> Result<(), GitError> {
        self.set_ref(full, commit).await
    }

    /// Points a ref of agentd's own somewhere, wherever it was.
    pub(super) async fn set_ref(&self, full: &str, to: &CommitId) -> Result<(), GitError> {
        self.call(["update-ref", "-m", "agentd", full, to.as_str()]).await?.done().await
    }
}

#[cfg(test)]
mod tests {
    use super::is_of_content;

    #[test]
    fn what_is_refused_for_its_content_is_told_from_what_no_commit_may_do() {
        let hook = "[remote rejected] (pre-receive hook declined)";
        let rules = "[remote rejected] (push declined due to repository rule violations)";
        for (summary, told) in [
            (hook, &["error: GH013: Repository rule violations found", "- Push cannot contain secrets"][..]),
            (rules, &["error: GH013: Repository rule violations found", "- GITHUB PUSH PROTECTION"]),
            (hook, &["error: File a.bin is 123.00 MB; this exceeds GitHub's file size limit of 100.00 MB"]),
            (rules, &["error: GH013: Repository rule violations found", "- File path is restricted: a/b"]),
            (hook, &["The word frobnicate is not spelled so here."]),
        ] {
            assert!(is_of_content(summary, told), "{told:?}");
        }
        for (summary, told) in [
            (
                rules,
                &["error: GH013: Repository rule violations found", "- Cannot update this protected ref."][..],
            ),
            (rules, &["- Changes must be made through a pull request."]),
            (
                "[remote rejected] (protected branch hook declined)",
                &["error: GH006: Protected branch update failed"],
            ),
            (hook, &["error: GH006: Protected branch update failed for refs/heads/feature/issue-7."]),
            (hook, &["You are not allowed to push code to protected branches on this project."]),
            (hook, &["This repository was archived so it is read-only."]),
            (hook, &[]),
            ("[remote rejected] (failed to update ref)", &["cannot lock ref"]),
        ] {
            assert!(!is_of_content(summary, told), "{told:?}");
        }
    }
}
