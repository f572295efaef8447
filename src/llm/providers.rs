//! The providers of a configuration, behind the one seam `engine::Model`.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use secrecy::{ExposeSecret, SecretString};

use super::failure::invalid;
use super::sse::Event;
use super::transport::{Answer, Endpoint, cut_off, timed_out};
use super::{anthropic, openai};
use crate::engine::model::{Model, ModelError, ModelErrorClass, ModelReply, ModelRequest};
use crate::sys::clock::Clock;

/// Longest wait for a connection. A host that cannot be reached is a network error, whatever the request's own limit.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Which wire a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderKind {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI chat completions, and any compatible server.
    OpenAi,
}

impl ProviderKind {
    /// All of them, in the order messages list them.
    pub const ALL: [Self; 2] = [Self::Anthropic, Self::OpenAi];

    /// The word of `providers.NAME.kind`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
        }
    }

    /// Reads that word.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Where the provider itself is reached (D51: without its own path for anthropic, with `/v1` for openai).
    pub fn default_base_url(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com",
            Self::OpenAi => "https://api.openai.com/v1",
        }
    }
}

/// One entry of `[providers]`, resolved.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// The wire.
    pub kind: ProviderKind,
    /// The part before the provider's own path (D51); `None` = the provider's own address.
    pub base_url: Option<String>,
    /// Sent as the wire wants it; `None` for servers that ask for none.
    pub api_key: Option<SecretString>,
    /// More headers; they win over agentd's own.
    pub headers: BTreeMap<String, SecretString>,
}

/// Why a provider cannot be used; a configuration error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// Not an `http` or `https` URL.
    #[error(
        "providers.{provider}.base_url: `{base_url}` is not an http or https URL; give one such as {example}"
    )]
    BaseUrl {
        /// Key under `[providers]`.
        provider: String,
        /// What was given, without user and password.
        base_url: String,
        /// One that would do.
        example: &'static str,
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
struct Provider {
    kind: ProviderKind,
    endpoint: Endpoint,
}

impl Providers {
    /// Takes the used entries of `[providers]` and a clock, which turns dates in `Retry-After` into waits.
    pub fn new(configs: BTreeMap<String, ProviderConfig>, clock: Clock) -> Result<Self, ProviderError> {
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            // A redirected POST would arrive without its body, and the key at a stranger's.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| ProviderError::Client(error.to_string()))?;
        let mut by_name = BTreeMap::new();
        for (name, config) in configs {
            let endpoint = Endpoint {
                base_url: base_url(&name, &config)?,
                headers: headers(&name, &config)?,
                secrets: config.api_key.into_iter().chain(config.headers.into_values()).collect(),
                provider: name.clone(),
                client: client.clone(),
                clock: clock.clone(),
            };
            by_name.insert(name, Provider { kind: config.kind, endpoint });
        }
        Ok(Self { by_name })
    }
}

fn base_url(provider: &str, config: &ProviderConfig) -> Result<String, ProviderError> {
    let given = config.base_url.as_deref().unwrap_or(config.kind.default_base_url()).trim();
    let parsed = reqwest::Url::parse(given).ok();
    if parsed.is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) {
        return Ok(given.trim_end_matches('/').to_owned());
    }
    Err(ProviderError::BaseUrl {
        provider: provider.to_owned(),
        base_url: given.rsplit('@').next().unwrap_or_default().to_owned(),
        example: config.kind.default_base_url(),
    })
}

fn headers(provider: &str, config: &ProviderConfig) -> Result<HeaderMap, ProviderError> {
    let refused = |key: &str| ProviderError::Header { provider: provider.to_owned(), key: key.to_owned() };
    let secret = |key: &str, text: &str| {
        let mut value = HeaderValue::from_str(text).map_err(|_| refused(key))?;
        value.set_sensitive(true);
        Ok(value)
    };
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("agentd/", env!("CARGO_PKG_VERSION"))));
    if config.kind == ProviderKind::Anthropic {
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    }
    if let Some(key) = &config.api_key {
        let key = key.expose_secret();
        match config.kind {
            ProviderKind::Anthropic => headers.insert("x-api-key", secret("api_key", key)?),
            ProviderKind::OpenAi => {
                headers.insert(AUTHORIZATION, secret("api_key", &format!("Bearer {key}"))?)
            }
        };
    }
    for (name, value) in &config.headers {
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
    fn path(&self) -> &'static str {
        match self.kind {
            ProviderKind::Anthropic => anthropic::path(&self.endpoint.base_url),
            ProviderKind::OpenAi => openai::PATH,
        }
    }

    fn body(&self, request: &ModelRequest) -> Result<Vec<u8>, serde_json::Error> {
        match self.kind {
            ProviderKind::Anthropic => anthropic::body(request),
            ProviderKind::OpenAi => openai::body(request, &self.endpoint.base_url),
        }
    }

    async fn exchange(&self, request: &ModelRequest, body: Vec<u8>) -> Result<ModelReply, ModelError> {
        let answer = self.endpoint.post(self.path(), body, request.stream, request.timeout).await?;
        let mut events = match answer {
            Answer::Body(body) => return self.read(request, &body),
            Answer::Stream(events) => events,
        };
        let mut fold = self.fold();
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

    fn read(&self, request: &ModelRequest, body: &[u8]) -> Result<ModelReply, ModelError> {
        match self.kind {
            ProviderKind::Anthropic => anthropic::read(request, body),
            ProviderKind::OpenAi => openai::read(request, body),
        }
    }

    fn fold(&self) -> Fold {
        match self.kind {
            ProviderKind::Anthropic => Fold::Anthropic(anthropic::Fold::default()),
            ProviderKind::OpenAi => Fold::OpenAi(openai::Fold::default()),
        }
    }
}

/// A reply in the making.
enum Fold {
    Anthropic(anthropic::Fold),
    OpenAi(openai::Fold),
}

impl Fold {
    fn event(&mut self, event: &Event) -> Result<bool, ModelError> {
        match self {
            Self::Anthropic(fold) => fold.event(event),
            Self::OpenAi(fold) => fold.event(event),
        }
    }

    fn finish(self, request: &ModelRequest) -> Result<ModelReply, ModelError> {
        match self {
            Self::Anthropic(fold) => fold.finish(request),
            Self::OpenAi(fold) => fold.finish(request),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::domain::message::Message;
    use crate::domain::target::Target;
    use crate::engine::model::ToolChoice;

    /// A request of one system and one user message.
    pub(in crate::llm) fn request() -> ModelRequest {
        ModelRequest {
            target: Target {
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
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            stream: false,
            timeout: Duration::from_secs(5),
        }
    }

    fn config(base_url: &str, key: &str) -> BTreeMap<String, ProviderConfig> {
        let config = ProviderConfig {
            kind: ProviderKind::OpenAi,
            base_url: Some(base_url.into()),
            api_key: Some(key.into()),
            headers: BTreeMap::new(),
        };
        [("p".to_owned(), config)].into()
    }

    #[test]
    fn a_bad_base_url_or_key_is_named_by_its_place_in_the_configuration() {
        let error = Providers::new(config("localhost:1/v1", "k"), Clock::system()).unwrap_err().to_string();
        assert!(error.starts_with("providers.p.base_url: `localhost:1/v1` is not"), "{error}");
        let error = Providers::new(config("http://localhost/v1", "sk-a\nb"), Clock::system())
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("providers.p.api_key:") && !error.contains("sk-a"), "{error}");
    }

    #[test]
    fn s_047_no_key_stands_in_the_debug_form() {
        let providers =
            Providers::new(config("http://localhost/v1", "sk-sentinel"), Clock::system()).unwrap();
        assert!(!format!("{providers:?}").contains("sk-sentinel"));
    }
}
