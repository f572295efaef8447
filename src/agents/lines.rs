//! The lines of a program, which may write anything: limited in length and in sum.

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// Longest line.
const LONGEST: usize = 16 << 20;
/// Most bytes of one launch.
const MOST: u64 = 512 << 20;

/// What a stream gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line, its end left out.
    Text(String),
    /// The stream is over.
    End,
    /// It was too much.
    Flood,
}

/// Reads lines. Dropping a read loses nothing.
pub(super) struct Lines<R> {
    source: R,
    buffer: Vec<u8>,
    total: u64,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, buffer: Vec::new(), total: 0 }
    }

    /// The next line.
    pub(super) async fn next(&mut self) -> std::io::Result<Line> {
        loop {
            let found = self.source.fill_buf().await?;
            if found.is_empty() {
                if self.buffer.is_empty() {
                    return Ok(Line::End);
                }
                return Ok(self.take());
            }
            let end = found.iter().position(|byte| *byte == b'\n');
            let used = end.map_or(found.len(), |at| at + 1);
            self.buffer.extend_from_slice(&found[..end.unwrap_or(used)]);
            self.source.consume(used);
            self.total += used as u64;
            if self.buffer.len() > LONGEST || self.total > MOST {
                return Ok(Line::Flood);
            }
            if end.is_some() {
                return Ok(self.take());
            }
        }
    }

    fn take(&mut self) -> Line {
        let line = String::from_utf8_lossy(&self.buffer).into_owned();
        self.buffer.clear();
        Line::Text(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_come_whole_and_a_line_without_end_is_a_flood() {
        let mut lines = Lines::new(&b"one\ntwo"[..]);
        assert_eq!(lines.next().await.unwrap(), Line::Text("one".into()));
        assert_eq!(lines.next().await.unwrap(), Line::Text("two".into()));
        assert_eq!(lines.next().await.unwrap(), Line::End);
        let endless = vec![b'x'; LONGEST + 1];
        assert_eq!(Lines::new(&endless[..]).next().await.unwrap(), Line::Flood);
    }
}
