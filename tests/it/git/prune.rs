//! Pruning: what is merged and idle goes, with its commit kept; everything else stays, with the reason.

use std::collections::BTreeMap;

use agentd::domain::name::{BranchName, CommitId};
use agentd::git::{CommitMessage, Identity, PruneOutcome, PrunePlan};
use agentd::sys::files;

use super::Ground;

fn branch(issue: u32) -> BranchName {
    BranchName::parse(&format!("feature/issue-{issue}")).unwrap()
}

async fn plan(ground: &Ground) -> PrunePlan {
    PrunePlan {
        root: ground.at(".worktrees"),
        merged_into: Some(ground.head("main").await),
        own_merged: BTreeMap::new(),
        free: (1..=9).map(|issue| (format!("issue-{issue}"), branch(issue))).collect(),
        held: BTreeMap::new(),
        dry_run: false,
    }
}

#[tokio::test]
async fn g10_only_merged_clean_and_idle_worktrees_go() {
    let ground = Ground::new().await;
    for issue in 1..=6 {
        let tree = ground.prepare(issue).await.unwrap().worktree;
        if issue > 1 && issue != 5 {
            files::write_public(tree.path().join(format!("f{issue}")).as_path(), b"x\n").unwrap();
            let message = CommitMessage { subject: "x".into(), body: String::new(), trailers: Vec::new() };
            tree.commit_all(&message, &Identity::agentd()).await.unwrap();
        }
    }
    ground.git(&["merge", "-q", "--no-ff", "-m", "merge", "feature/issue-2"]).await;
    ground.write(".worktrees/issue-5/new.txt", "uncommitted\n");
    ground.write(".worktrees/mine/x", "not a worktree\n");
    ground.write(".worktrees/issue-2/build.log", "ignored\n");
    let mut plan = plan(&ground).await;
    // A person's commit came after what is in the worktree. That of another work has nothing of it.
    let more = ["commit-tree", "-p", "feature/issue-4", "-m", "more", "feature/issue-4^{tree}"];
    let merged = ground.git(&more).await;
    let other = ground
        .git(&["commit-tree", "-p", "feature/issue-3~1", "-m", "other", "feature/issue-3^{tree}"])
        .await;
    let merged = CommitId::parse(merged.trim()).unwrap();
    plan.own_merged.insert("issue-4".to_owned(), vec![merged]);
    let other = CommitId::parse(other.trim()).unwrap();
    plan.own_merged.insert("issue-3".to_owned(), vec![other]);
    // Another issue that was stacked on it has its commits, and is merged nowhere.
    plan.own_merged.insert("issue-1".to_owned(), vec![ground.head("feature/issue-6").await]);
    plan.held = BTreeMap::from([("issue-1".to_owned(), "agent-issue-1-T is running".to_owned())]);
    plan.dry_run = true;
    let checkout = ground.checkout().await;
    let rehearsed = checkout.prune(&plan).await.unwrap();
    assert_eq!(rehearsed.iter().filter(|one| one.outcome == PruneOutcome::WouldRemove).count(), 2);
    plan.dry_run = false;
    let tip = ground.head("feature/issue-2").await;
    let report: BTreeMap<String, PruneOutcome> =
        checkout.prune(&plan).await.unwrap().into_iter().map(|one| (one.name, one.outcome)).collect();
    let kept = |name: &str| match &report[name] {
        PruneOutcome::Kept { reason } => reason.clone(),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(kept("issue-1"), "agent-issue-1-T is running");
    assert!(kept("issue-3").contains("is not merged"));
    assert!(kept("issue-5").contains("new.txt has uncommitted changes"));
    assert!(kept("issue-6").contains("is not merged"));
    assert_eq!(kept("mine"), "it is not a worktree of this repository");
    for name in ["issue-2", "issue-4"] {
        assert!(
            matches!(&report[name], PruneOutcome::Removed { files, .. } if *files > 0),
            "{:?}",
            report[name]
        );
        assert!(!ground.exists(&format!(".worktrees/{name}")));
    }
    assert_eq!(ground.head("refs/agentd/retired/feature/issue-2").await, tip);
    assert_eq!(ground.git(&["branch", "--list", "feature/issue-2"]).await, "");
    let listed = checkout.list_worktrees(&plan.root).await.unwrap();
    let names: Vec<_> = listed.iter().map(|one| (one.name.as_str(), one.changed)).collect();
    assert_eq!(
        names,
        [("issue-1", Some(0)), ("issue-3", Some(0)), ("issue-5", Some(1)), ("issue-6", Some(0))]
    );
}

#[tokio::test]
async fn a_locked_or_detached_or_unfinished_worktree_stays() {
    let ground = Ground::new().await;
    for issue in 1..=3 {
        ground.prepare(issue).await.unwrap();
    }
    ground.git(&["worktree", "lock", ".worktrees/issue-1"]).await;
    ground.git_in(&ground.at(".worktrees/issue-2"), &["switch", "-q", "--detach"]).await;
    ground.git_in(&ground.at(".worktrees/issue-3"), &["bisect", "start"]).await;
    let report = ground.checkout().await.prune(&plan(&ground).await).await.unwrap();
    let reasons: Vec<_> = report.iter().map(|one| format!("{:?}", one.outcome)).collect();
    assert!(
        reasons[0].contains("locked") && reasons[1].contains("no branch") && reasons[2].contains("bisect"),
        "{reasons:?}"
    );
}

#[tokio::test]
async fn a_worktree_that_holds_another_repository_stays_even_where_git_ignores_it() {
    let ground = Ground::new().await;
    for (issue, folder) in [(1, "target/sub"), (2, "sub")] {
        ground.prepare(issue).await.unwrap();
        let sub = ground.at(&format!(".worktrees/issue-{issue}/{folder}"));
        files::create_dir(sub.as_path()).unwrap();
        ground.git_in(&sub, &["init", "-q"]).await;
        ground.git_in(&sub, &["commit", "-q", "--allow-empty", "-m", "nowhere else"]).await;
    }
    let checkout = ground.checkout().await;
    let mut plan = plan(&ground).await;
    for dry_run in [true, false] {
        plan.dry_run = dry_run;
        for (one, folder) in checkout.prune(&plan).await.unwrap().iter().zip(["target/sub", "sub"]) {
            let reason = format!("it holds a repository of its own, {folder}");
            assert_eq!(one.outcome, PruneOutcome::Kept { reason }, "{dry_run}");
        }
    }
    let listed = checkout.list_worktrees(&plan.root).await.unwrap();
    let nested: Vec<_> = listed.iter().map(|one| one.nested.as_deref()).collect();
    assert_eq!(nested, [Some("target/sub"), Some("sub")]);
}

#[tokio::test]
async fn a_worktree_is_found_by_its_name() {
    let ground = Ground::new().await;
    ground.prepare(7).await.unwrap();
    let checkout = ground.checkout().await;
    let root = ground.at(".worktrees");
    let found = checkout.find_worktree(&root, "issue-7").unwrap().unwrap();
    assert_eq!(found.branch().as_str(), "feature/issue-7");
    assert!(checkout.find_worktree(&root, "issue-8").unwrap().is_none());
}

#[tokio::test]
async fn a_worktree_that_was_made_since_the_plan_stays() {
    let ground = Ground::new().await;
    ground.prepare(1).await.unwrap();
    let mut plan = plan(&ground).await;
    plan.free.remove("issue-1");
    let report = ground.checkout().await.prune(&plan).await.unwrap();
    assert_eq!(report[0].outcome, PruneOutcome::Kept { reason: "it was made only now".into() });
    assert!(ground.exists(".worktrees/issue-1"));
}

/// A merged worktree of an issue, with a submodule in it.
pub async fn with_submodule() -> (Ground, (Ground, super::Served), agentd::git::worktree::Worktree) {
    let ground = Ground::new().await;
    let library = Ground::named("library").await;
    let (served, from) = library.served();
    ground.git(&["submodule", "--quiet", "add", from.as_str(), "vendor/lib"]).await;
    ground.git(&["commit", "-qm", "library"]).await;
    let tree = ground.prepare(7).await.unwrap().worktree;
    (ground, (library, served), tree)
}

#[tokio::test]
async fn a_merged_worktree_goes_with_a_submodule_that_is_as_it_was() {
    let (ground, _served, _) = with_submodule().await;
    let report = ground.checkout().await.prune(&plan(&ground).await).await.unwrap();
    assert!(matches!(report[0].outcome, PruneOutcome::Removed { .. }), "{report:?}");
    assert!(!ground.exists(".worktrees/issue-7"));
    // What an earlier one left is in the way of none that follows.
    let again = ground.prepare(8).await.unwrap();
    assert_eq!(ground.read(".worktrees/issue-8/vendor/lib/src/lib.rs"), "pub fn f() {}\n");
    assert_eq!(again.worktree.edited_submodules().await.unwrap(), []);
}

#[tokio::test]
async fn a_submodule_with_something_of_its_own_keeps_its_worktree() {
    for what in ["edit", "new", "commit", "detached", "branch", "stash"] {
        let (ground, _served, tree) = with_submodule().await;
        let lib = tree.path().join("vendor/lib");
        let edit = || ground.write(".worktrees/issue-7/vendor/lib/src/lib.rs", "pub fn g() {}\n");
        let ada = ["-c", "user.name=A", "-c", "user.email=a@b"];
        let commit = ["commit", "-qam", "own"];
        match what {
            "edit" => edit(),
            "new" => ground.write(".worktrees/issue-7/vendor/lib/new.txt", "x\n"),
            "stash" => {
                edit();
                ground.git_in(&lib, &[&ada[..], &["stash", "-q"]].concat()).await;
            }
            _ => {
                let before = ground.git_in(&lib, &["rev-parse", "HEAD"]).await;
                let away = if what == "detached" {
                    &["checkout", "-q", "--detach"][..]
                } else {
                    &["checkout", "-q", "-b", "own"]
                };
                ground.git_in(&lib, away).await;
                edit();
                ground.git_in(&lib, &[&ada[..], &commit[..]].concat()).await;
                if what == "branch" {
                    ground.git_in(&lib, &["checkout", "-q", &before]).await;
                }
            }
        }
        let report = ground.checkout().await.prune(&plan(&ground).await).await.unwrap();
        assert!(matches!(report[0].outcome, PruneOutcome::Kept { .. }), "{what}: {report:?}");
        assert!(ground.exists(".worktrees/issue-7/vendor/lib/src/lib.rs"), "{what}");
        let edited = tree.edited_submodules().await.unwrap();
        assert_eq!(!edited.is_empty(), ["edit", "new"].contains(&what), "{what}: {edited:?}");
    }
}

#[tokio::test]
async fn a_submodule_within_a_submodule_keeps_its_worktree_only_with_something_of_its_own() {
    for what in ["nothing", "edit", "commit", "branch", "staged"] {
        let (ground, library, inner) =
            (Ground::new().await, Ground::named("library").await, Ground::named("inner").await);
        let (_inner_served, from) = inner.served();
        library.git(&["submodule", "--quiet", "add", from.as_str(), "inner"]).await;
        library.git(&["commit", "-qm", "inner"]).await;
        let (_served, from) = library.served();
        ground.git(&["submodule", "--quiet", "add", from.as_str(), "vendor/lib"]).await;
        ground.git(&["commit", "-qm", "library"]).await;
        let tree = ground.prepare(7).await.unwrap().worktree;
        let (lib, own) = (tree.path().join("vendor/lib"), tree.path().join("vendor/lib/inner"));
        assert_eq!(ground.read(".worktrees/issue-7/vendor/lib/inner/src/lib.rs"), "pub fn f() {}\n");
        if what != "nothing" {
            let before = ground.git_in(&own, &["rev-parse", "HEAD"]).await;
            ground
                .git_in(&own, &["checkout", "-q", if what == "branch" { "-bown" } else { "--detach" }])
                .await;
            ground.write(".worktrees/issue-7/vendor/lib/inner/src/lib.rs", "pub fn g() {}\n");
            if what != "edit" {
                ground.git_in(&own, &["commit", "-qam", "own"]).await;
            }
            if what == "branch" {
                ground.git_in(&own, &["checkout", "-q", &before]).await;
            }
            if what == "staged" {
                ground.git_in(&lib, &["add", "inner"]).await;
            }
        }
        let report = ground.checkout().await.prune(&plan(&ground).await).await.unwrap();
        let is_removed = matches!(report[0].outcome, PruneOutcome::Removed { .. });
        assert_eq!(is_removed, what == "nothing", "{what}: {report:?}");
        assert_eq!(ground.exists(".worktrees/issue-7/vendor/lib/inner/src/lib.rs"), !is_removed, "{what}");
    }
}

#[tokio::test]
async fn what_tools_leave_in_a_submodule_is_no_edit_of_it() {
    let (ground, _served, tree) = with_submodule().await;
    ground.write(".worktrees/issue-7/vendor/lib/__pycache__/a.pyc", "x\n");
    assert_eq!(tree.edited_submodules().await.unwrap(), []);
}

#[tokio::test]
async fn worktrees_whose_whole_checkout_was_moved_are_listed_where_they_are_and_stay_with_the_remedy() {
    let ground = Ground::new().await;
    let tree = ground.prepare(1).await.unwrap().worktree;
    files::write_public(tree.path().join("new.txt").as_path(), b"x\n").unwrap();
    ground.beside("mv", &["repo", "a shop"]).await;
    let place = ground.at("~/a shop");
    let ground = ground.at_place(place);
    let checkout = ground.checkout().await;
    let listed = checkout.list_worktrees(&ground.at(".worktrees")).await.unwrap();
    let found: Vec<_> = listed.iter().map(|one| (one.name.as_str(), one.present, one.changed)).collect();
    assert_eq!(found, [("issue-1", true, Some(1))]);
    assert_eq!(listed[0].path, ground.at(".worktrees/issue-1"));
    let report = checkout.prune(&plan(&ground).await).await.unwrap();
    let [one] = report.as_slice() else { panic!("{report:?}") };
    let PruneOutcome::Kept { reason } = &one.outcome else { panic!("{one:?}") };
    let remedy = reason.split_once("mend that: ").unwrap().1;
    ground.beside("sh", &["-c", remedy]).await;
    let report = checkout.prune(&plan(&ground).await).await.unwrap();
    let PruneOutcome::Kept { reason } = &report[0].outcome else { panic!("{report:?}") };
    assert!(reason.contains("new.txt has uncommitted changes"), "{reason}");
}
