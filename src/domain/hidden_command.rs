//! A denied command in disguise: behind a path, a version, an assignment, a wrapper, options, a shell's text or its
//! quotes. A denial needs a suspicion only, so that a word which cannot be read clearly counts as the one looked for.

use super::disguise::{DEEPEST, views};

/// Programs that start the program named in their arguments.
const WRAPPERS: [&str; 97] = [
    "env",
    "nice",
    "nohup",
    "timeout",
    "time",
    "setsid",
    "stdbuf",
    "sudo",
    "doas",
    "xargs",
    "command",
    "exec",
    "eval",
    "builtin",
    "busybox",
    "toybox",
    "ionice",
    "chroot",
    "unshare",
    "nsenter",
    "strace",
    "ltrace",
    "script",
    "watch",
    "entr",
    "find",
    "npx",
    "npm",
    "pnpm",
    "yarn",
    "bunx",
    "uv",
    "uvx",
    "pipx",
    "poetry",
    "flock",
    "parallel",
    "systemd-run",
    "su",
    "runuser",
    "pkexec",
    "sg",
    "setpriv",
    "capsh",
    "setarch",
    "taskset",
    "chrt",
    "numactl",
    "prlimit",
    "fakeroot",
    "bwrap",
    "firejail",
    "proot",
    "unbuffer",
    "expect",
    "rlwrap",
    "start-stop-daemon",
    "dbus-run-session",
    "xvfb-run",
    "ssh",
    "docker",
    "podman",
    "ld.so",
    "mise",
    "asdf",
    "bundle",
    "pipenv",
    "conda",
    "mamba",
    "micromamba",
    "hatch",
    "pdm",
    "rye",
    "direnv",
    "dotenv",
    "nix",
    "nix-shell",
    "devbox",
    "volta",
    "corepack",
    "tmux",
    "screen",
    "cmake",
    "perf",
    "gdb",
    "valgrind",
    "hyperfine",
    "watchexec",
    "nodemon",
    "concurrently",
    "chronic",
    "torsocks",
    "proxychains",
    "faketime",
    "eatmydata",
    "aws-vault",
    "kubectl",
];

/// Programs that run a text given among their arguments.
const SHELLS: [&str; 33] = [
    "sh",
    "bash",
    "rbash",
    "dash",
    "zsh",
    "ksh",
    "mksh",
    "yash",
    "ash",
    "csh",
    "tcsh",
    "fish",
    "nu",
    "python",
    "pypy",
    "perl",
    "ruby",
    "node",
    "nodejs",
    "deno",
    "bun",
    "php",
    "lua",
    "tclsh",
    "awk",
    "gawk",
    "mawk",
    "nawk",
    "sed",
    "pwsh",
    "powershell",
    "cmd",
    "make",
];

/// Programs that work on words and files, and start nothing that is named behind `--`.
const TELLERS: [&str; 27] = [
    "echo", "printf", "cat", "grep", "egrep", "fgrep", "rg", "ag", "ls", "rm", "mv", "cp", "ln", "mkdir",
    "rmdir", "touch", "chmod", "chown", "head", "tail", "sort", "wc", "diff", "tr", "which", "man", "test",
];

/// Words of a shell before which or behind which a command stands.
const BEFORE_A_COMMAND: [&str; 8] = ["if", "then", "else", "elif", "while", "until", "do", "!"];

/// Git's words behind which it takes commands: aliases, and subcommands that start what they are given.
const GIT_RUNS: [&str; 6] = ["foreach", "run", "--exec", "-x", "filter-branch", "difftool"];

/// How deep a text within a text is read.
const DEEPEST_LINE: u8 = 4;
/// In a lexed word: something that a shell puts there, such as a variable.
const EXPANDED: char = '\u{1}';
/// In a lexed word: something that a shell compares with the names of files.
const PATTERN: char = '\u{2}';

/// Whether a denied command hides in an argument list.
pub(super) fn in_argv(denied: &[String], argv: &[String]) -> bool {
    let Some(first) = argv.first() else { return true };
    if stands_at(denied, argv) || (is_git(first) && git_runs(denied, &argv[1..])) {
        return true;
    }
    if is_one_of(&SHELLS, first) {
        return passed_on(denied, argv) || argv[1..].iter().any(|text| in_line(denied, text));
    }
    // Not every program is known that starts what stands among its arguments. Words that are told of are not started.
    if !is_one_of(&TELLERS, first) && (stands_within(denied, argv) || behind_dashes(denied, argv)) {
        return true;
    }
    // What a wrapper starts may stand anywhere behind it, and may be a wrapper or a shell again.
    wraps(first)
        && (passed_on(denied, argv)
            || argv[1..].iter().any(|text| {
                let texts = has_options_text(text);
                texts.into_iter().any(|text| may_be_a_line(text) && in_line(denied, text))
            })
            || (1..argv.len()).any(|from| {
                is_one_of(&SHELLS, &argv[from]) && argv[from + 1..].iter().any(|text| in_line(denied, text))
            }))
}

/// Whether a denied command hides in a line for some shell or interpreter.
pub(super) fn in_line(denied: &[String], line: &str) -> bool {
    // A terminal's sequences do not matter here; the views without escapes do.
    let hidden = views(line, DEEPEST);
    std::iter::once(line)
        .chain(hidden.all.iter().map(|view| view.text.as_str()))
        .any(|line| mentioned(denied, line) || lexed(denied, line, DEEPEST_LINE))
}

/// Whether a denied command of several words stands among the arguments as it is.
fn stands_within(denied: &[String], argv: &[String]) -> bool {
    let Some((first, rest)) = denied.split_first().filter(|(_, rest)| !rest.is_empty()) else { return false };
    argv[1..].windows(denied.len()).any(|words| is_program(first, &words[0]) && words[1..] == *rest)
}

/// Whether it stands behind `--`, where many programs take a command; some take files there.
fn behind_dashes(denied: &[String], argv: &[String]) -> bool {
    let command = argv.iter().position(|word| word == "--").map_or(&[][..], |at| &argv[at + 1..]);
    !is_git(&argv[0]) && !command.is_empty() && in_argv(denied, command)
}

fn passed_on(denied: &[String], argv: &[String]) -> bool {
    (1..argv.len()).any(|from| {
        stands_at(denied, &argv[from..])
            || configures_git(denied, &argv[from])
            || (is_git(&argv[from]) && git_runs(denied, &argv[from + 1..]))
    })
}

fn wraps(word: &str) -> bool {
    is_one_of(&WRAPPERS, word) || is_assignment(word) || base_name(word).starts_with("ld-")
}

fn is_git(word: &str) -> bool {
    is_one_of(&["git"], word)
}

/// An option's text behind its letter or its `=`, and the argument itself.
fn has_options_text(argument: &str) -> Vec<&str> {
    let mut texts = vec![argument];
    if argument.starts_with("--") {
        texts.extend(argument.split_once('=').map(|(_, text)| text));
    } else if argument.starts_with('-') {
        texts.extend(argument.char_indices().nth(2).map(|(at, _)| &argument[at..]));
    }
    texts
}

/// A single word is looked at as an argument.
fn may_be_a_line(text: &str) -> bool {
    text.contains(|c: char| c.is_whitespace() || matches!(c, '$' | '\\' | '`' | ';'))
}

/// Whether git is told to start something denied, by an alias or by a subcommand that starts what it is given.
fn git_runs(denied: &[String], arguments: &[String]) -> bool {
    let configures = |word: &String| word.starts_with("-c") || word.starts_with("--config-env");
    let runs = arguments.iter().any(|word| GIT_RUNS.iter().any(|run| word.starts_with(run)))
        || arguments.iter().any(configures);
    runs && (0..arguments.len()).any(|at| {
        let word = arguments[at].as_str();
        let value = word.split_once('=').map_or(word, |(_, value)| value);
        let line = value.trim_start_matches('!');
        stands_at(denied, &arguments[at..])
            || (line.len() < word.len() || may_be_a_line(line)) && in_line(denied, line)
    })
}

/// Git takes its configuration, and with it aliases, from these variables.
fn configures_git(denied: &[String], word: &str) -> bool {
    denied.first().is_some_and(|denied| is_git(denied))
        && is_assignment(word)
        && word.starts_with("GIT_CONFIG")
}

/// Whether the denied words stand in order at the beginning, with nothing but options and their values in between.
fn stands_at(denied: &[String], argv: &[String]) -> bool {
    let (Some((first, rest)), Some((program, arguments))) = (denied.split_first(), argv.split_first()) else {
        return false;
    };
    if is_program(first, program) {
        return follows(rest, arguments);
    }
    // `git push` is a program of its own too: `git-push`.
    let joined = |next: &String| is_program(&format!("{first}-{next}"), program);
    rest.split_first().is_some_and(|(next, later)| joined(next) && follows(later, arguments))
}

fn follows(rest: &[String], arguments: &[String]) -> bool {
    // Where the next denied word may stand: behind what was found, and behind each option, alone or with a value.
    let mut open = vec![false; arguments.len() + 2];
    open[0] = true;
    for wanted in rest {
        let mut next = vec![false; arguments.len() + 2];
        let mut found = false;
        for at in 0..arguments.len() {
            if !open[at] {
                continue;
            }
            let word = &arguments[at];
            let value = arguments.get(at + 1).map_or("", String::as_str);
            let is_option = word.starts_with('-');
            if is_word(wanted, word) || is_option && (holds(wanted, word) || holds(wanted, value)) {
                next[at + 1] = true;
                found = true;
            }
            if are_letters_of(wanted, &arguments[at..]) {
                next[at] = true;
                found = true;
            }
            if is_option {
                open[at + 1] = true;
                open[at + 2] = true;
            }
        }
        if !found {
            return false;
        }
        open = next;
    }
    true
}

/// Whether a word of an option's text is the one looked for, as in `-c alias.x=push`.
fn holds(wanted: &str, text: &str) -> bool {
    text.split(['=', '!', '\'', '"', ' ', '\t'])
        .skip(usize::from(!text.contains('=')))
        .any(|word| word == wanted)
}

/// Whether short options are given in another order, or each alone.
fn are_letters_of(wanted: &str, arguments: &[String]) -> bool {
    let letters = |word: &str| -> Option<String> {
        let letters = word.strip_prefix('-')?;
        letters.chars().all(|c| c.is_ascii_alphabetic()).then(|| letters.to_owned())
    };
    let given: String = arguments.iter().filter_map(|word| letters(word)).collect();
    letters(wanted)
        .is_some_and(|wanted| wanted.len() > 1 && wanted.chars().all(|letter| given.contains(letter)))
}

/// Whether the words stand somewhere in a text of whatever language.
fn mentioned(denied: &[String], text: &str) -> bool {
    let separates = |c: char| c.is_whitespace() || ";|&()<>{}$`\"'\\,[]".contains(c);
    let words: Vec<String> = text.split(separates).filter(|w| !w.is_empty()).map(str::to_owned).collect();
    (0..words.len()).any(|from| stands_at(denied, &words[from..]))
}

/// Whether the words stand somewhere in a text as a shell reads it: without quotes, and with a variable for any word.
fn lexed(denied: &[String], text: &str, deeper: u8) -> bool {
    let Lexed { words, inner, fed } = lex(text);
    let commands = words.split(|word| word.ends);
    let among = commands.into_iter().any(|command| {
        let texts: Vec<String> = command.iter().map(|word| word.text.clone()).collect();
        // A variable is taken for the denied program only where a program stands.
        let begin = texts.iter().position(|word| {
            let starts_another = is_assignment(word)
                || BEFORE_A_COMMAND.contains(&word.as_str())
                || (!word.contains(EXPANDED) && is_one_of(&WRAPPERS, word));
            !starts_another
        });
        (0..texts.len()).any(|from| {
            let plain = !texts[from].contains([EXPANDED, PATTERN]) || begin == Some(from);
            plain && stands_at(denied, &texts[from..])
                || configures_git(denied, &texts[from])
                || (is_git(&texts[from]) && git_runs(denied, &texts[from + 1..]))
        })
    });
    let within = |text: &String| mentioned(denied, text) || lexed(denied, text, deeper - 1);
    // What is piped into a shell is a text that nobody can read here.
    fed || among || (deeper > 0 && inner.iter().any(within))
}

/// A text as a shell reads it.
#[derive(Debug, Default)]
struct Lexed {
    words: Vec<Word>,
    /// Texts within the text: substitutions, and words that are lines themselves.
    inner: Vec<String>,
    /// Whether a shell reads what another program writes.
    fed: bool,
}

/// A word without its quotes, or the end of a command.
#[derive(Debug, Default, Clone)]
struct Word {
    text: String,
    ends: bool,
}

fn lex(text: &str) -> Lexed {
    let mut found = Lexed::default();
    let mut word: Option<String> = None;
    let mut rest = text.chars().peekable();
    let mut quoted = false;
    let mut piped = false;
    let end = |word: &mut Option<String>, found: &mut Lexed, piped: &mut bool| {
        let Some(text) = word.take() else { return };
        found.fed |= *piped && is_one_of(&SHELLS[..13], &text);
        *piped = *piped && (is_assignment(&text) || is_one_of(&WRAPPERS, &text));
        if text.contains(char::is_whitespace) {
            found.inner.push(text.clone());
        }
        found.words.push(Word { text, ends: false });
    };
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                // `env -S` reads `\_` as a space.
                Some('_') => end(&mut word, &mut found, &mut piped),
                Some('\n') | None => {}
                Some(next) => word.get_or_insert_default().push(next),
            },
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '\'' if !quoted => {
                let word = word.get_or_insert_default();
                word.extend(rest.by_ref().take_while(|c| *c != '\''));
            }
            '`' => {
                found.inner.push(rest.by_ref().take_while(|c| *c != '`').collect());
                word.get_or_insert_default().push(EXPANDED);
            }
            '$' => match rest.peek().copied() {
                Some('(') => {
                    rest.next();
                    found.inner.push(until(&mut rest, '(', ')'));
                    word.get_or_insert_default().push(EXPANDED);
                }
                Some('{') => {
                    rest.next();
                    let inner = until(&mut rest, '{', '}');
                    match inner.starts_with("IFS") {
                        true if !quoted => end(&mut word, &mut found, &mut piped),
                        _ => word.get_or_insert_default().push(EXPANDED),
                    }
                }
                // The text in these quotes is read like any other.
                Some('\'' | '"') if !quoted => {}
                Some(next) if next.is_ascii_alphabetic() || next == '_' => {
                    let mut name = String::new();
                    while let Some(c) = rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                        name.push(c);
                    }
                    match name == "IFS" && !quoted {
                        true => end(&mut word, &mut found, &mut piped),
                        false => word.get_or_insert_default().push(EXPANDED),
                    }
                }
                Some('@' | '*' | '?' | '#' | '!' | '$' | '-' | '0'..='9') => {
                    rest.next();
                    word.get_or_insert_default().push(EXPANDED);
                }
                _ => word.get_or_insert_default().push('$'),
            },
            _ if quoted => word.get_or_insert_default().push(c),
            '*' | '?' => word.get_or_insert_default().push(PATTERN),
            '[' if rest.clone().any(|c| c == ']') => {
                let _ = until(&mut rest, '[', ']');
                word.get_or_insert_default().push(PATTERN);
            }
            '{' if rest.peek().is_some_and(|next| !next.is_whitespace()) => {
                let _ = until(&mut rest, '{', '}');
                word.get_or_insert_default().push(PATTERN);
            }
            ';' | '|' | '&' | '(' | ')' | '{' | '}' | '\n' => {
                end(&mut word, &mut found, &mut piped);
                // `||` is no pipe, `|&` is one.
                let second = if c == '|' { rest.next_if(|next| matches!(next, '|' | '&')) } else { None };
                piped = c == '|' && second != Some('|');
                found.words.push(Word { ends: true, ..Word::default() });
            }
            '<' | '>' => end(&mut word, &mut found, &mut piped),
            c if c.is_whitespace() => end(&mut word, &mut found, &mut piped),
            c => word.get_or_insert_default().push(c),
        }
    }
    end(&mut word, &mut found, &mut piped);
    found
}

/// The text up to the end that belongs to a beginning, both left out.
fn until(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, begin: char, end: char) -> String {
    let mut open = 1;
    let mut text = String::new();
    for c in rest.by_ref() {
        open += i32::from(c == begin) - i32::from(c == end);
        if open == 0 {
            break;
        }
        text.push(c);
    }
    text
}

fn is_one_of(programs: &[&str], word: &str) -> bool {
    programs.iter().any(|program| is_program(program, word))
}

/// Whether a word names a program, by a path, in another case, with a version or in a pattern.
fn is_program(denied: &str, word: &str) -> bool {
    let (denied, word) = (base_name(denied), base_name(word));
    is_version_of(&denied, &word) || is_version_of(&word, &denied) || may_be(&denied, &word)
}

/// Whether a word is the one looked for, or may become it.
fn is_word(wanted: &str, word: &str) -> bool {
    word == wanted || may_be(wanted, word)
}

fn is_version_of(name: &str, word: &str) -> bool {
    word.strip_prefix(name).is_some_and(|rest| {
        let version = rest.trim_start_matches(['-', '.', '_']);
        let numbers = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let is_version = version.starts_with(|c: char| c.is_ascii_digit()) && version.chars().all(numbers);
        !name.is_empty() && (rest.is_empty() || is_version)
    })
}

/// Whether a word with something unknown in it may be the one looked for.
fn may_be(wanted: &str, word: &str) -> bool {
    let unknown = [EXPANDED, PATTERN];
    let (Some(first), Some(last)) = (word.find(unknown), word.rfind(unknown)) else { return false };
    let (head, tail) = (&word[..first], &word[last + 1..]);
    // A pattern alone stands for files, not for a program.
    let says_nothing = head.is_empty() && tail.is_empty() && !word.contains(EXPANDED);
    let fits = head.len() + tail.len() <= wanted.len();
    !says_nothing && fits && wanted.starts_with(head) && wanted.ends_with(tail)
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

fn base_name(program: &str) -> String {
    let name = program.rsplit(['/', '\\']).next().unwrap_or(program).to_lowercase();
    name.strip_suffix(".exe").map_or(name.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_denied_command_is_seen_behind_runners_that_are_known_and_that_are_not() {
        let denied = words("git push");
        for line in [
            "mise exec -- git push",
            "bundle exec git push",
            "cmake -E env git push",
            "some-runner --quiet git push origin",
            "some-runner -- git -C . push",
            "some-runner -- env git push",
        ] {
            assert!(in_argv(&denied, &words(line)), "{line}");
        }
        for line in [
            "git checkout -- push",
            "grep -rn git push",
            "cargo run -- push",
            "rm -- git push",
            "git log push",
        ] {
            assert!(!in_argv(&denied, &words(line)), "{line}");
        }
        let denied = words("curl");
        assert!(in_argv(&denied, &words("some-runner -- curl x")));
        assert!(!in_argv(&denied, &words("cargo test curl")) && !in_argv(&denied, &words("git add -- curl")));
    }
}
