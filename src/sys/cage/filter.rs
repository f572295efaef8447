//! A filter of system calls: no kinds of sockets that no namespace holds back, no keys of the user, no way around it.

use std::io;

use nix::libc::{self, sock_filter};

/// Which sockets may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sockets {
    /// Those of the machine and of the internet.
    UnixAndInternet,
    /// Of the internet: the files of other programs' sockets stay out of reach.
    Internet,
    /// None but pairs.
    None,
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: Option<u32> = Some(0xC000_003E);
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: Option<u32> = Some(0xC000_00B7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: Option<u32> = None;

/// Where the kernel puts the parts of a call.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
/// Numbers from here on are another way of calling.
const X32: u32 = 0x4000_0000;

/// Installs it for this process and all that it starts. Where the machine's way of calling is not known, only a filter
/// that nothing rests on is left out.
pub(super) fn install(sockets: Sockets) -> io::Result<()> {
    let Some(architecture) = ARCHITECTURE else {
        return if sockets == Sockets::UnixAndInternet {
            Ok(())
        } else {
            Err(io::Error::other("it is not known for this kind of processor"))
        };
    };
    let program = program(architecture, sockets);
    nix::sys::prctl::set_no_new_privs()?;
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    #[expect(unsafe_code, reason = "a filter is installed by one call that reads it")]
    // SAFETY: the program outlives the call, which only reads it.
    let done = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn program(architecture: u32, sockets: Sockets) -> Vec<sock_filter> {
    let families: &[libc::c_int] = match sockets {
        Sockets::UnixAndInternet => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        Sockets::Internet => &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        Sockets::None => &[],
    };
    let refused = [
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
    ];
    let no = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let missing = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let unknown = libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT as u32;
    let mut all = vec![load(ARCH), unless(architecture, 1), answer(no), load(NUMBER)];
    // Jumps over the answer where the number is below.
    all.extend([step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, X32, 0, 1), answer(no)]);
    for call in refused {
        all.extend([equals(call as u32, 1), answer(no)]);
    }
    // It makes sockets without the call below.
    all.extend([equals(libc::SYS_io_uring_setup as u32, 1), answer(missing)]);
    all.extend([step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_socket as u32, 1, 0)]);
    all.push(answer(libc::SECCOMP_RET_ALLOW));
    all.push(load(FIRST_ARGUMENT));
    for family in families {
        all.extend([equals(*family as u32, 1), answer(libc::SECCOMP_RET_ALLOW)]);
    }
    all.push(answer(unknown));
    all
}

fn step(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

fn load(offset: u32) -> sock_filter {
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

/// Goes on with the next line where the value is this, else jumps over `over` lines.
fn equals(value: u32, over: u8) -> sock_filter {
    step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, 0, over)
}

/// Jumps over `over` lines where the value is this.
fn unless(value: u32, over: u8) -> sock_filter {
    step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, over, 0)
}

fn answer(value: u32) -> sock_filter {
    step(libc::BPF_RET | libc::BPF_K, value, 0, 0)
}
