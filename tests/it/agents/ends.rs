//! How agent programs end, and what counts of it: what they used, what they say behind their end, and their report where somebody asks
//! to stop.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use super::bench::{FIX, events, fixer, no_sandbox, script};
use super::metering;
use crate::outside::started::until;
use crate::outside::world::{World, text};

/// A line that says a JSON event.
fn event(event: &Value) -> String {
    format!("echo '{event}'\n")
}

/// The first events of Codex, and its report.
fn reports(words: &str) -> String {
    let said = json!({"type": "item.completed", "item": {"type": "agent_message", "text": words}});
    event(&json!({"type": "thread.started", "thread_id": "t"})) + &event(&said)
}

/// Its last event; `usage` is JSON.
fn completed(usage: &str) -> String {
    format!("echo '{{\"type\":\"turn.completed\",\"usage\":{usage}}}'\n")
}

/// A run with a program that does this, without a sandbox.
async fn run(world: &World, backend: &str, lines: &str, further: &[&str]) -> (Option<i32>, Value) {
    let program = script(world, "program.sh", &format!("#!/bin/sh\ncat >/dev/null\n{lines}"));
    fixer(world, backend, &json!({"argv": [program], "sandbox": "off", "model": "recorded-model"}));
    world.json(&[&["run", "--issue", "7", "--agent", "fixer"], further].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_tokens_are_no_figure_and_too_many_are_over_every_cap() {
    // A policy lets one kind of program start.
    let (of_codex, of_opencode) = (World::new(0).await, World::new(0).await);
    let step = |tokens: &str| {
        let said = json!({"type": "text", "sessionID": "s", "part": {"text": "Done."}});
        let told =
            format!("{{\"type\":\"step_finish\",\"sessionID\":\"s\",\"part\":{{\"tokens\":{tokens}}}}}");
        event(&said) + &format!("echo '{told}'\n")
    };
    let codex = |usage: &str| reports("Done.") + &completed(usage);
    for (world, backend, lines) in [
        (&of_codex, "codex", codex("{\"input_tokens\":0,\"output_tokens\":0}")),
        (&of_codex, "codex", codex("null")),
        (&of_opencode, "opencode", step("{\"input\":0}")),
    ] {
        let (_, output) = run(world, backend, &lines, &[]).await;
        assert_eq!(output["totals"]["cost_usd"], Value::Null, "{lines}: {output:#}");
        let told = output["warnings"].to_string();
        assert!(told.contains("it tells neither tokens nor money"), "{lines}: {told}");
    }
    // One that ends without saying that it did is told apart from one that failed.
    let (_, output) = run(&of_codex, "codex", &reports("Done."), &[]).await;
    assert!(output.to_string().contains("exit code 0, without the event that tells its end"), "{output:#}");
    let (_, output) = run(&of_opencode, "opencode", "exit 0\n", &[]).await;
    assert!(output.to_string().contains("it ended with exit code 0, without a report"), "{output:#}");
    // The budget of the issue is used up with that.
    for (world, backend, lines) in [
        (&of_codex, "codex", codex("{\"input_tokens\":10000000000000000000000}")),
        (&of_opencode, "opencode", step("{\"input\":10000000000000000000000}")),
    ] {
        let (code, output) = run(world, backend, &lines, &["--max-cost", "1"]).await;
        assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("max_cost")), "{lines}: {output:#}");
    }
    of_codex.sim.shutdown().await;
    of_opencode.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_opencode_gets_over_is_none() {
    let world = World::new(0).await;
    let error = event(&json!({"type": "error", "error": {"data": {"message": "overloaded, retrying"}}}));
    let step = event(&json!({"type": "step_start", "sessionID": "s"}))
        + &event(&json!({"type": "text", "sessionID": "s", "part": {"text": "All is done."}}))
        + &event(
            &json!({"type": "step_finish", "sessionID": "s", "part": {"tokens": {"input": 7, "output": 1}}}),
        );
    let (code, output) = run(&world, "opencode", &format!("{FIX}\n{error}{step}"), &[]).await;
    assert_eq!((code, &output["totals"]["tokens_in"]), (Some(0), &json!(7)), "{output:#}");
    assert!(output.to_string().contains("All is done."), "{output:#}");
    // An error that nothing comes after is one.
    let (_, output) = run(&world, "opencode", &format!("{step}{error}"), &[]).await;
    assert_eq!(output["stop_detail"], "agent_cli_failed", "{output:#}");
    assert!(output.to_string().contains("overloaded, retrying"), "{output:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_goes_on_after_its_end_is_read_and_a_silent_one_is_ended() {
    let world = World::new(0).await;
    // Codex begins another turn. What it uses later than ten seconds after the first one counts as well.
    let turn = event(&json!({"type": "turn.started"}));
    let (small, large) = (completed("{\"input_tokens\":10}"), completed("{\"input_tokens\":3000000}"));
    let lines = format!("{}{small}sleep 6\n{turn}sleep 6\n{large}", reports("Done."));
    let (code, output) = run(&world, "codex", &lines, &["--max-cost", "1"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("max_cost")), "{output:#}");
    // And one that says nothing more does nothing more.
    let late = world.dir.path().join("late");
    let lines = format!("{FIX}\n{}{small}sleep 12\ntouch {}\nsleep 600\n", reports("Done."), late.display());
    let (code, output) = run(&world, "codex", &lines, &[]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(!late.exists(), "it worked on where nobody looked");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d61_what_a_program_cost_that_was_killed_before_it_told_is_unknown() {
    let world = World::new(0).await;
    let begun = world.dir.path().join("begun");
    let lines =
        format!("#!/bin/sh\ncat >/dev/null\n{}touch {}\nsleep 60\n", reports("So far."), begun.display());
    let program = script(&world, "program.sh", &lines);
    fixer(&world, "codex", &json!({"argv": [program], "sandbox": "off"}));
    let mut command = world.command_in(&["--json", "run", "--issue", "7", "--agent", "fixer"]);
    let mut works = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until(&mut works, || begun.exists()).await;
    works.kill().unwrap();
    works.wait().unwrap();
    let (_, runs) = world.json(&["runs", "list"]).await;
    assert_eq!((&runs[0]["cost_usd"], &runs[0]["cost_unknown"]), (&Value::Null, &json!(true)), "{runs:#}");
    let (_, ledger) = world.json(&["runs", "accounting", "latest"]).await;
    assert!(ledger.to_string().contains("\"mcpServer\":\"codex\""), "{ledger:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_26_the_report_that_a_program_gave_counts_though_somebody_asked_to_stop_meanwhile() {
    let world = World::new(0).await;
    let at = |name: &str| world.dir.path().join(name);
    let (begun, go) = (at("begun"), at("go"));
    let lines = format!(
        "#!/bin/sh\ncat >/dev/null\n{FIX}\necho x >> {}\nwhile [ ! -e {} ]; do sleep 0.1; done\n{}{}",
        begun.display(),
        go.display(),
        reports("The discount is a percentage now."),
        completed("{\"input_tokens\":10}"),
    );
    let program = script(&world, "program.sh", &lines);
    fixer(&world, "codex", &json!({"argv": [program], "sandbox": "off", "model": "recorded-model"}));
    let mut command = world.command_in(&["run", "--issue", "7", "--agent", "fixer"]);
    let mut works = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until(&mut works, || begun.exists()).await;
    let pid = works.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let mut told = BufReader::new(works.stderr.take().unwrap()).lines();
    let heard = told.find(|line| line.as_ref().is_ok_and(|line| line.contains("gives one last report")));
    assert!(heard.unwrap().unwrap().contains("an agent program has ten seconds"), "it is told what is true");
    std::fs::write(go, "").unwrap();
    // Its standard error is read to the end, so that it does not wait for a reader.
    let said: Vec<String> = told.map_while(Result::ok).collect();
    assert_eq!(works.wait().unwrap().code(), Some(1), "{said:#?}");
    let (_, stopped) = world.json(&["runs", "show", "latest"]).await;
    assert!(stopped.to_string().contains("shutdown"), "{stopped:#}");
    let (_, report) = world.json(&["runs", "report", "latest"]).await;
    assert!(report.to_string().contains("The discount is a percentage now."), "{report:#}");
    // The visit is done and paid for: nobody works on it again.
    let (code, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!((code, &output["stop_reason"]), (Some(0), &json!("OBJECTIVE_ACHIEVED")), "{output:#}");
    assert_eq!(std::fs::read_to_string(begun).unwrap(), "x\n", "it was started once");
    world.assert_one_of_each();
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d13_commits_of_a_program_without_a_sandbox_are_not_said_to_be_left() {
    if no_sandbox().is_some() {
        return;
    }
    let world = World::new(0).await;
    let lines = format!(
        "{FIX}\ngit -c user.name=A -c user.email=a@b commit -qam 'percent, not cents'\n{}{}",
        reports("Done."),
        completed("null")
    );
    let (code, output) = run(&world, "codex", &lines, &[]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let log = world.git(&world.shop(), &["log", "--format=%s", "feature/issue-7"]).await;
    assert!(log.contains("percent, not cents"), "{log}");
    assert!(!output["warnings"].to_string().contains("commits_left"), "{output:#}");
    let made = events(&world, &output).into_iter().find(|event| event["kind"] == "tool_facts").unwrap();
    assert!(made.to_string().contains("\"committed_itself\":true"), "{made:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_known_of_a_cost_of_which_some_is_unknown_is_at_least_that_everywhere() {
    if metering::skipped() {
        return;
    }
    let world = metering::world().await;
    let other = "curl -sS -o /dev/null -H 'anthropic-version: 2023-06-01' -H 'content-type: application/json' \
         -d '{\"model\":\"another-model\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}' \
         $ANTHROPIC_BASE_URL/v1/messages";
    let further = format!("{FIX}\nask false\n{other}\nrm -f answers asked\necho done\nexit 0");
    fixer(&world, "command", &metering::asking(&world, &further));
    let mut command = world.command_in(&["run", "--issue", "7", "--agent", "fixer", "--max-cost", "1000"]);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let told = format!("{}{}", text(&done.stdout), text(&done.stderr));
    let cost = told.lines().find(|line| line.trim_start().starts_with("Cost")).unwrap_or_default();
    assert!(cost.contains("at least $3.0"), "{told}");
    world.sim.shutdown().await;
}
