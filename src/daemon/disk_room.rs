//! Whether the disks have room for another run: that of its worktree, and that of its records.

use std::path::{Path, PathBuf};

use crate::sys::files;

/// How many bytes must stay free besides a new worktree, for records, indexes and the work itself.
const HEADROOM: u64 = 256 * 1024 * 1024;

/// The disk that has the least room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskRoom {
    /// Bytes that are free there.
    pub free: u64,
    /// Bytes that a start needs there.
    pub needs: u64,
    /// What is on it.
    pub of: Disk,
}

/// What stands on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// The worktrees.
    Worktrees,
    /// Records of runs, and what else the state directory has.
    State,
}

impl DiskRoom {
    /// Looks at both. `place` = where worktrees are made, and the bytes that one takes; `None` = it is not known, or starts do
    /// not look at the disk.
    pub fn look(place: Option<&(PathBuf, u64)>, state_dir: &Path) -> Option<Self> {
        let (at, takes) = place?;
        let room = |free, needs, of| Self { free, needs, of };
        let worktrees = room(files::disk_free(at)?, takes.saturating_add(HEADROOM), Disk::Worktrees);
        let state = files::disk_free(state_dir).map(|free| room(free, HEADROOM, Disk::State));
        // Where both are one, the worktree is what is in question.
        Some(state.filter(|state| state.is_full() && !worktrees.is_full()).unwrap_or(worktrees))
    }

    /// Whether there is none.
    pub fn is_full(&self) -> bool {
        self.free < self.needs
    }

    /// What a person can do where it is full.
    pub fn remedy(&self) -> &'static str {
        match self.of {
            Disk::Worktrees => "agentd worktrees prune",
            Disk::State => "make room on the disk of the state directory",
        }
    }
}

impl std::fmt::Display for DiskRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (free, needs) = (mebibytes(self.free), mebibytes(self.needs));
        match (self.of, self.is_full()) {
            (_, false) => write!(f, "{free} are free for its worktree"),
            (Disk::Worktrees, true) => {
                write!(
                    f,
                    "the disk has {free} left, and a worktree takes {needs}; make room (agentd worktrees prune)"
                )
            }
            (Disk::State, true) => write!(
                f,
                "the disk of the state directory has {free} left, and {needs} have to stay free for records; make room on it"
            ),
        }
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes / (1024 * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_that_is_full_is_named() {
        let here = std::env::temp_dir();
        let look = |takes| DiskRoom::look(Some(&(here.clone(), takes)), &here).unwrap();
        assert_eq!((look(u64::MAX / 4).of, look(u64::MAX / 4).is_full()), (Disk::Worktrees, true));
        assert_eq!(DiskRoom::look(None, &here), None);
        let room = |free, of| DiskRoom { free, needs: HEADROOM, of }.to_string();
        assert!(
            room(1 << 20, Disk::State)
                .starts_with("the disk of the state directory has 1 MiB left, and 256 MiB")
        );
        assert_eq!(room(512 << 20, Disk::State), "512 MiB are free for its worktree");
    }
}
