//! `agentd cluster`: looks at the cluster's servers, makes its streams, writes its account, and shows who holds what.

mod account;
mod control;
mod doctor;
mod moving;
mod status;

use std::path::{Path, PathBuf};

use clap::Subcommand;

use super::context::Context;
use super::error::CommandError;
use super::issue_arg::{self, IssueArg};
use crate::config::Config;
use crate::config::cluster_file::StoreKind;
use crate::domain::canonical::sha256_hex;
use crate::domain::cluster::configuration::ConfigurationSaid;
use crate::domain::cluster::forms::Forms;
use crate::domain::cluster::names::Names;
use crate::domain::shell_words;
use crate::store::nats::{Access, Caps, Credentials, NatsStore, NodeSeen, Tls};
use crate::store::port::StoreError;
use crate::sys::host::Host;

/// `agentd cluster …`.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Show the cluster's streams and nodes, who polls which repository, and who works on which issue.
    Status,
    /// Look at everything that a cluster needs, with a remedy for each problem.
    Doctor {
        /// Make the streams that are missing, and extend those that are smaller than configured; nothing is made smaller.
        #[arg(long)]
        create: bool,
    },
    /// Write the servers' configuration of the cluster's account: who may send what.
    Account(AccountArgs),
    /// Have a node end: it takes nothing more, its runs end behind the visits that are under way, and other nodes go on with them.
    Drain {
        /// Its name.
        #[arg(value_name = "NODE")]
        node: String,
    },
    /// Have another node go on with the run of an issue, behind the visit that is under way.
    Move {
        /// The issue: N, OWNER/NAME#N, or its address.
        #[arg(value_name = "ISSUE", value_parser = issue_arg::issue)]
        issue: IssueArg,
        /// The node that goes on with it; without it any other with room.
        #[arg(long, value_name = "NODE")]
        to: Option<String>,
    },
    /// Bring this state directory into the cluster's store: journals, files, approvals, spending, leases. The files stay.
    Import {
        /// Only say what would be brought.
        #[arg(long)]
        dry_run: bool,
    },
    /// Write a state directory from the cluster's store, for agentd without a cluster. Refused while a run works.
    Export {
        /// The folder; what is in it already is gone on with.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Also write what is recorded of issues into the lease files of the checkouts that are configured here.
        #[arg(long)]
        leases: bool,
    },
}

/// `agentd cluster account`.
#[derive(Debug, Default, Clone, clap::Args)]
pub struct AccountArgs {
    /// A node; KEY = the public part of its nkey. Without KEY one is made.
    #[arg(long = "node", value_name = "NAME[=KEY]")]
    pub nodes: Vec<String>,
    /// Who makes the streams (`doctor --create`).
    #[arg(long = "keeper", value_name = "NAME[=KEY]")]
    pub keepers: Vec<String>,
    /// Who reads everything, drains nodes, moves runs, and asks the nodes for what people may decide.
    #[arg(long = "operator", value_name = "NAME[=KEY]")]
    pub operators: Vec<String>,
    /// Who reads everything.
    #[arg(long = "reader", value_name = "NAME[=KEY]")]
    pub readers: Vec<String>,
    /// A folder for the seeds of the keys that are made, a file each, for nobody but you to read.
    #[arg(long, value_name = "DIR")]
    pub keys: Option<PathBuf>,
}

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

/// The configuration, if it is that of a cluster.
fn configured(context: &Context) -> Result<Config, CommandError> {
    let config = context.config()?;
    match config.cluster.store {
        StoreKind::Nats => Ok(config),
        StoreKind::Files => Err(CommandError::invalid("there is no cluster: cluster.store is \"files\"")
            .hint("set store = \"nats\" and urls under [cluster]; docs/cluster.md begins with it")),
    }
}

/// The cluster's names. The configuration has been checked.
fn names(config: &Config) -> Result<Names, CommandError> {
    Names::of(&config.cluster.name)
        .ok_or_else(|| CommandError::invalid("cluster.name is no name of a cluster"))
}

/// This node's name: as configured, else the host's in lower case.
pub(super) fn node(config: &Config) -> String {
    match config.cluster.node.as_str() {
        "" => Host::current().name.to_lowercase(),
        name => name.to_owned(),
    }
}

/// Stands for the state directory on this host, and tells nobody where that is.
fn place(context: &Context) -> Result<String, CommandError> {
    let (host, dir) = (Host::current().name, context.state_place()?);
    let real = dir.as_path().canonicalize().unwrap_or_else(|_| dir.as_path().to_owned());
    Ok(sha256_hex(format!("{host}\n{}", real.display()).as_bytes())[..16].to_owned())
}

/// Everything that is needed to connect; what is wrong with the files is told before any connection.
pub(super) fn access(context: &Context, config: &Config) -> Result<Access, CommandError> {
    let table = &config.cluster;
    let file = |key: &str, text: &str| -> Result<Option<PathBuf>, CommandError> {
        if text.is_empty() {
            return Ok(None);
        }
        let path = config.paths_start(key, &context.base).join(text);
        match path.metadata() {
            Ok(found) if found.is_file() => Ok(Some(path)),
            Ok(_) => Err(CommandError::invalid(format!("{key}: {} is not a file", path.display()))),
            Err(error) => {
                Err(CommandError::invalid(format!("{key}: cannot read {}: {error}", path.display())))
            }
        }
    };
    let credentials = match (file("cluster.credentials", &table.credentials)?, config.cluster_nkey()?) {
        (Some(path), _) => {
            private("cluster.credentials", &path)?;
            Credentials::File(path)
        }
        (None, Some(seed)) => Credentials::Nkey(seed),
        (None, None) => Credentials::None,
    };
    let key = if table.credentials.is_empty() { "cluster.nkey" } else { "cluster.credentials" };
    credentials.check().map_err(|told| CommandError::invalid(format!("{key}: {told}")))?;
    let certificate = file("cluster.tls_cert", &table.tls_cert)?;
    let key = file("cluster.tls_key", &table.tls_key)?;
    if let Some(key) = &key {
        private("cluster.tls_key", key)?;
    }
    Ok(Access {
        urls: table.urls.clone(),
        credentials,
        tls: Tls {
            ca: file("cluster.tls_ca", &table.tls_ca)?,
            client: certificate.zip(key),
            required: table.urls.iter().all(|url| url.starts_with("tls://")),
        },
        names: names(config)?,
        node: node(config),
        place: place(context)?,
        lease: table.lease.0,
        beside: false,
        caps: Caps::default(),
        forms: Forms::default(),
    })
}

/// A file with a secret that others may read is refused.
#[cfg(unix)]
fn private(key: &str, path: &Path) -> Result<(), CommandError> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = path.metadata().map(|found| found.permissions().mode() & 0o777).unwrap_or_default();
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(CommandError::invalid(format!(
            "{key}: {} may be read by others (mode {mode:03o})",
            path.display()
        ))
        .hint(shell_words::line(&["chmod", "600", &path.display().to_string()]))),
    }
}

#[cfg(not(unix))]
fn private(_key: &str, _path: &Path) -> Result<(), CommandError> {
    Ok(())
}

/// The nodes that live and say how they are configured.
fn configured_nodes(seen: &[NodeSeen]) -> Vec<(&str, &ConfigurationSaid)> {
    let living = seen.iter().filter(|one| one.cell.state.lives());
    living.filter_map(|one| Some((one.node.as_str(), one.cell.configuration.as_ref()?))).collect()
}

fn failed(error: &StoreError) -> CommandError {
    CommandError::of_store(error).hint("`agentd cluster doctor` says what the cluster needs")
}

/// The cluster, for commands that need it.
pub(super) fn connect(context: &Context, config: &Config) -> Result<NatsStore, CommandError> {
    NatsStore::connect(&access(context, config)?).map_err(|error| failed(&error))
}
