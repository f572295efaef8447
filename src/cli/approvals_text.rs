//! A call that waits for a person, as people and programs read it.

use serde_json::{Value, json};

use super::context::Context;
use super::error::CommandError;
use super::output::Output;
use crate::domain::call_text::escaped;
use crate::domain::run::Principal;
use crate::domain::run_output::rfc3339;
use crate::domain::trace::SuspendedProposal;
use crate::issue::approval::Decision;
use crate::record::summary_text::short_hash;

/// A proposal and what was decided on it, for programs.
pub fn document(proposal: &SuspendedProposal, decision: &Decision) -> Value {
    let arguments: Value = serde_json::from_str(&proposal.canonical_json).unwrap_or(Value::Null);
    let (word, by, until) = match decision {
        Decision::Open => ("waiting", None, None),
        Decision::Approved(grant) => ("approved", Some(&grant.approver), Some(rfc3339(grant.expires_at))),
        Decision::Denied(denial) => ("denied", Some(&denial.decided_by), None),
    };
    json!({
        "proposal_hash": proposal.proposal_hash,
        "kind": proposal.kind,
        "name": proposal.resource.name,
        "arguments": arguments,
        "files": proposal.files,
        "public_reason": proposal.public_reason,
        "state": word,
        "by": by.map(|by| by.login.clone().unwrap_or_else(|| by.id.to_string())),
        "expires_at": until,
    })
}

/// A proposal for people: the call, all of its arguments, its hash, and what was decided or can be.
pub fn show(
    context: &Context,
    proposal: &SuspendedProposal,
    decision: &Decision,
) -> Result<(), CommandError> {
    rows(context.output, proposal, decision)
        .iter()
        .try_for_each(|(name, value)| context.output.entry(&format!("  {name:<8}"), value))
}

/// The same as rows: a name and a value.
pub fn rows(
    output: Output,
    proposal: &SuspendedProposal,
    decision: &Decision,
) -> Vec<(&'static str, String)> {
    let mut rows = vec![("waits", proposal.call_text()), ("with", escaped(&proposal.canonical_json))];
    for file in proposal.files.iter().flatten() {
        rows.push(("file", format!("{} (sha256 {})", file.path, short_hash(&file.sha256))));
    }
    rows.extend(proposal.public_reason.clone().map(|reason| ("because", reason)));
    rows.push(("hash", proposal.proposal_hash.clone()));
    let by = |by: &Principal| by.login.clone().unwrap_or_else(|| by.id.to_string());
    match decision {
        Decision::Open => {
            let hash = short_hash(&proposal.proposal_hash);
            let decide =
                |how: &str| output.with_flags(&format!("agentd approvals {how} {hash}")).into_owned();
            rows.push(("approve", decide("approve")));
            rows.push(("deny", decide("deny")));
        }
        Decision::Approved(grant) => {
            let until = rfc3339(grant.expires_at);
            rows.push(("approved", format!("by {}, for one use until {until}", by(&grant.approver))));
        }
        Decision::Denied(denial) => rows.push(("denied", format!("by {}", by(&denial.decided_by)))),
    }
    rows
}
