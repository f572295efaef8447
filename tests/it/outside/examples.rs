//! The programs of `examples/`, run as a host would run them: over an MCP server and a scripted model.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Value, json};

use super::desk::{Desk, USER};

/// The example's program. `cargo test` builds it beside the tests; `cargo test --test it` alone does not.
#[expect(clippy::print_stdout, reason = "a skipped test says why")]
fn built(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_BIN_EXE_agentd")).parent().unwrap();
    let changed = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
    let program = folder.join("examples").join(name).with_extension(std::env::consts::EXE_EXTENSION);
    let library = changed(&folder.join("libagentd.rlib")).unwrap_or(SystemTime::UNIX_EPOCH);
    let fresh = changed(&program).is_some_and(|built| built >= library);
    if !fresh {
        println!("skipped: the example {name} is not built; cargo build --examples, or cargo test, does it");
    }
    fresh.then_some(program)
}

async fn output(desk: &Desk, program: &Path, args: &[&str]) -> (bool, String) {
    let mut command = desk.command_of(program, args);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    (done.status.success(), told + &String::from_utf8_lossy(&done.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn s_001_the_chat_example_holds_a_turn_of_a_conversation() {
    let Some(chat) = built("chat") else { return };
    let call = "[[model.replies]]\ntool_calls = [{ name = \"desk__whoami\" }]\n";
    let desk = Desk::new(&format!("{call}[[model.replies]]\ntext = \"You are you.\"\n")).await;
    let place = desk.dir.path().display().to_string();
    let (fine, told) = output(&desk, &chat, &[&place, USER, "Who am I?"]).await;
    assert!(fine && told.starts_with("You are you.\n[2 iterations, "), "{told}");
    assert!(desk.request(1)["messages"].to_string().contains(USER), "the tool was called for the user");
    let (fine, told) = output(&desk, &chat, &[&place, "nobody", "Who am I?"]).await;
    assert!(!fine && told.contains("user_id is not a UUID"), "{told}");
    desk.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_018_s_023_the_tools_example_lists_the_tools_and_calls_one() {
    let Some(tools) = built("tools") else { return };
    let desk = Desk::new("").await;
    let place = desk.dir.path().display().to_string();
    let (fine, told) = output(&desk, &tools, &[&place]).await;
    assert!(fine && told.lines().any(|line| line.starts_with("desk__echo: ")), "{told}");
    let (fine, told) = output(&desk, &tools, &[&place, USER, "desk__echo", "{\"text\": \"hello\"}"]).await;
    let result: Value = serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"));
    assert!(fine, "{told}");
    assert_eq!(result, json!({ "status": "success", "result": "hello" }));
    let (_, told) = output(&desk, &tools, &[&place, USER, "desk__nope", "{}"]).await;
    assert!(told.contains("ToolNotFound"), "{told}");
    desk.finish().await;
}
