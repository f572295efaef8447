//! Worktrees from outside: what they hold beside the repository's files, and what may be removed.

use serde_json::{Value, json};

use super::solo::{calls, reports, solo, solo_of};
use super::world::{World, basic, text, with_library};
use crate::flow::outside::{reply, run, says, shop};

const ALLOW: &str =
    "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"test\"\n";

fn configure(world: &World, more: &str) {
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n{more}\n"));
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn prune_removes_what_is_merged_and_keeps_the_rest_with_the_reason() {
    let world = World::new(1).await;
    let (code, _) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0));
    let (_, listed) = world.json(&["worktrees", "list"]).await;
    assert_eq!(names(&listed), ["issue-7"]);
    assert_eq!(
        (listed[0]["branch"].as_str(), listed[0]["changed_files"].as_u64()),
        (Some("feature/issue-7"), Some(0))
    );
    let (code, pruned) = world.json(&["worktrees", "prune"]).await;
    assert_eq!((code, names(&pruned["removed"]).len()), (Some(0), 0), "{pruned:#}");
    assert!(pruned["kept"][0]["reason"].as_str().unwrap().contains("not merged"), "{pruned:#}");
    let number = world.sim.pulls("demo/shop")[0].number;
    let url = format!("{}/_sim/repos/demo/shop/pulls/{number}/merge", world.sim.base_url());
    let merged = reqwest::Client::new().post(url).body("{}").send().await.unwrap();
    assert!(merged.status().is_success(), "{}", merged.text().await.unwrap());
    world.write("shop/.worktrees/issue-7/notes.txt", "not committed");
    let (_, pruned) = world.json(&["worktrees", "prune"]).await;
    assert!(pruned["kept"][0]["reason"].as_str().unwrap().contains("uncommitted"), "{pruned:#}");
    agentd::sys::files::remove_file(&world.shop().join(".worktrees/issue-7/notes.txt")).unwrap();
    let (_, would) = world.json(&["worktrees", "prune", "--dry-run"]).await;
    assert_eq!(names(&would["removed"]), ["issue-7"]);
    let (_, pruned) = world.json(&["worktrees", "prune"]).await;
    assert_eq!(names(&pruned["removed"]), ["issue-7"], "{pruned:#}");
    assert!(!world.shop().join(".worktrees/issue-7").exists());
    let kept_as = pruned["removed"][0]["kept_as"].as_str().unwrap();
    world.git(&world.shop(), &["cat-file", "-e", kept_as]).await;
    assert_eq!(world.git(&world.shop(), &["branch", "--list", "feature/*"]).await, "");
    world.finish().await;
}

/// A stacked issue's branch has the commits of the one below it. That one is merged nowhere for that.
#[tokio::test(flavor = "multi_thread")]
async fn work_that_another_issue_is_stacked_on_is_not_removed_as_merged() {
    let write = |name: &str| calls(&[("write_file", json!({ "path": name, "content": "x\n" }))]);
    let done = || reports("Done.", json!([]));
    let replies = vec![write("one.txt"), done(), write("two.txt"), done()];
    let world = solo_of(replies, Some(ALLOW), "", |scenario| {
        let issues = &mut scenario.repositories[0].issues;
        let eight = agentd::sim::IssueFile { number: Some(8), ..issues[0].clone() };
        issues.push(eight);
    })
    .await;
    let (code, first) = world.json(&["run", "--issue", "7", "--agent", "solo"]).await;
    assert_eq!(code, Some(0), "{first:#}");
    let stacked = ["run", "--issue", "8", "--agent", "solo", "--origin", "feature/issue-7"];
    let (code, second) = world.json(&stacked).await;
    assert_eq!(code, Some(0), "{second:#}");
    let (_, pruned) = world.json(&["worktrees", "prune"]).await;
    assert_eq!((names(&pruned["removed"]).len(), names(&pruned["kept"]).len()), (0, 2), "{pruned:#}");
    // The upper one's pull request is merged into the lower one's branch: that one still is merged nowhere.
    let upper = world.sim.pulls("demo/shop").iter().map(|pull| pull.number).max().unwrap();
    world.sim.admin("POST", &format!("repos/demo/shop/pulls/{upper}/merge"), &json!({})).unwrap();
    let (_, pruned) = world.json(&["worktrees", "prune"]).await;
    assert_eq!(names(&pruned["removed"]), ["issue-8"], "{pruned:#}");
    assert!(world.shop().join(".worktrees/issue-7/one.txt").exists());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_others_went_on_with_after_it_was_merged_and_removed_here_is_taken_up_again() {
    let world = World::new(2).await;
    let post = async |path: &str, body: &str| {
        let url = format!("{}/_sim/repos/demo/shop/{path}", world.sim.base_url());
        let done = reqwest::Client::new().post(url).body(body.to_owned()).send().await.unwrap();
        assert!(done.status().is_success(), "{}", done.text().await.unwrap());
    };
    assert_eq!(world.json(&["run", "--issue", "7"]).await.0, Some(0));
    let number = world.sim.pulls("demo/shop")[0].number;
    post(&format!("pulls/{number}/merge"), "{}").await;
    let (_, pruned) = world.json(&["worktrees", "prune"]).await;
    assert_eq!(names(&pruned["removed"]), ["issue-7"], "{pruned:#}");
    let more = r#"{ "branch": "feature/issue-7", "message": "More", "files": { "more.txt": "by hand" } }"#;
    post("commits", more).await;
    world.sim.edit_issue("demo/shop", 7, |issue| issue.open = true);
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(world.shop().join(".worktrees/issue-7/more.txt").exists());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i16_chosen_files_are_copied_with_their_mode_never_committed_and_the_setup_runs_once() {
    let world = World::new(1).await;
    configure(
        &world,
        "[worktree]\ncopy = [\".env\", \"config/local\", \"README.md\", \"nowhere\"]\n\
         setup = [[\"sh\", \"-c\", \"echo ready >> .setup-log\"]]\n",
    );
    world.write("shop/.env", "SECRET=1");
    world.write("shop/config/local/run.sh", "exit 0");
    for (file, mode) in [(".env", 0o600), ("config/local/run.sh", 0o750)] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::File::open(world.shop().join(file)).unwrap().set_permissions(mode).unwrap();
    }
    world.write("shop/.git/info/exclude", ".setup-log\n");
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let place = world.shop().join(".worktrees/issue-7");
    use std::os::unix::fs::MetadataExt as _;
    assert_eq!(place.join(".env").metadata().unwrap().mode() & 0o777, 0o600);
    assert_eq!(place.join("config/local/run.sh").metadata().unwrap().mode() & 0o777, 0o750);
    assert_eq!(std::fs::read_to_string(place.join(".setup-log")).unwrap(), "ready\n");
    let tree = world.git(&world.shop(), &["ls-tree", "-r", "--name-only", "feature/issue-7"]).await;
    assert!(!tree.contains(".env") && !tree.contains("config/local"), "{tree}");
    let warned = output["warnings"].to_string();
    assert!(warned.contains("README.md") && warned.contains("nowhere"), "{warned}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setup_that_fails_or_takes_too_long_ends_the_run_and_says_why() {
    for (setup, told) in
        [("echo no compiler; exit 3", "exit code 3\nno compiler"), ("sleep 60", "longer than")]
    {
        let world = World::new(0).await;
        configure(
            &world,
            &format!("[worktree]\nsetup = [[\"sh\", \"-c\", \"{setup}\"]]\nsetup_timeout = \"1s\"\n"),
        );
        let (code, output) = world.json(&["run", "--issue", "7"]).await;
        assert_eq!((code, output["stop_detail"].as_str()), (Some(4), Some("config_invalid")), "{output:#}");
        assert!(output["error"]["message"].as_str().unwrap().contains(told), "{output:#}");
        // The issue does not go on saying that it is worked on.
        let comments = world.sim.issue("demo/shop", 7).unwrap().comments;
        let said = |part: &str| comments.iter().any(|comment| comment.body.contains(part));
        assert!(said("config_invalid") && !said("is working on this issue"), "{comments:#?}");
        assert_eq!(world.labels(), ["agentd:failed"]);
        world.sim.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn x_018_c_13_the_wall_time_holds_for_setup_and_servers_and_finished_work_is_verified_in_overtime() {
    for waits in [
        "[worktree]\nsetup = [[\"sleep\", \"600\"]]\n",
        "[mcp.servers.mute]\ncommand = \"sleep\"\nargs = [\"600\"]\n",
    ] {
        let world = World::new(0).await;
        configure(&world, waits);
        let began = std::time::Instant::now();
        let (code, output) = world.json(&["run", "--issue", "7", "--max-wall-time", "2s"]).await;
        assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("max_wall_time")), "{output:#}");
        assert_eq!(output["stop_reason"], "BUDGET_EXCEEDED");
        assert!(began.elapsed() < std::time::Duration::from_secs(45), "{waits}: {:?}", began.elapsed());
        world.sim.shutdown().await;
    }
    let world = solo(vec![reports("Done.", json!([]))], None, "").await;
    world.verify("[[\"sleep\", \"9\"]]");
    let args = ["run", "--issue", "7", "--agent", "solo", "--max-wall-time", "8s"];
    let (code, output) = world.json(&args).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(0), Some("completed")), "{output:#}");
    assert!(output["warnings"].to_string().contains("verified_in_overtime"), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i19_a_sparse_worktree_has_the_chosen_folders_and_the_others_are_not_deleted() {
    let world = World::new(1).await;
    configure(&world, "[worktree]\nsparse = [\"lib\", \"tests\"]\n");
    let header = format!("http.extraHeader=Authorization: Basic {}", basic());
    world.write("shop/big/data.txt", "large");
    world.git(&world.shop(), &["add", "big"]).await;
    world.git(&world.shop(), &["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "big"]).await;
    world.git(&world.shop(), &["-c", &header, "push", "-q", "origin", "develop"]).await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let place = world.shop().join(".worktrees/issue-7");
    assert!(place.join("lib/cart.sh").exists() && !place.join("big").exists());
    assert!(world.shop().join("big/data.txt").exists(), "the main checkout stays whole");
    let tree = world.git(&world.shop(), &["ls-tree", "-r", "--name-only", "feature/issue-7"]).await;
    assert!(tree.contains("big/data.txt"), "{tree}");
    let status = world.git(&world.shop(), &["status", "--porcelain", "--untracked-files=no"]).await;
    assert_eq!(status, "");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_outside_of_a_sparse_worktrees_folders_is_committed_too() {
    let write = calls(&[("write_file", json!({ "path": "newdir/x.txt", "content": "x\n" }))]);
    let replies = vec![write, reports("Done.", json!([]))];
    let world = solo(replies, None, "[worktree]\nsparse = [\"lib\"]\n").await;
    let (code, output) = super::solo::run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let tree = world.git(&world.shop(), &["ls-tree", "-r", "--name-only", "feature/issue-7"]).await;
    assert!(tree.contains("newdir/x.txt") && tree.contains("README.md"), "{tree}");
    // Who sees a part is told so: what stands outside is not to be made anew.
    let told = world.told(0);
    assert!(told.contains("a sparse checkout") && told.contains("`lib/`"), "{told}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_under_lfs_is_not_committed_whole_where_nothing_takes_its_content() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if agentd::sys::sandbox::which("git-lfs".as_ref(), &path).is_some() {
        eprintln!("skipped: git-lfs is installed here");
        return;
    }
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 4\n", "a".repeat(64));
    for (content, ends) in [("whole\n", "policy_denied"), (pointer.as_str(), "completed")] {
        let write = reply(json!({"tool_calls": [
            {"name": "write_file", "arguments": {"path": "logo.bin", "content": content}}]}));
        let (world, _) = shop(vec![write, says("handoff"), says("closing")]).await;
        let checkout = world.shop();
        world.write("shop/.gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
        world.git(&checkout, &["add", ".gitattributes"]).await;
        world.git(&checkout, &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "lfs"]).await;
        let header = format!("http.extraHeader=Authorization: Basic {}", basic());
        world.git(&checkout, &["-c", &header, "push", "-q", "origin", "HEAD:develop"]).await;
        let (_, output) = run(&world).await;
        assert_eq!(output["stop_detail"], ends, "{output:#}");
        let told = output.to_string();
        assert_eq!(told.contains("git-lfs is not installed here"), ends != "completed", "{output:#}");
        assert_eq!(world.sim.pulls("demo/shop").len(), usize::from(ends == "completed"), "{output:#}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visit_that_only_looks_is_kept_without_a_look_at_the_files_and_one_that_writes_is_not() {
    let world = World::new(1).await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0));
    let run = output["run_id"].as_str().unwrap();
    let (_, events) = world.json(&["runs", "events"]).await;
    let made = events.as_array().unwrap().iter().filter(|line| line["kind"] == "checkpoint");
    let mut kept = Vec::new();
    for checkpoint in made {
        let commit = checkpoint["data"]["commit"].as_str().unwrap().to_owned();
        let reference = checkpoint["data"]["reference"].as_str().unwrap();
        assert!(reference.starts_with(&format!("refs/agentd/checkpoints/{run}/")), "{reference}");
        assert_eq!(world.git(&world.shop(), &["rev-parse", reference]).await.trim(), commit);
        kept.push(commit);
    }
    // Read and plan; edit and test; test again, which might have written and did not; read and report.
    let same: Vec<bool> = kept.windows(2).map(|two| two[0] == two[1]).collect();
    assert_eq!(same, [true, false, true, true], "{kept:?}");
    world.finish().await;
}

fn another(world: &World, number: u64) {
    let issue = json!({ "number": number, "title": "Another one", "author": "ada", "body": "b" });
    world.sim.add_issue("demo/shop", &serde_json::from_value(issue).unwrap()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_setup_makes_is_copied_into_the_next_worktree_and_nothing_that_came_later() {
    let replies = ["next", "handoff", "closing"].map(says);
    let (world, _) = shop([replies.clone(), replies.clone(), replies].concat()).await;
    let (checkout, log) = (world.shop(), world.dir.path().join("setups"));
    let make = "echo ran >> $0; mkdir -p built/bin; echo made > built/out; ln -sf ../out built/bin/tool; echo here > own";
    configure(
        &world,
        &format!(
            "[worktree]\nsetup = [[\"sh\", \"-c\", {make:?}, {log:?}]]\nkeep_ignored = [\"built\"]\nsetup_inputs = [\"lock\"]\n"
        ),
    );
    let header = format!("http.extraHeader=Authorization: Basic {}", basic());
    let locked = async |version: &str| {
        world.write("shop/lock", version);
        world.write("shop/.gitignore", "built/\nown\n");
        world.git(&checkout, &["add", "lock", ".gitignore"]).await;
        world.git(&checkout, &["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", version]).await;
        world.git(&checkout, &["-c", &header, "push", "-q", "origin", "develop"]).await;
    };
    [8, 9].iter().for_each(|number| another(&world, *number));
    let worked = async |number: &str| {
        let (code, output) = world.json(&["run", "--issue", number, "--agent", "f0"]).await;
        assert_eq!(code, Some(0), "{output:#}");
        checkout.join(format!(".worktrees/issue-{number}"))
    };
    let setups = || std::fs::read_to_string(&log).unwrap().lines().count();
    locked("one").await;
    let first = worked("7").await;
    // What the agent of one issue leaves in the folder stays there.
    world.write("shop/.worktrees/issue-7/built/planted", "by the first");
    world.write("shop/.worktrees/issue-7/built/out", "spoilt");
    let second = worked("8").await;
    let has = |file: &str| second.join(file).symlink_metadata().is_ok();
    assert_eq!(setups(), 1, "its setup was skipped");
    assert_eq!(std::fs::read_to_string(second.join("built/bin/tool")).unwrap(), "made\n");
    assert!(!has("built/planted") && !has("own") && first.join("own").exists());
    world.write("shop/.worktrees/issue-8/built/planted", "by the second");
    locked("two").await;
    let third = worked("9").await;
    assert_eq!(setups(), 2, "other inputs, another setup");
    assert!(!third.join("built/planted").exists() && third.join("own").exists());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_leads_out_of_the_folder_is_not_kept() {
    let places = [
        "ln -s /etc/hostname built/name",
        "ln -s ../../lib built/lib",
        "pwd > built/place",
        "ln -s lib built",
    ];
    for make in places {
        let replies = ["next", "handoff", "closing"].map(says);
        let (world, _) = shop([replies.clone(), replies].concat()).await;
        let log = world.dir.path().join("setups");
        let make = format!("echo ran >> $0; case '{make}' in *lib\\ built) ;; *) mkdir built;; esac; {make}");
        configure(
            &world,
            &format!(
                "[worktree]\nsetup = [[\"sh\", \"-c\", {make:?}, {log:?}]]\nkeep_ignored = [\"built\"]\nsetup_inputs = [\"lock\"]\n"
            ),
        );
        world.write("shop/.git/info/exclude", "built\n");
        another(&world, 8);
        for number in ["7", "8"] {
            let (code, output) = world.json(&["run", "--issue", number, "--agent", "f0"]).await;
            assert_eq!(code, Some(0), "{output:#}");
        }
        assert_eq!(std::fs::read_to_string(&log).unwrap().lines().count(), 2, "{make}");
        world.finish().await;
    }
}

/// A world whose setup makes `FOLDER/out` and tells each time that it ran, with what it ran for.
async fn setting_up(folder: &str, issues: &[u64], more: &str) -> (World, std::path::PathBuf) {
    let replies = ["next", "handoff", "closing"].map(says);
    let replies = std::iter::repeat_n(replies, issues.len() + 1).flatten().collect();
    let (world, _) = shop(replies).await;
    let log = world.dir.path().join("setups");
    let make = format!("echo ran >> $0; mkdir -p {folder}; cat lib/cart.sh > {folder}/out");
    configure(
        &world,
        &format!(
            "[worktree]\nsetup = [[\"sh\", \"-c\", {make:?}, {log:?}]]\nkeep_ignored = [\"{folder}\"]\n{more}"
        ),
    );
    world.write("shop/.git/info/exclude", &format!("{folder}/\n.env\n"));
    issues.iter().for_each(|number| another(&world, *number));
    (world, log)
}

async fn worked(world: &World, number: u64) -> std::path::PathBuf {
    let (code, output) = world.json(&["run", "--issue", &number.to_string(), "--agent", "f0"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.shop().join(format!(".worktrees/issue-{number}"))
}

fn setups(log: &std::path::Path) -> usize {
    std::fs::read_to_string(log).unwrap().lines().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worktree_from_the_pool_gets_what_the_setup_of_another_made_and_the_pool_never_has_it() {
    use std::os::unix::fs::MetadataExt as _;
    let (world, log) = setting_up("built", &[8], "setup_inputs = [\"lib/cart.sh\"]\npool = 1\n").await;
    let pool = world.shop().join(".worktrees/.pool");
    let members = || std::fs::read_dir(&pool).into_iter().flatten().flatten().map(|entry| entry.path());
    for (number, ran) in [(7, 1), (8, 1)] {
        let ready = || {
            let entries =
                std::fs::read_dir(world.shop().join(".git/worktrees")).into_iter().flatten().flatten();
            entries.filter(|entry| entry.path().join("agentd-pool-ready").exists()).count() == 1
        };
        let daemon = super::daemons::Running::start(&world, &[]);
        super::daemons::until("a warm worktree", ready).await;
        daemon.stop().await;
        let warm = members().next().unwrap();
        assert!(!warm.join("built").exists(), "what a setup made is in no worktree that waits");
        let inode = warm.metadata().unwrap().ino();
        let place = worked(&world, number).await;
        assert_eq!(place.metadata().unwrap().ino(), inode, "it was not taken from the pool");
        assert_eq!(setups(&log), ran, "issue {number}");
        let made = std::fs::read_to_string(place.join("built/out")).unwrap();
        assert!(made.contains("cart"), "{made}");
        // What the first one's agent leaves there is not in the second one.
        assert!(!place.join("built/planted").exists());
        std::fs::write(place.join("built/planted"), "by the agent").unwrap();
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_copied_from_the_main_checkout_is_todays_beside_what_is_kept_of_a_setup() {
    // Beside the folder that is kept, and in it: then the setup runs again, because the kept one has yesterday's.
    for (copied, ran) in [(".env", 1), ("built/local", 2)] {
        let more = format!("setup_inputs = [\"lib/cart.sh\"]\ncopy = [\"{copied}\"]\n");
        let (world, log) = setting_up("built", &[8], &more).await;
        for (number, content) in [(7, "yesterday's"), (8, "today's")] {
            world.write(&format!("shop/{copied}"), content);
            let place = worked(&world, number).await;
            assert_eq!(std::fs::read_to_string(place.join(copied)).unwrap(), content, "{copied}");
            assert!(place.join("built/out").exists());
        }
        assert_eq!(setups(&log), ran, "{copied}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sparse_worktree_gets_what_is_kept_where_its_folder_is_and_not_for_an_input_that_changed_outside() {
    // The folder is in what is checked out, or not; and an input that is left out of the worktree decides all the same.
    for (folder, ran) in [("lib/built", [1, 1, 2]), ("big/built", [1, 2, 3])] {
        let more = "setup_inputs = [\"big/lock\"]\nsparse = [\"lib\", \"tests\"]\n";
        let (world, log) = setting_up(folder, &[8, 9], more).await;
        let checkout = world.shop();
        let header = format!("http.extraHeader=Authorization: Basic {}", basic());
        let locked = async |version: &str| {
            world.write("shop/big/lock", version);
            world.git(&checkout, &["add", "big/lock"]).await;
            world
                .git(&checkout, &["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", version])
                .await;
            world.git(&checkout, &["-c", &header, "push", "-q", "origin", "develop"]).await;
        };
        locked("one").await;
        for (number, ran) in [7, 8, 9].into_iter().zip(ran) {
            if number == 9 {
                locked("two").await;
            }
            let place = worked(&world, number).await;
            assert!(!place.join("big/lock").exists(), "the worktree is sparse");
            assert!(place.join(folder).join("out").exists(), "{folder}, issue {number}");
            assert_eq!(setups(&log), ran, "{folder}, issue {number}");
        }
        world.finish().await;
    }
}

/// A world whose agent changes nothing but what `replies` say, with a set-up that leaves files behind.
async fn left_by_setup(replies: Vec<agentd::sim::ReplyFile>) -> World {
    let setup =
        "echo built > built.txt; mkdir -p gen; echo 1 > gen/one.txt; echo more >> README.md; rm tests/run.sh";
    let world = solo(replies, None, &format!("[worktree]\nsetup = [[\"sh\", \"-c\", \"{setup}\"]]\n")).await;
    // The next commands look at the same worktree.
    world.configure(&["agent = \"solo\""]);
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn d12_d100_what_the_setup_left_is_no_change_of_the_run() {
    let reports = || reports("Nothing to do.", json!([]));
    let world = left_by_setup(vec![reports(), reports()]).await;
    for _ in 0..2 {
        let (code, output) = super::solo::run(&world).await;
        assert_eq!((code, &output["change"]), (Some(0), &json!("none")), "{output:#}");
        assert_eq!(world.sim.pulls("demo/shop").len(), 0, "{output:#}");
    }
    let (_, first) = world.json(&["runs", "list"]).await;
    let (_, first) = world.json(&["runs", "show", first[1]["run_id"].as_str().unwrap()]).await;
    let told = first["warnings"].to_string();
    assert!(told.contains("setup_put_back") && told.contains("`README.md`, `tests/run.sh`"), "{told}");
    let place = world.shop().join(".worktrees/issue-7");
    assert!(
        place.join("built.txt").exists() && place.join("gen/one.txt").exists(),
        "the next run needs them"
    );
    assert_eq!(world.git(&place, &["diff", "--stat", "HEAD"]).await, "");
    let (_, pruned) = world.json(&["worktrees", "prune", "--dry-run"]).await;
    assert_eq!(names(&pruned["removed"]), ["issue-7"], "{pruned:#}");
    // What a person changed of it is theirs.
    world.write("shop/.worktrees/issue-7/built.txt", "by hand");
    let (_, pruned) = world.json(&["worktrees", "prune", "--dry-run"]).await;
    assert!(pruned["kept"][0]["reason"].as_str().unwrap().contains("built.txt"), "{pruned:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d100_what_the_agent_makes_of_files_of_the_setup_is_its_work() {
    let calls = calls(&[
        ("write_file", json!({ "path": "gen/one.txt", "content": "2\n" })),
        ("write_file", json!({ "path": "lib/new.sh", "content": "echo new\n" })),
    ]);
    let world = left_by_setup(vec![calls, reports("Done.", json!([]))]).await;
    let (code, output) = super::solo::run(&world).await;
    assert_eq!((code, &output["change"]), (Some(0), &json!("made")), "{output:#}");
    let files = world.git(&world.shop(), &["diff", "--name-only", "origin/develop", "feature/issue-7"]).await;
    assert_eq!(files, "gen/one.txt\nlib/new.sh\n");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_setup_left_that_failed_is_no_change_of_the_next_run() {
    let setup = "echo built > built.txt; test -e ../../../works";
    let world = solo(
        vec![reports("Nothing to do.", json!([]))],
        None,
        &format!("[worktree]\nsetup = [[\"sh\", \"-c\", \"{setup}\"]]\n"),
    )
    .await;
    let (code, output) = super::solo::run(&world).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(4), Some("config_invalid")), "{output:#}");
    world.write("works", "");
    let (code, output) = super::solo::run(&world).await;
    assert_eq!((code, &output["change"]), (Some(0), &json!("none")), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_wrote_is_run_by_no_setup_of_a_worktree_that_is_made_anew() {
    let writes = calls(&[
        ("write_file", json!({ "path": "lib/cart.sh", "content": "echo of the agent\n" })),
        ("write_file", json!({ "path": "lib/new.sh", "content": "echo new\n" })),
    ]);
    let reports = || reports("Done.", json!([]));
    let setup = "cat lib/*.sh >> ../../../ran; echo built > lib/built.sh";
    let more = format!("[worktree]\nsetup = [[\"sh\", \"-c\", \"{setup}\"]]\n");
    let world = solo(vec![writes, reports(), reports()], None, &more).await;
    let (code, output) = super::solo::run(&world).await;
    assert_eq!((code, &output["change"]), (Some(0), &json!("made")), "{output:#}");
    let ran = || std::fs::read_to_string(world.dir.path().join("ran")).unwrap();
    let first = ran();
    // As on another machine: the branch is there, and its worktree is not.
    let place = world.shop().join(".worktrees/issue-7");
    world.git(&world.shop(), &["worktree", "remove", "--force", &place.display().to_string()]).await;
    let (code, output) = super::solo::run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(ran(), format!("{first}{first}"), "the second one has seen the base branch's files");
    assert_eq!(std::fs::read_to_string(place.join("lib/cart.sh")).unwrap(), "echo of the agent\n");
    assert!(place.join("lib/new.sh").exists() && place.join("lib/built.sh").exists());
    assert_eq!(world.git(&place, &["diff", "--stat", "HEAD"]).await, "");
    world.finish().await;
}

/// What is copied into a worktree is in no commit of the agent's own either, also where it takes it out again.
#[tokio::test(flavor = "multi_thread")]
async fn a_copied_file_that_the_agent_commits_itself_leaves_in_no_commit() {
    let commit = "git -c user.name=x -c user.email=x@y commit -qm";
    let scripts = [
        format!("echo y > y.txt; git add -f .env y.txt; {commit} mine"),
        format!(
            "echo y > y.txt; git add -f .env y.txt; {commit} mine; git rm -q --cached .env; {commit} back"
        ),
        format!(
            "mkdir -p node_modules/q; echo zebra > node_modules/q/i.js; echo y > y.txt; git add -f node_modules y.txt; {commit} mine"
        ),
    ];
    for script in scripts {
        let run = ("run_command", json!({ "argv": ["sh", "-c", script] }));
        let replies = vec![calls(&[run]), reports("Done.", json!([]))];
        let world = solo(replies, Some(ALLOW), "[worktree]\ncopy = [\".env\"]\n").await;
        world.write("shop/.env", "DATABASE=zebra\n");
        let (code, output) = super::solo::run(&world).await;
        assert_eq!((code, &output["stop_detail"]), (Some(0), &json!("completed")), "{script}: {output:#}");
        let told = output["warnings"].to_string();
        assert!(told.contains("commits that the agent made were not taken"), "{script}: {told}");
        let git_dir = world.sim.git_dir("demo/shop").unwrap();
        let git = |args: &[&str]| {
            let made = std::process::Command::new("git").args(args).current_dir(&git_dir).output().unwrap();
            text(&made.stdout)
        };
        let commits = git(&["rev-list", "feature/issue-7"]);
        for commit in commits.lines() {
            assert_eq!(git(&["grep", "-l", "zebra", commit]), "", "{script}");
        }
        assert!(git(&["ls-tree", "--name-only", "feature/issue-7"]).contains("y.txt"), "{script}");
        let kept = std::fs::read_to_string(world.shop().join(".worktrees/issue-7/.env")).unwrap();
        assert_eq!(kept, "DATABASE=zebra\n");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_model_would_write_into_the_empty_folder_of_a_submodule_is_refused() {
    let write = |path: &str| ("write_file", json!({ "path": path, "content": "important\n" }));
    let replies = vec![calls(&[write("vendor/new.txt"), write("beside.txt")]), reports("Done.", json!([]))];
    let more = "[worktree]\nsubmodules = \"never\"\n";
    let world = solo_of(replies, Some(ALLOW), more, with_library).await;
    world.take_library_in().await;
    let (code, output) = super::solo::run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let asked = super::solo::asked(&world);
    assert!(asked[1].contains("a git repository of its own"), "{}", asked[1]);
    let worktree = world.shop().join(".worktrees/issue-7");
    assert!(worktree.join("vendor").is_dir() && !worktree.join("vendor/new.txt").exists());
    assert!(worktree.join("beside.txt").exists());
    world.sim.shutdown().await;
}
