//! A run that the poller of a repository gives to another node: the cell by which both speak of it until it has ended.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::cells::{RunKey, SessionId};

/// Version of [`AssignmentCell`].
pub const ASSIGNMENT_SCHEMA: &str = "agentd.cell.assignment.v1";

/// `assignment.NODE.OWNER.NAME.NUMBER`: a run that is given to a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AssignmentCell {
    /// [`ASSIGNMENT_SCHEMA`].
    pub schema_version: String,
    /// What the run answers; the cell has the same for as long as nobody has its lease.
    pub key: RunKey,
    /// Who gives it.
    pub by: SessionId,
    /// The run, in the form of the daemons.
    pub request: Value,
    /// What its poller asks of it meanwhile.
    #[serde(default)]
    pub requested: Requested,
    /// What became of it.
    pub answer: AssignmentAnswer,
    /// What a later version wrote beside.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// What is asked of a run that works on another node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Requested {
    /// To end, and the stop detail that says why; the first one stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// As much again of each budget, once for each of these people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extended_by: Vec<String>,
}

/// What became of an assignment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum AssignmentAnswer {
    /// Nothing yet.
    Open,
    /// The node has no room for it, or cannot have it.
    Declined {
        /// Why, for people.
        why: String,
    },
    /// The node works on it.
    Taken {
        /// By this session.
        by: SessionId,
        /// Its run, once there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run_id: Option<String>,
    },
    /// It has ended.
    Ended {
        /// How, in the form of the daemons.
        summary: Value,
    },
}

impl AssignmentCell {
    /// An assignment that nobody has answered.
    pub fn new(key: RunKey, by: SessionId, request: Value) -> Self {
        Self {
            schema_version: ASSIGNMENT_SCHEMA.to_owned(),
            key,
            by,
            request,
            requested: Requested::default(),
            answer: AssignmentAnswer::Open,
            rest: Map::new(),
        }
    }

    /// Whether nobody has it, so that who assigned it may take it back. `lives`: whether a session has not ended.
    pub fn is_free(&self, lives: impl Fn(&SessionId) -> bool) -> bool {
        match &self.answer {
            AssignmentAnswer::Open | AssignmentAnswer::Declined { .. } => true,
            AssignmentAnswer::Taken { by, .. } => !lives(by),
            AssignmentAnswer::Ended { .. } => false,
        }
    }

    /// The assignment as a session works on it; `None`: it is not open.
    pub fn taken(&self, by: &SessionId) -> Option<Self> {
        let answer = AssignmentAnswer::Taken { by: by.clone(), run_id: None };
        (self.answer == AssignmentAnswer::Open).then(|| Self { answer, ..self.clone() })
    }

    /// The assignment with an answer of who works on it; `None`: that session does not.
    pub fn answered(&self, by: &SessionId, answer: AssignmentAnswer) -> Option<Self> {
        let is_own = matches!(&self.answer, AssignmentAnswer::Taken { by: taker, .. } if taker == by);
        is_own.then(|| Self { answer, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::cluster::cells::read;

    fn id(node: &str) -> SessionId {
        SessionId { node: node.into(), session: 1 }
    }

    #[test]
    fn one_session_takes_an_assignment_and_only_that_one_ends_it() {
        let open = AssignmentCell::new(RunKey::Label(3), id("a"), json!({ "issue": 7 }));
        let taken = open.taken(&id("b")).unwrap();
        assert_eq!(taken.taken(&id("c")), None);
        assert!(open.is_free(|_| true) && !taken.is_free(|_| true) && taken.is_free(|_| false));
        let end = AssignmentAnswer::Ended { summary: json!("done") };
        assert_eq!(taken.answered(&id("c"), end.clone()), None);
        assert_eq!(open.answered(&id("b"), end.clone()), None);
        let ended = taken.answered(&id("b"), end).unwrap();
        assert!(!ended.is_free(|_| false), "its end is still to be read");
    }

    #[test]
    fn an_assignment_is_read_as_it_was_written_and_keeps_what_it_does_not_know() {
        let text = json!({
            "schema_version": ASSIGNMENT_SCHEMA, "key": { "other": "operator:1" }, "by": { "node": "a", "session": 2 },
            "request": {}, "answer": { "state": "taken", "by": { "node": "b", "session": 1 } }, "later": 1,
        });
        let cell: AssignmentCell = read(&text.to_string(), ASSIGNMENT_SCHEMA).unwrap();
        assert!(matches!(&cell.answer, AssignmentAnswer::Taken { by, run_id: None } if by.node == "b"));
        let written = serde_json::to_value(&cell).unwrap();
        assert_eq!((&written["later"], &written["answer"]), (&json!(1), &text["answer"]));
    }
}
