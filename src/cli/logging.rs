//! The log: what happens inside, on stderr, as text or JSON.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use super::args::{Global, LogFormat};
use super::error::CommandError;
use super::output::Output;

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
        .with_writer(std::io::stderr)
        .with_ansi(output.log_colour())
        .with_span_events(FmtSpan::NONE);
    // A second start (in one process, by a test) keeps the first log.
    let _ = match global.log_format {
        LogFormat::Text => log.with_target(false).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    Ok(())
}
