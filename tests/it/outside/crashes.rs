//! Killed at any moment: the next daemon ends with one branch, one pull request, one comment, settled labels, the same change.

use std::path::PathBuf;

use super::daemons::{Running, until};
use super::world::World;

/// Points at which the ordinary suite kills; the ignored test takes every one.
const POINTS: usize = 8;

/// Lines of all journals.
fn entries(world: &World) -> usize {
    let runs = world.dir.path().join("state/repos/demo/shop/runs");
    let journals = std::fs::read_dir(runs).into_iter().flatten().flatten();
    let journals = journals.map(|run| run.path().join("events.jsonl"));
    let lines = |journal: PathBuf| {
        std::fs::read(journal).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count())
    };
    journals.map(lines).sum()
}

/// The tree of the branch, as the remote has it.
async fn tree(world: &World) -> String {
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    world.git(&git_dir, &["rev-parse", "feature/issue-7^{tree}"]).await
}

/// A run that nobody disturbs: its entries and its tree.
async fn undisturbed() -> (usize, String) {
    let world = World::new(1).await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let (code, report) = world.json(&["daemon", "--once"]).await;
    assert_eq!(code, Some(0), "{report:#}");
    let found = (entries(&world), tree(&world).await);
    world.finish().await;
    found
}

/// Kills the daemon as soon as the journal has `k` entries, and lets another one go on.
async fn killed_after(k: usize, wanted: &str) {
    let world = World::new(2).await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let first = Running::start(&world, &[]);
    until(&format!("entry {k}"), || entries(&world) >= k || world.labels() == ["agentd:done"]).await;
    first.kill();
    let second = Running::start(&world, &[]);
    until(&format!("done after entry {k}"), || world.labels() == ["agentd:done"]).await;
    second.stop().await;
    world.assert_one_of_each();
    assert_eq!(tree(&world).await, wanted, "killed after entry {k}");
    let (_, runs) = world.json(&["runs", "list"]).await;
    assert!(!runs.to_string().contains("not ended"), "killed after entry {k}: {runs:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_points_all_over_the_journal_the_next_daemon_brings_it_to_the_same_end() {
    let (all, tree) = undisturbed().await;
    for point in 0..POINTS {
        killed_after(1 + point * (all - 1) / (POINTS - 1), &tree).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "kills at each of some hundred entries: ten minutes; run with --ignored"]
async fn killed_after_every_entry_of_the_journal_the_next_daemon_brings_it_to_the_same_end() {
    let (all, tree) = undisturbed().await;
    for k in 1..=all {
        killed_after(k, &tree).await;
    }
}
