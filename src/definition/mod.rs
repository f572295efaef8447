//! Agent definitions and policies: read, migrated and checked before any model is called.

pub mod policy_file;
pub mod position;
pub mod diagnostic;
pub mod source;
pub mod generations;
pub mod schema_file;
pub mod shape;
pub mod agent_file;
pub mod registry_file;
pub mod steps;
pub mod registry;
pub mod variables;
pub mod graph;
pub mod loaded;
pub mod prompt_check;
pub mod load;

pub use diagnostic::{Diagnostic, Refused, Severity};
pub use load::{agents_of, load};
pub use loaded::Loaded;
