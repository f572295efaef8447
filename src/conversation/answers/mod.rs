//! Answers: what a run owes to the remarks that it was told of, and the words in which it is told on GitHub.

use std::collections::BTreeMap;

use crate::domain::answer::{Outcome, ReportedOutcome, reported};
use crate::domain::briefing::Briefing;
use crate::domain::confined;
use crate::domain::event::Event;
use crate::domain::facts::RunFacts;
use crate::domain::issue::IssueKey;
use crate::domain::name::CommitId;
use crate::domain::outgoing::{cut, defused};
use crate::domain::remark::{RemarkId, ThreadOutcome};
use crate::domain::run::{RunId, VisitRecord};
use crate::domain::stop::Stop;

/// Characters of an agent's own words that are told.
const LONGEST_TEXT: usize = 2_000;
/// Characters of a comment about a whole run: GitHub takes 65,536.
const LONGEST_ROUND: usize = 60_000;
/// Characters that a remark's name, address and headline take there.
const LONGEST_NAME: usize = 300;
/// Remarks that are named there.
const MOST_IN_ROUND: usize = 120;

/// How the words begin that the host has for a remark of which its agent said nothing.
const NO_ANSWER: &str = "The agent gave no answer to this";
/// What stands before them where a remark has no thread. In a thread the first line is one of four.
const UNANSWERED: &str = "Not answered.";

/// What is told of a remark of which the agent said nothing: how its run ended, and the commit where what it changed stands.
pub fn no_answer(stop: &Stop, commit: Option<&CommitId>) -> String {
    match (stop.success(), commit) {
        (true, Some(commit)) => format!("{NO_ANSWER}. What its run changed is in {commit}."),
        (true, None) => format!("{NO_ANSWER}, and its run changed nothing."),
        (false, _) => format!("{NO_ANSWER}; its run ended before. {}", stop.message),
    }
}

/// Whether a comment of agentd's says that nothing was answered yet. Earlier versions had other words for it.
pub fn is_unanswered(comment: &str) -> bool {
    let says_so = |line: &str| line.starts_with(NO_ANSWER) || line.starts_with("not worked on: ");
    comment.lines().any(says_so)
}

/// What wants an outcome: threads, then remarks without one, then what was told while the run worked. What was written meanwhile in
/// a thread is answered with that thread, by whatever name a report calls it.
#[derive(Debug, Default)]
pub struct Wanted {
    ids: Vec<String>,
    /// Other names of these.
    also: BTreeMap<String, String>,
}

/// What a run was told while it worked.
pub struct ToldMeanwhile {
    /// Which remark.
    pub id: RemarkId,
    /// The thread in which it stands.
    pub thread: Option<String>,
}

impl Wanted {
    /// Of a run's briefing, and of what it was told while it worked.
    pub fn of(briefing: &Briefing, meanwhile: &[ToldMeanwhile]) -> Self {
        let mut wanted = Self::default();
        let threads = briefing.threads.iter().map(|thread| thread.id.clone());
        threads.chain(briefing.about.iter().map(ToString::to_string)).for_each(|id| wanted.add(id));
        // A thread of which the run was not told when it began is answered as its first remark.
        let mut others: BTreeMap<&str, String> = BTreeMap::new();
        for told in meanwhile {
            let name = told.id.to_string();
            let thread = told.thread.as_deref();
            let known = thread.filter(|thread| wanted.has(thread)).map(str::to_owned);
            let other = || thread.map(|thread| others.entry(thread).or_insert_with(|| name.clone()).clone());
            let is = known.or_else(other).unwrap_or_else(|| name.clone());
            if let Some(thread) = thread.filter(|thread| **thread != *is) {
                wanted.also.insert(thread.to_owned(), is.clone());
            }
            if is == name {
                wanted.add(is);
            } else {
                wanted.also.insert(name, is);
            }
        }
        wanted
    }

    fn add(&mut self, id: String) {
        if !self.has(&id) {
            self.ids.push(id);
        }
    }

    /// Whether something is wanted under this name.
    fn has(&self, id: &str) -> bool {
        self.ids.iter().any(|known| known == id)
    }

    /// The names, in order.
    pub fn ids(&self) -> &[String] {
        &self.ids
    }

    /// What is wanted of what was reported, by its own name; the last word on each counts.
    pub fn sorted(
        &self,
        said: impl IntoIterator<Item = ReportedOutcome>,
    ) -> BTreeMap<String, ReportedOutcome> {
        let named = said.into_iter().filter_map(|one| {
            let thread = self.also.get(&one.thread).cloned().unwrap_or_else(|| one.thread.clone());
            self.has(&thread).then(|| (thread.clone(), ReportedOutcome { thread, ..one }))
        });
        named.collect()
    }

    /// What the visits report of what is wanted; a later visit knows better.
    pub fn gathered(&self, visits: &[VisitRecord]) -> BTreeMap<String, ReportedOutcome> {
        self.sorted(visits.iter().flat_map(|visit| reported(&visit.output)))
    }
}

/// What people wrote on GitHub while a run worked and it was told: where the issue has a pull request, they are answered there.
pub fn told_meanwhile<'f>(
    briefing: &Briefing,
    facts: &'f RunFacts,
) -> impl Iterator<Item = ToldMeanwhile> + 'f {
    let is_answered = briefing.pull_request.is_some();
    facts
        .other
        .iter()
        .filter_map(move |(_, event)| match event {
            Event::RemarkTold { id, text: Some(_), thread, .. } if is_answered => {
                Some(ToldMeanwhile { id: *id, thread: thread.clone() })
            }
            _ => None,
        })
        .filter(|told| !matches!(told.id, RemarkId::Said(_)))
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
    format!("{}\n\n{}", headline(outcome), words(outcome, LONGEST_TEXT)).trim_end().to_owned()
}

/// The comment about remarks without a thread, without its marker. It fits into one of GitHub's, however many they are.
pub fn round(outcomes: &[(Outcome, Option<String>)]) -> String {
    let mut text = "What came of these remarks:\n".to_owned();
    let named = outcomes.len().min(MOST_IN_ROUND);
    let longest = (LONGEST_ROUND / named.max(1)).saturating_sub(LONGEST_NAME).min(LONGEST_TEXT);
    for (outcome, url) in &outcomes[..named] {
        let name = match url {
            Some(url) => format!("[{}]({url})", outcome.thread),
            None => outcome.thread.clone(),
        };
        let headline = match outcome.text.starts_with(NO_ANSWER) {
            true => UNANSWERED.to_owned(),
            false => headline(outcome),
        };
        text.push_str(&format!("\n**{name}**: {headline}\n\n{}\n", words(outcome, longest)));
    }
    if outcomes.len() > named {
        let more = outcomes.len() - named;
        text.push_str(&format!("\nAnd {more} more; the run's record (`run.json`) has all of them.\n"));
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

fn words(outcome: &Outcome, longest: usize) -> String {
    cut(&defused(&confined::block(&outcome.text), None), longest, "(cut)")
}

fn plain(id: &str) -> String {
    id.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '=')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comment_about_a_run_fits_into_one_of_githubs() {
        let outcome = |number: usize| Outcome {
            thread: format!("comment-{number}"),
            outcome: ThreadOutcome::Answered,
            text: "é".repeat(5_000),
            run: RunId(uuid::Uuid::nil()),
            base: None,
            commit: None,
            limitation: None,
            proven: true,
        };
        let url = Some(format!("https://github.com/{}/pull/1#issuecomment-1", "x".repeat(139)));
        for count in [1, 45, 120, 500] {
            let outcomes: Vec<_> = (0..count).map(|number| (outcome(number), url.clone())).collect();
            let text = round(&outcomes);
            assert!(text.chars().count() < 65_000, "{count}: {}", text.chars().count());
            assert!(text.contains("**[comment-0]("), "{text}");
            assert_eq!(text.contains("And 380 more"), count == 500);
        }
    }
}
