//! The documents that nodes share: each is one cell, changed only on the revision that was read.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::configuration::ConfigurationSaid;

/// The newest form of what nodes share that this version knows.
pub const FORM: u32 = 1;
/// The form that is in force where `meta` says nothing.
pub const FIRST_FORM: u32 = 1;
/// Version of [`MetaCell`].
pub const META_SCHEMA: &str = "agentd.cell.meta.v1";
/// Version of [`NodeCell`].
pub const NODE_SCHEMA: &str = "agentd.cell.node.v1";
/// Version of [`IssueCell`].
pub const ISSUE_SCHEMA: &str = "agentd.cell.issue.v1";
/// Version of [`RepoCell`].
pub const REPO_SCHEMA: &str = "agentd.cell.repo.v1";
/// Version of [`SlotsCell`].
pub const SLOTS_SCHEMA: &str = "agentd.cell.slots.v1";

/// `meta`: which form of what nodes share is in force. Without it, the first one is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MetaCell {
    /// [`META_SCHEMA`].
    pub schema_version: String,
    /// The form; a version that does not know it takes no part.
    pub schema: u32,
    /// What a later version wrote beside.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// One life of a node.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct SessionId {
    /// The node's name.
    pub node: String,
    /// Which life of it.
    pub session: u64,
}

/// Which taking of an issue's lease a run works under, as the first line of its journal says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct HeldTerm {
    /// The cluster.
    pub cluster: String,
    /// The session that took it.
    #[serde(flatten)]
    pub by: SessionId,
    /// How often the lease had been taken then.
    pub term: u64,
}

/// How a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It works.
    Live,
    /// It ends what it has and takes nothing more.
    Draining,
    /// Others saw no sign of it for a whole lease.
    Expired,
    /// It went by itself.
    Left,
}

impl NodeState {
    /// Whether the session has not ended.
    pub fn lives(self) -> bool {
        matches!(self, Self::Live | Self::Draining)
    }
}

/// `node.ID`: by this one cell a node lives, however many runs it has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NodeCell {
    /// [`NODE_SCHEMA`].
    pub schema_version: String,
    /// Which life of the node this is; raised by each start.
    pub session: u64,
    /// How often it was renewed in this life.
    pub renewed: u64,
    /// How it is.
    pub state: NodeState,
    /// Host name.
    pub host: String,
    /// The host's boot.
    pub boot_id: String,
    /// Process.
    pub pid: u32,
    /// When that process started, in the kernel's own unit.
    pub started: u64,
    /// Version of agentd.
    pub version: String,
    /// The forms of what nodes share that it knows; of a version that does not say so, the first.
    #[serde(default = "first_form")]
    pub schemas: Vec<u32>,
    /// Runs that its daemon may have at a time; 0 = it takes none of others.
    pub capacity: u32,
    /// Runs that its daemon has.
    #[serde(default)]
    pub runs: u32,
    /// Whether its daemon cannot reach GitHub at present.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub github_fails: bool,
    /// The repositories whose runs its daemon takes, in lower case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serves: Vec<String>,
    /// What its daemon says of its configuration; of a version that says nothing of it, and of a process beside a daemon, none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<ConfigurationSaid>,
    /// Stands for its state directory on its host: no two nodes have the same.
    #[serde(default)]
    pub place: String,
    /// What a later version wrote beside.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

fn first_form() -> Vec<u32> {
    vec![FIRST_FORM]
}

/// Who has an issue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Hold {
    /// Nobody.
    Free,
    /// Its poller found that a run is due; any node may take it.
    Offered {
        /// What the run would answer.
        key: RunKey,
        /// The node that is to take it; the others wait a moment.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
    },
    /// A session works on it.
    Leased {
        /// Which.
        by: SessionId,
        /// What its run answers.
        key: RunKey,
        /// The holder, as messages name it and its own host can look for it.
        holder: Value,
    },
}

/// What a run answers: one key starts at most one chain of runs, whoever asks again.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RunKey {
    /// The trigger label was put on: the event's number, which only grows.
    Label(u64),
    /// Anything else, by a text of its own: a sweep, a pull request's state, a command, a person.
    Other(String),
}

/// Begins the key of what a person asks for on a command line. Each is asked once, so that nobody has to remember it.
pub const ASKED: &str = "operator:";

impl RunKey {
    /// The key of something that is asked once.
    pub fn asked_once() -> Self {
        Self::Other(format!("{ASKED}{}", uuid::Uuid::new_v4()))
    }
}

/// The keys that were answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AnsweredKeys {
    /// The last labelling.
    pub label: u64,
    /// The others.
    pub others: BTreeSet<String>,
}

impl AnsweredKeys {
    /// Whether a run has begun for it.
    pub fn has(&self, key: &RunKey) -> bool {
        match key {
            RunKey::Label(event) => *event <= self.label,
            RunKey::Other(text) => self.others.contains(text),
        }
    }

    /// Remembers that a run has begun for it.
    pub fn put(&mut self, key: &RunKey) {
        match key {
            RunKey::Label(event) => self.label = self.label.max(*event),
            RunKey::Other(text) if text.starts_with(ASKED) => {}
            RunKey::Other(text) => {
                self.others.insert(text.clone());
            }
        }
    }
}

/// `issue.OWNER.NAME.KEY`: who works on an issue, and what was asked and answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
pub struct IssueCell {
    /// [`ISSUE_SCHEMA`].
    pub schema_version: String,
    /// How often the lease was taken. It only grows, by one.
    pub term: u64,
    /// Who has it.
    #[serde(flatten)]
    pub hold: Hold,
    /// Which keys have been answered.
    #[serde(default)]
    pub answered: AnsweredKeys,
    /// The node that had it last, whose disk has its worktree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree_on: Option<String>,
    /// What outlives a holder, such as the frozen mapping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Value>,
    /// What a later version wrote beside.
    #[serde(flatten, deserialize_with = "beside_hold")]
    pub rest: Map<String, Value>,
}

/// What is beside the members of [`Hold`]: these are flattened too, and would stand twice when the cell is written again.
fn beside_hold<'de, D: Deserializer<'de>>(members: D) -> Result<Map<String, Value>, D::Error> {
    let mut rest = Map::deserialize(members)?;
    for own in ["state", "key", "to", "by", "holder"] {
        rest.remove(own);
    }
    Ok(rest)
}

impl Default for IssueCell {
    fn default() -> Self {
        Self {
            schema_version: ISSUE_SCHEMA.to_owned(),
            term: 0,
            hold: Hold::Free,
            answered: AnsweredKeys::default(),
            worktree_on: None,
            record: None,
            rest: Map::new(),
        }
    }
}

/// `repo.OWNER.NAME`: who polls a repository.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RepoCell {
    /// [`REPO_SCHEMA`].
    pub schema_version: String,
    /// For as long as its session lives.
    pub poller: Option<SessionId>,
    /// What a later version wrote beside.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl Default for RepoCell {
    fn default() -> Self {
        Self { schema_version: REPO_SCHEMA.to_owned(), poller: None, rest: Map::new() }
    }
}

/// `slots.OWNER.NAME` and `slots.all`: the runs that count against a cap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SlotsCell {
    /// [`SLOTS_SCHEMA`].
    pub schema_version: String,
    /// Issue, by what its own cell's subject has behind the kind → who has it.
    pub holders: BTreeMap<String, SessionId>,
    /// What a later version wrote beside.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl Default for SlotsCell {
    fn default() -> Self {
        Self { schema_version: SLOTS_SCHEMA.to_owned(), holders: BTreeMap::new(), rest: Map::new() }
    }
}

/// A document that cannot be read here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A later version wrote it.
    #[error("it has the version {found}, and this agentd reads up to {known}")]
    Newer {
        /// What it says.
        found: String,
        /// What is known here.
        known: &'static str,
    },
    /// It is something else.
    #[error("{0}")]
    Broken(String),
}

/// Reads a document of a kind: older versions are read, a newer one is refused.
pub fn read<T: for<'de> Deserialize<'de>>(text: &str, known: &'static str) -> Result<T, Unreadable> {
    let value: Value = serde_json::from_str(text).map_err(|error| Unreadable::Broken(error.to_string()))?;
    let found = value.get("schema_version").and_then(Value::as_str).unwrap_or_default();
    let version = |schema: &str| -> Option<(String, u32)> {
        let (kind, number) = schema.rsplit_once(".v")?;
        Some((kind.to_owned(), number.parse().ok()?))
    };
    match (version(found), version(known)) {
        (Some((kind, number)), Some((of, most))) if kind == of && number > most => {
            return Err(Unreadable::Newer { found: found.to_owned(), known });
        }
        (Some((kind, _)), Some((of, _))) if kind == of => {}
        _ => return Err(Unreadable::Broken(format!("it says to be {found:?}, not {known}"))),
    }
    serde_json::from_value(value).map_err(|error| Unreadable::Broken(error.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn older_is_read_newer_is_refused_and_what_is_unknown_stays() {
        let mut text = json!({
            "schema_version": ISSUE_SCHEMA, "term": 3, "state": "leased",
            "by": { "node": "a", "session": 2 }, "key": { "label": 9 }, "holder": null,
            "answered": { "label": 9, "others": ["operator:1"] }, "bundle": "0abc",
        });
        let cell: IssueCell = read(&text.to_string(), ISSUE_SCHEMA).unwrap();
        assert!(matches!(&cell.hold, Hold::Leased { by, .. } if by.session == 2));
        assert!(cell.answered.has(&RunKey::Label(9)) && !cell.answered.has(&RunKey::Label(10)));
        assert_eq!(serde_json::to_value(&cell).unwrap()["bundle"], json!("0abc"), "a later version's member");
        // Read and written again with another holder, the old one does not come back.
        let free = IssueCell { hold: Hold::Free, ..cell };
        let written = serde_json::to_string(&free).unwrap();
        assert_eq!(read::<IssueCell>(&written, ISSUE_SCHEMA).unwrap(), free, "{written}");
        assert!(!written.contains("leased") && !written.contains("holder"), "{written}");
        text["schema_version"] = json!("agentd.cell.issue.v2");
        let refused = read::<IssueCell>(&text.to_string(), ISSUE_SCHEMA).unwrap_err().to_string();
        assert!(refused.contains("issue.v2") && refused.contains("issue.v1"), "{refused}");
        assert!(matches!(read::<RepoCell>("{}", REPO_SCHEMA), Err(Unreadable::Broken(_))));
    }
}
