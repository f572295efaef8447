//! What is known of the daemon that an issue waits for: that of this state directory; in a cluster the one that polls the repository,
//! wherever it is.

use super::context::Context;
use super::daemon_command::daemon_files;
use super::error::CommandError;
#[cfg(feature = "nats")]
use crate::config::Config;
use crate::daemon::state_format::DaemonState;
use crate::daemon::status_format::{IssueStatus, Status};
use crate::daemon::{AskedDaemon, Limits, NodeAnswer, Presence};
use crate::domain::name::RepoName;
use crate::repository::context::RepositoryContext;
#[cfg(feature = "nats")]
use crate::store::nats::NodeSeen;
#[cfg(feature = "nats")]
use crate::store::port::StoreError;

/// It.
pub struct KnownDaemon {
    /// What it remembers.
    pub state: DaemonState,
    /// What it last said, if it lives.
    pub status: Option<Status>,
    /// Whether it starts runs.
    pub presence: Presence,
    /// Runs at work and as many as there may be: of all, and of the repository.
    pub slots: [(usize, usize); 2],
    /// In a cluster: what each node says to one more run.
    pub nodes: Vec<NodeAnswer>,
}

impl KnownDaemon {
    /// What is known for an issue of a repository. Blocks.
    pub fn of(context: &Context, site: &RepositoryContext, number: u64) -> Result<Self, CommandError> {
        #[cfg(feature = "nats")]
        if site.state.shared().is_some() {
            return in_cluster(context, site, number);
        }
        #[cfg(not(feature = "nats"))]
        let _ = number;
        let files = daemon_files(context)?;
        let state = files.look().map_err(|error| CommandError::failed(error.to_string()))?;
        // What a daemon that is gone said last is not so any more.
        let status = files.load_status_of_living().ok().flatten();
        let running = || status.iter().flat_map(|status| &status.running);
        let own = running().filter(|run| run.repo == site.repo).count();
        let limits = Limits::from(&site.config.daemon);
        let slots = [(running().count(), limits.all), (own, limits.per_repository)];
        let watches = |status: &&Status| status.repositories.iter().any(|of| of.repo == site.repo);
        let presence = status.as_ref().filter(watches).map_or(Presence::Absent, presence);
        Ok(Self { state, status, presence, slots, nodes: Vec::new() })
    }

    /// Whether it goes on by itself with what waits in a repository, now or as soon as it can: it, or another node of its
    /// cluster.
    pub fn goes_on_in(&self, repo: &RepoName) -> bool {
        match self.presence {
            Presence::Stopping | Presence::Absent | Presence::NoNode { .. } => false,
            Presence::NoPoller | Presence::Draining => true,
            Presence::Works | Presence::ClockSkew(_) | Presence::SchemaUnknown(_) | Presence::StoreFull => {
                self.status.iter().flat_map(|status| &status.repositories).any(|of| of.repo == *repo)
            }
        }
    }

    /// What there is to know of it for an issue.
    pub fn asked(&self, repo: &RepoName, number: u64) -> AskedDaemon<'_> {
        AskedDaemon {
            presence: self.presence,
            slots: self.slots,
            says: self.says_of(repo, number),
            nodes: &self.nodes,
        }
    }

    /// What it says of an issue that waits.
    fn says_of(&self, repo: &RepoName, number: u64) -> Option<&IssueStatus> {
        let waiting = self.status.as_ref()?.waiting.iter();
        waiting.into_iter().find(|one| one.repo == *repo && one.issue == number.into())
    }
}

/// Whether a daemon that says this starts runs.
fn presence(status: &Status) -> Presence {
    match (&status.clock_skew, &status.schema_unknown) {
        _ if status.stopping => Presence::Stopping,
        (Some(skew), _) => Presence::ClockSkew(skew.seconds),
        (None, Some(schema)) => Presence::SchemaUnknown(schema.in_force),
        (None, None) if status.store_full.is_some() => Presence::StoreFull,
        (None, None) => Presence::Works,
    }
}

#[cfg(feature = "nats")]
fn in_cluster(context: &Context, site: &RepositoryContext, number: u64) -> Result<KnownDaemon, CommandError> {
    use crate::daemon::state_format::RepositoryState;
    use crate::record::mirror::what_is_wrong;
    use crate::store::assignments::Assignments as _;
    use crate::store::port::LeaseKey;

    let mirror = context.mirror()?.ok_or_else(|| CommandError::failed("there is no cluster"))?;
    let nodes = mirror.statuses().map_err(super::elsewhere::refused)?;
    if let Some((since, why)) = &nodes.stale {
        return Err(CommandError::failed(format!(
            "store_unavailable: the cluster's store {}, and nothing newer is known than of {since}: {why}",
            what_is_wrong(why)
        )));
    }
    let statuses: Vec<(String, Status)> = nodes
        .items
        .iter()
        .filter(|node| node.lives)
        .filter_map(|node| Some((node.node.clone(), serde_json::from_value(node.status.clone()).ok()?)))
        .collect();
    let polls = |status: &&Status| status.repositories.iter().any(|of| of.repo == site.repo);
    let poller = statuses.iter().map(|(_, status)| status).find(polls).cloned();
    let remembered = site.state.store().look(&LeaseKey::Poller(site.repo.clone()));
    let remembered: Option<RepositoryState> =
        remembered.and_then(|found| serde_json::from_value(found.record?).ok());
    let mut state = DaemonState::default();
    state.repositories.extend(remembered.map(|remembered| (site.repo.clone(), remembered)));
    // A run that a poller follows elsewhere is told by its own node, too.
    let here =
        || statuses.iter().flat_map(|(_, status)| &status.running).filter(|run| run.placed_on.is_none());
    let own = here().filter(|run| run.repo == site.repo).count();
    let store = super::cluster_access::connect(context, &site.config)?;
    let failed = |error: StoreError| CommandError::failed(error.to_string());
    let cells = store.nodes().map_err(failed)?;
    let given = store.of_repository(&site.repo).map_err(failed)?;
    let most = most_in_all(&cells, &site.config, &site.repo);
    let presence = match poller.as_ref().map(presence) {
        None => without_poller(&cells, &site.repo),
        // Others take its repositories.
        Some(Presence::Stopping) => Presence::Draining,
        Some(presence) => presence,
    };
    let slots = [(here().count(), most), (own, Limits::from(&site.config.daemon).per_repository)];
    let nodes = super::why_nodes::answers(&cells, &statuses, &given, (&site.repo, number));
    Ok(KnownDaemon { state, status: poller, presence, slots, nodes })
}

/// Why nobody polls a repository.
#[cfg(feature = "nats")]
fn without_poller(nodes: &[NodeSeen], repo: &RepoName) -> Presence {
    use crate::domain::cluster::names::BESIDE;

    let name = repo.to_string().to_ascii_lowercase();
    // A process beside a daemon polls nothing.
    let mut daemons =
        nodes.iter().filter(|one| one.cell.state.lives() && !one.node.contains(BESIDE)).peekable();
    let others = daemons.peek().is_some();
    match daemons.any(|one| one.cell.serves.contains(&name)) {
        true => Presence::NoPoller,
        false => Presence::NoNode { others },
    }
}

/// As many runs as the living nodes that have the repository may have at a time.
#[cfg(feature = "nats")]
fn most_in_all(nodes: &[NodeSeen], config: &Config, repo: &RepoName) -> usize {
    use crate::domain::cluster::cells::NodeState;

    let name = repo.to_string().to_ascii_lowercase();
    let serves =
        nodes.iter().filter(|one| one.cell.state == NodeState::Live && one.cell.serves.contains(&name));
    let most: u32 = serves.map(|one| one.cell.capacity).sum();
    let cap = if config.cluster.max_runs == 0 { u32::MAX } else { config.cluster.max_runs };
    usize::try_from(most.min(cap)).unwrap_or(usize::MAX)
}
