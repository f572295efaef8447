//! The evidence gate: what agents claim is worth what agentd itself sees (contracts §3.4).

use super::run::Run;
use super::site::Site;
use crate::domain::facts::RunFacts;
use crate::domain::stop::Stop;
use crate::engine::journal::JournalError;

/// Judges the claims of a run's reports; gives the stop that they leave (C-05).
pub async fn judge(_run: &Run<'_>, _site: &Site, stop: Stop) -> Result<Stop, JournalError> {
    Ok(stop)
}

/// A claim that the agent's definition requires and that is not verified (D12, D14).
pub fn missing_requirement(_run: &Run<'_>, _facts: &RunFacts) -> Option<String> {
    None
}
