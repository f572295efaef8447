//! Files that people attach to texts: found by the signed links of the rendered text, read from GitHub's own hosts for them,
//! without the token and without following anything.

use std::sync::LazyLock;

use regex::Regex;
use reqwest::StatusCode;
use serde_json::Value;

use super::client::Client;
use super::error::Error;
use super::request::Ask;
use crate::domain::name::RepoName;
use crate::domain::remark::RemarkId;

/// The rendered text beside the Markdown.
const FULL: &str = "application/vnd.github.full+json";
/// Where github.com keeps what was attached: signed links, and old public ones.
const SIGNED: &str = "private-user-images.githubusercontent.com";
const PUBLIC: &str = "user-images.githubusercontent.com";

/// A text that files are attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextOf {
    /// The body of an issue.
    Issue(u64),
    /// A remark, and the pull request that it belongs to, if it does.
    Remark(RemarkId, Option<u64>),
}

/// Why a file was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotRead {
    /// Its address is none of an attachment.
    OtherHost,
    /// The rendered text has no link to it.
    NoLink,
    /// It is longer than wanted.
    TooLarge,
    /// Its link does not work, or leads elsewhere.
    Unreadable,
}

impl NotRead {
    /// The word for the record.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OtherHost => "other_host",
            Self::NoLink => "no_link",
            Self::TooLarge => "too_large",
            Self::Unreadable => "unreadable",
        }
    }
}

impl Client {
    /// A text as GitHub shows it, HTML with links to attachments that work for some minutes.
    pub async fn rendered(&self, repo: &RepoName, of: TextOf) -> Result<String, Error> {
        let path = match of {
            TextOf::Issue(number) => format!("issues/{number}"),
            TextOf::Remark(RemarkId::Comment(id), _) => format!("issues/comments/{id}"),
            TextOf::Remark(RemarkId::ReviewComment(id), _) => format!("pulls/comments/{id}"),
            TextOf::Remark(RemarkId::Review(id), Some(pull)) => format!("pulls/{pull}/reviews/{id}"),
            TextOf::Remark(..) => return Ok(String::new()),
        };
        let doing = format!("reading the images of {path} of {repo}");
        let url = self.url(&format!("/repos/{repo}/{path}"));
        let ask = Ask { accept: Some(FULL), ..Ask::get(url, &doing, "issues: read") };
        let answer: Value = self.send(ask).await?.json()?;
        Ok(answer["body_html"].as_str().unwrap_or_default().to_owned())
    }

    /// The link by which the attachment at `address` is read. `rendered` = the text that shows it, as HTML.
    pub fn attachment_link(&self, address: &str, rendered: &str) -> Result<String, NotRead> {
        let url = reqwest::Url::parse(address).map_err(|_| NotRead::OtherHost)?;
        let plain = self.endpoint().origin().starts_with("http://");
        if !(url.scheme() == "https" || plain && url.scheme() == "http") || !url.username().is_empty() {
            return Err(NotRead::OtherHost);
        }
        let host = url.host_str().unwrap_or_default();
        if host == PUBLIC && self.is_public_github() {
            return Ok(address.to_owned());
        }
        let id = url.path().strip_prefix("/user-attachments/assets/").unwrap_or_default();
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !is_id || !self.endpoint().serves_remote(address) {
            return Err(NotRead::OtherHost);
        }
        static SHOWN: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r#"<img\b[^>]*?\ssrc="([^"]+)""#).ok());
        let shown = SHOWN.as_ref().ok_or(NotRead::NoLink)?;
        let links = shown.captures_iter(rendered).map(|found| found[1].replace("&amp;", "&"));
        let is_of_it = |link: &String| {
            reqwest::Url::parse(link)
                .is_ok_and(|link| link.path().contains(id) && self.keeps_attachments(&link))
        };
        links.into_iter().find(is_of_it).ok_or(NotRead::NoLink)
    }

    /// Reads a file by its link, at most `most` bytes of it.
    pub async fn attachment(&self, link: &str, most: u64) -> Result<Result<Vec<u8>, NotRead>, Error> {
        let doing = "reading an image";
        let http = self.without_token(doing)?;
        let Ok(mut response) = http.get(link).send().await else { return Ok(Err(NotRead::Unreadable)) };
        if response.status() != StatusCode::OK {
            return Ok(Err(NotRead::Unreadable));
        }
        if response.content_length().is_some_and(|length| length > most) {
            return Ok(Err(NotRead::TooLarge));
        }
        let mut bytes = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(piece)) if (bytes.len() + piece.len()) as u64 > most => {
                    return Ok(Err(NotRead::TooLarge));
                }
                Ok(Some(piece)) => bytes.extend_from_slice(&piece),
                Ok(None) => return Ok(Ok(bytes)),
                Err(_) => return Ok(Err(NotRead::Unreadable)),
            }
        }
    }

    fn is_public_github(&self) -> bool {
        self.endpoint().origin() == "https://api.github.com"
    }

    /// Whether a host is one where this GitHub keeps what was attached. An Enterprise server keeps it on its own host or below.
    fn keeps_attachments(&self, link: &reqwest::Url) -> bool {
        let host = link.host_str().unwrap_or_default();
        if self.is_public_github() {
            return link.scheme() == "https" && matches!(host, SIGNED | PUBLIC);
        }
        let own = reqwest::Url::parse(self.endpoint().origin()).ok();
        let own = own.as_ref().filter(|own| own.scheme() == link.scheme()).and_then(|own| own.host_str());
        own.is_some_and(|own| host == own || host.strip_suffix(own).is_some_and(|sub| sub.ends_with('.')))
    }
}
