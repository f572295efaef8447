//! What an agent's worktree may not do: run a program, or take agentd's git anywhere else.

use std::os::unix::fs::PermissionsExt;

use agentd::domain::name::CommitId;
use agentd::git::{CommitMessage, GitError, Identity, PushOutcome, Remote, RemoteAuth, Worktree};
use agentd::sys::files;
use agentd::sys::paths::AbsPath;

use crate::git::{Ground, branch};
use crate::outside::daemons::{Running, until, until_or};
use crate::outside::world::{World, text};

/// Keys by which git runs a program, each set to one that leaves a file with the key's number.
const KEYS: [&str; 29] = [
    "core.fsmonitor",
    "core.sshCommand",
    "core.editor",
    "core.pager",
    "core.askPass",
    "core.alternateRefsCommand",
    "core.gitProxy",
    "credential.helper",
    "credential.https://example.invalid.helper",
    "filter.evil.clean",
    "filter.evil.smudge",
    "filter.evil.process",
    "filter.lfs.clean",
    "filter.lfs.process",
    "gpg.program",
    "gpg.ssh.program",
    "gpg.x509.program",
    "gpg.ssh.defaultKeyCommand",
    "diff.external",
    "diff.evil.textconv",
    "diff.evil.command",
    "merge.evil.driver",
    "sequence.editor",
    "submodule.vendor.update",
    "trailer.Agentd-Run.command",
    "trailer.Agentd-Run.cmd",
    "uploadpack.packObjectsHook",
    "alias.lfs",
    "remote.evil.uploadpack",
];

const HOOKS: [&str; 16] = [
    "applypatch-msg",
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "post-checkout",
    "post-merge",
    "pre-push",
    "pre-auto-gc",
    "post-rewrite",
    "reference-transaction",
    "post-index-change",
    "fsmonitor-watchman",
    "pre-rebase",
    "sendemail-validate",
];

/// Where an agent could have written them.
const PLACES: [Place; 5] =
    [Place::Repository, Place::Submodule, Place::SubmoduleElsewhere, Place::Nested, Place::Link];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The repository's own configuration.
    Repository,
    /// A repository in place of a submodule.
    Submodule,
    /// A submodule's `.git` that points to one.
    SubmoduleElsewhere,
    /// A repository among the files.
    Nested,
    /// The worktree's `.git` points to one.
    Link,
}

/// Keys of the repository that decide where a transfer goes: nothing is sent then.
const REDIRECTIONS: [&str; 9] = [
    "core.gitProxy",
    "url.evil.insteadOf",
    "url.evil.pushInsteadOf",
    "remote.URL.uploadpack",
    "remote.URL.receivepack",
    "remote.URL.vcs",
    "remote.URL.url",
    "remote.URL.pushurl",
    "remote.URL.proxy",
];

/// Addresses of submodules that a branch brings, and that nothing is fetched from.
const ADDRESSES: [&str; 8] = [
    "LOCAL",
    "file://LOCAL",
    "FILE://LOCAL",
    "./LOCAL/../..LOCAL",
    "ext::sh -c 'touch ran-ext'",
    "fd::3",
    "../library",
    "foo://host/x",
];

#[test]
fn the_attempts_on_git_and_on_a_branch_are_counted() {
    let cases = CASES + super::worktree_paths::count();
    assert!(cases >= 300, "{cases}");
}

/// Attempts of this file: each vector in each place is tried at every call; redirections; addresses; agents' own git
/// directories; and the way through the binary, in each mode.
pub const CASES: usize =
    (KEYS.len() + HOOKS.len()) * PLACES.len() + REDIRECTIONS.len() + ADDRESSES.len() + 2 + 3 + 3 + ODD.len();

fn identity() -> Identity {
    Identity { name: "Ada".into(), email: "ada@example.org".into() }
}

fn message() -> CommitMessage {
    CommitMessage {
        subject: "x".into(),
        body: String::new(),
        trailers: vec![("Agentd-Run".into(), "1".into())],
    }
}

/// A folder where programs leave their names, which nobody else writes to.
fn traps(ground: &Ground) -> AbsPath {
    ground.at("~/traps")
}

fn script(place: &AbsPath, text: &str) {
    files::create_dir(place.parent().unwrap().as_path()).unwrap();
    files::write_public(place.as_path(), text.as_bytes()).unwrap();
    std::fs::set_permissions(place.as_path(), PermissionsExt::from_mode(0o755)).unwrap();
}

/// Puts every vector into the repository whose git directory this is.
async fn poison(ground: &Ground, git_dir: &AbsPath) {
    let traps = traps(ground);
    files::create_dir(traps.as_path()).unwrap();
    let dir = git_dir.to_string();
    for (at, key) in KEYS.iter().enumerate() {
        // What waits for an answer gets none that is of use.
        let program = traps.join(format!("key-{at}.sh"));
        script(&program, &format!("#!/bin/sh\ntouch {traps}/ran-key-{at}\nexit 1\n"));
        let value = match *key {
            key if key.starts_with("credential") || key.starts_with("alias") || key.ends_with("update") => {
                format!("!{program}")
            }
            _ => program.to_string(),
        };
        ground.git_in(&ground.home, &["--git-dir", &dir, "config", key, &value]).await;
    }
    for (key, value) in [
        ("filter.evil.required", "true"),
        ("core.hooksPath", git_dir.join("hooks").to_string().as_str()),
        ("diff.ignoreSubmodules", "none"),
        ("submodule.recurse", "true"),
        ("submodule.vendor.ignore", "none"),
        ("status.submoduleSummary", "true"),
        ("remote.evil.url", git_dir.to_string().as_str()),
        ("remote.evil.promisor", "true"),
        ("commit.gpgSign", "false"),
        ("protocol.ext.allow", "always"),
        ("protocol.file.allow", "always"),
    ] {
        ground.git_in(&ground.home, &["--git-dir", &dir, "config", key, value]).await;
    }
    for (at, hook) in HOOKS.iter().enumerate() {
        script(&git_dir.join("hooks").join(*hook), &format!("#!/bin/sh\ntouch {traps}/ran-hook-{at}\n"));
    }
    let info = git_dir.join("info").join("attributes");
    files::create_dir(info.parent().unwrap().as_path()).unwrap();
    files::write_public(info.as_path(), b"* filter=evil diff=evil merge=evil\n").unwrap();
}

/// Names of what ran, which is forgotten then.
fn ran(ground: &Ground) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(traps(ground).as_path()).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(what) = name.strip_prefix("ran-") {
            let number = |text: &str| text.parse::<usize>().unwrap();
            found.push(match what.split_once('-').unwrap() {
                ("key", at) => KEYS[number(at)].to_owned(),
                (_, at) => HOOKS[number(at)].to_owned(),
            });
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    found.sort();
    found
}

/// A repository with a submodule, attributes that name drivers, and two branches that conflict, in the submodule too.
async fn ground() -> (Ground, Remote) {
    let ground = Ground::new().await;
    ground.write(".gitattributes", "*.txt filter=evil diff=evil merge=evil\n");
    ground.write(
        ".gitmodules",
        "[submodule \"vendor\"]\n\tpath = vendor\n\turl = https://example.invalid/v.git\n\tignore = none\n",
    );
    ground.git(&["add", "-A"]).await;
    let first = ground.head("main").await;
    let link = |id: &CommitId| format!("160000,{id},vendor");
    ground.git(&["update-index", "--add", "--cacheinfo", &link(&first)]).await;
    ground.git(&["commit", "-qm", "a submodule"]).await;
    let remote = ground.origin().await;
    // What is merged in later.
    ground.git(&["switch", "-qc", "conflicts"]).await;
    ground.write("a.txt", "theirs\n");
    ground.git(&["add", "a.txt"]).await;
    let other = ground.head("main").await;
    ground.git(&["update-index", "--cacheinfo", &link(&other)]).await;
    ground.git(&["commit", "-qm", "theirs"]).await;
    ground.git(&["switch", "-q", "main"]).await;
    (ground, remote)
}

/// Puts the vectors in their place in an agent's worktree.
async fn plant(ground: &Ground, tree: &Worktree, place: Place) {
    let repository = async |folder: &AbsPath| {
        files::create_dir(folder.as_path()).unwrap();
        ground.git_in(folder, &["init", "-q", "."]).await;
        files::write_public(folder.join("in.txt").as_path(), b"1\n").unwrap();
        ground.git_in(folder, &["add", "-A"]).await;
        ground.git_in(folder, &["commit", "-qm", "x"]).await;
        files::write_public(folder.join("in.txt").as_path(), b"2\n").unwrap();
        poison(ground, &folder.join(".git")).await;
    };
    match place {
        Place::Repository => poison(ground, &ground.at(".git")).await,
        Place::Submodule => repository(&tree.path().join("vendor")).await,
        Place::SubmoduleElsewhere => {
            repository(&ground.at("~/elsewhere")).await;
            files::create_dir(tree.path().join("vendor").as_path()).unwrap();
            let link = format!("gitdir: {}\n", ground.at("~/elsewhere/.git"));
            files::write_public(tree.path().join("vendor/.git").as_path(), link.as_bytes()).unwrap();
        }
        Place::Nested => repository(&tree.path().join("nested")).await,
        Place::Link => {
            repository(&ground.at("~/elsewhere")).await;
            let link = format!("gitdir: {}\n", ground.at("~/elsewhere/.git"));
            files::write_public(tree.path().join(".git").as_path(), link.as_bytes()).unwrap();
        }
    }
}

#[tokio::test]
async fn i21_no_call_of_agentds_git_runs_what_an_agent_planted() {
    for place in PLACES {
        let (ground, remote) = ground().await;
        let mut plan = ground.plan(7, Some(&remote)).await;
        plan.population.submodules = false;
        let checkout = ground.checkout().await;
        let ready = checkout.prepare_worktree(&plan).await.unwrap();
        let (tree, base) = (ready.worktree, ready.head);
        let conflicts = ground.head("conflicts").await;
        plant(&ground, &tree, place).await;
        let touch =
            |text: &str| files::write_public(tree.path().join("a.txt").as_path(), text.as_bytes()).unwrap();
        let mut wrong = Vec::new();
        let mut failed = Vec::new();
        macro_rules! at {
            ($site:literal, $call:expr) => {{
                if let Err(error) = $call {
                    failed.push(format!("{}: {error}", $site));
                }
                wrong.extend(ran(&ground).into_iter().map(|what| format!("{what} at {}", $site)));
            }};
        }
        ran(&ground);
        touch("ours\n");
        at!("status", tree.status().await);
        at!("is clean", tree.is_clean().await);
        at!("tree", tree.tree().await);
        at!("changes", tree.changes(&base).await);
        at!("diff", tree.diff(&base, None, 1 << 20).await);
        at!("ignores", tree.ignores("x.log").await);
        at!("left out", tree.left_out().await);
        at!("identity", checkout.identity().await);
        let point = tree.checkpoint("refs/agentd/checkpoints/r/1", "x").await;
        let kept = point.as_ref().ok().cloned();
        at!("checkpoint", point);
        let made = tree.commit_all(&message(), &identity()).await;
        let made_id = made.as_ref().ok().cloned().flatten();
        at!("commit", made);
        at!("bringing", {
            let inspect: agentd::git::outgoing::Inspect = std::sync::Arc::new(|_| Vec::new());
            tree.outgoing(
                (made_id.as_ref().unwrap_or(&base), None),
                std::slice::from_ref(&base),
                (1 << 20, inspect),
            )
            .await
        });
        touch("changed again\n");
        at!("restore", tree.restore(kept.as_ref().unwrap_or(&base), "refs/agentd/rescue/r/1", true).await);
        touch("ours\n");
        at!("commit again", tree.commit_all(&message(), &identity()).await);
        at!("take in", tree.merge_base_in(&conflicts, &identity()).await);
        at!("checkpoint of a merge", tree.checkpoint("refs/agentd/checkpoints/r/2", "x").await);
        let merging = checkout.reference("refs/agentd/checkpoints/r/2").await.unwrap();
        at!(
            "restore of a merge",
            tree.restore(merging.as_ref().unwrap_or(&base), "refs/agentd/rescue/r/1", false).await
        );
        touch("both\n");
        at!("commit of a merge", tree.commit_all(&message(), &identity()).await);
        at!("forward", tree.forward(&conflicts).await);
        at!("return", tree.return_to_branch().await);
        at!("log", tree.commits(&base).await);
        at!("list", checkout.list_worktrees(&plan.root).await);
        match (place, checkout.check_worktree(&plan, None).await) {
            (Place::Link, Err(error)) => {
                assert!(error.to_string().contains("of another repository"), "{error}");
            }
            (_, checked) => at!("found again", checked),
        }
        let head = tree.head().await.unwrap().unwrap();
        if place == Place::Repository {
            let refused = checkout.push(&remote, &branch("feature/issue-7"), &head, None).await;
            assert!(matches!(refused, Err(GitError::Redirected { .. })), "{refused:?}");
            ground.git(&["config", "--unset-all", "core.gitProxy"]).await;
        }
        let pushed = checkout.push(&remote, &branch("feature/issue-7"), &head, None).await;
        assert_eq!(pushed.as_ref().ok(), Some(&PushOutcome::Pushed), "{place:?}: {pushed:?}");
        at!("push", pushed);
        at!("fetch", checkout.fetch(&remote, &branch("feature/issue-7")).await);
        at!("fetch another", checkout.fetch(&remote, &branch("main")).await);
        at!("ask the remote", checkout.remote_branch(&remote, &branch("main")).await);
        let ssh = Remote::new("origin", "ssh://127.0.0.1:9/o/n.git", RemoteAuth::User);
        drop(checkout.remote_branch(&ssh, &branch("main")).await);
        at!("ssh", Ok::<(), GitError>(()));
        let mut again = ground.plan(8, Some(&remote)).await;
        again.population.submodules = false;
        at!("another worktree", checkout.prepare_worktree(&again).await);
        assert_eq!(wrong, Vec::<String>::new(), "{place:?} (failed: {failed:?})");
        assert_eq!(failed, Vec::<String>::new(), "{place:?}");
        // The traps do work: a person's git falls into some.
        let at = if place == Place::Repository { ground.repo.clone() } else { tree.path().clone() };
        let at = match place {
            Place::Submodule | Place::SubmoduleElsewhere => at.join("vendor"),
            Place::Nested => at.join("nested"),
            Place::Repository | Place::Link => at,
        };
        files::write_public(at.join("in.txt").as_path(), b"3 of them\n").unwrap();
        ground.attempt(&at, &["add", "in.txt"]).await;
        ground.attempt(&at, &["status"]).await;
        assert!(ran(&ground).len() > 1, "{place:?}: no trap works");
    }
}

#[tokio::test]
async fn i21_what_a_repository_redirects_is_not_sent_at_all() {
    for key in REDIRECTIONS {
        let ground = Ground::new().await;
        let remote = ground.origin().await;
        let program = traps(&ground).join("key-0.sh");
        script(&program, &format!("#!/bin/sh\ntouch {}/ran-key-0\n", traps(&ground)));
        let value = match key {
            "url.evil.insteadOf" | "url.evil.pushInsteadOf" => ground.home.to_string(),
            _ => program.to_string(),
        };
        ground.git(&["config", &key.replace("URL", remote.url()), &value]).await;
        let checkout = ground.checkout().await;
        let head = ground.head("main").await;
        let refusals = [
            checkout.remote_branch(&remote, &branch("main")).await.map(drop),
            checkout.fetch(&remote, &branch("main")).await.map(drop),
            checkout.push(&remote, &branch("x"), &head, None).await.map(drop),
        ];
        for refusal in refusals {
            assert!(matches!(refusal, Err(GitError::Redirected { .. })), "{key}: {refusal:?}");
        }
        assert_eq!(ran(&ground), Vec::<String>::new(), "{key}");
    }
}

#[tokio::test]
async fn i21_no_submodule_is_filled_from_this_machine() {
    for (at, address) in ADDRESSES.iter().enumerate() {
        let ground = Ground::new().await;
        let library = Ground::named("library").await;
        ground.origin().await;
        let address = address.replace("LOCAL", &library.repo.to_string());
        ground.write("~/.gitconfig", "[user]\n\tname = A\n\temail = a@b\n[protocol]\n\tallow = always\n");
        let head = library.head("main").await;
        ground.write(".gitmodules", &format!("[submodule \"v\"]\n\tpath = v\n\turl = \"{address}\"\n"));
        ground.git(&["add", "-A"]).await;
        ground.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{head},v")]).await;
        ground.git(&["commit", "-qm", "a submodule"]).await;
        if at == 6 {
            // What a relative address leads to is there.
            ground
                .git_in(&ground.home, &["clone", "-q", "--bare", &library.repo.to_string(), "library"])
                .await;
        }
        let error = ground.prepare(7).await.map(drop).unwrap_err().to_string();
        assert!(
            error.contains("the submodule \"v\" has the address") && error.contains("worktree.submodules"),
            "{error}"
        );
        assert!(!ground.exists(".worktrees/issue-7/v/src/lib.rs"), "{address}");
    }
}

#[tokio::test]
async fn i21_an_agents_git_directory_lends_nothing_of_other_repositories() {
    let ground = Ground::new().await;
    let private = Ground::named("private").await;
    private.write("secret.txt", "private\n");
    private.git(&["add", "-A"]).await;
    private.git(&["commit", "-qm", "private"]).await;
    let tree = ground.prepare(7).await.unwrap().worktree;
    for way in ["alternates", "link"] {
        let folder = ground.at(&format!("~/cage-{way}"));
        let (caged, _) = tree.sandbox_git(&folder, &identity(), &ground.base(None).await).await.unwrap();
        let objects = private.repo.join(".git/objects");
        let blob = private.git(&["rev-parse", "HEAD:secret.txt"]).await;
        match way {
            "alternates" => {
                let list = caged.dir().join("objects/info/alternates");
                let known = std::fs::read_to_string(list.as_path()).unwrap();
                files::write_public(list.as_path(), format!("{known}{objects}\n").as_bytes()).unwrap();
            }
            _ => std::os::unix::fs::symlink(objects.as_path(), caged.dir().join("objects/pack/x").as_path())
                .unwrap(),
        }
        let git_dir = caged.dir().to_string();
        ground
            .git_in(tree.path(), &["--git-dir", &git_dir, "commit", "-q", "--allow-empty", "-m", "own"])
            .await;
        let taken = tree.take_commits(&caged).await.unwrap();
        assert!(matches!(taken, agentd::git::sandbox_git::Taken::Left(_)), "{way}: {taken:?}");
        assert!(!ground.attempt(&ground.repo, &["cat-file", "-e", &blob]).await.success(), "{way}");
    }
}

/// What stands in a tree as git makes none: a block device, no kind at all, a file of one's own, a socket, two of one name.
const ODD: [&[&str]; 5] = [
    &["60000 a.txt"],
    &["777 a.txt"],
    &["100600 a.txt"],
    &["140000 a.txt"],
    &["60000 a.txt", "100644 a.txt"],
];

#[tokio::test]
async fn i21_an_entry_of_a_kind_that_git_does_not_know_is_refused_and_no_task_is_lost() {
    for entries in ODD {
        let ground = Ground::new().await;
        let ready = ground.prepare(7).await.unwrap();
        let repository = git2::Repository::open(ground.at(".git").as_path()).unwrap();
        let odb = repository.odb().unwrap();
        let blob = repository.blob(b"one\ntwo\nthree\n").unwrap();
        let entry = |what: &&str| [what.as_bytes(), b"\0", blob.as_bytes()].concat();
        let tree: Vec<u8> = entries.iter().flat_map(entry).collect();
        let tree = odb.write(git2::ObjectType::Tree, &tree).unwrap();
        let text = format!(
            "tree {tree}\nparent {}\nauthor A <a@b> 0 +0000\ncommitter A <a@b> 0 +0000\n\nx",
            ready.head
        );
        let odd = odb.write(git2::ObjectType::Commit, text.as_bytes()).unwrap();
        let odd = CommitId::parse(&odd.to_string()).unwrap();
        let inspect: agentd::git::outgoing::Inspect = std::sync::Arc::new(|_| Vec::new());
        let known = std::slice::from_ref(&ready.head);
        let brought = ready.worktree.outgoing((&odd, None), known, (1 << 20, inspect)).await;
        assert!(
            matches!(brought, Err(GitError::OddEntry { .. } | GitError::TwoEntries { .. })),
            "{entries:?}: {:?}",
            brought.map(|all| all.changes)
        );
    }
}

/// A commit on HEAD whose tree has 111 objects' worth of entries and more than a million paths.
fn bomb(git_dir: &AbsPath) -> git2::Oid {
    let repository = git2::Repository::open(git_dir.as_path()).unwrap();
    let blob = repository.blob(b"x").unwrap();
    let filled = |id, mode| {
        let mut tree = repository.treebuilder(None).unwrap();
        (0..110).for_each(|at| drop(tree.insert(format!("{at:03}"), id, mode).unwrap()));
        tree.write().unwrap()
    };
    let tree = filled(filled(filled(blob, 0o100_644), 0o040_000), 0o040_000);
    let who = git2::Signature::new("Ada", "ada@example.org", &git2::Time::new(0, 0)).unwrap();
    let parent = repository.head().unwrap().peel_to_commit().unwrap();
    let tree = repository.find_tree(tree).unwrap();
    repository.commit(Some("HEAD"), &who, &who, "small", &tree, &[&parent]).unwrap()
}

#[tokio::test]
async fn i21_a_few_objects_that_hold_a_million_paths_are_neither_taken_nor_compared() {
    let ground = Ground::new().await;
    let ready = ground.prepare(7).await.unwrap();
    let (tree, base) = (ready.worktree, ready.head);
    let (caged, _) =
        tree.sandbox_git(&ground.at("~/cage"), &identity(), &ground.base(None).await).await.unwrap();
    bomb(caged.dir());
    let taken = tree.take_commits(&caged).await.unwrap();
    let agentd::git::sandbox_git::Taken::Left(why) = &taken else { panic!("{taken:?}") };
    assert!(why.contains("more paths differ than agentd compares"), "{why}");
    assert_eq!(tree.head().await.unwrap().as_ref(), Some(&base));
    // Without a cage it stands on a branch at once.
    let bomb = CommitId::parse(&bomb(&ground.at(".git")).to_string()).unwrap();
    let inspect: agentd::git::outgoing::Inspect = std::sync::Arc::new(|_| Vec::new());
    let brought = tree.outgoing((&bomb, None), std::slice::from_ref(&base), (1 << 20, inspect)).await;
    assert!(matches!(brought, Err(GitError::TooManyPaths)), "{:?}", brought.map(drop));
    let diff = ground.checkout().await.diff(&base, &bomb, 1 << 20).await;
    assert!(matches!(diff, Err(GitError::TooManyPaths)), "{:?}", diff.map(drop));
}

/// The whole way of the first break: a command replaces a submodule by a repository of its own; the base branch moves and
/// conflicts; the follow-up run merges it, outside of the cage.
#[tokio::test(flavor = "multi_thread")]
async fn i21_a_submodule_that_a_caged_command_replaced_runs_nothing_on_the_host() {
    for mode in ["bubblewrap", "landlock", "off"] {
        let world = World::of(3, |scenario| {
            let cart = scenario.repositories[0].commits[0].files["lib/cart.sh"].clone();
            let fixed = cart.replace("echo $(($1 - $2))", "echo $(($1 * (100 - $2) / 100))");
            // Its files are as they were, so that nothing is refused before.
            let plant = "mv vendor old && rm -f old/.git && git init -q vendor && cp -r old/. vendor/ && rm -rf old && cd vendor && \
                 echo '* filter=evil' > .git/info/attributes && git add -A && \
                 git -c user.name=a -c user.email=a@b commit -q -m x && git config filter.evil.clean \"touch $PLACE/ran-clean; cat\" && \
                 git config core.fsmonitor \"touch $PLACE/ran-fsmonitor; false\" && find . -name .git -prune -o -type f -exec touch -d 2001-01-01 {} +";
            let reply = serde_json::json!({
                "when": { "contains": "Carry out the plan" },
                "tool_calls": [
                    { "name": "run_command", "arguments": { "argv": ["sh", "plant.sh"] } },
                    { "name": "write_file", "arguments": { "path": "lib/cart.sh", "content": fixed } },
                ],
            });
            let files = &mut scenario.repositories[0].commits[0].files;
            files.insert("plant.sh".to_owned(), serde_json::from_value(serde_json::json!(format!("PLACE=$(cat place)\n{plant}\n"))).unwrap());
            scenario.model.replies.insert(0, serde_json::from_value(reply).unwrap());
        })
        .await;
        let place = world.dir.path().join("host");
        std::fs::create_dir(&place).unwrap();
        // The submodule, filled from its remote, and the place that the traps name.
        let library = Ground::named("library").await;
        let (_served, from) = library.served();
        let shop = world.shop();
        world.git(&shop, &["switch", "-q", "develop"]).await;
        world.write("shop/place", &place.display().to_string());
        let modules = format!("[submodule \"vendor\"]\n\tpath = vendor\n\turl = {from}\n\tignore = none\n");
        world.write("shop/.gitmodules", &modules);
        let link = format!("160000,{},vendor", library.head("main").await);
        world.git(&shop, &["add", "place", ".gitmodules"]).await;
        world.git(&shop, &["update-index", "--add", "--cacheinfo", &link]).await;
        world.git(&shop, &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "vendor"]).await;
        let header = format!("http.extraHeader=Authorization: Basic {}", crate::outside::world::basic());
        world.git(&shop, &["-c", &header, "push", "-q", "origin", "HEAD:develop"]).await;
        let policy = std::fs::read_to_string(shop.join(".agent/policy.toml")).unwrap();
        world.write(
            "shop/.agent/policy.toml",
            &policy.replace(
                "when = { argv = [[\"sh\", \"tests/run.sh\"]] }",
                "when = { argv = [[\"sh\", \"tests/run.sh\"], [\"sh\", \"plant.sh\"]] }",
            ),
        );
        let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
        let more = format!(
            "[sandbox]\nmode = \"{mode}\"\n[worktree]\nsubmodules = \"auto\"\n[daemon]\npoll_interval = \"1s\"\n"
        );
        world.write("overlay.toml", &format!("{overlay}\n{more}"));
        world.sim.add_label("demo/shop", 7, "agentd", "ada");
        let daemon = Running::start(&world, &[]);
        until_or(
            "the first run",
            || world.labels() == ["agentd:done"],
            || {
                format!(
                    "{mode}: {:?} {:?}",
                    world.labels(),
                    world.sim.issue("demo/shop", 7).unwrap().comments
                )
            },
        )
        .await;
        let vendor = shop.join(".worktrees/issue-7/vendor");
        let planted = shop.join(".git/worktrees/issue-7/git-of-a-program/vendor");
        let config = std::fs::read_to_string(planted.join("config")).unwrap_or_default();
        assert!(config.contains("ran-clean"), "{mode}: the command did not plant it");
        // Whoever looks at the worktree has git enter the submodule.
        assert!(vendor.join(".git").is_file(), "{mode}");
        world.git(&shop.join(".worktrees/issue-7"), &["status"]).await;
        let ran =
            std::fs::read_dir(&place).unwrap().flatten().any(|entry| entry.file_name() == "ran-fsmonitor");
        assert!(!ran || mode == "off", "{mode}");
        // The next run finds it as the command had left it.
        std::fs::remove_file(vendor.join(".git")).unwrap();
        files::rename(&planted, &vendor.join(".git")).unwrap();
        // In the cage nothing of the host can be written; without one the command itself could, and git did it then.
        for entry in std::fs::read_dir(&place).unwrap().flatten() {
            std::fs::remove_file(entry.path()).unwrap();
        }
        let asked = world.sim.model_requests().len();
        let git_dir = world.sim.git_dir("demo/shop").unwrap();
        let cart = text(&agentd::sim::bare::file(&git_dir, "develop", "lib/cart.sh").unwrap());
        let cart = cart.replace("echo $(($1 - $2))", "echo $(($1 - $2)) # whole cents");
        let body =
            serde_json::json!({ "branch": "develop", "message": "Other", "files": { "lib/cart.sh": cart } });
        let url = format!("{}/_sim/repos/demo/shop/commits", world.sim.base_url());
        let done = reqwest::Client::new().post(url).body(body.to_string()).send().await.unwrap();
        assert!(done.status().is_success());
        until("the follow-up run", || world.sim.model_requests().len() > asked).await;
        daemon.stop().await;
        let ran: Vec<_> =
            std::fs::read_dir(&place).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert!(ran.is_empty(), "{mode}: {ran:?}");
        world.sim.shutdown().await;
    }
}
