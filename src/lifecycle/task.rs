//! What every visit's prompt ends with: the issue as fenced data, and the facts of the day (D67).

use super::run::Run;
use super::site::Site;
use crate::domain::untrusted::{FENCE_NOTE, LONGEST_INCOMING, fence, incoming, incoming_line};

/// Longest title shown to a model, in characters.
pub const LONGEST_TITLE: usize = 500;

/// The text. Nothing in the issue is expanded; its hidden characters and HTML comments are taken out (S-050).
pub fn text(run: &Run<'_>, site: &Site) -> String {
    let issue = &run.plan.issue;
    let title = incoming_line(&issue.title, LONGEST_TITLE);
    let body = incoming(&issue.body, LONGEST_INCOMING);
    let origin = &run.lease.mapping.origin;
    let mut text = format!(
        "---\n{FENCE_NOTE}\n\n{}\n\n{}\n\nFacts:\n- Date: {}\n- Repository: {}, branch {}, made from {} at {}\n",
        fence("issue title", &title),
        fence("issue body", &body),
        site.clock.now().format("%Y-%m-%d (%A)"),
        site.repo,
        run.lease.mapping.branch,
        origin.branch,
        origin.commit.short(),
    );
    let commands: Vec<String> =
        site.config.verify.commands.iter().map(|argv| format!("`{}`", argv.join(" "))).collect();
    if !commands.is_empty() {
        text.push_str(&format!("- Verify commands, run by the host at the end: {}\n", commands.join(", ")));
    }
    let taken = title.taken_out.hidden_characters + body.taken_out.hidden_characters;
    if taken > 0 || body.taken_out.cut > 0 {
        run.warn(
            "issue_text_cleaned",
            format!("{taken} hidden characters were taken out of the issue's text"),
        );
    }
    text
}
