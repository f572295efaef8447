//! MCP servers as sources of tools.
//!
//! `servers` starts all that are configured and knows what a failure means; `connection` is the life of one, with its
//! restarts; `tool` is what a model sees of a server's tool; `answer` turns what a server says into text and errors,
//! with `odd_results` and `odd_lines` where that is not as it should be;
//! `current_tools` is the list of tools that sessions look at between their turns.

mod server_config;
mod error;
mod filter;
mod answer;
mod listing;
mod odd_results;
mod odd_lines;
mod stdio;
mod connection;
mod tool;
mod servers;
mod current_tools;

#[doc(hidden)]
pub use answer::read as read_answer;
pub use current_tools::CurrentTools;
pub use error::{McpError, Phase, ServerWarning};
pub use server_config::{ServerConfig, ServerTransport, runs_what_is_there};
pub use servers::{McpServers, ToolChange};

#[cfg(test)]
mod tests;
