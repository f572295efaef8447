//! The sandbox of a run's programs, with a private home and folder and a separate git directory.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::cargo_home;
use super::egress_proxy::{self, EgressProxy, NetworkReach};
use super::toolchains::{self, Readable};
use crate::config::Env;
use crate::config::sandbox_file::{SandboxMode, SandboxTable};
use crate::domain::agent_program::AgentProgram;
use crate::domain::egress::Egress;
use crate::domain::event::Event;
use crate::domain::flow::{Definition, Sandbox};
use crate::domain::name::{BranchName, CommitId};
use crate::domain::origin::Origin;
use crate::domain::redaction::Redactor;
use crate::domain::sandbox::SandboxFacts;
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::journal::JournalError;
use crate::git::GitError;
use crate::git::program::Identity;
use crate::git::remote::{Remote, RemoteAuth};
use crate::git::sandbox_git::{Base, SandboxGit, Taken};
use crate::git::sandbox_left::LeftRef;
use crate::git::worktree::Worktree;
use crate::proxy::ProxyError;
use crate::proxy::meter::Meter;
use crate::record::run_journal::RunJournal;
use crate::repository::context::RepositoryContext;
use crate::sys::files::{self, FileError};
use crate::sys::paths::AbsPath;
use crate::sys::sandbox::order_format::Limits;
use crate::sys::sandbox::{Choice, Mechanism, Network, ProcessSandbox, Walls};

/// Most bytes of the user's home that are copied for a program.
const LARGEST_COPY: u64 = 64 << 20;
/// Cargo's files, which programs look for in each parent folder. They stop when one is refused.
const LOOKED_FOR_ABOVE: [&str; 3] = ["Cargo.toml", ".cargo/config.toml", ".cargo/config"];
/// What a definition of a managed clone asks for, the operator has to allow.
const OPERATORS_TOO: &str =
    ", and to sandbox.hosts in the operator's own agentd.toml, because agentd manages this clone";
/// Most hosts that people are told of in a run.
const MOST_TOLD: usize = 20;

/// The sandbox of a run's programs; made once there is a worktree, removed with the run.
#[derive(Debug)]
pub struct RunSandbox {
    folder: AbsPath,
    confined: Option<ProcessSandbox>,
    /// The ways out of agentd's own commands, and of each agent program.
    commands: EgressProxy,
    agents: Vec<EgressProxy>,
    git: Option<SandboxGit>,
    /// The branches that are shown there.
    shown: Vec<BranchName>,
    /// What the worktree's `.git` says.
    link: Option<Vec<u8>>,
    /// Cargo's home of the user, where the run has one of its own.
    cargo: Option<AbsPath>,
    /// Why there is no sandbox.
    without: Option<String>,
    worktree: Worktree,
    /// Hosts that people were told of.
    told: Mutex<BTreeSet<(String, u16)>>,
    /// The policy refuses what an agent program did.
    refused: AtomicBool,
    /// What programs left in their own git directory could not be kept elsewhere.
    git_stays: AtomicBool,
}

/// What a run's sandbox is made for.
#[derive(Clone, Copy)]
pub struct Needs<'a> {
    /// The agent's definition.
    pub definition: &'a Definition,
    /// The run's agent programs.
    pub programs: &'a [AgentProgram],
    /// Where its work starts from and returns to.
    pub origin: &'a Origin,
    /// The worktree that it stands around.
    pub worktree: &'a Worktree,
}

/// Looks for the kind of sandbox that is asked for. The error is a sentence.
pub async fn find(env: &Env, table: &SandboxTable) -> Result<Mechanism, String> {
    let choice = match table.mode {
        SandboxMode::Auto => Choice::Any,
        SandboxMode::Bubblewrap => Choice::Bubblewrap,
        SandboxMode::Landlock => Choice::Landlock,
        SandboxMode::Off => return Err("sandbox.mode is \"off\"".to_owned()),
    };
    let path = OsString::from(env.get("PATH").unwrap_or_default());
    Ok(Mechanism::find(&path, choice).await?.limited(Limits {
        processes: table.max_processes,
        memory: table.max_memory_mib << 20,
        file_size: table.max_file_mib << 20,
        open_files: table.max_open_files,
        temporary: table.max_tmp_mib << 20,
    }))
}

/// The origin branch of a run's work, as git shows it to its programs.
pub fn base(origin: &Origin, context: &RepositoryContext) -> Base {
    let remote = context.remote.as_ref();
    Base {
        branch: origin.branch.clone(),
        commit: origin.commit.clone(),
        remote: remote.map(|url| Remote::new(&context.repository.remote, url, RemoteAuth::User)),
    }
}

impl RunSandbox {
    /// Makes the folders and the sandbox. Without a sandbox the programs of agentd's own session run as they are, and a
    /// note says so.
    pub async fn open(
        needs: Needs<'_>,
        journal: &RunJournal,
        context: &RepositoryContext,
    ) -> Result<Self, Stop> {
        let Needs { definition, programs, origin, worktree } = needs;
        // Making it is writing files: a full disk is no defect.
        let failed = |what: String| {
            Stop::new(StopDetail::OutputWriteFailed, format!("The sandbox cannot be made: {what}."))
        };
        let folder = AbsPath::new(journal.dir().sandbox()).map_err(|error| failed(error.to_string()))?;
        let homes = (0..programs.len()).map(|place| numbered("agent-home", place));
        for name in ["home", "tmp", "readable"].map(str::to_owned).into_iter().chain(homes) {
            let place = folder.join(&name);
            let made = files::create_private_dir(place.as_path());
            made.and_then(|()| toolchains::copy_versions(&context.env, place.as_path()))
                .map_err(|error| failed(error.to_string()))?;
        }
        let mut made = Self::around(folder, worktree);
        let wanted = definition.boundaries.sandbox.enabled;
        match find(&context.env, &context.config.sandbox).await {
            Ok(mechanism) if wanted || programs.iter().any(|program| program.sandboxed) => {
                made.open_proxies(needs, (journal, context), &mechanism)?;
                made.cargo_home(context).await.map_err(|error| failed(error.to_string()))?;
                let identity = context.identity().await.map_err(|error| failed(error.to_string()))?;
                let objects = made.show_git(&mechanism, &identity, origin, context).await.map_err(&failed)?;
                made.confine(context, mechanism, objects, &definition.boundaries.sandbox).await?;
            }
            Ok(_) => made.without = Some("the definition does not want one".to_owned()),
            Err(why) => {
                if wanted && context.config.sandbox.mode != SandboxMode::Off {
                    let text = format!(
                        "Commands run without a sandbox, with your own rights: {why}. `agentd doctor` says more."
                    );
                    journal.warn("no_sandbox", text);
                }
                made.without = Some(why);
            }
        }
        Ok(made)
    }

    /// A sandbox for trying the operator's commands without a run: the one that a run would get for `worktree`, without
    /// a separate git directory. The error is a sentence.
    pub async fn for_trial(
        context: &RepositoryContext,
        worktree: &Worktree,
        folder: AbsPath,
        sandbox: &Sandbox,
    ) -> Result<Self, String> {
        for name in ["home", "tmp", "readable"] {
            files::create_private_dir(folder.join(name).as_path()).map_err(|error| error.to_string())?;
        }
        let mut made = Self::unconfined(folder, worktree);
        if !sandbox.enabled {
            made.without = Some("the definition does not want one".to_owned());
            return Ok(made);
        }
        match find(&context.env, &context.config.sandbox).await {
            Ok(mechanism) => {
                let reached = !matches!(sandbox.network, Egress::Hosts(_)) || mechanism.can_proxy().is_ok();
                if reached {
                    let list = "boundaries.sandbox.network.trustedDomains".to_owned();
                    let servers = context.config.cluster.servers();
                    let reach = NetworkReach::of(&sandbox.network, &servers);
                    let way = EgressProxy::open(&made.folder, "out", reach, list);
                    made.commands = way.map_err(|error| error.to_string())?;
                }
                made.cargo_home(context).await.map_err(|error| error.to_string())?;
                let objects = vec![context.checkout.common_dir().join("objects")];
                made.confine(context, mechanism, objects, sandbox).await.map_err(|stop| stop.message)?;
            }
            Err(why) if matches!(context.config.sandbox.mode, SandboxMode::Auto | SandboxMode::Off) => {
                made.without = Some(why);
            }
            Err(why) => return Err(why),
        }
        Ok(made)
    }

    /// Around a worktree, with no sandbox yet.
    pub(super) fn around(folder: AbsPath, worktree: &Worktree) -> Self {
        let link = std::fs::read(worktree.path().join(".git").as_path()).ok();
        Self { link, ..Self::unconfined(folder, worktree) }
    }

    /// Makes git work inside, in a directory of its own, where that can be shown. Gives what has to be readable.
    pub(super) async fn show_git(
        &mut self,
        mechanism: &Mechanism,
        identity: &Identity,
        origin: &Origin,
        context: &RepositoryContext,
    ) -> Result<Vec<AbsPath>, String> {
        let mut objects = Vec::new();
        if mechanism.can_show_otherwise() {
            let own = self.worktree.sandbox_git(&self.folder, identity, &base(origin, context)).await;
            let (git, readable) = own.map_err(|error| error.to_string())?;
            self.git = Some(git);
            self.shown = vec![self.worktree.branch().clone(), origin.branch.clone()];
            objects = readable;
        }
        if mechanism.refuses() {
            let above = context.checkout.known_files(&LOOKED_FOR_ABOVE).await;
            objects.extend(above.map_err(|error| error.to_string())?);
        }
        Ok(objects)
    }

    /// The sandbox itself, if there is one.
    pub(super) fn confined(&self) -> Option<ProcessSandbox> {
        self.confined.clone()
    }

    fn unconfined(folder: AbsPath, worktree: &Worktree) -> Self {
        Self {
            folder,
            confined: None,
            commands: EgressProxy::closed(),
            agents: Vec::new(),
            git: None,
            shown: Vec::new(),
            link: None,
            cargo: None,
            without: None,
            worktree: worktree.clone(),
            told: Mutex::default(),
            refused: AtomicBool::new(false),
            git_stays: AtomicBool::new(false),
        }
    }

    /// Makes the sandbox; `readable` = what programs may read besides their tools.
    pub(super) async fn confine(
        &mut self,
        context: &RepositoryContext,
        mechanism: Mechanism,
        readable: Vec<AbsPath>,
        sandbox: &Sandbox,
    ) -> Result<(), Stop> {
        let (env, further) = (context.env.clone(), context.config.sandbox.readable.clone());
        let tools = tokio::task::spawn_blocking(move || toolchains::readable(&env, &further)).await;
        let tools = tools.map_err(|error| Stop::new(StopDetail::Internal, error.to_string()))??;
        let mut environment = self.environment(&context.env, "home");
        environment.extend(self.commands.environment.iter().cloned());
        self.confined = Some(ProcessSandbox {
            walls: self.walls(context, (readable, tools), sandbox),
            environment,
            asked: self.commands.proxy.as_ref().map(|proxy| Arc::clone(proxy.asked())),
            mechanism,
        });
        Ok(())
    }

    /// The sandbox of agentd's own commands: built-in tools, checks, verify commands.
    pub fn of_commands(&self, sandbox: &Sandbox) -> Option<&ProcessSandbox> {
        self.confined.as_ref().filter(|_| sandbox.enabled)
    }

    /// The sandbox of an agent program, with its own home and what it may reach. `place` = its number in the run.
    pub fn of_agent(
        &self,
        place: usize,
        program: &AgentProgram,
        context: &RepositoryContext,
    ) -> Option<ProcessSandbox> {
        let mut confined = self.confined.clone().filter(|_| program.sandboxed)?;
        let way = self.agents.get(place)?;
        confined.walls.network = way.network.clone();
        confined.asked = way.proxy.as_ref().map(|proxy| Arc::clone(proxy.asked()));
        confined.walls.shows_named = true;
        confined.walls.writable.push(self.agent_home(place));
        confined.walls.readable.push(self.briefing());
        confined.walls.readable.extend(program.readable.iter().map(|path| named_place(context, path)));
        confined.environment = self.environment(&context.env, &numbered("agent-home", place));
        confined.environment.extend(way.environment.iter().cloned());
        Some(confined)
    }

    /// The same sandbox without write access to the work, for a step that only plans.
    pub fn reading(&self, mut confined: ProcessSandbox) -> ProcessSandbox {
        let work: Vec<AbsPath> = std::iter::once(self.worktree.path().clone())
            .chain(self.git.as_ref().map(|own| own.dir().clone()))
            .collect();
        confined.walls.writable.retain(|place| !work.contains(place));
        confined.walls.readable.extend(work);
        confined
    }

    /// Where the run's agent programs read what the run was told.
    pub fn briefing(&self) -> AbsPath {
        self.folder.join("briefing")
    }

    /// The meter on what an agent program asks of models by its endpoints.
    pub fn meter(&self, place: usize) -> Option<Meter> {
        Some(self.agents.get(place)?.proxy.as_ref()?.meter().clone())
    }

    /// What holds the programs, for the record.
    pub fn facts(&self, definition: &Definition, programs: &[AgentProgram]) -> SandboxFacts {
        let Some(confined) = &self.confined else {
            let lacks = self.without.iter().cloned().collect();
            return SandboxFacts { name: "none".to_owned(), lacks, ..SandboxFacts::default() };
        };
        let all = |words: fn(&AgentProgram) -> Vec<String>| -> Vec<String> {
            let words: BTreeSet<String> = programs.iter().flat_map(words).collect();
            words.into_iter().collect()
        };
        SandboxFacts {
            name: confined.mechanism.name().to_owned(),
            lacks: confined.mechanism.lacks(),
            command_hosts: match self.commands.network {
                Network::None => Vec::new(),
                Network::Proxy(_) | Network::All => definition.boundaries.sandbox.network.words(),
            },
            agent_hosts: all(|program| program.network.words()),
            agent_endpoints: all(|program| program.endpoints.clone()),
        }
    }

    /// A Cargo home of the run's own, where there is something to download from.
    async fn cargo_home(&mut self, context: &RepositoryContext) -> Result<(), FileError> {
        let mut ways = [&self.commands].into_iter().chain(&self.agents);
        let closed = ways.all(|way| way.network == Network::None);
        let homes = toolchains::homes(&context.env);
        let own = homes.into_iter().find(|(name, _)| name == "CARGO_HOME").map(|(_, place)| place);
        let Some(own) = own.and_then(|own| AbsPath::new(PathBuf::from(own)).ok()).filter(|_| !closed) else {
            return Ok(());
        };
        let (from, to) = (own.clone(), self.folder.join("cargo"));
        let made = tokio::task::spawn_blocking(move || cargo_home::make(from.as_path(), to.as_path())).await;
        self.cargo = Some(own);
        made.unwrap_or(Ok(()))
    }

    /// Opens what the definition lets its programs reach.
    fn open_proxies(
        &mut self,
        Needs { definition, programs, .. }: Needs<'_>,
        (journal, context): (&RunJournal, &RepositoryContext),
        mechanism: &Mechanism,
    ) -> Result<(), Stop> {
        let failed = |error: ProxyError| Stop::new(StopDetail::Internal, format!("{error}."));
        let list = |key: &str| format!("runner.{key} of the agent \"{}\"", definition.name);
        let egress = &definition.boundaries.sandbox.network;
        let servers = context.config.cluster.servers();
        match mechanism.can_proxy() {
            Err(why) if matches!(egress, Egress::Hosts(_)) => {
                journal.warn("no_host_lists", format!("Commands have no network: {why}."));
            }
            _ => {
                let mut list = list("boundaries.sandbox.network.trustedDomains");
                if context.managed {
                    list.push_str(OPERATORS_TOO);
                }
                self.commands =
                    EgressProxy::open(&self.folder, "out", NetworkReach::of(egress, &servers), list)
                        .map_err(failed)?;
            }
        }
        for (place, program) in programs.iter().enumerate() {
            if let Some(named) = program.readable.iter().find(|named| is_home(context, named)) {
                let text = format!(
                    "program.readable names \"{named}\", which is the home or around it; name what is needed of it."
                );
                return Err(Stop::new(StopDetail::ConfigInvalid, text));
            }
            let way = if program.sandboxed {
                let endpoints = egress_proxy::endpoints(&context.config, &program.endpoints)
                    .map_err(|refusal| refusal.stop)?;
                let list = list("agentd.program.network");
                let name = numbered("agent-out", place);
                let reach = NetworkReach {
                    egress: &program.network,
                    servers: &servers,
                    endpoints: &endpoints,
                    max_requests: program.max_requests,
                };
                EgressProxy::open(&self.folder, &name, reach, list).map_err(failed)?
            } else {
                EgressProxy::closed()
            };
            self.agents.push(way);
        }
        Ok(())
    }

    /// Records in the journal what programs asked for on the network since the last time. People are told of each
    /// refused host once.
    pub fn record_asked(&self, journal: &RunJournal, redactor: &Redactor) -> Result<(), JournalError> {
        let commands = (
            "commands",
            &self.commands,
            "runner.boundaries.sandbox.network.trustedDomains (in a clone that agentd manages, also in sandbox.hosts)",
        );
        let agents = self.agents.iter().map(|way| ("agent", way, "program.network"));
        for (programs, way, key) in [commands].into_iter().chain(agents) {
            let Some(proxy) = &way.proxy else { continue };
            let mut hosts = proxy.asked().take();
            if hosts.is_empty() {
                continue;
            }
            for asked in &mut hosts {
                // A name can be made of a secret.
                asked.host = redactor
                    .redact(&asked.host)
                    .map_or_else(|_| "[withheld]".to_owned(), |host| host.into_owned());
                let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(why) = &asked.refused
                    && told.len() < MOST_TOLD
                    && told.insert((asked.host.clone(), asked.port))
                {
                    let way = if asked.endpoint.is_some() { "sandbox.endpoints or providers" } else { key };
                    let text = format!(
                        "Programs ({programs}) did not reach {}:{}: {why}. What they may reach stands in {way}.",
                        asked.host, asked.port
                    );
                    journal.warn("host_not_reached", text);
                }
            }
            journal.record(Event::NetworkAsked { programs: programs.to_owned(), hosts })?;
        }
        Ok(())
    }

    /// Home of an agent program.
    pub fn agent_home(&self, place: usize) -> AbsPath {
        self.folder.join(numbered("agent-home", place).as_str())
    }

    /// The folder of the sockets through which an agent program reaches agentd's own tools.
    pub fn door(&self) -> AbsPath {
        self.folder.join("door")
    }

    /// Copies what the definition names of the user's home into the program's.
    pub fn fill_home(&self, place: usize, program: &AgentProgram, env: &Env) -> Result<(), FileError> {
        let Some(home) = env.home() else { return Ok(()) };
        let mut left = LARGEST_COPY;
        for named in &program.home {
            let named = named.trim_start_matches("~/").trim_start_matches('/');
            let (from, to) = (home.join(named), self.agent_home(place).join(named));
            if to.as_path().starts_with(self.agent_home(place).as_path()) {
                copy(&from, to.as_path(), &mut left)?;
            }
        }
        Ok(())
    }

    /// The worktree that it stands around.
    pub fn worktree(&self) -> &Worktree {
        &self.worktree
    }

    /// A git directory that shows the repository as it will be when the work is pushed and merged, for checks that ask
    /// about that. Programs can read it, and it is made anew each time.
    pub async fn published_git(&self, base: &Base) -> Result<AbsPath, GitError> {
        self.worktree.published_git(&self.readable(), base, self.git.as_ref()).await
    }

    /// Folder of what programs read and never write.
    fn readable(&self) -> AbsPath {
        self.folder.join("readable")
    }

    /// From now on commits of programs are not taken over, because the policy refuses their work.
    pub fn refuse_commits(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Takes the commits that programs made in their own git directory (D13, D73).
    pub async fn take_commits(&self) -> Result<Taken, GitError> {
        self.restore_link();
        match &self.git {
            Some(_) if self.refused.load(Ordering::Relaxed) => Ok(Taken::None),
            Some(own) => self.worktree.take_commits(own).await,
            None => Ok(Taken::None),
        }
    }

    /// Keeps what programs left in their own git directory beside the branch on refs below `prefix`. The error is a sentence on why it
    /// cannot be kept; the directory then stays.
    pub async fn keep_left(&self, prefix: &str, origin: CommitId) -> Result<Vec<LeftRef>, String> {
        let Some(own) = &self.git else { return Ok(Vec::new()) };
        let kept = self.worktree.keep_left(own, prefix, &[origin]).await;
        self.git_stays.store(kept.is_err(), Ordering::Relaxed);
        kept
    }

    /// The operation of git that programs left half done in their own git directory.
    pub fn unfinished(&self) -> Option<&'static str> {
        self.git.as_ref()?.unfinished()
    }

    /// Where programs have their own git directory.
    pub fn own_git(&self) -> Option<&AbsPath> {
        self.git.as_ref().map(SandboxGit::dir)
    }

    /// Whether their git directory has branches or stashes beside what was shown there.
    pub fn holds_more(&self) -> bool {
        let shown: Vec<&BranchName> = self.shown.iter().collect();
        self.git.as_ref().is_some_and(|own| own.holds_more(&shown))
    }

    /// Shows programs the branch as it is after agentd committed there.
    pub async fn follow_branch(&self) -> Result<(), GitError> {
        match &self.git {
            Some(own) => self.worktree.show_branch(own).await,
            None => Ok(()),
        }
    }

    /// The same where something else committed on the branch, unless a program committed in its own git directory meanwhile. `from` =
    /// where the branch was before.
    pub async fn follow_branch_from(&self, from: &str) -> Result<(), GitError> {
        match &self.git {
            Some(own) if own.head().is_some_and(|head| head.as_str() == from) => {
                self.worktree.show_branch(own).await
            }
            _ => Ok(()),
        }
    }

    /// If programs could change the worktree's `.git`, it is restored, because people's git follows it.
    fn restore_link(&self) {
        let place = self.worktree.path().join(".git");
        let place = place.as_path();
        let Some(link) = &self.link else { return };
        let plain = place.symlink_metadata().is_ok_and(|meta| meta.is_file() && meta.len() < 1 << 16);
        if plain && std::fs::read(place).is_ok_and(|now| now == *link) {
            return;
        }
        let removed = if place.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            files::remove_dir(place).map(drop)
        } else {
            files::remove_file(place).map(drop)
        };
        if let Err(error) = removed.and_then(|()| files::write_public(place, link)) {
            tracing::warn!(%error, "the worktree's .git was changed by a program and cannot be restored");
        }
    }

    /// Removes what only programs needed.
    pub fn close(&self) {
        let stays = self.git.as_ref().filter(|_| self.git_stays.load(Ordering::Relaxed));
        let removed = match stays {
            Some(own) => own.remove_all_else(),
            None => files::remove_dir(self.folder.as_path()).map(drop),
        };
        if let Err(error) = removed {
            tracing::warn!(%error, "the private folder of a run's programs stays");
        }
    }

    fn walls(
        &self,
        context: &RepositoryContext,
        (mut readable, tools): (Vec<AbsPath>, Readable),
        sandbox: &Sandbox,
    ) -> Walls {
        let worktree = &self.worktree;
        let mut writable = vec![worktree.path().clone(), self.folder.join("home")];
        writable.extend(self.git.as_ref().map(|own| own.dir().clone()));
        let further = sandbox.allowed_paths.iter().map(|path| named_place(context, path));
        writable.extend(further.filter(|path| path.as_path().exists()));
        readable.push(self.readable());
        readable.extend(tools.places);
        if let Some(own) = &self.cargo {
            readable.push(own.clone());
            writable.push(self.folder.join("cargo"));
        }
        let mut shown_as = Vec::new();
        if let Ok(tmp) = AbsPath::new("/tmp") {
            shown_as.push((self.folder.join("tmp"), tmp));
        }
        let mut shown_read_only = Vec::new();
        if let Some(own) = &self.git {
            shown_as.push((own.link().clone(), worktree.path().join(".git")));
            // What is on the remote is not the agent's to say.
            let remotes = own.dir().join("refs/remotes");
            shown_read_only.push((remotes.clone(), remotes));
        }
        Walls {
            writable,
            readable,
            hidden: tools.hidden,
            private: private(context),
            closed: closed(context),
            shows_named: false,
            shown_as,
            shown_read_only,
            pipes: Vec::new(),
            network: self.commands.network.clone(),
            terminal: false,
        }
    }

    /// Variables that differ inside. Tools of the user's home keep their folders, which are read-only inside.
    fn environment(&self, env: &Env, home: &str) -> Vec<(OsString, OsString)> {
        let mut all: Vec<(OsString, OsString)> =
            vec![("HOME".into(), self.folder.join(home).as_path().into()), ("TMPDIR".into(), "/tmp".into())];
        let homes = toolchains::homes(env);
        if homes.iter().any(|(name, _)| name == "MISE_DATA_DIR") {
            // The repository's own file of versions is followed without a question.
            all.push(("MISE_TRUSTED_CONFIG_PATHS".into(), self.worktree.path().as_path().into()));
        }
        all.extend(homes);
        if self.cargo.is_some() {
            all.push(("CARGO_HOME".into(), self.folder.join("cargo").as_path().into()));
        }
        all
    }
}

/// What belongs to one of the run's agent programs, by its place among them.
fn numbered(name: &str, place: usize) -> String {
    match place {
        0 => name.to_owned(),
        further => format!("{name}-{}", further + 1),
    }
}

/// What is not shown only because a program stands in it: the home, the checkout, and where agentd's configuration is.
fn private(context: &RepositoryContext) -> Vec<AbsPath> {
    let home = context.env.home().and_then(|home| AbsPath::new(home).ok());
    let files = context.config.layers().filter_map(|file| AbsPath::new(file).ok());
    with_real(home.into_iter().chain([context.checkout.root().clone()]).chain(files))
}

/// Nor what is below: agentd's state, other issues' worktrees, and git's own files.
fn closed(context: &RepositoryContext) -> Vec<AbsPath> {
    let state = AbsPath::new(context.state.path()).ok();
    let of_checkout = [context.worktree_root(), context.checkout.common_dir().clone()];
    with_real(state.into_iter().chain(of_checkout))
}

/// Each place by the name that it has behind links as well.
fn with_real(places: impl Iterator<Item = AbsPath>) -> Vec<AbsPath> {
    let both = places.flat_map(|place| {
        let real = place.as_path().canonicalize().ok().and_then(|real| AbsPath::new(real).ok());
        let real = real.filter(|real| *real != place);
        std::iter::once(place).chain(real)
    });
    both.collect()
}

/// A path of the definition: `~/` is the user's home, relative ones start at the main checkout (D85).
fn named_place(context: &RepositoryContext, path: &str) -> AbsPath {
    match (path.strip_prefix("~/"), context.env.home().and_then(|home| AbsPath::new(home).ok())) {
        (Some(below), Some(home)) => home.join(below),
        _ => context.checkout.root().join(path),
    }
}

/// Whether a place that was named for a program is the whole home, or around it.
fn is_home(context: &RepositoryContext, named: &str) -> bool {
    let place = named_place(context, named);
    let place = place.as_path().canonicalize().unwrap_or_else(|_| place.as_path().to_owned());
    context.env.home().is_some_and(|home| home.canonicalize().unwrap_or(home).starts_with(place))
}

/// Copies a file, or a folder with its content. Links, and what exceeds the limit, are left out.
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
