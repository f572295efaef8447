//! The command line from outside: exit codes, streams, help, init.

mod init;

use std::path::Path;
use std::process::{Command, Output};

use agentd::config::{Config, Env, Request};
use agentd::definition::policy_file::{PolicySource, read_policies};
use agentd::domain::policy::ProposalKind;
use serde_json::Value;

use crate::definition::project::Project;

/// Runs the program in `dir` with nothing of this process's environment but PATH.
#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn agentd(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_agentd"))
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", dir)
        .env("SENTINEL", "sentinel-value")
        .output()
        .unwrap()
}

#[expect(clippy::disallowed_methods, reason = "a test's own repository")]
fn git(dir: &Path, args: &[&str]) {
    let done = Command::new("git").args(args).current_dir(dir).output().unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn repository() -> tempfile::TempDir {
    repository_in(tempfile::tempdir().unwrap())
}

fn repository_in(dir: tempfile::TempDir) -> tempfile::TempDir {
    git(dir.path(), &["init", "-q", "-b", "main"]);
    git(dir.path(), &["remote", "add", "origin", "https://user:sentinel-value@github.com/octo/cat.git"]);
    git(
        dir.path(),
        &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
    );
    git(dir.path(), &["update-ref", "refs/remotes/origin/trunk", "HEAD"]);
    file(dir.path(), "Cargo.toml", "[package]\n");
    dir
}

#[expect(clippy::disallowed_methods, reason = "a test's own file")]
fn file(dir: &Path, name: &str, text: &str) {
    std::fs::write(dir.join(name), text).unwrap();
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_042_wrong_arguments_are_exit_code_4_and_never_2() {
    let dir = tempfile::tempdir().unwrap();
    for args in [
        &["--nope"][..],
        &["--no-color"],
        &["runs"],
        &["run"],
        &["run", "--issue", "x"],
        &["run", "--issue", "1", "--issue-file", "x.md"],
        &["run", "--issue", "1", "--stream"],
        &["run", "--issue", "1", "--max-wall-time", "15"],
        &["config", "explain", "--repo", "nonsense"],
        &["config", "schema", "nonsense"],
        &["-q", "-v", "config", "explain"],
        &["--log-level", "[", "config", "explain"],
        &["--log-level", "loud", "config", "explain"],
        &["--log-level", "agentd=loud", "config", "explain"],
        &["--config", "nope.toml", "config", "explain"],
    ] {
        let done = agentd(dir.path(), args);
        assert_eq!(done.status.code(), Some(4), "{args:?}: {}", err(&done));
        assert!(err(&done).starts_with("error: "), "{args:?}: {}", err(&done));
        assert_eq!(out(&done), "", "{args:?}");
    }
    for args in
        [&[][..], &["help"], &["--help"], &["--version"], &["run", "--help"], &["runs", "list", "--help"]]
    {
        let done = agentd(dir.path(), args);
        assert_eq!((done.status.code(), err(&done).as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn explain_shows_the_keys_that_begin_with_what_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("state").display().to_string();
    let keys = |asked: &str| -> Vec<String> {
        let done = agentd(dir.path(), &["--state-dir", &place, "--json", "config", "explain", asked]);
        assert_eq!(done.status.code(), Some(0), "{asked}: {}", err(&done));
        let told: Value = serde_json::from_str(&out(&done)).unwrap();
        let rows = told["values"].as_array().unwrap().iter();
        rows.map(|row| row["key"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(keys("github.issue"), ["github.issue_field"]);
    assert_eq!(keys("github.issue_field"), ["github.issue_field"]);
    for asked in ["github", "github.", "budgets.max_c"] {
        let keys = keys(asked);
        assert!(!keys.is_empty() && keys.iter().all(|key| key.starts_with(asked)), "{asked}: {keys:?}");
    }
    let none = agentd(dir.path(), &["--state-dir", &place, "config", "explain", "nothing"]);
    assert_eq!(none.status.code(), Some(4), "{}", err(&none));
}

#[test]
fn a_wrong_argument_is_told_as_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("runs").display().to_string();
    for (args, told) in [
        (&["--state-dir", &place][..], "`agentd help` lists the commands"),
        (&["--state-dir", &place, "runs"], "`agentd help runs` lists the commands"),
        (&["run", "--issue", "-1"], "\"-1\" is not an issue's number"),
    ] {
        let done = agentd(dir.path(), args);
        assert_eq!(done.status.code(), Some(4), "{args:?}: {}", err(&done));
        assert!(err(&done).contains(told), "{args:?}: {}", err(&done));
    }
    for args in [&["run", "--json", "--nope", "1"][..], &["run", "--json"], &["run", "--json", "0"]] {
        let told: Value = serde_json::from_str(&out(&agentd(dir.path(), args))).unwrap();
        assert_eq!(told["stop_detail"], "invalid_input", "{args:?}: {told:#}");
    }
}

#[test]
fn a_log_level_is_a_level_or_one_of_a_target() {
    let dir = tempfile::tempdir().unwrap();
    for level in ["off", "WARN", "info", "agentd::github=debug,warn", "agentd=info, warn"] {
        let done = agentd(dir.path(), &["--log-level", level, "completions", "bash"]);
        assert_eq!(done.status.code(), Some(0), "{level}");
    }
}

#[test]
fn with_json_a_failure_is_one_document_on_stdout_too() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&["config", "explain", "--json", "--nope"][..], &["config", "check", "--json"]] {
        let done = agentd(dir.path(), args);
        let told: Value = serde_json::from_str(&out(&done)).unwrap();
        assert_eq!(told["error"]["exit_code"], 4);
        assert!(err(&done).contains(told["error"]["message"].as_str().unwrap().lines().next().unwrap()));
    }
}

#[test]
fn an_error_in_a_file_names_file_line_and_the_nearest_key() {
    let dir = repository();
    file(dir.path(), "agentd.toml", "[budgets]\nmax_step = 3\n");
    let done = agentd(dir.path(), &["config", "explain"]);
    assert_eq!(done.status.code(), Some(4));
    let told = err(&done);
    assert!(
        told.contains("agentd.toml:2: unknown key `budgets.max_step`; did you mean `budgets.max_steps`?"),
        "{told}"
    );
}

#[test]
fn the_configuration_is_the_main_checkouts_wherever_in_it_one_stands() {
    let dir = repository();
    file(dir.path(), "agentd.toml", "[budgets]\nmax_steps = 3\n");
    git(dir.path(), &["worktree", "add", "-q", "-b", "other", "elsewhere"]);
    file(&dir.path().join("elsewhere"), "agentd.toml", "[budgets]\nmax_steps = 99\n");
    std::fs::create_dir(dir.path().join("elsewhere/below")).unwrap();
    for place in [".", "elsewhere", "elsewhere/below"] {
        let done = agentd(&dir.path().join(place), &["config", "explain", "budgets.max_steps", "--json"]);
        let told: Value = serde_json::from_str(&out(&done)).unwrap();
        assert_eq!(told["values"][0]["value"], 3, "{place}");
    }
}

#[test]
fn config_check_tells_all_that_a_run_would_be_refused_for() {
    let dir = repository();
    agentd(dir.path(), &["init"]);
    let good = std::fs::read_to_string(dir.path().join(".agent/agentd.toml")).unwrap();
    file(dir.path(), ".agent/.agentd.env", "GITHUB_TOKEN=t\nANTHROPIC_API_KEY=k\n");
    let check = |text: &str| {
        file(dir.path(), ".agent/agentd.toml", text);
        agentd(dir.path(), &["config", "check"])
    };
    let done = check(&good);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    let broken = good
        .replace(".agent/policy.toml\"]", "nope.toml\"]")
        .replace("agent = \"resolver\"", "agent = \"nobody\"")
        .replace("origin_branch = \"trunk\"", "origin_branch = \"a..b\"")
        .replace("kind = \"anthropic\"", "kind = \"anthropic\"\nbase_url = \"${WHERE}\"");
    file(dir.path(), ".agent/.agentd.env", "GITHUB_TOKEN=t\nANTHROPIC_API_KEY=k\nWHERE=x\n");
    let done = check(&broken);
    assert_eq!(done.status.code(), Some(4), "{}", out(&done));
    for part in ["nope.toml", "no agent \"nobody\"", "a..b", "\"x\" is not an http(s) address"] {
        assert!(err(&done).contains(part), "`{part}` is not in {}", err(&done));
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own pipe")]
fn a_configuration_that_is_there_and_cannot_be_read_is_an_error_and_a_pipe_is_read() {
    let dir = repository();
    let place = dir.path().join("agentd.toml");
    std::os::unix::fs::symlink("/nowhere/agentd.toml", &place).unwrap();
    let refused = || {
        let done = agentd(dir.path(), &["config", "explain"]);
        assert_eq!(done.status.code(), Some(4), "{}", out(&done));
        assert!(err(&done).contains("agentd.toml: cannot be read"), "{}", err(&done));
    };
    refused();
    agentd::sys::files::remove_file(&place).unwrap();
    agentd::sys::files::create_dir(&place).unwrap();
    refused();
    std::fs::remove_dir(&place).unwrap();
    let done = agentd(dir.path(), &["--config", "/dev/null", "config", "explain"]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || {
            use std::io::Write as _;
            let mut pipe = std::fs::OpenOptions::new().write(true).open(pipe).unwrap();
            pipe.write_all(b"[budgets]\nmax_steps = 5\n").unwrap();
        }
    });
    let done = agentd(dir.path(), &["--config", "pipe", "config", "explain", "budgets.max_steps"]);
    assert!(out(&done).contains("budgets.max_steps  5"), "{}{}", out(&done), err(&done));
    writer.join().unwrap();
}

#[test]
fn doctor_names_a_remedy_for_each_problem_and_shows_no_secret() {
    let dir = repository();
    let done = agentd(dir.path(), &["doctor", "--json"]);
    assert_eq!(done.status.code(), Some(1));
    let told: Value = serde_json::from_str(&out(&done)).unwrap();
    assert_eq!(told["ok"], false);
    for finding in told["findings"].as_array().unwrap() {
        assert_eq!(finding["state"] == "ok", finding["remedy"].is_null(), "{finding}");
    }
    assert!(!out(&done).contains("sentinel-value"), "{}", out(&done));
}

#[test]
fn d45_policy_eval_tells_the_verdict_and_the_rule() {
    let dir = repository();
    agentd(dir.path(), &["init"]);
    file(
        dir.path(),
        "call.json",
        r#"{"kind":"tool","tool":"run_command","arguments":{"argv":["cargo","test","-q"]}}"#,
    );
    let done = agentd(dir.path(), &["policy", "eval", "--input", "call.json", "--json"]);
    let told: Value = serde_json::from_str(&out(&done)).unwrap();
    assert_eq!((told["decision"].as_str(), told["ruleId"].as_str()), (Some("allow"), Some("verify-1")));
    file(
        dir.path(),
        "call.json",
        r#"{"schema_version":"agentd.policy_input.v1","kind":"tool","tool":"run_command","arguments":{"argv":["curl","x"]}}"#,
    );
    let done = agentd(dir.path(), &["policy", "eval", "--input", "call.json"]);
    assert!(out(&done).starts_with("deny by rule no-other-command"), "{}", out(&done));
}

#[test]
fn a_number_that_is_none_is_told_in_words_and_a_hint_has_the_flags_that_were_given() {
    let dir = repository();
    for (args, wanted) in [
        (&["run", "--issue", "1", "--max-steps", "abc"][..], "a whole number"),
        (&["run", "--issue", "1", "--max-cost", "abc"], "not a number, such as 5"),
    ] {
        let done = agentd(dir.path(), args);
        assert!(done.status.code() == Some(4) && err(&done).contains(wanted), "{}", err(&done));
    }
    let done = agentd(dir.path(), &["--repo", "octo/w", "--json", "runs", "show", "nothing"]);
    let told: Value = serde_json::from_str(&out(&done)).unwrap();
    assert!(told["error"]["hints"].to_string().contains("agentd --repo octo/w runs list"), "{told:#}");
}

#[test]
fn n01_a_folder_with_a_registry_and_no_agent_json_is_an_agent_that_lacks_it() {
    let dir = repository();
    let project = Project::within(dir.path(), "f0", "f0");
    project.remove("agent.json");
    for args in [
        &["agents", "check", "f0"][..],
        &["agents", "check"],
        &["agents", "migrate", "f0"],
        &["prompt", "steps/initial/a", "--agent", "f0"],
    ] {
        let done = agentd(dir.path(), args);
        assert_eq!(done.status.code(), Some(4), "{args:?}");
        assert!(format!("{}{}", out(&done), err(&done)).contains("AC-LOAD-001"), "{args:?}: {done:?}");
    }
}

#[test]
fn d47_prompt_resolves_every_configured_c1_and_its_failures_carry_their_code() {
    let dir = repository();
    let project = Project::within(dir.path(), "f0", "f0");
    for (args, code) in [
        (&["other/initial/a", "--agent", "f0"][..], "PR-C3L-004"),
        (&["steps/initial/a", "--agent", "f0", "--uv", "1x=5"], "PR-C3L-002"),
        (&["steps/initial/a", "--agent", "f0", "--uv", "input_text=5"], "PR-C3L-002"),
        (&["steps/initial/a", "--agent", "nope"], "AC-LOAD-001"),
    ] {
        let done = agentd(dir.path(), &[&["prompt"], args].concat());
        assert_eq!(done.status.code(), Some(4), "{args:?}");
        assert!(err(&done).starts_with(&format!("error: {code}: ")), "{args:?}: {}", err(&done));
    }
    project.write("words/start/issue/f_default.md", "Begin with {uv-issue}.\n");
    std::fs::create_dir_all(dir.path().join(".agent/climpt/config")).unwrap();
    let config = "working_dir: \".agent/f0\"\napp_prompt:\n  base_dir: \"words\"\n";
    file(dir.path(), ".agent/climpt/config/f0-dev-app.yml", config);
    let done = agentd(dir.path(), &["prompt", "dev/start/issue", "--agent", "f0", "--uv", "issue=5"]);
    assert_eq!(out(&done), "Begin with 5.\n", "{}", err(&done));
    // What every visit has is empty here; what the agent's own steps or people give is missing.
    project.write("words/start/issue/f_default.md", "Begin with {uv-issue_title}.{uv-repository_rules}\n");
    let done = agentd(dir.path(), &["prompt", "dev/start/issue", "--agent", "f0"]);
    assert_eq!(out(&done), "Begin with .\n", "{}", err(&done));
    project.write("words/start/issue/f_default.md", "Begin with {uv-topic}.\n");
    let done = agentd(dir.path(), &["prompt", "dev/start/issue", "--agent", "f0"]);
    assert!(err(&done).contains("PR-RESOLVE-005"), "{}", err(&done));
}

#[test]
fn d47_a_prompt_that_cannot_be_filled_is_in_the_way_of_no_other_and_what_it_leaves_unused_is_told() {
    let dir = repository();
    let project = Project::within(dir.path(), "f0", "f0");
    project.write("prompts/steps/initial/a/f_default.md", "Begin with {uv-a}.\n");
    project.write("prompts/steps/initial/a/f_ed.md", "Nothing to fill.\n");
    let ask = |args: &[&str]| agentd(dir.path(), &[&["prompt", "--agent", "f0"], args].concat());
    for args in [&["steps/closure/a"][..], &["steps/initial/a", "--edition", "ed"]] {
        let done = ask(args);
        assert_eq!(done.status.code(), Some(0), "{args:?}: {}", err(&done));
    }
    for (args, says) in [
        (
            &["steps/initial/a"][..],
            ".agent/f0/prompts/steps/initial/a/f_default.md:1:1: error PR-RESOLVE-005: ",
        ),
        (&["nope/x/y"], "PR-C3L-004: there is no prompt for nope/x/y"),
        (&["steps/../../x"], "PR-C3L-001: \"steps/../../x\" is no prompt address"),
    ] {
        let done = ask(args);
        assert_eq!(done.status.code(), Some(4), "{args:?}");
        assert!(err(&done).starts_with(&format!("error: {says}")), "{args:?}: {}", err(&done));
        let is_unknown = says.starts_with("PR-C3L");
        assert_eq!(err(&done).contains("steps/closure/a, steps/"), is_unknown, "{args:?}: {}", err(&done));
    }
    let told = ask(&["steps/initial/a", "--uv", "a=x", "--uv", "zz=3"]);
    assert_eq!(out(&told), "Begin with x.\n");
    assert_eq!(err(&told).matches("uv_unused: --uv zz").count(), 1, "{}", err(&told));
    assert!(!err(&told).contains("--uv a "), "{}", err(&told));
    let told = ask(&["steps/initial/a", "--uv", "a=x", "--uv", "zz=3", "--json"]);
    let document: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(document["uv_unused"], serde_json::json!(["zz"]), "{document:#}");
}

#[test]
fn an_entry_of_the_checkouts_own_file_needs_neither_name_nor_path() {
    let dir = repository();
    std::fs::create_dir_all(dir.path().join(".agent")).unwrap();
    file(dir.path(), ".agent/agentd.toml", "[[repositories]]\norigin_branch = \"main\"\n");
    for args in [&["config", "explain"][..], &["worktrees", "list"]] {
        let done = agentd(dir.path(), args);
        assert_eq!(done.status.code(), Some(0), "{args:?}: {}{}", out(&done), err(&done));
    }
}

#[test]
fn migrate_writes_nothing_where_one_of_the_agents_cannot_be_migrated() {
    let dir = repository();
    let project = Project::within(dir.path(), "oldest", "worker");
    let before = std::fs::read_to_string(project.agent.join("agent.json")).unwrap();
    std::fs::create_dir_all(dir.path().join(".agent/zbad")).unwrap();
    file(dir.path(), ".agent/zbad/agent.json", "{");
    let done = agentd(dir.path(), &["agents", "migrate"]);
    assert_eq!(done.status.code(), Some(4));
    assert!(err(&done).contains("AC-LOAD-002: .agent/zbad/agent.json:1:1: "), "{}", err(&done));
    assert_eq!(std::fs::read_to_string(project.agent.join("agent.json")).unwrap(), before);
}

#[test]
fn mcp_without_a_run_and_with_one_that_has_ended_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let done = agentd(dir.path(), &["mcp"]);
    assert_eq!(done.status.code(), Some(4));
    assert!(err(&done).contains("there is no run to serve the tools of"), "{}", err(&done));
    let done = agentd(dir.path(), &["mcp", "--socket", "gone/mcp-1"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(err(&done).contains("gone/mcp-1 cannot be reached"), "{}", err(&done));
    assert!(err(&done).contains("only while the run's agent program works"), "{}", err(&done));
}

#[test]
fn completions_are_printed_for_every_shell() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(out(&agentd(dir.path(), &["completions", shell])).contains("agentd"), "{shell}");
    }
}

/// What is told next is about the same configuration and the same state directory.
#[test]
#[expect(clippy::disallowed_methods, reason = "a person's own shell")]
fn the_commands_that_are_told_next_have_the_flags_that_were_given() {
    let dir = repository();
    file(dir.path(), "over lay.toml", "");
    let flags = ["--config", "over lay.toml", "--state-dir", "the state"];
    let done = agentd(dir.path(), &[&flags[..], &["runs", "show", "01999999"]].concat());
    let told = err(&done);
    let hint = told.split('`').find(|part| part.starts_with("agentd ")).unwrap();
    assert_eq!(hint, "agentd --config 'over lay.toml' --state-dir 'the state' runs list", "{told}");
    let binary = Path::new(env!("CARGO_BIN_EXE_agentd")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let ran =
        Command::new("sh").args(["-c", hint]).current_dir(dir.path()).env("PATH", path).output().unwrap();
    assert!(ran.status.success(), "{}", err(&ran));
    let next = "`agentd --config 'over lay.toml' --state-dir 'the state' run --issue N` makes one";
    assert!(out(&ran).contains(next), "{}", out(&ran));
    // For programs, too; and where no flag was given none is told.
    let json = agentd(dir.path(), &[&flags[..], &["--json", "runs", "show", "01999999"]].concat());
    assert!(out(&json).contains(hint), "{}", out(&json));
    assert!(err(&agentd(dir.path(), &["runs", "show", "01999999"])).contains("`agentd runs list`"));
}

#[test]
fn in_a_pipe_one_long_value_makes_no_other_line_longer() {
    let dir = repository();
    let told = out(&agentd(dir.path(), &["config", "explain"]));
    let widths: Vec<usize> = told.lines().map(|line| line.chars().count()).collect();
    let of = |key: &str| {
        let line = told.lines().find(|line| line.split(' ').next() == Some(key));
        line.map_or_else(|| panic!("no {key}: {told}"), |line| line.chars().count())
    };
    assert!(widths.iter().any(|width| *width > 300), "the longest value is told whole: {told}");
    for key in ["budgets.max_steps", "commit.max_file", "daemon.poll_interval"] {
        assert!(of(key) < 120, "{key}: {told}");
    }
}
