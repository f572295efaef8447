//! Several nodes on one NATS JetStream: the store against real servers, and the model of the protocols.
#![expect(clippy::disallowed_methods, reason = "servers are processes, and PATH says where they are")]

#[cfg(feature = "nats")]
mod accounts;
#[cfg(feature = "nats")]
mod away;
#[cfg(feature = "nats")]
mod begun_anew;
#[cfg(feature = "nats")]
mod blobless;
#[cfg(feature = "nats")]
mod campaign;
#[cfg(feature = "nats")]
mod cases;
#[cfg(feature = "nats")]
mod clocks;
#[cfg(feature = "nats")]
mod command;
#[cfg(feature = "nats")]
mod configurations;
#[cfg(feature = "nats")]
mod daemons;
#[cfg(feature = "nats")]
mod definitions;
#[cfg(feature = "nats")]
mod draining;
#[cfg(feature = "nats")]
mod eater;
#[cfg(feature = "nats")]
mod elsewhere;
#[cfg(feature = "nats")]
mod faults;
mod fronts;
#[cfg(feature = "nats")]
mod gone_on_with;
#[cfg(feature = "nats")]
mod keys;
#[cfg(feature = "nats")]
mod left_unpushed;
#[cfg(feature = "nats")]
mod limits;
mod model;
#[cfg(feature = "nats")]
pub mod moving;
#[cfg(feature = "nats")]
mod assignments;
#[cfg(feature = "nats")]
mod pairs;
#[cfg(feature = "nats")]
mod plans;
#[cfg(feature = "nats")]
mod polling;
#[cfg(feature = "nats")]
mod reading;
#[cfg(feature = "nats")]
mod requests;
#[cfg(feature = "nats")]
mod retention;
#[cfg(feature = "nats")]
mod roles;
#[cfg(feature = "nats")]
mod running;
#[cfg(feature = "nats")]
mod taken;
#[cfg(feature = "nats")]
pub mod server;
#[cfg(feature = "nats")]
mod slots;
#[cfg(feature = "nats")]
mod store_faults;
#[cfg(feature = "nats")]
mod taking_over;
#[cfg(feature = "nats")]
mod tls;
#[cfg(feature = "nats")]
mod versions;
#[cfg(feature = "nats")]
mod why;
