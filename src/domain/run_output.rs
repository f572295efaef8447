//! The run output, `result.json`: what a run came to, for programs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::artifact::Artifact;
use super::budget::BudgetKind;
use super::evidence::{Claim, Conflict, EvidenceRecord, VerificationState};
use super::issue::{IssueKey, ObjectiveSource};
use super::ledger_entry::LedgerTotals;
use super::money::Money;
use super::origin::OriginSource;
use super::report::FinalReport;
use super::run::{ForcedFinal, Principal, VisitRecord, Warning};
use super::stop::{LimitType, Stop, StopDetail, StopReason};

/// `schema_version` of every [`RunOutput`].
pub const RUN_OUTPUT_SCHEMA: &str = "agentd.run_output.v1";

/// Everything about a run that a program may rely on. A further key means another version (P-034).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunOutput {
    /// [`RUN_OUTPUT_SCHEMA`].
    pub schema_version: String,
    /// UUIDv7.
    pub run_id: Uuid,
    /// Exactly `stop_reason` = `OBJECTIVE_ACHIEVED` (C-05).
    pub success: bool,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// Why, exactly.
    pub stop_detail: StopDetail,
    /// `HARD` exactly for `BUDGET_EXCEEDED`.
    pub limit_type: LimitType,
    /// 0, 1, 3, 4 or 5 (A-039…A-043).
    #[schemars(extend("enum" = [0, 1, 3, 4, 5]))]
    pub exit_code: u8,
    /// What was asked for.
    pub objective: Objective,
    /// `null` where the run was refused before it had one.
    pub mapping: Option<OutputMapping>,
    /// On whose behalf.
    pub principal: Principal,
    /// Whether the branch differs from the origin (D12).
    pub change: ChangeWord,
    /// What the agent says it did, or why there is nothing to say.
    pub summary: String,
    /// The `verdict` in the last step's output, where it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// The report, synthetic where the model gave none.
    pub final_report: FinalReport,
    /// What is claimed, and what of it holds.
    pub claims: Vec<Claim>,
    /// What backs claims.
    pub evidence: Vec<EvidenceRecord>,
    /// What cannot both be true.
    pub conflicts: Vec<Conflict>,
    /// One line for every claim that does not hold.
    pub limitations: Vec<String>,
    /// Visits, in order.
    pub steps: Vec<OutputStep>,
    /// Their number.
    pub iterations: u32,
    /// Non-empty exactly for a success.
    pub completion_reason: Option<String>,
    /// Present exactly for a failure.
    pub error: Option<OutputError>,
    /// Caps and what was used of them.
    pub budgets: OutputBudgets,
    /// Sums over the ledger.
    pub totals: OutputTotals,
    /// Files of the run directory, and what the branch came to.
    pub artifacts: OutputArtifacts,
    /// What went wrong on the way, each kind once.
    pub failures: Vec<FailureRecord>,
    /// Notes.
    pub warnings: Vec<Warning>,
    /// RFC 3339, UTC, milliseconds.
    pub started_at: String,
    /// RFC 3339, UTC, milliseconds.
    pub completed_at: String,
    /// `--meta`, verbatim (P-033).
    pub metadata: Map<String, Value>,
}

/// Whether a run changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChangeWord {
    /// The branch differs from the origin.
    Made,
    /// It does not.
    None,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Objective {
    /// Not blank.
    pub title: String,
    /// Possibly empty.
    pub body: String,
    /// What asked.
    pub source: ObjectiveSource,
    /// Where it stands in the tracker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue: Option<OutputIssue>,
}

/// An issue of the tracker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputIssue {
    /// `owner/name`.
    pub repo: String,
    /// Its number.
    pub number: u64,
    /// Web address.
    pub url: String,
    /// GitHub's node id.
    pub node_id: String,
}

/// Issue, branch, worktree, instance: one of each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputMapping {
    /// The number, or the word of an issue from a file (D30).
    pub issue: IssueKey,
    /// Short name.
    pub branch: String,
    /// Relative to the main checkout.
    pub worktree: String,
    /// The instance.
    pub instance: String,
    /// Where it started from.
    pub origin: OutputOrigin,
}

/// The frozen origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputOrigin {
    /// Short name.
    pub branch: String,
    /// The link of the chain that named it.
    pub source: OriginSource,
    /// Full id.
    pub commit: String,
}

/// One visit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputStep {
    /// 1-based.
    pub visit: u32,
    /// The step.
    pub step_id: String,
    /// The intent, or why there is none.
    pub verdict: String,
    /// Where it went; `null` = the flow ended.
    pub next: Option<String>,
    /// Accepted turns.
    pub turns: u32,
    /// Model requests.
    pub attempts: u32,
    /// Why the final turn was forced, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced_final: Option<ForcedFinal>,
    /// RFC 3339, UTC, milliseconds.
    pub started_at: String,
    /// RFC 3339, UTC, milliseconds.
    pub ended_at: String,
    /// Over the output's canonical JSON.
    pub output_sha256: String,
}

impl From<&VisitRecord> for OutputStep {
    fn from(visit: &VisitRecord) -> Self {
        Self {
            visit: visit.visit,
            step_id: visit.step_id.clone(),
            verdict: visit.verdict.clone(),
            next: visit.next.clone(),
            turns: visit.turns,
            attempts: visit.attempts,
            forced_final: visit.forced_final,
            started_at: rfc3339(visit.started_at),
            ended_at: rfc3339(visit.ended_at),
            output_sha256: visit.output_sha256.clone(),
        }
    }
}

/// Why a run failed, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputError {
    /// The stop detail's word (`auth_error`, `policy_denied`, …).
    pub class: String,
    /// Whether the same run could go on without a change.
    pub recoverable: bool,
    /// Public text.
    pub message: String,
    /// Where the technical detail is: a file of the run's directory, and the place in it (`run.json#/errorMessage`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail_ref: Option<String>,
}

/// Caps and what was used of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputBudgets {
    /// Cap in visits.
    pub max_steps: u32,
    /// Visits begun, those of predecessors included (D61).
    pub steps_used: u32,
    /// Cap in milliseconds.
    pub max_wall_time_ms: u64,
    /// Milliseconds.
    pub wall_time_used_ms: u64,
    /// Cap in US dollars.
    pub max_cost_usd: Money,
    /// Known cost; `null` when nothing is known.
    pub cost_used_usd: Option<Money>,
    /// Budgets that passed their soft ratio.
    pub soft_hits: Vec<BudgetKind>,
}

/// Sums over `accounting.jsonl`, and denials.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputTotals {
    /// Model requests.
    pub llm_requests: u64,
    /// Of these, failed.
    pub llm_failed: u64,
    /// Tool executions.
    pub tools_run: u64,
    /// Of these, failed.
    pub tools_failed: u64,
    /// Proposals that were denied; not executions.
    pub denied: u64,
    /// Uncached input.
    pub tokens_in: u64,
    /// Output.
    pub tokens_out: u64,
    /// From cache.
    pub cache_read: u64,
    /// To cache.
    pub cache_write: u64,
    /// Known cost; `null` when nothing is known.
    pub cost_usd: Option<Money>,
}

impl OutputTotals {
    /// The ledger's sums, and how many proposals were denied.
    pub fn new(ledger: &LedgerTotals, denied: u64) -> Self {
        Self {
            llm_requests: ledger.llm_requests,
            llm_failed: ledger.llm_failed,
            tools_run: ledger.tools_run,
            tools_failed: ledger.tools_failed,
            denied,
            tokens_in: ledger.tokens_in,
            tokens_out: ledger.tokens_out,
            cache_read: ledger.cache_read,
            cache_write: ledger.cache_write,
            cost_usd: known_cost(ledger),
        }
    }
}

/// The ledger's cost; `None` when some cost is unknown and none is known.
pub fn known_cost(ledger: &LedgerTotals) -> Option<Money> {
    (!ledger.cost_unknown || ledger.cost > Money::ZERO).then_some(ledger.cost)
}

/// Files of the run directory, and what the branch came to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputArtifacts {
    /// `report.md`; `null` only in a result that is printed without a run directory.
    pub report_md: Option<Artifact>,
    /// `accounting.jsonl`.
    pub accounting: Option<Artifact>,
    /// `evidence.jsonl`.
    pub evidence: Option<Artifact>,
    /// `events.jsonl`.
    pub events: Option<EventsArtifact>,
    /// `run.json`, best effort, so without a hash.
    pub run_record: Option<PathArtifact>,
    /// The origin's commit.
    pub base_commit: Option<String>,
    /// Head of the branch.
    pub head_commit: Option<String>,
    /// Its tree.
    pub head_tree: Option<String>,
    /// Over the unified diff from base to head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch_sha256: Option<String>,
    /// The pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pr_url: Option<String>,
}

/// The journal as far as the output was folded from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventsArtifact {
    /// Relative to the run directory.
    pub path: String,
    /// Sequence number of the last event.
    pub last_seq: u64,
    /// Its hash.
    pub last_hash: String,
}

/// A file that is written after its mention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathArtifact {
    /// Relative to the run directory.
    pub path: String,
}

/// Something that went wrong on the way; a later run of the issue is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FailureRecord {
    /// Unique in the run.
    pub failure_id: String,
    /// Equal for equal failures, over runs.
    pub fingerprint: String,
    /// What was seen: `tool:run_command exit 1`, `schema_invalid`, …
    pub signal: String,
    /// `low`, `medium`, `high`.
    pub severity: Severity,
    /// How often.
    pub count: u32,
    /// Where last.
    pub last_visit: u32,
    /// What was done about it, for people.
    pub adjustment: String,
}

/// How bad a failure was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The run went on.
    Low,
    /// It cost a retry or a visit.
    Medium,
    /// It ended the run.
    High,
}

impl RunOutput {
    /// The output of a run that ended with `stop` and has nothing else to report yet. A refusal prints it, and a fold
    /// fills it in. `at` is milliseconds since 1970.
    pub fn of(
        run_id: Uuid,
        objective: Objective,
        principal: Principal,
        stop: &Stop,
        report: FinalReport,
        at: i64,
    ) -> Self {
        Self {
            schema_version: RUN_OUTPUT_SCHEMA.to_owned(),
            run_id,
            success: stop.success(),
            stop_reason: stop.reason(),
            stop_detail: stop.detail,
            limit_type: stop.limit_type(),
            exit_code: stop.detail.exit_code(),
            objective,
            mapping: None,
            principal,
            change: ChangeWord::None,
            summary: stop.message.clone(),
            verdict: None,
            final_report: report,
            claims: Vec::new(),
            evidence: Vec::new(),
            conflicts: Vec::new(),
            limitations: Vec::new(),
            steps: Vec::new(),
            iterations: 0,
            completion_reason: stop.success().then(|| stop.detail.as_str().to_owned()),
            error: (!stop.success()).then(|| OutputError {
                class: stop.detail.as_str().to_owned(),
                recoverable: false,
                message: stop.message.clone(),
                detail_ref: None,
            }),
            budgets: OutputBudgets {
                max_steps: 0,
                steps_used: 0,
                max_wall_time_ms: 0,
                wall_time_used_ms: 0,
                max_cost_usd: Money::ZERO,
                cost_used_usd: Some(Money::ZERO),
                soft_hits: Vec::new(),
            },
            totals: OutputTotals::new(&LedgerTotals::default(), 0),
            artifacts: OutputArtifacts::default(),
            failures: Vec::new(),
            warnings: Vec::new(),
            started_at: rfc3339_of_ms(at),
            completed_at: rfc3339_of_ms(at),
            metadata: Map::new(),
        }
    }

    /// Says in words which rules of a sound output do not hold (C-05); empty when all hold.
    pub fn check(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let mut hold = |holds: bool, rule: &str| {
            if !holds {
                broken.push(rule.to_owned());
            }
        };
        let achieved = self.stop_reason == StopReason::ObjectiveAchieved;
        hold(self.schema_version == RUN_OUTPUT_SCHEMA, "schema_version is agentd.run_output.v1");
        hold(self.success == achieved, "success ⇔ stop_reason is OBJECTIVE_ACHIEVED");
        hold(self.success == (self.exit_code == 0), "success ⇔ exit_code is 0");
        hold(self.stop_detail.reason() == self.stop_reason, "stop_detail belongs to stop_reason");
        hold(self.stop_detail.exit_code() == self.exit_code, "exit_code belongs to stop_detail");
        let hard = self.limit_type == LimitType::Hard;
        hold(
            hard == (self.stop_reason == StopReason::BudgetExceeded),
            "limit_type is HARD ⇔ BUDGET_EXCEEDED",
        );
        hold(self.error.is_none() == self.success, "error is null ⇔ success");
        let completed = self.completion_reason.as_ref().is_some_and(|reason| !reason.trim().is_empty());
        hold(completed == self.success, "completion_reason is not empty ⇔ success");
        hold(self.iterations as usize == self.steps.len(), "iterations = number of steps");
        hold(!self.objective.title.trim().is_empty() || self.exit_code == 4, "the objective has a title");
        let report = &self.final_report;
        hold(
            report.content.is_some() != report.content_json.is_some(),
            "the report has content or content_json",
        );
        hold(
            report.format.is_structured() == report.content_json.is_some(),
            "content_json ⇔ a structured format",
        );
        let unverified = self.claims.iter().any(|claim| !claim.is_verified());
        hold(!unverified || !self.limitations.is_empty(), "claims that are not verified have limitations");
        let both_sides = self.conflicts.iter().all(|c| !c.side_a.is_empty() && !c.side_b.is_empty());
        hold(both_sides, "a conflict has evidence on both sides");
        hold(self.started_at <= self.completed_at, "started_at ≤ completed_at");
        for claim in self.claims.iter().filter(|claim| claim.is_verified()) {
            let backed = claim.evidence_ids.iter().any(|id| {
                self.evidence.iter().any(|record| {
                    record.evidence_id == *id
                        && record.verification.state == VerificationState::Ok
                        && !record.stale
                })
            });
            if !backed {
                broken.push(format!("the verified claim {} has no fresh, verified evidence", claim.claim_id));
            }
        }
        broken
    }

    /// Differences between the totals and the sums over the ledger; empty for a sound output.
    pub fn check_ledger(&self, ledger: &LedgerTotals) -> Vec<String> {
        let summed = OutputTotals::new(ledger, self.totals.denied);
        if summed == self.totals {
            return Vec::new();
        }
        vec![format!("totals {:?} are not the sums over accounting.jsonl {summed:?}", self.totals)]
    }
}

/// RFC 3339, UTC, milliseconds (D3).
pub fn rfc3339(at: chrono::DateTime<chrono::Utc>) -> String {
    at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

/// The RFC 3339 form of milliseconds since 1970. Values out of range give the start of 1970.
pub fn rfc3339_of_ms(at: i64) -> String {
    rfc3339(chrono::DateTime::from_timestamp_millis(at).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::report::ReportFormat;
    use crate::domain::run::PrincipalSource;

    fn output(detail: StopDetail) -> RunOutput {
        let report = FinalReport {
            format: ReportFormat::Markdown,
            content: Some("done".into()),
            content_json: None,
            metadata: None,
            ts: 1,
        };
        let objective = Objective {
            title: "Fix it".into(),
            body: String::new(),
            source: ObjectiveSource::Cli,
            issue: None,
        };
        let principal = Principal::new(PrincipalSource::Local, "1000", None);
        RunOutput::of(Uuid::nil(), objective, principal, &Stop::new(detail, "words"), report, 1)
    }

    #[test]
    fn x_011_every_end_of_a_run_makes_a_sound_output_that_is_read_back() {
        for detail in StopDetail::ALL {
            let made = output(*detail);
            assert_eq!(made.check(), Vec::<String>::new(), "{detail}");
            let json = serde_json::to_string(&made).unwrap();
            assert_eq!(serde_json::from_str::<RunOutput>(&json).unwrap(), made);
        }
    }

    #[test]
    fn a_039_what_does_not_fit_together_is_found() {
        type Change = fn(&mut RunOutput);
        let break_it: [(&str, Change); 9] = [
            ("success ⇔ stop_reason", |o| o.success = false),
            ("exit_code belongs", |o| o.exit_code = 1),
            ("limit_type", |o| o.limit_type = LimitType::Hard),
            ("completion_reason", |o| o.completion_reason = Some(" ".into())),
            ("iterations", |o| o.iterations = 3),
            ("title", |o| o.objective.title = " ".into()),
            ("content or content_json", |o| o.final_report.content = None),
            ("error is null", |o| {
                o.error = Some(OutputError {
                    class: "internal".into(),
                    recoverable: false,
                    message: "x".into(),
                    detail_ref: None,
                });
            }),
            ("started_at", |o| o.started_at = "9999".into()),
        ];
        for (words, change) in break_it {
            let mut broken = output(StopDetail::Completed);
            change(&mut broken);
            assert!(broken.check().iter().any(|rule| rule.contains(words)), "{words}: {:?}", broken.check());
        }
    }

    #[test]
    fn x_008_a_verified_claim_without_evidence_is_found() {
        let mut made = output(StopDetail::Completed);
        made.claims.push(Claim {
            claim_id: "c1.1".into(),
            statement: "it works".into(),
            kind: crate::domain::report::ClaimKind::Other,
            proposed_status: crate::domain::report::ProposedStatus::Verified,
            status: crate::domain::evidence::ClaimStatus::Verified,
            evidence_ids: vec!["ev_0".into()],
            reason: None,
            step_id: "s".into(),
            visit: 1,
        });
        assert!(made.check()[0].contains("c1.1"), "{:?}", made.check());
    }

    #[test]
    fn a_072_totals_that_are_not_the_ledger_s_sums_are_found() {
        let made = output(StopDetail::Completed);
        assert!(made.check_ledger(&LedgerTotals::default()).is_empty());
        assert_eq!(made.check_ledger(&LedgerTotals { tools_run: 1, ..LedgerTotals::default() }).len(), 1);
    }
}
