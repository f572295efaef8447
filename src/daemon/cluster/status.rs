//! In a cluster: what all nodes say, as one status.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use crate::daemon::status_format::{IssueStatus, NodeStatus, RepositoryStatus, RunningStatus, Status};
use crate::domain::name::RepoName;

/// What one node last said.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeWord {
    /// The node.
    pub node: String,
    /// Whether it works. What a node that is gone said of runs and issues is not so any more.
    pub lives: bool,
    /// When it said so, by the store's clock.
    pub as_of: DateTime<Utc>,
    /// Its status; `None` = it is of another version, and cannot be read here.
    pub status: Option<Status>,
}

impl NodeWord {
    /// What is not well there, in words for people.
    pub fn troubles(&self) -> Vec<String> {
        let Some(status) = self.status.as_ref().filter(|_| self.lives) else { return Vec::new() };
        let skew = status.clock_skew.as_ref().map(|skew| {
            format!("clock_skew: its clock is {:+} s off the store's, and it begins nothing", skew.seconds)
        });
        let full =
            status.store_full.as_ref().map(|full| format!("store_full: {}; it begins nothing", full.error));
        let slow = status.store_slow.as_ref().map(|slow| {
            format!("store_slow: a write takes up to {} ms (p99 of the last minute)", slow.p99_ms)
        });
        let schema = status.schema_unknown.as_ref().map(|schema| {
            let (in_force, version) = (schema.in_force, &status.version);
            format!("schema_unknown: its agentd ({version}) does not know the schema {in_force} that is in force, and it begins nothing")
        });
        let begun_anew = status.store_begun_anew.as_ref();
        let anew = begun_anew.map(|anew| format!("store_begun_anew: {}", anew.error));
        [skew, schema, full, slow, anew].into_iter().flatten().collect()
    }
}

/// One status of all nodes: what runs, waits and is polled, each item with its node. Everything else is as `base` says, which is the status
/// of who tells it. A run that was given to another node is told by that one. What runs does not wait, whoever has not heard of that yet.
/// Where no node works, it is as they left it.
pub fn of_all(base: Status, words: &[NodeWord]) -> Status {
    let somebody_works = words.iter().any(|word| word.lives);
    let living: Vec<(&str, &Status)> = words
        .iter()
        .filter(|word| word.lives || !somebody_works)
        .filter_map(|word| Some((word.node.as_str(), word.status.as_ref()?)))
        .collect();
    let nodes = words.iter().map(|word| NodeStatus {
        node: word.node.clone(),
        lives: word.lives,
        as_of: word.as_of,
        troubles: word.troubles(),
    });
    let repositories = repositories(&living);
    // Where no node works, several may have polled a repository one after the other: the last of them knows.
    let knows = |node: &str, issue: &IssueStatus| {
        somebody_works
            || !repositories.iter().any(|of| of.repo == issue.repo && of.node.as_deref() != Some(node))
    };
    let running = running(&living);
    let runs = |issue: &IssueStatus| {
        running.iter().any(|run| run.repo == issue.repo && issue.issue == run.issue.into())
    };
    let issues = |list: fn(&Status) -> &Vec<IssueStatus>| {
        let all = living.iter().flat_map(|(node, status)| {
            let told = list(status).iter().filter(|issue| knows(node, issue) && !runs(issue));
            told.map(|issue| IssueStatus { node: Some((*node).to_owned()), ..issue.clone() })
        });
        let mut all: Vec<IssueStatus> = all.collect();
        all.sort_by(|a, b| (&a.repo, &a.issue, &a.node).cmp(&(&b.repo, &b.issue, &b.node)));
        all
    };
    Status {
        waiting: issues(|status| &status.waiting),
        parked: issues(|status| &status.parked),
        running,
        nodes: nodes.collect(),
        repositories,
        ..base
    }
}

fn running(living: &[(&str, &Status)]) -> Vec<RunningStatus> {
    let works_on = |node: &str, run: &RunningStatus| {
        living.iter().filter(|(other, _)| *other == node).any(|(_, status)| {
            let own = |own: &RunningStatus| own.repo == run.repo && own.issue == run.issue;
            status.running.iter().any(|one| own(one) && one.placed_on.is_none())
        })
    };
    let mut all = Vec::new();
    for (node, status) in living {
        let told_there =
            |run: &&RunningStatus| run.placed_on.as_deref().is_some_and(|place| works_on(place, run));
        let runs = status.running.iter().filter(|run| !told_there(run));
        all.extend(runs.map(|run| RunningStatus { node: Some((*node).to_owned()), ..run.clone() }));
    }
    // An issue has one run: of a node that is gone and not known to be yet, it is the earlier one.
    all.sort_by(|a, b| (&a.repo, a.issue, b.since, &a.node).cmp(&(&b.repo, b.issue, a.since, &b.node)));
    all.dedup_by(|later, first| (&later.repo, later.issue) == (&first.repo, first.issue));
    all
}

/// A repository once, as who polls it tells; one that cannot be opened on a node may be polled by another.
fn repositories(living: &[(&str, &Status)]) -> Vec<RepositoryStatus> {
    let mut all: BTreeMap<&RepoName, RepositoryStatus> = BTreeMap::new();
    for (node, status) in living {
        for found in &status.repositories {
            let is_better = all
                .get(&found.repo)
                .is_none_or(|known| (known.polled_at, &known.node) < (found.polled_at, &None));
            if is_better {
                let found_there = RepositoryStatus { node: Some((*node).to_owned()), ..found.clone() };
                all.insert(&found.repo, found_there);
            }
        }
    }
    all.into_values().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::daemon::status_format::SCHEMA;

    fn word(node: &str, lives: bool, lists: serde_json::Value) -> NodeWord {
        let mut status = json!({
            "schema_version": SCHEMA, "pid": 1, "version": "1", "started_at": "2026-01-01T00:00:00Z", "at": "2026-01-01T00:00:00Z",
            "stopping": false, "repositories": [], "running": [], "waiting": [], "parked": [],
            "limits": { "budgets": [], "counted": 0, "unchanged": 0 },
        });
        for (name, list) in lists.as_object().unwrap() {
            status[name] = list.clone();
        }
        let status = serde_json::from_value(status).unwrap();
        NodeWord { node: node.into(), lives, as_of: DateTime::UNIX_EPOCH, status: Some(status) }
    }

    fn run(issue: u64, on: Option<&str>) -> serde_json::Value {
        json!({ "repo": "demo/shop", "issue": issue, "since": "2026-01-01T00:00:00Z", "placed_on": on })
    }

    fn repository(polled_at: Option<&str>) -> serde_json::Value {
        json!({ "repo": "demo/shop", "polled_at": polled_at })
    }

    #[test]
    fn each_run_is_told_once_by_who_works_on_it_and_nothing_by_who_is_gone() {
        let polled = repository(Some("2026-01-01T00:00:00Z"));
        let words = [
            // It polls: 7 works there, 8 on b, and 9 was given to b, which has not said so yet.
            word(
                "a",
                true,
                json!({ "running": [run(9, Some("b")), run(8, Some("b")), run(7, None)], "repositories": [polled] }),
            ),
            word("b", true, json!({ "running": [run(8, None)], "repositories": [repository(None)] })),
            word("c", false, json!({ "running": [run(7, None), run(10, None)], "repositories": [polled] })),
        ];
        let all = of_all(words[0].status.clone().unwrap(), &words);
        let told: Vec<_> =
            all.running.iter().map(|run| (run.issue, run.node.as_deref().unwrap_or_default())).collect();
        assert_eq!(told, [(7, "a"), (8, "b"), (9, "a")]);
        let polled: Vec<_> = all.repositories.iter().map(|of| of.node.as_deref()).collect();
        assert_eq!(polled, [Some("a")]);
        let lives: Vec<_> = all.nodes.iter().map(|node| (node.node.as_str(), node.lives)).collect();
        assert_eq!(lives, [("a", true), ("b", true), ("c", false)]);
        let left = of_all(words[0].status.clone().unwrap(), &words[2..]);
        assert_eq!(left.running.len(), 2, "nobody works: as it was left");
    }

    #[test]
    fn an_issue_that_runs_anywhere_does_not_wait_and_has_one_run() {
        let waits = json!([{ "repo": "demo/shop", "issue": 7, "code": "no_slot", "text": "" }, { "repo": "demo/shop", "issue": 8, "code": "no_slot", "text": "" }]);
        let mut later = run(7, None);
        later["since"] = json!("2026-01-01T00:01:00Z");
        let words = [
            word("a", true, json!({ "waiting": waits })),
            word("b", true, json!({ "running": [run(7, None)] })),
            // It goes on with it, and not everybody knows yet that b is gone.
            word("c", true, json!({ "running": [later] })),
        ];
        let all = of_all(words[0].status.clone().unwrap(), &words);
        let waiting: Vec<u64> = all.waiting.iter().filter_map(|issue| issue.issue.number()).collect();
        let running: Vec<_> =
            all.running.iter().map(|run| (run.issue, run.node.as_deref().unwrap())).collect();
        assert_eq!((waiting, running), (vec![8], vec![(7, "c")]));
    }

    #[test]
    fn where_no_node_works_an_issue_is_as_who_polled_it_last_left_it() {
        let issue = |issue: u64, code: &str| json!({ "repo": "demo/shop", "issue": issue, "code": code, "text": code });
        let earlier = json!({
            "parked": [issue(24, "approval_pending")], "waiting": [issue(25, "no_slot")],
            "repositories": [repository(Some("2026-01-01T00:00:00Z"))],
        });
        let later = json!({
            "waiting": [issue(26, "draining")], "repositories": [repository(Some("2026-01-01T00:01:00Z"))],
        });
        let words = [word("a", false, earlier), word("b", false, later)];
        let all = of_all(words[0].status.clone().unwrap(), &words);
        let told: Vec<u64> =
            all.waiting.iter().chain(&all.parked).filter_map(|issue| issue.issue.number()).collect();
        assert_eq!(told, [26], "b finished 24 and 25");
    }

    #[test]
    fn what_is_not_well_is_told_of_nodes_that_work() {
        let full = json!({ "store_full": { "since": "2026-01-01T00:00:00Z", "error": "no room" } });
        let troubles = word("a", true, full.clone()).troubles();
        assert_eq!(troubles, ["store_full: no room; it begins nothing"]);
        assert!(word("a", false, full).troubles().is_empty());
    }
}
