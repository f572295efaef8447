//! agentd's own tools in the hands of an agent program: `agentd mcp`, bound to the run that started the program.

use std::path::PathBuf;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest, CustomRequest, Implementation,
};
use rmcp::service::{RoleClient, RunningService, serve_client};
use rmcp::transport::TokioChildProcess;
use serde_json::{Value, json};

use super::bench::{events, fixer, journal, no_landlock, no_sandbox, rules, script};
use crate::outside::world::World;

/// A program that tells where its tools are, and waits until somebody says that its work is done.
pub const WAITS: &str = "#!/bin/sh\ncat >/dev/null; printf %s \"$AGENTD_MCP_SOCKET\" > ../../../said.part; \
                     mv ../../../said.part ../../../said\n\
                     while [ ! -e ../../../go ] && [ -e ../../../said ]; do sleep 0.05; done; echo 'my own words'\n";

/// Calls a tool; gives its text and whether it failed.
async fn call(
    client: &RunningService<RoleClient, ClientConfig>,
    tool: &str,
    arguments: Value,
) -> (String, bool) {
    let Value::Object(arguments) = arguments else { panic!("an object") };
    let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
    let answer = client.call_tool(params).await.unwrap();
    let text = answer.content[0].as_text().unwrap().text.clone();
    (text, answer.is_error == Some(true))
}

pub async fn until(path: PathBuf) -> String {
    for _ in 0..1200 {
        if let Ok(text) = std::fs::read_to_string(&path) {
            return text;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} never came", path.display())
}

/// A client of the official SDK, over `agentd mcp`.
async fn client(world: &World, socket: &str) -> RunningService<RoleClient, ClientConfig> {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_agentd"));
    command.args(["mcp", "--socket", socket]).current_dir(world.dir.path()).env_clear();
    let transport = TokioChildProcess::new(command).unwrap();
    let info = ClientConfig::new(ClientCapabilities::default(), Implementation::new("a-client", "1"));
    serve_client(info, transport).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn c_24_calls_of_a_program_pass_the_gate_of_its_run_and_stand_in_its_record() {
    let world = World::new(0).await;
    let program = script(&world, "waits.sh", WAITS);
    fixer(&world, "command", &json!({"argv": [program], "sandbox": "off"}));
    let mut run = world.command_in(&["--json", "run", "--issue", "7", "--agent", "fixer"]);
    let running = tokio::task::spawn_blocking(move || run.output().unwrap());
    let socket = until(world.dir.path().join("said")).await;
    let client = client(&world, &socket).await;
    let names: Vec<String> =
        client.list_all_tools().await.unwrap().iter().map(|t| t.name.to_string()).collect();
    for tool in ["read_file", "edit_file", "run_command", "git_diff", "tool_output", "agent__final_report"] {
        assert!(names.iter().any(|name| name == tool), "{tool}: {names:?}");
    }
    let (text, failed) = call(&client, "read_file", json!({"path": "lib/cart.sh"})).await;
    assert!(!failed && text.contains("$1 - $2"), "{text}");
    let edit = json!({"path": "lib/cart.sh", "old": "$1 - $2", "new": "$1 * (100 - $2) / 100"});
    assert!(!call(&client, "edit_file", edit).await.1);
    // Denied by the policy, unknown, malformed: answers, not the end.
    let (text, failed) =
        call(&client, "write_file", json!({"path": ".github/workflows/ci.yml", "content": "x"})).await;
    assert!(failed && text.contains("\"status\":\"denied\""), "{text}");
    assert!(call(&client, "no_such_tool", json!({})).await.0.contains("Unknown tool"));
    assert!(call(&client, "read_file", json!({"file": 1})).await.0.contains("invalid arguments"));
    let shapeless = ClientRequest::CustomRequest(CustomRequest::new("tools/call", Some(json!({"name": 7}))));
    let refused = client.send_request(shapeless).await.unwrap_err().to_string();
    assert!(refused.contains("-32602"), "{refused}");
    // A secret of the run is in no answer.
    let secret = json!({"path": "key.txt", "content": "a-key-of-the-simulator"});
    assert!(!call(&client, "write_file", secret).await.1);
    let (text, _) = call(&client, "read_file", json!({"path": "key.txt"})).await;
    assert!(!text.contains("a-key-of-the-simulator"), "{text}");
    assert!(!call(&client, "write_file", json!({"path": "key.txt", "content": "nothing"})).await.1);
    let (text, failed) = call(&client, "run_command", json!({"argv": ["sh", "tests/run.sh"]})).await;
    assert!(!failed, "{text}");
    let report = json!({"report_format": "markdown", "content": "It is a share of the price now.", "outcome": "achieved"});
    let (text, failed) = call(&client, "agent__final_report", report.clone()).await;
    assert!(!failed, "{text}");
    assert!(call(&client, "agent__final_report", report).await.0.contains("already captured"));
    // What it says it did is what was done: nothing comes after it.
    let late = json!({"path": "lib/cart.sh", "content": "late"});
    let (text, failed) = call(&client, "write_file", late).await;
    assert!(failed && text.contains("already captured"), "{text}");
    world.write("go", "");
    let done = running.await.unwrap();
    let output: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(
        (done.status.code(), output["stop_reason"].as_str()),
        (Some(0), Some("OBJECTIVE_ACHIEVED")),
        "{output:#}"
    );
    world.assert_one_of_each();
    assert!(output.to_string().contains("It is a share of the price now."), "{output:#}");
    assert!(!output.to_string().contains("my own words"), "the report goes before the words: {output:#}");
    // One line for the program, one for each call that ran, in the ledger and in the journal.
    let ledger = world.json(&["runs", "accounting", "latest"]).await.1.to_string();
    for tool in ["exec_agent__command", "read_file", "edit_file", "run_command", "write_file"] {
        assert!(ledger.contains(&format!("\"command\":\"{tool}\"")), "{tool}: {ledger}");
    }
    let told = events(&world, &output);
    let word = |id: &str| {
        let decision =
            told.iter().find(|event| event["data"]["callId"] == id && !event["data"]["decision"].is_null());
        decision.unwrap_or_else(|| panic!("no decision on {id}"))["data"]["decision"].clone()
    };
    assert_eq!(
        (word("agent-1-1"), word("agent-1-1.2"), word("agent-1-1.3")),
        (json!("allow"), json!("allow"), json!("deny"))
    );
    assert!(!journal(&world, &output).contains("a-key-of-the-simulator"));
    // The run is over: so is the way to its tools.
    assert!(client.call_tool(CallToolRequestParams::new("git_status")).await.is_err());
    let (code, checked) = world.json(&["runs", "verify", "latest"]).await;
    assert_eq!(code, Some(0), "{checked:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_24_a_hard_denial_ends_the_program_as_it_ends_a_session() {
    let world = World::new(0).await;
    let program = script(&world, "waits.sh", WAITS);
    fixer(&world, "command", &json!({"argv": [program], "sandbox": "off"}));
    rules(
        &world,
        "[[rule]]\nid = \"ask\"\nkind = \"tool\"\nname = \"write_file\"\neffect = \"deny\"\nreason = \"versions are ours\"\n\
         deny_mode = \"throw\"\nwhen = { path = [\"VERSION\"] }\n",
    );
    let mut run = world.command_in(&["--json", "run", "--issue", "7", "--agent", "fixer"]);
    let running = tokio::task::spawn_blocking(move || run.output().unwrap());
    let socket = until(world.dir.path().join("said")).await;
    let client = client(&world, &socket).await;
    let answer = call(&client, "write_file", json!({"path": "VERSION", "content": "2"}));
    drop(tokio::time::timeout(Duration::from_secs(20), answer).await);
    let done = running.await.unwrap();
    let output: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(done.status.code(), Some(1), "{output:#}");
    assert_eq!(output["stop_detail"], "policy_denied", "{output:#}");
    assert!(!world.shop().join(".worktrees/issue-7/VERSION").exists());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_wrote_before_it_asked_people_is_there_when_its_step_goes_on() {
    let world = World::new(0).await;
    let writes = WAITS.replace("cat >/dev/null;", "cat >/dev/null; echo half > half.txt;");
    let program = script(&world, "asks.sh", &writes);
    fixer(&world, "command", &json!({"argv": [program], "sandbox": "off"}));
    let mut run = world.command_in(&["--json", "run", "--issue", "7", "--agent", "fixer"]);
    let running = tokio::task::spawn_blocking(move || run.output().unwrap());
    let socket = until(world.dir.path().join("said")).await;
    let client = client(&world, &socket).await;
    let question = json!({"question": "In which unit?", "options": ["cents", "dollars"]});
    let answer = call(&client, "agent__ask", question);
    drop(tokio::time::timeout(Duration::from_secs(20), answer).await);
    let done = running.await.unwrap();
    let output: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(output["stop_detail"], "question_pending", "{output:#}");
    let half = std::fs::read_to_string(world.shop().join(".worktrees/issue-7/half.txt"));
    assert_eq!(half.unwrap_or_default(), "half\n", "{output:#}");
    let told = journal(&world, &output);
    assert!(!told.contains("refs/agentd/refused"), "{told}");
    assert!(!output["failures"].to_string().contains("exec_agent"), "to ask is no failure: {output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_24_in_the_cage_the_tools_are_reached_and_nothing_else_of_the_host_is() {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped, there is no sandbox here: {why}");
        return;
    }
    tools_are_reached("bubblewrap").await;
}

/// There are no sockets: the way is one of pipes.
#[tokio::test(flavor = "multi_thread")]
async fn c_24_under_landlock_the_tools_are_reached_and_nothing_else_of_the_host_is() {
    if let Some(why) = no_landlock() {
        eprintln!("skipped: {why}");
        return;
    }
    tools_are_reached("landlock").await;
}

async fn tools_are_reached(cage: &str) {
    let world = World::new(0).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n[sandbox]\nmode = \"{cage}\"\n"));
    let text = format!(
        "#!/bin/bash\ncat >/dev/null\n\
         ask() {{ printf '%s\\n' \"$1\" >&\"${{MCP[1]}}\"; }}\n\
         coproc MCP {{ {agentd} mcp; }}\n\
         ask '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{{\"protocolVersion\":\"2025-06-18\",\
         \"capabilities\":{{}},\"clientInfo\":{{\"name\":\"sh\",\"version\":\"1\"}}}}}}'\n\
         read -r hello <&\"${{MCP[0]}}\"\n\
         ask '{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}}'\n\
         ask '{{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{{\"name\":\"edit_file\",\"arguments\":\
         {{\"path\":\"lib/cart.sh\",\"old\":\"$1 - $2\",\"new\":\"$1 * (100 - $2) / 100\"}}}}}}'\n\
         read -r answer <&\"${{MCP[0]}}\"\n\
         echo \"heard: $answer\"; cat {state}/repos/demo/shop/runs/*/events.jsonl 2>&1; true\n",
        agentd = env!("CARGO_BIN_EXE_agentd"),
        state = world.dir.path().join("state").display(),
    );
    fixer(&world, "command", &json!({"argv": [script(&world, "asks.sh", &text)]}));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    assert!(journal(&world, &output).contains(&format!("\"sandbox\":\"{cage}\"")));
    assert!(!output["warnings"].to_string().contains("no_tools_for_agent"), "{output:#}");
    let words = output.to_string();
    assert!(words.contains("heard: ") && words.contains("No such file"), "{output:#}");
    world.finish().await;
}
