//! What can go wrong with git, parsed from what the program says, each with what to do next.

use crate::domain::shell_words;
use crate::sys::files::FileError;
use crate::sys::process::ProcessError;

/// A git operation that failed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The program could not be started.
    #[error("git: {0}")]
    Process(#[from] ProcessError),
    /// Too old.
    #[error("git {found} is too old; agentd needs {needed} or newer")]
    TooOld {
        /// Version on this machine.
        found: String,
        /// Version needed.
        needed: &'static str,
    },
    /// No repository there.
    #[error(
        "{path} is not in a git repository; run agentd in a checkout, or set `path` of the repository's entry"
    )]
    NotARepository {
        /// Where it was looked for.
        path: String,
    },
    /// A repository without files.
    #[error("{path} is a bare repository; agentd works from a checkout: clone it and run there")]
    Bare {
        /// The repository.
        path: String,
    },
    /// A worktree instead of the main checkout.
    #[error("{path} is a linked worktree; run agentd in the main checkout, {main}")]
    LinkedWorktree {
        /// Where agentd was run.
        path: String,
        /// Where it should be.
        main: String,
    },
    /// A worktree of a repository that has no main checkout.
    #[error(
        "{path} is a worktree of the bare repository {main}; agentd works from the main checkout of a clone"
    )]
    WorktreeOfBare {
        /// Where agentd was run.
        path: String,
        /// The repository.
        main: String,
    },
    /// Git refuses a directory of another user.
    #[error(
        "{path} belongs to another user, and git refuses it; if you trust it: `{}`",
        shell_words::line(&["git", "config", "--global", "--add", "safe.directory", path])
    )]
    ForeignOwner {
        /// The directory.
        path: String,
    },
    /// A repository format that agentd cannot read.
    #[error(
        "the repository in {path} uses a format that agentd cannot read yet ({detail}); a clone with the default formats works"
    )]
    Format {
        /// The repository.
        path: String,
        /// Which.
        detail: String,
    },
    /// No remote of that name.
    #[error(
        "there is no remote \"{name}\"; add it (`{}`) or set `remote` of the repository's entry",
        shell_words::line(&["git", "remote", "add", name, "URL"])
    )]
    NoRemote {
        /// Name asked for.
        name: String,
    },
    /// The remote wants other credentials.
    #[error("{remote} refused the credentials: {detail}; check the token (github.token) or the SSH key")]
    Auth {
        /// URL without credentials.
        remote: String,
        /// What git said.
        detail: String,
    },
    /// The remote has no such repository, or hides it.
    #[error("{remote} was not found; check the URL, and that the credentials may see it")]
    RemoteNotFound {
        /// URL without credentials.
        remote: String,
    },
    /// The repository has a file or a link where a folder is that holds what git does not have.
    #[error(
        "the commit {commit} has a file or a link at {path}, and to make room for it git would delete {lost}, which it does not have; \
         take it out of the repository"
    )]
    InTheWay {
        /// The commit, short.
        commit: String,
        /// Where.
        path: String,
        /// One of the files.
        lost: String,
    },
    /// The remote's address leads to another one.
    #[error(
        "{remote} leads elsewhere, and agentd sends its token nowhere else; set the remote to the repository's present address \
         (`git remote set-url`), and keep its old name as `name` in agentd.toml, under which all that waits is kept"
    )]
    RemoteMoved {
        /// URL without credentials.
        remote: String,
    },
    /// The remote could not be reached.
    #[error("{remote} could not be reached: {detail}")]
    Network {
        /// URL without credentials.
        remote: String,
        /// What git said.
        detail: String,
    },
    /// A submodule's remote could not be reached.
    #[error(
        "a submodule could not be filled, its remote was not reached: {detail}; where runs can do without submodules, write \
         submodules = \"never\" under [worktree]"
    )]
    SubmoduleAway {
        /// What git said.
        detail: String,
    },
    /// The repository's own configuration would redirect what agentd sends.
    #[error(
        "the repository's own configuration sets {key}, which decides where code and credentials go; \
             move it to your global configuration (git config --global …) or remove it"
    )]
    Redirected {
        /// The key.
        key: String,
    },
    /// A submodule from a place that none may come from.
    #[error(
        "{what}; submodules come over https, ssh or git alone: correct .gitmodules, or leave them empty \
             (worktree.submodules = \"never\")"
    )]
    SubmoduleAddress {
        /// Which, and why.
        what: String,
    },
    /// Git would take a way that is not open.
    #[error(
        "git would go by a way that is not open here ({detail}); https, ssh and git are, http and local paths only where \
             the repository's own remote is one, and for no submodule"
    )]
    Protocol {
        /// What git said.
        detail: String,
    },
    /// A file that is too large to be looked at.
    #[error("{path} has {bytes} bytes, more than the {limit} that agentd reads of one file")]
    TooLarge {
        /// Which.
        path: String,
        /// Its length.
        bytes: u64,
        /// The most.
        limit: u64,
    },
    /// Trees with more paths between them than anybody looks at.
    #[error("more paths differ than agentd compares")]
    TooManyPaths,
    /// Two entries of a tree with one name.
    #[error("a tree has two entries with the name \"{name}\"")]
    TwoEntries {
        /// The name.
        name: String,
    },
    /// An entry of a tree that git itself does not make.
    #[error("the entry \"{name}\" of a tree has the mode {mode:o}, which git does not know")]
    OddEntry {
        /// Its name.
        name: String,
        /// Its mode.
        mode: i32,
    },
    /// Longer than its limit.
    #[error("git {what} did not end within {seconds} s")]
    TimedOut {
        /// Subcommand.
        what: String,
        /// The limit.
        seconds: u64,
    },
    /// The run was told to stop.
    #[error("git {what} was cancelled")]
    Cancelled {
        /// Subcommand.
        what: String,
    },
    /// No such ref, commit or path.
    #[error("{what} does not exist in the repository")]
    Missing {
        /// What was asked for.
        what: String,
    },
    /// A merge was not brought to its end.
    #[error("git's conflict markers are still in {}", files.join(", "))]
    Unresolved {
        /// Relative to the worktree.
        files: Vec<String>,
    },
    /// HEAD of a worktree left the branch of the issue for a commit that does not contain it.
    #[error(
        "the worktree {path} stands on {on} instead of {branch}; bring the work back: `{}`",
        shell_words::line(&["git", "-C", path, "switch", branch])
    )]
    HeadMoved {
        /// Relative to the main checkout.
        path: String,
        /// Where it is.
        on: String,
        /// Where it should be.
        branch: String,
    },
    /// A commit could not be signed.
    #[error(
        "the commit could not be signed: {detail}; make the key available to agentd or set commit.gpgSign=false"
    )]
    Signing {
        /// What git said.
        detail: String,
    },
    /// Another git process holds a lock.
    #[error(
        "another git process works in the repository: {detail}; if none does, remove the lock file that git names"
    )]
    Locked {
        /// What git said.
        detail: String,
    },
    /// Anything else that git says.
    #[error("git {what} failed ({code}): {detail}")]
    Failed {
        /// Subcommand.
        what: String,
        /// Exit code, or signal.
        code: String,
        /// What git said, cut to its last lines.
        detail: String,
    },
    /// libgit2.
    #[error("git: {0}")]
    Library(#[from] git2::Error),
    /// A file beside git.
    #[error(transparent)]
    File(#[from] FileError),
    /// A task of ours ended without an answer.
    #[error("git: a task was lost ({0})")]
    Lost(String),
}

impl GitError {
    /// Whether somebody asked it to end.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled { .. })
    }

    /// Whether this user was refused something of the worktree.
    pub(super) fn is_refused_a_file(&self) -> bool {
        matches!(self, Self::Failed { detail, .. } if detail.contains("Permission denied"))
    }

    /// What to do where agentd was started in a place in which it cannot work.
    pub fn remedy(&self) -> Option<String> {
        if let Self::NotARepository { .. } = self {
            return Some("go to the repository's main checkout, or `git init` one".to_owned());
        }
        if let Self::LinkedWorktree { main, .. } = self {
            return Some(format!("go to {main}"));
        }
        let is_bare = matches!(self, Self::Bare { .. } | Self::WorktreeOfBare { .. });
        is_bare.then(|| "git clone URL FOLDER, and run agentd in FOLDER".to_owned())
    }
}

/// Reads the cause out of what the git program wrote.
pub(super) fn cause(what: &str, code: String, stderr: &str, remote: Option<&str>) -> GitError {
    let detail = last_lines(stderr);
    let text = stderr.to_ascii_lowercase();
    let says = |needles: &[&str]| needles.iter().any(|needle| text.contains(needle));
    if text.contains("transport '") && text.contains("' not allowed") {
        return GitError::Protocol { detail };
    }
    if let Some(remote) = remote {
        let remote = remote.to_owned();
        if says(&[
            "authentication failed",
            "could not read username",
            "could not read password",
            "terminal prompts disabled",
            "permission denied (publickey",
            "host key verification failed",
            "invalid username or password",
            "invalid username or token",
            "returned error: 401",
            "returned error: 403",
        ]) {
            return GitError::Auth { remote, detail };
        }
        if says(&["returned error: 30"]) {
            return GitError::RemoteMoved { remote };
        }
        if says(&[
            "repository not found",
            "does not appear to be a git repository",
            "returned error: 404",
            "' not found",
        ]) {
            return GitError::RemoteNotFound { remote };
        }
        if says(&[
            "could not resolve host",
            "failed to connect",
            "connection refused",
            "connection timed out",
            "connection reset",
            "couldn't connect",
            "network is unreachable",
            "operation timed out",
            "early eof",
            "unexpected disconnect",
            "the remote end hung up",
            "transfer closed",
            "ssl",
            "returned error: 5",
            "returned error: 429",
            "empty reply from server",
            "could not read from remote repository",
        ]) {
            return GitError::Network { remote, detail };
        }
    }
    if says(&[
        "gpg failed to sign",
        "failed to write commit object",
        "error: signing",
        "couldn't load public key",
        "gpg.ssh",
    ]) {
        return GitError::Signing { detail };
    }
    if says(&[
        ".lock': file exists",
        "another git process seems to be running",
        "unable to write upstream branch",
    ]) {
        return GitError::Locked { detail };
    }
    GitError::Failed { what: what.to_owned(), code, detail }
}

/// The end of what a program wrote, short enough for a message.
#[doc(hidden)]
pub fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let kept = lines[lines.len().saturating_sub(6)..].join("; ");
    let start = kept.char_indices().rev().nth(799).map_or(0, |(at, _)| at);
    kept[start..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_read_from_what_git_says() {
        let of = |stderr: &str| cause("push", "128".into(), stderr, Some("https://h/o/n"));
        let auth = "fatal: could not read Username for 'https://h': terminal prompts disabled";
        assert!(matches!(of(auth), GitError::Auth { .. }));
        let gone = "remote: Repository not found.\nfatal: repository 'https://h/o/n/' not found";
        assert!(matches!(of(gone), GitError::RemoteNotFound { .. }));
        let moved = "fatal: unable to access 'https://h/': The requested URL returned error: 301";
        assert!(matches!(of(moved), GitError::RemoteMoved { .. }));
        let down =
            "fatal: unable to access 'https://h/': Failed to connect to h port 443: Connection refused";
        assert!(matches!(of(down), GitError::Network { .. }));
        assert!(matches!(of("fatal: odd"), GitError::Failed { .. }));
    }
}
