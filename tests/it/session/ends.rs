//! Budgets, stops and a record that cannot be written (X-018, X-019, C-08, C-10, C-26, D38).

use std::time::Duration;

use agentd::domain::event::Event;
use agentd::domain::money::Money;
use agentd::domain::stop::{Stop, StopDetail};
use serde_json::json;

use super::world::{Line, World, call, failed, limited, reply, report};

fn after(world: &World, wait: Duration, abort: bool) {
    let stop = std::sync::Arc::clone(&world.stop);
    tokio::spawn(async move {
        tokio::time::sleep(wait).await;
        if abort {
            stop.abort(Stop::new(StopDetail::UserAbort, "A person ended the run."));
        } else {
            stop.ask(Stop::new(StopDetail::UserStop, "A person stopped the run."));
        }
    });
}

#[tokio::test(start_paused = true)]
async fn x_018_a_hanging_request_is_cancelled_when_the_wall_time_is_used_up() {
    let ran = World::new(vec![Line::Hang])
        .with(|world| world.budgets.max_wall_time = Duration::from_secs(2))
        .run()
        .await;
    assert_eq!(ran.detail(), "max_wall_time");
    assert!(ran.took < Duration::from_millis(2500), "{:?}", ran.took);
    assert_eq!(ran.requests.len(), 1, "no extra request");
    // Its provider may bill it all the same.
    let totals = agentd::domain::ledger_entry::LedgerTotals::of(
        &ran.llm_lines().into_iter().cloned().collect::<Vec<_>>(),
    );
    assert!(totals.cost_unknown && !totals.answered, "{totals:?}");
}

#[tokio::test(start_paused = true)]
async fn x_018_a_running_tool_is_cancelled_when_the_wall_time_is_used_up() {
    let ran = World::new(vec![call("sleep", json!({ "ms": 60_000 })), report("x")])
        .with(|world| world.budgets.max_wall_time = Duration::from_secs(2))
        .run()
        .await;
    assert_eq!(ran.detail(), "max_wall_time");
    assert!(failed(ran.tool_lines()[0]), "A-080: it has its line");
    assert_eq!(ran.tool_lines()[0].error.as_deref(), Some("cancelled"));
}

#[tokio::test(start_paused = true)]
async fn x_018_a_reply_that_passes_the_cost_cap_does_not_run_its_tools() {
    let mut dear = reply("", &[("count", json!({}))]);
    dear.cost = Some(Money::from_micros(11_000_000));
    let ran = World::new(vec![Line::Reply(dear), report("x")]).run().await;
    assert_eq!((ran.detail(), ran.runs("count"), ran.requests.len()), ("max_cost", 0, 1));
}

#[tokio::test(start_paused = true)]
async fn x_019_a_soft_limit_is_an_event_and_the_session_goes_on() {
    let mut dear = reply("", &[("count", json!({}))]);
    dear.cost = Some(Money::from_micros(8_000_000));
    let ran = World::new(vec![Line::Reply(dear), report("ok")]).run().await;
    let soft = ran.events.iter().filter(|event| matches!(event, Event::BudgetSoftLimit { .. })).count();
    assert_eq!((ran.detail(), soft), ("completed", 1));
}

#[tokio::test(start_paused = true)]
async fn c_26_d38_a_stop_waits_for_the_reply_runs_none_of_its_tools_and_asks_for_one_last_report() {
    let slow = Line::Slow(Duration::from_secs(5), reply("", &[("count", json!({}))]));
    let world = World::new(vec![slow, report("so far")]);
    after(&world, Duration::from_secs(1), false);
    let ran = world.run().await;
    assert_eq!((ran.detail(), ran.runs("count")), ("user_stop", 0));
    assert_eq!(ran.content(), "so far", "the report is kept");
    assert_eq!(ran.offered(2), ["agent__final_report"]);
    assert_eq!(serde_json::to_value(ran.outcome.forced_final).unwrap(), "user_stop");
    assert!(ran.results(2)[0].starts_with("(tool failed: the run is stopping"));
}

#[tokio::test(start_paused = true)]
async fn d38_a_reply_that_takes_longer_than_the_grace_is_given_up_and_the_last_report_asked_for() {
    let world = World::new(vec![Line::Hang, report("so far")]);
    after(&world, Duration::from_secs(1), false);
    let ran = world.run().await;
    assert_eq!((ran.detail(), ran.content()), ("user_stop", "so far"));
    assert!(ran.took >= Duration::from_secs(11) && ran.took < Duration::from_secs(12), "{:?}", ran.took);
    assert_eq!(ran.llm_lines().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn d38_a_last_report_that_does_not_come_is_given_up_within_a_minute_over_all_its_attempts() {
    let world = World::new(vec![Line::Hang, Line::Hang, Line::Hang, Line::Hang]);
    after(&world, Duration::from_secs(1), false);
    let ran = world.run().await;
    assert_eq!((ran.detail(), ran.requests.len()), ("user_stop", 2));
    assert!(ran.took >= Duration::from_secs(71) && ran.took < Duration::from_secs(72), "{:?}", ran.took);
    let slow_refusal = || Line::Slow(Duration::from_secs(25), reply("", &[("count", json!({}))]));
    let world = World::new(vec![Line::Hang, slow_refusal(), slow_refusal(), slow_refusal()]);
    after(&world, Duration::from_secs(1), false);
    let ran = world.run().await;
    assert_eq!((ran.detail(), ran.requests.len()), ("user_stop", 4));
    assert!(ran.took < Duration::from_secs(72), "{:?}", ran.took);
}

#[tokio::test(start_paused = true)]
async fn c_26_one_last_turn_is_granted_and_no_second_one() {
    let slow = Line::Slow(Duration::from_secs(5), reply("", &[("count", json!({}))]));
    let world = World::new(vec![slow, call("count", json!({}))]);
    after(&world, Duration::from_secs(1), false);
    let ran = world.run().await;
    assert_eq!(
        (ran.detail(), ran.requests.len()),
        ("user_stop", 4),
        "one reply, one final turn of three attempts"
    );
}

#[tokio::test(start_paused = true)]
async fn c_26_an_abort_cancels_at_once_and_asks_for_nothing() {
    let world = World::new(vec![Line::Hang, report("x")]);
    after(&world, Duration::from_secs(1), true);
    let ran = world.run().await;
    assert_eq!((ran.detail(), ran.requests.len()), ("user_abort", 1));
    assert!(ran.took < Duration::from_millis(1100));
    let world = World::new(vec![call("sleep", json!({ "ms": 60_000 })), report("x")]);
    after(&world, Duration::from_secs(1), true);
    let ran = world.run().await;
    assert_eq!((ran.detail(), ran.requests.len(), ran.tool_lines().len()), ("user_abort", 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_053_a_stop_ends_a_wait_at_once() {
    let world = World::new(vec![limited(Some(600)), limited(Some(600))]);
    after(&world, Duration::from_secs(1), false);
    let ran = world.run().await;
    assert_eq!(ran.detail(), "user_stop");
    assert!(ran.took < Duration::from_secs(2), "{:?}", ran.took);
    assert_eq!(ran.requests.len(), 2, "one last report was asked for");
}

#[tokio::test(start_paused = true)]
async fn c_26_a_stop_on_the_last_turn_ends_without_another() {
    let world = World::new(vec![Line::Hang]).settings(|settings| settings.max_turns = 1);
    after(&world, Duration::from_secs(1), false);
    let ran = world.run().await;
    assert_eq!((ran.detail(), ran.requests.len()), ("user_stop", 1));
    assert_eq!(ran.metadata()["reason"], "user_stop");
}

#[tokio::test(start_paused = true)]
async fn c_10_a_record_that_cannot_be_written_ends_the_session_with_an_outcome() {
    for at in 0..12 {
        let world = World::new(vec![call("count", json!({})), report("ok")]);
        *world.journal.fails_at.lock().unwrap() = Some(at);
        let ran = world.run().await;
        assert_eq!(ran.detail(), "output_write_failed", "after {at} events");
    }
}

#[tokio::test(start_paused = true)]
async fn x_018_no_tool_runs_whose_start_is_not_on_the_record() {
    let all = World::new(vec![call("count", json!({})), report("ok")]).run().await;
    let start = all.events.iter().position(|event| matches!(event, Event::ToolStarted { .. })).unwrap();
    let world = World::new(vec![call("count", json!({})), report("ok")]);
    *world.journal.fails_at.lock().unwrap() = Some(start);
    let ran = world.run().await;
    assert_eq!(ran.runs("count"), 0);
}
