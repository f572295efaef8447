//! An agent's questions: asked once, waited for without a process, and gone on with where it stopped.

use agentd::sim::{ReplyFile, Scenario};
use serde_json::{Value, json};

use crate::outside::daemons::{Running, until, until_or};
use crate::outside::solo::{asked, calls, newest, reports, solo_of};
use crate::outside::world::World;

fn question() -> ReplyFile {
    let arguments = json!({
        "question": "In which unit is the discount?", "options": ["cents", "dollars"], "default": "cents",
    });
    calls(&[("agent__ask", arguments)])
}

fn people(scenario: &mut Scenario) {
    scenario.users.push(serde_json::from_value(json!({ "login": "max" })).unwrap());
    let may = serde_json::from_value(json!("write")).unwrap();
    scenario.repositories[0].collaborators.insert("max".to_owned(), may);
}

async fn world(replies: Vec<ReplyFile>, more: &str) -> World {
    let more = format!("[conversation]\nquiet_period = \"1s\"\n{more}\n");
    let world = solo_of(replies, None, &more, people).await;
    world.configure(&["agent = \"solo\""]);
    world
}

fn comments(world: &World) -> Vec<String> {
    world.sim.issue("demo/shop", 7).unwrap().comments.into_iter().map(|comment| comment.body).collect()
}

fn told(world: &World, what: &str) -> usize {
    comments(world).iter().filter(|body| body.contains(what)).count()
}

fn labels(world: &World) -> Vec<String> {
    let mut labels = world.labels();
    labels.sort();
    labels
}

async fn until_parked(world: &World) {
    let parked =
        || labels(world) == ["agentd", "agentd:needs-input"] && told(world, "issue-7:question-1 ") == 1;
    until_or("parked", parked, || format!("{:?} {:#?}", labels(world), comments(world))).await;
}

async fn until_labels(world: &World, wanted: &[&str]) {
    until_or(
        "the labels",
        || labels(world) == wanted,
        || format!("{:?} {:#?}", labels(world), comments(world)),
    )
    .await;
}

fn events(world: &World) -> Vec<Value> {
    let text = std::fs::read_to_string(newest(world).join("events.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn c_i52_a_question_waits_over_a_restart_without_a_process_and_its_step_goes_on_with_the_answer() {
    let world = world(vec![question(), reports("Done.", json!([]))], "").await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    until_parked(&world).await;
    let asks = comments(&world).into_iter().find(|body| body.contains("issue-7:question-1 ")).unwrap();
    for part in ["@ada", "1. cents", "2. dollars", "`/agentd answer TEXT`", "agentd answer 7 TEXT"] {
        assert!(asks.contains(part), "{part}: {asks}");
    }
    let assigned = format!("{:?}", world.sim.issue("demo/shop", 7).unwrap());
    assert!(assigned.contains("ada"), "{assigned}");
    daemon.stop().await;
    let first = newest(&world);
    let result: Value = serde_json::from_slice(&std::fs::read(first.join("result.json")).unwrap()).unwrap();
    assert_eq!(result["stop_detail"], "question_pending", "{result:#}");
    let spent = std::fs::read(world.dir.path().join("state/repos/demo/shop/spend/7.json")).unwrap();

    let daemon = Running::start(&world, &[]);
    let shown = || {
        let text = std::fs::read(world.dir.path().join("state/daemon/status.json")).unwrap_or_default();
        serde_json::from_slice::<Value>(&text).unwrap_or_default()["parked"][0].clone()
    };
    until_or(
        "the queue shows it",
        || shown()["asked"]["options"] == json!(["cents", "dollars"]),
        || shown().to_string(),
    )
    .await;
    assert_eq!(shown()["code"], "question_pending");
    assert!(shown()["asked"]["url"].is_string() && shown()["asked"]["deadline"].is_string(), "{:#}", shown());
    let status = world.agentd(&["status"]).await;
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("; 1. cents, 2. dollars; since 20") && status.contains("; until 20"), "{status}");
    let (_, why) = world.json(&["why", "7"]).await;
    let codes: Vec<&str> = why["rules"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|rule| rule["code"].as_str())
        .filter(|code| *code != "ok")
        .collect();
    assert_eq!(codes, ["waits_for_answer"], "{why:#}");
    assert_eq!(world.sim.model_requests().len(), 1, "nothing is spent meanwhile");
    let now = std::fs::read(world.dir.path().join("state/repos/demo/shop/spend/7.json")).unwrap();
    assert_eq!(spent, now);

    world.sim.add_comment("demo/shop", 7, "ada", "2");
    until_labels(&world, &["agentd:done"]).await;
    daemon.stop().await;
    let requests = asked(&world);
    assert_eq!(requests.len(), 2);
    assert!(
        requests[1].contains("The answer to your question") && requests[1].contains("dollars"),
        "{}",
        requests[1]
    );
    assert_eq!(told(&world, "The agent asked:"), 1);
    assert_eq!(told(&world, "ada answered"), 1, "{:#?}", comments(&world));
    let events = events(&world);
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["kind"].as_str()).collect();
    assert!(kinds.contains(&"resumed") && kinds.contains(&"question_answered"), "{kinds:?}");
    let visited = events.iter().find(|event| event["kind"] == "visit_started").unwrap();
    assert_eq!(visited["data"]["step_id"], "initial.issue");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_i53_an_outsider_s_answer_is_none_and_of_two_collaborators_the_first_one_s_counts() {
    let world = world(vec![question(), reports("Done.", json!([]))], "").await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    until_parked(&world).await;
    world.sim.add_comment("demo/shop", 7, "mallory", "1");
    world.sim.add_comment("demo/shop", 7, "max", "I would look at the tests first.");
    world.sim.add_comment("demo/shop", 7, "max", "dollars, as everywhere");
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd answer cents");
    until_labels(&world, &["agentd:done"]).await;
    daemon.stop().await;
    let answered = events(&world).into_iter().find(|event| event["kind"] == "question_answered").unwrap();
    assert_eq!(answered["data"]["by"], "max", "{answered:#}");
    assert!(answered["data"]["text"].as_str().unwrap().starts_with("dollars"), "{answered:#}");
    assert_eq!(answered["data"]["permission"], "write");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_i54_nobody_answers_and_after_one_reminder_the_rule_decides() {
    for (rule, wanted) in [("end", &["agentd:attention"][..]), ("default", &["agentd:done"][..])] {
        let more = format!(
            "[questions]\nremind = \"1s\"\ntimeout = \"6s\"\non_timeout = \"{rule}\"\nassign = false\n"
        );
        let world = world(vec![question(), reports("Done.", json!([]))], &more).await;
        world.sim.add_label("demo/shop", 7, "agentd", "ada");
        let daemon = Running::start(&world, &[]);
        until_parked(&world).await;
        let instead = || format!("{:#?}", comments(&world));
        until_or("a reminder", || told(&world, "The agent still waits for an answer") == 1, instead).await;
        until_labels(&world, wanted).await;
        assert_eq!(told(&world, "The agent still waits for an answer"), 1);
        assert!(!world.sim.requests().iter().any(|asked| asked.target.ends_with("/assignees")));
        daemon.stop().await;
        if rule == "default" {
            assert_eq!(told(&world, "the agent goes on with its own default"), 1, "{:#?}", comments(&world));
        }
        world.sim.shutdown().await;
    }
}

/// The question is on GitHub, and the process dies before it gets further.
async fn killed_while_it_asks(world: &World) {
    let slow = json!({ "method": "POST", "path": "/**/issues/7/assignees", "kind": "delay", "delay_ms": 60_000, "times": 1 });
    world.sim.inject(&serde_json::from_value(slow).unwrap()).unwrap();
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(world, &[]);
    until("the question", || told(world, "issue-7:question-1 ") == 1).await;
    until("the next request", || {
        world.sim.requests().iter().any(|asked| asked.target.ends_with("/assignees"))
    })
    .await;
    daemon.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_posted_once_also_where_the_process_is_killed_while_it_asks() {
    let world = world(vec![question(), question(), reports("Done.", json!([]))], "").await;
    killed_while_it_asks(&world).await;
    let daemon = Running::start(&world, &[]);
    until_parked(&world).await;
    assert_eq!(world.sim.model_requests().len(), 1, "the agent is not asked again");
    // Taken off, the label ends it.
    world.sim.remove_label("demo/shop", 7, "agentd", "ada");
    until_labels(&world, &[]).await;
    assert_eq!(told(&world, "issue-7:question-1 "), 1);
    // Nobody is told to answer, and no other host takes it for a parked one.
    let over = || told(&world, "A person was waited for, and is no more") == 1;
    until_or("it says so", over, || format!("{:#?}", comments(&world))).await;
    for part in ["To answer, comment", "**Parked: it waits", "agentd:parked", "Answer the agent's question"] {
        assert_eq!(told(&world, part), 0, "{part}: {:#?}", comments(&world));
    }
    assert_eq!(told(&world, "It is not waited for any more"), 1, "{:#?}", comments(&world));
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_while_the_process_that_asked_is_dead_is_heard() {
    let world = world(vec![question(), reports("Done.", json!([]))], "").await;
    killed_while_it_asks(&world).await;
    world.sim.add_comment("demo/shop", 7, "ada", "2");
    let daemon = Running::start(&world, &[]);
    until_labels(&world, &["agentd:done"]).await;
    daemon.stop().await;
    let requests = asked(&world);
    assert_eq!(requests.len(), 2, "{requests:#?}");
    assert!(requests[1].contains("The answer to your question") && requests[1].contains("dollars"));
    assert_eq!(told(&world, "The agent asked:"), 1);
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_edited_before_it_was_read_counts_and_other_commands_say_what_is_waited_for() {
    let world = world(vec![question(), reports("Done.", json!([]))], "").await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    until_parked(&world).await;
    for (command, says) in
        [("/agentd run", "No run was queued."), ("/agentd approve", "Nothing was approved.")]
    {
        world.sim.add_comment("demo/shop", 7, "ada", command);
        until_or(command, || told(&world, says) == 1, || format!("{:#?}", comments(&world))).await;
        let answer = comments(&world).into_iter().find(|body| body.contains(says)).unwrap();
        assert!(answer.contains("`/agentd answer TEXT`"), "{answer}");
    }
    daemon.kill();
    let id = world.sim.add_comment("demo/shop", 7, "ada", "/agentd answer 1").unwrap();
    let at = (chrono::Utc::now() + chrono::TimeDelta::seconds(3)).to_rfc3339();
    let edited = json!({ "body": "/agentd answer 2", "actor": "ada", "at": at });
    super::briefing::admin(&world, "PATCH", &format!("comments/{id}"), &edited);
    let daemon = Running::start(&world, &[]);
    until_labels(&world, &["agentd:done"]).await;
    daemon.stop().await;
    let answered = events(&world).into_iter().find(|event| event["kind"] == "question_answered").unwrap();
    assert!(answered["data"]["text"].as_str().unwrap().starts_with("dollars"), "{answered:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_machine_s_user_answers_a_run_of_the_foreground_and_goes_on_with_it() {
    let world = world(vec![question(), reports("Done.", json!([]))], "").await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("question_pending")), "{output:#}");
    // No daemon has ever worked here, and no label asks for it: it is told all the same.
    let (_, status) = world.json(&["status"]).await;
    assert_eq!(
        (&status["parked"][0]["issue"], &status["parked"][0]["code"]),
        (&json!(7), &json!("question_pending")),
        "{status:#}"
    );
    let (_, why) = world.json(&["why", "7"]).await;
    assert_eq!(
        (&why["outlook"], &why["do"]),
        (&json!("needs_you"), &json!("agentd answer 7 TEXT")),
        "{why:#}"
    );
    let (code, _) = world.json(&["answer", "8", "2"]).await;
    assert_eq!(code, Some(4));
    let (code, answered) = world.json(&["answer", "7", "2"]).await;
    assert_eq!((code, &answered["goes_on"]), (Some(0), &json!(false)), "{answered:#}");
    let (code, _) = world.json(&["answer", "7", "1"]).await;
    assert_eq!(code, Some(4), "it is answered");
    let (code, resumed) = world.json(&["runs", "resume", answered["run_id"].as_str().unwrap()]).await;
    assert_eq!(code, Some(0), "{resumed:#}");
    assert!(asked(&world)[1].contains("dollars"));
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_run_of_an_issue_whose_question_was_answered_goes_on_with_the_answer() {
    let world = world(vec![question(), reports("Done.", json!([]))], "").await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("question_pending")), "{output:#}");
    assert_eq!(world.json(&["answer", "7", "2"]).await.0, Some(0));
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let asked = asked(&world);
    assert!(asked.len() == 2 && asked[1].contains("dollars"), "{asked:#?}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_after_the_daemon_s_end_is_told_as_such_and_no_daemon_waits_for_it_again() {
    let world = world(vec![question(), reports("Done.", json!([]))], "").await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    until_parked(&world).await;
    let shown = || {
        let text = std::fs::read(world.dir.path().join("state/daemon/status.json")).unwrap_or_default();
        serde_json::from_slice::<Value>(&text).unwrap_or_default()
    };
    let rows = |status: &Value| {
        let rows = |name: &str| status[name].as_array().cloned().unwrap_or_default();
        let all: Vec<Value> = rows("waiting").into_iter().chain(rows("parked")).collect();
        all.iter().map(|row| row["code"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    until_or("it is told once", || rows(&shown()) == ["question_pending"], || format!("{:#}", shown())).await;
    daemon.stop().await;
    let (code, answered) = world.json(&["answer", "7", "2"]).await;
    assert_eq!(code, Some(0), "{answered:#}");
    let (_, told) = world.json(&["status"]).await;
    assert_eq!(rows(&told["status"]), ["answered"], "{told:#}");
    let (code, resumed) = world.json(&["runs", "resume", answered["run_id"].as_str().unwrap()]).await;
    assert_eq!(code, Some(0), "{resumed:#}");
    let (_, told) = world.json(&["status"]).await;
    assert!(rows(&told["status"]).is_empty(), "{told:#}");
    let daemon = Running::start(&world, &[]);
    super::pull_request::ticks(&world, 3).await;
    until_or("nothing waits", || rows(&shown()).is_empty(), || format!("{:#}", shown())).await;
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follow_up_run_asks_and_goes_on_with_the_answer_though_no_label_asked_for_it() {
    use super::pull_request::{comment, delivered_in, labelled_with, replies, runs, said};
    let mut replies = replies(3);
    replies[1] = ReplyFile { when: replies[1].when.clone(), times: Some(1), ..question() };
    let (world, daemon, pull) =
        delivered_in(labelled_with(replies, "[conversation]\nquiet_period = \"1s\"\n").await).await;
    let mention = comment(&world, pull, "ada", "@agentd-demo please mend the discount.");
    let parked = || labels(&world) == ["agentd:needs-input"] && told(&world, "issue-7:question-1 ") == 1;
    until_or("parked", parked, || format!("{:?} {:#?}", labels(&world), comments(&world))).await;
    super::pull_request::ticks(&world, 3).await;
    assert_eq!(labels(&world), ["agentd:needs-input"], "it is waited for");
    assert_eq!(runs(&world), 2);
    let before = world.sim.model_requests().len();
    world.sim.add_comment("demo/shop", 7, "ada", "2");
    until_labels(&world, &["agentd:done"]).await;
    assert_eq!(runs(&world), 3);
    let next = world.told(before);
    assert!(next.contains("The answer to your question") && next.contains("dollars"), "{next}");
    assert!(next.contains("please mend the discount"), "{next}");
    // What the follow-up run was about has its answer.
    let name = format!("comment-{mention}");
    until("its answer", || said(&world, pull, &name).len() == 1).await;
    daemon.stop().await;
    world.finish().await;
}

/// A world whose follow-up run has asked something and waits, with the pull request.
async fn asked_in_a_follow_up_run() -> (World, Running, u64) {
    use super::pull_request::{comment, delivered_in, labelled_with, replies};
    let mut replies = replies(3);
    replies[1] = ReplyFile { when: replies[1].when.clone(), times: Some(1), ..question() };
    let (world, daemon, pull) =
        delivered_in(labelled_with(replies, "[conversation]\nquiet_period = \"1s\"\n").await).await;
    comment(&world, pull, "ada", "@agentd-demo please mend the discount.");
    let parked = || labels(&world) == ["agentd:needs-input"] && told(&world, "issue-7:question-1 ") == 1;
    until_or("parked", parked, || format!("{:?} {:#?}", labels(&world), comments(&world))).await;
    (world, daemon, pull)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_of_an_issue_that_went_where_nobody_sees_it_is_waited_for_no_more() {
    let world = world(vec![question()], "").await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    until_parked(&world).await;
    let moved = json!({ "moved_to": "demo/hidden#1", "actor": "ada" });
    super::briefing::admin(&world, "PATCH", "issues/7", &moved);
    let missed = || {
        let asked = world.sim.requests();
        asked.iter().filter(|one| one.target.ends_with("/issues/7") && one.status == 404).count()
    };
    until("it is missed", || missed() > 0).await;
    super::pull_request::ticks(&world, 5).await;
    assert!(missed() <= 2, "it is asked for at each look: {}", missed());
    daemon.stop().await;
    let (_, shown) = world.json(&["status"]).await;
    assert_eq!(shown["status"]["parked"], json!([]), "{shown:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_at_a_line_while_a_follow_up_run_s_question_waits_is_no_answer_and_has_one_of_its_own() {
    use super::pull_request::{REPO, review, runs, ticks};
    let (world, daemon, pull) = asked_in_a_follow_up_run().await;
    let line = review(&world, pull, "ada", "COMMENT", "", &["2 spaces too many here."])[0];
    let heard = || super::pull_request::fate(&world, &format!("review-comment-{line}")) == "waiting";
    until_or("it is heard", heard, || format!("{:#}", super::pull_request::inbox(&world))).await;
    ticks(&world, 4).await;
    assert_eq!((runs(&world), labels(&world)), (2, vec!["agentd:needs-input".to_owned()]), "no answer");
    let before = world.sim.model_requests().len();
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd answer dollars");
    until_labels(&world, &["agentd:done"]).await;
    let next: Vec<String> = (before..world.sim.model_requests().len()).map(|at| world.told(at)).collect();
    assert!(next.iter().any(|told| told.contains("2 spaces too many")), "{next:#?}");
    let replied = || {
        let threads = world.sim.issue(REPO, pull).unwrap().pull.unwrap().threads;
        threads
            .iter()
            .flat_map(|thread| &thread.comments)
            .filter(|one| one.comment.author == "agentd-demo")
            .count()
    };
    until_or(
        "a reply in its thread",
        || replied() == 1,
        || format!("{:#?} {:#}", comments(&world), super::pull_request::inbox(&world)),
    )
    .await;
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_follow_up_run_asked_ends_with_its_pull_request_and_holds_no_next_run_back() {
    use super::pull_request::runs;
    let (world, daemon, pull) = asked_in_a_follow_up_run().await;
    let (_, why) = world.json(&["why", "7"]).await;
    assert_eq!(why["do"], "agentd answer 7 TEXT", "{why:#}");
    super::briefing::admin(&world, "POST", &format!("pulls/{pull}/merge"), &json!({ "actor": "ada" }));
    let over = || told(&world, "A person was waited for, and is no more") == 1;
    until_or("it is told", over, || format!("{:?} {:#?}", labels(&world), comments(&world))).await;
    until_labels(&world, &["agentd:done"]).await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until_or(
        "the next run",
        || runs(&world) == 3,
        || format!("{:?} {:#?}", labels(&world), comments(&world)),
    )
    .await;
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_ended_with_its_pull_request_is_on_no_label_when_that_is_opened_again() {
    use super::pull_request::{review, runs, ticks};
    let (world, daemon, pull) = asked_in_a_follow_up_run().await;
    let set = |state: &str| {
        let state = json!({ "state": state, "actor": "ada" });
        super::briefing::admin(&world, "PATCH", &format!("issues/{pull}"), &state)
    };
    set("closed");
    until_labels(&world, &["agentd:failed"]).await;
    assert_eq!(told(&world, "A person was waited for, and is no more"), 1);
    set("open");
    until_labels(&world, &["agentd:done"]).await;
    ticks(&world, 3).await;
    assert_eq!((labels(&world), runs(&world)), (vec!["agentd:done".to_owned()], 2));
    let (_, status) = world.json(&["status"]).await;
    let status = &status["status"];
    assert_eq!((&status["waiting"], &status["parked"]), (&json!([]), &json!([])), "{status:#}");
    // Nothing holds the next run back.
    review(&world, pull, "ada", "CHANGES_REQUESTED", "Another note, please.", &[]);
    until_or("the next run", || runs(&world) == 3, || format!("{:#?}", comments(&world))).await;
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_follow_up_run_asked_is_stopped_by_a_comment_and_holds_no_next_run_back() {
    use super::pull_request::runs;
    let (world, daemon, _) = asked_in_a_follow_up_run().await;
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd stop");
    until_labels(&world, &[]).await;
    let over = || told(&world, "A person was waited for, and is no more") == 1;
    until_or("it is told", over, || format!("{:#?}", comments(&world))).await;
    until_or("an answer", || told(&world, "ada stopped it") >= 2, || format!("{:#?}", comments(&world)))
        .await;
    assert_eq!(told(&world, "Nothing runs and nothing waits"), 0);
    super::pull_request::ticks(&world, 3).await;
    let (_, status) = world.json(&["status"]).await;
    let status = &status["status"];
    assert_eq!((&status["waiting"], &status["parked"]), (&json!([]), &json!([])), "{status:#}");
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until_or("the next run", || runs(&world) == 3, || format!("{:#?}", comments(&world))).await;
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_outlives_a_refused_start_and_a_restart_before_somebody_has_mended_what_stood_in_the_way() {
    let world = world(vec![question(), reports("Done.", json!([]))], "").await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    until_parked(&world).await;
    daemon.stop().await;
    // Something lies in the worktree's place.
    let place = world.shop().join(".worktrees/issue-7");
    std::fs::remove_dir_all(&place).unwrap();
    std::fs::write(&place, "mine").unwrap();
    assert_eq!(world.json(&["answer", "7", "2"]).await.0, Some(0));
    let daemon = Running::start(&world, &[]);
    until_labels(&world, &["agentd:attention"]).await;
    daemon.stop().await;
    let daemon = Running::start(&world, &[]);
    super::pull_request::ticks(&world, 3).await;
    assert_eq!(told(&world, "was taken off"), 0, "{:#?}", comments(&world));
    std::fs::remove_file(&place).unwrap();
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until_labels(&world, &["agentd:done"]).await;
    let asked = asked(&world);
    assert!(asked.len() == 2 && asked[1].contains("dollars"), "{asked:#?}");
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_begins_without_an_answer_says_where_it_was_asked_that_nothing_is_waited_for() {
    let world = world(vec![question(), reports("Done.", json!([]))], "").await;
    let (_, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(output["stop_detail"], "question_pending", "{output:#}");
    assert_eq!(told(&world, "It is not waited for any more"), 0);
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(output["warnings"].to_string().contains("question_dropped"), "{output:#}");
    assert_eq!(told(&world, "It is not waited for any more"), 1, "{:#?}", comments(&world));
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_wrote_while_the_daemon_was_down_is_heard_although_its_state_is_lost() {
    for damage in [None, Some("{ torn")] {
        let world = world(vec![reports("Done.", json!([]))], "").await;
        let daemon = Running::listening(&world).await;
        daemon.stop().await;
        world.sim.add_comment("demo/shop", 7, "ada", "/agentd run");
        let state = world.dir.path().join("state/daemon/state.json");
        match damage {
            None => std::fs::remove_file(&state).unwrap(),
            Some(torn) => std::fs::write(&state, torn).unwrap(),
        }
        let daemon = Running::start(&world, &[]);
        until_labels(&world, &["agentd:done"]).await;
        daemon.stop().await;
        world.sim.shutdown().await;
    }
}

/// A run that goes on with an answer is a follow-up run like any other: it ends with its pull request.
#[tokio::test(flavor = "multi_thread")]
async fn a_follow_up_run_that_goes_on_with_an_answer_ends_with_its_pull_request() {
    use super::pull_request::{asked, comment, delivered_in, labelled_with, replies, review, runs};
    let when =
        |reply: ReplyFile, when: Value| ReplyFile { when: serde_json::from_value(when).unwrap(), ..reply };
    let note = calls(&[("write_file", json!({ "path": "notes/2.md", "content": "Blue.\n" }))]);
    let mut all = vec![
        when(question(), json!({ "turn": 1, "anywhere": "COLOUR", "lacks": "dollars it is" })),
        when(ReplyFile { delay_ms: 60_000, ..note }, json!({ "turn": 1, "contains": "dollars it is" })),
    ];
    all.extend(replies(1));
    let labelled = labelled_with(all, "[conversation]\nquiet_period = \"0s\"\n").await;
    let (world, daemon, pull) = delivered_in(labelled).await;
    review(&world, pull, "ada", "CHANGES_REQUESTED", "COLOUR it, please.", &[]);
    until_or(
        "a question",
        || labels(&world).contains(&"agentd:needs-input".to_owned()),
        || format!("{:?} {:#?}", labels(&world), comments(&world)),
    )
    .await;
    let before = asked(&world);
    comment(&world, pull, "ada", "/agentd answer dollars it is");
    until_or("it goes on", || asked(&world) > before, || format!("{:#?}", comments(&world))).await;
    let closed = json!({ "state": "closed", "actor": "ada" });
    super::briefing::admin(&world, "PATCH", &format!("issues/{pull}"), &closed);
    until("its result", || newest(&world).join("result.json").exists() && runs(&world) == 3).await;
    let output = crate::outside::solo::left(&world, "result.json");
    assert!(output["error"].to_string().contains("was closed while the run worked on it"), "{output:#}");
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_by_a_command_that_comes_too_late_is_told_that_it_does_not_count() {
    let world = world(vec![question(), reports("Done.", json!([]))], "").await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    until_parked(&world).await;
    daemon.stop().await;
    assert_eq!(world.json(&["answer", "7", "cents"]).await.0, Some(0));
    world.sim.add_comment("demo/shop", 7, "max", "/agentd answer dollars");
    let before = world.sim.model_requests().len();
    let daemon = Running::start(&world, &[]);
    until_labels(&world, &["agentd:done"]).await;
    until_or(
        "it is told",
        || told(&world, "answered already, by local:") == 1,
        || format!("{:#?}", comments(&world)),
    )
    .await;
    let told = world.told(before);
    assert!(told.contains("cents"), "{told}");
    daemon.stop().await;
    world.finish().await;
}
