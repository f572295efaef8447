//! The session, from its seams: scripted replies in, requests, ledger, conversation and report out.

mod world;
mod turns;
