//! Which text of an issue counts: the one at the time when somebody with permission asked for the run.
//!
//! Whoever added the label has read the issue as it was then. Its author, who may be anybody, can change it afterwards.
//! So title and body count as they were at that time. A later change counts only if its author may ask for runs too;
//! then the whole text after it counts. If the earlier text cannot be known any more, the run is refused.

use chrono::{DateTime, SecondsFormat, Utc};

use super::standing::People;
use crate::domain::issue::Issue;
use crate::domain::refusal::Refusal;
use crate::domain::stop::StopDetail;
use crate::domain::text_revision::{AskedHow, TextChange, TextRevision};
use crate::github::{Client, Edit, Rename, TextHistory};
use crate::issue::reference::Asked;
use crate::record::summary_text::counted;
use crate::repository::context::RepositoryContext;

/// Sets title and body to the revision that counts, and says which one it is. If nobody asked on GitHub, the operator
/// asks now and the present text counts.
pub async fn as_asked(
    issue: &mut Issue,
    asked: Option<&Asked>,
    github: &Client,
    context: &RepositoryContext,
) -> Result<TextRevision, Refusal> {
    let Some(asked) = asked else {
        let operator = AskedHow::Operator;
        return Ok(TextRevision {
            asked: operator,
            by: None,
            at: None,
            title: None,
            body: None,
            left_out: 0,
        });
    };
    let number = issue.key.number().unwrap_or_default();
    let history = github.text_history(&context.repo, number).await?;
    let mut people = People::new(github, context, issue.author.as_deref());
    if !history.whole {
        return Err(unknown(issue, asked, "it was changed too often for its history to be read"));
    }
    let Some((body, edit)) = body(&history, asked, &mut people).await? else {
        return Err(unknown(issue, asked, "GitHub does not show what the body was then"));
    };
    let (title, rename) = title(&history, asked, &mut people).await?;
    let after = |at: &DateTime<Utc>, counts: Option<DateTime<Utc>>| *at >= asked.at && Some(*at) > counts;
    let since = |change: &Option<TextChange>| change.as_ref().and_then(|change| change.at.parse().ok());
    let (edited, renamed) = (since(&edit), since(&rename));
    // The revision that an issue was opened with is no change of it.
    let edits = history.edits.iter().filter(|edit| edit.at > history.created_at);
    let left_out = edits.filter(|edit| after(&edit.at, edited)).count()
        + history.renames.iter().filter(|rename| after(&rename.at, renamed)).count();
    (issue.title, issue.body) = (title, body);
    Ok(TextRevision {
        asked: asked.how,
        by: asked.by.clone(),
        at: Some(shown(asked.at)),
        title: rename,
        body: edit,
        left_out,
    })
}

/// Whether somebody who may ask for runs has changed the text since it was read for a run; then the last such change, in words.
pub async fn changed_since(
    issue: &Issue,
    asked: &Asked,
    github: &Client,
    context: &RepositoryContext,
) -> Result<Option<String>, Refusal> {
    let mut now = issue.clone();
    let text = as_asked(&mut now, Some(asked), github, context).await?;
    let (title, body) = (now.title != issue.title, now.body != issue.body);
    if !title && !body {
        return Ok(None);
    }
    let changes = [text.title.filter(|_| title), text.body.filter(|_| body)];
    let last = changes.into_iter().flatten().max_by(|one, other| one.at.cmp(&other.at));
    let by = last.as_ref().and_then(|last| last.by.as_deref()).unwrap_or("somebody");
    let at = last.as_ref().map(|last| format!(" at {}", last.at)).unwrap_or_default();
    Ok(Some(format!(
        "The issue's text was changed by {by}{at}, after the run had read it: what was worked on is the text from before. To have \
         the new text worked on, put the label on again."
    )))
}

/// What people are told of changes that do not count; `None` = there are none.
pub fn left_out(text: &TextRevision) -> Option<String> {
    (text.left_out > 0).then(|| {
        let by = text.by.as_deref().unwrap_or("somebody");
        let at = text.at.as_deref().unwrap_or_default();
        format!(
            "The issue was changed after {by} asked for the run at {at}, by people who may not ask for runs: what is worked on is \
             its text as it was then ({} left out). To have the new text worked on, put the label on again.",
            counted(text.left_out, "change")
        )
    })
}

/// The body that counts, and the edit that it comes from. `None` = it is not known.
async fn body(
    history: &TextHistory,
    asked: &Asked,
    people: &mut People<'_>,
) -> Result<Option<(String, Option<TextChange>)>, Refusal> {
    let edits = &history.edits;
    if edits.is_empty() {
        // Edited, and nothing is left of what there was.
        return Ok((!history.edited).then(|| (history.body.clone(), None)));
    }
    let opened_with = |edit: &Edit| edit.at <= history.created_at;
    let stood =
        edits.iter().rposition(|edit| stood_then(edit.at, edit.by.as_deref(), asked) || opened_with(edit));
    let mut counts = stood;
    for (place, edit) in edits.iter().enumerate().skip(stood.map_or(0, |place| place + 1)).rev() {
        if people.trusts(edit.by.as_deref()).await? {
            counts = Some(place);
            break;
        }
    }
    let Some(place) = counts else { return Ok(None) };
    let edit = &edits[place];
    let change = (!opened_with(edit)).then(|| TextChange { at: shown(edit.at), by: edit.by.clone() });
    if place + 1 == edits.len() {
        return Ok(Some((history.body.clone(), change)));
    }
    Ok(people.github().text_of_edit(&edit.id).await?.map(|text| (text, change)))
}

/// Whether a change stood already when the run was asked for. GitHub's times are whole seconds: a change in the same second
/// may have come later, except that nobody asks before having finished writing.
pub fn stood_then(changed: DateTime<Utc>, by: Option<&str>, asked: &Asked) -> bool {
    let second = asked.at.timestamp();
    let own = matches!((by, &asked.by), (Some(by), Some(asker)) if by.eq_ignore_ascii_case(asker));
    changed.timestamp() < second || (own && changed.timestamp() == second)
}

/// The title that counts and the change that it comes from.
async fn title(
    history: &TextHistory,
    asked: &Asked,
    people: &mut People<'_>,
) -> Result<(String, Option<TextChange>), Refusal> {
    let change = |rename: &Rename| TextChange { at: shown(rename.at), by: rename.by.clone() };
    let stood = history.renames.iter().rposition(|rename| stood_then(rename.at, rename.by.as_deref(), asked));
    let later = &history.renames[stood.map_or(0, |place| place + 1)..];
    for rename in later.iter().rev() {
        if people.trusts(rename.by.as_deref()).await? {
            return Ok((rename.to.clone(), Some(change(rename))));
        }
    }
    let title = later.first().map_or(&history.title, |first| &first.from);
    Ok((title.clone(), stood.map(|place| change(&history.renames[place]))))
}

fn unknown(issue: &Issue, asked: &Asked, why: &str) -> Refusal {
    let by = asked.by.as_deref().unwrap_or("somebody");
    Refusal::new(
        StopDetail::TextChanged,
        format!(
            "The text of issue {} was changed after {by} asked for the run at {}, and {why}.",
            issue.key,
            shown(asked.at)
        ),
    )
    .hint("read the issue as it is now, take the label off and put it on again: then this text counts")
}

fn shown(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}
