//! What strangers may not do to the daemon's port, and caged programs to the proxy: read, order, hold it up, or lead elsewhere.
#![expect(
    clippy::disallowed_methods,
    reason = "the daemon, a shell and a TLS server are started as people start them"
)]

mod held;
mod proxied;
mod table;

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::outside::world::World;

pub const TOKEN: &str = "front-token-0123456789abcdef";
pub const HOOK_SECRET: &str = "a secret of the hooks";

/// Attempts here.
pub const CASES: usize = table::ROWS.len() + held::ROWS.len() + proxied::ROWS.len();
const _: () = assert!(CASES + super::mcp::CASES >= 60, "attacks may be added, not lost");

/// A daemon with a front on a free port; killed when dropped.
pub struct Front {
    child: Child,
    pub port: u16,
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Front {
    /// `more`: lines of `[daemon]`; `limits`: what a shell sets before the daemon.
    pub fn start(world: &World, more: &str, limits: &str) -> Self {
        let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
        let daemon = format!("[daemon]\nlisten = \"127.0.0.1:0\"\n{more}\n");
        world.write("front.toml", &format!("{overlay}\n{daemon}"));
        let own = world.command(&[]);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{limits} exec \"$0\" --config \"$1\" daemon")]);
        command.arg(own.get_program()).arg(world.dir.path().join("front.toml"));
        command.current_dir(own.get_current_dir().unwrap()).env_clear();
        command.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("FRONT_TOKEN", TOKEN).env("HOOK_SECRET", HOOK_SECRET);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut before = Vec::new();
        let told = lines.find_map(|line| {
            before.push(line.clone());
            line.split_once("listening on http://127.0.0.1:")?.1.trim_end_matches('/').parse().ok()
        });
        std::thread::spawn(move || lines.for_each(drop));
        Self { port: told.unwrap_or_else(|| panic!("{before:?}")), child }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Sends bytes as they are; what comes back, its status first. 0 = nothing came.
    pub fn say(&self, bytes: &[u8]) -> (u16, String) {
        let mut stream = self.connect();
        // It may answer and hang up before everything is sent.
        let _ = stream.write_all(bytes);
        answer(&mut stream)
    }
}

/// One answer: its head, and as much of its body as it says that it has.
pub fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let whole = String::from_utf8_lossy(&text).into_owned();
        let head = whole.find("\r\n\r\n");
        let length = |name: &str| {
            let lower = whole.to_ascii_lowercase();
            lower.split_once(name)?.1.split("\r\n").next()?.trim().parse::<usize>().ok()
        };
        let streams = whole.contains("text/event-stream") && whole.contains("event:");
        let done = head.is_some_and(|head| {
            length("content-length:").is_some_and(|length| text.len() >= head + 4 + length)
        });
        if done || streams {
            break;
        }
        match stream.read(&mut buffer) {
            Ok(read @ 1..) => text.extend_from_slice(&buffer[..read]),
            _ => break,
        }
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, text)
}
