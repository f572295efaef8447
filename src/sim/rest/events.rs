//! What happened to an issue, and who did it.

use serde_json::{Value, json};

use super::shapes;
use crate::sim::call::{Call, Outcome};
use crate::sim::world::World;

const PAGING: [&str; 2] = ["per_page", "page"];

/// `GET …/issues/{n}/events`, oldest first.
pub fn list(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &PAGING)?;
    let repo = &world.repositories[repo];
    let events = repo.issues[&number].events.iter();
    call.page(Some(repo.id), events.map(|event| shapes::event(call, world, repo, event)).collect())
}

/// `GET …/issues/{n}/timeline`: events and comments by time.
pub fn timeline(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &PAGING)?;
    let repo = &world.repositories[repo];
    let issue = &repo.issues[&number];
    let mut entries: Vec<(_, u64, Value)> = issue
        .events
        .iter()
        .map(|event| (event.at, event.id, shapes::event(call, world, repo, event)))
        .collect();
    for comment in &issue.comments {
        let mut shape = shapes::comment(call, world, repo, issue, comment);
        shape["event"] = json!("commented");
        shape["actor"] = shape["user"].clone();
        entries.push((comment.created_at, comment.id, shape));
    }
    entries.sort_by_key(|(at, id, _)| (*at, *id));
    call.page(Some(repo.id), entries.into_iter().map(|(_, _, shape)| shape).collect())
}
