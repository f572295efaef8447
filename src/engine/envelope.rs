//! The answer to a call: the envelope and its text for the model, one constructor for each case (P-018).

use serde_json::{Value, json};

use super::tool::ToolError;
use crate::domain::canonical::sha256_hex;
use crate::domain::policy::{EnvelopeStatus, PolicyResult, ToolResultEnvelope};
use crate::domain::rules::NO_RULE_MATCHED;
use crate::domain::trace::Rendered;

/// Reason of a denial where there is no policy at all.
pub const POLICY_NOT_CONFIGURED: &str = "policy_not_configured";
/// Text for a result that does not fit (A-023, A-088).
pub const CONTEXT_EXCEEDED: &str = "context window budget exceeded";

/// An envelope and its rendering. Only this file can make one.
#[derive(Debug, Clone, PartialEq)]
pub struct CallAnswer {
    envelope: ToolResultEnvelope,
    text: String,
    by_policy: bool,
    /// Whether a person may let it run after all.
    asks: bool,
}

/// Why a proposal does not run although no policy denies it: the closed list (P-018).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallRefusal {
    /// No such tool in this session (X-034).
    UnknownTool(String),
    /// Its server offered the tool earlier in the session, and no longer does.
    ToolGone(String),
    /// The arguments do not parse or break the schema (A-047…A-049); the text says where.
    InvalidArguments(String),
    /// Beyond the cap of one turn (A-007).
    TooManyCalls,
    /// Only the final report is accepted now (A-005).
    FinalTurn,
    /// An earlier output was dropped; no new tool starts (A-024).
    ContextBudget,
    /// The same action with the same result, again (X-035).
    Loop,
    /// The report is there already (A-071).
    ReportCaptured,
    /// The run is stopping; the call was not started (D38).
    Stopping,
    /// The agent program no longer waits for the answer; the call was not started.
    CallerLeft,
    /// The tool refuses to run it as proposed (`path_outside_worktree`, …).
    ByTool {
        /// Stable code.
        code: String,
        /// For the model.
        message: String,
    },
}

impl CallRefusal {
    /// The envelope's code.
    pub fn code(&self) -> &str {
        match self {
            Self::UnknownTool(_) | Self::ToolGone(_) => "unknown_tool",
            Self::InvalidArguments(_) => "invalid_arguments",
            Self::TooManyCalls => "max_tool_calls_per_turn",
            Self::FinalTurn | Self::Stopping => "not_available_on_final_turn",
            Self::ContextBudget => "context_budget_exceeded_prior_tool",
            Self::Loop => "loop_guard",
            Self::ReportCaptured => "final_report_already_captured",
            Self::CallerLeft => "caller_left",
            Self::ByTool { code, .. } => code,
        }
    }

    /// What the model reads.
    pub fn reason(&self) -> String {
        match self {
            Self::UnknownTool(name) => format!("Unknown tool: {name}"),
            Self::ToolGone(name) => format!("{name} is gone: its MCP server no longer offers it"),
            Self::InvalidArguments(problem) => format!("invalid arguments: {problem}"),
            Self::TooManyCalls => "per-turn tool limit exceeded".to_owned(),
            Self::FinalTurn => {
                "not available on the final turn; only the final report is accepted".to_owned()
            }
            Self::Stopping => "the run is stopping; the call was not started".to_owned(),
            Self::CallerLeft => {
                "the agent program no longer waits for the answer; the call was not started".to_owned()
            }
            Self::ContextBudget => {
                "context window budget exceeded by an earlier tool; no new tool starts in this session"
                    .to_owned()
            }
            Self::Loop => {
                "the same call gave the same result three times; do something else, or report what you have"
                    .to_owned()
            }
            Self::ReportCaptured => "the final report is already captured".to_owned(),
            Self::ByTool { message, .. } => message.clone(),
        }
    }
}

impl CallAnswer {
    /// Ran and gave text.
    pub(in crate::engine) fn success(text: String) -> Self {
        Self::ran(json!({ "status": "success", "result": text }), text)
    }

    /// It ran and gave more than fits. The model gets a handle and one line on how to use it (A-027).
    pub(in crate::engine) fn stored(handle: &Value, hint: &str) -> Self {
        Self::ran(json!({ "status": "success", "result": handle }), format!("{handle}\n{hint}"))
    }

    /// Ran and failed (A-087).
    pub(in crate::engine) fn failed(error_type: &str, message: &str) -> Self {
        Self::ran(
            json!({ "status": "error", "error": message, "error_type": error_type, "message": message }),
            failure_text(message),
        )
    }

    /// Ran and failed, as the tool's own error says it.
    pub(in crate::engine) fn error(error: &ToolError) -> Self {
        match error {
            ToolError::Refused { code, message } => {
                Self::refused(&CallRefusal::ByTool { code: code.clone(), message: message.clone() })
            }
            ToolError::ForModel { error_type, message } => Self::failed(error_type, message),
            ToolError::Timeout => Self::failed("Timeout", "timeout"),
            ToolError::NoRoom(_) => Self::failed("NoRoom", "the host has no room; the run cannot go on"),
            ToolError::Fatal(_) => Self::failed("Fatal", "the tool failed and the run cannot go on"),
        }
    }

    /// The same with something below that agentd says.
    pub(in crate::engine) fn with_appendix(mut self, appendix: &str) -> Self {
        self.text = format!("{}\n\n{appendix}", self.text);
        self
    }

    /// Ran, and its output does not fit, not even by handle (A-023).
    pub(in crate::engine) fn context_exceeded() -> Self {
        Self::failed("ContextBudgetExceeded", CONTEXT_EXCEEDED)
    }

    /// Denied by policy; the model reads the envelope itself (P-020, P-021).
    pub(in crate::engine) fn denied(result: &PolicyResult) -> Self {
        let envelope = ToolResultEnvelope {
            status: EnvelopeStatus::Denied,
            code: Some(result.reason.clone()),
            public_reason: Some(result.public_text().to_owned()),
            data: None,
        };
        let text = json!({
            "status": "denied",
            "code": envelope.code,
            "publicReason": envelope.public_reason,
            "data": null,
        });
        Self { envelope, text: text.to_string(), by_policy: true, asks: result.asks_for_approval() }
    }

    /// Not run, for a reason of the runtime.
    pub(in crate::engine) fn refused(refusal: &CallRefusal) -> Self {
        let reason = refusal.reason();
        Self {
            text: failure_text(&reason),
            envelope: ToolResultEnvelope {
                status: EnvelopeStatus::Denied,
                code: Some(refusal.code().to_owned()),
                public_reason: Some(reason),
                data: None,
            },
            by_policy: false,
            asks: false,
        }
    }

    /// A handoff that was let through (P-046).
    pub(in crate::engine) fn handed_over(to: &str, payload: &Value) -> Self {
        let data = json!({ "handoffTo": to, "accepted": true, "payload": payload });
        let text = data.to_string();
        Self::ran(data, text)
    }

    fn ran(data: Value, text: String) -> Self {
        let envelope = ToolResultEnvelope {
            status: EnvelopeStatus::Ok,
            code: None,
            public_reason: None,
            data: Some(data),
        };
        Self { envelope, text, by_policy: false, asks: false }
    }

    /// The envelope of the same answer, with its data in the form of a record (X-031).
    pub(in crate::engine) fn with_data(&self, data: Value) -> ToolResultEnvelope {
        let ToolResultEnvelope { status, code, public_reason, data: _ } = &self.envelope;
        let (code, public_reason) = (code.clone(), public_reason.clone());
        ToolResultEnvelope { status: *status, code, public_reason, data: Some(data) }
    }

    /// The envelope.
    pub fn envelope(&self) -> &ToolResultEnvelope {
        &self.envelope
    }

    /// Whether the policy denied the call. A refusal by the runtime or the tool is not a denial.
    pub fn is_policy_denial(&self) -> bool {
        self.by_policy
    }

    /// Whether a person was asked to let it run.
    pub fn asks_for_approval(&self) -> bool {
        self.asks
    }

    /// Whether it was denied because no rule speaks of it.
    pub fn is_default_denial(&self) -> bool {
        let code = self.envelope.code.as_deref();
        self.by_policy && [NO_RULE_MATCHED, POLICY_NOT_CONFIGURED].map(Some).contains(&code)
    }

    /// What the model reads (P-018).
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Size and hash of what the model reads.
    pub fn rendered(&self) -> Rendered {
        Rendered { chars: self.text.chars().count() as u64, sha256: sha256_hex(self.text.as_bytes()) }
    }

    /// Whether the call was let run (C-02).
    pub fn ran_at_all(&self) -> bool {
        self.envelope.status == EnvelopeStatus::Ok
    }
}

fn failure_text(reason: &str) -> String {
    format!("(tool failed: {reason})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::policy::DenyMode;

    #[test]
    fn p_018_every_row_has_the_four_keys_and_its_text() {
        let soft = PolicyResult::deny("no_rm", DenyMode::ToolResult);
        let rows = [
            (CallAnswer::success("hi".into()), "hi"),
            (CallAnswer::failed("ToolExecutionError", "boom"), "(tool failed: boom)"),
            (CallAnswer::error(&ToolError::Timeout), "(tool failed: timeout)"),
            (CallAnswer::context_exceeded(), "(tool failed: context window budget exceeded)"),
            (
                CallAnswer::denied(&soft),
                r#"{"status":"denied","code":"no_rm","publicReason":"Action not allowed.","data":null}"#,
            ),
            (CallAnswer::refused(&CallRefusal::TooManyCalls), "(tool failed: per-turn tool limit exceeded)"),
            (
                CallAnswer::refused(&CallRefusal::UnknownTool("nope".into())),
                "(tool failed: Unknown tool: nope)",
            ),
        ];
        for (answer, text) in rows {
            assert_eq!(answer.text(), text);
            let json = serde_json::to_value(answer.envelope()).unwrap();
            let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(keys, ["status", "code", "publicReason", "data"], "{text}");
            assert_eq!(json["status"] == "denied", json["data"].is_null(), "denied ⇔ it did not run: {text}");
        }
    }

    #[test]
    fn p_020_the_model_reads_the_denied_envelope_itself() {
        let denial = CallAnswer::denied(&PolicyResult::deny("r", DenyMode::ToolResult));
        let read: ToolResultEnvelope = serde_json::from_str(denial.text()).unwrap();
        assert_eq!(&read, denial.envelope());
    }
}
