//! What went wrong in a run, each kind once, with a fingerprint that is the same over runs (X-039).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::canonical::sha256_hex;
use super::event::{Effect, Event};
use super::evidence::ClaimStatus;
use super::facts::{EffectState, RunFacts};
use super::ledger_entry::{AccountingKind, AccountingStatus};
use super::policy::Decision;
use super::report::ProposedStatus;
use super::run_output::{FailureRecord, Severity};
use super::stop::StopReason;

/// How many a next run is told.
pub const MOST_TOLD: usize = 5;
/// How a program ended that agentd did not let go on. Why it did not is told as what it is: the end of the run, a question, a stop.
pub const ENDED_BY_AGENTD: &str = "it was ended by agentd";
/// Longest signal, in characters.
const LONGEST_SIGNAL: usize = 500;

/// The failures of a run, worst first. Same events, same failures.
pub fn of(facts: &RunFacts) -> Vec<FailureRecord> {
    let mut seen = Seen::default();
    for entry in facts.ledger.iter().filter(|entry| entry.status == AccountingStatus::Failed) {
        let error = entry.error.as_deref().unwrap_or("failed");
        if error.starts_with(ENDED_BY_AGENTD) {
            continue;
        }
        let (what, adjustment) = match &entry.what {
            AccountingKind::Tool { command, .. } => {
                (format!("tool:{command} {error}"), "the model was told and went on")
            }
            AccountingKind::Llm { provider, model, .. } => {
                (format!("llm:{provider}/{model} {error}"), "the next attempt was made")
            }
        };
        seen.note(&what, Severity::Low, entry.step_visit, adjustment);
    }
    let last_visit = facts.visits.last().map_or(0, |visit| visit.visit);
    let mut visit = 0;
    for (_, event) in &facts.other {
        match event {
            Event::SessionOpened(opened) => visit = opened.visit,
            Event::ReplyRejected { reason, .. } => {
                seen.note(&format!("reply:{reason}"), Severity::Medium, visit, "the model was asked again");
            }
            Event::PolicyDecided(decision) if decision.decision == Decision::Deny => seen.note(
                &format!("denied:{} {}", decision.resource.name, decision.reason),
                Severity::Medium,
                visit,
                "it did not run",
            ),
            _ => {}
        }
    }
    let judged = facts.other.iter().rev().find_map(|(_, event)| match event {
        Event::ClaimsJudged(judged) => Some(judged),
        _ => None,
    });
    for claim in judged.into_iter().flat_map(|judged| &judged.claims) {
        if claim.status == ClaimStatus::Unverified && claim.proposed_status == ProposedStatus::Verified {
            let reason = claim.reason.as_deref().unwrap_or("not backed");
            let what = format!("claim:{} {reason}", claim.kind.as_str());
            seen.note(&what, Severity::Medium, claim.visit, "the report calls it not verified");
        }
    }
    for command in facts.verification.iter().filter(|command| !command.passed()) {
        let what = format!("verify:{} {}", command.argv.join(" "), command.ending());
        let adjustment = match facts.outcome(Effect::PullRequest) {
            Some(_) => "the pull request is a draft",
            None => "the work is on the branch, and the report says that it fails",
        };
        seen.note(&what, Severity::High, last_visit, adjustment);
    }
    for (effect, state) in &facts.effects {
        if let EffectState::Failed { message, .. } = state {
            let what = format!("effect:{} {message}", effect.as_str());
            let adjustment = match effect {
                Effect::Push => "the work is kept on the local branch",
                Effect::PullRequest => "the work is on the pushed branch",
                _ => "the work is not touched by it",
            };
            seen.note(&what, Severity::High, last_visit, adjustment);
        }
    }
    if let Some(stop) = facts.end.as_ref().or(facts.flow_end.as_ref().map(|end| &end.stop))
        && !matches!(stop.reason(), StopReason::ObjectiveAchieved | StopReason::HumanRequested)
    {
        let what = format!("end:{} {}", stop.detail, stop.message);
        let at = facts.unfinished.as_ref().map_or(last_visit, |(visit, _)| *visit);
        seen.note(&what, Severity::High, at, "the run ended");
    }
    seen.sorted()
}

/// What the next run of the issue is told: the worst failures of the last run, then those of earlier runs that the last
/// one did not have.
pub fn told(last: &[FailureRecord], before: &[FailureRecord]) -> Vec<FailureRecord> {
    let mut told: Vec<FailureRecord> = last.to_vec();
    told.extend(
        before.iter().filter(|old| !last.iter().any(|new| new.fingerprint == old.fingerprint)).cloned(),
    );
    told.truncate(MOST_TOLD);
    told
}

#[derive(Default)]
struct Seen(BTreeMap<String, FailureRecord>);

impl Seen {
    fn note(&mut self, what: &str, severity: Severity, visit: u32, adjustment: &str) {
        let signal = signal(what);
        let fingerprint = sha256_hex(stable(&signal).as_bytes()).get(..16).unwrap_or_default().to_owned();
        let next = self.0.len() + 1;
        let record = self.0.entry(fingerprint.clone()).or_insert_with(|| FailureRecord {
            failure_id: format!("f{next}"),
            fingerprint,
            signal,
            severity,
            count: 0,
            last_visit: visit,
            adjustment: adjustment.to_owned(),
        });
        record.count += 1;
        record.last_visit = record.last_visit.max(visit);
        record.severity = record.severity.max(severity);
    }

    fn sorted(self) -> Vec<FailureRecord> {
        let mut all: Vec<FailureRecord> = self.0.into_values().collect();
        all.sort_by(|a, b| (b.severity, b.count, &a.fingerprint).cmp(&(a.severity, a.count, &b.fingerprint)));
        all
    }
}

/// One short line.
fn signal(what: &str) -> String {
    let line = what.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(LONGEST_SIGNAL).collect()
}

/// A signal without ids and numbers, which change from run to run.
fn stable(signal: &str) -> String {
    static CHANGING: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{12,}|[0-9]+").ok());
    match &*CHANGING {
        Some(changing) => changing.replace_all(signal, "#").into_owned(),
        None => signal.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(fingerprint: &str, severity: Severity) -> FailureRecord {
        FailureRecord {
            failure_id: "f1".into(),
            fingerprint: fingerprint.into(),
            signal: fingerprint.into(),
            severity,
            count: 1,
            last_visit: 1,
            adjustment: String::new(),
        }
    }

    #[test]
    fn x_039_equal_failures_have_one_record_and_one_fingerprint_over_runs() {
        let mut one = Seen::default();
        one.note("tool:run_command exit 2 in 12 ms\nmore", Severity::Low, 1, "");
        one.note("tool:run_command exit 3 in 9 ms", Severity::Medium, 4, "");
        one.note("tool:read_file not there", Severity::High, 2, "");
        let found = one.sorted();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].severity, found[1].count, found[1].last_visit), (Severity::High, 2, 4));
        let mut other = Seen::default();
        other.note("tool:run_command exit 7 in 1 ms", Severity::Low, 1, "");
        assert_eq!(other.sorted()[0].fingerprint, found[1].fingerprint);
    }

    #[test]
    fn x_039_the_next_run_is_told_five_at_most_each_once() {
        let last = [failure("a", Severity::High), failure("b", Severity::Low)];
        let before: Vec<FailureRecord> =
            ["b", "c", "d", "e", "f"].map(|name| failure(name, Severity::Low)).into();
        let names: Vec<String> =
            told(&last, &before).into_iter().map(|failure| failure.fingerprint).collect();
        assert_eq!(names, ["a", "b", "c", "d", "e"]);
    }
}
