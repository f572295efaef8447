//! What operators ask of nodes, as messages that every node hears.

use serde::{Deserialize, Serialize};

use super::cells::SessionId;
use crate::domain::name::RepoName;
use crate::domain::run::RunId;

/// Version of [`ControlMessage`].
pub const CONTROL_SCHEMA: &str = "agentd.control.v1";

/// One message. It may be heard again, and names what it is about so that this changes nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ControlMessage {
    /// [`CONTROL_SCHEMA`].
    pub schema_version: String,
    /// Who asks, as the host of the command names its user.
    pub by: String,
    /// What is asked.
    #[serde(flatten)]
    pub asked: NodeRequest,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum NodeRequest {
    /// A node is to end, and its runs are to go on elsewhere.
    Drain {
        /// This life of it; a later one works on.
        session: SessionId,
    },
    /// A run is to go on elsewhere.
    Move(Move),
}

/// A run that is to go on elsewhere, behind the visit that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(inline)]
pub struct Move {
    /// The issue's repository.
    pub repository: RepoName,
    /// Its number.
    pub issue: u64,
    /// The run that is at work; a later one stays where it is.
    pub run_id: RunId,
    /// The node that goes on with it; without it any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

impl ControlMessage {
    /// A message of this version.
    pub fn new(by: String, asked: NodeRequest) -> Self {
        Self { schema_version: CONTROL_SCHEMA.to_owned(), by, asked }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::cluster::cells::read;

    #[test]
    fn a_message_is_read_as_it_was_written_and_a_later_version_is_refused() {
        let text = json!({
            "schema_version": CONTROL_SCHEMA, "by": "anna", "kind": "move", "repository": "demo/shop", "issue": 7,
            "run_id": uuid::Uuid::nil(), "to": "b", "later": true,
        });
        let message: ControlMessage = read(&text.to_string(), CONTROL_SCHEMA).unwrap();
        assert!(
            matches!(&message.asked, NodeRequest::Move(Move { issue: 7, to: Some(to), .. }) if to == "b")
        );
        let drain = ControlMessage::new(
            "anna".into(),
            NodeRequest::Drain { session: SessionId { node: "a".into(), session: 3 } },
        );
        assert_eq!(
            read::<ControlMessage>(&serde_json::to_string(&drain).unwrap(), CONTROL_SCHEMA),
            Ok(drain)
        );
        let later = text.to_string().replace("control.v1", "control.v2");
        assert!(read::<ControlMessage>(&later, CONTROL_SCHEMA).is_err());
    }
}
