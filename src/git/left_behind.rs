//! Submodules that others moved: their commits are taken, and their folders stay as they are.
//!
//! Git is never run in a folder in which an agent worked, so nothing checks another commit out there. Without a note the next
//! snapshot would take the folder's old commit for a choice of the run, and undo what others chose.

use std::collections::BTreeMap;
use std::fs;

use git2::{DiffOptions, FileMode, Repository};

use super::checkout::{commit_id, contains, oid};
use super::error::GitError;
use super::plain_head::commit_in;
use super::tree_diff::tree_diff;
use super::worktree::Worktree;
use crate::domain::name::CommitId;
use crate::sys::files;
use crate::sys::paths::AbsPath;

/// The notes of a worktree, in its administrative directory.
const NOTES: &str = "agentd-left-behind";

/// One submodule that others moved.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Note {
    /// The commit that its folder stayed at; `None` = it had none.
    stands: Option<String>,
    /// The commit that others chose; `None` = they removed it.
    wanted: Option<String>,
    /// The commit that brought this. It holds while the branch has that commit.
    by: CommitId,
    path: String,
}

impl Note {
    fn line(&self) -> String {
        let or_none = |commit: &Option<String>| commit.clone().unwrap_or_else(|| "-".to_owned());
        format!("{} {} {} {}\0", or_none(&self.stands), or_none(&self.wanted), self.by, self.path)
    }

    fn parse(line: &str) -> Option<Self> {
        let [stands, wanted, by, path] = line.splitn(4, ' ').collect::<Vec<_>>().try_into().ok()?;
        let or_none = |word: &str| (word != "-").then(|| word.to_owned());
        let by = CommitId::parse(by).ok()?;
        Some(Self { stands: or_none(stands), wanted: or_none(wanted), by, path: path.to_owned() })
    }
}

impl Worktree {
    /// Notes the submodules that a merge of `theirs` into `ours` moves, and that the run has not moved itself.
    pub(super) async fn leave_behind(&self, ours: &CommitId, theirs: &CommitId) -> Result<(), GitError> {
        let (own, other) = (ours.clone(), theirs.clone());
        let moved = self.checkout().library(move |repository| moved(repository, &own, &other)).await?;
        if moved.is_empty() {
            return Ok(());
        }
        let place = self.git_dir().join(NOTES);
        let lines: String = notes(&place).iter().chain(&moved).map(Note::line).collect();
        files::write_private(place.as_path(), lines.as_bytes())?;
        Ok(())
    }

    /// What the index is to have for submodules whose folders stayed behind; `None` = nothing.
    pub(super) async fn left_behind(&self) -> Result<BTreeMap<String, Option<String>>, GitError> {
        let (place, root) = (self.git_dir().join(NOTES), self.path().clone());
        let notes = notes(&place);
        let mut entries = BTreeMap::new();
        if notes.is_empty() {
            return Ok(entries);
        }
        let heads: Vec<CommitId> = self.head().await?.into_iter().chain(self.merge_head()).collect();
        let hold = move |repository: &Repository| {
            let has = |note: &Note| {
                heads
                    .iter()
                    .any(|head| *head == note.by || contains(repository, head, &note.by).unwrap_or(false))
            };
            Ok(notes.into_iter().filter(has).collect::<Vec<Note>>())
        };
        for note in self.checkout().library(hold).await? {
            let folder = root.join(&note.path);
            let there = folder.as_path().symlink_metadata().is_ok();
            let stands = commit_in(&folder).map(|head| head.to_string());
            // A folder that the run removed or moved on is its own choice.
            if (stands.is_none() && (there || note.stands.is_none())) || stands == note.stands {
                entries.insert(note.path, note.wanted);
            } else {
                entries.remove(&note.path);
            }
        }
        Ok(entries)
    }
}

fn notes(place: &AbsPath) -> Vec<Note> {
    let text = fs::read_to_string(place.as_path()).unwrap_or_default();
    text.split('\0').filter_map(Note::parse).collect()
}

fn moved(repository: &Repository, ours: &CommitId, theirs: &CommitId) -> Result<Vec<Note>, GitError> {
    // Without a common commit nothing was merged.
    let Ok(base) = repository.merge_base(oid(ours)?, oid(theirs)?) else { return Ok(Vec::new()) };
    let base = commit_id(base)?;
    let tree = |commit: &CommitId| Ok::<_, GitError>(repository.find_commit(oid(commit)?)?.tree()?);
    let (old, new, own) = (tree(&base)?, tree(theirs)?, tree(ours)?);
    let diff = tree_diff(repository, Some(&old), Some(&new), &mut DiffOptions::new())?;
    let mut notes = Vec::new();
    for delta in diff.deltas() {
        let [before, after] = [delta.old_file(), delta.new_file()];
        let link =
            |file: &git2::DiffFile<'_>| (file.mode() == FileMode::Commit).then(|| file.id().to_string());
        let (was, wanted) = (link(&before), link(&after));
        // Where files took a submodule's place, git itself is stopped by the folder.
        let by_files = wanted.is_none() && !after.id().is_zero();
        let Some(path) = after.path().or(before.path()).filter(|_| was != wanted && !by_files) else {
            continue;
        };
        let has = own.get_path(path).ok().filter(|entry| entry.filemode() == i32::from(FileMode::Commit));
        let has = has.map(|entry| entry.id().to_string());
        if has == was {
            let path = path.to_string_lossy().into_owned();
            notes.push(Note { stands: has, wanted, by: theirs.clone(), path });
        }
    }
    Ok(notes)
}
