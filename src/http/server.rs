//! The server: its address, its access rules, and its paths.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;

use super::access::{self, Access};
use super::chat::Chat;
use super::ledger::Ledger;
use super::webhook::Deliveries;
use super::{api, chat, connections, metrics, page, stream, webhook};
use crate::daemon::status_format::Status;
use crate::daemon::{Bell, Progress};
use crate::store::run_dir::StateDir;

/// Default headers of answers: no other site may use them, and they are never pages.
const GUARDS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// What the front shows and may change: it can only give the daemon a hint.
#[derive(Clone)]
pub struct Front {
    /// What the daemon says of itself.
    pub status: watch::Receiver<Option<Arc<Status>>>,
    /// How far runs are.
    pub progress: Progress,
    /// Where runs are kept.
    pub state: StateDir,
    /// Makes the daemon look again.
    pub bell: Arc<Bell>,
    /// Secret of the webhooks; `None` = there are none.
    pub webhook_secret: Option<SecretString>,
    /// What everyone who asks has to send; `None` = nothing.
    pub token: Option<SecretString>,
    /// Names that it answers under beside its own.
    pub hosts: Vec<String>,
    /// The chat endpoint of the moment; `None` = there is none.
    pub chat: watch::Receiver<Option<Arc<Chat>>>,
}

/// What the handlers share.
pub(super) struct Shared {
    pub front: Front,
    pub ledger: Ledger,
    pub deliveries: Deliveries,
    pub access: Access,
    /// Room for listeners of the event stream, which stay: others are to find room, too.
    pub streams: Arc<Semaphore>,
}

impl Shared {
    /// The daemon's last word, with the runs' progress of now.
    pub fn status(&self) -> Option<Status> {
        let mut status = self.front.status.borrow().as_deref().cloned()?;
        for run in &mut status.running {
            let issue = crate::daemon::IssueRef { repo: run.repo.clone(), number: run.issue };
            run.progress = self.front.progress.of(&issue);
        }
        Some(status)
    }
}

/// A server at work; dropped, it ends.
#[derive(Debug)]
pub struct Listening {
    /// Where it listens.
    pub address: SocketAddr,
    task: Option<AbortHandle>,
    listener: Option<TcpListener>,
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
    Ok(Listening { address: listener.local_addr()?, task: None, listener: Some(listener) })
}

impl Listening {
    /// Begins to answer.
    pub fn serve(&mut self, front: Front) {
        let Some(listener) = self.listener.take() else { return };
        let app = router(front, self.address);
        self.task = Some(tokio::spawn(connections::serve(listener, app)).abort_handle());
    }
}

fn router(front: Front, address: SocketAddr) -> Router {
    let shared = Arc::new(Shared {
        ledger: Ledger::new(front.state.clone()),
        deliveries: Deliveries::default(),
        access: Access::new(address, &front.hosts, front.token.clone()),
        streams: Arc::new(Semaphore::new(connections::most() / 2)),
        front,
    });
    let read = Router::new()
        .route("/", get(page::page))
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
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), access::with_token));
    let open = Router::new()
        .route("/status.css", get(page::style))
        .route("/status.js", get(page::script))
        .route("/health", get(api::health))
        .route("/login", post(access::login));
    let own = read.merge(open).layer(middleware::from_fn(access::for_own_page));
    // Webhooks and conversations have secrets of their own.
    let hooks = Router::new().route("/webhooks/github", post(webhook::github));
    own.merge(hooks)
        .merge(chat::router())
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), access::by_own_name))
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

/// The envelope of every error.
pub(super) fn failure(status: StatusCode, code: &str, message: &str) -> Response {
    let body = serde_json::json!({ "error": { "code": code, "message": message } });
    (status, axum::Json(body)).into_response()
}
