//! Scenario files: the simulated world as people write it, in TOML or JSON.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::SimError;

pub use super::check_file::{AnnotationFile, CheckFile, CheckKindFile, JobFile};

/// A whole scenario. Everything is optional; what is left out is empty.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Rate limits.
    pub limits: LimitsFile,
    /// Accounts that need more than a login; every login mentioned anywhere exists.
    pub users: Vec<UserFile>,
    /// Tokens.
    pub tokens: Vec<TokenFile>,
    /// GitHub Apps.
    pub apps: Vec<AppFile>,
    /// Repositories.
    pub repositories: Vec<RepositoryFile>,
    /// The scripted model.
    pub model: ModelFile,
    /// Failures.
    pub faults: Vec<FaultFile>,
    /// Directory that relative paths in the scenario start from; set by [`Scenario::from_file`].
    #[serde(skip)]
    pub directory: PathBuf,
}

/// `[limits]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsFile {
    /// Requests an hour for each login (REST and GraphQL apart).
    pub per_hour: u64,
    /// Writes a minute before the secondary limit answers; 0 = no secondary limit.
    pub writes_per_minute: u64,
}

impl Default for LimitsFile {
    fn default() -> Self {
        Self { per_hour: 5000, writes_per_minute: 0 }
    }
}

/// `[[users]]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UserFile {
    /// Login.
    pub login: String,
    /// Shown name.
    pub name: Option<String>,
    /// `User` (default), `Bot` or `Organization`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

/// `[[tokens]]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TokenFile {
    /// The secret.
    pub token: String,
    /// Whose it is.
    pub login: String,
    /// `contents`, `issues`, `pull_requests`, `metadata`, `statuses`, `checks`, … → `read` or `write`; absent = everything the login may.
    pub permissions: Option<BTreeMap<String, String>>,
    /// `owner/name`s it reaches; absent = everything the login reaches.
    pub repositories: Option<Vec<String>>,
}

/// `[[apps]]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AppFile {
    /// App id.
    pub id: u64,
    /// Slug; it acts as `slug[bot]`.
    pub slug: String,
    /// Account it is installed on.
    pub owner: String,
    /// The installation's id.
    pub installation_id: u64,
    /// Permissions of its tokens.
    #[serde(default)]
    pub permissions: BTreeMap<String, String>,
    /// Repositories of its tokens; absent = all.
    pub repositories: Option<Vec<String>>,
}

/// `[[repositories]]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RepositoryFile {
    /// `owner/name`.
    pub name: String,
    /// Private repositories do not exist for strangers.
    #[serde(default)]
    pub private: bool,
    /// Archived repositories refuse writes.
    #[serde(default)]
    pub archived: bool,
    /// Default `main`.
    pub default_branch: Option<String>,
    /// Roles by login: none, read, triage, write, maintain, admin. The owner is admin.
    #[serde(default)]
    pub collaborators: BTreeMap<String, String>,
    /// Patterns of branches that refuse pushes.
    #[serde(default)]
    pub protected: Vec<String>,
    /// Labels that exist from the start; labels on issues are made by themselves.
    #[serde(default)]
    pub labels: Vec<LabelFile>,
    /// Directory whose files become the first commit of the default branch.
    pub from_directory: Option<PathBuf>,
    /// Commits in order.
    #[serde(default)]
    pub commits: Vec<CommitFile>,
    /// Issues in order.
    #[serde(default)]
    pub issues: Vec<IssueFile>,
    /// Pull requests, after the issues.
    #[serde(default)]
    pub pulls: Vec<PullFile>,
    /// Commit statuses and check runs.
    #[serde(default)]
    pub checks: Vec<CheckFile>,
    /// Webhooks.
    #[serde(default)]
    pub hooks: Vec<HookFile>,
}

/// `[[repositories.hooks]]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HookFile {
    /// Where deliveries go.
    pub url: String,
    /// What signs them.
    pub secret: String,
    /// Events; empty = all.
    #[serde(default)]
    pub events: Vec<String>,
}

/// `[[repositories.labels]]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LabelFile {
    /// Name.
    pub name: String,
    /// Six hex digits; default `ededed`.
    pub color: Option<String>,
    /// What it means.
    pub description: Option<String>,
}

/// `[[repositories.commits]]`.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CommitFile {
    /// Branch; default the default branch. A new branch starts at `from`.
    pub branch: Option<String>,
    /// Branch that a new branch starts from; default the default branch once it exists.
    pub from: Option<String>,
    /// Message; default `Commit N`.
    pub message: Option<String>,
    /// Commit or branch that the branch is set to before, which loses what it had: a forced push.
    pub onto: Option<String>,
    /// `Name <mail>`.
    pub author: Option<String>,
    /// Content by path.
    pub files: BTreeMap<String, String>,
    /// Paths in `files` that are executable.
    pub executable: Vec<String>,
    /// Paths to remove.
    pub remove: Vec<String>,
}

/// `[[repositories.issues]]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct IssueFile {
    /// Default: the next free number.
    pub number: Option<u64>,
    /// Title.
    pub title: String,
    /// Markdown.
    pub body: Option<String>,
    /// Default: the repository's owner.
    pub author: Option<String>,
    /// Label names.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Who put the labels on; default: the author.
    pub labelled_by: Option<String>,
    /// Logins.
    #[serde(default)]
    pub assignees: Vec<String>,
    /// `open` (default) or `closed`.
    pub state: Option<String>,
    /// Whether comments are closed.
    #[serde(default)]
    pub locked: bool,
    /// Issue fields by name.
    #[serde(default)]
    pub fields: BTreeMap<String, FieldFile>,
    /// Cards in projects.
    #[serde(default)]
    pub projects: Vec<ProjectFile>,
    /// Numbers of issues that block it.
    #[serde(default)]
    pub blocked_by: Vec<u64>,
    /// Numbers of its sub-issues.
    #[serde(default)]
    pub sub_issues: Vec<u64>,
    /// Conversation.
    #[serde(default)]
    pub comments: Vec<CommentFile>,
    /// `owner/name#number` it was transferred to.
    pub moved_to: Option<String>,
    /// Deleted: answered with 410.
    #[serde(default)]
    pub deleted: bool,
}

/// A field's value: a string is text; a table names the type.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(untagged, expecting = "a string, or a table with one of `text`, `single_select`, `number`, `date`")]
pub enum FieldFile {
    /// Text.
    Plain(String),
    /// Named type.
    Typed(TypedFieldFile),
}

/// `{ single_select = "High" }` and the like.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum TypedFieldFile {
    /// Text.
    Text(String),
    /// Name of the option.
    SingleSelect(String),
    /// Number.
    Number(f64),
    /// `YYYY-MM-DD`.
    Date(String),
}

/// `[[repositories.issues.projects]]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProjectFile {
    /// Title of the project.
    pub title: String,
    /// Number of the project; default 1.
    pub number: Option<u64>,
    /// Field values by name.
    #[serde(default)]
    pub fields: BTreeMap<String, FieldFile>,
    /// Whether the card is archived.
    #[serde(default)]
    pub archived: bool,
}

/// `[[repositories.issues.comments]]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CommentFile {
    /// Who wrote it.
    pub author: String,
    /// Markdown.
    pub body: String,
}

/// `[[repositories.pulls]]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PullFile {
    /// Default: the next free number.
    pub number: Option<u64>,
    /// Title.
    pub title: String,
    /// Markdown.
    pub body: Option<String>,
    /// Default: the repository's owner.
    pub author: Option<String>,
    /// Head branch; must exist.
    pub head: String,
    /// Base branch; default the default branch.
    pub base: Option<String>,
    /// Draft or ready.
    #[serde(default)]
    pub draft: bool,
    /// `open` (default) or `closed`.
    pub state: Option<String>,
    /// Label names.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Reviews in order.
    #[serde(default)]
    pub reviews: Vec<ReviewFile>,
}

/// `[[repositories.pulls.reviews]]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReviewFile {
    /// Who reviewed.
    pub author: String,
    /// `APPROVED`, `CHANGES_REQUESTED`, `COMMENTED`, `DISMISSED`.
    pub state: String,
    /// Text.
    #[serde(default)]
    pub body: String,
    /// Comments on lines and files; each begins a thread.
    #[serde(default)]
    pub comments: Vec<ThreadFile>,
}

/// `[[repositories.pulls.reviews.comments]]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadFile {
    /// The file.
    pub path: String,
    /// The line, from 1; absent = on the whole file.
    pub line: Option<u64>,
    /// The first of several lines.
    pub start_line: Option<u64>,
    /// `RIGHT` (default: the branch's line) or `LEFT` (the base's).
    pub side: Option<String>,
    /// Markdown.
    pub body: String,
}

/// `[model]`.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelFile {
    /// Keys that are accepted; empty = any key that is not empty.
    pub api_keys: Vec<String>,
    /// Model names that exist; empty = any.
    pub names: Vec<String>,
    /// Replies in order.
    pub replies: Vec<ReplyFile>,
}

/// `[[model.replies]]`: one scripted reply. What is not said takes the usual form of the wire.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplyFile {
    /// Only for this model; absent = for any.
    pub model: Option<String>,
    /// Only for requests like this; absent = for any.
    pub when: Option<WhenFile>,
    /// How often it may be given; default 1, 0 = for ever.
    pub times: Option<u32>,
    /// Reasoning shown before the answer.
    pub thinking: Option<String>,
    /// Text of the answer.
    pub text: Option<String>,
    /// Tool calls, after the text.
    pub tool_calls: Vec<ToolCallFile>,
    /// Arguments of a call of `agent__final_report`, after the other calls.
    pub final_report: Option<Value>,
    /// Why it stops: `end`, `tool_calls`, `length`, `refusal`, `stop_sequence`, `pause`; default by content.
    pub stop: Option<StopFile>,
    /// Tokens; default: estimated from the texts.
    pub usage: Option<UsageFile>,
    /// An HTTP error in the provider's shape instead of an answer.
    pub error: Option<ErrorFile>,
    /// A body that is sent as it is, with status 200, instead of an answer.
    pub garbage: Option<String>,
    /// Where the connection ends: `before_headers`, `after_headers`, `mid_stream`.
    pub drop: Option<CutFile>,
    /// Where the answer stops without ending: `before_headers`, `after_headers`, `mid_stream`.
    pub hang: Option<CutFile>,
    /// Pause before the answer begins.
    pub delay_ms: u64,
    /// Pause between the pieces of a stream.
    pub chunk_delay_ms: u64,
    /// Values taken from the request, for `${name}` in texts and arguments: name → regular expression, of which the first group (or the whole match) of the last match counts.
    pub capture: BTreeMap<String, String>,
}

/// What a request must look like.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct WhenFile {
    /// Text in the messages after the model's last one (user messages and tool results).
    pub contains: Option<String>,
    /// Text that must not be there.
    pub lacks: Option<String>,
    /// Text anywhere in the conversation, the system prompt included.
    pub anywhere: Option<String>,
    /// A tool that is offered.
    pub offers: Option<String>,
    /// How often the model has answered in this conversation, plus one.
    pub turn: Option<usize>,
}

/// One tool call.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolCallFile {
    /// Tool name.
    pub name: String,
    /// Arguments; default `{}`.
    pub arguments: Option<Value>,
    /// Argument text that is sent as it is, broken JSON for example.
    pub raw: Option<String>,
    /// Call id; default: made up, unique.
    pub id: Option<String>,
}

/// Why a model stops, in no provider's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopFile {
    /// It said what it had to say.
    End,
    /// It wants tools run.
    ToolCalls,
    /// It ran into the output limit.
    Length,
    /// It will not answer.
    Refusal,
    /// It met a stop sequence.
    StopSequence,
    /// It paused a long turn.
    Pause,
}

/// Tokens of one reply. `input` is what was not in the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct UsageFile {
    /// Input tokens that were neither read from nor written to the cache.
    pub input: u64,
    /// Output tokens, reasoning included.
    pub output: u64,
    /// Input tokens read from the cache.
    pub cache_read: u64,
    /// Input tokens written to the cache.
    pub cache_write: u64,
    /// Reasoning tokens among the output.
    pub reasoning: u64,
}

/// An HTTP error of a provider.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorFile {
    /// HTTP status.
    pub status: u16,
    /// Message; default: what providers usually say.
    pub message: Option<String>,
    /// `Retry-After` in seconds.
    pub retry_after: Option<u64>,
    /// In a stream: the error comes as an event after the first piece, with status 200.
    #[serde(default)]
    pub in_stream: bool,
}

/// Where something stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CutFile {
    /// Before the first byte.
    BeforeHeaders,
    /// After the response's head.
    AfterHeaders,
    /// In the middle of the body.
    MidStream,
}

/// `[[faults]]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FaultFile {
    /// Method; absent = any. `HOOK` = the delivery of a webhook, whose path is `/hooks/EVENT`: `drop` loses it, `double` sends it twice, `delay` sends it late.
    pub method: Option<String>,
    /// Glob over the path (`/repos/*/issues`, `/graphql`, `/git/**`, `/model/**`, `/hooks/issues`).
    pub path: String,
    /// Text the request's body must contain.
    pub contains: Option<String>,
    /// Matching requests that pass first.
    #[serde(default)]
    pub skip: u32,
    /// How many fail; default 1, 0 = all from then on.
    pub times: Option<u32>,
    /// What happens.
    pub kind: FaultKindFile,
    /// HTTP status, for `status`.
    pub status: Option<u16>,
    /// Extra headers, for `status`.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Body, for `status` and `garbage`: a string as it is, anything else as JSON.
    pub body: Option<Value>,
    /// Seconds, for `secondary_limit`; default 1.
    pub retry_after: Option<u64>,
    /// Pause: before the answer, or between pieces for `slow` (default 50).
    pub delay_ms: Option<u64>,
}

/// The ways to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKindFile {
    /// Only the pause.
    Delay,
    /// An HTTP status.
    Status,
    /// 403 with `retry-after`, as GitHub's secondary limit answers.
    SecondaryLimit,
    /// 403 with nothing remaining, as GitHub's primary limit answers.
    PrimaryLimit,
    /// The connection ends unanswered; no effect.
    Drop,
    /// The request has its effect; the connection ends unanswered.
    LostReply,
    /// Half the reply arrives.
    Truncate,
    /// 200 with a wrong body.
    Garbage,
    /// The reply trickles.
    Slow,
    /// No answer ever.
    Hang,
    /// A webhook comes twice.
    Double,
}

/// The scenario that `agentd sim` serves when it is given none.
pub const EXAMPLE: &str = include_str!("../../templates/sim/example.toml");

impl Scenario {
    /// Reads a scenario from a `.toml` or `.json` file. Errors name the file and, where known, the line.
    pub fn from_file(path: &Path) -> Result<Self, SimError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SimError::Read { path: path.to_owned(), source })?;
        let mut scenario = Self::from_text(&text, path)?;
        scenario.directory = path.parent().map(Path::to_owned).unwrap_or_default();
        Ok(scenario)
    }

    /// Reads a scenario from text; `path` tells the format by its extension and appears in errors.
    pub fn from_text(text: &str, path: &Path) -> Result<Self, SimError> {
        let wrong = |line: usize, message: String| SimError::Parse { path: path.to_owned(), line, message };
        if path.extension().is_some_and(|extension| extension == "json") {
            return serde_json::from_str(text).map_err(|error| wrong(error.line(), error.to_string()));
        }
        toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            wrong(line, error.message().to_owned())
        })
    }

    /// The built-in example.
    pub fn example() -> Result<Self, SimError> {
        Self::from_text(EXAMPLE, Path::new("example.toml"))
    }
}
