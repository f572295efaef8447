//! agentd's state: one port, the files behind it, and what stands on the port, such as the hash-chained journal.

// The port, and its implementation.
pub mod port;
mod files;
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
