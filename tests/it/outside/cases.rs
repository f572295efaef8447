//! The session's conformance cases through the binary: limits, retries, targets, context, odd replies (1–18).

use std::path::Path;
use std::time::{Duration, Instant};

use agentd::sim::ReplyFile;
use serde_json::{Value, json};

use super::desk::ALLOW_ALL;
use super::solo::{calls, left, newest, reports, solo, solo_of};
use super::world::World;

pub(super) fn reply(value: Value) -> ReplyFile {
    serde_json::from_value(value).unwrap()
}

pub(super) fn count() -> ReplyFile {
    calls(&[("desk__count", json!({}))])
}

pub(super) fn done() -> ReplyFile {
    reports("done", json!([]))
}

fn error(status: u16) -> ReplyFile {
    reply(json!({ "error": { "status": status } }))
}

/// A world with one MCP server, every tool allowed, and `session` under `[session]`.
pub(super) async fn served(replies: Vec<ReplyFile>, session: &str) -> World {
    served_of(replies, session, |_| ()).await
}

/// The same, with the scenario changed first.
pub(super) async fn served_of(
    replies: Vec<ReplyFile>,
    session: &str,
    change: impl FnOnce(&mut agentd::sim::Scenario),
) -> World {
    let more = format!("[session]\nretry_backoff = \"5ms\"\n{session}");
    let world = solo_of(replies, Some(ALLOW_ALL), &more, |scenario| {
        scenario.model.names.clear();
        change(scenario);
    })
    .await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/mcp_server.py");
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let (notes, file) = (world.dir.path().join("notes"), world.dir.path().join("count"));
    let server = format!(
        "[mcp.servers.desk]\ncommand = \"python3\"\nargs = [{script:?}, \"--notes\", {notes:?}]\nenv = {{ COUNT_FILE = {file:?} }}\n"
    );
    world.write("overlay.toml", &format!("{overlay}\n{server}"));
    world
}

/// The same with a second target behind the first.
async fn two_targets(replies: Vec<ReplyFile>, session: &str) -> World {
    let world = served(replies, session).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let second = "[[session.targets]]\nprovider = \"anthropic\"\nmodel = \"second\"\nprice = { input = 3.0, output = 15.0 }\n";
    world.write("overlay.toml", &overlay.replacen("[verify]", &format!("{second}[verify]"), 1));
    world
}

pub(super) async fn run(world: &World, more: &[&str]) -> (i32, Value) {
    let mut args = vec!["run", "--issue", "7", "--agent", "solo"];
    args.extend(more);
    let (code, output) = world.json(&args).await;
    (code.unwrap(), output)
}

pub(super) fn counted(world: &World) -> usize {
    std::fs::read_to_string(world.dir.path().join("count")).unwrap_or_default().lines().count()
}

fn ledger(world: &World) -> Vec<Value> {
    let text = std::fs::read_to_string(newest(world).join("accounting.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn lines(world: &World, kind: &str) -> Vec<Value> {
    ledger(world).into_iter().filter(|line| line["type"] == kind).collect()
}

/// Contents of all tool results in a request, 0-based.
pub(super) fn results(world: &World, request: usize) -> Vec<String> {
    let body = world.sim.model_requests()[request].body.clone();
    let blocks = body["messages"].as_array().unwrap().iter().flat_map(|message| match &message["content"] {
        Value::Array(blocks) => blocks.clone(),
        _ => Vec::new(),
    });
    let text = |content: &Value| match content {
        Value::String(text) => text.clone(),
        other => other[0]["text"].as_str().unwrap_or_default().to_owned(),
    };
    blocks.filter(|block| block["type"] == "tool_result").map(|block| text(&block["content"])).collect()
}

pub(super) fn offered(world: &World, request: usize) -> Vec<String> {
    let body = world.sim.model_requests()[request].body.clone();
    let tools = body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Case 18 after every case: one line per request, one per execution, the record closed, the protocol kept.
pub(super) async fn finish(world: World) {
    assert_eq!(lines(&world, "llm").len(), world.sim.model_requests().len(), "A-072");
    let ran = lines(&world, "tool").iter().filter(|line| line["command"] == "desk__count").count();
    assert_eq!(ran, counted(&world), "A-077");
    assert!(ledger(&world).iter().all(|line| line["latency"].is_u64()), "A-081");
    let result = left(&world, "result.json");
    let (success, exit) = (result["success"] == true, result["exit_code"] == 0);
    assert!(success == exit && success == (result["stop_reason"] == "OBJECTIVE_ACHIEVED"), "A-039");
    assert_eq!(result["error"].is_null(), success, "A-038");
    assert!(newest(&world).join("report.md").is_file() && newest(&world).join("run.json").is_file());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_042_case_1_wrong_arguments_and_configuration_are_exit_4() {
    let world = solo(Vec::new(), None, "").await;
    let flag = world.agentd(&["run", "--issue", "7", "--no-such-flag"]).await;
    assert_eq!(flag.status.code(), Some(4));
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    for broken in ["[session]\nmax_retries = 0\n", "[session]\nno_such_key = 1\n", "[session\n"] {
        world.write("overlay.toml", &format!("{overlay}\n{broken}"));
        let (code, output) = run(&world, &[]).await;
        assert_eq!((code, &output["stop_detail"]), (4, &json!("config_invalid")), "{broken}: {output:#}");
    }
    assert!(world.sim.model_requests().is_empty() && !world.dir.path().join("state/repos").exists());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_041_case_2_a_missing_required_server_is_exit_3_before_any_request() {
    let world = solo(vec![done()], Some(ALLOW_ALL), "[mcp.servers.gone]\ncommand = \"/nonexistent\"\n").await;
    let (code, output) = run(&world, &[]).await;
    assert_eq!((code, &output["stop_detail"]), (3, &json!("mcp_unavailable")), "{output:#}");
    assert!(world.sim.model_requests().is_empty());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_041_a_single_look_and_a_sweep_do_not_begin_without_a_required_server() {
    for args in [&["daemon", "--once"][..], &["sweep"]] {
        for (more, code) in [("", 3), ("required = false\n", 0)] {
            let servers = format!("[mcp.servers.gone]\ncommand = \"/nonexistent/x\"\n{more}");
            let world = solo(vec![], None, &servers).await;
            let mut command = world.command_in(args);
            let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
            let told = String::from_utf8_lossy(&done.stderr);
            assert_eq!(done.status.code(), Some(code), "{args:?} {more}: {told}");
            let is_named = told.contains("mcp.servers.gone: there is no program /nonexistent/x");
            assert_eq!(is_named && told.contains("required = false"), code == 3, "{told}");
            world.finish().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_043_a_068_case_3_a_report_that_never_fits_its_schema_is_exit_5() {
    let wrong =
        json!({ "final_report": { "report_format": "json", "content_json": { "no": 1 } }, "times": 9 });
    let world = World::of(1, |scenario| scenario.model.replies = vec![reply(wrong)]).await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(5), &json!("schema_invalid")), "{output:#}");
    assert_eq!(output["stop_reason"], "SYSTEM_ERROR");
    let schema: Value = serde_json::from_str(include_str!("../../../schemas/run-output.v1.json")).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&left(&world, "result.json")));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_004_a_040_p_042_case_4_a_model_that_never_reports_ends_with_a_synthetic_report() {
    let world = served(vec![count(), count(), count()], "").await;
    let (code, output) = run(&world, &["--max-turns", "3", "--max-retries", "1"]).await;
    assert_eq!((code, &output["stop_detail"]), (1, &json!("max_turns_exhausted")), "{output:#}");
    assert_eq!(output["stop_reason"], "BUDGET_EXCEEDED");
    assert_eq!(world.sim.model_requests().len(), 3);
    assert_eq!(output["final_report"]["metadata"]["agentd"]["source"], "synthetic", "{output:#}");
    assert_eq!(left(&world, "run.json")["errorName"], "MaxTurnsExceeded");
    finish(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_005_case_5_the_last_turn_offers_only_the_report_and_runs_nothing_else() {
    let world = served(vec![count(), count(), done()], "max_retries = 2\n").await;
    let (code, output) = run(&world, &["--max-turns", "2"]).await;
    assert_eq!(code, 0, "{output:#}");
    assert_eq!(offered(&world, 1), ["agent__final_report"]);
    assert_eq!(counted(&world), 1, "the call in the last turn did not run");
    finish(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_006_a_007_case_6_calls_beyond_the_cap_are_dropped_and_told() {
    let four = vec![("desk__count", json!({})); 4];
    let world = served(vec![calls(&four), done()], "max_tool_calls_per_turn = 2\n").await;
    assert_eq!(run(&world, &[]).await.0, 0);
    let told = results(&world, 1);
    assert_eq!((counted(&world), told.len()), (2, 4));
    assert_eq!(told.iter().filter(|text| *text == "(tool failed: per-turn tool limit exceeded)").count(), 2);
    finish(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_047_a_048_a_049_c_15_case_7_a_malformed_call_is_told_and_the_valid_one_runs() {
    let mixed = json!({ "tool_calls": [
        { "name": "desk__echo", "raw": "{\"text\":" }, { "name": "desk__count" },
    ] });
    let world = served(vec![reply(mixed), done()], "").await;
    assert_eq!(run(&world, &[]).await.0, 0);
    let told = results(&world, 1);
    assert!(told[0].starts_with("(tool failed: ") && told[0].contains("JSON"), "{told:?}");
    assert_eq!((told[1].as_str(), counted(&world)), ("counted", 1));
    let notes = std::fs::read_to_string(world.dir.path().join("notes")).unwrap();
    assert!(!notes.contains("call echo"), "no repair: {notes}");
    finish(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_009_a_010_case_8_retries_are_attempts_in_total() {
    for (retries, failures, code) in [("1", 1, 1), ("3", 2, 0), ("2", 2, 1)] {
        let mut replies = vec![error(500); failures];
        if code == 0 {
            replies.push(done());
        }
        let requests = replies.len();
        let world = served(replies, "").await;
        let (ended, output) = run(&world, &["--max-retries", retries]).await;
        assert_eq!((ended, world.sim.model_requests().len()), (code, requests), "{retries}: {output:#}");
        if code == 0 {
            finish(world).await;
        } else {
            assert_eq!(output["error"]["class"], "llm_unavailable", "{output:#}");
            finish(world).await;
        }
    }
    let world = served(Vec::new(), "").await;
    let (code, _) = run(&world, &["--max-retries", "0"]).await;
    assert_eq!((code, world.sim.model_requests().len()), (4, 0));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_011_a_056_a_079_case_9_attempts_go_round_the_targets() {
    let world = two_targets(vec![error(500); 5], "max_retries = 5\nretry_backoff_max = \"5ms\"\n").await;
    assert_eq!(run(&world, &[]).await.0, 1);
    let asked: Vec<Value> = lines(&world, "llm").iter().map(|line| line["model"].clone()).collect();
    assert_eq!(asked, ["recorded-model", "second", "recorded-model", "second", "recorded-model"]);
    finish(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_038_a_050_c_09_case_10_refused_credentials_end_the_session_at_once() {
    let world = two_targets(vec![error(401)], "").await;
    let (code, output) = run(&world, &[]).await;
    assert_eq!((code, world.sim.model_requests().len()), (1, 1));
    let error = &output["error"];
    assert_eq!((&error["class"], &error["recoverable"]), (&json!("auth_error"), &json!(false)), "{output:#}");
    assert!(!error["message"].as_str().unwrap().is_empty());
    assert_eq!(output["final_report"]["metadata"]["agentd"]["source"], "synthetic");
    finish(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_052_c_13_case_11_retry_after_is_honoured_and_never_beyond_the_wall_time() {
    let limited = |seconds: u64| reply(json!({ "error": { "status": 429, "retry_after": seconds } }));
    let gap = |world: &World| {
        let asked = world.sim.model_requests();
        asked[1].at - asked[0].at
    };
    let world = served(vec![limited(2), done()], "").await;
    assert_eq!(run(&world, &[]).await.0, 0);
    assert!(gap(&world) >= Duration::from_secs(2));
    finish(world).await;

    let world = two_targets(vec![limited(30), done()], "").await;
    assert_eq!(run(&world, &[]).await.0, 0);
    assert!(gap(&world) < Duration::from_secs(5), "the second target is asked at once");
    finish(world).await;

    let world = served(vec![limited(3600)], "").await;
    let started = Instant::now();
    let (code, output) = run(&world, &["--max-wall-time", "60s"]).await;
    assert_eq!((code, &output["stop_detail"]), (1, &json!("max_wall_time")), "{output:#}");
    assert!(started.elapsed() < Duration::from_secs(30), "it did not sleep");
    finish(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_017_a_018_a_019_case_12_the_limit_itself_fits_and_one_more_does_not() {
    let window = |window: u64| {
        format!("context_window = {window}\ncontext_window_buffer = 256\nmax_output_tokens = 1000\n")
    };
    let probe = async |size: u64| {
        let world = solo(vec![done()], Some(ALLOW_ALL), "").await;
        let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
        let named = "model = \"recorded-model\"\n";
        world.write("overlay.toml", &overlay.replacen(named, &format!("{named}{}", window(size)), 1));
        let (code, output) = run(&world, &[]).await;
        assert_eq!(code, 0, "{output:#}");
        let events = std::fs::read_to_string(newest(&world).join("events.jsonl")).unwrap();
        let guard = events
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .find(|line| line["kind"] == "context_guard")
            .unwrap()["data"]
            .clone();
        finish(world).await;
        let part = |name: &str| guard[name].as_u64().unwrap();
        assert_eq!(
            part("projected"),
            part("current") + part("pending") + part("new") + part("schema"),
            "A-017"
        );
        assert_eq!(part("limit"), size - 256 - 1000, "A-018");
        (part("projected"), output["steps"][0]["forced_final"].clone())
    };
    let (projected, forced) = probe(100_000).await;
    assert!(forced.is_null());
    let exact = projected + 256 + 1000;
    assert_eq!(probe(exact).await, (projected, Value::Null));
    assert_eq!(probe(exact - 1).await, (projected, json!("context")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_026_a_027_a_028_a_030_case_13_one_byte_more_than_the_cap_is_stored() {
    let big = |bytes: u64| calls(&[("desk__big", json!({ "bytes": bytes }))]);
    let world = served(vec![big(12_288), big(12_289), done()], "").await;
    assert_eq!(run(&world, &[]).await.0, 0);
    assert_eq!(results(&world, 1)[0].len(), 12_288);
    let told = results(&world, 2)[1].clone();
    let handle: Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
    for key in ["handle", "reason", "bytes", "lines", "tokens"] {
        assert!(!handle[key].is_null(), "{key}: {told}");
    }
    assert_eq!((&handle["bytes"], &handle["reason"]), (&json!(12_289), &json!("size_cap")));
    let file = newest(&world).join("tool-output").join(handle["handle"].as_str().unwrap());
    assert_eq!(std::fs::metadata(file).unwrap().len(), 12_289);
    finish(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_032_a_033_a_034_case_14_a_tool_that_hangs_is_ended() {
    let world = served(
        vec![calls(&[("desk__sleep", json!({ "ms": 120_000 }))]), done()],
        "tool_timeout = \"300ms\"\n",
    )
    .await;
    let started = Instant::now();
    assert_eq!(run(&world, &[]).await.0, 0);
    assert!(started.elapsed() < Duration::from_secs(90));
    assert_eq!(results(&world, 1), ["(tool failed: timeout)"]);
    let line = &lines(&world, "tool")[0];
    assert_eq!((&line["status"], &line["error"]), (&json!("failed"), &json!("timeout")));
    assert!((300..60_000).contains(&line["latency"].as_u64().unwrap()), "{line}");
    finish(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_044_a_045_a_046_case_15_empty_replies_count_and_are_not_kept() {
    let odd = [json!({}), json!({ "thinking": "hm" }), json!({ "text": "I am done" })];
    let mut replies: Vec<ReplyFile> = odd.into_iter().map(reply).collect();
    replies.push(done());
    let world = served(replies, "max_retries = 4\n").await;
    assert_eq!(run(&world, &[]).await.0, 0);
    assert_eq!(world.sim.model_requests().len(), 4);
    let folder = newest(&world).join("conversation");
    let kept = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let kept: Value = serde_json::from_slice(&std::fs::read(kept).unwrap()).unwrap();
    let roles: Vec<&str> = kept["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant"], "A-083…A-085");
    assert!(kept["messages"][2].to_string().contains("hm"), "the reasoning is kept");
    finish(world).await;

    let world = served(vec![reply(json!({})), reply(json!({})), done()], "max_retries = 2\n").await;
    let (code, output) = run(&world, &[]).await;
    assert_eq!((code, &output["steps"][0]["forced_final"]), (0, &json!("retry_exhaustion")), "A-012");
    finish(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_059_case_16_text_of_the_last_turn_is_the_report() {
    let world = served(vec![reply(json!({ "text": "the answer" }))], "").await;
    let (code, output) = run(&world, &["--max-turns", "1"]).await;
    assert_eq!((code, &output["final_report"]["content"]), (0, &json!("the answer")), "{output:#}");
    assert_eq!(output["final_report"]["metadata"]["agentd"]["source"], "text");
    finish(world).await;
}

/// The other cases end in the same checks; here everything that could slip through the ledger comes together.
#[tokio::test(flavor = "multi_thread")]
async fn a_072_a_077_a_080_case_18_every_request_and_every_execution_has_its_line_and_nothing_else_has() {
    let mixed = reply(json!({ "tool_calls": [
        { "name": "desk__count" }, { "name": "desk__fail" }, { "name": "desk__sleep", "arguments": { "ms": 5000 } },
        { "name": "desk__nope" }, { "name": "desk__echo", "raw": "{" }, { "name": "desk__count" },
    ] }));
    let cut = reply(json!({ "text": "half", "drop": "mid_stream" }));
    let replies = vec![error(500), mixed, reply(json!({})), cut, count(), done()];
    let keys = "tool_timeout = \"300ms\"\nmax_retries = 4\nmax_tool_calls_per_turn = 4\n";
    let world = served(replies, keys).await;
    let (code, output) = run(&world, &[]).await;
    assert_eq!(code, 0, "{output:#}");
    let status = |kind: &str| -> Vec<String> {
        let of = |line: &Value| {
            let failed = if line["status"] == "ok" { "" } else { "!" };
            format!("{}{failed}", line["command"].as_str().unwrap_or_default())
        };
        lines(&world, kind).iter().map(of).collect()
    };
    assert_eq!(status("llm").len(), 6, "{:?}", status("llm"));
    let mut ran = status("tool");
    ran.sort();
    assert_eq!(ran, ["desk__count", "desk__count", "desk__fail!", "desk__sleep!"], "the others did not run");
    finish(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_08_x_018_case_33_a_budget_ends_the_run_at_once_and_a_full_context_does_not() {
    let mut dear = count();
    dear.usage = serde_json::from_value(json!({ "input": 4_000_000, "output": 0 })).unwrap();
    let world = served(vec![dear], "").await;
    let (code, output) = run(&world, &["--max-cost", "10"]).await;
    assert_eq!((code, &output["stop_detail"]), (1, &json!("max_cost")), "{output:#}");
    assert_eq!(counted(&world), 0, "the reply's tool did not run");
    finish(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_005_d87_the_cap_of_a_day_holds_across_runs_and_conversations() {
    let replies = vec![done(), done()];
    let world = served(replies, "").await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let capped =
        |cap: &str| world.write("overlay.toml", &format!("{overlay}\n[budgets]\nmax_cost_per_day = {cap}\n"));
    capped("0.5");
    let (code, output) = run(&world, &[]).await;
    assert_eq!(code, 0, "{output:#}");
    let day = std::fs::read_dir(world.dir.path().join("state/spend"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|end| end == "json"))
        .unwrap();
    let spent: Value = serde_json::from_slice(&std::fs::read(&day).unwrap()).unwrap();
    assert_eq!(spent["spent"], output["totals"]["cost_usd"], "settled with what it cost: {spent}");
    assert_eq!(spent["reserved"], json!({}));

    // Somebody else is spending the rest.
    let other = "00000000-0000-4000-8000-000000000001";
    let held = json!({ "schema_version": spent["schema_version"], "spent": spent["spent"], "reserved": { other: 0.49 } });
    agentd::sys::files::write_private(&day, held.to_string().as_bytes()).unwrap();
    let (code, output) = run(&world, &[]).await;
    assert_eq!((code, &output["stop_detail"]), (1, &json!("max_cost")), "{output:#}");
    assert!(output["error"]["message"].as_str().unwrap().contains("a day"), "{output:#}");
    assert_eq!(world.sim.model_requests().len(), 1, "nothing was asked");

    capped("0.5\n[[session.targets]]\nprovider = \"anthropic\"\nmodel = \"unpriced\"");
    let (code, output) = run(&world, &[]).await;
    assert_eq!((code, &output["stop_detail"]), (4, &json!("config_invalid")), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_27_each_step_begins_a_conversation_of_its_own() {
    let world = World::new(1).await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let begins =
        world.sim.model_requests().into_iter().filter(|request| {
            request.body["messages"].as_array().is_some_and(|messages| messages.len() == 1)
        });
    assert_eq!(begins.count(), output["steps"].as_array().unwrap().len(), "no chat crosses a handoff");
    world.finish().await;
}
