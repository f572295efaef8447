//! What a program of a run may see: files, processes, network, credentials; and the agent programs that work in there.

pub mod cargo_home;
pub mod toolchains;
pub mod egress_proxy;
pub mod run_sandbox;
mod shell;
pub mod upstream;
pub mod agent_backend;
