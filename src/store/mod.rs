//! The state directory: run directories and the hash-chained journal.

pub mod journal_file;
pub mod journal_format;
pub mod run_dir;
pub mod seal_index;
pub mod seal_key;
pub mod approvals;
