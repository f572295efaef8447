//! Keeping the work: one commit of what the flow left in the worktree, then the verify commands on that very tree.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::closure;
use super::publish::without_secrets;
use super::review;
use super::run::Run;
use super::site::Site;
use super::telling;
use crate::domain::canonical::sha256_hex;
use crate::domain::event::{Change, Event, FileChange, VerifyCommand};
use crate::domain::outgoing::{commit_text, plain_line};
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::journal::{Journal as _, JournalError};
use crate::git::commit::CommitMessage;
use crate::git::error::GitError;
use crate::git::worktree::Worktree;
use crate::sys::cage;
use crate::sys::clock::Stopwatch;
use crate::sys::process::{self, Captured, Ending, Exit, ProcessError, ProcessSpec};

/// Longest subject line of a commit, in characters.
const LONGEST_SUBJECT: usize = 72;
/// Bytes of each stream of a verify command that are kept.
const OUTPUT_CAP: usize = 256 * 1024;
/// What the verify commands get together at least, however little of the wall time is left.
const OVERTIME: Duration = Duration::from_secs(5 * 60);
/// Characters of a verify command's output that the report shows.
const TAIL: usize = 2_000;

/// Commits what the flow left (D13, D66) and says what the branch changes. `Err` inside: git refused; nothing is lost.
pub async fn commit(run: &Run<'_>, site: &Site, summary: &str) -> Result<Result<Change, Stop>, JournalError> {
    let Some(worktree) = run.worktree() else { return Ok(Ok(Change::default())) };
    match review::of_worktree(run, site, worktree).await {
        Ok(None) => {}
        Ok(Some(refused)) => return Ok(Err(refused)),
        Err(error) => return Ok(Err(not_committed(worktree, &error))),
    }
    match committed(run, site, worktree, summary).await {
        Ok(event) => {
            let Event::Committed { change, .. } = &event else { return Err(run.defect("not a commit")) };
            let change = change.clone();
            run.record(event)?;
            Ok(Ok(change))
        }
        Err(error) => Ok(Err(not_committed(worktree, &error))),
    }
}

fn not_committed(worktree: &Worktree, error: &GitError) -> Stop {
    let message = format!("The work could not be committed: {error}. It is in {}.", worktree.display());
    Stop::new(StopDetail::GitError, message)
}

async fn committed(
    run: &Run<'_>,
    site: &Site,
    worktree: &Worktree,
    summary: &str,
) -> Result<Event, GitError> {
    let made = worktree.commit_all(&message(run, site, summary), &site.identity().await?).await?;
    let base = &run.lease.mapping.origin.commit;
    let head = worktree.head().await?.unwrap_or_else(|| base.clone());
    let tree = site.checkout.tree_of_commit(&head).await?;
    let files = worktree.changes(base).await?;
    let commits = worktree.commits(base).await?.len();
    let files = files
        .into_iter()
        .map(|file| FileChange { path: file.path, added: file.added, removed: file.removed })
        .collect();
    let change = Change { files, commits: u32::try_from(commits).unwrap_or(u32::MAX) };
    Ok(Event::Committed { head, tree, made: made.is_some(), change })
}

fn message(run: &Run<'_>, site: &Site, summary: &str) -> CommitMessage {
    let issue = &run.plan.issue;
    let own = run.tracked_issue().filter(|_| closure::closes_by_merge(run, &run.facts()));
    let suffix = run.tracked_issue().map(|number| format!(" (#{number})")).unwrap_or_default();
    let room = LONGEST_SUBJECT.saturating_sub(suffix.chars().count());
    // GitHub reads messages as it reads comments; a merged one closes, notifies and skips checks (D36).
    let subject = commit_text(&plain_line(&without_secrets(run, &issue.title), room), None);
    let mut trailers = vec![("Agentd-Run".to_owned(), run.lease.run_id.to_string())];
    trailers.extend(site.config.commit.trailers.iter().filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        Some((key.trim().to_owned(), value.trim().to_owned()))
    }));
    CommitMessage {
        subject: format!("{subject}{suffix}"),
        body: wrapped(&without_secrets(run, &commit_text(summary, own))),
        trailers,
    }
}

/// Paragraphs wrapped at 72 columns, lists left as they are.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    for line in text.trim().lines() {
        let mut column = 0;
        for word in line.split_whitespace() {
            let length = word.chars().count();
            if column > 0 && column + 1 + length > 72 {
                out.push('\n');
                column = 0;
            } else if column > 0 {
                out.push(' ');
                column += 1;
            }
            out.push_str(word);
            column += length;
        }
        out.push('\n');
    }
    out
}

/// Runs the verify commands one after the other on the committed tree (D83); agentd's own word on "tests pass". They run
/// although the wall time is used up, so that finished work is not thrown away, but not for long then.
pub async fn verify(run: &Run<'_>, site: &Site) -> Result<(), JournalError> {
    verify_all(run, site).await?;
    run.enclosure().map_or(Ok(()), |enclosure| enclosure.record_asked(run))
}

async fn verify_all(run: &Run<'_>, site: &Site) -> Result<(), JournalError> {
    let Some(worktree) = run.worktree() else { return Ok(()) };
    let watch = Stopwatch::start();
    let longest = run.wall_time_left().max(OVERTIME);
    let commands = &site.config.verify.commands;
    for (at, argv) in commands.iter().enumerate() {
        let left = site.config.verify.timeout.0.min(longest.saturating_sub(watch.elapsed()));
        let verified = verify_one(run, site, worktree, argv, left).await;
        if run.aborted().is_some() {
            // The command and git were cancelled: what came of it says nothing about the work.
            let cancelled: Vec<String> = commands[at..].iter().map(|argv| argv.join(" ")).collect();
            let text =
                format!("the run was ended at once: nobody knows what comes of `{}`", cancelled.join("`, `"));
            run.warn("verification_cancelled", text);
            return Ok(());
        }
        run.record(Event::Verified(verified?))?;
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
    let tree_before = worktree.tree().await.map_err(defect)?;
    let recorded = site.replay.as_ref().and_then(|recording| recording.verified(argv, &tree_before));
    if let Some(recorded) = recorded {
        return Ok(recorded);
    }
    let started_at = site.clock.now_ms();
    let ended = run_command(run, worktree, argv, longest).await;
    let tree_after = worktree.tree().await.map_err(defect)?;
    let name = format!("verify/{}.txt", uuid::Uuid::now_v7());
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
        started_at,
        duration_ms,
        stdout_sha256: sha256_hex(out.as_bytes()),
        stderr_sha256: sha256_hex(err.as_bytes()),
        stdout_bytes: stdout.total,
        stderr_bytes: stderr.total,
        tail,
        output: artifact.path,
        sandbox: cage::name(run.caged()).to_owned(),
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
    let (program, args) =
        argv.split_first().map_or(("", &argv[..0]), |(program, args)| (program.as_str(), args));
    let spec = ProcessSpec::new(program, worktree.path())
        .args(args)
        .envs(run.child_environment())
        .timeout(longest)
        .output_cap(OUTPUT_CAP);
    let spec = cage::wrap(run.caged(), spec);
    let cancel = CancellationToken::new();
    let stop = run.stop();
    let aborted = cancel.clone();
    let running = process::run(spec, &cancel);
    tokio::pin!(running);
    tokio::select! {
        ended = &mut running => ended,
        _ = stop.wait_aborted() => {
            aborted.cancel();
            running.await
        }
    }
}

fn empty() -> Captured {
    Captured { head: Vec::new(), tail: Vec::new(), total: 0, sha256: sha256_hex(b""), truncated: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_body_is_wrapped_and_keeps_its_lines() {
        let long = "word ".repeat(30);
        let wrapped = wrapped(&format!("{long}\n\n- a list item\n- another"));
        assert!(wrapped.lines().all(|line| line.chars().count() <= 72), "{wrapped}");
        assert!(wrapped.ends_with("\n\n- a list item\n- another\n"), "{wrapped}");
    }
}
