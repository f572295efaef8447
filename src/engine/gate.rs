//! The gate: every tool call, permission request and handoff is judged here, and only here (D82).
//!
//! The order is parse → cap → known → bind → schema → policy → loop guard, for all calls of a reply before any of them
//! runs. Then `execution` runs what may run: budget → journal → queue → run → redact → size → context guard → envelope
//! → journal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use jsonschema::Validator;
use serde_json::Value;
use uuid::Uuid;

use super::abort::Abort;
use super::arguments::{self, Scope};
use super::envelope::{CallAnswer, CallRefusal};
use super::loop_guard::{LoopGuard, LoopVerdict};
use super::policy::{Policy, PolicyVerdict};
use super::question::{self, ASK};
use super::queue::Queues;
use super::report::FINAL_REPORT;
use super::ruling::{
    HandoffRuling, Permission, Phase, Proposal, ReadyCall, ReportCall, Ruling, SingleRuling, untold_write,
};
use super::session_trace::SessionTrace;
use super::task_status::{self, TASK_STATUS};
use super::tool::Tool;
use super::tool_schema::ArgumentSchemas;
use crate::domain::approval::{Approval, NamedFile};
use crate::domain::canonical::{canonical_json, sha256_hex};
use crate::domain::event::Event;
use crate::domain::judged_paths::JudgedPaths;
use crate::domain::message::ToolCall;
use crate::domain::model_target::LoopLimits;
use crate::domain::policy::{
    Decision, DenyMode, PROTOCOL_TOOLS, PolicyDecision, PolicyInput, PolicyResult, ProposalContext,
    ProposalKind, Proposed, Resource, Risk,
};
use crate::domain::rules::APPROVED;
use crate::domain::stop::StopDetail;
use crate::domain::trace::{Item, SuspendedProposal};

/// The gate of one session. Without tools, it is the gate of a flow's handoffs.
pub struct Gate {
    policy: Arc<Policy>,
    record: SessionTrace,
    scope: Scope,
    tools: BTreeMap<String, Door>,
    /// Names of tools that stood behind the door earlier and no longer do.
    gone: BTreeSet<String>,
    loop_guard: LoopGuard,
    /// Whether the protocol tools for report and status are offered. They are not in a chat and not for a flow.
    protocol: bool,
    /// Whether the protocol tool for questions is offered beside them.
    asks: bool,
    /// An output did not fit the context, so no new tool starts.
    context_spent: bool,
    /// The approvals that were taken for the proposals that are being judged, by call.
    taken: Mutex<Vec<(String, Approval)>>,
    /// Paths that calls write to which a person approved. What an agent program did there is looked at once more when it ends, and no
    /// person is asked about it again.
    approved_paths: Mutex<BTreeSet<String>>,
}

/// A tool behind the gate.
struct Door {
    tool: Arc<dyn Tool>,
    validator: Arc<Validator>,
}

impl Door {
    /// Puts a tool among the others; checks its name, schema and queue.
    fn put(
        doors: &mut BTreeMap<String, Self>,
        tool: &Arc<dyn Tool>,
        queues: &Queues,
        schemas: &ArgumentSchemas,
    ) -> Result<(), UnfitTool> {
        let name = tool.spec().name.clone();
        queues.of(&name, tool.queue())?;
        let validator =
            schemas.validator(tool).map_err(|problem| UnfitTool::Schema { tool: name.clone(), problem })?;
        if [FINAL_REPORT, TASK_STATUS, ASK].contains(&name.as_str()) || doors.contains_key(&name) {
            return Err(UnfitTool::Name(name));
        }
        doors.insert(name, Self { tool: Arc::clone(tool), validator });
        Ok(())
    }
}

/// A tool that the gate cannot accept: its configuration or its schema is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnfitTool {
    /// Two tools of one name, or the name of a protocol tool.
    #[error("tool name \"{0}\" is taken already; rename the tool or its server")]
    Name(String),
    /// Its argument schema is not a JSON Schema.
    #[error("the argument schema of tool \"{tool}\" is not a valid JSON Schema: {problem}")]
    Schema {
        /// The tool.
        tool: String,
        /// What is wrong.
        problem: String,
    },
    /// Its queue is not declared.
    #[error(transparent)]
    Queue(#[from] super::queue::UnknownQueue),
}

impl From<UnfitTool> for Abort {
    fn from(error: UnfitTool) -> Self {
        let text = error.to_string();
        match error {
            UnfitTool::Schema { .. } => {
                Self::new(StopDetail::SchemaInvalid, "ToolSchemaInvalid", &text, text.clone())
            }
            _ => Self::new(StopDetail::ConfigInvalid, "ConfigurationError", &text, text.clone()),
        }
    }
}

impl Gate {
    /// A door for these tools; checks names, schemas and queues.
    pub fn new(
        policy: Arc<Policy>,
        record: SessionTrace,
        scope: Scope,
        tools: &[Arc<dyn Tool>],
        queues: &Queues,
        schemas: &ArgumentSchemas,
    ) -> Result<Self, UnfitTool> {
        let mut doors = BTreeMap::new();
        for tool in tools {
            Door::put(&mut doors, tool, queues, schemas)?;
        }
        Ok(Self {
            policy,
            record,
            scope,
            tools: doors,
            gone: BTreeSet::new(),
            loop_guard: LoopGuard::new(LoopLimits::default()),
            protocol: false,
            asks: false,
            context_spent: false,
            taken: Mutex::default(),
            approved_paths: Mutex::default(),
        })
    }

    /// Holds the door to these limits of repetition.
    #[must_use]
    pub fn with_loop_limits(self, limits: LoopLimits) -> Self {
        Self { loop_guard: LoopGuard::new(limits), ..self }
    }

    /// Lets report and status through (C-03).
    #[must_use]
    pub fn with_protocol(self) -> Self {
        Self { protocol: true, ..self }
    }

    /// Lets questions through, where the protocol is.
    #[must_use]
    pub fn with_questions(self, asks: bool) -> Self {
        Self { asks, ..self }
    }

    /// From now on these tools stand behind the door. One that cannot is left out, and why is given with its name.
    pub fn change_tools(
        &mut self,
        tools: &[Arc<dyn Tool>],
        queues: &Queues,
        schemas: &ArgumentSchemas,
    ) -> Vec<(String, UnfitTool)> {
        let before = std::mem::take(&mut self.tools);
        let mut unfit = Vec::new();
        for tool in tools {
            if let Err(error) = Door::put(&mut self.tools, tool, queues, schemas) {
                unfit.push((tool.spec().name.clone(), error));
            }
        }
        self.gone.extend(before.into_keys());
        self.gone.retain(|name| !self.tools.contains_key(name));
        unfit
    }

    /// The tool of a name.
    pub fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name).map(|door| &door.tool)
    }

    /// No new tool starts in this session.
    pub fn spend_context(&mut self) {
        self.context_spent = true;
    }

    /// Whether new tools may still start.
    pub fn context_spent(&self) -> bool {
        self.context_spent
    }

    /// An executed call ended. The loop guard remembers its result. A call that wrote makes the earlier results of
    /// others stale.
    pub fn finished(&mut self, ready: &ReadyCall, result_hash: String, succeeded: bool) {
        let risk = self.tools.get(&ready.call.name).map(|door| door.tool.risk());
        if succeeded && matches!(risk, Some(Risk::Write | Risk::Vcs)) {
            self.loop_guard.forget_others(&ready.action);
        }
        self.loop_guard.finished(ready.action.clone(), result_hash);
    }

    /// Judges all calls of a reply, in reply order, before any of them runs (P-022, C-25). At most `cap` calls run.
    pub async fn judge(
        &mut self,
        turn: u32,
        proposals: &[Proposal],
        phase: Phase,
        cap: u32,
    ) -> Result<Vec<Ruling>, Abort> {
        let mut rulings = Vec::with_capacity(proposals.len());
        let mut seats = cap;
        let mut captured = false;
        let mut abort = None;
        for proposal in proposals {
            let parsed = proposal.arguments.as_ref().ok().map(|arguments| Value::Object(arguments.clone()));
            self.record.call_item(turn, &proposal.call, parsed.as_ref()).await?;
            let ruling = match self.first_refusal(proposal, phase, captured, &mut seats) {
                Some(refusal) => self.refuse(turn, proposal, refusal),
                None if self.protocol
                    && ([FINAL_REPORT, TASK_STATUS].contains(&proposal.call.name.as_str())
                        || self.asks && proposal.call.name == ASK) =>
                {
                    captured |= proposal.report == ReportCall::Captured;
                    let arguments = parsed.unwrap_or(Value::Null);
                    self.decide(turn, &proposal.call, arguments, (Risk::Read, true))
                        .await
                        .map(|_| Ruling::Protocol)
                }
                None => self.judge_tool(turn, proposal).await,
            };
            match ruling {
                Ok(ruling) => rulings.push(ruling),
                // The other calls are still judged, so that every decision is recorded. The first end counts.
                Err(Denied::Session(end) | Denied::ByPolicy(_, end)) => {
                    abort.get_or_insert(end);
                }
                Err(Denied::Broken(end)) => return Err(end),
            }
        }
        let run = |id: &str| {
            abort.is_none()
                && rulings.iter().any(|ruling| matches!(ruling, Ruling::Run(ready) if ready.call.id == id))
        };
        self.give_back_unless(run).await;
        abort.map_or(Ok(rulings), Err)
    }

    /// An approval is for one use. If its call does not run, because of another call of the reply or the loop guard,
    /// the approval was not used (P-037).
    async fn give_back_unless(&self, runs: impl Fn(&str) -> bool) {
        let taken = std::mem::take(&mut *self.taken.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, approval) in taken.into_iter().filter(|(call, _)| !runs(call)) {
            self.policy.give_back(approval).await;
        }
    }

    /// The files that the approval of a call was given for.
    fn approved_files(&self, call_id: &str) -> Option<Vec<NamedFile>> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.iter().rev().find(|(call, _)| call == call_id).and_then(|(_, approval)| approval.files.clone())
    }

    fn note_approved(&self, arguments: &Value) {
        let path = arguments["path"].as_str().map(|path| path.trim_start_matches("./").to_owned());
        self.approved_paths.lock().unwrap_or_else(PoisonError::into_inner).extend(path);
    }

    /// Whether a person approved a write to the path among these arguments.
    pub fn has_approved(&self, arguments: &Value) -> bool {
        let approved = self.approved_paths.lock().unwrap_or_else(PoisonError::into_inner);
        arguments["path"].as_str().is_some_and(|path| approved.contains(path.trim_start_matches("./")))
    }

    /// The policy that it asks.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Judges a single call outside of a session. Here a hard denial is an answer like a soft one, because there is no
    /// session to end.
    pub async fn judge_single(&mut self, turn: u32, proposal: &Proposal) -> Result<SingleRuling, Abort> {
        let parsed = proposal.arguments.as_ref().ok().map(|arguments| Value::Object(arguments.clone()));
        self.record.call_item(turn, &proposal.call, parsed.as_ref()).await?;
        let ruling = match self.first_refusal(proposal, Phase::Open, false, &mut 1) {
            Some(refusal) => self.refuse(turn, proposal, refusal),
            None => self.judge_tool(turn, proposal).await,
        };
        self.give_back_unless(|_| matches!(ruling, Ok(Ruling::Run(_)))).await;
        match ruling {
            Ok(Ruling::Run(ready)) => Ok(SingleRuling::Run(ready)),
            Ok(Ruling::Answered(answer)) if answer.is_policy_denial() => {
                self.record.answer_item(turn, &proposal.call.id, &answer).await?;
                Ok(SingleRuling::Denied(answer))
            }
            Ok(Ruling::Answered(answer)) => Ok(SingleRuling::Refused(answer)),
            Ok(Ruling::Protocol) => Err(Abort::internal("a single call cannot be a protocol call")),
            Err(Denied::ByPolicy(answer, _)) => Ok(SingleRuling::Denied(*answer)),
            Err(denied) => Err(denied.into_abort()),
        }
    }

    /// What needs no look at the arguments' content: parse, cap, known.
    fn first_refusal(
        &self,
        proposal: &Proposal,
        phase: Phase,
        captured: bool,
        seats: &mut u32,
    ) -> Option<CallRefusal> {
        if let Err(problem) = &proposal.arguments {
            return Some(CallRefusal::InvalidArguments(problem.clone()));
        }
        match &proposal.report {
            ReportCall::Captured => return None,
            ReportCall::Invalid(problem) => return Some(CallRefusal::InvalidArguments(problem.clone())),
            ReportCall::TooLate => return Some(CallRefusal::ReportCaptured),
            ReportCall::No if captured => return Some(CallRefusal::ReportCaptured),
            ReportCall::No => {}
        }
        match phase {
            Phase::Final => return Some(CallRefusal::FinalTurn),
            Phase::Stopping => return Some(CallRefusal::Stopping),
            Phase::Open => {}
        }
        let name = proposal.call.name.as_str();
        if self.protocol && name == TASK_STATUS {
            let problem = proposal.arguments.as_ref().ok().and_then(task_status::problem);
            return problem.map(CallRefusal::InvalidArguments);
        }
        if self.protocol && self.asks && name == ASK {
            let arguments = proposal.arguments.as_ref().ok();
            let problem = arguments.and_then(|arguments| question::read(arguments, 0, "").err());
            return problem.map(CallRefusal::InvalidArguments);
        }
        if *seats == 0 {
            return Some(CallRefusal::TooManyCalls);
        }
        *seats -= 1;
        if !self.tools.contains_key(name) {
            return Some(self.absent(name));
        }
        if self.context_spent && !PROTOCOL_TOOLS.contains(&name) {
            return Some(CallRefusal::ContextBudget);
        }
        None
    }

    fn absent(&self, name: &str) -> CallRefusal {
        let refusal = if self.gone.contains(name) { CallRefusal::ToolGone } else { CallRefusal::UnknownTool };
        refusal(name.to_owned())
    }

    /// Bind, schema, policy, loop guard.
    async fn judge_tool(&mut self, turn: u32, proposal: &Proposal) -> Result<Ruling, Denied> {
        let call = &proposal.call;
        let (Ok(parsed), Some(door)) = (&proposal.arguments, self.tools.get(&call.name)) else {
            return self.refuse(turn, proposal, self.absent(&call.name));
        };
        let mut arguments = parsed.clone();
        let schema = door.tool.arguments_schema();
        for name in arguments::bind(&mut arguments, door.tool.bound_parameters(), schema, &self.scope) {
            let (tool, name) = (call.name.clone(), name.to_owned());
            self.record.note(Event::BoundParamOverridden { tool, name })?;
        }
        let arguments = Value::Object(arguments);
        if let Err(problem) = arguments::check(&door.validator, &arguments) {
            return self.refuse(turn, proposal, CallRefusal::InvalidArguments(problem));
        }
        let kind = (door.tool.risk(), door.tool.only_reads());
        let (verdict, input, judged_paths) = self.decide(turn, call, arguments, kind).await?;
        let denied_files = self.policy.denied_files(&input);
        let arguments = input.arguments.unwrap_or_default();
        let action = action_of(&call.name, &arguments);
        let guarded = self.guard_loop(&action, turn)?;
        if verdict.decision == Decision::Deny {
            let answer = match guarded {
                Some(refusal) => CallAnswer::refused(&refusal),
                None => {
                    self.loop_guard.finished(action, format!("denied:{}", verdict.reason));
                    CallAnswer::denied(&verdict)
                }
            };
            return Ok(Ruling::Answered(answer));
        }
        if let Some(refusal) = guarded {
            return Ok(Ruling::Answered(CallAnswer::refused(&refusal)));
        }
        if verdict.reason == APPROVED && ["write_file", "edit_file"].contains(&call.name.as_str()) {
            self.note_approved(&arguments);
        }
        Ok(Ruling::Run(Box::new(ReadyCall {
            call: call.clone(),
            characters_in: arguments.to_string().chars().count() as u64,
            arguments,
            action,
            proposal_hash: input.proposal_hash,
            denied_files,
            judged_paths,
            approved: verdict.reason == APPROVED,
            approved_files: self.approved_files(&call.id),
        })))
    }

    /// A refusal by the runtime. A model that goes on proposing what cannot run is in a loop too.
    fn refuse(&mut self, turn: u32, proposal: &Proposal, refusal: CallRefusal) -> Result<Ruling, Denied> {
        let repeatable = matches!(
            refusal,
            CallRefusal::UnknownTool(_) | CallRefusal::ToolGone(_) | CallRefusal::InvalidArguments(_)
        );
        if !repeatable || proposal.report != ReportCall::No {
            return Ok(Ruling::Answered(CallAnswer::refused(&refusal)));
        }
        let action = sha256_hex(format!("{}\0{}", proposal.call.name, proposal.call.arguments).as_bytes());
        let answer = match self.guard_loop(&action, turn)? {
            Some(guarded) => CallAnswer::refused(&guarded),
            None => {
                self.loop_guard.finished(action, format!("refused:{}", refusal.code()));
                CallAnswer::refused(&refusal)
            }
        };
        Ok(Ruling::Answered(answer))
    }

    fn guard_loop(&mut self, action: &str, turn: u32) -> Result<Option<CallRefusal>, Denied> {
        match self.loop_guard.judge(action, turn) {
            LoopVerdict::Free => Ok(None),
            LoopVerdict::Refuse(set) => {
                if let Some(constraint) = set {
                    self.record.note(Event::ConstraintSet { constraint })?;
                }
                Ok(Some(CallRefusal::Loop))
            }
            LoopVerdict::End => Err(Denied::Session(Abort::new(
                StopDetail::LoopDetected,
                "LoopDetected",
                "The model repeated the same action after it was told that nothing changes.",
                "the same action signature again after the loop guard's refusal",
            ))),
        }
    }

    /// Asks the policy about a tool call, of a tool with this risk and that only reads or may change things, and records the
    /// decision. Also gives the policy's input. A hard denial ends
    /// the session.
    async fn decide(
        &self,
        turn: u32,
        call: &ToolCall,
        arguments: Value,
        (risk, only_reads): (Risk, bool),
    ) -> Result<(PolicyResult, PolicyInput, JudgedPaths), Denied> {
        let (name, raw_arguments) = (call.name.clone(), call.arguments.clone());
        let input = self.input(turn, Proposed::Tool { name, raw_arguments, arguments, risk })?;
        let (result, paths) = self.ask(&call.id, &input, only_reads, "ToolCallPolicyDenied").await?;
        Ok((result, input, paths))
    }

    /// Asks the policy whether an agent program may do what it asks for. The decision is recorded, and nothing runs
    /// here. A denial that a person could lift is the error, as it is for a call.
    pub async fn permits(&self, turn: u32, tool: &str, arguments: &Value) -> Result<Permission, Abort> {
        let call = ToolCall {
            id: format!("permission-{}", Uuid::new_v4()),
            name: tool.to_owned(),
            arguments: arguments.to_string(),
        };
        self.record.call_item(turn, &call, Some(arguments)).await?;
        let kind = self.tool(tool).map_or((Risk::Exec, false), |tool| (tool.risk(), tool.only_reads()));
        // A tool of agentd's own refuses this itself, whatever the rules say; here another program would do it.
        let (name, raw_arguments) = (call.name.clone(), call.arguments.clone());
        let proposed = Proposed::Tool { name, raw_arguments, arguments: arguments.clone(), risk: kind.0 };
        if self.policy.leads_out(&self.input(turn, proposed).map_err(Denied::into_abort)?).await {
            let refusal = CallRefusal::ByTool {
                code: "path_outside_worktree".to_owned(),
                message: LEADS_OUT.to_owned(),
            };
            self.record.answer_item(turn, &call.id, &CallAnswer::refused(&refusal)).await?;
            return Ok(Permission::Denied(refusal.reason()));
        }
        let decided = self.decide(turn, &call, arguments.clone(), kind).await;
        self.give_back_unless(
            |_| matches!(&decided, Ok((verdict, ..)) if verdict.decision == Decision::Allow),
        )
        .await;
        match decided {
            Ok((verdict, ..)) if verdict.decision == Decision::Allow => {
                let path = arguments["path"].as_str().filter(|_| kind.0 != Risk::Read);
                if let Some(path) = path.filter(|_| verdict.reason == APPROVED) {
                    self.note_approved(arguments);
                    self.record.note(Event::ToolFacts {
                        turn,
                        call_id: call.id.clone(),
                        tool: call.name.clone(),
                        facts: self.record.redact_json(&untold_write(path)),
                        output_sha256: sha256_hex(b""),
                    })?;
                }
                Ok(Permission::Allowed)
            }
            Ok((verdict, ..)) => Ok(Permission::Denied(verdict.public_text().to_owned())),
            Err(Denied::ByPolicy(answer, _)) if answer.is_default_denial() => Ok(Permission::NotMentioned),
            Err(Denied::ByPolicy(answer, abort))
                if abort.failure().stop.detail != StopDetail::ApprovalPending =>
            {
                Ok(Permission::Denied(answer.envelope().public_reason.clone().unwrap_or_default()))
            }
            Err(denied) => Err(denied.into_abort()),
        }
    }

    /// Judges a transition to another step (P-003, C-27, D72). `payload` is the validated output that crosses over.
    /// A hard denial is the error.
    pub async fn handoff(&self, from: &str, to: &str, payload: &Value) -> Result<HandoffRuling, Abort> {
        let call_id = format!("handoff-{}", Uuid::new_v4());
        let proposed =
            Proposed::Handoff { from: from.to_owned(), to: to.to_owned(), payload: payload.clone() };
        let input = self.input(0, proposed).map_err(Denied::into_abort)?;
        let verdict = self.ask(&call_id, &input, true, "HandoffPolicyDenied").await.map(|(result, _)| result);
        self.give_back_unless(|_| matches!(&verdict, Ok(result) if result.decision == Decision::Allow)).await;
        let ruling = match verdict.map_err(Denied::into_abort)? {
            result if result.decision == Decision::Allow => {
                HandoffRuling::Accepted(CallAnswer::handed_over(to, &self.record.redact_json(payload)))
            }
            result => HandoffRuling::Denied(CallAnswer::denied(&result)),
        };
        let (HandoffRuling::Accepted(answer) | HandoffRuling::Denied(answer)) = &ruling;
        self.handoff_item(&call_id, from, to, answer).await?;
        Ok(ruling)
    }

    async fn handoff_item(
        &self,
        call_id: &str,
        from: &str,
        to: &str,
        answer: &CallAnswer,
    ) -> Result<(), Abort> {
        let output = self.record.envelope(answer).await?;
        let (call_id, from, to) = (call_id.to_owned(), from.to_owned(), to.to_owned());
        self.record.item(0, Item::HandoffItem { call_id, from, to, output })
    }

    fn input(&self, turn: u32, proposed: Proposed) -> Result<PolicyInput, Denied> {
        let context = ProposalContext {
            agent: self.record.ids().agent.clone(),
            step: self.record.ids().step_id.clone(),
            principal: self.scope.principal.clone(),
            repo: self.scope.repo.clone(),
            issue: self.scope.issue.clone(),
            branch: self.scope.branch.clone(),
        };
        PolicyInput::new(context, turn, proposed)
            .map_err(|error| Denied::Broken(Abort::internal(error.to_string())))
    }

    /// The policy's result, redacted and recorded. A hard denial is the error, with the name `error_name`.
    async fn ask(
        &self,
        call_id: &str,
        input: &PolicyInput,
        only_reads: bool,
        error_name: &str,
    ) -> Result<(PolicyResult, JudgedPaths), Denied> {
        let PolicyVerdict { result, rule_id, approval, files, paths, duration } =
            self.policy.decide_on(input, only_reads).await;
        if let Some(approval) = approval {
            self.taken.lock().unwrap_or_else(PoisonError::into_inner).push((call_id.to_owned(), *approval));
        }
        let result = PolicyResult {
            reason: self.record.redact(&result.reason),
            public_reason: result.public_reason.as_deref().map(|text| self.record.redact(text)),
            metadata: result.metadata.as_ref().map(|metadata| self.record.redact_object(metadata)),
            ..result
        };
        let resource = Resource { kind: input.kind, name: self.record.redact(input.resource_name()) };
        let decided = Event::PolicyDecided(Box::new(PolicyDecision {
            timestamp: self.record.clock().now_ms(),
            turn: input.turn,
            call_id: call_id.to_owned(),
            decision: result.decision,
            reason: result.reason.clone(),
            public_reason: result.public_reason.clone(),
            deny_mode: result.deny_mode,
            policy_version: result.policy_version.clone(),
            resource: resource.clone(),
            proposal_hash: input.proposal_hash.clone(),
            rule_id,
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            metadata: result.metadata.clone(),
        }));
        // A decision about a tool or a program is recorded before it acts. A decision about a step waits for the end of
        // its visit.
        let acts = input.kind != ProposalKind::Handoff && !PROTOCOL_TOOLS.contains(&input.resource_name());
        if acts {
            self.record.note(decided)?;
        } else {
            self.record.note_with_next(decided)?;
        }
        if result.decision == Decision::Allow {
            return Ok((result, paths));
        }
        let suspended = result.asks_for_approval();
        let mut message = result.public_text().to_owned();
        if suspended {
            let proposal = SuspendedProposal {
                kind: input.kind,
                proposal_hash: input.proposal_hash.clone(),
                run_id: self.record.ids().run.to_string(),
                turn: input.turn,
                call_id: call_id.to_owned(),
                agent_name: input.agent.clone(),
                resource,
                canonical_json: self.record.redact(&input.args_canonical_json),
                reason: result.reason.clone(),
                public_reason: result.public_reason.clone(),
                policy_version: result.policy_version.clone(),
                expires_at: None,
                files,
            };
            message = proposal.sentence(&message);
            self.record.note(Event::ProposalSuspended(Box::new(proposal)))?;
        }
        if result.deny_mode == Some(DenyMode::ToolResult) {
            return Ok((result, paths));
        }
        let answer = CallAnswer::denied(&result);
        match (&input.from, &input.to) {
            (Some(from), Some(to)) => self.handoff_item(call_id, from, to, &answer).await?,
            _ => self.record.answer_item(input.turn, call_id, &answer).await?,
        }
        let detail = if suspended { StopDetail::ApprovalPending } else { StopDetail::PolicyDenied };
        let technical = format!("{:?} \"{}\" denied: {}", input.kind, input.resource_name(), result.reason);
        let abort = Abort::new(detail, error_name, &message, technical);
        Err(Denied::ByPolicy(Box::new(answer), abort))
    }
}

/// What an agent program is told that asks to reach beyond the worktree.
const LEADS_OUT: &str = "The path leads out of the worktree, or into git's own files; only what is in the worktree may be read or changed.";

/// Why judging a call gives no ruling.
enum Denied {
    /// The session ends when all calls of the reply are judged.
    Session(Abort),
    /// The same, by a hard denial; its answer is on the record.
    ByPolicy(Box<CallAnswer>, Abort),
    /// It ends at once: the record cannot be written.
    Broken(Abort),
}

impl Denied {
    fn into_abort(self) -> Abort {
        match self {
            Self::Session(abort) | Self::ByPolicy(_, abort) | Self::Broken(abort) => abort,
        }
    }
}

impl From<Abort> for Denied {
    fn from(abort: Abort) -> Self {
        Self::Broken(abort)
    }
}

fn action_of(tool: &str, arguments: &Value) -> String {
    let canonical = canonical_json(arguments).unwrap_or_else(|_| arguments.to_string());
    sha256_hex(format!("{tool}\0{canonical}").as_bytes())
}
