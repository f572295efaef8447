//! What a GitHub has: accounts, tokens, repositories, labels, issues, pull requests and their parts.

use std::collections::BTreeMap;
use std::path::PathBuf;

use chrono::{DateTime, Utc};

use super::branches::Branches;
use super::check::Check;
use super::remark::{Comment, Edit, Reaction, Review, Thread};

/// How much somebody may do in a repository; ordered from nothing to everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// No access: a private repository does not exist for them.
    None,
    /// May look.
    Read,
    /// May label and close issues.
    Triage,
    /// May push.
    Write,
    /// May manage without deleting.
    Maintain,
    /// May do everything.
    Admin,
}

impl Role {
    /// The role as GitHub spells it in `role_name`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Read => "read",
            Self::Triage => "triage",
            Self::Write => "write",
            Self::Maintain => "maintain",
            Self::Admin => "admin",
        }
    }

    /// The older four-value `permission` that stands beside `role_name`.
    pub fn permission(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Read | Self::Triage => "read",
            Self::Write | Self::Maintain => "write",
            Self::Admin => "admin",
        }
    }

    /// Reads a role's name; `None` when there is no such role.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "none" => Self::None,
            "read" => Self::Read,
            "triage" => Self::Triage,
            "write" => Self::Write,
            "maintain" => Self::Maintain,
            "admin" => Self::Admin,
            _ => return None,
        })
    }
}

/// An account.
#[derive(Debug, Clone)]
pub struct User {
    /// Database id.
    pub id: u64,
    /// Login, unique without regard to case.
    pub login: String,
    /// Shown name.
    pub name: Option<String>,
    /// `User`, `Bot` or `Organization`.
    pub kind: String,
}

/// A token and what it opens.
#[derive(Debug, Clone)]
pub struct Token {
    /// The secret itself.
    pub secret: String,
    /// Whose it is.
    pub login: String,
    /// Permissions by name (`contents`, `issues`, `pull_requests`, …) → `read`/`write`; `None` = all of the login's.
    pub permissions: Option<BTreeMap<String, String>>,
    /// Full names it reaches; `None` = all of the login's.
    pub repositories: Option<Vec<String>>,
    /// Set for a token of a GitHub App's installation.
    pub installation: Option<u64>,
    /// After this time it is answered with 401.
    pub expires_at: Option<DateTime<Utc>>,
}

/// A GitHub App with one installation.
#[derive(Debug, Clone)]
pub struct App {
    /// App id, the `iss` of its JWT.
    pub id: u64,
    /// Slug; its actor is `slug[bot]`.
    pub slug: String,
    /// Who owns it.
    pub owner: String,
    /// The installation's id.
    pub installation_id: u64,
    /// Permissions of its tokens.
    pub permissions: BTreeMap<String, String>,
    /// Repositories of its tokens; `None` = all.
    pub repositories: Option<Vec<String>>,
}

/// A repository: its issues, labels and the bare git repository behind it.
#[derive(Debug, Clone)]
pub struct Repository {
    /// Database id.
    pub id: u64,
    /// Owner's login.
    pub owner: String,
    /// Name without owner.
    pub name: String,
    /// Whether strangers can see it.
    pub private: bool,
    /// Archived repositories refuse writes.
    pub archived: bool,
    /// The branch `HEAD` names.
    pub default_branch: String,
    /// Where the bare repository lies.
    pub git_dir: PathBuf,
    /// What its branches point at.
    pub branches: Branches,
    /// Roles by login; the owner is always admin.
    pub collaborators: BTreeMap<String, Role>,
    /// Labels by name.
    pub labels: Vec<Label>,
    /// Issues and pull requests, by number.
    pub issues: BTreeMap<u64, Issue>,
    /// Commit statuses and check runs by commit or branch name.
    pub checks: Vec<Check>,
    /// Webhooks.
    pub hooks: Vec<Hook>,
    /// Branch patterns (`*` allowed) that refuse pushes.
    pub protected: Vec<String>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

impl Repository {
    /// `owner/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    /// The next free issue number.
    pub fn next_number(&self) -> u64 {
        self.issues.keys().next_back().map_or(1, |last| last + 1)
    }

    /// The label of that name, whatever its case.
    pub fn label(&self, name: &str) -> Option<&Label> {
        self.labels.iter().find(|label| label.name.eq_ignore_ascii_case(name))
    }
}

/// A label of a repository.
#[derive(Debug, Clone)]
pub struct Label {
    /// Database id.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Six hex digits.
    pub color: String,
    /// What it means.
    pub description: Option<String>,
}

/// An issue or, with `pull`, a pull request.
#[derive(Debug, Clone)]
pub struct Issue {
    /// Database id.
    pub id: u64,
    /// Number in its repository.
    pub number: u64,
    /// Title.
    pub title: String,
    /// Markdown.
    pub body: Option<String>,
    /// Open or closed.
    pub open: bool,
    /// `completed`, `not_planned`, `reopened`, `duplicate`.
    pub state_reason: Option<String>,
    /// Who opened it.
    pub author: String,
    /// Label names.
    pub labels: Vec<String>,
    /// Logins.
    pub assignees: Vec<String>,
    /// Whether comments are closed.
    pub locked: bool,
    /// Issue fields (REST `issue_field_values`).
    pub fields: Vec<FieldValue>,
    /// Where it stands in projects.
    pub projects: Vec<ProjectItem>,
    /// Numbers of issues that block it.
    pub blocked_by: Vec<u64>,
    /// Numbers of its sub-issues.
    pub sub_issues: Vec<u64>,
    /// Conversation.
    pub comments: Vec<Comment>,
    /// Labelled, closed, … in order.
    pub events: Vec<Event>,
    /// Revisions of the body in order, the one that it was opened with first; empty while it was never edited.
    pub edits: Vec<Edit>,
    /// Reactions to the body.
    pub reactions: Vec<Reaction>,
    /// Why it is locked: `off-topic`, `too heated`, `resolved`, `spam`.
    pub lock_reason: Option<String>,
    /// What it is when it is a pull request.
    pub pull: Option<Pull>,
    /// `owner/name#number` it was transferred to (answered with 301).
    pub moved_to: Option<String>,
    /// Deleted (answered with 410).
    pub deleted: bool,
    /// When it was opened.
    pub created_at: DateTime<Utc>,
    /// When anything last changed.
    pub updated_at: DateTime<Utc>,
    /// When it was closed.
    pub closed_at: Option<DateTime<Utc>>,
    /// Who closed it.
    pub closed_by: Option<String>,
}

/// A value of an issue field or a project field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldValue {
    /// Database id of the field.
    pub id: u64,
    /// Name of the field.
    pub name: String,
    /// The value with its type.
    pub value: FieldContent,
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldContent {
    /// Free text.
    Text(String),
    /// The name of the chosen option.
    SingleSelect(String),
    /// A number.
    Number(f64),
    /// `YYYY-MM-DD`.
    Date(String),
}

/// An issue's card in a Projects v2 project.
#[derive(Debug, Clone)]
pub struct ProjectItem {
    /// Database id of the item.
    pub id: u64,
    /// Title of the project.
    pub title: String,
    /// Number of the project.
    pub number: u64,
    /// Whether the card is archived.
    pub archived: bool,
    /// Its field values.
    pub fields: Vec<FieldValue>,
}

/// Where the head branch of a pull request is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HeadRepository {
    /// In the repository itself.
    #[default]
    Here,
    /// In a fork of this account's.
    Fork(String),
    /// In a fork of this account's that was deleted: GitHub says `null`.
    Deleted(String),
}

/// Something that happened to an issue.
#[derive(Debug, Clone)]
pub struct Event {
    /// Database id.
    pub id: u64,
    /// `labeled`, `unlabeled`, `closed`, `reopened`, `renamed`, …
    pub kind: String,
    /// Who did it.
    pub actor: String,
    /// The label, for `labeled` and `unlabeled`.
    pub label: Option<String>,
    /// What the title was and became, for `renamed`.
    pub rename: Option<(String, String)>,
    /// When.
    pub at: DateTime<Utc>,
}

/// What a pull request has beyond an issue.
#[derive(Debug, Clone, Default)]
pub struct Pull {
    /// Head branch.
    pub head: String,
    /// Where it is.
    pub head_repository: HeadRepository,
    /// Base branch.
    pub base: String,
    /// Commit the head was last seen at.
    pub head_sha: String,
    /// Commit the base was last seen at.
    pub base_sha: String,
    /// Draft or ready.
    pub draft: bool,
    /// When it was merged.
    pub merged_at: Option<DateTime<Utc>>,
    /// Who merged it.
    pub merged_by: Option<String>,
    /// The commit that merged it.
    pub merge_commit: Option<String>,
    /// Reviews in order.
    pub reviews: Vec<Review>,
    /// Threads in order.
    pub threads: Vec<Thread>,
    /// Logins that are asked for a review.
    pub requested_reviewers: Vec<String>,
}

impl Issue {
    /// An open issue, opened at `at`.
    pub fn new(
        id: u64,
        number: u64,
        author: &str,
        title: &str,
        body: Option<String>,
        at: DateTime<Utc>,
    ) -> Self {
        Self {
            id,
            number,
            title: title.to_owned(),
            body,
            open: true,
            state_reason: None,
            author: author.to_owned(),
            labels: Vec::new(),
            assignees: Vec::new(),
            locked: false,
            fields: Vec::new(),
            projects: Vec::new(),
            blocked_by: Vec::new(),
            sub_issues: Vec::new(),
            comments: Vec::new(),
            events: Vec::new(),
            edits: Vec::new(),
            reactions: Vec::new(),
            lock_reason: None,
            pull: None,
            moved_to: None,
            deleted: false,
            created_at: at,
            updated_at: at,
            closed_at: None,
            closed_by: None,
        }
    }
}

/// A file that somebody put into an issue or a comment.
#[derive(Debug, Clone)]
pub struct Attachment {
    /// Its id in links.
    pub id: String,
    /// Media type.
    pub kind: String,
    /// Its content.
    pub bytes: Vec<u8>,
    /// Whether strangers can see it without a signed link.
    pub public: bool,
}

/// A webhook of a repository.
#[derive(Debug, Clone)]
pub struct Hook {
    /// Database id.
    pub id: u64,
    /// Where deliveries go.
    pub url: String,
    /// What signs them.
    pub secret: String,
    /// Events; empty = all.
    pub events: Vec<String>,
}
