//! Whoever writes too late for a run hears so: beside a pull request that is over, after another's answer, after another gave work back.

use serde_json::json;

use super::pull_request::{
    admin, asked, comment, delivered, fate, inbox, is_settled, labelled_with, lists, opened, review, runs,
    said, status, ticks,
};
use super::steering::{until_labels, writes};
use crate::outside::daemons::{Running, slow_model, until, until_or};
use crate::outside::solo::{calls, reports};
use crate::outside::world::World;

const WAITS: &str = "[conversation]\nquiet_period = \"60s\"\nmax_wait = \"60s\"\n";

fn close(world: &World, pull: u64, merge: bool) {
    match merge {
        true => admin(world, "POST", &format!("pulls/{pull}/merge"), &json!({ "actor": "ada" })),
        false => {
            admin(world, "PATCH", &format!("issues/{pull}"), &json!({ "actor": "ada", "state": "closed" }))
        }
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asked_for_changes_before_a_pull_request_was_merged_or_closed_is_told_that_no_run_begins() {
    for merge in [false, true] {
        let how = if merge { "merged" } else { "closed" };
        // Heard before it was over, and written while nobody listened.
        for away in [false, true] {
            let (world, daemon, pull) = delivered(1, WAITS).await;
            let daemon = if away {
                daemon.kill();
                review(&world, pull, "ada", "CHANGES_REQUESTED", "Please mend this.", &["Here."]);
                close(&world, pull, merge);
                Running::start(&world, &[])
            } else {
                let id = comment(&world, pull, "ada", "@agentd-demo please mend this.");
                let heard = || fate(&world, &format!("comment-{id}")) == "waiting";
                until_or("it is heard", heard, || format!("{:#}", inbox(&world))).await;
                close(&world, pull, merge);
                daemon
            };
            let words = format!("Nothing is done about this: the pull request was {how} before a run began");
            let told = || said(&world, pull, &words);
            let shown = || format!("{away} {:#?} {:#}", said(&world, pull, ""), inbox(&world));
            until_or(&format!("it is told that it was {how}"), || !told().is_empty(), shown).await;
            ticks(&world, 3).await;
            assert_eq!((told().len(), runs(&world)), (1, 1), "{}", shown());
            daemon.stop().await;
            world.finish().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follow_up_run_whose_pull_request_is_closed_and_opened_again_does_not_say_that_a_person_stopped_it()
{
    let quick = "[conversation]\nquiet_period = \"0s\"\n";
    let (world, daemon, pull) = delivered(2, quick).await;
    slow_model(&world, 0, 6_000);
    review(&world, pull, "ada", "CHANGES_REQUESTED", "Please mend this.", &["Here."]);
    let before = asked(&world);
    until("its run works", || asked(&world) > before).await;
    close(&world, pull, false);
    let looks = || lists(&world, &format!("/repos/demo/shop/pulls/{pull}"));
    let before = looks();
    until("it is noticed", || looks() > before + 1).await;
    admin(&world, "PATCH", &format!("issues/{pull}"), &json!({ "actor": "ada", "state": "open" }));
    until_or("its end", || runs(&world) == 2 && is_settled(&world), || format!("{:?}", world.labels())).await;
    let (_, why) = world.json(&["why", "7"]).await;
    let (_, output) = world.json(&["runs", "show", "latest"]).await;
    let told = format!("{why} {output}");
    assert!(
        told.contains("was closed while the run worked") && !told.contains("asked the run to stop"),
        "{told}"
    );
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_after_another_is_told_that_the_first_one_counts() {
    let question = json!({ "question": "Which colour?", "options": ["red", "blue"] });
    let replies = vec![calls(&[("agent__ask", question)]), reports("Done.", json!([]))];
    let world = labelled_with(replies, "[conversation]\nquiet_period = \"8s\"\n").await;
    let daemon = Running::start(&world, &[]);
    until_or("it is asked", || !said(&world, 7, "question-1").is_empty(), || format!("{:?}", world.labels()))
        .await;
    until("it waits", || status(&world)["parked"][0]["code"] == "question_pending").await;
    comment(&world, 7, "ada", "2");
    let late = comment(&world, 7, "ada", "/agentd answer green");
    let answer = || said(&world, 7, &format!("command-comment-{late}")).concat();
    until_or("its answer", || !answer().is_empty(), || format!("{:#?}", said(&world, 7, ""))).await;
    assert!(answer().contains("ada answered before") && !answer().contains("Taken as"), "{}", answer());
    until_labels(&world, &["agentd:done"]).await;
    let prompt = world.told(asked(&world) - 1);
    assert!(prompt.contains("blue") && !prompt.contains("agent is told: green"), "{prompt}");
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_given_back_once_and_on_a_closed_issue_it_goes_on_when_that_is_opened_again() {
    let replies = vec![writes(0), reports("Done.", json!([])), reports("As told.", json!([]))];
    let world = labelled_with(replies, "[conversation]\nquiet_period = \"0s\"\n").await;
    let daemon = Running::start(&world, &[]);
    opened(&world).await;
    until_labels(&world, &["agentd:done"]).await;
    comment(&world, 7, "ada", "/agentd take");
    until_labels(&world, &["agentd:needs-input"]).await;
    admin(&world, "PATCH", "issues/7", &json!({ "actor": "ada", "state": "closed" }));
    let before = asked(&world);
    comment(&world, 7, "ada", "/agentd give-back KIWI: rename it.");
    let told = || said(&world, 7, "gave the work back at").concat();
    until_or("its answer", || !told().is_empty(), || format!("{:#?}", said(&world, 7, ""))).await;
    assert!(
        told().contains("is closed: open it again") && !told().contains("The work goes on"),
        "{}",
        told()
    );
    let shows = || !said(&world, 7, "**ada gave the work back.**").is_empty();
    until_or("the status comment says so", shows, || format!("{:#?}", said(&world, 7, ""))).await;
    admin(&world, "PUT", "collaborators/mallory", &json!({ "role": "write" }));
    comment(&world, 7, "mallory", "/agentd give-back --end MANGO");
    let again = || said(&world, 7, "ada has given the work back already");
    until_or("the second is told", || again().len() == 1, || format!("{:#?}", said(&world, 7, ""))).await;
    ticks(&world, 3).await;
    assert_eq!(asked(&world), before, "nothing goes on where the issue is closed");
    admin(&world, "PATCH", "issues/7", &json!({ "actor": "ada", "state": "open" }));
    until_or("it goes on", || asked(&world) > before, || format!("{:?}", world.labels())).await;
    until_labels(&world, &["agentd:done"]).await;
    assert!(world.told(before).contains("KIWI: rename it."), "{}", world.told(before));
    daemon.stop().await;
    world.sim.shutdown().await;
}
