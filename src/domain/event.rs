//! Everything that can happen in a run. The journal keeps this closed list, and every record is folded from it.

use serde::{Deserialize, Serialize};

use super::answer::Outcome;
use super::artifact::Artifact;
use super::briefing::BriefingFrozen;
use super::budget::{BudgetKind, Budgets, IssueBudget, Spend};
pub use super::change::{Change, FileChange};
use super::cluster::cells::HeldTerm;
use super::constraint::Constraint;
use super::egress::AskedHost;
use super::evidence_gate::Judgement;
use super::fingerprint::Fingerprint;
use super::head_check::{CheckRead, CheckRerun};
use super::issue::{Issue, ObjectiveSource};
use super::ledger_entry::AccountingEntry;
use super::mapping::InstanceId;
use super::money::Money;
use super::name::{BranchName, CommitId};
use super::origin::Origin;
use super::others_merged::OthersMerged;
use super::plan::{PlanApproved, PlanPosted};
use super::policy::PolicyDecision;
use super::question::{Answered, Question};
use super::remark::RemarkId;
use super::run::{ForcedFinal, Principal, RunId, VisitRecord, Warning};
use super::sandbox::SandboxFacts;
use super::seal::SignedSeal;
use super::stop::Stop;
use super::taken::{GivenBack, TakenOver};
use super::text_revision::TextRevision;
use super::trace::{
    ChecksRun, ContextGuardEvaluated, GuardrailDecision, Item, ProgramRan, PromptSnapshot, ReportCaptured,
    RequestPrepared, SessionClosed, SessionOpened, SuspendedProposal, ToolsChanged,
};
pub use super::verify_command::VerifyCommand;
use super::words::words;

/// One event; the journal line adds sequence, time, run and hash chain (D40).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "data", rename_all = "snake_case")]
pub enum Event {
    /// Stage lease: this run has the issue. The first event of every run.
    LeaseTaken(Box<LeaseTaken>),
    /// Stage worktree, before anything is made.
    WorktreePlanned {
        /// Relative to the main checkout.
        path: String,
        /// The issue's branch.
        branch: BranchName,
        /// Commit the branch starts from, if it has to be made.
        base: CommitId,
    },
    /// Stage worktree, done.
    WorktreeReady {
        /// How it came to be.
        state: WorktreeState,
        /// Commit it stands on.
        head: CommitId,
    },
    /// Stage instance: hashes of everything that decides how the run will behave.
    RunStarted(Box<RunStarted>),
    /// A visit taken over from a killed predecessor (D61).
    VisitImported(Box<VisitRecord>),
    /// A visit begins.
    VisitStarted {
        /// 1-based.
        visit: u32,
        /// The step.
        step_id: String,
    },
    /// What the run is told is read and will not change; nothing was asked of a model before.
    BriefingFrozen(Box<BriefingFrozen>),
    /// A failed check was read, and the run is told of it.
    CheckRead(Box<CheckRead>),
    /// Failed jobs were run again before this run was started.
    CheckRerun(Box<CheckRerun>),
    /// What came of a thread or a remark; proven, it is about to be told on GitHub.
    ThreadOutcome(Box<Outcome>),
    /// The prompt of a visit was resolved.
    PromptResolved {
        /// The visit.
        visit: u32,
        /// The step.
        step_id: String,
        /// File used, relative to the agent's directory.
        path: String,
        /// Whether the adaptation asked for was absent and the edition's file was used (T06).
        fell_back: bool,
        /// SHA-256 over system prompt and resolved prompt (D88).
        prompt_hash: String,
        /// SHA-256 over both templates (D88).
        template_hash: String,
        /// The resolved text, only with `record.include_prompt_text` (P-027).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// Checks before a flow may close (E12, E13).
    ChecksRun(Box<ChecksRun>),
    /// A program of a step, a check or a completion condition ended; a replay does not run it again.
    ProgramRan(Box<ProgramRan>),
    /// A session begins.
    SessionOpened(Box<SessionOpened>),
    /// MCP servers changed their tools between two turns of a session.
    ToolsChanged(Box<ToolsChanged>),
    /// A turn's prompt (P-026).
    PromptSnapshotTaken(Box<PromptSnapshot>),
    /// A request is about to be sent (A-013, D41).
    LlmRequestPrepared(Box<RequestPrepared>),
    /// The request's hashes (P-028).
    RequestFingerprinted(Box<Fingerprint>),
    /// The context guard looked (A-017, D41).
    ContextGuard(Box<ContextGuardEvaluated>),
    /// Even the reduced request does not fit; it is sent as best effort.
    ContextOverAfterShrink {
        /// 1-based turn.
        turn: u32,
        /// Tokens that the request has.
        projected: u64,
        /// What fits.
        limit: u64,
    },
    /// A target is not asked (A-025, C-09, D41).
    TargetSkipped {
        /// `provider/model`.
        target: String,
        /// `context`, `auth_error`, `quota_exceeded`.
        reason: String,
    },
    /// From here on only the final report is accepted.
    FinalTurnForced {
        /// 1-based turn that is final.
        turn: u32,
        /// Why.
        reason: ForcedFinal,
    },
    /// A reply could not be used; the model is told and asked again.
    ReplyRejected {
        /// 1-based turn.
        turn: u32,
        /// 1-based attempt.
        attempt: u32,
        /// Stable word: `empty`, `reasoning_only`, `text_only`, `refusal`, `malformed_calls`, `invalid_reply`,
        /// `report_invalid`, `report_schema`, `claims_unbacked`, `not_a_report`.
        reason: String,
        /// What the model is told; redacted.
        guidance: String,
    },
    /// The policy's word on one proposal (P-025).
    PolicyDecided(Box<PolicyDecision>),
    /// A proposal waits for a person (P-036).
    ProposalSuspended(Box<SuspendedProposal>),
    /// A supervisor constrains the session.
    ConstraintSet {
        /// What it forbids, and for how long.
        constraint: Constraint,
    },
    /// The host set an argument that the model had set otherwise (S-031, D41).
    BoundParamOverridden {
        /// The tool.
        tool: String,
        /// The parameter.
        name: String,
    },
    /// A tool is about to run.
    ToolStarted {
        /// 1-based turn.
        turn: u32,
        /// Id of the call.
        call_id: String,
        /// The tool.
        tool: String,
        /// Hash of the proposal.
        proposal_hash: String,
    },
    /// What a tool reports besides its text: command evidence, the position of a page.
    ToolFacts {
        /// 1-based turn.
        turn: u32,
        /// Id of the call.
        call_id: String,
        /// The tool.
        tool: String,
        /// Redacted.
        facts: serde_json::Value,
        /// Over the output as captured, before any cap.
        output_sha256: String,
    },
    /// An item of the run record (P-030).
    ItemRecorded {
        /// 1-based visit.
        visit: u32,
        /// 1-based turn; 0 for the original input and for handoffs.
        turn: u32,
        /// The item.
        item: Box<Item>,
    },
    /// An output was looked at before it left (P-043).
    GuardrailDecided(Box<GuardrailDecision>),
    /// A session has its report.
    ReportCaptured(Box<ReportCaptured>),
    /// A session ended.
    SessionClosed(Box<SessionClosed>),
    /// A model request ended.
    LlmAttempted {
        /// The ledger line.
        entry: Box<AccountingEntry>,
    },
    /// What a launch of an agent program has used so far. Each one replaces the one before; the end of the launch writes the
    /// ledger lines, and if its process dies, the next one writes them from this.
    AgentSpent {
        /// The ledger lines, as they would be written now.
        entries: Vec<AccountingEntry>,
    },
    /// A tool execution ended.
    ToolFinished {
        /// The ledger line.
        entry: Box<AccountingEntry>,
    },
    /// A visit ended; the border at which a crashed run continues.
    VisitFinished(Box<VisitRecord>),
    /// The worktree's state at a visit's border, on a ref that is never pushed (D13).
    Checkpoint {
        /// The visit it closes.
        visit: u32,
        /// Full name of the ref.
        reference: String,
        /// The commit.
        commit: CommitId,
        /// In a cluster: the same for other nodes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bundle: Option<Bundle>,
    },
    /// The work was committed, or there was nothing to commit.
    Committed {
        /// The branch's head after it.
        head: CommitId,
        /// Tree of that commit.
        tree: String,
        /// Whether agentd made a commit now. Otherwise the head existed already.
        made: bool,
        /// What changed since the origin's commit.
        change: Change,
    },
    /// A verify command, run by agentd itself on the final tree (D83).
    Verified(Box<VerifyCommand>),
    /// What the evidence gate says about the run's claims. The last such event counts.
    ClaimsJudged(Box<Judgement>),
    /// An effect outside the worktree will be tried now.
    EffectPlanned {
        /// Which.
        effect: Effect,
    },
    /// It is there; trying again finds it.
    EffectDone {
        /// Which.
        effect: Effect,
        /// Where: a URL, a commit, a list of labels.
        outcome: String,
    },
    /// It could not be done; the run's work is kept.
    EffectFailed {
        /// Which.
        effect: Effect,
        /// Public text.
        message: String,
        /// Whether a later try may succeed without a person's help.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        transient: bool,
        /// Whether it was refused for what the work holds: the next run makes it anew.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        of_content: bool,
    },
    /// A budget passed its soft ratio.
    BudgetSoftLimit {
        /// Which.
        kind: BudgetKind,
        /// Used, in the budget's own unit (visits, milliseconds, dollars).
        used: f64,
        /// Cap, in the same unit.
        cap: f64,
    },
    /// A person gave the run its budgets once more while it worked.
    BudgetExtended {
        /// Their login.
        by: String,
        /// The caps from now on.
        budgets: Budgets,
    },
    /// The budget that all runs of the issue share is near, is used up, or was extended.
    IssueBudget(IssueBudget),
    /// Somebody wrote something about the issue while the run works.
    RemarkHeard {
        /// Which remark.
        id: RemarkId,
    },
    /// A model is told what somebody wrote: in the briefing, or while the run works.
    RemarkTold {
        /// Which remark.
        id: RemarkId,
        /// 1-based visit.
        visit: u32,
        /// 1-based turn that begins with it; of an agent program, the launch before it.
        turn: u32,
        /// As it is told while the run works: cleaned, fenced and redacted. Absent = it stands in the briefing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// The thread of the pull request in which it stands, where it was told while the run worked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<String>,
    },
    /// A remark that was heard is not told.
    RemarkDropped {
        /// Which.
        id: RemarkId,
        /// Why.
        why: String,
    },
    /// What others pushed to the branch while the run worked was merged into the files.
    OthersMerged(Box<OthersMerged>),
    /// The agent asks people something, and the visit ends.
    QuestionAsked(Question),
    /// The run has the answer to a question of the run that it goes on with.
    QuestionAnswered(Answered),
    /// A plan was posted for people to approve.
    PlanPosted(PlanPosted),
    /// The run carries out a plan of the run that it goes on with.
    PlanApproved(Box<PlanApproved>),
    /// A person takes the work over: the flow ends at the border of its turn.
    Taken(TakenOver),
    /// The run goes on with work that a person had taken over.
    GivenBack(Box<GivenBack>),
    /// The issue waits for a person.
    Parked {
        /// For what: `question_pending`, `plan_pending` or `taken`.
        code: String,
        /// Where people were told; absent = nowhere but in the state directory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        url: Option<String>,
    },
    /// The run goes on with a parked one.
    Resumed {
        /// Which.
        run_id: RunId,
        /// Who let it: a login, `local:UID`, or `agentd`.
        by: String,
    },
    /// Stage instance: the sandbox of the run's programs.
    SandboxChosen(SandboxFacts),
    /// What programs asked for on the network, through agentd's proxy, since the last such event.
    NetworkAsked {
        /// `commands` (agentd's own tools, checks, verify commands) or `agent` (the agent program).
        programs: String,
        /// The hosts, reached or not.
        hosts: Vec<AskedHost>,
    },
    /// A note for people.
    Warned(Warning),
    /// The flow ended.
    FlowEnded {
        /// Why.
        stop: Stop,
        /// The completion's reason; non-empty iff success.
        completion_reason: Option<String>,
        /// What was used.
        spend: Spend,
    },
    /// The run ended; result and report are folded from the events up to here.
    RunEnded {
        /// The final word, after report and publish (D62).
        stop: Stop,
    },
    /// The run record was fed to the sinks, after everything else (P-023).
    RecordEmitted {
        /// What went wrong, a sentence a sink.
        problems: Vec<String>,
    },
    /// Every other file of the run directory as it was at the end, so that a change is found.
    FilesSealed {
        /// By path.
        files: Vec<Artifact>,
        /// Who signed it. Absent in runs that were sealed before there were signatures, and where no key could be used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<Box<SignedSeal>>,
    },
}

/// Who makes something of an entry, beside the journal itself. `tests/it/journal_readers.rs` knows the file of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// The facts of a run.
    Facts,
    /// What went wrong, for the next run of the issue.
    Failures,
    /// The run record.
    Record,
    /// The summary text of report, comment and pull request.
    Summary,
    /// The sources that claims may cite.
    Sources,
    /// The tools' side of a replay.
    RecordedRun,
    /// The model's side of a replay.
    RecordedModel,
    /// What `agentd run` prints as it goes.
    Progress,
    /// What the daemon shows of a run.
    DaemonProgress,
    /// The log of hosts.
    HostLog,
}

impl Event {
    /// Who makes something of it: everybody else passes it by on purpose.
    pub fn readers(&self) -> &'static [Reader] {
        use Reader::{
            DaemonProgress, Facts, Failures, HostLog, Progress, Record, RecordedModel, RecordedRun, Sources,
            Summary,
        };
        match self {
            Self::LeaseTaken(..) => &[Facts, Progress, DaemonProgress],
            Self::WorktreePlanned { .. } => &[],
            Self::WorktreeReady { .. } => &[Facts, Progress, DaemonProgress],
            Self::RunStarted(..) => &[Facts, Progress, DaemonProgress],
            Self::VisitImported(..) => &[Facts, Progress],
            Self::VisitStarted { .. } => &[Facts, Progress, DaemonProgress],
            Self::BriefingFrozen(..) => &[Record],
            Self::CheckRead(..) => &[],
            Self::CheckRerun(..) => &[],
            Self::ThreadOutcome(..) => &[Record],
            Self::PromptResolved { .. } => &[],
            Self::ChecksRun(..) => &[Progress],
            Self::ProgramRan(..) => &[RecordedRun],
            Self::SessionOpened(..) => &[Failures, Record, Sources, RecordedRun, RecordedModel],
            Self::ToolsChanged(..) => &[Summary, RecordedRun, HostLog],
            Self::PromptSnapshotTaken(..) => &[Record],
            Self::LlmRequestPrepared(..) => &[RecordedModel, Progress, DaemonProgress],
            Self::RequestFingerprinted(..) => &[Record],
            Self::ContextGuard(..) => &[],
            Self::ContextOverAfterShrink { .. } => &[],
            Self::TargetSkipped { .. } => &[Summary, Progress],
            Self::FinalTurnForced { .. } => &[Summary, Progress, HostLog],
            Self::ReplyRejected { .. } => {
                &[Failures, Summary, RecordedModel, Progress, DaemonProgress, HostLog]
            }
            Self::PolicyDecided(..) => &[Failures, Record, Summary, Progress, DaemonProgress],
            Self::ProposalSuspended(..) => &[Record, Summary, Progress],
            Self::ConstraintSet { .. } => &[Summary],
            Self::BoundParamOverridden { .. } => &[HostLog],
            Self::ToolStarted { .. } => &[Progress, DaemonProgress, HostLog],
            Self::ToolFacts { .. } => &[Sources, RecordedRun, Progress],
            Self::ItemRecorded { .. } => &[Facts, Record, Sources, RecordedRun, RecordedModel, Progress],
            Self::GuardrailDecided(..) => &[Record],
            Self::ReportCaptured(..) => &[Sources, Progress],
            Self::SessionClosed(..) => &[Record, RecordedRun, RecordedModel, Progress, HostLog],
            Self::LlmAttempted { .. } => &[Facts, Progress, DaemonProgress, HostLog],
            Self::AgentSpent { .. } => &[DaemonProgress],
            Self::ToolFinished { .. } => &[Facts, Progress, DaemonProgress, HostLog],
            Self::VisitFinished(..) => &[Facts, Progress, DaemonProgress],
            Self::Checkpoint { .. } => &[Facts],
            Self::Committed { .. } => &[Facts, Progress, DaemonProgress],
            Self::Verified(..) => &[Facts, Progress, DaemonProgress],
            Self::ClaimsJudged(..) => &[Failures],
            Self::EffectPlanned { .. } => &[Facts, Progress, DaemonProgress],
            Self::EffectDone { .. } => &[Facts, Progress, DaemonProgress],
            Self::EffectFailed { .. } => &[Facts, Progress, DaemonProgress],
            Self::BudgetSoftLimit { .. } => &[Facts, Progress, DaemonProgress, HostLog],
            Self::BudgetExtended { .. } => &[Facts, Progress, DaemonProgress],
            Self::IssueBudget(..) => &[Facts, Progress, DaemonProgress],
            Self::RemarkHeard { .. } => &[],
            Self::RemarkTold { .. } => &[Record, RecordedRun, Progress, DaemonProgress],
            Self::RemarkDropped { .. } => &[],
            Self::OthersMerged(..) => &[Facts, RecordedRun],
            Self::QuestionAsked(..) => &[Facts, Progress, DaemonProgress],
            Self::QuestionAnswered(..) => &[Facts, Progress],
            Self::PlanPosted(..) => &[Progress],
            Self::PlanApproved(..) => &[Progress],
            Self::Taken(..) => &[Facts, Progress, DaemonProgress],
            Self::GivenBack(..) => &[Progress],
            Self::Parked { .. } => &[Record, Progress, DaemonProgress],
            Self::Resumed { .. } => &[Progress],
            Self::SandboxChosen(..) => &[Facts],
            Self::NetworkAsked { .. } => &[],
            Self::Warned(..) => &[Facts, Progress, DaemonProgress, HostLog],
            Self::FlowEnded { .. } => &[Facts, Progress],
            Self::RunEnded { .. } => &[Facts, Progress, DaemonProgress],
            Self::RecordEmitted { .. } => &[Facts],
            Self::FilesSealed { .. } => &[Facts],
        }
    }
}

/// Where other nodes of a cluster find a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Bundle {
    /// The bundle: every commit that the checkpoint has and the prerequisite does not.
    pub file: Artifact,
    /// The commit that has to be there before the bundle can be taken; the remote has it.
    pub prerequisite: CommitId,
}

/// See [`Event::LeaseTaken`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeaseTaken {
    /// The run.
    pub run_id: RunId,
    /// The instance that holds the lease.
    pub instance: InstanceId,
    /// Objective, verbatim but redacted.
    pub issue: Issue,
    /// Whether the objective could not be redacted and was dropped (P-032).
    #[serde(default)]
    pub context_withheld: bool,
    /// Which revision of the issue's text the run works on, and who asked for it. Journals of earlier versions do not
    /// have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<TextRevision>,
    /// What asked for the run.
    pub source: ObjectiveSource,
    /// Whether the run repairs the issue's pull request, or goes on with one that does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follow_up: bool,
    /// Whether it goes on with a run because what that waited for was decided, or with such a one that was cut off.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub goes_on: bool,
    /// On whose behalf.
    pub principal: Principal,
    /// The frozen origin.
    pub origin: Origin,
    /// The branch.
    pub branch: BranchName,
    /// The worktree, relative to the main checkout.
    pub worktree: String,
    /// The main checkout, absolute: where the lease and the worktree are.
    pub checkout: String,
    /// The path of the lease file. It shows whether this run lives.
    #[serde(default)]
    pub lease_file: String,
    /// Which taking of the lease the run works under, where several nodes share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldTerm>,
    /// The run that this one continues: a killed one, or one that a person resumed (D61).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_run: Option<RunId>,
    /// agentd's version.
    pub runtime_version: String,
}

/// How a worktree came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorktreeState {
    /// Branch and worktree are new.
    Created,
    /// Both were there and fit.
    Reused,
    /// The branch was there without a worktree (D95).
    Reattached,
}

/// See [`Event::RunStarted`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunStarted {
    /// Agent's name.
    pub agent: String,
    /// Hash over the definition's files.
    pub definition_sha256: String,
    /// Versions of the policies in force.
    pub policy_versions: Vec<String>,
    /// Hash over the effective configuration, secrets left out.
    pub config_sha256: String,
    /// The caps.
    pub budgets: Budgets,
    /// Spent by predecessors (D61).
    pub inherited: Spend,
    /// What people had given the issue beyond its budget.
    #[serde(default, skip_serializing_if = "super::money::Money::is_zero")]
    pub issue_given: Money,
    /// Whether its agent may ask people.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_ask: bool,
    /// Whether its plan has to be approved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gates_plans: bool,
    /// `--meta`.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// Longest text that stands inline in the record, in bytes.
    #[serde(default = "usual_inline")]
    pub longest_inline: usize,
    /// What a run that continues this one asks for again.
    #[serde(default)]
    pub asked: RequestOptions,
    /// What went wrong in earlier runs of the issue. This run is told of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prior_failures: Vec<super::run_output::FailureRecord>,
}

fn usual_inline() -> usize {
    super::trace::LONGEST_INLINE
}

/// The part of a request that no configuration knows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RequestOptions {
    /// `--agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// `--publish`: `pull-request`, `branch` or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish: Option<String>,
    /// `--format`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<super::report::ReportFormat>,
    /// `--uv`.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub parameters: std::collections::BTreeMap<String, String>,
    /// Flags that override the configuration, such as `--max-turns`, by the key that they set.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub flags: std::collections::BTreeMap<String, serde_json::Value>,
}

words! {
    /// An effect outside the worktree, found or created by a stable key.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Effect {
        /// The branch on the remote.
        Push = "push",
        /// The pull request of the branch.
        PullRequest = "pull request",
        /// The issue's status comment.
        Comment = "comment",
        /// The issue's labels.
        Labels = "labels",
        /// The labels that the agent's closure asks for.
        ClosureLabels = "closure labels",
        /// The issue's state.
        Close = "close",
    }
}
