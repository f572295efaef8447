//! Warm worktrees: each becomes the worktree of one issue, as git would have made it, whatever is killed when.

use std::path::PathBuf;

use agentd::domain::event::WorktreeState;
use agentd::git::{Checkout, Filled, PoolPlan, Population};
use agentd::sys::files;
use agentd::sys::paths::AbsPath;

use super::{Ground, exists};

fn plan(ground: &Ground, members: usize) -> PoolPlan {
    PoolPlan { root: ground.repo.join(".worktrees"), members, population: Population::default() }
}

async fn fill(ground: &Ground, members: usize) -> Filled {
    ground.checkout().await.fill_pool(&plan(ground, members)).await.unwrap()
}

/// The members' folders.
fn members(ground: &Ground) -> Vec<AbsPath> {
    let folder = ground.repo.join(".worktrees/.pool");
    let found = std::fs::read_dir(folder.as_path()).into_iter().flatten().flatten();
    let mut found: Vec<_> = found.map(|entry| folder.join(entry.file_name())).collect();
    found.sort();
    found
}

/// Git's administrative directory of a worktree.
fn entry_of(place: &AbsPath) -> AbsPath {
    let link = std::fs::read_to_string(place.join(".git").as_path()).unwrap();
    AbsPath::new(link.trim_end().strip_prefix("gitdir: ").unwrap()).unwrap()
}

fn listing(place: &AbsPath) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(place.as_path().join(&folder)).unwrap().flatten() {
            let path = folder.join(entry.file_name());
            match entry.file_type().unwrap().is_dir() {
                true => open.push(path),
                false if path == std::path::Path::new(".git") => {}
                false => found.push((path.clone(), std::fs::read(place.as_path().join(&path)).unwrap())),
            }
        }
    }
    found.sort();
    found
}

/// A worktree that stands as one that git made for the issue.
async fn stands(ground: &Ground, issue: u32) {
    let place = ground.repo.join(format!(".worktrees/issue-{issue}"));
    assert_eq!(ground.git_in(&place, &["branch", "--show-current"]).await, format!("feature/issue-{issue}"));
    assert_eq!(ground.git_in(&place, &["rev-parse", "HEAD"]).await, ground.head("main").await.to_string());
    assert_eq!(ground.git_in(&place, &["status", "--porcelain", "--ignored"]).await, "");
    let plain = ground.home.join(format!("plain-{issue}"));
    ground.git(&["worktree", "add", "-q", "--detach", plain.to_string().as_str(), "main"]).await;
    assert_eq!(listing(&place), listing(&plain));
    ground.git(&["worktree", "remove", plain.to_string().as_str()]).await;
    assert_eq!(ground.git(&["worktree", "prune", "--dry-run", "--verbose"]).await, "");
    assert!(!exists(&entry_of(&place), "agentd-pool-ready"));
    assert!(!exists(&entry_of(&place), "agentd-preparing"));
}

#[tokio::test]
async fn a_member_becomes_the_worktree_of_one_issue_at_the_commit_that_it_is_to_have() {
    let ground = Ground::new().await;
    let before = ground.main_state().await;
    assert_eq!(fill(&ground, 2).await, Filled { ready: 2, made: 2, ..Filled::default() });
    assert_eq!(ground.main_state().await, before);
    let warm = members(&ground);
    let inode = |place: &AbsPath| {
        use std::os::unix::fs::MetadataExt as _;
        place.as_path().metadata().unwrap().ino()
    };
    let known: Vec<u64> = warm.iter().map(inode).collect();
    // The main branch went on, and a file went.
    ground.write("later.txt", "later\n");
    ground.git(&["add", "-A"]).await;
    ground.git(&["rm", "-q", "src/lib.rs"]).await;
    ground.git(&["commit", "-qm", "later"]).await;
    let taken = ground.prepare(7).await.unwrap();
    assert_eq!((taken.state, taken.warnings.len()), (WorktreeState::Created, 0), "{:?}", taken.warnings);
    assert!(known.contains(&inode(taken.worktree.path())), "it was not taken from the pool");
    stands(&ground, 7).await;
    // Another look at it finds it, and the list has no member of the pool.
    assert_eq!(ground.prepare(7).await.unwrap().state, WorktreeState::Reused);
    let listed = ground.checkout().await.list_worktrees(&ground.repo.join(".worktrees")).await.unwrap();
    assert_eq!(listed.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["issue-7"]);
    // Two more: one warm, one not.
    ground.prepare(8).await.unwrap();
    assert_eq!(members(&ground).len(), 0);
    ground.prepare(9).await.unwrap();
    for issue in [8, 9] {
        stands(&ground, issue).await;
    }
    let commit = ground.prepare(8).await.unwrap().worktree;
    files::write_public(commit.path().join("a.txt").as_path(), b"work\n").unwrap();
    assert_eq!(commit.status().await.unwrap().len(), 1);
}

#[tokio::test]
async fn where_somebody_has_been_nobody_works_and_nothing_is_removed() {
    let ground = Ground::new().await;
    for (at, file) in
        ["target/debug/built", "noise.log", "new.txt", "a.txt", "deep/.git/x"].iter().enumerate()
    {
        fill(&ground, 1).await;
        let member = members(&ground).into_iter().find(|place| exists(&entry_of(place), "agentd-pool-ready"));
        let member = member.unwrap();
        let path = member.join(file);
        files::create_dir(path.parent().unwrap().as_path()).unwrap();
        files::write_public(path.as_path(), b"of somebody\n").unwrap();
        let issue = 20 + u32::try_from(at).unwrap();
        ground.prepare(issue).await.unwrap();
        stands(&ground, issue).await;
        assert_eq!(std::fs::read(path.as_path()).unwrap(), b"of somebody\n");
        let filled = fill(&ground, 0).await;
        assert_eq!((filled.left_alone.len(), filled.removed), (at + 1, 0), "{file}");
    }
}

#[tokio::test]
async fn one_of_another_kind_or_too_many_go_and_are_not_taken() {
    let ground = Ground::new().await;
    fill(&ground, 2).await;
    let mut narrow = plan(&ground, 1);
    narrow.population.sparse = vec!["src".into()];
    let filled = ground.checkout().await.fill_pool(&narrow).await.unwrap();
    assert_eq!((filled.ready, filled.made, filled.removed), (1, 1, 2));
    // The issue's worktree is to be whole.
    ground.prepare(7).await.unwrap();
    stands(&ground, 7).await;
    assert_eq!(members(&ground).len(), 1);
    assert_eq!(fill(&ground, 0).await, Filled { removed: 1, ..Filled::default() });
    assert_eq!(members(&ground).len(), 0);
    assert_eq!(ground.git(&["worktree", "list"]).await.lines().count(), 2);
    // The repository's own hooks would have run in another place.
    fill(&ground, 1).await;
    let hooked = Checkout::open(ground.program(), &ground.repo, true).await.unwrap();
    hooked.prepare_worktree(&ground.plan(8, None).await).await.unwrap();
    assert_eq!(members(&ground).len(), 1);
}

/// What a kill leaves: at each place in between, by hand.
#[tokio::test]
async fn killed_anywhere_no_worktree_is_lost_none_is_used_twice_and_the_next_one_stands() {
    type Left = fn(&AbsPath, &AbsPath, &AbsPath);
    let taken: Left = |_, entry, _| {
        files::rename(entry.join("agentd-pool-ready").as_path(), entry.join("agentd-preparing").as_path())
            .unwrap();
    };
    let on_branch: Left = |_, entry, _| {
        files::rename(entry.join("agentd-pool-ready").as_path(), entry.join("agentd-preparing").as_path())
            .unwrap();
        files::write_public(entry.join("HEAD").as_path(), b"ref: refs/heads/feature/issue-7\n").unwrap();
    };
    let moved: Left = |member, entry, place| {
        files::rename(entry.join("agentd-pool-ready").as_path(), entry.join("agentd-preparing").as_path())
            .unwrap();
        files::write_public(entry.join("HEAD").as_path(), b"ref: refs/heads/feature/issue-7\n").unwrap();
        files::rename(member.as_path(), place.as_path()).unwrap();
    };
    let made_by_half: Left = |member, entry, _| {
        files::remove_file(entry.join("agentd-pool-ready").as_path()).unwrap();
        files::write_private(entry.join("agentd-preparing").as_path(), b"").unwrap();
        files::remove_file(member.join("a.txt").as_path()).unwrap();
    };
    let only_added: Left = |member, entry, _| {
        files::remove_file(entry.join("agentd-pool-ready").as_path()).unwrap();
        for file in ["a.txt", "src/lib.rs", ".gitignore"] {
            files::remove_file(member.join(file).as_path()).unwrap();
        }
        std::fs::remove_dir(member.join("src").as_path()).unwrap();
    };
    let removed_by_half: Left = |member, _, _| {
        let going = member.parent().unwrap().join("gone-x");
        files::rename(member.as_path(), going.as_path()).unwrap();
    };
    let cases: [(&str, Left, bool); 7] = [
        ("taken", taken, false),
        ("on the branch, which is not there", on_branch, false),
        ("on the branch", on_branch, true),
        ("moved", moved, true),
        ("made by half", made_by_half, false),
        ("only added", only_added, false),
        ("removed by half", removed_by_half, false),
    ];
    for (what, leave, has_branch) in cases {
        let ground = Ground::new().await;
        fill(&ground, 1).await;
        let member = members(&ground).remove(0);
        if has_branch {
            ground.git(&["branch", "feature/issue-7", "main"]).await;
        }
        leave(&member, &entry_of(&member), &ground.repo.join(".worktrees/issue-7"));
        let checkout = ground.checkout().await;
        checkout.check_worktree(&ground.plan(7, None).await, None).await.unwrap();
        ground.prepare(7).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        stands(&ground, 7).await;
        let filled = fill(&ground, 1).await;
        assert_eq!((filled.ready, filled.left_alone.len()), (1, 0), "{what}: {filled:?}");
        assert_eq!(members(&ground).len(), 1, "{what}");
        ground.prepare(8).await.unwrap();
        stands(&ground, 8).await;
    }
}

#[tokio::test]
async fn many_at_once_share_no_member() {
    let ground = Ground::new().await;
    fill(&ground, 3).await;
    let issues: Vec<u32> = (1..=6).collect();
    let taken = futures::future::join_all(issues.iter().map(|issue| ground.prepare(*issue))).await;
    let mut places: Vec<String> =
        taken.into_iter().map(|one| one.unwrap().worktree.git_dir().to_string()).collect();
    places.sort();
    places.dedup();
    assert_eq!(places.len(), issues.len());
    for issue in issues {
        stands(&ground, issue).await;
    }
}

#[tokio::test]
async fn a_persons_worktree_in_the_folder_of_the_pool_is_no_member_and_stays() {
    let ground = Ground::new().await;
    let branches = [("own", "feature/issue-8"), ("gone-on-holiday", "mine"), ("bare", "bare")];
    for (name, branch) in branches {
        let place = format!(".worktrees/.pool/{name}");
        // As a member that is unfinished, it has no files.
        ground.git(&["worktree", "add", "-q", "--no-checkout", "-b", branch, &place, "main"]).await;
    }
    assert_eq!(fill(&ground, 1).await, Filled { ready: 1, made: 1, ..Filled::default() });
    ground.prepare(7).await.unwrap();
    let refused = ground.prepare(8).await.unwrap_err().to_string();
    assert!(refused.contains("is checked out in") && refused.contains(".pool/own"), "{refused}");
    assert_eq!(fill(&ground, 0).await, Filled::default());
    for (name, branch) in branches {
        let place = ground.repo.join(format!(".worktrees/.pool/{name}"));
        assert_eq!(ground.git_in(&place, &["branch", "--show-current"]).await, branch);
    }
}
