//! For what an issue waits, as it is kept: `repos/OWNER/NAME/parked/ISSUE.json`.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::domain::call_text::one_line;
use crate::domain::issue::IssueKey;
use crate::domain::name::{BranchName, CommitId};
use crate::domain::plan::{PlanVerdict, ProposedPlan};
use crate::domain::policy::ActorPermission;
use crate::domain::question::Question;
use crate::domain::remark::RemarkId;
use crate::domain::run::RunId;
use crate::domain::taken::{TakenOver, is_local};

/// Version of the file.
pub const SCHEMA: &str = "agentd.parked.v1";

/// What is kept of one issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ParkedIssue {
    /// [`SCHEMA`].
    pub schema_version: String,
    /// Questions that its runs have asked so far.
    #[serde(default)]
    pub questions: u32,
    /// Plans that its runs have had people approve so far.
    #[serde(default)]
    pub plans: u32,
    /// Plans that were rejected since one was approved.
    #[serde(default)]
    pub rejected: u32,
    /// A run was asked to hand its work over, and the issue is not the person's yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<HandOverRequest>,
    /// For what it waits, or waited last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<Parked>,
}

impl Default for ParkedIssue {
    fn default() -> Self {
        Self {
            schema_version: SCHEMA.to_owned(),
            questions: 0,
            plans: 0,
            rejected: 0,
            asked: None,
            parked: None,
        }
    }
}

/// A run that ended because a person has to do something, and how it goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Parked {
    /// The run; its successor goes on at the step that it stopped in.
    pub run_id: RunId,
    /// For what it waits.
    pub waits_for: WaitsFor,
    /// Since when.
    pub since: DateTime<Utc>,
    /// How long it is waited for; absent = for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DateTime<Utc>>,
    /// Who is asked: whoever asked for the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// Where people were told: the comment's id and address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<PostedComment>,
    /// Whether people were told, as far as there is a place for that. Before, the run still works at it.
    #[serde(default)]
    pub is_posted: bool,
    /// The name of the state directory or cluster that the issue's status comment gives; absent = one that was parked before this was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown_by: Option<String>,
    /// Whether no label asked for the run: a follow-up run needs none, and taking it off ends nothing.
    #[serde(default)]
    pub unlabelled: bool,
    /// Whether people were reminded.
    #[serde(default)]
    pub reminded: bool,
    /// What lets it go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<ParkedAnswer>,
    /// The run that went on with it, or that this is over without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Over>,
}

/// For what an issue waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitsFor {
    /// The answer to a question: the question, and which one of the issue's it is.
    Answer {
        /// What is asked.
        question: Question,
        /// 1-based.
        number: u32,
    },
    /// The approval of a plan.
    Plan {
        /// The plan.
        plan: ProposedPlan,
        /// Which one of the issue's it is, 1-based.
        number: u32,
        /// The edit whose voiding of an approval people were told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        void_told: Option<DateTime<Utc>>,
    },
    /// A person has the work, and gives it back.
    GiveBack(Box<Taken>),
}

/// Work that a person has: nothing starts on the issue, and agentd touches no file of its worktree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Taken {
    /// Who: a login, or `local:UID`.
    pub by: String,
    /// The issue's branch.
    pub branch: BranchName,
    /// Where the branch stood.
    pub head: CommitId,
    /// What a run had left uncommitted when it was taken, as a checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<CommitId>,
    /// Whether the last run had reached its objective: then another one begins, and goes on with none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_done: bool,
    /// What was waited for when it was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<WaitsFor>,
    /// What a comment asked for and is not carried out yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub giving_back: Option<GivingBack>,
    /// Where the branch stood when it was given back, and what differs, a line a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<GivenBack>,
}

impl Taken {
    /// Whether they work in the worktree, on the machine that has it; else with what was pushed.
    pub fn is_in_worktree(&self) -> bool {
        is_local(&self.by)
    }
}

/// A run that was asked to hand its work over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct HandOverRequest {
    /// The run.
    pub run_id: RunId,
    /// For whom.
    pub over: TakenOver,
}

/// Who gives work back, and with which words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GivingBack {
    /// A login, or `local:UID`.
    pub by: String,
    /// Database id of the account; 0 = the local user.
    #[serde(default)]
    pub by_id: u64,
    /// What they may do in the repository; absent = it was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<ActorPermission>,
    /// When they said it.
    pub at: DateTime<Utc>,
    /// What the agent is told; may be empty.
    #[serde(default)]
    pub text: String,
    /// Whether nothing goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends: bool,
    /// Number of the issue or the pull request on which they said it; absent = on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<u64>,
    /// The comment in which they said it, which is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<RemarkId>,
}

/// What a person made of the work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GivenBack {
    /// Where the branch stands.
    pub head: CommitId,
    /// A line a file.
    pub changed: Vec<String>,
    /// Database id of the account that gave it back; 0 = the local user.
    #[serde(default)]
    pub by_id: u64,
}

impl WaitsFor {
    /// In words, on one line.
    pub fn told(&self) -> String {
        match self {
            Self::Answer { question, .. } => format!("the agent asks: {}", one_line(&question.question, 300)),
            Self::Plan { plan, .. } => {
                format!("the plan of the step \"{}\" waits for approval", plan.step_id)
            }
            Self::GiveBack(taken) => format!("{} has the work, on the branch {}", taken.by, taken.branch),
        }
    }

    /// What a person does about it.
    pub fn remedy(&self, issue: &IssueKey) -> String {
        match self {
            Self::Answer { .. } => format!("agentd answer {issue} TEXT"),
            Self::Plan { .. } => format!("agentd approve {issue}, or agentd reject {issue} TEXT"),
            Self::GiveBack(_) => format!("agentd give-back {issue}, or the comment `/agentd give-back TEXT`"),
        }
    }

    /// By what its comments are found again: the kind, and which one of the issue's it is.
    pub fn key(&self) -> String {
        match self {
            Self::Answer { number, .. } => format!("question-{number}"),
            Self::Plan { number, .. } => format!("plan-{number}"),
            Self::GiveBack(_) => "taken".to_owned(),
        }
    }

    /// The stop detail of the run that ended for it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Answer { .. } => "question_pending",
            Self::Plan { .. } => "plan_pending",
            Self::GiveBack(_) => "taken",
        }
    }

    /// Why the issue does not run meanwhile, as `agentd why` names it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Answer { .. } | Self::Plan { .. } => "waits_for_answer",
            Self::GiveBack(_) => "waits_for_give_back",
        }
    }
}

/// A comment that tells people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PostedComment {
    /// Its id.
    pub id: u64,
    /// Its web address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// When it was written, by GitHub's clock.
    pub at: DateTime<Utc>,
}

/// What lets a parked issue go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ParkedAnswer {
    /// What the successor is told.
    pub text: String,
    /// Who: a login, `local:UID`, or `agentd` where nobody answered in time.
    pub by: String,
    /// What they may do in the repository; absent = it was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<ActorPermission>,
    /// When they said it.
    pub at: DateTime<Utc>,
    /// On a plan: what was decided. The text is the plan as it was approved, or why it was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanVerdict>,
}

/// How a parked issue ended to be one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    /// A run goes on with it.
    TakenUp(RunId),
    /// Nothing goes on: the code says why.
    Ended(String),
}

impl Parked {
    /// Work of this run that a person has. Nobody was told yet. `state`: the name of the state directory or cluster.
    pub fn taken(run_id: RunId, taken: Taken, since: DateTime<Utc>, state: String) -> Self {
        Self {
            run_id,
            waits_for: WaitsFor::GiveBack(Box::new(taken)),
            since,
            deadline: None,
            asked: None,
            comment: None,
            is_posted: false,
            shown_by: Some(state),
            // Whoever gives it back asks for the run, whatever the labels are.
            unlabelled: true,
            reminded: false,
            answer: None,
            over: None,
        }
    }
}

impl Parked {
    /// How somebody at this machine goes on with what is decided.
    pub fn goes_on_by(&self, issue: &IssueKey) -> String {
        match self.waits_for {
            WaitsFor::GiveBack(_) => format!("agentd give-back {issue}"),
            WaitsFor::Answer { .. } | WaitsFor::Plan { .. } => format!("agentd runs resume {}", self.run_id),
        }
    }
}

impl ParkedIssue {
    /// Who has the work, and the run it was taken from. Nothing starts, and agentd touches no file of the worktree.
    pub fn taken(&self) -> Option<(&Parked, &Taken)> {
        self.in_hands().filter(|(parked, _)| parked.answer.is_none())
    }

    /// The same where it was given back already, and no run has gone on with it.
    pub fn in_hands(&self) -> Option<(&Parked, &Taken)> {
        let parked = self.parked.as_ref().filter(|parked| parked.over.is_none())?;
        match &parked.waits_for {
            WaitsFor::GiveBack(taken) => Some((parked, taken)),
            WaitsFor::Answer { .. } | WaitsFor::Plan { .. } => None,
        }
    }

    /// [`ParkedIssue::taken`], where it can be changed.
    pub fn taken_mut(&mut self) -> Option<&mut Taken> {
        self.taken()?;
        self.in_hands_mut()
    }

    /// [`ParkedIssue::in_hands`], where it can be changed.
    pub fn in_hands_mut(&mut self) -> Option<&mut Taken> {
        self.in_hands()?;
        match &mut self.parked.as_mut()?.waits_for {
            WaitsFor::GiveBack(taken) => Some(taken),
            WaitsFor::Answer { .. } | WaitsFor::Plan { .. } => None,
        }
    }

    /// Which state directory or cluster the issue's status comment gives, as far as this one knows.
    pub fn shown_by(&self) -> Option<&str> {
        self.parked.as_ref()?.shown_by.as_deref()
    }

    /// For what the issue waits now.
    pub fn now(&self) -> Option<&Parked> {
        self.parked.as_ref().filter(|parked| {
            let is_told = parked.is_posted || matches!(parked.waits_for, WaitsFor::GiveBack(_));
            is_told && parked.over.is_none()
        })
    }
}
