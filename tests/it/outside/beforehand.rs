//! What can never work, or has no effect, is found before a model is paid for.

use serde_json::{Value, json};

use super::world::World;

/// Changes a JSON file of the agent that `agentd init` wrote.
fn edit(world: &World, file: &str, change: impl FnOnce(&mut Value)) {
    let place = format!("shop/.agent/resolver/{file}");
    let told = std::fs::read_to_string(world.dir.path().join(&place)).unwrap();
    let mut value = serde_json::from_str(&told).unwrap();
    change(&mut value);
    world.write(&place, &serde_json::to_string_pretty(&value).unwrap());
}

/// What `agents check` finds of the agent, a line each, and its exit code.
async fn found(world: &World) -> (Option<i32>, Vec<String>) {
    let (code, told) = world.json(&["agents", "check", "resolver"]).await;
    let findings = told["agents"][0]["findings"].as_array().unwrap().iter();
    let line = |found: &Value| {
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        let (severity, code, file) = (text("severity"), text("code"), text("file"));
        format!("{severity} {code} {file}{} {} → {}", text("pointer"), text("message"), text("fix"))
    };
    (code, findings.map(line).collect())
}

/// That each of these has a finding with all of its words.
fn tells(found: &[String], expected: &[&[&str]]) {
    for words in expected {
        let is_told = found.iter().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(is_told, "{words:?} is not among {found:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_format_of_a_field_is_held_and_one_that_nobody_knows_is_told() {
    let fallback = json!({ "times": 0, "text": "I have nothing else." });
    let fallback = serde_json::from_value(fallback).unwrap();
    let world = World::of(1, |scenario| scenario.model.replies.push(fallback)).await;
    edit(&world, "schemas/issue.schema.json", |schema| {
        schema["initial.issue"]["properties"]["plan"]["format"] = json!("emial");
    });
    let (code, told) = found(&world).await;
    assert_eq!(code, Some(0), "{told:#?}");
    let place =
        "warning SR-SCHEMA-002 .agent/resolver/steps_registry.json/steps/initial.issue/outputSchemaRef";
    tells(
        &told,
        &[&[
            place,
            "the format \"emial\" in .agent/resolver/schemas/issue.schema.json#initial.issue",
            "\"email\"",
        ]],
    );
    edit(&world, "schemas/issue.schema.json", |schema| {
        schema["initial.issue"]["properties"]["plan"]["format"] = json!("date");
    });
    assert_eq!(found(&world).await.0, Some(0));
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_ne!(code, Some(0), "the recorded plan is no date: {output:#}");
    let asked = world.sim.model_requests().len();
    let told: Vec<String> = (0..asked).map(|request| world.told(request)).collect();
    assert!(told.iter().any(|told| told.contains("is not a \"date\"")), "{told:#?}");
    world.finish().await;
}
