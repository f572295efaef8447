//! What came of a session: its report, how it ended, and its conversation.

use super::abort::Abort;
use super::session_trace::SessionTrace;
use crate::domain::artifact::Artifact;
use crate::domain::event::Event;
use crate::domain::message::{Message, Messages, TokenUsage};
use crate::domain::money::Money;
use crate::domain::output_schema::ExtractionStrategy;
use crate::domain::report::{FinalReport, ProposedClaim, ReportOutcome, ReportSource};
use crate::domain::run::ForcedFinal;
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::trace::{GuardrailDecision, GuardrailOutcome, ReportCaptured, SessionFailure};

/// The result of a session. There is always a report (A-035…A-038).
#[derive(Debug, Clone, PartialEq)]
pub struct SessionOutcome {
    /// Redacted.
    pub report: FinalReport,
    /// Where it came from.
    pub source: ReportSource,
    /// How its object was found, where the model wrote it as text (D5).
    pub extraction: Option<ExtractionStrategy>,
    /// What the model says came of it.
    pub outcome: Option<ReportOutcome>,
    /// What it claims; redacted.
    pub claims: Vec<ProposedClaim>,
    /// Why the session did not succeed. `None` when the model gave the report and nothing else ended it.
    pub failure: Option<SessionFailure>,
    /// Accepted turns.
    pub turns: u32,
    /// Model requests.
    pub attempts: u32,
    /// Why the final turn was forced, if it was.
    pub forced_final: Option<ForcedFinal>,
    /// The conversation at its end, not redacted, for a session that continues it (D4).
    pub messages: Messages,
    /// The conversation as it is kept.
    pub conversation: Option<Artifact>,
    /// Sum over all attempts whose tokens are known.
    pub usage: TokenUsage,
    /// Known cost of all attempts.
    pub cost: Money,
    /// Whether some attempt's cost is unknown.
    pub cost_unknown: bool,
}

impl SessionOutcome {
    /// Records the report, a long one in a file, and whether it had a secret in it (P-043).
    pub(super) async fn capture(&self, record: &SessionTrace, turn: u32, leaked: bool) -> Result<(), Abort> {
        record.note_with_next(Event::GuardrailDecided(Box::new(GuardrailDecision {
            timestamp: record.clock().now_ms(),
            turn,
            guardrail_name: "secret_leak".to_owned(),
            decision: if leaked { GuardrailOutcome::Triggered } else { GuardrailOutcome::Pass },
            reason: leaked.then(|| "the report held a secret; it was redacted".to_owned()),
            metadata: None,
        })))?;
        let (report, kept) = record.report(&self.report).await?;
        record.note_with_next(Event::ReportCaptured(Box::new(ReportCaptured {
            session: record.ids().session,
            visit: record.ids().visit,
            turn,
            source: self.source,
            report,
            kept,
            outcome: self.outcome,
            claims: self.claims.clone(),
        })))
    }

    /// The conversation so far, as the opening of a session that continues it (D4): without the system message, and
    /// with an answer to every call.
    pub fn history(&self) -> Messages {
        let said = self.messages.shared().filter(|message| !matches!(**message, Message::System { .. }));
        let mut history: Messages = said.collect();
        if let Some(Message::Assistant { tool_calls, .. }) = history.last() {
            let unanswered: Vec<String> = tool_calls.iter().map(|call| call.id.clone()).collect();
            history.extend(unanswered.into_iter().map(|tool_call_id| Message::Tool {
                tool_call_id,
                content: "The session ended with this reply.".to_owned(),
            }));
        }
        history
    }

    /// The stop reason of a run that ends with this session: completed, or the failure (C-05).
    pub fn stop(&self) -> Stop {
        match (&self.failure, self.forced_final) {
            (Some(failure), _) => failure.stop.clone(),
            (None, None) => Stop::new(StopDetail::Completed, "The final report is there."),
            (None, Some(_)) => Stop::new(
                StopDetail::CompletedForcedFinal,
                "The final report was given on a forced final turn.",
            ),
        }
    }
}
