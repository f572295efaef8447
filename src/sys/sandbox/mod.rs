//! The sandbox around programs that an agent starts: bubblewrap on Linux, else Landlock. What is not named is not there.
//!
//! Inside there are the system's programs, read-only and without its secrets; the worktree and a private folder, writable;
//! a home of its own; no other process, and of the network what is allowed. Its end is the end of everything in it.

mod bubblewrap;
pub mod order_format;
#[cfg(target_os = "linux")]
mod filter;
mod group;
#[cfg(target_os = "linux")]
pub mod inside;
#[cfg(target_os = "linux")]
mod landlock;
#[cfg(target_os = "linux")]
mod relay;
mod secrets;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::bubblewrap::Can;
use self::group::Group;
use self::order_format::{Limits, Network as Net, Order, Rules};
pub use self::secrets::credentials_below;
use super::egress_log::EgressLog;
use super::paths::AbsPath;
use super::process::{self, ProcessSpec};

/// Port of the sandbox's own loopback at which agentd's proxy is reached.
pub const PROXY_PORT: u16 = 3128;

/// The system's folders that are there, where the machine has them.
const SYSTEM: [&str; 10] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix"];
/// Number of the open file by which bubblewrap is handed the filter of system calls.
const FILTER_NUMBER: i32 = 100;
/// Variables that name folders of tools.
const TOOL_FOLDERS: [&str; 2] = ["CARGO_HOME", "RUSTUP_HOME"];
/// Files of such folders that hold credentials.
const TOOL_SECRETS: [&str; 3] = ["credentials.toml", "credentials", "settings.toml.bak"];

/// A sandbox mechanism that works on this machine: bubblewrap or Landlock.
#[derive(Debug, Clone)]
pub struct Mechanism {
    kind: Kind,
    /// agentd's own program, where it can be started inside: it sets limits and brings the proxy in.
    own: Option<PathBuf>,
    limits: Limits,
    /// What of the system's folders is hidden.
    secrets: Arc<[PathBuf]>,
    /// Counts the processes of all that is started in it, where the machine lets agentd.
    group: Option<Group>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// The program `bwrap`, and what it can.
    Bubblewrap(PathBuf, Can),
    /// Landlock; whether namespaces can be had for a network and mounts of its own.
    Landlock { namespaces: bool },
}

/// Which mechanism is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Choice {
    /// The best that works.
    #[default]
    Any,
    /// Bubblewrap or none.
    Bubblewrap,
    /// Landlock or none.
    Landlock,
}

/// What is inside, beside the system.
#[derive(Debug, Clone, Default)]
pub struct Walls {
    /// May be written. Must exist.
    pub writable: Vec<AbsPath>,
    /// May be read. What does not exist is left out.
    pub readable: Vec<AbsPath>,
    /// What of all that cannot be read.
    pub hidden: Vec<AbsPath>,
    /// `(here, there)`: a file or folder shown at another place, writable.
    pub shown_as: Vec<(AbsPath, AbsPath)>,
    /// `(here, there)`: the same, not writable.
    pub shown_read_only: Vec<(AbsPath, AbsPath)>,
    /// Where named pipes may be made, beside the folders for temporary files: who reads there expects them.
    pub pipes: Vec<AbsPath>,
    /// What is left of the network.
    pub network: Network,
}

/// What is left of the network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Network {
    /// Nothing.
    #[default]
    None,
    /// The proxy behind this socket.
    Proxy(AbsPath),
    /// The whole network, as outside.
    All,
}

impl Mechanism {
    /// Looks for a sandbox that works here, with the given `PATH`. The error says why there is none, in a sentence.
    pub async fn find(path: &OsStr, choice: Choice) -> Result<Self, String> {
        if !cfg!(target_os = "linux") {
            return Err("the sandbox exists on Linux only".to_owned());
        }
        let bubblewrap = match choice {
            Choice::Landlock => Err(String::new()),
            Choice::Any | Choice::Bubblewrap => Self::bubblewrap(path).await,
        };
        match (bubblewrap, choice) {
            (Ok(sandbox), _) => Ok(sandbox),
            (Err(why), Choice::Bubblewrap) => Err(why),
            (Err(_), Choice::Landlock) => Self::landlock(path).await,
            (Err(why), Choice::Any) => {
                Self::landlock(path).await.map_err(|also| format!("{why}, and {also}"))
            }
        }
    }

    async fn bubblewrap(path: &OsStr) -> Result<Self, String> {
        let Some(program) = which(OsStr::new("bwrap"), path) else {
            return Err("the program bwrap is not installed (package bubblewrap)".to_owned());
        };
        let can = Self::version(&program).await;
        let secrets: Arc<[PathBuf]> = Self::secrets().await;
        let with = |can| Self {
            kind: Kind::Bubblewrap(program.clone(), can),
            own: own_program(),
            limits: Limits::default(),
            secrets: Arc::clone(&secrets),
            group: None,
        };
        let mut tried = with(can).trial(path, &Walls::default()).await.map(|()| can);
        if tried.is_err() && can.refuse_namespaces {
            // Some machines let root do without user namespaces, and nobody have them.
            let can = Can { refuse_namespaces: false, ..can };
            tried = with(can).trial(path, &Walls::default()).await.map(|()| can);
        }
        tried.map(with).map_err(|why| format!("bwrap is installed but does not work here: {why}"))
    }

    /// What this bubblewrap can, as far as it says.
    async fn version(program: &Path) -> Can {
        let Ok(root) = AbsPath::new("/") else { return Can::default() };
        let asked = ProcessSpec::new(program, &root).arg("--version").timeout(Duration::from_secs(10));
        let said = process::run(asked, &CancellationToken::new()).await;
        said.map(|exit| Can::parse(&exit.stdout.text())).unwrap_or_default()
    }

    /// What is hidden of the system; looking for it reads many small files.
    async fn secrets() -> Arc<[PathBuf]> {
        tokio::task::spawn_blocking(secrets::find).await.unwrap_or_default().into()
    }

    async fn landlock(path: &OsStr) -> Result<Self, String> {
        let Some(own) = own_program() else {
            return Err("Landlock needs agentd's own program".to_owned());
        };
        if landlock_version() == 0 {
            return Err("the kernel has no Landlock".to_owned());
        }
        let secrets = Self::secrets().await;
        let with = |namespaces| Self {
            kind: Kind::Landlock { namespaces },
            own: Some(own.clone()),
            limits: Limits::default(),
            secrets: Arc::clone(&secrets),
            group: None,
        };
        let one = AbsPath::new(own.clone()).map_err(|error| error.to_string())?;
        let shows = Walls { shown_as: vec![(one.clone(), one)], ..Walls::default() };
        if with(true).trial(path, &shows).await.is_ok() {
            return Ok(with(true));
        }
        with(false)
            .trial(path, &Walls::default())
            .await
            .map_err(|why| format!("Landlock does not work here: {why}"))?;
        Ok(with(false))
    }

    async fn trial(&self, path: &OsStr, walls: &Walls) -> Result<(), String> {
        let root = AbsPath::new("/").map_err(|error| error.to_string())?;
        let trial = ProcessSpec::new("true", &root).env("PATH", path).timeout(Duration::from_secs(10));
        match process::run(self.wrap(trial, walls), &CancellationToken::new()).await {
            Ok(exit) if exit.success() => Ok(()),
            Ok(exit) => {
                let said = exit.stderr.text();
                Err(said.lines().last().unwrap_or("it ended without a word").trim().to_owned())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// The same with other limits, its processes counted where the machine lets agentd do that.
    pub fn limited(self, limits: Limits) -> Self {
        let group = self.own.is_some().then(|| Group::make(limits.processes)).flatten();
        Self { limits, group, ..self }
    }

    /// How records name it.
    pub fn name(&self) -> &'static str {
        match self.kind {
            Kind::Bubblewrap(..) => "bubblewrap",
            Kind::Landlock { .. } => "landlock",
        }
    }

    /// Whether a worktree's `.git` can be shown as another one.
    pub fn can_show_otherwise(&self) -> bool {
        matches!(self.kind, Kind::Bubblewrap(..) | Kind::Landlock { namespaces: true })
    }

    /// Whether a file that is not inside is refused, where it should rather not be there: programs that look for a file
    /// in each folder above give up at such a one.
    pub fn refuses(&self) -> bool {
        matches!(self.kind, Kind::Landlock { .. })
    }

    /// Whether sockets that are files are there, those that are let in.
    pub fn has_sockets(&self) -> bool {
        matches!(self.kind, Kind::Bubblewrap(..))
    }

    /// Whether programs in it can reach single hosts; the error says why not.
    pub fn can_proxy(&self) -> Result<(), &'static str> {
        match &self.kind {
            _ if self.own.is_none() => Err("agentd's own program cannot be started in it"),
            Kind::Landlock { namespaces: false } => {
                Err("the machine allows no network namespaces, so that there is the whole network or none")
            }
            Kind::Bubblewrap(..) | Kind::Landlock { .. } => Ok(()),
        }
    }

    /// What it does not hold back, a sentence each.
    pub fn lacks(&self) -> Vec<String> {
        let mut lacks = Vec::new();
        if let Kind::Landlock { namespaces } = self.kind {
            lacks.push("other processes can be seen, though not read or ended".to_owned());
            lacks.push(
                "modes and times of your own files elsewhere can be changed, their content not".to_owned(),
            );
            lacks.push("processors and schedules of your other processes can be changed".to_owned());
            lacks.push("/tmp and /dev/shm are not there (TMPDIR is)".to_owned());
            if landlock_version() < SIGNALS {
                lacks.push("signals reach your other processes (Linux before 6.12)".to_owned());
            }
            if !namespaces {
                lacks.push("git does not work in the worktree".to_owned());
                lacks.push("there is the whole network or none: lists of hosts cannot be held".to_owned());
            }
        }
        if let Kind::Bubblewrap(_, can) = &self.kind {
            if !can.bound {
                lacks.push(
                    "folders in memory (/dev/shm, /var/tmp) have no limit (bubblewrap before 0.7)".to_owned(),
                );
            }
            if self.own.is_none() && !can.refuse_namespaces {
                lacks.push("user namespaces can be made inside (bubblewrap before 0.8)".to_owned());
            }
            if landlock_version() < RENAMES {
                lacks.push("named pipes can be left in the worktree (Linux before 5.19)".to_owned());
            }
            if landlock_version() < SIGNALS {
                lacks.push(
                    "where the whole network is allowed, sockets without a file are reached (Linux before 6.12)"
                        .to_owned(),
                );
            }
        }
        if self.own.is_none() {
            lacks.push("there are no limits, and no lists of hosts".to_owned());
        } else if self.group.is_none() && is_root() {
            lacks.push(
                "the number of processes is not limited for root: there is no control group for it"
                    .to_owned(),
            );
        }
        lacks
    }

    /// The same process, inside. Its environment is what it was, with the proxy in it; a program that is not found
    /// stays as it is, so that starting it says so.
    pub fn wrap(&self, spec: ProcessSpec, walls: &Walls) -> ProcessSpec {
        // The system's configuration of git is hidden, and some versions of git fail on a file that they cannot open.
        let spec = spec.env("GIT_CONFIG_NOSYSTEM", "1");
        let path = variable(&spec, "PATH");
        let named = spec.program.as_os_str();
        let found = if spec.program.components().count() > 1 {
            spec.cwd.join(&spec.program).as_path().to_owned()
        } else {
            match which(named, path.as_deref().unwrap_or_default()) {
                Some(found) => found,
                None => return spec,
            }
        };
        if !found.exists() {
            return spec;
        }
        let folders = tool_folders(&spec, path.as_deref(), &found);
        let readable =
            folders.iter().map(PathBuf::as_path).chain(walls.readable.iter().map(AbsPath::as_path));
        let of_tools = readable
            .flat_map(|folder| TOOL_SECRETS.map(|name| folder.join(name)))
            .filter(|secret| secret.exists());
        let named = walls.hidden.iter().map(|place| place.as_path().to_owned());
        let hidden: Vec<PathBuf> = self.secrets.iter().cloned().chain(of_tools).chain(named).collect();
        let group = self.group.as_ref().map(|group| group.path().to_owned());
        let order = Order { limits: self.limits, pipes: self.pipes(walls), ..Order::default() };
        match (&self.kind, &self.own) {
            (Kind::Bubblewrap(bwrap, can), own) => {
                let command = bubblewrap::Command {
                    bwrap,
                    can: *can,
                    filter: own.is_some() && has_filter(),
                    own: own.as_deref(),
                    program: &found,
                    folders: &folders,
                    hidden: &hidden,
                };
                let args = bubblewrap::arguments(&command, &spec, walls, order);
                let spec = ProcessSpec { program: command.bwrap.to_owned(), args, ..spec };
                match own {
                    Some(own) => {
                        let order = Order { group, outside: true, ..Order::default() };
                        let mut args: Vec<OsString> =
                            vec![WORD.into(), order.text().into(), spec.program.clone().into()];
                        args.extend(spec.args.iter().cloned());
                        ProcessSpec { program: own.clone(), args, ..spec }
                    }
                    None => spec,
                }
            }
            (Kind::Landlock { .. }, None) => spec,
            (Kind::Landlock { namespaces }, Some(own)) => {
                let order = Order { group, ..order };
                let (order, temporary) = self.rules(order, walls, folders, hidden, *namespaces);
                let mut args: Vec<OsString> = vec![WORD.into(), order.text().into(), found.into()];
                args.extend(spec.args.iter().cloned());
                let spec = ProcessSpec { program: own.clone(), args, ..spec };
                match temporary {
                    Some(place) => spec.env("TMPDIR", place),
                    None => spec,
                }
            }
        }
    }

    /// Where named pipes may be made: in folders for temporary files that hold nothing else, and where they are expected.
    fn pipes(&self, walls: &Walls) -> Vec<PathBuf> {
        let all = walls.shown_as.iter();
        let temporary: Vec<PathBuf> = match self.kind {
            Kind::Landlock { .. } => {
                let temporary = all.filter(|(_, there)| there.as_path() == Path::new("/tmp"));
                temporary.map(|(here, _)| here.as_path().to_owned()).collect()
            }
            Kind::Bubblewrap(..) => {
                let places: Vec<&Path> =
                    all.map(|(_, there)| there).chain(&walls.writable).map(AbsPath::as_path).collect();
                let alone = |folder: &&str| {
                    let folder = Path::new(folder);
                    !places.iter().any(|place| *place != folder && place.starts_with(folder))
                };
                ["/tmp", "/var/tmp", "/dev/shm"]
                    .iter()
                    .filter(|folder| alone(folder))
                    .map(PathBuf::from)
                    .collect()
            }
        };
        let expected = walls.pipes.iter().map(|place| place.as_path().to_owned());
        temporary.into_iter().chain(expected).collect()
    }

    /// The walls in Landlock's terms, and the folder for temporary files.
    fn rules(
        &self,
        order: Order,
        walls: &Walls,
        folders: Vec<PathBuf>,
        hidden: Vec<PathBuf>,
        namespaces: bool,
    ) -> (Order, Option<AbsPath>) {
        let path = |place: &AbsPath| place.as_path().to_owned();
        let real = |place: PathBuf| place.canonicalize().unwrap_or(place);
        let mut readable: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).chain(folders).collect();
        readable.extend(walls.readable.iter().map(path));
        readable.extend(walls.shown_read_only.iter().map(|(here, _)| path(here)));
        let mut writable: Vec<PathBuf> = walls.writable.iter().map(path).collect();
        let (temporary, others): (Vec<_>, Vec<_>) =
            walls.shown_as.iter().partition(|(_, there)| there.as_path() == Path::new("/tmp"));
        // Much stands below the machine's /tmp, this sandbox's own folders for example: it is not covered.
        let temporary = temporary.first();
        writable.extend(temporary.map(|(here, _)| path(here)));
        let shown_as = others.into_iter().map(|(here, there)| (path(here), path(there))).collect();
        let (network, proxy) = match &walls.network {
            Network::All => (Net::Shared, None),
            Network::Proxy(socket) => (Net::Own, Some(path(socket))),
            Network::None if namespaces => (Net::Own, None),
            Network::None => (Net::None, None),
        };
        if network == Net::Shared {
            readable.extend(resolver());
        }
        let hidden = hidden.into_iter().map(real).collect();
        let readable = readable.into_iter().map(real).collect();
        let rules = Rules { readable, writable, hidden, shown_as, network };
        (Order { proxy, walls: Some(rules), ..order }, temporary.map(|(here, _)| here.clone()))
    }
}

/// A mechanism with what is inside: how the programs of one run are started.
#[derive(Debug, Clone)]
pub struct ProcessSandbox {
    /// What holds them.
    pub mechanism: Mechanism,
    /// What is inside.
    pub walls: Walls,
    /// Variables that differ inside: the home, the folder for temporary files, the proxy.
    pub environment: Vec<(OsString, OsString)>,
    /// What its programs ask of the network, where that goes through the proxy.
    pub asked: Option<Arc<EgressLog>>,
}

impl ProcessSandbox {
    /// The same process, inside.
    pub fn wrap(&self, spec: ProcessSpec) -> ProcessSpec {
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        self.mechanism.wrap(spec.envs(environment), &self.walls)
    }
}

/// As [`ProcessSandbox::wrap`], where there is a sandbox.
pub fn wrap(sandbox: Option<&ProcessSandbox>, spec: ProcessSpec) -> ProcessSpec {
    match sandbox {
        Some(sandbox) => sandbox.wrap(spec),
        None => spec,
    }
}

/// How records name what a program ran in.
pub fn name(sandbox: Option<&ProcessSandbox>) -> &'static str {
    sandbox.map_or("none", |sandbox| sandbox.mechanism.name())
}

/// The file by which names are looked up, where it stands below /run.
fn resolver() -> Option<PathBuf> {
    Path::new("/etc/resolv.conf").canonicalize().ok().filter(|real| real.starts_with("/run"))
}

#[cfg(target_os = "linux")]
use self::filter::is_known as has_filter;
#[cfg(target_os = "linux")]
use self::inside::{WORD, own_program};
#[cfg(target_os = "linux")]
use self::landlock::{RENAMES, SIGNALS, version as landlock_version};

#[cfg(not(target_os = "linux"))]
const WORD: &str = "";
#[cfg(not(target_os = "linux"))]
const SIGNALS: i64 = 0;
#[cfg(not(target_os = "linux"))]
const RENAMES: i64 = 0;
#[cfg(not(target_os = "linux"))]
fn has_filter() -> bool {
    false
}
#[cfg(not(target_os = "linux"))]
fn own_program() -> Option<PathBuf> {
    None
}
#[cfg(not(target_os = "linux"))]
fn landlock_version() -> i64 {
    0
}

#[cfg(unix)]
fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[cfg(not(unix))]
fn is_root() -> bool {
    false
}

/// Folders outside of the system's that programs of the `PATH` need: the folder itself, and what stands beside it where
/// it is a tool's own tree (`bin` beside `lib`). Never a home, and never the root.
fn tool_folders(spec: &ProcessSpec, path: Option<&OsStr>, program: &Path) -> Vec<PathBuf> {
    let home = variable(spec, "HOME").map(PathBuf::from);
    let system = |folder: &Path| SYSTEM.iter().any(|known| folder.starts_with(known));
    let mut folders = Vec::new();
    let mut add = |folder: PathBuf| {
        let is_home = home.as_ref() == Some(&folder) || folder.parent().is_none();
        if folder.is_absolute() && !is_home && !system(&folder) && !folders.contains(&folder) {
            folders.push(folder);
        }
    };
    for name in TOOL_FOLDERS {
        variable(spec, name).map(PathBuf::from).into_iter().for_each(&mut add);
    }
    let mut entries: Vec<PathBuf> = path.map(std::env::split_paths).into_iter().flatten().collect();
    for place in [program.to_owned(), program.canonicalize().unwrap_or_else(|_| program.to_owned())] {
        entries.extend(place.parent().map(Path::to_owned));
        // A package of node's: what it needs stands in the folder of packages around it.
        let packages =
            place.ancestors().find(|folder| folder.file_name() == Some(OsStr::new("node_modules")));
        entries.extend(packages.map(Path::to_owned));
    }
    for entry in entries {
        if entry.file_name() == Some(OsStr::new("bin"))
            && let Some(tree) = entry.parent()
            && tree.join("lib").is_dir()
            && tree.file_name() != Some(OsStr::new(".local"))
        {
            add(tree.to_owned());
        }
        add(entry);
    }
    folders
}

fn variable(spec: &ProcessSpec, name: &str) -> Option<OsString> {
    spec.env.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

/// Where a program of that name is, among the folders of `path`.
pub fn which(program: &OsStr, path: &OsStr) -> Option<PathBuf> {
    if Path::new(program).is_absolute() {
        return Path::new(program).is_file().then(|| PathBuf::from(program));
    }
    std::env::split_paths(path).map(|folder| folder.join(program)).find(|found| runs(found))
}

#[cfg(unix)]
fn runs(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn runs(file: &Path) -> bool {
    file.is_file()
}
