//! A stop request to a live run from another process: a file beside the runs that the run looks at.

use std::convert::Infallible;
use std::time::Duration;

use crate::domain::stop::{Stop, StopDetail};
use crate::engine::stop::StopHandle;
use crate::store::run_dir::RunDir;
use crate::sys::files::{self, FileError};

/// How often a run looks.
const PAUSE: Duration = Duration::from_millis(150);
const LAST_REPORT: &str = "stop\n";
const AT_ONCE: &str = "abort\n";

/// What is asked of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// One last report, then the end (C-26).
    LastReport,
    /// The end at once.
    AtOnce,
}

/// Asks. The run hears of it within a moment if it lives.
pub fn ask(dir: &RunDir, wish: Wish) -> Result<(), FileError> {
    let path = dir.stop_file();
    if let Some(folder) = path.parent() {
        files::create_private_dir(folder)?;
    }
    let word = match wish {
        Wish::LastReport => LAST_REPORT,
        Wish::AtOnce => AT_ONCE,
    };
    files::write_private(&path, word.as_bytes())
}

/// Passes stop requests on to the run's own signal. Never returns.
pub(super) async fn listen(dir: &RunDir, stop: &StopHandle) -> Infallible {
    let path = dir.stop_file();
    loop {
        match std::fs::read_to_string(&path).as_deref() {
            Ok(AT_ONCE) => {
                stop.abort(Stop::new(StopDetail::UserAbort, "A person asked the run to end at once."));
            }
            Ok(LAST_REPORT) => stop.ask(Stop::new(StopDetail::UserStop, "A person asked the run to stop.")),
            // Nobody asked, or the file is being written.
            _ => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Forgets what was asked of a run that has ended.
pub(super) fn forget(dir: &RunDir) {
    if let Err(error) = files::remove_file(&dir.stop_file()) {
        tracing::warn!(%error, "a stop file is left behind");
    }
}
