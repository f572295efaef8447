//! The engine's cases: scripted replies in, the visited steps and the end out.

mod checks;
mod closing;
mod completion;
mod corpora;
pub mod outside;
mod programs;
mod routes;
mod sessions;
mod step_checks;
mod upstream;
pub mod world;
