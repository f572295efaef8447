//! A control group for one run, if the machine lets agentd make one. It limits the number of processes, also root's.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How its groups are called, before agentd's process id.
const NAME: &str = "agentd-";

/// A group. It is removed with its last holder, when none of its processes runs any more.
#[derive(Debug, Clone)]
pub struct Group(Arc<Folder>);

#[derive(Debug)]
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // The kernel lets go of what ended a moment after it did.
        for _ in 0..50 {
            match std::fs::remove_dir(&self.0) {
                Err(error) if error.raw_os_error() == Some(16) => {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
                _ => return,
            }
        }
    }
}

impl Group {
    /// Makes one below agentd's own. `None`: the machine does not allow it.
    pub fn make(processes: u64) -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        places(&own).into_iter().find_map(|place| {
            remove_orphans(&place);
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let made = place.join(format!("{NAME}{}-{number}", std::process::id()));
            std::fs::create_dir(&made).ok()?;
            let folder = Folder(made);
            // For the newer kind the group above may have to enable the limit.
            if !folder.0.join("pids.max").exists() {
                drop(write(&place.join("cgroup.subtree_control"), "+pids"));
            }
            write(&folder.0.join("pids.max"), &processes.to_string()).ok()?;
            Some(Self(Arc::new(folder)))
        })
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.0.0
    }
}

/// Groups of killed agentd processes. Nothing runs in them any more.
fn remove_orphans(place: &Path) {
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid =
            name.to_str().and_then(|name| name.strip_prefix(NAME)?.split('-').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            drop(std::fs::remove_dir(entry.path()));
        }
    }
}

/// The groups of agentd, from `/proc/self/cgroup`: the older kind with one tree for each controller, and the newer
/// kind.
fn places(own: &str) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let found = own.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let below = path.trim_start_matches('/');
        if controllers.split(',').any(|controller| controller == "pids") {
            return Some(root.join("pids").join(below));
        }
        (controllers.is_empty() && root.join("cgroup.controllers").exists()).then(|| root.join(below))
    });
    found.filter(|place| place.is_dir()).collect()
}

/// Puts this process, and all that it starts, into a group.
pub(super) fn join(group: &Path) -> io::Result<()> {
    write(&group.join("cgroup.procs"), "0")
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(file)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_groups_are_found_in_both_kinds() {
        assert!(places("12:memory:/a\n0::/nowhere/at/all\n").is_empty());
    }
}
