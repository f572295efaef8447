//! Comments of the threads of pull requests.

use serde_json::{Value, json};

use super::comments::{content, may_write, since};
use super::shapes::{self, time};
use crate::sim::bare;
use crate::sim::call::{Call, Outcome, Reply};
use crate::sim::world::{Issue, NewThread, Repository, TextPlace, Thread, ThreadComment, World};

const RESOURCE: &str = "PullRequestReviewComment";
const LISTED: [&str; 5] = ["since", "sort", "direction", "per_page", "page"];

/// The comments of a pull request's threads.
pub fn of(issue: &Issue) -> impl Iterator<Item = (&Thread, &ThreadComment)> {
    let threads = issue.pull.iter().flat_map(|pull| &pull.threads);
    threads.flat_map(|thread| thread.comments.iter().map(move |comment| (thread, comment)))
}

/// `GET …/pulls/comments`: of all pull requests.
pub fn all(world: &mut World, call: &Call, repo: usize) -> Outcome {
    let numbers: Vec<u64> = world.repositories[repo].issues.keys().copied().collect();
    listed(world, call, repo, &numbers)
}

/// `GET …/pulls/{n}/comments`.
pub fn list(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    let pull = world.repositories[repo].issues.get(&number).filter(|issue| issue.pull.is_some());
    pull.ok_or_else(Reply::not_found)?;
    listed(world, call, repo, &[number])
}

/// By id, unless asked otherwise; the direction counts only with an order, as on GitHub.
fn listed(world: &mut World, call: &Call, repo: usize, numbers: &[u64]) -> Outcome {
    call.takes_query(world, &LISTED)?;
    call.needs(world, &world.repositories[repo], "pull_requests", "read")?;
    let since = since(call, RESOURCE)?;
    super::pulls::refresh(world, repo);
    let repo = &world.repositories[repo];
    let issues = numbers.iter().filter_map(|number| repo.issues.get(number));
    let mut found: Vec<_> = issues
        .flat_map(|issue| of(issue).map(move |(thread, one)| (issue, thread, one)))
        .filter(|(.., one)| since.is_none_or(|since| one.comment.updated_at >= since))
        .collect();
    found.sort_by_key(|(.., one)| one.comment.id);
    match call.query("sort") {
        None => {}
        Some("created" | "created_at") => found.sort_by_key(|(.., one)| one.comment.created_at),
        Some("updated") => found.sort_by_key(|(.., one)| one.comment.updated_at),
        Some(_) => return Err(Reply::invalid("Query", "sort", "invalid", None)),
    }
    match (call.query("sort"), call.query("direction")) {
        (Some(_), Some("desc")) => found.reverse(),
        (_, None | Some("asc" | "desc")) => {}
        _ => return Err(Reply::invalid("Query", "direction", "invalid", None)),
    }
    let shown = found.into_iter().map(|(issue, thread, one)| shape(call, world, repo, issue, thread, one));
    call.page(Some(repo.id), shown.collect())
}

/// `POST …/pulls/{n}/comments`: begins a thread, or answers in one (`in_reply_to`).
pub fn create(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &[])?;
    let known = [
        "body",
        "commit_id",
        "path",
        "position",
        "side",
        "line",
        "start_line",
        "start_side",
        "in_reply_to",
        "subject_type",
    ];
    let body = call.takes_body(world, &known)?;
    may_write(world, call, repo, number, "pull_requests")?;
    super::pulls::refresh(world, repo);
    let (author, text) = (call.login()?.to_owned(), content(&body, RESOURCE)?);
    if let Some(id) = body.get("in_reply_to").and_then(Value::as_u64) {
        return answered(world, call, repo, number, (id, &author, &text));
    }
    let found = &world.repositories[repo];
    let pull = found.issues.get(&number).and_then(|issue| issue.pull.as_ref());
    let pull = pull.ok_or_else(Reply::not_found)?;
    let word = |name: &str| body.get(name).and_then(Value::as_str);
    let missing = |name: &str| Reply::invalid(RESOURCE, name, "missing_field", None);
    let path = word("path").ok_or_else(|| missing("path"))?.to_owned();
    let commit = word("commit_id").ok_or_else(|| missing("commit_id"))?;
    if bare::resolve(&found.git_dir, commit).is_none() {
        return Err(Reply::invalid(RESOURCE, "commit_id", "invalid", None));
    }
    let left = match word("side") {
        None | Some("RIGHT") => false,
        Some("LEFT") => true,
        Some(_) => return Err(Reply::invalid(RESOURCE, "side", "invalid", None)),
    };
    let number_of = |name: &str| body.get(name).and_then(Value::as_u64);
    let line = match (word("subject_type"), number_of("line")) {
        (Some("file"), _) => None,
        (None | Some("line"), Some(line)) => Some(line),
        (None | Some("line"), None) => return Err(missing("line")),
        _ => return Err(Reply::invalid(RESOURCE, "subject_type", "invalid", None)),
    };
    let sides = (pull.base_sha.as_str(), pull.head_sha.as_str());
    if line.is_some_and(|line| bare::hunk(&found.git_dir, sides, &path, line, left).is_none()) {
        let message = "pull_request_review_thread.line must be part of the diff";
        return Err(Reply::invalid(RESOURCE, "pull_request_review_thread.line", "custom", Some(message)));
    }
    let thread = NewThread { path, line, start_line: number_of("start_line"), left, body: text };
    let made = world.add_review((repo, number), &author, "COMMENTED", "", &[thread]);
    let id = made.and_then(|(_, ids)| ids.first().copied()).ok_or_else(Reply::not_found)?;
    Ok(Reply::created(shown(world, call, repo, id)?))
}

/// `POST …/pulls/{n}/comments/{id}/replies`: only to a thread's first comment.
pub fn reply(world: &mut World, call: &Call, repo: usize, number: u64, id: &str) -> Outcome {
    call.takes_query(world, &[])?;
    let body = call.takes_body(world, &["body"])?;
    may_write(world, call, repo, number, "pull_requests")?;
    super::pulls::refresh(world, repo);
    let (author, text) = (call.login()?.to_owned(), content(&body, RESOURCE)?);
    let id = id.parse().map_err(|_| Reply::not_found())?;
    answered(world, call, repo, number, (id, &author, &text))
}

fn answered(
    world: &mut World,
    call: &Call,
    repo: usize,
    number: u64,
    (to, author, text): (u64, &str, &str),
) -> Outcome {
    let place = world.repositories[repo].find_text(to).ok_or_else(Reply::not_found)?;
    let TextPlace::Thread(of, thread, comment) = place else { return Err(Reply::not_found()) };
    if of != number {
        return Err(Reply::not_found());
    }
    let pull = world.repositories[repo].issues[&of].pull.as_ref().ok_or_else(Reply::not_found)?;
    if pull.threads[thread].comments[comment].in_reply_to.is_some() {
        world.violation(format!(
            "{} /{}: {to} is an answer itself; answers go to a thread's first comment",
            call.method,
            call.path.join("/")
        ));
        return Err(Reply::error(422, "Replies to replies are not supported."));
    }
    let id = world.add_reply((repo, of), thread, author, text).ok_or_else(Reply::not_found)?;
    Ok(Reply::created(shown(world, call, repo, id)?))
}

/// `GET`, `PATCH`, `DELETE …/pulls/comments/{id}`.
pub fn one(world: &mut World, call: &Call, repo: usize, id: &str) -> Outcome {
    call.takes_query(world, &[])?;
    call.needs(world, &world.repositories[repo], "pull_requests", "read")?;
    super::pulls::refresh(world, repo);
    let id: u64 = id.parse().map_err(|_| Reply::not_found())?;
    let place = world.repositories[repo].find_text(id);
    let place = place.filter(|place| matches!(place, TextPlace::Thread(..))).ok_or_else(Reply::not_found)?;
    if call.method != "GET" {
        let author = world.repositories[repo].text(place).map(|text| text.author.clone());
        if author.as_deref() != Some(call.login()?) {
            call.needs(world, &world.repositories[repo], "pull_requests", "write")?;
        }
    }
    match call.method.as_str() {
        "GET" => {}
        "PATCH" | "POST" => {
            let body = content(&call.takes_body(world, &["body"])?, RESOURCE)?;
            let editor = call.login()?.to_owned();
            world.edit_remark(repo, place, &editor, &body);
        }
        "DELETE" => {
            world.delete_remark(repo, place);
            return Ok(Reply::no_content());
        }
        _ => return super::unknown_route(world, call),
    }
    Ok(Reply::ok(shown(world, call, repo, id)?))
}

fn shown(world: &World, call: &Call, repo: usize, id: u64) -> Result<Value, Reply> {
    let repo = &world.repositories[repo];
    let mut all = repo.issues.values().flat_map(|issue| of(issue).map(move |found| (issue, found)));
    let found = all.find(|(_, (_, one))| one.comment.id == id);
    let (issue, (thread, one)) = found.ok_or_else(Reply::not_found)?;
    Ok(shape(call, world, repo, issue, thread, one))
}

/// A comment of a thread.
pub fn shape(
    call: &Call,
    world: &World,
    repo: &Repository,
    of: &Issue,
    thread: &Thread,
    one: &ThreadComment,
) -> Value {
    let text = &one.comment;
    let api = shapes::repository_url(call, repo);
    let url = format!("{api}/pulls/comments/{}", text.id);
    let pull_url = format!("{api}/pulls/{}", of.number);
    let html = format!("{}#discussion_r{}", shapes::issue_html(call, repo, of), text.id);
    let now = of.pull.as_ref().and_then(|pull| thread.line_at(repo, pull));
    let shift = |line: u64| now.zip(thread.line).and_then(|(now, then)| (line + now).checked_sub(then));
    let side = if thread.left { "LEFT" } else { "RIGHT" };
    let position = thread.hunk.lines().count().saturating_sub(1);
    let head = of.pull.as_ref().map(|pull| &pull.head_sha);
    let mut shape = json!({
        "url": url,
        "pull_request_review_id": one.review,
        "id": text.id,
        "node_id": format!("PRRC_{}", text.id),
        "diff_hunk": thread.hunk,
        "path": thread.path,
        "position": now.map(|_| position),
        "original_position": thread.line.map(|_| position),
        "commit_id": if now.is_some() { head } else { Some(&thread.commit) },
        "original_commit_id": thread.commit,
        "user": shapes::person(call, world, &text.author),
        "body": text.body,
        "created_at": time(text.created_at),
        "updated_at": time(text.updated_at),
        "html_url": html,
        "pull_request_url": pull_url,
        "author_association": shapes::association(repo, &text.author),
        "_links": {"self": {"href": url}, "html": {"href": html}, "pull_request": {"href": pull_url}},
        "start_line": thread.start_line.and_then(shift),
        "original_start_line": thread.start_line,
        "start_side": thread.start_line.map(|_| side),
        "line": now,
        "original_line": thread.line,
        "side": side,
        "subject_type": if thread.line.is_some() { "line" } else { "file" },
        "reactions": shapes::reactions(&url, &text.reactions),
    });
    if let Some(to) = one.in_reply_to {
        shape["in_reply_to_id"] = json!(to);
    }
    shape
}
