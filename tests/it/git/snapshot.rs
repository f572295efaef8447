//! The present state: seen, recorded, committed, brought back; whatever an agent did to the index.

use agentd::domain::name::CommitId;
use agentd::git::outgoing::Inspect;
use agentd::git::{ChangeKind, ChangedFile, CommitMessage, GitError, Identity, Worktree};
use agentd::sys::files;

use super::{Ground, exists};

fn message(subject: &str) -> CommitMessage {
    CommitMessage {
        subject: subject.into(),
        body: "# why, and a line that begins with a hash".into(),
        trailers: vec![("Agentd-Run".into(), "0198".into())],
    }
}

fn ada() -> Identity {
    Identity { name: "Ada".into(), email: "ada@example.org".into() }
}

fn lines(changes: &[ChangedFile]) -> Vec<String> {
    changes.iter().map(|c| format!("{} {} +{} -{}", c.kind.letter(), c.path, c.added, c.removed)).collect()
}

async fn worktree(ground: &Ground) -> Worktree {
    ground.prepare(7).await.unwrap().worktree
}

fn put(worktree: &Worktree, path: &str, text: &str) {
    let path = worktree.path().join(path);
    files::create_dir(path.parent().unwrap().as_path()).unwrap();
    files::write_public(path.as_path(), text.as_bytes()).unwrap();
}

/// What of `a.txt` the commits of a branch bring that begins before the last commit of main and merges main, in one way or another.
async fn brought_by_a_merge(how: &[&str]) -> Vec<String> {
    let ground = Ground::new().await;
    let tree = worktree(&ground).await;
    let base = tree.head().await.unwrap().unwrap();
    ground.git_in(tree.path(), &["reset", "-q", "--hard", "HEAD~1"]).await;
    put(&tree, "fix.txt", "fixed\n");
    ground.git_in(tree.path(), &["add", "-A"]).await;
    ground.git_in(tree.path(), &["commit", "-qm", "fix"]).await;
    ground.git_in(tree.path(), &[&["merge", "-q", "-m", "merged"], how, &[base.as_str()]].concat()).await;
    let head = tree.head().await.unwrap().unwrap();
    let inspect: Inspect = std::sync::Arc::new(|_| Vec::new());
    let brought =
        tree.outgoing((&head, None), std::slice::from_ref(&base), (1 << 20, inspect)).await.unwrap();
    let mut paths: Vec<String> = brought.changes.into_iter().map(|change| change.path).collect();
    paths.sort();
    paths
}

#[tokio::test]
async fn a_merge_that_puts_a_file_back_to_what_it_was_brings_a_change_of_it() {
    assert_eq!(brought_by_a_merge(&["-s", "ours"]).await, ["a.txt", "fix.txt"]);
    assert_eq!(brought_by_a_merge(&[]).await, ["fix.txt"]);
}

#[tokio::test]
async fn changes_are_counted_with_untracked_files_and_without_ignored_ones() {
    let ground = Ground::new().await;
    let tree = worktree(&ground).await;
    let base = tree.head().await.unwrap().unwrap();
    put(&tree, "a.txt", "one\nTWO\nthree\nfour\n");
    put(&tree, "new/file.txt", "x\ny\n");
    put(&tree, "noise.log", "ignored\n");
    put(&tree, "bin", "a\0b");
    files::remove_file(tree.path().join("src/lib.rs").as_path()).unwrap();
    let index = std::fs::read(tree.git_dir().join("index").as_path()).unwrap();
    let changes = tree.changes(&base).await.unwrap();
    assert_eq!(
        lines(&changes),
        ["M a.txt +1 -1", "A bin +0 -0", "A new/file.txt +2 -0", "D src/lib.rs +0 -1"]
    );
    assert!(changes[1].binary);
    let patch = tree.diff(&base, None, 1 << 20).await.unwrap();
    assert!(
        patch.text.contains("-two\n+TWO\n") && patch.text.contains("+++ b/new/file.txt") && !patch.truncated
    );
    let one = tree.diff(&base, Some("new"), 1 << 20).await.unwrap().text;
    assert!(one.contains("new/file.txt") && !one.contains("a.txt"), "{one}");
    let cut = tree.diff(&base, None, 100).await.unwrap();
    assert!(cut.truncated && cut.text.len() <= 100);
    assert_eq!(
        std::fs::read(tree.git_dir().join("index").as_path()).unwrap(),
        index,
        "the index was touched"
    );
    let tree_id = tree.tree().await.unwrap();
    let (blob, content) = tree.checkout().tree_blob(&tree_id, "new/file.txt").await.unwrap().unwrap();
    assert_eq!((blob.len(), content.as_slice()), (40, b"x\ny\n".as_slice()));
    assert_eq!(tree.checkout().blob(&base, "a.txt").await.unwrap().unwrap(), b"one\ntwo\nthree\nfour\n");
    assert_eq!(tree.checkout().blob(&base, "new/file.txt").await.unwrap(), None);
}

#[tokio::test]
async fn flags_in_the_index_hide_nothing() {
    let ground = Ground::new().await;
    let tree = worktree(&ground).await;
    ground.git_in(tree.path(), &["update-index", "--assume-unchanged", "a.txt"]).await;
    ground.git_in(tree.path(), &["update-index", "--skip-worktree", "src/lib.rs"]).await;
    put(&tree, "a.txt", "hidden\n");
    put(&tree, "src/lib.rs", "hidden too\n");
    assert_eq!(lines(&tree.status().await.unwrap()), ["M a.txt +1 -4", "M src/lib.rs +1 -1"]);
    let commit = tree.commit_all(&message("both"), &ada()).await.unwrap().unwrap();
    assert_eq!(ground.git(&["show", &format!("{commit}:a.txt")]).await, "hidden");
}

#[tokio::test]
async fn a_change_in_the_same_moment_and_of_the_same_size_is_seen() {
    let ground = Ground::new().await;
    let tree = worktree(&ground).await;
    for round in 0..20 {
        put(&tree, "a.txt", &format!("{round:06}\n"));
        let first = tree.tree().await.unwrap();
        // Written in place: same inode, same size, most likely the same tick.
        use std::io::Write as _;
        let mut file =
            std::fs::File::options().write(true).open(tree.path().join("a.txt").as_path()).unwrap();
        file.write_all(format!("{:06}\n", 900_000 + round).as_bytes()).unwrap();
        drop(file);
        assert_ne!(tree.tree().await.unwrap(), first, "round {round}");
    }
}

#[tokio::test]
async fn d13_a_commit_has_message_author_and_trailer_and_nothing_to_commit_is_none() {
    let ground = Ground::new().await;
    let tree = worktree(&ground).await;
    assert_eq!(tree.commit_all(&message("nothing"), &ada()).await.unwrap(), None);
    put(&tree, "b.txt", "b\n");
    ground.git_in(tree.path(), &["add", "b.txt"]).await;
    put(&tree, "b.txt", "later\n");
    put(&tree, "c.txt", "c\n");
    let commit = tree.commit_all(&message("feat: letters"), &ada()).await.unwrap().unwrap();
    assert_eq!(tree.head().await.unwrap().as_ref(), Some(&commit));
    let shown = ground.git(&["log", "-1", "--format=%an|%ae|%cn|%B", commit.as_str()]).await;
    let body = "# why, and a line that begins with a hash";
    assert_eq!(shown, format!("Ada|ada@example.org|Ada|feat: letters\n\n{body}\n\nAgentd-Run: 0198"));
    assert_eq!(ground.git(&["show", &format!("{commit}:b.txt")]).await, "later");
    assert_eq!(ground.git_in(tree.path(), &["status", "--porcelain"]).await, "");
    let log = tree.commits(&ground.head("main").await).await.unwrap();
    assert_eq!(log.iter().map(|entry| entry.subject.as_str()).collect::<Vec<_>>(), ["feat: letters"]);
    assert_eq!(ground.checkout().await.identity().await.unwrap(), Some(ada()));
}

/// A daemon lives for months; who commits is who the user says that is.
#[tokio::test]
async fn a_name_that_the_user_changes_is_the_one_of_the_next_commit() {
    let ground = Ground::new().await;
    let checkout = ground.checkout().await;
    let names = |name: &str| format!("[user]\nname = {name}\nemail = e@x\n");
    let is = |name: &str| Some(Identity { name: name.to_owned(), email: "e@x".to_owned() });
    assert_eq!(checkout.identity().await.unwrap(), Some(ada()));
    ground.write("~/.gitconfig", &names("first"));
    assert_eq!(checkout.identity().await.unwrap(), is("first"));
    ground.write("~/.config/git/config", &names("loses to the other file"));
    assert_eq!(checkout.identity().await.unwrap(), is("first"));
    ground.write("~/.gitconfig", &names("second"));
    assert_eq!(checkout.identity().await.unwrap(), is("second"));
    // Many keep the file elsewhere, and parts of it beside.
    ground.write("~/dotfiles/gitconfig", &names("third"));
    std::fs::remove_file(ground.at("~/.gitconfig").as_path()).unwrap();
    std::os::unix::fs::symlink("dotfiles/gitconfig", ground.at("~/.gitconfig").as_path()).unwrap();
    assert_eq!(checkout.identity().await.unwrap(), is("third"));
    ground.write("~/dotfiles/gitconfig", &(names("fourth") + "[include]\npath = dotfiles/work\n"));
    assert_eq!(checkout.identity().await.unwrap(), is("fourth"));
    ground.write("~/dotfiles/work", &names("fifth"));
    assert_eq!(checkout.identity().await.unwrap(), is("fifth"));
    ground.write("~/dotfiles/work", &names("sixth"));
    assert_eq!(checkout.identity().await.unwrap(), is("sixth"));
}

#[tokio::test]
async fn commits_that_the_agent_made_are_kept_and_brought_to_the_branch() {
    let ground = Ground::new().await;
    let tree = worktree(&ground).await;
    put(&tree, "one", "1\n");
    ground.git_in(tree.path(), &["switch", "-qc", "agents-own"]).await;
    ground.git_in(tree.path(), &["add", "-A"]).await;
    ground.git_in(tree.path(), &["commit", "-qm", "by the agent"]).await;
    put(&tree, "two", "2\n");
    let commit = tree.commit_all(&message("rest"), &ada()).await.unwrap().unwrap();
    assert_eq!(ground.head("feature/issue-7").await, commit);
    assert_eq!(ground.git_in(tree.path(), &["branch", "--show-current"]).await, "feature/issue-7");
    let log = tree.commits(&ground.head("main").await).await.unwrap();
    assert_eq!(log.iter().map(|entry| entry.subject.as_str()).collect::<Vec<_>>(), ["by the agent", "rest"]);
    // Something that does not continue the branch is not taken for its work.
    ground.git_in(tree.path(), &["checkout", "-q", "--detach", "main"]).await;
    let error = tree.commit_all(&message("x"), &ada()).await.unwrap_err();
    assert!(matches!(error, GitError::HeadMoved { .. }), "{error}");
    assert_eq!(ground.head("feature/issue-7").await, commit);
}

#[tokio::test]
async fn d70_a_restore_keeps_what_was_there_and_brings_the_files_back() {
    let ground = Ground::new().await;
    let tree = worktree(&ground).await;
    put(&tree, "kept.txt", "at the border\n");
    put(&tree, "a.txt", "at the border\n");
    let reference = "refs/agentd/checkpoints/0198/1";
    let checkpoint = tree.checkpoint(reference, "visit 1").await.unwrap();
    let head = tree.head().await.unwrap().unwrap();
    assert_eq!(ground.head(reference).await, checkpoint);
    assert_eq!(ground.head("main").await, head, "a checkpoint moves no branch");
    // The visit that was killed: edits, a new file, a removed one, an ignored one, and a commit.
    put(&tree, "a.txt", "half done\n");
    ground.git_in(tree.path(), &["add", "-A"]).await;
    ground.git_in(tree.path(), &["commit", "-qm", "by the agent"]).await;
    let agents = tree.head().await.unwrap().unwrap();
    put(&tree, "stray/new.txt", "half done\n");
    put(&tree, "out.log", "ignored\n");
    files::remove_file(tree.path().join("kept.txt").as_path()).unwrap();
    files::write_public(tree.git_dir().join("index.lock").as_path(), b"").unwrap();

    let rescue = "refs/agentd/rescue/0198/1";
    let restored = tree.restore(&checkpoint, rescue, true).await.unwrap();
    assert_eq!(restored.rescued, Some(ground.head(rescue).await));
    assert_eq!(ground.read(".worktrees/issue-7/a.txt"), "at the border\n");
    assert_eq!(ground.read(".worktrees/issue-7/kept.txt"), "at the border\n");
    assert!(!exists(tree.path(), "stray") && exists(tree.path(), "out.log"));
    assert_eq!(tree.head().await.unwrap(), Some(head));
    assert_eq!(ground.git_in(tree.path(), &["status", "--porcelain"]).await, " M a.txt\n?? kept.txt");
    assert_eq!(ground.git(&["show", &format!("{rescue}:stray/new.txt")]).await, "half done");
    let parent = ground.head(&format!("{rescue}^")).await;
    assert_eq!(parent, agents, "the agent's commit is in the rescue's history");

    let again = tree.restore(&checkpoint, rescue, true).await.unwrap();
    assert_eq!(again.rescued, None, "nothing to rescue the second time");
}

#[tokio::test]
async fn a_restore_can_leave_the_branch_where_it_is() {
    let ground = Ground::new().await;
    let tree = worktree(&ground).await;
    let checkpoint = tree.checkpoint("refs/agentd/checkpoints/r/1", "visit 1").await.unwrap();
    put(&tree, "a.txt", "x\n");
    let commit = tree.commit_all(&message("x"), &ada()).await.unwrap().unwrap();
    tree.restore(&checkpoint, "refs/agentd/rescue/r/1", false).await.unwrap();
    assert_eq!(tree.head().await.unwrap(), Some(commit));
    assert_eq!(ground.read(".worktrees/issue-7/a.txt"), "one\ntwo\nthree\nfour\n");
}

#[tokio::test]
async fn a_merge_that_was_killed_does_not_stop_a_restore() {
    let ground = Ground::new().await;
    let tree = worktree(&ground).await;
    put(&tree, "a.txt", "ours\n");
    tree.commit_all(&message("ours"), &ada()).await.unwrap();
    let checkpoint = tree.checkpoint("refs/agentd/checkpoints/r/1", "visit 1").await.unwrap();
    ground.write("a.txt", "theirs\n");
    ground.git(&["commit", "-qam", "theirs"]).await;
    for command in ["merge", "rebase"] {
        assert!(!ground.attempt(tree.path(), &[command, "main"]).await.success());
        tree.restore(&checkpoint, "refs/agentd/rescue/r/1", true).await.unwrap();
        let status = ground.git_in(tree.path(), &["status"]).await;
        assert!(
            status.starts_with("On branch feature/issue-7") && status.contains("nothing to commit"),
            "{status}"
        );
        assert_eq!(ground.read(".worktrees/issue-7/a.txt"), "ours\n");
    }
}

#[tokio::test]
async fn a_merge_that_waited_for_its_commit_at_a_checkpoint_waits_again_after_a_restore() {
    let ground = Ground::new().await;
    let tree = worktree(&ground).await;
    put(&tree, "a.txt", "ours\n");
    tree.commit_all(&message("ours"), &ada()).await.unwrap();
    for (file, text) in [("a.txt", "theirs\n"), ("b.txt", "new\n")] {
        ground.write(file, text);
        ground.git(&["add", file]).await;
    }
    ground.git(&["commit", "-qm", "theirs"]).await;
    let theirs = ground.head("HEAD").await;
    assert_eq!(tree.merge_base_in(&theirs, &ada()).await.unwrap(), ["a.txt"]);
    put(&tree, "c.txt", "begun\n");
    let checkpoint = tree.checkpoint("refs/agentd/checkpoints/r/0", "visit 0").await.unwrap();
    put(&tree, "a.txt", "half a thought\n");
    for _ in 0..2 {
        tree.restore(&checkpoint, "refs/agentd/rescue/r/0", false).await.unwrap();
        assert!(ground.read(".worktrees/issue-7/a.txt").contains("<<<<<<< "));
        assert_eq!(ground.read(".worktrees/issue-7/b.txt"), "new\n");
        assert_eq!(ground.read(".worktrees/issue-7/c.txt"), "begun\n");
        assert_eq!(tree.merge_base_in(&theirs, &ada()).await.unwrap(), ["a.txt"]);
        assert!(matches!(tree.commit_all(&message("x"), &ada()).await, Err(GitError::Unresolved { .. })));
    }
    put(&tree, "a.txt", "ours and theirs\n");
    let made = tree.commit_all(&message("both"), &ada()).await.unwrap().unwrap();
    assert!(ground.checkout().await.is_ancestor(&theirs, &made).await.unwrap());
    assert_eq!(ground.git_in(tree.path(), &["status", "--porcelain"]).await, "");
}

#[tokio::test]
async fn repositories_inside_the_worktree_are_not_swallowed() {
    let ground = Ground::new().await;
    let tree = worktree(&ground).await;
    ground.git_in(tree.path(), &["init", "-q", "nested"]).await;
    put(&tree, "nested/inner.txt", "x\n");
    ground.git_in(tree.path(), &["init", "-q", "deep/unborn"]).await;
    let nested = tree.path().join("nested");
    ground.git_in(&nested, &["add", "-A"]).await;
    ground.git_in(&nested, &["commit", "-qm", "inner"]).await;
    put(&tree, "a.txt", "work\n");
    assert_eq!(lines(&tree.status().await.unwrap()), ["M a.txt +1 -4"]);
    let commit = tree.commit_all(&message("work"), &ada()).await.unwrap().unwrap();
    assert_eq!(ground.git(&["ls-tree", "--name-only", commit.as_str()]).await, ".gitignore\na.txt\nsrc");
}

#[tokio::test]
async fn a_submodule_that_moved_on_is_recorded() {
    let ground = Ground::new().await;
    let library = Ground::named("library").await;
    let (_served, from) = library.served();
    ground.git(&["submodule", "--quiet", "add", from.as_str(), "vendor"]).await;
    ground.git(&["commit", "-qm", "library"]).await;
    let tree = worktree(&ground).await;
    let vendor = tree.path().join("vendor");
    ground.git_in(&vendor, &["commit", "-q", "--allow-empty", "-m", "next"]).await;
    put(&tree, "vendor/untracked.txt", "not ours to commit\n");
    let moved = CommitId::parse(&ground.git_in(&vendor, &["rev-parse", "HEAD"]).await).unwrap();
    let changes = tree.status().await.unwrap();
    assert_eq!(
        changes.iter().map(|c| (c.path.as_str(), c.kind)).collect::<Vec<_>>(),
        [("vendor", ChangeKind::Modified)]
    );
    let commit = tree.commit_all(&message("vendor"), &ada()).await.unwrap().unwrap();
    assert_eq!(ground.git(&["rev-parse", &format!("{commit}:vendor")]).await, moved.as_str());
}

/// A worktree with a submodule, and a commit that moves it on the way that others have it.
async fn with_a_moved_submodule(
    ground: &Ground,
    from: &str,
    library: &Ground,
) -> (Worktree, CommitId, String) {
    ground.git(&["submodule", "--quiet", "add", from, "vendor"]).await;
    ground.git(&["commit", "-qm", "library"]).await;
    let tree = worktree(ground).await;
    library.git(&["commit", "-q", "--allow-empty", "-m", "next"]).await;
    let next = library.git(&["rev-parse", "HEAD"]).await;
    let vendor = ground.at("vendor");
    ground.git_in(&vendor, &["fetch", "-q", "origin"]).await;
    ground.git_in(&vendor, &["checkout", "-q", &next]).await;
    ground.write("theirs.txt", "theirs\n");
    ground.git(&["add", "-A"]).await;
    ground.git(&["commit", "-qm", "theirs"]).await;
    (tree, ground.head("HEAD").await, next)
}

#[tokio::test]
async fn a_submodule_that_others_moved_stays_moved_beside_the_work_of_the_run() {
    for ahead in [false, true] {
        let ground = Ground::new().await;
        let library = Ground::named("library").await;
        let (_served, from) = library.served();
        let (tree, theirs, next) = with_a_moved_submodule(&ground, &from, &library).await;
        let stood = ground.git_in(&tree.path().join("vendor"), &["rev-parse", "HEAD"]).await;
        assert_ne!(stood, next);
        if ahead {
            put(&tree, "ours.txt", "ours\n");
            tree.commit_all(&message("ours"), &ada()).await.unwrap().unwrap();
            assert_eq!(tree.merge_base_in(&theirs, &ada()).await.unwrap(), Vec::<String>::new());
        } else {
            assert_eq!(tree.forward(&theirs).await.unwrap(), agentd::git::merge_base_in::Forward::Went);
        }
        put(&tree, "more.txt", "more\n");
        let commit = tree.commit_all(&message("more"), &ada()).await.unwrap().unwrap();
        let vendor = async || ground.git(&["rev-parse", &format!("{commit}:vendor")]).await;
        assert_eq!(vendor().await, next, "ahead: {ahead}");
        // The folder is as it was, and what the run itself chooses counts again.
        let folder = tree.path().join("vendor");
        assert_eq!(ground.git_in(&folder, &["rev-parse", "HEAD"]).await, stood);
        ground.git_in(&folder, &["commit", "-q", "--allow-empty", "-m", "own"]).await;
        let own = ground.git_in(&folder, &["rev-parse", "HEAD"]).await;
        let commit = tree.commit_all(&message("own"), &ada()).await.unwrap().unwrap();
        assert_eq!(ground.git(&["rev-parse", &format!("{commit}:vendor")]).await, own);
    }
}

#[tokio::test]
async fn a_submodule_that_both_sides_moved_is_a_conflict_that_no_file_shows() {
    let ground = Ground::new().await;
    let library = Ground::named("library").await;
    let (_served, from) = library.served();
    let (tree, theirs, _) = with_a_moved_submodule(&ground, &from, &library).await;
    let folder = tree.path().join("vendor");
    ground.git_in(&folder, &["commit", "-q", "--allow-empty", "-m", "own"]).await;
    tree.commit_all(&message("own"), &ada()).await.unwrap().unwrap();
    assert_eq!(tree.merge_base_in(&theirs, &ada()).await.unwrap(), ["vendor"]);
    assert_eq!(tree.conflicting_submodules().await.unwrap(), ["vendor"]);
    tree.leave_merge().await.unwrap();
    assert!(tree.merge_head().is_none());
}

#[tokio::test]
async fn many_looks_at_one_worktree_at_once_agree() {
    let ground = Ground::new().await;
    let tree = worktree(&ground).await;
    put(&tree, "new.txt", "x\n");
    let looks = (0..8).map(|_| tree.tree());
    let trees: Vec<String> = futures::future::try_join_all(looks).await.unwrap();
    assert!(trees.iter().all(|one| *one == trees[0]));
    let left = std::fs::read_dir(tree.git_dir().as_path()).unwrap().flatten();
    let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("agentd-index-"));
    assert_eq!(left.count(), 0);
}
