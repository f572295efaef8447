//! Stores outputs that are too large for the conversation, names them by a handle, and reads them back in pages
//! (A-026…A-031, D26, D77).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use regex::Regex;
use serde_json::{Value, json};
use uuid::Uuid;

use super::abort::Abort;
use super::journal::Journal;
use super::tool::{CallLimits, Permit, Tool, ToolCalled, ToolError, ToolOutput};
use crate::domain::artifact::{self, Artifact};
use crate::domain::message::ToolSpec;
use crate::domain::policy::Risk;
use crate::domain::words::words;

/// Name of the protocol tool.
pub const TOOL_OUTPUT: &str = "tool_output";
/// Room kept for the line that says what a page left out.
const NOTICE_BYTES: usize = 160;

/// The stored outputs of one session. Handles of other sessions do not exist here (C-03).
pub struct StoredOutputs {
    session: Uuid,
    journal: Arc<dyn Journal>,
    handles: Mutex<BTreeMap<String, Artifact>>,
}

words! {
    /// Why an output was stored.
    pub enum StoreReason {
        /// Longer than the cap of a tool response.
        SizeCap = "size_cap",
        /// It would not fit into the context.
        TokenBudget = "token_budget",
    }
}

/// A stored output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredOutput {
    /// `session-<uuid>/<file-uuid>`, relative to `tool-output/`.
    pub handle: String,
    /// What the model gets instead of the output.
    pub object: Value,
}

impl StoredOutput {
    /// The line below the handle object.
    pub fn hint(&self) -> String {
        format!(
            "The output is stored. Read it with {TOOL_OUTPUT}: {{\"handle\": \"{}\", \"mode\": \"grep\", \"pattern\": \"…\"}}, \
             or mode slice, head or tail.",
            self.handle
        )
    }
}

impl StoredOutputs {
    /// None yet.
    pub fn new(session: Uuid, journal: Arc<dyn Journal>) -> Self {
        Self { session, journal, handles: Mutex::default() }
    }

    /// The same with texts that were stored before the session.
    pub fn with(self, stored: &[(String, Artifact)]) -> Self {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).extend(stored.iter().cloned());
        self
    }

    /// Keeps a redacted text; `tokens` is its estimate.
    pub async fn store(&self, text: String, tokens: u64, reason: StoreReason) -> Result<StoredOutput, Abort> {
        let handle = format!("session-{}/{}", self.session, Uuid::new_v4());
        let lines = text.lines().count();
        let artifact = self.journal.keep(&artifact::stored_output(&handle), text.into_bytes()).await?;
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).insert(handle.clone(), artifact.clone());
        let object = json!({
            "handle": handle,
            "reason": reason.as_str(),
            "bytes": artifact.bytes,
            "lines": lines,
            "tokens": tokens,
            "sha256": artifact.sha256,
        });
        Ok(StoredOutput { handle, object })
    }

    fn artifact(&self, handle: &str) -> Option<Artifact> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).get(handle).cloned()
    }
}

/// How the protocol tool is offered.
pub fn spec(page_lines: u32) -> ToolSpec {
    ToolSpec {
        name: TOOL_OUTPUT.to_owned(),
        description: format!(
            "Reads a stored tool output by its handle, in pages of at most {page_lines} lines with line numbers. \
             grep: lines that match a regular expression; slice: from from_line; head, tail: the ends."
        ),
        parameters: json!({
            "type": "object",
            "properties": {
                "handle": { "type": "string" },
                "mode": { "type": "string", "enum": ["slice", "grep", "head", "tail"] },
                "pattern": { "type": "string", "description": "For grep." },
                "from_line": { "type": "integer", "minimum": 1, "description": "For slice and grep; default 1." },
                "max_lines": { "type": "integer", "minimum": 1, "maximum": page_lines },
            },
            "required": ["handle", "mode"],
            "additionalProperties": false,
        }),
    }
}

/// The protocol tool that reads stored outputs: deterministic, no model asked.
pub struct ToolOutputReader {
    spec: Arc<ToolSpec>,
    outputs: Arc<StoredOutputs>,
    page_lines: u32,
}

impl ToolOutputReader {
    /// A reader of one session's outputs, in pages of at most `page_lines` lines (D77).
    pub fn new(outputs: Arc<StoredOutputs>, page_lines: u32) -> Self {
        Self::offered(Arc::new(spec(page_lines)), outputs, page_lines)
    }

    /// The same, where its [`spec`] is made already.
    pub fn offered(spec: Arc<ToolSpec>, outputs: Arc<StoredOutputs>, page_lines: u32) -> Self {
        Self { spec, outputs, page_lines }
    }

    async fn read(&self, arguments: &Value, limits: CallLimits) -> Result<ToolOutput, ToolError> {
        let handle = arguments["handle"].as_str().unwrap_or_default();
        let artifact = self.outputs.artifact(handle).ok_or_else(|| ToolError::Refused {
            code: "invalid_arguments".to_owned(),
            message: "unknown handle; use a handle that a tool of this session gave".to_owned(),
        })?;
        let query = Query::of(arguments, self.page_lines as usize)?;
        let bytes = self.outputs.journal.kept(&artifact).await.map_err(|error| {
            ToolError::for_model(format!("the stored output cannot be read: {}", error.message))
        })?;
        let cap = usize::try_from(limits.max_inline_bytes).unwrap_or(usize::MAX);
        let page = tokio::task::spawn_blocking(move || query.page(&String::from_utf8_lossy(&bytes), cap))
            .await
            .map_err(|_| ToolError::for_model("the stored output cannot be read"))?;
        Ok(ToolOutput::text(page))
    }
}

impl Tool for ToolOutputReader {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self) -> Risk {
        Risk::Read
    }

    fn call<'a>(&'a self, _permit: Permit, arguments: &'a Value, limits: CallLimits) -> ToolCalled<'a> {
        Box::pin(self.read(arguments, limits))
    }
}

/// Which lines are wanted.
struct Query {
    mode: Mode,
    max_lines: usize,
}

enum Mode {
    From(usize),
    Matching(Regex, usize),
    Last,
}

impl Query {
    fn of(arguments: &Value, page_lines: usize) -> Result<Self, ToolError> {
        let number = |key: &str| arguments[key].as_u64().and_then(|number| usize::try_from(number).ok());
        let from = number("from_line").unwrap_or(1).max(1);
        let mode = match arguments["mode"].as_str() {
            Some("grep") => {
                let validation =
                    |message: String| ToolError::ForModel { error_type: "Validation".to_owned(), message };
                let pattern = arguments["pattern"]
                    .as_str()
                    .ok_or_else(|| validation("mode grep needs a pattern".to_owned()))?;
                let regex = Regex::new(pattern)
                    .map_err(|error| validation(format!("the pattern cannot be read: {error}")))?;
                Mode::Matching(regex, from)
            }
            Some("tail") => Mode::Last,
            Some("head") => Mode::From(1),
            _ => Mode::From(from),
        };
        Ok(Self { mode, max_lines: number("max_lines").unwrap_or(page_lines).clamp(1, page_lines) })
    }

    /// The page as text: `number: line`, and a notice of what was left out.
    fn page(&self, text: &str, cap: usize) -> String {
        let total = text.lines().count();
        let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        match &self.mode {
            Mode::From(from) => {
                let mut page = Page::new(cap);
                page.fill(numbered.skip(from - 1), self.max_lines);
                let last = from - 1 + page.lines;
                let rest = total.saturating_sub(last);
                let next = if rest > 0 { format!("; next from_line {}", last + 1) } else { String::new() };
                page.close(&format!("{} of {total} lines shown, {rest} remain{next}", page.lines))
            }
            Mode::Matching(regex, from) => {
                let mut found: Vec<(usize, &str)> =
                    numbered.skip(from - 1).filter(|(_, line)| regex.is_match(line)).collect();
                let matches = found.len();
                if matches == 0 {
                    return "No line matches. Try another spelling, a broader pattern, or mode head to see what is there."
                        .to_owned();
                }
                found.truncate(self.max_lines);
                let mut page = Page::new(cap);
                page.fill(found.iter().copied(), self.max_lines);
                let rest = matches - page.lines;
                let next = match found.get(page.lines.saturating_sub(1)) {
                    Some((number, _)) if rest > 0 => format!("; next from_line {}", number + 1),
                    _ => String::new(),
                };
                page.close(&format!("{} of {matches} matching lines shown, {rest} remain{next}", page.lines))
            }
            Mode::Last => {
                let wanted: Vec<(usize, &str)> =
                    numbered.skip(total.saturating_sub(self.max_lines)).collect();
                let mut page = Page::new(cap);
                // Filled from the end backwards, so that the last lines are the ones that fit.
                page.fill(wanted.iter().rev().copied(), self.max_lines);
                page.text = page.text.lines().rev().map(|line| format!("{line}\n")).collect();
                page.close(&format!("last {} of {total} lines shown", page.lines))
            }
        }
    }
}

struct Page {
    text: String,
    lines: usize,
    cap: usize,
}

impl Page {
    fn new(cap: usize) -> Self {
        Self { text: String::new(), lines: 0, cap: cap.saturating_sub(NOTICE_BYTES) }
    }

    fn fill<'t>(&mut self, lines: impl Iterator<Item = (usize, &'t str)>, most: usize) {
        for (number, line) in lines.take(most) {
            let whole = format!("{number}: {line}\n");
            if self.text.len() + whole.len() <= self.cap {
                self.text.push_str(&whole);
            } else if self.lines == 0 {
                // A line longer than a page: its beginning.
                let mut end = self.cap.saturating_sub(40).min(whole.len());
                while !whole.is_char_boundary(end) {
                    end -= 1;
                }
                self.text = format!("{} … [the line goes on]\n", &whole[..end]);
            } else {
                return;
            }
            self.lines += 1;
            if self.text.len() >= self.cap {
                return;
            }
        }
    }

    fn close(&self, notice: &str) -> String {
        format!("{}[{notice}]", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(arguments: Value, text: &str, cap: usize) -> String {
        Query::of(&arguments, 500).unwrap().page(text, cap)
    }

    fn numbers(count: usize) -> String {
        (1..=count).map(|number| format!("line {number}\n")).collect()
    }

    #[test]
    fn d77_a_page_ends_at_500_lines_and_says_where_to_go_on() {
        let first = page(json!({ "mode": "slice" }), &numbers(1200), usize::MAX);
        assert_eq!(first.lines().count(), 501);
        assert!(first.ends_with("[500 of 1200 lines shown, 700 remain; next from_line 501]"), "{first}");
        let third = page(json!({ "mode": "slice", "from_line": 1001 }), &numbers(1200), usize::MAX);
        assert!(third.ends_with("[200 of 1200 lines shown, 0 remain]"));
    }

    #[test]
    fn a_031_grep_gives_the_matching_lines_with_their_numbers() {
        let found = page(json!({ "mode": "grep", "pattern": "line .*7$" }), &numbers(30), 1000);
        assert_eq!(found, "7: line 7\n17: line 17\n27: line 27\n[3 of 3 matching lines shown, 0 remain]");
        assert!(
            page(json!({ "mode": "grep", "pattern": "x" }), &numbers(3), 1000)
                .starts_with("No line matches.")
        );
    }

    #[test]
    fn a_031_tail_gives_the_end_in_order() {
        let end = page(json!({ "mode": "tail", "max_lines": 2 }), &numbers(30), 1000);
        assert_eq!(end, "29: line 29\n30: line 30\n[last 2 of 30 lines shown]");
    }

    #[test]
    fn d77_a_page_stays_below_the_byte_cap_even_for_one_endless_line() {
        for text in [numbers(2000), "é".repeat(10_000)] {
            for mode in ["slice", "tail"] {
                let shown = page(json!({ "mode": mode }), &text, 1000);
                assert!(shown.len() <= 1000, "{mode}: {}", shown.len());
                assert!(shown.len() > 500, "{mode}: {}", shown.len());
            }
        }
    }
}
