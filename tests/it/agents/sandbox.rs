//! The attack corpus through a caged program, in either cage: what it may not read, write, reach, leave behind, or make
//! run in the host. `tests/data/sandbox/attacks.toml` has the attacks; `attacks/sandbox.rs` has more of them, run by this.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Deserialize;
use serde_json::json;

use super::bench::{fixer, journal, no_landlock, no_sandbox, script};
use crate::outside::world::World;

/// The attacks of this file's own tests.
pub const CORPUS: &str = include_str!("../../data/sandbox/attacks.toml");
/// A secret as the canaries of this test hold it.
const CANARY: &str = "canary-7f3a9c-secret";
/// What every attack that leaves something running gives it as argument; each test makes its own of it, since others run
/// beside it.
const MARK: &str = "31.4159";

/// What python programs of the attacks make system calls with; the numbers are those of one kind of processor.
const CALLS: &str = "import ctypes, os, struct, platform
l = ctypes.CDLL(None, use_errno=True)
known = platform.machine() == 'x86_64'
def done(word, number, *values):
    said = l.syscall(number, *values) if known else -1
    print(word if said >= 0 else os.strerror(ctypes.get_errno()))
";

/// A table of attacks.
#[derive(Deserialize)]
pub struct Corpus {
    pub attack: Vec<Attack>,
}

#[derive(Deserialize)]
pub struct Attack {
    pub name: String,
    run: String,
    #[serde(default)]
    never: Vec<String>,
    /// What the fallback does not hold back of it.
    pub lesser: Option<String>,
}

impl Corpus {
    pub fn parse(text: &str) -> Self {
        toml::from_str(text).unwrap()
    }
}

/// A process outside that attacks go for.
struct Victim(std::process::Child);

impl Victim {
    fn start() -> Self {
        Self(std::process::Command::new("sleep").arg("3600").spawn().unwrap())
    }

    /// What became of it: its state, its priority and its limits.
    fn facts(&self) -> String {
        let read =
            |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", self.0.id())).unwrap_or_default();
        let stat = read("stat");
        let fields: Vec<&str> = stat.split(' ').collect();
        let state = fields.get(2).map(|state| if *state == "S" { "runs" } else { "does not run" });
        format!("{state:?} {:?} {}", fields.get(18), read("limits"))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Shared memory of the kernel's, outside.
struct Shared(String);

impl Shared {
    fn make() -> Self {
        let made = std::process::Command::new("ipcmk").args(["-M", "4096", "-p", "0666"]).output();
        let said = made.map(|made| String::from_utf8_lossy(&made.stdout).into_owned()).unwrap_or_default();
        Self(said.trim().rsplit(' ').next().filter(|id| !id.is_empty()).unwrap_or("0").to_owned())
    }

    /// Whether it still is there.
    fn remove(&self) -> bool {
        self.0 == "0"
            || std::process::Command::new("ipcrm")
                .args(["-m", &self.0])
                .output()
                .is_ok_and(|done| done.status.success())
    }
}

/// Files of the system that are not for everyone, which whoever runs the tests can read; and what stands in them.
fn closed() -> (Vec<String>, Vec<String>) {
    let (mut files, mut lines, mut folders) = (Vec::new(), Vec::new(), vec![PathBuf::from("/etc")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                folders.push(entry.path());
            } else if meta.is_file() && meta.permissions().mode() & 0o004 == 0 {
                let Ok(text) = std::fs::read_to_string(entry.path()) else { continue };
                let longest = text.lines().max_by_key(|line| line.len()).unwrap_or_default();
                if longest.len() > 16 {
                    files.push(entry.path().display().to_string());
                    lines.push(longest.to_owned());
                }
            }
        }
    }
    (files, lines)
}

/// What listens outside, and how often it was reached.
pub struct Outside {
    port: u16,
    udp: u16,
    pub abstract_name: String,
    pub reached: Arc<AtomicUsize>,
}

impl Outside {
    pub fn open(home: &Path) -> Self {
        use std::os::linux::net::SocketAddrExt as _;
        use std::os::unix::net::{SocketAddr, UnixListener};
        let reached = Arc::new(AtomicUsize::new(0));
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let abstract_name = format!("agentd-test-{}", uuid::Uuid::new_v4());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let datagrams = SocketAddr::from_abstract_name(format!("{abstract_name}-datagrams")).unwrap();
        let datagrams = std::os::unix::net::UnixDatagram::bind_addr(&datagrams).unwrap();
        let files = [
            UnixListener::bind(home.join("canary.sock")).unwrap(),
            UnixListener::bind(home.join("agent.sock")).unwrap(),
            UnixListener::bind_addr(&address).unwrap(),
        ];
        let made = Self {
            port: tcp.local_addr().unwrap().port(),
            udp: udp.local_addr().unwrap().port(),
            abstract_name,
            reached: Arc::clone(&reached),
        };
        let count = Arc::clone(&reached);
        std::thread::spawn(move || {
            for mut stream in tcp.incoming().flatten() {
                count.fetch_add(1, Ordering::Relaxed);
                drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\nPORT-REACHED\n"));
            }
        });
        for listener in files {
            let count = Arc::clone(&reached);
            std::thread::spawn(move || {
                for mut stream in listener.incoming().flatten() {
                    count.fetch_add(1, Ordering::Relaxed);
                    drop(stream.write_all(CANARY.as_bytes()));
                }
            });
        }
        let count = Arc::clone(&reached);
        std::thread::spawn(move || {
            while datagrams.recv(&mut [0; 64]).is_ok() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        std::thread::spawn(move || {
            while udp.recv(&mut [0; 64]).is_ok() {
                reached.fetch_add(1, Ordering::Relaxed);
            }
        });
        made
    }
}

/// Content, mode and time of files.
type Files = BTreeMap<PathBuf, (Vec<u8>, u32, i64)>;

/// Every file below, but for what runs write: content, mode and time.
fn snapshot(folder: &Path, found: &mut Files) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let meta = path.symlink_metadata().unwrap();
        let skipped = [".worktrees", "state", "programs"].iter().any(|name| path.ends_with(name));
        let git = path.components().any(|part| part.as_os_str() == ".git")
            && !path.starts_with(folder.join("other"));
        let kept_of_git = path.ends_with(".git/config") || path.to_string_lossy().contains("/.git/hooks");
        if meta.is_dir() && !skipped {
            snapshot(&path, found);
        } else if meta.is_file() && (!git || kept_of_git) {
            let mut content = Vec::new();
            std::fs::File::open(&path).unwrap().read_to_end(&mut content).unwrap();
            found.insert(path, (content, meta.permissions().mode(), meta.mtime()));
        }
    }
}

/// What became of the files that were there; what is left in `after` is new.
fn differences(before: &Files, after: &mut Files, times: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for (path, (content, mode, time)) in before {
        // The test itself writes the definition anew.
        let definition = path.to_string_lossy().contains("/.agent/fixer/");
        let what = match after.remove(path) {
            None => "is gone",
            Some((now, _, _)) if now != *content => "differs",
            Some((_, now, _)) if times && now != *mode => "has another mode",
            Some((_, _, now)) if times && !definition && now != *time => "has another time",
            Some(_) => continue,
        };
        wrong.push(format!("{} {what}", path.display()));
    }
    wrong
}

fn turned_back(text: &str) -> String {
    let turn = |c: char| match c {
        'a'..='m' | 'A'..='M' => char::from(c as u8 + 13),
        'n'..='z' | 'N'..='Z' => char::from(c as u8 - 13),
        other => other,
    };
    text.chars().map(turn).collect()
}

/// Command lines of what runs on.
fn survivors(mark: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.trim_end().ends_with(mark)).collect()
}

/// What the attacks printed and must not have.
fn said(world: &World, corpus: &Corpus, mode: &str, templates: &Templates) -> Vec<String> {
    let log = std::fs::read(world.shop().join(".worktrees/issue-7/attack.log")).unwrap();
    let log = turned_back(&String::from_utf8_lossy(&log));
    let mut wrong = Vec::new();
    for (number, attack) in corpus.attack.iter().enumerate() {
        let (_, said) = log
            .split_once(&format!("== {number:02}.sh\n"))
            .unwrap_or_else(|| panic!("{} is missing", attack.name));
        let said = said.split("\n== ").next().unwrap();
        let fixed = [CANARY, "demo-token-of-the-simulator", "a-key-of-the-simulator"].map(str::to_owned);
        let lesser = mode == "landlock" && attack.lesser.is_some();
        let never: Vec<String> = match attack.never.as_slice() {
            _ if lesser => Vec::new(),
            [word] if word == "{closed}" => templates.closed.1.clone(),
            words => words.iter().map(|word| templates.fill(word)).collect(),
        };
        for word in never.iter().chain(&fixed).filter(|word| said.contains(*word)) {
            let line = said.lines().find(|line| line.contains(word.as_str())).unwrap_or_default();
            wrong.push(format!("{}: it printed \"{word}\" in: {line}", attack.name));
        }
    }
    wrong
}

/// What stands in for the names in braces.
struct Templates {
    closed: (Vec<String>, Vec<String>),
    words: Vec<(&'static str, String)>,
}

impl Templates {
    fn fill(&self, text: &str) -> String {
        self.words.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }
}

/// What a program can leave that others would run, or be held up by.
fn left_behind(folder: &Path, wrong: &mut Vec<String>) {
    use std::os::unix::fs::FileTypeExt as _;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let meta = path.symlink_metadata().unwrap();
        let kind = meta.file_type();
        if meta.is_file() && meta.permissions().mode() & 0o6000 != 0 {
            wrong.push(format!("{} runs as its owner", path.display()));
        } else if kind.is_fifo() || kind.is_char_device() || kind.is_block_device() {
            wrong.push(format!("{} is a pipe or a device", path.display()));
        } else if meta.is_dir() {
            left_behind(&path, wrong);
        }
    }
}

/// Canaries, in the places where people have secrets.
async fn plant(world: &World) {
    for file in [
        ".netrc",
        ".git-credentials",
        ".npmrc",
        ".ssh/id_ed25519",
        ".aws/credentials",
        ".docker/config.json",
        ".config/gh/hosts.yml",
        "other/.git/config",
        "shop/.agentd.env.example",
    ] {
        world.write(file, CANARY);
    }
    world.write("shop/.agentd.env", &format!("CANARY={CANARY}\n"));
    world.write(".gitconfig", &format!("[credential]\n\thelper = store\n[http]\n\textraHeader = {CANARY}\n"));
    world.write("outside.txt", "untouched\n");
    world.git(&world.shop(), &["config", "http.https://example.org/.extraHeader", CANARY]).await;
}

/// Runs a table of attacks in the sandbox of that mode, and looks from outside at what became of them.
pub async fn attack(mode: &str, corpus: &str) {
    let world = World::new(0).await;
    let home = world.dir.path().to_owned();
    plant(&world).await;
    let outside = Outside::open(&home);
    let (victim, shared) = (Victim::start(), Shared::make());
    // Left open to whatever is started from here on, as a shell's redirection is.
    let open = std::fs::File::open(home.join(".netrc")).unwrap();
    nix::fcntl::fcntl(&open, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
    let overlay = std::fs::read_to_string(home.join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n[sandbox]\nmode = \"{mode}\"\nmax_tmp_mib = 8\n"));
    let corpus = Corpus::parse(corpus);
    let mark = format!("{MARK}{}{}", std::process::id(), mode.len());
    let closed = closed();
    let words = vec![
        (MARK, mark.clone()),
        ("{home}", home.display().to_string()),
        ("{shop}", world.shop().display().to_string()),
        ("{state}", home.join("state").display().to_string()),
        ("{port}", outside.port.to_string()),
        ("{udp}", outside.udp.to_string()),
        ("{abstract}", outside.abstract_name.clone()),
        ("{victim}", victim.0.id().to_string()),
        ("{shm}", shared.0.clone()),
        ("{open}", std::os::fd::AsRawFd::as_raw_fd(&open).to_string()),
        ("{own}", env!("CARGO_BIN_EXE_agentd").to_owned()),
        ("{closed}", closed.0.join(" ")),
    ];
    let templates = Templates { closed, words };
    for (number, attack) in corpus.attack.iter().enumerate() {
        let text = templates.fill(&attack.run);
        script(&world, &format!("attacks/{number:02}.sh"), &format!("{text}\n"));
    }
    // Links that lead out go at the end: the policy would take back all that the program did, the log of it included.
    let runner = format!(
        "#!/bin/bash\ncat >/dev/null\nout=$TMPDIR/out\nexport PATH=/usr/bin:/bin:$PATH\nexport CALLS=\"{CALLS}\"\n"
    ) + "for file in \"$(dirname \"$0\")\"/attacks/*.sh; do\n\
        timeout -k 1 8 bash \"$file\" >$out 2>&1 </dev/null; echo \"== ${file##*/}\"; head -c 20000 $out; echo\n\
        done | tr 'A-Za-z' 'N-ZA-Mn-za-m' > attack.log\nfind . -type l -delete\necho survived\n";
    let program = json!({"argv": [script(&world, "runner.sh", &runner)], "network": ["allowed.example"]});
    fixer(&world, "command", &program);
    // As in a policy that says nothing of the files that steer git: what is written into them is met by agentd's own git.
    let policy = std::fs::read_to_string(world.shop().join(".agent/policy.toml")).unwrap();
    let examples = [
        r#", ".gitmodules", "**/.gitattributes""#,
        r#", ".gitmodules", "docs/.gitattributes""#,
        r#", ".gitmodules", ".gitattributes""#,
    ];
    let open = examples.iter().fold(policy, |policy, steering| policy.replace(steering, ""));
    assert!(!open.contains(".gitmodules"), "{open}");
    world.write("shop/.agent/policy.toml", &open);
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    snapshot(&home, &mut before);
    let kernel = kernel_settings();
    let unharmed = victim.facts();

    let (_, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    let all = journal(&world, &output);
    assert!(all.contains("survived"), "the attacks ran to their end: {output:#}");
    let name = if mode == "auto" { "bubblewrap" } else { mode };
    assert!(all.contains(&format!("\"sandbox\":\"{name}\"")), "{output:#}");
    let mut wrong = said(&world, &corpus, mode, &templates);
    if victim.facts() != unharmed {
        wrong.push(format!("the process outside was {unharmed}, and is {}", victim.facts()));
    }
    if !shared.remove() {
        wrong.push("the shared memory outside is gone".to_owned());
    }
    left_behind(&world.shop().join(".worktrees/issue-7"), &mut wrong);
    if outside.reached.load(Ordering::Relaxed) > 0 {
        wrong.push("something outside was reached".to_owned());
    }
    // The second run meets what the first one left in the worktree.
    fixer(&world, "command", &json!({"argv": ["true"]}));
    let (_, again) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    assert!(again["run_id"].is_string(), "{again:#}");
    world.git(&world.shop(), &["status"]).await;
    world.git(&world.shop().join(".worktrees/issue-7"), &["log", "-1"]).await;
    if home.join("HOOKED").exists() {
        wrong.push("something of the agent's ran in the host".to_owned());
    }
    // The agent's definition was written anew by this test.
    fixer(&world, "command", &program);
    snapshot(&home, &mut after);
    after.remove(&home.join("canary.sock"));
    let times = !(mode == "landlock" && corpus.attack.iter().any(|attack| attack.lesser.is_some()));
    wrong.extend(differences(&before, &mut after, times));
    wrong.extend(after.keys().map(|path| format!("{} is new", path.display())));
    wrong.extend(survivors(&mark).into_iter().map(|line| format!("it runs on: {line}")));
    for place in ["/usr/bin", "/usr", "/etc", "/opt", "/", "/tmp", "/var/tmp"] {
        let place = Path::new(place).join("agentd-was-here");
        if place.exists() {
            wrong.push(format!("{} was written", place.display()));
        }
    }
    for (place, was) in kernel {
        if std::fs::read(&place).ok().as_ref() != Some(&was) {
            // The machine of whoever runs the tests is theirs.
            std::fs::write(&place, &was).ok();
            wrong.push(format!("{} was changed", place.display()));
        }
    }
    assert!(wrong.is_empty(), "{} things went wrong:\n{}", wrong.len(), wrong.join("\n"));
    world.finish().await;
}

/// Settings of the machine that the corpus goes for.
fn kernel_settings() -> Vec<(PathBuf, Vec<u8>)> {
    ["kernel/core_pattern", "net/ipv4/ip_forward", "kernel/hostname"]
        .iter()
        .map(|name| Path::new("/proc/sys").join(name))
        .filter_map(|place| Some((place.clone(), std::fs::read(&place).ok()?)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn d56_no_attack_gets_out_of_bubblewrap() {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped, there is no sandbox here: {why}");
        return;
    }
    attack("auto", CORPUS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d56_no_attack_gets_out_of_landlock_but_for_what_is_said() {
    if let Some(why) = no_landlock() {
        eprintln!("skipped: {why}");
        return;
    }
    attack("landlock", CORPUS).await;
}
