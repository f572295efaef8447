//! What follows from a run: its failures told to the next, its claims sent back once, its record fed to sinks.

use serde_json::{Value, json};

use super::solo::{asked, calls, left, newest, reports, run, solo};

#[tokio::test(flavor = "multi_thread")]
async fn x_039_the_next_run_of_the_issue_is_told_once_what_went_wrong() {
    let replies = vec![
        calls(&[("read_file", json!({ "path": "no/such/file.txt" }))]),
        calls(&[("read_file", json!({ "path": "no/such/file.txt", "from_line": 2 }))]),
        reports("Nothing found.", json!([])),
        reports("Done.", json!([])),
    ];
    let world = solo(replies, None, "").await;
    let (code, first) = run(&world).await;
    assert_eq!(code, Some(0), "{first:#}");
    let failures = first["failures"].as_array().unwrap();
    let of_tool: Vec<&Value> =
        failures.iter().filter(|f| f["signal"].as_str().unwrap().starts_with("tool:read_file")).collect();
    assert_eq!((of_tool.len(), &of_tool[0]["count"]), (1, &json!(2)), "{failures:#?}");
    let (code, second) = run(&world).await;
    assert_eq!(code, Some(0), "{second:#}");
    let requests = asked(&world);
    let told = |request: &String| request.matches("tool:read_file").count();
    assert_eq!((told(&requests[0]), told(requests.last().unwrap())), (0, 1), "{}", requests.last().unwrap());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_039_an_error_of_the_provider_that_comes_again_is_told_as_it_was() {
    let away = "the model is away for a while, ask again later";
    let fails: agentd::sim::ReplyFile =
        serde_json::from_value(json!({ "error": { "status": 500, "message": away }, "times": 0 })).unwrap();
    let world = solo(vec![fails], None, "[session]\nretry_backoff = \"1ms\"\n").await;
    let (code, first) = run(&world).await;
    assert_eq!((code, &first["stop_detail"]), (Some(1), &json!("llm_unavailable")), "{first:#}");
    let id = first["run_id"].as_str().unwrap();
    let (_, second) = world.json(&["runs", "resume", id]).await;
    assert_ne!(second["run_id"], first["run_id"], "{second:#}");
    let (_, third) = world.json(&["runs", "resume", second["run_id"].as_str().unwrap()]).await;
    assert!(asked(&world).last().unwrap().contains(away), "it is told of them");
    for output in [first, second, third] {
        let told = output["error"].to_string() + &output["failures"].to_string();
        assert!(told.contains(away) && !told.contains("[…]"), "{output:#}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_008_claims_that_do_not_hold_are_sent_back_once_and_the_attempt_counts() {
    let wrong = json!([{ "statement": "The defect is here", "kind": "defect_location", "status": "verified",
        "cites": [{ "path": "lib/cart.sh", "start": 900, "end": 901 }] }]);
    let right = json!([{ "statement": "The defect is here", "kind": "defect_location", "status": "verified",
        "cites": [{ "path": "lib/cart.sh", "start": 14, "end": 14 }] }]);
    let world = solo(vec![reports("Found.", wrong), reports("Found.", right)], None, "").await;
    let (code, output) = run(&world).await;
    assert_eq!((code, &output["claims"][0]["status"]), (Some(0), &json!("verified")), "{output:#}");
    assert_eq!((&output["steps"][0]["turns"], &output["steps"][0]["attempts"]), (&json!(1), &json!(2)));
    let second = &asked(&world)[1];
    assert!(second.contains("do not hold as they stand") && second.contains("lib/cart.sh"), "{second}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_010_a_claim_that_stays_wrong_after_the_repair_is_not_verified_and_said_so() {
    let wrong = |end: u32| {
        let cites = json!([{ "path": "lib/no_such.sh", "start": 1, "end": end }]);
        let claims = json!([{ "statement": "It is in a file that is not there", "kind": "defect_location", "status": "verified", "cites": cites }]);
        reports("Found.", claims)
    };
    let world = solo(vec![wrong(1), wrong(2)], None, "").await;
    let (code, output) = run(&world).await;
    assert_eq!((code, output["stop_reason"].as_str()), (Some(1), Some("NO_EVIDENCE")), "{output:#}");
    assert_eq!(output["stop_detail"], "claims_rejected");
    assert_eq!(output["error"]["detail_ref"], "run.json#/errorMessage");
    assert!(!left(&world, "run.json")["errorMessage"].as_str().unwrap().is_empty());
    assert!(output["limitations"][0].as_str().unwrap().contains("not there"), "{output:#}");
    let report = std::fs::read_to_string(newest(&world).join("report.md")).unwrap();
    assert!(report.contains("Not verified"), "{report}");
    assert_eq!(world.labels(), ["agentd:no-evidence"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_023_p_024_case_24_every_sink_gets_the_record_once_and_a_failing_or_hanging_one_changes_nothing() {
    let sinks = "[record]\nsinks = [[\"sh\", \"-c\", \"cat >> ../sunk.json; echo >> ../sunk.json\"], [\"sh\", \"-c\", \"exit 1\"], [\"no-such-program-here\"], [\"sleep\", \"60\"]]\n";
    let world = solo(vec![reports("Done.", json!([]))], None, sinks).await;
    let (code, output) = run(&world).await;
    assert_eq!((code, &output["success"]), (Some(0), &json!(true)), "{output:#}");
    let sunk = std::fs::read_to_string(world.dir.path().join("sunk.json")).unwrap();
    let sunk: Value = serde_json::from_str(&sunk).unwrap_or_else(|error| panic!("not one record: {error}"));
    assert_eq!(sunk, left(&world, "run.json"));
    let (_, events) = world.json(&["runs", "events"]).await;
    let emitted: Vec<&Value> =
        events.as_array().unwrap().iter().filter(|line| line["kind"] == "record_emitted").collect();
    assert_eq!(
        (emitted.len(), emitted[0]["data"]["problems"].as_array().unwrap().len()),
        (1, 3),
        "{emitted:#?}"
    );
    let (code, verified) = world.json(&["runs", "verify"]).await;
    assert_eq!(code, Some(0), "{verified:#}");
    world.finish().await;
}

const ASK_FIRST: &str = r#"
[[rule]]
id = "ask"
kind = "tool"
name = "write_file"
effect = "deny"
reason = "approval_required"
public_reason = "A person decides on this file."
when = { path = ["release/**"] }

[[rule]]
id = "write"
kind = "tool"
name = "write_file"
effect = "allow"
reason = "the worktree is its own"
when = { path = ["**"] }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn p_036_p_037_an_approval_is_asked_for_on_the_issue_and_lets_exactly_that_call_run_once() {
    let write =
        |content: &str| calls(&[("write_file", json!({ "path": "release/notes.md", "content": content }))]);
    let replies = vec![
        write("one"),
        // Gone on with before anybody approved: it waits again.
        write("one"),
        // Approved: it runs, and the very same call a second time does not.
        write("one"),
        calls(&[("write_file", json!({ "path": "README.md", "content": "changed" }))]),
        write("one"),
        // Other arguments are another proposal.
        write("two"),
    ];
    let world = solo(replies, Some(ASK_FIRST), "").await;
    let (code, output) = run(&world).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("approval_pending")), "{output:#}");
    assert_eq!(output["stop_reason"], "HUMAN_REQUESTED");
    let record = left(&world, "run.json");
    let suspended = record["suspendedProposals"].as_array().unwrap();
    assert_eq!(suspended.len(), 1, "{suspended:#?}");
    let hash = suspended[0]["proposalHash"].as_str().unwrap().to_owned();
    let comments = world.sim.issue("demo/shop", 7).unwrap().comments;
    let asks: Vec<&String> =
        comments.iter().map(|c| &c.body).filter(|body| body.contains("agentd runs approve")).collect();
    assert!(
        asks.iter().any(|body| body.contains(&hash) && body.contains("A person decides on this file.")),
        "{asks:#?}"
    );
    assert_eq!(comments.len(), 2, "the status and one request: {comments:#?}");
    assert_eq!(world.labels(), ["agentd:attention"]);

    let first = output["run_id"].as_str().unwrap().to_owned();
    let (_, output) = world.json(&["runs", "resume", &first]).await;
    assert_eq!(output["stop_detail"], "approval_pending", "{output:#}");
    let (code, refused) = world.json(&["runs", "approve", "latest", "0000"]).await;
    assert_eq!(code, Some(4), "{refused:#}");
    let (code, grant) = world.json(&["runs", "approve", "latest", &hash]).await;
    assert_eq!((code, grant["proposal_hash"].as_str()), (Some(0), Some(hash.as_str())), "{grant:#}");
    let (_, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!(output["stop_detail"], "approval_pending", "used once: {output:#}");
    let written = world.shop().join(".worktrees/issue-7/release/notes.md");
    assert_eq!(std::fs::read_to_string(&written).unwrap(), "one");
    let decisions = left(&world, "run.json")["policyDecisions"].clone();
    let approved: Vec<&Value> =
        decisions.as_array().unwrap().iter().filter(|d| d["reason"] == "approved").collect();
    assert_eq!(approved.len(), 1, "{decisions:#}");
    assert_eq!(approved[0]["metadata"]["approval"], "granted");

    let (code, _) = world.json(&["runs", "approve", "latest", &hash]).await;
    assert_eq!(code, Some(0));
    let (_, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!(output["stop_detail"], "approval_pending", "other arguments: {output:#}");
    assert_eq!(std::fs::read_to_string(&written).unwrap(), "one");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_037_an_expired_approval_lets_nothing_run() {
    let write = || calls(&[("write_file", json!({ "path": "release/notes.md", "content": "one" }))]);
    let world = solo(vec![write(), write()], Some(ASK_FIRST), "").await;
    let (_, output) = run(&world).await;
    assert_eq!(output["stop_detail"], "approval_pending", "{output:#}");
    let hash = left(&world, "run.json")["suspendedProposals"][0]["proposalHash"].as_str().unwrap().to_owned();
    let (code, refused) = world.json(&["runs", "approve", "latest", &hash, "--expires", "0s"]).await;
    assert_eq!(code, Some(4), "it would hold for no moment: {refused:#}");
    let (code, _) = world.json(&["runs", "approve", "latest", &hash, "--expires", "1ms"]).await;
    assert_eq!(code, Some(0));
    let (_, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!(output["stop_detail"], "approval_pending", "{output:#}");
    assert!(!world.shop().join(".worktrees/issue-7/release/notes.md").exists());
    world.finish().await;
}
