//! Webhooks: what has changed since the last look is told to who asked for it, signed, and with the faults that are planned.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hmac::{Hmac, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use super::bare;
use super::fault::{self, FaultKind};
use super::resource::{Hook, Issue, Repository};
use super::rest::{pulls, shapes};
use super::shared::Shared;
use super::world::World;
use crate::sys::tls;

/// How long lies between two looks at what has changed.
const LOOK: Duration = Duration::from_millis(20);

/// What can change, by event and subject: a word that changes with it.
type Seen = BTreeMap<(&'static str, String), String>;

/// A delivery to make.
#[derive(Debug, Clone)]
struct Delivery {
    hook: Hook,
    event: &'static str,
    id: String,
    body: Vec<u8>,
    late: Duration,
}

/// Looks for ever, and delivers.
pub async fn ring(shared: Arc<Shared>) {
    let http = tls::http_client().user_agent("GitHub-Hookshot/sim").build().unwrap_or_default();
    let mut known: BTreeMap<u64, Seen> = BTreeMap::new();
    loop {
        tokio::time::sleep(LOOK).await;
        if shared.world().repositories.iter().all(|repo| repo.hooks.is_empty()) {
            continue;
        }
        let looking = Arc::clone(&shared);
        let mut before = std::mem::take(&mut known);
        let looked = tokio::task::spawn_blocking(move || {
            let deliveries = changes(&mut looking.world(), &mut before);
            (deliveries, before)
        });
        let Ok((deliveries, after)) = looked.await else { return };
        known = after;
        for delivery in deliveries {
            let http = http.clone();
            tokio::spawn(async move {
                tokio::time::sleep(delivery.late).await;
                // Who does not answer has lost it: GitHub does not try again.
                let _ = send(&http, &delivery).await;
            });
        }
    }
}

async fn send(http: &reqwest::Client, delivery: &Delivery) -> Result<(), reqwest::Error> {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(delivery.hook.secret.as_bytes()) else { return Ok(()) };
    mac.update(&delivery.body);
    let signature = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
    http.post(&delivery.hook.url)
        .header("content-type", "application/json")
        .header("x-github-event", delivery.event)
        .header("x-github-delivery", &delivery.id)
        .header("x-github-hook-id", delivery.hook.id.to_string())
        .header("x-github-hook-installation-target-type", "repository")
        .header("x-hub-signature-256", signature)
        .body(delivery.body.clone())
        .send()
        .await?;
    Ok(())
}

/// What has changed in each repository with hooks since the last look; the first look only learns.
fn changes(world: &mut World, known: &mut BTreeMap<u64, Seen>) -> Vec<Delivery> {
    let mut deliveries = Vec::new();
    for index in 0..world.repositories.len() {
        if world.repositories[index].hooks.is_empty() {
            continue;
        }
        pulls::refresh(world, index);
        let repo = &world.repositories[index];
        let (id, now) = (repo.id, seen(repo));
        let Some(before) = known.insert(id, now.clone()) else { continue };
        let mut found: Vec<(&'static str, String, &'static str)> = Vec::new();
        for (key, state) in &now {
            match before.get(key) {
                None => found.push((key.0, key.1.clone(), "created")),
                Some(old) if old != state => found.push((key.0, key.1.clone(), "edited")),
                Some(_) => {}
            }
        }
        let gone = before.keys().filter(|key| !now.contains_key(*key));
        found.extend(gone.map(|key| (key.0, key.1.clone(), "deleted")));
        for (event, subject, change) in found {
            let body = payload(&world.repositories[index], event, &subject, change).to_string().into_bytes();
            deliveries.extend(planned(world, index, event, &body));
        }
    }
    deliveries
}

/// The deliveries of one event, after the faults that it meets.
fn planned(world: &mut World, index: usize, event: &'static str, body: &[u8]) -> Vec<Delivery> {
    let mut planned = Vec::new();
    for hook in world.repositories[index].hooks.clone() {
        if !hook.events.is_empty() && !hook.events.iter().any(|one| one == event) {
            continue;
        }
        let text = String::from_utf8_lossy(body);
        let met = fault::meet(&mut world.faults, "HOOK", &format!("/hooks/{event}"), &text);
        let late = met.as_ref().map_or(Duration::ZERO, |(_, delay)| *delay);
        let id = uuid::Uuid::new_v4().to_string();
        let delivery = Delivery { hook, event, id, body: body.to_vec(), late };
        match met {
            Some((FaultKind::Delay, _)) | None => planned.push(delivery),
            Some((FaultKind::Double, _)) => planned.extend([delivery.clone(), delivery]),
            Some(_) => {}
        }
    }
    planned
}

/// Everything that events tell of, with a word for its state.
fn seen(repo: &Repository) -> Seen {
    let mut seen = Seen::new();
    let mut put = |event: &'static str, subject: String, state: String| seen.insert((event, subject), state);
    for label in &repo.labels {
        put("label", label.name.clone(), label.color.clone());
    }
    for check in &repo.checks {
        let event = if check.run { "check_run" } else { "status" };
        put(event, check.id.to_string(), check.outcome.clone().unwrap_or_default());
        if let Some(job) = &check.job {
            let state = format!("{} {}", job.attempt, check.outcome.as_deref().unwrap_or_default());
            put("workflow_run", format!("{} {}", job.run, check.name), state.clone());
            put("check_suite", format!("{} {}", job.run, check.name), state);
        }
    }
    for (name, sha, _) in bare::refs(&repo.git_dir, "refs/") {
        put("push", name, sha);
    }
    for issue in repo.issues.values() {
        let event = if issue.pull.is_some() { "pull_request" } else { "issues" };
        let pull = issue.pull.as_ref();
        let state = format!(
            "{} {} {} {:?} {:?} {} {} {:?} {:?}",
            issue.title,
            issue.edits.len(),
            issue.open,
            issue.labels,
            issue.assignees,
            issue.locked,
            issue.deleted,
            issue.moved_to,
            pull.map(|pull| (&pull.head_sha, &pull.base, pull.draft, &pull.requested_reviewers)),
        );
        put(event, issue.number.to_string(), state);
        for comment in &issue.comments {
            put("issue_comment", format!("{} {}", issue.number, comment.id), comment.edits.len().to_string());
        }
        for review in pull.iter().flat_map(|pull| &pull.reviews) {
            let subject = format!("{} {}", issue.number, review.comment.id);
            put("pull_request_review", subject, format!("{} {}", review.state, review.comment.edits.len()));
        }
        for thread in pull.iter().flat_map(|pull| &pull.threads) {
            let subject = format!("{} {}", issue.number, thread.id);
            put("pull_request_review_thread", subject, format!("{:?}", thread.resolved_by));
            for one in &thread.comments {
                let subject = format!("{} {}", issue.number, one.comment.id);
                put("pull_request_review_comment", subject, one.comment.edits.len().to_string());
            }
        }
    }
    seen
}

/// What a delivery says: enough to know what it is about. What agentd must not believe is not worth more.
fn payload(repo: &Repository, event: &str, subject: &str, change: &str) -> Value {
    let mut pieces = subject.split(' ');
    let number = pieces.next().unwrap_or_default();
    let id: Option<u64> = pieces.next().and_then(|id| id.parse().ok());
    let mut body = json!({
        "action": change,
        "repository": {
            "id": repo.id, "name": repo.name, "full_name": repo.full_name(), "private": repo.private,
            "owner": {"login": repo.owner}, "default_branch": repo.default_branch,
        },
        "sender": {"login": repo.owner, "type": "User"},
    });
    let issue = number.parse().ok().and_then(|number: u64| repo.issues.get(&number));
    let of = |issue: &Issue| {
        json!({
            "id": issue.id, "number": issue.number, "title": issue.title,
            "state": if issue.open { "open" } else { "closed" }, "updated_at": shapes::time(issue.updated_at),
        })
    };
    match (event, issue) {
        ("issues" | "issue_comment", Some(issue)) => body["issue"] = of(issue),
        (
            "pull_request"
            | "pull_request_review"
            | "pull_request_review_comment"
            | "pull_request_review_thread",
            Some(issue),
        ) => body["pull_request"] = of(issue),
        ("push", _) => body["ref"] = json!(number),
        ("label", _) => body["label"] = json!({"name": subject}),
        ("check_run", _) => body["check_run"] = json!({"id": number.parse::<u64>().ok()}),
        ("check_suite" | "workflow_run", _) => body[event] = json!({"id": number.parse::<u64>().ok()}),
        _ => {}
    }
    match (event, id) {
        ("issue_comment" | "pull_request_review_comment", Some(id)) => body["comment"] = json!({"id": id}),
        ("pull_request_review", Some(id)) => body["review"] = json!({"id": id}),
        ("pull_request_review_thread", Some(id)) => {
            body["thread"] = json!({"id": id, "node_id": format!("PRRT_{id}")});
        }
        _ => {}
    }
    body
}
