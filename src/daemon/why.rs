//! One issue explained, for `agentd why`: the facts, gathered by any process, and what follows from them by the rules that the scheduler asks.

use std::path::PathBuf;

use chrono::{DateTime, Utc};

use super::admission::Admission;
use super::dependencies::Watched;
use super::disk_room::DiskRoom;
use super::outlook::{Outlook, outlook};
use super::poll::{asking_label, seen};
use super::snapshot::{Facts, IssueRef, Lookup, Poll, Presence, Seen, Selection, WaitsForPerson, WorkedOnBy};
use super::start_rules::{Verdict, explain};
use super::state_format::DaemonState;
use super::status_format::{IssueStatus, Status};
use crate::domain::issue::IssueKey;
use crate::domain::issue_state::LabelsTable;
use crate::domain::money::Money;
use crate::domain::policy::ActorPermission;
use crate::domain::run::RunId;
use crate::domain::trace::SuspendedProposal;
use crate::github::{Client, ErrorKind};
use crate::issue::approval::Decision;
use crate::record::summary_text::short_hash;

/// What the caller knows beside GitHub.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The repository's entry.
    pub watched: Watched,
    /// Names of the labels.
    pub labels: LabelsTable,
    /// `github.min_permission`.
    pub min_permission: ActorPermission,
    /// Who holds the issue's lease, if somebody does.
    pub holder: Option<WorkedOnBy>,
    /// What a person has to do before anything goes on.
    pub waits_for: Option<WaitsForPerson>,
    /// What is spent of the issue's budget and how much that is, where it is used up.
    pub money_used_up: Option<(Money, Money)>,
    /// How the money of the day stands, in words; `None` = nothing of it is set aside, or there is no cap.
    pub day_money: Option<String>,
    /// Where records of runs are written.
    pub state_dir: PathBuf,
    /// The time.
    pub now: DateTime<Utc>,
}

/// Reads everything the rules ask about an issue. What cannot be read stands in the facts as such. `state`, `status`: what the daemon remembers, and what it said last if it lives.
pub async fn gather(
    client: &Client,
    (state, status): (&DaemonState, Option<&Status>),
    number: u64,
    around: Surroundings,
) -> Facts {
    let repo = around.watched.name.clone();
    let memory =
        state.repositories.get(&repo).and_then(|of| of.issues.get(&number)).cloned().unwrap_or_default();
    let polled = status.into_iter().flat_map(|status| &status.repositories).find(|of| of.repo == repo);
    let poll = match polled.map(|of| (of.error.clone(), of.polled_at)) {
        Some((Some(why), _)) => Poll::Failed(why),
        Some((None, Some(_))) => Poll::Fresh,
        Some((None, None)) | None => Poll::Never,
    };
    let pause = state.repositories.get(&repo).and_then(|of| of.pause.clone());
    let pause = pause.filter(|pause| pause.is_for(&memory));
    let mut facts = Facts {
        issue: IssueRef { repo: repo.clone(), number },
        poll,
        seen: Seen::Missing,
        selection: Selection::Trigger,
        labels: around.labels,
        pending_outcome: memory.pending_outcome,
        holder: around.holder,
        admission: Lookup::NotYet,
        min_permission: around.min_permission,
        dependencies: Lookup::NotYet,
        back_off: memory.back_off,
        goes_on: memory.goes_on,
        // Its poller knows, and says it.
        waits_for_definition: false,
        parked: memory.parked,
        waits_for: around.waits_for,
        is_round: false,
        money_used_up: around.money_used_up,
        day_money: around.day_money,
        pause,
        disk: DiskRoom::look(around.watched.place.as_ref(), &around.state_dir),
        now: around.now,
    };
    let snapshot = match client.issue(&repo, number).await {
        Ok(snapshot) => snapshot,
        Err(error) => {
            let unreadable = match error.kind {
                // Where the repository cannot be seen either, nobody can tell of its issues.
                ErrorKind::NotFound => client.repository(&repo).await.err(),
                ErrorKind::Gone | ErrorKind::Moved { .. } => None,
                ErrorKind::IsPullRequest => {
                    facts.seen = Seen::PullRequest;
                    None
                }
                _ => Some(error),
            };
            if let Some(why) = unreadable.map(|error| error.to_string()) {
                (facts.poll, facts.seen) = (Poll::Failed(why.clone()), Seen::Unreadable(why));
            }
            return facts;
        }
    };
    facts.seen = seen(&snapshot);
    if !snapshot.has_label(&facts.labels.trigger) {
        let swept = state
            .repositories
            .get(&repo)
            .is_some_and(|of| of.sweeping.iter().any(|one| one.id == snapshot.id));
        facts.selection = if swept { Selection::Sweep } else { Selection::Trigger };
    }
    let label =
        asking_label(&snapshot, &facts.selection, &facts.labels.trigger, &around.watched.sweep.labels)
            .map(str::to_owned);
    facts.admission = match Admission::ask(client, &snapshot, label.as_deref()).await {
        Ok(admission) => Lookup::Known(admission),
        Err(error) => Lookup::Failed(error.to_string()),
    };
    facts.dependencies = if around.watched.depends {
        match client.waits_for(&snapshot).await {
            Ok(found) => Lookup::Known(found),
            Err(error) => Lookup::Failed(error.to_string()),
        }
    } else {
        Lookup::Known(Vec::new())
    };
    facts
}

/// The code of an issue whose run was given to a node that has not begun it.
pub const OFFERED: &str = "offered";

/// A living node of a cluster, and whether it would take a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAnswer {
    /// Its name.
    pub node: String,
    /// `ok`, [`OFFERED`], or why it does not, as a word.
    pub code: &'static str,
    /// In words.
    pub answer: String,
}

/// The daemon of an issue, as it last spoke.
#[derive(Debug, Clone, Copy)]
pub struct AskedDaemon<'a> {
    /// Whether it starts runs.
    pub presence: Presence,
    /// Runs at work and as many as there may be: of all, and of the repository.
    pub slots: [(usize, usize); 2],
    /// What it says of the issue, which waits.
    pub says: Option<&'a IssueStatus>,
    /// In a cluster: what each node says to one more run.
    pub nodes: &'a [NodeAnswer],
}

/// What the last run of an issue left to people.
#[derive(Debug, Clone, Copy)]
pub struct LeftCalls<'a> {
    /// The run.
    pub run_id: RunId,
    /// The calls, and what was decided on them.
    pub calls: &'a [(&'a SuspendedProposal, Decision)],
    /// Whether the daemon goes on by itself once they are approved.
    pub goes_on: bool,
}

/// What the last run of an issue left to people, and what became of that.
#[derive(Debug, Clone, Default)]
pub struct Left<'a> {
    /// Calls.
    pub calls: Option<LeftCalls<'a>>,
    /// How it goes on with what was waited for and is decided.
    pub decided: Option<Outlook>,
    /// The rule that what ended it speaks of: see [`super::rule_of_end`].
    pub ended_by: Option<&'static str>,
}

/// The answer to `agentd why`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What becomes of the issue.
    pub outlook: Outlook,
    /// Every rule with its answer, in the order in which they are asked.
    pub rules: Vec<Verdict>,
}

impl Explanation {
    /// Of an issue and its daemon, and of what its last run left to people.
    pub fn of(facts: &Facts, daemon: AskedDaemon<'_>, left: Left<'_>) -> Self {
        let [all, own] = daemon.slots;
        let mut told = Self {
            outlook: outlook(facts, all, own, daemon.presence),
            rules: explain(facts, all, own, daemon.presence),
        };
        for verdict in &mut told.rules {
            // Nobody claims to know that it is well now.
            if verdict.passed() && left.ended_by == Some(verdict.rule) {
                "the last run ended for this; no other run waits for it".clone_into(&mut verdict.answer);
            }
        }
        // What only the daemon itself can know.
        if let Some(says) = daemon.says {
            told.hold_back("daemon_says", &says.code, &says.text);
        }
        if let Some(to) = daemon.nodes.iter().find(|one| one.code == OFFERED) {
            let words = format!("its run is offered to the node {}: {}", to.node, to.answer);
            told.hold_back("is_taken", OFFERED, &words);
        }
        told.with(facts.waits_for.as_ref(), left, daemon.says)
    }

    /// Of an issue from a file, which is in no tracker: people alone begin its runs.
    pub fn of_file(
        key: &IssueKey,
        holder: Option<&str>,
        waits_for: Option<&WaitsForPerson>,
        left: Left<'_>,
    ) -> Self {
        let what = "it is from a file: no label asks for a run of it";
        let outlook = match holder {
            Some(holder) => Outlook::Runs(format!("{holder} works on it")),
            None => Outlook::NeedsYou(what.to_owned(), key.run_command()),
        };
        let asked_for = Verdict { rule: "is_asked_for", code: NO_TRIGGER.into(), answer: what.to_owned() };
        Self { outlook, rules: vec![asked_for] }.with(waits_for, left, None)
    }

    /// What becomes of it, where no label asks for a run, because of what a run left to people, or of what the daemon is to begin.
    fn with(
        mut self,
        waits_for: Option<&WaitsForPerson>,
        left: Left<'_>,
        says: Option<&IssueStatus>,
    ) -> Self {
        let first = self.rules.iter().find(|verdict| !verdict.passed());
        // Where GitHub is away, nobody can say what its labels are.
        let is_unasked = first.is_some_and(|verdict| [NO_TRIGGER, POLL_FAILED].contains(&&*verdict.code));
        if matches!(self.outlook, Outlook::Runs(_)) || !is_unasked {
            return self;
        }
        // A run of the foreground parked it, or a follow-up run.
        let waits = waits_for.map(|waits| Outlook::NeedsYou(waits.what.clone(), waits.remedy.clone()));
        let calls = || left.calls.and_then(LeftCalls::outlook);
        let later =
            || says.filter(|says| says.is_later_follow_up()).map(|says| Outlook::Waits(says.text.clone()));
        if let Some(outlook) = waits.or(left.decided).or_else(calls).or_else(later) {
            self.outlook = outlook;
        }
        self
    }

    /// Whether every rule lets the issue start.
    pub fn starts(&self) -> bool {
        self.rules.iter().all(Verdict::passed)
    }

    /// One more answer, where all rules let the issue start.
    fn hold_back(&mut self, rule: &'static str, code: &str, words: &str) {
        if self.starts() {
            self.outlook = Outlook::Waits(words.to_owned());
            self.rules.push(Verdict { rule, code: code.to_owned().into(), answer: words.to_owned() });
        }
    }
}

/// The code of an issue that nothing asks for.
const NO_TRIGGER: &str = "no_trigger";
/// The code where GitHub could not be read.
const POLL_FAILED: &str = "poll_failed";

impl LeftCalls<'_> {
    /// What becomes of an issue whose only question is an approval. Whatever else stands in its way is said as it is.
    fn outlook(self) -> Option<Outlook> {
        let left = self;
        let resume = format!("agentd runs resume {}", left.run_id);
        if let Some((open, _)) = left.calls.iter().find(|(_, decision)| *decision == Decision::Open) {
            let (call, hash) = (open.call_text(), short_hash(&open.proposal_hash));
            let then = match left.goes_on {
                true => "; the daemon goes on by itself".to_owned(),
                false => format!(", then {resume}"),
            };
            let todo = format!("agentd approvals approve {hash} (or deny {hash}){then}");
            return Some(Outlook::NeedsYou(format!("a call waits for an approval: {call}"), todo));
        }
        let (call, _) = left.calls.first()?;
        let approved = left.calls.iter().any(|(_, decision)| matches!(decision, Decision::Approved(_)));
        Some(match approved {
            true if left.goes_on => {
                Outlook::Waits("its call is approved; the daemon goes on at its next look".to_owned())
            }
            true => Outlook::NeedsYou(format!("its call is approved: {}", call.call_text()), resume),
            false => Outlook::NeedsYou(format!("its call was denied: {}", call.call_text()), resume),
        })
    }
}
