//! A repository that is taken out of the configuration while its run works.

use std::sync::Arc;
use std::time::Duration;

use agentd::daemon::{Daemon, Dependencies, Reload};
use agentd::domain::stop::StopDetail;
use futures::FutureExt as _;
use tokio::sync::Notify;

use super::{REPO, Yard, ended, issue, labelled};

#[tokio::test]
async fn it_is_looked_at_no_more_and_left_once_the_run_has_ended() {
    let yard = Yard::new(&(labelled("One") + &issue("Two", ""))).await;
    let (goes_on, changed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let waits = Arc::clone(&goes_on);
    let parts = yard.parts(move |_| {
        let waits = Arc::clone(&waits);
        async move {
            waits.notified().await;
            ended(StopDetail::Completed)
        }
    });
    let without = Dependencies { repositories: vec![], ..parts.clone() };
    let reload: Reload = Arc::new(move || {
        let without = without.clone();
        async move { Ok(without) }.boxed()
    });
    let parts = Dependencies { reload: Some((reload, Arc::clone(&changed))), ..parts };
    let mut daemon = Daemon::open(parts).unwrap();
    let lists = || {
        let listed = format!("/repos/{REPO}/issues?");
        yard.sim.requests().iter().filter(|asked| asked.target.starts_with(&listed)).count()
    };
    let pause = async || tokio::time::sleep(Duration::from_millis(5)).await;
    let people = async {
        while yard.started().is_empty() {
            pause().await;
        }
        changed.notify_one();
        // Nothing is listed for a while, and the daemon looks each 20 ms.
        let mut before = lists();
        loop {
            tokio::time::sleep(Duration::from_millis(700)).await;
            match lists() {
                now if now == before => break,
                now => before = now,
            }
        }
        yard.sim.add_label(REPO, 2, "agentd", "mia");
        goes_on.notify_one();
        while yard.labels(1) != ["agentd:done"] {
            pause().await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        yard.shutdown.request_stop();
    };
    let both = futures::future::join(daemon.run(), people);
    tokio::time::timeout(Duration::from_secs(60), both).await.expect("it comes about");
    assert_eq!((yard.started(), yard.labels(2)), (vec![1], vec!["agentd".to_owned()]));
    assert!(yard.sim.issue(REPO, 2).unwrap().comments.is_empty());
    yard.violations();
}
