//! The second origin: where GitHub keeps logs of jobs and shows images, by signed links and without tokens.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, Response};

use super::call::parse_query;
use super::connection::Cut;
use super::fault;
use super::server;
use super::shared::{Shared, plain_response};
use super::signed_link::signature;
use super::world::{Log, World};

/// Bytes that are sent at a time.
const PIECE: usize = 64 << 10;

/// Answers every request to the second origin.
pub async fn handle(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(cut): ConnectInfo<Cut>,
    request: Request,
) -> Response<Body> {
    let (parts, _) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let (method, headers) = (parts.method.as_str(), &parts.headers);
    let second = shared.world().second.clone();
    let target = parts.uri.path_and_query().map_or_else(|| path.clone(), ToString::to_string);
    let seq = server::log(&shared, method, &format!("{second}{target}"), headers, &Bytes::new());
    let met = fault::meet(&mut shared.world().faults, method, &path, "");
    let response = match met {
        Some((kind, delay)) => {
            cut.pause(delay).await;
            match server::stop_before(kind, &cut).await {
                Ok(response) => response,
                Err(_) => answer(&mut shared.world(), method, &path, parts.uri.query(), headers),
            }
        }
        None => answer(&mut shared.world(), method, &path, parts.uri.query(), headers),
    };
    server::logged(&shared, seq, response, None)
}

fn answer(
    world: &mut World,
    method: &str,
    path: &str,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Response<Body> {
    let refused = |status: u16, text: &str| plain_response(status, "text/plain", text.as_bytes().to_vec());
    if headers.contains_key("authorization") || headers.contains_key("cookie") {
        world.violation(format!("{method} {path}: a token was sent to another origin"));
        return refused(400, "InvalidAuthenticationInfo");
    }
    if method != "GET" {
        world.violation(format!("{method} {path}: the second origin is only read"));
        return refused(405, "UnsupportedHttpVerb");
    }
    let query = parse_query(query.unwrap_or_default());
    let value = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let until: i64 = value("se").and_then(|until| until.parse().ok()).unwrap_or(0);
    if value("sig") != Some(signature(world, path, until).as_str()) {
        world.violation(format!("GET {path}: the link's signature is not one"));
        return refused(403, "AuthenticationFailed");
    }
    if world.now().timestamp() > until {
        return refused(403, "AuthenticationFailed: Signature not valid in the specified time frame");
    }
    let pieces: Vec<&str> = path.split('/').filter(|piece| !piece.is_empty()).collect();
    match pieces.as_slice() {
        ["logs", id] => {
            let mut checks = world.repositories.iter().flat_map(|repo| &repo.checks);
            let job = checks.find(|check| check.id.to_string() == *id).and_then(|check| check.job.as_ref());
            match job {
                Some(job) => log(job.log.clone(), headers),
                None => refused(404, "BlobNotFound"),
            }
        }
        ["images", id] => match world.attachments.iter().find(|one| one.id == *id) {
            Some(image) => plain_response(200, &image.kind, image.bytes.clone()),
            None => refused(404, "Not Found"),
        },
        _ => refused(404, "Not Found"),
    }
}

/// A log, or the part that is asked for. As where GitHub keeps its logs, `bytes=-N` is not understood: the whole is sent.
fn log(log: Log, headers: &HeaderMap) -> Response<Body> {
    let total = log.length();
    let range = headers.get("range").and_then(|value| value.to_str().ok());
    let asked = range.and_then(|range| range.strip_prefix("bytes=")).and_then(|range| range.split_once('-'));
    let asked = asked.and_then(|(start, end)| {
        let start: u64 = start.parse().ok()?;
        let end = if end.is_empty() { u64::MAX } else { end.parse().ok()? };
        Some((start, end))
    });
    let response = Response::builder().header("content-type", "text/plain").header("accept-ranges", "bytes");
    let (start, end, response) = match asked {
        Some((start, _)) if start >= total => {
            let response = response.status(416).header("content-range", format!("bytes */{total}"));
            return response.body(Body::empty()).unwrap_or_default();
        }
        Some((start, end)) => {
            let end = end.saturating_add(1).min(total);
            let range = format!("bytes {start}-{}/{total}", end.saturating_sub(1));
            (start, end, response.status(206).header("content-range", range))
        }
        None => (0, total, response.status(200)),
    };
    let stream = futures::stream::unfold(start, move |at| {
        let most = usize::try_from(end.saturating_sub(at)).unwrap_or(PIECE).min(PIECE);
        let piece = log.part(at, most);
        async move {
            let next = at + piece.len() as u64;
            (!piece.is_empty()).then(|| (Ok::<_, std::io::Error>(Bytes::from(piece)), next))
        }
    });
    let response = response.header("content-length", end.saturating_sub(start).to_string());
    response.body(Body::from_stream(stream)).unwrap_or_default()
}
