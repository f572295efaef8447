//! The conformance cases of handoffs, fingerprints, evidence and completion, each through the binary.

use agentd::sim::ReplyFile;
use serde_json::{Value, json};

use super::desk::ALLOW_ALL;
use super::solo::{calls, left, newest, reports, run, solo, solo_of};
use super::world::{DEMO, World, text};

fn reply(value: Value) -> ReplyFile {
    serde_json::from_value(value).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn p_003_p_004_p_022_case_23_a_handoff_without_a_handoff_rule_stops_at_the_first_step() {
    let world = World::new(1).await;
    let policy = std::fs::read_to_string(world.shop().join(".agent/policy.toml")).unwrap();
    let tools: Vec<&str> =
        policy.split("[[rule]]").filter(|rule| !rule.contains("kind = \"handoff\"")).collect();
    assert!(tools.len() + 2 == policy.split("[[rule]]").count(), "{policy}");
    world.write("shop/.agent/policy.toml", &tools.join("[[rule]]"));
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("policy_denied")), "{output:#}");
    let steps = output["steps"].as_array().unwrap();
    assert_eq!((steps.len(), steps[0]["step_id"].as_str()), (1, Some("initial.issue")), "{output:#}");
    let record = left(&world, "run.json");
    assert_eq!(record["errorName"], "HandoffPolicyDenied");
    let handoff = record["policyDecisions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|decision| decision["resource"]["kind"] == "handoff")
        .unwrap();
    assert_eq!(
        (&handoff["decision"], &handoff["reason"], &handoff["denyMode"]),
        (&json!("deny"), &json!("policy_not_configured"), &json!("throw"))
    );
    let item =
        record["items"].as_array().unwrap().iter().find(|item| item["type"] == "handoff_item").unwrap();
    assert_eq!((&item["output"]["status"], &item["output"]["data"]), (&json!("denied"), &Value::Null));
    assert_eq!(world.sim.model_requests().len(), 2, "the second step asked nothing");
    world.finish().await;
}

/// Skipped with a word where there is no python3.
#[tokio::test(flavor = "multi_thread")]
async fn p_028_case_25_python_recomputes_the_fingerprints_of_a_run_from_the_captured_requests() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: python3 is not installed");
        return;
    }
    let replies = vec![
        calls(&[
            ("read_file", json!({ "path": "README.md", "max_lines": 3 })),
            ("search", json!({ "pattern": "Größe \u{1f6d2} \u{2028}" })),
        ]),
        reply(json!({ "tool_calls": [
            { "name": "read_file", "raw": "{\"path\":" },
            { "name": "read_file", "arguments": { "path": "README.md" } },
        ] })),
        reply(json!({ "text": "An attempt that does not count." })),
        reply(json!({ "error": { "status": 500 } })),
        reports("Done.", json!([])),
    ];
    let world = solo_of(
        replies,
        Some(ALLOW_ALL),
        "[session]\nretry_backoff = \"5ms\"\nmax_retries = 4\n",
        |scenario| {
            scenario.model.names.clear();
        },
    )
    .await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let openai = overlay
        .replace("kind = \"anthropic\"", "kind = \"openai\"")
        .replace(&world.sim.model_url_anthropic(), &world.sim.model_url_openai())
        .replace("model = \"recorded-model\"\n", "model = \"recorded-model\"\ntemperature = 0.1\n");
    world.write("overlay.toml", &openai);
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let requests: Vec<Value> = world.sim.model_requests().iter().map(|request| request.body.read()).collect();
    assert_eq!(requests.len(), 5);
    let mut captured =
        json!({ "requests": requests, "fingerprints": left(&world, "run.json")["requestFingerprints"] });
    let check = |captured: &Value| {
        world.write("captured.json", &captured.to_string());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recompute_fingerprints.py");
        let file = world.dir.path().join("captured.json");
        std::process::Command::new("python3").args(["-B", script]).arg(file).output().unwrap()
    };
    let good = check(&captured);
    assert!(good.status.success(), "{}{}", text(&good.stdout), text(&good.stderr));
    captured["requests"][1]["messages"][1]["content"] = json!("Something else was sent.");
    let forged = check(&captured);
    let told = text(&forged.stdout);
    assert_eq!(forged.status.code(), Some(1), "{told}");
    assert!(told.contains("request 2: messagesHash") && told.contains("request 2: requestHash"), "{told}");
    assert!(!told.contains("toolsHash") && !told.contains("request 1"), "{told}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_008_x_010_case_29_a_wrong_line_an_empty_line_and_a_missing_file_verify_nothing() {
    let claim = |statement: &str, path: &str, line: u32| {
        json!({ "statement": statement, "kind": "defect_location", "status": "verified",
                "cites": [{ "path": path, "start": line, "end": line }] })
    };
    let mut misquoted = claim("with words that are not there", "lib/cart.sh", 1);
    misquoted["cites"][0]["quote"] = json!("no such words");
    let claims = json!([
        claim("beyond the end", "lib/cart.sh", 900),
        claim("on an empty line", "lib/cart.sh", 2),
        claim("in no file", "lib/absent.sh", 1),
        misquoted,
        { "statement": "by a cite that is none", "kind": "defect_location", "cites": [{ "file": "lib/cart.sh" }] },
        { "statement": "at its place", "kind": "defect_location", "status": "candidate",
          "cites": [{ "path": "lib/cart.sh", "start": 1, "quote": "# Cart functions. Prices are whole cents; a discount is a whole percentage from 0 to 100. \r\n" }] },
    ]);
    let world = solo(vec![reports("Found.", claims.clone()), reports("Found.", claims)], None, "").await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "one claim holds: {output:#}");
    let status: Vec<&str> =
        output["claims"].as_array().unwrap().iter().take(6).filter_map(|c| c["status"].as_str()).collect();
    assert_eq!(status[..5], ["unverified"; 5], "{output:#}");
    assert_eq!(status[5], "verified", "{output:#}");
    let limitations = output["limitations"].to_string();
    let report = std::fs::read_to_string(newest(&world).join("report.md")).unwrap();
    let unproven = report.split("## Not verified").nth(1).unwrap_or_default();
    let unproven_ones = [
        "beyond the end",
        "on an empty line",
        "in no file",
        "with words that are not there",
        "by a cite that is none",
    ];
    for statement in unproven_ones {
        assert!(limitations.contains(statement) && unproven.contains(statement), "{statement}: {report}");
    }
    let cited = report.split("## Cited").nth(1).unwrap_or_default();
    assert!(cited.contains("`lib/cart.sh`, line 1"), "how it is proven: {report}");
    world.finish().await;
}

fn edit(old: &str, new: &str) -> (&'static str, Value) {
    ("edit_file", json!({ "path": "lib/cart.sh", "old": old, "new": new }))
}

#[tokio::test(flavor = "multi_thread")]
async fn x_008_case_30_tests_that_were_green_before_an_edit_prove_nothing_about_the_tree_after_it() {
    const WRONG: &str = "echo $(($1 - $2))";
    const RIGHT: &str = "echo $(($1 * (100 - $2) / 100))";
    let tests =
        json!({ "id": "green", "name": "run_command", "arguments": { "argv": ["sh", "tests/run.sh"] } });
    let claims = json!([{ "statement": "tests pass", "kind": "tests_pass", "status": "verified", "cites": ["green"] }]);
    let script = |last: (&'static str, Value)| {
        vec![
            calls(&[edit(WRONG, RIGHT)]),
            reply(json!({ "tool_calls": [tests.clone()] })),
            calls(&[last]),
            reports("Fixed.", claims.clone()),
            reports("Fixed.", claims.clone()),
        ]
    };
    // The edit breaks it again: agentd's own run on the final tree is red.
    let world = solo(script(edit(RIGHT, WRONG)), Some(ALLOW_ALL), "").await;
    world.verify(DEMO);
    let (code, output) = run(&world).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("verify_failed")), "{output:#}");
    let ran = left(&world, "run.json")["items"].to_string();
    assert!(ran.contains("ok    ten percent of twenty euros"), "it was green when the agent ran it: {ran}");
    assert_eq!(output["claims"][0]["status"], "unverified");
    world.finish().await;

    // A harmless edit: what the agent saw is stale all the same, and agentd looks once itself.
    let world = solo(script(edit("# Cart functions.", "# The cart's functions.")), Some(ALLOW_ALL), "").await;
    world.verify(DEMO);
    let (code, output) = run(&world).await;
    assert_eq!((code, &output["claims"][0]["status"]), (Some(0), &json!("verified")), "{output:#}");
    let backs = &output["claims"][0]["evidence_ids"];
    let records = output["evidence"].as_array().unwrap();
    let fresh = records
        .iter()
        .find(|record| backs.to_string().contains(record["evidence_id"].as_str().unwrap()))
        .unwrap();
    assert_eq!((&fresh["captured_by"], &fresh["stale"]), (&json!("agentd"), &json!(false)), "{fresh:#}");
    assert_eq!(fresh["provenance"]["tree_after"], output["artifacts"]["head_tree"], "{fresh:#}");
    world.finish().await;

    // Nobody says which command the tests are: nothing can be refreshed.
    let world = solo(script(edit("# Cart functions.", "# The cart's functions.")), Some(ALLOW_ALL), "").await;
    world.verify("[]");
    let (code, output) = run(&world).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("claims_rejected")), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_12_x_003_case_34_a_flow_of_two_visits_completes_within_a_budget_of_two() {
    let world = solo(vec![reports("One.", json!([])), reports("Two.", json!([]))], None, "").await;
    let path = world.shop().join(".agent/solo/agent.json");
    let agent = std::fs::read_to_string(&path).unwrap().replace(
        r#""count:iteration", "config": { "maxIterations": 1 }"#,
        r#""iterationBudget", "config": { "maxIterations": 2 }"#,
    );
    world.write("shop/.agent/solo/agent.json", &agent);
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo", "--max-steps", "2"]).await;
    assert_eq!((code, output["stop_reason"].as_str()), (Some(0), Some("OBJECTIVE_ACHIEVED")), "{output:#}");
    assert_eq!((&output["iterations"], &output["budgets"]["steps_used"]), (&json!(2), &json!(2)));
    assert_eq!(output["limit_type"], "N/A");
    world.finish().await;

    // One visit less, and it is a budget that ends it.
    let world = solo(vec![reports("One.", json!([]))], None, "").await;
    world.write("shop/.agent/solo/agent.json", &agent);
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo", "--max-steps", "1"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("max_steps")), "{output:#}");
    assert_eq!(output["limit_type"], "HARD");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_031_case_26_a_secret_in_an_error_of_the_provider_and_split_over_a_stream_is_kept_nowhere() {
    const KEY: &str = "a-key-of-the-simulator";
    let (first, second) = KEY.split_at(9);
    let split = format!(
        "printf %s {first}; sleep 0.05; printf %s {second}; printf %s {first} >&2; sleep 0.05; printf %s {second} >&2"
    );
    let replies = vec![
        calls(&[("run_command", json!({ "argv": ["sh", "-c", split] }))]),
        reply(json!({ "error": { "status": 400, "message": format!("bad key {KEY} in the request") } })),
    ];
    let world = solo(replies, Some(ALLOW_ALL), "").await;
    let overlay = world.dir.path().join("overlay.toml").display().to_string();
    let args = ["--config", &overlay, "--json", "run", "--issue", "7", "--agent", "solo", "-v"];
    let done = world.agentd(&args).await;
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    let mut seen = vec![text(&done.stdout), text(&done.stderr)];
    seen.extend(world.sim.issue("demo/shop", 7).unwrap().comments.iter().map(|comment| comment.body.clone()));
    seen.push(super::solo::asked(&world)[1].clone());
    super::attacks::every_file(&world.dir.path().join("state"), &mut |_, bytes| seen.push(text(bytes)));
    for said in seen {
        assert!(!said.contains(KEY), "{said}");
    }
    assert!(text(&done.stdout).contains("SYSTEM_ERROR"));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_030_each_session_tells_what_was_seen_why_and_what_was_left_out() {
    let big = |bytes: u64| ("desk__big", json!({ "bytes": bytes }));
    let replies =
        vec![calls(&[big(20_000)]), calls(&[big(12_000), big(12_000)]), reports("Done.", json!([]))];
    let world = super::cases::served(replies, "").await;
    // So narrow that the two answers do not fit any more.
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let narrow = "model = \"recorded-model\"\ncontext_window = 9000\nmax_output_tokens = 1000\n";
    world.write("overlay.toml", &overlay.replacen("model = \"recorded-model\"\n", narrow, 1));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let record = left(&world, "run.json");
    let manifest = &record["steps"][0];
    assert_eq!(
        (&manifest["visit"], &manifest["stepId"]),
        (&json!(1), &json!("initial.issue")),
        "{manifest:#}"
    );
    let inputs = manifest["inputs"].as_array().unwrap();
    let seen: Vec<&str> = inputs.iter().filter_map(|input| input["ref"].as_str()).collect();
    assert_eq!(seen, ["system_prompt", "prompt/1", "tools"], "{manifest:#}");
    for input in inputs {
        assert_eq!(input["sha256"].as_str().map(str::len), Some(64), "{input}");
        assert!(
            input["tokens"].as_u64().unwrap() > 0 && !input["why"].as_str().unwrap().is_empty(),
            "{input}"
        );
    }
    assert_eq!(inputs[2]["sha256"], {
        let events = std::fs::read_to_string(newest(&world).join("events.jsonl")).unwrap();
        let opened = events.lines().find(|line| line.contains("\"session_opened\"")).unwrap();
        serde_json::from_str::<Value>(opened).unwrap()["data"]["tools_sha256"].clone()
    });
    let left_out = manifest["exclusions"].as_array().unwrap();
    let whys: Vec<&str> = left_out.iter().filter_map(|one| one["why"].as_str()).collect();
    assert!(whys.contains(&"size_cap"), "handed out by handle: {manifest:#}");
    assert!(
        whys.iter().any(|why| ["context_budget_exceeded", "token_budget"].contains(why)),
        "did not fit: {manifest:#}"
    );
    assert!(left_out.iter().all(|one| !one["ref"].as_str().unwrap().is_empty()), "{manifest:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_043_a_supervisor_sets_a_typed_constraint_with_a_time_and_changes_no_prompt() {
    let same = || calls(&[("desk__echo", json!({ "text": "again" }))]);
    let other = calls(&[("desk__count", json!({}))]);
    let replies = vec![same(), same(), same(), same(), other, reports("Done.", json!([]))];
    let world = super::cases::served(replies, "").await;
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let (_, events) = world.json(&["runs", "events"]).await;
    let set: Vec<&Value> =
        events.as_array().unwrap().iter().filter(|line| line["kind"] == "constraint_set").collect();
    assert_eq!(set.len(), 1, "{set:#?}");
    let constraint = &set[0]["data"]["constraint"];
    assert_eq!(
        (&constraint["constraint"], &constraint["by"], &constraint["turn"]),
        (&json!("refuse_action"), &json!("loop_guard"), &json!(4)),
        "{constraint:#}"
    );
    assert!(constraint["ttl"].as_u64().unwrap() > 0);
    let fingerprints = left(&world, "run.json")["requestFingerprints"].clone();
    let first = &fingerprints[0];
    for fingerprint in fingerprints.as_array().unwrap() {
        assert_eq!(fingerprint["systemPromptHash"], first["systemPromptHash"]);
    }
    let report = std::fs::read_to_string(newest(&world).join("report.md")).unwrap();
    assert!(report.contains("The loop guard refused an action"), "{report}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_20_p_027_without_a_fault_and_without_the_switch_only_hashes_of_requests_are_kept() {
    let secretless = "SENTINEL-OF-THE-TEMPLATE";
    let world =
        solo(vec![reports("Done.", json!([])), reply(json!({ "error": { "status": 401 } }))], None, "").await;
    world.write("shop/.agent/solo/prompts/system.md", &format!("You work alone. {secretless}\n"));
    for expected in [Some(0), Some(1)] {
        let (code, output) = run(&world).await;
        assert_eq!(code, expected, "{output:#}");
        super::attacks::every_file(&newest(&world), &mut |path, bytes| {
            assert!(!text(bytes).contains(secretless), "{} has the prompt", path.display());
        });
        let record = left(&world, "run.json");
        assert_eq!(record["requestFingerprints"].as_array().map(Vec::len), Some(1));
        assert_eq!(record["promptSnapshots"][0]["promptText"], Value::Null);
        let events = std::fs::read_to_string(newest(&world).join("events.jsonl")).unwrap();
        assert!(!events.contains("\"fault\""), "no snapshot without record.fault_snapshots");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_008_a_claim_backed_by_a_short_answer_is_found_intact_afterwards() {
    let seen = json!({ "id": "seen", "name": "run_command", "arguments": { "argv": ["echo", "seen"] } });
    let claims = json!([{ "statement": "it prints", "kind": "behavior_observed", "status": "verified", "cites": ["seen"] }]);
    let world =
        solo(vec![reply(json!({ "tool_calls": [seen] })), reports("Seen.", claims)], Some(ALLOW_ALL), "")
            .await;
    let (code, output) = run(&world).await;
    assert_eq!((code, &output["claims"][0]["status"]), (Some(0), &json!("verified")), "{output:#}");
    let (code, verified) = world.json(&["runs", "verify"]).await;
    assert_eq!(code, Some(0), "{verified:#}");
    world.finish().await;
}
