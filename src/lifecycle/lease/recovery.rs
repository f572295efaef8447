//! After a crash the run of a dead holder is finished as `interrupted`, and its finished visits are handed on (D61).

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::domain::budget::Spend;
use crate::domain::cluster::names::node_of;
use crate::domain::event::Event;
use crate::domain::facts::RunFacts;
use crate::domain::issue::IssueKey;
use crate::domain::name::{CommitId, RepoName};
use crate::domain::policy::ProposalKind;
use crate::domain::refusal::Refusal;
use crate::domain::run::{Carried, RunId, VisitRecord};
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::trace::SuspendedProposal;
use crate::engine::journal::JournalError;
use crate::issue::approval::{self, Decision};
use crate::record::finish;
use crate::record::run_facts;
use crate::record::taking_over::{self, brought, end};
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::MappingRecord;
use crate::store::run_dir::{RunDir, StateDir};

/// A run whose process died.
#[derive(Debug, Clone)]
pub struct Predecessor {
    /// Which.
    pub run_id: RunId,
    /// What its journal says.
    pub facts: RunFacts,
    /// Whether the process of the last run died: this run, or a later one that died before it had taken over this run's
    /// work.
    pub killed: bool,
    /// What it used, where not all of its work is here, and is done anew.
    pub lost: Option<Spend>,
    /// Whether it was another node's, so that the branch here may be behind its work.
    pub elsewhere: bool,
    /// Why none of its work is gone on with, in words, where nodes with its definition were waited for.
    pub begun_anew: Option<String>,
}

impl Predecessor {
    /// Whether its flow came to a good end, so that only publishing is left.
    pub fn is_worked_out(&self) -> bool {
        self.facts.flow_end.as_ref().is_some_and(|end| end.stop.success())
    }

    /// The same as one whose flow had not ended: somebody has said more since, which a step is to be told.
    pub fn reopened(self) -> Self {
        Self { facts: reopened(self.facts), ..self }
    }

    /// What killed predecessors used counts (D61): visits, money, and the time that their journals cover.
    pub fn spent(&self) -> Spend {
        if let Some(spent) = self.lost {
            return spent;
        }
        let totals = self.facts.totals();
        let earlier = self.facts.started.as_ref().map(|started| started.inherited).unwrap_or_default();
        let lived = u64::try_from(self.facts.last_at - self.facts.started_at).unwrap_or_default();
        Spend {
            steps: self.facts.visits.len() as u32,
            wall_time: earlier.wall_time + Duration::from_millis(lived),
            cost: earlier.cost + totals.cost,
            cost_unknown: earlier.cost_unknown || totals.cost_unknown,
            estimated: earlier.estimated + totals.estimated_cost,
        }
    }
}

/// The same where the commits of its work are here, or can be had from the remote and from the bundles of its node. Where they cannot,
/// its work is done anew, as far as it cannot be had; what it used counts.
pub async fn with_its_commits(before: Predecessor, context: &RepositoryContext) -> Predecessor {
    if context.state.shared().is_none() || has_all(&before.facts, context).await {
        return before;
    }
    match taken_over(&before, context).await {
        Ok(facts) => Predecessor { facts, lost: Some(before.spent()), elsewhere: true, ..before },
        Err(why) => {
            tracing::warn!(run_id = %before.run_id, "the work of another node's run is begun anew: {why}");
            Predecessor {
                lost: Some(before.spent()),
                elsewhere: true,
                facts: without_work(before.facts),
                ..before
            }
        }
    }
}

async fn has_all(facts: &RunFacts, context: &RepositoryContext) -> bool {
    let committed = facts.committed.as_ref().map(|committed| &committed.head);
    for commit in facts.checkpoint.as_ref().map(|(_, commit)| commit).into_iter().chain(committed) {
        if !context.checkout.has_commit(commit).await.unwrap_or(false) {
            return false;
        }
    }
    true
}

pub(super) fn without_work(mut facts: RunFacts) -> RunFacts {
    facts.visits.clear();
    (facts.checkpoint, facts.flow_end, facts.committed) = (None, None, None);
    facts
}

/// The facts of another node's run as far as its work is here now, or why nothing of it is.
async fn taken_over(before: &Predecessor, context: &RepositoryContext) -> Result<RunFacts, String> {
    let (mut facts, run_id) = (before.facts.clone(), before.run_id);
    let lease = facts.lease.clone().ok_or("its journal has no beginning")?;
    let told = |refusal: Refusal| refusal.stop.message;
    let remote = context.authorised_remote().await.map_err(told)?;
    let mut pushed = None;
    if let Some(remote) = &remote {
        pushed = context.remote_tip(remote, &lease.branch, true).await.map_err(told)?;
    }
    let is_here = async |commit: &CommitId| context.checkout.has_commit(commit).await.unwrap_or(false);
    if let Some(committed) = &facts.committed {
        if is_here(&committed.head).await {
            return Ok(facts);
        }
        // It is committed once more from the same files.
        facts.committed = None;
    }
    let (visit, commit, bundle) = facts.bundled.clone().ok_or("its node kept nothing of it for others")?;
    if facts.checkpoint.as_ref().is_none_or(|(last, _)| *last != visit) {
        // What came behind it is on its node alone.
        facts.visits.retain(|made| made.visit <= visit);
        facts.flow_end = None;
    }
    if !is_here(&bundle.prerequisite).await {
        context.origin_tip(&lease.origin.branch, true).await.map_err(told)?;
    }
    let file = context.state.run(&context.repo, run_id).path.join(&bundle.file.path);
    let reference = format!("refs/agentd/checkpoints/{run_id}/{visit}");
    let builds_on = (&bundle.prerequisite, remote.as_ref());
    let taken = context.checkout.take_bundle(&file, builds_on, (&reference, &commit)).await;
    taken.map_err(|error| error.to_string())?;
    facts.checkpoint = Some((visit, commit.clone()));
    let stands_on = context.checkout.parent_of(&commit).await.map_err(|error| error.to_string())?;
    let stands_on = stands_on.ok_or("its checkpoint stands on nothing")?;
    if let Some(tip) = &pushed
        && *tip != stands_on
        && !context.checkout.is_ancestor(tip, &stands_on).await.unwrap_or(false)
    {
        return Err(format!("{} has commits on the remote that it does not have", lease.branch));
    }
    // What only this node has of the branch gives way when the worktree is brought back, and is kept.
    let here = context.checkout.local_branch(&lease.branch).await.map_err(|error| error.to_string())?;
    if here.is_none() {
        let made = context.checkout.update_ref(&lease.branch.full(), None, &stands_on).await;
        made.map_err(|error| error.to_string())?;
    }
    Ok(facts)
}

/// Whether the newest run of an issue was another node's: what is here of the issue is older then. A run that this node knows nothing of
/// was.
pub async fn was_elsewhere(context: &RepositoryContext, last: Option<&MappingRecord>) -> bool {
    let (Some(last), Some(own)) = (last, context.state.store().node()) else { return false };
    let dir = context.state.run(&context.repo, last.run_id);
    let read = tokio::task::spawn_blocking(move || {
        if !dir.events().exists() {
            return true;
        }
        let held = run_facts::read(&dir).ok().and_then(|facts| facts.lease?.held);
        held.is_some_and(|held| node_of(&held.by.node) != own)
    });
    read.await.unwrap_or(false)
}

/// The node whose run was the newest of an issue, where that is another one: what is here of the issue is older then.
pub async fn node_elsewhere(context: &RepositoryContext, last: Option<&MappingRecord>) -> Option<String> {
    let last = last?;
    if !was_elsewhere(context, Some(last)).await {
        return None;
    }
    let dir = context.state.run(&context.repo, last.run_id);
    let read = tokio::task::spawn_blocking(move || run_facts::read_anywhere(&dir).ok().flatten());
    let held = read.await.ok().flatten().and_then(|facts| facts.lease?.held);
    Some(held.map_or_else(|| "that had it last".to_owned(), |held| node_of(&held.by.node).to_owned()))
}

/// Whether a run that died did nothing but begin to go on with this one.
pub async fn only_began(context: &RepositoryContext, later: RunId, run_id: RunId) -> bool {
    let dir = context.state.run(&context.repo, later);
    let read = tokio::task::spawn_blocking(move || run_facts::read_anywhere(&dir).ok().flatten());
    read.await.ok().flatten().is_some_and(|facts| {
        let goes_on = facts.lease.as_ref().is_some_and(|lease| lease.previous_run == Some(run_id));
        let cut_off = facts.end.as_ref().is_none_or(|end| end.detail.is_cut_off());
        goes_on && cut_off && facts.checkpoint.is_none() && facts.flow_end.is_none()
    })
}

/// The run that a person wants to continue, or `None` for a success. Its failed visits are visited again. If it ended
/// by itself, the worktree stays as it is.
pub async fn resumed(
    context: &RepositoryContext,
    run_id: RunId,
) -> Result<Option<Predecessor>, JournalError> {
    let dir = context.state.run(&context.repo, run_id);
    let (clock, shown) = (context.clock.clone(), dir.path.display().to_string());
    let key = context.config.record.seal_key.clone();
    let (state, repo) = (context.state.clone(), context.repo.clone());
    let work = tokio::task::spawn_blocking(move || {
        brought(&state, &repo, run_id)?;
        if run_facts::read(&dir)?.sealed.is_none() {
            end(&state, &repo, run_id, (&clock, key.as_deref()))?;
        }
        let facts = run_facts::read(&dir)?;
        let Some(ended) = facts.end.clone().filter(|end| !end.success()) else { return Ok(None) };
        let (run_id, facts) = with_work(&state, &repo, run_id, facts)?;
        // A person who gives work back has it gone on with, however the run ended that it was taken from.
        let taken = facts.flow_end.as_ref().is_some_and(|end| end.stop.is_taken());
        let facts = if taken { reopened(facts) } else { facts };
        Ok(Some(Predecessor {
            run_id,
            facts,
            killed: ended.detail.is_cut_off(),
            lost: None,
            elsewhere: false,
            begun_anew: None,
        }))
    });
    work.await.map_err(|panic| JournalError { path: shown, message: panic.to_string() })?
}

/// The run whose work is continued, with its facts. It is the given run. If that run died before it took over the work
/// of its predecessor, it is the predecessor.
fn with_work(
    state: &StateDir,
    repo: &RepoName,
    mut run_id: RunId,
    mut facts: RunFacts,
) -> Result<(RunId, RunFacts), JournalError> {
    let mut resumed = false;
    while facts.checkpoint.is_none() && facts.flow_end.is_none() {
        resumed |= facts.other.iter().any(|(_, event)| matches!(event, Event::Resumed { .. }));
        let Some(before) = facts.lease.as_ref().and_then(|lease| lease.previous_run) else { break };
        (run_id, facts) = (before, run_facts::read(&state.run(repo, before))?);
    }
    let whole = is_whole(&facts, resumed);
    Ok((run_id, if whole { facts } else { reopened(facts) }))
}

/// Whether how the flow of a run ended stands: the run was cut off behind it, or did all but publish. `resumed`: a run that
/// went on with it died before it had begun.
fn is_whole(facts: &RunFacts, resumed: bool) -> bool {
    let cut_off = |end: &Stop| end.success() || end.detail.is_cut_off();
    let ended_as = |so: fn(&Stop) -> bool| facts.flow_end.as_ref().is_some_and(|end| so(&end.stop));
    // What somebody let a parked run go on with was in the hands of the run that died.
    let parked = resumed && ended_as(Stop::parks);
    // Where the record could not be written, whatever cut the run off may be over. Where its process was to end, or its node lost the
    // issue, nobody wanted the flow to end.
    let unwanted =
        ended_as(|stop| stop.detail == StopDetail::OutputWriteFailed || stop.detail.is_gone_on_with());
    !parked && !unwanted && (facts.end.as_ref().is_none_or(cut_off) || facts.is_unpublished())
}

/// Whether the run ended because a person had to approve something, and that is approved now. A handoff is of what the model put out: the
/// flow goes on behind that visit, and no model is asked again. A call is of a visit that did not end: that visit is made again. Blocks.
fn is_approved(state: &StateDir, dir: &RunDir, facts: &RunFacts, now: DateTime<Utc>) -> bool {
    let hands_over = facts.visits.last().is_some_and(|last| last.carried.handoff.is_some());
    let waited = facts.end.as_ref().is_some_and(|end| end.detail == StopDetail::ApprovalPending);
    let approved = |(proposal, decision): &(&SuspendedProposal, Decision)| {
        let counts = if proposal.resource.kind == ProposalKind::Handoff { hands_over } else { waited };
        counts && matches!(decision, Decision::Approved(_))
    };
    approval::waiting(state, dir, facts, now).iter().any(approved)
}

/// Removes the end of a run that ended by itself. Visits that led to another visit, or wait to, stay.
fn reopened(mut facts: RunFacts) -> RunFacts {
    let ended = facts.flow_end.take();
    // One whose plan waits for people may have ended the flow itself.
    let is_gated = ended.as_ref().is_some_and(|end| end.stop.detail == StopDetail::PlanPending);
    // The last report of an agent program may have come after somebody asked to stop.
    let is_stopped =
        ended.is_some_and(|end| matches!(end.stop.detail, StopDetail::UserStop | StopDetail::Shutdown));
    let last = facts.visits.len();
    let goes_on = |(place, visit): &(usize, &VisitRecord)| {
        let is_done = is_gated || (is_stopped && visit.failed.is_none());
        visit.next.is_some() || visit.carried.handoff.is_some() || (is_done && place + 1 == last)
    };
    let going = facts.visits.iter().enumerate().take_while(goes_on).count();
    facts.visits.truncate(going);
    if let Some(last) = facts.visits.last_mut() {
        // A person who resumes a run resets the counts of attempts. What the step was told, which conditions held, and what
        // people approved stays.
        let Carried { retry, met, approved_plan, handoff, .. } = std::mem::take(&mut last.carried);
        last.carried = Carried { retry, met, approved_plan, handoff, ..Carried::default() };
    }
    facts
}

/// In a cluster: ends a run that died before its lease's record named it. It had begun nothing yet; its journal may have its first line.
/// The caller holds the lease.
pub async fn end_unnamed(context: &RepositoryContext, run_id: RunId) {
    let (context, key) = (context.clone(), context.config.record.seal_key.clone());
    let ended = tokio::task::spawn_blocking(move || {
        let (state, repo) = (&context.state, &context.repo);
        taking_over::end_unnamed(state, repo, run_id, (&context.clock, key.as_deref()))
    });
    if let Err(panic) = ended.await {
        tracing::error!(%run_id, %panic, "a run that died at its beginning cannot be ended");
    }
}

/// In a cluster, beside what the caller goes on with: completes what several nodes in a row left of an issue, each of which died while
/// it completed what the one before had left. `before`: the term of the caller's lease.
pub fn end_left(context: &RepositoryContext, issue: &IssueKey, before: u64) {
    let (context, issue) = (context.clone(), issue.clone());
    drop(tokio::task::spawn_blocking(move || {
        let (state, repo, key) = (&context.state, &context.repo, context.config.record.seal_key.as_deref());
        taking_over::end_left(state, repo, (&context.clock, key), |row| {
            row.issue.as_ref() == Some(&issue) && row.term < before
        })
    }));
}

/// Whether a cluster's store has lines of a run's journal; true without a cluster, where that is not the question. Blocks.
fn is_in_store(dir: &RunDir) -> Result<bool, JournalError> {
    let Some(shared) = dir.store().shared() else { return Ok(true) };
    let read = shared.log(dir).and_then(|log| log.read(0));
    let read = read.map_err(|error| JournalError {
        path: format!("the journal of run {}", dir.run_id),
        message: error.to_string(),
    })?;
    Ok(!read.0.is_empty())
}

/// The run that held the lease last, if its process died before its end. The run is finished here. For a `daemon` this
/// includes runs that a shutdown ended, or whose work could not be published, because a daemon continues those by
/// itself. A run whose call or handoff was approved since is gone on with by whoever starts the next one. The caller holds the lease, so
/// nobody else writes to that journal.
///
/// # Errors
/// In a cluster: its record cannot be had here. Then nothing is begun anew in its place: the work is on another node.
pub async fn predecessor(
    context: &RepositoryContext,
    run_id: RunId,
    daemon: bool,
) -> Result<Option<Predecessor>, JournalError> {
    let dir = context.state.run(&context.repo, run_id);
    let (clock, key) = (context.clock.clone(), context.config.record.seal_key.clone());
    let (state, repo) = (context.state.clone(), context.repo.clone());
    let found = tokio::task::spawn_blocking(move || {
        brought(&state, &repo, run_id)?;
        if state.shared().is_some() && !dir.events().exists() {
            // It is past its time in the store: nothing of it is left that could be gone on with.
            return Ok(None);
        }
        let look = || {
            let facts = run_facts::read(&dir)?;
            // In a cluster nobody but who takes the lease completes the record of a run that died at its very end.
            if facts.end.is_some() && (facts.sealed.is_some() || state.shared().is_none()) {
                return Ok::<_, JournalError>((facts, None));
            }
            end(&state, &repo, run_id, (&clock, key.as_deref()))?;
            // What it had spent that its end finds out.
            let ledger = run_facts::read(&dir)?.ledger;
            Ok((facts, Some(ledger)))
        };
        let (facts, ledger) = match look() {
            Ok(found) => found,
            // The store never had it: what is here is all that there is of it, as without a cluster.
            Err(error) if !is_in_store(&dir)? => {
                tracing::warn!(%run_id, %error, "an earlier run's journal cannot be read; it is left as it is");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let end = facts.end.as_ref().map(|end| end.detail);
        let killed = end.is_none_or(StopDetail::is_cut_off);
        let goes_on =
            killed || daemon && (end.is_some_and(StopDetail::is_gone_on_with) || facts.is_unpublished());
        if !goes_on && !is_approved(&state, &dir, &facts, clock.now()) {
            return Ok(None);
        }
        let facts = match ledger {
            Some(ledger) => RunFacts { ledger, ..facts },
            None => facts,
        };
        let (run_id, facts) = with_work(&state, &repo, run_id, facts)?;
        Ok::<_, JournalError>(Some(Predecessor {
            run_id,
            facts,
            killed,
            lost: None,
            elsewhere: false,
            begun_anew: None,
        }))
    })
    .await;
    let dir = context.state.run(&context.repo, run_id);
    if let Err(error) = finish::emit(&context.sinks(), &dir, &context.clock).await {
        tracing::warn!(%run_id, %error, "a dead run's record was not fed to the sinks");
    }
    match found {
        Ok(Ok(predecessor)) => Ok(predecessor),
        Ok(Err(error)) if context.state.shared().is_some() => Err(error),
        Ok(Err(_)) if !dir.events().exists() => {
            let path = dir.path.display();
            tracing::warn!(%run_id, %path, "an earlier run's record is not in the state directory any more: this run begins anew on its branch");
            Ok(None)
        }
        Ok(Err(error)) => {
            tracing::warn!(%run_id, %error, "an earlier run's journal cannot be read; it is left as it is");
            Ok(None)
        }
        Err(panic) => {
            tracing::error!(%run_id, %panic, "an earlier run could not be looked at");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::stop::FlowEnd;

    fn ended(flow: StopDetail, end: Option<StopDetail>) -> RunFacts {
        let stop = |detail| Stop::new(detail, "x");
        RunFacts { flow_end: Some(FlowEnd::failed(stop(flow))), end: end.map(stop), ..RunFacts::default() }
    }

    #[test]
    fn a_flow_that_nobody_wanted_to_end_is_gone_on_with_and_what_else_was_cut_off_behind_its_end_is_not() {
        let interrupted = Some(StopDetail::Interrupted);
        for end in [None, interrupted] {
            assert!(is_whole(&ended(StopDetail::MaxSteps, end), true));
            assert!(!is_whole(&ended(StopDetail::OutputWriteFailed, end), false));
            assert!(!is_whole(&ended(StopDetail::Overtaken, end), false));
            assert!(!is_whole(&ended(StopDetail::Shutdown, end), false));
            assert!(is_whole(&ended(StopDetail::QuestionPending, end), false));
            assert!(!is_whole(&ended(StopDetail::QuestionPending, end), true));
        }
        assert!(!is_whole(&ended(StopDetail::MaxSteps, Some(StopDetail::MaxSteps)), false));
    }
}
