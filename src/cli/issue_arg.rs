//! An issue as people name it on the command line.

use std::path::Path;

use url::Url;

use super::error::CommandError;
use crate::domain::issue::{IssueKey, is_word};
use crate::domain::name::RepoName;
use crate::issue::file;

/// `42`, `#42`, `owner/name#42`, or the issue's address; of an issue from a file, the file or its word (D30).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssueArg {
    /// Its number, or its word.
    pub key: IssueKey,
    /// Its repository, where the name says it.
    pub repo: Option<RepoName>,
    /// Its address, where that was given.
    pub url: Option<String>,
    /// Whether it was named by its file.
    pub is_file: bool,
}

/// What is taken for an issue.
const FORMS: &str = "write 42, '#42', OWNER/NAME#42 or the issue's address; of an issue file, FILE.md or the word that its run printed";

impl IssueArg {
    /// Its number in the tracker.
    ///
    /// # Errors
    /// It is in none.
    pub fn tracked(&self) -> Result<u64, CommandError> {
        self.key.number().filter(|_| !self.is_file).ok_or_else(|| {
            CommandError::invalid(format!("issue {} is from a file, and in no tracker", self.key))
                .hint("agentd run --issue-file FILE.md begins a run of it")
        })
    }
}

/// Reads one.
pub fn issue(text: &str) -> Result<IssueArg, String> {
    let text = text.trim();
    if text.contains("://") {
        return of_address(text);
    }
    if text.ends_with(".md") {
        let key = file::key_of(Path::new(text)).map_err(|refusal| refusal.stop.message)?;
        return Ok(IssueArg { key, repo: None, url: None, is_file: true });
    }
    let (repo, key) = match text.split_once('#') {
        Some(("", key)) => (None, key),
        Some((repo, key)) => (Some(RepoName::parse(repo).map_err(|error| error.to_string())?), key),
        None => (None, text),
    };
    let key = if is_word(key) { IssueKey::of_text(key) } else { number_of(key)? };
    Ok(IssueArg { key, repo, url: None, is_file: false })
}

fn number_of(text: &str) -> Result<IssueKey, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| digits && *number > 0);
    number.map(IssueKey::Number).ok_or_else(|| format!("\"{text}\" is not an issue's number; {FORMS}"))
}

fn of_address(text: &str) -> Result<IssueArg, String> {
    let url = Url::parse(text).map_err(|error| format!("{error}; {FORMS}"))?;
    let segments: Vec<&str> =
        url.path_segments().into_iter().flatten().filter(|part| !part.is_empty()).collect();
    match segments.as_slice() {
        [owner, name, "issues", number] if matches!(url.scheme(), "http" | "https") => Ok(IssueArg {
            key: number_of(number)?,
            repo: Some(RepoName::parse(&format!("{owner}/{name}")).map_err(|error| error.to_string())?),
            url: Some(text.to_owned()),
            is_file: false,
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
    use crate::sys::files;

    fn read(text: &str) -> Option<(u64, Option<String>)> {
        issue(text).ok().map(|issue| (issue.key.number().unwrap(), issue.repo.map(|repo| repo.to_string())))
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

    #[test]
    fn d30_an_issue_from_a_file_is_its_word_or_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let (word, number) = (dir.path().join("notes.md"), dir.path().join("7.md"));
        files::write_private(&word, b"# Do it\n").unwrap();
        files::write_private(&number, b"# Do it\n").unwrap();
        let made = IssueKey::of_content("# Do it\n");
        let key = |text: &str| issue(text).map(|issue| issue.key);
        assert_eq!(key(word.to_str().unwrap()), Ok(made.clone()));
        assert_eq!(key(number.to_str().unwrap()), Ok(IssueKey::Number(7)));
        assert_eq!(key(&made.to_string()), Ok(made.clone()));
        assert_eq!(key(&format!("demo/shop#{made}")), Ok(made));
        assert_eq!(key("012345678"), Ok(IssueKey::Word("012345678".to_owned())));
        assert!(key("absent.md").unwrap_err().contains("absent.md"));
        assert!(issue("09041b177").unwrap().tracked().is_err());
        assert!(
            issue(number.to_str().unwrap()).unwrap().tracked().is_err(),
            "a file is no issue of the tracker"
        );
        assert_eq!(issue("7").unwrap().tracked().ok(), Some(7));
    }
}
