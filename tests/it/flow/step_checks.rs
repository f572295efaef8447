//! The step check: a question after a step's work, and its answer ok or ng.

use agentd::domain::stop::StopDetail;
use serde_json::{Value, json};

use super::world::Flow;
use crate::definition::project::Project;
use crate::session::world::{Line, report, report_json};

/// Two linear steps as the oldest documents write them, a list with prompts and a check.
fn project(on_fail: &Value) -> Project {
    let project = Project::f0();
    project.agent_json(|agent| {
        agent["runner"]["verdict"] = json!({"type": "detect:keyword", "config": {"maxIterations": 8}});
    });
    project.registry(|registry| {
        *registry = json!({"agentId": "f0", "version": "1.0.0", "entryStep": "initial.a", "steps": [
            {"id": "initial.a", "prompt": {"c2": "initial", "c3": "a"}, "check": {
                "prompt": {"c2": "check", "c3": "a"},
                "responseFormat": {"result": "ok|ng"},
                "onPass": {"next": "continuation.a"},
                "onFail": on_fail}},
            {"id": "continuation.a", "prompt": {"c2": "continuation", "c3": "a"}, "check": {
                "prompt": "words/last.md", "onPass": {"complete": true}, "onFail": {"retry": false}}},
            {"id": "repair", "prompt": {"c2": "closure", "c3": "a"}, "next": "continuation.a"}]});
    });
    project.write("prompts/steps/check/a/f_default.md", "Is visit {uv-iteration} well done?");
    project.write("words/last.md", "Is all of it done?");
    project
}

fn answers(result: &str, reason: &str) -> Line {
    report_json(json!({"result": result, "reason": reason}))
}

#[tokio::test]
async fn a_step_check_leads_on_when_it_is_ok_and_ends_the_flow_where_it_says_so() {
    let script = vec![report("first part"), answers("ok", ""), report("second part"), answers("ok", "")];
    let ended = Flow::of(project(&json!({"retry": true})), script).await.run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "continuation.a"]);
    assert_eq!(ended.visits[0].verdict, "ok");
    let asked = ended.asked(2);
    assert!(asked.starts_with("Is visit 1 well done?") && asked.contains("first part"), "{asked}");
    assert!(ended.asked(4).starts_with("Is all of it done?"), "a question may be named by its path");
}

#[tokio::test]
async fn a_step_check_that_says_no_is_heard_and_the_step_tried_again() {
    let script = vec![
        report("x"),
        answers("ng", "too short"),
        report("xx"),
        answers("ok", ""),
        report("y"),
        answers("ok", ""),
    ];
    let ended = Flow::of(project(&json!({"retry": true, "maxRetries": 1})), script).await.run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "initial.a", "continuation.a"]);
    assert!(ended.asked(3).contains("says no: too short"), "{}", ended.asked(3));
}

#[tokio::test]
async fn a_step_check_falls_back_or_fails_when_its_retries_are_used_up() {
    let fallback = json!({"retry": true, "maxRetries": 1, "fallback": "repair"});
    let script = vec![
        report("x"),
        answers("ng", "no"),
        report("x"),
        answers("ng", "no"),
        report("repaired"),
        report("y"),
        answers("ok", ""),
    ];
    let ended = Flow::of(project(&fallback), script).await.run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "initial.a", "repair", "continuation.a"]);
    let script = vec![report("x"), answers("ng", "it is wrong")];
    let ended = Flow::of(project(&json!({"retry": false})), script).await.run().await;
    ended.failed(StopDetail::AgentAborted, "it is wrong");
    // What was turned down is not complete, even where the keyword was said.
    let script = vec![report("TASK_COMPLETE"), answers("ng", "no"), report("x"), answers("ng", "no")];
    let ended = Flow::of(project(&json!({"maxRetries": 1})), script).await.run().await;
    ended.failed(StopDetail::AgentAborted, "no");
}

#[test]
fn a_step_check_that_leads_nowhere_or_has_no_question_is_refused_at_load() {
    let with = |change: fn(&mut Value)| {
        let project = project(&json!({"retry": true}));
        project.registry(|registry| change(&mut registry["steps"][0]["check"]));
        project
    };
    with(|check| check["onPass"] = json!({"next": "nowhere"})).refused_for("SR-TRANS-001");
    with(|check| check["onFail"] = json!({"fallback": "nowhere"})).refused_for("SR-TRANS-001");
    with(|check| check["prompt"]["c3"] = json!("b")).refused_for("PR-C3L-004");
    with(|check| check["prompt"] = json!("words/none.md")).refused_for("PR-C3L-004");
    with(|check| check["prompt"] = Value::Null).refused_for("SR-VALID-004");
    with(|check| check["responseFormat"] = json!({"score": 1})).refused_for("SR-VALID-004");
    let project = with(|_| ());
    project.write("prompts/steps/check/a/f_default.md", "About {uv-nobody}?");
    project.refused_for("PR-RESOLVE-005");
}

/// The same steps, the first with bounds of its visits in a row.
fn bounded(iterations: &Value, check: bool) -> Project {
    let project = project(&json!({"retry": true, "fallback": "repair"}));
    project.registry(|registry| {
        let first = &mut registry["steps"][0];
        first["iterations"] = iterations.clone();
        if !check {
            first.as_object_mut().unwrap().remove("check");
            first["next"] = json!("continuation.a");
        }
        registry["steps"][1].as_object_mut().unwrap().remove("check");
    });
    project
}

#[tokio::test]
async fn a_step_of_the_oldest_form_is_visited_at_least_as_often_as_it_says() {
    let done = || report("TASK_COMPLETE");
    // The keyword is there from the first visit on; the bounds come first.
    let ended = Flow::of(bounded(&json!({"min": 3}), false), vec![done(), done(), done()]).await.run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "initial.a", "initial.a"]);
    assert_eq!(ended.visits[0].verdict, "repeat");
    let script = vec![report("x"), answers("ok", ""), report("xx"), answers("ok", ""), done()];
    let ended = Flow::of(bounded(&json!({"min": 2, "max": 5}), true), script).await.run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "initial.a", "continuation.a"]);
    // A killed process counts on.
    let finished = ended.visits[..1].to_vec();
    let flow =
        Flow::of(bounded(&json!({"min": 2}), true), vec![report("xx"), answers("ok", ""), done()]).await;
    let ended = flow.with(|flow| flow.finished = finished).run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "continuation.a"]);
}

#[tokio::test]
async fn a_step_of_the_oldest_form_is_not_visited_more_often_than_it_says() {
    let no = || answers("ng", "not yet");
    let script = vec![report("x"), no(), report("xx"), no(), report("repaired"), report("TASK_COMPLETE")];
    let ended = Flow::of(bounded(&json!({"max": 2}), true), script).await.run().await;
    let steps = ["initial.a", "initial.a", "repair", "continuation.a"];
    assert_eq!(ended.succeeded().steps(), steps, "the fallback after two, whatever the check still allows");
    // A step that leads to itself and never completes.
    let project = bounded(&json!({"max": 2}), false);
    project.registry(|registry| {
        registry["steps"][0]["id"] = json!("alone");
        registry["steps"][0]["next"] = json!("alone");
        registry["entryStep"] = json!("alone");
    });
    let ended = Flow::of(project, vec![report("x"), report("y")]).await.run().await;
    ended.failed(StopDetail::MaxIterations, "\"alone\" was visited 2 times in a row");
}
