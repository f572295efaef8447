//! The briefing: everything that a run is told at its start, frozen before its first model request.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::artifact::Artifact;
use super::head_check::CheckRead;
use super::remark::{RemarkId, Standing};
use super::text_revision::AskedHow;
use super::words::words;

/// `schema` of every [`Briefing`].
pub const BRIEFING_SCHEMA: &str = "agentd.briefing.v1";
/// File of the run directory that holds it.
pub const BRIEFING_FILE: &str = "briefing.json";
/// Handle by which `tool_output` reads what a model was not told of trusted texts.
pub const UNTOLD: &str = "briefing/untold";

words! {
    /// A part of the briefing that a prompt can place itself, by the variable of its name. What no prompt places is
    /// appended in this order.
    #[derive(PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Block {
        /// The issue's title and body.
        IssueBody = "issue_body",
        /// What the issue is linked with, and issues that trusted texts name.
        IssueLinks = "issue_links",
        /// The comments of the issue.
        IssueRemarks = "issue_remarks",
        /// Comments and reviews of the pull request.
        PullRequest = "pull_request",
        /// Unresolved threads of the pull request.
        ReviewThreads = "review_threads",
        /// What its checks found.
        FailedChecks = "failed_checks",
        /// What a follow-up run is about.
        NewRemarks = "new_remarks",
        /// The answer to a question that an earlier run asked.
        Answer = "answer",
        /// The rules of the repository.
        RepositoryRules = "repository_rules",
        /// The form of the pull request's text.
        PullRequestTemplate = "pull_request_template",
    }
}

/// The briefing of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Briefing {
    /// [`BRIEFING_SCHEMA`].
    pub schema: String,
    /// The moment at which everything counts.
    pub asked: BriefingTime,
    /// The parts that are not empty: cleaned, redacted and fenced.
    pub blocks: BTreeMap<Block, String>,
    /// What was looked at, told or not.
    pub texts: Vec<BriefedText>,
    /// Threads that want an answer, in the order in which they are told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<BriefedThread>,
    /// The open pull request of the branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<u64>,
    /// Remarks without a thread that this run is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<RemarkId>,
    /// Rules of folders, told with the first result about a path below.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folder_rules: Vec<FolderRules>,
    /// The pull request's form as it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_request_template: Option<String>,
    /// Failed checks of the pull request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckRead>,
    /// Their clean logs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub check_logs: Vec<KeptLog>,
    /// Images that were loaded, in the order in which models are handed them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<BriefedImage>,
    /// What was folded away of trusted texts; empty = nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub untold: String,
    /// Of each remark that is told: when it was written, and what tells its words apart. Only the inbox of a run that begins needs it.
    #[serde(skip)]
    pub words: BTreeMap<RemarkId, (DateTime<Utc>, String)>,
}

/// The moment at which a briefing's texts count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BriefingTime {
    /// RFC 3339, by GitHub's clock where somebody asked there.
    pub at: String,
    /// How the run was asked for.
    pub how: AskedHow,
    /// Who asked; absent for the local operator, or where the account is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A text of a briefing: whose it is, and whether the model was told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BriefedText {
    /// What it is: `issue_title`, `issue_body`, a kind of remark, `linked_issue`, `repository_rules`,
    /// `pull_request_template`.
    pub kind: String,
    /// Its name: `issue-7`, `comment-12`, or a path.
    pub id: String,
    /// Web address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Who wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// How its author stands; absent for files of the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
    /// What its author may do in the repository, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<String>,
    /// When it was written, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// When its text was last edited, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<String>,
    /// Over the text as it counts, cleaned and redacted.
    pub sha256: String,
    /// Characters of that text.
    pub characters: usize,
    /// Whether it was told.
    pub fate: Fate,
    /// Why it was not told, or not as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

words! {
    /// What became of a text.
    #[derive(Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Fate {
        /// The model was told all of it.
        Told = "told",
        /// It was told in part, or can be read by its handle.
        Folded = "folded",
        /// It was not told.
        LeftOut = "left_out",
    }
}

/// A thread that wants an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BriefedThread {
    /// GitHub's id.
    pub id: String,
    /// Number of its first comment: what a reply answers.
    pub first_comment: u64,
    /// Number of its last comment when the briefing was frozen.
    pub last_comment: u64,
    /// The pull request.
    pub pull: u64,
    /// The file that it is about.
    pub path: String,
    /// Whether a machine account opened it.
    pub by_bot: bool,
    /// Whether agentd may resolve it.
    pub may_resolve: bool,
    /// Whether it was resolved when the briefing was frozen, and somebody wrote in it all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resolved: bool,
}

/// A clean log, or a part of it, that `tool_output` reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptLog {
    /// The handle.
    pub handle: String,
    /// Where it is kept.
    pub file: Artifact,
}

/// An image that models are handed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BriefedImage {
    /// The text that shows it and its place there: `comment-12/image-1`.
    pub id: String,
    /// Last part of its address.
    pub name: String,
    /// `image/png`, by its first bytes.
    pub media_type: String,
    /// Where it is kept.
    pub file: Artifact,
}

/// The rules of a folder of the repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderRules {
    /// The folder, relative to the repository.
    pub folder: String,
    /// The files' texts, cleaned and fenced.
    pub text: String,
}

/// See [`super::event::Event::BriefingFrozen`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BriefingFrozen {
    /// The moment at which its texts count.
    pub asked: BriefingTime,
    /// `briefing.json`.
    pub file: Artifact,
    /// What was looked at, told or not.
    pub texts: Vec<BriefedText>,
}

/// What the run record says of the briefing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BriefingRecord {
    /// Over `briefing.json`.
    pub sha256: String,
    /// The moment at which its texts count.
    pub asked: BriefingTime,
    /// What was looked at, told or not.
    pub texts: Vec<BriefedText>,
}

impl Briefing {
    /// A block; empty where there is nothing.
    pub fn block(&self, block: Block) -> &str {
        self.blocks.get(&block).map_or("", String::as_str)
    }

    /// How many texts have this fate.
    pub fn count(&self, fate: Fate) -> usize {
        self.texts.iter().filter(|text| text.fate == fate).count()
    }
}
