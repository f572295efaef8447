//! People: arguments, output, errors with hints, exit codes.

pub mod args;
pub mod error;
pub mod output;

mod agents_command;
mod answer_command;
mod approvals_command;
mod approvals_text;
mod asking;
mod chat_command;
mod config_command;
mod clones;
#[cfg(feature = "nats")]
mod cluster_access;
mod concealed;
mod configuration_watch;
#[cfg(feature = "nats")]
pub mod cluster;
mod context;
mod doctor;
#[cfg(feature = "nats")]
mod elsewhere;
mod extend_command;
mod init;
mod given_flags;
mod global;
mod issue_arg;
mod known_daemon;
mod logging;
mod mcp_command;
mod parked_issues;
mod policy_command;
mod progress;
mod remote;
mod run_command;
mod run_filter;
mod runs;
mod service_unit;
mod shell_command;
mod sim_command;
mod repositories;
mod steering;
mod stopping;
mod store_refusal;
mod store_wait;
mod sweep_command;
mod take_command;
mod tools_command;
mod demo;
mod daemon_command;
mod daemon_front;
mod why_command;
#[cfg(feature = "nats")]
mod why_nodes;
mod worktrees_command;
mod wrap;
mod transcript;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use args::{Cli, Command, RunsCommand, ToolsCommand, WorktreesCommand};
use context::Context;
use error::CommandError;
use given_flags::GivenFlags;
use output::Output;

use crate::config::Env;
use crate::sys::process;

/// The whole program: reads arguments and environment, runs the command, and gives the exit code.
pub fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    crate::sys::sandbox::inside::enter_if_asked();
    crate::sys::host::close_memory();
    // The one provider of cryptography (D58). It fails only if one is installed already, which is fine.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return told_by_clap(&error, &arguments),
    };
    let told =
        ErrorOutput { output: Output::plain(cli.global.json), run: matches!(cli.command, Command::Run(_)) };
    let env = match Env::capture() {
        Ok(env) => env,
        Err(error) => {
            let error = CommandError::invalid(format!("the working directory cannot be read: {error}"));
            return told.failure(&error.hint("go to a directory that exists"));
        }
    };
    let lines = matches!(&cli.command, Command::Run(args) if args.stream);
    let given = GivenFlags::of(&cli.global, &Cli::command()).map(|given| &*Box::leak(Box::new(given)));
    let output = Output::new(&cli.global, &env).in_lines(lines).giving(given);
    let told = ErrorOutput { output, ..told };
    // A defect of agentd ends with a documented exit code too. The panic itself was written to stderr.
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(cli, env, output)));
    // Nothing that was started outlives the program, whatever ended it.
    process::kill_all();
    match done.unwrap_or_else(|_| Err(CommandError::failed("a defect of agentd ended the command"))) {
        Ok(code) => ExitCode::from(code),
        Err(error) => told.failure(&error),
    }
}

/// How a failure is told: what `run --json` prints is a run output in every case.
#[derive(Clone, Copy)]
struct ErrorOutput {
    output: Output,
    run: bool,
}

impl ErrorOutput {
    fn failure(self, error: &CommandError) -> ExitCode {
        if self.run && self.output.json() {
            self.output.say_only(error);
            // When stdout cannot be written, stderr has told it.
            let _ = self.output.document(&run_command::unstarted("(not read)".to_owned(), error));
        } else {
            self.output.failure(error);
        }
        ExitCode::from(error.exit_code)
    }
}

/// Help and version are results; everything else that clap says is exit code 4, never its own 2.
fn told_by_clap(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    use clap::error::ErrorKind;
    let given = |word: &str| arguments.iter().any(|argument| argument == word);
    let output = Output::plain(given("--json")).in_lines(given("--stream"));
    let text = error.render();
    let shown = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            return output.result(&text.to_string()).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
        }
        // `agentd` alone asks what there is.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if arguments.len() < 2 => {
            return output.result(&text.to_string()).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            // The value of a flag is no command.
            let named = |word: &&OsString| Cli::command().find_subcommand(word).is_some();
            let command = arguments.iter().skip(1).find(named).and_then(|word| word.to_str());
            let command = command.map(|word| format!(" {word}")).unwrap_or_default();
            CommandError::argument("a command is missing")
                .hint(format!("`agentd help{command}` lists the commands"))
        }
        _ => {
            // What the standard library says of a number names its insides.
            let text = text
                .to_string()
                .replace("invalid digit found in string", "this is not a whole number from 0 on, such as 5")
                .replace("invalid float literal", "this is not a number, such as 5 or 2.50");
            CommandError::argument(text.strip_prefix("error: ").unwrap_or(&text).trim_end())
        }
    };
    ErrorOutput { output, run: given("run") }.failure(&shown)
}

fn run(cli: Cli, env: Env, output: Output) -> Result<u8, CommandError> {
    let told = match cli.command {
        // What happens is logged as it happens (S-034). The libraries below stay quiet.
        Command::Daemon(_)
        | Command::Sim(_)
        | Command::Chat(_)
        | Command::Tools(ToolsCommand::Call { .. }) => "agentd=info,warn",
        _ => "warn",
    };
    let progress = matches!(
        cli.command,
        Command::Run(_)
            | Command::Demo(_)
            | Command::GiveBack { .. }
            | Command::Runs(RunsCommand::Resume(_) | RunsCommand::Replay { .. })
    );
    logging::start(&cli.global, output, told, progress)?;
    let context = Context::new(env, cli.global, output);
    context.check_config_flag()?;
    match &cli.command {
        Command::Config(command) => config_command::run(&context, command),
        Command::Policy(command) => policy_command::run(&context, command),
        Command::Init(args) => init::run(&context, args),
        Command::Doctor => return doctor::run(&context),
        #[cfg(feature = "nats")]
        Command::Cluster(command) => return cluster::run(&context, command),
        Command::Run(args) => return run_command::run(&context, args),
        Command::Demo(args) => return demo::run(&context, args),
        Command::Daemon(args) => return daemon_command::daemon(&context, args.once),
        Command::Sweep(args) => return sweep_command::sweep(&context, args),
        Command::Status => daemon_command::status(&context),
        Command::Answer { issue, text, more } => answer_command::answer(&context, issue, &words(text, more)),
        Command::Approve { issue, hash } => answer_command::approve(&context, issue, hash.as_deref()),
        Command::Reject { issue, text, more } => answer_command::reject(&context, issue, &words(text, more)),
        Command::Extend { issue, usd } => extend_command::extend(&context, issue, *usd),
        Command::Why { issue, exit_status } => return why_command::why(&context, issue, *exit_status),
        Command::Attach { issue } => return steering::attach(&context, issue),
        Command::Say { issue, text, more } => steering::say(&context, issue, &words(text, more)),
        Command::Take { issue } => take_command::take(&context, issue),
        Command::GiveBack { issue, message, end, elsewhere } => {
            return take_command::give_back(&context, issue, message.as_deref(), (*end, *elsewhere));
        }
        Command::Shell { issue } => return shell_command::shell(&context, issue),
        Command::Worktrees(WorktreesCommand::List) => worktrees_command::list(&context),
        Command::Worktrees(WorktreesCommand::Prune { dry_run }) => {
            worktrees_command::prune(&context, *dry_run)
        }
        Command::Sim(args) => sim_command::run(&context, args),
        Command::Mcp(args) => mcp_command::run(&context, args),
        Command::Approvals(command) => approvals_command::run(&context, command),
        Command::Agents(command) => return agents_command::agents(&context, command),
        Command::Tools(ToolsCommand::List { format }) => tools_command::list(&context, format.is_some()),
        Command::Tools(ToolsCommand::Call { name, args, user }) => {
            return tools_command::call(&context, name, args, user);
        }
        Command::Chat(args) => return chat_command::run(&context, args),
        Command::Prompt(args) => agents_command::prompt(&context, args),
        Command::Runs(asked) => return runs::run(&context, asked),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "agentd", &mut script);
            output.bytes(&script)
        }
    }
    .map(|()| 0)
}

/// What people say, in one argument or in several.
fn words(first: &str, more: &[String]) -> String {
    std::iter::once(first).chain(more.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
}
