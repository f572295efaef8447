//! Makes a model's text harmless for GitHub: it notifies nobody, closes no other issue and commands no bot (D36, D18).
//!
//! Redaction comes first, because the characters that are inserted here would hide the shape of a secret.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::untrusted::{DEFINITIONS, TakenOut, plain, without_hidden};

/// Longest comment or pull request text that GitHub takes, in characters.
pub const LONGEST_BODY: usize = 65_536;
/// Longest title that GitHub takes, in characters.
pub const LONGEST_TITLE: usize = 256;

/// Breaks a word without showing.
const BREAK: char = '\u{200b}';

/// Title of a pull request or comment: one harmless line that fits.
pub fn title(text: &str) -> String {
    // A title is shown as it is written: nothing in it is a comment.
    let line = plain(&text.split_whitespace().collect::<Vec<_>>().join(" "), usize::MAX).text;
    let line = broken(&line, None, true);
    if line.chars().count() <= LONGEST_TITLE {
        return line;
    }
    let kept: String = line.chars().take(LONGEST_TITLE - 1).collect();
    format!("{}…", kept.trim_end())
}

/// Body of a pull request or comment: harmless, and cut at a heading where GitHub accepts no more. `own` is the issue
/// that it may close. Some room is left for a marker that is put in front afterwards.
pub fn body(text: &str, own: Option<u64>) -> String {
    let notice =
        "*Shortened: GitHub takes no longer text. The rest is in `report.md` of the run's directory.*";
    cut(&defused(text, own), LONGEST_BODY - 512, notice)
}

/// Makes a model's text harmless on GitHub and keeps its look. What would be a comment is shown, and link definitions that
/// are comments are removed. An invisible character breaks mentions, images, character references that hide one, raw HTML (but `<details>` and `<summary>`), slash commands, words that keep checks from running, and
/// keywords that close other issues. A second pass changes nothing.
pub fn defused(text: &str, own: Option<u64>) -> String {
    broken(&plain(text, usize::MAX).text, own, true)
}

/// The same for a commit message. It has no code blocks, so nothing in it is exempt.
pub fn commit_text(text: &str, own: Option<u64>) -> String {
    broken(&plain(text, usize::MAX).text, own, false)
}

/// Whether a commit message does something once it is on GitHub: closes an issue other than `own`, or keeps checks from running.
pub fn acts_when_pushed(message: &str, own: Option<u64>) -> bool {
    closing(message, own) != message || message.lines().any(|line| skipping(line) != line)
}

fn broken(text: &str, own: Option<u64>, markdown: bool) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    let (mut fence, mut in_html) = (None, false);
    for line in text.split_inclusive('\n') {
        // After an HTML tag, fences mean nothing until the next empty line.
        in_html = !line.trim().is_empty() && (in_html || (fence.is_none() && has_kept_tag(line)));
        let in_code = markdown && !in_html && in_code(line, &mut fence);
        // Nobody would see it.
        if markdown && !in_code && DEFINITIONS.iter().any(|definitions| definitions.is_match(line)) {
            out.push_str(if line.ends_with('\n') { "\n" } else { "" });
            continue;
        }
        let line = command(line);
        // What agentd reads in its own comments begins so, also in code.
        let line = if in_code { line.replace("<!--", &format!("<{BREAK}!--")) } else { mentions(&line) };
        out.push_str(&skipping(&line));
    }
    // Bots and GitHub's own parser of commit texts do not know code blocks, and the number may stand on the next line.
    closing(&out, own)
}

/// Cuts a Markdown text to `longest` characters at a heading, else at a line, and says in `notice` where the rest is.
pub fn cut(text: &str, longest: usize, notice: &str) -> String {
    if text.chars().count() <= longest {
        return text.to_owned();
    }
    let ending = format!("\n\n{notice}\n");
    // Room for the fence that the cut may leave open.
    let room = longest.saturating_sub(ending.chars().count() + 12);
    let limit = text.char_indices().nth(room).map_or(text.len(), |(at, _)| at);
    let (mut fence, mut at) = (None, 0);
    let (mut heading, mut line_end) = (None, None);
    for line in text.split_inclusive('\n') {
        let code = in_code(line, &mut fence);
        if !code && line.trim_start_matches(' ').starts_with('#') && at > 0 {
            heading = Some(at);
        }
        at += line.len();
        if at > limit {
            break;
        }
        line_end = Some((at, fence));
    }
    let heading = heading.filter(|at| *at <= limit && *at >= limit / 2);
    let (kept, open) = match (heading, line_end) {
        (Some(at), _) => (&text[..at], None),
        (None, Some((at, open))) => (&text[..at], open),
        (None, None) => (&text[..limit], None),
    };
    let mut out = kept.trim_end().to_owned();
    if let Some((mark, length)) = open {
        out.push('\n');
        out.extend(std::iter::repeat_n(mark, length.min(10)));
    }
    out + &ending
}

/// Whether a line belongs to a fenced code block, with its marks. Only fences at the margin count. Code that is taken
/// for text only gets an invisible character.
fn in_code(line: &str, fence: &mut Option<(char, usize)>) -> bool {
    let line = line.trim_end();
    let inner = line.trim_start_matches(' ');
    let at_margin = line.len() - inner.len() <= 3;
    let mark = inner.chars().next().filter(|c| matches!(c, '`' | '~'));
    let length = mark.map_or(0, |mark| inner.chars().take_while(|c| *c == mark).count());
    match (*fence, mark) {
        (Some((open, least)), mark) => {
            if at_margin && mark == Some(open) && length >= least && inner.len() == length {
                *fence = None;
            }
            true
        }
        (None, Some(mark)) if at_margin && length >= 3 && (mark == '~' || !inner[length..].contains('`')) => {
            *fence = Some((mark, length));
            true
        }
        _ => false,
    }
}

fn replace(pattern: Option<&Regex>, text: &str, with: impl Fn(&Captures<'_>) -> String) -> String {
    // The patterns are constants that compile. If one did not, no text would pass.
    pattern.map_or_else(String::new, |pattern| {
        pattern.replace_all(text, |found: &Captures<'_>| with(found)).into_owned()
    })
}

fn has_kept_tag(line: &str) -> bool {
    ["<details>", "</details>", "<summary>", "</summary>"].iter().any(|tag| line.contains(tag))
}

fn mentions(line: &str) -> String {
    static MENTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(concat!(
            r"(?P<lead>^|[^A-Za-z0-9_/@])@(?P<name>[A-Za-z0-9_])",
            r"|(?P<kept></?(?:details|summary)>)|<(?P<tag>[A-Za-z/!?])",
            // GitHub looks for names and issues in what the references stand for, and fetches an image that nobody asked for.
            r"|&(?P<reference>(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|commat|num|sol|colon|period|excl|lpar|lsqb|lbrack|lowbar|UnderBar",
            r"|hyphen|dash|Tab|NewLine|nbsp|NonBreakingSpace|[a-z]{1,8}sp|[A-Za-z]+Space|zwn?j|shy|[lr][er]m);)",
            r"|!(?P<image>\[)",
        ))
        .ok()
    });
    replace(MENTION.as_ref(), line, |found| {
        let part = |name: &str| found.name(name).map(|part| part.as_str());
        match (part("kept"), part("tag"), part("reference"), part("image")) {
            (Some(kept), ..) => kept.to_owned(),
            (_, Some(tag), ..) => format!("<{BREAK}{tag}"),
            (.., Some(reference), _) => format!("&{BREAK}{reference}"),
            (.., Some(image)) => format!("!{BREAK}{image}"),
            _ => format!("{}@{BREAK}{}", &found["lead"], &found["name"]),
        }
    })
}

/// `/word` at the beginning of a line; a path has a second slash and stays.
fn command(line: &str) -> String {
    static COMMAND: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^(?P<lead>[\s>*+\-]*)/(?P<word>[A-Za-z][\w.:-]*(?:\s|$))").ok());
    replace(COMMAND.as_ref(), line, |found| format!("{}{BREAK}/{}", &found["lead"], &found["word"]))
}

/// `[skip ci]` and similar words. In a merged title or message they would keep every check from running.
fn skipping(line: &str) -> String {
    static SKIPPING: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(concat!(
            r"(?i)\[(?P<words>\s*(?:(?:skip|no)[ -][a-z][a-z -]{1,24}|[a-z]{1,16}[ -]skip)\s*\])",
            r"|\*\*\*(?P<azure>NO_CI\*\*\*)|(?P<lead>\bskip-)(?P<checks>checks\s*:)",
        ))
        .ok()
    });
    replace(SKIPPING.as_ref(), line, |found| {
        let (before, after) = match (found.name("words"), found.name("azure"), found.name("checks")) {
            (Some(words), ..) => ("[", words.as_str()),
            (_, Some(azure), _) => ("***", azure.as_str()),
            (.., checks) => (&found["lead"], checks.map_or("", |checks| checks.as_str())),
        };
        format!("{before}{BREAK}{after}")
    })
}

fn closing(line: &str, own: Option<u64>) -> String {
    static CLOSING: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(concat!(
            r"(?i)\b(?P<first>clos|fix|resolv)(?P<rest>e[sd]?|ing|ed|es|)(?P<gap>[^A-Za-z0-9]{1,12}|",
            r"[^A-Za-z0-9\n]{0,6}(?:issues?|gh-)[^A-Za-z0-9\n]{0,6}|[^A-Za-z0-9\n]{1,6}\[[^\]\n]{0,80}\]\()",
            r"(?P<target>(?:https?://[^\s/]+/)?(?P<repo>[\w.-]+/[\w.-]+)?(?:/(?:issues|pull)/|#|gh-)?(?P<number>[0-9]+)\b)",
        ))
        .ok()
    });
    replace(CLOSING.as_ref(), line, |found| {
        let whole = &found[0];
        let names_issue = whole.contains('#') || whole.contains("/issues/") || whole.contains("/pull/");
        let names_issue = names_issue || whole.to_lowercase().contains("gh-");
        let is_own =
            own.is_some_and(|own| found["number"].parse() == Ok(own) && found.name("repo").is_none());
        if !names_issue || is_own {
            return whole.to_owned();
        }
        let (first, rest) = (&found["first"], &whole[found["first"].len()..]);
        format!("{first}{BREAK}{rest}")
    })
}

/// A short text of a model for a place that takes no Markdown (a label, a log line): hidden characters out, one line.
pub fn plain_line(text: &str, longest: usize) -> String {
    let clean = without_hidden(text, &mut TakenOut::default());
    clean.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(longest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u64 = 7;

    #[test]
    fn d36_text_of_a_model_notifies_nobody_closes_nothing_and_commands_no_bot() {
        let table = include_str!("../../tests/data/attacks/outgoing.jsonl");
        let mut seen = 0;
        for line in table.lines() {
            let case: serde_json::Value = serde_json::from_str(line).unwrap();
            let out = defused(case["text"].as_str().unwrap(), Some(OWN));
            let shown = case["out"].as_str().unwrap().replace('·', "\u{200b}");
            assert_eq!(out, shown, "{}", case["why"]);
            assert_eq!(defused(&out, Some(OWN)), out, "twice: {}", case["why"]);
            seen += 1;
        }
        assert!(seen >= 30, "{seen}");
    }

    #[test]
    fn d18_a_long_text_is_cut_at_a_heading_and_says_where_the_rest_is() {
        let text = format!("# A\n\n{}\n## B\n\n{}\n## C\n\nend\n", "a\n".repeat(30), "b\n".repeat(40));
        let out = cut(&text, 150, "The rest is in report.md.");
        assert!(out.chars().count() <= 150, "{out}");
        assert!(out.ends_with("a\n\nThe rest is in report.md.\n"), "{out}");
        assert_eq!(cut(&text, 10_000, "x"), text);
        let code = format!("# A\n```text\n{}", "line of code\n".repeat(50));
        let out = cut(&code, 200, "More.");
        assert!(out.ends_with("line of code\n```\n\nMore.\n"), "{out}");
        let one_line = "é".repeat(500);
        let out = cut(&one_line, 100, "More.");
        assert!(out.chars().count() <= 100 && out.ends_with("\n\nMore.\n"), "{out}");
    }

    #[test]
    fn a_title_is_one_harmless_line() {
        assert_eq!(title("a\n@b  fixes #9"), "a @\u{200b}b fix\u{200b}es #9");
        assert_eq!(title(&"x".repeat(300)).chars().count(), LONGEST_TITLE);
        assert!(body(&"word ".repeat(20_000), None).chars().count() < LONGEST_BODY);
        assert_eq!(plain_line("a\u{202e}b\n c", 10), "ab c");
        assert_eq!(title("Fix it [skip ci]"), "Fix it [\u{200b}skip ci]");
    }

    #[test]
    fn d36_a_commit_message_is_as_harmless_in_a_code_block() {
        let out = commit_text("```\nThanks @octo\n```\nFixes #5, fixes #7\n", Some(OWN));
        assert_eq!(out, "```\nThanks @\u{200b}octo\n```\nFix\u{200b}es #5, fixes #7\n");
    }
}
