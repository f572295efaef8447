//! What the credentials may do. The requests that need a right are tried; they change nothing.

use http::Method;
use serde_json::json;

use super::client::Client;
use super::error::{Error, ErrorKind};
use super::request::Ask;
use crate::domain::name::{BranchName, RepoName};

/// Something that agentd asks of GitHub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// Reading issues.
    ReadIssues,
    /// Writing labels and comments.
    WriteIssues,
    /// Reading pull requests.
    ReadPulls,
    /// Opening pull requests.
    WritePulls,
}

impl Right {
    /// The permission, as GitHub names it.
    pub fn permission(self) -> &'static str {
        match self {
            Self::ReadIssues => "issues: read",
            Self::WriteIssues => "issues: write",
            Self::ReadPulls => "pull requests: read",
            Self::WritePulls => "pull requests: write",
        }
    }
}

impl Client {
    /// Makes a request that needs the right. Writing requests are incomplete on purpose: GitHub checks the right first
    /// and then refuses the content, so that they have no effect.
    pub async fn try_right(&self, repo: &RepoName, right: Right, base: &BranchName) -> Result<(), Error> {
        let url = |path: &str| self.url(&format!("/repos/{repo}/{path}"));
        let needs = right.permission();
        let doing = format!("trying \"{needs}\" in {repo}");
        // No branch of this name is ever made.
        let head = "agentd-doctor/never-made";
        let post = |path: &str, body| Ask::write(Method::POST, url(path), Some(body), doing.clone(), needs);
        let ask = match right {
            Right::ReadIssues => Ask::get(url("issues?per_page=1"), doing.clone(), needs),
            Right::ReadPulls => Ask::get(url("pulls?per_page=1"), doing.clone(), needs),
            Right::WriteIssues => post("labels", json!({})),
            Right::WritePulls => {
                post("pulls", json!({ "title": "agentd doctor", "head": head, "base": base.as_str() }))
            }
        };
        match self.send(ask).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind == ErrorKind::Validation => Ok(()),
            Err(error) => Err(error),
        }
    }
}
