//! The JSON API: what the daemon says of itself, and the runs that are kept.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tokio_util::io::ReaderStream;

use super::costs;
use super::reply::failure;
use super::run_index::Row;
use super::shared::{NotTold, Shared};
use crate::daemon::status_format::Status;
use crate::record;
#[cfg(feature = "nats")]
use crate::record::mirror::NotShown;
use crate::store::run_dir::RunDir;

type Of = State<Arc<Shared>>;

/// Runs that a list has unless more are asked for.
const USUAL: usize = 50;
/// What is read of a file at once, in bytes.
const AT_ONCE: usize = 64 * 1024;
/// Most runs of one list.
const MOST: usize = 1000;

fn not_yet() -> Response {
    failure(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "the daemon has not looked yet; ask again")
}

/// `GET /health`: 200 while the daemon works; `degraded` while a repository cannot be polled. Without the token the
/// answer only says that the daemon exists.
pub async fn health(State(shared): Of, headers: HeaderMap) -> Response {
    if !shared.access.admits(&headers) {
        return Json(json!({ "status": "ok" })).into_response();
    }
    let Some(status) = shared.own_status() else {
        return Json(json!({ "status": "starting" })).into_response();
    };
    let failing: Vec<&Status> = Some(&status)
        .filter(|status| {
            status.reload_error.is_some()
                || status.store_unavailable.is_some()
                || status.clock_skew.is_some()
                || status.schema_unknown.is_some()
                || status.store_full.is_some()
                || status.store_slow.is_some()
                || status.repositories.iter().any(|of| of.failing_since.is_some() || of.unread.is_some())
        })
        .into_iter()
        .collect();
    let word = match (status.stopping, failing.is_empty()) {
        (true, _) => "stopping",
        (false, false) => "degraded",
        (false, true) => "ok",
    };
    Json(json!({
        "status": word, "version": status.version, "pid": status.pid, "started_at": status.started_at, "at": status.at,
        "running": status.running.len(), "waiting": status.waiting.len(), "parked": status.parked.len(),
    }))
    .into_response()
}

/// `GET /api/v1/status`: everything at once.
pub async fn status(State(shared): Of) -> Response {
    shared.status().await.map_or_else(not_yet, |status| Json(status).into_response())
}

/// `GET /api/v1/queue`: what runs, waits and is parked, with the reason code of each.
pub async fn queue(State(shared): Of) -> Response {
    let Some(status) = shared.status().await else { return not_yet() };
    Json(json!({ "running": status.running, "waiting": status.waiting, "parked": status.parked }))
        .into_response()
}

/// `GET /api/v1/limits`: GitHub's limits as they were last seen.
pub async fn limits(State(shared): Of) -> Response {
    shared.own_status().map_or_else(not_yet, |status| Json(status.limits).into_response())
}

/// `GET /api/v1/cost`: what runs and conversations cost, by day (UTC) and by repository; runs under way included.
pub async fn cost(State(shared): Of) -> Response {
    let status = shared.status().await;
    // Read behind the status: what has ended since counts once.
    let rows = shared.rows().await;
    let live = costs::live_cost(status.as_ref(), &rows.all);
    let mut told = costs::sums(&rows.all, live, &shared.conversations().await);
    told["day_cap"] = json!(costs::day_cap(&shared).await.map(|cap| cap.document()));
    Json(told).into_response()
}

/// `GET /api/v1/runs?limit=N`: the newest runs first.
pub async fn runs(State(shared): Of, Query(asked): Query<Vec<(String, String)>>) -> Response {
    let limit = asked.iter().find(|(name, _)| name == "limit").map(|(_, value)| value.parse::<usize>());
    let limit = match limit {
        Some(Err(_)) => return failure(StatusCode::BAD_REQUEST, "bad_request", "`limit` is not a number"),
        Some(Ok(limit)) => limit.min(MOST),
        None => USUAL,
    };
    let rows = shared.rows().await;
    let told: Vec<Value> = rows.all.iter().take(limit).map(|row| row.document(rows.now)).collect();
    Json(json!({ "total": rows.all.len(), "runs": told })).into_response()
}

/// `GET /api/v1/runs/RUN`: the run output; of a run under way what is known.
pub async fn run(State(shared): Of, Path(asked): Path<String>) -> Response {
    match shared.run(&asked).await {
        Err(why) => not_told(&asked, &why),
        Ok((dir, row, now)) => {
            let read = tokio::task::spawn_blocking(move || record::report::output_if_ended(&dir)).await;
            match read {
                Ok(Ok(Some(output))) => Json(output).into_response(),
                Ok(Ok(None)) if !row.is_unreadable => Json(row.document(now)).into_response(),
                _ => unreadable(&row),
            }
        }
    }
}

fn unreadable(row: &Row) -> Response {
    let id = row.run_id;
    let message = format!(
        "the journal of run {id} cannot be read; agentd runs verify {id} names every file that is damaged"
    );
    failure(StatusCode::INTERNAL_SERVER_ERROR, "unreadable", &message)
}

/// `GET /api/v1/runs/RUN/report`: the report, as Markdown.
pub async fn report(State(shared): Of, Path(asked): Path<String>) -> Response {
    kept(&shared, &asked, RunDir::report, "text/markdown; charset=utf-8").await
}

/// `GET /api/v1/runs/RUN/events`: the journal, as JSON Lines.
pub async fn events(State(shared): Of, Path(asked): Path<String>) -> Response {
    kept(&shared, &asked, RunDir::events, "application/jsonl; charset=utf-8").await
}

async fn kept(
    shared: &Shared,
    asked: &str,
    place: fn(&RunDir) -> std::path::PathBuf,
    kind: &'static str,
) -> Response {
    let dir = match shared.run(asked).await {
        Ok((dir, ..)) => dir,
        Err(why) => return not_told(asked, &why),
    };
    match file(&place(&dir)).await {
        Some(body) => ([(header::CONTENT_TYPE, kind)], body).into_response(),
        None => failure(StatusCode::NOT_FOUND, "not_written", "the run has not written it yet"),
    }
}

/// A file, sent while it is read, because a journal may be long and many clients may ask for it.
async fn file(path: &std::path::Path) -> Option<Body> {
    let file = tokio::fs::File::open(path).await.ok()?;
    Some(Body::from_stream(ReaderStream::with_capacity(file, AT_ONCE)))
}

fn not_told(asked: &str, why: &NotTold) -> Response {
    match why {
        NotTold::NoRun => {
            failure(StatusCode::NOT_FOUND, "not_found", &format!("there is no run \"{asked}\""))
        }
        NotTold::Several(runs) => {
            let message = format!("{runs} runs begin with \"{asked}\"; write more of the run id");
            failure(StatusCode::CONFLICT, "ambiguous", &message)
        }
        #[cfg(feature = "nats")]
        NotTold::NotShown(why) => {
            let (status, code) = match why {
                NotShown::NotPermitted(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"),
                NotShown::Expired { .. } => (StatusCode::GONE, "expired"),
                NotShown::Broken { .. } => (StatusCode::BAD_GATEWAY, "not_as_written"),
                NotShown::NothingKnown(_) | NotShown::OutOfReach { .. } => {
                    (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable")
                }
            };
            failure(status, code, &why.to_string())
        }
    }
}

/// `GET /api/v1/issues/OWNER/NAME/N`: where one issue stands; 404 where nothing asks for it.
pub async fn issue(
    State(shared): Of,
    Path((owner, name, number)): Path<(String, String, String)>,
) -> Response {
    let Ok(number) = number.parse::<u64>() else {
        return failure(StatusCode::BAD_REQUEST, "bad_request", "an issue is named by its number");
    };
    let Some(status) = shared.status().await else { return not_yet() };
    let repo = format!("{owner}/{name}");
    let is = |of: &crate::domain::name::RepoName, issue: u64| {
        of.to_string().eq_ignore_ascii_case(&repo) && issue == number
    };
    if let Some(run) = status.running.iter().find(|run| is(&run.repo, run.issue)) {
        return Json(json!({ "state": "running", "run": run })).into_response();
    }
    let rows = [("waiting", &status.waiting), ("parked", &status.parked)];
    let found = rows.into_iter().find_map(|(state, rows)| {
        Some((state, rows.iter().find(|row| row.issue.number().is_some_and(|number| is(&row.repo, number)))?))
    });
    match found {
        Some((state, row)) => Json(json!({ "state": state, "issue": row })).into_response(),
        None => failure(StatusCode::NOT_FOUND, "not_found", "nothing runs and nothing waits for this issue"),
    }
}

/// `POST /api/v1/refresh`: looks again at once; several at a time are one.
pub async fn refresh(State(shared): Of) -> Response {
    shared.front.hints.look_now();
    (StatusCode::ACCEPTED, Json(json!({ "accepted": true }))).into_response()
}
