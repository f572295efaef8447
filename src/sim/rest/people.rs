//! Who is asked: reviewers and assignees; and who may still speak: locked conversations.

use serde_json::{Map, Value, json};

use super::body::{names, text};
use super::{pulls, shapes};
use crate::sim::call::{Call, Outcome, Reply};
use crate::sim::world::{Event, Role, World};

/// Notes on an issue that something happened to it.
fn event(world: &mut World, repo: usize, number: u64, kind: &str, actor: &str) {
    let (id, at) = (world.new_id(), world.now());
    if let Some(issue) = world.repositories[repo].issues.get_mut(&number) {
        let (kind, actor) = (kind.to_owned(), actor.to_owned());
        issue.events.push(Event { id, kind, actor, label: None, rename: None, at });
        issue.updated_at = at;
    }
}

/// `GET`, `POST`, `DELETE …/pulls/{n}/requested_reviewers`.
pub fn reviewers(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &[])?;
    let permission = if call.method == "GET" { "read" } else { "write" };
    call.needs(world, &world.repositories[repo], "pull_requests", permission)?;
    pulls::whole(world, call, repo, number)?;
    if call.method == "GET" {
        let found = &world.repositories[repo].issues[&number];
        let logins = found.pull.iter().flat_map(|pull| &pull.requested_reviewers);
        let users: Vec<Value> = logins.map(|login| shapes::user_named(call, world, login)).collect();
        return Ok(Reply::ok(json!({"users": users, "teams": []})));
    }
    let body = call.takes_body(world, &["reviewers", "team_reviewers"])?;
    let actor = call.login()?.to_owned();
    let asked = names(&body, "reviewers");
    let found = &world.repositories[repo];
    let author = found.issues[&number].author.clone();
    if call.method == "POST" {
        if asked.iter().any(|login| login.eq_ignore_ascii_case(&author)) {
            return Err(Reply::error(422, "Review cannot be requested from pull request author."));
        }
        let stranger = |login: &String| {
            !found.owner.eq_ignore_ascii_case(login)
                && !found
                    .collaborators
                    .iter()
                    .any(|(name, role)| name.eq_ignore_ascii_case(login) && *role >= Role::Read)
        };
        if asked.iter().any(stranger) || !names(&body, "team_reviewers").is_empty() {
            let message = format!(
                "Reviews may only be requested from collaborators. One or more of the users or teams you specified is not a collaborator of the {} repository.",
                found.full_name()
            );
            return Err(Reply::error(422, &message));
        }
    }
    let kind = if call.method == "POST" { "review_requested" } else { "review_request_removed" };
    for login in asked {
        world.user(&login);
        let pull = world.repositories[repo].issues.get_mut(&number).and_then(|issue| issue.pull.as_mut());
        let Some(pull) = pull else { continue };
        let known = pull.requested_reviewers.iter().position(|one| one.eq_ignore_ascii_case(&login));
        match (known, call.method == "POST") {
            (None, true) => pull.requested_reviewers.push(login),
            (Some(place), false) => drop(pull.requested_reviewers.remove(place)),
            _ => continue,
        }
        event(world, repo, number, kind, &actor);
    }
    let whole = pulls::whole(world, call, repo, number)?;
    Ok(if call.method == "POST" { Reply::created(whole) } else { Reply::ok(whole) })
}

/// `POST`, `DELETE …/issues/{n}/assignees`: who cannot be assigned is left out in silence, as on GitHub.
pub fn assignees(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &[])?;
    let body = call.takes_body(world, &["assignees"])?;
    call.needs(world, &world.repositories[repo], "issues", "write")?;
    let actor = call.login()?.to_owned();
    let on = call.method == "POST";
    for login in names(&body, "assignees") {
        let found = &world.repositories[repo];
        let may = found.owner.eq_ignore_ascii_case(&login)
            || found.collaborators.keys().any(|name| name.eq_ignore_ascii_case(&login));
        let Some(issue) = world.repositories[repo].issues.get_mut(&number) else { continue };
        let known = issue.assignees.iter().position(|one| one.eq_ignore_ascii_case(&login));
        match (known, on) {
            (None, true) if may => issue.assignees.push(login),
            (Some(place), false) => drop(issue.assignees.remove(place)),
            _ => continue,
        }
        event(world, repo, number, if on { "assigned" } else { "unassigned" }, &actor);
    }
    let found = &world.repositories[repo];
    let shape = shapes::issue(call, world, found, &found.issues[&number]);
    Ok(if on { Reply::created(shape) } else { Reply::ok(shape) })
}

/// `PUT`, `DELETE …/issues/{n}/lock`.
pub fn lock(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &[])?;
    let on = call.method == "PUT";
    let body = if on { call.takes_body(world, &["lock_reason"])? } else { Map::new() };
    let found = &world.repositories[repo];
    if call.needs(world, found, "issues", "write").is_err() {
        call.needs(world, found, "pull_requests", "write")?;
    }
    let actor = call.login()?.to_owned();
    let reason = text(&body, "Issue", "lock_reason")?.map(str::to_owned);
    let known = ["off-topic", "too heated", "resolved", "spam"];
    if reason.as_deref().is_some_and(|reason| !known.contains(&reason)) {
        return Err(Reply::invalid("Issue", "lock_reason", "invalid", None));
    }
    if let Some(issue) = world.repositories[repo].issues.get_mut(&number) {
        issue.locked = on;
        issue.lock_reason = reason;
    }
    event(world, repo, number, if on { "locked" } else { "unlocked" }, &actor);
    Ok(Reply::no_content())
}
