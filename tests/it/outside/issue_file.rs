//! `--issue-file`: the same main job without a tracker (D30, D94).

use agentd::sim::ReplyFile;
use serde_json::{Value, json};

use super::solo::{asked, calls, newest, reports, solo};
use super::world::{World, text};

/// `agentd … --json` without any token for GitHub.
async fn without_token(world: &World, args: &[&str]) -> (Option<i32>, Value, String) {
    let mut command = world.command_in(&[&["--json"], args].concat());
    command.env_remove("GITHUB_TOKEN").env("SHELL", "/bin/true");
    command.env("GIT_AUTHOR_NAME", "Grace").env("GIT_AUTHOR_EMAIL", "grace@example.com");
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    (done.status.code(), serde_json::from_slice(&done.stdout).unwrap_or_default(), text(&done.stderr))
}

fn question() -> ReplyFile {
    let asks = json!({ "question": "In which unit?", "options": ["cents", "dollars"] });
    calls(&[("agent__ask", asks)])
}

#[tokio::test(flavor = "multi_thread")]
async fn d30_an_issue_from_a_file_needs_neither_tracker_nor_token_nor_remote() {
    let world = World::new(2).await;
    world.git(&world.shop(), &["checkout", "-q", "-B", "develop"]).await;
    world.git(&world.shop(), &["remote", "remove", "origin"]).await;
    let issue = "# Discount takes off cents\n\nSee `tests/run.sh`.\n";
    world.write("shop/12.md", issue);
    world.write("shop/discount.md", issue);
    let requests = world.sim.requests().len();
    for (file, branch) in [("12.md", "feature/issue-12"), ("discount.md", "feature/issue-")] {
        let mut command = world.command_in(&["--json", "run", "--issue-file", file]);
        command.env_remove("GITHUB_TOKEN");
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let output: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(done.status.code(), Some(0), "{output:#}\n{}", text(&done.stderr));
        assert_eq!(output["objective"]["title"], "Discount takes off cents");
        let made = output["mapping"]["branch"].as_str().unwrap().to_owned();
        assert!(made.starts_with(branch), "{made}");
        assert!(output["artifacts"]["pr_url"].is_null());
        let fixed = world.git(&world.shop(), &["show", &format!("{made}:lib/cart.sh")]).await;
        assert!(fixed.contains("$1 * (100 - $2) / 100"), "{fixed}");
    }
    let asked = world.sim.requests().split_off(requests);
    assert!(asked.iter().all(|request| request.target.starts_with("/model/")), "GitHub was asked");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d30_a_file_that_is_no_issue_is_refused() {
    let world = World::new(1).await;
    world.write("shop/empty.md", "no heading\n");
    for (file, told) in [("empty.md", "heading"), ("absent.md", "absent.md")] {
        let (code, output) = world.json(&["run", "--issue-file", file]).await;
        assert_eq!(code, Some(4), "{output:#}");
        assert!(output["summary"].as_str().unwrap().contains(told), "{output:#}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d30_the_issue_of_a_file_is_named_by_its_word_or_its_file_wherever_a_person_acts_on_it() {
    let replies = vec![question(), reports("Done.", json!([])), reports("Done again.", json!([]))];
    let world = solo(replies, None, "").await;
    world.git(&world.shop(), &["checkout", "-q", "-B", "develop"]).await;
    world.git(&world.shop(), &["remote", "remove", "origin"]).await;
    world.configure(&["agent = \"solo\""]);
    world.write("shop/notes.md", "# Discount takes off cents\n\nSee `tests/run.sh`.\n");
    let ask = async |args: &[&str]| without_token(&world, args).await;

    let (code, output, told) = ask(&["run", "--issue-file", "notes.md"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("question_pending")), "{output:#} {told}");
    let first = newest(&world);
    let word = output["mapping"]["issue"].as_str().unwrap().to_owned();
    let waits = |status: &Value| {
        let parked = &status["parked"][0];
        (parked["issue"].clone(), parked["code"].clone())
    };
    let (_, status, told) = ask(&["status"]).await;
    assert_eq!(waits(&status), (json!(word), json!("question_pending")), "{status:#} {told}");
    let (code, why, told) = ask(&["why", &word]).await;
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(why["do"], format!("agentd answer {word} TEXT"), "{why:#}");
    let (_, listed, _) = ask(&["runs", "list", "--issue", "notes.md"]).await;
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed:#}");
    let (code, none, _) = ask(&["attach", &word]).await;
    assert_eq!(code, Some(4), "{none:#}");
    let (code, _, told) = ask(&["run", &word]).await;
    assert!(code == Some(4) && told.contains("--issue-file"), "{told}");
    let (code, said, told) = ask(&["say", &word, "Mind the tests."]).await;
    assert_eq!((code, &said["place"]), (Some(0), &json!("waits for the next run")), "{said:#} {told}");
    let (code, given, told) = ask(&["extend", &word, "1"]).await;
    assert_eq!((code, &given["issue"]), (Some(0), &json!(word)), "{given:#} {told}");
    let (code, rejected, told) = ask(&["reject", &word, "no"]).await;
    assert!(code == Some(4) && told.contains(&format!("on issue {word}")), "{rejected:#} {told}");

    let (code, answered, told) = ask(&["answer", "notes.md", "2"]).await;
    assert_eq!((code, &answered["issue"]), (Some(0), &json!(word)), "{answered:#} {told}");
    let run = answered["run_id"].as_str().unwrap();
    assert!(first.ends_with(run), "{answered:#}");
    let (_, status, _) = ask(&["status"]).await;
    assert_eq!(waits(&status), (json!(word), json!("answered")), "{status:#}");
    let (_, why, _) = ask(&["why", &word]).await;
    assert_eq!(why["do"], format!("agentd runs resume {run}"), "{why:#}");
    let (code, output, told) = ask(&["runs", "resume", run]).await;
    assert_eq!(code, Some(0), "{output:#} {told}");
    let prompts = asked(&world);
    assert!(prompts[1].contains("dollars") && prompts[1].contains("Mind the tests."), "{}", prompts[1]);

    let (code, taken, told) = ask(&["take", &word]).await;
    assert_eq!((code, &taken["issue"]), (Some(0), &json!(word)), "{taken:#} {told}");
    let worktree = world.shop().join(format!(".worktrees/issue-{word}"));
    assert_eq!(taken["worktree"], worktree.display().to_string());
    let (_, pruned, _) = ask(&["worktrees", "prune"]).await;
    assert!(pruned["kept"][0]["reason"].to_string().contains("has the work in it"), "{pruned:#}");
    let (code, _, told) = ask(&["shell", &word]).await;
    assert_eq!(code, Some(0), "{told}");
    std::fs::write(worktree.join("by_hand.txt"), "mine\n").unwrap();
    let (code, output, told) = ask(&["give-back", "notes.md", "-m", "Go on from there."]).await;
    assert_eq!(code, Some(0), "{output:#} {told}");
    assert!(asked(&world)[2].contains("Go on from there."), "{}", asked(&world)[2]);
    assert_eq!(output["mapping"]["issue"], json!(word), "{output:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_of_a_file_gets_no_work_of_the_trackers_issue_of_its_number_nor_the_other_way_around() {
    let world = World::of(2, |scenario| {
        let issues = &mut scenario.repositories[0].issues;
        let mut other = issues[0].clone();
        other.number = Some(8);
        issues.push(other);
    })
    .await;
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let head = |pull: usize| world.sim.pulls("demo/shop")[pull].pull.clone().unwrap().head_sha;
    let (before, asked) = (head(0), world.sim.model_requests().len());
    world.write("shop/issue-7.md", "# Something quite different\n\nNothing of that.\n");
    let (code, refused) = world.json(&["run", "--issue-file", "issue-7.md"]).await;
    assert_eq!((code, &refused["stop_detail"]), (Some(4), &json!("mapping_conflict")), "{refused:#}");
    assert!(refused.to_string().contains("is another issue of that number"), "{refused:#}");
    assert_eq!((head(0), world.sim.model_requests().len()), (before, asked));
    // The other way around, until nothing has the branch any more.
    world.write("shop/8.md", "# Discount takes off cents\n\nSee `tests/run.sh`.\n");
    let (code, output) = world.json(&["run", "--issue-file", "8.md"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    let (code, refused) = world.json(&["run", "--issue", "8"]).await;
    assert_eq!((code, &refused["stop_detail"]), (Some(4), &json!("mapping_conflict")), "{refused:#}");
    world.sim.shutdown().await;
}
