//! `agentd.toml` as people write it, one struct for each table. The `Default`s are the published defaults.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::checks_file::ChecksTable;
pub use super::cluster_file::ClusterTable;
pub use super::commit_file::CommitTable;
pub use super::conversation_file::ConversationTable;
use super::duration::Span;
pub use super::plan_file::PlanTable;
use super::program_file::ProgramTable;
pub use super::questions_file::QuestionsTable;
use super::sandbox_file::SandboxTable;
use super::table_file::table;
use super::tools_file::{McpTable, RestTable};
use crate::domain::budget::Budgets;
use crate::domain::clone_contents::CloneContents;
use crate::domain::issue_state::LabelsTable;
use crate::domain::model_target::OnFatalError;
use crate::domain::model_wire::ProviderKind;
use crate::domain::name::RepoName;
use crate::domain::policy::ActorPermission;
use crate::domain::words::words;

const fn seconds(n: u64) -> Span {
    Span(Duration::from_secs(n))
}

table! {
    /// The whole file. Every key is optional; unknown keys are errors.
    pub struct ConfigFile {
        /// Version of the format; another major version is refused.
        pub version: String = "1.0".to_owned(),
        /// The repositories that agentd works for.
        pub repositories: Vec<RepositoryTable> = Vec::new(),
        /// How GitHub is reached and what agentd reads and writes there.
        pub github: GithubTable = GithubTable::default(),
        /// The daemon.
        pub daemon: DaemonTable = DaemonTable::default(),
        /// Hard caps of one run.
        pub budgets: BudgetsTable = BudgetsTable::default(),
        /// Limits of one model session, and the models it may ask.
        pub session: SessionTable = SessionTable::default(),
        /// Model providers, by the name that targets use.
        pub providers: BTreeMap<String, ProviderTable> = BTreeMap::new(),
        /// The agent program for agents whose definition names no backend.
        pub program: ProgramTable = ProgramTable::default(),
        /// Servers of the Model Context Protocol.
        pub mcp: McpTable = McpTable::default(),
        /// Tools made of one HTTP request each.
        pub rest: RestTable = RestTable::default(),
        /// What agents may do.
        pub policy: PolicyTable = PolicyTable::default(),
        /// The sandbox for what agents start.
        pub sandbox: SandboxTable = SandboxTable::default(),
        /// What is taken out of everything that is kept or shown.
        pub redaction: RedactionTable = RedactionTable::default(),
        /// What is kept of a run.
        pub record: RecordTable = RecordTable::default(),
        /// Worktrees.
        pub worktree: WorktreeTable = WorktreeTable::default(),
        /// What "tests pass" means.
        pub verify: VerifyTable = VerifyTable::default(),
        /// Commits that agentd makes.
        pub commit: CommitTable = CommitTable::default(),
        /// Chat mode.
        pub chat: ChatTable = ChatTable::default(),
        /// Whose words count, and what a run is told of them.
        pub conversation: ConversationTable = ConversationTable::default(),
        /// Failed checks of a pull request.
        pub checks: ChecksTable = ChecksTable::default(),
        /// What becomes of an agent's questions.
        pub questions: QuestionsTable = QuestionsTable::default(),
        /// Whether a plan has to be approved before it is carried out.
        pub plan: PlanTable = PlanTable::default(),
        /// Several nodes that share their work.
        pub cluster: ClusterTable = ClusterTable::default(),
    }
}

table! {
    /// `[[repositories]]`.
    pub struct RepositoryTable {
        /// `owner/name`; default: from the remote's URL.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<String>")]
        pub name: Option<RepoName> = None,
        /// The main checkout; absent = a clone that agentd manages in the state directory, or, without a name, the checkout of the file or of the working directory.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub path: Option<PathBuf> = None,
        /// What a clone that agentd manages brings of files, decided when it is made. `full`: every content there ever was. `blobless`: the contents of commits that are worked with.
        pub clone: CloneContents = CloneContents::Full,
        /// Name of the remote; absent = `origin`. One that is named here is given `github.token` over HTTP also where it is not on GitHub's host.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub remote: Option<String> = None,
        /// Last link of the origin chain; blank = not set.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub origin_branch: Option<String> = None,
        /// Agent that works on its issues.
        pub agent: String = "resolver".to_owned(),
        /// When to sweep: a cron expression of five fields.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub sweep: Option<String> = None,
        /// Time zone of `sweep`, by its IANA name.
        pub timezone: String = "UTC".to_owned(),
        /// Which issues a sweep takes.
        pub sweep_select: SweepSelect = SweepSelect::Labelled,
        /// A sweep takes only issues with all of these labels.
        pub sweep_labels: Vec<String> = Vec::new(),
        /// A sweep takes only issues of this milestone, by its title.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub sweep_milestone: Option<String> = None,
        /// Most issues that one sweep takes; 0 = all.
        pub sweep_limit: u32 = 0,
        /// What becomes of the work.
        pub publish: Publish = Publish::PullRequest,
        /// Whether issues wait for open `blocked_by` issues and open sub-issues.
        pub depends: bool = true,
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

words! {
    /// What becomes of a run's work (D29).
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Publish {
        /// Push the branch and open or update its pull request.
        PullRequest = "pull-request",
        /// Push the branch only.
        Branch = "branch",
        /// Keep it in the local repository.
        None = "none",
    }
}

table! {
    /// `[github]`.
    pub struct GithubTable {
        /// Base of the REST API; Enterprise: `https://HOST/api/v3`.
        pub api_url: String = "https://api.github.com".to_owned(),
        /// The GraphQL endpoint; default: derived from `api_url`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub graphql_url: Option<String> = None,
        /// Placeholder of the token.
        pub token: String = "${GITHUB_TOKEN}".to_owned(),
        /// A GitHub App instead of a token.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub app: Option<AppTable> = None,
        /// Issue field that names the origin branch.
        pub issue_field: String = "base_branch".to_owned(),
        /// Project field that names the origin branch.
        pub project_field: String = "Target Branch".to_owned(),
        /// Requests of one credential in any minute, at most. GitHub's secondary limit allows 900 points, of which a write takes
        /// five; a GitHub Enterprise Server without limits allows more.
        pub max_requests_per_minute: u32 = 300,
        /// Least permission of whoever triggers a run.
        pub min_permission: ActorPermission = ActorPermission::Write,
        /// Names of the labels.
        pub labels: LabelsTable = LabelsTable::default(),
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

table! {
    /// `[daemon]`.
    pub struct DaemonTable {
        /// Time from one poll to the next.
        pub poll_interval: Span = seconds(30),
        /// Runs at a time.
        pub max_concurrent_runs: u32 = 4,
        /// Runs at a time in one repository.
        pub max_runs_per_repository: u32 = 2,
        /// Follow-up runs of one pull request, for failed checks, reviews that ask for changes and conflicts; 0 = none.
        pub max_follow_ups: u32 = 3,
        /// Address of the HTTP front, `127.0.0.1:7878`; empty = none.
        pub listen: String = String::new(),
        /// Placeholder of the secret that enables `POST /webhooks/github`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub webhook_secret: Option<String> = None,
        /// Placeholder of the bearer token that API, page and metrics ask for. It is needed if `listen` is not loopback.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub token: Option<String> = None,
        /// Further host names (the Host header) under which API, page and metrics answer, besides the address in `listen`:
        /// `agentd.example.org`, `agentd.example.org:8443`.
        pub hosts: Vec<String> = Vec::new(),
    }
}

table! {
    /// `[budgets]`.
    pub struct BudgetsTable {
        /// Step visits of a run.
        pub max_steps: u32 = Budgets::default().max_steps,
        /// From a run's start to its end.
        pub max_wall_time: Span = Span(Budgets::default().max_wall_time),
        /// US dollars of a run.
        pub max_cost: f64 = Budgets::default().max_cost.dollars(),
        /// Part of a cap at which people are warned.
        pub soft_ratio: f64 = Budgets::default().soft_ratio,
        /// US dollars of all runs of one UTC day; 0 = no cap.
        pub max_cost_per_day: f64 = 0.0,
        /// US dollars of all runs of one issue together: first runs, follow-up runs, and runs that go on with another;
        /// 0 = no cap.
        pub max_cost_per_issue: f64 = 25.0,
        /// US dollars that comments (`/agentd extend 5`) add to an issue's budget at most, all together.
        pub max_extension: f64 = 25.0,
    }
}

table! {
    /// `[session]`.
    pub struct SessionTable {
        /// Ceiling on the turns of a session.
        pub max_turns: u32 = 15,
        /// Tool calls of one reply that run.
        pub max_tool_calls_per_turn: u32 = 20,
        /// Attempts of one turn in total; 1 = no retry.
        pub max_retries: u32 = 3,
        /// One model request, and the longest silence of a stream.
        pub llm_timeout: Span = seconds(120),
        /// One tool call.
        pub tool_timeout: Span = seconds(60),
        /// Longest tool response that stays in the conversation, in bytes.
        pub tool_response_max_bytes: u64 = 12_288,
        /// Most tokens of one reply.
        pub max_output_tokens: u64 = 16_384,
        /// Sampling temperature; absent = the provider's own.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub temperature: Option<f64> = None,
        /// Whether replies are asked for as a stream.
        pub stream: bool = true,
        /// First pause before a retry; it doubles.
        pub retry_backoff: Span = seconds(1),
        /// Longest pause before a retry.
        pub retry_backoff_max: Span = seconds(60),
        /// What a refused credential does.
        pub on_auth_error: OnFatalError = OnFatalError::Fail,
        /// What a used-up quota does.
        pub on_quota: OnFatalError = OnFatalError::Fail,
        /// When the same action again and again is stopped.
        pub loop_guard: LoopGuardTable = LoopGuardTable::default(),
        /// Times that a report which breaks its schema is sent back within a turn, inside `max_retries`.
        pub schema_repair_attempts: u32 = 2,
        /// Most lines of one page that a tool reads.
        pub read_page_lines: u32 = 500,
        /// The longest text inside a record, in bytes. A longer one is kept in a file beside it.
        pub inline_payload_max_bytes: u64 = 65_536,
        /// Queues that tools wait in, by name; `default` always exists.
        pub queues: BTreeMap<String, QueueTable> = BTreeMap::new(),
        /// The models, in order; attempt k of a turn asks number (k-1) mod n.
        pub targets: Vec<TargetTable> = Vec::new(),
    }
}

table! {
    /// `[session.loop_guard]`.
    #[derive(Copy, PartialEq, Eq)]
    pub struct LoopGuardTable {
        /// Finished tool calls that are looked back on.
        pub window: u32 = 3,
        /// How many equal calls with equal results there may be among them before the next one is refused; at most
        /// `window`.
        pub threshold: u32 = 3,
        /// Refusals that tell the model, before asking again ends the run.
        pub overrides: u32 = 1,
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
    /// Whether it takes images: those of the issue's body and of trusted remarks are loaded and handed to it.
    #[serde(default)]
    pub images: bool,
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
    /// Regular expressions of what else to take out. They are secrets like the known ones: a change that has one is not committed.
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

table! {
    /// `[worktree]`.
    pub struct WorktreeTable {
        /// Folder of the worktrees, relative to the main checkout.
        pub root: PathBuf = PathBuf::from(".worktrees"),
        /// Commands (argv each) run in a new worktree.
        pub setup: Vec<Vec<String>> = Vec::new(),
        /// Longest time of all of them together.
        pub setup_timeout: Span = seconds(600),
        /// Ignored folders that `setup` makes, such as `node_modules`. They are kept as it made them, and copied into the next
        /// worktree instead of running it where `setup_inputs` are equal. What is written there later stays in its worktree.
        pub keep_ignored: Vec<PathBuf> = Vec::new(),
        /// Files that decide what `setup` makes, such as lock files.
        pub setup_inputs: Vec<PathBuf> = Vec::new(),
        /// Untracked files to copy from the main checkout.
        pub copy: Vec<PathBuf> = Vec::new(),
        /// Whether submodules are checked out.
        pub submodules: Auto = Auto::Auto,
        /// Whether LFS files are checked out.
        pub lfs: Auto = Auto::Auto,
        /// Folders of a sparse checkout; empty = all.
        pub sparse: Vec<String> = Vec::new(),
        /// How many worktrees the daemon keeps checked out for the next issues. Each is used by one issue.
        pub pool: u32 = 0,
        /// How long a finished worktree is kept.
        pub retention: Span = seconds(7 * 86_400),
        /// Whether the repository's own git hooks run.
        pub hooks: bool = false,
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

table! {
    /// `[verify]`.
    #[derive(PartialEq, Eq)]
    pub struct VerifyTable {
        /// Commands (argv each) that all must end with exit code 0.
        pub commands: Vec<Vec<String>> = Vec::new(),
        /// Longest time of one command.
        pub timeout: Span = seconds(600),
        /// Whether they run in a checkout of the final commit of its own, set up as worktrees are, instead of in the issue's worktree.
        /// There they find nothing that the run left beside its commit.
        pub clean: bool = false,
    }
}

table! {
    /// The table `[chat]`.
    #[derive(PartialEq)]
    pub struct ChatTable {
        /// Turns with tools; one more is for the summary.
        pub max_iterations: u32 = 15,
        /// Most tokens of one reply.
        pub max_output_tokens: u64 = 1000,
        /// One turn.
        pub turn_timeout: Span = seconds(30),
        /// Messages of history from which a warning is given.
        pub history_warning: u32 = 50,
        /// Who may ask over HTTP (`daemon.listen`).
        pub users: Vec<ChatUserTable> = Vec::new(),
    }
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
