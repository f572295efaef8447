//! Repositories: default branch, and what the credentials may do there.

use super::client::Client;
use super::error::Error;
use super::rest_wire::{CommitWire, RepositoryWire};
use crate::domain::name::{CommitId, RepoName};
use crate::domain::policy::ActorPermission;

/// What GitHub says of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// The name as GitHub spells it now; differs from the one asked for after a rename.
    pub full_name: String,
    /// The default branch.
    pub default_branch: String,
    /// Not public.
    pub private: bool,
    /// Read-only.
    pub archived: bool,
    /// HTTP address for git.
    pub clone_url: Option<String>,
    /// What the credentials may do; `None` = GitHub does not say.
    pub permission: Option<ActorPermission>,
}

impl Client {
    /// Reads a repository.
    pub async fn repository(&self, repo: &RepoName) -> Result<Repository, Error> {
        let doing = format!("reading the repository {repo}");
        let wire: RepositoryWire = self.get(&format!("/repos/{repo}"), &doing, "metadata: read").await?;
        let permission = wire.permissions.map(|may| {
            let levels = [
                (may.admin, ActorPermission::Admin),
                (may.maintain, ActorPermission::Maintain),
                (may.push, ActorPermission::Write),
                (may.triage, ActorPermission::Triage),
                (may.pull, ActorPermission::Read),
            ];
            levels.into_iter().find(|(held, _)| *held).map_or(ActorPermission::None, |(_, level)| level)
        });
        Ok(Repository {
            full_name: wire.full_name,
            default_branch: wire.default_branch,
            private: wire.private,
            archived: wire.archived,
            clone_url: wire.clone_url,
            permission,
        })
    }

    /// Login of a commit's author; `None` = GitHub knows nobody with the commit's address.
    pub async fn commit_author(&self, repo: &RepoName, commit: &CommitId) -> Result<Option<String>, Error> {
        let doing = format!("reading the commit {} of {repo}", commit.short());
        let path = format!("/repos/{repo}/commits/{commit}");
        let wire: CommitWire = self.get(&path, &doing, "contents: read").await?;
        Ok(wire.author.map(|author| author.login).filter(|login| !login.is_empty()))
    }
}
