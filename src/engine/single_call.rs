//! One tool call outside of a session, with the same gate, execution and record (S-023…S-029).

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::abort::Abort;
use super::arguments::{self, Scope};
use super::context_guard::ContextGuard;
use super::envelope::CallAnswer;
use super::execution::Execution;
use super::interrupt::{Interrupt, Interrupts};
use super::ruling::{Proposal, ReportCall, SingleRuling};
use super::session::SessionWorld;
use super::session_trace::SessionIds;
use super::tool::{CallLimits, Tool};
use super::tool_output::StoredOutputs;
use crate::domain::message::ToolCall;

/// The turn that the call's lines and decisions name.
const TURN: u32 = 1;

/// How a single call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum SingleCall {
    /// It ran, well or not.
    Ran(CallAnswer),
    /// It could not run as proposed.
    Refused(CallAnswer),
    /// The policy denied it, softly or hard.
    Denied(CallAnswer),
}

impl SingleCall {
    /// Envelope and text.
    pub fn answer(&self) -> &CallAnswer {
        match self {
            Self::Ran(answer) | Self::Refused(answer) | Self::Denied(answer) => answer,
        }
    }
}

/// Runs one call. Denials, refusals and failures of the tool are answers; a stop, a spent budget, a tool's fatal error
/// and a record that cannot be written are the error.
pub async fn call_tool(
    ids: SessionIds,
    scope: Scope,
    call: ToolCall,
    tools: &[Arc<dyn Tool>],
    limits: CallLimits,
    world: &SessionWorld,
) -> Result<SingleCall, Abort> {
    let record = world.record(ids.clone());
    let outputs = StoredOutputs::new(ids.session, Arc::clone(&world.journal));
    let mut gate = world.gate(record.clone(), scope, tools)?;
    let interrupts =
        Interrupts { stop: world.stop.clone(), meter: Arc::clone(&world.meter), whole_turns: false };
    let proposal =
        Proposal { arguments: arguments::parse(&call.arguments), call: call.clone(), report: ReportCall::No };
    let ready = match interrupts.watch(None, gate.judge_single(TURN, &proposal)).await {
        Ok(Ok(SingleRuling::Run(ready))) => *ready,
        Ok(Ok(SingleRuling::Refused(answer))) => {
            record.answer_item(TURN, &call.id, &answer).await?;
            return Ok(SingleCall::Refused(answer));
        }
        Ok(Ok(SingleRuling::Denied(answer))) => return Ok(SingleCall::Denied(answer)),
        Ok(Err(abort)) | Err(Interrupt::End(abort)) => return Err(abort),
        Err(Interrupt::GraceOver) => return Err(Abort::internal("a wait without grace ran out of it")),
    };
    let execution = Execution {
        gate: &mut gate,
        record: &record,
        guard: &mut ContextGuard::default(),
        outputs: &outputs,
        nearest_rules: None,
        queues: &world.queues,
        interrupts: &interrupts,
        limits,
        context_limit: u64::MAX,
        turn: TURN,
        exclusions: &mut Vec::new(),
        redaction: world.redaction.as_deref(),
        touched: &world.touched,
        left: &CancellationToken::new(),
    };
    let mut answers = execution.run(vec![ready]).await?;
    let answer = answers.pop().ok_or_else(|| Abort::internal("a call was left without an answer"))?;
    record.answer_item(TURN, &call.id, &answer).await?;
    Ok(if answer.ran_at_all() { SingleCall::Ran(answer) } else { SingleCall::Refused(answer) })
}
