//! The only file that starts processes: exact environment, own session, limited output, and no process left behind.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::OnceLock;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::child::{Child, Started, Starter};
use super::clock::Stopwatch;
use super::process_tree;

pub use super::process_spec::ProcessSpec;
pub use super::process_tree::{LiveChild, kill_strays, live};

/// How long a process tree has between the request to end and the kill.
const GRACE: Duration = Duration::from_millis(500);
/// How long to wait for the output of a process that survived the kill.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// How a process ended.
#[derive(Debug, Clone)]
pub struct Exit {
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Why it ended.
    pub ending: Ending,
    /// Standard output.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
    /// From start to end.
    pub duration: Duration,
}

impl Exit {
    /// Ended by itself with code 0.
    pub fn success(&self) -> bool {
        self.code == Some(0) && self.ending == Ending::Itself
    }

    /// Whether its time ran out.
    pub fn timed_out(&self) -> bool {
        self.ending == Ending::TimedOut
    }
}

/// Why a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By itself, or by a signal that was not ours.
    Itself,
    /// Ended by us after its timeout.
    TimedOut,
    /// Ended by us because it was cancelled.
    Cancelled,
}

/// What was kept of a stream: its beginning and its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The beginning; everything, unless `truncated`.
    pub head: Vec<u8>,
    /// The end, when something between was left out.
    pub tail: Vec<u8>,
    /// Bytes that the process wrote.
    pub total: u64,
    /// SHA-256 over all of them, in hexadecimal.
    pub sha256: String,
    /// Whether bytes between head and tail were left out.
    pub truncated: bool,
}

impl Captured {
    /// As text: invalid UTF-8 is replaced, and a line says how much was left out in the middle.
    pub fn text(&self) -> String {
        self.clone().into_text()
    }

    /// As [`Captured::text`], without a second copy of a long output.
    pub fn into_text(self) -> String {
        let left_out = self.total - self.head.len() as u64 - self.tail.len() as u64;
        let mut text = String::from_utf8(self.head)
            .unwrap_or_else(|broken| String::from_utf8_lossy(broken.as_bytes()).into_owned());
        if self.truncated {
            text.push_str(&format!("\n[… {left_out} bytes left out …]\n"));
            text.push_str(&String::from_utf8_lossy(&self.tail));
        }
        text
    }
}

/// A process that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// No such program.
    #[error("program \"{}\" was not found; install it or give its full path", .0.display())]
    NotFound(PathBuf),
    /// The working directory is not there.
    #[error("cannot start \"{}\": the directory {} does not exist", program.display(), cwd.display())]
    NoDirectory {
        /// The program.
        program: PathBuf,
        /// The directory.
        cwd: PathBuf,
    },
    /// Anything else.
    #[error("cannot start \"{}\": {source}", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Runs a process to its end, in its own session. On timeout, on cancellation and when the future is dropped, all its
/// descendants end with it. After its own end, everything that it left running is killed. Needs a tokio runtime.
pub async fn run(spec: ProcessSpec, cancel: &CancellationToken) -> Result<Exit, ProcessError> {
    let watch = Stopwatch::start();
    let input = spec.stdin.clone();
    let (timeout, cap) = (spec.timeout, spec.output_cap);
    let Piped { mut stdin, stdout, stderr, mut guard } = spawn_piped(spec).await?;
    // A process that does not read its input is no error.
    let feed = tokio::spawn(async move {
        drop(stdin.write_all(&input).await);
    });
    let stdout = tokio::spawn(capture(stdout, cap));
    let stderr = tokio::spawn(capture(stderr, cap));
    let limit = async {
        match timeout {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    let (status, ending) = tokio::select! {
        status = guard.wait() => (status, Ending::Itself),
        () = cancel.cancelled() => (guard.stop().await, Ending::Cancelled),
        () = limit => (guard.stop().await, Ending::TimedOut),
    };
    feed.abort();
    let (stdout, stderr) = (finish(stdout).await, finish(stderr).await);
    let (code, signal) = status.map_or((None, None), |status| (status.code(), signal_of(status)));
    Ok(Exit { code, signal, ending, stdout, stderr, duration: watch.elapsed() })
}

/// A long-lived child with its three streams.
#[derive(Debug)]
pub struct Piped {
    /// Its input.
    pub stdin: ChildStdin,
    /// Its output.
    pub stdout: ChildStdout,
    /// Its errors.
    pub stderr: ChildStderr,
    /// Keeps it alive; dropping this kills it with all its descendants.
    pub guard: ChildGuard,
}

/// Starts a child and hands out its streams. Needs a tokio runtime.
pub async fn spawn_piped(spec: ProcessSpec) -> Result<Piped, ProcessError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound if !spec.cwd.as_path().is_dir() => {
            ProcessError::NoDirectory { program: spec.program.clone(), cwd: spec.cwd.as_path().to_owned() }
        }
        io::ErrorKind::NotFound => ProcessError::NotFound(spec.program.clone()),
        _ => ProcessError::Spawn { program: spec.program.clone(), source },
    };
    start(spec.clone()).await.map_err(failed)
}

/// Kills every child with its descendants now. It is for the second Ctrl-C and the end of `main`. Blocks for some
/// milliseconds if there is something to kill.
pub fn kill_all() {
    for child in live() {
        process_tree::kill(child.pid);
        process_tree::kill_leftovers(child.pid);
    }
}

/// Holds a child. Dropping it kills the whole tree.
#[derive(Debug)]
pub struct ChildGuard {
    child: Option<Child>,
    pid: u32,
    status: Option<ExitStatus>,
}

impl ChildGuard {
    /// Its process id; also its process group and session.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for its end and then kills what it left running. `None` if the system lost track of it.
    pub async fn wait(&mut self) -> Option<ExitStatus> {
        if let Some(child) = &mut self.child {
            self.status = child.wait().await.ok();
            self.child = None;
            let pid = self.pid;
            process_tree::forget(pid);
            drop(tokio::task::spawn_blocking(move || process_tree::kill_leftovers(pid)).await);
        }
        self.status
    }

    /// Asks the tree to end and kills the rest after half a second.
    pub async fn stop(&mut self) -> Option<ExitStatus> {
        if self.child.is_none() {
            return self.status;
        }
        let pid = self.pid;
        drop(tokio::task::spawn_blocking(move || process_tree::terminate(pid)).await);
        if let Ok(status) = tokio::time::timeout(GRACE, self.wait()).await {
            return status;
        }
        drop(tokio::task::spawn_blocking(move || process_tree::kill(pid)).await);
        self.wait().await
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let pid = self.pid;
        // One call kills most of it, in case the program ends before the thread. The rest needs milliseconds of reading
        // /proc, which is too long for a runtime thread.
        process_tree::kill_group(pid);
        let end = move || {
            process_tree::kill(pid);
            while let Ok(None) = child.try_wait() {
                std::thread::sleep(Duration::from_millis(2));
            }
            process_tree::forget(pid);
            process_tree::kill_leftovers(pid);
        };
        if let Err(error) = std::thread::Builder::new().name("agentd-kill".into()).spawn(end) {
            tracing::warn!(%error, pid, "cannot start a thread to kill a process tree");
            process_tree::kill(pid);
        }
    }
}

/// The result is a guard, so that a child that nobody waits for is killed.
type Order = (ProcessSpec, tokio::runtime::Handle, oneshot::Sender<io::Result<Piped>>);

/// Starts the child from a thread that lives as long as the process. The kernel ends a child with the thread that
/// started it, and runtime threads come and go.
async fn start(spec: ProcessSpec) -> io::Result<Piped> {
    static STARTER: OnceLock<Option<std::sync::mpsc::Sender<Order>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, inbox) = std::sync::mpsc::channel::<Order>();
        let work = move || {
            let mut starter = Starter::new();
            for (spec, runtime, reply) in inbox {
                let _entered = runtime.enter();
                if !reply.is_closed() {
                    drop(reply.send(start_here(&mut starter, &spec)));
                }
            }
        };
        std::thread::Builder::new().name("agentd-start".into()).spawn(work).ok().map(|_| orders)
    });
    let gone = || io::Error::other("the thread that starts processes is gone");
    let (reply, answer) = oneshot::channel();
    let order = (spec, tokio::runtime::Handle::current(), reply);
    starter.as_ref().ok_or_else(gone)?.send(order).map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}

fn start_here(starter: &mut Starter, spec: &ProcessSpec) -> io::Result<Piped> {
    let started = process_tree::start(&spec.program, || starter.start(spec), |started| started.child.id())?;
    let Started { child, stdin, stdout, stderr } = started;
    let pid = child.id().unwrap_or_default();
    Ok(Piped { stdin, stdout, stderr, guard: ChildGuard { child: Some(child), pid, status: None } })
}

#[cfg(unix)]
fn signal_of(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal_of(_status: ExitStatus) -> Option<i32> {
    None
}

/// Reads a stream to its end. Keeps half of `cap` from its start and half from its end.
async fn capture(mut stream: impl AsyncRead + Unpin, cap: usize) -> Captured {
    let (head_cap, tail_cap) = (cap - cap / 2, cap / 2);
    // Everything is in the head until there is too much of it.
    let (mut head, mut tail) = (Vec::new(), Vec::new());
    let (mut total, mut hash) = (0_u64, Sha256::new());
    let mut truncated = false;
    let mut buffer = vec![0; 32 * 1024];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        let chunk = &buffer[..read];
        total += read as u64;
        hash.update(chunk);
        if truncated {
            tail.extend_from_slice(chunk);
        } else {
            head.extend_from_slice(chunk);
            if head.len() > cap {
                truncated = true;
                tail = head.split_off(head_cap);
            }
        }
        // Cutting only now and then keeps this linear.
        if tail.len() > 2 * tail_cap + buffer.len() {
            tail.drain(..tail.len() - tail_cap);
        }
    }
    tail.drain(..tail.len().saturating_sub(tail_cap));
    Captured { head, tail, total, sha256: hex::encode(hash.finalize()), truncated }
}

/// The stream ends with the tree. A process that could not be killed is not waited for.
async fn finish(mut reader: tokio::task::JoinHandle<Captured>) -> Captured {
    let nothing = || Captured {
        head: Vec::new(),
        tail: Vec::new(),
        total: 0,
        sha256: hex::encode(Sha256::digest([])),
        truncated: true,
    };
    match tokio::time::timeout(LAST_OUTPUT, &mut reader).await {
        Ok(captured) => captured.unwrap_or_else(|_| nothing()),
        Err(_) => {
            reader.abort();
            nothing()
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use crate::sys::paths::AbsPath;

    fn shell(script: &str) -> ProcessSpec {
        let root = AbsPath::new("/").unwrap();
        ProcessSpec::new("sh", &root).args(["-c", script]).env("PATH", "/usr/bin:/bin")
    }

    fn nobody_cancels() -> CancellationToken {
        CancellationToken::new()
    }

    /// Processes whose command line has this mark.
    fn marked(mark: &str) -> Vec<String> {
        let command = |entry: std::fs::DirEntry| {
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains(mark).then_some(line)
        };
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(command).collect()
    }

    /// Three ways to leave a process group. None of these processes ends by itself.
    fn escapees(mark: &str) -> String {
        format!(
            "setsid sleep {mark} & (sleep {mark} &) ; env -i /bin/sh -c 'trap \"\" TERM; setsid /bin/sleep {mark} & wait' &"
        )
    }

    async fn until_gone(mark: &str) {
        for _ in 0..400 {
            if marked(mark).is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("still running: {:?}", marked(mark));
    }

    #[tokio::test]
    async fn the_environment_is_what_was_given_and_input_reaches_the_program() {
        let spec = shell("env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= | sort ; cat").env("A", "1").stdin("in");
        let exit = run(spec, &nobody_cancels()).await.unwrap();
        assert_eq!(exit.stdout.text(), "A=1\nPATH=/usr/bin:/bin\nin");
        assert!(exit.success() && !exit.stdout.truncated);
        assert_eq!(exit.stdout.sha256, hex::encode(Sha256::digest(exit.stdout.head)));
    }

    #[tokio::test]
    async fn exit_codes_and_signals_are_told_apart() {
        let exit = run(shell("echo no >&2; exit 3"), &nobody_cancels()).await.unwrap();
        assert_eq!((exit.code, exit.signal, exit.stderr.text().as_str()), (Some(3), None, "no\n"));
        let exit = run(shell("kill -9 $$"), &nobody_cancels()).await.unwrap();
        assert_eq!((exit.code, exit.signal, exit.ending), (None, Some(9), Ending::Itself));
        let missing =
            run(ProcessSpec { program: "no-such-program".into(), ..shell("") }, &nobody_cancels()).await;
        assert!(matches!(missing, Err(ProcessError::NotFound(_))));
    }

    #[tokio::test]
    async fn output_beyond_the_cap_is_counted_and_hashed_and_its_end_kept() {
        let exit = run(shell("seq 1 200000").output_cap(1000), &nobody_cancels()).await.unwrap();
        let (out, whole) = (&exit.stdout, (1..=200_000).map(|n| format!("{n}\n")).collect::<String>());
        assert_eq!((out.total, out.truncated), (whole.len() as u64, true));
        assert_eq!(out.sha256, hex::encode(Sha256::digest(&whole)));
        assert_eq!(out.head, whole.as_bytes()[..500]);
        assert_eq!(out.tail, whole.as_bytes()[whole.len() - 500..]);
        let exact = run(shell("printf 12345678").output_cap(8), &nobody_cancels()).await.unwrap();
        assert_eq!((exact.stdout.text().as_str(), exact.stdout.truncated), ("12345678", false));
    }

    #[tokio::test]
    async fn a_032_a_timeout_ends_the_whole_tree_in_time() {
        let script = format!("{} trap '' TERM; while :; do sleep 31.4151; done", escapees("31.4151"));
        let exit = run(shell(&script).timeout(Duration::from_millis(200)), &nobody_cancels()).await.unwrap();
        assert!(exit.timed_out());
        assert!(exit.duration < Duration::from_secs(10), "{:?}", exit.duration);
        assert_eq!(marked("31.4151"), Vec::<String>::new());
    }

    #[tokio::test]
    async fn what_a_finished_command_leaves_running_is_killed() {
        let exit = run(shell(&escapees("31.4152")), &nobody_cancels()).await.unwrap();
        assert!(exit.success());
        assert_eq!(marked("31.4152"), Vec::<String>::new());
    }

    #[tokio::test]
    async fn cancelling_ends_the_tree_and_so_does_dropping_the_future() {
        let cancel = CancellationToken::new();
        let script = format!("{} echo up; sleep 31.4153", escapees("31.4153"));
        let running = tokio::spawn({
            let (spec, cancel) = (shell(&script), cancel.clone());
            async move { run(spec, &cancel).await.unwrap() }
        });
        while marked("sleep 31.4153").len() < 4 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cancel.cancel();
        let exit = running.await.unwrap();
        assert_eq!(exit.ending, Ending::Cancelled);
        assert_eq!(marked("31.4153"), Vec::<String>::new());

        let script = format!("{} sleep 31.4154", escapees("31.4154"));
        let dropped =
            tokio::time::timeout(Duration::from_millis(150), run(shell(&script), &nobody_cancels())).await;
        assert!(dropped.is_err());
        until_gone("31.4154").await;
    }

    #[tokio::test]
    async fn one_finished_command_does_not_touch_another_that_lives() {
        // It lives until its input ends.
        let mut long = spawn_piped(shell("(setsid sleep 31.4155 &) ; cat")).await.unwrap();
        while !marked("sleep 31.4155").iter().any(|line| line.starts_with("sleep")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        run(shell(&escapees("31.4156")), &nobody_cancels()).await.unwrap();
        let lives = marked("sleep 31.4155").iter().any(|line| line.starts_with("sleep"));
        assert!(lives, "an orphan of a living command was taken for a leftover");
        drop(long.stdin);
        assert!(long.guard.wait().await.unwrap().success());
        assert_eq!(marked("31.4155").len() + marked("31.4156").len(), 0);
    }

    #[tokio::test]
    async fn a_long_lived_child_speaks_through_its_streams_and_ends_with_its_guard() {
        let script = format!("{} read line; echo got $line; sleep 31.4157", escapees("31.4157"));
        let mut child = spawn_piped(shell(&script)).await.unwrap();
        child.stdin.write_all(b"hello\n").await.unwrap();
        let mut answer = [0; 10];
        child.stdout.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"got hello\n");
        let pid = child.guard.pid();
        assert!(live().iter().any(|known| known.pid == pid));
        drop(child);
        until_gone("31.4157").await;
        while live().iter().any(|known| known.pid == pid) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn strays_are_found_by_their_environment() {
        let spec = shell("setsid sleep 31.4158 & wait").env("AGENTD_INSTANCE", "agent-issue-7-T");
        let running = tokio::spawn(async move { run(spec, &nobody_cancels()).await.unwrap() });
        while marked("sleep 31.4158").is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let found =
            tokio::task::spawn_blocking(|| kill_strays("AGENTD_INSTANCE", "agent-issue-7-T")).await.unwrap();
        assert!(found >= 1, "{found}");
        assert_eq!(running.await.unwrap().signal, Some(9));
        assert_eq!(kill_strays("AGENTD_INSTANCE", "agent-issue-7-T"), 0);
    }
}
