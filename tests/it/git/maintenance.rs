//! A clone that agentd manages is kept fast.

use agentd::domain::clone_contents::CloneContents;
use agentd::git::{Checkout, Remote, RemoteAuth};

use super::{Ground, branch};

#[tokio::test]
async fn a_managed_clone_gets_a_graph_of_its_commits_and_one_index_and_loses_nothing() {
    let ground = Ground::new().await;
    ground.origin().await;
    let (place, url) = (ground.at("~/managed"), ground.at("~/origin.git").to_string());
    let clone =
        Checkout::manage(ground.program(), &place, ("origin", &url), CloneContents::Full).await.unwrap();
    let remote = Remote::new("origin", &url, RemoteAuth::User);
    clone.maintain().await.unwrap();
    let mut tip = None;
    for round in 0..3 {
        ground.push_from_elsewhere("main", &format!("theirs-{round}.txt")).await;
        tip = clone.fetch(&remote, &branch("main")).await.unwrap();
        clone.stand_on(tip.as_ref().unwrap()).await.unwrap();
        // As fetches of many objects leave them.
        ground.git_in(&place, &["repack", "-q", "-d"]).await;
    }
    let objects = place.join(".git/objects");
    let has = |file: &str| objects.join(file).as_path().exists();
    assert!(!has("pack/multi-pack-index"));
    // What a git left that was killed in it.
    let counted = ground.git_in(&place, &["rev-list", "--objects", "--all", "--count"]).await;
    agentd::sys::files::create_dir(objects.join("info/commit-graphs").as_path()).unwrap();
    for lock in ["info/commit-graphs/commit-graph-chain.lock", "pack/multi-pack-index.lock"] {
        agentd::sys::files::write_public(objects.join(lock).as_path(), b"").unwrap();
    }
    clone.maintain().await.unwrap();
    assert!(has("pack/multi-pack-index") && has("info/commit-graphs/commit-graph-chain"));
    ground.git_in(&place, &["commit-graph", "verify"]).await;
    ground.git_in(&place, &["multi-pack-index", "verify"]).await;
    assert_eq!(ground.git_in(&place, &["rev-list", "--objects", "--all", "--count"]).await, counted);
    assert!(clone.is_ancestor(&tip.clone().unwrap(), &tip.unwrap()).await.unwrap(), "the library reads it");
    clone.maintain().await.unwrap();
}

#[tokio::test]
async fn many_refs_of_runs_become_one_file_and_are_found_there_and_those_of_people_stay() {
    let ground = Ground::new().await;
    let checkout = ground.checkout().await;
    let head = ground.git(&["rev-parse", "HEAD"]).await;
    let make = |runs: std::ops::Range<u32>| {
        for run in runs {
            ground.write(&format!(".git/refs/agentd/checkpoints/run-{run}/1"), &format!("{head}\n"));
        }
    };
    let loose = |folder: &str| {
        let all = std::fs::read_dir(ground.repo.join(".git/refs").join(folder).as_path());
        all.map_or(0, Iterator::count)
    };
    make(0..400);
    assert!(!checkout.pack_own_refs().await.unwrap(), "so few are no burden");
    assert_eq!(loose("agentd/checkpoints"), 400);
    make(400..600);
    let heads = loose("heads");
    assert!(checkout.pack_own_refs().await.unwrap());
    assert_eq!((loose("agentd/checkpoints"), loose("heads")), (0, heads));
    let found = checkout.reference("refs/agentd/checkpoints/run-7/1").await.unwrap();
    assert_eq!(found.unwrap().as_str(), head);
    assert!(!checkout.pack_own_refs().await.unwrap());
    let next = agentd::domain::name::CommitId::parse(&head).unwrap();
    checkout.update_ref("refs/agentd/checkpoints/run-600/1", None, &next).await.unwrap();
    checkout.delete_ref("refs/agentd/checkpoints/run-7/1", &next).await.unwrap();
    assert_eq!(checkout.reference("refs/agentd/checkpoints/run-7/1").await.unwrap(), None);
}

/// Objects with a file each, that anything names, and one that nothing does.
async fn loose_objects(ground: &Ground, count: u32) -> String {
    for number in 0..count {
        ground.write(&format!("many/{number}.txt"), &format!("{number}\n"));
    }
    ground.git(&["add", "-A"]).await;
    ground.git(&["commit", "-qm", "Many"]).await;
    ground.write("nobody.txt", "nothing names it\n");
    ground.git(&["hash-object", "-w", "nobody.txt"]).await
}

#[tokio::test]
async fn many_objects_with_a_file_each_are_packed_and_none_is_lost_also_not_one_that_nothing_names() {
    let ground = Ground::new().await;
    let checkout = ground.checkout().await;
    ground.git(&["config", "gc.auto", "700"]).await;
    assert!(!checkout.pack_loose_objects().await.unwrap(), "so few are no burden");
    let unnamed = loose_objects(&ground, 1_500).await;
    let count = async || {
        let told = ground.git(&["count-objects", "-v"]).await;
        let line = told.lines().find_map(|line| line.strip_prefix("count: ")).unwrap().to_owned();
        line.parse::<u32>().unwrap()
    };
    let all = ground.git(&["rev-list", "--objects", "--all", "--count"]).await;
    assert!(count().await > 1_500);
    // The owner may want none of it.
    ground.git(&["config", "gc.auto", "0"]).await;
    assert!(!checkout.pack_loose_objects().await.unwrap());
    ground.git(&["config", "gc.auto", "700"]).await;
    assert!(checkout.pack_loose_objects().await.unwrap());
    assert_eq!(count().await, 1);
    assert_eq!(ground.git(&["cat-file", "-t", &unnamed]).await, "blob");
    ground.git(&["fsck", "--strict"]).await;
    assert_eq!(ground.git(&["rev-list", "--objects", "--all", "--count"]).await, all);
    assert!(!checkout.pack_loose_objects().await.unwrap());
}

#[tokio::test]
async fn many_packs_of_a_managed_clone_become_few_and_the_library_finds_everything() {
    let ground = Ground::new().await;
    ground.origin().await;
    let (place, url) = (ground.at("~/managed"), ground.at("~/origin.git").to_string());
    let clone =
        Checkout::manage(ground.program(), &place, ("origin", &url), CloneContents::Full).await.unwrap();
    let remote = Remote::new("origin", &url, RemoteAuth::User);
    ground.push_from_elsewhere("main", "theirs.txt").await;
    let tip = clone.fetch(&remote, &branch("main")).await.unwrap().unwrap();
    for number in 0..60 {
        ground.write(&format!("{number}.txt"), &format!("{number}\n"));
        let file = ground.at(&format!("{number}.txt")).to_string();
        let blob = ground.git_in(&place, &["hash-object", "-w", &file]).await;
        ground.git_in(&place, &["update-ref", &format!("refs/tags/{number}"), &blob]).await;
        ground.git_in(&place, &["repack", "-q", "-d"]).await;
    }
    let packs = || {
        let all = std::fs::read_dir(place.join(".git/objects/pack").as_path()).unwrap().flatten();
        all.filter(|file| file.path().extension().is_some_and(|kind| kind == "pack")).count()
    };
    assert!(packs() >= 60);
    clone.maintain().await.unwrap();
    assert!(packs() <= 8, "{}", packs());
    ground.git_in(&place, &["multi-pack-index", "verify"]).await;
    ground.git_in(&place, &["fsck", "--strict"]).await;
    assert!(clone.has_commit(&tip).await.unwrap());
}
