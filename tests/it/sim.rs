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

#[expect(clippy::disallowed_methods, reason = "the user's own git, outside agentd")]
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
    agentd::sys::files::write_public(&directory.path().join("data.txt"), lines.as_bytes()).unwrap();
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

async fn ask(sim: &Simulator, query: &str, variables: Value) -> Value {
    Caller::new(sim).send("POST", "/graphql", json!({"query": query, "variables": variables})).await.1
}

#[tokio::test(flavor = "multi_thread")]
async fn graphql_answers_project_fields_of_many_issues_at_once() {
    let sim = example().await;
    sim.set_project_field(REPO, 2, "Roadmap", "Target Branch", Some(FieldContent::Text("main".to_owned())));
    let query = r#"
        query($owner: String!, $name: String!, $field: String!) {
          repository(owner: $owner, name: $name) {
            one: issue(number: 1) { ...cards }
            two: issue(number: 2) { ...cards }
            gone: issue(number: 9) { number }
          }
        }
        fragment cards on Issue {
          number
          projectItems(first: 20, includeArchived: false) {
            pageInfo { hasNextPage endCursor }
            nodes {
              project { title number }
              fieldValueByName(name: $field) {
                __typename
                ... on ProjectV2ItemFieldTextValue { text }
                ... on ProjectV2ItemFieldSingleSelectValue { name }
              }
              fieldValues(first: 10) {
                nodes {
                  ... on ProjectV2ItemFieldSingleSelectValue { name field { ... on ProjectV2FieldCommon { name } } }
                }
              }
            }
          }
        }"#;
    let answer =
        ask(&sim, query, json!({"owner": "octo", "name": "greeter", "field": "Target Branch"})).await;
    let repository = &answer["data"]["repository"];
    let card = &repository["one"]["projectItems"]["nodes"][0];
    assert_eq!(card["project"], json!({"title": "Roadmap", "number": 1}));
    let single = json!({"__typename": "ProjectV2ItemFieldSingleSelectValue", "name": "develop"});
    assert_eq!(card["fieldValueByName"], single);
    assert_eq!(
        card["fieldValues"]["nodes"],
        json!([
            {"name": "Todo", "field": {"name": "Status"}},
            {"name": "develop", "field": {"name": "Target Branch"}}
        ])
    );
    let text = json!({"__typename": "ProjectV2ItemFieldTextValue", "text": "main"});
    assert_eq!(repository["two"]["projectItems"]["nodes"][0]["fieldValueByName"], text);
    assert_eq!(repository["gone"], Value::Null);
    assert_eq!(answer["errors"][0]["type"], "NOT_FOUND");
    assert_eq!(answer["errors"][0]["path"], json!(["repository", "gone"]));
    assert_eq!(sim.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn graphql_refuses_what_the_schema_does_not_have() {
    let sim = example().await;
    let refused = async |query: &str, variables: Value| {
        let answer = ask(&sim, query, variables).await;
        assert!(answer.get("data").is_none(), "{answer}");
        (answer["errors"][0]["extensions"]["code"].clone(), answer["errors"][0]["message"].clone())
    };
    let (code, message) =
        refused("{ repository(owner: \"octo\", name: \"greeter\") { colour } }", json!({})).await;
    assert_eq!(code, "undefinedField");
    assert_eq!(message, "Field 'colour' doesn't exist on type 'Repository'");
    let (code, _) = refused("{ repository(owner: \"octo\") { id } }", json!({})).await;
    assert_eq!(code, "missingRequiredArguments");
    let (code, _) = refused("{ viewer { login { x } } }", json!({})).await;
    assert_eq!(code, "selectionMismatch");
    let (code, _) = refused(
        "query($n: String!) { repository(owner: \"a\", name: \"b\") { issue(number: $n) { id } } }",
        json!({"n": "1"}),
    )
    .await;
    assert_eq!(code, "variableMismatch");
    let (code, _) = refused("query($n: Int) { viewer { login } }", json!({})).await;
    assert_eq!(code, "variableNotUsed");
    let (_, message) = refused("query { viewer { login }", json!({})).await;
    assert!(message.as_str().unwrap().starts_with("Expected"), "{message}");
    let (_, message) =
        refused("query($o: String!) { repository(owner: $o, name: \"b\") { id } }", json!({})).await;
    assert_eq!(message, "Variable $o of type String! was provided invalid value");
    assert_eq!(sim.violations().len(), 7, "{:?}", sim.violations());
    // Not a mistake in the query: GitHub says these while it runs.
    let unbounded = "{ repository(owner: \"octo\", name: \"greeter\") { issue(number: 1) { projectItems { totalCount } } } }";
    assert_eq!(ask(&sim, unbounded, json!({})).await["errors"][0]["type"], "MISSING_PAGINATION_BOUNDARIES");
    let anonymous = reqwest::Client::builder().user_agent("t").build().unwrap();
    let body = json!({"query": "{ viewer { login } }"});
    assert_eq!(answer(anonymous.post(sim.graphql_url()).json(&body)).await.0, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn graphql_turns_drafts_into_pull_requests_and_back() {
    let sim = example().await;
    let api = Caller::new(&sim);
    let draft = json!({"title": "t", "head": "develop", "base": "main", "draft": true});
    let (_, pull) = api.send("POST", "/repos/octo/greeter/pulls", draft).await;
    assert_eq!(pull["draft"], true);
    for (mutation, draft) in [("markPullRequestReadyForReview", false), ("convertPullRequestToDraft", true)] {
        let query = format!(
            "mutation($id: ID!) {{ {mutation}(input: {{pullRequestId: $id}}) {{ pullRequest {{ isDraft }} }} }}"
        );
        let answer = ask(&sim, &query, json!({"id": pull["node_id"]})).await;
        assert_eq!(answer["data"][mutation]["pullRequest"]["isDraft"], draft);
        assert_eq!(sim.pulls(REPO)[0].pull.as_ref().unwrap().draft, draft);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_enterprise_addresses_lead_to_the_same_place() {
    let sim = example().await;
    let api = Caller::new(&sim);
    let (status, issue) = api.get("/api/v3/repos/octo/greeter/issues/1").await;
    assert_eq!(status, 200);
    assert_eq!(issue["url"], format!("{}/api/v3/repos/octo/greeter/issues/1", sim.base_url()));
    let (_, viewer) = api.send("POST", "/api/graphql", json!({"query": "{ viewer { login } }"})).await;
    assert_eq!(viewer["data"]["viewer"]["login"], "octo");
}

const CLAUDE: &str = "/model/anthropic/v1/messages";
const GPT: &str = "/model/openai/v1/chat/completions";

/// Asks one of the models with the example's key.
async fn model(sim: &Simulator, path: &str, body: Value) -> reqwest::Response {
    let http = reqwest::Client::new();
    let request = http.post(format!("{}{path}", sim.base_url())).json(&body);
    let request = if path == CLAUDE {
        request.header("x-api-key", "k").header("anthropic-version", "2023-06-01")
    } else {
        request.bearer_auth("k")
    };
    request.send().await.unwrap()
}

fn hello(path: &str) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hello"}]});
    if path == CLAUDE {
        body["max_tokens"] = json!(100);
    }
    body
}

async fn scripted(replies: Value) -> Simulator {
    let scenario = json!({"model": {"replies": replies}}).to_string();
    let scenario = Scenario::from_text(&scenario, Path::new("s.json")).unwrap();
    Simulator::start(scenario, SimOptions::default()).await.unwrap()
}

/// The data of server-sent events.
fn events(text: &str) -> Vec<Value> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.map(|data| serde_json::from_str(data).unwrap_or_else(|_| json!(data))).collect()
}

fn rich() -> Value {
    json!({
        "thinking": "I should look at the file before I say anything about it.",
        "text": "Ich sehe nach: größer als gedacht, also in mehreren Stücken …",
        "tool_calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}, {"name": "list_files"}],
        "usage": {"input": 10, "output": 20, "cache_read": 30, "cache_write": 40, "reasoning": 5},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn anthropic_answers_whole_and_in_events_say_the_same() {
    let sim = scripted(json!([rich(), rich()])).await;
    let whole: Value = model(&sim, CLAUDE, hello(CLAUDE)).await.json().await.unwrap();
    assert_eq!(whole["stop_reason"], "tool_use");
    assert_eq!(whole["usage"]["cache_read_input_tokens"], 30);
    let mut body = hello(CLAUDE);
    body["stream"] = json!(true);
    let response = model(&sim, CLAUDE, body).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
    let events = events(&response.text().await.unwrap());
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds.first(), Some(&"message_start"));
    assert_eq!(kinds[kinds.len() - 2..], ["message_delta", "message_stop"]);
    let joined = |kind: &str, key: &str| -> String {
        let deltas = events.iter().filter(|event| event["delta"]["type"] == kind);
        deltas.map(|event| event["delta"][key].as_str().unwrap()).collect()
    };
    assert_eq!(whole["content"][0]["thinking"], joined("thinking_delta", "thinking"));
    assert_eq!(whole["content"][0]["signature"], joined("signature_delta", "signature"));
    assert_eq!(whole["content"][1]["text"], joined("text_delta", "text"));
    assert_eq!(joined("input_json_delta", "partial_json"), "{\"path\":\"a.txt\"}");
    assert_eq!(events[events.len() - 2]["usage"]["output_tokens"], 20);
    assert_eq!(sim.violations(), Vec::<String>::new());
    assert_eq!(sim.unused_replies(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn openai_answers_whole_and_in_events_say_the_same() {
    let sim = scripted(json!([rich(), rich()])).await;
    let whole: Value = model(&sim, GPT, hello(GPT)).await.json().await.unwrap();
    let message = &whole["choices"][0]["message"];
    assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(whole["usage"]["prompt_tokens"], 80);
    assert_eq!(whole["usage"]["prompt_tokens_details"]["cached_tokens"], 30);
    let mut body = hello(GPT);
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let events = events(&model(&sim, GPT, body).await.text().await.unwrap());
    assert_eq!(events.last(), Some(&json!("[DONE]")));
    assert_eq!(events[events.len() - 2]["usage"], whole["usage"]);
    let deltas: Vec<&Value> = events.iter().map(|event| &event["choices"][0]["delta"]).collect();
    let text: String = deltas.iter().filter_map(|delta| delta["content"].as_str()).collect();
    assert_eq!(message["content"], text);
    let arguments: String = deltas
        .iter()
        .filter(|delta| delta["tool_calls"][0]["index"] == 0)
        .map(|delta| delta["tool_calls"][0]["function"]["arguments"].as_str().unwrap())
        .collect();
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], arguments);
    assert_eq!(sim.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_protocol_is_refused_and_does_not_use_up_the_script() {
    let sim = scripted(json!([{"text": "hi", "times": 0}])).await;
    let call = json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let used = json!({"type": "tool_use", "id": "c1", "name": "f", "input": {}});
    let user = json!({"role": "user", "content": "x"});
    let cases = [
        (
            GPT,
            json!({"messages": [user, {"role": "tool", "tool_call_id": "c1", "content": "r"}]}),
            "must be a response to",
        ),
        (
            GPT,
            json!({"messages": [user, {"role": "assistant", "tool_calls": [call]}, user]}),
            "must be followed by tool",
        ),
        (GPT, json!({"messages": [user, {"role": "assistant", "tool_calls": [call]}]}), "have no results"),
        (GPT, json!({"messages": [{"role": "robot", "content": "x"}]}), "unknown role \"robot\""),
        (GPT, json!({"mood": 1}), "Unknown parameter: 'mood'"),
        (
            GPT,
            json!({"tools": [{"type": "function", "function": {"name": "a b", "parameters": {"type": "object"}}}]}),
            "does not match",
        ),
        (
            GPT,
            json!({"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]}),
            "is not an object",
        ),
        (GPT, json!({"tool_choice": "auto"}), "only allowed when 'tools'"),
        (CLAUDE, json!({"messages": [user, user]}), "roles must alternate"),
        (CLAUDE, json!({"messages": [{"role": "assistant", "content": "x"}]}), "first message must use"),
        (CLAUDE, json!({"messages": [{"role": "system", "content": "x"}]}), "unknown role \"system\""),
        (CLAUDE, json!({"max_tokens": null}), "max_tokens"),
        (
            CLAUDE,
            json!({"messages": [user, {"role": "assistant", "content": [used]}, user]}),
            "without `tool_result`",
        ),
        (
            CLAUDE,
            json!({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c9", "content": "r"}]}]}),
            "unexpected `tool_use_id`",
        ),
        (
            CLAUDE,
            json!({"messages": [user, {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "forged"}]}]}),
            "Invalid `signature`",
        ),
        (CLAUDE, json!({"tools": [{"name": "f", "input_schema": {"type": "string"}}]}), "type: \"object\""),
    ];
    for (place, (path, change, expected)) in cases.iter().enumerate() {
        let mut body = hello(path);
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        let response = model(&sim, path, body).await;
        assert_eq!(response.status().as_u16(), 400, "{change}");
        let refusal: Value = response.json().await.unwrap();
        assert!(
            refusal["error"]["message"].as_str().unwrap().contains(expected),
            "{change}: {:?}",
            sim.violations().last()
        );
        assert!(sim.violations().len() > place, "{change}");
    }
    let before = sim.violations().len();
    let http = reqwest::Client::new();
    let url = format!("{}/v1/messages", sim.model_url_anthropic());
    let unversioned = http.post(&url).header("x-api-key", "k").json(&hello(CLAUDE)).send().await.unwrap();
    assert_eq!(unversioned.status().as_u16(), 400);
    assert!(sim.violations()[before].contains("anthropic-version"));
    let keyless =
        http.post(&url).header("anthropic-version", "2023-06-01").json(&hello(CLAUDE)).send().await.unwrap();
    assert_eq!(keyless.status().as_u16(), 401);
    assert_eq!(model(&sim, GPT, hello(GPT)).await.status().as_u16(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_with_tools_passes_the_checks_of_both_wires() {
    let sim = scripted(json!([rich(), {"text": "done"}, rich(), {"text": "done"}])).await;
    let tools = json!([{"name": "read_file", "description": "d", "input_schema": {"type": "object", "properties": {}}}]);
    let mut body = hello(CLAUDE);
    body["tools"] = tools;
    let first: Value = model(&sim, CLAUDE, body.clone()).await.json().await.unwrap();
    let results: Vec<Value> = first["content"].as_array().unwrap()[2..]
        .iter()
        .map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "ok"}))
        .collect();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": first["content"]}));
    messages.push(json!({"role": "user", "content": results}));
    assert_eq!(model(&sim, CLAUDE, body).await.status().as_u16(), 200, "{:?}", sim.violations());

    let mut body = hello(GPT);
    let first: Value = model(&sim, GPT, body.clone()).await.json().await.unwrap();
    let calls = &first["choices"][0]["message"]["tool_calls"];
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": null, "tool_calls": calls}));
    for call in calls.as_array().unwrap() {
        messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "ok"}));
    }
    assert_eq!(model(&sim, GPT, body).await.status().as_u16(), 200, "{:?}", sim.violations());
    assert_eq!(sim.violations(), Vec::<String>::new());
    assert_eq!(
        sim.model_requests().iter().map(|one| one.reply).collect::<Vec<_>>(),
        [Some(0), Some(1), Some(2), Some(3)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_fit_by_model_text_and_turn_and_run_out_loudly() {
    let sim = scripted(json!([
        {"when": {"contains": "never"}, "text": "no"},
        {"model": "other", "text": "other"},
        {"when": {"contains": "number (4"}, "capture": {"n": "number \\((\\d+)\\)"}, "text": "it was ${n}"},
        {"text": "plain", "times": 2},
    ]))
    .await;
    let say = async |text: &str| {
        let mut body = hello(GPT);
        body["messages"][0]["content"] = json!(text);
        let answer: Value = model(&sim, GPT, body).await.json().await.unwrap();
        answer["choices"][0]["message"]["content"].as_str().map(str::to_owned)
    };
    assert_eq!(say("hello").await.as_deref(), Some("plain"));
    assert_eq!(say("number (42)").await.as_deref(), Some("it was 42"));
    assert_eq!(say("hello").await.as_deref(), Some("plain"));
    assert_eq!(sim.violations(), Vec::<String>::new());
    assert_eq!(sim.unused_replies().len(), 2);
    assert_eq!(model(&sim, GPT, hello(GPT)).await.status().as_u16(), 500);
    assert!(sim.violations()[0].contains("no reply of the script fits"), "{:?}", sim.violations());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_fails_in_every_way_a_script_says() {
    let sim = scripted(json!([
        {"error": {"status": 429, "retry_after": 3}},
        {"error": {"status": 529}},
        {"garbage": "<html>"},
        {"drop": "before_headers"},
        {"drop": "after_headers", "text": "x"},
        {"drop": "mid_stream", "text": "a longer text that comes in several pieces, of which some arrive"},
        {"error": {"status": 529, "in_stream": true}, "text": "x"},
        {"hang": "mid_stream", "text": "x"},
        {"tool_calls": [{"name": "f", "raw": "{\"path\": "}]},
        {"text": "cut off", "stop": "length"},
    ]))
    .await;
    let mut streamed = hello(CLAUDE);
    streamed["stream"] = json!(true);
    let limited = model(&sim, CLAUDE, streamed.clone()).await;
    assert_eq!((limited.status().as_u16(), limited.headers()["retry-after"].to_str().unwrap()), (429, "3"));
    let overloaded: Value = model(&sim, CLAUDE, streamed.clone()).await.json().await.unwrap();
    assert_eq!(overloaded["error"]["type"], "overloaded_error");
    assert_eq!(model(&sim, CLAUDE, streamed.clone()).await.text().await.unwrap(), "<html>");
    let http = reqwest::Client::new();
    let send = || {
        let request = http.post(format!("{}{CLAUDE}", sim.base_url())).json(&streamed);
        request.header("x-api-key", "k").header("anthropic-version", "2023-06-01").send()
    };
    assert!(send().await.is_err());
    assert!(send().await.unwrap().text().await.is_err());
    let mut cut = send().await.unwrap();
    let first = cut.chunk().await.unwrap().unwrap();
    assert!(first.starts_with(b"event: message_start"));
    let broken = async {
        loop {
            match cut.chunk().await {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    };
    assert!(broken.await);
    let in_stream = send().await.unwrap().text().await.unwrap();
    assert!(in_stream.contains("event: error") && !in_stream.contains("message_stop"), "{in_stream}");
    let mut hung = send().await.unwrap();
    assert!(hung.chunk().await.unwrap().is_some());
    let silence = tokio::time::timeout(Duration::from_millis(150), async {
        while let Ok(Some(_)) = hung.chunk().await {}
    });
    assert!(silence.await.is_err());
    let raw: Value = model(&sim, GPT, hello(GPT)).await.json().await.unwrap();
    assert_eq!(raw["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "{\"path\": ");
    let length: Value = model(&sim, GPT, hello(GPT)).await.json().await.unwrap();
    assert_eq!(length["choices"][0]["finish_reason"], "length");
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

#[tokio::test(flavor = "multi_thread")]
async fn a_merged_pull_request_closes_what_it_says() {
    let sim = start(
        r##"
        [[tokens]]
        token = "sim-token"
        login = "octo"
        [[repositories]]
        name = "octo/one"
        [[repositories.commits]]
        files = { a = "1" }
        [[repositories.commits]]
        branch = "work"
        files = { b = "2" }
        [[repositories.issues]]
        title = "a"
        [[repositories.pulls]]
        title = "p"
        head = "work"
        body = "Closes #1"
        "##,
    )
    .await;
    let api = Caller::new(&sim);
    let (status, merged) = api.send("PUT", "/repos/octo/one/pulls/2/merge", json!({})).await;
    assert_eq!((status, &merged["merged"]), (200, &json!(true)));
    assert!(!sim.issue("octo/one", 1).unwrap().open);
    let git_dir = sim.git_dir("octo/one").unwrap();
    assert_eq!(agentd::sim::bare::file(&git_dir, "main", "b").as_deref(), Some(b"2".as_slice()));
    assert_eq!(api.send("PUT", "/repos/octo/one/pulls/2/merge", json!({})).await.0, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_gets_a_token_that_opens_what_was_granted() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    let sim = start(
        r#"
        [[apps]]
        id = 7
        slug = "helper"
        owner = "octo"
        installation_id = 70
        permissions = { issues = "write", contents = "read" }
        repositories = ["octo/one"]
        [[repositories]]
        name = "octo/one"
        private = true
        [[repositories.issues]]
        title = "a"
        [[repositories]]
        name = "octo/two"
        private = true
        "#,
    )
    .await;
    let now = agentd::sys::clock::Clock::system().now().timestamp();
    let jwt = |lifetime: i64| {
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let claims = json!({"iss": "7", "iat": now - 10, "exp": now + lifetime});
        format!("{}.{}.c2ln", part(json!({"alg": "RS256", "typ": "JWT"})), part(claims))
    };
    let http = reqwest::Client::builder().user_agent("agentd-test").build().unwrap();
    let mint = |jwt: String| {
        let url = format!("{}/app/installations/70/access_tokens", sim.api_url());
        answer(http.post(url).bearer_auth(jwt).json(&json!({})))
    };
    assert_eq!(mint(jwt(-1)).await.0, 401);
    assert_eq!(mint(jwt(3600)).await.0, 401);
    let (status, minted) = mint(jwt(500)).await;
    assert_eq!((status, &minted["permissions"]["issues"]), (201, &json!("write")));
    let token: &'static str = String::leak(minted["token"].as_str().unwrap().to_owned());
    let api = Caller::with(&sim, token);
    let (_, comment) = api.send("POST", "/repos/octo/one/issues/1/comments", json!({"body": "hi"})).await;
    assert_eq!((&comment["user"]["login"], &comment["user"]["type"]), (&json!("helper[bot]"), &json!("Bot")));
    assert_eq!(api.get("/repos/octo/two").await.0, 404);
    assert_eq!(api.get("/user").await.0, 403);
    let (status, error) =
        api.send("POST", "/repos/octo/one/pulls", json!({"title": "t", "head": "a", "base": "b"})).await;
    assert_eq!((status, &error["message"]), (403, &json!("Resource not accessible by integration")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transferred_issue_is_found_where_it_went() {
    let sim = start(
        r#"
        [[tokens]]
        token = "sim-token"
        login = "octo"
        [[repositories]]
        name = "octo/old"
        [[repositories.issues]]
        title = "here"
        moved_to = "octo/new#1"
        [[repositories]]
        name = "octo/new"
        [[repositories.issues]]
        title = "there"
        "#,
    )
    .await;
    let api = Caller::new(&sim);
    let strict = reqwest::Client::builder()
        .user_agent("t")
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let url = format!("{}/repos/octo/old/issues/1", sim.api_url());
    assert_eq!(strict.get(&url).bearer_auth("sim-token").send().await.unwrap().status().as_u16(), 301);
    assert_eq!(api.get("/repos/octo/old/issues/1").await.1["title"], "there");
}
