//! The port by which daemons give runs to each other.

use std::sync::Arc;

use futures::stream::BoxStream;
use serde_json::Value;

use super::error::StoreError;
use crate::domain::cluster::assignment::{AssignmentAnswer, AssignmentCell, Requested};
use crate::domain::cluster::cells::{RunKey, SessionId};
use crate::domain::cluster::configuration::ConfigurationSaid;
use crate::domain::cluster::control::Move;
use crate::domain::cluster::person_request::RequestMessage;
use crate::domain::name::RepoName;

/// An assignment's place: one node has one assignment for an issue at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AssignmentId {
    /// The node that is to have the run.
    pub node: String,
    /// The repository.
    pub repo: RepoName,
    /// Its number.
    pub number: u64,
}

/// What a daemon has room for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Room {
    /// Runs that it may have at a time.
    pub capacity: u32,
    /// Runs that it has.
    pub runs: u32,
    /// The repositories that it works in.
    pub serves: Vec<RepoName>,
    /// What it says of its configuration, where it is asked for itself.
    pub configuration: Option<ConfigurationSaid>,
    /// Whether it ends what it has and takes nothing more.
    pub drains: bool,
    /// Whether it cannot reach GitHub at present.
    pub github_fails: bool,
}

/// What a daemon has room for, each time that it is asked.
pub type RoomNow = Arc<dyn Fn() -> Room + Send + Sync>;

/// A cap on the runs of all nodes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapOfAll {
    /// How many there may be.
    pub most: usize,
    /// How many others have.
    pub others: usize,
}

/// What an operator asks.
#[derive(Debug, Clone, PartialEq)]
pub enum Control {
    /// This node is to end, and its runs are to go on elsewhere.
    Drain {
        /// Who asks.
        by: String,
    },
    /// A run is to go on elsewhere.
    Move(Move),
    /// Something of an issue or its run, or what became of that.
    Request(Box<RequestMessage>),
}

/// What another node says of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wake {
    /// Its name.
    pub repository: String,
    /// Somebody wants it looked at now; else something happened there.
    pub now: bool,
}

/// Who had an issue last.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LastHolder {
    /// The node that has its worktree.
    pub node: Option<String>,
    /// The mapping of its run, as the lease keeps it.
    pub record: Option<Value>,
}

/// The daemon of a living node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRoom {
    /// The node.
    pub node: String,
    /// This life of it.
    pub by: SessionId,
    /// Whether it is this one.
    pub is_own: bool,
    /// What it has room for, as it last said.
    pub room: Room,
}

impl NodeRoom {
    /// Whether it works in a repository.
    pub fn serves(&self, repo: &RepoName) -> bool {
        let name = repo.to_string().to_ascii_lowercase();
        self.room.serves.iter().any(|one| one.to_string().to_ascii_lowercase() == name)
    }
}

/// Runs that the poller of a repository gives to other nodes, each by a cell of its own. A key tells one assignment from a later one at the
/// same place. Calls block.
pub trait Assignments: Send + Sync {
    /// Says what this node's daemon has room for, asked at each sign of life: the others hear it with that.
    fn serve(&self, room: RoomNow);

    /// The daemons of living nodes that may take runs of others, this one's among them.
    fn nodes(&self) -> Result<Vec<NodeRoom>, StoreError>;

    /// The same, and the processes beside daemons, such as `agentd run`, that died or were cut off: one that gives no sign of life for a
    /// lease counts as such from then on.
    fn nodes_and_gone(&self) -> Result<(Vec<NodeRoom>, Vec<SessionId>), StoreError>;

    /// The cap on the runs of all nodes together, and how many of them are at work beside those on these issues. `None`: no such cap.
    fn cap_of_all(&self, beside: &[(RepoName, u64)]) -> Result<Option<CapOfAll>, StoreError>;

    /// Tells the others at once what this node's daemon has room for.
    fn announce(&self) -> Result<(), StoreError>;

    /// What operators ask: of this life of this node, of runs, and of issues. The last message about each is there at first; one may come
    /// again.
    fn controls(&self) -> BoxStream<'static, Control>;

    /// Who had an issue last.
    fn last_holder(&self, repo: &RepoName, number: u64) -> Result<LastHolder, StoreError>;

    /// Assigns a run to a node. `None`: somebody has the issue.
    fn assign(&self, id: &AssignmentId, request: Value) -> Result<Option<AssignmentCell>, StoreError>;

    /// Makes an assignment of a run that this session works on already, for another node that polls its repository from now on.
    fn hand_over(
        &self,
        id: &AssignmentId,
        key: &RunKey,
        request: Value,
        run_id: Option<String>,
    ) -> Result<(), StoreError>;

    /// Takes back the assignment of such a run: this session polls the repository itself. False: it is there no more.
    fn take_back(&self, id: &AssignmentId, key: &RunKey) -> Result<bool, StoreError>;

    /// Takes an assignment back that no living session has. False: one has it, or it has ended.
    fn withdraw(&self, id: &AssignmentId, key: &RunKey) -> Result<bool, StoreError>;

    /// Asks something more of a run that was assigned.
    fn ask(&self, id: &AssignmentId, key: &RunKey, requested: Requested) -> Result<(), StoreError>;

    /// Takes an assignment for this session. False: it is not open.
    fn accept(&self, id: &AssignmentId, key: &RunKey) -> Result<bool, StoreError>;

    /// Says which run it is that this session works on.
    fn name(&self, id: &AssignmentId, key: &RunKey, run_id: &str) -> Result<(), StoreError>;

    /// Says what became of an assignment that this session has taken, or does not take. False: it has not.
    fn answer(&self, id: &AssignmentId, key: &RunKey, answer: AssignmentAnswer) -> Result<bool, StoreError>;

    /// Forgets an assignment whose end was read.
    fn forget(&self, id: &AssignmentId, key: &RunKey) -> Result<(), StoreError>;

    /// What an assignment says now, and then each time that it has changed; `None` = it is gone.
    fn follow(&self, id: &AssignmentId) -> BoxStream<'static, Option<AssignmentCell>>;

    /// The assignments to this node that are there, and then each that changes.
    fn to_this_node(&self) -> BoxStream<'static, (AssignmentId, Option<AssignmentCell>)>;

    /// The assignments of a repository.
    fn of_repository(&self, repo: &RepoName) -> Result<Vec<(AssignmentId, AssignmentCell)>, StoreError>;

    /// Tells the other nodes this. It is not kept: whom it does not reach sees it at its next poll.
    fn wake(&self, wakes: Vec<Wake>);

    /// What other nodes say from now on.
    fn wakes(&self) -> BoxStream<'static, Wake>;

    /// Whether a session has not ended, as far as can be told from here.
    fn session_lives(&self, session: &SessionId) -> Result<bool, StoreError>;
}
