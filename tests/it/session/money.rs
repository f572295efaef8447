//! What sessions that run at the same time may spend, whatever their requests cost.

use std::sync::Arc;

use agentd::domain::event::Event;
use agentd::domain::message::TokenUsage;
use agentd::domain::money::Money;
use agentd::domain::record::AccountingKind;
use agentd::engine::day_cap::DayCap;
use agentd::engine::model::ModelReply;
use proptest::prelude::*;
use serde_json::json;

use super::ran::Ran;
use super::world::{Line, World, reply};

/// One request: input and output tokens, and whether the provider fails instead.
type Asked = (u64, u64, bool);

fn script(requests: &[Asked]) -> Vec<Line> {
    let said = |(number, (input, output, fails)): (usize, &Asked)| {
        if *fails {
            return super::world::server_error();
        }
        let usage = Some(TokenUsage::new(*input, *output, 0, 0));
        Line::Reply(ModelReply { usage, ..reply("", &[("echo", json!({ "n": number }))]) })
    };
    let mut script: Vec<Line> = requests.iter().enumerate().map(said).collect();
    let usage = Some(TokenUsage::new(10, 10, 0, 0));
    script.push(Line::Reply(ModelReply {
        usage,
        ..reply("", &[("agent__final_report", json!({ "content": "ok" }))])
    }));
    script
}

/// What the ledger of a session says that it cost, and how many lines have no cost.
fn ledger(ran: &Ran) -> Money {
    ran.events
        .iter()
        .filter_map(|event| match event {
            Event::LlmAttempted { entry } => match &entry.what {
                AccountingKind::Llm { cost_usd, .. } => *cost_usd,
                AccountingKind::Tool { .. } => None,
            },
            _ => None,
        })
        .sum()
}

async fn spend(cap: u64, runs: Vec<Vec<Asked>>) {
    let folder = tempfile::tempdir().unwrap();
    let now = chrono::DateTime::from_timestamp_millis(1_700_000_000_000).unwrap();
    let limit = Money::from_micros(cap);
    let running: Vec<_> = runs
        .iter()
        .map(|requests| {
            // A handle of its own, as another process has; only the directory is common.
            let day = Arc::new(DayCap::new(folder.path().to_owned(), limit));
            let world = World::new(script(requests))
                .with(|world| {
                    world.day_cap = Some(day);
                    world.backoff_first = std::time::Duration::from_millis(1);
                })
                .settings(|settings| settings.max_turns = 12);
            tokio::spawn(world.run())
        })
        .collect();
    let watched = DayCap::new(folder.path().to_owned(), limit);
    let mut all = Money::ZERO;
    for run in running {
        let ran = run.await.unwrap();
        assert!(watched.used(now).unwrap() <= limit, "spent and set aside, at any moment");
        assert_eq!(ledger(&ran), ran.outcome.cost, "the total is the ledger's");
        assert!(["completed", "max_cost", "llm_unavailable"].contains(&ran.detail()), "{}", ran.detail());
        all += ran.outcome.cost;
    }
    assert!(all <= limit, "{all} of {limit}");
    assert_eq!(watched.used(now).unwrap(), all, "everything is settled with what it cost");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn x_005_d87_sessions_at_the_same_time_never_spend_more_than_a_day_s_cap_and_totals_are_the_ledgers(
        cap in 20_000_u64..400_000,
        runs in prop::collection::vec(
            prop::collection::vec((0_u64..2_000, 0_u64..16_000, prop::bool::weighted(0.15)), 0..5),
            2..6,
        ),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
        runtime.block_on(spend(cap, runs));
    }
}
