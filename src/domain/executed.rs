//! Which files a command executes, as far as its words show: a program with a path, the script of an interpreter, and
//! both inside a shell line.

/// Programs whose first file among the arguments is what they run.
const INTERPRETERS: [&str; 17] = [
    "sh", "bash", "dash", "zsh", "ksh", "python", "node", "deno", "bun", "ruby", "perl", "php", "lua", "tsx",
    "ts-node", "pwsh", "Rscript",
];
/// Programs that run the rest of their arguments.
const WRAPPERS: [&str; 9] =
    ["env", "exec", "command", "nice", "nohup", "time", "timeout", "setsid", "stdbuf"];
/// Options of interpreters whose value is run as well.
const PRELOADS: [&str; 4] = ["-r", "--require", "--import", "--loader"];
/// Deepest shell within a shell that is looked into.
const DEEPEST: usize = 4;

/// The files that `argv` executes and that `is_file` knows, without a leading `./`.
pub fn executed(argv: &[&str], is_file: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    of_argv(argv, is_file, DEEPEST, &mut found);
    found
}

fn of_argv(argv: &[&str], is_file: &dyn Fn(&str) -> bool, depth: usize, found: &mut Vec<String>) {
    let skipped = argv.iter().take_while(|word| is_assignment(word)).count();
    let Some((program, args)) = argv[skipped..].split_first() else { return };
    let plain = |word: &str| word.trim_start_matches("./").replace("/./", "/");
    let mut add = |word: &str| {
        let path = plain(word);
        if is_file(&path) && !found.contains(&path) {
            found.push(path);
        }
    };
    if program.contains('/') {
        add(program);
    }
    let name = program.rsplit('/').next().unwrap_or(program);
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if matches!(*program, "." | "source") {
        args.iter().take(1).for_each(|script| add(script));
    } else if WRAPPERS.contains(&name) && depth > 0 {
        let of_wrapper = |word: &&&str| {
            word.starts_with('-') || is_assignment(word) || word.starts_with(|c: char| c.is_ascii_digit())
        };
        let skipped = args.iter().take_while(of_wrapper).count();
        of_argv(&args[skipped..], is_file, depth - 1, found);
    } else if INTERPRETERS.contains(&name) {
        for pair in args.windows(2).filter(|pair| PRELOADS.contains(&pair[0])) {
            add(pair[1]);
        }
        let line = args.iter().position(|word| is_line_option(word)).and_then(|at| args.get(at + 1));
        match line {
            Some(line) if name.ends_with("sh") && depth > 0 => {
                of_line(line, is_file, depth - 1, found);
            }
            Some(_) => {}
            None => {
                let script = args.iter().find(|word| !word.starts_with('-') && is_file(&plain(word)));
                script.into_iter().for_each(|script| add(script));
            }
        }
    }
}

fn of_line(line: &str, is_file: &dyn Fn(&str) -> bool, depth: usize, found: &mut Vec<String>) {
    for command in commands(line) {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        of_argv(&words, is_file, depth, found);
    }
}

/// `-c`, also together with others as in `-ec`. What follows `-e` of node and perl is not a file either.
fn is_line_option(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.ends_with(['c', 'e'])
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// The commands of a shell line as words. What only a shell could work out is left out.
fn commands(line: &str) -> Vec<Vec<String>> {
    let (mut all, mut command) = (Vec::new(), Vec::new());
    let (mut word, mut quote, mut is_open) = (String::new(), None, false);
    // The end of the line is the end of its last command.
    let mut chars = line.chars().chain(['\n']);
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(mark), _) if mark == c => quote = None,
            (Some('"') | None, '\\') => word.extend(chars.next()),
            (Some(_), _) => word.push(c),
            (None, '\'' | '"') => (quote, is_open) = (Some(c), true),
            (None, _) if c.is_whitespace() || ";|&()".contains(c) => {
                if !word.is_empty() || is_open {
                    command.push(std::mem::take(&mut word));
                    is_open = false;
                }
                if (c == '\n' || !c.is_whitespace()) && !command.is_empty() {
                    all.push(std::mem::take(&mut command));
                }
            }
            (None, _) => word.push(c),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(argv: &[&str]) -> String {
        let known = ["run.sh", "scripts/check.ts", "tool", "data.json", "hook.js", "my file.sh"];
        executed(argv, &|path| known.contains(&path)).join(" ")
    }

    #[test]
    fn what_a_command_executes_is_told_by_its_words() {
        for (argv, files) in [
            (&["./run.sh", "data.json"][..], "run.sh"),
            (&["run.sh"], ""),
            (&["tool"], ""),
            (&["./tool"], "tool"),
            (&["sh", "run.sh", "data.json"], "run.sh"),
            (&["deno", "run", "--allow-read", "scripts/check.ts", "--in", "data.json"], "scripts/check.ts"),
            (&["/usr/bin/python3.11", "-u", "run.sh"], "run.sh"),
            (&["node", "-r", "./hook.js", "scripts/check.ts"], "hook.js"),
            (&["env", "A=b", "timeout", "10", "bash", "run.sh"], "run.sh"),
            (&["cat", "data.json"], ""),
            (&["python3", "-c", "print(1)", "data.json"], ""),
            (&["sh", "-ec", "cd x && sh ./run.sh | grep data.json"], "run.sh"),
            (&["bash", "-c", "A=1 ./tool; (. 'my file.sh')"], "tool my file.sh"),
            (&["sh", "-c", "grep -q \"a;b\" data.json"], ""),
        ] {
            assert_eq!(of(argv), files, "{argv:?}");
        }
    }
}
