//! A filter of system calls. It forbids new namespaces, mounts, setuid bits, sockets that no namespace isolates, the
//! user's keys, and ways around the filter.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::libc::{self, sock_filter};

/// Which sockets may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sockets {
    /// Those of the machine and of the internet.
    UnixAndInternet,
    /// Internet sockets. The socket files of other programs cannot be reached.
    Internet,
    /// None but pairs.
    None,
}

/// What differs between sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Filter {
    /// Which sockets may be made.
    pub sockets: Sockets,
    /// Shared memory and queues of System V and POSIX, only where the sandbox has its own.
    pub own_ipc: bool,
    /// Limits and priorities of processes by id, only where there are no other processes.
    pub own_processes: bool,
}

/// Of bubblewrap's sandbox, whose namespaces hold the rest.
pub(super) const INSIDE_BUBBLEWRAP: Filter =
    Filter { sockets: Sockets::UnixAndInternet, own_ipc: true, own_processes: true };

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: Option<u32> = Some(0xC000_003E);
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: Option<u32> = Some(0xC000_00B7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: Option<u32> = None;

/// Where the kernel puts the parts of a call.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
/// Numbers from here on are another way of calling.
const X32: u32 = 0x4000_0000;
/// The first system call that is newer than this filter (Linux 6.17).
const UNKNOWN: u32 = 470;

/// Not every C library's list has them.
const FCHMODAT2: libc::c_long = 452;
const KEXEC_FILE_LOAD: libc::c_long = if cfg!(target_arch = "x86_64") { 320 } else { 294 };

/// Every flag of clone and unshare that makes a namespace.
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;
/// Only `unshare` accepts it. In `clone` these bits are the signal at the end of the child.
const TIME_NAMESPACE: u32 = 0x80;
/// A file with one of these bits runs as its owner or group, also outside.
const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;
/// Of open: a mode is given only with one of them.
const MAKES_A_FILE: u32 = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u32;

/// Calls that no program in a sandbox needs.
const REFUSED: [libc::c_long; 40] = [
    // Namespaces and mounts.
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    // Keys, which belong to the user and not to a namespace.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Large parts of the kernel that work for its administrator.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_kexec_load,
    KEXEC_FILE_LOAD,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_fanotify_init,
    // The machine's time and names.
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    // Memory and files of other processes.
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
];

/// Calls that are answered as if the kernel did not have them, so that libraries use others. Their arguments are in
/// memory, where a filter cannot look.
const MISSING: [libc::c_long; 3] = [libc::SYS_clone3, libc::SYS_openat2, libc::SYS_io_uring_setup];

/// Shared memory, semaphores and queues that are found by their names.
const IPC: [libc::c_long; 5] =
    [libc::SYS_shmget, libc::SYS_shmat, libc::SYS_msgget, libc::SYS_semget, libc::SYS_mq_open];

/// Calls with a file's mode, and which argument that is.
const MODES: &[(libc::c_long, u32)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
];
/// Calls that make a special file, and which argument its mode is.
const NODES: &[(libc::c_long, u32)] = &[
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
];
/// Calls that open a file, and which argument its flags are; the mode follows.
const OPENS: &[(libc::c_long, u32)] = &[
    (libc::SYS_openat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
];
/// Requests that type into a terminal, or steer one.
const TERMINAL: [u32; 3] = [0x5412, 0x541C, 0x541D];

const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
const IS_MISSING: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
const NO_FAMILY: u32 = libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT as u32;
const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

/// Installs it for this process and all that it starts. On an unknown kind of processor only a filter that nothing
/// depends on is left out.
pub(super) fn install(filter: Filter) -> io::Result<()> {
    let Some(architecture) = ARCHITECTURE else {
        return if filter == INSIDE_BUBBLEWRAP {
            Ok(())
        } else {
            Err(io::Error::other("it is not known for this kind of processor"))
        };
    };
    let program = program(architecture, filter);
    nix::sys::prctl::set_no_new_privs()?;
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    #[expect(unsafe_code, reason = "a filter is installed by one call that reads it")]
    // SAFETY: the program outlives the call, which only reads it.
    let done = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Writes it to an open file of that number for the next program. bubblewrap installs it for its own first process too;
/// otherwise a program could get around it through that process.
pub(super) fn hand_over(number: i32) -> io::Result<()> {
    let Some(architecture) = ARCHITECTURE else {
        return Err(io::Error::other("it is not known for this kind of processor"));
    };
    let mut bytes = Vec::new();
    for step in program(architecture, INSIDE_BUBBLEWRAP) {
        bytes.extend(step.code.to_ne_bytes());
        bytes.extend([step.jt, step.jf]);
        bytes.extend(step.k.to_ne_bytes());
    }
    let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
    let mut file = File::from(nix::sys::memfd::memfd_create(c"filter", flags)?);
    file.write_all(&bytes)?;
    io::Seek::rewind(&mut file)?;
    let file = OwnedFd::from(file);
    #[expect(unsafe_code, reason = "the number is left open on purpose")]
    // SAFETY: the number is not in use, because this process has just begun and opens few files.
    let copied = unsafe { libc::dup2(file.as_raw_fd(), number) };
    if copied == number { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether there is one for this kind of processor.
pub(super) fn is_known() -> bool {
    ARCHITECTURE.is_some()
}

fn program(architecture: u32, filter: Filter) -> Vec<sock_filter> {
    let mut all = vec![load(ARCH), unless(architecture, 1), answer(REFUSE), load(NUMBER)];
    all.extend([below(X32, 1), answer(REFUSE), below(UNKNOWN, 1), answer(IS_MISSING)]);
    REFUSED.iter().for_each(|call| all.extend([equals(*call as u32, 1), answer(REFUSE)]));
    let no_ipc = IPC.iter().filter(|_| !filter.own_ipc);
    MISSING.iter().chain(no_ipc).for_each(|call| all.extend([equals(*call as u32, 1), answer(IS_MISSING)]));
    let mut when = |call: libc::c_long, part: Vec<sock_filter>| {
        all.push(equals(call as u32, part.len() as u8));
        all.extend(part);
    };
    when(libc::SYS_clone, bits_refused(0, NAMESPACES));
    when(libc::SYS_unshare, bits_refused(0, NAMESPACES | TIME_NAMESPACE));
    for (call, mode) in MODES {
        when(*call, bits_refused(*mode, SET_ID));
    }
    for (call, mode) in NODES {
        when(*call, special_file(*mode));
    }
    for (call, flags) in OPENS {
        let mut part = vec![load(argument(*flags)), set(MAKES_A_FILE, 0, 3)];
        part.extend([load(argument(flags + 1)), set(SET_ID, 0, 1), answer(REFUSE), answer(ALLOW)]);
        when(*call, part);
    }
    if !filter.own_processes {
        when(libc::SYS_prlimit64, only_itself(0));
        when(libc::SYS_setpriority, only_itself(1));
        when(libc::SYS_ioprio_set, only_itself(1));
    }
    when(libc::SYS_ioctl, requests());
    when(libc::SYS_socket, families(filter.sockets));
    all.push(answer(ALLOW));
    all
}

/// Refuses what has one of the bits in an argument.
fn bits_refused(number: u32, bits: u32) -> Vec<sock_filter> {
    vec![load(argument(number)), set(bits, 0, 1), answer(REFUSE), answer(ALLOW)]
}

/// Refuses calls about other processes (0 means the process itself) and calls about all processes of a user.
fn only_itself(number: u32) -> Vec<sock_filter> {
    let mut all = vec![load(argument(number)), unless(0, 1), answer(REFUSE)];
    // `setpriority` uses 2 for users, `ioprio_set` uses 3. For a limit the first argument is the process id itself.
    all.extend([load(argument(0)), below(2, 1), answer(REFUSE), answer(ALLOW)]);
    all
}

/// Pipes and sockets may be made, devices not.
fn special_file(mode: u32) -> Vec<sock_filter> {
    let mut all = vec![load(argument(mode)), set(SET_ID, 0, 1), answer(REFUSE)];
    all.push(step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, libc::S_IFMT, 0, 0));
    for kind in [libc::S_IFCHR, libc::S_IFBLK] {
        all.extend([equals(kind, 1), answer(REFUSE)]);
    }
    all.push(answer(ALLOW));
    all
}

fn requests() -> Vec<sock_filter> {
    let mut all = vec![load(argument(1))];
    TERMINAL.iter().for_each(|request| all.extend([equals(*request, 1), answer(REFUSE)]));
    all.push(answer(ALLOW));
    all
}

/// Of netlink only interfaces and routes, which name lookup needs.
fn families(sockets: Sockets) -> Vec<sock_filter> {
    let families: &[libc::c_int] = match sockets {
        Sockets::UnixAndInternet => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6],
        Sockets::Internet => &[libc::AF_INET, libc::AF_INET6],
        Sockets::None => &[],
    };
    let mut all = vec![load(argument(0))];
    families.iter().for_each(|family| all.extend([equals(*family as u32, 1), answer(ALLOW)]));
    if sockets != Sockets::None {
        all.push(equals(libc::AF_NETLINK as u32, 3));
        all.extend([load(argument(2)), equals(libc::NETLINK_ROUTE as u32, 1), answer(ALLOW)]);
    }
    all.push(answer(NO_FAMILY));
    all
}

/// The offset of the lower half of an argument. Both kinds of processors have it first.
fn argument(number: u32) -> u32 {
    16 + 8 * number
}

fn step(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

fn load(offset: u32) -> sock_filter {
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

/// Goes on with the next line if the value is equal, else jumps over `over` lines.
fn equals(value: u32, over: u8) -> sock_filter {
    step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, 0, over)
}

/// Jumps over `over` lines where the value is this.
fn unless(value: u32, over: u8) -> sock_filter {
    step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, over, 0)
}

/// Jumps over `over` lines where the value is less.
fn below(value: u32, over: u8) -> sock_filter {
    step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, value, 0, over)
}

/// Jumps over `yes` lines if one of the bits is set, else over `no` lines.
fn set(bits: u32, yes: u8, no: u8) -> sock_filter {
    step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, bits, yes, no)
}

fn answer(value: u32) -> sock_filter {
    step(libc::BPF_RET | libc::BPF_K, value, 0, 0)
}
