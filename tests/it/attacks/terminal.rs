//! Terminal: codes that steer one, or hide on it, in what issues and models wrote, looked for in what every command prints.

use serde_json::{Value, json};

use crate::outside::solo::{calls, newest, reports, solo_of};
use crate::outside::world::text;

const ALLOW: &str =
    "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"for the test\"\n";

/// What it is, and its characters.
const CODES: [(&str, &str); 20] = [
    ("red, as agentd writes it", "\u{1b}[31m"),
    ("bold, as agentd writes it", "\u{1b}[1m"),
    ("end of colours", "\u{1b}[0m"),
    ("bright background", "\u{1b}[48;5;196m"),
    ("clear the screen", "\u{1b}[2J\u{1b}[H"),
    ("title", "\u{1b}]0;owned\u{7}"),
    ("clipboard", "\u{1b}]52;c;b3duZWQ=\u{7}"),
    ("link", "\u{1b}]8;;http://evil\u{1b}\\"),
    ("device control", "\u{1b}Pq\u{1b}\\"),
    ("C1 sequence", "\u{9b}31m"),
    ("C1 title", "\u{9d}0;owned\u{9c}"),
    ("C1 next line", "\u{85}"),
    ("bell", "\u{7}"),
    ("backspace", "\u{8}"),
    ("delete", "\u{7f}"),
    ("right to left", "\u{202e}"),
    ("isolate", "\u{2066}"),
    ("tags", "\u{e0041}\u{e0042}"),
    ("zero-width", "\u{200b}"),
    ("line separator", "\u{2028}"),
];

/// A command, and whether what it prints is JSON.
const COMMANDS: [(&[&str], bool); 10] = [
    (&["runs", "list"], false),
    (&["runs", "show", "latest"], false),
    (&["runs", "report", "latest"], false),
    (&["runs", "events", "latest"], true),
    (&["runs", "evidence", "latest"], true),
    (&["runs", "accounting", "latest"], true),
    (&["--json", "runs", "show", "latest"], true),
    (&["--json", "runs", "list"], true),
    (&["--json", "runs", "events", "latest"], true),
    (&["runs", "verify", "latest"], false),
];

/// Runs for people, and with a log for programs.
const RUNS: [&[&str]; 2] = [&["run"], &["-v", "--log-format", "json", "run"]];

/// Codes times places: the commands, and the run itself for people, with a log of either kind.
pub const CASES: usize = CODES.len() * (COMMANDS.len() + 4);

fn steers(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t')) || agentd::domain::untrusted::is_hidden(c)
}

/// Characters in `said` that no terminal may have, by code.
fn found(place: &str, said: &str, wrong: &mut Vec<String>) {
    for (name, code) in CODES {
        if said.contains(code) {
            wrong.push(format!("{name}: printed by {place}"));
        }
    }
    if let Some(c) = said.chars().find(|c| steers(*c)) {
        wrong.push(format!("{c:?} is printed by {place}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_wrote_steers_no_terminal() {
    let marked = |lead: &str| -> String {
        CODES.iter().enumerate().map(|(place, (_, code))| format!("{lead}{place}{code}z ")).collect()
    };
    let (title, said) = (marked("t"), marked("s"));
    let claims = json!([{ "statement": said, "kind": "other", "status": "unverified", "cites": [] }]);
    let mut worlds = Vec::new();
    for flags in RUNS {
        let replies = vec![
            calls(&[
                ("read_file", json!({ "path": format!("no-such-file-{said}") })),
                ("run_command", json!({ "argv": ["printf", "%s", said] })),
                ("write_file", json!({ "path": "a.txt", "content": "a\n" })),
            ]),
            reports(&said, claims.clone()),
        ];
        let world = solo_of(replies, Some(ALLOW), "", |scenario| {
            let mut issue: Value = serde_json::to_value(&scenario.repositories[0].issues[0]).unwrap();
            issue["title"] = json!(title);
            scenario.repositories[0].issues[0] = serde_json::from_value(issue).unwrap();
        })
        .await;
        let mut command = world.command_in(flags);
        command.args(["--issue", "7", "--agent", "solo"]);
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let mut wrong = Vec::new();
        found(&format!("{flags:?}, stdout"), &text(&done.stdout), &mut wrong);
        found(&format!("{flags:?}, stderr"), &text(&done.stderr), &mut wrong);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(text(&done.stdout).contains("s19z"), "{}", text(&done.stdout));
        if flags.len() > 1 {
            for line in text(&done.stderr).lines() {
                assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
            }
        }
        worlds.push(world);
    }
    let world = &worlds[0];
    // A file that somebody laid there has a name, too.
    agentd::sys::files::write_private(&newest(world).join(format!("evil{}", CODES[0].1)), b"x").unwrap();
    let mut wrong = Vec::new();
    for (args, is_json) in COMMANDS {
        let mut command = world.command_in(args);
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let said = text(&done.stdout);
        assert!(!said.is_empty(), "{args:?}: {}", text(&done.stderr));
        found(&format!("{args:?}"), &said, &mut wrong);
        found(&format!("{args:?}, stderr"), &text(&done.stderr), &mut wrong);
        if is_json {
            let documents: Vec<Value> = serde_json::Deserializer::from_str(&said)
                .into_iter::<Value>()
                .collect::<Result<_, _>>()
                .unwrap_or_else(|error| panic!("{args:?}: {error}: {said}"));
            assert!(!documents.is_empty(), "{args:?}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let mut command = world.command_in(&["--json", "runs", "show", "latest"]);
    let shown: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    let kept: Value =
        serde_json::from_slice(&std::fs::read(newest(world).join("result.json")).unwrap()).unwrap();
    assert_eq!(CASES, CODES.len() * (COMMANDS.len() + 2 * RUNS.len()));
    assert_eq!(shown, kept, "escaped, and the same for a program");
    for world in worlds {
        world.finish().await;
    }
}
