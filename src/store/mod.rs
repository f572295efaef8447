//! agentd's state: one port, files or a NATS server behind it, and what stands on the port, such as the hash-chained journal.

// The port, and its implementations.
pub mod port;
pub mod assignments;
pub mod requests;
mod error;
mod files;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "nats")]
mod published;
pub mod run_dir;
// What stands on it.
pub mod journal;
pub mod journal_file;
pub mod journal_format;
pub mod approvals;
// Seals.
pub mod seal_index;
pub mod seal_key;

pub use port::Store;
