//! What checks say of a commit, in the GraphQL API.

use serde_json::{Value, json};

use super::node::{Arguments, Found, Node, Problem, Resolved, leaf, page};
use crate::sim::call::Call;
use crate::sim::rest::checks::{address, newest};
use crate::sim::rest::shapes::time;
use crate::sim::world::{Check, World};

/// The rollup of a commit; `None`: nothing is said of it.
pub fn of(world: &World, repo: usize, sha: &str) -> Option<Node> {
    let any = newest(&world.repositories[repo], sha).next().is_some();
    any.then(|| Node::Rollup(repo, sha.to_owned()))
}

/// A field of a rollup.
pub fn rollup(world: &World, repo: usize, sha: &str, field: &str, arguments: &Arguments) -> Resolved {
    let checks: Vec<&Check> = newest(&world.repositories[repo], sha).collect();
    match field {
        "id" => leaf(format!("SCR_{sha}")),
        "commit" => Ok(Found::Node(Node::Commit(repo, sha.to_owned()))),
        "state" => leaf(state(&checks)),
        _ => {
            let node = |check: &&Check| {
                if check.run { Node::CheckRun(repo, check.id) } else { Node::Status(repo, check.id) }
            };
            page("StatusCheckRollupContextConnection", field, checks.iter().map(node).collect(), arguments)
        }
    }
}

fn state(checks: &[&Check]) -> &'static str {
    let any = |outcomes: &[&str]| {
        checks.iter().any(|check| outcomes.contains(&check.outcome.as_deref().unwrap_or("pending")))
    };
    if any(&["failure", "timed_out", "startup_failure", "cancelled", "action_required"]) {
        "FAILURE"
    } else if any(&["error"]) {
        "ERROR"
    } else if any(&["pending"]) {
        "PENDING"
    } else {
        "SUCCESS"
    }
}

/// A field of a check run or a commit status.
pub fn check(
    world: &World,
    call: &Call,
    (repo, id): (usize, u64),
    field: &str,
    arguments: &Arguments,
) -> Resolved {
    let repository = &world.repositories[repo];
    let Some(check) = repository.checks.iter().find(|check| check.id == id) else {
        return Ok(Found::Nothing);
    };
    let optional = |text: &Option<String>| Ok(Found::Leaf(json!(text)));
    let done = check.outcome.is_some();
    match field {
        "id" => leaf(format!("{}_{id}", if check.run { "CR" } else { "SC" })),
        "databaseId" => leaf(id),
        "name" | "context" => leaf(check.name.clone()),
        "isRequired" => {
            if arguments.get("pullRequestNumber").is_none() && arguments.get("pullRequestId").is_none() {
                let message = "Either a pullRequestId or a pullRequestNumber must be given.";
                return Err(Problem::new("UNPROCESSABLE", message));
            }
            leaf(check.required)
        }
        "status" => leaf(if done { "COMPLETED" } else { "IN_PROGRESS" }),
        "conclusion" => optional(&check.outcome.as_ref().map(|outcome| outcome.to_uppercase())),
        "state" => leaf(check.outcome.as_deref().unwrap_or("pending").to_uppercase()),
        "title" | "description" => optional(&check.description),
        "summary" => optional(&check.summary),
        "text" => optional(&check.text),
        "detailsUrl" | "targetUrl" => optional(&address(call, repository, check)),
        "url" | "permalink" => leaf(format!("{}/{}/runs/{id}", call.html, repository.full_name())),
        "checkSuite" => Ok(Found::Node(Node::Suite(repo, id))),
        "startedAt" | "createdAt" => leaf(time(check.at)),
        "completedAt" => Ok(Found::Leaf(if done { json!(time(check.at)) } else { Value::Null })),
        _ => Ok(Found::Nothing),
    }
}

/// A field of the suite of a check run, of the workflow run that it is of, or of its workflow.
pub fn workflow(world: &World, node: &Node, (repo, id): (usize, u64), field: &str) -> Resolved {
    let check = world.repositories[repo].checks.iter().find(|check| check.id == id);
    let Some(check) = check else { return Ok(Found::Nothing) };
    match (node, field, &check.job) {
        (Node::Suite(..), "id", job) => leaf(format!("CS_{}", job.as_ref().map_or(id, |job| job.run))),
        // As in the REST API.
        (Node::Suite(..), "databaseId", job) => leaf(job.as_ref().map_or(id, |job| job.run)),
        (Node::Suite(..), _, Some(_)) => Ok(Found::Node(Node::WorkflowRun(repo, id))),
        (Node::WorkflowRun(..), "id", Some(job)) => leaf(format!("WFR_{}", job.run)),
        (Node::WorkflowRun(..), "databaseId", Some(job)) => leaf(job.run),
        (Node::WorkflowRun(..), "event", Some(job)) => leaf(job.event.clone()),
        (Node::WorkflowRun(..), _, Some(_)) => Ok(Found::Node(Node::Workflow(repo, id))),
        (_, "id", Some(job)) => leaf(format!("W_{}", number(&job.workflow))),
        (_, "databaseId", Some(job)) => leaf(number(&job.workflow)),
        (_, _, Some(job)) => leaf(job.workflow.clone()),
        (_, _, None) => Ok(Found::Nothing),
    }
}

/// The id of a workflow: the same for the same name.
fn number(workflow: &str) -> u64 {
    workflow.bytes().fold(1, |number, byte| (number * 31 + u64::from(byte)) % 1_000_003)
}
