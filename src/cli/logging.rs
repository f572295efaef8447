//! The log: what happens inside, on stderr, as text or JSON, without secrets (S-047). Libraries log too, and agentd
//! does not control what they say about a request or an address.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use regex::Regex;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use super::concealed;
use super::error::CommandError;
use super::global::{Global, LogFormat};
use super::output::{Output, escaped, harmless};

/// What runs note for people; where their progress is on the screen, that tells it.
const NOTES: &str = "agentd::note";

/// What this library says of a server agentd says itself, in the server's name.
const UNTOLD: &str = "rmcp=off";

/// Starts the log. `default` is the level without flags; `progress`: whether the command shows what its run notes.
pub fn start(global: &Global, output: Output, default: &str, progress: bool) -> Result<(), CommandError> {
    let wanted = match (&global.log_level, global.quiet, global.verbose) {
        (Some(level), ..) => level.clone(),
        (None, true, _) => format!("error,{UNTOLD}"),
        // Progress is part of a log for programs.
        (None, false, 0) if global.log_format == LogFormat::Json && default == "warn" => {
            format!("agentd=info,warn,{UNTOLD}")
        }
        (None, false, 0) => format!("{default},{UNTOLD}"),
        // The libraries below stay quiet until everything is asked for.
        (None, false, 1) => "agentd=debug,info".to_owned(),
        (None, false, _) => "trace".to_owned(),
    };
    let told_elsewhere = progress && global.log_format == LogFormat::Text;
    let directives = if told_elsewhere { format!("{wanted},{NOTES}=off") } else { wanted.clone() };
    let filter = match EnvFilter::try_new(directives) {
        Ok(filter) if wanted.split(',').all(is_directive) => filter,
        Ok(_) => return Err(no_level(&wanted, "there is no such level")),
        Err(error) => return Err(no_level(&wanted, &error.to_string())),
    };
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Redacted)
        .with_ansi(output.log_colour())
        .with_span_events(FmtSpan::NONE);
    STYLE.store(
        match (global.log_format, output.log_colour()) {
            (LogFormat::Json, _) => JSON,
            (LogFormat::Text, true) => COLOURED,
            (LogFormat::Text, false) => PLAIN,
        },
        Ordering::Relaxed,
    );
    // A second start (in one process, by a test) keeps the first log.
    let _ = match global.log_format {
        LogFormat::Text => log.with_target(false).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    Ok(())
}

/// Whether a part of a filter is a level, or says of which target it is one. The filter itself takes any word for a
/// target, and then tells nothing.
fn is_directive(part: &str) -> bool {
    part.contains('=') || part.trim().parse::<LevelFilter>().is_ok()
}

fn no_level(wanted: &str, why: &str) -> CommandError {
    CommandError::argument(format!("--log-level {wanted}: {why}"))
        .hint("write off, error, warn, info, debug or trace, or TARGET=LEVEL")
}

/// How lines are made harmless: as text, as text with the log's own colours, or as JSON.
static STYLE: AtomicU8 = AtomicU8::new(PLAIN);
const PLAIN: u8 = 0;
const COLOURED: u8 = 1;
const JSON: u8 = 2;

/// A line with the colours of the log's formatter, which has already escaped the text of others.
fn with_colours(line: &str) -> Cow<'_, str> {
    static COLOURS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("\u{1b}\\[[0-9;]*m").ok());
    let Some(colours) = COLOURS.as_ref() else { return harmless(line) };
    let (mut shown, mut kept) = (String::with_capacity(line.len()), 0);
    for colour in colours.find_iter(line) {
        shown.push_str(&harmless(&line[kept..colour.start()]));
        shown.push_str(colour.as_str());
        kept = colour.end();
    }
    shown.push_str(&harmless(&line[kept..]));
    Cow::Owned(shown)
}

/// A warning that comes again and again is told once in this time.
const TOLD_AGAIN: Duration = Duration::from_secs(3600);
/// Warnings that are remembered; with more, those that were not told lately are forgotten.
const MOST_WARNINGS: usize = 512;

/// Warnings that were told: when, and how often they came since.
static TOLD: Mutex<Warnings> = Mutex::new(Warnings(BTreeMap::new()));

struct Warnings(BTreeMap<String, (Instant, u32)>);

impl Warnings {
    /// Whether a line of the log is told now, with how often it came without being told. What is no warning always is.
    fn take(&mut self, line: &str, now: Instant) -> Option<u32> {
        let Some(warning) = warning_of(line) else { return Some(0) };
        if let Some((told, since)) = self.0.get_mut(warning) {
            if now.duration_since(*told) < TOLD_AGAIN {
                *since += 1;
                return None;
            }
            let untold = std::mem::take(since);
            *told = now;
            return Some(untold);
        }
        if self.0.len() >= MOST_WARNINGS {
            self.0.retain(|_, (told, _)| now.duration_since(*told) < TOLD_AGAIN / 60);
        }
        self.0.insert(warning.to_owned(), (now, 0));
        Some(0)
    }
}

/// What a line says, where it is a warning; its time is left out.
fn warning_of(line: &str) -> Option<&str> {
    const OTHERS: [&str; 4] = ["ERROR", "INFO", "DEBUG", "TRACE"];
    let (before, warning) = line.split_once("WARN")?;
    OTHERS.iter().all(|level| !before.contains(level)).then_some(warning)
}

/// Stderr without secrets. A line comes in one piece.
struct Redacted;

impl io::Write for Redacted {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let told = TOLD.lock().unwrap_or_else(PoisonError::into_inner).take(&text, Instant::now());
        let text = match told {
            None => return Ok(line.len()),
            Some(untold @ 1..) if STYLE.load(Ordering::Relaxed) != JSON => {
                Cow::Owned(format!("{} ({untold} times more in the meantime)\n", text.trim_end()))
            }
            Some(_) => text,
        };
        let clean = concealed::text(&text);
        let shown = match STYLE.load(Ordering::Relaxed) {
            JSON => escaped(&clean),
            COLOURED => with_colours(&clean),
            _ => harmless(&clean),
        };
        // A log that nobody reads any more, or whose disk is full, is no reason to end: there is no place to say so, and the
        // work goes on without it.
        let _untold = io::stderr().lock().write_all(shown.as_bytes());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_that_comes_again_is_told_once_an_hour_and_says_how_often_it_came() {
        let mut warnings = Warnings(BTreeMap::new());
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(warnings.take("10:00  WARN the label is not there\n", at(0)), Some(0));
        assert_eq!(warnings.take("10:01  WARN the label is not there\n", at(60)), None);
        assert_eq!(warnings.take("{\"t\":1,\"level\":\"WARN\",\"m\":\"x\"}\n", at(60)), Some(0));
        assert_eq!(warnings.take("{\"t\":2,\"level\":\"WARN\",\"m\":\"x\"}\n", at(61)), None);
        assert_eq!(warnings.take("10:02  WARN another\n", at(120)), Some(0));
        assert_eq!(warnings.take("11:01  WARN the label is not there\n", at(3660)), Some(1));
        assert_eq!(warnings.take("11:02  WARN the label is not there\n", at(3720)), None);
        for _ in 0..2 {
            assert_eq!(warnings.take("11:03  INFO no WARN is this\n", at(4000)), Some(0));
        }
    }
}
