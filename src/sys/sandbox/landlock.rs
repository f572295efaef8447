//! Restrictions that a process puts on itself where bubblewrap does not work: Landlock for files and signals, its own
//! network and mounts if the machine allows namespaces, and no capabilities.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetCreated, RulesetCreatedAttr as _, Scope, path_beneath_rules,
};
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::order_format::Rules;

/// The least version. From here on files that cannot be written cannot be truncated either (Linux 6.2).
const LEAST: ABI = ABI::V3;
/// What is used where the kernel has it.
const MOST: ABI = ABI::V6;
/// From here on signals stay inside (Linux 6.12).
pub(super) const SIGNALS: i64 = 6;
/// From here on files can be moved between folders (Linux 5.19).
pub(super) const RENAMES: i64 = 2;

/// Which Landlock the kernel has; 0 = none.
pub(super) fn version() -> i64 {
    const ONLY_VERSION: u32 = 1;
    #[expect(unsafe_code, reason = "a system call that only gives a number")]
    // SAFETY: no attributes are given and none are written.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0, ONLY_VERSION)
    };
    version.max(0)
}

/// Changes to empty shared memory and queues; with `network`, to an empty network with a loopback; and to its own copy
/// of the mounts, with the files of `shown_as`, `(here, there)`, each in the place of another.
pub(super) fn own_namespaces(network: bool, shown_as: &[(PathBuf, PathBuf)]) -> io::Result<()> {
    let mut wanted = CloneFlags::CLONE_NEWIPC;
    if network {
        wanted |= CloneFlags::CLONE_NEWNET;
    }
    if !shown_as.is_empty() {
        wanted |= CloneFlags::CLONE_NEWNS;
    }
    leave(wanted)?;
    if !shown_as.is_empty() {
        let all_private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&Path>, "/", None::<&Path>, all_private, None::<&Path>)?;
    }
    for (here, there) in shown_as {
        mount(Some(here), there, None::<&Path>, MsFlags::MS_BIND, None::<&Path>)?;
    }
    if network { raise_loopback() } else { Ok(()) }
}

/// As the same user, in namespaces of its own.
fn leave(wanted: CloneFlags) -> io::Result<()> {
    let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
    match unshare(CloneFlags::CLONE_NEWUSER | wanted) {
        Ok(()) => {
            // Inside, the user is who it was.
            let own = |file: &str, text: String| {
                let mut file = std::fs::OpenOptions::new().write(true).open(format!("/proc/self/{file}"))?;
                io::Write::write_all(&mut file, text.as_bytes())
            };
            own("setgroups", "deny".to_owned())?;
            own("uid_map", format!("{uid} {uid} 1"))?;
            own("gid_map", format!("{gid} {gid} 1"))?;
        }
        Err(_) => unshare(wanted)?,
    }
    Ok(())
}

#[expect(unsafe_code, reason = "an interface is raised by two calls on a socket")]
fn raise_loopback() -> io::Result<()> {
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
    // SAFETY: the request is plain memory, and outlives both calls.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        if libc::ioctl(fd, libc::SIOCGIFFLAGS, &mut request) != 0 {
            return Err(io::Error::last_os_error());
        }
        request.ifr_ifru.ifru_flags |= (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        if libc::ioctl(fd, libc::SIOCSIFFLAGS, &request) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// What bubblewrap does not restrict and the kernel can: sockets without a file can be reached only if this process or
/// its children made them, and named pipes can be made only in the given folders.
pub(super) fn complete(pipes: &[PathBuf]) -> io::Result<()> {
    if version() < RENAMES {
        return Ok(());
    }
    let other = |error: landlock::RulesetError| io::Error::other(error.to_string());
    let special = AccessFs::MakeFifo | AccessFs::MakeChar | AccessFs::MakeBlock;
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(special | AccessFs::Refer)
        .map_err(other)?
        .set_compatibility(CompatLevel::BestEffort)
        .scope(Scope::from_all(MOST))
        .map_err(other)?;
    let ruleset = ruleset.create().map_err(other)?;
    let ruleset = ruleset.add_rules(path_beneath_rules(["/"], AccessFs::Refer)).map_err(other)?;
    let ruleset = ruleset.add_rules(path_beneath_rules(pipes, AccessFs::MakeFifo)).map_err(other)?;
    ruleset.restrict_self().map_err(other)?;
    Ok(())
}

/// Gives up every capability and applies the restrictions to this process and all that it starts.
pub(super) fn enclose(rules: &Rules, pipes: &[PathBuf]) -> io::Result<()> {
    drop_capabilities();
    let other = |error: landlock::RulesetError| io::Error::other(error.to_string());
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LEAST))
        .map_err(other)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(MOST))
        .map_err(other)?
        .scope(Scope::from_all(MOST))
        .map_err(other)?;
    let mut ruleset = ruleset.create().map_err(other)?;
    let read = AccessFs::from_read(MOST);
    for place in &rules.readable {
        ruleset = show(ruleset, place, &rules.hidden, read)?;
    }
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let devices =
        ["null", "zero", "full", "random", "urandom", "tty"].map(|name| Path::new("/dev").join(name));
    ruleset = ruleset.add_rules(path_beneath_rules(devices, device)).map_err(other)?;
    ruleset = ruleset.add_rules(path_beneath_rules(["/proc"], read)).map_err(other)?;
    let special = AccessFs::MakeFifo | AccessFs::MakeChar | AccessFs::MakeBlock;
    let write = AccessFs::from_all(MOST) & !special;
    ruleset = ruleset.add_rules(path_beneath_rules(&rules.writable, write)).map_err(other)?;
    ruleset = ruleset.add_rules(path_beneath_rules(pipes, AccessFs::MakeFifo)).map_err(other)?;
    ruleset.restrict_self().map_err(other)?;
    Ok(())
}

/// Allows a place and everything below except hidden places. Landlock can only add, so what surrounds a hidden place is
/// added piece by piece. A link counts as its target.
fn show(
    ruleset: RulesetCreated,
    place: &Path,
    hidden: &[PathBuf],
    access: BitFlags<AccessFs>,
) -> io::Result<RulesetCreated> {
    let other = |error: landlock::RulesetError| io::Error::other(error.to_string());
    if hidden.iter().any(|secret| secret == place)
        || place.symlink_metadata().is_ok_and(|meta| meta.is_symlink())
    {
        return Ok(ruleset);
    }
    if !hidden.iter().any(|secret| secret.starts_with(place)) {
        return ruleset.add_rules(path_beneath_rules([place], access)).map_err(other);
    }
    // The names may be seen, what they name not.
    let mut ruleset = ruleset.add_rules(path_beneath_rules([place], AccessFs::ReadDir)).map_err(other)?;
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        ruleset = show(ruleset, &entry.path(), hidden, access)?;
    }
    Ok(ruleset)
}

/// Without the bounding set no program has capabilities, not even as root. A user without capabilities has none to give
/// up, so a refusal does not matter.
#[expect(unsafe_code, reason = "system calls that take numbers")]
fn drop_capabilities() {
    const HIGHEST: libc::c_ulong = 63;
    for capability in 0..=HIGHEST {
        // SAFETY: no memory is involved.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
}
