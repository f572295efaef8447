//! `agentd runs verify · compare · stats · eval`: whether runs are intact, how they differ, and their numbers.

use std::ffi::OsString;
use std::path::Path;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::golden_file::GoldenFile;
use super::{all, find, finished, output, read, written_output};
use crate::cli::context::Context;
use crate::cli::error::CommandError;
use crate::cli::output::Tone;
use crate::cli::repositories::{self, OpenOptions};
use crate::domain::comparison::{self, Difference};
use crate::domain::event::LeaseTaken;
use crate::domain::run_record::RunRecord;
use crate::domain::seal::{Proof, SealKeys, SignatureState};
use crate::domain::statistics::Statistics;
use crate::domain::stop::StopReason;
use crate::git::{Checkout, GitProgram};
use crate::record::audit::{self, Inspection};
use crate::record::finish::RunState;
use crate::record::rendering;
use crate::record::run_facts;
use crate::record::seal_check;
use crate::record::summary_text::counted;
use crate::repository::context::RepositoryContext;
use crate::store::run_dir::RunDir;
use crate::store::seal_index::INDEX;
use crate::sys::paths::AbsPath;

/// How many differences are told.
const MOST_DIFFERENCES: usize = 20;

/// Exit code 0: everything holds. 1: something does not, and it is named. A journal that cannot be read is a finding.
pub(super) fn verify(context: &Context, dir: &RunDir) -> Result<u8, CommandError> {
    let told = context.output;
    // A journal without its first event is nobody's run: that is for the findings.
    if let Ok((facts, RunState::Running)) = finished(dir)
        && facts.lease.is_some()
    {
        return Err(CommandError::failed(format!("run {} has not ended", dir.run_id))
            .hint(format!("agentd runs show {}", dir.run_id)));
    }
    let inspection = inspected(context, dir)?;
    let sound = inspection.findings.is_empty();
    if told.json() {
        let findings: Vec<_> = inspection
            .findings
            .iter()
            .map(|finding| json!({ "file": finding.file, "problem": finding.problem }))
            .collect();
        let mut document = json!({
            "run_id": dir.run_id, "ok": sound, "findings": findings,
            "proof": inspection.proof,
            "checked": { "events": inspection.events, "files": inspection.files, "claims": inspection.claims },
        });
        if let Some(why) = &inspection.not_looked_at {
            document["evidence_not_looked_at"] = json!(why);
        }
        told.document(&document)?;
        return Ok(u8::from(!sound));
    }
    for finding in &inspection.findings {
        let mark = told.toned("broken", Tone::Bad);
        told.line(format!("{mark}  {}: {}", finding.file, finding.problem))?;
    }
    let is_open = inspection.proof.signature == SignatureState::NotChecked && inspection.findings.len() == 1;
    let word = match sound {
        true => told.toned("holds", Tone::Good),
        false if is_open => told.toned("is not proven", Tone::Warn),
        false => told.toned("does not hold", Tone::Bad),
    };
    told.line(format!(
        "run {} {word}: {} events, {} other files, evidence of {}",
        dir.run_id,
        inspection.events,
        inspection.files,
        counted(inspection.claims, "verified claim")
    ))?;
    if let Some(why) = &inspection.not_looked_at {
        told.line(format!("the evidence of its claims is not looked at again here: {why}"))?;
    }
    told.line(proven(&inspection.proof))?;
    for run in &inspection.proof.runs_gone {
        told.line(format!(
            "{}  the directory of run {run}, which {INDEX} has",
            told.toned("gone", Tone::Warn)
        ))?;
    }
    Ok(u8::from(!sound))
}

/// Who vouches for a run, in words.
fn proven(proof: &Proof) -> String {
    let key = proof.key_id.as_deref().unwrap_or_default();
    let whose = match proof.key {
        Some("operator") => "the operator's key",
        Some("cluster") => "another host's key",
        Some(_) => "the host's key",
        None => "the key",
    };
    match (proof.signature, proof.index_line) {
        (SignatureState::Valid, Some(line)) => {
            format!("signed by {whose} {key}; line {line} of {} in {INDEX}", proof.index_lines)
        }
        (SignatureState::Valid, None) => format!("signed by {whose} {key}; not in {INDEX}"),
        (SignatureState::UnknownKey, _) => {
            format!("not proven: signed by the key {key}, which is not known here")
        }
        (SignatureState::NotChecked, _) => {
            format!("signed by the key {key}; whether that is one that counts here could not be checked")
        }
        (SignatureState::Invalid, _) => "not proven: its signature does not fit".to_owned(),
        (SignatureState::Gone, _) => format!("not proven: {INDEX} has a seal of it that is gone"),
        (SignatureState::NotSigned, _) => {
            "not signed: the hashes agree with each other, and nothing proves who \
             wrote them"
                .to_owned()
        }
    }
}

/// A run that only the index of seals still has: exit code 1 and its name. `None` = it is unknown.
pub(super) fn verify_gone(context: &Context, asked: &str) -> Result<Option<u8>, CommandError> {
    let Some((line, seal)) = seal_check::gone(&super::state_dir(context)?, asked) else { return Ok(None) };
    let statement = &seal.statement;
    let problem = format!("the run's directory is gone; line {line} of {INDEX} says that it was sealed");
    let told = context.output;
    if told.json() {
        told.document(&json!({
            "run_id": statement.run_id, "ok": false, "findings": [{ "file": "", "problem": problem }],
            "proof": { "signature": SignatureState::Gone, "key_id": seal.key_id, "index_line": line },
            "checked": { "events": 0, "files": 0, "claims": 0 },
        }))?;
        return Ok(Some(1));
    }
    told.line(format!("{}  {problem}", told.toned("broken", Tone::Bad)))?;
    told.line(format!("run {} {}", statement.run_id, told.toned("does not hold", Tone::Bad)))?;
    Ok(Some(1))
}

fn inspected(context: &Context, dir: &RunDir) -> Result<Inspection, CommandError> {
    let lease = run_facts::read(dir).ok().and_then(|facts| facts.lease);
    // Without a readable configuration, a seal of the operator's key is reported as signed by an unknown key.
    let seal_key = context.config().ok().and_then(|config| config.record.seal_key);
    let shared = shared_keys(context)?;
    context.block_on(async {
        let checkout = match &lease {
            Some(lease) => inspected_checkout(context, dir, lease).await,
            None => Err("the run's checkout is not known".to_owned()),
        };
        audit::verify(dir, checkout.as_ref().map_err(Clone::clone), (seal_key, shared)).await
    })
}

/// The keys that count in the cluster's store: another node's run is in this node's directory as well, if it went on with it.
#[cfg(feature = "nats")]
fn shared_keys(context: &Context) -> Result<SealKeys, CommandError> {
    let keys = context.mirror()?.and_then(|mirror| mirror.counted_keys());
    Ok(keys.unwrap_or_default())
}

/// Without clusters there are none.
#[cfg(not(feature = "nats"))]
fn shared_keys(_context: &Context) -> Result<SealKeys, CommandError> {
    Ok(SealKeys::default())
}

/// The repository with what a run committed, for reading. That of another node's run may not have it.
async fn inspected_checkout(context: &Context, dir: &RunDir, lease: &LeaseTaken) -> Result<Checkout, String> {
    let checkout = checkout_of_run(context, dir, lease).await?.checkout;
    let Some(head) = lease.held.as_ref().and_then(|_| run_facts::read(dir).ok()?.committed).map(|of| of.head)
    else {
        return Ok(checkout);
    };
    match checkout.has_commit(&head).await {
        Ok(false) => Err(format!("{} does not have its commit {}", checkout.root(), head.short())),
        Ok(true) | Err(_) => Ok(checkout),
    }
}

/// A repository that a run worked in.
pub(super) struct RunCheckout {
    pub checkout: Checkout,
    /// Another node's run: what this node knows of the repository.
    pub elsewhere: Option<RepositoryContext>,
}

/// The repository that a run worked in, for reading: of another node's run the one that the configuration here names.
pub(super) async fn checkout_of_run(
    context: &Context,
    dir: &RunDir,
    lease: &LeaseTaken,
) -> Result<RunCheckout, String> {
    let told = |error: CommandError| error.to_string();
    match repositories::checkout_of(context, lease).map_err(told)? {
        Some(place) => {
            let checkout = open_checkout(context, &place.to_string()).await?;
            Ok(RunCheckout { checkout, elsewhere: None })
        }
        None => {
            let options = OpenOptions::default();
            let site = repositories::of_run(context, &dir.repo, None, &options).await.map_err(told)?;
            Ok(RunCheckout { checkout: site.checkout.clone(), elsewhere: Some(site) })
        }
    }
}

/// A repository at a place, for reading.
pub(super) async fn open_checkout(context: &Context, path: &str) -> Result<Checkout, String> {
    let path = AbsPath::new(path).map_err(|error| error.to_string())?;
    let environment: Vec<(OsString, OsString)> = context.env.all().collect();
    let git = GitProgram::new(environment, CancellationToken::new());
    Checkout::open(git, &path, false).await.map_err(|error| error.to_string())
}

/// Exit code 0: equal; 1: they differ, first differences first (P-041).
pub(super) fn compare(context: &Context, a: &str, b: &str) -> Result<u8, CommandError> {
    let side = |asked: &str| -> Result<_, CommandError> {
        let dir = find(context, asked)?;
        let output = output(&dir)?;
        Ok((read::<RunRecord>(&dir.record())?, output))
    };
    let (a, b) = (side(a)?, side(b)?);
    let found = comparison::compare((&a.0, &a.1), (&b.0, &b.1), MOST_DIFFERENCES);
    if context.output.json() {
        context.output.document(&json!({
            "equal": found.is_empty(), "a": a.1.run_id, "b": b.1.run_id, "differences": differences(&found),
        }))?;
        return Ok(u8::from(!found.is_empty()));
    }
    if found.is_empty() {
        context.output.line("equal")?;
        return Ok(0);
    }
    difference_lines(&found).iter().try_for_each(|line| context.output.line(line))?;
    Ok(1)
}

/// As `--json` tells them.
pub(super) fn differences(found: &[Difference]) -> Vec<Value> {
    found.iter().map(|found| json!({ "path": found.path, "a": found.a, "b": found.b })).collect()
}

/// As people read them: the path, what one has there, what the other has.
pub(super) fn difference_lines(found: &[Difference]) -> Vec<String> {
    let shown =
        |value: &Option<Value>| value.as_ref().map_or_else(|| "(nothing)".to_owned(), ToString::to_string);
    found
        .iter()
        .flat_map(|found| {
            [found.path.clone(), format!("  - {}", shown(&found.a)), format!("  + {}", shown(&found.b))]
        })
        .collect()
}

/// The quality gates over the runs of a golden file: the least value that each must reach.
const GATES: [(&str, f64); 4] =
    [("evidence_coverage", 0.95), ("golden_recall", 0.80), ("abstention", 0.90), ("manifest_integrity", 1.0)];

/// Exit code 0: every gate is reached. What nothing was asked of counts as reached.
pub(super) fn eval(context: &Context, golden: &Path) -> Result<u8, CommandError> {
    let wrong = |error: String| {
        CommandError::invalid(format!("{}: {error}", golden.display()))
            .hint("--golden names a TOML or JSON file, such as: [[runs]] run = \"latest\", evidence = [\"ev_…\"], abstains = false")
    };
    let text = std::fs::read_to_string(golden).map_err(|error| wrong(error.to_string()))?;
    let golden: GoldenFile = if golden.extension().is_some_and(|extension| extension == "json") {
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?
    } else {
        toml::from_str(&text).map_err(|error| wrong(error.to_string()))?
    };
    if golden.runs.is_empty() {
        return Err(wrong("it names no run, so that nothing would be measured".to_owned()));
    }
    // Reached and asked, by gate.
    let mut counts = [(0_usize, 0_usize); 4];
    let mut count = |gate: usize, reached: bool| {
        counts[gate].1 += 1;
        counts[gate].0 += usize::from(reached);
    };
    for expected in &golden.runs {
        let dir = find(context, &expected.run)?;
        let output = output(&dir)?;
        let backs =
            |id: &String| output.evidence.iter().any(|record| record.evidence_id == *id && record.holds());
        for claim in output.claims.iter().filter(|claim| claim.is_verified()) {
            count(0, claim.evidence_ids.iter().any(backs));
        }
        for wanted in &expected.evidence {
            count(1, output.evidence.iter().any(|record| record.evidence_id == *wanted));
        }
        if expected.abstains {
            count(2, output.stop_reason == StopReason::NoEvidence);
        }
        count(3, inspected(context, &dir)?.findings.is_empty());
    }
    let gates: Vec<_> = GATES
        .iter()
        .zip(counts)
        .map(|((name, least), (reached, asked))| {
            let value = if asked == 0 { 1.0 } else { reached as f64 / asked as f64 };
            (*name, value, *least, value + 1e-9 >= *least)
        })
        .collect();
    let passed = gates.iter().all(|(.., passed)| *passed);
    if context.output.json() {
        let gates: serde_json::Map<String, Value> = gates
            .iter()
            .map(|(name, value, least, passed)| {
                ((*name).to_owned(), json!({ "value": value, "least": least, "passed": passed }))
            })
            .collect();
        context.output.document(&json!({ "runs": golden.runs.len(), "passed": passed, "gates": gates }))?;
        return Ok(u8::from(!passed));
    }
    for (name, value, least, passed) in gates {
        let word = if passed { "reached" } else { "missed" };
        context.output.line(format!("{name:<20}{value:.2}  (at least {least:.2}: {word})"))?;
    }
    Ok(u8::from(!passed))
}

/// Sums over the runs that have ended.
pub(super) fn stats(context: &Context) -> Result<(), CommandError> {
    let mut runs = Vec::new();
    for dir in all(context)? {
        match finished(&dir) {
            Ok((_, RunState::Ended)) => match written_output(&dir) {
                Ok(output) => runs.push(output),
                Err(error) => context.output.note(format!("left out: {}", error.message)),
            },
            Ok((_, RunState::Running)) => {}
            Err(error) => context.output.note(format!("left out: {}", error.message)),
        }
    }
    let sums = Statistics::of(&runs);
    if context.output.json() {
        return context.output.document(&sums);
    }
    let share = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |v| format!("{:.0} %", v * 100.0));
    let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |v| format!("{v}"));
    let mut rows = vec![("runs".to_owned(), sums.runs.to_string())];
    rows.extend(sums.by_stop_reason.iter().map(|(reason, count)| (format!("  {reason}"), count.to_string())));
    rows.extend([
        ("success".to_owned(), share(sums.success_rate)),
        ("no evidence".to_owned(), share(sums.no_evidence_rate)),
        ("steps to success (median)".to_owned(), number(sums.median_steps_to_success)),
        (
            "time (median)".to_owned(),
            sums.median_wall_time_ms.map_or_else(|| "–".to_owned(), |ms| rendering::duration(ms as u64)),
        ),
        ("time of its budget (median)".to_owned(), share(sums.median_wall_time_used_ratio)),
        ("cost".to_owned(), rendering::amount(sums.cost_usd, sums.runs_of_unknown_cost > 0)),
        ("verified claims".to_owned(), sums.verified_claims.to_string()),
        (
            "cost by verified claim".to_owned(),
            sums.cost_per_verified_claim_usd.map_or_else(|| "–".to_owned(), |cost| format!("${cost:.4}")),
        ),
    ]);
    rows.iter().try_for_each(|(name, value)| context.output.line(format!("{name:<30}{value}")))
}
