//! Maps the refusals of providers to one enum (A-050…A-055).

use std::time::Duration;

use chrono::{DateTime, Utc};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;

use crate::engine::model::{ModelError, ModelErrorClass, Spent};

/// An answer that is not a reply: an HTTP status other than 2xx, or an error object inside a 2xx body or a stream.
#[derive(Debug, Clone, Default)]
pub(super) struct Refusal {
    status: Option<u16>,
    retry_after: Option<Duration>,
    kind: String,
    code: String,
    message: String,
}

impl Refusal {
    /// Reads an HTTP answer. `now` turns a date into a wait, where the answer has no date of its own.
    pub(super) fn answer(status: u16, headers: &HeaderMap, body: &[u8], now: DateTime<Utc>) -> Self {
        let mut refusal = match serde_json::from_slice::<Value>(body) {
            Ok(value) => Self::value(&value),
            Err(_) => Self { message: String::from_utf8_lossy(body).trim().to_owned(), ..Self::default() },
        };
        refusal.status = Some(status);
        refusal.retry_after = retry_after(headers, now).or(refusal.retry_after);
        refusal
    }

    /// Reads an error object: `{error: {…}}`, `{error: "…"}`, `{detail: …}`, or the inner object itself.
    pub(super) fn value(value: &Value) -> Self {
        // Some gateways wrap the object in an array.
        let value = value.get(0).unwrap_or(value);
        let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
        let text = |key: &str| match error.get(key) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let mut message = text("message");
        if message.is_empty() {
            message = match (error, error.get("detail")) {
                (Value::String(text), _) => text.clone(),
                (_, Some(Value::String(detail))) => detail.clone(),
                (_, Some(detail)) => detail.to_string(),
                _ => String::new(),
            };
        }
        let kind = [text("type"), text("status")].into_iter().find(|word| !word.is_empty());
        let code = text("code");
        let status = code.parse().ok().filter(|status| (300..600).contains(status));
        let details = error.get("details").and_then(Value::as_array);
        let retry_after = details
            .into_iter()
            .flatten()
            .find_map(|detail| seconds(detail.get("retryDelay")?.as_str()?.trim_end_matches('s')));
        let reason = details
            .into_iter()
            .flatten()
            .find_map(|detail| detail.get("reason")?.as_str())
            .unwrap_or_default();
        let code = if code.is_empty() || status.is_some() { reason.to_owned() } else { code };
        Self { status, retry_after, kind: kind.unwrap_or_default(), code, message }
    }

    /// The refusal that stands inside a reply, if one does.
    pub(super) fn inside(value: &Value) -> Option<Self> {
        value.get("error").is_some_and(|error| !error.is_null()).then(|| Self::value(value))
    }

    /// The class, and a technical message. The message still has to be cleaned of secrets.
    pub(super) fn into_error(self) -> ModelError {
        let class = self.class();
        let status = self.status.map(|status| format!("HTTP {status}"));
        let parts = [status.unwrap_or_default(), self.kind, self.code, self.message];
        let message = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
        ModelError { status: self.status, ..ModelError::new(class, message) }
    }

    fn class(&self) -> ModelErrorClass {
        let status = self.status.unwrap_or_default();
        let words = [self.kind.to_ascii_lowercase(), self.code.to_ascii_lowercase()];
        let named = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
        let message = self.message.to_ascii_lowercase();
        let says = |list: &[&str]| list.iter().any(|part| message.contains(part));

        if status == 402 || named(QUOTA_NAMES) || says(QUOTA_TEXTS) {
            return ModelErrorClass::Quota;
        }
        if status == 413 || named(CONTEXT_NAMES) || (matches!(status, 0 | 400 | 422) && says(CONTEXT_TEXTS)) {
            return ModelErrorClass::ContextLength;
        }
        if status == 403 && says(&["moderation", "flagged"]) {
            return ModelErrorClass::BadRequest;
        }
        if matches!(status, 401 | 403) || named(AUTH_NAMES) {
            return ModelErrorClass::Auth;
        }
        if status == 429 || named(RATE_NAMES) {
            return ModelErrorClass::RateLimited { retry_after: self.retry_after };
        }
        if status == 408 || named(&["timeout_error", "deadline_exceeded", "request_timeout"]) {
            return ModelErrorClass::Timeout;
        }
        if matches!(status, 300..500) || named(REQUEST_NAMES) {
            return ModelErrorClass::BadRequest;
        }
        // 5xx, overloaded, and whatever breaks a stream that had begun.
        ModelErrorClass::Server { retry_after: self.retry_after }
    }
}

const QUOTA_NAMES: &[&str] = &[
    "insufficient_quota",
    "billing_error",
    "billing_hard_limit_reached",
    "billing_not_active",
    "insufficient_balance",
    "insufficient_credits",
];
const QUOTA_TEXTS: &[&str] = &["credit balance is too low", "insufficient balance", "insufficient credits"];
const CONTEXT_NAMES: &[&str] =
    &["context_length_exceeded", "request_too_large", "model_context_window_exceeded"];
const CONTEXT_TEXTS: &[&str] = &[
    "context length",
    "context_length",
    "context window",
    "context limit",
    "context size",
    "prompt is too long",
    "input token count",
    "too many tokens",
];
const AUTH_NAMES: &[&str] = &[
    "authentication_error",
    "permission_error",
    "invalid_api_key",
    "unauthenticated",
    "permission_denied",
    "api_key_invalid",
];
const RATE_NAMES: &[&str] =
    &["rate_limit_error", "rate_limit_exceeded", "resource_exhausted", "too_many_requests"];
const REQUEST_NAMES: &[&str] =
    &["invalid_request_error", "not_found_error", "invalid_argument", "not_found", "model_not_found"];

/// How long a provider asks to wait: `retry-after-ms`, or `Retry-After` in seconds or as a date (A-052).
pub fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(|value| value.parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(millis / 1000.0).ok();
    }
    let header = text(RETRY_AFTER.as_str())?;
    let date = |value: &str| DateTime::parse_from_rfc2822(value).ok();
    seconds(header).or_else(|| {
        // The provider's own clock, where it tells it: ours may be wrong.
        let from = text("date").and_then(date).map_or(now, |date| date.to_utc());
        // A moment that has passed means: no wait.
        Some((date(header)?.to_utc() - from).to_std().unwrap_or(Duration::ZERO))
    })
}

fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

/// A reply that is not what the wire promises (A-055).
pub(super) fn invalid(message: impl Into<String>) -> ModelError {
    ModelError::new(ModelErrorClass::InvalidReply, message)
}

/// The stream ended before the reply was complete.
pub(super) fn cut_off() -> ModelError {
    let error = ModelError::new(ModelErrorClass::Network, "the stream ended before the reply was complete");
    ModelError { spent: Spent::Unseen, ..error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ModelErrorClass as Class;
    use reqwest::header::HeaderValue;
    use serde_json::json;

    fn now() -> DateTime<Utc> {
        DateTime::parse_from_rfc3339("2026-11-21T22:00:00Z").unwrap().to_utc()
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    fn class(status: u16, body: &str) -> Class {
        Refusal::answer(status, &HeaderMap::new(), body.as_bytes(), now()).into_error().class
    }

    const SERVER: Class = Class::Server { retry_after: None };

    #[test]
    fn a_050_a_051_error_bodies_of_every_provider_map_to_one_class() {
        let rate = Class::RateLimited { retry_after: None };
        let table = [
            // anthropic
            (
                401,
                r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
                Class::Auth,
            ),
            (403, r#"{"type":"error","error":{"type":"permission_error","message":"no"}}"#, Class::Auth),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API"}}"#,
                Class::Quota,
            ),
            (402, r#"{"type":"error","error":{"type":"billing_error","message":"pay"}}"#, Class::Quota),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 205000 tokens > 200000 maximum"}}"#,
                Class::ContextLength,
            ),
            (
                413,
                r#"{"type":"error","error":{"type":"request_too_large","message":"big"}}"#,
                Class::ContextLength,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"temperature: range"}}"#,
                Class::BadRequest,
            ),
            (
                404,
                r#"{"type":"error","error":{"type":"not_found_error","message":"model: x"}}"#,
                Class::BadRequest,
            ),
            (429, r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}"#, rate),
            (500, r#"{"type":"error","error":{"type":"api_error","message":"oops"}}"#, SERVER),
            (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, SERVER),
            // openai and its kin
            (
                401,
                r#"{"error":{"message":"Incorrect API key","type":"invalid_request_error","code":"invalid_api_key"}}"#,
                Class::Auth,
            ),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
                Class::Quota,
            ),
            (
                429,
                r#"{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}"#,
                rate,
            ),
            (
                400,
                r#"{"error":{"message":"maximum context length is 8192 tokens","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
                Class::ContextLength,
            ),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 4096 tokens","type":"BadRequestError","code":400}"#,
                Class::ContextLength,
            ),
            (404, r#"{"error":{"message":"model 'x' not found, try pulling it first"}}"#, Class::BadRequest),
            (422, r#"{"detail":[{"loc":["body"],"msg":"field required"}]}"#, Class::BadRequest),
            (402, r#"{"error":{"message":"Insufficient credits","code":402}}"#, Class::Quota),
            (
                403,
                r#"{"error":{"message":"Your input was flagged by moderation","code":403}}"#,
                Class::BadRequest,
            ),
            (408, r#"{"error":{"message":"timed out","code":408}}"#, Class::Timeout),
            // gemini
            (
                400,
                r#"{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#,
                Class::Auth,
            ),
            (403, r#"{"error":{"code":403,"message":"no","status":"PERMISSION_DENIED"}}"#, Class::Auth),
            (
                400,
                r#"{"error":{"code":400,"message":"The input token count (2) exceeds the maximum","status":"INVALID_ARGUMENT"}}"#,
                Class::ContextLength,
            ),
            (503, r#"[{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}]"#, SERVER),
            // whatever stands in front
            (502, "<html>Bad Gateway</html>", SERVER),
            (401, "", Class::Auth),
            (301, "", Class::BadRequest),
        ];
        for (status, body, expected) in table {
            assert_eq!(class(status, body), expected, "{status} {body}");
        }
    }

    #[test]
    fn an_error_inside_a_reply_or_a_stream_is_classified_by_its_own_words() {
        let class = |value: Value| Refusal::value(&value).into_error().class;
        assert_eq!(class(json!({ "error": { "code": 502, "message": "upstream" } })), SERVER);
        assert_eq!(class(json!({ "error": { "code": 429 } })), Class::RateLimited { retry_after: None });
        assert_eq!(class(json!({ "error": { "type": "overloaded_error" } })), SERVER);
        assert_eq!(class(json!({ "error": { "code": "insufficient_quota" } })), Class::Quota);
        assert_eq!(class(json!({ "error": "broken" })), SERVER);
    }

    #[test]
    fn a_052_retry_after_is_read_as_seconds_as_a_date_and_from_the_body() {
        let wait = |pairs: &[(&'static str, &'static str)], body: &str| match Refusal::answer(
            429,
            &headers(pairs),
            body.as_bytes(),
            now(),
        )
        .into_error()
        .class
        {
            Class::RateLimited { retry_after } => retry_after,
            other => panic!("{other}"),
        };
        let secs = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(wait(&[("retry-after", "7")], ""), secs(7));
        assert_eq!(wait(&[("retry-after", "0.5")], ""), Some(Duration::from_millis(500)));
        assert_eq!(
            wait(&[("retry-after-ms", "1500"), ("retry-after", "2")], ""),
            Some(Duration::from_millis(1500))
        );
        assert_eq!(wait(&[("retry-after", "Sat, 21 Nov 2026 22:00:09 GMT")], ""), secs(9));
        let date = ("date", "Sat, 21 Nov 2026 23:59:50 GMT");
        assert_eq!(wait(&[("retry-after", "Sun, 22 Nov 2026 00:00:00 GMT"), date], ""), secs(10));
        assert_eq!(wait(&[("retry-after", "Sat, 21 Nov 2026 21:00:00 GMT")], ""), secs(0));
        assert_eq!(wait(&[("retry-after", "soon")], ""), None);
        assert_eq!(wait(&[], r#"{"error":{"code":429,"details":[{"retryDelay":"31s"}]}}"#), secs(31));
    }
}
