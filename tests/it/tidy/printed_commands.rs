//! A command that people copy is made of words (`domain::shell_words`): no text has a place for a path, a branch or a name in one.

use std::fs;

use super::lexer::parted;
use super::{rust_files, source};

/// Programs that agentd tells people to start.
const PROGRAMS: &[&str] = &["cd", "chmod", "chown", "cp", "git", "gh", "ln", "mkdir", "mv", "rm", "rmdir"];
/// The commands of git among them; else the word begins a sentence about git.
const OF_GIT: &[&str] = &[
    "-C",
    "add",
    "branch",
    "checkout",
    "clone",
    "commit",
    "config",
    "fetch",
    "merge",
    "pull",
    "push",
    "rebase",
    "remote",
    "reset",
    "restore",
    "rm",
    "show",
    "status",
    "stash",
    "switch",
    "symbolic-ref",
    "tag",
    "worktree",
];

/// The string literals of a text, in its order, with the lines that they begin on.
fn literals(text: &str) -> Vec<(usize, String)> {
    let (code, comments) = parted(text);
    let (mut found, mut line, mut open) = (Vec::<(usize, String)>::new(), 1, false);
    for ((c, code), comment) in text.chars().zip(code.chars()).zip(comments.chars()) {
        let inside = code.is_whitespace() && comment.is_whitespace();
        match (inside, open) {
            (true, true) => found.last_mut().unwrap().1.push(c),
            (true, false) => found.push((line, c.to_string())),
            (false, _) => {}
        }
        open = inside;
        line += usize::from(c == '\n');
    }
    found
}

/// Where a command in a sentence ends.
fn end_of(rest: &str) -> usize {
    let marks = [";", "`", ", ", ": "].iter().filter_map(|end| rest.find(end));
    let mut depth = 0;
    let closed = rest.find(|c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth < 0
    });
    marks.chain(closed).min().unwrap_or(rest.len())
}

/// The command lines in a literal that have a place for a value.
fn with_a_place(literal: &str) -> Vec<String> {
    let joined = literal.replace("\\\n", " ").split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    for (at, _) in joined.match_indices(|c: char| c.is_ascii_lowercase()) {
        let before = joined[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || "-_./'{$".contains(c)) {
            continue;
        }
        let rest = &joined[at..];
        let mut words = rest.split(' ');
        let (program, next) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if !PROGRAMS.contains(&program) || program == "git" && !OF_GIT.contains(&next) {
            continue;
        }
        let command = &rest[..end_of(rest)];
        if command.contains('{') {
            found.push(command.to_owned());
        }
    }
    found
}

#[test]
fn a_command_that_is_printed_is_made_of_words() {
    let mut wrong = Vec::new();
    for file in rust_files(&source()) {
        let text = fs::read_to_string(&file).unwrap();
        let text = text.split("\nmod tests").next().unwrap();
        for (line, literal) in literals(text) {
            for command in with_a_place(&literal) {
                let name = file.strip_prefix(source()).unwrap().display();
                wrong.push(format!("{name}:{line}: `{command}`: write it with shell_words::line"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_rule_about_commands_finds_them_in_sentences_and_leaves_sentences_alone() {
    for (literal, found) in [
        ("move it away (mv {path} {path}.mine) and start again", 1),
        ("git -C {path} switch {branch}", 1),
        ("take it over: chown -R \\\"$(id -u)\\\" {dir}; or", 1),
        ("put it right (`{}`), or git merge it", 0),
        ("git {what} failed ({code})", 0),
        ("git clone failed: {}", 0),
        ("git would go by a way that is not open here ({detail})", 0),
        ("`git add FILE` in {path}", 0),
    ] {
        assert_eq!(with_a_place(literal).len(), found, "{literal}");
    }
    let text = "// git -C {path}\nlet a = format!(\"b\"); // mv {x}\nlet c = \"git push \\\n    {d}\";\n";
    let all: Vec<String> = literals(text).iter().flat_map(|(_, literal)| with_a_place(literal)).collect();
    assert_eq!(all.len(), 1, "{all:?}");
}
