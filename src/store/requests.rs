//! The port by which people who may not change what the nodes share ask for it.

use super::error::StoreError;
use crate::domain::cluster::person_request::{PersonRequest, RequestAnswer};

/// Requests of people, as messages. All nodes hear them ([`super::assignments::Assignments::controls`]); the one that polls the
/// repository carries them out and says so. Calls block.
pub trait Requests: Send + Sync {
    /// Whether this user may change what the nodes share. Then nobody has to be asked.
    ///
    /// # Errors
    /// It cannot be told.
    fn may_write(&self) -> Result<bool, StoreError>;

    /// Sends a request, which is not longer than `LONGEST_REQUEST`. Sent again, it is the same one.
    ///
    /// # Errors
    /// No answer, or this user may not send any.
    fn send(&self, request: &PersonRequest) -> Result<(), StoreError>;

    /// What became of a request; `None` = nobody has heard it yet.
    ///
    /// # Errors
    /// No answer.
    fn answer(&self, request: &PersonRequest) -> Result<Option<RequestAnswer>, StoreError>;

    /// Says that this node has heard a request, and why it did not carry it out; `None` = it did.
    ///
    /// # Errors
    /// No answer: it is heard again then.
    fn say_heard(&self, request: &PersonRequest, refused: Option<String>) -> Result<(), StoreError>;
}
