//! Files that people attach to texts: found by the signed links of the rendered text, read from GitHub's own hosts for them,
//! without the token and without following anything.

use std::sync::LazyLock;

use regex::Regex;
use reqwest::{StatusCode, Url};
use serde_json::Value;
use uuid::Uuid;

use super::client::Client;
use super::error::Error;
use super::request::Ask;
use crate::domain::name::RepoName;
use crate::domain::remark::RemarkId;
use crate::domain::shown_markdown::image_addresses;

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

/// A text as it is now.
#[derive(Debug, Clone, Default)]
pub struct Rendered {
    /// The addresses of the images that it shows outside of quotes.
    pub addresses: Vec<String>,
    /// HTML, with links to attachments that work for some minutes.
    pub html: String,
}

impl Client {
    /// A text as GitHub shows it.
    pub async fn rendered(&self, repo: &RepoName, of: TextOf) -> Result<Rendered, Error> {
        let path = match of {
            TextOf::Issue(number) => format!("issues/{number}"),
            TextOf::Remark(RemarkId::Comment(id), _) => format!("issues/comments/{id}"),
            TextOf::Remark(RemarkId::ReviewComment(id), _) => format!("pulls/comments/{id}"),
            TextOf::Remark(RemarkId::Review(id), Some(pull)) => format!("pulls/{pull}/reviews/{id}"),
            TextOf::Remark(..) => return Ok(Rendered::default()),
        };
        let doing = format!("reading the images of {path} of {repo}");
        let url = self.url(&format!("/repos/{repo}/{path}"));
        let ask = Ask { accept: Some(FULL), ..Ask::get(url, &doing, "issues: read") };
        let answer: Value = self.send(ask).await?.json()?;
        let text = |name: &str| answer[name].as_str().unwrap_or_default();
        Ok(Rendered { addresses: image_addresses(text("body")), html: text("body_html").to_owned() })
    }

    /// The link by which the attachment at `address` is read. `rendered` = the text that shows it, as it is now, which may be a later
    /// one than the text that the address is from.
    pub fn attachment_link(&self, address: &str, rendered: &Rendered) -> Result<String, NotRead> {
        let url = Url::parse(address).map_err(|_| NotRead::OtherHost)?;
        let plain = self.endpoint().origin().starts_with("http://");
        if !(url.scheme() == "https" || plain && url.scheme() == "http") || !url.username().is_empty() {
            return Err(NotRead::OtherHost);
        }
        let host = url.host_str().unwrap_or_default();
        if host == PUBLIC && self.is_public_github() {
            return Ok(address.to_owned());
        }
        let id = url.path().strip_prefix("/user-attachments/assets/").unwrap_or_default();
        if !is_id(id) || !self.endpoint().serves_remote(address) {
            return Err(NotRead::OtherHost);
        }
        // Whoever changed the text since may have put another link in the place of this one.
        if !rendered.addresses.iter().any(|shown| shown == address) {
            return Err(NotRead::NoLink);
        }
        only_link(&rendered.html, |link| self.keeps_attachments(link) && is_file_of(id, link))
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
    fn keeps_attachments(&self, link: &Url) -> bool {
        let host = link.host_str().unwrap_or_default();
        if self.is_public_github() {
            return link.scheme() == "https" && matches!(host, SIGNED | PUBLIC);
        }
        let own = Url::parse(self.endpoint().origin()).ok();
        let own = own.as_ref().filter(|own| own.scheme() == link.scheme()).and_then(|own| own.host_str());
        own.is_some_and(|own| host == own || host.strip_suffix(own).is_some_and(|sub| sub.ends_with('.')))
    }
}

/// The link of the one file that a text shows and that is meant. GitHub keeps an attachment in one place, so that with two of them one
/// is not its.
fn only_link(html: &str, is_meant: impl Fn(&Url) -> bool) -> Result<String, NotRead> {
    static SHOWN: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"<img\b[^>]*?\ssrc="([^"]+)""#).ok());
    let shown = SHOWN.as_ref().ok_or(NotRead::NoLink)?;
    let links = shown.captures_iter(html).map(|found| found[1].replace("&amp;", "&"));
    let parsed = links.filter_map(|link| Some((Url::parse(&link).ok()?, link)));
    let mut meant = parsed.filter(|(url, _)| is_meant(url));
    let (first, link) = meant.next().ok_or(NotRead::NoLink)?;
    let place = |url: &Url| (url.origin(), url.path().to_owned());
    let only = meant.all(|(other, _)| place(&other) == place(&first));
    only.then_some(link).ok_or(NotRead::NoLink)
}

/// Whether it is an id as GitHub gives them to attachments.
fn is_id(id: &str) -> bool {
    id.len() == 36 && Uuid::try_parse(id).is_ok()
}

/// Whether a link leads to the file of an attachment: its last part is the id, behind a number or not, with an ending or not.
fn is_file_of(id: &str, link: &Url) -> bool {
    let name = link.path().rsplit('/').next().unwrap_or_default();
    let name = name.split_once('.').map_or(name, |(name, _)| name);
    let numbered = |(number, name): (&str, &str)| {
        name == id && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    name == id || name.split_once('-').is_some_and(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0a1b2c3d-1111-4222-8333-444455556666";

    #[test]
    fn an_attachment_is_known_by_its_whole_id_and_by_no_part_of_it() {
        assert!(is_id(ID));
        for id in [
            "-",
            "",
            "0a1b2c3d",
            "{0a1b2c3d-1111-4222-8333-4444555566}",
            &ID.replace('-', ""),
            &format!("{ID}0"),
        ] {
            assert!(!is_id(id), "{id}");
        }
        let is_it =
            |path: &str| is_file_of(ID, &Url::parse(&format!("https://{SIGNED}/{path}?jwt=x")).unwrap());
        for path in [ID, &format!("7/123-{ID}.png"), &format!("7/{ID}.png"), &format!("a/{ID}")] {
            assert!(is_it(path), "{path}");
        }
        let other = "9a1b2c3d-1111-4222-8333-444455556666";
        for path in [
            other,
            &format!("7/123-{other}.png"),
            &format!("{ID}/x.png"),
            &format!("x-{ID}.png"),
            &format!("-{ID}"),
            &format!("{other}-{ID}"),
            &format!("{ID}-1"),
        ] {
            assert!(!is_it(path), "{path}");
        }
    }

    #[test]
    fn a_text_that_shows_two_files_in_the_place_of_one_has_no_link_to_it() {
        let image =
            |path: &str| format!("<p><img src=\"https://git.example/{path}?a=1&amp;b=2\" alt=\"x\"></p>");
        let of = |html: String| only_link(&html, |url| is_file_of(ID, url));
        let (own, fake) = (image(&format!("storage/1-{ID}.png")), image(&format!("o/r/raw/main/{ID}.png")));
        let link = format!("https://git.example/storage/1-{ID}.png?a=1&b=2");
        assert_eq!(of(format!("{own}{}{own}", image("x.png"))), Ok(link));
        assert_eq!(of(format!("{fake}{own}")), Err(NotRead::NoLink));
        assert_eq!(of(image("x.png")), Err(NotRead::NoLink));
    }
}
