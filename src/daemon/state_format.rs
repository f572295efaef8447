//! What the daemon keeps over a restart: pauses, labels still to be written, sweeps, and the pages of unchanged lists.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::admission::Admission;
use super::pulls::Cause;
use crate::domain::head_check::CheckRerun;
use crate::domain::issue_state::IssueState;
use crate::domain::money::Money;
use crate::domain::name::RepoName;
use crate::domain::remark::RemarkId;
use crate::domain::run::{Principal, RunId};
use crate::domain::stop::StopDetail;
use crate::domain::text_revision::AskedHow;
use crate::github::{IssueSnapshot, PageCache, Pull};
use crate::issue::cut_off_runs::BegunBy;

/// Version of the file.
pub const SCHEMA: &str = "agentd.daemon_state.v1";

/// `<state>/daemon/state.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DaemonState {
    /// [`SCHEMA`].
    pub schema_version: String,
    /// By repository.
    #[serde(default)]
    pub repositories: BTreeMap<RepoName, RepositoryState>,
}

impl Default for DaemonState {
    fn default() -> Self {
        Self { schema_version: SCHEMA.to_owned(), repositories: BTreeMap::new() }
    }
}

impl DaemonState {
    /// What is remembered of a repository that the configuration names.
    pub(super) fn of(&self, repo: &RepoName) -> RepositoryState {
        let known = self.repositories.get(repo).cloned().unwrap_or_default();
        RepositoryState { left_at: None, ..known }
    }
}

impl RepositoryState {
    /// The same for a daemon that started then.
    pub(super) fn for_start(mut self, started_at: DateTime<Utc>) -> Self {
        self.pause.take_if(|pause| pause.ends_with_start(started_at));
        self
    }
}

/// One repository.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RepositoryState {
    /// The list of labelled issues as last seen.
    #[serde(default)]
    pub pages: PageCache,
    /// When the last sweep took its list; absent = never, counted from the daemon's first start.
    #[serde(default)]
    pub swept_at: Option<DateTime<Utc>>,
    /// The schedule and time zone that this time is judged by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep_schedule: Option<String>,
    /// What the last sweep listed and was not started yet; without bodies.
    #[serde(default)]
    pub sweeping: Vec<IssueSnapshot>,
    /// Why no run begins for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// The last end that may be of this host or its configuration and not of its issue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspicion: Option<Suspicion>,
    /// How many of these may still start; absent = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep_left: Option<u64>,
    /// Issues that are counted in that: a sweep begins to work on each once, however often their runs are gone on with.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub sweep_counted: BTreeSet<u64>,
    /// How far the repository's comments were read; absent = never, so that old commands are not followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comments: Option<CommentsRead>,
    /// The same for the comments of reviews.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review_comments: Option<CommentsRead>,
    /// When they were listened to first, by GitHub's clock; reviews that were sent before are not heard. Absent = not at all yet, or by
    /// a version that did not note it and heard all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listens_since: Option<DateTime<Utc>>,
    /// Issues whose inbox has something that is still to be made of it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub attend: BTreeSet<u64>,
    /// Answers to commands that GitHub has not taken yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owed: Vec<OwedAnswer>,
    /// In a cluster: runs that were cut off or stopped with their nodes and are still to be gone on with, by issue. Where the label is on,
    /// the list of issues tells as well.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cut_off: BTreeMap<u64, BegunBy>,
    /// Since when the configuration does not name it any more; absent = it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_at: Option<DateTime<Utc>>,
    /// By issue number; issues without anything to remember are not in it.
    #[serde(default)]
    pub issues: BTreeMap<u64, IssueMemory>,
}

/// One issue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct IssueMemory {
    /// A start failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_off: Option<BackOff>,
    /// A run ended and its labels are still to be written.
    #[serde(default, rename = "settling", skip_serializing_if = "Option::is_none")]
    pub pending_outcome: Option<PendingOutcome>,
    /// Who asked for the next run by a comment; the label was put on by agentd itself then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<AskedBy>,
    /// Who asked for the run under way; absent = the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<AskedBy>,
    /// The labelling that the run under way answers; one that comes later is not the end's to take off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<u64>,
    /// Its pull request, as long as it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<u64>,
    /// When its pull request had last changed when its reviews were read last, as GitHub writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviews_read: Option<String>,
    /// The base branch that its pull request had when it was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Its pull request that was closed last without a merge: it may be opened again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<ClosedPull>,
    /// What follow-up runs of its pull request answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub followed: Option<Followed>,
    /// What is known of the checks of its pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<ChecksMemory>,
    /// A person is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<ParkedLabel>,
    /// Its last run ended because its money was used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_money: Option<OutOfMoney>,
    /// A person has its work, or asked its run for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
    /// The run that the next one goes on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<RunId>,
    /// Its last run, whose end its status comment does not say yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untold: Option<UntoldRun>,
    /// Its last run met what would meet every run, and is gone on with after a pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goes_on: Option<GoesOn>,
}

/// What the runs of a repository wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PauseCause {
    /// The next day (UTC), and its money.
    Day,
    /// A model that answers.
    Model,
    /// A remote and a GitHub that take what is done.
    Remote,
    /// A state directory that can be read and written.
    State,
    /// A host and a configuration with which a run can begin.
    Host,
}

/// An end that may be of the host or its configuration: an agent that cannot be loaded, a server that does not start, a set-up that fails. Where
/// the next issue ends so, too, it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Suspicion {
    /// The issue that met it.
    pub issue: u64,
    /// Its stop detail.
    pub detail: StopDetail,
    /// What it said, without what differs from issue to issue.
    pub text: String,
}

/// Why no run of a repository begins before a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Pause {
    /// What is waited for.
    pub cause: PauseCause,
    /// Until then.
    pub until: DateTime<Utc>,
    /// How the run ended that met it, for people.
    pub text: String,
    /// Pauses of this cause in a row.
    pub times: u32,
}

/// A run that is gone on with by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GoesOn {
    /// The run.
    pub run_id: RunId,
    /// Not before this time.
    pub at: DateTime<Utc>,
    /// For whom it is gone on with; absent = for the sweep that began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<AskedBy>,
    /// Runs of it that ended so.
    pub tries: u32,
    /// Whether the next one is asked for.
    #[serde(default)]
    pub is_queued: bool,
}

/// An answer that is still to be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct OwedAnswer {
    /// The issue or pull request that it is told on.
    pub on: u64,
    /// The first line of its comment.
    pub marker: String,
    /// The rest.
    pub text: String,
}

/// A run that a cap of money ended: it is gone on with once somebody gives the issue more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct OutOfMoney {
    /// The run.
    pub run_id: RunId,
    /// What people had given the issue, as far as the run knew.
    pub given: Money,
    /// For whom it is gone on with.
    pub by: AskedBy,
}

/// See [`RepositoryState::comments`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CommentsRead {
    /// Asked for from this time on.
    pub since: DateTime<Utc>,
    /// The newest one when the list was first looked at; ids grow, and what is older is not heard.
    pub last_id: u64,
    /// Tag of the list as last read with this `since`.
    #[serde(default)]
    pub etag: Option<String>,
}

/// A pull request that was closed without a merge, which made its issue's label say failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClosedPull {
    /// Its number.
    pub pull: u64,
    /// When that was seen.
    pub at: DateTime<Utc>,
    /// What the issue's labels said before; absent = that is not known yet, or they said nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<IssueState>,
    /// What a person was needed for then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<ParkedLabel>,
}

/// A repository that comes back into the configuration within this time is gone on with as it was left; later it is a new one, as what
/// people wrote meanwhile may mean nothing any more.
const REMEMBERED: TimeDelta = TimeDelta::days(14);

impl RepositoryState {
    /// What is kept of it while the configuration does not name it; `None` = nothing any more.
    pub(super) fn left(&self, now: DateTime<Utc>) -> Option<Self> {
        let since = self.left_at.unwrap_or(now);
        let kept = || Self {
            pages: PageCache::default(),
            sweeping: Vec::new(),
            left_at: Some(since),
            ..self.clone()
        };
        (now - since < REMEMBERED).then(kept)
    }
}

impl ClosedPull {
    /// One that is seen closed. What its follow-up run asked people ended with it, and is never waited for again: the labels then
    /// say of the work what they said before that.
    pub fn new(pull: u64, at: DateTime<Utc>, parked: Option<ParkedLabel>) -> Self {
        let ended = parked.as_ref().is_some_and(ParkedLabel::asks_people);
        let before = ended.then_some(IssueState::Done);
        Self { pull, at, before, parked: parked.filter(|_| !ended) }
    }
}

/// Follow-up runs of one pull request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Followed {
    /// Of the checks and conflicts that were answered last: the same again starts nothing.
    pub fingerprint: String,
    /// Runs for checks and conflicts since a trusted person last wrote.
    pub rounds: u32,
    /// Runs that bots started since a trusted person last wrote.
    #[serde(default)]
    pub bots: u32,
    /// All runs of its pull request.
    #[serde(default)]
    pub all: u32,
    /// The start of its newest follow-up run, until there is that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried: Option<TriedRound>,
    /// Why a person was asked to go on instead of a further run; it is said once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<String>,
    /// Tells the words in which that was said from others, which are said again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back_words: Option<String>,
}

/// The start of a follow-up run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TriedRound {
    /// The newest remark that counted; absent = checks or a conflict asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<RemarkId>,
    /// The commit of the pull request.
    pub head: String,
    /// Whether it was refused: it is not tried again as long as both are the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_refused: bool,
    /// Runs of it that failed before their first visit.
    #[serde(default)]
    pub failures: u32,
    /// Not before this time, after such a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_at: Option<DateTime<Utc>>,
}

/// What is remembered of the checks of one pull request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct ChecksMemory {
    /// The commit that all but `mended` and `reruns` is about.
    pub head: String,
    /// When one was first seen to have failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<DateTime<Utc>>,
    /// Checks whose jobs were run again.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub rerun: BTreeSet<String>,
    /// Failed checks that a run was started with.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub answered: BTreeSet<String>,
    /// A person stopped the run that was to begin for what failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_refused: bool,
    /// The commit that `mended` is about.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mended_head: String,
    /// What the last follow-up run was to mend: the checks, with what was wrong.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mended: BTreeMap<String, String>,
    /// Failed jobs that were run again; the next run records them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reruns: Vec<CheckRerun>,
}

/// Who asked for a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AskedBy {
    /// Login.
    pub login: String,
    /// Database id.
    pub id: u64,
    /// When, by GitHub's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<DateTime<Utc>>,
    /// How.
    #[serde(default = "by_comment")]
    pub how: AskedHow,
}

impl AskedBy {
    /// For whom their runs work.
    pub fn principal(&self) -> Principal {
        Admission::principal_of(&self.login, self.id)
    }
}

fn by_comment() -> AskedHow {
    AskedHow::Comment
}

impl IssueMemory {
    /// Whether the daemon goes on by itself where the run that it made, or makes, for a principal ends because a call waits for an approval.
    /// What somebody else's run asked for is approved for that one.
    pub fn goes_on_when_approved(&self, whose: Uuid) -> bool {
        let parked = self.parked.as_ref().and_then(|parked| parked.requester.as_ref());
        parked.or(self.requester.as_ref()).is_some_and(|by| by.principal().id == whose)
    }

    /// Whoever asked for a run whose call may wait for an approval; for them it is gone on with once it is approved. Where the process died
    /// behind the run's end, nothing says yet how it ended.
    pub fn waits_for_approval(&self) -> Option<&AskedBy> {
        let by = self.parked.as_ref().map_or(self.requester.as_ref(), |parked| parked.requester.as_ref());
        by.filter(|_| self.pending_outcome.is_none())
    }

    /// Nothing goes on with it by itself once it is approved.
    pub fn wait_no_more(&mut self) {
        self.requester = None;
        if let Some(parked) = &mut self.parked {
            parked.requester = None;
        }
    }

    /// Whether its labels are about to say that it failed.
    pub fn is_to_fail(&self) -> bool {
        self.pending_outcome.as_ref().is_some_and(|pending| pending.state == IssueState::Failed)
    }

    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// When an issue may be tried again, and why it has to wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BackOff {
    /// Failed starts in a row.
    pub attempts: u32,
    /// Not before.
    pub until: DateTime<Utc>,
    /// The last failure; public.
    pub why: String,
    /// Not a failure: somebody else works on the issue and writes its labels.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
}

/// Labels (and a word to people) still to be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PendingOutcome {
    /// The end.
    pub state: IssueState,
    /// Public text of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The labelling that it answers; `None` = whoever put the trigger on, it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<u64>,
    /// The run that could not write its labels, and perhaps not its comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<UntoldRun>,
    /// Why GitHub did not take it the last time; public text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A run whose end GitHub did not take from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct UntoldRun {
    /// Which.
    pub run_id: RunId,
    /// How it ended, as public text.
    pub message: String,
    /// Web address of its pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<String>,
}

/// An issue that a person has to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ParkedLabel {
    /// Reason code, or stop detail.
    pub code: String,
    /// Public text.
    pub text: String,
    /// Since when.
    pub at: DateTime<Utc>,
    /// Where a call waits for an approval: who asked for the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<AskedBy>,
}

impl ParkedLabel {
    /// Whether the issue is a person's until that person says so: no run starts for what others write meanwhile.
    pub fn waits_for_person(&self) -> bool {
        StopDetail::ALL.iter().any(|detail| detail.parks() && detail.as_str() == self.code)
    }

    /// Whether a run asked people something: a question, a plan, or a call to be approved.
    fn asks_people(&self) -> bool {
        let asks = [StopDetail::QuestionPending, StopDetail::PlanPending, StopDetail::ApprovalPending];
        asks.iter().any(|detail| detail.as_str() == self.code)
    }
}

/// Before a start is tried again that led to a run which failed before its first visit.
const PAUSES: [TimeDelta; 3] = [TimeDelta::minutes(1), TimeDelta::minutes(5), TimeDelta::minutes(25)];

/// How often a follow-up run is begun for the same words while no model answers.
const MOST_UNANSWERED: u32 = 8;

impl TriedRound {
    /// A start for a pull request as it is.
    pub(super) fn of(remark: Option<RemarkId>, pull: &Pull) -> Self {
        Self { remark, head: pull.head_sha.clone(), is_refused: false, failures: 0, again_at: None }
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.remark, &self.head) == (&other.remark, &other.head)
    }
}

impl Followed {
    /// One more run, started by this.
    pub(super) fn count(&mut self, cause: Cause) {
        self.all += 1;
        match cause {
            Cause::Checks => self.rounds += 1,
            Cause::Bot => self.bots += 1,
            Cause::Person => {}
        }
    }

    /// Whether the same start was refused, so that people have to do something first, or waits for its next try.
    pub(super) fn is_refused_for(&self, again: &TriedRound, now: DateTime<Utc>) -> bool {
        self.tried.as_ref().is_some_and(|tried| {
            tried.is_same(again) && (tried.is_refused || tried.again_at.is_some_and(|at| at > now))
        })
    }

    /// One more start.
    pub(super) fn begin(&mut self, start: &TriedRound) {
        let failures =
            self.tried.as_ref().filter(|tried| tried.is_same(start)).map_or(0, |tried| tried.failures);
        self.tried = Some(TriedRound { failures, ..start.clone() });
    }

    /// A start that is not made: the same again starts nothing.
    pub(super) fn refuse(&mut self, fingerprint: String, start: TriedRound) {
        self.fingerprint = fingerprint;
        self.tried = Some(TriedRound { is_refused: true, ..start });
    }

    /// The newest start led to a run that failed before anybody worked: it does not count. What failed may be there again after a
    /// while (a registry, a disk); after some tries people have to do something first.
    pub(super) fn failed_before_work(&mut self, now: DateTime<Utc>) {
        let Some(tried) = &mut self.tried else { return };
        let pause = PAUSES.get(usize::try_from(tried.failures).unwrap_or(usize::MAX));
        tried.failures = tried.failures.saturating_add(1);
        tried.is_refused = pause.is_none();
        tried.again_at = pause.map(|pause| now + *pause);
        self.take_back();
    }

    /// In the run of the newest start no model answered: it does not count, and is made again when the runs of the repository go on.
    /// False = it was no follow-up run.
    pub(super) fn was_unanswered(&mut self) -> bool {
        let Some(tried) = &mut self.tried else { return false };
        tried.failures = tried.failures.saturating_add(1);
        tried.is_refused = tried.failures >= MOST_UNANSWERED;
        self.take_back();
        true
    }

    /// What became of the newest start: without a run it does not count, and one that was refused waits for something new.
    pub(super) fn started(&mut self, is_made: bool, is_refused: bool) {
        match &mut self.tried {
            Some(tried) if !tried.is_refused && !is_made => {
                tried.is_refused = is_refused;
                self.take_back();
            }
            Some(_) if is_made => self.tried = None,
            Some(_) | None => {}
        }
    }

    /// The run was not made, or not to its end: whatever had started it, nobody is the worse for one more.
    pub(super) fn take_back(&mut self) {
        self.rounds = self.rounds.saturating_sub(1);
        self.bots = self.bots.saturating_sub(1);
        self.all = self.all.saturating_sub(1);
    }
}
