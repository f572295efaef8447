//! In a cluster: what each living node says to one more run in a repository, for `agentd why`.

use crate::daemon::status_format::Status;
use crate::daemon::{NodeAnswer, OFFERED};
use crate::domain::cluster::assignment::{AssignmentAnswer, AssignmentCell};
use crate::domain::cluster::cells::{NodeCell, NodeState};
use crate::domain::cluster::names::{BESIDE, token};
use crate::domain::name::RepoName;
use crate::store::assignments::AssignmentId;
use crate::store::nats::NodeSeen;

/// Of each living daemon, in the order of their names. `statuses`: what they last said; `given`: the repository's runs that nodes were given.
pub fn answers(
    nodes: &[NodeSeen],
    statuses: &[(String, Status)],
    given: &[(AssignmentId, AssignmentCell)],
    (repo, issue): (&RepoName, u64),
) -> Vec<NodeAnswer> {
    // A process beside a daemon takes nothing of others.
    let daemons = nodes.iter().filter(|seen| seen.cell.state.lives() && !seen.node.contains(BESIDE));
    let mut answers: Vec<NodeAnswer> = daemons
        .map(|seen| {
            let is_own = |name: &str| token(name) == token(&seen.node);
            let status = statuses.iter().find(|(node, _)| is_own(node)).map(|(_, status)| status);
            let given = given.iter().find(|(id, _)| id.number == issue && is_own(&id.node));
            let (code, answer) = given
                .and_then(|(_, given)| offered(given))
                .or_else(|| refusal(&seen.cell, status, repo))
                .unwrap_or_else(|| ("ok", format!("it has room: {}", room(&seen.cell))));
            NodeAnswer { node: seen.node.clone(), code, answer }
        })
        .collect();
    answers.sort_by(|one, other| one.node.cmp(&other.node));
    answers
}

fn room(cell: &NodeCell) -> String {
    format!("{} of {} runs", cell.runs, cell.capacity)
}

/// A run that the node was given and that is not at work yet.
fn offered(given: &AssignmentCell) -> Option<(&'static str, String)> {
    let told = match &given.answer {
        AssignmentAnswer::Open => "the run was given to it, and it has not answered yet",
        AssignmentAnswer::Taken { run_id: None, .. } => "it was given the run, and begins it",
        AssignmentAnswer::Taken { .. }
        | AssignmentAnswer::Declined { .. }
        | AssignmentAnswer::Ended { .. } => return None,
    };
    Some((OFFERED, told.to_owned()))
}

/// Why a node takes no run in a repository; `None` = it would.
fn refusal(cell: &NodeCell, status: Option<&Status>, repo: &RepoName) -> Option<(&'static str, String)> {
    let name = repo.to_string().to_ascii_lowercase();
    let refused = |code, why: &str| Some((code, why.to_owned()));
    if cell.state == NodeState::Draining || status.is_some_and(|status| status.stopping) {
        return refused("draining", "it is being drained, and takes nothing more");
    }
    if !cell.serves.contains(&name) {
        return Some(("not_configured", format!("{repo} is not in its configuration")));
    }
    if let Some(skew) = status.and_then(|status| status.clock_skew.as_ref()) {
        return Some(("clock_skew", format!("its clock is {:+} s off the store's", skew.seconds)));
    }
    if let Some(schema) = status.and_then(|status| status.schema_unknown.as_ref()) {
        let told = format!(
            "its agentd ({}) does not know the schema {} that is in force",
            cell.version, schema.in_force
        );
        return Some(("schema_unknown", told));
    }
    if let Some(full) = status.and_then(|status| status.store_full.as_ref()) {
        return Some(("store_full", full.error.clone()));
    }
    if cell.github_fails {
        return refused("github_unreachable", "it does not reach GitHub at present");
    }
    (cell.runs >= cell.capacity).then(|| ("slots_full", format!("it has no room: {}", room(cell))))
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use serde_json::{Value, json};

    use super::*;
    use crate::domain::cluster::cells::{NODE_SCHEMA, RunKey, SessionId};

    fn seen(name: &str, more: Value) -> NodeSeen {
        let mut cell = json!({
            "schema_version": NODE_SCHEMA, "session": 1, "renewed": 1, "state": "live", "host": "h", "boot_id": "b", "pid": 1,
            "started": 1, "version": "1.2", "capacity": 2, "runs": 1, "serves": ["demo/shop"],
        });
        cell.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let cell = serde_json::from_value(cell).unwrap();
        NodeSeen { node: name.to_owned(), cell, written: DateTime::UNIX_EPOCH }
    }

    #[test]
    fn each_living_daemon_says_why_it_does_not_take_a_run() {
        let nodes = [
            seen("f", json!({ "state": "draining" })),
            seen("a", json!({})),
            seen("b", json!({ "runs": 2 })),
            seen("c", json!({ "github_fails": true })),
            seen("d", json!({ "serves": [] })),
            seen("e", json!({})),
            seen("a+1", json!({ "serves": [], "capacity": 0 })),
            seen("gone", json!({ "state": "expired" })),
        ];
        let repo = RepoName::parse("Demo/Shop").unwrap();
        let by = SessionId { node: "a".into(), session: 1 };
        let open = AssignmentCell::new(RunKey::asked_once(), by.clone(), Value::Null);
        let id = |number| AssignmentId { node: "e".into(), repo: repo.clone(), number };
        let codes = |given: &[(AssignmentId, AssignmentCell)]| -> Vec<(String, &str)> {
            let all = answers(&nodes, &[], given, (&repo, 7));
            all.into_iter().map(|one| (one.node, one.code)).collect()
        };
        let rest = |e| {
            let all =
                [("a", "ok"), ("b", "slots_full"), ("c", "github_unreachable"), ("d", "not_configured")];
            let all = all.into_iter().chain([("e", e), ("f", "draining")]);
            all.map(|(node, code)| (node.to_owned(), code)).collect::<Vec<_>>()
        };
        assert_eq!(codes(&[(id(7), open.clone())]), rest("offered"));
        assert_eq!(codes(&[(id(8), open.clone())]), rest("ok"), "another issue");
        let taken =
            AssignmentCell { answer: AssignmentAnswer::Taken { by, run_id: Some("r".into()) }, ..open };
        assert_eq!(codes(&[(id(7), taken)]), rest("ok"), "it is at work");
    }
}
