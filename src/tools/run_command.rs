//! `run_command`: a program in the worktree, its whole tree bounded in time, its output in size.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::arguments::{Arguments, invalid};
use super::{BuiltIn, ToolWorld};
use crate::domain::policy::Risk;
use crate::engine::tool::{CallLimits, ToolError, ToolOutput};
use crate::sys::process::{Captured, Ending, Exit, ProcessError, ProcessSpec, run};
use crate::sys::sandbox;

/// Bytes of each stream that are kept: the first and the last half.
const OUTPUT_CAP: usize = 4 * 1024 * 1024;

pub(super) fn tool(world: &Arc<ToolWorld>) -> BuiltIn {
    BuiltIn::new(
        world,
        Risk::Exec,
        |world, arguments, allowed| Box::pin(run_command(world, arguments, allowed.limits)),
        "run_command",
        "Runs a program in the worktree's root, without a shell and without a terminal, and waits for its end; what \
         it leaves running is killed. The first line of the result is JSON with exit_code and duration_ms; then \
         standard output, then standard error.",
        json!({
            "type": "object",
            "properties": {
                "argv": {
                    "type": "array",
                    "items": {"type": "string"},
                    "minItems": 1,
                    "description": "Program and arguments, one string each"
                },
                "timeout": {"type": "integer", "minimum": 1, "description": "Seconds; never longer than the host's limit"}
            },
            "required": ["argv"],
            "additionalProperties": false
        }),
    )
}

async fn run_command(
    world: Arc<ToolWorld>,
    arguments: Value,
    limits: CallLimits,
) -> Result<ToolOutput, ToolError> {
    let given = Arguments(&arguments);
    let argv = given.texts("argv")?;
    let asked = given.count("timeout")?.map(Duration::from_secs);
    let (program, rest) = argv.split_first().ok_or_else(|| invalid("\"argv\" is empty"))?;
    if program.is_empty() || argv.iter().any(|word| word.contains('\0')) {
        return Err(invalid("\"argv\" must start with a program and has no NUL characters"));
    }
    let timeout = asked.map_or(limits.timeout, |asked| asked.min(limits.timeout));
    let started_at = world.clock.now();
    let spec = ProcessSpec::new(*program, world.root.path())
        .args(rest)
        .env("TERM", "dumb")
        .env("NO_COLOR", "1")
        .envs(world.environment.iter().cloned())
        .env("PWD", world.root.path())
        .timeout(timeout)
        .output_cap(OUTPUT_CAP);
    let spec = sandbox::wrap(world.sandbox.as_ref(), spec);
    let asked = world.sandbox.as_ref().and_then(|sandbox| sandbox.asked.as_ref());
    let refused_before = asked.map_or(0, |asked| asked.refused());
    let exit = run(spec, &world.cancel).await.map_err(|error| not_started(&world, program, &error))?;
    match exit.ending {
        Ending::TimedOut => return Err(ToolError::Timeout),
        Ending::Cancelled => return Err(ToolError::for_model("cancelled: the run is stopping")),
        Ending::Itself => {}
    }
    let head = json!({"exit_code": exit.code, "signal": exit.signal, "duration_ms": exit.duration.as_millis() as u64});
    let facts =
        evidence(&world, &argv, &exit, &started_at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true));
    // A long output is there once: what stands around it is put around it in place.
    let mut text = shown(&world, &format!("{head}\n"), "stdout", exit.stdout);
    text.push_str(&shown(&world, "", "stderr", exit.stderr));
    if let Some(asked) = asked {
        let refused = asked.refused_since(refused_before);
        if !refused.is_empty() {
            text.push_str("[network]\nnot reached:\n");
            refused.iter().for_each(|line| text.push_str(&format!("{line}\n")));
            text.push_str("Only a person can allow further hosts; go on without, or say in the report what is missing.\n");
        }
    }
    Ok(ToolOutput { text, exit_code: exit.code, facts: Some(facts) })
}

/// What command evidence keeps; the trees before and after are the caller's to add.
fn evidence(world: &ToolWorld, argv: &[&str], exit: &Exit, started_at: &str) -> Value {
    let mut names: Vec<_> = world.environment.iter().map(|(name, _)| name.to_string_lossy()).collect();
    names.sort_unstable();
    json!({
        "argv": argv,
        "cwd": ".",
        "env_names": names,
        "exit_code": exit.code,
        "signal": exit.signal,
        "started_at": started_at,
        "duration_ms": exit.duration.as_millis() as u64,
        "stdout_sha256": exit.stdout.sha256,
        "stderr_sha256": exit.stderr.sha256,
        "stdout_bytes": exit.stdout.total,
        "stderr_bytes": exit.stderr.total,
        "truncated": exit.stdout.truncated || exit.stderr.truncated,
        "sandbox": sandbox::name(world.sandbox.as_ref()),
    })
}

fn shown(world: &ToolWorld, before: &str, name: &str, stream: Captured) -> String {
    if stream.total == 0 {
        return before.to_owned();
    }
    let mut text = relative(world, stream.into_text());
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text.insert_str(0, &format!("{before}[{name}]\n"));
    text
}

/// The path of the worktree itself is written as `.`.
fn relative(world: &ToolWorld, text: String) -> String {
    let root = world.root.path().to_string();
    if text.contains(&root) { text.replace(&format!("{root}/"), "./").replace(&root, ".") } else { text }
}

fn not_started(world: &ToolWorld, program: &str, error: &ProcessError) -> ToolError {
    match error {
        ProcessError::NotFound(_) => ToolError::ForModel {
            error_type: "ResourceNotFound".into(),
            message: format!(
                "program \"{program}\" was not found; there is no shell: one string is one argument"
            ),
        },
        ProcessError::NoDirectory { .. } => ToolError::Fatal("the worktree is gone".into()),
        ProcessError::Spawn { .. } => ToolError::for_model(relative(world, error.to_string())),
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::super::world_for_tests::world;
    use super::*;

    #[tokio::test]
    async fn a_command_runs_in_the_worktree_with_the_given_environment() {
        let place = world();
        place.write("hello.txt", "hello\n");
        let output = place.call("run_command", json!({"argv": ["cat", "hello.txt"]})).await.unwrap();
        assert_eq!(output.exit_code, Some(0));
        assert!(
            output.text.starts_with("{\"exit_code\":0,\"signal\":null,\"duration_ms\":"),
            "{}",
            output.text
        );
        assert!(output.text.ends_with("}\n[stdout]\nhello\n"), "{}", output.text);
        let facts = output.facts.unwrap();
        assert_eq!(facts["argv"], json!(["cat", "hello.txt"]));
        assert_eq!(
            facts["stdout_sha256"],
            "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
        );
        assert_eq!((&facts["stdout_bytes"], &facts["env_names"]), (&json!(6), &json!(["PATH"])));
        let output = place.call("run_command", json!({"argv": ["env"]})).await.unwrap().text;
        assert_eq!(output.lines().filter(|line| line.contains('=')).count(), 4, "{output}");
    }

    #[tokio::test]
    async fn a_failing_command_is_a_result_and_a_missing_one_an_error() {
        let place = world();
        let script = "echo out; echo err >&2; exit 3";
        let output = place.call("run_command", json!({"argv": ["sh", "-c", script]})).await.unwrap();
        assert_eq!(output.exit_code, Some(3));
        assert!(output.text.ends_with("[stdout]\nout\n[stderr]\nerr\n"), "{}", output.text);
        let error = place.call("run_command", json!({"argv": ["ls -l"]})).await.unwrap_err();
        assert!(error.to_string().contains("there is no shell"), "{error}");
    }

    #[tokio::test]
    async fn x_037_the_worktrees_place_is_not_shown() {
        let place = world();
        place.write("f", "");
        let root = place.world.root.path().to_string();
        let script = "pwd; ls -d $PWD/f; echo \"at $PWD:1\"; ls /no/$PWD >&2";
        let output = place.call("run_command", json!({"argv": ["sh", "-c", script]})).await.unwrap();
        assert!(!output.text.contains(&root), "{}", output.text);
        assert!(output.text.contains("[stdout]\n.\n./f\nat .:1\n"), "{}", output.text);
        assert!(!format!("{:?}", output.facts).contains(&root));
    }

    #[tokio::test]
    async fn a_034_a_command_that_takes_too_long_is_a_timeout_and_nothing_of_it_lives() {
        let place = world();
        let script = "setsid sleep 27.1828 & (sleep 27.1828 &) ; sleep 27.1828";
        let watch = crate::sys::clock::Stopwatch::start();
        let call = place.call_within(
            "run_command",
            json!({"argv": ["sh", "-c", script]}),
            Duration::from_millis(300),
        );
        assert_eq!(call.await.unwrap_err(), ToolError::Timeout);
        assert!(watch.elapsed() < Duration::from_secs(15), "{:?}", watch.elapsed());
        let alive = std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
            std::fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| line.starts_with(b"sleep\x0027.1828"))
        });
        assert_eq!(alive.count(), 0);
        let asked = place.call("run_command", json!({"argv": ["sleep", "9"], "timeout": 1})).await;
        assert_eq!(asked.unwrap_err(), ToolError::Timeout);
    }

    #[tokio::test]
    async fn much_output_is_counted_and_cut_in_the_middle() {
        let place = world();
        let output = place.call("run_command", json!({"argv": ["seq", "1", "1500000"]})).await.unwrap();
        let facts = output.facts.unwrap();
        assert_eq!(facts["truncated"], true);
        assert!(output.text.len() < OUTPUT_CAP + 1000 && output.text.ends_with("1499999\n1500000\n"));
        assert!(output.text.contains("bytes left out"));
    }
}
