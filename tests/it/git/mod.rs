//! Git as a guest: real repositories in temporary folders, each with its own home and nobody else's configuration.

mod sandbox_git;
mod elsewhere;
mod hostile;
mod maintenance;
mod pool;
mod prepare;
mod prune;
mod quick;
mod remote;
mod snapshot;

use std::ffi::OsString;
use std::path::Path;

use agentd::domain::name::{BranchName, CommitId};
use agentd::git::{
    Checkout, GitProgram, Population, PreparedWorktree, Remote, RemoteAuth, WorktreeError, WorktreePlan,
};
use agentd::sys::files;
use agentd::sys::paths::AbsPath;
use agentd::sys::process::{Exit, ProcessSpec, run};
use tokio_util::sync::CancellationToken;

use crate::ports::free_port;

/// A home, a main checkout with a `main` branch of two commits, and a place for remotes.
pub struct Ground {
    _dir: tempfile::TempDir,
    pub home: AbsPath,
    pub repo: AbsPath,
}

/// A `git daemon`; dropped, it ends, and what it started with it.
pub struct Served(std::process::Child);

impl Drop for Served {
    #[expect(clippy::disallowed_methods, reason = "a server beside the program under test")]
    fn drop(&mut self) {
        // `git` starts the daemon as a process of its own, and passes the signal on.
        let _sent = std::process::Command::new("kill").arg(self.0.id().to_string()).status();
        let _ended = self.0.wait();
    }
}

impl Ground {
    pub async fn new() -> Self {
        Self::named("repo").await
    }

    /// The checkout's folder can have any name.
    pub async fn named(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = AbsPath::new(dir.path()).unwrap().canonical().unwrap();
        let repo = home.join(name);
        let ground = Self { _dir: dir, home, repo };
        ground.write(
            "~/.gitconfig",
            "[user]\n\tname = Ada\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n",
        );
        files::create_dir(ground.repo.as_path()).unwrap();
        ground.git(&["init", "-q"]).await;
        ground.write("a.txt", "one\ntwo\nthree\n");
        ground.write("src/lib.rs", "pub fn f() {}\n");
        ground.write(".gitignore", "*.log\n/target/\n");
        ground.git(&["add", "-A"]).await;
        ground.git(&["commit", "-qm", "first"]).await;
        ground.write("a.txt", "one\ntwo\nthree\nfour\n");
        ground.git(&["commit", "-qam", "second"]).await;
        ground
    }

    /// The same, with the checkout in another place.
    pub fn at_place(self, repo: AbsPath) -> Self {
        Self { repo, ..self }
    }

    /// A path: from the home with `~/`, else from the checkout.
    pub fn at(&self, path: &str) -> AbsPath {
        match path.strip_prefix("~/") {
            Some(rest) => self.home.join(rest),
            None => self.repo.join(path),
        }
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        files::create_dir(path.parent().unwrap().as_path()).unwrap();
        files::write_public(path.as_path(), text.as_bytes()).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.at(path).as_path()).unwrap()
    }

    pub fn exists(&self, path: &str) -> bool {
        self.at(path).as_path().symlink_metadata().is_ok()
    }

    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let path = format!("{}/bin:{}", self.home, env!("PATH"));
        vec![("PATH".into(), path.into()), ("HOME".into(), self.home.as_path().into())]
    }

    /// The user's own git, in the checkout.
    pub async fn git(&self, args: &[&str]) -> String {
        self.git_in(&self.repo, args).await
    }

    /// The user's own git, anywhere. Must succeed.
    pub async fn git_in(&self, dir: &AbsPath, args: &[&str]) -> String {
        let exit = self.attempt(dir, args).await;
        assert!(exit.success(), "git {args:?}: {}{}", exit.stdout.text(), exit.stderr.text());
        exit.stdout.text().trim_end().to_owned()
    }

    /// The user's own git, where it may fail.
    pub async fn attempt(&self, dir: &AbsPath, args: &[&str]) -> Exit {
        let spec =
            ProcessSpec::new("git", dir).args(args).envs(self.environment()).env("GIT_CONFIG_NOSYSTEM", "1");
        run(spec, &CancellationToken::new()).await.unwrap()
    }

    /// Another program of the system, such as `mv`, beside the checkout. Must succeed.
    pub async fn beside(&self, program: &str, args: &[&str]) {
        let dir = self.repo.parent().unwrap();
        let spec = ProcessSpec::new(program, &dir).args(args).envs(self.environment());
        let exit = run(spec, &CancellationToken::new()).await.unwrap();
        assert!(exit.success(), "{program} {args:?}: {}", exit.stderr.text());
    }

    pub async fn head(&self, of: &str) -> CommitId {
        CommitId::parse(&self.git(&["rev-parse", of]).await).unwrap()
    }

    pub fn program(&self) -> GitProgram {
        GitProgram::new(self.environment(), CancellationToken::new())
    }

    pub async fn checkout(&self) -> Checkout {
        Checkout::open(self.program(), &self.repo, false).await.unwrap()
    }

    /// A bare remote `origin` that has `main`.
    pub async fn origin(&self) -> Remote {
        let bare = self.home.join("origin.git");
        self.git(&["clone", "-q", "--bare", ".", bare.to_string().as_str()]).await;
        self.git(&["remote", "add", "origin", bare.to_string().as_str()]).await;
        self.checkout().await.remote("origin", RemoteAuth::User).await.unwrap()
    }

    /// A commit on a branch of the bare remote, made in another clone.
    pub async fn push_from_elsewhere(&self, branch: &str, file: &str) -> CommitId {
        let clone = self.home.join(format!("elsewhere-{}", uuid::Uuid::new_v4().simple()));
        self.git_in(&self.home, &["clone", "-q", "origin.git", clone.to_string().as_str()]).await;
        let known = self.git_in(&clone, &["ls-remote", "origin", &format!("refs/heads/{branch}")]).await;
        match known.is_empty() {
            true => self.git_in(&clone, &["switch", "-qc", branch]).await,
            false => self.git_in(&clone, &["switch", "-q", branch]).await,
        };
        files::write_public(clone.join(file).as_path(), b"from elsewhere\n").unwrap();
        self.git_in(&clone, &["add", "-A"]).await;
        self.git_in(&clone, &["commit", "-qm", "from elsewhere"]).await;
        self.git_in(&clone, &["push", "-q", "origin", branch]).await;
        CommitId::parse(&self.git_in(&clone, &["rev-parse", "HEAD"]).await).unwrap()
    }

    /// Serves a repository of this ground as people reach one: over git's own protocol. Ends with what is given.
    #[expect(clippy::disallowed_methods, reason = "a server beside the program under test")]
    pub fn served(&self) -> (Served, String) {
        let port = free_port();
        let args = [
            "daemon".to_owned(),
            "--export-all".into(),
            format!("--base-path={}", self.home),
            "--listen=127.0.0.1".into(),
            format!("--port={port}"),
        ];
        let served = Served(std::process::Command::new("git").args(args).spawn().unwrap());
        let name = self.repo.as_path().file_name().unwrap().to_string_lossy().into_owned();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(std::time::Instant::now() < deadline, "git daemon does not answer");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        (served, format!("git://127.0.0.1:{port}/{name}"))
    }

    pub async fn plan(&self, issue: u32, remote: Option<&Remote>) -> WorktreePlan {
        WorktreePlan {
            root: self.repo.join(".worktrees"),
            name: format!("issue-{issue}"),
            branch: branch(&format!("feature/issue-{issue}")),
            base: self.head("main").await,
            remote: remote.cloned(),
            population: Population::default(),
            elsewhere: None,
        }
    }

    /// What an agent's git directory is told of where the work starts from.
    pub async fn base(&self, remote: Option<&Remote>) -> agentd::git::sandbox_git::Base {
        agentd::git::sandbox_git::Base {
            branch: branch("main"),
            commit: self.head("main").await,
            remote: remote.cloned(),
        }
    }

    pub async fn prepare(&self, issue: u32) -> Result<PreparedWorktree, WorktreeError> {
        self.checkout().await.prepare_worktree(&self.plan(issue, None).await).await
    }

    pub async fn prepare_with(&self, issue: u32, remote: &Remote) -> Result<PreparedWorktree, WorktreeError> {
        self.checkout().await.prepare_worktree(&self.plan(issue, Some(remote)).await).await
    }

    /// Index, HEAD, status and stash of the main checkout, and its branches.
    pub async fn main_state(&self) -> String {
        let index = std::fs::read(self.repo.join(".git/index").as_path()).unwrap();
        format!(
            "{}\n{}\n{}\n{}\n{:?}",
            self.git(&["status", "--porcelain=v2", "--branch"]).await,
            self.git(&["stash", "list"]).await,
            self.read(".git/HEAD"),
            self.exists(".git/FETCH_HEAD"),
            index
        )
    }
}

pub fn branch(name: &str) -> BranchName {
    BranchName::parse(name).unwrap()
}

pub fn exists(path: &AbsPath, file: &str) -> bool {
    Path::new(path.join(file).as_path()).exists()
}
