//! A session that ran, and what holds after every one of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agentd::domain::event::Event;
use agentd::domain::ledger_entry::{AccountingEntry, AccountingKind, AccountingStatus};
use agentd::domain::message::Message;
use agentd::domain::model_target::SessionSettings;
use agentd::engine::model::ModelRequest;
use agentd::engine::session_outcome::SessionOutcome;
use serde_json::Value;
use tokio::time::Instant;

use super::parts::{Does, TestTool};
use super::world::SECRET;

/// A session that ran.
pub struct Ran {
    pub outcome: SessionOutcome,
    pub events: Vec<Event>,
    pub requests: Vec<ModelRequest>,
    pub times: Vec<Instant>,
    pub files: BTreeMap<String, Vec<u8>>,
    pub tools: BTreeMap<String, Arc<TestTool>>,
    pub took: Duration,
}

impl Ran {
    /// What holds after every session, whatever happened.
    pub fn check_invariants(&self, settings: &SessionSettings, scripted: bool) {
        let record = serde_json::to_string(&self.events).unwrap();
        assert!(!record.contains(SECRET), "the secret is in the journal");
        for (path, bytes) in &self.files {
            assert!(!String::from_utf8_lossy(bytes).contains(SECRET), "the secret is in {path}");
        }
        let lost =
            self.outcome.failure.as_ref().is_some_and(|failure| failure.error_name == "OutputWriteFailed");
        if lost {
            return;
        }
        if scripted {
            assert_eq!(self.llm_lines().len(), self.requests.len(), "A-072: one line per request");
        }
        let runs: usize = self.tools.values().map(|tool| tool.runs()).sum();
        let refusals = self
            .tools
            .values()
            .filter(|tool| matches!(tool.does, Does::Refuses))
            .map(|tool| tool.runs())
            .sum::<usize>();
        let lines = self.tool_lines().iter().filter(|entry| tool_of(entry).0 == "test").count();
        assert_eq!(lines, runs - refusals, "A-077: one line per execution");
        assert!(self.outcome.turns <= settings.max_turns, "A-001");
        let report = &self.outcome.report;
        assert!(report.content.is_some() != report.content_json.is_some(), "A-061: one payload");
        for event in &self.events {
            if let Event::LlmRequestPrepared(p) = event {
                assert_eq!(p.expected_tokens, p.ctx_tokens + p.new_tokens + p.schema_ctx_tokens, "A-014");
            }
            if let Event::ContextGuard(g) = event {
                assert_eq!(g.projected, g.current + g.pending + g.new + g.schema, "A-017");
            }
        }
    }

    pub fn llm_lines(&self) -> Vec<&AccountingEntry> {
        self.lines().into_iter().filter(|entry| matches!(entry.what, AccountingKind::Llm { .. })).collect()
    }

    pub fn tool_lines(&self) -> Vec<&AccountingEntry> {
        self.lines().into_iter().filter(|entry| matches!(entry.what, AccountingKind::Tool { .. })).collect()
    }

    fn lines(&self) -> Vec<&AccountingEntry> {
        self.events
            .iter()
            .filter_map(|event| match event {
                Event::LlmAttempted { entry } | Event::ToolFinished { entry } => Some(&**entry),
                _ => None,
            })
            .collect()
    }

    /// Models asked, in order.
    pub fn models(&self) -> Vec<&str> {
        self.requests.iter().map(|request| request.target.model.as_str()).collect()
    }

    /// Names of the tools offered in a request, 1-based.
    pub fn offered(&self, request: usize) -> Vec<&str> {
        self.requests[request - 1].tools.iter().map(|tool| tool.name.as_str()).collect()
    }

    /// Contents of the tool messages in a request, 1-based.
    pub fn results(&self, request: usize) -> Vec<&str> {
        self.requests[request - 1]
            .messages
            .iter()
            .filter_map(|message| match message {
                Message::Tool { content, .. } => Some(content.as_str()),
                _ => None,
            })
            .collect()
    }

    /// Words for the messages' roles in a request, 1-based: S, U, A, T.
    pub fn roles(&self, request: usize) -> String {
        roles(&self.requests[request - 1].messages)
    }

    pub fn gap(&self, request: usize) -> Duration {
        self.times[request] - self.times[request - 1]
    }

    pub fn detail(&self) -> &'static str {
        self.outcome.stop().detail.as_str()
    }

    pub fn content(&self) -> &str {
        self.outcome.report.content.as_deref().unwrap_or_default()
    }

    pub fn runs(&self, tool: &str) -> usize {
        self.tools[tool].runs()
    }

    pub fn conversation(&self) -> Value {
        let path = &self.outcome.conversation.as_ref().unwrap().path;
        serde_json::from_slice(&self.files[path]).unwrap()
    }

    pub fn metadata(&self) -> Value {
        Value::Object(self.outcome.report.metadata.clone().unwrap())
    }
}

/// Source and command of a tool line.
pub fn tool_of(entry: &AccountingEntry) -> (&str, &str) {
    match &entry.what {
        AccountingKind::Tool { mcp_server, command, .. } => (mcp_server, command),
        AccountingKind::Llm { .. } => panic!("not a tool line"),
    }
}

pub fn failed(entry: &AccountingEntry) -> bool {
    entry.status == AccountingStatus::Failed
}

pub fn roles<'a>(messages: impl IntoIterator<Item = &'a Message>) -> String {
    messages
        .into_iter()
        .map(|message| match message {
            Message::System { .. } => 'S',
            Message::User { .. } => 'U',
            Message::Assistant { .. } => 'A',
            Message::Tool { .. } => 'T',
        })
        .collect()
}
