//! The status page: three files of our own, no other site's; everything it shows comes from the API.

use axum::http::header;
use axum::response::{IntoResponse as _, Response};

/// Only our own files, only our own API; nothing inline.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

fn file(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, text).into_response()
}

/// `GET /`.
pub async fn page() -> Response {
    file("text/html; charset=utf-8", include_str!("../../templates/web/status.html"))
}

/// `GET /status.css`.
pub async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("../../templates/web/status.css"))
}

/// `GET /status.js`.
pub async fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("../../templates/web/status.js"))
}
