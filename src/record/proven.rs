//! What stands under "Verified" and "Cited" in texts for people: what agentd knows itself, and what a model says of it.

use super::summary_text;
use crate::domain::evidence::{Claim, EvidenceRecord};
use crate::domain::report::ClaimKind;
use crate::domain::run_output::RunOutput;

/// A statement with what backs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proven {
    /// In agentd's words, or in the model's.
    pub statement: String,
    /// Ids of the records.
    pub evidence_ids: Vec<String>,
    /// The records in a few words.
    pub proofs: Vec<String>,
}

/// What agentd knows itself. A claim of such a kind may say anything, so its words do not stand there.
pub fn known(run: &RunOutput) -> Vec<Proven> {
    let own = [
        (ClaimKind::ChangeMade, "The branch has a change"),
        (ClaimKind::TestsPass, "The verify commands pass on the final tree"),
    ];
    let of = |(kind, statement): (ClaimKind, &str)| {
        let claim = run.claims.iter().find(|claim| claim.kind == kind && claim.is_verified())?;
        Some(proven(run, claim, statement.to_owned()))
    };
    own.into_iter().filter_map(of).collect()
}

/// What the model says where what it cites stands there. No record says more than it does itself.
pub fn cited(run: &RunOutput) -> Vec<Proven> {
    let of_model = run.claims.iter().filter(|claim| claim.is_verified() && !claim.is_agentds_own());
    of_model.map(|claim| proven(run, claim, claim.statement.clone())).collect()
}

fn proven(run: &RunOutput, claim: &Claim, statement: String) -> Proven {
    let backs = |record: &&EvidenceRecord| claim.evidence_ids.contains(&record.evidence_id);
    let proofs = run.evidence.iter().filter(backs).map(summary_text::proof);
    Proven { statement, evidence_ids: claim.evidence_ids.clone(), proofs: proofs.collect() }
}
