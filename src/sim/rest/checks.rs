//! Commit statuses and check runs.

use serde_json::{Value, json};

use super::shapes::{self, repository_url, time, user_named};
use crate::sim::bare;
use crate::sim::call::{Call, Outcome, Reply};
use crate::sim::world::{Check, Repository, World};

/// The checks that stand on a commit.
pub fn on<'a>(repo: &'a Repository, sha: &'a str) -> impl Iterator<Item = &'a Check> {
    let stands =
        move |check: &&Check| check.on == sha || bare::head(&repo.git_dir, &check.on).as_deref() == Some(sha);
    repo.checks.iter().filter(stands)
}

/// Of the checks that stand on a commit the newest of each name, in each workflow run.
pub fn newest<'a>(repo: &'a Repository, sha: &'a str) -> impl Iterator<Item = &'a Check> {
    on(repo, sha)
        .filter(move |check| !on(repo, sha).any(|other| other.replaces(check) && other.id > check.id))
}

/// Where a check is shown: the page of its job, or what another service said.
pub fn address(call: &Call, repo: &Repository, check: &Check) -> Option<String> {
    let job = check
        .job
        .as_ref()
        .map(|job| format!("{}/{}/actions/runs/{}/job/{}", call.html, repo.full_name(), job.run, check.id));
    job.or_else(|| check.details_url.clone())
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
    let statuses: Vec<&Check> = newest(repo, &sha).filter(|check| !check.run).collect();
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
                "target_url": one.details_url,
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
    let latest = match call.query("filter") {
        None | Some("latest") => true,
        Some("all") => false,
        Some(_) => return Err(Reply::invalid("Query", "filter", "invalid", None)),
    };
    let found: Vec<&Check> = if latest { newest(repo, &sha).collect() } else { on(repo, &sha).collect() };
    let shapes: Vec<Value> = found
        .into_iter()
        .filter(|one| one.run)
        .filter(|one| call.query("check_name").is_none_or(|wanted| wanted == one.name))
        .map(|one| shape(call, world, repo, &sha, one))
        .collect();
    let total = shapes.len();
    let mut reply = call.page(Some(repo.id), shapes)?;
    reply.body = reply.body.map(|page| json!({"total_count": total, "check_runs": page}));
    Ok(reply)
}

/// A check run.
fn shape(call: &Call, world: &World, repo: &Repository, sha: &str, one: &Check) -> Value {
    let (api, github) = (repository_url(call, repo), user_named(call, world, "github"));
    json!({
        "id": one.id,
        "node_id": format!("CR_{}", one.id),
        "head_sha": sha,
        "external_id": "",
        "url": format!("{api}/check-runs/{}", one.id),
        "html_url": address(call, repo, one)
            .unwrap_or_else(|| format!("{}/{}/runs/{}", call.html, repo.full_name(), one.id)),
        "details_url": address(call, repo, one),
        "status": if one.outcome.is_some() { "completed" } else { "in_progress" },
        "conclusion": one.outcome,
        "started_at": time(one.at),
        "completed_at": one.outcome.as_ref().map(|_| time(one.at)),
        "output": {
            "title": one.description,
            "summary": one.summary,
            "text": one.text,
            "annotations_count": one.annotations.len(),
            "annotations_url": format!("{api}/check-runs/{}/annotations", one.id),
        },
        "name": one.name,
        "check_suite": {"id": one.job.as_ref().map_or(one.id, |job| job.run)},
        "app": one.job.as_ref().map(|_| json!({
            "id": 15368, "slug": "github-actions", "node_id": "A_15368", "name": "GitHub Actions",
            "owner": github, "description": "", "external_url": call.html, "html_url": format!("{}/apps/github-actions", call.html),
            "created_at": time(one.at), "updated_at": time(one.at), "permissions": {"checks": "write"}, "events": [],
        })),
        "pull_requests": [],
    })
}

/// `GET …/check-runs/{id}/annotations`.
pub fn annotations(world: &mut World, call: &Call, repo: usize, id: &str) -> Outcome {
    call.takes_query(world, &["per_page", "page"])?;
    let repo = &world.repositories[repo];
    call.needs(world, repo, "checks", "read")?;
    let found = repo.checks.iter().find(|check| check.run && check.id.to_string() == id);
    let check = found.ok_or_else(Reply::not_found)?;
    let shapes = check.annotations.iter().map(|one| {
        json!({
            "path": one.path,
            "blob_href": format!("{}/{}/blob/{}/{}", call.html, repo.full_name(), check.on, one.path),
            "start_line": one.line,
            "start_column": null,
            "end_line": one.line,
            "end_column": null,
            "annotation_level": one.level,
            "title": one.title,
            "message": one.message,
            "raw_details": null,
        })
    });
    call.page(Some(repo.id), shapes.collect())
}
