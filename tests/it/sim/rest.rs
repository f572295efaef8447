//! The simulated REST API: conditional reads, pages, limits, tokens, issues.

use agentd::sim::world::FieldContent;
use serde_json::{Value, json};

use super::{Caller, REPO, answer, example, start};

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
async fn the_enterprise_addresses_lead_to_the_same_place() {
    let sim = example().await;
    let api = Caller::new(&sim);
    let (status, issue) = api.get("/api/v3/repos/octo/greeter/issues/1").await;
    assert_eq!(status, 200);
    assert_eq!(issue["url"], format!("{}/api/v3/repos/octo/greeter/issues/1", sim.base_url()));
    let (_, viewer) = api.send("POST", "/api/graphql", json!({"query": "{ viewer { login } }"})).await;
    assert_eq!(viewer["data"]["viewer"]["login"], "octo");
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
