//! Preparing worktrees: each case of what may stand in the place, and what a kill leaves.

use agentd::domain::event::WorktreeState;
use agentd::git::{Checkout, CommitMessage, GitError, Identity, RemotePlace, WorktreeError};
use agentd::sys::files;

use super::{Ground, branch, exists};

#[tokio::test]
async fn g06_an_issue_gets_its_branch_and_worktree_and_the_main_checkout_stays_as_it_is() {
    let ground = Ground::new().await;
    ground.write("a.txt", "changed by the user\n");
    ground.write("new.txt", "untracked\n");
    ground.git(&["stash", "-q"]).await;
    ground.write("a.txt", "changed again\n");
    ground.git(&["add", "a.txt"]).await;
    let before = ground.main_state().await;
    let ready = ground.prepare(7).await.unwrap();
    assert_eq!(ready.state, WorktreeState::Created);
    assert_eq!(ready.warnings, Vec::<String>::new());
    assert_eq!(ready.head, ground.head("main").await);
    assert_eq!(ready.worktree.path(), &ground.at(".worktrees/issue-7"));
    assert_eq!(ready.worktree.display(), ".worktrees/issue-7");
    assert_eq!(ground.read(".worktrees/issue-7/a.txt"), "one\ntwo\nthree\nfour\n");
    assert_eq!(ground.git_in(ready.worktree.path(), &["branch", "--show-current"]).await, "feature/issue-7");
    assert_eq!(ground.git_in(ready.worktree.path(), &["status", "--porcelain"]).await, "");
    assert_eq!(ground.main_state().await, before);
    assert!(!ground.git(&["config", "--list"]).await.contains("branch."), "tracking was set up");
}

#[tokio::test]
async fn a_second_preparation_reuses_the_worktree_with_its_changes() {
    let ground = Ground::new().await;
    ground.prepare(7).await.unwrap();
    ground.write(".worktrees/issue-7/a.txt", "work\n");
    let again = ground.prepare(7).await.unwrap();
    assert_eq!(again.state, WorktreeState::Reused);
    assert_eq!(ground.read(".worktrees/issue-7/a.txt"), "work\n");
}

#[tokio::test]
async fn a_repository_may_have_spaces_and_letters_of_any_alphabet_in_its_path() {
    let ground = Ground::named("mein Prüfstand 你好 'q'").await;
    ground.write("ü x/é \"q\".txt", "text\n");
    ground.git(&["add", "-A"]).await;
    ground.git(&["commit", "-qm", "odd names"]).await;
    let ready = ground.prepare(7).await.unwrap();
    assert_eq!(ground.read(".worktrees/issue-7/ü x/é \"q\".txt"), "text\n");
    ground.write(".worktrees/issue-7/ü x/é \"q\".txt", "other\n");
    let changes = ready.worktree.status().await.unwrap();
    assert_eq!(changes.iter().map(|change| change.path.as_str()).collect::<Vec<_>>(), ["ü x/é \"q\".txt"]);
    assert_eq!(ground.prepare(7).await.unwrap().state, WorktreeState::Reused);
}

#[tokio::test]
async fn a_main_checkout_that_is_detached_or_unborn_is_no_hindrance() {
    let ground = Ground::new().await;
    let base = ground.head("main").await;
    ground.git(&["checkout", "-q", "--detach"]).await;
    assert_eq!(ground.prepare(1).await.unwrap().state, WorktreeState::Created);
    ground.git(&["switch", "-q", "--orphan", "nothing-yet"]).await;
    let checkout = ground.checkout().await;
    assert_eq!(checkout.current_branch().await.unwrap().as_deref(), Some("nothing-yet"));
    let ready = ground.prepare(2).await.unwrap();
    assert_eq!(ready.head, base);
}

#[tokio::test]
async fn g09_a_foreign_thing_in_the_place_is_named_and_left_alone() {
    let ground = Ground::new().await;
    let root = ground.at(".worktrees");
    files::create_dir(root.as_path()).unwrap();
    ground.write(".worktrees/issue-1/mine.txt", "mine");
    ground.write(".worktrees/issue-2", "a file");
    std::os::unix::fs::symlink(ground.home.as_path(), root.join("issue-3").as_path()).unwrap();
    ground.git(&["init", "-q", ".worktrees/issue-4"]).await;
    let other = Ground::new().await;
    other.git(&["worktree", "add", "-q", "--detach", root.join("issue-5").to_string().as_str()]).await;
    files::create_dir(root.join("issue-6").as_path()).unwrap();
    for (issue, says) in [
        (1, "a directory that agentd did not make"),
        (2, "not a directory"),
        (3, "not a directory"),
        (4, "a repository of its own"),
        (5, "a worktree of another repository"),
    ] {
        let error = ground.prepare(issue).await.unwrap_err();
        assert!(error.is_conflict() && error.to_string().contains(says), "{issue}: {error}");
        assert!(error.to_string().contains("mv "), "{error}");
    }
    assert_eq!(ground.read(".worktrees/issue-1/mine.txt"), "mine");
    assert_eq!(ground.prepare(6).await.unwrap().state, WorktreeState::Created, "an empty directory is free");
}

#[tokio::test]
async fn a_worktree_that_was_moved_with_its_repository_is_its_own_and_is_repaired() {
    let ground = Ground::named("before").await;
    ground.prepare(7).await.unwrap();
    ground.write(".worktrees/issue-7/mine.txt", "mine\n");
    ground.beside("mv", &["before", "after"]).await;
    let new = ground.repo.parent().unwrap().join("after");
    let ground = ground.at_place(new);
    let again = ground.prepare(7).await.unwrap();
    assert!(again.state == WorktreeState::Reused && again.warnings[0].contains("was repaired"), "{again:?}");
    let changes = again.worktree.status().await.unwrap();
    assert_eq!(changes.iter().map(|change| change.path.as_str()).collect::<Vec<_>>(), ["mine.txt"]);
    // A copy beside the original is the original's.
    ground.beside("rm", &["-r", "after/.worktrees/issue-7"]).await;
    let ready = ground.prepare(7).await.unwrap();
    assert_ne!(ready.state, WorktreeState::Reused);
    ground.beside("cp", &["-a", "after", "copy"]).await;
    let copied = ground.repo.parent().unwrap().join("copy");
    let error = ground.at_place(copied).prepare(7).await.unwrap_err();
    assert!(error.to_string().contains("a worktree of another repository"), "{error}");
}

#[tokio::test]
async fn a_branch_that_is_another_name_of_one_is_not_committed_on() {
    let ground = Ground::new().await;
    ground.git(&["symbolic-ref", "refs/heads/feature/issue-7", "refs/heads/main"]).await;
    let error = ground.prepare(7).await.unwrap_err();
    assert!(error.is_conflict() && error.to_string().contains("git symbolic-ref --delete"), "{error}");
    assert_eq!(ground.prepare(8).await.unwrap().state, WorktreeState::Created);
}

#[tokio::test]
async fn g09_a_worktree_on_something_else_is_not_reused() {
    let ground = Ground::new().await;
    let path = ground.prepare(7).await.unwrap().worktree.path().clone();
    ground.git_in(&path, &["switch", "-qc", "other"]).await;
    let error = ground.prepare(7).await.unwrap_err().to_string();
    assert!(error.contains("stands on other, not on feature/issue-7"), "{error}");
    ground.git_in(&path, &["switch", "-q", "--detach"]).await;
    assert!(ground.prepare(7).await.unwrap_err().to_string().contains("the commit "));
}

#[tokio::test]
async fn g09_an_unfinished_rebase_is_named() {
    let ground = Ground::new().await;
    let path = ground.prepare(7).await.unwrap().worktree.path().clone();
    files::write_public(path.join("a.txt").as_path(), b"x\n").unwrap();
    ground.git_in(&path, &["commit", "-qam", "x"]).await;
    ground.write("a.txt", "y\n");
    ground.git(&["commit", "-qam", "y"]).await;
    assert!(!ground.attempt(&path, &["rebase", "main"]).await.success());
    let error = ground.prepare(7).await.unwrap_err();
    assert!(matches!(error, WorktreeError::Unfinished { operation: "rebase", .. }), "{error}");
}

#[tokio::test]
async fn g09_a_branch_that_is_checked_out_elsewhere_is_named_with_the_place() {
    let ground = Ground::new().await;
    ground.git(&["worktree", "add", "-q", "-b", "feature/issue-7", "../aside"]).await;
    let error = ground.prepare(7).await.unwrap_err();
    assert!(
        matches!(&error, WorktreeError::CheckedOutElsewhere { path, .. } if path.ends_with("/aside")),
        "{error}"
    );
    ground.git(&["switch", "-qc", "feature/issue-8"]).await;
    let error = ground.prepare(8).await.unwrap_err();
    assert!(matches!(&error, WorktreeError::CheckedOutElsewhere { .. }), "{error}");
}

#[tokio::test]
async fn g09_a_branch_without_worktree_is_reattached() {
    let ground = Ground::new().await;
    let path = ground.prepare(7).await.unwrap().worktree.path().clone();
    files::write_public(path.join("work.txt").as_path(), b"work\n").unwrap();
    ground.git_in(&path, &["add", "-A"]).await;
    ground.git_in(&path, &["commit", "-qm", "work"]).await;
    let tip = ground.head("feature/issue-7").await;
    // Removed by hand: the directory alone, so that git's entry is stale.
    files::remove_dir(path.as_path()).unwrap();
    let ready = ground.prepare(7).await.unwrap();
    assert_eq!((ready.state, ready.head), (WorktreeState::Reattached, tip.clone()));
    assert!(ready.warnings[0].contains("without a worktree"), "{:?}", ready.warnings);
    assert!(exists(&path, "work.txt"));
    // Removed by git.
    ground.git(&["worktree", "remove", path.to_string().as_str()]).await;
    assert_eq!(ground.prepare(7).await.unwrap().head, tip);
}

#[tokio::test]
async fn a_gone_worktree_that_a_person_locked_is_not_taken() {
    let ground = Ground::new().await;
    let path = ground.prepare(7).await.unwrap().worktree.path().clone();
    ground.git(&["worktree", "lock", "--reason", "on a stick", path.to_string().as_str()]).await;
    files::rename(path.as_path(), ground.at("~/away").as_path()).unwrap();
    let error = ground.prepare(7).await.unwrap_err();
    assert!(matches!(&error, WorktreeError::Locked { reason, .. } if reason == "on a stick"), "{error}");
}

#[tokio::test]
async fn g09_a_lost_or_broken_entry_is_made_again_around_the_files() {
    let ground = Ground::new().await;
    for damage in ["lost", "no HEAD", "no .git", "moved"] {
        let issue = 7;
        let ready = ground.prepare(issue).await.unwrap();
        let (path, git_dir) = (ready.worktree.path().clone(), ready.worktree.git_dir().clone());
        files::write_public(path.join("a.txt").as_path(), damage.as_bytes()).unwrap();
        files::write_public(path.join("new.txt").as_path(), b"new").unwrap();
        match damage {
            "lost" => drop(files::remove_dir(git_dir.as_path()).unwrap()),
            "no HEAD" => files::write_public(git_dir.join("HEAD").as_path(), b"rubbish").unwrap(),
            "no .git" => drop(files::remove_file(path.join(".git").as_path()).unwrap()),
            _ => files::write_public(git_dir.join("gitdir").as_path(), b"/nowhere/at/all/.git\n").unwrap(),
        }
        let again = ground.prepare(issue).await.unwrap_or_else(|error| panic!("{damage}: {error}"));
        assert_eq!(again.state, WorktreeState::Reused, "{damage}");
        assert_eq!(again.warnings.len(), 1, "{damage}: {:?}", again.warnings);
        assert_eq!(ground.read(".worktrees/issue-7/a.txt"), damage);
        let status = ground.git_in(&path, &["status", "--porcelain"]).await;
        assert_eq!(status, " M a.txt\n?? new.txt", "{damage}");
    }
}

#[tokio::test]
async fn files_whose_entry_and_branch_are_both_lost_are_set_aside() {
    let ground = Ground::new().await;
    let ready = ground.prepare(7).await.unwrap();
    ground.write(".worktrees/issue-7/work.txt", "work");
    files::remove_dir(ready.worktree.git_dir().as_path()).unwrap();
    ground.git(&["branch", "-D", "feature/issue-7"]).await;
    let again = ground.prepare(7).await.unwrap();
    assert_eq!(again.state, WorktreeState::Created);
    assert!(again.warnings[0].contains("issue-7.aside"), "{:?}", again.warnings);
    assert_eq!(ground.read(".worktrees/issue-7.aside/work.txt"), "work");
    assert!(!ground.exists(".worktrees/issue-7/work.txt"));
}

#[tokio::test]
async fn a_copy_of_a_worktree_is_not_taken_for_it() {
    let ground = Ground::new().await;
    ground.prepare(7).await.unwrap();
    ground.git(&["-c", "alias.x=!cp -a .worktrees/issue-7 .worktrees/issue-8", "x"]).await;
    let error = ground.prepare(8).await.unwrap_err().to_string();
    assert!(error.contains("a copy of the worktree"), "{error}");
}

#[tokio::test]
async fn a_checkout_that_was_killed_is_done_again() {
    let ground = Ground::new().await;
    // As left by a kill between the entry and the files, and in the middle of the files.
    for half in [false, true] {
        let issue = if half { 8 } else { 7 };
        let path = ground.at(&format!(".worktrees/issue-{issue}")).to_string();
        let name = format!("feature/issue-{issue}");
        ground.git(&["worktree", "add", "-q", "--no-checkout", "-b", name.as_str(), path.as_str()]).await;
        let entry = ground.at(&format!(".git/worktrees/issue-{issue}"));
        files::write_public(entry.join("locked").as_path(), b"initializing").unwrap();
        files::write_public(entry.join("index.lock").as_path(), b"").unwrap();
        if half {
            files::write_private(entry.join("agentd-preparing").as_path(), b"").unwrap();
            ground.write(&format!(".worktrees/issue-{issue}/a.txt"), "on");
        }
        let ready = ground.prepare(issue).await.unwrap();
        assert_eq!(ground.read(&format!(".worktrees/issue-{issue}/a.txt")), "one\ntwo\nthree\nfour\n");
        assert_eq!(ready.worktree.status().await.unwrap(), []);
        assert!(!exists(&entry, "locked") && !exists(&entry, "agentd-preparing"));
    }
    // As left by a kill before git wrote where the worktree is.
    files::create_dir(ground.at(".git/worktrees/issue-9").as_path()).unwrap();
    ground.write(".git/worktrees/issue-9/locked", "initializing");
    ground.git(&["branch", "feature/issue-9"]).await;
    assert_eq!(ground.prepare(9).await.unwrap().state, WorktreeState::Reattached);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_that_was_killed_before_it_wrote_head_is_no_other_branch() {
    let ground = Ground::new().await;
    for (issue, branch_is_there) in [(3, false), (4, true)] {
        let ready = ground.prepare(issue).await.unwrap();
        let path = ready.worktree.path().clone();
        // What older versions of git leave behind: no files but the link, and a HEAD of noughts.
        for left in std::fs::read_dir(path.as_path()).unwrap().flatten() {
            let gone = match left.file_type().unwrap().is_dir() {
                true => files::remove_dir(&left.path()).map(drop).map_err(std::io::Error::other),
                false if left.file_name() == ".git" => Ok(()),
                false => std::fs::remove_file(left.path()),
            };
            gone.unwrap();
        }
        let entry = format!(".git/worktrees/issue-{issue}");
        ground.write(&format!("{entry}/HEAD"), &format!("{}\n", "0".repeat(40)));
        ground.write(&format!("{entry}/locked"), "initializing");
        std::fs::remove_file(ground.at(&format!("{entry}/index")).as_path()).unwrap();
        if !branch_is_there {
            ground.git(&["update-ref", "-d", &format!("refs/heads/feature/issue-{issue}")]).await;
        }
        let ready = ground.prepare(issue).await.unwrap();
        assert_eq!(ground.read(&format!(".worktrees/issue-{issue}/a.txt")), "one\ntwo\nthree\nfour\n");
        assert_eq!(ready.worktree.status().await.unwrap(), []);
        let beside = std::fs::read_dir(path.parent().unwrap().as_path()).unwrap().flatten();
        let set_aside = beside.filter(|entry| entry.file_name().to_string_lossy().contains("aside"));
        assert_eq!(set_aside.count(), 0, "there was nothing to set aside");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preparation_that_is_killed_at_any_moment_can_be_done_again() {
    let ground = Ground::new().await;
    for n in 0..300 {
        ground.write(&format!("dir/file-{n}.txt"), "content\n");
    }
    ground.git(&["add", "-A"]).await;
    ground.git(&["commit", "-qm", "files"]).await;
    for issue in 1..=12_u32 {
        // Dropping it kills the git that runs, with SIGKILL.
        for moment in 0..3 {
            let after = std::time::Duration::from_millis(u64::from(issue * 7 + moment * 29));
            drop(tokio::time::timeout(after, ground.prepare(issue)).await);
        }
        let ready = ground.prepare(issue).await.unwrap_or_else(|error| panic!("{issue}: {error}"));
        assert_eq!(ground.git_in(ready.worktree.path(), &["status", "--porcelain"]).await, "", "{issue}");
        assert_eq!(ready.head, ground.head("main").await);
    }
    assert!(!ground.git(&["worktree", "list"]).await.contains("prunable"));
}

#[tokio::test]
async fn d34_a_branch_in_the_way_is_named_with_its_remedy() {
    let ground = Ground::new().await;
    let remote = ground.origin().await;
    ground.git(&["push", "-q", "origin", "main:refs/heads/feature"]).await;
    let checkout = ground.checkout().await;
    let wanted = branch("feature/issue-7");
    assert_eq!(checkout.ref_conflict(&wanted).await.unwrap(), None);
    let there = checkout.remote_place(&remote, &wanted).await.unwrap();
    let RemotePlace::Impossible(there) = there else { panic!("{there:?}") };
    assert_eq!((there.existing.as_str(), there.remote.as_deref()), ("feature", Some("origin")));
    ground.git(&["branch", "feature"]).await;
    let error = ground.prepare(7).await.unwrap_err();
    assert!(matches!(error, WorktreeError::RefConflict(_)), "{error}");
    assert!(error.to_string().contains("git branch -m feature feature-branch"), "{error}");
    ground.git(&["branch", "-D", "feature"]).await;
    ground.git(&["branch", "feature/issue-7/part"]).await;
    assert!(matches!(ground.prepare(7).await, Err(WorktreeError::RefConflict(_))));
}

#[tokio::test]
async fn d95_a_branch_is_brought_forward_from_the_remote_and_refused_when_it_diverged() {
    let ground = Ground::new().await;
    let remote = ground.origin().await;
    let theirs = ground.push_from_elsewhere("feature/issue-7", "theirs.txt").await;
    let ready = ground.prepare_with(7, &remote).await.unwrap();
    assert_eq!((ready.state, &ready.head), (WorktreeState::Reattached, &theirs));
    // More on the remote, with a worktree that has changes of its own.
    ground.write(".worktrees/issue-7/a.txt", "work\n");
    let more = ground.push_from_elsewhere("feature/issue-7", "more.txt").await;
    let ready = ground.prepare_with(7, &remote).await.unwrap();
    assert_eq!((ready.state, &ready.head), (WorktreeState::Reused, &more));
    assert_eq!(ground.read(".worktrees/issue-7/a.txt"), "work\n");
    assert!(ground.exists(".worktrees/issue-7/more.txt"));
    // Commits on both sides.
    let path = ready.worktree.path().clone();
    ground.git_in(&path, &["commit", "-qam", "ours"]).await;
    assert_eq!(ground.prepare_with(7, &remote).await.unwrap().state, WorktreeState::Reused, "local is ahead");
    ground.push_from_elsewhere("feature/issue-7", "third.txt").await;
    let error = ground.prepare_with(7, &remote).await.unwrap_err();
    assert!(matches!(error, WorktreeError::Diverged { .. }), "{error}");
    ground.git(&["worktree", "remove", "--force", path.to_string().as_str()]).await;
    assert!(matches!(ground.prepare_with(7, &remote).await, Err(WorktreeError::Diverged { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_worktrees_of_one_repository_in_parallel_are_all_there() {
    let ground = std::sync::Arc::new(Ground::new().await);
    for n in 0..40 {
        ground.write(&format!("dir/file-{n}.txt"), "content\n");
    }
    ground.git(&["add", "-A"]).await;
    ground.git(&["commit", "-qm", "files"]).await;
    let mut all = tokio::task::JoinSet::new();
    for issue in 1..=16 {
        let ground = std::sync::Arc::clone(&ground);
        all.spawn(async move { ground.prepare(issue).await.map(|ready| ready.worktree.path().clone()) });
    }
    while let Some(ready) = all.join_next().await {
        let path = ready.unwrap().unwrap();
        assert_eq!(ground.git_in(&path, &["status", "--porcelain"]).await, "");
        assert!(exists(&path, "dir/file-39.txt"));
    }
    let root = ground.at(".worktrees");
    let listed = ground.checkout().await.list_worktrees(&root).await.unwrap();
    assert_eq!(listed.iter().filter(|one| one.changed == Some(0) && one.present).count(), 16);
}

#[tokio::test]
async fn submodules_are_filled() {
    let ground = Ground::new().await;
    let library = Ground::named("library").await;
    let (served, from) = library.served();
    ground.git(&["submodule", "--quiet", "add", from.as_str(), "vendor/lib"]).await;
    ground.git(&["commit", "-qm", "library"]).await;
    let ready = ground.prepare(7).await.unwrap();
    assert_eq!(ground.read(".worktrees/issue-7/vendor/lib/src/lib.rs"), "pub fn f() {}\n");
    assert_eq!(ready.warnings, Vec::<String>::new());
    assert_eq!(ready.worktree.status().await.unwrap(), []);
    drop(served);
    let error = ground.prepare(9).await.map(drop).unwrap_err().to_string();
    assert!(
        error.contains("its remote was not reached") && error.contains("submodules = \"never\""),
        "{error}"
    );
    let mut plan = ground.plan(8, None).await;
    plan.population.submodules = false;
    let ready = ground.checkout().await.prepare_worktree(&plan).await.unwrap();
    assert!(ready.warnings[0].contains("submodules are left empty"), "{:?}", ready.warnings);
}

#[tokio::test]
async fn a_sparse_checkout_stays_sparse_and_what_is_left_out_is_not_deleted() {
    let ground = Ground::new().await;
    ground.write("big/blob.bin", "big\n");
    ground.git(&["add", "-A"]).await;
    ground.git(&["commit", "-qm", "big"]).await;
    ground.git(&["sparse-checkout", "set", "src"]).await;
    let ready = ground.prepare(7).await.unwrap();
    assert!(
        ground.exists(".worktrees/issue-7/src/lib.rs") && !ground.exists(".worktrees/issue-7/big/blob.bin")
    );
    ground.write(".worktrees/issue-7/src/new.rs", "new\n");
    let changes = ready.worktree.status().await.unwrap();
    assert_eq!(changes.iter().map(|change| change.path.as_str()).collect::<Vec<_>>(), ["src/new.rs"]);
}

#[tokio::test]
async fn what_is_made_outside_of_a_sparse_checkout_is_committed_with_the_rest() {
    let ground = Ground::new().await;
    ground.write("big/blob.bin", "big\n");
    ground.write("big/other.bin", "other\n");
    ground.git(&["add", "-A"]).await;
    ground.git(&["commit", "-qm", "big"]).await;
    ground.git(&["sparse-checkout", "set", "src"]).await;
    let tree = ground.prepare(7).await.unwrap().worktree;
    ground.write(".worktrees/issue-7/src/new.rs", "new\n");
    ground.write(".worktrees/issue-7/new/x.txt", "x\n");
    ground.write(".worktrees/issue-7/big/other.bin", "changed\n");
    tree.checkpoint("refs/agentd/checkpoints/test", "x").await.unwrap();
    let message = CommitMessage { subject: "work".into(), body: String::new(), trailers: Vec::new() };
    let ada = Identity { name: "Ada".into(), email: "ada@example.org".into() };
    tree.commit_all(&message, &ada).await.unwrap();
    let shown = ground.git_in(tree.path(), &["show", "--name-status", "--format=", "HEAD"]).await;
    assert_eq!(shown.lines().collect::<Vec<_>>(), ["M\tbig/other.bin", "A\tnew/x.txt", "A\tsrc/new.rs"]);
    assert_eq!(ground.git_in(tree.path(), &["status", "--porcelain"]).await, "");
}

#[tokio::test]
async fn opening_says_what_is_wrong_with_a_place() {
    let ground = Ground::new().await;
    let open = async |path: &str| Checkout::open(ground.program(), &ground.at(path), false).await;
    assert_eq!(open("src").await.unwrap().root(), &ground.repo, "from a directory inside");
    assert!(matches!(open("~/").await, Err(GitError::NotARepository { .. })));
    assert!(matches!(open("~/no/such/place").await, Err(GitError::NotARepository { .. })));
    ground.prepare(7).await.unwrap();
    let error = open(".worktrees/issue-7").await.unwrap_err();
    assert!(
        matches!(&error, GitError::LinkedWorktree { main, .. } if *main == ground.repo.to_string()),
        "{error}"
    );
    ground.origin().await;
    assert!(matches!(open("~/origin.git").await, Err(GitError::Bare { .. })));
    let linked = ground.home.join("linked").to_string();
    ground.git_in(&ground.home.join("origin.git"), &["worktree", "add", "-q", "--detach", &linked]).await;
    let error = open("~/linked").await.unwrap_err();
    assert!(
        matches!(&error, GitError::WorktreeOfBare { main, .. } if main.ends_with("/origin.git")),
        "{error}"
    );
    assert!(ground.program().version().await.unwrap().starts_with("2."));
    let nothing = ground.checkout().await.remote("upstream", agentd::git::RemoteAuth::User).await;
    assert!(matches!(nothing, Err(GitError::NoRemote { .. })));
}
