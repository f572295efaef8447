//! What people write on GitHub, and what agentd makes of it: from outside, against the simulator.
#![expect(
    clippy::disallowed_methods,
    reason = "a test starts the program as a person would, with an environment of its own"
)]

mod answers;
mod briefing;
mod checks;
mod commands;
mod pull_request;
mod triggers;
