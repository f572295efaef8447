//! What others push to the issue's branch: told, merged in, worked out where it conflicts, never overwritten.

use agentd::sim::ReplyFile;
use serde_json::json;

use super::pull_request::{REPO, admin, asked, comment, delivered_in, ended, labelled_with, runs};
use crate::outside::daemons::{Running, until, until_or};
use crate::outside::solo::{calls, left, newest};
use crate::outside::world::{World, text};

const AT_ONCE: &str = "[conversation]\nquiet_period = \"0s\"\n";

/// A commit of a person's on the issue's branch, in place of what is there where `forced`.
fn push(world: &World, path: &str, forced: bool) -> String {
    pushed(world, (path, "By hand.\n"), forced)
}

fn push_text(world: &World, path: &str, text: &str) -> String {
    pushed(world, (path, text), false)
}

fn pushed(world: &World, (path, text): (&str, &str), forced: bool) -> String {
    let mut commit = json!({
        "branch": "feature/issue-7", "message": "By hand", "author": "Ada L. <7+ada@users.noreply.github.com>", "files": { path: text },
    });
    if forced {
        commit["onto"] = json!("develop");
    }
    admin(world, "POST", "commits", &commit)["sha"].as_str().unwrap().to_owned()
}

async fn works(more: &str) -> (World, Running) {
    works_on(super::pull_request::replies(3), more).await
}

/// A world whose follow-up run is asked for its first change.
async fn works_on(mut replies: Vec<ReplyFile>, more: &str) -> (World, Running) {
    replies[1].delay_ms = 4_000;
    let world = labelled_with(replies, more).await;
    let (world, daemon, pull) = delivered_in(world).await;
    comment(&world, pull, "ada", "@agentd-demo and another note.");
    until("a second run", || asked(&world) == 3).await;
    (world, daemon)
}

#[tokio::test(flavor = "multi_thread")]
async fn c_i39_a_commit_that_a_person_pushes_in_a_run_is_merged_and_told() {
    let (world, daemon) = works(AT_ONCE).await;
    let theirs = push(&world, "by-hand.md", false);
    ended(&world, 2).await;
    let git_dir = world.sim.git_dir(REPO).unwrap();
    let head = agentd::sim::bare::head(&git_dir, "feature/issue-7").unwrap();
    assert_ne!(head, theirs);
    assert_eq!(agentd::sim::bare::ahead_behind(&git_dir, &theirs, &head).map(|(_, behind)| behind), Some(0));
    for file in ["by-hand.md", "notes/1.md", "notes/2.md"] {
        assert!(agentd::sim::bare::file(&git_dir, "feature/issue-7", file).is_some(), "{file}");
    }
    let shown = text(&world.agentd(&["runs", "report"]).await.stdout);
    assert!(shown.contains("ada pushed to the branch: by-hand.md +1"), "{shown}");
    daemon.stop().await;
    let (code, replayed) = world.json(&["runs", "replay", "latest"]).await;
    assert_eq!((code, &replayed["equal"]), (Some(0), &json!(true)), "{replayed:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_i38_a_branch_that_a_person_force_pushes_in_a_run_is_not_touched() {
    let (world, daemon) = works(AT_ONCE).await;
    let theirs = push(&world, "other.md", true);
    until_or("attention", || world.labels() == ["agentd:attention"], || format!("{:?}", world.labels()))
        .await;
    let git_dir = world.sim.git_dir(REPO).unwrap();
    assert_eq!(agentd::sim::bare::head(&git_dir, "feature/issue-7").unwrap(), theirs);
    let result = || newest(&world).join("result.json").exists();
    until("its result", result).await;
    let output = left(&world, "result.json");
    assert_eq!(output["stop_detail"], "branch_moved", "{output:#}");
    let run = output["run_id"].as_str().unwrap();
    let kept = world.git(&world.shop(), &["rev-parse", &format!("refs/agentd/displaced/{run}")]).await;
    let files = world.git(&world.shop(), &["ls-tree", "-r", "--name-only", kept.trim()]).await;
    assert!(files.contains("notes/2.md"), "{files}");
    daemon.stop().await;
    world.finish().await;
}

/// Replies of which the third visit changes the file that a person changed, too.
fn resolving(content: &str) -> Vec<ReplyFile> {
    let mut replies = super::pull_request::replies(3);
    let write = calls(&[("write_file", json!({ "path": "notes/2.md", "content": content }))]);
    replies[2] = ReplyFile { when: replies[2].when.clone(), times: Some(0), ..write };
    replies
}

fn head(world: &World) -> String {
    agentd::sim::bare::head(&world.sim.git_dir(REPO).unwrap(), "feature/issue-7").unwrap()
}

fn contains(world: &World, commit: &str) -> bool {
    let ahead = agentd::sim::bare::ahead_behind(&world.sim.git_dir(REPO).unwrap(), commit, &head(world));
    ahead.is_some_and(|(_, behind)| behind == 0)
}

fn file(world: &World, path: &str) -> Option<Vec<u8>> {
    agentd::sim::bare::file(&world.sim.git_dir(REPO).unwrap(), "feature/issue-7", path)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_of_others_commits_that_conflicts_is_worked_out_in_one_visit() {
    let (world, daemon) = works_on(resolving("Both.\n"), AT_ONCE).await;
    let before = asked(&world);
    let theirs = push(&world, "notes/2.md", false);
    ended(&world, 2).await;
    assert!(contains(&world, &theirs), "theirs is an ancestor");
    assert_eq!(file(&world, "notes/2.md").as_deref(), Some(b"Both.\n".as_slice()));
    let output = left(&world, "result.json");
    assert_eq!(output["stop_reason"], "OBJECTIVE_ACHIEVED", "{output:#}");
    // One visit more, and it was told where and by whom.
    assert_eq!(output["steps"].as_array().unwrap().len(), 2, "{output:#}");
    let told: String = (before..asked(&world)).map(|request| world.told(request)).collect();
    for part in
        ["ada pushed to the branch: notes/2.md +1", "Conflicts in:\n- notes/2.md", "merged into the\nfiles"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(runs(&world), 2);
    daemon.stop().await;
    let (code, replayed) = world.json(&["runs", "replay", "latest"]).await;
    assert_eq!((code, &replayed["equal"]), (Some(0), &json!(true)), "{replayed:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_visit_leaves_in_conflict_is_not_pushed_and_the_files_are_clean_again() {
    let (world, daemon) = works_on(super::pull_request::replies(3), AT_ONCE).await;
    let theirs = push(&world, "notes/2.md", false);
    until_or("attention", || world.labels() == ["agentd:attention"], || format!("{:?}", world.labels()))
        .await;
    until("its result", || newest(&world).join("result.json").exists()).await;
    let output = left(&world, "result.json");
    assert_eq!(output["stop_detail"], "branch_moved", "{output:#}");
    let message = output["error"]["message"].as_str().unwrap();
    assert!(message.contains("conflicts in notes/2.md"), "{message}");
    assert_eq!(head(&world), theirs, "nothing was pushed");
    let run = output["run_id"].as_str().unwrap();
    let kept = format!("refs/agentd/displaced/{run}");
    let work = world.git(&world.shop(), &["show", &format!("{kept}:notes/2.md")]).await;
    assert_eq!(work, "Note 2.\n", "the work without what the visit left");
    let worktree = world.shop().join(".worktrees/issue-7");
    assert_eq!(world.git(&worktree, &["status", "--porcelain"]).await, "");
    let rescued = format!("refs/agentd/rescue/{run}");
    let tried = world.git(&world.shop(), &["ls-tree", "--name-only", &rescued, "notes/"]).await;
    assert!(tried.contains("notes/3.md"), "what the visit did is kept, too");
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_killed_while_it_works_the_conflict_out_goes_on_with_it() {
    let mut replies = resolving("Both.\n");
    replies[2].delay_ms = 4_000;
    let (world, daemon) = works_on(replies, AT_ONCE).await;
    let before = asked(&world);
    let theirs = push(&world, "notes/2.md", false);
    until("the visit", || asked(&world) == before + 2).await;
    daemon.kill();
    let daemon = Running::start(&world, &[]);
    ended(&world, 3).await;
    assert!(contains(&world, &theirs));
    assert_eq!(file(&world, "notes/2.md").as_deref(), Some(b"Both.\n".as_slice()));
    let output = left(&world, "result.json");
    assert_eq!(output["stop_reason"], "OBJECTIVE_ACHIEVED", "{output:#}");
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_was_displaced_is_merged_with_what_others_pushed_by_the_next_run() {
    let (world, daemon) = works_on(super::pull_request::replies(4), AT_ONCE).await;
    push(&world, "notes/2.md", false);
    until_or("attention", || world.labels() == ["agentd:attention"], || format!("{:?}", world.labels()))
        .await;
    until("its result", || newest(&world).join("result.json").exists()).await;
    daemon.stop().await;
    // The person takes the change back that was in the way.
    let theirs = push_text(&world, "notes/2.md", "Note 2.\n");
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(contains(&world, &theirs));
    for path in ["notes/1.md", "notes/2.md", "notes/4.md"] {
        assert!(file(&world, path).is_some(), "{path}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_for_which_no_visit_is_left_ends_the_run_and_the_files_are_clean() {
    let (world, daemon) =
        works_on(resolving("Both.\n"), &format!("{AT_ONCE}[budgets]\nmax_steps = 1\n")).await;
    let theirs = push(&world, "notes/2.md", false);
    until_or("attention", || world.labels() == ["agentd:attention"], || format!("{:?}", world.labels()))
        .await;
    until("its result", || newest(&world).join("result.json").exists()).await;
    assert_eq!(left(&world, "result.json")["stop_detail"], "branch_moved");
    assert_eq!(head(&world), theirs);
    let worktree = world.shop().join(".worktrees/issue-7");
    assert_eq!(world.git(&worktree, &["status", "--porcelain"]).await, "");
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visit_that_asks_about_the_conflict_is_waited_for_and_the_conflict_is_worked_out_afterwards() {
    let mut replies = resolving("Both.\n");
    let ask = calls(&[("agent__ask", json!({ "question": "Whose words stay?" }))]);
    replies.insert(2, ReplyFile { when: replies[2].when.clone(), times: Some(1), ..ask });
    let (world, daemon) = works_on(replies, AT_ONCE).await;
    let theirs = push(&world, "notes/2.md", false);
    until_or("a question", || world.labels() == ["agentd:needs-input"], || format!("{:?}", world.labels()))
        .await;
    assert_eq!(head(&world), theirs, "nothing was pushed");
    comment(&world, 7, "ada", "/agentd answer Both.");
    until_or("done", || world.labels() == ["agentd:done"], || format!("{:?}", world.labels())).await;
    assert!(contains(&world, &theirs));
    assert_eq!(file(&world, "notes/2.md").as_deref(), Some(b"Both.\n".as_slice()));
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_asks_the_remote_no_more_than_it_must() {
    use std::os::unix::fs::PermissionsExt as _;

    let world = World::new(1).await;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let git = agentd::sys::sandbox::which("git".as_ref(), &path).unwrap();
    let asked = world.dir.path().join("asked");
    world.write("bin/git", &format!("#!/bin/sh\necho \"$*\" >> {asked:?}\nexec {git:?} \"$@\"\n"));
    let program = world.dir.path().join("bin/git");
    std::fs::File::open(&program).unwrap().set_permissions(std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut run = world.command_in(&["--json", "run", "--issue", "7"]);
    let first = program.parent().unwrap().to_owned();
    run.env(
        "PATH",
        std::env::join_paths(std::iter::once(first).chain(std::env::split_paths(&path))).unwrap(),
    );
    let done = tokio::task::spawn_blocking(move || run.output().unwrap()).await.unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    world.assert_one_of_each();
    let asked = std::fs::read_to_string(&asked).unwrap();
    let (before, after) = asked.split_once("\ncommit --quiet").unwrap();
    let count = |part: &str| {
        ["ls-remote ", "fetch ", "push "]
            .map(|what| part.lines().filter(|line| line.starts_with(what)).count())
    };
    // For the origin; whether the branch can be there; what is on it when the worktree is made, and when the work is done.
    assert_eq!(count(before), [1, 3, 0], "{asked}");
    // Neither the commit nor the push asks again.
    assert_eq!(count(after), [0, 0, 1], "{asked}");
    world.finish().await;
}
