//! Process trees: which process descends from which, and how a whole tree is ended, with `setsid` children (D60).
//!
//! Every direct child is a subreaper of its descendants, and so is agentd. An orphan therefore goes to the direct child
//! while that lives, and to agentd afterwards. A process that arrives here and was not started here is left over from
//! something finished, and is ended.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The direct children that are alive or not yet cleaned up after, by process id.
static LIVE: Mutex<BTreeMap<u32, LiveChild>> = Mutex::new(BTreeMap::new());

/// A direct child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveChild {
    /// Process id; also its process group and session.
    pub pid: u32,
    /// What was started.
    pub program: PathBuf,
}

/// The children that are alive right now.
pub fn live() -> Vec<LiveChild> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
}

/// Starts a child and lists it before anyone can take it for a leftover.
pub(super) fn start<C>(
    program: &std::path::Path,
    spawn: impl FnOnce() -> std::io::Result<C>,
    pid_of: impl Fn(&C) -> Option<u32>,
) -> std::io::Result<C> {
    os::become_subreaper();
    let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    let child = spawn()?;
    if let Some(pid) = pid_of(&child) {
        live.insert(pid, LiveChild { pid, program: program.to_owned() });
    }
    Ok(child)
}

/// Takes a child off the list, after it was waited for.
pub(super) fn forget(pid: u32) {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
}

/// Asks everything below and including `root` to end.
pub(super) fn terminate(root: u32) {
    os::ask_tree_to_end(root);
}

/// Kills `root` and everything below until none of it runs. This may take some milliseconds. It gives up after two
/// seconds.
pub(super) fn kill(root: u32) {
    os::kill_tree(root);
}

/// Kills the process group of a child that was not waited for yet, without looking further.
pub(super) fn kill_group(root: u32) {
    #[cfg(unix)]
    if let Ok(group) = i32::try_from(root)
        && group > 1
    {
        let _ =
            nix::sys::signal::killpg(nix::unistd::Pid::from_raw(group), nix::sys::signal::Signal::SIGKILL);
    }
    #[cfg(not(unix))]
    let _ = root;
}

/// Kills and reaps what finished children left behind.
pub(super) fn kill_leftovers(ended: u32) {
    os::kill_leftovers(ended, &|| {
        LIVE.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    });
}

/// Kills every process of this user whose environment has `variable=value`: what a killed agentd left running.
/// Gives how many there were. Does nothing where `/proc` is missing.
pub fn kill_strays(variable: &str, value: &str) -> usize {
    os::kill_marked(format!("{variable}={value}").as_bytes())
}

/// When a process started, in the kernel's own unit. Together with pid and boot id it identifies a process.
pub fn start_time(pid: u32) -> Option<u64> {
    os::start_time(pid)
}

#[cfg(target_os = "linux")]
mod os {
    use std::collections::BTreeSet;
    use std::fs;
    use std::io::Read as _;
    use std::sync::Once;
    use std::time::Duration;

    use nix::errno::Errno;
    use nix::sys::signal::{Signal, kill};
    use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
    use nix::unistd::Pid;

    use crate::sys::clock::Stopwatch;

    const GIVE_UP: Duration = Duration::from_secs(2);
    const PAUSE: Duration = Duration::from_millis(2);

    #[derive(Debug, Clone, Copy)]
    struct Process {
        pid: u32,
        parent: u32,
        session: u32,
        started: u64,
        ended: bool,
    }

    pub(super) fn become_subreaper() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
                tracing::warn!(%error, "cannot become a subreaper; detached descendants of commands may survive them");
            }
        });
    }

    /// Reads one `/proc/<pid>/stat`. The command in parentheses may hold anything, so fields count from its end.
    fn read(pid: u32) -> Option<Process> {
        // The kernel writes the line at once, and it is never longer.
        let mut line = [0; 1024];
        let length = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut line).ok()?;
        let line = line.get(..length)?;
        let after = line.iter().rposition(|byte| *byte == b')')? + 2;
        let mut fields = std::str::from_utf8(line.get(after..)?).ok()?.split(' ');
        let ended = matches!(fields.next()?, "Z" | "X");
        Some(Process {
            pid,
            parent: fields.next()?.parse().ok()?,
            session: fields.nth(1)?.parse().ok()?,
            started: fields.nth(15)?.parse().ok()?,
            ended,
        })
    }

    fn table() -> Vec<Process> {
        fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?))
            .collect()
    }

    fn below(table: &[Process], roots: &BTreeSet<u32>) -> Vec<Process> {
        let mut members = roots.clone();
        loop {
            let before = members.len();
            members.extend(
                table.iter().filter(|p| members.contains(&p.parent)).map(|p| p.pid).collect::<Vec<_>>(),
            );
            if members.len() == before {
                return table.iter().filter(|p| members.contains(&p.pid)).copied().collect();
            }
        }
    }

    fn send(process: &Process, signal: Signal) {
        // The number may have gone to someone else since the table was read.
        if read(process.pid).is_some_and(|now| now.started == process.started)
            && let Ok(pid) = i32::try_from(process.pid)
        {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    pub(super) fn ask_tree_to_end(root: u32) {
        for process in below(&table(), &BTreeSet::from([root])) {
            send(&process, Signal::SIGTERM);
        }
    }

    pub(super) fn kill_tree(root: u32) {
        kill_until_gone(|table| below(table, &BTreeSet::from([root])));
    }

    pub(super) fn kill_leftovers(_ended: u32, live: &dyn Fn() -> BTreeSet<u32>) {
        if has_no_child() {
            return;
        }
        let me = std::process::id();
        let Some(own) = read(me) else { return };
        kill_until_gone(|table| {
            // A child in our own session was started by other code in this process and is not ended.
            let live = live();
            let orphans: BTreeSet<u32> = table
                .iter()
                .filter(|p| p.parent == me && p.session != own.session && !live.contains(&p.pid))
                .map(|p| p.pid)
                .collect();
            for orphan in table.iter().filter(|p| p.ended && orphans.contains(&p.pid)) {
                reap(orphan.pid);
            }
            below(table, &orphans)
        });
    }

    /// Whether this process has no child at all, not even an adopted one. The kernel answers at once, while reading
    /// `/proc` takes longer on a busy machine. If it is not known, `false`.
    fn has_no_child() -> bool {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT | WaitPidFlag::__WALL;
        waitid(Id::All, look) == Err(Errno::ECHILD)
    }

    fn kill_until_gone(select: impl Fn(&[Process]) -> Vec<Process>) {
        let clock = Stopwatch::start();
        loop {
            let found = select(&table());
            let running: Vec<_> = found.iter().filter(|p| !p.ended).collect();
            if running.is_empty() {
                return;
            }
            for process in &running {
                send(process, Signal::SIGKILL);
            }
            if clock.elapsed() > GIVE_UP {
                let pids: Vec<_> = running.iter().map(|p| p.pid).collect();
                tracing::warn!(?pids, "killed processes do not end");
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn reap(pid: u32) {
        if let Ok(pid) = i32::try_from(pid) {
            while waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG)) == Err(Errno::EINTR) {}
        }
    }

    pub(super) fn kill_marked(mark: &[u8]) -> usize {
        let me = std::process::id();
        let marked = |p: &Process| {
            p.pid != me
                && !p.ended
                && fs::read(format!("/proc/{}/environ", p.pid))
                    .is_ok_and(|env| env.split(|byte| *byte == 0).any(|entry| entry == mark))
        };
        let first: Vec<Process> = table().into_iter().filter(|p| marked(p)).collect();
        if !first.is_empty() {
            let roots: BTreeSet<u32> = first.iter().map(|p| p.pid).collect();
            kill_until_gone(|table| below(table, &roots).into_iter().filter(|p| p.pid != me).collect());
            kill_until_gone(|table| table.iter().filter(|p| marked(p)).copied().collect());
        }
        first.len()
    }

    pub(super) fn start_time(pid: u32) -> Option<u64> {
        read(pid).filter(|process| !process.ended).map(|process| process.started)
    }
}

#[cfg(all(unix, not(target_os = "linux")))]
mod os {
    use std::collections::BTreeSet;

    use nix::sys::signal::{Signal, killpg};
    use nix::unistd::Pid;

    pub(super) fn become_subreaper() {}

    fn send(root: u32, signal: Signal) {
        if let Ok(group) = i32::try_from(root) {
            let _ = killpg(Pid::from_raw(group), signal);
        }
    }

    pub(super) fn ask_tree_to_end(root: u32) {
        send(root, Signal::SIGTERM);
    }

    pub(super) fn kill_tree(root: u32) {
        send(root, Signal::SIGKILL);
    }

    pub(super) fn kill_leftovers(ended: u32, _live: &dyn Fn() -> BTreeSet<u32>) {
        send(ended, Signal::SIGKILL);
    }

    pub(super) fn kill_marked(_mark: &[u8]) -> usize {
        0
    }

    /// Without `/proc` only the process id is known: 0 for a process that exists.
    pub(super) fn start_time(pid: u32) -> Option<u64> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?);
        nix::sys::signal::kill(pid, None).is_ok().then_some(0)
    }
}

#[cfg(not(unix))]
mod os {
    use std::collections::BTreeSet;
    use std::process::Stdio;

    pub(super) fn become_subreaper() {}

    pub(super) fn ask_tree_to_end(root: u32) {
        kill_tree(root);
    }

    pub(super) fn kill_tree(root: u32) {
        #[expect(clippy::disallowed_methods, reason = "the system's own program ends trees here")]
        let mut program = std::process::Command::new("taskkill");
        program.args(["/T", "/F", "/PID"]).arg(root.to_string());
        program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        drop(program.status());
    }

    pub(super) fn kill_leftovers(_ended: u32, _live: &dyn Fn() -> BTreeSet<u32>) {}

    pub(super) fn kill_marked(_mark: &[u8]) -> usize {
        0
    }

    pub(super) fn start_time(_pid: u32) -> Option<u64> {
        None
    }
}
