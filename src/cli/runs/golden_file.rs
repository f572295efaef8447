//! What `agentd runs eval --golden FILE` reads: expectations of runs, as a person writes them.

use serde::Deserialize;

/// `[[runs]]` in TOML, or the same in JSON.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GoldenFile {
    /// The runs that are measured.
    pub runs: Vec<GoldenRun>,
}

/// What is expected of one run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GoldenRun {
    /// Run id, a unique prefix of it, an instance, or `latest`.
    pub run: String,
    /// Evidence that must be there.
    #[serde(default)]
    pub evidence: Vec<String>,
    /// The run must end for want of evidence.
    #[serde(default)]
    pub abstains: bool,
}
