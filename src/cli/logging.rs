//! The log: what happens inside, on stderr, as text or JSON, without secrets (S-047): libraries log, too, and what they say
//! of a request or an address is not ours to choose.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use super::args::{Global, LogFormat};
use super::error::CommandError;
use super::output::Output;
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

/// From here on no line shows a secret of this configuration, or what its patterns match.
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

/// Stderr without secrets. A line comes in one piece.
struct Redacted;

impl io::Write for Redacted {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let redactor = redactor();
        let clean = redactor.as_ref().and_then(|redactor| redactor.redact(&text).ok());
        let shown = clean.as_deref().unwrap_or("[a line of the log that cannot be redacted]\n");
        io::stderr().lock().write_all(shown.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}
