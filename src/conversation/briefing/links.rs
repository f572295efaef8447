//! What the issue is linked with, and issues of the same repository that trusted texts name.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::drafting::Drafting;
use super::heard::AllHeard;
use super::source::{Source, shown as time_shown};
use crate::conversation::standing::People;
use crate::domain::briefing::{Block, BriefedText, Fate};
use crate::domain::canonical::sha256_hex;
use crate::domain::fold::folded;
use crate::domain::refusal::Refusal;
use crate::domain::remark::Standing;
use crate::domain::shown_markdown::{QUOTE_BEGINS, QUOTE_ENDS, shown, shown_line};
use crate::domain::untrusted::{fence, fence_with, plain, without_marks};
use crate::github::{Client, LinkedIssue};
use crate::repository::context::RepositoryContext;

/// Characters of a named issue that are told.
const LONGEST: usize = 2_000;
const LONGEST_TITLE: usize = 200;

/// The numbers of issues that the issue's text and trusted remarks name, in their order. The text counts where a trusted
/// person wrote it or asked for it to be worked on.
pub fn named_in(
    draft: &Drafting<'_>,
    source: &Source<'_>,
    heard: &AllHeard,
    context: &RepositoryContext,
) -> Vec<u64> {
    let body_is_trusted =
        draft.texts.iter().any(|text| text.kind == "issue_body" && text.standing == Some(Standing::Trusted));
    let body = body_is_trusted.then_some(source.issue.body.as_str());
    let threads = heard.threads.iter().flat_map(|thread| &thread.comments);
    let said = heard.remarks.iter().chain(threads);
    let trusted = said.filter(|one| one.left_out.is_none() && one.judged.standing == Standing::Trusted);
    let own = source.tracked.into_iter().chain(heard.pull);
    let mut known: BTreeSet<u64> = own.collect();
    let mut found = Vec::new();
    for text in body.into_iter().chain(trusted.map(|one| one.remark.text.as_str())) {
        for number in numbers(&shown(text).text, &context.repo.to_string()) {
            if found.len() < context.config.conversation.max_links && known.insert(number) {
                found.push(number);
            }
        }
    }
    found
}

/// `#12`, `owner/name#12` and addresses of issues of this repository. What is in a quote is somebody else's.
fn numbers(text: &str, repo: &str) -> Vec<u64> {
    static NAMED: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r"(?i)(?:https?://[^/\s]+/([\w.-]+/[\w.-]+)/(?:issues|pull)/|([\w.-]+/[\w.-]+)?#)([0-9]{1,9})\b",
        )
        .ok()
    });
    let Some(named) = NAMED.as_ref() else { return Vec::new() };
    let mut own = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(QUOTE_BEGINS) {
        own.push_str(&rest[..at]);
        rest = rest[at..].split_once(QUOTE_ENDS).map_or("", |(_, rest)| rest);
    }
    own.push_str(rest);
    let found = named.captures_iter(&own).filter(|found| {
        let other = found.get(1).or_else(|| found.get(2));
        let begins = found.get(0).map_or(0, |whole| whole.start());
        let glued = own[..begins].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '&');
        !glued && other.is_none_or(|other| other.as_str().eq_ignore_ascii_case(repo))
    });
    found.filter_map(|found| found[3].parse().ok()).collect()
}

/// Writes the links. What GitHub does not give is left out: no task depends on it.
///
/// # Errors
/// None today; GitHub's refusals are noted in the log.
pub async fn write(
    draft: &mut Drafting<'_>,
    (number, pull): (u64, Option<u64>),
    named: &[u64],
    people: &mut People<'_>,
    context: &RepositoryContext,
) -> Result<(), Refusal> {
    let github = people.github();
    match github.issue_links(&context.repo, number).await {
        Ok(links) => {
            let own = context.repo.to_string();
            let mut lines: Vec<String> =
                links.parent.iter().map(|issue| format!("Part of {}", line(issue, &own))).collect();
            for (what, (issues, more)) in [("Its part", links.sub_issues), ("Blocked by", links.blocked_by)] {
                lines.extend(issues.iter().map(|issue| format!("{what} {}", line(issue, &own))));
                if more > 0 {
                    lines.push(format!("… and {more} more"));
                }
            }
            if !lines.is_empty() {
                let lines = draft.redacted(&lines.join("\n"));
                draft.add(Block::IssueLinks, &fence("links of the issue", &plain(&lines, usize::MAX)));
            }
        }
        Err(error) => tracing::info!(%error, "the links of an issue could not be read"),
    }
    let known = [Some(number), pull];
    for number in named.iter().filter(|number| !known.contains(&Some(**number))) {
        one(draft, *number, github, people, context).await;
    }
    Ok(())
}

fn line(issue: &LinkedIssue, own: &str) -> String {
    let elsewhere = if issue.repo.eq_ignore_ascii_case(own) { "" } else { issue.repo.as_str() };
    let state = if issue.open { "open" } else { "closed" };
    format!("{elsewhere}#{} ({state}): {}", issue.number, shown_line(&issue.title, LONGEST_TITLE).text)
}

/// An issue that a text names, as data.
async fn one(
    draft: &mut Drafting<'_>,
    number: u64,
    github: &Client,
    people: &mut People<'_>,
    context: &RepositoryContext,
) {
    let snapshot = match github.issue(&context.repo, number).await {
        Ok(snapshot) => snapshot,
        Err(error) => {
            tracing::debug!(%error, number, "an issue that a text names could not be read");
            return;
        }
    };
    let issue = snapshot.issue;
    let judged = match people.account(issue.author.as_deref(), false).await {
        Ok(judged) => judged,
        Err(error) => {
            tracing::debug!(%error, number, "how the author of an issue that a text names stands could not be read");
            return;
        }
    };
    let clean = shown(&issue.body);
    let body = clean.text.replace([QUOTE_BEGINS, QUOTE_ENDS], "");
    let state = if issue.open { "open" } else { "closed" };
    let whole = draft.redacted(&format!("{}\n\n{body}", shown_line(&issue.title, LONGEST_TITLE).text));
    let fold = folded(&whole, LONGEST);
    let told = fold.as_ref().map_or_else(|| whole.clone(), |fold| fold.text());
    let (id, created) = (format!("issue-{number}"), snapshot.created_at.map(time_shown));
    let attributes = [
        ("kind", "linked_issue"),
        ("login", issue.author.as_deref().unwrap_or_default()),
        ("standing", judged.standing.as_str()),
        ("time", created.as_deref().unwrap_or_default()),
        ("state", state),
    ];
    draft.add(Block::IssueLinks, &fence_with(&attributes, &id, &without_marks(&told), clean.taken_out));
    draft.note(BriefedText {
        kind: "linked_issue".to_owned(),
        id,
        url: issue.url,
        login: issue.author,
        standing: Some(judged.standing),
        permission: judged.permission.map(|may| may.as_str().to_owned()),
        created,
        edited: None,
        sha256: sha256_hex(whole.as_bytes()),
        characters: whole.chars().count(),
        fate: if fold.is_some() { Fate::Folded } else { Fate::Told },
        why: fold.is_some().then(|| "too_long".to_owned()),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_issues_of_the_same_repository_are_found_and_not_those_in_quotes() {
        let text = format!(
            "see #12, o/r#13 and https://github.com/o/r/issues/14#x, not x/y#15, a#16, &#17; or \
             https://github.com/x/y/issues/18\n{QUOTE_BEGINS}> #19\n{QUOTE_ENDS}(#20)"
        );
        assert_eq!(numbers(&text, "O/R"), [12, 13, 14, 20]);
    }
}
