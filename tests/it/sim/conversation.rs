//! The simulated conversation: threads, reviews, reactions, edits, and who may do what.

use agentd::sim::{Scenario, SimOptions, Simulator};
use serde_json::{Value, json};

use super::{Caller, REPO, answer};

const ON: &str = "repos/octo/greeter";

/// A repository whose branch `work` changes lines 3 and 8 of a file of ten lines, with pull request 2.
async fn world() -> Simulator {
    let ten = |changed: bool| -> String {
        (1..=10)
            .map(|n| format!("line {n}{}\n", if changed && (n == 3 || n == 8) { "!" } else { "" }))
            .collect()
    };
    let scenario: Scenario = serde_json::from_value(json!({
        "tokens": [
            {"token": "sim-token", "login": "octo"},
            {"token": "reader", "login": "wes"},
            {"token": "narrow", "login": "octo", "permissions": {"pull_requests": "write", "issues": "write"}},
        ],
        "repositories": [{
            "name": REPO,
            "collaborators": {"ada": "write"},
            "commits": [
                {"files": {"a.txt": ten(false), "b.txt": "b\n"}},
                {"branch": "work", "files": {"a.txt": ten(true)}},
            ],
            "issues": [{"number": 1, "title": "one", "body": "first"}],
            "pulls": [{"number": 2, "title": "two", "head": "work"}],
        }],
    }))
    .unwrap();
    Simulator::start(scenario, SimOptions::default()).await.unwrap()
}

fn admin(sim: &Simulator, method: &str, path: &str, body: Value) -> Value {
    sim.admin(method, &format!("{ON}/{path}"), &body).unwrap()
}

async fn graphql(api: &Caller, query: &str, variables: Value) -> Value {
    api.send("POST", "/graphql", json!({"query": query, "variables": variables})).await.1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_review_with_comments_begins_threads_that_follow_their_lines() {
    let sim = world().await;
    let api = Caller::new(&sim);
    let made = admin(
        &sim,
        "POST",
        "pulls/2/reviews",
        json!({"author": "ada", "state": "CHANGES_REQUESTED", "body": "please", "comments": [
            {"path": "a.txt", "line": 3, "body": "why?"},
            {"path": "a.txt", "line": 8, "body": "and this?"},
            {"path": "a.txt", "body": "the whole file"},
        ]}),
    );
    let (status, listed) = api.get("/repos/octo/greeter/pulls/2/comments").await;
    assert_eq!((status, listed.as_array().unwrap().len()), (200, 3));
    let first = &listed[0];
    assert_eq!(first["pull_request_review_id"], made["id"]);
    assert_eq!((first["line"].as_u64(), first["original_line"].as_u64()), (Some(3), Some(3)));
    let hunk = first["diff_hunk"].as_str().unwrap();
    assert!(hunk.starts_with("@@ -1,10 +1,10 @@") && hunk.ends_with("\n-line 3\n+line 3!"), "{hunk}");
    assert_eq!(listed[2]["subject_type"], "file");
    let of_review = format!("/repos/octo/greeter/pulls/2/reviews/{}/comments", made["id"]);
    assert_eq!(api.get(&of_review).await.1.as_array().unwrap().len(), 3);
    // A line above is new, and line 8 is another.
    let text = "zero\nline 1\nline 2\nline 3!\nline 4\nline 5\nline 6\nline 7\nline 8?\nline 9\nline 10\n";
    admin(&sim, "POST", "commits", json!({"branch": "work", "files": {"a.txt": text}}));
    let query = "{ repository(owner: \"octo\", name: \"greeter\") { pullRequest(number: 2) { \
        reviewThreads(first: 10) { nodes { id isResolved isOutdated path line originalLine subjectType \
        viewerCanReply viewerCanResolve comments(first: 5) { nodes { databaseId body isMinimized replyTo { id } \
        author { login } pullRequestReview { state } } } } } } } }";
    let answer = graphql(&api, query, json!({})).await;
    let threads = &answer["data"]["repository"]["pullRequest"]["reviewThreads"]["nodes"];
    let seen: Vec<_> =
        (0..3).map(|n| (threads[n]["isOutdated"].clone(), threads[n]["line"].clone())).collect();
    assert_eq!(seen, [(json!(false), json!(4)), (json!(true), json!(null)), (json!(false), json!(null))]);
    assert_eq!(threads[1]["originalLine"], 8);
    assert_eq!((&threads[2]["subjectType"], &threads[0]["subjectType"]), (&json!("FILE"), &json!("LINE")));
    assert_eq!(threads[0]["comments"]["nodes"][0]["pullRequestReview"]["state"], "CHANGES_REQUESTED");
    let now = api.get("/repos/octo/greeter/pulls/2/comments").await.1;
    assert_eq!((now[0]["line"].as_u64(), now[1]["line"].as_u64()), (Some(4), None));
    assert_eq!(sim.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_are_answered_resolved_and_opened_again() {
    let sim = world().await;
    let api = Caller::new(&sim);
    let head = sim.pulls(REPO)[0].pull.clone().unwrap().head_sha;
    let comments = "/repos/octo/greeter/pulls/2/comments";
    let new = json!({"body": "here", "commit_id": head, "path": "a.txt", "line": 3, "side": "RIGHT"});
    let (status, first) = api.send("POST", comments, new).await;
    assert_eq!(status, 201, "{first}");
    let outside = json!({"body": "there", "commit_id": head, "path": "b.txt", "line": 1});
    assert_eq!(api.send("POST", comments, outside).await.0, 422);
    let replies = |id: &Value| format!("{comments}/{id}/replies");
    let (status, reply) = api.send("POST", &replies(&first["id"]), json!({"body": "yes"})).await;
    assert_eq!((status, &reply["in_reply_to_id"]), (201, &first["id"]));
    assert_ne!(reply["pull_request_review_id"], first["pull_request_review_id"]);
    assert_eq!(api.send("POST", &replies(&reply["id"]), json!({"body": "no"})).await.0, 422);
    assert_eq!(sim.violations().len(), 1, "{:?}", sim.violations());
    let query = "{ repository(owner: \"octo\", name: \"greeter\") { pullRequest(number: 2) { \
        reviewThreads(first: 1) { nodes { id isResolved resolvedBy { login } viewerCanResolve \
        comments(last: 1) { totalCount nodes { body } } } } } } }";
    let thread = async |api: &Caller| {
        let answer = graphql(api, query, json!({})).await;
        answer["data"]["repository"]["pullRequest"]["reviewThreads"]["nodes"][0].clone()
    };
    let id = thread(&api).await["id"].clone();
    let answered = graphql(
        &api,
        "mutation($id: ID!) { addPullRequestReviewThreadReply(input: {pullRequestReviewThreadId: $id, body: \"again\"}) \
            { comment { databaseId body } } }",
        json!({"id": id}),
    )
    .await;
    assert_eq!(answered["data"]["addPullRequestReviewThreadReply"]["comment"]["body"], "again");
    assert_eq!(thread(&api).await["comments"], json!({"totalCount": 3, "nodes": [{"body": "again"}]}));
    let resolve =
        "mutation($id: ID!) { resolveReviewThread(input: {threadId: $id}) { thread { isResolved } } }";
    // A token that may not write contents may not resolve.
    let narrow = Caller::with(&sim, "narrow");
    assert_eq!(thread(&narrow).await["viewerCanResolve"], false);
    assert_eq!(graphql(&narrow, resolve, json!({"id": id})).await["errors"][0]["type"], "FORBIDDEN");
    let resolved = graphql(&api, resolve, json!({"id": id})).await;
    assert_eq!(resolved["data"]["resolveReviewThread"]["thread"]["isResolved"], true);
    assert_eq!(thread(&api).await["resolvedBy"]["login"], "octo");
    let reopen =
        "mutation($id: ID!) { unresolveReviewThread(input: {threadId: $id}) { thread { isResolved } } }";
    graphql(&api, reopen, json!({"id": id})).await;
    assert_eq!(thread(&api).await["isResolved"], false);
    // A thread goes with its last comment.
    let listed = api.get(comments).await.1;
    for comment in listed.as_array().unwrap() {
        let path = format!("/repos/octo/greeter/pulls/comments/{}", comment["id"]);
        assert_eq!(api.send("DELETE", &path, json!({})).await.0, 204);
    }
    assert_eq!(thread(&api).await, Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn comments_of_threads_are_listed_by_change_and_since() {
    let sim = world().await;
    let api = Caller::new(&sim);
    let review = |at: &str, n: u64| {
        let body = json!({"author": "ada", "state": "COMMENTED", "at": at,
            "comments": [{"path": "a.txt", "line": 3, "body": format!("nr {n}")}]});
        admin(&sim, "POST", "pulls/2/reviews", body)["comments"][0].clone()
    };
    let first = review("2026-02-01T00:00:00Z", 1);
    review("2026-02-02T00:00:00Z", 2);
    let path = format!("comments/{first}");
    admin(&sim, "PATCH", &path, json!({"body": "other", "actor": "ada", "at": "2026-02-03T00:00:00Z"}));
    let bodies = async |query: &str| -> Vec<String> {
        let listed = api.get(&format!("/repos/octo/greeter/pulls/comments?{query}")).await.1;
        listed.as_array().unwrap().iter().map(|one| one["body"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(bodies("per_page=5").await, ["other", "nr 2"]);
    assert_eq!(bodies("sort=updated").await, ["nr 2", "other"]);
    assert_eq!(bodies("sort=updated&direction=desc").await, ["other", "nr 2"]);
    assert_eq!(bodies("since=2026-02-02T12:00:00Z").await, ["other"]);
    assert_eq!(api.get("/repos/octo/greeter/pulls/comments?order=x").await.0, 422);
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_of_anybody_are_kept_in_the_history_of_issues_and_comments() {
    let sim = world().await;
    let api = Caller::new(&sim);
    let comment =
        admin(&sim, "POST", "issues/1/comments", json!({"body": "old", "actor": "wes"}))["id"].clone();
    let path = format!("comments/{comment}");
    admin(&sim, "PATCH", &path, json!({"body": "new", "actor": "ada", "minimized": "spam"}));
    sim.edit_text(REPO, 1, "wes", None, Some("second"));
    let query = "{ repository(owner: \"octo\", name: \"greeter\") { issue(number: 1) { lastEditedAt \
        editor { login } userContentEdits(first: 5) { nodes { diff } } comments(first: 1) { nodes { body \
        lastEditedAt isMinimized minimizedReason editor { login } userContentEdits(first: 5) { totalCount \
        nodes { diff editor { login } } } } } } } }";
    let answer = graphql(&api, query, json!({})).await;
    let issue = &answer["data"]["repository"]["issue"];
    assert_eq!(issue["userContentEdits"]["nodes"], json!([{"diff": "second"}, {"diff": "first"}]));
    let found = &issue["comments"]["nodes"][0];
    assert_eq!((&found["editor"]["login"], &found["minimizedReason"]), (&json!("ada"), &json!("spam")));
    let edits =
        json!([{"diff": "new", "editor": {"login": "ada"}}, {"diff": "old", "editor": {"login": "wes"}}]);
    assert_eq!(found["userContentEdits"]["nodes"], edits);
    assert_eq!(sim.violations(), Vec::<String>::new());
    // Who minimises needs the right to write.
    let hide = "mutation($id: ID!) { minimizeComment(input: {subjectId: $id, classifier: OUTDATED}) \
        { minimizedComment { isMinimized minimizedReason } } }";
    let id = json!({"id": format!("IC_{comment}")});
    let refused = graphql(&Caller::with(&sim, "reader"), hide, id.clone()).await;
    assert_eq!(refused["errors"][0]["type"], "FORBIDDEN");
    let hidden = graphql(&api, hide, id).await;
    assert_eq!(hidden["data"]["minimizeComment"]["minimizedComment"]["minimizedReason"], "outdated");
    admin(&sim, "DELETE", &path, json!({}));
    assert_eq!(api.get(&format!("/repos/octo/greeter/issues/{path}")).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reaction_is_made_once_and_counted() {
    let sim = world().await;
    let api = Caller::new(&sim);
    let id = sim.add_comment(REPO, 1, "ada", "hello").unwrap();
    let path = format!("/repos/octo/greeter/issues/comments/{id}");
    let eyes = json!({"content": "eyes"});
    let (status, made) = api.send("POST", &format!("{path}/reactions"), eyes.clone()).await;
    assert_eq!((status, &made["user"]["login"]), (201, &json!("octo")));
    assert_eq!(api.send("POST", &format!("{path}/reactions"), eyes).await, (200, made));
    assert_eq!(api.send("POST", &format!("{path}/reactions"), json!({"content": "wave"})).await.0, 422);
    admin(&sim, "POST", &format!("comments/{id}/reactions"), json!({"content": "+1", "actor": "ada"}));
    assert_eq!(api.get(&format!("{path}/reactions")).await.1.as_array().unwrap().len(), 2);
    let counts = api.get(&path).await.1["reactions"].clone();
    assert_eq!((counts["total_count"].as_u64(), counts["eyes"].as_u64()), (Some(2), Some(1)));
    let tag =
        api.request("GET", &format!("{path}/reactions")).send().await.unwrap().headers()["etag"].clone();
    let again = api.request("GET", &format!("{path}/reactions")).header("if-none-match", tag);
    assert_eq!(answer(again).await.0, 304);
}

#[tokio::test(flavor = "multi_thread")]
async fn remarks_come_in_any_number_and_size() {
    let sim = world().await;
    let api = Caller::new(&sim);
    admin(&sim, "POST", "issues/1/comments", json!({"body": "nr {n}", "count": 150, "actor": "ada"}));
    let page = api.get("/repos/octo/greeter/issues/1/comments?per_page=100&page=2").await.1;
    assert_eq!((page.as_array().unwrap().len(), &page[49]["body"]), (50, &json!("nr 150")));
    let big = admin(&sim, "POST", "issues/1/comments", json!({"body": "naïve ", "size": 5_000_000}));
    let path = format!("/repos/octo/greeter/issues/comments/{}", big["id"]);
    let length = api.get(&path).await.1["body"].as_str().unwrap().len();
    assert!((4_999_998..=5_000_000).contains(&length), "{length}");
    assert!(sim.admin("POST", &format!("{ON}/issues/1/comments"), &json!({"bodi": "x"})).is_err());
}
