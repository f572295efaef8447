//! The key that signs seals: the operator's, outside of the state directory, else the host's own, which is made when it
//! is needed.

use std::io;
use std::path::{Path, PathBuf};

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V2Der};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::port::{Cell, CellChange, Cells, CommitOutcome, StoreError};
use crate::domain::canonical::sha256_hex;
use crate::domain::seal::{SealKeys, SealStatement, SignedSeal};
use crate::sys::files;

/// The host's key, in the state directory.
pub const HOST_KEY: &str = "seal.key";
/// The public keys of other hosts whose seals count, in the state directory.
pub const SEAL_KEYS: &str = "seal-keys.json";
const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";

/// Whose key it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOwner {
    /// Named by `record.seal_key`.
    Operator,
    /// Made by agentd in the state directory.
    Host,
    /// Another host's, which came from the cluster.
    Cluster,
}

impl KeyOwner {
    /// For people and for JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Host => "host",
            Self::Cluster => "cluster",
        }
    }
}

/// A key cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct SealKeyError {
    /// The key's file.
    pub path: PathBuf,
    /// What is wrong, and what helps.
    pub problem: String,
}

/// An ed25519 key pair.
#[derive(Debug)]
pub struct SealKey {
    pair: Ed25519KeyPair,
    /// Whose.
    pub owner: KeyOwner,
}

impl SealKey {
    /// The operator's key: PKCS#8 as PEM or DER, readable for its owner only.
    pub fn operator(path: &Path) -> Result<Self, SealKeyError> {
        if !path.is_absolute() {
            return Err(failed(path, "record.seal_key has to be an absolute path".to_owned()));
        }
        Self::read(path, KeyOwner::Operator).map_err(|error| failed(path, error))
    }

    /// The host's key in a state directory; `None` = there is none yet.
    pub fn of_host(state: &Path) -> Result<Option<Self>, SealKeyError> {
        let path = state.join(HOST_KEY);
        match path.try_exists() {
            Ok(false) => Ok(None),
            _ => Self::read(&path, KeyOwner::Host).map(Some).map_err(|error| failed(&path, error)),
        }
    }

    /// The same, made where it is missing. Of two that make it at once, one is kept. One that others could only read, as after it was
    /// put back from a copy without modes, is made its owner's alone.
    pub fn of_host_or_new(state: &Path) -> Result<Self, SealKeyError> {
        let path = state.join(HOST_KEY);
        if let Some(mode) = readable_by_others(&path) {
            close(&path).map_err(|error| failed(&path, error.to_string()))?;
            tracing::warn!(
                "{} could be read by others (mode {mode:04o}); now it is yours alone (mode 0600)",
                path.display()
            );
        }
        if let Some(key) = Self::of_host(state)? {
            return Ok(key);
        }
        let unmade = |what: &str| failed(&path, format!("cannot be made: {what}"));
        let pair = Ed25519KeyPair::generate().map_err(|_| unmade("no random numbers"))?;
        let der: Pkcs8V2Der<'_> = pair.as_der().map_err(|_| unmade("it cannot be written down"))?;
        let pem = format!("{BEGIN}\n{}\n{END}\n", STANDARD.encode(der.as_ref()));
        files::write_private_new(&path, pem.as_bytes()).map_err(|error| unmade(&error.words()))?;
        Self::of_host(state)?.ok_or_else(|| unmade("it is gone again"))
    }

    fn read(path: &Path, owner: KeyOwner) -> Result<Self, String> {
        only_owners(path)?;
        let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
        let der = match std::str::from_utf8(&bytes).ok().and_then(|text| text.trim().strip_prefix(BEGIN)) {
            Some(rest) => {
                let body: String = rest.split(END).next().unwrap_or_default().split_whitespace().collect();
                STANDARD.decode(body).map_err(|error| format!("is no PEM text: {error}"))?
            }
            None => bytes,
        };
        let pair = Ed25519KeyPair::from_pkcs8(&der)
            .or_else(|_| Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der))
            .map_err(|_| {
                "is no ed25519 private key (PKCS#8, PEM or DER); `openssl genpkey -algorithm ed25519` makes one"
                    .to_owned()
            })?;
        Ok(Self { pair, owner })
    }

    /// The public key, hexadecimal.
    pub fn public_key(&self) -> String {
        hex::encode(self.pair.public_key().as_ref())
    }

    /// Signs a statement; `None` = it has no canonical text.
    pub fn sign(&self, statement: SealStatement) -> Option<SignedSeal> {
        let signature = hex::encode(self.pair.sign(&statement.signed_bytes().ok()?).as_ref());
        let public_key = self.public_key();
        Some(SignedSeal { statement, key_id: key_id(&public_key), public_key, signature })
    }
}

/// What a public key is called.
pub fn key_id(public_key: &str) -> String {
    sha256_hex(public_key.as_bytes())[..16].to_owned()
}

/// Whether a seal's signature is by the key that it names.
pub fn is_signed(seal: &SignedSeal) -> bool {
    let parts = (hex::decode(&seal.public_key), hex::decode(&seal.signature), seal.statement.signed_bytes());
    let (Ok(key), Ok(signature), Ok(text)) = parts else { return false };
    seal.key_id == key_id(&seal.public_key)
        && UnparsedPublicKey::new(&ED25519, key).verify(&text, &signature).is_ok()
}

/// The public keys whose seals count in a store, as it says. Blocks.
///
/// # Errors
/// It failed, or what it says is something else.
pub fn that_count<C: Cells + ?Sized>(store: &C) -> Result<SealKeys, StoreError> {
    let (_, text) = store.get(&Cell::SealKeys)?;
    read_keys(store, text.as_deref())
}

fn read_keys<C: Cells + ?Sized>(store: &C, text: Option<&str>) -> Result<SealKeys, StoreError> {
    SealKeys::read(text).map_err(|words| {
        let place = store.place(&Cell::SealKeys).display().to_string();
        StoreError::Failed { action: "read", place, words }
    })
}

/// Adds public keys to those whose seals count in a store. Blocks.
///
/// # Errors
/// It failed, or what it says is something else.
pub fn count<C: Cells + ?Sized>(store: &C, keys: impl IntoIterator<Item = String>) -> Result<(), StoreError> {
    let keys: Vec<String> = keys.into_iter().collect();
    loop {
        let (after, text) = store.get(&Cell::SealKeys)?;
        let mut all = read_keys(store, text.as_deref())?;
        let before = all.keys.len();
        all.keys.extend(keys.iter().cloned());
        if all.keys.len() == before {
            return Ok(());
        }
        let value = Some(serde_json::to_string(&all).unwrap_or_default());
        if store.commit(&[CellChange { cell: Cell::SealKeys, after, value }])? == CommitOutcome::Done {
            return Ok(());
        }
    }
}

fn failed(path: &Path, problem: String) -> SealKeyError {
    SealKeyError { path: path.to_owned(), problem }
}

#[cfg(unix)]
fn only_owners(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt as _;
    let unreadable = |error: io::Error| error.to_string();
    let found = std::fs::metadata(path).map_err(unreadable)?;
    match found.permissions().mode() & 0o077 {
        0 => Ok(()),
        _ => Err("can be read by others; `chmod 600` it".to_owned()),
    }
}

/// The mode of this user's file that others may read and not change.
#[cfg(unix)]
pub fn readable_by_others(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;
    let meta = path.symlink_metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mode = meta.mode() & 0o777;
    (mode & 0o077 != 0 && mode & 0o022 == 0).then_some(mode)
}

/// Rights of others are not known here.
#[cfg(not(unix))]
pub fn readable_by_others(_path: &Path) -> Option<u32> {
    None
}

#[cfg(unix)]
fn close(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

#[cfg(not(unix))]
fn close(_path: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
fn only_owners(path: &Path) -> Result<(), String> {
    std::fs::metadata(path).map(drop).map_err(|error: io::Error| error.to_string())
}
