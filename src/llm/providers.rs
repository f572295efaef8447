//! The providers of a configuration, behind the port `engine::Model`.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use secrecy::ExposeSecret;

use super::failure::{Refusal, invalid};
use super::sse::{Event, Events};
use super::transport::{Answer, Endpoint, cut_off, timed_out};
use super::{anthropic, gemini, openai, openai_responses};
use crate::config::{self, ProviderKind};
use crate::engine::model::{Model, ModelError, ModelErrorClass, ModelReply, ModelRequest};
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
    if provider.kind == ProviderKind::Anthropic {
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    }
    if let Some(key) = &provider.api_key {
        let key = key.expose_secret();
        match provider.kind {
            ProviderKind::Anthropic => headers.insert("x-api-key", secret("api_key", key)?),
            ProviderKind::Gemini => headers.insert("x-goog-api-key", secret("api_key", key)?),
            ProviderKind::Openai | ProviderKind::OpenaiResponses => {
                headers.insert(AUTHORIZATION, secret("api_key", &format!("Bearer {key}"))?)
            }
        };
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
                return Err(ModelError {
                    class: ModelErrorClass::BadRequest,
                    message: format!("no provider `{name}`: add [providers.{name}]"),
                    status: None,
                });
            };
            let body = provider.body(request).map_err(|error| ModelError {
                class: ModelErrorClass::BadRequest,
                message: format!("the request cannot be written as JSON: {error}"),
                status: None,
            })?;
            let outcome = if request.stream {
                provider.exchange(request, body.clone()).await
            } else {
                let whole = provider.exchange(request, body.clone());
                match tokio::time::timeout(request.timeout, whole).await {
                    Ok(outcome) => outcome,
                    Err(_) => Err(timed_out(request.timeout)),
                }
            };
            outcome.map_err(|error| provider.endpoint.clean(error, &body))
        })
    }
}

impl Provider {
    fn path(&self, request: &ModelRequest) -> String {
        match self.kind {
            ProviderKind::Anthropic => anthropic::path(&self.endpoint.base_url).to_owned(),
            ProviderKind::Openai => openai::PATH.to_owned(),
            ProviderKind::OpenaiResponses => openai_responses::PATH.to_owned(),
            ProviderKind::Gemini => gemini::path(request, &self.endpoint.base_url),
        }
    }

    fn body(&self, request: &ModelRequest) -> Result<Vec<u8>, serde_json::Error> {
        match self.kind {
            ProviderKind::Anthropic => anthropic::body(request),
            ProviderKind::Openai => openai::body(request, &self.endpoint.base_url),
            ProviderKind::OpenaiResponses => openai_responses::body(request),
            ProviderKind::Gemini => gemini::body(request),
        }
    }

    async fn exchange(&self, request: &ModelRequest, body: Vec<u8>) -> Result<ModelReply, ModelError> {
        let answer = self.endpoint.post(&self.path(request), body, request.stream, request.timeout).await?;
        let mut events = match answer {
            Answer::Body(body) => return read_reply(self.kind, request, &body),
            Answer::Stream(events) => events,
        };
        let mut fold = Fold::of(self.kind);
        let mut any = false;
        while let Some(event) = events.next(request.timeout).await? {
            any = true;
            if fold.event(&event)? {
                return fold.finish(request);
            }
        }
        if !any {
            return Err(if events.read() == 0 { cut_off() } else { invalid("not a stream of events") });
        }
        fold.finish(request)
    }
}

/// A reply in the making.
enum Fold {
    Anthropic(anthropic::Fold),
    Openai(openai::Fold),
    OpenaiResponses(openai_responses::Fold),
    Gemini(gemini::Fold),
}

/// Reads a provider's reply. For tests with replies that no provider sends.
///
/// # Errors
/// It is not what the wire promises.
#[doc(hidden)]
pub fn read_reply(kind: ProviderKind, request: &ModelRequest, body: &[u8]) -> Result<ModelReply, ModelError> {
    match kind {
        ProviderKind::Anthropic => anthropic::read(request, body),
        ProviderKind::Openai => openai::read(request, body),
        ProviderKind::OpenaiResponses => openai_responses::read(request, body),
        ProviderKind::Gemini => gemini::read(request, body),
    }
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
    let (mut events, mut fold) = (Events::default(), Fold::of(kind));
    for slice in slices {
        for event in events.push(slice) {
            if fold.event(&event)? {
                return fold.finish(request);
            }
        }
    }
    if let Some(event) = events.finish() {
        fold.event(&event)?;
    }
    fold.finish(request)
}

impl Fold {
    fn of(kind: ProviderKind) -> Self {
        match kind {
            ProviderKind::Anthropic => Self::Anthropic(anthropic::Fold::default()),
            ProviderKind::Openai => Self::Openai(openai::Fold::default()),
            ProviderKind::OpenaiResponses => Self::OpenaiResponses(openai_responses::Fold::default()),
            ProviderKind::Gemini => Self::Gemini(gemini::Fold::default()),
        }
    }

    fn event(&mut self, event: &Event) -> Result<bool, ModelError> {
        match self {
            Self::Anthropic(fold) => fold.event(event),
            Self::Openai(fold) => fold.event(event),
            Self::OpenaiResponses(fold) => fold.event(event),
            Self::Gemini(fold) => fold.event(event),
        }
    }

    fn finish(self, request: &ModelRequest) -> Result<ModelReply, ModelError> {
        match self {
            Self::Anthropic(fold) => fold.finish(request),
            Self::Openai(fold) => fold.finish(request),
            Self::OpenaiResponses(fold) => fold.finish(request),
            Self::Gemini(fold) => fold.finish(request),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::domain::message::Message;
    use crate::domain::model_target::ModelTarget;
    use crate::engine::model::ToolChoice;

    /// A request of one system and one user message.
    pub(in crate::llm) fn request() -> ModelRequest {
        ModelRequest {
            target: ModelTarget {
                provider: "p".into(),
                model: "m".into(),
                context_window: 8000,
                context_window_buffer: 256,
                max_output_tokens: 1000,
                temperature: None,
                price: None,
            },
            messages: vec![
                Message::System { content: "rules".into() },
                Message::User { content: "task".into() },
            ],
            tools: Vec::new().into(),
            tool_choice: ToolChoice::Auto,
            stream: false,
            timeout: Duration::from_secs(5),
        }
    }

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
