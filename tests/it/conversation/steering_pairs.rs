//! Work that is taken over where something else meets it: agent programs, questions, plans, submodules, sandboxes.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::json;

use super::pull_request::{REPO, asked, comment, labelled_with, said, ticks};
use super::steering::{AT_ONCE, as_grace, events, give_back, run, spawn, until_labels, writes};
use crate::agents::bench::{FIX, fixer, no_sandbox, script};
use crate::git::Ground;
use crate::outside::daemons::{Running, slow_model, until, until_or};
use crate::outside::solo::{calls, left, reports, solo_of};
use crate::outside::world::{TOKEN, World, basic, text};

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_program_is_ended_and_the_next_one_is_told_what_a_person_made_of_its_work() {
    let world = World::new(0).await;
    let begun = world.dir.path().join("begun");
    let program = format!(
        "#!/bin/sh\nprompt=$(cat)\ncase $prompt in *'Half is done'*) {FIX}; echo PROMPTED; printf '%s' \"$prompt\" > {}/prompt;;\n\
         *) echo half > half.txt; touch {}; sleep 300;; esac\n",
        world.dir.path().display(),
        begun.display()
    );
    let program = script(&world, "work.sh", &program);
    fixer(&world, "command", &json!({ "argv": [program], "sandbox": "off" }));
    let works = spawn(&world, &["run", "--issue", "7", "--agent", "fixer"]);
    until("work", || begun.exists()).await;
    let (code, taken) = world.json(&["take", "7"]).await;
    assert_eq!(code, Some(0), "{taken:#}");
    let works = works.await.unwrap();
    assert_eq!(works.status.code(), Some(1));
    let told = format!("{}{}", text(&works.stdout), text(&works.stderr));
    assert!(told.contains("give-back 7 -m TEXT") && !told.contains("Run again"), "{told}");
    let worktree = world.shop().join(".worktrees/issue-7");
    assert_eq!(world.git(&worktree, &["show", "HEAD:half.txt"]).await, "half\n", "its edits are kept");
    std::fs::write(worktree.join("half.txt"), "whole\n").unwrap();
    let given = give_back(&world, &["-m", "Half is done"]).await;
    assert_eq!(given.status.code(), Some(0), "{}{}", text(&given.stdout), text(&given.stderr));
    let prompt = std::fs::read_to_string(world.dir.path().join("prompt")).unwrap();
    assert!(prompt.contains("M half.txt +1"), "{prompt}");
    assert_eq!(left(&world, "result.json")["stop_reason"], "OBJECTIVE_ACHIEVED");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_not_waited_for_while_a_person_has_the_work_and_its_step_is_told_what_they_say() {
    let question = calls(&[("agent__ask", json!({ "question": "Cents or dollars?" }))]);
    let more = format!("{AT_ONCE}[questions]\nremind = \"1s\"\ntimeout = \"2s\"\n");
    let world = solo_of(vec![question, reports("Done.", json!([]))], None, &more, |_| ()).await;
    world.configure(&["agent = \"solo\""]);
    world.sim.add_label(REPO, 7, "agentd", "ada");
    // Nobody looks after the question until it is taken.
    let (_, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(output["stop_detail"], "question_pending", "{output:#}");
    let (code, taken) = world.json(&["take", "7"]).await;
    assert_eq!(code, Some(0), "{taken:#}");
    let daemon = Running::start(&world, &[]);
    let answered = run(world.command_in(&["answer", "7", "1"])).await;
    assert_eq!(answered.status.code(), Some(4), "{}", text(&answered.stdout));
    let shown = || super::pull_request::status(&world)["parked"][0]["code"] == "taken";
    until("the queue shows it", || world.dir.path().join("state/daemon/status.json").exists() && shown())
        .await;
    // Time enough for what the question would have had.
    ticks(&world, 5).await;
    assert!(said(&world, 7, "still waits").is_empty() && said(&world, 7, "in time").is_empty());
    comment(&world, 7, "ada", "/agentd give-back Dollars, as everywhere.");
    until_labels(&world, &["agentd:done"]).await;
    daemon.stop().await;
    let prompt = world.told(1);
    for part in
        ["You had asked something", "Cents or dollars?", "Dollars, as everywhere.", "No file was changed."]
    {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_is_given_back_and_stopped_in_one_look_is_not_gone_on_with() {
    let world = labelled_with(vec![writes(3_000), reports("Done.", json!([]))], AT_ONCE).await;
    let daemon = Running::start(&world, &[]);
    until("work", || asked(&world) == 1).await;
    comment(&world, 7, "ada", "/agentd take");
    until_labels(&world, &["agentd", "agentd:needs-input"]).await;
    until("it is taken", || super::pull_request::status(&world)["parked"][0]["code"] == "taken").await;
    daemon.stop().await;
    comment(&world, 7, "ada", "/agentd give-back It is fine so.");
    comment(&world, 7, "ada", "/agentd stop");
    let daemon = Running::start(&world, &[]);
    let stopped = || said(&world, 7, "no run goes on with the work that was given back");
    until_or("an answer", || stopped().len() == 1, || format!("{:#?}", said(&world, 7, ""))).await;
    until_labels(&world, &["agentd:attention"]).await;
    ticks(&world, 3).await;
    assert_eq!((asked(&world), said(&world, 7, "ada gave the work back").len()), (1, 1));
    let parked = super::pull_request::status(&world)["parked"].clone();
    assert_eq!(parked[0]["code"], "user_stop", "{parked:#}");
    // The label asks for another run.
    world.sim.add_label(REPO, 7, "agentd", "ada");
    until("another run", || asked(&world) > 1).await;
    until_labels(&world, &["agentd:done"]).await;
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_waits_for_approval_is_made_again_after_a_person_had_the_work_and_not_carried_out() {
    let world = World::of(2, |_| ()).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n{AT_ONCE}[plan]\ngate = \"always\"\n"));
    world.sim.add_label(REPO, 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    until_labels(&world, &["agentd", "agentd:needs-input"]).await;
    let before = asked(&world);
    comment(&world, 7, "ada", "/agentd take");
    // The run that made the plan may still be on its way out: then it is taken a moment later.
    until("it is taken", || super::pull_request::status(&world)["parked"][0]["code"] == "taken").await;
    let asks_no_more = || said(&world, 7, "issue-7:plan-1 ").concat().contains("ada has taken the work over");
    until_or("nobody is asked", asks_no_more, || format!("{:#?}", said(&world, 7, "issue-7:plan-1 "))).await;
    comment(&world, 7, "ada", "/agentd approve");
    let told = || said(&world, 7, "ada has the work: `/agentd give-back TEXT`").len() == 1;
    until_or("why not", told, || format!("{:#?}", said(&world, 7, ""))).await;
    comment(&world, 7, "ada", "/agentd give-back I looked at it.");
    let again = || said(&world, 7, "issue-7:plan-2 ");
    until_or("another plan", || again().len() == 1, || format!("{:#?}", said(&world, 7, ""))).await;
    until_labels(&world, &["agentd", "agentd:needs-input"]).await;
    let prompt = world.told(before);
    assert!(prompt.contains("Understand and plan") && prompt.contains("I looked at it."), "{prompt}");
    assert!(!prompt.contains("Carry out the plan"));
    comment(&world, 7, "ada", "/agentd approve");
    until_labels(&world, &["agentd:done"]).await;
    daemon.stop().await;
    world.sim.shutdown().await;
}

/// The run was killed before it had committed anything.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_run_had_not_committed_is_not_committed_in_the_name_of_who_takes_its_work() {
    let write = |path: &str, text: &str| ("write_file", json!({ "path": path, "content": text }));
    let files = [write("lib/first.sh", "agent\n"), write("lib/second.sh", "agent\n")];
    let replies = vec![calls(&files), reports("Done.", json!([])), reports("Done.", json!([]))];
    let world = labelled_with(replies, AT_ONCE).await;
    slow_model(&world, 1, 30_000);
    let mut command = world.command_in(&["run", "--issue", "7", "--agent", "solo"]);
    let mut killed = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("its second request", || asked(&world) == 2).await;
    killed.kill().unwrap();
    killed.wait().unwrap();
    let (code, taken) = world.json(&["take", "7"]).await;
    assert_eq!(code, Some(0), "{taken:#}");
    let worktree = world.shop().join(".worktrees/issue-7");
    std::fs::write(worktree.join("lib/second.sh"), "agent and person\n").unwrap();
    std::fs::write(worktree.join("lib/third.sh"), "person\n").unwrap();
    let given = give_back(&world, &["-m", "Go on"]).await;
    assert_eq!(given.status.code(), Some(0), "{}{}", text(&given.stdout), text(&given.stderr));
    let log = world
        .git(&worktree, &["log", "--format=%s %(trailers:key=Agentd-Run,separator=%x2C)", "--name-only"])
        .await;
    let (of_agent, rest) = log.split_once("Changes by hand").unwrap();
    assert!(of_agent.contains("Agentd-Run") && of_agent.contains("lib/first.sh"), "{log}");
    let by_hand = rest.split("\n\n").nth(1).unwrap();
    assert_eq!(by_hand.lines().take(2).collect::<Vec<_>>(), ["lib/second.sh", "lib/third.sh"], "{log}");
    assert_eq!(world.git(&worktree, &["show", "HEAD:lib/first.sh"]).await, "agent\n");
    assert_eq!(world.git(&worktree, &["status", "--porcelain"]).await, "");
    world.sim.shutdown().await;
}

/// Puts the submodule `vendor`, served at an address, into the origin branch.
async fn with_submodule(world: &World, library: &Ground, from: &str) {
    let shop = world.shop();
    world.git(&shop, &["switch", "-q", "develop"]).await;
    world.write("shop/.gitmodules", &format!("[submodule \"vendor\"]\n\tpath = vendor\n\turl = {from}\n"));
    let link = format!("160000,{},vendor", library.head("main").await);
    world.git(&shop, &["add", ".gitmodules"]).await;
    world.git(&shop, &["update-index", "--add", "--cacheinfo", &link]).await;
    world.git(&shop, &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "vendor"]).await;
    let header = format!("http.extraHeader=Authorization: Basic {}", basic());
    world.git(&shop, &["-c", &header, "push", "-q", "origin", "HEAD:develop"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn git_works_in_the_sandbox_of_a_repository_with_a_submodule_and_its_files_are_not_written() {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped, there is no sandbox here: {why}");
        return;
    }
    let git = |args: [&str; 2]| json!({ "argv": ["git", args[0], args[1]] });
    let work = calls(&[
        ("run_command", git(["status", "--short"])),
        ("run_command", git(["submodule", "status"])),
        ("write_file", json!({ "path": "vendor/new.txt", "content": "x\n" })),
        ("write_file", json!({ "path": "beside.txt", "content": "x\n" })),
    ]);
    let more = "[sandbox]\nmode = \"bubblewrap\"\n";
    let world = labelled_with(vec![work, reports("Done.", json!([]))], more).await;
    world.verify("[[\"sh\", \"-c\", \"git status --short && git submodule status\"]]");
    let library = Ground::named("library").await;
    let (_served, from) = library.served();
    with_submodule(&world, &library, &from).await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    let told = world.told(1);
    assert!(told.contains("\"exit_code\":0") && !told.contains("not a git repository"), "{told}");
    assert!(told.contains("is in \"vendor\", a git repository of its own"), "{told}");
    assert_eq!(code, Some(0), "{output:#}");
    let files = world.git(&world.shop(), &["ls-tree", "--name-only", "feature/issue-7"]).await;
    assert!(files.contains("beside.txt"), "{files}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_inside_of_a_submodule_are_named_and_the_work_is_not_given_back_without_them() {
    let world = labelled_with(vec![writes(2_000), reports("Done.", json!([]))], AT_ONCE).await;
    let library = Ground::named("library").await;
    let (_served, from) = library.served();
    with_submodule(&world, &library, &from).await;
    let shop = world.shop();
    let works = spawn(&world, &["run", "--issue", "7"]);
    until("work", || asked(&world) == 1).await;
    let (code, taken) = world.json(&["take", "7"]).await;
    assert_eq!(code, Some(0), "{taken:#}");
    works.await.unwrap();
    let file = shop.join(".worktrees/issue-7/vendor/src/lib.rs");
    let before = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, "pub fn mine() {}\n").unwrap();
    let refused = give_back(&world, &[]).await;
    let told = text(&refused.stderr);
    assert!(refused.status.code() == Some(4) && told.contains("vendor: 1 file(s)"), "{told}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "pub fn mine() {}\n");
    std::fs::write(&file, before).unwrap();
    let given = give_back(&world, &[]).await;
    assert_eq!(given.status.code(), Some(0), "{}{}", text(&given.stdout), text(&given.stderr));
    world.sim.shutdown().await;
}

/// What a shell says and its exit code.
async fn shell(world: &World, script: &str) -> (Option<i32>, String) {
    let mut command = as_grace(world, &["shell", "7"]);
    command.env("SHELL", "/bin/sh").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let script = script.to_owned();
    let done = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    });
    let done = done.await.unwrap();
    (done.status.code(), format!("{}{}", text(&done.stdout), text(&done.stderr)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_stands_in_the_sandbox_without_a_token_and_writes_only_where_no_run_works() {
    for mode in ["bubblewrap", "landlock", "off"] {
        if let (Some(why), "bubblewrap" | "landlock") = (no_sandbox(), mode) {
            eprintln!("skipped, there is no sandbox here: {why}");
            continue;
        }
        let more = format!("{AT_ONCE}[sandbox]\nmode = \"{mode}\"\n");
        let world = labelled_with(vec![writes(6_000), reports("Done.", json!([]))], &more).await;
        let nothing = run(world.command_in(&["shell", "7"])).await;
        assert_eq!(nothing.status.code(), Some(4), "there is no worktree yet");
        let works = spawn(&world, &["run", "--issue", "7"]);
        until("work", || asked(&world) == 1).await;
        let (code, out) =
            shell(&world, "env; pwd; echo x > mine.txt && echo WRITTEN; cat lib/cart.sh; exit 3\n").await;
        if mode == "off" {
            assert!(code == Some(4) && out.contains("there is no sandbox"), "{out}");
        } else {
            assert_eq!(code, Some(3), "{mode}: {out}");
            assert!(out.contains(".worktrees/issue-7") && out.contains("echo $(("), "{mode}: {out}");
            assert!(
                !out.contains("WRITTEN") && !out.contains(TOKEN) && !out.contains("MODEL_KEY"),
                "{mode}: {out}"
            );
        }
        let (code, taken) = world.json(&["take", "7"]).await;
        assert_eq!(code, Some(0), "{taken:#}");
        works.await.unwrap();
        let script = "env; echo x > mine.txt && echo WRITTEN; cat ../../.git/config; git status --short && git add mine.txt && \
                      git commit -qm Mine && echo COMMITTED; exit 5\n";
        let (code, out) = shell(&world, script).await;
        assert_eq!(code, Some(5), "{mode}: {out}");
        assert!(
            out.contains("WRITTEN") && !out.contains(TOKEN) && !out.contains("MODEL_KEY"),
            "{mode}: {out}"
        );
        let worktree = world.shop().join(".worktrees/issue-7");
        assert_eq!(std::fs::read_to_string(worktree.join("mine.txt")).unwrap(), "x\n");
        if mode != "off" {
            assert!(
                !out.contains("[remote \"origin\"]"),
                "{mode}: the repository's own files are not there: {out}"
            );
        }
        if mode == "bubblewrap" {
            assert!(out.contains("COMMITTED"), "{out}");
            assert_eq!(world.git(&worktree, &["log", "-1", "--format=%an: %s"]).await, "Grace: Mine\n");
            assert_eq!(world.git(&worktree, &["status", "--porcelain"]).await, "");
        }
        assert!(
            !world
                .dir
                .path()
                .join("state/repos/demo/shop/shells")
                .read_dir()
                .is_ok_and(|mut left| left.next().is_some())
        );
        assert!(events(&world).iter().any(|event| event["kind"] == "taken"));
        world.sim.shutdown().await;
    }
}
