//! Agent definitions: what loads, what is refused, and what the report says about it.

mod accepted;
#[cfg(unix)]
mod links;
pub mod older;
pub mod project;
mod prompts;
pub mod refused;
mod told;
mod written;
