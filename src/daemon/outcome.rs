//! What follows from the end of a run: labels, a comment, another try, or nothing.

use chrono::{DateTime, Utc};

use crate::domain::issue_state::IssueState;
use crate::domain::money::Money;
use crate::domain::run::RunId;
use crate::domain::stop::{Stop, StopDetail};

/// What the run pipeline reports about a run, or about a start without a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSummary {
    /// The run; `None` = refused before one existed.
    pub run_id: Option<RunId>,
    /// Why it ended.
    pub stop: Stop,
    /// Web address of the pull request, where there is one.
    pub pull_request: Option<String>,
    /// What people had given the issue beyond its budget, as far as the run heard of it.
    pub given: Money,
    /// Whether the run itself has made the issue say how it ended: its labels, and its status comment.
    pub written_back: bool,
    /// Whether it failed before its first visit, or no model answered in it: nobody has worked on what it was for.
    pub failed_before_work: bool,
    /// Whether its work is done and not published, because another service could not be reached.
    pub unpublished: bool,
    /// When its flow ended: what met it then was said of that moment.
    pub flow_ended_at: Option<DateTime<Utc>>,
    /// The newest run of the issue, where what that one did is of another definition than the node's.
    pub other_definition: Option<RunId>,
}

impl From<Stop> for RunSummary {
    /// Of a run that there is not.
    fn from(stop: Stop) -> Self {
        Self {
            run_id: None,
            stop,
            pull_request: None,
            given: Money::ZERO,
            written_back: false,
            failed_before_work: false,
            unpublished: false,
            flow_ended_at: None,
            other_definition: None,
        }
    }
}

impl RunSummary {
    /// Number of the pull request, where there is one.
    pub fn pull_number(&self) -> Option<u64> {
        self.pull_request.as_deref()?.trim_end_matches('/').rsplit('/').next()?.parse().ok()
    }
}

/// What to do about the issue now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Afterwards {
    /// Set its labels; with a comment if no run could write one (D31).
    Write {
        /// The end.
        state: IssueState,
        /// Public text of a refusal.
        refusal: Option<String>,
    },
    /// Nothing was begun and it may go better later.
    TryAgain {
        /// Whether this counts as a failure that at last needs a person.
        counts: bool,
    },
    /// The daemon was stopped: the trigger stays, so that the next one goes on with it (D37, D69).
    Leave,
}

/// Decides what follows.
pub fn afterwards(summary: &RunSummary) -> Afterwards {
    let write = |state, refusal| Afterwards::Write { state, refusal };
    let refused = || write(IssueState::Attention, Some(summary.stop.message.clone()));
    if summary.run_id.is_none() {
        return match summary.stop.detail {
            StopDetail::Completed | StopDetail::CompletedForcedFinal => write(IssueState::Done, None),
            StopDetail::BranchBusy | StopDetail::StoreUnavailable => Afterwards::TryAgain { counts: false },
            StopDetail::GithubError | StopDetail::GitError | StopDetail::OutputWriteFailed => {
                Afterwards::TryAgain { counts: true }
            }
            StopDetail::Shutdown | StopDetail::UserAbort => Afterwards::Leave,
            // Cut off and not wanted any more (D37). The run had begun, so it failed, and the comment says so.
            StopDetail::Interrupted => write(IssueState::Failed, Some(summary.stop.message.clone())),
            // A panic: something may have begun, so it is no refusal.
            StopDetail::Internal => write(IssueState::Failed, Some(summary.stop.message.clone())),
            _ => refused(),
        };
    }
    IssueState::after(summary.stop.detail).map_or(Afterwards::Leave, |state| write(state, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::stop::StopReason;

    fn of(detail: StopDetail, started: bool) -> Afterwards {
        let run_id = started.then(|| RunId(uuid::Uuid::nil()));
        afterwards(&RunSummary { run_id, ..Stop::new(detail, "words").into() })
    }

    fn written(state: IssueState) -> Afterwards {
        Afterwards::Write { state, refusal: None }
    }

    #[test]
    fn d6_every_end_of_a_run_has_its_label_and_a_shutdown_has_none() {
        for detail in StopDetail::ALL {
            let expected = match detail.reason() {
                _ if matches!(detail, StopDetail::Shutdown | StopDetail::Overtaken) => Afterwards::Leave,
                _ if detail.parks() => written(IssueState::NeedsInput),
                StopReason::ObjectiveAchieved => written(IssueState::Done),
                StopReason::NoEvidence => written(IssueState::NoEvidence),
                StopReason::HumanRequested => written(IssueState::Attention),
                StopReason::BudgetExceeded | StopReason::SystemError => written(IssueState::Failed),
            };
            assert_eq!(of(*detail, true), expected, "{detail}");
        }
    }

    #[test]
    fn d31_a_refused_start_is_told_to_people_and_a_busy_branch_is_only_waited_for() {
        let told = Afterwards::Write { state: IssueState::Attention, refusal: Some("words".into()) };
        for detail in [
            StopDetail::OriginUnresolved,
            StopDetail::OriginMissing,
            StopDetail::ConfigInvalid,
            StopDetail::MappingConflict,
            StopDetail::PolicyDenied,
        ] {
            assert_eq!(of(detail, false), told, "{detail}");
        }
        assert_eq!(of(StopDetail::BranchBusy, false), Afterwards::TryAgain { counts: false });
        assert_eq!(of(StopDetail::GithubError, false), Afterwards::TryAgain { counts: true });
    }
}
