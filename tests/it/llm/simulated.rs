//! Providers against the simulator, which refuses what a provider would refuse.

use agentd::config::ProviderKind;
use agentd::domain::message::{Message, TokenUsage};
use agentd::engine::model::{Model, ModelErrorClass as Class, ReplyStop};
use agentd::sim::{Scenario, SimOptions, Simulator};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

use super::server::{KEY, assistant, providers, request};

/// The scripted model of the simulator, which refuses what breaks a provider's protocol.
async fn simulator(replies: &str) -> Simulator {
    let text = format!("[model]\napi_keys = [\"{KEY}\"]\nnames = [\"m\"]\n{replies}");
    let scenario = Scenario::from_text(&text, Path::new("scenario.toml")).unwrap();
    Simulator::start(scenario, SimOptions::default()).await.unwrap()
}

#[tokio::test]
async fn a_conversation_with_the_simulator_breaks_no_protocol() {
    let replies = r#"
[[model.replies]]
thinking = "Let me see."
text = "I ask twice."
tool_calls = [{ name = "echo", raw = "{\"text\":" }, { name = "echo", arguments = { text = "b" } }]
usage = { input = 100, output = 20, cache_read = 30 }
[[model.replies]]
thinking = "Only thinking."
[[model.replies]]
text = "Done."
"#;
    for kind in [ProviderKind::Anthropic, ProviderKind::Openai] {
        let mut conversations = Vec::new();
        for stream in [false, true] {
            let sim = simulator(replies).await;
            let base = if kind == ProviderKind::Anthropic {
                sim.model_url_anthropic()
            } else {
                sim.model_url_openai()
            };
            let providers = providers(kind, &base);
            let mut next = request(stream);
            let first = providers.complete(&next).await.unwrap();
            assert_eq!(first.text, "I ask twice.");
            let arguments: Vec<&str> = first.tool_calls.iter().map(|call| call.arguments.as_str()).collect();
            assert_eq!(arguments[0], "{\"text\":", "{kind:?} stream {stream}");
            assert_eq!(serde_json::from_str::<Value>(arguments[1]).unwrap(), json!({ "text": "b" }));
            assert_eq!(first.usage.unwrap(), TokenUsage::new(100, 20, 30, 0));
            next.messages.push(assistant(&first));
            for call in &first.tool_calls {
                next.messages.push(Message::Tool { tool_call_id: call.id.clone(), content: "done".into() });
            }
            let thought = providers.complete(&next).await.unwrap();
            assert!(thought.text.is_empty() && thought.tool_calls.is_empty() && thought.reasoning.is_some());
            next.messages.push(assistant(&thought));
            next.messages.push(Message::User { content: "Say something, or call a tool.".into() });
            next.tools = Vec::new().into();
            let last = providers.complete(&next).await.unwrap();
            assert_eq!((last.text.as_str(), last.stop), ("Done.", ReplyStop::End));
            assert_eq!(sim.violations(), Vec::<String>::new());
            assert_eq!(sim.unused_replies(), Vec::<String>::new());
            next.messages.push(assistant(&last));
            let mut said: Vec<Message> = next.messages.iter().cloned().collect();
            said.iter_mut().for_each(|message| {
                if let Message::Assistant { tool_calls, .. } = message {
                    tool_calls.clear();
                }
            });
            conversations.push(said);
        }
        assert_eq!(conversations[0], conversations[1], "streamed and whole are the same conversation");
    }
}

#[tokio::test]
async fn the_simulators_faults_have_the_class_they_stand_for() {
    let faults = [
        (
            "error = { status = 429, retry_after = 2 }",
            Class::RateLimited { retry_after: Some(Duration::from_secs(2)) },
        ),
        ("error = { status = 401 }", Class::Auth),
        ("error = { status = 402 }", Class::Quota),
        ("error = { status = 500 }", Class::Server { retry_after: None }),
        ("garbage = \"not json\"", Class::InvalidReply),
        ("text = \"half a reply that never comes to its end\"\ndrop = \"mid_stream\"", Class::Network),
        ("text = \"x\"\nhang = \"before_headers\"", Class::Timeout),
    ];
    for (fault, class) in faults {
        for stream in [false, true] {
            let sim = simulator(&format!("[[model.replies]]\n{fault}\n")).await;
            let mut request = request(stream);
            request.timeout = Duration::from_millis(1500);
            for kind in [ProviderKind::Anthropic] {
                let error = providers(kind, &sim.model_url_anthropic()).complete(&request).await.unwrap_err();
                assert_eq!(error.class, class, "{fault}, stream {stream}: {error}");
            }
        }
    }
}
