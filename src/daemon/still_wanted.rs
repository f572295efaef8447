//! Whether anybody still wants the runs that work: an issue that was closed, or whose label was taken off, ends its run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::main_loop::Daemon;
use super::snapshot::IssueRef;
use crate::domain::name::RepoName;
use crate::domain::stop::Stop;
use crate::github::Fetched;
use crate::issue::unwanted;

/// How often a process that polls nothing looks at the issues of its runs.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(2);

impl Daemon {
    /// Running issues that a fresh list no longer holds, each read once more before anything is concluded (S41). What a
    /// sweep started is in no list: it is read conditionally, which costs nothing while it is as it was (D76).
    pub(super) async fn find_gone(&mut self, looked: &BTreeSet<RepoName>) -> BTreeMap<IssueRef, Stop> {
        let mut gone = BTreeMap::new();
        let client = self.quick_client();
        for (issue, live) in self.supervisor.runs_mut() {
            if !live.unlabelled() || live.control.shutdown.stopping() || !looked.contains(&issue.repo) {
                continue;
            }
            match client.issue_if_changed(&issue.repo, issue.number, live.etag.as_deref()).await {
                Ok(Fetched::Fresh(fresh, _)) if !fresh.issue.open => {
                    gone.insert(issue.clone(), unwanted::closed());
                }
                Ok(Fetched::Fresh(_, etag)) => live.etag = etag,
                Ok(Fetched::Unchanged) => {}
                Err(error) => gone.extend(unwanted::not_here(&error).map(|why| (issue.clone(), why))),
            }
        }
        for (issue, live) in self.supervisor.runs() {
            let Some(watch) = self.watches.iter().find(|watch| watch.watched.name == issue.repo) else {
                continue;
            };
            let listed = watch.candidate(issue.number).is_some();
            let looked = looked.contains(&issue.repo);
            if listed || !looked || !watch.is_fresh() || live.control.shutdown.stopping() || live.unlabelled()
            {
                continue;
            }
            let trigger = live.control.trigger().unwrap_or(&self.deps.labels.trigger);
            let why = match self.quick_client().issue(&issue.repo, issue.number).await {
                Ok(fresh) if !fresh.issue.open => unwanted::closed(),
                // A run that writes its labels has taken it off itself.
                Ok(_) if self.deps.progress.is_writing_labels(issue) => continue,
                Ok(fresh) if !fresh.has_label(trigger) => unwanted::unlabelled(),
                Ok(_) => continue,
                Err(error) => match unwanted::not_here(&error) {
                    Some(why) => why,
                    None => continue,
                },
            };
            gone.insert(issue.clone(), why);
        }
        gone
    }

    /// The same where nothing is polled, as in a sweep: each issue with a run is read, which costs nothing while it is as it was, and runs
    /// that nobody wants are told to stop.
    pub(super) async fn look_at_runs(&mut self) {
        let client = self.quick_client();
        for (issue, live) in self.supervisor.runs_mut() {
            if live.control.shutdown.stopping() {
                continue;
            }
            let why = match client.issue_if_changed(&issue.repo, issue.number, live.etag.as_deref()).await {
                // A run that writes its labels has taken it off itself.
                Ok(Fetched::Fresh(..)) if self.deps.progress.is_writing_labels(issue) => None,
                Ok(Fetched::Fresh(fresh, _)) if !fresh.issue.open => Some(unwanted::closed()),
                Ok(Fetched::Fresh(fresh, etag)) => {
                    live.etag = etag;
                    let trigger = live.control.trigger().unwrap_or(&self.deps.labels.trigger);
                    (!live.unlabelled() && !fresh.has_label(trigger)).then(unwanted::unlabelled)
                }
                Ok(Fetched::Unchanged) => None,
                Err(error) => unwanted::not_here(&error),
            };
            if let Some(why) = why {
                tracing::info!(%issue, why = why.detail.as_str(), "asking a run to stop");
                live.control.stop(why);
            }
        }
    }
}
