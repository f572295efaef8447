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
            Self::Refused { detail } => f.write_str(detail),
        }
    }
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
                let detail = last_lines(&[&[summary], told.as_slice()].concat().join("\n"));
                // A lock that another push holds at this moment is a conflict of the lease and not of the rules.
                if line.contains("failed to update ref") || line.contains("cannot lock ref") {
                    let actual = self.remote_branch(remote, branch).await?;
                    if actual.as_ref() != expected {
                        return Ok(PushOutcome::Stale { actual });
                    }
                }
                PushOutcome::Refused { detail }
            }
            Some(('!', line)) => {
                PushOutcome::Refused { detail: line.rsplit('\t').next().unwrap_or_default().to_owned() }
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
