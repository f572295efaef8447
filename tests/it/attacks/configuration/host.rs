//! What others on this machine, or on its network, would like: a state directory of theirs, a secret that can be guessed,
//! a front for everybody; and flags and questions that are answered wrongly in silence.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::{POLICY, at, elsewhere, operator, pushed, told, world};
use crate::outside::world::text;

/// How many attempts the tables of this file hold.
pub fn cases() -> usize {
    STATES.len() * COMMANDS.len() + FRONTS.len() + GONE.len() + VALUES.len() + OUTSIDE.len() * TOOLS.len()
}

/// The program in a folder of its own, with nothing else in its environment.
fn agentd(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_agentd"))
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir)
        .env("GITHUB_TOKEN", "a-token-that-nobody-asks-for")
        .env("SHORT", "fifteen-letters")
        .env("LONG", "sixteen-letters!")
        .output()
        .unwrap()
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// State directories that are not the user's alone: (what, how it is made, what is said).
const STATES: [(&str, u32, &str); 7] = [
    ("link", 0o700, "symbolic link"),
    ("open to all", 0o777, "can be written by others"),
    ("open to all, and sticky", 0o1777, "can be written by others"),
    ("open to a group", 0o775, "can be written by others"),
    ("a drop box", 0o733, "can be written by others"),
    ("below what is open to all", 0o700, "which is not sticky"),
    ("not there yet, below what is open to all", 0o700, "which is not sticky"),
];

/// Commands that believe what stands in the state directory, or write there.
const COMMANDS: [&[&str]; 5] = [
    &["run", "--issue", "7"],
    &["daemon", "--once"],
    &["status"],
    &["runs", "list"],
    &["runs", "show", "latest"],
];

fn planted_state(dir: &Path, what: &str, bits: u32) -> std::path::PathBuf {
    let state = dir.join("state");
    let (real, open) = (dir.join("real"), dir.join("open"));
    match what {
        "link" => {
            std::fs::create_dir(&real).unwrap();
            mode(&real, bits);
            symlink(&real, &state).unwrap();
            return state;
        }
        _ if what.contains("below") => {
            std::fs::create_dir(&open).unwrap();
            let state = open.join("state");
            if !what.starts_with("not there") {
                std::fs::create_dir(&state).unwrap();
                mode(&state, bits);
            }
            mode(&open, 0o777);
            return state;
        }
        _ => std::fs::create_dir(&state).unwrap(),
    }
    mode(&state, bits);
    state
}

#[test]
fn a_state_directory_that_is_not_the_users_alone_is_refused_and_nothing_is_put_there() {
    for (what, bits, words) in STATES {
        let dir = tempfile::tempdir().unwrap();
        let state = planted_state(dir.path(), what, bits);
        let config = "[[repositories]]\nname = \"o/n\"\norigin_branch = \"main\"\n[github]\napi_url = \"http://127.0.0.1:9\"\n";
        std::fs::write(dir.path().join("agentd.toml"), config).unwrap();
        for command in COMMANDS {
            let mut args = vec!["--state-dir", state.to_str().unwrap()];
            args.extend(command);
            let done = agentd(dir.path(), &args);
            let said = text(&done.stderr);
            assert_eq!(done.status.code(), Some(4), "{what}: {command:?}: {said}");
            assert!(said.contains(words) && said.contains("state directory"), "{what}: {command:?}: {said}");
            let inside = std::fs::read_dir(&state).map_or(0, Iterator::count);
            assert_eq!(inside, 0, "{what}: {command:?} wrote there");
        }
        let done = agentd(dir.path(), &["--json", "--state-dir", state.to_str().unwrap(), "doctor"]);
        let told: Value = serde_json::from_slice(&done.stdout).unwrap();
        let found =
            told["findings"].as_array().unwrap().iter().find(|finding| finding["what"] == "state").unwrap();
        assert_eq!((done.status.code(), &found["state"]), (Some(1), &json!("problem")), "{what}: {found}");
        assert!(found["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{what}: {found}");
    }
}

#[test]
fn a_state_directory_that_others_could_only_read_is_closed_to_them_and_that_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    for bits in [0o755, 0o750, 0o711] {
        mode(&state, bits);
        let done = agentd(dir.path(), &["--state-dir", "state", "status"]);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        assert_eq!(state.metadata().unwrap().mode() & 0o777, 0o700, "{bits:o}");
        assert!(text(&done.stderr).contains("0700"), "{}", text(&done.stderr));
    }
}

#[test]
fn somebody_elses_state_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    mode(&state, 0o700);
    if std::os::unix::fs::chown(&state, Some(65_534), None).is_err() {
        eprintln!("skipped: only root gives directories away");
        return;
    }
    let done = agentd(dir.path(), &["--state-dir", "state", "status"]);
    assert_eq!(done.status.code(), Some(4));
    assert!(text(&done.stderr).contains("belongs to another user"), "{}", text(&done.stderr));
}

/// Fronts that strangers could use: (what, the `[daemon]` table, the key that is told).
const FRONTS: [(&str, &str, &str); 14] = [
    ("every address", "listen = \"0.0.0.0:0\"", "daemon.listen"),
    ("every address, version 6", "listen = \"[::]:0\"", "daemon.listen"),
    ("an address of the network", "listen = \"192.168.1.10:7878\"", "daemon.listen"),
    ("an address of the network, version 6", "listen = \"[2001:db8::1]:7878\"", "daemon.listen"),
    ("loopback, mapped", "listen = \"[::ffff:127.0.0.1]:0\"", "daemon.listen"),
    ("every address, with webhooks", "listen = \"0.0.0.0:0\"\nwebhook_secret = \"${LONG}\"", "daemon.listen"),
    ("every address, with names", "listen = \"0.0.0.0:0\"\nhosts = [\"agentd.example\"]", "daemon.listen"),
    ("an empty token", "listen = \"0.0.0.0:0\"\ntoken = \"\"", "daemon.token"),
    (
        "a token in the file",
        "listen = \"127.0.0.1:0\"\ntoken = \"a-token-in-the-file-itself\"",
        "daemon.token",
    ),
    ("a short token", "listen = \"127.0.0.1:0\"\ntoken = \"${SHORT}\"", "daemon.token"),
    (
        "a short secret",
        "listen = \"0.0.0.0:0\"\ntoken = \"${LONG}\"\nwebhook_secret = \"${SHORT}\"",
        "daemon.webhook_secret",
    ),
    (
        "a short secret among blanks",
        "listen = \"0.0.0.0:0\"\ntoken = \"${LONG}\"\nwebhook_secret = \"  ${SHORT}    \"",
        "daemon.webhook_secret",
    ),
    (
        "a secret in the file",
        "listen = \"127.0.0.1:0\"\nwebhook_secret = \"secret-in-the-file\"",
        "daemon.webhook_secret",
    ),
    ("any name", "listen = \"127.0.0.1:0\"\nhosts = [\"*\"]", "daemon.hosts"),
];

#[test]
fn a_front_for_everybody_and_a_secret_that_can_be_guessed_are_refused_before_anything_listens() {
    for (what, table, key) in FRONTS {
        let dir = tempfile::tempdir().unwrap();
        let config = format!(
            "[[repositories]]\nname = \"o/n\"\norigin_branch = \"main\"\n[github]\napi_url = \"http://127.0.0.1:9\"\n[daemon]\n{table}\n"
        );
        std::fs::write(dir.path().join("agentd.toml"), config).unwrap();
        // The file is judged before the daemon does anything; its secrets where they are used.
        for command in [&["config", "check"][..], &["--json", "doctor"]] {
            let done = agentd(dir.path(), command);
            let said = text(&done.stderr) + &text(&done.stdout);
            assert_ne!(done.status.code(), Some(0), "{what}: {command:?}: {said}");
            assert!(said.contains(key), "{what}: {command:?}: {said}");
            assert!(!said.contains("fifteen-letters"), "{what}: {said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_with_a_weak_secret_does_not_start() {
    let world = world(0).await;
    pushed(&world).await;
    for (secret, starts) in [("0123456789abcde", false), ("0123456789abcdef", true)] {
        operator(&world, "[daemon]\nlisten = \"127.0.0.1:0\"\ntoken = \"${WEAK}\"\n");
        let mut command = world.command(&["daemon"]);
        command.current_dir(world.dir.path().join("elsewhere")).env("WEAK", secret);
        command.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let said = tokio::task::spawn_blocking(move || {
            use std::io::BufRead as _;
            let mut lines = std::io::BufReader::new(stderr).lines();
            lines.find_map(|line| {
                line.ok().filter(|line| line.contains("listening on") || line.contains("characters"))
            })
        });
        let said = said.await.unwrap().unwrap_or_default();
        assert_eq!(said.contains("listening on"), starts, "{said}");
        // One that refuses its secret ends by itself.
        let _ = if starts { child.kill() } else { Ok(()) };
        let code = child.wait().unwrap().code();
        assert!(starts || code == Some(4), "{code:?}");
    }
    world.finish().await;
}

/// Commands with a `--config` that is not there: one that is meant and not read would be the defaults' in silence.
const GONE: [&[&str]; 16] = [
    &["run", "--issue", "7"],
    &["run", "--issue-file", "x.md", "--dry-run"],
    &["daemon", "--once"],
    &["sweep"],
    &["status"],
    &["why", "7"],
    &["runs", "list"],
    &["runs", "show"],
    &["runs", "stats"],
    &["agents", "list"],
    &["agents", "check"],
    &["config", "schema"],
    &["config", "show"],
    &["worktrees", "list"],
    &["completions", "bash"],
    &["doctor"],
];

#[test]
fn a_configuration_file_that_is_not_there_ends_every_command() {
    let dir = tempfile::tempdir().unwrap();
    for command in GONE {
        let mut args = vec!["--config", "gone.toml"];
        args.extend(command);
        let done = agentd(dir.path(), &args);
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(4), "{command:?}: {said}");
        assert!(said.contains("gone.toml") && said.contains("no such file"), "{command:?}: {said}");
    }
    assert!(!dir.path().join(".local").exists(), "nothing was made");
}

/// Values of flags that look like flags: (the flag, the value).
const VALUES: [(&str, &str); 6] = [
    ("--max-wall-time", "-5m"),
    ("--max-wall-time", "-0s"),
    ("--max-cost", "-1"),
    ("--max-steps", "-3"),
    ("--max-turns", "-1"),
    ("--max-retries", "-2"),
];

#[test]
fn a_value_below_nothing_is_named_in_its_error() {
    let dir = tempfile::tempdir().unwrap();
    for (flag, value) in VALUES {
        let done = agentd(dir.path(), &["run", "--issue", "7", flag, value]);
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(4), "{flag} {value}: {said}");
        assert!(
            said.contains(value)
                && said.contains(flag.trim_start_matches('-').split('-').next_back().unwrap()),
            "{said}"
        );
    }
}

/// Paths that are none of the worktree.
const OUTSIDE: [&str; 7] = ["../x", "a/../../x", "/etc/passwd", "~/x", ".git/config", "a\\..\\x", "a/../x"];

/// Tools that take paths of the worktree.
const TOOLS: [&str; 5] = ["read_file", "list_files", "search", "write_file", "edit_file"];

#[test]
fn the_policy_says_of_a_path_outside_that_it_is_outside_whatever_the_rule_looks_at() {
    let dir = tempfile::tempdir().unwrap();
    let wide = "[[rule]]\nid = \"wide\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"r\"\n";
    std::fs::write(dir.path().join("policy.toml"), wide).unwrap();
    std::fs::write(dir.path().join("agentd.toml"), "[policy]\nfiles = [\"policy.toml\"]\n").unwrap();
    let asked = |tool: &str, path: &str| {
        let question = json!({ "kind": "tool", "tool": tool, "arguments": { "path": path } });
        std::fs::write(dir.path().join("q.json"), question.to_string()).unwrap();
        let done = agentd(dir.path(), &["--json", "policy", "eval", "--input", "q.json"]);
        serde_json::from_slice::<Value>(&done.stdout).unwrap_or_else(|_| panic!("{}", text(&done.stderr)))
    };
    for tool in TOOLS {
        for path in OUTSIDE {
            let verdict = asked(tool, path);
            assert_eq!(verdict["decision"], "deny", "{tool} {path}: {verdict}");
            assert_eq!(verdict["reason"], "outside_worktree", "{tool} {path}: {verdict}");
        }
        assert_eq!(asked(tool, "src/x")["decision"], "allow", "{tool}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_is_asked_whether_a_foreground_run_may_be_at_all() {
    let program = "case \\\"$(cat)\\\" in *'\\\"kind\\\":\\\"run\\\"'*) echo '{\\\"decision\\\":\\\"deny\\\",\\\"reason\\\":\\\"not_today\\\",\\\"publicReason\\\":\\\"Not today.\\\"}';; *) echo '{\\\"decision\\\":\\\"allow\\\",\\\"reason\\\":\\\"a\\\"}';; esac";
    let rule = format!(
        "{POLICY}[[rule]]\nid = \"nobody\"\nkind = \"run\"\nname = \"*\"\neffect = \"deny\"\nreason = \"r\"\npublic_reason = \"Not today.\"\n"
    );
    for by_program in [true, false] {
        let world = world(1).await;
        if by_program {
            operator(
                &world,
                &format!("[policy]\nfiles = [\"policy.toml\"]\nprogram = [\"sh\", \"-c\", \"{program}\"]\n"),
            );
        } else {
            world.write("elsewhere/policy.toml", &rule);
        }
        pushed(&world).await;
        for args in [&["--json", "run", "--issue", "7"][..], &["--json", "run", "--issue", "7", "--dry-run"]]
        {
            let done = elsewhere(&world, args).await;
            let said = text(&done.stdout) + &text(&done.stderr);
            assert_eq!(done.status.code(), Some(1), "{said}");
            assert!(said.contains("policy_denied") && said.contains("Not today."), "{said}");
        }
        assert!(world.sim.model_requests().is_empty() && world.sim.pulls("demo/shop").is_empty());
        assert!(!super::clone_of(&world).join(".worktrees").exists());
        assert!(world.sim.issue("demo/shop", 7).unwrap().comments.is_empty());
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_says_what_clones_ask_for_and_files_that_others_write_or_read() {
    let world = world(1).await;
    world.write("shop/agentd.toml", "[sandbox]\nmode = \"off\"\n");
    pushed(&world).await;
    let output = super::ran(&world).await;
    assert!(told(&output).contains("sandbox.mode"), "{output:#}");
    let own = world.dir.path().join("elsewhere");
    std::fs::write(own.join(".agentd.env"), "A=b\n").unwrap();
    mode(&own.join(".agentd.env"), 0o644);
    let found = |told: &Value, what: &str, state: &str| {
        let all = told["findings"].as_array().unwrap().clone();
        let all: Vec<String> = all
            .iter()
            .filter(|f| f["what"] == what && f["state"] == state)
            .map(ToString::to_string)
            .collect();
        all.join("\n")
    };
    let doctor = async || {
        let done = at(&world, &own, &["--json", "doctor"]).await;
        serde_json::from_slice::<Value>(&done.stdout).unwrap()
    };
    let before = doctor().await;
    assert!(found(&before, "clones", "warning").contains("sandbox.mode"), "{before:#}");
    assert!(found(&before, "secrets", "warning").contains("chmod 600"), "{before:#}");
    let (_, at_the_checkout) = world.json(&["doctor"]).await;
    assert!(found(&at_the_checkout, "token", "warning").contains("classic"), "{at_the_checkout:#}");
    // What others write decides what runs here: a problem.
    mode(&own.join("policy.toml"), 0o666);
    mode(&own.join(".agentd.env"), 0o622);
    let after = doctor().await;
    assert!(found(&after, "policy", "problem").contains("policy.toml"), "{after:#}");
    assert!(found(&after, "secrets", "problem").contains(".agentd.env"), "{after:#}");
    mode(&own.join("policy.toml"), 0o600);
    let inside = super::clone_of(&world).join("policy.toml");
    std::fs::write(&inside, POLICY).unwrap();
    operator(&world, &format!("[policy]\nfiles = [{inside:?}]\n[sandbox]\nmode = \"off\"\n"));
    let after = doctor().await;
    assert!(found(&after, "policy", "problem").contains("whoever can push"), "{after:#}");
    assert!(found(&after, "clones", "warning").contains("sandbox.mode is"), "{after:#}");
    world.finish().await;
}
