//! A Rust file in two: its code without string literals, and its comments; both with the lines of the file.

/// Gives code and comments. What is not in one of them is blank there, so that line numbers stay.
pub fn parted(text: &str) -> (String, String) {
    let chars: Vec<char> = text.chars().collect();
    let (mut code, mut comments) = (String::new(), String::new());
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        let (length, is_comment, is_code) = match rest {
            ['/', '/', ..] => (rest.iter().position(|c| *c == '\n').unwrap_or(rest.len()), true, false),
            ['/', '*', ..] => (until(rest, &['*', '/'], 2), true, false),
            ['"', ..] => (string(rest), false, false),
            ['r', '"' | '#', ..] if !follows_a_word(&chars, at) => match raw(rest) {
                Some(length) => (length, false, false),
                None => (1, false, true),
            },
            ['\'', '\\', _, ..] => (2 + until(&rest[2..], &['\''], 1), false, false),
            ['\'', _, '\'', ..] => (3, false, false),
            _ => (1, false, true),
        };
        for c in &chars[at..at + length] {
            let blank = if *c == '\n' { '\n' } else { ' ' };
            code.push(if is_code { *c } else { blank });
            comments.push(if is_comment { *c } else { blank });
        }
        at += length;
    }
    (code, comments)
}

fn follows_a_word(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_') && chars[at - 1] != 'b'
}

/// The length up to and with `end`, which is looked for after `from` characters.
fn until(rest: &[char], end: &[char], from: usize) -> usize {
    let found = rest[from.min(rest.len())..].windows(end.len()).position(|part| part == end);
    found.map_or(rest.len(), |place| from + place + end.len())
}

fn string(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != '"' {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

fn raw(rest: &[char]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return None;
    }
    let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    Some(until(rest, &end, 2 + hashes))
}

#[test]
fn strings_are_no_code_and_comments_stand_apart() {
    let text = "let a = \"one // \\\" two\"; // three 'x'\nlet b = ('\"', '\\'', r#\"four \" five\"#, &'static six);\n";
    let (code, comments) = parted(text);
    assert!(
        ["one", "two", "four", "five"].iter().all(|word| !code.contains(word) && !comments.contains(word))
    );
    assert!(code.contains("let b") && code.contains("static six"), "{code}");
    assert!(comments.contains("// three 'x'") && !comments.contains("let"), "{comments}");
    assert_eq!((code.lines().count(), comments.lines().count()), (2, 2));
}
