//! Comments of issues and pull requests.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use super::body::text;
use super::shapes;
use crate::sim::call::{Call, Outcome, Reply};
use crate::sim::world::{TextPlace, World};

/// GitHub's longest comment, in characters.
const LONGEST: usize = 65_536;

/// `GET …/issues/{n}/comments`.
pub fn list(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &["since", "per_page", "page"])?;
    let repo = &world.repositories[repo];
    let issue = &repo.issues[&number];
    let since = since(call, "IssueComment")?;
    let comments =
        issue.comments.iter().filter(|comment| since.is_none_or(|since| comment.updated_at >= since));
    call.page(Some(repo.id), comments.map(|one| shapes::comment(call, world, repo, issue, one)).collect())
}

/// `GET …/issues/comments`: of all issues and pull requests, by id or by the last change.
pub fn all(world: &mut World, call: &Call, repo: usize) -> Outcome {
    call.takes_query(world, &["since", "sort", "direction", "per_page", "page"])?;
    let repo = &world.repositories[repo];
    let since = since(call, "IssueComment")?;
    let mut found: Vec<_> = repo
        .issues
        .values()
        .flat_map(|issue| issue.comments.iter().map(move |comment| (issue, comment)))
        .filter(|(_, comment)| since.is_none_or(|since| comment.updated_at >= since))
        .collect();
    match call.query("sort") {
        Some("updated") => found.sort_by_key(|(_, comment)| (comment.updated_at, comment.id)),
        _ => found.sort_by_key(|(_, comment)| comment.id),
    }
    if call.query("direction") == Some("desc") {
        found.reverse();
    }
    let shown = found.into_iter().map(|(issue, one)| shapes::comment(call, world, repo, issue, one));
    call.page(Some(repo.id), shown.collect())
}

/// The text of a comment: not empty, not too long.
pub fn content(body: &Map<String, Value>, resource: &str) -> Result<String, Reply> {
    let body = text(body, resource, "body")?.unwrap_or_default();
    if body.trim().is_empty() {
        return Err(Reply::invalid(resource, "body", "missing_field", None));
    }
    if body.chars().count() > LONGEST {
        let message = format!("body is too long (maximum is {LONGEST} characters)");
        return Err(Reply::invalid(resource, "body", "unprocessable", Some(&message)));
    }
    Ok(body.to_owned())
}

/// Whoever can read may comment, unless the conversation is locked; a narrowed token still needs the permission for it.
pub fn may_write(
    world: &World,
    call: &Call,
    repo: usize,
    number: u64,
    permission: &str,
) -> Result<(), Reply> {
    let repo = &world.repositories[repo];
    if call.token.as_ref().is_some_and(|token| token.permissions.is_some()) {
        call.needs(world, repo, permission, "write")?;
    }
    let locked = repo.issues.get(&number).is_some_and(|issue| issue.locked);
    if locked && world.allows(call.token.as_ref(), repo, "contents", "write") != Some(true) {
        return Err(Reply::error(403, "Unable to create comment because issue is locked."));
    }
    Ok(())
}

/// The time of a `since`.
pub fn since(call: &Call, resource: &str) -> Result<Option<DateTime<Utc>>, Reply> {
    let time = call.query("since").map(DateTime::parse_from_rfc3339);
    let time = time.transpose().map_err(|_| Reply::invalid(resource, "since", "invalid", None))?;
    Ok(time.map(|at| at.with_timezone(&Utc)))
}

/// `POST …/issues/{n}/comments`.
pub fn create(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &[])?;
    let body = call.takes_body(world, &["body"])?;
    may_write(world, call, repo, number, "issues")?;
    let (author, body) = (call.login()?.to_owned(), content(&body, "IssueComment")?);
    let id = world.add_comment(repo, number, &author, &body).ok_or_else(Reply::not_found)?;
    let repo = &world.repositories[repo];
    let issue = &repo.issues[&number];
    let comment = issue.comments.iter().find(|comment| comment.id == id).ok_or_else(Reply::not_found)?;
    Ok(Reply::created(shapes::comment(call, world, repo, issue, comment)))
}

/// `GET`, `PATCH`, `DELETE …/issues/comments/{id}`.
pub fn one(world: &mut World, call: &Call, repo: usize, id: &str) -> Outcome {
    call.takes_query(world, &[])?;
    call.needs(world, &world.repositories[repo], "issues", "read")?;
    let id: u64 = id.parse().map_err(|_| Reply::not_found())?;
    let found = world.repositories[repo].issues.values().find_map(|issue| {
        issue.comments.iter().position(|comment| comment.id == id).map(|place| (issue.number, place))
    });
    let (number, place) = found.ok_or_else(Reply::not_found)?;
    if call.method != "GET" {
        let author = &world.repositories[repo].issues[&number].comments[place].author;
        if author != call.login()? {
            call.needs(world, &world.repositories[repo], "issues", "write")?;
        }
    }
    match call.method.as_str() {
        "GET" => {}
        "PATCH" | "POST" => {
            let body = content(&call.takes_body(world, &["body"])?, "IssueComment")?;
            let editor = call.login()?.to_owned();
            world.edit_remark(repo, TextPlace::Comment(number, place), &editor, &body);
        }
        "DELETE" => {
            world.delete_remark(repo, TextPlace::Comment(number, place));
            return Ok(Reply::no_content());
        }
        _ => return super::unknown_route(world, call),
    }
    let repo = &world.repositories[repo];
    let issue = &repo.issues[&number];
    Ok(Reply::ok(shapes::comment(call, world, repo, issue, &issue.comments[place])))
}
