//! What a daemon asks GitHub for while nothing, or little, happens.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentd::daemon::status_format::Status;
use serde_json::json;

use super::*;

#[tokio::test]
async fn an_idle_tick_costs_no_counted_request() {
    let waiting = issue("One", "labels = [\"agentd\"]\nblocked_by = [2]");
    let yard = Yard::new(&(waiting + &issue("Two", "") + &labelled("Three"))).await;
    let mut daemon = yard.daemon(ended(StopDetail::Completed));
    // What the first one writes is read by the second, and the second's reading is confirmed by the third.
    for _ in 0..3 {
        daemon.once().await;
    }
    let before = daemon.status().limits;
    for _ in 0..5 {
        daemon.once().await;
    }
    let after = daemon.status().limits;
    let asked: Vec<String> = yard
        .sim
        .requests()
        .iter()
        .map(|one| format!("{} {} {}", one.method, one.target, one.status))
        .collect();
    assert_eq!(after.counted, before.counted, "{asked:#?}");
    assert_eq!(
        after.unchanged,
        before.unchanged + 20,
        "issues, comments, comments of reviews and pull requests, each unchanged"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes, most of them the first look at the usual pace: .ci/campaigns/idle"]
async fn c_i30_looks_at_fifty_idle_repositories_cost_sixty_requests_a_minute_and_each_is_asked_beside_that() {
    let (asked, busiest) = idle(50, Duration::from_secs(60)).await;
    let (whether, looks): (Vec<_>, Vec<_>) = asked.iter().partition(|(kind, _)| kind.starts_with("whether"));
    let sum = |of: &[(&String, &usize)]| of.iter().map(|(_, count)| **count).sum::<usize>();
    assert!((10..=60).contains(&sum(&looks)), "it goes on looking: {asked:#?}");
    assert!((50..=110).contains(&sum(&whether)), "and asks each one each half minute: {asked:#?}");
    assert!(busiest <= 300, "{busiest} for one credential");
}

/// Repositories with ten open pull requests each, at the usual pace. Gives the requests in a time after the first look at all
/// of them, by what they ask for, and the most in any minute, the first look included.
async fn idle(count: usize, time: Duration) -> (BTreeMap<String, usize>, usize) {
    let mut repositories = Vec::new();
    for repository in 0..count {
        let pulls: Vec<serde_json::Value> = (1..=10)
            .map(|issue| {
                let marker = format!("<!-- agentd:issue-{issue} -->");
                serde_json::json!({
                    "title": format!("Pull {issue}"), "head": format!("feature/issue-{issue}"), "body": marker,
                    "author": "helper",
                })
            })
            .collect();
        let commits: Vec<serde_json::Value> = std::iter::once(serde_json::json!({ "files": { "a": "a" } }))
            .chain((1..=10).map(|issue| {
                serde_json::json!({ "branch": format!("feature/issue-{issue}"), "files": { format!("{issue}"): "x" } })
            }))
            .collect();
        let issues: Vec<serde_json::Value> = (1..=10)
            .map(|issue| serde_json::json!({ "title": format!("Issue {issue}"), "number": issue }))
            .collect();
        repositories.push(serde_json::json!({
            "name": format!("octo/r{repository}"), "collaborators": { "helper": "write" },
            "commits": commits, "issues": issues, "pulls": pulls,
        }));
    }
    let text = toml::to_string(&serde_json::json!({ "repositories": repositories })).unwrap();
    let mut yard = Yard::new(&text).await;
    yard.clock = Clock::system();
    yard.requests_per_minute = 300;
    let mut parts = yard.parts(|_| std::future::ready(ended(StopDetail::Completed)));
    parts.poll_interval = Duration::from_secs(2);
    parts.repositories = (0..count)
        .map(|n| Watched { name: RepoName::parse(&format!("octo/r{n}")).unwrap(), ..yard.watched() })
        .collect();
    let mut daemon = Daemon::open(parts).unwrap();
    let shutdown = yard.shutdown.clone();
    let stop = async {
        // The first look at all of them.
        let listed = || {
            yard.sim
                .requests()
                .iter()
                .filter(|one| one.target.contains("/pulls/comments?sort=updated"))
                .count()
        };
        while listed() < count {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = yard.sim.requests().len();
        tokio::time::sleep(time).await;
        let asked = yard.sim.requests().split_off(before);
        shutdown.request_stop();
        asked
    };
    let (_, asked) = futures::future::join(daemon.run(), stop).await;
    let mut kinds = BTreeMap::<String, usize>::new();
    for one in &asked {
        let path = one.target.split('?').next().unwrap_or_default();
        let kind: Vec<&str> = path.split('/').filter(|part| part.parse::<u64>().is_err()).skip(4).collect();
        let whether = if asks_whether(&one.target) { "whether " } else { "" };
        *kinds.entry(format!("{whether}{} {}", kind.join("/"), one.status)).or_default() += 1;
    }
    let all = yard.sim.requests();
    let minute = |from: Duration| {
        all.iter().filter(|one| one.at >= from && one.at < from + Duration::from_secs(60)).count()
    };
    (kinds, all.iter().map(|one| minute(one.at)).max().unwrap_or_default())
}

/// Whether a request asks if anything changed in a repository, between two looks at it.
fn asks_whether(target: &str) -> bool {
    target.ends_with("/issues?state=all&sort=updated&direction=desc&per_page=1")
}

/// A daemon of these repositories.
fn of_many(yard: &Yard, names: &[String], poll_interval: Duration) -> Daemon {
    let parts = yard.parts(|_| std::future::ready(ended(StopDetail::Completed)));
    let watched = |name: &String| Watched { name: RepoName::parse(name).unwrap(), ..yard.watched() };
    let repositories = names.iter().map(watched).collect();
    Daemon::open(Dependencies { poll_interval, repositories, ..parts }).unwrap()
}

/// Goes on when nothing was asked for a little while. It never parks, so that time stands still meanwhile.
async fn at_rest(asked: impl Fn() -> usize) {
    let (mut before, mut since) = (asked(), std::time::Instant::now());
    while since.elapsed() < Duration::from_millis(15) {
        tokio::task::yield_now().await;
        let now = asked();
        if now != before {
            (before, since) = (now, std::time::Instant::now());
        }
    }
}

#[tokio::test]
async fn a_minute_of_deliveries_to_ten_repositories_costs_forty_requests() {
    let names: Vec<String> = (0..10).map(|n| format!("octo/many-{n}")).collect();
    let entry = |name: &String| {
        format!("[[repositories]]\nname = \"{name}\"\ncollaborators = {{ helper = \"write\" }}\n")
    };
    let yard = Yard::new(&names.iter().map(entry).collect::<String>()).await;
    let mut daemon = of_many(&yard, &names, Duration::from_secs(600));
    let hints = daemon.hints();
    let asked = || yard.sim.requests().len();
    daemon.once().await;
    let before = asked();
    let deliver = async {
        tokio::time::pause();
        for delivery in 0..120 {
            hints.look_at(Some(&names[delivery % names.len()]));
            tokio::time::advance(Duration::from_millis(10)).await;
            at_rest(asked).await;
            tokio::time::advance(Duration::from_millis(490)).await;
        }
        tokio::time::resume();
        yard.shutdown.request_stop();
        asked() - before
    };
    let (_, cost) = futures::future::join(daemon.run(), deliver).await;
    println!("{cost} requests");
    assert!(cost <= 40, "{cost} requests in a minute");
    for name in &names {
        let path = format!("/repos/{name}/issues?");
        let looks = yard.sim.requests().iter().filter(|asked| asked.target.starts_with(&path)).count();
        assert!(looks >= 2, "{name} was looked at when it polled and when it was delivered: {looks}");
    }
    yard.violations();
}

/// Twelve repositories, each of which is looked at once a minute and more while nothing happens.
#[tokio::test]
async fn what_happens_in_one_of_many_idle_repositories_is_seen_by_the_next_poll() {
    let names: Vec<String> = (0..12).map(|n| format!("octo/many-{n}")).collect();
    let entry = |name: &String| {
        format!(
            "[[repositories]]\nname = \"{name}\"\ncollaborators = {{ helper = \"write\", ada = \"write\" }}\n\
             [[repositories.issues]]\ntitle = \"One\"\n[[repositories.issues]]\ntitle = \"Two\"\n"
        )
    };
    let yard = Yard::new(&names.iter().map(entry).collect::<String>()).await;
    let mut daemon = of_many(&yard, &names, Duration::from_secs(30));
    let asked = || yard.sim.requests().len();
    let looks = |name: &str| {
        let path = format!("/repos/{name}/pulls?");
        yard.sim.requests().iter().filter(|asked| asked.target.starts_with(&path)).count()
    };
    daemon.once().await;
    let (shutdown, sim, statuses) = (yard.shutdown.clone(), &yard.sim, daemon.statuses());
    let happen = async {
        tokio::time::pause();
        // A pause of no length ends with the next step of the clock.
        let poll = async |is_over: &dyn Fn() -> bool| {
            tokio::time::advance(Duration::from_secs(30)).await;
            // Limited by real time, as long as that stays far from the next poll.
            let begun = std::time::Instant::now();
            while !is_over() && begun.elapsed() < Duration::from_secs(60) {
                at_rest(asked).await;
                tokio::time::advance(Duration::from_millis(1)).await;
            }
            at_rest(asked).await;
        };
        let before = asked();
        poll(&|| asked() == before + names.len()).await;
        assert!(names.iter().all(|name| looks(name) == 1), "nothing happened");
        let questions = sim.requests().split_off(before);
        assert!(questions.iter().all(|one| asks_whether(&one.target) && !one.counted), "{questions:#?}");
        // Of changes in one second the issue with the higher number comes first.
        sim.add_label("octo/many-3", 2, "agentd", "ada");
        sim.add_comment("octo/many-5", 2, "ada", "Words.");
        sim.close_issue("octo/many-7", 2, "ada");
        let fault = json!({ "path": "**/many-9/issues", "kind": "status", "status": 502, "times": 2 });
        sim.inject(&serde_json::from_value(fault).unwrap()).unwrap();
        let looked = || -> Vec<&String> { names.iter().filter(|name| looks(name) > 1).collect() };
        let failing = |status: Arc<Status>| status.repositories.iter().any(|of| of.failing_since.is_some());
        let fails = || statuses.borrow().clone().is_some_and(failing);
        poll(&|| looked().len() == 3 && !yard.started().is_empty() && fails()).await;
        assert_eq!(looked(), ["octo/many-3", "octo/many-5", "octo/many-7"]);
        assert_eq!(yard.started(), [2], "who labelled it does not wait");
        assert!(fails(), "what does not answer was looked at, too");
        poll(&|| looked().contains(&&names[9]) && !fails()).await;
        assert!(looked().contains(&&names[9]) && !fails(), "and is looked at until it answers");
        tokio::time::resume();
        shutdown.request_stop();
    };
    futures::future::join(daemon.run(), happen).await;
    yard.violations();
}

#[tokio::test]
async fn after_a_start_many_repositories_are_looked_at_in_turns_and_first_where_something_changed_last() {
    let names: Vec<String> = (0..48).map(|n| format!("octo/many-{n}")).collect();
    let entry = |name: &String| {
        format!(
            "[[repositories]]\nname = \"{name}\"\ncollaborators = {{ helper = \"write\", ada = \"write\" }}\n\
             [[repositories.issues]]\ntitle = \"One\"\n"
        )
    };
    let yard = Yard::new(&names.iter().map(entry).collect::<String>()).await;
    // Everything else is of one second.
    let later = (Clock::system().now() + chrono::TimeDelta::seconds(5)).to_rfc3339();
    let labelled = json!({ "actor": "ada", "at": later });
    yard.sim.admin("PUT", "repos/octo/many-40/issues/1/labels/agentd", &labelled).unwrap();
    let mut daemon = of_many(&yard, &names, Duration::from_secs(600));
    let looked_at = || {
        let looked = |name: &&String| {
            yard.sim.requests().iter().any(|one| one.target.starts_with(&format!("/repos/{name}/pulls?")))
        };
        names.iter().filter(looked).count()
    };
    let shutdown = yard.shutdown.clone();
    let happen = async {
        while yard.started().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let before = looked_at();
        assert!(before <= 16, "{before} were looked at before what was asked for began");
        while looked_at() < names.len() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        shutdown.request_stop();
    };
    let limit = Duration::from_secs(120);
    let both = futures::future::join(daemon.run(), happen);
    tokio::time::timeout(limit, both).await.expect("all of them are looked at, long before the next poll");
    yard.violations();
}

#[tokio::test]
async fn whoever_asks_to_look_now_has_repositories_looked_at_where_nothing_has_happened_for_long() {
    let names: Vec<String> = (0..10).map(|n| format!("octo/many-{n}")).collect();
    let entry = |name: &String| {
        format!("[[repositories]]\nname = \"{name}\"\ncollaborators = {{ helper = \"write\" }}\n")
    };
    let yard = Yard::new(&names.iter().map(entry).collect::<String>()).await;
    let mut daemon = of_many(&yard, &names, Duration::from_secs(600));
    let hints = daemon.hints();
    let looks = |name: &str| {
        let path = format!("/repos/{name}/issues?");
        yard.sim.requests().iter().filter(|asked| asked.target.starts_with(&path)).count()
    };
    daemon.once().await;
    let ask = async {
        for times in 2..4 {
            hints.look_now();
            let begin = std::time::Instant::now();
            while names.iter().any(|name| looks(name) < times) && begin.elapsed() < Duration::from_secs(60) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let seen: Vec<usize> = names.iter().map(|name| looks(name)).collect();
            assert!(seen.iter().all(|looks| *looks >= times), "{seen:?}");
        }
        yard.shutdown.request_stop();
    };
    futures::future::join(daemon.run(), ask).await;
    yard.violations();
}

#[tokio::test]
async fn what_a_delivery_tells_of_is_looked_for_again_where_the_first_look_failed() {
    let names = ["octo/one".to_owned()];
    let entry = "[[repositories]]\nname = \"octo/one\"\ncollaborators = { helper = \"write\", ada = \"write\" }\n\
                 [[repositories.issues]]\ntitle = \"One\"\n";
    let yard = Yard::new(entry).await;
    let mut daemon = of_many(&yard, &names, Duration::from_secs(600));
    daemon.once().await;
    yard.sim.add_label("octo/one", 1, "agentd", "ada");
    let fault = json!({ "path": "**/one/issues", "kind": "status", "status": 502, "times": 2 });
    yard.sim.inject(&serde_json::from_value(fault).unwrap()).unwrap();
    daemon.hints().look_at(Some("octo/one"));
    let shutdown = yard.shutdown.clone();
    let happen = async {
        while yard.started().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        shutdown.request_stop();
    };
    let both = futures::future::join(daemon.run(), happen);
    let limit = Duration::from_secs(120);
    tokio::time::timeout(limit, both).await.expect("it is seen long before the next poll");
    yard.violations();
}
