//! Agent definitions and policies: read, migrated and checked before any model is called.

pub mod policy_file;
mod policy_when_file;
pub mod position;
pub mod diagnostic;
pub mod source;
pub mod generations;
mod older_steps;
pub mod schema_file;
pub mod shape;
pub mod backend_file;
mod parameter_value;
pub mod agent_file;
mod verdict_file;
pub mod verdict;
pub mod registry_file;
pub mod step_check;
pub mod steps;
mod void_checks;
pub mod registry;
pub mod variables;
pub mod graph;
mod unused;
mod output_check;
pub mod loaded;
pub mod program;
mod retry_check;
pub mod prompt_check;
pub mod load;
pub mod migration;
pub mod scaffold;

use crate::domain;

pub use diagnostic::{Diagnostic, Refused, Severity};
pub use load::{agents_of, load, load_for_prompts};
pub use loaded::Loaded;

/// The formats by the name that `agentd config schema NAME` takes; the file is `schemas/<name>.v1.json`.
pub const FORMAT_SCHEMAS: [&str; 3] = ["agent", "steps-registry", "policy"];

/// The JSON Schema of a file that people write, in its newest form, generated from its type; `None` for a name that is not one.
/// Keys that it does not list are allowed in a definition, with a warning, because other programs may read them, and nowhere else.
pub fn format_schema(name: &str) -> Option<serde_json::Value> {
    let (mut schema, file) = match name {
        "policy" => (domain::schemas::schema_of::<policy_file::PolicyFile>(name, None), "policy.toml"),
        "agent" => (shape::schema_of::<agent_file::AgentFile>(), "agent.json"),
        "steps-registry" => (shape::schema_of::<registry_file::RegistryFile>(), "steps_registry.json"),
        _ => return None,
    };
    schema["title"] = format!("{file}, version 1").into();
    Some(schema)
}
