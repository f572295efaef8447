//! In a cluster: on which node a run works. The poller of a repository gives it to the node with the issue's worktree, else to the one
//! with the most room.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::task::JoinHandle;

use super::assigned_run::{Placed, blocking, follow_on, run_elsewhere};
use super::assignee::Assignee;
use super::assignment_format::AssignmentRequest;
use super::own_slots::OwnSlot;
use super::store_health::StoreHealth;
use crate::daemon::main_loop::Daemon;
use crate::daemon::outcome::RunSummary;
use crate::daemon::snapshot::{IssueRef, Limits, Presence};
use crate::daemon::supervise::{Live, RunHandle, Start, StartRequest};
use crate::domain::cluster::lease::{Candidate, moved_to, preferred};
use crate::domain::cluster::names::token;
use crate::domain::name::RepoName;
use crate::domain::other_definition::OtherDefinition;
use crate::domain::run::RunId;
use crate::domain::stop::{Stop, StopDetail};
use crate::repository::mapping_format::mapping_of;
use crate::store::assignments::{AssignmentId, Assignments, NodeRoom, Room};
use crate::sys::shutdown::Shutdown;

impl Daemon {
    /// Looks how the store is, and tells it where this node begins nothing because of it.
    pub(in crate::daemon) async fn look_at_store(&mut self) {
        if self.cluster.store_health.look(&self.deps).await {
            self.tell_room();
        }
    }

    /// Whether this daemon begins runs.
    pub(in crate::daemon) fn presence(&self) -> Presence {
        match &self.cluster.store_health {
            _ if self.deps.shutdown.stopping() && self.cluster.assignments.is_some() => Presence::Draining,
            _ if self.deps.shutdown.stopping() => Presence::Stopping,
            StoreHealth { skew: Some(skew), .. } => Presence::ClockSkew(skew.seconds),
            StoreHealth { schema: Some(schema), .. } => Presence::SchemaUnknown(schema.in_force),
            StoreHealth { full: Some(_), .. } => Presence::StoreFull,
            StoreHealth { .. } => Presence::Works,
        }
    }

    /// How a run starts on this node.
    fn start_here(&self) -> Start {
        self.cluster.moves.heeded(&self.deps.start, &self.deps.progress)
    }

    /// Takes runs of other nodes in.
    pub(in crate::daemon) fn open_assignee(&self) -> Option<(Shutdown, JoinHandle<()>)> {
        let shutdown = self.deps.shutdown.child();
        let assignee = Assignee {
            runs: self.draining.runs.clone(),
            assignments: self.cluster.assignments.clone()?,
            assigned: self.cluster.assigned.clone(),
            own_slots: self.cluster.own_slots.clone(),
            progress: self.deps.progress.clone(),
            clock: self.deps.clock.clone(),
            shutdown: shutdown.clone(),
        };
        Some((shutdown, assignee.open()))
    }

    /// Tells the others what there is room for, and looks at theirs.
    pub(in crate::daemon) async fn look_at_nodes(&mut self) {
        let Some(assignments) = self.cluster.assignments.clone() else { return };
        self.tell_room();
        // Where nothing could begin, nothing is asked.
        let mut candidates = self.watches.iter().flat_map(|watch| {
            let numbers = watch.candidates().filter_map(|(issue, _)| issue.issue.key.number());
            numbers.map(|number| IssueRef { repo: watch.watched.name.clone(), number })
        });
        if candidates.all(|issue| self.supervisor.get(&issue).is_some()) {
            return;
        }
        let running = self.supervisor.issues().into_iter().map(|issue| (issue.repo, issue.number));
        let running: Vec<(RepoName, u64)> = running.collect();
        let look = move |assignments: &dyn Assignments| {
            Ok((assignments.nodes()?, assignments.cap_of_all(&running)?))
        };
        (self.cluster.nodes, self.cluster.cap_of_all) =
            blocking(&assignments, look).await.unwrap_or_else(|error| {
                tracing::debug!("the other nodes cannot be looked at: {error}");
                (Vec::new(), None)
            });
    }

    /// What may run at a time, wherever it works.
    pub(in crate::daemon) fn limits_now(&self) -> Limits {
        let all = self.room_for_runs();
        let left = self.cluster.cap_of_all.map(|cap| (cap.most, cap.most.saturating_sub(cap.others)));
        match left {
            Some((most, left)) if left < all => Limits { all: left, cluster: Some(most), ..self.deps.limits },
            _ => Limits { all, ..self.deps.limits },
        }
    }

    pub(in crate::daemon) fn tell_room(&self) {
        let Some(assignments) = &self.cluster.assignments else { return };
        // What runs goes on.
        self.cluster.own_slots.allow(if self.cluster.store_health.begins() {
            self.deps.limits.all
        } else {
            0
        });
        self.cluster.assigned.start_by(&self.start_here());
        let takes = self.cluster.assignee.is_some()
            && self.cluster.store_health.takes()
            && !self.deps.shutdown.stopping();
        let (own_slots, most) =
            (self.cluster.own_slots.clone(), if takes { self.deps.limits.all } else { 0 });
        let (drains, github_fails) = (self.deps.shutdown.stopping(), self.cluster.github_fails);
        let serves: Vec<RepoName> =
            self.deps.repositories.iter().map(|watched| watched.name.clone()).collect();
        let configuration = self.deps.configuration.clone();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        assignments.serve(Arc::new(move || Room {
            capacity: count(most),
            runs: count(own_slots.taken()),
            serves: serves.clone(),
            configuration: Some(configuration.clone()),
            drains,
            github_fails,
        }));
    }

    /// Says at once that this node takes nothing more. It is not waited for: the next sign of life says it again.
    pub(in crate::daemon) fn announce(&self) {
        let Some(assignments) = self.cluster.assignments.clone() else { return };
        tokio::spawn(async move {
            let told = blocking(&assignments, |assignments| assignments.announce()).await;
            tracing::debug!(?told, "the other nodes are told that this one takes nothing more");
        });
    }

    /// Runs that the nodes have room for, those of this poller among them.
    fn room_for_runs(&self) -> usize {
        if self.cluster.assignments.is_none() {
            return self.deps.limits.all;
        }
        let placed = self.placed();
        let elsewhere: usize = placed.values().sum();
        let here = self.supervisor.runs().count() - elsewhere;
        // What this node runs for other pollers takes its own room.
        let own = self.deps.limits.all.saturating_sub(self.cluster.own_slots.taken().saturating_sub(here));
        let polled = |node: &&NodeRoom| self.watches.iter().any(|watch| node.serves(&watch.watched.name));
        let others = self
            .cluster
            .nodes
            .iter()
            .filter(|node| !node.is_own && !node.room.github_fails)
            .filter(polled)
            .map(|node| {
                let mine = placed.get(&node.node).copied().unwrap_or(0);
                let runs = mine.max(node.room.runs as usize);
                (node.room.capacity as usize).saturating_sub(runs)
            });
        own + elsewhere + others.sum::<usize>()
    }

    /// Runs of this poller on other nodes.
    fn placed(&self) -> BTreeMap<String, usize> {
        let mut placed = BTreeMap::new();
        for (_, live) in self.supervisor.runs() {
            if let Some(node) = live.control.node() {
                *placed.entry(node).or_default() += 1;
            }
        }
        placed
    }

    /// The other node that is to have a run; `None` = this one.
    async fn node_for(&self, issue: &IssueRef) -> Option<String> {
        let assignments = self.cluster.assignments.clone()?;
        let own = self.cluster.nodes.iter().find(|node| node.is_own)?.node.clone();
        let (repo, number) = (issue.repo.clone(), issue.number);
        let last =
            blocking(&assignments, move |assignments| assignments.last_holder(&repo, number)).await.ok()?;
        let newest = last.record.as_ref().and_then(mapping_of).map(|mapping| mapping.run_id);
        let moved = self.cluster.moves.of(issue, newest);
        let has_worktree = |node: &str| last.node.as_deref().map(token) == Some(token(node));
        let placed = self.placed();
        let candidates: Vec<Candidate> = self
            .cluster
            .nodes
            .iter()
            .filter(|node| node.is_own || node.serves(&issue.repo) && !node.room.github_fails)
            .filter(|node| self.may_have(issue, &node.node))
            .map(|node| Candidate {
                node: node.node.clone(),
                has_worktree: has_worktree(&node.node),
                runs: match node.is_own {
                    true => u32::try_from(self.cluster.own_slots.taken()).unwrap_or(u32::MAX),
                    false => node.room.runs.max(placed.get(&node.node).map_or(0, |mine| *mine as u32)),
                },
                capacity: match node.is_own {
                    true => u32::try_from(self.deps.limits.all).unwrap_or(u32::MAX),
                    false => node.room.capacity,
                },
            })
            .collect();
        let node = match &moved {
            Some(asked) => moved_to(&candidates, asked.to.as_deref(), &own),
            None => preferred(&candidates, &own),
        };
        node.filter(|node| *node != own).map(str::to_owned)
    }

    /// A run, on this node or on another one.
    pub(in crate::daemon) async fn placed_run(
        &self,
        request: StartRequest,
        unlabelled: bool,
    ) -> BoxFuture<'static, RunSummary> {
        let Some(assignments) = self.cluster.assignments.clone() else { return (self.deps.start)(request) };
        let (issue, own_slots) = (request.issue.clone(), self.cluster.own_slots.clone());
        let assigned = request.assigned(unlabelled);
        let (control, title) = (request.control.clone(), request.title.clone());
        control.started_with(assigned.clone());
        let start = self.start_here();
        let here = move |slot: Option<OwnSlot>| async move {
            let Some(_slot) = slot else {
                let told = "No node has room for the run at the moment.";
                return Stop::new(StopDetail::BranchBusy, told).into();
            };
            start(request).await
        };
        match self.node_for(&issue).await {
            // Taken now, so that the next decision counts it.
            None => here(own_slots.take()).boxed(),
            Some(node) => {
                let id = AssignmentId { node, repo: issue.repo.clone(), number: issue.number };
                let placed = self.placed_at(assignments, id, (issue, title), control);
                run_elsewhere(placed, assigned, async move { here(own_slots.take()).await }).boxed()
            }
        }
    }

    fn placed_at(
        &self,
        assignments: Arc<dyn Assignments>,
        id: AssignmentId,
        (issue, title): (IssueRef, String),
        control: RunHandle,
    ) -> Placed {
        let (extends, left) = control.works_on(&id.node);
        Placed {
            assignments,
            extends,
            left,
            id,
            issue,
            control,
            shutdown: self.deps.shutdown.clone(),
            progress: self.deps.progress.clone(),
            title,
            read: self.cluster.read_ends.clone(),
        }
    }

    /// What an earlier poller of a repository gave to other nodes: what nobody has yet is decided anew, the rest is followed.
    pub(in crate::daemon) async fn adopt(&mut self, repo: &RepoName) {
        let Some(assignments) = self.cluster.assignments.clone() else { return };
        let of = repo.clone();
        let found = match blocking(&assignments, move |assignments| assignments.of_repository(&of)).await {
            Ok(found) => found,
            Err(error) => {
                return tracing::warn!(%repo, "what runs on other nodes cannot be looked at: {error}");
            }
        };
        for (id, cell) in found {
            let (free, key) = (id.clone(), cell.key.clone());
            let withdrawn =
                blocking(&assignments, move |assignments| assignments.withdraw(&free, &key)).await;
            if matches!(withdrawn, Ok(true)) {
                continue;
            }
            let request: AssignmentRequest = match serde_json::from_value(cell.request.clone()) {
                Ok(request) => request,
                Err(error) => {
                    tracing::warn!(%repo, "a run on {} cannot be followed: {error}", id.node);
                    continue;
                }
            };
            let issue = IssueRef { repo: request.repo.clone(), number: request.issue };
            if self.supervisor.get(&issue).is_some() {
                self.take_back(&issue, id, cell.key).await;
                continue;
            }
            tracing::info!(%issue, node = id.node, "following a run on another node");
            let control = RunHandle::below(&self.draining.runs);
            let unlabelled = request.unlabelled;
            let request = StartRequest::of_assigned(request, control.clone());
            let begun = request.begun(unlabelled);
            let placed =
                self.placed_at(Arc::clone(&assignments), id, (issue.clone(), request.title), control.clone());
            let now = self.deps.clock.now();
            self.supervisor.spawn(issue, control, now, begun, follow_on(placed, cell));
        }
    }

    /// Forgets the ends that were read, now that what follows from them is kept.
    pub(in crate::daemon) async fn forget_ends(&mut self) {
        let Some(assignments) = self.cluster.assignments.clone() else { return };
        for (id, key) in std::mem::take(&mut self.cluster.kept_ends) {
            let (at, of) = (id.clone(), key.clone());
            if let Err(error) = blocking(&assignments, move |assignments| assignments.forget(&at, &of)).await
            {
                tracing::debug!("an assignment stays: {error}");
                self.cluster.kept_ends.push((id, key));
            }
        }
    }
}

impl Daemon {
    /// How long such a node is waited for.
    fn lease(&self) -> Duration {
        self.deps.look_at_pollers.unwrap_or_default() * 3
    }

    /// A node has not begun a run, because it is of another definition.
    pub(in crate::daemon) fn definition_differs(&mut self, issue: &IssueRef, live: &Live, run: RunId) {
        let own = self.cluster.nodes.iter().find(|node| node.is_own).map(|node| node.node.clone());
        if let Some(node) = live.control.node().or(own) {
            tracing::info!(%issue, node, %run, "the run is of another definition than that node's");
            self.cluster.other_definitions.note(issue.clone(), run, node);
        }
    }

    /// Whether a node may have a run, as far as is known.
    pub(in crate::daemon) fn may_have(&self, issue: &IssueRef, node: &str) -> bool {
        self.cluster.other_definitions.may(issue, node, self.lease())
    }

    /// Whether an issue waits for a node with the definition of its run.
    pub(in crate::daemon) fn waits_for_definition(&self, issue: &IssueRef) -> bool {
        if self.cluster.other_definitions.is_waiting(issue, self.lease()) != Some(true) {
            return false;
        }
        !self.cluster.nodes.iter().any(|node| {
            let runs = if node.is_own { self.cluster.own_slots.taken() } else { node.room.runs as usize };
            let capacity = if node.is_own { self.deps.limits.all } else { node.room.capacity as usize };
            let serves = node.is_own || node.serves(&issue.repo) && !node.room.github_fails;
            serves && runs < capacity && self.may_have(issue, &node.node)
        })
    }

    /// What becomes of a run that begins now, where what it would go on with is of another definition.
    pub(in crate::daemon) fn other_definition(&self, issue: &IssueRef) -> OtherDefinition {
        match self.cluster.other_definitions.is_waiting(issue, self.lease()) {
            // Nobody else decides where it goes on.
            _ if self.cluster.assignments.is_none() => OtherDefinition::Waits,
            Some(false) => OtherDefinition::BeginsAnew,
            Some(true) | None => OtherDefinition::IsRefused,
        }
    }
}
