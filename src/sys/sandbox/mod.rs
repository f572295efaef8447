//! The sandbox for programs that an agent starts: bubblewrap on Linux, else Landlock. What is not named does not exist
//! inside.
//!
//! Inside are the programs of the system, read-only and without its secrets; the worktree and a private folder,
//! writable; a separate home; no other process; and the allowed part of the network. When it ends, everything in it
//! ends.

mod bubblewrap;
pub mod order_format;
#[cfg(target_os = "linux")]
mod filter;
mod group;
#[cfg(target_os = "linux")]
pub mod inside;
#[cfg(target_os = "linux")]
mod landlock;
mod program_places;
#[cfg(target_os = "linux")]
mod relay;
mod secrets;
mod walls;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::bubblewrap::Can;
use self::group::Group;
pub use self::order_format::PROXY_PORT;
use self::order_format::{Limits, Network as Net, Order, Rules, WORD};
use self::program_places::{ProgramPlaces, variable};
pub use self::secrets::credentials_below;
pub use self::walls::{Network, Walls};
use self::walls::{SYSTEM, resolver};
use super::egress_log::EgressLog;
use super::paths::AbsPath;
use super::process::{self, ProcessSpec};

/// Files of such folders that hold credentials.
const TOOL_SECRETS: [&str; 3] = ["credentials.toml", "credentials", "settings.toml.bak"];

/// A sandbox mechanism that works on this machine: bubblewrap or Landlock.
#[derive(Debug, Clone)]
pub struct Mechanism {
    kind: Kind,
    /// agentd's own program, if it can be started inside. It sets limits and connects the proxy.
    own: Option<PathBuf>,
    limits: Limits,
    /// What of the system's folders is hidden.
    secrets: Arc<[PathBuf]>,
    /// Limits the number of processes of all that is started in it, if the machine allows it.
    group: Option<Group>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// The program `bwrap`, and what it can.
    Bubblewrap(PathBuf, Can),
    /// Landlock, and whether namespaces for its own network and mounts are possible.
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

impl Mechanism {
    /// Looks for a kind of sandbox that works here, with the given `PATH`. The error says in one sentence why there is
    /// none.
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
            // On some machines root needs no user namespaces, and nobody else may have them.
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

    /// What is hidden of the system. The search for it reads many small files.
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

    /// The same with other limits. The number of its processes is limited if the machine allows it.
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

    /// Whether files outside are refused instead of missing. Programs that look for a file in each parent folder stop
    /// at a refusal.
    pub fn refuses(&self) -> bool {
        matches!(self.kind, Kind::Landlock { .. })
    }

    /// Whether socket files that are let in work inside.
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

    /// The same process, inside the sandbox. Its environment is the same, with the proxy added. A program that is not
    /// found stays as it is, so that its start reports the error.
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
        let places = ProgramPlaces::of(&spec, path.as_deref(), &found, walls);
        let readable =
            places.shown.iter().map(PathBuf::as_path).chain(walls.readable.iter().map(AbsPath::as_path));
        let of_tools = readable
            .flat_map(|folder| TOOL_SECRETS.map(|name| folder.join(name)))
            .filter(|secret| secret.exists());
        let named = walls.hidden.iter().map(|place| place.as_path().to_owned());
        let found_in = places.hidden.iter().cloned();
        let hidden: Vec<PathBuf> =
            self.secrets.iter().cloned().chain(of_tools).chain(found_in).chain(named).collect();
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
                    places: &places,
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
                let (order, temporary) = self.rules(order, walls, places.shown, hidden, *namespaces);
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

    /// The restrictions for Landlock, and the folder for temporary files.
    fn rules(
        &self,
        order: Order,
        walls: &Walls,
        places: Vec<PathBuf>,
        hidden: Vec<PathBuf>,
        namespaces: bool,
    ) -> (Order, Option<AbsPath>) {
        let path = |place: &AbsPath| place.as_path().to_owned();
        let real = |place: PathBuf| place.canonicalize().unwrap_or(place);
        let mut readable: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).chain(places).collect();
        readable.extend(walls.readable.iter().map(path));
        readable.extend(walls.shown_read_only.iter().map(|(here, _)| path(here)));
        let mut writable: Vec<PathBuf> = walls.writable.iter().map(path).collect();
        let (temporary, others): (Vec<_>, Vec<_>) =
            walls.shown_as.iter().partition(|(_, there)| there.as_path() == Path::new("/tmp"));
        // The machine's /tmp has much in it, such as the folders of this sandbox, so it is not covered.
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
    /// What its programs ask for on the network, if that goes through the proxy.
    pub asked: Option<Arc<EgressLog>>,
}

impl ProcessSandbox {
    /// The same for a program that somebody configured: where it is named by a path, its file is inside.
    pub fn of_configured(&self) -> Self {
        let mut same = self.clone();
        same.walls.shows_named = true;
        same
    }

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

#[cfg(target_os = "linux")]
use self::filter::is_known as has_filter;
#[cfg(target_os = "linux")]
use self::inside::own_program;
#[cfg(target_os = "linux")]
use self::landlock::{RENAMES, SIGNALS, version as landlock_version};

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

/// Where a program of that name is, among the folders of `path`.
pub fn which(program: &OsStr, path: &OsStr) -> Option<PathBuf> {
    if Path::new(program).is_absolute() {
        return runs(Path::new(program)).then(|| PathBuf::from(program));
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
