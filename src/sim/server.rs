//! The one HTTP server: which part of the simulated world a request is for, its log entry, and its faults.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response};
use bytes::Bytes;
use serde_json::{Value, json};

use super::call::{Call, Reply, decode, parse_query};
use super::connection::Cut;
use super::fault::{self, FaultKind};
use super::logged_body::LoggedBody;
use super::model::{self, WIRES};
use super::shared::{Shared, plain_response};
use super::world;
use super::{admin, remote, rest};

/// The largest body that is read into memory: far above anything the API takes.
const LARGEST_BODY: usize = 64 << 20;

/// Answers every request.
pub async fn handle(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(cut): ConnectInfo<Cut>,
    request: Request,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    if path.starts_with("/_sim") {
        return admin::answer(&shared, request).await;
    }
    let (parts, body) = request.into_parts();
    let is_git = path.starts_with("/git/");
    let (body, known) = if is_git {
        (body, Bytes::new())
    } else {
        match to_bytes(body, LARGEST_BODY).await {
            Ok(bytes) => (Body::from(bytes.clone()), bytes),
            // The caller left before its request was complete; nobody reads the answer.
            Err(_) => return plain_response(400, "", Vec::new()),
        }
    };
    let target = parts.uri.path_and_query().map_or_else(|| path.clone(), ToString::to_string);
    let seq = log(&shared, parts.method.as_str(), &target, &parts.headers, &known);
    let text = String::from_utf8_lossy(&known);
    let met = fault::meet(&mut shared.world().faults, parts.method.as_str(), &path, &text);
    let mut effect = None;
    let mut late = Duration::ZERO;
    if let Some((kind, delay)) = met {
        match path.starts_with("/model/") && matches!(kind, FaultKind::Delay) {
            // A slow model has the request from the start: what waits for it to be asked sees it.
            true => late = delay,
            false => cut.pause(delay).await,
        }
        match stop_before(kind, &cut).await {
            Ok(response) => return logged(&shared, seq, response, None),
            Err(after) => effect = Some(after),
        }
    }
    let response = if is_git {
        remote::serve(&shared, &parts, body).await
    } else if let Some(rest) = path.strip_prefix("/model/") {
        let response = to_model(&shared, &parts, rest, &known, seq, &cut).await;
        cut.pause(late).await;
        response
    } else {
        let (response, counted, login) = to_api(&shared, &parts, &path, &known).await;
        let mut world = shared.world();
        if let Some(entry) = world.request_mut(seq) {
            entry.counted = counted;
            entry.login = login;
        }
        response
    };
    let response = logged(&shared, seq, response, effect.as_ref());
    match effect {
        Some(effect) => apply_after(effect, response, &cut).await,
        None => response,
    }
}

/// Writes a request into the log and gives its number.
pub fn log(shared: &Shared, method: &str, target: &str, headers: &HeaderMap, body: &Bytes) -> u64 {
    let mut world = shared.world();
    let seq = world.requests.len() as u64 + 1;
    let shown = headers.iter().map(|(name, value)| {
        let secret = matches!(name.as_str(), "authorization" | "x-api-key" | "x-goog-api-key" | "cookie");
        let value =
            if secret { "***".to_owned() } else { String::from_utf8_lossy(value.as_bytes()).into_owned() };
        (name.to_string(), value)
    });
    let entry = world::Request {
        seq,
        at: world.watch.elapsed(),
        method: method.to_owned(),
        target: target.to_owned(),
        login: None,
        headers: shown.collect(),
        body: LoggedBody::new(body.clone()),
        status: 0,
        counted: false,
    };
    world.requests.push(Arc::new(entry));
    seq
}

/// Writes into the log how a request was answered.
pub fn logged(
    shared: &Shared,
    seq: u64,
    response: Response<Body>,
    effect: Option<&FaultKind>,
) -> Response<Body> {
    let lost = matches!(effect, Some(FaultKind::LostReply));
    let mut world = shared.world();
    if let Some(entry) = world.request_mut(seq) {
        entry.status = if lost { 0 } else { response.status().as_u16() };
    }
    response
}

/// Faults without effect answer at once; the others are kept for after the effect.
pub async fn stop_before(kind: FaultKind, cut: &Cut) -> Result<Response<Body>, FaultKind> {
    match kind {
        FaultKind::Status { status, headers, body } => {
            let body = match body {
                Some(Value::String(text)) => text.into_bytes(),
                Some(value) => value.to_string().into_bytes(),
                None => {
                    let reply = Reply::error(status, "Server Error");
                    reply.body.map(|body| body.to_string().into_bytes()).unwrap_or_default()
                }
            };
            Ok(with_headers(plain_response(status, "application/json; charset=utf-8", body), headers))
        }
        FaultKind::Drop => {
            cut.now();
            Ok(plain_response(500, "", Vec::new()))
        }
        FaultKind::Garbage => {
            let garbage = "<html><body><h1>Bad gateway</h1></body>".to_owned();
            Ok(plain_response(200, "application/json; charset=utf-8", garbage.into_bytes()))
        }
        FaultKind::Hang => {
            cut.pause(Duration::MAX).await;
            Ok(plain_response(500, "", Vec::new()))
        }
        other => Err(other),
    }
}

async fn apply_after(effect: FaultKind, response: Response<Body>, cut: &Cut) -> Response<Body> {
    let (parts, body) = response.into_parts();
    match effect {
        FaultKind::LostReply => {
            cut.now();
            Response::from_parts(parts, Body::empty())
        }
        FaultKind::Truncate => {
            let bytes = to_bytes(body, LARGEST_BODY).await.unwrap_or_default();
            let half = bytes.slice(..bytes.len() / 2);
            let stream = futures::stream::unfold(Some(half), |half| async move {
                match half {
                    Some(half) => Some((Ok(half), None)),
                    None => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        Some((Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)), None))
                    }
                }
            });
            Response::from_parts(parts, Body::from_stream(stream))
        }
        FaultKind::Slow(pause) => {
            let bytes = to_bytes(body, LARGEST_BODY).await.unwrap_or_default();
            let size = bytes.len().div_ceil(20).max(1);
            let pieces = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
            Response::from_parts(parts, Body::from_stream(model::paced(pieces, pause)))
        }
        _ => Response::from_parts(parts, body),
    }
}

fn with_headers(mut response: Response<Body>, headers: Vec<(String, String)>) -> Response<Body> {
    for (name, value) in headers {
        let parsed = (HeaderName::try_from(name), HeaderValue::try_from(value));
        if let (Ok(name), Ok(value)) = parsed {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

async fn to_model(
    shared: &Arc<Shared>,
    parts: &Parts,
    path: &str,
    body: &Bytes,
    seq: u64,
    cut: &Cut,
) -> Response<Body> {
    let (method, headers) = (&parts.method, &parts.headers);
    let segments: Vec<&str> = path.split('/').collect();
    for wire in WIRES {
        let Some((&name, rest)) = segments.split_first() else { continue };
        if name != wire.name {
            continue;
        }
        if let (Some(place), true) = ((wire.place)(rest), method == "POST") {
            let query = parts.uri.query().unwrap_or_default();
            let arrived = model::Arrived { headers, place, query, body, seq };
            return model::serve(shared, wire, &arrived, cut).await;
        }
        if rest == wire.models && method == "GET" {
            return model::models(shared, wire, headers);
        }
    }
    shared.world().violation(format!("{method} /model/{path}: the simulator has no such model route"));
    let known: Vec<String> = WIRES.iter().map(|wire| format!("/model/{}/{}", wire.name, wire.path)).collect();
    let message = format!("no such route; known: {}", known.join(", "));
    plain_response(404, "application/json", json!({"error": {"message": message}}).to_string().into_bytes())
}

async fn to_api(
    shared: &Arc<Shared>,
    parts: &Parts,
    path: &str,
    body: &Bytes,
) -> (Response<Body>, bool, Option<String>) {
    let base = shared.world().base.clone();
    // GitHub Enterprise puts its API under /api/v3 and GraphQL under /api/graphql.
    let (api, path) = if path == "/api/graphql" {
        (format!("{base}/api/v3"), "/graphql")
    } else if let Some(path) = path.strip_prefix("/api/v3") {
        (format!("{base}/api/v3"), path)
    } else {
        (base.clone(), path)
    };
    let mut call = Call {
        method: parts.method.as_str().to_owned(),
        path: path.split('/').filter(|part| !part.is_empty()).map(decode).collect(),
        query: parse_query(parts.uri.query().unwrap_or_default()),
        headers: parts.headers.clone(),
        body: body.to_vec(),
        api,
        html: base,
        token: None,
    };
    let shared = Arc::clone(shared);
    // Answers may read git repositories, which must not hold up the runtime.
    let done = tokio::task::spawn_blocking(move || {
        let answer = rest::answer(&mut shared.world(), &mut call);
        (answer, call.token.map(|token| token.login))
    })
    .await;
    match done {
        Ok((answer, login)) => {
            let mut response = plain_response(answer.status, "", answer.body);
            response = with_headers(response, answer.headers);
            (response, answer.counted, login)
        }
        Err(_) => (
            plain_response(500, "application/json", b"{\"message\":\"simulator error\"}".to_vec()),
            false,
            None,
        ),
    }
}
