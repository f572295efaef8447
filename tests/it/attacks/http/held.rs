//! Connections that are held open: each ends, and while they are there work goes on.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::Front;
use crate::outside::daemons::until;
use crate::outside::world::World;

/// How a connection is held, what is sent at once, and what is sent again and again.
pub const ROWS: &[(&str, &str, &str)] = &[
    ("silent", "", ""),
    ("a byte", "G", ""),
    ("half a line", "GET /health HT", ""),
    ("a head without end", "GET /health HTTP/1.1\r\nHost: localhost\r\n", ""),
    ("a head, letter by letter", "GET /health HTTP/1.1\r\nHost: localhost\r\nX: ", "a"),
    ("a head, header by header", "GET /health HTTP/1.1\r\nHost: localhost\r\n", "X: a\r\n"),
    ("empty lines", "\r\n", "\r\n"),
    ("idle after an answer", "GET /status.css HTTP/1.1\r\nHost: localhost\r\n\r\n", ""),
    (
        "a body that never comes",
        "POST /webhooks/github HTTP/1.1\r\nHost: localhost\r\nX-Hub-Signature-256: %Z\r\nContent-Length: 100\r\n\r\n",
        "",
    ),
    (
        "a body, letter by letter",
        "POST /webhooks/github HTTP/1.1\r\nHost: localhost\r\nX-Hub-Signature-256: %Z\r\nContent-Length: 99999\r\n\r\n",
        "a",
    ),
    (
        "a body, piece by piece",
        "POST /webhooks/github HTTP/1.1\r\nHost: localhost\r\nX-Hub-Signature-256: %Z\r\nTransfer-Encoding: chunked\r\n\r\n",
        "1\r\na\r\n",
    ),
    (
        "a login, letter by letter",
        "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\n\r\n",
        "a",
    ),
    (
        "a body for nobody",
        "GET /status.css HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n",
        "a",
    ),
];

const FRONT: &str = "poll_interval = \"1s\"\nwebhook_secret = \"${HOOK_SECRET}\"\ntoken = \"${FRONT_TOKEN}\"";

/// How long a connection was held.
fn held(mut stream: TcpStream, first: &str, again: &str) -> Duration {
    let began = Instant::now();
    let zeros = format!("sha256={}", "0".repeat(64));
    stream.write_all(first.replace("%Z", &zeros).as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut buffer = [0; 4096];
    while began.elapsed() < Duration::from_secs(120) {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
        if stream.write_all(again.as_bytes()).is_err() {
            break;
        }
    }
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_holds_a_connection_for_long() {
    let world = World::new(0).await;
    let front = Front::start(&world, FRONT, "");
    let streams: Vec<TcpStream> = ROWS.iter().map(|_| front.connect()).collect();
    let held: Vec<Duration> = tokio::task::spawn_blocking(|| {
        let rows = streams.into_iter().zip(ROWS);
        let threads: Vec<_> =
            rows.map(|(stream, row)| std::thread::spawn(move || held(stream, row.1, row.2))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
    .await
    .unwrap();
    let wrong: Vec<_> = ROWS.iter().zip(held).filter(|(_, held)| *held > Duration::from_secs(60)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_connections_than_files_do_not_stop_work() {
    let world = World::new(1).await;
    let front = Front::start(&world, FRONT, "ulimit -n 256;");
    // Begun again and again, as who means it does.
    let address = ([127, 0, 0, 1], front.port).into();
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    let idle: Vec<TcpStream> = (0..500).filter_map(connect).collect();
    for (number, mut stream) in idle.iter().enumerate() {
        let _ = stream.write_all(if number % 2 == 0 { b"GET / HT" } else { b"" });
    }
    // Who comes now is told so, and not left waiting.
    let ask = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(front.say(ask.as_bytes()).0, 503);
    let open = || std::fs::read_dir(format!("/proc/{}/fd", front.pid())).unwrap().count();
    let files = open();
    assert!(files < 160, "{files} files are open");
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    until("done", || world.labels() == ["agentd:done"]).await;
    world.assert_one_of_each();
    // When they are gone there is room again.
    drop(idle);
    until("room", || front.say(ask.as_bytes()).0 == 200).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_on_files_is_raised_to_what_the_system_lets_it_be() {
    let world = World::new(0).await;
    let front = Front::start(&world, FRONT, "ulimit -Sn 200;");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", front.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert_eq!(numbers[0], numbers[1].min(65_536), "{line}");
    world.finish().await;
}
