//! Steps that programs do, and programs that decide completion: E19, N24.

use std::time::Duration;

use agentd::domain::stop::StopDetail;
use serde_json::{Value, json};

use super::world::{Flow, says};
use crate::session::world::Line;

/// An agent of one closing step that a program does.
async fn program(command: &str, args: Value) -> Flow {
    Flow::f0(vec![])
        .await
        .agent(|agent| {
            agent["runner"]["verdict"] = json!({"type": "count:iteration", "config": {"maxIterations": 1}});
        })
        .registry(|registry| {
            *registry = json!({"agentId": "f0", "version": "1.0.0", "entryStep": "merge", "steps": {"merge": {
                "stepId": "merge", "stepKind": "closure", "c2": "closure", "c3": "merge",
                "runner": {"command": command, "args": args, "timeout": 400}}}});
        })
}

#[tokio::test]
async fn e19_a_program_that_ends_well_is_a_run_that_ends_well() {
    let args = json!([
        "-c",
        "printf '{\"merged\": %s, \"at\": \"%s\"}' \"$1\" \"$(pwd)\"",
        "sh",
        "${context.issue}"
    ]);
    let ended = program("sh", args).await.run().await;
    assert_eq!(ended.succeeded().steps(), ["merge"]);
    assert_eq!(ended.visits[0].output["merged"], 7);
    assert_eq!(ended.visits[0].output["at"], ended.ground.repo.to_string(), "in the worktree");
    assert!(ended.requests.is_empty(), "no model is asked");
}

#[tokio::test]
async fn e19_output_that_is_no_json_stands_under_raw() {
    let ended = program("echo", json!(["done;", "$(id)"])).await.run().await;
    assert_eq!(Value::Object(ended.succeeded().visits[0].output.clone()), json!({"raw": "done; $(id)"}));
}

#[tokio::test]
async fn e19_a_list_on_the_output_is_there_as_text_and_as_list() {
    let ended = program("echo", json!(["[1, {\"a\": 2}]"])).await.run().await;
    let output = Value::Object(ended.succeeded().visits[0].output.clone());
    assert_eq!(output, json!({"raw": "[1, {\"a\": 2}]", "parsed": [1, {"a": 2}]}));
}

#[tokio::test]
async fn e19_a_program_that_fails_hangs_or_is_not_there_fails_the_run() {
    let ended = program("sh", json!(["-c", "echo no rights >&2; exit 1"])).await.run().await;
    ended.failed(StopDetail::AgentCliFailed, "exit code 1: no rights");
    let ended = program("sleep", json!(["60"])).await.run().await;
    ended.failed(StopDetail::AgentCliFailed, "ended after 0.4 s");
    let ended = program("no-such-program", json!([])).await.run().await;
    ended.failed(StopDetail::AgentCliFailed, "was not found");
}

#[tokio::test]
async fn e19_an_argument_without_value_is_refused_at_load() {
    let flow = program("echo", json!(["${context.prNumber}"])).await;
    let found = flow.project.refused_for("PR-RESOLVE-005");
    assert_eq!(found.pointer, "/steps/merge/runner/args/0");
    flow.project.agent_json(|agent| {
        agent["parameters"]["prNumber"] =
            json!({"type": "number", "description": "x", "cli": "--pr-number", "required": true});
    });
    let ended = flow.with(|flow| drop(flow.given.insert("prNumber".into(), "12".into()))).run().await;
    assert_eq!(ended.succeeded().visits[0].output["raw"], "12");
}

#[tokio::test]
async fn e19_a_run_that_has_begun_is_no_refused_start_where_a_value_is_missing() {
    let flow = program("echo", json!(["${context.prNumber}"])).await;
    flow.project.agent_json(|agent| {
        agent["parameters"]["prNumber"] = json!({"type": "number", "description": "x", "cli": "--pr-number"});
    });
    flow.run().await.failed(StopDetail::SchemaInvalid, "PR-RESOLVE-005");
}

#[tokio::test]
async fn e19_a_program_can_be_a_step_among_others() {
    let flow = Flow::f0(vec![says("handoff")]).await.registry(|registry| {
        registry["steps"]["closure.a"]["runner"] =
            json!({"command": "echo", "args": ["{\"next_action\": {\"action\": \"done\"}}"]});
    });
    let ended = flow.run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "closure.a"]);
    assert_eq!(ended.visits[1].verdict, "closing");
}

async fn decided_by(script: &str, replies: Vec<Line>) -> Flow {
    let flow = Flow::f0(replies).await.agent(|agent| {
        agent["runner"]["verdict"] =
            json!({"type": "meta:custom", "config": {"handlerPath": "done.sh", "maxIterations": 4}});
    });
    flow.project.program("done.sh", script);
    flow
}

#[tokio::test]
async fn n24_a_program_of_the_agent_decides_completion() {
    let script = "#!/bin/sh\ngrep -q '\"visits\":2' && echo '{\"complete\": true, \"reason\": \"two are enough\"}' || echo '{\"complete\": false}'\n";
    let ended = decided_by(script, vec![says("next")]).await.run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "continuation.a"]);
    assert_eq!(ended.end.completion_reason.as_deref(), Some("two are enough"));
}

#[tokio::test]
async fn n24_a_completion_program_that_fails_counts_as_not_yet_and_a_note_says_so() {
    for script in
        ["#!/bin/sh\nexit 3\n", "#!/bin/sh\necho maybe\n", "#!/bin/sh\necho '{\"complete\": true}'\n"]
    {
        let flow = decided_by(script, vec![says("next")]).await;
        let ended = flow.with(|flow| flow.time_limit = Duration::from_secs(5)).run().await;
        ended.failed(StopDetail::MaxIterations, "4");
        assert!(ended.warned("completion_program_failed").is_some(), "{script}");
    }
}
