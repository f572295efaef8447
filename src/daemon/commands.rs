//! Comment commands: `/agentd run`, `retry`, `extend`, `stop`, `approve`, from people who may trigger.

use chrono::{DateTime, TimeDelta, Utc};

use super::admission::Admission;
use super::board::IssueRef;
use super::poll::Watch;
use super::pulls::issue_of_branch;
use super::state_format::{AskedBy, CommentsRead};
use super::watch::Daemon;
use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;
use crate::domain::stop::StopDetail;
use crate::github::{Client, Comment, Error, ErrorKind, Fetched};
use crate::lifecycle::approval::{self, Approval};
use crate::lifecycle::report;

/// The commands, for people who wrote another one.
const KNOWN: &str = "`/agentd run` or `/agentd retry` starts a run on the issue's branch, `/agentd extend` gives the present \
                     one as much again of each budget or starts another one, `/agentd stop` asks the present one for its \
                     last report, `/agentd approve HASH` lets a call run that waits for an approval";

/// What a person wants.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Command {
    /// A run: the first, or another one on the same branch after a failure.
    Run,
    /// More budget: for the run that works, else for one more on the same branch.
    Extend,
    /// The end of the run, with one last report; of a queued issue its label off.
    Stop,
    /// A word that is none.
    Unknown,
    /// A grant for the proposal of this hash, or of these first digits; nothing is executed by it (P-037).
    Approve(String),
}

/// The command of a comment: its first line, `/agentd WORD …`. Anything else is conversation.
fn command(body: &str) -> Option<Command> {
    let mut words = body.trim_start().lines().next()?.split_whitespace();
    if !words.next()?.eq_ignore_ascii_case("/agentd") {
        return None;
    }
    let word = words.next()?.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).to_ascii_lowercase();
    match word.as_str() {
        "run" | "retry" => Some(Command::Run),
        "extend" => Some(Command::Extend),
        "stop" => Some(Command::Stop),
        "approve" => Some(Command::Approve(proposal(words.next().unwrap_or_default()))),
        _ => Some(Command::Unknown),
    }
}

/// The hash in a word, as people copy it: in code quotes, with a full stop.
fn proposal(word: &str) -> String {
    word.chars().filter(char::is_ascii_hexdigit).collect()
}

impl Watch {
    /// Reads what was written since the last tick; an unchanged list costs nothing.
    pub(super) async fn read_comments(&mut self, client: &Client, now: DateTime<Utc>) {
        if self.without_comments || !self.is_fresh() {
            return;
        }
        match self.comments_since(client, now).await {
            Ok(new) => self.heard.extend(new),
            Err(error) => {
                self.without_comments = matches!(error.kind, ErrorKind::NotFound | ErrorKind::Gone);
                tracing::debug!(repo = %self.watched.name, %error, "the comments could not be read");
            }
        }
    }

    async fn comments_since(&mut self, client: &Client, now: DateTime<Utc>) -> Result<Vec<Comment>, Error> {
        let repo = &self.watched.name;
        let read = match self.state.comments.clone() {
            Some(read) => read,
            None => {
                // By GitHub's own ids and times: this machine's clock may be another.
                let newest = client.newest_comment(repo).await?;
                let since = newest.as_ref().and_then(|one| one.updated_at);
                CommentsRead {
                    since: since.unwrap_or(now - TimeDelta::days(1)),
                    last_id: newest.map_or(0, |one| one.id),
                    etag: None,
                }
            }
        };
        let (comments, etag) = match client.recent_comments(repo, read.since, read.etag.as_deref()).await? {
            Fetched::Unchanged => return Ok(Vec::new()),
            Fetched::Fresh(comments, etag) => (comments, etag),
        };
        let newest = comments.iter().filter_map(|one| one.updated_at).max().unwrap_or(read.since);
        let since = newest.max(read.since);
        self.state.comments = Some(CommentsRead {
            since,
            last_id: comments.iter().map(|one| one.id).max().unwrap_or(0).max(read.last_id),
            // The tag belongs to the address, and the address holds `since`.
            etag: etag.filter(|_| since == read.since),
        });
        Ok(comments.into_iter().filter(|one| one.id > read.last_id).collect())
    }
}

impl Daemon {
    /// Does what permitted people want.
    pub(super) async fn heed_comments(&mut self) {
        let heard: Vec<(RepoName, Comment)> = self
            .watches
            .iter_mut()
            .flat_map(|watch| {
                let repo = watch.watched.name.clone();
                std::mem::take(&mut watch.heard).into_iter().map(move |comment| (repo.clone(), comment))
            })
            .collect();
        if heard.is_empty() {
            return;
        }
        // Noted before it is done: a command is followed at most once.
        self.save();
        for (repo, comment) in heard {
            self.heed(&repo, &comment).await;
        }
    }

    async fn heed(&mut self, repo: &RepoName, comment: &Comment) {
        let Some(command) = command(&comment.body) else { return };
        let (Some(author), Some(number)) = (&comment.author, comment.number) else { return };
        if author.bot {
            return;
        }
        let client = self.quick_client();
        let issue = IssueRef { repo: repo.clone(), number: self.issue_behind(repo, number).await };
        let needs = self.parts.min_permission;
        let may = match client.permission(repo, &author.login).await {
            Ok(may) => may,
            Err(error) => {
                tracing::warn!(%issue, %error, "a command is not followed: what its author may do could not be read");
                return;
            }
        };
        if may < needs {
            let text = format!(
                "{} has the permission \"{}\", and commands take \"{}\".",
                author.login,
                may.as_str(),
                needs.as_str()
            );
            return self.answer(&issue, number, &text).await;
        }
        tracing::info!(%issue, ?command, by = author.login, "a command in a comment");
        let by = AskedBy { login: author.login.clone(), id: author.id };
        match command {
            Command::Run => {
                let text = self.run_for(&issue, by).await;
                self.answer(&issue, number, &text).await;
            }
            Command::Extend => {
                let text = match self.extend(&issue, &by.login) {
                    Some(text) => text,
                    None => self.run_for(&issue, by).await,
                };
                self.answer(&issue, number, &text).await;
            }
            Command::Stop => self.stop_for(&issue, number, &by.login).await,
            Command::Unknown => {
                self.answer(&issue, number, &format!("That is no command. {KNOWN}.")).await;
            }
            Command::Approve(proposal) => {
                let text = self.approve_for(&issue, proposal, by).await;
                self.answer(&issue, number, &text).await;
            }
        }
    }

    /// A comment on the issue's own pull request is about the issue.
    async fn issue_behind(&self, repo: &RepoName, number: u64) -> u64 {
        let Ok(pull) = self.quick_client().pull(repo, number).await else { return number };
        issue_of_branch(&pull.head).unwrap_or(number)
    }

    /// Gives the run that works more; gives what is to be told. `None` = there is no run.
    fn extend(&self, issue: &IssueRef, by: &str) -> Option<String> {
        let live = self.supervisor.get(issue)?;
        Some(match live.control.extender.extend(by) {
            Ok(Some(budgets)) => {
                format!("{by} gave the run as much again of each budget: it may take {} now.", budgets.all_shown())
            }
            Ok(None) => "The run has not begun to work on it yet, or does not any more. When it has ended, `/agentd extend` \
                         starts another one on the same branch, with a fresh budget."
                .to_owned(),
            Err(error) => format!("The run could not be given more: {error}."),
        })
    }

    /// Queues a run; gives what is to be told.
    async fn run_for(&mut self, issue: &IssueRef, by: AskedBy) -> String {
        if self.supervisor.get(issue).is_some() {
            return "A run works on it already. When it has ended, `/agentd extend` starts another one on the same \
                    branch, with a fresh budget."
                .to_owned();
        }
        let client = self.quick_client();
        let trigger = self.parts.labels.trigger.clone();
        let labelled = match client.issue(&issue.repo, issue.number).await {
            Ok(fresh) if fresh.issue.open => client.add_labels(&issue.repo, issue.number, &[&trigger]).await,
            Ok(_) => return "The issue is closed; open it again first.".to_owned(),
            Err(error) => Err(error),
        };
        if let Err(error) = labelled {
            tracing::warn!(%issue, %error, "a command could not be followed");
            return format!("The run that {} asked for could not be queued: {error}.", by.login);
        }
        let text = format!("A run is queued for {}; the status comment says how it goes.", by.login);
        if let Some(watch) = self.watch_of(&issue.repo) {
            let memory = watch.state.issues.entry(issue.number).or_default();
            memory.asked_by = Some(by);
            memory.back_off = None;
            memory.parked = None;
        }
        // The list in hand does not show it yet.
        self.wake.notify_one();
        text
    }

    /// Grants, and has the issue worked on again where nothing works on it: only a run that proposes the very same uses
    /// the grant. Gives what is to be told.
    async fn approve_for(&mut self, issue: &IssueRef, proposal: String, by: AskedBy) -> String {
        let approver = Admission::principal_of(&by.login, by.id);
        let approval = Approval { proposal, approver, holds: approval::HOLDS };
        match (self.parts.approve)(issue.clone(), approval).await {
            Err(refused) => refused,
            Ok(told) if self.supervisor.get(issue).is_some() => {
                format!("{told} The run that works now may use it.")
            }
            Ok(told) => format!("{told} {}", self.run_for(issue, by).await),
        }
    }

    async fn stop_for(&mut self, issue: &IssueRef, asked_on: u64, by: &str) {
        if let Some(live) = self.supervisor.get(issue) {
            live.control.stop(StopDetail::UserStop);
            let text = format!("{by} asked the run to stop; it gives one last report and ends.");
            return self.answer(issue, asked_on, &text).await;
        }
        let trigger = self.parts.labels.trigger.clone();
        let queued = self.parts.labels.queued.clone();
        let client = self.quick_client();
        let waits = self.watch_of(&issue.repo).is_some_and(|watch| watch.candidate(issue.number).is_some());
        if !waits {
            return self.answer(issue, asked_on, "Nothing runs and nothing waits for this issue.").await;
        }
        for label in [&trigger, &queued] {
            if let Err(error) = client.remove_label(&issue.repo, issue.number, label).await {
                tracing::warn!(%issue, %error, "a label could not be taken off");
            }
        }
        if let Some(watch) = self.watch_of(&issue.repo) {
            watch.drop_candidate(issue.number);
        }
        let text =
            format!("{by} took it out of the queue; nothing will run until the label is put on again.");
        self.answer(issue, asked_on, &text).await;
    }

    /// One comment of this kind an issue, edited in place (D84).
    async fn answer(&self, issue: &IssueRef, on: u64, text: &str) {
        let marker = report::request_marker(&IssueKey::Number(issue.number), "command");
        if let Err(error) = self.quick_client().settle_comment(&issue.repo, on, &marker, text).await {
            tracing::warn!(%issue, %error, "a command could not be answered");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_first_line_that_says_so_is_a_command() {
        assert_eq!(command("/agentd run"), Some(Command::Run));
        assert_eq!(command("  /AgentD Retry please\nthank you"), Some(Command::Run));
        assert_eq!(command("/agentd retry, please"), Some(Command::Run));
        assert_eq!(command("/agentd extend!"), Some(Command::Extend));
        assert_eq!(command("/agentd stop"), Some(Command::Stop));
        assert_eq!(command("/agentd approve abc"), Some(Command::Approve("abc".into())));
        assert_eq!(command("/agentd approve `0a1b2c3d`."), Some(Command::Approve("0a1b2c3d".into())));
        assert_eq!(command("/agentd approve"), Some(Command::Approve(String::new())));
        assert_eq!(command("/agentd dance"), Some(Command::Unknown));
        for talk in
            ["", "run", "> /agentd run", "say /agentd run", "/agentd", "text\n/agentd run", "/agentdrun"]
        {
            assert_eq!(command(talk), None, "{talk}");
        }
    }
}
