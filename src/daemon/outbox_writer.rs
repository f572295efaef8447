//! Writes the outcome of a run or a refusal to the issue, once, and after a crash again until it is there.

use std::sync::Arc;

use super::snapshot::IssueRef;
use super::state_format::{PendingOutcome, UntoldRun};
use crate::domain::issue::IssueKey;
use crate::domain::issue_state::{IssueState, LabelsTable};
use crate::github::{Client, Error, ErrorKind};
use crate::issue::{refusal_comment, shown_lease, status_comment, unwanted};
use crate::record::rendering;
use crate::store::Store;

/// What was found where an outcome was written.
pub(super) enum Written {
    /// The labels said this before.
    Labels {
        /// `None` = nothing.
        before: Option<IssueState>,
        /// Why GitHub did not take what its comment is to say, where it will not take it at once either.
        untold: Option<Error>,
    },
    /// The issue is not there any more.
    Gone {
        /// What became of it, where that is certain.
        became: Option<String>,
    },
}

/// Writes the comment of a refusal, then the labels. An issue that is gone needs neither.
pub(super) async fn write_outcome(
    client: &Client,
    store: &Arc<dyn Store>,
    issue: &IssueRef,
    wanted: &PendingOutcome,
    labels: &LabelsTable,
) -> Result<Written, Error> {
    let snapshot = match client.issue(&issue.repo, issue.number).await {
        Ok(snapshot) => snapshot,
        Err(error) if error.is_not_here() || error.kind == ErrorKind::IsPullRequest => {
            return Ok(Written::Gone { became: unwanted::what_became(&error) });
        }
        Err(error) => return Err(error),
    };
    let before = IssueState::ALL.iter().copied().find(|state| snapshot.has_label(labels.of(*state)));
    if let Some(why) = &wanted.refusal {
        let again = format!("When that is settled, put the label `{}` on again.", labels.trigger);
        // The status comment of a run that had begun says that work goes on (D75). This ends it.
        let (repo, number) = (&issue.repo, issue.number);
        match wanted.state {
            IssueState::Failed => {
                let text = format!("**agentd did not finish its work on this issue.**\n\n{why}\n\n{again}");
                status_comment::ensure(client, store, (repo, number), &text).await?;
            }
            IssueState::Done => {
                let text = format!("**agentd is done with this issue.**\n\n{why}");
                status_comment::ensure(client, store, (repo, number), &text).await?;
            }
            _ => refusal_comment::ensure(client, (repo, number), why, &again).await?,
        }
    }
    let (current, end) = (snapshot.issue.labels, (wanted.state, wanted.answers));
    client.ensure_end_labels(&issue.repo, issue.number, current, end, labels).await?;
    let told = match &wanted.run {
        Some(run) => tell_untold(client, store, issue, run).await,
        None => Ok(()),
    };
    match told {
        Ok(()) => Ok(Written::Labels { before, untold: None }),
        Err(error) if error.is_transient() || error.is_ambiguous() => Err(error),
        // GitHub takes the labels, and no comment: the issue does not wait for that.
        Err(error) => Ok(Written::Labels { before, untold: Some(error) }),
    }
}

/// The status comment of a run whose end GitHub did not take from it says how it ended, unless it does.
pub(super) async fn tell_untold(
    client: &Client,
    store: &Arc<dyn Store>,
    issue: &IssueRef,
    run: &UntoldRun,
) -> Result<(), Error> {
    let marker = rendering::marker(&IssueKey::Number(issue.number));
    let found = match client.find_comment(&issue.repo, issue.number, &marker).await {
        // Nobody reads it where the issue is not any more.
        Err(error) if error.is_not_here() => return Ok(()),
        found => found?,
    };
    let UntoldRun { run_id, message, pull_request } = run;
    let is_told = |body: &str| body.contains(&run_id.to_string()) && !shown_lease::shows_work(body);
    if found.is_some_and(|found| is_told(&found.body)) {
        return Ok(());
    }
    let pull = pull_request.as_ref().map_or_else(String::new, |url| format!("Pull request: {url}\n\n"));
    let text = format!(
        "**agentd has ended its work on this issue.** {message}\n\n{pull}GitHub did not take the whole report when the run ended. \
         Where it ran, `agentd runs show {run_id}` has it.\n"
    );
    match status_comment::ensure(client, store, (&issue.repo, issue.number), &text).await {
        Ok(_) => Ok(()),
        // Nothing is written where people locked the conversation, and the labels say how it ended.
        Err(error) if error.is_locked() => Ok(()),
        // The words themselves are refused: the same is refused again.
        Err(error) if error.kind == ErrorKind::Validation => {
            tracing::warn!(%issue, %run_id, %error, detail = error.technical(), "the issue's status comment does not say how its run ended");
            Ok(())
        }
        Err(error) => Err(error),
    }
}
