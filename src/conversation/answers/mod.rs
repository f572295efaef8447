//! Answers: what a run owes to the remarks that it was told of, and the words in which it is told on GitHub.

use std::collections::BTreeMap;

use crate::domain::answer::{Outcome, ReportedOutcome, reported};
use crate::domain::briefing::Briefing;
use crate::domain::confined;
use crate::domain::issue::IssueKey;
use crate::domain::outgoing::{cut, defused};
use crate::domain::remark::ThreadOutcome;
use crate::domain::run::{RunId, VisitRecord};

/// Characters of an agent's own words that are told.
const LONGEST_TEXT: usize = 2_000;

/// How the host's own answer begins where the run did nothing about a remark.
pub const NOT_WORKED_ON: &str = "not worked on: ";

/// What wants an outcome: threads, then remarks without one.
pub fn wanted(briefing: &Briefing) -> Vec<String> {
    let threads = briefing.threads.iter().map(|thread| thread.id.clone());
    threads.chain(briefing.about.iter().map(ToString::to_string)).collect()
}

/// What the visits report of what is wanted; a later visit knows better.
pub fn gathered(visits: &[VisitRecord], wanted: &[String]) -> BTreeMap<String, ReportedOutcome> {
    let all = visits.iter().flat_map(|visit| reported(&visit.output));
    let known = all.filter(|one| wanted.contains(&one.thread));
    known.map(|one| (one.thread.clone(), one)).collect()
}

/// First line of the reply in a thread.
pub fn marker(thread: &str, run: RunId) -> String {
    format!("<!-- agentd:thread-{}:run-{run} -->", plain(thread))
}

/// How the first line of each comment about a whole follow-up run begins.
pub fn round_prefix(issue: &IssueKey) -> String {
    format!("<!-- agentd:issue-{issue}:round-")
}

/// First line of the comment about one follow-up run.
pub fn round_marker(issue: &IssueKey, run: RunId) -> String {
    format!("{}{run} -->", round_prefix(issue))
}

/// The reply in a thread, without its marker.
pub fn reply(outcome: &Outcome) -> String {
    format!("{}\n\n{}", headline(outcome), words(outcome)).trim_end().to_owned()
}

/// The comment about remarks without a thread, without its marker.
pub fn round(outcomes: &[(Outcome, Option<String>)]) -> String {
    let mut text = "What came of these remarks:\n".to_owned();
    for (outcome, url) in outcomes {
        let name = match url {
            Some(url) => format!("[{}]({url})", outcome.thread),
            None => outcome.thread.clone(),
        };
        text.push_str(&format!("\n**{name}**: {}\n\n{}\n", headline(outcome), words(outcome)));
    }
    text.trim_end().to_owned()
}

fn headline(outcome: &Outcome) -> String {
    match (outcome.outcome, &outcome.commit) {
        (ThreadOutcome::Changed, Some(commit)) => format!("Changed in {commit}."),
        (ThreadOutcome::Changed | ThreadOutcome::Answered, _) => "Answered; nothing changed.".to_owned(),
        (ThreadOutcome::Declined, _) => "Declined.".to_owned(),
        (ThreadOutcome::Asks, _) => "Question.".to_owned(),
    }
}

fn words(outcome: &Outcome) -> String {
    cut(&defused(&confined::block(&outcome.text), None), LONGEST_TEXT, "(cut)")
}

fn plain(id: &str) -> String {
    id.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '=')).collect()
}
