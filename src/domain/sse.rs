//! Server-sent events: bytes in any slices in, whole events out. Lenient: an unknown field, broken text or a missing last
//! blank line costs nothing else.

/// Longest line, and longest event, in bytes; what is longer is skipped.
const LONGEST: usize = 32 << 20;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// The `event:` field, where there is one.
    pub name: Option<String>,
    /// The `data:` lines, joined.
    pub data: String,
}

/// Cuts a stream into events; keeps what is not complete yet.
#[derive(Debug, Default)]
pub struct Events {
    line: Vec<u8>,
    after_cr: bool,
    too_long: bool,
    name: Option<String>,
    data: Option<String>,
}

impl Events {
    /// Takes the next bytes and gives the events they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Event> {
        let mut complete = Vec::new();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let second_half = std::mem::take(&mut self.after_cr) && end == 0 && rest[0] == b'\n';
            if !second_half {
                self.append(&rest[..end]);
                complete.extend(self.end_line());
            }
            self.after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
        }
        if !rest.is_empty() {
            self.after_cr = false;
            self.append(rest);
        }
        complete
    }

    /// The stream is over: an event whose last blank line is missing counts.
    pub fn finish(&mut self) -> Option<Event> {
        let by_line = self.end_line();
        by_line.or_else(|| self.end_event())
    }

    fn append(&mut self, piece: &[u8]) {
        let length = self.line.len() + piece.len() + self.data.as_ref().map_or(0, String::len);
        if self.too_long || length > LONGEST {
            self.too_long = true;
            self.line = Vec::new();
        } else {
            self.line.extend_from_slice(piece);
        }
    }

    fn end_line(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.too_long) {
            return None;
        }
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return self.end_event();
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.strip_prefix('\u{feff}').unwrap_or(&line);
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            "event" => self.name = Some(value.to_owned()),
            // Comments, ids and reconnection times mean nothing here.
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<Event> {
        let name = self.name.take();
        Some(Event { name, data: self.data.take()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = ": hello\n\nevent: a\ndata: {\"x\":\ndata: 1}\n\r\ndata:two\r\n\r\nid: 7\rdata: thr\u{00e9}e\r\r\ndata: last";

    fn read(slices: impl Iterator<Item = Vec<u8>>) -> Vec<Event> {
        let mut events = Events::default();
        let mut all: Vec<Event> = slices.flat_map(|slice| events.push(&slice)).collect();
        all.extend(events.finish());
        all
    }

    #[test]
    fn events_are_the_same_however_the_stream_is_sliced() {
        let whole = read(std::iter::once(STREAM.as_bytes().to_vec()));
        let data: Vec<&str> = whole.iter().map(|event| event.data.as_str()).collect();
        assert_eq!(data, ["{\"x\":\n1}", "two", "thr\u{e9}e", "last"]);
        assert_eq!(whole[0].name.as_deref(), Some("a"));
        for size in 1..STREAM.len() {
            assert_eq!(read(STREAM.as_bytes().chunks(size).map(<[u8]>::to_vec)), whole, "slices of {size}");
        }
    }

    #[test]
    fn an_endless_line_is_not_kept_and_the_next_event_is_read() {
        let mut events = Events::default();
        for _ in 0..(LONGEST / (1 << 20)) + 2 {
            assert_eq!(events.push(&vec![b'x'; 1 << 20]), []);
        }
        assert!(events.line.len() <= LONGEST);
        let read = events.push(b"\ndata: next\n\n");
        assert_eq!(read.iter().map(|event| event.data.as_str()).collect::<Vec<_>>(), ["next"]);
    }
}
