//! Ends that would meet every run hold the queue back, and whoever met them is gone on with.

use std::time::Duration;

use agentd::config::config_file::SweepSelect;
use agentd::daemon::{Daemon, DaemonFiles, RunSummary};
use agentd::domain::issue::ObjectiveSource;
use agentd::domain::run::RunId;
use agentd::domain::stop::{Stop, StopDetail};
use agentd::store::run_dir::StateDir;

use super::{Yard, codes, ended, issue, refused};

async fn two() -> Yard {
    let asked = "labels = [\"agentd\"]";
    let mut yard = Yard::new(&(issue("One", asked) + &issue("Two", asked))).await;
    yard.limits.all = 1;
    yard
}

/// The first issue's run ends so, the second one's waits, and after this time both are done.
async fn held_back_and_gone_on_with(yard: &Yard, end: RunSummary, code: &str, pause: Duration) {
    let mut report = yard.once(end.clone()).await;
    if codes(&report) != [(2, code)] {
        report = yard.once(end).await;
    }
    assert_eq!(codes(&report), [(2, code)]);
    assert_eq!(yard.started(), [1], "what met the first would meet the second");
    assert_eq!(yard.labels(1), ["agentd:failed"]);
    assert_eq!(yard.labels(2), ["agentd", "agentd:queued"]);
    yard.clock.advance(pause - Duration::from_secs(5));
    yard.once(ended(StopDetail::Completed)).await;
    assert_eq!(yard.started(), [1], "the pause holds");
    let status = std::fs::read_to_string(yard.home.path().join("daemon/status.json")).unwrap_or_default();
    assert!(status.contains("is gone on with by itself at"), "{status}");
    let why = yard.why(1).await;
    let asked_for = why.iter().find(|verdict| verdict.rule == "is_asked_for").unwrap();
    assert!(asked_for.code == "no_trigger" && asked_for.answer.contains("need not be"), "{asked_for:?}");
    yard.clock.advance(Duration::from_secs(10));
    for _ in 0..4 {
        yard.once(ended(StopDetail::Completed)).await;
    }
    let mut started = yard.started();
    started.sort_unstable();
    assert_eq!(started, [1, 1, 2]);
    assert_eq!(
        (yard.labels(1), yard.labels(2)),
        (vec!["agentd:done".to_owned()], vec!["agentd:done".to_owned()])
    );
    let again = yard.asked.lock().unwrap().iter().filter(|request| request.resume.is_some()).count();
    assert_eq!(again, 1, "the run is gone on with, and not begun anew");
    yard.violations();
}

#[tokio::test]
async fn a_model_that_does_not_answer_holds_the_queue_back_for_a_while() {
    let yard = two().await;
    let end = ended(StopDetail::LlmUnavailable);
    held_back_and_gone_on_with(&yard, end, "model_unavailable", Duration::from_secs(60)).await;
}

#[tokio::test]
async fn what_people_brought_to_its_end_during_a_pause_is_not_begun_again() {
    let yard = two().await;
    for _ in 0..2 {
        yard.once(ended(StopDetail::LlmUnavailable)).await;
    }
    assert_eq!((yard.started(), yard.labels(1)), (vec![1], vec!["agentd:failed".to_owned()]));
    // As by `agentd runs resume` at a terminal.
    yard.sim.remove_label(super::REPO, 1, "agentd:failed", "mia");
    yard.sim.add_label(super::REPO, 1, "agentd:done", "mia");
    yard.clock.advance(Duration::from_secs(65));
    for _ in 0..3 {
        yard.once(ended(StopDetail::Completed)).await;
    }
    assert_eq!((yard.started(), yard.labels(1)), (vec![1, 2], vec!["agentd:done".to_owned()]));
    yard.violations();
}

#[tokio::test]
async fn the_money_of_the_day_holds_the_queue_back_until_midnight() {
    let yard = two().await;
    let message = "The budget of $1.00 a day (UTC) does not cover the next request.";
    let end = Stop::new(StopDetail::MaxCost, message);
    let end = RunSummary { run_id: Some(RunId(uuid::Uuid::nil())), ..end.into() };
    held_back_and_gone_on_with(&yard, end, "day_budget_spent", Duration::from_secs(16 * 3600)).await;
}

/// Side by side they would use up the next day's money together, too, and none would come to its end.
#[tokio::test]
async fn what_the_end_of_the_day_s_money_ended_side_by_side_is_gone_on_with_one_after_the_other() {
    let asked = "labels = [\"agentd\"]";
    let mut yard = Yard::new(&["One", "Two", "Three"].map(|title| issue(title, asked)).concat()).await;
    (yard.limits.all, yard.limits.per_repository) = (3, 3);
    let end = Stop::new(StopDetail::MaxCost, "The budget of $1.00 a day (UTC) is used up.");
    let end = RunSummary { run_id: Some(RunId(uuid::Uuid::nil())), ..end.into() };
    for _ in 0..3 {
        yard.once(end.clone()).await;
    }
    assert_eq!(yard.started().len(), 3, "{:?}", yard.started());
    yard.clock.advance(Duration::from_secs(16 * 3600));
    let mut most = 0;
    for _ in 0..12 {
        let before = yard.started().len();
        yard.once(ended(StopDetail::Completed)).await;
        most = most.max(yard.started().len() - before);
    }
    let labels: Vec<_> = (1..=3).map(|number| yard.labels(number)).collect();
    assert_eq!(labels, vec![vec!["agentd:done".to_owned()]; 3]);
    assert_eq!((yard.started().len(), most), (6, 1), "{:?}", yard.started());
    yard.violations();
}

/// Its verify commands went on until after midnight.
#[tokio::test]
async fn what_met_the_end_of_yesterday_s_money_holds_nothing_back_today() {
    let yard = two().await;
    let message = "The budget of $1.00 a day (UTC) does not cover the next request.";
    let end = Stop::new(StopDetail::MaxCost, message);
    let flow_ended_at = Some(super::at("2026-11-20T23:59:50Z"));
    let end = RunSummary { run_id: Some(RunId(uuid::Uuid::nil())), flow_ended_at, ..end.into() };
    for _ in 0..10 {
        if !yard.started().is_empty() {
            break;
        }
        yard.once(end.clone()).await;
    }
    assert_eq!(yard.started()[0], 1);
    for _ in 0..4 {
        yard.once(ended(StopDetail::Completed)).await;
    }
    let done = vec!["agentd:done".to_owned()];
    assert_eq!((yard.labels(1), yard.labels(2)), (done.clone(), done), "{:?}", yard.started());
    yard.violations();
}

#[tokio::test]
async fn a_remote_that_takes_nothing_holds_the_queue_back_for_a_while() {
    let yard = two().await;
    let end = RunSummary { unpublished: true, ..ended(StopDetail::GitError) };
    held_back_and_gone_on_with(&yard, end, "remote_unavailable", Duration::from_secs(60)).await;
}

#[tokio::test]
async fn a_state_directory_that_cannot_be_read_holds_the_queue_back_for_a_while() {
    let yard = two().await;
    let end = ended(StopDetail::OutputWriteFailed);
    held_back_and_gone_on_with(&yard, end, "state_unusable", Duration::from_secs(60)).await;
}

#[tokio::test]
async fn what_two_issues_end_for_is_of_the_host_and_no_third_one_meets_it() {
    let asked = "labels = [\"agentd\"]";
    for (end, first, second) in [
        (refused(StopDetail::ConfigInvalid), "agentd:attention", vec!["agentd", "agentd:queued"]),
        (
            RunSummary { failed_before_work: true, ..ended(StopDetail::McpUnavailable) },
            "agentd:failed",
            vec!["agentd:failed"],
        ),
    ] {
        let mut yard =
            Yard::new(&(issue("One", asked) + &issue("Two", asked) + &issue("Three", asked))).await;
        yard.limits.all = 1;
        let mut report = yard.once(end.clone()).await;
        for _ in 0..3 {
            report = yard.once(end.clone()).await;
        }
        assert_eq!(yard.started(), [1, 2], "{report:?}");
        assert!(codes(&report).contains(&(3, "host_not_ready")), "{report:?}");
        assert_eq!(
            (yard.labels(1), yard.labels(2)),
            (vec![first.to_owned()], second.iter().map(|&one| one.to_owned()).collect())
        );
        assert_eq!(yard.labels(3), ["agentd", "agentd:queued"]);
        yard.clock.advance(Duration::from_secs(65));
        for _ in 0..6 {
            yard.once(ended(StopDetail::Completed)).await;
        }
        assert_eq!(
            (yard.labels(2), yard.labels(3)),
            (vec!["agentd:done".to_owned()], vec!["agentd:done".to_owned()])
        );
        assert_eq!(yard.labels(1), [first], "what one issue met may be its own");
        yard.violations();
    }
}

#[tokio::test]
async fn a_request_that_a_model_refuses_is_of_its_issue_until_another_issue_meets_the_same() {
    let message = "The model provider refused the request; check the target's model name and settings.";
    let end = |failed_before_work| RunSummary {
        stop: Stop::new(StopDetail::LlmUnavailable, message),
        failed_before_work,
        ..ended(StopDetail::LlmUnavailable)
    };
    let failed = vec!["agentd:failed".to_owned()];
    // The conversation of one issue is no reason for others to wait.
    let yard = two().await;
    for _ in 0..4 {
        yard.once(end(false)).await;
    }
    assert_eq!(
        (yard.started(), yard.labels(1), yard.labels(2)),
        (vec![1, 2], failed.clone(), failed.clone())
    );
    // What two issues meet at once is of what was set up.
    let asked = "labels = [\"agentd\"]";
    let mut yard = Yard::new(&(issue("One", asked) + &issue("Two", asked) + &issue("Three", asked))).await;
    yard.limits.all = 1;
    let mut report = yard.once(end(true)).await;
    for _ in 0..3 {
        report = yard.once(end(true)).await;
    }
    assert_eq!((yard.started(), yard.labels(1)), (vec![1, 2], failed));
    assert!(codes(&report).contains(&(3, "host_not_ready")), "{report:?}");
    yard.clock.advance(Duration::from_secs(65));
    for _ in 0..6 {
        yard.once(ended(StopDetail::Completed)).await;
    }
    assert_eq!(yard.labels(2), ["agentd:done"]);
    assert_eq!(yard.labels(3), ["agentd:done"]);
    yard.violations();
}

#[tokio::test]
async fn a_sweep_by_hand_begins_no_other_run_where_one_met_what_would_meet_all() {
    let unpublished = RunSummary { unpublished: true, ..ended(StopDetail::GitError) };
    let all = [(ended(StopDetail::LlmUnavailable), "model_unavailable"), (unpublished, "remote_unavailable")];
    for (end, code) in all {
        let mut yard = Yard::new(&(issue("One", "") + &issue("Two", ""))).await;
        yard.sweep.select = SweepSelect::All;
        yard.limits.all = 1;
        let parts = yard.parts(move |_| std::future::ready(end.clone()));
        let report = Daemon::sweep_now(parts).await.unwrap();
        assert_eq!((yard.started().len(), codes(&report)), (1, vec![(2, code)]));
    }
}

#[tokio::test]
async fn a_swept_issue_whose_run_met_what_would_meet_all_is_swept_again_after_the_pause() {
    let unpublished = RunSummary { unpublished: true, ..ended(StopDetail::GitError) };
    for end in [ended(StopDetail::LlmUnavailable), unpublished] {
        let mut yard = Yard::new(&(issue("One", "") + &issue("Two", ""))).await;
        yard.sweep.select = SweepSelect::All;
        yard.sweep.schedule = Some("0 3 * * *".to_owned());
        yard.limits.all = 1;
        yard.once(ended(StopDetail::Completed)).await;
        yard.clock.advance(Duration::from_secs(24 * 3600));
        let mut report = yard.once(end.clone()).await;
        if report.waiting.is_empty() {
            report = yard.once(end.clone()).await;
        }
        assert_eq!((yard.started().len(), report.waiting.len()), (1, 1), "{:?}", codes(&report));
        let met = yard.started()[0];
        assert_eq!(yard.labels(met), ["agentd:failed"]);
        yard.clock.advance(Duration::from_secs(70));
        for _ in 0..4 {
            yard.once(ended(StopDetail::Completed)).await;
        }
        let mut started = yard.started();
        started.sort_unstable();
        assert_eq!(started, if met == 1 { [1, 1, 2] } else { [1, 2, 2] });
        assert_eq!(
            (yard.labels(1), yard.labels(2)),
            (vec!["agentd:done".to_owned()], vec!["agentd:done".to_owned()])
        );
        let asked = yard.asked.lock().unwrap().clone();
        assert!(asked.iter().all(|request| request.source == ObjectiveSource::Sweep));
        assert_eq!(asked.iter().filter(|request| request.resume.is_some()).count(), 1);
        yard.violations();
    }
}

/// Three issues of a sweep that takes three, and one slot.
async fn three() -> Yard {
    let scenario: String = (1..=3).map(|number| issue(&format!("Issue {number}"), "")).collect();
    let mut yard = Yard::new(&scenario).await;
    yard.sweep.select = SweepSelect::All;
    yard.sweep.schedule = Some("0 3 * * *".to_owned());
    yard.sweep.limit = Some(3);
    yard.limits.all = 1;
    yard.once(ended(StopDetail::Completed)).await;
    yard.clock.advance(Duration::from_secs(24 * 3600));
    yard
}

async fn all_three_are_done(yard: &Yard) {
    for _ in 0..6 {
        yard.once(ended(StopDetail::Completed)).await;
    }
    let labels: Vec<_> = (1..=3).map(|number| yard.labels(number)).collect();
    assert_eq!(labels, vec![vec!["agentd:done".to_owned()]; 3]);
    assert_eq!(yard.started().len(), 4, "one of them twice");
    yard.violations();
}

#[tokio::test]
async fn a_run_of_a_sweep_that_is_gone_on_with_after_a_pause_takes_no_other_issues_place() {
    let yard = three().await;
    while yard.started().is_empty() {
        yard.once(ended(StopDetail::LlmUnavailable)).await;
    }
    yard.clock.advance(Duration::from_secs(70));
    all_three_are_done(&yard).await;
}

#[tokio::test]
async fn a_run_of_a_sweep_that_is_gone_on_with_after_a_kill_takes_no_other_issues_place() {
    let yard = three().await;
    let files = DaemonFiles::of(&StateDir::new(yard.home.path().to_owned()));
    let mut daemon = Daemon::open(yard.parts(|_| std::future::pending())).unwrap();
    let begun = async {
        let left = || files.look().ok()?.repositories.values().next()?.sweep_left;
        while yard.started().is_empty() || left() != Some(2) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        report = daemon.run() => panic!("it goes on: {report:?}"),
        () = begun => {}
        () = tokio::time::sleep(Duration::from_secs(60)) => panic!("it begins none"),
    }
    drop(daemon);
    all_three_are_done(&yard).await;
}

#[tokio::test]
async fn an_issue_that_is_asked_for_during_a_pause_that_its_last_run_waits_for_is_told_once() {
    let yard = two().await;
    for _ in 0..2 {
        yard.once(ended(StopDetail::LlmUnavailable)).await;
    }
    let waiting = || {
        let files = DaemonFiles::of(&StateDir::new(yard.home.path().to_owned()));
        let rows = files.load_status().unwrap().unwrap().waiting;
        let mut rows: Vec<_> = rows.into_iter().map(|row| (row.issue.number(), row.code)).collect();
        rows.sort();
        rows
    };
    let both = [1, 2].map(|number| (Some(number), "model_unavailable".to_owned()));
    assert_eq!(waiting(), both, "the first by what goes on by itself");
    yard.sim.add_label(super::REPO, 1, "agentd", "mia");
    yard.once(ended(StopDetail::Completed)).await;
    assert_eq!((yard.started(), waiting()), (vec![1], both.to_vec()));
}
