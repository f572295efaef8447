//! What ends a wait early: an abort, the end of the wall time, or the end of the grace period after a stop (C-13, D38).

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::abort::Abort;
use super::budget::Meter;
use super::stop::StopSignal;

/// How long a running request may go on after a graceful stop (D38).
pub const GRACE: Duration = Duration::from_secs(10);

/// The longest time of the last report after a graceful stop, over all its attempts. Whoever asked for the stop waits
/// for it.
pub const LAST_REPORT: Duration = Duration::from_secs(60);

/// Watches over every wait of a run.
#[derive(Debug, Clone)]
pub struct Interrupts {
    /// The stop signal.
    pub stop: StopSignal,
    /// The budgets.
    pub meter: Arc<Meter>,
    /// Whether what has begun comes to its own end where a person takes the work over.
    pub whole_turns: bool,
}

/// Why a wait ended before its work did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interrupt {
    /// The session ends now: an abort, or no wall time left.
    End(Abort),
    /// The grace period of a graceful stop is over. This work is given up; the last report is not.
    GraceOver,
}

impl Interrupts {
    /// Waits until the work is done or interrupted. An abort comes before everything; finished work comes before the
    /// deadline. `grace` ends the work after a graceful stop; `None` = such a stop does not affect it.
    pub async fn watch<T>(
        &self,
        grace: Option<Duration>,
        work: impl Future<Output = T>,
    ) -> Result<T, Interrupt> {
        let grace_over = async {
            match grace {
                Some(grace) => {
                    match grace.is_zero() {
                        true => self.stop.wait_asked().await,
                        false => self.wait_cut_short().await,
                    }
                    tokio::time::sleep(grace).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            stop = self.stop.wait_aborted() => Err(Interrupt::End(stop.into())),
            done = work => Ok(done),
            stop = self.meter.time_over() => Err(Interrupt::End(stop.into())),
            () = grace_over => Err(Interrupt::GraceOver),
        }
    }

    /// Waits until a stop is asked for that the present turn is not finished for.
    pub async fn wait_cut_short(&self) {
        self.stop.wait_asked().await;
        if self.whole_turns && self.stop.is_taken() {
            std::future::pending::<()>().await;
        }
    }

    /// The state when no request is running. An abort comes before budgets (C-08).
    pub fn check(&self) -> Result<(), Abort> {
        if let super::stop::StopState::Abort(stop) = self.stop.state() {
            return Err(stop.into());
        }
        Ok(self.meter.check()?)
    }
}
