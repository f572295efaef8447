//! What is answered to a request that cannot be served.

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};

/// The envelope of every error.
pub(super) fn failure(status: StatusCode, code: &str, message: &str) -> Response {
    let body = serde_json::json!({ "error": { "code": code, "message": message } });
    (status, axum::Json(body)).into_response()
}
