//! The policy in force: rules, a real program, and what happens when the program misbehaves.

use std::io::Write as _;
use std::time::{Duration, Instant};

use agentd::definition::policy_file::{PolicySource, read_policies, read_question};
use agentd::domain::policy::{Decision, DenyMode, PolicyInput};
use agentd::domain::rules::RuleSet;
use agentd::engine::policy::Policy;
use agentd::engine::policy_program::PolicyProgram;
use agentd::sys::paths::AbsPath;
use agentd::sys::worktree_path::WorktreeRoot;
use serde_json::{Value, json};
use tempfile::TempDir;

fn rules(text: &str) -> RuleSet {
    read_policies(&[PolicySource { name: "policy.toml".into(), text: text.into() }]).unwrap()
}

fn rule(id: &str, kind: &str, name: &str, effect: &str, more: &str) -> String {
    format!(
        "[[rule]]\nid = \"{id}\"\nkind = \"{kind}\"\nname = \"{name}\"\neffect = \"{effect}\"\nreason = \"{id}\"\n{more}\n"
    )
}

fn call(tool: &str, arguments: &Value) -> PolicyInput {
    read_question(&json!({ "kind": "tool", "tool": tool, "arguments": arguments, "risk": "write" })).unwrap()
}

fn handoff(to: &str) -> PolicyInput {
    read_question(&json!({ "kind": "handoff", "from": "a", "to": to })).unwrap()
}

/// A policy program: a shell script in a folder of its own.
fn program(folder: &TempDir, script: &str) -> PolicyProgram {
    let path = folder.path().join("policy.sh");
    let mut file = std::fs::File::create(&path).unwrap();
    writeln!(file, "{script}").unwrap();
    drop(file);
    PolicyProgram {
        argv: vec!["/bin/sh".into(), path.to_str().unwrap().into()],
        cwd: AbsPath::new(folder.path()).unwrap(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        timeout: Duration::from_secs(5),
    }
}

async fn answer(script: &str) -> agentd::engine::policy::PolicyVerdict {
    let folder = TempDir::new().unwrap();
    Policy::new(RuleSet::default(), Some(program(&folder, script))).decide(&call("count", &json!({}))).await
}

#[tokio::test]
async fn p_004_without_a_policy_every_kind_is_denied_as_not_configured() {
    let verdict = Policy::default().decide(&call("echo", &json!({}))).await;
    assert_eq!(verdict.result.reason, "policy_not_configured");
    assert_eq!(verdict.result.deny_mode, Some(DenyMode::Throw), "P-015");
    let tools_only = Policy::new(rules(&rule("all", "tool", "*", "allow", "")), None);
    assert_eq!(tools_only.decide(&call("echo", &json!({}))).await.result.decision, Decision::Allow);
    assert_eq!(tools_only.decide(&handoff("b")).await.result.reason, "policy_not_configured", "P-003");
}

#[tokio::test]
async fn c_03_protocol_tools_are_allowed_whatever_the_policy_says() {
    let policy = Policy::new(rules(&rule("none", "tool", "*", "deny", "")), None);
    for tool in ["agent__final_report", "agent__task_status", "tool_output"] {
        let verdict = policy.decide(&call(tool, &json!({}))).await;
        assert_eq!(verdict.result.decision, Decision::Allow);
        assert_eq!(verdict.result.reason, "protocol_tool");
        assert_eq!(verdict.result.policy_version.as_deref(), Some("builtin"));
    }
    assert_eq!(
        policy.decide(&call("agent__final_report2", &json!({}))).await.result.decision,
        Decision::Deny
    );
}

#[tokio::test]
async fn p_005_a_program_that_fails_is_a_policy_error() {
    let one = answer("exit 7").await;
    assert_eq!((one.result.reason.as_str(), one.result.decision), ("policy_error", Decision::Deny));
    assert_eq!(one.result.metadata.unwrap()["exit_code"], 7);
    let killed = answer("kill -9 $$").await;
    assert_eq!(killed.result.reason, "policy_error");
    assert_eq!(killed.result.metadata.unwrap()["signal"], 9);
    // The answer of a program that then fails does not count.
    assert_eq!(
        answer(r#"echo '{"decision":"allow","reason":"x"}'; exit 1"#).await.result.reason,
        "policy_error"
    );

    let folder = TempDir::new().unwrap();
    let absent = PolicyProgram { argv: vec!["/nonexistent/policy".into()], ..program(&folder, "") };
    let verdict = Policy::new(RuleSet::default(), Some(absent)).decide(&call("count", &json!({}))).await;
    assert_eq!(verdict.result.reason, "policy_error");
}

#[tokio::test]
async fn p_005_a_program_that_hangs_is_ended_after_its_time() {
    let folder = TempDir::new().unwrap();
    let slow = PolicyProgram { timeout: Duration::from_millis(300), ..program(&folder, "sleep 30") };
    let before = Instant::now();
    let verdict = Policy::new(RuleSet::default(), Some(slow)).decide(&call("count", &json!({}))).await;
    assert_eq!(verdict.result.reason, "policy_error");
    assert_eq!(verdict.result.metadata.unwrap()["timeout_ms"], 300);
    assert!(before.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn p_006_a_program_that_answers_wrongly_is_an_invalid_policy_result() {
    let bad = [
        "true",
        "echo allow",
        "echo '[]'",
        "echo '{}'",
        r#"echo '{"decision":"maybe","reason":"x"}'"#,
        r#"echo '{"decision":"ALLOW","reason":"x"}'"#,
        r#"echo '{"decision":"allow"}'"#,
        r#"echo '{"decision":"allow","reason":" "}'"#,
        r#"echo '{"decision":"allow","reason":1}'"#,
        r#"echo '{"decision":"allow","reason":"x","publicReason":1}'"#,
        r#"echo '{"decision":"allow","reason":"x","publicReason":null}'"#,
        r#"echo '{"decision":"deny","reason":"x","denyMode":"softly"}'"#,
        r#"echo '{"decision":"deny","reason":"x","resultMode":"throw"}'"#,
        r#"echo '{"decision":"allow","reason":"x","metadata":[]}'"#,
        r#"echo '{"decision":"allow","reason":"x","policyVersion":3}'"#,
        r#"echo '{"decision":"allow","reason":"x"}{"decision":"deny","reason":"x"}'"#,
        r#"echo '{"decision":"deny","reason":"x","decision":"allow"}'"#,
        r#"printf '{"decision":"allow","reason":"x"'"#,
        r#"printf '\377{"decision":"allow","reason":"x"}'"#,
        r#"printf '{"decision":"allow","reason":"x","metadata":{"a":"'; head -c 70000 /dev/zero | tr '\0' a; printf '"}}'"#,
    ];
    for script in bad {
        let verdict = answer(script).await;
        assert_eq!(verdict.result.decision, Decision::Deny, "{script}");
        assert_eq!(verdict.result.reason, "invalid_policy_result", "{script}");
        assert_eq!(verdict.result.deny_mode, Some(DenyMode::Throw), "{script}");
    }
}

#[tokio::test]
async fn p_009_to_p_015_a_good_answer_is_taken_unchanged() {
    let script = r#"echo '{"decision":"deny","reason":"r.1","publicReason":"p","denyMode":"tool_result","policyVersion":"v9","metadata":{"a":[1]}}'"#;
    let result = serde_json::to_value(answer(script).await.result).unwrap();
    let wanted = json!({ "decision": "deny", "reason": "r.1", "publicReason": "p", "denyMode": "tool_result",
        "policyVersion": "v9", "metadata": { "a": [1] } });
    assert_eq!(result, wanted);
    let plain = answer(r#"echo '{"decision":"deny","reason":"r"}'"#).await;
    assert_eq!(plain.result.deny_mode, Some(DenyMode::Throw), "P-015: materialised");
}

#[tokio::test]
async fn p_007_the_program_reads_the_same_input_and_the_decision_is_the_same() {
    let folder = TempDir::new().unwrap();
    // The whole input comes back as the reason's hash.
    let script = r#"sum=$(sha256sum | cut -c1-64); printf '{"decision":"allow","reason":"%s"}' "$sum""#;
    let policy = Policy::new(RuleSet::default(), Some(program(&folder, script)));
    let input = call("count", &json!({ "b": 1, "a": [1.0, "x"] }));
    let first = policy.decide(&input).await.result;
    let hash = agentd::domain::canonical::sha256_hex(&serde_json::to_vec(&input).unwrap());
    assert_eq!(first.reason, hash);
    for _ in 0..10 {
        assert_eq!(policy.decide(&input).await.result, first);
    }
}

#[tokio::test]
async fn p_038_the_program_narrows_and_an_approval_lifts_only_what_asks_for_one() {
    let allow = r#"echo '{"decision":"allow","reason":"program"}'"#;
    let deny = r#"echo '{"decision":"deny","reason":"program"}'"#;
    let approval = r#"echo '{"decision":"deny","reason":"program","metadata":{"approval":"required"}}'"#;
    let by_rules = [
        rule("yes", "tool", "count", "allow", ""),
        rule("no", "tool", "count", "deny", ""),
        rule("approval_required", "tool", "count", "deny", ""),
        rule("silent", "tool", "other", "allow", ""),
    ];
    // rules × program → decision, reason, rule, asks for approval
    let table = [
        (0, allow, Decision::Allow, "program", Some("yes"), false),
        (0, deny, Decision::Deny, "program", None, false),
        (0, approval, Decision::Deny, "program", None, true),
        (1, allow, Decision::Deny, "no", Some("no"), false),
        (1, approval, Decision::Deny, "no", Some("no"), false),
        (2, allow, Decision::Deny, "approval_required", Some("approval_required"), true),
        (2, deny, Decision::Deny, "program", None, false),
        (2, approval, Decision::Deny, "approval_required", Some("approval_required"), true),
        (3, allow, Decision::Deny, "no_rule_matched", None, false),
    ];
    for (set, script, decision, reason, rule_id, asks) in table {
        let folder = TempDir::new().unwrap();
        let policy = Policy::new(rules(&by_rules[set]), Some(program(&folder, script)));
        let verdict = policy.decide(&call("count", &json!({}))).await;
        let told = (verdict.result.decision, verdict.result.reason.as_str(), verdict.rule_id.as_deref());
        assert_eq!(told, (decision, reason, rule_id), "{} and {script}", by_rules[set]);
        assert_eq!(verdict.result.asks_for_approval(), asks, "{} and {script}", by_rules[set]);
    }
}

#[tokio::test]
async fn c_28_an_admission_is_only_narrowed() {
    let run = |permission: &str| {
        read_question(&json!({ "kind": "run", "agent": "resolver", "actorPermission": permission })).unwrap()
    };
    let none = Policy::default().decide(&run("read")).await;
    assert_eq!((none.result.decision, none.result.reason.as_str()), (Decision::Allow, "admitted"));
    let maintainers = Policy::new(
        rules(&rule("maintainers", "run", "resolver", "allow", "when.actor_permission = \"maintain\"")),
        None,
    );
    assert_eq!(maintainers.decide(&run("write")).await.result.decision, Decision::Deny);
    assert_eq!(maintainers.decide(&run("admin")).await.result.decision, Decision::Allow);
}

#[tokio::test]
async fn s_055_a_link_does_not_carry_a_call_out_of_what_a_rule_allows() {
    let folder = TempDir::new().unwrap();
    let worktree = folder.path().join("worktree");
    for inside in ["src", ".github"] {
        std::fs::create_dir_all(worktree.join(inside)).unwrap();
    }
    std::os::unix::fs::symlink("../.github", worktree.join("src/ci")).unwrap();
    std::os::unix::fs::symlink("/etc", worktree.join("src/etc")).unwrap();
    std::os::unix::fs::symlink("nowhere/../../x", worktree.join("src/gone")).unwrap();
    std::os::unix::fs::symlink("real.rs", worktree.join("src/alias.rs")).unwrap();
    let root = WorktreeRoot::open(&AbsPath::new(&worktree).unwrap()).unwrap();
    let policy =
        Policy::new(rules(&rule("src", "tool", "write_file", "allow", "when.path = \"src/**\"")), None)
            .in_worktree(root.clone());
    let absolute = root.path().join("src/a.rs");
    let cases = [
        ("src/new/file.rs", Decision::Allow),
        ("src/alias.rs", Decision::Allow),
        (absolute.as_path().to_str().unwrap(), Decision::Allow),
        ("src/ci/workflows/x.yml", Decision::Deny),
        ("src/etc/passwd", Decision::Deny),
        ("src/gone", Decision::Deny),
        ("src/ci/../x.rs", Decision::Deny),
    ];
    for (path, decision) in cases {
        let verdict = policy.decide(&call("write_file", &json!({ "path": path }))).await;
        assert_eq!(verdict.result.decision, decision, "{path}");
    }
    // What leads out is refused like what a rule protects, and is not said to be that.
    let guard = "public_reason = \"It governs automation.\"\nwhen.path = \".github/**\"";
    let guards = rule("guard", "tool", "write_file", "deny", guard)
        + &rule("rest", "tool", "write_file", "allow", "when.path = \"**\"");
    let policy = Policy::new(rules(&guards), None).in_worktree(root.clone());
    for (path, says) in [
        (".github/x.yml", "It governs automation."),
        ("src/ci/x.yml", "It governs automation."),
        ("src/etc/passwd", "Where this path leads is not clear"),
    ] {
        let verdict = policy.decide(&call("write_file", &json!({ "path": path }))).await;
        assert_eq!(verdict.result.decision, Decision::Deny, "{path}");
        let reason = verdict.result.public_reason.unwrap_or_default();
        assert!(reason.contains(says), "{path}: {reason}");
    }
}

#[tokio::test]
async fn d78_a_planning_agent_reads_and_verifies_but_changes_nothing() {
    let policy = Policy::new(rules(&rule("all", "tool", "*", "allow", "")), None)
        .planning(&[vec!["cargo".into(), "test".into()]]);
    let asked = |tool: &str, arguments: Value, risk: &str| {
        read_question(&json!({ "kind": "tool", "tool": tool, "arguments": arguments, "risk": risk })).unwrap()
    };
    let argv = |argv: &[&str]| asked("run_command", json!({ "argv": argv }), "exec");
    for (input, decision) in [
        (asked("read_file", json!({ "path": "x" }), "read"), Decision::Allow),
        (asked("write_file", json!({ "path": "x" }), "write"), Decision::Deny),
        (asked("git_commit", json!({}), "vcs"), Decision::Deny),
        (argv(&["cargo", "test"]), Decision::Allow),
        (argv(&["cargo", "test", "--evil"]), Decision::Deny),
        (argv(&[]), Decision::Deny),
        (asked("shell__run", json!({ "argv": ["cargo", "test"] }), "exec"), Decision::Deny),
    ] {
        let verdict = policy.decide(&input).await;
        assert_eq!(verdict.result.decision, decision, "{input:?}");
        if decision == Decision::Deny {
            assert_eq!(verdict.result.reason, "plan_mode");
            assert_eq!(verdict.result.deny_mode, Some(DenyMode::ToolResult));
            assert!(verdict.result.public_reason.is_some());
        }
    }
    let nothing = Policy::default().planning(&[]);
    let verdict = nothing.decide(&asked("read_file", json!({ "path": "x" }), "read")).await;
    assert_eq!(verdict.result.reason, "policy_not_configured", "plan mode allows nothing by itself");
}

#[tokio::test]
async fn a_folder_with_a_denied_file_in_it_is_denied_to_tools_that_agentd_cannot_look_into() {
    let folder = TempDir::new().unwrap();
    let worktree = folder.path().join("worktree");
    for inside in ["src/deep", "secrets", "docs", "open"] {
        std::fs::create_dir_all(worktree.join(inside)).unwrap();
    }
    for file in ["secrets/key", "src/deep/.env.local", "docs/a.md", "open/b"] {
        std::fs::File::create(worktree.join(file)).unwrap();
    }
    std::os::unix::fs::symlink("../secrets", worktree.join("open/way")).unwrap();
    let root = WorktreeRoot::open(&AbsPath::new(&worktree).unwrap()).unwrap();
    let deny = rule("no", "tool", "*", "deny", "when.path = [\"secrets/**\", \"**/.env*\"]");
    let policy =
        Policy::new(rules(&(deny + &rule("all", "tool", "*", "allow", ""))), None).in_worktree(root.clone());
    let absolute = root.path().as_path().to_str().unwrap();
    let cases = [
        ("files__read_tree", ".", Decision::Deny),
        ("files__read_tree", absolute, Decision::Deny),
        ("files__read_tree", "src", Decision::Deny),
        ("files__read_tree", "secrets", Decision::Deny),
        ("files__read_tree", "open", Decision::Deny),
        ("files__read_tree", "docs", Decision::Allow),
        ("files__read_tree", "docs/a.md", Decision::Allow),
        ("rest__upload", "src", Decision::Deny),
        // These leave the denied files out.
        ("search", ".", Decision::Allow),
        ("git_diff", "src", Decision::Allow),
    ];
    for (tool, path, decision) in cases {
        let verdict = policy.decide(&call(tool, &json!({ "path": path }))).await;
        assert_eq!(verdict.result.decision, decision, "{tool} {path}");
    }
}

#[tokio::test]
async fn d78_a_planning_agent_calls_no_tool_of_others_that_is_not_known_to_read() {
    let policy = Policy::new(rules(&rule("all", "tool", "*", "allow", "")), None).planning(&[]);
    for (tool, risk) in [("desk__echo", "read"), ("desk__note", "network"), ("rest__t", "network")] {
        let question = json!({ "kind": "tool", "tool": tool, "arguments": {}, "risk": risk });
        let input = read_question(&question).unwrap();
        let known = policy.decide_on(&input, true).await.result;
        let unknown = policy.decide_on(&input, false).await.result;
        assert_eq!((known.decision, unknown.decision), (Decision::Allow, Decision::Deny), "{tool}");
        assert_eq!(unknown.reason, "plan_mode");
    }
}
