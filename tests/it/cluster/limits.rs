//! Limits of GitHub that one node meets hold back all that ask with the same credential.

use std::path::Path;
use std::time::{Duration, Instant};

use agentd::config::Credentials;
use agentd::github::{Client, ErrorKind, Settings};
use agentd::repository::shared_limits::{self, SharedLimits};
use agentd::sim::{Scenario, SimOptions, Simulator};
use agentd::store::nats::NatsStore;
use agentd::store::run_dir::StateDir;
use secrecy::SecretString;

use super::server::{Server, access, is_there, make_streams};
use crate::outside::daemons::until;

const WORLD: &str = r#"
tokens = [{ token = "one", login = "helper" }, { token = "two", login = "other" }]
[[repositories]]
name = "octo/greeter"
collaborators = { helper = "write" }
[[repositories.commits]]
files = { "a.txt" = "one" }
[[faults]]
path = "/user"
kind = "secondary_limit"
retry_after = 6
"#;

/// A process of a cluster: its own client, its own connection to the store.
fn node(sim: &Simulator, server: &Server, token: &str) -> (Client, SharedLimits) {
    let settings = Settings::new(sim.api_url(), Credentials::Token(SecretString::from(token.to_owned())));
    let client = Client::new(settings).unwrap();
    let store = tokio::task::block_in_place(|| NatsStore::connect(&access(&server.url())).unwrap());
    let shared = shared_limits::share(&client, &StateDir::on_nats("/nowhere".into(), store)).unwrap();
    (client, shared)
}

#[tokio::test(flavor = "multi_thread")]
async fn h_09_a_limit_that_one_node_meets_holds_the_others_back_until_it_ends() {
    if !is_there("h_09") {
        return;
    }
    let scenario = Scenario::from_text(WORLD, Path::new("scenario.toml")).unwrap();
    let sim = Simulator::start(scenario, SimOptions::default()).await.unwrap();
    let server = Server::start();
    make_streams(&server.url(), 1);
    let ((a, _a), (b, _b)) = (node(&sim, &server, "one"), node(&sim, &server, "one"));
    let (c, _c) = node(&sim, &server, "two");
    let met = a.patient(Duration::ZERO).viewer().await.unwrap_err();
    assert!(matches!(met.kind, ErrorKind::RateLimited { .. }), "{met}");
    let begin = Instant::now();
    until("the other heard of it", || b.limits().held.is_some()).await;
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    let asked = sim.requests().len();
    let held = b.patient(Duration::ZERO).viewer().await.unwrap_err();
    assert!(matches!(held.kind, ErrorKind::RateLimited { .. }), "{held}");
    assert_eq!(sim.requests().len(), asked, "nothing was sent");
    // Another credential is another's budget.
    assert_eq!(c.viewer().await.unwrap().actor.login, "other");
    assert!(c.limits().held.is_none());
    // It waits for the end as for that of its own limit, and one that comes later hears of it as well.
    let (late, _late) = node(&sim, &server, "one");
    until("who comes later heard of it", || late.limits().held.is_some()).await;
    assert_eq!(b.viewer().await.unwrap().actor.login, "helper");
    assert!(begin.elapsed() > Duration::from_secs(2), "{:?}", begin.elapsed());
    assert_eq!(late.viewer().await.unwrap().actor.login, "helper");
    // They end on threads that may be waited for.
    tokio::task::block_in_place(|| drop((_a, _b, _c, _late)));
    sim.shutdown().await;
}
