//! Result, run record, evidence and report as folds over the journal. Same events, same bytes.

use std::path::Path;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::rendering::{self, Links};
use super::{run_facts, run_record, summary_text};
use crate::domain::artifact::Artifact;
use crate::domain::canonical::sha256_hex;
use crate::domain::event::{Effect, Event};
use crate::domain::evidence::Provenance;
use crate::domain::facts::RunFacts;
use crate::domain::failures;
use crate::domain::issue::{Issue, ObjectiveSource};
use crate::domain::money::Money;
use crate::domain::policy::Decision;
use crate::domain::report::{FinalReport, ReportFormat};
use crate::domain::run::{Principal, PrincipalSource};
use crate::domain::run_output::{
    ChangeWord, EventsArtifact, Objective, OutputArtifacts, OutputBudgets, OutputIssue, OutputMapping,
    OutputOrigin, OutputStep, OutputTotals, PathArtifact, RunOutput, known_cost, rfc3339_of_ms,
};
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::trace::{LONGEST_INLINE, Pointer, RecordText};
use crate::engine::journal::JournalError;
use crate::store::journal_file::{self, FileJournal};
use crate::store::run_dir::RunDir;
use crate::sys::files;

/// Kind of the last event that is folded.
const LAST: &str = "run_ended";

/// What a run leaves for its readers, folded from its journal alone.
struct Folded {
    facts: RunFacts,
    /// The hash of the last line that is folded.
    newest: String,
    output: RunOutput,
    evidence: String,
    report: String,
}

/// The run output of a run that has ended, as it was written. Where that is not what the journal's seal names, or cannot be read, it is
/// folded again from the journal, and nothing is written. Blocks.
pub fn read_output(dir: &RunDir) -> Result<RunOutput, JournalError> {
    match as_sealed(dir) {
        Some(output) => Ok(output),
        None => folded(dir).map(|folded| folded.output),
    }
}

/// The same of a run that may not have ended; `None` = it has not. The journal of one that leaves nothing yet is not read. Blocks.
pub fn output_if_ended(dir: &RunDir) -> Result<Option<RunOutput>, JournalError> {
    if let Some(output) = as_sealed(dir) {
        return Ok(Some(output));
    }
    if !dir.result().exists() && journal_file::sealed_files(dir).is_none() {
        return Ok(None);
    }
    let Folded { facts, output, .. } = folded(dir)?;
    if facts.end.is_some() {
        return Ok(Some(output));
    }
    let lines = output.artifacts.events.map_or(0, |events| events.last_seq);
    match run_facts::lines_missing(dir, lines) {
        Some(missing) => Err(failed(&dir.events(), missing)),
        None => Ok(None),
    }
}

fn as_sealed(dir: &RunDir) -> Option<RunOutput> {
    let bytes = std::fs::read(dir.result()).ok()?;
    let written = artifact(dir.result().file_name()?.to_str()?, &bytes);
    let is_sealed = journal_file::sealed_files(dir)?.contains(&written);
    serde_json::from_slice(&bytes).ok().filter(|_| is_sealed)
}

/// The same for the report.
pub fn read_report(dir: &RunDir) -> Result<Vec<u8>, JournalError> {
    match std::fs::read(dir.report()) {
        Ok(bytes) => Ok(bytes),
        Err(_) => folded(dir).map(|folded| folded.report.into_bytes()),
    }
}

/// The evidence of a run that has ended, as its journal has it.
pub fn fold_evidence(dir: &RunDir) -> Result<Vec<u8>, JournalError> {
    folded(dir).map(|folded| folded.evidence.into_bytes())
}

/// Its ledger.
pub fn fold_ledger(dir: &RunDir) -> Result<Vec<u8>, JournalError> {
    journal_file::read(dir).map(|read| journal_file::ledger_of(&read.lines))
}

fn failed(path: &Path, error: String) -> JournalError {
    JournalError { path: path.display().to_string(), message: error }
}

fn folded(dir: &RunDir) -> Result<Folded, JournalError> {
    let (mut facts, mut newest, mut end) = (RunFacts::default(), (0, String::new()), None);
    journal_file::each(dir, |line| {
        journal_file::take(&mut facts, &line);
        newest = (line.seq, line.hash);
        if line.kind == LAST {
            end = Some(newest.clone());
        }
    })?;
    let last = end.unwrap_or(newest);
    let mut output = fold(&facts, dir, last.clone());
    let evidence: String = output
        .evidence
        .iter()
        .filter_map(|record| serde_json::to_string(record).ok())
        .map(|line| line + "\n")
        .collect();
    output.artifacts.evidence = Some(artifact("evidence.jsonl", evidence.as_bytes()));
    let accounting = match std::fs::read(dir.accounting()) {
        Ok(ledger) => ledger,
        Err(_) => fold_ledger(dir)?,
    };
    output.artifacts.accounting = Some(artifact("accounting.jsonl", &accounting));
    let links = Links { pull_request: output.artifacts.pr_url.clone(), ..Links::default() };
    let report = rendering::report(&output, &facts, &links)
        .map_err(|error| failed(&dir.report(), error.to_string()))?;
    output.artifacts.report_md = Some(artifact("report.md", report.as_bytes()));
    Ok(Folded { facts, newest: last.1, output, evidence, report })
}

/// Writes what a run leaves, from its journal alone; gives the run output. Blocks.
pub fn write(dir: &RunDir) -> Result<RunOutput, JournalError> {
    let Folded { facts, newest, output, evidence, report } = folded(dir)?;
    put(&dir.evidence(), evidence.as_bytes())?;
    put(&dir.report(), report.as_bytes())?;
    for broken in output.check() {
        tracing::error!(run = %dir.run_id, "the run output breaks a rule: {broken}");
    }
    let json =
        serde_json::to_vec_pretty(&output).map_err(|error| failed(&dir.result(), error.to_string()))?;
    put(&dir.result(), &json)?;
    // The record is an audit sink: best effort (C-10).
    let inline = facts.started.as_ref().map_or(LONGEST_INLINE, |started| started.longest_inline);
    let question = record_text(dir, "question", run_record::question(&output), inline)?;
    let response = record_text(dir, "response", run_record::response(&output), inline)?;
    let record = run_record::fold(&facts, &output, &newest, question, response);
    match serde_json::to_vec_pretty(&record) {
        Ok(json) => {
            if let Err(error) = put(&dir.record(), &json) {
                tracing::warn!(%error, "the run record could not be written");
            }
        }
        Err(error) => tracing::warn!(%error, "the run record could not be written"),
    }
    Ok(output)
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), JournalError> {
    files::write_private(path, bytes)
        .map_err(|error| JournalError { path: path.display().to_string(), message: error.to_string() })
}

fn artifact(path: &str, bytes: &[u8]) -> Artifact {
    Artifact { path: path.to_owned(), sha256: sha256_hex(bytes), bytes: bytes.len() as u64 }
}

/// The run output of a live run, as of now.
pub fn output(facts: &RunFacts, journal: &FileJournal) -> RunOutput {
    fold(facts, journal.dir(), journal.head())
}

fn fold(facts: &RunFacts, dir: &RunDir, last: (u64, String)) -> RunOutput {
    let end = facts.end.clone().or_else(|| facts.flow_end.as_ref().map(|end| end.stop.clone()));
    let stop = end.unwrap_or_else(|| Stop::new(StopDetail::Interrupted, "The run has not ended."));
    let lease = facts.lease.as_ref();
    let objective =
        lease.map_or_else(no_objective, |lease| objective(&lease.issue, lease.source, tracked(&lease.issue)));
    let principal = lease.map_or_else(nobody, |lease| lease.principal.clone());
    let report = long_report(facts, dir).unwrap_or_else(|| final_report(facts, &stop));
    let mut output = RunOutput::of(dir.run_id.0, objective, principal, &stop, report, facts.started_at);
    // A clock that was set back meanwhile makes no run end before it began.
    output.completed_at = rfc3339_of_ms(facts.last_at.max(facts.started_at));
    if let Some(error) = &mut output.error {
        error.detail_ref = Some("run.json#/errorMessage".to_owned());
    }
    output.summary = summary(facts, &stop);
    if let Some(red) = rendering::red(&output, facts) {
        output.summary = format!("{}\n\n{}", red.with_output(), output.summary);
    }
    let verdict = facts.visits.last().and_then(|visit| visit.output.get("verdict")?.as_str());
    output.verdict = verdict.map(str::to_owned);
    output.mapping = lease.map(|lease| OutputMapping {
        issue: lease.issue.key.clone(),
        branch: lease.branch.to_string(),
        worktree: lease.worktree.clone(),
        instance: lease.instance.to_string(),
        origin: OutputOrigin {
            branch: lease.origin.branch.to_string(),
            source: lease.origin.source,
            commit: lease.origin.commit.to_string(),
        },
    });
    if facts.committed.as_ref().is_some_and(|committed| !committed.change.is_empty()) {
        output.change = ChangeWord::Made;
    }
    output.steps = facts.visits.iter().map(OutputStep::from).collect();
    output.iterations = output.steps.len() as u32;
    if stop.success() {
        let reason = facts.flow_end.as_ref().and_then(|end| end.completion_reason.clone());
        output.completion_reason = reason.or(output.completion_reason);
    }
    let totals = facts.totals();
    let denied = facts.other.iter().filter(|(_, event)| is_denial(event)).count() as u64;
    output.totals = OutputTotals::new(&totals, denied);
    output.budgets = budgets(facts);
    for (_, event) in &facts.other {
        if let Event::ClaimsJudged(judged) = event {
            output.claims.clone_from(&judged.claims);
            output.evidence.clone_from(&judged.evidence);
            output.conflicts.clone_from(&judged.conflicts);
            output.limitations.clone_from(&judged.limitations);
        }
    }
    let of_threads = facts.other.iter().filter_map(|(_, event)| match event {
        Event::ThreadOutcome(outcome) => outcome.limitation.clone(),
        _ => None,
    });
    for limitation in of_threads.chain(said_limitations(facts)) {
        if !output.limitations.contains(&limitation) {
            output.limitations.push(limitation);
        }
    }
    output.failures = failures::of(facts);
    output.artifacts = artifacts(facts, last);
    output.warnings.clone_from(&facts.warnings);
    output.metadata = facts.started.as_ref().map(|started| started.metadata.clone()).unwrap_or_default();
    output
}

/// What the agent itself says is not done, not checked or not certain: the `limitations` of the last step's output.
fn said_limitations(facts: &RunFacts) -> Vec<String> {
    let said = facts.visits.last().and_then(|visit| visit.output.get("limitations"));
    let lines = match said {
        Some(Value::Array(lines)) => lines.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(line)) => vec![line.as_str()],
        _ => Vec::new(),
    };
    lines.into_iter().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn is_denial(event: &Event) -> bool {
    matches!(event, Event::PolicyDecided(decision) if decision.decision == Decision::Deny)
}

/// An issue as what the run is to reach.
pub fn objective(issue: &Issue, source: ObjectiveSource, tracked: bool) -> Objective {
    let number = issue.key.number().filter(|_| tracked);
    Objective {
        title: issue.title.clone(),
        body: issue.body.clone(),
        source,
        issue: number.map(|number| OutputIssue {
            repo: issue.repo.to_string(),
            number,
            url: issue.url.clone().unwrap_or_default(),
            node_id: issue.node_id.clone().unwrap_or_default(),
        }),
    }
}

/// An issue from a file has neither URL nor node id.
fn tracked(issue: &Issue) -> bool {
    issue.url.is_some() || issue.node_id.is_some()
}

fn no_objective() -> Objective {
    Objective {
        title: "(unknown)".to_owned(),
        body: String::new(),
        source: ObjectiveSource::Cli,
        issue: None,
    }
}

fn nobody() -> Principal {
    Principal::new(PrincipalSource::Local, "unknown", None)
}

/// The last report, if it was too long for the journal and is kept in a file.
pub fn long_report(facts: &RunFacts, dir: &RunDir) -> Option<FinalReport> {
    let last = facts.other.iter().rev().find_map(|(_, event)| match event {
        Event::ReportCaptured(captured) => Some(captured),
        _ => None,
    })?;
    let kept = last.kept.as_ref().filter(|_| last.report.is_none())?;
    serde_json::from_slice(&std::fs::read(dir.path.join(&kept.reference)).ok()?).ok()
}

/// A text in the form of the record: inline, or in a file that the record points to.
pub fn record_text(
    dir: &RunDir,
    name: &str,
    text: String,
    longest_inline: usize,
) -> Result<RecordText, JournalError> {
    if text.len() <= longest_inline {
        return Ok(RecordText::Inline(text));
    }
    let path = format!("artifacts/{name}.txt");
    if let Some(folder) = dir.path.join(&path).parent() {
        files::create_private_dir(folder)
            .map_err(|error| JournalError { path: path.clone(), message: error.to_string() })?;
    }
    put(&dir.path.join(&path), text.as_bytes())?;
    Ok(RecordText::Kept(Pointer::new(artifact(&path, text.as_bytes()), "text/plain")))
}

/// The closing visit's report (D89), else the last one, else a synthetic one from agentd's own facts.
fn final_report(facts: &RunFacts, stop: &Stop) -> FinalReport {
    // A check's own session ("step#check") reports on the work, not for it.
    let checks: Vec<Uuid> = facts
        .other
        .iter()
        .filter_map(|(_, event)| match event {
            Event::SessionOpened(session) if session.step_id.contains('#') => Some(session.session),
            _ => None,
        })
        .collect();
    let captured = facts.other.iter().rev().find_map(|(_, event)| match event {
        Event::ReportCaptured(captured) if !checks.contains(&captured.session) => captured.report.clone(),
        _ => None,
    });
    captured.unwrap_or_else(|| {
        let mut agentd = Map::new();
        agentd.insert("source".into(), "synthetic".into());
        agentd.insert("reason".into(), stop.detail.as_str().into());
        let mut metadata = Map::new();
        metadata.insert("agentd".into(), Value::Object(agentd));
        FinalReport {
            format: ReportFormat::Markdown,
            content: Some(format!("{} ({}). {}", stop.reason(), stop.detail, stop.message)),
            content_json: None,
            metadata: Some(metadata),
            ts: facts.last_at,
        }
    })
}

/// What the work came to: the agent's own words, else why the run ended.
pub fn summary(facts: &RunFacts, stop: &Stop) -> String {
    summary_text::of_agent(facts).unwrap_or(&stop.message).to_owned()
}

fn budgets(facts: &RunFacts) -> OutputBudgets {
    let totals = facts.totals();
    let Some(started) = &facts.started else {
        return OutputBudgets {
            max_steps: 0,
            steps_used: 0,
            max_wall_time_ms: 0,
            wall_time_used_ms: u64::try_from(facts.last_at - facts.started_at).unwrap_or_default(),
            max_cost_usd: Money::ZERO,
            cost_used_usd: known_cost(&totals),
            soft_hits: Vec::new(),
        };
    };
    let lived = u64::try_from(facts.last_at - facts.started_at).unwrap_or_default();
    OutputBudgets {
        max_steps: started.budgets.max_steps,
        steps_used: facts.visits.len() as u32,
        max_wall_time_ms: started.budgets.max_wall_time.as_millis() as u64,
        wall_time_used_ms: started.inherited.wall_time.as_millis() as u64 + lived,
        max_cost_usd: started.budgets.max_cost,
        cost_used_usd: known_cost(&totals).map(|cost| cost + started.inherited.cost),
        soft_hits: facts.soft_hits.clone(),
    }
}

fn artifacts(facts: &RunFacts, (last_seq, last_hash): (u64, String)) -> OutputArtifacts {
    OutputArtifacts {
        report_md: None,
        accounting: None,
        evidence: None,
        events: Some(EventsArtifact { path: "events.jsonl".to_owned(), last_seq, last_hash }),
        run_record: Some(PathArtifact { path: "run.json".to_owned() }),
        base_commit: facts.lease.as_ref().map(|lease| lease.origin.commit.to_string()),
        head_commit: facts.committed.as_ref().map(|committed| committed.head.to_string()),
        head_tree: facts.committed.as_ref().map(|committed| committed.tree.clone()),
        patch_sha256: patch_sha256(facts),
        pr_url: facts.outcome(Effect::PullRequest).map(str::to_owned),
    }
}

/// The hash of the change, as the evidence of the last judgement has it.
fn patch_sha256(facts: &RunFacts) -> Option<String> {
    let judged = facts.other.iter().rev().find_map(|(_, event)| match event {
        Event::ClaimsJudged(judged) => Some(judged),
        _ => None,
    })?;
    judged.evidence.iter().find_map(|record| match &record.provenance {
        Provenance::Git(git) => Some(git.patch_sha256.clone()),
        _ => None,
    })
}

/// The run output of a run that was refused, or could not even be planned: nothing was made (X-011, D31).
pub fn not_started(
    run_id: Uuid,
    objective: Objective,
    principal: Principal,
    stop: &Stop,
    now: i64,
) -> RunOutput {
    let facts = RunFacts { started_at: now, last_at: now, ..RunFacts::default() };
    RunOutput::of(run_id, objective, principal, stop, final_report(&facts, stop), now)
}

/// The same where not more than a title is known.
pub fn unstarted(run_id: Uuid, title: String, principal: Principal, stop: &Stop, now: i64) -> RunOutput {
    let objective = Objective { title, ..no_objective() };
    not_started(run_id, objective, principal, stop, now)
}
