//! Tunnels and requests of caged programs that name another host than the one they are let through to.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::agents::bench::{fixer, journal, no_sandbox, script};
use crate::outside::world::World;

/// Name, what the program runs in the cage (`%P` a TLS server's port, `%A` a plain one's), and whether it reaches the server.
pub const ROWS: &[(&str, &str, bool)] = &[
    ("honest", "tls localhost:%P localhost", true),
    ("another_name", "tls localhost:%P evil.example", false),
    ("a_name_below", "tls localhost:%P a.localhost", false),
    ("its_name_in_another", "tls localhost:%P localhost.evil.example", false),
    ("capitals", "tls localhost:%P LOCALHOST", true),
    ("no_name", "bare localhost:%P", false),
    ("an_address", "bare 127.0.0.1:%P", true),
    ("an_address_with_a_name", "tls 127.0.0.1:%P evil.example", false),
    ("plain_honest", "say localhost:%A 'GET / HTTP/1.1\\r\\nHost: localhost:%A\\r\\n\\r\\n'", true),
    ("plain_another", "say localhost:%A 'GET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n'", false),
    (
        "plain_two",
        "say localhost:%A 'GET / HTTP/1.1\\r\\nHost: localhost:%A\\r\\nHost: evil.example\\r\\n\\r\\n'",
        false,
    ),
    (
        "plain_in_the_path",
        "say localhost:%A 'GET http://evil.example/ HTTP/1.1\\r\\nHost: localhost:%A\\r\\n\\r\\n'",
        false,
    ),
    ("plain_none", "say localhost:%A 'GET / HTTP/1.1\\r\\n\\r\\n'", false),
    ("half_a_greeting", "say localhost:%A '\\x16\\x03\\x01\\x00\\x04\\x63\\x00\\x00\\x00'", false),
    ("passed_honest", "pass http://localhost:%A/ localhost:%A", true),
    ("passed_another", "pass http://localhost:%A/ evil.example", false),
];

/// `REACHED` where the server's own words come back.
const TOOLS: &str = r#"#!/usr/bin/python3
import socket, ssl, sys
HELD = r'''%ROWS'''
def tunnel(target):
    s = socket.create_connection(("127.0.0.1", 3128), 10)
    s.settimeout(10)
    s.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        piece = s.recv(1)
        if not piece: raise OSError("refused")
        head += piece
    if b" 200 " not in head.split(b"\r\n")[0] + b" ": raise OSError(head.decode())
    return s
def tls(target, name=None):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    s = context.wrap_socket(tunnel(target), server_hostname=name)
    s.sendall(b"GET /hello.txt HTTP/1.0\r\n\r\n")
    return s.recv(4096)
def say(target, text):
    s = tunnel(target)
    s.sendall(text.encode().decode("unicode_escape").encode("latin-1"))
    return s.recv(4096)
def passed(url, host):
    s = socket.create_connection(("127.0.0.1", 3128), 10)
    s.settimeout(10)
    s.sendall(f"GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    return s.recv(4096)
import shlex
sys.stdin.read()
for line in HELD.splitlines():
    name, _, rest = line.partition("|")
    do, *args = shlex.split(rest)
    try:
        got = {"tls": tls, "bare": tls, "say": say, "pass": passed}[do](*args)
        came = b"HTTP/1." in got and b"agentd:" not in got
        print(name, "REACHED" if came else "NOT", flush=True)
    except Exception as error:
        print(name, "NOT", type(error).__name__, flush=True)
"#;

/// A TLS server on a free port; ended when dropped.
struct Secure(std::process::Child, u16);

impl Drop for Secure {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn secure(world: &World) -> Option<Secure> {
    use std::io::BufRead as _;
    world.write("tls/hello.txt", "HTTP/1.0 200 OK\r\n\r\nhello\n");
    let folder = world.dir.path().join("tls");
    let made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout k.pem -out c.pem -days 2 -subj /CN=x";
    let made = Command::new("openssl").args(made.split(' ')).current_dir(&folder).output().ok()?;
    if !made.status.success() {
        return None;
    }
    let mut server = Command::new("openssl")
        .args(["s_server", "-HTTP", "-accept", "127.0.0.1:0", "-cert", "c.pem", "-key", "k.pem"])
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut lines = std::io::BufReader::new(server.stdout.take()?).lines().map_while(Result::ok);
    let port = lines.find_map(|line| line.strip_prefix("ACCEPT ")?.rsplit(':').next()?.parse().ok());
    std::thread::spawn(move || lines.for_each(drop));
    port.map(|port| Secure(server, port))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_leads_to_the_host_that_it_names() {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped: {why}");
        return;
    }
    // Not one of a home directory: nothing of that is in the cage.
    let python = std::path::Path::new("/usr/bin/python3");
    if !python.exists() {
        eprintln!("skipped: there is no {}", python.display());
        return;
    }
    let world = World::new(0).await;
    let Some(server) = secure(&world) else {
        eprintln!("skipped: there is no TLS server here");
        return;
    };
    let url = world.sim.api_url();
    let plain = url.trim_start_matches("http://").split('/').next().unwrap().rsplit(':').next().unwrap();
    let rows: Vec<String> = ROWS
        .iter()
        .map(|(name, what, _)| {
            format!("{name}|{what}").replace("%P", &server.1.to_string()).replace("%A", plain)
        })
        .collect();
    let program = script(&world, "tunnels.py", &TOOLS.replace("%ROWS", &rows.join("\n")));
    let hosts: Vec<String> =
        [format!("localhost:{}", server.1), format!("127.0.0.1:{}", server.1), format!("localhost:{plain}")]
            .into();
    fixer(&world, "command", &json!({"argv": [program], "network": hosts}));
    let (_, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    let report = output["final_report"]["content"].as_str().unwrap_or_default();
    let expected = |reached: bool| if reached { "REACHED" } else { "NOT" };
    let came = |start: &str| report.lines().any(|line| line.starts_with(start));
    let expected = ROWS.iter().map(|(name, _, reached)| format!("{name} {}", expected(*reached)));
    let wrong: Vec<String> = expected.filter(|expected| !came(expected)).collect();
    assert!(wrong.is_empty(), "{wrong:?}: {report}\n{output:#}");
    let told = journal(&world, &output);
    let asked = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let asked = asked
        .filter(|event| event["kind"] == "network_asked")
        .map(|event| event.to_string())
        .collect::<String>();
    for words in [
        "its TLS greeting names another host",
        "its TLS greeting names no host",
        "its request names another host",
    ] {
        assert!(asked.contains(words), "{words}: {asked}");
    }
    world.sim.shutdown().await;
}
