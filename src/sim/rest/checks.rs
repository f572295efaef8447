//! Commit statuses and check runs.

use serde_json::{Value, json};

use super::shapes::{self, repository_url, time};
use crate::sim::bare;
use crate::sim::call::{Call, Outcome, Reply};
use crate::sim::world::{Check, Repository, World};

fn on<'a>(repo: &'a Repository, sha: &'a str, run: bool) -> impl Iterator<Item = &'a Check> {
    let stands = move |check: &&Check| {
        check.run == run && (check.on == sha || bare::head(&repo.git_dir, &check.on).as_deref() == Some(sha))
    };
    repo.checks.iter().filter(stands)
}

fn find(
    world: &World,
    call: &Call,
    repo: &Repository,
    permission: &str,
    name: &str,
) -> Result<String, Reply> {
    call.needs(world, repo, permission, "read")?;
    bare::resolve(&repo.git_dir, name)
        .ok_or_else(|| Reply::error(422, &format!("No commit found for SHA: {name}")))
}

/// `GET …/commits/{ref}/status`: the combined status.
pub fn status(world: &mut World, call: &Call, repo: usize, name: &str) -> Outcome {
    call.takes_query(world, &["per_page", "page"])?;
    let repo = &world.repositories[repo];
    let sha = find(world, call, repo, "statuses", name)?;
    let statuses: Vec<&Check> = on(repo, &sha, false).collect();
    let any = |state: &str| statuses.iter().any(|one| one.outcome.as_deref() == Some(state));
    let combined = if any("failure") || any("error") {
        "failure"
    } else if statuses.is_empty() || any("pending") {
        "pending"
    } else {
        "success"
    };
    let api = repository_url(call, repo);
    let shapes: Vec<Value> = statuses
        .iter()
        .map(|one| {
            json!({
                "id": one.id,
                "node_id": format!("SC_{}", one.id),
                "url": format!("{api}/statuses/{sha}"),
                "state": one.outcome.as_deref().unwrap_or("pending"),
                "context": one.name,
                "description": one.description,
                "target_url": null,
                "created_at": time(one.at),
                "updated_at": time(one.at),
            })
        })
        .collect();
    Ok(Reply::ok(json!({
        "state": combined,
        "statuses": shapes,
        "sha": sha,
        "total_count": statuses.len(),
        "repository": shapes::repository(call, world, repo),
        "commit_url": format!("{api}/commits/{sha}"),
        "url": format!("{api}/commits/{sha}/status"),
    })))
}

/// `GET …/commits/{ref}/check-runs`.
pub fn runs(world: &mut World, call: &Call, repo: usize, name: &str) -> Outcome {
    call.takes_query(world, &["check_name", "status", "filter", "per_page", "page"])?;
    let repo = &world.repositories[repo];
    let sha = find(world, call, repo, "checks", name)?;
    let api = repository_url(call, repo);
    let shapes: Vec<Value> = on(repo, &sha, true)
        .filter(|one| call.query("check_name").is_none_or(|wanted| wanted == one.name))
        .map(|one| {
            json!({
                "id": one.id,
                "node_id": format!("CR_{}", one.id),
                "head_sha": sha,
                "external_id": "",
                "url": format!("{api}/check-runs/{}", one.id),
                "html_url": format!("{}/{}/runs/{}", call.html, repo.full_name(), one.id),
                "details_url": null,
                "status": if one.outcome.is_some() { "completed" } else { "in_progress" },
                "conclusion": one.outcome,
                "started_at": time(one.at),
                "completed_at": one.outcome.as_ref().map(|_| time(one.at)),
                "output": {
                    "title": one.description, "summary": null, "text": null, "annotations_count": 0,
                    "annotations_url": format!("{api}/check-runs/{}/annotations", one.id),
                },
                "name": one.name,
                "check_suite": {"id": one.id},
                "app": null,
                "pull_requests": [],
            })
        })
        .collect();
    Ok(Reply::ok(json!({"total_count": shapes.len(), "check_runs": shapes})))
}
