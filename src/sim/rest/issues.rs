//! Issues: list, show, create, edit, and what they depend on.

use serde_json::Value;

use super::body::{names, text};
use super::shapes;
use crate::sim::call::{Call, Outcome, Reply};
use crate::sim::world::{Issue, World};

const PAGING: [&str; 2] = ["per_page", "page"];

/// Answers for issues that are gone: 404 unknown, 410 deleted, 301 transferred.
pub fn visible(world: &World, call: &Call, repo: usize, number: u64) -> Result<(), Reply> {
    let repo = &world.repositories[repo];
    call.needs(world, repo, "issues", "read")?;
    let issue = repo.issues.get(&number).ok_or_else(Reply::not_found)?;
    if issue.deleted {
        return Err(Reply::error(410, "This issue was deleted"));
    }
    if let Some(to) = &issue.moved_to {
        let target = to.split_once('#').and_then(|(name, number)| {
            let repo = world.repository(name)?;
            Some(format!("{}/repositories/{}/issues/{number}", call.api, repo.id))
        });
        let mut reply = Reply::error(301, "Moved Permanently");
        let location = target.ok_or_else(Reply::not_found)?;
        if let Some(body) = reply.body.as_mut() {
            body["url"] = Value::String(location.clone());
        }
        reply.headers.push(("location".to_owned(), location));
        return Err(reply);
    }
    Ok(())
}

/// `GET /repos/{o}/{r}/issues`: pull requests are issues too.
pub fn list(world: &mut World, call: &Call, repo: usize) -> Outcome {
    call.takes_query(
        world,
        &["state", "labels", "since", "sort", "direction", "per_page", "page", "creator", "assignee"],
    )?;
    let repo = &world.repositories[repo];
    call.needs(world, repo, "issues", "read")?;
    let state = one_of(call, "state", &["open", "closed", "all"])?;
    let sort = one_of(call, "sort", &["created", "updated", "comments"])?;
    let direction = one_of(call, "direction", &["desc", "asc"])?;
    let since = super::comments::since(call, "Issue")?;
    let labels: Vec<&str> =
        call.query("labels").unwrap_or_default().split(',').filter(|l| !l.is_empty()).collect();
    let mut found: Vec<&Issue> = repo
        .issues
        .values()
        .filter(|issue| !issue.deleted && issue.moved_to.is_none())
        .filter(|issue| state == "all" || issue.open == (state == "open"))
        .filter(|issue| {
            labels.iter().all(|label| issue.labels.iter().any(|name| name.eq_ignore_ascii_case(label)))
        })
        .filter(|issue| since.is_none_or(|since| issue.updated_at >= since))
        .filter(|issue| call.query("creator").is_none_or(|login| issue.author.eq_ignore_ascii_case(login)))
        .filter(|issue| match call.query("assignee") {
            None => true,
            Some("*") => !issue.assignees.is_empty(),
            Some("none") => issue.assignees.is_empty(),
            Some(login) => issue.assignees.iter().any(|name| name.eq_ignore_ascii_case(login)),
        })
        .collect();
    match sort {
        "updated" => found.sort_by_key(|issue| (issue.updated_at, issue.number)),
        "comments" => found.sort_by_key(|issue| (issue.comments.len(), issue.number)),
        _ => found.sort_by_key(|issue| (issue.created_at, issue.number)),
    }
    if direction == "desc" {
        found.reverse();
    }
    call.page(Some(repo.id), found.into_iter().map(|issue| shapes::issue(call, world, repo, issue)).collect())
}

/// A query parameter out of a closed list, whose first entry is the default.
pub fn one_of<'a>(call: &'a Call, name: &str, choices: &[&'a str]) -> Result<&'a str, Reply> {
    let value = call.query(name).unwrap_or(choices[0]);
    if choices.contains(&value) { Ok(value) } else { Err(Reply::invalid("Query", name, "invalid", None)) }
}

/// `POST /repos/{o}/{r}/issues`.
pub fn create(world: &mut World, call: &Call, repo: usize) -> Outcome {
    call.takes_query(world, &[])?;
    let body = call.takes_body(world, &["title", "body", "labels", "assignees"])?;
    let author = call.login()?.to_owned();
    let title = text(&body, "Issue", "title")?
        .ok_or_else(|| Reply::invalid("Issue", "title", "missing_field", None))?
        .to_owned();
    let content = text(&body, "Issue", "body")?.map(str::to_owned);
    let number = world.add_issue(repo, &author, &title, content).ok_or_else(Reply::not_found)?;
    let may_triage = call.needs(world, &world.repositories[repo], "issues", "write").is_ok();
    if may_triage {
        for label in names(&body, "labels") {
            world.set_label(repo, number, &label, &author, true);
        }
        if let Some(issue) = world.repositories[repo].issues.get_mut(&number) {
            issue.assignees = names(&body, "assignees");
        }
    }
    let repo = &world.repositories[repo];
    Ok(Reply::created(shapes::issue(call, world, repo, &repo.issues[&number])))
}

/// `GET /repos/{o}/{r}/issues/{n}`.
pub fn show(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &[])?;
    let repo = &world.repositories[repo];
    Ok(Reply::ok(shapes::issue(call, world, repo, &repo.issues[&number])))
}

/// `PATCH /repos/{o}/{r}/issues/{n}`.
pub fn edit(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &[])?;
    let body = call.takes_body(world, &["title", "body", "state", "state_reason", "labels", "assignees"])?;
    let actor = call.login()?.to_owned();
    let own = world.repositories[repo].issues[&number].author == actor;
    if !own || body.contains_key("labels") || body.contains_key("assignees") {
        call.needs(world, &world.repositories[repo], "issues", "write")?;
    }
    let title = text(&body, "Issue", "title")?.map(str::to_owned);
    let content = text(&body, "Issue", "body")?.map(str::to_owned);
    let state = text(&body, "Issue", "state")?;
    let reason = text(&body, "Issue", "state_reason")?;
    if let Some(state) = state
        && state != "open"
        && state != "closed"
    {
        return Err(Reply::invalid("Issue", "state", "invalid", None));
    }
    if let Some(reason) = reason
        && !["completed", "not_planned", "reopened", "duplicate"].contains(&reason)
    {
        return Err(Reply::invalid("Issue", "state_reason", "invalid", None));
    }
    let content = body.contains_key("body").then(|| content.unwrap_or_default());
    world.edit_text(repo, number, &actor, title.as_deref(), content.as_deref());
    if let Some(issue) = world.repositories[repo].issues.get_mut(&number)
        && body.contains_key("assignees")
    {
        issue.assignees = names(&body, "assignees");
    }
    if body.contains_key("labels") {
        super::labels::set_all(world, repo, number, &names(&body, "labels"), &actor);
    }
    if let Some(state) = state {
        world.set_open(repo, number, state == "open", reason, &actor);
    }
    let repo = &world.repositories[repo];
    Ok(Reply::ok(shapes::issue(call, world, repo, &repo.issues[&number])))
}

fn related(world: &mut World, call: &Call, repo: usize, numbers: &[u64]) -> Outcome {
    call.takes_query(world, &PAGING)?;
    let repo = &world.repositories[repo];
    let found = numbers.iter().filter_map(|number| repo.issues.get(number));
    call.page(Some(repo.id), found.map(|issue| shapes::issue(call, world, repo, issue)).collect())
}

/// `GET …/dependencies/blocked_by`.
pub fn blocked_by(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    let numbers = world.repositories[repo].issues[&number].blocked_by.clone();
    related(world, call, repo, &numbers)
}

/// `GET …/dependencies/blocking`.
pub fn blocking(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    let issues = world.repositories[repo].issues.values();
    let numbers: Vec<u64> =
        issues.filter(|other| other.blocked_by.contains(&number)).map(|other| other.number).collect();
    related(world, call, repo, &numbers)
}

/// `GET …/sub_issues`.
pub fn sub_issues(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    let numbers = world.repositories[repo].issues[&number].sub_issues.clone();
    related(world, call, repo, &numbers)
}

/// `GET …/parent`.
pub fn parent(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &[])?;
    let repo = &world.repositories[repo];
    let parent = repo.issues.values().find(|other| other.sub_issues.contains(&number));
    Ok(Reply::ok(shapes::issue(call, world, repo, parent.ok_or_else(Reply::not_found)?)))
}
