//! What a client remembers between requests.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use tokio::sync::{Mutex, OnceCell};

use super::account::Viewer;
use super::silence::Silences;
use crate::domain::name::RepoName;
use crate::domain::policy::ActorPermission;

/// What a client has learned of a GitHub so far.
#[derive(Default)]
pub(super) struct Memory {
    /// Who the credentials are.
    pub viewer: OnceCell<Viewer>,
    /// Labels that were seen or made, by repository.
    pub labels: Mutex<BTreeSet<(RepoName, String)>>,
    /// What people may, by repository and login, with the tag of the answer.
    pub permissions: Mutex<BTreeMap<(RepoName, String), (String, ActorPermission)>>,
    /// Whether the time of a cancelled check run was over, by repository and id.
    pub time_outs: Mutex<BTreeMap<(RepoName, u64), bool>>,
    /// Repositories that did not answer.
    pub silences: Silences,
    /// Our own comments, by repository and issue.
    pub own_comments: Mutex<BTreeMap<(RepoName, u64), OwnComments>>,
}

/// The known comments of agentd on an issue, so that the next look reads only what changed since. Strangers may write
/// any number of comments.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnComments {
    /// Everything up to this time was read; `None` = nothing was.
    pub since: Option<DateTime<Utc>>,
    /// Ids by first line.
    pub ids: BTreeMap<String, u64>,
    /// Later ones with the first line of an older one: two processes had written it at once.
    pub doubles: BTreeMap<String, BTreeSet<u64>>,
}
