//! The service as a host holds it: configuration, tools, policy and models, opened once for all users.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::chat_settings::AgentConfig;
use super::event_log::LoggedJournal;
use crate::config::{Config, Env, Request, Session};
use crate::domain::budget::Spend;
use crate::domain::issue::IssueKey;
use crate::domain::policy::PolicyPrincipal;
use crate::domain::redaction::Redactor;
use crate::domain::refusal::Refusal;
use crate::domain::run::{Principal, RunId};
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::arguments::Scope;
use crate::engine::budget::Meter;
use crate::engine::clock::RunClock;
use crate::engine::journal::{Journal, JournalError};
use crate::engine::model::{Model, ModelError, ModelReply, ModelRequest};
use crate::engine::pacing::Backoff;
use crate::engine::policy::Policy;
use crate::engine::queue::Queues;
use crate::engine::session::SessionWorld;
use crate::engine::session_trace::SessionIds;
use crate::engine::shared_caps::SharedCaps;
use crate::engine::stop::{StopHandle, StopSignal};
use crate::engine::tool_catalog::ToolCatalogs;
use crate::engine::tool_schema::ArgumentSchemas;
use crate::engine::touched::Touched;
use crate::mcp::{CurrentTools, McpServers};
use crate::repository::resources;
use crate::repository::tool_servers;
use crate::store::journal_file::FileJournal;
use crate::store::run_dir::{RunDir, StateDir};
use crate::sys::clock::Clock;
use crate::sys::lock::Turn;
use crate::sys::paths::AbsPath;
use crate::tools::rest::rest_tools;

/// What a service is made from.
pub struct Setup {
    /// The effective configuration.
    pub config: Arc<Config>,
    /// Where relative paths start and stdio servers run.
    pub base: AbsPath,
    /// The state directory; records of conversations are kept below it, by user.
    pub state: StateDir,
    /// What children may inherit is taken from here.
    pub env: Env,
    /// Wall time.
    pub clock: Clock,
    /// Asked in place of the configured providers; the targets stay the configuration's.
    pub model: Option<Arc<dyn Model>>,
}

impl Setup {
    /// The setup of a directory with an `agentd.toml`, with the process's environment and state directory.
    ///
    /// # Errors
    /// The directory or the configuration cannot be used.
    pub fn in_directory(directory: &Path) -> Result<Self, Refusal> {
        let invalid = |words: String| Refusal::new(StopDetail::ConfigInvalid, words);
        let env =
            Env::capture().map_err(|error| invalid(format!("The environment cannot be read: {error}.")))?;
        let base =
            AbsPath::new(env.working_dir().join(directory)).map_err(|error| invalid(error.to_string()))?;
        let request = Request {
            explicit: None,
            base: base.as_path(),
            repo: None,
            agent: None,
            flags: &[],
            entry: None,
            env: &env,
        };
        let config = Arc::new(Config::load(request)?);
        let state = env.state_dir(None).ok_or_else(|| invalid("There is no state directory.".to_owned()))?;
        let state = AbsPath::new(state).map_err(|error| invalid(error.to_string()))?;
        let state = StateDir::new(state.as_path().to_owned());
        Ok(Self { config, base, state, env, clock: Clock::system(), model: None })
    }
}

/// The models that conversations may ask.
pub(super) struct Models {
    pub(super) session: Session,
    pub(super) model: Arc<dyn Model>,
}

/// Tools, policy and models, ready for any number of conversations at a time.
pub struct Service {
    pub(super) config: Arc<Config>,
    pub(super) clock: Clock,
    pub(super) redactor: Arc<Redactor>,
    /// Those of the MCP servers, as they are now, then the REST tools.
    pub(super) tools: Arc<CurrentTools>,
    pub(super) models: Result<Models, Refusal>,
    pub(super) state: StateDir,
    /// Where the programs of the configuration run, and with what.
    pub(super) base: AbsPath,
    pub(super) children: Vec<(OsString, OsString)>,
    servers: Arc<McpServers>,
    policy: Arc<Policy>,
    queues: Arc<Queues>,
    schemas: ArgumentSchemas,
    tool_catalogs: ToolCatalogs,
    caps: SharedCaps,
    stop: StopHandle,
    signal: StopSignal,
}

/// A conversation or call under way: its record and its world.
pub(super) struct Opened {
    pub(super) run: RunId,
    pub(super) dir: RunDir,
    pub(super) journal: Arc<dyn Journal>,
    pub(super) world: SessionWorld,
    /// Held while its process lives: whoever adds up costs sees that nobody ends what nobody holds.
    _alive: Option<Turn>,
}

/// How long somebody who looks whether a turn is held is waited for.
const A_LOOK: Duration = Duration::from_secs(1);

impl Service {
    /// Starts the configured MCP servers, lists their tools and reads the policy. Models are checked too, but a service
    /// without them can still list and call tools.
    ///
    /// # Errors
    /// A required server that fails (exit code 3), a tool with an invalid schema (5), a configuration that cannot be
    /// used (4).
    pub async fn open(setup: Setup) -> Result<Self, Refusal> {
        let Setup { config, base, state, env, clock, model } = setup;
        let children = resources::child_environment(&env);
        let policy = resources::policy(&config, &base, children.clone()).await?;
        let redactor = resources::redactor(&config, Vec::new())?;
        let rest =
            rest_tools(&config.rest_tools).map_err(|error| Refusal::from(tool_servers::unfit(&error)))?;
        let models = models(&config, &clock, model);
        let configs = tool_servers::servers(&config)?;
        let servers = McpServers::connect(configs, &base, &children)
            .await
            .map_err(|error| Refusal::from(tool_servers::stop_of(&error)))?;
        let servers = Arc::new(servers);
        let tools = Arc::new(CurrentTools::new(Vec::new(), Arc::clone(&servers), rest));
        let (stop, signal) = StopHandle::new();
        Ok(Self {
            redactor: Arc::new(redactor),
            tools,
            models,
            servers,
            policy: Arc::new(policy),
            queues: Arc::new(resources::queues(&config)),
            schemas: ArgumentSchemas::default(),
            tool_catalogs: ToolCatalogs::default(),
            caps: resources::day_cap(&config, &state).into_iter().collect(),
            stop,
            signal,
            state,
            base,
            children,
            clock,
            config,
        })
    }

    /// Whether conversations can be held: targets and providers are configured and resolved.
    ///
    /// # Errors
    /// What is missing, and where.
    pub fn ready(&self) -> Result<(), Refusal> {
        self.models.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// The configuration's settings of a conversation, to change some of them.
    pub fn agent_config(&self) -> AgentConfig {
        AgentConfig::of(&self.config)
    }

    /// What optional servers could not give.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.servers.warnings().iter().map(|warning| warning.message.as_str())
    }

    /// A text without secrets; nothing, where it cannot be told (P-032).
    pub(super) fn clean(&self, text: &str) -> String {
        self.redactor.redact(text).map_or_else(|_| String::new(), std::borrow::Cow::into_owned)
    }

    /// Asks conversations to end with what they have.
    pub fn ask_to_stop(&self) {
        self.stop.ask(Stop::new(StopDetail::Shutdown, "The service was told to stop."));
    }

    /// Ends everything under way.
    pub fn abort(&self) {
        self.stop.abort(Stop::new(StopDetail::UserAbort, "The service was told to stop at once."));
    }

    /// Ends the MCP servers and waits for it.
    pub async fn close(&self) {
        self.servers.close().await;
    }

    /// Opens the record of one conversation or call of a user. It cannot reach another user's (S-045).
    pub(super) async fn begin(&self, user: &Principal) -> Result<Opened, JournalError> {
        let run = RunId(Uuid::now_v7());
        let folder = self.state.user_runs(user.id);
        let unopened = |message: String| JournalError { path: folder.display().to_string(), message };
        let dir = self.state.user_run(user.id, run).map_err(|error| unopened(error.to_string()))?;
        let (clock, redactor, own) = (self.clock.clone(), Arc::clone(&self.redactor), dir.clone());
        let opened = tokio::task::spawn_blocking(move || {
            let place = own.accounting();
            let file = FileJournal::open(own, clock, redactor)?;
            // Before its first line: what has lines and is not held is of a dead process.
            Ok::<_, JournalError>((file, Turn::wait(&place, A_LOOK).ok().flatten()))
        });
        let (file, alive) = opened.await.map_err(|panic| unopened(panic.to_string()))??;
        let journal: Arc<dyn Journal> = Arc::new(LoggedJournal::new(Arc::new(file), run));
        let clock = RunClock::starting(self.clock.now());
        let backoff = self.models.as_ref().map_or_else(
            |_| Backoff::default(),
            |models| Backoff { first: models.session.retry_backoff, cap: models.session.retry_backoff_max },
        );
        let model: Arc<dyn Model> = match &self.models {
            Ok(models) => Arc::clone(&models.model),
            Err(_) => Arc::new(NoModel),
        };
        let world = SessionWorld {
            model,
            journal: Arc::clone(&journal),
            policy: Arc::clone(&self.policy),
            redactor: Arc::clone(&self.redactor),
            meter: Arc::new(Meter::new(self.config.budgets.clone(), Spend::default(), clock)),
            caps: self.caps.clone(),
            stop: self.signal.clone(),
            clock,
            queues: Arc::clone(&self.queues),
            new_remarks: None,
            schemas: self.schemas.clone(),
            tool_catalogs: self.tool_catalogs.clone(),
            backoff,
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
            claims: None,
            redaction: None,
            fault_snapshots: false,
            longest_inline: self.config.longest_inline(),
            touched: Touched::default(),
        };
        Ok(Opened { run, dir, journal, world, _alive: alive })
    }
}

/// A model that is not there: single calls need none.
struct NoModel;

impl Model for NoModel {
    fn complete<'a>(
        &'a self,
        _request: &'a ModelRequest,
    ) -> futures::future::BoxFuture<'a, Result<ModelReply, ModelError>> {
        use crate::engine::model::ModelErrorClass;
        let class = ModelErrorClass::BadRequest;
        Box::pin(async move { Err(ModelError::new(class, "no model is configured")) })
    }
}

/// Where a call stands: the user's, in no repository and on no issue.
pub(super) fn scope(user: &Principal) -> Scope {
    Scope {
        principal: PolicyPrincipal::new(user, None),
        repo: String::new(),
        issue: IssueKey::Word(String::new()),
        branch: String::new(),
        worktree: String::new(),
    }
}

/// Ids of a session that is `what`: `chat` or `call`.
pub(super) fn ids(run: RunId, what: &str) -> SessionIds {
    SessionIds {
        run,
        session: Uuid::now_v7(),
        step_id: what.to_owned(),
        visit: 0,
        agent: what.to_owned(),
        call_path: what.to_owned(),
    }
}

fn models(config: &Config, clock: &Clock, own: Option<Arc<dyn Model>>) -> Result<Models, Refusal> {
    let session = config.session()?;
    let model = match own {
        Some(model) => model,
        None => Arc::new(resources::providers(config, &session, clock)?),
    };
    Ok(Models { session, model })
}
