//! Ends that say nothing of the issue and would meet every other run as well: the day's money is used up, no model answers, nothing can
//! be published, or the state directory cannot be read or written. Runs of the repository wait then, and the one that met it is gone on with.

use chrono::{DateTime, Days, NaiveTime, TimeDelta, Utc};

use super::main_loop::Daemon;
use super::outcome::RunSummary;
use super::poll::Watch;
use super::snapshot::IssueRef;
use super::start_rules::in_one_sentence;
use super::state_format::{AskedBy, GoesOn, IssueMemory, Pause, PauseCause, Suspicion};
use crate::domain::issue::IssueKey;
use crate::domain::mapping::{branch_of, worktree_of};
use crate::domain::run::RunId;
use crate::domain::stop::{StopDetail, StopReason};
use crate::engine::budget::is_beyond_the_run;
use crate::engine::shortage::is_of_the_day;
use crate::engine::turn::is_of_the_request;
use crate::github::Error;
use crate::lifecycle::origin;

/// The first pause after an end for which a service did not answer, and the longest.
const FIRST: TimeDelta = TimeDelta::minutes(1);
const LONGEST: TimeDelta = TimeDelta::minutes(30);
/// How often such a run is gone on with by itself.
const MOST: u32 = 8;

impl PauseCause {
    /// Why runs of the repository wait after an end.
    pub(super) fn of(summary: &RunSummary) -> Option<Self> {
        if is_of_the_day(&summary.stop) {
            return Some(Self::Day);
        }
        if summary.unpublished {
            return Some(Self::Remote);
        }
        if summary.stop.detail == StopDetail::OutputWriteFailed {
            return Some(Self::State);
        }
        // A model answers, and has nothing against other requests. A second issue that meets the same says that it has: `Suspicion`.
        if is_of_the_request(&summary.stop) {
            return None;
        }
        // Nothing that is a reply came, or a limit of requests lasts longer than a run.
        let unanswered = summary.failed_before_work
            && matches!(summary.stop.detail, StopDetail::InvalidModelOutput | StopDetail::MaxWallTime);
        (summary.stop.detail.is_for_want_of_a_model() || unanswered || is_beyond_the_run(&summary.stop))
            .then_some(Self::Model)
    }
}

impl Suspicion {
    /// Of an end that may be the host's: before anything was worked on, so that trying again costs nothing.
    fn of(issue: u64, summary: &RunSummary) -> Option<Self> {
        let stop = &summary.stop;
        let may_be = match stop.detail {
            StopDetail::ConfigInvalid | StopDetail::McpUnavailable => {
                summary.run_id.is_none() || summary.failed_before_work
            }
            // A setting that no request gets past, perhaps.
            StopDetail::LlmUnavailable => is_of_the_request(stop) && summary.failed_before_work,
            // Its worktree could not be made. What is refused before there is a run keeps its label, and is tried again.
            StopDetail::GitError => summary.run_id.is_some() && summary.failed_before_work,
            StopDetail::OriginMissing => origin::is_of_the_configuration(stop),
            _ => false,
        };
        let text = without_what_differs(&stop.message, &IssueKey::Number(issue));
        may_be.then_some(Self { issue, detail: stop.detail, text })
    }

    /// Whether another issue has ended for the same.
    fn is_confirmed_by(&self, other: &Self) -> bool {
        self.issue != other.issue && (self.detail, &self.text) == (other.detail, &other.text)
    }
}

impl Pause {
    /// After one more end for this; `before`: the last pause, as long as no run ended otherwise. Runs that met the same while it holds make
    /// it no longer: they are one try.
    fn after(before: Option<&Self>, cause: PauseCause, text: &str, now: DateTime<Utc>) -> Self {
        let before = before.filter(|before| before.cause == cause);
        if let Some(holds) = before.filter(|before| before.holds(now)) {
            return holds.clone();
        }
        let times = before.map_or(0, |before| before.times) + 1;
        let until = match cause {
            PauseCause::Day => next_day(now),
            PauseCause::Model | PauseCause::Remote | PauseCause::State | PauseCause::Host => {
                now + pause_length(times)
            }
        };
        Self { cause, until, text: text.to_owned(), times }
    }

    /// Whether it is over for a daemon that started then: what is of the host may have been mended since, and what is exported to a process
    /// is mended by no other way.
    pub(super) fn ends_with_start(&self, started_at: DateTime<Utc>) -> bool {
        match self.cause {
            PauseCause::Host => self.until - pause_length(self.times) < started_at,
            PauseCause::Day | PauseCause::Model | PauseCause::Remote | PauseCause::State => false,
        }
    }

    /// The reason code of what waits.
    pub fn code(&self) -> &'static str {
        match self.cause {
            PauseCause::Day => "day_budget_spent",
            PauseCause::Model => "model_unavailable",
            PauseCause::Remote => "remote_unavailable",
            PauseCause::State => "state_unusable",
            PauseCause::Host => "host_not_ready",
        }
    }

    /// What people can do.
    pub fn remedy(&self) -> &'static str {
        match self.cause {
            PauseCause::Day => "wait, or raise budgets.max_cost_per_day: the daemon reads it again",
            PauseCause::Model => "agentd doctor asks the model; the daemon tries again by itself",
            PauseCause::Remote => {
                "wait; the daemon publishes what is done by itself, and agentd doctor tries the remote"
            }
            PauseCause::State => {
                "agentd doctor looks at the state directory; the daemon tries again by itself"
            }
            PauseCause::Host => {
                "mend what it names, agentd doctor looks at it; the daemon tries again by itself, and at once when the configuration changes or it is \
                 started again"
            }
        }
    }

    /// Whether it holds. A clock that was set back does not make it longer.
    pub fn holds(&self, now: DateTime<Utc>) -> bool {
        let longest = match self.cause {
            PauseCause::Day => TimeDelta::days(1),
            PauseCause::Model | PauseCause::Remote | PauseCause::State | PauseCause::Host => LONGEST,
        };
        self.until > now && self.until - now <= longest
    }

    /// When it ends, for people.
    fn shown_end(&self) -> String {
        self.until.format("%Y-%m-%d %H:%M UTC").to_string()
    }

    /// Whether it is one for an issue: what a run has only to publish costs nothing, and may be tried whenever somebody asks.
    pub(super) fn is_for(&self, issue: &IssueMemory) -> bool {
        self.cause != PauseCause::Remote || issue.goes_on.is_none()
    }
}

impl GoesOn {
    /// When that is, for people.
    pub fn when(&self, now: DateTime<Utc>) -> String {
        match self.at > now {
            true => format!("at {}", self.at.format("%Y-%m-%dT%H:%M:%SZ")),
            false => "behind another one that ended for the same".to_owned(),
        }
    }
}

/// A message without what is of one issue alone: its branch, its worktree and what is in that, and numbers, which are of issues, ports and
/// times.
fn without_what_differs(message: &str, key: &IssueKey) -> String {
    let own = [branch_of(key).to_string(), worktree_of(key)];
    let words = message.split_inclusive(char::is_whitespace).map(|word| {
        let begins = own.iter().filter_map(|own| word.find(own.as_str())).min();
        begins.map_or(word, |begins| &word[..begins])
    });
    words.flat_map(str::chars).filter(|c| !c.is_ascii_digit()).collect()
}

/// How long a pause is after so many ends for the same.
fn pause_length(times: u32) -> TimeDelta {
    (FIRST * (1 << times.saturating_sub(1).min(16))).min(LONGEST)
}

fn next_day(now: DateTime<Utc>) -> DateTime<Utc> {
    let day = now.date_naive().checked_add_days(Days::new(1)).unwrap_or(now.date_naive());
    day.and_time(NaiveTime::MIN).and_utc()
}

/// For whom a run is gone on with.
#[derive(Debug, Clone, Copy)]
pub(super) enum WorksFor<'a> {
    /// For who asked for it.
    Person(&'a AskedBy),
    /// For a sweep.
    Sweep,
}

impl WorksFor<'_> {
    fn asked_by(self) -> Option<AskedBy> {
        match self {
            Self::Person(by) => Some(by.clone()),
            Self::Sweep => None,
        }
    }
}

impl Daemon {
    /// Notes what the end of a run says of all others. `whom`: for whom it is gone on with; `None` = something else begins it again.
    ///
    /// True = nothing was begun, and the issue waits with all others: it is nothing of the issue.
    pub(super) fn heed_end(
        &mut self,
        issue: &IssueRef,
        summary: &RunSummary,
        whom: Option<WorksFor<'_>>,
    ) -> bool {
        let now = self.deps.clock.now();
        let is_of_host = self.suspect(issue, summary);
        let Some(run_id) = summary.run_id else {
            if is_of_host {
                self.pause(issue, PauseCause::Host, summary, now);
            }
            return is_of_host;
        };
        self.heed_run(issue, (run_id, summary), whom, is_of_host);
        false
    }

    /// Why no run of an issue begins yet, for people; `None` = no pause holds.
    pub(super) fn begins_later(&self, issue: &IssueRef) -> Option<String> {
        let pause = self.pause_for(issue)?;
        Some(format!("No run begins before {}: {}", pause.shown_end(), pause.text))
    }

    /// Until when the money of the day holds the runs of an issue.
    pub(super) fn waits_for_the_day(&self, issue: &IssueRef) -> Option<String> {
        self.pause_for(issue).filter(|pause| pause.cause == PauseCause::Day).map(Pause::shown_end)
    }

    fn pause_for(&self, issue: &IssueRef) -> Option<&Pause> {
        let (now, mut watches) = (self.deps.clock.now(), self.watches.iter());
        let state = &watches.find(|watch| watch.watched.name == issue.repo)?.state;
        let is_for =
            |pause: &&Pause| state.issues.get(&issue.number).is_none_or(|memory| pause.is_for(memory));
        state.pause.as_ref().filter(|pause| pause.holds(now)).filter(is_for)
    }

    /// Notes an end that may be of the host. True = it is, since another issue has ended so as well.
    fn suspect(&mut self, issue: &IssueRef, summary: &RunSummary) -> bool {
        let Some(watch) = self.watch_of(&issue.repo) else { return false };
        let Some(now) = Suspicion::of(issue.number, summary) else {
            if summary.run_id.is_some() {
                watch.state.suspicion = None;
            }
            return false;
        };
        let before = watch.state.suspicion.as_ref();
        if before.is_some_and(|before| before.is_confirmed_by(&now)) {
            return true;
        }
        watch.state.suspicion = Some(now);
        false
    }

    fn pause(&mut self, issue: &IssueRef, cause: PauseCause, summary: &RunSummary, now: DateTime<Utc>) {
        let Some(watch) = self.watch_of(&issue.repo) else { return };
        // The money of the day on which the run met its end: another day may have begun while the work was verified and published.
        let met = summary.flow_ended_at.filter(|_| cause == PauseCause::Day).unwrap_or(now);
        let pause = Pause::after(watch.state.pause.as_ref(), cause, &summary.stop.message, met);
        if pause.holds(now) {
            let why = in_one_sentence(&pause.text);
            tracing::warn!(repo = %issue.repo, until = %pause.until, why, "no run begins before then");
        }
        watch.state.pause = Some(pause);
    }

    fn heed_run(
        &mut self,
        issue: &IssueRef,
        (run_id, summary): (RunId, &RunSummary),
        whom: Option<WorksFor<'_>>,
        is_of_host: bool,
    ) {
        let now = self.deps.clock.now();
        // That one waits for room, and so do all others.
        if self.cut_off_by_full_disk(issue, summary) {
            return;
        }
        let Some(watch) = self.watch_of(&issue.repo) else { return };
        let memory = watch.state.issues.entry(issue.number).or_default();
        let tries = memory.goes_on.take().map_or(0, |before| before.tries);
        let of_host = is_of_host.then_some(PauseCause::Host);
        let Some(cause) = PauseCause::of(summary).or(of_host) else {
            // A run that ended otherwise says that a model answers, and nothing of the day's money: it may have set some aside before. One that
            // reached its objective, or has a draft, has published what it did.
            let is_over = |pause: &mut Pause| match pause.cause {
                PauseCause::Day => false,
                PauseCause::Model | PauseCause::State | PauseCause::Host => true,
                PauseCause::Remote => {
                    let is_draft = summary.stop.reason() == StopReason::NoEvidence;
                    summary.stop.success() || (is_draft && summary.pull_request.is_some())
                }
            };
            watch.state.pause.take_if(is_over);
            return;
        };
        self.pause(issue, cause, summary, now);
        let Some(watch) = self.watch_of(&issue.repo) else { return };
        let Some(until) = watch.state.pause.as_ref().map(|pause| pause.until) else { return };
        if let Some(whom) = whom.filter(|_| cause == PauseCause::Day || tries < MOST) {
            let goes_on =
                GoesOn { run_id, at: until, by: whom.asked_by(), tries: tries + 1, is_queued: false };
            watch.state.issues.entry(issue.number).or_default().goes_on = Some(goes_on);
        }
    }

    /// Queues the runs whose pause is over.
    pub(super) async fn go_on_after_pauses(&mut self) {
        let now = self.deps.clock.now();
        let mut due = Vec::new();
        for watch in self.watches.iter().filter(|watch| watch.is_fresh()) {
            let repo = &watch.watched.name;
            // It is over before its time where the cause is: a day's cap was raised, a model answers again.
            let is_over = watch.state.pause.is_none();
            let ended = watch.state.issues.iter().filter_map(|(number, memory)| {
                let ended = memory.goes_on.as_ref().filter(|_| memory.pending_outcome.is_none())?;
                ((is_over || ended.at <= now) && !ended.is_queued)
                    .then(|| (IssueRef { repo: repo.clone(), number: *number }, ended.clone()))
            });
            match watch.state.pause.as_ref().map(|pause| pause.cause) {
                Some(PauseCause::Day) if !self.goes_on_with_another(watch, now) => due.extend(ended.take(1)),
                Some(PauseCause::Day) => {}
                _ => due.extend(ended),
            }
        }
        for (issue, ended) in due {
            if self.supervisor.get(&issue).is_some() {
                continue;
            }
            let queued = match ended.by.clone() {
                Some(by) => self.queue_again(&issue, by).await,
                None => self.sweep_again(&issue).await,
            };
            let queued = match queued {
                Ok(queued) => queued,
                Err(error) if error.is_absent() => false,
                Err(error) => {
                    tracing::warn!(%issue, %error, "a run whose pause is over could not be gone on with yet; it is tried again");
                    continue;
                }
            };
            tracing::info!(%issue, queued, "the pause is over");
            if let Some(watch) = self.watch_of(&issue.repo) {
                watch.went_on = Some(now).filter(|_| queued);
                let memory = watch.state.issues.entry(issue.number).or_default();
                memory.resume = queued.then_some(ended.run_id);
                memory.goes_on = queued.then_some(GoesOn { is_queued: true, ..ended });
            }
            self.save();
        }
    }

    /// Whether one of the runs that the day's money ended is gone on with now. They began side by side and used it up together: again at
    /// once, none of them would come to its end on the new day either.
    fn goes_on_with_another(&self, watch: &Watch, now: DateTime<Utc>) -> bool {
        let begins = TimeDelta::from_std(self.deps.poll_interval * 2).unwrap_or(LONGEST);
        let works = |number: u64| {
            let issue = IssueRef { repo: watch.watched.name.clone(), number };
            self.supervisor.get(&issue).is_some()
        };
        let mut ended = watch.state.issues.iter().filter(|(_, memory)| memory.goes_on.is_some());
        watch.went_on.is_some_and(|at| at <= now && now - at < begins)
            || ended.any(|(number, _)| works(*number))
    }

    /// Has the run of an issue gone on with for whoever asked for it. False = the issue is closed, or its label says that something
    /// else became of it meanwhile: people went on with it, or did the rest.
    async fn queue_again(&mut self, issue: &IssueRef, by: AskedBy) -> Result<bool, Error> {
        let (client, labels) = (self.quick_client(), self.deps.labels.clone());
        let seen = client.issue(&issue.repo, issue.number).await?;
        let stands = [&labels.failed, &labels.no_evidence, &labels.trigger];
        match stands.iter().any(|label| seen.has_label(label)) {
            true => self.queue(issue, by).await,
            false => Ok(false),
        }
    }

    /// Has an issue of a sweep worked on again. False = it is closed, or people have changed its label since.
    async fn sweep_again(&mut self, issue: &IssueRef) -> Result<bool, Error> {
        let (client, labels) = (self.quick_client(), self.deps.labels.clone());
        let seen = client.issue(&issue.repo, issue.number).await?;
        let end = [&labels.failed, &labels.no_evidence].into_iter().find(|label| seen.has_label(label));
        let Some(end) = end.filter(|_| seen.issue.open) else { return Ok(false) };
        client.remove_label(&issue.repo, issue.number, end).await?;
        let fresh = client.issue(&issue.repo, issue.number).await?;
        if let Some(watch) = self.watch_of(&issue.repo) {
            watch.state.issues.entry(issue.number).or_default().parked = None;
            watch.go_on_sweeping(fresh);
        }
        self.hints.look_now();
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::stop::Stop;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn a_day_lasts_until_midnight_and_a_model_is_asked_again_after_longer_and_longer_pauses() {
        let now = at("2026-03-01T22:30:00Z");
        let day = Pause::after(None, PauseCause::Day, "used up", now);
        assert_eq!(day.until, at("2026-03-02T00:00:00Z"));
        assert!(day.holds(now) && !day.holds(day.until) && !day.holds(at("2026-02-27T00:00:00Z")));
        let mut pause = Pause::after(Some(&day), PauseCause::Model, "away", now);
        let (mut pauses, mut now) = (Vec::new(), now);
        for _ in 0..7 {
            pauses.push((pause.until - now).num_minutes());
            // Others end for the same.
            assert_eq!(Pause::after(Some(&pause), PauseCause::Model, "away", now), pause);
            now = pause.until;
            pause = Pause::after(Some(&pause), PauseCause::Model, "away", now);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
    }

    #[test]
    fn only_what_meets_every_run_makes_a_pause() {
        let of = |detail, message: &str| PauseCause::of(&RunSummary::from(Stop::new(detail, message)));
        assert_eq!(of(StopDetail::LlmUnavailable, "x"), Some(PauseCause::Model));
        assert_eq!(of(StopDetail::MaxCost, "The budget of $1 does not cover the next request"), None);
        assert_eq!(of(StopDetail::Completed, "x"), None);
        let unpublished =
            |unpublished| RunSummary { unpublished, ..Stop::new(StopDetail::GitError, "x").into() };
        assert_eq!(PauseCause::of(&unpublished(true)), Some(PauseCause::Remote));
        assert_eq!(PauseCause::of(&unpublished(false)), None);
        let unanswered = |failed_before_work| RunSummary {
            failed_before_work,
            ..Stop::new(StopDetail::InvalidModelOutput, "x").into()
        };
        assert_eq!(PauseCause::of(&unanswered(true)), Some(PauseCause::Model));
        assert_eq!(PauseCause::of(&unanswered(false)), None);
    }

    #[test]
    fn what_two_issues_ended_for_is_of_the_host_and_what_one_did_may_be_its_own() {
        let of = |issue, detail, text: &str| Suspicion::of(issue, &Stop::new(detail, text).into());
        let first = of(7, StopDetail::McpUnavailable, "the server s did not start (issue 7)").unwrap();
        let confirms = |other: Option<Suspicion>| other.is_some_and(|other| first.is_confirmed_by(&other));
        assert!(confirms(of(8, StopDetail::McpUnavailable, "the server s did not start (issue 8)")));
        assert!(!confirms(of(7, StopDetail::McpUnavailable, "the server s did not start (issue 7)")));
        assert!(!confirms(of(8, StopDetail::McpUnavailable, "the server t did not start (issue 8)")));
        assert!(of(8, StopDetail::PolicyDenied, "x").is_none());
        let paid = RunSummary {
            run_id: Some(RunId(uuid::Uuid::nil())),
            ..Stop::new(StopDetail::McpUnavailable, "it went away").into()
        };
        assert!(Suspicion::of(8, &paid).is_none(), "what was worked on is not tried again and again");
    }

    #[test]
    fn a_worktree_that_could_not_be_made_may_be_of_the_host_whatever_the_issues_places_are_called() {
        let of = |issue: u64, place: &str, failed_before_work| {
            let message = format!(
                "The worktree cannot be made: cannot write /w/issue-{issue}{place}: it is read-only."
            );
            let run_id = Some(RunId(uuid::Uuid::nil()));
            let end = Stop::new(StopDetail::GitError, message).into();
            Suspicion::of(issue, &RunSummary { run_id, failed_before_work, ..end })
        };
        let first = of(7, "/a", true).unwrap();
        assert!(of(12, "/b/c", true).is_some_and(|second| first.is_confirmed_by(&second)));
        assert!(of(12, "/b/c", false).is_none(), "what was worked on is the issue's own");
    }
}
