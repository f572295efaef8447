//! Keeps the present state of a worktree as a tree on refs that are never pushed, and restores it.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::blob::LARGEST_FILE;
use super::checkout::remove_stale_locks;
use super::error::GitError;
use super::last_snapshot::{Base, INDEX, Snapshot};
use super::not_taken::{NotInSnapshot, may_be_named, too_deep};
use super::output;
use super::plain_head::commit_in;
use super::program::Identity;
use super::quick_snapshot::Checkpoint;
use super::worktree::{ChangeKind, Worktree};
use crate::domain::name::CommitId;
use crate::sys::files::{self, FileError};
use crate::sys::paths::AbsPath;

/// The mode of a submodule's entry.
const SUBMODULE: u32 = 0o160_000;

/// The version of git since which `git add` refuses files outside of a sparse checkout's folders, and has a flag for them.
const REFUSES_OUTSIDE: &str = "2.34.0";

/// What a restore did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Where the former state is kept; `None` when it was already the wanted state.
    pub rescued: Option<CommitId>,
}

/// What is in a worktree, as an index and the folders say.
#[derive(Default)]
struct Listed {
    /// Submodules with the commits that the index has for them.
    links: Vec<(String, String)>,
    /// Repositories that stand around untracked.
    embedded: Vec<String>,
    /// Everything else, tracked or not; ignored files are not there.
    files: Vec<String>,
    /// A folder whose path is too long for git.
    deep: Option<String>,
}

impl Worktree {
    /// The tree of the present state: every file that is not ignored, tracked or not. Index and HEAD do not change.
    /// Flags that hide files in the worktree's own index have no effect.
    pub async fn tree(&self) -> Result<String, GitError> {
        Ok(self.snapshot(false).await?.tree)
    }

    /// Lets the first snapshot begin with what git has just checked out, so that it need not read every file again. Only
    /// for files that nobody has worked on: flags in a worktree's index can hide changes.
    pub(super) async fn begin_snapshots(&self) -> Result<(), GitError> {
        let own = self.git_dir().join(INDEX);
        copy(&self.git_dir().join("index"), &own).await?;
        // A hook of the repository may have changed what is in the index.
        let head = self.head().await?.filter(|_| !self.checkout().hooks());
        let base = match head {
            Some(head) => {
                Some(Base { tree: self.checkout().tree_of_commit(&head).await?, absent: Vec::new() })
            }
            None => None,
        };
        self.last_snapshot().keep_base(self.beside().await?, files::stamp(own.as_path()), base);
        Ok(())
    }

    /// The same, but the tree of HEAD if the only differences are new files.
    pub async fn tree_of_known(&self) -> Result<String, GitError> {
        let changed = self.status().await?;
        match self.head().await? {
            Some(head) if changed.iter().all(|change| change.kind == ChangeKind::Added) => {
                self.checkout().tree_of_commit(&head).await
            }
            _ => self.tree().await,
        }
    }

    /// From now on nothing runs here that changes files: what a snapshot finds holds until [`Worktree::something_ran`].
    pub fn nothing_runs(&self) {
        self.last_snapshot().rest();
    }

    /// Something ran here that may have changed files.
    pub fn something_ran(&self) {
        self.last_snapshot().forget();
    }

    /// The tree, and the index that describes it.
    pub(super) async fn record(&self) -> Result<(String, AbsPath), GitError> {
        let snapshot = self.snapshot(true).await?;
        Ok((snapshot.tree, self.git_dir().join(INDEX)))
    }

    /// A commit was made of the last snapshot. If its tree is that of the snapshot, it holds beside the commit, too.
    pub(super) async fn committed(&self, made: &CommitId, tree: &str) -> Result<(), GitError> {
        if self.checkout().tree_of_commit(made).await? == tree {
            self.last_snapshot().stands_on(made.clone());
        } else {
            self.something_ran();
        }
        Ok(())
    }

    /// What is there now. `indexed`: agentd's index describes it afterwards. Once nothing runs any more, git itself looks at
    /// every file, so that what is judged and published is what is there.
    async fn snapshot(&self, indexed: bool) -> Result<Snapshot, GitError> {
        self.snapshot_beside(indexed, self.beside().await?).await
    }

    async fn snapshot_beside(&self, indexed: bool, beside: Vec<CommitId>) -> Result<Snapshot, GitError> {
        if let Some(found) = self.last_snapshot().found(&beside) {
            return Ok(found);
        }
        if !indexed
            && !self.last_snapshot().is_at_rest()
            && let Some(found) = self.quick_snapshot(&beside).await?
        {
            return Ok(found);
        }
        let found = self.take_snapshot().await?;
        self.last_snapshot().keep_found(beside, found.clone());
        Ok(found)
    }

    async fn take_snapshot(&self) -> Result<Snapshot, GitError> {
        let own = self.git_dir().join(INDEX);
        // Each call works on a copy, so that several can run at once. The last copy is kept for its file times.
        let work = self.git_dir().join(format!("{INDEX}-{}", uuid::Uuid::new_v4().simple()));
        let mut recorded = self.record_in(&own, &work).await;
        if recorded.as_ref().is_err_and(GitError::is_refused_a_file) {
            // What a program took all rights from is this user's all the same, and part of the work.
            self.open_to_owner().await?;
            recorded = self.record_in(&own, &work).await;
        }
        match recorded {
            Ok((base, not_taken, beside)) => {
                let stamp = files::stamp(work.as_path());
                files::rename(work.as_path(), own.as_path())?;
                let moved =
                    files::stamp(own.as_path()).filter(|now| stamp.is_some_and(|was| now.is_of(&was)));
                let tree = base.tree.clone();
                self.last_snapshot().keep_base(beside, moved, Some(base).filter(|_| not_taken.is_empty()));
                Ok(Snapshot { tree, not_taken })
            }
            Err(error) => {
                for leftover in [work.clone(), self.git_dir().join(format!("{}.lock", file_name(&work)))] {
                    files::remove_file(leftover.as_path())?;
                }
                Err(error)
            }
        }
    }

    /// Gives this user back what a program took: the rights to read its files, and to remove them.
    pub(super) async fn open_to_owner(&self) -> Result<(), GitError> {
        let place = self.path().clone();
        let opened = tokio::task::spawn_blocking(move || files::open_to_owner(place.as_path())).await;
        opened.map_err(|error| GitError::Lost(error.to_string()))
    }

    /// Brings the copy of the index to what is there. Gives what it describes, what it leaves out, and beside which commits.
    async fn record_in(
        &self,
        own: &AbsPath,
        work: &AbsPath,
    ) -> Result<(Base, Vec<(String, NotInSnapshot)>, Vec<CommitId>), GitError> {
        let known = copy(own, work).await?;
        if !known {
            let base = match self.head().await? {
                Some(head) => vec!["read-tree".to_owned(), "-m".into(), head.to_string()],
                None => vec!["read-tree".to_owned(), "--empty".into()],
            };
            self.call(base).await?.index(work).done().await?;
        }
        let Listed { mut links, embedded, files, deep } = self.listed(work).await?;
        links.extend(self.committed_links(&embedded).await?);
        let mut not_taken = self.not_taken(files).await?;
        // A nested repository is left out, because git would run a program in it with its configuration. A file that
        // agentd would not read is left out too, and so is one whose name would make git refuse all files.
        let others = links.iter().map(|(path, _)| path.as_str()).chain(embedded.iter().map(String::as_str));
        let others = others.chain(not_taken.iter().map(|(path, _)| path.as_str()));
        let excluded: String = others.map(|path| format!(":(exclude,top,literal){path}\0")).collect();
        // git passes over it by itself.
        not_taken.extend(deep.map(|folder| (folder, NotInSnapshot::Deep)));
        let mut add = vec!["add", "--all"];
        // In a sparse checkout files outside of its folders are taken as well: what is there is the work.
        let sparse = self.git_dir().join("info/sparse-checkout").as_path().exists();
        if sparse && self.checkout().program().is_at_least(REFUSES_OUTSIDE).await? {
            add.push("--sparse");
        }
        if !excluded.is_empty() {
            add.extend(["--pathspec-from-file=-", "--pathspec-file-nul"]);
        }
        self.call(add).await?.index(work).stdin(excluded).done().await?;
        self.follow_submodules(work, links).await?;
        // Most tool calls change nothing. An equal index has the same tree, unless a tracked file came back.
        let beside = self.beside().await?;
        let mut said = digest(work, &beside).await?;
        if let Some(base) = self.last_snapshot().described(&said)
            && !base.absent.iter().any(|path| self.path().join(path).as_path().symlink_metadata().is_ok())
        {
            return Ok((base, not_taken, beside));
        }
        let dropped = self.drop_excluded(work, beside.clone()).await?;
        let tracked = self.take_tracked(work, beside.clone()).await?;
        if tracked.taken || dropped {
            said = digest(work, &beside).await?;
        }
        let tree = self.call(["write-tree"]).await?.index(work).text().await?.trim().to_owned();
        let base = Base { tree, absent: tracked.absent };
        self.last_snapshot().keep(said, &base);
        Ok((base, not_taken, beside))
    }

    /// Those of the repositories around that are submodules in HEAD: somebody committed them after the last snapshot. What
    /// the index has for them is nothing yet.
    async fn committed_links(&self, embedded: &[String]) -> Result<Vec<(String, String)>, GitError> {
        let Some(head) = self.head().await?.filter(|_| !embedded.is_empty()) else { return Ok(Vec::new()) };
        let embedded = embedded.to_owned();
        let find = move |repository: &git2::Repository| {
            let tree = repository.find_commit(super::checkout::oid(&head)?)?.tree()?;
            let is_link = |path: &String| {
                tree.get_path(path.as_ref()).is_ok_and(|entry| entry.kind() == Some(git2::ObjectType::Commit))
            };
            let found = embedded.iter().filter(|path| is_link(path));
            Ok(found.map(|path| (path.clone(), String::new())).collect())
        };
        self.checkout().library(find).await
    }

    /// What is in the index and in the folders: submodules, other repositories, files.
    async fn listed(&self, index: &AbsPath) -> Result<Listed, GitError> {
        let own = index.clone();
        let staged = tokio::task::spawn_blocking(move || staged(&own)).await;
        let mut listed = staged.map_err(|error| GitError::Lost(error.to_string()))??;
        let (others, deep) = self.others(index).await?;
        let (embedded, files) = output::others(&others);
        listed.deep = deep;
        listed.embedded.extend(embedded);
        listed.files.extend(files);
        Ok(listed)
    }

    /// What is in no index, as git lists it, and a folder whose path is too long for git.
    async fn others(&self, index: &AbsPath) -> Result<(String, Option<String>), GitError> {
        let ask = ["ls-files", "--others", "--exclude-standard", "-z"];
        let (listed, said) = self.call(ask).await?.index(index).text_and_warnings().await?;
        Ok((listed, too_deep(&said)))
    }

    /// A folder whose path is too long for git, which therefore says nothing of what is in it.
    pub async fn too_deep(&self) -> Result<Option<String>, GitError> {
        Ok(self.others(&self.git_dir().join("index")).await?.1)
    }

    /// Files that no tree gets: those larger than agentd reads (a file under Git LFS is small in git), and those with a
    /// name that git refuses.
    async fn not_taken(&self, files: Vec<String>) -> Result<Vec<(String, NotInSnapshot)>, GitError> {
        let root = self.path().clone();
        let look = move || {
            let why = |path: &String| {
                let meta = root.join(path).as_path().symlink_metadata().ok()?;
                if !may_be_named(path, meta.is_symlink()) {
                    return Some(NotInSnapshot::Name);
                }
                (meta.is_file() && meta.len() > LARGEST_FILE).then_some(NotInSnapshot::Large(meta.len()))
            };
            files.into_iter().filter_map(|path| why(&path).map(|why| (path, why))).collect()
        };
        let mut found: Vec<(String, NotInSnapshot)> =
            tokio::task::spawn_blocking(look).await.map_err(|error| GitError::Lost(error.to_string()))?;
        if self.lfs() && !found.is_empty() {
            let paths: String = found.iter().map(|(path, _)| format!("{path}\0")).collect();
            let asked =
                self.call(["check-attr", "-z", "--stdin", "filter"]).await?.stdin(paths).text().await?;
            let under = output::under_lfs(&asked);
            found.retain(|(path, why)| *why == NotInSnapshot::Name || !under.contains(path.as_str()));
        }
        Ok(found)
    }

    /// Changed files that cannot be added. No snapshot and no commit has them.
    pub async fn left_out(&self) -> Result<Vec<(String, NotInSnapshot)>, GitError> {
        let found = self.snapshot(false).await?.not_taken;
        if found.is_empty() {
            return Ok(found);
        }
        // A submodule that is as it was committed does not matter here.
        let mut ask = vec!["ls-files", "--modified", "--others", "-z", "--"];
        ask.extend(found.iter().map(|(path, _)| path.as_str()));
        let index = self.git_dir().join(INDEX);
        let changed = self.call(ask).await?.env("GIT_LITERAL_PATHSPECS", "1").index(&index).text().await?;
        let changed: Vec<&str> = changed.split('\0').collect();
        let is_changed = |(path, why): &(String, NotInSnapshot)| {
            *why == NotInSnapshot::Deep || changed.contains(&path.as_str())
        };
        Ok(found.into_iter().filter(is_changed).collect())
    }

    /// Repositories that stand around and are no submodules. No snapshot and no commit has anything of them.
    pub async fn nested_repositories(&self) -> Result<Vec<String>, GitError> {
        let (_, index) = self.record().await?;
        let mut nested = self.listed(&index).await?.embedded;
        let links = self.committed_links(&nested).await?;
        nested.retain(|path| !links.iter().any(|(link, _)| link == path));
        Ok(nested)
    }

    /// Those of them that HEAD does not have.
    pub async fn too_large_and_new(&self) -> Result<Vec<(String, u64)>, GitError> {
        let found = self.left_out().await?.into_iter();
        let found: Vec<(String, u64)> = found
            .filter_map(|(path, why)| match why {
                NotInSnapshot::Large(bytes) => Some((path, bytes)),
                NotInSnapshot::Name | NotInSnapshot::Deep => None,
            })
            .collect();
        let Some(head) = self.head().await?.filter(|_| !found.is_empty()) else { return Ok(Vec::new()) };
        self.checkout()
            .library(move |repository| {
                let tree = repository.find_commit(super::checkout::oid(&head)?)?.tree()?;
                Ok(found.into_iter().filter(|(path, _)| tree.get_path(path.as_ref()).is_err()).collect())
            })
            .await
    }

    /// Takes over the commits that submodules stand on.
    async fn follow_submodules(&self, index: &AbsPath, links: Vec<(String, String)>) -> Result<(), GitError> {
        let mut lines = String::new();
        let mut links: BTreeMap<String, String> = links.into_iter().collect();
        for (path, entry) in self.left_behind().await? {
            links.remove(&path);
            lines.push_str(&match entry {
                Some(commit) => format!("160000 {commit}\t{path}\0"),
                None => format!("0 {}\t{path}\0", "0".repeat(40)),
            });
        }
        for (path, known) in links {
            let folder = self.path().join(&path);
            if folder.as_path().symlink_metadata().is_err() {
                lines.push_str(&format!("0 {}\t{path}\0", "0".repeat(known.len())));
                continue;
            }
            let head = tokio::task::spawn_blocking(move || commit_in(&folder)).await;
            let head = head.map_err(|error| GitError::Lost(error.to_string()))?;
            if let Some(head) = head
                && head.as_str() != known
            {
                lines.push_str(&format!("160000 {head}\t{path}\0"));
            }
        }
        if lines.is_empty() {
            return Ok(());
        }
        self.call(["update-index", "-z", "--index-info"]).await?.index(index).stdin(lines).done().await
    }

    /// Commits the present state on a ref that is never pushed. HEAD is its parent; a commit that is being merged is
    /// its second parent. The branch does not move.
    pub async fn checkpoint(&self, reference: &str, message: &str) -> Result<CommitId, GitError> {
        Ok(self.checkpoint_after(None, reference, message).await?.commit)
    }

    /// The same after a checkpoint, which is named again where nothing has changed since.
    pub async fn checkpoint_after(
        &self,
        last: Option<&Checkpoint>,
        reference: &str,
        message: &str,
    ) -> Result<Checkpoint, GitError> {
        let beside = self.beside().await?;
        let tree = self.snapshot_beside(false, beside.clone()).await?.tree;
        self.keep_tree(&tree, beside, last, (reference, message)).await
    }

    /// Removes new files from the worktree. The state with them is kept on `reference`, above what that kept before.
    /// Gives the commit that keeps it.
    pub async fn set_aside(&self, paths: &[String], reference: &str) -> Result<CommitId, GitError> {
        let (present, index) = self.record().await?;
        let work = self.git_dir().join(format!("{INDEX}-{}", uuid::Uuid::new_v4().simple()));
        copy(&index, &work).await?;
        self.forget(&work, paths).await?;
        let wanted = self.call(["write-tree"]).await?.index(&work).text().await?.trim().to_owned();
        files::remove_file(work.as_path())?;
        self.become_tree((&present, &index), &wanted, reference).await
    }

    /// Keeps files that no snapshot takes, since they are excluded, on `reference`, above what that kept before. They stay
    /// in the worktree.
    pub async fn keep_excluded(&self, paths: &[String], reference: &str) -> Result<(), GitError> {
        let (_, index) = self.record().await?;
        let work = self.git_dir().join(format!("{INDEX}-{}", uuid::Uuid::new_v4().simple()));
        copy(&index, &work).await?;
        let named: String = paths.iter().map(|path| format!("{path}\0")).collect();
        self.call(["update-index", "--add", "-z", "--stdin"]).await?.index(&work).stdin(named).done().await?;
        let tree = self.call(["write-tree"]).await?.index(&work).text().await?.trim().to_owned();
        files::remove_file(work.as_path())?;
        let former = self.checkout().reference(reference).await?;
        if let Some(former) = &former
            && self.checkout().tree_of_commit(former).await? == tree
        {
            return Ok(());
        }
        let saved = self.commit_of(&tree, "agentd: what is no part of the work\n", former).await?;
        self.checkout().set_ref(reference, &saved).await
    }

    /// Makes the files those of HEAD again. Their former state is kept on `reference`. `None`: they were equal to HEAD.
    pub async fn put_back(&self, reference: &str) -> Result<Option<CommitId>, GitError> {
        let (present, index) = self.record().await?;
        let Some(head) = self.head().await? else { return Ok(None) };
        let wanted = self.checkout().tree_of_commit(&head).await?;
        if present == wanted {
            return Ok(None);
        }
        self.become_tree((&present, &index), &wanted, reference).await.map(Some)
    }

    /// The same before the branch moves on to what others pushed, so that nothing here is in the way.
    pub async fn give_way(&self, reference: &str) -> Result<Option<CommitId>, GitError> {
        let kept = self.put_back(reference).await?;
        if kept.is_some() {
            // git's own index knows the files by their times, and takes one that was written anew for changed until it has looked.
            self.call(["update-index", "-q", "--refresh"]).await?.exit().await?;
        }
        Ok(kept)
    }

    async fn become_tree(
        &self,
        (present, index): (&str, &AbsPath),
        wanted: &str,
        reference: &str,
    ) -> Result<CommitId, GitError> {
        let former = self.checkout().reference(reference).await?;
        let saved = self.commit_of(present, "agentd: what is no part of the work\n", former).await?;
        self.checkout().set_ref(reference, &saved).await?;
        // The index has every present file, so that files that the wanted tree lacks are removed.
        self.something_ran();
        self.call(["read-tree", "--reset", "-u", wanted]).await?.index(index).done().await?;
        self.something_ran();
        let (now, index) = self.record().await?;
        if now != wanted {
            // git does not say that it could not remove a file, as from a folder in which nobody may write.
            self.open_to_owner().await?;
            self.call(["read-tree", "--reset", "-u", wanted]).await?.index(&index).done().await?;
            self.something_ran();
        }
        Ok(saved)
    }

    async fn commit_of(
        &self,
        tree: &str,
        message: &str,
        former: Option<CommitId>,
    ) -> Result<CommitId, GitError> {
        let mut args = vec!["commit-tree".to_owned(), "--no-gpg-sign".into(), tree.to_owned()];
        for parent in [self.head().await?, self.merge_head(), former].into_iter().flatten() {
            args.extend(["-p".into(), parent.to_string()]);
        }
        args.extend(["-F".into(), "-".into()]);
        let who = Identity::agentd();
        let id = self.call(args).await?.stdin(message).identity(&who, &who).text().await?;
        CommitId::parse(&id).map_err(|error| GitError::Lost(error.to_string()))
    }

    /// Makes the files those of `commit` again (D70). The present state is kept first, on `rescue_ref`, unless it is
    /// that state already. Ignored files stay. The branch stays where it is; `move_branch` moves it (and HEAD with
    /// it) to the commit's parent, the commit that a checkpoint was made on. A merge that waited for its commit waits again.
    pub async fn restore(
        &self,
        commit: &CommitId,
        rescue_ref: &str,
        move_branch: bool,
    ) -> Result<Restored, GitError> {
        self.clear_stale_locks()?;
        self.something_ran();
        let (present, index) = self.record().await?;
        let wanted = self.checkout().tree_of_commit(commit).await?;
        let head = self.head().await?;
        let [parent, merging] = self.parents_of(commit).await?;
        let target = parent.filter(|_| move_branch);
        let moves = target.is_some() && target != head;
        let mut rescued = None;
        // Files as the branch has them are no edits: so is a worktree that was made for what another node did.
        let edited = match &head {
            Some(head) => self.checkout().tree_of_commit(head).await? != present,
            None => true,
        };
        if present != wanted && edited || moves {
            // What a restore kept that was cut off stays below it.
            let former = self.checkout().reference(rescue_ref).await?;
            let saved = self.commit_of(&present, "agentd: state before a restore\n", former).await?;
            self.checkout().set_ref(rescue_ref, &saved).await?;
            rescued = Some(saved);
        }
        self.drop_unfinished_operations()?;
        if let (Some(target), true) = (&target, moves) {
            let full = self.branch().full();
            self.checkout().set_ref(&full, target).await?;
            self.call(["symbolic-ref", "HEAD", full.as_str()]).await?.done().await?;
        }
        // The index has every present file, so that files that the wanted tree lacks are removed.
        if let Some(other) = &merging {
            // git finds the lines that both sides changed only by merging again from a clean state.
            self.call(["read-tree", "--reset", "-u", "HEAD"]).await?.index(&index).done().await?;
            self.call(["reset", "--mixed", "--quiet"]).await?.done().await?;
            self.merge(other, &Identity::agentd()).await?;
            let (_, index) = self.record().await?;
            self.call(["read-tree", "--reset", "-u", wanted.as_str()]).await?.index(&index).done().await?;
            return Ok(Restored { rescued });
        }
        if present != wanted {
            self.call(["read-tree", "--reset", "-u", wanted.as_str()]).await?.index(&index).done().await?;
        }
        self.call(["reset", "--mixed", "--quiet", "--no-refresh"]).await?.done().await?;
        Ok(Restored { rescued })
    }

    /// The commit that a checkpoint was made on, and the commit that was being merged at that time.
    async fn parents_of(&self, commit: &CommitId) -> Result<[Option<CommitId>; 2], GitError> {
        let commit = commit.clone();
        self.checkout()
            .library(move |repository| {
                let commit = repository.find_commit(super::checkout::oid(&commit)?)?;
                let parent = |at| commit.parent_id(at).ok().map(super::checkout::commit_id).transpose();
                Ok([parent(0)?, parent(1)?])
            })
            .await
    }

    /// Sets aside what a killed git left unfinished in this worktree: merges, picks, rebases.
    pub(super) fn drop_unfinished_operations(&self) -> Result<(), GitError> {
        for name in [
            "MERGE_HEAD",
            "MERGE_MSG",
            "MERGE_MODE",
            "CHERRY_PICK_HEAD",
            "REVERT_HEAD",
            "AUTO_MERGE",
            "SQUASH_MSG",
        ] {
            files::remove_file(self.git_dir().join(name).as_path())?;
        }
        for name in ["rebase-merge", "rebase-apply", "sequencer"] {
            let path = self.git_dir().join(name);
            if path.as_path().exists() {
                files::set_aside(path.as_path(), "aside")?;
            }
        }
        Ok(())
    }

    /// Removes lock files that a killed git left in the administrative directory of this worktree, and old indexes of
    /// agentd. The caller holds the lease of the issue, and no process of a run is alive.
    pub(super) fn clear_stale_locks(&self) -> Result<(), GitError> {
        remove_stale_locks(self.git_dir())?;
        for entry in std::fs::read_dir(self.git_dir().as_path()).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("agentd-index-") {
                files::remove_file(&entry.path())?;
            }
        }
        Ok(())
    }
}

fn file_name(path: &AbsPath) -> String {
    path.as_path().file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The entries of an index.
fn staged(index: &AbsPath) -> Result<Listed, GitError> {
    let lost = |error: git2::Error| GitError::Lost(format!("{index}: {}", error.message()));
    let index = git2::Index::open(index.as_path()).map_err(lost)?;
    let mut listed = Listed::default();
    for entry in index.iter() {
        let path = String::from_utf8_lossy(&entry.path).into_owned();
        match entry.mode {
            SUBMODULE => listed.links.push((path, entry.id.to_string())),
            _ => listed.files.push(path),
        }
    }
    Ok(listed)
}

/// The hash of the whole index and of the commits that it is compared with.
async fn digest(index: &AbsPath, known: &[CommitId]) -> Result<[u8; 32], GitError> {
    let (index, known) = (index.clone(), known.to_vec());
    let work = move || match std::fs::read(index.as_path()) {
        Ok(bytes) => {
            let seen = known.iter().fold(Sha256::new(), |hash, commit| hash.chain_update(commit.as_str()));
            Ok(seen.chain_update(bytes).finalize().into())
        }
        Err(source) => Err(FileError::new("read", index.as_path(), source).into()),
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| GitError::Lost(error.to_string()))?
}

/// Copies an index with its file time; false if there is none. From that time git sees which files may have changed
/// while it was written.
pub(super) async fn copy(from: &AbsPath, to: &AbsPath) -> Result<bool, GitError> {
    let (from, to) = (from.clone(), to.clone());
    let work = move || match files::copy_with_time(from.as_path(), to.as_path()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| GitError::Lost(error.to_string()))?
}
