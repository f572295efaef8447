//! `agentd.toml` as people write it, one struct for each table. The `Default`s are the published defaults.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::commit_file::CommitTable;
use super::duration::Span;
use super::program_file::ProgramTable;
use super::sandbox_file::SandboxTable;
use super::tools_file::{McpTable, RestTable};
use crate::domain::budget::Budgets;
use crate::domain::issue_state::LabelsTable;
use crate::domain::model_target::OnFatalError;
use crate::domain::model_wire::ProviderKind;
use crate::domain::name::RepoName;
use crate::domain::policy::ActorPermission;

const fn seconds(n: u64) -> Span {
    Span(Duration::from_secs(n))
}

/// The whole file. Every key is optional; unknown keys are errors.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigFile {
    /// Version of the format; another major version is refused.
    pub version: String,
    /// The repositories that agentd works for.
    pub repositories: Vec<RepositoryTable>,
    /// How GitHub is reached and what agentd reads and writes there.
    pub github: GithubTable,
    /// The daemon.
    pub daemon: DaemonTable,
    /// Hard caps of one run.
    pub budgets: BudgetsTable,
    /// Limits of one model session, and the models it may ask.
    pub session: SessionTable,
    /// Model providers, by the name that targets use.
    pub providers: BTreeMap<String, ProviderTable>,
    /// The agent program for agents whose definition names no backend.
    pub program: ProgramTable,
    /// Servers of the Model Context Protocol.
    pub mcp: McpTable,
    /// Tools made of one HTTP request each.
    pub rest: RestTable,
    /// What agents may do.
    pub policy: PolicyTable,
    /// The sandbox for what agents start.
    pub sandbox: SandboxTable,
    /// What is taken out of everything that is kept or shown.
    pub redaction: RedactionTable,
    /// What is kept of a run.
    pub record: RecordTable,
    /// Worktrees.
    pub worktree: WorktreeTable,
    /// What "tests pass" means.
    pub verify: VerifyTable,
    /// Commits that agentd makes.
    pub commit: CommitTable,
    /// Chat mode.
    pub chat: ChatTable,
}

impl Default for ConfigFile {
    fn default() -> Self {
        Self {
            version: "1.0".to_owned(),
            repositories: Vec::new(),
            github: GithubTable::default(),
            daemon: DaemonTable::default(),
            budgets: BudgetsTable::default(),
            session: SessionTable::default(),
            providers: BTreeMap::new(),
            program: ProgramTable::default(),
            mcp: McpTable::default(),
            rest: RestTable::default(),
            policy: PolicyTable::default(),
            sandbox: SandboxTable::default(),
            redaction: RedactionTable::default(),
            record: RecordTable::default(),
            worktree: WorktreeTable::default(),
            verify: VerifyTable::default(),
            commit: CommitTable::default(),
            chat: ChatTable::default(),
        }
    }
}

/// `[[repositories]]`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RepositoryTable {
    /// `owner/name`; default: from the remote's URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub name: Option<RepoName>,
    /// The main checkout; absent = a clone that agentd manages in the state directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Name of the remote.
    pub remote: String,
    /// Last link of the origin chain; blank = not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin_branch: Option<String>,
    /// Agent that works on its issues.
    pub agent: String,
    /// When to sweep: a cron expression of five fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<String>,
    /// Time zone of `sweep`, by its IANA name.
    pub timezone: String,
    /// Which issues a sweep takes.
    pub sweep_select: SweepSelect,
    /// A sweep takes only issues with all of these labels.
    pub sweep_labels: Vec<String>,
    /// A sweep takes only issues of this milestone, by its title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep_milestone: Option<String>,
    /// Most issues that one sweep takes; 0 = all.
    pub sweep_limit: u32,
    /// What becomes of the work.
    pub publish: Publish,
    /// Whether issues wait for open `blocked_by` issues and open sub-issues.
    pub depends: bool,
}

impl Default for RepositoryTable {
    fn default() -> Self {
        Self {
            name: None,
            path: None,
            remote: "origin".to_owned(),
            origin_branch: None,
            agent: "resolver".to_owned(),
            sweep: None,
            timezone: "UTC".to_owned(),
            sweep_select: SweepSelect::Labelled,
            sweep_labels: Vec::new(),
            sweep_milestone: None,
            sweep_limit: 0,
            publish: Publish::PullRequest,
            depends: true,
        }
    }
}

/// Which open issues a sweep takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SweepSelect {
    /// Those with the trigger label, as the daemon does.
    #[default]
    Labelled,
    /// Those without it as well whose author has `min_permission`.
    All,
}

/// What becomes of a run's work (D29).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Publish {
    /// Push the branch and open or update its pull request.
    PullRequest,
    /// Push the branch only.
    Branch,
    /// Keep it in the local repository.
    None,
}

impl Publish {
    /// Every form.
    pub const ALL: [Self; 3] = [Self::PullRequest, Self::Branch, Self::None];

    /// The word in files and flags.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PullRequest => "pull-request",
            Self::Branch => "branch",
            Self::None => "none",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.as_str() == word)
    }
}

/// `[github]`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GithubTable {
    /// Base of the REST API; Enterprise: `https://HOST/api/v3`.
    pub api_url: String,
    /// The GraphQL endpoint; default: derived from `api_url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphql_url: Option<String>,
    /// Placeholder of the token.
    pub token: String,
    /// A GitHub App instead of a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app: Option<AppTable>,
    /// Issue field that names the origin branch.
    pub issue_field: String,
    /// Project field that names the origin branch.
    pub project_field: String,
    /// Least permission of whoever triggers a run.
    pub min_permission: ActorPermission,
    /// Names of the labels.
    pub labels: LabelsTable,
}

impl Default for GithubTable {
    fn default() -> Self {
        Self {
            api_url: "https://api.github.com".to_owned(),
            graphql_url: None,
            token: "${GITHUB_TOKEN}".to_owned(),
            app: None,
            issue_field: "base_branch".to_owned(),
            project_field: "Target Branch".to_owned(),
            min_permission: ActorPermission::Write,
            labels: LabelsTable::default(),
        }
    }
}

/// `[github.app]`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppTable {
    /// App id.
    pub id: u64,
    /// Installation id.
    pub installation_id: u64,
    /// Placeholder of the private key (PEM).
    pub private_key: String,
}

/// `[daemon]`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DaemonTable {
    /// Time from one poll to the next.
    pub poll_interval: Span,
    /// Runs at a time.
    pub max_concurrent_runs: u32,
    /// Runs at a time in one repository.
    pub max_runs_per_repository: u32,
    /// Follow-up runs of one pull request, for failed checks, reviews that ask for changes and conflicts; 0 = none.
    pub max_follow_ups: u32,
    /// Address of the HTTP front, `127.0.0.1:7878`; empty = none.
    pub listen: String,
    /// Placeholder of the secret that enables `POST /webhooks/github`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_secret: Option<String>,
    /// Placeholder of the bearer token that API, page and metrics ask for. It is needed if `listen` is not loopback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Further host names (the Host header) under which API, page and metrics answer, besides the address in `listen`:
    /// `agentd.example.org`, `agentd.example.org:8443`.
    pub hosts: Vec<String>,
}

impl Default for DaemonTable {
    fn default() -> Self {
        Self {
            poll_interval: seconds(30),
            max_concurrent_runs: 4,
            max_runs_per_repository: 2,
            max_follow_ups: 3,
            listen: String::new(),
            webhook_secret: None,
            token: None,
            hosts: Vec::new(),
        }
    }
}

/// `[budgets]`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetsTable {
    /// Step visits of a run.
    pub max_steps: u32,
    /// From a run's start to its end.
    pub max_wall_time: Span,
    /// US dollars of a run.
    pub max_cost: f64,
    /// Part of a cap at which people are warned.
    pub soft_ratio: f64,
    /// US dollars of all runs of one UTC day; 0 = no cap.
    pub max_cost_per_day: f64,
}

impl Default for BudgetsTable {
    fn default() -> Self {
        let domain = Budgets::default();
        Self {
            max_steps: domain.max_steps,
            max_wall_time: Span(domain.max_wall_time),
            max_cost: domain.max_cost.dollars(),
            soft_ratio: domain.soft_ratio,
            max_cost_per_day: 0.0,
        }
    }
}

/// `[session]`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionTable {
    /// Ceiling on the turns of a session.
    pub max_turns: u32,
    /// Tool calls of one reply that run.
    pub max_tool_calls_per_turn: u32,
    /// Attempts of one turn in total; 1 = no retry.
    pub max_retries: u32,
    /// One model request, and the longest silence of a stream.
    pub llm_timeout: Span,
    /// One tool call.
    pub tool_timeout: Span,
    /// Longest tool response that stays in the conversation, in bytes.
    pub tool_response_max_bytes: u64,
    /// Most tokens of one reply.
    pub max_output_tokens: u64,
    /// Sampling temperature; absent = the provider's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Whether replies are asked for as a stream.
    pub stream: bool,
    /// First pause before a retry; it doubles.
    pub retry_backoff: Span,
    /// Longest pause before a retry.
    pub retry_backoff_max: Span,
    /// What a refused credential does.
    pub on_auth_error: OnFatalError,
    /// What a used-up quota does.
    pub on_quota: OnFatalError,
    /// When the same action again and again is stopped.
    pub loop_guard: LoopGuardTable,
    /// Times that a report which breaks its schema is sent back within a turn, inside `max_retries`.
    pub schema_repair_attempts: u32,
    /// Most lines of one page that a tool reads.
    pub read_page_lines: u32,
    /// The longest text inside a record, in bytes. A longer one is kept in a file beside it.
    pub inline_payload_max_bytes: u64,
    /// Queues that tools wait in, by name; `default` always exists.
    pub queues: BTreeMap<String, QueueTable>,
    /// The models, in order; attempt k of a turn asks number (k-1) mod n.
    pub targets: Vec<TargetTable>,
}

impl Default for SessionTable {
    fn default() -> Self {
        Self {
            max_turns: 15,
            max_tool_calls_per_turn: 20,
            max_retries: 3,
            llm_timeout: seconds(120),
            tool_timeout: seconds(60),
            tool_response_max_bytes: 12_288,
            max_output_tokens: 16_384,
            temperature: None,
            stream: true,
            retry_backoff: seconds(1),
            retry_backoff_max: seconds(60),
            on_auth_error: OnFatalError::Fail,
            on_quota: OnFatalError::Fail,
            loop_guard: LoopGuardTable::default(),
            schema_repair_attempts: 2,
            read_page_lines: 500,
            inline_payload_max_bytes: 65_536,
            queues: BTreeMap::new(),
            targets: Vec::new(),
        }
    }
}

/// `[session.loop_guard]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoopGuardTable {
    /// Finished tool calls that are looked back on.
    pub window: u32,
    /// How many equal calls with equal results there may be among them before the next one is refused; at most
    /// `window`.
    pub threshold: u32,
    /// Refusals that tell the model, before asking again ends the run.
    pub overrides: u32,
}

impl Default for LoopGuardTable {
    fn default() -> Self {
        Self { window: 3, threshold: 3, overrides: 1 }
    }
}

/// `[session.queues.NAME]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueTable {
    /// Calls that run at a time.
    pub concurrent: u32,
}

/// `[[session.targets]]`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetTable {
    /// Name of a table under `[providers]`.
    pub provider: String,
    /// Model as the provider names it.
    pub model: String,
    /// Capacity in tokens.
    #[serde(default = "default_context_window")]
    pub context_window: u64,
    /// Tokens kept free.
    #[serde(default = "default_context_window_buffer")]
    pub context_window_buffer: u64,
    /// Overrides `session.max_output_tokens`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Overrides `session.temperature`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// What its tokens cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<PriceTable>,
}

fn default_context_window() -> u64 {
    131_072
}

fn default_context_window_buffer() -> u64 {
    256
}

/// `price` of a target: US dollars per million tokens.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceTable {
    /// Uncached input.
    pub input: f64,
    /// Output, reasoning included.
    pub output: f64,
    /// Input read from the provider's cache; default: as `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<f64>,
    /// Input written to the provider's cache; default: as `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
}

/// `[providers.NAME]`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderTable {
    /// The protocol it uses. The default is the name of the provider, if that is a kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ProviderKind>,
    /// The part before the provider's own path; with `/v1` for the openai kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Placeholder of the key; absent or empty = none is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// Headers sent with each request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// `[policy]`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyTable {
    /// Files of rules, relative to the main checkout.
    pub files: Vec<PathBuf>,
    /// A program (argv) that is asked beside the rules; empty = none.
    pub program: Vec<String>,
}

/// `[redaction]`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedactionTable {
    /// Regular expressions of what else to take out.
    pub patterns: Vec<String>,
    /// A program (argv) that redacts its stdin; empty = none.
    pub program: Vec<String>,
}

/// `[record]`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RecordTable {
    /// Whether prompts are kept as text rather than as hashes.
    pub include_prompt_text: bool,
    /// Whether requests and replies around a fault are kept, redacted.
    pub fault_snapshots: bool,
    /// Programs (argv) that are fed the run record on stdin.
    pub sinks: Vec<Vec<String>>,
    /// File of the ed25519 private key (PKCS#8, mode 0600, absolute path) that signs the seals of runs. Absent = the
    /// host's own key in the state directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seal_key: Option<PathBuf>,
}

/// `[worktree]`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorktreeTable {
    /// Folder of the worktrees, relative to the main checkout.
    pub root: PathBuf,
    /// Commands (argv each) run in a new worktree.
    pub setup: Vec<Vec<String>>,
    /// Longest time of all of them together.
    pub setup_timeout: Span,
    /// Untracked files to copy from the main checkout.
    pub copy: Vec<PathBuf>,
    /// Whether submodules are checked out.
    pub submodules: Auto,
    /// Whether LFS files are checked out.
    pub lfs: Auto,
    /// Folders of a sparse checkout; empty = all.
    pub sparse: Vec<String>,
    /// How long a finished worktree is kept.
    pub retention: Span,
    /// Whether the repository's own git hooks run.
    pub hooks: bool,
}

impl Default for WorktreeTable {
    fn default() -> Self {
        Self {
            root: PathBuf::from(".worktrees"),
            setup: Vec::new(),
            setup_timeout: seconds(600),
            copy: Vec::new(),
            submodules: Auto::Auto,
            lfs: Auto::Auto,
            sparse: Vec::new(),
            retention: seconds(7 * 86_400),
            hooks: false,
        }
    }
}

/// Whether to do something that a repository may or may not need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Auto {
    /// Where the repository uses it.
    Auto,
    /// Never.
    Never,
}

/// `[verify]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VerifyTable {
    /// Commands (argv each) that all must end with exit code 0.
    pub commands: Vec<Vec<String>>,
    /// Longest time of one command.
    pub timeout: Span,
}

impl Default for VerifyTable {
    fn default() -> Self {
        Self { commands: Vec::new(), timeout: seconds(600) }
    }
}

/// The table `[chat]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChatTable {
    /// Turns with tools; one more is for the summary.
    pub max_iterations: u32,
    /// Most tokens of one reply.
    pub max_output_tokens: u64,
    /// One turn.
    pub turn_timeout: Span,
    /// Messages of history from which a warning is given.
    pub history_warning: u32,
    /// Who may ask over HTTP (`daemon.listen`).
    pub users: Vec<ChatUserTable>,
}

/// `[[chat.users]]` (S-043).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChatUserTable {
    /// The user's UUID.
    pub id: String,
    /// The bearer token, as a placeholder.
    pub token: String,
}

impl Default for ChatTable {
    fn default() -> Self {
        Self {
            max_iterations: 15,
            max_output_tokens: 1000,
            turn_timeout: seconds(30),
            history_warning: 50,
            users: Vec::new(),
        }
    }
}
