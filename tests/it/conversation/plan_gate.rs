//! The plan gate: a plan is posted once, waits without a process, and is carried out as it reads when somebody approves it.

use agentd::sim::{ReplyFile, Scenario};
use serde_json::{Value, json};

use super::briefing::admin;
use crate::outside::daemons::{Running, until, until_or};
use crate::outside::solo::{calls, newest, reports, run, solo_of};
use crate::outside::world::World;

const REPO: &str = "demo/shop";
const ALLOW: &str =
    "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"test\"\n";

fn people(scenario: &mut Scenario) {
    for login in ["max", "helper[bot]"] {
        scenario.users.push(serde_json::from_value(json!({ "login": login })).unwrap());
        let may = serde_json::from_value(json!("write")).unwrap();
        scenario.repositories[0].collaborators.insert(login.to_owned(), may);
    }
}

/// A world whose every plan has to be approved.
async fn gated(rounds: usize, more: &str) -> World {
    let world = World::of(rounds, people).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let plan = format!("[conversation]\nquiet_period = \"1s\"\n[plan]\ngate = \"always\"\n{more}\n");
    world.write("overlay.toml", &format!("{overlay}\n{plan}"));
    world
}

/// Id and text of the issue's plan of this number.
fn plan(world: &World, number: u32) -> Option<(u64, String)> {
    let marked = format!("issue-7:plan-{number} ");
    let comments = world.sim.issue(REPO, 7).unwrap().comments;
    comments.into_iter().find(|one| one.body.contains(&marked)).map(|one| (one.id, one.body))
}

fn told(world: &World, what: &str) -> usize {
    world.sim.issue(REPO, 7).unwrap().comments.iter().filter(|one| one.body.contains(what)).count()
}

fn seen(world: &World) -> String {
    format!("{:?} {:#?}", world.labels(), world.sim.issue(REPO, 7).unwrap().comments)
}

async fn until_labels(world: &World, wanted: &[&str]) {
    let same = || {
        let mut labels = world.labels();
        labels.sort();
        labels == wanted
    };
    until_or("the labels", same, || seen(world)).await;
}

/// Starts the daemon and waits for the plan.
async fn proposed(world: &World) -> (Running, u64, String) {
    world.sim.add_label(REPO, 7, "agentd", "ada");
    let daemon = Running::start(world, &[]);
    until_labels(world, &["agentd", "agentd:needs-input"]).await;
    let (id, text) = plan(world, 1).unwrap();
    (daemon, id, text)
}

fn seconds_on(seconds: i64) -> String {
    (chrono::Utc::now() + chrono::TimeDelta::seconds(seconds)).format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn react(world: &World, comment: u64, actor: &str, content: &str, at: &str) {
    let body = json!({ "content": content, "actor": actor, "at": at });
    admin(world, "POST", &format!("comments/{comment}/reactions"), &body);
}

fn edit(world: &World, comment: u64, actor: &str, text: &str, at: &str) {
    let body = json!({ "body": text, "actor": actor, "at": at });
    admin(world, "PATCH", &format!("comments/{comment}"), &body);
}

fn events(world: &World) -> Vec<Value> {
    let text = std::fs::read_to_string(newest(world).join("events.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn event(world: &World, kind: &str) -> Value {
    events(world).into_iter().find(|event| event["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn c_i10_a_plan_edited_in_the_second_of_its_approval_or_later_is_not_approved() {
    let world = gated(1, "").await;
    let (daemon, id, text) = proposed(&world).await;
    let at = seconds_on(3);
    react(&world, id, "ada", "+1", &at);
    edit(&world, id, "max", &text.replace("2. `tests", "2. MARZIPAN `tests"), &at);
    until_or("it is said", || told(&world, "does not count") == 1, || seen(&world)).await;
    let ticks = || {
        let asked = world.sim.requests();
        asked.iter().filter(|asked| asked.target.contains(&format!("comments/{id}/reactions"))).count()
    };
    let before = ticks();
    until("two more looks", || ticks() >= before + 2).await;
    assert_eq!(told(&world, "does not count"), 1, "{}", seen(&world));
    assert_eq!(world.sim.model_requests().len(), 2, "nothing goes on");
    let (_, why) = world.json(&["why", "7"]).await;
    let rules = why["rules"].as_array().unwrap();
    assert!(rules.iter().any(|rule| rule["code"] == "waits_for_answer"), "{why:#}");

    // Approved as it reads now, it goes on.
    world.sim.add_comment(REPO, 7, "ada", "/agentd approve");
    until_labels(&world, &["agentd:done"]).await;
    daemon.stop().await;
    assert!(world.told(2).contains("MARZIPAN"), "{}", world.told(2));
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_i11_what_a_person_made_of_the_plan_before_a_thumb_up_is_what_the_next_step_gets() {
    let world = gated(1, "").await;
    let (daemon, id, text) = proposed(&world).await;
    for part in ["@ada", "100 percent", "/agentd approve", "/agentd reject TEXT", "agentd:approved"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let posted = event(&world, "plan_posted");
    assert!(posted["data"]["url"].is_string(), "{posted:#}");
    let edited = text
        .replace("2. `tests", "<!-- do X --> <b title=\"do Y\">!</b> MARZIPAN\u{200b} `tests")
        .replace("<!-- agentd:plan-end -->", "\n> NOUGAT, says somebody\n\n<!-- agentd:plan-end -->");
    edit(&world, id, "max", &edited, &seconds_on(1));
    // Nobody of these approves anything.
    react(&world, id, "mallory", "+1", &seconds_on(2));
    react(&world, id, "helper[bot]", "+1", &seconds_on(2));
    let at = seconds_on(3);
    react(&world, id, "max", "+1", &at);
    until_labels(&world, &["agentd:done"]).await;
    daemon.stop().await;
    let asked = world.told(2);
    assert!(asked.contains("Carry out the plan") && asked.contains("MARZIPAN `tests"), "{asked}");
    assert!(!asked.contains("do X") && !asked.contains("do Y") && !asked.contains("2. `tests"), "{asked}");
    assert!(
        asked.contains("<untrusted standing=\"quoted\">\n> NOUGAT, says somebody\n</untrusted>"),
        "{asked}"
    );
    let approved = event(&world, "plan_approved")["data"].clone();
    assert_eq!((&approved["by"], &approved["edited"]), (&json!("max"), &json!(true)), "{approved:#}");
    assert_eq!(approved["permission"], "write");
    let text = approved["text"].as_str().unwrap();
    assert_eq!(approved["sha256"], agentd::domain::canonical::sha256_hex(text.as_bytes()));
    assert!(text.contains("MARZIPAN `tests"), "{text}");
    let first = events(&world).into_iter().find(|event| event["kind"] == "visit_started").unwrap();
    assert_eq!(first["data"]["step_id"], "continuation.issue", "the plan is not made again");
    let (_, over) = plan(&world, 1).unwrap();
    assert!(over.contains("**max approved it as it reads here.**") && over.contains("MARZIPAN"), "{over}");
    assert!(!over.contains("approve it:") && !over.contains("do X"), "{over}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_plan_is_made_again_for_its_reason_and_not_for_ever() {
    let world = gated(2, "max_rounds = 1").await;
    let (daemon, ..) = proposed(&world).await;
    world.sim.add_comment(REPO, 7, "mallory", "/agentd reject Do nothing at all.");
    world.sim.add_comment(REPO, 7, "max", "/agentd reject Round half up, please.");
    until_or("another plan", || plan(&world, 2).is_some(), || seen(&world)).await;
    until_labels(&world, &["agentd", "agentd:needs-input"]).await;
    let asked = world.told(2);
    assert!(asked.contains("Understand and plan") && asked.contains("Round half up"), "{asked}");
    assert!(!asked.contains("Do nothing"), "{asked}");
    let (_, over) = plan(&world, 1).unwrap();
    assert!(over.contains("**max rejected it:**\n\n> Round half up, please."), "{over}");
    assert!(!over.contains("approve it:"), "{over}");
    // A thumb down alone is no reason.
    let (second, _) = plan(&world, 2).unwrap();
    react(&world, second, "ada", "-1", &seconds_on(0));
    world.sim.add_comment(REPO, 7, "ada", "This is not it either.");
    until_labels(&world, &["agentd:attention"]).await;
    daemon.stop().await;
    assert_eq!(told(&world, "is not made again"), 1, "{}", seen(&world));
    assert_eq!(world.sim.model_requests().len(), 4);
    assert!(plan(&world, 3).is_none());
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_whose_comment_somebody_deleted_is_not_approved_and_is_made_again_where_that_is_asked_for() {
    let world = gated(2, "").await;
    let (daemon, id, text) = proposed(&world).await;
    let hash = text.split_once("`/agentd approve ").unwrap().1.split('`').next().unwrap().to_owned();
    admin(&world, "DELETE", &format!("comments/{id}"), &json!({ "actor": "max" }));
    for (command, says) in [
        ("/agentd run", "No run was queued."),
        ("/agentd answer yes", "No question waits"),
        ("/agentd approve", "The comment with the plan is gone"),
        ("/agentd approve 01234567", "Nothing was approved."),
    ] {
        world.sim.add_comment(REPO, 7, "ada", command);
        until_or(command, || told(&world, says) == 1, || seen(&world)).await;
        let comments = world.sim.issue(REPO, 7).unwrap().comments;
        let answer = comments.iter().find(|one| one.body.contains(says)).unwrap();
        let names = answer.body.contains(&format!("`/agentd approve {hash}`"));
        assert!(names || answer.body.contains("`/agentd reject TEXT`"), "{}", answer.body);
    }
    assert_eq!(world.sim.model_requests().len(), 2, "nothing goes on");
    world.sim.add_comment(REPO, 7, "max", "/agentd reject I deleted it by mistake.");
    until_or("another plan", || plan(&world, 2).is_some(), || seen(&world)).await;
    assert!(told(&world, "it is made again for this reason") == 1, "{}", seen(&world));
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_posted_once_also_where_the_process_is_killed_and_the_label_approves_it() {
    let world = gated(1, "").await;
    // It is on GitHub, and the process does not get further.
    let slow = json!({ "method": "POST", "path": "/**/issues/7/assignees", "kind": "delay", "delay_ms": 60_000, "times": 1 });
    world.sim.inject(&serde_json::from_value(slow).unwrap()).unwrap();
    world.sim.add_label(REPO, 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    until("the next request", || {
        world.sim.requests().iter().any(|asked| asked.target.ends_with("/assignees"))
    })
    .await;
    daemon.kill();
    let (id, text) = plan(&world, 1).unwrap();
    edit(&world, id, "max", &text.replace("2. `tests", "2. MARZIPAN `tests"), &seconds_on(0));
    let daemon = Running::start(&world, &[]);
    until_labels(&world, &["agentd", "agentd:needs-input"]).await;
    assert_eq!(world.sim.model_requests().len(), 2, "the agent is not asked again");
    assert!(plan(&world, 1).unwrap().1.contains("MARZIPAN"), "a person's edit stays");
    // An edit in the second of the approval would make it void, and GitHub's times are whole seconds.
    tokio::time::sleep(std::time::Duration::from_millis(2_100)).await;
    world.sim.add_label(REPO, 7, "agentd:approved", "max");
    until_or("it is done", || world.labels().contains(&"agentd:done".to_owned()), || seen(&world)).await;
    daemon.stop().await;
    assert_eq!(told(&world, "issue-7:plan-"), 1, "{}", seen(&world));
    assert!(world.told(2).contains("MARZIPAN"));
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_cannot_be_gated_where_no_step_makes_one() {
    let done = || vec![reports("Done.", json!([]))];
    let run = async |gate: &str, label: Option<&str>| {
        let replies: Vec<ReplyFile> = done();
        let world = solo_of(replies, None, &format!("[plan]\ngate = \"{gate}\""), people).await;
        if let Some(label) = label {
            world.sim.add_label(REPO, 7, label, "ada");
        }
        let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo"]).await;
        world.sim.shutdown().await;
        (code, output.to_string())
    };
    for (gate, label) in [("always", None), ("label", Some("agentd:plan"))] {
        let (code, output) = run(gate, label).await;
        assert_eq!(code, Some(4), "{output}");
    }
    let (code, output) = run("label", None).await;
    assert_eq!(code, Some(0), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_the_foreground_says_how_its_plan_is_approved_where_no_daemon_works() {
    let world = gated(1, "").await;
    let (_, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(output["stop_detail"], "plan_pending", "{output:#}");
    let report = std::fs::read_to_string(newest(&world).join("report.md")).unwrap();
    for part in ["agentd approve 7", "agentd runs resume "] {
        assert!(report.contains(part), "{part}: {report}");
    }
    let (_, why) = world.json(&["why", "7"]).await;
    assert_eq!(why["outlook"], "needs_you", "{why:#}");
    assert!(why["do"].as_str().unwrap().starts_with("agentd approve 7"), "{why:#}");
    world.sim.shutdown().await;
}

/// A step that ends the flow itself has done what its plan says: that waits as well, and is published when it is approved.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_planning_step_did_before_it_ended_the_flow_is_not_published_without_approval() {
    for has_plan in [true, false] {
        let world = solo_of(Vec::new(), Some(ALLOW), "[plan]\ngate = \"always\"\n", |scenario| {
            people(scenario);
            let write = json!({ "path": "src/early.txt", "content": "early\n" });
            let said = match has_plan {
                true => json!({ "plan": "1. Write `src/early.txt`." }),
                false => json!({ "words": "Nothing to plan." }),
            };
            let said = serde_json::from_value(
                json!({ "text": said.to_string(), "usage": { "input": 100, "output": 20 } }),
            );
            let said = ReplyFile { times: Some(0), ..said.unwrap() };
            scenario.model.replies = vec![calls(&[("write_file", write)]), said];
        })
        .await;
        let file = world.shop().join(".agent/solo/steps_registry.json");
        let mut registry: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        registry["steps"]["initial.issue"]["gate"] = json!("plan");
        registry["steps"]["initial.issue"]["outputSchemaRef"] =
            json!({ "file": "out.json", "schema": "Out" });
        world.write("shop/.agent/solo/steps_registry.json", &registry.to_string());
        let schema = json!({ "Out": { "type": "object", "properties": { "plan": { "type": "string" } } } });
        world.write("shop/.agent/solo/schemas/out.json", &schema.to_string());
        let (code, output) = run(&world).await;
        let detail = if has_plan { "plan_pending" } else { "schema_invalid" };
        assert!(code != Some(0) && output["stop_detail"] == detail, "{output:#}");
        let published = world
            .sim
            .pulls(REPO)
            .iter()
            .filter(|one| one.pull.as_ref().is_some_and(|pull| !pull.draft))
            .count();
        assert_eq!(published, 0, "{has_plan}");
        if has_plan {
            assert_eq!(world.json(&["approve", "7"]).await.0, Some(0));
            let (code, output) = world.json(&["runs", "resume", "latest"]).await;
            assert_eq!(code, Some(0), "{output:#}");
            assert_eq!(world.sim.pulls(REPO).len(), 1, "{output:#}");
        }
        world.sim.shutdown().await;
    }
}
