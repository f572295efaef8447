//! A daemon as one node of a cluster: which repositories it polls, on which node a run works, and what nodes and people ask of it. Without
//! a cluster nothing of this happens.

mod handing_over;
mod placement;
mod pollers;
mod requests;
mod waiting;

pub(super) mod assigned_run;
pub(super) mod assignee;
pub(super) mod assignment_format;
pub(super) mod moves;
pub(super) mod open_requests;
pub(super) mod other_definitions;
pub(super) mod own_slots;
pub(super) mod polling;
pub(super) mod store_health;

pub mod shared_formats;
pub mod status;

pub use waiting::Waiting;

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::task::JoinHandle;

use super::dependencies::Dependencies;
use super::poll::Watch;
use crate::domain::cluster::cells::{RunKey, SessionId};
use crate::domain::name::RepoName;
use crate::repository::shared_limits::SharedLimits;
use crate::store::assignments::{AssignmentId, Assignments, CapOfAll, NodeRoom};
use crate::sys::shutdown::Shutdown;
use assigned_run::Read;
use assignee::AssignedRuns;
use moves::Moves;
use open_requests::OpenRequests;
use other_definitions::OtherDefinitions;
use own_slots::OwnSlots;
use store_health::StoreHealth;

/// What a daemon knows of its cluster, and its own part in it. Empty, and without effect, where there is none.
#[derive(Default)]
pub(super) struct Cluster {
    /// How runs are given to other nodes and taken from them.
    pub assignments: Option<Arc<dyn Assignments>>,
    /// The repositories that other nodes poll.
    pub resting: Vec<Watch>,
    /// Repositories that nobody polls and that are left for the node that comes first, for one look.
    pub left_to_first: BTreeSet<RepoName>,
    /// This node's name, once it was seen.
    pub own_name: Option<String>,
    /// The runs of this node.
    pub own_slots: OwnSlots,
    /// Other nodes' daemons, as last seen.
    pub nodes: Vec<NodeRoom>,
    /// Processes beside daemons that died, and whether one was seen whose work was not looked for yet.
    pub gone: BTreeSet<SessionId>,
    pub has_left_work: bool,
    /// The cap on the runs of all nodes, as last seen.
    pub cap_of_all: Option<CapOfAll>,
    /// Runs here that other nodes' pollers follow.
    pub assigned: AssignedRuns,
    /// What takes such runs in.
    pub assignee: Option<(Shutdown, JoinHandle<()>)>,
    /// Ends of runs on other nodes: those that were read, and those from which all that follows is kept.
    pub read_ends: Read,
    pub kept_ends: Vec<(AssignmentId, RunKey)>,
    /// Runs that are to go on on other nodes.
    pub moves: Moves,
    /// What people ask who may change nothing themselves.
    pub requests: OpenRequests,
    /// Runs that some nodes may not go on with.
    pub other_definitions: OtherDefinitions,
    /// Limits of GitHub are told and heard.
    pub shared_limits: Option<SharedLimits>,
    /// What is not well with the store.
    pub store_health: StoreHealth,
    /// Whether this node is cut off from GitHub.
    pub github_fails: bool,
    /// Why this node may not take part.
    pub refused: Option<String>,
}

impl Cluster {
    /// Of a daemon that polls what it gets, or all that it is to poll where there are no other nodes.
    pub fn of(deps: &Dependencies, resting: Vec<Watch>) -> Self {
        let assignments = deps.look_at_pollers.and_then(|_| deps.state.store().assignments());
        Self { assignments, resting, ..Self::default() }
    }
}
