//! Sessions over real HTTP: the simulator's model refuses what a provider would refuse, retries and odd replies included.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agentd::config::{Provider, ProviderKind};
use agentd::llm::Providers;
use agentd::sim::{Scenario, SimOptions, Simulator};
use agentd::sys::clock::Clock;
use serde_json::Value;

use super::world::{Ran, World, failed};

async fn simulator(replies: &str) -> Simulator {
    let scenario = Scenario::from_text(replies, Path::new("scenario.toml")).unwrap();
    Simulator::start(scenario, SimOptions::default()).await.unwrap()
}

/// Runs a session against the simulator over one wire; its world is real time.
async fn run(sim: &Simulator, kind: ProviderKind, stream: bool) -> Ran {
    run_with(sim, kind, |world| {
        world.settings.stream = stream;
        world.settings.llm_timeout = Duration::from_millis(600);
        world.settings.max_retries = 8;
    })
    .await
}

async fn run_with(sim: &Simulator, kind: ProviderKind, change: impl FnOnce(&mut World)) -> Ran {
    let base_url = match kind {
        ProviderKind::Anthropic => sim.model_url_anthropic(),
        ProviderKind::Openai => sim.model_url_openai(),
        ProviderKind::OpenaiResponses => sim.model_url_responses(),
        ProviderKind::Gemini => sim.model_url_gemini(),
    };
    let provider = Provider {
        name: "fake".to_owned(),
        kind,
        base_url,
        api_key: Some("sim-model-key".into()),
        headers: Vec::new(),
    };
    let providers = Providers::new([provider], &Clock::system()).unwrap();
    let world = World::new(Vec::new()).with(|world| world.provider = Some(Arc::new(providers)));
    world.with(change).run().await
}

/// Odd replies, those that are not said the same way on every wire (`middle`) among them, and then a report.
fn odd(middle: &str) -> String {
    const BEGINNING: &str = r#"
[[model.replies]]
error = { status = 429, retry_after = 1 }
[[model.replies]]
thinking = "let me see"
[[model.replies]]
text = "I think I am done"
[[model.replies]]
tool_calls = [{ name = "echo", raw = '{"a":' }]
[[model.replies]]
garbage = "not json"
[[model.replies]]
error = { status = 500 }
[[model.replies]]
hang = "before_headers"
[[model.replies]]
text = "now for real"
"#;
    const END: &str = r#"
[[model.replies]]
tool_calls = [{ name = "agent__final_report", arguments = { report_format = "markdown", content = " " } }]
[[model.replies]]
final_report = { report_format = "markdown", content = "done" }
"#;
    format!("{BEGINNING}{middle}{END}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_055_a_session_full_of_odd_replies_speaks_the_protocol_on_every_wire() {
    for kind in [ProviderKind::Anthropic, ProviderKind::Openai, ProviderKind::OpenaiResponses] {
        for stream in [false, true] {
            let sim = simulator(&odd(r#"tool_calls = [{ name = "echo", raw = '{"a":' }, { name = "count" }, { name = "echo", arguments = { a = 1 } }, { name = "nope" }]"#)).await;
            let ran = run(&sim, kind, stream).await;
            let place = format!("{kind:?}, stream {stream}");
            assert_eq!(sim.violations(), Vec::<String>::new(), "{place}");
            assert_eq!(sim.unused_replies(), Vec::<String>::new(), "{place}");
            assert_eq!((ran.content(), ran.detail()), ("done", "completed"), "{place}");
            assert_eq!((ran.runs("count"), ran.runs("echo"), ran.outcome.turns), (1, 1, 2), "{place}");
            assert_eq!(ran.llm_lines().len(), sim.model_requests().len(), "A-072, {place}");
            let lost = ran.llm_lines().iter().filter(|line| failed(line)).count();
            assert_eq!(lost, 8, "{place}");
            let usage: Vec<bool> = ran.llm_lines().iter().map(|line| has_tokens(line)).collect();
            assert!(usage.iter().filter(|known| **known).count() >= 5, "A-075: {usage:?}, {place}");
        }
    }
}

/// Gemini cannot say arguments that are no object: it ends such a reply with a word of its own, which the model is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_055_a_session_full_of_odd_replies_speaks_geminis_protocol() {
    for stream in [false, true] {
        let sim = simulator(&odd(r#"thinking = "two calls"
tool_calls = [{ name = "count" }, { name = "echo", arguments = { a = 1 } }, { name = "nope" }]"#))
        .await;
        let ran = run(&sim, ProviderKind::Gemini, stream).await;
        assert_eq!(sim.violations(), Vec::<String>::new(), "stream {stream}");
        assert_eq!(sim.unused_replies(), Vec::<String>::new(), "stream {stream}");
        assert_eq!((ran.content(), ran.detail()), ("done", "completed"), "stream {stream}");
        assert_eq!((ran.runs("count"), ran.runs("echo"), ran.outcome.turns), (1, 1, 2));
        assert_eq!(ran.llm_lines().len(), sim.model_requests().len(), "A-072");
        let last = sim.model_requests().pop().unwrap().body.to_string();
        assert!(last.contains("thoughtSignature"), "a call's signature goes back: {last}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_044_reasoning_goes_back_to_the_provider_that_gave_it_on_every_wire() {
    let script = "[[model.replies]]\nthinking = \"hm\"\ntool_calls = [{ name = \"count\" }]\n\
                  [[model.replies]]\nfinal_report = { report_format = \"markdown\", content = \"ok\" }\n";
    let marks = [
        (ProviderKind::Anthropic, "\"signature\":"),
        (ProviderKind::OpenaiResponses, "\"encrypted_content\":"),
        (ProviderKind::Gemini, "\"thoughtSignature\":"),
    ];
    for (kind, mark) in marks {
        for stream in [false, true] {
            let sim = simulator(script).await;
            let ran = run(&sim, kind, stream).await;
            assert_eq!(sim.violations(), Vec::<String>::new(), "{kind:?}, stream {stream}");
            assert_eq!(ran.detail(), "completed", "{kind:?}, stream {stream}");
            let second = sim.model_requests()[1].body.to_string();
            assert!(second.contains(mark) && second.contains("hm"), "{kind:?}, stream {stream}: {second}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_075_a_082_every_wire_counts_and_is_charged_alike() {
    let usage = "usage = { input = 1000, output = 100, cache_read = 50, reasoning = 40 }";
    let script = format!("[[model.replies]]\nfinal_report = {{ content = \"ok\" }}\n{usage}\n");
    for kind in
        [ProviderKind::Anthropic, ProviderKind::Openai, ProviderKind::OpenaiResponses, ProviderKind::Gemini]
    {
        for stream in [false, true] {
            let sim = simulator(&script).await;
            let ran = run(&sim, kind, stream).await;
            let line = serde_json::to_value(ran.llm_lines()[0]).unwrap();
            assert_eq!(line["tokens"]["totalTokens"], 1150, "{kind:?}, stream {stream}: {line:#}");
            assert_eq!(line["tokens"]["cacheReadInputTokens"], 50, "{kind:?}, stream {stream}");
            assert_eq!(line["costUsd"], Value::from(0.001_205), "1000 + 200 + 5 micro-dollars; {kind:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_069_a_reply_cut_by_its_limit_is_known_as_such_on_every_wire() {
    let script = "[[model.replies]]\ntext = \"half a\"\nstop = \"length\"\n";
    for kind in
        [ProviderKind::Anthropic, ProviderKind::Openai, ProviderKind::OpenaiResponses, ProviderKind::Gemini]
    {
        for stream in [false, true] {
            let sim = simulator(script).await;
            let ran = run_with(&sim, kind, |world| {
                world.settings.stream = stream;
                world.settings.max_turns = 1;
            })
            .await;
            assert!(ran.content().starts_with("half a"), "{kind:?}, stream {stream}: {:?}", ran.outcome);
            assert_eq!(ran.metadata()["agentd"]["truncated"], true, "{kind:?}, stream {stream}");
        }
    }
}

fn has_tokens(line: &agentd::domain::ledger_entry::AccountingEntry) -> bool {
    serde_json::to_value(line).unwrap()["tokens"].is_object()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_050_a_051_fatal_errors_of_a_real_wire_end_the_session_at_once() {
    for (error, detail) in [("{ status = 401 }", "auth_error"), ("{ status = 402 }", "quota_exceeded")] {
        let sim = simulator(&format!("[[model.replies]]\nerror = {error}\n")).await;
        let ran = run(&sim, ProviderKind::Openai, false).await;
        assert_eq!((ran.detail(), sim.model_requests().len()), (detail, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_095_a_082_what_is_configured_is_sent_and_what_is_counted_is_charged() {
    let sim = simulator(
        "[[model.replies]]\nfinal_report = { content = \"ok\" }\nusage = { input = 1000, output = 100, cache_read = 50, cache_write = 10 }\n",
    )
    .await;
    let ran = run(&sim, ProviderKind::Anthropic, false).await;
    let line = serde_json::to_value(ran.llm_lines()[0]).unwrap();
    assert_eq!(line["tokens"]["totalTokens"], 1160);
    assert_eq!(line["costUsd"], Value::from(0.001_218), "1000 + 200 + 5 + 12.5 micro-dollars, rounded once");
}
