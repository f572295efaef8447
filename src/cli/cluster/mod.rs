//! `agentd cluster`: looks at the cluster's servers, makes its streams, writes its account, and shows who holds what.

mod account;
pub mod args;
mod control;
mod doctor;
mod moving;
mod status;

use args::ClusterCommand;

use super::context::Context;
use super::error::CommandError;
use crate::domain::cluster::configuration::ConfigurationSaid;
use crate::store::nats::NodeSeen;

/// Does it.
pub fn run(context: &Context, command: &ClusterCommand) -> Result<u8, CommandError> {
    match command {
        ClusterCommand::Status => status::status(context).map(|()| 0),
        ClusterCommand::Doctor { create } => doctor::run(context, *create),
        ClusterCommand::Account(args) => account::run(context, args).map(|()| 0),
        ClusterCommand::Drain { node } => control::drain(context, node).map(|()| 0),
        ClusterCommand::Move { issue, to } => control::move_run(context, issue, to.as_deref()).map(|()| 0),
        ClusterCommand::Import { dry_run } => moving::import(context, *dry_run),
        ClusterCommand::Export { dir, leases } => moving::export(context, dir, *leases),
    }
}

/// The nodes that live and say how they are configured.
fn configured_nodes(seen: &[NodeSeen]) -> Vec<(&str, &ConfigurationSaid)> {
    let living = seen.iter().filter(|one| one.cell.state.lives());
    living.filter_map(|one| Some((one.node.as_str(), one.cell.configuration.as_ref()?))).collect()
}
