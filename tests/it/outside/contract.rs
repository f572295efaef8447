//! What a run promises whatever its end: reason, detail, exit code and files agree.

use agentd::domain::budget::Budgets;
use serde_json::{Value, json};

use super::solo::{asked, calls, left, newest, reports, solo};
use super::world::World;

/// The printed output, the stored one, the record and the report say the same end.
fn assert_agrees(world: &World, code: Option<i32>, output: &Value, reason: &str, detail: &str) {
    assert_eq!(
        (output["stop_reason"].as_str(), output["stop_detail"].as_str()),
        (Some(reason), Some(detail)),
        "{output:#}"
    );
    let success = reason == "OBJECTIVE_ACHIEVED";
    assert_eq!((output["success"].as_bool(), code == Some(0)), (Some(success), success), "{output:#}");
    assert_eq!(output["exit_code"].as_i64(), code.map(i64::from));
    assert_eq!(output["error"].is_null(), success, "{output:#}");
    assert_eq!(&left(world, "result.json"), output, "what is printed is what is stored");
    let record = left(world, "run.json");
    assert_eq!(record["metadata"]["stop_reason"], reason);
    assert_eq!(record["metadata"]["stop_detail"], detail);
    assert_eq!(record["status"], if success { "completed" } else { "failed" });
    assert_eq!(record["errorName"].is_null(), success, "{record:#}");
    let report = std::fs::read_to_string(newest(world).join("report.md")).unwrap();
    let limit = output["limit_type"].as_str().unwrap();
    for told in [reason, detail, limit, "result.json", output["run_id"].as_str().unwrap()] {
        assert!(report.contains(told), "`{told}` is not in the report:\n{report}");
    }
    for heading in
        ["Objective", "Summary", "Steps", "Budgets", "Interventions", "Sources", "Outputs", "Record"]
    {
        assert!(report.contains(&format!("\n## {heading}\n")), "{heading}:\n{report}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn x_001_an_issue_with_a_blank_title_is_refused_and_no_branch_is_made() {
    let world = World::of(1, |scenario| scenario.repositories[0].issues[0].title = "  ".to_owned()).await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(4), Some("invalid_input")), "{output:#}");
    assert_eq!(world.git(&world.shop(), &["branch", "--list", "feature/*"]).await, "");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_008_p_025_p_029_x_007_x_012_x_024_x_041_c_05_c_21_a_run_that_succeeds_leaves_files_that_agree() {
    let world = World::new(1).await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_agrees(&world, code, &output, "OBJECTIVE_ACHIEVED", "completed");
    for claim in output["claims"].as_array().unwrap() {
        let evidenced = claim["evidence_ids"].as_array().is_some_and(|ids| !ids.is_empty());
        assert!(claim["status"] != "verified" || evidenced, "{claim:#}");
    }
    let record = left(&world, "run.json");
    let decided: Vec<&Value> = record["policyDecisions"].as_array().unwrap().iter().collect();
    assert!(
        decided.iter().all(|decision| decision["reason"].as_str().is_some_and(|reason| !reason.is_empty()))
    );
    for item in record["items"].as_array().unwrap().iter().filter(|item| item["type"] == "tool_call_item") {
        assert!(decided.iter().any(|decision| decision["callId"] == item["callId"]), "{item:#}");
    }
    for fingerprint in record["requestFingerprints"].as_array().unwrap() {
        assert_eq!(fingerprint["runtimeVersion"], env!("CARGO_PKG_VERSION"));
        assert_eq!(fingerprint["fingerprintSchemaVersion"], "agentd.fingerprint.v1");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_003_x_004_x_025_c_11_a_cap_that_is_reached_ends_the_run_with_its_code() {
    for (cap, value, detail) in
        [("--max-steps", "1", "max_steps"), ("--max-wall-time", "1ms", "max_wall_time")]
    {
        let world = World::new(1).await;
        let (code, output) = world.json(&["run", "--issue", "7", cap, value]).await;
        assert_eq!(code, Some(1), "{output:#}");
        assert_agrees(&world, code, &output, "BUDGET_EXCEEDED", detail);
        assert_eq!(output["limit_type"], "HARD");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn x_009_x_026_c_23_case_31_a_claim_without_evidence_is_not_verified_and_the_end_says_so() {
    let claims = json!([{
        "statement": "It works", "kind": "behavior_observed", "status": "verified",
        "cites": [{ "path": "absent.txt", "start": 1, "end": 1 }],
    }]);
    // Sent back once; the model insists.
    let world = solo(vec![reports("Done.", claims.clone()), reports("Done.", claims)], None, "").await;
    let (code, output) = super::solo::run(&world).await;
    assert_agrees(&world, code, &output, "NO_EVIDENCE", "claims_rejected");
    assert_eq!(output["claims"][0]["status"], "unverified", "{output:#}");
    assert!(!output["limitations"].as_array().unwrap().is_empty());
    assert_eq!(world.labels(), ["agentd:no-evidence"]);
    world.finish().await;
}

#[test]
fn x_020_x_021_x_022_the_budgets_of_a_run_that_names_none() {
    let budgets = Budgets::default();
    assert_eq!(budgets.max_steps, 12);
    assert_eq!(budgets.max_wall_time, std::time::Duration::from_secs(15 * 60));
    assert_eq!(budgets.max_cost.to_string(), "$10.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn p_010_p_011_p_012_p_013_a_denial_has_reason_public_reason_mode_and_version() {
    let world = World::new(1).await;
    world
        .write("shop/call.json", r#"{"kind":"tool","tool":"run_command","arguments":{"argv":["curl","x"]}}"#);
    let (code, verdict) = world.json(&["policy", "eval", "--input", "call.json"]).await;
    assert_eq!((code, verdict["decision"].as_str()), (Some(0), Some("deny")), "{verdict:#}");
    assert_eq!(verdict["reason"], "command_not_listed");
    assert!(
        verdict["publicReason"].as_str().is_some_and(|text| text.contains("not on the list")),
        "{verdict:#}"
    );
    assert_eq!(verdict["denyMode"], "tool_result");
    assert!(
        verdict["policyVersion"].as_str().is_some_and(|version| version.starts_with("sha256:")),
        "{verdict:#}"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_016_p_017_p_019_p_043_c_17_each_reader_sees_the_text_that_is_for_them() {
    let reads = calls(&[
        ("read_file", json!({ "path": "README.md" })),
        ("run_command", json!({ "argv": ["curl", "x"] })),
    ]);
    // The value of a key that the configuration names.
    let leak = "Done with a-key-of-the-simulator.";
    let world = solo(vec![reads, reports(leak, json!([]))], None, "").await;
    let (code, output) = super::solo::run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let record = left(&world, "run.json");
    let items = record["items"].as_array().unwrap();
    let envelopes: Vec<&Value> = items
        .iter()
        .filter(|item| item["type"] == "tool_call_output_item")
        .map(|item| &item["output"])
        .collect();
    assert_eq!(envelopes[0]["status"], "ok");
    assert!(envelopes[0]["code"].is_null() && envelopes[0]["publicReason"].is_null(), "{:#}", envelopes[0]);
    assert_eq!(envelopes[0]["data"]["status"], "success");
    assert_eq!(
        (envelopes[1]["status"].as_str(), envelopes[1]["code"].as_str()),
        (Some("denied"), Some("command_not_listed"))
    );
    assert!(envelopes[1]["publicReason"].as_str().is_some_and(|text| text.contains("not on the list")));
    // The rule's name is for the record alone.
    let rule = "no-other-command";
    assert!(record["policyDecisions"].to_string().contains(rule), "{record:#}");
    let comments = &world.sim.issue("demo/shop", 7).unwrap().comments;
    let shown: Vec<String> =
        comments.iter().map(|comment| comment.body.clone()).chain(asked(&world)).collect();
    assert!(shown.iter().all(|text| !text.contains(rule)), "{shown:#?}");
    let guardrails = record["guardrailDecisions"].as_array().unwrap();
    assert!(
        guardrails
            .iter()
            .any(|made| made["guardrailName"] == "secret_leak" && made["decision"] == "triggered"),
        "{guardrails:#?}"
    );
    assert!(!output.to_string().contains("a-key-of-the-simulator"));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_045_a_log_that_cannot_be_written_changes_nothing() {
    let world = World::new(1).await;
    let overlay = world.dir.path().join("overlay.toml").display().to_string();
    let line =
        format!("exec '{}' --config '{overlay}' --json run --issue 7 2>&-", env!("CARGO_BIN_EXE_agentd"));
    let as_a_person = world.command(&[]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &line]).current_dir(world.shop()).env_clear();
    shell.envs(as_a_person.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done = tokio::task::spawn_blocking(move || shell.output().unwrap()).await.unwrap();
    let output: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_agrees(&world, done.status.code(), &output, "OBJECTIVE_ACHIEVED", "completed");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_12_a_flow_that_completes_with_its_last_visit_has_not_run_out_of_visits() {
    let world = solo(vec![reports("Done.", json!([]))], None, "").await;
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo", "--max-steps", "1"]).await;
    assert_agrees(&world, code, &output, "OBJECTIVE_ACHIEVED", "completed");
    world.finish().await;
}
