//! Serving the scripted model over HTTP: keys, protocol, script, and the ways an answer can go wrong.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Response};
use bytes::Bytes;
use futures::StreamExt as _;
use serde_json::Value;

use super::script::Chosen;
use super::{Place, Post, SentEvent, Wire};
use crate::sim::connection::Cut;
use crate::sim::logged_body::LoggedBody;
use crate::sim::scenario_file::CutFile;
use crate::sim::shared::{Shared, plain_response};
use crate::sim::world::ModelRequest;

/// A request to a model as it arrived.
pub struct Arrived<'a> {
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// What its path says.
    pub place: Place,
    /// Its query.
    pub query: &'a str,
    /// Its bytes.
    pub body: &'a Bytes,
    /// Its place in the log of requests.
    pub seq: u64,
}

/// Answers one request to a model.
pub async fn serve(
    shared: &Arc<Shared>,
    wire: &'static Wire,
    arrived: &Arrived<'_>,
    cut: &Cut,
) -> Response<Body> {
    match choose(shared, wire, arrived) {
        Ok((chosen, stream)) => give(wire, chosen, stream, cut).await,
        Err((status, message)) => error(wire, status, &message, None),
    }
}

fn choose(
    shared: &Shared,
    wire: &'static Wire,
    arrived: &Arrived<'_>,
) -> Result<(Chosen, bool), (u16, String)> {
    let mut world = shared.world();
    let (name, headers, seq) = (wire.name, arrived.headers, arrived.seq);
    let parsed: Value = serde_json::from_slice(arrived.body).map_err(|problem| {
        world.violation(format!("{name} model: the body is not JSON: {problem}"));
        (400, format!("We could not parse the JSON body of your request: {problem}"))
    })?;
    let post = Post { headers, place: &arrived.place, query: arrived.query, body: &parsed };
    let at = world.watch.elapsed();
    world.model_requests.push(Arc::new(ModelRequest {
        seq,
        at,
        wire: name.to_owned(),
        model: post.model().to_owned(),
        stream: post.stream(),
        body: LoggedBody::new(arrived.body.clone()),
        reply: None,
    }));
    let key = (wire.key)(headers).filter(|key| !key.is_empty());
    let accepted =
        key.is_some_and(|key| world.script.api_keys.is_empty() || world.script.api_keys.contains(&key));
    if !accepted {
        return Err((
            401,
            "invalid x-api-key: the key is missing or not one the scenario accepts".to_owned(),
        ));
    }
    let asked = (wire.read)(&post).map_err(|broken| {
        for one in &broken {
            world.violation(format!("{name} model: {}", one.0));
        }
        (400, broken.iter().map(|one| one.0.as_str()).collect::<Vec<_>>().join("; "))
    })?;
    if !world.script.names.is_empty() && !world.script.names.contains(&asked.model) {
        return Err((404, format!("model: {} does not exist", asked.model)));
    }
    let now = world.now().timestamp();
    let Some(chosen) = world.script.take(&asked, arrived.body.len(), now) else {
        let unused = world.script.unused();
        let why = if unused.is_empty() {
            "the script is used up".to_owned()
        } else {
            format!("no reply of the script fits; not used yet: {}", unused.join("; "))
        };
        let message = format!("{name} model: request for {} in turn {}: {why}", asked.model, asked.turn);
        world.violation(message.clone());
        return Err((500, message));
    };
    if let Some(entry) = world.model_requests.iter_mut().rev().find(|entry| entry.seq == seq) {
        Arc::make_mut(entry).reply = Some(chosen.index);
    }
    Ok((chosen, asked.stream))
}

async fn give(wire: &'static Wire, chosen: Chosen, stream: bool, cut: &Cut) -> Response<Body> {
    let reply = &chosen.reply;
    cut.pause(Duration::from_millis(reply.delay_ms)).await;
    if reply.hang == Some(CutFile::BeforeHeaders) {
        cut.pause(Duration::MAX).await;
    }
    if reply.drop == Some(CutFile::BeforeHeaders) {
        cut.now();
        return plain_response(500, "", Vec::new());
    }
    if let Some(garbage) = &reply.garbage {
        let kind = if stream { "text/event-stream; charset=utf-8" } else { "application/json" };
        return plain_response(200, kind, garbage.clone().into_bytes());
    }
    if let Some(failure) = &reply.error
        && !(failure.in_stream && stream)
    {
        let message = failure.message.clone().unwrap_or_else(|| usual_message(failure.status).to_owned());
        return error(wire, failure.status, &message, failure.retry_after);
    }
    let pause = Duration::from_millis(reply.chunk_delay_ms);
    let mut parts: Vec<Bytes>;
    if stream {
        let mut events: Vec<SentEvent> = (wire.events)(&chosen.answer);
        if let Some(failure) = &reply.error {
            let message = failure.message.clone().unwrap_or_else(|| usual_message(failure.status).to_owned());
            events.truncate(2);
            events.push((wire.error_event)(failure.status, &message));
        }
        parts = events.iter().map(|event| Bytes::from(event.bytes())).collect();
    } else {
        let body = (wire.whole)(&chosen.answer).to_string().into_bytes();
        let half = body.len() / 2;
        parts = vec![Bytes::copy_from_slice(&body[..half]), Bytes::copy_from_slice(&body[half..])];
    }
    let stop = reply.drop.or(reply.hang);
    match stop {
        Some(CutFile::AfterHeaders) => parts.clear(),
        Some(CutFile::MidStream) => parts.truncate(parts.len().div_ceil(2)),
        _ => {}
    }
    let kind = if stream { "text/event-stream; charset=utf-8" } else { "application/json" };
    let response = Response::builder().header("content-type", kind).header("request-id", "req_simulated");
    let body = match (reply.drop, reply.hang) {
        (None, None) if !stream => Body::from(parts.concat()),
        (None, None) => Body::from_stream(paced(parts, pause)),
        (Some(_), _) => Body::from_stream(paced(parts, pause).chain(futures::stream::once(async {
            // What was said so far must have left before the line goes dead.
            tokio::time::sleep(Duration::from_millis(20)).await;
            Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset))
        }))),
        (None, Some(_)) => Body::from_stream(paced(parts, pause).chain(futures::stream::pending())),
    };
    response.body(body).unwrap_or_default()
}

/// Pieces one after the other, with a pause between them.
pub fn paced(
    parts: Vec<Bytes>,
    pause: Duration,
) -> impl futures::Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static {
    futures::stream::iter(parts.into_iter().enumerate()).then(move |(place, part)| async move {
        if place > 0 && !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        Ok(part)
    })
}

fn error(wire: &Wire, status: u16, message: &str, retry_after: Option<u64>) -> Response<Body> {
    let mut response =
        plain_response(status, "application/json", (wire.error)(status, message).to_string().into_bytes());
    if let Some(seconds) = retry_after {
        response.headers_mut().insert("retry-after", seconds.into());
    }
    response
}

fn usual_message(status: u16) -> &'static str {
    match status {
        401 => "invalid x-api-key",
        402 => "Your credit balance is too low to access the API.",
        403 => "Your API key does not have permission to use the specified resource.",
        404 => "The requested resource could not be found.",
        413 => "Request exceeds the maximum size",
        429 => "Number of requests has exceeded your rate limit. Please try again later.",
        529 => "Overloaded",
        _ => "Internal server error",
    }
}

/// The list of models that exist.
pub fn models(shared: &Shared, wire: &Wire, headers: &HeaderMap) -> Response<Body> {
    let world = shared.world();
    let key = (wire.key)(headers).filter(|key| !key.is_empty());
    if !key.is_some_and(|key| world.script.api_keys.is_empty() || world.script.api_keys.contains(&key)) {
        return error(wire, 401, "invalid x-api-key", None);
    }
    let body = (wire.list)(&world.script.names);
    plain_response(200, "application/json", body.to_string().into_bytes())
}
