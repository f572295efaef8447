//! MCP servers that change their tools while a run goes on.

use serde_json::{Value, json};

use super::cases::{done, offered, results, run, served};
use super::solo::{calls, left, newest};
use super::world::World;

const KNOWN: [&str; 4] = ["change", "count", "later", "soon"];

async fn changing(replies: Vec<agentd::sim::ReplyFile>) -> World {
    let world = served(replies, "").await;
    let rule = |name: &str| {
        format!(
            "[[rule]]\nid = \"{name}\"\nkind = \"tool\"\nname = \"desk__{name}\"\neffect = \"allow\"\nreason = \"test\"\n"
        )
    };
    let handoffs =
        "[[rule]]\nid = \"on\"\nkind = \"handoff\"\nname = \"*\"\neffect = \"allow\"\nreason = \"test\"\n";
    world.write("shop/.agent/policy.toml", &(KNOWN.map(rule).concat() + handoffs));
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &overlay.replacen("mcp_server.py\"", "mcp_server.py\", \"--changing\"", 1));
    // The step is visited twice.
    let agent = std::fs::read_to_string(world.shop().join(".agent/solo/agent.json")).unwrap();
    world
        .write("shop/.agent/solo/agent.json", &agent.replace("\"maxIterations\": 1", "\"maxIterations\": 2"));
    world
}

fn events(world: &World, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(newest(world).join("events.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["kind"] == kind).map(|line| line["data"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_that_a_server_adds_are_called_under_the_policy_gone_ones_say_so_and_a_replay_is_equal() {
    let change = |change: Value| calls(&[("desk__change", change)]);
    let world = changing(vec![
        change(json!({ "add": ["soon", "later", "forbidden"] })),
        calls(&[("desk__later", json!({}))]),
        done(),
        change(json!({ "drop": ["later"], "describe": ["count"] })),
        calls(&[("desk__later", json!({})), ("desk__soon", json!({}))]),
        done(),
    ])
    .await;
    let (code, output) = run(&world, &[]).await;
    assert_eq!(code, 0, "{output:#}");
    // The order of what models are told is stable: known tools keep their places, new ones come last.
    let (first, second) = (offered(&world, 0), offered(&world, 1));
    assert_eq!(second[..first.len()], first, "a request begins as the one before");
    assert_eq!(second[first.len()..], ["desk__forbidden", "desk__later", "desk__soon"]);
    assert_eq!(offered(&world, 3), second, "the next visit offers what there is");
    let without: Vec<String> = second.iter().filter(|name| *name != "desk__later").cloned().collect();
    assert_eq!(offered(&world, 4), without);
    let told = results(&world, 2);
    assert_eq!(told[1], "I am later");
    let told = results(&world, 5);
    let gone = "(tool failed: desk__later is gone: its MCP server no longer offers it)";
    assert_eq!(told[told.len() - 2..], [gone, "I am soon"], "{told:?}");
    let changes = events(&world, "tools_changed");
    assert_eq!(changes.len(), 2, "{changes:#?}");
    assert_eq!(changes[0]["added"], json!(["desk__forbidden", "desk__later", "desk__soon"]));
    assert_eq!(
        (&changes[1]["gone"], &changes[1]["changed"]),
        (&json!(["desk__later"]), &json!(["desk__count"]))
    );
    let told = std::fs::read_to_string(newest(&world).join("report.md")).unwrap();
    assert!(told.contains("MCP servers changed their tools before turn 2: new: desk"), "{told}");
    assert_eq!(left(&world, "result.json")["success"], json!(true));
    // The second is the replay of a replay, and so is the third, whose servers are as they were at first.
    for mode in ["strict", "strict", "hybrid"] {
        let (code, replayed) = world.json(&["runs", "replay", "latest", "--mode", mode]).await;
        assert_eq!((code, &replayed["equal"]), (Some(0), &json!(true)), "{replayed:#}");
        assert_eq!((&replayed["tools_run"], &replayed["model_requests"]), (&json!(0), &json!(0)));
    }
    world.finish().await;
}

/// The definition that is tried has one visit more than the record.
#[tokio::test(flavor = "multi_thread")]
async fn a_hybrid_replay_offers_what_was_recorded_and_behind_the_record_what_servers_have_now() {
    let world = changing(vec![
        calls(&[("desk__change", json!({ "add": ["soon"], "describe": ["count"] }))]),
        done(),
        calls(&[("desk__soon", json!({}))]),
        done(),
        calls(&[("desk__soon", json!({})), ("desk__count", json!({}))]),
        done(),
    ])
    .await;
    let (code, output) = run(&world, &[]).await;
    assert_eq!(code, 0, "{output:#}");
    let agents = world.dir.path().join("agents");
    crate::outside::replays::copy(&world.shop().join(".agent"), &agents);
    let agent = std::fs::read_to_string(agents.join("solo/agent.json")).unwrap();
    let longer = agent.replace("\"maxIterations\": 2", "\"maxIterations\": 3");
    std::fs::write(agents.join("solo/agent.json"), longer).unwrap();
    let agents = agents.display().to_string();
    let hybrid = ["runs", "replay", "latest", "--mode", "hybrid", "--with-agents", &agents];
    let (code, replayed) = world.json(&hybrid).await;
    assert_eq!((code, &replayed["model_requests"]), (Some(1), &json!(2)), "{replayed:#}");
    assert!(
        offered(&world, 4).contains(&"desk__soon".to_owned()),
        "the record's list goes on until a model is asked"
    );
    assert!(!offered(&world, 5).contains(&"desk__soon".to_owned()));
    let told = results(&world, 5);
    let words = [
        "(tool failed: desk__soon is not offered by desk now)",
        "(tool failed: desk offers another desk__count now than the one that was recorded)",
    ];
    assert_eq!(told[told.len() - 2..], words, "{told:?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_a_server_adds_and_no_rule_allows_is_not_called() {
    let world = changing(vec![
        calls(&[("desk__change", json!({ "add": ["forbidden"] }))]),
        calls(&[("desk__forbidden", json!({}))]),
    ])
    .await;
    let (code, output) = run(&world, &[]).await;
    assert_eq!((code, &output["stop_detail"]), (1, &json!("policy_denied")), "{output:#}");
    let notes = std::fs::read_to_string(world.dir.path().join("notes")).unwrap();
    assert!(notes.contains("call change") && !notes.contains("call forbidden"), "{notes}");
    world.finish().await;
}

/// Nothing is asked after the call that did not find it.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_lost_in_the_last_turn_ends_the_run_as_well() {
    let world = served(vec![calls(&[("desk__exit", json!({}))]), both()], "").await;
    once(&world, true);
    let (code, output) = run(&world, &[]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (3, Some("mcp_unavailable")), "{output:#}");
    assert!(output["error"].to_string().contains("its database is gone"), "{output:#}");
    world.finish().await;
}

/// A call, and the report beside it.
fn both() -> agentd::sim::ReplyFile {
    let report = done();
    agentd::sim::ReplyFile { final_report: report.final_report, ..calls(&[("desk__count", json!({}))]) }
}

/// Has the server of the world start once and not again.
fn once(world: &World, required: bool) -> std::path::PathBuf {
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let begun = world.dir.path().join("begun");
    let script = format!(
        "#!/bin/sh\nif [ -e {0} ]; then echo \"its database is gone\" >&2; exit 3; fi\ntouch {0}\nexec python3 \"$@\"\n",
        begun.display()
    );
    world.write("once", &script);
    let once = world.dir.path().join("once").display().to_string();
    let server = format!("required = {required}\ncommand = \"sh\"\nargs = [{once:?}, ");
    let old = "command = \"python3\"\nargs = [";
    assert!(overlay.contains(old), "{overlay}");
    world.write("overlay.toml", &overlay.replacen(old, &server, 1));
    begun
}

/// The server ends in a call, and does not start again: what is required is not left out of the work in silence.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_lost_in_a_run_is_told_of_and_ends_it_where_it_is_required() {
    for required in [true, false] {
        let lost = || calls(&[("desk__exit", json!({}))]);
        let again = || calls(&[("desk__count", json!({}))]);
        let world = served(vec![lost(), again(), done()], "").await;
        let begun = once(&world, required);
        let (code, output) = run(&world, &[]).await;
        let told = output["warnings"].to_string();
        assert!(told.contains("its database is gone") && told.contains("desk"), "{output:#}");
        let expected = if required { (3, "mcp_unavailable", 2) } else { (0, "completed", 3) };
        let asked = world.sim.model_requests().len();
        assert_eq!((code, output["stop_detail"].as_str().unwrap(), asked), expected, "{output:#}");
        let (code, replayed) = world.json(&["runs", "replay", "latest", "--mode", "strict"]).await;
        assert_eq!((code, &replayed["equal"]), (Some(0), &json!(true)), "{replayed:#}");
        if required {
            // Somebody mends it, and the run goes on where it was.
            std::fs::remove_file(&begun).unwrap();
            let (code, output) = world.json(&["runs", "resume", "latest"]).await;
            assert_eq!((code, &output["stop_detail"]), (Some(0), &json!("completed")), "{output:#}");
        }
        world.finish().await;
    }
}
