//! The end of every visit's prompt: the issue as fenced data, and the facts of the day (D67).

use super::run::Run;
use crate::domain::run_output::FailureRecord;
use crate::domain::untrusted::{FENCE_NOTE, LONGEST_INCOMING, fence, incoming, incoming_line};
use crate::repository::context::RepositoryContext;

/// Longest title shown to a model, in characters.
pub const LONGEST_TITLE: usize = 500;

/// The text. Nothing in the issue is expanded. Its hidden characters and HTML comments are removed (S-050).
pub fn text(run: &Run<'_>, context: &RepositoryContext, prior_failures: &[FailureRecord]) -> String {
    let issue = &run.plan.issue;
    let title = incoming_line(&issue.title, LONGEST_TITLE);
    let body = incoming(&issue.body, LONGEST_INCOMING);
    let origin = &run.lease.mapping.origin;
    let mut text = format!(
        "---\n{FENCE_NOTE}\n\n{}\n\n{}\n\nFacts:\n- Date: {}\n- Repository: {}, branch {}, made from {} at {}\n",
        fence("issue title", &title),
        fence("issue body", &body),
        context.clock.now().format("%Y-%m-%d (%A)"),
        context.repo,
        run.lease.mapping.branch,
        origin.branch,
        origin.commit.short(),
    );
    let commands: Vec<String> =
        context.config.verify.commands.iter().map(|argv| format!("`{}`", argv.join(" "))).collect();
    if !commands.is_empty() {
        text.push_str(&format!("- Verify commands, run by the host at the end: {}\n", commands.join(", ")));
    }
    if !prior_failures.is_empty() {
        let lines: Vec<String> = prior_failures
            .iter()
            .map(|failure| {
                let times =
                    if failure.count == 1 { "once".to_owned() } else { format!("{} times", failure.count) };
                format!(
                    "{} ({times}, last in visit {}): {}",
                    failure.failure_id, failure.last_visit, failure.signal
                )
            })
            .collect();
        let lines = incoming(&lines.join("\n"), LONGEST_INCOMING);
        text.push_str(&format!(
            "\nWhat went wrong in earlier runs of this issue; do not run into it again:\n\n{}\n",
            fence("earlier failures", &lines)
        ));
    }
    if let Some(follow_up) = &run.plan.request.follow_up {
        text.push_str(&format!(
            "\nThe issue has a pull request already; the work is on this branch. What has to be put right now:\n\n{follow_up}"
        ));
    }
    let taken = title.taken_out.hidden_characters + body.taken_out.hidden_characters;
    if taken > 0 || body.taken_out.cut > 0 {
        run.journal.warn(
            "issue_text_cleaned",
            format!("{taken} hidden characters were taken out of the issue's text"),
        );
    }
    text
}
