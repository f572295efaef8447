//! The bare repositories behind the simulated GitHub: made, filled and read with libgit2.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use git2::{BranchType, ObjectType, Oid, Repository, RepositoryInitOptions, Signature, Time};

/// A commit to make: what changes, on which branch.
#[derive(Debug, Clone, Default)]
pub struct CommitSeed {
    /// Branch that receives the commit; made where it is new.
    pub branch: String,
    /// Branch that a new branch starts from; absent = a root commit.
    pub from: Option<String>,
    /// Commit message.
    pub message: String,
    /// `Name <mail>`.
    pub author: Option<String>,
    /// Seconds since 1970, so that commit ids are the same every time.
    pub at: i64,
    /// Files written, by path.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Of `files`, those with the executable bit.
    pub executable: BTreeSet<String>,
    /// Paths removed.
    pub remove: Vec<String>,
    /// Commit, branch or tag that the branch is set to before, whatever it has.
    pub onto: Option<String>,
}

/// Makes an empty bare repository that accepts pushes over HTTP.
pub fn create(git_dir: &Path, default_branch: &str) -> Result<(), git2::Error> {
    let mut options = RepositoryInitOptions::new();
    options.bare(true).mkpath(true).external_template(false).initial_head(default_branch);
    let repository = Repository::init_opts(git_dir, &options)?;
    let mut config = repository.config()?;
    config.set_bool("http.receivepack", true)?;
    config.set_bool("uploadpack.allowFilter", true)?;
    config.set_bool("uploadpack.allowAnySHA1InWant", true)?;
    config.set_i32("gc.auto", 0)?;
    Ok(())
}

/// Makes one commit and moves its branch; returns the commit id.
pub fn commit(git_dir: &Path, seed: &CommitSeed) -> Result<String, git2::Error> {
    let repository = Repository::open_bare(git_dir)?;
    let onto = match &seed.onto {
        Some(onto) => {
            let id = resolve(git_dir, onto)
                .ok_or_else(|| git2::Error::from_str(&format!("`{onto}` is no commit")))?;
            Some(repository.find_commit(Oid::from_str(&id)?)?)
        }
        None => None,
    };
    let branch = repository.find_branch(&seed.branch, BranchType::Local);
    let start = match (onto, branch) {
        (Some(onto), _) => Some(onto),
        (None, Ok(branch)) => Some(branch.get().peel_to_commit()?),
        (None, Err(_)) => match &seed.from {
            Some(from) => Some(repository.find_branch(from, BranchType::Local)?.get().peel_to_commit()?),
            None => None,
        },
    };
    let mut index = git2::Index::new()?;
    if let Some(start) = &start {
        index.read_tree(&start.tree()?)?;
    }
    for path in &seed.remove {
        index.remove_path(Path::new(path))?;
    }
    for (path, content) in &seed.files {
        let mode = if seed.executable.contains(path) { 0o100_755 } else { 0o100_644 };
        let entry = git2::IndexEntry {
            ctime: git2::IndexTime::new(0, 0),
            mtime: git2::IndexTime::new(0, 0),
            dev: 0,
            ino: 0,
            mode,
            uid: 0,
            gid: 0,
            file_size: 0,
            id: repository.blob(content)?,
            flags: 0,
            flags_extended: 0,
            path: path.clone().into_bytes(),
        };
        index.add(&entry)?;
    }
    let tree = repository.find_tree(index.write_tree_to(&repository)?)?;
    let author = signature(seed.author.as_deref(), seed.at)?;
    let parents: Vec<_> = start.iter().collect();
    let id = repository.commit(None, &author, &author, &seed.message, &tree, &parents)?;
    repository.reference(&format!("refs/heads/{}", seed.branch), id, true, "seeded")?;
    Ok(id.to_string())
}

fn signature(author: Option<&str>, at: i64) -> Result<Signature<'static>, git2::Error> {
    let author = author.unwrap_or("Simulator <simulator@example.com>");
    let (name, mail) = author.split_once('<').unwrap_or((author, "simulator@example.com"));
    Signature::new(name.trim(), mail.trim_end_matches('>').trim(), &Time::new(at, 0))
}

/// Puts every file under a directory, without `.git`, into a commit to make.
pub fn add_directory(seed: &mut CommitSeed, directory: &Path) -> std::io::Result<()> {
    let mut waiting: Vec<PathBuf> = vec![directory.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in std::fs::read_dir(&next)? {
            let entry = entry?;
            let path = entry.path();
            if entry.file_name() == ".git" {
                continue;
            }
            if entry.file_type()?.is_dir() {
                waiting.push(path);
                continue;
            }
            let name = path.strip_prefix(directory).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt;
                if entry.metadata()?.permissions().mode() & 0o111 != 0 {
                    seed.executable.insert(name.clone());
                }
            }
            seed.files.insert(name, std::fs::read(&path)?);
        }
    }
    Ok(())
}

/// The commit a branch points at.
pub fn head(git_dir: &Path, branch: &str) -> Option<String> {
    head_in(&Repository::open_bare(git_dir).ok()?, branch)
}

/// [`head`] of a repository that is open.
pub fn head_in(repository: &Repository, branch: &str) -> Option<String> {
    let reference = repository.find_reference(&format!("refs/heads/{branch}")).ok()?;
    Some(reference.peel_to_commit().ok()?.id().to_string())
}

/// The commit that a branch name, tag name or commit id means.
pub fn resolve(git_dir: &Path, name: &str) -> Option<String> {
    let repository = Repository::open_bare(git_dir).ok()?;
    let found = repository
        .find_reference(&format!("refs/heads/{name}"))
        .or_else(|_| repository.find_reference(&format!("refs/tags/{name}")))
        .and_then(|reference| reference.peel_to_commit())
        .or_else(|_| repository.revparse_single(name).and_then(|object| object.peel_to_commit()))
        .ok()?;
    Some(found.id().to_string())
}

/// Every ref whose full name begins with `prefix` (`refs/heads/`), with the object it points at and its type.
pub fn refs(git_dir: &Path, prefix: &str) -> Vec<(String, String, &'static str)> {
    let Ok(repository) = Repository::open_bare(git_dir) else { return Vec::new() };
    let Ok(references) = repository.references() else { return Vec::new() };
    let mut found: Vec<_> = references
        .flatten()
        .filter_map(|reference| {
            let name = reference.name().ok()?.to_owned();
            let target = reference.resolve().ok()?.target()?;
            let kind = match repository.find_object(target, None).ok()?.kind() {
                Some(ObjectType::Tag) => "tag",
                _ => "commit",
            };
            name.starts_with(prefix).then(|| (name, target.to_string(), kind))
        })
        .collect();
    found.sort();
    found
}

/// How many commits `head` has that `base` does not, and the other way round. Both are commit ids.
pub fn ahead_behind(git_dir: &Path, base: &str, head: &str) -> Option<(usize, usize)> {
    let repository = Repository::open_bare(git_dir).ok()?;
    repository.graph_ahead_behind(Oid::from_str(head).ok()?, Oid::from_str(base).ok()?).ok()
}

/// Lines added, lines removed and files changed from the merge base of two commits to `head`.
pub fn diff_stat(git_dir: &Path, base: &str, head: &str) -> Option<(usize, usize, usize)> {
    let repository = Repository::open_bare(git_dir).ok()?;
    let (base, head) = (Oid::from_str(base).ok()?, Oid::from_str(head).ok()?);
    let fork = repository.merge_base(base, head).ok()?;
    let old = repository.find_commit(fork).ok()?.tree().ok()?;
    let new = repository.find_commit(head).ok()?.tree().ok()?;
    let stats = repository.diff_tree_to_tree(Some(&old), Some(&new), None).ok()?.stats().ok()?;
    Some((stats.insertions(), stats.deletions(), stats.files_changed()))
}

/// A file's content at a branch, tag or commit.
pub fn file(git_dir: &Path, revision: &str, path: &str) -> Option<Vec<u8>> {
    let repository = Repository::open_bare(git_dir).ok()?;
    let commit = repository.find_commit(Oid::from_str(&resolve(git_dir, revision)?).ok()?).ok()?;
    let entry = commit.tree().ok()?.get_path(Path::new(path)).ok()?;
    Some(repository.find_blob(entry.id()).ok()?.content().to_vec())
}

/// The commits of a branch, newest first: id and full message.
pub fn log(git_dir: &Path, revision: &str) -> Vec<(String, String)> {
    let read = || -> Option<Vec<(String, String)>> {
        let repository = Repository::open_bare(git_dir).ok()?;
        let mut walk = repository.revwalk().ok()?;
        walk.push(Oid::from_str(&resolve(git_dir, revision)?).ok()?).ok()?;
        let mut found = Vec::new();
        for id in walk.flatten() {
            let commit = repository.find_commit(id).ok()?;
            found.push((id.to_string(), String::from_utf8_lossy(commit.message_bytes()).into_owned()));
        }
        Some(found)
    };
    read().unwrap_or_default()
}

/// The message, author and tree of a commit, with its parents: (message, name, mail, seconds, tree, parents).
pub fn commit_facts(git_dir: &Path, id: &str) -> Option<CommitFacts> {
    let repository = Repository::open_bare(git_dir).ok()?;
    let commit = repository.find_commit(Oid::from_str(id).ok()?).ok()?;
    let author = commit.author();
    Some(CommitFacts {
        message: String::from_utf8_lossy(commit.message_bytes()).into_owned(),
        name: String::from_utf8_lossy(author.name_bytes()).into_owned(),
        mail: String::from_utf8_lossy(author.email_bytes()).into_owned(),
        at: author.when().seconds(),
        tree: commit.tree_id().to_string(),
        parents: commit.parent_ids().map(|id| id.to_string()).collect(),
    })
}

/// What a commit says of itself.
#[derive(Debug, Clone)]
pub struct CommitFacts {
    /// Message, whole.
    pub message: String,
    /// Author's name.
    pub name: String,
    /// Author's mail address.
    pub mail: String,
    /// Author's time in seconds since 1970.
    pub at: i64,
    /// Tree id.
    pub tree: String,
    /// Parent ids.
    pub parents: Vec<String>,
}

/// Merges `head` into the branch `base` with a merge commit and returns its id; `squash`: with a commit that does not name
/// `head` as its parent.
pub fn merge(
    git_dir: &Path,
    (base, head): (&str, &str),
    squash: bool,
    message: &str,
    at: i64,
) -> Result<String, git2::Error> {
    let repository = Repository::open_bare(git_dir)?;
    let ours = repository.find_branch(base, BranchType::Local)?.get().peel_to_commit()?;
    let theirs = repository.find_branch(head, BranchType::Local)?.get().peel_to_commit()?;
    let mut index = repository.merge_commits(&ours, &theirs, None)?;
    if index.has_conflicts() {
        return Err(git2::Error::from_str("the branches conflict"));
    }
    let tree = repository.find_tree(index.write_tree_to(&repository)?)?;
    let author = signature(None, at)?;
    let parents = if squash { &[&ours][..] } else { &[&ours, &theirs] };
    let id = repository.commit(None, &author, &author, message, &tree, parents)?;
    repository.reference(&format!("refs/heads/{base}"), id, true, "merged")?;
    Ok(id.to_string())
}

/// Points a ref at a commit.
pub fn keep(git_dir: &Path, full: &str, id: &str) -> Result<(), git2::Error> {
    let repository = Repository::open_bare(git_dir)?;
    repository.reference(full, Oid::from_str(id)?, true, "kept").map(drop)
}

/// Whether two commits cannot be merged without a person.
pub fn conflict(git_dir: &Path, base: &str, head: &str) -> Option<bool> {
    let repository = Repository::open_bare(git_dir).ok()?;
    let commit = |id: &str| repository.find_commit(Oid::from_str(id).ok()?).ok();
    let merged = repository.merge_commits(&commit(base)?, &commit(head)?, None).ok()?;
    Some(merged.has_conflicts())
}

/// The difference of one file between two commits.
fn patch<'a>(
    repository: &'a Repository,
    (old, new): (&str, &str),
    path: &str,
    context: u32,
) -> Option<git2::Patch<'a>> {
    let tree = |id: &str| repository.find_commit(Oid::from_str(id).ok()?).ok()?.tree().ok();
    let mut options = git2::DiffOptions::new();
    options.pathspec(path).disable_pathspec_match(true).context_lines(context);
    let diff = repository.diff_tree_to_tree(Some(&tree(old)?), Some(&tree(new)?), Some(&mut options)).ok()?;
    git2::Patch::from_diff(&diff, 0).ok()?
}

/// Where a line of a file at one commit is at another one; `None` = it was changed or is gone.
pub fn follow_line(git_dir: &Path, (from, to): (&str, &str), path: &str, line: u64) -> Option<u64> {
    file(git_dir, to, path)?;
    let repository = Repository::open_bare(git_dir).ok()?;
    let Some(patch) = patch(&repository, (from, to), path, 0) else { return Some(line) };
    let mut now = line;
    for place in 0..patch.num_hunks() {
        let (hunk, _) = patch.hunk(place).ok()?;
        let (start, lines) = (u64::from(hunk.old_start()), u64::from(hunk.old_lines()));
        // An insertion names the line that it stands after.
        let first = if lines == 0 { start + 1 } else { start };
        if line < first {
            break;
        }
        if line < first + lines {
            return None;
        }
        now = (now + u64::from(hunk.new_lines())).checked_sub(lines)?;
    }
    Some(now)
}

/// The part of a pull request's diff that ends with a line, as GitHub shows it above a thread; `None` = the line is not in the diff.
pub fn hunk(git_dir: &Path, (base, head): (&str, &str), path: &str, line: u64, left: bool) -> Option<String> {
    let repository = Repository::open_bare(git_dir).ok()?;
    let fork = repository.merge_base(Oid::from_str(base).ok()?, Oid::from_str(head).ok()?).ok()?.to_string();
    let patch = patch(&repository, (&fork, head), path, 3)?;
    for place in 0..patch.num_hunks() {
        let (hunk, lines) = patch.hunk(place).ok()?;
        let mut text = String::from_utf8_lossy(hunk.header()).trim_end().to_owned();
        for inner in 0..lines {
            let found = patch.line_in_hunk(place, inner).ok()?;
            let content = String::from_utf8_lossy(found.content()).trim_end_matches('\n').to_owned();
            text.push_str(&format!("\n{}{content}", found.origin()));
            let number = if left { found.old_lineno() } else { found.new_lineno() };
            if number.map(u64::from) == Some(line) {
                return Some(text);
            }
        }
    }
    None
}

/// Deletes a branch; false when there was none.
pub fn delete_branch(git_dir: &Path, branch: &str) -> bool {
    Repository::open_bare(git_dir)
        .and_then(|repository| repository.find_reference(&format!("refs/heads/{branch}"))?.delete())
        .is_ok()
}
