//! The simulated models: both wires, what they refuse, and how they fail.

use std::path::Path;
use std::time::Duration;

use agentd::sim::{Scenario, SimOptions, Simulator};
use serde_json::{Value, json};

const CLAUDE: &str = "/model/anthropic/v1/messages";
const GPT: &str = "/model/openai/v1/chat/completions";

/// Asks one of the models with the example's key.
async fn model(sim: &Simulator, path: &str, body: Value) -> reqwest::Response {
    let http = reqwest::Client::new();
    let request = http.post(format!("{}{path}", sim.base_url())).json(&body);
    let request = if path == CLAUDE {
        request.header("x-api-key", "k").header("anthropic-version", "2023-06-01")
    } else {
        request.bearer_auth("k")
    };
    request.send().await.unwrap()
}

fn hello(path: &str) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hello"}]});
    if path == CLAUDE {
        body["max_tokens"] = json!(100);
    }
    body
}

async fn scripted(replies: Value) -> Simulator {
    let scenario = json!({"model": {"replies": replies}}).to_string();
    let scenario = Scenario::from_text(&scenario, Path::new("s.json")).unwrap();
    Simulator::start(scenario, SimOptions::default()).await.unwrap()
}

/// The data of server-sent events.
fn events(text: &str) -> Vec<Value> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.map(|data| serde_json::from_str(data).unwrap_or_else(|_| json!(data))).collect()
}

fn rich() -> Value {
    json!({
        "thinking": "I should look at the file before I say anything about it.",
        "text": "Ich sehe nach: größer als gedacht, also in mehreren Stücken …",
        "tool_calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}, {"name": "list_files"}],
        "usage": {"input": 10, "output": 20, "cache_read": 30, "cache_write": 40, "reasoning": 5},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn anthropic_answers_whole_and_in_events_say_the_same() {
    let sim = scripted(json!([rich(), rich()])).await;
    let whole: Value = model(&sim, CLAUDE, hello(CLAUDE)).await.json().await.unwrap();
    assert_eq!(whole["stop_reason"], "tool_use");
    assert_eq!(whole["usage"]["cache_read_input_tokens"], 30);
    let mut body = hello(CLAUDE);
    body["stream"] = json!(true);
    let response = model(&sim, CLAUDE, body).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
    let events = events(&response.text().await.unwrap());
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds.first(), Some(&"message_start"));
    assert_eq!(kinds[kinds.len() - 2..], ["message_delta", "message_stop"]);
    let joined = |kind: &str, key: &str| -> String {
        let deltas = events.iter().filter(|event| event["delta"]["type"] == kind);
        deltas.map(|event| event["delta"][key].as_str().unwrap()).collect()
    };
    assert_eq!(whole["content"][0]["thinking"], joined("thinking_delta", "thinking"));
    assert_eq!(whole["content"][0]["signature"], joined("signature_delta", "signature"));
    assert_eq!(whole["content"][1]["text"], joined("text_delta", "text"));
    assert_eq!(joined("input_json_delta", "partial_json"), "{\"path\":\"a.txt\"}");
    assert_eq!(events[events.len() - 2]["usage"]["output_tokens"], 20);
    assert_eq!(sim.violations(), Vec::<String>::new());
    assert_eq!(sim.unused_replies(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn openai_answers_whole_and_in_events_say_the_same() {
    let sim = scripted(json!([rich(), rich()])).await;
    let whole: Value = model(&sim, GPT, hello(GPT)).await.json().await.unwrap();
    let message = &whole["choices"][0]["message"];
    assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(whole["usage"]["prompt_tokens"], 80);
    assert_eq!(whole["usage"]["prompt_tokens_details"]["cached_tokens"], 30);
    let mut body = hello(GPT);
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let events = events(&model(&sim, GPT, body).await.text().await.unwrap());
    assert_eq!(events.last(), Some(&json!("[DONE]")));
    assert_eq!(events[events.len() - 2]["usage"], whole["usage"]);
    let deltas: Vec<&Value> = events.iter().map(|event| &event["choices"][0]["delta"]).collect();
    let text: String = deltas.iter().filter_map(|delta| delta["content"].as_str()).collect();
    assert_eq!(message["content"], text);
    let arguments: String = deltas
        .iter()
        .filter(|delta| delta["tool_calls"][0]["index"] == 0)
        .map(|delta| delta["tool_calls"][0]["function"]["arguments"].as_str().unwrap())
        .collect();
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], arguments);
    assert_eq!(sim.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_protocol_is_refused_and_does_not_use_up_the_script() {
    let sim = scripted(json!([{"text": "hi", "times": 0}])).await;
    let call = json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let used = json!({"type": "tool_use", "id": "c1", "name": "f", "input": {}});
    let user = json!({"role": "user", "content": "x"});
    let cases = [
        (
            GPT,
            json!({"messages": [user, {"role": "tool", "tool_call_id": "c1", "content": "r"}]}),
            "must be a response to",
        ),
        (
            GPT,
            json!({"messages": [user, {"role": "assistant", "tool_calls": [call]}, user]}),
            "must be followed by tool",
        ),
        (GPT, json!({"messages": [user, {"role": "assistant", "tool_calls": [call]}]}), "have no results"),
        (GPT, json!({"messages": [{"role": "robot", "content": "x"}]}), "unknown role \"robot\""),
        (GPT, json!({"mood": 1}), "Unknown parameter: 'mood'"),
        (
            GPT,
            json!({"tools": [{"type": "function", "function": {"name": "a b", "parameters": {"type": "object"}}}]}),
            "does not match",
        ),
        (
            GPT,
            json!({"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]}),
            "is not an object",
        ),
        (GPT, json!({"tool_choice": "auto"}), "only allowed when 'tools'"),
        (CLAUDE, json!({"messages": [user, user]}), "roles must alternate"),
        (CLAUDE, json!({"messages": [{"role": "assistant", "content": "x"}]}), "first message must use"),
        (CLAUDE, json!({"messages": [{"role": "system", "content": "x"}]}), "unknown role \"system\""),
        (CLAUDE, json!({"max_tokens": null}), "max_tokens"),
        (
            CLAUDE,
            json!({"messages": [user, {"role": "assistant", "content": [used]}, user]}),
            "without `tool_result`",
        ),
        (
            CLAUDE,
            json!({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c9", "content": "r"}]}]}),
            "unexpected `tool_use_id`",
        ),
        (
            CLAUDE,
            json!({"messages": [user, {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "forged"}]}]}),
            "Invalid `signature`",
        ),
        (CLAUDE, json!({"tools": [{"name": "f", "input_schema": {"type": "string"}}]}), "type: \"object\""),
    ];
    for (place, (path, change, expected)) in cases.iter().enumerate() {
        let mut body = hello(path);
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        let response = model(&sim, path, body).await;
        assert_eq!(response.status().as_u16(), 400, "{change}");
        let refusal: Value = response.json().await.unwrap();
        assert!(
            refusal["error"]["message"].as_str().unwrap().contains(expected),
            "{change}: {:?}",
            sim.violations().last()
        );
        assert!(sim.violations().len() > place, "{change}");
    }
    let before = sim.violations().len();
    let http = reqwest::Client::new();
    let url = format!("{}/v1/messages", sim.model_url_anthropic());
    let unversioned = http.post(&url).header("x-api-key", "k").json(&hello(CLAUDE)).send().await.unwrap();
    assert_eq!(unversioned.status().as_u16(), 400);
    assert!(sim.violations()[before].contains("anthropic-version"));
    let keyless =
        http.post(&url).header("anthropic-version", "2023-06-01").json(&hello(CLAUDE)).send().await.unwrap();
    assert_eq!(keyless.status().as_u16(), 401);
    assert_eq!(model(&sim, GPT, hello(GPT)).await.status().as_u16(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_with_tools_passes_the_checks_of_both_wires() {
    let sim = scripted(json!([rich(), {"text": "done"}, rich(), {"text": "done"}])).await;
    let tools = json!([{"name": "read_file", "description": "d", "input_schema": {"type": "object", "properties": {}}}]);
    let mut body = hello(CLAUDE);
    body["tools"] = tools;
    let first: Value = model(&sim, CLAUDE, body.clone()).await.json().await.unwrap();
    let results: Vec<Value> = first["content"].as_array().unwrap()[2..]
        .iter()
        .map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "ok"}))
        .collect();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": first["content"]}));
    messages.push(json!({"role": "user", "content": results}));
    assert_eq!(model(&sim, CLAUDE, body).await.status().as_u16(), 200, "{:?}", sim.violations());

    let mut body = hello(GPT);
    let first: Value = model(&sim, GPT, body.clone()).await.json().await.unwrap();
    let calls = &first["choices"][0]["message"]["tool_calls"];
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": null, "tool_calls": calls}));
    for call in calls.as_array().unwrap() {
        messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "ok"}));
    }
    assert_eq!(model(&sim, GPT, body).await.status().as_u16(), 200, "{:?}", sim.violations());
    assert_eq!(sim.violations(), Vec::<String>::new());
    assert_eq!(
        sim.model_requests().iter().map(|one| one.reply).collect::<Vec<_>>(),
        [Some(0), Some(1), Some(2), Some(3)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_fit_by_model_text_and_turn_and_run_out_loudly() {
    let sim = scripted(json!([
        {"when": {"contains": "never"}, "text": "no"},
        {"model": "other", "text": "other"},
        {"when": {"contains": "number (4"}, "capture": {"n": "number \\((\\d+)\\)"}, "text": "it was ${n}"},
        {"text": "plain", "times": 2},
    ]))
    .await;
    let say = async |text: &str| {
        let mut body = hello(GPT);
        body["messages"][0]["content"] = json!(text);
        let answer: Value = model(&sim, GPT, body).await.json().await.unwrap();
        answer["choices"][0]["message"]["content"].as_str().map(str::to_owned)
    };
    assert_eq!(say("hello").await.as_deref(), Some("plain"));
    assert_eq!(say("number (42)").await.as_deref(), Some("it was 42"));
    assert_eq!(say("hello").await.as_deref(), Some("plain"));
    assert_eq!(sim.violations(), Vec::<String>::new());
    assert_eq!(sim.unused_replies().len(), 2);
    assert_eq!(model(&sim, GPT, hello(GPT)).await.status().as_u16(), 500);
    assert!(sim.violations()[0].contains("no reply of the script fits"), "{:?}", sim.violations());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_fails_in_every_way_a_script_says() {
    let sim = scripted(json!([
        {"error": {"status": 429, "retry_after": 3}},
        {"error": {"status": 529}},
        {"garbage": "<html>"},
        {"drop": "before_headers"},
        {"drop": "after_headers", "text": "x"},
        {"drop": "mid_stream", "text": "a longer text that comes in several pieces, of which some arrive"},
        {"error": {"status": 529, "in_stream": true}, "text": "x"},
        {"hang": "mid_stream", "text": "x"},
        {"tool_calls": [{"name": "f", "raw": "{\"path\": "}]},
        {"text": "cut off", "stop": "length"},
    ]))
    .await;
    let mut streamed = hello(CLAUDE);
    streamed["stream"] = json!(true);
    let limited = model(&sim, CLAUDE, streamed.clone()).await;
    assert_eq!((limited.status().as_u16(), limited.headers()["retry-after"].to_str().unwrap()), (429, "3"));
    let overloaded: Value = model(&sim, CLAUDE, streamed.clone()).await.json().await.unwrap();
    assert_eq!(overloaded["error"]["type"], "overloaded_error");
    assert_eq!(model(&sim, CLAUDE, streamed.clone()).await.text().await.unwrap(), "<html>");
    let http = reqwest::Client::new();
    let send = || {
        let request = http.post(format!("{}{CLAUDE}", sim.base_url())).json(&streamed);
        request.header("x-api-key", "k").header("anthropic-version", "2023-06-01").send()
    };
    assert!(send().await.is_err());
    assert!(send().await.unwrap().text().await.is_err());
    let mut cut = send().await.unwrap();
    let first = cut.chunk().await.unwrap().unwrap();
    assert!(first.starts_with(b"event: message_start"));
    let broken = async {
        loop {
            match cut.chunk().await {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    };
    assert!(broken.await);
    let in_stream = send().await.unwrap().text().await.unwrap();
    assert!(in_stream.contains("event: error") && !in_stream.contains("message_stop"), "{in_stream}");
    let mut hung = send().await.unwrap();
    assert!(hung.chunk().await.unwrap().is_some());
    let silence = tokio::time::timeout(Duration::from_millis(150), async {
        while let Ok(Some(_)) = hung.chunk().await {}
    });
    assert!(silence.await.is_err());
    let raw: Value = model(&sim, GPT, hello(GPT)).await.json().await.unwrap();
    assert_eq!(raw["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "{\"path\": ");
    let length: Value = model(&sim, GPT, hello(GPT)).await.json().await.unwrap();
    assert_eq!(length["choices"][0]["finish_reason"], "length");
}
