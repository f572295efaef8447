//! A command of the operator (set-up, verify). It ends when the run is aborted, a set-up when the run is asked to stop.

use std::ffi::OsString;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::engine::stop::StopSignal;
use crate::git::worktree::Worktree;
use crate::sys::process::{self, Exit, ProcessError, ProcessSpec};
use crate::sys::sandbox::{self, ProcessSandbox};

/// Bytes of each stream of a verify command that are kept.
const OUTPUT_CAP: usize = 256 * 1024;

/// Runs it to its end. An abort waits until the command has ended too.
pub async fn run(spec: ProcessSpec, stop: &StopSignal) -> Result<Exit, ProcessError> {
    run_until(spec, async {
        stop.wait_aborted().await;
    })
    .await
}

/// The same of one that a later run does again: whoever asks the run to stop does not wait for it.
pub async fn run_unless_asked(spec: ProcessSpec, stop: &StopSignal) -> Result<Exit, ProcessError> {
    run_until(spec, stop.wait_asked()).await
}

async fn run_until(spec: ProcessSpec, over: impl Future<Output = ()>) -> Result<Exit, ProcessError> {
    let cancel = CancellationToken::new();
    let ends = cancel.clone();
    let running = process::run(spec, &cancel);
    tokio::pin!(running);
    tokio::select! {
        ended = &mut running => ended,
        () = over => {
            ends.cancel();
            running.await
        }
    }
}

/// How a verify command is started: in a run, on the base branch, and by `agentd doctor`. Whatever each of them gets is set here.
pub fn verify_spec(
    argv: &[String],
    worktree: &Worktree,
    environment: Vec<(OsString, OsString)>,
    longest: Duration,
    sandbox: Option<&ProcessSandbox>,
) -> ProcessSpec {
    let (program, args) =
        argv.split_first().map_or(("", &argv[..0]), |(program, args)| (program.as_str(), args));
    let spec = ProcessSpec::new(program, worktree.path())
        .args(args)
        .envs(environment)
        .timeout(longest)
        .output_cap(OUTPUT_CAP);
    sandbox::wrap(sandbox.map(ProcessSandbox::of_configured).as_ref(), spec)
}
