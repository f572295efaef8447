//! What a program leaves in its own git directory: stashes and branches are kept, conflicts that are half worked out are not published.

use serde_json::{Value, json};

use super::bench::{FIX, fixer, no_sandbox, script};
use crate::outside::daemons::until;
use crate::outside::world::{World, with_library};

/// A program that puts a new file into a stash.
const STASHES: &str = "echo mine > work.txt; git stash -q -u";

async fn kept(world: &World, output: &Value, name: &str) -> String {
    let run = output["run_id"].as_str().unwrap();
    world.git(&world.shop(), &["show", &format!("refs/agentd/left/{run}/{name}")]).await
}

async fn runs(world: &World, text: &str) -> (Option<i32>, Value) {
    let program = script(world, "program.sh", &format!("#!/bin/sh\ncat >/dev/null; {text}\n"));
    fixer(world, "command", &json!({"argv": [program]}));
    world.json(&["run", "--issue", "7", "--agent", "fixer"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_stashed_or_committed_beside_the_branch_is_kept_and_told() {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped, there is no sandbox here: {why}");
        return;
    }
    let world = World::new(0).await;
    let wip = "git checkout -q -b wip && echo half > half.txt && git add half.txt && git commit -q -m half && git pack-refs --all \
               && git checkout -q feature/issue-7";
    let (code, output) = runs(&world, &format!("{STASHES}; {wip}; {FIX}; echo done")).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(kept(&world, &output, "stash/0^3:work.txt").await, "mine\n");
    assert_eq!(kept(&world, &output, "heads/wip:half.txt").await, "half\n");
    let warnings = output["warnings"].to_string();
    assert!(
        warnings.contains("a stash (refs/agentd/left/") && warnings.contains("the branch wip"),
        "{warnings}"
    );
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    assert_eq!(
        agentd::sim::bare::file(&git_dir, "feature/issue-7", "half.txt"),
        None,
        "none of it is published"
    );
    // What is on the branch is nothing that was left.
    let (code, output) = runs(&world, "echo more >> README.md; git commit -q -a -m more; echo done").await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(!output["warnings"].to_string().contains("commits_left"), "{output:#}");
    // It dies before it brings back what it stashed.
    let (code, output) = runs(&world, &format!("{STASHES}; exit 7")).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("agent_cli_failed")), "{output:#}");
    assert!(output.to_string().contains("left work in a stash"), "{output:#}");
    assert_eq!(kept(&world, &output, "stash/0^3:work.txt").await, "mine\n");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_of_a_killed_run_had_stashed_is_kept_by_the_next_one() {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped, there is no sandbox here: {why}");
        return;
    }
    let world = World::new(0).await;
    let program = script(
        &world,
        "program.sh",
        &format!("#!/bin/sh\ncat >/dev/null; {STASHES}; echo on > .on; sleep 60\n"),
    );
    fixer(&world, "command", &json!({"argv": [program]}));
    let mut command = world.command_in(&["run", "--issue", "7", "--agent", "fixer"]);
    let mut killed = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let works = world.shop().join(".worktrees/issue-7/.on");
    until("it has stashed", || works.exists()).await;
    killed.kill().unwrap();
    killed.wait().unwrap();
    let (_, first) = world.json(&["runs", "show", "latest"]).await;
    assert_eq!(first["stop_detail"], "interrupted", "{first:#}");
    let (code, second) = runs(&world, &format!("{FIX}; echo done")).await;
    assert_eq!(code, Some(0), "{second:#}");
    assert_eq!(kept(&world, &first, "stash/0^3:work.txt").await, "mine\n");
    assert!(second["warnings"].to_string().contains("the killed run had put work aside"), "{second:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_that_a_program_leaves_half_done_is_not_published_with_its_markers() {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped, there is no sandbox here: {why}");
        return;
    }
    let world = World::new(0).await;
    let commits = |text: &str| format!("echo {text} > both.txt; git add both.txt; git commit -q -m {text}");
    let (theirs, ours) = (commits("theirs"), commits("ours"));
    let merge = format!(
        "{FIX}; git checkout -q -b x; {theirs}; git checkout -q feature/issue-7; {ours}; git merge x; echo done"
    );
    let (code, output) = runs(&world, &merge).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("git_error")), "{output:#}");
    let told = output["error"].to_string();
    assert!(told.contains("conflict markers are still in both.txt"), "{output:#}");
    assert_eq!(world.sim.pulls("demo/shop").len(), 0);
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    assert_eq!(agentd::sim::bare::head(&git_dir, "feature/issue-7"), None);
    // The command that is advised then does not publish them, either; once they are gone, it does.
    let run = output["run_id"].as_str().unwrap();
    let (code, again) = world.json(&["runs", "resume", run]).await;
    assert_eq!((code, world.sim.pulls("demo/shop").len()), (Some(1), 0), "{again:#}");
    assert!(again["error"].to_string().contains("take the markers out"), "{again:#}");
    std::fs::write(world.shop().join(".worktrees/issue-7/both.txt"), "both\n").unwrap();
    let (code, settled) = world.json(&["runs", "resume", again["run_id"].as_str().unwrap_or(run)]).await;
    assert_eq!((code, world.sim.pulls("demo/shop").len()), (Some(0), 1), "{settled:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_a_program_commits_as_a_submodule_without_an_address_is_refused_and_runs_nothing() {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped, there is no sandbox here: {why}");
        return;
    }
    let world = World::new(0).await;
    let ran = world.dir.path().join("ran");
    let made = format!(
        "git init -q m && cd m && echo one > one.txt && git add -A && git -c user.name=a -c user.email=a@b commit -q -m one && git config core.fsmonitor \
         'touch {}; false' && cd .. && git add -A 2>/dev/null && git commit -q -m all && echo done",
        ran.display()
    );
    let (code, output) = runs(&world, &made).await;
    assert_eq!(code, Some(1), "{output:#}");
    assert!(output["error"].to_string().contains("a git repository of its own"), "{output:#}");
    assert!(world.sim.pulls("demo/shop").is_empty());
    // Whoever takes the work over has git enter no repository of the program's.
    let (code, taken) = world.json(&["take", "7"]).await;
    assert_eq!(code, Some(0), "{taken:#}");
    let worktree = world.shop().join(".worktrees/issue-7");
    world.git(&worktree, &["status"]).await;
    assert!(!ran.exists() && !worktree.join("m/.git").exists());
    let kept = world.shop().join(".git/worktrees/issue-7/git-of-a-program/m/HEAD");
    assert!(kept.exists() && worktree.join("m/one.txt").exists());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_a_program_that_would_close_other_issues_or_skip_checks_becomes_one_of_agentds() {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped, there is no sandbox here: {why}");
        return;
    }
    let world = World::new(0).await;
    let (code, output) =
        runs(&world, &format!("{FIX}; git commit -q -a -m 'closes #8 [skip ci]'; echo done")).await;
    assert_eq!(code, Some(0), "{output:#}");
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    let log = world.git(&git_dir, &["log", "--format=%B", "develop..feature/issue-7"]).await;
    assert!(!log.contains("[skip ci]") && !log.contains("closes #8"), "{log}");
    let run = output["run_id"].as_str().unwrap();
    let kept = world
        .git(&world.shop(), &["log", "-1", "--format=%s", &format!("refs/agentd/refused/{run}/commits")])
        .await;
    assert_eq!(kept.trim(), "closes #8 [skip ci]");
    assert!(
        output["warnings"].to_string().contains("close issues or keep checks from running"),
        "{output:#}"
    );
    world.assert_one_of_each();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_a_submodule_that_is_on_no_remote_is_not_published_and_one_that_is_there_is() {
    // As git notes a push.
    for (then, is_pushed) in [("true", false), ("git update-ref refs/remotes/origin/more HEAD", true)] {
        let world = World::of(0, with_library).await;
        world.take_library_in().await;
        let text = format!(
            "#!/bin/sh\ncat >/dev/null; {FIX}; cd vendor && echo more >> lib.txt && git -c user.name=a -c user.email=a@b commit -q -a -m more \
             && {then}; echo done\n"
        );
        let program = script(&world, "program.sh", &text);
        fixer(&world, "command", &json!({"argv": [program], "sandbox": "off"}));
        let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
        let git_dir = world.sim.git_dir("demo/shop").unwrap();
        if is_pushed {
            assert_eq!((code, world.sim.pulls("demo/shop").len()), (Some(0), 1), "{output:#}");
            let vendor = world.shop().join(".worktrees/issue-7/vendor");
            let own = world.git(&vendor, &["rev-parse", "HEAD"]).await;
            let published = world.git(&git_dir, &["rev-parse", "feature/issue-7:vendor"]).await;
            assert_eq!(published, own);
        } else {
            assert_eq!((code, world.sim.pulls("demo/shop").len()), (Some(1), 0), "{output:#}");
            let told = output["error"].to_string();
            assert!(told.contains("vendor") && told.contains("on no branch of its remote"), "{output:#}");
            assert_eq!(agentd::sim::bare::head(&git_dir, "feature/issue-7"), None);
        }
        world.sim.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_a_program_whose_message_nobody_can_look_through_is_not_published_and_its_files_are() {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped, there is no sandbox here: {why}");
        return;
    }
    let token = format!("ghp_{}", "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8");
    for (rest, is_taken) in [
        (format!("printf '\\nmsg\\n\\000{token}\\n'"), false),
        (format!("printf 'encoding UTF-16LE\\n\\n'; printf 'msg {token}' | iconv -t UTF-16LE"), false),
        ("printf 'encoding UTF-7\\n\\nmsg +AGcAaABw-\\n'".to_owned(), false),
        ("printf 'encoding ISO-8859-1\\n\\nfine\\n'".to_owned(), true),
    ] {
        let world = World::new(0).await;
        let head = "printf 'tree %s\\nparent %s\\nauthor z <z@z> 1700000000 +0000\\ncommitter z <z@z> 1700000000 +0000\\n' \
                    $(git write-tree) $(git rev-parse HEAD)";
        let made = "git reset -q --soft $(git hash-object -t commit -w --literally $TMPDIR/raw)";
        let (code, output) = runs(
            &world,
            &format!("{FIX}; git add -A; {{ {head}; {rest}; }} > $TMPDIR/raw; {made}; echo done"),
        )
        .await;
        assert_eq!(code, Some(0), "{rest}: {output:#}");
        let git_dir = world.sim.git_dir("demo/shop").unwrap();
        let log = world.git(&git_dir, &["log", "--format=%an", "develop..feature/issue-7"]).await;
        assert_eq!(log.lines().collect::<Vec<_>>() == ["z"], is_taken, "{rest}: {log}");
        assert_eq!(log.lines().count(), 1, "{rest}: {log}");
        let told = output["warnings"].to_string();
        assert_eq!(
            told.contains("its message: it cannot be looked through for secrets"),
            !is_taken,
            "{told}"
        );
        world.sim.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_is_not_closed_by_work_that_was_put_aside_and_where_other_work_is_published_people_are_told_first()
 {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped, there is no sandbox here: {why}");
        return;
    }
    let link = format!(
        "git update-index --add --cacheinfo 160000,{},vendor/lib; git commit -q -m vendor",
        "a".repeat(40)
    );
    for (only, named) in [(link.as_str(), "vendor/lib"), (STASHES, "a stash")] {
        let world = World::new(0).await;
        let (code, output) = runs(&world, &format!("{only}; echo done")).await;
        assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("policy_denied")), "{output:#}");
        let told = output["error"].to_string();
        assert!(told.contains("was put aside") && told.contains(named), "{told}");
        assert!(!told.contains("its files were"), "{told}");
        assert!(!world.labels().contains(&"agentd:done".to_owned()), "{:?}", world.labels());
        assert!(world.sim.issue("demo/shop", 7).unwrap().open);
        world.sim.shutdown().await;
    }
    let world = World::new(0).await;
    let (code, output) = runs(&world, &format!("{link}; {FIX}; echo done")).await;
    assert_eq!(code, Some(0), "{output:#}");
    let body = world.sim.pulls("demo/shop")[0].body.clone().unwrap_or_default();
    let before = body.split("Closes #").next().unwrap();
    assert!(before.contains("not taken") && before.contains("vendor/lib"), "{body}");
    world.sim.shutdown().await;
}
