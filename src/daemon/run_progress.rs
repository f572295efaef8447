//! The progress of each run of the daemon, folded from its journal while it is written, and sent to listeners.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

use super::snapshot::IssueRef;
use super::status_format::{LogLine, RunProgress};
use crate::domain::event::{Effect, Event};
use crate::domain::ledger_entry::{AccountingEntry, AccountingKind, AccountingStatus};
use crate::domain::money::Money;
use crate::domain::outgoing::plain_line;
use crate::domain::run::RunId;
use crate::engine::shortage::WAITS_FOR_MONEY;
use crate::lifecycle::run_observer::{Lines, RunObserver};
use crate::record::{rendering, summary_text};
use crate::store::journal_format::{HeardLine, JournalLine};

/// Log lines that a listener may be behind before it misses some.
const BEHIND: usize = 1024;
/// Log lines that a new listener gets first.
const RECENT: usize = 100;
/// Characters of a log line's text.
const LONGEST_LINE: usize = 300;

/// What a run does that has ended.
const ENDED: &str = "ended";

/// The one place where runs say how far they are. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Progress(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    runs: Mutex<BTreeMap<IssueRef, RunProgress>>,
    lines: broadcast::Sender<Arc<LogLine>>,
    recent: Mutex<VecDeque<Arc<LogLine>>>,
    changes: watch::Sender<u64>,
}

impl Default for Progress {
    fn default() -> Self {
        let (lines, _) = broadcast::channel(BEHIND);
        let (changes, _) = watch::channel(0);
        Self(Arc::new(Shared { runs: Mutex::default(), lines, recent: Mutex::default(), changes }))
    }
}

impl Progress {
    /// A listener for the run of an issue.
    pub fn watch(&self, issue: IssueRef, title: &str) -> RunObserver {
        let progress = self.clone();
        let begun = RunProgress { title: plain_line(title, LONGEST_LINE), ..RunProgress::default() };
        self.runs().insert(issue.clone(), begun);
        RunObserver::new(move |lines, opened| {
            // The line that says it was written before anybody could listen.
            if let (Some(run), Some(instance)) = (progress.runs().get_mut(&issue), opened.instance) {
                run.instance = instance.to_string();
            }
            tokio::spawn(progress.follow(issue, lines));
        })
    }

    /// Notes the run of an issue that works on another node, which says no more of it here.
    pub(super) fn note(&self, issue: &IssueRef, title: &str, run_id: &str) {
        let title = plain_line(title, LONGEST_LINE);
        let run = RunProgress { title, run_id: run_id.to_owned(), ..RunProgress::default() };
        self.runs().insert(issue.clone(), run);
        self.changed();
    }

    /// Whether the run of an issue has begun to write its labels.
    pub fn is_writing_labels(&self, issue: &IssueRef) -> bool {
        self.runs().get(issue).is_some_and(|run| run.doing == Effect::Labels.as_str() || run.doing == ENDED)
    }

    /// The run of an issue, once it has a journal.
    pub(super) fn run_of(&self, issue: &IssueRef) -> Option<String> {
        let runs = self.runs();
        runs.get(issue).map(|run| run.run_id.clone()).filter(|run| !run.is_empty())
    }

    /// How far the run of an issue is; `None` = it has no journal yet.
    pub fn of(&self, issue: &IssueRef) -> Option<RunProgress> {
        self.runs().get(issue).cloned()
    }

    /// Forgets a run that has ended.
    pub(super) fn forget(&self, issue: &IssueRef) {
        self.runs().remove(issue);
        self.changed();
    }

    /// Hears that something changed; the number means nothing.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// What runs said lately, and what they say from now on.
    pub fn lines(&self) -> (VecDeque<Arc<LogLine>>, broadcast::Receiver<Arc<LogLine>>) {
        let recent = self.0.recent.lock().unwrap_or_else(PoisonError::into_inner);
        (recent.clone(), self.0.lines.subscribe())
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<IssueRef, RunProgress>> {
        self.0.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.0.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    async fn follow(self, issue: IssueRef, mut lines: Lines) {
        loop {
            match lines.recv().await {
                Ok(line) => self.take(&issue, &line),
                // What was missed is in the journal; here it is only not shown.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn take(&self, issue: &IssueRef, line: &HeardLine) {
        let Some(event) = &line.event else { return };
        let text = {
            let mut runs = self.runs();
            let run = runs.entry(issue.clone()).or_default();
            run.run_id = line.run_id.to_string();
            fold(run, event)
        };
        self.changed();
        if let Some(text) = text {
            let told = Arc::new(log_line(issue, (line.ts, line.run_id), &line.kind, &text));
            let mut recent = self.0.recent.lock().unwrap_or_else(PoisonError::into_inner);
            recent.push_back(Arc::clone(&told));
            if recent.len() > RECENT {
                recent.pop_front();
            }
            let _nobody_listens = self.0.lines.send(told);
        }
    }
}

/// What a line of the journal of an issue's run says to people; `None` = nothing.
pub fn shown_line(issue: &IssueRef, line: &JournalLine) -> Option<LogLine> {
    let text = fold(&mut RunProgress::default(), &line.event()?)?;
    Some(log_line(issue, (line.ts, line.run_id), &line.kind, &text))
}

fn log_line(issue: &IssueRef, (at, run_id): (i64, RunId), kind: &str, text: &str) -> LogLine {
    LogLine {
        at,
        repo: issue.repo.clone(),
        issue: issue.number,
        run_id: run_id.to_string(),
        kind: kind.to_owned(),
        text: text.chars().take(LONGEST_LINE).collect(),
    }
}

/// Takes an event in; gives what there is to say about it.
fn fold(run: &mut RunProgress, event: &Event) -> Option<String> {
    Some(match event {
        Event::LeaseTaken(lease) => {
            run.instance = lease.instance.to_string();
            run.title = plain_line(&lease.issue.title, LONGEST_LINE);
            format!("{} from {} ({})", lease.branch, lease.origin.branch, lease.origin.source)
        }
        Event::WorktreeReady { head, .. } => format!("worktree at {}", head.short()),
        Event::RunStarted(started) => {
            run.max_cost_usd = Some(started.budgets.max_cost);
            run.max_steps = Some(started.budgets.max_steps);
            run.cost_usd += started.inherited.cost;
            run.inherited_usd = started.inherited.cost;
            return None;
        }
        Event::VisitStarted { visit, step_id } => {
            run.visit = *visit;
            run.step.clone_from(step_id);
            run.turn = 0;
            format!("visit {visit}: {step_id}")
        }
        Event::LlmRequestPrepared(request) => {
            run.turn = request.turn;
            run.doing = format!("asking {}", request.target);
            return None;
        }
        Event::ToolStarted { tool, .. } => {
            run.doing = format!("running {tool}");
            return None;
        }
        Event::AgentSpent { entries } => {
            let mut used = RunProgress::default();
            for entry in entries {
                spent(&mut used, entry);
            }
            ends_under_way(run);
            (run.cost_usd, run.tokens) = (run.cost_usd + used.cost_usd, run.tokens + used.tokens);
            run.under_way = (used.cost_usd, used.tokens);
            return None;
        }
        Event::LlmAttempted { entry } | Event::ToolFinished { entry } => return accounted(run, entry),
        Event::ReplyRejected { reason, .. } => format!("reply rejected: {reason}"),
        Event::PolicyDecided(decision) if decision.deny_mode.is_some() => {
            format!("denied {}: {}", decision.resource.name, decision.reason)
        }
        Event::VisitFinished(visit) => format!("visit {} ends with {}", visit.visit, visit.verdict),
        Event::Warned(warning) => {
            // Until it is sent.
            if warning.code == WAITS_FOR_MONEY {
                "waiting for money that others have set aside".clone_into(&mut run.doing);
            }
            warning.text.clone()
        }
        Event::BudgetSoftLimit { kind, .. } => format!("{} is nearly used up", kind.as_str()),
        Event::BudgetExtended { by, budgets } => format!("{by} raised the budgets: {}", budgets.all_shown()),
        Event::QuestionAsked(asked) => format!("asks: {}", asked.question),
        Event::Taken(over) => format!("{} takes the work over", over.by),
        Event::Parked { code, .. } => format!("parked: {code}"),
        Event::IssueBudget(news) => summary_text::issue_budget(news),
        Event::RemarkTold { id, text: Some(_), .. } => format!("{} is told", id.shown()),
        Event::Committed { head, made, change, .. } => rendering::commit_line(head, *made, change),
        Event::Verified(command) => {
            format!("verify {}: {}", command.argv.join(" "), command.outcome())
        }
        Event::EffectPlanned { effect } => {
            run.doing = effect.as_str().to_owned();
            return None;
        }
        Event::EffectDone { effect, outcome } => format!("{}: {outcome}", effect.as_str()),
        Event::EffectFailed { effect, message, .. } => format!("{} failed: {message}", effect.as_str()),
        Event::RunEnded { stop } => {
            run.doing = ENDED.to_owned();
            format!("{} ({})", stop.reason(), stop.detail)
        }
        _ => return None,
    })
}

/// What was under way is told anew, or has its lines now.
fn ends_under_way(run: &mut RunProgress) {
    let (cost, tokens) = std::mem::take(&mut run.under_way);
    (run.cost_usd, run.tokens) = (run.cost_usd.saturating_sub(cost), run.tokens.saturating_sub(tokens));
}

fn spent(run: &mut RunProgress, entry: &AccountingEntry) {
    if let AccountingKind::Llm { tokens, cost_usd, .. } = &entry.what {
        run.cost_usd += cost_usd.unwrap_or(Money::ZERO);
        run.tokens += tokens.map_or(0, |tokens| tokens.total_tokens);
    }
}

fn accounted(run: &mut RunProgress, entry: &AccountingEntry) -> Option<String> {
    let failed = entry.status == AccountingStatus::Failed;
    let error = entry.error.as_deref().unwrap_or("failed");
    run.doing.clear();
    match &entry.what {
        AccountingKind::Llm { provider, model, .. } => {
            ends_under_way(run);
            spent(run, entry);
            failed.then(|| format!("{provider}/{model}: {error}"))
        }
        AccountingKind::Tool { command, .. } => Some(format!("{command}: {}", entry.tool_ending())),
    }
}
