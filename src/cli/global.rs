//! The flags that every command takes.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::domain::name::RepoName;

/// Flags of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// A configuration file that wins over all others.
    #[arg(long, global = true, value_name = "PATH")]
    pub config: Option<PathBuf>,
    /// Where runs and leases are kept [default: $AGENTD_STATE_DIR, else $XDG_STATE_HOME/agentd].
    #[arg(long, global = true, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// The repository, where it is not the one of the working directory.
    #[arg(long, global = true, value_name = "OWNER/NAME", value_parser = repo)]
    pub repo: Option<RepoName>,
    /// Print one JSON document on stdout.
    #[arg(long, global = true)]
    pub json: bool,
    /// Form of the log on stderr.
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// What the log tells: off, error, warn, info, debug, trace, or a filter such as `agentd::github=debug,warn`.
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// No colours (NO_COLOR works, too).
    #[arg(long, global = true)]
    pub no_color: bool,
    /// No progress, and only errors in the log.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// More in the log; twice for everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

fn repo(text: &str) -> Result<RepoName, String> {
    RepoName::parse(text).map_err(|error| error.to_string())
}
