//! The repositories that a command works in: checkouts, and clones that agentd manages where an entry has no `path`.

use std::sync::Arc;

use super::context::{Context, main_checkout};
use super::error::CommandError;
use super::remote::Remote;
use crate::config::{Config, Repository};
use crate::domain::name::RepoName;
use crate::github;
use crate::lifecycle::managed;
use crate::lifecycle::open::{Opening, open};
use crate::lifecycle::site::Site;
use crate::store::run_dir::StateDir;
use crate::sys::paths::AbsPath;
use crate::sys::shutdown::Shutdown;

/// Every repository of the configuration; without any entry the checkout that the process stands in.
pub async fn all(context: &Context, shutdown: &Shutdown) -> Result<Vec<Site>, CommandError> {
    let config = Arc::new(context.config()?);
    // One client for all: one breaker, one count of limits.
    let client = client(&config)?;
    let mut sites = Vec::new();
    if config.repositories.is_empty() {
        sites.push(checkout(context, &config, &context.base_path()?, shutdown, true).await?);
    }
    let wanted = |entry: &&Repository| match (&context.global.repo, &entry.name) {
        (Some(only), Some(name)) => only == name,
        _ => true,
    };
    for entry in config.repositories.iter().filter(wanted) {
        sites.push(match &entry.path {
            Some(path) => {
                let path = AbsPath::new(path).map_err(|error| CommandError::invalid(error.to_string()))?;
                checkout(context, &config, &path, shutdown, true).await?
            }
            None => clone_of(context, &config, entry, &client, shutdown).await?,
        });
    }
    for site in &mut sites {
        site.github = Some(client.clone());
        site.kept = Some(Arc::default());
    }
    Ok(sites)
}

/// The one repository that a command is about: the checkout that the process stands in, else the entry that `--repo`
/// names, else the only entry.
pub async fn one(
    context: &Context,
    config: &Arc<Config>,
    shutdown: &Shutdown,
    needs_github: bool,
) -> Result<Site, CommandError> {
    let here = context.base_path()?;
    let standing = main_checkout(context.env.working_dir()).is_some();
    let entry = match &context.global.repo {
        Some(named) => config.repositories.iter().find(|entry| entry.name.as_ref() == Some(named)),
        None if standing => None,
        None => match config.repositories.as_slice() {
            [only] => Some(only),
            _ => None,
        },
    };
    let Some(entry) = entry else { return checkout(context, config, &here, shutdown, needs_github).await };
    match (&entry.path, &entry.name) {
        (Some(path), _) => {
            let path = AbsPath::new(path).map_err(|error| CommandError::invalid(error.to_string()))?;
            checkout(context, config, &path, shutdown, needs_github).await
        }
        // A checkout of that very repository is the one that its owner means.
        (None, Some(name)) if standing && is_of(context, &here, name).await => {
            checkout(context, config, &here, shutdown, needs_github).await
        }
        (None, _) => clone_of(context, config, entry, &client(config)?, shutdown).await,
    }
}

async fn is_of(context: &Context, checkout: &AbsPath, name: &RepoName) -> bool {
    let remote = Remote::find(checkout, &context.env).await;
    remote.and_then(|remote| remote.repo).is_some_and(|repo| repo == *name)
}

fn client(config: &Config) -> Result<github::Client, CommandError> {
    github::Client::new(github::Settings::of(&config.github, config.github_credentials()?))
        .map_err(|error| CommandError::failed(error.to_string()))
}

/// A checkout that its owner made.
pub async fn checkout(
    context: &Context,
    config: &Arc<Config>,
    base: &AbsPath,
    shutdown: &Shutdown,
    needs_github: bool,
) -> Result<Site, CommandError> {
    opened(context, config, base, context.global.repo.as_ref(), shutdown, needs_github).await
}

/// A clone in the state directory, brought to its origin branch; its own configuration counts as D85 says.
pub async fn clone_of(
    context: &Context,
    config: &Arc<Config>,
    entry: &Repository,
    client: &github::Client,
    shutdown: &Shutdown,
) -> Result<Site, CommandError> {
    let state = StateDir::new(context.state_dir()?.as_path().to_owned());
    let cancel = shutdown.abort_token().clone();
    let dir = managed::prepare(entry, client, &state, &context.env, cancel).await?;
    let name = entry.name.as_ref().ok_or_else(|| CommandError::invalid("a repository needs a name"))?;
    let config = Arc::new(managed::configuration(config, &dir, name, &context.env)?);
    Ok(Site { managed: true, ..opened(context, &config, &dir, Some(name), shutdown, true).await? })
}

/// The place of an earlier run, as it was then: a checkout, or a managed clone.
pub async fn again(
    context: &Context,
    config: &Arc<Config>,
    base: &AbsPath,
    repo: &RepoName,
    shutdown: &Shutdown,
    needs_github: bool,
) -> Result<Site, CommandError> {
    if is_managed(context, base, repo)? {
        let entry = config.repository(Some(repo), None);
        return clone_of(context, config, &entry, &client(config)?, shutdown).await;
    }
    opened(context, config, base, Some(repo), shutdown, needs_github).await
}

/// Whether a checkout is the clone that agentd manages of a repository.
pub fn is_managed(context: &Context, base: &AbsPath, repo: &RepoName) -> Result<bool, CommandError> {
    let state = StateDir::new(context.state_dir()?.as_path().to_owned());
    let dir = managed::place(&state, repo);
    Ok(dir == base.as_path() || dir.canonicalize().is_ok_and(|dir| dir == base.as_path()))
}

async fn opened(
    context: &Context,
    config: &Arc<Config>,
    base: &AbsPath,
    repo: Option<&RepoName>,
    shutdown: &Shutdown,
    needs_github: bool,
) -> Result<Site, CommandError> {
    let opening = Opening {
        config: Arc::clone(config),
        base,
        repo,
        state: &context.state_dir()?,
        needs_github,
        env: &context.env,
        cancel: shutdown.abort_token().clone(),
    };
    Ok(open(opening).await?)
}
