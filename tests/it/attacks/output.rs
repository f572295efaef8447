//! Output: secrets in every disguise, looked for in everything that a run leaves, prints, sends and publishes.

use std::path::Path;

use agentd::sim::ReplyFile;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::outside::solo::{calls, newest, reports, solo_of};
use crate::outside::world::{TOKEN, World, text};

const ALLOW: &str =
    "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"for the test\"\n";

/// Each character with something between it and the next.
fn parted(by: &str) -> String {
    TOKEN.chars().map(|c| format!("{c}{by}")).collect()
}

fn each(write: impl Fn(char) -> String) -> String {
    TOKEN.chars().map(write).collect()
}

/// The secret's base64 in the middle of something else's.
fn base64_behind(before: &str) -> String {
    STANDARD.encode(format!("{before}{TOKEN}~~~"))
}

/// How the secret is written: a name, the writing, whether only a reader on GitHub puts it together.
fn disguises() -> Vec<(&'static str, String, bool)> {
    let code = u32::from;
    vec![
        ("plain", TOKEN.to_owned(), false),
        ("zero-width space", parted("\u{200b}"), false),
        ("zero-width joiner", parted("\u{200d}"), false),
        ("word joiner", parted("\u{2060}"), false),
        ("soft hyphen", parted("\u{ad}"), false),
        ("byte order mark", parted("\u{feff}"), false),
        ("variation selectors", parted("\u{fe0f}\u{e0100}"), false),
        ("tag characters", parted("\u{e0041}"), false),
        ("bidi override", format!("\u{202e}{}\u{202c}", parted("\u{2066}")), false),
        ("hangul filler", parted("\u{3164}"), false),
        ("colours", parted("\u{1b}[1m"), false),
        ("C1 colours", parted("\u{9b}31m"), false),
        ("terminal title", parted("\u{1b}]0;x\u{7}"), false),
        ("delete", parted("\u{7f}"), false),
        ("HTML comments", parted("<!-- x -->"), true),
        ("base64", STANDARD.encode(TOKEN), false),
        ("base64, one byte before", base64_behind("x"), false),
        ("base64, two bytes before", base64_behind("xy"), false),
        ("base64 with zero-width", STANDARD.encode(TOKEN).replace('G', "G\u{200b}"), false),
        ("hexadecimal", each(|c| format!("{:02x}", code(c))), false),
        ("HEXADECIMAL", each(|c| format!("{:02X}", code(c))), false),
        ("percent", each(|c| format!("%{:02x}", code(c))), false),
        ("some percent", TOKEN.replace('e', "%65").replace('-', "%2D"), false),
        ("percent twice", each(|c| format!("%25{:02x}", code(c))), false),
        ("JSON", each(|c| format!("\\u{:04x}", code(c))), false),
        ("some JSON", TOKEN.replace('e', "\\u0065").replace('o', "\\u006F"), false),
        ("JSON in JSON", each(|c| format!("\\\\u{:04x}", code(c))), false),
        ("bytes of a program", each(|c| format!("\\x{:02x}", code(c))), false),
        ("HTML", each(|c| format!("&#{};", code(c))), false),
        ("Markdown", TOKEN.replace('-', "\\-"), false),
    ]
}

/// Where a text of the model comes to, and whether that is on GitHub.
const CHANNELS: [(&str, bool); 16] = [
    ("status comment", true),
    ("body of the pull request", true),
    ("message of the commit", true),
    ("report.md", false),
    ("result.json", false),
    ("run.json", false),
    ("events.jsonl", false),
    ("conversation", false),
    ("sink", false),
    ("end of `run`", false),
    ("runs report", false),
    ("runs events", false),
    ("runs show --json", false),
    ("tool output", false),
    ("what the model is told", false),
    ("output of a verify command", false),
];

/// Of all tables here.
pub fn cases() -> usize {
    disguises()
        .iter()
        .map(|(.., github)| CHANNELS.iter().filter(|(_, on)| *on || !*github).count())
        .sum::<usize>()
        + TITLES.len() * 6
        + WORDS.len()
        + 3
}

/// What a reader has of a text once everything is undone that cannot be seen: enough to know a secret by.
fn seen(text: &str) -> String {
    let escapes = regex::Regex::new("(?:\u{1b}\\[|\u{9b})[0-9;]*m|\u{1b}\\][^\u{7}]*\u{7}").unwrap();
    let hidden = |c: &char| !agentd::domain::untrusted::is_hidden(*c) && (!c.is_control() || *c == '\n');
    escapes.replace_all(text, "").chars().filter(hidden).collect()
}

fn read(path: &Path) -> String {
    text(&std::fs::read(path).unwrap_or_default())
}

fn folder(path: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(path).into_iter().flatten() {
        let path = entry.unwrap().path();
        all.push_str(&if path.is_dir() { folder(&path) } else { read(&path) });
    }
    all
}

async fn told(world: &World, args: &[&str]) -> (String, String) {
    let mut command = world.command_in(args);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    (text(&done.stdout), text(&done.stderr))
}

fn titled(scenario: &mut agentd::sim::Scenario, title: &str) {
    let mut issue: Value = serde_json::to_value(&scenario.repositories[0].issues[0]).unwrap();
    issue["title"] = json!(title);
    scenario.repositories[0].issues[0] = serde_json::from_value(issue).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_disguise_of_a_secret_comes_through_any_channel() {
    let disguises = disguises();
    let lines: Vec<String> = disguises
        .iter()
        .enumerate()
        .map(|(place, (_, written, _))| format!("lead{place}x {written} tail\n\n"))
        .collect();
    let all = lines.concat();
    let claims = json!([{ "statement": format!("It holds: {all}"), "kind": "other", "status": "unverified", "cites": [] }]);
    let replies: Vec<ReplyFile> = vec![
        calls(&[
            ("read_file", json!({ "path": "secret.txt", "max_lines": 400 })),
            ("run_command", json!({ "argv": ["cat", "secret.txt"] })),
            ("run_command", json!({ "argv": ["cat", "secret.txt", "padding.txt"] })),
            ("search", json!({ "pattern": all })),
            ("write_file", json!({ "path": "notes.txt", "content": "harmless\n" })),
        ]),
        reports(&all, claims),
    ];
    let sink = tempfile::tempdir().unwrap();
    let sunk = sink.path().join("record.json");
    let more = format!(
        "[record]\nsinks = [[\"sh\", \"-c\", \"cat > {}\"]]\n[session]\ntool_response_max_bytes = 60000\n",
        sunk.display()
    );
    let world = solo_of(replies, Some(ALLOW), &more, |scenario| {
        let files = &mut scenario.repositories[0].commits[0].files;
        files.insert("secret.txt".to_owned(), serde_json::from_value(json!(all)).unwrap());
        let padding = "padding \n".repeat(10_000);
        files.insert("padding.txt".to_owned(), serde_json::from_value(json!(padding)).unwrap());
    })
    .await;
    world.verify("[[\"cat\", \"secret.txt\"]]");
    let (stdout, stderr) = told(&world, &["-v", "run", "--issue", "7", "--agent", "solo"]).await;
    let run = newest(&world);
    let pulls = world.sim.pulls("demo/shop");
    assert_eq!(pulls.len(), 1, "{stdout}\n{stderr}");
    let issue = world.sim.issue("demo/shop", 7).unwrap();
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    let message = world.git(&git_dir, &["log", "-1", "--format=%B", "feature/issue-7"]).await;
    let requests: String = world
        .sim
        .model_requests()
        .iter()
        .skip(1)
        .map(|request| {
            let whole = format!("{request:?}");
            whole.split("tool_result").skip(1).collect::<String>()
        })
        .collect();
    let channels: Vec<(&str, String)> = vec![
        ("status comment", issue.comments.iter().map(|comment| comment.body.clone()).collect()),
        ("body of the pull request", pulls[0].body.clone().unwrap_or_default()),
        ("message of the commit", message),
        ("report.md", read(&run.join("report.md"))),
        ("result.json", read(&run.join("result.json"))),
        ("run.json", read(&run.join("run.json")) + &folder(&run.join("artifacts"))),
        ("events.jsonl", read(&run.join("events.jsonl"))),
        ("conversation", folder(&run.join("conversation"))),
        ("sink", read(&sunk)),
        ("end of `run`", stdout),
        ("runs report", told(&world, &["runs", "report", "latest"]).await.0),
        ("runs events", told(&world, &["runs", "events", "latest"]).await.0),
        ("runs show --json", told(&world, &["--json", "runs", "show", "latest"]).await.0),
        ("tool output", folder(&run.join("tool-output"))),
        ("what the model is told", requests),
        ("output of a verify command", folder(&run.join("verify"))),
    ];
    let mut wrong = Vec::new();
    for ((channel, github), (name, said)) in CHANNELS.iter().zip(&channels) {
        assert_eq!(channel, name);
        let shown = seen(said);
        for (place, (disguise, written, only_github)) in disguises.iter().enumerate() {
            if *only_github && !github {
                continue;
            }
            // Where the sink's record points to files, those are the run's own.
            if *channel != "sink" && !shown.contains(&format!("lead{place}x")) {
                wrong.push(format!("{disguise}: nothing of it in {channel}: no attempt"));
            }
            // What stands around the secret in its base64 is no part of it.
            let inner = if disguise.contains("before") { &written[4..written.len() - 8] } else { written };
            let escaped = json!(inner).to_string();
            let forms = [inner.to_owned(), escaped.trim_matches('"').to_owned(), seen(inner)];
            if forms.iter().any(|form| said.contains(form.as_str()) || shown.contains(form.as_str())) {
                wrong.push(format!("{disguise}: in {channel}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cases() > 400, "{}", cases());
    assert!(!seen(&stderr).contains(TOKEN), "{stderr}");
    world.finish().await;
}

/// Titles of issues that hold a secret.
const TITLES: [(&str, &str); 3] = [("plain", ""), ("zero-width", "\u{200b}"), ("comments", "<!---->")];

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_an_issues_title_is_not_published() {
    for (name, by) in TITLES {
        let title = format!("Leak {} here", parted(by));
        let replies = vec![
            calls(&[
                ("search", json!({ "pattern": title })),
                ("write_file", json!({ "path": "a.txt", "content": "a\n" })),
            ]),
            reports("Done.", json!([])),
        ];
        let world = solo_of(replies, Some(ALLOW), "", |scenario| titled(scenario, &title)).await;
        told(&world, &["run", "--issue", "7", "--agent", "solo"]).await;
        let pull = world.sim.pulls("demo/shop").pop().unwrap();
        let git_dir = world.sim.git_dir("demo/shop").unwrap();
        let subject = world.git(&git_dir, &["log", "-1", "--format=%s", "feature/issue-7"]).await;
        let file = |name: &str| read(&newest(&world).join(name));
        let files = ["report.md", "events.jsonl", "run.json", "result.json"].map(|name| (name, file(name)));
        for (channel, said) in [("title", pull.title), ("subject", subject)].into_iter().chain(files) {
            assert!(said.contains("Leak"), "{name}: {channel}: {said}");
            assert!(!seen(&said).contains(TOKEN), "{name}: {channel}: {said}");
        }
        world.finish().await;
    }
}

/// Where a word of the model comes to that only the redaction program knows.
const WORDS: [&str; 9] = [
    "run.json",
    "result.json",
    "report.md",
    "events.jsonl",
    "conversation",
    "artifacts",
    "status comment",
    "body of the pull request",
    "message of the commit",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_redaction_program_is_asked_for_what_the_model_writes() {
    let word = "PROGRAMWORD";
    let said = format!("It says {word} twice: {word}.");
    let claims = json!([{ "statement": said, "kind": "other", "status": "unverified", "cites": [] }]);
    let mut talks: Value = serde_json::to_value(calls(&[
        ("search", json!({ "pattern": format!("{word}|other") })),
        ("write_file", json!({ "path": "a.txt", "content": "a\n" })),
    ]))
    .unwrap();
    talks["text"] = json!(said);
    let replies = vec![serde_json::from_value(talks).unwrap(), reports(&said, claims)];
    let more = "[redaction]\nprogram = [\"sed\", \"s/PROGRAMWORD/REPLACED/g\"]\n";
    let world = solo_of(replies, Some(ALLOW), more, |_| ()).await;
    let (stdout, stderr) = told(&world, &["run", "--issue", "7", "--agent", "solo"]).await;
    let run = newest(&world);
    let issue = world.sim.issue("demo/shop", 7).unwrap();
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    for channel in WORDS {
        let text = match channel {
            "conversation" | "artifacts" => folder(&run.join(channel)),
            "status comment" => issue.comments.iter().map(|comment| comment.body.clone()).collect(),
            "body of the pull request" => {
                world.sim.pulls("demo/shop").pop().unwrap().body.unwrap_or_default()
            }
            "message of the commit" => {
                world.git(&git_dir, &["log", "-1", "--format=%B", "feature/issue-7"]).await
            }
            file => read(&run.join(file)),
        };
        assert!(!text.contains(word), "{channel}: {text}");
        assert!(text.contains("REPLACED") || channel == "artifacts", "{channel}: {text}");
    }
    assert!(stdout.contains("REPLACED") && !stdout.contains(word), "the report's own summary: {stdout}");
    assert!(!stderr.contains(word), "{stderr}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verify_script_that_the_run_changed_is_told() {
    let replies = vec![
        calls(&[("write_file", json!({ "path": "tests/run.sh", "content": "exit 0\n" }))]),
        reports("All tests pass.", json!([])),
    ];
    let world = solo_of(replies, Some(ALLOW), "", |_| ()).await;
    world.verify("[[\"sh\", \"tests/run.sh\"]]");
    told(&world, &["run", "--issue", "7", "--agent", "solo"]).await;
    let run = newest(&world);
    let evidence = read(&run.join("evidence.jsonl"));
    assert!(evidence.contains("\"changed_by_run\":[\"tests/run.sh\"]"), "{evidence}");
    let report = read(&run.join("report.md"));
    assert!(report.contains("it executes `tests/run.sh`, which this run changed"), "{report}");
    let body = world.sim.pulls("demo/shop").pop().unwrap().body.unwrap_or_default();
    assert!(body.contains("it executes `tests/run.sh`, which this run changed"), "{body}");
    world.finish().await;
}
