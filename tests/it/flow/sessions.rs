//! What happens inside a visit's session and what that means for the flow: E11, E20, E23, E24, and D4.

use agentd::domain::message::Message;
use agentd::domain::stop::{Stop, StopDetail};
use serde_json::json;

use super::world::{Flow, says};
use crate::session::world::{limited, roles};

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
