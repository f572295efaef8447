//! What agentd hears from people, and how it answers, seen from outside.
#![expect(
    clippy::disallowed_methods,
    reason = "a test starts the program as a person would, with an environment of its own"
)]

mod answers;
mod briefing;
mod checks;
mod commands;
mod demo;
mod images;
mod issue_budget;
mod last_words;
mod others;
mod parked;
mod plan_gate;
pub mod pull_request;
mod questions;
mod round_pairs;
pub mod steering;
mod steering_pairs;
mod told_unheard;
mod triggers;
