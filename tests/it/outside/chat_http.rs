//! The chat endpoint over HTTP: who may ask, what is kept, and what errors say (S-043, S-045, S-052, D52).

use std::path::PathBuf;
use std::time::Duration;

use agentd::sim::ReplyFile;
use serde_json::{Value, json};

use super::daemons::until;
use super::desk::ALLOW_ALL;
use super::front::{ADA_TOKEN, BOB_TOKEN, Front};
use super::solo::{calls, solo_of};
use super::world::World;

const ADA: &str = "550e8400-e29b-41d4-a716-446655440000";
const BOB: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";

fn reply(value: Value) -> ReplyFile {
    serde_json::from_value(value).unwrap()
}

fn says(text: &str) -> ReplyFile {
    reply(json!({ "text": text }))
}

/// A daemon whose front answers two users.
async fn endpoint(replies: Vec<ReplyFile>, more: &str) -> (World, Front) {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/mcp_server.py");
    let server = format!("[mcp.servers.desk]\ncommand = \"python3\"\nargs = [{script:?}]\n");
    let world = solo_of(replies, Some(ALLOW_ALL), &server, |scenario| scenario.model.names.clear()).await;
    let users = format!(
        "[session]\nretry_backoff = \"5ms\"\n[[chat.users]]\nid = \"{ADA}\"\ntoken = \"${{ADA_TOKEN}}\"\n\
         [[chat.users]]\nid = \"{BOB}\"\ntoken = \"${{BOB_TOKEN}}\"\n{more}"
    );
    let front = Front::start(&world, "10m", &users);
    (world, front)
}

impl Front {
    async fn send(&self, method: &str, path: &str, token: Option<&str>, body: Option<Value>) -> (u16, Value) {
        let method = method.parse().unwrap();
        let ask = self.http.request(method, format!("{}{path}", self.base));
        let ask = token.into_iter().fold(ask, |ask, token| ask.bearer_auth(token));
        let ask = body.into_iter().fold(ask, |ask, body| ask.body(body.to_string()));
        let answer = ask.send().await.unwrap();
        let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap());
        assert!(!text.contains(ADA_TOKEN) && !text.contains("a-key-of-the-simulator"), "S-048: {text}");
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    async fn says(&self, message: &str) -> (u16, Value) {
        let path = format!("/api/{ADA}/chat");
        self.send("POST", &path, Some(ADA_TOKEN), Some(json!({ "message": message }))).await
    }

    /// Roles and contents of one of Ada's conversations.
    async fn said(&self, conversation: &Value) -> Vec<(String, String)> {
        let path = format!("/api/{ADA}/conversations/{}", conversation.as_str().unwrap());
        let (status, kept) = self.send("GET", &path, Some(ADA_TOKEN), None).await;
        assert_eq!(status, 200, "{kept:#}");
        let text = |said: &Value, name: &str| said[name].as_str().unwrap().to_owned();
        let messages = kept["messages"].as_array().unwrap();
        messages.iter().map(|said| (text(said, "role"), text(said, "content"))).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s_042_s_043_s_052_a_conversation_goes_on_over_http_and_tools_run_for_its_user() {
    let who = calls(&[("desk__whoami", json!({ "user_id": BOB }))]);
    let (world, front) = endpoint(vec![who, says("You are Ada."), says("Still you.")], "").await;
    let (status, first) = front.says("Who am I?").await;
    assert_eq!(status, 200, "{first:#}");
    assert_eq!((&first["response"], &first["iterations"]), (&json!("You are Ada."), &json!(2)));
    assert_eq!((&first["status"], &first["warning"]), (&json!("completed"), &Value::Null));
    let asked = world.sim.model_requests()[1].body.to_string();
    assert!(asked.contains(ADA) && !asked.contains(&format!("\\\"user_id\\\":\\\"{BOB}")), "S-031: {asked}");

    let (_, second) = front.says("And now?").await;
    assert_eq!(second["conversation_id"], first["conversation_id"], "the newest goes on");
    let told = world.sim.model_requests()[2].body["messages"].to_string();
    let place = |text: &str| told.find(text).unwrap_or_else(|| panic!("{text}: {told}"));
    assert!(place("Who am I?") < place("You are Ada.") && place("You are Ada.") < place("And now?"));

    let said = front.said(&first["conversation_id"]).await;
    let roles: Vec<&str> = said.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"], "{said:?}");

    // Nothing else cost anything: no run was begun.
    let cost = front.json("/api/v1/cost").await;
    let spent = cost["conversations_usd"].as_f64().unwrap();
    assert!(spent > 0.0, "{cost:#}");
    assert_eq!(cost["total_usd"], spent, "{cost:#}");
    assert_eq!(cost["by_day"].as_object().unwrap().values().collect::<Vec<_>>(), [&json!(spent)]);
    let metrics = front.text("/metrics").await.1;
    assert!(metrics.contains(&format!("agentd_conversations_cost_usd_total {spent}\n")), "{metrics}");

    let mine = format!("/api/{ADA}/conversations");
    let (status, begun) = front.send("POST", &mine, Some(ADA_TOKEN), None).await;
    assert_eq!(status, 201);
    let (_, list) = front.send("GET", &mine, Some(ADA_TOKEN), None).await;
    let ids: Vec<&Value> =
        list["conversations"].as_array().unwrap().iter().map(|one| &one["conversation_id"]).collect();
    assert_eq!(ids, [&begun["conversation_id"], &first["conversation_id"]], "newest first: {list:#}");
    let gone = format!("{mine}/{}", begun["conversation_id"].as_str().unwrap());
    assert_eq!(front.send("DELETE", &gone, Some(ADA_TOKEN), None).await.0, 204);
    assert_eq!(front.send("GET", &gone, Some(ADA_TOKEN), None).await.0, 404);
    drop(front);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_043_s_045_d52_only_the_bearers_own_conversations_are_in_reach() {
    let (world, front) = endpoint(vec![says("hi")], "").await;
    let (_, first) = front.says("hello").await;
    let conversation = first["conversation_id"].clone();
    let hello = |more: Value| {
        let mut body = json!({ "message": "hello" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Some(body)
    };
    let chat = |user: &str| format!("/api/{user}/chat");
    let kept = |user: &str| format!("/api/{user}/conversations/{}", conversation.as_str().unwrap());
    for (method, path, token, body, expected) in [
        ("POST", chat(ADA), None, hello(json!({})), (401, "unauthorized")),
        ("POST", chat(ADA), Some("nobody's-token-0123456789"), hello(json!({})), (401, "unauthorized")),
        ("POST", chat(ADA), Some(BOB_TOKEN), hello(json!({})), (403, "UnauthorizedAccess")),
        ("POST", chat(BOB), Some(BOB_TOKEN), hello(json!({ "user_id": ADA })), (403, "UnauthorizedAccess")),
        (
            "POST",
            chat(BOB),
            Some(BOB_TOKEN),
            hello(json!({ "conversation_id": conversation })),
            (403, "UnauthorizedAccess"),
        ),
        (
            "POST",
            chat(BOB),
            Some(BOB_TOKEN),
            hello(json!({ "conversation_id": ADA })),
            (404, "ResourceNotFound"),
        ),
        ("GET", kept(ADA), Some(BOB_TOKEN), None, (403, "UnauthorizedAccess")),
        ("GET", kept(BOB), Some(BOB_TOKEN), None, (403, "UnauthorizedAccess")),
        ("DELETE", kept(BOB), Some(BOB_TOKEN), None, (403, "UnauthorizedAccess")),
        ("GET", format!("/api/{ADA}/conversations"), Some(BOB_TOKEN), None, (403, "UnauthorizedAccess")),
        ("GET", format!("/api/{ADA}/conversations"), None, None, (401, "unauthorized")),
    ] {
        let (status, answer) = front.send(method, &path, token, body).await;
        let code = answer["error"]["code"].as_str().unwrap_or_default();
        assert_eq!((status, code), expected, "{method} {path}: {answer:#}");
    }
    assert_eq!(world.sim.model_requests().len(), 1, "nobody else was answered");
    let (_, list) = front.send("GET", &format!("/api/{BOB}/conversations"), Some(BOB_TOKEN), None).await;
    assert_eq!(list["conversations"], json!([]));
    drop(front);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_032_s_033_s_048_s_052_an_error_has_friendly_words_an_id_and_leaves_no_answer() {
    let refused =
        reply(json!({ "error": { "status": 401, "message": "the key sk-live-0123456789 is wrong" } }));
    let (world, front) = endpoint(vec![refused, says("better now")], "").await;
    let (status, answer) = front.says("hello").await;
    let error = &answer["error"];
    assert_eq!((status, &error["code"]), (500, &json!("LLMAPIError")), "{answer:#}");
    assert_eq!(error["message"], "I'm having trouble connecting to my AI service. Please try again.");
    let run = error["run_id"].as_str().unwrap();
    let journal = world.dir.path().join("state/users").join(ADA).join("runs").join(run).join("events.jsonl");
    let journal = std::fs::read_to_string(journal).unwrap();
    assert!(journal.contains(error["error_id"].as_str().unwrap()), "S-017");

    let (status, answer) = front.says("again").await;
    assert_eq!((status, &answer["response"]), (200, &json!("better now")), "{answer:#}");
    let said = front.said(&answer["conversation_id"]).await;
    let said: Vec<(&str, &str)> = said.iter().map(|(role, text)| (role.as_str(), text.as_str())).collect();
    assert_eq!(said, [("user", "hello"), ("user", "again"), ("assistant", "better now")]);
    drop(front);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_052_an_answer_that_nobody_can_see_is_none_and_one_that_was_kept_ends_no_conversation() {
    let (world, front) = endpoint(vec![says("\u{200b}\u{202e}"), says("seen"), says("still here")], "").await;
    let (status, answer) = front.says("hello").await;
    assert_eq!((status, &answer["response"]), (200, &json!("seen")), "{answer:#}");
    let conversation = answer["conversation_id"].as_str().unwrap();
    let kept = world.dir.path().join("state/users").join(ADA).join("conversations");
    let kept = kept.join(format!("{conversation}.jsonl"));
    let text = std::fs::read_to_string(&kept).unwrap();
    let mut line: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    line["content"] = json!("\u{200b}\u{202e}");
    std::fs::write(&kept, format!("{text}{line}\n")).unwrap();

    let (status, answer) = front.says("go on").await;
    assert_eq!((status, &answer["response"]), (200, &json!("still here")), "{answer:#}");
    assert_eq!(answer["conversation_id"], conversation);
    assert_eq!(front.said(&answer["conversation_id"]).await.len(), 5);
    drop(front);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_015_s_041_a_long_history_and_used_up_iterations_are_warned_about() {
    let again = || calls(&[("desk__count", json!({}))]);
    let replies = vec![says("one"), again(), says("a summary")];
    let (world, front) = endpoint(replies, "[chat]\nhistory_warning = 2\nmax_iterations = 1\n").await;
    assert_eq!(front.says("first").await.1["warning"], Value::Null);
    let (status, answer) = front.says("second").await;
    assert_eq!((status, &answer["status"]), (200, &json!("max_iterations_reached")), "{answer:#}");
    assert_eq!(answer["response"], "a summary");
    let warning = answer["warning"].as_str().unwrap();
    assert!(warning.contains("3 messages") && warning.contains("1 iterations"), "{warning}");
    drop(front);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_002_s_005_s_049_a_wrong_request_is_refused_and_nothing_is_kept() {
    let (world, front) = endpoint(Vec::new(), "").await;
    let path = format!("/api/{ADA}/chat");
    let long = "x".repeat(64 * 1024 + 1);
    for (path, body, status) in [
        (path.as_str(), json!({}), 400),
        (&path, json!({ "message": " \u{202e} " }), 400),
        (&path, json!({ "message": 5 }), 400),
        (&path, json!({ "message": "hi", "messages": [] }), 400),
        (&path, json!({ "message": "hi", "conversation_id": "new" }), 400),
        (&path, json!(["hi"]), 400),
        (&path, json!({ "message": long }), 413),
        ("/api/me/chat", json!({ "message": "hi" }), 400),
    ] {
        let (got, answer) = front.send("POST", path, Some(ADA_TOKEN), Some(body)).await;
        assert_eq!(got, status, "{answer:#}");
        let words = answer["error"]["message"].as_str().unwrap();
        assert!(words.starts_with("Invalid request parameters"), "{words}");
    }
    let huge = Some(json!({ "message": "x".repeat(2 * 1024 * 1024) }));
    assert_eq!(front.send("POST", &path, Some(ADA_TOKEN), huge).await.0, 413);
    let (_, list) = front.send("GET", &format!("/api/{ADA}/conversations"), Some(ADA_TOKEN), None).await;
    assert_eq!(list["conversations"], json!([]));
    drop(front);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_requests_at_a_time_in_one_conversation_are_not_mixed() {
    let slow = reply(json!({ "text": "slow", "delay_ms": 1500 }));
    let (world, front) = endpoint(vec![slow, says("next")], "").await;
    let (first, second) = tokio::join!(front.says("a"), async {
        until("a request", || !world.sim.model_requests().is_empty()).await;
        front.says("b").await
    });
    assert_eq!((first.0, second.0), (200, 409), "{first:?} {second:?}");
    assert_eq!(second.1["error"]["code"], "conversation_busy");
    // A client that goes away finds its answer in the conversation.
    let path = format!("{}/api/{ADA}/chat", front.base);
    let impatient = front.http.post(path).bearer_auth(ADA_TOKEN).timeout(Duration::from_millis(50));
    let _ = impatient.body(json!({ "message": "c" }).to_string()).send().await;
    let mut said = Vec::new();
    while said.len() < 4 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        said = front.said(&first.1["conversation_id"]).await;
    }
    assert_eq!(said[3], ("assistant".to_owned(), "next".to_owned()));
    drop(front);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_046_tokens_that_anybody_could_guess_or_share_are_refused_at_the_start() {
    let world = solo_of(Vec::new(), Some(ALLOW_ALL), "", |_| ()).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let user = |id: &str, token: &str| format!("[[chat.users]]\nid = \"{id}\"\ntoken = \"{token}\"\n");
    for (listen, users, words) in [
        (true, user(ADA, "${SHORT}"), "shorter than 16"),
        (true, user(ADA, "a literal token of many letters"), "literal secret"),
        (true, user(ADA, "${LONG}") + &user(BOB, "${LONG}"), "another user's token"),
        (true, user(ADA, "${LONG}") + &user(ADA, "${OTHER}"), "twice"),
        (true, user("ada", "${LONG}"), "not a UUID"),
        (true, user(ADA, "${NOWHERE}"), "NOWHERE"),
        (false, user(ADA, "${LONG}"), "daemon.listen"),
    ] {
        let daemon = if listen { "[daemon]\nlisten = \"127.0.0.1:0\"\n" } else { "" };
        world.write("front.toml", &format!("{overlay}\n{daemon}\n{users}"));
        let config = world.dir.path().join("front.toml").display().to_string();
        let mut command = world.command(&["--config", &config, "daemon"]);
        command
            .env("SHORT", "short")
            .env("LONG", "long-long-long-long-long")
            .env("OTHER", "other-other-other-other");
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.code() == Some(4) && told.contains(words), "{words}: {told}");
    }
    world.sim.shutdown().await;
}

impl Front {
    /// Asks as Bob until the answer has this status.
    async fn becomes(&self, wanted: u16) {
        let asking = async {
            while self.send("GET", &format!("/api/{BOB}/conversations"), Some(BOB_TOKEN), None).await.0
                != wanted
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(60), asking).await.is_ok(), "never {wanted}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s10_who_may_chat_changes_without_a_restart_and_a_broken_change_changes_nothing() {
    let (world, front) = endpoint(vec![says("before"), says("after")], "").await;
    let (status, before) = front.says("hello").await;
    assert_eq!(status, 200, "{before:#}");
    let file = "front.toml";
    let good = std::fs::read_to_string(world.dir.path().join(file)).unwrap();
    let bob = format!("[[chat.users]]\nid = \"{BOB}\"\ntoken = \"${{BOB_TOKEN}}\"\n");
    assert!(good.contains(&bob), "{good}");
    world.write(file, &good.replace(&bob, ""));
    front.becomes(401).await;
    world.write(file, &good.replace(&bob, &bob.replace("BOB_TOKEN", "NOT_THERE")));
    until("it is said", || {
        let file =
            std::fs::read_to_string(world.dir.path().join("state/daemon/status.json")).unwrap_or_default();
        file.contains("NOT_THERE")
    })
    .await;
    // The one before counts: Ada goes on with her conversation, Bob is out.
    let (status, after) = front.says("again").await;
    assert_eq!((status, &after["conversation_id"]), (200, &before["conversation_id"]), "{after:#}");
    front.becomes(401).await;
    world.write(file, &good);
    front.becomes(200).await;
    drop(front);
    world.finish().await;
}

/// Others give most of it back in a moment; what is spent is there again on the next day.
#[tokio::test(flavor = "multi_thread")]
async fn d87_money_that_is_set_aside_or_used_up_has_words_and_a_status_of_its_own() {
    let more = "[chat]\nturn_timeout = \"1s\"\n[budgets]\nmax_cost_per_day = 10.0\n";
    let (world, front) = endpoint(vec![says("hi")], more).await;
    let spend = world.dir.path().join("state/spend");
    agentd::sys::files::create_private_dir(&spend).unwrap();
    let day = || spend.join(format!("{}.json", chrono::Utc::now().date_naive()));
    let path = format!("{}/api/{ADA}/chat", front.base);
    let aside = json!({ "spent": 0.0, "reserved": { ADA: 9.9999 } });
    let spent = json!({ "spent": 9.9999, "reserved": {} });
    for (kept, status, code, words) in [
        (aside, 429, "RateLimitError", "Please try again in a moment."),
        (spent, 503, "BudgetExceededError", "There is not enough money left"),
    ] {
        let mut kept = kept;
        kept["schema_version"] = json!("agentd.day_spending.v1");
        agentd::sys::files::write_private(&day(), kept.to_string().as_bytes()).unwrap();
        let ask = front.http.post(&path).bearer_auth(ADA_TOKEN).body(json!({ "message": "a" }).to_string());
        let answer = ask.send().await.unwrap();
        let (got, again) = (answer.status().as_u16(), answer.headers().get("retry-after").cloned());
        let error = answer.json::<Value>().await.unwrap()["error"].clone();
        assert_eq!((got, &error["code"]), (status, &json!(code)), "{error:#}");
        assert!(error["message"].as_str().unwrap().contains(words), "{error:#}");
        let again: u64 = again.unwrap().to_str().unwrap().parse().unwrap();
        assert!(if status == 429 { again == 5 } else { (1..=86_400).contains(&again) }, "{again}");
        let run = error["run_id"].as_str().unwrap();
        let journal =
            world.dir.path().join("state/users").join(ADA).join("runs").join(run).join("events.jsonl");
        let journal = std::fs::read_to_string(journal).unwrap();
        assert!(!journal.contains("is used up"), "{journal}");
        assert_eq!(journal.contains("is set aside for other requests"), status == 429, "{journal}");
    }
    assert!(world.sim.model_requests().is_empty());
    drop(front);
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_072_what_a_turn_had_sent_whose_process_was_killed_is_told_as_of_unknown_cost() {
    let hangs = reply(json!({ "text": "late", "delay_ms": 60_000 }));
    let (world, front) = endpoint(vec![hangs], "").await;
    let ask = front.http.post(format!("{}/api/{ADA}/chat", front.base)).bearer_auth(ADA_TOKEN);
    let asked = tokio::spawn(ask.body(json!({ "message": "a" }).to_string()).send());
    until("it is asked", || world.sim.model_requests().len() == 1).await;
    assert_eq!(front.json("/api/v1/cost").await["turns_of_unknown_cost"], 0, "it works");
    drop(front);
    assert!(asked.await.unwrap().is_err());
    let front = Front::start(&world, "10m", "");
    for _ in 0..2 {
        let cost = front.json("/api/v1/cost").await;
        assert_eq!((&cost["turns_of_unknown_cost"], &cost["runs_of_unknown_cost"]), (&json!(1), &json!(0)));
        assert_eq!(cost["unknown_by_day"].as_object().unwrap().len(), 1, "{cost:#}");
    }
    drop(front);
    world.sim.shutdown().await;
}
