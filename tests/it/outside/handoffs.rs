//! Handoffs that wait for an approval: what was approved is made, and no model is asked for it again.

use agentd::sim::ReplyFile;
use serde_json::{Value, json};

use super::daemons::{Running, slow_model, until};
use super::solo::{left, newest};
use super::world::World;
use crate::flow::outside::{reports, says, shop};
use crate::flow::world::open_schemas;

/// A person decides before the last step.
const ASK: &str = "[[rule]]\nid = \"ask\"\nkind = \"handoff\"\nname = \"closure.a\"\neffect = \"deny\"\nreason = \"approval_required\"\n\
    public_reason = \"A person looks at it first.\"\n\n\
    [[rule]]\nid = \"steps\"\nkind = \"handoff\"\nname = \"*\"\neffect = \"allow\"\nreason = \"test\"\n";

/// The words that cross over. A model would not find the same ones twice.
pub fn hands_over() -> ReplyFile {
    reports(json!({ "note": "looked at lib/cart.sh", "next_action": { "action": "handoff" } }))
}

/// F0, whose first step may put out anything.
pub async fn asking(replies: Vec<ReplyFile>) -> World {
    let (world, project) = shop(replies).await;
    open_schemas(&project);
    world.write("shop/.agent/policy.toml", ASK);
    world
}

async fn run(world: &World) -> (Option<i32>, Value) {
    world.json(&["run", "--issue", "7", "--agent", "f0"]).await
}

fn waits(world: &World) -> String {
    let suspended = left(world, "run.json")["suspendedProposals"].clone();
    assert_eq!(suspended[0]["resource"], json!({ "kind": "handoff", "name": "closure.a" }), "{suspended:#}");
    suspended[0]["proposalHash"].as_str().unwrap().to_owned()
}

async fn approve(world: &World) {
    let (code, grant) = world.json(&["runs", "approve", "latest", &waits(world)]).await;
    assert_eq!(code, Some(0), "{grant:#}");
}

fn requests(world: &World) -> usize {
    world.sim.model_requests().len()
}

fn visited(output: &Value) -> Vec<&str> {
    output["steps"].as_array().unwrap().iter().map(|step| step["step_id"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn p_036_a_handoff_that_was_approved_is_made_by_the_next_run_and_no_model_is_asked_for_it_again() {
    for resumes in [true, false] {
        let world = asking(vec![hands_over(), says("closing")]).await;
        let (code, output) = run(&world).await;
        assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("approval_pending")), "{output:#}");

        let (_, output) = world.json(&["runs", "resume", "latest"]).await;
        assert_eq!(output["stop_detail"], "approval_pending", "nobody has approved it: {output:#}");
        assert_eq!(requests(&world), 1, "it waits as it was");

        approve(&world).await;
        let (code, output) = match resumes {
            true => world.json(&["runs", "resume", "latest"]).await,
            false => run(&world).await,
        };
        assert_eq!((code, &output["success"]), (Some(0), &json!(true)), "{output:#}");
        assert_eq!(visited(&output), ["initial.a", "closure.a"]);
        assert_eq!(requests(&world), 2, "the first step was not visited again");
        let decisions = left(&world, "run.json")["policyDecisions"].clone();
        assert_eq!(decisions[0]["metadata"]["approval"], "granted", "{decisions:#}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p_036_without_an_approval_the_next_run_of_the_issue_begins_at_the_entry() {
    let world = asking(vec![hands_over(), hands_over()]).await;
    run(&world).await;
    let (_, output) = run(&world).await;
    assert_eq!((&output["stop_detail"], requests(&world)), (&json!("approval_pending"), 2), "{output:#}");
    world.finish().await;
}

/// The daemon's agent is F0.
pub fn of_the_daemon(world: &World) {
    let toml = std::fs::read_to_string(world.shop().join(".agent/agentd.toml")).unwrap();
    world.write("shop/.agent/agentd.toml", &toml.replace("agent = \"resolver\"", "agent = \"f0\""));
}

async fn asks_people(world: &World) {
    until("a question", || world.labels() == ["agentd:attention"]).await;
    until("its record", || newest(world).join("run.json").is_file()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_036_a_handoff_that_a_comment_approved_is_made_by_the_daemon() {
    let world = asking(vec![hands_over(), says("closing")]).await;
    of_the_daemon(&world);
    let daemon = Running::start(&world, &[]);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    asks_people(&world).await;
    world.sim.add_comment("demo/shop", 7, "ada", &format!("/agentd approve {}", &waits(&world)[..12]));
    until("done", || world.labels() == ["agentd:done"]).await;
    assert_eq!(requests(&world), 2);
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_036_a_run_that_is_killed_behind_an_approved_handoff_does_not_ask_for_it_again() {
    let world = asking(vec![hands_over(), says("closing"), says("closing")]).await;
    of_the_daemon(&world);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    asks_people(&world).await;
    daemon.stop().await;
    approve(&world).await;

    slow_model(&world, 0, 60_000);
    let daemon = Running::start(&world, &[]);
    until("the step behind it", || requests(&world) == 2).await;
    daemon.kill();
    let daemon = Running::start(&world, &[]);
    until("done", || world.labels() == ["agentd:done"]).await;
    assert_eq!(requests(&world), 3, "only the step that was cut off was visited again");
    daemon.stop().await;
    world.finish().await;
}
