//! The conformance cases of gate, redaction, evidence and budgets, each through the binary.

use serde_json::{Value, json};

use super::solo::{asked, calls, left, newest, reports, run, solo, solo_of};
use super::world::text;

const COUNT: &str = r#"
[[rule]]
id = "write"
kind = "tool"
name = "write_file"
effect = "allow"
reason = "writes"
when = { path = ["ok*.txt"] }

[[rule]]
id = "hard"
kind = "tool"
name = "write_file"
effect = "deny"
reason = "not_here"
public_reason = "Not here."
when = { path = ["hard.txt"] }

[[rule]]
id = "soft"
kind = "tool"
name = "*"
effect = "deny"
deny_mode = "tool_result"
reason = "not_listed"
"#;

fn write(path: &str) -> (&'static str, Value) {
    ("write_file", json!({ "path": path, "content": "x" }))
}

#[tokio::test(flavor = "multi_thread")]
async fn p_004_case_19_without_a_policy_nothing_runs_and_a_report_alone_still_succeeds() {
    let replies = vec![calls(&[write("ok.txt")]), reports("Done.", json!([]))];
    let world = solo(replies, None, "[policy]\nfiles = []\n").await;
    let (code, output) = run(&world).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("policy_denied")), "{output:#}");
    let record = left(&world, "run.json");
    assert_eq!(record["policyDecisions"][0]["reason"], "policy_not_configured");
    assert_eq!(record["errorName"], "ToolCallPolicyDenied");
    assert!(!world.shop().join(".worktrees/issue-7/ok.txt").exists());
    let (code, output) = run(&world).await;
    assert_eq!((code, &output["success"]), (Some(0), &json!(true)), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_005_p_006_case_20_a_policy_program_that_fails_or_babbles_lets_nothing_run() {
    let programs = [
        ("exit 1", "policy_error"),
        ("sleep 60", "policy_error"),
        ("echo '{}'", "invalid_policy_result"),
        ("echo '{\"decision\":\"maybe\",\"reason\":\"x\"}'", "invalid_policy_result"),
        ("echo '{\"decision\":\"allow\",\"reason\":\" \"}'", "invalid_policy_result"),
        (
            "echo '{\"decision\":\"allow\",\"reason\":\"a\"}{\"decision\":\"allow\",\"reason\":\"a\"}'",
            "invalid_policy_result",
        ),
    ];
    for (program, reason) in programs {
        let replies = vec![calls(&[write("ok.txt")]), reports("Done.", json!([]))];
        // It admits the run, and fails on the call.
        let whole = format!(
            "case \"$(cat)\" in *'\"kind\":\"run\"'*) echo '{{\"decision\":\"allow\",\"reason\":\"admitted\"}}';; *) {program};; esac"
        );
        let more = format!("[policy]\nfiles = []\nprogram = [\"sh\", \"-c\", {}]\n", json!(whole));
        let world = solo(replies, None, &more).await;
        let overlay = world.dir.path().join("overlay.toml").display().to_string();
        let done =
            world.agentd(&["--config", &overlay, "--json", "run", "--issue", "7", "--agent", "solo"]).await;
        let output: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(
            (done.status.code(), output["stop_detail"].as_str()),
            (Some(1), Some("policy_denied")),
            "{program}: {output:#}"
        );
        let log = text(&done.stderr);
        assert!(log.contains("policy.program gave no verdict"), "{program}: {log}");
        assert_eq!(left(&world, "run.json")["policyDecisions"][0]["reason"], reason, "{program}");
        assert!(!world.shop().join(".worktrees/issue-7/ok.txt").exists(), "{program}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p_022_p_015_case_21_case_22_a_hard_denial_leaves_nothing_of_its_reply_done_and_a_soft_one_goes_on() {
    let world = solo(vec![calls(&[write("ok1.txt"), write("hard.txt")])], Some(COUNT), "").await;
    let (code, output) = run(&world).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("policy_denied")), "{output:#}");
    let record = left(&world, "run.json");
    let decisions: Vec<&str> =
        record["policyDecisions"].as_array().unwrap().iter().filter_map(|d| d["decision"].as_str()).collect();
    assert_eq!(decisions, ["allow", "deny"]);
    assert_eq!(record["policyDecisions"][1]["denyMode"], "throw");
    assert!(!world.shop().join(".worktrees/issue-7/ok1.txt").exists());
    world.finish().await;

    let world = solo(
        vec![calls(&[write("other.txt"), write("ok2.txt")]), reports("Done.", json!([]))],
        Some(COUNT),
        "",
    )
    .await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(world.shop().join(".worktrees/issue-7/ok2.txt").exists());
    let denied = left(&world, "run.json")["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|item| item["output"]["status"] == "denied")
        .unwrap()["output"]
        .clone();
    let envelope = json!({ "status": "denied", "code": "not_listed", "publicReason": "Action not allowed.", "data": null });
    assert_eq!(denied, envelope);
    assert!(asked(&world)[1].contains("Action not allowed."));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_032_case_27_a_redaction_program_that_fails_drops_the_field_and_one_that_works_is_heard() {
    let replies =
        || vec![calls(&[("read_file", json!({ "path": "README.md" }))]), reports("Done.", json!([]))];
    let allow = "[[rule]]\nid = \"read\"\nkind = \"tool\"\nname = \"read_file\"\neffect = \"allow\"\nreason = \"reads\"\n";
    let sentinel = |scenario: &mut agentd::sim::Scenario| {
        let mut issue: Value = serde_json::to_value(&scenario.repositories[0].issues[0]).unwrap();
        issue["body"] = json!("The word is SENTINELWORD.");
        scenario.repositories[0].issues[0] = serde_json::from_value(issue).unwrap();
        let files = &mut scenario.repositories[0].commits[0].files;
        files.insert("README.md".to_owned(), serde_json::from_value(json!("SENTINELWORD here\n")).unwrap());
    };
    for (program, withheld) in [("exit 1", true), ("sed s/SENTINELWORD/WORD/g", false)] {
        let more = format!("[redaction]\nprogram = [\"sh\", \"-c\", \"{program}\"]\n");
        let world = solo_of(replies(), Some(allow), &more, sentinel).await;
        let (code, output) = run(&world).await;
        assert_eq!(code, Some(0), "{program}: {output:#}");
        let record = left(&world, "run.json");
        assert_eq!(record["contextSnapshot"].is_null(), withheld, "{program}");
        assert_eq!(record["contextRedacted"], json!(withheld), "{program}");
        for name in ["events.jsonl", "run.json", "result.json", "report.md"] {
            let kept = std::fs::read_to_string(newest(&world).join(name)).unwrap();
            assert!(!kept.contains("SENTINELWORD"), "{program}: {name}");
        }
        assert!(!asked(&world)[1].contains("SENTINELWORD here"), "{program}: the tool's answer");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn x_018_x_014_case_32_a_hanging_model_ends_with_the_wall_time() {
    let hang = serde_json::from_value(json!({ "hang": "before_headers" })).unwrap();
    let world = solo(vec![hang], None, "").await;
    let (code, output) =
        world.json(&["run", "--issue", "7", "--agent", "solo", "--max-wall-time", "2s"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("max_wall_time")), "{output:#}");
    assert_eq!((&output["stop_reason"], &output["limit_type"]), (&json!("BUDGET_EXCEEDED"), &json!("HARD")));
    // The model alone would have been waited for two minutes, six times.
    let used = output["budgets"]["wall_time_used_ms"].as_u64().unwrap();
    assert!((2000..60_000).contains(&used), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_005_case_33_a_reply_that_passes_the_cost_cap_has_its_tools_not_run() {
    let mut dear = calls(&[write("ok.txt")]);
    dear.usage = Some(serde_json::from_value(json!({ "input": 100, "output": 1_000_000 })).unwrap());
    let world = solo(vec![dear], Some(COUNT), "").await;
    let (code, output) = run(&world).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("max_cost")), "{output:#}");
    assert!(!world.shop().join(".worktrees/issue-7/ok.txt").exists());
    assert_eq!(world.sim.model_requests().len(), 1);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_019_case_35_at_80_percent_people_are_asked_once_and_the_run_goes_on() {
    let mut dear = calls(&[write("ok1.txt")]);
    dear.usage = Some(serde_json::from_value(json!({ "input": 100, "output": 300_000 })).unwrap());
    let cheap = calls(&[write("ok2.txt")]);
    let world = solo(vec![dear, cheap, reports("Done.", json!([]))], Some(COUNT), "").await;
    let (code, output) = run(&world).await;
    assert_eq!(
        (code, output["budgets"]["soft_hits"].as_array().map(Vec::len)),
        (Some(0), Some(1)),
        "{output:#}"
    );
    let comments = world.sim.issue("demo/shop", 7).unwrap().comments;
    let asks = comments.iter().filter(|comment| comment.body.contains("A limit was near")).count();
    assert_eq!((asks, comments.len()), (1, 2), "what was asked is answered by the end: {comments:#?}");
    let labelled = format!("{:?}", world.sim.requests());
    assert!(labelled.contains("A limit is near"), "people were asked while it worked");
    assert!(labelled.contains("agentd:attention"), "the label was put on");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_20_x_031_a_fault_is_kept_on_request_and_long_texts_stand_beside_the_record() {
    let long = "A long report. ".repeat(6_000);
    let bad = || serde_json::from_value(json!({ "error": { "status": 401 } })).unwrap();
    let world =
        solo(vec![reports(&long, json!([])), bad()], None, "[record]\nfault_snapshots = true\n").await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{code:?}");
    assert_eq!(output["final_report"]["content"].as_str(), Some(long.as_str()), "not a synthetic one");
    let response = left(&world, "run.json")["response"].clone();
    assert_eq!(response["bytes"], json!(long.len()), "{response}");
    let kept = newest(&world).join(response["$ref"].as_str().unwrap());
    assert_eq!(std::fs::read_to_string(kept).unwrap(), long);
    let (code, output) = run(&world).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("auth_error")), "{output:#}");
    let events = std::fs::read(newest(&world).join("events.jsonl")).unwrap();
    let fault = text(&events)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find_map(|line| line["data"]["fault"]["$ref"].as_str().map(str::to_owned))
        .expect("a snapshot is named");
    let snapshot = std::fs::read_to_string(newest(&world).join(fault)).unwrap();
    assert!(snapshot.contains("AuthError") && snapshot.contains("messages"), "{snapshot}");
    let (code, verified) = world.json(&["runs", "verify"]).await;
    assert_eq!(code, Some(0), "{verified:#}");
    world.finish().await;
}
