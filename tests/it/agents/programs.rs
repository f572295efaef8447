//! The real programs, headless and caged, each against the simulator's model; skipped where one is not installed.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::bench::{fixer, journal, no_cage};
use crate::outside::world::World;

/// Where a program is, or why the test is skipped.
fn installed(program: &str) -> Result<PathBuf, String> {
    if let Some(why) = no_cage() {
        return Err(format!("there is no cage here: {why}"));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    agentd::sys::cage::which(program.as_ref(), &path).ok_or_else(|| format!("{program} is not installed"))
}

/// A world whose model fixes the issue with one command and says so.
async fn world(tool: &str) -> World {
    let command = "sed -i 's/\\$1 - \\$2/$1 * (100 - $2) \\/ 100/' lib/cart.sh";
    World::of(1, |scenario| {
        scenario.model.replies = serde_json::from_value(json!([
            {"when": {"turn": 1, "offers": tool}, "usage": {"input": 100, "output": 20},
             "tool_calls": [{"name": tool, "arguments": {"command": command, "description": "fix it"}}]},
            {"when": {"turn": 2}, "text": "The percentage is taken as a share now.", "usage": {"input": 200, "output": 30}},
            {"times": 0, "text": "A cart"},
        ]))
        .unwrap();
    })
    .await
}

async fn run(
    world: &World,
    backend: &str,
    program: &Value,
    variables: &[(&str, String)],
) -> (Option<i32>, Value) {
    fixer(world, backend, program);
    let mut command = world.command_in(&["--json", "run", "--issue", "7", "--agent", "fixer"]);
    command.envs(variables.iter().map(|(name, value)| (*name, value)));
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    (done.status.code(), serde_json::from_slice(&done.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_code_goes_from_issue_to_pull_request() {
    if let Err(why) = installed("claude") {
        eprintln!("skipped: {why}");
        return;
    }
    let world = world("Bash").await;
    let program = json!({
        "model": "recorded-model", "network": true, "maxTurns": 5, "timeLimit": "60s",
        "environment": ["ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"],
    });
    let variables = [
        ("ANTHROPIC_BASE_URL", world.sim.model_url_anthropic()),
        ("ANTHROPIC_API_KEY", "a-key-of-the-simulator".to_owned()),
    ];
    let (code, output) = run(&world, "claude-code", &program, &variables).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    let told = journal(&world, &output);
    assert!(told.contains("The percentage is taken as a share now."), "{told}");
    assert!(told.contains("\"provider\":\"claude-code\""), "{told}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn opencode_goes_from_issue_to_pull_request() {
    if let Err(why) = installed("opencode") {
        eprintln!("skipped: {why}");
        return;
    }
    let world = world("bash").await;
    let program = json!({
        "model": "simulated/recorded-model", "network": true, "timeLimit": "60s",
        "environment": ["OPENCODE_CONFIG_CONTENT"],
    });
    let api = world.sim.api_url();
    let provider = json!({"provider": {"simulated": {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": format!("{api}/model/openai/v1"), "apiKey": "a-key-of-the-simulator"},
        "models": {"recorded-model": {}},
    }}});
    let variables = [("OPENCODE_CONFIG_CONTENT", provider.to_string())];
    let (code, output) = run(&world, "opencode", &program, &variables).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    assert!(journal(&world, &output).contains("\"provider\":\"opencode\""), "{output:#}");
    world.sim.shutdown().await;
}
