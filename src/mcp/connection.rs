//! The life of one MCP server: started, called, started again when it ended, and ended with everything that it left
//! running.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::ClientHandler;
use rmcp::model::{CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation};
use rmcp::service::{
    ClientInitializeError, NotificationContext, Peer, RoleClient, RunningService, serve_client,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::answer;
use super::error::Phase;
use super::listing::{self, Listing};
use super::odd_lines::OddLines;
use super::odd_results::Readable;
use super::server_config::{ServerTransport, loads_a_module};
use super::stdio::Stdio;
use crate::domain::causes::with_causes;
use crate::engine::tool::{ToolError, ToolOutput};
use crate::sys::paths::AbsPath;
use crate::sys::process::{ChildGuard, ProcessSpec, spawn_piped};
use crate::sys::tls;

/// Waits before the k-th start in a row without a call that was answered (C-14); the last one stays.
const BACKOFF: [u64; 7] = [0, 1, 2, 5, 10, 30, 60];
/// How long a server has to end after its input was closed.
const GOODBYE: Duration = Duration::from_secs(2);
/// How long a server that failed to start has to end by itself and say why.
const LAST_MOMENT: Duration = Duration::from_millis(500);
/// How long a server has to list its tools again: a turn waits for it.
const LIST_AGAIN: Duration = Duration::from_secs(10);
/// How much of what a server last wrote to its error stream is kept for messages, in bytes.
const LAST_WORDS: usize = 2048;

/// One server, whether it runs just now or not.
#[derive(Debug)]
pub(super) struct Connection {
    name: String,
    transport: ServerTransport,
    cwd: AbsPath,
    /// What every child gets beside the declared variables.
    host_env: Vec<(OsString, OsString)>,
    start_timeout: Duration,
    state: Mutex<State>,
    /// The server said that its tools changed, and was not asked for them since.
    changed: Arc<AtomicBool>,
    /// Why a call did not find the server, which had ended and could not be started again; nobody was told yet.
    lost: StdMutex<Option<String>>,
    /// The same as of its last call, whoever was told.
    gone: StdMutex<Option<String>>,
}

#[derive(Debug, Default)]
struct State {
    live: Option<Live>,
    /// Starts since a call was last answered.
    starts: usize,
    last_start: Option<Instant>,
    closed: bool,
}

/// A server that was reached.
#[derive(Debug)]
struct Live {
    service: RunningService<RoleClient, Client>,
    child: Option<ChildGuard>,
}

/// What went wrong in a start, and how far it had come.
#[derive(Debug, Clone)]
pub(super) struct StartFailed {
    pub phase: Phase,
    pub message: String,
    /// The connection broke, rather than that something was said or nothing.
    pub went_away: bool,
}

impl Connection {
    pub(super) fn new(
        name: &str,
        transport: ServerTransport,
        cwd: &AbsPath,
        host_env: Vec<(OsString, OsString)>,
        start_timeout: Duration,
    ) -> Self {
        let state = Mutex::new(State::default());
        let (name, cwd, changed) = (name.to_owned(), cwd.clone(), Arc::default());
        Self {
            name,
            transport,
            cwd,
            host_env,
            start_timeout,
            state,
            changed,
            lost: Default::default(),
            gone: Default::default(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Starts the server and asks for all its tools.
    pub(super) async fn start(&self) -> Result<Listing, StartFailed> {
        let peer = self.peer().await?;
        let failed = |message: String| self.failed(Phase::ListTools, &message);
        match timeout(self.start_timeout, listing::list(&peer)).await {
            Ok(Ok(listing)) => {
                self.state.lock().await.starts = 0;
                Ok(listing)
            }
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed(too_slow(self.start_timeout))),
        }
    }

    /// Whether the server said that its tools changed.
    pub(super) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }

    /// Why a call since the last question did not find the server.
    pub(super) fn take_lost(&self) -> Option<String> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Why its last call did not find the server; `None` = it did.
    pub(super) fn gone(&self) -> Option<String> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks for all tools anew, where the server said that they changed and runs; what it says meanwhile counts again.
    pub(super) async fn list_again(&self) -> Option<Result<Listing, StartFailed>> {
        let peer = {
            let state = self.state.lock().await;
            let live = state.live.as_ref().filter(|live| !live.service.is_transport_closed())?;
            live.service.peer().clone()
        };
        if !self.changed.swap(false, Ordering::Relaxed) {
            return None;
        }
        let limit = self.start_timeout.min(LIST_AGAIN);
        Some(match timeout(limit, listing::list(&peer)).await {
            Ok(listed) => listed.map_err(|error| self.failed(Phase::ListTools, &error.to_string())),
            Err(_) => Err(self.failed(Phase::ListTools, &too_slow(limit))),
        })
    }

    /// Calls a tool once. A call is never repeated (C-14), except when the server answers that it does not know the
    /// session, and so did nothing. A server that ended is started again first, after its back-off. All of it happens
    /// within `limit`. Dropping the future cancels the call at the server.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: &Value,
        limit: Duration,
    ) -> Result<ToolOutput, ToolError> {
        let mut params = CallToolRequestParams::new(tool.to_owned());
        if let Value::Object(arguments) = arguments {
            params = params.with_arguments(arguments.clone());
        }
        let asked = async {
            let peer = self.peer().await.map_err(|failed| {
                let why = format!("{}: {}", failed.phase, failed.message);
                for told in [&self.lost, &self.gone] {
                    *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.clone());
                }
                ToolError::for_model(format!(
                    "the MCP server {} is not available: {}",
                    self.name, failed.message
                ))
            })?;
            *self.gone.lock().unwrap_or_else(PoisonError::into_inner) = None;
            let answer = peer.call_tool_once(params).await;
            if !peer.is_transport_closed() {
                self.state.lock().await.starts = 0;
            }
            answer::read(&self.name, answer)
        };
        timeout(limit, asked).await.unwrap_or(Err(ToolError::Timeout))
    }

    /// Ends the server: closes its input, waits a little, then ends its process tree. No call starts it again.
    pub(super) async fn close(&self) {
        let live = {
            let mut state = self.state.lock().await;
            state.closed = true;
            state.live.take()
        };
        if let Some(live) = live {
            live.end().await;
        }
    }

    async fn peer(&self) -> Result<Peer<RoleClient>, StartFailed> {
        let mut state = self.state.lock().await;
        if let Some(live) = state.live.as_ref().filter(|live| !live.service.is_transport_closed()) {
            return Ok(live.service.peer().clone());
        }
        if state.closed {
            return Err(self.failed(Phase::Start, "the session is over"));
        }
        if let Some(gone) = state.live.take() {
            gone.end().await;
        }
        let wait = BACKOFF[state.starts.min(BACKOFF.len() - 1)];
        if let Some(last) = state.last_start {
            sleep_until(last + Duration::from_secs(wait)).await;
        }
        state.starts += 1;
        state.last_start = Some(Instant::now());
        let live = self.connect().await?;
        let peer = live.service.peer().clone();
        state.live = Some(live);
        Ok(peer)
    }

    async fn connect(&self) -> Result<Live, StartFailed> {
        match &self.transport {
            ServerTransport::Stdio { command, args, env } => self.spawn(command, args, env).await,
            ServerTransport::Http { url, headers } => {
                let transport = self.http(url, headers)?;
                let service = self.initialize(serve_client(self.client(), Readable(transport))).await?;
                Ok(Live { service, child: None })
            }
        }
    }

    async fn spawn(
        &self,
        command: &str,
        args: &[String],
        env: &BTreeMap<String, SecretString>,
    ) -> Result<Live, StartFailed> {
        let spec = ProcessSpec::new(command, &self.cwd)
            .args(args)
            .envs(self.host_env.iter().map(|(name, value)| (name, value)))
            // The worktree has files of agents, which must not stand in for the server's modules.
            .envs(loads_a_module(command, args).then_some(("PYTHONSAFEPATH", "1")))
            .envs(env.iter().map(|(name, value)| (name, value.expose_secret())));
        let child = spawn_piped(spec).await.map_err(|error| self.failed(Phase::Start, &error.to_string()))?;
        let last_words = LastWords::of(child.stderr);
        let odd = Arc::new(OddLines::of(&self.name, self.transport.clone()));
        let transport = Stdio::new(child.stdout, child.stdin, Arc::clone(&self.changed), Arc::clone(&odd));
        match self.initialize(serve_client(self.client(), Readable(transport))).await {
            Ok(service) => Ok(Live { service, child: Some(child.guard) }),
            Err(mut failed) => {
                let mut guard = child.guard;
                if failed.went_away
                    && let Ok(Some(status)) = timeout(LAST_MOMENT, guard.wait()).await
                {
                    failed.message = format!("it ended with {status}");
                }
                let words = last_words.get().await;
                if !words.is_empty() {
                    failed.message = format!("{}; it said: {}", failed.message, self.transport.clean(&words));
                }
                if let Some(line) = odd.first() {
                    failed.message =
                        format!("{}; it wrote a line that is no message: {line}", failed.message);
                }
                Err(failed)
            }
        }
    }

    fn http(
        &self,
        url: &str,
        headers: &BTreeMap<String, SecretString>,
    ) -> Result<StreamableHttpClientTransport<reqwest::Client>, StartFailed> {
        let failed = |message: String| self.failed(Phase::Start, &message);
        let mut custom = std::collections::HashMap::new();
        for (name, value) in headers {
            let unfit = |_| failed(format!("headers.{name}: not allowed in an HTTP header"));
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unfit(()))?;
            let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| unfit(()))?;
            value.set_sensitive(true);
            custom.insert(header, value);
        }
        let client = tls::http_client()
            .connect_timeout(self.start_timeout)
            .redirect(reqwest::redirect::Policy::none())
            // A reused connection costs some 40 ms for each call if the last answer was not read to its end.
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let config = StreamableHttpClientTransportConfig::with_uri(url)
            .custom_headers(custom)
            // A server that does not know the session has not looked at the request. A new session is begun, and the
            // request is sent once more.
            .reinit_on_expired_session(true);
        Ok(StreamableHttpClientTransport::with_client(client, config))
    }

    async fn initialize<S>(
        &self,
        handshake: impl Future<Output = Result<S, ClientInitializeError>>,
    ) -> Result<S, StartFailed> {
        match timeout(self.start_timeout, handshake).await {
            Ok(Ok(service)) => Ok(service),
            Ok(Err(error)) => {
                let went_away = matches!(
                    error,
                    ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. }
                );
                Err(StartFailed { went_away, ..self.failed(Phase::Initialize, &told(&error)) })
            }
            Err(_) => Err(self.failed(Phase::Initialize, &too_slow(self.start_timeout))),
        }
    }

    fn failed(&self, phase: Phase, message: &str) -> StartFailed {
        StartFailed { phase, message: self.transport.clean(message), went_away: false }
    }

    fn client(&self) -> Client {
        Client { changed: Arc::clone(&self.changed) }
    }
}

impl Live {
    async fn end(mut self) {
        // Closing the connection closes a child's input, which asks it to end.
        drop(self.service.close_with_timeout(GOODBYE).await);
        if let Some(mut child) = self.child
            && timeout(GOODBYE, child.wait()).await.is_err()
        {
            child.stop().await;
        }
    }
}

/// An error with its causes, without the library's type names.
fn told(error: &ClientInitializeError) -> String {
    let ClientInitializeError::TransportError { error, .. } = error else { return error.to_string() };
    let error = error.error.as_ref();
    match error.downcast_ref() {
        // It does not say itself what it came from.
        Some(StreamableHttpError::<reqwest::Error>::Client(error)) => with_causes(error),
        _ => with_causes(error),
    }
}

fn too_slow(limit: Duration) -> String {
    format!("no answer within {} s", limit.as_secs_f64())
}

/// What agentd is to a server: it answers nothing, and listens for one thing.
#[derive(Debug)]
struct Client {
    changed: Arc<AtomicBool>,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let agentd = Implementation::new("agentd", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), agentd)
    }

    fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) -> impl Future<Output = ()> + Send {
        self.changed.store(true, Ordering::Relaxed);
        std::future::ready(())
    }
}

/// The end of what a child writes to its error stream, which has to be read so that the child does not stand still.
struct LastWords {
    kept: Arc<StdMutex<Vec<u8>>>,
    reading: JoinHandle<()>,
}

impl LastWords {
    fn of(mut stderr: ChildStderr) -> Self {
        let kept = Arc::<StdMutex<Vec<u8>>>::default();
        let ours = kept.clone();
        let reading = tokio::spawn(async move {
            let mut buffer = [0; 1024];
            while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
                let mut kept = ours.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&buffer[..read]);
                let surplus = kept.len().saturating_sub(LAST_WORDS);
                kept.drain(..surplus);
            }
        });
        Self { kept, reading }
    }

    /// What there is, after a last moment for what is still under way.
    async fn get(self) -> String {
        drop(timeout(LAST_MOMENT, self.reading).await);
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).trim().to_owned()
    }
}
