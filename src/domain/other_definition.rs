//! A run that would go on with what another definition of the agent made.

use serde::{Deserialize, Serialize};

/// In a cluster: what becomes of a run that would go on with one of another definition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OtherDefinition {
    /// It waits one lease for a node that has the definition, and then does the work anew.
    #[default]
    Waits,
    /// It is refused: who asks for it looks for such a node.
    IsRefused,
    /// It does the work anew.
    BeginsAnew,
}
