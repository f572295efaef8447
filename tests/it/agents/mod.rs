//! Agent programs of somebody else's as the backend of a step, from outside: label or run to pull request.
#![expect(
    clippy::disallowed_methods,
    reason = "a test starts the program as a person would, with an environment of its own"
)]

mod acp;
mod acp_programs;
mod backends;
pub mod bench;
pub mod sandbox;
mod command;
mod egress;
mod ends;
mod left;
mod limits;
mod meddling;
pub mod metering;
mod programs;
mod tool_talk;
mod tools;
