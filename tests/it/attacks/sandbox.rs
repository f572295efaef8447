//! What a program in the sandbox may not reach, in each of its kinds.
//!
//! The table stands in `tests/data/attacks/sandbox.toml`, beside the older one of `agents/cage.rs`; all of a table is tried
//! in one run of the binary, and its effects are looked for from outside.
#![expect(
    clippy::disallowed_methods,
    reason = "a test starts the program as a person would, with an environment of its own"
)]

use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agents::bench::{fixer, journal, no_landlock, no_sandbox, script};
use crate::agents::sandbox::{self, Corpus, Outside, attack};
use crate::outside::solo::{calls, left, reports, solo};
use crate::outside::world::{World, text};

const CORPUS: &str = include_str!("../../data/attacks/sandbox.toml");

/// What a program tries that is allowed the whole network, with the word that it prints when it worked.
const WITH_THE_NETWORK: &[(&str, &str)] = &[
    ("a stream without a file", "s = socket.socket(1, 1); s.connect('\\0NAME')"),
    ("a datagram without a file", "s = socket.socket(1, 2); s.sendto(b'x', '\\0NAME-datagrams')"),
    ("packets without a file", "s = socket.socket(1, 5); s.connect('\\0NAME')"),
    (
        "a connected datagram without a file",
        "s = socket.socket(1, 2); s.connect('\\0NAME-datagrams'); s.send(b'x')",
    ),
    ("the kernel's table of sockets", "s = socket.socket(16, 3, 4)"),
    ("the kernel's events", "s = socket.socket(16, 3, 15)"),
];

/// What is left for agentd's own tools to stumble over, and the call that would: in each kind, and without a sandbox.
const LEFT: &[(&str, &str, &str)] = &[
    ("rules of a folder are a pipe elsewhere", "ln -s PIPE lib/.gitignore", "list_files"),
    ("rules of a folder are a pipe elsewhere, searched", "ln -s PIPE tests/.gitignore", "search"),
    ("rules of the root are a pipe elsewhere", "ln -sf PIPE .gitignore", "list_files"),
    ("rules of the root are a pipe elsewhere, searched", "ln -sf PIPE .gitignore", "search"),
    ("rules larger than anyone writes", "truncate -s 3M docs/.gitignore", "list_files"),
    ("a pipe read as a file", "mkfifo plain.pipe", "read_file"),
    ("a pipe elsewhere read as a file", "ln -s PIPE linked.pipe", "read_file"),
];

/// Attempts on this surface: both tables and what is in this file.
pub fn cases() -> usize {
    let rows = |text| Corpus::parse(text).attack.len();
    rows(CORPUS) + rows(sandbox::CORPUS) + WITH_THE_NETWORK.len() + LEFT.len()
}

#[test]
fn there_are_as_many_attempts_as_the_documentation_says() {
    let told = include_str!("../../../docs/sandbox.md");
    assert!(cases() >= 110 && told.contains(&format!("{} attempts", cases())), "{}", cases());
    let lesser = |text| Corpus::parse(text).attack.into_iter().filter_map(|attack| attack.lesser);
    for what in lesser(CORPUS).chain(lesser(sandbox::CORPUS)) {
        assert!(told.contains(&what), "docs/sandbox.md does not say: {what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_the_table_gets_out_of_bubblewrap() {
    match no_sandbox() {
        Some(why) => eprintln!("skipped, there is no bubblewrap here: {why}"),
        None => attack("auto", CORPUS).await,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_the_table_gets_out_of_landlock_but_for_what_is_said() {
    match no_landlock() {
        Some(why) => eprintln!("skipped: {why}"),
        None => attack("landlock", CORPUS).await,
    }
}

/// A world with that kind of sandbox.
async fn world_in(mode: &str) -> World {
    let world = World::new(0).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n[sandbox]\nmode = \"{mode}\"\n"));
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_network_is_not_the_machine_s_sockets() {
    for mode in ["bubblewrap", "landlock"] {
        if let Some(why) = if mode == "landlock" { no_landlock() } else { no_sandbox() } {
            eprintln!("skipped {mode}: {why}");
            continue;
        }
        let world = world_in(mode).await;
        let outside = Outside::open(world.dir.path());
        let mut attempts = "#!/bin/bash\ncat >/dev/null\nPATH=/usr/bin:$PATH\n".to_owned();
        for (name, attempt) in WITH_THE_NETWORK {
            let attempt = attempt.replace("NAME", &outside.abstract_name);
            let attempt = attempt.replace("; ", "\n    ");
            attempts.push_str(&format!(
                "echo \"{name}\"\npython3 - <<'END'\nimport socket\ntry:\n    {attempt}\n    print('REACHED')\n\
                 except OSError as error: print('not reached:', error)\nEND\n"
            ));
        }
        attempts
            .push_str("python3 -c \"import socket; socket.socket(2, 1); print('the network is there')\"\n");
        fixer(&world, "command", &json!({"argv": [script(&world, "reach.sh", &attempts)], "network": true}));
        let (_, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
        let said = journal(&world, &output);
        assert!(said.contains("the network is there") && said.contains("not reached:"), "{output:#}");
        assert!(!said.contains("REACHED"), "{mode}: {output:#}");
        assert_eq!(outside.reached.load(Ordering::Relaxed), 0, "{mode}: {output:#}");
        world.finish().await;
    }
}

const EVERYTHING: &str =
    "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"all\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_in_the_worktree_holds_no_tool_up() {
    for mode in ["off", "bubblewrap", "landlock"] {
        let missing = match mode {
            "bubblewrap" => no_sandbox(),
            "landlock" => no_landlock(),
            _ => None,
        };
        if let Some(why) = missing {
            eprintln!("skipped {mode}: {why}");
            continue;
        }
        let outside = tempfile::tempdir().unwrap();
        let pipe = outside.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        let (mut replies, mut former) = (Vec::new(), "nothing-yet".to_owned());
        for (_, left, tool) in LEFT {
            let argv: Vec<String> =
                left.split(' ').map(|word| word.replace("PIPE", &pipe.display().to_string())).collect();
            let last = argv.last().unwrap().clone();
            let arguments = match *tool {
                "search" => json!({ "pattern": "total" }),
                "read_file" => json!({ "path": last }),
                _ => json!({}),
            };
            // Tools that only read come before the others of a reply, and a session has some fifteen.
            let before = [
                json!(["rm", "-f", former]),
                json!(["git", "checkout", "-q", "--", "."]),
                json!(["mkdir", "-p", "docs"]),
                json!(argv),
            ];
            let before: Vec<_> =
                before.into_iter().map(|argv| ("run_command", json!({ "argv": argv }))).collect();
            replies.push(calls(&before));
            replies.push(calls(&[(tool, arguments)]));
            former = last;
        }
        replies.push(reports("Done.", json!([])));
        let world = solo(replies, Some(EVERYTHING), &format!("[sandbox]\nmode = \"{mode}\"\n")).await;
        let mut run = world.command_in(&["--json", "run", "--issue", "7", "--agent", "solo"]);
        let mut run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let began = Instant::now();
        while run.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(150) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let held_up = run.try_wait().unwrap().is_none();
        drop(run.kill());
        let said = run.wait_with_output().unwrap();
        assert!(!held_up, "{mode}: something of it holds agentd up: {}", text(&said.stderr));
        let record = left(&world, "run.json");
        let items = record["items"].as_array().unwrap();
        let answers: Vec<&Value> =
            items.iter().filter(|item| item["type"] == "tool_call_output_item").collect();
        assert!(answers.len() >= LEFT.len() * 5, "{mode}: {}", text(&said.stderr));
        for ((name, _, tool), answers) in LEFT.iter().zip(answers.chunks(5)) {
            let answer = answers[4].to_string();
            let listed = answer.contains("README.md") || answer.contains("lib/cart.sh");
            let refused = answer.contains("a symbolic link") || answer.contains("plain.pipe");
            assert!(if *tool == "read_file" { refused } else { listed }, "{mode}: {name}: {answer}");
        }
        world.finish().await;
    }
}

/// What people's projects are worked on with, each with a line of its own.
const TOOLS: &str = r#"#!/bin/bash
cat >/dev/null
export PATH="$TOOLCHAIN/bin:/usr/bin:/bin:$PATH"
mkdir -p "$TMPDIR/work" && cd "$TMPDIR/work"
sh -c 'true' && echo "works: sh"
diff <(echo a) <(echo a) && echo "works: substitution"
git init -q one && git -C one -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git clone -q one two && echo "works: git"
for place in "$TMPDIR" /var/tmp; do mkfifo $place/through && break; done; (echo x > $place/through &) ; [ "$(cat $place/through)" = x ] && echo "works: pipe"
printf 'x' > file; chmod 755 file; cp -a file copy; tar cf all.tar file copy && mkdir -p out && tar xpf all.tar -C out && install -m 755 file installed && echo "works: files"
python3 -c "import subprocess, threading, tempfile, ssl; t = threading.Thread(target=print); t.start(); t.join(); subprocess.run(['true'], check=True); tempfile.NamedTemporaryFile(); ssl.create_default_context()" && echo "works: python3"
if type node; then node -e "const c = require('child_process'); c.execSync('true'); const {Worker} = require('worker_threads'); new Worker('1', {eval: true}).on('exit', () => console.log('works: node'))"; else echo "works: node"; fi
cargo init -q --name tiny --vcs none tiny && (cd tiny && cargo run -q --offline) | grep -q Hello && echo "works: cargo"
id -un >/dev/null && getent hosts localhost >/dev/null && date >/dev/null && echo "works: names"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn common_tools_still_work() {
    let cargo = std::path::PathBuf::from(std::env::var_os("CARGO").unwrap());
    let toolchain = cargo.ancestors().nth(2).unwrap().display().to_string();
    for mode in ["bubblewrap", "landlock"] {
        if let Some(why) = if mode == "landlock" { no_landlock() } else { no_sandbox() } {
            eprintln!("skipped {mode}: {why}");
            continue;
        }
        let world = world_in(mode).await;
        let tools = TOOLS.replace("$TOOLCHAIN", &toolchain);
        let program = script(&world, "tools.sh", &tools);
        fixer(&world, "command", &json!({"argv": [program], "readable": [toolchain]}));
        let (_, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
        let said = journal(&world, &output);
        for tool in ["sh", "substitution", "git", "pipe", "files", "python3", "node", "cargo", "names"] {
            assert!(said.contains(&format!("works: {tool}")), "{mode}: {tool}: {said}");
        }
        world.finish().await;
    }
}
