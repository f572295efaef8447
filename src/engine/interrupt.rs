//! What can end a wait early: an abort, the end of the wall time, the end of the grace after a stop (C-13, D38).

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::abort::Abort;
use super::budget::Meter;
use super::stop::StopSignal;

/// How long what is in flight may go on after a graceful stop was asked for (D38).
pub const GRACE: Duration = Duration::from_secs(10);

/// Longest time of the last report after a graceful stop, over all its attempts: whoever asked waits for it.
pub const LAST_REPORT: Duration = Duration::from_secs(60);

/// Watches over every wait of a run.
#[derive(Debug, Clone)]
pub struct Interrupts {
    /// The stop signal.
    pub stop: StopSignal,
    /// The budgets.
    pub meter: Arc<Meter>,
}

/// Why a wait ended before its work did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interrupt {
    /// The session ends now: an abort, or no wall time left.
    End(Abort),
    /// A graceful stop was asked for and its grace is over: this work is given up, the last report is not.
    GraceOver,
}

impl Interrupts {
    /// Works until done or interrupted. An abort outranks everything, work that is done outranks the deadline. `grace`
    /// ends the work after a graceful stop; `None` = such a stop does not touch it.
    pub async fn watch<T>(
        &self,
        grace: Option<Duration>,
        work: impl Future<Output = T>,
    ) -> Result<T, Interrupt> {
        let grace_over = async {
            match grace {
                Some(grace) => {
                    self.stop.wait_asked().await;
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

    /// The state at a point where nothing is in flight: an abort outranks budgets (C-08).
    pub fn check(&self) -> Result<(), Abort> {
        if let super::stop::StopState::Abort(stop) = self.stop.state() {
            return Err(stop.into());
        }
        Ok(self.meter.check()?)
    }
}
