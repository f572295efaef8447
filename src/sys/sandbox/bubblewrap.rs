//! The sandbox with bubblewrap. What is not named does not exist inside.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::order_format::{FILTER_NUMBER, Order, WORD};
use super::program_places::ProgramPlaces;
use super::walls::{Network, SYSTEM, Walls, resolver};
use crate::sys::process::ProcessSpec;

/// The paths inside of agentd's own program and of the proxy's socket.
const OWN_PROGRAM: &str = "/run/agentd-sandbox/agentd";
const OWN_SOCKET: &str = "/run/agentd-sandbox/proxy";
/// Places that the kernel lets root write without capabilities, also the root of a user namespace. bubblewrap passes
/// over what it takes to be read-only already.
const KERNEL_SETTINGS: [&str; 5] = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"];

/// What a command in it is made of.
pub(super) struct Command<'a> {
    /// `bwrap`.
    pub bwrap: &'a Path,
    /// What this one can.
    pub can: Can,
    /// Whether it is handed a filter of system calls.
    pub filter: bool,
    /// agentd's own program, which sets limits and connects the proxy.
    pub own: Option<&'a Path>,
    /// The command itself, found.
    pub program: &'a Path,
    /// What it needs of the machine, to be read.
    pub places: &'a ProgramPlaces,
    /// Files of them, and of the system, that are hidden.
    pub hidden: &'a [PathBuf],
}

/// What a version of bubblewrap can.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Can {
    /// Bound what stands in memory (0.7).
    pub bound: bool,
    /// Refuse user namespaces inside (0.8).
    pub refuse_namespaces: bool,
}

impl Can {
    /// From what `bwrap --version` says.
    pub(super) fn parse(said: &str) -> Self {
        let mut numbers =
            said.split_whitespace().last().unwrap_or_default().split('.').map(str::parse::<u32>);
        let mut next = || numbers.next().and_then(Result::ok).unwrap_or_default();
        let version = (next(), next());
        Self { bound: version >= (0, 7), refuse_namespaces: version >= (0, 8) }
    }
}

/// The command line of bubblewrap.
pub(super) fn arguments(
    command: &Command<'_>,
    spec: &ProcessSpec,
    walls: &Walls,
    order: Order,
) -> Vec<OsString> {
    let mut args = Arguments::default();
    args.words(["--die-with-parent", "--unshare-all", "--cap-drop", "ALL"]);
    // The filter keeps programs from typing into a terminal that they have; without one they have none.
    if !(walls.terminal && command.filter) {
        args.words(["--new-session"]);
    }
    if command.can.refuse_namespaces {
        args.words(["--unshare-user", "--disable-userns"]);
    }
    if command.filter {
        args.words(["--seccomp"]);
        args.0.push(FILTER_NUMBER.to_string().into());
    }
    if walls.network == Network::All {
        args.words(["--share-net"]);
    }
    for folder in SYSTEM {
        args.system(Path::new(folder));
    }
    args.words(["--dev", "/dev", "--proc", "/proc"]);
    let most = command.can.bound.then_some(order.limits.temporary);
    for place in ["/dev/shm", "/tmp", "/run", "/var/tmp"] {
        args.in_memory(most, place);
    }
    for place in KERNEL_SETTINGS {
        args.pair("--ro-bind-try", Path::new(place), Path::new(place));
    }
    if walls.network == Network::All {
        args.network_files();
    }
    let mut shown: Vec<(&str, PathBuf, PathBuf)> = Vec::new();
    let mut same = |word, place: PathBuf| shown.push((word, place.clone(), place));
    command.places.shown.iter().for_each(|place| same("--ro-bind-try", place.clone()));
    walls.readable.iter().for_each(|place| same("--ro-bind-try", place.as_path().to_owned()));
    walls.writable.iter().for_each(|place| same("--bind", place.as_path().to_owned()));
    for (target, link) in &command.places.links {
        // What is made in a folder of the run stays there, and bubblewrap makes no link twice: the file is shown in its place.
        let stays = walls.shown_as.iter().any(|(_, there)| link.starts_with(there.as_path()));
        let word = if stays { "--ro-bind-try" } else { "--symlink" };
        shown.push((word, target.clone(), link.clone()));
    }
    for (here, there) in &walls.shown_as {
        shown.push(("--bind", here.as_path().to_owned(), there.as_path().to_owned()));
    }
    for (here, there) in &walls.shown_read_only {
        shown.push(("--ro-bind", here.as_path().to_owned(), there.as_path().to_owned()));
    }
    let mut order = order;
    if let (Network::Proxy(socket), Some(_)) = (&walls.network, command.own) {
        shown.push(("--bind", socket.as_path().to_owned(), OWN_SOCKET.into()));
        order.proxy = Some(OWN_SOCKET.into());
    }
    if let Some(own) = command.own {
        shown.push(("--ro-bind", own.to_owned(), OWN_PROGRAM.into()));
    }
    // Deeper places come later, so that nothing covers them. The others keep their order.
    shown.sort_by_key(|(_, _, there)| there.components().count());
    for (word, here, there) in &shown {
        args.pair(word, here, there);
    }
    for secret in command.hidden {
        args.hide(secret, command.can);
    }
    // The folders that hold the places above are in memory as well.
    args.words(["--remount-ro", "/dev", "--remount-ro", "/", "--chdir"]);
    args.0.push(spec.cwd.as_path().into());
    args.words(["--"]);
    if command.own.is_some() {
        args.0.extend([OWN_PROGRAM.into(), WORD.into(), order.text().into()]);
    }
    args.0.push(command.program.into());
    args.0.extend(spec.args.iter().cloned());
    args.0
}

/// What bubblewrap is told.
#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn words<const N: usize>(&mut self, words: [&str; N]) {
        self.0.extend(words.into_iter().map(OsString::from));
    }

    fn pair(&mut self, word: &str, here: &Path, there: &Path) {
        self.0.extend([word.into(), here.into(), there.into()]);
    }

    /// A folder of the system as it is here: a link stays a link.
    fn system(&mut self, folder: &Path) {
        match std::fs::read_link(folder) {
            Ok(target) => self.pair("--symlink", &target, folder),
            Err(_) if folder.is_dir() => self.pair("--ro-bind", folder, folder),
            Err(_) => {}
        }
    }

    /// An empty folder for everyone, in memory, of at most so many bytes.
    fn in_memory(&mut self, most: Option<u64>, place: &str) {
        if let Some(most) = most {
            self.words(["--size", &most.to_string(), "--perms", "1777"]);
        }
        self.words(["--tmpfs", place]);
    }

    fn hide(&mut self, place: &Path, can: Can) {
        // Reading a link reads its target, so the target is hidden.
        let Ok(real) = place.canonicalize() else { return };
        if real.is_dir() {
            if can.bound {
                self.words(["--perms", "0555"]);
            }
            self.0.extend(["--tmpfs".into(), real.clone().into()]);
            self.words(["--remount-ro"]);
            self.0.push(real.into());
        } else {
            self.pair("--ro-bind", Path::new("/dev/null"), &real);
        }
    }

    /// Names are looked up with files that may stand below /run.
    fn network_files(&mut self) {
        if let Some(real) = resolver() {
            self.pair("--ro-bind", &real, &real);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_tells_what_it_can() {
        let can = |said| (Can::parse(said).bound, Can::parse(said).refuse_namespaces);
        assert_eq!(can("bubblewrap 0.6.2\n"), (false, false));
        assert_eq!(can("bubblewrap 0.7.0"), (true, false));
        assert_eq!(can("bubblewrap 0.8.0"), (true, true));
        assert_eq!(can("bubblewrap 0.11.0"), (true, true));
        assert_eq!(can("bubblewrap 1.0"), (true, true));
        assert_eq!(can("whatever"), (false, false));
    }
}
