//! What sessions that run at the same time may spend, whatever their requests cost.

use std::path::Path;
use std::sync::Arc;

use agentd::domain::event::Event;
use agentd::domain::ledger_entry::AccountingKind;
use agentd::domain::message::TokenUsage;
use agentd::domain::model_target::Price;
use agentd::domain::money::Money;
use agentd::domain::run::ForcedFinal;
use agentd::engine::model::{Model, ModelError, ModelReply, ModelRequest};
use agentd::engine::shared_cap::SharedCap;
use futures::future::BoxFuture;
use proptest::prelude::*;
use serde_json::json;

use super::ran::Ran;
use super::world::{Line, World, day_cap, issue_cap, reply};

/// One request: input and output tokens, and whether the provider fails instead.
type Asked = (u64, u64, bool);

fn script(requests: &[Asked]) -> Vec<Line> {
    let said = |(number, (input, output, fails)): (usize, &Asked)| {
        // No provider gives longer replies than it is asked for.
        let usage = Some(TokenUsage::new(*input, (*output).min(1024), 0, 0));
        if *fails {
            return if number % 2 == 0 { super::world::server_error() } else { Line::BreaksOff(usage, 0) };
        }
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

async fn spend(cap: u64, runs: Vec<Vec<Asked>>, share: fn(&Path, Money) -> SharedCap) {
    let folder = tempfile::tempdir().unwrap();
    let now = chrono::DateTime::from_timestamp_millis(1_700_000_000_000).unwrap();
    let limit = Money::from_micros(cap);
    let running: Vec<_> = runs
        .iter()
        .map(|requests| {
            // A handle of its own, as another process has; only the directory is common.
            let shared = share(folder.path(), limit);
            let world = World::new(script(requests))
                .with(|world| {
                    world.caps = [shared].into_iter().collect();
                    world.backoff_first = std::time::Duration::from_millis(1);
                })
                .settings(|settings| settings.max_turns = 12);
            tokio::spawn(world.run())
        })
        .collect();
    let watched = share(folder.path(), limit);
    let mut all = Money::ZERO;
    for run in running {
        let ran = run.await.unwrap();
        assert!(watched.used(now).unwrap() <= limit, "spent and set aside, at any moment");
        assert_eq!(ledger(&ran), ran.outcome.cost, "the total is the ledger's");
        let told = &ran.outcome.failure;
        assert!(["completed", "max_cost", "llm_unavailable"].contains(&ran.detail()), "{told:?}");
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
        runtime.block_on(spend(cap, runs, day_cap));
    }

    #[test]
    fn runs_of_one_issue_at_the_same_time_never_spend_more_than_its_cap(
        cap in 20_000_u64..400_000,
        runs in prop::collection::vec(
            prop::collection::vec((0_u64..2_000, 0_u64..16_000, prop::bool::weighted(0.15)), 0..5),
            2..6,
        ),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
        runtime.block_on(spend(cap, runs, issue_cap));
    }
}

/// One reply: parts of what the request allows of input, its cached half, and output, in thousandths; and what it does.
type Reply = (u64, u64, u64, u8);

/// A model that counts as tokens what it was sent and what it may say, at most.
struct Honest {
    replies: std::sync::Mutex<std::collections::VecDeque<Reply>>,
    asked: std::sync::Mutex<Vec<u64>>,
}

impl Model for Honest {
    fn complete<'a>(&'a self, request: &'a ModelRequest) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        let next = self.replies.lock().unwrap().pop_front().unwrap_or((1000, 1000, 1000, 9));
        let (input, cached, output, does) = next;
        self.asked.lock().unwrap().push(request.target.max_output_tokens);
        let sent = serde_json::to_string(&request.messages).unwrap().len()
            + serde_json::to_string(&request.tools).unwrap().len();
        let sent = (sent as u64).min(request.target.context_window) * input / 1000;
        let cache = sent * cached / 1000;
        let said = request.target.max_output_tokens * output / 1000;
        let usage = Some(TokenUsage::new(sent - cache, said, cache / 2, cache - cache / 2));
        let last = !request.tools.iter().any(|tool| tool.name == "echo");
        let reply = match does {
            0 if !last => reply("", &[]),
            _ if last || does == 9 => reply("", &[("agent__final_report", json!({ "content": "ok" }))]),
            _ => reply("", &[("echo", json!({ "n": said, "text": "x".repeat(usize::from(does) * 100) }))]),
        };
        Box::pin(async move { Ok(ModelReply { usage, ..reply }) })
    }
}

fn price() -> impl Strategy<Value = Price> {
    (0.0_f64..30.0, 0.0_f64..120.0, 0.0_f64..5.0, 0.0_f64..40.0)
        .prop_map(|(input, output, cache_read, cache_write)| Price { input, output, cache_read, cache_write })
}

async fn within(cap: u64, price: Price, replies: Vec<Reply>) {
    let cap = Money::from_micros(cap);
    let model = Arc::new(Honest {
        replies: std::sync::Mutex::new(replies.into()),
        asked: std::sync::Mutex::default(),
    });
    let asked = Arc::clone(&model);
    let world =
        World::new(vec![]).settings(|settings| settings.targets[0].price = Some(price)).with(|world| {
            world.budgets.max_cost = cap;
            world.provider = Some(model);
        });
    let ran = world.run().await;
    let spent = ledger(&ran);
    assert!(spent <= cap, "{spent} of {cap}: {}", ran.detail());
    let asked = asked.asked.lock().unwrap().clone();
    assert!(asked.iter().all(|tokens| *tokens >= 1024), "{asked:?}");
    if ran.detail() == "max_cost" {
        // Either the last report was had, or not even that was covered.
        let told = &ran.outcome.failure.as_ref().unwrap().stop.message;
        let figures: Vec<f64> = told
            .split_whitespace()
            .filter_map(|word| word.trim_matches(['$', ',', '.']).parse().ok())
            .collect();
        let (left, last_report, wanted) = match figures[..] {
            [_, left, wanted] => (left, 0.0, wanted),
            [_, left, last_report, wanted] => (left, last_report, wanted),
            _ => panic!("{told}"),
        };
        let forced = ran.outcome.forced_final == Some(ForcedFinal::MaxCost);
        let had = forced && asked.len() as u32 > 0 && ran.outcome.turns > 0;
        assert!(forced, "{told}");
        assert!(wanted + last_report > left || had, "a request that is covered is sent: {told}");
    }
}

proptest! {
    #[test]
    fn d98_no_ledger_passes_its_cap_and_no_run_ends_while_a_request_is_covered(
        cap in prop_oneof![Just(0_u64), 0_u64..100_000, 0_u64..5_000_000],
        price in price(),
        replies in prop::collection::vec((0_u64..=1000, 0_u64..=1000, 0_u64..=1000, 0_u8..10), 0..12),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(within(cap, price, replies));
    }
}
