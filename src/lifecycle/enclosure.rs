//! Where the programs of a run stand: a private home and folder, a git directory of their own, and the cage around them.

use std::ffi::OsString;
use std::path::Path;

use super::equipment;
use super::run::Run;
use super::site::Site;
use crate::config::Env;
use crate::domain::agent_program::AgentProgram;
use crate::domain::flow::{NetworkMode, Sandbox};
use crate::domain::stop::{Stop, StopDetail};
use crate::git::GitError;
use crate::git::caged::{CagedGit, Taken};
use crate::git::worktree::Worktree;
use crate::sys::cage::{Cage, Caged, Walls};
use crate::sys::files::{self, FileError};
use crate::sys::paths::AbsPath;

/// Most bytes of the user's home that are copied for a program.
const LARGEST_COPY: u64 = 64 << 20;

/// The place of a run's programs; made with the worktree, removed with the run.
#[derive(Debug)]
pub struct Enclosure {
    folder: AbsPath,
    caged: Option<Caged>,
    git: Option<CagedGit>,
    worktree: Worktree,
}

/// Looks for a cage that works here. The error is a sentence.
pub async fn cage(env: &Env) -> Result<Cage, String> {
    Cage::find(OsString::from(env.get("PATH").unwrap_or_default()).as_os_str()).await
}

impl Enclosure {
    /// Makes the place. Without a cage the programs of agentd's own session run as they are, and a note says so.
    pub async fn open(run: &Run<'_>, site: &Site, worktree: &Worktree) -> Result<Self, Stop> {
        let definition = &run.plan.loaded.definition;
        let failed =
            |what: String| Stop::new(StopDetail::Internal, format!("The cage cannot be made: {what}."));
        let folder =
            AbsPath::new(run.journal().dir().path.join("cage")).map_err(|error| failed(error.to_string()))?;
        for name in ["home", "tmp", "agent-home"] {
            files::create_private_dir(folder.join(name).as_path())
                .map_err(|error| failed(error.to_string()))?;
        }
        let mut made = Self { folder, caged: None, git: None, worktree: worktree.clone() };
        let wanted = definition.boundaries.sandbox.enabled;
        match cage(&site.env).await {
            Ok(cage) if wanted || definition.agentd.program.as_ref().is_some_and(|program| program.caged) => {
                let identity = site.identity().await.map_err(|error| failed(error.to_string()))?;
                let own = worktree.caged_git(&made.folder, &identity).await;
                let (own, objects) = own.map_err(|error| failed(error.to_string()))?;
                made.caged = Some(Caged {
                    walls: made.walls(site, worktree, &own, objects, &definition.boundaries.sandbox),
                    environment: made.environment(&site.env, "home"),
                    cage,
                });
                made.git = Some(own);
            }
            Ok(_) => {}
            Err(why) if wanted => run.warn(
                "no_cage",
                format!(
                    "Commands run without a cage, with your own rights: {why}. `agentd doctor` says more."
                ),
            ),
            Err(_) => {}
        }
        Ok(made)
    }

    /// The cage of agentd's own commands: built-in tools, checks, verify commands.
    pub fn caged(&self, sandbox: &Sandbox) -> Option<&Caged> {
        self.caged.as_ref().filter(|_| sandbox.enabled)
    }

    /// The cage of an agent program: a home of its own, and what the definition lets it reach.
    pub fn caged_agent(&self, program: &AgentProgram, site: &Site) -> Option<Caged> {
        let mut caged = self.caged.clone().filter(|_| program.caged)?;
        caged.walls.network = program.network == crate::domain::agent_program::AgentNetwork::All;
        caged.walls.writable.push(self.agent_home());
        caged.walls.readable.extend(program.readable.iter().map(|path| place(site, path)));
        caged.environment = self.environment(&site.env, "agent-home");
        Some(caged)
    }

    /// Home of an agent program.
    pub fn agent_home(&self) -> AbsPath {
        self.folder.join("agent-home")
    }

    /// Folder of the sockets over which agentd's own tools are served to an agent program.
    pub fn door(&self) -> AbsPath {
        self.folder.join("door")
    }

    /// Copies what the definition names of the user's home into the program's.
    pub fn furnish(&self, program: &AgentProgram, env: &Env) -> Result<(), FileError> {
        let Some(home) = env.home() else { return Ok(()) };
        let mut left = LARGEST_COPY;
        for named in &program.home {
            let named = named.trim_start_matches("~/").trim_start_matches('/');
            let (from, to) = (home.join(named), self.agent_home().join(named));
            if to.as_path().starts_with(self.agent_home().as_path()) {
                copy(&from, to.as_path(), &mut left)?;
            }
        }
        Ok(())
    }

    /// Takes the commits that programs made in their own git directory (D13, D73).
    pub async fn take_commits(&self) -> Result<Taken, GitError> {
        match &self.git {
            Some(own) => self.worktree.take_commits(own).await,
            None => Ok(Taken::None),
        }
    }

    /// Removes what only programs needed.
    pub fn close(&self) {
        if let Err(error) = files::remove_dir(self.folder.as_path()) {
            tracing::warn!(%error, "the private folder of a run's programs stays");
        }
    }

    fn walls(
        &self,
        site: &Site,
        worktree: &Worktree,
        own: &CagedGit,
        objects: Vec<AbsPath>,
        sandbox: &Sandbox,
    ) -> Walls {
        let mut writable = vec![worktree.path().clone(), self.folder.join("home"), own.dir().clone()];
        let further = sandbox.allowed_paths.iter().map(|path| place(site, path));
        writable.extend(further.filter(|path| path.as_path().exists()));
        let mut shown_as = Vec::new();
        if let Ok(tmp) = AbsPath::new("/tmp") {
            shown_as.push((self.folder.join("tmp"), tmp));
        }
        shown_as.push((own.link().clone(), worktree.path().join(".git")));
        Walls {
            writable,
            readable: objects,
            shown_as,
            shown_read_only: Vec::new(),
            network: sandbox.network != NetworkMode::None,
        }
    }

    /// What differs inside. Tools of the user's home keep their folders, which are there read-only.
    fn environment(&self, env: &Env, home: &str) -> Vec<(OsString, OsString)> {
        let mut all: Vec<(OsString, OsString)> =
            vec![("HOME".into(), self.folder.join(home).as_path().into()), ("TMPDIR".into(), "/tmp".into())];
        all.extend(equipment::tool_homes(env));
        all
    }
}

/// A path of the definition: `~/` is the user's home, relative ones start at the main checkout (D85).
fn place(site: &Site, path: &str) -> AbsPath {
    match (path.strip_prefix("~/"), site.env.home().and_then(|home| AbsPath::new(home).ok())) {
        (Some(below), Some(home)) => home.join(below),
        _ => site.checkout.root().join(path),
    }
}

/// Copies a file, or a folder with what is in it; links and what is too much are left out.
fn copy(from: &Path, to: &Path, left: &mut u64) -> Result<(), FileError> {
    let Ok(meta) = from.symlink_metadata() else { return Ok(()) };
    if meta.is_dir() {
        for entry in std::fs::read_dir(from).into_iter().flatten().flatten() {
            copy(&entry.path(), &to.join(entry.file_name()), left)?;
        }
        return Ok(());
    }
    if !meta.is_file() || meta.len() > *left {
        return Ok(());
    }
    *left -= meta.len();
    if let Some(parent) = to.parent() {
        files::create_private_dir(parent)?;
    }
    files::copy_with_time(from, to)
}
