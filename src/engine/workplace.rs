//! Where the programs that a definition names run: the worktree, with a small environment and a bound on time.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::halt::Halt;
use super::interrupt::{GRACE, Interrupt, Interrupts};
use crate::domain::check_output::CheckOutput;
use crate::domain::stop::Stop;
use crate::sys::cage::{self, Caged};
use crate::sys::process::{self, Ending, ProcessSpec};
use crate::sys::worktree_path::WorktreeRoot;
use tokio_util::sync::CancellationToken;

/// Bytes of each stream that are kept.
const OUTPUT_CAP: usize = 1024 * 1024;
/// Exit codes by which a shell says that it could not run a command.
const COULD_NOT_RUN: [i32; 2] = [126, 127];

/// What the programs of a run share.
#[derive(Debug, Clone)]
pub struct Workplace {
    /// The worktree: their working directory.
    pub root: WorktreeRoot,
    /// The agent's folder of the main checkout: where programs of the agent's own lie.
    pub agent_folder: PathBuf,
    /// Their whole environment; no secrets belong in it.
    pub environment: Vec<(OsString, OsString)>,
    /// Longest time of a check or a completion program.
    pub time_limit: Duration,
    /// What they run in; `None` = as they are.
    pub caged: Option<Caged>,
}

/// One program to run.
#[derive(Debug)]
pub(super) struct Program<'a> {
    /// A name looked up in `PATH`, or a path.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<&'a str>,
    /// Its input.
    pub stdin: Vec<u8>,
    /// Its time.
    pub time_limit: Duration,
}

/// How it ended.
#[derive(Debug, Clone)]
pub(super) struct Ran {
    /// What it left behind.
    pub output: CheckOutput,
    /// Why there is no exit code, in words.
    pub end: Option<String>,
    /// It could not be run at all: nobody can repair that by working on the issue (E14).
    pub could_not_run: bool,
    /// From start to end.
    pub duration: Duration,
}

impl Workplace {
    /// Runs a program to its end. The error is a stop that did not wait for it.
    pub(super) async fn run(&self, program: Program<'_>, interrupts: &Interrupts) -> Result<Ran, Stop> {
        let spec = ProcessSpec::new(program.program, self.root.path())
            .args(program.args)
            .env("TERM", "dumb")
            .env("NO_COLOR", "1")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("PWD", self.root.path())
            .stdin(program.stdin)
            .timeout(program.time_limit)
            .output_cap(OUTPUT_CAP);
        let spec = cage::wrap(self.caged.as_ref(), spec);
        let cancel = CancellationToken::new();
        let exit = match interrupts.watch(Some(GRACE), process::run(spec, &cancel)).await {
            Ok(exit) => exit,
            Err(Interrupt::End(halt)) => return Err(halt.into_failure().stop),
            Err(Interrupt::GraceOver) => {
                let without = || Halt::internal("a grace ran out that no stop began").into_failure().stop;
                return Err(interrupts.stop.asked().unwrap_or_else(without));
            }
        };
        let exit = match exit {
            Ok(exit) => exit,
            Err(error) => {
                return Ok(Ran {
                    output: CheckOutput::default(),
                    end: Some(error.to_string()),
                    could_not_run: true,
                    duration: Duration::ZERO,
                });
            }
        };
        let end = match (exit.ending, exit.code, exit.signal) {
            (Ending::TimedOut, ..) => {
                Some(format!("it was ended after {} s", program.time_limit.as_secs_f32()))
            }
            (Ending::Cancelled, ..) => Some("it was ended".to_owned()),
            (Ending::Itself, None, Some(signal)) => Some(format!("signal {signal} ended it")),
            (Ending::Itself, None, None) => Some("it ended without an exit code".to_owned()),
            (Ending::Itself, Some(_), _) => None,
        };
        Ok(Ran {
            could_not_run: end.is_none() && exit.code.is_some_and(|code| COULD_NOT_RUN.contains(&code)),
            output: CheckOutput {
                stdout: exit.stdout.text(),
                stderr: exit.stderr.text(),
                exit_code: if end.is_none() { exit.code } else { None },
                expected_path: None,
            },
            end,
            duration: exit.duration,
        })
    }

    /// Where a definition's program is: below the agent's folder where it lies there, else as it is named (a name of
    /// `PATH`, or a path of the worktree).
    pub(super) fn program(&self, named: &str) -> PathBuf {
        if let Some(own) = crate::definition::source::below(&self.agent_folder, named)
            && own.is_file()
        {
            return own;
        }
        if named.contains('/') && Path::new(named).is_relative() {
            return self.root.path().join(named).as_path().to_owned();
        }
        PathBuf::from(named)
    }
}
