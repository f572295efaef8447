//! What agentd does in the conversation of a pull request: replies, resolved threads, hidden comments, reviewers asked again.

use http::Method;
use serde_json::json;

use super::client::Client;
use super::error::Error;
use super::graphql::Query;
use super::rest_wire::CommentWire;
use crate::domain::name::RepoName;

const NEEDS: &str = "pull requests: write";
const RESOLVE: &str =
    "mutation($id: ID!) { resolveReviewThread(input: { threadId: $id }) { thread { isResolved } } }";
const MINIMIZE: &str = "mutation($id: ID!) { minimizeComment(input: { subjectId: $id, classifier: OUTDATED }) { \
    minimizedComment { isMinimized } } }";

impl Client {
    /// Replies in a thread, whose first comment is `first`. It is sent once: where the answer is lost, the caller looks
    /// for the text's marker. Gives the number of the reply.
    pub async fn reply_in_thread(
        &self,
        repo: &RepoName,
        (pull, first): (u64, u64),
        text: &str,
    ) -> Result<u64, Error> {
        let doing = format!("replying in a thread of pull request {pull} of {repo}");
        let path = format!("/repos/{repo}/pulls/{pull}/comments/{first}/replies");
        let body = json!({ "body": self.public(text) });
        let reply = self.write(Method::POST, &path, Some(body), &doing, NEEDS).await?;
        Ok(reply.json::<CommentWire>()?.id)
    }

    /// Resolves a thread.
    pub async fn resolve_thread(&self, id: &str) -> Result<(), Error> {
        let query = Query::new(RESOLVE, json!({ "id": id }), "resolving a thread", "contents: write");
        self.graphql(query).await?.whole().map(drop)
    }

    /// Hides a comment as outdated.
    pub async fn minimize(&self, node_id: &str) -> Result<(), Error> {
        let query = Query::new(MINIMIZE, json!({ "id": node_id }), "hiding a comment", NEEDS);
        self.graphql(query).await?.whole().map(drop)
    }

    /// Asks people for another review; who is asked already stays so.
    pub async fn request_reviews(&self, repo: &RepoName, pull: u64, logins: &[String]) -> Result<(), Error> {
        let doing = format!("asking for another review of pull request {pull} of {repo}");
        let path = format!("/repos/{repo}/pulls/{pull}/requested_reviewers");
        let body = json!({ "reviewers": logins });
        self.write(Method::POST, &path, Some(body), &doing, NEEDS).await.map(drop)
    }
}
