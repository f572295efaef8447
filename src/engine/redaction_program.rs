//! Redaction by a program: it reads the text on stdin and writes what may be kept on stdout. If it fails, the text is
//! dropped (P-032).

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::domain::shell_words;
use crate::sys::paths::AbsPath;
use crate::sys::process::{Ending, Exit, ProcessSpec, run};

/// How long a program may take for one text.
pub const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Longest answer in bytes.
const ANSWER_LIMIT: usize = 16 * 1024 * 1024;

/// How a redaction program is started.
#[derive(Debug, Clone)]
pub struct RedactionProgram {
    /// Program and arguments; not empty.
    argv: Vec<String>,
    /// Where it runs: the repository's main checkout, never a worktree.
    cwd: AbsPath,
    /// Its whole environment; no secrets belong in it.
    env: Vec<(OsString, OsString)>,
    /// What came of it when it first failed.
    failure: Arc<OnceLock<String>>,
    failure_is_told: Arc<AtomicBool>,
}

impl RedactionProgram {
    /// The program `argv`, which is not empty, in a folder and with an environment.
    pub fn new(argv: Vec<String>, cwd: AbsPath, env: Vec<(OsString, OsString)>) -> Self {
        Self { argv, cwd, env, failure: Arc::default(), failure_is_told: Arc::default() }
    }

    /// Which program it is, and what came of it when it first failed, as a sentence without its period; `None` = it has not.
    pub fn failure(&self) -> Option<String> {
        let why = self.failure.get()?;
        let words: Vec<&str> = self.argv.iter().map(String::as_str).collect();
        Some(format!("redaction.program (`{}`) failed: {why}", shell_words::line(&words)))
    }

    /// [`RedactionProgram::failure`], for whoever asks first.
    pub fn untold_failure(&self) -> Option<String> {
        self.failure().filter(|_| !self.failure_is_told.swap(true, Ordering::Relaxed))
    }

    /// The text that may be kept. `None` when the program failed, hung, or gave something that is not text.
    pub async fn redact(&self, text: &str) -> Option<String> {
        if text.is_empty() {
            return Some(String::new());
        }
        let (program, args) = self.argv.split_first()?;
        let spec = ProcessSpec::new(program, &self.cwd)
            .args(args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(text.as_bytes().to_vec())
            .timeout(TIME_LIMIT)
            .output_cap(ANSWER_LIMIT);
        let answer = match run(spec, &CancellationToken::new()).await {
            Ok(exit) => answer_of(exit),
            Err(error) => Err(format!("it cannot be started: {error}")),
        };
        answer
            .inspect_err(|why| {
                tracing::warn!(program, why, "redaction.program failed; a text is withheld");
                let _ = self.failure.set(why.clone());
            })
            .ok()
    }
}

fn answer_of(exit: Exit) -> Result<String, String> {
    if exit.ending != Ending::Itself {
        return Err(format!("no answer within {} seconds", TIME_LIMIT.as_secs()));
    }
    match (exit.code, exit.stdout.truncated) {
        (Some(0), true) => Err(format!("its answer is longer than {ANSWER_LIMIT} bytes")),
        (Some(0), false) => String::from_utf8([exit.stdout.head, exit.stdout.tail].concat())
            .map_err(|_| "its answer is not UTF-8".to_owned()),
        (Some(code), _) => Err(format!("exit {code}")),
        (None, _) => Err("a signal ended it".to_owned()),
    }
}
