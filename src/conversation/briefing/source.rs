//! What a run is briefed about.

use std::collections::BTreeSet;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::domain::image::ImageKind;
use crate::domain::issue::Issue;
use crate::domain::name::{BranchName, CommitId};
use crate::domain::origin::Origin;
use crate::domain::redaction::Redactor;
use crate::domain::remark::{Remark, RemarkId};
use crate::domain::text_revision::TextRevision;
use crate::issue::reference::Asked;
use crate::store::port::Blobs;

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
    /// What people wrote that waits: where there is a pull request, the run is about it as well, whatever started it.
    pub waiting: &'a [RemarkId],
    /// What was heard already, or told to the issue's last run: what is not among it, and was written since that run was asked for, is new.
    pub known: BTreeSet<RemarkId>,
    /// When the last run was asked for; `None` = there was none, or it is not known here: then this one's time counts.
    pub last_asked: Option<DateTime<Utc>>,
    /// What was said about the issue on this machine, by people who count.
    pub said: Vec<Remark>,
    /// The answer to an earlier question, fenced.
    pub answer: Option<&'a str>,
    /// Takes secrets out of logs.
    pub redactor: Arc<Redactor>,
    /// Kinds of images that every model takes which takes images; none = no model takes any.
    pub images: Vec<ImageKind>,
    /// Where clean logs of checks, and images, are kept; `None` = nowhere.
    pub blobs: Option<Arc<dyn Blobs>>,
}

/// A time as people and records read it.
pub fn shown(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}
