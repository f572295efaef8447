//! The verify commands: agentd's own word on "tests pass", on the very tree that is published.

use std::ffi::OsString;
use std::time::Duration;

use super::base_tree::{self, BaseTree};
use super::enclosure;
use super::host_command;
use super::new_files;
use super::run::Run;
use super::site::Site;
use super::telling;
use crate::domain::canonical::sha256_hex;
use crate::domain::event::{Event, VerifyCommand};
use crate::engine::journal::{Journal as _, JournalError};
use crate::git::error::GitError;
use crate::git::worktree::Worktree;
use crate::sys::clock::Stopwatch;
use crate::sys::process::{Captured, Ending, Exit, ProcessError, ProcessSpec};
use crate::sys::sandbox::{self, ProcessSandbox};

/// Bytes of each stream of a verify command that are kept.
const OUTPUT_CAP: usize = 256 * 1024;
/// What the verify commands get together at least, however little of the wall time is left.
const OVERTIME: Duration = Duration::from_secs(5 * 60);
/// Characters of a verify command's output that the report shows.
const TAIL: usize = 2_000;

/// Runs the verify commands one after the other on the committed tree (D83); agentd's own word on "tests pass". They run
/// although the wall time is used up, so that finished work is not thrown away, but not for long then.
pub async fn verify(run: &Run<'_>, site: &Site) -> Result<(), JournalError> {
    verify_all(run, site).await?;
    if let Some(worktree) = run.worktree()
        && let Err(error) = new_files::put_back(run, worktree).await
    {
        run.warn("left_by_verify", format!("what the verify commands left could not be taken away: {error}"));
    }
    run.enclosure().map_or(Ok(()), |enclosure| enclosure.record_asked(run))
}

async fn verify_all(run: &Run<'_>, site: &Site) -> Result<(), JournalError> {
    let Some(worktree) = run.worktree() else { return Ok(()) };
    let watch = Stopwatch::start();
    let longest = run.wall_time_left().max(OVERTIME);
    let commands = &site.config.verify.commands;
    let mut base = None;
    for (at, argv) in commands.iter().enumerate() {
        let left = site.config.verify.timeout.0.min(longest.saturating_sub(watch.elapsed()));
        let mut verified = verify_one(run, site, worktree, argv, left).await;
        if let Ok(red) = &mut verified
            && !red.passed()
            && site.replay.is_none()
            && run.aborted().is_none()
        {
            let left = site.config.verify.timeout.0.min(longest.saturating_sub(watch.elapsed()));
            red.also_red_on_base = on_base(run, site, &mut base, red, left).await;
        }
        if run.aborted().is_some() {
            // The command and git were cancelled: what came of it says nothing about the work.
            let cancelled: Vec<String> = commands[at..].iter().map(|argv| argv.join(" ")).collect();
            let text =
                format!("the run was ended at once: nobody knows what comes of `{}`", cancelled.join("`, `"));
            run.warn("verification_cancelled", text);
            return Ok(());
        }
        let verified = verified?;
        let also_red = verified.also_red_on_base == Some(true);
        run.record(Event::Verified(verified))?;
        if also_red {
            let text = format!(
                "`{}` fails on {} too, without what this run did",
                telling::command_line(argv),
                run.lease.mapping.origin.branch
            );
            run.warn("also_red_on_base", text);
        }
        let changed = run.facts().committed.as_ref().map(|done| done.change.executed_by(argv));
        if let Some(changed) = changed.filter(|changed| !changed.is_empty()) {
            let text = format!(
                "`{}` was run on the final tree, and {}: look at that change before what it says is relied on",
                argv.join(" ").replace('`', "'"),
                telling::changed_script(&changed)
            );
            run.warn("verify_script_changed", text);
        }
    }
    if !commands.is_empty() && run.wall_time_left().is_zero() {
        let cap = run.wall_time_cap();
        let text = format!(
            "the verify commands ended after the wall time of {cap:?} was used up; all of them together get what is left \
             of it, and {OVERTIME:?} at least"
        );
        run.warn("verified_in_overtime", text);
    }
    Ok(())
}

async fn verify_one(
    run: &Run<'_>,
    site: &Site,
    worktree: &Worktree,
    argv: &[String],
    longest: Duration,
) -> Result<VerifyCommand, JournalError> {
    let defect = |error: GitError| run.defect(&format!("the tree around a verify command: {error}"));
    let tree_before = worktree.tree_of_known().await.map_err(defect)?;
    let recorded = site.replay.as_ref().and_then(|recording| recording.verified(argv, &tree_before));
    if let Some(recorded) = recorded {
        return Ok(recorded);
    }
    let started_at = site.clock.now_ms();
    let ended = run_command(run, worktree, argv, longest).await;
    let tree_after = worktree.tree_of_known().await.map_err(defect)?;
    let name = format!("verify/{}.txt", uuid::Uuid::now_v7());
    let not_started = ended.is_err();
    let (exit_code, end, duration_ms, stdout, stderr) = match ended {
        Ok(exit) => {
            let end = match (exit.ending, exit.code, exit.signal) {
                (Ending::TimedOut, ..) => Some("timeout".to_owned()),
                (_, None, Some(signal)) => Some(format!("signal {signal}")),
                (_, None, None) => Some("ended without exit code".to_owned()),
                _ => None,
            };
            let code = if end.is_some() { None } else { exit.code };
            (code, end, exit.duration.as_millis() as u64, exit.stdout, exit.stderr)
        }
        Err(error) => (None, Some(error.to_string()), 0, empty(), empty()),
    };
    let redact = |captured: &Captured| {
        run.plan
            .redactor
            .redact(&captured.text())
            .map_or_else(|_| "[withheld]".to_owned(), |text| text.into_owned())
    };
    let (out, err) = (redact(&stdout), redact(&stderr));
    let whole = format!("$ {}\n{out}{err}", argv.join(" "));
    let tail: String = whole.chars().skip(whole.chars().count().saturating_sub(TAIL)).collect();
    let artifact = run.journal().keep(&name, whole.into_bytes()).await?;
    Ok(VerifyCommand {
        argv: argv.to_vec(),
        exit_code,
        end,
        not_started,
        also_red_on_base: None,
        started_at,
        duration_ms,
        stdout_sha256: sha256_hex(out.as_bytes()),
        stderr_sha256: sha256_hex(err.as_bytes()),
        stdout_bytes: stdout.total,
        stderr_bytes: stderr.total,
        tail,
        output: artifact.path,
        sandbox: sandbox::name(run.caged()).to_owned(),
        tree_before,
        tree_after,
    })
}

async fn run_command(
    run: &Run<'_>,
    worktree: &Worktree,
    argv: &[String],
    longest: Duration,
) -> Result<Exit, ProcessError> {
    host_command::run(spec(argv, worktree, run.child_environment(), longest, run.caged()), &run.stop()).await
}

/// How a verify command is started, also outside of a run.
pub fn spec(
    argv: &[String],
    worktree: &Worktree,
    environment: Vec<(OsString, OsString)>,
    longest: Duration,
    caged: Option<&ProcessSandbox>,
) -> ProcessSpec {
    let (program, args) =
        argv.split_first().map_or(("", &argv[..0]), |(program, args)| (program.as_str(), args));
    let spec = ProcessSpec::new(program, worktree.path())
        .args(args)
        .envs(environment)
        .timeout(longest)
        .output_cap(OUTPUT_CAP);
    sandbox::wrap(caged, spec)
}

/// Whether a red command is red on the origin's commit, too: then it is not this run that broke it. `None` = it could not
/// be tried there.
async fn on_base(
    run: &Run<'_>,
    site: &Site,
    base: &mut Option<BaseTree>,
    red: &VerifyCommand,
    left: Duration,
) -> Option<bool> {
    let commit = &run.lease.mapping.origin.commit;
    if site.checkout.tree_of_commit(commit).await.is_ok_and(|tree| tree == red.tree_before) {
        return Some(true);
    }
    let caged = run.caged();
    let known = base_tree::known_end(site, commit, &red.argv, caged);
    if let Some(code) = known.read() {
        return Some(code != 0);
    }
    if left.is_zero() {
        return None;
    }
    let stop = run.stop();
    if base.is_none() {
        let folder = enclosure::folder(run.journal().dir()).join("base");
        let within = || left;
        match BaseTree::prepare(site, commit, folder, caged, (&stop, &within)).await {
            Ok(made) => *base = Some(made),
            Err(why) => {
                run.warn(
                    "base_not_tried",
                    format!("whether it fails on the origin as well is not known: {why}"),
                );
                return None;
            }
        }
    }
    let exit = base.as_ref()?.run(&red.argv, run.child_environment(), left, &stop).await.ok()?;
    if run.aborted().is_some() {
        return None;
    }
    let code = exit.code.filter(|_| exit.ending == Ending::Itself);
    // What could not run may be able to run tomorrow, and what took too long may end.
    if let Some(code) = code.filter(|code| !matches!(code, 126 | 127)) {
        known.keep(code);
    }
    Some(code != Some(0))
}

fn empty() -> Captured {
    Captured { head: Vec::new(), tail: Vec::new(), total: 0, sha256: sha256_hex(b""), truncated: false }
}
