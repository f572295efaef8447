//! The admin API's side of the conversation: what anybody writes, changes, deletes, hides and resolves.

use base64::Engine as _;
use serde_json::{Value, json};

use super::{Answer, known, parse};
use crate::sim::scenario_file::ReviewFile;
use crate::sim::seed;
use crate::sim::world::{Attachment, REACTIONS, TextPlace, World};

const NO_PULL: (u16, &str) = (404, "no such pull request");

fn refused((status, text): (u16, &str)) -> (u16, String) {
    (status, text.to_owned())
}

/// A text of a request, repeated to `size` bytes where that is said.
fn text(body: &Value) -> Result<String, (u16, String)> {
    let text = body["body"].as_str().ok_or_else(|| refused((422, "`body` is missing")))?;
    let Some(size) = body["size"].as_u64() else { return Ok(text.to_owned()) };
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if text.is_empty() {
        return Err(refused((422, "an empty `body` has no other `size`")));
    }
    let mut repeated = text.repeat(size / text.len() + 1);
    let end = (0..=size).rev().find(|end| repeated.is_char_boundary(*end)).unwrap_or(0);
    repeated.truncate(end);
    Ok(repeated)
}

/// `POST …/issues/N/comments`: one comment, or `count` of them, in which `{n}` is the number from 1.
pub fn write(world: &mut World, repo: usize, number: u64, body: &Value, actor: &str) -> Answer {
    known(body, &["body", "actor", "size", "count", "at"])?;
    let text = text(body)?;
    let Some(count) = body["count"].as_u64() else {
        return Ok(json!({"id": world.add_comment(repo, number, actor, &text)}));
    };
    let ids: Vec<Option<u64>> = (1..=count)
        .map(|n| world.add_comment(repo, number, actor, &text.replace("{n}", &n.to_string())))
        .collect();
    Ok(json!({"ids": ids}))
}

/// `POST …/pulls/N/reviews`.
pub fn review(world: &mut World, at: (usize, u64), body: &Value) -> Answer {
    let mut body = body.clone();
    if let Some(fields) = body.as_object_mut() {
        fields.shift_remove("at");
        fields.shift_remove("actor");
    }
    let file: ReviewFile = parse(&body)?;
    let (id, comments) = seed::review(world, at, &file).ok_or_else(|| refused(NO_PULL))?;
    Ok(json!({"ok": true, "id": id, "comments": comments}))
}

/// Everything below `…/comments/ID`, where ID is that of any comment, review or thread's comment.
pub fn on_text(
    world: &mut World,
    method: &str,
    repo: usize,
    (id, rest): (&str, &[&str]),
    body: &Value,
    actor: &str,
) -> Answer {
    let place = id.parse().ok().and_then(|id| world.repositories[repo].find_text(id));
    let place = place.ok_or_else(|| (404, format!("there is no text {id}")))?;
    match (method, rest) {
        ("PATCH", []) => edit(world, repo, place, body, actor),
        ("DELETE", []) => {
            known(body, &["actor", "at"])?;
            match world.delete_remark(repo, place) {
                true => Ok(json!({"ok": true})),
                false => Err(refused((422, "a review that was sent cannot be deleted"))),
            }
        }
        ("POST", ["reactions"]) => {
            known(body, &["content", "actor", "at"])?;
            let content = body["content"].as_str().unwrap_or_default();
            if !REACTIONS.contains(&content) {
                return Err((422, format!("`{content}` is no reaction ({})", REACTIONS.join(", "))));
            }
            let made = world.react(repo, place, actor, content);
            Ok(json!({"id": made.map(|(reaction, _)| reaction.id)}))
        }
        ("POST", ["replies"]) => {
            known(body, &["body", "size", "actor", "at"])?;
            let TextPlace::Thread(number, thread, _) = place else {
                return Err(refused((422, "only a thread's comments are answered in their thread")));
            };
            Ok(json!({"id": world.add_reply((repo, number), thread, actor, &text(body)?)}))
        }
        (_, ["resolved"]) if method == "PUT" || method == "DELETE" => {
            known(body, &["actor", "at"])?;
            let TextPlace::Thread(number, thread, _) = place else {
                return Err(refused((422, "only threads are resolved")));
            };
            Ok(json!({"ok": world.resolve(repo, (number, thread), (method == "PUT").then_some(actor))}))
        }
        _ => Err(refused(super::NO_ROUTE)),
    }
}

/// Another text, hidden or shown, its history withheld.
fn edit(world: &mut World, repo: usize, place: TextPlace, body: &Value, actor: &str) -> Answer {
    known(body, &["body", "size", "minimized", "history", "actor", "at"])?;
    if !body["body"].is_null() {
        let text = text(body)?;
        world.edit_remark(repo, place, actor, &text);
    }
    if let Some(found) = world.repositories[repo].text_mut(place) {
        match &body["minimized"] {
            Value::Null => {}
            Value::String(why) => found.minimized = Some(why.clone()),
            Value::Bool(hidden) => found.minimized = hidden.then(|| "outdated".to_owned()),
            _ => return Err(refused((422, "`minimized` is a reason, or false"))),
        }
        match body["history"].as_str() {
            None => {}
            Some("withheld") => found.edits.iter_mut().for_each(|edit| edit.body = None),
            Some(_) => return Err(refused((422, "`history` can only be `withheld`"))),
        }
    }
    Ok(json!({"ok": true}))
}

/// `POST …/attachments`: a file in a text; gives the address that people put there.
pub fn attach(world: &mut World, repo: usize, body: &Value) -> Answer {
    known(body, &["type", "base64", "actor", "at"])?;
    let coded = body["base64"].as_str().unwrap_or_default();
    let bytes = base64::engine::general_purpose::STANDARD.decode(coded);
    let bytes = bytes.map_err(|error| (422, format!("`base64`: {error}")))?;
    let id = uuid::Uuid::new_v4().to_string();
    let url = format!("{}/user-attachments/assets/{id}", world.base);
    let kind = body["type"].as_str().unwrap_or("image/png").to_owned();
    let public = !world.repositories[repo].private;
    world.attachments.push(Attachment { id, kind, bytes, public });
    Ok(json!({"url": url}))
}
