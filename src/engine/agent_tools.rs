//! agentd's own tools as an agent program may use them. Every call and every permission request passes the gate of the
//! run that started the program, and is recorded (C-24).

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::abort::Abort;
use super::agent_output::AgentProgress;
use super::arguments::{self, Scope};
use super::context_guard::ContextGuard;
use super::envelope::{CallAnswer, CallRefusal};
use super::execution::Execution;
use super::gate::Gate;
use super::interrupt::{Interrupt, Interrupts};
use super::question::{self, ASK};
use super::reply_validation::Rejection;
use super::report::{FINAL_REPORT, ReportShape};
use super::ruling::{Permission, Phase, Proposal, ReportCall, Ruling};
use super::session::SessionWorld;
use super::session_trace::SessionTrace;
use super::tool::{CallLimits, Tool};
use super::tool_list::ToolList;
use super::tool_output::{StoredOutputs, ToolOutputReader};
use crate::domain::message::{ToolCall, ToolSpec};
use crate::domain::model_target::SessionSettings;
use crate::domain::policy::EnvelopeStatus;
use crate::domain::trace::Exclusion;

/// The turn that everything of a program's visit belongs to.
pub(super) const TURN: u32 = 1;
/// The number of requests that may wait.
const WAITING: usize = 32;

/// What a program asks permission for, in the terms of agentd's own tools.
#[derive(Debug, Clone, PartialEq)]
pub struct PermissionRequest {
    /// Tool whose rules answer it.
    pub tool: String,
    /// What they are asked about.
    pub arguments: Value,
    /// Whether it is done already: what a program changed is looked at once more when it ends.
    pub is_made: bool,
}

impl PermissionRequest {
    /// For what is still to be done.
    pub fn new(tool: impl Into<String>, arguments: Value) -> Self {
        Self { tool: tool.into(), arguments, is_made: false }
    }
}

/// The result of a call of an agent program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentAnswer {
    /// What a model reads.
    pub text: String,
    /// Whether the call did not do what it was for.
    pub failed: bool,
    /// The id of the call in the record. A claim may cite it. Empty if there is none.
    pub call_id: String,
}

/// The program's side; cheap to clone.
#[derive(Debug, Clone)]
pub struct AgentTools {
    tools: Arc<[ToolSpec]>,
    requests: mpsc::Sender<Request>,
}

/// A request of an agent program.
#[derive(Debug)]
pub(crate) enum Request {
    Call {
        tool: String,
        arguments: Map<String, Value>,
        reply: oneshot::Sender<AgentAnswer>,
        /// Done once the program waits no longer.
        left: CancellationToken,
    },
    Permit {
        request: PermissionRequest,
        reply: oneshot::Sender<Permission>,
    },
}

impl AgentTools {
    /// A handler that offers these tools, and the receiver of its requests.
    pub(crate) fn new(tools: Arc<[ToolSpec]>) -> (Self, mpsc::Receiver<Request>) {
        let (requests, arriving) = mpsc::channel(WAITING);
        (Self { tools, requests }, arriving)
    }

    /// What is on offer, in a fixed order.
    pub fn tools(&self) -> &[ToolSpec] {
        &self.tools
    }

    /// Calls a tool. After the handler is closed nothing runs. Dropping the future gives the call up.
    pub async fn call(&self, tool: String, arguments: Map<String, Value>) -> AgentAnswer {
        let (reply, answer) = oneshot::channel();
        let left = CancellationToken::new();
        let _waits = left.clone().drop_guard();
        let sent = self.requests.send(Request::Call { tool, arguments, reply, left }).await;
        let answered = if sent.is_ok() { answer.await.ok() } else { None };
        answered.unwrap_or_else(|| AgentAnswer {
            text: "(tool failed: the run is ending; nothing more runs)".to_owned(),
            failed: true,
            call_id: String::new(),
        })
    }

    /// Asks for a permission. What nobody answers is not allowed.
    pub async fn permit(&self, request: PermissionRequest) -> Permission {
        let (reply, answer) = oneshot::channel();
        let sent = self.requests.send(Request::Permit { request, reply }).await;
        let answered = if sent.is_ok() { answer.await.ok() } else { None };
        answered.unwrap_or_else(|| Permission::Denied("The run is ending.".to_owned()))
    }
}

/// What programs of a run may use: its tools, the reader of stored outputs, the report.
pub(super) fn catalog(
    tools: &ToolList,
    outputs: &Arc<StoredOutputs>,
    page_lines: u32,
    (shape, asks): (&ReportShape, bool),
) -> Arc<[ToolSpec]> {
    let reader = ToolOutputReader::new(Arc::clone(outputs), page_lines);
    let all = tools.all().map(|tool| tool.spec().clone());
    let ask = asks.then(question::spec);
    all.chain([reader.spec().clone()]).chain(ask).chain([ToolSpec::clone(shape.tool())]).collect()
}

/// The tools of a run while a program works: those that are others then stand in the places of their names.
pub(super) fn while_at_work(tools: &ToolList, stand_ins: &[Arc<dyn Tool>]) -> Vec<Arc<dyn Tool>> {
    let stands_in = |tool: &Arc<dyn Tool>| stand_ins.iter().find(|one| one.spec().name == tool.spec().name);
    tools.all().map(|tool| Arc::clone(stands_in(tool).unwrap_or(tool))).collect()
}

/// The run's side during one launch.
pub(super) struct ToolHandler<'a> {
    world: &'a SessionWorld,
    settings: &'a SessionSettings,
    shape: &'a ReportShape,
    record: SessionTrace,
    gate: Gate,
    guard: ContextGuard,
    outputs: Arc<StoredOutputs>,
    interrupts: Interrupts,
    progress: AgentProgress,
    visit: u32,
    /// The id of the launch itself. The calls of the program are numbered below it.
    launch: String,
    calls: u32,
    claims_sent_back: bool,
    reported: bool,
    /// What the program does not see in full.
    pub(super) exclusions: Vec<Exclusion>,
}

/// What a handler is opened for.
pub(super) struct Launched {
    pub(super) visit: u32,
    /// Id of the launch's own call.
    pub(super) call_id: String,
    pub(super) progress: AgentProgress,
}

impl<'a> ToolHandler<'a> {
    pub(super) fn open(
        world: &'a SessionWorld,
        (settings, shape): (&'a SessionSettings, &'a ReportShape),
        (record, scope): (SessionTrace, Scope),
        mut behind: Vec<Arc<dyn Tool>>,
        outputs: Arc<StoredOutputs>,
        launched: Launched,
    ) -> Result<Self, Abort> {
        behind.push(Arc::new(ToolOutputReader::new(Arc::clone(&outputs), settings.read_page_lines)));
        let gate =
            world.gate(record.clone(), scope, &behind)?.with_loop_limits(settings.loop_guard).with_protocol();
        let interrupts =
            Interrupts { stop: world.stop.clone(), meter: Arc::clone(&world.meter), whole_turns: false };
        Ok(Self {
            world,
            settings,
            shape,
            record,
            gate,
            guard: ContextGuard::default(),
            outputs,
            interrupts,
            progress: launched.progress,
            visit: launched.visit,
            launch: launched.call_id,
            calls: 0,
            claims_sent_back: false,
            reported: false,
            exclusions: Vec::new(),
        })
    }

    /// Serves one request after the other until `over`. A running call comes to its end first, or is given up because the
    /// program no longer waits for it: in either case its line is in the ledger. The error ends the launch, just
    /// as it would end agentd's own session.
    pub(super) async fn serve(
        &mut self,
        requests: &mut mpsc::Receiver<Request>,
        over: &CancellationToken,
    ) -> Result<(), Abort> {
        loop {
            let request = tokio::select! {
                biased;
                () = over.cancelled() => return Ok(()),
                request = requests.recv() => request,
            };
            match request {
                None => {
                    over.cancelled().await;
                    return Ok(());
                }
                // The program may be gone when the answer comes.
                Some(Request::Permit { request, reply }) => drop(reply.send(self.permit(&request).await?)),
                Some(Request::Call { tool, arguments, reply, left }) => {
                    drop(reply.send(self.call(tool, arguments, &left).await?));
                }
            }
        }
    }

    /// After the end of the launch is decided: nothing is called any more. What the program has changed is judged by the same rules
    /// as ever, until `over`.
    pub(super) async fn judge_changes(
        &self,
        requests: &mut mpsc::Receiver<Request>,
        over: &CancellationToken,
    ) {
        loop {
            let request = tokio::select! {
                biased;
                () = over.cancelled() => return,
                request = requests.recv() => request,
            };
            match request {
                None => return over.cancelled().await,
                Some(Request::Permit { request, reply }) => {
                    let asked = self.judge_request(&request).await;
                    let ended = |abort: Abort| Permission::Denied(abort.failure().error_message.clone());
                    drop(reply.send(asked.unwrap_or_else(ended)));
                }
                // Without a reply it is told that the run is ending.
                Some(Request::Call { .. }) => {}
            }
        }
    }

    async fn permit(&self, request: &PermissionRequest) -> Result<Permission, Abort> {
        self.interrupts.watch(None, self.judge_request(request)).await.map_err(without_grace)?
    }

    async fn judge_request(&self, request: &PermissionRequest) -> Result<Permission, Abort> {
        // A person let it be made.
        if request.is_made && self.gate.has_approved(&request.arguments) {
            return Ok(Permission::Allowed);
        }
        self.gate.permits(TURN, &request.tool, &request.arguments).await
    }

    async fn call(
        &mut self,
        tool: String,
        arguments: Map<String, Value>,
        left: &CancellationToken,
    ) -> Result<AgentAnswer, Abort> {
        self.calls += 1;
        let report = match tool == FINAL_REPORT {
            _ if self.reported => ReportCall::TooLate,
            true => self.report(&arguments).await,
            false => ReportCall::No,
        };
        let call = ToolCall {
            id: format!("{}.{}", self.launch, self.calls),
            name: tool,
            arguments: Value::Object(arguments.clone()).to_string(),
        };
        let proposal = Proposal { arguments: arguments::parse(&call.arguments), call, report };
        let judged = self.gate.judge(TURN, std::slice::from_ref(&proposal), Phase::Open, 1);
        let ruling = self.interrupts.watch(None, judged).await.map_err(without_grace)??.pop();
        let answer = match ruling {
            Some(Ruling::Run(ready)) => self.run(*ready, left).await?,
            Some(Ruling::Answered(answer)) => answer,
            Some(Ruling::Protocol) if proposal.report == ReportCall::Captured => {
                self.reported = true;
                self.progress.tell(|said| said.report = Some(arguments));
                CallAnswer::success("The final report is captured. End now.".to_owned())
            }
            Some(Ruling::Protocol) if proposal.call.name == ASK => {
                let step_id = self.record.ids().step_id.clone();
                let answer = CallAnswer::success("People are asked. End now.".to_owned());
                self.record.answer_item(TURN, &proposal.call.id, &answer).await?;
                let asked = question::read(&arguments, self.visit, &step_id).map_err(Abort::internal)?;
                return Err(self.record.ask_people(asked)?);
            }
            Some(Ruling::Protocol) => CallAnswer::success("Noted.".to_owned()),
            None => return Err(Abort::internal("a call was left without a ruling")),
        };
        self.record.answer_item(TURN, &proposal.call.id, &answer).await?;
        let envelope = answer.envelope();
        let worked = envelope.status == EnvelopeStatus::Ok
            && envelope.data.as_ref().is_none_or(|data| data["status"] != "error");
        Ok(AgentAnswer { text: answer.text().to_owned(), failed: !worked, call_id: proposal.call.id })
    }

    async fn run(
        &mut self,
        ready: super::ruling::ReadyCall,
        left: &CancellationToken,
    ) -> Result<CallAnswer, Abort> {
        let execution = Execution {
            gate: &mut self.gate,
            record: &self.record,
            guard: &mut self.guard,
            outputs: &self.outputs,
            nearest_rules: None,
            queues: &self.world.queues,
            interrupts: &self.interrupts,
            limits: CallLimits {
                timeout: self.settings.tool_timeout,
                max_inline_bytes: self.settings.tool_response_max_bytes,
            },
            // The program minds its own context.
            context_limit: u64::MAX,
            turn: TURN,
            exclusions: &mut self.exclusions,
            redaction: self.world.redaction.as_deref(),
            touched: &self.world.touched,
            left,
        };
        let mut answers = execution.run(vec![ready]).await?;
        Ok(answers.pop().unwrap_or_else(|| CallAnswer::refused(&CallRefusal::Stopping)))
    }

    /// Checks a report. One whose claims do not hold is sent back once, as in a session.
    async fn report(&mut self, arguments: &Map<String, Value>) -> ReportCall {
        let report = match self.shape.from_call(arguments, false) {
            Ok(report) => report,
            Err(problem) => return ReportCall::Invalid(problem.message),
        };
        if let Some(check) = self.world.claims.as_ref().filter(|_| !self.claims_sent_back) {
            let problems = check(self.visit, report.claims.clone()).await;
            if !problems.is_empty() {
                self.claims_sent_back = true;
                return ReportCall::Invalid(Rejection::of_claims(&problems, Vec::new()).guidance);
            }
        }
        ReportCall::Captured
    }
}

/// The end of a wait without grace.
fn without_grace(end: Interrupt) -> Abort {
    match end {
        Interrupt::End(abort) => abort,
        Interrupt::GraceOver => Abort::internal("a wait without grace ran out of it"),
    }
}
