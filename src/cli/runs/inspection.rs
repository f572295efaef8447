//! `agentd runs verify · compare · stats`: whether runs hold, how they differ, what they come to.

use std::ffi::OsString;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{all, find, output, read, settled};
use crate::cli::context::Context;
use crate::cli::error::CommandError;
use crate::cli::output::Tone;
use crate::domain::comparison;
use crate::domain::run_record::RunRecord;
use crate::domain::statistics::Statistics;
use crate::git::{Checkout, GitProgram};
use crate::lifecycle::page;
use crate::lifecycle::recovery::Standing;
use crate::lifecycle::{report, verification};
use crate::store::run_dir::RunDir;
use crate::sys::paths::AbsPath;

/// How many differences are told.
const MOST_DIFFERENCES: usize = 20;

/// Exit code 0: everything holds; 1: something does not, and it is named. A journal that cannot be read is a finding.
pub(super) fn verify(context: &Context, dir: &RunDir) -> Result<u8, CommandError> {
    let told = context.output;
    let standing = settled(dir).map(|(_, standing)| standing);
    if let Ok(Standing::Running) = standing {
        return Err(CommandError::failed(format!("run {} has not ended", dir.run_id)));
    }
    let lease = report::facts_of(dir).ok().and_then(|facts| facts.lease);
    let inspection = context.block_on(async {
        let checkout = match &lease {
            Some(lease) => open_checkout(context, &lease.checkout).await,
            None => Err("the run's checkout is not known".to_owned()),
        };
        verification::verify(dir, checkout.as_ref().map_err(Clone::clone)).await
    })?;
    let sound = inspection.findings.is_empty();
    if told.json() {
        let findings: Vec<_> = inspection
            .findings
            .iter()
            .map(|finding| json!({ "file": finding.file, "problem": finding.problem }))
            .collect();
        told.document(&json!({
            "run_id": dir.run_id, "ok": sound, "findings": findings,
            "checked": { "events": inspection.events, "files": inspection.files, "claims": inspection.claims },
        }))?;
        return Ok(u8::from(!sound));
    }
    for finding in &inspection.findings {
        let mark = told.toned("broken", Tone::Bad);
        told.line(format!("{mark}  {}: {}", finding.file, finding.problem))?;
    }
    let word = if sound { told.toned("holds", Tone::Good) } else { told.toned("does not hold", Tone::Bad) };
    told.line(format!(
        "run {} {word}: {} events, {} other files, evidence of {} verified claims",
        dir.run_id, inspection.events, inspection.files, inspection.claims
    ))?;
    Ok(u8::from(!sound))
}

/// The repository that a run worked in, for reading.
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
        let differences: Vec<_> = found
            .iter()
            .map(|difference| json!({ "path": difference.path, "a": difference.a, "b": difference.b }))
            .collect();
        context.output.document(&json!({
            "equal": found.is_empty(), "a": a.1.run_id, "b": b.1.run_id, "differences": differences,
        }))?;
        return Ok(u8::from(!found.is_empty()));
    }
    if found.is_empty() {
        context.output.line("equal")?;
        return Ok(0);
    }
    for difference in &found {
        context.output.line(&difference.path)?;
        for (sign, value) in [("-", &difference.a), ("+", &difference.b)] {
            let value = value.as_ref().map_or_else(|| "(nothing)".to_owned(), ToString::to_string);
            context.output.line(format!("  {sign} {value}"))?;
        }
    }
    Ok(1)
}

/// Sums over the runs that have ended.
pub(super) fn stats(context: &Context) -> Result<(), CommandError> {
    let mut runs = Vec::new();
    for dir in all(context)? {
        match settled(&dir) {
            Ok((_, Standing::Ended)) => runs.push(read(&dir.result())?),
            Ok((_, Standing::Running)) => {}
            Err(error) => context.output.note(format!("left out: {error}")),
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
            sums.median_wall_time_ms.map_or_else(|| "–".to_owned(), |ms| page::duration(ms as u64)),
        ),
        ("time of its budget (median)".to_owned(), share(sums.median_wall_time_used_ratio)),
        ("cost".to_owned(), sums.cost_usd.to_string()),
        ("verified claims".to_owned(), sums.verified_claims.to_string()),
        (
            "cost by verified claim".to_owned(),
            sums.cost_per_verified_claim_usd.map_or_else(|| "–".to_owned(), |cost| format!("${cost:.4}")),
        ),
    ]);
    rows.iter().try_for_each(|(name, value)| context.output.line(format!("{name:<30}{value}")))
}
