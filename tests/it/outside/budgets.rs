//! Whose word counts on a budget: flags, the issue's fields, the definition, the configuration, the defaults.

use agentd::sim::Scenario;
use serde_json::{Value, json};

use super::solo::{left, reports, solo_of};
use super::world::World;

/// The fields of the issue, and who wrote it.
fn issue(scenario: &mut Scenario, fields: Value, author: &str) {
    for (login, permission) in [("rita", "read"), ("max", "maintain")] {
        scenario.users.push(serde_json::from_value(json!({ "login": login })).unwrap());
        scenario.repositories[0]
            .collaborators
            .insert(login.to_owned(), serde_json::from_value(json!(permission)).unwrap());
    }
    let mut issue = serde_json::to_value(&scenario.repositories[0].issues[0]).unwrap();
    issue["fields"] = fields;
    issue["author"] = json!(author);
    scenario.repositories[0].issues[0] = serde_json::from_value(issue).unwrap();
}

async fn world(fields: Value, author: &str, definition: Option<Value>, config: &str) -> World {
    let world =
        solo_of(vec![reports("Done.", json!([]))], None, config, |scenario| issue(scenario, fields, author))
            .await;
    // What `agentd init` wrote of budgets would stand above the defaults.
    let toml = std::fs::read_to_string(world.shop().join(".agent/agentd.toml")).unwrap();
    let mut written: toml::Table = toml.parse().unwrap();
    written.remove("budgets");
    world.write("shop/.agent/agentd.toml", &toml::to_string(&written).unwrap());
    if let Some(budgets) = definition {
        let path = world.shop().join(".agent/solo/agent.json");
        let mut agent: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        agent["runner"]["agentd"] = json!({ "budgets": budgets });
        world.write("shop/.agent/solo/agent.json", &agent.to_string());
    }
    world
}

async fn planned(world: &World, flags: &[&str]) -> Value {
    let mut args = vec!["run", "--issue", "7", "--agent", "solo", "--dry-run"];
    args.extend(flags);
    let (code, plan) = world.json(&args).await;
    assert_eq!(code, Some(0), "{plan:#}");
    plan["budgets"].clone()
}

fn caps(budgets: &Value) -> (u64, u64, f64) {
    (
        budgets["max_steps"].as_u64().unwrap(),
        budgets["max_wall_time_ms"].as_u64().unwrap(),
        budgets["max_cost_usd"].as_f64().unwrap(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn x_002_x_003_x_004_x_005_flags_go_before_the_issue_the_definition_the_configuration_and_the_defaults()
{
    let none = world(json!({}), "rita", None, "").await;
    assert_eq!(caps(&planned(&none, &[]).await), (12, 900_000, 10.0), "defaults");
    none.finish().await;

    let config = "[budgets]\nmax_steps = 9\nmax_wall_time = \"10m\"\nmax_cost = 5.0\n";
    let definition = json!({ "maxSteps": 8, "maxCost": 4.5 });
    let fields = json!({ "max_steps": { "number": 7.0 }, "Max wall time": "90s" });
    let world = world(fields, "rita", Some(definition), config).await;
    let budgets = planned(&world, &[]).await;
    assert_eq!(caps(&budgets), (7, 90_000, 4.5), "{budgets:#}");
    let sources = &budgets["sources"];
    assert_eq!(
        (&sources["max_steps"], &sources["max_wall_time"], &sources["max_cost"]),
        (&json!("the issue's field"), &json!("the issue's field"), &json!("the agent's definition"))
    );
    let budgets = planned(&world, &["--max-steps", "11", "--max-wall-time", "1h", "--max-cost", "6"]).await;
    assert_eq!(caps(&budgets), (11, 3_600_000, 6.0), "the operator's last word: {budgets:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_005_an_issue_raises_a_budget_only_where_its_author_is_a_maintainer() {
    let fields = || json!({ "max_cost": "100", "max_steps": "3" });
    let reader = world(fields(), "rita", None, "").await;
    let (code, output) = reader.json(&["run", "--issue", "7", "--agent", "solo"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(
        (&output["budgets"]["max_cost_usd"], &output["budgets"]["max_steps"]),
        (&json!(10.0), &json!(3)),
        "raised: no, lowered: yes"
    );
    let warnings = output["warnings"].as_array().unwrap();
    assert!(
        warnings.iter().any(|warning| warning["code"] == "budget_not_raised"
            && warning["text"].as_str().unwrap().contains("max_cost")),
        "{warnings:#?}"
    );
    reader.finish().await;

    let maintainer = world(fields(), "max", None, "").await;
    let (code, output) = maintainer.json(&["run", "--issue", "7", "--agent", "solo"]).await;
    assert_eq!((code, &output["budgets"]["max_cost_usd"]), (Some(0), &json!(100.0)), "{output:#}");
    assert_eq!(output["warnings"], json!([]), "{output:#}");
    assert_eq!(left(&maintainer, "run.json")["contextSnapshot"]["budgets"]["max_steps"], 3);
    maintainer.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_005_a_budget_that_cannot_be_read_is_refused_and_names_its_place() {
    for (fields, definition) in [
        (json!({ "max_cost": "-1" }), None),
        (json!({ "max_wall_time": "soon" }), None),
        (json!({}), Some(json!({ "maxSteps": 0 }))),
        (json!({}), Some(json!({ "maxCost": -2 }))),
    ] {
        let world = world(fields.clone(), "max", definition.clone(), "").await;
        let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo"]).await;
        let said = output["error"]["message"].as_str().unwrap_or_default();
        assert!(matches!(code, Some(4 | 5)), "{fields} {definition:?}: {output:#}");
        assert!(said.contains("max_") || said.contains("budgets"), "{said}");
        assert!(output["mapping"].is_null() && world.sim.model_requests().is_empty());
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d98_a_cap_on_the_cost_is_never_passed_and_nothing_is_asked_that_it_does_not_cover() {
    for (cap, requests) in [("0", 0), ("0.01", 0), ("0.2", 1)] {
        let echo = super::solo::calls(&[("read_file", json!({ "path": "README.md" }))]);
        let world = solo_of(vec![echo.clone(), echo, reports("Done.", json!([]))], None, "", |_| ()).await;
        let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo", "--max-cost", cap]).await;
        let asked = world.sim.model_requests().len();
        if requests == 0 {
            assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("max_cost")), "{cap}: {output:#}");
            assert_eq!(asked, 0, "{cap}");
            assert_eq!(output["totals"]["cost_usd"], json!(0.0), "{output:#}");
        } else {
            assert!(asked >= requests, "{output:#}");
        }
        let spent = output["totals"]["cost_usd"].as_f64().unwrap();
        assert!(spent <= cap.parse().unwrap(), "{cap}: {output:#}");
        // Only a new run takes the flag.
        if output["stop_detail"] == json!("max_cost") {
            let (_, report) = world.json(&["runs", "report", "latest"]).await;
            let next = report["next_steps"].to_string();
            let (resume, again) = next.split_once("; or run again with `--max-cost`: ").unwrap();
            assert!(!resume.contains("--max") && again.starts_with("`agentd run --issue 7`"), "{next}");
        }
        world.finish().await;
    }
}
