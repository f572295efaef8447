//! Reviews of a pull request.

use serde_json::{Value, json};

use super::{review_comments, shapes};
use crate::sim::call::{Call, Outcome, Reply};
use crate::sim::world::{Issue, Repository, Review, World};

/// `GET …/pulls/{n}/reviews`.
pub fn list(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &["per_page", "page"])?;
    let repo = &world.repositories[repo];
    call.needs(world, repo, "pull_requests", "read")?;
    let issue = repo.issues.get(&number).ok_or_else(Reply::not_found)?;
    let pull = issue.pull.as_ref().ok_or_else(Reply::not_found)?;
    let shapes = pull.reviews.iter().map(|review| shape(call, world, repo, issue, review));
    call.page(Some(repo.id), shapes.collect())
}

/// `GET …/pulls/{n}/reviews/{id}`.
pub fn show(world: &mut World, call: &Call, repo: usize, number: u64, id: &str) -> Outcome {
    call.takes_query(world, &[])?;
    let repo = &world.repositories[repo];
    call.needs(world, repo, "pull_requests", "read")?;
    let (issue, review) = find(repo, number, id)?;
    Ok(Reply::ok(shape(call, world, repo, issue, review)))
}

/// `GET …/pulls/{n}/reviews/{id}/comments`.
pub fn comments(world: &mut World, call: &Call, repo: usize, number: u64, id: &str) -> Outcome {
    call.takes_query(world, &["per_page", "page"])?;
    call.needs(world, &world.repositories[repo], "pull_requests", "read")?;
    super::pulls::refresh(world, repo);
    let repo = &world.repositories[repo];
    let (issue, review) = find(repo, number, id)?;
    let of = review_comments::of(issue).filter(|(_, one)| one.review == review.comment.id);
    let shapes = of.map(|(thread, one)| review_comments::shape(call, world, repo, issue, thread, one));
    call.page(Some(repo.id), shapes.collect())
}

fn find<'a>(repo: &'a Repository, number: u64, id: &str) -> Result<(&'a Issue, &'a Review), Reply> {
    let issue = repo.issues.get(&number).ok_or_else(Reply::not_found)?;
    let pull = issue.pull.as_ref().ok_or_else(Reply::not_found)?;
    let review = pull.reviews.iter().find(|review| review.comment.id.to_string() == id);
    Ok((issue, review.ok_or_else(Reply::not_found)?))
}

fn shape(call: &Call, world: &World, repo: &Repository, of: &Issue, review: &Review) -> Value {
    let html = shapes::issue_html(call, repo, of);
    let url = format!("{}/pulls/{}", shapes::repository_url(call, repo), of.number);
    let text = &review.comment;
    json!({
        "id": text.id,
        "node_id": format!("PRR_{}", text.id),
        "user": shapes::person(call, world, &text.author),
        "body": text.body,
        "state": review.state,
        "html_url": format!("{html}#pullrequestreview-{}", text.id),
        "pull_request_url": url,
        "_links": {"html": {"href": html}, "pull_request": {"href": url}},
        "submitted_at": shapes::time(text.created_at),
        "commit_id": review.commit,
        "author_association": shapes::association(repo, &text.author),
    })
}
