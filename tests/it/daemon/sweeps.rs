//! A sweep by hand beside what others begin at the same time.

use std::sync::{Arc, Mutex};

use agentd::config::config_file::SweepSelect;
use agentd::daemon::{Daemon, StartRequest};
use agentd::domain::stop::StopDetail;
use futures::FutureExt as _;

use super::{Yard, codes, ended, issue, labelled, refused};

#[tokio::test]
async fn a_sweep_by_hand_waits_for_slots_that_others_take_in_the_moment_in_which_it_begins() {
    let mut yard = Yard::new(&labelled("One")).await;
    yard.limits.per_repository = 1;
    let mut parts = yard.parts(|_| std::future::ready(ended(StopDetail::Completed)));
    // Twice it sees none of theirs, and then, as it would begin, one.
    let looks = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&looks);
    parts.others_runs = Arc::new(move |_| {
        let mut looks = seen.lock().unwrap();
        *looks += 1;
        std::future::ready(usize::from(*looks == 3)).boxed()
    });
    let report = Daemon::sweep_now(parts).await.unwrap();
    assert_eq!((yard.started(), codes(&report)), (vec![1], vec![]));
    assert!(*looks.lock().unwrap() > 3);
    yard.violations();
}

#[tokio::test]
async fn a_sweep_by_hand_takes_other_issues_than_those_that_others_have_just_begun() {
    let scenario: String = (1..=5).map(|number| issue(&format!("Issue {number}"), "")).collect();
    let mut yard = Yard::new(&scenario).await;
    yard.sweep.select = SweepSelect::All;
    yard.sweep.limit = Some(2);
    let parts = yard.parts(|request: StartRequest| {
        std::future::ready(match request.issue.number {
            1 | 2 => refused(StopDetail::BranchBusy),
            _ => ended(StopDetail::Completed),
        })
    });
    Daemon::sweep_now(parts).await.unwrap();
    let mut started = yard.started();
    started.sort_unstable();
    assert_eq!(started, [1, 2, 3, 4], "two, as the limit says");
    assert_eq!((yard.labels(3), yard.labels(4)), (vec!["agentd:done".into()], vec!["agentd:done".into()]));
    yard.violations();
}
