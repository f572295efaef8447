//! How a node reaches its cluster's servers.

use std::path::PathBuf;
use std::time::Duration;

use nkeys::KeyPair;
use secrecy::{ExposeSecret as _, SecretString};

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

impl Credentials {
    /// Whether they are of the form that servers take, before anything is sent. Reads the file.
    ///
    /// # Errors
    /// What is wrong, in words that do not hold the secret.
    pub fn check(&self) -> Result<(), String> {
        let is_seed =
            |text: &str| KeyPair::from_seed(text).is_ok_and(|key| key.public_key().starts_with('U'));
        match self {
            Self::None => Ok(()),
            Self::Nkey(seed) if is_seed(seed.expose_secret().trim()) => Ok(()),
            Self::Nkey(_) => Err("is not the seed of a user's nkey, which begins with SU".to_owned()),
            Self::File(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
                let lines: Vec<&str> = text.lines().map(str::trim).collect();
                let has_token =
                    lines.iter().any(|line| line.split('.').count() == 3 && line.starts_with("ey"));
                match has_token && lines.iter().any(|line| is_seed(line)) {
                    true => Ok(()),
                    false => {
                        Err(format!("{} does not hold a user's JWT and the seed of its nkey", path.display()))
                    }
                }
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture in a temporary folder")]
    fn credentials_that_no_server_takes_are_told_without_their_secret() {
        let user = KeyPair::new_user();
        let seed = user.seed().unwrap();
        let account = KeyPair::new_account().seed().unwrap();
        let nkey = |text: &str| Credentials::Nkey(SecretString::from(text)).check();
        assert_eq!(nkey(&format!("{seed}\n")), Ok(()));
        for wrong in ["garbage", "", account.as_str(), &seed[..20]] {
            let told = nkey(wrong).unwrap_err();
            assert!(told.contains("seed") && (wrong.is_empty() || !told.contains(wrong)), "{told}");
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("user.creds");
        let written = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Credentials::File(file.clone()).check()
        };
        let jwt = "-----BEGIN NATS USER JWT-----\neyJ0.eyJq.c2ln\n------END NATS USER JWT------\n";
        let key = format!("-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n");
        assert_eq!(written(&format!("{jwt}\n{key}")), Ok(()));
        for wrong in [jwt, &key, "", "x"] {
            assert!(written(wrong).unwrap_err().contains("does not hold"), "{wrong}");
        }
    }
}
