//! An issue from a Markdown file, for work without a tracker (D30, D94).

use std::path::Path;

use crate::domain::issue::{Issue, IssueKey};
use crate::domain::name::RepoName;
use crate::domain::outgoing::plain_line;
use crate::domain::refusal::Refusal;
use crate::domain::stop::StopDetail;

/// Longest file that is read as an issue, in bytes; GitHub's own limit for a body.
const LONGEST: u64 = 65_536;

/// Reads the file. Its first heading is the title, the rest the body. A stem `N` or `issue-N` gives the number; any
/// other file gets a word made from its content.
pub fn read(path: &Path, repo: &RepoName) -> Result<Issue, Refusal> {
    let (text, key) = read_text(path)?;
    let (title, body) = split(&text).ok_or_else(|| {
        refused(format!("The issue file {} has no heading.", path.display()))
            .hint("begin it with a line `# What is to be done`")
    })?;
    Ok(Issue {
        repo: repo.clone(),
        key,
        title,
        body,
        url: None,
        node_id: None,
        open: true,
        labels: Vec::new(),
        author: None,
        updated_at: None,
    })
}

/// What the issue of a file is named by.
pub fn key_of(path: &Path) -> Result<IssueKey, Refusal> {
    read_text(path).map(|(_, key)| key)
}

fn refused(message: String) -> Refusal {
    Refusal::new(StopDetail::InvalidInput, message)
}

fn read_text(path: &Path) -> Result<(String, IssueKey), Refusal> {
    let shown = path.display();
    let size = std::fs::metadata(path)
        .map_err(|error| {
            refused(format!("The issue file {shown} cannot be read: {error}.")).hint("check --issue-file")
        })?
        .len();
    if size > LONGEST {
        return Err(refused(format!(
            "The issue file {shown} has {size} bytes; an issue has at most {LONGEST}."
        )));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| refused(format!("The issue file {shown} cannot be read: {error}.")))?;
    let key = key(path, &text);
    Ok((text, key))
}

fn split(text: &str) -> Option<(String, String)> {
    let text = text.trim_start_matches('\u{feff}');
    let lines: Vec<&str> = text.lines().collect();
    let mut fence = None;
    for (index, line) in lines.iter().enumerate() {
        let line = line.trim();
        let mark = ["```", "~~~"].into_iter().find(|mark| line.starts_with(mark));
        match (fence, mark) {
            (None, Some(_)) => fence = mark,
            (Some(open), Some(mark)) if open == mark => fence = None,
            _ => {}
        }
        if fence.is_some() || mark.is_some() {
            continue;
        }
        let underlined = lines.get(index + 1).is_some_and(|next| is_underline(next.trim()));
        let (title, after) = match heading(line) {
            Some(title) => (title, index + 1),
            None if underlined && !is_underline(line) => (line, index + 2),
            None => continue,
        };
        if !plain_line(title, 1).is_empty() {
            let body = [&lines[..index], &lines[after..]].concat().join("\n");
            return Some((title.to_owned(), body.trim().to_owned()));
        }
    }
    None
}

/// The words of a line that begins with `#`.
fn heading(line: &str) -> Option<&str> {
    let words = line.strip_prefix('#')?.trim_start_matches('#');
    (words.is_empty() || words.starts_with([' ', '\t'])).then(|| words.trim())
}

/// What makes a heading of the line above it.
fn is_underline(line: &str) -> bool {
    line.len() >= 3 && ["=", "-"].into_iter().any(|mark| line.replace(mark, "").is_empty())
}

fn key(path: &Path, text: &str) -> IssueKey {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let digits = stem.strip_prefix("issue-").unwrap_or(stem);
    match digits.parse::<u64>() {
        Ok(number) if number > 0 && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            IssueKey::Number(number)
        }
        _ => IssueKey::of_content(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d94_only_a_number_or_issue_number_is_a_number() {
        assert_eq!(key(Path::new("/x/7.md"), ""), IssueKey::Number(7));
        assert_eq!(key(Path::new("/x/issue-42.md"), ""), IssueKey::Number(42));
        for other in ["/x/v2.md", "/x/2026-plan.md", "/x/issue-4b.md", "/x/+7.md", "/x/0.md"] {
            assert!(
                matches!(key(Path::new(other), "text"), IssueKey::Word(word) if word.starts_with('0')),
                "{other}"
            );
        }
    }

    #[test]
    fn the_first_heading_is_the_title() {
        let (title, body) = split("\n## Fix `add`  \n\nIt subtracts.\n# more\n").unwrap();
        assert_eq!((title.as_str(), body.as_str()), ("Fix `add`", "It subtracts.\n# more"));
        let (title, body) = split("```sh\n# no title\n```\nTitle\n=====\nIt is\n---\n").unwrap();
        assert_eq!((title.as_str(), body.as_str()), ("Title", "```sh\n# no title\n```\nIt is\n---"));
        for none in ["no heading\n#hashtag\n", "~~~\n# a\n```\n# b\n", "---\n---\n", "\n---\n"] {
            assert!(split(none).is_none(), "{none}");
        }
    }
}
