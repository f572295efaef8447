//! Redaction by a program: it reads the text on stdin and writes what may be kept on stdout. If it fails, the text is
//! dropped (P-032).

use std::ffi::OsString;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::sys::paths::AbsPath;
use crate::sys::process::{Ending, ProcessSpec, run};

/// How long a program may take for one text.
pub const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Longest answer in bytes.
const ANSWER_LIMIT: usize = 16 * 1024 * 1024;

/// How a redaction program is started.
#[derive(Debug, Clone)]
pub struct RedactionProgram {
    /// Program and arguments; not empty.
    pub argv: Vec<String>,
    /// Where it runs: the repository's main checkout, never a worktree.
    pub cwd: AbsPath,
    /// Its whole environment; no secrets belong in it.
    pub env: Vec<(OsString, OsString)>,
}

impl RedactionProgram {
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
        let exit = match run(spec, &CancellationToken::new()).await {
            Ok(exit) => exit,
            Err(error) => {
                tracing::warn!(program, %error, "redaction.program cannot be started; a text is withheld");
                return None;
            }
        };
        if exit.ending != Ending::Itself || !exit.success() || exit.stdout.truncated {
            tracing::warn!(program, code = exit.code, "redaction.program failed; a text is withheld");
            return None;
        }
        String::from_utf8([exit.stdout.head, exit.stdout.tail].concat()).ok()
    }
}
