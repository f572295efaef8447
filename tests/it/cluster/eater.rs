//! A connection to a server in whose middle somebody eats answers, holds them back, or writes something else into them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What becomes of one answer of the server: a line of its protocol and the bytes that belong to it. `None` = it is lost.
pub type Change = Arc<dyn Fn(Vec<u8>) -> Option<Vec<u8>> + Send + Sync>;

/// Listens for as long as the test lives, and gives the address.
pub fn between(server: String, change: Change) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(client) = client else { return };
            let Ok(server) = TcpStream::connect(&server) else { continue };
            let (up_from, up_to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || {
                let (mut from, mut to) = (up_from, up_to);
                let _ended = std::io::copy(&mut from, &mut to);
                let _gone = to.shutdown(Shutdown::Both);
            });
            let change = Arc::clone(&change);
            std::thread::spawn(move || {
                let mut to = client.try_clone().unwrap();
                let mut from = BufReader::new(server);
                while let Some(answer) = next(&mut from) {
                    let Some(answer) = change(answer) else { continue };
                    if to.write_all(&answer).is_err() {
                        break;
                    }
                }
                let _gone = to.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

/// What ends a connection when it is about to pass, and how often that was.
#[derive(Default)]
struct Ending {
    words: Mutex<Option<&'static str>>,
    times: AtomicUsize,
}

/// A way to a server that can be shut: what is on it then comes late, in both directions, and no connection ends. Or it is cut: every
/// connection ends, and no new one is taken.
pub struct Gate {
    pub address: String,
    shut: Arc<AtomicBool>,
    cut: Arc<AtomicBool>,
    ending: Arc<Ending>,
}

impl Gate {
    /// An open one, for as long as the test lives.
    pub fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (shut, cut) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (is_shut, is_cut) = (Arc::clone(&shut), Arc::clone(&cut));
        let ending = Arc::new(Ending::default());
        let ends = Arc::clone(&ending);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let other = (client.try_clone().unwrap(), server.try_clone().unwrap());
                for (from, to) in [(client, server), (other.1, other.0)] {
                    let (is_shut, is_cut) = (Arc::clone(&is_shut), Arc::clone(&is_cut));
                    let ends = Arc::clone(&ends);
                    std::thread::spawn(move || through(from, to, [&is_shut, &is_cut], &ends));
                }
            }
        });
        Self { address, shut, cut, ending }
    }

    /// Ends each connection on which these words are about to pass, which they do not.
    pub fn end_before(&self, words: Option<&'static str>) {
        *self.ending.words.lock().unwrap() = words;
    }

    /// How many connections that ended.
    pub fn ended(&self) -> usize {
        self.ending.times.load(Ordering::SeqCst)
    }

    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    pub fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
    }

    pub fn open(&self) {
        self.shut.store(false, Ordering::SeqCst);
        self.cut.store(false, Ordering::SeqCst);
    }
}

fn through(mut from: TcpStream, mut to: TcpStream, [is_shut, is_cut]: [&AtomicBool; 2], ending: &Ending) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count) = from.read(&mut bytes) {
        while is_shut.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let has = |words: &str| bytes[..count].windows(words.len()).any(|part| part == words.as_bytes());
        if ending.words.lock().unwrap().is_some_and(has) {
            ending.times.fetch_add(1, Ordering::SeqCst);
            break;
        }
        if count == 0 || is_cut.load(Ordering::SeqCst) || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _gone = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
}

/// One answer: `INFO`, `PING`, `+OK` and such are lines; `MSG` and `HMSG` say how many bytes follow.
fn next(from: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut answer = Vec::new();
    if from.read_until(b'\n', &mut answer).ok()? == 0 {
        return None;
    }
    let line = String::from_utf8_lossy(&answer).into_owned();
    let mut words = line.split_whitespace();
    if matches!(words.next(), Some("MSG" | "HMSG")) {
        let bytes: usize = words.next_back()?.parse().ok()?;
        let mut payload = vec![0; bytes + 2];
        from.read_exact(&mut payload).ok()?;
        answer.extend(payload);
    }
    Some(answer)
}

/// Whether it is a server's word that a message is kept.
pub fn is_acknowledgement(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    text.contains("\"stream\":\"agentd_") && text.contains("\"seq\":") && !text.contains("\"config\"")
}

/// A way to a server on which some answers come so much later than the others.
pub fn late(server: String, which: fn(&[u8]) -> bool, by: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(client) = client else { return };
            let Ok(server) = TcpStream::connect(&server) else { continue };
            let (up_from, up_to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || {
                let (mut from, mut to) = (up_from, up_to);
                let _ended = std::io::copy(&mut from, &mut to);
                let _gone = to.shutdown(Shutdown::Both);
            });
            std::thread::spawn(move || {
                let to = Arc::new(Mutex::new(client));
                let mut from = BufReader::new(server);
                while let Some(answer) = next(&mut from) {
                    if which(&answer) {
                        let to = Arc::clone(&to);
                        std::thread::spawn(move || {
                            std::thread::sleep(by);
                            let _gone = to.lock().unwrap().write_all(&answer);
                        });
                    } else if to.lock().unwrap().write_all(&answer).is_err() {
                        break;
                    }
                }
                let _gone = to.lock().unwrap().shutdown(Shutdown::Both);
            });
        }
    });
    address
}
