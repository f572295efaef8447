//! `agentd tools` from outside: definitions and single calls over a real MCP server (S-018…S-031).

use std::process::Stdio;

use serde_json::{Value, json};

use super::daemons::until;
use super::desk::{Desk, USER};

#[tokio::test(flavor = "multi_thread")]
async fn s_018_s_019_s_020_s_022_tools_are_listed_as_function_definitions() {
    let desk = Desk::new("").await;
    desk.configure("deny = [\"fail\", \"ex*\"]", "");
    let (code, tools, _) = desk.json(&["tools", "list", "--format", "openai"]).await;
    assert_eq!(code, 0);
    let names: Vec<&str> =
        tools.as_array().unwrap().iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    let expected = ["big", "child", "count", "echo", "environment", "refuse", "sleep", "whoami"];
    assert_eq!(names, expected.map(|name| format!("desk__{name}")), "exported, allowed, in a fixed order");
    let whoami = &tools[7];
    assert_eq!(whoami["type"], "function");
    let parameters = &whoami["function"]["parameters"];
    assert_eq!(parameters["additionalProperties"], false);
    assert_eq!(parameters["required"], json!(["user_id"]));
    assert_eq!(parameters["properties"]["issue"]["type"], "integer");
    assert_eq!(whoami["function"]["description"], "The tool whoami.");
    let people = desk.agentd(&["tools", "list"]).await;
    let people = String::from_utf8_lossy(&people.stdout).into_owned();
    assert!(
        people.lines().any(|line| line.starts_with("desk__whoami ") && line.ends_with(" The tool whoami."))
    );
    let (_, again, _) = desk.json(&["tools", "list", "--json"]).await;
    assert_eq!(again, tools);
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_021_a_041_a_043_case_2_a_server_that_cannot_be_used_has_its_exit_code() {
    let desk = Desk::new("").await;
    desk.write("history.json", r#"[{"role":"user","content":"x"}]"#);
    desk.configure("", "[mcp.servers.gone]\ncommand = \"/nonexistent/server\"\n");
    let chat = ["chat", "--user", USER, "--messages", "history.json"];
    for args in [&["tools", "list"][..], &chat] {
        let done = desk.agentd(args).await;
        assert_eq!(done.status.code(), Some(3), "{args:?}");
        assert!(String::from_utf8_lossy(&done.stderr).contains("mcp.servers.gone"), "{args:?}");
    }
    let (code, result, _) = desk.call("desk__echo", "{\"text\":\"x\"}").await;
    assert_eq!((code, &result["error_type"]), (3, &json!("McpUnavailable")));
    assert!(result["message"].as_str().unwrap().contains("mcp.servers.gone"), "S-024: {result:#}");
    let (code, response, log) = desk.ask("x", &[]).await;
    assert_eq!(
        (code, &response["status"], &response["finish_reason"]),
        (3, &json!("error"), &json!("mcp_unavailable"))
    );
    let seven = ["status", "final_response", "messages", "iterations", "finish_reason", "error", "warning"];
    assert!(seven.iter().all(|key| response.get(key).is_some()), "S-007: {response:#}");
    assert_eq!(response["messages"][0]["content"], "x");
    assert!(log.contains("mcp.servers.gone"), "{log}");
    desk.configure("", "[mcp.servers.gone]\ncommand = \"/nonexistent/server\"\nrequired = false\n");
    let done = desk.agentd(&["tools", "list"]).await;
    assert_eq!(done.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&done.stderr).contains("warning: MCP server gone"));

    let toml = std::fs::read_to_string(desk.dir.path().join("agentd.toml")).unwrap();
    desk.write("agentd.toml", &toml.replace("\"--notes\"", "\"--broken\", \"--notes\""));
    assert_eq!(desk.agentd(&["tools", "list"]).await.status.code(), Some(5));
    assert!(desk.sim.model_requests().is_empty());
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_023_s_024_s_025_s_026_s_029_every_end_of_a_call_is_one_object() {
    let desk = Desk::new("").await;
    let (code, done, _) = desk.call("desk__echo", "{\"text\":\"hello\"}").await;
    assert_eq!((code, done), (0, json!({ "status": "success", "result": "hello" })));
    let ends = [
        ("desk__fail", "{}", "ToolExecutionError", 1),
        ("desk__nope", "{}", "ToolNotFound", 1),
        ("desk__echo", "{\"text\":7}", "Validation", 1),
        ("desk__echo", "{\"text\":\"a\",\"more\":1}", "Validation", 1),
        ("desk__echo", "{\"text\"", "Validation", 4),
        ("desk__echo", "[1]", "Validation", 4),
        ("desk__echo", "{\"text\":\"a\",\"text\":\"b\"}", "Validation", 4),
        ("desk__refuse", "{}", "Own", 1),
        ("desk__exit", "{}", "ToolExecutionError", 1),
    ];
    for (tool, args, error_type, ends_with) in ends {
        let (code, result, _) = desk.call(tool, args).await;
        assert_eq!(
            (code, &result["error_type"]),
            (ends_with, &json!(error_type)),
            "{tool} {args}: {result:#}"
        );
        let keys: Vec<&String> = result.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["status", "error", "error_type", "message"], "{tool} {args}");
        assert_eq!(result["status"], "error");
    }
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_027_s_028_the_class_that_a_tool_gives_its_error_reaches_the_host() {
    let desk = Desk::new("").await;
    for class in ["TaskNotFoundError", "UnauthorizedTaskAccessError"] {
        let (code, result, _) = desk.call("desk__fail", &json!({ "class": class }).to_string()).await;
        assert_eq!((code, &result["error_type"]), (1, &json!(class)));
        assert_eq!(result["message"], "as you wish");
    }
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_030_s_031_s_042_case_36_the_user_is_set_by_the_host() {
    let desk = Desk::new("").await;
    // Whoever has other parameters set as well gives the user's away to nobody.
    for server in ["", "bound_params = [\"repo\"]", "bound_params = []"] {
        desk.configure(server, "");
        for args in ["{}", "{\"user_id\":\"evil\"}"] {
            let (code, result, _) = desk.call("desk__whoami", args).await;
            assert_eq!((code, &result["result"]), (0, &json!({ "user_id": USER })), "{server} {args}");
        }
    }
    let (code, result, _) =
        desk.json(&["tools", "call", "desk__whoami", "--args", "{}", "--user", "evil"]).await;
    assert_eq!((code, &result["status"]), (4, &json!("error")));
    assert!(result["error"].as_str().unwrap().starts_with("Invalid request parameters"));
    assert!(!result["message"].as_str().unwrap().is_empty(), "S-024: {result:#}");
    for args in ["nothing", "[]", "{\"user_id\""] {
        let (code, result, _) = desk.call("desk__whoami", args).await;
        assert_eq!((code, &result["error_type"]), (4, &json!("Validation")), "{args}: {result:#}");
        assert!(result["error"].as_str().unwrap().starts_with("--args: "), "{result:#}");
        assert!(result["message"].as_str().unwrap().contains("--args '{}'"), "{result:#}");
    }
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_025_s_051_p_004_a_denied_call_does_not_run_and_says_so() {
    let desk = Desk::new("").await;
    desk.write(
        "policy.toml",
        "[[rule]]\nid = \"c\"\nkind = \"tool\"\nname = \"desk__count\"\neffect = \"deny\"\nreason = \"no_counting\"\npublic_reason = \"Counting is off.\"\n",
    );
    let (code, result, _) = desk.call("desk__count", "{}").await;
    let expected = json!({
        "status": "error", "error": "no_counting", "error_type": "PolicyDenied", "message": "Counting is off."
    });
    assert_eq!((code, result), (1, expected));
    desk.write("policy.toml", "");
    let (_, result, _) = desk.call("desk__count", "{}").await;
    assert_eq!(
        (&result["error"], &result["error_type"]),
        (&json!("policy_not_configured"), &json!("PolicyDenied"))
    );
    assert_eq!(desk.counted(), 0);
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_077_a_081_a_single_call_has_its_ledger_line_and_its_whole_result() {
    let desk = Desk::new("").await;
    let (code, result, _) = desk.call("desk__big", "{\"bytes\":20000}").await;
    assert_eq!((code, result["result"].as_str().unwrap().len()), (0, 20_000), "a host takes it whole");
    let runs = desk.state().join("users").join(USER).join("runs");
    let run = std::fs::read_dir(runs).unwrap().next().unwrap().unwrap().path();
    let line: Value = serde_json::from_str(
        std::fs::read_to_string(run.join("accounting.jsonl")).unwrap().lines().next().unwrap(),
    )
    .unwrap();
    assert_eq!(
        (&line["type"], &line["mcpServer"], &line["bytesOut"]),
        (&json!("tool"), &json!("desk"), &json!(20_000))
    );
    assert!(line["latency"].is_u64());
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_047_s_048_a_library_s_log_line_shows_no_secret_of_an_address() {
    let desk = Desk::new("").await;
    desk.configure("", "[mcp.servers.far]\nurl = \"http://127.0.0.1:9/mcp?key=${MODEL_KEY}\"\n");
    // The desk itself looks for the key on both streams.
    let tools = ["tools", "list"];
    for flags in [&["-v"][..], &["-vv"]] {
        let done = desk.agentd(&[flags, &tools].concat()).await;
        assert_eq!(done.status.code(), Some(3), "{flags:?}");
        let log = String::from_utf8_lossy(&done.stderr);
        assert!(
            log.contains("[redacted:model_key:") && log.contains("worker quit"),
            "the line is there without it: {log}"
        );
    }
    // agentd says by itself what became of the server.
    for flags in [&[][..], &["-q"]] {
        let log = String::from_utf8_lossy(&desk.agentd(&[flags, &tools].concat()).await.stderr).into_owned();
        assert!(log.contains("far") && !log.contains("worker quit"), "{log}");
    }
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_048_a_server_that_cannot_be_reached_is_told_without_the_secret_in_its_address_or_command() {
    let desk = Desk::new("").await;
    desk.write("history.json", r#"[{"role":"user","content":"x"}]"#);
    let call = ["tools", "call", "desk__echo", "--args", "{}", "--user", USER];
    let chat = ["chat", "--user", USER, "--messages", "history.json"];
    let chat_json = [&chat[..], &["--json"]].concat();
    for far in ["url = \"http://127.0.0.1:9/${MODEL_KEY}/mcp\"", "command = \"/nonexistent/${MODEL_KEY}\""] {
        desk.configure("", &format!("[mcp.servers.far]\n{far}\n"));
        for args in [&["tools", "list"][..], &["tools", "list", "--json"], &call, &chat, &chat_json] {
            // The desk itself looks for the key on both streams.
            let done = desk.agentd(args).await;
            assert_eq!(done.status.code(), Some(3), "{args:?}");
            let said = String::from_utf8_lossy(&done.stderr) + String::from_utf8_lossy(&done.stdout);
            assert!(said.contains("[redacted:model_key:"), "{args:?} {said}");
        }
    }
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_would_make_agentd_s_own_tools_or_has_no_address_is_refused_before_anything_starts() {
    let desk = Desk::new("").await;
    for (server, why) in [
        ("[mcp.servers.agent]\ncommand = \"true\"\n", "reserved"),
        ("[mcp.servers.exec_agent]\ncommand = \"true\"\n", "reserved"),
        ("[mcp.servers.far]\nurl = \"ftp://127.0.0.1/\"\n", "http(s)"),
    ] {
        desk.configure("", server);
        for args in [&["tools", "list"][..], &["config", "check"]] {
            let done = desk.agentd(args).await;
            let log = String::from_utf8_lossy(&done.stderr);
            assert_eq!(done.status.code(), Some(4), "{args:?} {server} {log}");
            assert!(log.contains(why), "{args:?} {server} {log}");
        }
        let (code, result, _) = desk.call("desk__echo", "{\"text\":\"x\"}").await;
        assert_eq!((code, &result["error_type"]), (4, &json!("ConfigurationError")), "{server}");
    }
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_025_a_signal_ends_a_call_with_one_object_and_leaves_no_server() {
    for signal in ["-INT", "-TERM"] {
        let desk = Desk::new("").await;
        let args = ["tools", "call", "desk__sleep", "--args", "{\"ms\":600000}", "--user", USER];
        let mut command = desk.command(&args);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let notes = desk.dir.path().join("notes");
        let called = || std::fs::read_to_string(&notes).is_ok_and(|notes| notes.contains("call sleep"));
        until("the tool to be called", called).await;
        let pid = child.id().to_string();
        assert!(std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let done = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
        assert_eq!(done.status.code(), Some(1), "{signal}");
        let result: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(result["status"], "error", "{signal}: {result:#}");
        desk.finish().await;
    }
}
