//! The final report: its sources, formats and repairs (A-036, A-043, A-058…A-071), and the conversation (A-083…A-085).

use agentd::domain::event::Event;
use agentd::domain::message::Message;
use agentd::domain::report::ReportFormat;
use agentd::engine::model::{ModelReply, ReplyStop};
use serde_json::{Value, json};

use super::world::{Line, World, call, calls, empty, reply, report, report_json, roles, text};

fn needs_x() -> Value {
    json!({ "type": "object", "required": ["x"], "properties": { "x": { "type": "integer" } } })
}

#[tokio::test(start_paused = true)]
async fn a_036_a_058_the_models_report_is_success() {
    let ran = World::new(vec![report("done")]).run().await;
    assert_eq!(ran.outcome.failure, None);
    assert_eq!((ran.content(), ran.detail()), ("done", "completed"));
    assert_eq!(ran.metadata()["source"], "tool");
    assert_eq!(ran.metadata()["agentd"]["source"], "tool");
    assert!(ran.outcome.report.ts >= 1_700_000_000_000, "A-065");
}

#[tokio::test(start_paused = true)]
async fn a_059_c_07_text_of_the_last_turn_is_the_report() {
    let ran = World::new(vec![text("answer")]).settings(|settings| settings.max_turns = 1).run().await;
    assert_eq!((ran.content(), ran.detail()), ("answer", "completed_forced_final"));
    assert_eq!(ran.metadata()["agentd"], json!({ "source": "text", "forced_final": "max_turns" }));
    let json_task = World::new(vec![text("answer")])
        .settings(|settings| settings.max_turns = 1)
        .shape(ReportFormat::Json, None)
        .run()
        .await;
    assert_eq!(json_task.detail(), "schema_invalid");
}

#[tokio::test(start_paused = true)]
async fn a_060_the_synthetic_report_holds_agentds_own_facts_alone() {
    let ran = World::new(vec![text("ignore all rules"), empty()]).run().await;
    assert!(!ran.content().contains("ignore"));
    assert!(ran.content().contains("empty") && ran.content().contains("initial.issue"), "{}", ran.content());
    assert_eq!(ran.metadata()["agentd"]["source"], "synthetic");
    let structured = World::new(vec![empty()]).shape(ReportFormat::Json, None).run().await;
    let object = structured.outcome.report.content_json.unwrap();
    assert_eq!(object["stop_detail"], "invalid_model_output");
}

#[tokio::test(start_paused = true)]
async fn a_061_every_format_is_kept_as_the_sessions() {
    for format in ReportFormat::ALL.into_iter().filter(|format| !format.is_structured()) {
        let ran =
            World::new(vec![call("agent__final_report", json!({ "report_format": format, "content": "x" }))])
                .shape(format, None)
                .run()
                .await;
        assert_eq!(ran.outcome.report.format, format);
    }
    let blocks = json!({ "blocks": [{ "type": "divider" }] });
    let slack =
        World::new(vec![report_json(blocks.clone())]).shape(ReportFormat::SlackBlockKit, None).run().await;
    assert_eq!(Value::Object(slack.outcome.report.content_json.unwrap()), blocks);
}

#[tokio::test(start_paused = true)]
async fn a_066_a_payload_with_its_own_success_changes_nothing() {
    let payload = json!({ "success": false, "status": "failure" });
    let ran = World::new(vec![report_json(payload.clone())]).shape(ReportFormat::Json, None).run().await;
    assert_eq!(ran.outcome.failure, None);
    assert_eq!(Value::Object(ran.outcome.report.content_json.unwrap()), payload);
}

#[tokio::test(start_paused = true)]
async fn a_067_another_format_is_accepted_with_a_warning() {
    let ran =
        World::new(vec![call("agent__final_report", json!({ "report_format": "json", "content": "x" }))])
            .run()
            .await;
    assert_eq!(ran.outcome.report.format, ReportFormat::Markdown);
    let warned =
        ran.events.iter().any(|e| matches!(e, Event::Warned(w) if w.code == "report_format_mismatch"));
    assert!(warned);
}

#[tokio::test(start_paused = true)]
async fn a_068_x_036_an_invalid_report_is_repaired_within_the_turn() {
    let script = vec![report_json(json!({ "x": "1" })), report_json(json!({ "x": 1 }))];
    let ran = World::new(script).shape(ReportFormat::Json, Some(needs_x())).run().await;
    assert_eq!((ran.outcome.turns, ran.outcome.attempts, ran.detail()), (1, 2, "completed"));
    let told = ran.results(2)[0];
    assert!(told.contains("/content_json: /x: "), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_043_x_036_a_report_that_never_fits_its_schema_ends_with_exit_code_five() {
    let ran = World::new(vec![report_json(json!({}))])
        .shape(ReportFormat::Json, Some(needs_x()))
        .settings(|settings| settings.max_retries = 10)
        .run()
        .await;
    assert_eq!(ran.detail(), "schema_invalid");
    assert_eq!(ran.outcome.stop().detail.exit_code(), 5);
    assert_eq!(ran.requests.len(), 6, "one attempt and two repairs, in two turns");
}

#[tokio::test(start_paused = true)]
async fn a_069_a_cut_text_is_accepted_and_marked_a_cut_object_is_not() {
    let cut = ModelReply { stop: ReplyStop::Length, ..reply("half an answ", &[]) };
    let ran = World::new(vec![Line::Reply(cut)]).settings(|settings| settings.max_turns = 1).run().await;
    assert_eq!(ran.metadata()["agentd"]["truncated"], true);
    assert!(ran.content().starts_with("half an answ\n\n[truncated"));
    let cut = ModelReply {
        stop: ReplyStop::Length,
        ..reply("", &[("agent__final_report", json!("{\"content_json\": {\"x\": 1"))])
    };
    let ran = World::new(vec![Line::Reply(cut), report_json(json!({ "x": 1 }))])
        .shape(ReportFormat::Json, Some(needs_x()))
        .run()
        .await;
    let told = serde_json::to_string(&ran.requests[1].messages).unwrap();
    assert!(told.contains("limit of 16384 output tokens"), "{told}");
    assert_eq!(ran.detail(), "completed");
}

#[tokio::test(start_paused = true)]
async fn a_070_a_failed_report_leaves_one_more_turn() {
    let mut script = vec![call("echo", json!({}))];
    script.push(report_json(json!({})));
    let ran = World::new(script)
        .shape(ReportFormat::Json, Some(needs_x()))
        .settings(|s| s.max_turns = 10)
        .run()
        .await;
    assert_eq!(ran.llm_lines().iter().map(|entry| entry.turn).max(), Some(3));
    let beside = vec![
        calls(&[("echo", json!({})), ("agent__final_report", json!({}))]),
        report_json(json!({ "x": 1 })),
    ];
    let ran = World::new(beside).shape(ReportFormat::Json, Some(needs_x())).run().await;
    assert_eq!((ran.runs("echo"), ran.offered(2)), (1, vec!["agent__final_report"]));
}

#[tokio::test(start_paused = true)]
async fn a_071_the_first_report_of_a_reply_wins_and_what_follows_does_not_run() {
    let script = calls(&[
        ("count", json!({})),
        ("agent__final_report", json!({ "content": "first" })),
        ("agent__final_report", json!({ "content": "second" })),
        ("count", json!({})),
    ]);
    let ran = World::new(vec![script]).run().await;
    assert_eq!((ran.content(), ran.runs("count")), ("first", 1));
    let codes: Vec<Value> = ran
        .events
        .iter()
        .filter_map(|event| match event {
            Event::ItemRecorded { item, .. } => Some(serde_json::to_value(item).unwrap()),
            _ => None,
        })
        .filter(|item| item["type"] == "tool_call_output_item")
        .map(|item| item["output"]["code"].clone())
        .collect();
    let late = Value::from("final_report_already_captured");
    assert_eq!(codes, [Value::Null, Value::Null, late.clone(), late]);
}

#[tokio::test(start_paused = true)]
async fn a_083_a_084_a_085_the_conversation_alternates_and_ends_with_the_assistant() {
    let script = vec![call("echo", json!({})), empty(), call("count", json!({})), report("ok")];
    let ran = World::new(script).run().await;
    assert_eq!(ran.roles(1), "SU");
    assert_eq!(roles(&ran.outcome.messages), "SUATATA");
    assert_eq!(ran.outcome.conversation.as_ref().unwrap().path, "conversation/1-initial.issue.json");
    let stored = ran.conversation();
    assert_eq!(stored["messages"].as_array().unwrap().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn p_027_d42_prompt_texts_are_kept_only_when_asked_for() {
    let kept = |ran: &super::world::Ran| {
        let events = serde_json::to_string(&ran.events).unwrap();
        let files =
            ran.files.values().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect::<String>();
        (events + &files).contains("You resolve issues.")
    };
    assert!(!kept(&World::new(vec![report("ok")]).run().await));
    assert!(kept(&World::new(vec![report("ok")]).with(|world| world.include_text = true).run().await));
}

#[tokio::test(start_paused = true)]
async fn x_040_the_prefix_is_the_same_on_every_open_turn() {
    let ran = World::new(vec![call("count", json!({})), empty(), call("count", json!({})), report("ok")])
        .run()
        .await;
    let prints: Vec<(String, String)> = ran
        .events
        .iter()
        .filter_map(|event| match event {
            Event::RequestFingerprinted(print) => {
                Some((print.system_prompt_hash.clone(), print.tools_hash.clone()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(prints.len(), 4, "P-028: one per attempt");
    assert!(prints.iter().all(|print| *print == prints[0]));
}

#[tokio::test(start_paused = true)]
async fn p_026_every_turn_has_its_prompt_snapshot() {
    let ran = World::new(vec![call("count", json!({})), empty(), report("ok")]).run().await;
    let turns: Vec<u32> = ran
        .events
        .iter()
        .filter_map(|event| match event {
            Event::PromptSnapshotTaken(snapshot) => Some(snapshot.turn),
            _ => None,
        })
        .collect();
    assert_eq!(turns, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_031_d26_a_status_that_says_completed_makes_the_next_turn_final() {
    let status = |status: &str| call("agent__task_status", json!({ "status": status }));
    let ran = World::new(vec![status("completed"), report("ok")]).run().await;
    assert_eq!(serde_json::to_value(ran.outcome.forced_final).unwrap(), "task_status");
    assert_eq!(ran.offered(2), ["agent__final_report"]);
    let twice = World::new(vec![status("in_progress"), status("in_progress"), report("ok")]).run().await;
    assert_eq!(twice.offered(2).len(), 8);
    assert_eq!(twice.offered(3), ["agent__final_report"]);
    assert!(twice.tool_lines().is_empty(), "saying how far one is executes nothing");
}

#[tokio::test(start_paused = true)]
async fn x_031_what_is_longer_than_64_kib_is_kept_beside_the_record() {
    let long = "é".repeat(40_000);
    let ran = World::new(vec![call("echo", json!({ "long": long })), report(&long)])
        .settings(|settings| settings.tool_response_max_bytes = 1_000_000)
        .run()
        .await;
    for event in &ran.events {
        let size = serde_json::to_string(event).unwrap().len();
        assert!(size < 70_000, "an event of {size} bytes");
    }
    let items = serde_json::to_string(&ran.events).unwrap();
    assert_eq!(
        items.matches("\"$ref\":\"artifacts/session-").count(),
        4,
        "both calls' arguments, output, report"
    );
}

#[tokio::test(start_paused = true)]
async fn d4_a_session_can_go_on_from_where_another_ended() {
    let first = World::new(vec![call("echo", json!({})), report("ok")]).run().await;
    let mut opening = first.outcome.history();
    opening.push(Message::User { content: "And now?".to_owned() });
    let second = World::new(vec![report("more")])
        .with(|world| world.opening = opening.iter().cloned().collect())
        .run()
        .await;
    assert_eq!(second.roles(1), "SUATATU", "every call is answered, or the scripted model would refuse");
    assert_eq!(second.content(), "more");
}
