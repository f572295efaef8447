//! The scheduler: a pure function from the present state and the limits to decisions. Every candidate gets exactly one
//! answer (I49).

use std::collections::BTreeMap;

use super::snapshot::{Facts, IssueRef, SchedulerSnapshot, Selection};
use super::start_rules::{Reason, refusal};
use crate::domain::name::RepoName;
use crate::domain::stop::Stop;

/// What to do about an issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Stop its run.
    Stop(IssueRef, Stop),
    /// Find out who asks and what it waits for, then schedule again.
    Ask(IssueRef),
    /// Start a run.
    Start(IssueRef),
    /// Tell people why not, once, and leave it to them.
    Refuse(IssueRef, Reason),
    /// Leave it for now.
    Wait(IssueRef, Reason),
}

/// Decides about every running run and every candidate. Starts are shared out evenly: the repository with the fewest runs
/// comes first, in it the highest priority, then the oldest.
pub fn schedule(snapshot: &SchedulerSnapshot) -> Vec<Action> {
    let mut actions: Vec<Action> = snapshot
        .running
        .iter()
        .filter_map(|run| run.gone.clone().map(|why| Action::Stop(run.issue.clone(), why)))
        .collect();
    let mut used: BTreeMap<&RepoName, usize> =
        snapshot.others.iter().map(|(repo, runs)| (repo, *runs)).collect();
    let mut all = snapshot.running.len() + used.values().sum::<usize>();
    for run in &snapshot.running {
        *used.entry(&run.issue.repo).or_default() += 1;
    }
    let mut left: BTreeMap<&RepoName, Vec<&Facts>> = BTreeMap::new();
    for facts in &snapshot.candidates {
        left.entry(&facts.issue.repo).or_default().push(facts);
    }
    for queue in left.values_mut() {
        queue.sort_by_key(|facts| std::cmp::Reverse(facts.rank()));
    }
    loop {
        let next = left
            .iter()
            .filter_map(|(repo, queue)| {
                let first = queue.last()?;
                Some((used.get(repo).copied().unwrap_or(0), first.rank(), *repo))
            })
            .min();
        let Some((taken, _, repo)) = next else { return actions };
        let Some(facts) = left.get_mut(repo).and_then(Vec::pop) else { return actions };
        let issue = facts.issue.clone();
        let slots = (taken, snapshot.limits.per_repository);
        actions.push(match refusal(facts, (all, snapshot.limits.all), slots, snapshot.daemon) {
            None => {
                all += 1;
                *used.entry(repo).or_default() += 1;
                Action::Start(issue)
            }
            Some(Reason::Full(_)) if let Some(most) = snapshot.limits.cluster => {
                Action::Wait(issue, Reason::ClusterFull(most))
            }
            Some(Reason::AdmissionPending | Reason::DependenciesPending) => Action::Ask(issue),
            // A person who asked and cannot have the run is told, and those whose pull request waits for one. For issues that a sweep
            // lists nobody asked.
            Some(reason @ (Reason::PermissionTooLow { .. } | Reason::ActorUnknown))
                if facts.selection == Selection::Trigger || facts.is_round =>
            {
                Action::Refuse(issue, reason)
            }
            Some(reason) => Action::Wait(issue, reason),
        });
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta, Utc};

    use super::*;
    use crate::daemon::admission::Admission;
    use crate::daemon::snapshot::Presence;
    use crate::daemon::snapshot::{Limits, Lookup, Poll, Running, Seen, WorkedOnBy};
    use crate::daemon::state_format::{BackOff, PendingOutcome};
    use crate::domain::issue_state::{IssueState, LabelsTable};
    use crate::domain::policy::ActorPermission;
    use crate::domain::stop::StopDetail;
    use crate::github::{Actor, Dependency};

    fn issue(repo: &str, number: u64) -> IssueRef {
        IssueRef { repo: RepoName::parse(&format!("o/{repo}")).unwrap(), number }
    }

    fn now() -> DateTime<Utc> {
        DateTime::<Utc>::UNIX_EPOCH + TimeDelta::days(20_000)
    }

    /// An issue that nothing speaks against; the higher its number, the younger.
    fn ready(repo: &str, number: u64) -> Facts {
        let actor = Actor { login: "ann".into(), id: 1, bot: false };
        Facts {
            issue: issue(repo, number),
            poll: Poll::Fresh,
            seen: Seen::Issue {
                open: true,
                labels: vec![" Agentd ".into()],
                created_at: Some(now() + TimeDelta::hours(i64::try_from(number).unwrap())),
                priority: None,
            },
            selection: Selection::Trigger,
            labels: LabelsTable::default(),
            pending_outcome: None,
            holder: None,
            admission: Lookup::Known(Admission {
                actor: Some(actor),
                permission: ActorPermission::Write,
                labelled: None,
                asked: crate::issue::reference::Asked {
                    by: Some("ann".into()),
                    how: crate::domain::text_revision::AskedHow::Label,
                    at: now(),
                },
            }),
            min_permission: ActorPermission::Write,
            dependencies: Lookup::Known(vec![]),
            back_off: None,
            goes_on: None,
            waits_for_definition: false,
            parked: None,
            waits_for: None,
            is_round: false,
            money_used_up: None,
            day_money: None,
            pause: None,
            disk: None,
            now: now(),
        }
    }

    fn snapshot(
        candidates: Vec<Facts>,
        running: &[IssueRef],
        all: usize,
        per_repository: usize,
    ) -> SchedulerSnapshot {
        let running = running.iter().map(|issue| Running { issue: issue.clone(), gone: None }).collect();
        SchedulerSnapshot {
            candidates,
            running,
            others: BTreeMap::new(),
            limits: Limits { all, per_repository, cluster: None },
            daemon: Presence::Works,
        }
    }

    /// What becomes of one changed issue, as a word.
    fn verdict(change: impl FnOnce(&mut Facts)) -> String {
        let mut facts = ready("a", 1);
        change(&mut facts);
        match schedule(&snapshot(vec![facts], &[], 4, 2)).remove(0) {
            Action::Start(_) => "start".into(),
            Action::Ask(_) => "ask".into(),
            Action::Refuse(_, reason) => format!("refuse {}", reason.code()),
            Action::Wait(_, reason) => format!("wait {}", reason.code()),
            Action::Stop(..) => "stop".into(),
        }
    }

    fn relabel(facts: &mut Facts, open: bool, labels: &[&str]) {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        facts.seen = Seen::Issue { open, labels, created_at: None, priority: None };
    }

    fn who(facts: &mut Facts, permission: ActorPermission) {
        if let Lookup::Known(admission) = &mut facts.admission {
            admission.permission = permission;
        }
    }

    #[test]
    fn i49_every_rule_has_its_own_reason() {
        let blocker = |sub_issue| Lookup::Known(vec![Dependency { name: "#2".into(), sub_issue }]);
        let pause = |seconds| {
            Some(BackOff {
                attempts: 1,
                until: now() + TimeDelta::seconds(seconds),
                why: "w".into(),
                held: false,
            })
        };
        assert_eq!(verdict(|_| {}), "start");
        assert_eq!(verdict(|facts| facts.poll = Poll::Failed("x".into())), "wait poll_failed");
        assert_eq!(verdict(|facts| facts.seen = Seen::Missing), "wait not_found");
        assert_eq!(verdict(|facts| facts.seen = Seen::PullRequest), "wait is_pull_request");
        assert_eq!(verdict(|facts| relabel(facts, false, &["agentd"])), "wait closed");
        assert_eq!(verdict(|facts| relabel(facts, true, &["bug"])), "wait no_trigger");
        assert_eq!(verdict(|facts| facts.labels.trigger = " ".into()), "wait no_trigger");
        let pending = PendingOutcome {
            state: IssueState::Done,
            refusal: None,
            answers: None,
            run: None,
            problem: None,
        };
        assert_eq!(verdict(|facts| facts.pending_outcome = Some(pending.clone())), "wait settling");
        assert_eq!(verdict(|facts| facts.holder = Some(WorkedOnBy::Here)), "wait running");
        assert_eq!(
            verdict(|facts| facts.holder = Some(WorkedOnBy::Elsewhere("h".into()))),
            "wait running_elsewhere"
        );
        assert_eq!(verdict(|facts| facts.back_off = pause(1)), "wait backing_off");
        assert_eq!(verdict(|facts| facts.back_off = pause(0)), "start");
        assert_eq!(verdict(|facts| facts.waits_for_definition = true), "wait definition_changed");
        assert_eq!(verdict(|facts| facts.admission = Lookup::NotYet), "ask");
        assert_eq!(
            verdict(|facts| facts.admission = Lookup::Failed("x".into())),
            "wait admission_unreadable"
        );
        assert_eq!(verdict(|facts| who(facts, ActorPermission::Triage)), "refuse permission_too_low");
        assert_eq!(verdict(|facts| who(facts, ActorPermission::Maintain)), "start");
        let money = crate::domain::money::Money::from_micros;
        assert_eq!(
            verdict(|facts| facts.money_used_up = Some((money(9), money(10)))),
            "wait issue_budget_spent"
        );
        assert_eq!(
            verdict(|facts| {
                facts.money_used_up = Some((money(9), money(10)));
                facts.selection = Selection::Recovery;
            }),
            "start",
            "what a killed run left is brought to its end"
        );
        assert_eq!(verdict(|facts| facts.dependencies = Lookup::NotYet), "ask");
        assert_eq!(
            verdict(|facts| facts.dependencies = Lookup::Failed("x".into())),
            "wait dependencies_unreadable"
        );
        assert_eq!(verdict(|facts| facts.dependencies = blocker(false)), "wait blocked_by_open");
        assert_eq!(verdict(|facts| facts.dependencies = blocker(true)), "wait sub_issues_open");
    }

    #[test]
    fn a_sweep_takes_what_nobody_labelled_and_tells_nobody() {
        let swept = |labels: &'static [&str], permission| {
            verdict(move |facts| {
                facts.selection = Selection::Sweep;
                relabel(facts, true, labels);
                who(facts, permission);
            })
        };
        assert_eq!(swept(&[], ActorPermission::Write), "start");
        assert_eq!(swept(&["agentd:failed"], ActorPermission::Write), "wait already_handled");
        assert_eq!(swept(&["agentd:failed", "agentd"], ActorPermission::Write), "start");
        assert_eq!(swept(&[], ActorPermission::Read), "wait permission_too_low");
    }

    #[test]
    fn s35_priority_then_age_then_number_decide_within_a_repository() {
        let mut urgent = ready("a", 3);
        if let Seen::Issue { priority, .. } = &mut urgent.seen {
            *priority = Some(1);
        }
        let actions = schedule(&snapshot(vec![ready("a", 2), urgent, ready("a", 1)], &[], 2, 2));
        let Action::Wait(last, Reason::RepositoryFull(2)) = &actions[2] else { panic!("{actions:?}") };
        assert_eq!(actions[..2], [Action::Start(issue("a", 3)), Action::Start(issue("a", 1))]);
        assert_eq!(last.number, 2);
    }

    #[test]
    fn slots_are_shared_out_evenly_and_a_full_house_says_so() {
        let candidates = vec![ready("a", 1), ready("a", 2), ready("a", 3), ready("b", 8), ready("b", 9)];
        let actions = schedule(&snapshot(candidates, &[issue("a", 7)], 4, 3));
        let started: Vec<String> = actions
            .iter()
            .filter_map(|action| match action {
                Action::Start(issue) => Some(issue.to_string()),
                _ => None,
            })
            .collect();
        assert_eq!(started, ["o/b#8", "o/a#1", "o/b#9"], "the one with fewest runs first");
        assert_eq!(actions.len(), 5, "every candidate has an answer");
        assert!(
            actions.iter().any(|action| matches!(action, Action::Wait(_, Reason::Full(4)))),
            "{actions:?}"
        );
    }

    #[test]
    fn runs_of_other_processes_take_their_slots() {
        let mut snapshot = snapshot(vec![ready("a", 1), ready("b", 2), ready("c", 3)], &[], 3, 1);
        let others = |name, runs| (RepoName::parse(name).unwrap(), runs);
        snapshot.others = [others("o/a", 1), others("o/d", 1)].into();
        let actions = schedule(&snapshot);
        assert_eq!(
            actions,
            [
                Action::Start(issue("b", 2)),
                Action::Wait(issue("c", 3), Reason::Full(3)),
                Action::Wait(issue("a", 1), Reason::RepositoryFull(1)),
            ]
        );
    }

    #[test]
    fn a_daemon_that_stops_starts_nothing_and_a_gone_issue_is_stopped() {
        let mut snapshot = snapshot(vec![ready("a", 1)], &[issue("a", 7)], 4, 4);
        snapshot.daemon = Presence::Stopping;
        let closed = Stop::new(StopDetail::IssueClosed, "It was closed.");
        snapshot.running[0].gone = Some(closed.clone());
        assert_eq!(
            schedule(&snapshot),
            [Action::Stop(issue("a", 7), closed), Action::Wait(issue("a", 1), Reason::Stopping)]
        );
    }
}
