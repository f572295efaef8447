//! The whole simulated world behind one lock, with the changes that more than one door makes, and the log of requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, SubsecRound as _, Utc};

use super::fault::Fault;
use super::logged_body::LoggedBody;
use super::model::script::Script;
use crate::sys::clock::{Clock, Stopwatch};

pub use super::check::{Annotation, Check, Job, Log};
pub use super::remark::{
    Comment, Edit, NewThread, REACTIONS, Reaction, Review, TextPlace, Thread, ThreadComment,
};
pub use super::resource::{
    App, Attachment, Event, FieldContent, FieldValue, HeadRepository, Hook, Issue, Label, ProjectItem, Pull,
    Repository, Role, Token, User,
};

/// One request the simulator answered (model requests are in [`ModelRequest`] too).
#[derive(Debug, Clone)]
pub struct Request {
    /// Order of arrival, from 1.
    pub seq: u64,
    /// Time since the simulator started.
    pub at: Duration,
    /// Method.
    pub method: String,
    /// Path and query as received.
    pub target: String,
    /// Login of the token, if any was recognised.
    pub login: Option<String>,
    /// Headers, names in lower case; credentials replaced by `***`.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: LoggedBody,
    /// Status of the answer; 0 while unanswered or when the connection was cut.
    pub status: u16,
    /// Whether it was counted against the primary rate limit.
    pub counted: bool,
}

/// One request to the scripted model.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The number of its [`Request`].
    pub seq: u64,
    /// Time since the simulator started, when its head had arrived.
    pub at: Duration,
    /// `anthropic` or `openai`.
    pub wire: String,
    /// Model name asked for.
    pub model: String,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// The body as received.
    pub body: LoggedBody,
    /// Index of the scripted reply it got, if it got one.
    pub reply: Option<usize>,
}

/// Requests per hour and what is used up, by login and resource.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Requests an hour for each login.
    pub per_hour: u64,
    /// Mutations allowed in a minute before the secondary limit answers; 0 = no secondary limit.
    pub writes_per_minute: u64,
    /// Used by (login, resource).
    pub used: BTreeMap<(String, String), u64>,
    /// Start of the running hour.
    pub window: DateTime<Utc>,
    /// Times of recent mutations, since the simulator started.
    pub writes: Vec<Duration>,
}

/// Everything, behind one lock.
#[derive(Debug)]
pub struct World {
    /// `http://127.0.0.1:PORT`.
    pub base: String,
    /// The same of the second origin, where logs and images are.
    pub second: String,
    /// Files that people put into texts.
    pub attachments: Vec<Attachment>,
    /// Accounts.
    pub users: Vec<User>,
    /// Tokens.
    pub tokens: Vec<Token>,
    /// GitHub Apps.
    pub apps: Vec<App>,
    /// Repositories.
    pub repositories: Vec<Repository>,
    /// Faults that wait for their request.
    pub faults: Vec<Fault>,
    /// Rate limits.
    pub limits: Limits,
    /// The model's replies.
    pub script: Script,
    /// Every request in order of arrival.
    pub requests: Vec<Arc<Request>>,
    /// Requests to the model in order of arrival.
    pub model_requests: Vec<Arc<ModelRequest>>,
    /// What callers did that the real services would not understand.
    pub violations: Vec<String>,
    /// The time shown to callers.
    pub clock: Clock,
    /// Runs since the simulator started, whatever the clock shows.
    pub watch: Stopwatch,
    /// The time that a change by the admin API happens at, where it says one.
    pub pretended: Option<DateTime<Utc>>,
    next_id: u64,
}

impl World {
    /// An empty world.
    pub fn new(base: String, clock: Clock) -> Self {
        Self {
            base,
            second: String::new(),
            attachments: Vec::new(),
            users: Vec::new(),
            tokens: Vec::new(),
            apps: Vec::new(),
            repositories: Vec::new(),
            faults: Vec::new(),
            limits: Limits {
                per_hour: 5000,
                writes_per_minute: 0,
                used: BTreeMap::new(),
                window: clock.now().trunc_subsecs(0),
                writes: Vec::new(),
            },
            script: Script::default(),
            requests: Vec::new(),
            model_requests: Vec::new(),
            violations: Vec::new(),
            clock,
            watch: Stopwatch::start(),
            pretended: None,
            next_id: 1000,
        }
    }

    /// The time in whole seconds, as GitHub writes it.
    pub fn now(&self) -> DateTime<Utc> {
        self.pretended.unwrap_or_else(|| self.clock.now()).trunc_subsecs(0)
    }

    /// A database id that nothing else has.
    pub fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// An entry of the log of requests by its number, to add what became known since.
    pub fn request_mut(&mut self, seq: u64) -> Option<&mut Request> {
        let index = usize::try_from(seq.checked_sub(1)?).ok()?;
        self.requests.get_mut(index).map(Arc::make_mut)
    }

    /// Writes down that a caller broke the contract.
    pub fn violation(&mut self, text: impl Into<String>) {
        self.violations.push(text.into());
    }

    /// The account, made on first mention so that scenarios need not list everybody.
    pub fn user(&mut self, login: &str) -> User {
        if let Some(user) = self.find_user(login) {
            return user.clone();
        }
        let id = self.new_id();
        let kind = if login.ends_with("[bot]") { "Bot" } else { "User" };
        let user = User { id, login: login.to_owned(), name: None, kind: kind.to_owned() };
        self.users.push(user.clone());
        user
    }

    /// The account, if it exists.
    pub fn find_user(&self, login: &str) -> Option<&User> {
        self.users.iter().find(|user| user.login.eq_ignore_ascii_case(login))
    }

    /// Index of a repository by owner and name, whatever the case.
    pub fn repository_index(&self, owner: &str, name: &str) -> Option<usize> {
        self.repositories
            .iter()
            .position(|repo| repo.owner.eq_ignore_ascii_case(owner) && repo.name.eq_ignore_ascii_case(name))
    }

    /// A repository by `owner/name`.
    pub fn repository(&self, full_name: &str) -> Option<&Repository> {
        let (owner, name) = full_name.split_once('/')?;
        self.repository_index(owner, name).and_then(|index| self.repositories.get(index))
    }

    /// A repository by `owner/name`, to change.
    pub fn repository_mut(&mut self, full_name: &str) -> Option<&mut Repository> {
        let (owner, name) = full_name.split_once('/')?;
        let index = self.repository_index(owner, name)?;
        self.repositories.get_mut(index)
    }

    /// The token, if it exists and has not expired.
    pub fn token(&self, secret: &str) -> Option<&Token> {
        self.tokens
            .iter()
            .find(|token| token.secret == secret && token.expires_at.is_none_or(|end| end > self.now()))
    }

    /// What a login may do in a repository, before a token narrows it.
    pub fn role(&self, login: &str, repo: &Repository) -> Role {
        if repo.owner.eq_ignore_ascii_case(login) {
            return Role::Admin;
        }
        let granted = repo
            .collaborators
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(login))
            .map(|(_, role)| *role);
        granted.unwrap_or(if repo.private { Role::None } else { Role::Read })
    }

    /// Whether a token may `level` (`read`/`write`) the named permission of a repository; `None` = it cannot see it at all.
    pub fn allows(
        &self,
        token: Option<&Token>,
        repo: &Repository,
        permission: &str,
        level: &str,
    ) -> Option<bool> {
        let Some(token) = token else {
            return if repo.private { None } else { Some(level == "read") };
        };
        let reaches = token
            .repositories
            .as_ref()
            .is_none_or(|names| names.iter().any(|name| name.eq_ignore_ascii_case(&repo.full_name())));
        let role = if token.installation.is_some() {
            if reaches { Role::Write } else { Role::None }
        } else {
            self.role(&token.login, repo)
        };
        if role == Role::None || (!reaches && repo.private) {
            return None;
        }
        if level == "read" && !repo.private {
            return Some(true);
        }
        let granted = match &token.permissions {
            None => true,
            Some(granted) => match granted.get(permission).map(String::as_str) {
                Some("write" | "admin") => true,
                Some("read") => level == "read",
                _ => permission == "metadata",
            },
        };
        let needed = match (permission, level) {
            (_, "read") => Role::Read,
            ("issues", _) => Role::Triage,
            _ => Role::Write,
        };
        Some(granted && reaches && role >= needed)
    }

    /// Puts a label on an issue or takes it off, with the event; makes the label where it is new. False = no change.
    pub fn set_label(&mut self, repo: usize, number: u64, label: &str, actor: &str, on: bool) -> bool {
        if on {
            self.ensure_label(repo, label, None);
        }
        let (id, at) = (self.new_id(), self.now());
        let Some(issue) = self.repositories.get_mut(repo).and_then(|repo| repo.issues.get_mut(&number))
        else {
            return false;
        };
        let place = issue.labels.iter().position(|name| name.eq_ignore_ascii_case(label));
        let kind = match (place, on) {
            (Some(_), true) | (None, false) => return false,
            (None, true) => {
                issue.labels.push(label.to_owned());
                "labeled"
            }
            (Some(place), false) => {
                issue.labels.remove(place);
                "unlabeled"
            }
        };
        issue.events.push(Event {
            id,
            kind: kind.to_owned(),
            actor: actor.to_owned(),
            label: Some(label.to_owned()),
            rename: None,
            at,
        });
        issue.updated_at = at;
        true
    }

    /// The repository's label of that name, made grey where it is new.
    pub fn ensure_label(&mut self, repo: usize, name: &str, color: Option<&str>) {
        let id = self.new_id();
        if let Some(repo) = self.repositories.get_mut(repo)
            && repo.label(name).is_none()
        {
            repo.labels.push(Label {
                id,
                name: name.to_owned(),
                color: color.unwrap_or("ededed").to_owned(),
                description: None,
            });
        }
    }

    /// Opens or closes an issue, with the event. False = no change.
    pub fn set_open(
        &mut self,
        repo: usize,
        number: u64,
        open: bool,
        reason: Option<&str>,
        actor: &str,
    ) -> bool {
        let (id, at) = (self.new_id(), self.now());
        let Some(issue) = self.repositories.get_mut(repo).and_then(|repo| repo.issues.get_mut(&number))
        else {
            return false;
        };
        if issue.open == open {
            return false;
        }
        issue.open = open;
        issue.state_reason = Some(reason.unwrap_or(if open { "reopened" } else { "completed" }).to_owned());
        issue.closed_at = (!open).then_some(at);
        issue.closed_by = (!open).then(|| actor.to_owned());
        issue.updated_at = at;
        let kind = if open { "reopened" } else { "closed" };
        issue.events.push(Event {
            id,
            kind: kind.to_owned(),
            actor: actor.to_owned(),
            label: None,
            rename: None,
            at,
        });
        true
    }

    /// Changes title or body as `editor`, with the history that GitHub keeps. False = there is no such issue.
    pub fn edit_text(
        &mut self,
        repo: usize,
        number: u64,
        editor: &str,
        title: Option<&str>,
        body: Option<&str>,
    ) -> bool {
        let ids = [self.new_id(), self.new_id(), self.new_id()];
        let at = self.now();
        let issue = self.repositories.get_mut(repo).and_then(|repo| repo.issues.get_mut(&number));
        let Some(issue) = issue else { return false };
        if let Some(title) = title.filter(|title| *title != issue.title) {
            let before = std::mem::replace(&mut issue.title, title.to_owned());
            issue.events.push(Event {
                id: ids[0],
                kind: "renamed".to_owned(),
                actor: editor.to_owned(),
                label: None,
                rename: Some((before, title.to_owned())),
                at,
            });
        }
        if let Some(body) = body.filter(|body| Some(*body) != issue.body.as_deref()) {
            if issue.edits.is_empty() {
                let (editor, body) = (issue.author.clone(), issue.body.clone());
                let opened =
                    Edit { id: ids[1], editor, body: Some(body.unwrap_or_default()), at: issue.created_at };
                issue.edits.push(opened);
            }
            issue.body = Some(body.to_owned());
            issue.edits.push(Edit { id: ids[2], editor: editor.to_owned(), body: Some(body.to_owned()), at });
        }
        issue.updated_at = at;
        true
    }

    /// Adds an open issue without labels and returns its number.
    pub fn add_issue(&mut self, repo: usize, author: &str, title: &str, body: Option<String>) -> Option<u64> {
        let number = self.repositories.get(repo)?.next_number();
        let issue = Issue::new(self.new_id(), number, author, title, body, self.now());
        self.repositories.get_mut(repo)?.issues.insert(number, issue);
        Some(number)
    }

    /// Sets one issue field; `None` clears it. A field keeps its id wherever it is used.
    pub fn set_field(&mut self, repo: usize, number: u64, name: &str, value: Option<FieldContent>) -> bool {
        let known = self
            .repositories
            .iter()
            .flat_map(|repo| repo.issues.values())
            .flat_map(|issue| &issue.fields)
            .find(|field| field.name == name)
            .map(|field| field.id);
        let id = known.unwrap_or_else(|| self.new_id());
        let at = self.now();
        let Some(issue) = self.repositories.get_mut(repo).and_then(|repo| repo.issues.get_mut(&number))
        else {
            return false;
        };
        issue.fields.retain(|field| field.name != name);
        if let Some(value) = value {
            issue.fields.push(FieldValue { id, name: name.to_owned(), value });
        }
        issue.updated_at = at;
        true
    }

    /// Sets one field of an issue's card in a project (made where new); `None` clears the value.
    pub fn set_project_field(
        &mut self,
        repo: usize,
        number: u64,
        (title, project): (&str, u64),
        name: &str,
        value: Option<FieldContent>,
    ) -> bool {
        let (item, field, at) = (self.new_id(), self.new_id(), self.now());
        let Some(issue) = self.repositories.get_mut(repo).and_then(|repo| repo.issues.get_mut(&number))
        else {
            return false;
        };
        if !issue.projects.iter().any(|item| item.title == title) {
            issue.projects.push(ProjectItem {
                id: item,
                title: title.to_owned(),
                number: project,
                archived: false,
                fields: Vec::new(),
            });
        }
        for item in issue.projects.iter_mut().filter(|item| item.title == title) {
            item.fields.retain(|field| field.name != name);
            if let Some(value) = value.clone() {
                item.fields.push(FieldValue { id: field, name: name.to_owned(), value });
            }
        }
        issue.updated_at = at;
        true
    }
}
