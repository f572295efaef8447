//! A ledger entry: one model request or tool execution with its cost, and the sums over them.

use serde::{Deserialize, Serialize};

use super::message::TokenUsage;
use super::money::Money;

/// One line of `accounting.jsonl` (A-072…A-082).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccountingEntry {
    /// Llm or tool part.
    #[serde(flatten)]
    pub what: AccountingKind,
    /// Start, in milliseconds since 1970.
    pub timestamp: i64,
    /// Whether it succeeded.
    pub status: AccountingStatus,
    /// Milliseconds by a monotonic clock.
    pub latency: u64,
    /// Why it failed; redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Agent's name.
    pub agent_id: String,
    /// Where in the run, e.g. `issue-7:initial.issue:run_command`.
    pub call_path: String,
    /// The session (UUIDv7).
    pub txn_id: String,
    /// What opened the session: the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_txn_id: Option<String>,
    /// The run.
    pub origin_txn_id: String,
    /// The run.
    pub run_id: String,
    /// The step.
    pub step_id: String,
    /// 1-based visit.
    pub step_visit: u32,
    /// 1-based turn.
    pub turn: u32,
    /// 1-based attempt of the turn; absent for tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
}

impl AccountingEntry {
    /// The exit code of the tool's program when it is not 0: the tool worked, and the program that it ran failed.
    pub fn nonzero_exit(&self) -> Option<i32> {
        match self.what {
            AccountingKind::Tool { exit_code, .. } => exit_code.filter(|code| *code != 0),
            AccountingKind::Llm { .. } => None,
        }
    }

    /// How a tool ended, for people: `ok`, `exit 1`, or why it failed.
    pub fn tool_ending(&self) -> String {
        match (self.status, self.nonzero_exit()) {
            (AccountingStatus::Failed, _) => self.error.clone().unwrap_or_else(|| "failed".to_owned()),
            (AccountingStatus::Ok, Some(code @ (126 | 127))) => format!("could not run (exit {code})"),
            (AccountingStatus::Ok, Some(code)) => format!("exit {code}"),
            (AccountingStatus::Ok, None) => "ok".to_owned(),
        }
    }
}

/// The error of a call that was running when its process died. The line was written by the command that found out.
pub const INTERRUPTED: &str = "interrupted";

/// `ok` or `failed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccountingStatus {
    /// Succeeded.
    Ok,
    /// Failed.
    Failed,
}

/// What was accounted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum AccountingKind {
    /// One model request (an attempt).
    Llm {
        /// Provider asked.
        provider: String,
        /// Model asked.
        model: String,
        /// Who really answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        actual_provider: Option<String>,
        /// Who really answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        actual_model: Option<String>,
        /// As the provider says; null when it does not.
        tokens: Option<TokenUsage>,
        /// Our estimate, when the provider does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        estimated: Option<TokenUsage>,
        /// US dollars; null when unknown.
        cost_usd: Option<Money>,
        /// US dollars that count against the budgets beyond `costUsd`, where the cost is unknown or said by the program alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        estimated_cost_usd: Option<Money>,
        /// Where the cost is from.
        cost_source: CostSource,
        /// The provider's stop reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_reason: Option<String>,
        /// HTTP status, where there was an answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        http_status: Option<u16>,
        /// A reply broke off, cannot be used, or was not waited for: its provider may bill it, and nobody has it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        broke_off: bool,
        /// `requestHash` of the fingerprint.
        fingerprint: String,
    },
    /// One tool execution.
    Tool {
        /// Server, or `agentd` for built-ins.
        mcp_server: String,
        /// Tool name.
        command: String,
        /// Unicode scalars of the serialised arguments.
        characters_in: u64,
        /// Unicode scalars of the text given to the model.
        characters_out: u64,
        /// Bytes of the original output.
        bytes_out: u64,
        /// Id of the call.
        call_id: String,
        /// Hash of the proposal.
        proposal_hash: String,
        /// Where a large output is kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        handle: Option<String>,
        /// Of a process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
    },
}

/// Where a cost figure is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CostSource {
    /// The provider.
    Reported,
    /// The price table.
    Table,
    /// Nobody knows.
    Unknown,
}

/// Sums over the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LedgerTotals {
    /// Model requests.
    pub llm_requests: u64,
    /// Of these, failed.
    pub llm_failed: u64,
    /// Tool executions.
    pub tools_run: u64,
    /// Of these, failed.
    pub tools_failed: u64,
    /// Uncached input tokens.
    pub tokens_in: u64,
    /// Output tokens.
    pub tokens_out: u64,
    /// Tokens read from cache.
    pub cache_read: u64,
    /// Tokens written to cache.
    pub cache_write: u64,
    /// Known cost.
    pub cost: Money,
    /// Whether a request's cost is unknown.
    pub cost_unknown: bool,
    /// What counts against the budgets beyond the known cost.
    pub estimated_cost: Money,
    /// Whether there was a reply, or a program that worked.
    pub answered: bool,
}

/// Known costs, and of how many runs or turns of conversations some cost is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CostSum {
    /// What is known.
    pub known: Money,
    /// How many have a cost beyond that.
    pub of_unknown_cost: usize,
}

impl From<&LedgerTotals> for CostSum {
    fn from(totals: &LedgerTotals) -> Self {
        Self { known: totals.cost, of_unknown_cost: totals.cost_unknown.into() }
    }
}

impl std::ops::AddAssign for CostSum {
    fn add_assign(&mut self, other: Self) {
        self.known += other.known;
        self.of_unknown_cost += other.of_unknown_cost;
    }
}

impl LedgerTotals {
    /// Whether no model answered and nothing worked: nobody has read what the run was to tell.
    pub fn nobody_answered(&self) -> bool {
        !self.answered && self.tools_run == 0
    }

    /// Adds up the entries of a ledger.
    pub fn of(ledger: &[AccountingEntry]) -> Self {
        let mut totals = Self::default();
        for entry in ledger {
            let failed = u64::from(entry.status == AccountingStatus::Failed);
            match &entry.what {
                AccountingKind::Llm {
                    tokens, cost_usd, estimated_cost_usd, cost_source, broke_off, ..
                } => {
                    totals.llm_requests += 1;
                    totals.llm_failed += failed;
                    let tokens = tokens.unwrap_or_default();
                    // A request that failed before it used anything cost nothing.
                    let used = failed == 0 || tokens.total_tokens > 0;
                    totals.answered |= used && !broke_off;
                    totals.tokens_in += tokens.input_tokens;
                    totals.tokens_out += tokens.output_tokens;
                    totals.cache_read += tokens.cache_read_input_tokens;
                    totals.cache_write += tokens.cache_write_input_tokens;
                    totals.cost += cost_usd.unwrap_or_default();
                    totals.estimated_cost += estimated_cost_usd.unwrap_or_default();
                    totals.cost_unknown |= *cost_source == CostSource::Unknown && (used || *broke_off);
                }
                AccountingKind::Tool { .. } => {
                    totals.tools_run += 1;
                    totals.tools_failed += failed;
                }
            }
        }
        totals
    }
}
