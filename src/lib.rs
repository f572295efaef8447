//! agentd: label a GitHub issue and get back a pull request.
//!
//! This file is the map. The modules stand in layer order, ground first: a module imports only modules declared above
//! it, and the adapters are strangers to each other (`tests/it/tidy.rs` fails on an import that goes upstairs).
//! To understand agentd, read this file, then `lifecycle/walk.rs`.

// Ground: nouns and rules; no I/O, no async, no logging.
pub mod domain;
// Processes, files, paths, locks, clock, shutdown: the only place that touches the operating system.
pub mod sys;
// C3L addresses, frontmatter, single-pass `uv-` substitution.
pub mod prompt;
// agentd.toml: layers, placeholders, one resolved value that knows its source.
pub mod config;
// agent.json, steps_registry.json, schemas, policies: read, migrate, check.
pub mod definition;
// State: one port, Store (logs, cells, blobs, holders), and the files behind it; the journal of a run on top of it.
pub mod store;
// One run of one flow; sees the outside through traits: Model, Tool, Journal, Store.
pub mod engine;
// Adapters, strangers to each other.
pub mod tools;
pub mod agents;
pub mod mcp;
pub mod llm;
pub mod github;
pub mod git;
pub mod proxy;
// The simulator: a GitHub, a remote, a model. Also the tests' world.
pub mod sim;
// One issue: origin → lease → worktree → instance → steps → report → publish.
pub mod lifecycle;
// run_agent, bind_mcp_tools, execute_tool_call: for hosts and for http.
pub mod service;
// Many issues over time: poll, sweep, schedule, supervise, recover, reload.
pub mod daemon;
// The daemon's API, chat endpoint, webhooks, status page.
pub mod http;
// Roof. People: arguments, output, errors with hints, exit codes.
pub mod cli;
