//! Prepares the worktree of an issue: it is made, reused, reattached or repaired. Nothing is reused blindly, and
//! nothing is deleted.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::checkout::{Checkout, RefConflict};
use super::elsewhere::Tip;
use super::error::GitError;
use super::merge_base_in::Forward;
use super::worktree::Worktree;
use super::worktree_plan::WorktreePlan;
use super::worktree_state::{
    Entry, Found, Head, MADE, PREPARING, entries, found_at, is_empty_file, is_member, resolved,
};
use crate::domain::event::WorktreeState;
use crate::domain::name::{BranchName, CommitId};
use crate::domain::shell_words;
use crate::sys::files::{self, FileError};
use crate::sys::paths::AbsPath;
use crate::sys::worktree_path::TEMPORARY_PREFIX;

/// A worktree that is ready.
#[derive(Debug, Clone)]
pub struct PreparedWorktree {
    /// The worktree.
    pub worktree: Worktree,
    /// How it came to be.
    pub state: WorktreeState,
    /// The commit it stands on.
    pub head: CommitId,
    /// Warnings for people: what was repaired, set aside or left out.
    pub warnings: Vec<String>,
}

/// Why there is no worktree. All but [`WorktreeError::Git`] are `mapping_conflict` (D34).
#[derive(Debug, thiserror::Error)]
pub enum WorktreeError {
    /// Something else is in the place.
    #[error("{path} is {what}; move it away (`{}`) and start again", moved_away(path))]
    Occupied {
        /// The place.
        path: String,
        /// What it is.
        what: String,
    },
    /// The worktree there is on something else.
    #[error(
        "the worktree {path} stands on {on}, not on {branch}; \
             put it right (`{}`) or move it (`{}`)",
        shell_words::line(&["git", "-C", path, "switch", branch]),
        shell_words::line(&["git", "worktree", "move", path, "elsewhere"])
    )]
    OtherBranch {
        /// The place.
        path: String,
        /// Branch or commit.
        on: String,
        /// The branch.
        branch: String,
    },
    /// Git waits there for something to be finished.
    #[error(
        "a {operation} is unfinished in {path}; finish it (`{}`) or drop it (`{}`; for bisect: reset)",
        shell_words::line(&["git", "-C", path, operation, "--continue"]),
        shell_words::line(&["git", "-C", path, operation, "--abort"])
    )]
    Unfinished {
        /// The place.
        path: String,
        /// Git's subcommand.
        operation: &'static str,
    },
    /// The branch is in use by another worktree.
    #[error("the branch {branch} is checked out in {path}; {remedy}")]
    CheckedOutElsewhere {
        /// The branch.
        branch: String,
        /// Where.
        path: String,
        /// What to do.
        remedy: String,
    },
    /// A person locked the worktree.
    #[error("the worktree {path} is gone but locked{}; unlock it (`{}`) if it will not come back",
        if reason.is_empty() { String::new() } else { format!(" (\"{reason}\")") },
        shell_words::line(&["git", "worktree", "unlock", path]))]
    Locked {
        /// The place.
        path: String,
        /// What the person wrote.
        reason: String,
    },
    /// Local and remote branch both have commits of their own (D95).
    #[error(
        "{branch} diverged: here {local}, on the remote {remote}; bring them together (git merge or git rebase) \
             in a checkout of it, or rename one, and start again"
    )]
    Diverged {
        /// The branch.
        branch: String,
        /// Local commit, short.
        local: String,
        /// Remote commit, short.
        remote: String,
    },
    /// The worktree is there and its branch is not.
    #[error("the branch {branch} of the worktree {path} is gone; {}", match commit {
        Some(commit) => format!("make it again where it was: `{}`", shell_words::line(&["git", "branch", branch, commit.as_str()])),
        None => format!("make it again (`{}`), or move the worktree away (`{}`)",
            shell_words::line(&["git", "branch", branch, "COMMIT"]), moved_away(path)),
    })]
    BranchGone {
        /// The place.
        path: String,
        /// The branch.
        branch: String,
        /// The last commit of it that is known here.
        commit: Option<CommitId>,
    },
    /// The branch is another name of a branch, so that what is committed on it moves that one.
    #[error(
        "{branch} is a symbolic ref to {target}, and commits would move that; remove it: `{}`",
        shell_words::line(&["git", "symbolic-ref", "--delete", &format!("refs/heads/{branch}")])
    )]
    SymbolicBranch {
        /// The branch.
        branch: String,
        /// What it stands for.
        target: String,
    },
    /// Worktrees cannot be kept out of git where they are to be.
    #[error(
        "worktree.root is {root}, {what}; name a directory for nothing but worktrees, such as \".worktrees\""
    )]
    RootInUse {
        /// The directory.
        root: String,
        /// What is there already.
        what: &'static str,
    },
    /// A branch name makes this one impossible.
    #[error(transparent)]
    RefConflict(#[from] RefConflict),
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
}

impl From<FileError> for WorktreeError {
    fn from(error: FileError) -> Self {
        Self::Git(error.into())
    }
}

impl WorktreeError {
    /// Whether the place or the branch is taken. Otherwise git failed.
    pub fn is_conflict(&self) -> bool {
        !matches!(self, Self::Git(_))
    }
}

/// A worktree that stands, with git's entry of it.
struct Attached {
    git_dir: AbsPath,
    state: WorktreeState,
    warnings: Vec<String>,
}

/// How a worktree comes to be, from what is in its place.
enum Way {
    /// Nothing is there.
    Create,
    /// It exists. Has a reason if its links have to be written again.
    Reuse(Entry, Option<&'static str>),
    /// Its files exist, but git's entry for them is missing or broken.
    Rebuild,
}

impl Checkout {
    /// Prepares the worktree of a plan, or says what is in the way. The caller holds the lease of the issue.
    /// Administrative steps wait for a lock across processes; files are checked out without it (D57).
    pub async fn prepare_worktree(&self, plan: &WorktreePlan) -> Result<PreparedWorktree, WorktreeError> {
        let path = plan.path();
        let remote_tip = match &plan.remote {
            Some(remote) => self.fetch(remote, &plan.branch).await?,
            None => None,
        };
        self.bring_contents_of(plan, remote_tip.as_ref()).await?;
        let mut gave_way = Vec::new();
        let tip = self.tip(plan, remote_tip, &mut gave_way).await?;
        let attached = {
            let _turn = self.turn().await?;
            self.attach(plan, &path, tip.as_ref()).await?
        };
        let Attached { git_dir, state, mut warnings } = attached;
        warnings.extend(gave_way);
        let lfs = plan.population.lfs && self.has_lfs().await?;
        let worktree = Worktree::new(self, path, git_dir, plan.branch.clone(), lfs);
        worktree.clear_stale_locks()?;
        worktree.finish_checkout(plan, &mut warnings).await?;
        if let Some(tip) = &tip {
            worktree.follow(plan, tip, &mut warnings).await?;
        }
        warnings.extend(worktree.fill_pointers(&plan.population).await?);
        let missing = || GitError::Missing { what: format!("a commit on {}", plan.branch) };
        let head = worktree.head().await?.ok_or_else(missing)?;
        Ok(PreparedWorktree { worktree, state, head, warnings })
    }

    /// Says what would be in the way of [`Checkout::prepare_worktree`] with the branch at `remote_tip` on the remote.
    /// It changes nothing. A commit that is not here is not compared.
    pub async fn check_worktree(
        &self,
        plan: &WorktreePlan,
        remote_tip: Option<&CommitId>,
    ) -> Result<(), WorktreeError> {
        let all = entries(self)?;
        self.judge(plan, &plan.path(), &all).await?;
        let local = self.local_branch(&plan.branch).await?;
        if let (Some(local), Some(remote), None) = (&local, remote_tip, &plan.elsewhere)
            && self.has_commit(remote).await?
            && !self.is_ancestor(remote, local).await?
            && !self.is_ancestor(local, remote).await?
            && !self.was_pushed_below(plan, remote).await?
            && self.displaced(plan, local, remote).await?.is_none()
        {
            return Err(diverged(&plan.branch, local, remote));
        }
        Ok(())
    }

    /// The administrative step: adds the worktree, or takes the one that is there.
    async fn attach(
        &self,
        plan: &WorktreePlan,
        path: &AbsPath,
        tip: Option<&Tip>,
    ) -> Result<Attached, WorktreeError> {
        files::remove_file(self.common_dir().join(format!("{}.lock", plan.branch.full())).as_path())?;
        let all = entries(self)?;
        let way = self.judge(plan, path, &all).await?;
        self.keep_out_of_git(&resolved(&plan.root))?;
        match way {
            Way::Create => {
                self.set_stale_aside(path, &all)?;
                self.create(plan, path, tip).await
            }
            Way::Reuse(entry, repaired) => reuse(path, &entry, repaired),
            Way::Rebuild => self.rebuild(plan, path, tip, &all).await,
        }
    }

    /// What is to be done, or what stands in the way; only looks.
    async fn judge(&self, plan: &WorktreePlan, path: &AbsPath, all: &[Entry]) -> Result<Way, WorktreeError> {
        self.check_root(&plan.root).await?;
        if let Some(target) = self.symbolic_target(&plan.branch).await? {
            return Err(WorktreeError::SymbolicBranch { branch: plan.branch.to_string(), target });
        }
        let way = self.way(path, all)?;
        match &way {
            Way::Reuse(entry, _) => {
                check_on_branch(&plan.branch, path, entry)?;
                if self.local_branch(&plan.branch).await?.is_none() {
                    let commit = self.last_known(plan, entry).await?;
                    let (path, branch) = (path.to_string(), plan.branch.to_string());
                    return Err(WorktreeError::BranchGone { path, branch, commit });
                }
            }
            Way::Create | Way::Rebuild => {
                if let Some(conflict) = self.ref_conflict(&plan.branch).await? {
                    return Err(conflict.into());
                }
                if self.current_branch().await?.as_deref() == Some(plan.branch.as_str()) {
                    return Err(elsewhere(plan, self.root()));
                }
                for entry in all.iter().filter(|entry| entry.is_on(&plan.branch)) {
                    let taken = |place: &&AbsPath| *place != path && !is_member(&plan.root, place);
                    if let Some(place) = entry.path.as_ref().filter(taken).filter(|_| entry.is_alive()) {
                        return Err(elsewhere(plan, place));
                    }
                }
            }
        }
        Ok(way)
    }

    /// A worktree cannot be in a directory that git reads or writes itself. Where the repository has a link on the way, whoever can push to
    /// it would say where worktrees stand: that is looked at before links are followed.
    pub(super) async fn check_root(&self, named: &AbsPath) -> Result<(), WorktreeError> {
        let (root, here) = (&resolved(named), resolved(self.root()));
        let refused = |what| Err(WorktreeError::RootInUse { root: root.to_string(), what });
        let inside = [(named, self.root()), (named, &here), (root, &here)]
            .map(|(place, of)| place.as_path().strip_prefix(of.as_path()).ok().map(Path::to_owned));
        for inside in inside.into_iter().flatten().collect::<BTreeSet<_>>() {
            if self.tracks_at(&inside).await? {
                let (root, what) = (named.to_string(), "which holds files of the repository");
                return Err(WorktreeError::RootInUse { root, what });
            }
        }
        // The nearest thing that is there, whatever it is.
        let mut near = root.clone();
        let kind = loop {
            match (near.as_path().symlink_metadata(), near.parent()) {
                (Ok(meta), _) => break meta.file_type(),
                (Err(_), Some(parent)) => near = parent,
                (Err(error), None) => return Err(Self::file_error("look at", &near, error).into()),
            }
        };
        if !kind.is_dir() {
            let (path, what) = (near.to_string(), "not a directory".to_owned());
            return Err(WorktreeError::Occupied { path, what });
        }
        if root.as_path().starts_with(resolved(self.common_dir()).as_path()) {
            return refused("which is git's own");
        }
        Ok(())
    }

    /// The way that the place and git's entries of it leave.
    fn way(&self, path: &AbsPath, all: &[Entry]) -> Result<Way, WorktreeError> {
        let found = found_at(self, path).map_err(|error| Self::file_error("look at", path, error))?;
        let entry = all.iter().find(|entry| entry.path.as_ref() == Some(path));
        let occupied =
            |what: &str| Err(WorktreeError::Occupied { path: path.to_string(), what: what.to_owned() });
        match (found, entry) {
            (Found::Free, Some(Entry { locked: Some(reason), .. }))
                if entry.is_some_and(|entry| !entry.half_made()) =>
            {
                Err(WorktreeError::Locked { path: path.to_string(), reason: reason.clone() })
            }
            (Found::Free, _) => Ok(Way::Create),
            (Found::NotADirectory, _) => occupied("not a directory"),
            (Found::OtherRepository(of), _) => occupied(&format!("a worktree of another repository ({of})")),
            (Found::Repository, _) => occupied("a repository of its own, or its .git is broken"),
            (Found::Foreign, None) => occupied("a directory that agentd did not make"),
            // Someone removed the worktree's `.git` and nothing else.
            (Found::Foreign, Some(entry)) => Ok(Way::Reuse(entry.clone(), Some("its .git file was missing"))),
            (Found::Ours(target), Some(entry)) if resolved(&entry.dir) == target => match entry.head {
                Head::Broken => Ok(Way::Rebuild),
                _ => Ok(Way::Reuse(entry.clone(), None)),
            },
            (Found::Ours(target), _) => match all.iter().find(|entry| resolved(&entry.dir) == target) {
                // The repository was moved: the entry still names the old place.
                Some(moved) if moved.path.as_ref().is_none_or(|old| !old.as_path().exists()) => {
                    Ok(Way::Reuse(moved.clone(), Some("git's entry named another place")))
                }
                Some(moved) => {
                    let from = moved.path.as_ref().map(ToString::to_string).unwrap_or_default();
                    occupied(&format!("a copy of the worktree {from}"))
                }
                None => Ok(Way::Rebuild),
            },
        }
    }

    /// The last commit of a branch that was deleted: the one of its worktree, else the one that was pushed.
    async fn last_known(
        &self,
        plan: &WorktreePlan,
        entry: &Entry,
    ) -> Result<Option<CommitId>, WorktreeError> {
        if let Some(commit) = entry.last_commit()
            && self.has_commit(&commit).await?
        {
            return Ok(Some(commit));
        }
        match &plan.remote {
            Some(remote) => Ok(self.reference(&remote.pushed_ref(&plan.branch)).await?),
            None => Ok(None),
        }
    }

    /// Keeps the worktrees and temporary files out of git, for this repository alone.
    pub(super) fn keep_out_of_git(&self, root: &AbsPath) -> Result<(), FileError> {
        let exclude = self.common_dir().join("info").join("exclude");
        files::create_dir(self.common_dir().join("info").as_path())?;
        if let Ok(inside) = root.as_path().strip_prefix(resolved(self.root()).as_path()) {
            let names: Vec<_> = inside.iter().map(|name| as_pattern(&name.to_string_lossy())).collect();
            if !names.is_empty() {
                files::ensure_line(exclude.as_path(), &format!("/{}/", names.join("/")))?;
            }
        }
        files::ensure_line(exclude.as_path(), &format!("{TEMPORARY_PREFIX}*"))?;
        files::create_dir(root.as_path())?;
        Ok(())
    }

    /// Sets aside entries of git that have no worktree any more: the one of this place, one that a killed `git worktree
    /// add` left, and ones for places that are gone.
    fn set_stale_aside(&self, path: &AbsPath, all: &[Entry]) -> Result<(), WorktreeError> {
        // A git that was killed between making its `.git` file and writing it: the empty file says nothing.
        if is_empty_file(&path.join(".git")) {
            files::remove_file(path.join(".git").as_path())?;
        }
        if let Some(entry) = all.iter().find(|entry| entry.path.as_ref() == Some(path)) {
            self.set_entry_aside(entry)?;
        }
        let name = path.as_path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        // A `git worktree add` that was killed before it wrote the place. agentd makes worktrees under a lock, so that
        // one is over.
        for entry in all.iter().filter(|entry| entry.path.is_none() && entry.half_made()) {
            let id = entry.dir.as_path().file_name().unwrap_or_default().to_string_lossy();
            if id.strip_prefix(name.as_str()).is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit())) {
                self.set_entry_aside(entry)?;
            }
        }
        Ok(())
    }

    fn set_entry_aside(&self, entry: &Entry) -> Result<(), WorktreeError> {
        let aside = self.common_dir().join("agentd").join("retired-worktrees");
        files::create_dir(aside.as_path())?;
        let id = entry.dir.as_path().file_name().unwrap_or_default().to_string_lossy();
        let to = aside.join(format!("{id}-{}", uuid::Uuid::new_v4().simple()));
        files::rename(entry.dir.as_path(), to.as_path())?;
        Ok(())
    }

    /// Makes the worktree, and the branch where there is none. Files are not checked out yet.
    async fn create(
        &self,
        plan: &WorktreePlan,
        path: &AbsPath,
        tip: Option<&Tip>,
    ) -> Result<Attached, WorktreeError> {
        // Members of the pool that a killed process was about to take, and entries on the branch whose places are gone.
        self.remove_half_taken(&plan.root).await?;
        for entry in entries(self)?.iter().filter(|entry| entry.is_on(&plan.branch)) {
            if entry.path.as_ref() != Some(path) {
                self.set_entry_aside(entry)?;
            }
        }
        let mut warnings = Vec::new();
        let local = self.local_branch(&plan.branch).await?;
        let branch = plan.branch.as_str();
        let place = path.to_string();
        let mut args = vec!["worktree", "add", "--quiet", "--no-checkout", "--no-track"];
        let start;
        let state = match &local {
            Some(local) => {
                if let Some(tip) = tip
                    && !self.is_ancestor(&tip.commit, local).await?
                    && self.forward(plan, local, tip, &mut warnings).await?
                {
                    warnings.push(tip.brought_forward(plan));
                }
                warnings.push(format!(
                    "the branch {branch} was there without a worktree; the work goes on on it"
                ));
                args = vec!["worktree", "add", "--quiet", "--no-checkout", "--", &place, branch];
                WorktreeState::Reattached
            }
            None => {
                start = tip.map_or(&plan.base, |tip| &tip.commit).to_string();
                args.extend(["-b", branch, "--", &place, &start]);
                match tip {
                    Some(tip) => {
                        warnings.push(format!(
                            "the branch {branch} {}; the work goes on on it",
                            tip.is_already_there()
                        ));
                        WorktreeState::Reattached
                    }
                    None => WorktreeState::Created,
                }
            }
        };
        if !self.has_commit(&plan.base).await? && local.is_none() && tip.is_none() {
            return Err(GitError::Missing { what: format!("the commit {}", plan.base) }.into());
        }
        let start = local.is_none().then(|| tip.map_or(&plan.base, |tip| &tip.commit));
        if let Some(git_dir) = self.take_member(plan, path, start).await? {
            return Ok(Attached { git_dir, state, warnings });
        }
        self.call(&args).await?.with_hooks(false).done().await?;
        let made = entries(self)?.into_iter().find(|entry| entry.path.as_ref() == Some(path));
        let made =
            made.ok_or_else(|| GitError::Missing { what: format!("git's entry of the worktree {place}") })?;
        files::write_private(made.dir.join(PREPARING).as_path(), b"")?;
        Ok(Attached { git_dir: made.dir, state, warnings })
    }

    /// Moves a branch that is checked out nowhere forward. False: both have commits of their own, which can be merged.
    async fn forward(
        &self,
        plan: &WorktreePlan,
        local: &CommitId,
        tip: &Tip,
        warnings: &mut Vec<String>,
    ) -> Result<bool, WorktreeError> {
        if !self.is_ancestor(local, &tip.commit).await? {
            match &plan.elsewhere {
                Some(elsewhere) => {
                    warnings.push(self.give_way(plan, elsewhere, local, &tip.commit).await?);
                }
                None if self.was_pushed_below(plan, &tip.commit).await? => return Ok(false),
                None => {
                    let Some(kept) = self.displaced(plan, local, &tip.commit).await? else {
                        return Err(diverged(&plan.branch, local, &tip.commit));
                    };
                    warnings.push(self.keep_displaced(plan, (local, kept), &tip.commit).await?);
                }
            }
        }
        self.update_ref(&plan.branch.full(), Some(local), &tip.commit).await?;
        Ok(true)
    }

    /// The files exist, but git's entry for them is missing or broken. A new entry is made around the files, on the
    /// branch. Without a branch they are set aside.
    async fn rebuild(
        &self,
        plan: &WorktreePlan,
        path: &AbsPath,
        tip: Option<&Tip>,
        all: &[Entry],
    ) -> Result<Attached, WorktreeError> {
        for broken in all.iter().filter(|entry| entry.path.as_ref() == Some(path)) {
            self.set_entry_aside(broken)?;
        }
        if holds_only_link(path) {
            // A git that was killed before it checked anything out.
            files::remove_file(path.join(".git").as_path())?;
            return self.create(plan, path, tip).await;
        }
        let had_branch = self.local_branch(&plan.branch).await?.is_some();
        let aside = AbsPath::new(files::set_aside(path.as_path(), "aside")?)
            .map_err(|e| GitError::Lost(e.to_string()))?;
        let mut attached = self.create(plan, path, tip).await?;
        if !had_branch {
            attached.warnings.push(format!(
                "git knew neither the worktree {path} nor its branch; what was there is kept in {aside}"
            ));
            return Ok(attached);
        }
        // The new link moves to the old files, and they move back.
        files::rename(path.join(".git").as_path(), aside.join(".git").as_path())?;
        fs::remove_dir(path.as_path()).map_err(|error| Self::file_error("remove", path, error))?;
        files::rename(aside.as_path(), path.as_path())?;
        files::remove_file(attached.git_dir.join(PREPARING).as_path())?;
        attached.state = WorktreeState::Reused;
        attached.warnings = vec![format!(
            "git's entry of the worktree {path} was lost and was made again; its files are as they were"
        )];
        Ok(attached)
    }
}

impl Worktree {
    /// Checks the files out if that was not done or not finished. It never overwrites work.
    async fn finish_checkout(
        &self,
        plan: &WorktreePlan,
        warnings: &mut Vec<String>,
    ) -> Result<(), WorktreeError> {
        let marker = self.git_dir().join(PREPARING);
        let index = self.git_dir().join("index");
        if marker.as_path().exists() || (!index.as_path().exists() && holds_only_link(self.path())) {
            files::write_private(marker.as_path(), b"")?;
            let hooks = self.checkout().hooks();
            self.narrow(&plan.population.sparse).await?;
            self.call(["reset", "--hard", "--quiet"]).await?.with_hooks(hooks).done().await?;
            warnings.extend(self.populate(&plan.population, plan.remote.as_ref()).await?);
            self.begin_snapshots().await?;
            files::rename(marker.as_path(), self.git_dir().join(MADE).as_path())?;
        } else if !index.as_path().exists() {
            self.call(["reset", "--mixed", "--quiet"]).await?.done().await?;
        }
        Ok(())
    }

    /// Takes newer commits of the branch into the worktree.
    async fn follow(
        &self,
        plan: &WorktreePlan,
        tip: &Tip,
        warnings: &mut Vec<String>,
    ) -> Result<(), WorktreeError> {
        let moved = match self.forward(&tip.commit).await {
            // Uncommitted edits of the same files stay: once they are committed, the tip is merged with them.
            Err(_) if !self.is_clean().await? => return Ok(()),
            moved => moved?,
        };
        match moved {
            Forward::HasIt => {}
            Forward::Went => warnings.push(tip.brought_forward(plan)),
            Forward::Apart => {
                let Some(head) = self.head().await? else { return Ok(()) };
                match &plan.elsewhere {
                    Some(elsewhere) => {
                        warnings.push(self.checkout().give_way(plan, elsewhere, &head, &tip.commit).await?);
                        self.go_over_to(&head, &tip.commit).await?;
                        warnings.push(tip.brought_forward(plan));
                    }
                    None if self.checkout().was_pushed_below(plan, &tip.commit).await? => {}
                    None => {
                        let Some(kept) = self.checkout().displaced(plan, &head, &tip.commit).await? else {
                            return Err(diverged(self.branch(), &head, &tip.commit));
                        };
                        let said = self.checkout().keep_displaced(plan, (&head, kept), &tip.commit).await?;
                        self.go_over_to(&head, &tip.commit).await?;
                        warnings.extend([said, tip.brought_forward(plan)]);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Refuses a worktree that is there and is not on its branch, or in the middle of something.
pub(super) fn check_on_branch(
    branch: &BranchName,
    path: &AbsPath,
    entry: &Entry,
) -> Result<(), WorktreeError> {
    if entry.is_on(branch) {
        return Ok(());
    }
    let path = path.to_string();
    if let Some(operation) = entry.unfinished() {
        return Err(WorktreeError::Unfinished { path, operation });
    }
    let on = match &entry.head {
        Head::Branch(full) => full.trim_start_matches("refs/heads/").to_owned(),
        Head::Detached(commit) => format!("the commit {}", commit.get(..10).unwrap_or(commit)),
        Head::Broken => "a HEAD that cannot be read".to_owned(),
    };
    Err(WorktreeError::OtherBranch { path, on, branch: branch.to_string() })
}

/// Takes a worktree that is there and is what it should be.
fn reuse(path: &AbsPath, entry: &Entry, repaired: Option<&str>) -> Result<Attached, WorktreeError> {
    let mut warnings = Vec::new();
    if let Some(why) = repaired {
        let link = path.join(".git");
        files::write_public(link.as_path(), format!("gitdir: {}\n", entry.dir).as_bytes())?;
        files::write_public(entry.dir.join("gitdir").as_path(), format!("{link}\n").as_bytes())?;
        warnings.push(format!("the worktree {path} was repaired: {why}"));
    }
    if entry.half_made() {
        files::remove_file(entry.dir.join("locked").as_path())?;
    }
    Ok(Attached { git_dir: entry.dir.clone(), state: WorktreeState::Reused, warnings })
}

/// A name for git's exclude file, with its special characters escaped.
fn as_pattern(name: &str) -> String {
    name.chars()
        .flat_map(|c| matches!(c, '\\' | '*' | '?' | '[' | ']').then_some('\\').into_iter().chain([c]))
        .collect()
}

/// The command that makes room.
fn moved_away(path: &str) -> String {
    shell_words::line(&["mv", path, &format!("{path}.mine")])
}

fn elsewhere(plan: &WorktreePlan, place: &AbsPath) -> WorktreeError {
    let remedy = match place.as_path().file_name() {
        // As after another `worktree.root` was configured.
        Some(name) if *name == *plan.name => {
            let new = plan.root.join(&plan.name).to_string();
            format!(
                "if that is the issue's worktree, move it here: `{} && {}`",
                shell_words::line(&["mkdir", "-p", &plan.root.to_string()]),
                shell_words::line(&["git", "worktree", "move", &place.to_string(), &new])
            )
        }
        _ => "switch that checkout to another branch and start again".to_owned(),
    };
    WorktreeError::CheckedOutElsewhere { branch: plan.branch.to_string(), path: place.to_string(), remedy }
}

/// Whether the directory of a worktree has nothing but the link to its repository.
pub(super) fn holds_only_link(path: &AbsPath) -> bool {
    fs::read_dir(path.as_path()).is_ok_and(|all| all.flatten().all(|entry| entry.file_name() == ".git"))
}

fn diverged(branch: &BranchName, local: &CommitId, remote: &CommitId) -> WorktreeError {
    WorktreeError::Diverged {
        branch: branch.to_string(),
        local: local.short().to_owned(),
        remote: remote.short().to_owned(),
    }
}
