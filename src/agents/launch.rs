//! One launch of a program: started in its own home and session, given its input, read, and ended with everything that
//! it started.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::time::Instant;

use super::entry::Entry;
use super::events::Signal;
use super::lines::{Line, Lines};
use super::program::{Before, CommandLine, LaunchContext, OutputFormat, Program, Reader, read_line};
use crate::domain::agent_program::AgentProgram;
use crate::domain::failures::ENDED_BY_AGENTD;
use crate::domain::message::TokenUsage;
use crate::domain::money::Money;
use crate::engine::agent_output::{AgentOutput, AgentProgress};
use crate::engine::agent_task::AgentTask;
use crate::sys::files;
use crate::sys::paths::AbsPath;
use crate::sys::process::{self, Ending, Piped, ProcessSpec};
use crate::sys::sandbox::{self, ProcessSandbox};

/// Bytes that the answer of a program may have.
const LONGEST_ANSWER: usize = 4 << 20;
/// Bytes of standard error that are kept: its end tells why something failed.
const LAST_ERRORS: usize = 8 * 1024;
/// How long a program that said how it ended may be silent until it ends, and one that closed its output may take to end.
pub(super) const LAST_MOMENT: Duration = Duration::from_secs(10);

/// How one program is started, the same for every visit of a run.
#[derive(Debug, Clone)]
pub struct Launch {
    /// What the definition asks for.
    pub program: AgentProgram,
    /// The worktree.
    pub cwd: AbsPath,
    /// The whole environment: an allow-list, its private home in it.
    pub environment: Vec<(OsString, OsString)>,
    /// Its private home.
    pub home: AbsPath,
    /// The sandbox; `None` = the definition turned it off.
    pub sandbox: Option<ProcessSandbox>,
    /// What conversations have used so far, by id. Some programs count from the start of their conversation.
    pub counted: Arc<Mutex<BTreeMap<String, TokenUsage>>>,
    /// What conversations have cost so far, by id, where the program tells the sum of its conversation.
    pub paid: Arc<Mutex<BTreeMap<String, Money>>>,
}

/// Why a launch gave nothing that counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// It could not be started.
    #[error("{0}")]
    NotStarted(String),
    /// It said nothing for too long.
    #[error("it said nothing for {} s (program.stallLimit) and was ended", .0.as_secs())]
    Stalled(Duration),
    /// It wrote more than anyone reads.
    #[error("it wrote more than agentd reads and was ended")]
    Flood,
    /// Its answer is longer than one may be. A part of it would pass for the whole.
    #[error("it wrote {0} bytes, more than agentd reads of an answer ({LONGEST_ANSWER})")]
    LongAnswer(u64),
    /// It says itself that it failed.
    #[error("{0}")]
    Itself(String),
    /// It ended without saying that it is done.
    #[error("it ended {how}{last}")]
    Ended {
        /// Exit code or signal, in words.
        how: String,
        /// Its last words.
        last: String,
    },
    /// agentd ended it.
    #[error("{}", ENDED_BY_AGENTD)]
    Cancelled,
}

/// Why the output of a program is read no further.
enum Over {
    /// It is closed.
    Closed,
    /// Nothing came any more of one that had said how it ended, or that had ended.
    Silent,
}

impl Launch {
    /// Runs the program on a task to its end. Its output goes to the task's progress as it comes. Dropping the future
    /// ends the program with everything that it started. `entry` = the way to agentd's own tools.
    pub async fn run(&self, task: &AgentTask, entry: Option<&Entry>) -> Result<Option<i32>, AgentError> {
        let line = CommandLine::of(
            self.known(),
            &LaunchContext {
                program: &self.program,
                sandboxed: self.sandbox.is_some(),
                task,
                entry,
                variable: &|name| self.variable(name),
            },
        );
        self.prepare(&line).await?;
        let (program, first) = self
            .program
            .argv
            .split_first()
            .map_or(("", &[][..]), |(program, first)| (program.as_str(), first));
        let spec = ProcessSpec::new(program, &self.cwd)
            .args(first)
            .args(&line.args)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .envs(line.env.iter().map(|(name, value)| (name, value)))
            .env("PWD", &self.cwd)
            .stdin(line.stdin);
        let spec = sandbox::wrap(self.sandbox.as_ref(), spec);
        let before = self.counted_before(task.resume.clone());
        // Whoever drops the future knows that it was started.
        task.progress.tell(|output| output.was_started = true);
        let ended = match self.known().output_format(before) {
            OutputFormat::Events(reader) => self.read_events(spec, reader, task).await,
            OutputFormat::Protocol => self.converse(spec, task, entry).await,
            OutputFormat::Answer => command(spec, task).await,
        };
        if matches!(ended, Err(AgentError::NotStarted(_))) {
            task.progress.tell(|output| output.was_started = false);
        }
        ended
    }

    fn known(&self) -> &'static dyn Program {
        super::program(self.program.backend)
    }

    /// The value of a variable that the program is given.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        let inside = self.sandbox.iter().flat_map(|sandbox| &sandbox.environment);
        let value = inside.chain(&self.environment).find(|(known, _)| known == name)?.1.to_str()?;
        Some(value.to_owned())
    }

    /// Writes what the program reads at its start.
    async fn prepare(&self, line: &CommandLine) -> Result<(), AgentError> {
        let files: Vec<(AbsPath, Vec<u8>)> = line
            .files
            .iter()
            .map(|(path, content)| (self.home.join(path), content.to_string().into()))
            .collect();
        let written = tokio::task::spawn_blocking(move || {
            files.iter().try_for_each(|(path, content)| {
                path.as_path().parent().map_or(Ok(()), files::create_private_dir)?;
                files::write_private(path.as_path(), content)
            })
        });
        let failed = |why: String| AgentError::NotStarted(format!("its settings cannot be written: {why}"));
        written.await.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
    }

    fn counted_before(&self, conversation: Option<String>) -> Before {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let usage = conversation.as_ref().and_then(|id| counted.get(id).copied()).unwrap_or_default();
        Before { conversation, usage }
    }

    fn remember(&self, progress: &AgentProgress) {
        let output = progress.so_far();
        if self.known().counts_conversation()
            && let (Some(id), Some(usage)) = (output.conversation, output.usage)
        {
            let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
            let all = counted.entry(id).or_default();
            *all = all.plus(usage);
        }
    }

    /// A program that tells events on standard output.
    async fn read_events(
        &self,
        spec: ProcessSpec,
        mut reader: Box<dyn Reader>,
        task: &AgentTask,
    ) -> Result<Option<i32>, AgentError> {
        let input = spec.stdin.clone();
        let started = process::spawn_piped(spec).await;
        let Piped { mut stdin, stdout, stderr, mut guard } =
            started.map_err(|error| AgentError::NotStarted(error.to_string()))?;
        let feed = tokio::spawn(async move {
            drop(stdin.write_all(&input).await);
        });
        let errors = tokio::spawn(last_words(stderr));
        let mut lines = Lines::new(BufReader::new(stdout));
        let (mut outcome, mut has_ended) = (None, false);
        let mut silence_ends = Instant::now() + self.program.stall_limit;
        let ended = loop {
            let line = tokio::select! {
                biased;
                () = task.cancel.cancelled() => break Err(AgentError::Cancelled),
                line = lines.next() => line,
                // What it started may hold its output open: it is read for another moment, not until the stall limit.
                _ = guard.wait(), if !has_ended => {
                    has_ended = true;
                    silence_ends = silence_ends.min(Instant::now() + LAST_MOMENT);
                    continue;
                }
                () = tokio::time::sleep_until(silence_ends) => {
                    if outcome.is_some() || has_ended {
                        break Ok(Over::Silent);
                    }
                    break Err(AgentError::Stalled(self.program.stall_limit));
                }
            };
            match line {
                // Some go on with what they had left running, and say once more what all of it has cost.
                Ok(Line::Text(line)) => {
                    match read_line(reader.as_mut(), &line, &task.progress) {
                        Signal::More => {}
                        signal => {
                            if signal == Signal::Done {
                                task.progress.tell(AgentOutput::is_done);
                            }
                            outcome = Some(signal);
                        }
                    }
                    if !has_ended {
                        // Whoever goes on is read to its end: nothing works, and spends, where nobody looks.
                        let silence = if outcome.is_some() { LAST_MOMENT } else { self.program.stall_limit };
                        silence_ends = Instant::now() + silence;
                    }
                    if let Err(error) = read_whole(&task.progress) {
                        break Err(error);
                    }
                }
                Ok(Line::Flood) => break Err(AgentError::Flood),
                Ok(Line::End) | Err(_) => break Ok(Over::Closed),
            }
        };
        self.remember(&task.progress);
        let status = match &ended {
            // It has a moment to end.
            Ok(Over::Closed) => match tokio::time::timeout(LAST_MOMENT, guard.wait()).await {
                Ok(status) => status,
                Err(_) => guard.stop().await,
            },
            Ok(Over::Silent) | Err(_) => guard.stop().await,
        };
        feed.abort();
        let errors = tokio::time::timeout(Duration::from_secs(1), errors).await;
        ended?;
        let code = status.and_then(|status| status.code());
        let has_words = !task.progress.so_far().text.trim().is_empty();
        let has_succeeded = self.known().ends_without_a_word() && code == Some(0) && has_words;
        match outcome {
            _ if has_succeeded => Ok(code),
            Some(Signal::Failed(why)) => Err(AgentError::Itself(why)),
            Some(_) => Ok(code),
            None => {
                let missing = match code {
                    Some(0) if self.known().ends_without_a_word() => ", without a report",
                    Some(0) => ", without the event that tells its end",
                    _ => "",
                };
                let last = errors.ok().and_then(Result::ok).unwrap_or_default();
                let last = format!("{missing}{}", last_line(&last));
                Err(AgentError::Ended { how: how(code), last })
            }
        }
    }
}

/// A program whose standard output is its answer.
async fn command(spec: ProcessSpec, task: &AgentTask) -> Result<Option<i32>, AgentError> {
    let exit = process::run(spec.output_cap(LONGEST_ANSWER), &task.cancel)
        .await
        .map_err(|error| AgentError::NotStarted(error.to_string()))?;
    task.progress.tell(|output| output.text = exit.stdout.text().trim_end().to_owned());
    match (exit.ending, exit.code) {
        (Ending::Cancelled | Ending::TimedOut, _) => Err(AgentError::Cancelled),
        (Ending::Itself, Some(0)) if exit.stdout.total > LONGEST_ANSWER as u64 => {
            Err(AgentError::LongAnswer(exit.stdout.total))
        }
        (Ending::Itself, Some(0)) => Ok(Some(0)),
        (Ending::Itself, code) => {
            let words = if exit.stderr.total > 0 { exit.stderr.text() } else { exit.stdout.text() };
            Err(AgentError::Ended { how: how(code), last: last_line(&words) })
        }
    }
}

/// Whether the answer so far is one that agentd reads.
pub(super) fn read_whole(progress: &AgentProgress) -> Result<(), AgentError> {
    match progress.answer_bytes() {
        bytes if bytes > LONGEST_ANSWER => Err(AgentError::LongAnswer(bytes as u64)),
        _ => Ok(()),
    }
}

fn how(code: Option<i32>) -> String {
    code.map_or_else(|| "by a signal".to_owned(), |code| format!("with exit code {code}"))
}

pub(super) fn last_line(words: &str) -> String {
    let last = words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    if last.is_empty() { String::new() } else { format!(": {}", last.chars().take(300).collect::<String>()) }
}

/// Reads a stream to its end and keeps what it ended with.
pub(super) async fn last_words(mut stream: impl tokio::io::AsyncRead + Unpin) -> String {
    let (mut last, mut chunk) = (Vec::new(), vec![0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
        last.extend_from_slice(&chunk[..read]);
        let surplus = last.len().saturating_sub(LAST_ERRORS);
        last.drain(..surplus);
    }
    String::from_utf8_lossy(&last).into_owned()
}
