//! Approvals: asked for on the issue, given there or on the machine, used once and only by what was approved.

use agentd::sim::ReplyFile;
use serde_json::{Value, json};

use super::daemons::{Running, until, until_or};
use super::handoffs::{hands_over, of_the_daemon};
use super::solo::{calls, left, newest, reports, run, solo};
use super::world::{World, text};
use crate::flow::outside::{says, shop};
use crate::flow::world::open_schemas;

/// A person decides on what is written below `release`.
pub const ASK: &str = r#"
[[rule]]
id = "never"
kind = "tool"
name = "write_file"
effect = "deny"
reason = "never"
when = { path = ["never/**"] }

[[rule]]
id = "ask"
kind = "tool"
name = "write_file"
effect = "deny"
reason = "approval_required"
public_reason = "A person decides on this file."
when = { path = ["release/**"] }

[[rule]]
id = "all"
kind = "tool"
name = "*"
effect = "allow"
reason = "everything else"
"#;

pub fn write(path: &str) -> (&'static str, Value) {
    ("write_file", json!({ "path": path, "content": "made\n" }))
}

fn waiting(world: &World) -> String {
    let suspended = left(world, "run.json")["suspendedProposals"].clone();
    assert_eq!(suspended.as_array().unwrap().len(), 1, "{suspended:#}");
    suspended[0]["proposalHash"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn p_037_c_22_an_approval_is_not_used_up_by_a_reply_that_another_call_s_denial_ends() {
    let replies = vec![
        calls(&[write("release/notes.md")]),
        calls(&[write("release/notes.md"), write("never/x.txt")]),
        calls(&[write("release/notes.md")]),
        reports("Done.", json!([])),
    ];
    let world = solo(replies, Some(ASK), "").await;
    let (_, output) = run(&world).await;
    assert_eq!(output["stop_detail"], "approval_pending", "{output:#}");
    let asked = left(&world, "run.json")["policyDecisions"][0].clone();
    // The decision itself is one of the two that there are; what waits is said beside it.
    assert_eq!(
        (&asked["decision"], &asked["reason"]),
        (&json!("deny"), &json!("approval_required")),
        "{asked:#}"
    );
    assert_eq!(asked["metadata"]["approval"], "required", "{asked:#}");
    let hash = waiting(&world);
    let (code, grant) = world.json(&["runs", "approve", "latest", &hash]).await;
    assert_eq!(code, Some(0), "{grant:#}");

    let (_, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!(output["stop_detail"], "policy_denied", "{output:#}");
    let decisions = left(&world, "run.json")["policyDecisions"].clone();
    assert_eq!(decisions[0]["reason"], "approved", "it would have run: {decisions:#}");
    let file = world.shop().join(".worktrees/issue-7/release/notes.md");
    assert!(!file.exists(), "nothing of that reply ran");

    let (code, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!(code, Some(0), "the approval is still there: {output:#}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "made\n");
    let report = std::fs::read_to_string(newest(&world).join("report.md")).unwrap();
    assert!(report.contains("`write_file` was approved by"), "{report}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_a_run_of_the_foreground_whose_call_waits_for_an_approval_until_it_is_gone_on_with() {
    let replies = vec![
        calls(&[write("release/notes.md")]),
        calls(&[write("release/notes.md")]),
        reports("Done.", json!([])),
    ];
    let world = solo(replies, Some(ASK), "").await;
    let (_, output) = run(&world).await;
    assert_eq!(output["stop_detail"], "approval_pending", "{output:#}");
    let parked = async || world.json(&["status"]).await.1["parked"].clone();
    let shown = parked().await;
    assert_eq!((&shown[0]["issue"], &shown[0]["code"]), (&json!(7), &json!("approval_pending")), "{shown:#}");
    let mut command = world.command_in(&["status"]);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let told = text(&done.stdout);
    assert!(told.contains("demo/shop#7") && told.contains("approval_pending"), "{told}");

    let (code, grant) = world.json(&["runs", "approve", "latest", &waiting(&world)]).await;
    assert_eq!(code, Some(0), "{grant:#}");
    let shown = parked().await;
    assert_eq!(shown[0]["code"], "answered", "{shown:#}");
    let (code, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(parked().await, json!([]));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_036_p_037_a_comment_of_a_permitted_person_approves_one_proposal_and_the_issue_goes_on() {
    let replies = vec![
        calls(&[write("release/notes.md")]),
        calls(&[write("release/notes.md")]),
        reports("Done.", json!([])),
    ];
    let world = solo(replies, Some(ASK), "").await;
    let toml = std::fs::read_to_string(world.shop().join(".agent/agentd.toml")).unwrap();
    world.write("shop/.agent/agentd.toml", &toml.replace("agent = \"resolver\"", "agent = \"solo\""));
    let comments = || -> Vec<String> {
        world.sim.issue("demo/shop", 7).unwrap().comments.into_iter().map(|comment| comment.body).collect()
    };
    let says = |words: &str| comments().iter().any(|body| body.contains(words));
    let daemon = Running::start(&world, &[]);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("a question", || says("An approval is needed") && world.labels() == ["agentd:attention"]).await;
    until("its record", || newest(&world).join("run.json").is_file()).await;
    let hash = waiting(&world);
    let question = comments().into_iter().find(|body| body.contains("An approval is needed")).unwrap();
    let command = format!("/agentd approve {}", &hash[..12]);
    assert!(question.contains(&command), "{question}");

    // Not by anybody, not without saying what.
    world.sim.add_comment("demo/shop", 7, "mallory", &command);
    until("a refusal", || says("mallory has the permission")).await;
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd approve");
    until("an explanation", || says("at least 8 digits")).await;
    assert!(says(&command), "what can be approved: {:#?}", comments());
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd approve 00000000");
    until("another", || says("has no proposal")).await;
    assert_eq!(world.sim.model_requests().len(), 1, "nothing was started");

    world.sim.add_comment("demo/shop", 7, "ada", &command);
    until("done", || world.labels() == ["agentd:done"]).await;
    assert!(says("ada approved `write_file`"), "{:#?}", comments());
    assert!(!says("An approval is needed") && says("No approval is needed any more"), "{:#?}", comments());
    let written = world.shop().join(".worktrees/issue-7/release/notes.md");
    assert_eq!(std::fs::read_to_string(written).unwrap(), "made\n");
    until("its record", || newest(&world).join("run.json").is_file()).await;
    let decisions = left(&world, "run.json")["policyDecisions"].clone();
    assert_eq!(
        (&decisions[0]["reason"], &decisions[0]["metadata"]["approver"]),
        (&json!("approved"), &json!("ada"))
    );
    let out = daemon.stop().await;
    assert!(text(&out.stdout).contains("OBJECTIVE_ACHIEVED"), "{}", text(&out.stdout));
    world.finish().await;
}

/// What a command says to people: exit code, stdout, stderr.
async fn said(world: &World, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = world.command_in(args);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    (done.status.code(), text(&done.stdout), text(&done.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_is_shown_wherever_one_looks_and_approved_by_its_hash_alone() {
    let replies = vec![
        calls(&[write("release/notes.md")]),
        calls(&[write("release/notes.md")]),
        reports("Done.", json!([])),
    ];
    let world = solo(replies, Some(ASK), "").await;
    let (code, list, _) = said(&world, &["approvals", "list"]).await;
    assert_eq!((code, list.as_str()), (Some(0), "No call waits for an approval.\n"));
    let (code, ended, _) = said(&world, &["run", "7", "--agent", "solo"]).await;
    assert_eq!(code, Some(1), "{ended}");
    let hash = waiting(&world);
    let short = &hash[..12];
    let (_, show, _) = said(&world, &["runs", "show"]).await;
    let (_, why, _) = said(&world, &["why", "7"]).await;
    let (_, list, _) = said(&world, &["approvals", "list"]).await;
    for told in [&ended, &show, &why, &list] {
        let command = format!("overlay.toml approvals approve {short}");
        for part in ["write_file release/notes.md", "{\"content\":\"made\\n\"", &hash, &command] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
    assert!(why.starts_with("Needs you: a call waits for an approval: write_file release/notes.md"), "{why}");
    let status = world.sim.issue("demo/shop", 7).unwrap().comments[0].body.clone();
    assert!(status.contains("write_file release/notes.md") && status.contains(&hash), "{status}");
    let report = std::fs::read_to_string(newest(&world).join("report.md")).unwrap();
    assert!(report.contains("write_file release/notes.md") && report.contains(&hash), "{report}");

    for wrong in ["00000000", &hash[..4], ""] {
        let (code, refused) = world.json(&["approvals", "approve", wrong]).await;
        assert_eq!(code, Some(4), "{wrong}: {refused:#}");
    }
    let (_, listed) = world.json(&["approvals", "list", "--issue", "7"]).await;
    assert_eq!(
        (&listed[0]["state"], &listed[0]["arguments"]["path"]),
        (&json!("waiting"), &json!("release/notes.md"))
    );
    let (_, listed) = world.json(&["approvals", "list", "--issue", "8"]).await;
    assert_eq!(listed, json!([]));
    let (code, approved, _) = said(&world, &["approvals", "approve", short]).await;
    assert_eq!(code, Some(0), "{approved}");
    assert!(
        approved.contains("Approved once")
            && approved.contains("Go on: agentd --config /")
            && approved.contains("overlay.toml runs resume "),
        "{approved}"
    );
    let (_, listed) = world.json(&["approvals", "list"]).await;
    assert_eq!(listed[0]["state"], "approved", "{listed:#}");
    let (_, why, _) = said(&world, &["why", "7"]).await;
    assert!(
        why.starts_with("Needs you: its call is approved: ") && why.contains("overlay.toml runs resume "),
        "{why}"
    );
    let (code, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(world.shop().join(".worktrees/issue-7/release/notes.md").exists());
    let (_, listed) = world.json(&["approvals", "list"]).await;
    assert_eq!(listed, json!([]));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_denied_does_not_wait_and_the_agent_is_told_so() {
    let replies = vec![
        calls(&[write("release/notes.md")]),
        calls(&[write("release/notes.md")]),
        reports("Done without it.", json!([])),
    ];
    let world = solo(replies, Some(ASK), "").await;
    run(&world).await;
    let hash = waiting(&world);
    let (code, denied, _) = said(&world, &["approvals", "deny", &hash]).await;
    assert!(code == Some(0) && denied.contains("Nothing goes on by itself"), "{denied}");
    let (_, listed) = world.json(&["approvals", "list"]).await;
    assert_eq!(listed[0]["state"], "denied", "{listed:#}");
    let (_, why, _) = said(&world, &["why", "7"]).await;
    assert!(why.starts_with("Needs you: its call was denied: "), "{why}");
    let (_, shown) = world.json(&["status"]).await;
    let text = shown["parked"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("its call was decided against; agentd runs resume "), "{shown:#}");
    let (code, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(!world.shop().join(".worktrees/issue-7/release/notes.md").exists());
    let decisions = left(&world, "run.json")["policyDecisions"].clone();
    assert_eq!(decisions[0]["reason"], "denied_by_person", "{decisions:#}");
    assert!(super::solo::asked(&world)[2].contains("decided against it"), "the model is told");
    // Whoever thinks better of it approves it all the same.
    let (_, listed) = world.json(&["approvals", "list"]).await;
    assert_eq!(listed, json!([]), "nothing waits after a success");
    world.finish().await;
}

/// Until the daemon knows that the run has ended and a call waits.
async fn daemon_waits(world: &World) {
    let state = world.dir.path().join("state/daemon/state.json");
    let parked =
        |state: String| state.contains("\"code\":\"approval_pending\"") && !state.contains("\"settling\"");
    until("the daemon waits", || std::fs::read_to_string(&state).is_ok_and(parked)).await;
}

/// A daemon whose run has left a call to a person and ended; gives the hash of the call.
async fn left_to_a_person(replies: Vec<ReplyFile>) -> (World, Running, String) {
    let world = solo(replies, Some(ASK), "").await;
    let toml = std::fs::read_to_string(world.shop().join(".agent/agentd.toml")).unwrap();
    world.write("shop/.agent/agentd.toml", &toml.replace("agent = \"resolver\"", "agent = \"solo\""));
    let daemon = Running::start(&world, &[]);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("a question", || world.labels() == ["agentd:attention"]).await;
    until("its record", || newest(&world).join("run.json").is_file()).await;
    let hash = waiting(&world);
    daemon_waits(&world).await;
    (world, daemon, hash)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_goes_on_by_itself_with_a_call_that_was_approved_on_its_machine() {
    let (world, daemon, hash) = left_to_a_person(vec![
        calls(&[write("release/notes.md")]),
        calls(&[write("release/notes.md")]),
        reports("Done.", json!([])),
    ])
    .await;
    let (_, why, _) = said(&world, &["why", "7"]).await;
    assert!(why.lines().next().unwrap().ends_with("; the daemon goes on by itself"), "{why}");
    let (_, status, _) = said(&world, &["status"]).await;
    assert!(status.contains("write_file release/notes.md") && status.contains(&hash[..12]), "{status}");
    let (code, approved, _) = said(&world, &["approvals", "approve", &hash]).await;
    assert!(code == Some(0) && approved.contains("The daemon goes on with it"), "{approved}");
    until("done", || world.labels() == ["agentd:done"]).await;
    let written = world.shop().join(".worktrees/issue-7/release/notes.md");
    assert_eq!(std::fs::read_to_string(written).unwrap(), "made\n");
    assert_eq!(world.sim.model_requests().len(), 3, "it was gone on with once");
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_reached_its_objective_without_is_approved_for_the_next_run_and_nobody_is_told_to_resume()
{
    let soft = ASK.replace(
        "reason = \"approval_required\"",
        "deny_mode = \"tool_result\"\nreason = \"approval_required\"",
    );
    let replies = vec![
        calls(&[write("release/notes.md"), write("open.txt")]),
        reports("Done without the notes.", json!([])),
    ];
    let world = solo(replies, Some(&soft), "").await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let comments = world.sim.issue("demo/shop", 7).unwrap().comments;
    assert!(!comments.iter().any(|comment| comment.body.contains("An approval is needed")));
    let id = output["run_id"].as_str().unwrap();
    let (code, told, error) = said(&world, &["runs", "approve", id, &waiting(&world)]).await;
    assert_eq!(code, Some(0), "{told}{error}");
    assert!(!told.contains("resume") && told.contains("overlay.toml run --issue 7"), "{told}");
    world.finish().await;
}

/// F0, whose last step wants to write what a person decides on.
async fn two_steps(replies: Vec<ReplyFile>) -> World {
    let (world, project) = shop(replies).await;
    open_schemas(&project);
    let handoffs =
        "[[rule]]\nid = \"steps\"\nkind = \"handoff\"\nname = \"*\"\neffect = \"allow\"\nreason = \"test\"\n";
    world.write("shop/.agent/policy.toml", &format!("{ASK}{handoffs}"));
    of_the_daemon(&world);
    world
}

async fn approve(world: &World) {
    let (code, told, error) = said(world, &["approvals", "approve", &waiting(world)]).await;
    assert_eq!(code, Some(0), "{told}{error}");
}

async fn waits(world: &World, runs: usize) {
    let folder = newest(world).parent().unwrap().to_owned();
    let ended = || {
        let runs = std::fs::read_dir(&folder).unwrap().map(|run| run.unwrap().path().join("run.json"));
        runs.filter(|record| record.is_file()).count()
    };
    until("its record", || ended() == runs).await;
    until("a question", || world.labels() == ["agentd:attention"]).await;
}

fn is_written(world: &World) {
    let written = world.shop().join(".worktrees/issue-7/release/notes.md");
    assert_eq!(std::fs::read_to_string(written).unwrap(), "made\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn p_037_a_run_whose_call_was_approved_is_gone_on_with_at_the_step_that_wanted_it() {
    for by_daemon in [true, false] {
        let wants = || calls(&[write("release/notes.md")]);
        let world = two_steps(vec![hands_over(), wants(), wants(), says("closing")]).await;
        let command = ["run", "--issue", "7", "--agent", "f0"];
        let daemon = by_daemon.then(|| Running::start(&world, &[]));
        if by_daemon {
            world.sim.add_label("demo/shop", 7, "agentd", "ada");
            until("it begins", || !world.sim.model_requests().is_empty()).await;
            waits(&world, 1).await;
        } else {
            let (_, output) = world.json(&command).await;
            assert_eq!(output["stop_detail"], "approval_pending", "{output:#}");
        }
        assert_eq!(world.sim.model_requests().len(), 2);
        approve(&world).await;
        if !by_daemon {
            let (code, output) = world.json(&command).await;
            assert_eq!(code, Some(0), "{output:#}");
        }
        until("done", || world.labels() == ["agentd:done"]).await;
        is_written(&world);
        assert_eq!(world.sim.model_requests().len(), 4, "the first step was not visited again");
        if let Some(daemon) = daemon {
            daemon.stop().await;
        }
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p_037_what_is_approved_for_somebody_elses_run_lets_no_daemon_go_on_and_on() {
    let wants = || calls(&[write("release/notes.md")]);
    let world = two_steps(vec![hands_over(), wants(), wants(), wants(), says("closing")]).await;
    let (_, output) = world.json(&["run", "--issue", "7", "--agent", "f0"]).await;
    assert_eq!(output["stop_detail"], "approval_pending", "{output:#}");
    approve(&world).await;
    let daemon = Running::start(&world, &[]);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    waits(&world, 2).await;
    daemon_waits(&world).await;
    // An approval is looked for in each of its looks.
    let looks = || world.sim.requests().iter().filter(|one| one.target.contains("/pulls/comments?")).count();
    let before = looks();
    until("three more looks", || looks() >= before + 3).await;
    assert_eq!(world.sim.model_requests().len(), 3, "the approval lets nothing of this run go on");
    let (_, why, _) = said(&world, &["why", "7"]).await;
    assert!(
        why.contains("a call waits for an approval"),
        "the approval is of a run for the machine's user: {why}"
    );
    approve(&world).await;
    until("done", || world.labels() == ["agentd:done"]).await;
    is_written(&world);
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_037_what_is_approved_for_the_runs_of_two_people_counts_for_both() {
    let wants = || calls(&[write("release/notes.md")]);
    let again = [hands_over(), wants(), says("closing")];
    let replies = [hands_over(), wants(), wants(), wants(), says("closing")].into_iter().chain(again);
    let world = two_steps(replies.collect()).await;
    let command = ["run", "--issue", "7", "--agent", "f0"];
    let (_, output) = world.json(&command).await;
    assert_eq!(output["stop_detail"], "approval_pending", "{output:#}");
    approve(&world).await;
    // Ada's run wants the same, and has an approval of its own.
    let daemon = Running::start(&world, &[]);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    waits(&world, 2).await;
    approve(&world).await;
    until("done", || world.labels() == ["agentd:done"]).await;
    daemon.stop().await;
    // The one for the machine's user is there still, for one use.
    let (code, output) = world.json(&command).await;
    assert_eq!((code, &output["stop_detail"]), (Some(0), &json!("completed")), "{output:#}");
    is_written(&world);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_while_a_call_waits_decides_against_the_call() {
    let (world, daemon, hash) = left_to_a_person(vec![calls(&[write("release/notes.md")])]).await;
    let comments = || -> Vec<String> {
        world.sim.issue("demo/shop", 7).unwrap().comments.into_iter().map(|comment| comment.body).collect()
    };
    let answers =
        || comments().into_iter().filter(|body| body.contains("> `/agentd stop`")).collect::<Vec<_>>();
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd stop");
    until("an answer", || answers().len() == 1).await;
    let told = answers().remove(0);
    assert!(told.contains("ada decided against") && told.contains("`write_file`"), "{told}");
    assert!(!told.contains("nothing waits"), "{told}");
    let waits = ["An approval is needed", "**It waits for an approval.**"];
    assert!(!comments().iter().any(|body| waits.iter().any(|part| body.contains(part))), "{:#?}", comments());
    let because = "**It waited for an approval, and does no more:** ada decided against its call.";
    assert!(comments()[0].contains(because) && comments()[0].contains("Stop reason"), "{}", comments()[0]);
    let (_, shown) = world.json(&["status"]).await;
    let row = &shown["status"]["parked"][0];
    assert_eq!(row["text"], "ada decided against its call", "{shown:#}");
    // No list has it any more.
    assert!(row["title"].is_string() && row["url"].as_str().unwrap().ends_with("/issues/7"), "{row:#}");
    let (_, listed) = world.json(&["approvals", "list"]).await;
    assert_eq!(
        (&listed[0]["state"], &listed[0]["proposal_hash"]),
        (&json!("denied"), &json!(hash)),
        "{listed:#}"
    );
    // Said once more, there is nothing left to decide on.
    world.sim.add_comment("demo/shop", 7, "ada", "/agentd stop");
    until("a second answer", || answers().len() == 2).await;
    assert!(answers()[1].contains("Nothing runs and nothing waits"), "{}", answers()[1]);
    daemon.stop().await;
    assert_eq!(world.sim.model_requests().len(), 1, "nothing goes on");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_denied_on_the_daemons_machine_is_said_and_an_approval_after_all_goes_on_with_it() {
    let (world, daemon, hash) = left_to_a_person(vec![
        calls(&[write("release/notes.md")]),
        calls(&[write("release/notes.md")]),
        reports("Done.", json!([])),
    ])
    .await;
    let (code, denied, _) = said(&world, &["approvals", "deny", &hash]).await;
    assert_eq!(code, Some(0), "{denied}");
    let state = world.dir.path().join("state/daemon/state.json");
    let is_said = || std::fs::read_to_string(&state).is_ok_and(|state| state.contains("was decided against"));
    until("the daemon knows it", is_said).await;
    assert_eq!(world.sim.model_requests().len(), 1, "nothing goes on");
    let told = |part: &str| {
        let comments = world.sim.issue("demo/shop", 7).unwrap().comments;
        comments.iter().any(|comment| comment.body.contains(part))
    };
    assert!(told("No approval is waited for any more: its call was decided against"));
    assert!(!told("An approval is needed") && !told("**It waits for an approval.**"));
    let (_, why, _) = said(&world, &["why", "7"]).await;
    assert!(why.contains("its call was denied"), "{why}");
    let (code, approved, _) = said(&world, &["approvals", "approve", &hash]).await;
    assert_eq!(code, Some(0), "{approved}");
    until("done", || world.labels() == ["agentd:done"]).await;
    daemon.stop().await;
    world.finish().await;
}

/// The world in which somebody approved a run's write, with the replies of the runs that come after.
async fn with_an_approved_write(more: Vec<ReplyFile>) -> World {
    let first = vec![calls(&[write("release/notes.md")])];
    let world = solo([first, more].concat(), Some(ASK), "").await;
    let (_, output) = run(&world).await;
    assert_eq!(output["stop_detail"], "approval_pending", "{output:#}");
    approve(&world).await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn d86_what_leaves_is_what_was_approved_and_nothing_else_at_its_path() {
    for other in ["echo other > release/notes.md", "ln -sf ../lib/cart.sh release/notes.md"] {
        let changed = ("run_command", json!({ "argv": ["sh", "-c", other] }));
        let more = vec![calls(&[write("release/notes.md")]), calls(&[changed]), reports("Done.", json!([]))];
        let world = with_an_approved_write(more).await;
        let (code, output) = run(&world).await;
        assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("policy_denied")), "{other}: {output:#}");
        let told = output.to_string();
        assert!(told.contains("it is not as a person approved it, and the policy denies it"), "{told}");
        assert!(output.to_string().contains("release/notes.md"), "{output:#}");
        assert!(world.sim.pulls("demo/shop").is_empty(), "{other}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d86_an_approved_write_whose_commit_is_only_here_leaves_with_a_later_run_of_the_issue() {
    let more = vec![
        calls(&[write("release/notes.md")]),
        reports("Done.", json!([])),
        calls(&[write("lib/more.txt")]),
        reports("More.", json!([])),
    ];
    let world = with_an_approved_write(more).await;
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo", "--publish", "none"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    for path in ["release/notes.md", "lib/more.txt"] {
        let there = agentd::sim::bare::file(&git_dir, "feature/issue-7", path);
        assert_eq!(there.as_deref(), Some(&b"made\n"[..]), "{path}");
    }
    world.finish().await;
}

/// The daemon remembers for whom it would go on; what a run by hand asked is approved for who began that.
#[tokio::test(flavor = "multi_thread")]
async fn an_approval_for_a_run_by_hand_makes_the_daemon_begin_none_for_somebody_else() {
    let asks = || calls(&[write("release/notes.md")]);
    let (world, daemon, _) =
        left_to_a_person(vec![asks(), asks(), asks(), reports("Done.", json!([]))]).await;
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("approval_pending")), "{output:#}");
    let hash = waiting(&world);
    let (code, approved, _) = said(&world, &["approvals", "approve", &hash[..12]]).await;
    assert_eq!(code, Some(0), "{approved}");
    assert!(approved.contains("runs resume "), "{approved}");
    let polls = || world.sim.requests().iter().filter(|asked| asked.target.contains("/issues?")).count();
    let seen = polls();
    until("three looks", || polls() > seen + 2).await;
    assert_eq!(world.sim.model_requests().len(), 2, "nothing began by itself");
    let (code, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!((code, world.sim.model_requests().len()), (Some(0), 4), "{output:#}");
    daemon.stop().await;
    world.finish().await;
}

/// The daemon has the older run in mind when a comment approves what the newest one asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_comment_approves_what_a_run_asked_that_began_after_work_was_given_back() {
    let asks = || calls(&[write("release/notes.md")]);
    let (world, daemon, _) =
        left_to_a_person(vec![asks(), asks(), asks(), reports("Done.", json!([]))]).await;
    let (code, taken) = world.json(&["take", "7"]).await;
    assert_eq!(code, Some(0), "{taken:#}");
    let (_, given) = world.json(&["give-back", "7", "-m", "Go on"]).await;
    until_or("another question", || world.sim.model_requests().len() == 2, || format!("{given:#}")).await;
    until("a question", || world.labels() == ["agentd:attention"]).await;
    until("its record", || newest(&world).join("run.json").is_file()).await;
    let hash = waiting(&world);
    world.sim.add_comment("demo/shop", 7, "ada", &format!("/agentd approve {}", &hash[..12])).unwrap();
    let told = || format!("{:?} {:#?}", world.labels(), world.sim.issue("demo/shop", 7).unwrap().comments);
    until_or("a run goes on", || world.sim.model_requests().len() >= 3, told).await;
    assert!(!told().contains("is not the newest of its issue"), "{}", told());
    daemon.stop().await;
    world.sim.shutdown().await;
}
