//! The operating system, one file for each subject: processes, files, paths, locks, clock, shutdown.

pub mod clock;
pub mod file_watch;
pub mod files;
pub mod folder;
pub mod process_tree;
mod process_spec;
mod child;
pub mod process;
pub mod descriptors;
pub mod json_lines;
pub mod egress_log;
pub mod sandbox;
pub mod shutdown;
pub mod host;
pub mod in_place;
pub mod holder_format;
pub mod lock;
pub mod memory;
pub mod paths;
pub mod private_place;
pub mod socket;
pub mod terminal;
pub mod tls;
pub mod pipes;
pub mod worktree_path;
