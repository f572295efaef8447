//! Where the programs of a definition run: in the worktree, with a small environment and a time limit.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use super::abort::Abort;
use super::interrupt::{GRACE, Interrupt, Interrupts};
use super::recorded_programs::RecordedPrograms;
use super::touched::Touched;
use crate::domain::check_output::CheckOutput;
use crate::domain::executed::executed;
use crate::domain::stop::Stop;
use crate::sys::paths::AbsPath;
use crate::sys::process::{self, Ending, ProcessSpec};
use crate::sys::sandbox::{self, ProcessSandbox};
use crate::sys::worktree_path::WorktreeRoot;
use tokio_util::sync::CancellationToken;

/// Bytes of each stream that are kept.
const OUTPUT_CAP: usize = 1024 * 1024;
/// Exit codes by which a shell says that it could not run a command.
const COULD_NOT_RUN: [i32; 2] = [126, 127];

/// What the programs of a run cannot see: where the work comes from and what becomes of it. Agents neither push nor
/// merge here, but checks ask whether that is done (D105).
pub trait Upstream: Send + Sync + std::fmt::Debug {
    /// Whether a command asks about the remote or the origin branch.
    fn concerns(&self, command: &str) -> bool;

    /// A git directory that shows the repository as it will be once the work is pushed and merged. The error is a sentence.
    fn published(&self) -> BoxFuture<'_, Result<AbsPath, String>>;

    /// Whether a file, named from the root of the worktree, differs from the one in the origin commit. The error is a
    /// sentence.
    fn differs<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<bool, String>>;
}

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
    pub sandbox: Option<ProcessSandbox>,
    /// Where the work comes from and where it goes; `None` = not known.
    pub upstream: Option<Arc<dyn Upstream>>,
    /// Learns of each program that runs.
    pub touched: Touched,
    /// What a recorded run knows of them; `None` = they run.
    pub recorded: Option<Arc<dyn RecordedPrograms>>,
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
    /// Another git directory than the worktree's.
    pub git_dir: Option<AbsPath>,
}

/// How it ended.
#[derive(Debug, Clone)]
pub(super) struct Ran {
    /// What it left behind.
    pub output: CheckOutput,
    /// Why there is no exit code, in words.
    pub end: Option<String>,
    /// It could not run at all. Work on the issue cannot repair that (E14).
    pub could_not_run: bool,
    /// From start to end.
    pub duration: Duration,
}

impl Workplace {
    /// Runs a program to its end. The error is a stop that did not wait for it.
    pub(super) async fn run(&self, program: Program<'_>, interrupts: &Interrupts) -> Result<Ran, Stop> {
        let git_dir = program
            .git_dir
            .as_ref()
            .map(|dir| [("GIT_DIR", dir.as_path()), ("GIT_WORK_TREE", self.root.path().as_path())]);
        let spec = ProcessSpec::new(program.program, self.root.path())
            .args(program.args)
            .env("TERM", "dumb")
            .env("NO_COLOR", "1")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("PWD", self.root.path())
            .envs(git_dir.into_iter().flatten())
            .stdin(program.stdin)
            .timeout(program.time_limit)
            .output_cap(OUTPUT_CAP);
        let spec = sandbox::wrap(self.sandbox.as_ref(), spec);
        self.touched.mark();
        let cancel = CancellationToken::new();
        let exit = match interrupts.watch(Some(GRACE), process::run(spec, &cancel)).await {
            Ok(exit) => exit,
            Err(Interrupt::End(abort)) => return Err(abort.into_failure().stop),
            Err(Interrupt::GraceOver) => {
                let without = || Abort::internal("a grace ran out that no stop began").into_failure().stop;
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

    /// A file that a command would execute although the run changed it, so that it says what the agent wants. The error
    /// is a sentence.
    pub(super) async fn changed_program(
        &self,
        program: &Path,
        args: &[&str],
    ) -> Result<Option<String>, String> {
        let Some(upstream) = &self.upstream else { return Ok(None) };
        let root = self.root.path().as_path();
        let program = program.strip_prefix(root).map_or_else(
            |_| program.to_string_lossy().into_owned(),
            |inside| format!("./{}", inside.to_string_lossy()),
        );
        let argv: Vec<&str> = std::iter::once(program.as_str()).chain(args.iter().copied()).collect();
        let real = |path: &str| self.root.resolve(path).ok();
        let is_file = |path: &str| real(path).is_some_and(|found| found.absolute().as_path().is_file());
        for path in executed(&argv, &is_file) {
            let followed = real(&path).map(|found| found.relative()).unwrap_or_else(|| path.clone());
            if upstream.differs(&path).await? || (followed != path && upstream.differs(&followed).await?) {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// The place of a definition's program: below the agent's folder if it is there, else as it is named (a name in
    /// `PATH`, or a path in the worktree).
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
