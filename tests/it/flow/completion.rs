//! Completion conditions, each with gated steps: E15 to E18.

use agentd::domain::stop::StopDetail;
use serde_json::{Value, json};

use super::world::{Flow, open_schemas, says};
use crate::session::world::{Line, report_json, text};

async fn gated(verdict: Value, script: Vec<Line>) -> Flow {
    let flow = Flow::f0(script).await.agent(|agent| agent["runner"]["verdict"] = verdict);
    open_schemas(&flow.project);
    flow
}

fn next_saying(summary: &str) -> Line {
    report_json(json!({"summary": summary, "next_action": {"action": "next"}}))
}

#[tokio::test]
async fn e15_a_composite_of_any_all_and_first_ends_as_soon_as_it_can() {
    let parts = json!([
        {"type": "count:iteration", "config": {"maxIterations": 3}},
        {"type": "detect:keyword", "config": {"verdictKeyword": "ALL_GREEN"}}
    ]);
    let of = |operator: &str| json!({"type": "meta:composite", "config": {"operator": operator, "conditions": parts.clone()}});
    let script = || vec![next_saying("not yet"), next_saying("ALL_GREEN"), next_saying("again ALL_GREEN")];
    for (operator, visits, reason) in
        [("or", 2, "ALL_GREEN"), ("first", 2, "condition 2"), ("and", 3, "3 of 3")]
    {
        let ended = gated(of(operator), script()).await.run().await;
        assert_eq!(ended.succeeded().visits.len(), visits, "{operator}");
        let told = ended.end.completion_reason.clone().unwrap();
        assert!(told.contains(reason), "{operator}: {told}");
    }
}

#[tokio::test]
async fn e15_what_an_and_wants_may_hold_in_different_visits() {
    let both = json!({"type": "meta:composite", "config": {"operator": "and", "conditions": [
        {"type": "detect:keyword", "config": {"verdictKeyword": "ALL_GREEN"}},
        {"type": "count:iteration", "config": {"maxIterations": 3}}]}});
    let script = vec![next_saying("ALL_GREEN"), next_saying("tidying"), next_saying("tidied")];
    let ended = gated(both, script).await.run().await;
    assert_eq!(ended.succeeded().visits.len(), 3);
    let told = ended.end.completion_reason.clone().unwrap();
    assert!(told.contains("ALL_GREEN (held before)") && told.contains("3 of 3"), "{told}");
}

#[tokio::test]
async fn e16_a_keyword_counts_where_the_model_says_it_and_not_where_it_repeats_the_prompt() {
    let verdict =
        json!({"type": "detect:keyword", "config": {"verdictKeyword": "ALL_GREEN", "maxIterations": 3}});
    let echo = report_json(
        json!({"prompt_echo": "ALL_GREEN", "summary": "say `ALL_GREEN` when done", "next_action": {"action": "next"}}),
    );
    let ended = gated(verdict.clone(), vec![echo.clone(), next_saying("done: ALL_GREEN")]).await.run().await;
    assert_eq!(ended.succeeded().visits.len(), 2);
    let ended = gated(verdict, vec![echo]).await.run().await;
    ended.failed(StopDetail::MaxIterations, "3 iterations");
}

#[tokio::test]
async fn e17_an_iteration_budget_completes_gated_steps() {
    let ended = gated(json!({"type": "count:iteration", "config": {"maxIterations": 3}}), vec![says("next")])
        .await
        .run()
        .await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "continuation.a", "continuation.a"]);
    let ended = gated(json!({"type": "checkBudget", "config": {"maxChecks": 2}}), vec![says("next")])
        .await
        .run()
        .await;
    assert_eq!(ended.succeeded().visits.len(), 2);
}

#[tokio::test]
async fn e17_a_last_visit_that_wants_to_be_done_again_is_no_success() {
    let verdict = json!({"type": "count:iteration", "config": {"maxIterations": 1}});
    let ended = gated(verdict, vec![says("repeat")]).await.run().await;
    ended.failed(StopDetail::MaxIterations, "1 iteration is reached");
}

#[tokio::test]
async fn e17_a_structured_signal_completes_gated_steps() {
    let verdict =
        json!({"type": "structuredSignal", "config": {"signalType": "ready", "requiredFields": ["proof"]}});
    let signal = |with: Value| report_json(with);
    let ended = gated(
        verdict,
        vec![
            signal(json!({"signal": "ready", "next_action": {"action": "next"}})),
            signal(json!({"signal": "ready", "proof": "x", "next_action": {"action": "next"}})),
        ],
    )
    .await
    .run()
    .await;
    assert_eq!(ended.succeeded().visits.len(), 2);
}

#[tokio::test]
async fn e18_the_definitions_own_limit_fails_the_run_with_every_visit_on_record() {
    let verdict = json!({"type": "detect:graph", "config": {"maxIterations": 3}});
    let ended =
        gated(verdict, vec![next_saying("one"), next_saying("two"), next_saying("three")]).await.run().await;
    ended.failed(StopDetail::MaxIterations, "limit of 3 iterations");
    let summaries: Vec<&str> = ended.visits.iter().map(|visit| visit.summary.as_str()).collect();
    assert_eq!(summaries, ["one", "two", "three"]);
}

#[tokio::test]
async fn d22_a_linear_flow_completes_by_its_keyword() {
    let flow = Flow::f0(vec![text("working on it"), text("TASK_COMPLETE")])
        .await
        .agent(|agent| agent["runner"]["verdict"] = json!({"type": "manual", "config": {}}))
        .registry(|registry| {
            for (_, step) in registry["steps"].as_object_mut().unwrap() {
                for key in ["structuredGate", "transitions", "outputSchemaRef"] {
                    step.as_object_mut().unwrap().remove(key);
                }
            }
        })
        .with(|flow| flow.world.settings.max_turns = 1);
    let ended = flow.run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "continuation.a"]);
}
