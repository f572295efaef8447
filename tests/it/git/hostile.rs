//! A repository whose own configuration wants programs run or transfers redirected: nothing of it happens.

use agentd::git::{CommitMessage, GitError, Identity, Remote, RemoteAuth};
use agentd::sys::files;

use super::{Ground, branch};

const KEYS: &[&str] = &[
    "core.fsmonitor",
    "core.sshCommand",
    "core.editor",
    "core.pager",
    "core.askPass",
    "core.alternateRefsCommand",
    "credential.helper",
    "filter.evil.clean",
    "filter.evil.smudge",
    "filter.evil.process",
    "gpg.program",
    "gpg.ssh.program",
    "diff.external",
    "diff.evil.textconv",
    "diff.evil.command",
    "merge.evil.driver",
    "sequence.editor",
    "submodule.vendor.update",
    "trailer.Agentd-Run.command",
    "uploadpack.packObjectsHook",
];

/// Each way in leaves a file with its name when it runs.
async fn poison(ground: &Ground, dir: &agentd::sys::paths::AbsPath) {
    let trap = |name: &str| format!("touch {}/ran-{name}; cat", ground.home);
    for key in KEYS {
        let value = match *key {
            "credential.helper" | "submodule.vendor.update" => format!("!{}", trap(key)),
            _ => trap(key),
        };
        ground.git_in(dir, &["config", key, value.as_str()]).await;
    }
    ground.git_in(dir, &["config", "filter.evil.required", "true"]).await;
    ground.git_in(dir, &["config", "core.hooksPath", ground.at("~/hooks").to_string().as_str()]).await;
    files::create_dir(ground.at("~/hooks").as_path()).unwrap();
    for hook in [
        "post-checkout",
        "pre-commit",
        "commit-msg",
        "prepare-commit-msg",
        "post-commit",
        "pre-push",
        "reference-transaction",
        "post-index-change",
        "post-merge",
        "pre-auto-gc",
        "fsmonitor-watchman",
    ] {
        for place in [ground.at("~/hooks").join(hook), ground.at(".git/hooks").join(hook)] {
            let text = format!("#!/bin/sh\ntouch {}/ran-hook-{hook}\n", ground.home);
            files::create_dir(place.parent().unwrap().as_path()).unwrap();
            files::write_public(place.as_path(), text.as_bytes()).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(place.as_path(), mode).unwrap();
        }
    }
}

fn ran(ground: &Ground) -> Vec<String> {
    let names = std::fs::read_dir(ground.home.as_path()).unwrap().flatten();
    names.map(|e| e.file_name().to_string_lossy().into_owned()).filter(|n| n.starts_with("ran-")).collect()
}

fn message() -> CommitMessage {
    CommitMessage {
        subject: "x".into(),
        body: String::new(),
        trailers: vec![("Agentd-Run".into(), "1".into())],
    }
}

#[tokio::test]
async fn d56_nothing_that_the_repository_configures_is_run() {
    let ground = Ground::new().await;
    ground.write(".gitattributes", "*.txt filter=evil diff=evil merge=evil\n");
    ground.git(&["add", "-A"]).await;
    ground.git(&["commit", "-qm", "attributes"]).await;
    let remote = ground.origin().await;
    poison(&ground, &ground.repo.clone()).await;
    let ready = ground.prepare_with(7, &remote).await.unwrap();
    assert!(
        ready.warnings.iter().any(|warning| warning.contains("the filter \"evil\"")),
        "{:?}",
        ready.warnings
    );
    let tree = ready.worktree;
    files::write_public(tree.path().join("a.txt").as_path(), b"changed\n").unwrap();
    tree.status().await.unwrap();
    let base = ready.head.clone();
    tree.diff(&base, None, 1 << 20).await.unwrap();
    let checkpoint = tree.checkpoint("refs/agentd/checkpoints/r/1", "x").await.unwrap();
    let commit = tree.commit_all(&message(), &Identity::agentd()).await.unwrap().unwrap();
    tree.restore(&checkpoint, "refs/agentd/rescue/r/1", true).await.unwrap();
    let checkout = ground.checkout().await;
    checkout.push(&remote, &branch("feature/issue-7"), &commit, None).await.unwrap();
    checkout.fetch(&remote, &branch("feature/issue-7")).await.unwrap();
    let ssh = Remote::new("origin", "ssh://127.0.0.1:9/o/n.git", RemoteAuth::User);
    assert!(checkout.remote_branch(&ssh, &branch("main")).await.is_err());
    assert_eq!(ran(&ground), Vec::<String>::new());
    // The traps do work: the user's own git falls into them.
    files::write_public(tree.path().join("a.txt").as_path(), b"again\n").unwrap();
    ground.attempt(tree.path(), &["add", "a.txt"]).await;
    let ran = ran(&ground);
    assert!(
        ran.iter().any(|name| name == "ran-filter.evil.clean" || name == "ran-filter.evil.process"),
        "{ran:?}"
    );
    assert!(ran.iter().any(|name| name == "ran-core.fsmonitor"), "{ran:?}");
}

#[tokio::test]
async fn d56_a_repository_planted_in_the_worktree_gets_nothing_run_either() {
    let ground = Ground::new().await;
    let tree = ground.prepare(7).await.unwrap().worktree;
    // A nested repository, a submodule whose repository was replaced, and a worktree link that points elsewhere.
    ground.git_in(tree.path(), &["init", "-q", "nested"]).await;
    let nested = tree.path().join("nested");
    ground.git_in(&nested, &["commit", "-q", "--allow-empty", "-m", "x"]).await;
    let id = ground.git_in(&nested, &["rev-parse", "HEAD"]).await;
    ground
        .git_in(tree.path(), &["update-index", "--add", "--cacheinfo", &format!("160000,{id},nested")])
        .await;
    ground.git_in(tree.path(), &["commit", "-qm", "a submodule"]).await;
    poison(&ground, &nested).await;
    files::write_public(nested.join("a.txt").as_path(), b"x").unwrap();
    let link = std::fs::read_to_string(tree.path().join(".git").as_path()).unwrap();
    files::write_public(tree.path().join(".git").as_path(), b"gitdir: nested/.git\n").unwrap();
    files::write_public(tree.path().join("a.txt").as_path(), b"changed\n").unwrap();
    let changes = tree.status().await.unwrap();
    assert_eq!(changes.iter().map(|change| change.path.as_str()).collect::<Vec<_>>(), ["a.txt"]);
    tree.commit_all(&message(), &Identity::agentd()).await.unwrap().unwrap();
    tree.restore(&ground.head("main").await, "refs/agentd/rescue/r/1", false).await.unwrap();
    assert_eq!(ran(&ground), Vec::<String>::new());
    files::write_public(tree.path().join(".git").as_path(), link.as_bytes()).unwrap();
    ground.attempt(tree.path(), &["status"]).await;
    assert_ne!(ran(&ground), Vec::<String>::new(), "the trap does work for the user's own git");
    assert_eq!(ground.git(&["log", "-1", "--format=%s", "feature/issue-7"]).await, "x");
}

#[tokio::test]
async fn a_redirected_remote_is_refused_before_anything_is_sent() {
    let ground = Ground::new().await;
    let remote = ground.origin().await;
    ground.git(&["config", "url./tmp/nowhere/.insteadOf", ground.home.to_string().as_str()]).await;
    let error = ground.checkout().await.remote_branch(&remote, &branch("main")).await.unwrap_err();
    assert!(matches!(error, GitError::Redirected { .. }), "{error}");
    assert!(error.to_string().contains("git config --global"), "{error}");
}

#[tokio::test]
async fn d91_the_repositorys_hooks_run_only_where_the_operator_says_so() {
    let ground = Ground::new().await;
    let hook = ground.at(".git/hooks/pre-commit");
    let text = format!("#!/bin/sh\ntouch {}/ran-pre-commit\n", ground.home);
    files::create_dir(hook.parent().unwrap().as_path()).unwrap();
    files::write_public(hook.as_path(), text.as_bytes()).unwrap();
    std::fs::set_permissions(hook.as_path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for (issue, hooks) in [(1, false), (2, true)] {
        let checkout = agentd::git::Checkout::open(ground.program(), &ground.repo, hooks).await.unwrap();
        let ready = checkout.prepare_worktree(&ground.plan(issue, None).await).await.unwrap();
        files::write_public(ready.worktree.path().join("f").as_path(), b"x").unwrap();
        ready.worktree.commit_all(&message(), &Identity::agentd()).await.unwrap().unwrap();
        assert_eq!(ran(&ground).len(), usize::from(hooks));
    }
}

#[tokio::test]
async fn the_operators_own_filters_do_run() {
    let ground = Ground::new().await;
    let config = "[user]\n\tname = A\n\temail = a@b\n[filter \"upper\"]\n\tclean = tr A-Z a-z\n\tsmudge = tr a-z A-Z\n";
    ground.write("~/.gitconfig", config);
    ground.write(".gitattributes", "*.up filter=upper\n");
    ground.write("x.up", "text\n");
    ground.git(&["add", "-A"]).await;
    ground.git(&["commit", "-qm", "filtered"]).await;
    let tree = ground.prepare(7).await.unwrap().worktree;
    assert_eq!(ground.read(".worktrees/issue-7/x.up"), "TEXT\n");
    assert_eq!(tree.status().await.unwrap(), []);
}

#[tokio::test]
async fn signing_follows_the_configuration_and_its_failure_is_said() {
    let ground = Ground::new().await;
    let config =
        "[user]\n\tname = A\n\temail = a@b\n[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = /bin/false\n";
    ground.write("~/.gitconfig", config);
    let tree = ground.prepare(7).await.unwrap().worktree;
    files::write_public(tree.path().join("f").as_path(), b"x").unwrap();
    let error = tree.commit_all(&message(), &Identity::agentd()).await.unwrap_err();
    assert!(matches!(error, GitError::Signing { .. }), "{error}");
    tree.checkpoint("refs/agentd/checkpoints/r/1", "unsigned").await.unwrap();
}
