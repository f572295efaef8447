//! The remote of a checkout, and the branch that its issues most likely start from.

use tokio_util::sync::CancellationToken;

use crate::config::Env;
use crate::domain::name::RepoName;
use crate::git::{Checkout, GitError, GitProgram};
use crate::sys::paths::AbsPath;

/// A remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// Its name.
    pub name: String,
    /// Its address.
    pub url: String,
    /// The repository that the address names.
    pub repo: Option<RepoName>,
    /// Its default branch, as far as this clone knows.
    pub default_branch: Option<String>,
}

impl Remote {
    /// The remote `origin`, else the only one. It does not use the network. Without git there is none.
    pub async fn find(checkout: &AbsPath, env: &Env) -> Option<Self> {
        let names = Self::names(checkout, env).await;
        let name = match names.as_slice() {
            [only] => only,
            several => several.iter().find(|name| *name == "origin")?,
        };
        Self::named(checkout, env, name).await
    }

    /// The names of all remotes of a checkout.
    pub async fn names(checkout: &AbsPath, env: &Env) -> Vec<String> {
        let names = git(checkout, env, &["remote"]).await.unwrap_or_default();
        names.lines().map(str::to_owned).collect()
    }

    /// The remote of this name.
    pub async fn named(checkout: &AbsPath, env: &Env, name: &str) -> Option<Self> {
        let url = git(checkout, env, &["remote", "get-url", name]).await?;
        let default_branch = default_branch(checkout, env, name).await;
        Some(Self { name: name.to_owned(), repo: RepoName::from_remote_url(&url), url, default_branch })
    }
}

/// What the remote's HEAD points to. If that is not known, its only branch, or the usual one.
async fn default_branch(checkout: &AbsPath, env: &Env, remote: &str) -> Option<String> {
    let head = format!("refs/remotes/{remote}/HEAD");
    let prefix = format!("refs/remotes/{remote}/");
    if let Some(target) = git(checkout, env, &["symbolic-ref", "--quiet", &head]).await {
        return target.strip_prefix(&prefix).map(str::to_owned);
    }
    let refs = git(checkout, env, &["for-each-ref", "--format=%(refname)", &prefix]).await?;
    let branches: Vec<&str> = refs.lines().filter_map(|name| name.strip_prefix(&prefix)).collect();
    let usual = ["main", "master"].into_iter().find(|name| branches.contains(name));
    match branches.as_slice() {
        [only] => Some((*only).to_owned()),
        _ => usual.map(str::to_owned),
    }
}

/// Why nobody can work in this folder where it is in a repository that has no main checkout.
pub(super) async fn bare(folder: &AbsPath, env: &Env) -> Option<GitError> {
    let error = refused(folder, env).await?;
    matches!(error, GitError::Bare { .. } | GitError::WorktreeOfBare { .. }).then_some(error)
}

/// Why git cannot work in this folder, whatever the cause.
pub(super) async fn refused(folder: &AbsPath, env: &Env) -> Option<GitError> {
    let git = GitProgram::new(env.all(), CancellationToken::new());
    Checkout::open(git, folder, false).await.err()
}

/// What a git command that only reads prints, without the end of line; `None` if it fails or there is no git.
pub(super) async fn git(checkout: &AbsPath, env: &Env, args: &[&str]) -> Option<String> {
    GitProgram::new(env.all(), CancellationToken::new()).asked(checkout, args).await
}
