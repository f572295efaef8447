//! The repository that a run works for: the checkout of the operator's, or a clone that agentd manages, and its worktrees.

pub mod refused;
pub mod resources;
pub mod shared_limits;
pub mod tool_servers;
pub mod last_known_good;
pub mod context;
pub mod open;
pub mod managed;
pub mod mapping_format;
pub mod host_command;
pub mod worktree_setup;
pub mod base_tree;
pub mod clean_up;
mod kept_setup;
mod squashed;
pub mod worktree_pool;
