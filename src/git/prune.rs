//! Lists worktrees and cleans up those whose work is safe elsewhere. The others are kept, each with the reason.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::checkout::{Checkout, commit_of_ref};
use super::error::GitError;
use super::not_taken::NotInSnapshot;
use super::worktree::Worktree;
use super::worktree_state::{Entry, Head, POOL_FOLDER, entries, resolved};
use crate::domain::name::{BranchName, CommitId};
use crate::domain::shell_words;
use crate::sys::files;
use crate::sys::paths::AbsPath;

/// Why a worktree stays whose preparation failed.
const PREPARED_IN_PART: &str = "its files could not all be checked out; the next run of its issue does that";
/// Why a worktree stays that may be a person's.
pub const NOT_MADE: &str = "agentd has no record of having made it";

/// What may go.
#[derive(Debug, Clone)]
pub struct PrunePlan {
    /// Directory that holds the worktrees.
    pub root: AbsPath,
    /// The commit of the configured origin branch, for every worktree. What is in its history is merged.
    pub merged_into: Option<CommitId>,
    /// The same of single worktrees, by their names: the commits of their own origin branches, and the heads of their pull requests
    /// that GitHub says are merged, of which squashed ones are in no other history. Those of one worktree say nothing of another:
    /// where issues are stacked, one has the commits of the other, and neither is merged anywhere.
    pub own_merged: BTreeMap<String, Vec<CommitId>>,
    /// The names of worktrees that may be removed if they are merged and clean, each with the branch that agentd made it for. Nobody
    /// starts to work in them meanwhile.
    pub free: BTreeMap<String, BranchName>,
    /// The names of worktrees that must stay, with the reason (a live instance, retention).
    pub held: BTreeMap<String, String>,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// One worktree and what was done with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pruned {
    /// Its folder's name.
    pub name: String,
    /// Its branch, where it stands on one.
    pub branch: Option<String>,
    /// What was done.
    pub outcome: PruneOutcome,
}

/// What was done with a worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PruneOutcome {
    /// Removed, its branch too; the commit is kept on `kept_as`.
    Removed {
        /// Files that went, ignored ones included.
        files: u64,
        /// Their bytes.
        bytes: u64,
        /// Ref that keeps the branch's last commit.
        kept_as: String,
    },
    /// Would be removed.
    WouldRemove,
    /// Stays.
    Kept {
        /// Why.
        reason: String,
    },
}

/// One worktree as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedWorktree {
    /// Its folder's name.
    pub name: String,
    /// Where it is.
    pub path: AbsPath,
    /// Its branch, where it stands on one.
    pub branch: Option<String>,
    /// Its commit.
    pub head: Option<CommitId>,
    /// The number of files that differ from the commit; `None` if it is not known.
    pub changed: Option<usize>,
    /// Whether its directory is there.
    pub present: bool,
    /// Whether agentd made it. Any other is a person's.
    pub is_made: bool,
    /// Why a person locked it.
    pub locked: Option<String>,
    /// A repository in it that is not its own.
    pub nested: Option<String>,
}

impl Checkout {
    /// Worktrees below `root`, by name.
    pub async fn list_worktrees(&self, root: &AbsPath) -> Result<Vec<ListedWorktree>, GitError> {
        let mut found = Vec::new();
        for (name, entry, path) in self.below(root)? {
            let branch = branch_of(&entry);
            let present = path.as_path().is_dir();
            let worktree = self.existing(&entry, &path);
            let changed = match (&worktree, present) {
                (Some(worktree), true) => match (worktree.status().await, worktree.too_deep().await) {
                    (Ok(changes), Ok(deep)) => Some(changes.len() + usize::from(deep.is_some())),
                    _ => None,
                },
                _ => None,
            };
            let head = match &worktree {
                Some(worktree) => worktree.head().await.ok().flatten(),
                None => None,
            };
            let nested = match (&worktree, present) {
                (Some(worktree), true) => worktree.nested_repository().await.ok().flatten(),
                _ => None,
            };
            let (branch, is_made, locked) = (
                branch.map(|branch| branch.to_string()),
                entry.is_made() || entry.is_preparing(),
                entry.locked,
            );
            found.push(ListedWorktree {
                name,
                path,
                branch,
                head,
                changed,
                present,
                is_made,
                locked,
                nested,
            });
        }
        Ok(found)
    }

    /// The worktree of an issue at `root/name`, if it belongs to this repository and is on a branch.
    pub fn find_worktree(&self, root: &AbsPath, name: &str) -> Result<Option<Worktree>, GitError> {
        let found =
            self.below(root)?.into_iter().find(|(known, _, path)| known == name && path.as_path().is_dir());
        Ok(found.and_then(|(_, entry, path)| self.existing(&entry, &path)))
    }

    /// Removes worktrees and branches that agentd made, whose work is merged and not in use. The last commit of each branch is kept on a
    /// ref. What is uncommitted, unmerged, held, locked or unusual stays, with the reason.
    pub async fn prune(&self, plan: &PrunePlan) -> Result<Vec<Pruned>, GitError> {
        let mut report = Vec::new();
        for (name, entry, path) in self.below(&plan.root)? {
            let branch = branch_of(&entry);
            let outcome = match self.reason_to_keep(plan, &name, &entry, &path).await {
                Ok(Some(reason)) => Ok(PruneOutcome::Kept { reason }),
                Ok(None) if plan.dry_run => Ok(PruneOutcome::WouldRemove),
                Ok(None) => self.remove(&entry, &path).await,
                Err(error) => Err(error),
            };
            // One worktree that cannot be looked at keeps no other.
            let outcome = match outcome {
                Err(error) if !error.is_cancelled() => {
                    PruneOutcome::Kept { reason: format!("git cannot look at it: {error}") }
                }
                outcome => outcome?,
            };
            report.push(Pruned { name, branch: branch.map(|branch| branch.to_string()), outcome });
        }
        let known: Vec<String> = report.iter().map(|pruned| pruned.name.clone()).collect();
        for stranger in std::fs::read_dir(plan.root.as_path()).into_iter().flatten().flatten() {
            let name = stranger.file_name().to_string_lossy().into_owned();
            if !known.contains(&name) && name != POOL_FOLDER {
                let reason = "it is not a worktree of this repository".to_owned();
                report.push(Pruned { name, branch: None, outcome: PruneOutcome::Kept { reason } });
            }
        }
        report.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(report)
    }

    async fn reason_to_keep(
        &self,
        plan: &PrunePlan,
        name: &str,
        entry: &Entry,
        path: &AbsPath,
    ) -> Result<Option<String>, GitError> {
        let kept = |reason: String| Ok(Some(reason));
        if entry.path.as_ref() != Some(path) {
            let (root, path) = (self.root().to_string(), path.to_string());
            let mends = shell_words::line(&["git", "-C", &root, "worktree", "repair", &path]);
            return kept(format!("its checkout was moved; mend that: {mends}"));
        }
        if let Some(why) = plan.held.get(name) {
            return kept(why.clone());
        }
        // Made since the plan was: a run may be about to begin in it.
        let Some(branch) = plan.free.get(name) else {
            return kept("it was made only now".into());
        };
        if entry.is_preparing() {
            return kept(PREPARED_IN_PART.into());
        }
        if !entry.is_made() {
            return kept(NOT_MADE.into());
        }
        if let Some(reason) = &entry.locked {
            return kept(format!("it is locked ({reason})"));
        }
        if let Some(operation) = entry.unfinished() {
            return kept(format!("a {operation} is unfinished in it"));
        }
        if !path.as_path().is_dir() {
            return kept("its directory is gone; git worktree prune forgets it".into());
        }
        let Some(worktree) = self.existing(entry, path) else {
            return kept("it stands on no branch".into());
        };
        if worktree.branch() != branch {
            return kept(other_branch(worktree.branch(), branch));
        }
        let Some(head) = worktree.head().await? else { return kept("its branch has no commit".into()) };
        let changed = worktree.status().await?;
        if let Some(first) = changed.first() {
            let more = match changed.len() - 1 {
                0 => String::new(),
                1 => ", and 1 more file".to_owned(),
                more => format!(", and {more} more files"),
            };
            return kept(format!("{} has uncommitted changes{more}", first.path));
        }
        if let Some(folder) = worktree.too_deep().await? {
            return kept(format!("{folder}: {}", NotInSnapshot::Deep));
        }
        let mut merged = false;
        for into in plan.own_merged.get(name).into_iter().flatten().chain(&plan.merged_into) {
            merged = merged || self.is_ancestor(&head, into).await?;
        }
        if !merged {
            return kept(format!("its commit {} is not merged", head.short()));
        }
        let nested = worktree.nested_repository().await?;
        Ok(nested.map(|nested| format!("it holds a repository of its own, {nested}")))
    }

    async fn remove(&self, entry: &Entry, path: &AbsPath) -> Result<PruneOutcome, GitError> {
        let _turn = self.turn().await?;
        let kept = |reason: &str| Ok(PruneOutcome::Kept { reason: reason.to_owned() });
        let Some(branch) = branch_of(entry) else { return kept("it stands on no branch") };
        let Some(tip) = self.local_branch(&branch).await? else { return kept("its branch has no commit") };
        let gone = files::measure(path.as_path());
        let kept_as = format!("refs/agentd/retired/{branch}");
        // What an earlier branch of that name left behind stays as well.
        let name = kept_as.clone();
        let earlier = self.library(move |repository| commit_of_ref(repository, &name)).await?;
        if let Some(earlier) = earlier
            && !self.is_ancestor(&earlier, &tip).await?
        {
            self.set_ref(&format!("{kept_as}.{}", earlier.short()), &earlier).await?;
        }
        self.set_ref(&kept_as, &tip).await?;
        let (place, worktree) = (path.to_string(), self.existing(entry, path));
        // Without `--force` git checks for changes again. But it then removes nothing with submodules, which were
        // checked here.
        let force = match &worktree {
            Some(worktree) => !worktree.submodules().await?.is_empty() && worktree.status().await?.is_empty(),
            None => false,
        };
        let args = ["worktree", "remove"]
            .into_iter()
            .chain(force.then_some("--force"))
            .chain(["--", place.as_str()]);
        let excluded = match &worktree {
            Some(worktree) => Some(worktree.exclude_file().await?.to_string()),
            None => None,
        };
        let remove = async || {
            let config = excluded.iter().map(|file| ("core.excludesFile".to_owned(), file.clone()));
            self.call(args.clone()).await?.config(config).done().await
        };
        let mut removed = remove().await;
        if let (Err(error), Some(worktree)) = (&removed, &worktree)
            && error.is_refused_a_file()
        {
            worktree.open_to_owner().await?;
            removed = remove().await;
        }
        if let Err(error) = removed {
            let by_hand = match error.to_string().contains("File name too long") {
                true => format!(
                    "; `{}` does, and then `git worktree prune` forgets it",
                    shell_words::line(&["rm", "-rf", &path.to_string()])
                ),
                false => String::new(),
            };
            return kept(&format!("git does not remove it: {error}{by_hand}"));
        }
        // Not `branch -D`: that rewrites the shared configuration (D57).
        self.delete_ref(&branch.full(), &tip).await?;
        Ok(PruneOutcome::Removed { files: gone.files, bytes: gone.bytes, kept_as })
    }

    fn below(&self, root: &AbsPath) -> Result<Vec<(String, Entry, AbsPath)>, GitError> {
        let root = resolved(root);
        let named = |entry: Entry| {
            let path = entry.path.clone()?;
            let inside = path.parent().is_some_and(|parent| parent == root);
            let name = path.as_path().file_name()?.to_string_lossy().into_owned();
            let here = root.join(&name);
            let path = match inside {
                true => path,
                // The whole checkout was moved, and git's links between the two lead to where they were.
                false if !path.as_path().exists() && entry.is_of(&here) => here,
                false => return None,
            };
            Some((name, entry, path))
        };
        let mut found: Vec<_> = entries(self)?.into_iter().filter_map(named).collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }

    fn existing(&self, entry: &Entry, path: &AbsPath) -> Option<Worktree> {
        Some(Worktree::new(self, path.clone(), entry.dir.clone(), branch_of(entry)?, false))
    }
}

impl Worktree {
    /// A foreign repository inside, ignored or not. It may have commits that are nowhere else. An unchanged submodule
    /// has none.
    async fn nested_repository(&self) -> Result<Option<String>, GitError> {
        let untouched = match self.untouched_submodules().await? {
            Ok(untouched) => untouched,
            Err(touched) => {
                let path = touched.strip_prefix(self.path().as_path()).unwrap_or(&touched);
                return Ok(Some(path.display().to_string()));
            }
        };
        let root = self.path().as_path().to_owned();
        let found = tokio::task::spawn_blocking(move || nested_below(&root, &untouched));
        found.await.map_err(|error| GitError::Lost(error.to_string()))
    }
}

/// `known`: folders whose own `.git` is not one of those that are looked for.
fn nested_below(root: &Path, known: &[PathBuf]) -> Option<String> {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let own = (folder == root || known.contains(&folder)) && entry.file_name() == ".git";
            if entry.file_name() == ".git" && !own {
                return Some(folder.strip_prefix(root).unwrap_or(&folder).display().to_string());
            }
            // Links are not followed.
            if !own && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    None
}

/// Why a worktree stays that stands on another branch than the one that it was made for.
pub fn other_branch(on: impl std::fmt::Display, made_for: &BranchName) -> String {
    format!("it stands on {on}, not on {made_for}")
}

fn branch_of(entry: &Entry) -> Option<BranchName> {
    match &entry.head {
        Head::Branch(full) => BranchName::parse(full).ok(),
        _ => None,
    }
}
