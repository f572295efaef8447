//! Agent definitions and policies: read, migrated and checked before any model is called.

pub mod policy_file;
pub mod position;
pub mod diagnostic;
pub mod source;
pub mod generations;
pub mod schema_file;
pub mod shape;
pub mod agent_file;
pub mod verdict;
pub mod registry_file;
pub mod steps;
pub mod registry;
pub mod variables;
pub mod graph;
pub mod loaded;
pub mod program;
pub mod prompt_check;
pub mod load;
pub mod migration;
pub mod scaffold;

pub use diagnostic::{Diagnostic, Refused, Severity};
pub use load::{agents_of, load};
pub use loaded::Loaded;

/// The JSON Schema of `agent.json` in its newest form, generated from its type.
pub fn agent_schema() -> serde_json::Value {
    shape::schema_of::<agent_file::AgentFile>()
}

/// The JSON Schema of `steps_registry.json` in its newest form, generated from its type.
pub fn registry_schema() -> serde_json::Value {
    shape::schema_of::<registry_file::RegistryFile>()
}
