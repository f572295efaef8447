//! The status page and its login: files of our own, no other site's; everything the page shows comes from the API.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

/// Only our own files, only our own API; nothing inline.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

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

/// The form that asks for the token; `wrong` = one was given, and it is not the token.
pub fn login(status: StatusCode, wrong: bool) -> Response {
    let said = if wrong { "This is not the token." } else { "" };
    let text = include_str!("../../templates/web/login.html").replace("<!-- said -->", said);
    of_the_moment(status, text)
}

/// Sent with the cookie; leads to the page.
pub fn logged_in() -> Response {
    of_the_moment(StatusCode::OK, include_str!("../../templates/web/logged_in.html").to_owned())
}

/// A page that is not cached. Its form tells the daemon where it is from; a form without that belongs to another site.
fn of_the_moment(status: StatusCode, text: String) -> Response {
    let mut response = file("text/html; charset=utf-8", "");
    let headers = response.headers_mut();
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.remove(header::CONTENT_LENGTH);
    *response.status_mut() = status;
    *response.body_mut() = text.into();
    response
}
