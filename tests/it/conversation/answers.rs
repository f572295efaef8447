//! Answers: what comes of each thread and remark, told once, after the push.

use agentd::sim::ReplyFile;
use serde_json::{Value, json};

use super::briefing::{READS, REPO, admin};
use crate::outside::daemons::{Running, until};
use crate::outside::solo::{calls, left, reports, run, solo};
use crate::outside::world::World;

/// A reply that changes a file of the demo.
fn writes(path: &str, content: &str) -> ReplyFile {
    calls(&[("write_file", json!({ "path": path, "content": content }))])
}

/// A world whose first run opened a pull request with a new file `notes.md` of four lines; it has `replies` for what comes.
async fn reviewed(more: &str) -> (World, u64) {
    let notes = "one\ntwo\nthree\nfour\n";
    let world = solo(vec![writes("notes.md", notes), reports("Done.", json!([]))], Some(READS), more).await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let pull = world.sim.pulls(REPO)[0].number;
    (world, pull)
}

/// A review with these inline comments; gives their threads' ids.
fn review(world: &World, pull: u64, comments: &Value) -> Vec<String> {
    let before = threads(world, pull).len();
    let body = json!({ "author": "ada", "state": "CHANGES_REQUESTED", "body": "", "comments": comments });
    admin(world, "POST", &format!("pulls/{pull}/reviews"), &body);
    threads(world, pull).into_iter().skip(before).map(|(id, _)| id).collect()
}

fn on(line: u64, body: &str) -> Value {
    json!({ "path": "notes.md", "line": line, "body": body })
}

/// The threads of a pull request: id, and the texts of agentd's replies.
fn threads(world: &World, pull: u64) -> Vec<(String, Vec<String>)> {
    let issue = world.sim.issue(REPO, pull).unwrap();
    let threads = issue.pull.unwrap().threads;
    let replies = |thread: &agentd::sim::world::Thread| {
        let own = thread.comments.iter().filter(|one| one.comment.author == "agentd-demo");
        own.map(|one| one.comment.body.clone()).collect()
    };
    threads.iter().map(|thread| (format!("PRRT_{}", thread.id), replies(thread))).collect()
}

/// A report with outcomes.
fn answers(outcomes: &[(&str, &str, &str)]) -> ReplyFile {
    let threads: Vec<Value> = outcomes
        .iter()
        .map(|(thread, outcome, text)| json!({ "thread": thread, "outcome": outcome, "text": text }))
        .collect();
    reports(&json!({ "summary": "Done.", "threads": threads }).to_string(), json!([]))
}

/// The answer to the question about what is missing.
fn answers_missing(outcomes: &[(&str, &str, &str)]) -> ReplyFile {
    let threads: Vec<Value> = outcomes
        .iter()
        .map(|(thread, outcome, text)| json!({ "thread": thread, "outcome": outcome, "text": text }))
        .collect();
    let report = json!({ "report_format": "json", "content_json": { "threads": threads }, "claims": [] });
    serde_json::from_value(json!({ "final_report": report, "usage": { "input": 100, "output": 20 } }))
        .unwrap()
}

fn first_line(reply: &str) -> &str {
    reply.lines().find(|line| !line.starts_with("<!--")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn c_i22_c_i40_each_of_twelve_threads_gets_its_outcome_and_its_reply() {
    let (world, pull) = reviewed("").await;
    let comments: Vec<Value> = (0..12).map(|n| on(n % 4 + 1, &format!("Remark number {n}."))).collect();
    let ids = review(&world, pull, &json!(comments));
    assert_eq!(ids.len(), 12);
    let kinds = ["changed", "answered", "declined", "asks"];
    let texts: Vec<String> = (0..12).map(|n| format!("Text {n} @ada closes #7.")).collect();
    let outcomes: Vec<(&str, &str, &str)> = ids
        .iter()
        .zip(&texts)
        .enumerate()
        .map(|(n, (id, text))| (id.as_str(), kinds[n % 4], text.as_str()))
        .collect();
    world.sim.push_replies([writes("notes.md", "1\ntwo\nthree\nfour\n"), answers(&outcomes)]).unwrap();
    let asked = world.sim.model_requests().len();
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let told = world.told(asked);
    for id in &ids {
        assert!(told.contains(&format!("Thread {id} about notes.md, line ")), "{told}");
    }
    assert!(told.contains("+three") && told.contains("3: three"), "hunk and present lines: {told}");
    let git_dir = world.sim.git_dir(REPO).unwrap();
    let head = agentd::sim::bare::head(&git_dir, "feature/issue-7").unwrap();
    for (n, (_, replies)) in threads(&world, pull).iter().enumerate() {
        assert_eq!(replies.len(), 1, "{n}: {replies:?}");
        let wanted = match kinds[n % 4] {
            "changed" => format!("Changed in {head}."),
            "answered" => "Answered; nothing changed.".to_owned(),
            "declined" => "Declined.".to_owned(),
            _ => "Question.".to_owned(),
        };
        assert_eq!(first_line(&replies[0]), wanted);
        assert!(replies[0].contains(&format!("Text {n} ")), "{replies:?}");
        assert!(!replies[0].contains("@ada") && !replies[0].contains("closes #7"), "{replies:?}");
    }
    let record = left(&world, "run.json");
    assert_eq!(record["threads"].as_array().unwrap().len(), 12, "{record:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_i40_an_outdated_thread_is_told_with_its_hunk_and_what_stands_there_now() {
    let (world, pull) = reviewed("").await;
    let ids = review(&world, pull, &json!([on(2, "Why two?")]));
    let files = json!({ "notes.md": "one\nZWEI\nthree\nfour\n" });
    admin(&world, "POST", "commits", &json!({ "branch": "feature/issue-7", "message": "x", "files": files }));
    let shop = world.shop().join(".worktrees/issue-7");
    assert!(shop.exists());
    world.sim.push_replies([answers(&[(&ids[0], "answered", "Because.")])]).unwrap();
    let asked = world.sim.model_requests().len();
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let told = world.told(asked);
    assert!(told.contains("line 2 as it was then, outdated"), "{told}");
    assert!(told.contains("+two") && told.contains("2: "), "{told}");
    assert_eq!(first_line(&threads(&world, pull)[0].1[0]), "Answered; nothing changed.");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_i41_changed_is_proven_by_a_pushed_commit_that_touches_the_file_or_one_that_the_text_cites() {
    let (world, pull) = reviewed("").await;
    let ids = review(&world, pull, &json!([on(1, "A."), on(2, "B.")]));
    world
        .sim
        .push_replies([
            writes("other.md", "x\n"),
            answers(&[(&ids[0], "changed", "I did it."), (&ids[1], "changed", "See `other.md:1`.")]),
        ])
        .unwrap();
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let told = threads(&world, pull);
    assert_eq!(first_line(&told[0].1[0]), "Answered; nothing changed.");
    assert!(first_line(&told[1].1[0]).starts_with("Changed in "), "{told:?}");
    let limitations = output["limitations"].to_string();
    assert!(limitations.contains(&ids[0]) && limitations.contains("notes.md"), "{output:#}");
    assert!(!limitations.contains(&ids[1]), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_of_text_gives_outcomes_beside_its_content_and_nothing_is_asked_again() {
    let (world, pull) = reviewed("").await;
    let ids = review(&world, pull, &json!([on(1, "Why one?"), on(2, "Two is wrong.")]));
    let outcomes = json!([
        { "thread": ids[0], "outcome": "answered", "text": "Because of the test." },
        { "thread": ids[1], "outcome": "changed", "text": "It is 2 now." },
    ]);
    let report = json!({ "report_format": "markdown", "content": "Both are done.", "threads": outcomes });
    let last = serde_json::from_value(json!({ "final_report": report })).unwrap();
    world.sim.push_replies([writes("notes.md", "one\n2\nthree\nfour\n"), last]).unwrap();
    let asked = world.sim.model_requests().len();
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(world.sim.model_requests().len(), asked + 2, "it is not asked once more");
    let offered = world.sim.model_requests()[asked].body.to_string();
    assert!(offered.contains("What came of each thread"), "the tool has a place for them: {offered}");
    let replies: Vec<String> = threads(&world, pull).into_iter().flat_map(|(_, all)| all).collect();
    assert_eq!(replies.len(), 2, "{replies:#?}");
    assert!(replies[0].contains("Answered; nothing changed.") && replies[0].contains("Because of the test."));
    assert!(replies[1].contains("Changed in ") && replies[1].contains("It is 2 now."), "{}", replies[1]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_i43_a_forgotten_thread_is_asked_for_once_more_then_declined_and_waits_on() {
    let (world, pull) = reviewed("").await;
    let ids = review(&world, pull, &json!([on(1, "A."), on(2, "B."), on(3, "C.")]));
    world
        .sim
        .push_replies([
            answers(&[(&ids[0], "answered", "Yes.")]),
            answers_missing(&[(&ids[1], "asks", "Which one?")]),
        ])
        .unwrap();
    let asked = world.sim.model_requests().len();
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(world.sim.model_requests().len(), asked + 2, "once more, and not again");
    let question = world.told(asked + 1);
    assert!(question.contains(&format!("- `{}`", ids[1])) && question.contains(&format!("- `{}`", ids[2])));
    assert!(!question.contains(&format!("- `{}`", ids[0])), "{question}");
    let told = threads(&world, pull);
    assert_eq!(first_line(&told[1].1[0]), "Question.");
    assert!(
        told[2].1[0].contains("Declined.\n\nThe agent gave no answer to this, and its run changed nothing."),
        "{told:?}"
    );
    // What was answered is not answered again; what was not worked on waits for the next run.
    world.sim.push_replies([answers(&[(&ids[2], "answered", "Now.")])]).unwrap();
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let counts: Vec<usize> = threads(&world, pull).iter().map(|(_, replies)| replies.len()).collect();
    assert_eq!(counts, [1, 1, 2]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_resolved_meanwhile_is_not_answered_and_resolving_follows_the_configuration() {
    let (world, pull) = reviewed("[conversation]\nresolve = \"changed\"\n").await;
    let ids = review(&world, pull, &json!([on(1, "A."), on(2, "B.")]));
    world
        .sim
        .push_replies([
            writes("notes.md", "1\n2\nthree\nfour\n"),
            answers(&[(&ids[0], "changed", "Done."), (&ids[1], "answered", "No.")]),
        ])
        .unwrap();
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let resolved = |place: usize| {
        let pull = world.sim.issue(REPO, pull).unwrap().pull.unwrap();
        pull.threads[place].resolved_by.is_some()
    };
    assert_eq!((resolved(0), resolved(1)), (true, false), "{output:#}");
    let reviewers = world.sim.issue(REPO, pull).unwrap().pull.unwrap().requested_reviewers;
    assert_eq!(reviewers, ["ada"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_in_a_thread_while_its_answer_is_on_the_way_or_after_it_was_resolved_is_told_and_answered()
{
    use super::pull_request::{asked, delivered_in, ended, labelled_with, runs};
    let says = |outcome: &str, text: &str, delay_ms: u64| -> ReplyFile {
        let threads = json!([{ "thread": "${t}", "outcome": outcome, "text": text }]);
        let report = json!({ "report_format": "markdown", "content": "Done.", "threads": threads });
        let capture = json!({ "t": "Thread (PRRT_[0-9]+) about" });
        let reply = json!({ "final_report": report, "capture": capture, "delay_ms": delay_ms });
        serde_json::from_value(reply).unwrap()
    };
    let replies = vec![
        writes("notes/1.md", "Note 1.\n"),
        reports("Done.", json!([])),
        writes("notes/2.md", "Note 2.\n"),
        says("changed", "See notes/2.md.", 5_000),
        says("answered", "To both.", 0),
        says("answered", "Also here.", 0),
    ];
    let more = "[conversation]\nquiet_period = \"0s\"\nresolve = \"changed\"\n";
    let (world, daemon, pull) = delivered_in(labelled_with(replies, more).await).await;
    let id = super::pull_request::review(&world, pull, "ada", "COMMENTED", "", &["Why this?"])[0];
    until("the last turn", || asked(&world) == 4).await;
    let wrote = |text: &str| {
        let reply = json!({ "actor": "ada", "body": text });
        admin(&world, "POST", &format!("comments/{id}/replies"), &reply);
    };
    wrote("And one more thing.");
    until("a run for that", || runs(&world) == 3).await;
    ended(&world, 3).await;
    let thread = || world.sim.issue(REPO, pull).unwrap().pull.unwrap().threads.remove(0);
    assert!(thread().resolved_by.is_none(), "nobody had read all of it");
    assert!(world.told(4).contains("And one more thing."), "{}", world.told(4));
    let own = || threads(&world, pull).remove(0).1;
    assert_eq!(own().len(), 2, "{:#?}", own());
    assert!(own()[0].contains("Changed in") && own()[1].contains("To both."), "{:#?}", own());
    admin(&world, "PUT", &format!("comments/{id}/resolved"), &json!({ "actor": "ada" }));
    wrote("Still not.");
    until("a run for that, too", || runs(&world) == 4).await;
    ended(&world, 4).await;
    assert!(
        world.told(5).contains("Still not.") && world.told(5).contains(", resolved:"),
        "{}",
        world.told(5)
    );
    assert_eq!(own().len(), 3, "{:#?}", own());
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_i42_a_reply_whose_answer_is_lost_is_there_once() {
    let (world, pull) = reviewed("").await;
    let ids = review(&world, pull, &json!([on(1, "A."), on(2, "B.")]));
    for kind in ["lost_reply", "drop"] {
        let fault = json!({ "method": "POST", "path": "**/replies", "kind": kind, "times": 1 });
        world.sim.inject(&serde_json::from_value(fault).unwrap()).unwrap();
    }
    world
        .sim
        .push_replies([answers(&[(&ids[0], "answered", "Yes."), (&ids[1], "answered", "No.")])])
        .unwrap();
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(
        threads(&world, pull).iter().all(|(_, replies)| replies.len() == 1),
        "{:?}",
        threads(&world, pull)
    );
    world.finish().await;
}

/// Entries of the newest run's journal; 0 as long as there is no other than `first`.
fn entries(world: &World, first: &std::path::Path) -> usize {
    let newest = crate::outside::solo::newest(world);
    if newest == first {
        return 0;
    }
    let bytes = std::fs::read(newest.join("events.jsonl")).unwrap_or_default();
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// A round with four threads, killed when its journal has `k` entries, and gone on with. Gives how many entries it has.
async fn killed_after(k: usize) -> usize {
    let (world, pull) = reviewed("").await;
    let ids = review(&world, pull, &json!([on(1, "A."), on(2, "B."), on(3, "C."), on(4, "D.")]));
    let outcomes: Vec<(&str, &str, &str)> = ids.iter().map(|id| (id.as_str(), "changed", "Done.")).collect();
    let script = || [writes("notes.md", "1\n2\n3\n4\n"), answers(&outcomes)];
    world.sim.push_replies(script()).unwrap();
    let first = crate::outside::solo::newest(&world);
    let mut command = world.command_in(&["--json", "run", "--issue", "7", "--agent", "solo"]);
    let quiet = std::process::Stdio::null;
    let mut child = command.stdout(quiet()).stderr(quiet()).spawn().unwrap();
    let mut ended = false;
    while entries(&world, &first) < k && !ended {
        ended = child.try_wait().unwrap().is_some();
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let all = entries(&world, &first);
    if !ended {
        // A visit that was cut off is made again, from its beginning.
        world.sim.admin("DELETE", "model/replies", &json!({})).unwrap();
        world.sim.push_replies(script()).unwrap();
        let (code, output) = run(&world).await;
        assert_eq!(code, Some(0), "killed after {k}: {output:#}");
    }
    let counts: Vec<usize> = threads(&world, pull).iter().map(|(_, replies)| replies.len()).collect();
    assert_eq!(counts, [1, 1, 1, 1], "killed after {k}: {:?}", threads(&world, pull));
    let changed = threads(&world, pull)
        .iter()
        .filter(|(_, own)| first_line(&own[0]).starts_with("Changed in "))
        .count();
    assert_eq!(changed, 4, "killed after {k}: {:?}", threads(&world, pull));
    assert_eq!(world.sim.violations(), Vec::<String>::new());
    world.sim.shutdown().await;
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_points_of_a_round_each_of_its_four_threads_is_answered_once() {
    let last = killed_after(usize::MAX).await;
    assert!(last > 20, "{last}");
    // Most of a round's answers are at its end.
    for k in [1, last / 2, last - 16, last - 12, last - 9, last - 6, last - 3] {
        killed_after(k).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "kills after every entry of a journal, some minutes: cargo test --test it -- --ignored every_entry"]
async fn killed_after_every_entry_of_a_round_each_of_its_four_threads_is_answered_once() {
    let last = killed_after(usize::MAX).await;
    for k in 1..=last {
        killed_after(k).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_thread_is_answered_in_one_comment_and_that_of_the_round_before_is_hidden() {
    let more = "[conversation]\nquiet_period = \"0s\"\n";
    let (world, pull) = reviewed(more).await;
    world.configure(&["agent = \"solo\""]);
    world.sim.add_label(REPO, 7, "agentd:done", "ada");
    let daemon = Running::listening(&world).await;
    let rounds = || {
        let comments = world.sim.issue(REPO, pull).unwrap().comments;
        let own = comments.into_iter().filter(|one| one.body.contains(":round-"));
        own.map(|one| (one.body, one.minimized.is_some())).collect::<Vec<_>>()
    };
    for round in 1..=2 {
        let words = format!("Please explain, take {round}.");
        let body = json!({ "author": "ada", "state": "CHANGES_REQUESTED", "body": words });
        let id = admin(&world, "POST", &format!("pulls/{pull}/reviews"), &body)["id"].as_u64().unwrap();
        let name = format!("review-{id}");
        world.sim.push_replies([answers(&[(&name, "answered", "Because it is so.")])]).unwrap();
        until("an answer", || rounds().len() == round && world.labels() == ["agentd:done"]).await;
        let newest = rounds().pop().unwrap();
        assert!(newest.0.contains(&name) && newest.0.contains("Answered; nothing changed."), "{newest:?}");
        assert!(newest.0.contains("Because it is so."), "{newest:?}");
        assert!(!newest.1);
    }
    assert!(rounds()[0].1, "{:?}", rounds());
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_review_that_waits_is_answered_by_the_next_run_whatever_asked_for_that() {
    let (world, pull) = reviewed("[conversation]\nquiet_period = \"10m\"\n").await;
    world.configure(&["agent = \"solo\""]);
    world.sim.add_label(REPO, 7, "agentd:done", "ada");
    let daemon = Running::listening(&world).await;
    let body = json!({ "author": "ada", "state": "CHANGES_REQUESTED", "body": "Please explain." });
    let id = admin(&world, "POST", &format!("pulls/{pull}/reviews"), &body)["id"].as_u64().unwrap();
    let name = format!("review-{id}");
    let heard = || super::pull_request::inbox(&world)["remarks"][&name]["standing"] == "trusted";
    until("it is heard", heard).await;
    daemon.stop().await;
    world.sim.push_replies([answers(&[(&name, "answered", "Because it is so.")])]).unwrap();
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let comments = world.sim.issue(REPO, pull).unwrap().comments;
    let told: Vec<&String> =
        comments.iter().map(|one| &one.body).filter(|body| body.contains(":round-")).collect();
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(told[0].contains(&name) && told[0].contains("Because it is so."), "{told:#?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_in_which_somebody_writes_while_its_run_works_has_one_reply_and_nothing_is_asked_for_again()
{
    let (world, pull) = reviewed("[conversation]\nquiet_period = \"0s\"\n").await;
    world.configure(&["agent = \"solo\""]);
    world.sim.add_label(REPO, 7, "agentd:done", "ada");
    let daemon = Running::listening(&world).await;
    let mut slow = writes("notes.md", "1\n2\n3\n4\n");
    slow.delay_ms = 6_000;
    let asked = world.sim.model_requests().len();
    world.sim.push_replies([slow]).unwrap();
    let ids = review(&world, pull, &json!([on(2, "Why two?")]));
    world.sim.push_replies([answers(&[(&ids[0], "changed", "It is 2 now.")])]).unwrap();
    until("its run", || world.sim.model_requests().len() > asked).await;
    let threads_now = world.sim.issue(REPO, pull).unwrap().pull.unwrap().threads;
    let first = threads_now[0].comments[0].comment.id;
    let more = json!({ "body": "And three, please.", "actor": "ada" });
    admin(&world, "POST", &format!("comments/{first}/replies"), &more);
    until("a reply", || !threads(&world, pull)[0].1.is_empty() && world.labels() == ["agentd:done"]).await;
    daemon.stop().await;
    let told = world.told(asked + 1);
    assert!(told.contains("And three, please."), "{told}");
    let replies = threads(&world, pull).remove(0).1;
    assert_eq!(replies.len(), 1, "{replies:#?}");
    assert!(first_line(&replies[0]).starts_with("Changed in "), "{replies:#?}");
    assert_eq!(world.sim.model_requests().len(), asked + 2, "nothing was asked for again");
    let comments = world.sim.issue(REPO, pull).unwrap().comments;
    assert!(!comments.iter().any(|one| one.body.contains(":round-")), "{comments:#?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_wrote_while_no_model_answers_is_not_declined_and_waits_for_a_run_that_tells_it() {
    let more = "[conversation]\nquiet_period = \"0s\"\n";
    let (world, pull) = reviewed(more).await;
    world.configure(&["agent = \"solo\""]);
    world.sim.add_label(REPO, 7, "agentd:done", "ada");
    let fault = json!({ "path": "/model/**", "kind": "status", "status": 401, "times": 1 });
    world.sim.inject(&serde_json::from_value(fault).unwrap()).unwrap();
    let daemon = Running::listening(&world).await;
    let ids = review(&world, pull, &json!([on(2, "Why two?")]));
    let begun = || world.labels().contains(&"agentd:failed".to_owned());
    until("a run that no model answers", begun).await;
    let status = world.dir.path().join("state/daemon/status.json");
    let waits = || std::fs::read_to_string(&status).unwrap_or_default().contains("\"model_unavailable\"");
    until("the next one waits for the model", waits).await;
    assert_eq!(threads(&world, pull)[0].1, Vec::<String>::new(), "nobody has declined it");
    daemon.stop().await;
    // Whoever does not wait for the daemon's next try has it told, too.
    world.sim.push_replies([answers(&[(&ids[0], "answered", "Because.")])]).unwrap();
    let asked = world.sim.model_requests().len();
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(world.told(asked).contains("Why two?"), "{}", world.told(asked));
    assert_eq!(first_line(&threads(&world, pull)[0].1[0]), "Answered; nothing changed.");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_i35_where_agentd_may_not_write_the_work_is_done_and_a_warning_says_so() {
    let (world, pull) = reviewed("").await;
    let ids = review(&world, pull, &json!([on(1, "A.")]));
    admin(&world, "PATCH", &format!("issues/{pull}"), &json!({ "locked": true }));
    let fault = json!({
        "method": "POST", "path": "**/replies", "kind": "status", "status": 403, "times": 0,
        "body": { "message": "Unable to create comment because issue is locked." },
    });
    world.sim.inject(&serde_json::from_value(fault).unwrap()).unwrap();
    world
        .sim
        .push_replies([writes("notes.md", "1\n2\n3\n4\n"), answers(&[(&ids[0], "changed", "Done.")])])
        .unwrap();
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let warnings = output["warnings"].as_array().unwrap();
    assert!(warnings.iter().any(|warning| warning["code"] == "locked"), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_comment_shows_the_progress_and_is_made_once_more_where_people_delete_it() {
    let mut replies: Vec<ReplyFile> =
        (0..4).map(|n| writes("notes.md", &format!("{n}\n"))).chain([reports("Done.", json!([]))]).collect();
    replies.iter_mut().for_each(|reply| reply.delay_ms = 2_500);
    let world = solo(replies, Some(READS), "[conversation]\nprogress_interval = \"1s\"\n").await;
    world.sim.add_comment(REPO, 7, "ada", "Be quick.").unwrap();
    let mut command = world.command_in(&["--json", "run", "--issue", "7", "--agent", "solo"]);
    let quiet = std::process::Stdio::null;
    let mut child = command.stdout(quiet()).stderr(quiet()).spawn().unwrap();
    let status = || {
        let comments = world.sim.issue(REPO, 7).unwrap().comments;
        comments.into_iter().find(|one| one.body.starts_with("<!-- agentd:issue-7 -->"))
    };
    for time in 1..=2 {
        let shows = |words: &str| status().is_some_and(|one| one.body.contains(words));
        until("progress", || shows("Now: step `initial.issue`, visit 1, turn ")).await;
        until("counts", || shows("1 remark heard, 0 of them waiting")).await;
        let id = status().unwrap().id;
        admin(&world, "DELETE", &format!("comments/{id}"), &json!({}));
        assert!(status().is_none(), "{time}");
    }
    let code = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
    assert!(code.success(), "{code:?}");
    assert!(status().is_none(), "{:?}", status());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_thread_with_150_replies_the_first_and_the_newest_hundred_are_told_and_the_gap_is_said() {
    let (world, pull) = reviewed("").await;
    let before = world.sim.model_requests().len();
    let thread = review(&world, pull, &json!([on(1, "The first word.")])).remove(0);
    let first = world.sim.issue(REPO, pull).unwrap().pull.unwrap().threads[0].comments[0].comment.id;
    for number in 1..=150 {
        let body = json!({ "body": format!("Reply {number}."), "actor": "ada" });
        admin(&world, "POST", &format!("comments/{first}/replies"), &body);
    }
    world.sim.push_replies([answers(&[(&thread, "answered", "Yes.")])]).unwrap();
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let told = world.told(before);
    let gap = "[\u{2026} 50 more remarks of the thread were not read \u{2026}]";
    let places = ["The first word.", gap, "Reply 51.", "Reply 150."].map(|part| told.find(part));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} {told}");
    assert!(!told.contains("Reply 50."), "{told}");
    assert_eq!(threads(&world, pull)[0].1.len(), 1, "it is answered once");
    world.finish().await;
}
