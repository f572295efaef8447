//! Attacks on agentd, one table a surface: each a real attempt, and its effect is looked for from outside.

mod configuration;
mod git;
mod http;
mod journal;
mod mcp;
mod output;
mod people;
mod sandbox;
mod terminal;
mod worktree_paths;
