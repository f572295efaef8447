//! What becomes of an issue, for people who ask: the first rule that says no, and what to do about it.

use super::snapshot::{Facts, Presence, Seen, WaitsForPerson, WorkedOnBy};
use super::start_rules::{Reason, in_one_sentence, refusal};

/// The code of an issue whose work a person has.
const GIVE_BACK: &str = "waits_for_give_back";

/// What becomes of an issue, for people who ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outlook {
    /// A run works on it.
    Runs(String),
    /// It goes on by itself.
    Waits(String),
    /// It stays as it is until somebody does something: what is the matter, and what to do.
    NeedsYou(String, String),
}

impl Outlook {
    /// The word in JSON.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Runs(_) => "runs",
            Self::Waits(_) => "waits",
            Self::NeedsYou(..) => "needs_you",
        }
    }

    /// What to do, where somebody has to.
    pub fn todo(&self) -> Option<&str> {
        match self {
            Self::NeedsYou(_, todo) => Some(todo),
            Self::Runs(_) | Self::Waits(_) => None,
        }
    }
}

impl std::fmt::Display for Outlook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Runs(what) => write!(f, "Runs: {what}."),
            Self::Waits(what) => write!(f, "Waits: {what}."),
            Self::NeedsYou(what, todo) => write!(f, "Needs you: {what}. Do: {todo}"),
        }
    }
}

/// What becomes of an issue, by the same rules.
pub(super) fn outlook(
    facts: &Facts,
    all: (usize, usize),
    repository: (usize, usize),
    daemon: Presence,
) -> Outlook {
    // Whatever labels say meanwhile: what runs, runs.
    if let Some(holder) = &facts.holder {
        return Outlook::Runs(match holder {
            WorkedOnBy::Here => "a run works on it".to_owned(),
            WorkedOnBy::Elsewhere(holder) => format!("{holder} works on it"),
        });
    }
    // Whatever its labels say: a person has the work.
    if let Some(WaitsForPerson { what, remedy, .. }) =
        facts.waits_for.as_ref().filter(|waits| waits.code == GIVE_BACK)
    {
        return Outlook::NeedsYou(what.clone(), remedy.clone());
    }
    let is_open = matches!(facts.seen, Seen::Issue { open: true, .. });
    if is_open && facts.has_label(&facts.labels.done) && !facts.has_label(&facts.labels.trigger) {
        let done = &facts.labels.done;
        return Outlook::Waits(format!(
            "a run has ended well on it (\"{done}\"); what becomes of its work is a person's to say"
        ));
    }
    let goes_on = facts.goes_on.as_ref().filter(|_| is_open && !facts.has_label(&facts.labels.trigger));
    if let Some(when) = goes_on.map(|later| later.when(facts.now)) {
        let why = facts.pause.as_ref().map(|pause| format!(": {}", in_one_sentence(&pause.text)));
        return Outlook::Waits(format!(
            "its last run is gone on with by itself {when}{}",
            why.unwrap_or_default()
        ));
    }
    let Some(reason) = refusal(facts, all, repository, daemon) else {
        return Outlook::Waits("nothing stands in its way; the daemon starts it at its next look".to_owned());
    };
    if let Reason::NoTrigger { label, parked: Some((code, why)) } = &reason {
        let what = format!("the label \"{label}\" was taken off ({code}): {}", in_one_sentence(why));
        return Outlook::NeedsYou(what, reason.todo(facts).unwrap_or_default());
    }
    let told = reason.to_string();
    // What follows is said as what to do.
    let what = told.split(';').next().unwrap_or(&told).trim_end_matches('.').to_owned();
    match reason.todo(facts) {
        // It ends by itself, whatever somebody can do about it.
        Some(todo) if matches!(reason, Reason::Paused(_)) => Outlook::Waits(format!("{what}; {todo}")),
        Some(todo) => Outlook::NeedsYou(what, todo),
        None => Outlook::Waits(what),
    }
}
