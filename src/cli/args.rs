//! The command line: every command and flag of agentd, with its help.

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::builder::PossibleValue;
use clap::{Args, Parser, Subcommand, ValueEnum};

use super::global::Global;
use super::issue_arg::{IssueArg, issue};
use super::run_filter::{Since, State, since, state};
use crate::config::{Publish, Span};
use crate::domain::agent_program::Backend;
use crate::domain::command;
use crate::domain::money::Money;

const AFTER_HELP: &str = "\
Exit codes: 0 achieved · 1 failed · 3 a required MCP server is missing · 4 invalid arguments, configuration, definition \
or origin · 5 something broke its schema.
Start in a repository with `agentd init`, look at it with `agentd doctor`, then `agentd run N`.";

/// Label a GitHub issue, get back a pull request: worked out in its own git worktree, within a budget, under a
/// default-deny policy, with a report backed by evidence.
#[derive(Debug, Parser)]
#[command(name = "agentd", version, about, long_about = None, after_help = AFTER_HELP, max_term_width = 100)]
#[command(infer_subcommands = false, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// Flags of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err(format!("\"{text}\" is not of the form name=value")),
    }
}

/// A variable of the prompts; templates write its name with `uv-`, so people do, too.
fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = pair(text)?;
    Ok((name.strip_prefix("uv-").map_or(name.clone(), str::to_owned), value))
}

fn dollars(text: &str) -> Result<Money, String> {
    let wanted =
        "an amount of US dollars above zero: digits, with at most two behind a point, such as 5 or 2.50";
    command::amount(text).ok_or_else(|| format!("this is not {wanted}"))
}

/// `agentd sweep`.
#[derive(Debug, Default, Clone, Args)]
pub struct SweepArgs {
    /// Take open issues without the trigger label, too, of authors who may put it on; lists them and asks first.
    #[arg(long)]
    pub all: bool,
    /// Begin without asking.
    #[arg(long)]
    pub yes: bool,
    /// Print what would be taken; change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// What agentd can be told to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Resolve one issue now, in the foreground.
    Run(Box<RunArgs>),
    /// Poll, sweep and dispatch until told to stop.
    Daemon(DaemonArgs),
    /// Sweep the configured repositories once, then exit.
    Sweep(SweepArgs),
    /// Show what runs, waits and is parked, with the reason of each.
    Status,
    /// Show why an issue is, or is not, running: every rule asked, with its answer.
    Why {
        /// The issue: 42, '#42', OWNER/NAME#42 or its address; of an issue file, FILE.md or the word that its run printed.
        #[arg(value_name = "ISSUE", value_parser = issue)]
        issue: IssueArg,
        /// Exit with 1 where it stays as it is until somebody does something.
        #[arg(long)]
        exit_status: bool,
    },
    /// Show the run that works on an issue from its start, and follow it; Ctrl-C leaves it alone.
    Attach {
        /// The issue: 42, '#42', OWNER/NAME#42 or its address; of an issue file, FILE.md or the word that its run printed.
        #[arg(value_name = "ISSUE", value_parser = issue)]
        issue: IssueArg,
    },
    /// Tell the run of an issue something: the one that works at its next turn, else the next one.
    Say {
        /// The issue: 42, '#42', OWNER/NAME#42 or its address; of an issue file, FILE.md or the word that its run printed.
        #[arg(value_name = "ISSUE", value_parser = issue)]
        issue: IssueArg,
        /// What is said.
        #[arg(value_name = "TEXT", allow_hyphen_values = true)]
        text: String,
        /// Further words of it.
        #[arg(hide = true)]
        more: Vec<String>,
    },
    /// Take the work on an issue over: the run that works hands it over at the end of its turn, where an agent program works within ten seconds; prints the worktree's path.
    Take {
        /// The issue: 42, '#42', OWNER/NAME#42 or its address; of an issue file, FILE.md or the word that its run printed.
        #[arg(value_name = "ISSUE", value_parser = issue)]
        issue: IssueArg,
    },
    /// Give the work on an issue back: what you changed is committed in your name, and the agent goes on.
    GiveBack {
        /// The issue: 42, '#42', OWNER/NAME#42 or its address; of an issue file, FILE.md or the word that its run printed.
        #[arg(value_name = "ISSUE", value_parser = issue)]
        issue: IssueArg,
        /// What the agent is told.
        #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
        message: Option<String>,
        /// Nothing goes on: the work ends here.
        #[arg(long)]
        end: bool,
        /// In a cluster: although the worktree is on a node that is gone. The work goes on from what was pushed; the rest stays there.
        #[arg(long)]
        elsewhere: bool,
    },
    /// Open your shell in an issue's worktree: in the sandbox, without any token; read-only while a run works.
    Shell {
        /// The issue: 42, '#42', OWNER/NAME#42 or its address; of an issue file, FILE.md or the word that its run printed.
        #[arg(value_name = "ISSUE", value_parser = issue)]
        issue: IssueArg,
    },
    /// Answer the question that an issue's agent asked; the work goes on where it stopped.
    Answer {
        /// The issue: 42, '#42', OWNER/NAME#42 or its address; of an issue file, FILE.md or the word that its run printed.
        #[arg(value_name = "ISSUE", value_parser = issue)]
        issue: IssueArg,
        /// The answer, or the number of an option.
        #[arg(value_name = "TEXT", allow_hyphen_values = true)]
        text: String,
        /// Further words of it.
        #[arg(hide = true)]
        more: Vec<String>,
    },
    /// Approve the plan for which an issue waits, as its comment reads now; or the call that the hash names.
    Approve {
        /// The issue: 42, '#42', OWNER/NAME#42 or its address; of an issue file, FILE.md or the word that its run printed.
        #[arg(value_name = "ISSUE", value_parser = issue)]
        issue: IssueArg,
        /// The plan or the call, by at least 8 digits of its hash; needed where several things wait.
        #[arg(value_name = "HASH")]
        hash: Option<String>,
    },
    /// Have the plan for which an issue waits made again.
    Reject {
        /// The issue: 42, '#42', OWNER/NAME#42 or its address; of an issue file, FILE.md or the word that its run printed.
        #[arg(value_name = "ISSUE", value_parser = issue)]
        issue: IssueArg,
        /// Why: the agent is told.
        #[arg(value_name = "TEXT", allow_hyphen_values = true)]
        text: String,
        /// Further words of it.
        #[arg(hide = true)]
        more: Vec<String>,
    },
    /// Give an issue more money, beyond its budget: its runs may cost so much more, all together.
    Extend {
        /// The issue: 42, '#42', OWNER/NAME#42 or its address; of an issue file, FILE.md or the word that its run printed.
        #[arg(value_name = "ISSUE", value_parser = issue)]
        issue: IssueArg,
        /// How many US dollars: digits, with at most two behind a point.
        #[arg(value_name = "USD", value_parser = dollars, allow_hyphen_values = true)]
        usd: Money,
    },
    /// Look at runs and act on them.
    #[command(subcommand, subcommand_required = true)]
    Runs(RunsCommand),
    /// Prepare a NATS store for several nodes, and look at it.
    #[cfg(feature = "nats")]
    #[command(subcommand, subcommand_required = true)]
    Cluster(super::cluster::args::ClusterCommand),
    /// Calls that wait for a person's approval.
    #[command(subcommand, subcommand_required = true)]
    Approvals(ApprovalsCommand),
    /// Agent definitions.
    #[command(subcommand, subcommand_required = true)]
    Agents(AgentsCommand),
    /// Resolve a prompt exactly as a step would see it.
    Prompt(PromptArgs),
    /// The tools as a host sees them.
    #[command(subcommand, subcommand_required = true)]
    Tools(ToolsCommand),
    /// Answer a conversation (run_agent).
    Chat(ChatArgs),
    /// Ask the policy.
    #[command(subcommand, subcommand_required = true)]
    Policy(PolicyCommand),
    /// The configuration: effective values, checks, schemas.
    #[command(subcommand, subcommand_required = true)]
    Config(ConfigCommand),
    /// Worktrees of issues.
    #[command(subcommand, subcommand_required = true)]
    Worktrees(WorktreesCommand),
    /// Write a configuration, an agent and a policy into this repository; overwrites nothing.
    Init(InitArgs),
    /// Check git, token, repository, labels, definitions and models; name a remedy for each problem.
    Doctor,
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Serve a GitHub, a git remote and a scripted model on loopback, to try things out.
    Sim(SimArgs),
    /// Run the main job on a simulated GitHub and a recorded model.
    Demo(DemoArgs),
    /// Serve the tools of a live run over MCP, for the agent program that the run started.
    Mcp(McpArgs),
}

/// `agentd mcp`.
#[derive(Debug, Args)]
pub struct McpArgs {
    /// Where the run serves its tools [default: $AGENTD_MCP_SOCKET].
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// `agentd run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The issue: 42, '#42', OWNER/NAME#42 or its address.
    #[arg(value_name = "ISSUE", value_parser = issue, required_unless_present_any = ["issue", "issue_file"])]
    #[arg(conflicts_with_all = ["issue", "issue_file"])]
    pub named: Option<IssueArg>,
    /// The same as a flag.
    #[arg(long, value_name = "ISSUE", value_parser = issue, conflicts_with = "issue_file")]
    #[arg(allow_negative_numbers = true)]
    pub issue: Option<IssueArg>,
    /// An issue from a Markdown file (its first heading is the title); no tracker is needed.
    #[arg(long, value_name = "FILE.md")]
    pub issue_file: Option<PathBuf>,
    /// Branch to start from and to return to.
    #[arg(long, value_name = "BRANCH")]
    pub origin: Option<String>,
    /// Agent that does the work.
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Most step visits.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_steps: Option<u32>,
    /// Longest time, for example 15m.
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    pub max_wall_time: Option<Span>,
    /// Most US dollars.
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub max_cost: Option<f64>,
    /// Most turns of a session.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_turns: Option<u32>,
    /// Attempts of a turn in total.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_retries: Option<u32>,
    /// Format of the final report of steps without a schema.
    #[arg(long, value_name = "FMT")]
    pub format: Option<String>,
    /// What becomes of the work.
    #[arg(long, value_name = "WHAT", value_parser = ["pull-request", "branch", "none"])]
    pub publish: Option<String>,
    /// A variable of the prompts; repeatable.
    #[arg(long = "uv", value_name = "NAME=VALUE", value_parser = variable)]
    pub uv: Vec<(String, String)>,
    /// A note kept in the run's metadata; repeatable.
    #[arg(long = "meta", value_name = "NAME=VALUE", value_parser = pair)]
    pub meta: Vec<(String, String)>,
    /// With --json: print events as JSON Lines, the run output last.
    #[arg(long)]
    pub stream: bool,
    /// Resolve and check everything, print the plan, change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Print what the run changed at its end (with --json: `agentd runs diff --json`).
    #[arg(long, conflicts_with = "dry_run")]
    pub diff: bool,
}

impl RunArgs {
    /// The issue, however it was named.
    pub fn issue(&self) -> Option<&IssueArg> {
        self.named.as_ref().or(self.issue.as_ref())
    }

    /// `--publish` as the configuration knows it.
    pub fn publish(&self) -> Option<Publish> {
        Publish::parse(self.publish.as_deref()?)
    }
}

/// `agentd daemon`.
#[derive(Debug, Args)]
pub struct DaemonArgs {
    /// One poll, wait for what it started, exit.
    #[arg(long)]
    pub once: bool,
}

/// `agentd runs …`.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// List runs, newest first.
    List(ListArgs),
    /// Show a run: what it did, what it cost, why it ended.
    Show(RunRef),
    /// Print what the agent said and did, step by step, with what it cost.
    Log(LogArgs),
    /// Print the report; with --json what was reported, what is proven, and how to go on.
    Report(RunRef),
    /// Print the evidence.
    Evidence(RunRef),
    /// Print the ledger of model requests and tool calls.
    Accounting(RunRef),
    /// Print the journal.
    Events(RunRef),
    /// Print what the run changed.
    Diff(RunRef),
    /// Stop a run after one last report; an agent program has ten seconds to end with its own.
    Stop {
        /// Run id, a unique prefix of it, an instance, or `latest`.
        run: String,
        /// At once, without a report.
        #[arg(long)]
        abort: bool,
    },
    /// Go on with a run that was stopped or killed.
    Resume(RunRef),
    /// Approve a proposal that waits.
    Approve {
        /// Run id, a unique prefix of it, an instance, or `latest`.
        run: String,
        /// The proposal.
        proposal_hash: String,
        /// How long the approval holds.
        #[arg(long, value_name = "SPAN", default_value = "24h", allow_hyphen_values = true)]
        expires: Span,
    },
    /// Check that a run's records hold together.
    Verify(RunRef),
    /// Run it again from its records, in a scratch worktree.
    Replay {
        /// The run.
        #[command(flatten)]
        run: RunRef,
        /// What is taken from the record.
        #[arg(long, value_parser = ["strict", "hybrid", "live"], default_value = "strict")]
        mode: String,
        /// Folder of agents to use instead of the checkout's own (`.agent`). The record has what was asked and answered, no definitions.
        #[arg(long, value_name = "DIR")]
        with_agents: Option<PathBuf>,
    },
    /// Compare two runs: equal, or the first differences.
    Compare {
        /// One run.
        a: String,
        /// The other run.
        b: String,
    },
    /// Sums over runs.
    Stats,
    /// Measure runs against expectations.
    Eval {
        /// The expectations, TOML or JSON: `[[runs]]` with `run` (id, prefix, instance or `latest`), `evidence` (ids that must be there)
        /// and `abstains` (it must end for want of evidence).
        #[arg(long, value_name = "FILE")]
        golden: PathBuf,
    },
}

/// `agentd runs list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only runs in this state: running, waiting (for a person), achieved, failed, or a stop reason or detail.
    #[arg(long, value_name = "STATE", value_parser = state)]
    pub state: Option<State>,
    /// Only runs of this issue: 42, '#42', OWNER/NAME#42 or its address.
    #[arg(long, value_name = "ISSUE", value_parser = issue)]
    pub issue: Option<IssueArg>,
    /// Only runs that began since then: a span such as 24h or 7d, a day (2026-11-24) or a time (RFC 3339).
    #[arg(long, value_name = "WHEN", value_parser = since)]
    pub since: Option<Since>,
    /// Only runs before this one: the last of a list, to see the next ones.
    #[arg(long, value_name = "RUN")]
    pub cursor: Option<String>,
    /// Most runs; 0 = all.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
}

/// `agentd runs log`.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// The run.
    #[command(flatten)]
    pub run: RunRef,
    /// Go on until the run ends.
    #[arg(long)]
    pub follow: bool,
    /// Only what failed: calls, requests, checks, denials.
    #[arg(long)]
    pub failed: bool,
    /// Only this step.
    #[arg(long, value_name = "STEP")]
    pub step: Option<String>,
}

/// `agentd approvals …`.
#[derive(Debug, Subcommand)]
pub enum ApprovalsCommand {
    /// List the calls that wait for an approval, and what was decided on calls that were not made again yet.
    List {
        /// Only of this issue: 42, '#42', OWNER/NAME#42 or its address.
        #[arg(long, value_name = "ISSUE", value_parser = issue)]
        issue: Option<IssueArg>,
    },
    /// Let a call run once; a daemon that waits for it goes on by itself.
    Approve {
        /// The call: its hash, or at least the first 8 digits.
        #[arg(value_name = "HASH")]
        hash: String,
        /// How long the approval holds.
        #[arg(long, value_name = "SPAN", default_value = "24h", allow_hyphen_values = true)]
        expires: Span,
    },
    /// Decide against a call: it waits no more, and the agent is told so when it wants to make it again.
    Deny {
        /// The call: its hash, or at least the first 8 digits.
        #[arg(value_name = "HASH")]
        hash: String,
    },
}

/// A run.
#[derive(Debug, Args)]
pub struct RunRef {
    /// Run id, a unique prefix of it, an instance, or `latest`.
    #[arg(value_name = "RUN", default_value = "latest")]
    pub run: String,
}

/// `agentd agents …`.
#[derive(Debug, Subcommand)]
pub enum AgentsCommand {
    /// List the agents of this repository.
    List,
    /// Check definitions, prompts and schemas; no model is asked.
    Check {
        /// One agent [default: all].
        name: Option<String>,
    },
    /// Write a new agent.
    New {
        /// Its name.
        name: String,
    },
    /// Write a definition in the newest format.
    Migrate {
        /// One agent [default: all].
        name: Option<String>,
    },
}

/// `agentd prompt`.
#[derive(Debug, Args)]
pub struct PromptArgs {
    /// The prompt's address.
    #[arg(value_name = "C1/C2/C3")]
    pub address: String,
    /// Edition.
    #[arg(long, value_name = "E")]
    pub edition: Option<String>,
    /// Adaptation.
    #[arg(long, value_name = "A")]
    pub adaptation: Option<String>,
    /// A variable; repeatable.
    #[arg(long = "uv", value_name = "NAME=VALUE", value_parser = variable)]
    pub uv: Vec<(String, String)>,
    /// The agent whose prompt it is [default: the configured one].
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
}

/// `agentd tools …`.
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// List the tools (bind_mcp_tools).
    List {
        /// Print function definitions as JSON, as chat completions take them.
        #[arg(long, value_name = "FORMAT", value_parser = ["openai"])]
        format: Option<String>,
    },
    /// Call a tool (execute_tool_call).
    Call {
        /// The tool.
        name: String,
        /// Arguments as JSON.
        #[arg(long, value_name = "JSON")]
        args: String,
        /// On whose behalf: set as `user_id` whatever the arguments say.
        #[arg(long, value_name = "UUID")]
        user: String,
    },
}

/// `agentd chat`.
#[derive(Debug, Args)]
pub struct ChatArgs {
    /// On whose behalf.
    #[arg(long, value_name = "UUID")]
    pub user: String,
    /// JSON list of messages, `{"role": "user" | "assistant", "content": "…"}`; `-` reads stdin.
    #[arg(long, value_name = "FILE")]
    pub messages: PathBuf,
    /// Turns with tools, instead of chat.max_iterations.
    #[arg(long, value_name = "N")]
    pub max_iterations: Option<u32>,
    /// Ask only this one of the configured models.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
}

/// `agentd policy …`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Print the verdict on one call, with the rule that gave it.
    Eval {
        /// A policy input (JSON); `-` reads stdin.
        #[arg(long, value_name = "FILE")]
        input: PathBuf,
    },
}

/// `agentd config …`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print every effective value with the layer it came from, and what repositories' own files may not say.
    #[command(visible_alias = "show")]
    Explain {
        /// Only keys that begin with this.
        #[arg(value_name = "KEY")]
        key: Option<String>,
    },
    /// Check the configuration as a run would use it.
    Check,
    /// Print a JSON Schema.
    Schema {
        /// config, run-output, run-record, policy-input, agent, steps-registry, policy, or one of what nodes of a cluster share, such as cell-issue.
        #[arg(value_name = "NAME", default_value = "config")]
        name: String,
    },
}

/// `agentd worktrees …`.
#[derive(Debug, Subcommand)]
pub enum WorktreesCommand {
    /// List them.
    List,
    /// Remove those that hold nothing of value; say what was kept and why.
    Prune {
        /// Only say what would be removed.
        #[arg(long)]
        dry_run: bool,
    },
}

/// `agentd init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Write a systemd unit for the daemon.
    #[arg(long, conflicts_with = "backend")]
    pub service: bool,
    /// Let this agent program work on every step instead of agentd's own session.
    #[arg(long, value_name = "PROGRAM")]
    pub backend: Option<BackendChoice>,
}

/// An agent program that `init` knows how to write down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackendChoice(pub Backend);

impl ValueEnum for BackendChoice {
    fn value_variants<'a>() -> &'a [Self] {
        static CHOICES: LazyLock<Vec<BackendChoice>> = LazyLock::new(|| {
            let known = Backend::ALL.iter().filter(|backend| backend.facts().init.is_some());
            known.map(|backend| BackendChoice(*backend)).collect()
        });
        &CHOICES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.as_str()).help(self.0.facts().title))
    }
}

/// `agentd sim`.
#[derive(Debug, Args)]
pub struct SimArgs {
    /// What stands in the simulated GitHub, and what the model replies.
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// Address to listen on, on loopback; port 0 takes any free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub listen: std::net::SocketAddr,
    /// Keep the simulated repositories in this folder.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}

/// `agentd demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Keep the demo's folder here.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Go on behind the pull request: comments, a review in threads, a failed check, watched live as a daemon hears them.
    #[arg(long)]
    pub review: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// A point of a list, or a number below zero.
    #[test]
    fn what_is_said_may_begin_with_a_dash() {
        for text in ["- keep the name", "-5 degrees", "-5", "--no-verify is wrong"] {
            for command in ["say", "answer", "reject"] {
                let read = Cli::try_parse_from(["agentd", command, "7", text]);
                let said = match read.map(|cli| cli.command) {
                    Ok(
                        Command::Say { text, .. }
                        | Command::Answer { text, .. }
                        | Command::Reject { text, .. },
                    ) => text,
                    other => panic!("{command} {text}: {other:?}"),
                };
                assert_eq!(said, text, "{command}");
            }
        }
        for command in ["say", "answer", "reject"] {
            let quiet =
                Cli::try_parse_from(["agentd", command, "7", "- keep", "it", "--json", "as it is"]).unwrap();
            assert!(quiet.global.json, "{command}");
            let (Command::Say { more, .. } | Command::Answer { more, .. } | Command::Reject { more, .. }) =
                quiet.command
            else {
                panic!("{command}")
            };
            assert_eq!(more, ["it", "as it is"], "{command}");
        }
    }

    #[test]
    fn the_command_line_holds_together_and_every_shown_argument_has_help() {
        Cli::command().debug_assert();
        let mut open = vec![Cli::command()];
        while let Some(command) = open.pop() {
            for argument in
                command.get_arguments().filter(|a| !matches!(a.get_id().as_str(), "help" | "version"))
            {
                assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
            }
            open.extend(command.get_subcommands().cloned());
        }
    }
}
