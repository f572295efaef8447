//! The relay from a sandbox to agentd's proxy: a port of the sandbox's own loopback, connected to a socket that was let
//! in.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, dup2_stderr, dup2_stdin, dup2_stdout, fork};

use super::order_format::PROXY_PORT;

/// Listens, and leaves a process that carries connections. The command does not wait for that process. It ends with the
/// sandbox.
#[expect(unsafe_code, reason = "the process has one thread, so that its copy may do anything")]
pub(super) fn start(socket: &Path) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT))?;
    // SAFETY: no other thread exists yet.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            waitpid(child, None)?;
            Ok(())
        }
        ForkResult::Child => {
            // SAFETY: as above.
            let second = unsafe { fork() };
            if let Ok(ForkResult::Child) = second {
                silence();
                carry(&listener, socket);
            }
            std::process::exit(0);
        }
    }
}

/// Lets go of the command's own streams: they end with it.
fn silence() {
    if let Ok(nothing) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = dup2_stdin(&nothing);
        let _ = dup2_stdout(&nothing);
        let _ = dup2_stderr(&nothing);
    }
    let _ = nix::unistd::chdir("/");
}

fn carry(listener: &TcpListener, socket: &Path) {
    // This connection is never used and ends with the proxy. Then there is nothing to carry.
    if let Ok(mut leash) = UnixStream::connect(socket) {
        let end = move || {
            drop(io::copy(&mut leash, &mut io::sink()));
            std::process::exit(0);
        };
        drop(std::thread::Builder::new().stack_size(64 << 10).spawn(end));
    }
    for inner in listener.incoming().flatten() {
        let Ok(outer) = UnixStream::connect(socket) else { continue };
        let (Ok(inner_back), Ok(outer_back)) = (inner.try_clone(), outer.try_clone()) else { continue };
        let builder = || std::thread::Builder::new().stack_size(64 << 10);
        drop(builder().spawn(move || there(inner, outer)));
        drop(builder().spawn(move || back(outer_back, inner_back)));
    }
}

fn there(mut inner: TcpStream, mut outer: UnixStream) {
    drop(io::copy(&mut inner, &mut outer));
    drop(outer.shutdown(Shutdown::Write));
}

fn back(mut outer: UnixStream, mut inner: TcpStream) {
    drop(io::copy(&mut outer, &mut inner));
    drop(inner.shutdown(Shutdown::Write));
}
