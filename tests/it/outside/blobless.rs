//! Managed clones without the contents of files that nobody works with (`clone = "blobless"`).

use std::path::PathBuf;
use std::process::Command;

use super::reload::{elsewhere, managed};
use super::world::{World, basic};

fn clone(world: &World) -> PathBuf {
    world.dir.path().join("state/repos/demo/shop/checkout")
}

/// Whether the clone has an object, without asking the remote for it.
fn has(world: &World, object: &str) -> bool {
    let mut git = Command::new("git");
    git.args(["cat-file", "-e", object]).current_dir(clone(world)).env("GIT_NO_LAZY_FETCH", "1");
    git.output().unwrap().status.success()
}

/// Writes a file at the origin branch, and gives the name of its content.
async fn at_the_origin(world: &World, path: &str, content: &str) -> String {
    let (shop, header) = (world.shop(), format!("http.extraHeader=Authorization: Basic {}", basic()));
    world.write(&format!("shop/{path}"), content);
    world.git(&shop, &["add", "--", path]).await;
    world.git(&shop, &["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", path]).await;
    world.git(&shop, &["-c", &header, "push", "-q", "origin", "develop"]).await;
    world.git(&shop, &["rev-parse", &format!("HEAD:{path}")]).await.trim().to_owned()
}

fn lines(first: &str, last: &str) -> String {
    let middle: String = (0..20).map(|line| format!("line {line}\n")).collect();
    format!("{first}\n{middle}{last}\n")
}

/// The managed world, its clone to be a blobless one.
async fn blobless(rounds: usize) -> World {
    let world = managed(rounds).await;
    let toml = std::fs::read_to_string(world.dir.path().join("elsewhere/agentd.toml")).unwrap();
    let asked =
        toml.replace("origin_branch = \"develop\"\n", "origin_branch = \"develop\"\nclone = \"blobless\"\n");
    assert_ne!(asked, toml);
    world.write("elsewhere/agentd.toml", &asked);
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blobless_clone_has_every_commit_and_only_the_contents_that_a_run_works_with() {
    let world = blobless(1).await;
    let old = at_the_origin(&world, "NOTES.md", &lines("first", "last")).await;
    let new = at_the_origin(&world, "NOTES.md", &lines("first again", "last")).await;
    let output = elsewhere(&world, &["run", "--issue", "7"]).await;
    assert_eq!(output["stop_detail"], "completed", "{output:#}");
    world.assert_one_of_each();
    assert!(has(&world, &new) && !has(&world, &old), "the old content was brought");
    let commits =
        world.git(&clone(&world), &["rev-list", "--count", "refs/agentd/remotes/origin/develop"]).await;
    assert_eq!(commits, world.git(&world.shop(), &["rev-list", "--count", "develop"]).await, "every commit");
    let config = std::fs::read_to_string(clone(&world).join(".git/config")).unwrap();
    assert!(!config.contains("demo-token"), "{config}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_on_another_host_goes_on_with_a_branch_whose_base_has_moved_since() {
    let world = blobless(2).await;
    let base = at_the_origin(&world, "NOTES.md", &lines("first", "last")).await;
    let output = elsewhere(&world, &["run", "--issue", "7"]).await;
    assert_eq!(output["stop_detail"], "completed", "{output:#}");
    // Both sides have changed the file since: what they parted from is needed, and no branch has it any more.
    let header = format!("http.extraHeader=Authorization: Basic {}", basic());
    let side = world.dir.path().join("side");
    let remote = world.git(&world.shop(), &["remote", "get-url", "origin"]).await;
    let place = side.display().to_string();
    world
        .git(&world.shop(), &["-c", &header, "clone", "-q", "-b", "feature/issue-7", remote.trim(), &place])
        .await;
    std::fs::write(side.join("NOTES.md"), lines("first", "last of theirs")).unwrap();
    world.git(&side, &["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qam", "theirs"]).await;
    world.git(&side, &["-c", &header, "push", "-q", "origin", "feature/issue-7"]).await;
    at_the_origin(&world, "NOTES.md", &lines("first of ours", "last")).await;

    std::fs::remove_dir_all(world.dir.path().join("state/repos/demo/shop")).unwrap();
    let output = elsewhere(&world, &["run", "--issue", "7"]).await;
    assert_eq!(output["stop_detail"], "completed", "{output:#}");
    assert!(has(&world, &base), "what both parted from was brought");
    let notes = std::fs::read_to_string(clone(&world).join(".worktrees/issue-7/NOTES.md")).unwrap();
    assert!(notes.ends_with("last of theirs\n"), "{notes}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkout_of_ones_own_is_not_made_blobless() {
    let world = World::new(0).await;
    let (overlay, shop) = (world.dir.path().join("overlay.toml"), world.shop());
    let toml = std::fs::read_to_string(&overlay).unwrap();
    let entry = format!("[[repositories]]\nname = \"demo/shop\"\npath = {shop:?}\nclone = \"blobless\"\n");
    std::fs::write(&overlay, format!("{toml}\n{entry}")).unwrap();
    let (code, told) = world.json(&["run", "--issue", "7"]).await;
    let told = told.to_string();
    assert_eq!(code, Some(4), "{told}");
    assert!(told.contains("repositories[0].clone") && told.contains("without a `path`"), "{told}");
    world.finish().await;
}
