//! The simulator, met as real clients meet it: octocrab, reqwest and git.

mod checks;
mod conversation;
mod graphql;
mod hooks;
mod models;
mod pulls;
mod rest;
mod shapes;

use std::path::Path;
use std::time::{Duration, Instant};

use agentd::sim::world::FieldContent;
use agentd::sim::{Scenario, SimOptions, Simulator};
use serde_json::{Value, json};

const REPO: &str = "octo/greeter";

async fn start(text: &str) -> Simulator {
    let scenario = Scenario::from_text(text, Path::new("scenario.toml")).unwrap();
    Simulator::start(scenario, SimOptions::default()).await.unwrap()
}

async fn example() -> Simulator {
    Simulator::start(Scenario::example().unwrap(), SimOptions::default()).await.unwrap()
}

/// A caller of the API with the example's token.
struct Caller {
    http: reqwest::Client,
    base: String,
    token: &'static str,
}

impl Caller {
    fn new(sim: &Simulator) -> Self {
        Self::with(sim, "sim-token")
    }

    fn with(sim: &Simulator, token: &'static str) -> Self {
        let http = reqwest::Client::builder().user_agent("agentd-test").build().unwrap();
        Self { http, base: sim.api_url(), token }
    }

    fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let url = if path.starts_with("http") { path.to_owned() } else { format!("{}{path}", self.base) };
        self.http.request(method.parse().unwrap(), url).bearer_auth(self.token)
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        answer(self.request("GET", path)).await
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        answer(self.request(method, path).json(&body)).await
    }
}

async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let (client, request) = request.build_split();
    let request = request.unwrap();
    let (method, path) = (request.method().to_string(), request.url().path().to_owned());
    let response = client.execute(request).await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    shapes::check(&method, &path, status, &body);
    (status, body)
}

#[tokio::test(flavor = "multi_thread")]
async fn planned_faults_happen_as_often_as_planned() {
    let sim = example().await;
    let api = Caller::new(&sim);
    let path = "/repos/octo/greeter/issues/1";
    let fault = |text: Value| sim.inject(&serde_json::from_value(text).unwrap()).unwrap();
    fault(json!({"path": "/repos/*", "kind": "status", "status": 502, "times": 2}));
    assert_eq!([api.get(path).await.0, api.get(path).await.0, api.get(path).await.0], [502, 502, 200]);
    fault(json!({"path": "/repos/*", "kind": "secondary_limit", "retry_after": 7}));
    let limited = api.request("GET", path).send().await.unwrap();
    assert_eq!((limited.status().as_u16(), limited.headers()["retry-after"].to_str().unwrap()), (403, "7"));
    fault(json!({"path": "/repos/*", "kind": "drop"}));
    assert!(api.request("GET", path).send().await.is_err());
    fault(json!({"path": "/repos/*", "kind": "truncate"}));
    assert!(api.request("GET", path).send().await.unwrap().bytes().await.is_err());
    fault(json!({"path": "/repos/*", "kind": "garbage"}));
    assert!(api.get(path).await.1.is_string());
    // The comment is there although its author never heard so.
    let before = sim.issue(REPO, 1).unwrap().comments.len();
    fault(json!({"method": "POST", "path": "/repos/*", "kind": "lost_reply"}));
    let lost = api.request("POST", &format!("{path}/comments")).json(&json!({"body": "hello"})).send().await;
    assert!(lost.is_err());
    assert_eq!(sim.issue(REPO, 1).unwrap().comments.len(), before + 1);
    fault(json!({"path": "/repos/*", "kind": "hang"}));
    let hung = api.request("GET", path).timeout(Duration::from_millis(150)).send().await;
    assert!(hung.unwrap_err().is_timeout());
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_mistakes_name_file_and_line() {
    let wrong = Scenario::from_text(
        "[limits]\nper_hour = 1\n\n[[repositories]]\nnane = \"a/b\"\n",
        Path::new("s.toml"),
    );
    let message = wrong.unwrap_err().to_string();
    assert!(message.starts_with("s.toml:5: unknown field `nane`"), "{message}");
    let wrong = Scenario::from_text("{\n \"limit\": {}\n}", Path::new("s.json")).unwrap_err().to_string();
    assert!(wrong.starts_with("s.json:2: unknown field `limit`"), "{wrong}");
    let role = "[[repositories]]\nname = \"a/b\"\ncollaborators = { x = \"king\" }\n";
    let scenario = Scenario::from_text(role, Path::new("s.toml")).unwrap();
    let error = Simulator::start(scenario, SimOptions::default()).await.unwrap_err().to_string();
    assert!(error.contains("a/b") && error.contains("`king`"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_starts_at_once_and_leaves_nothing_behind() {
    let began = Instant::now();
    let sim = example().await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let (address, git_dir) = (sim.addr(), sim.git_dir(REPO).unwrap());
    assert!(git_dir.exists());
    sim.shutdown().await;
    assert!(!git_dir.exists());
    tokio::net::TcpListener::bind(address).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_api_changes_the_world_and_shows_it() {
    let sim = example().await;
    let api = Caller::new(&sim);
    let on = "/_sim/repos/octo/greeter";
    assert_eq!(
        api.send("PUT", &format!("{on}/issues/2/labels/agentd"), json!({"actor": "dev"})).await.0,
        200
    );
    assert_eq!(sim.issue(REPO, 2).unwrap().events.last().unwrap().actor, "dev");
    api.send("PATCH", &format!("{on}/issues/2"), json!({"state": "closed"})).await;
    assert!(!sim.issue(REPO, 2).unwrap().open);
    let (_, added) =
        api.send("POST", &format!("{on}/issues"), json!({"title": "three", "labels": ["agentd"]})).await;
    assert_eq!(added["number"], 3);
    api.send(
        "PUT",
        &format!("{on}/issues/3/fields/base_branch"),
        json!({"value": {"single_select": "develop"}}),
    )
    .await;
    assert_eq!(sim.issue(REPO, 3).unwrap().fields[0].value, FieldContent::SingleSelect("develop".to_owned()));
    let commit = json!({"branch": "develop", "files": {"new.txt": "new\n"}, "message": "new"});
    let (_, made) = api.send("POST", &format!("{on}/commits"), commit).await;
    assert_eq!(
        made["sha"].as_str(),
        agentd::sim::bare::head(&sim.git_dir(REPO).unwrap(), "develop").as_deref()
    );
    let (_, file) = api.get(&format!("{on}/files/develop/new.txt")).await;
    assert_eq!(file["content"], "new\n");
    api.send("POST", "/_sim/faults", json!({"path": "/user", "kind": "status", "status": 500})).await;
    assert_eq!([api.get("/user").await.0, api.get("/user").await.0], [500, 200]);
    let (status, wrong) = api.send("POST", "/_sim/faults", json!({"path": "/user", "kind": "explode"})).await;
    assert_eq!(status, 422);
    assert!(wrong["error"].as_str().unwrap().contains("explode"));
    let (_, requests) = api.get("/_sim/requests?after=1").await;
    assert_eq!((&requests[0]["target"], &requests[0]["status"]), (&json!("/user"), &json!(200)));
    assert_eq!(requests[0]["headers"]["authorization"], "***");
    let (_, state) = api.get("/_sim/state").await;
    assert_eq!(state["repositories"][0]["issues"][2]["title"], "three");
    assert_eq!(state["violations"], json!([]));
    assert_eq!(api.get("/_sim/nothing").await.0, 404);
}
