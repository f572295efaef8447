//! Recorded runs of every kind: each is verified, each of its files is sealed, each is played again without effect.

use std::path::{Path, PathBuf};

use agentd::sim::ReplyFile;
use serde_json::{Value, json};

use super::cases::served;
use super::solo::{calls, newest, reports};
use super::world::{GREEN, World};

fn reply(value: Value) -> ReplyFile {
    serde_json::from_value(value).unwrap()
}

fn done() -> ReplyFile {
    reports("Done.", json!([]))
}

const POLICY: &str = r#"
[[rule]]
id = "hard"
kind = "tool"
name = "write_file"
effect = "deny"
reason = "never_here"
when = { path = ["hard/**"] }

[[rule]]
id = "soft"
kind = "tool"
name = "write_file"
effect = "deny"
deny_mode = "tool_result"
reason = "not_here"
when = { path = ["soft/**"] }

[[rule]]
id = "all"
kind = "tool"
name = "*"
effect = "allow"
reason = "everything else"
"#;

/// What a run is, the model's replies to it, its flags, and the end it comes to.
type Kind = (&'static str, Vec<ReplyFile>, &'static [&'static str], &'static str);

fn kinds() -> Vec<Kind> {
    let write = |path: &str| ("write_file", json!({ "path": path, "content": "made\n" }));
    let count = || calls(&[("desk__count", json!({}))]);
    let mut dear = count();
    dear.usage = serde_json::from_value(json!({ "input": 4_000_000, "output": 0 })).unwrap();
    let unbacked = || {
        let cites = json!([{ "path": "absent.txt", "start": 1, "end": 1 }]);
        reports(
            "Found.",
            json!([{ "statement": "It is there", "kind": "defect_location", "status": "verified", "cites": cites }]),
        )
    };
    let same = || calls(&[("desk__echo", json!({ "text": "again" }))]);
    vec![
        ("a tool of a server", vec![count(), done()], &[], "completed"),
        ("a change", vec![calls(&[write("made.txt")]), done()], &[], "completed"),
        (
            "an answer by handle",
            vec![calls(&[("desk__big", json!({ "bytes": 12_289 }))]), done()],
            &[],
            "completed",
        ),
        ("a tool that fails", vec![calls(&[("desk__fail", json!({}))]), done()], &[], "completed"),
        (
            "a provider that stumbles",
            vec![
                reply(json!({ "error": { "status": 500 } })),
                reply(json!({ "error": { "status": 429, "retry_after": 0 } })),
                count(),
                done(),
            ],
            &[],
            "completed",
        ),
        (
            "replies that cannot be used",
            vec![
                reply(json!({})),
                reply(json!({ "thinking": "hm" })),
                reply(json!({ "text": "I am done" })),
                reply(json!({ "tool_calls": [{ "name": "desk__echo", "raw": "{\"text\":" }] })),
                count(),
                done(),
            ],
            &["--max-retries", "6"],
            "completed",
        ),
        ("refused credentials", vec![reply(json!({ "error": { "status": 401 } }))], &[], "auth_error"),
        ("a hard denial", vec![calls(&[write("ok.txt"), write("hard/x.txt")])], &[], "policy_denied"),
        ("a soft denial", vec![calls(&[write("soft/x.txt"), write("ok.txt")]), done()], &[], "completed"),
        ("too dear a reply", vec![dear], &[], "max_cost"),
        ("a last turn", vec![count(), done()], &["--max-turns", "2"], "completed_forced_final"),
        (
            "no report at all",
            vec![count(), count()],
            &["--max-turns", "2", "--max-retries", "1"],
            "max_turns_exhausted",
        ),
        ("claims without evidence", vec![unbacked(), unbacked()], &[], "claims_rejected"),
        ("the same again and again", vec![same(), same(), same(), same(), same()], &[], "loop_detected"),
        (
            "a model that hangs",
            vec![count(), reply(json!({ "hang": "before_headers" }))],
            &["--max-wall-time", "4s"],
            "max_wall_time",
        ),
    ]
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

/// Every file of the run with one bit turned over is named by `runs verify`.
async fn every_file_is_sealed(world: &World, what: &str, run: &str) {
    let dir = newest(world);
    let all = files(&dir);
    assert!(all.len() >= 7, "{what}: {all:?}");
    for file in all {
        let name = file.strip_prefix(&dir).unwrap().display().to_string();
        let sound = std::fs::read(&file).unwrap();
        let Some(middle) = sound.len().checked_sub(1).map(|last| last / 2) else { continue };
        let mut flipped = sound.clone();
        flipped[middle] ^= 1;
        agentd::sys::files::write_private(&file, &flipped).unwrap();
        let (code, verified) = world.json(&["runs", "verify", run]).await;
        agentd::sys::files::write_private(&file, &sound).unwrap();
        let named =
            verified["findings"].as_array().unwrap().iter().any(|finding| finding["file"] == name.as_str());
        assert_eq!((code, named), (Some(1), true), "{what}: {name}: {verified:#}");
    }
}

/// A journal without its last lines is told of, and nothing of the run is written anew from what is left.
async fn lines_that_are_gone_are_missed(world: &World, run: &str) {
    let dir = newest(world);
    let before: Vec<(PathBuf, Vec<u8>)> =
        files(&dir).into_iter().map(|file| (file.clone(), std::fs::read(&file).unwrap())).collect();
    let journal = dir.join("events.jsonl");
    let sound = std::fs::read_to_string(&journal).unwrap();
    let lines: Vec<&str> = sound.split_inclusive('\n').collect();
    for gone in [3, 4, 12] {
        agentd::sys::files::write_private(&journal, lines[..lines.len() - gone].concat().as_bytes()).unwrap();
        let (code, verified) = world.json(&["runs", "verify", run]).await;
        let problems = verified["findings"].to_string();
        assert_eq!((code, problems.contains("result.json names line")), (Some(1), true), "{verified:#}");
    }
    agentd::sys::files::write_private(&journal, sound.as_bytes()).unwrap();
    for (file, bytes) in before {
        assert!(std::fs::read(&file).unwrap() == bytes, "{} was written", file.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p_040_p_041_case_28_runs_of_fifteen_kinds_are_verified_sealed_and_replayed_without_any_effect() {
    let (mut replies, kinds) = (Vec::new(), kinds());
    for (_, of_run, ..) in &kinds {
        replies.extend(of_run.clone());
    }
    let world = served(replies, "").await;
    world.write("shop/.agent/policy.toml", POLICY);
    let read = |name: &str| std::fs::read_to_string(world.dir.path().join(name)).unwrap_or_default();
    let mut runs = Vec::new();
    for (what, _, flags, detail) in &kinds {
        let mut args = vec!["run", "--issue", "7", "--agent", "solo"];
        args.extend(*flags);
        // What is verified after the wall time is not replayed: nothing of it is to be claimed.
        world.verify(if *detail == "max_wall_time" { "[]" } else { GREEN });
        let (_, output) = world.json(&args).await;
        assert_eq!(output["stop_detail"].as_str(), Some(*detail), "{what}: {output:#}");
        let run = output["run_id"].as_str().unwrap().to_owned();
        every_file_is_sealed(&world, what, &run).await;
        lines_that_are_gone_are_missed(&world, &run).await;

        let before = (read("count"), read("notes"), world.sim.model_requests().len());
        let refs = world.git(&world.shop(), &["for-each-ref"]).await;
        let (code, replayed) = world.json(&["runs", "replay", &run]).await;
        assert_eq!((code, &replayed["equal"]), (Some(0), &json!(true)), "{what}: {replayed:#}");
        assert_eq!((&replayed["tools_run"], &replayed["model_requests"]), (&json!(0), &json!(0)), "{what}");
        assert_eq!(replayed["stop_detail"].as_str(), Some(*detail), "{what}: {replayed:#}");
        let after = (read("count"), read("notes"), world.sim.model_requests().len());
        assert_eq!(after, before, "{what}: a tool ran, a server was started or a model asked");
        assert_eq!(world.git(&world.shop(), &["for-each-ref"]).await, refs, "{what}");
        runs.push(run);
    }
    for run in &runs {
        let (code, verified) = world.json(&["runs", "verify", run]).await;
        assert_eq!((code, &verified["findings"]), (Some(0), &json!([])), "{verified:#}");
    }
    world.finish().await;
}
