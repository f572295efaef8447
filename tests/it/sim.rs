//! The simulator, met as real clients meet it: octocrab, reqwest and git.

use std::path::Path;
use std::process::Output;
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
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

async fn git(directory: &Path, args: &[&str]) -> Output {
    let mut command = tokio::process::Command::new("git");
    command
        .args(args)
        .current_dir(directory)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_ASKPASS", "true")
        .env("GIT_AUTHOR_NAME", "Test")
        .env("GIT_AUTHOR_EMAIL", "test@example.com")
        .env("GIT_COMMITTER_NAME", "Test")
        .env("GIT_COMMITTER_EMAIL", "test@example.com");
    command.output().await.unwrap()
}

async fn git_ok(directory: &Path, args: &[&str]) -> String {
    let output = git(directory, args).await;
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn with_token(url: &str, token: &str) -> String {
    url.replace("http://", &format!("http://x-access-token:{token}@"))
}

/// Clones the example's repository and pushes a branch with one commit on it.
async fn push_branch(sim: &Simulator, branch: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let url = with_token(&sim.remote_url("octo", "greeter"), "sim-token");
    git_ok(directory.path(), &["clone", "-q", &url, "."]).await;
    git_ok(directory.path(), &["checkout", "-q", "-b", branch, "origin/develop"]).await;
    // More than git sends unzipped, and more than one pipe buffer holds.
    let lines: String = (0..40_000).map(|n| format!("{}\n", n * 7919 % 104_729)).collect();
    std::fs::write(directory.path().join("data.txt"), lines).unwrap();
    git_ok(directory.path(), &["add", "."]).await;
    git_ok(directory.path(), &["commit", "-q", "-m", "Data"]).await;
    git_ok(directory.path(), &["push", "-q", "origin", branch]).await;
    directory
}

#[tokio::test(flavor = "multi_thread")]
async fn octocrab_reads_and_writes_issues_comments_labels_and_pull_requests() {
    let sim = example().await;
    let crab = octocrab::Octocrab::builder()
        .base_uri(sim.api_url())
        .unwrap()
        .personal_token("sim-token".to_owned())
        .build()
        .unwrap();
    let issue = crab.issues("octo", "greeter").get(1).await.unwrap();
    assert_eq!(issue.labels[0].name, "agentd");
    assert_eq!(issue.user.login, "dev");
    let list = crab.issues("octo", "greeter").list().labels(&["agentd".to_owned()]).send().await.unwrap();
    assert_eq!(list.items.len(), 1);
    let comment = crab.issues("octo", "greeter").create_comment(1, "On it.").await.unwrap();
    crab.issues("octo", "greeter").update_comment(comment.id, "Done.").await.unwrap();
    assert_eq!(sim.issue(REPO, 1).unwrap().comments.last().unwrap().body, "Done.");
    crab.issues("octo", "greeter").add_labels(1, &["agentd:running".to_owned()]).await.unwrap();
    crab.issues("octo", "greeter").remove_label(1, "agentd").await.unwrap();
    assert_eq!(sim.issue(REPO, 1).unwrap().labels, ["agentd:running"]);
    let _clone = push_branch(&sim, "feature/issue-1").await;
    let pull = crab
        .pulls("octo", "greeter")
        .create("Fix", "feature/issue-1", "develop")
        .body("Closes #1")
        .send()
        .await;
    let pull = pull.unwrap();
    assert_eq!((pull.number, pull.base.ref_field.as_str()), (3, "develop"));
    let head = sim.pulls(REPO)[0].pull.clone().unwrap();
    assert_eq!(pull.head.sha, head.head_sha);
    let repository = crab.repos("octo", "greeter").get().await.unwrap();
    assert_eq!(repository.default_branch.as_deref(), Some("main"));
    assert_eq!(sim.violations(), Vec::<String>::new());
    sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn git_clones_and_pushes_with_a_token_and_is_refused_without() {
    let sim = example().await;
    let clone = push_branch(&sim, "feature/issue-1").await;
    let here = git_ok(clone.path(), &["rev-parse", "HEAD"]).await;
    let there = agentd::sim::bare::head(&sim.git_dir(REPO).unwrap(), "feature/issue-1");
    assert_eq!(there.as_deref(), Some(here.trim()));

    let url = sim.remote_url("octo", "greeter");
    // Anybody reads a public repository; nobody writes without a token, or with one that may only read.
    git_ok(clone.path(), &["ls-remote", &url]).await;
    let anonymous = git(clone.path(), &["push", &url, "HEAD:refs/heads/x"]).await;
    assert!(!anonymous.status.success());
    let reader =
        git(clone.path(), &["push", &with_token(&url, "read-only-token"), "HEAD:refs/heads/x"]).await;
    assert!(String::from_utf8_lossy(&reader.stderr).contains("403"), "{reader:?}");
    let wrong = git(clone.path(), &["push", &with_token(&url, "no-such-token"), "HEAD:refs/heads/x"]).await;
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("Authentication failed"), "{wrong:?}");

    let protected = git(clone.path(), &["push", "origin", "HEAD:main"]).await;
    let said = String::from_utf8_lossy(&protected.stderr).into_owned();
    assert!(said.contains("GH006") && said.contains("hook declined"), "{said}");
    sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pull_requests_are_checked_against_the_real_branches() {
    let sim = example().await;
    let api = Caller::new(&sim);
    let pulls = "/repos/octo/greeter/pulls";
    let body = |head: &str, base: &str| json!({"title": "t", "head": head, "base": base});
    let (status, error) = api.send("POST", pulls, body("nowhere", "main")).await;
    assert_eq!((status, &error["errors"][0]["field"]), (422, &json!("head")));
    let (_, error) = api.send("POST", pulls, body("develop", "nowhere")).await;
    assert_eq!(error["errors"][0]["field"], "base");
    let (_, error) = api.send("POST", pulls, body("main", "develop")).await;
    assert_eq!(error["errors"][0]["message"], "No commits between develop and main");
    let (status, pull) = api.send("POST", pulls, body("octo:develop", "main")).await;
    assert_eq!((status, &pull["changed_files"]), (201, &json!(1)));
    let (_, error) = api.send("POST", pulls, body("develop", "main")).await;
    assert_eq!(error["errors"][0]["message"], "A pull request already exists for octo:develop.");
    let (_, found) = api.get(&format!("{pulls}?head=octo:develop&base=main&state=open")).await;
    assert_eq!(found[0]["number"], pull["number"]);
    let number = pull["number"].as_u64().unwrap();
    let (_, edited) = api.send("PATCH", &format!("{pulls}/{number}"), json!({"title": "new"})).await;
    assert_eq!(edited["title"], "new");
    let (_, as_issue) = api.get(&format!("/repos/octo/greeter/issues/{number}")).await;
    assert!(as_issue["pull_request"].is_object());
    assert_eq!(sim.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_etag_gets_304_and_costs_nothing() {
    let sim = example().await;
    let api = Caller::new(&sim);
    let path = "/repos/octo/greeter/issues?labels=agentd";
    let first = api.request("GET", path).send().await.unwrap();
    let tag = first.headers()["etag"].to_str().unwrap().to_owned();
    let left = first.headers()["x-ratelimit-remaining"].clone();
    let second = api.request("GET", path).header("if-none-match", &tag).send().await.unwrap();
    assert_eq!((second.status().as_u16(), &second.headers()["x-ratelimit-remaining"]), (304, &left));
    assert!(second.bytes().await.unwrap().is_empty());
    sim.add_label(REPO, 2, "agentd", "dev");
    let third = api.request("GET", path).header("if-none-match", &tag).send().await.unwrap();
    assert_eq!(third.status().as_u16(), 200);
    assert_ne!(third.headers()["etag"].to_str().unwrap(), tag);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages_with_links() {
    let sim = example().await;
    for _ in 0..5 {
        sim.add_comment(REPO, 1, "dev", "again");
    }
    let api = Caller::new(&sim);
    let mut next = Some("/repos/octo/greeter/issues/1/comments?per_page=2".to_owned());
    let mut sizes = Vec::new();
    while let Some(path) = next {
        let response = api.request("GET", &path).send().await.unwrap();
        let link =
            response.headers().get("link").map(|link| link.to_str().unwrap().to_owned()).unwrap_or_default();
        next = link
            .split(", ")
            .find(|part| part.ends_with("rel=\"next\""))
            .and_then(|part| Some(part.strip_prefix('<')?.split_once('>')?.0.to_owned()));
        sizes.push(response.json::<Vec<Value>>().await.unwrap().len());
    }
    assert_eq!(sizes, [2, 2, 2]);
    assert_eq!(sim.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_github_does_not_know_is_a_violation() {
    let sim = example().await;
    let api = Caller::new(&sim);
    assert_eq!(api.get("/repos/octo/greeter/wonders").await.0, 404);
    assert_eq!(api.get("/repos/octo/greeter/issues?colour=red").await.0, 422);
    assert_eq!(api.send("PATCH", "/repos/octo/greeter/issues/1", json!({"mood": "good"})).await.0, 422);
    let found = sim.violations();
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(
        found[0].contains("no such route") && found[1].contains("`colour`") && found[2].contains("`mood`")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_open_what_they_open() {
    let sim = start(
        r#"
        [[tokens]]
        token = "owner"
        login = "octo"
        [[tokens]]
        token = "reader"
        login = "guest"
        [[tokens]]
        token = "narrow"
        login = "octo"
        permissions = { issues = "read" }
        [[repositories]]
        name = "octo/open"
        [[repositories.issues]]
        title = "one"
        [[repositories]]
        name = "octo/secret"
        private = true
        "#,
    )
    .await;
    assert_eq!(Caller::with(&sim, "owner").get("/repos/octo/secret").await.0, 200);
    assert_eq!(Caller::with(&sim, "reader").get("/repos/octo/secret").await.0, 404);
    assert_eq!(Caller::with(&sim, "nobody").get("/repos/octo/open").await.0, 401);
    let label = "/repos/octo/open/issues/1/labels";
    let (status, error) = Caller::with(&sim, "narrow").send("POST", label, json!({"labels": ["x"]})).await;
    assert_eq!(
        (status, &error["message"]),
        (403, &json!("Resource not accessible by personal access token"))
    );
    assert_eq!(Caller::with(&sim, "reader").send("POST", label, json!({"labels": ["x"]})).await.0, 403);
    let (_, permission) =
        Caller::with(&sim, "owner").get("/repos/octo/open/collaborators/guest/permission").await;
    assert_eq!(permission["permission"], "read");
}

#[tokio::test(flavor = "multi_thread")]
async fn issues_carry_their_fields_dependencies_and_events() {
    let sim = example().await;
    let api = Caller::new(&sim);
    let (_, values) = api.get("/repos/octo/greeter/issues/1/issue-field-values").await;
    assert_eq!(values[0]["issue_field_name"], "base_branch");
    assert_eq!((&values[0]["data_type"], &values[0]["value"]), (&json!("text"), &json!("develop")));
    sim.set_field(REPO, 1, "base_branch", Some(FieldContent::SingleSelect("main".to_owned())));
    let (_, issue) = api.get("/repos/octo/greeter/issues/1").await;
    assert_eq!(issue["issue_field_values"][0]["single_select_option"]["name"], "main");
    let (_, blockers) = api.get("/repos/octo/greeter/issues/2/dependencies/blocked_by").await;
    assert_eq!(blockers[0]["number"], 1);
    let (_, events) = api.get("/repos/octo/greeter/issues/1/events").await;
    assert_eq!((&events[0]["event"], &events[0]["actor"]["login"]), (&json!("labeled"), &json!("octo")));
    assert_eq!(api.get("/repos/octo/greeter/issues/99").await.0, 404);
    sim.edit_issue(REPO, 2, |issue| issue.deleted = true);
    assert_eq!(api.get("/repos/octo/greeter/issues/2").await.0, 410);
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
async fn a_used_up_limit_answers_403_with_nothing_remaining() {
    let sim = start("[limits]\nper_hour = 2\n[[tokens]]\ntoken = \"sim-token\"\nlogin = \"octo\"").await;
    let api = Caller::new(&sim);
    assert_eq!([api.get("/user").await.0, api.get("/user").await.0], [200, 200]);
    let over = api.request("GET", "/user").send().await.unwrap();
    assert_eq!(
        (over.status().as_u16(), over.headers()["x-ratelimit-remaining"].to_str().unwrap()),
        (403, "0")
    );
    assert_eq!(api.get("/rate_limit").await.1["rate"]["remaining"], 0);
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
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let (address, git_dir) = (sim.addr(), sim.git_dir(REPO).unwrap());
    assert!(git_dir.exists());
    sim.shutdown().await;
    assert!(!git_dir.exists());
    tokio::net::TcpListener::bind(address).await.unwrap();
}
