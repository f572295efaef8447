//! What happens inside a visit's session and what that means for the flow: E11, E20, E23, E24, and D4.

use agentd::domain::message::Message;
use agentd::domain::output_schema::ExtractionStrategy;
use agentd::domain::stop::{Stop, StopDetail};
use serde_json::json;

use super::world::{Flow, open_schemas, says};
use crate::session::world::{limited, report, roles, text};

#[tokio::test(start_paused = true)]
async fn e11_a_rate_limit_costs_neither_the_run_nor_a_visit() {
    let ended =
        Flow::f0(vec![says("next"), limited(Some(2)), says("handoff"), says("closing")]).await.run().await;
    assert_eq!(ended.succeeded().visits.len(), 3);
    assert_eq!((ended.requests.len(), ended.visits[1].attempts), (4, 2));
}

#[tokio::test]
async fn e20_a_schema_that_cannot_be_resolved_is_an_error_at_load() {
    let flow = Flow::f0(vec![]).await;
    std::fs::remove_file(flow.project.agent.join("schemas/s.schema.json")).unwrap();
    let found = flow.project.refused_for("FAILED_SCHEMA_RESOLUTION");
    assert_eq!(found.pointer, "/steps/initial.a/outputSchemaRef");
}

#[tokio::test]
async fn e23_a_successor_goes_on_after_the_last_finished_visit() {
    let first = Flow::f0(vec![says("next"), says("handoff"), says("closing")]).await.run().await;
    let second =
        Flow::f0(vec![says("closing")]).await.with(|flow| flow.finished = first.visits[..2].to_vec());
    let second = second.run().await;
    assert_eq!(second.succeeded().steps(), ["closure.a"]);
    assert_eq!(second.visits[0].visit, 3, "the count goes on");
}

#[tokio::test]
async fn e24_stopping_twice_is_stopping_once() {
    let flow = Flow::f0(vec![says("next")]).await;
    flow.world.stop.ask(Stop::new(StopDetail::UserStop, "enough"));
    flow.world.stop.ask(Stop::new(StopDetail::Shutdown, "again"));
    let ended = flow.run().await;
    ended.failed(StopDetail::UserStop, "enough");
    assert!(ended.visits.is_empty() && ended.requests.is_empty());
}

#[tokio::test]
async fn d5_an_output_written_as_text_is_found_by_the_seeds_strategies_and_the_visit_says_by_which() {
    let object = json!({"next_action": {"action": "handoff"}});
    for (said, found) in [
        (format!("I looked.\n```json\n{object}\n```\nBye."), ExtractionStrategy::FencedJson),
        (object.to_string(), ExtractionStrategy::WholeReply),
        (format!("```\n{object}\n```"), ExtractionStrategy::WholeReply),
        (format!("I looked.\nnext_action: {}", object["next_action"]), ExtractionStrategy::KeyValueLines),
    ] {
        for as_text in [true, false] {
            let line = if as_text { text(&said) } else { report(&said) };
            let flow = Flow::f0(vec![line, says("closing")]).await;
            let turns = if as_text { 1 } else { 15 };
            let ended = flow.with(|flow| flow.world.settings.max_turns = turns).run().await;
            assert_eq!(ended.succeeded().steps(), ["initial.a", "closure.a"], "{said}");
            assert_eq!(ended.requests.len(), 2, "nothing is asked twice: {said}");
            assert_eq!(ended.visits[0].output["next_action"], object["next_action"]);
            assert_eq!((ended.visits[0].extraction, ended.visits[1].extraction), (Some(found), None));
        }
    }
}

#[tokio::test]
async fn d5_a_step_without_schema_puts_out_the_object_that_its_text_holds() {
    let script = vec![report("I measured.\n```json\n{\"height\": 4}\n```"), report("Done.")];
    let flow = Flow::f0(script).await.registry(|registry| {
        for (_, step) in registry["steps"].as_object_mut().unwrap() {
            for key in ["structuredGate", "transitions", "outputSchemaRef"] {
                step.as_object_mut().unwrap().shift_remove(key);
            }
        }
        registry["steps"]["continuation.a"]["inputs"] =
            json!({"from_step": "initial.a", "variables": {"initial.a.height": true}});
    });
    let flow = flow.agent(|agent| {
        agent["runner"]["verdict"] = json!({"type": "count:iteration", "config": {"maxIterations": 2}});
    });
    let ended = flow.prompt("continuation.a", "It is {uv-initial_a_height}.").run().await;
    assert_eq!(ended.succeeded().visits[0].extraction, Some(ExtractionStrategy::FencedJson));
    assert!(ended.asked(2).starts_with("It is 4."), "{}", ended.asked(2));
}

#[tokio::test]
async fn e09_an_optional_input_that_the_prompt_needs_fails_the_run_and_is_no_refused_start() {
    let flow = Flow::f0(vec![says("next")]).await.registry(|registry| {
        registry["steps"]["continuation.a"]["inputs"] =
            json!({"x": {"from": "initial.a.note", "required": false}});
    });
    open_schemas(&flow.project);
    flow.project.json("schemas/s.schema.json", |schemas| {
        schemas["initial.a"]["properties"]["note"] = json!({"type": "string"});
    });
    let ended = flow.prompt("continuation.a", "It says {uv-initial_a_note}.").run().await;
    ended.failed(StopDetail::SchemaInvalid, "PR-RESOLVE-005");
}

#[tokio::test]
async fn d4_a_repetition_goes_on_in_its_conversation_only_where_the_definition_says_so() {
    let run = |goes_on: bool| async move {
        let script = ["repeat", "next", "handoff", "closing"].map(says);
        Flow::f0(script.into())
            .await
            .agent(|agent| agent["runner"]["agentd"] = json!({"continueSession": goes_on}))
            .run()
            .await
    };
    let ended = run(true).await;
    assert_eq!(ended.succeeded().steps()[..3], ["initial.a", "initial.a", "continuation.a"]);
    let told: Vec<String> = ended.requests.iter().map(|request| roles(&request.messages)).collect();
    assert_eq!(told, ["SU", "SUATU", "SU", "SU"], "another step begins anew");
    let first = |request: usize| match &ended.requests[request].messages[1] {
        Message::User { content } => content.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(first(0), first(1), "the conversation before is whole");
    let told: Vec<String> =
        run(false).await.requests.iter().map(|request| roles(&request.messages)).collect();
    assert_eq!(told, ["SU", "SU", "SU", "SU"]);
}
