//! A policy as a program: it reads the input as JSON on stdin and writes one JSON result on stdout. Every failure is a
//! denial (P-005, P-006).

use std::ffi::OsString;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::domain::policy::{DenyMode, PolicyInput, PolicyResult};
use crate::sys::paths::AbsPath;
use crate::sys::process::{Ending, ProcessError, ProcessSpec, run};

/// How long a program may think.
pub const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Longest answer in bytes.
pub const ANSWER_LIMIT: usize = 64 * 1024;

/// How a policy program is started.
#[derive(Debug, Clone)]
pub struct PolicyProgram {
    /// Program and arguments; not empty.
    pub argv: Vec<String>,
    /// Where it runs: the repository's main checkout, never a worktree.
    pub cwd: AbsPath,
    /// Its whole environment; no secrets belong in it.
    pub env: Vec<(OsString, OsString)>,
    /// Usually [`TIME_LIMIT`].
    pub timeout: Duration,
}

impl PolicyProgram {
    /// Asks the program. It never fails: an error is a denial with `policy_error` or `invalid_policy_result` and the
    /// mode `throw`.
    pub async fn ask(&self, input: &PolicyInput) -> PolicyResult {
        let (Some((program, args)), Ok(question)) = (self.argv.split_first(), serde_json::to_vec(input))
        else {
            return failed("start", Value::from("no program is configured"));
        };
        let spec = ProcessSpec::new(program, &self.cwd)
            .args(args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(question)
            .timeout(self.timeout)
            .output_cap(2 * ANSWER_LIMIT);
        let exit = match run(spec, &CancellationToken::new()).await {
            Ok(exit) => exit,
            Err(error) => {
                tracing::warn!(%error, "policy.program cannot be started");
                let is_gone = matches!(error, ProcessError::NotFound(_));
                let what = if is_gone { "program not found" } else { "cannot be started" };
                return failed("start", Value::from(what));
            }
        };
        if exit.ending != Ending::Itself {
            return failed("timeout_ms", Value::from(self.timeout.as_millis() as u64));
        }
        match (exit.code, exit.signal) {
            (Some(0), _) if exit.stdout.total > ANSWER_LIMIT as u64 || exit.stdout.truncated => {
                invalid("the answer is longer than 65536 bytes")
            }
            (Some(0), _) => read_answer(&exit.stdout.head),
            (Some(code), _) => failed("exit_code", Value::from(code)),
            (None, signal) => failed("signal", Value::from(signal)),
        }
    }
}

/// Reads an answer: one JSON object of the closed shape, nothing before or behind it.
#[doc(hidden)]
pub fn read_answer(bytes: &[u8]) -> PolicyResult {
    let Ok(document) = serde_json::from_slice::<Value>(bytes) else {
        return invalid("not one JSON document");
    };
    let Some(members) = document.as_object() else { return invalid("not an object") };
    if members.values().any(Value::is_null) {
        return invalid("null where a value or nothing is expected");
    }
    // Read from the bytes again, because a map no longer shows a repeated key.
    match serde_json::from_slice::<PolicyResult>(bytes) {
        Ok(result) if result.reason.trim().is_empty() => invalid("the reason is blank"),
        Ok(result) => result,
        Err(_) => invalid("not the closed shape of a policy result"),
    }
}

fn failed(what: &str, value: Value) -> PolicyResult {
    denial("policy_error", what, value)
}

fn invalid(problem: &str) -> PolicyResult {
    denial("invalid_policy_result", "problem", Value::from(problem))
}

fn denial(reason: &str, key: &str, value: Value) -> PolicyResult {
    // Whoever meets the denial is told its reason only.
    tracing::warn!(reason, "policy.program gave no verdict ({key}: {value}); what it is asked for is denied");
    PolicyResult {
        metadata: Some(Map::from_iter([(key.to_owned(), value)])),
        ..PolicyResult::deny(reason, DenyMode::Throw)
    }
}
