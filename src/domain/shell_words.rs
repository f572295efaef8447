//! Commands that people copy into a shell: what is one word here stays one word there.

/// A command line of these words.
pub fn line(words: &[&str]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// A word of a command line, in quotes where a shell would read more into it than its letters.
pub fn quoted(word: &str) -> String {
    // A shell looks for a home directory behind `~`, and one of them for a program behind `=`.
    let plain = !word.is_empty() && !word.starts_with('=') && word.chars().all(is_plain);
    if plain { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || "/._-+=:@%,".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_a_shell_would_read_more_into_stands_in_quotes() {
        for (word, written) in [
            ("/srv/shop/.worktrees/issue-7", "/srv/shop/.worktrees/issue-7"),
            ("https://git@example.org:8080/o/n.git", "https://git@example.org:8080/o/n.git"),
            ("--add-label=agentd", "--add-label=agentd"),
            ("/srv/the shop", "'/srv/the shop'"),
            ("/srv/läden", "/srv/läden"),
            ("~/shop", "'~/shop'"),
            ("=ls", "'=ls'"),
            ("", "''"),
            ("it's", r"'it'\''s'"),
            ("a;b", "'a;b'"),
            ("$(id)", "'$(id)'"),
            ("a\nb", "'a\nb'"),
        ] {
            assert_eq!(quoted(word), written);
        }
        assert_eq!(line(&["git", "-C", "/srv/the shop", "add", "."]), "git -C '/srv/the shop' add .");
    }

    /// The shell itself says what it makes of a line.
    #[test]
    #[cfg(unix)]
    #[expect(clippy::disallowed_methods, reason = "a person's own shell")]
    fn a_shell_reads_the_words_that_were_written() {
        let printable: String = (' '..='~').collect();
        let words =
            ["printf", "%s\\n", "/srv/the shop", "it's", &printable, "*", "~", "#x", "\\", "ä ö", "a\tb"];
        let told = std::process::Command::new("sh").arg("-c").arg(line(&words)).output().unwrap();
        let expected = words[2..].iter().map(|word| format!("{word}\n")).collect::<String>();
        assert_eq!(String::from_utf8_lossy(&told.stdout), expected);
    }
}
