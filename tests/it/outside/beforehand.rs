//! What can never work, or has no effect, is found before a model is paid for.

use std::process::Output;

use serde_json::{Value, json};

use super::doctor::answers;
use super::solo::{calls, reports, run, solo};
use super::world::{World, text};

/// Changes a JSON file of the agent that `agentd init` wrote.
fn edit(world: &World, file: &str, change: impl FnOnce(&mut Value)) {
    let place = format!("shop/.agent/resolver/{file}");
    let told = std::fs::read_to_string(world.dir.path().join(&place)).unwrap();
    let mut value = serde_json::from_str(&told).unwrap();
    change(&mut value);
    world.write(&place, &serde_json::to_string_pretty(&value).unwrap());
}

/// What a person reads of a command.
async fn shown(world: &World, args: &[&str]) -> Output {
    let mut command = world.command_in(args);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// What `agents check` finds of the agent, a line each, and its exit code.
async fn found(world: &World) -> (Option<i32>, Vec<String>) {
    let (code, told) = world.json(&["agents", "check", "resolver"]).await;
    let findings = told["agents"][0]["findings"].as_array().unwrap().iter();
    let line = |found: &Value| {
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        let (severity, code, file) = (text("severity"), text("code"), text("file"));
        format!("{severity} {code} {file}{} {} → {}", text("pointer"), text("message"), text("fix"))
    };
    (code, findings.map(line).collect())
}

/// That each of these has a finding with all of its words.
fn tells(found: &[String], expected: &[&[&str]]) {
    for words in expected {
        let is_told = found.iter().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(is_told, "{words:?} is not among {found:#?}");
    }
}

fn rule(kind: &str, name: &str, effect: &str, reason: &str, when: &str) -> String {
    format!(
        "[[rule]]\nid = \"odd\"\nkind = \"{kind}\"\nname = \"{name}\"\neffect = \"{effect}\"\nreason = \"{reason}\"\n{when}\n\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_no_call_can_meet_is_an_error_with_its_line() {
    let world = World::new(1).await;
    let policy = std::fs::read_to_string(world.shop().join(".agent/policy.toml")).unwrap();
    for (name, effect, reason, when, line, words) in [
        ("write_file", "deny", "r", "when = { argv = [[\"rm\"]] }", 7, "has no argv"),
        ("write_file", "deny", "r", "when = { host = [\"a.b\"] }", 7, "no argument of write_file is a host"),
        ("run_command", "deny", "r", "when = { path = [\"secret/**\"] }", 7, "names no path"),
        ("git_status", "deny", "r", "when = { path = [\"secret/**\"] }", 7, "names no path"),
        ("run_command", "deny", "r", "when = { argv = [[\"git push\"]] }", 7, "[\"git\", \"push\"]"),
        ("write_file", "deny", "r", "when = { path = [\"!secret/**\"] }", 7, "takes nothing out"),
        ("write_file", "allow", "approval_required", "", 6, "this one allows"),
    ] {
        let odd = rule("tool", name, effect, reason, when);
        world.write("shop/.agent/policy.toml", &format!("{odd}{policy}"));
        for args in [&["config", "check"][..], &["run", "--issue", "7", "--dry-run"]] {
            let refused = shown(&world, args).await;
            let told = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(4), "{when}: {told}");
            assert!(
                told.contains(&format!("policy.toml:{line}: ")) && told.contains(words),
                "{when}: {told}"
            );
        }
    }
    assert!(world.sim.model_requests().is_empty());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_misses_what_is_there_is_named_by_doctor_and_config_check() {
    let world = World::of(1, |scenario| scenario.model.replies.push(answers())).await;
    let policy = std::fs::read_to_string(world.shop().join(".agent/policy.toml")).unwrap();
    let folder = "when = { path = [\"tests\", \"a.txt\"] }";
    for (odd, words) in [
        (rule("tool", "write_file", "deny", "r", folder), "\"tests\" is a folder"),
        (rule("handoff", "closure.zzz", "deny", "r", ""), "no agent here has a step \"closure.zzz\""),
        (
            rule("handoff", "*", "deny", "r", "when = { to = [\"closure.issue\", \"closure.zzz\"] }"),
            "no agent here has a step \"closure.zzz\"",
        ),
        (rule("handoff", "*", "deny", "r", "when = { from = \"final.*\" }"), "a step \"final.*\""),
        (rule("run", "resolvr", "deny", "r", ""), "no agent here is called \"resolvr\""),
    ] {
        world.write("shop/.agent/policy.toml", &format!("{odd}{policy}"));
        let (code, told) = world.json(&["config", "check"]).await;
        assert_eq!(code, Some(0), "{told:#}");
        assert!(told["warnings"].to_string().replace("\\\"", "\"").contains(words), "{words}: {told:#}");
        let (_, told) = world.json(&["doctor"]).await;
        let findings = told["findings"].as_array().unwrap();
        let of_policy = findings.iter().find(|finding| finding["what"] == "policy").unwrap();
        assert_eq!(of_policy["state"], "warning", "{told:#}");
        assert!(of_policy["told"].as_str().unwrap().contains(words), "{of_policy:#}");
    }
    let fits = [
        rule("tool", "write_file", "deny", "r", "when = { path = [\"tests\", \"tests/**\"] }"),
        rule("handoff", "closure.issue", "deny", "r", "when = { from = \"verification.*\" }"),
    ];
    for fits in fits {
        world.write("shop/.agent/policy.toml", &format!("{fits}{policy}"));
        let (_, told) = world.json(&["config", "check"]).await;
        assert_eq!(told["warnings"], json!([]), "{told:#}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_can_never_hold_or_always_holds_is_found() {
    let world = World::new(1).await;
    edit(&world, "steps_registry.json", |registry| {
        let command =
            |line: &str, success: &str| json!({"type": "command", "command": line, "successWhen": success});
        registry["validators"] = json!({
            "absolute": {"type": "file", "path": "/etc/passwd"},
            "above": {"type": "file", "path": "../../x"},
            "nowhere": {"type": "file", "path": ""},
            "high": command("true", "exitCode:256"),
            "low": command("true", "exitCode:-1"),
            "mute": command("# not yet", "contains:ok"),
            "silent": {"type": "semantic", "semanticConfig": {"checkType": " "}},
            "void": {"type": "command", "command": ""},
            "todo": command("  # not yet\n", "empty"),
            "any": command("true", "contains:"),
            "sound": command("make # all", "exitCode:255"),
            "given": {"type": "file", "path": "${file}"},
        });
    });
    let (code, found) = found(&world).await;
    assert_eq!(code, Some(4), "{found:#?}");
    let never = "error SR-CHECK-001 .agent/resolver/steps_registry.json/validators/";
    let always = "warning SR-CHECK-002 .agent/resolver/steps_registry.json/validators/";
    let of = |severity: &str, rest: &str| format!("{severity}{rest}");
    for (place, words) in [
        (of(never, "absolute/path"), "it is absolute"),
        (of(never, "above/path"), "\"..\" is not allowed"),
        (of(never, "nowhere/path"), "it is empty"),
        (of(never, "high/successWhen"), "no program ends with exit code 256"),
        (of(never, "low/successWhen"), "no program ends with exit code -1"),
        (of(never, "mute/command"), "its command does nothing"),
        (of(never, "silent/semanticConfig"), "asks nothing"),
        (of(always, "void/command"), "its command does nothing"),
        (of(always, "todo/command"), "its command does nothing"),
        (of(always, "any/successWhen"), "every output contains nothing"),
    ] {
        tells(&found, &[&[&place, words]]);
    }
    assert_eq!(found.iter().filter(|line| line.contains("SR-CHECK-")).count(), 10, "{found:#?}");
    let (code, refused) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(4), "{refused:#}");
    assert!(world.sim.model_requests().is_empty());
    world.finish().await;
}

/// What a parameter brings is known only when the check is asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_no_worktree_has_is_told_with_the_cause() {
    let world = World::new(1).await;
    edit(&world, "steps_registry.json", |registry| {
        registry["validators"] = json!({"there": {"type": "file", "path": "${file}"}});
        registry["validationSteps"] = json!({"closure.issue": {"c2": "retry", "c3": "issue",
            "onFailure": {"action": "abort"},
            "validationConditions": [{"validator": "there", "params": {"file": "/etc/passwd"}}]}});
    });
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_ne!(code, Some(0), "{output:#}");
    let told = output["error"]["message"].as_str().unwrap();
    assert!(told.contains("\"/etc/passwd\" is not a path inside the worktree: it is absolute"), "{told}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_format_of_a_field_is_held_and_one_that_nobody_knows_is_told() {
    let fallback = json!({ "times": 0, "text": "I have nothing else." });
    let fallback = serde_json::from_value(fallback).unwrap();
    let world = World::of(1, |scenario| scenario.model.replies.push(fallback)).await;
    edit(&world, "schemas/issue.schema.json", |schema| {
        schema["initial.issue"]["properties"]["plan"]["format"] = json!("emial");
    });
    let (code, told) = found(&world).await;
    assert_eq!(code, Some(0), "{told:#?}");
    let place =
        "warning SR-SCHEMA-002 .agent/resolver/steps_registry.json/steps/initial.issue/outputSchemaRef";
    tells(
        &told,
        &[&[
            place,
            "the format \"emial\" in .agent/resolver/schemas/issue.schema.json#initial.issue",
            "\"email\"",
        ]],
    );
    edit(&world, "schemas/issue.schema.json", |schema| {
        schema["initial.issue"]["properties"]["plan"]["format"] = json!("date");
    });
    assert_eq!(found(&world).await.0, Some(0));
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_ne!(code, Some(0), "the recorded plan is no date: {output:#}");
    let asked = world.sim.model_requests().len();
    let told: Vec<String> = (0..asked).map(|request| world.told(request)).collect();
    assert!(told.iter().any(|told| told.contains("is not a \"date\"")), "{told:#?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_file_says_without_effect_or_against_itself_is_found() {
    let world = World::new(1).await;
    edit(&world, "agent.json", |agent| {
        agent["parameters"]["mood"] = json!({"type": "string", "description": "x", "cli": "--mood",
            "default": "zzz", "validation": {"pattern": "^a$"}});
        agent["parameters"]["size"] = json!({"type": "number", "description": "x", "cli": "--size",
            "default": 50, "validation": {"max": 10}});
        agent["runner"]["integrations"]["github"]["labels"] =
            json!({"blocked": "stuck", "complet": "zz", "completion": {"add": ["done", " "], "remove": []}});
        agent["runner"]["agentd"]["budgets"] = json!({"maxCost": 0});
    });
    let (code, told) = found(&world).await;
    assert_eq!(code, Some(4), "{told:#?}");
    let file = ".agent/resolver/agent.json";
    let at = |severity: &str, pointer: &str| format!("{severity} {file}{pointer} ");
    tells(
        &told,
        &[
            &[&at("error AC-VALID-001", "/parameters/mood/default"), "\"zzz\" does not match ^a$"],
            &[&at("error AC-VALID-001", "/parameters/size/default"), "50 is above the maximum 10"],
            &[&at("error AC-VALID-001", "/runner/integrations/github/labels/completion/add"), "a blank one"],
            &[&at("warning AC-IGNORED-001", "/runner/integrations/github/labels/blocked"), "\"stuck\""],
            &[&at("warning AC-IGNORED-001", "/runner/integrations/github/labels/complet"), "\"completion\""],
            &[&at("warning AC-VALID-002", "/runner/agentd/budgets/maxCost"), "no model that has a price"],
        ],
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cap_of_nothing_is_told_before_a_run_ends_at_it() {
    let world = World::new(1).await;
    let words = "budgets.max_cost is 0";
    let (code, told) = world.json(&["run", "--issue", "7", "--dry-run", "--max-cost", "0"]).await;
    assert_eq!(code, Some(0), "{told:#}");
    assert!(told["warnings"].to_string().contains(words), "{told:#}");
    let (_, told) = world.json(&["run", "--issue", "7", "--dry-run"]).await;
    assert!(!told["warnings"].to_string().contains(words), "{told:#}");
    let (_, told) = world.json(&["config", "check"]).await;
    assert_eq!(told["warnings"], json!([]), "{told:#}");
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n[budgets]\nmax_cost = 0.0\n"));
    let (code, told) = world.json(&["config", "check"]).await;
    assert_eq!(code, Some(0), "{told:#}");
    assert_eq!(told["warnings"].as_array().unwrap().len(), 1, "{told:#}");
    assert!(told["warnings"][0].as_str().unwrap().contains(words), "{told:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_prompt_that_nothing_fills_or_finds_is_told() {
    let world = World::new(1).await;
    let asked_with =
        |c2: &str| json!({"closure.issue": {"c2": c2, "c3": "issue", "validationConditions": ["green"]}});
    edit(&world, "steps_registry.json", |registry| {
        registry["validators"] = json!({"green": {"type": "command", "command": "make",
            "extractParams": {"files": "parseChangedFiles"}}});
        registry["validationSteps"] = asked_with("retry");
    });
    let prompt = ".agent/resolver/prompts/steps/retry/issue/f_failed.md";
    let body = "It fails: {{error}}, {{flies}}\n{{#each files}}{{path}}{{/each}}\nof issue {uv-issue}\n";
    world.write(&format!("shop/{prompt}"), body);
    let (code, told) = found(&world).await;
    assert_eq!(code, Some(0), "{told:#?}");
    let here: Vec<&String> = told.iter().filter(|line| line.contains(prompt)).collect();
    assert_eq!(here.len(), 2, "{told:#?}");
    tells(
        &told,
        &[
            &["warning PR-UV-004", prompt, "{{flies}} has no value", "{{files}}"],
            &["warning PR-UV-004", prompt, "{uv-issue} is no placeholder in a retry prompt"],
        ],
    );
    // A typo in the address of the prompt.
    edit(&world, "steps_registry.json", |registry| registry["validationSteps"] = asked_with("rtry"));
    let (code, told) = found(&world).await;
    assert_eq!(code, Some(0), "{told:#?}");
    let place = ".agent/resolver/steps_registry.json/validationSteps/closure.issue/c2";
    tells(&told, &[&["warning PR-C3L-006", place, "agentd's own words", "did you mean \"retry\"?"]]);
    // A program of the agent may say more than is written.
    edit(&world, "steps_registry.json", |registry| {
        registry["validationSteps"] = asked_with("retry");
        registry["validators"]["green"] = json!({"type": "custom", "path": "check.sh"});
    });
    let (_, told) = found(&world).await;
    assert!(!told.iter().any(|line| line.contains("flies")), "{told:#?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_cannot_be_names_what_is_there_and_what_helps() {
    let replies = vec![
        calls(&[("write_file", json!({ "path": "made.txt", "content": "made" }))]),
        reports("Done.", json!([])),
    ];
    let allows = rule("tool", "write_file", "allow", "r", "");
    let world = solo(replies, Some(&allows), "").await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    // The work of the run is still there, and the copy of the replay is not.
    world.write("shop/.agent/policy.toml", &rule("tool", "write_file", "deny", "r", ""));
    let replayed = shown(&world, &["runs", "replay", "latest"]).await;
    let told = text(&replayed.stderr);
    assert_eq!(replayed.status.code(), Some(1), "{told}");
    assert!(told.contains("in the copy of this replay") && !told.contains("run again"), "{told}");
    assert!(world.shop().join(".worktrees/issue-7/made.txt").exists());
    std::fs::remove_dir_all(world.shop().join(".agent/solo")).unwrap();
    let refused = shown(&world, &["runs", "replay", "latest"]).await;
    let told = text(&refused.stderr);
    assert!(told.contains("--with-agents") && !told.contains("agentd-replay-"), "{told}");
    assert!(!told.contains("agentd init"), "{told}");
    world.finish().await;
}
