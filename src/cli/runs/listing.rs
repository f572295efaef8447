//! `agentd runs list · show · report · evidence · accounting · events · diff`: looks at runs.

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::Seen;
use crate::cli::approvals_text;
use crate::cli::args::ListArgs;
use crate::cli::context::Context;
#[cfg(feature = "nats")]
use crate::cli::elsewhere;
use crate::cli::error::CommandError;
use crate::cli::output::Tone;
use crate::domain::event::LeaseTaken;
use crate::domain::facts::RunFacts;
use crate::domain::name::CommitId;
use crate::domain::run_output::{RunOutput, known_cost, rfc3339_of_ms};
use crate::domain::stop::StopDetail;
use crate::engine::journal::JournalError;
use crate::git::error::GitError;
use crate::issue::approval;
use crate::record::finish::RunState;
use crate::record::summary_text::counted;
use crate::record::{rendering, report, summary_text};
use crate::repository::context::RepositoryContext;
use crate::store::journal_file;
use crate::store::run_dir::RunDir;
use crate::sys::clock::Clock;

/// Largest patch that is shown, in bytes.
const LARGEST_PATCH: usize = 64 << 20;

/// A run's stop, or that it has none yet.
fn ending(facts: &RunFacts, standing: RunState) -> (String, Tone) {
    match (&facts.end, standing) {
        (Some(stop), RunState::Ended) => {
            let tone = if stop.success() { Tone::Good } else { Tone::Bad };
            (format!("{} ({})", stop.reason(), stop.detail), tone)
        }
        // Between its journal and its first event a run is nobody's; a damaged one stays so.
        _ if facts.lease.is_none() => ("nothing recorded".to_owned(), Tone::Bad),
        _ => ("running".to_owned(), Tone::Warn),
    }
}

pub(super) fn list(context: &Context, args: &ListArgs) -> Result<(), CommandError> {
    #[cfg(feature = "nats")]
    if let Some(mirror) = context.mirror()? {
        return elsewhere::list(context, args, &mirror);
    }
    let mut rows = Vec::new();
    let mut told = Vec::new();
    let mut runs = super::all(context)?;
    if let Some(cursor) = &args.cursor {
        let last = super::find_unfinished(context, cursor)?;
        let is_last = |dir: &RunDir| (&dir.repo, dir.run_id) == (&last.repo, last.run_id);
        let seen = runs.iter().position(is_last).map_or(0, |place| place + 1);
        runs.drain(..seen);
    }
    let most = if args.limit == 0 { usize::MAX } else { args.limit };
    let now = Clock::system().now_ms();
    let (mut last, mut more, mut unknown) = (None, false, 0);
    for dir in runs {
        let finished = super::finished(&dir);
        // The result of a run is as it was sealed also where its journal was damaged since.
        let sealed = finished.is_err().then(|| report::output_if_ended(&dir).ok().flatten()).flatten();
        let wanted = match (&finished, &sealed) {
            (Ok((facts, standing)), _) => args.takes(&dir, facts, *standing, now),
            (Err(_), Some(output)) => args.takes_output(&dir, output, now),
            (Err(_), None) => args.takes_all(),
        };
        unknown += usize::from(!wanted && finished.is_err() && sealed.is_none());
        if !wanted {
            continue;
        }
        if told.len() == most {
            more = true;
            break;
        }
        last = Some(dir.run_id);
        // A run whose journal cannot be read is told, not hidden.
        let Ok((facts, standing)) = finished else {
            told.push(unreadable(&dir, sealed.as_ref()));
            rows.push(unreadable_row(&dir, sealed.as_ref()));
            continue;
        };
        let totals = facts.totals();
        let issue = facts.lease.as_ref().map(|lease| lease.issue.key.to_string()).unwrap_or_default();
        let title = facts.lease.as_ref().map(|lease| lease.issue.title.clone()).unwrap_or_default();
        let started = rfc3339_of_ms(facts.started_at);
        told.push(summary(&dir, &facts));
        rows.push(vec![
            dir.run_id.to_string(),
            dir.repo.to_string(),
            issue,
            ending(&facts, standing).0,
            rendering::amount(totals.cost, totals.cost_unknown),
            started.get(..19).unwrap_or(&started).replace('T', " "),
            title,
        ]);
    }
    if let Some(last) = last.filter(|_| more) {
        context.output.note(format!("There are older ones: add --cursor {last} (or --limit 0 for all)."));
    }
    if unknown > 0 {
        let runs = counted(unknown, "run");
        context.output.note(format!(
            "{runs} cannot be read, and whether they would be among these is not known: agentd runs list"
        ));
    }
    if context.output.json() {
        return context.output.document(&told);
    }
    if rows.is_empty() && !(args.takes_all() && args.cursor.is_none()) {
        return context.output.line("No such runs.");
    }
    if rows.is_empty() {
        return context.output.advice("No runs yet. `agentd run --issue N` makes one.");
    }
    context.output.table(&["RUN", "REPOSITORY", "ISSUE", "END", "COST", "STARTED (UTC)", "TITLE"], &rows)
}

/// A run whose journal cannot be read, in a few words: what its result says, where that is as it was sealed.
fn unreadable(dir: &RunDir, sealed: Option<&RunOutput>) -> Value {
    let mut told = json!({ "run_id": dir.run_id, "repo": dir.repo, "readable": false });
    if let Some(output) = sealed {
        told["issue"] = json!(output.mapping.as_ref().map(|mapping| &mapping.issue));
        told["instance"] = json!(output.mapping.as_ref().map(|mapping| &mapping.instance));
        told["started_at"] = json!(output.started_at);
        told["stop_reason"] = json!(output.stop_reason);
        told["stop_detail"] = json!(output.stop_detail);
        told["visits"] = json!(output.iterations);
        told["cost_usd"] = json!(output.totals.cost_usd);
    }
    told
}

fn unreadable_row(dir: &RunDir, sealed: Option<&RunOutput>) -> Vec<String> {
    let place = [dir.run_id.to_string(), dir.repo.to_string()];
    let told = match sealed {
        None => vec![String::new(), "unreadable".to_owned()],
        Some(output) => {
            let cost = output.totals.cost_usd;
            let started = output.started_at.get(..19).unwrap_or(&output.started_at).replace('T', " ");
            vec![
                output.mapping.as_ref().map(|mapping| mapping.issue.to_string()).unwrap_or_default(),
                format!("{} ({}), its journal unreadable", output.stop_reason, output.stop_detail),
                rendering::amount(cost.unwrap_or_default(), cost.is_none()),
                started,
                output.objective.title.clone(),
            ]
        }
    };
    place.into_iter().chain(told).collect()
}

/// A run in a few words, whether it has ended or not.
fn summary(dir: &RunDir, facts: &RunFacts) -> Value {
    let totals = facts.totals();
    json!({
        "run_id": dir.run_id,
        "repo": dir.repo,
        "issue": facts.lease.as_ref().map(|lease| &lease.issue.key),
        "instance": facts.lease.as_ref().map(|lease| &lease.instance),
        "started_at": rfc3339_of_ms(facts.started_at),
        "stop_reason": facts.end.as_ref().map(|stop| stop.reason()),
        "stop_detail": facts.end.as_ref().map(|stop| stop.detail),
        "visits": facts.visits.len(),
        "cost_usd": known_cost(&totals),
        "cost_unknown": totals.cost_unknown,
    })
}

/// A document with the node of its run, and how old what is known of it is.
fn with(document: &impl Serialize, seen: &Seen) -> Value {
    let mut told = serde_json::to_value(document).unwrap_or_default();
    if let Value::Object(members) = &mut told {
        members.extend(seen.clone());
    }
    told
}

pub(super) fn show(context: &Context, dir: &RunDir, seen: &Seen) -> Result<(), CommandError> {
    let output = context.output;
    let (facts, standing) = super::finished(dir)?;
    let (word, tone) = ending(&facts, standing);
    if output.json() && standing == RunState::Running && facts.lease.is_some() {
        let mut told = summary(dir, &facts);
        told["running"] = json!(true);
        return output.document(&with(&told, seen));
    }
    if output.json() {
        if facts.end.is_none() {
            return Err(not_written(dir, "result"));
        }
        let result = super::written_output(dir)?;
        return match seen.is_empty() {
            true => output.document(&result),
            false => output.document(&with(&result, seen)),
        };
    }
    let mut rows = vec![("run", dir.run_id.to_string()), ("end", output.toned(&word, tone))];
    if let (Some(node), Some(as_of)) = (seen.get("node"), seen.get("as_of")) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        rows.push(("node", format!("{}, as of {}", text(node), text(as_of))));
    }
    began(&mut rows, dir, &facts);
    let state = super::approvals_of(context, dir)?;
    for (proposal, decision) in approval::waiting(&state, dir, &facts, Clock::system().now()) {
        rows.extend(approvals_text::rows(context.output, proposal, &decision));
    }
    worked(&mut rows, &facts, standing);
    rows.push(("directory", dir.path.display().to_string()));
    for (what, told) in rows {
        // What others wrote looks like no row of its own.
        output.entry(&output.toned(&format!("{what:<10}"), Tone::Dim), &told)?;
    }
    Ok(())
}

/// Rows on the end of a run, its issue and its place.
fn began(rows: &mut Vec<(&'static str, String)>, dir: &RunDir, facts: &RunFacts) {
    if let Some(stop) = &facts.end {
        rows.push(("", stop.message.clone()));
        if stop.detail == StopDetail::VerifyFailed
            && let Some(red) = summary_text::red_verify(facts)
        {
            rows.push(("output", red.output));
        }
    }
    if let Some(lease) = &facts.lease {
        rows.push(("issue", format!("{} of {}: {}", lease.issue.key, dir.repo, lease.issue.title)));
        rows.push((
            "origin",
            format!("{} ({}) at {}", lease.origin.branch, lease.origin.source, lease.origin.commit.short()),
        ));
        rows.push(("branch", lease.branch.to_string()));
        rows.push(("instance", lease.instance.to_string()));
    }
    if let Some(sandbox) = &facts.sandbox {
        rows.push(("sandbox", sandbox.name.clone()));
        rows.extend(sandbox.lacks.iter().map(|lack| ("", lack.clone())));
    }
}

/// Rows on what was done in a run.
fn worked(rows: &mut Vec<(&'static str, String)>, facts: &RunFacts, standing: RunState) {
    let totals = facts.totals();
    // While it works, its last line may be long ago.
    let until = if standing == RunState::Running { Clock::system().now_ms() } else { facts.last_at };
    let lived = u64::try_from(until - facts.started_at).unwrap_or_default();
    rows.push((
        "started",
        format!("{}, for {}", rfc3339_of_ms(facts.started_at), rendering::duration(lived)),
    ));
    for visit in &facts.visits {
        let next = visit.next.as_deref().map(|next| format!(" → {next}")).unwrap_or_default();
        rows.push((
            "step",
            format!(
                "{} {}: {}{next}, {}",
                visit.visit,
                visit.step_id,
                visit.verdict,
                counted(visit.turns as usize, "turn")
            ),
        ));
    }
    rows.push((
        "cost",
        format!(
            "{}, {}",
            rendering::cost_of_work(facts),
            counted(usize::try_from(totals.llm_requests).unwrap_or(usize::MAX), "request"),
        ),
    ));
    let nonzero = facts.ledger.iter().filter(|entry| entry.nonzero_exit().is_some()).count();
    let nonzero = match nonzero {
        0 => String::new(),
        count => format!(", {count} ended with another exit code than 0"),
    };
    rows.push(("tools", format!("{} run, {} failed{nonzero}", totals.tools_run, totals.tools_failed)));
    if let Some(committed) = &facts.committed {
        let (added, removed) = committed.change.lines();
        rows.push((
            "change",
            format!(
                "{} at {}, +{added} −{removed}",
                match committed.change.files.len() {
                    1 => "1 file".to_owned(),
                    n => format!("{n} files"),
                },
                committed.head.short()
            ),
        ));
    }
    for command in &facts.verification {
        rows.push(("verify", format!("{}: {}", command.argv.join(" "), command.outcome())));
    }
    for (effect, _) in &facts.effects {
        if let Some(outcome) = facts.outcome(*effect) {
            rows.push(("done", format!("{}: {outcome}", effect.as_str())));
        }
    }
    let mut warned = Vec::new();
    for warning in &facts.warnings {
        // Each is told once, however often it was noted.
        if !warned.contains(&&warning.text) {
            warned.push(&warning.text);
            rows.push(("warning", warning.text.clone()));
        }
    }
}

fn not_written(dir: &RunDir, what: &str) -> CommandError {
    CommandError::failed(format!("run {} has no {what}: it has not ended", dir.run_id))
        .hint(format!("agentd runs show {}", dir.run_id))
}

/// The report as it was written; with `--json` what it is made of.
pub(super) fn report(context: &Context, dir: &RunDir, seen: &Seen) -> Result<(), CommandError> {
    let (facts, standing) = super::finished(dir)?;
    if standing == RunState::Running || facts.end.is_none() {
        return Err(not_written(dir, "report"));
    }
    let bytes = report::read_report(dir).map_err(|error| super::unreadable(dir, &error))?;
    if !context.output.json() {
        return context.output.file(&bytes);
    }
    let run = super::written_output(dir)?;
    let (headline, sentence) = rendering::headline(&run, &facts);
    let told = json!({
        "run_id": run.run_id,
        "success": run.success,
        "stop_reason": run.stop_reason,
        "stop_detail": run.stop_detail,
        "headline": headline,
        "sentence": sentence,
        "final_report": run.final_report,
        "claims": run.claims,
        "limitations": run.limitations,
        "conflicts": run.conflicts,
        "next_steps": summary_text::next_steps(&run, &facts),
        "markdown": String::from_utf8_lossy(&bytes),
    });
    context.output.document(&with(&told, seen))
}

/// A JSON Lines file: as it is, or as one list with `--json`. Where it is gone, as the journal of the run that ended has it.
pub(super) fn ledger(
    context: &Context,
    dir: &RunDir,
    (path, what): (&Path, &str),
    fold: impl Fn(&RunDir) -> Result<Vec<u8>, JournalError>,
) -> Result<(), CommandError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => match super::finished(dir)? {
            (_, RunState::Ended) => fold(dir).map_err(|error| super::unreadable(dir, &error))?,
            (_, RunState::Running) => return Err(not_written(dir, what)),
        },
        Err(error) => return Err(CommandError::failed(format!("{}: {error}", path.display()))),
    };
    if !context.output.json() {
        return context.output.json_lines(&bytes);
    }
    let lines = bytes.split(|byte| *byte == b'\n');
    let lines: Vec<Value> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    context.output.document(&lines)
}

pub(super) fn events(context: &Context, dir: &RunDir) -> Result<(), CommandError> {
    let read = journal_file::read(dir).map_err(|error| CommandError::failed(error.to_string()))?;
    if context.output.json() {
        return context.output.document(&read.lines);
    }
    read.lines.iter().try_for_each(|line| context.output.json_line(line))
}

/// Brings what a run of another node committed and pushed.
async fn brought(
    site: &RepositoryContext,
    dir: &RunDir,
    lease: &LeaseTaken,
    head: Option<&CommitId>,
) -> Result<(), CommandError> {
    let node = lease.held.as_ref().map_or("another node", |held| held.by.node.as_str());
    let on_its_node = |why: String| {
        CommandError::failed(format!("what run {} changed cannot be shown: {why}", dir.run_id))
            .hint(format!("agentd runs diff {}, on {node}", dir.run_id))
    };
    let Some(head) = head else {
        return Err(on_its_node(format!("it committed nothing, and its worktree is on {node}")));
    };
    for (branch, commit) in [(&lease.origin.branch, &lease.origin.commit), (&lease.branch, head)] {
        let is_here = async || site.checkout.has_commit(commit).await.unwrap_or(false);
        if !is_here().await {
            site.origin_tip(branch, true).await?;
        }
        if !is_here().await {
            let root = site.checkout.root();
            let why = format!("neither {root} nor its remote has the commit {} of {branch}", commit.short());
            return Err(on_its_node(why));
        }
    }
    Ok(())
}

/// What a run changed: what it committed, else what stands in its worktree.
pub(super) fn diff(context: &Context, dir: &RunDir) -> Result<(), CommandError> {
    let (facts, _) = super::finished(dir)?;
    let lease = facts.lease.as_ref().ok_or_else(|| not_written(dir, "mapping"))?;
    let (base, head) = (&lease.origin.commit, facts.committed.as_ref().map(|committed| &committed.head));
    let failed = |error: String| {
        CommandError::failed(format!("what run {} changed cannot be shown: {error}", dir.run_id))
            .hint("the checkout, its worktree or the commits may have been removed")
    };
    let (patch, files) = context.block_on(async {
        let found = super::inspection::checkout_of_run(context, dir, lease).await.map_err(failed)?;
        let checkout = found.checkout;
        let told = |error: GitError| failed(error.to_string());
        if let Some(site) = &found.elsewhere {
            brought(site, dir, lease, head).await?;
        }
        let Some(head) = head else {
            let place = checkout.root().join(&lease.worktree);
            let root = place.parent().unwrap_or_else(|| checkout.root().clone());
            let name = place.as_path().file_name().unwrap_or_default().to_string_lossy();
            let found = checkout.find_worktree(&root, &name).map_err(told)?;
            let worktree = found.ok_or_else(|| failed(format!("there is no worktree {}", lease.worktree)))?;
            let changes = worktree.changes(base).await.map_err(told)?;
            let files: Vec<Value> =
                changes.iter().map(|file| changed(&file.path, file.added, file.removed)).collect();
            let patch = worktree.diff(base, None, LARGEST_PATCH).await.map_err(told)?;
            return Ok::<_, CommandError>((patch, files));
        };
        let files = facts.committed.iter().flat_map(|committed| &committed.change.files);
        let files: Vec<Value> = files.map(|file| changed(&file.path, file.added, file.removed)).collect();
        Ok((checkout.diff(base, head, LARGEST_PATCH).await.map_err(told)?, files))
    })??;
    if context.output.json() {
        return context.output.document(&json!({
            "base": base, "head": head, "files": files, "patch": patch.text, "truncated": patch.truncated,
        }));
    }
    if head.is_none() {
        context.output.note(format!(
            "Nothing of run {} is committed yet; this stands in {}.",
            dir.run_id, lease.worktree
        ));
    }
    if patch.truncated {
        context.output.note("The patch is cut: it is larger than anyone reads.");
    }
    if context.output.colours() {
        context.output.patch(&patch.text)
    } else {
        context.output.file(patch.text.as_bytes())
    }
}

fn changed(path: &str, added: u64, removed: u64) -> Value {
    json!({ "path": path, "added": added, "removed": removed })
}
