//! Tool responses: size cap, handles, timeouts, failures, queues, parameters (A-026… …, S-030).

use std::time::Duration;

use agentd::domain::event::Event;
use agentd::domain::message::Message;
use agentd::domain::money::Money;
use agentd::engine::model::{ModelReply, ModelRequest};
use agentd::engine::tool::BoundParameter;
use serde_json::{Value, json};

use super::world::{Does, Line, SECRET, TestTool, World, call, calls, failed, reply, report, tool_of};

#[tokio::test(start_paused = true)]
async fn a_026_a_027_a_028_a_029_a_large_response_is_kept_and_the_model_gets_its_handle() {
    let ran = World::new(vec![call("big", json!({ "bytes": 20_000 })), report("ok")]).run().await;
    let message = ran.results(2)[0];
    assert_eq!(message.lines().count(), 2, "an object and a hint");
    assert!(!message.contains("xxxx"));
    let object: Value = serde_json::from_str(message.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&object["bytes"], &object["lines"], &object["reason"]),
        (&20_000.into(), &1.into(), &"size_cap".into())
    );
    assert!(object["tokens"].as_u64().unwrap() >= 5000);
    let handle = object["handle"].as_str().unwrap();
    assert!(handle.starts_with("session-") && !handle.contains(".."));
    let kept = &ran.files[&format!("tool-output/{handle}")];
    assert_eq!(kept.len(), 20_000);
    assert_eq!(object["sha256"], agentd::domain::canonical::sha256_hex(kept));
}

#[tokio::test(start_paused = true)]
async fn a_030_exactly_the_cap_stays_inline() {
    let both = calls(&[("big", json!({ "bytes": 12_288 })), ("big", json!({ "bytes": 12_289 }))]);
    let ran = World::new(vec![both, report("ok")]).run().await;
    assert_eq!(ran.results(2)[0].len(), 12_288);
    assert!(ran.results(2)[1].contains("\"handle\""));
}

/// Asks for the newest stored output.
fn read_back(request: &ModelRequest) -> ModelReply {
    let handle = request
        .messages
        .iter()
        .rev()
        .find_map(|message| match message {
            Message::Tool { content, .. } => serde_json::from_str::<Value>(content.lines().next()?).ok(),
            _ => None,
        })
        .and_then(|object| object["handle"].as_str().map(str::to_owned))
        .unwrap();
    reply("", &[("tool_output", json!({ "handle": handle, "mode": "head", "max_lines": 1 }))])
}

#[tokio::test(start_paused = true)]
async fn a_031_a_stored_output_is_read_back_by_its_handle() {
    let script = vec![call("big", json!({ "bytes": 20_000 })), Line::Answer(read_back), report("ok")];
    let ran = World::new(script).run().await;
    let page = ran.results(3)[1];
    assert!(page.starts_with("1: xxxx") && page.ends_with("[1 of 1 lines shown, 0 remain]"), "{page}");
    assert!(page.len() <= 12_288);
    assert_eq!(tool_of(ran.tool_lines()[1]), ("agentd", "tool_output"));
}

#[tokio::test(start_paused = true)]
async fn a_031_an_unknown_handle_is_refused_with_a_clear_word() {
    let asked = call("tool_output", json!({ "handle": "session-x/y", "mode": "head" }));
    let ran = World::new(vec![asked, report("ok")]).run().await;
    assert!(ran.results(2)[0].starts_with("(tool failed: unknown handle"), "{}", ran.results(2)[0]);
}

#[tokio::test(start_paused = true)]
async fn a_032_a_033_a_034_a_tool_is_aborted_after_its_timeout() {
    let ran = World::new(vec![call("sleep", json!({ "ms": 5000 })), report("ok")])
        .settings(|settings| settings.tool_timeout = Duration::from_millis(300))
        .run()
        .await;
    assert_eq!(ran.results(2), ["(tool failed: timeout)"]);
    let line = ran.tool_lines()[0];
    assert!(failed(line) && line.error.as_deref() == Some("timeout"));
    assert!((300..=1500).contains(&line.latency), "{}", line.latency);
    assert!(ran.gap(1) < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_035_a_tool_that_panics_is_a_failed_call() {
    let world = World::new(vec![call("crash", json!({})), report("ok")]);
    let ran = world.tool(TestTool::new("crash", Does::Panics)).run().await;
    assert_eq!(ran.results(2), ["(tool failed: the tool crashed)"]);
    assert!(failed(ran.tool_lines()[0]), "A-080");
    assert_eq!(ran.detail(), "completed");
}

#[tokio::test(start_paused = true)]
async fn a_035_a_model_that_panics_is_no_end_of_the_program() {
    let ran = World::new(vec![Line::Panic]).run().await;
    assert_eq!(ran.requests.len(), 6, "taken as unreadable replies");
    assert_eq!(ran.detail(), "invalid_model_output");
}

#[tokio::test(start_paused = true)]
async fn a_080_a_tool_that_ends_the_run_leaves_a_line_for_every_call_that_was_started() {
    let both = calls(&[("sleep", json!({ "ms": 5000 })), ("end", json!({}))]);
    let ran = World::new(vec![both, report("x")]).tool(TestTool::new("end", Does::Ends)).run().await;
    assert_eq!((ran.detail(), ran.requests.len()), ("internal", 1));
    let lines: Vec<(&str, &str)> =
        ran.tool_lines().iter().map(|entry| (tool_of(entry).1, entry.error.as_deref().unwrap())).collect();
    assert_eq!(lines, [("end", "the disk is gone"), ("sleep", "cancelled")]);
}

#[tokio::test(start_paused = true)]
async fn a_080_a_087_a_failure_is_told_and_accounted() {
    let ran = World::new(vec![call("fail", json!({})), report("ok")]).run().await;
    assert_eq!(ran.results(2), ["(tool failed: boom)"]);
    let line = ran.tool_lines()[0];
    assert!(failed(line) && line.error.as_deref() == Some("boom"));
    assert_eq!(tool_of(line), ("test", "fail"));
}

#[tokio::test(start_paused = true)]
async fn c_02_a_tool_that_refuses_did_not_run() {
    let world = World::new(vec![call("jail", json!({})), report("ok")]);
    let ran = world.tool(TestTool::new("jail", Does::Refuses)).run().await;
    assert_eq!(ran.results(2), ["(tool failed: the path is outside the worktree)"]);
    assert!(ran.tool_lines().is_empty());
    let item = ran.events.iter().rev().find_map(|event| match event {
        Event::ItemRecorded { item, .. } => Some(serde_json::to_value(item).unwrap())
            .filter(|item| item["type"] == "tool_call_output_item" && item["output"]["status"] == "denied"),
        _ => None,
    });
    assert_eq!(item.unwrap()["output"]["code"], "path_outside_worktree");
}

#[tokio::test(start_paused = true)]
async fn c_25_results_come_in_reply_order_whatever_finishes_first() {
    let both = calls(&[("sleep", json!({ "ms": 500 })), ("count", json!({}))]);
    let ran = World::new(vec![both, report("ok")]).run().await;
    assert_eq!(ran.results(2), ["slept", "1"]);
    let finished: Vec<&str> = ran.tool_lines().iter().map(|entry| tool_of(entry).1).collect();
    assert_eq!(finished, ["count", "sleep"], "the ledger is in the order of ends");
}

#[tokio::test(start_paused = true)]
async fn a_096_a_queue_of_one_is_serial_and_does_not_hold_up_others() {
    let world = World::new(vec![
        calls(&[("slow", json!({ "ms": 400 })), ("slow", json!({ "ms": 400 })), ("count", json!({}))]),
        report("ok"),
    ])
    .tool(TestTool::with_schema("slow", Does::Sleep, json!({ "type": "object" })).queued("one"))
    .with(|world| world.queues.insert("one".to_owned(), 1).map_or((), |_| ()));
    let ran = world.run().await;
    assert_eq!(ran.tools["slow"].most_at_once.load(std::sync::atomic::Ordering::SeqCst), 1);
    assert!(ran.gap(1) >= Duration::from_millis(800));
    assert_eq!(tool_of(ran.tool_lines()[0]).1, "count");
    let undeclared =
        World::new(vec![report("ok")]).tool(TestTool::new("q", Does::Echo).queued("x")).run().await;
    assert_eq!((undeclared.detail(), undeclared.requests.len()), ("config_invalid", 0));
}

#[tokio::test(start_paused = true)]
async fn a_043_a_tool_with_a_broken_schema_ends_with_the_schema_detail() {
    let world = World::new(vec![report("ok")]);
    let ran = world.tool(TestTool::with_schema("bad", Does::Echo, json!({ "type": 42 }))).run().await;
    assert_eq!((ran.detail(), ran.requests.len()), ("schema_invalid", 0));
    assert_eq!(ran.outcome.stop().detail.exit_code(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_049_arguments_that_break_the_schema_are_named_and_do_not_run() {
    let ran = World::new(vec![call("big", json!({ "bytes": "many" })), report("ok")]).run().await;
    assert_eq!(ran.runs("big"), 0);
    assert!(
        ran.results(2)[0].starts_with("(tool failed: invalid arguments: /bytes: "),
        "{}",
        ran.results(2)[0]
    );
}

#[tokio::test(start_paused = true)]
async fn s_030_s_031_the_host_sets_bound_parameters_whatever_the_model_wrote() {
    let schema = json!({ "type": "object", "additionalProperties": false,
        "properties": { "user_id": { "type": "string" }, "issue": { "type": "integer" } }, "required": ["user_id", "issue"] });
    let bound = [BoundParameter::UserId, BoundParameter::Issue];
    let world = World::new(vec![call("whoami", json!({ "user_id": "evil" })), report("ok")]);
    let ran = world.tool(TestTool::with_schema("whoami", Does::Echo, schema).bound(&bound)).run().await;
    let received = ran.tools["whoami"].received.lock().unwrap()[0].clone();
    assert_ne!(received["user_id"], "evil");
    assert_eq!(received["issue"], 7);
    let overridden: Vec<&Event> =
        ran.events.iter().filter(|event| matches!(event, Event::BoundParamOverridden { .. })).collect();
    assert_eq!(overridden, [&Event::BoundParamOverridden { tool: "whoami".into(), name: "user_id".into() }]);
}

#[tokio::test(start_paused = true)]
async fn p_031_a_secret_in_an_output_is_redacted_before_model_and_record_see_it() {
    let world = World::new(vec![call("leak", json!({})), report(&format!("it is {SECRET}"))]);
    let ran = world.tool(TestTool::new("leak", Does::Leaks)).run().await;
    assert!(ran.results(2)[0].starts_with("token=[redacted:operator:"), "{}", ran.results(2)[0]);
    assert!(ran.content().contains("[redacted:"), "P-043");
    let triggered = ran
        .events
        .iter()
        .any(|event| serde_json::to_value(event).unwrap()["data"]["decision"] == "triggered");
    assert!(triggered);
}

#[tokio::test(start_paused = true)]
async fn x_034_an_unknown_tool_is_refused_and_the_run_goes_on() {
    let ran = World::new(vec![call("nope", json!({})), report("ok")]).run().await;
    assert_eq!(ran.results(2), ["(tool failed: Unknown tool: nope)"]);
    assert_eq!((ran.detail(), ran.outcome.turns), ("completed", 2));
}

#[tokio::test(start_paused = true)]
async fn x_035_the_fourth_same_action_is_refused_and_the_fifth_ends_the_session() {
    let ran = World::new(vec![call("echo", json!({ "same": 1 }))]).run().await;
    assert_eq!(ran.runs("echo"), 3);
    assert_eq!(ran.detail(), "loop_detected");
    assert_eq!(ran.requests.len(), 5);
    assert!(ran.results(5)[3].starts_with("(tool failed: the same call gave the same result"));
}

#[tokio::test(start_paused = true)]
async fn x_035_the_same_call_with_new_results_is_no_loop() {
    let ran = World::new(vec![call("count", json!({}))]).settings(|s| s.max_turns = 8).run().await;
    assert_eq!((ran.runs("count"), ran.detail()), (7, "max_turns_exhausted"));
}

#[tokio::test(start_paused = true)]
async fn a_073_a_078_the_ledger_lines_have_their_fields() {
    let both = Line::Reply(reply("", &[("echo", json!({ "é": 1 }))]));
    let ran = World::new(vec![both, report("ok")]).run().await;
    let line = serde_json::to_value(ran.tool_lines()[0]).unwrap();
    assert_eq!(
        (&line["type"], &line["mcpServer"], &line["command"]),
        (&"tool".into(), &"test".into(), &"echo".into())
    );
    assert_eq!(
        (&line["charactersIn"], &line["charactersOut"], &line["bytesOut"]),
        (&7.into(), &7.into(), &8.into())
    );
    assert_eq!(line["callPath"], "issue-7:initial.issue:echo");
    let line = serde_json::to_value(ran.llm_lines()[0]).unwrap();
    for key in [
        "provider",
        "model",
        "status",
        "latency",
        "timestamp",
        "agentId",
        "txnId",
        "originTxnId",
        "runId",
        "turn",
        "attempt",
        "fingerprint",
    ] {
        assert!(!line[key].is_null(), "{key}");
    }
    assert_eq!((&line["type"], &line["callPath"]), (&"llm".into(), &"issue-7:initial.issue".into()));
    assert_eq!(line["originTxnId"], line["runId"], "A-076");
    assert_eq!(line["costUsd"], 0.000_02, "A-082: 10 in at $1, 5 out at $2 per million");
}

#[tokio::test(start_paused = true)]
async fn a_075_a_082_without_usage_the_tokens_are_null_the_estimate_stands_and_the_cost_is_unknown() {
    let mut silent = reply("", &[("agent__final_report", json!({ "content": "ok" }))]);
    silent.usage = None;
    let ran = World::new(vec![Line::Reply(silent)]).run().await;
    let line = serde_json::to_value(ran.llm_lines()[0]).unwrap();
    assert!(line["tokens"].is_null() && line["costUsd"].is_null());
    assert_eq!(line["costSource"], "unknown");
    assert!(line["estimated"]["inputTokens"].as_u64().unwrap() > 0);
    let warned =
        ran.events.iter().filter(|e| matches!(e, Event::Warned(w) if w.code == "cost_unknown")).count();
    assert_eq!(warned, 1);
}

#[tokio::test(start_paused = true)]
async fn a_082_tokens_that_have_a_price_are_not_free_because_a_router_reports_a_cost_of_zero() {
    for (reported, source, cost) in [(0, "table", 0.000_02), (7, "reported", 0.000_007)] {
        let mut told = reply("", &[("agent__final_report", json!({ "content": "ok" }))]);
        told.cost = Some(Money::from_micros(reported));
        let ran = World::new(vec![Line::Reply(told)]).run().await;
        let line = serde_json::to_value(ran.llm_lines()[0]).unwrap();
        assert_eq!((&line["costSource"], &line["costUsd"]), (&json!(source), &json!(cost)), "{line}");
    }
}
