//! What a commit of a run says.

use super::approved::RUN_TRAILER;
use crate::domain::outgoing::{commit_text, plain_line};
use crate::git::commit::CommitMessage;
use crate::lifecycle::closure;
use crate::lifecycle::run::Run;

/// Longest subject line of a commit, in characters.
const LONGEST_SUBJECT: usize = 72;

/// The issue's title, what the run says of its work, and the trailers.
pub fn of(run: &Run<'_>, summary: &str) -> CommitMessage {
    let issue = &run.plan.issue;
    let places = run.context.host_paths();
    let told = |text: &str| places.told(text).into_owned();
    let own = run.tracked_issue().filter(|_| closure::closes_by_merge(run, &run.journal.facts()));
    let suffix = run.tracked_issue().map(|number| format!(" (#{number})")).unwrap_or_default();
    let room = LONGEST_SUBJECT.saturating_sub(suffix.chars().count());
    // GitHub reads commit messages like comments. A merged one closes issues, notifies people and skips checks (D36).
    let subject = commit_text(&plain_line(&told(&run.without_secrets(&issue.title)), room), None);
    let mut trailers = vec![(RUN_TRAILER.to_owned(), run.lease.run_id.to_string())];
    trailers.extend(run.context.config.commit.trailers.iter().filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        Some((key.trim().to_owned(), value.trim().to_owned()))
    }));
    CommitMessage {
        subject: format!("{subject}{suffix}"),
        body: wrapped(&told(&run.without_secrets(&commit_text(summary, own)))),
        trailers,
    }
}

/// Paragraphs wrapped at 72 columns, lists left as they are.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    for line in text.trim().lines() {
        let mut column = 0;
        for word in line.split_whitespace() {
            let length = word.chars().count();
            if column > 0 && column + 1 + length > 72 {
                out.push('\n');
                column = 0;
            } else if column > 0 {
                out.push(' ');
                column += 1;
            }
            out.push_str(word);
            column += length;
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_body_is_wrapped_and_keeps_its_lines() {
        let long = "word ".repeat(30);
        let wrapped = wrapped(&format!("{long}\n\n- a list item\n- another"));
        assert!(wrapped.lines().all(|line| line.chars().count() <= 72), "{wrapped}");
        assert!(wrapped.ends_with("\n\n- a list item\n- another\n"), "{wrapped}");
    }
}
