//! One tool call outside of a session: the same gate, the same execution, the same record (S-023…S-029).

use std::sync::Arc;

use super::arguments::{self, Scope};
use super::context_guard::ContextGuard;
use super::envelope::Answer;
use super::execution::Execution;
use super::gate::{Gate, Phase, Proposal, ReportCall, Ruling};
use super::halt::Halt;
use super::interrupt::{Interrupt, Interrupts};
use super::record::{Record, SessionIds};
use super::session::{SessionWorld, unfit};
use super::tool::{CallLimits, Tool};
use super::tool_output::StoredOutputs;
use crate::domain::message::ToolCall;

/// The turn that the call's lines and decisions name.
const TURN: u32 = 1;

/// Runs one call. Denials, refusals and failures of the tool are answers; a hard denial, a stop, a spent budget and a
/// record that cannot be written are the error.
pub async fn call_tool(
    ids: SessionIds,
    scope: Scope,
    call: ToolCall,
    tools: &[Arc<dyn Tool>],
    limits: CallLimits,
    world: &SessionWorld,
) -> Result<Answer, Halt> {
    let record =
        Record::new(Arc::clone(&world.journal), Arc::clone(&world.redactor), world.clock, ids.clone());
    let outputs = StoredOutputs::new(ids.session, Arc::clone(&world.journal));
    let mut gate = Gate::new(Arc::clone(&world.policy), record.clone(), scope, tools, &world.queues)
        .map_err(|error| unfit(&error))?;
    let interrupts = Interrupts { stop: world.stop.clone(), meter: Arc::clone(&world.meter) };
    let proposal =
        Proposal { arguments: arguments::parse(&call.arguments), call: call.clone(), report: ReportCall::No };
    let judging = gate.judge(TURN, std::slice::from_ref(&proposal), Phase::Open, 1);
    let ruling = match interrupts.watch(None, judging).await {
        Ok(rulings) => rulings?.pop(),
        Err(Interrupt::End(halt)) => return Err(halt),
        Err(Interrupt::GraceOver) => None,
    };
    let answer = match ruling {
        Some(Ruling::Answered(answer)) => answer,
        Some(Ruling::Run(ready)) => {
            let execution = Execution {
                gate: &mut gate,
                record: &record,
                guard: &mut ContextGuard::default(),
                outputs: &outputs,
                queues: &world.queues,
                interrupts: &interrupts,
                limits,
                context_limit: u64::MAX,
                turn: TURN,
                exclusions: &mut Vec::new(),
            };
            let mut answers = execution.run(vec![*ready]).await?;
            answers.pop().ok_or_else(|| Halt::internal("a call was left without an answer"))?
        }
        Some(Ruling::Protocol) | None => {
            return Err(Halt::internal("a single call cannot be a protocol call"));
        }
    };
    record.answer_item(TURN, &call.id, &answer).await?;
    Ok(answer)
}
