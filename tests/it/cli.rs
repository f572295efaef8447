//! The command line from outside: exit codes, streams, help, init.

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
fn init_writes_what_can_be_used_and_overwrites_nothing() {
    let dir = repository();
    let done = agentd(dir.path(), &["init", "--json"]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    assert!(!out(&done).contains("sentinel-value"));
    let told: Value = serde_json::from_str(&out(&done)).unwrap();
    assert_eq!((told["written"].as_array().unwrap().len(), told["kept"].as_array().unwrap().len()), (16, 0));
    let folder = dir.path().join(".agent");
    let text = std::fs::read_to_string(folder.join("agentd.toml")).unwrap();
    let named = text.lines().next().unwrap().strip_prefix("#:schema ").unwrap();
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(folder.join(named)).unwrap()).unwrap();
    let values = serde_json::to_value(toml::from_str::<toml::Table>(&text).unwrap()).unwrap();
    assert!(jsonschema::is_valid(&schema, &values), "what init writes fits the schema that it names");

    let env = Env::new(dir.path(), [("GITHUB_TOKEN", "t"), ("ANTHROPIC_API_KEY", "k")]);
    let request = Request {
        explicit: None,
        base: dir.path(),
        repo: None,
        agent: None,
        flags: &[],
        entry: None,
        env: &env,
    };
    let config = Config::load(request).unwrap();
    let entry = &config.repositories[0];
    assert_eq!(entry.name.as_ref().unwrap().to_string(), "octo/cat");
    assert_eq!((entry.origin_branch.as_deref(), entry.agent.as_str()), (Some("trunk"), "resolver"));
    assert_eq!(config.verify.commands, [["cargo", "test"]]);
    config.session().unwrap();
    config.provider("anthropic").unwrap();
    let policy = PolicySource::read(&dir.path().join(&config.policy.files[0])).unwrap();
    let rules = read_policies(&[policy]).unwrap();
    assert!(rules.covers(ProposalKind::Tool) && rules.covers(ProposalKind::Handoff));

    file(dir.path(), ".agent/policy.toml", "# mine\n");
    let again = agentd(dir.path(), &["init"]);
    assert!(
        out(&again).contains("kept   .agent/policy.toml") && !out(&again).contains("wrote"),
        "{}",
        out(&again)
    );
    assert_eq!(std::fs::read_to_string(dir.path().join(".agent/policy.toml")).unwrap(), "# mine\n");
}

#[test]
fn init_without_remote_and_tests_says_what_is_left_to_do() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(agentd(dir.path(), &["init"]).status.code(), Some(4), "not a repository");
    git(dir.path(), &["init", "-q"]);
    let done = agentd(dir.path(), &["init"]);
    for part in ["There is no remote", "origin_branch", "verify.commands", "git commit -m agentd"] {
        assert!(out(&done).contains(part), "{}", out(&done));
    }
    assert!(!out(&done).contains("push"), "there is nobody to push to: {}", out(&done));
    let policy = PolicySource::read(&dir.path().join(".agent/policy.toml")).unwrap();
    read_policies(&[policy]).unwrap();
    let done = agentd(dir.path(), &["config", "explain", "verify"]);
    assert!(out(&done).contains("verify.commands  []"), "{}", out(&done));
}

#[test]
fn init_beside_a_configuration_asks_for_what_is_missing_there_and_names_its_files() {
    let dir = repository();
    file(
        dir.path(),
        "agentd.toml",
        "[[repositories]]\nname = \"octo/cat\"\npath = \".\"\norigin_branch = \"trunk\"\n\
         [[session.targets]]\nprovider = \"local\"\nmodel = \"m\"\n\
         [providers.local]\nkind = \"openai\"\napi_key = \"${LOCAL_KEY}\"\n",
    );
    let told = out(&agentd(dir.path(), &["init"]));
    for part in [
        "`verify.commands` in agentd.toml",
        "Add files = [\".agent/policy.toml\"] under [policy] in agentd.toml",
        "Put GITHUB_TOKEN into the environment; to read it from .agentd.env",
        "Put LOCAL_KEY into",
        " .agentd.env, which git ignores",
    ] {
        assert!(told.contains(part), "`{part}` is not in {told}");
    }
    assert!(!told.contains("origin_branch") && !told.contains("ANTHROPIC"), "{told}");
    file(dir.path(), ".agentd.env", "LOCAL_KEY=k\n");
    git(dir.path(), &["check-ignore", "-q", ".agentd.env"]);
    let told = out(&agentd(dir.path(), &["init"]));
    assert!(!told.contains("LOCAL_KEY"), "{told}");
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

#[test]
fn where_a_repository_has_no_main_checkout_init_writes_nothing_and_all_say_what_to_do() {
    let dir = repository();
    let place = tempfile::tempdir().unwrap();
    let project = place.path().join("project");
    let bare = project.join(".bare");
    std::fs::create_dir(&project).unwrap();
    git(dir.path(), &["clone", "-q", "--bare", ".", &bare.to_string_lossy()]);
    git(&bare, &["worktree", "add", "-q", "--detach", "../main"]);
    let says_so = |at: &Path, what: &str| {
        for args in [&["init"][..], &["doctor"], &["run", "--issue", "7"], &["worktrees", "list"]] {
            let done = agentd(at, args);
            let told = out(&done) + &err(&done);
            assert!(!done.status.success() && told.contains(what), "{args:?} in {}: {told}", at.display());
            assert!(told.contains("git clone URL FOLDER") && !told.contains("git init"), "{args:?}: {told}");
        }
        assert!(!at.join(".agent").exists());
    };
    says_so(&project.join("main"), "is a worktree of the bare repository");
    says_so(&bare, "is a bare repository");
    file(&project, ".git", "gitdir: ./.bare\n");
    says_so(&project.join("main"), "is a worktree of the bare repository");
    says_so(&project, "is a bare repository");
}

/// In a folder of the repository, in a linked worktree of it, in a place with blanks, and where its rules ignore what `init` writes.
#[test]
#[expect(clippy::disallowed_methods, reason = "a person's own shell")]
fn the_commit_that_init_prints_works_from_where_it_was_started() {
    for case in ["root", "folder", "linked", "ignored", "spaced"] {
        let dir = repository();
        let root = match case {
            "spaced" => dir.path().join("a b; c"),
            _ => dir.path().to_owned(),
        };
        if case == "spaced" {
            git(dir.path(), &["clone", "-q", ".", &root.to_string_lossy()]);
        }
        git(&root, &["config", "user.email", "a@b"]);
        git(&root, &["config", "user.name", "a"]);
        std::fs::create_dir(root.join("folder")).unwrap();
        git(&root, &["worktree", "add", "-q", "-b", "other", "linked"]);
        if case == "ignored" {
            file(&root, ".gitignore", "target/\nCargo.lock\n.agent\n");
        }
        let at = if matches!(case, "folder" | "linked" | "spaced") {
            root.join(if case == "linked" { "linked" } else { "folder" })
        } else {
            root.clone()
        };
        let done = agentd(&at, &["init"]);
        let told = out(&done);
        assert_eq!(told.contains("git ignores .agent/"), case == "ignored", "{told}");
        file(&root, ".agent/.agentd.env", "GITHUB_TOKEN=secret\n");
        let line = told.lines().find_map(|line| line.strip_prefix("Commit it: ")).unwrap();
        let (commits, push) = line.rsplit_once(" && ").unwrap();
        assert!(push.ends_with(" push"), "{line}");
        let ran = Command::new("sh").args(["-c", commits]).current_dir(&at).output().unwrap();
        assert!(ran.status.success(), "{case}: {line}: {}", err(&ran));
        let show = Command::new("git").args(["ls-files", ".agent"]).current_dir(&root).output().unwrap();
        let committed = out(&show);
        assert!(
            committed.contains(".agent/policy.toml") && committed.contains(".agent/resolver/agent.json"),
            "{case}: {committed}"
        );
        assert!(!committed.contains(".agentd.env"), "no secret is taken by force: {committed}");
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
fn init_finds_makefiles_of_each_name_and_python_of_old_and_refuses_a_file_in_its_place() {
    let verified = |files: &[(&str, &str)]| {
        let dir = tempfile::tempdir().unwrap();
        git(dir.path(), &["init", "-q"]);
        for (name, text) in files {
            file(dir.path(), name, text);
        }
        agentd(dir.path(), &["init"]);
        let text = std::fs::read_to_string(dir.path().join(".agent/agentd.toml")).unwrap();
        toml::from_str::<toml::Table>(&text).unwrap()["verify"]["commands"].to_string()
    };
    let make = "[[\"make\", \"test\"]]";
    assert_eq!(verified(&[("GNUmakefile", "all test: build\n\ttrue\n")]), make);
    assert_eq!(verified(&[("makefile", "test:\n\ttrue\n")]), make);
    assert_eq!(
        verified(&[("Makefile", "test:\n\ttrue\n"), ("GNUmakefile", "all:\n")]),
        "[]",
        "make reads the other one"
    );
    assert_eq!(verified(&[("setup.py", "")]), "[[\".venv/bin/python\", \"-m\", \"pytest\"]]");

    let dir = repository();
    file(dir.path(), ".agent", "notes\n");
    let refused = agentd(dir.path(), &["init"]);
    assert_eq!(refused.status.code(), Some(4), "{}", err(&refused));
    assert!(err(&refused).contains(".agent is a file, and agentd has its folder there"), "{}", err(&refused));
}

#[test]
fn init_with_a_program_where_an_agent_is_there_says_that_it_changed_nothing() {
    let dir = repository();
    let first = out(&agentd(dir.path(), &["init"]));
    let told = out(&agentd(dir.path(), &["init", "--backend", "codex"]));
    let words = "agent.json was there and does not change: for codex write \"backend\": \"codex\"";
    assert!(told.contains(words) && !first.contains("was there and"), "{told}");
}

#[test]
fn init_takes_the_first_of_two_kinds_without_a_terminal_and_says_so() {
    let dir = repository();
    file(dir.path(), "Makefile", "test:\n\ttrue\n");
    file(dir.path(), ".gitignore", "/target\n*.log");
    let told = out(&agentd(dir.path(), &["init"]));
    for part in [
        "Taken for a project of the kind Cargo without a lock file; Make would fit as well.",
        "added  Cargo.lock to .gitignore",
        "Commit it: git add .agent .gitignore && git commit",
    ] {
        assert!(told.contains(part), "`{part}` is not in {told}");
    }
    let ignored = std::fs::read_to_string(dir.path().join(".gitignore")).unwrap();
    assert_eq!(ignored, "/target\n*.log\nCargo.lock\n", "what was there stays");
    let config = std::fs::read_to_string(dir.path().join(".agent/agentd.toml")).unwrap();
    assert!(config.contains("sweep_limit = 5") && config.contains("max_cost_per_day = 20.0"), "{config}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn init_names_a_program_that_is_missing_here() {
    let dir = repository();
    agentd::sys::files::remove_file(&dir.path().join("Cargo.toml")).unwrap();
    file(dir.path(), "justfile", "test:\n    true\n");
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentd"));
    command.arg("init").current_dir(dir.path()).env_clear().env("HOME", dir.path()).env("PATH", "/nowhere");
    let done = command.output().unwrap();
    assert!(out(&done).contains("`just` is not installed here"), "{}", out(&done));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn the_unit_keeps_the_flags_and_the_path_that_it_was_written_with() {
    let dir = repository();
    file(dir.path(), "mine.toml", "");
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentd"));
    command.args([
        "init",
        "--service",
        "--config",
        "mine.toml",
        "--state-dir",
        "/tmp/a state",
        "--repo",
        "octo/cat",
    ]);
    command
        .current_dir(dir.path())
        .env("XDG_CONFIG_HOME", dir.path().join("config"))
        .env("PATH", "/one/bin:/two/bin");
    let done = command.output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    let units = std::fs::read_dir(dir.path().join("config/systemd/user")).unwrap();
    let unit = std::fs::read_to_string(units.flatten().next().unwrap().path()).unwrap();
    let config = dir.path().join("mine.toml");
    let flags =
        format!(" --config {} --state-dir \"/tmp/a state\" --repo octo/cat daemon\n", config.display());
    assert!(unit.contains(&flags), "{unit}");
    assert!(unit.contains("\nEnvironment=\"PATH=/one/bin:/two/bin\"\n"), "{unit}");
}

/// Nobody else would have what is there, and no definition there is read.
#[test]
fn init_writes_nothing_through_a_link_that_leads_out_of_the_repository() {
    let (dir, elsewhere) = (repository(), tempfile::tempdir().unwrap());
    std::os::unix::fs::symlink(elsewhere.path(), dir.path().join(".agent")).unwrap();
    let done = agentd(dir.path(), &["init"]);
    assert_eq!(done.status.code(), Some(4), "{}", out(&done));
    for part in
        ["leads out of the repository", &elsewhere.path().display().to_string(), "Nothing was written"]
    {
        assert!(err(&done).contains(part), "`{part}` is not in {}", err(&done));
    }
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    // One that stays inside is the repository's own.
    agentd::sys::files::remove_file(&dir.path().join(".agent")).unwrap();
    std::fs::create_dir(dir.path().join("agents")).unwrap();
    std::os::unix::fs::symlink("agents", dir.path().join(".agent")).unwrap();
    let done = agentd(dir.path(), &["init"]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
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
