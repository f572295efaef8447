//! The machine and the user that agentd runs as.

use super::process_tree;
use std::sync::OnceLock;

/// This process on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Host name.
    pub name: String,
    /// Changes with every boot; empty if the system does not have it.
    pub boot_id: String,
    /// Numeric user id; 0 where there is none.
    pub uid: u32,
    /// User name, or the number as text.
    pub user: String,
    /// This process.
    pub pid: u32,
    /// When this process started, in the kernel's own unit.
    pub started: u64,
}

impl Host {
    /// Asks the system.
    pub fn current() -> Self {
        let pid = std::process::id();
        let (uid, user) = user();
        let started = process_tree::start_time(pid).unwrap_or_default();
        Self { name: name(), boot_id: this_boot().to_owned(), uid, user, pid, started }
    }
}

/// Closes the memory and environment of this process to other programs of the same user (Linux), so that a command of
/// an agent cannot read tokens in `/proc/<pid>/environ`. This is a best effort; the sandbox works for every user.
pub fn close_memory() {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_dumpable(false) {
        tracing::warn!(%error, "the process's memory stays open to other programs of its user");
    }
}

#[cfg(unix)]
fn name() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(not(unix))]
fn name() -> String {
    String::new()
}

#[cfg(unix)]
fn user() -> (u32, String) {
    let uid = nix::unistd::getuid();
    let known = nix::unistd::User::from_uid(uid).ok().flatten();
    (uid.as_raw(), known.map_or_else(|| uid.to_string(), |user| user.name))
}

#[cfg(not(unix))]
fn user() -> (u32, String) {
    (0, String::new())
}

/// The id of this boot; empty where the system has none.
pub fn this_boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        id.map(|id| id.trim().to_owned()).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_host_knows_itself_the_same_way_twice() {
        let host = Host::current();
        assert_eq!(host, Host::current());
        assert!(host.started > 0 && host.boot_id.len() == 36 && !host.user.is_empty());
    }
}
