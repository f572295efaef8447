//! Why a run ended: stop reason, detail, and the exit code that follows.

use serde::{Deserialize, Serialize};

use super::words::words;

words! {
    /// The five reasons (X-011…X-017).
    #[derive(Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
    pub enum StopReason {
        /// Required outputs produced, claims backed.
        ObjectiveAchieved = "OBJECTIVE_ACHIEVED",
        /// A hard limit of steps, time or cost, or the last turn, was reached.
        BudgetExceeded = "BUDGET_EXCEEDED",
        /// Nothing acceptable backs the objective.
        NoEvidence = "NO_EVIDENCE",
        /// A person or a supervising system asked for it.
        HumanRequested = "HUMAN_REQUESTED",
        /// A non-recoverable error.
        SystemError = "SYSTEM_ERROR",
    }
}

macro_rules! stop_details {
    ($($(#[$doc:meta])* $variant:ident = $word:literal => $reason:ident, $exit:literal;)+) => {
        /// The closed list of details; each belongs to one reason and one exit code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
        pub enum StopDetail {
            $($(#[$doc])* #[serde(rename = $word)] $variant,)+
        }

        impl StopDetail {
            /// Every detail, in the order of the stop reasons.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word used in JSON.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            /// The reason it belongs to.
            pub fn reason(self) -> StopReason {
                match self { $(Self::$variant => StopReason::$reason,)+ }
            }

            /// The exit code of a run that stops for it: 0, 1, 3, 4 or 5 (A-039…A-043).
            pub fn exit_code(self) -> u8 {
                match self { $(Self::$variant => $exit,)+ }
            }
        }
    };
}

impl StopDetail {
    /// Whether it is an end for which no model answered: it is away, refuses the key, or has a quota that is used up.
    pub fn is_for_want_of_a_model(self) -> bool {
        matches!(self, Self::LlmUnavailable | Self::AuthError | Self::QuotaExceeded)
    }

    /// Whether a run did not come to an end of its own: its process died, or its node lost the issue.
    pub fn is_cut_off(self) -> bool {
        matches!(self, Self::Interrupted | Self::Overtaken)
    }

    /// Whether a run that a daemon begins goes on with one that ended so, because nobody wanted it to end.
    pub fn is_gone_on_with(self) -> bool {
        self.is_cut_off() || self == Self::Shutdown
    }

    /// Whether a run that ends so leaves its issue parked.
    pub fn parks(self) -> bool {
        matches!(self, Self::QuestionPending | Self::PlanPending | Self::Taken)
    }
}

stop_details! {
    /// The flow completed.
    Completed = "completed" => ObjectiveAchieved, 0;
    /// The flow completed through a forced final turn.
    CompletedForcedFinal = "completed_forced_final" => ObjectiveAchieved, 0;
    /// No visit is left in the budget.
    MaxSteps = "max_steps" => BudgetExceeded, 1;
    /// No time is left in the budget.
    MaxWallTime = "max_wall_time" => BudgetExceeded, 1;
    /// No money is left in the budget.
    MaxCost = "max_cost" => BudgetExceeded, 1;
    /// A session used its turns without a report.
    MaxTurnsExhausted = "max_turns_exhausted" => BudgetExceeded, 1;
    /// The definition's own `maxIterations` was reached (D24).
    MaxIterations = "max_iterations" => BudgetExceeded, 1;
    /// Every claim proposed as verified was rejected.
    ClaimsRejected = "claims_rejected" => NoEvidence, 1;
    /// A verify command does not pass on the final tree, or could not run.
    VerifyFailed = "verify_failed" => NoEvidence, 1;
    /// A claim the agent requires is missing.
    RequiredClaimMissing = "required_claim_missing" => NoEvidence, 1;
    /// The model itself says that it has not enough evidence.
    ModelAbstained = "model_abstained" => NoEvidence, 1;
    /// Searches found nothing.
    SearchEmpty = "search_empty" => NoEvidence, 1;
    /// Asked to stop, with one last report.
    UserStop = "user_stop" => HumanRequested, 1;
    /// Asked to stop at once.
    UserAbort = "user_abort" => HumanRequested, 1;
    /// The daemon or the program was told to stop.
    Shutdown = "shutdown" => HumanRequested, 1;
    /// The issue was closed in the run.
    IssueClosed = "issue_closed" => HumanRequested, 1;
    /// The trigger label was removed in the run.
    LabelRemoved = "label_removed" => HumanRequested, 1;
    /// A proposal waits for an approval.
    ApprovalPending = "approval_pending" => HumanRequested, 1;
    /// The agent asked a question; the issue is parked until somebody answers.
    QuestionPending = "question_pending" => HumanRequested, 1;
    /// A plan waits for somebody's approval; the issue is parked until then.
    PlanPending = "plan_pending" => HumanRequested, 1;
    /// A person took the work over; the issue is parked until they give it back.
    Taken = "taken" => HumanRequested, 1;
    /// The branch on the remote is not the one that agentd pushed last.
    BranchMoved = "branch_moved" => HumanRequested, 1;
    /// The agent asks for guidance (D11).
    GuidanceNeeded = "guidance_needed" => HumanRequested, 1;
    /// A provider refused the credentials.
    AuthError = "auth_error" => SystemError, 1;
    /// A provider's quota is used up.
    QuotaExceeded = "quota_exceeded" => SystemError, 1;
    /// No target answered.
    LlmUnavailable = "llm_unavailable" => SystemError, 1;
    /// The model's replies could not be used.
    InvalidModelOutput = "invalid_model_output" => SystemError, 1;
    /// A hard denial of the policy.
    PolicyDenied = "policy_denied" => SystemError, 1;
    /// The same action again and again.
    LoopDetected = "loop_detected" => SystemError, 1;
    /// The agent chose to abort (D11).
    AgentAborted = "agent_aborted" => SystemError, 1;
    /// An external agent program failed.
    AgentCliFailed = "agent_cli_failed" => SystemError, 1;
    /// Git refused.
    GitError = "git_error" => SystemError, 1;
    /// GitHub refused or could not be reached.
    GithubError = "github_error" => SystemError, 1;
    /// A contract output could not be written.
    OutputWriteFailed = "output_write_failed" => SystemError, 1;
    /// Another node of the cluster has the issue now.
    Overtaken = "overtaken" => SystemError, 1;
    /// The cluster's store cannot be reached.
    StoreUnavailable = "store_unavailable" => SystemError, 1;
    /// The process ended in the middle of the run.
    Interrupted = "interrupted" => SystemError, 1;
    /// A defect of agentd.
    Internal = "internal" => SystemError, 1;
    /// A required MCP server is missing or failed.
    McpUnavailable = "mcp_unavailable" => SystemError, 3;
    /// The configuration or a definition is invalid.
    ConfigInvalid = "config_invalid" => SystemError, 4;
    /// No link of the origin chain is set.
    OriginUnresolved = "origin_unresolved" => SystemError, 4;
    /// The origin branch does not exist or has an invalid name.
    OriginMissing = "origin_missing" => SystemError, 4;
    /// Another instance holds the branch.
    BranchBusy = "branch_busy" => SystemError, 4;
    /// The place of branch or worktree is taken by something else (D34).
    MappingConflict = "mapping_conflict" => SystemError, 4;
    /// An argument or the issue itself cannot be worked on.
    InvalidInput = "invalid_input" => SystemError, 4;
    /// The issue's text was changed after somebody asked for the run, and what it was then is not known.
    TextChanged = "text_changed" => SystemError, 4;
    /// A report, step output, tool schema or definition breaks its schema.
    SchemaInvalid = "schema_invalid" => SystemError, 5;
}

impl std::fmt::Display for StopDetail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a hard limit ended the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub enum LimitType {
    /// A hard limit.
    #[serde(rename = "HARD")]
    Hard,
    /// A soft limit (never ends a run by itself).
    #[serde(rename = "SOFT")]
    Soft,
    /// No limit.
    #[serde(rename = "N/A")]
    None,
}

/// The end of a run: its detail (which fixes reason and exit code), and what to tell people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Stop {
    /// Why, exactly.
    pub detail: StopDetail,
    /// One sentence for people; public (no secrets, no upstream bodies).
    pub message: String,
}

impl Stop {
    /// Makes a stop.
    pub fn new(detail: StopDetail, message: impl Into<String>) -> Self {
        Self { detail, message: message.into() }
    }

    /// The reason.
    pub fn reason(&self) -> StopReason {
        self.detail.reason()
    }

    /// Whether the issue is parked: it waits for a person, who decides when a successor goes on.
    pub fn parks(&self) -> bool {
        self.detail.parks()
    }

    /// Whether a person took the work over.
    pub fn is_taken(&self) -> bool {
        self.detail == StopDetail::Taken
    }

    /// `success ⇔ OBJECTIVE_ACHIEVED` (C-05).
    pub fn success(&self) -> bool {
        self.reason() == StopReason::ObjectiveAchieved
    }

    /// `HARD` exactly for `BUDGET_EXCEEDED`.
    pub fn limit_type(&self) -> LimitType {
        if self.reason() == StopReason::BudgetExceeded { LimitType::Hard } else { LimitType::None }
    }
}

/// How a flow ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowEnd {
    /// Why.
    pub stop: Stop,
    /// The completion's reason; set exactly on success.
    pub completion_reason: Option<String>,
}

impl FlowEnd {
    /// Otherwise than by a success.
    pub fn failed(stop: Stop) -> Self {
        Self { stop, completion_reason: None }
    }

    /// By a success, for this reason.
    pub fn completed(reason: &str, forced_final: bool) -> Self {
        let detail = if forced_final { StopDetail::CompletedForcedFinal } else { StopDetail::Completed };
        Self {
            stop: Stop::new(detail, format!("Done: {reason}.")),
            completion_reason: Some(reason.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_039_exit_zero_is_exactly_objective_achieved() {
        for detail in StopDetail::ALL {
            assert_eq!(detail.exit_code() == 0, detail.reason() == StopReason::ObjectiveAchieved, "{detail}");
            assert_ne!(detail.exit_code(), 2, "{detail}");
            let json = serde_json::to_value(detail).unwrap();
            assert_eq!(json, detail.as_str());
        }
    }
}
