//! The claims and tool answers in a run's journal, so that citations can be looked up.

use serde_json::Value;

use crate::domain::agent_program::AgentProgram;
use crate::domain::canonical::canonical_sha256;
use crate::domain::event::{Change, Event};
use crate::domain::evidence::{CommandSource, GitFile};
use crate::domain::facts::RunFacts;
use crate::domain::ledger_entry::AccountingKind;
use crate::domain::policy::EnvelopeStatus;
use crate::domain::report::{ProposedClaim, ReportOutcome};
use crate::domain::trace::{Item, ReportCaptured};

/// Built-in tools that change nothing. After any other tool the worktree may have changed.
const LOOKING: [&str; 8] = [
    "read_file",
    "list_files",
    "search",
    "git_status",
    "git_diff",
    "tool_output",
    "agent__task_status",
    "agent__final_report",
];

/// Every tool call of a run, in order.
#[derive(Debug, Default)]
pub struct CitedSources {
    calls: Vec<AnsweredCall>,
}

/// One call and its answer.
#[derive(Debug, Clone)]
pub struct AnsweredCall {
    /// 1-based visit.
    pub visit: u32,
    /// Id of the call, unique in a conversation.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// Its server, or `agentd`.
    pub server: String,
    /// Over the canonical arguments.
    pub args_sha256: String,
    /// Whether it ran at all.
    pub ran: bool,
    /// The answer, where it is inline.
    pub text: Option<String>,
    /// Where it is kept, where it is not.
    pub handle: Option<String>,
    /// Of a command that agentd ran: program and arguments.
    pub argv: Option<Vec<String>>,
    /// The rest of it; trees and handle are the gate's to fill in.
    pub command: Option<CommandSource>,
    /// Whether something that may write ran after it.
    pub maybe_stale: bool,
    /// Whether it is the word of an external agent (C-24).
    pub opaque: bool,
}

impl CitedSources {
    /// Reads the calls from the events.
    pub fn of(facts: &RunFacts) -> Self {
        let mut all = Self::default();
        for (_, event) in &facts.other {
            match event {
                Event::ItemRecorded { visit, item, .. } => all.item(*visit, item),
                Event::ToolFacts { call_id, facts, .. } => all.facts(call_id, facts),
                _ => {}
            }
        }
        for entry in &facts.ledger {
            let AccountingKind::Tool { mcp_server, call_id, handle, .. } = &entry.what else { continue };
            let call =
                all.calls.iter_mut().find(|call| call.visit == entry.step_visit && call.call_id == *call_id);
            if let Some(call) = call {
                call.server.clone_from(mcp_server);
                call.handle.clone_from(handle);
            }
        }
        let mut written = false;
        for call in all.calls.iter_mut().rev() {
            call.maybe_stale = written;
            written |= call.ran && !LOOKING.contains(&call.tool.as_str());
        }
        all
    }

    fn item(&mut self, visit: u32, item: &Item) {
        match item {
            Item::ToolCallItem { call_id, name, arguments, .. } => self.calls.push(AnsweredCall {
                visit,
                call_id: call_id.clone(),
                tool: name.clone(),
                server: "agentd".to_owned(),
                args_sha256: canonical_sha256(arguments).unwrap_or_default(),
                ran: false,
                text: None,
                handle: None,
                argv: None,
                command: None,
                maybe_stale: false,
                opaque: AgentProgram::is_tool(name),
            }),
            Item::ToolCallOutputItem { call_id, output, .. } => {
                let call =
                    self.calls.iter_mut().rev().find(|call| call.visit == visit && call.call_id == *call_id);
                if let Some(call) = call {
                    call.ran = output.status == EnvelopeStatus::Ok;
                    let result = output.data.as_ref().and_then(|data| data.get("result"));
                    call.text = result.and_then(Value::as_str).map(str::to_owned);
                }
            }
            Item::Message { .. } | Item::HandoffItem { .. } => {}
        }
    }

    /// Facts come between a call and its answer, so they belong to the last call with that id.
    fn facts(&mut self, call_id: &str, facts: &Value) {
        let Some(call) = self.calls.iter_mut().rev().find(|call| call.call_id == call_id) else { return };
        let text = |key: &str| facts.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let number = |key: &str| facts.get(key).and_then(Value::as_u64).unwrap_or_default();
        let texts = |key: &str| -> Option<Vec<String>> {
            facts.get(key)?.as_array()?.iter().map(|word| word.as_str().map(str::to_owned)).collect()
        };
        let Some(argv) = texts("argv") else { return };
        call.command = Some(CommandSource {
            argv: argv.clone(),
            cwd: text("cwd"),
            env_names: texts("env_names").unwrap_or_default(),
            exit_code: facts
                .get("exit_code")
                .and_then(Value::as_i64)
                .and_then(|code| i32::try_from(code).ok()),
            signal: facts.get("signal").and_then(Value::as_i64).map(|signal| format!("signal {signal}")),
            started_at: text("started_at"),
            duration_ms: number("duration_ms"),
            stdout_sha256: text("stdout_sha256"),
            stderr_sha256: text("stderr_sha256"),
            stdout_bytes: number("stdout_bytes"),
            output_handle: String::new(),
            tree_before: text("tree_before"),
            tree_after: text("tree_after"),
            sandbox: text("sandbox"),
            changed_by_run: Vec::new(),
        });
        call.argv = Some(argv);
    }

    /// The call of that id: of the visit that cites it, else the last one.
    pub fn by_call(&self, visit: u32, call_id: &str) -> Option<&AnsweredCall> {
        let of_id = || self.calls.iter().rev().filter(|call| call.call_id == call_id);
        of_id().find(|call| call.visit == visit).or_else(|| of_id().next())
    }

    /// The call whose answer is kept under that handle.
    pub fn by_handle(&self, handle: &str) -> Option<&AnsweredCall> {
        self.calls.iter().find(|call| call.handle.as_deref() == Some(handle))
    }
}

/// The claims of every report with their step and visit, in order, and the outcome that the last report names.
pub fn reports(facts: &RunFacts) -> (Vec<(ProposedClaim, String, u32)>, Option<ReportOutcome>) {
    let mut claims = Vec::new();
    let mut outcome = None;
    for (_, event) in &facts.other {
        let Event::ReportCaptured(report) = event else { continue };
        let step = step_of(facts, report);
        // A check's own session judges the work; it claims nothing for it.
        if step.contains('#') {
            continue;
        }
        claims.extend(report.claims.iter().map(|claim| (claim.clone(), step.clone(), report.visit)));
        outcome = report.outcome;
    }
    (claims, outcome)
}

fn step_of(facts: &RunFacts, report: &ReportCaptured) -> String {
    let opened = facts.other.iter().find_map(|(_, event)| match event {
        Event::SessionOpened(session) if session.session == report.session => Some(session.step_id.clone()),
        _ => None,
    });
    opened.unwrap_or_default()
}

/// The changed files as evidence keeps them.
pub fn changed_files(change: &Change) -> Vec<GitFile> {
    let file = |file: &crate::domain::event::FileChange| GitFile {
        path: file.path.clone(),
        added: file.added,
        removed: file.removed,
    };
    change.files.iter().map(file).collect()
}
