//! A world with an agent of one step, for tests that script every reply of the model themselves.

use std::path::PathBuf;

use agentd::sim::{ReplyFile, Scenario};
use serde_json::{Value, json};

use super::world::{GREEN, World};

const AGENT: &str = r#"{
  "version": "1.0.0", "name": "solo", "displayName": "Solo", "description": "Works in one step.",
  "parameters": { "issue": { "type": "number", "description": "Number", "required": true, "cli": "--issue" } },
  "runner": {
    "flow": { "systemPromptPath": "prompts/system.md", "prompts": { "registry": "steps_registry.json" } },
    "verdict": { "type": "count:iteration", "config": { "maxIterations": 1 } },
    "boundaries": { "permissionMode": "acceptEdits" }
  }
}"#;

const REGISTRY: &str = r#"{
  "agentId": "solo", "version": "1.0.0", "c1": "steps", "entryStep": "initial.issue",
  "steps": { "initial.issue": {
    "stepId": "initial.issue", "name": "Work", "stepKind": "work", "c2": "initial", "c3": "issue",
    "edition": "default", "uvVariables": ["issue"], "usesStdin": false } }
}"#;

/// A reply with these calls.
pub fn calls(calls: &[(&str, Value)]) -> ReplyFile {
    let calls: Vec<Value> =
        calls.iter().map(|(name, arguments)| json!({ "name": name, "arguments": arguments })).collect();
    serde_json::from_value(json!({ "tool_calls": calls, "usage": { "input": 100, "output": 20 } })).unwrap()
}

/// A reply that reports.
pub fn reports(content: &str, claims: Value) -> ReplyFile {
    let report = json!({ "report_format": "markdown", "content": content, "claims": claims });
    serde_json::from_value(json!({ "final_report": report, "usage": { "input": 100, "output": 20 } }))
        .unwrap()
}

/// A world whose model gives these replies, with a policy and more configuration of one's own.
pub async fn solo(replies: Vec<ReplyFile>, policy: Option<&str>, more: &str) -> World {
    solo_of(replies, policy, more, |_| ()).await
}

/// The same, with the scenario changed first.
pub async fn solo_of(
    replies: Vec<ReplyFile>,
    policy: Option<&str>,
    more: &str,
    change: impl FnOnce(&mut Scenario),
) -> World {
    let world = World::of(1, |scenario| {
        scenario.model.replies = replies;
        change(scenario);
    })
    .await;
    std::fs::create_dir_all(world.shop().join(".agent/solo/prompts/steps/initial/issue")).unwrap();
    world.write("shop/.agent/solo/agent.json", AGENT);
    world.write("shop/.agent/solo/steps_registry.json", REGISTRY);
    world.write("shop/.agent/solo/prompts/system.md", "You work alone.\n");
    world.write("shop/.agent/solo/prompts/steps/initial/issue/f_default.md", "Work on issue {uv-issue}.\n");
    if let Some(policy) = policy {
        world.write("shop/.agent/policy.toml", policy);
    }
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n{more}\n"));
    // Scripted agents mend nothing.
    world.verify(GREEN);
    world
}

/// `agentd run --issue 7 --agent solo --json`.
pub async fn run(world: &World) -> (Option<i32>, Value) {
    world.json(&["run", "--issue", "7", "--agent", "solo"]).await
}

/// The newest run's directory.
pub fn newest(world: &World) -> PathBuf {
    let runs = world.dir.path().join("state/repos/demo/shop/runs");
    std::fs::read_dir(runs).unwrap().map(|run| run.unwrap().path()).max().unwrap()
}

/// A JSON file of the newest run.
pub fn left(world: &World, name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(newest(world).join(name)).unwrap()).unwrap()
}

/// The requests that the model got, each as the text of its JSON body.
pub fn asked(world: &World) -> Vec<String> {
    world.sim.model_requests().iter().map(|request| format!("{request:?}")).collect()
}
