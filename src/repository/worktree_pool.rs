//! Worktrees that are checked out before an issue needs them (`worktree.pool`).

use super::context::RepositoryContext;
use crate::git::PoolPlan;

/// Brings the repository's pool to what is configured. It is done in the background, so what fails is logged: a run then
/// checks its worktree out itself.
pub async fn fill(context: &RepositoryContext) {
    let plan = PoolPlan {
        root: context.worktree_root(),
        members: context.config.worktree.pool as usize,
        population: context.population(),
    };
    let repo = &context.repo;
    match context.checkout.fill_pool(&plan).await {
        Ok(filled) => {
            if filled.made + filled.removed > 0 {
                let (ready, made, removed) = (filled.ready, filled.made, filled.removed);
                tracing::info!(%repo, ready, made, removed, "the pool of worktrees was filled");
            }
            for place in filled.left_alone {
                tracing::warn!(%repo, %place, "this worktree of the pool was changed by somebody; it is not used, and stays until it is removed by hand (git worktree remove)");
            }
        }
        Err(error) => tracing::warn!(%repo, %error, "the pool of worktrees was not filled"),
    }
}
