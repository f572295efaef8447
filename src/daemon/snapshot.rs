//! The snapshot that the scheduler decides from, as plain values.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::admission::Admission;
use super::disk_room::DiskRoom;
use super::state_format::{BackOff, GoesOn, ParkedLabel, Pause, PauseCause, PendingOutcome};
use crate::config::settings::Daemon;
use crate::conversation::parked::parked_format::Parked as ParkedNow;
use crate::domain::issue::IssueKey;
use crate::domain::issue_state::LabelsTable;
use crate::domain::money::Money;
use crate::domain::name::RepoName;
use crate::domain::policy::ActorPermission;
use crate::domain::stop::Stop;
use crate::github::Dependency;

/// An issue of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IssueRef {
    /// Where it lives.
    pub repo: RepoName,
    /// Its number.
    pub number: u64,
}

impl std::fmt::Display for IssueRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}#{}", self.repo, self.number)
    }
}

/// What is and what is allowed: the scheduler's whole input.
#[derive(Debug, Clone)]
pub struct SchedulerSnapshot {
    /// Every issue that something asks for.
    pub candidates: Vec<Facts>,
    /// What runs here.
    pub running: Vec<Running>,
    /// How many runs other processes have under way, where it was looked.
    pub others: BTreeMap<RepoName, usize>,
    /// The slots.
    pub limits: Limits,
    /// Whether the daemon begins runs.
    pub daemon: Presence,
}

/// Whether the daemon starts runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It does.
    Works,
    /// It was told to stop.
    Stopping,
    /// In a cluster: it ends, and gives what it has to others.
    Draining,
    /// Its clock is so many seconds off the store's, and it begins nothing.
    ClockSkew(i64),
    /// It does not know the schema that the cluster has in force, and begins nothing.
    SchemaUnknown(u32),
    /// The cluster's store is full, and it begins nothing.
    StoreFull,
    /// There is none.
    Absent,
    /// In a cluster: there are some that have the repository, and none polls it.
    NoPoller,
    /// In a cluster: no node that has the repository lives; whether others do.
    NoNode {
        /// Some do.
        others: bool,
    },
}

/// Slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Runs at a time.
    pub all: usize,
    /// Runs at a time in one repository.
    pub per_repository: usize,
    /// In a cluster: the cap on the runs of all its nodes, where `all` is what that one leaves.
    pub cluster: Option<usize>,
}

impl From<&Daemon> for Limits {
    fn from(daemon: &Daemon) -> Self {
        let slots = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        Self {
            all: slots(daemon.max_concurrent_runs),
            per_repository: slots(daemon.max_runs_per_repository),
            cluster: None,
        }
    }
}

/// A run of this daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Its issue.
    pub issue: IssueRef,
    /// Why it should stop: the issue was closed or the label was removed. This is read again and never guessed (S41).
    pub gone: Option<Stop>,
}

/// A fact that costs requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup<T> {
    /// Not asked yet; the scheduler says when it has to be.
    NotYet,
    /// Asked in vain; public text.
    Failed(String),
    /// Known.
    Known(T),
}

/// How the last poll of the repository went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Poll {
    /// The list is of now.
    Fresh,
    /// No daemon that works has asked for it yet.
    Never,
    /// It failed; what is known of issues is old. Public text (I50).
    Failed(String),
}

/// What the issue itself is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// There is no such issue, or it cannot be seen.
    Missing,
    /// The number is a pull request's.
    PullRequest,
    /// GitHub could not be read, and why.
    Unreadable(String),
    /// An issue.
    Issue {
        /// Open or closed.
        open: bool,
        /// Label names.
        labels: Vec<String>,
        /// When it was opened.
        created_at: Option<DateTime<Utc>>,
        /// 1 (first) to 4; `None` = after those.
        priority: Option<u8>,
    },
}

/// What asks for the issue to be worked on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// The trigger label.
    Trigger,
    /// A sweep that lists it.
    Sweep,
    /// A killed run that has to be brought to its end.
    Recovery,
}

/// Who works on the issue already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkedOnBy {
    /// A run of this daemon.
    Here,
    /// Somebody else, in words: instance, host, process, since.
    Elsewhere(String),
}

/// For what a parked issue waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitsForPerson {
    /// The reason's code.
    pub code: &'static str,
    /// In words.
    pub what: String,
    /// What they do about it.
    pub remedy: String,
    /// Where people were told.
    pub url: Option<String>,
}

impl WaitsForPerson {
    /// What is kept of a parked issue, for its facts.
    pub fn of(parked: &ParkedNow, issue: &IssueKey) -> Self {
        let url = parked.comment.as_ref().and_then(|comment| comment.url.clone());
        let waits_for = &parked.waits_for;
        Self { code: waits_for.reason(), what: waits_for.told(), remedy: waits_for.remedy(issue), url }
    }
}

/// All that is known of one issue when it is asked whether to start it.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// Which.
    pub issue: IssueRef,
    /// Its repository's list.
    pub poll: Poll,
    /// What it is.
    pub seen: Seen,
    /// What asks for it.
    pub selection: Selection,
    /// Names of the labels.
    pub labels: LabelsTable,
    /// An end that is still to be written to the issue.
    pub pending_outcome: Option<PendingOutcome>,
    /// Who works on it.
    pub holder: Option<WorkedOnBy>,
    /// Who asks, and what they may (D7).
    pub admission: Lookup<Admission>,
    /// What they have to be allowed at least.
    pub min_permission: ActorPermission,
    /// The open issues that it waits for; empty if the repository has `depends = false`.
    pub dependencies: Lookup<Vec<Dependency>>,
    /// When a start that failed may be tried again.
    pub back_off: Option<BackOff>,
    /// Its last run, where that is gone on with by itself.
    pub goes_on: Option<GoesOn>,
    /// Whether a node with the definition of its run is waited for.
    pub waits_for_definition: bool,
    /// What a person had to look at last.
    pub parked: Option<ParkedLabel>,
    /// What a person has to do before anything goes on.
    pub waits_for: Option<WaitsForPerson>,
    /// Whether its pull request asks for the run.
    pub is_round: bool,
    /// What is spent of the issue's budget and how much that is, where it is used up.
    pub money_used_up: Option<(Money, Money)>,
    /// How the money of the day stands, in words; `None` = not looked at, or without a cap.
    pub day_money: Option<String>,
    /// Why no run of its repository begins now.
    pub pause: Option<Pause>,
    /// The room for another run; `None` = not looked at.
    pub disk: Option<DiskRoom>,
    /// The time at which it is asked.
    pub now: DateTime<Utc>,
}

impl Facts {
    /// What holds back every run that asks a model. What a killed run left is brought to its end without one.
    pub(super) fn paused_by(&self, cause: PauseCause) -> Option<&Pause> {
        let asks = self.selection != Selection::Recovery || self.is_round;
        self.pause.as_ref().filter(|pause| asks && pause.cause == cause && pause.holds(self.now))
    }

    /// Whether the issue carries a label.
    pub(super) fn has_label(&self, name: &str) -> bool {
        match &self.seen {
            Seen::Issue { labels, .. } => {
                labels.iter().any(|label| label.trim().eq_ignore_ascii_case(name.trim()))
            }
            _ => false,
        }
    }

    /// Priority first, then the oldest, then the lowest number (S35).
    pub(super) fn rank(&self) -> (u8, DateTime<Utc>, u64) {
        let (priority, created_at) = match &self.seen {
            Seen::Issue { priority, created_at, .. } => (*priority, *created_at),
            _ => (None, None),
        };
        (priority.unwrap_or(u8::MAX), created_at.unwrap_or(DateTime::<Utc>::MAX_UTC), self.issue.number)
    }
}

/// The priority that an issue's labels (`priority:1`, `P1`) or its field "Priority" give it: 1 to 4.
pub(super) fn priority_of(labels: &[String], fields: Option<&[crate::github::FieldValue]>) -> Option<u8> {
    let by_label = labels.iter().filter_map(|label| {
        let label = label.trim().to_ascii_lowercase();
        let digits = label.strip_prefix("priority:").or_else(|| label.strip_prefix('p'))?;
        digits.trim().parse::<u8>().ok().filter(|level| (1..=4).contains(level))
    });
    let by_field =
        fields.unwrap_or_default().iter().filter(|field| field.name.eq_ignore_ascii_case("priority"));
    let by_field = by_field.filter_map(|field| match field.value.trim().to_ascii_lowercase().as_str() {
        "urgent" => Some(1),
        "high" => Some(2),
        "medium" => Some(3),
        "low" => Some(4),
        _ => None,
    });
    by_label.chain(by_field).min()
}
