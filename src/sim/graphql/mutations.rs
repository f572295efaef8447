//! Mutations, and how what they change is found by its node id.

use super::node::{Arguments, Found, Node, Problem, Resolved};
use crate::sim::call::Call;
use crate::sim::world::{Repository, TextPlace, World};

/// An issue, pull request or repository by its node id, where the caller sees it.
pub fn by_id(world: &World, call: &Call, id: &str) -> Option<Node> {
    let (kind, number) = id.split_once('_')?;
    let number: u64 = number.parse().ok()?;
    for (index, repo) in world.repositories.iter().enumerate() {
        if call.repository(world, &repo.owner, &repo.name).is_err() {
            continue;
        }
        if kind == "R" && repo.id == number {
            return Some(Node::Repository(index));
        }
        let text = || {
            let place = repo.find_text(number)?;
            let node = Node::Text(index, place);
            let wanted = match kind {
                "IC" => "IssueComment",
                "PRR" => "PullRequestReview",
                "PRRC" => "PullRequestReviewComment",
                _ => return None,
            };
            (node.type_name() == wanted).then_some(node)
        };
        let found = match kind {
            "UCE" => edit(repo, number).map(|(place, edit)| Node::Edit(index, place, edit)),
            "PRRT" => repo.find_thread(number).map(|(pull, place)| Node::Thread(index, pull, place)),
            "CR" | "SC" => {
                repo.checks.iter().find(|check| check.id == number && check.run == (kind == "CR")).map(
                    |check| {
                        if check.run { Node::CheckRun(index, number) } else { Node::Status(index, number) }
                    },
                )
            }
            _ => text(),
        };
        if found.is_some() {
            return found;
        }
        if let Some(issue) = repo.issues.values().find(|issue| issue.id == number) {
            return match (kind, &issue.pull) {
                ("PR", Some(_)) => Some(Node::Pull(index, issue.number)),
                ("I", None) => Some(Node::Issue(index, issue.number)),
                _ => None,
            };
        }
    }
    None
}

/// The revision of that id: whose text, and its place.
fn edit(repo: &Repository, id: u64) -> Option<(TextPlace, usize)> {
    let texts = repo.issues.values().flat_map(|issue| {
        let number = issue.number;
        let pull = issue.pull.iter();
        let comments = (0..issue.comments.len()).map(move |place| TextPlace::Comment(number, place));
        let reviews = pull
            .clone()
            .flat_map(move |pull| (0..pull.reviews.len()).map(move |place| TextPlace::Review(number, place)));
        let threads = pull.flat_map(move |pull| {
            pull.threads.iter().enumerate().flat_map(move |(thread, found)| {
                (0..found.comments.len()).map(move |place| TextPlace::Thread(number, thread, place))
            })
        });
        std::iter::once(TextPlace::Body(number)).chain(comments).chain(reviews).chain(threads)
    });
    texts
        .into_iter()
        .find_map(|place| repo.edits(place).iter().position(|edit| edit.id == id).map(|edit| (place, edit)))
}

fn unknown(id: &str) -> Problem {
    Problem::new("NOT_FOUND", format!("Could not resolve to a node with the global id of '{id}'."))
}

/// A mutation of the schema.
pub fn mutation(world: &mut World, call: &Call, field: &str, arguments: &Arguments) -> Resolved {
    let input = arguments.get("input").cloned().unwrap_or_default();
    let id = |name: &str| input[name].as_str().unwrap_or_default().to_owned();
    let (node, payload) = match field {
        "markPullRequestReadyForReview" => {
            (draft(world, call, &id("pullRequestId"), field, false)?, "MarkPullRequestReadyForReviewPayload")
        }
        "convertPullRequestToDraft" => {
            (draft(world, call, &id("pullRequestId"), field, true)?, "ConvertPullRequestToDraftPayload")
        }
        "addPullRequestReviewThreadReply" => {
            let body = input["body"].as_str().unwrap_or_default();
            (
                reply(world, call, &id("pullRequestReviewThreadId"), body)?,
                "AddPullRequestReviewThreadReplyPayload",
            )
        }
        "resolveReviewThread" => {
            (resolve(world, call, &id("threadId"), field, true)?, "ResolveReviewThreadPayload")
        }
        "unresolveReviewThread" => {
            (resolve(world, call, &id("threadId"), field, false)?, "UnresolveReviewThreadPayload")
        }
        "minimizeComment" => {
            let why = input["classifier"].as_str().unwrap_or_default().to_lowercase().replace('_', "-");
            (minimize(world, call, &id("subjectId"), field, Some(why))?, "MinimizeCommentPayload")
        }
        _ => (minimize(world, call, &id("subjectId"), field, None)?, "UnminimizeCommentPayload"),
    };
    Ok(Found::Node(Node::Payload(payload, Box::new(node), input["clientMutationId"].clone())))
}

/// Refuses a caller without the permission in GraphQL's words.
fn needs(world: &World, call: &Call, repo: usize, permission: &str, field: &str) -> Result<(), Problem> {
    if call.needs(world, &world.repositories[repo], permission, "write").is_ok() {
        return Ok(());
    }
    let message = match &call.token {
        Some(token) if token.installation.is_some() => "Resource not accessible by integration".to_owned(),
        token => {
            let login = token.as_ref().map_or("", |token| token.login.as_str());
            format!("{login} does not have the correct permissions to execute `{field}`")
        }
    };
    Err(Problem::new("FORBIDDEN", message))
}

fn draft(world: &mut World, call: &Call, id: &str, field: &str, draft: bool) -> Result<Node, Problem> {
    let Some(node @ Node::Pull(repo, number)) = by_id(world, call, id) else { return Err(unknown(id)) };
    needs(world, call, repo, "pull_requests", field)?;
    let at = world.now();
    if let Some(issue) = world.repositories[repo].issues.get_mut(&number) {
        if !issue.open {
            return Err(Problem::new("UNPROCESSABLE", "Pull request is closed"));
        }
        issue.updated_at = at;
        if let Some(pull) = &mut issue.pull {
            pull.draft = draft;
        }
    }
    Ok(node)
}

fn reply(world: &mut World, call: &Call, id: &str, body: &str) -> Result<Node, Problem> {
    let Some(Node::Thread(repo, number, place)) = by_id(world, call, id) else { return Err(unknown(id)) };
    let author = call.token.as_ref().map_or("", |token| token.login.as_str()).to_owned();
    if let Err(reply) = crate::sim::rest::comments::may_write(world, call, repo, number, "pull_requests") {
        let message = reply.body.and_then(|body| body["message"].as_str().map(str::to_owned));
        return Err(Problem::new("FORBIDDEN", message.unwrap_or_default()));
    }
    if body.trim().is_empty() {
        return Err(Problem::new("UNPROCESSABLE", "Body can't be blank"));
    }
    let made = world.add_reply((repo, number), place, &author, body).ok_or_else(|| unknown(id))?;
    let place = world.repositories[repo].find_text(made).ok_or_else(|| unknown(id))?;
    Ok(Node::Text(repo, place))
}

/// Threads are resolved by who may push, as GitHub has it.
fn resolve(world: &mut World, call: &Call, id: &str, field: &str, on: bool) -> Result<Node, Problem> {
    let Some(node @ Node::Thread(repo, number, place)) = by_id(world, call, id) else {
        return Err(unknown(id));
    };
    needs(world, call, repo, "contents", field)?;
    let by = call.token.as_ref().map(|token| token.login.clone()).filter(|_| on);
    world.resolve(repo, (number, place), by.as_deref());
    Ok(node)
}

fn minimize(
    world: &mut World,
    call: &Call,
    id: &str,
    field: &str,
    why: Option<String>,
) -> Result<Node, Problem> {
    let Some(node @ Node::Text(repo, place)) = by_id(world, call, id) else { return Err(unknown(id)) };
    let permission = if matches!(place, TextPlace::Comment(..)) { "issues" } else { "pull_requests" };
    needs(world, call, repo, permission, field)?;
    if let Some(text) = world.repositories[repo].text_mut(place) {
        text.minimized = why;
    }
    Ok(node)
}
