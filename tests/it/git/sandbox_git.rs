//! An agent's own git directory: what it shows beside the branch, and what checks about publishing are asked of.

use agentd::git::program::Identity;

use super::Ground;

fn identity() -> Identity {
    Identity { name: "A".to_owned(), email: "a@b".to_owned() }
}

#[tokio::test]
async fn d104_the_origin_branch_the_remote_and_tags_are_there() {
    let ground = Ground::new().await;
    ground.git(&["tag", "v1"]).await;
    ground.git(&["tag", "-a", "v2", "-m", "two"]).await;
    let remote = ground.origin().await;
    let tree = ground.prepare_with(7, &remote).await.unwrap().worktree;
    let base = ground.base(Some(&remote)).await;
    let (caged, _) = tree.sandbox_git(&ground.at("~/cage"), &identity(), &base).await.unwrap();
    let dir = caged.dir().to_string();
    let git = async |args: &[&str]| {
        let args: Vec<&str> = ["--git-dir", dir.as_str()].iter().chain(args).copied().collect();
        ground.git_in(tree.path(), &args).await
    };
    ground.write(".worktrees/issue-7/new.txt", "new\n");
    git(&["add", "new.txt"]).await;
    git(&["commit", "-qm", "mine"]).await;
    assert!(git(&["log", "origin/main..HEAD", "--format=%s"]).await.ends_with("mine"));
    assert_eq!(git(&["diff", "--name-only", "main...HEAD"]).await, "new.txt");
    assert_eq!(git(&["merge-base", "origin/main", "HEAD"]).await, base.commit.as_str());
    assert_eq!(git(&["tag", "--list"]).await, "v1\nv2");
    assert_eq!(git(&["describe"]).await.split('-').next(), Some("v2"));
    let branches = git(&["for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes"]).await;
    assert_eq!(branches, "refs/heads/feature/issue-7\nrefs/heads/main\nrefs/remotes/origin/main");
}

#[tokio::test]
async fn d105_once_published_the_origin_branch_and_the_upstream_stand_at_the_works_last_commit() {
    let ground = Ground::new().await;
    let remote = ground.origin().await;
    let tree = ground.prepare_with(7, &remote).await.unwrap().worktree;
    let base = ground.base(Some(&remote)).await;
    let folder = ground.at("~/cage");
    let (caged, _) = tree.sandbox_git(&folder, &identity(), &base).await.unwrap();
    let own = caged.dir().to_string();
    ground.write(".worktrees/issue-7/new.txt", "new\n");
    ground.git_in(tree.path(), &["--git-dir", &own, "add", "new.txt"]).await;
    ground.git_in(tree.path(), &["--git-dir", &own, "commit", "-qm", "mine"]).await;
    for with in [Some(&caged), None] {
        let dir = tree.published_git(&folder, &base, with).await.unwrap().to_string();
        let git = async |args: &[&str]| {
            let place = tree.path().to_string();
            let all = ["--git-dir", dir.as_str(), "--work-tree", place.as_str()];
            ground.git_in(tree.path(), &all.iter().chain(args).copied().collect::<Vec<_>>()).await
        };
        assert_eq!(git(&["log", "origin/main..HEAD", "--oneline"]).await, "");
        assert_eq!(git(&["rev-parse", "--abbrev-ref", "@{u}"]).await, "origin/feature/issue-7");
        assert_eq!(
            git(&["branch", "--merged", "main", "--format=%(refname:short)"]).await,
            "feature/issue-7\nmain"
        );
        // With the agent's commit the tree is clean; without it the file is new.
        let status = git(&["status", "--porcelain"]).await;
        assert_eq!(status, if with.is_some() { "" } else { "?? new.txt" });
    }
}

#[tokio::test]
async fn in_a_repository_with_submodules_git_works_though_their_git_directories_are_not_shown() {
    let (ground, _served, tree) = super::prune::with_submodule().await;
    ground.git(&["tag", "v1"]).await;
    let remote = ground.origin().await;
    let base = ground.base(Some(&remote)).await;
    let folder = ground.at("~/cage");
    let (caged, _) = tree.sandbox_git(&folder, &identity(), &base).await.unwrap();
    let published = tree.published_git(&folder, &base, None).await.unwrap();
    // As a sandbox has it.
    let modules = tree.git_dir().join("modules");
    assert!(modules.as_path().is_dir() && ground.exists(".worktrees/issue-7/vendor/lib/.git"));
    agentd::sys::files::rename(modules.as_path(), tree.git_dir().join("hidden").as_path()).unwrap();
    for dir in [caged.dir(), &published] {
        let dir = dir.to_string();
        let git = async |args: &[&str]| {
            let args: Vec<&str> = ["--git-dir", dir.as_str()].iter().chain(args).copied().collect();
            ground.git_in(tree.path(), &args).await
        };
        assert_eq!(git(&["status", "--short"]).await, "");
        assert_eq!(git(&["diff", "--stat"]).await, "");
        let described = git(&["describe", "--always", "--dirty", "--tags"]).await;
        assert!(!described.is_empty() && !described.contains("dirty"), "{described}");
    }
}
