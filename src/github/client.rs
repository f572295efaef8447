//! The client. Every request to GitHub goes through it, and so through one breaker, one back-off and one token.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::{ACCEPT, AUTHORIZATION, IF_NONE_MATCH, LOCATION};
use http::{HeaderName, HeaderValue, Method, Request};
use octocrab::Octocrab;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::auth::{Auth, GitToken, Minted};
use super::breaker::{Breaker, BreakerState};
use super::clipped_body::{self, BodyError};
use super::endpoint::Endpoint;
use super::error::{Error, ErrorKind};
use super::memory::Memory;
use super::pace::Pace;
use super::request::{Ask, Reply};
use crate::config::Credentials;
use crate::config::settings::Github;
use crate::domain::causes::with_causes;
use crate::domain::cluster::quota::QuotaLimit;
use crate::domain::host_paths::HostPaths;
use crate::sys::{shutdown, tls};

/// The API version that the shapes in `*_wire.rs` were read from.
const API_VERSION: &str = "2022-11-28";
/// Redirects followed for one request.
const REDIRECTS: u32 = 5;

/// What a client needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `github.api_url`.
    pub api_url: String,
    /// `github.graphql_url`, where set.
    pub graphql_url: Option<String>,
    /// Token or App.
    pub credentials: Credentials,
    /// Longest time for one answer.
    pub timeout: Duration,
    /// Longest time that one operation waits for a rate limit before it fails with `RateLimited`.
    pub patience: Duration,
    /// Requests repeated after a connection failure or 5xx: at most this many times.
    pub retries: u32,
    /// Pause before the first repetition; doubles each time.
    pub retry_delay: Duration,
    /// Requests in any minute, at most.
    pub requests_per_minute: u32,
}

impl Settings {
    /// What the configuration says, and the defaults for the rest.
    pub fn of(github: &Github, credentials: Credentials) -> Self {
        Self {
            graphql_url: Some(github.graphql_url.clone()),
            requests_per_minute: github.max_requests_per_minute,
            ..Self::new(&github.api_url, credentials)
        }
    }

    /// The defaults for a token or App on a GitHub.
    pub fn new(api_url: impl Into<String>, credentials: Credentials) -> Self {
        Self {
            api_url: api_url.into(),
            graphql_url: None,
            credentials,
            timeout: Duration::from_secs(30),
            patience: Duration::from_secs(60),
            retries: 3,
            retry_delay: Duration::from_millis(500),
            requests_per_minute: 300,
        }
    }
}

/// A GitHub. Clones share the connection, the token and the breaker. Dropping a call's future stops it, its waits included.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    patience: Duration,
    /// Whether others wait for each answer.
    pub(super) passing: bool,
}

struct Shared {
    crab: Octocrab,
    endpoint: Endpoint,
    auth: Auth,
    breaker: Breaker,
    timeout: Duration,
    retries: u32,
    retry_delay: Duration,
    pace: Pace,
    memory: Memory,
    /// Places of this machine that no text names.
    concealed: std::sync::Mutex<HostPaths>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.shared.endpoint).finish_non_exhaustive()
    }
}

fn no_tls(doing: &str, error: &dyn std::fmt::Display) -> Error {
    let problem =
        "the TLS client could not be set up; install the system's CA certificates (package ca-certificates)";
    Error::new(ErrorKind::Setup { problem: problem.to_owned() }, doing, error.to_string())
}

/// Begins a client that follows no redirect: where one leads is looked at first, so that a token goes to no other host.
fn follows_nothing(connect_timeout: Duration) -> reqwest::ClientBuilder {
    tls::http_client().redirect(reqwest::redirect::Policy::none()).connect_timeout(connect_timeout)
}

impl Client {
    /// Makes a client and sends no request. Call it inside a tokio runtime.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let endpoint = Endpoint::new(&settings.api_url, settings.graphql_url.as_deref())?;
        let auth = Auth::new(settings.credentials)?;
        let setup = |error: &dyn std::fmt::Display| no_tls("setting up the GitHub client", error);
        let http = follows_nothing(settings.timeout).build().map_err(|error| setup(&error))?;
        // Only the origin: requests carry whole URLs, because an Enterprise's GraphQL is not below its REST root.
        let crab = Octocrab::builder()
            .base_uri(endpoint.origin())
            .and_then(|builder| {
                builder
                    .add_header(HeaderName::from_static("x-github-api-version"), API_VERSION.to_owned())
                    .build_with_reqwest(http)
            })
            .map_err(|error| setup(&error))?;
        let shared = Shared {
            crab,
            endpoint,
            auth,
            breaker: Breaker::default(),
            timeout: settings.timeout,
            retries: settings.retries,
            retry_delay: settings.retry_delay,
            pace: Pace::new(settings.requests_per_minute),
            memory: Memory::default(),
            concealed: std::sync::Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared), patience: settings.patience, passing: false })
    }

    /// Takes paths of this machine. From now on every text that is written replaces them.
    pub fn conceal_paths(&self, paths: &HostPaths) {
        self.shared.concealed.lock().unwrap_or_else(PoisonError::into_inner).learn(paths);
    }

    /// A text as everybody may read it.
    pub(super) fn public(&self, text: &str) -> String {
        self.shared.concealed.lock().unwrap_or_else(PoisonError::into_inner).told(text).into_owned()
    }

    /// The same client whose operations wait at most `patience` for a rate limit.
    pub fn patient(&self, patience: Duration) -> Self {
        Self { shared: Arc::clone(&self.shared), patience, passing: self.passing }
    }

    /// Where it asks.
    pub fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoint
    }

    /// Budgets, limits that hold, and what was asked so far.
    pub fn limits(&self) -> BreakerState {
        self.shared.breaker.snapshot(Instant::now())
    }

    /// Changes each time that this client meets a limit.
    pub fn limits_met(&self) -> watch::Receiver<u64> {
        self.shared.breaker.met()
    }

    /// The limits that this client met and that hold now.
    pub fn own_limits(&self) -> Vec<QuotaLimit> {
        self.shared.breaker.own(Instant::now())
    }

    /// Waits for limits that others met with the same credential as for its own.
    pub fn hold_back(&self, limits: &[QuotaLimit]) {
        self.shared.breaker.hold_back(limits, Instant::now());
    }

    /// Stands for the credential that GitHub counts requests of: a hash of the token, or the App's installation.
    pub fn credential_id(&self) -> String {
        self.shared.auth.credential_id(self.shared.endpoint.origin())
    }

    /// What GitHub's clock says now, in whole seconds and a bit; `None` = no answer has said it yet.
    pub fn now(&self) -> Option<DateTime<Utc>> {
        self.shared.breaker.clock(Instant::now())
    }

    /// What git needs for a remote on this GitHub (D28); with an App, a token that lives for some minutes at least.
    pub async fn git_token(&self) -> Result<GitToken, Error> {
        Ok(GitToken { user: "x-access-token", token: self.token().await? })
    }

    pub(super) fn app_id(&self) -> Option<u64> {
        self.shared.auth.app_id()
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.shared.memory
    }

    pub(super) fn retry_delay(&self) -> Duration {
        self.shared.retry_delay
    }

    pub(super) fn timeout(&self) -> Duration {
        self.shared.timeout
    }

    /// A client for links to other hosts: it has no token that it could send, and follows nothing.
    pub(super) fn without_token(&self, doing: &str) -> Result<reqwest::Client, Error> {
        follows_nothing(self.timeout())
            .user_agent("agentd")
            .read_timeout(self.timeout())
            .build()
            .map_err(|error| no_tls(doing, &error))
    }

    /// Whether an absolute URL is on the API's own host.
    pub(super) fn is_own(&self, url: &str) -> bool {
        self.shared.endpoint.is_own(url)
    }

    pub(super) fn url(&self, path: &str) -> String {
        self.shared.endpoint.rest(path)
    }

    async fn token(&self) -> Result<SecretString, Error> {
        self.shared.auth.token(|| self.mint()).await
    }

    /// Boxed, because minting is itself a request.
    fn mint(&self) -> BoxFuture<'_, Result<Minted, Error>> {
        async {
            let doing = "minting a token for the GitHub App's installation";
            let path = self.shared.auth.mint_path().unwrap_or_default();
            let body = Some(serde_json::json!({}));
            // An unused token expires by itself, so minting may be repeated.
            let ask =
                Ask::write(Method::POST, self.url(&path), body, doing, "the App's installation").repeatable();
            let reply = self.send_as_app(ask).await?;
            Minted::read(&reply.body, &reply.headers).map_err(|error| Error::malformed(doing, error))
        }
        .boxed()
    }

    /// Sends a request that the App itself makes, with its JWT.
    pub(super) async fn send_as_app(&self, ask: Ask) -> Result<Reply, Error> {
        let jwt =
            self.shared.auth.app_jwt().ok_or_else(|| Error::malformed(&ask.doing, "not a GitHub App"))??;
        self.run(ask, Some(jwt)).await
    }

    /// How many requests a minute may be sent with the credential, by all who share it.
    pub fn requests_per_minute(&self) -> u32 {
        self.shared.pace.in_a_minute()
    }

    /// Whether so few requests went in the last minute that what nobody waits for may go, too.
    pub fn has_room(&self) -> bool {
        self.shared.pace.has_room(Instant::now())
    }

    /// So many processes share the credential's requests a minute from now on, this one among them. For all clones.
    pub fn share_pace(&self, among: usize) {
        self.shared.pace.share(u32::try_from(among).unwrap_or(u32::MAX));
    }

    /// Sends a request. It waits for limits as long as allowed, repeats what may be repeated, follows redirects on the
    /// same host, and renews an App's token once. Everything but success and 304 is an error.
    pub(super) async fn send(&self, ask: Ask) -> Result<Reply, Error> {
        self.run(ask, None).await
    }

    async fn run(&self, mut ask: Ask, app: Option<SecretString>) -> Result<Reply, Error> {
        let give_up = Instant::now() + self.patience;
        let (mut failures, mut redirects, mut renewed) = (0, 0, false);
        loop {
            self.wait_for_limits(&ask, give_up).await?;
            self.refuse_silent(&ask)?;
            tokio::time::sleep(self.shared.pace.turn(Instant::now())).await;
            let token = match &app {
                Some(jwt) => jwt.clone(),
                None => self.token().await?,
            };
            let began = Instant::now();
            let outcome = self.once(&ask, &token).await;
            let reply = match outcome {
                Ok(reply) => {
                    let status = reply.status.as_u16();
                    let words = if status == 403 || status == 429 {
                        reply.message()
                    } else {
                        graphql_limit(&ask, &reply)
                    };
                    if self.shared.breaker.note(ask.resource, status, &reply.headers, &words, Instant::now())
                    {
                        tracing::warn!(doing = %ask.doing, status, "GitHub's rate limit refuses a request");
                        continue;
                    }
                    if status == 401 && app.is_none() && !renewed && self.shared.auth.forget(&token).await {
                        renewed = true;
                        continue;
                    }
                    if ask.unfollowed && reply.status.is_redirection() {
                        return Ok(reply);
                    }
                    if let Some(url) = self.redirect(&ask, &reply)? {
                        redirects += 1;
                        if redirects > REDIRECTS {
                            return Err(Error::malformed(&ask.doing, "too many redirects"));
                        }
                        ask.url = url;
                        continue;
                    }
                    let reply = reply.check(ask.needs);
                    if ask.is_read() { reply.and_then(Reply::of_read) } else { reply }
                }
                Err(error) => Err(error),
            };
            match reply {
                Err(error)
                    if error.is_transient()
                        && !self.note_silence(&ask, began)
                        && ask.repeatable
                        && failures < self.shared.retries
                        && !(error.kind == ErrorKind::Unreachable && shutdown::is_told_to_end()) =>
                {
                    let pause = self.shared.retry_delay.saturating_mul(1 << failures.min(10));
                    tracing::debug!(doing = %ask.doing, detail = error.technical(), "repeating a request to GitHub");
                    failures += 1;
                    tokio::time::sleep(pause).await;
                }
                other => return other.map_err(|error| self.scrub(error, &token)),
            }
        }
    }

    async fn wait_for_limits(&self, ask: &Ask, give_up: Instant) -> Result<(), Error> {
        while let Some(pause) = self.shared.breaker.pause(ask.resource, Instant::now()) {
            if Instant::now() + pause.wait > give_up {
                let kind = ErrorKind::RateLimited { until: pause.until, wait: pause.wait };
                return Err(Error::new(kind, &ask.doing, "held back by the breaker"));
            }
            tokio::time::sleep(pause.wait).await;
        }
        Ok(())
    }

    async fn once(&self, ask: &Ask, token: &SecretString) -> Result<Reply, Error> {
        let doing = &ask.doing;
        let broken = |error: &dyn std::fmt::Display| Error::malformed(doing, error);
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))
            .map_err(|error| broken(&error))?;
        bearer.set_sensitive(true);
        let mut builder = Request::builder()
            .method(ask.method.clone())
            .uri(&ask.url)
            .header(AUTHORIZATION, bearer)
            .header(ACCEPT, ask.accept.unwrap_or("application/vnd.github+json"));
        if let Some(etag) = &ask.etag {
            builder = builder.header(IF_NONE_MATCH, etag);
        }
        let crab = &self.shared.crab;
        let request = crab.build_request(builder, ask.body.as_ref()).map_err(|error| broken(&error))?;
        let unreachable = |detail: String| Error::new(ErrorKind::Unreachable, doing, detail);
        let exchange = async {
            let response = crab.send(request).await.map_err(|error| unreachable(first_line(&error)))?;
            let (status, headers) = (response.status(), response.headers().clone());
            let body = clipped_body::read(response.into_body()).await.map_err(|error| match error {
                BodyError::NotUtf8 => broken(&"the body is not UTF-8"),
                BodyError::Broken(error) => unreachable(first_line(&error)),
            })?;
            Ok(Reply { status, headers, body, doing: doing.clone() })
        };
        let limited = tokio::time::timeout(self.answer_time(), exchange);
        tokio::select! {
            biased;
            done = limited => done.unwrap_or_else(|_| {
                Err(unreachable(format!("no answer within {} s", self.answer_time().as_secs_f32())))
            }),
            // What is written may have been written: it is looked for before it is written again.
            () = shutdown::out_of_time() => Err(unreachable("no answer before this process has to end".to_owned())),
        }
    }

    /// Where a redirect leads, if it is one that may be followed: on the same host, keeping the method.
    fn redirect(&self, ask: &Ask, reply: &Reply) -> Result<Option<String>, Error> {
        let follow = match reply.status.as_u16() {
            301 | 302 => ask.is_read(),
            307 | 308 => true,
            _ => false,
        };
        if !follow {
            return Ok(None);
        }
        let location = reply.header(LOCATION.as_str()).unwrap_or_default();
        let url = if location.starts_with('/') {
            format!("{}{location}", self.shared.endpoint.origin())
        } else {
            location.to_owned()
        };
        if self.is_own(&url) {
            Ok(Some(url))
        } else {
            Err(Error::malformed(&ask.doing, "redirected to another host"))
        }
    }

    /// Takes the token out of a technical text, should some proxy have echoed it.
    fn scrub(&self, error: Error, token: &SecretString) -> Error {
        let secret = token.expose_secret();
        if error.technical().contains(secret) {
            let clean = error.technical().replace(secret, "[token]");
            return Error::new(error.kind, error.doing, clean);
        }
        error
    }

    /// A GET whose body is JSON of our own shape.
    pub(super) async fn get<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        doing: &str,
        needs: &'static str,
    ) -> Result<T, Error> {
        self.send(Ask::get(self.url(path), doing, needs)).await?.json()
    }

    /// Every page of a list, in order; a page that fails fails the whole (S24).
    pub(super) async fn pages<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        doing: &str,
        needs: &'static str,
    ) -> Result<Vec<T>, Error> {
        let mut items = Vec::new();
        let mut url = self.url(path);
        loop {
            let reply = self.send(Ask::get(url.clone(), doing, needs)).await?;
            items.extend(reply.json::<Vec<T>>()?);
            match self.next_page(&reply, &url)? {
                Some(next) => url = next,
                None => return Ok(items),
            }
        }
    }

    /// The URL of the page after `url`; one that leads off the host or back to itself is an error.
    pub(super) fn next_page(&self, reply: &Reply, url: &str) -> Result<Option<String>, Error> {
        match reply.next() {
            Some(next) if !self.is_own(&next) => {
                Err(Error::malformed(&reply.doing, "the next page is on another host"))
            }
            Some(next) if next == url => {
                Err(Error::malformed(&reply.doing, "a page names itself as the next"))
            }
            other => Ok(other),
        }
    }

    /// A write with a JSON body.
    pub(super) async fn write(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        doing: &str,
        needs: &'static str,
    ) -> Result<Reply, Error> {
        self.send(Ask::write(method, self.url(path), body, doing, needs)).await
    }
}

/// GraphQL says with status 200 that a limit is used up.
fn graphql_limit(ask: &Ask, reply: &Reply) -> String {
    if ask.resource != "graphql" || !reply.body.contains("RATE_LIMIT") {
        return String::new();
    }
    let errors = serde_json::from_str::<Value>(&reply.body).unwrap_or_default();
    let limited = |error: &Value| {
        error["type"].as_str().is_some_and(|kind| kind == "RATE_LIMITED" || kind == "RATE_LIMIT")
    };
    let hit = errors["errors"].as_array().is_some_and(|errors| errors.iter().any(limited));
    if hit { "rate limit".to_owned() } else { String::new() }
}

/// Some of octocrab's errors print a backtrace.
fn first_line(error: &dyn std::error::Error) -> String {
    with_causes(error).lines().next().unwrap_or_default().to_owned()
}
