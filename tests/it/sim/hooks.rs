//! Simulated webhooks: signed, lost, doubled, late; and who is asked and silenced.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::routing::post;
use hmac::{Hmac, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use super::{Caller, REPO, example};

type Heard = Arc<Mutex<Vec<(String, String, Value)>>>;

/// A listener that keeps event, delivery and body of what is signed right.
async fn listener() -> (String, Heard) {
    let heard = Heard::default();
    let kept = Arc::clone(&heard);
    let hook = async move |headers: HeaderMap, body: Bytes| {
        let mut mac = Hmac::<Sha256>::new_from_slice(b"s3cret").unwrap();
        mac.update(&body);
        let signature = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
        assert_eq!(headers["x-hub-signature-256"].to_str().unwrap(), signature);
        let text = |name: &str| headers[name].to_str().unwrap().to_owned();
        let body = serde_json::from_slice(&body).unwrap();
        kept.lock().unwrap().push((text("x-github-event"), text("x-github-delivery"), body));
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/hook", post(hook))).await });
    (url, heard)
}

/// The events heard so far, once the last of them is `last`.
async fn until(heard: &Heard, last: &str) -> Vec<String> {
    let began = Instant::now();
    loop {
        let events: Vec<String> = heard.lock().unwrap().iter().map(|(event, ..)| event.clone()).collect();
        if events.iter().any(|event| event == last) {
            return events;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "no {last} among {events:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_signed_and_come_lost_doubled_and_late_as_planned() {
    let sim = example().await;
    let (url, heard) = listener().await;
    sim.admin("POST", "repos/octo/greeter/hooks", &json!({"url": url, "secret": "s3cret"})).unwrap();
    // The first look only learns what is there: a label shows when it has happened.
    let mut n = 0;
    while heard.lock().unwrap().is_empty() {
        n += 1;
        sim.add_label(REPO, 1, &format!("look-{n}"), "octo");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    until(&heard, "issues").await;
    heard.lock().unwrap().clear();
    let fault = |kind: Value| sim.inject(&serde_json::from_value(kind).unwrap()).unwrap();
    fault(json!({"method": "HOOK", "path": "/hooks/issue_comment", "kind": "drop"}));
    sim.add_comment(REPO, 1, "dev", "lost").unwrap();
    sim.add_check(
        REPO,
        &serde_json::from_value(json!({"on": "main", "name": "ci", "outcome": "failure"})).unwrap(),
    );
    until(&heard, "status").await;
    assert!(!heard.lock().unwrap().iter().any(|(event, ..)| event == "issue_comment"));
    fault(json!({"method": "HOOK", "path": "/hooks/issue_comment", "kind": "double"}));
    let id = sim.add_comment(REPO, 1, "dev", "twice").unwrap();
    let began = Instant::now();
    let twice = loop {
        let found: Vec<_> =
            heard.lock().unwrap().iter().filter(|(event, ..)| event == "issue_comment").cloned().collect();
        if found.len() == 2 {
            break found;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{found:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!((&twice[0].1, &twice[0].2["comment"]["id"]), (&twice[1].1, &json!(id)));
    assert_eq!(
        (&twice[0].2["action"], &twice[0].2["repository"]["full_name"]),
        (&json!("created"), &json!(REPO))
    );
    fault(json!({"method": "HOOK", "path": "/hooks/push", "kind": "delay", "delay_ms": 300}));
    let commit = json!({"branch": "main", "files": {"x": "y"}});
    let began = Instant::now();
    sim.admin("POST", "repos/octo/greeter/commits", &commit).unwrap();
    until(&heard, "push").await;
    assert!(began.elapsed() >= Duration::from_millis(300));
}

#[tokio::test(flavor = "multi_thread")]
async fn reviewers_and_assignees_are_asked_and_a_lock_silences_strangers() {
    let sim = example().await;
    let api = Caller::new(&sim);
    sim.admin("PUT", "repos/octo/greeter/collaborators/ada", &json!({"role": "write"})).unwrap();
    let open = json!({"title": "t", "head": "develop", "base": "main"});
    let pull = api.send("POST", "/repos/octo/greeter/pulls", open).await.1;
    let path = format!("/repos/octo/greeter/pulls/{}/requested_reviewers", pull["number"]);
    let (status, asked) = api.send("POST", &path, json!({"reviewers": ["ada"]})).await;
    assert_eq!((status, &asked["requested_reviewers"][0]["login"]), (201, &json!("ada")));
    assert_eq!(api.send("POST", &path, json!({"reviewers": ["stranger"]})).await.0, 422);
    assert_eq!(api.get(&path).await.1["users"][0]["login"], "ada");
    sim.add_review(REPO, pull["number"].as_u64().unwrap(), "ada", "APPROVED", "");
    assert_eq!(api.get(&path).await.1["users"], json!([]));
    let assign = json!({"assignees": ["ada", "stranger"]});
    let (status, issue) = api.send("POST", "/repos/octo/greeter/issues/1/assignees", assign).await;
    assert_eq!((status, issue["assignees"].as_array().unwrap().len()), (201, 1));
    assert_eq!(sim.issue(REPO, 1).unwrap().events.last().unwrap().kind, "assigned");
    let lock = "/repos/octo/greeter/issues/1/lock";
    assert_eq!(api.send("PUT", lock, json!({"lock_reason": "bored"})).await.0, 422);
    assert_eq!(api.send("PUT", lock, json!({"lock_reason": "spam"})).await.0, 204);
    let locked = api.get("/repos/octo/greeter/issues/1").await.1;
    assert_eq!((&locked["locked"], &locked["active_lock_reason"]), (&json!(true), &json!("spam")));
    let reader = agentd::sim::world::Token {
        secret: "reader".to_owned(),
        login: "wes".to_owned(),
        permissions: None,
        repositories: None,
        installation: None,
        expires_at: None,
    };
    sim.world().tokens.push(reader);
    sim.world().user("wes");
    let stranger = Caller::with(&sim, "reader");
    let comments = "/repos/octo/greeter/issues/1/comments";
    assert_eq!(stranger.send("POST", comments, json!({"body": "but"})).await.0, 403);
    assert_eq!(api.send("DELETE", lock, json!({})).await.0, 204);
    assert_eq!(stranger.send("POST", comments, json!({"body": "but"})).await.0, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_come_as_html_with_signed_images_where_that_is_asked_for() {
    let sim = example().await;
    let api = Caller::new(&sim);
    let made =
        sim.admin("POST", "repos/octo/greeter/attachments", &json!({"base64": "iVBORw0KGgo="})).unwrap();
    let body = format!("see ![shot]({}) <b>", made["url"].as_str().unwrap());
    let id = sim.add_comment(REPO, 1, "dev", &body).unwrap();
    let path = format!("/repos/octo/greeter/issues/comments/{id}");
    assert_eq!(api.get(&path).await.1["body_html"], Value::Null);
    let full = api.request("GET", &path).header("accept", "application/vnd.github.full+json");
    let full = super::answer(full).await.1;
    let html = full["body_html"].as_str().unwrap();
    assert!(html.contains("&lt;b&gt;") && full["body"] == json!(body), "{html}");
    let link = html.split("src=\"").nth(1).unwrap().split('"').next().unwrap().replace("&amp;", "&");
    let image = reqwest::get(&link).await.unwrap();
    assert_eq!(image.headers()["content-type"].to_str().unwrap(), "image/png");
    assert!(image.bytes().await.unwrap().starts_with(b"\x89PNG"));
    assert_eq!(reqwest::get(link.replace("sig=", "sig=0")).await.unwrap().status(), 403);
}
