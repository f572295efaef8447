//! The origin branch: four sources, the first that is set wins, and every failure is said before anything is made.

use agentd::sim::world::FieldContent;
use serde_json::Value;

use super::world::World;

const REPO: &str = "demo/shop";

fn text(value: &str) -> Option<FieldContent> {
    Some(FieldContent::Text(value.to_owned()))
}

fn option(value: &str) -> Option<FieldContent> {
    Some(FieldContent::SingleSelect(value.to_owned()))
}

async fn planned(world: &World, more: &[&str]) -> (Option<i32>, Value) {
    let mut args = vec!["run", "--issue", "7", "--dry-run"];
    args.extend(more);
    world.json(&args).await
}

async fn comes_from(world: &World, more: &[&str], branch: &str, source: &str) {
    let (code, plan) = planned(world, more).await;
    let origin = &plan["origin"];
    assert_eq!(code, Some(0), "{plan:#}");
    assert_eq!(
        (origin["branch"].as_str(), origin["source"].as_str()),
        (Some(branch), Some(source)),
        "{plan:#}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn g01_the_first_link_that_is_set_wins_and_is_named() {
    let world = World::new(1).await;
    for branch in ["alpha", "beta", "gamma"] {
        world.push_branch("develop", branch).await;
    }
    comes_from(&world, &[], "develop", "config").await;
    world.sim.set_project_field(REPO, 7, "Roadmap", "Target Branch", text("gamma"));
    comes_from(&world, &[], "gamma", "project_field").await;
    world.sim.set_field(REPO, 7, "base_branch", option("beta"));
    comes_from(&world, &[], "beta", "issue_field").await;
    comes_from(&world, &["--origin", "refs/heads/alpha"], "alpha", "explicit").await;
    // Blank counts as unset.
    world.sim.set_field(REPO, 7, "base_branch", text("   "));
    comes_from(&world, &[], "gamma", "project_field").await;
    world.sim.set_project_field(REPO, 7, "Roadmap", "Target Branch", None);
    comes_from(&world, &["--origin", ""], "develop", "config").await;
    world.sim.set_field(REPO, 7, "base_branch", text("beta"));
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(output["mapping"]["origin"]["source"], "issue_field");
    let pull = &world.sim.pulls(REPO)[0];
    assert!(pull.pull.as_ref().is_some_and(|pull| pull.base == "beta"), "{pull:?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g02_an_origin_that_cannot_be_used_stops_the_start() {
    let world = World::new(1).await;
    let fails = async |more: &[&str], detail: &str, told: &[&str]| {
        let mut args = vec!["run", "--issue", "7"];
        args.extend(more);
        let (code, output) = world.json(&args).await;
        assert_eq!((code, output["stop_detail"].as_str()), (Some(4), Some(detail)), "{output:#}");
        for told in told {
            assert!(output["summary"].as_str().is_some_and(|text| text.contains(told)), "{told}: {output:#}");
        }
    };
    fails(&["--origin", "nowhere"], "origin_missing", &["nowhere"]).await;
    fails(&["--origin", "bad..name"], "origin_missing", &["bad..name"]).await;
    world.sim.set_field(REPO, 7, "base_branch", Some(FieldContent::Number(4.0)));
    fails(&[], "origin_unresolved", &["base_branch", "text or single select"]).await;
    world.sim.set_field(REPO, 7, "base_branch", None);
    world.sim.set_project_field(REPO, 7, "Roadmap", "Target Branch", text("develop"));
    world.sim.set_project_field(REPO, 7, "Bugs", "Target Branch", text("main"));
    fails(&[], "origin_unresolved", &["Roadmap", "Bugs"]).await;
    assert!(!world.shop().join(".worktrees").exists());
    assert_eq!(world.git(&world.shop(), &["branch", "--list", "feature/*"]).await, "");
    world.finish().await;
}
