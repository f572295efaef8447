//! Lines on a server's standard output that are no messages, such as a log or a banner: they are passed over, and the
//! first few are told.

use std::sync::{Mutex, PoisonError};

use super::server_config::ServerTransport;
use crate::domain::call_text::one_line;

/// Lines that are told one by one.
const TOLD: u64 = 3;

/// Characters of one that are told.
const LONGEST: usize = 300;

/// Those of one start of a server.
#[derive(Debug)]
pub(super) struct OddLines {
    server: String,
    transport: ServerTransport,
    /// How many there were, and the first one.
    seen: Mutex<(u64, Option<String>)>,
}

impl OddLines {
    pub(super) fn of(server: &str, transport: ServerTransport) -> Self {
        Self { server: server.to_owned(), transport, seen: Mutex::default() }
    }

    pub(super) fn note(&self, line: &[u8]) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.0 += 1;
        if seen.0 > TOLD {
            return;
        }
        let line = one_line(&self.transport.clean(&String::from_utf8_lossy(line)), LONGEST);
        tracing::warn!(
            server = self.server,
            line,
            "an MCP server wrote a line that is no message; it is passed over"
        );
        seen.1.get_or_insert(line);
    }

    /// The first one.
    pub(super) fn first(&self) -> Option<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }
}

impl Drop for OddLines {
    fn drop(&mut self) {
        let (lines, _) = self.seen.get_mut().unwrap_or_else(PoisonError::into_inner);
        if *lines > TOLD {
            tracing::warn!(
                server = self.server,
                lines,
                "an MCP server wrote lines that are no messages; these are all"
            );
        }
    }
}
