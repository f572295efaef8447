//! Labels: made when they are needed, put on and taken off as often as one likes.

use http::Method;
use serde_json::json;

use super::Change;
use super::client::Client;
use super::error::{Error, ErrorKind};
use super::listing::encode;
use super::request::Ask;
use crate::domain::name::RepoName;

const NEEDS: &str = "issues: write";

/// A label as it should be when it has to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelSpec<'a> {
    /// Name.
    pub name: &'a str,
    /// Six hexadecimal digits.
    pub color: &'a str,
    /// One line.
    pub description: &'a str,
}

impl Client {
    /// Makes a label where there is none; one that is there keeps its look.
    pub async fn ensure_label(&self, repo: &RepoName, label: LabelSpec<'_>) -> Result<Change, Error> {
        if self.label_exists(repo, label.name).await? {
            return Ok(Change::Unchanged);
        }
        let doing = format!("making the label \"{}\" in {repo}", label.name);
        let body = json!({"name": label.name, "color": label.color, "description": label.description});
        // Names are unique, so a second one cannot be made: repeating is safe.
        let ask =
            Ask::write(Method::POST, self.url(&format!("/repos/{repo}/labels")), Some(body), doing, NEEDS)
                .repeatable();
        match self.send(ask).await {
            Ok(_) => Ok(Change::Created),
            Err(error) if error.kind == ErrorKind::AlreadyExists => Ok(Change::Unchanged),
            Err(error) => Err(error),
        }
    }

    /// Whether the repository knows the label.
    pub async fn label_exists(&self, repo: &RepoName, name: &str) -> Result<bool, Error> {
        let doing = format!("looking for the label \"{name}\" in {repo}");
        let url = self.url(&format!("/repos/{repo}/labels/{}", encode(name)));
        match self.send(Ask::get(url, doing, "issues: read")).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Puts labels on an issue; those that are on stay on. None = no request.
    pub async fn add_labels(&self, repo: &RepoName, number: u64, names: &[&str]) -> Result<(), Error> {
        if names.is_empty() {
            return Ok(());
        }
        let doing = format!("labelling issue {number} of {repo}");
        let url = self.url(&format!("/repos/{repo}/issues/{number}/labels"));
        let ask = Ask::write(Method::POST, url, Some(json!({"labels": names})), doing, NEEDS).repeatable();
        self.send(ask).await.map(drop)
    }

    /// Takes a label off an issue; one that is not on is fine.
    pub async fn remove_label(&self, repo: &RepoName, number: u64, name: &str) -> Result<(), Error> {
        let doing = format!("taking the label \"{name}\" off issue {number} of {repo}");
        let path = format!("/repos/{repo}/issues/{number}/labels/{}", encode(name));
        match self.write(Method::DELETE, &path, None, &doing, NEEDS).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The names of the labels by which agentd says where an issue stands (D6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateLabels {
    /// Starts a run; a person puts it on.
    pub trigger: String,
    /// The issue waits for a slot.
    pub queued: String,
    /// A run works on it.
    pub running: String,
    /// The last run succeeded.
    pub done: String,
    /// The last run failed.
    pub failed: String,
    /// A person is needed.
    pub attention: String,
    /// The last run ended without evidence.
    pub no_evidence: String,
}

impl Default for StateLabels {
    fn default() -> Self {
        let named = |word: &str| format!("agentd:{word}");
        Self {
            trigger: "agentd".to_owned(),
            queued: named("queued"),
            running: named("running"),
            done: named("done"),
            failed: named("failed"),
            attention: named("attention"),
            no_evidence: named("no-evidence"),
        }
    }
}

/// Where an issue stands, as its labels say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IssueState {
    /// Waits for a slot.
    Queued,
    /// A run works on it.
    Running,
    /// The last run succeeded.
    Done,
    /// The last run failed.
    Failed,
    /// A person is needed.
    Attention,
    /// The last run ended without evidence.
    NoEvidence,
}

impl IssueState {
    /// Whether the state is an end: then the trigger label comes off, so that putting it on again starts the next run (D6).
    pub fn is_end(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

impl StateLabels {
    /// The label of a state.
    pub fn of(&self, state: IssueState) -> &str {
        match state {
            IssueState::Queued => &self.queued,
            IssueState::Running => &self.running,
            IssueState::Done => &self.done,
            IssueState::Failed => &self.failed,
            IssueState::Attention => &self.attention,
            IssueState::NoEvidence => &self.no_evidence,
        }
    }

    /// Every state label with its look.
    pub fn specs(&self) -> [LabelSpec<'_>; 7] {
        let spec = |name, color, description| LabelSpec { name, color, description };
        [
            spec(&self.trigger, "5319e7", "agentd works on this issue"),
            spec(&self.queued, "c5def5", "agentd will start when a slot is free"),
            spec(&self.running, "fbca04", "agentd is working on it"),
            spec(&self.done, "0e8a16", "agentd finished"),
            spec(&self.failed, "d93f0b", "agentd failed; the comment says why"),
            spec(&self.attention, "e99695", "agentd needs a person; the comment says for what"),
            spec(&self.no_evidence, "bfd4f2", "agentd found nothing that backs a result"),
        ]
    }

    /// What has to come off and go on so that an issue with `current` labels says `state`. The trigger comes off first
    /// of all: should the rest fail, the issue is not started again by mistake.
    pub fn change(&self, current: &[String], state: IssueState) -> (Vec<&str>, Option<&str>) {
        let on = |name: &str| current.iter().any(|label| label.trim().eq_ignore_ascii_case(name.trim()));
        let wanted = self.of(state);
        let trigger = state.is_end().then_some(self.trigger.as_str());
        let others =
            [&self.queued, &self.running, &self.done, &self.failed, &self.attention, &self.no_evidence];
        let others = others.into_iter().map(String::as_str).filter(|name| !name.eq_ignore_ascii_case(wanted));
        let off = trigger.into_iter().chain(others).filter(|name| on(name)).collect();
        (off, (!on(wanted)).then_some(wanted))
    }
}

impl Client {
    /// Makes an issue's labels say `state`, knowing those it has; no request where they already do.
    pub async fn settle_labels(
        &self,
        repo: &RepoName,
        number: u64,
        current: &[String],
        state: IssueState,
        labels: &StateLabels,
    ) -> Result<(), Error> {
        let (off, on) = labels.change(current, state);
        for name in off {
            self.remove_label(repo, number, name).await?;
        }
        if let Some(name) = on {
            if let Some(spec) = labels.specs().into_iter().find(|spec| spec.name == name) {
                self.ensure_label(repo, spec).await?;
            }
            self.add_labels(repo, number, &[name]).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d6_an_end_takes_the_trigger_off_first_and_leaves_one_state_label() {
        let labels = StateLabels::default();
        let current = ["bug", "Agentd", "agentd:running"].map(str::to_owned);
        let (off, on) = labels.change(&current, IssueState::Done);
        assert_eq!((off, on), (vec!["agentd", "agentd:running"], Some("agentd:done")));
        let (off, on) = labels.change(&current, IssueState::Running);
        assert_eq!((off, on), (vec![], None), "while it runs the trigger stays");
        let again = ["agentd", "agentd:done"].map(str::to_owned);
        assert_eq!(labels.change(&again, IssueState::Queued), (vec!["agentd:done"], Some("agentd:queued")));
    }
}
