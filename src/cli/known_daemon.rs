//! What is known of the daemon that an issue waits for: that of this state directory; in a cluster the one that polls the repository,
//! wherever it is.

use super::context::Context;
use super::daemon_command::daemon_files;
use super::error::CommandError;
use crate::config::Config;
use crate::daemon::state_format::DaemonState;
use crate::daemon::status_format::{IssueStatus, Status};
use crate::daemon::{Limits, Presence};
use crate::domain::name::RepoName;
use crate::repository::context::RepositoryContext;

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
}

impl KnownDaemon {
    /// What is known for a repository.
    pub fn of(context: &Context, site: &RepositoryContext) -> Result<Self, CommandError> {
        #[cfg(feature = "nats")]
        if site.state.shared().is_some() {
            return in_cluster(context, site);
        }
        let files = daemon_files(context)?;
        let state = files.load().map_err(|error| CommandError::failed(error.to_string()))?;
        // What a daemon that is gone said last is not so any more.
        let status = files.load_status().ok().flatten().filter(|_| files.daemon_lives());
        let running = status.as_ref().map_or(0, |status| status.running.len());
        let limits = Limits::from(&site.config.daemon);
        let slots = [(running, limits.all), (running, limits.per_repository)];
        let presence = status.as_ref().map_or(Presence::Absent, presence);
        Ok(Self { state, status, presence, slots })
    }

    /// What it says of an issue that waits.
    pub fn says_of(&self, repo: &RepoName, number: u64) -> Option<&IssueStatus> {
        let waiting = self.status.as_ref()?.waiting.iter();
        waiting.into_iter().find(|one| one.repo == *repo && one.issue == number)
    }
}

/// Whether a daemon that says this starts runs.
fn presence(status: &Status) -> Presence {
    match &status.clock_skew {
        _ if status.stopping => Presence::Stopping,
        Some(skew) => Presence::ClockSkew(skew.seconds),
        None if status.store_full.is_some() => Presence::StoreFull,
        None => Presence::Works,
    }
}

#[cfg(feature = "nats")]
fn in_cluster(context: &Context, site: &RepositoryContext) -> Result<KnownDaemon, CommandError> {
    use crate::daemon::state_format::RepositoryState;
    use crate::store::port::LeaseKey;

    let mirror = context.mirror()?.ok_or_else(|| CommandError::failed("there is no cluster"))?;
    let nodes = mirror.statuses().map_err(super::elsewhere::refused)?;
    if let Some((since, why)) = &nodes.stale {
        return Err(CommandError::failed(format!(
            "the cluster's store cannot be reached, and nothing newer is known than of {since}: {why}"
        )));
    }
    let statuses: Vec<Status> = nodes
        .items
        .iter()
        .filter(|node| node.lives)
        .filter_map(|node| serde_json::from_value(node.status.clone()).ok())
        .collect();
    let polls = |status: &&Status| status.repositories.iter().any(|of| of.repo == site.repo);
    let poller = statuses.iter().find(polls).cloned();
    let remembered = site.state.store().look(&LeaseKey::Poller(site.repo.clone()));
    let remembered: Option<RepositoryState> =
        remembered.and_then(|found| serde_json::from_value(found.record?).ok());
    let mut state = DaemonState::default();
    state.repositories.extend(remembered.map(|remembered| (site.repo.clone(), remembered)));
    // A run that a poller follows elsewhere is told by its own node, too.
    let here = || statuses.iter().flat_map(|status| &status.running).filter(|run| run.placed_on.is_none());
    let own = here().filter(|run| run.repo == site.repo).count();
    let most = most_in_all(context, &site.config, &site.repo)?;
    let presence = poller.as_ref().map_or(Presence::NoPoller, presence);
    let slots = [(here().count(), most), (own, Limits::from(&site.config.daemon).per_repository)];
    Ok(KnownDaemon { state, status: poller, presence, slots })
}

/// As many runs as the living nodes that have the repository may have at a time.
#[cfg(feature = "nats")]
fn most_in_all(context: &Context, config: &Config, repo: &RepoName) -> Result<usize, CommandError> {
    use crate::domain::cluster::cells::NodeState;

    let store = super::cluster::connect(context, config)?;
    let nodes = store.nodes().map_err(|error| CommandError::failed(error.to_string()))?;
    let name = repo.to_string().to_ascii_lowercase();
    let serves =
        nodes.iter().filter(|one| one.cell.state == NodeState::Live && one.cell.serves.contains(&name));
    let most: u32 = serves.map(|one| one.cell.capacity).sum();
    let cap = if config.cluster.max_runs == 0 { u32::MAX } else { config.cluster.max_runs };
    Ok(usize::try_from(most.min(cap)).unwrap_or(usize::MAX))
}
