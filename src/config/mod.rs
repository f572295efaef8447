//! agentd.toml: layers, placeholders, one resolved value that knows the source of each of its values.
//!
//! A value passes through these files: [`layer`] reads a file, `tree` merges the files, `load` resolves placeholders
//! and types, `check` checks the values, and the rest of agentd uses [`settings`].

mod table_file;
pub mod checks_file;
pub mod cluster_file;
mod commit_file;
pub mod conversation_file;
pub mod plan_file;
pub mod questions_file;
pub mod config_file;
pub mod duration;
pub mod size_file;
pub mod entry;
pub mod env;
pub mod error;
pub mod explain_format;
pub mod layer;
pub mod load;
pub mod placeholder;
pub mod program_file;
pub mod session;
pub mod settings;
pub mod source_format;
pub mod sandbox_file;
pub mod tools_file;
pub mod trust;

mod alike;
mod chat;
mod check;
mod cluster_check;
mod known_keys;
mod secret;
mod tree;

pub use crate::domain::model_wire::ProviderKind;
pub use config_file::{Auto, Publish};
pub use duration::Span;
pub use entry::Entry;
pub use env::Env;
pub use error::ConfigError;
pub use known_keys::schema;
pub use load::{Flag, Request};
pub use placeholder::Placeholder;
pub use settings::{
    CloneFile, Config, Credentials, Endpoint, McpServer, McpTransport, Provider, Repository, RestTool,
    Session,
};
pub use size_file::Size;
pub use source_format::{RefusedKey, Source};
