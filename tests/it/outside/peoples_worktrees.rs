//! Worktrees that people made where agentd's are: whatever removes merged ones leaves these alone, and says why.

use serde_json::Value;

use super::daemons::{Running, until};
use super::world::World;

/// Names below `.worktrees`, with their branches. Two are called as agentd's are, and one of them is on such a branch as well.
const OWN: [(&str, &str); 4] =
    [("mine", "my-work"), ("issue-88", "mine4"), ("issue-24", "feature/issue-24"), (".pool/warm", "warm")];
const NOT_MADE: &str = "agentd has no record of having made it";

/// A worktree that is merged and clean, with a file that git ignores.
async fn made_by_a_person(world: &World, name: &str, branch: &str) {
    let place = format!(".worktrees/{name}");
    world.git(&world.shop(), &["worktree", "add", "-q", "-b", branch, &place, "origin/develop"]).await;
    world.write(&format!("shop/{place}/.env"), "KEY=1\n");
}

async fn made_by_people(world: &World) {
    world.write("shop/.git/info/exclude", ".env\n");
    for (name, branch) in OWN {
        made_by_a_person(world, name, branch).await;
    }
}

async fn all_there(world: &World) {
    for (name, branch) in OWN {
        let place = world.shop().join(".worktrees").join(name);
        assert_eq!(std::fs::read_to_string(place.join(".env")).unwrap(), "KEY=1\n", "{name}");
        assert_eq!(world.git(&place, &["branch", "--show-current"]).await.trim(), branch);
    }
    assert_eq!(world.git(&world.shop(), &["for-each-ref", "refs/agentd/retired/my-work"]).await, "");
}

fn named(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

fn reason<'r>(pruned: &'r Value, name: &str) -> &'r str {
    let kept = pruned["kept"].as_array().unwrap();
    let one = kept.iter().find(|one| one["name"] == name);
    one.unwrap_or_else(|| panic!("{name}: {pruned:#}"))["reason"].as_str().unwrap()
}

async fn merged(world: &World) {
    let number = world.sim.pulls("demo/shop")[0].number;
    let merge = format!("repos/demo/shop/pulls/{number}/merge");
    world.sim.admin("POST", &merge, &serde_json::json!({})).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_made_among_agentds_worktrees_is_removed_by_no_prune_and_named_with_the_reason() {
    let world = World::new(1).await;
    made_by_people(&world).await;
    let (_, listed) = world.json(&["worktrees", "list"]).await;
    assert_eq!(named(&listed), ["issue-24", "issue-88", "mine"]);
    for one in listed.as_array().unwrap() {
        assert!(one["not_ours"].as_str().unwrap().contains(NOT_MADE), "{one:#}");
    }
    for args in [&["worktrees", "prune", "--dry-run"][..], &["worktrees", "prune"]] {
        let (code, pruned) = world.json(args).await;
        assert_eq!((code, named(&pruned["removed"])), (Some(0), vec![]), "{pruned:#}");
        for name in ["mine", "issue-88", "issue-24"] {
            assert!(reason(&pruned, name).contains(NOT_MADE), "{pruned:#}");
        }
        all_there(&world).await;
    }
    // agentd's own goes all the same.
    assert_eq!(world.json(&["run", "--issue", "7"]).await.0, Some(0));
    merged(&world).await;
    let (_, listed) = world.json(&["worktrees", "list"]).await;
    let own = listed.as_array().unwrap().iter().find(|one| one["name"] == "issue-7").unwrap();
    assert_eq!(own["not_ours"], Value::Null, "{own:#}");
    let (_, pruned) = world.json(&["worktrees", "prune"]).await;
    assert_eq!(named(&pruned["removed"]), ["issue-7"], "{pruned:#}");
    all_there(&world).await;
    // What stands in its place since is a person's, although a run of the issue is known.
    made_by_a_person(&world, "issue-7", "feature/issue-7").await;
    let (_, pruned) = world.json(&["worktrees", "prune"]).await;
    assert_eq!(named(&pruned["removed"]), Vec::<&str>::new(), "{pruned:#}");
    assert!(reason(&pruned, "issue-7").contains(NOT_MADE), "{pruned:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_without_any_state_cleans_up_its_own_worktree_and_none_that_people_made() {
    let world = World::new(1).await;
    made_by_people(&world).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n[worktree]\nretention = \"0s\"\npool = 1\n"));
    assert_eq!(world.json(&["run", "--issue", "7"]).await.0, Some(0));
    merged(&world).await;
    let daemon = Running::with(&world, &[], "fresh");
    // It cleans up first, and then fills its pool.
    until("a pool", || {
        let entries = std::fs::read_dir(world.shop().join(".git/worktrees")).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.path().join("agentd-pool-ready").exists())
    })
    .await;
    assert!(!world.shop().join(".worktrees/issue-7").exists(), "its own goes");
    all_there(&world).await;
    let out = daemon.stop().await;
    assert_eq!(out.status.code(), Some(0));
    all_there(&world).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agentds_own_worktree_on_another_branch_or_without_a_record_is_kept_with_the_reason() {
    let world = World::new(1).await;
    assert_eq!(world.json(&["run", "--issue", "7"]).await.0, Some(0));
    merged(&world).await;
    let place = world.shop().join(".worktrees/issue-7");
    world.git(&place, &["switch", "-q", "-c", "other"]).await;
    let (_, pruned) = world.json(&["worktrees", "prune"]).await;
    let why = reason(&pruned, "issue-7");
    assert!(
        why.starts_with("it stands on other, not on feature/issue-7; once nobody needs it: git"),
        "{why}"
    );
    world.git(&place, &["switch", "-q", "feature/issue-7"]).await;
    let record = world.shop().join(".git/agentd/issue-7.json");
    let kept = std::fs::read_to_string(&record).unwrap();
    agentd::sys::files::remove_file(&record).unwrap();
    let (_, pruned) = world.json(&["worktrees", "prune"]).await;
    assert!(reason(&pruned, "issue-7").starts_with("no run is known for which agentd made it"), "{pruned:#}");
    world.write("shop/.git/agentd/issue-7.json", &kept);
    let (_, pruned) = world.json(&["worktrees", "prune"]).await;
    assert_eq!(named(&pruned["removed"]), ["issue-7"], "{pruned:#}");
    world.finish().await;
}

/// As where the server of Git LFS does not answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_worktree_whose_files_could_not_be_checked_out_is_agentds_and_the_next_run_makes_it_ready() {
    let world = World::of(1, |scenario| {
        let files = &mut scenario.repositories[0].commits[0].files;
        files.insert(".gitattributes".to_owned(), serde_json::from_value("lib/* filter=far".into()).unwrap());
    })
    .await;
    let far = |smudge: &str| {
        let filter = format!("[filter \"far\"]\nsmudge = {smudge}\nclean = cat\nrequired = true\n");
        world.write(".config/git/config", &filter);
    };
    far("false");
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &"git_error".into()), "{output:#}");
    let (_, listed) = world.json(&["worktrees", "list"]).await;
    assert_eq!(named(&listed), ["issue-7"]);
    assert!(!listed.to_string().contains(NOT_MADE), "{listed:#}");
    let (_, pruned) = world.json(&["worktrees", "prune"]).await;
    assert!(reason(&pruned, "issue-7").contains("could not all be checked out"), "{pruned:#}");
    far("cat");
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.sim.shutdown().await;
}
