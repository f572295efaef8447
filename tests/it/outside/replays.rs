//! Recorded runs played again, in a repository of their own: equal where nothing changed, and never to the outside.

use std::path::Path;

use serde_json::{Value, json};

use super::solo::{calls, left, reports, run, solo};
use super::world::World;

/// What may not change by a replay: refs, worktrees and GitHub.
async fn outside(world: &World) -> (String, String, usize, usize) {
    let refs = world.git(&world.shop(), &["for-each-ref"]).await;
    let worktrees = world.git(&world.shop(), &["worktree", "list"]).await;
    (
        refs,
        worktrees,
        world.sim.pulls("demo/shop").len(),
        world.sim.issue("demo/shop", 7).unwrap().comments.len(),
    )
}

pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p_040_p_041_a_strict_replay_runs_no_tool_asks_no_model_and_compares_equal() {
    let world = World::new(1).await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let (before, asked) = (outside(&world).await, world.sim.model_requests().len());
    let (code, replayed) = world.json(&["runs", "replay", "latest"]).await;
    assert_eq!((code, &replayed["equal"]), (Some(0), &json!(true)), "{replayed:#}");
    assert_eq!((&replayed["tools_run"], &replayed["model_requests"]), (&json!(0), &json!(0)));
    assert_eq!(replayed["stop_reason"], "OBJECTIVE_ACHIEVED");
    assert_eq!((outside(&world).await, world.sim.model_requests().len()), (before, asked));
    // Another prompt: the same replies, and the difference is shown.
    let agents = world.dir.path().join("agents");
    copy(&world.shop().join(".agent"), &agents);
    let prompt = agents.join("resolver/prompts/steps/initial/issue/f_default.md");
    let text = std::fs::read_to_string(&prompt).unwrap();
    std::fs::write(&prompt, format!("{text}\nBe brief.\n")).unwrap();
    let agents = agents.display().to_string();
    let (code, replayed) = world.json(&["runs", "replay", "latest", "--with-agents", &agents]).await;
    assert_eq!(code, Some(1), "{replayed:#}");
    let paths: Vec<&str> =
        replayed["differences"].as_array().unwrap().iter().filter_map(|d| d["path"].as_str()).collect();
    assert_eq!(paths, ["$.prompts[0].templateHash"], "{replayed:#}");
    world.finish().await;
}

const SOFT: &str = r#"
[[rule]]
id = "write"
kind = "tool"
name = "write_file"
effect = "deny"
deny_mode = "tool_result"
reason = "not_now"
when = { path = ["**"] }

[[rule]]
id = "read"
kind = "tool"
name = "read_file"
effect = "allow"
reason = "reads"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn p_041_refused_attempts_and_redacted_arguments_replay_equal() {
    let refused = |value: Value| serde_json::from_value(value).unwrap();
    let text = || refused(json!({"text": "just text"}));
    let key = "k=ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8\n";
    let writes = || {
        vec![calls(&[("write_file", json!({"path": "s.txt", "content": key}))]), reports("done", json!([]))]
    };
    let allowed = "[commit]\nsecrets_allowed = [\"s.txt\"]\n";
    for (script, config, detail) in [
        (vec![text(), text(), text(), reports("done", json!([]))], "", "completed_forced_final"),
        (
            vec![refused(json!({"text": ""})), text(), text(), reports("done", json!([]))],
            "",
            "completed_forced_final",
        ),
        (writes(), allowed, "completed"),
        (writes(), "", "policy_denied"),
    ] {
        let world = solo(script, None, config).await;
        let (_, output) = run(&world).await;
        assert_eq!(output["stop_detail"], detail, "{output:#}");
        let (code, replayed) = world.json(&["runs", "replay", "latest"]).await;
        assert_eq!((code, &replayed["equal"]), (Some(0), &json!(true)), "{replayed:#}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p_040_what_was_denied_is_decided_again_and_what_the_record_lacks_is_named_or_run() {
    let replies = vec![
        calls(&[
            ("read_file", json!({ "path": "README.md" })),
            ("write_file", json!({ "path": "made.txt", "content": "made" })),
        ]),
        reports("Done.", json!([])),
    ];
    let world = solo(replies, Some(SOFT), "").await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let (code, replayed) = world.json(&["runs", "replay", "latest"]).await;
    assert_eq!((code, &replayed["equal"]), (Some(0), &json!(true)), "{replayed:#}");
    // The same definitions under a policy that allows the call.
    let agents = world.dir.path().join("agents");
    copy(&world.shop().join(".agent"), &agents);
    let allowed = SOFT.replace("effect = \"deny\"\ndeny_mode = \"tool_result\"", "effect = \"allow\"");
    std::fs::write(agents.join("policy.toml"), allowed).unwrap();
    let agents = agents.display().to_string();
    let before = outside(&world).await;
    let (code, strict) = world.json(&["runs", "replay", "latest", "--with-agents", &agents]).await;
    let missing = strict["missing"].as_str().unwrap_or_default();
    assert_eq!(code, Some(1), "{strict:#}");
    assert!(
        missing.contains("write_file") && missing.len() > 64,
        "tool and hash of the arguments: {strict:#}"
    );
    let (code, hybrid) =
        world.json(&["runs", "replay", "latest", "--mode", "hybrid", "--with-agents", &agents]).await;
    assert_eq!(
        (code, &hybrid["tools_run"], &hybrid["missing"]),
        (Some(1), &json!(1), &Value::Null),
        "{hybrid:#}"
    );
    assert!(hybrid["differences"].to_string().contains("$.policy["), "{hybrid:#}");
    assert!(!world.shop().join("made.txt").exists());
    assert!(!world.shop().join(".worktrees/issue-7/made.txt").exists());
    assert_eq!(outside(&world).await, before);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_040_a_live_replay_asks_anew_and_publishes_nothing() {
    let write = || calls(&[("write_file", json!({ "path": "made.txt", "content": "made" }))]);
    let replies = vec![write(), reports("Done.", json!([])), write(), reports("Done.", json!([]))];
    let world = solo(replies, None, "").await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let before = outside(&world).await;
    let (code, live) = world.json(&["runs", "replay", "latest", "--mode", "live"]).await;
    assert_eq!((&live["tools_run"], &live["model_requests"]), (&json!(1), &json!(2)), "{live:#}");
    assert_eq!((code, &live["equal"]), (Some(0), &json!(true)), "{live:#}");
    assert_eq!(outside(&world).await, before);
    world.finish().await;
}

/// What a file of the state directory says is spent.
fn spent(world: &World, folder: &str) -> f64 {
    let folder = world.dir.path().join("state").join(folder);
    let file = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let file = file.filter(|path| path.extension().is_some_and(|end| end == "json")).max().unwrap();
    let told: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(told["reserved"], json!({}), "{told}");
    told["spent"].as_f64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn d87_what_a_live_replay_spends_counts_for_the_day_and_the_issue_and_is_told() {
    let replies = vec![reports("Done.", json!([])), reports("Done.", json!([]))];
    let world = solo(replies, None, "").await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let capped = |day: &str, issue: &str| {
        let budgets = format!("[budgets]\nmax_cost_per_day = {day}\nmax_cost_per_issue = {issue}\n");
        world.write("overlay.toml", &format!("{overlay}\n{budgets}"));
    };
    capped("5.0", "5.0");
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let cost = output["totals"]["cost_usd"].as_f64().unwrap();
    let both = || (spent(&world, "spend"), spent(&world, "repos/demo/shop/spend"));
    assert_eq!(both(), (cost, cost));
    // What comes from the record costs nothing.
    let (code, strict) = world.json(&["runs", "replay", "latest"]).await;
    assert_eq!((code, &strict["cost_usd"]), (Some(0), &json!(0.0)), "{strict:#}");
    assert_eq!(both(), (cost, cost));
    let (code, live) = world.json(&["runs", "replay", "latest", "--mode", "live"]).await;
    assert_eq!((code, &live["cost_usd"]), (Some(0), &json!(cost)), "{live:#}");
    assert_eq!(both(), (2.0 * cost, 2.0 * cost));
    // Neither cap is passed.
    let asked = world.sim.model_requests().len();
    for (day, issue) in [("0.0013", "5.0"), ("5.0", "0.0013")] {
        capped(day, issue);
        let live = world.json(&["runs", "replay", "latest", "--mode", "live"]).await.1;
        assert!(live.to_string().contains("max_cost"), "{live:#}");
    }
    assert_eq!(world.sim.model_requests().len(), asked);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_042_the_gates_are_computed_from_what_runs_left() {
    let world = World::new(1).await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let record = left(&world, "result.json");
    let ids: Vec<&str> =
        record["evidence"].as_array().unwrap().iter().filter_map(|e| e["evidence_id"].as_str()).collect();
    let golden = |ids: &[&str], abstains: bool| {
        json!({ "runs": [{ "run": "latest", "evidence": ids, "abstains": abstains }] }).to_string()
    };
    world.write("golden.json", &golden(&ids, false));
    let (code, told) = world.json(&["runs", "eval", "--golden", "../golden.json"]).await;
    assert_eq!((code, &told["passed"]), (Some(0), &json!(true)), "{told:#}");
    world.write("golden.json", &golden(&[ids[0], "ev_00000000000000000000"], false));
    let (code, told) = world.json(&["runs", "eval", "--golden", "../golden.json"]).await;
    assert_eq!((code, &told["gates"]["golden_recall"]["value"]), (Some(1), &json!(0.5)), "{told:#}");
    world.write("golden.json", &golden(&[], true));
    let (code, told) = world.json(&["runs", "eval", "--golden", "../golden.json"]).await;
    assert_eq!((code, &told["gates"]["abstention"]["passed"]), (Some(1), &json!(false)), "{told:#}");
    world.finish().await;
}
