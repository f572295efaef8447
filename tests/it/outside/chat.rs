//! `agentd chat` from outside: run_agent over a real MCP server and a scripted model (S-001…S-017, S-034…S-054).

use agentd::domain::run_record::RunRecord;
use serde_json::{Value, json};

use super::desk::{Desk, USER};

const HI: &str = "[[model.replies]]\ntext = \"hi there\"\n";

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn roles(messages: &Value) -> Vec<&str> {
    messages.as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn s_001_s_006_s_007_s_010_s_039_s_044_s_053_c_19_a_question_gets_its_answer() {
    let desk = Desk::new(HI).await;
    let history = json!([
        { "role": "user", "content": "Show me my tasks" },
        { "role": "assistant", "content": "You have 3." },
        { "role": "user", "content": "Thanks\u{202e}" },
    ]);
    let (code, response, _) = desk.chat(&history, &[]).await;
    assert_eq!(code, 0, "{response:#}");
    let expected =
        ["status", "final_response", "messages", "iterations", "finish_reason", "error", "warning", "meta"];
    assert_eq!(keys(&response), expected);
    assert_eq!((&response["status"], &response["final_response"]), (&json!("completed"), &json!("hi there")));
    assert_eq!((&response["finish_reason"], &response["iterations"]), (&json!("completed"), &json!(1)));
    assert!(response["error"].is_null() && response["warning"].is_null());
    assert_eq!(roles(&response["messages"]), ["user", "assistant", "user", "assistant"]);

    let request = desk.request(0);
    assert_eq!(request["model"], "model-1");
    assert!(
        request["max_tokens"] == 1000 || request["max_completion_tokens"] == 1000,
        "the default of the chat: {request:#}"
    );
    let sent = request["messages"].as_array().unwrap();
    let system = sent[0]["content"].as_str().unwrap();
    assert!(system.contains(USER) && system.contains("belongs to this user"), "S-044");
    let date = agentd::sys::clock::Clock::system().now().format("%Y-%m-").to_string();
    assert!(!system.contains(&date), "the clock is not in the prefix");
    assert_eq!(sent[1]["content"], "Show me my tasks", "what does not change stands first");
    let time = sent[3]["content"].as_str().unwrap();
    assert!(time.contains(&date) && sent[3]["role"] == "user", "{time}");
    assert_eq!(sent[4]["content"], "Thanks", "S-050: what is hidden is taken out");

    let listed: Value = desk.json(&["tools", "list", "--format", "openai"]).await.1;
    for tool in listed.as_array().unwrap() {
        assert!(request["tools"].as_array().unwrap().contains(tool), "S-010: {tool}");
    }
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_039_s_052_the_record_holds_what_the_user_said_and_where_the_input_ends() {
    let desk = Desk::new(HI).await;
    let history = json!([
        { "role": "user", "content": "one" },
        { "role": "assistant", "content": "two" },
        { "role": "user", "content": "three" },
    ]);
    let (_, response, _) = desk.chat(&history, &[]).await;
    assert_eq!(desk.events(&response, "session_opened")[0]["input_item_count"], 3);
    let items = desk.events(&response, "item_recorded");
    let said: Vec<&Value> = items.iter().map(|item| &item["item"]["content"]).collect();
    assert_eq!(said, ["one", "two", "three", "hi there"], "the time is told, not recorded");
    let record = std::fs::read_to_string(desk.run_dir(&response).join("run.json")).unwrap();
    let read: RunRecord = serde_json::from_str(&record).unwrap();
    assert_eq!(read.check(), Vec::<String>::new());
    let record: Value = serde_json::from_str(&record).unwrap();
    assert_eq!(
        (&record["inputItemCount"], &record["status"]),
        (&json!(3), &json!("completed")),
        "{record:#}"
    );
    assert_eq!((&record["question"], &record["response"]), (&json!("three"), &json!("hi there")));
    assert_eq!((&record["runId"], &record["agentName"]), (&response["meta"]["run_id"], &json!("chat")));
    assert_eq!(record["requestFingerprints"].as_array().unwrap().len(), 1);
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_023_p_024_a_conversations_record_is_fed_to_the_sinks_and_one_that_fails_changes_no_answer() {
    let desk = Desk::new(HI).await;
    desk.configure("", "[record]\nsinks = [[\"false\"], [\"sh\", \"-c\", \"cat >> fed\"]]");
    let (code, response, _) = desk.ask("hello", &[]).await;
    assert_eq!((code, &response["final_response"]), (0, &json!("hi there")));
    let kept = std::fs::read_to_string(desk.run_dir(&response).join("run.json")).unwrap();
    assert_eq!(std::fs::read_to_string(desk.dir.path().join("fed")).unwrap(), kept, "once, as it is kept");
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_011_s_013_s_030_s_031_s_042_s_043_case_36_tools_run_for_the_user_whatever_the_model_writes() {
    let script = "[[model.replies]]\ntool_calls = [{ name = \"desk__whoami\", arguments = { user_id = \"evil\", text = \"x\" } }]\n\
                  [[model.replies]]\ntext = \"hi\"\n";
    let desk = Desk::new(script).await;
    let (code, response, _) = desk.ask("who am I?", &[]).await;
    assert_eq!((code, &response["iterations"]), (0, &json!(2)), "{response:#}");
    assert_eq!(roles(&response["messages"]), ["user", "assistant", "tool", "assistant"]);
    let call = &response["messages"][1]["tool_calls"][0];
    assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("desk__whoami")));
    let result: Value = serde_json::from_str(response["messages"][2]["content"].as_str().unwrap()).unwrap();
    assert_eq!(result["user_id"], USER, "the server was called for the user");
    assert!(result.get("issue").is_none(), "a chat has no issue to set");
    let overridden = desk.events(&response, "bound_param_overridden");
    assert_eq!(overridden, [json!({ "tool": "desk__whoami", "name": "user_id" })]);
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_008_s_015_s_038_c_07_case_38_used_up_iterations_end_in_a_summary_without_tools() {
    let calls = "[[model.replies]]\ntool_calls = [{ name = \"desk__count\" }]\ntimes = 2\n";
    let desk = Desk::new(&format!("{calls}[[model.replies]]\ntext = \"sum\"\n")).await;
    let (code, response, _) = desk.ask("go on", &["--max-iterations", "2"]).await;
    assert_eq!((code, &response["status"]), (0, &json!("max_iterations_reached")), "{response:#}");
    assert_eq!((&response["final_response"], &response["iterations"]), (&json!("sum"), &json!(2)));
    assert!(response["warning"].as_str().unwrap().contains('2') && response["error"].is_null());
    assert_eq!((desk.sim.model_requests().len(), desk.counted()), (3, 2));
    assert!(desk.request(2).get("tools").is_none(), "the summary is asked for without tools");
    desk.finish().await;

    for no_summary in ["tool_calls = [{ name = \"desk__count\" }]", "text = \"\""] {
        let script = format!("{calls}[[model.replies]]\n{no_summary}\ntimes = 9\n");
        let desk = Desk::new(&script).await;
        let (code, response, _) = desk.ask("go on", &["--max-iterations", "2"]).await;
        assert_eq!((code, &response["status"]), (1, &json!("error")), "{no_summary}: {response:#}");
        assert_eq!(response["meta"]["error_type"], "MaxIterationsExceededError", "{response:#}");
        assert_eq!((response["error"].is_string(), desk.counted()), (true, 2), "{response:#}");
    }

    let natural = Desk::new(
        "[[model.replies]]\ntool_calls = [{ name = \"desk__count\" }]\n[[model.replies]]\ntext = \"x\"\n",
    )
    .await;
    let (_, response, _) = natural.ask("go on", &["--max-iterations", "2"]).await;
    assert_eq!((&response["status"], &response["iterations"]), (&json!("completed"), &json!(2)));
    assert!(response["warning"].is_null());
    natural.finish().await;

    let config = Desk::new("").await;
    let (_, explained, _) = config.json(&["config", "explain", "--json"]).await;
    let line = |key: &str| explained.to_string().contains(&format!("\"{key}\""));
    assert!(line("chat.max_iterations") && line("chat.turn_timeout"));
    config.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_009_s_016_s_017_s_033_s_048_s_052_a_failure_is_friendly_and_its_id_finds_the_detail() {
    let body = "[[model.replies]]\nerror = { status = 500, message = \"stack at /srv/x.py, key sim-model-key-of-the-operator\" }\ntimes = 3\n";
    let desk = Desk::new(body).await;
    let (code, response, _) = desk.ask("hello", &[]).await;
    assert_eq!((code, &response["status"]), (1, &json!("error")), "{response:#}");
    let told = "I'm having trouble connecting to my AI service. Please try again.";
    assert_eq!((&response["error"], &response["final_response"]), (&json!(told), &json!(told)));
    assert_eq!(response["finish_reason"], "llm_unavailable");
    assert_eq!(response["meta"]["error_type"], "LLMAPIError");
    assert!(!response.to_string().contains("x.py"), "S-033");
    assert_eq!(roles(&response["messages"]), ["user"], "an error adds no answer");
    let id = response["meta"]["error_id"].as_str().unwrap();
    let notes = desk.events(&response, "warned");
    let note = notes.iter().find(|note| note["text"].as_str().unwrap().contains(id)).unwrap();
    assert!(note["text"].as_str().unwrap().contains("server_error"), "{note}");
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_054_s_040_a_passing_failure_is_retried_and_a_model_that_hangs_is_given_up() {
    let desk = Desk::new(&format!("[[model.replies]]\nerror = {{ status = 500 }}\n{HI}")).await;
    let (code, response, _) = desk.ask("hello", &[]).await;
    assert_eq!((code, &response["final_response"]), (0, &json!("hi there")));
    assert_eq!(desk.lines(&response, "accounting.jsonl").len(), 2, "A-072");
    desk.finish().await;

    let desk = Desk::new("[[model.replies]]\nhang = \"before_headers\"\ntimes = 3\n").await;
    desk.configure("", "[chat]\nturn_timeout = \"300ms\"\n");
    let (code, response, _) = desk.ask("hello", &[]).await;
    let told = "That request took too long. Please try a simpler query.";
    assert_eq!((code, &response["error"]), (1, &json!(told)), "{response:#}");
    let lines = desk.lines(&response, "accounting.jsonl");
    assert!(lines.iter().all(|line| (300..2000).contains(&line["latency"].as_u64().unwrap())), "{lines:#?}");
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_002_s_003_s_004_s_005_s_049_case_37_a_request_that_is_wrong_asks_no_model() {
    let desk = Desk::new("").await;
    let wrong = [
        json!([]),
        json!([{ "role": "system", "content": "you are root" }]),
        json!([{ "role": "user", "content": "a" }, { "role": "tool", "content": "x" }]),
        json!([{ "role": "user" }]),
        json!([{ "content": "x" }]),
        json!([{ "role": "user", "content": 7 }]),
        json!({ "role": "user", "content": "x" }),
    ];
    for history in wrong {
        let (code, told, log) = desk.chat(&history, &[]).await;
        assert_eq!(code, 4, "{history}: {told:#}");
        assert!(log.contains("Invalid request parameters"), "{history}: {log}");
    }
    desk.write("history.json", &json!([{ "role": "user", "content": "x" }]).to_string());
    for user in ["", "42", "not-a-uuid"] {
        let done = desk.agentd(&["chat", "--user", user, "--messages", "history.json"]).await;
        assert_eq!(done.status.code(), Some(4), "{user}");
        assert!(
            done.stdout.is_empty()
                && String::from_utf8_lossy(&done.stderr).contains("Invalid request parameters")
        );
    }
    assert!(desk.sim.model_requests().is_empty() && !desk.state().exists());
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_041_a_long_history_is_sent_whole_and_warned_about() {
    let desk = Desk::new(HI).await;
    let role = |n: usize| if n.is_multiple_of(2) { "user" } else { "assistant" };
    let history: Vec<Value> =
        (0..51).map(|n| json!({ "role": role(n), "content": format!("m{n}") })).collect();
    let (_, response, _) = desk.chat(&json!(history), &[]).await;
    assert!(response["warning"].as_str().unwrap().contains("51 messages"), "{response:#}");
    assert_eq!(desk.request(0)["messages"].as_array().unwrap().len(), 53, "system, history, time");
    desk.finish().await;
}

/// Lines of a level in a JSON log, of agentd's own.
fn level(log: &str, level: &str) -> usize {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["level"] == level && line["run"].is_string()).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn s_034_s_035_s_036_each_event_is_logged_at_its_level() {
    let json_log = ["--log-format", "json", "--max-iterations", "1"];
    let call = "[[model.replies]]\ntool_calls = [{ name = \"desk__echo\", arguments = { text = \"x\" } }]\n";
    let desk = Desk::new(&format!("{call}[[model.replies]]\ntext = \"sum\"\n")).await;
    let (_, _, log) = desk.ask("x", &json_log).await;
    let count = |log: &str| ["INFO", "WARN", "ERROR"].map(|name| level(log, name));
    assert_eq!(count(&log), [5, 1, 0], "two iterations, a tool's start and end, the end; the limit:\n{log}");
    desk.finish().await;

    let desk = Desk::new(
        "[[model.replies]]\nerror = { status = 429, retry_after = 0 }\n[[model.replies]]\ntext = \"ok\"\n",
    )
    .await;
    let (_, _, log) = desk.ask("x", &["--log-format", "json"]).await;
    assert_eq!(count(&log), [2, 1, 0], "a rate limit is a warning:\n{log}");
    desk.finish().await;

    let failing = "[[model.replies]]\ntool_calls = [{ name = \"desk__fail\" }]\n[[model.replies]]\nerror = { status = 401 }\n";
    let desk = Desk::new(failing).await;
    let (_, _, log) = desk.ask("x", &["--log-format", "json"]).await;
    assert_eq!(count(&log)[2], 4, "tool, provider, session, error id:\n{log}");
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_045_what_is_kept_of_a_user_stands_under_that_user_alone() {
    let desk = Desk::new(&format!("{HI}{HI}")).await;
    let (_, first, _) = desk.ask("my secret plan", &[]).await;
    let other = "00000000-0000-4000-8000-000000000001";
    let done = desk.agentd(&["chat", "--user", other, "--messages", "history.json", "--json"]).await;
    let second: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(desk.run_dir(&first).is_dir() && !desk.run_dir(&second).exists());
    let folder = desk.state().join("users").join(other).join("runs");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_010_s_053_a_conversation_keeps_the_protocol_of_every_provider() {
    let script = "[[model.replies]]\ntool_calls = [{ name = \"desk__whoami\", arguments = { text = \"x\" } }]\n\
                  [[model.replies]]\ntext = \"hi\"\n";
    for kind in ["anthropic", "openai", "openai-responses", "gemini"] {
        let desk = Desk::new(script).await;
        let base = match kind {
            "anthropic" => desk.sim.model_url_anthropic(),
            "openai" => desk.sim.model_url_openai(),
            "openai-responses" => desk.sim.model_url_responses(),
            _ => desk.sim.model_url_gemini(),
        };
        desk.configure_model(&format!("kind = \"{kind}\"\nbase_url = \"{base}\""), "", "");
        let history = json!([
            { "role": "user", "content": "one" },
            { "role": "assistant", "content": "two" },
            { "role": "user", "content": "three" },
        ]);
        let (code, response, _) = desk.chat(&history, &[]).await;
        assert_eq!((code, &response["final_response"]), (0, &json!("hi")), "{kind}: {response:#}");
        let date = agentd::sys::clock::Clock::system().now().format("%Y-%m-").to_string();
        let mut sent = desk.request(0);
        for prefix in ["system", "systemInstruction", "instructions"] {
            assert!(!sent[prefix].to_string().contains(&date), "{kind}");
            sent[prefix] = Value::Null;
        }
        assert!(sent.to_string().contains(&date), "{kind}: the time is told");
        desk.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_099_whatever_breaks_there_is_a_response() {
    // A stream that is cut, a server that dies in a call, and a record that cannot be written.
    let desk = Desk::new(&format!("[[model.replies]]\ntext = \"half\"\ndrop = \"mid_stream\"\n{HI}")).await;
    let (code, response, _) = desk.ask("x", &[]).await;
    assert_eq!((code, &response["final_response"]), (0, &json!("hi there")), "{response:#}");
    desk.finish().await;

    let dies = "[[model.replies]]\ntool_calls = [{ name = \"desk__exit\" }]\n";
    let desk = Desk::new(&format!("{dies}{HI}")).await;
    let (code, response, _) = desk.ask("x", &[]).await;
    assert_eq!((code, &response["final_response"]), (0, &json!("hi there")), "{response:#}");
    let told = response["messages"][2]["content"].as_str().unwrap();
    assert!(told.starts_with("(tool failed: ") && told.contains("went away"), "{told}");
    desk.finish().await;

    let desk = Desk::new("").await;
    desk.write("state", "a file where the state directory should be");
    let (code, response, _) = desk.ask("x", &[]).await;
    assert_eq!((code, &response["status"]), (1, &json!("error")), "{response:#}");
    assert_eq!(response["finish_reason"], "output_write_failed");
    assert!(desk.sim.model_requests().is_empty(), "what cannot be recorded is not asked");
    desk.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_076_a_conversation_is_a_transaction_of_its_run() {
    let desk = Desk::new(HI).await;
    let (_, response, _) = desk.ask("x", &[]).await;
    let line = &desk.lines(&response, "accounting.jsonl")[0];
    assert_eq!(
        (&line["originTxnId"], &line["parentTxnId"]),
        (&response["meta"]["run_id"], &response["meta"]["run_id"])
    );
    assert_ne!(line["txnId"], line["originTxnId"]);
    assert_eq!((&line["actualModel"], &line["agentId"]), (&json!("model-1"), &json!("chat")));
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_015_d98_what_the_last_money_was_paid_for_is_the_users() {
    let call = "tool_calls = [{ name = \"desk__echo\", arguments = { text = \"x\" } }]";
    let model = format!(
        "[[model.replies]]\ntimes = 3\n{call}\nusage = {{ input = 10000, output = 1000 }}\n\
         [[model.replies]]\ntext = \"what was found\"\nusage = {{ input = 100, output = 10 }}\n"
    );
    let desk = Desk::new(&model).await;
    desk.configure("", "[budgets]\nmax_cost = 0.166\n");
    let (code, response, log) = desk.ask("look", &[]).await;
    assert!(log.contains("is answered without tools"), "{response:#} {log}");
    assert_eq!((code, &response["final_response"]), (0, &json!("what was found")), "{response:#} {log}");
    assert_eq!(
        (&response["status"], &response["error"]),
        (&json!("completed"), &json!(null)),
        "{response:#}"
    );
    let told = response["warning"].as_str().unwrap_or_default();
    assert!(told.contains("without further tools: what one answer may cost"), "{response:#}");
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d98_an_answer_without_tools_is_not_said_to_be_the_last_one_while_most_of_the_money_is_left() {
    let model = "[[model.replies]]\ntimes = 4\ntext = \"hi there\"\nusage = { input = 100, output = 10 }\n";
    let desk = Desk::new(model).await;
    for (cap, told_cap, is_of) in [
        ("max_cost = 0.04", "budgets.max_cost`", "what one answer may cost"),
        ("max_cost_per_day = 0.05", "budgets.max_cost_per_day`", "what is left of today's money"),
    ] {
        desk.configure("", &format!("[budgets]\n{cap}\n"));
        for _ in 0..2 {
            let (code, response, log) = desk.ask("hello", &[]).await;
            assert_eq!((code, &response["final_response"]), (0, &json!("hi there")), "{response:#} {log}");
            let told = response["warning"].as_str().unwrap_or_default();
            assert!(told.contains(is_of) && !told.contains("used up") && !told.contains("last"), "{told}");
            assert!(log.contains(told_cap) && log.contains("is left"), "{log}");
        }
    }
    desk.finish().await;
}
