//! Who works on which step: the step's own word, the agent's, the configuration's.

use serde_json::{Value, json};

use super::bench::{FIX, events, fixer, managed, script};
use crate::outside::world::{World, text};

/// A file of the world's checkout as JSON, changed.
fn changed(world: &World, path: &str, change: impl FnOnce(&mut Value)) {
    let place = world.shop().join(path);
    let mut value: Value = serde_json::from_slice(&std::fs::read(&place).unwrap()).unwrap();
    change(&mut value);
    world.write(&format!("shop/{path}"), &serde_json::to_string_pretty(&value).unwrap());
}

/// Lays a table over the world's configuration.
fn overlaid(world: &World, table: &str) {
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let base = overlay.split("[program]").next().unwrap();
    world.write("overlay.toml", &format!("{base}[program]\n{table}"));
}

const RULE: &str = "[[rule]]\nid = \"agent-program\"\nkind = \"tool\"\nname = \"exec_agent__command\"\neffect = \"allow\"\n\
                    reason = \"the agent program of this repository\"\n\n# --- Handoffs";

/// The demo's agent, whose step "continuation.issue" is a program's.
async fn with_a_programs_step(backend: Value) -> World {
    let world = World::of(1, |scenario| {
        scenario.model.replies.retain(|reply| !format!("{reply:?}").contains("Carry out the plan"));
    })
    .await;
    changed(&world, ".agent/resolver/steps_registry.json", |registry| {
        registry["steps"]["continuation.issue"]["agentd"] = backend;
    });
    let policy = std::fs::read_to_string(world.shop().join(".agent/policy.toml")).unwrap();
    world.write("shop/.agent/policy.toml", &policy.replacen("# --- Handoffs", RULE, 1));
    world
}

/// A program that makes the change and says so as the step's schema wants it.
fn changes(world: &World) -> std::path::PathBuf {
    let said = json!({
        "summary": "The share is taken.", "changes": "`lib/cart.sh`: the share, not cents.",
        "next_action": {"action": "next", "reason": "it is to be verified"},
    });
    script(world, "change.sh", &format!("#!/bin/sh\ncat >../../../heard; {FIX}\necho '{said}'\n"))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_step_is_a_programs_the_others_are_the_sessions_and_the_gate_is_asked_between_them() {
    let world = with_a_programs_step(Value::Null).await;
    let program = json!({"argv": [changes(&world)], "sandbox": "off"});
    changed(&world, ".agent/resolver/steps_registry.json", |registry| {
        registry["steps"]["continuation.issue"]["agentd"] = json!({"backend": "command", "program": program});
    });
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, output["stop_reason"].as_str()), (Some(0), Some("OBJECTIVE_ACHIEVED")), "{output:#}");
    world.assert_one_of_each();
    let told = events(&world, &output);
    let handoff = told.iter().find(|event| {
        event["data"]["resource"]["kind"] == "handoff"
            && event["data"]["resource"]["name"] == "verification.issue"
    });
    let handoff = handoff.unwrap_or_else(|| panic!("the program's handoff passed no gate: {told:#?}"));
    assert_eq!(handoff["data"]["decision"], "allow", "{handoff:#}");
    let launches = told.iter().filter(|event| event["data"]["resource"]["name"] == "exec_agent__command");
    assert!(launches.count() > 0, "{told:#?}");
    // It heard what the session's step gave, as any step does.
    let heard = std::fs::read_to_string(world.dir.path().join("heard")).unwrap();
    assert!(heard.contains("compute `price * (100 - percent) / 100`"), "{heard}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d4_a_step_that_repeats_goes_on_with_the_programs_own_conversation_only_where_the_agent_says_so() {
    for goes_on in [true, false] {
        let world = with_a_programs_step(Value::Null).await;
        let said = |action: &str| {
            json!({
                "summary": "The share is taken.", "changes": "`lib/cart.sh`: the share, not cents.",
                "next_action": {"action": action, "reason": "so"},
            })
        };
        // It speaks as Claude Code does, and remembers how it was called.
        let text = format!(
            "#!/bin/bash\ncat >/dev/null\necho \"$*\" >> ../../../called\n{FIX}\n\
             if [ $(wc -l < ../../../called) = 1 ]; then said='{}'; else said='{}'; fi\n\
             echo '{{\"type\":\"system\",\"session_id\":\"talk-1\"}}'\n\
             echo '{{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"session_id\":\"talk-1\",\"result\":\"\",\
             \"structured_output\":'\"$said\"'}}'\n",
            said("repeat"),
            said("next"),
        );
        let program = json!({"argv": [script(&world, "claude.sh", &text)], "sandbox": "off"});
        changed(&world, ".agent/resolver/steps_registry.json", |registry| {
            registry["steps"]["continuation.issue"]["agentd"] =
                json!({"backend": "claude-code", "program": program});
        });
        changed(&world, ".agent/resolver/agent.json", |agent| {
            agent["runner"]["agentd"] = json!({"continueSession": goes_on});
        });
        let policy = std::fs::read_to_string(world.shop().join(".agent/policy.toml")).unwrap();
        let policy = policy.replace("exec_agent__command", "exec_agent__claude-code");
        world.write("shop/.agent/policy.toml", &policy);
        let (code, output) = world.json(&["run", "--issue", "7"]).await;
        assert_eq!(code, Some(0), "{output:#}");
        let called = std::fs::read_to_string(world.dir.path().join("called")).unwrap();
        let resumed: Vec<bool> = called.lines().map(|line| line.contains("--resume talk-1")).collect();
        assert_eq!(resumed, [false, goes_on], "{called}");
        world.sim.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p_022_a_handoff_of_a_program_that_the_policy_denies_leads_nowhere() {
    let world = with_a_programs_step(Value::Null).await;
    let program = json!({"argv": [changes(&world)], "sandbox": "off"});
    changed(&world, ".agent/resolver/steps_registry.json", |registry| {
        registry["steps"]["continuation.issue"]["agentd"] = json!({"backend": "command", "program": program});
    });
    let policy = std::fs::read_to_string(world.shop().join(".agent/policy.toml")).unwrap();
    let (flow, rest) = policy.split_once("id = \"no-other-handoff\"").unwrap();
    let denied = rest.replacen("deny_mode = \"tool_result\"", "deny_mode = \"throw\"", 1);
    let flow = flow.replace("\"verification.issue\", ", "");
    world.write("shop/.agent/policy.toml", &format!("{flow}id = \"no-other-handoff\"{denied}"));
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("policy_denied")), "{output:#}");
    let visited: Vec<_> = output["steps"].as_array().unwrap().iter().map(|step| &step["step_id"]).collect();
    assert_eq!(visited, ["initial.issue", "continuation.issue"], "{output:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_words_at_a_step_are_told_with_file_and_line() {
    let world = with_a_programs_step(Value::Null).await;
    for (backend, words) in [
        (json!({"backend": "claude"}), "there is no backend \"claude\""),
        (json!({"backend": "command"}), "the backend \"command\" needs program.argv"),
        (json!({"backend": "session", "program": {"argv": ["x"]}}), "the backend is agentd's own session"),
        (json!({"backend": "codex", "program": {"maxTurns": 3}}), "program.maxTurns means nothing"),
        (json!({"backend": "gemini", "program": {"network": ["https://x/"]}}), "is not a host"),
        (json!({"backend": 7}), "the value is not of types"),
    ] {
        changed(&world, ".agent/resolver/steps_registry.json", |registry| {
            registry["steps"]["continuation.issue"]["agentd"] = backend.clone();
        });
        let (code, output) = world.json(&["run", "--issue", "7"]).await;
        let expected = if backend["backend"] == 7 { 5 } else { 4 };
        assert_eq!(code, Some(expected), "{backend}: {output:#}");
        let told = output["summary"].as_str().unwrap();
        assert!(told.contains(words), "{words}: {output:#}");
        let registry =
            std::fs::read_to_string(world.shop().join(".agent/resolver/steps_registry.json")).unwrap();
        let begins = registry.lines().position(|line| line.contains("\"agentd\"")).unwrap() + 1;
        let near = (begins..begins + 6).any(|line| told.contains(&format!("steps_registry.json:{line}")));
        assert!(near, "line {begins} ff.: {output:#}");
    }
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_names_the_program_for_agents_that_name_none() {
    let world = World::new(0).await;
    let program = script(&world, "fix.sh", &format!("#!/bin/sh\ncat >/dev/null; {FIX}\necho configured\n"));
    fixer(&world, "command", &json!({"argv": ["false"], "sandbox": "off"}));
    changed(&world, ".agent/fixer/agent.json", |agent| {
        agent["runner"].as_object_mut().unwrap().remove("agentd");
    });
    for (table, key, words) in [
        ("backend = \"command\"\n", "program.backend", "needs program.argv"),
        ("backend = \"nobody\"\n", "program.backend", "there is no backend"),
        ("model = \"m\"\n", "program.model", "its backend is agentd's own session"),
        ("backend = \"codex\"\nmax_turns = 3\n", "program.max_turns", "program.max_turns means nothing"),
        ("backend = \"codex\"\nmax_turn = 3\n", "program.max_turn", "max_turns"),
    ] {
        overlaid(&world, table);
        let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
        assert_eq!(code, Some(4), "{output:#}");
        let told = output["summary"].as_str().unwrap();
        assert!(
            told.contains(key) && told.contains(words) && told.contains("overlay.toml:"),
            "{key}: {output:#}"
        );
    }
    overlaid(&world, &format!("backend = \"command\"\nsandbox = \"off\"\nargv = [{program:?}]\n"));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    assert!(output.to_string().contains("configured"), "{output:#}");
    let explained = world.json(&["config", "explain"]).await.1.to_string();
    assert!(explained.contains("program.backend") && explained.contains("program.argv"), "{explained}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_takes_the_work_back_from_the_agents_program() {
    let world = World::of(1, |scenario| {
        scenario.model.replies = serde_json::from_value(json!([
            {"tool_calls": [{"name": "edit_file", "arguments":
                {"path": "lib/cart.sh", "old": "$1 - $2", "new": "$1 * (100 - $2) / 100"}}]},
            {"final_report": {"report_format": "markdown", "content": "By the session.", "outcome": "achieved"}},
        ]))
        .unwrap();
    })
    .await;
    fixer(&world, "command", &json!({"argv": ["false"], "sandbox": "off"}));
    changed(&world, ".agent/fixer/steps_registry.json", |registry| {
        registry["steps"]["initial.fix"]["agentd"] = json!({"backend": "session"});
    });
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    assert!(output.to_string().contains("By the session."), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d85_what_a_steps_program_reaches_is_for_the_operator_of_a_managed_clone_to_say() {
    let world = World::new(0).await;
    fixer(&world, "command", &json!({"argv": ["true"], "sandbox": "off"}));
    let program = script(&world, "fix.sh", &format!("#!/bin/sh\ncat >/dev/null; {FIX}\necho operator\n"));
    changed(&world, ".agent/fixer/agent.json", |agent| {
        agent["runner"].as_object_mut().unwrap().remove("agentd");
    });
    for (key, value) in [
        ("sandbox", json!("off")),
        ("environment", json!(["MODEL_KEY"])),
        ("home", json!([".codex/auth.json"])),
        ("readable", json!(["/etc/hostname"])),
        ("endpoints", json!(["anthropic"])),
        ("network", json!(true)),
    ] {
        changed(&world, ".agent/fixer/steps_registry.json", |registry| {
            registry["steps"]["initial.fix"]["agentd"] =
                json!({"backend": "command", "program": {"argv": ["true"], key: value}});
        });
        let mut command = managed(&world, "").await;
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let told = text(&done.stderr);
        assert_eq!(done.status.code(), Some(4), "{told}");
        let words = format!("The step \"initial.fix\" of the agent \"fixer\" sets program.{key}");
        assert!(told.contains(&words), "{told}");
    }
    // Who runs the daemon says it, and the definition nothing.
    changed(&world, ".agent/fixer/steps_registry.json", |registry| {
        registry["steps"]["initial.fix"].as_object_mut().unwrap().remove("agentd");
    });
    let policy = world.shop().join(".agent/policy.toml");
    let table = format!(
        "[policy]\nfiles = [{policy:?}]\n[program]\nbackend = \"command\"\nsandbox = \"off\"\nargv = [{program:?}]\n"
    );
    let mut command = managed(&world, &table).await;
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    world.assert_one_of_each();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_looks_for_programs_and_wants_no_model_where_they_do_all_the_work() {
    let world = World::new(0).await;
    let program = script(&world, "fix.sh", "#!/bin/sh\n");
    fixer(&world, "command", &json!({"argv": [program], "sandbox": "off"}));
    let config = std::fs::read_to_string(world.shop().join(".agent/agentd.toml")).unwrap();
    assert!(config.contains("agent = \"resolver\""), "{config}");
    world.write("shop/.agent/agentd.toml", &config.replace("agent = \"resolver\"", "agent = \"fixer\""));
    for (file, from, to) in
        [("shop/.agent/agentd.toml", "[providers", "[budgets]"), ("overlay.toml", "[providers", "[verify]")]
    {
        let text = std::fs::read_to_string(world.dir.path().join(file)).unwrap();
        let (before, rest) = text.split_once(from).unwrap();
        let at = rest.find(to).unwrap();
        world.write(file, &format!("{before}{}", &rest[at..]));
    }
    let of = |told: &Value, what: &str| {
        let findings = told["findings"].as_array().unwrap();
        let finding = findings.iter().find(|finding| finding["what"] == what);
        let finding = finding.unwrap_or_else(|| panic!("{what}: {told:#}"));
        (finding["state"].as_str().unwrap().to_owned(), finding["told"].as_str().unwrap().to_owned())
    };
    let told = world.json(&["doctor"]).await.1;
    let (state, words) = of(&told, "models");
    assert!(state == "ok" && words.contains("none is needed"), "{told:#}");
    let (state, words) = of(&told, "program");
    assert!(state == "warning" && words.contains("fix.sh, with your own rights"), "{told:#}");
    assert_eq!(world.json(&["config", "check"]).await.0, Some(0), "it says the same");
    // A step that is the session's needs a model again.
    changed(&world, ".agent/fixer/steps_registry.json", |registry| {
        registry["steps"]["initial.fix"]["agentd"] = json!({"backend": "session"});
    });
    let told = world.json(&["doctor"]).await.1;
    assert_eq!(of(&told, "models").0, "problem", "{told:#}");
    let (code, told) = world.json(&["config", "check"]).await;
    assert!(code == Some(4) && told.to_string().contains("no model is configured"), "{told:#}");
    changed(&world, ".agent/fixer/steps_registry.json", |registry| {
        registry["steps"]["initial.fix"]["agentd"] =
            json!({"backend": "acp", "program": {"argv": ["no-such-agent"]}});
    });
    let told = world.json(&["doctor"]).await.1;
    let (state, words) = of(&told, "program");
    assert!(state == "problem" && words.contains("no-such-agent"), "{told:#}");
    world.finish().await;
}

/// What each step of the scaffolded agent is answered, by words of its prompt.
pub const STEPS: [(&str, &str); 4] = [
    (
        "# Report",
        r#"{"summary": "s", "limitations": [], "next_action": {"action": "closing", "reason": "done"}}"#,
    ),
    (
        "Verify the change",
        r#"{"summary": "s", "findings": "none", "checks": [], "next_action": {"action": "next", "reason": "done"}}"#,
    ),
    (
        "Carry out the plan",
        r#"{"summary": "s", "changes": "c", "next_action": {"action": "next", "reason": "done"}}"#,
    ),
    (
        "Understand and plan",
        r#"{"summary": "s", "plan": "p", "next_action": {"action": "next", "reason": "done"}}"#,
    ),
];

/// The scaffolded agent with a program in every step, which does `elsewhere` in the steps that only plan.
async fn scaffolded(sandbox: &str, elsewhere: &str) -> World {
    let world = World::of(1, |scenario| scenario.model.replies.clear()).await;
    let mut text = String::from("#!/bin/sh\nprompt=$(cat)\ncase \"$prompt\" in\n");
    for (words, said) in STEPS {
        let work = if words.starts_with("Carry") { FIX } else { elsewhere };
        text += &format!("*'{words}'*) {work}\necho '{said}';;\n");
    }
    let program = json!({"argv": [script(&world, "all.sh", &(text + "esac\n"))], "sandbox": sandbox});
    changed(&world, ".agent/resolver/agent.json", |agent| {
        let own = agent["runner"]["agentd"].as_object_mut().unwrap();
        own.insert("backend".to_owned(), json!("command"));
        own.insert("program".to_owned(), program);
    });
    let policy = std::fs::read_to_string(world.shop().join(".agent/policy.toml")).unwrap();
    world.write("shop/.agent/policy.toml", &policy.replacen("# --- Handoffs", RULE, 1));
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_works_on_every_step_of_the_scaffolded_agent_and_only_reads_where_that_one_plans() {
    for mode in ["bubblewrap", "landlock"] {
        let missing =
            if mode == "landlock" { super::bench::no_landlock() } else { super::bench::no_sandbox() };
        if let Some(why) = missing {
            eprintln!("skipped in {mode}: {why}");
            continue;
        }
        // Neither its file nor its commit comes to anything.
        let sneaks =
            "echo x > sneaked.txt; git commit -q --allow-empty -m sneaked; echo 'exit 0' > tests/run.sh";
        let world = scaffolded("auto", sneaks).await;
        let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
        world.write("overlay.toml", &format!("{overlay}[sandbox]\nmode = \"{mode}\"\n"));
        let (code, output) = world.json(&["run", "--issue", "7"]).await;
        assert_eq!(
            (code, output["stop_detail"].as_str()),
            (Some(0), Some("completed")),
            "{mode}: {output:#}"
        );
        let changed =
            world.git(&world.shop(), &["log", "-p", "--format=%s", "origin/develop..feature/issue-7"]).await;
        assert!(!changed.contains("sneaked") && changed.contains("lib/cart.sh"), "{mode}: {changed}");
        world.assert_one_of_each();
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_report_that_does_not_fit_people_are_told_nothing_that_only_a_model_can_do() {
    let world = scaffolded("off", "echo nothing; exit 0").await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(5), Some("schema_invalid")), "{output:#}");
    let told = output["error"]["message"].as_str().unwrap();
    assert!(told.starts_with("What command reported does not fit the step: "), "{told}");
    assert!(!told.contains("agent__final_report") && !told.contains("ExtractionFailed"), "{told}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_of_a_sandbox_what_a_planning_step_changed_ends_the_run_and_is_taken_back() {
    let world = scaffolded("off", "echo x > sneaked.txt").await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("policy_denied")), "{output:#}");
    assert!(output.to_string().contains("sneaked.txt (the step only plans)"), "{output:#}");
    let report = super::bench::file_of(&world, &output, "report.md");
    assert!(report.contains("No rule of the policy lets a step that only plans change files"), "{report}");
    assert!(!world.shop().join(".worktrees/issue-7/sneaked.txt").exists());
    assert!(world.sim.pulls("demo/shop").is_empty());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_of_a_sandbox_commits_of_a_planning_step_are_changes_too_and_leave_the_branch() {
    let commits = "echo x > sneaked.txt; git add sneaked.txt; git -c user.name=a -c user.email=a@b commit -q -m one; git rm -q \
                   sneaked.txt; git -c user.name=a -c user.email=a@b commit -q -m two";
    for (elsewhere, kept) in [
        (commits.to_owned(), &["launch-1-branch", "launch-1-head"][..]),
        (format!("git checkout -q --detach; {commits}"), &["launch-1-head"]),
        (
            format!("git checkout -q --detach; {commits}; git branch -f feature/issue-7 HEAD~"),
            &["launch-1-branch"],
        ),
        ("git checkout -q -b other".to_owned(), &[]),
    ] {
        let world = scaffolded("off", &elsewhere).await;
        let base = world.git(&world.shop(), &["rev-parse", "origin/develop"]).await;
        let (code, output) = world.json(&["run", "--issue", "7"]).await;
        assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("policy_denied")), "{output:#}");
        assert!(
            output.to_string().contains("the branch feature/issue-7 (the step only plans)"),
            "{output:#}"
        );
        let worktree = world.shop().join(".worktrees/issue-7");
        assert_eq!(world.git(&world.shop(), &["rev-parse", "feature/issue-7"]).await, base, "{elsewhere}");
        assert_eq!(
            world.git(&worktree, &["symbolic-ref", "HEAD"]).await.trim(),
            "refs/heads/feature/issue-7"
        );
        assert_eq!(world.git(&worktree, &["status", "--porcelain"]).await, "", "{elsewhere}");
        for name in kept {
            let reference = format!("refs/agentd/left/{}/{name}", output["run_id"].as_str().unwrap());
            assert!(output.to_string().contains(&reference), "{output:#}");
            assert!(
                world.git(&world.shop(), &["log", "--format=%s", &reference]).await.contains("one"),
                "{elsewhere}"
            );
        }
        world.sim.shutdown().await;
    }
}
