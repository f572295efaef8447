//! `agentd approvals`: the calls that wait for a person, and a person's word on them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::args::ApprovalsCommand;
use super::context::Context;
use super::error::CommandError;
use super::issue_arg::IssueArg;
use super::output::Tone;
use super::runs::DecisionOutcome;
use super::{approvals_text, runs};
use crate::domain::cluster::person_request::PersonAsks;
use crate::domain::facts::RunFacts;
use crate::domain::trace::SuspendedProposal;
use crate::issue::approval::{self, Decision};
use crate::lifecycle::carry_out::Done;
use crate::store::run_dir::{RunDir, StateDir};
use crate::sys::clock::Clock;

/// Does what was asked.
pub fn run(context: &Context, command: &ApprovalsCommand) -> Result<(), CommandError> {
    match command {
        ApprovalsCommand::List { issue } => list(context, issue.as_ref()),
        ApprovalsCommand::Approve { hash, expires } => {
            let found = named(context, hash)?;
            runs::approve(context, &found.dir, hash, expires.0)
        }
        ApprovalsCommand::Deny { hash } => {
            let found = named(context, hash)?;
            deny(context, &found, hash)
        }
    }
}

/// The newest run of an issue, which left something to a person.
struct Left {
    dir: RunDir,
    facts: RunFacts,
}

impl Left {
    fn waiting(&self, state: &StateDir) -> Vec<(&SuspendedProposal, Decision)> {
        approval::waiting(state, &self.dir, &self.facts, Clock::system().now())
    }
}

/// What the newest run of each issue left, newest first. What an earlier one left is not asked about any more.
fn left(context: &Context) -> Result<Vec<Left>, CommandError> {
    let state = runs::state_dir(context)?;
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for dir in runs::all(context)? {
        // What cannot be read is told by `runs list`.
        let Ok((facts, _)) = runs::finished(&dir) else { continue };
        let Some(lease) = &facts.lease else { continue };
        if !seen.insert((dir.repo.clone(), lease.issue.key.to_string())) {
            continue;
        }
        let left = Left { dir, facts };
        if !left.waiting(&state).is_empty() {
            found.push(left);
        }
    }
    Ok(found)
}

/// The run that left a call whose hash begins so.
fn named(context: &Context, hash: &str) -> Result<Left, CommandError> {
    let state = runs::state_dir(context)?;
    let asked = hash.trim().to_ascii_lowercase();
    let all = left(context)?;
    let mut known = Vec::new();
    let mut found = Vec::new();
    for left in all {
        let waiting = left.waiting(&state);
        known.extend(waiting.iter().map(|(one, _)| format!("{} {}", one.proposal_hash, one.call_text())));
        if !asked.is_empty() && waiting.iter().any(|(one, _)| one.proposal_hash.starts_with(&asked)) {
            found.push(left);
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 if known.is_empty() => Err(CommandError::invalid("no call waits for an approval")
            .hint("`agentd why ISSUE` says what an issue waits for")),
        0 => {
            let error =
                CommandError::invalid(format!("no call that waits for an approval has the hash \"{hash}\""));
            Err(known.into_iter().fold(error, CommandError::hint))
        }
        count => Err(CommandError::invalid(format!("{count} calls begin with \"{hash}\""))
            .hint("write more of the hash; `agentd approvals list` shows it")),
    }
}

fn list(context: &Context, issue: Option<&IssueArg>) -> Result<(), CommandError> {
    let state = runs::state_dir(context)?;
    let mut all = left(context)?;
    all.retain(|left| issue.is_none_or(|issue| is_of(left, issue)));
    if context.output.json() {
        let told: Vec<Value> = all.iter().flat_map(|left| documents(&state, left)).collect();
        return context.output.document(&told);
    }
    if all.is_empty() {
        return context.output.line("No call waits for an approval.");
    }
    let mut open = false;
    for left in &all {
        let Some(lease) = &left.facts.lease else { continue };
        let title = format!("{}#{}: {}", left.dir.repo, lease.issue.key, lease.issue.title);
        context.output.line(context.output.toned(&title, Tone::Strong))?;
        for (proposal, decision) in left.waiting(&state) {
            open |= decision == Decision::Open;
            approvals_text::show(context, proposal, &decision)?;
        }
        context.output.entry("  run     ", &left.dir.run_id.to_string())?;
    }
    if open {
        context
            .output
            .note("agentd approvals approve HASH lets a call run once; agentd approvals deny HASH does not.");
    }
    Ok(())
}

/// The hashes of the calls that wait for a decision on an issue.
pub fn waiting(context: &Context, issue: &IssueArg) -> Result<Vec<String>, CommandError> {
    let state = runs::state_dir(context)?;
    let mut hashes = Vec::new();
    for left in left(context)?.iter().filter(|left| is_of(left, issue)) {
        let open = left.waiting(&state).into_iter().filter(|(_, decision)| *decision == Decision::Open);
        hashes.extend(open.map(|(call, _)| call.proposal_hash.clone()));
    }
    Ok(hashes)
}

fn is_of(left: &Left, issue: &IssueArg) -> bool {
    let key = left.facts.lease.as_ref().map(|lease| &lease.issue.key);
    key == Some(&issue.key) && issue.repo.as_ref().is_none_or(|repo| *repo == left.dir.repo)
}

fn documents(state: &StateDir, left: &Left) -> Vec<Value> {
    let issue = left.facts.lease.as_ref().map(|lease| &lease.issue.key);
    let told = |(proposal, decision): (&SuspendedProposal, Decision)| {
        let mut told = approvals_text::document(proposal, &decision);
        told["run_id"] = json!(left.dir.run_id);
        told["repo"] = json!(left.dir.repo);
        told["issue"] = json!(issue);
        told
    };
    left.waiting(state).into_iter().map(told).collect()
}

fn deny(context: &Context, left: &Left, asked: &str) -> Result<(), CommandError> {
    let state = runs::state_dir(context)?;
    let decided =
        runs::decide(context, &state, (&left.dir, &left.facts), asked, |run_id, proposal, instead_of| {
            PersonAsks::Deny { run_id, proposal, instead_of }
        })?;
    let (denial, proposal) = match decided {
        DecisionOutcome::Here(Done::Denied(denied)) => *denied,
        DecisionOutcome::Here(_) => return Ok(()),
        DecisionOutcome::Asked { heard_by, call } => {
            return runs::told_of_call(context, &left.dir, "denied", (heard_by, &call));
        }
    };
    if context.output.json() {
        return context.output.document(&denial);
    }
    context.output.line(format!("Denied: {} {}", proposal.resource.name, proposal.canonical_json))?;
    context.output.advice(format!(
        "Nothing goes on by itself. To let the agent find another way: agentd runs resume {}",
        left.dir.run_id
    ))
}
