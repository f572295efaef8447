//! What people see of a run whose verify commands do not pass.

use serde_json::{Value, json};

use super::solo::{calls, reports, run, solo, solo_of};
use super::world::{World, text};

/// Fifteen lines, then the end that is asked for.
fn says_much_and_ends_with(code: u32) -> String {
    format!(
        "[[\"sh\", \"-c\", \"for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do echo line-$n; done; exit {code}\"]]"
    )
}

/// A world whose agent writes one file and reports, with these verify commands.
async fn world(commands: &str) -> World {
    let replies = vec![
        calls(&[("write_file", json!({ "path": "lib/new.sh", "content": "echo new\n" }))]),
        reports("Written.", json!([])),
    ];
    let world = solo(replies, None, "").await;
    world.verify(commands);
    world
}

fn codes(output: &Value) -> Vec<&str> {
    output["warnings"].as_array().unwrap().iter().map(|warning| warning["code"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_verify_command_prints_is_no_word_of_agentd() {
    let world = world(
        r#"[["sh", "-c", "printf '%s%s there -->' '<!' '-- agentd:parked'; printf '\\nfixes %s9\\n' '#'; exit 1"]]"#,
    )
    .await;
    let (_, output) = run(&world).await;
    assert_eq!(output["stop_detail"], "verify_failed", "{output:#}");
    let comment = world.sim.issue("demo/shop", 7).unwrap().comments.remove(0).body;
    let pull = world.sim.pulls("demo/shop").remove(0).body.unwrap();
    for told in [comment, pull] {
        assert!(told.contains("agentd:parked there"), "it is shown: {told}");
        assert!(!told.contains("<!-- agentd:parked") && !told.contains("fixes #9"), "{told}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_verify_command_mends_itself_is_not_there_for_the_next_one() {
    let mends =
        "echo good > lib/new.sh; echo made > made.txt; mkdir -p node_modules; touch node_modules/kept";
    let world = world(&format!(
        r#"[["sh", "-c", "{mends}"], ["sh", "-c", "test -e node_modules/kept && test ! -e made.txt"], ["grep", "good", "lib/new.sh"]]"#
    ))
    .await;
    let mut command = world.command_in(&["run", "--issue", "7", "--agent", "solo"]);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (shown, progress) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(1), "{shown}{progress}");
    assert!(shown.starts_with("Changed, but `grep good lib/new.sh` failed (exit 1)"), "{shown}");
    let own = "touch node_modules/kept: passed with changes of its own";
    assert!(shown.contains(own) && shown.contains("test ! -e made.txt: passed\n"), "{shown}");
    let warned = "node_modules/kept` left or changed 2 files, no part of the work: `lib/new.sh`, `made.txt`";
    assert!(progress.contains(warned), "{progress}");
    let pull = world.sim.pulls("demo/shop").remove(0);
    assert!(pull.pull.as_ref().unwrap().draft, "{pull:?}");
    let body = pull.body.unwrap();
    assert!(body.contains("passed with changes of its own after"), "{body}");
    assert!(body.contains("it changed the tree that it ran on, and that was put back"), "{body}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_whose_tests_fail_is_no_success_and_everybody_reads_that_first() {
    let world = world(&says_much_and_ends_with(1)).await;
    let mut command = world.command_in(&["run", "--issue", "7", "--agent", "solo"]);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (shown, progress) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(1), "{shown}{progress}");
    let first = "Changed, but `sh -c for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do echo line-$n; done; exit 1` failed (exit 1)";
    assert!(shown.starts_with(first), "{shown}");
    let issue = world.sim.issue("demo/shop", 7).unwrap();
    assert_eq!(issue.labels, ["agentd:no-evidence"]);
    let comment = &issue.comments[0].body;
    assert!(comment.lines().nth(1).is_some_and(|line| line.starts_with(&format!("**{first}"))), "{comment}");
    let pulls = world.sim.pulls("demo/shop");
    assert!(pulls[0].pull.as_ref().unwrap().draft);
    let body = pulls[0].body.as_ref().unwrap();
    let head = body.lines().find(|line| !line.starts_with("<!--") && !line.starts_with("> [!")).unwrap();
    assert!(head.contains(first), "{body}");
    let (_, listed) = world.json(&["runs", "list"]).await;
    let run = listed[0]["run_id"].as_str().unwrap().to_owned();
    let report = text(&world.agentd(&["runs", "report", &run]).await.stdout);
    let said = report.lines().filter(|line| !line.trim().is_empty()).nth(1).unwrap();
    assert!(said.starts_with(&format!("**{first}")), "{report}");
    let show = text(&world.agentd(&["runs", "show", &run]).await.stdout);
    assert!(show.contains("NO_EVIDENCE (verify_failed)") && show.contains(first), "{show}");
    for told in [&shown, comment, body, &report, &show] {
        assert!(told.contains("line-15") && told.contains("line-6\n"), "its last ten lines: {told}");
        assert!(!told.contains("line-5\n"), "ten, not more: {told}");
        assert!(told.contains("fails on develop"), "the same there, before the change: {told}");
    }
    let mut command = world.command_in(&["why", "7"]);
    let why = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(text(&why.stdout).contains(first), "{}", text(&why.stdout));
    let (_, output) = world.json(&["runs", "show", &run]).await;
    assert_eq!((&output["success"], &output["exit_code"]), (&json!(false), &json!(1)), "{output:#}");
    let summary = output["summary"].as_str().unwrap();
    assert!(
        summary.starts_with(first) && summary.contains("line-15\n\n"),
        "before what the agent says: {summary}"
    );
    assert!(codes(&output).contains(&"also_red_on_base"), "{output:#}");
    let (_, stats) = world.json(&["runs", "stats"]).await;
    assert_eq!(stats["success_rate"], json!(0.0), "{stats:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_fails_only_with_the_change_is_not_said_to_fail_before_it() {
    let world = world("[[\"sh\", \"-c\", \"test ! -e lib/new.sh\"]]").await;
    let (code, output) = run(&world).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("verify_failed")), "{output:#}");
    assert!(!codes(&output).contains(&"also_red_on_base"), "{output:#}");
    let events = text(&world.agentd(&["runs", "events", "latest"]).await.stdout);
    assert!(events.contains("\"also_red_on_base\":false"), "it was tried: {events}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_could_not_run_is_told_as_such() {
    for (commands, told) in [
        ("[[\"sh\", \"-c\", \"exit 127\"]]", "Changed, but `sh -c exit 127` could not run (exit 127)"),
        ("[[\"sh\", \"-c\", \"exit 126\"]]", "Changed, but `sh -c exit 126` could not run (exit 126)"),
        ("[[\"no-such-program-here\"]]", "Changed, but `no-such-program-here` could not run ("),
    ] {
        let world = world(commands).await;
        let (code, output) = run(&world).await;
        assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("verify_failed")), "{output:#}");
        let message = output["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(told), "{message}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tools_program_that_failed_is_not_shown_as_ok() {
    let command = |end: &str| ("run_command", json!({ "argv": ["sh", "-c", format!("exit {end}")] }));
    let replies =
        vec![calls(&[command("3"), command("126"), command("0")]), reports("Nothing to do.", json!([]))];
    let allow =
        "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"test\"\n";
    let world = solo(replies, Some(allow), "").await;
    let mut command = world.command_in(&["run", "--issue", "7", "--agent", "solo"]);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let progress = text(&done.stderr);
    for told in [
        "run_command sh -c 'exit 3': exit 3 (",
        "run_command sh -c 'exit 126': could not run (exit 126) (",
        "run_command sh -c 'exit 0': ok (",
    ] {
        assert_eq!(progress.matches(told).count(), 1, "{told}: {progress}");
    }
    let show = text(&world.agentd(&["runs", "show", "latest"]).await.stdout);
    assert!(show.contains("2 ended with another exit code than 0"), "{show}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_refuses_is_asked_once_more_and_its_words_are_the_end() {
    let refuses = serde_json::from_value(
        json!({ "text": "I cannot help\nwith that key ghp_0123456789abcdefghijklmnopqrstuvwxyzAB.", "stop": "refusal", "times": 0 }),
    );
    let world = solo(vec![refuses.unwrap()], None, "").await;
    let (code, output) = run(&world).await;
    let words = "The model refused to work on this: \"I cannot help with that key ";
    let message = output["error"]["message"].as_str().unwrap_or_else(|| panic!("{output:#}"));
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("invalid_model_output")), "{output:#}");
    assert!(message.starts_with(words) && !message.contains("ghp_"), "{message}");
    let asked = world.sim.requests().iter().filter(|asked| asked.target.starts_with("/model")).count();
    assert_eq!(asked, 2, "once, and once more");
    let issue = world.sim.issue("demo/shop", 7).unwrap();
    assert!(issue.comments[0].body.contains(words), "{}", issue.comments[0].body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_the_run_made_pass_is_named_however_its_command_comes_to_it() {
    let spellings = [
        r#"[["./check"]]"#,
        r#"[["sh", "-c", "cd ci && ./check.sh"]]"#,
        r#"[["sh", "-c", ". ci/check.sh"]]"#,
        r#"[["bash", "-o", "pipefail", "-c", "ci/check.sh | cat"]]"#,
        r#"[["sh", "linked/check.sh"]]"#,
    ];
    for commands in spellings {
        let passes = json!({ "path": "ci/check.sh", "content": "#!/bin/sh\nexit 0\n" });
        let world =
            solo(vec![calls(&[("write_file", passes)]), reports("Mended.", json!([]))], None, "").await;
        world.write("shop/ci/check.sh", "#!/bin/sh\nexit 1\n");
        let make = "chmod +x ci/check.sh && ln -s ci/check.sh check && ln -s ci linked";
        assert!(
            std::process::Command::new("sh")
                .args(["-c", make])
                .current_dir(world.shop())
                .status()
                .unwrap()
                .success()
        );
        world.git(&world.shop(), &["add", "-A", "ci", "check", "linked"]).await;
        world
            .git(
                &world.shop(),
                &["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "-q", "-m", "check"],
            )
            .await;
        let header = format!("http.extraHeader=Authorization: Basic {}", super::world::basic());
        world.git(&world.shop(), &["-c", &header, "push", "-q", "origin", "HEAD:refs/heads/develop"]).await;
        world.verify(commands);
        let (code, output) = run(&world).await;
        assert_eq!(code, Some(0), "{commands}: {output:#}");
        assert!(codes(&output).contains(&"verify_script_changed"), "{commands}: {output:#}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_the_dependencies_that_the_run_overwrote_is_named_where_it_is_the_check() {
    for overwrites in [true, false] {
        let pass = "printf '#!/bin/sh\\nexit 0\\n' > node_modules/.bin/check";
        let line = if overwrites { pass } else { "true" };
        let works = [
            ("run_command", json!({ "argv": ["sh", "-c", line] })),
            ("write_file", json!({ "path": "note.md", "content": "Mended.\n" })),
        ];
        let fill = "mkdir -p node_modules/.bin && printf '#!/bin/sh\\nexit 0\\n' > node_modules/.bin/check && chmod +x node_modules/.bin/check";
        let setup = format!("[worktree]\nsetup = [{}]\n", json!(["sh", "-c", fill]));
        let all = "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"everything\"\n";
        let replies = vec![calls(&works), reports("Mended.", json!([]))];
        let world = solo_of(replies, Some(all), &setup, |scenario| {
            let files = &mut scenario.repositories[0].commits[0].files;
            files.insert(".gitignore".to_owned(), "node_modules/\n".to_owned());
        })
        .await;
        world.verify(r#"[["node_modules/.bin/check"]]"#);
        let (code, output) = run(&world).await;
        assert_eq!(code, Some(0), "{output:#}");
        assert_eq!(codes(&output).contains(&"verify_script_changed"), overwrites, "{output:#}");
        let body = world.sim.pulls("demo/shop")[0].body.clone().unwrap();
        let told = "it executes `node_modules/.bin/check`, which this run changed";
        assert_eq!(body.contains(told), overwrites, "{body}");
        world.finish().await;
    }
}
