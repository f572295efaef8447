//! After a crash: a dead holder's run is finalised as `interrupted`, and its finished visits are handed on (D61).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::lease::mapping_of;
use super::mapping_format::MappingRecord;
use super::site::Site;
use super::{in_flight, report, seal, shown_lease, sinks};
use crate::domain::budget::Spend;
use crate::domain::event::{Effect, Event, LeaseTaken};
use crate::domain::facts::{EffectState, RunFacts};
use crate::domain::issue::ObjectiveSource;
use crate::domain::mapping::InstanceId;
use crate::domain::name::RepoName;
use crate::domain::redaction::Redactor;
use crate::domain::run::{Carried, RunId};
use crate::domain::run_output::RunOutput;
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::journal::{Journal as _, JournalError};
use crate::store::journal_file::{self, FileJournal};
use crate::store::run_dir::{RunDir, StateDir};
use crate::store::seal_index::SealIndex;
use crate::sys::clock::Clock;
use crate::sys::holder_format::Liveness;
use crate::sys::host::Host;
use crate::sys::lock::{self, Turn};

/// How long another process that ends runs is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// A run whose process died.
#[derive(Debug, Clone)]
pub struct Predecessor {
    /// Which.
    pub run_id: RunId,
    /// What its journal says.
    pub facts: RunFacts,
    /// Whether the process of the last run died, be it this one or one that died before it had taken this one's work over.
    pub killed: bool,
}

impl Predecessor {
    /// What killed predecessors used counts (D61): visits, money, and the time that their journals cover.
    pub fn spent(&self) -> Spend {
        let totals = self.facts.totals();
        let earlier = self.facts.started.as_ref().map(|started| started.inherited).unwrap_or_default();
        let lived = u64::try_from(self.facts.last_at - self.facts.started_at).unwrap_or_default();
        Spend {
            steps: self.facts.visits.len() as u32,
            wall_time: earlier.wall_time + Duration::from_millis(lived),
            cost: earlier.cost + totals.cost,
            cost_unknown: earlier.cost_unknown || totals.cost_unknown,
        }
    }
}

/// The facts of a run, from its journal.
pub fn facts(dir: &RunDir) -> Result<RunFacts, JournalError> {
    Ok(journal_file::facts_of(&journal_file::read(dir)?.lines))
}

/// Whether a run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its process may live: here, or, as far as its lease says, on another host.
    Running,
    /// It ended, and everything that it leaves is written.
    Ended,
}

/// Feeds the record of a run that died before it could.
async fn emit(site: &Site, run_id: RunId) -> Result<(), JournalError> {
    let dir = site.state.run(&site.repo, run_id);
    if site.config.record.sinks.is_empty() || facts(&dir)?.emitted {
        return Ok(());
    }
    sinks::emit(site, &FileJournal::open(dir.clone(), site.clock.clone(), no_secrets(&dir)?)?).await
}

/// For journals whose content was redacted when it was written; what is added holds nothing secret.
fn no_secrets(dir: &RunDir) -> Result<Arc<Redactor>, JournalError> {
    let none = Redactor::new([0; 32], Vec::new(), &[]).map_err(|error| JournalError {
        path: dir.events().display().to_string(),
        message: error.to_string(),
    })?;
    Ok(Arc::new(none))
}

/// The run that a person wants to go on with, or `None` for a success. Its failed visits are visited again; after an end
/// of its own, the worktree stays as it is.
pub async fn resumed(site: &Site, run_id: RunId) -> Result<Option<Predecessor>, JournalError> {
    let dir = site.state.run(&site.repo, run_id);
    let (clock, shown) = (site.clock.clone(), dir.path.display().to_string());
    let key = site.config.record.seal_key.clone();
    let (state, repo) = (site.state.clone(), site.repo.clone());
    let work = tokio::task::spawn_blocking(move || {
        if facts(&dir)?.sealed.is_none() {
            finalise(&dir, &clock, key.as_deref())?;
        }
        let facts = facts(&dir)?;
        let Some(end) = facts.end.clone().filter(|end| !end.success()) else { return Ok(None) };
        let (run_id, facts) = with_work(&state, &repo, run_id, facts)?;
        Ok(Some(Predecessor { run_id, facts, killed: end.detail == StopDetail::Interrupted }))
    });
    work.await.map_err(|panic| JournalError { path: shown, message: panic.to_string() })?
}

/// The run whose work is gone on with, as whoever goes on takes it up: this one, or where it died before it had taken over
/// what was there, the one before it.
fn with_work(
    state: &StateDir,
    repo: &RepoName,
    mut run_id: RunId,
    mut facts: RunFacts,
) -> Result<(RunId, RunFacts), JournalError> {
    while facts.checkpoint.is_none() && facts.flow_end.is_none() {
        let Some(before) = facts.lease.as_ref().and_then(|lease| lease.previous_run) else { break };
        (run_id, facts) = (before, self::facts(&state.run(repo, before))?);
    }
    let cut_off = |end: &Stop| end.success() || end.detail == StopDetail::Interrupted;
    let whole = facts.end.as_ref().is_none_or(cut_off) || is_unpublished(&facts);
    Ok((run_id, if whole { facts } else { reopened(facts) }))
}

/// Whether all the work was done and committed, and only GitHub or its git did not take it: whoever goes on publishes, and
/// no model is asked again.
fn is_unpublished(facts: &RunFacts) -> bool {
    let refused = |end: &Stop| matches!(end.detail, StopDetail::GithubError | StopDetail::GitError);
    facts.committed.is_some()
        && facts.flow_end.as_ref().is_some_and(|ended| ended.stop.success())
        && facts.end.as_ref().is_some_and(refused)
}

/// Takes back the end of a run that ended in order: the visits that led to another stay.
fn reopened(mut facts: RunFacts) -> RunFacts {
    facts.flow_end = None;
    let going = facts.visits.iter().take_while(|visit| visit.next.is_some()).count();
    facts.visits.truncate(going);
    if let Some(last) = facts.visits.last_mut() {
        // Whoever goes on by hand grants what counts attempts a new start; what the step was told, and what held, stays.
        let (retry, met) = (last.carried.retry.take(), std::mem::take(&mut last.carried.met));
        last.carried = Carried { retry, met, ..Carried::default() };
    }
    facts
}

/// What a reader does with a run: one whose process is gone gets the end and the files that it could not write itself;
/// one that may live is left alone (D61). Blocks.
///
/// `key`: the operator's that signs seals, where whoever reads knows it.
pub fn settle(
    dir: &RunDir,
    clock: &Clock,
    host: &Host,
    key: Option<&Path>,
) -> Result<(RunFacts, Standing), JournalError> {
    let read = journal_file::read(dir)?;
    let known = journal_file::facts_of(&read.lines);
    // A torn line after the end is not a crash's: it is left for `runs verify` to find.
    let torn = std::fs::metadata(dir.events()).is_ok_and(|found| found.len() != read.sound_bytes);
    if known.end.is_some() && (known.sealed.is_some() || torn || was_sealed(dir)) {
        return Ok((known, Standing::Ended));
    }
    let Some(lease) = &known.lease else { return Ok((known, Standing::Running)) };
    if may_live(lease, host, clock) {
        return Ok((known, Standing::Running));
    }
    finalise(dir, clock, key)?;
    Ok((facts(dir)?, Standing::Ended))
}

/// Whether the index of seals has the run: whatever its journal says now, nobody seals it again.
fn was_sealed(dir: &RunDir) -> bool {
    let index = SealIndex::new(dir.state().path()).read();
    index.seals.iter().any(|seal| seal.statement.run_id == dir.run_id)
}

/// What a run's result knows of its journal and is not there, in words. The journal is on disk before the result is
/// written: somebody has taken lines away, and what they said cannot be told from the rest.
pub fn lines_missing(dir: &RunDir, lines: u64) -> Option<String> {
    let result: RunOutput = serde_json::from_slice(&std::fs::read(dir.result()).ok()?).ok()?;
    let named = result.artifacts.events?.last_seq;
    (named > lines).then(|| format!("it ends with line {lines}, and result.json names line {named}"))
}

/// The lease of a run whose process lives, as far as can be told from here.
pub fn living(dir: &RunDir, clock: &Clock, host: &Host) -> Option<LeaseTaken> {
    // Whoever has a result has ended; so that the many that have are not read.
    if dir.result().exists() {
        return None;
    }
    let known = facts(dir).ok().filter(|known| known.end.is_none())?;
    known.lease.filter(|lease| may_live(lease, host, clock))
}

/// Whether the lease that a run took is still held by it.
fn may_live(lease: &LeaseTaken, host: &Host, clock: &Clock) -> bool {
    let holder = lock::peek(Path::new(&lease.lease_file)).and_then(|content| content.holder);
    holder.is_some_and(|holder| {
        holder.instance == lease.instance.as_str() && holder.liveness(host, clock.now()) != Liveness::Dead
    })
}

/// The run that held the lease last, if its process died before its end; finalised on the way. For a `daemon` also one that
/// a shutdown ended, or whose work could not be published: it goes on with those by itself. The caller holds the lease, so
/// nobody writes that journal any more.
pub async fn predecessor(site: &Site, run_id: RunId, daemon: bool) -> Option<Predecessor> {
    let dir = site.state.run(&site.repo, run_id);
    let (clock, key) = (site.clock.clone(), site.config.record.seal_key.clone());
    let (state, repo) = (site.state.clone(), site.repo.clone());
    let found = tokio::task::spawn_blocking(move || {
        let facts = facts(&dir)?;
        let ended_as = |detail| facts.end.as_ref().is_some_and(|end| end.detail == detail);
        let killed = facts.end.is_none() || ended_as(StopDetail::Interrupted);
        if facts.end.is_none() {
            finalise(&dir, &clock, key.as_deref())?;
        }
        if !(killed || daemon && (ended_as(StopDetail::Shutdown) || is_unpublished(&facts))) {
            return Ok(None);
        }
        let (run_id, facts) = with_work(&state, &repo, run_id, facts)?;
        Ok::<_, JournalError>(Some(Predecessor { run_id, facts, killed }))
    })
    .await;
    if let Err(error) = emit(site, run_id).await {
        tracing::warn!(%run_id, %error, "a dead run's record was not fed to the sinks");
    }
    match found {
        Ok(Ok(predecessor)) => predecessor,
        Ok(Err(error)) => {
            tracing::warn!(%run_id, %error, "an earlier run's journal cannot be read; it is left as it is");
            None
        }
        Err(panic) => {
            tracing::error!(%run_id, %panic, "an earlier run could not be looked at");
            None
        }
    }
}

/// A run's facts with what was heard in the visits that it took over from its predecessors: what was claimed in them, and
/// what backs it, is claimed in this run's report.
pub async fn with_predecessors(site: &Site, facts: RunFacts) -> RunFacts {
    let (state, repo, own) = (site.state.clone(), site.repo.clone(), facts.clone());
    let work = tokio::task::spawn_blocking(move || {
        let (mut facts, mut left) = (own, facts.imported);
        let mut before = facts.lease.as_ref().and_then(|lease| lease.previous_run);
        while left > 0 {
            let Some(run_id) = before else { break };
            let Ok(earlier) = self::facts(&state.run(&repo, run_id)) else { break };
            let taken_over = |event: &Event| match event {
                Event::SessionOpened(session) => session.visit as usize <= left,
                Event::ItemRecorded { visit, .. } => *visit as usize <= left,
                Event::ReportCaptured(report) => report.visit as usize <= left,
                Event::ToolFacts { .. } => true,
                _ => false,
            };
            facts.other.splice(0..0, earlier.other.into_iter().filter(|(_, event)| taken_over(event)));
            left = left.min(earlier.imported);
            before = earlier.lease.and_then(|lease| lease.previous_run);
        }
        facts
    });
    work.await.unwrap_or(facts)
}

/// A run that a daemon or a sweep started, whose process died or was told to stop, and that nobody has gone on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// The issue.
    pub number: u64,
    /// What the trigger label, or its absence, says of people's wishes.
    pub begun: Begun,
}

/// How a run was begun, and how far it got with its issue's labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// By the trigger label: where it is off, a person took it off.
    Labelled,
    /// By a sweep, without it.
    Swept,
    /// Without it, to put right what was wrong with the issue's pull request.
    FollowUp,
    /// It had begun to write the labels: it was agentd that took the trigger off.
    Settling,
}

/// What dead processes left of a repository's runs: their ends are written, and those that can be gone on with
/// are given back.
pub async fn tidy(site: &Site) -> Vec<Unfinished> {
    let site = site.clone();
    let tidied = tokio::task::spawn_blocking(move || {
        for dir in site.state.runs(Some(&site.repo)).unwrap_or_default() {
            if !dir.result().exists()
                && let Err(error) =
                    settle(&dir, &site.clock, &site.host, site.config.record.seal_key.as_deref())
            {
                tracing::warn!(run = %dir.run_id, %error, "an earlier run cannot be ended; it is left as it is");
            }
        }
        let leases = site.checkout.lease_files();
        leases.iter().filter_map(|path| unfinished(&site, path)).collect()
    });
    tidied.await.unwrap_or_default()
}

/// An issue whose run on the command line was killed, and that said that it is worked on.
pub struct Left {
    /// The issue.
    pub number: u64,
    /// The run's instance.
    pub instance: InstanceId,
    /// `None`: it says so no longer; else why it still does.
    pub still_shown: Option<String>,
}

/// Takes "working" off the issues whose run on the command line was killed: nobody else would before its lease ends. Gives
/// those that it was on.
pub async fn clear_left(site: &Site) -> Vec<Left> {
    if site.github.is_none() {
        return Vec::new();
    }
    let here = site.clone();
    let left = tokio::task::spawn_blocking(move || {
        let leases = here.checkout.lease_files();
        leases.iter().filter_map(|path| left_by_hand(&here, path)).collect::<Vec<_>>()
    });
    let mut found = Vec::new();
    for (number, instance, run_id) in left.await.unwrap_or_default() {
        let still_shown = match shown_lease::clear(site, number, (&instance, run_id)).await {
            Ok(true) => {
                tracing::info!(repo = %site.repo, number, %instance, "a killed run no longer shows as working");
                None
            }
            Ok(false) => continue,
            Err(error) => {
                tracing::warn!(repo = %site.repo, number, %error, "a killed run still shows as working on its issue");
                Some(error.to_string())
            }
        };
        found.push(Left { number, instance, still_shown });
    }
    found
}

/// A run on the command line that was killed before it had settled its issue.
fn left_by_hand(site: &Site, lease_file: &Path) -> Option<(u64, InstanceId, RunId)> {
    let (last, facts) = last_run(site, lease_file)?;
    let began = facts.lease.as_ref()?;
    let killed = facts.end.as_ref().is_none_or(|end| end.detail == StopDetail::Interrupted);
    let settled = facts.outcome(Effect::Labels).is_some();
    (killed && !settled && began.source == ObjectiveSource::Cli).then_some(())?;
    Some((began.issue.key.number()?, last.instance, last.run_id))
}

/// The last run of a lease that nobody holds.
fn last_run(site: &Site, lease_file: &Path) -> Option<(MappingRecord, RunFacts)> {
    let lease = lock::peek(lease_file)?;
    let now = site.clock.now();
    if lease.holder.is_some_and(|holder| holder.liveness(&site.host, now) != Liveness::Dead) {
        return None;
    }
    let last = mapping_of(&lease.record?)?;
    let facts = facts(&site.state.run(&site.repo, last.run_id)).ok()?;
    Some((last, facts))
}

fn unfinished(site: &Site, lease_file: &Path) -> Option<Unfinished> {
    let (_, facts) = last_run(site, lease_file).filter(|(last, _)| !last.given_up)?;
    let began = facts.lease.as_ref()?;
    let killed = facts.end.as_ref().is_none_or(|end| end.detail == StopDetail::Interrupted);
    let stopped = facts.end.as_ref().is_some_and(|end| end.detail == StopDetail::Shutdown);
    if !(killed || stopped) || began.source == ObjectiveSource::Cli {
        return None;
    }
    // A run that is told to stop with its daemon leaves the labels as they are.
    let settling = killed && facts.effects.iter().any(|(effect, _)| *effect == Effect::Labels);
    let trigger = &site.config.github.labels.trigger;
    let labelled = began.issue.labels.iter().any(|label| label.eq_ignore_ascii_case(trigger));
    let begun = match () {
        () if settling => Begun::Settling,
        () if began.follow_up => Begun::FollowUp,
        () if began.source == ObjectiveSource::Sweep && !labelled => Begun::Swept,
        () => Begun::Labelled,
    };
    Some(Unfinished { number: began.issue.key.number()?, begun })
}

/// The end of a run that was killed when all of it was published, labels last: only the word that it ended was missing.
fn published_end(known: &RunFacts) -> Option<Stop> {
    let whole = known.outcome(Effect::Labels).is_some()
        && known.effects.iter().all(|(_, state)| matches!(state, EffectState::Done(_)));
    let stop = known.flow_end.as_ref().filter(|_| whole)?.stop.clone();
    let judged = known.other.iter().rev().find_map(|(_, event)| match event {
        Event::ClaimsJudged(judged) => Some(judged),
        _ => None,
    });
    Some(judged?.settle(stop))
}

/// Ends a dead run: `interrupted` where it has no end of its own, with result and report folded from what its journal
/// has. Two who do it at once do it in turn.
fn finalise(dir: &RunDir, clock: &Clock, key: Option<&Path>) -> Result<(), JournalError> {
    let failed = |path: &Path, message: String| JournalError { path: path.display().to_string(), message };
    let lock = dir.ending_lock();
    let turn = Turn::wait(&lock, PATIENCE).map_err(|error| failed(&lock, error.to_string()))?;
    let Some(_turn) = turn else {
        return Err(failed(&lock, "another process is ending a run; try again".to_owned()));
    };
    let before = journal_file::read(dir)?;
    if let Some(missing) = lines_missing(dir, before.lines.len() as u64) {
        return Err(failed(&dir.events(), missing));
    }
    if journal_file::facts_of(&before.lines).sealed.is_none() && was_sealed(dir) {
        let lost = "it was sealed, and its end is gone: what it said cannot be written anew";
        return Err(failed(&dir.events(), lost.to_owned()));
    }
    let journal = FileJournal::open(dir.clone(), clock.clone(), no_secrets(dir)?)?;
    let known = journal.facts();
    if known.end.is_none() {
        let interrupted =
            || Stop::new(StopDetail::Interrupted, "The process ended in the middle of the run.");
        for event in in_flight::cut_off(&known, dir.run_id) {
            journal.append(event)?;
        }
        journal.append(Event::RunEnded { stop: published_end(&known).unwrap_or_else(interrupted) })?;
    }
    // What its programs were given may hold what must not stay, such as files of the user's home.
    if let Err(error) = crate::sys::files::remove_dir(&super::enclosure::folder(dir)) {
        tracing::warn!(%error, "the private folder of a dead run's programs stays");
    }
    if known.sealed.is_none() {
        journal.restore_ledger()?;
        report::write_blocking(dir)?;
        seal::seal(&journal, key, clock)?;
    }
    Ok(())
}
