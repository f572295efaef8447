//! Chat mode: text completes, the last turn is a summary without tools (C-06, C-07, S-010…S-016, S-040).

use std::time::Duration;

use agentd::domain::message::Message;
use serde_json::json;

use super::world::{Line, World, call, report, roles, server_error, text};

#[tokio::test(start_paused = true)]
async fn s_012_s_014_text_is_the_answer() {
    let ran = World::new(vec![call("echo", json!({})), text("hi")]).chat().run().await;
    assert_eq!((ran.content(), ran.detail(), ran.outcome.turns), ("hi", "completed", 2));
    assert_eq!(roles(&ran.outcome.messages), "SUATA");
    assert_eq!(ran.offered(1), ["echo", "count", "big", "sleep", "fail", "tool_output"]);
}

#[tokio::test(start_paused = true)]
async fn s_015_c_07_the_last_turn_is_a_summary_without_tools() {
    let script = vec![call("count", json!({})), call("count", json!({})), text("sum")];
    let ran = World::new(script).chat().settings(|settings| settings.max_turns = 3).run().await;
    assert_eq!((ran.content(), ran.detail()), ("sum", "completed_forced_final"));
    assert_eq!(serde_json::to_value(ran.outcome.forced_final).unwrap(), "max_turns");
    assert!(ran.offered(3).is_empty());
    let natural = World::new(vec![call("count", json!({})), text("x")])
        .chat()
        .settings(|s| s.max_turns = 3)
        .run()
        .await;
    assert_eq!((natural.requests.len(), natural.detail()), (2, "completed"));
}

#[tokio::test(start_paused = true)]
async fn s_041_the_history_is_sent_whole_and_unchanged() {
    let history: Vec<Message> = (0..51)
        .map(|n| match n % 2 {
            0 => Message::User { content: format!("q{n}") },
            _ => Message::Assistant { content: format!("a{n}"), reasoning: None, tool_calls: Vec::new() },
        })
        .collect();
    let world = World::new(vec![text("ok")]).chat().with(|world| world.opening = history.clone());
    let ran = world.run().await;
    assert!(ran.requests[0].messages.iter().skip(1).eq(&history));
}

#[tokio::test(start_paused = true)]
async fn s_054_s_052_a_transient_failure_is_retried_and_a_lasting_one_adds_no_answer() {
    let ran = World::new(vec![server_error(), text("ok")]).chat().run().await;
    assert_eq!((ran.content(), ran.requests.len()), ("ok", 2));
    let ran = World::new(vec![server_error()]).chat().run().await;
    assert_eq!(roles(&ran.outcome.messages), "SU");
    assert_eq!(ran.conversation()["messages"][1]["content"], "Fix it.", "a person's words are kept");
}

#[tokio::test(start_paused = true)]
async fn s_040_an_attempt_ends_with_the_turns_timeout_and_the_tools_share_what_is_left() {
    let ran = World::new(vec![Line::Hang, text("ok")])
        .chat()
        .with(|world| world.turn_timeout = Some(Duration::from_secs(30)))
        .run()
        .await;
    assert!(ran.gap(1) >= Duration::from_secs(30) && ran.gap(1) < Duration::from_secs(31));
    let slow =
        Line::Slow(Duration::from_secs(20), super::world::reply("", &[("sleep", json!({ "ms": 20_000 }))]));
    let ran = World::new(vec![slow, text("ok")])
        .chat()
        .with(|world| world.turn_timeout = Some(Duration::from_secs(30)))
        .run()
        .await;
    assert_eq!(ran.results(2), ["(tool failed: timeout)"]);
    assert!(ran.gap(1) < Duration::from_secs(31));
}

fn status() -> Line {
    call("agent__task_status", json!({ "status": "completed" }))
}

#[tokio::test(start_paused = true)]
async fn c_06_a_chat_knows_no_final_report_and_no_status() {
    for (name, script) in [("agent__final_report", report("x")), ("agent__task_status", status())] {
        let ran = World::new(vec![script, text("ok")]).chat().run().await;
        assert_eq!(ran.results(2), [format!("(tool failed: Unknown tool: {name})")]);
        assert_eq!(ran.content(), "ok");
    }
}

#[tokio::test(start_paused = true)]
async fn s_037_two_hundred_chats_with_an_instant_model_stay_far_below_the_limits() {
    let mut turns = Vec::new();
    for _ in 0..200 {
        let started = std::time::Instant::now();
        let ran = World::new(vec![call("echo", json!({})), text("hi")]).chat().run().await;
        assert_eq!(ran.outcome.turns, 2);
        turns.push(started.elapsed() / 2);
    }
    turns.sort_unstable();
    let (p95, p99) = (turns[189], turns[197]);
    assert!(p95 < Duration::from_secs(3) && p99 < Duration::from_secs(5), "{p95:?} {p99:?}");
}
