//! Files that agentd never commits: those that nobody wrote, and those that the operator excludes (D100). Git treats
//! them as ignored files, in agentd's worktrees only.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::SystemTime;

use git2::Repository;

use super::blob::LARGEST_FILE;
use super::checkout::oid;
use super::error::GitError;
use super::tree_walk::walk;
use super::worktree::Worktree;
use crate::domain::exclude::{BUILT_IN, is_built_in_folder};
use crate::domain::name::CommitId;
use crate::sys::files;
use crate::sys::paths::AbsPath;

/// The patterns, beside git's own files of the worktree.
const FILE: &str = "agentd-exclude";
/// The most bytes that are copied from the user's own list of ignored files.
const LONGEST_OWN: u64 = 1 << 20;
/// The part of a mode that says what an entry is, and what it is for a file.
const KIND: u32 = 0o170_000;
const FILE_KIND: u32 = 0o100_000;

/// What keeps a file out of commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptOutBy {
    /// The built-in list, the operator's, or what setting the worktree up left.
    List,
    /// The list of ignored files of the machine's user (`core.excludesFile`).
    Machine,
    /// The repository's own (`.gitignore`).
    Repository,
}

/// What became of files of commits that an index did not have.
pub(super) struct Tracked {
    /// Whether some were added.
    pub taken: bool,
    /// Those that it still does not have, because they are not there.
    pub absent: Vec<String>,
}

impl Worktree {
    /// The file with the patterns, written once. It also has the patterns of the user's own configuration, because git
    /// reads only one such file.
    pub(super) async fn exclude_file(&self) -> Result<AbsPath, GitError> {
        self.excluded_by().get_or_try_init(|| self.write_exclude_file()).await.cloned()
    }

    /// Writes it as it is to be now.
    pub(super) async fn write_exclude_file(&self) -> Result<AbsPath, GitError> {
        let file = self.git_dir().join(FILE);
        let own = self.ignored_by_the_user().await?;
        let text = format!("{own}\n{}", self.exclude_patterns().await?);
        let (path, known) = (file.clone(), text);
        let write = move || {
            let same = std::fs::read(path.as_path()).is_ok_and(|now| now == known.as_bytes());
            if same {
                Ok(true)
            } else {
                files::write_private(path.as_path(), known.as_bytes()).map(|()| false)
            }
        };
        let same = tokio::task::spawn_blocking(write).await;
        if !same.map_err(|error| GitError::Lost(error.to_string()))?? {
            self.last_snapshot().forget_trees();
        }
        Ok(file)
    }

    /// The patterns: the built-in ones, then exceptions for folders in which the repository has files, then the
    /// operator's, which win over both, then what setting the worktree up left.
    pub(super) async fn exclude_patterns(&self) -> Result<String, GitError> {
        self.patterns_on(self.head().await?).await
    }

    /// The same where what the repository has is what `commit` has.
    async fn patterns_on(&self, commit: Option<CommitId>) -> Result<String, GitError> {
        let mut text = String::new();
        for pattern in BUILT_IN.iter().flat_map(|(_, patterns)| *patterns) {
            text.push_str(&format!("{pattern}\n"));
        }
        if let Some(commit) = commit {
            let own = self.checkout().library(move |repository| own_folders(repository, &commit)).await?;
            text.extend(own.iter().map(|folder| format!("!/{}/\n", escaped(folder))));
        }
        text.extend(self.checkout().excluded().iter().map(|pattern| format!("{pattern}\n")));
        text.push_str(&self.set_up_patterns().await?);
        Ok(text)
    }

    /// What `core.excludesFile`, or git's default for it, says.
    async fn ignored_by_the_user(&self) -> Result<String, GitError> {
        let program = self.checkout().program();
        let settings = self.checkout().settings().await?;
        let named = settings.ignore_file.as_deref().filter(|named| !named.is_empty());
        let in_home = |named: &str| Some(program.home()?.join(named.strip_prefix("~/")?));
        let place = match named {
            None => program.ignore_file(),
            Some(named) if named.starts_with('/') => Some(named.into()),
            Some(named) => match in_home(named) {
                Some(place) => Some(place),
                // What else there is, git alone reads.
                None => {
                    let ask = ["config", "--type=path", "--get", "core.excludesFile"];
                    let exit = self.checkout().call(ask).await?.exit().await?;
                    let path = exit.stdout.text().trim_end_matches('\n').to_owned();
                    Some(path).filter(|path| !path.is_empty()).map(PathBuf::from)
                }
            },
        };
        let Some(place) = place else { return Ok(String::new()) };
        let read = move || files::read_plain(&place, LONGEST_OWN);
        let read =
            tokio::task::spawn_blocking(read).await.map_err(|error| GitError::Lost(error.to_string()))?;
        Ok(read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default())
    }

    /// Which of these files are left out of commits, and by what.
    pub async fn kept_out(&self, paths: Vec<String>) -> Result<Vec<(String, KeptOutBy)>, GitError> {
        let root = self.path().clone();
        let plain = |path: &String| !path.starts_with('/') && path.split('/').all(|part| part != "..");
        let is_there = move |path: &String| {
            plain(path) && in_real_folders(&root, path) && root.join(path).as_path().is_file()
        };
        let there = move || paths.into_iter().filter(is_there).collect();
        let there: Vec<String> =
            tokio::task::spawn_blocking(there).await.map_err(|error| GitError::Lost(error.to_string()))?;
        if there.is_empty() {
            return Ok(Vec::new());
        }
        let ask: String = there.iter().map(|path| format!("{path}\0")).collect();
        let ask_git = self.call(["check-ignore", "--verbose", "-z", "--stdin"]).await?.stdin(ask);
        let said = ask_git.exit().await?.stdout.text();
        let source = self.exclude_file().await?.to_string();
        // The machine's patterns come first in the one file that git reads.
        let of_machine = self.ignored_by_the_user().await?.lines().count();
        let by = |place: &str, line: &str| match place == source {
            true if line.parse::<usize>().is_ok_and(|line| line <= of_machine) => KeptOutBy::Machine,
            true => KeptOutBy::List,
            false => KeptOutBy::Repository,
        };
        let fields: Vec<&str> = said.split('\0').collect();
        let ignored = fields.chunks(4).filter(|one| one.len() == 4 && !one[2].starts_with('!'));
        Ok(ignored.map(|one| (one[3].to_owned(), by(one[0], one[1]))).collect())
    }

    /// Files that are left out of commits because of the patterns, and that somebody wrote at or after a time: at most `most` of them.
    pub async fn kept_out_since(&self, since: SystemTime, most: usize) -> Result<Vec<String>, GitError> {
        let list = ["ls-files", "--others", "--ignored", "--exclude-standard", "-z"];
        let listed = self.call(list).await?.text().await?;
        let root = self.path().clone();
        let look = move || {
            let is_new = |path: &&str| {
                let meta = root.join(*path).as_path().symlink_metadata();
                meta.is_ok_and(|meta| {
                    meta.is_file()
                        && meta.len() <= LARGEST_FILE
                        && meta.modified().is_ok_and(|time| time >= since)
                })
            };
            let paths = listed.split('\0').filter(|path| !path.is_empty());
            paths.filter(is_new).take(most).map(str::to_owned).collect()
        };
        let found = tokio::task::spawn_blocking(look).await;
        let found = self.kept_out(found.map_err(|error| GitError::Lost(error.to_string()))?).await?;
        Ok(found.into_iter().filter(|(_, by)| *by == KeptOutBy::List).map(|(path, _)| path).collect())
    }

    /// Which of these files, each with its blob, no commit may have because of the patterns, whatever else ignores them, or because they
    /// are at or below one of the paths `also`. `base`: what the repository had before these files came.
    pub async fn excluded_among(
        &self,
        files: &[(String, String)],
        also: &[PathBuf],
        base: Option<CommitId>,
    ) -> Result<BTreeSet<String>, GitError> {
        if files.is_empty() {
            return Ok(BTreeSet::new());
        }
        let also = also.iter().map(|path| path.to_string_lossy().into_owned());
        let also =
            also.map(|path| format!("/{}\n", escaped(path.trim_start_matches("./").trim_end_matches('/'))));
        let patterns = self.patterns_on(base).await? + &also.collect::<String>();
        let make = move || -> Result<tempfile::TempDir, GitError> {
            let failed = |error: std::io::Error| GitError::Lost(error.to_string());
            let folder = tempfile::tempdir().map_err(failed)?;
            files::write_private(&folder.path().join("patterns"), patterns.as_bytes())?;
            Ok(folder)
        };
        let made = tokio::task::spawn_blocking(make).await;
        let folder = made.map_err(|error| GitError::Lost(error.to_string()))??;
        let place = |name: &str| AbsPath::new(folder.path().join(name));
        let index = place("index").map_err(|error| GitError::Lost(error.to_string()))?;
        let lines: String = files.iter().map(|(path, blob)| format!("100644 {blob}\t{path}\0")).collect();
        self.call(["update-index", "-z", "--index-info"]).await?.index(&index).stdin(lines).done().await?;
        let from = format!("--exclude-from={}", folder.path().join("patterns").display());
        let ask = ["ls-files", "--cached", "--ignored", "-z", from.as_str()];
        let listed = self.call(ask).await?.index(&index).text().await?;
        Ok(listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
    }

    /// Removes from an index excluded files that came into it before they were excluded. What one of the `known`
    /// commits has stays. Says whether anything was removed.
    pub(super) async fn drop_excluded(
        &self,
        index: &AbsPath,
        known: Vec<CommitId>,
    ) -> Result<bool, GitError> {
        let place = index.clone();
        let new = self.checkout().library(move |repository| {
            let tracked = tracked(repository, &known)?;
            let staged = open_index(&place)?;
            let staged = staged.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned());
            let is_new = |path: &String| tracked.iter().all(|tree| tree.get_path(path.as_ref(), 0).is_none());
            Ok(staged.filter(is_new).collect::<BTreeSet<_>>())
        });
        let new = new.await?;
        if new.is_empty() {
            return Ok(false);
        }
        let from = format!("--exclude-from={}", self.exclude_file().await?);
        let mut ask = vec!["ls-files", "--cached", "--ignored", "-z", from.as_str()];
        // What was copied into the worktree is listed there.
        let info = self.checkout().common_dir().join("info").join("exclude");
        let copied = format!("--exclude-from={info}");
        if info.as_path().is_file() {
            ask.push(&copied);
        }
        let listed = self.call(ask).await?.index(index).text().await?;
        let new: Vec<String> =
            listed.split('\0').filter(|path| new.contains(*path)).map(str::to_owned).collect();
        self.forget(index, &new).await?;
        Ok(!new.is_empty())
    }

    /// Adds to an index the files that the `known` commits have and that still exist. If they are ignored as well, git
    /// would pass over them, and they would seem to be deleted.
    pub(super) async fn take_tracked(
        &self,
        index: &AbsPath,
        known: Vec<CommitId>,
    ) -> Result<Tracked, GitError> {
        let (place, root) = (index.clone(), self.path().clone());
        let missing = self.checkout().library(move |repository| {
            let index = open_index(&place)?;
            let (mut missing, mut absent) = (String::new(), Vec::new());
            for tracked in tracked(repository, &known)? {
                for entry in tracked.iter().filter(|entry| entry.mode & KIND == FILE_KIND) {
                    let path = String::from_utf8_lossy(&entry.path).into_owned();
                    if index.get_path(path.as_ref(), 0).is_some() {
                        continue;
                    }
                    let there = || root.join(&path).as_path().symlink_metadata();
                    match in_real_folders(&root, &path)
                        && there().is_ok_and(|meta| meta.is_file() && meta.len() <= LARGEST_FILE)
                    {
                        true => missing.push_str(&format!("{path}\0")),
                        false => absent.push(path),
                    }
                }
            }
            Ok((missing, absent))
        });
        let (missing, absent) = missing.await?;
        let taken = !missing.is_empty();
        if taken {
            let add = ["update-index", "--add", "-z", "--stdin"];
            self.call(add).await?.index(index).stdin(missing).done().await?;
        }
        Ok(Tracked { taken, absent })
    }

    /// Takes paths out of an index; the files stay.
    pub(super) async fn forget(&self, index: &AbsPath, paths: &[String]) -> Result<(), GitError> {
        if paths.is_empty() {
            return Ok(());
        }
        let paths: String = paths.iter().map(|path| format!("{path}\0")).collect();
        let forget = ["update-index", "--force-remove", "-z", "--stdin"];
        self.call(forget).await?.index(index).stdin(paths).done().await
    }
}

/// Whether no folder on the way to a file is a link. Behind a link it would be another file.
pub(super) fn in_real_folders(root: &AbsPath, path: &str) -> bool {
    let folders = path.match_indices('/').map(|(at, _)| root.join(&path[..at]));
    folders.into_iter().all(|folder| folder.as_path().symlink_metadata().is_ok_and(|meta| meta.is_dir()))
}

/// The files of commits, each as an index, which finds paths fast.
fn tracked(repository: &Repository, commits: &[CommitId]) -> Result<Vec<git2::Index>, GitError> {
    let all = commits.iter().map(|commit| {
        let mut index = git2::Index::new()?;
        index.read_tree(&repository.find_commit(oid(commit)?)?.tree()?)?;
        Ok(index)
    });
    all.collect()
}

fn open_index(place: &AbsPath) -> Result<git2::Index, GitError> {
    let lost = |error: git2::Error| GitError::Lost(format!("{place}: {}", error.message()));
    git2::Index::open(place.as_path()).map_err(lost)
}

/// Folders with names of built-in patterns in which a commit has files.
fn own_folders(repository: &Repository, commit: &CommitId) -> Result<Vec<String>, GitError> {
    let mut found = Vec::new();
    let tree = repository.find_commit(oid(commit)?)?.tree()?;
    walk(repository, tree, |parent, entry| {
        let is_folder = entry.kind() == Some(git2::ObjectType::Tree);
        // No pattern names what is not text.
        if let (true, Ok(parent), Ok(name)) = (is_folder, std::str::from_utf8(parent), entry.name())
            && is_built_in_folder(name)
        {
            found.push(format!("{parent}{name}"));
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// A path as a pattern that means itself.
pub(super) fn escaped(path: &str) -> String {
    let special = |c: char| matches!(c, '\\' | '*' | '?' | '[' | '!' | '#' | ' ');
    path.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain(Some(c))).collect()
}
