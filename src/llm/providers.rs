//! The providers of a configuration, behind the port `engine::Model`.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use secrecy::ExposeSecret;
use tokio::time::Instant;

use super::failure::{Refusal, cut_off, invalid};
use super::transport::{Answer, Endpoint, EventStream, KEPT_ALIVE, in_vain, timed_out};
use super::{json, wire};
use crate::config::{self, ProviderKind};
use crate::domain::sse::{Event, Events};
use crate::engine::model::{Model, ModelError, ModelErrorClass, ModelReply, ModelRequest, Spent};
use crate::engine::token_estimate::tokens_of_bytes;
use crate::sys::clock::Clock;
use crate::sys::tls;

/// Longest wait for a connection. A host that cannot be reached is a network error, whatever the request's own limit.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Why a provider cannot be used; a configuration error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// Not an `http` or `https` URL.
    #[error(
        "providers.{provider}.base_url: `{base_url}` is not an http or https URL; give the part before the provider's own path, such as https://api.openai.com/v1"
    )]
    BaseUrl {
        /// Key under `[providers]`.
        provider: String,
        /// What was given, without user and password.
        base_url: String,
    },
    /// A header's name or value, or the key, has characters that HTTP does not allow.
    #[error(
        "providers.{provider}.{key}: not allowed in an HTTP header; look for line breaks or spaces at its ends"
    )]
    Header {
        /// Key under `[providers]`.
        provider: String,
        /// `api_key` or `headers.NAME`.
        key: String,
    },
    /// No HTTP client can be made.
    #[error("no HTTP client for the providers: {0}; are the system's root certificates installed?")]
    Client(String),
}

/// All providers of a configuration.
#[derive(Debug, Clone)]
pub struct Providers {
    by_name: BTreeMap<String, Provider>,
}

#[derive(Debug, Clone)]
pub(super) struct Provider {
    pub kind: ProviderKind,
    pub endpoint: Endpoint,
}

impl Providers {
    /// Takes the providers that targets name, and a clock, which turns dates in `Retry-After` into waits.
    pub fn new(
        providers: impl IntoIterator<Item = config::Provider>,
        clock: &Clock,
    ) -> Result<Self, ProviderError> {
        let client = tls::http_client()
            .connect_timeout(CONNECT_TIMEOUT)
            // A redirected POST would lose its body, and its key would go to another host.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| ProviderError::Client(error.to_string()))?;
        let mut by_name = BTreeMap::new();
        for provider in providers {
            let endpoint = Endpoint {
                base_url: base_url(&provider)?,
                headers: headers(&provider)?,
                secrets: provider
                    .api_key
                    .into_iter()
                    .chain(provider.headers.into_iter().map(|(_, value)| value))
                    .collect(),
                provider: provider.name.clone(),
                client: client.clone(),
                clock: clock.clone(),
            };
            by_name.insert(provider.name, Provider { kind: provider.kind, endpoint });
        }
        Ok(Self { by_name })
    }

    pub(super) fn get(&self, name: &str) -> Option<&Provider> {
        self.by_name.get(name)
    }
}

fn base_url(provider: &config::Provider) -> Result<String, ProviderError> {
    let given = provider.base_url.trim();
    let parsed = reqwest::Url::parse(given).ok();
    if parsed.is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) {
        return Ok(given.trim_end_matches('/').to_owned());
    }
    Err(ProviderError::BaseUrl {
        provider: provider.name.clone(),
        base_url: given.rsplit('@').next().unwrap_or_default().to_owned(),
    })
}

fn headers(provider: &config::Provider) -> Result<HeaderMap, ProviderError> {
    let refused = |key: &str| ProviderError::Header { provider: provider.name.clone(), key: key.to_owned() };
    let secret = |key: &str, text: &str| {
        let mut value = HeaderValue::from_str(text).map_err(|_| refused(key))?;
        value.set_sensitive(true);
        Ok(value)
    };
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("agentd/", env!("CARGO_PKG_VERSION"))));
    let wire = provider.kind.wire();
    for (name, value) in wire.headers {
        headers.insert(*name, HeaderValue::from_static(value));
    }
    if let Some(key) = &provider.api_key {
        let key = format!("{}{}", wire.key_prefix, key.expose_secret());
        headers.insert(wire.key_header, secret("api_key", &key)?);
    }
    for (name, value) in &provider.headers {
        let key = format!("headers.{name}");
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused(&key))?;
        headers.insert(header, secret(&key, value.expose_secret())?);
    }
    Ok(headers)
}

impl Model for Providers {
    fn complete<'a>(&'a self, request: &'a ModelRequest) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        Box::pin(async move {
            let name = &request.target.provider;
            let Some(provider) = self.by_name.get(name) else {
                let message = format!("no provider `{name}`: add [providers.{name}]");
                return Err(ModelError::new(ModelErrorClass::BadRequest, message));
            };
            let body: Bytes = wire(provider.kind)
                .body(request, &provider.endpoint.base_url)
                .map_err(|error| {
                    let message = format!("the request cannot be written as JSON: {error}");
                    ModelError::new(ModelErrorClass::BadRequest, message)
                })?
                .into();
            let outcome = if request.stream {
                provider.exchange(request, body.clone()).await
            } else {
                let whole = provider.exchange(request, body.clone());
                match tokio::time::timeout(request.timeout, whole).await {
                    Ok(outcome) => outcome,
                    // It was sent, and is billed with what nobody saw of its reply.
                    Err(_) => Err(timed_out(request.timeout)),
                }
            };
            outcome.map_err(|error| provider.endpoint.clean(error, &body))
        })
    }
}

impl Provider {
    async fn exchange(&self, request: &ModelRequest, body: Bytes) -> Result<ModelReply, ModelError> {
        let path = wire(self.kind).path(request, &self.endpoint.base_url);
        let answer = self.endpoint.post(&path, body, request.stream, request.timeout).await?;
        let mut events = match answer {
            Answer::Body(body) => return read_reply(self.kind, request, &body),
            Answer::Stream(events) => events,
        };
        let mut fold = wire(self.kind).fold();
        let followed = follow(&mut events, fold.as_mut(), request.timeout).await;
        ended(fold, followed, request)
    }
}

/// The reply of a stream that was followed to its end; what cannot be used says what it cost.
fn ended(
    fold: Box<dyn wire::Fold>,
    followed: Result<(), ModelError>,
    request: &ModelRequest,
) -> Result<ModelReply, ModelError> {
    let spent = match fold.spent() {
        Spent::Reply { usage, cost: None } => {
            Spent::BrokeOff { usage, written: tokens_of_bytes(fold.written()) }
        }
        told => told,
    };
    followed.and_then(|()| fold.finish(request)).map_err(|error| match spent {
        Spent::Nothing => in_vain(error, true),
        spent => ModelError { spent, ..error },
    })
}

/// Reads a stream up to the end of its reply.
async fn follow(
    events: &mut EventStream,
    fold: &mut dyn wire::Fold,
    limit: Duration,
) -> Result<(), ModelError> {
    let (mut any, mut said) = (false, Instant::now());
    while let Some(event) = events.next(limit).await? {
        any = true;
        if fold.event(&event)? {
            return Ok(());
        }
        if !is_ping(&event) {
            said = Instant::now();
        } else if said.elapsed() > limit.saturating_mul(KEPT_ALIVE) {
            return Err(timed_out(limit));
        }
    }
    if any {
        return Ok(());
    }
    Err(if events.read() == 0 { cut_off() } else { invalid("not a stream of events") })
}

/// Whether an event only says that the stream lives.
fn is_ping(event: &Event) -> bool {
    event.data.trim().is_empty()
        || event.data.contains(r#""type":"ping""#)
        || event.data.contains(r#""type": "ping""#)
}

/// Reads a provider's reply. For tests with replies that no provider sends.
///
/// # Errors
/// It is not what the wire promises.
#[doc(hidden)]
pub fn read_reply(kind: ProviderKind, request: &ModelRequest, body: &[u8]) -> Result<ModelReply, ModelError> {
    let (wire, reply) = (wire(kind), json::parse(body, "not JSON")?);
    let spent = wire.spent(&reply);
    wire.read(request, reply).map_err(|error| ModelError { spent, ..error })
}

/// Reads a provider's refusal. For tests with refusals that no provider sends.
#[doc(hidden)]
pub fn read_refusal(status: u16, headers: &HeaderMap, body: &[u8]) -> ModelError {
    Refusal::answer(status, headers, body, chrono::DateTime::UNIX_EPOCH).into_error()
}

/// Reads a provider's stream of events, in slices. For tests with streams that no provider sends.
///
/// # Errors
/// It is not what the wire promises.
#[doc(hidden)]
pub fn read_stream<'a>(
    kind: ProviderKind,
    request: &ModelRequest,
    slices: impl IntoIterator<Item = &'a [u8]>,
) -> Result<ModelReply, ModelError> {
    let (mut events, mut fold) = (Events::default(), wire(kind).fold());
    let follow = || {
        for slice in slices {
            for event in events.push(slice) {
                if fold.event(&event)? {
                    return Ok(());
                }
            }
        }
        events.finish().map_or(Ok(()), |event| fold.event(&event).map(drop))
    };
    let followed = follow();
    ended(fold, followed, request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(base_url: &str, key: &str) -> config::Provider {
        config::Provider {
            name: "p".into(),
            kind: ProviderKind::Openai,
            base_url: base_url.into(),
            api_key: Some(key.into()),
            headers: Vec::new(),
        }
    }

    fn providers(base_url: &str, key: &str) -> Result<Providers, ProviderError> {
        Providers::new([provider(base_url, key)], &Clock::system())
    }

    #[test]
    fn a_bad_base_url_or_key_is_named_by_its_place_in_the_configuration() {
        let error = providers("localhost:1/v1", "k").unwrap_err().to_string();
        assert!(error.starts_with("providers.p.base_url: `localhost:1/v1` is not"), "{error}");
        let error = providers("http://localhost/v1", "sk-a\nb").unwrap_err().to_string();
        assert!(error.starts_with("providers.p.api_key:") && !error.contains("sk-a"), "{error}");
    }

    #[test]
    fn s_047_no_key_stands_in_the_debug_form() {
        let providers = providers("http://localhost/v1", "sk-sentinel").unwrap();
        assert!(!format!("{providers:?}").contains("sk-sentinel"));
    }
}
