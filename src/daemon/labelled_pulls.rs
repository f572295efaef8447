//! Pull requests that carry the trigger label, which starts nothing there: whoever put it on is told where it does, and it is taken
//! off again.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::main_loop::Daemon;
use super::poll::Watch;
use super::pulls::issue_of;
use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;
use crate::github::{Client, Error};
use crate::record::rendering;

/// How long one is left alone after it was answered, also where that failed or somebody puts the label on again and again.
const REST: Duration = Duration::from_secs(600);

impl Daemon {
    /// Answers on those that the last look found.
    pub(super) async fn answer_labelled_pulls(&mut self, looked: &BTreeSet<RepoName>) {
        let (client, trigger) = (self.quick_client(), self.deps.labels.trigger.clone());
        for watch in self.watches.iter_mut().filter(|watch| looked.contains(&watch.watched.name)) {
            for number in watch.due_labelled_pulls() {
                let repo = &watch.watched.name;
                match watch.answer_labelled(&client, number, &trigger).await {
                    Ok(()) => {
                        tracing::info!(%repo, pull = number, "the label starts nothing on a pull request");
                    }
                    Err(error) => {
                        tracing::warn!(%repo, pull = number, %error, "nobody could be told that the label starts nothing there");
                    }
                }
            }
        }
    }
}

impl Watch {
    fn due_labelled_pulls(&mut self) -> Vec<u64> {
        self.told_pulls.retain(|_, told| told.elapsed() < REST);
        let mut due = std::mem::take(&mut self.labelled_pulls);
        due.retain(|number| !self.told_pulls.contains_key(number));
        self.told_pulls.extend(due.iter().map(|number| (*number, Instant::now())));
        due
    }

    async fn answer_labelled(&self, client: &Client, number: u64, trigger: &str) -> Result<(), Error> {
        let repo = &self.watched.name;
        let own = self.pulls.listed.all().find(|pull| pull.number == number).and_then(issue_of);
        let instead = match own {
            Some(issue) => format!("Put it on issue #{issue}, or write here what is still to be done."),
            None => "Put it on the issue that this is about.".to_owned(),
        };
        let text = format!(
            "The label `{trigger}` starts nothing on a pull request, and was taken off: agentd works on issues. {instead}"
        );
        let marker = rendering::request_marker(&IssueKey::Number(number), "label-on-pull");
        client.ensure_comment(repo, number, &marker, &text).await?;
        client.remove_label(repo, number, trigger).await
    }
}
