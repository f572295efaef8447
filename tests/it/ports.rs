//! Ports for servers that take no port of the system's choice.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that the system gives to connections, so that none of them takes one before its server has it.
const RANGE: std::ops::Range<u16> = 10_000..32_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port that nobody has, and that no other test of this process is given.
pub fn free_port() -> u16 {
    // Two runs of the tests at a time begin apart.
    let begin = std::process::id() * 211;
    loop {
        let at = begin.wrapping_add(u32::from(NEXT.fetch_add(1, Ordering::Relaxed)));
        let port = RANGE.start + (at % RANGE.len() as u32) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
