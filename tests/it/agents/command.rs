//! `backend = "command"`: any program, prompt on standard input, result on standard output.

use serde_json::{Value, json};

use super::bench::{FIX, fixer, journal, managed, no_sandbox, script};
use crate::outside::daemons::{Running, until_or};
use crate::outside::world::{GREEN, World, basic, text};

#[tokio::test(flavor = "multi_thread")]
async fn a_program_fixes_the_issue_and_its_words_are_the_report() {
    let world = World::new(0).await;
    let program =
        script(&world, "fix.sh", &format!("#!/bin/sh\nread -r first; {FIX}\necho \"I heard: $first\"\n"));
    fixer(&world, "command", &json!({"argv": [program], "sandbox": "off"}));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!((code, output["stop_reason"].as_str()), (Some(0), Some("OBJECTIVE_ACHIEVED")), "{output:#}");
    world.assert_one_of_each();
    assert!(output.to_string().contains("I heard: You fix issues."), "{output:#}");
    let told = journal(&world, &output);
    assert_eq!(
        told.matches("\"command\":\"exec_agent__command\"").count(),
        1,
        "one tool line in the accounting"
    );
    assert_eq!(world.labels(), ["agentd:done"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_longer_than_agentd_reads_is_none_and_it_says_so() {
    let (said, end) = (r#"{"type":"result","subtype":"success","result":""#, r#"","total_cost_usd":0.5}"#);
    for (backend, before, after, cost) in
        [("command", "", "", Value::Null), ("claude-code", said, end, json!(0.5))]
    {
        let world = World::new(0).await;
        let long = format!(
            "#!/bin/sh\ncat >/dev/null; {FIX}\nprintf '%s' '{before}'; head -c 5000000 /dev/zero | tr '\\0' x; echo '{after}'\n"
        );
        fixer(&world, backend, &json!({"argv": [script(&world, "long.sh", &long)], "sandbox": "off"}));
        let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
        assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("agent_cli_failed")), "{output:#}");
        let told = output.to_string();
        assert!(told.contains("it wrote 500000") && told.contains("more than agentd reads"), "{output:#}");
        assert_eq!(output["totals"]["cost_usd"], cost, "{backend}: {output:#}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_a_program_needs_no_model_besides() {
    let world = World::new(0).await;
    let program = script(&world, "fix.sh", &format!("#!/bin/sh\ncat >/dev/null; {FIX}\necho fixed\n"));
    fixer(&world, "command", &json!({"argv": [program], "sandbox": "off"}));
    for (file, from, to) in
        [("shop/.agent/agentd.toml", "[providers", "[budgets]"), ("overlay.toml", "[providers", "[verify]")]
    {
        let text = std::fs::read_to_string(world.dir.path().join(file)).unwrap();
        let (before, rest) = text.split_once(from).unwrap();
        let at = rest.find(to).unwrap();
        world.write(file, &format!("{before}{}", &rest[at..]));
    }
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(4), "{output:#}");
    assert!(output.to_string().contains("no model is configured"), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d85_what_a_program_reaches_here_is_not_for_a_managed_clone_to_say() {
    let world = World::new(0).await;
    fixer(&world, "command", &json!({"argv": ["true"], "sandbox": "off"}));
    let mut command = managed(&world, "").await;
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert_eq!(done.status.code(), Some(4));
    let told = text(&done.stderr);
    assert!(told.contains("sets program.sandbox"), "{told}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_in_the_cage_and_the_record_says_so() {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped, there is no sandbox here: {why}");
        return;
    }
    let world = World::new(0).await;
    let program = script(&world, "fix.sh", &format!("#!/bin/sh\ncat >/dev/null; {FIX}\necho done\n"));
    fixer(&world, "command", &json!({"argv": [program]}));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    assert!(journal(&world, &output).contains("\"sandbox\":\"bubblewrap\""));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d13_commits_of_the_program_itself_are_kept_on_the_branch() {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped, there is no sandbox here: {why}");
        return;
    }
    let world = World::new(0).await;
    let text = format!(
        "#!/bin/sh\ncat >/dev/null; {FIX}\ngit commit -qam 'percent, not cents' && echo more > NOTES && git add NOTES && git commit -qm notes && git log --oneline | head -2\n"
    );
    fixer(&world, "command", &json!({"argv": [script(&world, "commit.sh", &text)]}));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    let log = world.git(&world.shop(), &["log", "--format=%s", "feature/issue-7"]).await;
    assert!(log.contains("percent, not cents") && log.starts_with("notes"), "{log}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_changed_partly_changed_and_no_policy_are_told_apart() {
    let world = World::new(0).await;
    world.verify(GREEN);
    // It says that it did everything, and did nothing.
    fixer(&world, "command", &json!({"argv": ["echo", "All fixed, tests pass!"], "sandbox": "off"}));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!((code, output["change"].as_str()), (Some(0), Some("none")), "{output:#}");
    assert_eq!(world.sim.pulls("demo/shop").len(), 0);
    // It breaks off half way.
    let half = script(
        &world,
        "half.sh",
        "#!/bin/sh\ncat >/dev/null; echo x >> README.md; echo 'no disk' >&2; exit 3\n",
    );
    fixer(&world, "command", &json!({"argv": [half], "sandbox": "off"}));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("agent_cli_failed")), "{output:#}");
    let words = output.to_string();
    assert!(words.contains("exit code 3: no disk; it changed the worktree before"), "{output:#}");
    // Nobody allowed it.
    let policy = std::fs::read_to_string(world.shop().join(".agent/policy.toml")).unwrap();
    world.write("shop/.agent/policy.toml", &policy.replace("exec_agent__command", "exec_agent__other"));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("policy_denied")), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_never_ends_is_ended_with_all_it_started() {
    let world = World::new(0).await;
    let text = "#!/bin/sh\ntrap '' TERM\nsetsid sleep 31.7 &\n(sleep 31.7 &)\nsleep 31.7\n";
    let program = script(&world, "sleep.sh", text);
    fixer(&world, "command", &json!({"argv": [program], "sandbox": "off", "timeLimit": "2s"}));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("agent_cli_failed")), "{output:#}");
    assert!(output.to_string().contains("it took longer than its 2 s"), "{output:#}");
    let report = super::bench::file_of(&world, &output, "report.md");
    assert!(report.contains("Raise `program.timeLimit` of the program"), "{report}");
    let left = std::process::Command::new("pgrep").args(["-f", "sleep 31.7"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout), "");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_has_ended_is_not_waited_for_because_of_what_it_started() {
    let world = World::new(0).await;
    let text = "#!/bin/sh\ncat >/dev/null\nsetsid sleep 63.7 &\necho 'no key' >&2\nexit 3\n";
    let program = script(&world, "leaves.sh", text);
    fixer(&world, "claude-code", &json!({"argv": [program], "sandbox": "off", "stallLimit": "60s"}));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("agent_cli_failed")), "{output:#}");
    assert!(output.to_string().contains("it ended with exit code 3: no key"), "{output:#}");
    let left = std::process::Command::new("pgrep").args(["-f", "sleep 63.7"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout), "");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_cage_a_program_is_refused_before_anything_is_made() {
    let world = World::new(0).await;
    fixer(&world, "command", &json!({"argv": ["true"]}));
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n[sandbox]\nmode = \"bubblewrap\"\n"));
    let mut command = world.command_in(&["--json", "run", "--issue", "7", "--agent", "fixer"]);
    // A PATH with git and nothing else has no bwrap.
    let bin = world.dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    for name in ["git", "sh"] {
        let found = agentd::sys::sandbox::which(name.as_ref(), &std::env::var_os("PATH").unwrap()).unwrap();
        std::os::unix::fs::symlink(found, bin.join(name)).unwrap();
    }
    command.env("PATH", &bin);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let words = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(done.status.code(), Some(4), "{words}");
    assert!(words.contains("bwrap is not installed"), "{words}");
    assert_eq!(world.git(&world.shop(), &["branch", "--list", "feature/*"]).await, "");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_24_what_it_changes_against_the_policy_is_taken_back_before_anything_is_published() {
    let world = World::new(0).await;
    let caged = no_sandbox().is_none();
    let evil = format!(
        "#!/bin/sh\ncat >/dev/null; {FIX}; mkdir -p .github/workflows; echo 'on: push' > .github/workflows/ci.yml\n\
         git add -A && git -c user.name=x -c user.email=x@x commit -qm 'harmless'; echo done\n"
    );
    let sandbox = if caged { "auto" } else { "off" };
    let program = script(&world, "evil.sh", &evil);
    fixer(&world, "command", &json!({"argv": [program], "sandbox": sandbox}));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("policy_denied")), "{output:#}");
    let words = output.to_string();
    assert!(
        words.contains(".github/workflows/ci.yml") && words.contains("refs/agentd/refused/"),
        "{output:#}"
    );
    assert_eq!(world.sim.pulls("demo/shop").len(), 0);
    let branch = world.git(&world.shop(), &["log", "--format=%s", "feature/issue-7"]).await;
    assert!(!branch.contains("harmless"), "{branch}");
    assert!(!world.shop().join(".worktrees/issue-7/.github/workflows/ci.yml").exists());
    let kept =
        world.git(&world.shop(), &["for-each-ref", "--format=%(refname)", "refs/agentd/refused"]).await;
    assert_eq!(kept.lines().count(), 1, "its work is kept: {kept}");
    // The next one keeps to the policy: nothing of the refused work is in its pull request.
    let good = script(&world, "good.sh", &format!("#!/bin/sh\ncat >/dev/null; {FIX}\necho done\n"));
    fixer(&world, "command", &json!({"argv": [good], "sandbox": sandbox}));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    assert!(agentd::sim::bare::file(&git_dir, "feature/issue-7", ".github/workflows/ci.yml").is_none());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_24_what_no_rule_speaks_of_is_covered_by_the_rule_that_lets_it_start() {
    let world = World::new(0).await;
    let program = script(&world, "fix.sh", &format!("#!/bin/sh\ncat >/dev/null; {FIX}\necho done\n"));
    fixer(&world, "command", &json!({"argv": [program], "sandbox": "off"}));
    world.write(
        "shop/.agent/policy.toml",
        "[[rule]]\nid = \"start\"\nkind = \"tool\"\nname = \"exec_agent__command\"\neffect = \"allow\"\nreason = \"yes\"\n",
    );
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d13_no_commit_of_a_program_has_what_a_filter_of_the_host_is_to_change() {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped, there is no sandbox here: {why}");
        return;
    }
    let world = World::new(0).await;
    // As an encryption has it in the user's own configuration.
    world.write(
        ".gitconfig",
        "[filter \"crypt\"]\n\tclean = tr a-z n-za-m\n\tsmudge = tr a-z n-za-m\n\trequired = true\n",
    );
    let shop = world.shop();
    world.write("shop/.gitattributes", "vault.txt filter=crypt\n");
    world.write("shop/vault.txt", "open sesame\n");
    world.git(&shop, &["add", ".gitattributes", "vault.txt"]).await;
    world.git(&shop, &["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "a vault"]).await;
    let header = format!("http.extraHeader=Authorization: Basic {}", basic());
    world.git(&shop, &["-c", &header, "push", "-q", "origin", "HEAD:develop"]).await;
    let commits =
        format!("#!/bin/sh\ncat >/dev/null; {FIX}; git add -A && git commit -qm 'its own'; echo done\n");
    let program = script(&world, "commits.sh", &commits);
    fixer(&world, "command", &json!({"argv": [program]}));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    assert!(agentd::sim::bare::file(&git_dir, "feature/issue-7", "lib/cart.sh").is_some());
    let stored = world.git(&git_dir, &["log", "-p", "--no-textconv", "develop..feature/issue-7"]).await;
    assert!(stored.contains("100 - $2"), "the work is there: {stored}");
    assert!(!stored.contains("open sesame"), "{stored}");
    let vault = agentd::sim::bare::file(&git_dir, "feature/issue-7", "vault.txt").unwrap();
    assert_eq!(text(&vault), "bcra frfnzr\n");
    world.finish().await;
}

/// Views show what it costs while it works, and not only when it has ended.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_has_used_is_shown_while_it_works() {
    let world = World::new(0).await;
    let (go, init) = (
        world.dir.path().join("go"),
        r#"{"type":"system","subtype":"init","session_id":"s1","model":"recorded-model"}"#,
    );
    let says = r#"{"type":"assistant","message":{"id":"m1","model":"recorded-model","content":[{"type":"text","text":"x"}],"usage":{"input_tokens":20000,"output_tokens":4000}}}"#;
    let result = r#"{"type":"result","subtype":"success","is_error":false,"session_id":"s1","num_turns":1,"result":"Done.","usage":{"input_tokens":20000,"output_tokens":4000},"total_cost_usd":0.25}"#;
    let text = format!(
        "#!/bin/sh\ncat >/dev/null\nprintf '%s\\n' '{init}' '{says}'\nwhile ! [ -e {} ]; do sleep 0.1; done\nprintf '%s\\n' '{result}'\n",
        go.display()
    );
    let program = script(&world, "tells.sh", &text);
    fixer(&world, "claude-code", &json!({"argv": [program], "sandbox": "off"}));
    world.configure(&["agent = \"fixer\""]);
    let daemon = Running::start(&world, &[]);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let status = || {
        let file = std::fs::read(world.dir.path().join("state/daemon/status.json")).unwrap_or_default();
        serde_json::from_slice::<Value>(&file).unwrap_or_default()
    };
    let shown = || status()["running"][0]["progress"].clone();
    let is_shown =
        || shown()["tokens"] == 24_000 && shown()["cost_usd"].as_f64().is_some_and(|cost| cost > 0.0);
    until_or("its money", is_shown, || format!("{:#}", status())).await;
    std::fs::write(&go, "").unwrap();
    until_or("an end", || status()["running"] == json!([]), || format!("{:#}", status())).await;
    let (_, output) = world.json(&["runs", "show", "latest"]).await;
    assert_eq!(output["totals"]["cost_usd"], 0.25, "{output:#}");
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_whose_names_have_a_backslash_or_a_tab_are_taken_and_judged_as_what_they_are_elsewhere() {
    let odd = "echo back > 'a\\b.txt'; echo tab > \"$(printf 'c\\td.txt')\"; echo colon > x:y";
    let hidden = "echo on > '.github\\x.yml'";
    for (makes, code) in [(odd, 0), (hidden, 1)] {
        let world = World::new(0).await;
        let program =
            script(&world, "odd.sh", &format!("#!/bin/sh\ncat >/dev/null; {FIX}; {makes}; echo done\n"));
        fixer(&world, "command", &json!({"argv": [program], "sandbox": "off"}));
        let (ended, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
        assert_eq!(ended, Some(code), "{output:#}");
        let git_dir = world.sim.git_dir("demo/shop").unwrap();
        let file = |name: &str| agentd::sim::bare::file(&git_dir, "feature/issue-7", name);
        if code == 0 {
            assert_eq!(file("a\\b.txt").as_deref(), Some(&b"back\n"[..]), "{output:#}");
            assert_eq!(file("c\td.txt").as_deref(), Some(&b"tab\n"[..]), "{output:#}");
            assert_eq!(file("x:y").as_deref(), Some(&b"colon\n"[..]), "{output:#}");
        } else {
            assert_eq!(output["stop_detail"], "policy_denied", "{output:#}");
            assert!(world.sim.pulls("demo/shop").is_empty());
        }
        world.sim.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_whose_path_is_too_long_for_git_is_named_and_its_worktree_is_not_called_clean() {
    let deep = "#!/usr/bin/env python3\nimport os, sys\nsys.stdin.read()\nd = os.open('.', os.O_RDONLY)\n\
                for i in range(30):\n    os.mkdir('d' * 200, dir_fd=d)\n    d = os.open('d' * 200, os.O_RDONLY, dir_fd=d)\n\
                os.write(os.open('leaf', os.O_CREAT | os.O_WRONLY, dir_fd=d), b'x')\nprint('done')\n";
    let world = World::new(0).await;
    fixer(&world, "command", &json!({"argv": [script(&world, "deep.py", deep)], "sandbox": "off"}));
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("policy_denied")), "{output:#}");
    let told = output["error"].to_string();
    assert!(told.contains("ddd") && told.contains("longer than the 4095 bytes"), "{told}");
    let listed = text(&world.agentd(&["worktrees", "list"]).await.stdout);
    assert!(listed.contains("issue-7") && !listed.contains("clean"), "{listed}");
    let (code, pruned) = world.json(&["worktrees", "prune"]).await;
    assert_eq!(code, Some(0), "{pruned:#}");
    let kept = pruned["kept"].to_string();
    assert!(kept.contains("longer than the 4095 bytes") && kept.contains("rm -rf"), "{pruned:#}");
    world.sim.shutdown().await;
}
