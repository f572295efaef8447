//! `--issue-file`: the same main job without a tracker (D30, D94).

use super::world::{World, text};

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
        let output: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
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
