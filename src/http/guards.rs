//! What every request has to pass before it is answered: the front's own name, no other site's page, the token.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::access::text;
use super::reply::failure;
use super::shared::Shared;
use super::{body, status_page};

/// Largest login that is read, in bytes.
const LARGEST_LOGIN: usize = 4096;
/// The header with which a browser says that another site makes the request.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Under its own name only, or one that the operator gave it.
pub(super) async fn by_own_name(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    if !shared.access.is_own(&request) {
        let words = "ask under the address it listens on, or add this name, with its port, to daemon.hosts";
        return failure(StatusCode::MISDIRECTED_REQUEST, "foreign_host", words);
    }
    next.run(request).await
}

/// Nothing is done for another site's page (S68).
pub(super) async fn for_own_page(request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if !reads && from_elsewhere(request.headers()) {
        let words = "only the daemon's own page may ask for this";
        return failure(StatusCode::FORBIDDEN, "foreign_origin", words);
    }
    next.run(request).await
}

/// With the token, or from a browser that gave it.
pub(super) async fn with_token(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let (access, headers) = (&shared.access, request.headers());
    let is_page = request.uri().path() == "/";
    if access.wants_token() && is_page {
        let query = request.uri().query().unwrap_or_default().as_bytes();
        if let Some((_, token)) = url::form_urlencoded::parse(query).find(|(name, _)| name == "token") {
            return access.log_in(&token, headers);
        }
    }
    if access.admits(headers) {
        return next.run(request).await;
    }
    if is_page {
        return status_page::login(StatusCode::UNAUTHORIZED, false);
    }
    let words = "send Authorization: Bearer with daemon.token, or log in on the status page";
    let mut response = failure(StatusCode::UNAUTHORIZED, "unauthorized", words);
    let challenge = HeaderValue::from_static("Bearer realm=\"agentd\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}

/// `POST /login` with `token`, as the page's form sends it.
pub(super) async fn login(State(shared): State<Arc<Shared>>, headers: HeaderMap, form: Body) -> Response {
    if !shared.access.wants_token() {
        return failure(StatusCode::NOT_FOUND, "not_configured", "there is no daemon.token, and no login");
    }
    match body::read(form, LARGEST_LOGIN).await {
        Ok(form) => {
            let given = url::form_urlencoded::parse(&form).find(|(name, _)| name == "token");
            shared.access.log_in(&given.map(|(_, token)| token).unwrap_or_default(), &headers)
        }
        Err(refused) => refused.into_response(),
    }
}

fn from_elsewhere(headers: &HeaderMap) -> bool {
    if matches!(text(headers, FETCH_SITE), Some("cross-site" | "same-site")) {
        return true;
    }
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else { return false };
    let host = text(headers, header::HOST).unwrap_or_default();
    let from = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    origins.next().is_some() || from.is_none_or(|(_, from)| !from.eq_ignore_ascii_case(host))
}
