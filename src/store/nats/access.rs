//! How a node reaches its cluster's servers.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use crate::domain::cluster::forms::Forms;
use crate::domain::cluster::names::Names;

/// Servers, credentials and names of one node.
#[derive(Debug, Clone)]
pub struct Access {
    /// Addresses of the servers, `nats://HOST:PORT` or `tls://HOST:PORT`.
    pub urls: Vec<String>,
    /// How the node proves who it is.
    pub credentials: Credentials,
    /// Certificates.
    pub tls: Tls,
    /// The cluster's names.
    pub names: Names,
    /// This node's name.
    pub node: String,
    /// Stands for this node's state directory on its host.
    pub place: String,
    /// How long others leave a silent session its leases.
    pub lease: Duration,
    /// Whether this is a process beside the node's daemon, with a session of its own.
    pub beside: bool,
    /// What runs count against.
    pub caps: Caps,
    /// The forms of what nodes share that this version knows.
    pub forms: Forms,
}

/// How many runs there may be at a time over all nodes; 0 = any number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Caps {
    /// In all repositories together.
    pub in_all: usize,
    /// In each repository.
    pub in_a_repository: usize,
}

/// How a node proves to the servers who it is.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// It does not have to.
    None,
    /// By a file with a JWT and its key.
    File(PathBuf),
    /// By the seed of an nkey.
    Nkey(SecretString),
}

/// Certificates that are not the system's.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Who signs the servers' certificates.
    pub ca: Option<PathBuf>,
    /// This node's certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Whether nothing is said before the connection is encrypted.
    pub required: bool,
}
