//! What people see while a run works: the step and turn, tools as they run, tokens and cost, time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;

use super::output::{Output, harmless};
use crate::domain::event::Event;
use crate::domain::ledger_entry::{AccountingEntry, AccountingKind, AccountingStatus};
use crate::domain::money::Money;
use crate::lifecycle::run_observer::Lines;
use crate::record::rendering;
use crate::store::journal_file;
use crate::store::journal_format::JournalLine;
use crate::store::run_dir::RunDir;

/// Follows one run: a live line on a terminal, plain lines elsewhere, JSON Lines with `--stream`.
#[derive(Clone)]
pub struct View {
    output: Output,
    stream: bool,
    bar: Option<ProgressBar>,
    following: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl View {
    /// A view that follows nothing yet.
    pub fn new(output: Output, stream: bool) -> Self {
        let bar = output.is_live().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { output, stream, bar, following: Arc::default() }
    }

    /// Writes something that is not from the journal, without disturbing the live line.
    pub fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.output.note(text)),
            None => self.output.note(text),
        }
    }

    /// Shows the lines of a run's journal until it ends.
    pub fn follow(&self, lines: Lines, dir: RunDir) {
        let following = tokio::spawn(show(self.clone(), lines, dir));
        *self.following.lock().unwrap_or_else(PoisonError::into_inner) = Some(following);
    }

    /// Waits until everything was shown. A screen may miss the end; a stream may not.
    pub async fn finish(&self) {
        let following = self.following.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut following) = following else { return };
        if self.stream {
            // It fails only by a panic, which was told.
            let _ = following.await;
        } else if tokio::time::timeout(Duration::from_secs(2), &mut following).await.is_err() {
            following.abort();
        }
    }
}

async fn show(view: View, mut lines: Lines, dir: RunDir) {
    let (output, stream) = (view.output, view.stream);
    let mut screen = Screen::new(view);
    let mut shown = 0;
    // The first lines were there before anybody listened.
    let mut next = missed(&dir, shown).await;
    'run: loop {
        for line in next {
            if line.seq <= shown {
                continue;
            }
            shown = line.seq;
            if stream && output.json_line(line.as_ref()).is_err() {
                break 'run;
            }
            screen.take(&line);
            if line.kind == "run_ended" {
                break 'run;
            }
        }
        next = match lines.recv().await {
            Ok(line) => vec![line],
            Err(RecvError::Lagged(_)) => missed(&dir, shown).await,
            Err(RecvError::Closed) => break,
        };
    }
    screen.close();
}

/// The lines after `shown`, from the file: the run did not wait for us.
async fn missed(dir: &RunDir, shown: u64) -> Vec<Arc<JournalLine>> {
    let dir = dir.clone();
    let read = tokio::task::spawn_blocking(move || journal_file::read(&dir)).await;
    let lines = read.ok().and_then(Result::ok).map(|read| read.lines).unwrap_or_default();
    lines.into_iter().filter(|line| line.seq > shown).map(Arc::new).collect()
}

/// What is on the screen.
struct Screen {
    view: View,
    step: String,
    turn: u32,
    cost: Money,
    tokens: u64,
}

impl Screen {
    fn new(view: View) -> Self {
        if let Some(bar) = &view.bar {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Self { view, step: String::new(), turn: 0, cost: Money::ZERO, tokens: 0 }
    }

    fn take(&mut self, line: &JournalLine) {
        let Some(event) = line.event() else { return };
        match event {
            Event::LeaseTaken(lease) => self.say(format!(
                "{}: {} from {} ({})",
                lease.instance, lease.branch, lease.origin.branch, lease.origin.source
            )),
            Event::WorktreeReady { state, head } => {
                self.say(format!("worktree {} at {}", words(&state), head.short()));
            }
            Event::VisitImported(visit) => {
                self.say(format!("visit {} {} was finished before", visit.visit, visit.step_id));
            }
            Event::VisitStarted { visit, step_id } => {
                self.step = format!("visit {visit} {step_id}");
                self.turn = 0;
                self.say(format!("visit {visit}: {step_id}"));
            }
            Event::LlmRequestPrepared(request) => {
                self.turn = request.turn;
                self.now(format!("asking {}", request.target));
            }
            Event::ToolStarted { tool, .. } => self.now(format!("running {tool}")),
            Event::LlmAttempted { entry } | Event::ToolFinished { entry } => self.accounted(&entry),
            Event::ReplyRejected { reason, .. } => self.say(format!("  reply rejected: {reason}")),
            Event::PolicyDecided(decision) if decision.deny_mode.is_some() => {
                self.say(format!("  denied {}: {}", decision.resource.name, decision.reason));
            }
            Event::VisitFinished(visit) => {
                self.say(format!("  → {}{}", visit.verdict, first_line(&visit.summary)));
            }
            Event::ChecksRun(asked) => {
                for check in &asked.checks {
                    let word = if check.held { "holds" } else { "does not hold" };
                    self.say(format!("  check {} {word}", check.validator));
                }
            }
            Event::Warned(warning) => self.say(format!("  ! {}", warning.text)),
            Event::BudgetSoftLimit { kind, .. } => {
                self.say(format!("  ! {} is nearly used up", kind.as_str()));
            }
            Event::BudgetExtended { by, budgets } => {
                self.say(format!("  ! {by} raised the budgets: {}", budgets.all_shown()));
            }
            Event::Committed { head, change, .. } => {
                self.say(format!("committed {}: {}", head.short(), rendering::change_line(&change)));
            }
            Event::Verified(command) => {
                self.say(format!("verify {}: {}", command.argv.join(" "), command.outcome()));
            }
            Event::EffectPlanned { effect } => self.now(effect.as_str().to_owned()),
            Event::EffectDone { effect, outcome } => self.say(format!("{}: {outcome}", effect.as_str())),
            Event::EffectFailed { effect, message } => {
                self.say(format!("! {} failed: {message}", effect.as_str()));
            }
            _ => {}
        }
    }

    fn accounted(&mut self, entry: &AccountingEntry) {
        let failed = entry.status == AccountingStatus::Failed;
        match &entry.what {
            AccountingKind::Llm { tokens, cost_usd, provider, model, .. } => {
                self.cost += cost_usd.unwrap_or_default();
                self.tokens += tokens.map_or(0, |tokens| tokens.total_tokens);
                if failed {
                    let error = entry.error.as_deref().unwrap_or("failed");
                    self.say(format!("  {provider}/{model}: {error}"));
                }
            }
            AccountingKind::Tool { command, .. } => {
                self.say(format!(
                    "  {command}: {} ({})",
                    entry.tool_ending(),
                    rendering::duration(entry.latency)
                ));
            }
        }
    }

    /// Something happened: stays on the screen.
    fn say(&self, text: String) {
        self.view.say(&text);
        self.now(String::new());
    }

    /// Something is happening: goes with the next thing.
    fn now(&self, what: String) {
        if let Some(bar) = &self.view.bar {
            let turn = if self.turn > 0 { format!(", turn {}", self.turn) } else { String::new() };
            let now = format!("{}{turn} · {} tokens · {} · {what}", self.step, self.tokens, self.cost);
            bar.set_message(harmless(&now).replace('\n', " "));
        }
    }

    fn close(&self) {
        if let Some(bar) = &self.view.bar {
            bar.finish_and_clear();
        }
    }
}

fn words(state: &crate::domain::event::WorktreeState) -> &'static str {
    use crate::domain::event::WorktreeState;
    match state {
        WorktreeState::Created => "created",
        WorktreeState::Reused => "reused",
        WorktreeState::Reattached => "reattached",
    }
}

fn first_line(summary: &str) -> String {
    let line: String = summary.lines().next().unwrap_or_default().chars().take(90).collect();
    if line.is_empty() { line } else { format!(": {line}") }
}
