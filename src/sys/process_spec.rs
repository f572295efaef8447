//! What a process is started with: program, arguments, directory, environment, input, limits.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use super::paths::AbsPath;

const DEFAULT_OUTPUT_CAP: usize = 8 * 1024 * 1024;

/// What to start. The environment is exactly what is given here; nothing is inherited.
#[derive(Debug, Clone)]
pub struct ProcessSpec {
    /// A name looked up in the given `PATH`, or a path.
    pub program: PathBuf,
    /// Arguments after the program.
    pub args: Vec<OsString>,
    /// Working directory.
    pub cwd: AbsPath,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Fed to it, then closed. Not used by [`super::process::spawn_piped`].
    pub stdin: Vec<u8>,
    /// The tree is ended after this. `None`: no limit. Not used by [`super::process::spawn_piped`].
    pub timeout: Option<Duration>,
    /// Bytes of each stream that are kept; the rest is read, counted and hashed. Not used by [`super::process::spawn_piped`].
    pub output_cap: usize,
}

impl ProcessSpec {
    /// A program in a directory, without arguments, environment, input or limit.
    pub fn new(program: impl Into<PathBuf>, cwd: &AbsPath) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd: cwd.clone(),
            env: Vec::new(),
            stdin: Vec::new(),
            timeout: None,
            output_cap: DEFAULT_OUTPUT_CAP,
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, args: I) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Adds a variable; a later one of the same name wins.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Adds variables.
    pub fn envs<N: AsRef<OsStr>, V: AsRef<OsStr>>(
        mut self,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let owned = |(name, value): (N, V)| (name.as_ref().to_owned(), value.as_ref().to_owned());
        self.env.extend(variables.into_iter().map(owned));
        self
    }

    /// Sets its input.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Limits its time.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Limits what is kept of each stream, in bytes.
    pub fn output_cap(mut self, bytes: usize) -> Self {
        self.output_cap = bytes;
        self
    }
}
