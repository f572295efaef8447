//! Runs the git program: no prompt, no hook, no inherited `GIT_*`, no system configuration (D56).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::error::{GitError, cause, last_lines};
use crate::sys::paths::AbsPath;
use crate::sys::process::{Ending, Exit, ProcessSpec, run};
use crate::sys::sandbox::which;
use crate::sys::tls::NOT_PROXIED;

/// Oldest version that has all that is used (`GIT_CONFIG_COUNT`, `rev-parse --path-format`).
pub const MINIMUM_VERSION: &str = "2.31.0";

const LOCAL_LIMIT: Duration = Duration::from_secs(600);
const NETWORK_LIMIT: Duration = Duration::from_secs(900);
/// A large repository takes long to fetch. A transfer over HTTP that stands still ends by itself (`http.lowSpeedTime`).
const FETCH_LIMIT: Duration = Duration::from_secs(6 * 3600);
/// The pauses before a remote is asked again after a network error. Repeating is safe: a push names the commit that it
/// expects on the remote.
const PAUSES: &[Duration] = &[Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];

/// What git needs from the user's environment: programs, configuration, agents, keys and proxies.
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "XDG_CONFIG_HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "SSH_AUTH_SOCK",
    "GNUPGHOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "SYSTEMROOT",
    "USERPROFILE",
    "APPDATA",
    "PATHEXT",
    "TEMP",
    "TMP",
];

/// Set for every call, whatever any configuration says.
const ALWAYS: &[(&str, &str)] = &[
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("core.editor", "false"),
    ("core.askPass", ""),
    ("protocol.allow", "never"),
    // The error of git when a command does not exist, such as Git LFS when it is not installed.
    ("alias.lfs", ""),
    // git is never run in the folder of a submodule, because that is another repository with its own configuration.
    ("diff.ignoreSubmodules", "all"),
    ("diff.submodule", "short"),
    ("status.submoduleSummary", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("push.recurseSubmodules", "no"),
    ("core.protectNTFS", "true"),
    ("core.protectHFS", "true"),
    ("gc.auto", "0"),
    ("gc.autoDetach", "false"),
    ("maintenance.auto", "false"),
    ("advice.detachedHead", "false"),
    ("advice.addEmbeddedRepo", "false"),
    ("core.quotePath", "false"),
    ("submodule.recurse", "false"),
    ("core.untrackedCache", "false"),
    // An index in two files is not read in process.
    ("core.splitIndex", "false"),
    ("core.safecrlf", "false"),
    ("commit.status", "false"),
    ("http.lowSpeedLimit", "1"),
    ("http.lowSpeedTime", "120"),
];

/// Who commits are by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `user.name`.
    pub name: String,
    /// `user.email`.
    pub email: String,
}

impl Identity {
    /// The name and address used where the repository has none (D13).
    pub fn agentd() -> Self {
        Self { name: "agentd".into(), email: "agentd@localhost".into() }
    }
}

/// The git program of this machine, with the part of the user's environment that it gets.
#[derive(Debug, Clone)]
pub struct GitProgram {
    program: PathBuf,
    env: Arc<Vec<(OsString, OsString)>>,
    cancel: CancellationToken,
}

impl GitProgram {
    /// A variable of the environment that git gets, unless it is empty.
    fn variable(&self, wanted: &str) -> Option<PathBuf> {
        let found = self.env.iter().find(|(name, value)| name == wanted && !value.is_empty());
        found.map(|(_, value)| PathBuf::from(value))
    }

    /// The user's home.
    pub(super) fn home(&self) -> Option<PathBuf> {
        self.variable("HOME")
    }

    /// The user's folder of git's files, beside those in the home itself.
    fn user_folder(&self) -> Option<PathBuf> {
        let folder = self.variable("XDG_CONFIG_HOME").or_else(|| Some(self.home()?.join(".config")))?;
        Some(folder.join("git"))
    }

    /// Where git looks for what its user ignores everywhere, unless its configuration names another file.
    pub(super) fn ignore_file(&self) -> Option<PathBuf> {
        Some(self.user_folder()?.join("ignore"))
    }

    /// The files of the user's own configuration, there or not; where they are links, what these lead to.
    pub(super) fn user_configuration(&self) -> impl Iterator<Item = PathBuf> {
        let beside = self.user_folder().map(|folder| folder.join("config"));
        let files = beside.into_iter().chain(self.home().map(|home| home.join(".gitconfig")));
        files.map(|file| file.canonicalize().unwrap_or(file))
    }

    /// Whether its calls find a program of that name.
    pub(super) fn finds(&self, program: &str) -> bool {
        self.variable("PATH").is_some_and(|path| which(program.as_ref(), path.as_os_str()).is_some())
    }

    /// `git` from the `PATH` in `environment`, which is the user's whole environment; only what git needs is passed.
    /// `cancel` ends what runs.
    pub fn new(
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        cancel: CancellationToken,
    ) -> Self {
        let passed = environment.into_iter().filter(|(name, _)| PASSED.iter().any(|passed| name == passed));
        let mut env: Vec<(OsString, OsString)> = passed.collect();
        let direct = |name: &str| env.iter().find(|(set, _)| set == name).map(|(_, value)| value.clone());
        let mut unproxied = direct("no_proxy").or_else(|| direct("NO_PROXY")).unwrap_or_default();
        // A star stands for everything only where it stands alone.
        if unproxied != "*" {
            unproxied.push(",");
            unproxied.push(NOT_PROXIED);
        }
        // The spelling in small letters is the one that git's HTTP reads first.
        env.retain(|(name, _)| name != "no_proxy");
        env.push(("no_proxy".into(), unproxied));
        Self { program: "git".into(), env: Arc::new(env), cancel }
    }

    /// Version text, checked against [`MINIMUM_VERSION`].
    pub async fn version(&self) -> Result<String, GitError> {
        let found = self.any_version().await?;
        if numbers(&found) < numbers(MINIMUM_VERSION) {
            return Err(GitError::TooOld { found, needed: MINIMUM_VERSION });
        }
        Ok(found)
    }

    /// Whether it is this version or a later one.
    pub(super) async fn is_at_least(&self, version: &str) -> Result<bool, GitError> {
        Ok(numbers(&self.any_version().await?) >= numbers(version))
    }

    async fn any_version(&self) -> Result<String, GitError> {
        let root =
            AbsPath::new(std::path::MAIN_SEPARATOR_STR).map_err(|error| GitError::Lost(error.to_string()))?;
        let text = self.call(&root, ["version"]).text().await?;
        Ok(text.trim().trim_start_matches("git version ").to_owned())
    }

    /// The output of a command that only reads, without the end of line. `None` if it fails or prints nothing.
    pub async fn asked(&self, cwd: &AbsPath, args: &[&str]) -> Option<String> {
        let text = self.call(cwd, args).text().await.ok()?.trim_end().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// A call in a directory; the first argument is the subcommand.
    pub(super) fn call<A: AsRef<OsStr>>(&self, cwd: &AbsPath, args: impl IntoIterator<Item = A>) -> Call {
        Call {
            git: self.clone(),
            cwd: cwd.clone(),
            args: args.into_iter().map(|arg| arg.as_ref().to_owned()).collect(),
            config: Vec::new(),
            env: Vec::new(),
            stdin: Vec::new(),
            remote: None,
            protocols: Protocols::default(),
            limit: LOCAL_LIMIT,
            lazy: false,
            hooks: false,
        }
    }
}

/// The protocols of git that a call may use. All others are off, whatever a configuration, `.gitmodules` or a
/// redirection says. `ext` and other helpers are always off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Protocols(BTreeSet<&'static str>);

impl Protocols {
    /// The protocols that check the other side or are encrypted, and `git`.
    pub(super) fn usual() -> Self {
        Self(BTreeSet::from(["https", "ssh", "git"]))
    }

    /// Adds the protocol of this address. `http` and local paths are on only for addresses that the operator named.
    pub(super) fn and_of(mut self, address: &str) -> Self {
        self.0.extend(Some(protocol_of(address)).filter(|protocol| *protocol != "ext"));
        self
    }

    /// Without local paths, so that the submodules of a repository cannot reach other files of this machine.
    pub(super) fn remote_only(mut self) -> Self {
        self.0.remove("file");
        self
    }

    fn words(&self) -> String {
        // An empty list would be no list.
        if self.0.is_empty() {
            return "none".to_owned();
        }
        self.0.iter().copied().collect::<Vec<_>>().join(":")
    }
}

/// The protocol of an address. `ext` means any helper; helpers are always off.
pub(super) fn protocol_of(address: &str) -> &'static str {
    // `helper::address` runs git-remote-helper.
    let helper = address.split_once("::").is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    });
    if helper {
        return "ext";
    }
    match address.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase()).as_deref() {
        Some("https") => "https",
        Some("http") => "http",
        Some("ssh" | "git+ssh" | "ssh+git") => "ssh",
        Some("git") => "git",
        Some("file") => "file",
        Some(_) => "ext",
        // `host:path`, with no slash before the colon, is SSH; everything else is a path here.
        None => match address.split_once(':') {
            Some((host, _)) if !host.is_empty() && !host.contains(['/', '\\']) => "ssh",
            _ => "file",
        },
    }
}

fn numbers(version: &str) -> Vec<u32> {
    version.split(['.', ' ', '-']).map_while(|part| part.parse().ok()).take(3).collect()
}

/// One run of the program.
#[derive(Debug)]
#[must_use = "it has not run yet"]
pub(super) struct Call {
    git: GitProgram,
    cwd: AbsPath,
    args: Vec<OsString>,
    config: Vec<(String, String)>,
    env: Vec<(&'static str, OsString)>,
    stdin: Vec<u8>,
    remote: Option<String>,
    protocols: Protocols,
    limit: Duration,
    lazy: bool,
    hooks: bool,
}

impl Call {
    /// Names the repository and the files, so that git does not look for them. The `.git` file of a worktree is not
    /// trusted.
    pub(super) fn at(mut self, git_dir: &AbsPath, work_tree: Option<&AbsPath>) -> Self {
        self.env.push(("GIT_DIR", git_dir.as_path().into()));
        if let Some(work_tree) = work_tree {
            self.env.push(("GIT_WORK_TREE", work_tree.as_path().into()));
        }
        self
    }

    /// Uses another index than the worktree's own.
    pub(super) fn index(mut self, file: &AbsPath) -> Self {
        self.env.push(("GIT_INDEX_FILE", file.as_path().into()));
        self
    }

    /// Sets configuration above every file.
    pub(super) fn config(mut self, entries: impl IntoIterator<Item = (String, String)>) -> Self {
        self.config.extend(entries);
        self
    }

    /// Sets a variable.
    pub(super) fn env(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name, value.as_ref().to_owned()));
        self
    }

    /// Says who made what is made.
    pub(super) fn identity(self, author: &Identity, committer: &Identity) -> Self {
        self.env("GIT_AUTHOR_NAME", &author.name)
            .env("GIT_AUTHOR_EMAIL", &author.email)
            .env("GIT_COMMITTER_NAME", &committer.name)
            .env("GIT_COMMITTER_EMAIL", &committer.email)
    }

    /// Feeds its input.
    pub(super) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Marks a call that talks to a remote: it has a longer limit, and failures are read as the remote's. `display` has
    /// no credentials.
    pub(super) fn network(mut self, display: &str, protocols: Protocols) -> Self {
        self.remote = Some(display.to_owned());
        self.protocols = protocols;
        self.limit = NETWORK_LIMIT;
        self.lazy = false;
        self
    }

    /// Marks a call that brings objects over HTTP: it may take hours.
    pub(super) fn may_take_long(mut self) -> Self {
        self.limit = FETCH_LIMIT;
        self
    }

    /// Lets git fetch objects that a partial clone lacks. Only over a network, since a remote that is a path could be
    /// any program.
    pub(super) fn fetches_missing(mut self, partial: bool) -> Self {
        if partial {
            self.lazy = true;
            self.protocols = Protocols::usual();
        }
        self
    }

    /// Lets the repository's own hooks run (`worktree.hooks`).
    pub(super) fn with_hooks(mut self, allowed: bool) -> Self {
        self.hooks = allowed;
        self
    }

    fn what(&self) -> String {
        let mut words = self.args.iter().map(|arg| arg.to_string_lossy().into_owned());
        words.find(|word| !word.starts_with('-')).unwrap_or_default()
    }

    /// Runs it. A call to a remote is repeated a few times when the network fails. An exit code other than 0 is not an
    /// error here.
    pub(super) async fn exit(self) -> Result<Exit, GitError> {
        let what = self.what();
        let (remote, cancel) = (self.remote.clone(), self.git.cancel.clone());
        let (spec, limit) = self.spec();
        let mut pauses = PAUSES.iter().filter(|_| remote.is_some());
        loop {
            let exit = run(spec.clone(), &cancel).await?;
            match exit.ending {
                Ending::Itself => {}
                Ending::TimedOut => return Err(GitError::TimedOut { what, seconds: limit.as_secs() }),
                Ending::Cancelled => return Err(GitError::Cancelled { what }),
            }
            if exit.success() || !matches!(failure(&what, &exit, remote.as_deref()), GitError::Network { .. })
            {
                return Ok(exit);
            }
            let Some(pause) = pauses.next() else { return Ok(exit) };
            tracing::debug!(what, remote, "the network failed; asking the remote again");
            // Cancelled meanwhile: the next try ends at once.
            let _done = tokio::time::timeout(*pause, cancel.cancelled()).await;
        }
    }

    fn spec(self) -> (ProcessSpec, Duration) {
        let limit = self.limit;
        let always = ALWAYS.iter().filter(|(key, _)| !(self.hooks && *key == "core.hooksPath"));
        let mut config: Vec<(String, String)> =
            always.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        config.extend(self.config);
        let mut spec = ProcessSpec::new(&self.git.program, &self.cwd)
            .envs(self.git.env.iter().cloned())
            .envs([
                ("GIT_TERMINAL_PROMPT", "0"),
                ("GIT_CONFIG_NOSYSTEM", "1"),
                ("GIT_ATTR_NOSYSTEM", "1"),
                ("GIT_NO_LAZY_FETCH", if self.lazy { "0" } else { "1" }),
                ("GIT_OPTIONAL_LOCKS", "0"),
                ("GIT_EDITOR", "false"),
                ("LC_ALL", "C"),
            ])
            .env("GIT_ALLOW_PROTOCOL", self.protocols.words())
            .envs(self.env)
            .env("GIT_CONFIG_COUNT", config.len().to_string());
        for (at, (key, value)) in config.iter().enumerate() {
            spec = spec.env(format!("GIT_CONFIG_KEY_{at}"), key).env(format!("GIT_CONFIG_VALUE_{at}"), value);
        }
        (spec.args(self.args).stdin(self.stdin).timeout(limit).output_cap(256 << 20), limit)
    }

    /// Runs it; anything but exit code 0 is an error with its cause.
    pub(super) async fn bytes(self) -> Result<Vec<u8>, GitError> {
        Ok(self.whole().await?.stdout.head)
    }

    /// The same with all that it wrote.
    async fn whole(self) -> Result<Exit, GitError> {
        let (what, remote) = (self.what(), self.remote.clone());
        let exit = self.exit().await?;
        if exit.success() && exit.stdout.truncated {
            let detail = format!("it wrote {} bytes, more than agentd reads", exit.stdout.total);
            return Err(GitError::Failed { what, code: "exit 0".into(), detail });
        }
        if exit.success() {
            return Ok(exit);
        }
        Err(failure(&what, &exit, remote.as_deref()))
    }

    /// As [`Call::text`], with its warnings.
    pub(super) async fn text_and_warnings(self) -> Result<(String, String), GitError> {
        let exit = self.whole().await?;
        Ok((String::from_utf8_lossy(&exit.stdout.head).into_owned(), exit.stderr.text()))
    }

    /// As [`Call::bytes`], as text.
    pub(super) async fn text(self) -> Result<String, GitError> {
        Ok(String::from_utf8_lossy(&self.bytes().await?).into_owned())
    }

    /// As [`Call::bytes`], without a result.
    pub(super) async fn done(self) -> Result<(), GitError> {
        self.bytes().await.map(|_| ())
    }
}

/// The error of a call that ended with an exit code other than 0.
pub(super) fn failure(what: &str, exit: &Exit, remote: Option<&str>) -> GitError {
    let code = match (exit.code, exit.signal) {
        (Some(code), _) => format!("exit {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    };
    let mut said = exit.stderr.text();
    if said.trim().is_empty() {
        said = last_lines(&exit.stdout.text());
    }
    cause(what, code, &said, remote)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_an_address_is_told_by_its_text() {
        for (address, protocol) in [
            ("https://h/o/n.git", "https"),
            ("HTTPS://h/o/n.git", "https"),
            ("http://h/o/n.git", "http"),
            ("ssh://git@h/o/n.git", "ssh"),
            ("git@h:o/n.git", "ssh"),
            ("git://h/o/n.git", "git"),
            ("file:///srv/n.git", "file"),
            ("/srv/n.git", "file"),
            ("../n.git", "file"),
            ("./a:b", "file"),
            ("n.git", "file"),
            ("ext::sh -c x", "ext"),
            ("http::https://h/", "ext"),
            ("fd::17", "ext"),
            ("foo://h/", "ext"),
        ] {
            assert_eq!(protocol_of(address), protocol, "{address}");
        }
        assert_eq!(Protocols::default().words(), "none");
        assert_eq!(Protocols::usual().and_of("/srv/n.git").words(), "file:git:https:ssh");
        assert_eq!(Protocols::usual().and_of("/srv/n.git").remote_only(), Protocols::usual());
        assert_eq!(Protocols::usual().and_of("ext::sh -c x"), Protocols::usual());
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(numbers("2.9.5") < numbers(MINIMUM_VERSION));
        assert!(numbers("2.47.3") > numbers(MINIMUM_VERSION));
        assert!(numbers("2.39.2 (Apple Git-143)") > numbers(MINIMUM_VERSION));
        assert_eq!(numbers("2.45.1.windows.1"), [2, 45, 1]);
    }
}
