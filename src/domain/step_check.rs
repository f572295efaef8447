//! The step check: a question after a step's work, and where its answer leads.

use super::step_address::{StepAddress, StepId};

/// A session that can only read is asked. The answer is `ok` or `ng`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepCheck {
    /// Where the question is.
    pub prompt: CheckPrompt,
    /// Where `ok` leads; `None` = the end of the flow.
    pub on_pass: Option<StepId>,
    /// How often `ng` visits the step again.
    pub max_retries: u32,
    /// Where `ng` leads after that; `None` = the run fails.
    pub fallback: Option<StepId>,
}

/// Where a check's question is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckPrompt {
    /// An address below the registry's `c1`.
    Address(StepAddress),
    /// A path below the agent's folder.
    Path(String),
}

impl StepCheck {
    /// Every step it can lead to.
    pub fn targets(&self) -> impl Iterator<Item = &StepId> {
        self.on_pass.iter().chain(&self.fallback)
    }
}
