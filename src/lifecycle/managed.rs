//! A clone that agentd manages in its state directory: its files are always those of the origin branch (D1, D85).

use tokio_util::sync::CancellationToken;

use super::refusal::Refusal;
use super::site::Site;
use crate::config::layer::Layer;
use crate::config::{Config, Env, Repository};
use crate::domain::name::{BranchName, RepoName};
use crate::domain::stop::StopDetail;
use crate::git::checkout::Checkout;
use crate::git::program::GitProgram;
use crate::git::remote::{Remote, RemoteAuth};
use crate::github;
use crate::store::run_dir::StateDir;
use crate::sys::paths::AbsPath;

/// Where the clone of a repository is.
pub fn place(state: &StateDir, repo: &RepoName) -> std::path::PathBuf {
    state.repo(repo).join("checkout")
}

/// Makes the clone of an entry without `path` where there is none, brings its files to the origin branch, and says where
/// it is. A clone that is there serves as it is while GitHub does not answer: each run brings it forward again.
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
    let checkout = Checkout::manage(git.clone(), dir, &entry.remote, &url).await?;
    let remote = Remote::new(&entry.remote, &url, RemoteAuth::Token(github.git_token().await?.token));
    let commit = checkout.fetch(&remote, std::slice::from_ref(branch)).await?.pop().flatten();
    let commit = commit.ok_or_else(|| {
        Refusal::new(
            StopDetail::OriginMissing,
            format!("The branch {branch} of {name} (origin_branch) does not exist."),
        )
    })?;
    Ok(checkout.stand_on(&commit).await?)
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

/// The operator's configuration with what the clone's own file may add (D85); what it may not is said.
pub fn configuration(config: &Config, dir: &AbsPath, name: &RepoName, env: &Env) -> Result<Config, Refusal> {
    let files = [dir.join("agentd.toml"), dir.join(".agent/agentd.toml")];
    let Some(file) = files.iter().find(|file| file.as_path().is_file()) else { return Ok(config.clone()) };
    let layer = Layer::read(file.as_path(), env)?;
    let (config, left_out) = config.with_managed_clone(&layer, name, env)?;
    if !left_out.is_empty() {
        tracing::info!(repo = %name, keys = left_out.join(", "), "keys of the clone's own configuration do not count");
    }
    Ok(config)
}

/// Brings a managed clone's files to the present commit of its origin branch.
pub async fn refresh(site: &Site) -> Result<(), Refusal> {
    let branch = origin_branch(&site.repository, &site.repo)?;
    if let Some(commit) = site.origin_commit(&branch).await? {
        site.checkout.stand_on(&commit).await?;
    }
    Ok(())
}
