//! What people write between the look that starts a run and the freezing of its briefing: the run is told it, and no other one is.

use serde_json::json;

use super::pull_request::{
    REPO, admin, asked, delivered, delivered_in, ended, fate, inbox, is_settled, labelled_with, replies,
    review, runs, said, ticks,
};
use crate::outside::daemons::{Running, until, until_or};
use crate::outside::world::World;

/// Looks are far apart, and a run takes a while before it freezes its briefing.
const BETWEEN: &str = "[conversation]\nquiet_period = \"0s\"\n[daemon]\npoll_interval = \"8s\"\n\
                       [worktree]\nsetup = [[\"sleep\", \"2\"]]\n";

/// A world with a pull request. The first request of the second run takes so long.
async fn slow(delay_ms: u64) -> (World, Running, u64) {
    let mut slow = replies(4);
    slow[1].delay_ms = delay_ms;
    delivered_in(labelled_with(slow, BETWEEN).await).await
}

/// How often a text is in a request.
fn times(world: &World, request: usize, part: &str) -> usize {
    world.told(request).matches(part).count()
}

/// The only remark whose id has this.
fn id_of(world: &World, part: &str) -> String {
    let heard = inbox(world);
    let (id, _) = heard["remarks"].as_object().unwrap().iter().find(|(id, _)| id.contains(part)).unwrap();
    id.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_briefing_of_a_follow_up_run_has_before_it_is_heard_is_answered_by_that_run_alone() {
    let (world, daemon, pull) = slow(0).await;
    let before = asked(&world);
    review(&world, pull, "ada", "CHANGES_REQUESTED", "The first OKAPI.", &[]);
    until("a second run", || runs(&world) == 2).await;
    let line = review(&world, pull, "ada", "CHANGES_REQUESTED", "The second ZEBRA.", &["A GIRAFFE."])[0];
    ended(&world, 2).await;
    let told = world.told(before);
    assert!(["OKAPI", "ZEBRA", "GIRAFFE"].iter().all(|part| told.contains(part)), "{told}");
    let is_told = || fate(&world, &format!("review-comment-{line}")) == "told";
    until_or("it counts as told", is_told, || format!("{:#}", inbox(&world))).await;
    ticks(&world, 2).await;
    assert_eq!(runs(&world), 2, "{:#}", inbox(&world));
    assert!(!inbox(&world).to_string().contains("\"waiting\""), "{:#}", inbox(&world));
    // Both reviews have their outcomes in the one comment of the run, and the line has a reply of its own.
    let round = said(&world, pull, "What came of these remarks");
    assert_eq!(round.len(), 1, "{round:#?}");
    assert_eq!(round[0].matches("[review-").count(), 2, "{round:#?}");
    let threads = world.sim.issue(REPO, pull).unwrap().pull.unwrap().threads;
    assert_eq!(threads[0].comments.len(), 2, "{threads:#?}");
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_briefing_of_a_labelled_run_has_is_heard_while_it_works_and_told_and_answered_once() {
    let (world, daemon, pull) = slow(14_000).await;
    let before = asked(&world);
    world.sim.add_label(REPO, 7, "agentd", "ada");
    until("a second run", || runs(&world) == 2).await;
    review(&world, pull, "ada", "CHANGES_REQUESTED", "Mind the ZEBRA.", &[]);
    until("its first request", || asked(&world) > before).await;
    assert_eq!(times(&world, before, "ZEBRA"), 1, "{}", world.told(before));
    let heard = || inbox(&world)["remarks"].to_string().contains("review-");
    until_or("it is heard", heard, || format!("{:#}", inbox(&world))).await;
    until("a second request", || asked(&world) > before + 1).await;
    assert_eq!(times(&world, before + 1, "ZEBRA"), 1, "told again midway: {}", world.told(before + 1));
    ended(&world, 2).await;
    let review_id = id_of(&world, "review-");
    until_or("it counts as told", || fate(&world, &review_id) == "told", || format!("{:#}", inbox(&world)))
        .await;
    assert_eq!(said(&world, pull, &review_id).len(), 1, "{:#?}", said(&world, pull, ""));
    ticks(&world, 2).await;
    assert_eq!(runs(&world), 2, "{:#}", inbox(&world));
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_that_is_killed_was_told_unheard_is_told_by_the_run_that_goes_on_with_it_and_by_no_other_one()
 {
    let (world, daemon, pull) = slow(60_000).await;
    let before = asked(&world);
    review(&world, pull, "ada", "CHANGES_REQUESTED", "The first OKAPI.", &[]);
    until("a second run", || runs(&world) == 2).await;
    review(&world, pull, "ada", "CHANGES_REQUESTED", "The second ZEBRA.", &[]);
    until("its first request", || asked(&world) > before).await;
    assert_eq!(times(&world, before, "ZEBRA"), 1, "{}", world.told(before));
    daemon.kill();
    let daemon = Running::start(&world, &[]);
    until("work by the next daemon", || asked(&world) > before + 1).await;
    assert!(times(&world, before + 1, "ZEBRA") == 1, "{}", world.told(before + 1));
    ended(&world, 2).await;
    until("its end", || is_settled(&world)).await;
    ticks(&world, 2).await;
    let waits = || inbox(&world).to_string().contains("\"waiting\"");
    until_or("nothing waits", || !waits(), || format!("{:#}", inbox(&world))).await;
    assert_eq!(runs(&world), 3, "{:#}", inbox(&world));
    assert_eq!(said(&world, pull, "What came of these remarks").len(), 1);
    daemon.stop().await;
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_edited_after_a_briefing_had_it_and_before_it_is_heard_is_new() {
    let (world, daemon, pull) = slow(0).await;
    world.sim.add_label(REPO, 7, "agentd", "ada");
    until("a second run", || runs(&world) == 2).await;
    let before = asked(&world);
    let id = super::pull_request::comment(&world, pull, "ada", "@agentd-demo mind the ZEBRA.");
    until("its first request", || asked(&world) > before).await;
    assert!(world.told(before).contains("ZEBRA"), "{}", world.told(before));
    let edit = serde_json::json!({ "body": "@agentd-demo mind the GNU.", "actor": "ada" });
    admin(&world, "PATCH", &format!("comments/{id}"), &edit);
    let told = || (before..asked(&world)).any(|request| world.told(request).contains("GNU"));
    until_or("the new words are told", told, || format!("{:#}", inbox(&world))).await;
    daemon.stop().await;
    world.sim.shutdown().await;
}

/// A round that only publishes what an earlier run had made has shown a review to no model, and does not decline it.
#[tokio::test(flavor = "multi_thread")]
async fn a_review_is_not_declined_by_a_round_that_only_publishes_an_earlier_run_s_work() {
    let (world, daemon, pull) = delivered(4, "[conversation]\nquiet_period = \"0s\"\n").await;
    let fault = json!({ "method": "PATCH", "path": format!("/repos/{REPO}/pulls/{pull}"), "kind": "status", "status": 422, "times": 1 });
    world.sim.inject(&serde_json::from_value(fault).unwrap()).unwrap();
    world.sim.add_label(REPO, 7, "agentd", "ada");
    until_or("it fails", || world.labels() == ["agentd:failed"], || format!("{:?}", world.labels())).await;
    let before = asked(&world);
    review(&world, pull, "ada", "CHANGES_REQUESTED", "", &["Please rename."]);
    let answered = || {
        let threads = world.sim.issue(REPO, pull).unwrap().pull.unwrap().threads;
        threads.iter().flat_map(|thread| &thread.comments).any(|one| one.comment.author == "agentd-demo")
    };
    until_or("an answer", answered, || format!("{:?} {:#}", world.labels(), inbox(&world))).await;
    assert!(asked(&world) > before, "a model was told of it first");
    daemon.stop().await;
    world.sim.shutdown().await;
}
