//! The signed seal of a run: the state of its journal and files at the end. A key signs it and an index keeps it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::artifact::Artifact;
use super::canonical::{NotCanonical, canonical_json, canonical_sha256};
use super::name::RepoName;
use super::run::RunId;

/// `schema_version` of a statement.
pub const SEAL_SCHEMA: &str = "agentd.seal.v1";

/// What is signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealStatement {
    /// [`SEAL_SCHEMA`].
    pub schema_version: String,
    /// Whose run.
    pub repo: RepoName,
    /// Which run.
    pub run_id: RunId,
    /// Number of the journal's last line before the seal.
    pub last_seq: u64,
    /// That line's hash: it stands for all lines before it.
    pub last_hash: String,
    /// SHA-256 of the canonical text of the list of files.
    pub files_sha256: String,
    /// Hash of the index's line before; of zeros for the first one.
    pub previous: String,
    /// Milliseconds since 1970.
    pub sealed_at: i64,
}

/// A statement with its signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedSeal {
    /// What is signed.
    pub statement: SealStatement,
    /// Beginning of the public key's SHA-256.
    pub key_id: String,
    /// The ed25519 public key, hexadecimal.
    pub public_key: String,
    /// The ed25519 signature over the statement's canonical text, hexadecimal.
    pub signature: String,
}

/// `schema_version` of [`SealKeys`].
pub const SEAL_KEYS_SCHEMA: &str = "agentd.seal_keys.v1";

/// The public keys of other hosts whose seals count: nodes of one cluster trust each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SealKeys {
    /// [`SEAL_KEYS_SCHEMA`].
    pub schema_version: String,
    /// ed25519 public keys, hexadecimal.
    pub keys: BTreeSet<String>,
}

impl Default for SealKeys {
    fn default() -> Self {
        Self { schema_version: SEAL_KEYS_SCHEMA.to_owned(), keys: BTreeSet::new() }
    }
}

impl SealKeys {
    /// Those of a text; none where there is no text.
    ///
    /// # Errors
    /// It is something else, or of a later version.
    pub fn read(text: Option<&str>) -> Result<Self, String> {
        let Some(text) = text else {
            return Ok(Self::default());
        };
        let read: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match read.schema_version.as_str() {
            SEAL_KEYS_SCHEMA => Ok(read),
            other => Err(format!("has the version {other}, and this agentd reads {SEAL_KEYS_SCHEMA}")),
        }
    }
}

impl SealStatement {
    /// The bytes that are signed.
    pub fn signed_bytes(&self) -> Result<Vec<u8>, NotCanonical> {
        Ok(canonical_json(self)?.into_bytes())
    }
}

/// [`SealStatement::files_sha256`] of a list of files.
pub fn files_sha256(files: &[Artifact]) -> Result<String, NotCanonical> {
    canonical_sha256(&files)
}

/// What is known of a run's signature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SignatureState {
    /// Signed by a key that is known here, over exactly this journal and these files.
    Valid,
    /// By a key that is not known here.
    UnknownKey,
    /// By a key that may be one that could not be read here.
    NotChecked,
    /// It does not fit.
    Invalid,
    /// The index has one, the journal has none.
    Gone,
    /// There is none, here or in the index.
    #[default]
    NotSigned,
}

/// What is proven by what.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// Whether every line of the journal follows the one before it.
    pub journal_chain: bool,
    /// Files whose hash is the sealed one.
    pub files: usize,
    /// The signature over both.
    pub signature: SignatureState,
    /// By which key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    /// Whose key that is: `operator`, `host`, or `cluster` for another host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<&'static str>,
    /// 1-based line of the index that has the seal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index_line: Option<usize>,
    /// Lines of the index.
    pub index_lines: usize,
    /// Whether the index is whole, as far as the runs that are here can tell.
    pub index_whole: bool,
    /// Runs that the index has and whose directory is gone.
    pub runs_gone: Vec<RunId>,
}
