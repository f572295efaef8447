//! The arguments of `agentd cluster`.

use std::path::PathBuf;

use clap::Subcommand;

use crate::cli::issue_arg::{self, IssueArg};

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
