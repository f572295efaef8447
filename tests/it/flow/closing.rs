//! What an agent's closing step does to its issue: what its verdict's type and its own word let it do.

use std::time::Duration;

use serde_json::{Value, json};

use super::outside::{one_shot, reports, run, says, shop, state};
use crate::definition::project::Project;
use crate::outside::world::{World, text};

/// F0 as one closing step, with this verdict, and what it may do on GitHub.
fn closer(project: &Project, verdict: &str, action: &str, closes: bool) {
    one_shot(project);
    project.agent_json(|agent| {
        agent["runner"]["verdict"] = json!({"type": verdict, "config": {"maxIterations": 1}});
        agent["runner"]["integrations"]["github"] =
            json!({"labels": {"completion": {"add": ["answered"]}}, "defaultClosureAction": action});
        agent["runner"]["agentd"] = json!({"closes": closes});
    });
}

fn verdict(world: &World, output: &Value) -> String {
    let run = output["run_id"].as_str().unwrap();
    let dir = world.dir.path().join(format!("state/repos/demo/shop/runs/{run}/result.json"));
    let result: Value = serde_json::from_slice(&std::fs::read(dir).unwrap()).unwrap();
    result["verdict"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_issue_is_touched_where_its_state_is_the_verdict_or_the_definition_says_so() {
    let closed = (false, &["agentd:done"][..]);
    let labelled = (true, &["answered", "agentd:done"][..]);
    let both = (false, &["answered", "agentd:done"][..]);
    let untouched = (true, &["agentd:done"][..]);
    for (kind, action, closes, (open, labels)) in [
        ("poll:state", "close", false, closed),
        ("poll:state", "label-only", false, labelled),
        ("poll:state", "label-and-close", false, both),
        ("detect:graph", "label-and-close", false, untouched),
        ("count:iteration", "label-and-close", false, untouched),
        ("detect:graph", "label-and-close", true, both),
        ("count:iteration", "close", true, closed),
    ] {
        let content = json!({"next_action": {"action": "closing"}, "verdict": "approved"});
        let (world, project) = shop(vec![reports(content)]).await;
        closer(&project, kind, action, closes);
        let (code, output) = run(&world).await;
        assert_eq!(code, Some(0), "{kind} {action}: {output:#}");
        let labels: Vec<String> = labels.iter().map(|&label| label.to_owned()).collect();
        assert_eq!(state(&world), (open, labels), "{kind} {action} {closes}");
        assert_eq!(verdict(&world, &output), "approved");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_polls_its_issue_makes_no_visit_more_when_a_person_closes_it() {
    let mut slow = says("next");
    slow.delay_ms = 300;
    let (world, project) = shop(vec![slow]).await;
    project.agent_json(|agent| {
        agent["runner"]["verdict"] = json!({"type": "poll:state", "config": {"maxIterations": 9}});
        agent["runner"]["integrations"]["github"] = json!({"enabled": true});
    });
    let mut command = world.command_in(&["run", "--issue", "7", "--agent", "f0", "--json"]);
    let closing = async {
        while world.sim.model_requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert!(world.sim.close_issue("demo/shop", 7, "ada"));
    };
    let running = tokio::task::spawn_blocking(move || command.output().unwrap());
    let (done, ()) = tokio::join!(running, closing);
    let output: Value = serde_json::from_slice(&done.unwrap().stdout).unwrap();
    assert_eq!(output["stop_detail"], "issue_closed", "{output:#}");
    assert_eq!(output["iterations"], 1, "{output:#}");
    assert!(world.sim.pulls("demo/shop").is_empty());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_a_schema_does_not_name_pass_and_are_kept_unless_it_is_closed() {
    for closed in [false, true] {
        let content = json!({"next_action": {"action": "closing"}, "mood": "good", "verdict": "fine"});
        let replies = if closed { vec![reports(content.clone()); 12] } else { vec![reports(content)] };
        let (world, project) = shop(replies).await;
        one_shot(&project);
        project.json("schemas/s.schema.json", |schemas| {
            let schema = schemas["closure.a"].as_object_mut().unwrap();
            schema.shift_remove("additionalProperties");
            if closed {
                schema.insert("additionalProperties".into(), json!(false));
            }
        });
        let (code, output) = run(&world).await;
        if closed {
            assert_eq!((code, &output["stop_detail"]), (Some(5), &json!("schema_invalid")), "{output:#}");
        } else {
            assert_eq!((code, &output["verdict"]), (Some(0), &json!("fine")), "{output:#}");
            let events = text(&world.agentd(&["runs", "events", "latest"]).await.stdout);
            assert!(events.contains("\"mood\":\"good\""), "{events}");
        }
        // How often it is asked again is not what this is about.
        drop(world);
    }
}
