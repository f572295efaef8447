//! Files that nobody wrote: what commands leave behind, and what becomes of it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::solo::{calls, newest, reports, run, solo};
use super::world::{World, basic, text};

const ALLOW: &str =
    "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"test\"\n";

fn command(script: &str) -> (&'static str, Value) {
    ("run_command", json!({ "argv": ["sh", "-c", script] }))
}

fn written() -> (&'static str, Value) {
    ("write_file", json!({ "path": "lib/new.sh", "content": "echo new\n" }))
}

fn here(world: &World) -> PathBuf {
    world.shop().join(".worktrees/issue-7")
}

async fn committed(world: &World) -> String {
    world.git(&here(world), &["ls-tree", "-r", "--name-only", "HEAD"]).await
}

fn warning(output: &Value, code: &str) -> Option<String> {
    let all = output["warnings"].as_array().unwrap();
    all.iter().find(|one| one["code"] == code).map(|one| one["text"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn byte_code_and_build_folders_are_in_no_commit_and_do_not_keep_a_worktree_dirty() {
    let litter = "mkdir -p lib/__pycache__ node_modules/x target own && echo x > lib/__pycache__/a.pyc && \
                  echo x > node_modules/x/i.js && echo x > target/out && echo x > .DS_Store && echo x > own/kept.txt && \
                  echo x > own/secret.tmp";
    let replies = vec![calls(&[command(litter), written()]), reports("Written.", json!([]))];
    let world = solo(replies, Some(ALLOW), "[commit]\nexclude = [\"*.tmp\"]\n").await;
    world.verify(&format!("[[\"sh\", \"-c\", \"{litter}\"]]"));
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let files = committed(&world).await;
    for file in ["lib/new.sh", "own/kept.txt"] {
        assert!(files.lines().any(|line| line == file), "{file}: {files}");
    }
    for part in ["__pycache__", "node_modules", "target", ".DS_Store", ".tmp"] {
        assert!(!files.contains(part), "{part}: {files}");
    }
    let body = world.sim.pulls("demo/shop")[0].body.clone().unwrap();
    assert!(
        body.contains("made by commands alone: `own/kept.txt`") && !body.contains("lib/new.sh`"),
        "{body}"
    );
    let report = std::fs::read_to_string(newest(&world).join("report.md")).unwrap();
    assert!(
        report.contains("`own/kept.txt` (by a command)") && report.contains("| `lib/new.sh` | 1"),
        "{report}"
    );
    assert_eq!(warning(&output, "left_by_verify"), None, "{output:#}");
    let (_, listed) = world.json(&["worktrees", "list"]).await;
    assert_eq!(listed[0]["changed_files"], json!(0), "{listed:#}");
    let number = world.sim.pulls("demo/shop")[0].number;
    let url = format!("{}/_sim/repos/demo/shop/pulls/{number}/merge", world.sim.base_url());
    let merged = reqwest::Client::new().post(url).body("{}").send().await.unwrap();
    assert!(merged.status().is_success(), "{}", merged.text().await.unwrap());
    let (_, pruned) = world.json(&["worktrees", "prune"]).await;
    assert_eq!(pruned["removed"][0]["name"], json!("issue-7"), "nothing keeps the worktree: {pruned:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_such_a_name_that_has_files_of_the_repository_is_its_own() {
    let replies = vec![
        calls(&[
            ("write_file", json!({ "path": "tools/build/more.sh", "content": "echo more\n" })),
            ("write_file", json!({ "path": "dist/app.js", "content": "1\n" })),
        ]),
        reports("Written.", json!([])),
    ];
    let world = super::solo::solo_of(replies, Some(ALLOW), "", |scenario| {
        let files = &mut scenario.repositories[0].commits[0].files;
        files.insert(
            "tools/build/first.sh".to_owned(),
            serde_json::from_value(json!("echo first\n")).unwrap(),
        );
    })
    .await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let files = committed(&world).await;
    assert!(files.contains("tools/build/more.sh") && files.contains("tools/build/first.sh"), "{files}");
    assert!(!files.contains("dist/app.js"), "{files}");
    let told = warning(&output, "kept_out").unwrap_or_else(|| panic!("not without a word: {output:#}"));
    assert!(told.contains("`dist/app.js`") && told.contains("commit.exclude"), "{told}");
    // The worktree goes once its work is merged, and that is the last that anybody has of the file.
    let kept = "refs/agentd/left/feature/issue-7";
    assert!(told.contains(kept), "{told}");
    assert_eq!(world.git(&world.shop(), &["show", &format!("{kept}:dist/app.js")]).await, "1\n");
    assert!(world.shop().join(".worktrees/issue-7/dist/app.js").is_file(), "what runs next may need it");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_takes_a_pattern_of_the_list_back() {
    let write = ("write_file", json!({ "path": "dist/app.js", "content": "1\n" }));
    let replies = vec![calls(&[write]), reports("Written.", json!([]))];
    let world = solo(replies, Some(ALLOW), "[commit]\nexclude = [\"!dist/\"]\n").await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(committed(&world).await.contains("dist/app.js"));
    assert_eq!(warning(&output, "kept_out"), None);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_verify_leaves_is_no_part_of_this_run_or_of_the_next() {
    let replies = vec![
        calls(&[written()]),
        reports("Written.", json!([])),
        calls(&[command("true")]),
        reports("Nothing to do.", json!([])),
    ];
    let world = solo(replies, Some(ALLOW), "").await;
    let leaves = "mkdir -p made && echo x > made/by-verify.xml && echo more >> lib/new.sh && truncate -s 70000000 made/core";
    world.verify(&format!(
        "[[\"sh\", \"-c\", \"{leaves}\"], [\"sh\", \"-c\", \"test ! -e made/by-verify.xml\"]]"
    ));
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let told = warning(&output, "left_by_verify").unwrap_or_else(|| panic!("{output:#}"));
    assert!(told.contains("`made/by-verify.xml`") && told.contains("`lib/new.sh`"), "{told}");
    assert_eq!(std::fs::read_to_string(here(&world).join("lib/new.sh")).unwrap(), "echo new\n");
    assert!(!here(&world).join("made").join("by-verify.xml").exists());
    assert_eq!(world.git(&here(&world), &["status", "--porcelain"]).await, "");
    let kept = "refs/agentd/left/feature/issue-7:made/by-verify.xml";
    assert_eq!(world.git(&world.shop(), &["show", kept]).await, "x\n", "nothing is lost");
    let first = world.git(&here(&world), &["rev-parse", "HEAD"]).await;
    let pulls = world.sim.pulls("demo/shop").len();
    let (_, output) = run(&world).await;
    assert_eq!(world.git(&here(&world), &["rev-parse", "HEAD"]).await, first, "{output:#}");
    assert_eq!(world.sim.pulls("demo/shop").len(), pulls);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binary_or_large_file_that_a_command_made_is_committed_only_where_the_report_names_it() {
    let makes = "head -c 900 /dev/zero > logo.bin && head -c 900 /dev/zero > other.bin && \
                 head -c 1100000 /dev/zero | tr '\\0' 'a' > large.txt && truncate -s 70000000 huge.img";
    let replies = vec![calls(&[command(makes), written()]), reports("Adds `logo.bin`, as asked.", json!([]))];
    let world = solo(replies, Some(ALLOW), "").await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let files = committed(&world).await;
    assert!(files.contains("logo.bin") && files.contains("lib/new.sh"), "{files}");
    for file in ["other.bin", "large.txt", "huge.img"] {
        assert!(!files.contains(file) && !here(&world).join(file).exists(), "{file}: {files}");
    }
    let told = warning(&output, "left_out").unwrap_or_else(|| panic!("{output:#}"));
    assert!(told.contains("`large.txt` (1.0 MiB)") && told.contains("`other.bin` (900 bytes)"), "{told}");
    let body = world.sim.pulls("demo/shop")[0].body.clone().unwrap();
    assert!(
        body.contains("made by commands alone: `logo.bin`") && body.contains("`other.bin` (900 bytes)"),
        "{body}"
    );
    let kept =
        world.git(&world.shop(), &["cat-file", "-s", "refs/agentd/left/feature/issue-7:other.bin"]).await;
    assert_eq!(kept.trim(), "900", "nothing is lost");
    let moved = world.shop().join(".git/worktrees/issue-7/agentd-left");
    let moved = std::fs::read_dir(moved).unwrap().next().unwrap().unwrap().path();
    assert_eq!(std::fs::metadata(moved.join("huge.img")).unwrap().len(), 70_000_000);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_that_the_agent_itself_wrote_is_its_work_whatever_the_report_says() {
    // Longer than what a record holds inline, so that the record points to it.
    let content = format!("{}\u{0}\n", "long line of a generated file\n".repeat(4_000));
    let replies = vec![
        calls(&[("write_file", json!({ "path": "gen/data.js", "content": content }))]),
        reports("Written.", json!([])),
    ];
    let world = solo(replies, Some(ALLOW), "").await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(warning(&output, "left_out"), None, "{output:#}");
    assert!(committed(&world).await.contains("gen/data.js"), "{output:#}");
    let report = std::fs::read_to_string(newest(&world).join("report.md")).unwrap();
    assert!(!report.contains("by a command"), "{report}");
    let (_, log) = world.json(&["runs", "events", "latest"]).await;
    assert!(
        log.to_string().contains(r#""short":{"path":"gen/data.js"}"#),
        "what it is about stands in the record"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_commit_has_stays_in_it_although_it_would_be_kept_out() {
    let replies = vec![
        calls(&[("write_file", json!({ "path": "old.pyc", "content": "changed\n" }))]),
        reports("Written.", json!([])),
    ];
    let world = super::solo::solo_of(replies, Some(ALLOW), "", |scenario| {
        let files = &mut scenario.repositories[0].commits[0].files;
        for name in ["old.pyc", "ignored.pyc"] {
            files.insert(name.to_owned(), serde_json::from_value(json!("old\n")).unwrap());
        }
    })
    .await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let change = world.git(&here(&world), &["diff", "--stat", "origin/develop", "HEAD"]).await;
    assert!(change.contains("old.pyc") && change.contains("1 file changed"), "{change}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_is_printed() {
    let world = solo(Vec::new(), None, "[commit]\nexclude = [\"*.tmp\"]\n").await;
    let mut asked = world.command_in(&["config", "explain", "commit.exclude"]);
    let shown = tokio::task::spawn_blocking(move || asked.output().unwrap()).await.unwrap();
    let shown = text(&shown.stdout);
    for word in ["__pycache__/", "node_modules/", ".DS_Store", "*.tmp", "commit.exclude[byte code]"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_adds_everything_to_a_commit_of_its_own_adds_no_byte_code() {
    if let Some(why) = crate::agents::bench::no_sandbox() {
        eprintln!("skipped, there is no bubblewrap here: {why}");
        return;
    }
    let script = "mkdir -p lib/__pycache__ && echo x > lib/__pycache__/a.pyc && echo new > lib/new.sh && git add -A && \
                  git -c user.name=a -c user.email=a@b commit -q -m own && git status --porcelain";
    let replies = vec![calls(&[command(script)]), reports("Written.", json!([]))];
    let world = solo(replies, Some(ALLOW), "[sandbox]\nmode = \"bubblewrap\"\n").await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let history =
        world.git(&here(&world), &["log", "--name-only", "--format=%s", "origin/develop..HEAD"]).await;
    assert!(history.contains("own\n") && history.contains("lib/new.sh"), "{history}");
    assert!(!history.contains(".pyc"), "{history}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_became_a_link_to_its_new_place_is_committed_as_that() {
    let replies = vec![calls(&[command("mv lib lib2 && ln -s lib2 lib")]), reports("Moved.", json!([]))];
    let world = solo(replies, Some(ALLOW), "").await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let files = committed(&world).await;
    assert!(files.contains("lib2/cart.sh") && files.lines().any(|line| line == "lib"), "{files}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_repository_within_the_work_are_not_committed_and_people_are_told_so() {
    let nested = "mkdir nested && git init -q nested && echo x > nested/main.py";
    let replies = vec![calls(&[command(nested), written()]), reports("Written.", json!([]))];
    let world = solo(replies, Some(ALLOW), "").await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(here(&world).join("nested/main.py").exists() && !committed(&world).await.contains("nested"));
    let told = warning(&output, "nested_repository").expect("a warning");
    assert!(told.contains("`nested/`") && told.contains(".gitignore"), "{told}");
    let report = std::fs::read_to_string(newest(&world).join("report.md")).unwrap();
    assert!(report.contains("`nested/`"), "{report}");
    let body = world.sim.pulls("demo/shop")[0].body.clone().unwrap();
    assert!(body.contains("nested/"), "{body}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_no_text_hold_nothing_up_on_the_origin_branch_or_in_the_work() {
    let makes = "d=$(printf 'caf\\351'); mkdir \"$d\" && echo soup > \"$d/menu.txt\"";
    let replies = vec![calls(&[command(makes)]), reports("Done.", json!([]))];
    let world = solo(replies, Some(ALLOW), "").await;
    let (shop, header) = (world.shop(), format!("http.extraHeader=Authorization: Basic {}", basic()));
    // A folder of that kind is on the origin branch, too.
    let made = std::process::Command::new("sh")
        .args([
            "-c",
            "d=$(printf 'na\\357ve'); mkdir \"$d\" && echo old > \"$d/list.txt\" && git add -A \"$d\"",
        ])
        .current_dir(&shop)
        .status();
    assert!(made.unwrap().success());
    world.git(&shop, &["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "names"]).await;
    world.git(&shop, &["-c", &header, "push", "-q", "origin", "develop"]).await;
    let (code, output) = run(&world).await;
    assert_eq!((code, &output["stop_detail"]), (Some(0), &json!("completed")), "{output:#}");
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    let listed = std::process::Command::new("git")
        .args(["ls-tree", "-r", "--name-only", "feature/issue-7"])
        .current_dir(git_dir)
        .output()
        .unwrap();
    let names = text(&listed.stdout);
    assert!(names.contains("caf\\351/menu.txt") && names.contains("na\\357ve/list.txt"), "{names}");
    world.finish().await;
}

/// What stands in the worktree and no run made is nobody's work to publish, and is not said to be the run's.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_left_in_the_worktree_between_two_runs_is_not_published_as_the_runs_work() {
    let again = || reports("Nothing more is to be done.", json!([]));
    let own = calls(&[("write_file", json!({ "path": "own.txt", "content": "mine\n" }))]);
    let replies = vec![calls(&[written()]), reports("Written.", json!([])), again(), own, again()];
    let world = solo(replies, Some(ALLOW), "").await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let cart = std::fs::read_to_string(here(&world).join("lib/cart.sh")).unwrap();
    world.write("shop/.worktrees/issue-7/lib/cart.sh", &format!("{cart}# by hand\n"));
    world.write("shop/.worktrees/issue-7/private.txt", "do not publish\n");
    world.write("shop/.worktrees/issue-7/own.txt", "a draft\n");
    // As where it is written in the second in which agentd looks: git reads it again each time, and its index says the same each time.
    let tracked = world.git(&here(&world), &["ls-files"]).await;
    for name in tracked.lines().chain(["private.txt", "own.txt"]) {
        let file = std::fs::File::options().append(true).open(here(&world).join(name)).unwrap();
        file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(3_600)).unwrap();
    }
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(!committed(&world).await.contains("private.txt"));
    let kept = std::fs::read_to_string(here(&world).join("private.txt")).unwrap();
    assert_eq!(kept, "do not publish\n", "it stays where it is");
    let log = world.git(&here(&world), &["log", "-1", "--format=%s", "--name-only"]).await;
    assert!(
        log.starts_with("Edits found in the worktree") && log.trim_end().ends_with("lib/cart.sh"),
        "{log}"
    );
    let warnings = output["warnings"].to_string();
    assert!(
        warnings.contains("`own.txt`, `private.txt`") && warnings.contains("`lib/cart.sh`"),
        "{warnings}"
    );
    let body = world.sim.pulls("demo/shop")[0].body.clone().unwrap();
    assert!(
        !body.contains("made by commands alone") && body.contains("which no run of agentd made"),
        "{body}"
    );
    let comments = world.sim.issue("demo/shop", 7).unwrap().comments;
    assert!(
        comments.iter().any(|one| one.body.contains("edits that no run of agentd made")),
        "{comments:#?}"
    );
    // What a run writes itself is its work, also where such a file stood.
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let files = committed(&world).await;
    assert!(files.contains("own.txt") && !files.contains("private.txt"), "{files}");
    world.finish().await;
}

/// Uncommitted edits stand in the way of what was pushed: they become a commit first, and both are there in the end.
#[tokio::test(flavor = "multi_thread")]
async fn an_edit_in_the_worktree_and_a_push_of_the_same_file_meet_and_neither_is_lost() {
    let again = || reports("Nothing more is to be done.", json!([]));
    let own = |name: &str| calls(&[("write_file", json!({ "path": name, "content": "mine\n" }))]);
    let replies = vec![calls(&[written()]), reports("Written.", json!([])), own("two.txt"), again()];
    let world = solo(replies, Some(ALLOW), "").await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let cart = std::fs::read_to_string(here(&world).join("lib/cart.sh")).unwrap();
    world.write("shop/.worktrees/issue-7/lib/cart.sh", &format!("{cart}# by hand, at the end\n"));
    // Somebody else pushes to the branch from elsewhere.
    let header = format!("http.extraHeader=Authorization: Basic {}", basic());
    let elsewhere = world.dir.path().join("elsewhere");
    let remote = world.git(&world.shop(), &["remote", "get-url", "origin"]).await;
    let branch = ["clone", "-q", "-b", "feature/issue-7", remote.trim(), &elsewhere.display().to_string()]
        .map(str::to_owned);
    let mut args = vec!["-c", &header];
    args.extend(branch.iter().map(String::as_str));
    world.git(world.dir.path(), &args).await;
    std::fs::write(elsewhere.join("lib/cart.sh"), format!("# pushed, at the beginning\n{cart}")).unwrap();
    world.git(&elsewhere, &["-c", "user.name=Max", "-c", "user.email=m@b", "commit", "-qam", "pushed"]).await;
    world.git(&elsewhere, &["-c", &header, "push", "-q", "origin", "feature/issue-7"]).await;

    let (code, output) = run(&world).await;
    assert_eq!((code, &output["stop_detail"]), (Some(0), &json!("completed")), "{output:#}");
    let warnings = output["warnings"].to_string();
    assert!(
        warnings.contains("edits that no run of agentd made") && warnings.contains("pushed to the branch"),
        "{warnings}"
    );
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    let there = world.git(&git_dir, &["show", "feature/issue-7:lib/cart.sh"]).await;
    assert!(there.starts_with("# pushed") && there.ends_with("at the end\n"), "{there}");
    assert_eq!(world.git(&here(&world), &["status", "--porcelain"]).await, "");
    world.finish().await;
}

/// All that the agent wrote is in no commit: nobody hears only that it is done.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_repository_or_the_machine_ignores_is_named_where_the_agent_wrote_it() {
    let machine = "core.excludesFile";
    let ways = [
        ("repository", "the repository ignores them"),
        ("machine", machine),
        ("machine, in a file of the home", machine),
        ("machine, in a file elsewhere", machine),
    ];
    for (ignores, why) in ways {
        let write = ("write_file", json!({ "path": "gen/conf.py", "content": "x = 1\n" }));
        let replies = vec![calls(&[write]), reports("Made gen/conf.py.", json!([]))];
        let world = super::solo::solo_of(replies, Some(ALLOW), "", |scenario| {
            let files = &mut scenario.repositories[0].commits[0].files;
            if ignores == "repository" {
                files.insert(".gitignore".to_owned(), serde_json::from_value(json!("gen/\n")).unwrap());
            }
        })
        .await;
        let elsewhere = world.shop().with_file_name("shared-ignores").display().to_string();
        match ignores {
            "repository" => {}
            "machine" => world.write(".config/git/ignore", "gen/\n"),
            _ => {
                let named = if ignores.ends_with("home") { "~/shared-ignores" } else { &elsewhere };
                world.write("shared-ignores", "gen/\n");
                world.write(".config/git/config", &format!("[core]\nexcludesFile = {named}\n"));
            }
        }
        let (code, output) = run(&world).await;
        assert_eq!(code, Some(0), "{output:#}");
        let told = warning(&output, "kept_out").unwrap_or_else(|| panic!("{ignores}: {output:#}"));
        assert!(told.contains("`gen/conf.py`") && told.contains(why), "{told}");
        let comment = world.sim.issue("demo/shop", 7).unwrap().comments[0].body.clone();
        assert!(comment.contains("Done, without a change.") && comment.contains("gen/conf.py"), "{comment}");
        assert!(comment.contains("nothing of what it made is committed"), "{comment}");
        world.sim.shutdown().await;
    }
}

/// What `docs/stopping.md` gives to be typed takes away all that agentd made in a clone.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_page_on_removing_says_leaves_nothing_of_agentd_in_the_clone() {
    let world = World::new(1).await;
    let shop = world.shop();
    world.git(&shop, &["config", "user.email", "a@b"]).await;
    world.git(&shop, &["config", "user.name", "a"]).await;
    let toml = std::fs::read_to_string(shop.join(".agent/agentd.toml")).unwrap();
    let here = format!("[github]\napi_url = \"{}\"\n", world.sim.api_url());
    world.write("shop/.agent/agentd.toml", &toml.replacen("[github]\n", &here, 1));
    world.git(&shop, &["add", ".agent"]).await;
    world.git(&shop, &["commit", "-qm", "agentd"]).await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let made = || async {
        let refs = world.git(&shop, &["for-each-ref", "refs/agentd", "refs/heads/feature"]).await;
        let worktrees = world.git(&shop, &["worktree", "list"]).await;
        let folders = [".agent", ".worktrees", ".git/agentd", ".git/worktrees"];
        let folders: Vec<&str> = folders.into_iter().filter(|folder| shop.join(folder).exists()).collect();
        (refs.lines().count(), worktrees.lines().count(), folders.join(" "))
    };
    let (refs, worktrees, folders) = made().await;
    assert!(refs > 3 && worktrees == 2 && folders.contains(".worktrees .git/agentd"), "{refs} {folders}");
    let page = include_str!("../../../docs/stopping.md");
    let (_, part) = page.split_once("In the clone, everything that agentd made").unwrap();
    let typed = part.split("```").nth(1).unwrap().strip_prefix("sh\n").unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_agentd")).parent().unwrap();
    let mut shell = world.command(&[]);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut command = std::process::Command::new("sh");
    command.args(["-ec", typed]).current_dir(&shop).env_clear();
    command.envs(shell.env("PATH", path).get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    assert_eq!(made().await, (0, 1, String::new()));
    world.finish().await;
}
