//! The issue itself: title and body as they count.

use chrono::{DateTime, Utc};

use super::drafting::Drafting;
use super::source::{Source, shown as time_shown};
use crate::conversation::standing::{JudgedStanding, People};
use crate::domain::briefing::{Block, BriefedText, Fate};
use crate::domain::canonical::sha256_hex;
use crate::domain::fold::folded;
use crate::domain::refusal::Refusal;
use crate::domain::remark::Standing;
use crate::domain::shown_markdown::{QUOTE_BEGINS, QUOTE_ENDS, shown, shown_line};
use crate::domain::text_revision::TextChange;
use crate::domain::untrusted::{Incoming, LONGEST_INCOMING, fence_with, without_marks};
use crate::github::Error;

/// Longest title shown to a model, in characters.
pub const LONGEST_TITLE: usize = 500;

/// Writes title and body, whoever wrote them: somebody asked for this issue.
///
/// # Errors
/// GitHub did not say how whoever wrote them stands.
pub async fn write(
    draft: &mut Drafting<'_>,
    source: &Source<'_>,
    mut people: Option<&mut People<'_>>,
) -> Result<(), Refusal> {
    let issue = source.issue;
    let title = shown_line(&issue.title, LONGEST_TITLE);
    let mut body = shown(&issue.body);
    body.text = body.text.replace([QUOTE_BEGINS, QUOTE_ENDS], "");
    let revision = source.text;
    let changes = [
        ("issue_title", revision.and_then(|text| text.title.as_ref()), title),
        ("issue_body", revision.and_then(|text| text.body.as_ref()), body),
    ];
    for (kind, change, text) in changes {
        let judged = match &mut people {
            Some(people) => Some(judged(people, issue.author.as_deref(), change).await?),
            None => None,
        };
        one(draft, source, (kind, change, judged), &text);
    }
    Ok(())
}

/// The lower standing of author and last editor.
async fn judged(
    people: &mut People<'_>,
    author: Option<&str>,
    change: Option<&TextChange>,
) -> Result<JudgedStanding, Error> {
    let by_author = people.account(author, false).await?;
    match change.map(|change| change.by.as_deref()) {
        Some(by) if by != author => {
            let by_editor = people.account(by, false).await?;
            Ok(JudgedStanding { standing: by_author.standing.min(by_editor.standing), ..by_author })
        }
        _ => Ok(by_author),
    }
}

fn one(
    draft: &mut Drafting<'_>,
    source: &Source<'_>,
    (kind, change, judged): (&str, Option<&TextChange>, Option<JudgedStanding>),
    text: &Incoming,
) {
    let issue = source.issue;
    let id = format!("issue-{}", issue.key);
    let whole = draft.redacted(&text.text);
    let fold = folded(&whole, LONGEST_INCOMING);
    let told = fold.as_ref().map_or_else(|| whole.clone(), |fold| fold.text());
    let standing = judged.map(|judged| judged.standing);
    let after = change
        .filter(|change| is_after(change, source))
        .map(|change| format!("edited by {} at {}", change.by.as_deref().unwrap_or("somebody"), change.at));
    let opened = source.opened.map(time_shown).unwrap_or_default();
    let attributes = [
        ("kind", kind),
        ("login", issue.author.as_deref().unwrap_or_default()),
        ("standing", standing.map_or("", Standing::as_str)),
        ("time", &opened),
        ("note", after.as_deref().unwrap_or_default()),
    ];
    draft.add(Block::IssueBody, &fence_with(&attributes, &id, &without_marks(&told), text.taken_out));
    if fold.is_some() && standing == Some(Standing::Trusted) {
        draft.keep_untold(&id, &whole);
    }
    draft.note(BriefedText {
        kind: kind.to_owned(),
        id,
        url: issue.url.clone(),
        login: issue.author.clone(),
        standing,
        permission: judged.and_then(|judged| judged.permission).map(|may| may.as_str().to_owned()),
        created: source.opened.map(time_shown),
        edited: change.map(|change| change.at.clone()),
        sha256: sha256_hex(whole.as_bytes()),
        characters: whole.chars().count(),
        fate: if fold.is_some() { Fate::Folded } else { Fate::Told },
        why: fold.is_some().then(|| "too_long".to_owned()),
    });
}

fn is_after(change: &TextChange, source: &Source<'_>) -> bool {
    let at = change.at.parse::<DateTime<Utc>>().ok();
    match (source.asked, at) {
        (Some(asked), Some(at)) => {
            !crate::conversation::issue_text::stood_then(at, change.by.as_deref(), asked)
        }
        _ => false,
    }
}
