//! Parked issues: a run has ended because a person has to do something, and a successor goes on at the same step when they
//! have. Nothing else is held meanwhile: no process, no slot, no lease.
//!
//! One mechanism for all that people are waited for. The run that ends writes for what it waits and tells people; the daemon,
//! or a command on this machine, writes what lets it go on; the successor takes that up.

pub mod parked_format;

use std::fmt::Write as _;
use std::sync::Arc;

use self::parked_format::{Parked, ParkedAnswer, ParkedIssue, SCHEMA, WaitsFor};
use crate::config::plan_file::PlanTable;
use crate::config::questions_file::{OnTimeout, QuestionsTable};
use crate::domain::confined;
use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;
use crate::domain::outgoing::defused;
use crate::domain::plan::{PlanVerdict, ProposedPlan};
use crate::domain::question::Question;
use crate::domain::refusal::Refusal;
use crate::domain::shown_markdown::{self, QUOTE_BEGINS, QUOTE_ENDS};
use crate::domain::stop::StopDetail;
use crate::domain::untrusted::LONGEST_INCOMING;
use crate::github::{self, Client};
use crate::record::rendering;
use crate::store::port::{Cell, Store, StoreError};
use crate::store::run_dir::StateDir;

/// What is kept of one issue.
#[derive(Debug, Clone)]
pub struct ParkedCell {
    store: Arc<dyn Store>,
    cell: Cell,
}

impl ParkedCell {
    /// Reads nothing yet.
    pub fn new(state: &StateDir, repo: &RepoName, issue: &IssueKey) -> Self {
        Self {
            store: Arc::clone(state.store()),
            cell: Cell::Parked { repo: repo.clone(), issue: issue.clone() },
        }
    }

    /// What it says; one that is not there says that nothing is waited for. Blocks.
    pub fn read_now(&self) -> Result<ParkedIssue, StoreError> {
        self.parsed(self.store.get(&self.cell)?.1)
    }

    /// [`ParkedCell::read_now`] off the runtime's threads.
    pub async fn read(&self) -> Result<ParkedIssue, StoreError> {
        let cell = self.clone();
        self.joined(tokio::task::spawn_blocking(move || cell.read_now()).await)
    }

    /// Changes it, whoever else does, and gives it as it is then with what `change` gave.
    pub async fn update<T: Send + 'static>(
        &self,
        mut change: impl FnMut(&mut ParkedIssue) -> T + Send + 'static,
    ) -> Result<(ParkedIssue, T), StoreError> {
        let of = self.clone();
        let work = move || {
            let mut made = None;
            of.store.update(&of.cell, |value| {
                let mut issue = of.parsed(value)?;
                let given = change(&mut issue);
                let text =
                    serde_json::to_string_pretty(&issue).map_err(|error| of.failed("write", &error))?;
                made = Some((issue, given));
                Ok::<_, StoreError>(Some(text))
            })?;
            made.ok_or_else(|| of.failed("write", &"nothing was made"))
        };
        self.joined(tokio::task::spawn_blocking(work).await)
    }

    /// Refuses a run while a person has the work.
    ///
    /// # Errors
    /// That somebody has it, or that this cannot be told.
    pub async fn refuse_taken(&self, key: &IssueKey) -> Result<(), Refusal> {
        let issue = self.read().await.map_err(|error| {
            let message = format!("Whether a person has the work is not known: {error}.");
            Refusal::new(StopDetail::OutputWriteFailed, message)
        })?;
        let Some((_, taken)) = issue.taken() else { return Ok(()) };
        let message = format!("{} has the work on issue {key}, on the branch {}.", taken.by, taken.branch);
        Err(Refusal::new(StopDetail::BranchBusy, message)
            .hint(format!("agentd give-back {key} [-m TEXT] lets agentd go on, --end does not")))
    }

    fn parsed(&self, text: Option<String>) -> Result<ParkedIssue, StoreError> {
        let Some(text) = text else { return Ok(ParkedIssue::default()) };
        let issue: ParkedIssue = serde_json::from_str(&text).map_err(|error| {
            let words = format!(
                "it is damaged ({error}); put an earlier copy of it back, or take it away: then nothing is waited for there"
            );
            self.failed("read", &words)
        })?;
        match issue.schema_version == SCHEMA {
            true => Ok(issue),
            false => Err(self.failed("read", &format!("another agentd wrote it ({})", issue.schema_version))),
        }
    }

    fn joined<T>(
        &self,
        done: Result<Result<T, StoreError>, tokio::task::JoinError>,
    ) -> Result<T, StoreError> {
        done.unwrap_or_else(|panic| Err(self.failed("change", &panic)))
    }

    fn failed(&self, action: &'static str, words: &dyn std::fmt::Display) -> StoreError {
        let place = self.store.place(&self.cell).display().to_string();
        StoreError::Failed { action, place, words: words.to_string() }
    }
}

/// A mention that GitHub reads; nothing else of a model's words becomes one.
fn mention(asked: Option<&str>) -> String {
    asked.map_or_else(String::new, |login| format!("@{login} "))
}

/// What people are told when a question is asked, without its marker.
pub fn question_text(parked: &Parked, table: &QuestionsTable, issue: &IssueKey) -> String {
    let WaitsFor::Answer { question, .. } = &parked.waits_for else { return String::new() };
    let own = issue.number();
    let said = |text: &str| defused(&confined::block(text), own);
    let said_line = |text: &str| defused(&confined::line(text), own);
    let mut text =
        format!("**{}The agent asks:**\n\n{}\n", mention(parked.asked.as_deref()), said(&question.question));
    for (place, option) in question.options.iter().enumerate() {
        let _infallible = write!(text, "\n{}. {}", place + 1, said_line(option));
    }
    if !question.options.is_empty() {
        text.push('\n');
    }
    text.push_str("\nTo answer, comment `/agentd answer TEXT`");
    if !question.options.is_empty() {
        text.push_str(" or an option's number");
    }
    if let Some(login) = &parked.asked {
        let _infallible = write!(text, "; any comment of {login} counts as well");
    }
    let _infallible = write!(
        text,
        ". On agentd's machine: `agentd answer {issue} TEXT`. The first answer counts, after a short while in which it may \
         be edited; the work goes on where it stopped, and nothing is spent until then."
    );
    if let Some(deadline) = parked.deadline {
        let until = deadline.format("%Y-%m-%d %H:%M");
        let then = match (&question.default, table.on_timeout) {
            (Some(default), OnTimeout::Default) => {
                format!("the agent goes on with \"{}\"", said_line(default))
            }
            _ => "the issue is yours again".to_owned(),
        };
        let _infallible = write!(text, " If nobody answers until {until} UTC, {then}.");
    }
    if let (Some(default), OnTimeout::End) = (&question.default, table.on_timeout) {
        let _infallible = write!(text, " (The agent would take \"{}\".)", said_line(default));
    }
    text.push('\n');
    text
}

/// Between these lines stands the plan in its comment.
const PLAN: (&str, &str) = ("<!-- agentd:plan -->", "<!-- agentd:plan-end -->");

/// What people are told when a plan waits for their approval, without its marker.
pub fn plan_text(parked: &Parked, plan: &ProposedPlan, table: &PlanTable, issue: &IssueKey) -> String {
    let shown = shown(plan, issue);
    let mut text = format!(
        "**{}The agent's plan**, to be approved before it is carried out:\n\n{}\n{shown}\n{}\n\n\
         To approve it: a 👍 on this comment, `/agentd approve` (`/agentd approve {}` where several things wait), or the label \
         `{}`. It counts as it reads when it is approved: edit it before, not after. `/agentd reject TEXT`, or a 👎 and a \
         comment, has it made again, at most {} times. On agentd's machine: `agentd approve {issue}`, `agentd reject {issue} TEXT`. \
         Nothing is spent until then.",
        mention(parked.asked.as_deref()),
        PLAN.0,
        PLAN.1,
        plan.short(),
        table.approved_label,
        table.max_rounds,
    );
    if let Some(deadline) = parked.deadline {
        let until = deadline.format("%Y-%m-%d %H:%M");
        let _infallible = write!(text, " If nobody decides until {until} UTC, the issue is yours again.");
    }
    text.push('\n');
    text
}

/// The plan as its comment has it before anybody edits that.
pub fn plan_shown(plan: &ProposedPlan, issue: &IssueKey) -> String {
    plan_in(&shown(plan, issue))
}

/// The plan's text as GitHub gets it: it can end neither its place nor look like agentd's words around it.
fn shown(plan: &ProposedPlan, issue: &IssueKey) -> String {
    defused(&confined::block(&plan.text), issue.number())
}

/// The plan in the comment of [`plan_text`] as people left it and as the page shows it. Where they took its marks away, all of the
/// comment is the plan.
pub fn plan_in(comment: &str) -> String {
    let body = comment.split_once(PLAN.0).map_or(comment, |(_, rest)| rest);
    let body = body.split_once(PLAN.1).map_or(body, |(plan, _)| plan);
    let mut text = shown_markdown::shown(body).text.replace([QUOTE_BEGINS, QUOTE_ENDS], "");
    if let Some((at, _)) = text.char_indices().nth(LONGEST_INCOMING) {
        text.truncate(at);
    }
    text.trim().to_owned()
}

/// The comment that asked says that nothing is waited for any more, and why.
pub async fn ask_no_more(
    github: &Client,
    (repo, number): (&RepoName, u64),
    waits_for: &WaitsFor,
    why: &str,
) -> Result<(), github::Error> {
    let key = IssueKey::Number(number);
    let marker = rendering::request_marker(&key, &waits_for.key());
    if let Some(found) = github.find_comment(repo, number, &marker).await?
        && let Some(text) = over_text(waits_for, &found.body, why, &key)
    {
        github.ensure_comment(repo, number, &marker, &text).await?;
    }
    Ok(())
}

/// The same once nothing is waited for any more; `comment` is how it reads now. `None` = nobody was asked.
fn over_text(waits_for: &WaitsFor, comment: &str, why: &str, issue: &IssueKey) -> Option<String> {
    let said = |text: &str| defused(&confined::block(text), issue.number());
    let (what, text) = match waits_for {
        WaitsFor::Answer { question, .. } => ("The agent asked", question.question.clone()),
        WaitsFor::Plan { .. } => ("The agent's plan", plan_in(comment)),
        WaitsFor::GiveBack(_) => return None,
    };
    Some(format!("**{what}:**\n\n{}\n\n**It is not waited for any more:** {why}.\n", said(&text)))
}

/// A plan once it was decided on.
pub fn decided_text(
    plan: &ProposedPlan,
    verdict: PlanVerdict,
    answer: &ParkedAnswer,
    issue: &IssueKey,
) -> String {
    let said = |text: &str| defused(&confined::block(text), issue.number());
    let by = said(&answer.by);
    let (text, what) = match verdict {
        PlanVerdict::Approved => (&plan.text, format!("{by} approved it.** The agent carries it out.")),
        PlanVerdict::Edited => {
            (&answer.text, format!("{by} approved it as it reads here.** The agent carries it out."))
        }
        PlanVerdict::Rejected => (
            &plan.text,
            format!("{by} rejected it:**\n\n{}\n\nThe agent makes it again.", quoted(&said(&answer.text))),
        ),
    };
    format!("**The agent's plan:**\n\n{}\n{}\n{}\n\n**{what}\n", PLAN.0, said(text), PLAN.1)
}

fn quoted(text: &str) -> String {
    text.lines().map(|line| format!("> {line}")).collect::<Vec<_>>().join("\n")
}

/// A question once it was answered.
pub fn answered_text(question: &Question, answer: &ParkedAnswer, issue: &IssueKey) -> String {
    let said = |text: &str| defused(&confined::block(text), issue.number());
    let who = match answer.by.as_str() {
        "agentd" => "Nobody answered in time; the agent goes on with its own default".to_owned(),
        by => format!("{by} answered"),
    };
    let (question, answer) = (said(&question.question), quoted(&said(&answer.text)));
    format!("**The agent asked:**\n\n{question}\n\n**{who}:**\n\n{answer}\n")
}
