//! `agentd cluster drain` and `agentd cluster move`: a node's runs, or one, go on elsewhere.

use std::time::Duration;

use serde_json::json;

use crate::cli::cluster_access::{configured, connect, failed};
use crate::cli::context::Context;
use crate::cli::error::CommandError;
use crate::cli::issue_arg::IssueArg;
use crate::domain::cluster::cells::{Hold, NodeState, SessionId};
use crate::domain::cluster::control::{ControlMessage, Move, NodeRequest};
use crate::domain::cluster::names::{BESIDE, node_of, token};
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::repository::mapping_format::mapping_of;
use crate::store::nats::{NatsStore, NodeSeen};
use crate::sys::clock::Stopwatch;

/// How long it is waited for a node that says that it has heard.
const HEARD_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(200);

/// Asks a node to end, its runs to go on elsewhere behind their visits.
pub fn drain(context: &Context, node: &str) -> Result<(), CommandError> {
    let config = configured(context)?;
    let store = connect(context, &config)?;
    let found = living(&store, node)?;
    let session = SessionId { node: found.node.clone(), session: found.cell.session };
    let asked = ControlMessage::new(user(context), NodeRequest::Drain { session: session.clone() });
    store.send_control(&asked).map_err(|error| failed(&error))?;
    let state = heard(&store, &session)?;
    let out = context.output;
    if out.json() {
        return out.document(&json!({
            "node": session.node, "session": session.session, "heard": state.is_some_and(has_heard), "state": state,
        }));
    }
    out.line(match state {
        Some(NodeState::Live) => format!("{node} is asked to drain, and has not said yet that it heard."),
        Some(NodeState::Draining) => {
            let runs = found.cell.runs;
            let mut elsewhere = true;
            for repo in &found.cell.serves {
                elsewhere &= others_take(&store, repo, &found.node)?;
            }
            let place = if elsewhere { "elsewhere" } else { "as soon as another node that takes them lives" };
            format!(
                "{node} drains: its runs ({runs}) end behind the visits that are under way, and go on {place}. It takes no other one."
            )
        }
        Some(NodeState::Left) => format!("{node} has ended."),
        Some(NodeState::Expired) => format!(
            "{node} has not said that it heard: it gave no sign of life, and its session has expired. It takes nothing more, and what \
             it had goes on on other nodes."
        ),
        None => format!(
            "{node} has not said that it heard: it has begun anew meanwhile. Ask again where that one is to end, too."
        ),
    })
}

/// Asks the node that works on an issue to end its run behind the visit, so that another one goes on with it.
pub fn move_run(context: &Context, issue: &IssueArg, to: Option<&str>) -> Result<(), CommandError> {
    let config = configured(context)?;
    let store = connect(context, &config)?;
    let only = issue.repo.as_ref().or(context.global.repo.as_ref());
    let number = issue.tracked()?;
    let (repo, by, run_id) = at_work(&store, number, only)?;
    let from = node_of(&by.node).to_owned();
    if by.node.contains(BESIDE) {
        let told = format!("issue {number} is worked on by a command on {from}, not by its daemon");
        return Err(CommandError::invalid(told)
            .hint("stop it there; a daemon then goes on with it if its label is on"));
    }
    let to = to.map(|to| living(&store, to)).transpose()?;
    let name = repo.to_string().to_ascii_lowercase();
    if let Some(to) = &to {
        if to.cell.capacity == 0 || !to.cell.serves.contains(&name) {
            return Err(CommandError::invalid(format!("{} takes no runs of {repo}", to.node)).hint(
                "`agentd cluster status` shows the nodes; the repository has to be in its configuration",
            ));
        }
        if to.node == from {
            return Err(CommandError::invalid(format!("issue {number} is worked on by {from} already")));
        }
    }
    if to.is_none() && !others_take(&store, &name, &from)? {
        let told = format!("no node lives beside {from} that takes runs of {repo}");
        return Err(CommandError::invalid(told).hint("`agentd cluster status` shows the nodes"));
    }
    let to = to.map(|to| to.node);
    let asked = Move { repository: repo.clone(), issue: number, run_id, to: to.clone() };
    let asked = ControlMessage::new(user(context), NodeRequest::Move(asked));
    store.send_control(&asked).map_err(|error| failed(&error))?;
    let out = context.output;
    if out.json() {
        return out.document(&json!({
            "repository": repo, "issue": number, "run_id": run_id, "from": from, "to": to,
        }));
    }
    let place = to.as_deref().unwrap_or("another node with room");
    out.line(format!(
        "{from} is asked to end run {run_id} of {repo}#{number} behind the visit that is under way; it goes on on {place}."
    ))
}

/// Who asks, for the log of the node.
fn user(context: &Context) -> String {
    context.env.get("USER").map_or_else(|| "somebody".to_owned(), |user| user.to_string())
}

/// Whether a node beside this one takes runs of a repository, by its name in lower case.
fn others_take(store: &NatsStore, repo: &str, beside: &str) -> Result<bool, CommandError> {
    let nodes = store.nodes().map_err(|error| failed(&error))?;
    Ok(nodes.iter().any(|one| {
        let takes = one.cell.state == NodeState::Live && one.cell.capacity > 0;
        takes && token(&one.node) != token(beside) && one.cell.serves.iter().any(|name| name == repo)
    }))
}

/// A node that lives.
fn living(store: &NatsStore, name: &str) -> Result<NodeSeen, CommandError> {
    let nodes = store.nodes().map_err(|error| failed(&error))?;
    let lives = |one: &NodeSeen| matches!(one.cell.state, NodeState::Live | NodeState::Draining);
    let found = nodes.into_iter().find(|one| token(&one.node) == token(name));
    found.filter(lives).ok_or_else(|| {
        CommandError::invalid(format!("there is no node \"{name}\" that lives"))
            .hint("`agentd cluster status` shows the nodes")
    })
}

/// The run of an issue that a node works on.
fn at_work(
    store: &NatsStore,
    number: u64,
    only: Option<&RepoName>,
) -> Result<(RepoName, SessionId, RunId), CommandError> {
    let same =
        |repo: &RepoName| only.is_none_or(|only| only.to_string().eq_ignore_ascii_case(&repo.to_string()));
    let mut found = Vec::new();
    for (repo, key, cell) in store.issues().map_err(|error| failed(&error))? {
        if key == number.to_string()
            && same(&repo)
            && let Hold::Leased { by, .. } = &cell.hold
            && let Some(mapping) = cell.record.as_ref().and_then(mapping_of)
        {
            found.push((repo, by.clone(), mapping.run_id));
        }
    }
    let many = found.iter().map(|(repo, ..)| repo.to_string()).collect::<Vec<_>>().join(", ");
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (Some(_), false) => Err(CommandError::invalid(format!("issue {number} is worked on in {many}"))
            .hint(format!("name one: OWNER/NAME#{number}"))),
        (None, _) => Err(CommandError::invalid(match only {
            Some(repo) => format!("no node works on issue {number} of {repo}"),
            None => format!("no node works on issue {number}"),
        })
        .hint("`agentd cluster status` shows who works on what")),
    }
}

/// Whether a session that was asked to end says so by this: others say that it expired.
fn has_heard(state: NodeState) -> bool {
    matches!(state, NodeState::Draining | NodeState::Left)
}

/// How a session is, once that is not that it works as before; `None` = its node has begun the next one.
fn heard(store: &NatsStore, session: &SessionId) -> Result<Option<NodeState>, CommandError> {
    let begin = Stopwatch::start();
    loop {
        let nodes = store.nodes().map_err(|error| failed(&error))?;
        let now = nodes.iter().find(|one| one.node == session.node);
        let state = match now {
            Some(one) if one.cell.session == session.session => Some(one.cell.state),
            _ => None,
        };
        if state != Some(NodeState::Live) || begin.elapsed() > HEARD_WITHIN {
            return Ok(state);
        }
        std::thread::sleep(LOOK);
    }
}
