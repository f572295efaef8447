//! The integration tests, one binary: a test is a sentence about what a person would see.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers fail as loudly as the test"
)]

mod benchmarks;
mod daemon;
mod double;
mod ports;
mod promises;
mod references;
mod architecture;
mod github;
mod journal_readers;
mod github_sim;
mod evidence;
mod fingerprints;
mod llm;
mod outside;
mod own_agents;
mod parsers;
mod policy_attacks;
mod policy_decisions;
mod session;
mod sim;
mod schemas;
mod store_contract;
mod tidy;
mod cli;
mod clauses;
mod cluster;
mod config;
mod conversation;
mod git;
mod definition;
mod flow;
mod step_flow_cases;
mod agents;
mod attacks;
