//! A worktree in which a person works: what they left there becomes a commit of theirs, and nothing of it is lost.

use std::ffi::OsString;

use super::checkout::Checkout;
use super::commit::CommitMessage;
use super::error::GitError;
use super::merge_base_in::Forward;
use super::prepare::{WorktreeError, check_on_branch};
use super::program::Identity;
use super::worktree::{ChangedFile, Worktree};
use super::worktree_state::{entries, resolved};
use crate::domain::name::{BranchName, CommitId};
use crate::sys::files;
use crate::sys::paths::AbsPath;

/// What of a person's environment says who they are to git.
const WHO: [&str; 5] =
    ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "EMAIL"];

/// How a commit of the remote came into the branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Brought {
    /// It was there, or the branch went forward to it.
    There,
    /// It was merged.
    Merged,
    /// It conflicts in these files; the branch is as it was.
    Conflicts(Vec<String>),
}

impl Checkout {
    /// The worktree at `root/name`, on its branch and with nothing of git's unfinished in it; `None` = there is none. `lfs` =
    /// whether Git LFS is wanted, where it is installed.
    pub async fn worktree_by_hand(
        &self,
        (root, name): (&AbsPath, &str),
        branch: &BranchName,
        lfs: bool,
    ) -> Result<Option<Worktree>, WorktreeError> {
        let path = resolved(root).join(name);
        let found = entries(self)?.into_iter().find(|entry| entry.path.as_ref() == Some(&path));
        let Some(entry) = found.filter(|_| path.as_path().is_dir()) else { return Ok(None) };
        if let Some(operation) = entry.unfinished().or_else(|| entry.unfinished_commit()) {
            return Err(WorktreeError::Unfinished { path: path.to_string(), operation });
        }
        check_on_branch(branch, &path, &entry)?;
        let lfs = lfs && self.has_lfs().await?;
        Ok(Some(Worktree::new(self, path, entry.dir.clone(), branch.clone(), lfs)))
    }
}

impl Checkout {
    /// The worktree at `root/name` for looking at it, whatever is unfinished there; `None` = there is none.
    pub fn worktree_as_it_is(
        &self,
        (root, name): (&AbsPath, &str),
        branch: &BranchName,
    ) -> Result<Option<Worktree>, GitError> {
        let path = resolved(root).join(name);
        let found = entries(self)?.into_iter().find(|entry| entry.path.as_ref() == Some(&path));
        let found = found.filter(|_| path.as_path().is_dir());
        Ok(found.map(|entry| Worktree::new(self, path, entry.dir, branch.clone(), false)))
    }
}

impl Worktree {
    /// Who commits are by that whoever has this environment makes here; `None` = git does not know.
    pub async fn person(&self, env: impl Fn(&str) -> Option<String>) -> Result<Option<Identity>, GitError> {
        let only_said = ("user.useConfigOnly".to_owned(), "true".to_owned());
        let mut call = self.call(["var", "GIT_AUTHOR_IDENT"]).await?.config([only_said]);
        // A name in the machine's own configuration counts as well.
        call = call.env("GIT_CONFIG_NOSYSTEM", "0");
        for name in WHO {
            if let Some(value) = env(name).filter(|value| !value.trim().is_empty()) {
                call = call.env(name, OsString::from(value));
            }
        }
        let exit = call.exit().await?;
        if !exit.success() {
            return Ok(None);
        }
        let said = exit.stdout.text();
        let who = said.trim().split_once(" <").and_then(|(name, rest)| Some((name, rest.split_once('>')?.0)));
        let who = who.map(|(name, email)| Identity { name: name.trim().to_owned(), email: email.to_owned() });
        Ok(who.filter(|who| !who.name.is_empty() && !who.email.is_empty()))
    }

    /// Removes the locks of HEAD and of the branch, as a `git commit` of agentd's that was killed leaves them. git holds them for moments.
    /// That of the index stays: a person's git holds it as long as their editor is open.
    pub fn remove_commit_locks(&self) -> Result<(), GitError> {
        let branch = self.checkout().common_dir().join(format!("{}.lock", self.branch().full()));
        for lock in [self.git_dir().join("HEAD.lock"), branch] {
            files::remove_file(lock.as_path())?;
        }
        Ok(())
    }

    /// What no commit of the worktree would have: a file and why, a line each.
    pub async fn not_carried(&self) -> Result<Vec<String>, GitError> {
        let left = self.left_out().await?;
        let mut lines: Vec<String> = left.into_iter().map(|(path, why)| format!("{path}: {why}")).collect();
        let nested = self.nested_repositories().await?;
        lines.extend(nested.into_iter().map(|path| format!("{path}: it is a git repository of its own")));
        for (path, files) in self.edited_submodules().await? {
            lines.push(format!("{path}: {files} file(s) inside of this submodule are changed or new"));
        }
        Ok(lines)
    }

    /// Has a commit of the remote in the branch, by going forward or by a merge of `author`.
    pub async fn bring_in(
        &self,
        tip: &CommitId,
        message: &CommitMessage,
        author: &Identity,
    ) -> Result<Brought, GitError> {
        if self.forward(tip).await? != Forward::Apart {
            return Ok(Brought::There);
        }
        let files = self.merge_base_in(tip, author).await?;
        if !files.is_empty() {
            self.leave_merge().await?;
            return Ok(Brought::Conflicts(files));
        }
        self.commit_all(message, author).await?;
        Ok(Brought::Merged)
    }
}

/// Changed files, a line each, and how many more than `most` there are.
pub fn lines(files: &[ChangedFile], most: usize) -> Vec<String> {
    let line = |file: &ChangedFile| match file.binary {
        true => format!("{} {} (binary)", file.kind.letter(), file.path),
        false => format!("{} {} +{} \u{2212}{}", file.kind.letter(), file.path, file.added, file.removed),
    };
    let mut lines: Vec<String> = files.iter().take(most).map(line).collect();
    if files.len() > most {
        lines.push(format!("and {} more", files.len() - most));
    }
    lines
}
