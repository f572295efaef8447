//! What a recorded run knows of the programs that it ran.

use std::fmt::Debug;

use futures::future::BoxFuture;

use crate::domain::stop::Stop;
use crate::domain::trace::ProgramRan;

/// A record in the place of the programs of a definition.
pub trait RecordedPrograms: Send + Sync + Debug {
    /// How the next run of this program in a visit ended; `None` = it is to run.
    ///
    /// # Errors
    /// The record lacks it, and nothing else may be taken.
    fn ran<'a>(&'a self, visit: u32, program: &'a str) -> BoxFuture<'a, Result<Option<ProgramRan>, Stop>>;
}
