//! A model that reads from a script, holds every request to the protocol, and keeps it.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentd::domain::message::{Message, TokenUsage, ToolCall};
use agentd::engine::model::{Model, ModelError, ModelErrorClass, ModelReply, ModelRequest, ReplyStop, Spent};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::world::SECRET;

/// One scripted answer of the model.
#[derive(Debug, Clone)]
pub enum Line {
    Reply(ModelReply),
    Fail(ModelErrorClass, Option<u16>),
    /// A reply that breaks off, after the provider had said this of it.
    BreaksOff(Option<TokenUsage>, u64),
    /// Never answers.
    Hang,
    /// Answers after a while.
    Slow(Duration, ModelReply),
    Panic,
    /// Answers what it is asked.
    Answer(fn(&ModelRequest) -> ModelReply),
}

pub fn reply(text: &str, calls: &[(&str, Value)]) -> ModelReply {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let tool_calls = calls
        .iter()
        .map(|(name, arguments)| ToolCall {
            id: format!("call-{}", NUMBER.fetch_add(1, Ordering::Relaxed)),
            name: (*name).to_owned(),
            arguments: match arguments {
                Value::String(raw) => raw.clone(),
                other => other.to_string(),
            },
        })
        .collect();
    ModelReply {
        text: text.to_owned(),
        reasoning: None,
        tool_calls,
        stop: ReplyStop::End,
        stop_raw: Some("stop".to_owned()),
        usage: Some(TokenUsage::new(10, 5, 0, 0)),
        cost: None,
        actual_provider: None,
        actual_model: None,
    }
}

pub fn calls(calls: &[(&str, Value)]) -> Line {
    Line::Reply(reply("", calls))
}

pub fn call(name: &str, arguments: Value) -> Line {
    calls(&[(name, arguments)])
}

pub fn text(text: &str) -> Line {
    Line::Reply(reply(text, &[]))
}

pub fn report(content: &str) -> Line {
    call("agent__final_report", json!({ "report_format": "markdown", "content": content }))
}

pub fn report_json(content: Value) -> Line {
    call("agent__final_report", json!({ "report_format": "json", "content_json": content }))
}

pub fn empty() -> Line {
    text("")
}

pub fn think(thought: &str) -> Line {
    Line::Reply(ModelReply { reasoning: Some(json!({ "thought": thought })), ..reply("", &[]) })
}

pub fn limited(retry_after: Option<u64>) -> Line {
    Line::Fail(ModelErrorClass::RateLimited { retry_after: retry_after.map(Duration::from_secs) }, Some(429))
}

pub fn server_error() -> Line {
    Line::Fail(ModelErrorClass::Server { retry_after: None }, Some(500))
}

pub fn dropped() -> Line {
    Line::Fail(ModelErrorClass::Network, None)
}

/// Reads from its script, the last line again and again; keeps every request with its time.
#[derive(Default)]
pub struct ScriptedModel {
    script: Mutex<VecDeque<Line>>,
    pub seen: Mutex<Vec<(Instant, ModelRequest)>>,
}

impl ScriptedModel {
    pub fn new(script: Vec<Line>) -> Self {
        Self { script: Mutex::new(script.into()), seen: Mutex::default() }
    }
}

impl Model for ScriptedModel {
    fn complete<'a>(&'a self, request: &'a ModelRequest) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        self.seen.lock().unwrap().push((Instant::now(), request.clone()));
        check_protocol(request);
        let line = {
            let mut script = self.script.lock().unwrap();
            if script.len() > 1 { script.pop_front() } else { script.front().cloned() }
        };
        Box::pin(async move {
            match line.expect("the script has a line") {
                Line::Reply(reply) => Ok(reply),
                Line::Fail(class, status) => {
                    Err(ModelError { status, ..ModelError::new(class, format!("scripted, key {SECRET}")) })
                }
                Line::BreaksOff(usage, written) => {
                    let spent = Spent::BrokeOff { usage, written };
                    Err(ModelError {
                        spent,
                        ..ModelError::new(ModelErrorClass::Server { retry_after: None }, "overloaded")
                    })
                }
                Line::Hang => std::future::pending().await,
                Line::Slow(wait, reply) => {
                    tokio::time::sleep(wait).await;
                    Ok(reply)
                }
                Line::Panic => panic!("scripted panic"),
                Line::Answer(answer) => Ok(answer(request)),
            }
        })
    }
}

/// What every wire demands of a request: each result answers a call, each call is answered, ids are unique.
fn check_protocol(request: &ModelRequest) {
    let mut open: Vec<&str> = Vec::new();
    let mut ever: Vec<&str> = Vec::new();
    for message in &request.messages {
        match message {
            Message::Tool { tool_call_id, .. } => {
                let place = open.iter().position(|id| id == tool_call_id);
                open.remove(place.unwrap_or_else(|| panic!("a result without its call: {tool_call_id}")));
            }
            other => {
                assert!(open.is_empty(), "calls without a result: {open:?}");
                if let Message::Assistant { tool_calls, .. } = other {
                    for call in tool_calls {
                        assert!(!ever.contains(&call.id.as_str()), "the id {} twice", call.id);
                        ever.push(&call.id);
                        open.push(&call.id);
                    }
                }
            }
        }
    }
    assert!(open.is_empty(), "calls without a result: {open:?}");
}
