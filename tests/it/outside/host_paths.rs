//! Where things stand on this machine is nobody's business who reads an issue, a pull request or a commit.

use serde_json::json;

use super::solo::{calls, newest, reports, run, solo};
use super::world::World;

/// Everything that GitHub has of the issue.
async fn published(world: &World) -> String {
    let issue = world.sim.issue("demo/shop", 7).unwrap();
    let comments: Vec<String> = issue.comments.iter().map(|comment| comment.body.clone()).collect();
    let pulls = world.sim.pulls("demo/shop");
    let bodies: Vec<String> = pulls
        .iter()
        .map(|pull| format!("{} {}", pull.title, pull.body.clone().unwrap_or_default()))
        .collect();
    let here = world.sim.git_dir("demo/shop").unwrap();
    let commits = match agentd::sim::bare::head(&here, "feature/issue-7") {
        Some(_) => world.git(&here, &["log", "--format=%B", "develop..feature/issue-7"]).await,
        None => String::new(),
    };
    comments.join("\n") + &bodies.join("\n") + &commits
}

#[tokio::test(flavor = "multi_thread")]
async fn the_output_of_a_red_command_and_the_words_of_a_model_name_files_relative_to_the_checkout() {
    let place = "echo \"$PWD/lib/new.sh:3: is wrong, see $HOME/notes and $PWD\"";
    let writes = calls(&[("write_file", json!({ "path": "lib/new.sh", "content": "echo new\n" }))]);
    let world = solo(vec![writes], None, "").await;
    let home = world.dir.path().display().to_string();
    let said = format!(
        "Wrote {home}/shop/.worktrees/issue-7/lib/new.sh, as {home}/shop/README.md and {home}/x say."
    );
    world.sim.push_replies(vec![reports(&said, json!([]))]).unwrap();
    world.verify(&format!("[[\"sh\", \"-c\", \"{}; exit 1\"]]", place.replace('"', "\\\"")));
    let (code, output) = run(&world).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("verify_failed")), "{output:#}");
    let all = published(&world).await;
    assert!(!all.contains(&home), "{all}");
    for told in ["Wrote lib/new.sh, as README.md and ~/x say.", "lib/new.sh:3: is wrong"] {
        assert!(all.contains(told), "{told}: {all}");
    }
    let report = std::fs::read_to_string(newest(&world).join("report.md")).unwrap();
    assert!(report.contains(&home), "for the people of this machine they stay: {report}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_daemon_refuses_is_told_without_the_place() {
    let world = World::new(1).await;
    world.write("shop/.worktrees/issue-7/mine.txt", "mine\n");
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let (_, report) = world.json(&["daemon", "--once"]).await;
    let home = world.dir.path().display().to_string();
    let all = published(&world).await;
    assert!(all.contains(".worktrees/issue-7 is a directory that agentd did not make"), "{all}\n{report:#}");
    assert!(!all.contains(&home), "{all}");
    world.finish().await;
}
