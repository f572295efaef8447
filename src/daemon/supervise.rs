//! Supervision: one task for each run. A panic stays in its task; one handle stops it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::cluster::assignment_format::{AssignmentAsked, AssignmentRequest};
use super::outcome::RunSummary;
use super::snapshot::IssueRef;
use crate::conversation::parked::parked_format::{GivingBack, HandOverRequest};
use crate::domain::head_check::CheckRerun;
use crate::domain::issue::ObjectiveSource;
use crate::domain::money::Money;
use crate::domain::name::RepoName;
use crate::domain::other_definition::OtherDefinition;
use crate::domain::policy::ActorPermission;
use crate::domain::refusal::Refusal;
use crate::domain::remark::Remark;
use crate::domain::run::{Principal, RunId};
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::taken::TakenOver;
use crate::engine::shared_cap_format::Extension;
use crate::issue::approval::NewApproval;
use crate::issue::cut_off_runs::BegunBy;
use crate::issue::reference::Asked;
use crate::issue::spending::Stands;
use crate::issue::unwanted;
use crate::lifecycle::beside::BesideRequest;
use crate::lifecycle::extender::Extender;
use crate::lifecycle::give_back::GaveBack;
use crate::lifecycle::taken::Took;
use crate::sys::shutdown::Shutdown;

/// Starts a run. The command line provides it.
pub type Start = Arc<dyn Fn(StartRequest) -> BoxFuture<'static, RunSummary> + Send + Sync>;

/// Finishes the killed run of an issue that is not continued; false = there is none. The command line provides it.
pub type Abandon = Arc<dyn Fn(IssueRef) -> BoxFuture<'static, bool> + Send + Sync>;

/// Approves a proposal of an issue's newest run. Gives the answer for people, and whether it was approved. The command
/// line provides it.
pub type Approve =
    Arc<dyn Fn(IssueRef, NewApproval) -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// Decides against what an issue's newest run left to a person. Gives that for people, `None` where nothing waited. The command line
/// provides it.
pub type Deny =
    Arc<dyn Fn(IssueRef, Principal) -> BoxFuture<'static, Result<Option<String>, String>> + Send + Sync>;

/// Ends what a follow-up run left to a person, since its pull request is over. Gives the run, `None` where nothing waited. The command line
/// provides it.
pub type EndCalls = Arc<dyn Fn(IssueRef) -> BoxFuture<'static, Result<Option<RunId>, String>> + Send + Sync>;

/// Gives an issue more money. Gives what it may cost then, or why nothing was changed, both for people. The command line
/// provides it.
pub type Extend = Arc<dyn Fn(IssueRef, Gift) -> BoxFuture<'static, Result<MoneyGiven, String>> + Send + Sync>;

/// The run of another process that works on an issue, which may be asked to end. The command line provides it.
pub type Beside =
    Arc<dyn Fn(IssueRef, BesideRequest) -> BoxFuture<'static, Result<Option<RunId>, Refusal>> + Send + Sync>;

/// Takes the work on an issue over for somebody, or asks its run. The command line provides it.
pub type Take = Arc<dyn Fn(IssueRef, TakenOver) -> BoxFuture<'static, Result<Took, Refusal>> + Send + Sync>;

/// Does what was asked of a run that ended otherwise; `None` = there is nothing to do. The command line provides it.
pub type TakeAsAsked =
    Arc<dyn Fn(IssueRef, HandOverRequest) -> BoxFuture<'static, Result<Option<Took>, Refusal>> + Send + Sync>;

/// Gives the work on an issue back. The command line provides it.
pub type GiveBack =
    Arc<dyn Fn(IssueRef, GivingBack) -> BoxFuture<'static, Result<GaveBack, Refusal>> + Send + Sync>;

/// Money for an issue.
#[derive(Debug, Clone)]
pub struct Gift {
    /// What asks for it, such as a comment: it is given once for each.
    pub asked: String,
    /// Who gives, and how much.
    pub extension: Extension,
}

/// What became of a gift.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoneyGiven {
    /// How the issue's money stands now.
    pub stands: Stands,
    /// The newest run of the issue, if a cap of money ended it, and what people had given when it ran.
    pub ended: Option<(RunId, Money)>,
}

/// Whether something that an issue's newest run left to a person is approved. The command line provides it.
pub type Approved = Arc<dyn Fn(IssueRef, Uuid) -> BoxFuture<'static, Option<bool>> + Send + Sync>;

/// Cleans up the worktrees of every repository whose work is merged and whose retention is over, and fills the pools. The command line
/// provides it.
pub type CleanUp = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// How many runs other processes have under way in a repository. The command line provides it.
pub type OthersRuns = Arc<dyn Fn(RepoName) -> BoxFuture<'static, usize> + Send + Sync>;

/// What dead processes left in a repository. The command line provides it.
pub type FindLeft = Arc<dyn Fn(RepoName) -> BoxFuture<'static, Vec<UnfinishedRun>> + Send + Sync>;

/// A run of an earlier daemon that it did not bring to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedRun {
    /// Its issue.
    pub issue: IssueRef,
    /// What people want, according to the trigger label.
    pub begun: BegunBy,
}

/// A run to be made.
#[derive(Debug, Clone)]
pub struct StartRequest {
    /// The issue.
    pub issue: IssueRef,
    /// Its title, as read just now.
    pub title: String,
    /// What became of its pull request, fenced; `None` = it is no follow-up.
    pub follow_up: Option<String>,
    /// What people wrote that it is about.
    pub remarks: Vec<Remark>,
    /// Failed jobs that were run again before, for the record.
    pub check_reruns: Vec<CheckRerun>,
    /// Whether its branch conflicts with the origin branch and takes it in.
    pub catches_up: bool,
    /// Whether a run that was cut off is only to be brought to its end.
    pub completes: bool,
    /// What becomes of it where what it would go on with is of another definition.
    pub other_definition: OtherDefinition,
    /// What asks for it.
    pub source: ObjectiveSource,
    /// On whose behalf.
    pub principal: Principal,
    /// What they may in the repository.
    pub permission: ActorPermission,
    /// How and when they asked.
    pub asked: Asked,
    /// The labelling that it answers; `None` = no labelling asks for it.
    pub answers: Option<u64>,
    /// The run that it goes on with.
    pub resume: Option<RunId>,
    /// How it is told to stop.
    pub control: RunHandle,
}

impl StartRequest {
    /// How the run is begun, as who finds it cut off has to know. `unlabelled`: the trigger label does not ask for it.
    pub fn begun(&self, unlabelled: bool) -> BegunBy {
        match () {
            () if !unlabelled => BegunBy::Labelled,
            () if self.completes => BegunBy::WritingLabels,
            () if self.follow_up.is_some() => BegunBy::FollowUp,
            () if self.source == ObjectiveSource::Sweep => BegunBy::Swept,
            () => BegunBy::GoesOn,
        }
    }

    /// The request as it is given to another node.
    pub fn assigned(&self, unlabelled: bool) -> AssignmentRequest {
        let Asked { by, how, at } = self.asked.clone();
        AssignmentRequest {
            repo: self.issue.repo.clone(),
            issue: self.issue.number,
            title: self.title.clone(),
            unlabelled,
            follow_up: self.follow_up.clone(),
            remarks: self.remarks.clone(),
            check_reruns: self.check_reruns.clone(),
            catches_up: self.catches_up,
            completes: self.completes,
            other_definition: self.other_definition,
            source: self.source,
            principal: self.principal.clone(),
            permission: self.permission,
            asked: AssignmentAsked { by, how, at },
            answers: self.answers,
            resume: self.resume,
        }
    }

    /// A request of another node, with a handle of this daemon.
    pub fn of_assigned(request: AssignmentRequest, control: RunHandle) -> Self {
        let AssignmentAsked { by, how, at } = request.asked;
        Self {
            issue: IssueRef { repo: request.repo, number: request.issue },
            title: request.title,
            follow_up: request.follow_up,
            remarks: request.remarks,
            check_reruns: request.check_reruns,
            catches_up: request.catches_up,
            completes: request.completes,
            other_definition: request.other_definition,
            source: request.source,
            principal: request.principal,
            permission: request.permission,
            asked: Asked { by, how, at },
            answers: request.answers,
            resume: request.resume,
            control,
        }
    }
}

/// What the daemon can do to a run: tell it to stop, by the two levels of [`Shutdown`], and why; and give it more.
#[derive(Debug, Clone)]
pub struct RunHandle {
    /// Stop and abort; hears the daemon's own.
    pub shutdown: Shutdown,
    /// Gives the run more.
    pub extender: Extender,
    why: Arc<OnceLock<Stop>>,
    elsewhere: Arc<Mutex<Option<Elsewhere>>>,
    /// In a cluster: what the run was started with, for another node that polls its repository later.
    request: Arc<OnceLock<AssignmentRequest>>,
    /// The label that asked for it, whatever the configuration names later.
    trigger: Arc<OnceLock<String>>,
}

/// Another node that a run works on.
#[derive(Debug)]
struct Elsewhere {
    node: String,
    extends: mpsc::UnboundedSender<String>,
    /// Whether that one works on it.
    is_taken: bool,
    /// It is followed here no more.
    left: CancellationToken,
}

impl RunHandle {
    /// A handle below the daemon's.
    pub fn below(parent: &Shutdown) -> Self {
        Self {
            shutdown: parent.child(),
            extender: Extender::default(),
            why: Arc::default(),
            elsewhere: Arc::default(),
            request: Arc::default(),
            trigger: Arc::default(),
        }
    }

    /// Remembers the trigger label of the configuration that the run began with.
    pub(super) fn asked_by_label(&self, trigger: &str) {
        let _ = self.trigger.set(trigger.to_owned());
    }

    /// The trigger label of the configuration that the run began with; `None` = another node knows.
    pub(super) fn trigger(&self) -> Option<&str> {
        self.trigger.get().map(String::as_str)
    }

    /// The run is given to another node. Gives who wants it to have more, and what says that it is followed here no more.
    pub(super) fn works_on(&self, node: &str) -> (mpsc::UnboundedReceiver<String>, CancellationToken) {
        let ((extends, asked), left) = (mpsc::unbounded_channel(), CancellationToken::new());
        let place = Elsewhere { node: node.to_owned(), extends, is_taken: false, left: left.clone() };
        *self.place() = Some(place);
        (asked, left)
    }

    /// The node that it was given to works on it.
    pub(super) fn is_taken(&self) {
        if let Some(place) = &mut *self.place() {
            place.is_taken = true;
        }
    }

    /// Whether nobody has the run yet that was given to another node.
    pub(super) fn is_under_way(&self) -> bool {
        self.place().as_ref().is_some_and(|place| !place.is_taken)
    }

    /// The run on another node is not followed here any more. False: it works here.
    pub(super) fn leave(&self) -> bool {
        let place = self.place();
        place.as_ref().inspect(|place| place.left.cancel()).is_some()
    }

    /// Remembers what the run was started with.
    pub(super) fn started_with(&self, request: AssignmentRequest) {
        let _ = self.request.set(request);
    }

    /// What the run was started with, in a cluster.
    pub(super) fn request(&self) -> Option<&AssignmentRequest> {
        self.request.get()
    }

    /// The run works on this node.
    pub(super) fn works_here(&self) {
        *self.place() = None;
    }

    /// The other node that the run works on.
    pub fn node(&self) -> Option<String> {
        self.place().as_ref().map(|place| place.node.clone())
    }

    /// Asks the other node that the run works on for more of each budget; gives its name. `None` = it works on this one.
    pub(super) fn extend_elsewhere(&self, by: &str) -> Option<String> {
        let place = self.place();
        let place = place.as_ref()?;
        place.extends.send(by.to_owned()).ok().map(|()| place.node.clone())
    }

    fn place(&self) -> MutexGuard<'_, Option<Elsewhere>> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the run for one last report; the first reason stays.
    pub fn stop(&self, why: Stop) {
        let _ = self.why.set(why);
        self.shutdown.request_stop();
    }

    /// Why it was told to stop; [`StopDetail::Shutdown`] where nobody gave another reason.
    pub fn why(&self) -> Stop {
        let stopped = || unwanted::of(StopDetail::Shutdown);
        self.why.get().cloned().unwrap_or_else(stopped)
    }
}

/// The runs of this process.
#[derive(Debug)]
pub(super) struct Supervisor {
    tasks: JoinSet<RunSummary>,
    runs: BTreeMap<IssueRef, Live>,
    ids: Vec<(Id, IssueRef)>,
}

#[derive(Debug)]
pub(super) struct Live {
    pub control: RunHandle,
    pub since: DateTime<Utc>,
    /// What people want, according to the trigger label.
    pub begun: BegunBy,
    /// Tag of the issue as last read, for those in no list.
    pub etag: Option<String>,
}

impl Live {
    /// Started without the trigger label: by a sweep, or to end what a killed run had begun.
    pub fn unlabelled(&self) -> bool {
        self.begun != BegunBy::Labelled
    }
}

impl Supervisor {
    pub fn new() -> Self {
        Self { tasks: JoinSet::new(), runs: BTreeMap::new(), ids: Vec::new() }
    }

    pub fn spawn(
        &mut self,
        issue: IssueRef,
        control: RunHandle,
        since: DateTime<Utc>,
        begun: BegunBy,
        run: impl Future<Output = RunSummary> + Send + 'static,
    ) {
        let handle = self.tasks.spawn(run);
        self.ids.push((handle.id(), issue.clone()));
        self.runs.insert(issue, Live { control, since, begun, etag: None });
    }

    pub fn runs(&self) -> impl Iterator<Item = (&IssueRef, &Live)> {
        self.runs.iter()
    }

    pub fn runs_mut(&mut self) -> impl Iterator<Item = (&IssueRef, &mut Live)> {
        self.runs.iter_mut()
    }

    pub fn issues(&self) -> Vec<IssueRef> {
        self.runs.keys().cloned().collect()
    }

    pub fn get(&self, issue: &IssueRef) -> Option<&Live> {
        self.runs.get(issue)
    }

    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The next run that ends; never, while nothing runs. A panic is a run that ended with a defect of agentd.
    pub async fn ended(&mut self) -> (IssueRef, Live, RunSummary) {
        loop {
            let Some(joined) = self.tasks.join_next_with_id().await else {
                std::future::pending::<()>().await;
                continue;
            };
            let (id, summary) = match joined {
                Ok((id, summary)) => (id, summary),
                // It was not waited for any longer: the next start goes on with it, as after a kill.
                Err(error) if error.is_cancelled() => {
                    tracing::warn!("a run did not end in time; the next start goes on with it");
                    let stop = Stop::new(StopDetail::Shutdown, "The run was not waited for any longer.");
                    (error.id(), stop.into())
                }
                Err(error) => {
                    let message = "agentd met a defect of its own in this run; its log has the details";
                    tracing::error!(%error, "a run panicked");
                    let stop = Stop::new(StopDetail::Internal, message);
                    (error.id(), stop.into())
                }
            };
            let Some(place) = self.ids.iter().position(|(known, _)| *known == id) else { continue };
            let (_, issue) = self.ids.swap_remove(place);
            let Some(live) = self.runs.remove(&issue) else { continue };
            return (issue, live, summary);
        }
    }

    /// Ends what has not ended by itself.
    pub fn abort_all(&mut self) {
        self.tasks.abort_all();
    }
}
