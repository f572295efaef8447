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
    let base_url = match kind {
        ProviderKind::Anthropic => sim.model_url_anthropic(),
        _ => sim.model_url_openai(),
    };
    let provider = Provider {
        name: "fake".to_owned(),
        kind,
        base_url,
        api_key: Some("sim-model-key".into()),
        headers: Vec::new(),
    };
    let providers = Providers::new([provider], &Clock::system()).unwrap();
    World::new(Vec::new())
        .with(|world| world.provider = Some(Arc::new(providers)))
        .settings(|settings| {
            settings.stream = stream;
            settings.llm_timeout = Duration::from_millis(600);
            settings.max_retries = 8;
        })
        .run()
        .await
}

const ODD: &str = r#"
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
tool_calls = [{ name = "echo", raw = '{"a":' }, { name = "count" }, { name = "echo", arguments = { a = 1 } }, { name = "nope" }]
[[model.replies]]
tool_calls = [{ name = "agent__final_report", arguments = { report_format = "markdown", content = " " } }]
[[model.replies]]
final_report = { report_format = "markdown", content = "done" }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_055_a_session_full_of_odd_replies_speaks_the_protocol_on_every_wire() {
    for kind in [ProviderKind::Anthropic, ProviderKind::Openai] {
        for stream in [false, true] {
            let sim = simulator(ODD).await;
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

fn has_tokens(line: &agentd::domain::record::AccountingEntry) -> bool {
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
