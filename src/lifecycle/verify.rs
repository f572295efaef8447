//! Stage verify: the operator's verify commands, which agentd itself runs on exactly the tree that is published.
//!
//! Takes a committed run. Leaves the result of each command, and the worktree as it was committed. After a crash in it the
//! next run runs the commands again.

use std::collections::BTreeSet;
use std::time::Duration;

use super::commit::{Committed, new_files};
use super::doubts::{self, WorkTimes};
use super::run::Run;
use super::stage::Workspace;
use crate::domain::canonical::sha256_hex;
use crate::domain::event::{Event, VerifyCommand};
use crate::domain::executed::executed;
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::verify_command::NOT_PUT_BACK;
use crate::engine::journal::JournalError;
use crate::git::error::GitError;
use crate::git::worktree::Worktree;
use crate::record::summary_text;
use crate::repository::base_tree::{self, BaseTree};
use crate::repository::host_command;
use crate::sys::clock::Stopwatch;
use crate::sys::files;
use crate::sys::process::{Captured, Ending, Exit};
use crate::sys::sandbox;
use crate::sys::worktree_path::WorktreeRoot;

/// The least time for all verify commands together, however little of the wall time is left.
const OVERTIME: Duration = Duration::from_secs(5 * 60);
/// Characters of a verify command's output that the report shows.
const TAIL: usize = 2_000;

/// A run whose committed tree was verified, where there is one.
pub struct Verified<'a> {
    committed: Committed<'a>,
}

impl<'a> Verified<'a> {
    /// The committed run, with the stop reason that the verify commands leave.
    pub fn into_committed(self) -> Committed<'a> {
        self.committed
    }
}

/// Runs the verify commands on the committed tree, and takes away what they left there.
pub async fn verify<'a>(mut committed: Committed<'a>) -> Result<Verified<'a>, JournalError> {
    let Committed { worked, has_tree } = &mut committed;
    let (run, workspace) = (worked.run, worked.workspace.as_ref().filter(|_| *has_tree));
    // The person who asked to stop is waiting, and nothing of such a run is offered for merging (D66).
    if let Some(workspace) = workspace.filter(|_| !stopped_by_a_person(&worked.stop)) {
        doubts::warn_of_removed_tests(run);
        verify_all(run, workspace).await?;
        put_back(run, workspace, "the verify commands").await;
        workspace.record_asked(run)?;
    }
    if *has_tree
        && worked.stop.success()
        && let Some(red) = summary_text::red_verify(&run.journal.facts())
    {
        worked.stop = Stop::new(StopDetail::VerifyFailed, red.message());
    }
    Ok(Verified { committed })
}

/// Makes the worktree what was committed again, so that whatever comes next sees that alone.
async fn put_back(run: &Run<'_>, workspace: &Workspace, by: &str) {
    tell_not_put_back(run, by, new_files::put_back(run, &workspace.worktree, by).await);
}

fn tell_not_put_back(run: &Run<'_>, by: &str, done: Result<(), GitError>) {
    if let Err(error) = done {
        let text = format!("what {by} left or changed could not be put back: {error}");
        run.journal.warn(NOT_PUT_BACK, text);
    }
}

fn stopped_by_a_person(stop: &Stop) -> bool {
    matches!(
        stop.detail,
        StopDetail::Shutdown | StopDetail::UserStop | StopDetail::UserAbort | StopDetail::Taken
    )
}

/// Runs the verify commands one after the other (D83), each on what was committed: what one changes is put back before the next one
/// runs, since nobody who has the branch has it. They run even if the wall time is used up, so that finished work is
/// not lost, but then only for a short time.
async fn verify_all(run: &Run<'_>, workspace: &Workspace) -> Result<(), JournalError> {
    let watch = Stopwatch::start();
    let longest = run.wall_time_left().max(OVERTIME);
    let commands = &run.context.config.verify.commands;
    let place = Place::of(run, workspace, longest).await;
    let beside = match &place {
        Place::Worktree if !commands.is_empty() && run.context.replay.is_none() => {
            doubts::beside(run, &workspace.worktree).await
        }
        _ => Vec::new(),
    };
    let mut base = None;
    for (at, argv) in commands.iter().enumerate() {
        let left = run.context.config.verify.timeout.0.min(longest.saturating_sub(watch.elapsed()));
        let mut verified = verify_one((run, workspace), &place, argv, left).await;
        if let Ok(red) = &mut verified
            && !red.passed()
            && run.context.replay.is_none()
            && run.aborted().is_none()
        {
            let left = run.context.config.verify.timeout.0.min(longest.saturating_sub(watch.elapsed()));
            red.also_red_on_base = on_base((run, workspace), &mut base, red, left).await;
        }
        if run.aborted().is_some() {
            // The command and git were cancelled, so the result says nothing about the work.
            let cancelled: Vec<String> = commands[at..].iter().map(|argv| argv.join(" ")).collect();
            let text =
                format!("the run was ended at once: nobody knows what comes of `{}`", cancelled.join("`, `"));
            run.journal.warn("verification_cancelled", text);
            return Ok(());
        }
        let verified = verified?;
        let also_red = verified.also_red_on_base == Some(true);
        let facts = run.journal.facts();
        let changed =
            summary_text::changed_by_run(&verified, facts.committed.as_ref().map(|done| &done.change));
        run.journal.record(Event::Verified(Box::new(verified)))?;
        let by = format!("`{}`", summary_text::command_line(argv));
        match &place {
            Place::Worktree => put_back(run, workspace, &by).await,
            Place::Clean(tree) => tell_not_put_back(run, &by, tree.put_back().await),
            Place::Nowhere(_) => {}
        }
        if also_red {
            let text = format!(
                "`{}` fails on {} too, without what this run did",
                summary_text::command_line(argv),
                run.lease.mapping.origin.branch
            );
            run.journal.warn("also_red_on_base", text);
        }
        if let Some(changed) = changed {
            let text = format!(
                "`{}` was run on the final tree, and {changed}: look at that change before what it says is relied on",
                argv.join(" ").replace('`', "'")
            );
            run.journal.warn("verify_script_changed", text);
        }
    }
    doubts::warn_of_beside(run, &beside);
    if !commands.is_empty() && run.wall_time_left().is_zero() {
        let cap = run.wall_time_cap();
        let text = format!(
            "the verify commands ended after the wall time of {cap:?} was used up; all of them together get what is left \
             of it, and {OVERTIME:?} at least"
        );
        run.journal.warn("verified_in_overtime", text);
    }
    Ok(())
}

/// Where the verify commands run.
enum Place {
    /// Where the agent worked.
    Worktree,
    /// In a checkout of the commit that nobody worked in (`verify.clean`).
    Clean(Box<BaseTree>),
    /// In none, and why.
    Nowhere(String),
}

impl Place {
    async fn of(run: &Run<'_>, workspace: &Workspace, longest: Duration) -> Self {
        let settings = &run.context.config.verify;
        let facts = run.journal.facts();
        let committed = facts.committed.as_ref().map(|committed| committed.head.clone());
        let Some(commit) = committed
            .filter(|_| settings.clean && !settings.commands.is_empty() && run.context.replay.is_none())
        else {
            return Self::Worktree;
        };
        let folder = run.journal.dir().sandbox().join("clean");
        let (stop, within) = (run.stop(), || longest);
        let sandbox = workspace.of_commands(run);
        let made =
            BaseTree::prepare(run.context, (&commit, run.base()), folder, sandbox, (&stop, &within)).await;
        made.map_or_else(
            |why| Self::Nowhere(format!("there is no clean checkout (`verify.clean`): {why}")),
            |tree| Self::Clean(Box::new(tree)),
        )
    }

    fn worktree<'p>(&'p self, workspace: &'p Workspace) -> &'p Worktree {
        match self {
            Self::Clean(tree) => tree.worktree(),
            Self::Worktree | Self::Nowhere(_) => &workspace.worktree,
        }
    }
}

async fn verify_one(
    (run, workspace): (&Run<'_>, &Workspace),
    place: &Place,
    argv: &[String],
    longest: Duration,
) -> Result<VerifyCommand, JournalError> {
    let worktree = place.worktree(workspace);
    let defect = |error: GitError| run.journal.defect(&format!("the tree around a verify command: {error}"));
    let tree_before = worktree.tree_of_known().await.map_err(defect)?;
    let recorded =
        run.context.replay.as_ref().and_then(|recorded_run| recorded_run.verified(argv, &tree_before));
    if let Some(recorded) = recorded {
        return Ok(recorded);
    }
    let executes = executed_in(worktree, argv);
    let rewritten = match place {
        Place::Worktree => rewritten(run, worktree, &executes, &tree_before).await,
        // What is there was made for the commands alone.
        Place::Clean(_) | Place::Nowhere(_) => Vec::new(),
    };
    let started_at = run.context.clock.now_ms();
    let ended = run_command((run, workspace), place, argv, longest).await;
    worktree.something_ran();
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
        Err(why) => (None, Some(why), 0, empty(), empty()),
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
    let artifact = run.journal.keep(&name, whole.into_bytes()).await?;
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
        output: artifact.path.clone(),
        output_file: Some(artifact),
        sandbox: sandbox::name(workspace.of_commands(run)).to_owned(),
        executes,
        rewritten,
        tree_before,
        tree_after,
    })
}

/// The files of the worktree that a command executes, as they are named and as links lead to them.
fn executed_in(worktree: &Worktree, argv: &[String]) -> Vec<String> {
    let Ok(root) = WorktreeRoot::open(worktree.path()) else { return Vec::new() };
    let real = |path: &str| root.resolve(path).ok();
    let is_file = |path: &str| real(path).is_some_and(|found| found.absolute().as_path().is_file());
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    let found = executed(&words, &is_file);
    let followed: Vec<String> = found.iter().filter_map(|path| Some(real(path)?.relative())).collect();
    found.into_iter().chain(followed).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Of these, the files that git does not keep, such as a program in a folder of dependencies, and that were written since the first step
/// of the run, or of the one that it goes on with, had begun.
async fn rewritten(run: &Run<'_>, worktree: &Worktree, executes: &[String], tree: &str) -> Vec<String> {
    let Some(times) = WorkTimes::of(run) else { return Vec::new() };
    let mut rewritten = Vec::new();
    for path in executes {
        let stamp = files::stamp(worktree.path().join(path).as_path());
        let written = stamp.and_then(|stamp| stamp.changed_ms()).is_some_and(|at| times.has(at));
        let kept =
            written && run.context.checkout.tree_blob(tree, path).await.is_ok_and(|found| found.is_some());
        if written && !kept {
            rewritten.push(path.clone());
        }
    }
    rewritten
}

/// Runs a command. The error says why it did not start.
async fn run_command(
    (run, workspace): (&Run<'_>, &Workspace),
    place: &Place,
    argv: &[String],
    longest: Duration,
) -> Result<Exit, String> {
    let environment = run.child_environment();
    let ran = match place {
        Place::Nowhere(why) => return Err(why.clone()),
        Place::Clean(tree) => tree.run(argv, environment, longest, &run.stop()).await,
        Place::Worktree => {
            let (worktree, sandbox) = (&workspace.worktree, workspace.of_commands(run));
            let spec = host_command::verify_spec(argv, worktree, environment, longest, sandbox);
            host_command::run(spec, &run.stop()).await
        }
    };
    ran.map_err(|error| {
        let facts = run.journal.facts();
        let change = facts.committed.as_ref().map(|committed| &committed.change);
        match change.map(|change| change.removed_of(argv)).unwrap_or_default().as_slice() {
            [] => error.to_string(),
            removed => summary_text::removed_script(removed),
        }
    })
}

/// Whether a failing command fails on the origin commit too. Then this run did not break it. `None` = it could not be
/// tried there.
async fn on_base(
    (run, workspace): (&Run<'_>, &Workspace),
    base: &mut Option<BaseTree>,
    red: &VerifyCommand,
    left: Duration,
) -> Option<bool> {
    let commit = run.base();
    if run.context.checkout.tree_of_commit(commit).await.is_ok_and(|tree| tree == red.tree_before) {
        return Some(true);
    }
    let sandbox = workspace.of_commands(run);
    let known = base_tree::known_end(run.context, commit, &red.argv, sandbox);
    if let Some(code) = known.read() {
        return Some(code != 0);
    }
    if left.is_zero() {
        return None;
    }
    let stop = run.stop();
    if base.is_none() {
        let folder = run.journal.dir().sandbox().join("base");
        let within = || left;
        match BaseTree::prepare(run.context, (commit, commit), folder, sandbox, (&stop, &within)).await {
            Ok(made) => *base = Some(made),
            Err(why) => {
                run.journal.warn(
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
    // A command that could not run, or took too long, may succeed another time.
    if let Some(code) = code.filter(|code| !matches!(code, 126 | 127)) {
        known.keep(code);
    }
    Some(code != Some(0))
}

fn empty() -> Captured {
    Captured { head: Vec::new(), tail: Vec::new(), total: 0, sha256: sha256_hex(b""), truncated: false }
}
