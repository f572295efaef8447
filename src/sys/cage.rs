//! The cage around programs that an agent starts: bubblewrap on Linux. What is not named is not there.
//!
//! Inside there are the system's programs, read-only and without its secrets; the worktree and a private folder, writable;
//! a home of its own; no other process, and no network unless allowed. Its end is the end of everything in it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::paths::AbsPath;
use super::process::{self, ProcessSpec};

/// How records name it.
pub const NAME: &str = "bubblewrap";

/// The system's folders that are there, where the machine has them.
const SYSTEM: [&str; 10] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix"];
/// What of them holds secrets: hidden.
const SECRET: [&str; 22] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/gitconfig",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/NetworkManager",
    "/etc/wpa_supplicant",
    "/etc/docker",
    "/etc/kubernetes",
    "/etc/rancher",
    "/etc/cni",
    "/etc/letsencrypt",
    "/etc/krb5.keytab",
    "/etc/netrc",
    "/etc/agentd",
    "/etc/environment",
    "/etc/security",
];
/// Variables that name folders of tools.
const TOOL_FOLDERS: [&str; 2] = ["CARGO_HOME", "RUSTUP_HOME"];
/// Files of such folders that hold credentials.
const TOOL_SECRETS: [&str; 3] = ["credentials.toml", "credentials", "settings.toml.bak"];

/// A cage that works on this machine.
#[derive(Debug, Clone)]
pub struct Cage {
    program: PathBuf,
    /// `prlimit`, where it is there.
    limiter: Option<PathBuf>,
}

/// What is inside, beside the system.
#[derive(Debug, Clone, Default)]
pub struct Walls {
    /// May be written. Must exist.
    pub writable: Vec<AbsPath>,
    /// May be read. What does not exist is left out.
    pub readable: Vec<AbsPath>,
    /// `(here, there)`: a file or folder shown at another place, writable.
    pub shown_as: Vec<(AbsPath, AbsPath)>,
    /// `(here, there)`: the same, not writable.
    pub shown_read_only: Vec<(AbsPath, AbsPath)>,
    /// The whole network, as outside.
    pub network: bool,
}

/// Most processes, and largest file in bytes, of one command.
const MOST_PROCESSES: u32 = 4096;
const LARGEST_FILE: u64 = 8 << 30;

impl Cage {
    /// Looks for a cage that works here, with the given `PATH`. The error says why there is none, in a sentence.
    pub async fn find(path: &OsStr) -> Result<Self, String> {
        if !cfg!(target_os = "linux") {
            return Err("the cage exists on Linux only".to_owned());
        }
        let Some(program) = which(OsStr::new("bwrap"), path) else {
            return Err("the program bwrap is not installed (package bubblewrap)".to_owned());
        };
        let root = AbsPath::new("/").map_err(|error| error.to_string())?;
        let cage = Self { program, limiter: which(OsStr::new("prlimit"), path) };
        let trial = ProcessSpec::new("true", &root).env("PATH", path).timeout(Duration::from_secs(10));
        let exit = process::run(cage.wrap(trial, &Walls::default()), &CancellationToken::new()).await;
        match exit {
            Ok(exit) if exit.success() => Ok(cage),
            Ok(exit) => {
                let said = exit.stderr.text();
                let last = said.lines().last().unwrap_or("it ended without a word").trim().to_owned();
                Err(format!("bwrap is installed but does not work here: {last}"))
            }
            Err(error) => Err(format!("bwrap is installed but does not work here: {error}")),
        }
    }

    /// The same process, inside. Its environment is what it was; a program that is not found stays as it is, so that
    /// starting it says so.
    pub fn wrap(&self, spec: ProcessSpec, walls: &Walls) -> ProcessSpec {
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
        let mut args = Arguments::default();
        args.words(["--die-with-parent", "--new-session", "--unshare-all", "--cap-drop", "ALL"]);
        if walls.network {
            args.words(["--share-net"]);
        }
        for folder in SYSTEM {
            args.system(Path::new(folder));
        }
        args.words([
            "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/run", "--dir", "/var/tmp",
        ]);
        if walls.network {
            args.network_files();
        }
        for secret in SECRET {
            args.hide(Path::new(secret));
        }
        let mut shown: Vec<(&str, PathBuf, PathBuf)> = Vec::new();
        let mut same = |word, place: PathBuf| shown.push((word, place.clone(), place));
        let folders = tool_folders(&spec, path.as_deref(), &found);
        folders.iter().for_each(|folder| same("--ro-bind-try", folder.clone()));
        walls.readable.iter().for_each(|place| same("--ro-bind-try", place.as_path().to_owned()));
        walls.writable.iter().for_each(|place| same("--bind", place.as_path().to_owned()));
        let other = |word, (here, there): &(AbsPath, AbsPath)| {
            (word, here.as_path().to_owned(), there.as_path().to_owned())
        };
        shown.extend(walls.shown_as.iter().map(|pair| other("--bind", pair)));
        shown.extend(walls.shown_read_only.iter().map(|pair| other("--ro-bind", pair)));
        // What stands deeper comes later, so that nothing covers it; the rest keeps its order.
        shown.sort_by_key(|(_, _, there)| there.components().count());
        for (word, here, there) in &shown {
            args.pair(word, here, there);
        }
        for secret in folders.iter().flat_map(|folder| TOOL_SECRETS.map(|name| folder.join(name))) {
            args.hide(&secret);
        }
        args.words(["--chdir"]);
        args.0.push(spec.cwd.as_path().into());
        args.words(["--"]);
        if let Some(limiter) = &self.limiter {
            args.0.push(limiter.into());
            args.0.push(format!("--nproc={MOST_PROCESSES}").into());
            args.0.push(format!("--fsize={LARGEST_FILE}").into());
            args.words(["--core=0", "--"]);
        }
        args.0.push(found.into());
        args.0.extend(spec.args.iter().cloned());
        ProcessSpec { program: self.program.clone(), args: args.0, ..spec }
    }
}

/// A cage with what is in it: how the programs of one run are started.
#[derive(Debug, Clone)]
pub struct Caged {
    /// The cage.
    pub cage: Cage,
    /// What is inside.
    pub walls: Walls,
    /// Variables that differ inside: the home, the folder for temporary files.
    pub environment: Vec<(OsString, OsString)>,
}

impl Caged {
    /// The same process, inside.
    pub fn wrap(&self, spec: ProcessSpec) -> ProcessSpec {
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        self.cage.wrap(spec.envs(environment), &self.walls)
    }
}

/// As [`Caged::wrap`], where there is a cage.
pub fn wrap(caged: Option<&Caged>, spec: ProcessSpec) -> ProcessSpec {
    match caged {
        Some(caged) => caged.wrap(spec),
        None => spec,
    }
}

/// How records name what a program ran in.
pub fn name(caged: Option<&Caged>) -> &'static str {
    if caged.is_some() { NAME } else { "none" }
}

/// What bubblewrap is told.
#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn words<const N: usize>(&mut self, words: [&str; N]) {
        self.0.extend(words.into_iter().map(OsString::from));
    }

    fn pair(&mut self, word: &str, here: &Path, there: &Path) {
        self.0.extend([word.into(), here.into(), there.into()]);
    }

    /// A folder of the system as it is here: a link stays a link.
    fn system(&mut self, folder: &Path) {
        match std::fs::read_link(folder) {
            Ok(target) => self.pair("--symlink", &target, folder),
            Err(_) if folder.is_dir() => self.pair("--ro-bind", folder, folder),
            Err(_) => {}
        }
    }

    fn hide(&mut self, place: &Path) {
        // A link's target is what would be read; it is hidden where it stands.
        let Ok(real) = place.canonicalize() else { return };
        if real.is_dir() {
            self.0.extend(["--tmpfs".into(), real.into()]);
        } else {
            self.pair("--ro-bind", Path::new("/dev/null"), &real);
        }
    }

    /// Names are looked up with files that may stand below /run.
    fn network_files(&mut self) {
        if let Ok(real) = Path::new("/etc/resolv.conf").canonicalize()
            && real.starts_with("/run")
        {
            self.pair("--ro-bind", &real, &real);
        }
    }
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
