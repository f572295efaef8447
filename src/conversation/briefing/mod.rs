//! The briefing of a run: what GitHub and the repository say when it was asked for, frozen before its first model request.
//!
//! `heard` reads remarks and decides which of them count, and in which version; `received` folds them to their budget
//! and fences them; `links`, `rules` and `template` read what stands around the issue. Nothing here is read again later.

mod checks_block;
mod drafting;
mod folding;
mod heard;
mod images;
mod issue_block;
mod links;
mod received;
pub mod rules;
mod source;
pub mod template;

pub use folding::{fenced_alone, with_quotes_fenced};
pub use issue_block::LONGEST_TITLE;
pub use received::{standing_at, written_on};
pub use source::Source;

use self::checks_block::Checks;
use self::drafting::Drafting;
use self::received::Received;
use self::source::shown;
use super::standing::People;
use crate::domain::briefing::{BRIEFING_SCHEMA, Block, BriefedImage, Briefing, BriefingTime};
use crate::domain::redaction::Redactor;
use crate::domain::refusal::Refusal;
use crate::domain::text_revision::AskedHow;
use crate::github::Client;
use crate::repository::context::RepositoryContext;

/// Reads and freezes everything that the run is told.
///
/// # Errors
/// GitHub or git could not be read.
pub async fn freeze(
    source: Source<'_>,
    context: &RepositoryContext,
    redactor: &Redactor,
) -> Result<Briefing, Refusal> {
    let mut draft = Drafting::new(redactor);
    let github = context.github.as_ref().zip(source.tracked);
    let (received, checks, images) = match github {
        None => {
            issue_block::write(&mut draft, &source, None).await?;
            let said = heard::here(&source);
            (received::write(&mut draft, &source, said, context).await, Checks::default(), Vec::new())
        }
        Some((github, number)) => on_github(&mut draft, &source, (github, number), context).await?,
    };
    if let Some(checks) = source.failed_checks {
        draft.add(Block::FailedChecks, checks.trim_end());
    }
    if let Some(answer) = source.answer {
        draft.add(Block::Answer, answer.trim_end());
    }
    let folder_rules = rules::write(&mut draft, &source, context).await?;
    let pull_request_template = template::write(&mut draft, &source, context).await?;
    Ok(Briefing {
        schema: BRIEFING_SCHEMA.to_owned(),
        asked: asked(&source),
        blocks: draft.blocks,
        texts: draft.texts,
        threads: received.threads,
        pull_request: received.pull,
        about: received.about,
        folder_rules,
        pull_request_template,
        checks: checks.read,
        check_logs: checks.logs,
        images,
        untold: draft.untold,
        words: draft.words,
    })
}

async fn on_github(
    draft: &mut Drafting<'_>,
    source: &Source<'_>,
    (github, number): (&Client, u64),
    context: &RepositoryContext,
) -> Result<(Received, Checks, Vec<BriefedImage>), Refusal> {
    let mut people = People::new(github, context, source.issue.author.as_deref());
    issue_block::write(draft, source, Some(&mut people)).await?;
    let open = match source.worked_on {
        true => github.open_pull_of(&context.repo, source.branch).await?,
        false => None,
    };
    let pull = open.as_ref().map(|pull| pull.number);
    let heard = heard::hear(source, (number, pull), &mut people, context).await?;
    let named = links::named_in(draft, source, &heard, context);
    let pictured = images::pictured(source, number, &heard);
    let received = received::write(draft, source, heard, context).await;
    links::write(draft, (number, pull), &named, &mut people, context).await?;
    let checks = match &open {
        Some(pull) => {
            checks_block::read(pull, &source.redactor, source.blobs.clone(), (github, context)).await?
        }
        None => Checks::default(),
    };
    for told in &checks.told {
        draft.add(Block::FailedChecks, told);
    }
    let images = images::read(draft, source, pictured, (github, context)).await?;
    Ok((received, checks, images))
}

fn asked(source: &Source<'_>) -> BriefingTime {
    match source.asked {
        Some(asked) => BriefingTime { at: shown(asked.at), how: asked.how, by: asked.by.clone() },
        None => BriefingTime { at: shown(source.now), how: AskedHow::Operator, by: None },
    }
}
