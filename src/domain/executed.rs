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
/// Words of the shell that stand before a command.
const KEYWORDS: [&str; 9] = ["if", "then", "else", "elif", "while", "until", "do", "!", "{"];
/// Options of interpreters whose value is run as well.
const PRELOADS: [&str; 4] = ["-r", "--require", "--import", "--loader"];
/// So many parts of a word are looked at.
const MOST_PARTS: usize = 64;
/// Deepest shell within a shell that is looked into.
const DEEPEST: usize = 4;

/// The files that `argv` executes and that `is_file` knows, without a leading `./`. Behind a `cd` they are looked for there as well.
pub fn executed(argv: &[&str], is_file: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut search = Search { is_file, folders: vec![String::new()], found: Vec::new(), all: false };
    search.argv(argv, DEEPEST);
    search.found
}

/// The files and folders that the words of `argv` name and that `is_there` knows: what it executes and what it is given, also as
/// `--option=file`, `-ffile`, `@file`, `from:to`, or in a list.
pub fn named(argv: &[&str], is_there: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut search = Search { is_file: is_there, folders: vec![String::new()], found: Vec::new(), all: true };
    search.argv(argv, DEEPEST);
    search.found
}

struct Search<'a> {
    is_file: &'a dyn Fn(&str) -> bool,
    /// Where a command may stand by now; empty = where the first one does.
    folders: Vec<String>,
    found: Vec<String>,
    /// Whether every word is looked at.
    all: bool,
}

impl Search<'_> {
    /// A word as the files that it may name.
    fn files(&self, word: &str) -> Vec<String> {
        let at = self.folders.iter().map(|folder| joined(folder, word));
        at.filter(|path| (self.is_file)(path)).collect()
    }

    fn add(&mut self, word: &str) {
        for path in self.files(word) {
            if !self.found.contains(&path) {
                self.found.push(path);
            }
        }
    }

    fn argv(&mut self, argv: &[&str], depth: usize) {
        if self.all {
            argv.iter().flat_map(|word| parts(word)).for_each(|part| self.add(part));
        }
        let skipped = argv.iter().take_while(|word| is_assignment(word) || KEYWORDS.contains(word)).count();
        let Some((program, args)) = argv[skipped..].split_first() else { return };
        if program.contains('/') {
            self.add(program);
        }
        let name = program.rsplit('/').next().unwrap_or(program);
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        if matches!(*program, "." | "source") {
            args.iter().take(1).for_each(|script| self.add(script));
        } else if matches!(*program, "cd" | "pushd") {
            if let Some(folder) = args.iter().find(|word| !word.starts_with('-')) {
                let there: Vec<String> = self.folders.iter().map(|from| joined(from, folder)).collect();
                self.folders.extend(there);
                self.folders.dedup();
            }
        } else if WRAPPERS.contains(&name) && depth > 0 {
            let of_wrapper = |word: &&&str| {
                word.starts_with('-') || is_assignment(word) || word.starts_with(|c: char| c.is_ascii_digit())
            };
            let skipped = args.iter().take_while(of_wrapper).count();
            self.argv(&args[skipped..], depth - 1);
        } else if INTERPRETERS.contains(&name) {
            self.interpreter(name, args, depth);
        }
    }

    fn interpreter(&mut self, name: &str, args: &[&str], depth: usize) {
        for pair in args.windows(2).filter(|pair| PRELOADS.contains(&pair[0])) {
            self.add(pair[1]);
        }
        let is_shell = name.ends_with("sh");
        let line =
            args.iter().position(|word| is_line_option(word, is_shell)).and_then(|at| args.get(at + 1));
        match line {
            Some(line) if is_shell && depth > 0 => self.line(line, depth - 1),
            Some(_) => {}
            None => {
                let script = args.iter().find(|word| !word.starts_with('-') && !self.files(word).is_empty());
                script.into_iter().for_each(|script| self.add(script));
            }
        }
    }

    fn line(&mut self, line: &str, depth: usize) {
        for command in commands(line) {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            self.argv(&words, depth);
        }
    }
}

/// The parts of a word that may name a file: all of it, the value of a short option that stands at it, what begins behind a sign that
/// programs separate with, and the items between such signs.
fn parts(word: &str) -> Vec<&str> {
    let is_sign = |c: char| "=,:;@<>".contains(c);
    let mut parts = vec![word];
    let short = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    let value = short.and_then(|rest| Some(rest.split_at_checked(rest.chars().next()?.len_utf8())?.1));
    for whole in [Some(word), value].into_iter().flatten() {
        parts.push(whole);
        parts.extend(whole.split(is_sign).take(MOST_PARTS));
        parts.extend(
            whole.match_indices(is_sign).take(MOST_PARTS).map(|(at, sign)| &whole[at + sign.len()..]),
        );
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// A path from a folder, both as a command writes them. One that leads out of where the first command stands is none.
fn joined(folder: &str, path: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(path.split('/')).filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." && parts.last().is_some_and(|last| *last != "..") {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// `-c`, also together with others as in `-ec`. What follows `-e` of node and perl is not a file either; a shell's `-e` has no value.
fn is_line_option(word: &str, is_shell: bool) -> bool {
    let is_short = word.starts_with('-') && !word.starts_with("--");
    is_short && if is_shell { word.contains('c') } else { word.ends_with(['c', 'e']) }
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
            (&["sh", "-e", "run.sh"], "run.sh"),
            (&["sh", "-ce", "sh run.sh"], "run.sh"),
            (&["sh", "-c", "if ! sh run.sh; then exit 1; fi"], "run.sh"),
            (&["sh", "-c", "for one in 1 2; do ./tool $one; done"], "tool"),
            (&["sh", "-c", "cd scripts && deno run check.ts"], "scripts/check.ts"),
            (&["sh", "-c", "cd ./scripts/ && cd .. && sh run.sh"], "run.sh"),
            (&["sh", "-c", "(cd scripts; python3 ./check.ts)"], "scripts/check.ts"),
            (&["sh", "-c", "{ sh run.sh; }"], "run.sh"),
            (&["sh", "-c", "grep -q \"a;b\" data.json"], ""),
        ] {
            assert_eq!(of(argv), files, "{argv:?}");
        }
    }

    #[test]
    fn what_a_command_is_given_is_told_too() {
        let known = ["run.sh", "deploy/all.yaml", "data.json"];
        for (argv, files) in [
            (&["sh", "./run.sh"][..], "run.sh"),
            (&["kubectl", "apply", "-f", "deploy/all.yaml"], "deploy/all.yaml"),
            (&["curl", "--data=@data.json", "https://x.test/data.json"], "data.json"),
            (&["tool", "--values=deploy/all.yaml"], "deploy/all.yaml"),
            (&["sh", "-c", "cd deploy && tool all.yaml <../data.json"], "deploy/all.yaml data.json"),
            (&["echo", "run"], ""),
            (&["curl", "-d@data.json"], "data.json"),
            (&["kubectl", "apply", "-fdeploy/all.yaml"], "deploy/all.yaml"),
            (&["helm", "--values", "other.yaml,deploy/all.yaml"], "deploy/all.yaml"),
            (&["docker", "run", "-v", "data.json:/etc/d.json"], "data.json"),
            (&["curl", "-F", "file=@data.json;type=text/plain"], "data.json"),
            (&["tool", "file:data.json"], "data.json"),
        ] {
            assert_eq!(named(argv, &|path| known.contains(&path)).join(" "), files, "{argv:?}");
        }
    }
}
