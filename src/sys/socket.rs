//! Sockets in the file system, for folders with paths of any length.
//!
//! The path of a socket may have about a hundred bytes, and paths of run folders are longer. So the open descriptor of
//! the folder is used instead.
#![cfg(unix)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Longest path of a socket that every system takes, in bytes.
const LONGEST_PATH: usize = 100;

/// Listens on `name` in an existing folder. The listener never blocks.
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

/// A path that is short enough. It is valid as long as the descriptor that comes with it is open.
fn short(folder: &Path, name: &str) -> io::Result<(Option<File>, PathBuf)> {
    let path = folder.join(name);
    if path.as_os_str().len() < LONGEST_PATH {
        return Ok((None, path));
    }
    let open = File::open(folder)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", open.as_raw_fd()));
    Ok((Some(open), path))
}
