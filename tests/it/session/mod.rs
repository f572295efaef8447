//! The session, from its seams: scripted replies in, requests, ledger, conversation and report out.

mod chat;
mod context;
mod ends;
mod gate;
mod ledger;
mod long;
#[cfg(target_os = "linux")]
mod memory;
mod money;
mod odd_scripts;
mod parts;
mod ran;
mod replies;
mod reports;
mod scripted;
mod single;
mod tools;
mod turns;
mod wires;
pub mod world;
