//! An approval: a person's permission for one proposal, for one use, until it expires (P-037, D86).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::issue::IssueKey;
use super::name::RepoName;
use super::policy::Resource;
use super::run::{Principal, RunId};

/// Version of [`Denial`].
pub const DENIAL_SCHEMA: &str = "agentd.denial.v1";

/// A person's decision against a proposal: it does not wait any more, and whoever makes it again is told so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Denial {
    /// [`DENIAL_SCHEMA`].
    pub schema_version: String,
    /// The proposal.
    pub proposal_hash: String,
    /// What it is about, for people.
    pub resource: Resource,
    /// The repository.
    pub repo: RepoName,
    /// The issue.
    pub issue: IssueKey,
    /// The run whose proposal waited.
    pub run_id: RunId,
    /// Who decided.
    pub decided_by: Principal,
    /// When.
    pub decided_at: DateTime<Utc>,
}

/// Version of [`Approval`].
pub const APPROVAL_SCHEMA: &str = "agentd.grant.v1";

/// An approval. It executes nothing. The policy is asked again, and an approval lifts only a denial that asks for one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// [`APPROVAL_SCHEMA`].
    pub schema_version: String,
    /// The proposal: kind, repository, issue, step, name and arguments.
    pub proposal_hash: String,
    /// What it is about, for people.
    pub resource: Resource,
    /// The repository.
    pub repo: RepoName,
    /// The issue.
    pub issue: IssueKey,
    /// The run whose proposal waited.
    pub run_id: RunId,
    /// On whose behalf that run worked.
    pub principal: Principal,
    /// Who approved.
    pub approver: Principal,
    /// When.
    pub granted_at: DateTime<Utc>,
    /// Until when it may be used.
    pub expires_at: DateTime<Utc>,
}

impl Approval {
    /// Whether it holds now for a proposal of `principal`: the principal for whom the proposal waited, or the approver.
    pub fn holds(&self, principal: uuid::Uuid, now: DateTime<Utc>) -> bool {
        now < self.expires_at && [self.principal.id, self.approver.id].contains(&principal)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use uuid::Uuid;

    use super::*;
    use crate::domain::policy::ProposalKind;
    use crate::domain::run::PrincipalSource;

    #[test]
    fn p_037_an_approval_is_bound_to_a_principal_and_expires() {
        let ada = Principal::new(PrincipalSource::Github, "1", Some("ada".into()));
        let operator = Principal::new(PrincipalSource::Local, "0@host", None);
        let now = DateTime::UNIX_EPOCH;
        let approval = Approval {
            schema_version: APPROVAL_SCHEMA.into(),
            proposal_hash: "h".into(),
            resource: Resource { kind: ProposalKind::Tool, name: "run_command".into() },
            repo: RepoName::parse("o/n").unwrap(),
            issue: IssueKey::Number(7),
            run_id: RunId(Uuid::nil()),
            principal: ada.clone(),
            approver: operator.clone(),
            granted_at: now,
            expires_at: now + TimeDelta::hours(24),
        };
        assert!(approval.holds(ada.id, now) && approval.holds(operator.id, now));
        assert!(!approval.holds(Uuid::nil(), now), "someone else's");
        assert!(!approval.holds(ada.id, now + TimeDelta::hours(24)), "expired");
    }
}
