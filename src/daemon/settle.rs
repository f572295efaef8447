//! Settling: what a run's end or a refusal leaves on the issue, written once, and again after a crash until it is there.

use super::board::IssueRef;
use super::state_format::Settling;
use crate::config::config_file::LabelsTable;
use crate::github::{Client, Error, ErrorKind, IssueState};

/// Writes the comment of a refusal, then the labels. An issue that is gone needs neither.
pub(super) async fn settle(
    client: &Client,
    issue: &IssueRef,
    wanted: &Settling,
    labels: &LabelsTable,
) -> Result<(), Error> {
    let snapshot = match client.issue(&issue.repo, issue.number).await {
        Ok(snapshot) => snapshot,
        Err(error)
            if error.is_absent() || matches!(error.kind, ErrorKind::Moved | ErrorKind::IsPullRequest) =>
        {
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    if let Some(why) = &wanted.refusal {
        let marker = format!("<!-- agentd:issue-{}:refusal -->", issue.number);
        let headline = match wanted.state {
            IssueState::Failed => "agentd did not finish its work on this issue.",
            _ => "agentd did not start on this issue.",
        };
        let text = format!(
            "**{headline}**\n\n{why}\n\nWhen that is settled, put the label `{}` on again.",
            labels.trigger
        );
        client.settle_comment(&issue.repo, issue.number, &marker, &text).await?;
    }
    client.settle_labels(&issue.repo, issue.number, &snapshot.issue.labels, wanted.state, labels).await
}
