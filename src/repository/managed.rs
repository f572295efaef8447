//! A clone that agentd manages in its state directory: its files are always those of the origin branch (D1, D85).

use std::path::Path;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::context::RepositoryContext;
use crate::config::{Config, Env, Repository};
use crate::domain::egress::{Egress, TRUSTED};
use crate::domain::flow::Definition;
use crate::domain::name::{BranchName, CommitId, RepoName};
use crate::domain::refusal::Refusal;
use crate::domain::stop::StopDetail;
use crate::git::checkout::Checkout;
use crate::git::program::GitProgram;
use crate::git::remote::{Remote, RemoteAuth};
use crate::github;
use crate::store::run_dir::StateDir;
use crate::sys::files::leads_out;
use crate::sys::paths::AbsPath;

/// How often the log says how far a first fetch is.
const TELLS_EVERY: Duration = Duration::from_secs(30);

/// Where the clone of a repository is.
pub fn place(state: &StateDir, repo: &RepoName) -> std::path::PathBuf {
    state.repo(repo).join("checkout")
}

/// Makes the clone of an entry without `path` if it is missing, updates its files to the origin branch, and gives its
/// place. While GitHub does not answer, an existing clone is used as it is; each run updates it again.
pub async fn prepare(
    entry: &Repository,
    github: &github::Client,
    state: &StateDir,
    env: &Env,
    cancel: CancellationToken,
) -> Result<AbsPath, Refusal> {
    let invalid = |message: String| Refusal::new(StopDetail::ConfigInvalid, message);
    let Some(name) = &entry.name else {
        return Err(invalid("A repository without `path` needs a `name`.".to_owned())
            .hint("name = \"owner/name\" under [[repositories]]"));
    };
    let branch = origin_branch(entry, name)?;
    let dir = AbsPath::new(place(state, name)).map_err(|error| invalid(error.to_string()))?;
    let git = GitProgram::new(env.all(), cancel);
    match bring(&git, &dir, &branch, (entry, name), github).await {
        Ok(()) => {}
        Err(refusal) if has_files(&git, &dir).await => {
            tracing::warn!(repo = %name, problem = %refusal, "the clone could not be brought to its origin branch now");
        }
        Err(refusal) => return Err(refusal),
    }
    Ok(dir)
}

async fn bring(
    git: &GitProgram,
    dir: &AbsPath,
    branch: &BranchName,
    (entry, name): (&Repository, &RepoName),
    github: &github::Client,
) -> Result<(), Refusal> {
    let found = github.repository(name).await?;
    let url = found
        .clone_url
        .unwrap_or_else(|| format!("{}/{name}.git", github.endpoint().origin().trim_end_matches('/')));
    let checkout = Checkout::manage(git.clone(), dir, (&entry.remote, &url), entry.clone).await?;
    let remote = Remote::new(&entry.remote, &url, RemoteAuth::Token(github.git_token().await?.token));
    let commit = if checkout.last_seen(&remote, branch).await?.is_some() {
        checkout.fetch(&remote, branch).await?
    } else {
        first_fetch(&checkout, (&remote, branch), name).await?
    };
    let commit = commit.ok_or_else(|| {
        Refusal::new(
            StopDetail::OriginMissing,
            format!("The branch {branch} of {name} (origin_branch) does not exist."),
        )
    })?;
    Ok(checkout.stand_on(&commit).await?)
}

/// The first fetch of a large repository takes long, so the log says that it is going on, and how far it is.
async fn first_fetch(
    checkout: &Checkout,
    (remote, branch): (&Remote, &BranchName),
    name: &RepoName,
) -> Result<Option<CommitId>, Refusal> {
    tracing::info!(repo = %name, %branch, "the repository is fetched for the first time");
    let begun = Instant::now();
    let mut fetching = std::pin::pin!(checkout.fetch(remote, branch));
    let mut told = tokio::time::interval_at((begun + TELLS_EVERY).into(), TELLS_EVERY);
    let fetched = loop {
        tokio::select! {
            fetched = &mut fetching => break fetched?,
            _ = told.tick() => {
                let (megabytes, seconds) = (checkout.packed_bytes().await >> 20, begun.elapsed().as_secs());
                tracing::info!(repo = %name, megabytes, seconds, "the repository is being fetched");
            }
        }
    };
    tracing::info!(repo = %name, seconds = begun.elapsed().as_secs(), "the repository is fetched");
    Ok(fetched)
}

/// Whether the clone was brought to some commit before.
async fn has_files(git: &GitProgram, dir: &AbsPath) -> bool {
    match Checkout::open(git.clone(), dir, false).await {
        Ok(checkout) => matches!(checkout.reference("HEAD").await, Ok(Some(_))),
        Err(_) => false,
    }
}

fn origin_branch(entry: &Repository, name: &RepoName) -> Result<BranchName, Refusal> {
    let Some(branch) = &entry.origin_branch else {
        return Err(Refusal::new(
            StopDetail::OriginUnresolved,
            format!(
                "{name} has no `path` and no `origin_branch`: which files its agent comes from is not known."
            ),
        )
        .hint("origin_branch = \"…\" in its [[repositories]] entry"));
    };
    BranchName::parse(branch).map_err(|error| {
        Refusal::new(StopDetail::OriginMissing, format!("origin_branch of {name}: {error}."))
    })
}

/// The operator's configuration, narrowed by the clone's own file (D85). What that file may not decide is also logged.
pub fn configuration(config: &Config, dir: &AbsPath, name: &RepoName, env: &Env) -> Config {
    let config = config.in_clone(dir.as_path(), name, env);
    if let Some(told) = refused(&config) {
        tracing::info!(repo = %name, "{told}");
    }
    config
}

/// A sentence about the keys of the clone's own file that do not count, by reason.
pub fn refused(config: &Config) -> Option<String> {
    let refused = &config.clone_file()?.refused;
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for key in refused {
        let name = match key.key.as_str() {
            "*" => format!("the whole of {}", key.source),
            name => format!("{name} ({})", key.source),
        };
        match reasons.iter_mut().find(|(why, _)| *why == key.why) {
            Some((_, keys)) => keys.push(name),
            None => reasons.push((&key.why, vec![name])),
        }
    }
    let told: Vec<String> =
        reasons.into_iter().map(|(why, keys)| format!("{}: {why}", keys.join(", "))).collect();
    let intro = "The repository's own configuration may only narrow the operator's, since agentd manages the clone. Not followed";
    (!told.is_empty()).then(|| format!("{intro}: {}.", told.join("; ")))
}

/// Narrows what the definition of a managed clone asks of the sandbox, because whoever can push there must not decide
/// about the sandbox. Gives a sentence for each request that is not followed.
pub fn narrow(definition: &mut Definition, config: &Config) -> Vec<String> {
    let sandbox = &mut definition.boundaries.sandbox;
    let mut told = Vec::new();
    if !sandbox.enabled {
        sandbox.enabled = true;
        told.push("enabled = false: only your own sandbox.mode switches the sandbox off".to_owned());
    }
    if !sandbox.allowed_paths.is_empty() {
        let paths = std::mem::take(&mut sandbox.allowed_paths);
        told.push(format!(
            "filesystem.allowedPaths {}: nothing beside the worktree is writable",
            paths.join(", ")
        ));
    }
    let operators = config.sandbox.hosts.iter().map(String::as_str);
    let most = Egress::of(TRUSTED.iter().copied().chain(operators)).unwrap_or(Egress::Nothing);
    let (network, left_out) = sandbox.network.within(&most);
    sandbox.network = network;
    if !left_out.is_empty() {
        let hosts = left_out.join(", ");
        told.push(format!(
            "network.trustedDomains {hosts}: sandbox.hosts in your own agentd.toml allows them"
        ));
    }
    let name = &definition.name;
    let sentence = |asked| {
        format!(
            "The agent \"{name}\" comes from a clone that agentd manages. Not followed, of its runner.boundaries.sandbox: {asked}."
        )
    };
    told.into_iter().map(sentence).collect()
}

/// Refuses a clone whose definitions lead out of it by a link, because their text goes to models and files of this
/// machine must not.
pub fn stays_inside(root: &Path) -> Result<(), Refusal> {
    let mut open = vec![root.join(".agent")];
    while let Some(path) = open.pop() {
        let Ok(meta) = path.symlink_metadata() else { continue };
        if meta.is_symlink() {
            // A link to nothing counts: what it leads to may be there by the next look.
            if path.canonicalize().is_err() || leads_out(root, &path).is_some() {
                let message = format!(
                    "{} is a link that leads out of the repository, and its definitions come from a clone that agentd manages.",
                    path.display()
                );
                return Err(Refusal::new(StopDetail::ConfigInvalid, message)
                    .hint("put the file itself into the repository"));
            }
        } else if meta.is_dir() {
            open.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    Ok(())
}

/// Brings a managed clone's files to the present commit of its origin branch.
pub async fn refresh(context: &RepositoryContext) -> Result<(), Refusal> {
    let branch = origin_branch(&context.repository, &context.repo)?;
    if let Some(commit) = context.origin_commit(&branch).await? {
        context.checkout.stand_on(&commit).await?;
    }
    Ok(())
}
