//! The ledger and what stands beside it: who really answered, where a line belongs, what is kept (A-065…A-086, C-01, C-16).

use agentd::domain::canonical::sha256_hex;
use agentd::domain::event::Event;
use agentd::domain::message::{Message, TokenUsage};
use agentd::domain::money::Money;
use agentd::engine::model::ModelReply;
use serde_json::{Value, json};

use super::world::{Does, Line, SECRET, TestTool, World, call, calls, day_cap, reply, report, server_error};

fn ledger(ran: &super::world::Ran) -> Vec<Value> {
    ran.llm_lines()
        .into_iter()
        .chain(ran.tool_lines())
        .map(|line| serde_json::to_value(line).unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_074_who_was_asked_and_who_answered_both_stand_in_the_line() {
    let routed = ModelReply {
        actual_provider: Some("elsewhere".to_owned()),
        actual_model: Some("m-2026".to_owned()),
        ..reply("", &[("agent__final_report", json!({ "content": "ok" }))])
    };
    let ran = World::new(vec![Line::Reply(routed)]).run().await;
    let line = &ledger(&ran)[0];
    assert_eq!((&line["provider"], &line["model"]), (&json!("fake"), &json!("m")));
    assert_eq!((&line["actualProvider"], &line["actualModel"]), (&json!("elsewhere"), &json!("m-2026")));
}

#[tokio::test(start_paused = true)]
async fn a_076_c_01_every_line_says_where_it_belongs() {
    let script = vec![server_error(), call("echo", json!({})), report("ok")];
    let ran = World::new(script).run().await;
    let lines = ledger(&ran);
    let (run, session) = (uuid::Uuid::from_u128(7).to_string(), uuid::Uuid::from_u128(8).to_string());
    for line in &lines {
        assert_eq!((&line["txnId"], &line["parentTxnId"]), (&json!(session), &json!(run)), "{line}");
        assert_eq!((&line["originTxnId"], &line["runId"]), (&json!(run), &json!(run)), "{line}");
        assert_eq!((&line["agentId"], &line["stepId"]), (&json!("resolver"), &json!("initial.issue")));
    }
    let place = |line: &Value| (line["turn"].as_u64().unwrap(), line["attempt"].as_u64());
    let places: Vec<_> = lines.iter().map(place).collect();
    assert_eq!(places, [(1, Some(1)), (1, Some(2)), (2, Some(1)), (1, None)], "attempt ⊂ turn ⊂ session");
    assert_eq!(lines[0]["callPath"], "issue-7:initial.issue");
    assert_eq!(lines[3]["callPath"], "issue-7:initial.issue:echo");
    assert_eq!((ran.outcome.turns, ran.outcome.attempts), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn a_065_a_081_times_are_milliseconds_and_every_line_has_its_latency() {
    let script = vec![calls(&[("sleep", json!({ "ms": 700 })), ("fail", json!({}))]), report("ok")];
    let ran = World::new(script).run().await;
    let ts = ran.outcome.report.ts;
    assert!((1_700_000_000_700..1_700_000_002_000).contains(&ts), "{ts}");
    for line in ledger(&ran) {
        assert!(line["latency"].is_u64(), "{line}");
        assert!(line["timestamp"].as_i64().unwrap() >= 1_700_000_000_000, "{line}");
    }
    let slept = ledger(&ran).into_iter().find(|line| line["command"] == "sleep").unwrap();
    assert!((700..800).contains(&slept["latency"].as_u64().unwrap()), "{slept}");
}

#[tokio::test(start_paused = true)]
async fn a_077_a_080_what_did_not_run_has_no_line_and_what_failed_has_one() {
    let world = World::new(vec![
        calls(&[("echo", json!({})), ("fail", json!({})), ("crash", json!({})), ("nope", json!({}))]),
        report("ok"),
    ]);
    let ran = world.tool(TestTool::new("crash", Does::Panics)).run().await;
    let lines: Vec<(Value, Value)> = ran
        .tool_lines()
        .iter()
        .map(|line| serde_json::to_value(line).unwrap())
        .map(|line| (line["command"].clone(), line["status"].clone()))
        .collect();
    let of = |command: &str| lines.iter().find(|line| line.0 == command).map(|line| line.1.as_str().unwrap());
    assert_eq!(
        (of("echo"), of("fail"), of("crash"), of("nope")),
        (Some("ok"), Some("failed"), Some("failed"), None)
    );
}

#[tokio::test(start_paused = true)]
async fn a_086_a_087_a_084_results_follow_their_calls_as_content_or_failure() {
    let script = vec![calls(&[("echo", json!({ "a": 1 })), ("fail", json!({}))]), report("ok")];
    let ran = World::new(script).run().await;
    assert_eq!(ran.results(2), ["{\"a\":1}", "(tool failed: boom)"]);
    let Message::Assistant { tool_calls, .. } = &ran.requests[1].messages[2] else { panic!("no assistant") };
    let answered: Vec<&str> = ran.requests[1]
        .messages
        .iter()
        .skip(3)
        .map(|message| match message {
            Message::Tool { tool_call_id, .. } => tool_call_id.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(answered, tool_calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_017_every_evaluation_of_the_guard_adds_up() {
    let script =
        vec![calls(&[("big", json!({ "bytes": 3000 })), ("big", json!({ "bytes": 900 }))]), report("ok")];
    let ran = World::new(script).run().await;
    let mut seen = 0;
    for event in &ran.events {
        if let Event::ContextGuard(guard) = event {
            seen += 1;
            assert_eq!(guard.projected, guard.current + guard.pending + guard.new + guard.schema);
        }
    }
    assert!(seen >= 2, "one for each request");
}

#[tokio::test(start_paused = true)]
async fn c_16_what_is_stored_was_redacted_when_it_was_captured() {
    let world = World::new(vec![call("leak", json!({})), report("ok")])
        .tool(TestTool::new("leak", Does::Leaks))
        .settings(|settings| settings.tool_response_max_bytes = 10);
    let ran = world.run().await;
    let (path, bytes) = ran.files.iter().find(|(path, _)| path.starts_with("tool-output/")).unwrap();
    let stored = String::from_utf8_lossy(bytes);
    assert!(stored.starts_with("token=[redacted:operator:") && !stored.contains(SECRET), "{path}: {stored}");
    let told: Value = serde_json::from_str(ran.results(2)[0].lines().next().unwrap()).unwrap();
    assert_eq!((&told["sha256"], &told["bytes"]), (&json!(sha256_hex(bytes)), &json!(bytes.len())));
}

#[tokio::test(start_paused = true)]
async fn c_08_a_spent_budget_wins_over_a_forced_final_turn() {
    let dear = ModelReply { cost: Some(Money::from_micros(11_000_000)), ..reply("", &[("echo", json!({}))]) };
    let ran = World::new(vec![Line::Reply(dear)]).settings(|settings| settings.max_turns = 2).run().await;
    assert_eq!((ran.detail(), ran.requests.len(), ran.runs("echo")), ("max_cost", 1, 0));
    // The context alone only forces the report: the session may still succeed.
    let long = Message::User { content: "x".repeat(20_000) };
    let full = World::new(vec![report("ok")]).with(|world| world.opening = vec![long]).settings(|settings| {
        settings.targets[0].context_window = 4000;
        settings.targets[0].max_output_tokens = 500;
    });
    assert_eq!(full.run().await.detail(), "completed_forced_final");
}

#[tokio::test]
async fn d87_a_session_sets_each_requests_worst_case_aside_and_settles_it() {
    let folder = tempfile::tempdir().unwrap();
    let caps = || day_cap(folder.path(), Money::from_micros(100_000));
    let cap = caps();
    let now = chrono::DateTime::from_timestamp_millis(1_700_000_000_000).unwrap();
    let world = |script| World::new(script).with(|world| world.caps = [caps()].into_iter().collect());
    let ran = world(vec![server_error(), call("echo", json!({})), report("ok")])
        .settings(|settings| settings.max_retries = 2)
        .with(|world| world.backoff_first = std::time::Duration::from_millis(1))
        .run()
        .await;
    assert_eq!(ran.detail(), "completed");
    assert_eq!(cap.used(now).unwrap(), ran.outcome.cost, "a refused request costs nothing");
    // What is left does not cover the shortest reply: nothing is asked.
    let held = cap.reserve(Money::from_micros(96_000), now).unwrap();
    let soon = std::time::Duration::from_millis(50);
    let ran = world(vec![report("ok")]).settings(|settings| settings.llm_timeout = soon).run().await;
    assert_eq!((ran.detail(), ran.requests.len()), ("max_cost", 0));
    cap.confirm(&held, Money::ZERO).unwrap();
    // A request that was given up may have cost what it could.
    let before = cap.used(now).unwrap();
    let ran = world(vec![Line::Hang]).settings(|settings| {
        settings.max_retries = 1;
        settings.llm_timeout = std::time::Duration::from_millis(20);
    });
    assert_eq!(ran.run().await.detail(), "llm_unavailable");
    assert!(
        cap.used(now).unwrap() > before + Money::from_micros(32_000),
        "the longest reply alone is that much"
    );
}

#[tokio::test(start_paused = true)]
async fn a_072_what_a_reply_that_broke_off_had_cost_is_counted_and_ends_the_run_at_its_cap() {
    let dear = |tokens| Line::BreaksOff(Some(TokenUsage::new(tokens, 1, 0, 0)), 0);
    let ran = World::new(vec![dear(100_000), report("ok")]).run().await;
    assert_eq!(ran.detail(), "completed");
    let lines = ledger(&ran);
    assert_eq!((&lines[0]["status"], &lines[0]["brokeOff"]), (&json!("failed"), &json!(true)), "{lines:#?}");
    assert_eq!(lines[0]["tokens"]["inputTokens"], 100_000, "{lines:#?}");
    assert!(ran.outcome.cost > Money::from_micros(100_000), "{:?}", ran.outcome.cost);
    // What nobody has counted is unknown, and counts as estimated.
    let ran = World::new(vec![Line::BreaksOff(None, 0), report("ok")]).run().await;
    assert!(ran.outcome.cost_unknown);
    assert!(ledger(&ran)[0]["estimated"].is_object(), "{:#?}", ledger(&ran));
    let ran = World::new(vec![dear(40_000_000)]).run().await;
    assert_eq!((ran.detail(), ran.requests.len()), ("max_cost", 1));
    // What was counted at its beginning is not what was written by the time it broke off.
    let begun = Line::BreaksOff(Some(TokenUsage::new(2_000, 1, 0, 0)), 16_000);
    let ran = World::new(vec![begun.clone(), report("ok")]).run().await;
    let line = &ledger(&ran)[0];
    assert_eq!(
        (&line["tokens"], &line["estimated"]["outputTokens"]),
        (&json!(null), &json!(16_000)),
        "{line:#}"
    );
    assert!(ran.outcome.cost_unknown);
    let folder = tempfile::tempdir().unwrap();
    let cap = day_cap(folder.path(), Money::from_micros(100_000));
    let ran = World::new(vec![begun]).settings(|settings| settings.max_retries = 5);
    let ran = ran.with(|world| world.caps = [cap].into_iter().collect()).run().await;
    assert_eq!((ran.detail(), ran.requests.len() < 5), ("max_cost", true), "{}", ran.requests.len());
}
