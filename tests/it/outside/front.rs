//! The daemon's HTTP front from outside: what it shows, who may ask, and webhooks.

use std::io::BufRead as _;
use std::process::{Child, Stdio};
use std::time::Duration;

use hmac::{Hmac, Mac as _};
use serde_json::{Value, json};

use super::daemons::{slow_model, until};
use super::world::World;

pub(super) const ADA_TOKEN: &str = "ada-token-0123456789abcdef";
pub(super) const BOB_TOKEN: &str = "bob-token-0123456789abcdef";

/// A daemon with a front on a free port.
pub struct Front {
    child: Child,
    pub base: String,
    pub http: reqwest::Client,
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Front {
    pub fn start(world: &World, poll: &str, more: &str) -> Self {
        let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
        let daemon = format!("[daemon]\npoll_interval = \"{poll}\"\nlisten = \"127.0.0.1:0\"\n{more}\n");
        world.write("front.toml", &format!("{overlay}\n{daemon}"));
        let config = world.dir.path().join("front.toml").display().to_string();
        let mut command = world.command(&["--config", &config, "daemon"]);
        command.env("HOOK_SECRET", "a secret of the hooks");
        command.env("ADA_TOKEN", ADA_TOKEN).env("BOB_TOKEN", BOB_TOKEN);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let told =
            lines.find_map(|line| Some(line.split_once("listening on ")?.1.trim_end_matches('/').to_owned()));
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, base: told.unwrap(), http: reqwest::Client::new() }
    }

    pub async fn text(&self, path: &str) -> (u16, String) {
        let answer = self.http.get(format!("{}{path}", self.base)).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    pub async fn json(&self, path: &str) -> Value {
        let (status, text) = self.text(path).await;
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_daemon_of_a_state_directory_is_told_of_the_first_one_and_not_of_its_port() {
    let world = World::new(1).await;
    let front = Front::start(&world, "1s", "");
    let port = front.base.rsplit(':').next().unwrap();
    let config = std::fs::read_to_string(world.dir.path().join("front.toml")).unwrap();
    world.write("second.toml", &config.replace("127.0.0.1:0", &format!("127.0.0.1:{port}")));
    let second = world.agentd(&["--config", "../second.toml", "daemon"]).await;
    let told = crate::outside::world::text(&second.stderr);
    assert_eq!(second.status.code(), Some(4), "{told}");
    assert!(told.contains("another agentd daemon uses this state directory"), "{told}");
    assert!(!told.contains("cannot listen"), "{told}");
    drop(front);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_shows_a_run_from_its_start_to_its_end() {
    let world = World::new(1).await;
    slow_model(&world, 1, 1500);
    let front = Front::start(&world, "1s", "");
    assert_eq!(front.text("/").await.0, 200);
    let stream = front.http.get(format!("{}/api/v1/events", front.base)).send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let seen = tokio::spawn(async move {
        let (mut stream, mut all) = (stream, String::new());
        while let Ok(Ok(Some(piece))) = tokio::time::timeout(Duration::from_secs(30), stream.chunk()).await {
            all.push_str(&String::from_utf8_lossy(&piece));
            if all.contains("OBJECTIVE_ACHIEVED") {
                break;
            }
        }
        all
    });
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("work", || world.sim.model_requests().len() >= 2).await;
    let status = front.json("/api/v1/status").await;
    let run = &status["running"][0];
    assert_eq!(
        (run["issue"].as_u64(), run["progress"]["step"].as_str()),
        (Some(7), Some("initial.issue")),
        "{status:#}"
    );
    assert!(run["progress"]["cost_usd"].as_f64().unwrap() > 0.0, "{run:#}");
    assert!(run["progress"]["instance"].as_str().unwrap().starts_with("agent-issue-7-"), "{run:#}");
    assert_eq!(front.json("/api/v1/issues/demo/shop/7").await["state"], "running");
    until("done", || world.labels() == ["agentd:done"]).await;
    let seen = seen.await.unwrap();
    assert!(seen.contains("event: log") && seen.contains("event: status"), "{seen}");
    let mut runs = front.json("/api/v1/runs").await;
    while runs["runs"][0]["state"] != "ended" {
        tokio::time::sleep(Duration::from_millis(20)).await;
        runs = front.json("/api/v1/runs").await;
    }
    assert_eq!(runs["runs"][0]["issue"], 7, "{runs:#}");
    let id = runs["runs"][0]["run_id"].as_str().unwrap().to_owned();
    assert_eq!(front.json(&format!("/api/v1/runs/{id}")).await["schema_version"], "agentd.run_output.v1");
    assert!(front.text("/api/v1/runs/latest/report").await.1.starts_with('#'));
    assert!(front.text(&format!("/api/v1/runs/{id}/events")).await.1.contains("run_ended"));
    assert!(front.json("/api/v1/cost").await["total_usd"].as_f64().unwrap() > 0.0);
    let metrics = front.text("/metrics").await.1;
    assert!(
        metrics.contains("agentd_runs_total{repository=\"demo/shop\",stop_reason=\"OBJECTIVE_ACHIEVED\"} 1"),
        "{metrics}"
    );
    let mut of = "";
    for line in metrics.lines() {
        match line.strip_prefix("# TYPE ").and_then(|rest| rest.split(' ').next()) {
            Some(name) => of = name,
            None => assert!(
                line.starts_with('#') || line.split(['{', ' ']).next() == Some(of),
                "{line} after {of}"
            ),
        }
    }
    assert_eq!(front.json("/health").await["status"], "ok");
    assert!(front.json("/api/v1/limits").await["counted"].as_u64().unwrap() > 0);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s68_wrong_paths_methods_and_foreign_names_have_their_own_answers() {
    let world = World::new(0).await;
    let front = Front::start(&world, "30s", "");
    let (status, text) = front.text("/nothing").await;
    assert_eq!(
        (status, serde_json::from_str::<Value>(&text).unwrap()["error"]["code"].as_str()),
        (404, Some("not_found"))
    );
    assert_eq!(front.text("/api/v1/refresh").await.0, 405);
    // Before the first poll nobody knows.
    while front.text("/api/v1/issues/demo/shop/99").await.0 == 503 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(front.text("/api/v1/issues/demo/shop/99").await.0, 404);
    assert_eq!(front.text("/api/v1/runs/0000").await.0, 404);
    let runs = world.dir.path().join("state/repos/demo/shop/runs");
    for last in ["1", "2"] {
        let run = runs.join(format!("01a22d96-0000-7000-8000-00000000000{last}"));
        agentd::sys::files::create_private_dir(&run).unwrap();
        std::fs::write(run.join("events.jsonl"), "garbage\n").unwrap();
    }
    let (status, told) = front.text("/api/v1/runs/01a22d96").await;
    assert_eq!((status, told.contains("2 runs begin with \\\"01a22d96\\\"")), (409, true), "{told}");
    // What is refused before anybody here hears of it comes in the same envelope.
    for path in ["/api/v1/issues/demo/shop/x", "/api/v1/issues/%ff/shop/1"] {
        let (status, text) = front.text(path).await;
        let error = &serde_json::from_str::<Value>(&text).unwrap()["error"];
        assert_eq!((status, error["code"].as_str()), (400, Some("bad_request")), "{path}: {text}");
        assert!(!error["message"].as_str().unwrap().is_empty(), "{text}");
    }
    assert!(!front.text("/api/v1/cost").await.1.contains("-0"));
    let refresh = |origin: Option<&'static str>| {
        let ask = front.http.post(format!("{}/api/v1/refresh", front.base));
        let ask = origin.into_iter().fold(ask, |ask, origin| ask.header("origin", origin));
        async { ask.send().await.unwrap().status().as_u16() }
    };
    assert_eq!((refresh(None).await, refresh(Some("http://evil.example")).await), (202, 403));
    let foreign = front.http.get(format!("{}/api/v1/status", front.base)).header("host", "evil.example");
    assert_eq!(foreign.send().await.unwrap().status().as_u16(), 421);
    let page = front.http.get(&front.base).send().await.unwrap();
    assert!(page.headers()["content-security-policy"].to_str().unwrap().contains("default-src 'none'"));
    // Without a secret there are no webhooks.
    let hook = front.http.post(format!("{}/webhooks/github", front.base)).send().await.unwrap();
    assert_eq!(hook.status().as_u16(), 404);
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_webhooks_are_a_look_at_their_repository_and_one_more_later() {
    let world = World::new(1).await;
    let front = Front::start(&world, "10m", "webhook_secret = \"${HOOK_SECRET}\"");
    let lists = || world.sim.requests().iter().filter(|asked| asked.target.contains("/issues?")).count();
    until("a first poll", || lists() == 1).await;
    let send = async |repository: &str, delivery: u32| {
        let body = json!({ "action": "edited", "repository": { "full_name": repository } }).to_string();
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(b"a secret of the hooks").unwrap();
        mac.update(body.as_bytes());
        let ask = front.http.post(format!("{}/webhooks/github", front.base));
        let ask = ask.header("x-github-event", "issues").header("x-github-delivery", delivery.to_string());
        let signature = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
        ask.header("x-hub-signature-256", signature).body(body).send().await.unwrap().status().as_u16()
    };
    // Of a repository that nobody watches.
    assert_eq!(send("demo/other", 0).await, 202);
    for delivery in 1..=20 {
        assert_eq!(send("Demo/Shop", delivery).await, 202);
    }
    until("a look", || lists() == 2).await;
    // They are heeded together, after a while: what a person asks for comes at once.
    let before = lists();
    for delivery in 21..=30 {
        assert_eq!(send("demo/shop", delivery).await, 202);
    }
    let asked = front.http.post(format!("{}/api/v1/refresh", front.base)).send().await.unwrap();
    assert_eq!(asked.status().as_u16(), 202);
    until("a look", || lists() > before).await;
    assert_eq!(lists(), before + 1, "one for the person, none yet for the deliveries");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_webhook_makes_the_daemon_look_at_once_and_only_once() {
    let world = World::new(1).await;
    let more = "webhook_secret = \"${HOOK_SECRET}\"\nhosts = [\"hooks.example\"]";
    let front = Front::start(&world, "10m", more);
    let lists = || world.sim.requests().iter().filter(|asked| asked.target.contains("/issues?")).count();
    until("a first poll", || lists() == 1).await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let body = r#"{"action":"labeled"}"#;
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(b"a secret of the hooks").unwrap();
    mac.update(body.as_bytes());
    let right = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
    let send_to = async |host: &str, signature: &str, delivery: &str| {
        let ask = front.http.post(format!("{}/webhooks/github", front.base));
        let ask =
            ask.header("host", host).header("x-github-event", "issues").header("x-github-delivery", delivery);
        let answer = ask.header("x-hub-signature-256", signature).body(body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    // Under the name that the operator gave, and under none that somebody else did.
    let send = async |signature: &str, delivery: &str| send_to("hooks.example", signature, delivery).await;
    assert_eq!(send_to("other.example", &right, "d0").await.0, 421);
    let wrong = format!("sha256={}", "0".repeat(64));
    assert_eq!((send(&wrong, "d1").await.0, send("", "d1").await.0), (401, 401));
    assert_eq!(send(&right, "d1").await.0, 202);
    assert_eq!(send(&right, "d1").await.1["duplicate"], true);
    until("done", || world.labels() == ["agentd:done"]).await;
    world.assert_one_of_each();
    assert_eq!(lists(), 2, "looked at once, not again for the same delivery");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_changed_in_the_configuration_counts_from_then_on_and_so_do_address_and_webhooks() {
    let world = World::new(1).await;
    let token = |token: &str| world.write(".agentd.env", &format!("FRONT_TOKEN={token}\n"));
    token("first-token-0123456789abcdefghij");
    let front = Front::start(&world, "1s", "token = \"${FRONT_TOKEN}\"");
    let ask = async |base: &str, token: &str| {
        let asked = front.http.get(format!("{base}/api/v1/status")).bearer_auth(token).send().await;
        asked.map(|answer| answer.status().as_u16()).unwrap_or_default()
    };
    let patience = std::time::Instant::now();
    while ask(&front.base, "first-token-0123456789abcdefghij").await != 200 {
        assert!(patience.elapsed() < Duration::from_secs(60), "the token does not count");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let path = world.dir.path().join("front.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    token("second-token-0123456789abcdefghij");
    let text = text.replace("[daemon]\n", "[daemon]\nwebhook_secret = \"${HOOK_SECRET}\"\n");
    std::fs::write(&path, &text).unwrap();
    while ask(&front.base, "second-token-0123456789abcdefghij").await != 200 {
        assert!(patience.elapsed() < Duration::from_secs(60), "the new token does not count");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(
        ask(&front.base, "first-token-0123456789abcdefghij").await,
        401,
        "the old one does not any more"
    );
    let unsigned =
        front.http.post(format!("{}/webhooks/github", front.base)).body("{}").send().await.unwrap();
    assert_eq!(unsigned.status().as_u16(), 401, "it knows a secret now");
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    std::fs::write(&path, text.replace("127.0.0.1:0", &other.to_string())).unwrap();
    while ask(&format!("http://{other}"), "second-token-0123456789abcdefghij").await != 200 {
        assert!(patience.elapsed() < Duration::from_secs(120), "nobody listens at {other}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    while ask(&front.base, "second-token-0123456789abcdefghij").await != 0 {
        assert!(patience.elapsed() < Duration::from_secs(120), "somebody listens where it was");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(front);
    world.finish().await;
}

/// A killed run's money is in its record: the one that goes on with it does not bring it once more.
#[tokio::test(flavor = "multi_thread")]
async fn the_money_of_a_run_that_is_gone_on_with_is_counted_once_while_it_works() {
    let world = World::new(2).await;
    slow_model(&world, 2, 20_000);
    let mut command = world.command_in(&["run", "--issue", "7"]);
    let mut killed = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("its third request", || world.sim.model_requests().len() >= 3).await;
    killed.kill().unwrap();
    killed.wait().unwrap();
    slow_model(&world, 0, 20_000);
    let front = Front::start(&world, "1s", "");
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("it is gone on with", || world.sim.model_requests().len() >= 4).await;
    let status = front.json("/api/v1/status").await;
    assert!(status["running"][0]["progress"]["cost_usd"].as_f64().unwrap() > 0.0, "{status:#}");
    let cost = front.json("/api/v1/cost").await;
    let days: f64 = cost["by_day"].as_object().unwrap().values().map(|day| day.as_f64().unwrap()).sum();
    assert_eq!((&cost["under_way_usd"], days > 0.0), (&json!(0.0), true), "{cost:#}");
    assert_eq!(cost["total_usd"], json!(days), "{cost:#}");
    assert!(front.text("/metrics").await.1.contains("agentd_cost_usd_under_way 0\n"));
    world.finish().await;
}

/// What `runs list` and `runs show` say of such a run, the front says as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_is_not_as_it_was_sealed_is_not_believed() {
    let world = World::new(1).await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let cost = &output["totals"]["cost_usd"];
    assert!(cost.as_f64().unwrap() > 0.0, "{output:#}");
    let path = format!("/api/v1/runs/{}", output["run_id"].as_str().unwrap());
    let dir = super::solo::newest(&world);
    let mut forged = output.clone();
    forged["totals"]["cost_usd"] = json!(1_000_000);
    forged["objective"]["title"] = json!("forged");
    for result in [Some(forged.to_string()), Some("{ damaged".to_owned()), None] {
        match &result {
            Some(text) => std::fs::write(dir.join("result.json"), text).unwrap(),
            None => std::fs::remove_file(dir.join("result.json")).unwrap(),
        }
        let front = Front::start(&world, "1s", "");
        let runs = front.json("/api/v1/runs").await;
        let run = &runs["runs"][0];
        assert_eq!((&run["state"], &run["stop_detail"]), (&json!("ended"), &json!("completed")), "{runs:#}");
        assert_eq!((&run["title"], &run["cost_usd"]), (&output["objective"]["title"], cost), "{runs:#}");
        let sums = front.json("/api/v1/cost").await;
        assert_eq!((&sums["total_usd"], &sums["by_repository"]["demo/shop"]), (cost, cost), "{sums:#}");
        let metrics = front.text("/metrics").await.1;
        let line = format!("agentd_cost_usd_total{{repository=\"demo/shop\"}} {}\n", cost.as_f64().unwrap());
        assert!(metrics.contains(&line), "{metrics}");
        let told = front.json(&path).await;
        assert_eq!((&told["objective"], &told["totals"]), (&output["objective"], &output["totals"]));
        let (_, shown) = world.json(&["runs", "show"]).await;
        assert_eq!(shown, told);
    }
    std::fs::write(dir.join("events.jsonl"), "garbage\n").unwrap();
    let front = Front::start(&world, "1s", "");
    assert_eq!(front.json("/api/v1/runs").await["runs"][0]["state"], "unreadable");
    let (status, told) = front.text(&path).await;
    assert!(status == 500 && told.contains("unreadable"), "{status} {told}");
    drop(front);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_journal_was_damaged_ended_as_its_sealed_result_says_here_and_in_the_list_of_the_command()
{
    let world = World::new(1).await;
    let (_, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(output["success"], true, "{output:#}");
    let dir = crate::outside::solo::newest(&world);
    let journal = std::fs::read_to_string(dir.join("events.jsonl")).unwrap();
    let (first, rest) = journal.split_once('\n').unwrap();
    std::fs::write(dir.join("events.jsonl"), format!("{first}\ngarbage\n{rest}")).unwrap();
    let front = Front::start(&world, "1s", "");
    let told = front.json("/api/v1/runs").await["runs"][0].clone();
    assert_eq!((&told["state"], &told["success"]), (&json!("ended"), &json!(true)), "{told:#}");
    for chosen in [&[][..], &["--issue", "7"], &["--state", "achieved"], &["--since", "1h"]] {
        let (_, listed) = world.json(&[&["runs", "list"], chosen].concat()).await;
        let listed = &listed[0];
        assert_eq!((&listed["run_id"], &listed["readable"]), (&told["run_id"], &json!(false)), "{chosen:?}");
        for member in ["issue", "stop_reason", "stop_detail", "cost_usd"] {
            assert_eq!(listed[member], told[member], "{chosen:?} {member}");
        }
    }
    let shown = super::world::text(&world.agentd(&["runs", "list", "--issue", "7"]).await.stdout);
    assert!(shown.contains("OBJECTIVE_ACHIEVED (completed), its journal unreadable"), "{shown}");
    let (_, others) = world.json(&["runs", "list", "--issue", "8"]).await;
    assert_eq!(others, json!([]));
    // Of one that has no result any more nobody knows.
    std::fs::remove_file(dir.join("result.json")).unwrap();
    let listed = world.agentd(&["runs", "list", "--issue", "7"]).await;
    let noted = super::world::text(&listed.stderr);
    assert!(noted.contains("1 run cannot be read, and whether"), "{noted}");
    drop(front);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_that_the_daemon_has_queued_is_told_before_a_list_has_it() {
    let world = World::new(1).await;
    // Between what queues it and the next list there is time to look.
    let slow = json!({ "path": "/repos/demo/shop/issues", "kind": "delay", "delay_ms": 3_000, "times": 0 });
    world.sim.inject(&serde_json::from_value(slow).unwrap()).unwrap();
    let front = Front::start(&world, "1s", "");
    let state = world.dir.path().join("state/daemon/state.json");
    until("it listens", || std::fs::read_to_string(&state).unwrap_or_default().contains("listens_since"))
        .await;
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd run");
    until("it is queued", || world.labels() == ["agentd"]).await;
    let told = loop {
        let (status, text) = front.text("/api/v1/issues/demo/shop/7").await;
        if status == 200 {
            break serde_json::from_str::<Value>(&text).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((&told["state"], &told["issue"]["code"]), (&json!("waiting"), &json!("queued")), "{told:#}");
    until("done", || world.labels() == ["agentd:done"]).await;
    drop(front);
    world.finish().await;
}
