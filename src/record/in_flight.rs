//! The running requests and calls of a killed run. Each one that began and has no ledger line gets one, so that the
//! ledger has a line for everything that was sent.

use crate::domain::agent_program::TOOL_PREFIX;
use crate::domain::event::Event;
use crate::domain::facts::RunFacts;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ledger_entry::{
    AccountingEntry, AccountingKind, AccountingStatus, CostSource, INTERRUPTED,
};
use crate::domain::message::TokenUsage;
use crate::domain::run::RunId;
use crate::domain::trace::SessionOpened;

/// The ends that the dead process could not write, in the order in which they began.
pub fn cut_off(facts: &RunFacts, run_id: RunId) -> Vec<Event> {
    let mut ledger: Vec<&AccountingEntry> = facts.ledger.iter().collect();
    let mut ended = |of: &dyn Fn(&AccountingEntry) -> bool| {
        let place = ledger.iter().position(|entry| of(entry));
        place.map(|place| ledger.swap_remove(place)).is_some()
    };
    let mut sessions: Vec<&SessionOpened> = Vec::new();
    let mut missing = Vec::new();
    let last = facts.other.iter().rev().find_map(|(_, event)| match event {
        Event::AgentSpent { entries } => Some(entries),
        _ => None,
    });
    for entry in last.into_iter().flatten() {
        if !ended(&|known| is_of_launch(known, entry)) {
            let failed = AccountingStatus::Failed;
            let lived = u64::try_from(facts.last_at - entry.timestamp).unwrap_or_default();
            let (latency, error) = (entry.latency.max(lived), Some(INTERRUPTED.to_owned()));
            let mut entry = AccountingEntry { status: failed, error, latency, ..entry.clone() };
            if let AccountingKind::Llm { estimated, tokens, broke_off, .. } = &mut entry.what
                && (estimated.is_some() || tokens.is_none())
            {
                *broke_off = true;
            }
            missing.push(Event::LlmAttempted { entry: Box::new(entry) });
        }
    }
    let mut expected = None;
    for (at, event) in &facts.other {
        match event {
            Event::LlmRequestPrepared(request) => expected = Some(request.as_ref()),
            Event::SessionOpened(session) => sessions.push(session),
            Event::RequestFingerprinted(sent) if !ended(&|entry| answers(entry, sent)) => {
                let of_step =
                    |it: &&&SessionOpened| it.step_id == sent.step_id && it.visit == sent.step_visit;
                let session = sessions.iter().rev().find(of_step).copied();
                let what = AccountingKind::Llm {
                    provider: sent.provider.clone(),
                    model: sent.model.clone(),
                    actual_provider: None,
                    actual_model: None,
                    tokens: None,
                    // It was sent; what was written by then, nobody has.
                    estimated: expected.map(|request| TokenUsage::new(request.expected_tokens, 0, 0, 0)),
                    cost_usd: None,
                    // All of it may be billed, as the budgets of the issue and the day take it.
                    estimated_cost_usd: expected.and_then(|request| request.worst_cost),
                    cost_source: CostSource::Unknown,
                    stop_reason: None,
                    http_status: None,
                    // The provider may have answered; nobody knows.
                    broke_off: true,
                    fingerprint: sent.request_hash.clone(),
                };
                let entry =
                    line(facts, run_id, session, what, (sent.turn, Some(sent.attempt)), sent.timestamp);
                missing.push(Event::LlmAttempted { entry });
            }
            Event::ToolStarted { turn, call_id, tool, proposal_hash }
                if !ended(&|entry| finishes(entry, *turn, call_id, proposal_hash)) =>
            {
                let server = match tool.strip_prefix(TOOL_PREFIX) {
                    Some(program) => program,
                    None => tool.split_once("__").map_or("agentd", |(server, _)| server),
                };
                let what = AccountingKind::Tool {
                    mcp_server: server.to_owned(),
                    command: tool.clone(),
                    characters_in: 0,
                    characters_out: 0,
                    bytes_out: 0,
                    call_id: call_id.clone(),
                    proposal_hash: proposal_hash.clone(),
                    handle: None,
                    exit_code: None,
                };
                let entry = line(facts, run_id, sessions.last().copied(), what, (*turn, None), *at);
                missing.push(Event::ToolFinished { entry });
            }
            _ => {}
        }
    }
    missing
}

fn answers(entry: &AccountingEntry, sent: &Fingerprint) -> bool {
    let place = (entry.step_id.as_str(), entry.step_visit, entry.turn, entry.attempt);
    place == (sent.step_id.as_str(), sent.step_visit, sent.turn, Some(sent.attempt))
        && matches!(&entry.what, AccountingKind::Llm { fingerprint, .. } if *fingerprint == sent.request_hash)
}

/// Whether both lines are of one launch of an agent program and one of its models.
fn is_of_launch(one: &AccountingEntry, other: &AccountingEntry) -> bool {
    let place = |of: &AccountingEntry| (of.step_visit, of.attempt, of.timestamp);
    let model = |of: &AccountingEntry| match &of.what {
        AccountingKind::Llm { model, .. } => Some(model.clone()),
        AccountingKind::Tool { .. } => None,
    };
    place(one) == place(other) && model(one) == model(other)
}

fn finishes(entry: &AccountingEntry, turn: u32, id: &str, hash: &str) -> bool {
    let AccountingKind::Tool { call_id, proposal_hash, .. } = &entry.what else { return false };
    entry.turn == turn && call_id == id && proposal_hash == hash
}

fn line(
    facts: &RunFacts,
    run_id: RunId,
    session: Option<&SessionOpened>,
    what: AccountingKind,
    (turn, attempt): (u32, Option<u32>),
    timestamp: i64,
) -> Box<AccountingEntry> {
    let step_id = session.map(|session| session.step_id.clone()).unwrap_or_default();
    let issue = facts.lease.as_ref().map(|lease| format!("issue-{}:", lease.issue.key)).unwrap_or_default();
    let call_path = match &what {
        AccountingKind::Tool { command, .. } => format!("{issue}{step_id}:{command}"),
        AccountingKind::Llm { .. } => format!("{issue}{step_id}"),
    };
    let run_id = run_id.to_string();
    Box::new(AccountingEntry {
        what,
        timestamp,
        status: AccountingStatus::Failed,
        latency: u64::try_from(facts.last_at - timestamp).unwrap_or_default(),
        error: Some(INTERRUPTED.to_owned()),
        agent_id: session.map(|session| session.agent.clone()).unwrap_or_default(),
        call_path,
        txn_id: session.map_or_else(|| run_id.clone(), |session| session.session.to_string()),
        parent_txn_id: Some(run_id.clone()),
        origin_txn_id: run_id.clone(),
        run_id,
        step_visit: session.map(|session| session.visit).unwrap_or_default(),
        step_id,
        turn,
        attempt,
    })
}
