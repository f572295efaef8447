//! Talks over named pipes, for sandboxes in which nobody can make a socket: a pipe that takes the names
//! of callers, and two pipes of that name for each talk.
//!
//! The program in the sandbox may write in the folder. So who listens trusts nothing in it: it keeps the folder and the pipe of
//! calls open, opens what a call names by that folder without following links, and talks over pipes only.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, mkfifoat, unlinkat};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::{Receiver, Sender};
use uuid::Uuid;

/// The pipe that takes the names of callers.
const CALLS: &str = "bell";
/// Suffixes of the names of a connection's pipes: what the program writes, and what it reads.
const SAYS: &str = ".says";
const HEARS: &str = ".hears";
/// Letters of a talk's name.
const NAME: usize = 32;
/// How often, and how long, a caller looks whether somebody came.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: u32 = 500;

/// Where talks begin; closed when dropped.
#[derive(Debug)]
pub struct PipeListener {
    folder: OwnedFd,
    calls: Receiver,
    heard: Vec<u8>,
}

impl PipeListener {
    /// Listens in a folder that exists. Needs a tokio runtime.
    pub fn listen(folder: &Path) -> io::Result<Self> {
        let folder = open_folder(folder)?;
        mkfifoat(&folder, CALLS, Mode::S_IRUSR | Mode::S_IWUSR)?;
        // Also open for writing, so that it has no end as long as somebody listens.
        let calls = openat(&folder, CALLS, flags(OFlag::O_RDWR), Mode::empty())?;
        Ok(Self { calls: Receiver::from_owned_fd(calls)?, folder, heard: Vec::new() })
    }

    /// The next connection. Announcements that lead nowhere are ignored. Dropping the future loses nothing.
    pub async fn accept(&mut self) -> io::Result<(Receiver, Sender)> {
        loop {
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                let call: Vec<u8> = self.heard.drain(..=end).take(end).collect();
                if let Some(talk) = self.talk(&call) {
                    return Ok(talk);
                }
                continue;
            }
            if self.heard.len() > NAME {
                // No name is that long.
                self.heard.clear();
            }
            self.calls.read_buf(&mut self.heard).await?;
        }
    }

    /// Opens a talk's pipes, and takes their names away: so the caller sees that somebody came.
    fn talk(&self, call: &[u8]) -> Option<(Receiver, Sender)> {
        let name = std::str::from_utf8(call).ok()?;
        if name.len() != NAME || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let open = |end: &str, access| {
            openat(&self.folder, format!("{name}{end}").as_str(), flags(access), Mode::empty()).ok()
        };
        // Neither open waits for the other side, and both refuse anything that is not a pipe.
        let says = Receiver::from_owned_fd(open(SAYS, OFlag::O_RDONLY)?).ok()?;
        let hears = Sender::from_owned_fd(open(HEARS, OFlag::O_WRONLY)?).ok()?;
        for end in [SAYS, HEARS] {
            unlinkat(&self.folder, format!("{name}{end}").as_str(), UnlinkatFlags::NoRemoveDir).ok()?;
        }
        Some((says, hears))
    }
}

/// Calls whoever listens in a folder, and gives what is written to and what is read from. Blocks for a moment.
///
/// # Errors
/// Nobody listens there, or nobody takes the call.
pub fn call(folder: &Path) -> io::Result<(File, File)> {
    let folder = open_folder(folder)?;
    let calls = openat(&folder, CALLS, flags(OFlag::O_WRONLY), Mode::empty())?;
    let name = Uuid::new_v4().simple().to_string();
    let pipe = |end: &str, access| -> io::Result<OwnedFd> {
        let name = format!("{name}{end}");
        mkfifoat(&folder, name.as_str(), Mode::S_IRUSR | Mode::S_IWUSR)?;
        Ok(openat(&folder, name.as_str(), flags(access), Mode::empty())?)
    };
    let says = pipe(SAYS, OFlag::O_RDWR)?;
    let hears = pipe(HEARS, OFlag::O_RDONLY)?;
    File::from(calls).write_all(format!("{name}\n").as_bytes())?;
    for _ in 0..LOOKS {
        match openat(&folder, format!("{name}{HEARS}").as_str(), OFlag::O_PATH, Mode::empty()) {
            Err(Errno::ENOENT) => {
                for end in [&says, &hears] {
                    fcntl(end.as_fd(), FcntlArg::F_SETFL(OFlag::empty()))?;
                }
                return Ok((says.into(), hears.into()));
            }
            _ => std::thread::sleep(LOOK),
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "nobody took the call"))
}

fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    Ok(open(folder, OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_RDONLY, Mode::empty())?)
}

fn flags(access: OFlag) -> OFlag {
    access | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn two_sides_talk_and_each_hears_the_others_end() {
        let temp = tempfile::tempdir().unwrap();
        let mut listener = PipeListener::listen(temp.path()).unwrap();
        let folder = temp.path().to_owned();
        let program = std::thread::spawn(move || {
            let (mut says, mut hears) = call(&folder).unwrap();
            says.write_all(b"hello").unwrap();
            drop(says);
            let mut heard = String::new();
            hears.read_to_string(&mut heard).unwrap();
            heard
        });
        let (mut says, mut hears) = listener.accept().await.unwrap();
        let mut said = String::new();
        says.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "hello");
        hears.write_all(b"and you").await.unwrap();
        drop(hears);
        assert_eq!(program.join().unwrap(), "and you");
        let left: Vec<_> =
            std::fs::read_dir(temp.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [CALLS]);
        drop(listener);
        assert!(call(temp.path()).is_err(), "nobody listens any more");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn links_files_and_noise_open_nothing_and_the_next_ring_is_heard() {
        let temp = tempfile::tempdir().unwrap();
        let mut listener = PipeListener::listen(temp.path()).unwrap();
        let secret = temp.path().join("secret");
        crate::sys::files::write_public(&secret, b"untouched").unwrap();
        let (linked, plain) = ("a".repeat(NAME), "b".repeat(NAME));
        for end in [SAYS, HEARS] {
            std::os::unix::fs::symlink(&secret, temp.path().join(format!("{linked}{end}"))).unwrap();
            crate::sys::files::write_public(&temp.path().join(format!("{plain}{end}")), b"a file").unwrap();
        }
        let mut ringing = std::fs::OpenOptions::new().write(true).open(temp.path().join(CALLS)).unwrap();
        let noise = "x".repeat(5000);
        ringing.write_all(format!("{linked}\n{plain}\n../secret\n\n{noise}\n").as_bytes()).unwrap();
        let folder = temp.path().to_owned();
        let program = std::thread::spawn(move || call(&folder).unwrap().0.write_all(b"it is me").unwrap());
        let talk = tokio::time::timeout(Duration::from_secs(5), listener.accept()).await;
        let mut said = String::new();
        talk.unwrap().unwrap().0.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "it is me");
        program.join().unwrap();
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "untouched");
    }
}
