//! The main checkout of a repository: where it is, its refs, its remotes. Its files, index and HEAD are never touched.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use git2::{ErrorCode, ObjectType, Oid, Repository};

use super::blob::bounded_blob;
use super::error::GitError;
use super::hardening::{self, Hardening};
use super::program::{Call, GitProgram, Identity, failure};
use crate::domain::clone_contents::CloneContents;
use crate::domain::name::{BranchName, CommitId};
use crate::domain::shell_words;
use crate::sys::files::{self, FileError};
use crate::sys::lock::Turn;
use crate::sys::paths::AbsPath;

/// How long agentd waits for the administrative steps of other processes.
const TURN_PATIENCE: Duration = Duration::from_secs(120);

/// A repository's main checkout. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Checkout {
    git: GitProgram,
    root: AbsPath,
    common: AbsPath,
    hooks: bool,
    excluded: Arc<[String]>,
    judged: Arc<Mutex<HashMap<AbsPath, Judged>>>,
}

#[derive(Debug, Clone)]
struct Judged {
    stamps: Vec<Option<files::Stamp>>,
    hardening: Arc<Hardening>,
}

/// A branch whose name makes another one impossible: git keeps `a` as a file and `a/b` below a directory `a`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the branch \"{existing}\" {} stands in the way of \"{wanted}\"; rename it: `{}`",
    remote.as_ref().map_or_else(|| "in this repository".to_owned(), |remote| format!("on the remote \"{remote}\"")),
    self.remedy())]
pub struct RefConflict {
    /// The branch in the way.
    pub existing: String,
    /// The branch wanted.
    pub wanted: String,
    /// The remote that has it; `None` = it is here.
    pub remote: Option<String>,
}

impl RefConflict {
    /// The command that ends the conflict. The new name is neither a directory of other names nor inside one.
    fn remedy(&self) -> String {
        let (old, new) = (&self.existing, format!("{}-branch", self.existing.replace('/', "-")));
        match &self.remote {
            None => shell_words::line(&["git", "branch", "-m", old, &new]),
            Some(remote) => {
                let (made, gone) = (format!("FETCH_HEAD:refs/heads/{new}"), format!(":refs/heads/{old}"));
                [
                    shell_words::line(&["git", "fetch", remote, old]),
                    shell_words::line(&["git", "push", remote, &made, &gone]),
                ]
                .join(" && ")
            }
        }
    }
}

/// Removes the lock files that a killed git left beside an index and a HEAD. The caller is alone there.
pub(super) fn remove_stale_locks(git_dir: &AbsPath) -> Result<(), GitError> {
    for name in ["index.lock", "HEAD.lock"] {
        files::remove_file(git_dir.join(name).as_path())?;
    }
    Ok(())
}

impl Checkout {
    /// The main checkout that `dir` is in. Refuses a linked worktree, a bare repository and its worktrees. `hooks`: whether the
    /// repository's own hooks run (`worktree.hooks`).
    pub async fn open(git: GitProgram, dir: &AbsPath, hooks: bool) -> Result<Self, GitError> {
        let path = dir.to_string();
        let ask =
            ["rev-parse", "--path-format=absolute", "--git-common-dir", "--git-dir", "--is-bare-repository"];
        let exit = match git.call(dir, ask).exit().await {
            Err(GitError::Process(crate::sys::process::ProcessError::NoDirectory { .. })) => {
                return Err(GitError::NotARepository { path });
            }
            other => other?,
        };
        if !exit.success() {
            let said = exit.stderr.text();
            return Err(match said.as_str() {
                said if said.contains("dubious ownership") => GitError::ForeignOwner { path },
                said if said.contains("not a git repository") => GitError::NotARepository { path },
                _ => failure("rev-parse", &exit, None),
            });
        }
        let answer = exit.stdout.text();
        let mut lines = answer.lines();
        let (common, git_dir) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let lost = |error: crate::sys::paths::NotAbsolute| GitError::Lost(error.to_string());
        let (common, git_dir) = (AbsPath::new(common).map_err(lost)?, AbsPath::new(git_dir).map_err(lost)?);
        if common != git_dir {
            let asked = git.call(&common, ["rev-parse", "--is-bare-repository"]).text().await?;
            if asked.trim() == "true" {
                return Err(GitError::WorktreeOfBare { path, main: common.to_string() });
            }
            let main = common.parent().unwrap_or_else(|| common.clone()).to_string();
            return Err(GitError::LinkedWorktree { path, main });
        }
        if lines.next() == Some("true") {
            return Err(GitError::Bare { path });
        }
        let top = git.call(dir, ["rev-parse", "--path-format=absolute", "--show-toplevel"]).text().await?;
        let root = AbsPath::new(top.trim_end_matches('\n')).map_err(lost)?;
        let checkout = Self { git, root, common, hooks, excluded: Arc::default(), judged: Arc::default() };
        checkout.library(|_| Ok(())).await?;
        Ok(checkout)
    }

    /// The same with patterns of files that are in no commit, beside the built-in ones (`commit.exclude`).
    #[must_use]
    pub fn excluding(self, patterns: &[String]) -> Self {
        Self { excluded: patterns.into(), ..self }
    }

    /// A clone that agentd manages: an empty repository with its remote. It is made if it does not exist.
    pub async fn manage(
        git: GitProgram,
        dir: &AbsPath,
        (remote, url): (&str, &str),
        contents: CloneContents,
    ) -> Result<Self, GitError> {
        if !dir.join(".git").join("agentd").as_path().exists() {
            files::create_private_dir(dir.as_path())?;
            // Also completes one that a kill left half made.
            git.call(dir, ["init", "--quiet"]).done().await?;
            if contents == CloneContents::Blobless {
                git.call(dir, ["config", hardening::BLOBLESS, "true"]).done().await?;
            }
        }
        let checkout = Self::open(git.clone(), dir, false).await?;
        match checkout.remote_url(remote).await? {
            Some(known) if known == url => {}
            Some(_) => git.call(dir, ["remote", "set-url", "--", remote, url]).done().await?,
            None => git.call(dir, ["remote", "add", "--", remote, url]).done().await?,
        }
        Ok(checkout)
    }

    /// Bytes of the packs here, also of one that is being fetched.
    pub async fn packed_bytes(&self) -> u64 {
        let packs = self.common.join("objects").join("pack");
        let sum = move || {
            let entries = std::fs::read_dir(packs.as_path()).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).sum()
        };
        tokio::task::spawn_blocking(sum).await.unwrap_or_default()
    }

    /// The main checkout's directory.
    pub fn root(&self) -> &AbsPath {
        &self.root
    }

    /// The directory that all worktrees share, usually `.git`.
    pub fn common_dir(&self) -> &AbsPath {
        &self.common
    }

    /// The lease file of an issue (D75).
    pub fn lease_file(&self, worktree_name: &str) -> AbsPath {
        self.lease_folder().join(format!("{worktree_name}.json"))
    }

    /// The folder of the lease files.
    pub fn lease_folder(&self) -> AbsPath {
        self.common.join("agentd")
    }

    /// The program it uses.
    pub(super) fn program(&self) -> &GitProgram {
        &self.git
    }

    /// The operator's patterns of files that are in no commit.
    pub(super) fn excluded(&self) -> &[String] {
        &self.excluded
    }

    /// Whether the repository's own hooks run.
    pub(super) fn hooks(&self) -> bool {
        self.hooks
    }

    /// A call on the shared directory with the files of the main checkout. It is for commands that change neither index
    /// nor files.
    pub(super) async fn call<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<Call, GitError> {
        self.call_in(&self.common, &self.root, args).await
    }

    /// A call on one worktree, with the repository's own configuration disarmed.
    pub(super) async fn call_in<A: AsRef<OsStr>>(
        &self,
        git_dir: &AbsPath,
        work_tree: &AbsPath,
        args: impl IntoIterator<Item = A>,
    ) -> Result<Call, GitError> {
        let hardening = self.hardening(git_dir).await?;
        let call = self.git.call(work_tree, args).at(git_dir, Some(work_tree));
        Ok(call
            .config(hardening.overrides.iter().cloned())
            .fetches_missing(hardening.partial && !hardening.blobless))
    }

    /// What the configuration of the repository may not do. It is read again when its files or the user's change.
    pub(super) async fn hardening(&self, git_dir: &AbsPath) -> Result<Arc<Hardening>, GitError> {
        let watched = [
            self.common.join("config"),
            self.common.join("config.worktree"),
            git_dir.join("config.worktree"),
        ];
        let stamps = watched.iter().map(|file| files::stamp(file.as_path()));
        // The user's own are set while a daemon works, too.
        let users = self.git.user_configuration();
        let stamps: Vec<_> = stamps.chain(users.map(|file| files::stamp(&file))).collect();
        let known = self.judged.lock().unwrap_or_else(PoisonError::into_inner).get(git_dir).cloned();
        if let Some(known) = known
            && known.stamps == stamps
            && !known.hardening.includes
        {
            return Ok(known.hardening);
        }
        let hardening = self.read_hardening(git_dir).await?;
        let judged = Judged { stamps, hardening: Arc::clone(&hardening) };
        self.judged.lock().unwrap_or_else(PoisonError::into_inner).insert(git_dir.clone(), judged);
        Ok(hardening)
    }

    async fn read_hardening(&self, git_dir: &AbsPath) -> Result<Arc<Hardening>, GitError> {
        let list = ["config", "--list", "--includes", "--show-scope", "-z"];
        let listing = self.git.call(&self.root, list).at(git_dir, Some(&self.root)).bytes().await?;
        Ok(Arc::new(hardening::judge(&listing)))
    }

    /// What the configuration says that people set, as it is now.
    pub(super) async fn settings(&self) -> Result<Arc<Hardening>, GitError> {
        let known = self.hardening(&self.common).await?;
        // Times of files tell nothing of those that they include.
        if known.user_includes { self.read_hardening(&self.common).await } else { Ok(known) }
    }

    /// Runs `work` on the repository through git2, off the runtime's threads.
    pub(super) async fn library<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Repository) -> Result<T, GitError> + Send + 'static,
    ) -> Result<T, GitError> {
        let (common, root) = (self.common.clone(), self.root.clone());
        let task = tokio::task::spawn_blocking(move || {
            let repository = Repository::open(common.as_path()).map_err(|error| match error.code() {
                ErrorCode::Owner => GitError::ForeignOwner { path: root.to_string() },
                _ => GitError::Format { path: root.to_string(), detail: error.message().to_owned() },
            })?;
            work(&repository)
        });
        task.await.map_err(|error| GitError::Lost(error.to_string()))?
    }

    /// Waits for the lock of this repository for an administrative step, across processes (D57).
    pub(super) async fn turn(&self) -> Result<Turn, GitError> {
        let path = self.common.join("agentd").join("worktrees.lock");
        let wait = move || Turn::wait(path.as_path(), TURN_PATIENCE).map(|turn| (turn, path));
        let waited =
            tokio::task::spawn_blocking(wait).await.map_err(|error| GitError::Lost(error.to_string()))?;
        let (turn, path) = waited?;
        turn.ok_or_else(|| GitError::Locked {
            detail: format!("{path} was held for {} s", TURN_PATIENCE.as_secs()),
        })
    }

    /// The names of all remotes.
    pub async fn remote_names(&self) -> Result<Vec<String>, GitError> {
        self.library(|repository| {
            let names = repository.remotes()?;
            Ok(names.iter().flatten().flatten().map(str::to_owned).collect())
        })
        .await
    }

    /// The URL of a remote; `None` where there is no such remote.
    pub async fn remote_url(&self, name: &str) -> Result<Option<String>, GitError> {
        let name = name.to_owned();
        self.library(move |repository| match repository.find_remote(&name) {
            Ok(remote) => Ok(remote.url().ok().map(str::to_owned).filter(|url| !url.is_empty())),
            Err(error) if matches!(error.code(), ErrorCode::NotFound | ErrorCode::InvalidSpec) => Ok(None),
            Err(error) => Err(error.into()),
        })
        .await
    }

    /// The identity that commits get: the repository's, else the user's, else `None`.
    pub async fn identity(&self) -> Result<Option<Identity>, GitError> {
        let judged = self.settings().await?;
        let (name, email) = (judged.user_name.clone(), judged.user_email.clone());
        Ok((!name.is_empty() && !email.is_empty()).then_some(Identity { name, email }))
    }

    /// The commit of a local branch.
    pub async fn local_branch(&self, branch: &BranchName) -> Result<Option<CommitId>, GitError> {
        self.reference(&branch.full()).await
    }

    /// The commit that a full ref name stands for.
    pub async fn reference(&self, full: &str) -> Result<Option<CommitId>, GitError> {
        let full = full.to_owned();
        self.library(move |repository| commit_of_ref(repository, &full)).await
    }

    /// The branch of the main checkout; `None` when HEAD is detached. A branch without commits has a name too.
    pub async fn current_branch(&self) -> Result<Option<String>, GitError> {
        self.library(|repository| {
            let head = repository.find_reference("HEAD")?;
            let target = head.symbolic_target().ok().flatten().map(str::to_owned);
            Ok(target.and_then(|full| full.strip_prefix("refs/heads/").map(str::to_owned)))
        })
        .await
    }

    /// The ref that a branch stands for, where it is but another name of one.
    pub(super) async fn symbolic_target(&self, branch: &BranchName) -> Result<Option<String>, GitError> {
        let full = branch.full();
        self.library(move |repository| match repository.find_reference(&full) {
            Ok(reference) => Ok(reference.symbolic_target().ok().flatten().map(str::to_owned)),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        })
        .await
    }

    /// A local branch that makes `branch` impossible (D34). For the remote's, see [`Checkout::remote_place`].
    pub async fn ref_conflict(&self, branch: &BranchName) -> Result<Option<RefConflict>, GitError> {
        let wanted = branch.clone();
        self.library(move |repository| {
            let mut names = Vec::new();
            for reference in repository.references_glob("refs/heads/*")? {
                names.extend(reference?.shorthand().ok().map(str::to_owned));
            }
            Ok(conflict(&wanted, names.iter().map(String::as_str), None))
        })
        .await
    }

    /// The repository's tags, as the lines of `packed-refs` have them.
    pub(super) async fn tags(&self) -> Result<String, GitError> {
        self.library(move |repository| {
            let mut lines = String::from("# pack-refs with:\n");
            for reference in repository.references_glob("refs/tags/*")? {
                let reference = reference?;
                if let (Ok(name), Some(id)) = (reference.name(), reference.target()) {
                    lines += &format!("{id} {name}\n");
                }
            }
            Ok(lines)
        })
        .await
    }

    /// Whether `ancestor` is in the history of `descendant` (or the same commit). An unknown commit is in no history.
    pub async fn is_ancestor(&self, ancestor: &CommitId, descendant: &CommitId) -> Result<bool, GitError> {
        let (ancestor, descendant) = (ancestor.clone(), descendant.clone());
        self.library(move |repository| contains(repository, &descendant, &ancestor)).await
    }

    /// Which of these files, named from the root of the checkout, have a content that some commit of the repository
    /// has. Whoever may read the repository learns nothing new from them.
    pub async fn known_files(&self, names: &'static [&'static str]) -> Result<Vec<AbsPath>, GitError> {
        let root = self.root().clone();
        self.library(move |repository| {
            let objects = repository.odb()?;
            let known = |file: &AbsPath| {
                let plain = file.as_path().symlink_metadata().is_ok_and(|meta| meta.is_file());
                let id = plain.then(|| Oid::hash_file(ObjectType::Blob, file.as_path()).ok()).flatten();
                id.is_some_and(|id| objects.exists(id))
            };
            Ok(names.iter().map(|name| root.join(*name)).filter(known).collect())
        })
        .await
    }

    /// Whether the repository has this commit.
    pub async fn has_commit(&self, commit: &CommitId) -> Result<bool, GitError> {
        let commit = commit.clone();
        self.library(move |repository| Ok(repository.find_commit(oid(&commit)?).is_ok())).await
    }

    /// Moves a ref of agentd's own, or a branch that is checked out nowhere, to `to`, if it is at `from` now (`None`:
    /// it does not exist). Durable.
    pub async fn update_ref(
        &self,
        full: &str,
        from: Option<&CommitId>,
        to: &CommitId,
    ) -> Result<(), GitError> {
        let zero = "0".repeat(to.as_str().len());
        let from = from.map_or(zero.as_str(), CommitId::as_str);
        self.call(["update-ref", "-m", "agentd", full, to.as_str(), from]).await?.done().await
    }

    /// Removes a ref if it is at `at`.
    pub async fn delete_ref(&self, full: &str, at: &CommitId) -> Result<(), GitError> {
        self.call(["update-ref", "-d", full, at.as_str()]).await?.done().await
    }

    /// Whether the index of the main checkout has a file at a directory, on the way to it (a link, perhaps), or below it.
    pub(super) async fn tracks_at(&self, directory: &Path) -> Result<bool, GitError> {
        let mut below = directory.as_os_str().as_encoded_bytes().to_vec();
        below.push(b'/');
        self.library(move |repository| {
            let leads_there =
                |path: &[u8]| below.strip_prefix(path).is_some_and(|rest| rest.starts_with(b"/"));
            Ok(repository
                .index()?
                .iter()
                .any(|entry| entry.path.starts_with(&below) || leads_there(&entry.path)))
        })
        .await
    }

    /// The bytes of the files in the index of the main checkout. A worktree takes about as many. 0 if that is not
    /// known.
    pub async fn tracked_bytes(&self) -> u64 {
        let sum = self.library(|repository| {
            let index = repository.index()?;
            Ok(index.iter().map(|entry| u64::from(entry.file_size)).sum())
        });
        sum.await.unwrap_or_default()
    }

    /// A file of a commit: its bytes, or `None` where the commit has no file there.
    pub async fn blob(&self, commit: &CommitId, path: &str) -> Result<Option<Vec<u8>>, GitError> {
        let (commit, path) = (commit.clone(), path.to_owned());
        self.library(move |repository| {
            let missing = |_| GitError::Missing { what: format!("commit {commit}") };
            let tree = repository.find_commit(oid(&commit)?).map_err(missing)?.tree()?;
            match tree.get_path(Path::new(&path)) {
                Ok(entry) => bounded_blob(repository, entry.id(), &path),
                Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    pub(super) fn file_error(action: &'static str, path: &AbsPath, source: std::io::Error) -> GitError {
        FileError::new(action, path.as_path(), source).into()
    }
}

/// Finds a name among `names` that `wanted` cannot live with.
pub(super) fn conflict<'a>(
    wanted: &BranchName,
    names: impl IntoIterator<Item = &'a str>,
    remote: Option<&str>,
) -> Option<RefConflict> {
    let wanted = wanted.as_str();
    let below =
        |longer: &str, shorter: &str| longer.strip_prefix(shorter).is_some_and(|rest| rest.starts_with('/'));
    let found = names.into_iter().find(|name| below(wanted, name) || below(name, wanted))?;
    Some(RefConflict {
        existing: found.to_owned(),
        wanted: wanted.to_owned(),
        remote: remote.map(str::to_owned),
    })
}

pub(super) fn oid(commit: &CommitId) -> Result<Oid, GitError> {
    Ok(Oid::from_str(commit.as_str())?)
}

pub(super) fn commit_id(oid: Oid) -> Result<CommitId, GitError> {
    CommitId::parse(&oid.to_string()).map_err(|error| GitError::Lost(error.to_string()))
}

pub(super) fn commit_of_ref(repository: &Repository, full: &str) -> Result<Option<CommitId>, GitError> {
    match repository.find_reference(full) {
        Ok(reference) => match reference.peel_to_commit() {
            Ok(commit) => commit_id(commit.id()).map(Some),
            Err(error) if error.code() == ErrorCode::UnbornBranch => Ok(None),
            Err(error) => Err(error.into()),
        },
        Err(error) if matches!(error.code(), ErrorCode::NotFound | ErrorCode::InvalidSpec) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether the history of `tip` contains `commit`.
pub(super) fn contains(repository: &Repository, tip: &CommitId, commit: &CommitId) -> Result<bool, GitError> {
    let (tip, commit) = (oid(tip)?, oid(commit)?);
    if tip == commit {
        return Ok(true);
    }
    // A commit that is not here is in no history. The library has no special error for it.
    let here = repository.odb()?;
    Ok(here.exists(tip) && here.exists(commit) && repository.graph_descendant_of(tip, commit)?)
}
