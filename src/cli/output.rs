//! The only place that prints: results on stdout, everything else on stderr, nothing with a secret of the configuration.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use serde_json::Value;
use terminal_size::{Height, Width, terminal_size_of};

use super::concealed;
use super::error::CommandError;
use super::given_flags::GivenFlags;
use super::global::{Global, LogFormat};
use super::wrap;
use crate::config::Env;
use crate::domain::untrusted::{is_hidden, visible};

/// The output of this process: which streams are terminals, and whether colours and JSON are wanted.
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
    /// Columns that a line of stdout may have; `None` = any.
    stdout_width: Option<usize>,
    stderr_width: Option<usize>,
    /// The flags for commands that are told next. They are those of the one command line that there is.
    given: Option<&'static GivenFlags>,
}

/// Narrower than this nothing is laid out.
const NARROWEST: usize = 30;

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
        // A terminal knows its width; elsewhere lines are as long as they are unless COLUMNS says otherwise.
        let columns = env.filled("COLUMNS").and_then(|columns| columns.parse().ok());
        let width = |size: Option<(Width, Height)>| {
            let width = size.map(|(Width(columns), _)| usize::from(columns)).or(columns);
            width.filter(|columns| *columns > 0).map(|columns| columns.max(NARROWEST))
        };
        Self {
            stdout_width: width(terminal_size_of(io::stdout())),
            stderr_width: width(terminal_size_of(io::stderr())),
            json: global.json,
            lines: false,
            logged: global.log_format == LogFormat::Json,
            quiet: global.quiet,
            stdout_colour: colours && io::stdout().is_terminal(),
            stderr_colour: colours && io::stderr().is_terminal(),
            stderr_is_terminal: io::stderr().is_terminal(),
            given: None,
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
            stdout_width: None,
            stderr_width: None,
            given: None,
        }
    }

    /// The same with flags for the commands that it tells people to type next.
    pub fn giving(self, given: Option<&'static GivenFlags>) -> Self {
        Self { given, ..self }
    }

    /// A text of agentd's own: the commands in it have the flags that this one was given. Never for what others wrote.
    pub fn with_flags(self, text: &str) -> Cow<'_, str> {
        self.given.map_or(Cow::Borrowed(text), |given| given.told(text))
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

    /// Whether what is said on stderr are lines of the log.
    pub fn is_log(self) -> bool {
        self.logged
    }

    /// Whether the result may be coloured.
    pub fn colours(self) -> bool {
        self.stdout_colour
    }

    /// Whether the log may be coloured.
    pub fn log_colour(self) -> bool {
        self.stderr_colour
    }

    /// A line of the result, broken between words where the screen ends.
    pub fn line(self, text: impl AsRef<str>) -> Result<(), CommandError> {
        self.whole_line(&wrap::paragraph(&concealed::text(text.as_ref()), self.stdout_width, seen))
    }

    /// A line of the result about what to do next. It is all agentd's own.
    pub fn advice(self, text: impl AsRef<str>) -> Result<(), CommandError> {
        self.line(self.with_flags(text.as_ref()))
    }

    /// A line of the result that is in its form already, or is to be copied in one piece.
    pub fn whole_line(self, text: &str) -> Result<(), CommandError> {
        self.result(&format!("{text}\n"))
    }

    /// A line of the result that says something behind a lead, broken where the screen ends.
    pub fn entry(self, lead: &str, text: &str) -> Result<(), CommandError> {
        self.whole_line(&self.behind(lead, text))
    }

    /// The text of an [`Output::entry`].
    pub fn behind(self, lead: &str, text: &str) -> String {
        wrap::behind(lead, &concealed::text(text), self.stdout_width, seen)
    }

    /// Columns that a line of the result may have.
    pub fn width(self) -> Option<usize> {
        self.stdout_width
    }

    /// Text of the result, for people.
    pub fn result(self, text: &str) -> Result<(), CommandError> {
        self.bytes(concealed::text(&harmless(text)).as_bytes())
    }

    /// A patch as the result, in colours where there are some.
    pub fn patch(self, patch: &str) -> Result<(), CommandError> {
        let coloured: String = patch.split_inclusive('\n').map(|line| self.patch_line(line)).collect();
        self.result(&coloured)
    }

    /// A line of a patch in its colour. Not git's: what a file holds could pass for that.
    fn patch_line(self, line: &str) -> String {
        let (text, end) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\n"));
        let tone = match text.as_bytes().first() {
            Some(b'+') => Tone::Good,
            Some(b'-') => Tone::Bad,
            Some(b'@') => Tone::Dim,
            Some(b' ') | None => return line.to_owned(),
            Some(_) => Tone::Strong,
        };
        self.toned(text, tone) + end
    }

    /// Bytes of the result: as they are for a program, on a terminal as text for people.
    pub fn file(self, bytes: &[u8]) -> Result<(), CommandError> {
        match io::stdout().is_terminal() {
            true => self.result(&String::from_utf8_lossy(bytes)),
            false => self.bytes(bytes),
        }
    }

    /// A JSON Lines file as the result. Its values are unchanged, and no character of it controls a terminal.
    pub fn json_lines(self, bytes: &[u8]) -> Result<(), CommandError> {
        self.bytes(escaped(&String::from_utf8_lossy(bytes)).as_bytes())
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
        self.json_bytes(value, serde_json::to_string_pretty, serde_json::to_string_pretty)
    }

    /// A JSON document on one line.
    pub fn json_line<T: Serialize>(self, value: &T) -> Result<(), CommandError> {
        self.json_bytes(value, serde_json::to_string, serde_json::to_string)
    }

    fn json_bytes<T: Serialize>(
        self,
        value: &T,
        write: fn(&T) -> serde_json::Result<String>,
        write_clean: fn(&Value) -> serde_json::Result<String>,
    ) -> Result<(), CommandError> {
        let text = json_text(write(value))?;
        let text = match concealed::json(&text) {
            Some(clean) => json_text(write_clean(&clean))?,
            None => text,
        };
        self.bytes((escaped(&text) + "\n").as_bytes())
    }

    /// A note for people on stderr; nothing with `-q`. An error of stderr changes nothing.
    pub fn note(self, text: impl AsRef<str>) {
        if self.logs() {
            tracing::info!("{}", text.as_ref());
        } else if !self.quiet {
            let text = concealed::text(text.as_ref());
            let text = wrap::paragraph(&self.with_flags(&text), self.stderr_width, seen);
            let _ = writeln!(io::stderr().lock(), "{}", harmless(&text));
        }
    }

    /// Tells a failure on stderr; the JSON document was printed already.
    pub fn say_only(self, error: &CommandError) {
        Self { json: false, ..self }.failure(error);
    }

    /// Reports a failure: on stderr for people, and as the JSON document if one was asked for and none was printed.
    pub fn failure(self, error: &CommandError) {
        if self.logs() {
            tracing::error!(hints = error.hints.join("; "), "{}", error.message);
        } else {
            let mut stderr = io::stderr().lock();
            let tell = |word: &str, tone, text: &str| {
                let text = &*concealed::text(text);
                let lead = paint(word, tone, self.stderr_colour);
                // What is told has lines of its own: they stay where they are.
                let told = match self.stderr_width {
                    Some(_) => wrap::behind(&lead, text, self.stderr_width, seen),
                    None => format!("{lead} {text}"),
                };
                harmless(&told).into_owned()
            };
            let _ = writeln!(stderr, "{}", tell("error:", Tone::Bad, &error.message));
            for hint in &error.hints {
                let _ = writeln!(stderr, "{}", tell("hint:", Tone::Strong, &self.with_flags(hint)));
            }
        }
        if self.json {
            let _ = self.document(&error.document(|hint| self.with_flags(hint)));
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

    /// Rows in columns, as wide as they need to be. Where the screen ends, the last column is broken; where it has no room
    /// for the others, each row stands below its first cell.
    pub fn table(self, head: &[&str], rows: &[Vec<String>]) -> Result<(), CommandError> {
        // A cell is one line, and as wide as what is seen of it.
        let shown = |cell: &String| {
            treated(&concealed::text(cell), |code| format!("{}{code}{COLOUR_END}", *COLOUR))
                .replace(['\n', '\t'], " ")
        };
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(shown).collect()).collect();
        let columns = head.len();
        // Where no screen breaks lines, a cell that is longer than most makes the others' lines no longer.
        let widest = self.stdout_width.map_or(WIDEST_CELL, |_| usize::MAX);
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| seen(cell));
            let cells = cells.filter(|cell| *cell <= widest);
            cells.chain([head[column].chars().count()]).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let beside: usize = widths[..columns - 1].iter().map(|width| width + 2).sum();
        let last = widths[columns - 1];
        if let Some(width) = self.stdout_width.filter(|width| beside + last.min(LEAST_CELL) > *width) {
            let mut text = String::new();
            for row in &rows {
                let (first, others) = row.split_first().map_or(("", &[][..]), |(first, all)| (first, all));
                text.push_str(first);
                text.push('\n');
                text.push_str(&wrap::packed(others, 2, width, seen));
            }
            return self.result(&text);
        }
        let line = |cells: &[String]| {
            let mut line = String::new();
            for (column, cell) in cells.iter().enumerate().take(columns) {
                if column + 1 < columns {
                    line.push_str(cell);
                    line.extend(std::iter::repeat_n(' ', widths[column].saturating_sub(seen(cell)) + 2));
                    continue;
                }
                match self.stdout_width.filter(|width| beside + seen(cell) > *width) {
                    Some(_) => line = wrap::behind(&line[..line.len() - 1], cell, self.stdout_width, seen),
                    None => line.push_str(cell),
                }
            }
            line.trim_end().to_owned()
        };
        let head: Vec<String> = head.iter().map(|title| (*title).to_owned()).collect();
        let mut text = self.toned(&line(&head), Tone::Dim) + "\n";
        for row in rows {
            text.push_str(&line(&row));
            text.push('\n');
        }
        self.result(&text)
    }
}

/// Least columns of a table's last cell.
const LEAST_CELL: usize = 24;
/// Columns of a cell that those below each other are still filled up to, where lines are as long as they are.
const WIDEST_CELL: usize = 48;

/// Columns that a text takes: its colours take none.
fn seen(text: &str) -> usize {
    treated(text, |_| String::new()).chars().count()
}

/// Where a colour of our own begins: nobody outside of this process knows it.
static COLOUR: LazyLock<String> = LazyLock::new(|| format!("\u{fdd0}{}:", uuid::Uuid::new_v4().simple()));
/// Behind the colour's number.
const COLOUR_END: char = '\u{fdd1}';

fn paint(text: &str, tone: Tone, colours: bool) -> String {
    match colours {
        true => format!("{0}{1}{COLOUR_END}{text}{0}0{COLOUR_END}", *COLOUR, tone.code()),
        false => text.to_owned(),
    }
}

/// Whether a character steers a terminal or is not seen on it.
fn steers(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t')) || is_hidden(c)
}

/// A text that is safe for a screen. Text of issues, models and programs controls no terminal and has no colour. The
/// colours of [`Output::toned`] stay. Everything that people read goes through here.
pub fn harmless(text: &str) -> Cow<'_, str> {
    if !text.contains(steers) && !text.contains('\u{fdd0}') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(treated(text, |code| format!("\u{1b}[{code}m")))
}

/// A text without control characters. `colour` writes agentd's own colours.
fn treated(text: &str, colour: impl Fn(&str) -> String) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once(COLOUR.as_str()) {
        shown.push_str(&visible(before));
        let (code, after) = after.split_once(COLOUR_END).unwrap_or(("0", after));
        shown.push_str(&colour(code));
        rest = after;
    }
    shown.push_str(&visible(rest));
    shown
}

/// JSON in which each character that controls a terminal, or is invisible on it, is escaped. A program reads the same
/// values.
pub fn escaped(json: &str) -> Cow<'_, str> {
    if !json.contains(steers) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if steers(c) && c != '\r' {
            let mut units = [0; 2];
            out.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

fn json_text(text: serde_json::Result<String>) -> Result<String, CommandError> {
    text.map_err(|error| CommandError::failed(format!("the result cannot be written as JSON: {error}")))
}

/// Whether somebody read all that was printed so far.
static UNREAD: AtomicBool = AtomicBool::new(false);

/// Whether whoever read what this process prints went away before its end.
pub fn reader_went_away() -> bool {
    UNREAD.load(Ordering::Relaxed)
}

/// A reader that went away (`| head`) is no failure: what was asked for was shown.
fn kept(written: io::Result<()>) -> Result<(), CommandError> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            UNREAD.store(true, Ordering::Relaxed);
            Ok(())
        }
        Err(error) => Err(CommandError::failed(format!("stdout cannot be written: {error}"))),
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s_050_what_others_wrote_steers_no_terminal_and_only_our_colours_stay() {
        let ours = paint("failed", Tone::Bad, true);
        let told =
            format!("{ours}: a\u{1b}]0;title\u{7}b\u{1b}[2Jc\u{202e}d\r\ne\tf\u{1b}[31mg\u{9b}32mh\u{e0041}");
        assert_eq!(harmless(&told), "\u{1b}[31mfailed\u{1b}[0m: abcd\ne\tfgh");
        assert!(matches!(harmless("plain — text\n\t✓"), Cow::Borrowed(_)));
        assert_eq!(harmless("\u{fdd0}0000:31\u{fdd1}x"), "\u{fdd0}0000:31\u{fdd1}x");
    }

    #[test]
    fn s_050_json_has_no_character_that_steers_and_says_the_same() {
        let value =
            serde_json::json!({ "a\u{9b}": "\u{1b}[31m \u{85}\u{202e}\u{e0041}\u{7f}\u{200b} é 😀\n" });
        for json in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let shown = escaped(&json);
            assert!(!shown.contains(steers), "{shown:?}");
            assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        }
        assert!(matches!(escaped("{\"a\": \"é 😀\"}"), Cow::Borrowed(_)));
    }
}
