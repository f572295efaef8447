//! MCP servers as sources of tools.
//!
//! `servers` starts all that are configured and knows what a failure means; `connection` is the life of one, with its
//! restarts; `tool` is what a model sees of a server's tool; `answer` turns what a server says into text and errors.

pub mod servers;
mod stdio;
mod connection;
mod listing;
mod tool;
mod answer;

#[doc(hidden)]
pub use answer::read as read_answer;
pub use servers::{McpError, McpServers, Phase, ServerConfig, ServerTransport, ServerWarning};

#[cfg(test)]
mod tests;
