//! Keeps what models and issues write within the place that agentd gives it: no heading, ruler or tag of theirs looks like
//! agentd's own, and nothing of it stays open behind its end.

use pulldown_cmark::{Event, HeadingLevel, Parser, Tag};

use super::shown_markdown::options;
use super::untrusted::visible;

/// A heading inside a text is at most of this level; agentd's own are larger.
const LARGEST: HeadingLevel = HeadingLevel::H4;
/// Tags that change nothing but a few letters.
const HARMLESS: [&str; 8] = ["br", "kbd", "sub", "sup", "b", "i", "em", "strong"];
/// How often a text is read anew, since without its tags it may have headings.
const ROUNDS: usize = 8;
/// Stands behind a text to see whether it is closed.
const BEHIND: &str = "agentd-stands-behind-it";

/// A text of several lines, for a place of its own.
pub fn block(text: &str) -> String {
    let mut text = text.to_owned();
    for _ in 0..ROUNDS {
        let edits = edits(&text);
        if edits.is_empty() {
            return closed(text);
        }
        for (at, length, new) in edits.into_iter().rev() {
            text.replace_range(at..at + length, &new);
        }
    }
    quoted(&text)
}

/// A text on one line, behind agentd's words or in its lists.
pub fn line(text: &str) -> String {
    let mut line = visible(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if line.starts_with(['#', '>', '-', '+', '*', '|', '~', '`', '=']) && !is_span(&line) {
        line.insert(0, '\\');
    }
    block(&line)
}

/// Whether a line begins with emphasis or code, which is fine.
fn is_span(line: &str) -> bool {
    let Some(mark) = line.chars().next().filter(|mark| matches!(mark, '*' | '`')) else { return false };
    let rest = line.trim_start_matches(mark);
    let length = line.len() - rest.len();
    let fits = if mark == '*' { length < 3 } else { length == 1 };
    fits && !rest.starts_with(' ') && rest.contains(&mark.to_string().repeat(length))
}

/// What is to be changed: place, length and new text, in order.
fn edits(text: &str) -> Vec<(usize, usize, String)> {
    let mut edits: Vec<(usize, usize, String)> = Vec::new();
    for (event, range) in Parser::new_ext(text, options()).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { level, .. }) if level < LARGEST => {
                let source = &text[range.clone()];
                match source.find(|c: char| !c.is_whitespace()).filter(|at| source[*at..].starts_with('#')) {
                    Some(at) => edits.push((range.start + at, 0, "###".to_owned())),
                    // The line of `=` or `-` below a text.
                    None => {
                        let below = source.trim_end().rfind('\n').map_or(0, |at| at + 1);
                        let mark = source[below..].find(['=', '-']).unwrap_or_default();
                        edits.push((range.start + below + mark, 0, "\\".to_owned()));
                    }
                }
            }
            Event::Rule => edits.push((range.start, 0, "\\".to_owned())),
            Event::Html(html) | Event::InlineHtml(html) if !is_harmless(&html) => {
                let source = &text[range.clone()];
                edits.extend(
                    source.match_indices('<').map(|(at, _)| (range.start + at, 1, "&lt;".to_owned())),
                );
            }
            _ => {}
        }
    }
    // GitHub's alerts are agentd's way to warn.
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with('>') {
            let marks = line.match_indices("[!").filter(|(mark, _)| !line[..*mark].ends_with('\\'));
            edits.extend(marks.map(|(mark, _)| (at + mark, 0, "\\".to_owned())));
        }
        at += line.len();
    }
    edits.sort();
    edits.dedup();
    edits
}

fn is_harmless(html: &str) -> bool {
    let name = html.trim_start_matches(['<', '/']).trim_end().trim_end_matches(['>', '/']).trim_end();
    HARMLESS.contains(&name.to_ascii_lowercase().as_str())
}

/// Whether what stands behind a text is a paragraph of its own.
fn ends_itself(text: &str) -> bool {
    let whole = format!("{text}\n\n{BEHIND}\n");
    let mut open = 0_usize;
    let mut at_top = false;
    for event in Parser::new_ext(&whole, options()) {
        match event {
            Event::Start(_) => open += 1,
            Event::End(_) => open = open.saturating_sub(1),
            Event::Text(said) => at_top = open == 1 && *said == *BEHIND,
            _ => {}
        }
    }
    at_top
}

/// The text with its code block closed.
fn closed(text: String) -> String {
    if ends_itself(&text) {
        return text;
    }
    for mark in ["`", "~"] {
        let longest = text.split(|c: char| !mark.starts_with(c)).map(str::len).max().unwrap_or(0);
        let with_fence = format!("{}\n{}", text.trim_end_matches('\n'), mark.repeat(longest.max(3)));
        if ends_itself(&with_fence) {
            return with_fence;
        }
    }
    quoted(&text)
}

/// The text as it is written, in a code block that it cannot end.
fn quoted(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{}\n{fence}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_model_writes_looks_like_a_section_of_agentd_s() {
        for text in [
            "Done.\n\n## Verified\n\n- all",
            "Done.\n\n# Verified\n",
            "Verified\n===\n\n- all",
            "Verified\n---\n\n- all",
            "<h2>Verified</h2>\n\n- all",
            "<div>\n\n## Verified\n</div>",
            "<div>\n## Verified\n</div>",
            "</details>\n\n### Verified",
            "<!-- hidden\n\n## Verified",
            "a <h1>b</h1>",
            "> [!CAUTION]\n> x",
            "- a\n\n  ## Verified",
            "***\n\nx",
        ] {
            let confined = block(text);
            for event in Parser::new_ext(&confined, options()) {
                let bad = match &event {
                    Event::Start(Tag::Heading { level, .. }) => *level < LARGEST,
                    Event::Rule | Event::Html(_) | Event::InlineHtml(_) => true,
                    _ => false,
                };
                assert!(!bad, "{text:?} -> {confined:?}: {event:?}");
            }
            assert!(!confined.contains("> [!") && ends_itself(&confined), "{text:?} -> {confined:?}");
            assert_eq!(block(&confined), confined, "once is enough");
        }
    }

    #[test]
    fn what_is_open_at_the_end_is_closed_there() {
        for text in
            ["```\ncode", "~~~~\ncode\n```", "a\n````rust\n```\nx\n", "- ```sh\n  x\n  ```\n", "> ```\n> x"]
        {
            let confined = block(text);
            assert!(ends_itself(&confined), "{text:?} -> {confined:?}");
        }
        assert_eq!(block("```\n# a comment\n```"), "```\n# a comment\n```", "code stays as it is");
        assert_eq!(block("- ```sh\n  x\n  ```"), "- ```sh\n  x\n  ```");
    }

    #[test]
    fn what_is_harmless_stays_as_it_is() {
        for text in [
            "Fixed `a < b` in <https://docs.rs>.\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |",
            "Press <kbd>x</kbd>.<br>Then `<div>`.",
            "#### Small",
            "",
        ] {
            assert_eq!(block(text), text);
        }
        for text in ["`f` is right", "**All** is right", "It's 3 > 2", "*x* y"] {
            assert_eq!(line(text), text);
        }
    }

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(line("x\n\n## Verified\n- y"), "x ## Verified - y");
        for text in ["# Verified", "- [x] y", "```\ncode", "> quote", "---", "* x"] {
            let confined = line(text);
            assert!(confined.starts_with('\\') && !confined.contains('\n'), "{confined}");
        }
    }
}
