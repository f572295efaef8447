//! What happens in a run as lines for people, event by event: its progress while it works, its log at any time.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::output::Tone;
use crate::domain::call_text::{one_line, short_call_text};
use crate::domain::event::{Event, WorktreeState};
use crate::domain::ledger_entry::{AccountingEntry, AccountingKind, AccountingStatus};
use crate::domain::money::Money;
use crate::domain::policy::{EnvelopeStatus, PROTOCOL_TOOLS, PolicyDecision, ToolResultEnvelope};
use crate::domain::run::VisitRecord;
use crate::domain::trace::{Item, ItemRole, RecordText, ReportCaptured};
use crate::record::rendering;
use crate::record::summary_text::{self, short_hash};

/// Lines of a tool's output that are shown of each call.
const OUTPUT_LINES: usize = 6;
/// Characters of such a line.
const LONGEST_LINE: usize = 240;
/// Lines of what a model says that progress shows.
const WORDS_LINES: usize = 12;
/// Characters of a summary that stands beside a verdict.
const LONGEST_SUMMARY: usize = 90;

/// How much is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// What is done.
    Calls,
    /// What the model says, too.
    Words,
    /// The whole dialogue: what tools answer, and what was reported.
    Dialogue,
}

/// A line, or a few that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The step that it is about; `None` = the run itself.
    pub step: Option<(u32, String)>,
    /// Whether it begins a visit.
    pub heads: bool,
    /// Whether it tells of something that failed.
    pub failed: bool,
    /// Whether the log has it as well.
    pub logged: bool,
    /// What it says.
    pub text: String,
}

impl Line {
    /// The tone that it is shown in.
    pub fn tone(&self) -> Option<Tone> {
        match (self.heads, self.failed) {
            (true, _) => Some(Tone::Strong),
            (_, true) => Some(Tone::Bad),
            _ => None,
        }
    }
}

/// A call that has not been told to its end.
#[derive(Debug, Default)]
struct Call {
    text: String,
    change: Option<String>,
    ending: Option<(String, bool)>,
}

/// Reads a text that is kept beside the record.
pub type ReadKept = Box<dyn Fn(&str) -> Option<String> + Send>;

/// What was told of a run so far.
pub struct Transcript {
    detail: Detail,
    read_kept: ReadKept,
    step: Option<(u32, String)>,
    calls: BTreeMap<String, Call>,
    /// Warnings and failures that were told: each is told once.
    told: BTreeSet<String>,
    visit_cost: Money,
    /// Turn of the visit under way.
    pub turn: u32,
    /// Spent so far.
    pub cost: Money,
    /// The cap of it.
    pub cap: Option<Money>,
    /// Tokens so far.
    pub tokens: u64,
    /// What happens now; empty = nothing that takes time.
    pub doing: String,
}

impl Transcript {
    /// Nothing was told yet.
    pub fn new(detail: Detail, read_kept: ReadKept) -> Self {
        Self {
            detail,
            read_kept,
            step: None,
            calls: BTreeMap::new(),
            told: BTreeSet::new(),
            visit_cost: Money::ZERO,
            turn: 0,
            cost: Money::ZERO,
            cap: None,
            tokens: 0,
            doing: String::new(),
        }
    }

    /// The visit under way, in words.
    pub fn place(&self) -> String {
        self.step.as_ref().map(|(visit, step)| format!("visit {visit} {step}")).unwrap_or_default()
    }

    /// What was spent, and of how much.
    pub fn spent(&self) -> String {
        match self.cap {
            Some(cap) => format!("{} of {cap}", self.cost),
            None => self.cost.to_string(),
        }
    }

    /// What an event has to say.
    pub fn take(&mut self, event: &Event) -> Vec<Line> {
        match event {
            Event::ItemRecorded { item, .. } => self.item(item),
            Event::ReportCaptured(report) => self.report(report),
            Event::ToolStarted { call_id, tool, .. } => {
                let call = self.calls.get(call_id).map_or(tool, |call| &call.text);
                self.doing = format!("running {call}");
                Vec::new()
            }
            Event::ToolFacts { call_id, facts, .. } => {
                if let Some(call) = self.calls.get_mut(call_id) {
                    call.change = change(facts);
                }
                Vec::new()
            }
            Event::LlmAttempted { entry } | Event::ToolFinished { entry } => self.accounted(entry),
            // What waits is told by the event behind it.
            Event::PolicyDecided(made) if asks_for_approval(made) => Vec::new(),
            Event::PolicyDecided(made) if made.deny_mode.is_some() => {
                let call = self.calls.remove(&made.call_id);
                let call = call.map_or_else(|| made.resource.name.clone(), |call| call.text);
                let rule = made.rule_id.as_ref().map(|rule| format!(" (rule {rule})")).unwrap_or_default();
                self.failed(format!("  denied {call}: {}{rule}", made.reason))
            }
            Event::ProposalSuspended(waits) => {
                self.calls.remove(&waits.call_id);
                let hash = short_hash(&waits.proposal_hash);
                self.failed(format!("  waits for an approval ({hash}): {}", waits.call_text()))
            }
            _ => self.step_or_run(event),
        }
    }

    fn step_or_run(&mut self, event: &Event) -> Vec<Line> {
        match event {
            Event::VisitStarted { visit, step_id } => {
                self.step = Some((*visit, step_id.clone()));
                (self.turn, self.visit_cost) = (0, Money::ZERO);
                let heads = |line| Line { heads: true, ..line };
                self.said(format!("visit {visit}: {step_id}")).into_iter().map(heads).collect()
            }
            Event::LlmRequestPrepared(request) => {
                self.turn = request.turn;
                self.doing = format!("asking {}", request.target);
                Vec::new()
            }
            Event::VisitFinished(visit) => self.finished(visit),
            Event::VisitImported(visit) => {
                self.said(format!("visit {} {} was finished before", visit.visit, visit.step_id))
            }
            Event::ReplyRejected { reason, guidance, .. } => {
                let guidance =
                    if self.detail == Detail::Dialogue { set_in(guidance, 2) } else { String::new() };
                self.failed(format!("  reply rejected: {reason}{guidance}"))
            }
            Event::ChecksRun(asked) => {
                let mut lines = Vec::new();
                for check in &asked.checks {
                    match check.held {
                        true => lines.extend(self.said(format!("  check {} holds", check.validator))),
                        false => {
                            let found = match self.detail {
                                Detail::Dialogue => format!(": {}", check.found),
                                _ => String::new(),
                            };
                            let text = format!("  check {} does not hold{found}", check.validator);
                            lines.extend(self.failed(text));
                        }
                    }
                }
                lines
            }
            Event::SessionClosed(closed) if self.detail == Detail::Dialogue => match &closed.failure {
                Some(failure) => self.failed(format!("  the session failed: {}", failure.stop.message)),
                None => Vec::new(),
            },
            Event::FinalTurnForced { turn, .. } if self.detail == Detail::Dialogue => {
                self.said(format!("  turn {turn} has to be the last one"))
            }
            Event::TargetSkipped { target, reason } if self.detail == Detail::Dialogue => {
                self.once(format!("  {target} is not asked: {reason}"))
            }
            Event::Warned(warning) => {
                let logged = |line| Line { logged: true, ..line };
                self.once(format!("  ! {}", warning.text)).into_iter().map(logged).collect()
            }
            _ => self.run(event),
        }
    }

    fn run(&mut self, event: &Event) -> Vec<Line> {
        match event {
            Event::LeaseTaken(lease) => {
                let mut lines = Vec::new();
                if self.detail == Detail::Dialogue {
                    let issue = &lease.issue;
                    lines = self.said(format!("issue {} of {}: {}", issue.key, issue.repo, issue.title));
                }
                let from = &lease.origin;
                lines.extend(self.said(format!(
                    "{}: {} from {} ({})",
                    lease.instance, lease.branch, from.branch, from.source
                )));
                lines
            }
            Event::WorktreeReady { state, head } => {
                self.said(format!("worktree {} at {}", words(*state), head.short()))
            }
            Event::RunStarted(started) => {
                self.cap = Some(started.budgets.max_cost);
                self.cost += started.inherited.cost;
                Vec::new()
            }
            Event::BudgetSoftLimit { kind, .. } => {
                self.once(format!("  ! {} is nearly used up", kind.as_str()))
            }
            Event::BudgetExtended { by, budgets } => {
                self.cap = Some(budgets.max_cost);
                self.said(format!("  ! {by} raised the budgets: {}", budgets.all_shown()))
            }
            Event::QuestionAsked(asked) => self.said(format!("  ? {}", one_line(&asked.question, 300))),
            Event::QuestionAnswered(answered) => {
                self.said(format!("  > {} answered: {}", answered.by, one_line(&answered.text, 300)))
            }
            Event::PlanPosted(plan) => {
                let place = plan.url.as_deref().unwrap_or_default();
                self.said(format!("  ? the plan of {} is to be approved {place}", plan.step_id))
            }
            Event::PlanApproved(plan) => {
                let edited = if plan.edited { ", with changes" } else { "" };
                self.said(format!("  > {} approved the plan{edited}", plan.by))
            }
            Event::Taken(over) => self.said(format!("{} takes the work over", over.by)),
            Event::GivenBack(back) => {
                self.said(format!("  > {} gave the work back: {}", back.by, one_line(&back.text, 300)))
            }
            Event::Parked { code, url } => {
                self.said(format!("parked ({code}) {}", url.as_deref().unwrap_or_default()))
            }
            Event::Resumed { run_id, by } => self.said(format!("goes on with {run_id}, by {by}")),
            Event::IssueBudget(news) => self.once(format!("  ! {}", summary_text::issue_budget(news))),
            Event::RemarkTold { id, text: Some(text), .. } => {
                let mut told = format!("  > {} is told", id.shown());
                if self.detail == Detail::Dialogue {
                    for line in text.lines() {
                        told.push_str(&format!("\n    {line}"));
                    }
                }
                self.said(told)
            }
            Event::FlowEnded { .. } => {
                self.step = None;
                Vec::new()
            }
            Event::Committed { head, made, change, .. } => {
                let mut text = rendering::commit_line(head, *made, change);
                if self.detail == Detail::Dialogue {
                    for file in &change.files {
                        text.push_str(&format!("\n  {} +{} −{}", file.path, file.added, file.removed));
                    }
                }
                self.said(text)
            }
            Event::Verified(command) => {
                let text = format!("verify {}: {}", command.argv.join(" "), command.outcome());
                match command.passed() {
                    true => self.said(text),
                    false if self.detail == Detail::Dialogue => {
                        let end = set_in(&command.last_lines(2 * OUTPUT_LINES), 2);
                        self.failed(format!("{text}{end}"))
                    }
                    false => self.failed(text),
                }
            }
            Event::EffectPlanned { effect } => {
                effect.as_str().clone_into(&mut self.doing);
                Vec::new()
            }
            Event::EffectDone { effect, outcome } => self.said(format!("{}: {outcome}", effect.as_str())),
            Event::EffectFailed { effect, message, .. } => {
                self.failed(format!("! {} failed: {message}", effect.as_str()))
            }
            Event::RunEnded { stop } if self.detail == Detail::Dialogue => {
                let text = format!("{} ({}): {}", stop.reason(), stop.detail, stop.message);
                if stop.success() { self.said(text) } else { self.failed(text) }
            }
            _ => Vec::new(),
        }
    }

    fn item(&mut self, item: &Item) -> Vec<Line> {
        match item {
            Item::Message { role: ItemRole::Assistant, content } if self.detail >= Detail::Words => {
                let most = if self.detail == Detail::Dialogue { usize::MAX } else { WORDS_LINES };
                let words = cut(self.text(content).trim(), most);
                if words.is_empty() {
                    Vec::new()
                } else {
                    self.said(set_in(&words, 2).trim_start_matches('\n').to_owned())
                }
            }
            Item::ToolCallItem { call_id, name, arguments, .. }
                if !PROTOCOL_TOOLS.contains(&name.as_str()) =>
            {
                let text = short_call_text(name, arguments);
                self.calls.insert(call_id.clone(), Call { text, ..Call::default() });
                Vec::new()
            }
            Item::ToolCallOutputItem { call_id, output, .. } if self.detail == Detail::Dialogue => {
                let Some(call) = self.calls.remove(call_id) else { return Vec::new() };
                let answer = set_in(&cut(&answer(output), OUTPUT_LINES), 4);
                match call.ending {
                    Some((ending, true)) => self.failed(format!("  {}: {ending}{answer}", call.text)),
                    Some((ending, false)) => self.said(format!("  {}: {ending}{answer}", call.text)),
                    None => self.failed(format!("  {}: did not run{answer}", call.text)),
                }
            }
            Item::HandoffItem { to, .. } if self.detail == Detail::Dialogue => {
                self.said(format!("  goes on to {to}"))
            }
            _ => Vec::new(),
        }
    }

    fn report(&mut self, captured: &ReportCaptured) -> Vec<Line> {
        let Some(report) = captured.report.as_ref().filter(|_| self.detail == Detail::Dialogue) else {
            return Vec::new();
        };
        let structured = || {
            let json = report.content_json.as_ref();
            json.and_then(|json| serde_json::to_string_pretty(json).ok()).unwrap_or_default()
        };
        let text = report.content.clone().unwrap_or_else(structured);
        self.said(format!("  reports:{}", set_in(text.trim(), 4)))
    }

    fn accounted(&mut self, entry: &AccountingEntry) -> Vec<Line> {
        self.doing.clear();
        let failed = entry.status == AccountingStatus::Failed;
        match &entry.what {
            AccountingKind::Llm { tokens, cost_usd, provider, model, .. } => {
                self.cost += cost_usd.unwrap_or_default();
                self.visit_cost += cost_usd.unwrap_or_default();
                self.tokens += tokens.map_or(0, |tokens| tokens.total_tokens);
                if !failed {
                    return Vec::new();
                }
                let error = entry.error.as_deref().unwrap_or("failed");
                let lines = self.once(format!("  {provider}/{model}: {error}"));
                lines.into_iter().map(|line| Line { failed: true, ..line }).collect()
            }
            AccountingKind::Tool { command, call_id, .. } => {
                let mut call = self
                    .calls
                    .remove(call_id)
                    .unwrap_or_else(|| Call { text: command.clone(), ..Call::default() });
                let failed = failed || entry.nonzero_exit().is_some();
                let change = call.change.take().map(|change| format!(", {change}")).unwrap_or_default();
                let ending =
                    format!("{}{change} ({})", entry.tool_ending(), rendering::duration(entry.latency));
                if self.detail == Detail::Dialogue {
                    // It is told together with what it answers.
                    call.ending = Some((ending, failed));
                    self.calls.insert(call_id.clone(), call);
                    return Vec::new();
                }
                let text = format!("  {}: {ending}", call.text);
                if failed { self.failed(text) } else { self.said(text) }
            }
        }
    }

    fn finished(&mut self, visit: &VisitRecord) -> Vec<Line> {
        let summary = match one_line(&visit.summary, LONGEST_SUMMARY) {
            summary if summary.is_empty() => summary,
            summary => format!(": {summary}"),
        };
        let next = match (&visit.next, self.detail) {
            (Some(next), Detail::Dialogue) => format!(", then {next}"),
            _ => String::new(),
        };
        let cost = format!("{}, {} so far", self.visit_cost, self.spent());
        let text = format!("  → {}{next}{summary} ({cost})", visit.verdict);
        if visit.verdict == "failed" { self.failed(text) } else { self.said(text) }
    }

    fn said(&mut self, text: String) -> Vec<Line> {
        self.doing.clear();
        vec![Line { step: self.step.clone(), heads: false, failed: false, logged: false, text }]
    }

    fn failed(&mut self, text: String) -> Vec<Line> {
        self.said(text).into_iter().map(|line| Line { failed: true, ..line }).collect()
    }

    /// The same only if it was not told before.
    fn once(&mut self, text: String) -> Vec<Line> {
        if self.told.insert(text.clone()) { self.said(text) } else { Vec::new() }
    }

    fn text(&self, text: &RecordText) -> String {
        match text {
            RecordText::Inline(text) => text.clone(),
            RecordText::Kept(kept) => {
                (self.read_kept)(&kept.reference).unwrap_or_else(|| format!("(in {})", kept.reference))
            }
        }
    }
}

fn asks_for_approval(made: &PolicyDecision) -> bool {
    let approval = made.metadata.as_ref().and_then(|metadata| metadata.get("approval"));
    made.deny_mode.is_some() && approval.is_some_and(|approval| approval == "required")
}

fn words(state: WorktreeState) -> &'static str {
    match state {
        WorktreeState::Created => "created",
        WorktreeState::Reused => "reused",
        WorktreeState::Reattached => "reattached",
    }
}

/// What a tool says that it changed.
fn change(facts: &Value) -> Option<String> {
    let number = |name: &str| facts[name].as_u64();
    match (number("lines_added"), number("lines_removed"), number("lines"), facts["created"].as_bool()) {
        (Some(added), Some(removed), ..) => Some(format!("+{added} −{removed}")),
        (.., Some(lines), Some(true)) => Some(format!("new, +{lines}")),
        (.., Some(lines), Some(false)) => Some(format!("now {lines} lines")),
        _ => None,
    }
}

/// What a tool answered, in the words that the model read.
fn answer(output: &ToolResultEnvelope) -> String {
    if output.status == EnvelopeStatus::Denied {
        let code = output.code.clone().unwrap_or_default();
        return output.public_reason.clone().unwrap_or(code);
    }
    let Some(data) = &output.data else { return String::new() };
    let told = [&data["result"], &data["error"]].into_iter().find(|value| !value.is_null()).unwrap_or(data);
    let text = match told {
        Value::String(text) => text.clone(),
        Value::Object(kept) if kept.contains_key("$ref") => {
            format!("(in {})", kept["$ref"].as_str().unwrap_or_default())
        }
        other => other.to_string(),
    };
    // A tool's own head says how it ended, or which page this is; what people look for stands below it.
    let is_head = |line: &str| serde_json::from_str::<serde_json::Map<String, Value>>(line).is_ok();
    let text = match text.split_once('\n') {
        Some((head, rest)) if is_head(head) => rest.to_owned(),
        None if text.starts_with("{\"exit_code\"") => String::new(),
        _ => text,
    };
    text.replace('\t', "  ")
}

/// The first lines of a text, and how many more there are.
fn cut(text: &str, most: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut shown: Vec<String> = lines.iter().take(most).map(|line| short(line)).collect();
    match lines.len().saturating_sub(most) {
        0 => {}
        1 => shown.push("… 1 more line".to_owned()),
        more => shown.push(format!("… {more} more lines")),
    }
    shown.join("\n")
}

fn short(line: &str) -> String {
    if line.chars().count() <= LONGEST_LINE {
        return line.to_owned();
    }
    line.chars().take(LONGEST_LINE - 1).chain(['…']).collect()
}

/// A text on lines of its own, set in; nothing where there is none.
fn set_in(text: &str, columns: usize) -> String {
    text.lines().map(|line| format!("\n{}{line}", " ".repeat(columns))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::run::Warning;

    fn transcript(detail: Detail) -> Transcript {
        Transcript::new(detail, Box::new(|_| None))
    }

    fn warned(text: &str) -> Event {
        Event::Warned(Warning { code: "x".into(), at: 1, text: text.into() })
    }

    #[test]
    fn a_warning_is_told_once_however_often_it_is_noted() {
        let mut told = transcript(Detail::Calls);
        assert_eq!(told.take(&warned("a price is unknown")).len(), 1);
        assert_eq!(told.take(&warned("a price is unknown")), []);
        assert_eq!(told.take(&warned("another")).len(), 1);
    }

    #[test]
    fn what_a_model_says_is_told_to_those_who_ask_for_it() {
        let content = RecordText::Inline("First I look.\nThen I write.".into());
        let item = Box::new(Item::Message { role: ItemRole::Assistant, content });
        let event = Event::ItemRecorded { visit: 1, turn: 1, item };
        assert_eq!(transcript(Detail::Calls).take(&event), []);
        let lines = transcript(Detail::Words).take(&event);
        assert_eq!(lines[0].text, "  First I look.\n  Then I write.");
    }

    #[test]
    fn what_a_tool_changed_and_answered_is_told_in_few_words() {
        assert_eq!(change(&json!({ "lines_added": 2, "lines_removed": 1 })).as_deref(), Some("+2 −1"));
        assert_eq!(change(&json!({ "created": true, "lines": 3 })).as_deref(), Some("new, +3"));
        assert_eq!(change(&json!({ "http_status": 200 })), None);
        let output = ToolResultEnvelope {
            status: EnvelopeStatus::Ok,
            code: None,
            public_reason: None,
            data: Some(json!({ "status": "success", "result": "{\"exit_code\":1}\n[stdout]\na\nb\n" })),
        };
        assert_eq!(cut(&answer(&output), 2), "[stdout]\na\n… 1 more line");
    }
}
