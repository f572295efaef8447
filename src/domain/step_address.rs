//! The names of a step: its id in the registry, and the address of its prompt.

/// Id of a step: the key in the registry, e.g. `initial.issue`.
pub type StepId = String;

/// Address of a step's prompt below its `c1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StepAddress {
    /// Second level.
    pub c2: String,
    /// Third level.
    pub c3: String,
    /// Edition, `default` where absent.
    pub edition: String,
    /// Adaptation.
    pub adaptation: Option<String>,
}
