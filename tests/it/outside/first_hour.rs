//! The transcript of the first hour in the documentation is what the program says.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::doctor::answers;
use super::kinds::{is_installed, replies};
use super::world::{World, basic, text};

const PAGE: &str = include_str!("../../../docs/first-hour.md");
const START: &str = "<!-- transcript -->\n";

/// Without what differs each time: digits, and names that are made of them.
fn masked(told: &str) -> String {
    let word = |word: &str| {
        let made = word.len() >= 7 && word.chars().any(|c| c.is_ascii_digit());
        let plain = word.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, '-' | '.' | ':' | 'T' | 'Z'));
        if made && plain {
            "*".to_owned()
        } else {
            word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect()
        }
    };
    let lines = told.lines().map(|line| {
        let parts: Vec<String> = line
            .split_inclusive([' ', '/', '(', ')', '`', ','])
            .map(|part| {
                let end = part.len() - usize::from(part.ends_with([' ', '/', '(', ')', '`', ',']));
                let shown = word(&part[..end]);
                // How many digits a number has is chance, too.
                let mut short = String::new();
                for c in shown.chars() {
                    if !(c == '0' && short.ends_with('0')) {
                        short.push(c);
                    }
                }
                format!("{short}{}", &part[end..])
            })
            .collect();
        // A time below a second has another unit.
        parts.concat().split_whitespace().collect::<Vec<_>>().join(" ").replace("0 ms", "0.0 s")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A Python project and two issues.
async fn world() -> World {
    World::of(2, |scenario| {
        let repository = &mut scenario.repositories[0];
        let test = "import unittest\n\nclass Adds(unittest.TestCase):\n    def test_adds(self):\n        self.assertEqual(1 + 1, 2)\n";
        let files = json!({ "pyproject.toml": "[project]\nname = \"shop\"\nversion = \"1\"\n", "test_adds.py": test });
        repository.commits[0].files = serde_json::from_value(files).unwrap();
        let mut second = repository.issues[0].clone();
        second.number = Some(8);
        repository.issues.push(second);
        scenario.model.replies = replies();
        scenario.model.replies.push(answers());
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_transcript_of_the_first_hour_is_what_the_program_says() {
    if !is_installed("bwrap") || !Path::new("/usr/bin/python3").exists() {
        eprintln!("skipped: the transcript is of a machine with bubblewrap and /usr/bin/python3");
        return;
    }
    let world = world().await;
    let shop = world.shop();
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", overlay.split("[verify]").next().unwrap());
    // As `git clone` left it: the world has done `init` already.
    std::fs::remove_dir_all(shop.join(".agent")).unwrap();
    agentd::sys::files::remove_file(&shop.join(".gitignore")).unwrap();
    let mut told = String::new();
    let mut say = |line: &str, mut command: Command, notes: bool| {
        command.env("PATH", "/usr/bin:/bin");
        let done = command.output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{line}: {}{}", text(&done.stdout), text(&done.stderr));
        let notes = if notes { text(&done.stderr) } else { String::new() };
        told.push_str(&format!("$ {line}\n{notes}{}\n", text(&done.stdout)));
    };
    say("agentd init", world.command(&["init"]), false);
    world.git(&shop, &["add", ".agent", ".gitignore"]).await;
    world.git(&shop, &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "agentd"]).await;
    let header = format!("http.extraHeader=Authorization: Basic {}", basic());
    world.git(&shop, &["-c", &header, "push", "-q", "origin", "HEAD:develop"]).await;
    tokio::task::block_in_place(|| {
        say("agentd doctor", world.command_in(&["doctor"]), false);
        say("agentd run --issue 7", world.command_in(&["run", "--issue", "7"]), false);
    });
    world.sim.add_label("demo/shop", 8, "agentd", "ada");
    tokio::task::block_in_place(|| {
        say("agentd daemon --once", world.command_in(&["-q", "daemon", "--once"]), false);
        say("agentd why 8", world.command_in(&["why", "8"]), false);
        say("agentd status", world.command_in(&["status"]), false);
        say("agentd runs list", world.command_in(&["runs", "list"]), false);
    });
    let home = world.dir.path().display().to_string();
    let told =
        told.replace(&home, "/home/ada").replace(&world.sim.base_url().to_string(), "http://127.0.0.1:4500");
    let lines: Vec<&str> = told.lines().map(str::trim_end).collect();
    let written = format!("```console\n{}\n```\n", lines.join("\n").trim_end());
    let (words, page) = PAGE.split_once(START).unwrap_or((PAGE, ""));
    if masked(page) != masked(&written) {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("first-hour.md");
        agentd::sys::files::write_public(&file, format!("{words}{START}{written}").as_bytes()).unwrap();
        panic!(
            "the program says something else now; look at it, then: cp {} docs/first-hour.md",
            file.display()
        );
    }
    world.finish().await;
}
