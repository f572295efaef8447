//! The heads of a bare repository's branches, read again only after something was written beside them: pushes do not pass the API.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::bare;
use crate::sys::clock::Clock;

/// A file system's clock may stand still for so long: what was written within it is not told from what was read.
const CLOCK_STEP: Duration = Duration::from_millis(50);

/// What branches pointed at when they were last read.
#[derive(Debug, Clone, Default)]
pub struct Branches {
    heads: HashMap<String, Option<String>>,
    /// When the folders and files that a change of these heads goes through were written to.
    written: HashMap<PathBuf, Option<SystemTime>>,
    /// Whether they were read long enough after that.
    is_certain: bool,
}

/// Heads of one moment.
pub struct Heads<'a> {
    branches: &'a mut Branches,
    git_dir: &'a Path,
    opened: Option<git2::Repository>,
    now: SystemTime,
}

impl Branches {
    /// The heads as they are now.
    pub fn now<'a>(&'a mut self, git_dir: &'a Path) -> Heads<'a> {
        let now = SystemTime::from(Clock::system().now());
        if !self.is_certain || self.written.iter().any(|(place, then)| written(place) != *then) {
            *self = Self { is_certain: true, ..Self::default() };
        }
        Heads { branches: self, git_dir, opened: None, now }
    }
}

impl Heads<'_> {
    /// The commit that a branch points at; `None` = there is no such branch.
    pub fn head(&mut self, branch: &str) -> Option<&str> {
        if !self.branches.heads.contains_key(branch) {
            self.watch(branch);
            if self.opened.is_none() {
                self.opened = git2::Repository::open_bare(self.git_dir).ok();
            }
            let found = self.opened.as_ref().and_then(|opened| bare::head_in(opened, branch));
            self.branches.heads.insert(branch.to_owned(), found);
        }
        self.branches.heads.get(branch)?.as_deref()
    }

    /// A head is written by putting a file in its folder, and moved into `packed-refs`.
    fn watch(&mut self, branch: &str) {
        let heads = self.git_dir.join("refs").join("heads");
        let file = heads.join(branch);
        let folders = file.ancestors().skip(1).take_while(|folder| folder.starts_with(&heads));
        for place in folders.map(Path::to_path_buf).chain([self.git_dir.join("packed-refs")]) {
            let now = self.now;
            let is_certain = &mut self.branches.is_certain;
            self.branches.written.entry(place).or_insert_with_key(|place| {
                let time = written(place);
                *is_certain &= time.is_none_or(|time| time + CLOCK_STEP < now);
                time
            });
        }
    }
}

fn written(place: &Path) -> Option<SystemTime> {
    place.metadata().and_then(|found| found.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::bare::CommitSeed;

    fn commit(git_dir: &Path, branch: &str, file: &str) -> String {
        let files = [(file.to_owned(), b"x".to_vec())].into();
        bare::commit(git_dir, &CommitSeed { branch: branch.into(), files, ..CommitSeed::default() }).unwrap()
    }

    #[test]
    fn a_head_is_read_again_after_each_way_in_which_git_moves_it() {
        let place = tempfile::tempdir().unwrap();
        let git_dir = place.path();
        bare::create(git_dir, "main").unwrap();
        let mut branches = Branches::default();
        assert_eq!(branches.now(git_dir).head("feature/a"), None);
        for round in 0..20 {
            let written = commit(git_dir, "feature/a", &round.to_string());
            assert_eq!(branches.now(git_dir).head("feature/a"), Some(&*written), "round {round}");
        }
        let loose = git_dir.join("refs/heads/feature/a");
        let packed = format!("{} refs/heads/feature/a\n", std::fs::read_to_string(&loose).unwrap().trim());
        crate::sys::files::write_private(&git_dir.join("packed-refs"), packed.as_bytes()).unwrap();
        std::fs::remove_file(loose).unwrap();
        let head = branches.now(git_dir).head("feature/a").map(str::to_owned);
        assert!(head.is_some());
        assert!(bare::delete_branch(git_dir, "feature/a"));
        assert_eq!(branches.now(git_dir).head("feature/a"), None);
    }

    #[test]
    fn heads_that_nobody_moved_are_not_read_again() {
        let place = tempfile::tempdir().unwrap();
        let git_dir = place.path();
        bare::create(git_dir, "main").unwrap();
        commit(git_dir, "feature/a", "f");
        let old = std::fs::FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(5));
        for folder in ["refs/heads", "refs/heads/feature"] {
            std::fs::File::open(git_dir.join(folder)).unwrap().set_times(old).unwrap();
        }
        let mut branches = Branches::default();
        assert!(branches.now(git_dir).head("feature/a").is_some());
        let mut heads = branches.now(git_dir);
        assert!(heads.head("feature/a").is_some());
        assert!(heads.opened.is_none());
    }
}
