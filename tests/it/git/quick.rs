//! What is told without a git program is what git says, byte for byte; and where it could not be told, git is asked.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};

use agentd::git::{Checkpoint, Worktree};
use agentd::sys::files;

use super::Ground;

fn put(worktree: &Worktree, path: &str, text: &str) {
    let path = worktree.path().join(path);
    files::create_dir(path.parent().unwrap().as_path()).unwrap();
    files::write_public(path.as_path(), text.as_bytes()).unwrap();
}

fn remove(worktree: &Worktree, path: &str) {
    assert!(files::remove_file(worktree.path().join(path).as_path()).unwrap(), "{path}");
}

/// Whether agentd's index is written anew by `look`: then git was asked.
async fn tree_and_whether_git_was_asked(tree: &Worktree) -> (String, bool) {
    let index = tree.git_dir().join("agentd-index");
    let before = files::stamp(index.as_path());
    let found = tree.tree().await.unwrap();
    (found, files::stamp(index.as_path()) != before)
}

/// The tree as git alone makes it: of a worktree of which nothing is known yet.
async fn by_git(ground: &Ground) -> String {
    let fresh = ground.prepare(7).await.unwrap().worktree;
    let (tree, asked) = tree_and_whether_git_was_asked(&fresh).await;
    assert!(asked, "nothing was known, and git was not asked");
    tree
}

/// What a case does to the worktree; whether git has to be asked for it.
type Case = (&'static str, bool, fn(&Worktree));

const CASES: &[Case] = &[
    ("nothing", false, |_| {}),
    ("edits, new files, deletions", false, |tree| {
        put(tree, "a.txt", "other\n");
        put(tree, "new.txt", "n\n");
        put(tree, "deep/er/and/deeper/file", "x\n");
        put(tree, "a-b", "1\n");
        put(tree, "a.b/c", "2\n");
        put(tree, "a0", "3\n");
        put(tree, "empty", "");
        remove(tree, "src/lib.rs");
    }),
    ("a program, a link, a link into nothing", false, |tree| {
        let program = tree.path().join("a.txt");
        std::fs::set_permissions(program.as_path(), PermissionsExt::from_mode(0o755)).unwrap();
        symlink("a.txt", tree.path().join("link").as_path()).unwrap();
        symlink("/nowhere", tree.path().join("deep-link").as_path()).unwrap();
        remove(tree, "src/lib.rs");
        symlink("../a.txt", tree.path().join("src/lib.rs").as_path()).unwrap();
    }),
    ("what the repository ignores", false, |tree| {
        put(tree, "noise.log", "x\n");
        put(tree, "deep/noise.log", "x\n");
        put(tree, "target/debug/a", "x\n");
        put(tree, "sub/.gitignore", "*.tmp\n!kept.log\n");
        put(tree, "sub/x.tmp", "x\n");
        put(tree, "sub/kept.log", "x\n");
        put(tree, "sub/y", "y\n");
    }),
    ("what no list makes an exception of", false, |tree| {
        put(tree, "noise.log", "x\n");
        put(tree, "target/debug/a", "x\n");
        put(tree, "sub/.gitignore", "*.tmp\n/only-here\n**/gen/*.c\n");
        put(tree, "sub/x.tmp", "x\n");
        put(tree, "sub/only-here", "x\n");
        put(tree, "sub/a/only-here", "x\n");
        put(tree, "sub/a/gen/x.c", "x\n");
        put(tree, "sub/a/gen/x.h", "x\n");
    }),
    ("what agentd excludes, and what the repository wants all the same", false, |tree| {
        put(tree, "node_modules/left/pad.js", "x\n");
        put(tree, "web/.gitignore", "!node_modules/\n");
        put(tree, "web/node_modules/own.js", "x\n");
    }),
    ("what an exception brings back, and what agentd excludes beside it", false, |tree| {
        put(tree, ".gitignore", "*.log\n/target/\n!seen.log\n");
        put(tree, "seen.log", "x\n");
        put(tree, "unseen.log", "x\n");
        put(tree, "target/x", "x\n");
        put(tree, "web/node_modules/own.js", "x\n");
        put(tree, "web/__pycache__/x.pyc", "x\n");
        put(tree, "web/[x]/seen.log", "x\n");
    }),
    ("names of all kinds", false, |tree| {
        put(tree, "with space", "1\n");
        put(tree, "ünïcode/ñame", "2\n");
        put(tree, "A.TXT", "3\n");
        put(tree, "-dash", "4\n");
        put(tree, "tab\there", "5\n");
        put(tree, &["d"; 40].join("/"), "6\n");
        put(tree, "docs/git-notes.md", "7\n");
    }),
    ("bytes of all kinds", false, |tree| put(tree, "bin", "a\0b\u{fffd}\n")),
    ("line ends that git may store otherwise", true, |tree| {
        put(tree, ".gitattributes", "* text=auto\n");
        put(tree, "dos.txt", "a\r\nb\r\n");
    }),
    ("a keyword that git stores otherwise", true, |tree| {
        put(tree, ".gitattributes", "*.c ident\n");
        put(tree, "x.c", "$Id: 1234 $\n");
    }),
    ("another encoding", true, |tree| {
        put(tree, ".gitattributes", "*.u16 working-tree-encoding=UTF-16LE\n");
        put(tree, "x.u16", "a\0b\0");
    }),
    ("a file where a folder was", true, |tree| {
        remove(tree, "src/lib.rs");
        std::fs::remove_dir(tree.path().join("src").as_path()).unwrap();
        put(tree, "src", "file\n");
    }),
    ("a folder where a file was", true, |tree| {
        remove(tree, "a.txt");
        put(tree, "a.txt/inner", "x\n");
    }),
    ("rules behind a link", true, |tree| {
        put(tree, "rules", "*.txt\n");
        symlink("rules", tree.path().join("src/.gitignore").as_path()).unwrap();
        put(tree, "src/x.txt", "x\n");
    }),
    ("a name that git refuses", true, |tree| put(tree, "sub/git~1", "x\n")),
    ("a name that is no text", true, |tree| {
        use std::os::unix::ffi::OsStrExt as _;
        let name = std::ffi::OsStr::from_bytes(b"latin-\xe9");
        files::write_public(&tree.path().as_path().join(name), b"x\n").unwrap();
    }),
];

#[tokio::test]
async fn what_is_told_without_git_is_what_git_says() {
    for (what, asks, act) in CASES {
        let ground = Ground::new().await;
        let tree = ground.prepare(7).await.unwrap().worktree;
        act(&tree);
        let (found, asked) = tree_and_whether_git_was_asked(&tree).await;
        assert_eq!(found, by_git(&ground).await, "{what}");
        assert_eq!(asked, *asks, "{what}");
    }
}

#[tokio::test]
async fn a_repository_in_the_worktree_and_other_settings_are_left_to_git() {
    let ground = Ground::new().await;
    let tree = ground.prepare(7).await.unwrap().worktree;
    ground.git_in(tree.path(), &["init", "-q", "nested"]).await;
    put(&tree, "nested/inner.txt", "x\n");
    assert!(tree_and_whether_git_was_asked(&tree).await.1);
    files::remove_dir(tree.path().join("nested").as_path()).unwrap();
    ground.git(&["config", "core.fileMode", "false"]).await;
    let program = tree.path().join("a.txt");
    std::fs::set_permissions(program.as_path(), PermissionsExt::from_mode(0o755)).unwrap();
    let (found, asked) = tree_and_whether_git_was_asked(&tree).await;
    assert_eq!((found, asked), (by_git(&ground).await, true));
}

#[tokio::test]
async fn a_tracked_file_that_is_ignored_goes_and_comes_back() {
    let ground = Ground::new().await;
    ground.write("kept.log", "tracked\n");
    ground.git(&["add", "-f", "kept.log"]).await;
    ground.git(&["commit", "-qm", "log"]).await;
    let tree = ground.prepare(7).await.unwrap().worktree;
    let whole = tree.tree().await.unwrap();
    remove(&tree, "kept.log");
    let without = tree.tree().await.unwrap();
    assert_eq!(without, by_git(&ground).await);
    // The index is git's now, without the file.
    assert_eq!(tree.tree().await.unwrap(), without);
    put(&tree, "kept.log", "tracked\n");
    assert_eq!(tree.tree().await.unwrap(), whole);
    assert_eq!(by_git(&ground).await, whole);
}

#[tokio::test]
async fn many_changes_in_a_row_are_told_as_git_tells_them() {
    let ground = Ground::new().await;
    for at in 0..60 {
        ground.write(&format!("d{}/e{}/f{at}", at % 4, at % 3), &format!("{at}\n"));
    }
    ground.git(&["add", "-A"]).await;
    ground.git(&["commit", "-qm", "many"]).await;
    let tree = ground.prepare(7).await.unwrap().worktree;
    let mut seed = 7_u64;
    let mut dice = move |sides: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % sides
    };
    let mut quick = 0;
    for round in 0..40 {
        for _ in 0..=dice(4) {
            let path = format!("d{}/e{}/f{}", dice(5), dice(4), dice(60));
            match dice(3) {
                0 => drop(files::remove_file(tree.path().join(&path).as_path())),
                _ => put(&tree, &path, &format!("{round}\n")),
            }
        }
        let (found, asked) = tree_and_whether_git_was_asked(&tree).await;
        quick += usize::from(!asked);
        if round % 4 == 3 {
            assert_eq!(found, by_git(&ground).await, "round {round}");
        }
    }
    assert!(quick >= 25, "{quick}");
}

#[tokio::test]
async fn a_checkpoint_of_written_files_is_the_one_that_git_would_make() {
    let ground = Ground::new().await;
    let tree = ground.prepare(7).await.unwrap().worktree;
    let name = |at: usize| format!("refs/agentd/checkpoints/r/{at}");
    let commit = tree.checkpoint(&name(0), "visit 0").await.unwrap();
    let mut last = Checkpoint { reference: name(0), commit };
    // Paths, what is in them, and whether it can be told without a look at the rest.
    let rounds: &[(&[(&str, &str)], bool)] = &[
        (&[("a.txt", "one\n")], true),
        (&[("a.txt", "two\n"), ("new/file.rs", "x\n"), ("src/lib.rs", "y\n")], true),
        (&[("noise.log", "ignored\n"), ("a.txt", "three\n")], true),
        (&[("a.txt", "dos\r\n")], false),
        (&[(".gitignore", "*.rs\n")], false),
        (&[("new/other.rs", "ignored now\n"), ("new/file.rs", "tracked\n")], true),
        (&[("node_modules/x.js", "excluded\n")], true),
    ];
    for (at, (writes, told)) in rounds.iter().enumerate() {
        writes.iter().for_each(|(path, text)| put(&tree, path, text));
        let paths: BTreeSet<String> = writes.iter().map(|(path, _)| (*path).to_owned()).collect();
        let made = tree.checkpoint_of(&last, paths, &name(at + 1), "visit").await.unwrap();
        assert_eq!(made.is_some(), *told, "{writes:?}");
        last = match made {
            Some(kept) => kept,
            None => {
                let commit = tree.checkpoint(&name(at + 1), "visit").await.unwrap();
                Checkpoint { reference: name(at + 1), commit }
            }
        };
        let kept = ground.git(&["rev-parse", &format!("{}^{{tree}}", last.commit)]).await;
        assert_eq!(kept, by_git(&ground).await, "{writes:?}");
        let shown = ground.git(&["log", "-1", "--format=%an %ae %cn %P %B", last.commit.as_str()]).await;
        let head = ground.head("feature/issue-7").await;
        assert_eq!(shown, format!("agentd agentd@localhost agentd {head} visit"));
        assert_eq!(ground.git(&["rev-parse", &last.reference]).await, last.commit.as_str());
    }
    // Nothing new: what was kept is kept already.
    let same = tree.checkpoint_of(&last, BTreeSet::from(["a.txt".to_owned()]), &name(99), "visit").await;
    let told = same.unwrap();
    assert!(told.is_none() || told == Some(last.clone()), "{told:?}");
    // The branch moved: the checkpoint would stand on another commit.
    put(&tree, "a.txt", "theirs\n");
    ground.git_in(tree.path(), &["commit", "-qam", "by the agent"]).await;
    let moved = tree.checkpoint_of(&last, BTreeSet::from(["a.txt".to_owned()]), &name(99), "visit").await;
    assert_eq!(moved.unwrap(), None);
    // Behind a link it would be another file.
    symlink("src", tree.path().join("linked").as_path()).unwrap();
    let linked = BTreeSet::from(["linked/lib.rs".to_owned()]);
    assert_eq!(tree.checkpoint_of(&last, linked, &name(99), "visit").await.unwrap(), None);
}

#[tokio::test]
async fn folders_whose_names_sort_otherwise_than_their_files_are_compared_again_and_again() {
    let ground = Ground::new().await;
    let tracked =
        ["a/x", "a/a/y", "a-b/x", "a-b/c/z", "a.b/x", "a b/x", "a0/x", "a0b", "ab/x", "a/-/q", "zz"];
    for path in tracked {
        ground.write(path, &format!("{path}\n"));
    }
    ground.git(&["add", "-A"]).await;
    ground.git(&["commit", "-qm", "names"]).await;
    let tree = ground.prepare(7).await.unwrap().worktree;
    let before = tree.tree().await.unwrap();
    // The index is read at the first of these, and stays.
    for path in tracked {
        put(&tree, path, "other\n");
        let (found, asked) = tree_and_whether_git_was_asked(&tree).await;
        assert_eq!((asked, found == before), (false, false), "{path}");
        remove(&tree, path);
        let (without, asked) = tree_and_whether_git_was_asked(&tree).await;
        assert!(!asked && without != found && without != before, "{path}");
        put(&tree, path, &format!("{path}\n"));
        assert_eq!(tree_and_whether_git_was_asked(&tree).await, (before.clone(), false), "{path}");
    }
    put(&tree, "a-b/new", "n\n");
    put(&tree, "a/a/y", "changed\n");
    let (found, asked) = tree_and_whether_git_was_asked(&tree).await;
    assert_eq!((asked, found.clone()), (false, by_git(&ground).await));
    // Another index stands there now.
    assert_eq!(tree.tree().await.unwrap(), found);
}

#[tokio::test]
async fn a_repository_that_is_kept_open_sees_what_others_change_in_it() {
    let ground = Ground::new().await;
    let tree = ground.prepare(7).await.unwrap().worktree;
    let mut at = 0;
    let mut written = |name: &str| {
        at += 1;
        put(&tree, name, &format!("{at}\n"));
    };
    written("one.txt");
    assert!(!tree_and_whether_git_was_asked(&tree).await.1);
    let same_as_git = async |what: &str, asks: bool| {
        let (found, asked) = tree_and_whether_git_was_asked(&tree).await;
        assert_eq!((asked, found), (asks, by_git(&ground).await), "{what}");
        // git has written the index anew: from here on it is compared with this one.
        tree.tree().await.unwrap();
    };
    ground.git(&["gc", "-q", "--prune=now"]).await;
    written("two.txt");
    same_as_git("packed anew", false).await;
    let excluded = ground.repo.join(".git/info/exclude");
    let known = std::fs::read_to_string(excluded.as_path()).unwrap();
    files::write_public(excluded.as_path(), format!("{known}*.private\n").as_bytes()).unwrap();
    written("mine.private");
    written("three.txt");
    same_as_git("other exclusions", false).await;
    written("more.private");
    written("four.txt");
    assert!(!tree_and_whether_git_was_asked(&tree).await.1);
    ground.git(&["config", "core.ignoreCase", "true"]).await;
    written("five.txt");
    assert!(tree_and_whether_git_was_asked(&tree).await.1, "another setting");
    ground.git(&["config", "--unset", "core.ignoreCase"]).await;
    written("six.txt");
    assert!(!tree_and_whether_git_was_asked(&tree).await.1);
    put(&tree, "a.txt", "theirs\n");
    ground.git_in(tree.path(), &["commit", "-qam", "by the agent"]).await;
    written("seven.txt");
    let found = tree.tree().await.unwrap();
    assert_eq!(found, by_git(&ground).await);
}

#[tokio::test]
async fn a_checkpoint_after_a_command_that_changed_nothing_is_the_one_before() {
    let ground = Ground::new().await;
    let tree = ground.prepare(7).await.unwrap().worktree;
    let name = |at: usize| format!("refs/agentd/checkpoints/r/{at}");
    let first = tree.checkpoint_after(None, &name(0), "visit 0").await.unwrap();
    assert_eq!(first.reference, name(0));
    let again = tree.checkpoint_after(Some(&first), &name(1), "visit 1").await.unwrap();
    assert_eq!(again, first);
    put(&tree, "a.txt", "other\n");
    let changed = tree.checkpoint_after(Some(&first), &name(2), "visit 2").await.unwrap();
    assert_eq!(changed.reference, name(2));
    assert_eq!(ground.git(&["rev-parse", &name(2)]).await, changed.commit.as_str());
    assert_eq!(tree.checkpoint_after(Some(&changed), &name(3), "visit 3").await.unwrap(), changed);
    // The same files on another commit.
    ground.git_in(tree.path(), &["commit", "-qam", "by the agent"]).await;
    let moved = tree.checkpoint_after(Some(&changed), &name(4), "visit 4").await.unwrap();
    assert_eq!(moved.reference, name(4));
    let head = ground.head("feature/issue-7").await;
    assert_eq!(ground.git(&["log", "-1", "--format=%P", moved.commit.as_str()]).await, head.as_str());
    // Somebody removed the last one.
    let gone =
        Checkpoint { commit: agentd::domain::name::CommitId::parse(&"0".repeat(40)).unwrap(), ..moved };
    let made = tree.checkpoint_after(Some(&gone), &name(5), "visit 5").await.unwrap();
    assert_eq!(made.reference, name(5));
}
