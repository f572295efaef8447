//! What commands print is so, and names what to do next.

use std::process::Stdio;

use serde_json::{Value, json};

use super::cases::served;
use super::daemons::{Running, until};
use super::kinds;
use super::solo::{calls, newest, reports, solo};
use super::started::delayed;
use super::world::{GREEN, World, text};

/// What `agentd --config overlay … ARGS` prints, and how it ends.
async fn said(world: &World, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = world.command_in(args);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    (done.status.code(), text(&done.stdout), text(&done.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn s_048_doctor_names_a_server_without_the_secret_in_its_address() {
    let world = World::of(0, |scenario| scenario.model.replies.push(super::doctor::answers())).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let server = "[mcp.servers.far]\nurl = \"http://127.0.0.1:9/${MODEL_KEY}/mcp\"\n";
    world.write("overlay.toml", &format!("{overlay}\n{server}"));
    for args in [&["doctor"][..], &["--json", "doctor"]] {
        let (_, out, err) = said(&world, args).await;
        assert!(out.contains("[redacted:model_key:"), "{args:?} {out}{err}");
        assert!(!(out + &err).contains("a-key-of-the-simulator"), "{args:?}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_run_that_works_and_one_that_was_killed_only_what_is_known_is_said() {
    let mut slow = reports("Written.", json!([]));
    slow.delay_ms = 60_000;
    let writes = calls(&[("write_file", json!({ "path": "lib/one.sh", "content": "echo new\n" }))]);
    let world = solo(vec![writes, slow], None, "").await;
    let mut run = world.command_in(&["run", "7", "--agent", "solo"]);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the second turn", || world.sim.model_requests().len() > 1).await;
    // Its time goes on while nothing is written.
    let mut shown = String::new();
    for _ in 0..200 {
        shown = said(&world, &["runs", "show", "latest"]).await.1;
        if shown.lines().any(|line| line.starts_with("started") && line.ends_with(" s")) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let started = shown.lines().find(|line| line.starts_with("started")).unwrap();
    assert!(started.ends_with(" s") && shown.contains("), 1 request"), "{shown}");
    // Whoever wants to stop it is told its name: the latest run may be another one.
    let (code, busy) = world.json(&["run", "--issue", "7", "--agent", "solo"]).await;
    assert_eq!((code, &busy["stop_detail"]), (Some(4), &json!("branch_busy")), "{busy:#}");
    let (_, runs) = world.json(&["runs", "list"]).await;
    let stop = format!("overlay.toml runs stop {}", runs[0]["instance"].as_str().unwrap());
    let (_, _, told) = said(&world, &["run", "--issue", "7", "--agent", "solo"]).await;
    assert!(told.contains(&stop), "{told}");
    run.kill().unwrap();
    run.wait().unwrap();
    // What it wrote is there, though nothing of it is committed.
    let (code, report, _) = said(&world, &["runs", "report", "latest"]).await;
    assert_eq!(code, Some(0), "{report}");
    assert!(world.shop().join(".worktrees/issue-7/lib/one.sh").exists());
    assert!(
        !report.contains("Nothing was changed") && !report.contains("| Change | no change |"),
        "{report}"
    );
    assert!(
        report.contains("Nothing was committed.") && report.contains("is in `.worktrees/issue-7`"),
        "{report}"
    );
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_told_in_words_and_a_pull_request_counts_its_visits() {
    let writes = calls(&[("write_file", json!({ "path": "lib/one.sh", "content": "echo new\n" }))]);
    let world = solo(vec![writes, reports("Written.", json!([]))], None, "").await;
    let (code, plan, _) = said(&world, &["run", "7", "--agent", "solo", "--dry-run"]).await;
    assert_eq!(code, Some(0), "{plan}");
    assert!(!plan.contains(['{', '[']), "{plan}");
    for told in [
        "develop (config) at ",
        "feature/issue-7",
        "recorded-model of anthropic",
        "verify         true",
        "Nothing was begun",
    ] {
        assert!(plan.contains(told), "`{told}` is not in:\n{plan}");
    }
    let (code, output) = world.json(&["run", "7", "--agent", "solo"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let body = world.sim.pulls("demo/shop")[0].body.clone().unwrap();
    assert!(body.contains(" 1 step visit\n"), "{body}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_run_that_failed_says_what_to_do() {
    let refusal: agentd::sim::ReplyFile =
        serde_json::from_value(json!({ "error": { "status": 401, "message": "no" } })).unwrap();
    let world = solo(vec![refusal], None, "").await;
    let (code, end, _) = said(&world, &["run", "7", "--agent", "solo"]).await;
    assert_eq!(code, Some(1), "{end}");
    let next = end.lines().find(|line| line.trim_start().starts_with("Next ")).unwrap_or_default();
    assert!(next.contains("overlay.toml doctor") && next.contains("overlay.toml runs resume "), "{end}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_server_that_is_configured_nobody_is_told_to_configure_one() {
    let world = served(Vec::new(), "").await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let command = overlay.lines().find(|line| line.starts_with("command = ")).unwrap();
    let gone = overlay.replacen(command, "command = \"/no/such/program\"\nrequired = false", 1);
    world.write("overlay.toml", &gone);
    let (code, list, told) = said(&world, &["tools", "list"]).await;
    assert_eq!((code, list.as_str()), (Some(0), ""), "{told}");
    assert!(told.contains("no server of [mcp.servers] that runs") && !told.contains("add [mcp"), "{told}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_passed_is_not_said_to_be_near() {
    let world = solo(Vec::new(), None, "").await;
    let (code, output) =
        world.json(&["run", "--issue", "7", "--agent", "solo", "--max-wall-time", "1ms"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("max_wall_time")), "{output:#}");
    let comments = world.sim.issue("demo/shop", 7).unwrap().comments;
    assert!(comments.iter().all(|comment| !comment.body.contains("A limit is near")), "{comments:#?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_with_a_remedy_is_one_sentence_in_status_and_why() {
    let world = World::of(1, |scenario| {
        scenario.repositories[0].issues[0].title = "  ".to_owned();
    })
    .await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let (code, _, log) = said(&world, &["daemon", "--once"]).await;
    assert_eq!(code, Some(0), "{log}");
    let wanted = "Issue 7 of demo/shop has no title (give it a title: it is the objective)";
    let (_, status, _) = said(&world, &["status"]).await;
    assert!(status.contains(wanted), "{status}");
    let (_, why, _) = said(&world, &["why", "7"]).await;
    let first = why.lines().next().unwrap();
    assert!(first.contains(&format!("{wanted}. Do: settle that, then gh issue edit 7")), "{why}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_s_name_finds_the_entry_that_has_only_its_path() {
    let world = World::new(1).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let shop = world.shop().display().to_string();
    let bare = world.dir.path().join("bare");
    world.git(world.dir.path(), &["init", "-q", "bare"]).await;
    let entry = |path: &str| format!("[[repositories]]\npath = \"{path}\"\norigin_branch = \"develop\"\n");
    world.write("all.toml", &format!("{}{}{overlay}", entry(&bare.display().to_string()), entry(&shop)));
    let outside = |args: &[&str]| {
        let mut command = world.command(&["--config"]);
        command.arg(world.dir.path().join("all.toml")).args(args).current_dir(world.dir.path());
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    let plan = outside(&["--repo", "demo/shop", "run", "7", "--dry-run", "--json"]).await.unwrap();
    assert_eq!(plan.status.code(), Some(0), "{}", text(&plan.stderr));
    assert!(text(&plan.stdout).contains("\"repository\": \"demo/shop\""), "{}", text(&plan.stdout));
    // The other one, which no GitHub knows, is none of the sweep's business.
    let sweep = outside(&["--repo", "demo/shop", "sweep", "--dry-run"]).await.unwrap();
    assert_eq!(sweep.status.code(), Some(0), "{}", text(&sweep.stderr));
    for args in [&["run", "7", "--dry-run"][..], &["--repo", "demo/other", "run", "7", "--dry-run"]] {
        let none = outside(args).await.unwrap();
        assert_eq!(none.status.code(), Some(4), "{}", text(&none.stderr));
        assert!(text(&none.stderr).contains(&format!("hint: cd {shop}")), "{}", text(&none.stderr));
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_daemon_is_agentd_s_own() {
    let world = served(vec![reports("Done.", json!([]))], "").await;
    world.configure(&["agent = \"solo\""]);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let (code, _, log) = said(&world, &["daemon", "--once"]).await;
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("starting a run") && !log.contains("serve_inner"), "{log}");
    assert!(newest(&world).join("result.json").exists());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_only_looks_leaves_a_daemon_s_files_where_they_are_and_hears_that_they_cannot_be_read() {
    let world = World::new(1).await;
    let (state, status) = ("state/daemon/state.json", "state/daemon/status.json");
    for path in [state, status] {
        world.write(path, "{ \"schema_version\": ");
    }
    let (_, _, told) = said(&world, &["why", "7"]).await;
    assert!(told.contains("state.json") && told.contains("the next daemon begins without it"), "{told}");
    let kept = std::fs::read_to_string(world.dir.path().join(state)).unwrap();
    assert!(kept.starts_with("{ \"schema"), "{kept}");
    let (code, shown, told) = said(&world, &["status"]).await;
    assert_eq!(code, Some(1), "{shown}");
    assert!(told.contains("status.json") && told.contains("a daemon that works writes it anew"), "{told}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_cannot_be_read_is_folded_again_from_the_journal() {
    let world = World::new(1).await;
    let (code, run) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{run:#}");
    let shown = ["show", "report"];
    let mut before = Vec::new();
    for what in shown {
        before.push(world.json(&["runs", what, "latest"]).await);
    }
    let report = said(&world, &["runs", "report", "latest"]).await.1;
    for (file, damage) in [("result.json", true), ("result.json", false), ("report.md", false)] {
        let path = newest(&world).join(file);
        let whole = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        if damage {
            std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        }
        for (what, before) in shown.iter().zip(&before) {
            assert_eq!(world.json(&["runs", what, "latest"]).await, *before, "{file} {what}");
        }
        assert_eq!(said(&world, &["runs", "report", "latest"]).await.1, report, "{file}");
        // Who looks writes nothing: the damage stays for `runs verify`.
        assert_eq!(path.exists(), damage, "{file}");
        let (code, found) = world.json(&["runs", "verify", "latest"]).await;
        assert!(code == Some(1) && found.to_string().contains(file), "{found:#}");
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, whole).unwrap();
    }
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_a_change_says_nothing_that_its_agent_did_not_say() {
    let claim = json!({ "statement": "README.md says more", "kind": "change_made", "status": "unverified" });
    for (claims, says) in [
        (json!([claim]), "The agent reports a change, but there is none."),
        (json!([]), "The agent reports that it is done; no file was changed."),
    ] {
        let world = solo(vec![reports("Looked.", claims)], None, "").await;
        let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo"]).await;
        assert_eq!(code, Some(0), "{output:#}");
        let told = world.sim.issue("demo/shop", 7).unwrap().comments[0].body.clone();
        assert!(told.contains(says), "{told}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_agent_itself_calls_open_stands_wherever_its_work_is_told() {
    const OPEN: &str = "Windows was not tried.";
    let world = World::of(1, |scenario| {
        scenario.model.replies = kinds::replies();
        let closing = scenario.model.replies.last_mut().unwrap();
        let content = closing.final_report.as_mut().unwrap();
        content["content_json"]["limitations"] = json!([OPEN, " "]);
    })
    .await;
    world.verify(GREEN);
    let (code, output) = world.json(&["run", "7"]).await;
    assert_eq!((code, &output["limitations"]), (Some(0), &json!([OPEN])), "{output:#}");
    let report = std::fs::read_to_string(newest(&world).join("report.md")).unwrap();
    let body = world.sim.pulls("demo/shop")[0].body.clone().unwrap();
    let comment = world.sim.issue("demo/shop", 7).unwrap().comments[0].body.clone();
    for (place, told) in [("report", &report), ("pull request", &body), ("comment", &comment)] {
        assert!(told.contains(OPEN), "the {place} does not have it: {told}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_is_pushed_without_a_pull_request_is_named_wherever_the_run_is_told() {
    let world = World::new(1).await;
    let (code, out, told) = said(&world, &["run", "--issue", "7", "--publish", "branch"]).await;
    assert_eq!(code, Some(0), "{out}{told}");
    let comment = world.sim.issue("demo/shop", 7).unwrap().comments[0].body.clone();
    let report = std::fs::read_to_string(newest(&world).join("report.md")).unwrap();
    for (place, text) in [("output", &out), ("comment", &comment), ("report", &report)] {
        let is_named = text.lines().any(|line| {
            line.contains("Branch") && line.contains("feature/issue-7") && line.contains("pushed")
        });
        assert!(is_named, "the {place} does not name it: {text}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_told_that_work_may_not_be_published_is_sent_to_the_file_and_not_to_a_call() {
    let big = calls(&[("write_file", json!({ "path": "big.txt", "content": "words\n".repeat(1000) }))]);
    let replies = vec![big, reports("I made it.", json!([]))];
    let world = solo(replies, None, "[commit]\nmax_file = 2000\n").await;
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("policy_denied")), "{output:#}");
    let (_, report) = world.json(&["runs", "report", "latest"]).await;
    let next = report["next_steps"].to_string();
    assert!(next.contains("Take out of the worktree") && !next.contains("refused call"), "{next}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_bears_another_name_than_agentds_is_told_and_one_of_its_own_is_not() {
    for (as_whom, told) in [("-c user.name=Bob -c user.email=bob@example.org ", true), ("", false)] {
        let line = format!("echo x > lib/x.txt && git add -A lib && git {as_whom}commit -q -m 'More of it'");
        let commits = calls(&[("run_command", json!({ "argv": ["sh", "-c", line] }))]);
        let world = solo(vec![commits, reports("Done.", json!([]))], Some(super::approvals::ASK), "").await;
        let (code, output) = world.json(&["run", "--issue", "7", "--agent", "solo"]).await;
        assert_eq!(code, Some(0), "{output:#}");
        let body = world.sim.pulls("demo/shop")[0].body.clone().unwrap();
        let comment = world.sim.issue("demo/shop", 7).unwrap().comments[0].body.clone();
        for (place, text) in [("pull request", &body), ("comment", &comment)] {
            let is_told = text.contains("in other names than agentd's") && text.contains("bob@example.org");
            assert_eq!(is_told, told, "{place}: {text}");
        }
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_result_names_each_changed_file_on_a_line_of_its_own_and_says_how_many_it_leaves_out() {
    let all = "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"everything\"\n";
    let line = "for n in $(seq 1 24); do echo x > lib/f$n.txt; done; echo x > \"$(printf 'lib/a\\n  Verify       cargo test: passed')\"";
    let made = calls(&[("run_command", json!({ "argv": ["sh", "-c", line] }))]);
    let world = solo(vec![made, reports("Done.", json!([]))], Some(all), "").await;
    let (code, out, told) = said(&world, &["run", "--issue", "7", "--agent", "solo"]).await;
    assert_eq!(code, Some(0), "{out}{told}");
    assert!(out.lines().all(|line| line != "  Verify       cargo test: passed +1 −0"), "{out}");
    assert!(out.contains("and 5 more: agentd --config ") && out.contains("runs diff "), "{out}");
    world.finish().await;
}

/// As where the disk is full: the words of a dead daemon are not those of the one that runs.
#[tokio::test(flavor = "multi_thread")]
async fn status_does_not_give_a_dead_daemons_words_as_those_of_one_that_has_not_written_its_own() {
    let world = World::new(1).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n[daemon]\npoll_interval = \"1h\"\n"));
    let daemon = Running::start(&world, &[]);
    let file = world.dir.path().join("state/daemon/status.json");
    let polled = || std::fs::read_to_string(&file).is_ok_and(|text| text.contains("polled_at"));
    until("its word", polled).await;
    let signal = |signal: &str| {
        let sent = std::process::Command::new("kill").args([signal, &daemon.pid().to_string()]).status();
        assert!(sent.unwrap().success());
    };
    // It says nothing more meanwhile.
    signal("-STOP");
    let own = std::fs::read_to_string(&file).unwrap();
    let mut words: Value = serde_json::from_str(&own).unwrap();
    words["pid"] = json!(daemon.pid() + 1);
    words["running"] = json!([{ "repo": "demo/shop", "issue": 7, "since": "2026-01-01T00:00:00Z" }]);
    std::fs::write(&file, words.to_string()).unwrap();
    let (_, shown, _) = said(&world, &["status"]).await;
    let (_, told) = world.json(&["status"]).await;
    std::fs::write(&file, own).unwrap();
    signal("-CONT");
    assert!(shown.contains(&format!("A daemon runs (pid {})", daemon.pid())), "{shown}");
    assert!(shown.contains("cut off") && !shown.contains("daemon running"), "{shown}");
    assert_eq!(
        (&told["daemon_running"], &told["daemon_pid"]),
        (&json!(true), &json!(daemon.pid())),
        "{told:#}"
    );
    daemon.stop().await;
    world.finish().await;
}

/// Who reads a pull request asks what its work cost, however many runs it took.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_work_cost_is_said_wherever_a_run_that_goes_on_with_another_is_told() {
    let world = World::new(1).await;
    let refused = json!({ "path": "/git/demo/shop.git/git-receive-pack", "method": "POST", "kind": "status", "status": 403, "times": 0 });
    world.sim.inject(&serde_json::from_value(refused).unwrap()).unwrap();
    let (code, out, _) = said(&world, &["run", "--issue", "7"]).await;
    assert_eq!(code, Some(1), "{out}");
    let own = out.lines().find_map(|line| line.trim().strip_prefix("Cost")).unwrap().trim();
    let spent = own.split(' ').next().unwrap();
    assert!(spent.starts_with("$0.0") && spent != "$0.00" && !own.contains("goes on with"), "{out}");
    let clear = format!("{}/_sim/faults", world.sim.base_url());
    assert!(reqwest::Client::new().delete(clear).send().await.unwrap().status().is_success());
    let (code, out, told) = said(&world, &["runs", "resume", "latest"]).await;
    assert_eq!(code, Some(0), "{out}{told}");
    let told = format!("{spent} with the run that it goes on with; this run $0.00 (0 tokens in, 0 out)");
    let comment = world.sim.issue("demo/shop", 7).unwrap().comments[0].body.clone();
    let body = world.sim.pulls("demo/shop")[0].body.clone().unwrap_or_default();
    let report = std::fs::read_to_string(newest(&world).join("report.md")).unwrap();
    let (_, shown, _) = said(&world, &["runs", "show", "latest"]).await;
    for (place, text) in [
        ("output", &out),
        ("comment", &comment),
        ("pull request", &body),
        ("report", &report),
        ("show", &shown),
    ] {
        assert!(text.contains(&told), "the {place} does not say {told}: {text}");
    }
    world.finish().await;
}

/// A line that the screen breaks is drawn anew below what is left of it.
#[tokio::test(flavor = "multi_thread")]
async fn on_a_narrow_screen_the_live_line_is_one_line() {
    let world = World::new(1).await;
    if std::process::Command::new("script").arg("--version").output().is_err() {
        println!("skipped: there is no script(1) here, which makes a terminal");
        return world.finish().await;
    }
    world.sim.inject(&delayed(0, 500)).unwrap();
    let overlay = world.dir.path().join("overlay.toml");
    let agentd = env!("CARGO_BIN_EXE_agentd");
    let line = format!("stty cols 60 rows 20; '{agentd}' --config '{}' run 7", overlay.display());
    let mut command = std::process::Command::new("script");
    let own = world.command(&[]);
    command.args(["-qec", &line, "/dev/null"]).current_dir(world.shop()).env_clear().env("TERM", "xterm");
    command.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::null());
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let all = text(&done.stdout);
    assert!(done.status.success(), "{all}");
    let (mut live, mut widest) = (0, 0);
    for line in all.split(['\r', '\n']) {
        // Each escape sequence ends with a letter.
        let mut parts = line.split('\u{1b}');
        let first = parts.next().unwrap_or_default().to_owned();
        let shown: String = parts.fold(first, |shown, part| {
            shown + part.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, rest)| rest)
        });
        if shown.contains(" 00:00:0") {
            (live, widest) = (live + 1, widest.max(shown.chars().count()));
        }
    }
    // Some columns are for what a terminal writes at its end for Ctrl-C.
    assert!(live > 3 && widest > 50 && widest < 58, "{live} lines, the widest of {widest} columns: {all:?}");
    world.finish().await;
}
#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_there_is_not_is_to_be_mended_and_why_does_not_call_it_well() {
    let world = World::new(0).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &overlay.replace("\"recorded-model\"", "\"no-such-model\""));
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("llm_unavailable")), "{output:#}");
    let next = world.json(&["runs", "report", "latest"]).await.1["next_steps"].to_string();
    let comment = world.sim.issue("demo/shop", 7).unwrap().comments[0].body.clone();
    for told in [&next, &comment] {
        assert!(told.contains("Mend the target's `model`"), "{told}");
        assert!(!told.contains("Wait until"), "no wait helps: {told}");
    }
    assert_eq!(
        answer(&world, "model_answers").await,
        "the last run ended for this; no other run waits for it"
    );
    assert_eq!(answer(&world, "remote_answers").await, "no run waits for the remote");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn why_does_not_call_a_remote_well_that_refused_the_last_push() {
    let world = World::new(1).await;
    let refuse = json!({
        "path": "/git/demo/shop.git/git-receive-pack", "kind": "status", "status": 403, "times": 0, "method": "POST",
    });
    world.sim.inject(&serde_json::from_value(refuse).unwrap()).unwrap();
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("git_error")), "{output:#}");
    assert_eq!(
        answer(&world, "remote_answers").await,
        "the last run ended for this; no other run waits for it"
    );
    assert_eq!(answer(&world, "model_answers").await, "no run waits for a model");
    world.finish().await;
}

/// What `agentd why` says to a rule that holds nothing back.
async fn answer(world: &World, rule: &str) -> String {
    let (_, why) = world.json(&["why", "7"]).await;
    let found = why["rules"].as_array().unwrap().iter().find(|one| one["rule"] == rule).unwrap();
    assert_eq!(found["code"], "ok", "{why:#}");
    found["answer"].as_str().unwrap().to_owned()
}
