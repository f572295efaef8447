//! After the pull request: failed checks or a conflict start a bounded follow-up run on the same branch. What was answered
//! once starts nothing again; after the cap a person is asked (I28, I29). Merged or closed, the labels say so and the
//! worktree may go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::StreamExt as _;
use tokio::time::Instant;

use super::listen::Ears;
use super::look::POLLED_AT_ONCE;
use super::main_loop::Daemon;
use super::poll::Watch;
use super::pulls::{Cause, PullLook, Wanted, issue_of, issue_of_head};
use super::rounds::{NEEDS_WORK, NotPrepared, base_changed};
use super::snapshot::IssueRef;
use super::state_format::{ClosedPull, Followed, IssueMemory, TriedRound};
use super::unread::List;
use crate::conversation::inbox::Inboxes;
use crate::domain::canonical::sha256_hex;
use crate::domain::head_check::CheckOutcome;
use crate::domain::issue_state::{IssueState, LabelsTable};
use crate::domain::name::RepoName;
use crate::github::{Client, Error, Fetched, IssueSnapshot, Pull};
use crate::issue::cut_off_runs::BegunBy;
use crate::issue::unwanted;

/// How often checks of a pull request are read. It is every second poll if that is more often.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// So many pull requests are looked at one by one, which costs nothing while they do not change. More are asked for together.
const FEW: usize = 5;
/// How often the pages of a long list after the first are read where the first does not change.
const WHOLE_LIST: Duration = Duration::from_secs(600);
/// For so long it is remembered what the labels said before a pull request was closed.
const CLOSED_KEPT: TimeDelta = TimeDelta::days(90);

/// What is wrong with a pull request, in words that name it, and the text for the next run.
#[derive(Debug, Default)]
pub(super) struct PullFindings {
    named: Vec<String>,
    pub(super) told: String,
    pub(super) conflicts: bool,
}

impl PullFindings {
    /// Of what is wrong; empty = nothing is.
    pub(super) fn fingerprint(&self) -> String {
        if self.named.is_empty() { String::new() } else { sha256_hex(self.named.join("\n").as_bytes()) }
    }
}

impl Watch {
    /// Reads the list of open pull requests.
    pub(super) async fn read_pulls(&mut self, client: &Client) {
        if !self.unread.may_ask(List::Pulls) || !self.is_fresh() {
            return;
        }
        let whole = self.pulls.whole_at.is_none_or(|at| at.elapsed() >= WHOLE_LIST);
        self.activity.requests += 1;
        match client.list_pulls(&self.watched.name, &mut self.pulls.listed, whole).await {
            Ok(changed) => {
                self.unread.given(&self.watched.name, List::Pulls);
                if changed || whole {
                    self.pulls.whole_at = Some(Instant::now());
                }
                if changed {
                    self.activity.changed();
                    self.take_pulls();
                }
            }
            Err(error) => self.no_pulls(&error),
        }
    }

    /// Looks at single pull requests: at those that are listed no longer, and, if follow-up runs are wanted, at those whose
    /// issues have no run.
    pub(super) async fn look_at_pulls(
        &mut self,
        client: &Client,
        busy: &BTreeMap<u64, BegunBy>,
        looks: &Looks,
        now: DateTime<Utc>,
    ) {
        if !self.unread.may_ask(List::Pulls) || !self.is_fresh() {
            return;
        }
        let read = async {
            self.find_over(client, busy, looks.pause, now).await?;
            if looks.wanted { self.look_at_open(client, busy, looks, now).await } else { Ok(()) }
        };
        if let Err(error) = read.await {
            self.no_pulls(&error);
        }
    }

    fn no_pulls(&mut self, error: &Error) {
        self.unread.failed(&self.watched.name, List::Pulls, error);
        tracing::debug!(repo = %self.watched.name, %error, "the pull requests could not be read");
    }

    /// What of the list is agentd's. The end of a run may show it: people may have written the text anew since the list was read.
    pub(super) fn take_pulls(&mut self) {
        let mut own: BTreeMap<u64, Pull> = BTreeMap::new();
        for pull in self.pulls.listed.all() {
            // Of one that it has followed, people may have written the text anew.
            let known =
                |issue: &u64| self.state.issues.get(issue).is_some_and(|of| of.pull == Some(pull.number));
            let Some(issue) = issue_of(pull).or_else(|| issue_of_head(pull).filter(known)) else { continue };
            // People may open others from the branch. The known one counts, else the newest.
            let known = self.state.issues.get(&issue).and_then(|memory| memory.pull);
            let rank = |pull: &Pull| (known == Some(pull.number), pull.number);
            if own.get(&issue).is_none_or(|other| rank(other) < rank(pull)) {
                own.insert(issue, pull.clone());
            }
        }
        for (issue, pull) in &own {
            // Who puts the label on while it goes elsewhere wants it there.
            let is_asked_for = self.candidate(*issue).is_some();
            let memory = self.state.issues.entry(*issue).or_default();
            if memory.pull != Some(pull.number) || memory.base.is_none() || is_asked_for {
                memory.base = Some(pull.base.clone());
            }
            memory.pull = Some(pull.number);
            if memory.closed.as_ref().is_some_and(|closed| closed.pull == pull.number) {
                self.pulls.reopened.insert(*issue);
            }
        }
        self.pulls.take(own.into_values().collect());
    }

    /// What is no longer among the open ones was merged or closed, or the list is too long for it.
    async fn find_over(
        &mut self,
        client: &Client,
        busy: &BTreeMap<u64, BegunBy>,
        pause: Duration,
        now: DateTime<Utc>,
    ) -> Result<(), Error> {
        let listed = |number: u64| self.pulls.open.iter().any(|pull| pull.number == number);
        let gone: Vec<(u64, u64)> = self
            .state
            .issues
            .iter()
            // Who has the work may have merged it: what follows from that waits until it is given back.
            .filter(|(_, memory)| !memory.taken)
            .filter_map(|(issue, memory)| Some((*issue, memory.pull?)))
            // A run that the trigger label asked for is wanted whatever becomes of the pull request. A follow-up run is not, nor one
            // that goes on with it.
            .filter(|(issue, _)| {
                busy.get(issue).is_none_or(|begun| matches!(begun, BegunBy::FollowUp | BegunBy::GoesOn))
            })
            .filter(|(_, pull)| !listed(*pull))
            .filter(|(_, pull)| self.pulls.is_due(*pull, pause, now))
            .collect();
        for (issue, number) in gone {
            let over = match client.pull(&self.watched.name, number).await {
                Ok(pull) if pull.open => {
                    self.pulls.looked.insert(number, PullLook::nothing(now));
                    continue;
                }
                Ok(pull) => pull.merged,
                Err(error) if error.is_absent() => false,
                Err(error) => return Err(error),
            };
            self.pulls.looked.remove(&number);
            self.pulls.over.insert(issue, over);
        }
        Ok(())
    }

    async fn look_at_open(
        &mut self,
        client: &Client,
        busy: &BTreeMap<u64, BegunBy>,
        looks: &Looks,
        now: DateTime<Utc>,
    ) -> Result<(), Error> {
        let mut due: Vec<Pull> = Vec::new();
        for (issue, pull) in self.pulls.followed() {
            let memory = self.state.issues.get(&issue);
            let pending = memory.is_some_and(|memory| memory.pending_outcome.is_some());
            let taken = memory.is_some_and(|memory| memory.taken);
            let free = !busy.contains_key(&issue) && !pending && !taken && self.candidate(issue).is_none();
            let rested = match looks.many {
                true => self.pulls.has_rested(pull.number, now),
                false => self.pulls.is_due(pull.number, looks.pause, now),
            };
            if free && rested {
                due.push(pull.clone());
            }
        }
        if looks.many {
            return self.look_at_heads(client, &due, looks.pause, now).await;
        }
        for pull in due {
            let looked = self.pulls.looked.entry(pull.number).or_insert_with(|| PullLook::nothing(now));
            looked.at = now;
            if client.look_at_pull(&self.watched.name, &pull, &mut looked.state).await? {
                looked.answered = false;
            }
        }
        Ok(())
    }
}

/// Pull requests that were closed long ago are not opened again.
fn forget_closed(issues: &mut BTreeMap<u64, IssueMemory>, now: DateTime<Utc>) {
    for memory in issues.values_mut() {
        memory.closed.take_if(|closed| now - closed.at > CLOSED_KEPT);
    }
    issues.retain(|_, memory| !memory.is_empty());
}

/// Whether what is wrong with the pull request of an issue is agentd's: unless the issue is closed, or a label says that something else
/// than its good end became of it. Where people took off the label of that, or have none of its name, the pull request is still there.
fn is_to_follow(seen: &IssueSnapshot, labels: &LabelsTable) -> bool {
    let mut others = labels.others(IssueState::Done).chain([labels.trigger.as_str()]);
    seen.issue.open && (seen.has_label(&labels.done) || !others.any(|other| seen.has_label(other)))
}

/// How pull requests are looked at.
pub(super) struct Looks {
    /// Whether follow-up runs are wanted.
    wanted: bool,
    /// How long each one is left alone.
    pause: Duration,
    /// Whether there are so many that single ones cost too much.
    many: bool,
}

impl Daemon {
    /// Looks at the open pull requests of finished issues. True = something is to be started.
    pub(super) async fn follow_pulls(&mut self, now: DateTime<Utc>, looked: &BTreeSet<RepoName>) -> bool {
        let client = self.quick_client();
        let looks = self.looks();
        let busy = self.busy();
        let nobody = BTreeMap::new();
        let reads =
            self.watches.iter_mut().filter(|watch| looked.contains(&watch.watched.name)).map(|watch| {
                let busy = busy.get(&watch.watched.name).unwrap_or(&nobody);
                watch.look_at_pulls(&client, busy, &looks, now)
            });
        futures::stream::iter(reads).buffer_unordered(POLLED_AT_ONCE).collect::<Vec<()>>().await;
        let repos: Vec<RepoName> = self.watches.iter().map(|watch| watch.watched.name.clone()).collect();
        let mut starts = false;
        for repo in repos {
            let Some(watch) = self.watch_of(&repo) else { continue };
            let over = std::mem::take(&mut watch.pulls.over);
            let reopened = std::mem::take(&mut watch.pulls.reopened);
            let unanswered = watch.pulls.unanswered();
            for (number, merged) in over {
                let issue = IssueRef { repo: repo.clone(), number };
                if let Some(live) = self.supervisor.get(&issue) {
                    // What follows from it comes once the run has ended.
                    tracing::info!(%issue, merged, "the pull request is over: asking its follow-up run to stop");
                    live.control.stop(unwanted::pull_request_over(merged));
                    continue;
                }
                if !self.hear_last(&issue).await || !self.tell_unbegun(&issue, merged).await {
                    // It is looked at once more.
                    continue;
                }
                self.drop_waiting(&issue).await;
                self.is_over(&issue, merged);
            }
            for number in reopened {
                let issue = IssueRef { repo: repo.clone(), number };
                if let Err(error) = self.is_open_again(&issue).await {
                    tracing::debug!(%issue, %error, "the issue of a pull request that was opened again could not be read");
                }
            }
            for (number, pull) in unanswered {
                let issue = IssueRef { repo: repo.clone(), number };
                match self.answer_pull(&issue, &pull).await {
                    Ok(started) => starts |= started,
                    Err(error) => tracing::debug!(%issue, %error, "the pull request could not be looked at"),
                }
            }
        }
        self.empty_outbox().await;
        starts
    }

    /// How pull requests are looked at in this tick.
    fn looks(&self) -> Looks {
        let open: usize = self.watches.iter().map(|watch| watch.pulls.open.len()).sum();
        let pause = LONGEST_PAUSE.min(self.deps.poll_interval * 2);
        Looks { wanted: self.deps.max_follow_ups > 0, pause, many: open > FEW }
    }

    /// The issues whose runs work, with what asked for them, by repository.
    pub(super) fn busy(&self) -> BTreeMap<RepoName, BTreeMap<u64, BegunBy>> {
        let mut busy: BTreeMap<RepoName, BTreeMap<u64, BegunBy>> = BTreeMap::new();
        for (issue, live) in self.supervisor.runs() {
            busy.entry(issue.repo.clone()).or_default().insert(issue.number, live.begun);
        }
        busy
    }

    /// Merged means done. Closed without a merge means that somebody decided against the work, and a sweep does not
    /// begin it again.
    fn is_over(&mut self, issue: &IssueRef, merged: bool) {
        let now = self.deps.clock.now();
        let Some(watch) = self.watch_of(&issue.repo) else { return };
        // A follow-up run that waits has nothing to follow any more.
        if watch.pulls.wanted.remove(&issue.number).is_some() {
            watch.drop_swept(issue.number);
        }
        let asked_again = watch.candidate(issue.number).is_some();
        forget_closed(&mut watch.state.issues, now);
        let memory = watch.state.issues.entry(issue.number).or_default();
        let pull = memory.pull.take();
        memory.base = None;
        memory.reviews_read = None;
        memory.followed = None;
        memory.out_of_money = None;
        if !asked_again {
            let parked = memory.parked.take();
            memory.closed = pull.filter(|_| !merged).map(|pull| ClosedPull::new(pull, now, parked));
            let (state, code) = match merged {
                true => (IssueState::Done, "pull_request_merged"),
                false => (IssueState::Failed, "pull_request_closed"),
            };
            tracing::info!(%issue, code, "the pull request is over");
            self.plan_outcome(issue, state, code, None);
        }
        self.over.notify_one();
    }

    /// A pull request that was closed is open again: its issue's labels say what they said before, unless somebody has changed
    /// them since, and it is followed as before.
    async fn is_open_again(&mut self, issue: &IssueRef) -> Result<(), Error> {
        let (client, failed) = (self.quick_client(), self.deps.labels.failed.clone());
        let fresh = client.issue(&issue.repo, issue.number).await;
        let Some(watch) = self.watch_of(&issue.repo) else { return Ok(()) };
        let fresh = fresh.inspect_err(|_| {
            watch.pulls.reopened.insert(issue.number);
        })?;
        let asked_again = watch.candidate(issue.number).is_some();
        let Some(memory) = watch.state.issues.get_mut(&issue.number) else { return Ok(()) };
        let Some(closed) = memory.closed.take() else { return Ok(()) };
        if !fresh.issue.open || asked_again {
            return Ok(());
        }
        tracing::info!(%issue, pull = closed.pull, code = "pull_request_reopened", "the pull request is open again");
        match closed.before {
            // What was planned when it was closed is not written yet.
            None => memory.pending_outcome = None,
            Some(before)
                if before != IssueState::Failed && (fresh.has_label(&failed) || memory.is_to_fail()) =>
            {
                self.plan_outcome(issue, before, "pull_request_reopened", None);
                if let Some(watch) = self.watch_of(&issue.repo) {
                    watch.state.issues.entry(issue.number).or_default().parked = closed.parked;
                }
            }
            Some(_) => {}
        }
        self.save();
        Ok(())
    }

    /// Tells whoever asked for a run that the pull request was merged or closed before it began. False = GitHub does not answer now.
    async fn tell_unbegun(&mut self, issue: &IssueRef, merged: bool) -> bool {
        match self.refuse_over(issue, merged).await {
            Ok(()) => true,
            Err(NotPrepared::GitHub(error)) if error.is_transient() => {
                tracing::warn!(%issue, %error, "that the pull request is over could not be told yet; it is tried again");
                false
            }
            Err(error) => {
                tracing::warn!(%issue, %error, "whoever asked for a run is not told that the pull request is over");
                true
            }
        }
    }

    /// Hears what was sent as a review before the pull request was over and after the last look. False = GitHub does not answer now.
    async fn hear_last(&mut self, issue: &IssueRef) -> bool {
        let (client, now) = (self.quick_client(), self.deps.clock.now());
        let inboxes = Inboxes::new(&self.deps.state, &issue.repo);
        let (table, busy) = (&self.deps.conversation, BTreeMap::new());
        let has_nodes = self.cluster.assignments.is_some();
        let ears = Ears { client: &client, table, inboxes: &inboxes, busy: &busy, now, has_nodes };
        let mut watches = self.watches.iter_mut();
        let Some(watch) = watches.find(|watch| watch.watched.name == issue.repo) else { return true };
        match watch.hear_last_reviews(ears, issue.number).await {
            Ok(true) => {}
            Ok(false) => return true,
            Err(error) => {
                tracing::debug!(%issue, %error, "the last reviews of a pull request could not be read");
                return !error.is_transient();
            }
        }
        self.attend_now(issue).await;
        true
    }

    /// Nobody is told any more what was said of a pull request that is over.
    async fn drop_waiting(&mut self, issue: &IssueRef) {
        let dropped = self.inbox(issue).update(|inbox| inbox.leave_all_out("the pull request is over")).await;
        if let Err(error) = dropped {
            tracing::warn!(%issue, %error, "what was said of a pull request that is over is left behind");
        }
        if let Err(error) = self.end_round_parked(issue).await {
            tracing::warn!(%issue, %error, "what a follow-up run waits for is left behind");
        }
        if let Err(error) = self.end_round_calls(issue).await {
            tracing::warn!(%issue, %error, "what waits for an approval is left behind");
        }
        if let Some(watch) = self.watch_of(&issue.repo) {
            watch.state.attend.remove(&issue.number);
        }
    }

    /// Starts a run for what is wrong, or asks a person. True = a run is to be started.
    async fn answer_pull(&mut self, issue: &IssueRef, pull: &Pull) -> Result<bool, Error> {
        // Whether it is agentd's comes first: what is a person's, or closed, is read once and costs nothing while nobody changes that.
        let to_follow = match self.is_anything_wrong(issue, pull) {
            false => None,
            true => match self.issue_to_follow(issue, pull).await? {
                None => return Ok(false),
                followed => followed,
            },
        };
        let weighed = self.weigh_checks(issue, pull).await?;
        let findings = self.findings(pull, issue, &weighed.starting);
        let fingerprint = findings.fingerprint();
        let most = self.deps.max_follow_ups;
        let most_of_all = self.deps.conversation.max_rounds;
        let Some(watch) = self.watch_of(&issue.repo) else { return Ok(false) };
        let base = watch.state.issues.get(&issue.number).and_then(|memory| memory.base.clone());
        let followed = watch.state.issues.get(&issue.number).and_then(|memory| memory.followed.clone());
        let followed = followed.unwrap_or_default();
        let Some(looked) = watch.pulls.looked_mut(pull.number) else { return Ok(false) };
        if let Some((code, text)) = weighed.asks {
            looked.answered = true;
            self.hold_back(issue, code, text);
            return Ok(false);
        }
        if findings.named.is_empty() || followed.fingerprint == fingerprint {
            // What still runs is waited for.
            looked.answered = !weighed.waits;
            return Ok(false);
        }
        looked.answered = true;
        let Some(fresh) = to_follow else { return Ok(false) };
        if base.as_ref().is_some_and(|base| *base != pull.base) {
            let text = base_changed(pull, base.as_deref().unwrap_or_default());
            self.hold_back(issue, "base_changed", text);
            return Ok(false);
        }
        if followed.rounds >= most || followed.all >= most_of_all {
            let runs = if followed.all >= most_of_all { most_of_all } else { most };
            let memory = watch.state.issues.entry(issue.number).or_default();
            memory.followed = Some(Followed { fingerprint, ..followed });
            let text = format!(
                "The pull request {} {NEEDS_WORK} {runs} follow-up runs: {}.",
                pull.url,
                findings.named.join("; ")
            );
            self.plan_outcome(issue, IssueState::Attention, "follow_up_cap", Some(text));
            return Ok(false);
        }
        tracing::info!(%issue, pull = pull.number, findings = findings.named.join("; "), "a follow-up run");
        watch.recover(fresh);
        let PullFindings { told, conflicts, .. } = findings;
        let tried = TriedRound::of(None, pull);
        let (cause, remarks, mends) = (Cause::Checks, Vec::new(), weighed.mends);
        let since = Instant::now();
        let wanted = Wanted { told, fingerprint, conflicts, cause, remarks, tried, mends, since };
        watch.pulls.wanted.insert(issue.number, wanted);
        Ok(true)
    }

    /// Whether the last look at a pull request showed anything that a run or a person is to do something about.
    fn is_anything_wrong(&mut self, issue: &IssueRef, pull: &Pull) -> bool {
        let looked = self.watch_of(&issue.repo).and_then(|watch| watch.pulls.looked_mut(pull.number));
        looked.is_some_and(|looked| {
            let mut checks = looked.state.checks();
            looked.state.mergeable() == Some(false)
                || checks.any(|check| check.failure().is_some() || check.outcome == CheckOutcome::AsksPerson)
        })
    }

    /// The issue of a pull request, if what is wrong there is agentd's. An unchanged one costs nothing.
    async fn issue_to_follow(
        &mut self,
        issue: &IssueRef,
        pull: &Pull,
    ) -> Result<Option<IssueSnapshot>, Error> {
        let client = self.quick_client();
        let looked = self.watch_of(&issue.repo).and_then(|watch| watch.pulls.looked_mut(pull.number));
        let known = looked.and_then(|looked| looked.issue.clone());
        let tag = known.as_ref().and_then(|(_, tag)| tag.clone());
        let read = client.issue_if_changed(&issue.repo, issue.number, tag.as_deref()).await;
        let Some(watch) = self.watch_of(&issue.repo) else { return Ok(None) };
        let became = read.as_ref().err().and_then(|error| watch.pulls.what_became(issue.number, error));
        let Some(looked) = watch.pulls.looked_mut(pull.number) else { return Ok(None) };
        // Nothing is asked again before something of the pull request changes.
        looked.answered |= became.is_some();
        let seen = match read {
            Ok(Fetched::Fresh(fresh, etag)) => {
                looked.issue = Some((fresh.clone(), etag));
                Some(fresh)
            }
            Ok(Fetched::Unchanged) => known.map(|(seen, _)| seen),
            Err(_) if became.is_some() => return Ok(None),
            Err(error) => return Err(error),
        };
        watch.pulls.not_found.remove(&issue.number);
        Ok(seen.filter(|seen| is_to_follow(seen, &self.deps.labels)))
    }

    /// What is wrong with a pull request, as it was looked at last; `checks` = the failed ones that want a run.
    pub(super) fn findings(&mut self, pull: &Pull, issue: &IssueRef, checks: &[String]) -> PullFindings {
        let looked = self.watch_of(&issue.repo).and_then(|watch| watch.pulls.looked_mut(pull.number));
        let Some(state) = looked.map(|looked| looked.state.clone()) else { return PullFindings::default() };
        let mut found = PullFindings::default();
        // The run reads them itself.
        found.named.extend(checks.iter().map(|name| format!("check {name} failed at {}", pull.head_sha)));
        if state.mergeable() == Some(false) {
            found.named.push(format!("{} conflicts with {}", pull.head_sha, pull.base));
            found.told.push_str(&format!(
                "The pull request conflicts with its base branch {}. That branch was merged into the files here; where both \
                 sides changed the same lines, Git's conflict markers (<<<<<<<, =======, >>>>>>>) stand. Search for them, \
                 make the change fit what is there now, and leave no marker.\n\n",
                pull.base
            ));
            found.conflicts = true;
        }
        found
    }
}
