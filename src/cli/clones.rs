//! The clones that agentd manages, as the configuration names them, each with the configuration narrowed by its own
//! file.

use std::path::PathBuf;

use super::context::Context;
use super::error::CommandError;
use crate::config::Config;
use crate::domain::name::RepoName;
use crate::repository::managed;
use crate::store::run_dir::StateDir;

/// A clone.
pub(super) struct Clone {
    /// Whose.
    pub repo: RepoName,
    /// Where it is.
    pub dir: PathBuf,
    /// The operator's configuration, narrowed by the clone's own file.
    pub config: Config,
}

/// The clones that were made by now, of every entry without `path` or of the one repository.
pub(super) fn of(
    context: &Context,
    operator: &Config,
    only: Option<&RepoName>,
) -> Result<Vec<Clone>, CommandError> {
    let state = StateDir::new(context.state_place()?.as_path().to_owned());
    let entries = operator.repositories.iter().filter(|entry| entry.path.is_none());
    let names = entries.filter_map(|entry| entry.name.clone());
    let wanted = names.filter(|name| only.is_none_or(|only| only == name));
    let made = wanted.map(|repo| (managed::place(&state, &repo), repo)).filter(|(dir, _)| dir.is_dir());
    let narrowed = made.map(|(dir, repo)| {
        let config = operator.in_clone(&dir, &repo, &context.env);
        Clone { repo, dir, config }
    });
    Ok(narrowed.collect())
}
