//! The log: what happens inside, on stderr, as text or JSON, without secrets (S-047). Libraries log too, and agentd
//! does not control what they say about a request or an address.

use std::borrow::Cow;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use regex::Regex;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use super::args::{Global, LogFormat};
use super::error::CommandError;
use super::output::{Output, escaped, harmless};
use crate::config::Config;
use crate::domain::redaction::{KnownSecret, Redactor};

/// Starts the log. `default` is the level without flags.
pub fn start(global: &Global, output: Output, default: &str) -> Result<(), CommandError> {
    let wanted = match (&global.log_level, global.quiet, global.verbose) {
        (Some(level), ..) => level.clone(),
        (None, true, _) => "error".to_owned(),
        // Progress is part of a log for programs.
        (None, false, 0) if global.log_format == LogFormat::Json && default == "warn" => {
            "agentd=info,warn".to_owned()
        }
        (None, false, 0) => default.to_owned(),
        // The libraries below stay quiet until everything is asked for.
        (None, false, 1) => "agentd=debug,info".to_owned(),
        (None, false, _) => "trace".to_owned(),
    };
    let filter = EnvFilter::try_new(&wanted).map_err(|error| {
        CommandError::invalid(format!("--log-level {wanted}: {error}"))
            .hint("write off, error, warn, info, debug or trace")
    })?;
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

/// What every line of the log goes through.
static HIDDEN: Mutex<Hidden> =
    Mutex::new(Hidden { secrets: Vec::new(), patterns: Vec::new(), redactor: None });

struct Hidden {
    secrets: Vec<KnownSecret>,
    patterns: Vec<String>,
    /// Made at the first line after something was added: most commands log nothing.
    redactor: Option<Arc<Redactor>>,
}

/// From here on no line shows a secret of this configuration or a match of its patterns.
pub fn conceal(config: &Config) {
    let mut hidden = HIDDEN.lock().unwrap_or_else(PoisonError::into_inner);
    for secret in config.secret_values() {
        if hidden.secrets.iter().all(|known| known.value != secret.value) {
            hidden.secrets.push(secret);
        }
    }
    for pattern in &config.redaction.patterns {
        if !hidden.patterns.contains(pattern) {
            hidden.patterns.push(pattern.clone());
        }
    }
    hidden.redactor = None;
}

fn redactor() -> Option<Arc<Redactor>> {
    let mut hidden = HIDDEN.lock().unwrap_or_else(PoisonError::into_inner);
    if hidden.redactor.is_none() {
        let mut key = [0; 32];
        key[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        key[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        let made = Redactor::new(key, hidden.secrets.clone(), &hidden.patterns);
        hidden.redactor = made.ok().map(Arc::new);
    }
    hidden.redactor.clone()
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

/// Stderr without secrets. A line comes in one piece.
struct Redacted;

impl io::Write for Redacted {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let redactor = redactor();
        let clean = redactor.as_ref().and_then(|redactor| redactor.redact(&text).ok());
        let shown = clean.as_deref().unwrap_or("[a line of the log that cannot be redacted]\n");
        let shown = match STYLE.load(Ordering::Relaxed) {
            JSON => escaped(shown),
            COLOURED => with_colours(shown),
            _ => harmless(shown),
        };
        io::stderr().lock().write_all(shown.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}
