//! Work that nobody wants any more, where no daemon polls: `agentd daemon --once` and `agentd sweep` hear of it all the same (D39).

use std::process::Stdio;

use serde_json::{Value, json};

use super::daemons::{slow_model, until};
use super::world::{World, text};

/// Runs a command that works on issue 7; while its model thinks, something happens on GitHub. Gives its report.
async fn meanwhile(world: &World, args: &[&str], happens: impl FnOnce(&World)) -> Value {
    slow_model(world, 0, 8000);
    let mut command = world.command_in(&[&["--json"], args].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("a request", || world.sim.requests().iter().any(|one| one.target.starts_with("/model"))).await;
    happens(world);
    let done = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

fn close(world: &World) {
    world.sim.close_issue("demo/shop", 7, "ada");
}

fn unlabel(world: &World) {
    world.sim.remove_label("demo/shop", 7, "agentd", "ada");
}

/// What is started, whether the issue has the label, what happens meanwhile, and how the run ends.
type Case<'a> = (&'a [&'a str], bool, fn(&World), &'a str);

#[tokio::test(flavor = "multi_thread")]
async fn d39_an_issue_that_is_closed_or_unlabelled_ends_the_run_of_a_single_look_and_of_a_sweep() {
    let cases: [Case<'_>; 5] = [
        (&["daemon", "--once"], true, close, "issue_closed"),
        (&["daemon", "--once"], true, unlabel, "label_removed"),
        (&["sweep"], true, close, "issue_closed"),
        (&["sweep"], true, unlabel, "label_removed"),
        (&["sweep", "--all", "--yes"], false, close, "issue_closed"),
    ];
    for (args, labelled, happens, detail) in cases {
        let world = World::new(1).await;
        if labelled {
            world.sim.add_label("demo/shop", 7, "agentd", "ada");
        }
        let report = meanwhile(&world, args, happens).await;
        let ended = &report["ended"][0];
        assert_eq!(
            (&ended["stop_reason"], &ended["stop_detail"], &ended["pr_url"]),
            (&json!("HUMAN_REQUESTED"), &json!(detail), &Value::Null),
            "{args:?}: {report:#}"
        );
        assert!(world.sim.pulls("demo/shop").is_empty(), "{args:?}");
        assert_eq!(world.labels(), ["agentd:attention"], "{args:?}");
        world.finish().await;
    }
}
