//! The daemon's HTTP front: JSON API, health, metrics, webhooks, and a status page that follows along.

mod api;
mod ledger;
mod metrics;
mod page;
mod server;
mod stream;
mod webhook;

pub use server::{Front, Listening, listen};
