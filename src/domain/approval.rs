//! An approval: a person's permission for one proposal, for one use, until it expires (P-037, D86).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::issue::IssueKey;
use super::name::RepoName;
use super::policy::Resource;
use super::run::{Principal, RunId};

/// Version of [`Denial`].
pub const DENIAL_SCHEMA: &str = "agentd.denial.v1";

/// A decision against a proposal: it does not wait any more, and whoever makes it again is told so.
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
    /// Who decided; where nobody did, for whom the run worked.
    pub decided_by: Principal,
    /// When.
    pub decided_at: DateTime<Utc>,
    /// Why nobody has to decide any more, such as the end of a pull request. The run's proposal is not approved after all then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
}

/// A file that the command of a call names, as it is when the call is proposed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedFile {
    /// Relative to the worktree.
    pub path: String,
    /// SHA-256 of what it holds.
    pub sha256: String,
}

impl NamedFile {
    /// The paths of what is in one of both alone, or holds something else there.
    pub fn changed(before: &[Self], now: &[Self]) -> Vec<String> {
        let only = |these: &[Self], others: &[Self]| -> Vec<String> {
            these.iter().filter(|one| !others.contains(one)).map(|one| one.path.clone()).collect()
        };
        let mut changed = only(before, now);
        changed.extend(only(now, before));
        changed.sort_unstable();
        changed.dedup();
        changed
    }
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
    /// The files that the call's command named when the person was asked: it lets the call run while they are the same. `None` = the call has
    /// no command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<NamedFile>>,
}

impl Approval {
    /// What has become of the files that it was given for, by their paths; empty = they are the same.
    pub fn changed_files(&self, now: &[NamedFile]) -> Vec<String> {
        self.files.as_ref().map(|before| NamedFile::changed(before, now)).unwrap_or_default()
    }

    /// Whether it holds now for a proposal of `principal`: the principal for whom the proposal waited, or the approver.
    pub fn holds(&self, principal: uuid::Uuid, now: DateTime<Utc>) -> bool {
        now < self.expires_at && [self.principal.id, self.approver.id].contains(&principal)
    }
}

/// Version of [`SeveralApprovals`].
pub const SEVERAL_APPROVALS_SCHEMA: &str = "agentd.grants.v1";

/// Approvals of one proposal for the runs of several principals. One alone is kept as an [`Approval`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SeveralApprovals {
    /// [`SEVERAL_APPROVALS_SCHEMA`].
    pub schema_version: String,
    /// One for each principal.
    pub approvals: Vec<Approval>,
}

/// The approvals of one proposal: one for each principal for whose run it waited.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalsOfProposal(Vec<Approval>);

impl ApprovalsOfProposal {
    /// As they are kept. What cannot be read is none.
    pub fn read(text: &str) -> Self {
        let one = serde_json::from_str::<Approval>(text).ok();
        if let Some(one) = one.filter(|one| one.schema_version == APPROVAL_SCHEMA) {
            return Self(vec![one]);
        }
        let several = serde_json::from_str::<SeveralApprovals>(text).ok();
        let of_here = |one: &Approval| one.schema_version == APPROVAL_SCHEMA;
        match several.filter(|all| all.schema_version == SEVERAL_APPROVALS_SCHEMA) {
            Some(all) => Self(all.approvals.into_iter().filter(of_here).collect()),
            None => Self::default(),
        }
    }

    /// As they are to be kept; `None` = there is none.
    pub fn text(&self) -> Option<String> {
        let text = match self.0.as_slice() {
            [] => return None,
            [one] => serde_json::to_string_pretty(one),
            all => serde_json::to_string_pretty(&SeveralApprovals {
                schema_version: SEVERAL_APPROVALS_SCHEMA.to_owned(),
                approvals: all.to_vec(),
            }),
        };
        text.ok()
    }

    /// Takes one in; an earlier one for the same principal gives way, and so do those whose time was over when it was given.
    pub fn give(&mut self, approval: Approval) {
        let now = approval.granted_at;
        self.0.retain(|known| known.principal.id != approval.principal.id && now < known.expires_at);
        self.0.push(approval);
    }

    /// Takes one in again that was not used, unless there is a newer one for the same principal.
    pub fn give_back(&mut self, approval: Approval) {
        if !self.0.iter().any(|known| known.principal.id == approval.principal.id) {
            self.0.push(approval);
        }
    }

    /// The one that holds now for a proposal of `principal`: one for that principal before one that the principal gave.
    pub fn holding(&self, principal: uuid::Uuid, now: DateTime<Utc>) -> Option<&Approval> {
        let mut all = self.0.iter().filter(|one| one.holds(principal, now));
        let first = all.next()?;
        Some(
            all.find(|one| one.principal.id == principal)
                .filter(|_| first.principal.id != principal)
                .unwrap_or(first),
        )
    }

    /// Takes that one out, and with it all whose time is over.
    pub fn take(&mut self, principal: uuid::Uuid, now: DateTime<Utc>) -> Option<Approval> {
        let taken = self.holding(principal, now).cloned();
        self.0.retain(|one| now < one.expires_at && Some(one) != taken.as_ref());
        taken
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use uuid::Uuid;

    use super::*;
    use crate::domain::policy::ProposalKind;
    use crate::domain::run::PrincipalSource;

    fn approval(principal: &Principal, approver: &Principal, hours: i64) -> Approval {
        Approval {
            schema_version: APPROVAL_SCHEMA.into(),
            proposal_hash: "h".into(),
            resource: Resource { kind: ProposalKind::Tool, name: "run_command".into() },
            repo: RepoName::parse("o/n").unwrap(),
            issue: IssueKey::Number(7),
            run_id: RunId(Uuid::nil()),
            principal: principal.clone(),
            approver: approver.clone(),
            granted_at: DateTime::UNIX_EPOCH,
            expires_at: DateTime::UNIX_EPOCH + TimeDelta::hours(hours),
            files: None,
        }
    }

    fn person(id: &str) -> Principal {
        Principal::new(PrincipalSource::Github, id, None)
    }

    #[test]
    fn p_037_approvals_for_the_runs_of_two_people_stand_beside_each_other_and_each_is_used_once() {
        let (ada, max, now) = (person("1"), person("2"), DateTime::UNIX_EPOCH);
        let mut all = ApprovalsOfProposal::default();
        assert_eq!(all.text(), None);
        all.give(approval(&ada, &max, 1));
        // As a version that knows of one alone reads and writes it.
        let alone = serde_json::to_string_pretty(&approval(&ada, &max, 1)).unwrap();
        assert_eq!(all.text().as_ref(), Some(&alone));
        assert_eq!(ApprovalsOfProposal::read(&alone), all);
        all.give(approval(&max, &ada, 2));
        assert_eq!(ApprovalsOfProposal::read(&all.text().unwrap()), all);
        assert!(all.text().unwrap().contains(SEVERAL_APPROVALS_SCHEMA));
        // Each is used for whom it is, although each of both gave the other one.
        let taken = all.take(max.id, now).unwrap();
        assert_eq!(taken.principal, max);
        all.give_back(taken);
        let newer = approval(&max, &ada, 3);
        all.give(newer.clone());
        all.give_back(approval(&max, &ada, 2));
        assert_eq!(all.holding(max.id, now), Some(&newer));
        assert_eq!(all.take(ada.id, now).unwrap().principal, ada);
        assert_eq!(all.take(person("3").id, now), None);
        assert_eq!(all.take(max.id, now), Some(newer));
        assert_eq!(all.text(), None);
        // One whose time is over goes with the next use, and with the next approval.
        all.give(approval(&ada, &ada, 1));
        assert_eq!(all.take(max.id, now + TimeDelta::hours(1)), None);
        assert_eq!(all, ApprovalsOfProposal::default());
        for other in ["nonsense", "{}", &alone.replace("grant.v1", "grant.v2")] {
            assert_eq!(ApprovalsOfProposal::read(other), ApprovalsOfProposal::default());
        }
    }

    #[test]
    fn p_037_an_approval_is_of_the_files_as_they_were() {
        let file = |path: &str, sha256: &str| NamedFile { path: path.into(), sha256: sha256.into() };
        let ada = person("1");
        let mut approval = approval(&ada, &ada, 1);
        assert!(approval.changed_files(&[file("a", "1")]).is_empty(), "of a version that looked at no files");
        approval.files = Some(vec![file("a", "1"), file("b", "1")]);
        assert!(approval.changed_files(&[file("a", "1"), file("b", "1")]).is_empty());
        assert_eq!(approval.changed_files(&[file("a", "2"), file("c", "1")]), ["a", "b", "c"]);
        approval.files = Some(Vec::new());
        assert_eq!(approval.changed_files(&[file("a", "1")]), ["a"], "it is there only since");
    }

    #[test]
    fn p_037_an_approval_is_bound_to_a_principal_and_expires() {
        let ada = Principal::new(PrincipalSource::Github, "1", Some("ada".into()));
        let operator = Principal::new(PrincipalSource::Local, "0@host", None);
        let now = DateTime::UNIX_EPOCH;
        let approval = approval(&ada, &operator, 24);
        assert!(approval.holds(ada.id, now) && approval.holds(operator.id, now));
        assert!(!approval.holds(Uuid::nil(), now), "someone else's");
        assert!(!approval.holds(ada.id, now + TimeDelta::hours(24)), "expired");
    }
}
