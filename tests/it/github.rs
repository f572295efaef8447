//! The GitHub client against a real HTTP server that answers as each test says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentd::config::Credentials;
use agentd::domain::issue_state::LabelSpec;
use agentd::domain::name::{BranchName, CommitId, RepoName};
use agentd::domain::policy::ActorPermission;
use agentd::github::{
    Client, Ensured, Error, ErrorKind, Fetched, IssueSnapshot, PageCache, PullSpec, Settings,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use crate::double::{Answer, Double, Seen, fails, ok};

fn repo() -> RepoName {
    RepoName::parse("o/n").unwrap()
}

fn issue(number: u64) -> Value {
    json!({"id": 1000 + number, "number": number, "title": format!("Title {number}"), "state": "open",
           "labels": [{"name": "agentd"}], "user": {"login": "ann", "id": 5}, "body": "Text"})
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.unwrap_err().kind
}

#[tokio::test]
async fn an_issue_is_read_with_token_and_version_and_absent_fields_are_fine() {
    let double = Double::serve(|_, _| ok(json!({"number": 7, "title": "T", "state": "closed"}))).await;
    let issue = double.client().issue(&repo(), 7).await.unwrap();
    assert!(!issue.issue.open);
    assert_eq!((issue.issue.title.as_str(), issue.issue.body.as_str()), ("T", ""));
    assert_eq!((issue.fields, issue.open_blockers), (None, None));
    let seen = double.seen(0);
    assert_eq!(seen.line, "GET /repos/o/n/issues/7");
    assert_eq!(seen.authorization, "Bearer tok-canary-1234567890");
    assert_eq!(seen.headers["x-github-api-version"], "2022-11-28");
    assert_eq!(seen.headers["accept"], "application/vnd.github+json");
}

#[tokio::test]
async fn missing_deleted_moved_and_pull_request_numbers_are_told_apart() {
    let double = Double::serve(|seen, _| match seen.line.rsplit('/').next().unwrap() {
        "1" => fails(404, "Not Found"),
        "2" => fails(410, "This issue was deleted"),
        "3" => Answer(301, vec![], Value::Null).with("location", "/repositories/9/issues/44"),
        "44" => ok(issue(44)),
        "4" => ok(json!({"number": 4, "title": "T", "state": "open", "pull_request": {"url": "x"}})),
        _ => ok(Value::String("<html>".into())),
    })
    .await;
    let client = double.client();
    assert_eq!(kind(client.issue(&repo(), 1).await), ErrorKind::NotFound);
    assert_eq!(kind(client.issue(&repo(), 2).await), ErrorKind::Gone);
    let moved = client.issue(&repo(), 3).await.unwrap_err();
    assert!(matches!(&moved.kind, ErrorKind::Moved { .. }), "{moved}");
    assert_eq!(kind(client.issue(&repo(), 4).await), ErrorKind::IsPullRequest);
    assert_eq!(kind(client.issue(&repo(), 5).await), ErrorKind::Foreign);
}

#[tokio::test]
async fn s_033_no_error_text_holds_token_url_or_upstream_words() {
    let double = Double::serve(|seen, _| {
        let echo = format!("boom {} at /internal/path", seen.authorization);
        let status = seen.line.rsplit('/').next().unwrap().parse().unwrap();
        fails(status, &echo)
    })
    .await;
    let client = double.client();
    for status in [400, 401, 403, 404, 409, 410, 418, 422, 500, 503] {
        let error = client.issue(&repo(), status).await.unwrap_err();
        let public = error.to_string();
        for secret in ["tok-canary", "boom", "internal", "127.0.0.1", "Bearer"] {
            assert!(!public.contains(secret), "{status}: {public}");
        }
        assert!(!format!("{error:?} {}", error.technical()).contains("tok-canary"), "{status}: {error:?}");
    }
    let error = client.issue(&repo(), 403).await.unwrap_err().to_string();
    assert!(error.contains("issues: read"), "{error}");
}

#[tokio::test]
async fn reads_are_repeated_after_5xx_and_cut_connections_and_then_fail_as_unavailable() {
    let double = Double::serve(|_, before| if before < 2 { fails(502, "bad") } else { ok(issue(7)) }).await;
    assert_eq!(double.client().issue(&repo(), 7).await.unwrap().issue.title, "Title 7");
    assert_eq!(double.lines().len(), 3);

    let down = Double::serve(|_, _| fails(500, "no")).await;
    assert_eq!(kind(down.client().issue(&repo(), 7).await), ErrorKind::Unavailable { status: 500 });
    assert_eq!(down.lines().len(), 4, "one try and three repetitions");

    let settings = Settings { retries: 1, ..down.settings() };
    drop(down);
    assert_eq!(kind(Client::new(settings).unwrap().issue(&repo(), 7).await), ErrorKind::Unreachable);

    let slow = Double::serve(|_, _| {
        std::thread::sleep(Duration::from_millis(300));
        ok(issue(7))
    })
    .await;
    let settings_slow = Settings { timeout: Duration::from_millis(60), retries: 0, ..slow.settings() };
    assert_eq!(kind(Client::new(settings_slow).unwrap().issue(&repo(), 7).await), ErrorKind::Unreachable);
}

#[tokio::test]
async fn a_post_is_never_repeated_without_looking_first() {
    let double = Double::serve(|seen, _| match seen.line.split(' ').next().unwrap() {
        "POST" => fails(502, "bad"),
        _ => ok(json!([])),
    })
    .await;
    let branch = |name: &str| BranchName::parse(name).unwrap();
    let spec = PullSpec {
        head: branch("x"),
        commit: commit(),
        base: branch("main"),
        title: "T".into(),
        body: String::new(),
        draft: false,
    };
    let outcome = double.client().ensure_pull(&repo(), &spec).await;
    assert_eq!(kind(outcome), ErrorKind::Unavailable { status: 502 });
    let methods: Vec<String> =
        double.lines().iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(methods, ["GET", "POST", "GET", "POST", "GET", "POST", "GET", "POST", "GET"]);
}

/// A server that keeps comments; `lose` = how many POSTs take effect but answer 502.
fn comment_server(lose: usize) -> impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static {
    let comments: Mutex<Vec<Value>> = Mutex::new(vec![
        json!({"id": 1, "body": "<!-- agentd:issue-7 -->\nfake", "user": {"login": "mallory"}}),
        json!({"id": 2, "body": "about <!-- agentd:issue-7 -->", "user": {"login": "Bot"}}),
    ]);
    let lost = Mutex::new(lose);
    move |seen, _| {
        let mut comments = comments.lock().unwrap();
        match seen.line.as_str() {
            "GET /user" => ok(json!({"login": "bot", "id": 3})),
            line if line.starts_with("GET /repos/o/n/issues/7/comments") => ok(json!(*comments)),
            "POST /repos/o/n/issues/7/comments" => {
                let made =
                    json!({"id": 10 + comments.len(), "body": seen.body["body"], "user": {"login": "bot"}});
                comments.push(made.clone());
                let mut lost = lost.lock().unwrap();
                if *lost > 0 {
                    *lost -= 1;
                    return fails(502, "bad gateway");
                }
                Answer(201, vec![], made)
            }
            line if line.starts_with("PATCH /repos/o/n/issues/comments/") => {
                let id: u64 = line.rsplit('/').next().unwrap().parse().unwrap();
                let found = comments.iter_mut().find(|comment| comment["id"] == id).unwrap();
                found["body"] = seen.body["body"].clone();
                ok(found.clone())
            }
            line => panic!("{line}"),
        }
    }
}

#[tokio::test]
async fn one_marker_comment_of_our_own_is_made_then_edited_then_left_alone() {
    let double = Double::serve(comment_server(0)).await;
    let client = double.client();
    let marker = "<!-- agentd:issue-7 -->";
    let (made, change) = client.ensure_comment(&repo(), 7, marker, "one").await.unwrap();
    assert_eq!((made.id, change), (12, Ensured::Created), "neither mallory's copy nor a mention counts");
    let (edited, change) = client.ensure_comment(&repo(), 7, marker, "two").await.unwrap();
    assert_eq!((edited.id, change), (12, Ensured::Updated));
    let before = double.lines().len();
    let (_, change) = client.ensure_comment(&repo(), 7, marker, "two\n").await.unwrap();
    assert_eq!(change, Ensured::Unchanged);
    assert!(double.lines()[before..].iter().all(|line| line.starts_with("GET")));
}

#[tokio::test]
async fn a_comment_whose_answer_was_lost_is_found_instead_of_written_twice() {
    let double = Double::serve(comment_server(1)).await;
    let (_, change) =
        double.client().ensure_comment(&repo(), 7, "<!-- agentd:issue-7 -->", "one").await.unwrap();
    assert_eq!(change, Ensured::Created);
    assert_eq!(double.lines().iter().filter(|line| line.starts_with("POST")).count(), 1);
}

#[tokio::test]
async fn pages_are_followed_to_the_end_and_never_to_another_host() {
    let double = Double::serve(|seen, _| {
        let page = |number: u64, label: &str, actor: &str| {
            json!([{"id": number, "event": "labeled", "label": {"name": label}, "actor": {"login": actor, "id": number}}])
        };
        match seen.line.as_str() {
            "GET /repos/o/n/issues/7/events?per_page=100" => ok(page(1, "agentd", "ann"))
                .with("link", format!("<http://{}/repositories/1/issues/7/events?page=2>; rel=\"next\"", seen.headers["host"].to_str().unwrap())),
            "GET /repositories/1/issues/7/events?page=2" => ok(page(2, "AgentD", "bob")),
            "GET /repos/o/n/issues/8/events?per_page=100" => {
                ok(page(1, "agentd", "ann")).with("link", "<http://evil.invalid/x>; rel=\"next\"")
            }
            line => panic!("{line}"),
        }
    })
    .await;
    let client = double.client();
    let actor = client.last_labelling(&repo(), 7, "agentd").await.unwrap().unwrap().by.unwrap();
    assert_eq!((actor.login.as_str(), actor.id), ("bob", 2));
    assert_eq!(kind(client.last_labelling(&repo(), 8, "agentd").await), ErrorKind::Malformed);
}

#[tokio::test]
async fn d76_an_unchanged_list_of_two_pages_is_served_from_the_cache_by_304s() {
    let added = Arc::new(Mutex::new(false));
    let more = Arc::clone(&added);
    let double = Double::serve(move |seen, _| {
        let host = seen.headers["host"].to_str().unwrap();
        let second = seen.line.contains("page=2");
        let fresh = !second && *more.lock().unwrap();
        let tag = if fresh {
            "\"b\""
        } else if second {
            "\"p2\""
        } else {
            "\"a\""
        };
        if seen.headers.get("if-none-match").is_some_and(|value| value == tag) {
            return Answer(304, vec![], Value::Null);
        }
        let mut pull = issue(50);
        pull["pull_request"] = json!({});
        let items = match (second, fresh) {
            (true, _) => json!([issue(1), {"number": 2, "title": "Two", "state": ""}, {"broken": true}]),
            (false, false) => json!([issue(3), pull]),
            (false, true) => json!([issue(9), issue(3), pull]),
        };
        let answer = ok(items).with("etag", tag);
        if second {
            answer
        } else {
            answer.with("link", format!("<http://{host}/repositories/1/issues?page=2>; rel=\"next\""))
        }
    })
    .await;
    let client = double.client();
    let mut cache = PageCache::default();
    let numbers = |listing: &agentd::github::Listing| -> Vec<String> {
        listing.issues.iter().map(|issue| issue.issue.key.to_string()).collect()
    };
    let first = client.list_labelled(&repo(), "agentd now", &mut cache).await.unwrap();
    assert_eq!((numbers(&first), first.changed), (vec!["3".into(), "1".into()], true));
    assert!(double.lines()[0].contains("labels=agentd%20now"), "{:?}", double.lines());
    assert!(first.issues.iter().all(|issue| issue.issue.body.is_empty()));
    let counted = client.limits().counted;
    // Through text and back, as at a restart.
    cache = serde_json::from_str(&serde_json::to_string(&cache).unwrap()).unwrap();
    let again = client.list_labelled(&repo(), "agentd now", &mut cache).await.unwrap();
    assert_eq!((numbers(&again), again.changed), (numbers(&first), false));
    assert_eq!(client.limits().counted, counted, "an idle listing costs nothing");
    *added.lock().unwrap() = true;
    let third = client.list_labelled(&repo(), "agentd now", &mut cache).await.unwrap();
    assert_eq!((numbers(&third), third.changed), (vec!["9".into(), "3".into(), "1".into()], true));
}

#[tokio::test]
async fn s24_a_page_that_fails_fails_the_list_and_leaves_the_cache() {
    let double = Double::serve(|seen, _| {
        let host = seen.headers["host"].to_str().unwrap();
        if seen.line.contains("page=2") {
            return fails(500, "no");
        }
        ok(json!([issue(3)]))
            .with("etag", "\"a\"")
            .with("link", format!("<http://{host}/x?page=2>; rel=\"next\""))
    })
    .await;
    let mut cache = PageCache::default();
    assert!(double.client().list_labelled(&repo(), "agentd", &mut cache).await.is_err());
    assert_eq!(cache, PageCache::default());
}

#[tokio::test]
async fn a_conditional_read_of_an_unchanged_issue_says_so() {
    let double = Double::serve(|seen, _| match seen.headers.get("if-none-match") {
        Some(tag) if tag == "\"t\"" => Answer(304, vec![], Value::Null),
        _ => ok(issue(7)).with("etag", "\"t\""),
    })
    .await;
    let client = double.client();
    let Fetched::Fresh(_, tag) = client.issue_if_changed(&repo(), 7, None).await.unwrap() else { panic!() };
    assert_eq!(client.issue_if_changed(&repo(), 7, tag.as_deref()).await.unwrap(), Fetched::Unchanged);
    assert_eq!((client.limits().counted, client.limits().unchanged), (1, 1));
}

#[tokio::test]
async fn i47_a_limit_is_waited_for_within_the_patience_and_else_told_with_its_end() {
    let double = Double::serve(|_, before| {
        if before == 0 { fails(429, "slow down").with("retry-after", "1") } else { ok(issue(7)) }
    })
    .await;
    let client = double.client();
    let started = std::time::Instant::now();
    client.issue(&repo(), 7).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(950), "{:?}", started.elapsed());

    let long = Double::serve(|_, _| {
        fails(403, "API rate limit exceeded")
            .with("x-ratelimit-limit", "60")
            .with("x-ratelimit-remaining", "0")
            .with("x-ratelimit-reset", "4102444800")
    })
    .await;
    let client = long.client().patient(Duration::from_secs(2));
    let ErrorKind::RateLimited { until, .. } = kind(client.issue(&repo(), 7).await) else { panic!() };
    assert_eq!(until.unwrap().timestamp(), 4_102_444_800);
    assert!(matches!(kind(client.issue(&repo(), 8).await), ErrorKind::RateLimited { .. }));
    assert_eq!(long.lines().len(), 1, "the second was not sent at all");
    assert_eq!(client.limits().held.unwrap().limit, "primary");
}

#[tokio::test]
async fn permission_is_the_finest_level_github_names_and_nothing_for_strangers() {
    let double = Double::serve(|seen, _| match seen.line.split('/').nth(5).unwrap() {
        "ann" => ok(json!({"permission": "write", "role_name": "maintain"})),
        "bob" => ok(json!({"permission": "read", "role_name": "our-own-role"})),
        "dependabot%5Bbot%5D" => ok(json!({"permission": "none"})),
        _ => fails(404, "not a user"),
    })
    .await;
    let client = double.client();
    for (login, level) in [
        ("ann", ActorPermission::Maintain),
        ("bob", ActorPermission::Read),
        ("dependabot[bot]", ActorPermission::None),
        ("stranger", ActorPermission::None),
    ] {
        assert_eq!(client.permission(&repo(), login).await.unwrap(), level, "{login}");
    }
}

#[tokio::test]
async fn labels_are_made_once_put_on_and_taken_off_whatever_is_there() {
    let double = Double::serve(|seen, _| match seen.line.as_str() {
        "GET /repos/o/n/labels/agentd%3Adone" => fails(404, "Not Found"),
        "POST /repos/o/n/labels" => Answer(422, vec![], json!({"message": "Validation Failed", "errors": [{"resource": "Label", "code": "already_exists", "field": "name"}]})),
        "DELETE /repos/o/n/issues/7/labels/agentd%3Adone" => fails(404, "Label does not exist"),
        "POST /repos/o/n/issues/7/labels" => ok(json!([])),
        line => panic!("{line}"),
    })
    .await;
    let client = double.client();
    let label = LabelSpec { name: "agentd:done", color: "0e8a16", description: "d" };
    assert_eq!(client.ensure_label(&repo(), label).await.unwrap(), Ensured::Unchanged);
    client.remove_label(&repo(), 7, "agentd:done").await.unwrap();
    client.add_labels(&repo(), 7, &["agentd:done"]).await.unwrap();
    client.add_labels(&repo(), 7, &[]).await.unwrap();
    assert_eq!(double.seen(3).body, json!({"labels": ["agentd:done"]}));
    assert_eq!(double.lines().len(), 4);
}

fn commit() -> CommitId {
    CommitId::parse(&"1".repeat(40)).unwrap()
}

/// A server that keeps pull requests of `o/n`.
fn pull_server() -> impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static {
    let pulls: Mutex<Vec<Value>> = Mutex::new(vec![json!({
        "number": 3, "state": "open", "title": "fork", "head": {"ref": "feature/issue-7", "repo": {"full_name": "x/n"}},
        "base": {"ref": "develop"}
    })]);
    let posts = Mutex::new(0);
    move |seen, _| {
        let mut pulls = pulls.lock().unwrap();
        match seen.line.as_str() {
            "GET /repos/o/n/pulls?state=all&head=o:feature%2Fissue-7&per_page=100" => ok(json!(*pulls)),
            "POST /repos/o/n/pulls" => {
                let mut made = seen.body.clone();
                made["number"] = json!(11);
                made["state"] = json!("open");
                made["node_id"] = json!("PR_11");
                made["head"] = json!({"ref": seen.body["head"], "repo": {"full_name": "o/n"}});
                made["base"] = json!({"ref": seen.body["base"]});
                let mut posts = posts.lock().unwrap();
                *posts += 1;
                if *posts == 1 {
                    // Somebody else's was faster, or an earlier request of ours was not lost.
                    pulls.push(made);
                    return fails(422, "A pull request already exists for o:feature/issue-7.");
                }
                panic!("opened twice");
            }
            "PATCH /repos/o/n/pulls/11" => {
                let found = &mut pulls[1];
                for (name, value) in seen.body.as_object().unwrap() {
                    found[name] = if name == "base" { json!({"ref": value}) } else { value.clone() };
                }
                ok(found.clone())
            }
            "POST /graphql" => {
                let text = seen.body["query"].as_str().unwrap();
                pulls[1]["draft"] = json!(text.contains("convertPullRequestToDraft"));
                ok(json!({"data": {}}))
            }
            line => panic!("{line}"),
        }
    }
}

#[tokio::test]
async fn one_pull_request_per_head_branch_is_found_or_made_and_kept_as_it_should_be() {
    let double = Double::serve(pull_server()).await;
    let client = double.client();
    let branch = |name: &str| BranchName::parse(name).unwrap();
    let mut spec = PullSpec {
        head: branch("feature/issue-7"),
        commit: commit(),
        base: branch("develop"),
        title: "T".into(),
        body: "B".into(),
        draft: true,
    };
    let (pull, _) = client.ensure_pull(&repo(), &spec).await.unwrap();
    assert_eq!((pull.number, pull.draft, pull.base.as_str()), (11, true, "develop"));
    let (_, change) = client.ensure_pull(&repo(), &spec).await.unwrap();
    assert_eq!(change, Ensured::Unchanged);
    spec.draft = false;
    spec.base = branch("main");
    let (pull, change) = client.ensure_pull(&repo(), &spec).await.unwrap();
    assert_eq!((pull.draft, pull.base.as_str(), change), (false, "main", Ensured::Updated));
    let last = double.lines().iter().filter(|line| line.starts_with("PATCH")).count();
    assert_eq!(last, 1, "only what changed is written");
}

fn card(project: &str, value: Value) -> Value {
    json!({"isArchived": false, "project": {"title": project, "number": 1}, "fieldValueByName": value})
}

fn text(value: &str) -> Value {
    json!({"__typename": "ProjectV2ItemFieldTextValue", "text": value})
}

fn option(value: &str) -> Value {
    json!({"__typename": "ProjectV2ItemFieldSingleSelectValue", "name": value})
}

#[tokio::test]
async fn g02_project_fields_are_read_in_one_query_each_issue_with_its_own_answer() {
    let double = Double::serve(|seen, _| {
        assert_eq!(seen.body["variables"]["field"], "Target Branch");
        let cards = |nodes: Value| json!({"projectItems": {"pageInfo": {"hasNextPage": false}, "nodes": nodes}});
        ok(json!({
            "data": {"repository": {
                "i1": cards(json!([card("A", text("develop")), card("B", Value::Null)])),
                "i2": cards(json!([card("A", option("develop")), card("B", text("main"))])),
                "i3": cards(json!([])),
                "i4": null,
                "i5": cards(json!([card("A", json!({"__typename": "ProjectV2ItemFieldNumberValue"}))])),
                "i6": cards(json!([card("A", text("  "))])),
            }},
            "errors": [{"type": "NOT_FOUND", "path": ["repository", "i4"], "message": "Could not resolve to an Issue"}],
        }))
    })
    .await;
    let client = double.client();
    let mut found = client.project_fields(&repo(), &[1, 2, 3, 4, 5, 6], "Target Branch").await.unwrap();
    let mut take = |number: u64| found.remove(&number).unwrap();
    assert_eq!(take(1).unwrap().as_deref(), Some("develop"));
    let conflict = take(2).unwrap_err();
    for part in ["\"develop\" in project \"A\"", "\"main\" in project \"B\""] {
        assert!(conflict.to_string().contains(part), "{conflict}");
    }
    assert_eq!(take(3).unwrap(), None);
    assert_eq!(kind(take(4)), ErrorKind::NotFound);
    assert!(matches!(kind(take(5)), ErrorKind::FieldType { .. }));
    assert_eq!(take(6).unwrap(), None);
    assert_eq!(double.lines(), ["POST /graphql"]);
    assert!(client.project_fields(&repo(), &[], "x").await.unwrap().is_empty());
    assert_eq!(double.lines().len(), 1, "nothing asked, nothing sent");
}

#[tokio::test]
async fn project_cards_beyond_the_first_page_are_read_and_a_missing_scope_is_named() {
    let double = Double::serve(|seen, _| {
        let page = |next: Value, nodes: Value| json!({"projectItems": {"pageInfo": {"hasNextPage": !next.is_null(), "endCursor": next}, "nodes": nodes}});
        match &seen.body["variables"]["after"] {
            Value::Null => ok(json!({"data": {"repository": {"i7": page(json!("c1"), json!([card("A", Value::Null)]))}}})),
            _ => ok(json!({"data": {"repository": {"issue": page(Value::Null, json!([card("B", text("develop"))]))}}})),
        }
    })
    .await;
    assert_eq!(double.client().project_field(&repo(), 7, "f").await.unwrap().as_deref(), Some("develop"));

    let scope = Double::serve(|_, _| {
        ok(json!({"errors": [{"type": "INSUFFICIENT_SCOPES", "message": "Your token has not been granted"}]}))
    })
    .await;
    let error = scope.client().project_field(&repo(), 7, "f").await.unwrap_err();
    assert!(error.to_string().contains("read:project"), "{error}");
}

#[tokio::test]
async fn a_graphql_limit_with_status_200_is_a_limit() {
    let double = Double::serve(|_, _| {
        ok(json!({"errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]}))
    })
    .await;
    let client = double.client().patient(Duration::ZERO);
    assert!(matches!(kind(client.project_field(&repo(), 7, "f").await), ErrorKind::RateLimited { .. }));
}

#[tokio::test]
async fn issue_fields_come_from_the_issue_or_are_asked_for_and_their_absence_is_unset() {
    let double = Double::serve(|seen, _| match seen.line.as_str() {
        "GET /repos/o/n/issues/1" => {
            let mut one = issue(1);
            one["issue_field_values"] = json!([{"issue_field_name": "Base branch", "data_type": "single_select",
                "value": "develop", "single_select_option": {"id": 1, "name": "develop"}}]);
            ok(one)
        }
        "GET /repos/o/n/issues/3/issue-field-values?per_page=100" => {
            ok(json!([{"issue_field_name": "base_branch", "data_type": "text", "value": "main"}]))
        }
        line if line.ends_with("/issue-field-values?per_page=100") => fails(404, "Not Found"),
        line => ok(issue(line.rsplit('/').next().unwrap().parse().unwrap())),
    })
    .await;
    let client = double.client();
    for (number, value) in [(1, Some("develop")), (2, None), (3, Some("main"))] {
        let snapshot = client.issue(&repo(), number).await.unwrap();
        assert_eq!(client.issue_field(&snapshot, "base_branch").await.unwrap().as_deref(), value, "{number}");
    }
    assert_eq!(double.lines().iter().filter(|line| line.contains("issue-field-values")).count(), 2);
}

#[tokio::test]
async fn i64_declared_dependencies_that_cannot_be_seen_still_block() {
    let double = Double::serve(|seen, _| match seen.line.as_str() {
        "GET /repos/o/n/issues/7" => {
            let mut one = issue(7);
            one["issue_dependencies_summary"] = json!({"blocked_by": 2});
            one["sub_issues_summary"] = json!({"total": 3, "completed": 2});
            ok(one)
        }
        "GET /repos/o/n/issues/7/dependencies/blocked_by?per_page=100" => ok(json!([])),
        "GET /repos/o/n/issues/7/sub_issues?per_page=100" => ok(json!([
            {"number": 8, "state": "closed"}, {"number": 9, "state": "open"}])),
        line => panic!("{line}"),
    })
    .await;
    let client = double.client();
    let snapshot = client.issue(&repo(), 7).await.unwrap();
    let names: Vec<String> =
        client.waits_for(&snapshot).await.unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["2 that the token cannot see", "#9"]);
    let free = IssueSnapshot { open_blockers: Some(0), open_sub_issues: None, ..snapshot };
    assert!(client.waits_for(&free).await.unwrap().is_empty());
    assert_eq!(double.lines().len(), 3);
}

#[tokio::test]
async fn an_app_mints_once_shares_the_token_with_git_and_mints_again_when_it_is_refused() {
    let double = Double::serve(|seen, before| match seen.line.as_str() {
        "POST /api/v3/app/installations/22/access_tokens" => {
            assert_eq!(seen.authorization.split('.').count(), 3, "a JWT");
            let body = json!({"token": format!("ghs_{before}"), "expires_at": "2999-01-01T00:00:00Z"});
            Answer(201, vec![], body)
        }
        "GET /api/v3/app" => ok(json!({"slug": "helper", "id": 11})),
        "GET /api/v3/repos/o/n/issues/7" => {
            if seen.authorization == "Bearer ghs_0" && before > 3 {
                fails(401, "revoked")
            } else {
                ok(issue(7))
            }
        }
        "POST /api/graphql" => {
            ok(json!({"data": {"repository": {"i7": {"projectItems": {"pageInfo": {}, "nodes": []}}}}}))
        }
        line => panic!("{line}"),
    })
    .await;
    let key = include_str!("../data/throwaway-app-key.pem").to_owned();
    let credentials = Credentials::App { id: 11, installation_id: 22, private_key: SecretString::from(key) };
    let client = Client::new(Settings::new(format!("{}/api/v3", double.url), credentials)).unwrap();
    client.issue(&repo(), 7).await.unwrap();
    assert_eq!(client.git_token().await.unwrap().token.expose_secret(), "ghs_0");
    assert_eq!(client.viewer().await.unwrap().actor.login, "helper[bot]");
    client.project_field(&repo(), 7, "f").await.unwrap();
    assert_eq!(double.lines().len(), 4, "minted once: {:?}", double.lines());
    assert_eq!(double.seen(3).authorization, "Bearer ghs_0", "GraphQL of an Enterprise gets the token too");
    client.issue(&repo(), 7).await.unwrap();
    assert_eq!(client.git_token().await.unwrap().token.expose_secret(), "ghs_5");
}

#[tokio::test]
async fn an_apps_token_in_its_last_minutes_is_not_used_any_more() {
    for (minutes, mints) in [(4, 2), (6, 1)] {
        let double = Double::serve(move |seen, before| match seen.line.as_str() {
            "POST /app/installations/22/access_tokens" => {
                // GitHub's clock is another one than ours; its answers say what time it is there.
                let end = format!("2031-05-06T07:{:02}:00Z", 10 + minutes);
                let body = json!({ "token": format!("ghs_{before}"), "expires_at": end });
                let date = ("date", "Tue, 06 May 2031 07:10:00 GMT".to_owned());
                Answer(201, vec![date], body)
            }
            "GET /repos/o/n/issues/7" => ok(issue(7)),
            line => panic!("{line}"),
        })
        .await;
        let key = include_str!("../data/throwaway-app-key.pem").to_owned();
        let credentials =
            Credentials::App { id: 11, installation_id: 22, private_key: SecretString::from(key) };
        let client = Client::new(Settings::new(&double.url, credentials)).unwrap();
        client.issue(&repo(), 7).await.unwrap();
        client.issue(&repo(), 7).await.unwrap();
        let minted = double.lines().iter().filter(|line| line.ends_with("access_tokens")).count();
        assert_eq!(minted, mints, "{minutes} minutes before its end: {:?}", double.lines());
    }
}

#[tokio::test]
async fn credentials_that_cannot_be_used_are_refused_before_any_request() {
    for token in ["", "two words", "line\nbreak"] {
        let credentials = Credentials::Token(SecretString::from(token.to_owned()));
        let error = Client::new(Settings::new("http://127.0.0.1:1", credentials)).unwrap_err();
        assert!(error.to_string().contains("github.token"), "{error}");
    }
    let credentials = Credentials::App {
        id: 1,
        installation_id: 2,
        private_key: SecretString::from("nonsense".to_owned()),
    };
    let error = Client::new(Settings::new("http://127.0.0.1:1", credentials)).unwrap_err();
    assert!(error.to_string().contains("private_key"), "{error}");
}
