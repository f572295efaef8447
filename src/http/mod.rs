//! The daemon's HTTP front: JSON API, chat endpoint, health, metrics, webhooks, and a status page that follows along.

mod access;
mod api;
mod body;
mod chat;
mod connections;
mod ledger;
mod metrics;
mod page;
mod server;
mod stream;
mod webhook;

pub use chat::Chat;
pub use server::{Front, Listening, listen};
#[doc(hidden)]
pub use webhook::is_signed;
