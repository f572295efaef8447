//! What a push would bring to a remote: every change of every commit that the remote does not have. Files that are too
//! large are not opened.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use git2::{Delta, DiffOptions, ObjectType, Oid, Repository, Tree};

use super::blob::LARGEST_FILE;
use super::checkout::{commit_id, oid};
use super::error::GitError;
use super::tree_diff::tree_diff;
use super::worktree::Worktree;
use crate::domain::name::CommitId;

/// Mode of a plain file, of a symbolic link, and of a submodule, in git's trees.
const PLAIN: i32 = 0o100_644;
const LINK: i32 = 0o120_000;
const SUBMODULE: i32 = 0o160_000;
/// How many bytes at the start of a file are searched for a zero byte, which makes the file binary, as in git.
const BINARY_LOOK: usize = 8_000;
/// Entries of a folder behind a link that are named.
const MOST_BEHIND: usize = 200;

/// Characters that a part of a binary file's line has at least, to be looked at: the operator's own patterns may be short.
const SHORTEST_READABLE: usize = 4;

/// Looks at added lines with their numbers, and says which of them matter and why.
pub type Inspect = Arc<dyn Fn(&[(u32, &str)]) -> Vec<(u32, String)> + Send + Sync>;

/// One change of one path in one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingChange {
    /// Relative to the worktree, with `/`.
    pub path: String,
    /// The commit; `None` = not committed yet.
    pub commit: Option<CommitId>,
    /// What stands there now.
    pub kind: OutgoingKind,
    /// Its blob, as text; empty where it is gone.
    pub blob: String,
    /// Bytes of it.
    pub bytes: u64,
    /// Blobs that stood there before, as text; several in a merge.
    pub before: Vec<String>,
    /// Whether there was nothing before.
    pub is_new: bool,
    /// Whether it is another kind of file than before, such as a program now; of a new one, whether it is more than plain.
    pub mode_changed: bool,
    /// Whether it is binary.
    pub binary: bool,
    /// Lines that were added.
    pub lines: u64,
    /// Lines of note among them.
    pub found: Vec<(u32, String)>,
}

/// What stands at a changed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutgoingKind {
    /// A file.
    File,
    /// A symbolic link, with the paths behind it in the same tree, as they read through the link.
    Link(Vec<String>),
    /// Another repository's commit.
    Submodule,
    /// Nothing.
    Gone,
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// Changes, commit by commit.
    pub changes: Vec<OutgoingChange>,
    /// The messages of the commits that bring them, with author and committer.
    pub messages: Vec<(CommitId, String)>,
    /// Commits whose message cannot be read as it stands, and why.
    pub unread: Vec<(CommitId, String)>,
}

impl Worktree {
    /// What the commits of `head` bring that are in the history of none of `known`; with `tree`, also what a commit of
    /// that tree would bring. A file that is the same in one of `known` does not count. `most` limits the bytes that
    /// are opened.
    pub async fn outgoing(
        &self,
        (head, tree): (&CommitId, Option<&str>),
        known: &[CommitId],
        (most, inspect): (u64, Inspect),
    ) -> Result<Outgoing, GitError> {
        let head = head.clone();
        let merging = self.merge_head();
        let (tree, known) = (tree.map(str::to_owned), known.to_vec());
        self.checkout()
            .library(move |repository| {
                let mut look =
                    Look { repository, known: Vec::new(), left: most, inspect, all: Outgoing::default() };
                let mut walk = repository.revwalk()?;
                walk.set_sorting(git2::Sort::TOPOLOGICAL | git2::Sort::REVERSE)?;
                walk.push(oid(&head)?)?;
                let mut there = Vec::new();
                for commit in &known {
                    // What is not here, the branch does not have.
                    if let Ok(found) = repository.find_commit(oid(commit)?) {
                        walk.hide(found.id())?;
                        look.known.push(found.tree()?);
                        there.push(found.id());
                    }
                }
                let mut merges = merging.is_some();
                for id in walk {
                    merges |= look.commit(id?)?;
                }
                let end = match &tree {
                    Some(tree) => repository.find_tree(Oid::from_str(tree)?)?,
                    None => repository.find_commit(oid(&head)?)?.tree()?,
                };
                if let Some(tree) = &tree {
                    let mut parents = vec![repository.find_commit(oid(&head)?)?.tree()?];
                    if let Some(merging) = &merging {
                        parents.push(repository.find_commit(oid(merging)?)?.tree()?);
                    }
                    look.tree(&repository.find_tree(Oid::from_str(tree)?)?, &parents, None)?;
                }
                if merges {
                    look.put_back((&head, &end), &there, tree.is_none())?;
                }
                Ok(look.all)
            })
            .await
    }
}

struct Look<'r> {
    repository: &'r Repository,
    known: Vec<Tree<'r>>,
    left: u64,
    inspect: Inspect,
    all: Outgoing,
}

/// One side of a change.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    id: Oid,
    mode: i32,
}

/// Paths, each with what the parents have there and what is there now.
type Changed = BTreeMap<String, (Vec<Entry>, Option<Entry>)>;

impl Look<'_> {
    /// Looks at a commit. True = it is a merge.
    fn commit(&mut self, id: Oid) -> Result<bool, GitError> {
        let (length, _) = self.repository.odb()?.read_header(id)?;
        let name = commit_id(id)?;
        if length as u64 > LARGEST_FILE {
            let path = format!("the commit {}", name.short());
            return Err(GitError::TooLarge { path, bytes: length as u64, limit: LARGEST_FILE });
        }
        if let Some(why) = unreadable(self.repository.odb()?.read(id)?.data()) {
            self.all.unread.push((name.clone(), why));
        }
        let commit = self.repository.find_commit(id)?;
        let who = |one: &git2::Signature<'_>| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            format!("{} <{}>\n", text(one.name_bytes()), text(one.email_bytes()))
        };
        let header = String::from_utf8_lossy(commit.raw_header_bytes()).into_owned();
        let people = who(&commit.author()) + &who(&commit.committer());
        let message = String::from_utf8_lossy(commit.message_bytes()).into_owned();
        self.all.messages.push((name.clone(), format!("{people}{header}\n{message}")));
        let parents = commit.parents().map(|parent| parent.tree()).collect::<Result<Vec<_>, _>>()?;
        self.tree(&commit.tree()?, &parents, Some(&name))?;
        Ok(parents.len() > 1)
    }

    fn tree(
        &mut self,
        tree: &Tree<'_>,
        parents: &[Tree<'_>],
        commit: Option<&CommitId>,
    ) -> Result<(), GitError> {
        let mut changed = self.changed(tree, parents)?;
        changed.retain(|path, (_, now)| !self.known.iter().any(|known| entry(known, path) == *now));
        self.bring(tree, changed, commit)
    }

    /// A merge may take a side that is older than what the other one made of it. That differs not from every parent, and yet from
    /// what the commits are put onto: what stands at the end is looked at beside that.
    fn put_back(
        &mut self,
        (head, end): (&CommitId, &Tree<'_>),
        there: &[Oid],
        is_committed: bool,
    ) -> Result<(), GitError> {
        let repository = self.repository;
        let (mut newest, mut bases) = (Vec::new(), Vec::new());
        for id in there {
            let is_older =
                there.iter().any(|other| repository.graph_descendant_of(*other, *id).unwrap_or(false));
            if is_older {
                continue;
            }
            newest.push(repository.find_commit(*id)?.tree()?);
            if let Ok(base) = repository.merge_base(oid(head)?, *id) {
                bases.push(repository.find_commit(base)?.tree()?);
            }
        }
        if bases.is_empty() {
            return Ok(());
        }
        let mut changed = self.changed(end, &bases)?;
        let seen: HashSet<(&str, &str)> =
            self.all.changes.iter().map(|seen| (seen.path.as_str(), seen.blob.as_str())).collect();
        changed.retain(|path, (_, now)| {
            let blob = now.map(|now| now.id.to_string()).unwrap_or_default();
            let is_seen = seen.contains(&(path.as_str(), blob.as_str()));
            !is_seen && !newest.iter().any(|known| entry(known, path) == *now)
        });
        self.bring(end, changed, Some(head).filter(|_| is_committed))
    }

    fn bring(
        &mut self,
        tree: &Tree<'_>,
        changed: Changed,
        commit: Option<&CommitId>,
    ) -> Result<(), GitError> {
        // Lines that were somewhere among what changed were only moved.
        let old = self.old_lines(&changed);
        let old: HashSet<&str> = old.iter().flat_map(|text| text.lines()).collect();
        for (path, (before, now)) in changed {
            let brought = self.brought(tree, path, (&before, now), &old, commit)?;
            self.all.changes.push(brought);
        }
        Ok(())
    }

    /// Paths that differ from every parent, with what the parents have there and what is there now.
    fn changed(&self, tree: &Tree<'_>, parents: &[Tree<'_>]) -> Result<Changed, GitError> {
        let mut found = Changed::new();
        let roots: Vec<Option<&Tree<'_>>> =
            if parents.is_empty() { vec![None] } else { parents.iter().map(Some).collect() };
        for (at, parent) in roots.iter().enumerate() {
            let mut options = DiffOptions::new();
            options.include_typechange(true).max_size(i64::try_from(LARGEST_FILE).unwrap_or(i64::MAX));
            let diff = tree_diff(self.repository, *parent, Some(tree), &mut options)?;
            let mut here = Changed::new();
            for delta in diff.deltas() {
                let side = |file: &git2::DiffFile<'_>| Entry { id: file.id(), mode: i32::from(file.mode()) };
                let (old, new) = (delta.old_file(), delta.new_file());
                let path = new.path().or(old.path()).unwrap_or(Path::new("")).to_string_lossy().into_owned();
                let before = (delta.status() != Delta::Added).then(|| side(&old));
                let now = (delta.status() != Delta::Deleted).then(|| side(&new));
                here.insert(path, (before.into_iter().collect(), now));
            }
            if at == 0 {
                found = here;
            } else {
                found.retain(|path, (before, _)| {
                    let Some((further, _)) = here.get(path) else { return false };
                    before.extend(further);
                    true
                });
            }
        }
        Ok(found)
    }

    fn old_lines(&self, changed: &Changed) -> Vec<String> {
        let mut texts = Vec::new();
        let mut left = self.left;
        for entry in changed.values().flat_map(|(before, _)| before) {
            if entry.mode != SUBMODULE
                && let Some(bytes) = self.read(entry.id, &mut left)
            {
                texts.push(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        texts
    }

    /// A blob, its length asked first and taken from what is left.
    fn read(&self, id: Oid, left: &mut u64) -> Option<Vec<u8>> {
        let (length, ObjectType::Blob) = self.repository.odb().ok()?.read_header(id).ok()? else {
            return None;
        };
        if length as u64 > LARGEST_FILE.min(*left) {
            return None;
        }
        *left -= length as u64;
        self.repository.find_blob(id).ok().map(|blob| blob.content().to_vec())
    }

    fn brought(
        &mut self,
        tree: &Tree<'_>,
        path: String,
        (before, now): (&[Entry], Option<Entry>),
        old: &HashSet<&str>,
        commit: Option<&CommitId>,
    ) -> Result<OutgoingChange, GitError> {
        let mut brought = OutgoingChange {
            path,
            commit: commit.cloned(),
            kind: OutgoingKind::Gone,
            blob: String::new(),
            bytes: 0,
            before: before.iter().map(|entry| entry.id.to_string()).collect(),
            is_new: before.is_empty(),
            mode_changed: false,
            binary: false,
            lines: 0,
            found: Vec::new(),
        };
        let Some(now) = now else { return Ok(brought) };
        brought.blob = now.id.to_string();
        brought.mode_changed = match before {
            [] => now.mode != PLAIN,
            before => before.iter().all(|entry| entry.mode != now.mode),
        };
        if now.mode == SUBMODULE {
            brought.kind = OutgoingKind::Submodule;
            return Ok(brought);
        }
        let (length, _) = self.repository.odb()?.read_header(now.id)?;
        brought.bytes = length as u64;
        let mut left = self.left;
        let bytes = self.read(now.id, &mut left);
        self.left = left;
        brought.kind = match (now.mode, &bytes) {
            (LINK, Some(target)) => OutgoingKind::Link(behind(self.repository, tree, &brought.path, target)),
            (LINK, None) => OutgoingKind::Link(Vec::new()),
            _ => OutgoingKind::File,
        };
        let Some(bytes) = bytes else {
            brought.binary = true;
            return Ok(brought);
        };
        brought.binary = bytes.iter().take(BINARY_LOOK).any(|byte| *byte == 0);
        // Text with two bytes for a character is read without its zero bytes.
        let text = match bytes.contains(&0) {
            true => String::from_utf8_lossy(&bytes).replace('\0', ""),
            false => String::from_utf8_lossy(&bytes).into_owned(),
        };
        let numbered = text.lines().zip(1..).map(|(line, number)| (number, line));
        let added: Vec<(u32, &str)> = numbered.filter(|(_, line)| !old.contains(line)).collect();
        brought.lines = added.len() as u64;
        brought.found = match brought.binary {
            true => {
                let readable: Vec<(u32, &str)> = added
                    .iter()
                    .flat_map(|(number, line)| readable(line).map(|part| (*number, part)))
                    .collect();
                (self.inspect)(&readable)
            }
            false => (self.inspect)(&added),
        };
        Ok(brought)
    }
}

/// Why a look at the message of a commit does not see what others read there; `None` = it does.
fn unreadable(commit: &[u8]) -> Option<String> {
    if commit.contains(&0) {
        return Some("it has a NUL byte".to_owned());
    }
    let header = commit.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
    let mut encodings = header.filter_map(|line| line.strip_prefix(b"encoding "));
    let other = encodings.find(|encoding| !has_ascii(encoding))?;
    Some(format!("it says that it is not UTF-8 but {}", String::from_utf8_lossy(other).escape_debug()))
}

/// Whether the bytes of ASCII mean in this encoding what they mean in UTF-8.
fn has_ascii(encoding: &[u8]) -> bool {
    let name = String::from_utf8_lossy(encoding).to_ascii_lowercase().replace(['-', '_'], "");
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    let numbered = ["iso8859", "latin", "windows125", "cp125"];
    ["utf8", "ascii", "usascii"].contains(&name.as_str())
        || numbered.iter().any(|known| name.strip_prefix(known).is_some_and(is_number))
}

/// What somebody could read of a line of a binary file. Looking at the rest of it costs much and finds nothing.
fn readable(line: &str) -> impl Iterator<Item = &str> {
    // Control characters may hide a secret, and stay in it.
    let parts = line.split(char::REPLACEMENT_CHARACTER);
    parts.filter(|part| part.chars().count() >= SHORTEST_READABLE)
}

fn entry(tree: &Tree<'_>, path: &str) -> Option<Entry> {
    let found = tree.get_path(Path::new(path)).ok()?;
    Some(Entry { id: found.id(), mode: found.filemode() })
}

/// Files of the same tree that a link shows under its own name.
fn behind(repository: &Repository, tree: &Tree<'_>, link: &str, target: &[u8]) -> Vec<String> {
    let target = String::from_utf8_lossy(target);
    let mut parts: Vec<&str> = link.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let target = if parts.is_empty() {
        Ok(tree.id())
    } else {
        tree.get_path(Path::new(&parts.join("/"))).map(|entry| entry.id())
    };
    let Ok(target) = target else { return Vec::new() };
    let mut found = Vec::new();
    let mut open = vec![(target, link.to_owned())];
    while let Some((id, shown)) = open.pop() {
        // What is no folder is named already.
        let Ok(folder) = repository.find_tree(id) else { continue };
        for entry in &folder {
            let path = format!("{shown}/{}", String::from_utf8_lossy(entry.name_bytes()));
            match entry.kind() {
                Some(ObjectType::Tree) => open.push((entry.id(), path)),
                _ => found.push(path),
            }
            if found.len() >= MOST_BEHIND {
                return found;
            }
        }
    }
    found
}
