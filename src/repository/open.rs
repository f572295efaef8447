//! Opening a repository: from a directory and a configuration to what runs need of it.

use std::ffi::OsString;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::context::{RepositoryContext, host_paths};
use crate::config::{Config, Env};
use crate::domain::name::RepoName;
use crate::domain::refusal::Refusal;
use crate::domain::shell_words;
use crate::domain::stop::StopDetail;
use crate::git::checkout::Checkout;
use crate::git::error::GitError;
use crate::git::program::GitProgram;
use crate::github;
use crate::store::run_dir::StateDir;
use crate::sys::clock::Clock;
use crate::sys::paths::AbsPath;

/// What a repository context is made from.
pub struct Opening<'a> {
    /// The effective configuration.
    pub config: Arc<Config>,
    /// The main checkout, or a directory in it.
    pub base: &'a AbsPath,
    /// `--repo`; else the entry's name, else the remote's URL.
    pub repo: Option<&'a RepoName>,
    /// The state directory.
    pub state: &'a StateDir,
    /// Whether the tracker is needed: then missing credentials are an error.
    pub needs_github: bool,
    /// An existing client; `None` = one is made from the configuration.
    pub github: Option<github::Client>,
    /// The environment.
    pub env: &'a Env,
    /// Ends git calls.
    pub cancel: CancellationToken,
}

/// Opens it. Errors name what is missing and how to get it.
pub async fn open(opening: Opening<'_>) -> Result<RepositoryContext, Refusal> {
    let Opening { config, base, env, .. } = opening;
    let environment: Vec<(OsString, OsString)> = env.all().collect();
    // What is refused from here on may be told on the issue.
    if let Some(github) = &opening.github {
        github.conceal_paths(&host_paths(&config, base, opening.state.path(), env));
    }
    let git = GitProgram::new(environment, opening.cancel);
    let checkout = Checkout::open(git, base, config.worktree.hooks).await.map_err(no_checkout)?;
    let checkout = checkout.excluding(&config.commit.exclude);
    let repository = config.repository(opening.repo, Some(checkout.root().as_path()));
    let remote = checkout.remote_url(&repository.remote).await?;
    let of_remote = remote.as_deref().and_then(RepoName::from_remote_url);
    let named = opening.repo.or(repository.name.as_ref());
    // Of two spellings of one name, records use the configuration's, else the remote's.
    let spelled = [&repository.name, &of_remote].into_iter().flatten().find(|name| Some(*name) == named);
    let repo = match spelled.or(named).or(of_remote.as_ref()).cloned() {
        Some(repo) => repo,
        None if opening.needs_github => return Err(nameless(&checkout, &repository.remote).await?),
        None => local_name(&checkout)?,
    };
    let github = match opening.github {
        Some(github) => Some(github),
        None => own_client(&config, opening.needs_github)?,
    };
    if let Some(github) = &github {
        github.conceal_paths(&host_paths(&config, checkout.root(), opening.state.path(), env));
    }
    if let (Some(github), Some(url), Some(other)) =
        (&github, &remote, of_remote.filter(|other| *other != repo))
        && github.endpoint().hosts(url)
        && !is_called(github, &repo, &other).await
    {
        return Err(another_repository(&repository.remote, checkout.root(), &other, &repo));
    }
    Ok(RepositoryContext {
        config,
        repository,
        repo,
        checkout,
        remote,
        github,
        state: opening.state.clone(),
        money: opening.state.clone(),
        clock: Clock::system(),
        env: env.clone(),
        replay: None,
        last_known_good: None,
        managed: false,
    })
}

/// Whether GitHub knows a repository by another name now, and this is it: the configuration keeps the one under which all that waits is
/// kept.
async fn is_called(github: &github::Client, repo: &RepoName, now: &RepoName) -> bool {
    let found = github.repository(repo).await;
    found.is_ok_and(|found| found.full_name.eq_ignore_ascii_case(&now.to_string()))
}

/// What is told where a checkout's remote names another repository than the one that is meant.
pub fn another_repository(remote: &str, root: &AbsPath, found: &RepoName, meant: &RepoName) -> Refusal {
    let message = format!("The remote \"{remote}\" of {root} is {found}, not {meant}.");
    Refusal::new(StopDetail::ConfigInvalid, message)
        .hint(format!("go to a checkout of {meant}, or name its `path` under [[repositories]]"))
        .hint(format!("was it renamed? {}", shell_words::line(&["git", "remote", "set-url", remote, "URL"])))
}

/// The client of a configuration's own; `None` = it has no credentials, and none are needed.
pub fn own_client(config: &Config, is_needed: bool) -> Result<Option<github::Client>, Refusal> {
    let credentials = match is_needed {
        true => Some(config.github_credentials()?),
        false => config.github_credentials_if_any()?,
    };
    let made = |credentials| github::Client::new(github::Settings::of(&config.github, credentials));
    Ok(credentials.map(made).transpose()?)
}

fn no_checkout(error: GitError) -> Refusal {
    let refusal = Refusal::new(StopDetail::ConfigInvalid, format!("{error}."));
    match error.remedy() {
        Some(hint) => refusal.hint(hint),
        None => refusal,
    }
}

/// Nothing says what the repository is called on GitHub.
async fn nameless(checkout: &Checkout, remote: &str) -> Result<Refusal, GitError> {
    let refusal = Refusal::new(
        StopDetail::ConfigInvalid,
        "The repository's name is not known: it has no remote that names it.",
    );
    let refusal = match called_otherwise(checkout, remote).await? {
        Some(hint) => refusal.hint(hint),
        None => refusal,
    };
    Ok(refusal
        .hint("name = \"owner/name\" under [[repositories]] in agentd.toml")
        .hint("or --repo OWNER/NAME"))
}

/// How another remote is made the one that counts, where there are some and none of this name.
pub async fn called_otherwise(checkout: &Checkout, remote: &str) -> Result<Option<String>, GitError> {
    let names = checkout.remote_names().await?;
    let first = names.first().filter(|_| !names.iter().any(|name| name == remote));
    Ok(first.map(|first| {
        format!(
            "remote = \"{first}\" under [[repositories]] in agentd.toml: there is no remote \"{remote}\", but {}",
            names.join(", ")
        )
    }))
}

/// A repository without a remote is known by its folder (D30).
fn local_name(checkout: &Checkout) -> Result<RepoName, Refusal> {
    let folder = checkout
        .root()
        .as_path()
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let plain: String = folder
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' })
        .collect();
    RepoName::parse(&format!("local/{plain}")).map_err(|error| {
        Refusal::new(StopDetail::ConfigInvalid, format!("{error}.")).hint("name it with --repo OWNER/NAME")
    })
}
