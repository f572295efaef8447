//! Comment commands: `/agentd run`, `retry`, `extend`, `stop`, `approve`, from people who may trigger.

use chrono::{DateTime, TimeDelta, Utc};

use super::board::IssueRef;
use super::state_format::{AskedBy, CommentsRead};
use super::watch::Daemon;
use crate::domain::issue::IssueKey;
use crate::domain::mapping::branch_of;
use crate::domain::name::RepoName;
use crate::domain::stop::StopDetail;
use crate::github::{Comment, ErrorKind, Fetched};

/// What a person wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    /// A run: the first, another one after a failure, or one more with a fresh budget on the same branch.
    Run,
    /// The end of the run, with one last report; of a queued issue its label off.
    Stop,
    /// A grant; given with `agentd runs approve`, where the proposal can be read.
    Approve,
}

/// The command of a comment: its first line, `/agentd WORD …`. Anything else is conversation.
fn command(body: &str) -> Option<Command> {
    let mut words = body.trim_start().lines().next()?.split_whitespace();
    if !words.next()?.eq_ignore_ascii_case("/agentd") {
        return None;
    }
    let word = words.next()?.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).to_ascii_lowercase();
    match word.as_str() {
        "run" | "retry" | "extend" => Some(Command::Run),
        "stop" => Some(Command::Stop),
        "approve" => Some(Command::Approve),
        _ => None,
    }
}

impl Daemon {
    /// Reads what was written since the last tick (an unchanged list costs nothing) and does what permitted people want.
    pub(super) async fn heed_comments(&mut self, now: DateTime<Utc>) {
        let client = self.quick_client();
        let repos: Vec<RepoName> = self.watches.iter().map(|watch| watch.watched.name.clone()).collect();
        for repo in repos {
            let Some(watch) = self.watch_of(&repo) else { continue };
            if watch.without_comments || !watch.is_fresh() {
                continue;
            }
            let read = match watch.state.comments.clone() {
                Some(read) => read,
                None => match client.newest_comment(&repo).await {
                    // By GitHub's own ids and times: this machine's clock may be another.
                    Ok(newest) => CommentsRead {
                        since: newest
                            .as_ref()
                            .and_then(|one| one.updated_at)
                            .unwrap_or(now - TimeDelta::days(1)),
                        last_id: newest.map_or(0, |one| one.id),
                        etag: None,
                    },
                    Err(error) => {
                        watch.without_comments = matches!(error.kind, ErrorKind::NotFound | ErrorKind::Gone);
                        tracing::debug!(%repo, %error, "the comments could not be read");
                        continue;
                    }
                },
            };
            let (comments, etag) = match client.recent_comments(&repo, read.since, read.etag.as_deref()).await
            {
                Ok(Fetched::Unchanged) => continue,
                Ok(Fetched::Fresh(comments, etag)) => (comments, etag),
                Err(error) => {
                    watch.without_comments = matches!(error.kind, ErrorKind::NotFound | ErrorKind::Gone);
                    tracing::debug!(%repo, %error, "the comments could not be read");
                    continue;
                }
            };
            let new: Vec<Comment> = comments.iter().filter(|one| one.id > read.last_id).cloned().collect();
            let next = CommentsRead {
                since: comments
                    .iter()
                    .filter_map(|one| one.updated_at)
                    .max()
                    .unwrap_or(read.since)
                    .max(read.since),
                last_id: comments.iter().map(|one| one.id).max().unwrap_or(0).max(read.last_id),
                etag: None,
            };
            // The tag belongs to the address, and the address holds `since`.
            let etag = if next.since == read.since { etag } else { None };
            watch.state.comments = Some(CommentsRead { etag, ..next });
            // Noted before it is done: a command is followed at most once.
            self.save();
            for comment in new {
                self.heed(&repo, &comment).await;
            }
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
        match command {
            Command::Run => {
                let by = AskedBy { login: author.login.clone(), id: author.id };
                self.run_for(&issue, number, by).await;
            }
            Command::Stop => self.stop_for(&issue, number).await,
            Command::Approve => {
                let text = "A proposal is approved where it can be read: `agentd runs approve RUN PROPOSAL_HASH` on the \
                            daemon's host, then `/agentd run` here.";
                self.answer(&issue, number, text).await;
            }
        }
    }

    /// A comment on the issue's own pull request is about the issue.
    async fn issue_behind(&self, repo: &RepoName, number: u64) -> u64 {
        let Ok(pull) = self.quick_client().pull(repo, number).await else { return number };
        let own = pull.head.strip_prefix("feature/issue-").and_then(|key| key.parse::<u64>().ok());
        own.filter(|issue| branch_of(&IssueKey::Number(*issue)).as_str() == pull.head).unwrap_or(number)
    }

    async fn run_for(&mut self, issue: &IssueRef, asked_on: u64, by: AskedBy) {
        if self.supervisor.get(issue).is_some() {
            return self.answer(issue, asked_on, "A run works on it already.").await;
        }
        let client = self.quick_client();
        let trigger = self.parts.labels.trigger.clone();
        let labelled = match client.issue(&issue.repo, issue.number).await {
            Ok(fresh) if fresh.issue.open => client.add_labels(&issue.repo, issue.number, &[&trigger]).await,
            Ok(_) => return self.answer(issue, asked_on, "The issue is closed; open it again first.").await,
            Err(error) => Err(error),
        };
        if let Err(error) = labelled {
            tracing::warn!(%issue, %error, "a command could not be followed");
            return;
        }
        if let Some(watch) = self.watch_of(&issue.repo) {
            let memory = watch.state.issues.entry(issue.number).or_default();
            memory.asked_by = Some(by);
            memory.back_off = None;
            memory.parked = None;
        }
        // The list in hand does not show it yet.
        self.wake.notify_one();
    }

    async fn stop_for(&mut self, issue: &IssueRef, asked_on: u64) {
        if let Some(live) = self.supervisor.get(issue) {
            live.control.stop(StopDetail::UserStop);
            return;
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
    }

    /// One comment of this kind an issue, edited in place (D84).
    async fn answer(&self, issue: &IssueRef, on: u64, text: &str) {
        let marker = format!("<!-- agentd:issue-{}:command -->", issue.number);
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
        assert_eq!(command("/agentd stop"), Some(Command::Stop));
        assert_eq!(command("/agentd approve abc"), Some(Command::Approve));
        for talk in [
            "",
            "run",
            "> /agentd run",
            "say /agentd run",
            "/agentd",
            "/agentd dance",
            "text\n/agentd run",
            "/agentdrun",
        ] {
            assert_eq!(command(talk), None, "{talk}");
        }
    }
}
