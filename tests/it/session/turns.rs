//! Turns, attempts, tool caps (A-001…A-012).

use serde_json::json;

use super::world::{World, call, calls, dropped, empty, report, server_error, text};

#[tokio::test(start_paused = true)]
async fn a_001_a_004_a_037_turns_are_a_ceiling_and_using_them_up_gives_a_synthetic_failure() {
    let ran = World::new(vec![call("echo", json!({ "n": 1 })), call("echo", json!({ "n": 2 }))])
        .settings(|settings| {
            settings.max_turns = 3;
            settings.max_retries = 1;
        })
        .run()
        .await;
    assert_eq!(ran.requests.len(), 3);
    assert_eq!(ran.detail(), "max_turns_exhausted");
    assert_eq!(ran.metadata()["reason"], "max_turns_exhausted");
    assert_eq!(ran.outcome.failure.as_ref().unwrap().error_name, "MaxTurnsExceeded", "P-042");
    let conversation = ran.conversation();
    let said =
        conversation["messages"].as_array().unwrap().iter().filter(|m| m["role"] == "assistant").count();
    assert!(said <= 3, "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_002_a_turn_is_a_reply_and_its_tool_phase() {
    let ran =
        World::new(vec![calls(&[("echo", json!({})), ("count", json!({}))]), report("done")]).run().await;
    let turns: Vec<u32> = ran.tool_lines().iter().map(|entry| entry.turn).collect();
    assert_eq!(turns, [1, 1]);
    assert_eq!(ran.outcome.turns, 2);
}

#[tokio::test(start_paused = true)]
async fn a_003_retries_do_not_count_as_turns() {
    let script = vec![server_error(), server_error(), call("echo", json!({})), server_error(), report("ok")];
    let ran = World::new(script).settings(|settings| settings.max_turns = 2).run().await;
    assert_eq!((ran.outcome.turns, ran.requests.len()), (2, 5));
    assert_eq!(ran.content(), "ok");
}

#[tokio::test(start_paused = true)]
async fn a_005_last_turn_offers_only_the_final_report() {
    let ran = World::new(vec![call("count", json!({}))])
        .settings(|settings| {
            settings.max_turns = 2;
            settings.max_retries = 1;
        })
        .run()
        .await;
    assert_eq!(
        ran.offered(1),
        ["echo", "count", "big", "sleep", "fail", "tool_output", "agent__task_status", "agent__final_report"]
    );
    assert_eq!(ran.offered(2), ["agent__final_report"]);
    assert_eq!(ran.runs("count"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_006_a_007_calls_beyond_the_cap_do_not_run_and_the_model_is_told() {
    let four =
        calls(&[("count", json!({})), ("count", json!({})), ("count", json!({})), ("count", json!({}))]);
    let ran = World::new(vec![four, report("ok")])
        .settings(|settings| settings.max_tool_calls_per_turn = 2)
        .run()
        .await;
    assert_eq!(ran.runs("count"), 2);
    let told = "(tool failed: per-turn tool limit exceeded)";
    assert_eq!(ran.results(2), ["1", "2", told, told]);
}

#[tokio::test(start_paused = true)]
async fn a_008_a_malformed_call_takes_no_seat_of_the_cap() {
    let script =
        vec![calls(&[("count", json!("{\"a\":")), ("count", json!({})), ("count", json!({}))]), report("ok")];
    let ran = World::new(script).settings(|settings| settings.max_tool_calls_per_turn = 2).run().await;
    assert_eq!(ran.runs("count"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_009_one_attempt_means_no_retry() {
    let ran = World::new(vec![server_error()]).settings(|settings| settings.max_retries = 1).run().await;
    assert_eq!(ran.requests.len(), 1);
    assert_eq!(ran.detail(), "llm_unavailable");
    let none = World::new(vec![text("x")]).settings(|settings| settings.max_retries = 0).run().await;
    assert_eq!((none.requests.len(), none.detail()), (0, "config_invalid"));
}

#[tokio::test(start_paused = true)]
async fn a_010_three_attempts_are_the_first_and_two_more() {
    let script = || vec![server_error(), server_error(), report("ok")];
    let three = World::new(script()).run().await;
    assert_eq!((three.requests.len(), three.detail()), (3, "completed"));
    let two = World::new(script()).settings(|settings| settings.max_retries = 2).run().await;
    assert_eq!((two.requests.len(), two.detail()), (2, "llm_unavailable"));
}

#[tokio::test(start_paused = true)]
async fn a_011_a_079_attempts_cycle_through_the_targets() {
    let ran = World::new(vec![server_error()]).targets(&["a", "b"]).run().await;
    assert_eq!(ran.models(), ["a", "b", "a"]);
    assert_eq!(ran.llm_lines().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_011_a_turn_begins_with_the_first_target_again() {
    let script = vec![server_error(), call("echo", json!({})), report("ok")];
    let ran = World::new(script).targets(&["a", "b"]).run().await;
    assert_eq!(ran.models(), ["a", "b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn a_012_exhaustion_by_the_model_forces_one_final_turn_by_transport_it_ends() {
    let ran = World::new(vec![empty(), empty(), empty(), report("ok")]).run().await;
    assert_eq!(ran.detail(), "completed_forced_final");
    assert_eq!(serde_json::to_value(ran.outcome.forced_final).unwrap(), "retry_exhaustion");
    assert_eq!(ran.offered(4), ["agent__final_report"]);
    let cut = World::new(vec![dropped()]).run().await;
    assert_eq!((cut.requests.len(), cut.detail()), (3, "llm_unavailable"));
}

#[tokio::test(start_paused = true)]
async fn a_012_a_model_that_stays_unusable_ends_after_its_forced_final_turn() {
    let ran = World::new(vec![empty()]).run().await;
    assert_eq!((ran.requests.len(), ran.detail()), (6, "invalid_model_output"));
}
