//! The daemon's HTTP front: JSON API, chat endpoint, health, metrics, webhooks, and a status page that follows along.

mod reply;
mod body;
mod status_page;
mod access;
mod run_index;
#[cfg(feature = "nats")]
mod other_nodes;
mod deliveries;
mod chat;
mod shared;
mod costs;
mod guards;
mod api;
mod chat_routes;
mod metrics;
mod stream;
mod webhook;
mod connections;
mod server;

pub use chat::Chat;
#[cfg(feature = "nats")]
pub use other_nodes::{OtherNodes, word};
pub use server::{Listening, listen};
pub use shared::Front;
#[doc(hidden)]
pub use webhook::is_signed;
