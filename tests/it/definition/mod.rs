//! Agent definitions: what loads, what is refused, and what the report says about it.

mod accepted;
pub mod project;
mod prompts;
mod refused;
mod written;
