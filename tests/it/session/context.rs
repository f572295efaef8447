//! The context window: counters, projection, limits, forced final turns (A-013…A-025).

use agentd::domain::event::Event;
use agentd::domain::message::{Message, TokenUsage};
use agentd::domain::trace::{ContextGuardEvaluated, RequestPrepared};
use agentd::engine::model::{ModelErrorClass, ModelReply};
use serde_json::{Value, json};

use super::world::{Does, Line, Ran, TestTool, World, call, calls, report, target};

fn prepared(ran: &Ran) -> Vec<&RequestPrepared> {
    ran.events
        .iter()
        .filter_map(|event| match event {
            Event::LlmRequestPrepared(prepared) => Some(&**prepared),
            _ => None,
        })
        .collect()
}

fn guards(ran: &Ran) -> Vec<&ContextGuardEvaluated> {
    ran.events
        .iter()
        .filter_map(|event| match event {
            Event::ContextGuard(guard) => Some(&**guard),
            _ => None,
        })
        .collect()
}

fn with_usage(line: Line, usage: Option<TokenUsage>) -> Line {
    match line {
        Line::Reply(reply) => Line::Reply(ModelReply { usage, ..reply }),
        other => other,
    }
}

/// A world whose one target has exactly this limit for its first request.
fn limited(world: World, limit: u64) -> World {
    world.settings(|settings| {
        let only = &mut settings.targets[0];
        only.context_window = limit + 256 + only.max_output_tokens;
    })
}

#[tokio::test(start_paused = true)]
async fn a_013_a_014_d41_every_attempt_has_its_counters_on_the_record() {
    let ran = World::new(vec![report("ok")]).run().await;
    let event =
        serde_json::to_value(ran.events.iter().find(|e| matches!(e, Event::LlmRequestPrepared(_)))).unwrap();
    assert_eq!(event["kind"], "llm_request_prepared");
    for key in ["ctxTokens", "newTokens", "schemaCtxTokens", "expectedTokens", "contextWindow"] {
        assert!(event["data"][key].is_u64(), "{key}");
    }
    assert_eq!(event["data"]["target"], "fake/m");
    let guard =
        serde_json::to_value(ran.events.iter().find(|e| matches!(e, Event::ContextGuard(_)))).unwrap();
    assert_eq!(guard["kind"], "context_guard");
    for key in ["projected", "current", "pending", "new", "schema", "limit"] {
        assert!(guard["data"][key].is_u64(), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_015_the_context_is_what_the_last_accepted_reply_counted() {
    let first = with_usage(call("echo", json!({})), Some(TokenUsage::new(100, 20, 30, 10)));
    let ran = World::new(vec![first, report("ok")]).run().await;
    let contexts: Vec<u64> = prepared(&ran).iter().map(|p| p.ctx_tokens).collect();
    assert_eq!(contexts, [0, 160]);
}

#[tokio::test(start_paused = true)]
async fn a_015_without_usage_the_estimates_are_committed() {
    let first = with_usage(call("echo", json!({})), None);
    let ran = World::new(vec![first, report("ok")]).run().await;
    let [first, second] = prepared(&ran)[..] else { panic!() };
    assert!(second.ctx_tokens > first.new_tokens);
    assert!(second.ctx_tokens < first.new_tokens + 50, "{} {}", second.ctx_tokens, first.new_tokens);
}

#[tokio::test(start_paused = true)]
async fn a_016_results_are_new_once() {
    let one = World::new(vec![call("big", json!({ "bytes": 400 })), report("ok")]).run().await;
    assert_eq!(prepared(&one)[1].new_tokens, 104);
    let two = calls(&[("big", json!({ "bytes": 400 })), ("big", json!({ "bytes": 800 }))]);
    let two = World::new(vec![two, report("ok")]).run().await;
    assert_eq!(prepared(&two)[1].new_tokens, 104 + 204);
}

#[tokio::test(start_paused = true)]
async fn a_018_the_limit_is_the_window_without_buffer_and_output() {
    let ran = World::new(vec![report("ok")])
        .settings(|settings| {
            settings.targets[0].context_window = 4000;
            settings.targets[0].max_output_tokens = 1000;
        })
        .run()
        .await;
    assert_eq!(guards(&ran)[0].limit, 2744);
    let none = World::new(vec![report("ok")])
        .settings(|settings| {
            settings.targets[0].context_window = 1000;
            settings.targets[0].max_output_tokens = 1000;
        })
        .run()
        .await;
    assert_eq!((none.detail(), none.requests.len()), ("config_invalid", 0));
}

#[tokio::test(start_paused = true)]
async fn a_019_a_020_only_more_than_the_limit_forces_the_final_turn() {
    let projected = guards(&World::new(vec![report("ok")]).run().await)[0].projected;
    for (limit, forced) in [(projected + 1, false), (projected, false), (projected - 1, true)] {
        let ran = limited(World::new(vec![report("ok")]), limit).run().await;
        assert_eq!(ran.offered(1) == ["agent__final_report"], forced, "limit {limit}, projected {projected}");
        let reason = serde_json::to_value(ran.outcome.forced_final).unwrap();
        assert_eq!(reason, if forced { Value::from("context") } else { Value::Null });
        assert_eq!(ran.content(), "ok");
    }
}

#[tokio::test(start_paused = true)]
async fn a_021_what_does_not_fit_even_so_is_sent_once_as_best_effort() {
    let huge = World::new(vec![Line::Fail(ModelErrorClass::ContextLength, Some(400))])
        .with(|world| world.system = "x".repeat(40_000));
    let ran = limited(huge, 1000).run().await;
    assert_eq!(ran.requests.len(), 1);
    assert_eq!(ran.detail(), "llm_unavailable");
    let told = ran.events.iter().filter(|e| matches!(e, Event::ContextOverAfterShrink { .. })).count();
    assert_eq!(told, 1);
}

#[tokio::test(start_paused = true)]
async fn a_022_the_schemas_are_counted_anew_for_the_reduced_tools() {
    let mut world = World::new(vec![report("ok")]);
    for number in 0..50 {
        let schema = json!({ "type": "object", "description": "y".repeat(4000) });
        world = world.tool(TestTool::with_schema(&format!("wide{number}"), Does::Echo, schema));
    }
    let ran = limited(world, 8000).run().await;
    let [first, second] = guards(&ran)[..] else { panic!("{:?}", guards(&ran)) };
    assert!(first.projected > first.limit && second.projected <= second.limit);
    assert!(second.schema < first.schema);
    assert_eq!(serde_json::to_value(ran.outcome.forced_final).unwrap(), "context");
}

#[tokio::test(start_paused = true)]
async fn a_023_a_088_an_output_that_does_not_fit_is_dropped_but_kept() {
    let projected = guards(&World::new(vec![report("ok")]).run().await)[0].projected;
    let script = vec![call("big", json!({ "bytes": 800 })), report("ok")];
    // After the first reply the provider counts 15 tokens; the rest of the room is smaller than result and handle.
    let script =
        script.into_iter().map(|line| with_usage(line, Some(TokenUsage::new(projected - 60, 0, 0, 0))));
    let schema = guards(&World::new(vec![report("ok")]).run().await)[0].schema;
    let ran = limited(World::new(script.collect()), projected + schema).run().await;
    assert_eq!(ran.results(2), ["(tool failed: context window budget exceeded)"]);
    let kept = ran.files.iter().find(|(path, _)| path.starts_with("tool-output/")).unwrap();
    assert_eq!(kept.1.len(), 800);
    let closed = ran.events.iter().find_map(|event| match event {
        Event::SessionClosed(closed) => Some(&closed.exclusions),
        _ => None,
    });
    assert_eq!(closed.unwrap()[0].why, "context_budget_exceeded", "X-030");
}

#[tokio::test(start_paused = true)]
async fn a_024_after_a_dropped_output_no_new_tool_starts() {
    let projected = guards(&World::new(vec![report("ok")]).run().await)[0].projected;
    let schema = guards(&World::new(vec![report("ok")]).run().await)[0].schema;
    let both = calls(&[("big", json!({ "bytes": 800 })), ("count", json!({}))]);
    let both = with_usage(both, Some(TokenUsage::new(projected - 60, 0, 0, 0)));
    let ran = limited(World::new(vec![both, report("ok")]), projected + schema).run().await;
    assert_eq!(ran.runs("count"), 0);
    assert!(ran.results(2)[1].contains("budget exceeded"), "{}", ran.results(2)[1]);
    assert_eq!(ran.tool_lines().len(), 1, "what did not start has no ledger line");
}

#[tokio::test(start_paused = true)]
async fn a_023_an_output_whose_handle_fits_is_handed_out_by_handle() {
    let projected = guards(&World::new(vec![report("ok")]).run().await)[0].projected;
    let schema = guards(&World::new(vec![report("ok")]).run().await)[0].schema;
    let big =
        with_usage(call("big", json!({ "bytes": 8000 })), Some(TokenUsage::new(projected - 60, 0, 0, 0)));
    let ran = limited(World::new(vec![big, report("ok")]), projected + schema + 600).run().await;
    assert!(ran.results(2)[0].contains("\"reason\":\"token_budget\""), "{}", ran.results(2)[0]);
}

#[tokio::test(start_paused = true)]
async fn a_025_a_target_that_cannot_fit_is_skipped_while_another_can() {
    let first = with_usage(call("echo", json!({})), Some(TokenUsage::new(3_000, 5, 0, 0)));
    let world = World::new(vec![first, report("ok")])
        .with(|world| world.opening = vec![Message::User { content: "x".repeat(9_000) }])
        .settings(|settings| {
            let mut small = target("a");
            small.context_window = 2_000;
            small.max_output_tokens = 100;
            settings.targets = vec![small, target("b")];
        });
    let ran = world.run().await;
    assert_eq!(ran.models(), ["b", "b"]);
    assert_eq!(ran.outcome.forced_final, None);
    assert!(ran.events.contains(&Event::TargetSkipped { target: "fake/a".into(), reason: "context".into() }));
}

#[tokio::test(start_paused = true)]
async fn a_021_with_several_targets_the_widest_is_asked() {
    let world = World::new(vec![report("ok")])
        .with(|world| world.system = "x".repeat(400_000))
        .targets(&["a", "b"])
        .settings(|settings| settings.targets[0].context_window = 20_000);
    let ran = world.settings(|settings| settings.targets[1].context_window = 40_000).run().await;
    assert_eq!(ran.models(), ["b"]);
}
