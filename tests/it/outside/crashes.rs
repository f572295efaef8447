//! Killed at any moment: the next daemon ends with one branch, one pull request, one comment, settled labels, the same
//! change and the same report.

use std::path::PathBuf;
use std::sync::LazyLock;

use agentd::sim::IssueFile;
use futures::StreamExt as _;
use regex::Regex;
use serde_json::Value;

use super::daemons::{Running, slow_model, until, until_or};
use super::world::{World, text};

/// Journal entries after which the ordinary suite kills, spread over the whole run; the ignored test takes every one.
const POINTS: usize = 12;
/// Random moments of the ordinary suite, and of the ignored test.
const MOMENTS: (usize, usize) = (3, 50);
/// Worlds at a time: most of their time is waiting.
const WORLDS: usize = 4;
/// The issues of the world with four runs.
const ISSUES: [u64; 4] = [7, 8, 9, 10];

fn runs(world: &World) -> Vec<PathBuf> {
    let runs = world.dir.path().join("state/repos/demo/shop/runs");
    let mut runs: Vec<PathBuf> =
        std::fs::read_dir(runs).into_iter().flatten().flatten().map(|run| run.path()).collect();
    runs.sort();
    runs
}

/// Lines of all journals.
fn entries(world: &World) -> usize {
    let lines = |run: PathBuf| {
        std::fs::read(run.join("events.jsonl"))
            .map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count())
    };
    runs(world).into_iter().map(lines).sum()
}

/// The tree of an issue's branch, as the remote has it.
async fn tree(world: &World, issue: u64) -> String {
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    world.git(&git_dir, &["rev-parse", &format!("feature/issue-{issue}^{{tree}}")]).await
}

/// Ids, commits and durations, and what stands in their place.
static NEVER_THE_SAME: LazyLock<[(Regex, &str); 3]> = LazyLock::new(|| {
    [(r"ev_[0-9a-f]+", "ev"), (r"commit `[0-9a-f]+`", "commit"), (r"after [0-9.]+ m?s", "after a while")]
        .map(|(pattern, word)| (Regex::new(pattern).unwrap(), word))
});

/// What an issue's last report says to people, without what is another in every run: ids, durations, costs. Nothing where
/// no run has one.
fn report(world: &World, issue: u64) -> String {
    let of_issue = |run: &PathBuf| {
        let output: Value =
            serde_json::from_slice(&std::fs::read(run.join("result.json")).ok()?).unwrap_or_default();
        (output["objective"]["issue"]["number"] == issue).then(|| run.join("report.md"))
    };
    let last = runs(world).iter().rev().find_map(of_issue);
    let whole = last.and_then(|last| std::fs::read_to_string(last).ok()).unwrap_or_default();
    let same = [
        "Summary",
        "Stop reason",
        "Change",
        "Verification",
        "Verified",
        "Cited",
        "Not verified",
        "Conflicts",
    ];
    let mut sections: Vec<&str> = whole.split("\n## ").collect();
    sections.retain(|section| same.iter().any(|name| section.starts_with(&format!("{name}\n"))));
    let mut said = sections.join("\n## ");
    for (pattern, word) in &*NEVER_THE_SAME {
        said = pattern.replace_all(&said, *word).into_owned();
    }
    said
}

/// A run that nobody disturbs: its entries, its tree, its report.
async fn undisturbed() -> (usize, String, String) {
    let world = World::new(1).await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let (code, report_of) = world.json(&["daemon", "--once"]).await;
    assert_eq!(code, Some(0), "{report_of:#}");
    let found = (entries(&world), tree(&world, 7).await, report(&world, 7));
    assert!(found.2.contains("## Change") && found.2.contains("`lib/cart.sh`"), "{}", found.2);
    world.finish().await;
    found
}

/// Kills the daemon as soon as the journal has `k` entries, and lets another one go on.
async fn killed_after(k: usize, wanted: &(usize, String, String)) {
    let world = World::new(2).await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let first = Running::start(&world, &[]);
    until(&format!("entry {k}"), || entries(&world) >= k || world.labels() == ["agentd:done"]).await;
    first.kill();
    let second = Running::start(&world, &[]);
    // A run that was killed after its last label and before its journal has it is gone on with, labelled or not.
    let is_done = || world.labels() == ["agentd:done"] && report(&world, 7) == wanted.2;
    let instead = || format!("{:?}, and not\n{}\nbut\n{}", world.labels(), wanted.2, report(&world, 7));
    until_or(&format!("done after entry {k}"), is_done, instead).await;
    second.stop().await;
    world.assert_one_of_each();
    assert_eq!(tree(&world, 7).await, wanted.1, "killed after entry {k}");
    let (_, runs) = world.json(&["runs", "list"]).await;
    assert!(!runs.to_string().contains("not ended"), "killed after entry {k}: {runs:#}");
    world.finish().await;
}

async fn killed_after_each(points: impl Iterator<Item = usize>, wanted: &(usize, String, String)) {
    let kills = points.map(|k| killed_after(k, wanted));
    futures::stream::iter(kills).buffer_unordered(WORLDS).collect::<Vec<()>>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_points_all_over_the_journal_the_next_daemon_brings_it_to_the_same_end() {
    let wanted = undisturbed().await;
    let last = wanted.0 - 1;
    killed_after_each((0..POINTS).map(|point| 1 + point * last / (POINTS - 1)), &wanted).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "kills after every entry of a journal, some minutes: cargo test --test it -- --ignored every_entry"]
async fn killed_after_every_entry_of_the_journal_the_next_daemon_brings_it_to_the_same_end() {
    let wanted = undisturbed().await;
    println!("{} entries", wanted.0);
    killed_after_each(1..=wanted.0, &wanted).await;
}

/// A daemon whose run waits for the first reply of its third visit: nothing has changed a file since the second visit's checkpoint.
async fn third_visit(world: &World) -> Running {
    slow_model(world, 5, 600_000);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(world, &[]);
    until("the third visit asks", || world.sim.model_requests().len() == 6).await;
    daemon
}

/// The next daemon brings the run to the end of one that nobody disturbed.
async fn goes_on(world: &World, wanted: &(usize, String, String)) {
    world.sim.world().faults.clear();
    let daemon = Running::start(world, &[]);
    let instead = || format!("{:?}, and not\n{}\nbut\n{}", world.labels(), wanted.2, report(world, 7));
    until_or("done", || world.labels() == ["agentd:done"] && report(world, 7) == wanted.2, instead).await;
    daemon.stop().await;
    world.assert_one_of_each();
    assert_eq!(tree(world, 7).await, wanted.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_a_checkpoint_and_the_end_of_its_visit_the_visit_is_made_again_without_its_own_edits()
{
    let wanted = undisturbed().await;
    let world = World::new(2).await;
    let first = third_visit(&world).await;
    first.kill();
    let journal = runs(&world).pop().unwrap().join("events.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    let is_second = |line: &Value| line["kind"] == "checkpoint" && line["data"]["visit"] == 2;
    let at = text.lines().position(|line| is_second(&serde_json::from_str(line).unwrap())).unwrap();
    let kept: Vec<&str> = text.lines().take(at + 1).collect();
    assert!(text.lines().nth(at + 1).unwrap().contains("\"visit_finished\""));
    std::fs::write(&journal, kept.join("\n") + "\n").unwrap();
    goes_on(&world, &wanted).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_behind_a_flow_that_the_daemon_s_stop_had_ended_the_next_run_goes_on_with_it() {
    let wanted = undisturbed().await;
    // The stop asks for a last report, too.
    let world = World::new(3).await;
    let first = third_visit(&world).await;
    first.stop().await;
    let journal = runs(&world).pop().unwrap().join("events.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    let is_flows_end =
        |line: &Value| line["kind"] == "flow_ended" && line["data"]["stop"]["detail"] == "shutdown";
    let at = text.lines().position(|line| is_flows_end(&serde_json::from_str(line).unwrap()));
    let at = at.unwrap_or_else(|| panic!("{text}"));
    // As of a process that was killed here.
    let run = journal.parent().unwrap();
    for made in std::fs::read_dir(run).unwrap().flatten().filter(|made| made.path() != journal) {
        if made.path().is_file() {
            std::fs::remove_file(made.path()).unwrap();
        }
    }
    std::fs::remove_file(world.dir.path().join("state/seals.jsonl")).unwrap();
    let kept: Vec<&str> = text.lines().take(at + 1).collect();
    std::fs::write(&journal, kept.join("\n") + "\n").unwrap();
    goes_on(&world, &wanted).await;
    assert_eq!(runs(&world).len(), 2, "no run for the end alone");
    world.finish().await;
}

/// A world with four labelled issues, all of which run at a time.
async fn four(rounds: usize) -> World {
    let world = World::of(rounds, |scenario| {
        let issues = &mut scenario.repositories[0].issues;
        let first = IssueFile { labels: vec!["agentd".to_owned()], ..issues[0].clone() };
        *issues = ISSUES.map(|number| IssueFile { number: Some(number), ..first.clone() }).into();
    })
    .await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let daemon = "[daemon]\npoll_interval = \"1s\"\nmax_concurrent_runs = 4\nmax_runs_per_repository = 4\n";
    world.write("overlay.toml", &format!("{overlay}\n{daemon}"));
    world
}

fn all_done(world: &World) -> bool {
    ISSUES.iter().all(|issue| world.sim.issue("demo/shop", *issue).unwrap().labels == ["agentd:done"])
}

/// Kills the daemon when all journals together have `moment` entries.
async fn killed_with_four_runs(moment: usize, seed: u64, wanted: &(usize, String, String)) {
    let said = format!("seed {seed}, killed at entry {moment}");
    // Killed visits are asked again.
    let world = four(2 * ISSUES.len()).await;
    let first = Running::start(&world, &[]);
    until(&said, || entries(&world) >= moment || all_done(&world)).await;
    first.kill();
    let second = Running::start(&world, &[]);
    let reported = || ISSUES.iter().all(|issue| report(&world, *issue) == wanted.2);
    let instead = || {
        let of = |issue: &u64| {
            let labels = world.sim.issue("demo/shop", *issue).unwrap().labels;
            format!("\n{issue} {labels:?}\n{}", report(&world, *issue))
        };
        ISSUES.iter().map(of).collect::<String>()
    };
    until_or(&format!("all done ({said})"), || all_done(&world) && reported(), instead).await;
    // One that finds nothing left to do is told to stop when it has said so.
    let pid = second.pid();
    until("a word of the second daemon", || {
        let status = std::fs::read(world.dir.path().join("state/daemon/status.json")).unwrap_or_default();
        serde_json::from_slice::<Value>(&status).unwrap_or_default()["pid"] == pid
    })
    .await;
    let out = second.stop().await;
    assert_eq!(out.status.code(), Some(0), "{said}: {}", text(&out.stderr));
    let mut heads: Vec<String> =
        world.sim.pulls("demo/shop").into_iter().filter_map(|pull| Some(pull.pull?.head)).collect();
    heads.sort();
    let mut branches: Vec<String> = ISSUES.iter().map(|issue| format!("feature/issue-{issue}")).collect();
    branches.sort();
    assert_eq!(heads, branches, "{said}: one pull request for each branch");
    let (code, runs) = world.json(&["runs", "list"]).await;
    assert_eq!(code, Some(0), "{said}: {runs:#}");
    for issue in ISSUES {
        let comments = world.sim.issue("demo/shop", issue).unwrap().comments;
        assert_eq!(comments.len(), 1, "{said}, issue {issue}: {comments:#?}");
        assert_eq!(tree(&world, issue).await, wanted.1, "{said}, issue {issue}");
    }
    world.finish().await;
}

#[expect(clippy::print_stdout, reason = "the seed repeats a failure")]
async fn killed_at_moments(count: usize) {
    let wanted = undisturbed().await;
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut random = seed;
    let moments: Vec<usize> = (0..count)
        .map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            1 + (random >> 33) as usize % (ISSUES.len() * wanted.0)
        })
        .collect();
    let kills = moments.into_iter().map(|moment| killed_with_four_runs(moment, seed, &wanted));
    futures::stream::iter(kills).buffer_unordered(WORLDS / 2).collect::<Vec<()>>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_random_moments_with_four_runs_in_parallel_every_issue_has_one_of_each() {
    killed_at_moments(MOMENTS.0).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "fifty moments, some minutes: cargo test --test it -- --ignored fifty_random"]
async fn killed_at_fifty_random_moments_with_four_runs_in_parallel_every_issue_has_one_of_each() {
    killed_at_moments(MOMENTS.1).await;
}
