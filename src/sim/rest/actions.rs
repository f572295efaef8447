//! GitHub Actions: jobs with their logs, workflow runs, and running failed jobs again.

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::checks::{address, newest};
use super::shapes::{self, repository_url, time};
use crate::sim::bare;
use crate::sim::call::{Call, Outcome, Reply};
use crate::sim::signed_link;
use crate::sim::world::{Check, Job, Repository, World};

/// How long a link to a log can be used, in seconds.
const LINK_SECONDS: i64 = 60;

/// Conclusions that running failed jobs again looks for.
const FAILED: [&str; 4] = ["failure", "timed_out", "startup_failure", "cancelled"];

/// Everything below `…/actions`.
pub fn answer(world: &mut World, call: &Call, repo: usize, rest: &[&str]) -> Outcome {
    match (call.method.as_str(), rest) {
        ("GET", ["jobs", id]) => show(world, call, repo, id),
        ("GET", ["jobs", id, "logs"]) => logs(world, call, repo, id),
        ("GET", ["runs", id]) => run(world, call, repo, id),
        ("POST", ["runs", id, "rerun-failed-jobs"]) => rerun(world, call, repo, id),
        _ => super::unknown_route(world, call),
    }
}

fn find<'a>(
    world: &'a World,
    call: &Call,
    repo: usize,
    id: &str,
) -> Result<(&'a Repository, &'a Check, &'a Job), Reply> {
    let repo = &world.repositories[repo];
    call.needs(world, repo, "actions", "read")?;
    let check = repo.checks.iter().find(|check| check.id.to_string() == id).ok_or_else(Reply::not_found)?;
    let job = check.job.as_ref().ok_or_else(Reply::not_found)?;
    Ok((repo, check, job))
}

fn show(world: &mut World, call: &Call, repo: usize, id: &str) -> Outcome {
    call.takes_query(world, &[])?;
    let (repo, check, job) = find(world, call, repo, id)?;
    let api = repository_url(call, repo);
    let sha = bare::resolve(&repo.git_dir, &check.on);
    let done = check.outcome.as_ref().map(|_| time(check.at));
    let steps = job.steps.iter().enumerate().map(|(place, (name, conclusion))| {
        json!({
            "name": name, "status": "completed", "conclusion": conclusion, "number": place + 1,
            "started_at": time(check.at), "completed_at": time(check.at),
        })
    });
    let with_runner = !job.runner.is_empty();
    Ok(Reply::ok(json!({
        "id": check.id,
        "run_id": job.run,
        "workflow_name": job.workflow,
        "head_branch": null,
        "run_url": format!("{api}/actions/runs/{}", job.run),
        "run_attempt": job.attempt,
        "node_id": format!("CR_{}", check.id),
        "head_sha": sha,
        "url": format!("{api}/actions/jobs/{}", check.id),
        "html_url": address(call, repo, check),
        "status": if check.outcome.is_some() { "completed" } else { "in_progress" },
        "conclusion": check.outcome,
        "created_at": time(check.at),
        "started_at": time(check.at),
        "completed_at": done,
        "name": check.name,
        "steps": steps.collect::<Vec<_>>(),
        "check_run_url": format!("{api}/check-runs/{}", check.id),
        "labels": ["ubuntu-latest"],
        "runner_id": with_runner.then_some(1),
        "runner_name": with_runner.then_some(&job.runner),
        "runner_group_id": with_runner.then_some(2),
        "runner_group_name": with_runner.then_some("GitHub Actions"),
    })))
}

/// A link to another origin, signed and soon out of date; the log of a job that still works is not there yet.
fn logs(world: &mut World, call: &Call, repo: usize, id: &str) -> Outcome {
    call.takes_query(world, &[])?;
    let (_, check, job) = find(world, call, repo, id)?;
    match job.log.refused {
        Some(410) => {
            return Err(Reply::error(410, "The logs for this run have expired and are no longer available."));
        }
        Some(_) => return Err(Reply::not_found()),
        None if check.outcome.is_none() => return Err(Reply::not_found()),
        None => {}
    }
    let until = world.now() + TimeDelta::seconds(LINK_SECONDS);
    let link = signed_link::link(world, &format!("/logs/{}", check.id), until);
    Err(Reply { status: 302, headers: vec![("location".to_owned(), link)], body: None })
}

/// The newest attempt of each job of a workflow run.
fn jobs<'a>(repo: &'a Repository, id: &str) -> Vec<(&'a Check, &'a Job)> {
    let of =
        |check: &'a Check| check.job.as_ref().filter(|job| job.run.to_string() == id).map(|job| (check, job));
    let on = repo.checks.iter().find_map(|check| of(check).map(|(check, _)| check.on.clone()));
    let sha = on.and_then(|on| bare::resolve(&repo.git_dir, &on)).unwrap_or_default();
    let ids: Vec<u64> = newest(repo, &sha).map(|check| check.id).collect();
    repo.checks.iter().filter(|check| ids.contains(&check.id)).filter_map(of).collect()
}

/// `GET …/actions/runs/{id}`.
fn run(world: &mut World, call: &Call, repo: usize, id: &str) -> Outcome {
    call.takes_query(world, &["exclude_pull_requests"])?;
    let repo = &world.repositories[repo];
    call.needs(world, repo, "actions", "read")?;
    let jobs = jobs(repo, id);
    let (first, job) = jobs.first().ok_or_else(Reply::not_found)?;
    let attempt = jobs.iter().map(|(_, job)| job.attempt).max().unwrap_or(1);
    let done = jobs.iter().all(|(check, _)| check.outcome.is_some());
    let failed = jobs.iter().find_map(|(check, _)| {
        check.outcome.as_deref().filter(|outcome| FAILED.contains(outcome)).map(|_| "failure")
    });
    let url = format!("{}/actions/runs/{id}", repository_url(call, repo));
    Ok(Reply::ok(json!({
        "id": job.run,
        "name": job.workflow,
        "node_id": format!("WFR_{id}"),
        "head_branch": null,
        "head_sha": bare::resolve(&repo.git_dir, &first.on),
        "path": ".github/workflows/ci.yml",
        "display_title": job.workflow,
        "run_number": 1,
        "event": "pull_request",
        "status": if done { "completed" } else { "in_progress" },
        "conclusion": if done { json!(failed.unwrap_or("success")) } else { Value::Null },
        "workflow_id": 1,
        "check_suite_id": job.run,
        "check_suite_node_id": format!("CS_{id}"),
        "url": url,
        "html_url": format!("{}/{}/actions/runs/{id}", call.html, repo.full_name()),
        "pull_requests": [],
        "created_at": time(first.at),
        "updated_at": time(first.at),
        "run_attempt": attempt,
        "run_started_at": time(first.at),
        "jobs_url": format!("{url}/jobs"),
        "logs_url": format!("{url}/logs"),
        "check_suite_url": format!("{}/check-suites/{id}", repository_url(call, repo)),
        "artifacts_url": format!("{url}/artifacts"),
        "cancel_url": format!("{url}/cancel"),
        "rerun_url": format!("{url}/rerun"),
        "previous_attempt_url": (attempt > 1).then(|| format!("{url}/attempts/{}", attempt - 1)),
        "workflow_url": format!("{}/actions/workflows/1", repository_url(call, repo)),
        "repository": shapes::repository(call, world, repo),
        "head_repository": shapes::repository(call, world, repo),
        "head_commit": null,
    })))
}

/// `POST …/actions/runs/{id}/rerun-failed-jobs`: each failed job gets a new attempt, as its scenario says.
fn rerun(world: &mut World, call: &Call, repo: usize, id: &str) -> Outcome {
    call.takes_query(world, &[])?;
    call.takes_body(world, &["enable_debug_logging"])?;
    call.needs(world, &world.repositories[repo], "actions", "write")?;
    let jobs = jobs(&world.repositories[repo], id);
    if jobs.is_empty() {
        return Err(Reply::not_found());
    }
    if jobs.iter().any(|(check, _)| check.outcome.is_none()) {
        return Err(Reply::error(403, "This workflow run is already running"));
    }
    let failed = |check: &Check| check.outcome.as_deref().is_some_and(|outcome| FAILED.contains(&outcome));
    let again: Vec<Check> =
        jobs.into_iter().filter(|(check, _)| failed(check)).map(|(check, _)| check.clone()).collect();
    if again.is_empty() {
        return Err(Reply::error(403, "This workflow run cannot be retried"));
    }
    for mut check in again {
        (check.id, check.at) = (world.new_id(), world.now());
        if let Some(job) = &mut check.job {
            job.attempt += 1;
            let next = if job.reruns.is_empty() { None } else { Some(job.reruns.remove(0)) };
            check.outcome = next.filter(|next| next != "running");
        }
        if !failed(&check) {
            check.annotations.clear();
        }
        world.repositories[repo].checks.push(check);
    }
    Ok(Reply::created(json!({})))
}
