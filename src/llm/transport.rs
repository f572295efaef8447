//! One request to a provider over HTTP, with limits of time and size, and without secrets in its errors.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::{Instant, timeout};

use super::failure::Refusal;
use crate::domain::causes::with_causes;
use crate::domain::sse::{Event, Events};
use crate::engine::model::{ModelError, ModelErrorClass, Spent};
use crate::sys::clock::Clock;

/// Longest body that is read, streamed or not.
const MAX_BODY: usize = 32 * 1024 * 1024;
/// Longest part of an error body that is read.
const MAX_ERROR_BODY: usize = 64 * 1024;
/// Longest text of an error, in characters.
const MAX_ERROR_TEXT: usize = 300;
/// So many limits of silence a stream may say nothing but that it lives, as gateways do while they wait for a model.
pub(super) const KEPT_ALIVE: u32 = 5;
/// An error text that has this many characters in common with the request repeats the request.
const ECHO: usize = 40;

/// Where a provider is, and what every request to it carries.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    /// Key under `[providers]`, for messages.
    pub provider: String,
    pub client: reqwest::Client,
    /// Without a trailing slash.
    pub base_url: String,
    pub headers: HeaderMap,
    /// What must never stand in a message.
    pub secrets: Vec<SecretString>,
    /// Tells the time, for dates in `Retry-After`.
    pub clock: Clock,
}

/// What a provider answered with.
pub(super) enum Answer {
    /// A stream of events follows.
    Stream(Box<EventStream>),
    /// The whole body.
    Body(Vec<u8>),
}

/// The events of one streamed answer.
pub(super) struct EventStream {
    response: reqwest::Response,
    events: Events,
    ready: std::collections::VecDeque<Event>,
    read: usize,
    ended: bool,
}

impl Endpoint {
    /// Posts JSON. With `stream`, every wait (for the answer's head, and for each of its pieces) is limited by `limit`;
    /// without, the caller limits the whole.
    pub(super) async fn post(
        &self,
        path: &str,
        body: Bytes,
        stream: bool,
        limit: Duration,
    ) -> Result<Answer, ModelError> {
        let accept = if stream { "text/event-stream" } else { "application/json" };
        let sent = self
            .client
            .post(format!("{}{path}", self.base_url))
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, accept)
            .body(body)
            .send();
        let sent = async { if stream { within(limit, sent).await? } else { sent.await }.map_err(failed) };
        let mut response = sent.await.map_err(|error| in_vain(error, stream))?;
        let status = response.status();
        if !status.is_success() {
            let read = read(&mut response, MAX_ERROR_BODY, stream.then_some(limit)).await;
            // The status says enough. An error body that cannot be read does not matter.
            let text = read.unwrap_or_default();
            let refusal = Refusal::answer(status.as_u16(), response.headers(), &text, self.clock.now());
            return Err(refusal.into_error());
        }
        if stream && is_event_stream(response.headers()) {
            return Ok(Answer::Stream(Box::new(EventStream {
                response,
                events: Events::default(),
                ready: std::collections::VecDeque::new(),
                read: 0,
                ended: false,
            })));
        }
        let body = read(&mut response, MAX_BODY, stream.then_some(limit)).await;
        Ok(Answer::Body(body.map_err(|error| in_vain(error, stream))?))
    }

    /// The error as it may be shown: no secrets, no echo of the request, of bounded length, on one line.
    pub(super) fn clean(&self, error: ModelError, request_body: &[u8]) -> ModelError {
        let mut text = error.message;
        for secret in &self.secrets {
            let secret = secret.expose_secret();
            if !secret.is_empty() {
                text = text.replace(secret, "[redacted]");
            }
        }
        text = without_keys(&text);
        text = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_ERROR_TEXT).collect();
        let request = String::from_utf8_lossy(request_body);
        if let Some(at) = echo_of(&text, &without_told_errors(&request, &self.provider)) {
            text.truncate(at);
            text.push_str("[…]");
        }
        ModelError { message: format!("provider {}: {text}", self.provider), ..error }
    }
}

impl EventStream {
    /// Bytes so far.
    pub(super) fn read(&self) -> usize {
        self.read
    }

    /// The next event; `None` at the end of the answer. An answer that is silent for `limit` is a timeout, and so is one that says for
    /// [`KEPT_ALIVE`] times as long that it lives and nothing else.
    pub(super) async fn next(&mut self, limit: Duration) -> Result<Option<Event>, ModelError> {
        let until = Instant::now() + limit.saturating_mul(KEPT_ALIVE);
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.ended {
                return Ok(None);
            }
            let wait = limit.min(until.saturating_duration_since(Instant::now()));
            match within(wait, self.response.chunk()).await?.map_err(failed)? {
                Some(bytes) => {
                    self.read += bytes.len();
                    if self.read > MAX_BODY {
                        return Err(too_long());
                    }
                    self.ready.extend(self.events.push(&bytes));
                }
                None => {
                    self.ended = true;
                    self.ready.extend(self.events.finish());
                }
            }
        }
    }
}

/// Nothing came within the limit.
pub(super) fn timed_out(limit: Duration) -> ModelError {
    let message = format!("no answer within {} ms", limit.as_millis());
    ModelError { spent: Spent::Unseen, ..ModelError::new(ModelErrorClass::Timeout, message) }
}

async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Result<T, ModelError> {
    timeout(limit, future).await.map_err(|_| timed_out(limit))
}

async fn read(
    response: &mut reqwest::Response,
    most: usize,
    limit: Option<Duration>,
) -> Result<Vec<u8>, ModelError> {
    let mut body = Vec::new();
    loop {
        let chunk = match limit {
            Some(limit) => within(limit, response.chunk()).await?,
            None => response.chunk().await,
        };
        match chunk.map_err(failed)? {
            Some(bytes) if body.len() + bytes.len() > most => return Err(too_long()),
            Some(bytes) => body.extend_from_slice(&bytes),
            None => return Ok(body),
        }
    }
}

/// What a request cost that was sent, and of whose answer nothing came. Before a stream begins, nothing is written.
pub(super) fn in_vain(error: ModelError, stream: bool) -> ModelError {
    match (error.spent, stream) {
        (Spent::Unseen, true) => ModelError { spent: Spent::BrokeOff { usage: None, written: 0 }, ..error },
        _ => error,
    }
}

fn too_long() -> ModelError {
    let error = super::failure::invalid(format!("the reply is longer than {} MiB", MAX_BODY / 1024 / 1024));
    ModelError { spent: Spent::Unseen, ..error }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    // A server that does not say what it sends is taken at its word to stream.
    value.is_none_or(|value| !value.to_ascii_lowercase().contains("json"))
}

fn failed(error: reqwest::Error) -> ModelError {
    let class = if error.is_timeout() { ModelErrorClass::Timeout } else { ModelErrorClass::Network };
    // What never reached the provider costs nothing.
    let spent = if error.is_connect() || error.is_builder() { Spent::Nothing } else { Spent::Unseen };
    // A URL may hold credentials.
    let error = error.without_url();
    ModelError { spent, ..ModelError::new(class, with_causes(&error)) }
}

/// Replaces words that look like keys, also those that the provider has partly masked.
fn without_keys(text: &str) -> String {
    let looks_like_key = |word: &str| {
        let known = ["sk-", "sk_", "gsk_", "xai-", "AIza", "ghp_", "github_pat_"];
        word.len() >= 12 && known.iter().any(|prefix| word.starts_with(prefix))
    };
    let part_of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '*');
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !part_of_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        clean.push_str(if looks_like_key(word) { "[redacted]" } else { word });
        let next = after.find(part_of_word).unwrap_or(after.len());
        let (between, after) = after.split_at(next);
        clean.push_str(between);
        rest = after;
    }
    clean
}

/// A request without what agentd told in it of earlier errors of the provider, each to the end of its line: the same error once more is
/// no echo.
fn without_told_errors(request: &str, provider: &str) -> String {
    let told = format!("provider {provider}: ");
    let mut parts = request.split(&told);
    let mut left = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // In a JSON string each of its characters may be two.
        let longest = part.char_indices().nth(2 * MAX_ERROR_TEXT).map_or(part.len(), |(at, _)| at);
        let end = part.find("\\n").unwrap_or(part.len()).min(longest);
        left.push('\n');
        left.push_str(&part[end..]);
    }
    left
}

/// Where the text begins to repeat the request.
fn echo_of(text: &str, request: &str) -> Option<usize> {
    let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    starts.windows(ECHO + 1).find_map(|window| {
        let (from, to) = (*window.first()?, *window.last()?);
        request.contains(&text[from..to]).then_some(from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_blotted_out_of_what_a_provider_says() {
        let text = "Incorrect API key provided: sk-proj-abcd************wxyz. See (AIzaSyA1234567890).";
        let clean = "Incorrect API key provided: [redacted]. See ([redacted]).";
        assert_eq!(without_keys(text), clean);
    }

    #[test]
    fn an_echo_of_the_request_is_found_where_it_begins() {
        let request = r#"{"model":"m","messages":[{"role":"user","content":"a long enough private sentence of the user"}]}"#;
        let text = "bad input: a long enough private sentence of the user";
        assert_eq!(echo_of(text, request), Some(11));
        assert_eq!(echo_of("the model m does not exist, or you have no access to it", request), None);
    }

    #[test]
    fn an_earlier_error_that_the_request_tells_of_is_no_echo_and_what_stands_behind_it_is() {
        let error = "HTTP 500: api_error: the model is away for a while";
        let private = "a long enough private sentence of the user";
        let request = format!(r#"{{"content":"end: provider sim: {error}\n{private}"}}"#);
        let left = without_told_errors(&request, "sim");
        assert_eq!((echo_of(error, &left), echo_of(private, &left)), (None, Some(0)), "{left}");
        assert_eq!(echo_of(error, &without_told_errors(&request, "other")), Some(0));
    }
}
