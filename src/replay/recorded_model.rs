//! What a recorded model answered, attempt by attempt: accepted replies from the conversations, refused ones from the
//! items of the record, failures from the ledger.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;
use uuid::Uuid;

use crate::domain::event::Event;
use crate::domain::facts::RunFacts;
use crate::domain::ledger_entry::{AccountingEntry, AccountingKind, AccountingStatus, CostSource};
use crate::domain::message::{Message, ToolCall};
use crate::domain::trace::{Item, ItemRole, RecordText};
use crate::engine::model::{ModelError, ModelErrorClass, ModelReply, ReplyStop, Spent};
use crate::store::run_dir::RunDir;

/// One answer, or why there was none.
pub(super) type Answer = Result<ModelReply, ModelError>;

/// An answer, and whether it was accepted. An accepted answer is in every later request of its session.
pub(super) struct Given {
    pub answer: Answer,
    pub accepted: bool,
}

/// A reply that the session could not use, by session, turn and attempt.
pub(super) type Rejected = BTreeMap<(Uuid, u32, u32), RejectedReply>;

/// See [`Rejected`].
#[derive(Debug, Default)]
pub(super) struct RejectedReply {
    reason: String,
    text: String,
    calls: Vec<ToolCall>,
}

/// The replies that were not accepted. Each has an event; its text and calls are in the items that follow.
pub(super) fn rejected(dir: &RunDir, facts: &RunFacts) -> Result<Rejected, String> {
    let mut found = Rejected::new();
    let mut open: Vec<Uuid> = Vec::new();
    let mut now = None;
    for (_, event) in &facts.other {
        match event {
            Event::SessionOpened(opened) => {
                open.push(opened.session);
                now = None;
            }
            Event::SessionClosed(closed) => {
                open.retain(|session| *session != closed.session);
                now = None;
            }
            Event::LlmRequestPrepared(_) => now = None,
            Event::ReplyRejected { turn, attempt, reason, .. } => {
                now = open.last().map(|session| (*session, *turn, *attempt));
                if let Some(key) = now {
                    found.insert(key, RejectedReply { reason: reason.clone(), ..RejectedReply::default() });
                }
            }
            Event::ItemRecorded { item, .. } => {
                if let Some(reply) = now.and_then(|key| found.get_mut(&key)) {
                    take(dir, reply, item)?;
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

fn take(dir: &RunDir, reply: &mut RejectedReply, item: &Item) -> Result<(), String> {
    match item {
        Item::Message { role: ItemRole::Assistant, content } => reply.text = text_of(dir, content)?,
        Item::ToolCallItem { call_id, name, arguments, .. } => {
            let arguments = match whole(dir, arguments)? {
                // Arguments that were no JSON stand as they were written.
                Value::String(raw) => raw,
                other => other.to_string(),
            };
            reply.calls.push(ToolCall { id: call_id.clone(), name: name.clone(), arguments });
        }
        _ => {}
    }
    Ok(())
}

fn text_of(dir: &RunDir, text: &RecordText) -> Result<String, String> {
    match text {
        RecordText::Inline(text) => Ok(text.clone()),
        RecordText::Kept(pointer) => {
            Ok(String::from_utf8_lossy(&kept(dir, &pointer.reference)?).into_owned())
        }
    }
}

/// The answers of one session in the order in which they came.
pub(super) fn answers(
    session: Uuid,
    messages: &[Message],
    facts: &RunFacts,
    rejected: &Rejected,
) -> VecDeque<Given> {
    let mut accepted: VecDeque<ModelReply> = messages.iter().filter_map(accepted).collect();
    let of_session = session.to_string();
    let mut answers = VecDeque::new();
    for entry in facts.ledger.iter().filter(|entry| entry.txn_id == of_session) {
        let AccountingKind::Llm {
            tokens,
            estimated,
            cost_usd,
            cost_source,
            stop_reason,
            http_status,
            broke_off,
            ..
        } = &entry.what
        else {
            continue;
        };
        let reported = cost_usd.filter(|_| *cost_source == CostSource::Reported);
        let refused = rejected.get(&(session, entry.turn, entry.attempt.unwrap_or(1)));
        let refused = refused.filter(|reply| reply.reason != "invalid_reply");
        let mut reply = match (refused, entry.status) {
            (Some(refused), _) => refused_reply(refused),
            (None, AccountingStatus::Ok) => accepted.pop_front().unwrap_or_else(silence),
            (None, AccountingStatus::Failed) => {
                let spent = match broke_off {
                    true if tokens.is_some() || reported.is_some() => {
                        Spent::Reply { usage: *tokens, cost: reported }
                    }
                    true => Spent::BrokeOff {
                        usage: None,
                        written: estimated.map_or(0, |tokens| tokens.output_tokens),
                    },
                    false => Spent::Nothing,
                };
                let failed = failure(entry).map(|error| ModelError { status: *http_status, spent, ..error });
                answers.extend(failed.map(|error| Given { answer: Err(error), accepted: false }));
                continue;
            }
        };
        reply.usage = *tokens;
        reply.cost = reported;
        if stop_reason.as_deref().is_some_and(was_cut) {
            reply.stop = ReplyStop::Length;
        }
        answers.push_back(Given { answer: Ok(reply), accepted: refused.is_none() });
    }
    answers
}

fn accepted(message: &Message) -> Option<ModelReply> {
    let Message::Assistant { content, reasoning, tool_calls } = message else { return None };
    Some(ModelReply {
        text: content.clone(),
        reasoning: reasoning.clone(),
        tool_calls: tool_calls.clone(),
        stop: if tool_calls.is_empty() { ReplyStop::End } else { ReplyStop::ToolCalls },
        ..silence()
    })
}

fn refused_reply(refused: &RejectedReply) -> ModelReply {
    ModelReply {
        text: refused.text.clone(),
        // What the model thought is not in the record, only that it thought.
        reasoning: (refused.reason == "reasoning_only").then(|| serde_json::json!([])),
        tool_calls: refused.calls.clone(),
        stop: if refused.reason == "refusal" { ReplyStop::Refusal } else { ReplyStop::End },
        ..silence()
    }
}

fn silence() -> ModelReply {
    ModelReply {
        text: String::new(),
        reasoning: None,
        tool_calls: Vec::new(),
        stop: ReplyStop::End,
        stop_raw: None,
        usage: None,
        cost: None,
        actual_provider: None,
        actual_model: None,
    }
}

/// The words of the wires for a reply that its token limit cut.
fn was_cut(word: &str) -> bool {
    ["length", "max_tokens", "max_output_tokens"].contains(&word.to_ascii_lowercase().as_str())
}

/// Why an attempt gave nothing; `None` for one that was cancelled from outside.
fn failure(entry: &AccountingEntry) -> Option<ModelError> {
    let error = entry.error.as_deref()?;
    let (class, message) = error.split_once(": ").unwrap_or((error, error));
    let class = match class {
        "auth_error" => ModelErrorClass::Auth,
        "quota_exceeded" => ModelErrorClass::Quota,
        // Nobody waits in a replay.
        "rate_limited" => ModelErrorClass::RateLimited { retry_after: None },
        "network_error" => ModelErrorClass::Network,
        "timeout" => ModelErrorClass::Timeout,
        "server_error" => ModelErrorClass::Server { retry_after: None },
        "context_length_exceeded" => ModelErrorClass::ContextLength,
        "bad_request" => ModelErrorClass::BadRequest,
        "invalid_reply" => ModelErrorClass::InvalidReply,
        _ => return None,
    };
    Some(ModelError::new(class, message))
}

/// A value of the record, fetched where it is only pointed to.
pub(super) fn whole(dir: &RunDir, value: &Value) -> Result<Value, String> {
    let Some(reference) = value.get("$ref").and_then(Value::as_str) else { return Ok(value.clone()) };
    let bytes = kept(dir, reference)?;
    serde_json::from_slice(&bytes).map_err(|error| format!("{reference}: {error}"))
}

/// The bytes of a file of the run directory.
pub(super) fn kept(dir: &RunDir, relative: &str) -> Result<Vec<u8>, String> {
    if relative.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(format!("\"{relative}\" is not a file of the run directory"));
    }
    std::fs::read(dir.path.join(relative)).map_err(|error| format!("{relative}: {error}"))
}
