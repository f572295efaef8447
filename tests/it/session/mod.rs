//! The session, from its seams: scripted replies in, requests, ledger, conversation and report out.

mod chat;
mod context;
mod ends;
mod gate;
mod odd_scripts;
mod replies;
mod reports;
mod single;
mod tools;
mod turns;
mod wires;
pub mod world;
