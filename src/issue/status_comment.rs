//! The one status comment of an issue: its text is its writer's, and it carries what the issue has cost.

use std::sync::Arc;

use super::spending;
use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;
use crate::github::{Client, Comment, Ensured, Error};
use crate::record::rendering;
use crate::store::Store;

/// Makes the status comment of an issue say this.
pub async fn ensure(
    client: &Client,
    store: &Arc<dyn Store>,
    (repo, number): (&RepoName, u64),
    text: &str,
) -> Result<(Comment, Ensured), Error> {
    let key = IssueKey::Number(number);
    let marker = rendering::marker(&key);
    let (store, of) = (Arc::clone(store), repo.clone());
    let line =
        tokio::task::spawn_blocking(move || spending::line(&store, &of, &key)).await.unwrap_or_default();
    client.ensure_comment(repo, number, &marker, &format!("{text}{line}")).await
}
