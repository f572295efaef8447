//! In a cluster: a repository that another node polls from now on. It gets what is remembered of it, and follows its runs where they work.

use super::assigned_run::blocking;
use crate::daemon::main_loop::Daemon;
use crate::daemon::outcome::RunSummary;
use crate::daemon::poll::Watch;
use crate::daemon::snapshot::IssueRef;
use crate::daemon::supervise::{Live, RunHandle, UnfinishedRun};
use crate::domain::cluster::cells::{RunKey, SessionId};
use crate::domain::cluster::poller;
use crate::domain::name::RepoName;
use crate::domain::stop::{Stop, StopDetail};
use crate::store::assignments::{AssignmentId, NodeRoom};

/// Polls in a row that fail until a node counts as cut off from GitHub.
const MOST_FAILURES: u32 = 3;

/// The node that is to poll a repository: of those that have it, and reach GitHub if any does, the first one by the hash.
pub(in crate::daemon) fn next_poller<'a>(repo: &RepoName, nodes: &'a [NodeRoom]) -> Option<&'a NodeRoom> {
    let name = repo.to_string().to_ascii_lowercase();
    let first_of = |fails: bool| {
        let able = nodes.iter().filter(|node| node.room.github_fails == fails && node.serves(repo));
        let first = poller::first(&name, able.map(|node| node.node.as_str()))?;
        nodes.iter().find(|node| node.node == first)
    };
    first_of(false).or_else(|| first_of(true))
}

impl Daemon {
    /// The living daemons, as far as they can be looked at.
    pub(in crate::daemon) async fn living(&mut self) -> Vec<NodeRoom> {
        let Some(assignments) = self.cluster.assignments.clone() else { return Vec::new() };
        let looked = blocking(&assignments, |assignments| assignments.nodes_and_gone()).await;
        let (nodes, gone) = looked.unwrap_or_else(|error| {
            tracing::debug!("the other nodes cannot be looked at: {error}");
            Default::default()
        });
        for session in gone {
            self.cluster.has_left_work |= self.cluster.gone.insert(session);
        }
        nodes
    }

    /// A process that people began beside a daemon may have died with a run that is to be gone on with: nobody else would.
    pub(in crate::daemon) async fn look_for_left(&mut self) {
        if !std::mem::take(&mut self.cluster.has_left_work) {
            return;
        }
        for repo in self.watches.iter().map(|watch| watch.watched.name.clone()).collect::<Vec<_>>() {
            let left = (self.deps.find_left)(repo).await;
            let supervisor = &self.supervisor;
            self.unfinished.extend(left.into_iter().filter(|left| supervisor.get(&left.issue).is_none()));
        }
    }

    /// Looks whether this node is cut off from GitHub, and tells the others.
    pub(in crate::daemon) async fn look_at_github(&mut self) {
        let failed = |watch: &Watch| watch.health.has_failed(MOST_FAILURES);
        let fails = match (self.cluster.github_fails, self.cluster.resting.first()) {
            (false, _) | (true, None) => !self.watches.is_empty() && self.watches.iter().all(failed),
            // It has given its repositories away, and looks at one of them.
            (true, Some(watch)) => {
                let (client, trigger) = (self.quick_client(), &self.deps.labels.trigger);
                client.label_exists(&watch.watched.name, trigger).await.is_err()
            }
        };
        let has_changed = std::mem::replace(&mut self.cluster.github_fails, fails) != fails;
        self.tell_room();
        if let Some(assignments) = self.cluster.assignments.clone().filter(|_| has_changed) {
            tracing::info!(fails, "whether this node reaches GitHub has changed");
            // Before anybody decides by it who polls what.
            let told = blocking(&assignments, |assignments| assignments.announce()).await;
            tracing::debug!(?told, "the other nodes are told");
        }
    }

    /// Gives the repositories away for which another node comes first.
    pub(in crate::daemon) async fn hand_over(&mut self, nodes: &[NodeRoom]) {
        let names: Vec<RepoName> = self.watches.iter().map(|watch| watch.watched.name.clone()).collect();
        for repo in names {
            if let Some(next) = next_poller(&repo, nodes).filter(|next| !next.is_own) {
                self.give_to(&repo, &next.node, &next.by).await;
            }
        }
    }

    /// This node is to end: its repositories are other nodes' from now on, as far as any has them. Another one may not have heard of that
    /// yet, and give it more; those go on to the next one.
    pub(in crate::daemon) async fn leave_all(&mut self) {
        if self.deps.look_at_pollers.is_none() || !self.may_poll() {
            return;
        }
        let mut nodes = self.living().await;
        nodes.retain(|node| !node.is_own);
        for repo in self.cluster.resting.iter().map(|watch| watch.watched.name.clone()).collect::<Vec<_>>() {
            if nodes.iter().any(|node| node.serves(&repo))
                && let Ok((held, remembered)) = self.taken(&repo).await
            {
                self.begin_to_poll(&repo, held, remembered);
            }
        }
        self.hand_over(&nodes).await;
    }

    /// Gives a repository to another node, with what is remembered of it. Where that cannot be now, it stays.
    async fn give_to(&mut self, repo: &RepoName, node: &str, to: &SessionId) {
        let runs = self.supervisor.runs().filter(|(issue, _)| issue.repo == *repo);
        let runs: Vec<_> =
            runs.map(|(issue, live)| (issue.clone(), live.control.clone(), live.since)).collect();
        // Such a run is decided on anew where its node does not take it, and that is its poller's.
        if runs.iter().any(|(_, control, _)| control.is_under_way()) || !self.share().await {
            return;
        }
        for (issue, control, since) in &runs {
            if control.node().is_none() && !self.leave_to_next(issue, control, *since).await {
                return;
            }
        }
        let Some(at) = self.watches.iter().position(|watch| watch.watched.name == *repo) else { return };
        let Some(held) = self.watches[at].polling.as_mut().and_then(|polling| polling.held.take()) else {
            return;
        };
        let watch = self.watches.remove(at);
        self.cluster.resting.push(Watch::new(watch.watched, watch.state));
        self.unfinished.retain(|left| left.issue.repo != *repo);
        self.waiting.retain(|(issue, _)| issue.repo != *repo);
        for (_, control, _) in &runs {
            control.leave();
        }
        let to = to.clone();
        match tokio::task::spawn_blocking(move || held.hand_to(&to)).await {
            Ok(Ok(())) => tracing::info!(%repo, node, "another node polls the repository now"),
            // Dropped, it is given back.
            Ok(Err(error)) => {
                tracing::warn!(%repo, node, "the repository could not be given to another node: {error}");
            }
            Err(panic) => tracing::error!(%repo, %panic, "the repository could not be given to another node"),
        }
    }

    /// A run of this node is to be followed by another one from now on. False: that cannot be told.
    async fn leave_to_next(
        &self,
        issue: &IssueRef,
        control: &RunHandle,
        since: chrono::DateTime<chrono::Utc>,
    ) -> bool {
        if self.cluster.assigned.has_handed_over(issue) {
            return true;
        }
        let (Some(assignments), Some(request)) = (self.cluster.assignments.clone(), control.request()) else {
            return false;
        };
        let Some(own) = self.cluster.own_name.clone() else { return false };
        let Ok(request) = serde_json::to_value(request) else { return false };
        let id = AssignmentId { node: own, repo: issue.repo.clone(), number: issue.number };
        let (key, run_id) = (RunKey::asked_once(), self.deps.progress.run_of(issue));
        // Before the cell is there: what is heard of it has to be known.
        self.cluster.assigned.begin_to_hand_over(
            issue.clone(),
            control.clone(),
            since,
            (id.clone(), key.clone()),
        );
        let made =
            blocking(&assignments, move |assignments| assignments.hand_over(&id, &key, request, run_id));
        match made.await {
            Ok(()) => {
                self.cluster.assigned.is_handed_over(issue);
                true
            }
            Err(error) => {
                self.cluster.assigned.take_back(issue);
                tracing::warn!(%issue, "the run cannot be left to another poller: {error}");
                false
            }
        }
    }

    /// What follows from the end of a run. One that ended so that another node goes on with it is looked at like one that was cut off.
    pub(in crate::daemon) fn take_end(&mut self, (issue, live, mut summary): (IssueRef, Live, RunSummary)) {
        if self.cluster.assigned.has_ended(&issue, &summary) {
            tracing::info!(%issue, detail = summary.stop.detail.as_str(), "a run for another node ended");
            return self.deps.progress.forget(&issue);
        }
        if summary.run_id.is_some() && self.is_cut_off(&issue, &live, &summary) {
            let told = "The node of the run does not reach GitHub; another one goes on with it.";
            summary.stop = Stop::new(StopDetail::Shutdown, told);
        }
        let is_ours = self.watch_of(&issue.repo).is_some();
        if summary.stop.detail == StopDetail::Shutdown && summary.run_id.is_some() && is_ours {
            self.unfinished.push(UnfinishedRun { issue: issue.clone(), begun: live.begun });
        }
        match summary.other_definition {
            Some(run) => self.definition_differs(&issue, &live, run),
            None if summary.run_id.is_some() => self.cluster.other_definitions.forget(&issue),
            None => {}
        }
        self.take_outcome((issue, summary));
    }

    /// Whether a run failed because its node does not reach GitHub, and another one does.
    fn is_cut_off(&self, issue: &IssueRef, live: &Live, summary: &RunSummary) -> bool {
        if !matches!(summary.stop.detail, StopDetail::GithubError | StopDetail::GitError) {
            return false;
        }
        let others = |node: &&NodeRoom| !node.is_own && !node.room.github_fails && node.serves(&issue.repo);
        match live.control.node() {
            Some(node) => self.cluster.nodes.iter().any(|one| one.node == node && one.room.github_fails),
            None => {
                let watch = self.watches.iter().find(|watch| watch.watched.name == issue.repo);
                watch.is_some_and(|watch| watch.health.has_failed(1))
                    && self.cluster.nodes.iter().any(|one| others(&one))
            }
        }
    }

    /// A run of this node that another one followed for a while is followed here again.
    pub(in crate::daemon) async fn take_back(&self, issue: &IssueRef, id: AssignmentId, key: RunKey) {
        let Some(assignments) = self.cluster.assignments.clone() else { return };
        self.cluster.assigned.take_back(issue);
        let taken = blocking(&assignments, move |assignments| assignments.take_back(&id, &key)).await;
        tracing::debug!(%issue, ?taken, "the run is followed here again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::assignments::Room;

    fn node(name: &str, github_fails: bool) -> NodeRoom {
        let room = Room {
            capacity: 1,
            serves: vec![RepoName::parse("Demo/Shop").unwrap()],
            github_fails,
            ..Room::default()
        };
        NodeRoom { node: name.into(), by: SessionId { node: name.into(), session: 1 }, is_own: false, room }
    }

    #[test]
    fn k_035_who_does_not_reach_github_polls_only_where_nobody_does() {
        let repo = RepoName::parse("demo/shop").unwrap();
        let next = |nodes: &[NodeRoom]| next_poller(&repo, nodes).map(|node| node.node.clone());
        let first = next(&[node("a", false), node("b", false)]).unwrap();
        let other = if first == "a" { "b" } else { "a" };
        assert_eq!(next(&[node(&first, true), node(other, false)]).as_deref(), Some(other));
        assert_eq!(next(&[node(&first, true), node(other, true)]), Some(first));
        assert_eq!(next(&[]), None);
        let elsewhere = NodeRoom { room: Room { capacity: 1, ..Room::default() }, ..node("a", false) };
        assert_eq!(next(&[elsewhere]), None, "it does not have the repository");
    }
}
