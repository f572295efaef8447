//! Labels: made when they are needed, put on and taken off as often as one likes.

use http::Method;
use serde_json::json;

use super::Change;
use super::client::Client;
use super::error::{Error, ErrorKind};
use super::listing::encode;
use super::request::Ask;
use crate::domain::name::RepoName;

const NEEDS: &str = "issues: write";

/// A label as it should be when it has to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelSpec<'a> {
    /// Name.
    pub name: &'a str,
    /// Six hexadecimal digits.
    pub color: &'a str,
    /// One line.
    pub description: &'a str,
}

impl Client {
    /// Makes a label where there is none; one that is there keeps its look.
    pub async fn ensure_label(&self, repo: &RepoName, label: LabelSpec<'_>) -> Result<Change, Error> {
        if self.label_exists(repo, label.name).await? {
            return Ok(Change::Unchanged);
        }
        let doing = format!("making the label \"{}\" in {repo}", label.name);
        let body = json!({"name": label.name, "color": label.color, "description": label.description});
        // Names are unique, so a second one cannot be made: repeating is safe.
        let ask =
            Ask::write(Method::POST, self.url(&format!("/repos/{repo}/labels")), Some(body), doing, NEEDS)
                .repeatable();
        match self.send(ask).await {
            Ok(_) => Ok(Change::Created),
            Err(error) if error.kind == ErrorKind::AlreadyExists => Ok(Change::Unchanged),
            Err(error) => Err(error),
        }
    }

    /// Whether the repository knows the label.
    pub async fn label_exists(&self, repo: &RepoName, name: &str) -> Result<bool, Error> {
        let doing = format!("looking for the label \"{name}\" in {repo}");
        let url = self.url(&format!("/repos/{repo}/labels/{}", encode(name)));
        match self.send(Ask::get(url, doing, "issues: read")).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Puts labels on an issue; those that are on stay on. None = no request.
    pub async fn add_labels(&self, repo: &RepoName, number: u64, names: &[&str]) -> Result<(), Error> {
        if names.is_empty() {
            return Ok(());
        }
        let doing = format!("labelling issue {number} of {repo}");
        let url = self.url(&format!("/repos/{repo}/issues/{number}/labels"));
        let ask = Ask::write(Method::POST, url, Some(json!({"labels": names})), doing, NEEDS).repeatable();
        self.send(ask).await.map(drop)
    }

    /// Takes a label off an issue; one that is not on is fine.
    pub async fn remove_label(&self, repo: &RepoName, number: u64, name: &str) -> Result<(), Error> {
        let doing = format!("taking the label \"{name}\" off issue {number} of {repo}");
        let path = format!("/repos/{repo}/issues/{number}/labels/{}", encode(name));
        match self.write(Method::DELETE, &path, None, &doing, NEEDS).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}
