//! Ends of runs that GitHub took as labels and not as words: the status comments are tried again, and the issues do not wait for that.

use super::main_loop::Daemon;
use super::outbox_writer::tell_untold;
use super::snapshot::IssueRef;
use super::state_format::UntoldRun;
use crate::domain::name::RepoName;
use crate::github::Error;

impl Daemon {
    /// Notes that an issue's status comment does not say yet how its run ended.
    pub(super) fn note_untold_end(&mut self, issue: &IssueRef, run: UntoldRun, error: &Error) {
        let run_id = run.run_id;
        if let Some(watch) = self.watch_of(&issue.repo) {
            watch.state.issues.entry(issue.number).or_default().untold = Some(run);
        }
        self.not_told(issue, error, &run_id.to_string());
    }

    fn not_told(&mut self, issue: &IssueRef, error: &Error, run_id: &str) {
        if self.troubles.again(about(&issue.repo), &error.to_string()) {
            tracing::warn!(%issue, run_id, %error, detail = error.technical(), "the issue's status comment does not say yet how its run ended; it is tried again");
        }
    }

    /// Tries to tell what is untold. What GitHub refuses for one issue it is not asked at once for the others of the repository.
    pub(super) async fn tell_ends(&mut self) {
        let client = self.quick_client();
        for (issue, run) in self.remembered(|memory| memory.untold.clone()) {
            let about = about(&issue.repo);
            // Of a repository that cannot be read nothing is concluded. A run that works writes the comment anew.
            let is_read = self.watch_of(&issue.repo).is_some_and(|watch| watch.is_fresh());
            if !is_read || self.troubles.rests(&about) || self.supervisor.get(&issue).is_some() {
                continue;
            }
            if let Err(error) = tell_untold(&client, self.deps.state.store(), &issue, &run).await {
                self.not_told(&issue, &error, &run.run_id.to_string());
                continue;
            }
            if let Some(times) = self.troubles.over(&about) {
                tracing::info!(repository = %issue.repo, times, "status comments are written again");
            }
            if let Some(watch) = self.watch_of(&issue.repo) {
                watch.state.issues.entry(issue.number).or_default().untold = None;
                watch.state.issues.retain(|_, memory| !memory.is_empty());
            }
            self.save();
        }
    }
}

fn about(repo: &RepoName) -> String {
    format!("status comments of {repo}")
}
