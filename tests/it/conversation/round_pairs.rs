//! Follow-up runs where other things meet them: refused starts, branches and pull requests that people change, labels, words said here.

use agentd::sim::ReplyFile;
use serde_json::json;

use super::pull_request::{
    REPO, admin, asked, comment, delivered, delivered_in, ended, inbox, is_settled, labelled, labelled_with,
    opened, replies, review, runs, said, status, ticks,
};
use crate::outside::approvals::{ASK, write};
use crate::outside::daemons::{Running, until, until_or};
use crate::outside::solo::{calls, left, newest, reports};
use crate::outside::world::{World, text};

const AT_ONCE: &str = "[conversation]\nquiet_period = \"0s\"\n";

fn branch(world: &World) -> String {
    agentd::sim::bare::head(&world.sim.git_dir(REPO).unwrap(), "feature/issue-7").unwrap()
}

/// What a person puts in the place of the issue's branch.
fn force_push(world: &World) -> String {
    let commit = json!({
        "branch": "feature/issue-7", "message": "Mine", "author": "Ada L. <7+ada@users.noreply.github.com>",
        "files": { "mine.md": "Mine.\n" }, "onto": "develop",
    });
    admin(world, "POST", "commits", &commit)["sha"].as_str().unwrap().to_owned()
}

async fn until_runs(world: &World, count: usize) {
    until_or(
        "runs",
        || runs(world) >= count,
        || format!("{} runs, {:?}, {:#}", runs(world), world.labels(), inbox(world)),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follow_up_run_that_is_refused_is_not_tried_again_until_somebody_writes_and_does_not_count() {
    let (world, daemon, pull) = delivered(3, "[conversation]\nquiet_period = \"0s\"\nmax_rounds = 2\n").await;
    let worktree = world.shop().join(".worktrees/issue-7");
    world.git(&worktree, &["checkout", "-q", "-b", "look"]).await;
    review(&world, pull, "ada", "CHANGES_REQUESTED", "Please mend this.", &[]);
    until_or("attention", || world.labels() == ["agentd:attention"], || format!("{:?}", world.labels()))
        .await;
    ticks(&world, 4).await;
    assert_eq!(runs(&world), 1);
    let told = said(&world, 7, "is on look").len() + said(&world, 7, "stands on look").len();
    let refusals = said(&world, 7, "agentd:issue-7:refusal");
    assert_eq!(refusals.len(), 1, "{refusals:#?}");
    assert!(told > 0 || refusals[0].contains("look"), "the true reason stays: {refusals:#?}");
    world.git(&worktree, &["checkout", "-q", "feature/issue-7"]).await;
    for (place, words) in ["Now it may be.", "Once more."].into_iter().enumerate() {
        review(&world, pull, "ada", "CHANGES_REQUESTED", words, &[]);
        ended(&world, 2 + place).await;
    }
    let log = text(&daemon.stop().await.stderr);
    assert_eq!(log.matches("nothing was begun").count(), 1, "{log}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_review_of_a_branch_that_a_person_rebased_is_worked_on_there_and_what_they_replaced_is_kept() {
    let (world, daemon, pull) = delivered(2, AT_ONCE).await;
    let ours = branch(&world);
    let theirs = force_push(&world);
    review(&world, pull, "ada", "CHANGES_REQUESTED", "Go on from mine.", &[]);
    ended(&world, 2).await;
    let git_dir = world.sim.git_dir(REPO).unwrap();
    let behind = agentd::sim::bare::ahead_behind(&git_dir, &theirs, &branch(&world)).unwrap().1;
    assert_eq!(behind, 0, "theirs is an ancestor");
    for (file, is_there) in [("mine.md", true), ("notes/2.md", true), ("notes/1.md", false)] {
        assert_eq!(agentd::sim::bare::file(&git_dir, "feature/issue-7", file).is_some(), is_there, "{file}");
    }
    let kept =
        world.git(&world.shop(), &["for-each-ref", "--format=%(objectname)", "refs/agentd/displaced"]).await;
    assert!(kept.contains(&ours), "{kept}");
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_run_that_a_displaced_one_proposes_goes_on_from_the_remotes_branch() {
    let mut slow = replies(3);
    slow[1].delay_ms = 4_000;
    let (world, daemon, pull) = delivered_in(labelled_with(slow, AT_ONCE).await).await;
    comment(&world, pull, "ada", "@agentd-demo and another note.");
    until("a second run", || asked(&world) == 3).await;
    let theirs = force_push(&world);
    until_or("attention", || world.labels() == ["agentd:attention"], || format!("{:?}", world.labels()))
        .await;
    until("its result", || newest(&world).join("result.json").exists()).await;
    assert_eq!(left(&world, "result.json")["stop_detail"], "branch_moved");
    daemon.stop().await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let git_dir = world.sim.git_dir(REPO).unwrap();
    assert_eq!(agentd::sim::bare::ahead_behind(&git_dir, &theirs, &branch(&world)).unwrap().1, 0);
    world.finish().await;
}

/// A world whose follow-up run is at its first request, with the pull request.
async fn at_work() -> (World, Running, u64) {
    let mut slow = replies(3);
    slow[1].delay_ms = 6_000;
    let (world, daemon, pull) = delivered_in(labelled_with(slow, AT_ONCE).await).await;
    comment(&world, pull, "ada", "@agentd-demo and another note.");
    until("a second run", || asked(&world) == 3).await;
    (world, daemon, pull)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_that_is_closed_ends_its_follow_up_run_and_no_other_one_is_opened() {
    let (world, daemon, pull) = at_work().await;
    let before = branch(&world);
    admin(&world, "PATCH", &format!("issues/{pull}"), &json!({ "state": "closed", "actor": "ada" }));
    until("its result", || newest(&world).join("result.json").exists() && runs(&world) == 2).await;
    let output = left(&world, "result.json");
    assert_eq!(output["stop_detail"], "user_stop", "{output:#}");
    let message = output["error"]["message"].as_str().unwrap();
    assert!(message.contains("was closed while the run worked on it"), "{message}");
    until_or("its label", || world.labels() == ["agentd:failed"], || format!("{:?}", world.labels())).await;
    ticks(&world, 2).await;
    assert_eq!((world.sim.pulls(REPO).len(), runs(&world), branch(&world)), (1, 2, before));
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_that_is_merged_and_its_branch_deleted_ends_its_follow_up_run_and_stays_so() {
    let (world, daemon, pull) = at_work().await;
    admin(&world, "POST", &format!("pulls/{pull}/merge"), &json!({ "actor": "ada" }));
    admin(&world, "DELETE", "branches/feature/issue-7", &json!({}));
    until("its result", || newest(&world).join("result.json").exists() && runs(&world) == 2).await;
    let output = left(&world, "result.json");
    let message = output["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("was merged while the run worked on it"), "{output:#}");
    until_or("its label", || world.labels() == ["agentd:done"], || format!("{:?}", world.labels())).await;
    let git_dir = world.sim.git_dir(REPO).unwrap();
    assert_eq!(
        (world.sim.pulls(REPO).len(), agentd::sim::bare::head(&git_dir, "feature/issue-7")),
        (1, None)
    );
    daemon.stop().await;
    world.sim.shutdown().await;
}

/// A call of a follow-up run waits for an approval when its pull request is merged or closed: `method`, `path` and `body` do that.
async fn a_call_waits_when(method: &str, path: impl Fn(u64) -> String, body: serde_json::Value, label: &str) {
    let mut asks = replies(3);
    for ask in &mut asks[1..=2] {
        *ask = ReplyFile { when: ask.when.clone(), ..calls(&[write("release/notes.md")]) };
    }
    let world = labelled_with(asks, AT_ONCE).await;
    world.write("shop/.agent/policy.toml", ASK);
    let (world, daemon, pull) = delivered_in(world).await;
    review(&world, pull, "ada", "CHANGES_REQUESTED", "Write the notes.", &[]);
    let waits = || world.labels() == ["agentd:attention"];
    until_or("attention", waits, || format!("{:?}", world.labels())).await;
    let (_, listed) = world.json(&["approvals", "list"]).await;
    let hash = listed[0]["proposal_hash"].as_str().unwrap_or_else(|| panic!("{listed:#}")).to_owned();
    admin(&world, method, &path(pull), &body);
    until_or("its label", || world.labels() == [label], || format!("{:?}", world.labels())).await;
    until_or(
        "the status comment",
        || !said(&world, 7, "is no more:** the pull request was").is_empty(),
        || format!("{:#?}", said(&world, 7, "")),
    )
    .await;
    let comments = [said(&world, 7, ""), said(&world, pull, "")].concat();
    let waiting =
        |text: &String| text.contains("waits for an approval") || text.contains("approvals approve");
    assert!(!comments.iter().any(waiting), "{comments:#?}");
    let (_, listed) = world.json(&["approvals", "list"]).await;
    assert_eq!(listed, json!([]));
    for command in ["approve", "deny"] {
        let refused = world.agentd(&["approvals", command, &hash]).await;
        assert!(
            refused.status.code() == Some(4) && text(&refused.stderr).contains("no call waits"),
            "{refused:?}"
        );
    }
    let (_, why) = world.json(&["why", "7"]).await;
    let told = why["summary"].as_str().unwrap();
    assert!(!told.contains("approval") && why["approvals"] == json!([]), "{why:#}");
    comment(&world, 7, "ada", &format!("/agentd approve {hash}"));
    let answered = || !said(&world, 7, "nothing waits for an approval on this issue").is_empty();
    until_or("an answer", answered, || format!("{:#?}", said(&world, 7, ""))).await;
    ticks(&world, 2).await;
    assert_eq!((runs(&world), world.labels()), (2, vec![label.to_owned()]));
    if label == "agentd:failed" {
        // Opened again, it waits for nobody either.
        admin(&world, "PATCH", &format!("issues/{pull}"), &json!({ "state": "open", "actor": "ada" }));
        let done = || world.labels() == ["agentd:done"];
        until_or("done", done, || format!("{:?}", world.labels())).await;
    }
    // Another run that wants the same asks for it anew.
    world.sim.add_label(REPO, 7, "agentd", "ada");
    until_or("attention", waits, || format!("{:?}", world.labels())).await;
    let (_, listed) = world.json(&["approvals", "list"]).await;
    assert_eq!(
        (&listed[0]["state"], &listed[0]["proposal_hash"]),
        (&json!("waiting"), &json!(hash)),
        "{listed:#}"
    );
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_follow_up_run_left_to_be_approved_is_over_when_its_pull_request_is_merged() {
    a_call_waits_when("POST", |pull| format!("pulls/{pull}/merge"), json!({ "actor": "ada" }), "agentd:done")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_follow_up_run_left_to_be_approved_is_over_when_its_pull_request_is_closed() {
    let closed = json!({ "state": "closed", "actor": "ada" });
    a_call_waits_when("PATCH", |pull| format!("issues/{pull}"), closed, "agentd:failed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_review_in_the_second_in_which_the_pull_request_was_opened_is_heard() {
    // Between two looks more time passes than a change counts as young.
    let world = labelled(2, &format!("{AT_ONCE}[daemon]\npoll_interval = \"6s\"\n")).await;
    let daemon = Running::start(&world, &[]);
    until("a pull request", || !world.sim.pulls(REPO).is_empty() && is_settled(&world)).await;
    let pull = world.sim.pulls(REPO)[0].clone();
    let at = pull.created_at.to_rfc3339();
    let early =
        json!({ "author": "ada", "state": "CHANGES_REQUESTED", "body": "Not so.", "comments": [], "at": at });
    admin(&world, "POST", &format!("pulls/{}/reviews", pull.number), &early);
    ended(&world, 2).await;
    assert!((2..asked(&world)).any(|request| world.told(request).contains("Not so.")));
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_here_while_nothing_runs_is_in_the_first_request_of_the_next_run_and_in_no_other_one() {
    let world = labelled(2, AT_ONCE).await;
    let daemon = Running::start(&world, &[]);
    opened(&world).await;
    let (code, _) = world.json(&["say", "7", "Mind the OKAPI."]).await;
    assert_eq!(code, Some(0));
    let before = asked(&world);
    world.sim.add_label(REPO, 7, "agentd", "ada");
    ended(&world, 2).await;
    assert!(world.told(before).contains("Mind the OKAPI."), "{}", world.told(before));
    let last = world.told(asked(&world) - 1);
    assert_eq!(last.matches("OKAPI").count(), 1, "{last}");
    let settled = || !inbox(&world).to_string().contains("\"waiting\"");
    until_or("it is told", settled, || format!("{:#}", inbox(&world))).await;
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_that_a_person_puts_on_while_a_follow_up_run_works_has_its_run() {
    let (world, daemon, _) = at_work().await;
    assert!(world.sim.add_label(REPO, 7, "agentd", "ada"));
    until_runs(&world, 3).await;
    ended(&world, 3).await;
    ticks(&world, 2).await;
    assert_eq!((runs(&world), world.labels()), (3, vec!["agentd:done".to_owned()]));
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_mends_after_a_commit_was_refused_is_gone_on_with() {
    let secret = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    let mut replies = replies(1);
    let write = json!({ "path": "notes/1.md", "content": format!("pw {secret}\n") });
    replies[0] = ReplyFile { when: replies[0].when.clone(), ..calls(&[("write_file", write)]) };
    let world = labelled_with(replies, "").await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("policy_denied")), "{output:#}");
    let place = world.shop().join(".worktrees/issue-7/notes/1.md");
    std::fs::write(&place, "clean\n").unwrap();
    let (code, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(std::fs::read_to_string(&place).unwrap(), "clean\n");
    assert!(!output["warnings"].to_string().contains("edits_rescued"), "{output:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_follow_up_run_could_not_push_is_pushed_after_a_pause_and_its_reviewer_is_answered_then() {
    let note = |run: u32| json!({ "path": format!("notes/{run}.md"), "content": format!("Note {run}.\n") });
    let threads = json!([{ "thread": "${t}", "outcome": "changed", "text": "See notes/2.md." }]);
    let report = json!({ "report_format": "markdown", "content": "Done.", "threads": threads });
    let says = json!({ "final_report": report, "capture": { "t": "Thread (PRRT_[0-9]+) about" } });
    let script = vec![
        calls(&[("write_file", note(1))]),
        reports("Done.", json!([])),
        calls(&[("write_file", note(2))]),
        serde_json::from_value(says).unwrap(),
    ];
    let (world, daemon, pull) = delivered_in(labelled_with(script, AT_ONCE).await).await;
    let refuse =
        json!({ "path": "/git/demo/shop.git/git-receive-pack", "kind": "status", "status": 503, "times": 0 });
    world.sim.inject(&serde_json::from_value(refuse).unwrap()).unwrap();
    let before = branch(&world);
    review(&world, pull, "ada", "CHANGES_REQUESTED", "", &["Why this?"]);
    let failed = || world.labels() == ["agentd:failed"];
    until_or("failed", failed, || format!("{:?} {:#?}", world.labels(), said(&world, 7, ""))).await;
    let replies = || -> Vec<String> {
        let threads = world.sim.issue(REPO, pull).unwrap().pull.unwrap().threads;
        let all = threads.into_iter().flat_map(|thread| thread.comments);
        all.filter(|one| one.comment.author == "agentd-demo").map(|one| one.comment.body).collect()
    };
    assert_eq!(replies(), Vec::<String>::new(), "nothing is pushed yet");
    let requests = asked(&world);
    let clear = format!("{}/_sim/faults", world.sim.base_url());
    assert!(reqwest::Client::new().delete(clear).send().await.unwrap().status().is_success());
    let done = || world.labels() == ["agentd:done"];
    until_or("done", done, || {
        format!("{:?} {:#} {:#}", world.labels(), status(&world), left(&world, "result.json"))
    })
    .await;
    assert_ne!(branch(&world), before);
    assert_eq!((asked(&world), world.sim.pulls(REPO).len()), (requests, 1), "no model is asked again");
    until_or("an answer", || replies().len() == 1, || format!("{:#?}", replies())).await;
    assert!(
        replies()[0].contains("See notes/2.md.") && !replies()[0].contains("Declined"),
        "{:#?}",
        replies()
    );
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_check_whose_labeller_may_nothing_any_more_is_told_once_and_others_are_heard() {
    let (world, daemon, pull) = delivered(2, AT_ONCE).await;
    let may = |login: &str, role: &str| {
        admin(&world, "PUT", &format!("collaborators/{login}"), &json!({ "role": role }));
    };
    may("boss", "admin");
    may("ada", "none");
    let failed = json!({ "on": branch(&world), "kind": "run", "outcome": "failure", "name": "build" });
    admin(&world, "POST", "checks", &failed);
    until_or("attention", || world.labels() == ["agentd:attention"], || format!("{:?}", world.labels()))
        .await;
    ticks(&world, 4).await;
    assert_eq!(runs(&world), 1);
    let refusals = said(&world, 7, "agentd:issue-7:refusal");
    assert_eq!(refusals.len(), 1, "{refusals:#?}");
    assert!(refusals[0].contains("ada has the permission \"none\""), "{refusals:#?}");
    review(&world, pull, "boss", "CHANGES_REQUESTED", "Please mend this.", &[]);
    until_runs(&world, 2).await;
    ended(&world, 2).await;
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_review_from_before_the_state_began_starts_nothing_and_one_that_a_stopped_daemon_missed_does() {
    let (world, daemon, pull) = delivered(3, AT_ONCE).await;
    daemon.stop().await;
    let old = json!({
        "author": "ada", "state": "CHANGES_REQUESTED", "body": "Of long ago.", "at": "2026-01-02T03:04:05Z",
    });
    admin(&world, "POST", &format!("pulls/{pull}/reviews"), &old);
    std::fs::remove_dir_all(world.dir.path().join("state")).unwrap();
    let before = asked(&world);
    let daemon = Running::start(&world, &[]);
    ticks(&world, 4).await;
    assert_eq!((asked(&world), runs(&world)), (before, 0), "{:#}", inbox(&world));
    daemon.stop().await;
    review(&world, pull, "ada", "CHANGES_REQUESTED", "While nobody listened.", &[]);
    let daemon = Running::start(&world, &[]);
    ended(&world, 1).await;
    assert!(world.told(before).contains("While nobody listened."), "{}", world.told(before));
    review(&world, pull, "ada", "CHANGES_REQUESTED", "Just now.", &[]);
    ended(&world, 2).await;
    daemon.stop().await;
    world.finish().await;
}

/// A world in which a follow-up run waits for the only slot, which another issue's run has for a while.
async fn waiting_for_a_slot() -> (World, Running, u64, u64) {
    let slots = "[daemon]\npoll_interval = \"1s\"\nmax_concurrent_runs = 1\n";
    let (world, daemon, pull) = delivered(4, &format!("{AT_ONCE}{slots}")).await;
    let other = json!({ "title": "Another one", "body": "Please.", "author": "ada" });
    let other = admin(&world, "POST", "issues", &other)["number"].as_u64().unwrap();
    let slow = json!({ "path": "/model/**", "kind": "delay", "delay_ms": 12_000, "times": 1 });
    world.sim.inject(&serde_json::from_value(slow).unwrap()).unwrap();
    world.sim.add_label(REPO, other, "agentd", "ada");
    until_runs(&world, 2).await;
    let id = comment(&world, pull, "ada", "@agentd-demo please mend this.");
    until_or("it waits for its slot", || waits(&world), || format!("{:?}", world.labels())).await;
    (world, daemon, pull, id)
}

/// Whether issue 7 waits to be begun.
fn waits(world: &World) -> bool {
    let status =
        std::fs::read_to_string(world.dir.path().join("state/daemon/status.json")).unwrap_or_default();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
    status["waiting"].as_array().is_some_and(|rows| rows.iter().any(|row| row["issue"] == 7))
}

/// Waits until the other issue's run is over, and a while longer.
async fn slot_is_free(world: &World) {
    let free = || {
        let runs = world.dir.path().join("state/repos/demo/shop/runs");
        std::fs::read_dir(runs)
            .unwrap()
            .flatten()
            .filter(|run| run.path().join("result.json").exists())
            .count()
            == 2
    };
    until_or("the slot is free", free, || format!("{} runs", runs(world))).await;
    ticks(world, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_that_is_there_when_a_waiting_follow_up_run_begins_asks_for_no_second_one() {
    let (world, daemon, _, _) = waiting_for_a_slot().await;
    world.sim.add_label(REPO, 7, "agentd", "ada");
    until_runs(&world, 3).await;
    let off = || world.labels() == ["agentd:done"];
    until_or("the label is off", off, || format!("{:?}", world.labels())).await;
    ticks(&world, 4).await;
    assert_eq!(runs(&world), 3, "its run answered the label as well");
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follow_up_run_that_waits_is_not_begun_where_its_pull_request_is_merged_or_closed_or_its_remark_is_gone()
 {
    for what in ["merged", "closed", "deleted"] {
        let (world, daemon, pull, id) = waiting_for_a_slot().await;
        match what {
            "merged" => admin(&world, "POST", &format!("pulls/{pull}/merge"), &json!({ "actor": "ada" })),
            "closed" => {
                let closed = json!({ "state": "closed", "actor": "ada" });
                admin(&world, "PATCH", &format!("issues/{pull}"), &closed)
            }
            _ => admin(&world, "DELETE", &format!("comments/{id}"), &json!({})),
        };
        slot_is_free(&world).await;
        assert_eq!((runs(&world), waits(&world)), (2, false), "{what}");
        assert_eq!(
            world.sim.pulls(REPO).iter().filter(|one| one.number != pull).count(),
            1,
            "{what}: of the other issue"
        );
        daemon.stop().await;
        world.sim.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follow_up_run_that_waits_is_taken_out_of_the_queue_until_somebody_writes_again() {
    let (world, daemon, pull, _) = waiting_for_a_slot().await;
    comment(&world, 7, "ada", "/agentd stop");
    let told =
        || said(&world, 7, "nothing will run until somebody writes on the pull request again").len() == 1;
    until_or("its answer", told, || format!("{:#}", inbox(&world))).await;
    slot_is_free(&world).await;
    assert_eq!((runs(&world), waits(&world)), (2, false));
    comment(&world, pull, "ada", "@agentd-demo now it may be.");
    until_runs(&world, 3).await;
    ended(&world, 3).await;
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_while_a_follow_up_run_works_is_told_with_its_line_and_answered_where_it_stands() {
    let (world, daemon, pull) = at_work().await;
    let lines = review(&world, pull, "ada", "CHANGES_REQUESTED", "Not like this.", &["A better name."]);
    assert_eq!(lines.len(), 1);
    comment(&world, pull, "ada", "> Somebody else's words.\n\nKeep it short.");
    ended(&world, 2).await;
    assert_eq!(runs(&world), 2, "no other run is needed for it");
    let told = world.told(3);
    assert!(told.contains("In a thread about lib/cart.sh, line 3"), "{told}");
    assert!(told.contains("A better name.") && told.contains("Not like this."), "{told}");
    let quote = told.find("Somebody else's words.").unwrap();
    let before = told[..quote].trim_end_matches(['>', ' ']).trim_end();
    assert!(before.ends_with("<untrusted standing=\"quoted\">"), "{before}");
    // The run said nothing of them, also when it was asked once more.
    let asked: Vec<String> = world.sim.model_requests().iter().map(|asked| asked.body.to_string()).collect();
    let missing = format!("- `review-comment-{}`", lines[0]);
    assert!(asked.iter().any(|asked| asked.contains(&missing)), "{missing}");
    let threads = world.sim.issue(REPO, pull).unwrap().pull.unwrap().threads;
    let replies: Vec<&String> = threads
        .iter()
        .flat_map(|thread| &thread.comments)
        .filter(|one| one.comment.author == "agentd-demo")
        .map(|one| &one.comment.body)
        .collect();
    assert_eq!(replies.len(), 1, "{replies:#?}");
    assert!(replies[0].contains("The agent gave no answer to this"), "{replies:#?}");
    let round = said(&world, pull, "What came of these remarks");
    assert_eq!(round.len(), 1, "{round:#?}");
    assert!(round[0].contains("[review-") && !round[0].contains("review-comment-"), "{round:#?}");
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_and_an_answer_that_meet_a_rate_limit_are_not_lost() {
    let (world, daemon, _) = delivered(2, AT_ONCE).await;
    let limited = |path: &str| {
        let limit = json!({ "kind": "secondary_limit", "retry_after": 12, "times": 1, "method": "POST", "path": path });
        world.sim.inject(&serde_json::from_value(limit).unwrap()).unwrap();
    };
    limited("/repos/demo/shop/issues/7/labels");
    comment(&world, 7, "ada", "/agentd run");
    until_runs(&world, 2).await;
    ended(&world, 2).await;
    let queued = || said(&world, 7, "A run is queued for ada").len();
    until_or("its answer", || queued() == 1, || format!("{:?}", world.labels())).await;
    limited("/repos/demo/shop/issues/7/comments");
    comment(&world, 7, "ada", "/agentd nonsense");
    // What is owed outlives the daemon.
    let state = || std::fs::read_to_string(world.dir.path().join("state/daemon/state.json")).unwrap();
    until_or(
        "it is owed",
        || state().contains("`nonsense` is no command"),
        || format!("{:#}", inbox(&world)),
    )
    .await;
    daemon.kill();
    let daemon = Running::start(&world, &[]);
    until_or(
        "an answer",
        || said(&world, 7, "`nonsense` is no command").len() == 1,
        || format!("{:#}", inbox(&world)),
    )
    .await;
    ticks(&world, 2).await;
    assert_eq!((queued(), said(&world, 7, "`nonsense` is no command").len(), runs(&world)), (1, 1, 2));
    assert!(!state().contains("`nonsense` is no command"), "{}", state());
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follow_up_run_that_is_to_begin_is_stopped_before_it_does() {
    let (world, daemon, pull) =
        delivered(2, "[conversation]\nquiet_period = \"15s\"\nmax_wait = \"30s\"\n").await;
    let id = comment(&world, pull, "ada", "@agentd-demo please mend this.");
    let heard = || super::pull_request::fate(&world, &format!("comment-{id}")) == "waiting";
    until_or("it is heard", heard, || format!("{:#}", inbox(&world))).await;
    let shown = || status(&world)["waiting"][0]["code"] == "quiet_period";
    until_or("it is shown", shown, || format!("{:#}", status(&world))).await;
    let (_, why) = world.json(&["why", "7"]).await;
    assert_eq!(why["outlook"], "waits", "{why:#}");
    assert!(why.to_string().contains("a follow-up run for what people wrote is to begin at"), "{why:#}");
    comment(&world, 7, "ada", "/agentd stop");
    let told = || said(&world, 7, "ada stopped what was to begin").len() == 1;
    until_or("its answer", told, || format!("{:#}", inbox(&world))).await;
    ticks(&world, 18).await;
    assert_eq!((runs(&world), said(&world, 7, "Nothing runs and nothing waits").len()), (1, 0));
    assert_eq!(status(&world)["waiting"], json!([]));
    comment(&world, pull, "ada", "@agentd-demo now it may be.");
    until_runs(&world, 2).await;
    ended(&world, 2).await;
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asked_for_a_run_before_the_merge_is_told_that_none_began_and_who_stopped_it_is_not_told_again() {
    let wait = "[conversation]\nquiet_period = \"60s\"\nmax_wait = \"60s\"\n";
    for stops in [false, true] {
        let (world, daemon, pull) = delivered(1, wait).await;
        let id = comment(&world, pull, "ada", "@agentd-demo please mend this.");
        let fate = || super::pull_request::fate(&world, &format!("comment-{id}"));
        until_or("it is heard", || fate() == "waiting", || format!("{:#}", inbox(&world))).await;
        if stops {
            comment(&world, 7, "ada", "/agentd stop");
            let told = || said(&world, 7, "ada stopped what was to begin").len() == 1;
            until_or("its answer", told, || format!("{:#}", inbox(&world))).await;
        }
        admin(&world, "POST", &format!("pulls/{pull}/merge"), &json!({ "actor": "ada" }));
        until_or("it is over", || fate() != "waiting", || format!("{:#}", inbox(&world))).await;
        ticks(&world, 3).await;
        let told =
            said(&world, pull, "Nothing is done about this: the pull request was merged before a run began");
        assert_eq!((told.len(), runs(&world)), (usize::from(!stops), 1), "{told:?}");
        daemon.stop().await;
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_review_whose_run_is_cut_off_and_the_one_that_goes_on_with_it_too_is_answered_all_the_same() {
    let (world, daemon, pull) = delivered(3, AT_ONCE).await;
    let slow =
        json!({ "method": "POST", "path": "**/replies", "kind": "delay", "delay_ms": 60_000, "times": 2 });
    world.sim.inject(&serde_json::from_value(slow).unwrap()).unwrap();
    review(&world, pull, "ada", "CHANGES_REQUESTED", "Please mend this.", &["One.", "Two."]);
    let replying = || world.sim.requests().iter().filter(|asked| asked.target.ends_with("/replies")).count();
    let mut daemon = daemon;
    for times in 1..=2 {
        until_or("a reply", || replying() >= times, || format!("{:#}", inbox(&world))).await;
        daemon.kill();
        daemon = Running::start(&world, &[]);
    }
    let answers = || -> Vec<usize> {
        let threads = world.sim.issue(REPO, pull).unwrap().pull.unwrap().threads;
        threads.iter().map(|thread| thread.comments.len() - 1).collect()
    };
    until_or("both answers", || answers() == [1, 1], || format!("{:?} {:#}", answers(), inbox(&world))).await;
    until_or("its end", || is_settled(&world), || format!("{:?}", world.labels())).await;
    let told = || inbox(&world)["remarks"].as_object().unwrap().values().all(|one| one["fate"] == "told");
    until_or("told", told, || format!("{:#}", inbox(&world))).await;
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follow_up_run_that_went_on_with_an_answer_and_was_cut_off_is_gone_on_with() {
    for killed in [true, false] {
        let when = |reply: ReplyFile, when: serde_json::Value| ReplyFile {
            when: serde_json::from_value(when).unwrap(),
            ..reply
        };
        let question =
            calls(&[("agent__ask", json!({ "question": "Which colour?", "options": ["red", "blue"] }))]);
        let note = || calls(&[("write_file", json!({ "path": "notes/2.md", "content": "Blue.\n" }))]);
        let mut all = vec![when(question, json!({ "turn": 1, "anywhere": "COLOUR", "lacks": "blue it is" }))];
        let slow = ReplyFile { delay_ms: 60_000, ..note() };
        all.push(when(slow, json!({ "turn": 1, "contains": "blue it is" })));
        let works = json!({ "turn": 1, "contains": "blue it is", "lacks": "Answers that are missing" });
        all.push(when(ReplyFile { times: Some(0), ..note() }, works));
        all.extend(replies(1));
        let (world, daemon, pull) = delivered_in(labelled_with(all, AT_ONCE).await).await;
        review(&world, pull, "ada", "CHANGES_REQUESTED", "COLOUR it, please.", &[]);
        let asks = || world.labels().contains(&"agentd:needs-input".to_owned());
        until_or("a question", asks, || format!("{:?} {:#}", world.labels(), inbox(&world))).await;
        let before = asked(&world);
        comment(&world, pull, "ada", "/agentd answer blue it is");
        until_or("it goes on", || asked(&world) > before, || format!("{:#}", inbox(&world))).await;
        if killed {
            daemon.kill();
        } else {
            daemon.stop().await;
        }
        let daemon = Running::start(&world, &[]);
        let git_dir = world.sim.git_dir(REPO).unwrap();
        let pushed = || agentd::sim::bare::file(&git_dir, "feature/issue-7", "notes/2.md").is_some();
        until_or("its work", pushed, || format!("{:?} {:#?}", world.labels(), said(&world, 7, ""))).await;
        until_or("done", || world.labels() == ["agentd:done"], || format!("{:?}", world.labels())).await;
        daemon.stop().await;
        world.finish().await;
    }
}
