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
