//! Replies that cannot be used, errors, cycling, waits (A-044…A-057).

use std::time::Duration;

use agentd::domain::event::Event;
use agentd::domain::message::{Message, Messages};
use agentd::domain::model_target::OnFatalError;
use agentd::engine::model::{ModelErrorClass, ModelReply, ReplyStop};
use serde_json::json;

use super::world::{
    Line, World, call, calls, dropped, empty, limited, reply, report, server_error, text, think,
};

fn last_user(messages: &Messages) -> &str {
    match messages.last() {
        Some(Message::User { content }) => content,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_044_a_reply_of_reasoning_only_is_kept_and_asked_again() {
    let ran = World::new(vec![think("hm"), report("ok")]).run().await;
    assert_eq!(ran.roles(2), "SUAU");
    let Message::Assistant { reasoning, .. } = &ran.requests[1].messages[2] else { panic!() };
    assert_eq!(reasoning.as_ref().unwrap()["thought"], "hm");
    assert!(last_user(&ran.requests[1].messages).contains("only reasoning"));
    let stored = ran.conversation();
    let assistant = stored["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(assistant["reasoning"]["thought"], "hm", "it stands with the assistant's entry");
}

#[tokio::test(start_paused = true)]
async fn a_045_an_empty_reply_is_not_in_the_conversation_and_guidance_is_not_kept() {
    let ran = World::new(vec![empty(), report("ok")]).run().await;
    assert_eq!(ran.roles(2), "SUU");
    let stored = ran.conversation();
    let roles: Vec<&str> =
        stored["messages"].as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant"]);
}

#[tokio::test(start_paused = true)]
async fn a_046_unusable_replies_use_attempts_up() {
    let ran = World::new(vec![empty(), empty(), report("ok")]).settings(|s| s.max_retries = 2).run().await;
    let turns: Vec<u32> = ran.llm_lines().iter().map(|entry| entry.turn).collect();
    assert_eq!(turns, [1, 1, 2]);
    let refused = ModelReply { stop: ReplyStop::Refusal, ..reply("I cannot", &[]) };
    let ran = World::new(vec![Line::Reply(refused), report("ok")]).run().await;
    assert_eq!((ran.requests.len(), ran.outcome.turns), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_047_a_048_a_049_a_malformed_call_is_dropped_told_and_the_others_run() {
    let ran = World::new(vec![calls(&[("echo", json!("{\"a\":")), ("count", json!({}))]), report("ok")])
        .run()
        .await;
    assert_eq!((ran.runs("echo"), ran.runs("count")), (0, 1));
    assert!(
        ran.results(2)[0].starts_with("(tool failed: invalid arguments: not valid JSON"),
        "{}",
        ran.results(2)[0]
    );
    assert_eq!(ran.results(2)[1], "1");
    let raw = ran.events.iter().find_map(|event| match event {
        Event::ItemRecorded { item, .. } => {
            Some(serde_json::to_value(item).unwrap()).filter(|item| item["type"] == "tool_call_item")
        }
        _ => None,
    });
    assert_eq!(raw.unwrap()["arguments"], "{\"a\":", "C-15: the raw text stays in the items");
}

#[tokio::test(start_paused = true)]
async fn c_15_a_reply_of_malformed_calls_alone_is_an_attempt() {
    let ran =
        World::new(vec![call("echo", json!("{\"a\":")), call("echo", json!({})), report("ok")]).run().await;
    let turns: Vec<u32> = ran.llm_lines().iter().map(|entry| entry.turn).collect();
    assert_eq!(turns, [1, 1, 2]);
    assert_eq!(ran.roles(2), "SUATU");
}

#[tokio::test(start_paused = true)]
async fn a_050_a_051_refused_credentials_and_quota_end_the_session_at_once() {
    for (class, detail) in [(ModelErrorClass::Auth, "auth_error"), (ModelErrorClass::Quota, "quota_exceeded")]
    {
        let ran =
            World::new(vec![Line::Fail(class, Some(401)), report("ok")]).targets(&["a", "b"]).run().await;
        assert_eq!((ran.models(), ran.detail()), (vec!["a"], detail));
        assert_eq!(ran.metadata()["reason"], detail, "A-038");
    }
}

#[tokio::test(start_paused = true)]
async fn c_09_skipping_a_target_is_opt_in_and_visible() {
    let script = vec![Line::Fail(ModelErrorClass::Auth, Some(401)), call("echo", json!({})), report("ok")];
    let ran = World::new(script)
        .targets(&["a", "b"])
        .settings(|settings| settings.on_auth_error = OnFatalError::SkipTarget)
        .run()
        .await;
    assert_eq!(ran.models(), ["a", "b", "b"]);
    assert!(
        ran.events.contains(&Event::TargetSkipped { target: "fake/a".into(), reason: "auth_error".into() })
    );
}

#[tokio::test(start_paused = true)]
async fn a_052_retry_after_is_honoured_and_another_target_comes_first() {
    let one = World::new(vec![limited(Some(2)), report("ok")]).run().await;
    assert!(one.gap(1) >= Duration::from_secs(2));
    let two = World::new(vec![limited(Some(2)), report("ok")]).targets(&["a", "b"]).run().await;
    assert!(two.gap(1) < Duration::from_millis(10));
    let cycle =
        World::new(vec![limited(Some(2)), limited(Some(5)), report("ok")]).targets(&["a", "b"]).run().await;
    assert!(cycle.gap(2) >= Duration::from_secs(5), "the longest of the cycle");
    assert_eq!(cycle.models(), ["a", "b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn a_052_an_overloaded_server_is_asked_again_when_it_says() {
    let busy = Line::Fail(ModelErrorClass::Server { retry_after: Some(Duration::from_secs(9)) }, Some(503));
    let one = World::new(vec![busy, report("ok")]).run().await;
    assert!(one.gap(1) >= Duration::from_secs(9), "{:?}", one.gap(1));
}

#[tokio::test(start_paused = true)]
async fn a_052_c_13_a_wait_beyond_the_wall_time_is_not_begun() {
    let ran = World::new(vec![limited(Some(3600)), report("ok")])
        .with(|world| world.budgets.max_wall_time = Duration::from_secs(5))
        .run()
        .await;
    assert_eq!(ran.detail(), "max_wall_time");
    assert!(ran.took < Duration::from_secs(1), "{:?}", ran.took);
}

#[tokio::test(start_paused = true)]
async fn a_053_without_retry_after_the_waits_double() {
    let ran = World::new(vec![limited(None), limited(None), report("ok")]).run().await;
    assert!(ran.gap(1) >= Duration::from_secs(1) && ran.gap(1) < Duration::from_secs(2));
    assert!(ran.gap(2) >= Duration::from_secs(2) && ran.gap(2) < Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_054_after_a_network_error_or_a_timeout_the_next_target_is_asked_at_once() {
    let ran = World::new(vec![dropped(), report("ok")]).targets(&["a", "b"]).run().await;
    assert_eq!(ran.models(), ["a", "b"]);
    assert!(ran.gap(1) < Duration::from_millis(200));
    let hung = World::new(vec![Line::Hang, report("ok")])
        .targets(&["a", "b"])
        .settings(|settings| settings.llm_timeout = Duration::from_millis(300))
        .run()
        .await;
    assert!(hung.gap(1) >= Duration::from_millis(300) && hung.gap(1) < Duration::from_millis(400));
    assert!(hung.llm_lines()[0].error.as_deref().unwrap().starts_with("timeout"));
}

#[tokio::test(start_paused = true)]
async fn a_055_an_unreadable_reply_is_told_to_the_model_a_transport_fault_is_not() {
    let ran =
        World::new(vec![Line::Fail(ModelErrorClass::InvalidReply, Some(200)), report("ok")]).run().await;
    assert!(last_user(&ran.requests[1].messages).contains("could not be read"));
    let ran = World::new(vec![server_error(), report("ok")]).run().await;
    assert_eq!(ran.requests[0].messages, ran.requests[1].messages);
}

#[tokio::test(start_paused = true)]
async fn a_056_attempt_k_asks_target_k_minus_one_modulo_n() {
    let ran = World::new(vec![dropped()]).targets(&["a", "b"]).settings(|s| s.max_retries = 5).run().await;
    assert_eq!(ran.models(), ["a", "b", "a", "b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn a_057_tool_calls_end_the_cycle_even_when_all_are_denied() {
    let ran = World::new(vec![server_error(), call("echo", json!({})), report("ok")])
        .with(|world| world.policy = "[[rule]]\nid = \"no\"\nkind = \"tool\"\nname = \"*\"\neffect = \"deny\"\nreason = \"no\"\ndeny_mode = \"tool_result\"\n".into())
        .run()
        .await;
    let turns: Vec<u32> = ran.llm_lines().iter().map(|entry| entry.turn).collect();
    assert_eq!(turns, [1, 1, 2]);
    let fatal = World::new(vec![server_error(), Line::Fail(ModelErrorClass::Auth, Some(401)), report("x")])
        .run()
        .await;
    assert_eq!((fatal.requests.len(), fatal.detail()), (2, "auth_error"));
}

#[tokio::test(start_paused = true)]
async fn s_033_a_providers_words_are_not_shown_to_people() {
    let ran = World::new(vec![server_error()]).run().await;
    let failure = ran.outcome.failure.as_ref().unwrap();
    assert!(!failure.stop.message.contains("scripted"));
    assert!(failure.error_message.contains("scripted"), "the record has the technical text");
    assert!(!ran.content().contains("scripted"), "A-060");
}

#[tokio::test(start_paused = true)]
async fn c_06_text_on_an_open_turn_of_a_task_is_an_attempt_with_guidance() {
    let ran = World::new(vec![text("I am done"), report("ok")]).run().await;
    assert_eq!(ran.roles(2), "SUAU");
    assert!(last_user(&ran.requests[1].messages).contains("agent__final_report"));
    assert_eq!(ran.outcome.turns, 1);
}
