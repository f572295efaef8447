//! The evidence gate on a real worktree: what a report cites is looked up in the final tree and in the run's directory.

use std::sync::Arc;

use agentd::definition::policy_file::{PolicySource, read_policies, read_question};
use agentd::domain::denied_files::DeniedFiles;
use agentd::domain::event::{Change, Event, FileChange, LeaseTaken, VerifyCommand};
use agentd::domain::evidence::{EvidenceKind, Provenance};
use agentd::domain::evidence_gate::{GateOutcome, Judgement};
use agentd::domain::facts::RunFacts;
use agentd::domain::issue::{Issue, IssueKey, ObjectiveSource};
use agentd::domain::ledger_entry::{AccountingEntry, AccountingKind, AccountingStatus};
use agentd::domain::mapping::InstanceId;
use agentd::domain::name::RepoName;
use agentd::domain::origin::{Origin, OriginSource};
use agentd::domain::redaction::{KnownSecret, Redactor};
use agentd::domain::report::{ProposedClaim, ReportSource};
use agentd::domain::run::{Principal, PrincipalSource, RunId};
use agentd::domain::trace::{Item, ReportCaptured};
use agentd::git::{CommitMessage, Identity, Worktree};
use agentd::record::evidence::{Scene, recheck, weigh};
use agentd::sys::files;
use chrono::DateTime;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::git::{Ground, branch};

const SECRET: &str = "sentinel-secret-value";

/// A run whose work is committed, and what its journal says.
struct Stage {
    ground: Ground,
    worktree: Worktree,
    run_dir: tempfile::TempDir,
    events: Vec<Event>,
    tree: String,
    commands: Vec<Vec<String>>,
    denied: DeniedFiles,
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

impl Stage {
    /// The agent has written `src/x.rs` and nothing else.
    async fn new() -> Self {
        let ground = Ground::new().await;
        let worktree = ground.prepare(7).await.unwrap().worktree;
        let base = ground.head("main").await;
        files::create_dir(worktree.path().join("src").as_path()).unwrap();
        let text = format!("fn f() {{}}\nlet token = \"{SECRET}\";\n\nfn g() {{}}\n");
        files::write_public(worktree.path().join("src/x.rs").as_path(), text.as_bytes()).unwrap();
        files::write_public(worktree.path().join("blob.bin").as_path(), b"\0\x01\x02").unwrap();
        let message = CommitMessage { subject: "work".into(), body: String::new(), trailers: vec![] };
        let head = worktree.commit_all(&message, &Identity::agentd()).await.unwrap().unwrap();
        let tree = worktree.checkout().tree_of_commit(&head).await.unwrap();
        let key = IssueKey::Number(7);
        let issue = Issue {
            repo: RepoName::parse("o/n").unwrap(),
            key: key.clone(),
            title: "Fix it".into(),
            body: "It is broken.\nReally.".into(),
            url: Some("https://example.org/o/n/issues/7".into()),
            node_id: None,
            open: true,
            labels: vec![],
            author: None,
            updated_at: None,
        };
        let lease = LeaseTaken {
            run_id: RunId(Uuid::nil()),
            instance: InstanceId::new(&key, DateTime::UNIX_EPOCH),
            issue,
            text: None,
            source: ObjectiveSource::Issue,
            follow_up: false,
            goes_on: false,
            principal: Principal::new(PrincipalSource::Local, "1", None),
            origin: Origin { branch: branch("main"), source: OriginSource::Config, commit: base },
            branch: branch("feature/issue-7"),
            checkout: "/main/checkout".into(),
            lease_file: String::new(),
            held: None,
            context_withheld: false,
            worktree: ".worktrees/issue-7".into(),
            previous_run: None,
            runtime_version: "0".into(),
        };
        let file = FileChange {
            path: "src/x.rs".into(),
            added: 4,
            removed: 0,
            by_command: false,
            gone: false,
            from: None,
        };
        let change = Change { files: vec![file], commits: 1 };
        let committed = Event::Committed { head, tree: tree.clone(), made: true, change };
        let events = vec![Event::LeaseTaken(Box::new(lease)), committed];
        let run_dir = tempfile::tempdir().unwrap();
        Self { ground, worktree, run_dir, events, tree, commands: Vec::new(), denied: DeniedFiles::default() }
    }

    fn reports(&mut self, claims: Value, outcome: Option<&str>) {
        let claims: Vec<ProposedClaim> = read(claims);
        self.events.push(Event::ReportCaptured(Box::new(ReportCaptured {
            session: Uuid::nil(),
            visit: 1,
            turn: 2,
            source: ReportSource::Tool,
            report: None,
            kept: None,
            outcome: outcome.map(|word| read(json!(word))),
            claims,
        })));
    }

    fn keeps(&self, path: &str, text: &str) {
        let path = self.run_dir.path().join(path);
        files::create_dir(path.parent().unwrap()).unwrap();
        files::write_private(&path, text.as_bytes()).unwrap();
    }

    /// A call of `run_command` that ran, with its answer inline or behind a handle.
    fn ran(&mut self, call_id: &str, tool: &str, arguments: Value, answer: &str, handle: Option<&str>) {
        let argv = arguments.get("argv").cloned();
        let item =
            |item: Value| Event::ItemRecorded { visit: 1, turn: 1, item: Box::new(read::<Item>(item)) };
        self.events.push(item(json!({ "type": "tool_call_item", "callId": call_id, "name": tool,
            "arguments": arguments, "rawSha256": "r" })));
        if let Some(argv) = argv {
            self.events.push(Event::ToolFacts {
                turn: 1,
                call_id: call_id.into(),
                tool: tool.into(),
                facts: json!({ "argv": argv, "cwd": ".", "exit_code": 0, "started_at": "t", "duration_ms": 5,
                    "stdout_sha256": "s", "stderr_sha256": "s", "stdout_bytes": 3, "sandbox": "none" }),
                output_sha256: "o".into(),
            });
        }
        let result = match handle {
            Some(handle) => {
                self.keeps(&format!("tool-output/{handle}"), answer);
                json!({ "handle": handle })
            }
            None => json!(answer),
        };
        let output = json!({ "status": "ok", "code": null, "publicReason": null,
            "data": { "status": "success", "result": result } });
        self.events.push(item(json!({ "type": "tool_call_output_item", "callId": call_id, "output": output,
            "rendered": { "chars": 1, "sha256": "s" } })));
        let entry = AccountingEntry {
            what: AccountingKind::Tool {
                mcp_server: "agentd".into(),
                command: tool.into(),
                characters_in: 1,
                characters_out: 1,
                bytes_out: 1,
                call_id: call_id.into(),
                proposal_hash: "p".into(),
                handle: handle.map(str::to_owned),
                exit_code: Some(0),
            },
            timestamp: 1,
            status: AccountingStatus::Ok,
            latency: 1,
            error: None,
            agent_id: "a".into(),
            call_path: "p".into(),
            txn_id: "t".into(),
            parent_txn_id: None,
            origin_txn_id: "t".into(),
            run_id: "r".into(),
            step_id: "s".into(),
            step_visit: 1,
            turn: 1,
            attempt: None,
        };
        self.events.push(Event::ToolFinished { entry: Box::new(entry) });
    }

    fn verified(&mut self, argv: &[&str], exit_code: i32, output: &str) {
        let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        let path = format!("verify/{}.txt", self.commands.len());
        self.keeps(&path, output);
        self.commands.push(argv.clone());
        self.events.push(Event::Verified(Box::new(VerifyCommand {
            argv,
            exit_code: Some(exit_code),
            end: None,
            not_started: false,
            also_red_on_base: None,
            executes: Vec::new(),
            rewritten: Vec::new(),
            started_at: 1,
            duration_ms: 1,
            stdout_sha256: "s".into(),
            stderr_sha256: "s".into(),
            stdout_bytes: 1,
            stderr_bytes: 0,
            tail: output.into(),
            output: path,
            output_file: None,
            sandbox: "none".to_owned(),
            tree_before: self.tree.clone(),
            tree_after: self.tree.clone(),
        })));
    }

    async fn judged(&self) -> Judgement {
        let facts = RunFacts::fold(self.events.iter().cloned().map(|event| (1, event)));
        let secret = KnownSecret { kind: "token".into(), value: SECRET.into() };
        let redactor = Redactor::new([1; 32], vec![secret], &[]).unwrap();
        weigh(&Scene {
            facts: &facts,
            worktree: &self.worktree,
            run_dir: self.run_dir.path(),
            repo: "o/n",
            verify_commands: &self.commands,
            requires: &[],
            evidence_required: false,
            denied: &self.denied,
            redactor: &redactor,
            now: DateTime::UNIX_EPOCH,
        })
        .await
    }
}

fn claim(kind: &str, cite: Value) -> Value {
    json!({ "statement": format!("claim about {cite}"), "kind": kind, "cites": [cite] })
}

#[tokio::test]
async fn x_008_a_cited_place_is_quoted_with_its_provenance() {
    let mut stage = Stage::new().await;
    stage.reports(json!([claim("defect_location", json!("src/x.rs:1"))]), None);
    let judged = stage.judged().await;
    assert!(judged.claims[0].is_verified(), "{:?}", judged.claims);
    let record = judged.evidence.iter().find(|record| record.kind == EvidenceKind::FileSpan).unwrap();
    assert_eq!(record.quote, "fn f() {}");
    let Provenance::FileSpan(file) = &record.provenance else { panic!("{record:?}") };
    assert_eq!(
        (file.path.as_str(), file.lines_total, file.tree.as_str()),
        ("src/x.rs", 4, stage.tree.as_str())
    );
    assert_eq!((file.commit.len(), file.blob_sha.len()), (40, 40));
    assert_eq!(recheck(record, stage.worktree.checkout(), stage.run_dir.path()).await, Ok(()));
    // The same citation in another run at this commit (X-027).
    let again = stage.judged().await;
    assert_eq!(again, judged);
}

#[tokio::test]
async fn x_010_what_cannot_be_looked_up_is_unverified_and_says_why() {
    let mut stage = Stage::new().await;
    let cites = [
        (json!("src/x.rs:9"), "line 9 does not exist, there are 4"),
        (json!("src/x.rs:3"), "are empty"),
        (json!("src/x.rs:2-1"), "not a range of lines"),
        (json!("src/x.rs:0"), "not a range of lines"),
        (json!("src/gone.rs:1"), "does not exist in the final tree"),
        (json!({ "path": "../x", "start": 1, "end": 1 }), "not a path inside the worktree"),
        (json!({ "path": "/etc/passwd", "start": 1, "end": 1 }), "not a path inside the worktree"),
        (json!({ "path": ".git/HEAD", "start": 1, "end": 1 }), "not a path inside the worktree"),
        (json!({ "path": "src", "start": 1, "end": 1 }), "does not exist"),
        (json!("blob.bin:1"), "not a text file"),
        (json!("call_nobody_made"), "neither a call of this run nor a place"),
        (json!({ "handle": "../../etc/passwd", "lines": "1" }), "not one of this run"),
        (json!("issue:1"), "proves only that it was said"),
    ];
    stage.reports(cites.iter().map(|(cite, _)| claim("other", cite.clone())).collect(), None);
    let judged = stage.judged().await;
    for ((cite, words), claim) in cites.iter().zip(&judged.claims) {
        let reason = claim.reason.as_deref().unwrap_or_default();
        assert!(!claim.is_verified() && reason.contains(words), "{cite}: {reason}");
    }
    assert_eq!(judged.limitations.len(), cites.len());
    assert_eq!(judged.outcome, GateOutcome::ClaimsRejected);
}

#[tokio::test]
async fn p_031_quotes_are_redacted_and_can_still_be_compared() {
    let mut stage = Stage::new().await;
    stage.reports(json!([claim("other", json!("src/x.rs:1-2"))]), None);
    let judged = stage.judged().await;
    assert!(judged.claims[0].is_verified());
    let text = serde_json::to_string(&judged).unwrap();
    assert!(!text.contains(SECRET) && text.contains("[redacted:token:"), "{text}");
    for record in &judged.evidence {
        assert_eq!(
            recheck(record, stage.worktree.checkout(), stage.run_dir.path()).await,
            Ok(()),
            "{record:?}"
        );
    }
}

#[tokio::test]
async fn x_008_tests_pass_by_agentd_s_own_run_and_not_by_the_agent_s() {
    let mut stage = Stage::new().await;
    stage.ran("c1", "run_command", json!({ "argv": ["cargo", "test"] }), "ok. 3 passed", None);
    stage.reports(json!([claim("tests_pass", json!("c1"))]), None);
    let judged = stage.judged().await;
    assert!(!judged.claims[0].is_verified(), "no verify commands are configured");

    stage.verified(&["cargo", "test"], 0, "$ cargo test\nok. 3 passed\n\n");
    let judged = stage.judged().await;
    assert!(judged.claims[0].is_verified());
    let record =
        judged.evidence.iter().find(|r| judged.claims[0].evidence_ids.contains(&r.evidence_id)).unwrap();
    assert_eq!(record.quote, "$ cargo test\nok. 3 passed");
    assert_eq!(recheck(record, stage.worktree.checkout(), stage.run_dir.path()).await, Ok(()));
    stage.keeps("verify/0.txt", "$ cargo test\nok. 4 passed\n");
    assert!(
        recheck(record, stage.worktree.checkout(), stage.run_dir.path())
            .await
            .unwrap_err()
            .contains("something else")
    );

    stage.verified(&["cargo", "clippy"], 1, "$ cargo clippy\nerror\n");
    let judged = stage.judged().await;
    assert!(judged.claims[0].reason.as_deref().unwrap().contains("`cargo clippy` ended with exit code 1"));
}

#[tokio::test]
async fn x_008_an_answer_from_before_an_edit_is_stale_and_a_verify_command_refreshes_it() {
    let mut stage = Stage::new().await;
    stage.ran("before", "run_command", json!({ "argv": ["cargo", "test"] }), "failed", None);
    stage.ran("edit", "write_file", json!({ "path": "src/x.rs" }), "written", None);
    stage.ran("after", "run_command", json!({ "argv": ["./try", "it"] }), "works\n", Some("session-a/b"));
    stage.ran("look", "read_file", json!({ "path": "src/x.rs" }), "fn f", None);
    stage.reports(
        json!([
            claim("behavior_observed", json!("before")),
            claim("behavior_observed", json!("after")),
            claim("behavior_observed", json!({ "handle": "session-a/b", "lines": "1" })),
            claim("behavior_observed", json!("look")),
            claim("requirement_met", json!("look")),
        ]),
        None,
    );
    let judged = stage.judged().await;
    let verified: Vec<bool> = judged.claims[..5].iter().map(|claim| claim.is_verified()).collect();
    assert_eq!(verified, [false, true, true, false, true], "{:#?}", judged.claims);
    assert!(judged.claims[0].reason.as_deref().unwrap().contains("may have changed after"));
    assert!(judged.evidence.iter().any(|record| record.stale));

    stage.verified(&["cargo", "test"], 0, "$ cargo test\nok\n");
    let judged = stage.judged().await;
    assert!(judged.claims[0].is_verified(), "refreshed by agentd's own run: {:?}", judged.claims[0]);
}

#[tokio::test]
async fn x_013_the_change_itself_is_evidence_from_git() {
    let mut stage = Stage::new().await;
    stage.reports(json!([]), None);
    let judged = stage.judged().await;
    assert_eq!(judged.claims.len(), 1);
    let record = &judged.evidence[0];
    assert_eq!((record.kind, record.quote.as_str()), (EvidenceKind::Git, "src/x.rs | +4 -0"));
    assert_eq!(recheck(record, stage.worktree.checkout(), stage.run_dir.path()).await, Ok(()));
    assert!(stage.ground.exists(".worktrees/issue-7/src/x.rs"));

    stage.reports(json!([]), Some("insufficient_evidence"));
    assert_eq!(stage.judged().await.outcome, GateOutcome::ModelAbstained);
}

#[tokio::test]
async fn a_cite_of_a_file_that_the_policy_denies_says_nothing_of_it() {
    let mut stage = Stage::new().await;
    let policy = "[[rule]]\nid = \"no\"\nkind = \"tool\"\nname = \"read_file\"\neffect = \"deny\"\nreason = \"r\"\nwhen.path = \"src/**\"\n";
    let rules = read_policies(&[PolicySource { name: "policy.toml".into(), text: policy.into() }]).unwrap();
    let reads = json!({ "kind": "tool", "tool": "read_file", "arguments": {} });
    stage.denied = DeniedFiles::of(&Arc::new(rules), &read_question(&reads).unwrap());
    let quoting = |path: &str, quote: &str| json!({ "path": path, "start": 1, "end": 1, "quote": quote });
    let cites = [
        json!("src/x.rs:1"),
        json!("./SRC/x.rs:1"),
        json!("src/absent.rs:1"),
        quoting("src/x.rs", "fn f() {}"),
        quoting("src/x.rs", "wrong"),
    ];
    stage.reports(cites.map(|cite| claim("defect_location", cite)).into_iter().collect(), None);
    let judged = stage.judged().await;
    for claim in judged.claims.iter().filter(|claim| claim.visit == 1) {
        let reason = claim.reason.as_deref().unwrap_or_default();
        assert!(!claim.is_verified() && reason.starts_with("the policy denies reading"), "{claim:?}");
    }
    assert!(!serde_json::to_string(&judged).unwrap().contains("fn f() {}\""), "{judged:?}");
}
