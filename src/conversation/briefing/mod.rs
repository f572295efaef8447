//! The briefing of a run: what GitHub and the repository say when it was asked for, frozen before its first model request.
//!
//! `heard` reads remarks and decides which of them count, and in which version; `telling_order` folds them to their budget
//! and fences them; `links`, `rules` and `template` read what stands around the issue. Nothing here is read again later.

mod checks_block;
mod folding;
mod heard;
mod issue_block;
mod links;
mod received;
pub mod rules;
pub mod template;

pub use issue_block::LONGEST_TITLE;

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use self::checks_block::Checks;
use self::received::Received;
use super::standing::People;
use crate::domain::briefing::{BRIEFING_SCHEMA, Block, BriefedText, Briefing, BriefingTime, Fate};
use crate::domain::canonical::sha256_hex;
use crate::domain::event::{AskedHow, TextRevision};
use crate::domain::issue::Issue;
use crate::domain::name::{BranchName, CommitId};
use crate::domain::origin::Origin;
use crate::domain::redaction::Redactor;
use crate::domain::refusal::Refusal;
use crate::domain::remark::RemarkId;
use crate::github::Client;
use crate::issue::reference::Asked;
use crate::repository::context::RepositoryContext;
use crate::store::port::Blobs;

/// What stands in the place of a text that could not be redacted.
const WITHHELD: &str = "[withheld: this text could not be redacted]";

/// What a run is briefed about.
pub struct Source<'a> {
    /// The issue, with title and body as they count.
    pub issue: &'a Issue,
    /// Its number in the tracker; `None` = it is from a file.
    pub tracked: Option<u64>,
    /// When it was opened.
    pub opened: Option<DateTime<Utc>>,
    /// Which revision of its text counts.
    pub text: Option<&'a TextRevision>,
    /// Who asked for the run on GitHub, and when; `None` = the local operator, now.
    pub asked: Option<&'a Asked>,
    /// When the run began.
    pub now: DateTime<Utc>,
    /// Where the work starts from.
    pub origin: &'a Origin,
    /// The issue's branch.
    pub branch: &'a BranchName,
    /// Its head when the run begins.
    pub head: Option<CommitId>,
    /// Whether an earlier run worked on the branch, so that there may be a pull request.
    pub worked_on: bool,
    /// What is wrong with the pull request beside its checks, in agentd's words.
    pub failed_checks: Option<&'a str>,
    /// The remarks that the run is about.
    pub about: &'a [RemarkId],
    /// The answer to an earlier question, fenced.
    pub answer: Option<&'a str>,
    /// Takes secrets out of logs.
    pub redactor: Arc<Redactor>,
    /// Where clean logs of checks are kept; `None` = nowhere.
    pub blobs: Option<Arc<dyn Blobs>>,
}

/// A briefing under way: takes secrets out of each text and notes what became of it.
pub struct Drafting<'a> {
    redactor: &'a Redactor,
    blocks: BTreeMap<Block, String>,
    texts: Vec<BriefedText>,
    untold: String,
}

/// The longest untold part of all trusted texts together that is kept, in bytes.
const LONGEST_UNTOLD: usize = 8 << 20;

impl Drafting<'_> {
    /// A cleaned text without secrets.
    fn redacted(&self, text: &str) -> String {
        self.redactor.redact(text).map_or_else(|_| WITHHELD.to_owned(), std::borrow::Cow::into_owned)
    }

    /// Adds to a block, with an empty line between.
    fn add(&mut self, block: Block, text: &str) {
        let whole = self.blocks.entry(block).or_default();
        if !whole.is_empty() {
            whole.push_str("\n\n");
        }
        whole.push_str(text);
    }

    /// Keeps a trusted text that is not told, or not as a whole. False = there is no room for it.
    fn keep_untold(&mut self, heading: &str, text: &str) -> bool {
        if self.untold.len() + text.len() + heading.len() > LONGEST_UNTOLD {
            return false;
        }
        self.untold.push_str(&format!("## {heading}\n\n{text}\n\n"));
        true
    }

    fn note(&mut self, text: BriefedText) {
        self.texts.push(text);
    }
}

/// A text of the manifest that has no author: a file of the repository.
fn of_file(kind: &str, path: &str, text: &str, (fate, why): (Fate, Option<&str>)) -> BriefedText {
    BriefedText {
        kind: kind.to_owned(),
        id: path.to_owned(),
        url: None,
        login: None,
        standing: None,
        permission: None,
        created: None,
        edited: None,
        sha256: sha256_hex(text.as_bytes()),
        characters: text.chars().count(),
        fate,
        why: why.map(str::to_owned),
    }
}

/// Reads and freezes everything that the run is told.
///
/// # Errors
/// GitHub or git could not be read.
pub async fn freeze(
    source: Source<'_>,
    context: &RepositoryContext,
    redactor: &Redactor,
) -> Result<Briefing, Refusal> {
    let mut draft = Drafting { redactor, blocks: BTreeMap::new(), texts: Vec::new(), untold: String::new() };
    let github = context.github.as_ref().zip(source.tracked);
    let (mut received, mut checks) = (Received::default(), Checks::default());
    match github {
        None => issue_block::write(&mut draft, &source, None).await,
        Some((github, number)) => {
            (received, checks) = on_github(&mut draft, &source, (github, number), context).await?;
        }
    }
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
        untold: draft.untold,
    })
}

async fn on_github(
    draft: &mut Drafting<'_>,
    source: &Source<'_>,
    (github, number): (&Client, u64),
    context: &RepositoryContext,
) -> Result<(Received, Checks), Refusal> {
    let mut people = People::new(github, context, source.issue.author.as_deref());
    issue_block::write(draft, source, Some(&mut people)).await;
    let open = match source.worked_on {
        true => github.open_pull_of(&context.repo, source.branch).await?,
        false => None,
    };
    let pull = open.as_ref().map(|pull| pull.number);
    let heard = heard::hear(source, (number, pull), &mut people, context).await?;
    let named = links::named_in(draft, source, &heard, context);
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
    Ok((received, checks))
}

fn asked(source: &Source<'_>) -> BriefingTime {
    match source.asked {
        Some(asked) => BriefingTime { at: shown(asked.at), how: asked.how, by: asked.by.clone() },
        None => BriefingTime { at: shown(source.now), how: AskedHow::Operator, by: None },
    }
}

/// A time as people and records read it.
fn shown(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}
