//! A GitHub App on an Enterprise server, from outside: signed in, minted, used for the API and for git, minted again.

use agentd::sim::FaultFile;
use serde_json::json;

use super::world::{World, text};

const KEY: &str = include_str!("../../data/throwaway-app-key.pem");

/// A world whose configuration is an App's on `HOST/api/v3`.
async fn enterprise() -> World {
    let world = World::of(1, |scenario| {
        let app = json!({
            "id": 11, "slug": "helper", "owner": "demo", "installation_id": 22,
            "permissions": { "contents": "write", "issues": "write", "pull_requests": "write", "metadata": "read", "projects": "read" },
        });
        scenario.apps.push(serde_json::from_value(app).unwrap());
    })
    .await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let own = format!("api_url = \"{}\"\ntoken = \"${{GITHUB_TOKEN}}\"\n", world.sim.api_url());
    let app = format!(
        "api_url = \"{}/api/v3\"\n[github.app]\nid = 11\ninstallation_id = 22\nprivate_key = \"${{APP_KEY}}\"\n",
        world.sim.api_url()
    );
    assert!(overlay.contains(&own), "{overlay}");
    world.write("overlay.toml", &overlay.replace(&own, &app));
    world
}

async fn run(world: &World) -> serde_json::Value {
    // As it often stands in an environment: on one line.
    let mut command = world.command_in(&["--json", "run", "--issue", "7"]);
    command.env_remove("GITHUB_TOKEN").env("APP_KEY", KEY.trim_end().replace('\n', "\\n"));
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let told = text(&done.stderr);
    assert!(!told.contains("PRIVATE KEY"), "{told}");
    serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{told}"))
}

/// How often a token was minted.
fn minted(world: &World) -> usize {
    world.sim.requests().iter().filter(|asked| asked.target.ends_with("/access_tokens")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn i48_an_app_on_an_enterprise_server_goes_from_the_issue_to_the_pull_request() {
    let world = enterprise().await;
    let output = run(&world).await;
    assert_eq!(output["stop_detail"], "completed", "{output:#}");
    world.assert_one_of_each();
    assert_eq!(world.sim.pulls("demo/shop")[0].author, "helper[bot]");
    assert_eq!(minted(&world), 1);
    for asked in world.sim.requests() {
        let path = asked.target.as_str();
        let known =
            ["/api/v3/", "/api/graphql", "/git/", "/model/"].iter().any(|start| path.starts_with(start));
        assert!(known, "{path} is not below the Enterprise's addresses");
    }
    assert!(world.sim.requests().iter().any(|asked| asked.target == "/api/graphql"), "the project field");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i48_an_apps_token_that_is_refused_in_a_run_is_minted_again_and_the_run_goes_on() {
    let world = enterprise().await;
    let fault: FaultFile = serde_json::from_value(
        json!({ "path": "/api/v3/repos/**", "kind": "status", "status": 401, "skip": 3, "times": 1 }),
    )
    .unwrap();
    world.sim.inject(&fault).unwrap();
    let output = run(&world).await;
    assert_eq!(output["stop_detail"], "completed", "{output:#}");
    assert_eq!(minted(&world), 2);
    world.assert_one_of_each();
    world.finish().await;
}
