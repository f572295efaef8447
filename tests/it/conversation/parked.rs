//! Parked issues beside everything else: time, hands on this machine, other hosts, closed issues, money, locks, replays.

use agentd::sim::{ReplyFile, Scenario};
use serde_json::{Value, json};

use super::briefing::admin;
use crate::agents::bench::{FIX, fixer, script};
use crate::outside::daemons::{Running, until, until_or};
use crate::outside::solo::{calls, left, newest, reports, solo_of};
use crate::outside::world::{TOKEN, World};

const REPO: &str = "demo/shop";
const QUIET: &str = "[conversation]\nquiet_period = \"1s\"\n";

fn question() -> ReplyFile {
    let arguments =
        json!({ "question": "In which unit?", "options": ["cents", "dollars"], "default": "cents" });
    ReplyFile { times: Some(1), ..calls(&[("agent__ask", arguments)]) }
}

fn people(scenario: &mut Scenario) {
    scenario.users.push(serde_json::from_value(json!({ "login": "max" })).unwrap());
    let may = serde_json::from_value(json!("write")).unwrap();
    scenario.repositories[0].collaborators.insert("max".to_owned(), may);
}

/// A world whose every plan has to be approved.
async fn gated(more: &str, change: impl FnOnce(&mut Scenario)) -> World {
    let world = World::of(1, |scenario| {
        people(scenario);
        change(scenario);
    })
    .await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n{QUIET}[plan]\ngate = \"always\"\n{more}\n"));
    world
}

/// A world whose agent of one step asks first.
async fn asking(more: &str) -> World {
    let replies = vec![question(), reports("Done.", json!([]))];
    let world = solo_of(replies, None, &format!("{QUIET}{more}\n"), people).await;
    world.configure(&["agent = \"solo\""]);
    world
}

fn comments(world: &World) -> Vec<(u64, String)> {
    let comments = world.sim.issue(REPO, 7).unwrap().comments;
    comments.into_iter().map(|one| (one.id, one.body)).collect()
}

fn told(world: &World, what: &str) -> usize {
    comments(world).iter().filter(|(_, body)| body.contains(what)).count()
}

fn seen(world: &World) -> String {
    format!("{:?} {:#?}", world.labels(), comments(world))
}

async fn until_labels(world: &World, wanted: &[&str]) {
    let same = || {
        let mut labels = world.labels();
        labels.sort();
        labels == wanted
    };
    until_or("the labels", same, || seen(world)).await;
}

async fn parked(world: &World) -> Running {
    world.sim.add_label(REPO, 7, "agentd", "ada");
    let daemon = Running::start(world, &[]);
    until_labels(world, &["agentd", "agentd:needs-input"]).await;
    daemon
}

/// Id, text and hash of the issue's first plan.
fn plan(world: &World) -> (u64, String, String) {
    let (id, text) = comments(world).into_iter().find(|(_, body)| body.contains("issue-7:plan-1 ")).unwrap();
    let hash = text.split_once("`/agentd approve ").unwrap().1.split('`').next().unwrap().to_owned();
    (id, text, hash)
}

fn event(world: &World, kind: &str) -> Value {
    let text = std::fs::read_to_string(newest(world).join("events.jsonl")).unwrap();
    let mut events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.find(|event| event["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))["data"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_decides_on_a_plan_and_after_one_reminder_the_issue_is_a_persons() {
    let world =
        gated("[questions]\nremind = \"1s\"\ntimeout = \"6s\"\non_timeout = \"default\"\n", |_| ()).await;
    let daemon = parked(&world).await;
    until_or("a reminder", || told(&world, "plan still waits for approval") == 1, || seen(&world)).await;
    until_labels(&world, &["agentd:attention"]).await;
    daemon.stop().await;
    assert_eq!(told(&world, "plan still waits for approval"), 1, "{}", seen(&world));
    assert_eq!(told(&world, "Nobody decided on the agent's plan in time"), 1, "{}", seen(&world));
    assert_eq!(world.sim.model_requests().len(), 2, "a plan has no default");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_approved_by_its_hash_and_not_by_another_one_and_the_run_is_replayed_equal() {
    let world = gated("", |_| ()).await;
    let daemon = parked(&world).await;
    let (_, _, hash) = plan(&world);
    world.sim.add_comment(REPO, 7, "ada", "/agentd approve 0123456789");
    until_or("it is answered", || told(&world, "0123456789") > 0, || seen(&world)).await;
    assert_eq!(world.sim.model_requests().len(), 2);
    world.sim.add_comment(REPO, 7, "max", &format!("/agentd approve {hash}"));
    until_labels(&world, &["agentd:done"]).await;
    daemon.stop().await;
    assert_eq!(event(&world, "plan_approved")["by"], "max");
    let second = newest(&world);
    let runs = std::fs::read_dir(second.parent().unwrap()).unwrap();
    let mut runs: Vec<String> = runs.map(|run| run.unwrap().file_name().into_string().unwrap()).collect();
    runs.sort();
    assert_eq!(runs.len(), 2);
    // A run that goes on with another one is replayed with that one's name.
    let asked = world.sim.requests().len();
    let (code, replayed) = world.json(&["runs", "replay", &runs[0]]).await;
    assert_eq!((code, &replayed["equal"]), (Some(0), &json!(true)), "{replayed:#}");
    let (code, replayed) = world.json(&["runs", "replay", &runs[1]]).await;
    assert_eq!(code, Some(4), "{replayed:#}");
    assert!(replayed["error"]["hints"].to_string().contains(&runs[0]), "{replayed:#}");
    assert_eq!(world.sim.requests().len(), asked, "a replay reads nothing");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_machines_user_approves_a_plan_as_it_reads_and_rejects_one_for_a_reason() {
    let world = gated("max_rounds = 1", |scenario| {
        // The plan is made twice.
        let again = scenario.model.replies.iter().take(2).cloned().collect::<Vec<_>>();
        scenario.model.replies.extend(again);
    })
    .await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("plan_pending")), "{output:#}");
    let (code, none) = world.json(&["approve", "7", "00000000"]).await;
    assert_eq!(code, Some(4), "{none:#}");
    assert!(none.to_string().contains("nothing that waits on issue 7 has the hash"), "{none:#}");
    let (code, rejected) = world.json(&["reject", "7", "Round", "half", "up."]).await;
    assert_eq!((code, &rejected["goes_on"]), (Some(0), &json!(false)), "{rejected:#}");
    assert_eq!(world.json(&["approve", "7"]).await.0, Some(4), "it is decided on");
    let (code, output) = world.json(&["runs", "resume", rejected["run_id"].as_str().unwrap()]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("plan_pending")), "{output:#}");
    assert!(world.told(2).contains("Round half up."), "{}", world.told(2));
    let (code, refused) = world.json(&["reject", "7", "No."]).await;
    assert_eq!(code, Some(4), "{refused:#}");
    assert!(refused.to_string().contains("rejected 1 times already"), "{refused:#}");
    // A person's edit before the approval is what is carried out.
    let second = |body: &str| body.contains("issue-7:plan-2 ");
    let (id, text) = comments(&world).into_iter().find(|(_, body)| second(body)).unwrap();
    let earlier =
        (chrono::Utc::now() - chrono::TimeDelta::seconds(30)).format("%Y-%m-%dT%H:%M:%SZ").to_string();
    let body =
        json!({ "body": text.replace("2. `tests", "2. MARZIPAN `tests"), "actor": "max", "at": earlier });
    admin(&world, "PATCH", &format!("comments/{id}"), &body);
    let (code, approved) = world.json(&["approve", "7"]).await;
    assert_eq!(code, Some(0), "{approved:#}");
    let (code, output) = world.json(&["runs", "resume", approved["run_id"].as_str().unwrap()]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let approved = event(&world, "plan_approved");
    assert!(approved["by"].as_str().unwrap().starts_with("local:"), "{approved:#}");
    assert_eq!(approved["edited"], true);
    assert!(world.told(4).contains("MARZIPAN"), "{}", world.told(4));
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_the_machines_user_approved_is_carried_out_by_the_daemon() {
    let world = gated("", |_| ()).await;
    let daemon = parked(&world).await;
    tokio::time::sleep(std::time::Duration::from_millis(2_100)).await;
    let (code, approved) = world.json(&["approve", "7"]).await;
    assert_eq!((code, &approved["goes_on"]), (Some(0), &json!(true)), "{approved:#}");
    until_labels(&world, &["agentd:done"]).await;
    daemon.stop().await;
    assert!(event(&world, "plan_approved")["by"].as_str().unwrap().starts_with("local:"));
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_that_is_closed_while_it_is_parked_waits_for_nothing() {
    for plans in [false, true] {
        let world = if plans { gated("", |_| ()).await } else { asking("").await };
        let daemon = parked(&world).await;
        let asked = world.sim.model_requests().len();
        world.sim.close_issue(REPO, 7, "ada");
        until_or(
            "the label goes",
            || !world.labels().contains(&"agentd:needs-input".to_owned()),
            || seen(&world),
        )
        .await;
        world.sim.add_comment(REPO, 7, "ada", if plans { "/agentd approve" } else { "2" });
        let looks =
            || world.sim.requests().iter().filter(|one| one.target.contains("/issues/comments?")).count();
        let before = looks();
        until("two more looks", || looks() >= before + 2).await;
        daemon.stop().await;
        assert_eq!(world.sim.model_requests().len(), asked, "{}", seen(&world));
        let (code, _) = world.json(if plans { &["approve", "7"] } else { &["answer", "7", "2"] }).await;
        assert_eq!(code, Some(4), "it is not waited for");
        world.sim.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_of_the_foreground_is_over_with_its_issue_and_why_says_how_an_answer_is_gone_on_with() {
    let world = asking("").await;
    let asks = async |args: &[&str]| world.json(args).await.1;
    let output = asks(&["run", "--issue", "7"]).await;
    assert_eq!(output["stop_detail"], "question_pending", "{output:#}");
    let why = asks(&["why", "7"]).await;
    assert_eq!(why["do"], "agentd answer 7 TEXT", "{why:#}");

    world.sim.close_issue(REPO, 7, "ada");
    let done = world.agentd(&["--config", "../overlay.toml", "answer", "7", "2"]).await;
    let refused = crate::outside::world::text(&done.stderr);
    assert!(done.status.code() == Some(4) && refused.contains("closed"), "{refused}");
    let daemon = Running::start(&world, &[]);
    let kept = world.dir.path().join("state/repos/demo/shop/parked/7.json");
    let is_over = || std::fs::read_to_string(&kept).is_ok_and(|kept| kept.contains("issue_closed"));
    until_or("it is over", is_over, || seen(&world)).await;
    daemon.stop().await;
    assert!(!world.labels().contains(&"agentd:needs-input".to_owned()), "{}", seen(&world));
    assert_eq!(told(&world, "It is not waited for any more:** the issue was closed"), 1, "{}", seen(&world));
    let status = asks(&["status"]).await;
    assert_eq!(status["parked"], json!([]), "{status:#}");

    world.sim.shutdown().await;

    let world = asking("").await;
    let asks = async |args: &[&str]| world.json(args).await.1;
    asks(&["run", "--issue", "7"]).await;
    let answered = asks(&["answer", "7", "2"]).await;
    let run = answered["run_id"].as_str().unwrap();
    let why = asks(&["why", "7"]).await;
    let wanted = json!(format!("agentd runs resume {run}"));
    assert_eq!((&why["outlook"], &why["do"]), (&json!("needs_you"), &wanted), "{why:#}");
    // Where the label asks for a run, the daemon goes on with it.
    world.sim.add_label(REPO, 7, "agentd", "ada");
    let why = asks(&["why", "7"]).await;
    assert!(!why["do"].to_string().contains("resume"), "{why:#}");
    world.sim.shutdown().await;
}

/// People were told that the work goes on with their answer, whoever began the run.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_or_plan_of_a_run_by_hand_is_gone_on_with_by_the_daemon_of_its_state() {
    for (plans, said) in [(false, "2"), (false, "/agentd answer dollars"), (true, "/agentd approve")] {
        let world = if plans { gated("", |_| ()).await } else { asking("").await };
        let daemon = Running::start(&world, &[]);
        let polled = || world.sim.requests().iter().any(|one| one.target.contains("/issues/comments?"));
        until("a first look", polled).await;
        let (_, output) = world.json(&["run", "--issue", "7"]).await;
        let detail = if plans { "plan_pending" } else { "question_pending" };
        assert_eq!(output["stop_detail"], detail, "{output:#}");
        until_labels(&world, &["agentd:needs-input"]).await;
        let before = world.sim.model_requests().len();
        world.sim.add_comment(REPO, 7, "ada", said);
        until_labels(&world, &["agentd:done"]).await;
        if !plans {
            assert!(world.told(before).contains("dollars"), "{}", world.told(before));
        }
        daemon.stop().await;
        world.finish().await;
    }
}

/// GitHub takes no notice of the case of letters, and neither does what is remembered.
#[tokio::test(flavor = "multi_thread")]
async fn a_repository_whose_name_is_written_in_other_letters_is_the_same_and_forgets_nothing() {
    let world = asking("").await;
    world.configure(&["agent = \"solo\"", "name = \"demo/shop\""]);
    let daemon = parked(&world).await;
    daemon.stop().await;
    world.configure(&["agent = \"solo\"", "name = \"Demo/Shop\""]);
    let (_, listed) = world.json(&["runs", "list", "--repo", "DEMO/shop"]).await;
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed:#}");
    let why = world.json(&["why", "7"]).await.1;
    assert!(why["rules"].to_string().contains("waits_for_answer"), "{why:#}");
    let daemon = Running::start(&world, &[]);
    let looks = || world.sim.requests().iter().filter(|one| one.target.contains("/issues?")).count();
    let before = looks();
    until("some looks", || looks() >= before + 3).await;
    assert_eq!(world.sim.model_requests().len(), 1, "{}", seen(&world));
    world.sim.add_comment(REPO, 7, "ada", "2");
    until_labels(&world, &["agentd:done"]).await;
    daemon.stop().await;
    let owners = std::fs::read_dir(world.dir.path().join("state/repos")).unwrap();
    let owners: Vec<_> = owners.map(|owner| owner.unwrap().file_name()).collect();
    assert_eq!(owners, ["demo"]);
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_that_another_host_parked_is_not_taken_up_here() {
    let world = asking("").await;
    let daemon = parked(&world).await;
    daemon.stop().await;
    let shown = comments(&world).into_iter().filter(|(_, body)| body.contains("agentd:parked ")).count();
    assert_eq!(shown, 1, "{}", seen(&world));
    let other = Running::with(&world, &[], "other");
    let looks = || world.sim.requests().iter().filter(|one| one.target.contains("/issues?")).count();
    let before = looks();
    until("some looks", || looks() >= before + 5).await;
    other.stop().await;
    assert_eq!(world.sim.model_requests().len(), 1, "{}", seen(&world));
    assert!(world.labels().contains(&"agentd:needs-input".to_owned()), "{:?}", world.labels());
    // Its own host goes on with it.
    world.sim.add_comment(REPO, 7, "ada", "2");
    let daemon = Running::start(&world, &[]);
    until_labels(&world, &["agentd:done"]).await;
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_asks_first_has_its_plan_approved_afterwards() {
    let world = gated("", |scenario| scenario.model.replies.insert(0, question())).await;
    let daemon = parked(&world).await;
    assert_eq!(
        (told(&world, "issue-7:question-1 "), told(&world, "issue-7:plan-1 ")),
        (1, 0),
        "{}",
        seen(&world)
    );
    world.sim.add_comment(REPO, 7, "ada", "2");
    until_or("the plan", || told(&world, "issue-7:plan-1 ") == 1, || seen(&world)).await;
    until_labels(&world, &["agentd", "agentd:needs-input"]).await;
    assert!(world.told(1).contains("The answer to your question"), "{}", world.told(1));
    until("its record", || newest(&world).join("run.json").exists()).await;
    let record = left(&world, "run.json");
    assert_eq!(record["questions"][0]["answered"]["by"], "ada", "{record:#}");
    let (id, ..) = plan(&world);
    let at = (chrono::Utc::now() + chrono::TimeDelta::seconds(2)).format("%Y-%m-%dT%H:%M:%SZ").to_string();
    let thumb = json!({ "content": "+1", "actor": "max", "at": at });
    admin(&world, "POST", &format!("comments/{id}/reactions"), &thumb);
    until_labels(&world, &["agentd:done"]).await;
    daemon.stop().await;
    assert_eq!(told(&world, "issue-7:plan-"), 1, "the plan is not made again");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_plan_waits_for_money_where_the_issue_has_none() {
    let world = gated("[budgets]\nmax_cost_per_issue = 1.0\n", |scenario| {
        // The plan costs more than the issue has.
        scenario.model.replies[1].usage =
            serde_json::from_value(json!({ "input": 340_000, "output": 200 })).unwrap();
    })
    .await;
    let daemon = parked(&world).await;
    assert_eq!(told(&world, "issue-7:plan-1 "), 1, "parking stays possible: {}", seen(&world));
    tokio::time::sleep(std::time::Duration::from_millis(2_100)).await;
    world.sim.add_comment(REPO, 7, "ada", "/agentd approve");
    let spent = async || {
        let (_, why) = world.json(&["why", "7"]).await;
        why["rules"].as_array().unwrap().iter().any(|rule| rule["code"] == "issue_budget_spent")
    };
    let mut tries = 0;
    while !spent().await {
        tries += 1;
        assert!(tries < 100, "{}", seen(&world));
    }
    assert_eq!(world.sim.model_requests().len(), 2, "{}", seen(&world));
    let (code, extended) = world.json(&["extend", "7", "5"]).await;
    assert_eq!(code, Some(0), "{extended:#}");
    until_labels(&world, &["agentd:done"]).await;
    daemon.stop().await;
    assert_eq!(event(&world, "plan_approved")["by"], "ada");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_gone_on_with_where_people_locked_the_issue_and_a_warning_says_so() {
    let world = asking("").await;
    let daemon = parked(&world).await;
    let locked = json!({
        "method": "PATCH", "path": "**/issues/comments/*", "kind": "status", "status": 403, "times": 0,
        "body": { "message": "Unable to edit comment because issue is locked." },
    });
    world.sim.inject(&serde_json::from_value(locked).unwrap()).unwrap();
    world.sim.add_comment(REPO, 7, "ada", "2");
    until_labels(&world, &["agentd:done"]).await;
    daemon.stop().await;
    let output = left(&world, "result.json");
    assert_eq!(output["stop_reason"], "OBJECTIVE_ACHIEVED", "{output:#}");
    let codes: Vec<&str> = output["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|warning| warning["code"].as_str())
        .collect();
    assert_eq!(codes.iter().filter(|code| **code == "locked").count(), 1, "{output:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_escalates_asks_people_and_goes_on_with_their_answer() {
    let world = World::of(1, |scenario| {
        people(scenario);
        let output = json!({
            "summary": "s", "findings": "none", "checks": [],
            "next_action": { "action": "escalate", "reason": "Half up or half even?" },
        });
        let report = json!({ "report_format": "json", "content_json": output });
        let asks = json!({
            "when": { "contains": "You review another's work" }, "times": 1, "final_report": report,
            "usage": { "input": 100, "output": 20 },
        });
        scenario.model.replies.insert(0, serde_json::from_value(asks).unwrap());
    })
    .await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n{QUIET}"));
    for (file, from, to) in [
        ("steps_registry.json", "[\"next\", \"repeat\"]", "[\"next\", \"repeat\", \"escalate\"]"),
        ("schemas/issue.schema.json", "[\"next\", \"repeat\"]", "[\"next\", \"repeat\", \"escalate\"]"),
    ] {
        let path = format!("shop/.agent/resolver/{file}");
        let text = std::fs::read_to_string(world.dir.path().join(&path)).unwrap();
        // Only a step that verifies may escalate.
        let at = text.find("\"verification.issue\": {").unwrap_or_default();
        let (before, after) = text.split_at(at);
        world.write(&path, &format!("{before}{}", after.replacen(from, to, if at == 0 { 9 } else { 1 })));
    }
    let daemon = parked(&world).await;
    let question = comments(&world).into_iter().find(|(_, body)| body.contains("issue-7:question-1 "));
    assert!(question.unwrap().1.contains("Half up or half even?"));
    until("its record", || newest(&world).join("run.json").exists()).await;
    let record = left(&world, "run.json");
    let asked = &record["questions"][0];
    assert_eq!(asked["asked"]["step_id"], "verification.issue", "{record:#}");
    assert!(asked["url"].is_string() && asked["answered"].is_null(), "{record:#}");
    let before = world.sim.model_requests().len();
    world.sim.add_comment(REPO, 7, "ada", "Half up.");
    until_labels(&world, &["agentd:done"]).await;
    daemon.stop().await;
    let next = world.told(before);
    assert!(next.contains("You review another's work") && next.contains("Half up."), "{next}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_program_asks_and_is_started_again_with_the_answer() {
    let world = World::new(0).await;
    let text = format!(
        "#!/bin/bash\nprompt=$(cat)\n\
         case $prompt in *'The answer to your question'*) {FIX}; echo 'Fixed in dollars.'; exit 0;; esac\n\
         ask() {{ printf '%s\\n' \"$1\" >&\"${{MCP[1]}}\"; }}\n\
         coproc MCP {{ {agentd} mcp; }}\n\
         ask '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{{\"protocolVersion\":\"2025-06-18\",\
         \"capabilities\":{{}},\"clientInfo\":{{\"name\":\"sh\",\"version\":\"1\"}}}}}}'\n\
         read -r hello <&\"${{MCP[0]}}\"\n\
         ask '{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}}'\n\
         ask '{{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{{\"name\":\"agent__ask\",\"arguments\":\
         {{\"question\":\"In which unit?\",\"options\":[\"cents\",\"dollars\"]}}}}}}'\n\
         read -r answer <&\"${{MCP[0]}}\"\nsleep 60\n",
        agentd = env!("CARGO_BIN_EXE_agentd"),
    );
    fixer(&world, "command", &json!({ "argv": [script(&world, "asks.sh", &text)], "sandbox": "off" }));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("question_pending")), "{output:#}");
    assert_eq!(told(&world, "issue-7:question-1 "), 1, "{}", seen(&world));
    let (code, answered) = world.json(&["answer", "7", "dollars"]).await;
    assert_eq!(code, Some(0), "{answered:#}");
    let (code, output) = world.json(&["runs", "resume", answered["run_id"].as_str().unwrap()]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(output.to_string().contains("Fixed in dollars."), "{output:#}");
    world.sim.shutdown().await;
}

/// agentd's own token is of a known shape, and known.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_what_people_answer_is_told_to_no_model_and_not_said_again() {
    for by_command in [true, false] {
        let world = asking("").await;
        let daemon = parked(&world).await;
        let text = format!("Cents, with {TOKEN} and MARZIPAN.");
        if by_command {
            let (code, answered) = world.json(&["answer", "7", &text]).await;
            assert_eq!(code, Some(0), "{answered:#}");
        } else {
            world.sim.add_comment(REPO, 7, "ada", &format!("/agentd unknown {TOKEN}")).unwrap();
            world.sim.add_comment(REPO, 7, "ada", &format!("/agentd answer {text}")).unwrap();
            until_or("a reply", || told(&world, "is no command") == 1, || seen(&world)).await;
        }
        until_labels(&world, &["agentd:done"]).await;
        daemon.stop().await;
        assert!(world.told(1).contains("MARZIPAN"), "{}", world.told(1));
        let asked: String =
            world.sim.model_requests().iter().map(|request| request.body.to_string()).collect();
        assert!(!asked.contains(TOKEN), "told to a model");
        for file in std::fs::read_dir(newest(&world)).unwrap() {
            let file = file.unwrap().path();
            let kept = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(!kept.contains(TOKEN), "{}", file.display());
        }
        for comment in world.sim.issue(REPO, 7).unwrap().comments {
            assert!(comment.author == "ada" || !comment.body.contains(TOKEN), "{comment:#?}");
        }
        world.sim.shutdown().await;
    }
}

/// The run that went on with it failed: the answer was given all the same.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_known_to_the_run_after_one_that_failed_with_it() {
    let fails: ReplyFile = serde_json::from_value(json!({ "error": { "status": 400 } })).unwrap();
    let replies = vec![question(), fails.clone(), fails, reports("Done.", json!([]))];
    let world = solo_of(replies, None, QUIET, people).await;
    let run = |args: &'static [&'static str]| world.json(args);
    let (_, output) = run(&["run", "--issue", "7", "--agent", "solo"]).await;
    assert_eq!(output["stop_detail"], "question_pending", "{output:#}");
    let (code, answered) = run(&["answer", "7", "cents, as MARZIPAN has it"]).await;
    assert_eq!(code, Some(0), "{answered:#}");
    let (code, output) = run(&["runs", "resume", "latest"]).await;
    assert_ne!(code, Some(0), "{output:#}");
    for (asked, ends) in [(2, false), (3, true)] {
        let (code, output) = run(&["run", "--issue", "7", "--agent", "solo"]).await;
        assert_eq!(code == Some(0), ends, "{output:#}");
        let told = world.told(asked);
        assert!(told.contains("In which unit?") && told.contains("MARZIPAN"), "{asked}: {told}");
    }
    world.sim.shutdown().await;
}

/// Who takes the label off wants no run, whatever was answered before.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_by_hand_is_dropped_where_the_label_is_taken_off_before_a_run_goes_on_with_it() {
    let world = asking("").await;
    parked(&world).await.stop().await;
    let (code, answered) = world.json(&["answer", "7", "cents"]).await;
    assert_eq!(code, Some(0), "{answered:#}");
    assert!(world.sim.remove_label(REPO, 7, "agentd", "ada"));
    let daemon = Running::start(&world, &[]);
    let over = || told(&world, "It is not waited for any more") == 1;
    until_or("nobody is asked", over, || seen(&world)).await;
    until_labels(&world, &[]).await;
    assert_eq!(world.sim.model_requests().len(), 1);
    let (_, why) = world.json(&["why", "7"]).await;
    assert!(!why["summary"].as_str().unwrap().contains("the daemon goes on"), "{why:#}");
    daemon.stop().await;
    world.sim.shutdown().await;
}

/// The daemon has not looked yet.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_a_daemon_would_drop_is_refused_and_says_why() {
    let world = asking("").await;
    let daemon = parked(&world).await;
    daemon.signal("-STOP");
    assert!(world.sim.remove_label(REPO, 7, "agentd", "ada"));
    let (code, refused) = world.json(&["answer", "7", "cents"]).await;
    assert_eq!(code, Some(4), "{refused:#}");
    assert!(refused.to_string().contains("was taken off issue 7"), "{refused:#}");
    daemon.signal("-CONT");
    daemon.stop().await;
    world.sim.shutdown().await;
}
