//! How a session records: redacted, limited in size, and in the journal before anyone sees the effect (P-030, P-031,
//!

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::abort::Abort;
use super::clock::RunClock;
use super::envelope::CallAnswer;
use super::journal::Journal;
use super::redaction_program::RedactionProgram;
use crate::domain::artifact::Artifact;
use crate::domain::call_text::one_line;
use crate::domain::canonical::sha256_hex;
use crate::domain::event::Event;
use crate::domain::ledger_entry::{AccountingEntry, AccountingKind, AccountingStatus};
use crate::domain::message::{Message, Messages, ToolCall};
use crate::domain::policy::ToolResultEnvelope;
use crate::domain::question::Question;
use crate::domain::redaction::Redactor;
use crate::domain::report::{FinalReport, ProposedClaim};
use crate::domain::run::{RunId, Warning};
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::trace::{Item, ItemRole, LONGEST_INLINE, Pointer, RecordText, pointer_with_short};

/// Replaces a text that could not be redacted. The text is dropped and not kept raw (P-032).
pub const WITHHELD: &str = "[withheld: it could not be redacted]";

/// Where a session stands in its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionIds {
    /// The run.
    pub run: RunId,
    /// The session (UUIDv7).
    pub session: Uuid,
    /// The step; a word of the host's outside of a flow.
    pub step_id: String,
    /// 1-based visit, 0 outside of a flow.
    pub visit: u32,
    /// Agent's name.
    pub agent: String,
    /// E.g. `issue-7:initial.issue`; tools append their name.
    pub call_path: String,
}

/// Writes for one session, or for a flow between sessions.
#[derive(Clone)]
pub struct SessionTrace {
    journal: Arc<dyn Journal>,
    redactor: Arc<Redactor>,
    clock: RunClock,
    ids: Arc<SessionIds>,
    longest_inline: usize,
    /// Asked for what a model wrote, after the built-in redaction.
    program: Option<Arc<RedactionProgram>>,
    /// Its text. The same text is in an item, in the conversation and in the report.
    answers: Arc<tokio::sync::Mutex<HashMap<String, String>>>,
}

/// A ledger line's changing part.
#[derive(Debug)]
pub struct LedgerLine {
    /// Llm or tool part.
    pub what: AccountingKind,
    /// 1-based turn.
    pub turn: u32,
    /// 1-based attempt; absent for tools.
    pub attempt: Option<u32>,
    /// Start, milliseconds since 1970.
    pub timestamp: i64,
    /// Milliseconds.
    pub latency: u64,
    /// Why it failed; `None` = it did not.
    pub error: Option<String>,
}

/// A value in the form of a record.
enum Recorded {
    Inline(Value),
    Kept(Pointer),
}

impl SessionTrace {
    /// A writer.
    pub fn new(journal: Arc<dyn Journal>, redactor: Arc<Redactor>, clock: RunClock, ids: SessionIds) -> Self {
        Self {
            journal,
            redactor,
            clock,
            ids: Arc::new(ids),
            longest_inline: LONGEST_INLINE,
            program: None,
            answers: Arc::default(),
        }
    }

    /// The same with a program that is asked for what a model wrote.
    #[must_use]
    pub fn asking(self, program: Option<Arc<RedactionProgram>>) -> Self {
        Self { program, ..self }
    }

    /// The same with another limit for what stands inline, in bytes.
    #[must_use]
    pub fn inline_up_to(self, longest_inline: usize) -> Self {
        Self { longest_inline, ..self }
    }

    /// Where the session stands.
    pub fn ids(&self) -> &SessionIds {
        &self.ids
    }

    /// The run's clock.
    pub fn clock(&self) -> &RunClock {
        &self.clock
    }

    /// Appends an event whose texts are redacted already.
    pub fn note(&self, event: Event) -> Result<(), Abort> {
        Ok(self.journal.append(event)?)
    }

    /// [`SessionTrace::note`] for what another event follows before anything is done outside: written with that one.
    pub fn note_with_next(&self, event: Event) -> Result<(), Abort> {
        Ok(self.journal.append_with_next(event)?)
    }

    /// Waits for the disk.
    pub async fn flush(&self) -> Result<(), Abort> {
        Ok(self.journal.flush().await?)
    }

    /// Records what people are asked, and gives the end that comes of it.
    pub fn ask_people(&self, asked: Question) -> Result<Abort, Abort> {
        let question = Question {
            question: self.redact(&asked.question),
            options: asked.options.iter().map(|option| self.redact(option)).collect(),
            default: asked.default.as_deref().map(|default| self.redact(default)),
            ..asked
        };
        let message = format!("The agent asks: {}", one_line(&question.question, 300));
        self.note(Event::QuestionAsked(question))?;
        Ok(Stop::new(StopDetail::QuestionPending, message).into())
    }

    /// A note for people.
    pub fn warn(&self, code: &str, text: &str) -> Result<(), Abort> {
        let text = self.redact(text);
        self.note(Event::Warned(Warning { code: code.to_owned(), at: self.clock.now_ms(), text }))
    }

    /// A text without its secrets. A text that cannot be redacted is dropped.
    pub fn redact(&self, text: &str) -> String {
        self.redactor.redact(text).map_or_else(|_| WITHHELD.to_owned(), Cow::into_owned)
    }

    /// [`SessionTrace::redact`] for a text that may be long: one without secrets is not copied.
    pub fn redacted(&self, text: String) -> String {
        match self.redactor.redact(&text) {
            Ok(Cow::Borrowed(_)) => text,
            Ok(Cow::Owned(clean)) => clean,
            Err(_) => WITHHELD.to_owned(),
        }
    }

    /// A value without its secrets. A value that cannot be redacted is dropped.
    pub fn redact_json(&self, value: &Value) -> Value {
        self.redactor.redact_json(value).unwrap_or_else(|_| Value::String(WITHHELD.to_owned()))
    }

    /// Whether a value has nothing to redact. It may say `false` about a clean one.
    pub fn is_clean(&self, value: &impl Serialize) -> bool {
        self.redactor.is_clean(value)
    }

    /// An object without its secrets.
    pub fn redact_object(&self, object: &Map<String, Value>) -> Map<String, Value> {
        match self.redact_json(&Value::Object(object.clone())) {
            Value::Object(object) => object,
            other => Map::from_iter([("redacted".to_owned(), other)]),
        }
    }

    /// A redacted text of a model as the program gives it back, if there is a program. What it cannot redact is
    /// dropped.
    pub async fn by_program(&self, text: String) -> String {
        let Some(program) = self.program.as_ref().filter(|_| !text.trim().is_empty()) else { return text };
        let key = sha256_hex(text.as_bytes());
        let mut answers = self.answers.lock().await;
        if let Some(known) = answers.get(&key) {
            return known.clone();
        }
        let mut said = self.asked_of(program, &text).await;
        // Many programs end what they print with a line break.
        if said.ends_with('\n') && !text.ends_with('\n') {
            said.truncate(said.trim_end_matches(['\n', '\r']).len());
        }
        answers.insert(key, said.clone());
        said
    }

    /// What the program makes of a text. A text on which it fails is dropped, and people are told of the first one (P-032).
    pub async fn asked_of(&self, program: &RedactionProgram, text: &str) -> String {
        if let Some(said) = program.redact(text).await {
            return said;
        }
        if let Some(failure) = program.untold_failure() {
            // A journal that cannot be written ends the run at the next event that counts.
            let _ = self.warn("redaction_failed", &format!("{failure}; the text is withheld."));
        }
        WITHHELD.to_owned()
    }

    /// [`SessionTrace::by_program`] for each text of a value.
    pub async fn value_by_program(&self, mut value: Value) -> Value {
        if self.program.is_none() {
            return value;
        }
        let mut open = vec![&mut value];
        while let Some(value) = open.pop() {
            match value {
                Value::String(text) => *text = self.by_program(std::mem::take(text)).await,
                Value::Array(items) => open.extend(items.iter_mut()),
                Value::Object(members) => open.extend(members.values_mut()),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
        value
    }

    /// [`SessionTrace::by_program`] for a report.
    pub async fn report_by_program(&self, report: FinalReport) -> FinalReport {
        let content = match report.content {
            Some(text) => Some(self.by_program(text).await),
            None => None,
        };
        let content_json = match report.content_json {
            Some(object) => self.value_by_program(Value::Object(object)).await.as_object().cloned(),
            None => None,
        };
        FinalReport { content, content_json, ..report }
    }

    /// A redacted text in the form of a record: inline, or in a file that the record points to.
    pub async fn text(&self, redacted: String) -> Result<RecordText, Abort> {
        if redacted.len() <= self.longest_inline {
            return Ok(RecordText::Inline(redacted));
        }
        Ok(RecordText::Kept(self.keep(redacted.into_bytes(), "text/plain").await?))
    }

    /// A value in the form of a record: redacted, and inline or in a file that the record points to.
    pub async fn value(&self, value: &Value) -> Result<Value, Abort> {
        Ok(match self.recorded(value).await? {
            Recorded::Inline(value) => value,
            Recorded::Kept(pointer) => json!(pointer),
        })
    }

    async fn recorded(&self, value: &Value) -> Result<Recorded, Abort> {
        let mut text = value.to_string();
        let mut shown = None;
        if !self.redactor.is_clean_json(text.as_bytes()) {
            text = shown.insert(self.redact_json(value)).to_string();
        }
        if text.len() <= self.longest_inline {
            return Ok(Recorded::Inline(shown.unwrap_or_else(|| value.clone())));
        }
        Ok(Recorded::Kept(self.keep(text.into_bytes(), "application/json").await?))
    }

    /// A redacted report in the form of a record: inline, or in a file that the record points to.
    pub async fn report(
        &self,
        report: &FinalReport,
    ) -> Result<(Option<FinalReport>, Option<Pointer>), Abort> {
        let text = serde_json::to_string(report).map_err(|error| Abort::internal(error.to_string()))?;
        if text.len() <= self.longest_inline {
            return Ok((Some(report.clone()), None));
        }
        Ok((None, Some(self.keep(text.into_bytes(), "application/json").await?)))
    }

    /// Keeps bytes beside the record.
    pub async fn keep(&self, bytes: Vec<u8>, mime: &str) -> Result<Pointer, Abort> {
        let path = format!("artifacts/session-{}/{}", self.ids.session, Uuid::new_v4());
        Ok(Pointer::new(self.journal.keep(&path, bytes).await?, mime))
    }

    /// An item of the run record.
    pub fn item(&self, turn: u32, item: Item) -> Result<(), Abort> {
        self.note_with_next(Event::ItemRecorded { visit: self.ids.visit, turn, item: Box::new(item) })
    }

    /// What someone said.
    pub async fn message_item(&self, turn: u32, role: ItemRole, text: &str) -> Result<(), Abort> {
        let text = self.redact(text);
        let text = if role == ItemRole::Assistant { self.by_program(text).await } else { text };
        let content = self.text(text).await?;
        self.item(turn, Item::Message { role, content })
    }

    /// What the model wanted to call. Arguments that do not parse are kept as text (C-15).
    pub async fn call_item(&self, turn: u32, call: &ToolCall, parsed: Option<&Value>) -> Result<(), Abort> {
        let written = match parsed {
            Some(arguments) => Cow::Borrowed(arguments),
            None => Cow::Owned(Value::String(call.arguments.clone())),
        };
        let written = match &self.program {
            Some(_) => Cow::Owned(self.value_by_program(self.redact_json(&written)).await),
            None => written,
        };
        let arguments = match self.recorded(&written).await? {
            Recorded::Inline(value) => value,
            Recorded::Kept(pointer) => pointer_with_short(&pointer, &self.redact_json(&written)),
        };
        let item = Item::ToolCallItem {
            call_id: call.id.clone(),
            name: self.redact(&call.name),
            arguments,
            raw_sha256: sha256_hex(call.arguments.as_bytes()),
        };
        self.item(turn, item)
    }

    /// What came of a call.
    pub async fn answer_item(&self, turn: u32, call_id: &str, answer: &CallAnswer) -> Result<(), Abort> {
        let output = self.envelope(answer).await?;
        let item =
            Item::ToolCallOutputItem { call_id: call_id.to_owned(), output, rendered: answer.rendered() };
        self.item(turn, item)
    }

    /// An answer's envelope as a record holds it.
    pub async fn envelope(&self, answer: &CallAnswer) -> Result<ToolResultEnvelope, Abort> {
        let Some(data) = &answer.envelope().data else {
            return Ok(answer.envelope().clone());
        };
        Ok(answer.with_data(self.value(data).await?))
    }

    /// A ledger line of this session.
    pub fn ledger_entry(&self, line: LedgerLine) -> Box<AccountingEntry> {
        let ids = &self.ids;
        let call_path = match &line.what {
            AccountingKind::Tool { command, .. } => format!("{}:{command}", ids.call_path),
            AccountingKind::Llm { .. } => ids.call_path.clone(),
        };
        Box::new(AccountingEntry {
            what: line.what,
            timestamp: line.timestamp,
            status: if line.error.is_some() { AccountingStatus::Failed } else { AccountingStatus::Ok },
            latency: line.latency,
            error: line.error.map(|error| self.redact(&error)),
            agent_id: ids.agent.clone(),
            call_path,
            txn_id: ids.session.to_string(),
            parent_txn_id: Some(ids.run.to_string()),
            origin_txn_id: ids.run.to_string(),
            run_id: ids.run.to_string(),
            step_id: ids.step_id.clone(),
            step_visit: ids.visit,
            turn: line.turn,
            attempt: line.attempt,
        })
    }

    /// Keeps the conversation (D42). `marks` replace the texts of its first messages that were made from prompt
    /// templates, if these are not kept (P-027).
    pub async fn conversation(&self, messages: &Messages, marks: &[String]) -> Result<Artifact, Abort> {
        let shown: Vec<Cow<'_, Message>> = messages
            .iter()
            .enumerate()
            .map(|(index, message)| match (message, marks.get(index)) {
                (Message::System { .. }, Some(mark)) => Cow::Owned(Message::System { content: mark.clone() }),
                (Message::User { .. }, Some(mark)) => Cow::Owned(Message::User { content: mark.clone() }),
                (other, _) => Cow::Borrowed(other),
            })
            .collect();
        let unwritable = |error: serde_json::Error| Abort::internal(error.to_string());
        let mut bytes = serde_json::to_vec(&Conversation { messages: &shown }).map_err(unwritable)?;
        if self.program.is_some() {
            let mut kept = Vec::with_capacity(shown.len());
            for message in &shown {
                let clean = self.redact_json(&json!(message));
                let by_model = matches!(message.as_ref(), Message::Assistant { .. });
                kept.push(if by_model { self.assistant_by_program(clean).await } else { clean });
            }
            bytes = json!({ "messages": kept }).to_string().into_bytes();
        } else if !self.redactor.is_clean_json(&bytes) {
            bytes = self.redact_json(&json!({ "messages": shown })).to_string().into_bytes();
        }
        let path = format!("conversation/{}-{}.json", self.ids.visit, file_name(&self.ids.step_id));
        bytes.push(b'\n');
        Ok(self.journal.keep(&path, bytes).await?)
    }

    async fn assistant_by_program(&self, mut message: Value) -> Value {
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut).map(std::mem::take);
        let mut calls = calls.unwrap_or_default();
        for part in std::iter::once(&mut message).chain(&mut calls) {
            for name in WRITTEN {
                let Some(written) = part.get_mut(name) else { continue };
                *written = match written.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok()) {
                    // The arguments of a call are checked text by text, as in the item of the call.
                    Some(inner @ Value::Object(_)) => {
                        Value::String(self.value_by_program(inner).await.to_string())
                    }
                    _ => self.value_by_program(written.take()).await,
                };
            }
        }
        if !calls.is_empty() {
            message["tool_calls"] = Value::Array(calls);
        }
        message
    }
}

/// The members of an assistant's message that a model wrote.
const WRITTEN: [&str; 3] = ["content", "reasoning", "arguments"];

/// A conversation's file (D42).
#[derive(Serialize)]
struct Conversation<'a> {
    messages: &'a [Cow<'a, Message>],
}

/// Replaces the text of a prompt that is not kept. `sha256` is the hash of the text.
pub fn prompt_mark(sha256: &str) -> String {
    format!("[prompt text not recorded: sha256 {sha256}]")
}

/// A step's id as part of a file name.
fn file_name(step_id: &str) -> String {
    step_id
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' })
        .collect()
}
/// The report without known secrets, and whether it held one (P-043).
pub(super) fn cleaned(record: &SessionTrace, report: FinalReport) -> (FinalReport, bool) {
    if record.is_clean(&report) {
        return (report, false);
    }
    let clean = FinalReport {
        content: report.content.as_deref().map(|text| record.redact(text)),
        content_json: report.content_json.as_ref().map(|object| record.redact_object(object)),
        metadata: report.metadata.as_ref().map(|object| record.redact_object(object)),
        ..report
    };
    let leaked = clean != report;
    (clean, leaked)
}

/// Claims without known secrets.
pub(super) async fn clean_claims(record: &SessionTrace, claims: &[ProposedClaim]) -> Vec<ProposedClaim> {
    let mut cleaned = Vec::with_capacity(claims.len());
    for claim in claims {
        let clean = record.redact_json(&serde_json::to_value(claim).unwrap_or(Value::Null));
        let mut clean: ProposedClaim = serde_json::from_value(clean).unwrap_or_else(|_| ProposedClaim {
            statement: record.redact(&claim.statement),
            cites: Vec::new(),
            ..claim.clone()
        });
        clean.statement = record.by_program(clean.statement).await;
        cleaned.push(clean);
    }
    cleaned
}
