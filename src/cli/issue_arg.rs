//! An issue as people name it on the command line.

use url::Url;

use crate::domain::name::RepoName;

/// `42`, `#42`, `owner/name#42`, or the issue's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssueArg {
    /// Its number.
    pub number: u64,
    /// Its repository, where the name says it.
    pub repo: Option<RepoName>,
    /// Its address, where that was given.
    pub url: Option<String>,
}

/// What is taken for an issue.
const FORMS: &str = "write 42, '#42', OWNER/NAME#42 or the issue's address";

/// Reads one.
pub fn issue(text: &str) -> Result<IssueArg, String> {
    let text = text.trim();
    if text.contains("://") {
        return of_address(text);
    }
    let (repo, number) = match text.split_once('#') {
        Some(("", number)) => (None, number),
        Some((repo, number)) => (Some(RepoName::parse(repo).map_err(|error| error.to_string())?), number),
        None => (None, text),
    };
    Ok(IssueArg { number: number_of(number)?, repo, url: None })
}

fn number_of(text: &str) -> Result<u64, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| digits && *number > 0);
    number.ok_or_else(|| format!("\"{text}\" is not an issue's number; {FORMS}"))
}

fn of_address(text: &str) -> Result<IssueArg, String> {
    let url = Url::parse(text).map_err(|error| format!("{error}; {FORMS}"))?;
    let segments: Vec<&str> =
        url.path_segments().into_iter().flatten().filter(|part| !part.is_empty()).collect();
    match segments.as_slice() {
        [owner, name, "issues", number] if matches!(url.scheme(), "http" | "https") => Ok(IssueArg {
            number: number_of(number)?,
            repo: Some(RepoName::parse(&format!("{owner}/{name}")).map_err(|error| error.to_string())?),
            url: Some(text.to_owned()),
        }),
        [_, _, "pull" | "pulls", ..] => {
            Err("this is the address of a pull request; name the issue that it belongs to".to_owned())
        }
        _ => Err(format!("this is not the address of an issue (https://HOST/OWNER/NAME/issues/N); {FORMS}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(u64, Option<String>)> {
        issue(text).ok().map(|issue| (issue.number, issue.repo.map(|repo| repo.to_string())))
    }

    #[test]
    fn an_issue_is_its_number_with_or_without_a_hash_its_repository_s_or_its_address() {
        let shop = Some("demo/shop".to_owned());
        for (text, expected) in [
            ("42", (42, None)),
            ("#42", (42, None)),
            ("demo/shop#42", (42, shop.clone())),
            ("https://github.com/demo/shop/issues/42", (42, shop.clone())),
            ("https://github.com/demo/shop/issues/42/?x=1#issuecomment-5", (42, shop.clone())),
            ("http://127.0.0.1:8080/demo/shop/issues/42", (42, shop)),
        ] {
            assert_eq!(read(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "#",
            "0",
            "-1",
            "+4",
            "4.2",
            "x",
            "demo#4",
            "##4",
            "42 43",
            "99999999999999999999",
            "https://github.com/demo/shop/pull/42",
            "https://github.com/demo/shop",
            "ftp://h/demo/shop/issues/1",
            "https://github.com/demo/shop/issues/new",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert!(issue("https://github.com/a/b/pull/4").unwrap_err().contains("pull request"));
    }
}
