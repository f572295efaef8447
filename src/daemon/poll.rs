//! One watched repository: its list of labelled issues, the state of polling, and what is known about its candidates.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::activity::{Activity, MINUTE};
use super::admission::Admission;
use super::cluster::polling::Polling;
use super::dependencies::Watched;
use super::disk_room::DiskRoom;
use super::listen::Stayed;
use super::plan_reactions::KnownReactions;
use super::pulls::Pulls;
use super::snapshot::{
    Facts, IssueRef, Lookup, Poll, Seen, Selection, WaitsForPerson, WorkedOnBy, priority_of,
};
use super::state_format::{AskedBy, RepositoryState};
use super::unread::{List, Unread};

use crate::conversation::parked::parked_format::Parked as ParkedNow;
use crate::domain::issue::IssueKey;
use crate::domain::issue_state::LabelsTable;
use crate::domain::money::Money;
use crate::domain::policy::ActorPermission;
use crate::github::{Actor, Client, Dependency, Error, ErrorKind, IssueSnapshot};

/// Longest pause between polls of a repository whose polls fail.
const LONGEST: Duration = Duration::from_secs(600);
/// An answer that could not be had is asked for again after this.
const ASK_AGAIN: Duration = Duration::from_secs(300);
/// What an issue waits for that no list shows, as where a follow-up run is to begin, is looked at again after this.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// A repository as the daemon knows it.
#[derive(Debug)]
pub(super) struct Watch {
    pub watched: Watched,
    pub state: RepositoryState,
    /// The list of the last poll that succeeded; empty before the first.
    pub listing: Vec<IssueSnapshot>,
    /// What the last poll no longer listed, as it was before.
    pub left: Vec<IssueSnapshot>,
    pub health: Health,
    /// Issues whose run was killed while it wrote its labels: to be ended, whatever labels are on.
    pub recovering: Vec<IssueSnapshot>,
    /// Those of them whose run is only to be brought to its end.
    pub completing: BTreeSet<u64>,
    /// Its lists that GitHub does not give us.
    pub unread: Unread,
    /// Its lists that one second is too long of for one look, and how far that was read.
    pub stayed: BTreeMap<List, Stayed>,
    /// Issues whose inbox does not take what people wrote, and why.
    pub unheard: BTreeMap<u64, String>,
    /// Open pull requests of agentd's.
    pub pulls: Pulls,
    /// A delivery says that something happened, and it was not looked at since.
    pub hinted: bool,
    /// When it was last looked at because of a delivery.
    pub looked_at: Option<Instant>,
    /// Issues that wait for a person.
    pub parked: BTreeMap<u64, ParkedNow>,
    /// Issues that wait for a person in somebody else's state, as far as was looked.
    pub shown_elsewhere: BTreeSet<u64>,
    /// The reactions to plans that wait for approval.
    pub plan_reactions: KnownReactions,
    /// Tags of parked issues that no list has.
    pub unlisted: BTreeMap<u64, String>,
    /// Issues whose budget is used up: spent, and the budget.
    pub money_used_up: BTreeMap<u64, (Money, Money)>,
    /// Issues that the daemon has queued itself, and when: until the next list they are in none.
    pub queued: BTreeMap<u64, DateTime<Utc>>,
    /// Titles and pages of the issues that a list had and that are still spoken of.
    pub titles: BTreeMap<u64, (String, Option<String>)>,
    /// When a run whose pause was over was queued last.
    pub went_on: Option<DateTime<Utc>>,
    /// Whether anything happens there.
    pub activity: Activity,
    /// In a cluster: that this node polls it, and what the other nodes know of its state.
    pub polling: Option<Polling>,
    /// Pull requests that carry the label.
    pub labelled_pulls: Vec<u64>,
    /// When somebody was told that the label starts nothing on a pull request.
    pub told_pulls: BTreeMap<u64, Instant>,
    known: BTreeMap<u64, Known>,
}

/// Looks in a minute that deliveries cause, at all repositories together. One reads four lists (issues, comments, comments of
/// reviews, pull requests), so that deliveries cost at most 40 requests a minute while nothing is new, however many there are.
const LOOKS_A_MINUTE: u32 = 10;
/// However few repositories deliveries name, one is looked at because of them once in so long.
const LEAST_QUIET: Duration = Duration::from_secs(10);

/// How long a repository is left alone after a look, where deliveries name so many: in each minute all of them together have
/// their looks.
pub(super) fn quiet(named: usize) -> Duration {
    let named = u32::try_from(named).unwrap_or(u32::MAX).max(1);
    let quiet = match LOOKS_A_MINUTE / named {
        0 => MINUTE * named.div_ceil(LOOKS_A_MINUTE),
        looks => MINUTE / looks,
    };
    quiet.max(LEAST_QUIET)
}

/// When what is delivered `now` is looked_at; `last` = when a delivery was last.
fn look_when(last: Option<Instant>, now: Instant, quiet: Duration) -> Instant {
    last.map_or(now, |last| (last + quiet).max(now))
}

/// How polling goes.
#[derive(Debug, Clone, Default)]
pub(super) struct Health {
    pub polled_at: Option<DateTime<Utc>>,
    pub failing_since: Option<DateTime<Utc>>,
    pub error: Option<String>,
    failures: u32,
    /// When the last poll failed, and how long the next one waits.
    paused: Option<(DateTime<Utc>, Duration)>,
}

impl Health {
    /// The next poll waits no longer.
    pub fn end_pause(&mut self) {
        self.paused = None;
    }

    /// Whether so many polls in a row have failed.
    pub fn has_failed(&self, times: u32) -> bool {
        self.failures >= times
    }
}

/// What was found out about a candidate, and of which state of it.
#[derive(Debug)]
struct Known {
    of: IssueSnapshot,
    admission: Lookup<Admission>,
    dependencies: Lookup<Vec<Dependency>>,
    asked_at: DateTime<Utc>,
}

/// What the facts of an issue depend on beside the repository.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    pub labels: &'a LabelsTable,
    pub min_permission: ActorPermission,
    /// Where the records of runs are written.
    pub state_dir: &'a Path,
    pub now: DateTime<Utc>,
}

impl Watch {
    pub fn new(watched: Watched, state: RepositoryState) -> Self {
        Self {
            watched,
            state,
            listing: Vec::new(),
            left: Vec::new(),
            health: Health::default(),
            recovering: Vec::new(),
            completing: BTreeSet::new(),
            unread: Unread::default(),
            stayed: BTreeMap::new(),
            unheard: BTreeMap::new(),
            pulls: Pulls::default(),
            hinted: false,
            looked_at: None,
            parked: BTreeMap::new(),
            plan_reactions: KnownReactions::new(),
            unlisted: BTreeMap::new(),
            shown_elsewhere: BTreeSet::new(),
            money_used_up: BTreeMap::new(),
            queued: BTreeMap::new(),
            titles: BTreeMap::new(),
            went_on: None,
            activity: Activity::default(),
            polling: None,
            labelled_pulls: Vec::new(),
            told_pulls: BTreeMap::new(),
            known: BTreeMap::new(),
        }
    }

    /// It is to be looked at; `now`: however short ago that was done.
    pub fn hint(&mut self, now: bool) {
        self.hinted = true;
        if now {
            self.looked_at = None;
        }
    }

    /// Whether it is time to heed what was hinted.
    pub fn is_rung(&self, quiet: Duration) -> bool {
        self.next_look(quiet).is_some_and(|next| next <= Instant::now())
    }

    /// When it is to be looked at because of a delivery; `None` = nothing was delivered since it was.
    pub fn next_look(&self, quiet: Duration) -> Option<Instant> {
        self.hinted.then(|| look_when(self.looked_at, Instant::now(), quiet))
    }

    /// Whether deliveries name it, or did a short while ago.
    pub fn is_named(&self) -> bool {
        self.hinted || self.looked_at.is_some_and(|looked_at| looked_at.elapsed() < MINUTE)
    }

    /// Whether nothing has happened there for a while, nothing is to be made of what was heard, and no list is due for its own
    /// reasons. One that cannot be polled has pauses of its own.
    pub fn is_idle(&self) -> bool {
        let waits = self.unread.is_due() || !self.stayed.is_empty();
        let is_due = !self.state.attend.is_empty() || !self.state.owed.is_empty();
        !waits && !is_due && self.health.failing_since.is_none() && self.activity.is_idle()
    }

    /// Asks whether anything changed there. True = it is to be looked at: something did, or it does not answer.
    pub async fn has_news(&mut self, client: &Client, now: DateTime<Utc>) -> bool {
        match self.activity.ask(client, &self.watched.name).await {
            Ok(changed) => {
                if !changed {
                    // Its lists are as they were.
                    self.health.polled_at = Some(now);
                }
                changed
            }
            Err(error) => {
                tracing::debug!(repo = %self.watched.name, %error, "it could not be asked whether anything changed");
                true
            }
        }
    }

    /// Keeps the titles of what is listed, and of what a person has to look at when it is listed no more.
    fn note_titles(&mut self) {
        let listed = self.listing.iter().filter_map(|snapshot| {
            let issue = &snapshot.issue;
            Some((number(snapshot)?, (issue.title.clone(), issue.url.clone())))
        });
        let listed: BTreeMap<u64, (String, Option<String>)> = listed.collect();
        let (memories, parked) = (&self.state.issues, &self.parked);
        self.titles.retain(|number, _| memories.contains_key(number) || parked.contains_key(number));
        self.titles.extend(listed);
    }

    /// Polls once, unless failures or a limit make it too early. True = the list is fresh.
    pub async fn poll(
        &mut self,
        client: &Client,
        trigger: &str,
        interval: Duration,
        now: DateTime<Utc>,
    ) -> bool {
        // A clock that was set back ends a pause.
        let waits = |(from, pause): (DateTime<Utc>, Duration)| {
            now.signed_duration_since(from).to_std().is_ok_and(|past| past < pause)
        };
        if self.health.paused.is_some_and(waits) {
            return false;
        }
        // Before the first poll: what an earlier daemon saw last.
        let earlier = self.health.polled_at.is_none().then(|| self.state.pages.issues().cloned().collect());
        self.activity.requests = 1;
        match client.list_labelled(&self.watched.name, trigger, &mut self.state.pages).await {
            Ok(listing) => {
                if listing.changed {
                    self.activity.changed();
                    tracing::debug!(repo = %self.watched.name, issues = listing.issues.len(), "the list changed");
                }
                self.labelled_pulls = listing.pulls;
                let before = std::mem::replace(&mut self.listing, listing.issues);
                let left = earlier
                    .unwrap_or(before)
                    .into_iter()
                    .filter(|issue| !self.listing.iter().any(|listed| listed.id == issue.id));
                self.left.extend(left);
                self.note_titles();
                self.queued.retain(|_, at| *at >= now);
                if let Some(since) = self.health.failing_since {
                    let failures = self.health.failures;
                    tracing::info!(repo = %self.watched.name, failures, %since, "polls succeed again");
                    self.unread.ask_again();
                }
                self.health = Health { polled_at: Some(now), ..Health::default() };
                let alive: Vec<u64> = self.candidates().filter_map(|(issue, _)| number(issue)).collect();
                self.known.retain(|number, _| alive.contains(number));
                true
            }
            Err(error) => {
                self.poll_failed(&error, interval, now);
                false
            }
        }
    }

    fn poll_failed(&mut self, error: &Error, interval: Duration, now: DateTime<Utc>) {
        let health = &mut self.health;
        health.failures += 1;
        let doubled = interval.saturating_mul(1 << (health.failures - 1).min(10)).min(LONGEST.max(interval));
        let pause = match error.kind {
            ErrorKind::RateLimited { wait, .. } => wait,
            _ if health.failures == 1 => Duration::ZERO,
            _ => doubled,
        };
        health.paused = Some((now, pause));
        health.failing_since.get_or_insert(now);
        let before = health.error.replace(error.to_string());
        let (repo, failures, detail) = (&self.watched.name, health.failures, error.technical());
        // Reported when it begins and when the problem changes. The next successful poll reports the end.
        if before.as_ref() == health.error.as_ref() {
            tracing::debug!(%repo, failures, %error, detail, "a poll failed again");
        } else {
            tracing::warn!(%repo, failures, %error, detail, "a poll failed; it is tried again");
        }
    }

    /// Whether the list is of the last tick.
    pub fn is_fresh(&self) -> bool {
        self.health.failing_since.is_none() && self.health.polled_at.is_some()
    }

    /// Makes an issue a candidate whatever its labels are.
    pub fn recover(&mut self, issue: IssueSnapshot) {
        list(&mut self.recovering, issue);
    }

    /// Makes an issue a candidate of the sweep that has begun to work on it.
    pub fn go_on_sweeping(&mut self, issue: IssueSnapshot) {
        self.state.sweep_counted.extend(number(&issue));
        list(&mut self.state.sweeping, issue);
    }

    /// Whether a sweep has begun to work on an issue.
    pub fn sweeps(&self, wanted: u64) -> bool {
        self.state.sweeping.iter().any(|issue| number(issue) == Some(wanted))
    }

    /// Everything that is asked for: the labelled issues, those of a killed run, and those that a sweep listed.
    pub fn candidates(&self) -> impl Iterator<Item = (&IssueSnapshot, Selection)> {
        let among = |issues: &[IssueSnapshot], id: u64| issues.iter().any(|other| other.id == id);
        let left = self
            .recovering
            .iter()
            .filter(move |issue| !self.listing.iter().any(|listed| listed.id == issue.id));
        let swept = self.state.sweeping.iter().filter(move |issue| {
            !self.listing.iter().any(|listed| listed.id == issue.id) && !among(&self.recovering, issue.id)
        });
        let labelled = self.listing.iter().map(|issue| (issue, Selection::Trigger));
        labelled
            .chain(left.map(|issue| (issue, Selection::Recovery)))
            .chain(swept.map(|issue| (issue, Selection::Sweep)))
    }

    /// A candidate by number.
    pub fn candidate(&self, wanted: u64) -> Option<(&IssueSnapshot, Selection)> {
        self.candidates().find(|(issue, _)| number(issue) == Some(wanted))
    }

    /// The room for another run; `None` = not looked at.
    pub fn disk(&self, state_dir: &Path) -> Option<DiskRoom> {
        DiskRoom::look(self.watched.place.as_ref(), state_dir)
    }

    /// The candidates' facts.
    pub fn facts(&self, frame: Frame<'_>, running: &[IssueRef]) -> Vec<Facts> {
        let poll = match &self.health.error {
            None => Poll::Fresh,
            Some(why) => Poll::Failed(why.clone()),
        };
        let disk = self.candidates().next().and_then(|_| self.disk(frame.state_dir));
        let of = |(snapshot, selection): (&IssueSnapshot, Selection)| {
            let number = number(snapshot)?;
            let issue = IssueRef { repo: self.watched.name.clone(), number };
            let memory = self.state.issues.get(&number).cloned().unwrap_or_default();
            let known = self.known.get(&number).filter(|known| known.holds(snapshot, &selection, frame.now));
            let pause = self.state.pause.clone().filter(|pause| pause.is_for(&memory));
            Some(Facts {
                poll: poll.clone(),
                seen: seen(snapshot),
                selection,
                labels: frame.labels.clone(),
                pending_outcome: memory.pending_outcome,
                holder: running.contains(&issue).then_some(WorkedOnBy::Here),
                admission: known.map_or(Lookup::NotYet, |known| known.admission.clone()),
                min_permission: frame.min_permission,
                dependencies: known.map_or(Lookup::NotYet, |known| known.dependencies.clone()),
                back_off: memory.back_off,
                goes_on: memory.goes_on,
                waits_for_definition: false,
                parked: memory.parked,
                waits_for: self.parked.get(&number).map(|parked| WaitsForPerson::of(parked, &number.into())),
                is_round: self.pulls.wanted.contains_key(&number),
                money_used_up: self.money_used_up.get(&number).copied(),
                day_money: None,
                pause,
                disk,
                now: frame.now,
                issue,
            })
        };
        self.candidates().filter_map(of).collect()
    }

    /// Finds out who asks for an issue and what it waits for.
    pub async fn ask(&mut self, client: &Client, trigger: &str, wanted: u64, now: DateTime<Utc>) {
        // What a list shows is as it is now; of others it is read again.
        let unlisted = self.candidate(wanted).filter(|(_, selection)| *selection == Selection::Recovery);
        if unlisted.is_some() && self.known.contains_key(&wanted) {
            let repo = self.watched.name.clone();
            match client.issue(&repo, wanted).await {
                Ok(fresh) => drop(self.refresh(wanted, &fresh)),
                Err(error) => tracing::debug!(%repo, wanted, %error, "an issue that waits could not be read"),
            }
        }
        let Some((snapshot, selection)) = self.candidate(wanted) else { return };
        let of = snapshot.clone();
        let label = asking_label(&of, &selection, trigger, &self.watched.sweep.labels);
        let asked_by = self.state.issues.get(&wanted).and_then(|memory| memory.asked_by.clone());
        let admission = match asked_by {
            Some(AskedBy { login, id, at, how }) => {
                let actor = Actor { login, id, bot: false };
                Admission::of(client, &of, actor, (how, at)).await
            }
            None => Admission::ask(client, &of, label).await,
        };
        let admission = match admission {
            Ok(admission) => Lookup::Known(admission),
            Err(error) => Lookup::Failed(error.to_string()),
        };
        let dependencies = if self.watched.depends {
            match client.waits_for(&of).await {
                Ok(found) => Lookup::Known(found),
                Err(error) => Lookup::Failed(error.to_string()),
            }
        } else {
            Lookup::Known(Vec::new())
        };
        self.known.insert(wanted, Known { of, admission, dependencies, asked_at: now });
    }

    /// Who asks for an issue, if that was found out.
    pub fn admission(&self, wanted: u64) -> Option<&Admission> {
        match self.known.get(&wanted)?.admission {
            Lookup::Known(ref admission) => Some(admission),
            _ => None,
        }
    }

    /// Takes a new reading of a candidate. True = nothing that the decision used has changed.
    pub fn refresh(&mut self, wanted: u64, fresh: &IssueSnapshot) -> bool {
        let mut listed = fresh.clone();
        listed.issue.body = String::new();
        let places = self.listing.iter_mut().chain(&mut self.recovering).chain(&mut self.state.sweeping);
        let mut same = true;
        for place in places.filter(|place| number(place) == Some(wanted)) {
            same &= place.issue.open == listed.issue.open
                && place.issue.labels == listed.issue.labels
                && place.open_blockers == listed.open_blockers
                && place.open_sub_issues == listed.open_sub_issues;
            *place = listed.clone();
        }
        // Something happened since then. Perhaps somebody else removed the label and added it again.
        let stale = |known: &Known| known.of.issue.updated_at != listed.issue.updated_at;
        if self.known.get(&wanted).is_some_and(stale) {
            self.known.remove(&wanted);
            return false;
        }
        same
    }

    /// A listed issue has other labels because agentd wrote them: nothing is asked again for that.
    pub fn note_labels(&mut self, wanted: u64, change: impl Fn(&mut Vec<String>)) {
        let listed = self.listing.iter_mut().find(|issue| number(issue) == Some(wanted));
        let known = self.known.get_mut(&wanted).map(|known| &mut known.of);
        listed.into_iter().chain(known).for_each(|of| change(&mut of.issue.labels));
    }

    /// Forgets a candidate until something lists it again.
    pub fn drop_candidate(&mut self, wanted: u64) {
        self.listing.retain(|issue| number(issue) != Some(wanted));
        self.drop_swept(wanted);
    }

    /// Takes an issue out of the sweep's rest.
    pub fn drop_swept(&mut self, wanted: u64) {
        self.recovering.retain(|issue| number(issue) != Some(wanted));
        self.completing.remove(&wanted);
        self.state.sweeping.retain(|issue| number(issue) != Some(wanted));
    }
}

impl Known {
    fn holds(&self, snapshot: &IssueSnapshot, selection: &Selection, now: DateTime<Utc>) -> bool {
        let failed =
            matches!(self.admission, Lookup::Failed(_)) || matches!(self.dependencies, Lookup::Failed(_));
        let waits = matches!(&self.dependencies, Lookup::Known(found) if !found.is_empty());
        self.is_about(snapshot)
            && !(failed && now > self.asked_at + ASK_AGAIN)
            && !(waits && *selection == Selection::Recovery && now > self.asked_at + LOOK_AGAIN)
    }

    /// Whether nothing differs but what anybody can change by writing: then it is asked again only before a start.
    fn is_about(&self, snapshot: &IssueSnapshot) -> bool {
        let written = |of: &IssueSnapshot| {
            let mut of = of.clone();
            (of.issue.title, of.issue.updated_at) = (String::new(), None);
            of.issue.labels.sort();
            of
        };
        self.of == *snapshot || written(&self.of) == written(snapshot)
    }
}

/// The label whose last labeller asks for the run: the trigger where it is on or was when the run began, else the first
/// that the sweep filters by.
pub(super) fn asking_label<'a>(
    of: &IssueSnapshot,
    selection: &Selection,
    trigger: &'a str,
    sweep_labels: &'a [String],
) -> Option<&'a str> {
    match selection {
        Selection::Recovery => Some(trigger),
        _ if of.has_label(trigger) => Some(trigger),
        Selection::Trigger => None,
        Selection::Sweep => sweep_labels.first().map(String::as_str),
    }
}

/// What the rules see of an issue.
pub(super) fn seen(snapshot: &IssueSnapshot) -> Seen {
    Seen::Issue {
        open: snapshot.issue.open,
        labels: snapshot.issue.labels.clone(),
        created_at: snapshot.created_at,
        priority: priority_of(&snapshot.issue.labels, snapshot.fields.as_deref()),
    }
}

/// Puts an issue into a list, once and without its body.
fn list(issues: &mut Vec<IssueSnapshot>, mut issue: IssueSnapshot) {
    issue.issue.body = String::new();
    issues.retain(|other| other.id != issue.id);
    issues.push(issue);
}

pub(super) fn number(of: &IssueSnapshot) -> Option<u64> {
    match of.issue.key {
        IssueKey::Number(number) => Some(number),
        IssueKey::Word(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::config_file::SweepSelect;
    use crate::config::settings::Sweep;
    use crate::domain::name::RepoName;

    #[test]
    fn the_first_delivery_is_heeded_at_once_and_those_that_follow_together_later() {
        let (start, quiet) = (Instant::now(), Duration::from_secs(40));
        assert_eq!(look_when(None, start, quiet), start);
        let soon = start + Duration::from_secs(1);
        assert_eq!(look_when(Some(start), soon, quiet), start + Duration::from_secs(40));
        let late = start + Duration::from_secs(90);
        assert_eq!(look_when(Some(start), late, quiet), late);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_repository_is_looked_at_once_the_pause_of_a_refused_list_is_over() {
        let name = RepoName::parse("demo/shop").unwrap();
        let sweep = Sweep {
            schedule: None,
            timezone: chrono_tz::Tz::UTC,
            select: SweepSelect::default(),
            labels: Vec::new(),
            milestone: None,
            limit: None,
        };
        let watched = Watched {
            name: name.clone(),
            depends: false,
            sweep,
            place: None,
            issue_cap: None,
            run_caps: (Money::ZERO, None),
        };
        let mut watch = Watch::new(watched, RepositoryState::default());
        watch.activity.seen_at = Some(Instant::now());
        assert!(watch.is_idle());
        watch.unread.refused(&name, List::Pulls, &Error::internal("reading", &"404"));
        assert!(watch.is_idle(), "its pause has only begun");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!watch.is_idle());
        watch.unread.refused(&name, List::Pulls, &Error::internal("reading", &"404"));
        assert!(watch.is_idle(), "it was asked for, and rests for longer");
    }

    /// Two deliveries a second, one repository after the other; gives the looks in the busiest minute of ten.
    fn busiest(repositories: usize) -> usize {
        let start = Instant::now();
        let (mut looked_at, mut hinted) = (vec![None; repositories], vec![false; repositories]);
        let mut looks: Vec<Instant> = Vec::new();
        for tick in 0..1200 {
            let now = start + Duration::from_millis(500) * tick;
            hinted[tick as usize % repositories] = true;
            let recent = |at: &Option<Instant>| at.is_some_and(|at| now - at < MINUTE);
            let named = (0..repositories).filter(|at| hinted[*at] || recent(&looked_at[*at])).count();
            for at in 0..repositories {
                if hinted[at] && look_when(looked_at[at], now, quiet(named)) <= now {
                    (hinted[at], looked_at[at]) = (false, Some(now));
                    looks.push(now);
                }
            }
        }
        let from = |first: &Instant| looks.iter().filter(|at| *at >= first && **at - *first < MINUTE).count();
        looks.iter().map(from).max().unwrap()
    }

    #[test]
    fn deliveries_cost_forty_requests_a_minute_however_many_repositories_they_name() {
        for repositories in [1, 2, 3, 5, 10, 20, 50] {
            let first = repositories.min(120);
            // Each repository is looked at once at once; beside that, the bound holds.
            let most = first.max(usize::try_from(LOOKS_A_MINUTE).unwrap());
            let looks = busiest(repositories);
            assert!(looks <= most, "{repositories}: {looks}");
        }
        assert!(busiest(10) * 4 <= 40);
        assert_eq!(quiet(1), LEAST_QUIET, "one repository is looked at again soon");
    }
}
