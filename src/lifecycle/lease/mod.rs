//! Stage lease: the issue is ours, in one file that only one process can hold, with a journal from here on.
//!
//! Takes a plan with its origin. Leaves the lease and the first event of the run. After a crash behind it the next run
//! finds a dead holder, ends that run, and takes its finished visits over.

pub mod definition;
pub mod recovery;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::FutureExt as _;
use uuid::Uuid;

use self::recovery::Predecessor;
use super::origin::Resolved;
use super::plan::Plan;
use crate::conversation::parked::ParkedCell;
use crate::conversation::parked::parked_format::{Over, Parked, WaitsFor};
use crate::domain::cluster::cells::HeldTerm;
use crate::domain::event::{Event, LeaseTaken};
use crate::domain::issue::Issue;
use crate::domain::issue::{IssueKey, ObjectiveSource};
use crate::domain::mapping::{InstanceId, branch_of, worktree_of};
use crate::domain::origin::Origin;
use crate::domain::refusal::{EndedRun, Refusal};
use crate::domain::run::{RunId, Warning};
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::journal::Journal as _;
use crate::engine::session_trace::WITHHELD;
use crate::issue::shown_lease::{self, Tracked};
use crate::record::run_facts;
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::{MAPPING_SCHEMA, MappingRecord, mapping_of};
use crate::repository::refused::no_nodes_key;
use crate::repository::resources::RUN_MARK;
use crate::store::journal_file::FileJournal;
use crate::store::port::{HeldLease, LeaseNotTaken, StoreError};
use crate::sys::host::Host;
use crate::sys::process;

/// How many killed runs in a row may be continued (D61); after that a run starts from the beginning.
const MOST_SUCCESSORS: u32 = 2;
/// How long after the run's own deadline the lease counts for hosts that cannot ask this kernel.
const GRACE: Duration = Duration::from_secs(5 * 60);

/// A held lease. Dropping it gives it back.
pub struct Lease {
    /// The run that holds it.
    pub run_id: RunId,
    /// Its instance.
    pub instance: InstanceId,
    /// The frozen mapping.
    pub mapping: MappingRecord,
    /// The run's journal.
    pub journal: Arc<FileJournal>,
    /// The killed run that this one continues, or puts an end to.
    pub predecessor: Option<Predecessor>,
    /// Set if the predecessors were killed too often (D37). This run visits no step and keeps what they left.
    pub given_up: Option<Stop>,
    /// Whether the run before was another node's: what is here of the issue is older then.
    pub elsewhere: bool,
    held: Arc<Mutex<Box<dyn HeldLease>>>,
}

impl Lease {
    /// Gives the lease back; the mapping stays in its file.
    pub fn release(self) {
        // Nobody notes anything any more; if somebody did, it is given back with the last who has it.
        if let Ok(held) = Arc::try_unwrap(self.held) {
            release(held.into_inner().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Ends once another node has the issue, or may have it; never where no node shares it.
    pub async fn lost(&self) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).lost();
        tokio::select! {
            () = held => {}
            () = self.journal.overtaken() => {}
        }
    }

    /// Whether that is known by now.
    pub fn is_lost(&self) -> bool {
        self.lost().now_or_never().is_some()
    }

    /// Notes in the file that these runs are not continued automatically. The next run that a person asks for begins
    /// anew.
    pub async fn give_up(&self) {
        if let Err(error) = self.note(|mapping| mapping.given_up = true).await {
            tracing::warn!(%error, "that a run is given up could not be written into its lease");
        }
    }

    /// Changes what the lease records of the issue, off the runtime's threads.
    ///
    /// # Errors
    /// It could not be written.
    pub async fn note(
        &self,
        change: impl FnOnce(&mut MappingRecord) + Send + 'static,
    ) -> Result<(), StoreError> {
        let (held, frozen) = (Arc::clone(&self.held), self.mapping.clone());
        let noted = tokio::task::spawn_blocking(move || {
            let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
            let mut record = held.record().and_then(mapping_of).unwrap_or(frozen);
            change(&mut record);
            held.set_record(serde_json::to_value(&record).unwrap_or_default())
        });
        noted.await.unwrap_or_else(|panic| {
            let words = panic.to_string();
            Err(StoreError::Failed { action: "write", place: "a lease".to_owned(), words })
        })
    }

    /// Extends the lease from now on, for hosts that cannot see whether this process lives.
    pub async fn hold(&self, plan: &Plan, context: &RepositoryContext, wall: Duration) {
        let holder = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = held.renew(wall.saturating_add(GRACE)) {
                tracing::warn!(%error, "the lease could not be made longer");
            }
            held.holder().cloned()
        };
        if let Some(holder) = holder {
            shown_lease::renew(tracked(plan), context, &holder, "").await;
        }
    }

    /// Shows on the issue how far the work is.
    pub async fn show(&self, plan: &Plan, context: &RepositoryContext, progress: &str) {
        let holder = self.held.lock().unwrap_or_else(PoisonError::into_inner).holder().cloned();
        if let Some(holder) = holder {
            shown_lease::renew(tracked(plan), context, &holder, progress).await;
        }
    }
}

/// Refuses an issue that somebody works on, before anything is made.
pub async fn check(plan: &Plan, context: &RepositoryContext) -> Result<(), Refusal> {
    if context.state.shared().is_some() && !plan.request.dry_run {
        // Whether a node lives is known once it has been watched, as who takes the lease does.
        return not_taken(plan, context).await;
    }
    match context.look(context.lease(&plan.issue.key)).await?.and_then(|lease| lease.holder) {
        Some(holder) => Err(busy(LeaseNotTaken::Busy(Some(Box::new(holder))), plan, context)),
        None => not_taken(plan, context).await,
    }
}

/// Refuses an issue whose work a person has. A replay works elsewhere.
async fn not_taken(plan: &Plan, context: &RepositoryContext) -> Result<(), Refusal> {
    let key = &plan.issue.key;
    match context.replay {
        Some(_) => Ok(()),
        None => ParkedCell::new(&context.state, &context.repo, key).refuse_taken(key).await,
    }
}

/// A planned run that holds its lease.
pub struct Leased {
    /// What was planned.
    pub plan: Plan,
    /// The held lease.
    pub lease: Lease,
    /// What is to be said about the origin.
    pub warnings: Vec<Warning>,
}

/// Takes the lease, finalises a dead holder's run, opens the journal and writes its first event.
pub async fn take(resolved: Resolved, context: &RepositoryContext) -> Result<Leased, Refusal> {
    let Resolved { plan, origin, mut warnings } = resolved;
    let lease = take_for(&plan, origin, context).await?;
    if let Some(text) = lease.predecessor.as_ref().and_then(|before| before.begun_anew.clone()) {
        let code = definition::DEFINITION_CHANGED.to_owned();
        warnings.push(Warning { code, at: context.clock.now_ms(), text });
    }
    Ok(Leased { plan, lease, warnings })
}

async fn take_for(plan: &Plan, origin: Origin, context: &RepositoryContext) -> Result<Lease, Refusal> {
    let now = context.clock.now();
    let instance = next_instance(plan, now);
    let lasts = plan.budgets.max_wall_time.saturating_add(GRACE);
    let mut held = match context.take_for_run(context.lease(&plan.issue.key), instance.as_str(), lasts).await
    {
        Ok(held) => held,
        Err(error) => return Err(busy(error, plan, context)),
    };
    // Nobody takes it over while the lease is held.
    not_taken(plan, context).await?;
    let last = held.record().and_then(mapping_of);
    if let Err(refusal) = same_issue(plan, context, last.as_ref()).await {
        release(held);
        return Err(refusal);
    }
    let begun = held.taken_from().and_then(|dead| dead.run_id);
    if let Some(run_id) = begun.filter(|run_id| last.as_ref().is_none_or(|last| last.run_id != *run_id)) {
        recovery::end_unnamed(context, run_id).await;
    }
    let resumed = plan.request.resume;
    let daemon = plan.request.source != ObjectiveSource::Cli;
    let predecessor = match gone_on_with(plan, context, last.as_ref()).await {
        Ok(found) => found,
        Err(refusal) => {
            release(held);
            return Err(refusal);
        }
    };
    let is_anew = predecessor.as_ref().is_some_and(|before| before.begun_anew.is_some());
    let elsewhere = is_anew || recovery::was_elsewhere(context, last.as_ref()).await;
    if predecessor.is_none()
        && let Some(answered) = answered(plan, last.as_ref())
    {
        release(held);
        return Err(answered);
    }
    if predecessor.is_none()
        && plan.request.completes
        && let Some(last) = &last
    {
        release(held);
        return Err(ended_by_itself(context, last.run_id).await);
    }
    if let Some(before) = &predecessor {
        end_strays(last.as_ref().map_or(before.run_id, |last| last.run_id)).await;
    }
    // Only a killed run counts. A run that was stopped by a shutdown or a person, or that ended by itself, has ended.
    let killed = predecessor.as_ref().is_some_and(|before| before.killed);
    // Work that is finished and paid for has only to be published, so the kills before that do not end it.
    let is_worked_out = predecessor.as_ref().is_some_and(|before| before.is_worked_out());
    let most = if is_worked_out { 2 * MOST_SUCCESSORS } else { MOST_SUCCESSORS };
    let again = last.as_ref().is_some_and(|last| last.successors < most);
    let continues = predecessor.is_some() && (resumed.is_some() || !killed || again);
    let given_up =
        last.as_ref().filter(|_| predecessor.is_some() && !continues && daemon).map(killed_too_often);
    let successors = match &last {
        Some(last) if given_up.is_some() => last.successors,
        Some(last) if continues => last.successors + u32::from(killed),
        _ => 0,
    };
    let run_id = held.holder().and_then(|holder| holder.run_id).unwrap_or_else(|| RunId(Uuid::now_v7()));
    let in_cluster = last.as_ref().filter(|_| context.state.shared().is_some());
    let mapping = MappingRecord {
        schema_version: MAPPING_SCHEMA.to_owned(),
        branch: branch_of(&plan.issue.key),
        origin,
        run_id,
        instance: instance.clone(),
        successors,
        given_up: false,
        from_file: Some(plan.request.issue.tracked().is_none()),
        unpushed: in_cluster.and_then(|last| last.unpushed.clone()),
        answers: context
            .state
            .shared()
            .and_then(|_| plan.request.answers.max(in_cluster.and_then(|last| last.answers))),
    };
    let predecessor = predecessor.filter(|_| continues || given_up.is_some());
    // Written last before there is a run. Otherwise a refused start would look like a working one.
    if let Some(refusal) = held_elsewhere(plan, context, &*held).await {
        release(held);
        return Err(refusal);
    }
    if held.lost().now_or_never().is_some() {
        let message = format!("Another node of the cluster may have issue {} now.", plan.issue.key);
        return Err(Refusal::new(StopDetail::BranchBusy, message));
    }
    let journal = open_journal(plan, context, (&mapping, held.term()), predecessor.as_ref()).await?;
    // The journal is written first. If the file were first, a crash in between would lose the way to the predecessor.
    let record = serde_json::to_value(&mapping).unwrap_or_default();
    if let Err(error) = held.set_record(record) {
        // No lease names this run, so nobody else would end it.
        drop(journal);
        recovery::end_unnamed(context, run_id).await;
        return Err(lease_unusable(context, format!("The lease could not be written: {error}.")));
    }
    if let Some(held) = held.taken_from().and(held.term()) {
        recovery::end_left(context, &plan.issue.key, held.term);
    }
    let held = Arc::new(Mutex::new(held));
    Ok(Lease { run_id, instance, mapping, journal, predecessor, given_up, elsewhere, held })
}

/// Refuses an issue of a file whose number is one of the tracker's that has a branch already, and the other way around: they are two
/// issues, and one would get the work of the other. Once nothing has the branch any more, it may.
async fn same_issue(
    plan: &Plan,
    context: &RepositoryContext,
    last: Option<&MappingRecord>,
) -> Result<(), Refusal> {
    let key = &plan.issue.key;
    let is_file = plan.request.issue.tracked().is_none();
    let Some(last) = last.filter(|last| last.from_file.is_some_and(|before| before != is_file)) else {
        return Ok(());
    };
    let branch = &last.branch;
    if context.replay.is_some() || context.checkout.local_branch(branch).await?.is_none() {
        return Ok(());
    }
    let (message, hint) = match is_file {
        true => (
            format!(
                "{branch} has the work of the tracker's issue #{key}, and the file is another issue of that number."
            ),
            "give the file a name that is no number, such as discount.md",
        ),
        false => (
            format!("{branch} has the work of an issue from a file that is named by the number {key}."),
            "once that work is where it is to be, remove its worktree and its branch, here and on the remote",
        ),
    };
    Err(Refusal::new(StopDetail::MappingConflict, message).hint(hint))
}

/// The run that this one goes on with, as far as its work can be had here. The lease is held.
async fn gone_on_with(
    plan: &Plan,
    context: &RepositoryContext,
    last: Option<&MappingRecord>,
) -> Result<Option<Predecessor>, Refusal> {
    let parked = parked(plan, context).await?;
    // What a daemon remembers may be older than a run that a person has begun since.
    let daemon = plan.request.source != ObjectiveSource::Cli;
    let is_newest = |run_id: &RunId| last.is_none_or(|last| last.run_id == *run_id);
    let before = match (plan.request.resume.filter(|run_id| !daemon || is_newest(run_id)), last) {
        // A person says that it is to be gone on with here.
        (Some(run_id), last) => Some(resumable(context, run_id, last).await?),
        (None, Some(last)) if parked.as_ref().is_some_and(|parked| is_answered(parked, last)) => {
            Some(resumable(context, last.run_id, Some(last)).await?)
        }
        (None, Some(last)) if !last.given_up => {
            let found = recovery::predecessor(context, last.run_id, daemon).await.map_err(|error| {
                let told = format!("The run before, {}, cannot be read here yet: {error}.", last.run_id);
                Refusal::new(StopDetail::BranchBusy, told)
            })?;
            match found {
                Some(before) => Some(definition::agreed(before, last.run_id, (plan, context)).await?),
                None => None,
            }
        }
        (None, _) => None,
    };
    let Some(before) = before else { return Ok(None) };
    let before = match parked.is_some_and(|parked| is_told_more(&parked, before.run_id)) {
        true => before.reopened(),
        false => before,
    };
    Ok(Some(recovery::with_its_commits(before, context).await))
}

/// For what the issue waits, or waited last; a replay waits for nobody.
async fn parked(plan: &Plan, context: &RepositoryContext) -> Result<Option<Parked>, Refusal> {
    if context.replay.is_some() {
        return Ok(None);
    }
    let cell = ParkedCell::new(&context.state, &context.repo, &plan.issue.key);
    let issue = cell.read().await.map_err(|error| unusable(context, error.to_string()))?;
    Ok(issue.parked)
}

/// Whether a person who had the work of a run gave it back with words, or with changes: also where its flow had ended, a step is told.
fn is_told_more(parked: &Parked, run_id: RunId) -> bool {
    let (WaitsFor::GiveBack(taken), Some(answer)) = (&parked.waits_for, &parked.answer) else { return false };
    let has_changes = taken.given.as_ref().is_some_and(|given| !given.changed.is_empty());
    parked.run_id == run_id
        && !matches!(parked.over, Some(Over::Ended(_)))
        && (!answer.text.is_empty() || has_changes)
}

/// Whether a person has answered what the newest run of the issue waits for: whichever run begins goes on with it, and nobody is asked again
/// and no visit is paid for again.
fn is_answered(parked: &Parked, last: &MappingRecord) -> bool {
    parked.run_id == last.run_id
        && parked.over.is_none()
        && parked.answer.is_some()
        // A run that follows on work that was given back begins on its own.
        && !matches!(parked.waits_for, WaitsFor::GiveBack(_))
}

/// A labelling starts one chain of runs, whoever sees it and however late. `last`: the newest run of the issue, which came to an end of
/// its own.
fn answered(plan: &Plan, last: Option<&MappingRecord>) -> Option<Refusal> {
    let last = last.filter(|last| last.has_answered(plan.request.answers))?;
    (plan.request.resume.is_none() && plan.request.follow_up.is_none()).then(|| {
        let message = format!("Run {} has answered this labelling of issue {}.", last.run_id, plan.issue.key);
        Refusal::new(StopDetail::BranchBusy, message).hint("put the label on again for another run")
    })
}

/// Why a run that was cut off is not brought to its end: where its host only stood still, it has gone on and ended.
async fn ended_by_itself(context: &RepositoryContext, run_id: RunId) -> Refusal {
    let dir = context.state.run(&context.repo, run_id);
    let ended = move || {
        let facts = run_facts::read(&dir).ok()?;
        let written_back = facts.is_written_back();
        Some(EndedRun { run_id, stop: facts.end?, written_back })
    };
    match tokio::task::spawn_blocking(ended).await.ok().flatten() {
        Some(ended) => Refusal::already_ended(ended),
        None => {
            Refusal::new(StopDetail::BranchBusy, format!("Run {run_id} cannot be brought to its end yet."))
        }
    }
}

fn release(held: Box<dyn HeldLease>) {
    if let Err(error) = held.release() {
        tracing::warn!(%error, "the lease was let go without saying so in its file");
    }
}

fn tracked(plan: &Plan) -> Tracked<'_> {
    Tracked { key: &plan.issue.key, number: plan.request.issue.tracked() }
}

/// Whether an agentd with another state waits for a person on the issue. What was moved here from there waits here.
async fn is_parked_elsewhere(plan: &Plan, context: &RepositoryContext) -> Result<bool, Refusal> {
    let Some(by) = shown_lease::parked_elsewhere(tracked(plan), context).await? else { return Ok(false) };
    let known = ParkedCell::new(&context.state, &context.repo, &plan.issue.key).read().await;
    let known = known.map_err(|error| unusable(context, error.to_string()))?;
    Ok(known.shown_by() != Some(by.as_str()))
}

/// This process has the lock. The status comment says whether another clone of the repository has the issue (D75).
async fn held_elsewhere(plan: &Plan, context: &RepositoryContext, held: &dyn HeldLease) -> Option<Refusal> {
    match is_parked_elsewhere(plan, context).await {
        Ok(false) => {}
        Ok(true) => {
            let key = &plan.issue.key;
            let message = format!(
                "Issue {key} is parked: agentd elsewhere waits for a person on it, and goes on then."
            );
            let hint =
                "answer there; if that agentd is gone for good, delete its status comment on the issue";
            return Some(Refusal::new(StopDetail::BranchBusy, message).hint(hint));
        }
        Err(refusal) => return Some(refusal),
    }
    match shown_lease::show(tracked(plan), context, held.holder()?).await {
        Ok(other) => other.map(|holder| busy(LeaseNotTaken::Busy(Some(Box::new(holder))), plan, context)),
        Err(error) => Some(error.into()),
    }
}

/// Processes of a killed run would write into the worktree that this run has now.
async fn end_strays(run_id: RunId) {
    let ended =
        tokio::task::spawn_blocking(move || process::kill_strays(RUN_MARK, &run_id.to_string())).await;
    if let Ok(count @ 1..) = ended {
        tracing::warn!(count, %run_id, "processes that a killed run left running were ended");
    }
}

/// The run that a person wants to continue. The lease is held, so nobody else writes about this issue.
async fn resumable(
    context: &RepositoryContext,
    run_id: RunId,
    last: Option<&MappingRecord>,
) -> Result<Predecessor, Refusal> {
    let invalid = |message: String| Refusal::new(StopDetail::InvalidInput, message);
    let newest = last.map_or(run_id, |last| last.run_id);
    if newest != run_id && !recovery::only_began(context, newest, run_id).await {
        return Err(invalid(format!("Run {run_id} is not the newest of its issue: {newest} is."))
            .hint(format!("agentd runs resume {newest}")));
    }
    match recovery::resumed(context, newest).await {
        Ok(Some(predecessor)) => Ok(predecessor),
        Ok(None) => {
            Err(invalid(format!("Run {run_id} reached its objective: there is nothing to go on with."))
                .hint("agentd run --issue N starts the next run on the same branch"))
        }
        Err(error) => Err(invalid(format!("Run {run_id} cannot be gone on with: {error}."))),
    }
}

/// Finishes a run that was cut off by a kill or a shutdown when its issue is not to be worked on any more (D37): it was
/// closed, or its label was removed meanwhile. False = there is no such run, or somebody holds the lease.
pub async fn abandon(key: &IssueKey, context: &RepositoryContext) -> bool {
    let now = context.clock.now();
    let instance = InstanceId::new(key, now);
    let Ok(mut held) = context.take(context.lease(key), instance.as_str(), GRACE).await else { return false };
    let Some(last) = held.record().and_then(mapping_of).filter(|last| !last.given_up) else { return false };
    if !matches!(recovery::predecessor(context, last.run_id, true).await, Ok(Some(_))) {
        return false;
    }
    // It is not continued automatically. The next run that a person asks for begins anew (D37, D61).
    let record = MappingRecord { given_up: true, ..last };
    if let Err(error) = held.set_record(serde_json::to_value(&record).unwrap_or_default()) {
        tracing::warn!(%error, "that a run is given up could not be written into its lease");
    }
    true
}

/// The end of the run that comes after `last` and its predecessors.
fn killed_too_often(last: &MappingRecord) -> Stop {
    let message = format!(
        "The process was killed in the middle of this issue's run, and in {} more that continued it: it is not gone on with.",
        last.successors
    );
    Stop::new(StopDetail::Interrupted, message)
}

async fn open_journal(
    plan: &Plan,
    context: &RepositoryContext,
    (mapping, held): (&MappingRecord, Option<HeldTerm>),
    predecessor: Option<&Predecessor>,
) -> Result<Arc<FileJournal>, Refusal> {
    let dir = context.state.run(&context.repo, mapping.run_id);
    let failed =
        |message: String| unusable(context, format!("The run's journal cannot be written: {message}."));
    let (clock, redactor) = (context.clock.clone(), Arc::clone(&plan.redactor));
    let opened = tokio::task::spawn_blocking(move || FileJournal::open(dir, clock, redactor)).await;
    let journal = match opened {
        Ok(opened) => opened.map_err(|error| failed(error.to_string()))?,
        Err(panic) => return Err(failed(panic.to_string())),
    };
    let (issue, context_withheld) = recorded_issue(plan, context).await;
    // The trigger label, or the operator, asks for a run of its own.
    let trigger = &context.config.github.labels.trigger;
    let labelled = plan.issue.labels.iter().any(|label| label.eq_ignore_ascii_case(trigger));
    let by_itself = !labelled && plan.request.source != ObjectiveSource::Cli;
    let before = predecessor.filter(|_| by_itself).and_then(|before| before.facts.lease.as_ref());
    let first = Event::LeaseTaken(Box::new(LeaseTaken {
        run_id: mapping.run_id,
        instance: mapping.instance.clone(),
        issue,
        context_withheld,
        text: plan.text.clone(),
        source: plan.request.source,
        follow_up: plan.request.follow_up.is_some() || before.is_some_and(|before| before.follow_up),
        goes_on: plan.request.resume.is_some() || before.is_some_and(|before| before.goes_on),
        principal: plan.request.principal.clone(),
        origin: mapping.origin.clone(),
        branch: mapping.branch.clone(),
        worktree: plan.worktree_shown(context),
        lease_file: context
            .checkout
            .lease_file(&worktree_of(&plan.issue.key))
            .as_path()
            .display()
            .to_string(),
        checkout: context.checkout.root().as_path().display().to_string(),
        held,
        previous_run: predecessor.map(|predecessor| predecessor.run_id),
        runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
    }));
    let written = match journal.append(first) {
        Ok(()) => journal.flush().await,
        Err(error) => Err(error),
    };
    if let Err(error) = written {
        // No run began: its directory holds two files without an entry.
        let _left = tokio::fs::remove_dir_all(&journal.dir().path).await;
        return Err(failed(error.to_string()));
    }
    Ok(Arc::new(journal))
}

/// The issue in the form of records: passed through the redaction program, if there is one, and dropped if that fails
/// (P-032).
async fn recorded_issue(plan: &Plan, context: &RepositoryContext) -> (Issue, bool) {
    let mut issue = plan.issue.clone();
    let Some(program) = context.redaction_program() else { return (issue, false) };
    let (title, body) = (program.redact(&issue.title).await, program.redact(&issue.body).await);
    let withheld = title.is_none() || body.is_none();
    issue.title = title.filter(|title| !title.trim().is_empty()).unwrap_or_else(|| WITHHELD.to_owned());
    issue.body = body.unwrap_or_else(|| WITHHELD.to_owned());
    (issue, withheld)
}

/// A name that no earlier instance of the issue has (D94): a second later where the clock stands still.
fn next_instance(plan: &Plan, now: DateTime<Utc>) -> InstanceId {
    let last = plan.lease_record.as_ref().map(|last| last.instance.clone());
    let mut at = now;
    loop {
        let instance = InstanceId::new(&plan.issue.key, at);
        if last.as_ref().is_none_or(|last| instance > *last) || at > now + TimeDelta::hours(1) {
            return instance;
        }
        at += TimeDelta::seconds(1);
    }
}

/// The state that the run needs cannot be used: the state directory, or the cluster's store.
fn unusable(context: &RepositoryContext, message: String) -> Refusal {
    let hint =
        "see that the state directory can be written and its disk has room, or name another with --state-dir";
    unusable_here(context, message, hint)
}

/// The lease cannot be used: a file in the repository's git directory, or the cluster's store.
fn lease_unusable(context: &RepositoryContext, message: String) -> Refusal {
    let hint = "see that agentd can write into the repository's git directory (agentd/ in .git), and that its disk has room";
    unusable_here(context, message, hint)
}

/// `hint`: what helps where it is on this machine.
fn unusable_here(context: &RepositoryContext, message: String, hint: &str) -> Refusal {
    match context.state.shared() {
        None => Refusal::new(StopDetail::OutputWriteFailed, message).hint(hint),
        Some(_) => Refusal::new(StopDetail::StoreUnavailable, message)
            .hint("`agentd cluster doctor` says what the cluster needs"),
    }
}

fn busy(error: LeaseNotTaken, plan: &Plan, context: &RepositoryContext) -> Refusal {
    match error {
        LeaseNotTaken::Busy(holder) => {
            let message = |who: &str| format!("Issue {} is being worked on by {who}.", plan.issue.key);
            match holder {
                // By its own name: the latest run may be another one.
                Some(holder) => {
                    // A run of another machine is stopped there, or from any node of a cluster.
                    let is_near = holder.host == Host::current().name || context.state.shared().is_some();
                    let stop = format!("agentd runs stop {}", holder.instance);
                    let place = if is_near { String::new() } else { format!(" on {}", holder.host) };
                    Refusal::new(StopDetail::BranchBusy, message(&holder.to_string()))
                        .hint(format!("wait for it, or stop it{place}: {stop}"))
                }
                None => {
                    let who = "a process that has not yet said who it is";
                    Refusal::new(StopDetail::BranchBusy, message(who)).hint("try again in a moment")
                }
            }
        }
        LeaseNotTaken::Full { .. } => {
            let message = format!("Issue {} has to wait: {error}.", plan.issue.key);
            Refusal::new(StopDetail::BranchBusy, message)
                .hint("wait for one of the cluster's runs: agentd cluster status")
        }
        LeaseNotTaken::Store(StoreError::NameTaken(words) | StoreError::TooNew(words)) => {
            Refusal::new(StopDetail::ConfigInvalid, format!("The lease cannot be taken: {words}."))
        }
        // A daemon has been a node: what is taken from it may be given back.
        LeaseNotTaken::Store(error)
            if error.is_for_want_of_a_right() && plan.request.source == ObjectiveSource::Cli =>
        {
            no_nodes_key(&error)
        }
        LeaseNotTaken::Store(error) => lease_unusable(context, format!("The lease cannot be used: {error}.")),
    }
}
