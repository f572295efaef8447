//! The integration tests, one binary: a test is a sentence about what a person would see.

mod daemon;
mod double;
mod github;
mod fingerprints;
mod llm;
mod policy_attacks;
mod policy_decisions;
mod session;
mod sim;
mod schemas;
mod tidy;
mod cli;
mod config;
mod git;
mod definition;
