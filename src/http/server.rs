//! The server: where it listens, who may ask, and which path leads where.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::chat::Chat;
use super::ledger::Ledger;
use super::webhook::Deliveries;
use super::{api, chat, metrics, page, stream, webhook};
use crate::daemon::Progress;
use crate::daemon::status_format::Status;
use crate::store::run_dir::StateDir;

/// GitHub's own limit for the body of a webhook.
const LARGEST_BODY: usize = 25 * 1024 * 1024;

/// What the front shows and may touch: nothing of the daemon but its bell.
#[derive(Clone)]
pub struct Front {
    /// What the daemon says of itself.
    pub status: watch::Receiver<Option<Arc<Status>>>,
    /// How far runs are.
    pub progress: Progress,
    /// Where runs are kept.
    pub state: StateDir,
    /// Makes the daemon look again.
    pub bell: Arc<Notify>,
    /// Secret of the webhooks; `None` = there are none.
    pub webhook_secret: Option<SecretString>,
    /// The chat endpoint of the moment; `None` = there is none.
    pub chat: watch::Receiver<Option<Arc<Chat>>>,
}

/// What the handlers share.
pub(super) struct Shared {
    pub front: Front,
    pub ledger: Ledger,
    pub deliveries: Deliveries,
    /// Where it listens on loopback: then only that name is answered to.
    loopback: Option<SocketAddr>,
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
        let loopback = self.address.ip().is_loopback().then_some(self.address);
        let app = router(front, loopback);
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, app).await {
                tracing::error!(%error, "the HTTP front ended");
            }
        });
        self.task = Some(task.abort_handle());
    }
}

fn router(front: Front, loopback: Option<SocketAddr>) -> Router {
    let shared = Arc::new(Shared {
        ledger: Ledger::new(front.state.clone()),
        front,
        deliveries: Deliveries::default(),
        loopback,
    });
    let read = Router::new()
        .route("/", get(page::page))
        .route("/status.css", get(page::style))
        .route("/status.js", get(page::script))
        .route("/health", get(api::health))
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
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), own_name_only));
    // Webhooks come through a proxy under any name; their signature is what counts.
    let hooks = Router::new()
        .route("/webhooks/github", post(webhook::github))
        .layer(DefaultBodyLimit::max(LARGEST_BODY));
    // The same holds for conversations: the token is what counts.
    read.merge(hooks)
        .merge(chat::router())
        .fallback(|| async { failure(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path") })
        .method_not_allowed_fallback(|| async {
            failure(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this path knows other methods")
        })
        .layer(middleware::map_response(enveloped))
        .with_state(shared)
}

/// Errors that are made before anybody here hears of the request (a path that cannot be read, a body that is too large)
/// come in the same envelope.
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

/// On loopback a browser that was led here under another name is refused, and so is another site's page that wants
/// something done (S68).
async fn own_name_only(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    if shared.loopback.is_some_and(|own| !names(headers, own)) {
        return failure(
            StatusCode::MISDIRECTED_REQUEST,
            "foreign_host",
            "ask under the address it listens on",
        );
    }
    if request.method() != Method::GET && from_elsewhere(headers) {
        return failure(
            StatusCode::FORBIDDEN,
            "foreign_origin",
            "only the daemon's own page may ask for this",
        );
    }
    next.run(request).await
}

fn names(headers: &HeaderMap, own: SocketAddr) -> bool {
    let Some(host) = text(headers, header::HOST) else { return true };
    let name = host.strip_suffix(&format!(":{}", own.port())).unwrap_or(host);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn from_elsewhere(headers: &HeaderMap) -> bool {
    let Some(origin) = text(headers, header::ORIGIN) else { return false };
    let host = text(headers, header::HOST).unwrap_or_default();
    origin.split_once("://").is_none_or(|(_, from)| !from.eq_ignore_ascii_case(host))
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}
