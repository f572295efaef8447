//! Setting up a new worktree: chosen untracked files of the main checkout are copied, then the setup commands run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::context::RepositoryContext;
use super::host_command;
use super::kept_setup::KeptSetup;
use super::resources::blocking;
use crate::domain::name::CommitId;
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::stop::StopSignal;
use crate::git::ShownForSetUp;
use crate::git::error::GitError;
use crate::git::worktree::{ChangeKind, ChangedFile, Worktree};
use crate::sys::clock::Stopwatch;
use crate::sys::files;
use crate::sys::process::{Exit, ProcessSpec};

/// Stands in the administrative directory once a worktree is set up; a set-up that failed is done again next time.
const SET_UP: &str = "agentd-furnished";
/// What differed in it before its first set-up began, and the most bytes of that.
const BEGUN: &str = "agentd-set-up-begun";
const LONGEST_BEGUN: u64 = 64 << 20;
/// Bytes of a setup command's output that are kept.
const OUTPUT_CAP: usize = 16 * 1024;
/// Files that a note names.
const LONGEST_LIST: usize = 10;
/// Said where the commands are not run.
const LEFT_OUT: &str = "worktree.setup was not run: the branch has commits of its own, files of the worktree are changed, and its commands \
                        would run what an agent may have written, outside of the sandbox";
/// Characters of a failed command's output that people are shown.
const TAIL: usize = 1_000;

/// Copies and sets up, once for each worktree. `base`: the commit of the origin branch that it began with. `left` says how
/// much time there is, `note` takes what people should know. The stop is why the run cannot go on.
pub async fn set_up(
    context: &RepositoryContext,
    worktree: &Worktree,
    base: &CommitId,
    stop: &StopSignal,
    left: &(dyn Fn() -> Duration + Sync),
    note: &(dyn Fn(&'static str, String) + Sync),
) -> Result<(), Stop> {
    let settings = &context.config.worktree;
    let done = worktree.git_dir().join(SET_UP);
    if (settings.copy.is_empty() && settings.setup.is_empty()) || done.as_path().exists() {
        return Ok(());
    }
    for path in &settings.copy {
        let notes = copy(context, worktree, path).await.map_err(|error| failed(&error.to_string()))?;
        notes.into_iter().for_each(|told| note("worktree_copy", told));
    }
    let kept = KeptSetup::of(context, worktree).await;
    let brought = match &kept {
        Some(kept) => kept.bring(worktree).await.map_err(|error| failed(&error.to_string()))?,
        None => false,
    };
    if brought {
        tracing::info!("what setting a worktree up makes was copied from what is kept");
    } else if !settings.setup.is_empty() {
        // Somebody's edits may be there: the branch may be a person's, or an earlier set-up failed.
        let git = |error: GitError| failed(&error.to_string());
        let before = before_setup(worktree).await.map_err(git)?;
        let shown = worktree.show_for_set_up(base).await.map_err(git)?;
        if shown == ShownForSetUp::Edited {
            note("setup_left_out", LEFT_OUT.to_owned());
            return Ok(());
        }
        let ran = run_setup_commands(context, worktree, left, stop).await;
        worktree.something_ran();
        if shown == ShownForSetUp::Base {
            worktree.show_again().await.map_err(git)?;
        }
        let is_kept = ran.is_ok();
        if is_kept
            && let Some(kept) = &kept
            && let Err(error) = kept.keep(worktree, base).await
        {
            tracing::warn!(%error, "what setting the worktree up made is not kept for the next one");
        }
        let left = left_by_setup(worktree, &before).await.map_err(|error| failed(&error.to_string()));
        ran?;
        left?.into_iter().for_each(|told| note("setup_put_back", told));
    }
    files::write_private(done.as_path(), b"").map_err(|error| failed(&error.to_string()))
}

async fn run_setup_commands(
    context: &RepositoryContext,
    worktree: &Worktree,
    left: &(dyn Fn() -> Duration + Sync),
    stop: &StopSignal,
) -> Result<(), Stop> {
    let settings = &context.config.worktree;
    let watch = Stopwatch::start();
    for argv in &settings.setup {
        let left = settings.setup_timeout.0.saturating_sub(watch.elapsed()).min(left());
        run_setup_command(context, worktree, argv, left, stop).await?;
    }
    Ok(())
}

/// The files that differ from the commit before any setup command ran, also when an earlier set-up was cut off.
async fn before_setup(worktree: &Worktree) -> Result<Vec<String>, GitError> {
    let file = worktree.git_dir().join(BEGUN);
    let known = files::read_plain(file.as_path(), LONGEST_BEGUN);
    if let Some(known) = known.and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
        return Ok(known);
    }
    let before: Vec<String> = worktree.status().await?.into_iter().map(|change| change.path).collect();
    let text = serde_json::to_vec(&before).map_err(|error| GitError::Lost(error.to_string()))?;
    files::write_private(file.as_path(), &text)?;
    Ok(before)
}

/// What the commands left is no part of the run's work: new files stay and are in no commit, others are put back. Gives
/// what people should know.
async fn left_by_setup(worktree: &Worktree, before: &[String]) -> Result<Option<String>, GitError> {
    let was_there = |change: &ChangedFile| before.contains(&change.path);
    let (mut new, mut changed) = (Vec::new(), Vec::new());
    for change in worktree.status().await?.into_iter().filter(|change| !was_there(change)) {
        match change.kind {
            ChangeKind::Added => new.push(change.path),
            ChangeKind::Renamed => {
                new.push(change.path);
                changed.extend(change.from);
            }
            ChangeKind::Modified | ChangeKind::Deleted | ChangeKind::TypeChanged => changed.push(change.path),
        }
    }
    if !new.is_empty() {
        worktree.leave_out(new).await?;
    }
    if changed.is_empty() {
        return Ok(None);
    }
    worktree.put_back_files(&changed).await?;
    // A submodule that was moved stays where it is.
    let still: Vec<String> = worktree.status().await?.into_iter().map(|change| change.path).collect();
    let paths: Vec<String> = changed.into_iter().filter(|path| !still.contains(path)).collect();
    if paths.is_empty() {
        return Ok(None);
    }
    let shown: Vec<String> = paths.iter().take(LONGEST_LIST).map(|path| format!("`{path}`")).collect();
    let more = paths.len().saturating_sub(LONGEST_LIST);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Ok(Some(format!(
        "worktree.setup changed files of the repository, which is no part of the work; they were put back: {}{more}. Have it write \
         new files instead, or commit the change once",
        shown.join(", ")
    )))
}

fn failed(message: &str) -> Stop {
    Stop::new(StopDetail::GitError, format!("The worktree could not be set up: {message}."))
}

/// Copies a file, or the files below a folder. Modes stay, nothing is overwritten, and links are skipped (I16, I17).
/// Copies that git would take for new work are kept out of commits.
async fn copy(
    context: &RepositoryContext,
    worktree: &Worktree,
    path: &Path,
) -> Result<Vec<String>, GitError> {
    let (from, to) = (context.checkout.root().join(path), worktree.path().join(path));
    let shown = path.to_string_lossy().into_owned();
    let copied = blocking(move || copy_below(from.as_path(), to.as_path())).await;
    let copied = copied.map_err(|refusal| GitError::Lost(refusal.stop.message))??;
    let name = shown.trim_start_matches("./").trim_end_matches('/');
    let mut notes = Vec::new();
    if copied.missing {
        notes.push(format!("{shown} (worktree.copy) is not in the main checkout; nothing was copied"));
    }
    if copied.files > 0 && !worktree.ignores(name).await? {
        worktree.keep_out(name).await?;
    }
    if copied.there > 0 {
        notes.push(format!(
            "{} file(s) of {shown} (worktree.copy) are in the worktree already and stay",
            copied.there
        ));
    }
    if copied.links > 0 {
        notes.push(format!("{} link(s) in {shown} (worktree.copy) were not followed", copied.links));
    }
    Ok(notes)
}

#[derive(Default)]
struct Copied {
    files: usize,
    there: usize,
    links: usize,
    missing: bool,
}

fn copy_below(from: &Path, to: &Path) -> Result<Copied, files::FileError> {
    let mut copied = Copied { missing: from.symlink_metadata().is_err(), ..Copied::default() };
    let mut open: Vec<(PathBuf, PathBuf)> = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = open.pop() {
        let Ok(meta) = from.symlink_metadata() else { continue };
        if meta.is_symlink() {
            copied.links += 1;
        } else if meta.is_dir() {
            let entries = std::fs::read_dir(&from).into_iter().flatten().flatten();
            open.extend(entries.map(|entry| (entry.path(), to.join(entry.file_name()))));
        } else if meta.is_file() {
            if files::copy_new(&from, &to)? {
                copied.files += 1;
            } else {
                copied.there += 1;
            }
        }
    }
    Ok(copied)
}

async fn run_setup_command(
    context: &RepositoryContext,
    worktree: &Worktree,
    argv: &[String],
    left: Duration,
    stop: &StopSignal,
) -> Result<(), Stop> {
    let line = argv.join(" ");
    tracing::info!(command = line, "setting the worktree up");
    let Some((program, args)) = argv.split_first() else { return Ok(()) };
    let spec = ProcessSpec::new(program, worktree.path())
        .args(args)
        .envs(context.child_environment())
        .timeout(left)
        .output_cap(OUTPUT_CAP);
    let ended = host_command::run_unless_asked(spec, stop).await;
    if let Some(stop) = stop.asked() {
        return Err(stop);
    }
    let why = match ended {
        Ok(exit) if exit.success() => {
            tracing::info!(command = line, seconds = exit.duration.as_secs_f64(), "set up");
            return Ok(());
        }
        Ok(exit) => end_of(&exit),
        Err(error) => error.to_string(),
    };
    let message = format!("The setup command `{line}` (worktree.setup) did not succeed: {why}");
    Err(Stop::new(StopDetail::ConfigInvalid, message))
}

fn end_of(exit: &Exit) -> String {
    let said = format!("{}{}", exit.stdout.text(), exit.stderr.text());
    let said = said.trim();
    let from = said.char_indices().rev().nth(TAIL).map_or(0, |(at, _)| at);
    let said = said.get(from..).unwrap_or_default();
    let end = match exit.code {
        _ if exit.timed_out() => "it took longer than worktree.setup_timeout".to_owned(),
        Some(code) => format!("exit code {code}"),
        None => "a signal ended it".to_owned(),
    };
    if said.is_empty() { end } else { format!("{end}\n{said}") }
}
