//! Journal: a finished run changed, cut, forged or taken away, and what `runs verify` says of it.
#![expect(clippy::disallowed_methods, reason = "tests start what copies states and makes keys")]

use std::path::{Path, PathBuf};
use std::process::Command;

use agentd::domain::canonical::{canonical_json, sha256_hex};
use serde_json::{Value, json};

use crate::outside::solo::{calls, reports, solo};
use crate::outside::world::{World, text};

const ALLOW: &str =
    "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"for the test\"\n";

fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
    agentd::sys::files::write_private(path.as_ref(), bytes.as_ref()).unwrap();
}

type Tampering = (&'static str, fn(&Path));

/// What may happen to each file of a run.
const TAMPERINGS: [Tampering; 6] = [
    ("a byte is added", |path| {
        let mut bytes = std::fs::read(path).unwrap();
        bytes.push(b' ');
        write(path, bytes);
    }),
    ("a byte is changed", |path| {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        write(path, bytes);
    }),
    ("it is cut off", |path| {
        let bytes = std::fs::read(path).unwrap();
        write(path, &bytes[..bytes.len() / 2]);
    }),
    ("it is empty", |path| write(path, "")),
    ("it is removed", |path| std::fs::remove_file(path).unwrap()),
    ("it is another run's", |path| {
        let bytes = std::fs::read(path).unwrap();
        write(path, text(&bytes).replace("issue", "tissue").replace("run", "ran") + "x");
    }),
];

const FILES: [&str; 7] = [
    "result.json",
    "report.md",
    "run.json",
    "accounting.jsonl",
    "evidence.jsonl",
    "conversation",
    "events.jsonl",
];

/// A state directory with two runs; the newer one is looked at.
struct State {
    root: PathBuf,
    older: PathBuf,
    newer: PathBuf,
}

impl State {
    fn lines(&self) -> Vec<Value> {
        let journal = std::fs::read_to_string(self.newer.join("events.jsonl")).unwrap();
        journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Writes the lines with hashes that fit.
    fn forge(&self, lines: &[Value]) {
        let mut prev = "0".repeat(64);
        let mut journal = String::new();
        for (place, line) in lines.iter().enumerate() {
            let mut line = line.clone();
            line["seq"] = json!(place + 1);
            line["prev"] = json!(prev);
            line.as_object_mut().unwrap().remove("hash");
            prev = sha256_hex(format!("{prev}{}", canonical_json(&line).unwrap()).as_bytes());
            line["hash"] = json!(prev);
            journal.push_str(&line.to_string());
            journal.push('\n');
        }
        write(self.newer.join("events.jsonl"), journal);
    }

    /// Another word in the journal, and all files and the seal's list as if it had always been there.
    fn rewrite(&self, seal: impl FnOnce(&mut Value)) {
        let honest = Value::from(self.lines()).to_string();
        let mut lines: Vec<Value> = serde_json::from_str(&honest.replace("HONEST", "FORGED")).unwrap();
        for name in ["report.md", "result.json"] {
            let path = self.newer.join(name);
            let changed = std::fs::read_to_string(&path).unwrap().replace("HONEST", "FORGED");
            write(path, changed);
        }
        let place = lines.iter().position(|line| line["kind"] == "files_sealed").unwrap();
        for file in lines[place]["data"]["files"].as_array_mut().unwrap() {
            let bytes = std::fs::read(self.newer.join(file["path"].as_str().unwrap())).unwrap();
            file["sha256"] = json!(sha256_hex(&bytes));
            file["bytes"] = json!(bytes.len());
        }
        seal(&mut lines[place]["data"]);
        self.forge(&lines);
    }

    fn index(&self) -> PathBuf {
        self.root.join("seals.jsonl")
    }

    fn index_lines(&self) -> Vec<String> {
        std::fs::read_to_string(self.index()).unwrap().lines().map(str::to_owned).collect()
    }

    fn write_index(&self, lines: &[String]) {
        write(self.index(), lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    }
}

type Forgery = (&'static str, &'static str, fn(&State));

/// What is done, a word of what is said of it, and how.
const FORGERIES: [Forgery; 25] = [
    ("the seal is cut off", "seal is gone", |state| {
        let mut lines = state.lines();
        lines.retain(|line| line["kind"] != "files_sealed" && line["kind"] != "record_emitted");
        state.forge(&lines);
    }),
    ("the seal is cut off and the report is written anew", "seal is gone", |state| {
        let mut lines = state.lines();
        lines.retain(|line| line["kind"] != "files_sealed" && line["kind"] != "record_emitted");
        state.forge(&lines);
        write(state.newer.join("report.md"), "# All is well\n");
    }),
    ("the seal and all files are cut off, to have them made again", "gone", |state| {
        let mut lines = state.lines();
        lines.retain(|line| line["kind"] != "files_sealed" && line["kind"] != "record_emitted");
        state.forge(&lines);
        for name in ["report.md", "result.json", "run.json"] {
            std::fs::remove_file(state.newer.join(name)).unwrap();
        }
    }),
    ("everything is forged and nothing is signed", "seal is gone", |state| {
        state.rewrite(|seal| drop(seal.as_object_mut().unwrap().remove("signature")));
    }),
    ("everything is forged under the old signature", "another journal", |state| state.rewrite(|_| ())),
    ("the files are forged under the old signature", "another list of files", |state| {
        let mut lines = state.lines();
        let path = state.newer.join("report.md");
        write(&path, "# All is well\n");
        for line in lines.iter_mut().filter(|line| line["kind"] == "files_sealed") {
            for file in line["data"]["files"].as_array_mut().unwrap() {
                if file["path"] == "report.md" {
                    file["sha256"] = json!(sha256_hex(b"# All is well\n"));
                    file["bytes"] = json!(14);
                }
            }
        }
        state.forge(&lines);
    }),
    ("the statement is changed", "signature of its seal is wrong", |state| {
        state.rewrite(|seal| seal["signature"]["statement"]["files_sha256"] = json!("1".repeat(64)));
    }),
    ("the signature is another run's", "another run", |state| {
        let other = std::fs::read_to_string(state.older.join("events.jsonl")).unwrap();
        let sealed = other.lines().find(|line| line.contains("\"files_sealed\"")).unwrap();
        let sealed: Value = serde_json::from_str(sealed).unwrap();
        state.rewrite(|seal| seal["signature"] = sealed["data"]["signature"].clone());
    }),
    ("the signature is of zeros", "signature of its seal is wrong", |state| {
        state.rewrite(|seal| seal["signature"]["signature"] = json!("0".repeat(128)));
    }),
    ("the key is another one", "signature of its seal is wrong", |state| {
        state.rewrite(|seal| seal["signature"]["public_key"] = json!("1".repeat(64)));
    }),
    ("an event is added behind the seal", "behind the seal", |state| {
        let mut lines = state.lines();
        let mut more = lines.iter().find(|line| line["kind"] == "run_ended").unwrap().clone();
        more["data"]["stop"]["message"] = json!("All is well.");
        lines.push(more);
        state.forge(&lines);
    }),
    ("there is a second seal", "behind the seal", |state| {
        let mut lines = state.lines();
        let seal = lines.iter().find(|line| line["kind"] == "files_sealed").unwrap().clone();
        lines.push(seal);
        state.forge(&lines);
    }),
    ("an event in the middle is taken out", "chain", |state| {
        let path = state.newer.join("events.jsonl");
        let journal = std::fs::read_to_string(&path).unwrap();
        let kept: Vec<&str> =
            journal.lines().enumerate().filter(|(place, _)| *place != 5).map(|(_, l)| l).collect();
        write(path, kept.join("\n") + "\n");
    }),
    ("two events change places", "chain", |state| {
        let path = state.newer.join("events.jsonl");
        let journal = std::fs::read_to_string(&path).unwrap();
        let mut lines: Vec<&str> = journal.lines().collect();
        lines.swap(4, 5);
        write(path, lines.join("\n") + "\n");
    }),
    ("the last line is torn", "torn", |state| {
        let path = state.newer.join("events.jsonl");
        let mut journal = std::fs::read_to_string(&path).unwrap();
        journal.push_str("{\"seq\":");
        write(path, journal);
    }),
    ("a file is laid beside", "was not left by the run", |state| {
        write(state.newer.join("more.md"), "x");
    }),
    ("the index lost its last line", "its end was cut off", |state| {
        let mut lines = state.index_lines();
        lines.pop();
        state.write_index(&lines);
    }),
    ("the index lost its first line", "line 1 does not follow", |state| {
        let lines = state.index_lines();
        state.write_index(&lines[1..]);
    }),
    ("the index is gone", "has no line for", |state| std::fs::remove_file(state.index()).unwrap()),
    ("the index is empty", "has no line for", |state| write(state.index(), "")),
    ("a line of the index is changed", "signature of line 1 is wrong", |state| {
        let mut lines = state.index_lines();
        lines[0] = lines[0].replace("\"last_seq\":", "\"last_seq\":1");
        state.write_index(&lines);
    }),
    ("the lines of the index change places", "does not follow", |state| {
        let mut lines = state.index_lines();
        lines.swap(0, 1);
        state.write_index(&lines);
    }),
    ("seal and line of the index are both cut off", "is not signed", |state| {
        let mut lines = state.lines();
        for line in &mut lines {
            if let Some(seal) = line["data"].as_object_mut() {
                seal.remove("signature");
            }
        }
        state.forge(&lines);
        let mut index = state.index_lines();
        index.pop();
        state.write_index(&index);
    }),
    ("the host's key is another one", "is not known here", |state| {
        let key = state.root.join("seal.key");
        std::fs::remove_file(&key).unwrap();
        let made =
            Command::new("openssl").args(["genpkey", "-algorithm", "ed25519", "-out"]).arg(&key).output();
        assert!(made.unwrap().status.success());
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    }),
    ("the run's directory is gone", "directory is gone", |state| {
        agentd::sys::files::remove_dir(&state.newer).unwrap();
    }),
];

/// Each file in each way, then the forgeries.
pub const CASES: usize = FILES.len() * TAMPERINGS.len() + FORGERIES.len();

async fn verify(world: &World, state: &Path, run: &str) -> (Option<i32>, Value) {
    let mut command = world.command_in(&["--json", "--state-dir"]);
    command.arg(state).args(["runs", "verify", run]);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = serde_json::from_slice(&done.stdout);
    (done.status.code(), said.unwrap_or_else(|error| panic!("{error}: {}", text(&done.stderr))))
}

/// A world with two runs that ended well.
async fn two_runs(more: &str) -> World {
    let replies = || {
        vec![
            calls(&[("read_file", json!({ "path": "README.md" }))]),
            reports("HONEST work: nothing to do.", json!([])),
        ]
    };
    let world = solo(replies().into_iter().chain(replies()).collect(), Some(ALLOW), more).await;
    for _ in 0..2 {
        let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo"]).await;
        assert_eq!(code, Some(0), "{output:#}");
    }
    world
}

fn runs(state: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(state.join("repos/demo/shop/runs")).unwrap();
    let mut runs: Vec<PathBuf> = found.map(|run| run.unwrap().path()).collect();
    runs.sort();
    runs
}

fn copy(world: &World, to: &Path) -> State {
    let root = to.join("state");
    let done = Command::new("cp").arg("-a").arg(world.dir.path().join("state")).arg(&root).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    let runs = runs(&root);
    State { older: runs[0].clone(), newer: runs[1].clone(), root }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_changed_after_the_end_is_named() {
    let world = two_runs("").await;
    let (code, sound) = verify(&world, &world.dir.path().join("state"), "latest").await;
    assert_eq!(code, Some(0), "{sound:#}");
    let proof = &sound["proof"];
    assert_eq!(
        (&proof["signature"], &proof["key"], &proof["index_line"]),
        (&json!("valid"), &json!("host"), &json!(2))
    );
    assert_eq!((&proof["index_whole"], &proof["journal_chain"]), (&json!(true), &json!(true)), "{sound:#}");
    let mut wrong = Vec::new();
    for file in FILES {
        for (name, tamper) in TAMPERINGS {
            let home = tempfile::tempdir().unwrap();
            let state = copy(&world, home.path());
            let mut path = state.newer.join(file);
            if path.is_dir() {
                path = std::fs::read_dir(&path).unwrap().next().unwrap().unwrap().path();
            }
            // Nothing can be taken from an empty ledger.
            if std::fs::read(&path).unwrap().is_empty()
                && name != "it is removed"
                && name != "a byte is added"
            {
                write(&path, "{}");
            } else {
                tamper(&path);
            }
            let run = state.newer.file_name().unwrap().to_string_lossy().into_owned();
            let (code, said) = verify(&world, &state.root, &run).await;
            let named = path.strip_prefix(&state.newer).unwrap().display().to_string();
            if code != Some(1) || !said["findings"].to_string().contains(&named) {
                wrong.push(format!("{file}: {name}: {code:?} {said}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_forged_or_taken_away_is_named() {
    let rows = FILES.len() * TAMPERINGS.len() + FORGERIES.len();
    assert_eq!(rows, CASES);
    let world = two_runs("").await;
    let mut wrong = Vec::new();
    for (name, told, forge) in FORGERIES {
        let home = tempfile::tempdir().unwrap();
        let state = copy(&world, home.path());
        let run = state.newer.file_name().unwrap().to_string_lossy().into_owned();
        forge(&state);
        // Every command that looks at runs may have ended and sealed a run that looks dead.
        let mut list = world.command_in(&["--state-dir"]);
        list.arg(&state.root).args(["runs", "list"]);
        tokio::task::spawn_blocking(move || list.output().unwrap()).await.unwrap();
        let (code, said) = verify(&world, &state.root, &run).await;
        if code != Some(1) || !said["findings"].to_string().contains(told) {
            wrong.push(format!("{name}: {code:?} {said:#}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // What is gone is told of beside another run, too, which it does not make worse.
    let home = tempfile::tempdir().unwrap();
    let state = copy(&world, home.path());
    agentd::sys::files::remove_dir(&state.older).unwrap();
    let (code, said) = verify(&world, &state.root, "latest").await;
    let older = state.older.file_name().unwrap().to_string_lossy().into_owned();
    assert_eq!((code, &said["proof"]["runs_gone"]), (Some(0), &json!([older])), "{said:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_key_signs_and_a_run_of_before_is_not_signed() {
    let keys = tempfile::tempdir().unwrap();
    let key = keys.path().join("operator.pem");
    let made = Command::new("openssl")
        .args(["genpkey", "-algorithm", "ed25519", "-out"])
        .arg(&key)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let world = two_runs(&format!("[record]\nseal_key = \"{}\"\n", key.display())).await;
    let state = world.dir.path().join("state");
    assert!(!state.join("seal.key").exists(), "no key of the host's is needed");
    let (code, said) = verify(&world, &state, "latest").await;
    assert_eq!((code, &said["proof"]["key"]), (Some(0), &json!("operator")), "{said:#}");
    // The same runs, where the operator's key is not known.
    let plain = world.agentd(&["--json", "runs", "verify", "latest"]).await;
    assert_eq!(plain.status.code(), Some(1), "{}", text(&plain.stdout));
    assert!(text(&plain.stdout).contains("is not known here"), "{}", text(&plain.stdout));
    // Without any index and signature: sealed before either existed.
    let home = tempfile::tempdir().unwrap();
    let copied = copy(&world, home.path());
    for run in [&copied.older, &copied.newer] {
        let state = State { root: copied.root.clone(), older: copied.older.clone(), newer: run.clone() };
        let mut lines = state.lines();
        for line in &mut lines {
            if line["kind"] == "files_sealed" {
                line["data"].as_object_mut().unwrap().remove("signature");
            }
        }
        state.forge(&lines);
    }
    std::fs::remove_file(copied.index()).unwrap();
    let (code, said) = verify(&world, &copied.root, "latest").await;
    assert_eq!((code, &said["proof"]["signature"]), (Some(0), &json!("not_signed")), "{said:#}");
    // A key that others can read signs nothing, and the run says so before it begins.
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    // What it signed before is signed all the same, and the index is whole; by whom, nobody can say.
    let mut command = world.command_in(&["runs", "verify", "latest"]);
    let shown = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let shown = text(&shown.stdout);
    assert!(shown.contains("is not proven") && !shown.contains("not signed"), "{shown}");
    let (code, said) = verify(&world, &state, "latest").await;
    let proof = &said["proof"];
    assert_eq!((code, &proof["signature"]), (Some(1), &json!("not_checked")), "{said:#}");
    assert_eq!((&proof["journal_chain"], &proof["index_whole"]), (&json!(true), &json!(true)), "{said:#}");
    let findings = said["findings"].as_array().unwrap();
    assert!(findings.len() == 1 && findings[0]["file"] == json!(key), "{said:#}");
    assert!(findings[0]["problem"].as_str().unwrap().contains("chmod 600"), "{said:#}");
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo"]).await;
    assert_eq!(code, Some(4), "{output:#}");
    assert!(output["error"]["message"].as_str().unwrap().contains("chmod 600"), "{output:#}");
    world.finish().await;
}

/// Runs a program that is killed as soon as it makes a file larger than 8 MiB.
async fn killed_at_a_large_file(command: Command) {
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -c 0; ulimit -f 8192; exec \"$0\" \"$@\""]);
    limited.arg(command.get_program()).args(command.get_args()).env_clear();
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited.current_dir(command.get_current_dir().unwrap());
    let done = tokio::task::spawn_blocking(move || limited.output().unwrap()).await.unwrap();
    assert!(!done.status.success(), "{}", text(&done.stdout));
}

/// A world whose first run was killed between the seal in its journal and the line of the index, which is empty. The model has replies for
/// so many runs.
async fn killed_before_its_line(rounds: usize) -> World {
    let replies = (0..rounds).flat_map(|_| {
        vec![
            calls(&[("read_file", json!({ "path": "README.md" }))]),
            reports("HONEST work: nothing to do.", json!([])),
        ]
    });
    let world = solo(replies.collect(), Some(ALLOW), "").await;
    let root = world.dir.path().join("state");
    let index = root.join("seals.jsonl");
    agentd::sys::files::create_private_dir(&root).unwrap();
    // Lines without a word, so many that one more is too many for the process.
    write(&index, vec![b'\n'; 8 << 20]);
    killed_at_a_large_file(world.command_in(&["run", "--issue", "7", "--agent", "solo"])).await;
    std::fs::remove_file(&index).unwrap();
    let journal = std::fs::read_to_string(runs(&root)[0].join("events.jsonl")).unwrap();
    assert!(journal.lines().last().unwrap().contains("\"files_sealed\""), "{journal}");
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_the_seal_and_its_line_of_the_index_the_line_comes_and_what_is_cut_off_is_named() {
    let world = killed_before_its_line(2).await;
    let root = world.dir.path().join("state");
    let index = root.join("seals.jsonl");
    let first = runs(&root)[0].file_name().unwrap().to_string_lossy().into_owned();
    // Behind another line than the one that it follows, it is not added.
    let home = tempfile::tempdir().unwrap();
    let copied = home.path().join("state");
    let done = Command::new("cp").arg("-a").arg(&root).arg(&copied).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    write(copied.join("seals.jsonl"), "{}\n");
    let (code, said) = verify(&world, &copied, &first).await;
    assert_eq!(code, Some(1), "{said:#}");
    assert!(said["findings"].to_string().contains("its end was cut off"), "{said:#}");
    // The next command that looks at it adds it; here the next run of the issue, whose own line follows.
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    for (run, line) in [(first.as_str(), 1), ("latest", 2)] {
        let (code, said) = verify(&world, &root, run).await;
        let proof = &said["proof"];
        assert_eq!((code, &proof["index_line"]), (Some(0), &json!(line)), "{said:#}");
    }
    // A line that somebody takes away later does not come back.
    let lines = std::fs::read_to_string(&index).unwrap();
    write(&index, format!("{}\n", lines.lines().next().unwrap()));
    let (code, said) = verify(&world, &root, "latest").await;
    assert_eq!(code, Some(1), "{said:#}");
    assert!(said["findings"].to_string().contains("its end was cut off"), "{said:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_the_seal_and_its_line_of_the_index_the_next_look_at_the_run_adds_the_line() {
    let world = killed_before_its_line(1).await;
    let root = world.dir.path().join("state");
    let (code, said) = verify(&world, &root, "latest").await;
    assert_eq!((code, &said["proof"]["index_line"]), (Some(0), &json!(1)), "{said:#}");
    assert_eq!(said["proof"]["index_whole"], json!(true), "{said:#}");
    world.finish().await;
}
