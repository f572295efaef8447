//! The gate: decisions before executions, soft and hard denials, handoffs (P-001…P-022, C-03, C-04).

use agentd::domain::event::Event;
use agentd::domain::policy::PolicyDecision;
use serde_json::{Value, json};

use super::world::{ALLOW_ALL, Ran, World, call, calls, report};

fn rule(id: &str, name: &str, effect: &str, more: &str) -> String {
    format!(
        "[[rule]]\nid = \"{id}\"\nkind = \"tool\"\nname = \"{name}\"\neffect = \"{effect}\"\nreason = \"{id}\"\n{more}\n"
    )
}

fn decisions(ran: &Ran) -> Vec<&PolicyDecision> {
    ran.events
        .iter()
        .filter_map(|event| match event {
            Event::PolicyDecided(decision) => Some(&**decision),
            _ => None,
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn p_001_p_002_p_004_without_a_policy_nothing_runs_and_the_session_ends_with_the_typed_error() {
    let ran = World::new(vec![call("count", json!({})), report("x")])
        .with(|world| world.policy.clear())
        .run()
        .await;
    assert_eq!(ran.runs("count"), 0);
    assert_eq!(ran.detail(), "policy_denied");
    assert_eq!(ran.outcome.failure.as_ref().unwrap().error_name, "ToolCallPolicyDenied");
    assert_eq!(decisions(&ran)[0].reason, "policy_not_configured");
    assert_eq!(ran.requests.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn c_03_a_session_that_only_reports_needs_no_policy() {
    let ran = World::new(vec![report("ok")]).with(|world| world.policy.clear()).run().await;
    assert_eq!(ran.detail(), "completed");
    let [decision] = decisions(&ran)[..] else { panic!() };
    assert_eq!(
        (decision.reason.as_str(), decision.policy_version.as_deref()),
        ("protocol_tool", Some("builtin")),
        "P-025"
    );
}

#[tokio::test(start_paused = true)]
async fn p_022_a_hard_denial_leaves_no_half_executed_turn() {
    let policy = rule("never", "fail", "deny", "") + ALLOW_ALL;
    let script = vec![calls(&[("count", json!({})), ("fail", json!({}))]), report("x")];
    let ran = World::new(script).with(|world| world.policy = policy).run().await;
    assert_eq!(ran.runs("count"), 0);
    let reasons: Vec<&str> = decisions(&ran).iter().map(|decision| decision.reason.as_str()).collect();
    assert_eq!(reasons, ["test", "never"]);
    assert_eq!(serde_json::to_value(decisions(&ran)[1].deny_mode).unwrap(), "throw", "P-015");
    assert!(ran.tool_lines().is_empty());
}

#[tokio::test(start_paused = true)]
async fn p_020_p_021_a_soft_denial_answers_with_the_envelope_and_the_run_goes_on() {
    let policy = rule("not_now", "count", "deny", "deny_mode = \"tool_result\"") + ALLOW_ALL;
    let ran = World::new(vec![call("count", json!({})), report("ok")])
        .with(|world| world.policy = policy)
        .run()
        .await;
    assert_eq!(ran.runs("count"), 0);
    let envelope: Value = serde_json::from_str(ran.results(2)[0]).unwrap();
    let expected =
        json!({ "status": "denied", "code": "not_now", "publicReason": "Action not allowed.", "data": null });
    assert_eq!(envelope, expected);
    assert_eq!(ran.detail(), "completed");
    assert!(ran.tool_lines().is_empty(), "A-077: a denial is no execution");
}

#[tokio::test(start_paused = true)]
async fn c_04_x_035_a_model_that_keeps_asking_for_what_is_denied_is_stopped() {
    let policy = rule("not_now", "count", "deny", "deny_mode = \"tool_result\"") + ALLOW_ALL;
    let ran = World::new(vec![call("count", json!({}))]).with(|world| world.policy = policy).run().await;
    assert_eq!((ran.detail(), ran.requests.len()), ("loop_detected", 5));
}

#[tokio::test(start_paused = true)]
async fn p_018_p_030_every_call_has_an_item_and_every_answer_its_envelope() {
    let script = vec![
        calls(&[
            ("count", json!({})),
            ("fail", json!({})),
            ("nope", json!({})),
            ("big", json!({ "bytes": 20_000 })),
        ]),
        report("ok"),
    ];
    let ran = World::new(script).run().await;
    let items: Vec<Value> = ran
        .events
        .iter()
        .filter_map(|event| match event {
            Event::ItemRecorded { item, .. } => Some(serde_json::to_value(item).unwrap()),
            _ => None,
        })
        .collect();
    let kinds: Vec<&str> = items.iter().map(|item| item["type"].as_str().unwrap()).collect();
    let (call, output) = ("tool_call_item", "tool_call_output_item");
    assert_eq!(kinds, ["message", call, call, call, call, output, output, output, output, call, output]);
    for item in items.iter().filter(|item| item["type"] == output) {
        let keys: Vec<&str> = item["output"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["status", "code", "publicReason", "data"]);
    }
    assert_eq!(items[5]["output"]["data"]["status"], "success");
    assert_eq!(items[6]["output"]["data"]["error"], "boom");
    assert_eq!(items[7]["output"]["code"], "unknown_tool");
    assert!(items[8]["output"]["data"]["result"]["handle"].is_string());
    let opened = ran.events.iter().find_map(|event| match event {
        Event::SessionOpened(opened) => Some(opened.input_item_count),
        _ => None,
    });
    assert_eq!(opened, Some(1), "P-039");
}

#[tokio::test(start_paused = true)]
async fn p_035_the_same_call_has_the_same_proposal_hash_whatever_the_order_of_its_members() {
    let script = vec![
        call("echo", json!("{\"a\":1,\"b\":2}")),
        call("echo", json!("{\"b\":2,\"a\":1}")),
        report("ok"),
    ];
    let ran = World::new(script).run().await;
    let hashes: Vec<&str> = decisions(&ran).iter().map(|decision| decision.proposal_hash.as_str()).collect();
    assert_eq!(hashes[0], hashes[1]);
    assert_ne!(hashes[0], hashes[2]);
}
