//! Repositories looked after from a place of their own: each one's file counts for it, and the entry there says the rest.

use std::process::Output;

use super::world::{World, text};

/// The operator's directory beside the checkout: who talks to whom stands there, what the checkout needs in the checkout.
async fn desk(rounds: usize) -> World {
    let world = World::new(rounds).await;
    world.write(
        "desk/agentd.toml",
        &format!(
            "[[repositories]]\nname = \"demo/shop\"\npath = \"../shop\"\n\
             [github]\nmax_requests_per_minute = 100000\napi_url = \"{}\"\ntoken = \"${{GITHUB_TOKEN}}\"\n\
             [[session.targets]]\nprovider = \"anthropic\"\nmodel = \"from-the-desk\"\n",
            world.sim.api_url()
        ),
    );
    let own = std::fs::read_to_string(world.shop().join(".agent/agentd.toml")).unwrap();
    let (before, _) = own.split_once("[providers.anthropic]").unwrap();
    world.write(
        "shop/.agent/agentd.toml",
        &format!(
            "{before}[providers.anthropic]\nkind = \"anthropic\"\nbase_url = \"{}\"\napi_key = \"${{MODEL_KEY}}\"\n\
             [[session.targets]]\nprovider = \"anthropic\"\nmodel = \"recorded-model\"\n\
             price = {{ input = 3.0, output = 15.0 }}\n\
             [policy]\nfiles = [\".agent/policy.toml\"]\n[verify]\ncommands = [[\"sh\", \"tests/run.sh\"]]\n",
            world.sim.model_url_anthropic()
        ),
    );
    world
}

async fn at_the_desk(world: &World, args: &[&str]) -> Output {
    let mut command = world.command(args);
    command.current_dir(world.dir.path().join("desk"));
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn newest(world: &World) -> serde_json::Value {
    let runs = world.dir.path().join("state/repos/demo/shop/runs");
    let run = std::fs::read_dir(runs).unwrap().map(|run| run.unwrap().path()).max().unwrap();
    serde_json::from_slice(&std::fs::read(run.join("result.json")).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn d85_a_daemon_elsewhere_runs_with_the_policy_and_the_verify_commands_of_the_checkout() {
    let world = desk(1).await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let done = at_the_desk(&world, &["daemon", "--once"]).await;
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert_eq!(world.labels(), ["agentd:done"]);
    world.assert_one_of_each();
    let verified = newest(&world).to_string();
    assert!(verified.contains("tests/run.sh"), "{verified}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_finds_the_checkout_of_the_repository_that_is_named_or_the_only_one() {
    let world = desk(1).await;
    let planned = at_the_desk(&world, &["--json", "run", "--issue", "7", "--dry-run"]).await;
    assert_eq!(planned.status.code(), Some(0), "{}", text(&planned.stderr));
    let plan: serde_json::Value = serde_json::from_slice(&planned.stdout).unwrap();
    assert_eq!(plan["origin"]["branch"], "develop", "{plan:#}");
    let done = at_the_desk(&world, &["--repo", "demo/shop", "run", "--issue", "7"]).await;
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    world.assert_one_of_each();
    let other = at_the_desk(&world, &["--repo", "demo/other", "run", "--issue", "7"]).await;
    assert_eq!(other.status.code(), Some(4), "{}", text(&other.stderr));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_several_repositories_and_no_checkout_around_run_asks_which() {
    let world = desk(0).await;
    let file = std::fs::read_to_string(world.dir.path().join("desk/agentd.toml")).unwrap();
    world.write(
        "desk/agentd.toml",
        &format!("{file}[[repositories]]\nname = \"demo/other\"\npath = \"../other\"\n"),
    );
    let asked = at_the_desk(&world, &["run", "--issue", "7"]).await;
    assert_eq!(asked.status.code(), Some(4));
    let told = text(&asked.stderr);
    assert!(told.contains("--repo demo/shop") && told.contains("--repo demo/other"), "{told}");
    world.finish().await;
}
