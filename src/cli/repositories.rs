//! Opens the repositories that a command works on: entries of the configuration, or the checkout of the working
//! directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::concealed;
use super::context::{Context, is_below, main_checkout};
#[cfg(feature = "nats")]
use super::elsewhere;
use super::error::CommandError;
use super::issue_arg::IssueArg;
use super::remote::{self, Remote};
#[cfg(feature = "nats")]
use crate::config::cluster_file::StoreKind;
use crate::config::{Config, Entry, Flag, Repository, Request};
use crate::domain::cluster::names::{node_of, token};
use crate::domain::event::LeaseTaken;
use crate::domain::name::RepoName;
use crate::domain::refusal::Refusal;
#[cfg(feature = "nats")]
use crate::domain::shell_words;
use crate::github::{self, IssueSnapshot};
use crate::repository::context::RepositoryContext;
use crate::repository::managed;
use crate::repository::open::{Opening, open};
use crate::store::run_dir::StateDir;
use crate::sys::paths::AbsPath;

/// What a command needs of a repository.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions<'a> {
    /// `--agent`.
    pub agent: Option<&'a str>,
    /// Flags that set keys.
    pub flags: &'a [Flag],
    /// Whether missing credentials are an error.
    pub needs_github: bool,
    /// Whether a clone that agentd manages is brought to its origin branch first.
    pub fresh: bool,
    /// The folder in which a managed clone that is missing is made, for a look that leaves nothing; `None` = in the state directory.
    pub looks_in: Option<&'a Path>,
    /// A client that is there already; `None` = each repository has its own, as its configuration says.
    pub github: Option<github::Client>,
    /// Ends git calls.
    pub cancel: CancellationToken,
}

/// The repositories that a process works on for long.
pub struct Repositories {
    /// Those that are open.
    pub open: Vec<RepositoryContext>,
    /// Repositories whose clone could not be made yet, because GitHub or its git cannot be reached: name and problem.
    pub later: Vec<(RepoName, String)>,
    /// The client of all.
    pub client: github::Client,
}

/// Refuses an issue's address that is not on the GitHub that the configuration names.
pub fn check_host(issue: &IssueArg, site: &RepositoryContext) -> Result<(), CommandError> {
    match (&issue.url, &site.github) {
        (Some(url), Some(github)) if !github.endpoint().hosts(url) => {
            let api = &site.config.github.api_url;
            Err(CommandError::invalid(format!("{url} is not on the GitHub that is configured ({api})"))
                .hint("github.api_url names another one; for GitHub Enterprise: https://HOST/api/v3"))
        }
        _ => Ok(()),
    }
}

/// Refuses a number that is no open issue, as far as GitHub says so now. Gives the issue as GitHub has it, where it says so.
pub async fn check_open(
    issue: &IssueArg,
    site: &RepositoryContext,
) -> Result<Option<IssueSnapshot>, CommandError> {
    let (Some(github), Some(number)) = (&site.github, issue.key.number()) else { return Ok(None) };
    match github.issue(&site.repo, number).await {
        Ok(found) if !found.issue.open => {
            let message = format!("issue {number} of {} is closed, so that no run works on it", site.repo);
            Err(CommandError::invalid(message).hint("open it again first"))
        }
        Err(error) if error.is_not_here() || error.kind == github::ErrorKind::IsPullRequest => {
            Err(CommandError::invalid(error.to_string()))
        }
        found => Ok(found.ok()),
    }
}

/// Every repository that the configuration names, or the one of `--repo`; without any entry the checkout here.
pub async fn all(context: &Context, options: &OpenOptions<'_>) -> Result<Repositories, CommandError> {
    let operator = context.config_for(options.agent, options.flags)?;
    // One client for all: one breaker, one count of limits, one set of root certificates in memory.
    let client = client(&operator)?;
    let options = &OpenOptions { github: Some(client.clone()), ..options.clone() };
    let (mut sites, mut later) = (Vec::new(), Vec::new());
    for (index, entry) in operator.repositories.iter().enumerate() {
        if let Some(only) = &context.global.repo
            && !is_of(context, entry, only).await
        {
            continue;
        }
        match (of_entry(context, Entry { operator: &operator, index }, options).await, &entry.name) {
            (Ok(site), _) => sites.push(site),
            (Err(error), Some(name)) if error.transient => later.push((name.clone(), error.message)),
            (Err(error), _) => {
                let at = operator.source(&format!("repositories[{index}].name"));
                return Err(error.hint(format!("the repository is named in {at}")));
            }
        }
    }
    let unnamed = sites.is_empty() && later.is_empty();
    if let Some(name) = context.global.repo.as_ref().filter(|_| unnamed && !operator.repositories.is_empty())
    {
        match is_here(context, Some(name)).await {
            true => sites.push(here(context, operator, Some(name), options).await?),
            false => return Err(unknown(&operator, name)),
        }
    } else if operator.repositories.is_empty() {
        sites.push(here(context, operator, context.global.repo.as_ref(), options).await?);
    }
    for site in &mut sites {
        site.last_known_good = Some(Arc::default());
    }
    Ok(Repositories { open: sites, later, client })
}

/// The repository that `--repo` names, else the checkout here, else the only one that is configured.
pub async fn one(context: &Context, options: &OpenOptions<'_>) -> Result<RepositoryContext, CommandError> {
    let operator = context.config_for(options.agent, options.flags)?;
    let repo = context.global.repo.as_ref();
    let stands = context.stands_in_checkout();
    let index = match (repo, operator.repositories.len()) {
        (Some(name), _) => match position(context, &operator, name).await {
            None if !stands && !operator.repositories.is_empty() => return Err(unknown(&operator, name)),
            index => index,
        },
        (None, 1) if !stands => Some(0),
        (None, 2..) if !stands => return Err(ambiguous(&operator)),
        (None, _) => None,
    };
    match index {
        // A checkout of that very repository is the one that its owner means.
        Some(index)
            if stands && operator.repositories[index].path.is_none() && is_here(context, repo).await =>
        {
            here(context, operator, repo, options).await
        }
        Some(index) => of_entry(context, Entry { operator: &operator, index }, options).await,
        None => here(context, operator, repo, options).await,
    }
}

/// The command as it would stand in what it looks at: here, where this is a checkout, or else what `--repo` names or the only entry.
///
/// # Errors
/// Several are configured, and it is not said which; or none is the one that is named.
pub async fn standing(context: &Context) -> Result<Context, CommandError> {
    let mut all = standings(context).await?;
    match (all.pop(), all.is_empty()) {
        (Some(only), true) => Ok(only),
        _ => Err(ambiguous(&context.config()?)),
    }
}

/// The same for a command that looks at each entry where it is not said which.
pub async fn standings(context: &Context) -> Result<Vec<Context>, CommandError> {
    let stands = context.stands_in_checkout();
    if context.in_clone || stands && context.global.repo.is_none() {
        return Ok(vec![context.clone()]);
    }
    let operator = Arc::new(context.config()?);
    let Some(name) = &context.global.repo else { return each(context, &operator) };
    match position(context, &operator, name).await {
        None if !stands && !operator.repositories.is_empty() => Err(unknown(&operator, name)),
        // A checkout of that very repository is the one that its owner means.
        Some(index)
            if !stands
                || operator.repositories[index].path.is_some()
                || !is_here(context, Some(name)).await =>
        {
            Ok(vec![at(context, &operator, index)?])
        }
        _ => Ok(vec![context.clone()]),
    }
}

/// The command as it would stand in the checkout of each entry; without any entry here.
pub fn each(context: &Context, operator: &Arc<Config>) -> Result<Vec<Context>, CommandError> {
    if operator.repositories.is_empty() {
        return Ok(vec![context.clone()]);
    }
    (0..operator.repositories.len()).map(|index| at(context, operator, index)).collect()
}

fn at(context: &Context, operator: &Arc<Config>, index: usize) -> Result<Context, CommandError> {
    match &operator.repositories[index].path {
        Some(path) if is_same(path, &context.base) => Ok(context.clone()),
        _ => context.at(operator, index),
    }
}

/// The checkout that a run worked for; `None` = it was another node's, whose paths say nothing here.
pub fn checkout_of(context: &Context, lease: &LeaseTaken) -> Result<Option<AbsPath>, CommandError> {
    #[cfg(feature = "nats")]
    if let Some(held) = &lease.held {
        let config = context.config()?;
        let own = super::cluster_access::node(&config);
        if config.cluster.store == StoreKind::Nats && token(node_of(&held.by.node)) != token(&own) {
            return Ok(None);
        }
    }
    let _ = context;
    AbsPath::new(&lease.checkout).map(Some).map_err(|error| CommandError::invalid(error.to_string()))
}

/// The repository of a recorded run: as the configuration here names it, else the checkout that the run worked for.
pub async fn of_run(
    context: &Context,
    repo: &RepoName,
    checkout: Option<&AbsPath>,
    options: &OpenOptions<'_>,
) -> Result<RepositoryContext, CommandError> {
    let Some(checkout) = checkout else {
        let mut named = context.clone();
        named.global.repo = Some(repo.clone());
        return one(&named, options).await;
    };
    let operator = context.config_for(options.agent, options.flags)?;
    let is_managed = is_below(checkout.as_path(), context.state_dir()?.as_path());
    let names_it = |entry: &Repository| match &entry.path {
        Some(path) => is_same(path, checkout.as_path()),
        None => is_managed,
    };
    match position(context, &operator, repo).await.filter(|index| names_it(&operator.repositories[*index])) {
        Some(index) => return of_entry(context, Entry { operator: &operator, index }, options).await,
        None if is_managed => {
            let what =
                format!("{repo} is a clone of agentd's own, and no entry of the configuration names it");
            return Err(CommandError::invalid(what)
                .hint("pass --config with the file that names it, or go to where that file is"));
        }
        None => {}
    }
    let config = Config::load(request(context, checkout.as_path(), Some(repo), None, options))?;
    opened(context, config, checkout, Some(repo), options).await
}

async fn is_here(context: &Context, repo: Option<&RepoName>) -> bool {
    let Ok(base) = context.base_path() else { return false };
    let remote = Remote::find(&base, &context.env).await;
    remote.and_then(|remote| remote.repo).as_ref() == repo
}

async fn here(
    context: &Context,
    operator: Config,
    repo: Option<&RepoName>,
    options: &OpenOptions<'_>,
) -> Result<RepositoryContext, CommandError> {
    if context.in_clone {
        let what = format!(
            "{} is a clone that agentd manages, and no entry of the configuration names it",
            context.base.display()
        );
        return Err(CommandError::invalid(what)
            .hint("go to where your configuration is, or pass --config with the file that names it"));
    }
    opened(context, operator, &context.base_path()?, repo, options).await
}

async fn of_entry(
    context: &Context,
    entry: Entry<'_>,
    options: &OpenOptions<'_>,
) -> Result<RepositoryContext, CommandError> {
    let operator = entry.operator;
    let named = &operator.repositories[entry.index];
    let Some(path) = &named.path else { return managed(context, operator, named, options).await };
    let path = checkout_at(path)?;
    if is_below(&path, &context.state_dir()?.as_path().join("repos")) {
        let what = format!("{} is a clone that agentd manages: its files are not yours", path.display());
        return Err(
            CommandError::invalid(what).hint("leave `path` out of the entry: then its `name` is enough")
        );
    }
    let checkout = AbsPath::new(&path).map_err(|error| CommandError::invalid(error.to_string()))?;
    if is_same(&path, &context.base) {
        return opened(context, operator.clone(), &checkout, named.name.as_ref(), options).await;
    }
    let config = Config::load(request(context, &path, named.name.as_ref(), Some(entry), options))?;
    opened(context, config, &checkout, named.name.as_ref(), options).await
}

/// The main checkout around the `path` of an entry.
///
/// # Errors
/// There is nothing: what is around the place is another checkout.
pub fn checkout_at(path: &Path) -> Result<PathBuf, CommandError> {
    if !path.is_dir() {
        let what = format!("{} (`path` of a [[repositories]] entry) is no folder", path.display());
        return Err(CommandError::invalid(what)
            .hint("clone the repository there, or correct `path`")
            .hint("or leave `path` out and give the entry a `name`: then agentd keeps a clone of its own"));
    }
    Ok(main_checkout(path).unwrap_or_else(|| path.to_owned()))
}

/// A clone in the state directory.
async fn managed(
    context: &Context,
    operator: &Config,
    entry: &Repository,
    options: &OpenOptions<'_>,
) -> Result<RepositoryContext, CommandError> {
    let name = entry.name.as_ref().ok_or_else(|| CommandError::invalid("a repository needs a name"))?;
    let state = context.state()?;
    let mut options = options.clone();
    let there = AbsPath::new(managed::place(&state, name)).ok().filter(|dir| dir.as_path().exists());
    let is_there = there.is_some();
    let dir = match there.filter(|_| !options.fresh) {
        Some(dir) => dir,
        None => {
            let github = options.github.take().map_or_else(|| client(operator), Ok)?;
            let looks_in = options.looks_in.filter(|_| !is_there).map(|dir| StateDir::new(dir.to_owned()));
            let place = looks_in.as_ref().unwrap_or(&state);
            let prepared =
                managed::prepare(entry, &github, place, &context.env, options.cancel.clone()).await;
            options.github = Some(github);
            prepared?
        }
    };
    let config = managed::configuration(operator, &dir, name, &context.env);
    Ok(RepositoryContext { managed: true, ..opened(context, config, &dir, Some(name), &options).await? })
}

async fn opened(
    context: &Context,
    config: Config,
    base: &AbsPath,
    repo: Option<&RepoName>,
    options: &OpenOptions<'_>,
) -> Result<RepositoryContext, CommandError> {
    concealed::conceal(&config);
    let state = state(context, &config).await?;
    let opening = Opening {
        config: Arc::new(config),
        base,
        repo,
        state: &state,
        needs_github: options.needs_github,
        github: options.github.clone(),
        env: &context.env,
        cancel: options.cancel.clone(),
    };
    Ok(open(opening).await?)
}

/// The state directory, with the cluster's store where the configuration names one.
#[cfg(feature = "nats")]
pub(super) async fn state(context: &Context, config: &Config) -> Result<StateDir, CommandError> {
    if config.cluster.store == StoreKind::Files {
        return context.state();
    }
    let (context, config) = (context.clone(), config.clone());
    let opened = tokio::task::spawn_blocking(move || elsewhere::node_state(&context, &config)).await;
    opened.map_err(|panic| CommandError::failed(panic.to_string()))?
}

#[cfg(not(feature = "nats"))]
pub(super) async fn state(context: &Context, _config: &Config) -> Result<StateDir, CommandError> {
    context.state()
}

fn request<'a>(
    context: &'a Context,
    base: &'a Path,
    repo: Option<&'a RepoName>,
    entry: Option<Entry<'a>>,
    options: &'a OpenOptions<'_>,
) -> Request<'a> {
    Request {
        explicit: context.global.config.as_deref(),
        base,
        repo,
        agent: options.agent,
        flags: options.flags,
        entry,
        env: &context.env,
    }
}

/// The client of all repositories. It asks nothing yet.
///
/// # Errors
/// The credentials are not there or are none; the address cannot be used.
pub fn client(config: &Config) -> Result<github::Client, CommandError> {
    let made = github::Client::new(github::Settings::of(&config.github, config.github_credentials()?));
    made.map_err(|error| Refusal::from(error).into())
}

/// The entry of a repository.
async fn position(context: &Context, config: &Config, repo: &RepoName) -> Option<usize> {
    let named = config.repositories.iter().position(|entry| entry.name.as_ref() == Some(repo));
    if named.is_some() {
        return named;
    }
    for (index, entry) in config.repositories.iter().enumerate() {
        if is_of(context, entry, repo).await {
            return Some(index);
        }
    }
    None
}

/// Whether an entry is about this repository. One without a name has that of its checkout's remote.
async fn is_of(context: &Context, entry: &Repository, repo: &RepoName) -> bool {
    if let Some(name) = &entry.name {
        return name == repo;
    }
    let path = entry.path.as_ref().and_then(|path| checkout_at(path).ok());
    let Some(checkout) = path.and_then(|path| AbsPath::new(path).ok()) else { return false };
    let url = remote::git(&checkout, &context.env, &["remote", "get-url", &entry.remote]).await;
    url.and_then(|url| RepoName::from_remote_url(&url)).as_ref() == Some(repo)
}

fn is_same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

fn ambiguous(config: &Config) -> CommandError {
    choices(config, "several repositories are configured, and this is the checkout of none".to_owned())
}

fn unknown(config: &Config, repo: &RepoName) -> CommandError {
    choices(config, format!("no entry under [[repositories]] is {repo}, and this is not its checkout"))
}

/// An error with the ways to name one of the repositories that are configured.
fn choices(config: &Config, message: String) -> CommandError {
    config.repositories.iter().fold(CommandError::invalid(message), |error, entry| {
        match (&entry.name, &entry.path) {
            (Some(name), _) => error.hint(format!("--repo {name}")),
            (None, Some(path)) => error.hint(shell_words::line(&["cd", &path.display().to_string()])),
            (None, None) => error,
        }
    })
}
