//! Several calls in one reply, on one worktree (C-25).

use serde_json::json;

use super::solo::{asked, calls, reports, run, solo};

const POLICY: &str = r#"[[rule]]
id = "all"
kind = "tool"
name = "*"
effect = "allow"
reason = "r"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn c_25_whoever_edits_tests_and_edits_again_in_one_reply_is_told_of_the_tree_between() {
    let write = |content: &str| ("write_file", json!({ "path": "a.txt", "content": content }));
    let tests = json!({ "argv": ["sh", "-c", "sleep 0.3; echo tested $(cat a.txt); echo second >> a.txt"] });
    let read = ("read_file", json!({ "path": "a.txt" }));
    let reply = [write("first\n"), ("run_command", tests), read.clone(), write("third\n"), read];
    let world = solo(vec![calls(&reply), reports("Done.", json!([]))], Some(POLICY), "").await;
    let (code, result) = run(&world).await;
    assert_eq!(code, Some(0), "{result:#}");
    let told = &asked(&world)[1];
    for (wanted, why) in [
        (r"[stdout]\ntested first\n", "the command had what stood before it"),
        (r"1\tfirst\n2\tsecond\n", "what was read is what the command left"),
        (r"1\tthird\n", "and then what was written last"),
    ] {
        assert!(told.contains(wanted), "{why}: {told}");
    }
    let committed = world.git(&world.shop(), &["show", "feature/issue-7:a.txt"]).await;
    assert_eq!(committed.trim(), "third");
    world.finish().await;
}
