//! The server: its address, its access rules, and its paths.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::Response;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::access::Access;
use super::deliveries::Deliveries;
use super::reply::failure;
use super::run_index::RunIndex;
use super::shared::{Front, Shared};
use super::{api, chat_routes, connections, guards, metrics, status_page, stream, webhook};
use crate::service::TurnCosts;

/// Default headers of answers: no other site may use them, and they are never pages.
const GUARDS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// A server at work; dropped, it ends.
#[derive(Debug)]
pub struct Listening {
    /// Where it listens.
    pub address: SocketAddr,
    task: Option<AbortHandle>,
    listener: Arc<TcpListener>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Takes the address (port 0 = any free one). Nothing is answered before [`Listening::serve`].
pub async fn listen(address: SocketAddr) -> std::io::Result<Listening> {
    let listener = TcpListener::bind(address).await?;
    Ok(Listening { address: listener.local_addr()?, task: None, listener: Arc::new(listener) })
}

impl Listening {
    /// Begins to answer, or to answer otherwise: the connections of before end.
    pub fn serve(&mut self, front: Front) {
        let app = router(front, self.address);
        let task = tokio::spawn(connections::serve(Arc::clone(&self.listener), app));
        if let Some(before) = self.task.replace(task.abort_handle()) {
            before.abort();
        }
    }
}

fn router(front: Front, address: SocketAddr) -> Router {
    let shared = Arc::new(Shared {
        run_index: RunIndex::new(front.state.clone()),
        turn_costs: Arc::new(TurnCosts::new(front.state.clone())),
        deliveries: Deliveries::default(),
        access: Access::new(address, &front.hosts, front.token.clone()),
        streams: Arc::new(Semaphore::new(connections::most() / 2)),
        front,
    });
    let read = Router::new()
        .route("/", get(status_page::page))
        .route("/metrics", get(metrics::metrics))
        .route("/api/v1/status", get(api::status))
        .route("/api/v1/state", get(api::status))
        .route("/api/v1/queue", get(api::queue))
        .route("/api/v1/limits", get(api::limits))
        .route("/api/v1/cost", get(api::cost))
        .route("/api/v1/runs", get(api::runs))
        .route("/api/v1/runs/{run}", get(api::run))
        .route("/api/v1/runs/{run}/report", get(api::report))
        .route("/api/v1/runs/{run}/events", get(api::events))
        .route("/api/v1/issues/{owner}/{name}/{number}", get(api::issue))
        .route("/api/v1/events", get(stream::stream))
        .route("/api/v1/refresh", post(api::refresh))
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), guards::with_token));
    let open = Router::new()
        .route("/status.css", get(status_page::style))
        .route("/status.js", get(status_page::script))
        .route("/health", get(api::health))
        .route("/login", post(guards::login));
    let own = read.merge(open).layer(middleware::from_fn(guards::for_own_page));
    // Webhooks and conversations have secrets of their own.
    let hooks = Router::new().route("/webhooks/github", post(webhook::github));
    own.merge(hooks)
        .merge(chat_routes::router())
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), guards::by_own_name))
        .fallback(|| async { failure(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path") })
        .method_not_allowed_fallback(|| async {
            failure(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this path knows other methods")
        })
        .layer(middleware::map_response(enveloped))
        .layer(middleware::map_response(guarded))
        .with_state(shared)
}

async fn guarded(mut response: Response) -> Response {
    for (name, value) in GUARDS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Errors from before a handler runs (a path that cannot be read, a body that is too large) have the same form.
async fn enveloped(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let plain = kind.is_none_or(|kind| kind.starts_with(b"text/plain"));
    if !(status.is_client_error() || status.is_server_error()) || !plain {
        return response;
    }
    let words = status.canonical_reason().unwrap_or("error");
    let said = axum::body::to_bytes(response.into_body(), 1024).await.unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let message = if said.is_empty() { words } else { &said };
    failure(status, &words.to_ascii_lowercase().replace([' ', '-'], "_"), message)
}
