//! A person takes the work over and gives it back: by the command line and by comments, and whatever is killed between.

use std::process::{Command, Output, Stdio};

use agentd::sim::ReplyFile;
use serde_json::{Value, json};

use super::pull_request::{
    REPO, admin, asked, comment, delivered, fate, labelled_with, review, runs, said, status, ticks,
};
use crate::outside::daemons::{Running, until, until_or};
use crate::outside::solo::{calls, left, newest, reports};
use crate::outside::world::{World, text};

pub const AT_ONCE: &str = "[conversation]\nquiet_period = \"0s\"\n";

/// A turn that writes a file, and is slow enough to be interrupted.
pub fn writes(delay_ms: u64) -> ReplyFile {
    let mut reply = calls(&[("write_file", json!({ "path": "notes/1.md", "content": "One.\n" }))]);
    reply.delay_ms = delay_ms;
    reply
}

pub async fn until_labels(world: &World, wanted: &[&str]) {
    let same = || {
        let mut labels = world.labels();
        labels.sort();
        labels == wanted
    };
    let instead = || format!("{:?} {:#?}", world.labels(), world.sim.issue(REPO, 7).unwrap().comments);
    until_or(&format!("the labels {wanted:?}"), same, instead).await;
}

/// A command as somebody whom git knows runs it.
pub fn as_grace(world: &World, args: &[&str]) -> Command {
    let mut command = world.command_in(args);
    command.env("GIT_AUTHOR_NAME", "Grace").env("GIT_AUTHOR_EMAIL", "grace@example.com");
    command
}

pub async fn run(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

pub async fn give_back(world: &World, more: &[&str]) -> Output {
    let mut args = vec!["give-back", "7"];
    args.extend(more);
    run(as_grace(world, &args)).await
}

pub fn events(world: &World) -> Vec<Value> {
    let text = std::fs::read_to_string(newest(world).join("events.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The codes of the rules that say no.
async fn why(world: &World) -> (Value, Vec<String>) {
    let (_, why) = world.json(&["why", "7"]).await;
    let codes = why["rules"].as_array().unwrap().iter().filter_map(|rule| rule["code"].as_str());
    (why.clone(), codes.filter(|code| *code != "ok").map(str::to_owned).collect())
}

/// A file of the issue's branch on the remote.
pub fn on_remote(world: &World, path: &str) -> Option<String> {
    let git_dir = world.sim.git_dir(REPO).unwrap();
    agentd::sim::bare::file(&git_dir, "feature/issue-7", path).map(|bytes| text(&bytes))
}

#[tokio::test(flavor = "multi_thread")]
async fn c_i55_what_a_person_changed_is_theirs_and_the_next_prompt_has_their_words_and_files() {
    let world = labelled_with(vec![writes(3_000), reports("Done.", json!([]))], AT_ONCE).await;
    let daemon = Running::start(&world, &[]);
    until("work", || asked(&world) == 1).await;
    let (code, taken) = world.json(&["take", "7"]).await;
    assert_eq!(code, Some(0), "{taken:#}");
    let worktree = world.shop().join(".worktrees/issue-7");
    assert_eq!(taken["worktree"], worktree.display().to_string(), "{taken:#}");
    // The call in flight has ended, and what it made is committed; nobody was asked for a report.
    assert_eq!(world.git(&worktree, &["show", "HEAD:notes/1.md"]).await, "One.\n");
    assert_eq!(world.git(&worktree, &["status", "--porcelain"]).await, "");
    assert_eq!(asked(&world), 1);
    assert_eq!(left(&world, "result.json")["stop_detail"], "taken");
    let kinds: Vec<String> =
        events(&world).iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect();
    assert!(kinds.contains(&"taken".to_owned()) && kinds.contains(&"parked".to_owned()), "{kinds:?}");
    until_labels(&world, &["agentd", "agentd:needs-input"]).await;
    let told = said(&world, 7, "took the work over");
    assert!(told.len() == 1 && told[0].contains("agentd give-back 7"), "{told:#?}");
    assert_eq!(on_remote(&world, "notes/1.md"), None, "it is not pushed for somebody who works here");

    // Everybody can see it, and nothing starts.
    let shown = || status(&world)["parked"][0].clone();
    until_or("the queue shows it", || shown()["code"] == "taken", || shown().to_string()).await;
    let (explained, codes) = why(&world).await;
    assert_eq!(codes, ["waits_for_give_back"], "{explained:#}");
    assert_eq!(explained["outlook"], "needs_you");
    let (code, refused) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, &refused["stop_detail"]), (Some(4), &json!("branch_busy")), "{refused:#}");
    world.sim.remove_label(REPO, 7, "agentd", "ada");
    ticks(&world, 2).await;
    world.sim.add_label(REPO, 7, "agentd", "ada");
    let waits = comment(&world, 7, "ada", "Remember the tests.");
    ticks(&world, 3).await;
    assert_eq!((runs(&world), asked(&world)), (1, 1));
    assert_eq!(fate(&world, &format!("comment-{waits}")), "waiting");

    std::fs::write(worktree.join("by_hand.txt"), "a\nb\n").unwrap();
    // The built-in list keeps it out of commits, and git takes it for ignored when the worktree goes.
    std::fs::create_dir(worktree.join("build")).unwrap();
    std::fs::write(worktree.join("build/release.sh"), "make it\n").unwrap();
    std::fs::write(worktree.join("notes/1.md"), "One and a half.\n").unwrap();
    let unknown = run(world.command_in(&["give-back", "7", "-m", "x"])).await;
    assert_eq!(unknown.status.code(), Some(4), "{}", text(&unknown.stderr));
    assert!(text(&unknown.stderr).contains("user.name"), "{}", text(&unknown.stderr));
    let given = give_back(&world, &["-m", "Round half up, please."]).await;
    assert_eq!(given.status.code(), Some(0), "{}", text(&given.stderr));
    let told = text(&given.stdout);
    assert!(told.contains("The daemon goes on"), "{told}");
    assert!(told.contains("keeps such files out: build/release.sh"), "{told}");
    let kept = world.git(&world.shop(), &["show", "refs/agentd/left/feature/issue-7:build/release.sh"]).await;
    assert_eq!(kept, "make it\n");
    until_labels(&world, &["agentd:done"]).await;
    daemon.stop().await;
    let prompt = world.told(1);
    for part in
        ["(trusted", "Round half up, please.", "A by_hand.txt +2", "M notes/1.md +1", "Remember the tests."]
    {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    let by = world
        .git(&world.shop(), &["log", "--format=%an <%ae>", "-1", "feature/issue-7", "--", "by_hand.txt"])
        .await;
    assert_eq!(by, "Grace <grace@example.com>\n");
    assert_eq!(on_remote(&world, "by_hand.txt").as_deref(), Some("a\nb\n"));
    let events = events(&world);
    let back = events.iter().find(|event| event["kind"] == "given_back").unwrap();
    assert_eq!(back["data"]["text"], "Round half up, please.", "{back:#}");
    let visited = events.iter().find(|event| event["kind"] == "visit_started").unwrap();
    assert_eq!(visited["data"]["step_id"], "initial.issue");
    let again = run(world.command_in(&["give-back", "7"])).await;
    assert_eq!(again.status.code(), Some(4), "nobody has it any more: {}", text(&again.stdout));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_given_back_where_a_git_that_was_killed_in_a_commit_left_its_locks() {
    let world = World::new(2).await;
    assert_eq!(world.json(&["run", "--issue", "7"]).await.0, Some(0));
    let (code, taken) = world.json(&["take", "7"]).await;
    assert_eq!(code, Some(0), "{taken:#}");
    world.write("shop/.worktrees/issue-7/by_hand.txt", "a\n");
    for lock in ["worktrees/issue-7/HEAD.lock", "refs/heads/feature/issue-7.lock"] {
        world.write(&format!("shop/.git/{lock}"), "");
    }
    let given = give_back(&world, &["-m", "So."]).await;
    assert_eq!(given.status.code(), Some(0), "{}", text(&given.stderr));
    let made = world.git(&world.shop(), &["show", "feature/issue-7:by_hand.txt"]).await;
    assert_eq!(made, "a\n");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comment_takes_the_work_with_its_branch_and_gives_it_back_whatever_is_killed() {
    let world = labelled_with(vec![writes(3_000), reports("Done.", json!([]))], AT_ONCE).await;
    let daemon = Running::start(&world, &[]);
    until("work", || asked(&world) == 1).await;
    comment(&world, 7, "mallory", "/agentd take");
    comment(&world, 7, "ada", "/agentd take");
    until_labels(&world, &["agentd", "agentd:needs-input"]).await;
    let answers = || said(&world, 7, "`feature/issue-7`");
    until_or("the answer", || !answers().is_empty(), || format!("{:#?}", said(&world, 7, ""))).await;
    until("it is pushed", || on_remote(&world, "notes/1.md").is_some()).await;
    daemon.kill();
    let daemon = Running::start(&world, &[]);
    // Somebody works elsewhere, and pushes.
    let files = json!({ "elsewhere.txt": "from elsewhere\n" });
    let pushed = json!({ "branch": "feature/issue-7", "message": "By hand", "files": files });
    admin(&world, "POST", "commits", &pushed);
    comment(&world, 7, "ada", "/agentd run");
    until("it is refused", || !said(&world, 7, "has the work").is_empty()).await;
    ticks(&world, 2).await;
    assert_eq!((runs(&world), asked(&world)), (1, 1));
    // The process that fetches what they pushed does not come to the end of it.
    let slow = json!({ "path": "/**/info/refs", "kind": "delay", "delay_ms": 60_000, "times": 1 });
    world.sim.inject(&serde_json::from_value(slow).unwrap()).unwrap();
    comment(&world, 7, "ada", "/agentd give-back Keep elsewhere.txt\nand go on.");
    let kept = || {
        let file = world.dir.path().join("state/repos/demo/shop/parked/7.json");
        std::fs::read_to_string(file).unwrap_or_default()
    };
    until_or("it is kept", || kept().contains("giving_back"), kept).await;
    daemon.kill();
    assert_eq!(asked(&world), 1);
    let daemon = Running::start(&world, &[]);
    until_labels(&world, &["agentd:done"]).await;
    daemon.stop().await;
    let prompt = world.told(1);
    for part in
        ["Keep elsewhere.txt\nand go on.", "A elsewhere.txt +1", "give-back of ada (trusted, maintain)"]
    {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    assert_eq!((runs(&world), asked(&world)), (2, 2));
    assert_eq!(on_remote(&world, "elsewhere.txt").as_deref(), Some("from elsewhere\n"));
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_issue_is_taken_too_and_reviews_sweeps_and_cleaning_up_leave_it_alone_until_it_ends() {
    let (world, daemon, pull) = delivered(2, AT_ONCE).await;
    let missing = run(world.command_in(&["take", "8"])).await;
    assert_eq!(missing.status.code(), Some(4), "{}", text(&missing.stderr));
    let (code, taken) = world.json(&["take", "7"]).await;
    assert_eq!((code, &taken["is_pushed"]), (Some(0), &json!(true)), "{taken:#}");
    until_labels(&world, &["agentd:needs-input"]).await;
    // It is known before anything could follow from a review.
    until("the queue shows it", || status(&world)["parked"][0]["code"] == "taken").await;
    let id = review(&world, pull, "ada", "CHANGES_REQUESTED", "Other words, please.", &["Here."])[0];
    until("it is heard", || fate(&world, &format!("review-comment-{id}")) == "waiting").await;
    ticks(&world, 3).await;
    assert_eq!(runs(&world), 1);
    let (_, swept) = world.json(&["sweep", "--all", "--yes"]).await;
    let waits = (&swept["ended"], &swept["waiting"][0]["code"]);
    assert_eq!((runs(&world), waits), (1, (&json!([]), &json!("waits_for_give_back"))), "{swept:#}");
    let (_, pruned) = world.json(&["worktrees", "prune"]).await;
    assert!(pruned["kept"][0]["reason"].as_str().unwrap().contains("has the work in it"), "{pruned:#}");

    let worktree = world.shop().join(".worktrees/issue-7");
    std::fs::write(worktree.join("by_hand.txt"), "mine\n").unwrap();
    let ended = give_back(&world, &["--end"]).await;
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    until_labels(&world, &["agentd:attention"]).await;
    assert_eq!(said(&world, 7, "nothing goes on").len(), 1, "{:#?}", said(&world, 7, ""));
    assert_eq!(world.git(&worktree, &["log", "-1", "--format=%an"]).await, "Grace\n");
    assert_eq!(fate(&world, &format!("review-comment-{id}")), "waiting", "it waits for whatever run comes");
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_git_has_not_finished_or_cannot_bring_together_is_refused_with_its_remedy_and_nothing_is_lost() {
    let world = labelled_with(vec![writes(2_000), reports("Done.", json!([]))], AT_ONCE).await;
    let run_of = spawn(&world, &["run", "--issue", "7"]);
    until("work", || asked(&world) == 1).await;
    comment_by_take(&world).await;
    let ended = run_of.await.unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}", text(&ended.stderr));
    let worktree = world.shop().join(".worktrees/issue-7");
    let git = async |args: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=Grace", "-c", "user.email=g@example.com"]).args(args);
        command.current_dir(&worktree).env("HOME", world.dir.path());
        run(command).await
    };
    let commit = async |words: &str| {
        std::fs::write(worktree.join("notes/1.md"), words).unwrap();
        git(&["commit", "-qam", words]).await
    };
    git(&["switch", "-qc", "side"]).await;
    commit("Side.\n").await;
    git(&["switch", "-q", "feature/issue-7"]).await;
    commit("Here.\n").await;
    for (begin, end, word) in [
        (["rebase", "side"], ["rebase", "--abort"], "rebase --continue"),
        (["merge", "side"], ["merge", "--abort"], "merge --continue"),
        (["cherry-pick", "side"], ["cherry-pick", "--abort"], "cherry-pick --continue"),
    ] {
        assert!(!git(&begin).await.status.success());
        let refused = give_back(&world, &["-m", "x"]).await;
        let told = text(&refused.stderr);
        assert!(refused.status.code() == Some(4) && told.contains(word), "{told}");
        assert!(git(&end).await.status.success());
    }
    // What was pushed meanwhile conflicts.
    let base = world.git(&worktree, &["rev-parse", "HEAD~1"]).await;
    let header = format!("http.extraHeader=Authorization: Basic {}", crate::outside::world::basic());
    world
        .git(
            &worktree,
            &["-c", &header, "push", "-q", "origin", &format!("{}:refs/heads/feature/issue-7", base.trim())],
        )
        .await;
    let files = json!({ "notes/1.md": "There.\n" });
    admin(
        &world,
        "POST",
        "commits",
        &json!({ "branch": "feature/issue-7", "message": "Other", "files": files }),
    );
    let refused = give_back(&world, &["-m", "x"]).await;
    let told = text(&refused.stderr);
    assert!(
        refused.status.code() == Some(4) && told.contains("conflicts") && told.contains("notes/1.md"),
        "{told}"
    );
    assert_eq!(std::fs::read_to_string(worktree.join("notes/1.md")).unwrap(), "Here.\n");
    assert_eq!(asked(&world), 1);
    // Worked out by hand, it goes on here: no daemon works.
    let hint = told.split("merge ").nth(1).unwrap().split(['`', ',']).next().unwrap().trim().to_owned();
    git(&["merge", "-q", "-X", "ours", &hint]).await;
    assert_eq!(world.git(&worktree, &["status", "--porcelain"]).await, "");
    let given = give_back(&world, &["-m", "Worked out by hand."]).await;
    assert_eq!(given.status.code(), Some(0), "{}{}", text(&given.stdout), text(&given.stderr));
    assert!(world.told(1).contains("Worked out by hand."));
    assert_eq!(on_remote(&world, "notes/1.md").as_deref(), Some("Here.\n"));
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_whose_run_left_a_damaged_journal_is_given_back_and_gone_on_with_all_the_same() {
    let world = labelled_with(vec![writes(2_000), reports("Done.", json!([]))], AT_ONCE).await;
    let run_of = spawn(&world, &["run", "--issue", "7"]);
    until("work", || asked(&world) == 1).await;
    comment_by_take(&world).await;
    run_of.await.unwrap();
    let journal = newest(&world).join("events.jsonl");
    let lines = std::fs::read_to_string(&journal).unwrap();
    let kept: Vec<&str> = lines.lines().take(12).collect();
    std::fs::write(&journal, kept.join("\n") + "\n").unwrap();
    let worktree = world.shop().join(".worktrees/issue-7");
    std::fs::write(worktree.join("by_hand.txt"), "mine\n").unwrap();
    let given = give_back(&world, &["-m", "The rest is by hand."]).await;
    assert_eq!(given.status.code(), Some(0), "{}{}", text(&given.stdout), text(&given.stderr));
    assert!(text(&given.stderr).contains("the run's record is damaged"), "{}", text(&given.stderr));
    assert!(world.told(1).contains("The rest is by hand."), "{}", world.told(1));
    until_labels(&world, &["agentd:done"]).await;
    assert_eq!(on_remote(&world, "by_hand.txt").as_deref(), Some("mine\n"));
    assert!(said(&world, 7, "has the work on this issue").is_empty());
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_no_run_could_go_on_with_is_given_back_again_and_what_is_said_of_it_is_so() {
    let world =
        labelled_with(vec![writes(0), reports("Done.", json!([])), reports("More.", json!([]))], AT_ONCE)
            .await;
    world.sim.remove_label(REPO, 7, "agentd", "ada");
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let (code, taken) = world.json(&["take", "7"]).await;
    assert_eq!(code, Some(0), "{taken:#}");
    let worktree = world.shop().join(".worktrees/issue-7");
    std::fs::write(worktree.join("by_hand.txt"), "mine\n").unwrap();

    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("away.toml", &overlay.replace(&world.sim.api_url().to_string(), "http://127.0.0.1:1"));
    let mut without = world.command(&["--config", "../away.toml", "give-back", "7", "-m", "Round half up."]);
    without.env("GIT_AUTHOR_NAME", "Grace").env("GIT_AUTHOR_EMAIL", "grace@example.com");
    let failed = run(without).await;
    assert_eq!(failed.status.code(), Some(1), "{}{}", text(&failed.stdout), text(&failed.stderr));
    assert!(text(&failed.stderr).contains("give-back 7 goes on with it"), "{}", text(&failed.stderr));
    let (_, status) = world.json(&["status"]).await;
    let told = status["parked"][0]["text"].as_str().unwrap_or_default();
    assert!(told.contains("was given back") && told.contains("agentd give-back 7"), "{status:#}");
    let (_, why) = world.json(&["why", "7"]).await;
    let shown = (&why["outlook"], &why["do"]);
    assert_eq!(shown, (&json!("needs_you"), &json!("agentd give-back 7")), "{why:#}");
    let refused = run(world.command_in(&["take", "7"])).await;
    let told = text(&refused.stderr);
    assert!(refused.status.code() == Some(4) && told.contains("was given back"), "{told}");

    // More was done since, and nothing more is said.
    std::fs::write(worktree.join("more.txt"), "mine, too\n").unwrap();
    let given = give_back(&world, &[]).await;
    assert_eq!(given.status.code(), Some(0), "{}{}", text(&given.stdout), text(&given.stderr));
    let prompt = world.told(2);
    for part in ["Round half up.", "A by_hand.txt +1", "A more.txt +1"] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    assert_eq!(on_remote(&world, "more.txt").as_deref(), Some("mine, too\n"));
    let again = give_back(&world, &[]).await;
    assert_eq!(again.status.code(), Some(4), "nobody has it any more: {}", text(&again.stdout));
    world.sim.shutdown().await;
}

/// Takes the work of the run that works.
async fn comment_by_take(world: &World) {
    let (code, taken) = world.json(&["take", "7"]).await;
    assert_eq!(code, Some(0), "{taken:#}");
    // Again, it says the same; nobody else can have it.
    let (code, again) = world.json(&["take", "7"]).await;
    assert_eq!((code, &again["worktree"]), (Some(0), &taken["worktree"]), "{again:#}");
}

/// A command that works while the test goes on.
pub fn spawn(world: &World, args: &[&str]) -> tokio::task::JoinHandle<Output> {
    let mut command = world.command_in(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    tokio::task::spawn_blocking(move || child.wait_with_output().unwrap())
}

/// Only publishing was left of the run, and a person's words ask for more.
#[tokio::test(flavor = "multi_thread")]
async fn the_words_of_a_give_back_are_told_also_where_the_taken_run_had_done_all_but_publish() {
    let replies = vec![writes(0), reports("Done.", json!([])), reports("Renamed.", json!([]))];
    let world = labelled_with(replies, AT_ONCE).await;
    let body = json!({ "message": "Validation Failed" });
    let refused =
        json!({ "method": "POST", "path": "/repos/**/pulls", "kind": "status", "status": 422, "body": body });
    world.sim.inject(&serde_json::from_value(refused).unwrap()).unwrap();
    let daemon = Running::start(&world, &[]);
    until_labels(&world, &["agentd:failed"]).await;
    let before = asked(&world);
    let (code, taken) = world.json(&["take", "7"]).await;
    assert_eq!(code, Some(0), "{taken:#}");
    let worktree = world.shop().join(".worktrees/issue-7");
    std::fs::write(worktree.join("by_hand.txt"), "mine\n").unwrap();
    world.git(&worktree, &["add", "by_hand.txt"]).await;
    let grace = ["-c", "user.name=Grace", "-c", "user.email=grace@example.com"];
    world.git(&worktree, &[&grace[..], &["commit", "-q", "-m", "By hand"]].concat()).await;
    world.sim.world().faults.clear();
    comment(&world, 7, "ada", "/agentd give-back KIWI: rename it, please.");
    until_labels(&world, &["agentd:done"]).await;
    let prompt = world.told(before);
    assert!(prompt.contains("KIWI: rename it, please.") && prompt.contains("A by_hand.txt +1"), "{prompt}");
    assert_eq!(on_remote(&world, "by_hand.txt").as_deref(), Some("mine\n"));
    daemon.stop().await;
    world.sim.shutdown().await;
}
