//! A branch that another node of a cluster worked on last: what that one left goes on here, and what is only here is kept.

use agentd::domain::name::CommitId;
use agentd::git::worktree_plan::Elsewhere;
use agentd::git::{PreparedWorktree, Remote, WorktreePlan};

use super::prune::with_submodule;
use super::{Ground, branch};

const RESCUE: &str = "refs/agentd/rescue/run";
const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n";

async fn prepared(ground: &Ground, remote: &Remote, unpushed: Option<&CommitId>) -> PreparedWorktree {
    let elsewhere = Some(Elsewhere { unpushed: unpushed.cloned(), rescue: RESCUE.to_owned() });
    let plan = WorktreePlan { elsewhere, ..ground.plan(7, Some(remote)).await };
    let checkout = ground.checkout().await;
    checkout.check_worktree(&plan, None).await.unwrap();
    checkout.prepare_worktree(&plan).await.unwrap()
}

/// A commit on `from` that no branch has.
async fn loose(ground: &Ground, from: &str, name: &str) -> CommitId {
    let tree = format!("{from}^{{tree}}");
    let made = ground.git(&["commit-tree", "-p", from, "-m", name, &tree]).await;
    CommitId::parse(&made).unwrap()
}

#[tokio::test]
async fn k_049_what_only_a_former_host_has_is_kept_and_gives_way_to_what_the_remote_has() {
    for has_worktree in [true, false] {
        let ground = Ground::new().await;
        let remote = ground.origin().await;
        let ready = ground.prepare_with(7, &remote).await.unwrap();
        ground.write(".worktrees/issue-7/ours.txt", "ours\n");
        let place = ready.worktree.path().clone();
        ground.git_in(&place, &["add", "-A"]).await;
        ground.git_in(&place, &["commit", "-qm", "ours"]).await;
        let ours = ground.head("feature/issue-7").await;
        if !has_worktree {
            ground.git(&["worktree", "remove", "--force", place.to_string().as_str()]).await;
        }
        let theirs = ground.push_from_elsewhere("feature/issue-7", "theirs.txt").await;
        let ready = prepared(&ground, &remote, None).await;
        assert_eq!(ready.head, theirs);
        assert_eq!(ground.head("feature/issue-7").await, theirs);
        assert_eq!(ground.head(RESCUE).await, ours);
        assert!(
            ground.exists(".worktrees/issue-7/theirs.txt") && !ground.exists(".worktrees/issue-7/ours.txt")
        );
        assert_eq!(ground.git_in(&place, &["status", "--porcelain"]).await, "");
        let told = ready.warnings.join("\n");
        assert!(told.contains(&format!("kept on {RESCUE} ({})", ours.short())), "{told}");
        // Again: nothing is kept twice.
        let again = prepared(&ground, &remote, None).await;
        assert_eq!((again.head, again.warnings), (theirs, Vec::new()));
    }
}

#[tokio::test]
async fn k_049_a_branch_goes_on_from_what_another_node_left_unpushed() {
    let ground = Ground::new().await;
    let remote = ground.origin().await;
    let left = loose(&ground, "main", "left").await;
    let ready = prepared(&ground, &remote, Some(&left)).await;
    assert_eq!(ready.head, left);
    let told = ready.warnings.join("\n");
    assert!(told.contains(&format!("left unpushed, {}", left.short())), "{told}");
    // More of it, and then others push on top of it.
    let more = loose(&ground, left.as_str(), "more").await;
    assert_eq!(prepared(&ground, &remote, Some(&more)).await.head, more);
    ground.git(&["push", "-q", "origin", &format!("{more}:refs/heads/feature/issue-7")]).await;
    let theirs = ground.push_from_elsewhere("feature/issue-7", "theirs.txt").await;
    assert_eq!(prepared(&ground, &remote, Some(&more)).await.head, theirs);
    assert!(ground.git(&["for-each-ref", RESCUE]).await.is_empty(), "nothing had to give way");
}

#[tokio::test]
async fn k_049_what_was_left_unpushed_is_kept_where_others_pushed_something_else() {
    let ground = Ground::new().await;
    let remote = ground.origin().await;
    let left = loose(&ground, "main", "left").await;
    let theirs = ground.push_from_elsewhere("feature/issue-7", "theirs.txt").await;
    let ready = prepared(&ground, &remote, Some(&left)).await;
    assert_eq!((&ready.head, &ground.head(RESCUE).await), (&theirs, &left));
    // What they pushed on top of agentd's own can be merged in: then both are gone on with.
    let checkout = ground.checkout().await;
    let above = loose(&ground, theirs.as_str(), "above").await;
    checkout.note_pushed(&remote, &branch("feature/issue-7"), &theirs).await.unwrap();
    ground.push_from_elsewhere("feature/issue-7", "later.txt").await;
    assert_eq!(prepared(&ground, &remote, Some(&above)).await.head, above);
}

#[tokio::test]
async fn k_048_commits_of_submodules_that_no_remote_has_are_in_no_bundle() {
    let (ground, _served, tree) = with_submodule().await;
    let base = [ground.head("main").await];
    let lib = tree.path().join("vendor/lib");
    ground.write(".worktrees/issue-7/vendor/lib/src/lib.rs", "pub fn g() {}\n");
    ground.git_in(&lib, &["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qam", "own"]).await;
    let kept = tree.checkpoint("refs/agentd/checkpoints/run/1", "kept").await.unwrap();
    let told = tree.not_in_a_bundle(&kept, &base).await.unwrap().unwrap();
    assert!(told.contains("submodules") && told.contains("vendor/lib"), "{told}");
    assert_eq!(tree.not_in_a_bundle(&kept, std::slice::from_ref(&kept)).await.unwrap(), None);
    // As after a push of the submodule.
    ground.git_in(&lib, &["update-ref", "refs/remotes/origin/own", "HEAD"]).await;
    assert_eq!(tree.not_in_a_bundle(&kept, &base).await.unwrap(), None);
}

#[tokio::test]
async fn k_048_new_files_under_git_lfs_are_in_no_bundle() {
    let ground = Ground::new().await;
    ground.write("old.bin", POINTER);
    ground.git(&["add", "-A"]).await;
    ground.git(&["commit", "-qm", "old"]).await;
    let base = [ground.head("main").await];
    let tree = ground.prepare(7).await.unwrap().worktree;
    ground.write(".worktrees/issue-7/a.txt", "work\n");
    let kept = tree.checkpoint("refs/agentd/checkpoints/run/1", "kept").await.unwrap();
    assert_eq!(tree.not_in_a_bundle(&kept, &base).await.unwrap(), None, "the old one is on the remote");
    ground.write(".worktrees/issue-7/new.bin", &POINTER.replace(":0", ":1"));
    tree.nothing_runs();
    let kept = tree.checkpoint("refs/agentd/checkpoints/run/2", "kept").await.unwrap();
    let told = tree.not_in_a_bundle(&kept, &base).await.unwrap().unwrap();
    assert!(told.contains("Git LFS") && told.contains("new.bin"), "{told}");
}
