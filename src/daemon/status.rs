//! What the daemon says of itself.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};

use super::cron;
use super::main_loop::Daemon;
use super::snapshot::IssueRef;
use super::start_rules::Reason;
use super::state_format::Pause;
use super::status_format::{
    BudgetStatus, CHECKS_RUNNING, IssueStatus, LimitsStatus, QUEUED, QUIET_PERIOD, RepositoryStatus,
    RunningStatus, SCHEMA, Status,
};
use super::supervise::RunHandle;
use crate::domain::issue::{Issue, IssueKey};
use crate::domain::name::RepoName;
use crate::domain::outgoing::plain_line;
use crate::github::BreakerState;

/// Characters of an issue's title.
const LONGEST_TITLE: usize = 300;

fn limits_status(limits: BreakerState) -> LimitsStatus {
    LimitsStatus {
        held_by: limits.held.as_ref().map(|held| held.limit.to_owned()),
        held_until: limits.held.and_then(|held| held.until),
        budgets: limits
            .budgets
            .into_iter()
            .map(|budget| BudgetStatus {
                resource: budget.resource,
                limit: budget.limit,
                remaining: budget.remaining,
                reset: budget.reset,
            })
            .collect(),
        counted: limits.counted,
        unchanged: limits.unchanged,
    }
}

fn row(issue: &IssueRef, code: &str, text: String) -> IssueStatus {
    IssueStatus::new(&issue.repo, &issue.number.into(), code, text)
}

impl Daemon {
    /// Issues whose last run is gone on with after a pause.
    fn go_on_later(&self) -> impl Iterator<Item = IssueStatus> + '_ {
        let now = self.deps.clock.now();
        self.watches.iter().flat_map(move |watch| {
            let code = watch.state.pause.as_ref().map_or("backing_off", Pause::code);
            watch.state.issues.iter().filter_map(move |(number, memory)| {
                let later = memory.goes_on.as_ref().filter(|later| !later.is_queued)?;
                let issue = IssueRef { repo: watch.watched.name.clone(), number: *number };
                let when = later.when(now);
                Some(row(&issue, code, format!("its last run is gone on with by itself {when}")))
            })
        })
    }

    /// Issues that the daemon has queued since the last list, which does not have them.
    fn queued_now(&self) -> impl Iterator<Item = IssueStatus> + '_ {
        self.watches.iter().flat_map(|watch| {
            watch.queued.keys().filter(|number| watch.candidate(**number).is_none()).map(|number| {
                let issue = IssueRef { repo: watch.watched.name.clone(), number: *number };
                let text = "a run of it is asked for; the daemon's next look begins it where nothing stands in its way";
                row(&issue, QUEUED, text.to_owned())
            })
        })
    }

    /// Issues whose pull requests are to have a follow-up run that is not prepared yet.
    fn follow_up_later(&self) -> impl Iterator<Item = IssueStatus> + '_ {
        self.watches.iter().flat_map(move |watch| {
            watch.pulls.followed().flat_map(move |(number, _)| {
                let issue = IssueRef { repo: watch.watched.name.clone(), number };
                let is_known = watch.candidate(number).is_some() || self.supervisor.get(&issue).is_some();
                let at = |of: &BTreeMap<u64, DateTime<Utc>>| {
                    of.get(&number).filter(|_| !is_known).map(|at| at.format("%Y-%m-%dT%H:%M:%SZ"))
                };
                let quiet = at(&watch.pulls.quiet).map(|at| {
                    let text = format!(
                        "a follow-up run for what people wrote is to begin at {at}, later if they write more"
                    );
                    row(&issue, QUIET_PERIOD, text)
                });
                let checks = at(&watch.pulls.waiting_checks).map(|at| {
                    let text = format!(
                        "a check of its pull request failed; those that still run are waited for, at most until {at}"
                    );
                    row(&issue, CHECKS_RUNNING, text)
                });
                [quiet, checks].into_iter().flatten()
            })
        })
    }

    /// Puts titles and pages to issues, as the last lists had them.
    fn add_titles<'a>(&self, rows: impl Iterator<Item = &'a mut IssueStatus>) {
        let mut listed: BTreeMap<(&RepoName, &IssueKey), &Issue> = BTreeMap::new();
        for watch in &self.watches {
            for (snapshot, _) in watch.candidates() {
                listed.insert((&watch.watched.name, &snapshot.issue.key), &snapshot.issue);
            }
        }
        let before = |row: &IssueStatus| {
            let watch = self.watches.iter().find(|watch| watch.watched.name == row.repo)?;
            watch.titles.get(&row.issue.number()?).cloned()
        };
        for row in rows {
            let of_list = listed.get(&(&row.repo, &row.issue));
            let known = of_list.map(|issue| (issue.title.clone(), issue.url.clone())).or_else(|| before(row));
            let Some((title, url)) = known else { continue };
            row.title = Some(plain_line(&title, LONGEST_TITLE));
            row.url = url;
        }
    }

    /// What runs, waits and is parked, with the reason code of each; polling and limits.
    pub fn status(&self) -> Status {
        let repositories = self.watches.iter().map(|watch| {
            let sweep = &watch.watched.sweep;
            let since = watch.state.swept_at.unwrap_or(self.started_at);
            let next = sweep
                .schedule
                .as_deref()
                .and_then(|cron| cron::next(cron, sweep.timezone, since).ok().flatten());
            RepositoryStatus {
                repo: watch.watched.name.clone(),
                polled_at: watch.health.polled_at,
                failing_since: watch.health.failing_since,
                error: watch.health.error.clone(),
                unread: watch.unread.told(),
                next_sweep: next,
                node: None,
            }
        });
        let unopened = self.deps.unopened.iter().map(|(repo, why)| RepositoryStatus {
            repo: repo.clone(),
            polled_at: None,
            unread: None,
            failing_since: Some(self.started_at),
            error: Some(format!("cannot be opened yet, and is tried again: {why}")),
            next_sweep: None,
            node: None,
        });
        let running = |issue: &IssueRef, since, control: &RunHandle| RunningStatus {
            repo: issue.repo.clone(),
            issue: issue.number,
            since,
            stopping: control.shutdown.stopping().then(|| control.why().detail.as_str().to_owned()),
            placed_on: control.node(),
            progress: self.deps.progress.of(issue),
            node: None,
        };
        let assigned = self.cluster.assigned.all();
        let own = self.supervisor.runs().filter(|(issue, _)| !assigned.contains_key(issue));
        let own = own.map(|(issue, live)| running(issue, live.since, &live.control));
        let assigned =
            assigned.iter().map(|(issue, run_here)| running(issue, run_here.since, &run_here.control));
        let waiting = self
            .waiting
            .iter()
            .filter(|(_, reason)| *reason != Reason::Running)
            // These are told with what is asked.
            .filter(|(issue, reason)| {
                let known = self.watches.iter().find(|watch| watch.watched.name == issue.repo);
                let is_asked = known.is_some_and(|watch| {
                    watch.parked.contains_key(&issue.number) && watch.state.issues.contains_key(&issue.number)
                });
                !(is_asked && matches!(reason, Reason::WaitsForAnswer { .. }))
            })
            .map(|(issue, reason)| row(issue, reason.code(), reason.to_string()));
        let waiting =
            waiting.chain(self.queued_now()).chain(self.go_on_later()).chain(self.follow_up_later());
        // One row for each issue: what the scheduler says of it goes before what is to come of it by itself.
        let mut told: BTreeSet<(RepoName, IssueKey)> =
            self.supervisor.issues().into_iter().map(|issue| (issue.repo, issue.number.into())).collect();
        let unheard = self.watches.iter().flat_map(|watch| {
            watch.unheard.iter().map(|(number, why)| {
                let issue = IssueRef { repo: watch.watched.name.clone(), number: *number };
                row(&issue, "unheard", format!("what people wrote cannot be kept: {why}"))
            })
        });
        let parked = self.watches.iter().flat_map(|watch| {
            watch.state.issues.iter().filter_map(|(number, memory)| {
                let issue = IssueRef { repo: watch.watched.name.clone(), number: *number };
                if let Some(parked) = watch.parked.get(number) {
                    return Some(IssueStatus::parked(&issue.repo, &issue.number.into(), parked));
                }
                let parked = memory.parked.as_ref()?;
                Some(row(&issue, &parked.code, parked.text.clone()))
            })
        });
        let mut waiting: Vec<IssueStatus> =
            waiting.filter(|row| told.insert((row.repo.clone(), row.issue.clone()))).collect();
        let mut parked: Vec<IssueStatus> = unheard.chain(parked).collect();
        self.add_titles(waiting.iter_mut().chain(&mut parked));
        Status {
            schema_version: SCHEMA.to_owned(),
            pid: self.deps.host.pid,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: self.started_at,
            at: self.deps.clock.now(),
            poll_interval_ms: u64::try_from(self.deps.poll_interval.as_millis()).ok(),
            stopping: self.deps.shutdown.stopping(),
            listen: self.deps.listen.clone(),
            reload_error: self.reload_error.clone(),
            // It is added where it is said.
            store_unavailable: None,
            clock_skew: self.cluster.store_health.skew.clone(),
            store_full: self.cluster.store_health.full.clone(),
            store_slow: self.cluster.store_health.slow.clone(),
            store_begun_anew: self.cluster.store_health.begun_anew.clone(),
            schema_unknown: self.cluster.store_health.schema.clone(),
            repositories: repositories.chain(unopened).collect(),
            running: own.chain(assigned).collect(),
            waiting,
            parked,
            limits: limits_status(self.deps.client.limits()),
            nodes: Vec::new(),
            stale_since: None,
        }
    }
}
