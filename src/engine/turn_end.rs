//! How a turn of a session ended.

use super::report::ModelReport;

/// How a turn ended.
pub(super) enum TurnEnd {
    /// The session has its report.
    Reported(Box<ModelReport>),
    /// Tools ran; the next turn may open.
    Next,
    /// A stop was asked for before the turn had an accepted reply.
    StopAsked,
    /// Every attempt gave a reply that could not be used.
    Exhausted {
        /// How the last one broke a schema.
        schema: Option<String>,
    },
}
