//! What the output of a failed check says: the extractors that fill the parameters of retry prompts.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

/// Entries of a list that a retry prompt shows.
const LONGEST_LIST: usize = 50;
/// The number of characters that a retry prompt shows. Of a longer text it shows the end.
const LONGEST_TEXT: usize = 4_000;

/// What a check left behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckOutput {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Exit code; `None` = it did not end by itself, or nothing ran.
    pub exit_code: Option<i32>,
    /// Of a file check: the path looked for.
    pub expected_path: Option<String>,
}

/// The names of the extractors, with each word that definitions use for them.
pub const EXTRACTORS: [&str; 23] = [
    "parseChangedFiles",
    "parseUntrackedFiles",
    "parseStagedFiles",
    "parseUnstagedFiles",
    "parseTestOutput",
    "failedTests",
    "errorOutput",
    "parseTypeErrors",
    "errors",
    "extractFiles",
    "files",
    "parseLintErrors",
    "lintErrors",
    "lintFiles",
    "parseFormatOutput",
    "formatFiles",
    "generateDiff",
    "diff",
    "stderr",
    "stdout",
    "exitCode",
    "missingPaths",
    "expectedPath",
];

/// Extractors that definitions name and that pass on the command's output as it is.
pub const PLAIN_EXTRACTORS: [&str; 3] = ["parseBranchName", "parseRemoteStatus", "parseMergeStatus"];

impl CheckOutput {
    /// What the extractor of that name finds; `None` = there is no such extractor.
    pub fn extract(&self, extractor: &str) -> Option<Value> {
        Some(match extractor {
            "parseChangedFiles" => {
                list(self.status(|index, tree| index != '?' && (index, tree) != ('!', '!')))
            }
            "parseUntrackedFiles" => list(self.status(|index, _| index == '?')),
            "parseStagedFiles" => list(self.status(|index, _| !matches!(index, ' ' | '?' | '!'))),
            "parseUnstagedFiles" => list(self.status(|_, tree| !matches!(tree, ' ' | '?' | '!'))),
            "parseTestOutput" | "failedTests" => list(self.failed_tests()),
            "errorOutput" => text(if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr }),
            "parseTypeErrors" | "errors" | "parseLintErrors" | "lintErrors" => list(self.located()),
            "extractFiles" | "files" | "lintFiles" => list(self.located_files()),
            "parseFormatOutput" | "formatFiles" => list(self.named_files()),
            "generateDiff" | "diff" => text(&self.diff()),
            "stderr" | "parseRemoteStatus" => text(&self.stderr),
            "stdout" | "parseMergeStatus" => text(&self.stdout),
            "parseBranchName" => text(self.stdout.lines().next().unwrap_or_default()),
            "exitCode" => json!(self.exit_code),
            "missingPaths" => list(self.expected_path.iter().map(|path| json!(path))),
            "expectedPath" => json!(self.expected_path),
            _ => return None,
        })
    }

    /// Both streams. Of long ones, the end, which is what a person would read.
    pub fn both(&self) -> String {
        let (out, err) = (self.stdout.trim_end(), self.stderr.trim_end());
        let whole = match (out.is_empty(), err.is_empty()) {
            (_, true) => out.to_owned(),
            (true, false) => err.to_owned(),
            (false, false) => format!("{out}\n{err}"),
        };
        end_of(&whole)
    }

    /// Paths of `git status --porcelain` whose two status letters fit.
    fn status(&self, fits: impl Fn(char, char) -> bool) -> Vec<Value> {
        self.stdout
            .lines()
            .filter_map(|line| {
                let mut letters = line.chars();
                let (index, tree) = (letters.next()?, letters.next()?);
                let path = line.get(3..)?.trim();
                // A rename shows both names; the new one is what is there.
                let path = path.split_once(" -> ").map_or(path, |(_, new)| new);
                (fits(index, tree) && !path.is_empty()).then(|| json!(path.trim_matches('"')))
            })
            .collect()
    }

    fn lines(&self) -> impl Iterator<Item = &str> {
        self.stdout.lines().chain(self.stderr.lines()).map(str::trim_end)
    }

    /// Failed tests in the form of the usual test runners: the name, and the rest of the line.
    fn failed_tests(&self) -> Vec<Value> {
        static FAILED: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(concat!(
                r"^(?:test (?P<cargo>\S+) \.\.\. FAILED|(?P<deno>.+?) \.\.\. FAILED\b.*",
                r"|\s*--- FAIL: (?P<go>\S+).*|FAILED (?P<pytest>\S+)(?: - (?P<why>.*))?",
                r"|not ok \d+ -? ?(?P<tap>.+)|\s*[✗✕×] (?P<cross>.+)|FAIL (?P<jest>\S+).*)$"
            ))
            .ok()
        });
        let Some(pattern) = &*FAILED else { return Vec::new() };
        let mut found: Vec<Value> = Vec::new();
        for line in self.lines() {
            let Some(captures) = pattern.captures(line) else { continue };
            let name = ["cargo", "deno", "go", "pytest", "tap", "cross", "jest"]
                .iter()
                .find_map(|group| captures.name(group))
                .map_or("", |name| name.as_str().trim());
            let why = captures.name("why").map_or("", |why| why.as_str().trim());
            let test = json!({"name": name, "error": if why.is_empty() { "failed" } else { why }});
            if !found.contains(&test) {
                found.push(test);
            }
        }
        found
    }

    /// Messages with their place: `file:line:column: message`, `file(line,column): message`, and a message with its
    /// place on a line of its own below (`--> file:line:column`, `at file:///…:line:column`).
    fn located(&self) -> Vec<Value> {
        static PLACE: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(concat!(
                r"^\s*(?:-->\s+|at\s+)?(?:file://)?(?P<file>[^\s:()]+\.[A-Za-z0-9]+)",
                r"(?::(?P<line>\d+)(?::(?P<column>\d+))?|\((?P<l>\d+),(?P<c>\d+)\))(?:\s*[:-]\s*|\s+)?(?P<message>.*)$"
            ))
            .ok()
        });
        static RULE: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(r"\[(?P<bracket>[A-Za-z0-9_/-]+)\]|\((?P<round>[a-z][a-z0-9-]+)\)").ok()
        });
        let (Some(place), Some(rule)) = (&*PLACE, &*RULE) else { return Vec::new() };
        let mut found: Vec<Value> = Vec::new();
        let mut said = String::new();
        for line in self.lines() {
            let Some(captures) = place.captures(line) else {
                if !line.trim().is_empty() && !line.trim_start().starts_with(['|', '^', '=']) {
                    said = line.trim().to_owned();
                }
                continue;
            };
            let group =
                |names: [&str; 2]| names.iter().find_map(|name| captures.name(name)).map(|m| m.as_str());
            let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
            let own = captures.name("message").map_or("", |message| message.as_str().trim());
            let message = if own.is_empty() { std::mem::take(&mut said) } else { own.to_owned() };
            let named = rule.captures(&message).and_then(|captures| {
                ["bracket", "round"]
                    .iter()
                    .find_map(|name| captures.name(name))
                    .map(|m| m.as_str().to_owned())
            });
            let error = json!({
                "file": group(["file", "file"]),
                "line": number(group(["line", "l"])),
                "column": number(group(["column", "c"])),
                "message": message,
                "rule": named,
            });
            if !found.contains(&error) {
                found.push(error);
            }
        }
        found
    }

    fn located_files(&self) -> Vec<Value> {
        let mut files: Vec<Value> = Vec::new();
        for error in self.located() {
            if let Some(file) = error.get("file")
                && !files.contains(file)
            {
                files.push(file.clone());
            }
        }
        files
    }

    /// The files that a formatter names, one on each line, whatever words surround them.
    fn named_files(&self) -> Vec<Value> {
        static FILE: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(
                r"^(?:from |would reformat:? |Diff in |\[warn\] |error: |--- |\+\+\+ )?(?P<file>[^\s:]*[^\s:./]\.[A-Za-z0-9]+)\b",
            )
            .ok()
        });
        let Some(pattern) = &*FILE else { return Vec::new() };
        let mut files: Vec<Value> = Vec::new();
        for line in self.lines() {
            let Some(file) = pattern.captures(line).and_then(|captures| captures.name("file")) else {
                continue;
            };
            let file = json!(file.as_str());
            if !files.contains(&file) {
                files.push(file);
            }
        }
        files
    }

    /// The lines of a diff among the output; without any, the output.
    fn diff(&self) -> String {
        let is_diff = |line: &&str| {
            line.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ' ' | '|'))
                .starts_with(['+', '-', '@'])
        };
        let lines: Vec<&str> = self.lines().filter(is_diff).collect();
        if lines.is_empty() { self.both() } else { lines.join("\n") }
    }
}

fn list(items: impl IntoIterator<Item = Value>) -> Value {
    let mut items: Vec<Value> = items.into_iter().collect();
    items.truncate(LONGEST_LIST);
    Value::Array(items)
}

fn text(text: &str) -> Value {
    Value::String(end_of(text.trim_end()))
}

fn end_of(text: &str) -> String {
    let length = text.chars().count();
    if length <= LONGEST_TEXT {
        return text.to_owned();
    }
    let end: String = text.chars().skip(length - LONGEST_TEXT).collect();
    format!("[…]\n{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(stdout: &str) -> CheckOutput {
        CheckOutput { stdout: stdout.to_owned(), ..CheckOutput::default() }
    }

    #[test]
    fn every_name_that_is_listed_is_an_extractor_and_no_other() {
        for name in EXTRACTORS.iter().chain(&PLAIN_EXTRACTORS) {
            assert!(said("").extract(name).is_some(), "{name}");
        }
        assert_eq!(said("").extract("parseMood"), None);
    }

    #[test]
    fn a_status_falls_into_changed_untracked_staged_and_unstaged() {
        let output = said(" M a.rs\nA  b.rs\n?? c d.rs\nR  old.rs -> new.rs\nMM e.rs\n");
        let of = |name: &str| output.extract(name).unwrap();
        assert_eq!(of("parseChangedFiles"), json!(["a.rs", "b.rs", "new.rs", "e.rs"]));
        assert_eq!(of("parseUntrackedFiles"), json!(["c d.rs"]));
        assert_eq!(of("parseStagedFiles"), json!(["b.rs", "new.rs", "e.rs"]));
        assert_eq!(of("parseUnstagedFiles"), json!(["a.rs", "e.rs"]));
    }

    #[test]
    fn failed_tests_are_found_in_the_words_of_the_usual_runners() {
        let output = said(
            "test a::b ... FAILED\ntest c ... ok\nadds two ... FAILED (3ms)\n--- FAIL: TestX (0.0s)\n\
             FAILED tests/x.py::test_y - assert 1 == 2\nnot ok 3 - counts\n",
        );
        let names: Vec<Value> = output.extract("failedTests").unwrap().as_array().unwrap().clone();
        let names: Vec<&str> = names.iter().filter_map(|test| test["name"].as_str()).collect();
        assert_eq!(names, ["a::b", "adds two", "TestX", "tests/x.py::test_y", "counts"]);
        assert_eq!(output.extract("parseTestOutput").unwrap()[3]["error"], "assert 1 == 2");
    }

    #[test]
    fn errors_carry_file_line_and_message() {
        let output = said(
            "error[E0308]: mismatched types\n --> src/a.rs:3:5\n  |\nlib/b.ts:7:1 - no unused (no-unused-vars)\n\
             c.cs(9,2): error CS1002: ; expected\n",
        );
        let errors = output.extract("parseTypeErrors").unwrap();
        assert_eq!(errors[0]["file"], "src/a.rs");
        assert_eq!(
            (&errors[0]["line"], &errors[0]["message"]),
            (&json!(3), &json!("error[E0308]: mismatched types"))
        );
        assert_eq!((&errors[1]["line"], &errors[1]["rule"]), (&json!(7), &json!("no-unused-vars")));
        assert_eq!((&errors[2]["file"], &errors[2]["line"]), (&json!("c.cs"), &json!(9)));
        assert_eq!(output.extract("extractFiles").unwrap(), json!(["src/a.rs", "lib/b.ts", "c.cs"]));
    }

    #[test]
    fn long_outputs_are_shown_from_their_end() {
        let output = said(&format!("{}THE END\n", "x".repeat(10_000)));
        let shown = output.extract("stdout").unwrap();
        let shown = shown.as_str().unwrap();
        assert!(shown.starts_with("[…]\n") && shown.ends_with("THE END"));
        assert!(shown.chars().count() < 4_100);
    }
}
