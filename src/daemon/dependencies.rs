//! The dependencies of a daemon: the repositories, the limits, and what the command line provides.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::Notify;

use super::run_progress::Progress;
use super::snapshot::Limits;
use super::supervise::{
    Abandon, Approve, Approved, Beside, CleanUp, Deny, EndCalls, Extend, FindLeft, GiveBack, OthersRuns,
    Start, Take, TakeAsAsked, UnfinishedRun,
};
use crate::config::checks_file::ChecksTable;
use crate::config::conversation_file::ConversationTable;
use crate::config::plan_file::PlanTable;
use crate::config::questions_file::QuestionsTable;
use crate::config::settings::{Repository, Sweep};
use crate::domain::cluster::configuration::ConfigurationSaid;
use crate::domain::issue_state::LabelsTable;
use crate::domain::money::Money;
use crate::domain::name::RepoName;
use crate::domain::policy::ActorPermission;
use crate::github::Client;
use crate::store::run_dir::StateDir;
use crate::sys::clock::Clock;
use crate::sys::host::Host;
use crate::sys::shutdown::Shutdown;

/// Reads the configuration again and makes new dependencies from it, or says what is wrong with it. The command line
/// provides it.
pub type Reload = Arc<dyn Fn() -> BoxFuture<'static, Result<Dependencies, String>> + Send + Sync>;

/// A repository to be watched.
#[derive(Debug, Clone)]
pub struct Watched {
    /// Its name.
    pub name: RepoName,
    /// Whether issues wait for open blockers and sub-issues.
    pub depends: bool,
    /// Sweeps.
    pub sweep: Sweep,
    /// Where its worktrees are made, and the bytes that one takes; `None` = starts do not look at the disk.
    pub place: Option<(PathBuf, u64)>,
    /// What all runs of one issue may cost; `None` = there is no such cap.
    pub issue_cap: Option<Money>,
    /// What one run may cost, and all runs of a day; `None` = there is no such cap.
    pub run_caps: (Money, Option<Money>),
}

impl Watched {
    /// What the configuration says of a repository whose name is known.
    pub fn of(name: RepoName, entry: &Repository) -> Self {
        let (depends, sweep) = (entry.depends, entry.sweep.clone());
        Self { name, depends, sweep, place: None, issue_cap: None, run_caps: (Money::ZERO, None) }
    }
}

/// What a daemon is made of.
#[derive(Clone)]
pub struct Dependencies {
    /// GitHub.
    pub client: Client,
    /// What to watch.
    pub repositories: Vec<Watched>,
    /// Repositories that could not be opened yet, with the problem as public text.
    pub unopened: Vec<(RepoName, String)>,
    /// How everything is opened again for that; `None` = it is not tried again.
    pub open_again: Option<Reload>,
    /// Names of the labels.
    pub labels: LabelsTable,
    /// Who may trigger.
    pub min_permission: ActorPermission,
    /// Whose words count, and what starts follow-up runs.
    pub conversation: ConversationTable,
    /// Which failed checks start follow-up runs.
    pub checks: ChecksTable,
    /// What is said of the configuration, for other nodes.
    pub configuration: ConfigurationSaid,
    /// A text that goes to GitHub, without secrets; the command line provides it.
    pub conceal: Arc<dyn Fn(&str) -> String + Send + Sync>,
    /// Slots.
    pub limits: Limits,
    /// Time from one poll to the next.
    pub poll_interval: Duration,
    /// The state directory.
    pub state: StateDir,
    /// Time.
    pub clock: Clock,
    /// This process.
    pub host: Host,
    /// How it is told to stop.
    pub shutdown: Shutdown,
    /// Where runs say how far they are.
    pub progress: Progress,
    /// Address of the HTTP front, for the status.
    pub listen: Option<String>,
    /// How the configuration is read again, and what reports a change; `None` = it is not read again.
    pub reload: Option<(Reload, Arc<Notify>)>,
    /// How a run is made.
    pub start: Start,
    /// How a killed run is finalised that is not to be gone on with.
    pub abandon: Abandon,
    /// How a proposal is approved that a comment names.
    pub approve: Approve,
    /// How proposals that wait are decided against.
    pub deny: Deny,
    /// How they are ended with a pull request.
    pub end_calls: EndCalls,
    /// What becomes of questions.
    pub questions: QuestionsTable,
    /// What becomes of plans.
    pub plan: PlanTable,
    /// How an issue is given more money.
    pub extend: Extend,
    /// Which run of another process works on an issue.
    pub beside: Beside,
    /// How somebody takes the work on an issue over.
    pub take: Take,
    /// How what was asked of a run that ended otherwise is done.
    pub take_as_asked: TakeAsAsked,
    /// How work is given back.
    pub give_back: GiveBack,
    /// Whether a person approved what an issue waits for.
    pub approved: Approved,
    /// How merged worktrees are cleaned up in the background (I5); `None` = they are not.
    pub clean_up: Option<CleanUp>,
    /// Follow-up runs of one pull request; 0 = none.
    pub max_follow_ups: u32,
    /// In a cluster: how often it is looked who polls what.
    pub look_at_pollers: Option<Duration>,
    /// In a cluster: how long runs may take to the end of their visits when the daemon ends.
    pub drain_timeout: Duration,
    /// In a cluster: how far this node's clock may be off the store's.
    pub max_clock_skew: Option<Duration>,
    /// What dead processes left in a repository that this node begins to poll.
    pub find_left: FindLeft,
    /// How many runs others have under way.
    pub others_runs: OthersRuns,
    /// What the processes before this one left unfinished.
    pub unfinished: Vec<UnfinishedRun>,
}
