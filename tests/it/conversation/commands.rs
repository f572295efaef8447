//! Commands in comments: who may, once, and never by an edit or a quote.

use serde_json::json;

use super::pull_request::{
    REPO, admin, asked, comment, ended, fate, inbox, is_settled, labelled, opened, runs, said, status, ticks,
};
use crate::outside::daemons::{Running, until, until_or};
use crate::outside::front::Front;
use crate::outside::world::World;

/// A world without label and runs; the daemon has had its first look.
async fn quiet(runs: usize) -> (World, Running) {
    let world = labelled(runs, "[conversation]\nquiet_period = \"0s\"\n").await;
    world.sim.remove_label(REPO, 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    ticks(&world, 2).await;
    (world, daemon)
}

#[tokio::test(flavor = "multi_thread")]
async fn c_i04_an_outsider_who_commands_five_times_has_one_answer_and_no_run() {
    let (world, daemon) = quiet(1).await;
    for _ in 0..5 {
        comment(&world, 7, "mallory", "/agentd run");
        ticks(&world, 1).await;
    }
    until("an answer", || said(&world, 7, "mallory has the permission").len() == 1).await;
    daemon.kill();
    let daemon = Running::start(&world, &[]);
    comment(&world, 7, "mallory", "/agentd run");
    ticks(&world, 3).await;
    let requests = world.sim.requests();
    let answers = requests.iter().filter(|one| one.method != "GET" && one.target.contains("/comments"));
    assert_eq!(answers.count(), 1, "one answer a day, restarts included");
    assert_eq!((asked(&world), runs(&world)), (0, 0));
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_i05_a_quoted_command_is_none() {
    let (world, daemon) = quiet(1).await;
    comment(&world, 7, "ada", "> /agentd run\n\nshould I?");
    comment(&world, 7, "ada", "```\n/agentd run\n```");
    comment(&world, 7, "ada", "Well.\n/agentd run");
    ticks(&world, 3).await;
    assert_eq!((runs(&world), world.sim.issue(REPO, 7).unwrap().comments.len()), (0, 3));
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_i28_an_edit_makes_no_command_and_repeats_none() {
    let (world, daemon) = quiet(2).await;
    let id = comment(&world, 7, "ada", "I think about it.");
    ticks(&world, 2).await;
    admin(&world, "PATCH", &format!("comments/{id}"), &json!({ "body": "/agentd run", "actor": "ada" }));
    ticks(&world, 3).await;
    assert_eq!((runs(&world), said(&world, 7, "A run is queued").len()), (0, 0), "{:#}", inbox(&world));
    let id = comment(&world, 7, "ada", "/agentd run");
    until("a run", || runs(&world) == 1 && is_settled(&world)).await;
    admin(&world, "PATCH", &format!("comments/{id}"), &json!({ "body": "/agentd retry", "actor": "ada" }));
    ticks(&world, 3).await;
    assert_eq!(runs(&world), 1);
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_that_is_none_is_answered_with_those_that_are() {
    let (world, daemon) = quiet(1).await;
    for word in ["attach", "shell", "dance"] {
        comment(&world, 7, "ada", &format!("/agentd {word}"));
        until("an answer", || said(&world, 7, &format!("`{word}` is no command")).len() == 1).await;
    }
    assert_eq!(runs(&world), 0);
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_has_an_answer_of_its_own_that_no_later_one_takes_away() {
    let (world, daemon) = quiet(1).await;
    let written = [
        ("/agentd stop", "Nothing runs and nothing waits"),
        ("/agentd stop", "Nothing runs and nothing waits"),
        ("/agentd", "`/agentd stop`: the run"),
        ("/agentd help", "`/agentd stop`: the run"),
        ("/agentd \u{505c}\u{6b62}", "`\u{505c}\u{6b62}` is no command"),
        ("/agentd extend five", "`five` is no amount"),
        ("/agentd reject no", "Nothing waits for an approval on this issue."),
        ("/agentd answer yes", "No question waits for an answer"),
        ("/agentd approve", "nothing waits for an approval on this issue"),
        ("/agentd take", "`/agentd run` in a comment"),
    ];
    for (text, _) in written {
        comment(&world, 7, "ada", text);
    }
    let answers = || -> Vec<String> {
        let comments = world.sim.issue(REPO, 7).unwrap().comments;
        comments.into_iter().map(|one| one.body).filter(|body| body.starts_with("<!-- agentd:")).collect()
    };
    until("the answers", || answers().len() >= written.len()).await;
    ticks(&world, 2).await;
    let answers = answers();
    assert_eq!(answers.len(), written.len(), "{answers:#?}");
    for ((text, says), answer) in written.iter().zip(&answers) {
        let line = format!("> `{text}`");
        assert!(answer.contains(&line) && answer.contains(says), "{text}: {answer}");
    }
    let edited = world.sim.requests();
    assert!(!edited.iter().any(|one| one.method == "PATCH" && one.target.contains("/comments/")));
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_asked_for_a_moment_before_is_stopped_also_where_no_list_has_it_yet() {
    let (world, daemon) = quiet(1).await;
    daemon.stop().await;
    comment(&world, 7, "ada", "/agentd run");
    comment(&world, 7, "ada", "/agentd stop");
    let daemon = Running::start(&world, &[]);
    until("an answer", || said(&world, 7, "ada took it out of the queue").len() == 1).await;
    ticks(&world, 3).await;
    assert_eq!(runs(&world), 0);
    let labels = world.sim.issue(REPO, 7).unwrap().labels;
    assert!(!labels.iter().any(|label| label == "agentd"), "{labels:?}");
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_was_answered_outlives_the_daemon_that_dies_before_the_run_has_ended() {
    let world = labelled(2, "").await;
    crate::outside::daemons::slow_model(&world, 1, 600_000);
    let daemon = Running::start(&world, &[]);
    until("it asks a model", || world.sim.model_requests().len() == 2).await;
    comment(&world, 7, "ada", "/agentd stop");
    until("an answer", || said(&world, 7, "ada asked the run to stop").len() == 1).await;
    daemon.kill();
    world.sim.world().faults.clear();
    let daemon = Running::start(&world, &[]);
    until("it is over", || is_settled(&world)).await;
    daemon.stop().await;
    let (_, last) = world.json(&["runs", "show", "latest"]).await;
    assert!(last.to_string().contains("user_stop"), "{last:#}");
    assert!(world.sim.pulls(REPO).is_empty());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_command_is_told_what_it_takes_also_where_that_is_more_than_a_run_takes() {
    let world = labelled(1, "[conversation]\ntrusted = \"admin\"\n").await;
    world.sim.remove_label(REPO, 7, "agentd", "ada");
    let may = json!({ "role": "write" });
    admin(&world, "PUT", "collaborators/max", &may);
    let daemon = Running::start(&world, &[]);
    ticks(&world, 2).await;
    comment(&world, 7, "max", "/agentd stop");
    until("an answer", || said(&world, 7, "max has the permission \"write\"").len() == 1).await;
    let told = said(&world, 7, "max has the permission").remove(0);
    assert!(told.contains("commands take \"admin\""), "{told}");
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_by_a_command_waits_and_says_so() {
    let (world, daemon) = quiet(2).await;
    comment(&world, 7, "ada", "/agentd say Keep the name.\nAnd the tests.");
    until("an answer", || said(&world, 7, "It waits for the next run").len() == 1).await;
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_on_this_machine_is_told_to_the_run_that_works_and_attach_follows_it_to_its_end() {
    use crate::outside::solo::{calls, reports};
    let mut slow = calls(&[("search", json!({ "pattern": "discounted" }))]);
    slow.delay_ms = 5_000;
    let more = calls(&[("write_file", json!({ "path": "notes/1.md", "content": "x\n" }))]);
    let world = super::pull_request::labelled_with(vec![slow, more, reports("Done.", json!([]))], "").await;
    let none = world.agentd(&["--config", "../overlay.toml", "attach", "7"]).await;
    assert_eq!(none.status.code(), Some(4));
    let daemon = Running::start(&world, &[]);
    until("work", || asked(&world) == 1).await;
    let (code, said) = world.json(&["say", "7", "Keep the name of the function."]).await;
    assert_eq!(code, Some(0));
    assert!(said["place"].as_str().unwrap().starts_with("queued for run "), "{said:#}");
    let attached = world.agentd(&["--config", "../overlay.toml", "attach", "7"]).await;
    let shown = crate::outside::world::text(&attached.stdout);
    let result = crate::outside::solo::left(&world, "result.json");
    assert_eq!(
        attached.status.code(),
        result["exit_code"].as_i64().map(|code| i32::try_from(code).unwrap()),
        "{shown}"
    );
    assert!(shown.contains("Keep the name of the function.") && shown.contains("is told"), "{shown}");
    let second = world.told(1);
    assert!(second.contains("Keep the name of the function.") && second.contains("local:"), "{second}");
    let (_, said) = world.json(&["say", "7", "And later."]).await;
    assert_eq!(said["place"], "waits for the next run");
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_while_nothing_runs_is_in_the_first_request_of_the_next_run() {
    // Its model reports in its first turn.
    let (world, daemon) = quiet(0).await;
    // A flag is a flag, wherever it stands.
    let said =
        world.agentd(&["--config", "../overlay.toml", "say", "7", "Keep", "the name.", "--json"]).await;
    let said: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(said["place"], "waits for the next run");
    let (code, none) = world.json(&["say", "404", "Hello."]).await;
    assert!(code == Some(4) && none.to_string().contains("issue 404"), "{none:#}");
    let (code, none) = world.json(&["extend", "404", "5"]).await;
    assert!(code == Some(4) && none.to_string().contains("issue 404"), "{none:#}");
    world.sim.add_label(REPO, 7, "agentd", "ada");
    ended(&world, 1).await;
    assert!(world.told(0).contains("Keep the name."), "{}", world.told(0));
    let told = || {
        let remarks = inbox(&world)["remarks"].clone();
        remarks.as_object().is_some_and(|all| all.len() == 1 && all.values().all(|one| one["fate"] == "told"))
    };
    until_or("it counts as told", told, || format!("{:#}", inbox(&world))).await;
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inbox_that_cannot_be_read_holds_back_no_other_issue_and_is_told_of() {
    let world = labelled(2, super::steering::AT_ONCE).await;
    admin(
        &world,
        "POST",
        "issues",
        &json!({ "number": 11, "title": "Eleven", "body": "b", "author": "ada" }),
    );
    let daemon = Running::start(&world, &[]);
    opened(&world).await;
    comment(&world, 7, "ada", "/agentd help");
    let path = world.dir.path().join("state/repos/demo/shop/inbox/7.json");
    until("an inbox", || path.exists()).await;
    daemon.stop().await;
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &whole[..50]).unwrap();
    let daemon = Running::start(&world, &[]);
    ticks(&world, 1).await;
    let waits = comment(&world, 7, "ada", "Please see this as well.");
    ticks(&world, 2).await;
    comment(&world, 11, "ada", "/agentd run");
    until_or("a run for the other issue", || runs(&world) == 2, || format!("{:#}", status(&world))).await;
    let shown = status(&world)["parked"][0].clone();
    assert_eq!((&shown["code"], &shown["issue"]), (&json!("unheard"), &json!(7)), "{shown:#}");
    assert!(shown["text"].as_str().unwrap().contains("7.json"), "{shown:#}");
    std::fs::write(&path, &whole).unwrap();
    let heard = || fate(&world, &format!("comment-{waits}"));
    until_or("what was held back is heard", || heard() != "unheard", heard).await;
    until("it is told of no more", || status(&world)["parked"] == json!([])).await;
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_comments_of_one_second_than_a_look_reads_deafen_nobody_and_are_read_no_longer_than_they_must() {
    let (world, daemon) = quiet(1).await;
    let number = admin(&world, "POST", "issues", &json!({ "title": "Imported" }))["number"].as_u64().unwrap();
    let at = world.sim.issue(REPO, number).unwrap().updated_at;
    let mass = json!({ "body": "Imported, {n}.", "count": 1_500, "actor": "mallory", "at": at });
    admin(&world, "POST", &format!("issues/{number}/comments"), &mass);
    let last = json!({ "body": "/agentd run", "actor": "ada", "at": at });
    admin(&world, "POST", "issues/7/comments", &last);
    until("a run", || runs(&world) == 1 && is_settled(&world)).await;
    comment(&world, 7, "ada", "/agentd dance");
    until("what came later is heard", || said(&world, 7, "`dance` is no command").len() == 1).await;
    // Once all of it is known, nothing but the first page is asked for.
    let pages = || {
        let asked = world.sim.requests();
        asked
            .iter()
            .filter(|one| one.target.contains("issues/comments") && one.target.contains("&page="))
            .count()
    };
    let mut before = usize::MAX;
    for _ in 0..10 {
        let now = pages();
        if now == before {
            break;
        }
        before = now;
        ticks(&world, 4).await;
    }
    let settled = pages();
    ticks(&world, 4).await;
    assert!(settled > 20 && pages() == settled, "{settled}, {}", pages());
    daemon.stop().await;
    world.finish().await;
}

/// Deliveries alone tell of anything: the next poll is in an hour.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_comes_while_its_run_is_ending_waits_for_no_poll() {
    let world = labelled(2, "[conversation]\nquiet_period = \"0s\"\n").await;
    let (sunk, go) = (world.dir.path().join("sunk"), world.dir.path().join("go"));
    let waits = format!(
        "touch {}; i=0; until [ -e {} ] || [ $i = 90 ]; do sleep 0.1; i=$((i+1)); done",
        sunk.display(),
        go.display()
    );
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n[record]\nsinks = [[\"sh\", \"-c\", \"{waits}\"]]\n"));
    let front = Front::start(&world, "1h", "webhook_secret = \"${HOOK_SECRET}\"");
    let hook = json!({ "url": format!("{}/webhooks/github", front.base), "secret": "a secret of the hooks" });
    admin(&world, "POST", "hooks", &hook);
    until("the end is shown", || world.labels() == ["agentd:done"] && sunk.exists()).await;
    let before = world.sim.requests().len();
    comment(&world, 7, "ada", "/agentd run");
    let is_heeded = || {
        let asked = world.sim.requests();
        let mut since = asked.iter().skip(before).skip_while(|one| !one.target.ends_with("/ada/permission"));
        since.any(|one| one.method == "GET" && one.target.ends_with("/issues/7"))
    };
    until("it is heeded while the run ends", is_heeded).await;
    assert!(!go.exists() && runs(&world) == 1);
    std::fs::write(&go, "").unwrap();
    until_or(
        "another run",
        || runs(&world) == 2 && is_settled(&world),
        || format!("{:#?}", said(&world, 7, "")),
    )
    .await;
    drop(front);
    world.finish().await;
}
