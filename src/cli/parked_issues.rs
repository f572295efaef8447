//! Issues of a state directory that wait for a person, whoever parked them: for `agentd status`, with and without a daemon.

use std::collections::BTreeSet;

use super::context::Context;
use super::error::CommandError;
use crate::conversation::parked::ParkedCell;
use crate::daemon::status_format::{IssueStatus, Status};
use crate::daemon::{Reason, in_one_sentence};
use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;
use crate::domain::stop::StopDetail;
use crate::issue::approval::{self, Decision};
use crate::record::{report, run_facts};
use crate::store::run_dir::{RunDir, StateDir};
use crate::sys::clock::Clock;

/// Those that wait now, and those that are decided and that no run has gone on with. Blocks.
pub fn kept(context: &Context) -> Result<Vec<IssueStatus>, CommandError> {
    let state = context.state()?;
    let mut found = asked(context, &state)?;
    let mut seen = BTreeSet::new();
    let runs = state.runs(context.global.repo.as_ref());
    for dir in runs.map_err(|error| CommandError::failed(error.to_string()))? {
        let Some((issue, detail)) = of_run(&dir) else { continue };
        if seen.insert((dir.repo.clone(), issue.to_string())) && detail == Some(StopDetail::ApprovalPending) {
            found.extend(left_calls(&state, &dir, &issue));
        }
    }
    Ok(found)
}

/// Why an issue waits; where a person is asked, with the answers to choose from, the place, since when and until when.
pub fn why_in_one_line(issue: &IssueStatus) -> String {
    let why = in_one_sentence(&issue.text);
    match &issue.asked {
        Some(asked) => format!("{why}; {}", asked.in_one_line()),
        None => why,
    }
}

/// Those whose run asked something or was taken over, as a state keeps them. Blocks.
pub fn asked(context: &Context, state: &StateDir) -> Result<Vec<IssueStatus>, CommandError> {
    let parked = state.store().parked().map_err(|error| CommandError::of_store(&error))?;
    let only = context.global.repo.as_ref();
    let mut found = Vec::new();
    for (repo, issue) in parked {
        if only.is_some_and(|only| *only != repo) {
            continue;
        }
        match ParkedCell::new(state, &repo, &issue).read_now() {
            Ok(known) => {
                found.extend(known.now().map(|parked| IssueStatus::parked(&repo, &issue, parked)));
            }
            Err(error) => tracing::warn!(%repo, %issue, %error, "whether the issue waits cannot be told"),
        }
    }
    Ok(found)
}

/// The issue of a run and, where it has ended, how. Of a run with a result no journal is read.
fn of_run(dir: &RunDir) -> Option<(IssueKey, Option<StopDetail>)> {
    if dir.result().exists() {
        let output = report::read_output(dir).ok()?;
        return Some((output.mapping?.issue, Some(output.stop_detail)));
    }
    let facts = run_facts::read(dir).ok()?;
    Some((facts.lease?.issue.key, facts.end.map(|end| end.detail)))
}

/// The newest run of an issue, which ended because calls wait for an approval. `None`: nothing is asked about them any more.
pub fn left_calls(state: &StateDir, dir: &RunDir, issue: &IssueKey) -> Option<IssueStatus> {
    let facts = run_facts::read(dir).ok()?;
    let end = facts.end.as_ref()?;
    let calls = approval::waiting(state, dir, &facts, Clock::system().now());
    calls.first()?;
    let waits = |text: &str| IssueStatus::new(&dir.repo, issue, end.detail.as_str(), text.to_owned());
    let is_decided_so = |so: fn(&Decision) -> bool| calls.iter().any(|(_, decision)| so(decision));
    Some(if is_decided_so(|decision| *decision == Decision::Open) {
        waits(&end.message)
    } else if is_decided_so(|decision| matches!(decision, Decision::Approved(_))) {
        IssueStatus::decided(&dir.repo, issue, dir.run_id)
    } else {
        let else_by = format!("agentd runs resume {}", dir.run_id);
        waits(&format!("its call was decided against; {else_by} lets the agent find another way"))
    })
}

/// The codes of issues that waited only for the end of another run.
const WAITS_FOR_SLOT: [&str; 2] = ["repository_slots_full", "slots_full"];

/// What a daemon said, with what is kept: after its end that counts, and what it never heard of is told as well.
pub fn told_with(status: &mut Status, works: bool, kept: &[IssueStatus]) {
    if !works {
        status.waiting.retain(|one| !one.waits_for_person());
        status.parked.retain(|one| !one.waits_for_person());
        // One that was killed has said of slots what is not so any more.
        for one in status.waiting.iter_mut().filter(|one| WAITS_FOR_SLOT.contains(&one.code.as_str())) {
            (one.code, one.text) = (Reason::NoDaemon.code().to_owned(), Reason::NoDaemon.to_string());
        }
    }
    for one in kept {
        let is_same = |known: &IssueStatus| is_of(one, &known.repo, &known.issue);
        let runs = status.running.iter().any(|run| is_of(one, &run.repo, &run.issue.into()));
        if !runs && !status.parked.iter().chain(&status.waiting).any(is_same) {
            status.parked.push(one.clone());
        }
    }
}

fn is_of(one: &IssueStatus, repo: &RepoName, issue: &IssueKey) -> bool {
    one.repo == *repo && one.issue == *issue
}
