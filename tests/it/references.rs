//! The reference pages under `docs/reference/`: equal to what the code says.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use agentd::cli::args::Cli;
use agentd::definition::policy_file::{PolicySource, read_policies};
use agentd::domain::issue_state::IssueState;
use agentd::domain::policy::{PROTOCOL_TOOLS, WORKTREE_TOOLS};
use agentd::domain::stop::{StopDetail, StopReason};
use clap::CommandFactory as _;
use serde_json::Value;

const HEADER: &str =
    "<!-- Written from the code by tests/it/references.rs; change the code, not this page. -->\n";

/// A change of the code that a page tells of changes the page. Then: the page from target/reference, in the same commit.
#[test]
fn each_reference_page_says_what_the_code_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages =
        [("cli", cli()), ("configuration", configuration()), ("journal", journal()), ("codes", codes())];
    let mut wrong = Vec::new();
    for (name, text) in pages {
        if fs::read_to_string(root.join(format!("docs/reference/{name}.md"))).unwrap_or_default() != text {
            let folder = root.join("target/reference");
            fs::create_dir_all(&folder).unwrap();
            let mut file = fs::File::create(folder.join(format!("{name}.md"))).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            wrong.push(format!("docs/reference/{name}.md is stale"));
        }
    }
    assert!(
        wrong.is_empty(),
        "\n{}\nThe new text is written; take it over: cp target/reference/*.md docs/reference/",
        wrong.join("\n")
    );
}

/// Who reads the page only knows which words a key takes, however the schema has them.
#[test]
fn the_page_of_agentd_toml_says_which_words_a_key_takes() {
    let page = configuration();
    for (key, words) in [
        ("outsiders", &["author", "quote", "omit"][..]),
        ("start_on", &["changes_requested", "review_comments", "approval", "mention", "comment"]),
        ("rerun", &["infrastructure", "all", "never"]),
        ("gate", &["off", "always", "label"]),
        ("permissions", &["policy", "cage"]),
        ("kind", &["anthropic", "openai", "openai-responses", "gemini"]),
        ("trusted", &["read", "triage", "write", "maintain", "admin"]),
    ] {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{key}` | "))).unwrap();
        assert!(words.iter().all(|word| row.contains(&format!("`{word}`"))), "{row}");
    }
}

/// The examples of the page are a policy, and no tool is forgotten.
#[test]
fn the_page_of_the_policy_has_rules_that_can_be_read_and_each_tool() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/policy.md")).unwrap();
    let text = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap().to_owned();
    read_policies(&[PolicySource { name: "docs/policy.md".to_owned(), text }]).unwrap();
    let schema = agentd::definition::format_schema("policy").unwrap();
    let keys = ["RuleEntry", "WhenEntry"].map(|name| keys_of(&schema["$defs"][name]));
    let tools = WORKTREE_TOOLS.iter().chain(&PROTOCOL_TOOLS).map(|tool| (*tool).to_owned());
    let words: Vec<String> = keys.into_iter().flatten().chain(tools).collect();
    assert!(words.len() > 20, "{words:?}");
    let missing: Vec<&String> = words.iter().filter(|word| !page.contains(&format!("`{word}`"))).collect();
    assert!(missing.is_empty(), "docs/policy.md does not tell of {missing:?}");
}

fn keys_of(schema: &Value) -> Vec<String> {
    schema["properties"].as_object().unwrap().keys().cloned().collect()
}

/// Why an issue is not started: each rule and each code of the program stands in the table for people.
#[test]
fn the_page_of_why_has_each_rule_and_each_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rules = fs::read_to_string(root.join("src/daemon/start_rules.rs")).unwrap();
    let page = fs::read_to_string(root.join("docs/why.md")).unwrap();
    let part = |from: &str, to: &str| {
        let begin = rules.find(from).unwrap();
        rules[begin..begin + rules[begin..].find(to).unwrap()].to_owned()
    };
    let codes = part("pub fn code(&self)", "\n    }\n");
    let names = part("const RULES: &[Rule]", "\n];");
    let of_codes = codes.lines().filter_map(|line| line.split_once("=> \"")).map(|(_, word)| word);
    let of_rules = names.lines().filter_map(|line| line.trim().strip_prefix("(\""));
    let words: Vec<&str> = of_codes.chain(of_rules).filter_map(|word| word.split('"').next()).collect();
    assert!(words.len() > 40, "{words:?}");
    let missing: Vec<&&str> = words.iter().filter(|word| !page.contains(&format!("`{word}`"))).collect();
    assert!(missing.is_empty(), "docs/why.md does not tell of {missing:?}");
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "\\<")
}

fn cli() -> String {
    let mut command = Cli::command();
    command.build();
    let mut page =
        format!("{HEADER}\n# The command line\n\n{}\n", cell(&command.get_about().unwrap().to_string()));
    page += "\nEvery command takes the options of the first table as well.\n";
    options(&mut page, command.get_arguments().filter(|argument| argument.is_global_set()));
    for sub in command.get_subcommands() {
        commands(&mut page, "agentd", sub, 2);
    }
    page
}

fn commands(page: &mut String, above: &str, command: &clap::Command, depth: usize) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let name = format!("{above} {}", command.get_name());
    *page += &format!("\n{} {name}\n", "#".repeat(depth));
    if let Some(about) = command.get_long_about().or(command.get_about()) {
        *page += &format!("\n{}\n", about.to_string().trim());
    }
    options(page, command.get_arguments().filter(|argument| !argument.is_global_set()));
    for sub in command.get_subcommands() {
        commands(page, &name, sub, depth + 1);
    }
}

fn options<'a>(page: &mut String, arguments: impl Iterator<Item = &'a clap::Arg>) {
    let mut rows = String::new();
    for argument in arguments {
        let id = argument.get_id().as_str();
        if argument.is_hide_set() || id == "help" || id == "version" {
            continue;
        }
        let mut names: Vec<String> = Vec::new();
        names.extend(argument.get_short().map(|short| format!("-{short}")));
        names.extend(argument.get_long().map(|long| format!("--{long}")));
        let mut shown = names.join(", ");
        if argument.is_positional() || argument.get_action().takes_values() {
            let values = argument.get_value_names().unwrap_or_default();
            let values: Vec<String> = values.iter().map(|value| format!("<{value}>")).collect();
            shown = format!("{shown} {}", values.join(" ")).trim().to_owned();
        }
        let mut help =
            argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
        let choices: Vec<String> =
            argument.get_possible_values().iter().map(|one| format!("`{}`", one.get_name())).collect();
        if argument.get_action().takes_values() && !choices.is_empty() {
            help += &format!(" One of {}.", choices.join(", "));
        }
        let defaults: Vec<String> = argument
            .get_default_values()
            .iter()
            .map(|value| format!("`{}`", value.to_string_lossy()))
            .collect();
        if argument.get_action().takes_values() && !defaults.is_empty() {
            help += &format!(" Default: {}.", defaults.join(", "));
        }
        rows += &format!("| `{}` | {} |\n", shown.replace('|', "\\|"), cell(&help));
    }
    if !rows.is_empty() {
        *page += &format!("\n| argument | meaning |\n|---|---|\n{rows}");
    }
}

fn configuration() -> String {
    let mut page = format!(
        "{HEADER}\n# agentd.toml\n\nEvery key is optional; an unknown key is an error. `agentd config explain` shows every value in \
         force and the layer it comes from.\n"
    );
    table(&mut page, "", agentd::config::schema());
    page
}

/// One table of the file, its keys first, then the tables below it.
fn table(page: &mut String, path: &str, schema: &Value) {
    let Some(properties) = schema["properties"].as_object() else { return };
    let mut rows = String::new();
    let mut below = Vec::new();
    for (name, property) in properties {
        let place = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if let Some((heading, inner)) = inner_table(&place, property) {
            below.push((heading, place, property, inner));
            continue;
        }
        let default = match property.get("default") {
            Some(value) if !value.is_null() => format!("`{value}`"),
            _ => "–".to_owned(),
        };
        let mut meaning = property["description"].as_str().unwrap_or_default().to_owned();
        for choice in described_words(property) {
            let word = choice["const"].as_str().unwrap_or_default();
            meaning += &format!(" `{word}`: {}", choice["description"].as_str().unwrap_or_default());
        }
        // A key whose text does not explain its words names them at least.
        let words = plain_words(property);
        if words.iter().any(|word| !meaning.contains(&format!("`{word}`"))) {
            meaning += &format!(" One of `{}`.", words.join("`, `"));
        }
        rows += &format!("| `{name}` | {} | {} | {} |\n", kind(property), cell(&default), cell(&meaning));
    }
    if !rows.is_empty() {
        *page += &format!("\n| key | type | default | meaning |\n|---|---|---|---|\n{rows}");
    }
    for (heading, place, property, inner) in below {
        *page += &format!("\n## `{heading}`\n");
        let text = property["description"].as_str().or(inner["description"].as_str()).unwrap_or_default();
        if !text.is_empty() {
            *page += &format!("\n{text}\n");
        }
        table(page, &place, inner);
    }
}

/// The words that a key takes, where the schema says what each of them means.
fn described_words(property: &Value) -> impl Iterator<Item = &Value> {
    let beside_null = property["anyOf"].as_array().into_iter().flatten();
    let all = std::iter::once(property).chain(beside_null).filter_map(|one| one["oneOf"].as_array());
    all.flatten().filter(|choice| choice["const"].is_string())
}

/// The words that a key, or each item of its list, takes, where the schema only lists them.
fn plain_words(property: &Value) -> Vec<&str> {
    let lists = [&property["enum"], &property["items"]["enum"]].into_iter().filter_map(Value::as_array);
    lists.flatten().filter_map(Value::as_str).collect()
}

/// A key that is a table, a list of tables or tables by name: how its heading is written, and the schema of one.
fn inner_table<'a>(place: &str, property: &'a Value) -> Option<(String, &'a Value)> {
    if property["properties"].is_object() {
        return Some((format!("[{place}]"), property));
    }
    if property["items"]["properties"].is_object() {
        return Some((format!("[[{place}]]"), &property["items"]));
    }
    if property["additionalProperties"]["properties"].is_object() {
        return Some((format!("[{place}.NAME]"), &property["additionalProperties"]));
    }
    let choices = property["anyOf"].as_array().or(property["oneOf"].as_array())?;
    choices
        .iter()
        .find(|choice| choice["properties"].is_object())
        .map(|choice| (format!("[{place}]"), choice))
}

fn kind(property: &Value) -> String {
    let one = |value: &Value| value.as_str().filter(|kind| *kind != "null").map(str::to_owned);
    let kind = match &property["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(one).collect::<Vec<_>>().join(" or "),
        other => one(other).unwrap_or_default(),
    };
    let item = property["items"]["type"].as_str();
    match (kind.as_str(), item) {
        ("array", Some("array")) => "list of lists".to_owned(),
        ("array", Some(item)) => format!("list of {item}s"),
        ("string" | "", _)
            if !plain_words(property).is_empty() || described_words(property).next().is_some() =>
        {
            "one of".to_owned()
        }
        ("", _) => "any".to_owned(),
        _ => kind,
    }
}

/// A variant or a field, as the source says it.
struct Member {
    name: String,
    kind: String,
    doc: String,
    fields: Vec<(String, String, String)>,
}

/// Reads the types of one kind (`struct`, `enum`) out of source text as rustfmt leaves it.
fn types(text: &str, word: &str) -> BTreeMap<String, Vec<Member>> {
    let mut found = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let named = line.strip_prefix(&format!("pub {word} ")).and_then(|rest| rest.strip_suffix(" {"));
        let Some(name) = named else { continue };
        let (mut members, mut words) = (Vec::<Member>::new(), String::new());
        for line in lines.by_ref().take_while(|line| *line != "}") {
            let depth = line.len() - line.trim_start().len();
            let line = line.trim();
            if let Some(comment) = line.strip_prefix("/// ") {
                words += &format!("{comment} ");
            } else if depth == 4 && line.starts_with(|c: char| c.is_alphabetic()) {
                let line = line.strip_prefix("pub ").unwrap_or(line).trim_end_matches([',', '{', ' ']);
                let (name, kind) = match line.split_once(": ").or_else(|| line.split_once('(')) {
                    Some((name, kind)) => (name, kind.trim_end_matches(')')),
                    None => (line, ""),
                };
                let doc = std::mem::take(&mut words);
                members.push(Member { name: name.into(), kind: kind.into(), doc, fields: Vec::new() });
            } else if let (8, Some((name, kind)), Some(member)) =
                (depth, line.split_once(": "), members.last_mut())
                && !line.starts_with('#')
            {
                let kind = kind.trim_end_matches(',').to_owned();
                member.fields.push((name.to_owned(), kind, std::mem::take(&mut words)));
            }
        }
        found.insert(name.to_owned(), members);
    }
    found
}

fn snake(name: &str) -> String {
    let mut text = String::new();
    for (at, letter) in name.chars().enumerate() {
        if letter.is_uppercase() && at > 0 {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

fn journal() -> String {
    let domain = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/domain");
    let mut structs = BTreeMap::new();
    for file in
        fs::read_dir(&domain).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file())
    {
        structs.extend(types(&fs::read_to_string(file).unwrap(), "struct"));
    }
    let events =
        types(&fs::read_to_string(domain.join("event.rs")).unwrap(), "enum").remove("Event").unwrap();
    assert!(events.len() > 30, "the list of events is read from the source");
    let mut page = format!(
        "{HEADER}\n# Journal entries\n\nEach line of a run's `events.jsonl` is one entry: `seq`, `ts` (milliseconds since 1970), `run_id`, `kind`, \
         `data`, the hash of the line before (`prev`) and its own (`hash`). Here are the kinds in the order of the code, with the \
         members of `data`.\n"
    );
    for event in &events {
        page += &format!("\n## `{}`\n\n{}\n", snake(&event.name), event.doc.trim());
        let inner =
            event.kind.strip_prefix("Box<").and_then(|kind| kind.strip_suffix('>')).unwrap_or(&event.kind);
        let mut fields = event.fields.iter().map(|(name, kind, doc)| (name, kind, doc)).collect::<Vec<_>>();
        if let Some(described) = structs.get(inner) {
            fields.extend(described.iter().map(|member| (&member.name, &member.kind, &member.doc)));
        }
        if fields.is_empty() {
            continue;
        }
        page += "\n| member | type | meaning |\n|---|---|---|\n";
        for (name, kind, doc) in fields {
            page += &format!("| `{name}` | `{}` | {} |\n", kind.replace('|', "\\|"), cell(doc));
        }
    }
    page
}

fn codes() -> String {
    let words = |schema: schemars::Schema| -> BTreeMap<String, String> {
        let choices = schema.as_value()["oneOf"].as_array().cloned().unwrap_or_default();
        let one = |choice: &Value| {
            Some((choice["const"].as_str()?.to_owned(), choice["description"].as_str()?.to_owned()))
        };
        choices.iter().filter_map(one).collect()
    };
    let (reasons, details) =
        (words(schemars::schema_for!(StopReason)), words(schemars::schema_for!(StopDetail)));
    let mut page = format!(
        "{HEADER}\n# Reasons and exit codes\n\nA run ends with a reason and a detail. The detail fixes the reason, the exit code of \
         `agentd run` and the label that the issue gets (its key in `[github.labels]`).\n\n| detail | reason | exit code | label | meaning |\n|---|---|---:|---|---|\n"
    );
    for detail in StopDetail::ALL {
        let word = detail.as_str();
        // Whoever begins a run by hand on an issue without the trigger goes on with it, too.
        let unchanged = match detail {
            StopDetail::Shutdown => {
                "as it was; `attention` where a person began the run by hand and the trigger is not on"
            }
            _ => "as it was",
        };
        let label =
            IssueState::after(*detail).map_or(unchanged.to_owned(), |state| format!("`{}`", state.key()));
        let (reason, exit, meaning) = (detail.reason(), detail.exit_code(), cell(&details[word]));
        page += &format!("| `{word}` | `{reason}` | {exit} | {label} | {meaning} |\n");
    }
    page += "\n## Reasons\n\n| reason | meaning |\n|---|---|\n";
    for (reason, meaning) in &reasons {
        page += &format!("| `{reason}` | {} |\n", cell(meaning));
    }
    page += "\n## Exit codes of every command\n\n";
    let help = Cli::command().get_after_help().unwrap().to_string();
    let line = help.split(".\n").next().unwrap_or_default();
    for part in line.trim_start_matches("Exit codes: ").split(" · ") {
        let (code, meaning) = part.split_once(' ').unwrap();
        page += &format!("- `{code}`: {}\n", meaning.trim_end_matches('.'));
    }
    page
}
