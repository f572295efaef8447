//! agentd: label a GitHub issue and get back a pull request.
//!
//! This file is the map. The modules stand in layer order, bottom first. A module imports only modules that are declared
//! above it, and adapters do not import each other (`tests/it/tidy.rs` fails on an import of a higher layer).
//! To understand agentd, read this file, then `lifecycle/pipeline.rs`.

// Bottom layer: types and rules of the subject; no I/O, no async, no logging.
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
// Adapters, which do not import each other.
pub mod tools;
pub mod agents;
pub mod mcp;
pub mod llm;
pub mod github;
pub mod git;
pub mod proxy;
// The simulator: a GitHub, a remote, a model. Also the tests' world.
pub mod sim;
// Replays of recorded runs.
pub mod replay;
// What a run leaves: run record, report, evidence, seal, as folds over its journal.
pub mod record;
// The repository that a run works for: checkout, managed clone, worktrees.
pub mod repository;
// An issue: where its text is from, and what is told on it.
pub mod issue;
// What people write about an issue and its pull request: who counts, what a run is told, what is answered.
pub mod conversation;
// What a program of a run may see: files, processes, network, credentials.
pub mod sandbox;
// One issue: plan → origin → lease → worktree → instance → steps → commit → verify → judge → publish → seal.
pub mod lifecycle;
// run_agent, bind_mcp_tools, execute_tool_call: for hosts and for http.
pub mod service;
// Many issues over time: poll, sweep, schedule, supervise, recover, reload.
pub mod daemon;
// The daemon's API, chat endpoint, webhooks, status page.
pub mod http;
// Top layer. People: arguments, output, errors with hints, exit codes.
pub mod cli;
