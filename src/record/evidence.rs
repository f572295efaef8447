//! Looks up what a report cites: files of the final tree, answers of tools, commands that agentd ran.

use std::path::Path;

use chrono::{DateTime, Utc};

use super::cited_sources::{AnsweredCall, CitedSources, changed_files, reports};
use crate::domain::call_scope::{ScopePath, normalised};
use crate::domain::canonical::sha256_hex;
use crate::domain::denied_files::DeniedFiles;
use crate::domain::event::{Change, VerifyCommand};
use crate::domain::evidence::{
    CapturedBy, Claim, CommandSource, EvidenceRecord, FileSpanSource, GitSource, IssueTextSource, Provenance,
    Span, ToolResultSource, Verification, VerificationState, evidence_id, normalised_quote, quote_sha256,
    quoted_lines, short_quote,
};
use crate::domain::evidence_gate::{self, Case, CitedClaim, Judgement};
use crate::domain::facts::{CommittedWork, RunFacts};
use crate::domain::redaction::Redactor;
use crate::domain::report::{Cite, ClaimKind, ProposedClaim, ProposedStatus};
use crate::domain::run_output::{rfc3339, rfc3339_of_ms};
use crate::git::{Checkout, Worktree};

/// Lines of a command's output that its evidence quotes: the last ones.
const QUOTED_OUTPUT: usize = 20;
/// Characters of a cite that cannot be read which its claim's reason repeats.
const LONGEST_ECHO: usize = 100;
/// Bytes of a diff that are hashed.
const LONGEST_PATCH: usize = 64 * 1024 * 1024;

/// Everything the gate looks at, after the commit and the verify commands (D62).
#[derive(Debug)]
pub struct Scene<'a> {
    /// What happened in the run.
    pub facts: &'a RunFacts,
    /// The issue's worktree.
    pub worktree: &'a Worktree,
    /// The run directory, for stored outputs.
    pub run_dir: &'a Path,
    /// `owner/name`.
    pub repo: &'a str,
    /// What `verify.commands` configures.
    pub verify_commands: &'a [Vec<String>],
    /// Kinds that the agent's definition requires.
    pub requires: &'a [ClaimKind],
    /// Whether it requires any evidence at all.
    pub evidence_required: bool,
    /// Files that the run's sessions must not read.
    pub denied: &'a DeniedFiles,
    /// For quotes.
    pub redactor: &'a Redactor,
    /// Now.
    pub now: DateTime<Utc>,
}

/// Looks up every citation and judges every claim of the run's reports. A source that cannot be read is a reason why a
/// claim does not hold, and not an error.
pub async fn weigh(scene: &Scene<'_>) -> Judgement {
    let sources = CitedSources::of(scene.facts);
    let verification = verification(scene).await;
    let mut claims = Vec::new();
    let (proposed, outcome) = reports(scene.facts);
    for (claim, step_id, visit) in proposed {
        let mut cites = Vec::new();
        for cite in &claim.cites {
            cites.push(follow(scene, &sources, &verification, visit, cite).await);
        }
        claims.push(CitedClaim { claim, step_id, visit, cites });
    }
    let committed = scene.facts.committed.as_ref();
    let change = match committed {
        Some(committed) if !committed.change.is_empty() => Some(change(scene, committed).await),
        _ => None,
    };
    evidence_gate::judge(Case {
        claims,
        verification,
        verify_commands: scene.verify_commands.len(),
        change,
        head_tree: committed.map(|committed| committed.tree.clone()).unwrap_or_default(),
        outcome,
        requires: scene.requires.to_vec(),
        evidence_required: scene.evidence_required,
    })
}

/// Claims of a report that nothing backs, each with the reason. What only the end of the run can say is left to it.
/// `refreshed`: commands that agentd itself runs at the end, so an old result of them is not a problem.
pub async fn unbacked(
    scene: &Scene<'_>,
    visit: u32,
    claims: Vec<ProposedClaim>,
    refreshed: &[Vec<String>],
) -> Vec<String> {
    let sources = CitedSources::of(scene.facts);
    let mut cited = Vec::new();
    for claim in claims {
        let left = matches!(claim.kind, ClaimKind::TestsPass | ClaimKind::ChangeMade);
        if left || claim.status != ProposedStatus::Verified {
            continue;
        }
        let mut cites = Vec::new();
        for cite in &claim.cites {
            let mut found = follow(scene, &sources, &[], visit, cite).await;
            if let Ok(record) = &mut found
                && matches!(&record.provenance, Provenance::Command(command) if refreshed.contains(&command.argv))
            {
                record.stale = false;
            }
            cites.push(found);
        }
        cited.push(CitedClaim { claim, step_id: String::new(), visit, cites });
    }
    let judged = evidence_gate::judge(Case { claims: cited, ..Case::default() });
    let problem = |claim: &Claim| Some(format!("\"{}\": {}", claim.statement, claim.reason.as_ref()?));
    judged.claims.iter().filter(|claim| !claim.is_verified()).filter_map(problem).collect()
}

/// Checks a record of an earlier run: whether its source, at the named commit, still has the quote. Records without a
/// source that can be read again (inline answers, issue texts) are covered by the journal's hash chain.
pub async fn recheck(record: &EvidenceRecord, checkout: &Checkout, run_dir: &Path) -> Result<(), String> {
    let text = match &record.provenance {
        Provenance::FileSpan(file) => {
            let (blob, text) = file_of(checkout, &file.tree, &file.path).await?;
            if blob != file.blob_sha {
                return Err(format!("{} has other content than recorded", file.path));
            }
            text
        }
        Provenance::Command(command) if !command.output_handle.is_empty() => {
            stored(run_dir, &command.output_handle).await?
        }
        Provenance::ToolResult(ToolResultSource { output_handle: Some(handle), .. }) => {
            stored(run_dir, &format!("tool-output/{handle}")).await?
        }
        Provenance::Git(git) => {
            let commit =
                crate::domain::name::CommitId::parse(&git.commit).map_err(|error| error.to_string())?;
            let tree = checkout.tree_of_commit(&commit).await.map_err(|error| error.to_string())?;
            return if tree == git.tree { Ok(()) } else { Err(format!("{} has another tree", git.commit)) };
        }
        Provenance::Command(_)
        | Provenance::ToolResult(_)
        | Provenance::IssueText(_)
        | Provenance::Http(_) => return Ok(()),
    };
    let quote = quoted_lines(&text, record.span.start, record.span.end)?;
    if quote_sha256(&quote) == record.quote_sha256 {
        Ok(())
    } else {
        Err(format!("lines {}-{} say something else than was quoted", record.span.start, record.span.end))
    }
}

async fn follow(
    scene: &Scene<'_>,
    sources: &CitedSources,
    verification: &[EvidenceRecord],
    visit: u32,
    cite: &Cite,
) -> Result<EvidenceRecord, String> {
    match cite {
        Cite::File(file) => {
            let (start, end) = (u64::from(file.start), u64::from(file.end.unwrap_or(file.start)));
            file_span(scene, &file.path, start, end, file.quote.as_deref()).await
        }
        Cite::Output(output) => {
            let (start, end) = line_range(&output.lines)
                .ok_or_else(|| format!("\"{}\" is not a range of lines like 12-20", output.lines))?;
            let answered = sources
                .by_handle(&output.handle)
                .ok_or_else(|| format!("the handle {} is not one of this run", output.handle))?;
            answer(scene, answered, verification, Some((start, end)), output.quote.as_deref()).await
        }
        Cite::Locator(locator) => {
            let locator = locator.trim();
            if let Some(known) = verification.iter().find(|record| record.evidence_id == locator) {
                return Ok(known.clone());
            }
            if let Some(answered) = sources.by_call(visit, locator) {
                return answer(scene, answered, verification, None, None).await;
            }
            let (source, lines) = split_locator(locator).ok_or_else(|| {
                format!("\"{locator}\" is neither a call of this run nor a place like src/x.rs:12-20")
            })?;
            let (start, end) =
                line_range(lines).ok_or_else(|| format!("\"{lines}\" is not a range of lines like 12-20"))?;
            if source == "issue" {
                issue_text(scene, start, end)
            } else {
                file_span(scene, source, start, end, None).await
            }
        }
        Cite::Unreadable(written) => {
            let written: String = written.to_string().chars().take(LONGEST_ECHO).collect();
            Err(format!("{written} is no cite; give a text, {{handle, lines}} or {{path, start, end}}"))
        }
    }
}

/// `path:12`, `path:12-20`, `path#L12-L20`.
fn split_locator(locator: &str) -> Option<(&str, &str)> {
    locator.split_once("#L").or_else(|| locator.rsplit_once(':')).filter(|(source, _)| !source.is_empty())
}

fn line_range(text: &str) -> Option<(u64, u64)> {
    let number = |part: &str| part.trim().trim_start_matches('L').parse::<u64>().ok();
    match text.split_once('-') {
        Some((start, end)) => Some((number(start)?, number(end)?)),
        None => number(text).map(|line| (line, line)),
    }
}

/// Lines of a source; where the cite says what stands there, it does.
fn quoted(scene: &Scene<'_>, text: &str, start: u64, end: u64, said: Option<&str>) -> Result<String, String> {
    let lines = quoted_lines(text, start, end)?;
    let said = said.map(normalised_quote).filter(|said| !said.is_empty());
    // What the model wrote is kept redacted: a secret in it is its mark.
    let shown = scene.redactor.redact(&lines).unwrap_or_default();
    let stands = |said: &String| {
        normalised_quote(&lines).contains(said.as_str()) || normalised_quote(&shown).contains(said.as_str())
    };
    if said.as_ref().is_none_or(stands) {
        Ok(lines)
    } else {
        Err(format!("lines {start}-{end} do not say what the cite quotes"))
    }
}

async fn file_span(
    scene: &Scene<'_>,
    named: &str,
    start: u64,
    end: u64,
    said: Option<&str>,
) -> Result<EvidenceRecord, String> {
    let committed = scene.facts.committed.as_ref().ok_or("there is no final tree to look at")?;
    let ScopePath::Inside(path) = normalised(named, Some(scene.worktree.path().as_path())) else {
        return Err(format!("\"{named}\" is not a path inside the worktree"));
    };
    // Whether it exists and what it says is not told either.
    if scene.denied.contains(&path) {
        return Err(format!("the policy denies reading {path}"));
    }
    let (blob_sha, text) = file_of(scene.worktree.checkout(), &committed.tree, &path).await?;
    let quote = quoted(scene, &text, start, end, said).map_err(|problem| format!("{path}: {problem}"))?;
    let provenance = Provenance::FileSpan(FileSpanSource {
        repo: scene.repo.to_owned(),
        commit: committed.head.to_string(),
        tree: committed.tree.clone(),
        path,
        blob_sha,
        lines_total: text.lines().count() as u64,
    });
    Ok(record(scene, provenance, Span::lines(start, end), &quote, CapturedBy::ModelCited, "reread"))
}

/// Id and text of a file of a tree.
async fn file_of(checkout: &Checkout, tree: &str, path: &str) -> Result<(String, String), String> {
    let found = checkout.tree_blob(tree, path).await.map_err(|error| error.to_string())?;
    let (blob, bytes) = found.ok_or_else(|| format!("{path} does not exist in the final tree"))?;
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok((blob, text)),
        _ => Err(format!("{path} is not a text file")),
    }
}

/// The answer of a tool. For a command that agentd has run again, it is agentd's own result; else the recorded one.
async fn answer(
    scene: &Scene<'_>,
    answered: &AnsweredCall,
    verification: &[EvidenceRecord],
    lines: Option<(u64, u64)>,
    said: Option<&str>,
) -> Result<EvidenceRecord, String> {
    let own = answered.argv.as_ref().and_then(|argv| {
        verification
            .iter()
            .find(|record| matches!(&record.provenance, Provenance::Command(run) if run.argv == *argv))
    });
    if let (true, Some(own)) = (answered.maybe_stale, own) {
        return Ok(own.clone());
    }
    if !answered.ran {
        return Err(format!("the call {} did not run", answered.call_id));
    }
    let text = match (&answered.text, &answered.handle) {
        (Some(text), _) => text.clone(),
        (None, Some(handle)) => stored(scene.run_dir, &format!("tool-output/{handle}")).await?,
        (None, None) => return Err(format!("the answer to the call {} was not kept", answered.call_id)),
    };
    let (start, end) = lines.unwrap_or_else(|| last_lines(&text));
    let quote = quoted(scene, &text, start, end, said)
        .map_err(|problem| format!("the answer to {}: {problem}", answered.call_id))?;
    let head_tree =
        scene.facts.committed.as_ref().map(|committed| committed.tree.clone()).unwrap_or_default();
    let provenance = match (&answered.command, &answered.argv) {
        (Some(facts), Some(argv)) => Provenance::Command(CommandSource {
            argv: argv.clone(),
            // If nothing that writes ran afterwards, the tree after it is the final tree.
            tree_after: if answered.maybe_stale { String::new() } else { head_tree.clone() },
            output_handle: answered
                .handle
                .as_ref()
                .map(|handle| format!("tool-output/{handle}"))
                .unwrap_or_default(),
            changed_by_run: change_of(scene).map(|change| change.executed_by(argv, &[])).unwrap_or_default(),
            ..facts.clone()
        }),
        _ => Provenance::ToolResult(ToolResultSource {
            mcp_server: answered.server.clone(),
            command: answered.tool.clone(),
            call_id: answered.call_id.clone(),
            args_sha256: answered.args_sha256.clone(),
            output_sha256: sha256_hex(text.as_bytes()),
            output_handle: answered.handle.clone(),
        }),
    };
    let mut found =
        record(scene, provenance, Span::lines(start, end), &quote, CapturedBy::ModelCited, "recorded");
    found.stale = answered.maybe_stale;
    found.opaque = answered.opaque;
    found.tree = if answered.maybe_stale { String::new() } else { head_tree };
    Ok(found)
}

/// The last lines with something in them, at most [`QUOTED_OUTPUT`].
fn last_lines(text: &str) -> (u64, u64) {
    let last = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).last();
    let end = last.map_or(1, |(index, _)| index as u64 + 1);
    (end.saturating_sub(QUOTED_OUTPUT as u64 - 1).max(1), end)
}

async fn stored(run_dir: &Path, relative: &str) -> Result<String, String> {
    let plain = !relative.is_empty() && relative.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if !plain {
        return Err(format!("\"{relative}\" is not a file of the run directory"));
    }
    let path = run_dir.join(relative);
    let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
    match read {
        Ok(Ok(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        _ => Err(format!("the stored output {relative} cannot be read")),
    }
}

/// agentd's own runs of the verify commands, each with the end of its output.
async fn verification(scene: &Scene<'_>) -> Vec<EvidenceRecord> {
    let mut records = Vec::new();
    for run in &scene.facts.verification {
        let text = stored(scene.run_dir, &run.output).await.unwrap_or_else(|_| run.tail.clone());
        let (start, end) = last_lines(&text);
        let quote = quoted_lines(&text, start, end).unwrap_or_default();
        let mut found =
            record(scene, of_run(scene, run), Span::lines(start, end), &quote, CapturedBy::Agentd, "run");
        found.tree.clone_from(&run.tree_after);
        let final_tree = scene.facts.committed.as_ref().map(|committed| committed.tree.as_str());
        found.stale = final_tree.is_some_and(|tree| tree != run.tree_after);
        records.push(found);
    }
    records
}

fn change_of<'s>(scene: &Scene<'s>) -> Option<&'s Change> {
    scene.facts.committed.as_ref().map(|committed| &committed.change)
}

fn of_run(scene: &Scene<'_>, run: &VerifyCommand) -> Provenance {
    Provenance::Command(CommandSource {
        argv: run.argv.clone(),
        cwd: ".".to_owned(),
        env_names: Vec::new(),
        exit_code: run.exit_code,
        signal: run.end.clone(),
        started_at: rfc3339_of_ms(run.started_at),
        duration_ms: run.duration_ms,
        stdout_sha256: run.stdout_sha256.clone(),
        stderr_sha256: run.stderr_sha256.clone(),
        stdout_bytes: run.stdout_bytes,
        output_handle: run.output.clone(),
        tree_before: run.tree_before.clone(),
        tree_after: run.tree_after.clone(),
        sandbox: run.sandbox.clone(),
        changed_by_run: run.changed_by_run(change_of(scene)),
    })
}

async fn change(scene: &Scene<'_>, committed: &CommittedWork) -> EvidenceRecord {
    let quote = change_lines(&committed.change);
    let origin = scene.facts.lease.as_ref().map(|lease| lease.origin.commit.clone());
    let patch = match &origin {
        Some(base) => scene.worktree.diff(base, None, LONGEST_PATCH).await.map(|patch| patch.text),
        None => Ok(quote.clone()),
    };
    let provenance = Provenance::Git(GitSource {
        commit: committed.head.to_string(),
        parent: origin.map(|base| base.to_string()).unwrap_or_default(),
        tree: committed.tree.clone(),
        patch_sha256: sha256_hex(patch.as_deref().unwrap_or(&quote).as_bytes()),
        files: changed_files(&committed.change),
    });
    let lines = quote.lines().count() as u64;
    let mut found = record(scene, provenance, Span::lines(1, lines), &quote, CapturedBy::Agentd, "git");
    if let Err(error) = patch {
        found.verification.state = VerificationState::Failed;
        found.verification.reason = Some(error.to_string());
    }
    found
}

fn change_lines(change: &Change) -> String {
    let lines = change.files.iter().map(|file| format!("{} | +{} -{}", file.path, file.added, file.removed));
    lines.collect::<Vec<_>>().join("\n")
}

fn issue_text(scene: &Scene<'_>, start: u64, end: u64) -> Result<EvidenceRecord, String> {
    let issue = scene.facts.lease.as_ref().map(|lease| &lease.issue).ok_or("the run has no issue")?;
    let quote =
        quoted_lines(&issue.body, start, end).map_err(|problem| format!("the issue's text: {problem}"))?;
    let provenance = Provenance::IssueText(IssueTextSource {
        url: issue.url.clone().unwrap_or_default(),
        node_id: issue.node_id.clone().unwrap_or_default(),
        updated_at: issue.updated_at.clone().unwrap_or_default(),
        body_sha256: sha256_hex(issue.body.as_bytes()),
    });
    let mut found =
        record(scene, provenance, Span::lines(start, end), &quote, CapturedBy::ModelCited, "reread");
    found.tree = String::new();
    Ok(found)
}

fn record(
    scene: &Scene<'_>,
    provenance: Provenance,
    span: Span,
    quote: &str,
    captured_by: CapturedBy,
    method: &str,
) -> EvidenceRecord {
    let hash = quote_sha256(quote);
    let now = rfc3339(scene.now);
    // What cannot be redacted is left out; the hash still lets anybody compare.
    let shown = scene.redactor.redact(quote).map(|text| short_quote(&text)).unwrap_or_default();
    EvidenceRecord {
        evidence_id: evidence_id(scene.repo, &provenance, span, &hash),
        kind: provenance.kind(),
        quote: shown,
        quote_sha256: hash,
        span,
        provenance,
        captured_by,
        captured_at: now.clone(),
        tree: scene.facts.committed.as_ref().map(|committed| committed.tree.clone()).unwrap_or_default(),
        stale: false,
        opaque: false,
        verification: Verification {
            state: VerificationState::Ok,
            method: method.to_owned(),
            checked_at: now,
            reason: None,
        },
    }
}
