//! Comment commands: `/agentd run`, `retry`, `extend`, `stop`, `approve`, from people who may trigger.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};

use super::admission::Admission;
use super::main_loop::Daemon;
use super::poll::Watch;
use super::pulls::issue_of;
use super::snapshot::IssueRef;
use super::state_format::{AskedBy, CommentsRead};
use crate::domain::event::AskedHow;
use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;
use crate::domain::policy::ActorPermission;
use crate::domain::stop::StopDetail;
use crate::github::{Actor, Association, Client, Comment, Error, ErrorKind, Fetched};
use crate::issue::approval::{self, NewApproval};
use crate::record::rendering;

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
    /// A grant for the proposal with this hash, or with these first digits. It executes nothing (P-037).
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

/// How many strangers are looked up in a tick. Others wait for the next tick.
const STRANGERS: usize = 3;
/// Comments that wait for their author to be asked about, at most.
const PUT_OFF: usize = 500;
/// An issue is told at most this often that somebody may not command.
const REFUSED_AGAIN: TimeDelta = TimeDelta::hours(1);

/// Whom a tick has asked about.
#[derive(Debug, Default)]
struct Asked {
    known: BTreeMap<(RepoName, String), ActorPermission>,
    strangers: BTreeMap<RepoName, usize>,
    refused: BTreeSet<RepoName>,
}

impl Asked {
    /// The permission of somebody; `None` = enough strangers were looked up in this tick.
    async fn permission(
        &mut self,
        client: &Client,
        repo: &RepoName,
        comment: &Comment,
        login: &str,
    ) -> Result<Option<ActorPermission>, Error> {
        let key = (repo.clone(), login.to_ascii_lowercase());
        if let Some(may) = self.known.get(&key) {
            return Ok(Some(*may));
        }
        if comment.association == Association::Stranger {
            let strangers = self.strangers.entry(repo.clone()).or_default();
            if *strangers >= STRANGERS {
                return Ok(None);
            }
            *strangers += 1;
        }
        let may = client.permission(repo, login).await?;
        self.known.insert(key, may);
        Ok(Some(may))
    }
}

/// Commands of known members of the repository come first; otherwise the order of writing counts.
fn by_trust(mut received: Vec<(RepoName, Comment)>) -> Vec<(RepoName, Comment)> {
    received.sort_by_key(|(_, comment)| comment.association);
    received
}

impl Watch {
    /// Keeps a command until its author can be looked up. If there are too many, the latest is ignored.
    fn put_off(&mut self, comment: Comment) {
        if self.received.len() < PUT_OFF {
            self.received.push(comment);
        }
    }

    /// Whether an issue may be told now that somebody may not; notes that it is.
    fn may_refuse(&mut self, number: u64, now: DateTime<Utc>) -> bool {
        // A clock that was set back must not make it mute.
        let holds = |at: &DateTime<Utc>| *at <= now && now - *at < REFUSED_AGAIN;
        self.refused.retain(|_, at| holds(at));
        if self.refused.contains_key(&number) {
            return false;
        }
        self.refused.insert(number, now);
        true
    }

    /// Reads what was written since the last tick; an unchanged list costs nothing.
    pub(super) async fn read_comments(&mut self, client: &Client, now: DateTime<Utc>) {
        if self.without_comments || !self.is_fresh() {
            return;
        }
        match self.comments_since(client, now).await {
            // What commands nothing costs nothing.
            Ok(new) => self.received.extend(new.into_iter().filter(|one| command(&one.body).is_some())),
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
        let received: Vec<(RepoName, Comment)> = self
            .watches
            .iter_mut()
            .flat_map(|watch| {
                let repo = watch.watched.name.clone();
                std::mem::take(&mut watch.received).into_iter().map(move |comment| (repo.clone(), comment))
            })
            .collect();
        if received.is_empty() {
            return;
        }
        // Noted before it is done: a command is followed at most once.
        self.save();
        let mut asked = Asked::default();
        for (repo, comment) in by_trust(received) {
            if !self.heed(&repo, &comment, &mut asked).await
                && let Some(watch) = self.watch_of(&repo)
            {
                watch.put_off(comment);
            }
        }
    }

    /// Follows a command, refuses it, or ignores it. False = its author must be looked up in a later tick.
    async fn heed(&mut self, repo: &RepoName, comment: &Comment, asked: &mut Asked) -> bool {
        let Some(command) = command(&comment.body) else { return true };
        let (Some(author), Some(number)) = (&comment.author, comment.number) else { return true };
        if author.bot {
            return true;
        }
        let client = self.quick_client();
        let may = match asked.permission(&client, repo, comment, &author.login).await {
            Ok(Some(may)) => may,
            Ok(None) => return false,
            Err(error) => {
                tracing::warn!(%repo, number, %error, "a command is not followed: what its author may do could not be read");
                return true;
            }
        };
        if may < self.deps.min_permission {
            if !asked.refused.contains(repo) && self.refuse(repo, comment, &author.login, may).await {
                asked.refused.insert(repo.clone());
            }
            return true;
        }
        let Some(issue) = self.issue_behind(repo, number, comment.on_pull).await else {
            tracing::info!(%repo, number, by = author.login, "a command on a pull request that is not agentd's is passed over");
            return true;
        };
        self.follow(command, (issue, number), comment, author).await;
        true
    }

    /// Tells people without permission that they have none: at most once an hour for an issue and once a tick for a
    /// repository, so that strangers cannot make agentd write. Under pull requests it says nothing. True = it was said.
    async fn refuse(
        &mut self,
        repo: &RepoName,
        comment: &Comment,
        login: &str,
        may: ActorPermission,
    ) -> bool {
        let (needs, now) = (self.deps.min_permission, self.deps.clock.now());
        let Some(number) = comment.number.filter(|_| comment.on_pull == Some(false)) else { return false };
        if !self.watch_of(repo).is_some_and(|watch| watch.may_refuse(number, now)) {
            tracing::debug!(%repo, number, by = login, "a command of somebody who may not is passed over");
            return false;
        }
        let text = format!(
            "{login} has the permission \"{}\", and commands take \"{}\".",
            may.as_str(),
            needs.as_str()
        );
        self.answer(&IssueRef { repo: repo.clone(), number }, number, &text).await;
        true
    }

    async fn follow(
        &mut self,
        command: Command,
        (issue, number): (IssueRef, u64),
        comment: &Comment,
        author: &Actor,
    ) {
        tracing::info!(%issue, ?command, by = author.login, "a command in a comment");
        let by = AskedBy {
            login: author.login.clone(),
            id: author.id,
            at: comment.created_at,
            how: AskedHow::Comment,
        };
        use crate::domain::command::{Command as Said, Extension};
        let id = crate::domain::remark::RemarkId::Comment(comment.id);
        let text = match Said::of(&comment.body) {
            Some(Said::Extend(Extension::By(amount))) => {
                Some(self.extend_by(&issue, amount, by.clone(), id).await)
            }
            Some(Said::Extend(Extension::Unreadable(said))) => Some(format!(
                "`{}` is no amount of US dollars, and nothing was changed.",
                said.replace('`', "'")
            )),
            _ => None,
        };
        if let Some(text) = text {
            return self.answer(&issue, number, &text).await;
        }
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

    /// The issue that a comment is about. For a pull request that agentd opened it is the issue of that pull request.
    /// `None` = another pull request, where commands do not count.
    async fn issue_behind(&self, repo: &RepoName, number: u64, on_pull: Option<bool>) -> Option<IssueRef> {
        let issue = |number: u64| IssueRef { repo: repo.clone(), number };
        if on_pull == Some(false) {
            return Some(issue(number));
        }
        match self.quick_client().pull(repo, number).await {
            Ok(pull) => issue_of(&pull).map(issue),
            Err(_) => on_pull.is_none().then(|| issue(number)),
        }
    }

    /// Gives the working run more budget. Gives the answer for people. `None` = no run works.
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
        let login = by.login.clone();
        match self.queue(issue, by).await {
            Ok(true) => format!("A run is queued for {login}; the status comment says how it goes."),
            Ok(false) => "The issue is closed; open it again first.".to_owned(),
            Err(error) => {
                tracing::warn!(%issue, %error, "a command could not be followed");
                format!("The run that {login} asked for could not be queued: {error}.")
            }
        }
    }

    /// Has an issue worked on again for somebody. False = it is closed.
    pub(super) async fn queue(&mut self, issue: &IssueRef, by: AskedBy) -> Result<bool, Error> {
        let client = self.quick_client();
        let trigger = self.deps.labels.trigger.clone();
        if !client.issue(&issue.repo, issue.number).await?.issue.open {
            return Ok(false);
        }
        client.add_labels(&issue.repo, issue.number, &[&trigger]).await?;
        if let Some(watch) = self.watch_of(&issue.repo) {
            let memory = watch.state.issues.entry(issue.number).or_default();
            memory.asked_by = Some(by);
            memory.back_off = None;
            memory.parked = None;
        }
        // The list in hand does not show it yet.
        self.hints.look_now();
        Ok(true)
    }

    /// Grants the approval, and starts the issue again if no run works on it. Only a run that makes the same proposal
    /// uses the grant. Gives the answer for people.
    async fn approve_for(&mut self, issue: &IssueRef, proposal: String, by: AskedBy) -> String {
        let approver = Admission::principal_of(&by.login, by.id);
        let approval = NewApproval { proposal, approver, holds: approval::HOLDS };
        match (self.deps.approve)(issue.clone(), approval).await {
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
        let trigger = self.deps.labels.trigger.clone();
        let queued = self.deps.labels.queued.clone();
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
        let marker = rendering::request_marker(&IssueKey::Number(issue.number), "command");
        if let Err(error) = self.quick_client().ensure_comment(&issue.repo, on, &marker, text).await {
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
