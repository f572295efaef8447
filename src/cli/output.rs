//! The only place that prints: results on stdout, everything else on stderr.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};

use serde::Serialize;

use super::args::{Global, LogFormat};
use super::error::CommandError;
use crate::config::Env;
use crate::domain::untrusted::{is_hidden, visible};

/// How this process talks: which streams are terminals, whether colours and JSON are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    json: bool,
    /// A JSON document is one line, as those before it.
    lines: bool,
    /// What is said on stderr are lines of the log, which is JSON.
    logged: bool,
    quiet: bool,
    stdout_colour: bool,
    stderr_colour: bool,
    stderr_is_terminal: bool,
}

/// A meaning that a colour carries; the text says the same without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// It is well.
    Good,
    /// Look at it.
    Warn,
    /// It is wrong.
    Bad,
    /// Less important.
    Dim,
    /// More important.
    Strong,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Warn => "33",
            Self::Bad => "31",
            Self::Dim => "2",
            Self::Strong => "1",
        }
    }
}

impl Output {
    /// What flags, `NO_COLOR` and the streams say.
    pub fn new(global: &Global, env: &Env) -> Self {
        let colours = !global.no_color && env.filled("NO_COLOR").is_none() && env.get("TERM") != Some("dumb");
        Self {
            json: global.json,
            lines: false,
            logged: global.log_format == LogFormat::Json,
            quiet: global.quiet,
            stdout_colour: colours && io::stdout().is_terminal(),
            stderr_colour: colours && io::stderr().is_terminal(),
            stderr_is_terminal: io::stderr().is_terminal(),
        }
    }

    /// Before the arguments could be read: plain, JSON as asked.
    pub fn plain(json: bool) -> Self {
        Self {
            json,
            lines: false,
            logged: false,
            quiet: false,
            stdout_colour: false,
            stderr_colour: false,
            stderr_is_terminal: false,
        }
    }

    /// The same for JSON Lines: every document is one line.
    pub fn in_lines(self, lines: bool) -> Self {
        Self { lines, ..self }
    }

    /// Whether stdout is one JSON document.
    pub fn json(self) -> bool {
        self.json
    }

    /// Whether a live view can be drawn.
    pub fn is_live(self) -> bool {
        self.stderr_is_terminal && !self.quiet && !self.logged
    }

    /// Whether the result may be coloured.
    pub fn colours(self) -> bool {
        self.stdout_colour
    }

    /// Whether the log may be coloured.
    pub fn log_colour(self) -> bool {
        self.stderr_colour
    }

    /// A line of the result.
    pub fn line(self, text: impl AsRef<str>) -> Result<(), CommandError> {
        self.result(&format!("{}\n", text.as_ref()))
    }

    /// Text of the result, for people.
    pub fn result(self, text: &str) -> Result<(), CommandError> {
        self.bytes(harmless(text).as_bytes())
    }

    /// Bytes of the result: as they are for a program, on a terminal as text for people.
    pub fn file(self, bytes: &[u8]) -> Result<(), CommandError> {
        match io::stdout().is_terminal() {
            true => self.result(&String::from_utf8_lossy(bytes)),
            false => self.bytes(bytes),
        }
    }

    /// Bytes of the result as they are.
    pub fn bytes(self, bytes: &[u8]) -> Result<(), CommandError> {
        let mut stdout = io::stdout().lock();
        kept(stdout.write_all(bytes).and_then(|()| stdout.flush()))
    }

    /// Everything of a source, as it comes, until it ends.
    pub fn stream(self, mut source: impl io::Read) -> Result<(), CommandError> {
        let (mut stdout, mut chunk) = (io::stdout().lock(), vec![0; 64 * 1024]);
        while let Ok(read @ 1..) = source.read(&mut chunk) {
            if let Err(error) = stdout.write_all(&chunk[..read]).and_then(|()| stdout.flush()) {
                return kept(Err(error));
            }
        }
        Ok(())
    }

    /// A JSON document as the result: indented, or, among JSON Lines, one of them.
    pub fn document<T: Serialize>(self, value: &T) -> Result<(), CommandError> {
        if self.lines {
            return self.json_line(value);
        }
        self.bytes((json_text(serde_json::to_string_pretty(value))? + "\n").as_bytes())
    }

    /// A JSON document on one line.
    pub fn json_line<T: Serialize>(self, value: &T) -> Result<(), CommandError> {
        self.bytes((json_text(serde_json::to_string(value))? + "\n").as_bytes())
    }

    /// A note for people on stderr; nothing with `-q`. What stderr does with it changes no outcome.
    pub fn note(self, text: impl AsRef<str>) {
        if self.logs() {
            tracing::info!("{}", text.as_ref());
        } else if !self.quiet {
            let _ = writeln!(io::stderr().lock(), "{}", harmless(text.as_ref()));
        }
    }

    /// Tells a failure on stderr; the JSON document was printed already.
    pub fn say_only(self, error: &CommandError) {
        Self { json: false, ..self }.failure(error);
    }

    /// Tells a failure: on stderr for people, and as the JSON document where one was asked for and none was printed.
    pub fn failure(self, error: &CommandError) {
        if self.logs() {
            tracing::error!(hints = error.hints.join("; "), "{}", error.message);
        } else {
            let mut stderr = io::stderr().lock();
            let tell = |word: &str, tone, text: &str| {
                format!("{} {}", paint(word, tone, self.stderr_colour), harmless(text))
            };
            let _ = writeln!(stderr, "{}", tell("error:", Tone::Bad, &error.message));
            for hint in &error.hints {
                let _ = writeln!(stderr, "{}", tell("hint:", Tone::Strong, hint));
            }
        }
        if self.json {
            let _ = self.document(&error.document());
        }
    }

    /// Whether the log is what stderr has; before it is started there are plain lines.
    fn logs(self) -> bool {
        self.logged && tracing::dispatcher::has_been_set()
    }

    /// A text of stdout in a tone, where stdout has colours.
    pub fn toned(self, text: &str, tone: Tone) -> String {
        paint(text, tone, self.stdout_colour)
    }

    /// Rows in columns, as wide as they need to be; the last column is left as it is.
    pub fn table(self, head: &[&str], rows: &[Vec<String>]) -> Result<(), CommandError> {
        let columns = head.len();
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([head[column].chars().count()]).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |cells: &[String]| {
            let mut line = String::new();
            for (column, cell) in cells.iter().enumerate().take(columns) {
                line.push_str(cell);
                if column + 1 < columns {
                    line.extend(std::iter::repeat_n(' ', widths[column] - cell.chars().count() + 2));
                }
            }
            line.trim_end().to_owned()
        };
        let head: Vec<String> = head.iter().map(|title| (*title).to_owned()).collect();
        let mut text = self.toned(&line(&head), Tone::Dim) + "\n";
        for row in rows {
            text.push_str(&line(row));
            text.push('\n');
        }
        self.result(&text)
    }
}

fn paint(text: &str, tone: Tone, colours: bool) -> String {
    if colours { format!("\u{1b}[{}m{text}\u{1b}[0m", tone.code()) } else { text.to_owned() }
}

/// A text as a screen may have it: what issues, models and programs wrote steers no terminal. Our own colours stay.
pub fn harmless(text: &str) -> Cow<'_, str> {
    const COLOURS: [&str; 6] =
        ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m"];
    let steers = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || is_hidden(c);
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((at, colour)) =
        COLOURS.iter().filter_map(|colour| Some((rest.find(colour)?, colour))).min()
    {
        shown.push_str(&visible(&rest[..at]));
        shown.push_str(colour);
        rest = &rest[at + colour.len()..];
    }
    shown.push_str(&visible(rest));
    Cow::Owned(shown)
}

fn json_text(text: serde_json::Result<String>) -> Result<String, CommandError> {
    text.map_err(|error| CommandError::failed(format!("the result cannot be written as JSON: {error}")))
}

/// A reader that went away (`| head`) is no failure: what was asked for was shown.
fn kept(written: io::Result<()>) -> Result<(), CommandError> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::failed(format!("stdout cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s_050_what_others_wrote_steers_no_terminal_and_our_colours_stay() {
        let told = "\u{1b}[31mfailed\u{1b}[0m: a\u{1b}]0;title\u{7}b\u{1b}[2Jc\u{202e}d\r\ne\tf";
        assert_eq!(harmless(told), "\u{1b}[31mfailed\u{1b}[0m: abcd\ne\tf");
        assert!(matches!(harmless("plain — text\n\t✓"), Cow::Borrowed(_)));
    }
}
