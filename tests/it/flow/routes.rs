//! Intents and where they lead: E01 to E10.

use agentd::domain::stop::{StopDetail, StopReason};
use serde_json::json;

use super::world::{Flow, because, open_schemas, says};
use crate::session::world::{Line, call, report_json};

#[tokio::test]
async fn e01_next_handoff_and_closing_visit_the_steps_in_the_registrys_order() {
    let ended = Flow::f0(vec![says("next"), says("handoff"), says("closing")]).await.run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "continuation.a", "closure.a"]);
    assert_eq!(ended.end.completion_reason.as_deref(), Some("the flow reached its end"));
    assert_eq!(ended.requests.len(), 3, "one request a visit");
}

#[tokio::test]
async fn e02_a_repeated_step_resolves_its_prompt_anew() {
    let script = ["repeat", "repeat", "repeat", "handoff", "closing"].map(says);
    let flow = Flow::f0(script.into()).await.registry(|registry| {
        registry["steps"]["initial.a"]["uvVariables"] = json!(["iteration", "step_iteration"]);
    });
    let ended = flow.prompt("initial.a", "Try {uv-step_iteration}, visit {uv-iteration}.").run().await;
    assert_eq!(ended.succeeded().steps()[..4], ["initial.a"; 4]);
    for visit in 1..=4 {
        assert!(
            ended.asked(visit).starts_with(&format!("Try {visit}, visit {visit}.")),
            "{}",
            ended.asked(visit)
        );
    }
}

#[tokio::test]
async fn e02_the_target_of_repeat_is_honoured() {
    let script = ["next", "repeat", "handoff", "closing"].map(says);
    let ended = Flow::f0(script.into()).await.run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "continuation.a", "initial.a", "closure.a"]);
}

fn jump(target: serde_json::Value) -> Line {
    report_json(json!({"next_action": {"action": "jump", "details": {"target": target}}}))
}

async fn jumping(script: Vec<Line>) -> Flow {
    let flow = Flow::f0(script).await.registry(|registry| {
        registry["steps"]["initial.a"]["structuredGate"]["allowedIntents"] = json!(["jump"]);
        registry["steps"]["initial.a"]["transitions"] = json!({"jump": {"target": "continuation.a"}});
    });
    open_schemas(&flow.project);
    flow.project.json("schemas/s.schema.json", |schema| {
        schema["initial.a"]["properties"]["next_action"]["properties"]["action"]["enum"] = json!(["jump"]);
    });
    flow
}

#[tokio::test]
async fn e03_a_jump_goes_to_its_target_or_where_the_transition_says() {
    let ended = jumping(vec![jump(json!("closure.a")), says("closing")]).await.run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "closure.a"]);
    let ended = jumping(vec![jump(json!("")), says("handoff"), says("closing")]).await.run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "continuation.a", "closure.a"]);
    let ended = jumping(vec![jump(json!("nowhere"))]).await.run().await;
    ended.failed(StopDetail::InvalidModelOutput, "SR-TRANS-010");
}

#[tokio::test]
async fn e04_aliases_count_in_the_flow_and_in_the_closure() {
    let ended = Flow::f0(vec![says("continue"), says("FAIL"), says(" Pass "), says("handoff"), says("done")])
        .await
        .run()
        .await;
    let steps = ["initial.a", "continuation.a", "initial.a", "continuation.a", "closure.a"];
    assert_eq!(ended.succeeded().steps(), steps);
    assert_eq!(ended.visits[4].verdict, "closing");
    assert!(ended.warned("output_normalised").is_some_and(|text| text.contains("continue")));
}

#[tokio::test]
async fn e05_an_intent_that_is_not_allowed_fails_or_falls_back_with_a_warning() {
    let flow = Flow::f0(vec![says("closing")]).await;
    open_schemas(&flow.project);
    // The model is told, twice; the output's schema does not know the word either, which is what the run ends with.
    let ended = flow.run().await;
    ended.failed(
        StopDetail::SchemaInvalid,
        "GATE_INTERPRETATION_ERROR: step \"initial.a\" does not allow the intent \"closing\"",
    );
    assert!(ended.requests.len() >= 3, "it may correct itself twice");
    assert!(ended.asked(2).contains("allowed: next, repeat, handoff"), "{}", ended.asked(2));
    let flow = Flow::f0(vec![says("closing"), says("handoff"), says("closing")]).await.registry(|registry| {
        let gate = &mut registry["steps"]["initial.a"]["structuredGate"];
        gate["failFast"] = json!(false);
        gate["fallbackIntent"] = json!("next");
    });
    let ended = flow.run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "continuation.a", "closure.a"]);
    assert!(
        ended.warned("output_normalised").is_some_and(|text| text.contains("closing")),
        "{:#?}",
        ended.events
    );
}

#[tokio::test]
async fn e06_a_first_visit_without_intent_repeats_and_a_second_one_fails() {
    let nothing = || report_json(json!({"note": "I am not done"}));
    let flow = Flow::f0(vec![nothing(), says("handoff"), says("closing")]).await;
    open_schemas(&flow.project);
    let ended = flow.run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "initial.a", "closure.a"]);
    let flow = Flow::f0(vec![nothing(), nothing()]).await;
    open_schemas(&flow.project);
    let ended = flow.run().await;
    ended.failed(StopDetail::InvalidModelOutput, "FAILED_STEP_ROUTING");
    assert_eq!(ended.visits.len(), 2);
}

#[tokio::test]
async fn e07_a_wrong_step_id_is_corrected_with_a_warning() {
    let wrong = report_json(json!({"stepId": "initial.z", "next_action": {"action": "handoff"}}));
    let flow = Flow::f0(vec![wrong, says("closing")]).await;
    open_schemas(&flow.project);
    let ended = flow.run().await;
    assert_eq!(ended.succeeded().visits[0].output["stepId"], "initial.a");
    let told = ended.warned("output_normalised").unwrap();
    assert!(told.contains("AGENT_STEP_ID_MISMATCH") && told.contains("initial.z"), "{told}");
}

#[tokio::test]
async fn e08_objects_and_fields_of_the_same_name_reach_the_next_prompt() {
    let output = json!({"a": {"note": {"x": [1, 2]}}, "b": {"note": "text"}, "rest": true,
        "next_action": {"action": "handoff"}});
    let flow = Flow::f0(vec![report_json(output), says("closing")]).await.registry(|registry| {
        registry["steps"]["initial.a"]["structuredGate"]["handoffFields"] = json!(["a.note", "b.note"]);
        registry["steps"]["closure.a"]["inputs"] = json!({
            "one": {"from": "initial.a.a_note"}, "two": {"from": "initial.a.b_note"}, "all": {"from": "initial.a.rest"}});
    });
    open_schemas(&flow.project);
    let names = "{uv-initial_a_a_note} {uv-initial_a_b_note} {uv-initial_a_rest}";
    let ended = flow.prompt("closure.a", names).run().await;
    assert!(ended.succeeded().asked(2).starts_with("{\"x\":[1,2]} text true"), "{}", ended.asked(2));
}

/// F0 whose closing step needs a height from its first.
async fn needing_a_height(script: Vec<Line>) -> Flow {
    let flow = Flow::f0(script).await.registry(|registry| {
        registry["steps"]["closure.a"]["inputs"] =
            json!({"height": {"from": "initial.a.height", "required": true}});
    });
    open_schemas(&flow.project);
    flow.prompt("closure.a", "It is {uv-initial_a_height} high.")
}

#[tokio::test]
async fn e09_a_handoff_that_lacks_an_input_sends_its_step_back_once() {
    let with = report_json(json!({"height": 3, "next_action": {"action": "handoff"}}));
    let ended = needing_a_height(vec![says("handoff"), with, says("closing")]).await.run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "initial.a", "closure.a"]);
    assert!(ended.asked(3).starts_with("It is 3 high."));
}

#[tokio::test]
async fn x_038_an_invalid_handoff_is_rejected_tried_once_more_and_then_the_run_fails() {
    let ended = needing_a_height(vec![says("handoff"), says("handoff")]).await.run().await;
    ended.failed(StopDetail::SchemaInvalid, "MissingRequiredInput");
    assert_eq!(ended.end.stop.reason(), StopReason::SystemError);
    assert_eq!(ended.steps(), ["initial.a", "initial.a"], "once, not more");
    assert!(ended.warned("handoff_incomplete").is_some());
    let told = ended.asked(2);
    assert!(told.starts_with("Your last handoff to \"closure.a\" was rejected"), "{told}");
    assert!(told.contains("\"height\""), "{told}");
    // A process that dies in between does not grant another try, and the step still hears why.
    let finished = ended.visits[..1].to_vec();
    let flow = needing_a_height(vec![says("handoff")]).await.with(|flow| flow.finished = finished);
    let ended = flow.run().await;
    ended.failed(StopDetail::SchemaInvalid, "MissingRequiredInput");
    assert!(ended.asked(1).starts_with("Your last handoff"), "{}", ended.asked(1));
}

#[tokio::test]
async fn e10_an_abort_fails_from_every_kind_and_keeps_its_reason() {
    // F0 names `abort` nowhere, neither in its gates nor in its schemas.
    for (before, fail_fast) in [(None, true), (Some("next"), true), (Some("handoff"), true), (None, false)] {
        let visits = 1 + usize::from(before.is_some());
        let script = before.map(says).into_iter().chain([because("abort", "it cannot be done")]);
        let flow = Flow::f0(script.collect()).await.registry(|registry| {
            registry["steps"]["initial.a"]["structuredGate"]["failFast"] = json!(fail_fast);
        });
        let ended = flow.run().await;
        ended.failed(StopDetail::AgentAborted, "it cannot be done");
        assert_eq!((ended.visits.len(), ended.requests.len()), (visits, visits));
        assert_eq!(ended.visits.last().unwrap().verdict, "abort");
    }
}

#[tokio::test]
async fn e25_a_verification_step_that_writes_is_denied() {
    let script = vec![
        says("next"),
        call("write_file", json!({"path": "a.txt", "content": "changed"})),
        call("run_command", json!({"argv": ["sh", "-c", "echo changed > a.txt"]})),
        call("run_command", json!({"argv": ["cat", "a.txt"]})),
        says("next"),
        says("closing"),
    ];
    let flow = Flow::f0(script).await.registry(|registry| {
        let step = &mut registry["steps"]["continuation.a"];
        step["stepKind"] = json!("verification");
        step["structuredGate"]["allowedIntents"] = json!(["next"]);
        step["transitions"] = json!({"next": {"target": "closure.a"}});
    });
    flow.project.json("schemas/s.schema.json", |schema| {
        schema["continuation.a"]["properties"]["next_action"]["properties"]["action"]["enum"] =
            json!(["next"]);
    });
    let ended = flow.with(|flow| flow.verify = vec![vec!["cat".into(), "a.txt".into()]]).run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "continuation.a", "closure.a"]);
    let content = std::fs::read_to_string(ended.ground.repo.join("a.txt").as_path()).unwrap();
    assert!(content.starts_with("one\n"), "nothing was written: {content}");
    let seen = serde_json::to_string(&ended.requests[4].messages).unwrap();
    assert_eq!(seen.matches("only plans").count(), 2, "both are denied, the verify command is not: {seen}");
    assert!(seen.contains("three"), "{seen}");
}

#[tokio::test]
async fn a_handoff_that_the_policy_denies_softly_again_and_again_is_a_loop() {
    let denies = |rules: &str| {
        let rules = rules.to_owned();
        move |flow: &mut Flow| flow.world.policy = format!("{}{rules}", flow.world.policy)
    };
    let soft = "[[rule]]\nid = \"not-yet\"\nkind = \"handoff\"\nname = \"closure.a\"\neffect = \"deny\"\nreason = \"later\"\n\
                public_reason = \"Not yet.\"\ndeny_mode = \"tool_result\"\n";
    let flow = Flow::f0(["handoff"; 5].map(says).into()).await.with(denies(soft));
    let ended = flow.run().await;
    assert_eq!(ended.end.stop.detail, StopDetail::LoopDetected, "{:?}", ended.end);
    assert_eq!(ended.steps(), ["initial.a"; 3], "three times, not until the visits are used up");
    assert!(ended.end.stop.message.contains("closure.a"), "{:?}", ended.end.stop);
    assert!(ended.warned("handoff_denied").is_some());
    assert!(ended.asked(2).starts_with("Your last handoff"), "{}", ended.asked(2));
}
