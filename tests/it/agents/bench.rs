//! What the tests of agent programs share: an agent of one step, worked on by a program of the test's own.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::outside::world::{World, basic};

const RULE: &str = "[[rule]]\nid = \"agent-program\"\nkind = \"tool\"\nname = \"exec_agent__BACKEND\"\n\
                    effect = \"allow\"\nreason = \"the agent program of this repository\"\n\n# --- Handoffs";

/// Whether a cage works here; the reason where it does not.
pub fn no_sandbox() -> Option<String> {
    let tried =
        std::process::Command::new("bwrap").args(["--ro-bind", "/", "/", "--unshare-all", "true"]).output();
    match tried {
        Ok(done) if done.status.success() => None,
        Ok(done) => Some(String::from_utf8_lossy(&done.stderr).into_owned()),
        Err(error) => Some(format!("bwrap: {error}")),
    }
}

/// Whether the kernel has Landlock, as `agentd doctor` says.
pub fn no_landlock() -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("agentd.toml"), "[sandbox]\nmode = \"landlock\"\n").unwrap();
    let done = std::process::Command::new(env!("CARGO_BIN_EXE_agentd"))
        .args(["--json", "doctor"])
        .current_dir(dir.path())
        .env("AGENTD_STATE_DIR", dir.path())
        .output()
        .unwrap();
    let told: Value = serde_json::from_slice(&done.stdout).unwrap();
    let findings = told["findings"].as_array().unwrap();
    let sandbox = findings.iter().find(|finding| finding["what"] == "sandbox").unwrap();
    let told = sandbox["told"].as_str().unwrap();
    (!told.starts_with("landlock works")).then(|| told.to_owned())
}

/// Gives the world an agent "fixer" of one step that the program works on, and lets the policy start it.
pub fn fixer(world: &World, backend: &str, program: &Value) {
    let agent = json!({
        "version": "1.0.0", "name": "fixer", "displayName": "Fixer", "description": "Fixes one issue with a program.",
        "parameters": {"issue": {"type": "number", "description": "Number", "required": true, "cli": "--issue"}},
        "runner": {
            "flow": {"systemPromptPath": "prompts/system.md", "prompts": {"registry": "steps_registry.json"}},
            "verdict": {"type": "count:iteration", "config": {"maxIterations": 1}},
            "boundaries": {"permissionMode": "acceptEdits"},
            "integrations": {"github": {"enabled": true, "defaultClosureAction": "close"}},
            "agentd": {"backend": backend, "program": program},
        }
    });
    let registry = json!({
        "agentId": "fixer", "version": "1.0.0", "c1": "steps", "entryStep": "initial.fix",
        "steps": {"initial.fix": {
            "stepId": "initial.fix", "name": "Fix", "stepKind": "work", "c2": "initial", "c3": "fix",
            "edition": "default", "uvVariables": [], "usesStdin": false,
        }},
    });
    let folder = "shop/.agent/fixer";
    world.write(&format!("{folder}/agent.json"), &agent.to_string());
    world.write(&format!("{folder}/steps_registry.json"), &registry.to_string());
    world.write(&format!("{folder}/prompts/system.md"), "You fix issues.\n");
    world.write(&format!("{folder}/prompts/steps/initial/fix/f_default.md"), "Fix the issue.\n");
    let policy = std::fs::read_to_string(world.shop().join(".agent/policy.toml")).unwrap();
    let rule = RULE.replace("BACKEND", backend);
    if !policy.contains("agent-program") {
        world.write("shop/.agent/policy.toml", &policy.replacen("# --- Handoffs", &rule, 1));
    }
}

/// A program of the test's own, in a folder that it may be read from.
pub fn script(world: &World, name: &str, text: &str) -> PathBuf {
    world.write(&format!("programs/{name}"), text);
    let path = world.dir.path().join("programs").join(name);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Adds rules to the world's policy, before those that are there.
pub fn rules(world: &World, rules: &str) {
    let policy = std::fs::read_to_string(world.shop().join(".agent/policy.toml")).unwrap();
    let place = policy.find("[[rule]]").unwrap();
    let (head, tail) = policy.split_at(place);
    world.write("shop/.agent/policy.toml", &format!("{head}{rules}\n{tail}"));
}

/// The events of the last run.
pub fn events(world: &World, output: &Value) -> Vec<Value> {
    journal(world, output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Commits the checkout's agents, and a configuration elsewhere under which agentd manages its clone.
pub async fn managed(world: &World, table: &str) -> std::process::Command {
    let header = format!("http.extraHeader=Authorization: Basic {}", basic());
    let shop = world.shop();
    world.git(&shop, &["add", "-A", "."]).await;
    world.git(&shop, &["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "agents"]).await;
    world.git(&shop, &["-c", &header, "push", "-q", "origin", "develop"]).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let entry = "[[repositories]]\nname = \"demo/shop\"\norigin_branch = \"develop\"\nagent = \"fixer\"\n";
    world.write("elsewhere/agentd.toml", &format!("{overlay}\n{entry}{table}"));
    let mut command = world.command(&["run", "--issue", "7"]);
    command.current_dir(world.dir.path().join("elsewhere"));
    command
}

/// The journal of the last run, as text.
pub fn journal(world: &World, output: &Value) -> String {
    file_of(world, output, "events.jsonl")
}

/// A file of the last run's directory.
pub fn file_of(world: &World, output: &Value, name: &str) -> String {
    let run = output["run_id"].as_str().unwrap();
    let path = world.dir.path().join("state/repos/demo/shop/runs").join(run).join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The fix of the demo's issue, as a shell line.
pub const FIX: &str = "sed -i 's/\\$1 - \\$2/$1 * (100 - $2) \\/ 100/' lib/cart.sh";
