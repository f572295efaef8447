//! A run as a process of its own, to be looked at, stopped or killed while it works.

use std::process::Child;
use std::time::Duration;

use agentd::sim::FaultFile;
use serde_json::{Value, json};

use super::world::World;

/// Requests to the model after the first `skip` are answered late.
pub fn delayed(skip: u32, delay_ms: u64) -> FaultFile {
    serde_json::from_value(
        json!({ "path": "/model/**", "kind": "delay", "delay_ms": delay_ms, "skip": skip }),
    )
    .unwrap()
}

/// `agentd run --issue 7` under way.
pub fn start(world: &World) -> Child {
    let mut command = world.command_in(&["--json", "run", "--issue", "7"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
}

/// Until something is so; the child must live so long.
pub async fn until(child: &mut Child, so: impl Fn() -> bool) {
    while !so() {
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Its exit code and run output.
pub async fn ended(child: Child) -> (Option<i32>, Value) {
    let done = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    (done.status.code(), serde_json::from_slice(&done.stdout).unwrap())
}
