//! Hashes that anybody can recompute: vectors shared with a checker in Python that knows no code of agentd.

use agentd::domain::canonical::{canonical_json, canonical_sha256};
use agentd::domain::fingerprint::{FINGERPRINT_SCHEMA, HashedMessages, HashedTools};
use agentd::domain::issue::IssueKey;
use agentd::domain::message::{Message, ToolSpec};
use agentd::domain::policy::{ProposalKey, proposal_hash};
use agentd::sys::paths::AbsPath;
use agentd::sys::process::{ProcessError, ProcessSpec, run};
use serde_json::{Value, json};

fn vectors() -> Value {
    serde_json::from_str(include_str!("../data/fingerprints.json")).unwrap()
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn p_028_fingerprints_are_made_as_the_vectors_say() {
    let vectors = vectors();
    assert_eq!(vectors["fingerprintSchemaVersion"], FINGERPRINT_SCHEMA);
    for case in vectors["canonical"].as_array().unwrap() {
        assert_eq!(canonical_json(&case["value"]).unwrap(), case["text"], "{}", case["why"]);
        assert_eq!(canonical_sha256(&case["value"]).unwrap(), case["sha256"], "{}", case["why"]);
    }
    for case in vectors["requests"].as_array().unwrap() {
        let request = &case["request"];
        let messages: Vec<Message> = read(&request["messages"]);
        let tools = HashedTools::of(&read::<Vec<ToolSpec>>(&request["tools"])).unwrap();
        let settings = request["modelSettings"].as_object().unwrap();
        let mut hashed = HashedMessages::default();
        messages.iter().for_each(|message| hashed.add(message).unwrap());
        let hashes = hashed.request(request["model"].as_str().unwrap(), &tools, settings).unwrap();
        let made = json!({
            "systemPromptHash": hashes.system_prompt,
            "messagesHash": hashes.messages,
            "toolsHash": hashes.tools,
            "modelSettingsHash": hashes.model_settings,
            "requestHash": hashes.request,
            "messageCount": hashes.message_count,
            "toolCount": hashes.tool_count,
        });
        assert_eq!(made, case["hashes"], "{}", case["why"]);
    }
}

#[test]
fn p_035_a_proposal_s_hash_is_made_as_the_vectors_say() {
    for case in vectors()["proposals"].as_array().unwrap() {
        let proposal = &case["proposal"];
        let issue: IssueKey = read(&proposal["issue"]);
        let key = ProposalKey {
            kind: read(&proposal["kind"]),
            repo: proposal["repo"].as_str().unwrap(),
            issue: &issue,
            step: proposal["step"].as_str().unwrap(),
            name: proposal["name"].as_str().unwrap(),
            args_canonical_json: proposal["argsCanonicalJson"].as_str().unwrap(),
        };
        assert_eq!(proposal_hash(&key).unwrap(), case["proposalHash"], "{}", case["why"]);
    }
}

/// Skipped with a word where there is no python3.
#[tokio::test]
async fn p_028_python_recomputes_every_vector() {
    let root = AbsPath::new(env!("CARGO_MANIFEST_DIR")).unwrap();
    let check = async |file: &std::path::Path| {
        let spec = ProcessSpec::new("python3", &root)
            .args(["-B", "tests/check_fingerprints.py"])
            .arg(file)
            .env("PATH", "/usr/local/bin:/usr/bin:/bin");
        run(spec, &tokio_util::sync::CancellationToken::new()).await
    };
    let vectors_file = root.join("tests/data/fingerprints.json");
    let good = match check(vectors_file.as_path()).await {
        Err(ProcessError::NotFound(_)) => {
            println!("skipped: python3 is not installed");
            return;
        }
        other => other.unwrap(),
    };
    assert!(good.success(), "{}{}", good.stdout.text(), good.stderr.text());

    let mut forged = vectors();
    forged["requests"][0]["request"]["messages"][1]["content"] = json!("Fix #8");
    let file = tempfile::NamedTempFile::new().unwrap();
    serde_json::to_writer(file.as_file(), &forged).unwrap();
    let bad = check(file.path()).await.unwrap();
    assert_eq!(bad.code, Some(1));
    assert!(bad.stdout.text().contains("messagesHash"), "{}", bad.stdout.text());
}
