//! A child process. On Linux it starts without a copy of agentd's memory, because copying takes longer the more memory
//! there is.
//!
//! `fork` copies the tables of all memory, and they are dropped when the program begins. Here the child borrows the
//! memory until then, while the thread that starts it waits (`vfork`). So the code in the child may neither allocate
//! nor lock before the program begins; everything is prepared beforehand.

pub(super) use os::{Child, Starter};

/// A child that has just begun, with its three streams.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) child: Child,
    pub(super) stdin: tokio::process::ChildStdin,
    pub(super) stdout: tokio::process::ChildStdout,
    pub(super) stderr: tokio::process::ChildStderr,
}

#[cfg(target_os = "linux")]
mod os {
    use std::collections::BTreeMap;
    use std::ffi::{CStr, CString, OsStr, OsString};
    use std::io;
    use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;
    use std::ptr;
    use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

    use nix::errno::Errno;
    use nix::libc;
    use nix::sched::CloneFlags;
    use nix::sys::signal::{SigSet, Signal};
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    use nix::unistd::Pid;
    use tokio::signal::unix::{SignalKind, signal};

    use super::Started;
    use crate::sys::process_spec::ProcessSpec;

    /// The stack for the first steps of the child, which are three calls deep.
    const STACK: usize = 64 * 1024;
    /// Where a program is looked for when the environment names no `PATH`.
    const USUAL_PATH: &[u8] = b"/bin:/usr/bin";
    /// Runs a script that does not say by what.
    const SHELL: &[u8] = b"/bin/sh";

    /// A child that was started here and is waited for here alone.
    #[derive(Debug)]
    pub(in crate::sys) struct Child {
        pid: Pid,
        status: Option<ExitStatus>,
    }

    impl Child {
        pub(in crate::sys) fn id(&self) -> Option<u32> {
            u32::try_from(self.pid.as_raw()).ok()
        }

        /// How it ended, if it has.
        pub(in crate::sys) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
            if self.status.is_none() {
                self.status = match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
                    Ok(WaitStatus::Exited(_, code)) => Some(ExitStatus::from_raw(code << 8)),
                    Ok(WaitStatus::Signaled(_, signal, dumped)) => {
                        Some(ExitStatus::from_raw(signal as i32 | if dumped { 0x80 } else { 0 }))
                    }
                    Ok(_) | Err(Errno::EINTR) => None,
                    Err(error) => return Err(error.into()),
                };
            }
            Ok(self.status)
        }

        /// Waits for its end. Dropping the future loses nothing.
        pub(in crate::sys) async fn wait(&mut self) -> io::Result<ExitStatus> {
            // The listener is set before the check, so that no end is missed.
            let mut ends = signal(SignalKind::child())?;
            loop {
                if let Some(status) = self.try_wait()? {
                    return Ok(status);
                }
                ends.recv().await;
            }
        }
    }

    /// Starts children, one after the other, from the thread it belongs to.
    #[derive(Debug)]
    pub(in crate::sys) struct Starter {
        stack: Vec<u8>,
    }

    impl Starter {
        pub(in crate::sys) fn new() -> Self {
            Self { stack: vec![0; STACK] }
        }

        /// Starts a program in its own session. It is the subreaper of its descendants, is killed when agentd dies, and
        /// has only its three streams open. Needs an entered tokio runtime.
        ///
        /// # Errors
        /// What the system says where the program or its directory cannot be used, as [`std::process::Command`] would.
        pub(in crate::sys) fn start(&mut self, spec: &ProcessSpec) -> io::Result<Started> {
            let mut arguments = vec![spec.program.clone().into_os_string()];
            arguments.extend(spec.args.iter().cloned());
            let programs = candidates(spec);
            self.begin(spec, &programs, &arguments).or_else(|failure| {
                // As usual: the shell runs an executable file in a format that the kernel does not know.
                let (Failure::NoFormat(candidate), Some(program)) = (&failure, programs.first()) else {
                    return Err(failure.into());
                };
                let script = programs.get(*candidate).unwrap_or(program).clone();
                let mut arguments: Vec<OsString> = vec![OsStr::from_bytes(SHELL).to_owned(), script];
                arguments.extend(spec.args.iter().cloned());
                let shell = [OsStr::from_bytes(SHELL).to_owned()];
                self.begin(spec, &shell, &arguments).map_err(io::Error::from)
            })
        }

        fn begin(
            &mut self,
            spec: &ProcessSpec,
            programs: &[OsString],
            arguments: &[OsString],
        ) -> Result<Started, Failure> {
            let (its_stdin, stdin) = io::pipe()?;
            let (stdout, its_stdout) = io::pipe()?;
            let (stderr, its_stderr) = io::pipe()?;
            let words = Words::of(spec, programs, arguments)?;
            let order = Order {
                programs: &words.programs,
                arguments: &pointers(&words.arguments),
                environment: &pointers(&words.environment),
                directory: &words.directory,
                streams: [its_stdin.as_raw_fd(), its_stdout.as_raw_fd(), its_stderr.as_raw_fd()],
                parent: nix::unistd::getpid(),
                candidate: AtomicUsize::new(0),
                error: AtomicI32::new(0),
            };
            // A signal to the child while the memory is shared would run agentd's own handler.
            let before = SigSet::all().thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_SETMASK)?;
            let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
            let first_steps = Box::new(|| {
                order.error.store(order.follow() as i32, Ordering::SeqCst);
                127
            });
            #[expect(unsafe_code, reason = "the only way to start a program without a copy of all memory")]
            // SAFETY: this thread waits until the program begins or the closure ends. The closure allocates nothing,
            // locks nothing, and changes no memory but the two numbers in `order` and the stack. Both outlive it.
            let cloned = unsafe {
                nix::sched::clone(first_steps, &mut self.stack, flags, Some(Signal::SIGCHLD as i32))
            };
            before.thread_set_mask()?;
            let pid = cloned?;
            let error = order.error.load(Ordering::SeqCst);
            if error != 0 {
                while waitpid(pid, None) == Err(Errno::EINTR) {}
                return Err(match Errno::from_raw(error) {
                    Errno::ENOEXEC => Failure::NoFormat(order.candidate.load(Ordering::SeqCst)),
                    _ => Failure::System(io::Error::from_raw_os_error(error)),
                });
            }
            let mut child = Child { pid, status: None };
            let streams = || -> io::Result<_> {
                Ok((
                    tokio::process::ChildStdin::from_std(OwnedFd::from(stdin).into())?,
                    tokio::process::ChildStdout::from_std(OwnedFd::from(stdout).into())?,
                    tokio::process::ChildStderr::from_std(OwnedFd::from(stderr).into())?,
                ))
            };
            match streams() {
                Ok((stdin, stdout, stderr)) => Ok(Started { child, stdin, stdout, stderr }),
                Err(error) => {
                    let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
                    while matches!(child.try_wait(), Ok(None)) {
                        std::thread::yield_now();
                    }
                    Err(error.into())
                }
            }
        }
    }

    /// Why no child began.
    enum Failure {
        /// The candidate with this number is executable, but in a format that the kernel does not know.
        NoFormat(usize),
        System(io::Error),
    }

    impl From<io::Error> for Failure {
        fn from(error: io::Error) -> Self {
            Self::System(error)
        }
    }

    impl From<Errno> for Failure {
        fn from(error: Errno) -> Self {
            Self::System(error.into())
        }
    }

    impl From<Failure> for io::Error {
        fn from(failure: Failure) -> Self {
            match failure {
                Failure::NoFormat(_) => Errno::ENOEXEC.into(),
                Failure::System(error) => error,
            }
        }
    }

    /// The places of the program: its path if it is one, else the folders of the given `PATH`, in their order.
    fn candidates(spec: &ProcessSpec) -> Vec<OsString> {
        let name = spec.program.as_os_str();
        if name.is_empty() || name.as_bytes().contains(&b'/') {
            return vec![name.to_owned()];
        }
        let given = spec.env.iter().rev().find(|(variable, _)| variable == "PATH");
        let path = given.map_or(USUAL_PATH, |(_, path)| path.as_bytes());
        let within = |folder: &[u8]| {
            let folder = if folder.is_empty() { b"." } else { folder };
            OsString::from_vec([folder, b"/", name.as_bytes()].concat())
        };
        path.split(|byte| *byte == b':').map(within).collect()
    }

    /// What the kernel takes, in its own form.
    struct Words {
        programs: Vec<CString>,
        arguments: Vec<CString>,
        environment: Vec<CString>,
        directory: CString,
    }

    impl Words {
        fn of(spec: &ProcessSpec, programs: &[OsString], arguments: &[OsString]) -> io::Result<Self> {
            let word = |text: &OsStr| CString::new(text.as_bytes()).map_err(io::Error::from);
            let words = |texts: &[OsString]| texts.iter().map(|text| word(text)).collect::<io::Result<_>>();
            let variables: BTreeMap<&OsStr, &OsStr> =
                spec.env.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str())).collect();
            let variable = |(name, value): (&OsStr, &OsStr)| {
                Ok(CString::new([name.as_bytes(), b"=", value.as_bytes()].concat())?)
            };
            Ok(Self {
                programs: words(programs)?,
                arguments: words(arguments)?,
                environment: variables.into_iter().map(variable).collect::<io::Result<_>>()?,
                directory: word(spec.cwd.as_path().as_os_str())?,
            })
        }
    }

    /// The kernel's lists end with nothing.
    fn pointers(words: &[CString]) -> Vec<*const libc::c_char> {
        words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect()
    }

    /// What the child does before its program begins.
    struct Order<'a> {
        programs: &'a [CString],
        arguments: &'a [*const libc::c_char],
        environment: &'a [*const libc::c_char],
        directory: &'a CStr,
        streams: [RawFd; 3],
        parent: Pid,
        /// Which program was tried last.
        candidate: AtomicUsize,
        /// Why the program did not begin; nothing where it did.
        error: AtomicI32,
    }

    #[expect(
        unsafe_code,
        reason = "system calls between the start and the program, where nothing may be allocated"
    )]
    impl Order<'_> {
        /// Comes back only where the program cannot begin.
        fn follow(&self) -> Errno {
            self.prepare().map_or_else(|error| error, |()| self.become_the_program())
        }

        fn prepare(&self) -> nix::Result<()> {
            forget_handlers();
            nix::unistd::setsid()?;
            nix::sys::prctl::set_child_subreaper(true)?;
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            if nix::unistd::getppid() != self.parent {
                return Err(Errno::ESRCH);
            }
            for (number, stream) in (0..).zip(self.streams) {
                // SAFETY: numbers only; the child's files are its own copy.
                Errno::result(unsafe { libc::dup2(stream, number) })?;
            }
            // SAFETY: numbers only. Kernels before 5.11 do not have this call. agentd's own files have a mark that
            // closes them; this call closes files that agentd's starter left open.
            unsafe {
                let (first, last): (libc::c_uint, libc::c_uint) = (3, libc::c_uint::MAX);
                libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC);
            }
            // SAFETY: a text that ends with a zero and outlives the call.
            Errno::result(unsafe { libc::chdir(self.directory.as_ptr()) })?;
            SigSet::empty().thread_set_mask()
        }

        fn become_the_program(&self) -> Errno {
            let (mut refused, mut last) = (false, Errno::ENOENT);
            for (number, program) in self.programs.iter().enumerate() {
                self.candidate.store(number, Ordering::SeqCst);
                // SAFETY: texts and lists that end with a zero and outlive the call.
                unsafe {
                    libc::execve(program.as_ptr(), self.arguments.as_ptr(), self.environment.as_ptr());
                }
                last = Errno::last();
                match last {
                    // Further along the path there may be one that can be used.
                    Errno::EACCES => refused = true,
                    Errno::ENOENT | Errno::ENOTDIR | Errno::ESTALE | Errno::ENODEV | Errno::ETIMEDOUT => {}
                    _ => return last,
                }
            }
            if refused { Errno::EACCES } else { last }
        }
    }

    /// Signals get their default action. Ignored ones stay ignored, except for a closed pipe, which Rust programs
    /// ignore and others must not.
    #[expect(unsafe_code, reason = "the library's call for this allocates")]
    fn forget_handlers() {
        for number in 1..=64 {
            // SAFETY: `sigaction` is a plain structure that the calls read and write. The handlers belong to the child.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                let known = libc::sigaction(number, ptr::null(), &raw mut action) == 0;
                let ignored = action.sa_sigaction == libc::SIG_IGN && number != libc::SIGPIPE;
                if known && action.sa_sigaction != libc::SIG_DFL && !ignored {
                    action = std::mem::zeroed();
                    libc::sigaction(number, &raw const action, ptr::null_mut());
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod os {
    use std::io;
    use std::process::Stdio;

    pub(in crate::sys) use tokio::process::Child;

    use super::Started;
    use crate::sys::process_spec::ProcessSpec;

    /// Starts children, one after the other.
    #[derive(Debug)]
    pub(in crate::sys) struct Starter;

    impl Starter {
        pub(in crate::sys) fn new() -> Self {
            Self
        }

        /// Starts a program with a session of its own. Needs a tokio runtime that is entered.
        pub(in crate::sys) fn start(&mut self, spec: &ProcessSpec) -> io::Result<Started> {
            #[expect(clippy::disallowed_methods, reason = "this is the place that starts processes")]
            let mut command = tokio::process::Command::new(&spec.program);
            command.args(&spec.args).current_dir(spec.cwd.as_path()).env_clear();
            command.envs(spec.env.iter().map(|(name, value)| (name, value)));
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            #[cfg(unix)]
            #[expect(unsafe_code, reason = "the closure makes one system call and allocates nothing")]
            // SAFETY: between fork and exec only an async-signal-safe call is made.
            unsafe {
                command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(io::Error::from));
            }
            #[cfg(not(unix))]
            command.kill_on_drop(true);
            let mut child = command.spawn()?;
            match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
                (Some(stdin), Some(stdout), Some(stderr)) => Ok(Started { child, stdin, stdout, stderr }),
                _ => Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "a test writes its programs as anybody would")]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use tokio_util::sync::CancellationToken;

    use crate::sys::paths::AbsPath;
    use crate::sys::process::{Exit, ProcessError, ProcessSpec, run};

    async fn ran(spec: ProcessSpec) -> Result<Exit, ProcessError> {
        run(spec, &CancellationToken::new()).await
    }

    fn file(folder: &AbsPath, name: &str, text: &str, mode: u32) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap().as_path()).unwrap();
        fs::write(path.as_path(), text).unwrap();
        fs::set_permissions(path.as_path(), fs::Permissions::from_mode(mode)).unwrap();
    }

    #[tokio::test]
    async fn the_program_is_the_first_along_the_path_that_may_be_run() {
        let place = tempfile::tempdir().unwrap();
        let root = AbsPath::new(place.path().to_str().unwrap()).unwrap();
        file(&root, "a/it", "#!/bin/sh\necho a", 0o600);
        file(&root, "b/it", "#!/bin/sh\necho b \"$@\"", 0o700);
        file(&root, "c/it", "#!/bin/sh\necho c", 0o700);
        // Relative folders start at the directory of the program. An empty one is that directory.
        let spec = ProcessSpec::new("it", &root).arg("1 2").env("PATH", "nowhere:a:b:c");
        assert_eq!(ran(spec).await.unwrap().stdout.text(), "b 1 2\n");
        let in_c = ProcessSpec::new("it", &root.join("c")).env("PATH", "");
        assert_eq!(ran(in_c).await.unwrap().stdout.text(), "c\n");
        let refused = ran(ProcessSpec::new("it", &root).env("PATH", "a:nowhere")).await;
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("Permission denied"), "{message}");
        let missing = ran(ProcessSpec::new("it", &root).env("PATH", "nowhere")).await;
        assert!(matches!(missing, Err(ProcessError::NotFound(_))));
        let nowhere = ran(ProcessSpec::new("/bin/sh", &root.join("gone"))).await;
        assert!(matches!(nowhere, Err(ProcessError::NoDirectory { .. })));
    }

    #[tokio::test]
    async fn a_script_that_does_not_say_by_what_is_run_by_the_shell() {
        let place = tempfile::tempdir().unwrap();
        let root = AbsPath::new(place.path().to_str().unwrap()).unwrap();
        file(&root, "b/it", "echo \"$0 $1 $A\"", 0o700);
        let spec = ProcessSpec::new("it", &root).arg("1 2").env("A", "x").env("A", "y");
        let exit = ran(spec.env("PATH", "nowhere:b")).await.unwrap();
        assert_eq!(exit.stdout.text(), "b/it 1 2 y\n");
    }

    #[tokio::test]
    async fn a_program_begins_with_its_own_session_default_signals_and_three_files() {
        let root = AbsPath::new("/").unwrap();
        // Files that agentd's starter left open, without the mark that closes them.
        let left_open = nix::unistd::dup(std::io::stdin()).unwrap();
        // agentd's own handlers, and one signal that Rust programs ignore.
        let _handled = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::user_defined1()).unwrap();
        let text = async |program: &str, argument: &str| {
            let spec = ProcessSpec::new(program, &root).arg(argument).env("PATH", "/usr/bin:/bin");
            ran(spec).await.unwrap().stdout.text()
        };
        let stat = text("cat", "/proc/self/stat").await;
        let fields: Vec<&str> = stat.split(' ').collect();
        assert_eq!(
            (fields[0], fields[0]),
            (fields[4], fields[5]),
            "process, group and session are one: {stat}"
        );
        let files = text("ls", "/proc/self/fd").await;
        assert_eq!(files.lines().count(), 4, "three streams, and the folder that ls reads: {files}");
        drop(left_open);
        let mask = |status: &str, kind: &str| {
            let line = status.lines().find(|line| line.starts_with(kind)).unwrap();
            // The C library keeps number 32 to itself.
            u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap() & 0x7fff_ffff
        };
        let status = text("cat", "/proc/self/status").await;
        // What whoever started agentd wanted ignored stays so.
        let pipe = 1 << (libc::SIGPIPE - 1);
        let wanted = mask(&fs::read_to_string("/proc/self/status").unwrap(), "SigIgn") & !pipe;
        let masks = ["SigBlk", "SigIgn", "SigPnd"].map(|kind| mask(&status, kind));
        assert_eq!(masks, [0, wanted, 0], "{status}");
    }

    #[tokio::test]
    async fn many_begin_and_end_at_once_and_each_end_is_heard() {
        let root = AbsPath::new("/").unwrap();
        let one = |number: usize| {
            let script = format!("exit {}", number % 200);
            ran(ProcessSpec::new("sh", &root).args(["-c", &script]).env("PATH", "/usr/bin:/bin"))
        };
        let codes = futures::future::join_all((0..300).map(one)).await;
        for (number, exit) in codes.into_iter().enumerate() {
            assert_eq!(exit.unwrap().code, i32::try_from(number % 200).ok());
        }
    }
}
