//! The simulator: a GitHub, a git remote and a scripted model on loopback.
//!
//! One state ([`world::World`]) behind one lock, one HTTP server over it. `rest` and `graphql` are the GitHub, `remote`
//! is the git remote over the bare repositories of `bare`, `model` is the scripted model, `elsewhere` the second origin with logs and
//! images, `hooks` the webhooks, and `admin` (`/_sim`) lets a
//! person or a test look at everything and change it. What a caller does that the real services would not understand is
//! kept as a violation.

mod admin;
pub mod bare;
mod branches;
pub mod call;
mod check;
mod check_file;
mod connection;
mod conversation;
mod elsewhere;
pub mod fault;
mod graphql;
mod hooks;
mod logged_body;
pub mod model;
mod remark;
mod remote;
mod resource;
pub mod rest;
pub mod scenario_file;
mod seed;
mod server;
mod shared;
mod signed_link;
pub mod world;

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard};

use axum::Router;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use connection::{Cut, Switchboard};
use shared::Shared;

use crate::sys::clock::Clock;

pub use scenario_file::{
    AnnotationFile, CheckFile, CheckKindFile, FaultFile, FieldFile, HookFile, IssueFile, JobFile, ReplyFile,
    RepositoryFile, Scenario,
};
pub use world::World;

/// Where and how a simulator runs.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// Address to listen on; port 0 = any free port.
    pub addr: SocketAddr,
    /// Where bare repositories lie (`git/OWNER/NAME.git`): an absolute path to a directory without earlier ones; `None` = a temporary directory that goes with the simulator.
    pub work_dir: Option<PathBuf>,
    /// The time shown to callers.
    pub clock: Clock,
    /// `PATH` that git is looked up in.
    pub path: OsString,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            work_dir: None,
            clock: Clock::system(),
            path: "/usr/local/bin:/usr/bin:/bin".into(),
        }
    }
}

/// Why a simulator cannot start or a scenario cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A file cannot be read.
    #[error("{path}: cannot be read: {source}", path = path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A scenario is not one.
    #[error("{path}:{line}: {message}", path = path.display())]
    Parse {
        /// Which file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A scenario says something that makes no sense.
    #[error("scenario, {place}: {message}")]
    Scenario {
        /// Which part.
        place: String,
        /// What is wrong.
        message: String,
    },
    /// A repository cannot be made.
    #[error("repository {repository}: {source}")]
    Git {
        /// Which repository.
        repository: String,
        /// Why.
        source: git2::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {source}; choose another address, or port 0 for any free port")]
    Listen {
        /// Which address.
        addr: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The work directory cannot be used.
    #[error("work directory: {0}")]
    WorkDir(std::io::Error),
    /// The task that made the world ended early.
    #[error("the simulator could not be set up: {0}")]
    Setup(String),
}

impl SimError {
    pub(crate) fn wrong(place: &str, message: impl Into<String>) -> Self {
        Self::Scenario { place: place.to_owned(), message: message.into() }
    }
}

/// A running simulator. It ends with [`Simulator::shutdown`] or when it is dropped.
#[derive(Debug)]
pub struct Simulator {
    shared: Arc<Shared>,
    addr: SocketAddr,
    closing: CancellationToken,
    server: Option<JoinHandle<()>>,
    /// Removed with the simulator, when nobody named a directory.
    _temporary: Option<tempfile::TempDir>,
}

impl Simulator {
    /// Makes the scenario's world and serves it.
    pub async fn start(scenario: Scenario, options: SimOptions) -> Result<Self, SimError> {
        let listener = TcpListener::bind(options.addr)
            .await
            .map_err(|source| SimError::Listen { addr: options.addr, source })?;
        let addr = listener.local_addr().map_err(|source| SimError::Listen { addr: options.addr, source })?;
        let (temporary, work_dir) = match options.work_dir {
            Some(directory) if directory.is_absolute() => (None, directory),
            Some(directory) => {
                let message = format!("`{}` is not an absolute path", directory.display());
                return Err(SimError::WorkDir(std::io::Error::other(message)));
            }
            None => {
                let temporary =
                    tempfile::Builder::new().prefix("agentd-sim-").tempdir().map_err(SimError::WorkDir)?;
                let path = temporary.path().to_owned();
                (Some(temporary), path)
            }
        };
        let elsewhere_listener = TcpListener::bind(SocketAddr::from((options.addr.ip(), 0)))
            .await
            .map_err(|source| SimError::Listen { addr: options.addr, source })?;
        let second = elsewhere_listener
            .local_addr()
            .map_err(|source| SimError::Listen { addr: options.addr, source })?;
        let base = format!("http://{addr}");
        let world = tokio::task::spawn_blocking(move || {
            let mut world = World::new(base, options.clock);
            world.second = format!("http://{second}");
            std::fs::create_dir_all(&work_dir).map_err(SimError::WorkDir)?;
            seed::fill(&mut world, &scenario, &work_dir)?;
            Ok::<_, SimError>((world, work_dir))
        })
        .await
        .map_err(|error| SimError::Setup(error.to_string()))?;
        let (world, work_dir) = world?;
        let shared = Arc::new(Shared::new(world, work_dir, options.path));
        let closing = CancellationToken::new();
        let first = Router::new().fallback(server::handle).with_state(Arc::clone(&shared));
        let other = Router::new().fallback(elsewhere::handle).with_state(Arc::clone(&shared));
        let serve = |listener: TcpListener, router: Router| {
            axum::serve(
                Switchboard::new(listener, closing.clone()),
                router.into_make_service_with_connect_info::<Cut>(),
            )
            .with_graceful_shutdown(closing.clone().cancelled_owned())
        };
        let (first, other) = (serve(listener, first), serve(elsewhere_listener, other));
        let ringing = closing.clone().run_until_cancelled_owned(hooks::ring(Arc::clone(&shared)));
        let server = tokio::spawn(async move {
            // Serving ends only by the token; single connections fail on their own.
            let _ = tokio::join!(first, other, ringing);
        });
        Ok(Self { shared, addr, closing, server: Some(server), _temporary: temporary })
    }

    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://127.0.0.1:PORT`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// For `github.api_url`.
    pub fn api_url(&self) -> String {
        self.base_url()
    }

    /// For `github.graphql_url`.
    pub fn graphql_url(&self) -> String {
        format!("{}/graphql", self.base_url())
    }

    /// The git remote of a repository. It wants a token: user `x-access-token`, password the token.
    pub fn remote_url(&self, owner: &str, name: &str) -> String {
        format!("{}/git/{owner}/{name}.git", self.base_url())
    }

    /// For `providers.X.base_url` with `kind = "anthropic"`.
    pub fn model_url_anthropic(&self) -> String {
        format!("{}/model/anthropic", self.base_url())
    }

    /// For `providers.X.base_url` with `kind = "openai"`.
    pub fn model_url_openai(&self) -> String {
        format!("{}/model/openai/v1", self.base_url())
    }

    /// `base_url` of a provider of kind `openai-responses`.
    pub fn model_url_responses(&self) -> String {
        format!("{}/model/openai-responses/v1", self.base_url())
    }

    /// `base_url` of a provider of kind `gemini`.
    pub fn model_url_gemini(&self) -> String {
        format!("{}/model/gemini", self.base_url())
    }

    /// The whole state under its lock, to read or to change. Not to be held across an `await`.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.shared.world()
    }

    /// The state as `GET /_sim/state` shows it.
    pub fn state(&self) -> Value {
        admin::state(&mut self.shared.world())
    }

    /// What callers did that the real services would not understand, in order. Unused replies are apart: see
    /// [`Simulator::unused_replies`].
    pub fn violations(&self) -> Vec<String> {
        self.shared.world().violations.clone()
    }

    /// Scripted replies nobody asked for.
    pub fn unused_replies(&self) -> Vec<String> {
        self.shared.world().script.unused()
    }

    /// An issue or pull request as it is now; `None` when there is none.
    pub fn issue(&self, repository: &str, number: u64) -> Option<world::Issue> {
        self.shared.world().repository(repository)?.issues.get(&number).cloned()
    }

    /// The pull requests of a repository, with their branches read again.
    pub fn pulls(&self, repository: &str) -> Vec<world::Issue> {
        let mut world = self.shared.world();
        let Some(index) = index(&world, repository) else { return Vec::new() };
        rest::pulls::refresh(&mut world, index);
        world.repositories[index].issues.values().filter(|issue| issue.pull.is_some()).cloned().collect()
    }

    /// The bare repository behind the remote.
    pub fn git_dir(&self, repository: &str) -> Option<PathBuf> {
        Some(self.shared.world().repository(repository)?.git_dir.clone())
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<Arc<world::Request>> {
        self.shared.world().requests.clone()
    }

    /// Every request to the model so far.
    pub fn model_requests(&self) -> Vec<Arc<world::ModelRequest>> {
        self.shared.world().model_requests.clone()
    }

    /// Puts a label on an issue as `actor`; false = it was there, or there is no such issue.
    pub fn add_label(&self, repository: &str, number: u64, label: &str, actor: &str) -> bool {
        self.label(repository, number, label, actor, true)
    }

    /// Takes a label off as `actor`; false = it was not there.
    pub fn remove_label(&self, repository: &str, number: u64, label: &str, actor: &str) -> bool {
        self.label(repository, number, label, actor, false)
    }

    fn label(&self, repository: &str, number: u64, label: &str, actor: &str, on: bool) -> bool {
        let mut world = self.shared.world();
        world.user(actor);
        index(&world, repository).is_some_and(|index| world.set_label(index, number, label, actor, on))
    }

    /// Closes an issue as `actor`; false = it was closed, or there is none.
    pub fn close_issue(&self, repository: &str, number: u64, actor: &str) -> bool {
        let mut world = self.shared.world();
        world.user(actor);
        index(&world, repository).is_some_and(|index| world.set_open(index, number, false, None, actor))
    }

    /// Opens an issue and returns its number.
    pub fn add_issue(&self, repository: &str, issue: &IssueFile) -> Result<u64, SimError> {
        let mut world = self.shared.world();
        let index = index(&world, repository)
            .ok_or_else(|| SimError::wrong(repository, "there is no such repository"))?;
        seed::issue(&mut world, index, issue)
    }

    /// Changes an issue in any way; false = there is none.
    pub fn edit_issue(&self, repository: &str, number: u64, edit: impl FnOnce(&mut world::Issue)) -> bool {
        let mut world = self.shared.world();
        let at = world.now();
        let Some(issue) = world.repository_mut(repository).and_then(|repo| repo.issues.get_mut(&number))
        else {
            return false;
        };
        edit(issue);
        issue.updated_at = at;
        true
    }

    /// Changes an issue's title or body as `editor`, as the web page would; false = there is none.
    pub fn edit_text(
        &self,
        repository: &str,
        number: u64,
        editor: &str,
        title: Option<&str>,
        body: Option<&str>,
    ) -> bool {
        let mut world = self.shared.world();
        world.user(editor);
        index(&world, repository).is_some_and(|index| world.edit_text(index, number, editor, title, body))
    }

    /// Reviews a pull request; false: there is none.
    pub fn add_review(&self, repository: &str, number: u64, author: &str, state: &str, body: &str) -> bool {
        let mut world = self.shared.world();
        world.user(author);
        index(&world, repository)
            .is_some_and(|index| world.add_review((index, number), author, state, body, &[]).is_some())
    }

    /// Puts a check run or commit status on a commit or branch; false: there is no such repository.
    pub fn add_check(&self, repository: &str, check: &CheckFile) -> bool {
        let mut world = self.shared.world();
        let Some(index) = index(&world, repository) else { return false };
        seed::check(&mut world, index, check);
        true
    }

    /// Comments as `actor` and returns the comment's id.
    pub fn add_comment(&self, repository: &str, number: u64, actor: &str, body: &str) -> Option<u64> {
        let mut world = self.shared.world();
        world.user(actor);
        let index = index(&world, repository)?;
        world.add_comment(index, number, actor, body)
    }

    /// Sets an issue field, or clears it with `None`.
    pub fn set_field(
        &self,
        repository: &str,
        number: u64,
        name: &str,
        value: Option<world::FieldContent>,
    ) -> bool {
        let mut world = self.shared.world();
        index(&world, repository).is_some_and(|index| world.set_field(index, number, name, value))
    }

    /// Sets a field of an issue's card in the project of that title (its number is 1 where it is new).
    pub fn set_project_field(
        &self,
        repository: &str,
        number: u64,
        project: &str,
        name: &str,
        value: Option<world::FieldContent>,
    ) -> bool {
        let mut world = self.shared.world();
        index(&world, repository)
            .is_some_and(|index| world.set_project_field(index, number, (project, 1), name, value))
    }

    /// Plans a failure.
    pub fn inject(&self, fault: &FaultFile) -> Result<(), SimError> {
        let mut world = self.shared.world();
        let fault = seed::fault(fault, world.now())?;
        world.faults.push(fault);
        Ok(())
    }

    /// Does what a request to the admin API (`METHOD /_sim/PATH`) would do, and gives its answer; `Err`: the message.
    pub fn admin(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        admin::change(&mut self.shared.world(), method, path, body)
    }

    /// Adds replies at the end of the model's script.
    pub fn push_replies(&self, replies: impl IntoIterator<Item = ReplyFile>) -> Result<(), SimError> {
        let mut world = self.shared.world();
        replies.into_iter().try_for_each(|reply| world.script.push(reply))
    }

    /// Ends it: connections are cut, the port is free afterwards.
    pub async fn shutdown(mut self) {
        self.closing.cancel();
        if let Some(server) = self.server.take() {
            let _ = server.await;
        }
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

fn index(world: &World, repository: &str) -> Option<usize> {
    let (owner, name) = repository.split_once('/')?;
    world.repository_index(owner, name)
}
