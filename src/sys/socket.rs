//! Sockets in the file system, however long the path of their folder is.
//!
//! A socket's path may have some hundred bytes, and run folders are deeper than that: the folder's open descriptor stands
//! for it.
#![cfg(unix)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Longest path of a socket that every system takes, in bytes.
const LONGEST_PATH: usize = 100;

/// Listens on `name` in a folder that exists; what it gives never blocks.
pub fn listen(folder: &Path, name: &str) -> io::Result<UnixListener> {
    let (_open, path) = short(folder, name)?;
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connects to a socket.
pub fn connect(socket: &Path) -> io::Result<UnixStream> {
    match (socket.parent(), socket.file_name().and_then(|name| name.to_str())) {
        (Some(folder), Some(name)) => {
            let (_open, path) = short(folder, name)?;
            UnixStream::connect(path)
        }
        _ => UnixStream::connect(socket),
    }
}

/// A path that is short enough; good as long as what is given with it is open.
fn short(folder: &Path, name: &str) -> io::Result<(Option<File>, PathBuf)> {
    let path = folder.join(name);
    if path.as_os_str().len() < LONGEST_PATH {
        return Ok((None, path));
    }
    let open = File::open(folder)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", open.as_raw_fd()));
    Ok((Some(open), path))
}
