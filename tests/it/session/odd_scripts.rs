//! No script of replies, tool results and faults, however odd, breaks a session.

use std::time::Duration;

use agentd::domain::message::TokenUsage;
use agentd::domain::money::Money;
use agentd::domain::report::{ReportFormat, ReportSource};
use agentd::domain::stop::{Stop, StopDetail};
use agentd::engine::model::{ModelErrorClass, ModelReply, ReplyStop};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::world::{Does, Line, TestTool, World, reply};

fn arguments() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => Just(json!({})),
        2 => (0_u64..40_000).prop_map(|bytes| json!({ "bytes": bytes })),
        2 => (0_u64..90_000).prop_map(|ms| json!({ "ms": ms })),
        1 => Just(Value::String("{\"a\":".into())),
        1 => Just(Value::String("[1]".into())),
        1 => any::<String>().prop_map(Value::String),
        1 => Just(json!({ "report_format": "markdown", "content": "done" })),
        1 => Just(json!({ "content_json": { "x": 1 } })),
        1 => Just(json!({ "content": " ", "claims": 5 })),
        1 => Just(json!({ "status": "completed" })),
        1 => Just(json!({ "handle": "session-a/b", "mode": "grep", "pattern": "(" })),
    ]
}

fn tool() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "echo",
        "count",
        "big",
        "sleep",
        "fail",
        "crash",
        "jail",
        "leak",
        "tool_output",
        "agent__task_status",
        "agent__final_report",
        "nope",
        "",
    ])
}

fn usage() -> impl Strategy<Value = Option<TokenUsage>> {
    prop_oneof![
        Just(None),
        (0_u64..5_000, 0_u64..500).prop_map(|(input, output)| Some(TokenUsage::new(input, output, 7, 3))),
        Just(Some(TokenUsage::new(u64::MAX, u64::MAX, u64::MAX, u64::MAX))),
    ]
}

fn stop() -> impl Strategy<Value = ReplyStop> {
    prop::sample::select(vec![
        ReplyStop::End,
        ReplyStop::End,
        ReplyStop::ToolCalls,
        ReplyStop::Length,
        ReplyStop::Refusal,
        ReplyStop::Other,
    ])
}

fn a_reply() -> impl Strategy<Value = ModelReply> {
    let calls = prop::collection::vec((tool(), arguments()), 0..6);
    let said = prop_oneof![Just(String::new()), Just("some text".to_owned()), any::<String>()];
    (said, calls, usage(), stop(), any::<bool>(), 0_u64..200_000, any::<bool>()).prop_map(
        |(said, calls, usage, stop, thinks, cost, same_ids)| {
            let mut reply = reply(&said, &calls);
            if same_ids {
                reply.tool_calls.iter_mut().for_each(|call| call.id = "same".to_owned());
            }
            reply.usage = usage;
            reply.stop = stop;
            reply.reasoning = thinks.then(|| json!("hm"));
            reply.cost = (cost % 3 == 0).then(|| Money::from_micros(cost));
            reply
        },
    )
}

fn line() -> impl Strategy<Value = Line> {
    let fault = prop::sample::select(vec![
        ModelErrorClass::RateLimited { retry_after: None },
        ModelErrorClass::RateLimited { retry_after: Some(Duration::from_secs(7)) },
        ModelErrorClass::RateLimited { retry_after: Some(Duration::MAX) },
        ModelErrorClass::Network,
        ModelErrorClass::Timeout,
        ModelErrorClass::Server { retry_after: None },
        ModelErrorClass::Server { retry_after: Some(Duration::from_secs(7)) },
        ModelErrorClass::ContextLength,
        ModelErrorClass::InvalidReply,
    ]);
    let fatal = prop::sample::select(vec![
        ModelErrorClass::Auth,
        ModelErrorClass::Quota,
        ModelErrorClass::BadRequest,
    ]);
    prop_oneof![
        12 => a_reply().prop_map(Line::Reply),
        3 => fault.prop_map(|class| Line::Fail(class, None)),
        1 => fatal.prop_map(|class| Line::Fail(class, Some(400))),
        1 => (0_u64..200).prop_flat_map(|seconds| {
            a_reply().prop_map(move |reply| Line::Slow(Duration::from_secs(seconds), reply))
        }),
        1 => Just(Line::Hang),
    ]
}

#[derive(Debug, Clone)]
struct Setting {
    max_turns: u32,
    max_retries: u32,
    cap: u32,
    windows: Vec<u64>,
    response_cap: u64,
    format: usize,
    chat: bool,
    skip: bool,
    stop_after: Option<(u64, bool)>,
    policy: usize,
    stream: bool,
}

fn setting() -> impl Strategy<Value = Setting> {
    let windows = prop::collection::vec(
        prop::sample::select(vec![16_641_u64, 17_000, 17_600, 18_500, 20_000, 30_000, 131_072]),
        1..4,
    );
    let stop_after = prop::option::of((0_u64..40, any::<bool>()));
    let limits = (1_u32..6, 1_u32..5, 0_u32..4, windows, prop::sample::select(vec![0_u64, 200, 12_288]));
    (limits, 0_usize..3, any::<bool>(), any::<bool>(), stop_after, 0_usize..4, any::<bool>()).prop_map(
        |(
            (max_turns, max_retries, cap, windows, response_cap),
            format,
            chat,
            skip,
            stop_after,
            policy,
            stream,
        )| {
            Setting {
                max_turns,
                max_retries,
                cap,
                windows,
                response_cap,
                format,
                chat: chat && format == 0,
                skip,
                stop_after,
                policy,
                stream,
            }
        },
    )
}

fn world(script: Vec<Line>, setting: &Setting) -> World {
    let deny = |name: &str, mode: &str| {
        let rule = "[[rule]]\nid = \"d\"\nkind = \"tool\"\neffect = \"deny\"\nreason = \"d\"\n";
        format!("{rule}name = \"{name}\"\ndeny_mode = \"{mode}\"\n{}", super::world::ALLOW_ALL)
    };
    let policy = match setting.policy {
        0 => deny("echo", "tool_result"),
        1 => deny("fail", "throw"),
        _ => super::world::ALLOW_ALL.to_owned(),
    };
    let schema = json!({ "type": "object", "required": ["x"] });
    let mut world = World::new(script)
        .tool(TestTool::new("crash", Does::Panics))
        .tool(TestTool::new("jail", Does::Refuses))
        .tool(TestTool::new("leak", Does::Leaks))
        .with(|world| world.policy = policy)
        .settings(|settings| {
            settings.max_turns = setting.max_turns;
            settings.max_retries = setting.max_retries;
            settings.max_tool_calls_per_turn = setting.cap;
            settings.tool_response_max_bytes = setting.response_cap;
            settings.stream = setting.stream;
            let skip = agentd::domain::model_target::OnFatalError::SkipTarget;
            if setting.skip {
                settings.on_auth_error = skip;
                settings.on_quota = skip;
            }
            let only = settings.targets[0].clone();
            let targets = setting.windows.iter().enumerate();
            settings.targets = targets
                .map(|(index, window)| agentd::domain::model_target::ModelTarget {
                    model: format!("m{index}"),
                    context_window: *window,
                    ..only.clone()
                })
                .collect();
        });
    world = match setting.format {
        0 => world,
        1 => world.shape(ReportFormat::Json, Some(schema)),
        _ => world.shape(ReportFormat::SlackBlockKit, None),
    };
    if setting.chat { world.chat() } else { world }
}

async fn survives(script: Vec<Line>, setting: Setting) {
    let world = world(script, &setting);
    if let Some((seconds, abort)) = setting.stop_after {
        let handle = std::sync::Arc::clone(&world.stop);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let stop = Stop::new(StopDetail::UserStop, "stopped");
            if abort { handle.abort(stop) } else { handle.ask(stop) }
        });
    }
    // `run` checks what holds after every session: ledger, counters, payload, secrets.
    let ran = world.run().await;
    assert!(ran.requests.len() <= (setting.max_turns * setting.max_retries) as usize);
    let mut per_turn = std::collections::BTreeMap::<u32, (u32, u32)>::new();
    for entry in ran.llm_lines() {
        per_turn.entry(entry.turn).or_default().0 += 1;
    }
    for entry in ran.tool_lines() {
        per_turn.entry(entry.turn).or_default().1 += 1;
    }
    for (turn, (attempts, tools)) in per_turn {
        assert!((1..=setting.max_turns).contains(&turn));
        assert!(attempts <= setting.max_retries && tools <= setting.cap, "{attempts} {tools}");
    }
    let synthetic = ran.outcome.source == ReportSource::Synthetic;
    assert!(!synthetic || ran.outcome.failure.is_some(), "success has the model's report");
    assert!(ran.outcome.conversation.is_some());
    assert!(ran.took <= Duration::from_secs(15 * 60 + 1), "{:?}", ran.took);
    if let Some(failure) = &ran.outcome.failure {
        assert_ne!(failure.stop.detail, StopDetail::Internal, "{}", failure.error_message);
    }
    let stored = super::world::roles(&ran.outcome.messages);
    let rest = stored.trim_start_matches('S').trim_start_matches('U');
    assert!(rest.is_empty() || rest.starts_with('A'), "{stored}");
    assert!(!rest.contains("AA"), "A-084: {stored}");
}

proptest! {
    #[test]
    fn a_097_no_script_breaks_a_session(
        script in prop::collection::vec(line(), 1..14),
        setting in setting(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(survives(script, setting));
    }
}
