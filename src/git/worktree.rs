//! The worktree of an issue: its place, its commit, and what was changed in it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use tokio::sync::OnceCell;

use git2::{Delta, DiffFormat, DiffOptions, Oid, Repository, Tree};

use super::blob::{LARGEST_FILE, bounded_blob};
use super::checkout::{Checkout, commit_id, commit_of_ref, contains, oid};
use std::sync::Arc;

use super::error::GitError;
use super::last_snapshot::LastSnapshot;
use super::plain_store::KeptOpen;
use super::program::Call;
use super::tree_diff::tree_diff;
use crate::domain::denied_files::DeniedFiles;
use crate::domain::name::{BranchName, CommitId};
use crate::sys::files;
use crate::sys::paths::AbsPath;

/// Where HEAD and the branch stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// What HEAD says.
    head: String,
    /// The branch's commit.
    tip: Option<CommitId>,
}

/// A worktree on its branch. Its git files are found from the repository and never through the worktree's `.git`.
#[derive(Debug, Clone)]
pub struct Worktree {
    checkout: Checkout,
    path: AbsPath,
    git_dir: AbsPath,
    branch: BranchName,
    lfs: bool,
    last_snapshot: Arc<LastSnapshot>,
    excluded_by: Arc<OnceCell<AbsPath>>,
    kept_open: Arc<KeptOpen>,
}

/// One changed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// Relative to the worktree, with `/`.
    pub path: String,
    /// Its name before, where it was renamed.
    pub from: Option<String>,
    /// Lines added; 0 for binary files.
    pub added: u64,
    /// Lines removed; 0 for binary files.
    pub removed: u64,
    /// What happened to it.
    pub kind: ChangeKind,
    /// Whether it is binary.
    pub binary: bool,
}

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// New.
    Added,
    /// Other content.
    Modified,
    /// Gone.
    Deleted,
    /// Other name, perhaps other content.
    Renamed,
    /// Other kind or mode: executable, link, submodule.
    TypeChanged,
}

impl ChangeKind {
    /// One letter, as git shows it.
    pub fn letter(self) -> char {
        match self {
            Self::Added => 'A',
            Self::Modified => 'M',
            Self::Deleted => 'D',
            Self::Renamed => 'R',
            Self::TypeChanged => 'T',
        }
    }
}

/// A diff as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchText {
    /// Unified diff, cut at a line's end.
    pub text: String,
    /// Whether something was cut off.
    pub truncated: bool,
}

/// What one commit has that another one has not.
#[derive(Debug, Clone)]
pub struct Between {
    /// Its commits, oldest first.
    pub commits: Vec<LogEntry>,
    /// What they change.
    pub files: Vec<ChangedFile>,
}

/// One commit of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Its id.
    pub id: CommitId,
    /// First line of its message.
    pub subject: String,
    /// Whole message.
    pub message: String,
    /// Author's name.
    pub author: String,
}

/// Git LFS's own driver, as `git lfs install` writes it; given on each call, never read from the repository (D91).
pub(super) fn lfs_driver() -> Vec<(String, String)> {
    driver("git-lfs clean -- %f", "git-lfs smudge -- %f", "git-lfs filter-process")
}

/// No driver of Git LFS, whatever the user's own configuration says: where it is not wanted, or not there, pointers stay pointers.
fn no_lfs_driver() -> Vec<(String, String)> {
    driver("", "", "")
}

fn driver(clean: &str, smudge: &str, process: &str) -> Vec<(String, String)> {
    let required = if process.is_empty() { "false" } else { "true" };
    [
        ("filter.lfs.clean", clean),
        ("filter.lfs.smudge", smudge),
        ("filter.lfs.process", process),
        ("filter.lfs.required", required),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .to_vec()
}

impl Worktree {
    pub(super) fn new(
        checkout: &Checkout,
        path: AbsPath,
        git_dir: AbsPath,
        branch: BranchName,
        lfs: bool,
    ) -> Self {
        Self {
            checkout: checkout.clone(),
            path,
            git_dir,
            branch,
            lfs,
            last_snapshot: Arc::default(),
            excluded_by: Arc::default(),
            kept_open: Arc::default(),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &AbsPath {
        &self.path
    }

    /// Its branch.
    pub fn branch(&self) -> &BranchName {
        &self.branch
    }

    /// The repository.
    pub fn checkout(&self) -> &Checkout {
        &self.checkout
    }

    /// Git's administrative directory of it.
    pub fn git_dir(&self) -> &AbsPath {
        &self.git_dir
    }

    /// Its path relative to the main checkout, for people and records.
    pub fn display(&self) -> String {
        let root = self.checkout.root().as_path();
        self.path.as_path().strip_prefix(root).unwrap_or(self.path.as_path()).display().to_string()
    }

    /// What the last snapshot was.
    pub(super) fn last_snapshot(&self) -> &LastSnapshot {
        &self.last_snapshot
    }

    /// Its repository, kept open for storing.
    pub(super) fn kept_open(&self) -> &Arc<KeptOpen> {
        &self.kept_open
    }

    /// The file with the patterns of excluded files, once it is written.
    pub(super) fn excluded_by(&self) -> &OnceCell<AbsPath> {
        &self.excluded_by
    }

    /// Whether Git LFS works in it.
    pub(super) fn lfs(&self) -> bool {
        self.lfs
    }

    /// A call on this worktree.
    pub(super) async fn call<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<Call, GitError> {
        let exclude = ("core.excludesFile".to_owned(), self.exclude_file().await?.to_string());
        let call = self.checkout.call_in(&self.git_dir, &self.path, args).await?.config([exclude]);
        Ok(call.config(if self.lfs { lfs_driver() } else { no_lfs_driver() }))
    }

    /// Whether git ignores a path of it (relative, with `/`).
    pub async fn ignores(&self, path: &str) -> Result<bool, GitError> {
        Ok(self.call(["check-ignore", "--quiet", "--", path]).await?.exit().await?.success())
    }

    /// Keeps a path out of every commit that is made here, in this repository only. It has no effect on tracked files.
    pub async fn keep_out(&self, path: &str) -> Result<(), GitError> {
        let _turn = self.checkout.turn().await?;
        let exclude = self.checkout.common_dir().join("info").join("exclude");
        files::ensure_line(exclude.as_path(), &format!("/{path}"))?;
        self.last_snapshot().forget_trees();
        Ok(())
    }

    /// The ref that HEAD names, or the commit it is detached at.
    pub(super) fn head_text(&self) -> Result<String, GitError> {
        let file = self.git_dir.join("HEAD");
        let text = fs::read_to_string(file.as_path()).map_err(|e| Checkout::file_error("read", &file, e))?;
        Ok(text.trim_end().to_owned())
    }

    /// Its commit; `None` before the first commit of the branch.
    pub async fn head(&self) -> Result<Option<CommitId>, GitError> {
        let text = self.head_text()?;
        match text.strip_prefix("ref: ") {
            Some(full) => self.checkout.reference(full).await,
            None => CommitId::parse(&text).map(Some).map_err(|error| GitError::Lost(error.to_string())),
        }
    }

    /// What differs from the last commit, with untracked files and without ignored ones.
    pub async fn status(&self) -> Result<Vec<ChangedFile>, GitError> {
        self.release_changed().await?;
        match self.head().await? {
            Some(head) => self.changes(&head).await,
            None => self.changes_from(None).await,
        }
    }

    /// Whether nothing differs from the last commit, found without writing an object.
    pub async fn is_clean(&self) -> Result<bool, GitError> {
        self.release_changed().await?;
        let ask = ["status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=dirty"];
        Ok(self.call(ask).await?.text().await?.trim().is_empty())
    }

    /// What differs between a commit and the present state, committed or not.
    pub async fn changes(&self, base: &CommitId) -> Result<Vec<ChangedFile>, GitError> {
        self.changes_from(Some(base.clone())).await
    }

    async fn changes_from(&self, base: Option<CommitId>) -> Result<Vec<ChangedFile>, GitError> {
        let present = self.tree().await?;
        self.checkout.library(move |repository| changes(repository, base.as_ref(), &present)).await
    }

    /// The same as text: a unified diff of at most `cap` bytes, of everything or of one path (file or directory).
    pub async fn diff(&self, base: &CommitId, path: Option<&str>, cap: usize) -> Result<PatchText, GitError> {
        Ok(self.diff_without(base, path, cap, DeniedFiles::default()).await?.0)
    }

    /// The same without denied files, and how many differ of these.
    pub async fn diff_without(
        &self,
        base: &CommitId,
        path: Option<&str>,
        cap: usize,
        denied: DeniedFiles,
    ) -> Result<(PatchText, u64), GitError> {
        let present = self.tree().await?;
        let (base, path) = (base.clone(), path.map(str::to_owned));
        self.checkout
            .library(move |repository| {
                let old = tree_of(repository, Some(&base))?;
                let new = repository.find_tree(Oid::from_str(&present)?)?;
                let mut options = bounded();
                if let Some(path) = &path {
                    options.pathspec(path).disable_pathspec_match(true);
                }
                let diff = tree_diff(repository, old.as_ref(), Some(&new), &mut options)?;
                let is_denied = |delta: &git2::DiffDelta<'_>| {
                    let path = delta.new_file().path().or(delta.old_file().path()).unwrap_or(Path::new(""));
                    !denied.is_empty() && denied.contains(&path.to_string_lossy())
                };
                let left_out = diff.deltas().filter(&is_denied).count() as u64;
                Ok((patch_text(&diff, cap, |delta| !is_denied(delta))?, left_out))
            })
            .await
    }

    /// Commits between `base` and HEAD, oldest first.
    pub async fn commits(&self, base: &CommitId) -> Result<Vec<LogEntry>, GitError> {
        match self.head().await? {
            Some(head) => self.log(base, &head).await,
            None => Ok(Vec::new()),
        }
    }

    /// What one commit has that another one has not.
    pub async fn between(&self, from: &CommitId, to: &CommitId) -> Result<Between, GitError> {
        let commits = self.log(from, to).await?;
        let tree = self.checkout.tree_of_commit(to).await?;
        let (from, to) = (from.clone(), to.clone());
        let files = self
            .checkout
            .library(move |repository| {
                let base = commit_id(repository.merge_base(oid(&from)?, oid(&to)?)?)?;
                changes(repository, Some(&base), &tree)
            })
            .await?;
        Ok(Between { commits, files })
    }

    async fn log(&self, base: &CommitId, head: &CommitId) -> Result<Vec<LogEntry>, GitError> {
        let (base, head) = (base.clone(), head.clone());
        self.checkout
            .library(move |repository| {
                let mut walk = repository.revwalk()?;
                walk.set_sorting(git2::Sort::TOPOLOGICAL | git2::Sort::REVERSE)?;
                walk.push(oid(&head)?)?;
                walk.hide(oid(&base)?)?;
                let mut log = Vec::new();
                for id in walk {
                    let commit = repository.find_commit(id?)?;
                    let message = String::from_utf8_lossy(commit.message_bytes()).into_owned();
                    log.push(LogEntry {
                        id: commit_id(commit.id())?,
                        subject: message.lines().next().unwrap_or_default().to_owned(),
                        message,
                        author: String::from_utf8_lossy(commit.author().name_bytes()).into_owned(),
                    });
                }
                Ok(log)
            })
            .await
    }

    /// Where HEAD and the branch stand.
    pub async fn standing(&self) -> Result<Standing, GitError> {
        Ok(Standing { head: self.head_text()?, tip: self.checkout.reference(&self.branch.full()).await? })
    }

    /// Puts HEAD and the branch back to where they stood. Where they are now is kept on refs that begin with `kept`; these are given.
    pub async fn put_branch_back(&self, was: &Standing, kept: &str) -> Result<Vec<String>, GitError> {
        let (tip, head) = (self.checkout.reference(&self.branch.full()).await?, self.head().await?);
        let mut refs = Vec::new();
        for (commit, end) in [(&tip, "branch"), (&head, "head")] {
            if let Some(commit) = commit.as_ref().filter(|commit| was.tip.as_ref() != Some(commit)) {
                let reference = format!("{kept}-{end}");
                self.checkout.set_ref(&reference, commit).await?;
                refs.push(reference);
            }
        }
        if let Some(tip) = &was.tip {
            self.checkout.set_ref(&self.branch.full(), tip).await?;
        }
        match was.head.strip_prefix("ref: ") {
            Some(full) => self.call(["symbolic-ref", "HEAD", full]).await?.done().await?,
            None => self.call(["update-ref", "--no-deref", "HEAD", was.head.as_str()]).await?.done().await?,
        }
        self.call(["reset", "--mixed", "--quiet", "--no-refresh"]).await?.done().await?;
        Ok(refs)
    }

    /// Makes sure that HEAD is on the branch of the issue. Commits that were made elsewhere (detached, or on another
    /// branch) are taken over if they continue the branch. Otherwise it is an error and nothing changes. True: HEAD was
    /// moved back.
    pub async fn return_to_branch(&self) -> Result<bool, GitError> {
        let full = self.branch.full();
        let on = self.head_text()?;
        if on == format!("ref: {full}") {
            return Ok(false);
        }
        let moved = || GitError::HeadMoved {
            path: self.display(),
            on: on.trim_start_matches("ref: refs/heads/").to_owned(),
            branch: self.branch.to_string(),
        };
        let head = self.head().await?;
        let wanted = full.clone();
        let tip = self.checkout.library(move |repository| commit_of_ref(repository, &wanted)).await?;
        let (Some(head), Some(tip)) = (head, tip) else { return Err(moved()) };
        let (newer, older) = (head.clone(), tip.clone());
        if !self.checkout.library(move |repository| contains(repository, &newer, &older)).await? {
            return Err(moved());
        }
        self.checkout.update_ref(&full, Some(&tip), &head).await?;
        self.call(["symbolic-ref", "-m", "agentd: back to the issue's branch", "HEAD", full.as_str()])
            .await?
            .done()
            .await?;
        Ok(true)
    }
}

fn tree_of<'r>(repository: &'r Repository, commit: Option<&CommitId>) -> Result<Option<Tree<'r>>, GitError> {
    let Some(commit) = commit else { return Ok(None) };
    let missing = |_| GitError::Missing { what: format!("commit {commit}") };
    Ok(Some(repository.find_commit(oid(commit)?).map_err(missing)?.tree()?))
}

fn changes(
    repository: &Repository,
    base: Option<&CommitId>,
    present: &str,
) -> Result<Vec<ChangedFile>, GitError> {
    let old = tree_of(repository, base)?;
    let new = repository.find_tree(Oid::from_str(present)?)?;
    let mut diff = tree_diff(repository, old.as_ref(), Some(&new), &mut bounded())?;
    let mut similar = git2::DiffFindOptions::new();
    // To find what is alike, whole files are read.
    similar.exact_match_only(has_large(repository, &diff)?);
    diff.find_similar(Some(&mut similar))?;
    let name = |path: Option<&Path>| path.unwrap_or(Path::new("")).to_string_lossy().into_owned();
    let mut found = Vec::new();
    for (at, delta) in diff.deltas().enumerate() {
        let kind = match delta.status() {
            Delta::Added | Delta::Copied => ChangeKind::Added,
            Delta::Deleted => ChangeKind::Deleted,
            Delta::Renamed => ChangeKind::Renamed,
            Delta::Typechange => ChangeKind::TypeChanged,
            _ if delta.old_file().id() == delta.new_file().id() => ChangeKind::TypeChanged,
            _ => ChangeKind::Modified,
        };
        let patch = git2::Patch::from_diff(&diff, at)?;
        let (added, removed) = match &patch {
            Some(patch) => patch.line_stats().map(|(_, added, removed)| (added as u64, removed as u64))?,
            None => (0, 0),
        };
        let binary = patch.is_none_or(|patch| patch.delta().flags().is_binary());
        let gone = kind == ChangeKind::Deleted;
        let file = if gone { delta.old_file() } else { delta.new_file() };
        let from = (kind == ChangeKind::Renamed).then(|| name(delta.old_file().path()));
        found.push(ChangedFile { path: name(file.path()), from, added, removed, kind, binary });
    }
    Ok(found)
}

/// A comparison that does not open files that are too large. They are shown as binary.
fn bounded() -> DiffOptions {
    let mut options = DiffOptions::new();
    options.max_size(i64::try_from(LARGEST_FILE).unwrap_or(i64::MAX));
    options
}

fn has_large(repository: &Repository, diff: &git2::Diff<'_>) -> Result<bool, GitError> {
    let odb = repository.odb()?;
    let large = |file: git2::DiffFile<'_>| {
        let blob = !file.id().is_zero() && file.mode() != git2::FileMode::Commit;
        blob && odb.read_header(file.id()).is_ok_and(|(length, _)| length as u64 > LARGEST_FILE)
    };
    Ok(diff.deltas().any(|delta| large(delta.old_file()) || large(delta.new_file())))
}

impl Checkout {
    /// A file of a tree: its bytes and its blob id.
    pub async fn tree_blob(&self, tree: &str, path: &str) -> Result<Option<(String, Vec<u8>)>, GitError> {
        let (tree, path) = (Oid::from_str(tree)?, PathBuf::from(path));
        self.library(move |repository| {
            let tree = repository.find_tree(tree)?;
            let entry = match tree.get_path(&path) {
                Ok(entry) => entry,
                Err(error) if error.code() == git2::ErrorCode::NotFound => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let bytes = bounded_blob(repository, entry.id(), &path.to_string_lossy())?;
            Ok(bytes.map(|bytes| (entry.id().to_string(), bytes)))
        })
        .await
    }

    /// The bytes of a blob; `None` = there is none of that id. One that is too long to be read is an error.
    pub async fn blob_of_id(&self, id: &str) -> Result<Option<Vec<u8>>, GitError> {
        let Ok(id) = Oid::from_str(id) else { return Ok(None) };
        self.library(move |repository| bounded_blob(repository, id, "a changed file")).await
    }

    /// The tree of a commit, for comparing with [`Worktree::tree`].
    pub async fn tree_of_commit(&self, commit: &CommitId) -> Result<String, GitError> {
        let commit = commit.clone();
        self.library(move |repository| Ok(repository.find_commit(oid(&commit)?)?.tree_id().to_string())).await
    }

    /// The files that differ between two commits.
    pub async fn changed_between(
        &self,
        base: &CommitId,
        head: &CommitId,
    ) -> Result<Vec<ChangedFile>, GitError> {
        let (base, tree) = (base.clone(), self.tree_of_commit(head).await?);
        self.library(move |repository| changes(repository, Some(&base), &tree)).await
    }

    /// What differs between two commits, as a unified diff of at most `cap` bytes.
    pub async fn diff(&self, base: &CommitId, head: &CommitId, cap: usize) -> Result<PatchText, GitError> {
        let (base, head) = (base.clone(), head.clone());
        self.library(move |repository| {
            let (old, new) = (tree_of(repository, Some(&base))?, tree_of(repository, Some(&head))?);
            let diff = tree_diff(repository, old.as_ref(), new.as_ref(), &mut bounded())?;
            patch_text(&diff, cap, |_| true)
        })
        .await
    }
}

fn patch_text(
    diff: &git2::Diff<'_>,
    cap: usize,
    shows: impl Fn(&git2::DiffDelta<'_>) -> bool,
) -> Result<PatchText, GitError> {
    let mut bytes = Vec::new();
    let mut truncated = false;
    let printed = diff.print(DiffFormat::Patch, |delta, _, line| {
        if !shows(&delta) {
            return true;
        }
        let marked = matches!(line.origin(), '+' | '-' | ' ');
        if bytes.len() + usize::from(marked) + line.content().len() > cap {
            truncated = true;
            return false;
        }
        if marked {
            bytes.push(line.origin() as u8);
        }
        bytes.extend_from_slice(line.content());
        true
    });
    match printed {
        Err(error) if !(truncated && error.code() == git2::ErrorCode::User) => Err(error.into()),
        _ => Ok(PatchText { text: String::from_utf8_lossy(&bytes).into_owned(), truncated }),
    }
}
