//! Reactions to issues, comments and comments of threads.

use serde_json::{Value, json};

use super::body::text;
use super::shapes;
use crate::sim::call::{Call, Outcome, Reply};
use crate::sim::world::{REACTIONS, Reaction, TextPlace, World};

/// `…/issues/comments/{id}/reactions` and `…/pulls/comments/{id}/reactions`.
pub fn of_comment(world: &mut World, call: &Call, repo: usize, id: &str, rest: &[&str]) -> Outcome {
    let found = id.parse().ok().and_then(|id| world.repositories[repo].find_text(id));
    let place = match (call.path.get(3).map(String::as_str), found) {
        (Some("issues"), Some(place @ TextPlace::Comment(..))) => place,
        (Some("pulls"), Some(place @ TextPlace::Thread(..))) => place,
        _ => return Err(Reply::not_found()),
    };
    answer(world, call, repo, place, rest)
}

/// `GET` and `POST …/reactions`, `DELETE …/reactions/{id}`.
pub fn answer(world: &mut World, call: &Call, repo: usize, place: TextPlace, rest: &[&str]) -> Outcome {
    let permission = match place {
        TextPlace::Thread(..) => "pull_requests",
        _ => "issues",
    };
    match (call.method.as_str(), rest) {
        ("GET", []) => {
            call.takes_query(world, &["content", "per_page", "page"])?;
            call.needs(world, &world.repositories[repo], permission, "read")?;
            let wanted = call.query("content");
            let found = world.repositories[repo].reactions(place).iter();
            let found = found.filter(|one| wanted.is_none_or(|wanted| wanted == one.content));
            let shapes = found.map(|one| shape(call, world, one)).collect();
            call.page(Some(world.repositories[repo].id), shapes)
        }
        ("POST", []) => {
            call.takes_query(world, &[])?;
            let body = call.takes_body(world, &["content"])?;
            super::comments::may_write(world, call, repo, place.number(), permission)?;
            let login = call.login()?.to_owned();
            let content = text(&body, "Reaction", "content")?.unwrap_or_default();
            if !REACTIONS.contains(&content) {
                return Err(Reply::invalid("Reaction", "content", "invalid", None));
            }
            let (reaction, new) = world.react(repo, place, &login, content).ok_or_else(Reply::not_found)?;
            let shape = shape(call, world, &reaction);
            Ok(if new { Reply::created(shape) } else { Reply::ok(shape) })
        }
        ("DELETE", [id]) => {
            let login = call.login()?.to_owned();
            let own = |one: &Reaction| one.id.to_string() == **id && one.login == login;
            let reactions = world.repositories[repo].reactions_mut(place).ok_or_else(Reply::not_found)?;
            let at = reactions.iter().position(own).ok_or_else(Reply::not_found)?;
            reactions.remove(at);
            Ok(Reply::no_content())
        }
        _ => super::unknown_route(world, call),
    }
}

fn shape(call: &Call, world: &World, reaction: &Reaction) -> Value {
    json!({
        "id": reaction.id,
        "node_id": format!("REA_{}", reaction.id),
        "user": shapes::person(call, world, &reaction.login),
        "content": reaction.content,
        "created_at": shapes::time(reaction.at),
    })
}
