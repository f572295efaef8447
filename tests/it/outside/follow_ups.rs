//! After the pull request: what its checks, its reviewers and its base branch lead to, and what its end does.

use agentd::sim::CheckFile;
use serde_json::json;

use super::daemons::{Running, slow_model, until};
use super::world::{TOKEN, World, text};

/// A world with a finished first run, and `more` under `[daemon]`; the daemon runs on.
pub async fn delivered(rounds: usize, more: &str) -> (World, Running, u64) {
    delivered_in(World::new(rounds).await, more).await
}

async fn delivered_in(world: World, more: &str) -> (World, Running, u64) {
    configure(&world, &format!("[daemon]\npoll_interval = \"1s\"\n{more}\n"));
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    until("done", || world.labels() == ["agentd:done"]).await;
    let pull = world.sim.pulls("demo/shop")[0].number;
    (world, daemon, pull)
}

fn configure(world: &World, more: &str) {
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n{more}\n"));
}

/// A check on the head that the branch has now.
fn check(world: &World, kind: &str, name: &str, outcome: &str, description: &str) {
    let head = agentd::sim::bare::head(&world.sim.git_dir("demo/shop").unwrap(), "feature/issue-7").unwrap();
    let check: CheckFile = serde_json::from_value(
        json!({ "on": head, "name": name, "kind": kind, "outcome": outcome, "description": description }),
    )
    .unwrap();
    assert!(world.sim.add_check("demo/shop", &check));
}

fn asked(world: &World) -> usize {
    world.sim.model_requests().len()
}

/// Looks at the pull request after this moment.
pub async fn looked_at_again(world: &World, times: usize) {
    let looks = || world.sim.requests().iter().filter(|asked| asked.target.contains("/check-runs?")).count();
    let seen = looks();
    until("another look at the pull request", || looks() >= seen + times).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i28_a_failed_check_run_or_status_starts_one_follow_up_run_and_an_unchanged_one_none() {
    let (world, daemon, _) = delivered(3, "").await;
    let mut before = asked(&world);
    check(&world, "run", "lint", "success", "fine");
    check(&world, "status", "ci/build", "pending", "queued");
    looked_at_again(&world, 2).await;
    assert_eq!(asked(&world), before, "nothing is wrong yet");
    check(&world, "status", "ci/build", "success", "built");
    for (kind, name, outcome, words) in [
        ("run", "lint", "failure", "cart.sh:14: trailing space"),
        ("status", "ci/build", "error", "the runner lost its disk"),
    ] {
        check(&world, kind, name, outcome, words);
        until("a follow-up run", || asked(&world) > before).await;
        until("done again", || world.labels() == ["agentd:done"]).await;
        let told = world.sim.model_requests()[before].body.to_string();
        assert!(told.contains(words) && told.contains(name), "{told}");
        assert!(told.contains("What has to be put right now"), "{told}");
        before = asked(&world);
        looked_at_again(&world, 2).await;
        assert_eq!(asked(&world), before, "{name}: what was answered starts nothing again");
    }
    world.assert_one_of_each();
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i28_looking_at_an_unchanged_pull_request_costs_nothing() {
    let (world, daemon, _) = delivered(1, "").await;
    let counted = || world.sim.requests().iter().filter(|asked| asked.counted).count();
    // What changed just now is read twice, since GitHub's times are whole seconds.
    let mut before = 0;
    while counted() != before {
        before = counted();
        looked_at_again(&world, 2).await;
    }
    looked_at_again(&world, 3).await;
    assert_eq!(counted(), before);
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i29_after_the_cap_a_person_is_asked_once() {
    let (world, daemon, _) = delivered(2, "max_follow_ups = 1").await;
    check(&world, "run", "lint", "failure", "first");
    let before = asked(&world);
    until("a follow-up run", || asked(&world) > before).await;
    until("done again", || world.labels() == ["agentd:done"]).await;
    let before = asked(&world);
    check(&world, "run", "unit", "timed_out", "second");
    until("attention", || world.labels() == ["agentd:attention"]).await;
    let comments = world.sim.issue("demo/shop", 7).unwrap().comments;
    let told: Vec<_> = comments.iter().filter(|one| one.body.contains("still needs work")).collect();
    assert_eq!(told.len(), 1, "{comments:?}");
    assert!(told[0].body.contains("unit"), "{told:?}");
    looked_at_again(&world, 2).await;
    assert_eq!(asked(&world), before);
    let status = daemon_status(&world);
    assert_eq!(status["parked"][0]["code"], "follow_up_cap", "{status:#}");
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i28_a_follow_up_run_that_its_daemon_does_not_finish_is_gone_on_with_by_the_next() {
    for kill in [true, false] {
        let (world, daemon, _) = delivered(4, "max_follow_ups = 1").await;
        let before = asked(&world);
        slow_model(&world, 1, 3_000);
        check(&world, "run", "lint", "failure", "cart.sh:14: trailing space");
        until("work on the check", || asked(&world) > before + 1).await;
        assert_eq!(world.labels(), ["agentd:running"]);
        match kill {
            true => daemon.kill(),
            false => drop(daemon.stop().await),
        }
        let before = asked(&world);
        let next = Running::start(&world, &[]);
        until("work by the next daemon", || asked(&world) > before).await;
        let told = world.sim.model_requests()[before].body.to_string();
        assert!(told.contains("cart.sh:14: trailing space"), "killed: {kill}: {told}");
        until("done", || world.labels() == ["agentd:done"]).await;
        let comments = world.sim.issue("demo/shop", 7).unwrap().comments;
        assert!(!comments.iter().any(|one| one.body.contains("did not finish")), "{comments:?}");
        let before = asked(&world);
        looked_at_again(&world, 2).await;
        assert_eq!(asked(&world), before, "killed: {kill}: what was answered starts nothing again");
        world.assert_one_of_each();
        next.stop().await;
        world.sim.shutdown().await;
    }
}

fn daemon_status(world: &World) -> serde_json::Value {
    let file = std::fs::read(world.dir.path().join("state/daemon/status.json")).unwrap();
    serde_json::from_slice(&file).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn another_pull_request_from_the_same_branch_starts_no_second_run_beside_the_first() {
    let (world, daemon, _) = delivered(3, "").await;
    world.push_branch("develop", "next").await;
    let body = json!({ "title": "Also", "head": "feature/issue-7", "base": "next" });
    let opened = reqwest::Client::new()
        .post(format!("{}/repos/demo/shop/pulls", world.sim.api_url()))
        .header("authorization", format!("Bearer {TOKEN}"))
        .header("user-agent", "a-person")
        .body(body.to_string())
        .send()
        .await
        .unwrap();
    assert!(opened.status().is_success(), "{}", opened.text().await.unwrap());
    let before = asked(&world);
    check(&world, "run", "lint", "failure", "cart.sh:14: trailing space");
    until("a follow-up run", || asked(&world) > before).await;
    until("done again", || world.labels() == ["agentd:done"]).await;
    looked_at_again(&world, 2).await;
    let out = daemon.stop().await;
    let log = text(&out.stderr);
    assert_eq!(log.matches("starting a run").count(), 2, "{log}");
    assert!(!text(&out.stdout).contains("branch_busy"), "{}", text(&out.stdout));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn follow_up_runs_can_be_turned_off() {
    let (world, daemon, pull) = delivered(2, "max_follow_ups = 0").await;
    let before = asked(&world);
    check(&world, "run", "lint", "failure", "wrong");
    world.sim.add_review("demo/shop", pull, "ada", "CHANGES_REQUESTED", "Please name the currency.");
    let lists = || {
        world.sim.requests().iter().filter(|asked| asked.target.contains("/pulls?state=open&sort")).count()
    };
    let seen = lists();
    until("four more polls", || lists() >= seen + 4).await;
    assert_eq!((asked(&world), world.labels()), (before, vec!["agentd:done".to_owned()]));
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merged_pull_request_lets_its_worktree_go_and_the_labels_say_done() {
    let (world, daemon, pull) = delivered(1, "max_follow_ups = 0\n[worktree]\nretention = \"0s\"").await;
    let place = world.shop().join(".worktrees/issue-7");
    assert!(place.exists());
    world.sim.add_label("demo/shop", 7, "agentd:attention", "ada");
    let url = format!("{}/_sim/repos/demo/shop/pulls/{pull}/merge", world.sim.base_url());
    let merged = reqwest::Client::new().post(url).body("{}").send().await.unwrap();
    assert!(merged.status().is_success(), "{}", merged.text().await.unwrap());
    until("the worktree is gone", || !place.exists()).await;
    until("settled", || world.labels() == ["agentd:done"]).await;
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_that_is_closed_while_no_daemon_runs_is_noticed_by_the_next_and_keeps_its_work() {
    let (world, daemon, pull) = delivered(1, "[worktree]\nretention = \"0s\"").await;
    looked_at_again(&world, 1).await;
    daemon.stop().await;
    world.sim.close_issue("demo/shop", pull, "ada");
    let daemon = Running::start(&world, &[]);
    until("settled", || world.labels() == ["agentd:failed"]).await;
    daemon.stop().await;
    assert!(world.shop().join(".worktrees/issue-7/lib/cart.sh").exists(), "what is not merged stays");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_that_is_closed_and_opened_again_is_followed_as_before() {
    let (world, daemon, pull) = delivered(2, "").await;
    world.sim.close_issue("demo/shop", pull, "ada");
    until("it is over", || world.labels() == ["agentd:failed"]).await;
    assert!(world.sim.edit_issue("demo/shop", pull, |issue| issue.open = true));
    until("as before", || world.labels() == ["agentd:done"]).await;
    let before = asked(&world);
    check(&world, "run", "lint", "failure", "cart.sh:14: trailing space");
    until("a follow-up run", || asked(&world) > before).await;
    until("done again", || world.labels() == ["agentd:done"]).await;
    // What people say with the label while it is closed stands.
    world.sim.close_issue("demo/shop", pull, "ada");
    until("it is over", || world.labels() == ["agentd:failed"]).await;
    world.sim.remove_label("demo/shop", 7, "agentd:failed", "ada");
    assert!(world.sim.edit_issue("demo/shop", pull, |issue| issue.open = true));
    looked_at_again(&world, 2).await;
    assert_eq!(world.labels(), Vec::<String>::new());
    daemon.stop().await;
    world.finish().await;
}

/// The conflict that a model finds when somebody else changes the same line, and how it resolves it.
async fn contested(rounds: usize) -> World {
    World::of(rounds, |scenario| {
        let cart = scenario.repositories[0].commits[0].files["lib/cart.sh"].clone();
        let resolved = cart.replace("echo $(($1 - $2))", "echo $(($1 * (100 - $2) / 100)) # whole cents");
        assert_ne!(cart, resolved);
        let reply = json!({
            "when": { "contains": "Carry out the plan", "anywhere": "conflict markers" },
            "tool_calls": [{ "name": "write_file", "arguments": { "path": "lib/cart.sh", "content": resolved } }],
        });
        scenario.model.replies.insert(0, serde_json::from_value(reply).unwrap());
    })
    .await
}

async fn develop_moves(world: &World) {
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    let cart = text(&agentd::sim::bare::file(&git_dir, "develop", "lib/cart.sh").unwrap());
    let cart = cart.replace("echo $(($1 - $2))", "echo $(($1 - $2)) # whole cents");
    let files = json!({ "lib/cart.sh": cart, "NEWS.md": "Other work.\n" });
    let body = json!({ "branch": "develop", "message": "Other work", "files": files });
    let url = format!("{}/_sim/repos/demo/shop/commits", world.sim.base_url());
    let done = reqwest::Client::new().post(url).body(body.to_string()).send().await.unwrap();
    assert!(done.status().is_success(), "{}", done.text().await.unwrap());
}

/// The branch has what others did, and the conflict worked out.
fn assert_caught_up(world: &World) {
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    let head = |branch| agentd::sim::bare::head(&git_dir, branch).unwrap();
    let (base, work) = (head("develop"), head("feature/issue-7"));
    assert_eq!(agentd::sim::bare::ahead_behind(&git_dir, &base, &work).map(|(_, behind)| behind), Some(0));
    assert!(agentd::sim::bare::file(&git_dir, "feature/issue-7", "NEWS.md").is_some());
    let cart = text(&agentd::sim::bare::file(&git_dir, "feature/issue-7", "lib/cart.sh").unwrap());
    assert!(!cart.contains("<<<<<<<") && cart.contains("/ 100)) # whole cents"), "{cart}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i29_a_conflict_that_was_being_worked_out_is_gone_on_with_however_the_daemon_ended() {
    for kill in [true, false] {
        let (world, daemon, _) = delivered_in(contested(3).await, "").await;
        let before = asked(&world);
        // Before the file with the conflict is written.
        slow_model(&world, 0, 5_000);
        develop_moves(&world).await;
        until("a follow-up run", || asked(&world) > before).await;
        match kill {
            true => daemon.kill(),
            false => drop(daemon.stop().await),
        }
        let cut = asked(&world);
        let daemon = Running::start(&world, &[]);
        until(&format!("the run goes on (killed: {kill})"), || asked(&world) > cut).await;
        until(&format!("done again (killed: {kill})"), || world.labels() == ["agentd:done"]).await;
        daemon.stop().await;
        assert_caught_up(&world);
        world.assert_one_of_each();
        world.sim.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i29_a_base_that_moved_and_conflicts_is_merged_into_the_branch_and_the_conflict_worked_out() {
    let (world, daemon, _) = delivered_in(contested(2).await, "").await;
    let before = asked(&world);
    develop_moves(&world).await;
    until("a follow-up run", || asked(&world) > before).await;
    until("done again", || world.labels() == ["agentd:done"]).await;
    let all: String = world.sim.model_requests()[before..].iter().map(|one| one.body.to_string()).collect();
    assert!(all.contains("<<<<<<<") && all.contains("conflicts with its base branch develop"), "{all}");
    assert_caught_up(&world);
    // The pull request says what this branch changes, not what others did meanwhile.
    let (_, diff) = world.json(&["runs", "diff"]).await;
    let changed = diff["files"].to_string();
    assert!(changed.contains("lib/cart.sh") && !changed.contains("NEWS.md"), "{diff:#}");
    let after = asked(&world);
    looked_at_again(&world, 2).await;
    assert_eq!(asked(&world), after);
    world.assert_one_of_each();
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i29_a_conflict_that_the_run_leaves_in_the_files_is_never_pushed() {
    let (world, daemon, _) = delivered(2, "").await;
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    let pushed = agentd::sim::bare::head(&git_dir, "feature/issue-7");
    develop_moves(&world).await;
    until("failed", || world.labels() == ["agentd:failed"]).await;
    daemon.stop().await;
    assert_eq!(agentd::sim::bare::head(&git_dir, "feature/issue-7"), pushed);
    let report = world.agentd(&["runs", "report"]).await;
    let report = text(&report.stdout);
    assert!(report.contains("conflict markers are still in lib/cart.sh"), "{report}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_wrote_on_the_pull_request_is_there_after_a_follow_up_run() {
    let (world, daemon, number) = delivered(2, "").await;
    let pull = || world.sim.pulls("demo/shop").remove(0);
    let mine = "- [x] release notes written by Ada";
    // Above everything that agentd wrote, and the pull request is followed all the same.
    let body = format!("{mine}\n\n{}", pull().body.unwrap());
    assert!(world.sim.edit_text("demo/shop", number, "ada", Some("fix(cart): name it (#7)"), Some(&body)));
    let before = asked(&world);
    check(&world, "run", "lint", "failure", "cart.sh:14: trailing space");
    until("a follow-up run", || asked(&world) > before).await;
    until("done again", || world.labels() == ["agentd:done"]).await;
    looked_at_again(&world, 1).await;
    let (pull, body) = (pull(), pull().body.unwrap());
    assert_eq!(pull.title, "fix(cart): name it (#7)");
    assert!(body.starts_with(mine) && body.matches(mine).count() == 1, "{body}");
    assert_eq!(body.matches("Closes #7").count(), 1, "{body}");
    let run = super::solo::newest(&world).file_name().unwrap().to_string_lossy().into_owned();
    assert!(body.contains(&run), "it tells of the follow-up run: {body}");
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i28_a_failed_check_is_followed_without_the_label_of_the_end_but_not_with_that_of_another() {
    let (world, daemon, _) = delivered(2, "").await;
    world.sim.remove_label("demo/shop", 7, "agentd:done", "ada");
    world.sim.add_label("demo/shop", 7, "agentd:attention", "ada");
    let before = asked(&world);
    check(&world, "run", "lint", "failure", "cart.sh:14: trailing space");
    looked_at_again(&world, 3).await;
    assert_eq!(asked(&world), before, "it is in a person's hands");
    world.sim.remove_label("demo/shop", 7, "agentd:attention", "ada");
    until("a follow-up run", || asked(&world) > before).await;
    until("done again", || world.labels() == ["agentd:done"]).await;
    daemon.stop().await;
    world.finish().await;
}
