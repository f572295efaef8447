//! Whether the first run of an issue could publish anything at all, as far as GitHub says so beforehand (D32).

use super::Plan;
use crate::config::config_file::Publish;
use crate::domain::policy::ActorPermission;
use crate::domain::refusal::Refusal;
use crate::domain::stop::StopDetail;
use crate::repository::context::RepositoryContext;

/// Refuses it where the repository is archived, or the credentials may only read. What GitHub does not say refuses nothing, and
/// work that was begun is gone on with: it is published once it may be.
pub async fn check(plan: &Plan, context: &RepositoryContext) -> Result<(), Refusal> {
    let Some(github) = &context.github else { return Ok(()) };
    let is_first = plan.lease_record.is_none() && plan.request.resume.is_none();
    if plan.publish == Publish::None || !is_first || context.replay.is_some() {
        return Ok(());
    }
    let repo = &context.repo;
    let Ok(found) = github.repository(repo).await else { return Ok(()) };
    let refused = |message: String| Refusal::new(StopDetail::GithubError, message);
    if found.archived {
        return Err(refused(format!("{repo} is archived on GitHub: nothing can be published there."))
            .hint("unarchive it, or take its entry out of the configuration"));
    }
    match found.permission {
        Some(permission) if permission < ActorPermission::Write => {
            let has = permission.as_str();
            let message = format!(
                "The credentials have the permission \"{has}\" on {repo}: branches could not be pushed there."
            );
            Err(refused(message)
                .hint("give the token or App write access to contents, issues and pull requests")
                .hint("--publish none works without it"))
        }
        _ => Ok(()),
    }
}
