//! Files that the policy denies: no tool of agentd's own shows them on the way, and no report learns what they say.

use serde_json::json;

use super::cases::results;
use super::solo::{asked, calls, reports, run, solo};

const POLICY: &str = r#"
[[rule]]
id = "secrets"
kind = "tool"
name = "read_file"
effect = "deny"
deny_mode = "tool_result"
reason = "secret"
when = { path = ["secrets/**", "**/.env*"] }

[[rule]]
id = "names"
kind = "tool"
name = "list_files"
effect = "deny"
deny_mode = "tool_result"
reason = "secret"
when = { path = ["secrets/**", "**/.env*"] }

[[rule]]
id = "all"
kind = "tool"
name = "*"
effect = "allow"
reason = "test"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_the_policy_denies_is_left_out_where_a_folder_above_it_is_looked_at() {
    let write = |path: &str, content: &str| ("write_file", json!({ "path": path, "content": content }));
    let denied = ["secrets/Combination.txt", "app/.env.local"];
    let cite = |quote: &str| json!([{ "path": denied[0], "start": 1, "end": 1, "quote": quote }]);
    let claim =
        |n: u32, quote: &str| json!({ "statement": format!("s{n}"), "kind": "other", "cites": cite(quote) });
    let replies = vec![
        calls(&[
            write(denied[0], "needle zanzibar\n"),
            write(denied[1], "needle zanzibar\n"),
            write("app/open.txt", "needle plain\n"),
        ]),
        calls(&[("list_files", json!({}))]),
        calls(&[("search", json!({ "pattern": "needle .*" }))]),
        calls(&[("search", json!({ "pattern": "zanz", "path": "secrets" }))]),
        calls(&[("search", json!({ "pattern": "zanz", "path": denied[0] }))]),
        calls(&[("git_diff", json!({}))]),
        calls(&[("git_status", json!({}))]),
        reports("Done.", json!([claim(1, "needle zanzibar"), claim(2, "wrong guess")])),
        reports("Done.", json!([])),
    ];
    let world = solo(replies, Some(POLICY), "").await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    // The request before the report has the answers to all calls, in their order.
    let answers = results(&world, 7);
    let told = &answers[3..];
    for (tool, answer, shown) in [
        ("list_files", &told[0], "app/open.txt"),
        ("search", &told[1], "needle plain"),
        ("git_diff", &told[4], "needle plain"),
        ("git_status", &told[5], "app/open.txt"),
    ] {
        assert!(answer.contains(shown), "{tool}: {answer}");
        assert!(answer.contains("\"files_denied_by_policy\":2"), "{tool}: {answer}");
    }
    for secret in ["zanzibar", "Combination", ".env.local"] {
        for (at, answer) in told.iter().enumerate() {
            let named_by_the_call = at == 3 && secret == "Combination";
            assert!(named_by_the_call || !answer.contains(secret), "call {at} tells {secret}: {answer}");
        }
    }
    let last = asked(&world).pop().unwrap();
    assert!(!last.contains("do not say"), "a right guess and a wrong one hear the same: {last}");
    assert_eq!(last.matches("the policy denies reading").count(), 2, "{last}");
    world.finish().await;
}
