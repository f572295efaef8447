//! Comments, reviews and threads in the GraphQL API.

use serde_json::{Value, json};

use super::node::{Arguments, Found, Node, Resolved, actor, leaf, page, some, url};
use crate::sim::call::Call;
use crate::sim::rest::shapes::{association, time};
use crate::sim::world::{TextPlace, World};

/// A field of a revision.
pub fn edit(world: &World, (repo, text, place): (usize, TextPlace, usize), field: &str) -> Resolved {
    let Some(edit) = world.repositories[repo].edits(text).get(place) else { return Ok(Found::Nothing) };
    match field {
        "id" => leaf(format!("UCE_{}", edit.id)),
        "createdAt" | "updatedAt" | "editedAt" => leaf(time(edit.at)),
        "editor" => actor(&edit.editor),
        "deletedAt" if edit.body.is_none() => leaf(time(edit.at)),
        "diff" => Ok(Found::Leaf(json!(edit.body))),
        _ => Ok(Found::Nothing),
    }
}

/// A field of a comment, a review or a thread's comment.
pub fn text(
    world: &World,
    call: &Call,
    (repo, place): (usize, TextPlace),
    field: &str,
    arguments: &Arguments,
) -> Resolved {
    let repository = &world.repositories[repo];
    let Some(text) = repository.text(place) else { return Ok(Found::Nothing) };
    let number = place.number();
    let (prefix, anchor) = match place {
        TextPlace::Review(..) => ("PRR", "pullrequestreview-"),
        TextPlace::Thread(..) => ("PRRC", "discussion_r"),
        _ => ("IC", "issuecomment-"),
    };
    match field {
        "id" => leaf(format!("{prefix}_{}", text.id)),
        "databaseId" => leaf(text.id),
        "fullDatabaseId" => leaf(text.id.to_string()),
        "author" => actor(&text.author),
        "authorAssociation" => leaf(association(repository, &text.author)),
        "body" | "bodyText" => leaf(text.body.clone()),
        "createdAt" | "submittedAt" | "publishedAt" => leaf(time(text.created_at)),
        "updatedAt" => leaf(time(text.updated_at)),
        "lastEditedAt" => Ok(Found::Leaf(json!(text.edits.last().map(|edit| time(edit.at))))),
        "includesCreatedEdit" => leaf(!text.edits.is_empty()),
        "editor" => text.edits.last().map_or(Ok(Found::Nothing), |edit| actor(&edit.editor)),
        // The newest first.
        "userContentEdits" => {
            let nodes = (0..text.edits.len()).rev().map(|edit| Node::Edit(repo, place, edit)).collect();
            page("UserContentEditConnection", field, nodes, arguments)
        }
        "isMinimized" => leaf(text.minimized.is_some()),
        "minimizedReason" => Ok(Found::Leaf(json!(text.minimized))),
        "url" => leaf(format!("{}#{anchor}{}", url(world, call, repo, number), text.id)),
        "pullRequest" => some(repository.issues[&number].pull.is_some().then_some(Node::Pull(repo, number))),
        "issue" => Ok(Found::Node(Node::Issue(repo, number))),
        _ => match place {
            TextPlace::Review(_, review) => on_review(world, (repo, number, review), field, arguments),
            TextPlace::Thread(_, thread, comment) => {
                in_thread(world, call, (repo, number), (thread, comment), field)
            }
            _ => Ok(Found::Nothing),
        },
    }
}

fn on_review(
    world: &World,
    (repo, number, place): (usize, u64, usize),
    field: &str,
    arguments: &Arguments,
) -> Resolved {
    let Some(pull) = &world.repositories[repo].issues[&number].pull else { return Ok(Found::Nothing) };
    let review = &pull.reviews[place];
    match field {
        "state" => leaf(review.state.clone()),
        "commit" => {
            some(Some(review.commit.clone()).filter(|id| !id.is_empty()).map(|id| Node::Commit(repo, id)))
        }
        _ => {
            let threads = pull.threads.iter().enumerate();
            let of = threads.flat_map(|(thread, found)| {
                let own = found.comments.iter().enumerate();
                let own = own.filter(|(_, one)| one.review == review.comment.id);
                own.map(move |(place, _)| Node::Text(repo, TextPlace::Thread(number, thread, place)))
            });
            page("PullRequestReviewCommentConnection", field, of.collect(), arguments)
        }
    }
}

fn in_thread(
    world: &World,
    call: &Call,
    (repo, number): (usize, u64),
    (thread, place): (usize, usize),
    field: &str,
) -> Resolved {
    let Some(pull) = &world.repositories[repo].issues[&number].pull else { return Ok(Found::Nothing) };
    let comment = &pull.threads[thread].comments[place];
    match field {
        "diffHunk" => leaf(pull.threads[thread].hunk.clone()),
        "outdated" => leaf(pull.threads[thread].is_outdated(&world.repositories[repo], pull)),
        "state" => leaf("SUBMITTED"),
        "replyTo" => some(
            comment
                .in_reply_to
                .and_then(|id| world.repositories[repo].find_text(id))
                .map(|place| Node::Text(repo, place)),
        ),
        "pullRequestReview" => {
            let review = pull.reviews.iter().position(|review| review.comment.id == comment.review);
            some(review.map(|review| Node::Text(repo, TextPlace::Review(number, review))))
        }
        "originalCommit" => some(Some(Node::Commit(repo, pull.threads[thread].commit.clone()))),
        _ => self::thread(world, call, (repo, number, thread), field, &Arguments::new()),
    }
}

/// A field of a thread.
pub fn thread(
    world: &World,
    call: &Call,
    (repo, number, place): (usize, u64, usize),
    field: &str,
    arguments: &Arguments,
) -> Resolved {
    let repository = &world.repositories[repo];
    let Some(pull) = &repository.issues[&number].pull else { return Ok(Found::Nothing) };
    let thread = &pull.threads[place];
    let allowed =
        |permission: &str| world.allows(call.token.as_ref(), repository, permission, "write") == Some(true);
    let now = || thread.line_at(repository, pull);
    match field {
        "id" => leaf(format!("PRRT_{}", thread.id)),
        "path" => leaf(thread.path.clone()),
        "line" => Ok(Found::Leaf(json!(now()))),
        "originalLine" => Ok(Found::Leaf(json!(thread.line))),
        "startLine" => {
            let shift =
                |start: u64| now().zip(thread.line).and_then(|(now, then)| (start + now).checked_sub(then));
            Ok(Found::Leaf(json!(thread.start_line.and_then(shift))))
        }
        "originalStartLine" => Ok(Found::Leaf(json!(thread.start_line))),
        "subjectType" => leaf(if thread.line.is_some() { "LINE" } else { "FILE" }),
        "diffSide" => leaf(if thread.left { "LEFT" } else { "RIGHT" }),
        "startDiffSide" => {
            let side = if thread.left { "LEFT" } else { "RIGHT" };
            Ok(Found::Leaf(thread.start_line.map_or(Value::Null, |_| json!(side))))
        }
        "isResolved" => leaf(thread.resolved_by.is_some()),
        "isCollapsed" => leaf(thread.resolved_by.is_some() || thread.is_outdated(repository, pull)),
        "isOutdated" => leaf(thread.is_outdated(repository, pull)),
        "resolvedBy" => some(thread.resolved_by.clone().map(Node::User)),
        "viewerCanReply" => leaf(!repository.issues[&number].locked || allowed("contents")),
        "viewerCanResolve" => leaf(allowed("contents") && thread.resolved_by.is_none()),
        "viewerCanUnresolve" => leaf(allowed("contents") && thread.resolved_by.is_some()),
        "pullRequest" => Ok(Found::Node(Node::Pull(repo, number))),
        "repository" => Ok(Found::Node(Node::Repository(repo))),
        _ => {
            let comment = |one| Node::Text(repo, TextPlace::Thread(number, place, one));
            let nodes = (0..thread.comments.len()).map(comment).collect();
            page("PullRequestReviewCommentConnection", field, nodes, arguments)
        }
    }
}
