//! The facts of one issue for `agentd why`, gathered by any process: the same facts, judged by the same rules.

use chrono::{DateTime, Utc};

use super::admission::Admission;
use super::dependencies::Watched;
use super::poll::{HEADROOM, asking_label, seen};
use super::snapshot::{Facts, IssueRef, Lookup, Poll, Seen, Selection, WaitsForPerson, WorkedOnBy};
use super::state_format::DaemonState;
use super::status_format::Status;
use crate::domain::issue_state::LabelsTable;
use crate::domain::money::Money;
use crate::domain::policy::ActorPermission;
use crate::github::{Client, Error, ErrorKind};
use crate::sys::files;

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
    /// The time.
    pub now: DateTime<Utc>,
}

/// Reads everything the rules ask about an issue. What cannot be read stands in the facts as such; only GitHub being out of
/// reach altogether is an error. `state`, `status`: what the daemon remembers, and what it said last if it lives.
pub async fn gather(
    client: &Client,
    (state, status): (&DaemonState, Option<&Status>),
    number: u64,
    around: Surroundings,
) -> Result<Facts, Error> {
    let repo = around.watched.name.clone();
    let memory =
        state.repositories.get(&repo).and_then(|of| of.issues.get(&number)).cloned().unwrap_or_default();
    let failing = status
        .into_iter()
        .flat_map(|status| &status.repositories)
        .find(|of| of.repo == repo)
        .and_then(|of| of.error.clone());
    let mut facts = Facts {
        issue: IssueRef { repo: repo.clone(), number },
        poll: failing.map_or(Poll::Fresh, Poll::Failed),
        seen: Seen::Missing,
        selection: Selection::Trigger,
        labels: around.labels,
        outcome_pending: memory.pending_outcome.is_some(),
        holder: around.holder,
        admission: Lookup::NotYet,
        min_permission: around.min_permission,
        dependencies: Lookup::NotYet,
        back_off: memory.back_off,
        // Its poller knows, and says it.
        waits_for_definition: false,
        parked: memory.parked,
        waits_for: around.waits_for,
        is_round: false,
        money_used_up: around.money_used_up,
        disk: around
            .watched
            .place
            .as_ref()
            .and_then(|(at, takes)| Some((files::disk_free(at)?, takes + HEADROOM))),
        now: around.now,
    };
    let snapshot = match client.issue(&repo, number).await {
        Ok(snapshot) => snapshot,
        Err(error) => match error.kind {
            ErrorKind::NotFound | ErrorKind::Gone | ErrorKind::Moved => return Ok(facts),
            ErrorKind::IsPullRequest => {
                facts.seen = Seen::PullRequest;
                return Ok(facts);
            }
            _ => return Err(error),
        },
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
    Ok(facts)
}
