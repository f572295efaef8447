//! The requests of an agent program to models, as far as they pass through agentd, and the tokens that the replies
//! report.

use std::collections::BTreeMap;

use super::message::TokenUsage;

/// The traffic of one launch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelTraffic {
    /// Requests that were sent on.
    pub requests: u32,
    /// Requests of earlier launches of the same visit. They count for the limit.
    pub earlier: u32,
    /// Requests that were not, since there were enough.
    pub refused: u32,
    /// Requests whose reply is still on its way.
    pub under_way: u32,
    /// Tokens by the model that answered.
    pub by_model: BTreeMap<String, TokenUsage>,
    /// Models that answered, by their own name, and how the requests named them where that is another name.
    pub asked_as: BTreeMap<String, String>,
    /// Replies that were left before their end.
    pub left: u32,
    /// Estimated tokens, by model, of the replies that reported none.
    pub untold: BTreeMap<String, TokenUsage>,
}

impl ModelTraffic {
    /// Tokens of all models together, as far as replies reported them.
    pub fn usage(&self) -> TokenUsage {
        self.by_model.values().fold(TokenUsage::default(), |all, one| all.plus(*one))
    }

    /// What the replies that reported nothing are taken to have used.
    pub fn estimated(&self) -> TokenUsage {
        self.untold.values().fold(TokenUsage::default(), |all, one| all.plus(*one))
    }
}
