//! What agentd sees of a program's requests to models: counted, priced, and ended at a cap while the program works.

use std::process::Stdio;

use serde_json::{Value, json};

use super::bench::{FIX, events, fixer, no_sandbox, script};
use crate::outside::started::until;
use crate::outside::world::World;

/// Why these tests cannot run here.
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
pub fn skipped() -> bool {
    let curl = agentd::sys::sandbox::which("curl".as_ref(), &std::env::var_os("PATH").unwrap_or_default());
    let why = no_sandbox().or_else(|| curl.is_none().then(|| "curl is not installed".to_owned()));
    if let Some(why) = &why {
        eprintln!("skipped: {why}");
    }
    why.is_some()
}

/// A world whose model gives the same answer to everything: 100 tokens in, 200 000 out, 3.0003 dollars.
pub async fn world() -> World {
    World::of(1, |scenario| {
        scenario.model.names = Vec::new();
        scenario.model.replies = serde_json::from_value(json!([
            {"times": 0, "text": "hello", "usage": {"input": 100, "output": 200_000}},
        ]))
        .unwrap();
    })
    .await
}

/// A program that asks the model four times, whole and as events in turn, and says after each answer that it has one.
pub fn asking(world: &World, further: &str) -> Value {
    asking_for(world, "recorded-model", further)
}

pub fn asking_for(world: &World, model: &str, further: &str) -> Value {
    let text = format!(
        "#!/bin/bash\ncat >/dev/null\n\
         ask() {{ curl -sS -H 'anthropic-version: 2023-06-01' -H 'accept-encoding: gzip' -H 'content-type: application/json' \
         -d '{{\"model\":\"{model}\",\"max_tokens\":9,\"stream\":'$1',\"messages\":[{{\"role\":\"user\",\"content\":\"hi\"}}]}}' \
         $ANTHROPIC_BASE_URL/v1/messages >> answers; echo x >> asked; }}\n\
         {further}\n\
         for streamed in false true false true; do ask $streamed; sleep 4; done\nsleep 600\n"
    );
    json!({"argv": [script(world, "asking.sh", &text)], "endpoints": ["anthropic"], "timeLimit": "60s"})
}

/// The journals of all runs.
fn journals(world: &World) -> Vec<String> {
    let runs = std::fs::read_dir(world.dir.path().join("state/repos/demo/shop/runs"));
    let journal = |run: std::fs::DirEntry| std::fs::read_to_string(run.path().join("events.jsonl")).ok();
    runs.into_iter().flatten().flatten().filter_map(journal).collect()
}

/// What its model used, by the record.
fn counted(output: &Value) -> (u64, u64) {
    let used = |of: &str| output["totals"][of].as_u64().unwrap_or_default();
    (used("tokens_in"), used("tokens_out"))
}

#[tokio::test(flavor = "multi_thread")]
async fn x_018_what_goes_by_an_endpoint_is_priced_and_a_cap_ends_the_program_while_it_works() {
    if skipped() {
        return;
    }
    let world = world().await;
    fixer(&world, "command", &asking(&world, ""));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("max_cost")), "{output:#}");
    assert_eq!(counted(&output), (200, 400_000), "{output:#}");
    let told = output.to_string();
    assert!(told.contains("The budget of $5.00 was used up while command worked."), "{output:#}");
    assert!(told.contains("Launches of command: 1; turns that it told: 0"), "{output:#}");
    let cost = output["totals"]["cost_usd"].as_f64().unwrap();
    assert!((cost - 6.0006).abs() < 1e-9, "{cost}");
    let line = events(&world, &output).into_iter().find(|event| event["kind"] == "llm_attempted").unwrap();
    let told = line.to_string();
    assert!(
        told.contains("\"model\":\"recorded-model\"") && told.contains("\"provider\":\"command\""),
        "{told}"
    );
    let (code, checked) = world.json(&["runs", "verify", "latest"]).await;
    assert_eq!(code, Some(0), "{checked:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_018_a_model_without_a_price_counts_at_the_dearest_one_against_the_caps() {
    if skipped() {
        return;
    }
    let world = world().await;
    fixer(&world, "command", &asking_for(&world, "other-model", ""));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    let told = || format!("{output:#}\n{:?}", world.sim.model_requests());
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("max_cost")), "{}", told());
    assert_eq!(counted(&output), (200, 400_000), "{output:#}");
    // What it cost is not said: nobody knows.
    assert_eq!(output["totals"]["cost_usd"], Value::Null, "{output:#}");
    let words = "the dearest price of a target counts against the budgets";
    assert!(output["warnings"].to_string().contains(words), "{output:#}");
    // The cap of the day has it, too.
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}[budgets]\nmax_cost_per_day = 6.0\n"));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("max_cost")), "{output:#}");
    assert_eq!(output["totals"]["tokens_out"], 0, "{output:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d87_the_days_cap_counts_a_programs_requests_and_lets_no_further_one_start() {
    if skipped() {
        return;
    }
    let world = world().await;
    fixer(&world, "command", &asking(&world, ""));
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}[budgets]\nmax_cost_per_day = 2.0\n"));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("max_cost")), "{output:#}");
    assert_eq!(counted(&output), (100, 200_000), "{output:#}");
    let words = "The budget of $2.00 a day (UTC) was used up while command worked.";
    assert!(output.to_string().contains(words), "{output:#}");
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("max_cost")), "{output:#}");
    assert_eq!(output["totals"]["tokens_out"], 0, "{output:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d61_what_a_program_spent_before_its_run_was_killed_is_in_its_record_and_under_the_cap_of_the_next() {
    if skipped() {
        return;
    }
    let world = world().await;
    fixer(&world, "command", &asking(&world, "ask false; sleep 600"));
    let run = ["--json", "run", "--issue", "7", "--agent", "fixer", "--max-cost", "3.5"];
    let mut first = world.command_in(&run).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // While it works: nothing is accounted yet.
    let has = |journal: &String, kind: &str| journal.contains(&format!("\"kind\":\"{kind}\""));
    let spent = || journals(&world).iter().any(|one| has(one, "agent_spent") && !has(one, "llm_attempted"));
    until(&mut first, spent).await;
    first.kill().unwrap();
    first.wait().unwrap();
    // What it has then is more than the cap, with what the killed one had.
    let (code, output) = world.json(&run[1..]).await;
    let told = || format!("{output:#}\n{}", journals(&world).join("\n"));
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("max_cost")), "{}", told());
    let (_, runs) = world.json(&["runs", "list"]).await;
    let cost = |run: &Value| (run["cost_usd"].as_f64().unwrap_or_default() * 10_000.0).round();
    let costs: Vec<f64> = runs.as_array().unwrap().iter().map(cost).collect();
    assert_eq!(costs, [30_003.0, 30_003.0], "{runs:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_tokens_of_one_visit_end_where_the_definition_says() {
    if skipped() {
        return;
    }
    for (key, most, words, answers) in [
        ("maxRequests", 3, "it made the 3 requests to models that program.maxRequests lets it", 3),
        ("maxTokens", 300_000, "it used 400200 tokens, more than the 300000 of program.maxTokens", 2),
    ] {
        let world = world().await;
        let mut program = asking(&world, "");
        program[key] = json!(most);
        fixer(&world, "command", &program);
        let (code, output) =
            world.json(&["run", "--issue", "7", "--agent", "fixer", "--max-cost", "1000"]).await;
        assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("agent_cli_failed")), "{output:#}");
        assert!(output.to_string().contains(words), "{key}: {output:#}");
        assert_eq!(counted(&output).1, answers * 200_000, "{key}: {output:#}");
        world.sim.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_agentd_saw_and_the_program_tells_too_counts_once() {
    if skipped() {
        return;
    }
    let world = world().await;
    // It speaks as Claude Code does, asks once, and tells of what it used.
    let further = format!(
        "{FIX}\nask true; rm -f answers asked\n\
         echo '{{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"done\",\"session_id\":\"s\",\
         \"num_turns\":1,\"total_cost_usd\":7.5,\"usage\":{{\"input_tokens\":90,\"output_tokens\":200000}}}}'\nexit 0\n"
    );
    fixer(&world, "claude-code", &asking(&world, &further));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    assert_eq!(counted(&output), (100, 200_000), "{output:#}");
    // At the configuration's price: what agentd saw has one.
    let cost = output["totals"]["cost_usd"].as_f64().unwrap();
    assert!((cost - 3.0003).abs() < 1e-9, "{cost}");
    world.sim.shutdown().await;
}

/// A program that says twice what all of it has cost and used, as Claude Code does; the fixer of the world.
fn saying_twice(world: &World, said: [(&str, u32); 2]) {
    let result = |(cost, output): (&str, u32)| {
        format!(
            "echo '{{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"at {cost}\",\"session_id\":\"s\",\
             \"num_turns\":1,\"total_cost_usd\":{cost},\"usage\":{{\"input_tokens\":90,\"output_tokens\":{output}}}}}'"
        )
    };
    let [first, second] = said.map(result);
    let text = format!("#!/bin/bash\ncat >/dev/null\n{FIX}\n{first}\nsleep 1\n{second}\nexit 0\n");
    let program = json!({ "argv": [script(world, "twice.sh", &text)], "sandbox": "off" });
    fixer(world, "claude-code", &program);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_told_once_counts_also_where_it_tells_less_later() {
    let world = World::new(0).await;
    saying_twice(&world, [("4.9", 2000), ("0.01", 2)]);
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(output["totals"]["cost_usd"], json!(4.9), "{output:#}");
    assert_eq!(counted(&output), (90, 2000), "{output:#}");
    // The cap of the run, too, heeds the larger figure.
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer", "--max-cost", "3"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("max_cost")), "{output:#}");
    world.sim.shutdown().await;
}

/// A program that says that it is done, as Claude Code does, and goes on with these lines.
fn going_on(world: &World, further: &str) {
    let text = format!(
        "#!/bin/bash\ncat >/dev/null\n{FIX}\n\
         used() {{ echo '{{\"type\":\"assistant\",\"message\":{{\"id\":\"'$1'\",\"model\":\"recorded-model\",\
         \"usage\":{{\"input_tokens\":'$2'}},\"content\":[{{\"type\":\"text\",\"text\":\"a task in the background is over\"}}]}}}}'; }}\n\
         echo '{{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"the report\",\"session_id\":\"s\",\
         \"num_turns\":1,\"total_cost_usd\":0.03,\"usage\":{{\"input_tokens\":90,\"output_tokens\":9}}}}'\n{further}\n"
    );
    let program = json!({ "argv": [script(world, "on.sh", &text)], "sandbox": "off", "timeLimit": "60s" });
    fixer(world, "claude-code", &program);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_uses_after_it_told_its_cost_counts_beside_it() {
    let world = World::new(0).await;
    going_on(&world, "for n in 1 2 3 4 5 6 7 8; do sleep 2; used m$n 1000000; done");
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("max_cost")), "{output:#}");
    let told = "The budget of $5.00 was used up while claude-code worked.";
    assert!(output.to_string().contains(told), "{output:#}");
    // Two messages of three dollars each came after it.
    assert_eq!(output["totals"]["cost_usd"], json!(6.03), "{output:#}");
    assert_eq!(counted(&output), (2_000_090, 9), "{output:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_report_with_which_a_program_is_done_stays_where_it_says_something_else_later() {
    let world = World::new(0).await;
    going_on(&world, "sleep 1; used m 1");
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(output["final_report"]["content"], json!("the report"), "{output:#}");
    world.finish().await;
}

/// It goes on with what it had left running, and says once more what all of it has cost.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_says_after_its_first_end_counts_as_well() {
    let world = World::new(0).await;
    saying_twice(&world, [("0.5", 10), ("4.9", 20)]);
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(output["totals"]["cost_usd"], json!(4.9), "{output:#}");
    assert!(output.to_string().contains("at 4.9"), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_018_replies_that_report_no_tokens_are_estimated_and_count_against_the_caps() {
    if skipped() {
        return;
    }
    let world = world().await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let service = format!(
        "[providers.openai]\nkind = \"openai\"\nbase_url = \"{}\"\napi_key = \"${{MODEL_KEY}}\"\n",
        world.sim.model_url_openai()
    );
    world.write("overlay.toml", &format!("{overlay}\n{service}"));
    // It asks for no `include_usage`, so that the service reports nothing in a stream.
    let text = "#!/bin/bash\ncat >/dev/null\n\
        for _ in 1 2 3; do curl -sS -H 'content-type: application/json' \
        -d '{\"model\":\"recorded-model\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}' \
        $OPENAI_BASE_URL/chat/completions >> answers; sleep 4; done\nsleep 600\n";
    let program =
        json!({"argv": [script(&world, "asking.sh", text)], "endpoints": ["openai"], "timeLimit": "60s"});
    fixer(&world, "command", &program);
    let (code, output) =
        world.json(&["run", "--issue", "7", "--agent", "fixer", "--max-cost", "0.0234"]).await;
    let asked = world.sim.model_requests();
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("max_cost")), "{output:#}\n{asked:?}");
    assert_eq!((counted(&output), &output["totals"]["cost_usd"]), ((0, 0), &Value::Null), "{output:#}");
    let line = events(&world, &output).into_iter().find(|event| event["kind"] == "llm_attempted").unwrap();
    let estimated = line.to_string();
    assert!(estimated.contains("\"tokens\":null") && estimated.contains("\"estimated\":{"), "{estimated}");
    assert!(output["warnings"].to_string().contains("What command costs is unknown"), "{output:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d98_a_request_of_a_program_that_the_money_does_not_cover_is_not_sent() {
    if skipped() {
        return;
    }
    let world = world().await;
    let text = "#!/bin/bash\ncat >/dev/null\n\
        printf '{\"model\":\"recorded-model\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"' > asked\n\
        head -c 400000 /dev/zero | tr '\\0' 'a' >> asked; printf '\"}]}' >> asked\n\
        curl -sS -H 'content-type: application/json' -H 'anthropic-version: 2023-06-01' --data-binary @asked \
        $ANTHROPIC_BASE_URL/v1/messages > answer; sleep 600\n";
    let program =
        json!({"argv": [script(&world, "asking.sh", text)], "endpoints": ["anthropic"], "timeLimit": "60s"});
    fixer(&world, "command", &program);
    // A window full of tokens, 128 000, costs 0.48 dollars.
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer", "--max-cost", "0.4"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("max_cost")), "{output:#}");
    assert!(output.to_string().contains("does not cover the next request: $0.40 is left"), "{output:#}");
    assert_eq!(world.sim.model_requests().len(), 0);
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer", "--max-cost", "0.5"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("max_cost")), "{output:#}");
    assert_eq!(world.sim.model_requests().len(), 1, "{output:#}");
    world.sim.shutdown().await;
}

/// A world whose model answers after a moment: 1000 tokens in, 20 000 out, 0.303 dollars.
async fn slow_world(delay_ms: u64) -> World {
    World::of(1, |scenario| {
        scenario.model.names = Vec::new();
        let usage = json!({"input": 1000, "output": 20_000});
        let reply = json!({"times": 0, "text": "hello", "delay_ms": delay_ms, "usage": usage});
        scenario.model.replies = serde_json::from_value(json!([reply])).unwrap();
    })
    .await
}

/// A program that asks with limits on the replies, which it has in `ask LIMIT`, and tells the status of each answer in `statuses`.
fn limiting(world: &World, work: &str) -> Value {
    let text = format!(
        "#!/bin/bash\ncat >/dev/null\n\
         ask() {{ curl -sS -o /dev/null -w '%{{http_code}}\\n' -H 'anthropic-version: 2023-06-01' \
         -H 'content-type: application/json' \
         -d '{{\"model\":\"recorded-model\",\"max_tokens\":'$1',\"messages\":[{{\"role\":\"user\",\"content\":\"hi\"}}]}}' \
         $ANTHROPIC_BASE_URL/v1/messages >> statuses; }}\n{work}\n"
    );
    json!({"argv": [script(world, "limiting.sh", &text)], "endpoints": ["anthropic"], "timeLimit": "60s"})
}

#[tokio::test(flavor = "multi_thread")]
async fn d98_requests_at_once_are_sent_as_far_as_the_money_covers_what_all_of_them_may_cost() {
    if skipped() {
        return;
    }
    let day = "[budgets]\nmax_cost_per_day = 0.928\n";
    for (further, most, words) in [
        ("", "0.928", "The budget of $0.9280 does not cover the next request"),
        (day, "5", "The budget of $0.9280 a day (UTC) does not cover the next request"),
    ] {
        let world = slow_world(700).await;
        fixer(&world, "command", &limiting(&world, "for n in {1..12}; do ask 20000 & done; wait; sleep 600"));
        let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
        world.write("overlay.toml", &format!("{overlay}{further}"));
        let (code, output) =
            world.json(&["run", "--issue", "7", "--agent", "fixer", "--max-cost", most]).await;
        assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("max_cost")), "{output:#}");
        assert!(output.to_string().contains(words), "{output:#}");
        assert_eq!(world.sim.model_requests().len(), 3, "{output:#}");
        // No reply was cut off, so that what they cost is known.
        assert_eq!(output["totals"]["cost_usd"], json!(0.909), "{output:#}");
        assert!(!output["warnings"].to_string().contains("cost_unknown"), "{output:#}");
        world.sim.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d98_the_last_request_that_the_money_covers_has_a_lower_limit_and_one_that_waits_in_vain_is_told_so()
{
    if skipped() {
        return;
    }
    let world = slow_world(9_000).await;
    let work = format!(
        "ask 40000 & sleep 1; ask 100; wait\nask 40000\n{FIX}\nmv statuses $HOME; cat $HOME/statuses"
    );
    fixer(&world, "command", &limiting(&world, &work));
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}[session]\nllm_timeout = \"2s\"\n"));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer", "--max-cost", "0.61"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let said = output["final_report"]["content"].as_str().unwrap_or_default();
    assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["429", "200", "200"], "{output:#}");
    let limits: Vec<u64> =
        world.sim.model_requests().iter().map(|asked| asked.body["max_tokens"].as_u64().unwrap()).collect();
    // 0.307 dollars are left for the second one, a cent of them for what it says.
    assert!(limits.len() == 2 && limits[0] == 40_000 && (19_000..20_400).contains(&limits[1]), "{limits:?}");
    assert_eq!(output["totals"]["cost_usd"], json!(0.606), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_budget_would_count_does_not_pass_the_endpoint_of_a_provider() {
    if skipped() {
        return;
    }
    let world = world().await;
    let text = "#!/bin/bash\ncat >/dev/null\nfor path in v1/messages/batches v1/complete v1/%6dessages v1/messages/; do \
        curl -sS -o /dev/null -H 'content-type: application/json' -H 'anthropic-version: 2023-06-01' \
        -d '{\"model\":\"recorded-model\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}' \
        $ANTHROPIC_BASE_URL/$path; done; sleep 600\n";
    let program = json!({
        "argv": [script(&world, "asking.sh", text)], "endpoints": ["anthropic"], "timeLimit": "60s", "maxRequests": 1,
    });
    fixer(&world, "command", &program);
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    let told = || format!("{output:#}\n{:#?}", world.sim.requests());
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("agent_cli_failed")), "{}", told());
    // The second spelling of the path is the second request to a model.
    assert!(output.to_string().contains("it made the 1 requests to models"), "{}", told());
    let reached =
        |part: &str| world.sim.requests().iter().filter(|asked| asked.target.contains(part)).count();
    assert_eq!((reached("batches"), reached("complete"), reached("%6d")), (0, 0, 1), "{}", told());
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_costs_that_says_nothing_is_unknown_where_agentd_does_not_see_it_ask() {
    let world = World::new(0).await;
    let program = script(&world, "fix.sh", &format!("#!/bin/sh\ncat >/dev/null; {FIX}\necho done\n"));
    let run = async |sandbox: &str| {
        fixer(&world, "command", &json!({"argv": [program], "sandbox": sandbox}));
        world.json(&["run", "--issue", "7", "--agent", "fixer"]).await
    };
    let (code, output) = run("off").await;
    assert_eq!((code, &output["totals"]["cost_usd"]), (Some(0), &Value::Null), "{output:#}");
    assert!(output["warnings"].to_string().contains("What command costs is unknown"), "{output:#}");
    if no_sandbox().is_none() {
        // It reaches nothing, so it has paid nothing.
        let (_, output) = run("required").await;
        assert_eq!(output["totals"]["cost_usd"], 0.0, "{output:#}");
    }
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_costs_that_failed_or_was_ended_before_it_told_is_unknown_and_nothing_where_none_ran()
{
    let world = World::new(0).await;
    let run = async |text: &str, limit: &str, further: &[&str]| {
        let program = match text {
            "" => world.dir.path().join("programs/is-not-there"),
            text => script(&world, "program.sh", text),
        };
        fixer(&world, "acp", &json!({"argv": [program], "sandbox": "off", "timeLimit": limit}));
        let words = [&["run", "--issue", "7", "--agent", "fixer"], further].concat();
        let (code, output) = world.json(&words).await;
        assert_eq!(code, Some(1), "{output:#}");
        (output["stop_detail"].clone(), output["totals"]["cost_usd"].clone(), output.to_string())
    };
    let crashes = "#!/bin/sh\nread -r line; exit 7\n";
    let sleeps = "#!/bin/sh\nread -r line; sleep 60\n";
    for (text, limit, further, detail) in [
        (crashes, "60s", &[][..], "agent_cli_failed"),
        (sleeps, "2s", &[], "agent_cli_failed"),
        (sleeps, "60s", &["--max-wall-time", "8s"], "max_wall_time"),
    ] {
        let (ended, cost, told) = run(text, limit, further).await;
        assert_eq!((ended, cost), (json!(detail), Value::Null), "{told}");
        assert!(told.contains("What acp costs is unknown"), "{told}");
    }
    let (ended, cost, told) = run("", "60s", &[]).await;
    assert_eq!((ended, cost), (json!("agent_cli_failed"), json!(0.0)), "{told}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_018_requests_that_a_program_leaves_count_against_its_caps() {
    if skipped() {
        return;
    }
    let world = world().await;
    let slow = json!({ "path": "/**/messages", "kind": "delay", "delay_ms": 20_000, "times": 50 });
    world.sim.inject(&serde_json::from_value(slow).unwrap()).unwrap();
    let text = "#!/bin/bash\ncat >/dev/null\n\
        ask() { curl -sS -m 0.5 -H 'anthropic-version: 2023-06-01' -H 'content-type: application/json' \
        -d '{\"model\":\"recorded-model\",\"max_tokens\":100000,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}' \
        $ANTHROPIC_BASE_URL/v1/messages; }\n\
        for count in 1 2 3 4 5 6; do ask; sleep 0.5; done\nsleep 600\n";
    let program =
        json!({"argv": [script(&world, "leaving.sh", text)], "endpoints": ["anthropic"], "timeLimit": "60s"});
    fixer(&world, "command", &program);
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer", "--max-cost", "2.5"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("max_cost")), "{output:#}");
    assert_eq!(output["totals"]["cost_usd"], Value::Null, "nobody knows it: {output:#}");
    let told = output["warnings"].to_string();
    assert!(told.contains("cost_unknown"), "{told}");
    world.sim.shutdown().await;
}
