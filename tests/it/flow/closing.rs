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

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_worked_until_its_issue_would_be_closed_closes_it_also_without_a_change() {
    for (kind, open) in [("poll:state", false), ("detect:graph", true)] {
        let (world, project) = shop(["handoff", "closing"].map(says).into()).await;
        project.agent_json(|agent| {
            agent["runner"]["verdict"] = json!({"type": kind, "config": {"maxIterations": 9}});
            agent["runner"]["integrations"]["github"] = json!({"enabled": true});
        });
        let (code, output) = run(&world).await;
        assert_eq!(code, Some(0), "{kind}: {output:#}");
        assert_eq!(state(&world), (open, vec!["agentd:done".to_owned()]), "{kind}");
        world.finish().await;
    }
}

/// An agent in the oldest form: no gates, no entry, no closing step, nothing said of an address.
fn oldest(world: &World) -> Project {
    let project = Project::within(&world.shop(), "f0", "f0");
    project.agent_json(|agent| {
        *agent = json!({"version": "1.10.0", "name": "f0", "displayName": "f0", "description": "x",
            "behavior": {"systemPromptPath": "prompts/system.md", "completionType": "project",
                "completionConfig": {"maxIterations": 5}, "allowedTools": ["Read"], "permissionMode": "acceptEdits"},
            "parameters": {"issue": {"type": "number", "description": "x", "required": false, "cli": "--issue"}},
            "prompts": {"registry": "steps_registry.json"}, "github": {"enabled": true}});
    });
    project.registry(|registry| {
        let step = |id: &str| json!({"stepId": id, "name": id, "uvVariables": ["issue"], "usesStdin": false});
        *registry = json!({"agentId": "f0", "version": "1.2.0", "c1": "steps", "steps": {
            "section.context": {"stepId": "section.context", "name": "x", "c2": "initial", "c3": "issue"},
            "initial.issue": step("initial.issue"), "continuation.issue": step("continuation.issue")}});
    });
    for kind in ["initial", "continuation"] {
        project.write(&format!("prompts/steps/{kind}/issue/f_default.md"), "Work on {uv-issue}.\n");
    }
    project
}

#[tokio::test(flavor = "multi_thread")]
async fn d106_the_oldest_form_begins_with_the_issue_and_its_model_says_when_it_is_to_be_closed() {
    let words = |text: &str| {
        super::outside::reply(json!({"final_report": {"report_format": "markdown", "content": text}}))
    };
    let block = |inside: &str| format!("Well.\n\n```issue-action\n{inside}\n```\n");
    let script = || {
        vec![
            words(&block(r#"{"action": "progress", "issue": 7, "body": "half"}"#)),
            words(&block(r#"{"action": "close", "issue": 8}"#)),
            words(&block(r#"{"action": "close", "issue": 7, "body": "all of it"}"#)),
        ]
    };
    for migrated in [false, true] {
        let (world, _) = shop(script()).await;
        oldest(&world);
        if migrated {
            let done = world.agentd(&["agents", "migrate", "f0"]).await;
            assert!(
                text(&done.stdout).contains("\"entryStep\": \"initial.issue\""),
                "{}",
                text(&done.stdout)
            );
        }
        let (code, checked) = world.json(&["agents", "check", "f0"]).await;
        assert_eq!(code, Some(0), "{checked:#}");
        assert_eq!(checked.to_string().contains("DEPRECATED"), !migrated, "{checked:#}");
        let (code, output) = run(&world).await;
        assert_eq!(code, Some(0), "{output:#}");
        let visits: Vec<&Value> =
            output["steps"].as_array().unwrap().iter().map(|step| &step["step_id"]).collect();
        assert_eq!(visits, ["initial.issue", "continuation.issue", "continuation.issue"]);
        assert_eq!(state(&world), (false, vec!["agentd:done".to_owned()]));
        let told = output["warnings"].to_string();
        assert!(told.contains("action_ignored") && told.contains("progress"), "{told}");
        world.finish().await;
    }
}
