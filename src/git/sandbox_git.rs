//! A git directory for one agent (D73). Its commits go there, and the host takes over those that continue the branch.
//!
//! The agent cannot reach the repository's own directory. It reads the objects and nothing else. Its configuration and
//! hooks are its own and never run here.

use std::collections::BTreeSet;
use std::fs;

use git2::{DiffOptions, ObjectType, Odb, Oid, Repository};

use super::blob::LARGEST_FILE;
use super::checkout::Checkout;
use super::error::GitError;
use super::output;
use super::plain_head::plain_head;
use super::program::Identity;
use super::remote::Remote;
use super::tree_diff::tree_diff;
use super::worktree::Worktree;
use crate::domain::name::{BranchName, CommitId};
use crate::sys::files::{self, FileError};
use crate::sys::paths::AbsPath;

/// Most objects, and bytes of them, that are taken from an agent at once.
const MOST_OBJECTS: usize = 100_000;
const MOST_BYTES: usize = 512 << 20;

/// Most commits of an agent that are looked at one by one.
const MOST_COMMITS: usize = 10_000;

/// Where a git directory says whose objects it borrows.
const ALTERNATES: &str = "objects/info/alternates";

/// The longest file of an agent that a directory for checks takes over: its index.
const LONGEST_INDEX: u64 = 256 << 20;

/// The origin branch of an issue's work, as the agent's git directory shows it.
#[derive(Debug, Clone)]
pub struct Base {
    /// The origin branch.
    pub branch: BranchName,
    /// Its commit.
    pub commit: CommitId,
    /// The remote that has it; only its name and its URL without credentials are shown.
    pub remote: Option<Remote>,
}

impl Base {
    /// Name of the branch's place on the remote, `origin/main`.
    pub fn remote_tracking(&self) -> Option<String> {
        self.remote.as_ref().map(|remote| format!("{}/{}", remote.name(), self.branch))
    }
}

/// An agent's own git directory.
#[derive(Debug, Clone)]
pub struct SandboxGit {
    dir: AbsPath,
    link: AbsPath,
}

/// The result for an agent's commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It made none.
    None,
    /// They are on the branch now, up to this one.
    Commits(CommitId),
    /// Its commits do not continue the branch, or cannot be read. Only its files count. One sentence.
    Left(String),
}

impl SandboxGit {
    /// The one in a run's folder of its sandbox.
    pub fn of(folder: &AbsPath) -> Self {
        Self { dir: folder.join("git"), link: folder.join("git-link") }
    }

    /// The directory.
    pub fn dir(&self) -> &AbsPath {
        &self.dir
    }

    /// The commit of its HEAD, from plain files only.
    pub fn head(&self) -> Option<CommitId> {
        plain_head(&self.dir)
    }

    /// The file that stands in the place of the worktree's `.git`.
    pub fn link(&self) -> &AbsPath {
        &self.link
    }

    /// Whether everything below is a plain file or folder. A link could lead anywhere.
    fn is_plain(&self) -> bool {
        let mut folders = vec![self.dir.as_path().to_owned()];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = fs::read_dir(&folder) else { return false };
            for entry in entries {
                match entry.and_then(|entry| Ok((entry.file_type()?, entry.path()))) {
                    Ok((kind, path)) if kind.is_dir() => folders.push(path),
                    Ok((kind, _)) if kind.is_file() => {}
                    _ => return false,
                }
            }
        }
        true
    }
}

impl Worktree {
    /// Makes an agent's git directory in `folder`, at the commit of the worktree. It shows the branch of the issue, the
    /// origin branch, both as they are on the remote, and tags. Also gives the folders that it must be able to read:
    /// the objects of the repository, and the git directories of submodules.
    pub async fn sandbox_git(
        &self,
        folder: &AbsPath,
        identity: &Identity,
        base: &Base,
    ) -> Result<(SandboxGit, Vec<AbsPath>), GitError> {
        let own = SandboxGit::of(folder);
        let common = self.checkout().common_dir().clone();
        let (head_text, index) = (self.head_text()?, self.git_dir().join("index"));
        let head = self.head().await?;
        let pushed = match &base.remote {
            Some(remote) => self.checkout().last_seen(remote, self.branch()).await?,
            None => None,
        };
        let tags = self.checkout().tags().await?;
        let (made, root, identity) = (own.clone(), self.path().clone(), identity.clone());
        let (base, branch) = (base.clone(), self.branch().clone());
        let excluded = self.exclude_patterns().await?;
        // Submodules say where their git directories are: git fails at the root of the worktree where one is not there.
        let modules = self.git_dir().join("modules");
        let submodules = self.submodule_names(&base.commit).await?;
        let work = move || -> Result<Vec<AbsPath>, GitError> {
            let dir = &made.dir;
            for name in ["refs/heads", "refs/tags", "refs/remotes", "info", "objects/info", "objects/pack"] {
                files::create_private_dir(dir.join(name).as_path())?;
            }
            let objects = object_folders(&common);
            let write =
                |name: &str, text: &str| files::write_private(dir.join(name).as_path(), text.as_bytes());
            write(ALTERNATES, &alternates(&common))?;
            write("HEAD", &format!("{head_text}\n"))?;
            write("packed-refs", &tags)?;
            write_refs(dir, &refs_of(&base, &base.commit, (&branch, pushed.as_ref())))?;
            if let (Some(name), Some(head)) = (head_text.strip_prefix("ref: "), &head) {
                write_refs(dir, &[(name.to_owned(), head.clone())])?;
            }
            write("config", &config(&root, Some(&identity), &base, (&branch, &submodules)))?;
            for (from, to) in
                [(common.join("info/exclude"), "info/exclude"), (common.join("shallow"), "shallow")]
            {
                if from.as_path().is_file() {
                    files::copy_with_time(from.as_path(), dir.join(to).as_path())?;
                }
            }
            // `git add` of everything there leaves out files that nobody wrote.
            let own = files::read_plain(dir.join("info/exclude").as_path(), u64::MAX).unwrap_or_default();
            write("info/exclude", &format!("{}\n{excluded}", String::from_utf8_lossy(&own)))?;
            if index.as_path().is_file() {
                files::copy_with_time(index.as_path(), dir.join("index").as_path())?;
            }
            files::write_private(made.link.as_path(), format!("gitdir: {dir}\n").as_bytes())?;
            let modules = Some(modules).filter(|modules| modules.as_path().is_dir());
            Ok(objects.into_iter().chain(modules).collect())
        };
        let objects =
            tokio::task::spawn_blocking(work).await.map_err(|error| GitError::Lost(error.to_string()))??;
        Ok((own, objects))
    }

    /// Shows the branch of the issue at its present commit in an agent's git directory: agentd committed there.
    pub async fn show_branch(&self, own: &SandboxGit) -> Result<(), GitError> {
        let (head_text, head) = (self.head_text()?, self.head().await?);
        let (dir, index) = (own.dir.clone(), self.git_dir().join("index"));
        let work = move || -> Result<(), GitError> {
            files::write_private(dir.join("HEAD").as_path(), format!("{head_text}\n").as_bytes())?;
            if let (Some(name), Some(head)) = (head_text.strip_prefix("ref: "), head) {
                write_refs(&dir, &[(name.to_owned(), head)])?;
            }
            if index.as_path().is_file() {
                files::copy_with_time(index.as_path(), dir.join("index").as_path())?;
            }
            Ok(())
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| GitError::Lost(error.to_string()))?
    }

    /// Makes, in `folder`, a git directory that shows the repository as it will be once the work of the issue is pushed and
    /// merged: the origin branch and the issue's, here and on the remote, stand at the work's last commit. `own` = where
    /// the agent's own commits are.
    pub async fn published_git(
        &self,
        folder: &AbsPath,
        base: &Base,
        own: Option<&SandboxGit>,
    ) -> Result<AbsPath, GitError> {
        let head = match own.and_then(|own| plain_head(&own.dir)) {
            Some(head) => head,
            None => self.head().await?.unwrap_or_else(|| base.commit.clone()),
        };
        let dir = folder.join("published-git");
        let index = own.map_or_else(|| self.git_dir().clone(), |own| own.dir.clone()).join("index");
        let mut borrowed = alternates(self.checkout().common_dir());
        borrowed.extend(own.map(|own| format!("{}\n", own.dir.join("objects"))));
        let excluded = self.exclude_patterns().await?;
        let submodules = self.submodule_names(&base.commit).await?;
        let (made, root, base, branch) =
            (dir.clone(), self.path().clone(), base.clone(), self.branch().clone());
        let work = move || -> Result<(), GitError> {
            files::remove_dir(made.as_path())?;
            for name in ["refs/heads", "info", "objects/info", "objects/pack"] {
                files::create_private_dir(made.join(name).as_path())?;
            }
            let write = |name: &str, bytes: &[u8]| files::write_private(made.join(name).as_path(), bytes);
            write(ALTERNATES, borrowed.as_bytes())?;
            write("HEAD", format!("ref: {}\n", branch.full()).as_bytes())?;
            write_refs(&made, &refs_of(&base, &head, (&branch, Some(&head))))?;
            write_refs(&made, &[(branch.full(), head)])?;
            write("config", config(&root, None, &base, (&branch, &submodules)).as_bytes())?;
            write("info/exclude", excluded.as_bytes())?;
            if let Some(index) = files::read_plain(index.as_path(), LONGEST_INDEX) {
                write("index", &index)?;
            }
            Ok(())
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| GitError::Lost(error.to_string()))??;
        Ok(dir)
    }

    /// Takes over the commits that an agent made in its own directory (D13). Its configuration is not read, and every
    /// object is hashed again.
    pub async fn take_commits(&self, own: &SandboxGit) -> Result<Taken, GitError> {
        let Some(before) = self.head().await? else { return Ok(Taken::None) };
        let Some(after) = plain_head(&own.dir) else {
            return Ok(Taken::Left("the agent's own git directory has no readable HEAD".to_owned()));
        };
        if after == before {
            return Ok(Taken::None);
        }
        if self.merge_head().is_some() {
            // To move the branch would forget the merge.
            let why = "commits that the agent made were not taken: a merge waits for its commit; what stands in the worktree takes their place";
            return Ok(Taken::Left(why.to_owned()));
        }
        let (source, base, wanted) = (own.clone(), before.clone(), after.clone());
        let borrowed = alternates(self.checkout().common_dir());
        let checkout: &Checkout = self.checkout();
        let looked = checkout
            .library(move |repository| {
                let own = repository.odb()?;
                if let Err(why) = copy_objects(&source, &borrowed, &own) {
                    return Ok(Err(why));
                }
                let (new, old) = (Oid::from_str(wanted.as_str())?, Oid::from_str(base.as_str())?);
                let continues = repository.graph_descendant_of(new, old).unwrap_or(false);
                if !continues {
                    return Ok(Err("they do not continue the branch".to_owned()));
                }
                // git itself makes an index of all its paths.
                match changed_paths(repository, old, new) {
                    Err(
                        why @ (GitError::TooManyPaths
                        | GitError::TwoEntries { .. }
                        | GitError::OddEntry { .. }),
                    ) => Ok(Err(why.to_string())),
                    other => other.map(Ok),
                }
            })
            .await?;
        let left = match looked {
            Ok(paths) => self.is_filtered(paths).await?.map(|path| {
                format!("git stores {path} otherwise than it stands there, by a filter that they did not go through")
            }),
            Err(why) => Some(why),
        };
        if let Some(why) = left {
            return Ok(Taken::Left(format!(
                "commits that the agent made were not taken: {why}; what stands in the worktree takes their place"
            )));
        }
        self.return_to_branch().await?;
        checkout.update_ref(&self.branch().full(), Some(&before), &after).await?;
        self.call(["reset", "--mixed", "--quiet", "--no-refresh"]).await?.done().await?;
        Ok(Taken::Commits(after))
    }
}

/// The paths that the commits behind `old` up to `new` change, each of them by itself: what a later one takes away was there.
fn changed_paths(repository: &Repository, old: Oid, new: Oid) -> Result<BTreeSet<String>, GitError> {
    let mut walk = repository.revwalk()?;
    walk.push(new)?;
    walk.hide(old)?;
    let mut paths = BTreeSet::new();
    let mut between = |before: Option<Oid>, after: Oid| -> Result<(), GitError> {
        let tree = |commit| Ok::<_, GitError>(repository.find_commit(commit)?.tree()?);
        let (before, after) = (before.map(tree).transpose()?, tree(after)?);
        let diff = tree_diff(repository, before.as_ref(), Some(&after), &mut DiffOptions::new())?;
        paths.extend(
            diff.deltas().filter_map(|delta| Some(delta.new_file().path()?.to_string_lossy().into_owned())),
        );
        Ok(())
    };
    between(Some(old), new)?;
    for commit in walk.take(MOST_COMMITS) {
        let commit = repository.find_commit(commit?)?;
        between(commit.parent_ids().next(), commit.id())?;
    }
    Ok(paths)
}

impl Worktree {
    /// One of these paths whose content git changes by a filter as it stores it. An agent's git knows no filter of the host: its commits
    /// would have whole files that belong to Git LFS, and the plain text of encrypted ones.
    async fn is_filtered(&self, paths: BTreeSet<String>) -> Result<Option<String>, GitError> {
        let stdin: String = paths.iter().map(|path| format!("{path}\0")).collect();
        if stdin.is_empty() {
            return Ok(None);
        }
        let asked = self.call(["check-attr", "-z", "--stdin", "filter"]).await?.stdin(stdin).text().await?;
        Ok(output::filtered(&asked).into_iter().next().map(str::to_owned))
    }

    /// The submodules whose folders may stand in the worktree.
    async fn submodule_names(&self, commit: &CommitId) -> Result<Vec<String>, GitError> {
        // Most repositories have none.
        if !self.path().join(".gitmodules").as_path().exists() {
            return Ok(Vec::new());
        }
        let settings = self.submodules_left_alone(commit).await?;
        let name = |key: &str| Some(key.strip_prefix("submodule.")?.strip_suffix(".ignore")?.to_owned());
        Ok(settings.iter().filter_map(|(key, _)| name(key)).collect())
    }
}

/// The origin branch at a commit, here and on the remote, and the branch of the issue on the remote, if it exists
/// there.
fn refs_of(
    base: &Base,
    at: &CommitId,
    (branch, pushed): (&BranchName, Option<&CommitId>),
) -> Vec<(String, CommitId)> {
    let mut refs = vec![(base.branch.full(), at.clone())];
    if let Some(remote) = base.remote.as_ref().map(Remote::ref_name) {
        refs.push((format!("refs/remotes/{remote}/{}", base.branch), at.clone()));
        refs.extend(pushed.map(|pushed| (format!("refs/remotes/{remote}/{branch}"), pushed.clone())));
    }
    refs
}

fn write_refs(dir: &AbsPath, refs: &[(String, CommitId)]) -> Result<(), FileError> {
    for (name, commit) in refs {
        let place = dir.join(name.as_str());
        files::create_private_dir(place.parent().unwrap_or_else(|| dir.clone()).as_path())?;
        files::write_private(place.as_path(), format!("{commit}\n").as_bytes())?;
    }
    Ok(())
}

/// The configuration of a git directory for a worktree. git does not look into submodules, whose directories are not shown. The remote is named so that names of its branches lead there.
fn config(
    root: &AbsPath,
    identity: Option<&Identity>,
    base: &Base,
    (branch, submodules): (&BranchName, &[String]),
) -> String {
    let quoted = |text: &str| text.replace(['\\', '"', '\n'], " ");
    let mut text = format!(
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = \"{root}\"\n[gc]\n\tauto = 0\n"
    );
    if let Some(Identity { name, email }) = identity {
        text += &format!("[user]\n\tname = \"{}\"\n\temail = \"{}\"\n", quoted(name), quoted(email));
    }
    for name in submodules {
        text += &format!("[submodule \"{}\"]\n\tignore = all\n", quoted(name));
    }
    if let Some(remote) = &base.remote {
        let (name, url) = (remote.ref_name(), quoted(&remote.display()));
        text += &format!(
            "[remote \"{name}\"]\n\turl = \"{url}\"\n\tfetch = +refs/heads/*:refs/remotes/{name}/*\n"
        );
        for branch in [&base.branch, branch] {
            let (short, full) = (quoted(branch.as_str()), quoted(&branch.full()));
            text += &format!("[branch \"{short}\"]\n\tremote = \"{name}\"\n\tmerge = \"{full}\"\n");
        }
    }
    text
}

/// The folders with the objects of a repository, with its alternates.
fn object_folders(common: &AbsPath) -> Vec<AbsPath> {
    let own = common.join("objects");
    let further = fs::read_to_string(own.join("info/alternates").as_path()).unwrap_or_default();
    let further: Vec<AbsPath> =
        further.lines().filter(|line| !line.is_empty()).map(|line| own.join(line)).collect();
    std::iter::once(own).chain(further).collect()
}

/// What the agent's directory says of them.
pub(super) fn alternates(common: &AbsPath) -> String {
    object_folders(common).iter().map(|folder| format!("{folder}\n")).collect()
}

/// Copies what only the agent's directory has. The error is a sentence for people. `borrowed` has the folders from
/// which agentd let it borrow objects. Any other repository would be read with agentd's rights.
pub(super) fn copy_objects(from: &SandboxGit, borrowed: &str, own: &Odb<'_>) -> Result<(), String> {
    if !from.is_plain() {
        return Err("its git directory holds links".to_owned());
    }
    let list = from.dir.join(ALTERNATES);
    let known = list.as_path().metadata().is_ok_and(|meta| meta.len() == borrowed.len() as u64)
        && fs::read(list.as_path()).is_ok_and(|now| now == borrowed.as_bytes());
    if !known {
        return Err("its git directory borrows objects from somewhere else".to_owned());
    }
    let words = |error: git2::Error| error.message().to_owned();
    let source = Odb::new().map_err(words)?;
    let path = from.dir.join("objects").to_string();
    source.add_disk_alternate(&path).map_err(words)?;
    let mut found = Vec::new();
    source
        .foreach(|id| {
            found.push(*id);
            found.len() <= MOST_OBJECTS
        })
        .ok();
    if found.len() > MOST_OBJECTS {
        return Err("there are too many".to_owned());
    }
    let mut bytes = 0;
    for id in found {
        if own.exists(id) {
            continue;
        }
        // Its length before itself: it is as large as the agent likes.
        let (length, _) = source.read_header(id).map_err(words)?;
        bytes += length;
        if length > LARGEST_FILE as usize || bytes > MOST_BYTES {
            return Err(format!("they are too large (the object {id} has {length} bytes)"));
        }
        let object = source.read(id).map_err(words)?;
        if object.kind() == ObjectType::Any || own.write(object.kind(), object.data()).map_err(words)? != id {
            return Err("an object is not what its name says".to_owned());
        }
    }
    Ok(())
}
