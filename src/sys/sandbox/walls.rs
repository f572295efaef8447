//! What of the machine is inside a sandbox.

use std::path::{Path, PathBuf};

use crate::sys::paths::AbsPath;

/// The folders of the system that exist inside, if the machine has them.
pub(super) const SYSTEM: [&str; 10] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix"];

/// What is inside, beside the system.
#[derive(Debug, Clone, Default)]
pub struct Walls {
    /// May be written. Must exist.
    pub writable: Vec<AbsPath>,
    /// May be read. What does not exist is left out.
    pub readable: Vec<AbsPath>,
    /// What of all that cannot be read.
    pub hidden: Vec<AbsPath>,
    /// Places such as the home: no folder is shown only because a program stands there, if it is one of them or lies around one.
    pub private: Vec<AbsPath>,
    /// The same, and nothing below is shown for that reason either.
    pub closed: Vec<AbsPath>,
    /// Whether a program that is named by a path is shown: where whoever configured agentd names it, and not a model.
    pub shows_named: bool,
    /// `(here, there)`: a file or folder shown at another place, writable.
    pub shown_as: Vec<(AbsPath, AbsPath)>,
    /// `(here, there)`: the same, not writable.
    pub shown_read_only: Vec<(AbsPath, AbsPath)>,
    /// Where named pipes may be made, besides the folders for temporary files. Readers there expect them.
    pub pipes: Vec<AbsPath>,
    /// What is left of the network.
    pub network: Network,
    /// Whether its program has the terminal of whoever started it. Nothing inside can type into that.
    pub terminal: bool,
}

/// What is left of the network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Network {
    /// Nothing.
    #[default]
    None,
    /// The proxy behind this socket.
    Proxy(AbsPath),
    /// The whole network, as outside.
    All,
}

/// The file for name lookup, if it is below /run.
pub(super) fn resolver() -> Option<PathBuf> {
    Path::new("/etc/resolv.conf").canonicalize().ok().filter(|real| real.starts_with("/run"))
}
