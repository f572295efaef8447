//! The stop signal of a run: nothing, then one last report, then at once.

use tokio::sync::watch;

use crate::domain::stop::Stop;

/// How far a run was asked to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopState {
    /// Not at all.
    Running,
    /// One forced final turn is granted (C-26, D39, D69).
    Graceful(Stop),
    /// Everything in flight is cancelled.
    Abort(Stop),
}

/// The end that asks.
#[derive(Debug, Clone)]
pub struct StopHandle(watch::Sender<StopState>);

impl StopHandle {
    /// A signal that nobody has given yet.
    pub fn new() -> (Self, StopSignal) {
        let (sender, receiver) = watch::channel(StopState::Running);
        (Self(sender), StopSignal(receiver))
    }

    /// Asks for one last report. A later request that is not stronger changes nothing.
    pub fn ask(&self, stop: Stop) {
        self.0.send_if_modified(|state| {
            let first = *state == StopState::Running;
            if first {
                *state = StopState::Graceful(stop);
            }
            first
        });
    }

    /// Ends everything at once.
    pub fn abort(&self, stop: Stop) {
        self.0.send_if_modified(|state| {
            let first = !matches!(state, StopState::Abort(_));
            if first {
                *state = StopState::Abort(stop);
            }
            first
        });
    }

    /// Another end that listens.
    pub fn signal(&self) -> StopSignal {
        StopSignal(self.0.subscribe())
    }
}

/// The end that listens.
#[derive(Debug, Clone)]
pub struct StopSignal(watch::Receiver<StopState>);

impl StopSignal {
    /// What was asked for so far.
    pub fn state(&self) -> StopState {
        self.0.borrow().clone()
    }

    /// The stop that was asked for, in either form.
    pub fn asked(&self) -> Option<Stop> {
        match self.state() {
            StopState::Running => None,
            StopState::Graceful(stop) | StopState::Abort(stop) => Some(stop),
        }
    }

    /// Whether a person takes the work over, and nothing stronger was asked for.
    pub fn is_taken(&self) -> bool {
        matches!(self.state(), StopState::Graceful(stop) if stop.is_taken())
    }

    /// Waits until a stop is asked for, in either form. Waits for ever when nobody is left who could ask.
    pub async fn wait_asked(&self) {
        self.wait(|state| *state != StopState::Running).await;
    }

    /// Waits until everything is to end at once.
    pub async fn wait_aborted(&self) -> Stop {
        loop {
            self.wait(|state| matches!(state, StopState::Abort(_))).await;
            if let StopState::Abort(stop) = self.state() {
                return stop;
            }
        }
    }

    async fn wait(&self, reached: impl FnMut(&StopState) -> bool) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(reached).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::stop::StopDetail;

    #[tokio::test]
    async fn c_26_the_first_request_counts_and_an_abort_outranks_it() {
        let (handle, signal) = StopHandle::new();
        assert_eq!(signal.asked(), None);
        handle.ask(Stop::new(StopDetail::UserStop, "first"));
        handle.ask(Stop::new(StopDetail::Shutdown, "second"));
        signal.wait_asked().await;
        assert_eq!(signal.asked().unwrap().detail, StopDetail::UserStop);
        handle.abort(Stop::new(StopDetail::UserAbort, "now"));
        handle.ask(Stop::new(StopDetail::Shutdown, "third"));
        assert_eq!(signal.wait_aborted().await.detail, StopDetail::UserAbort);
    }
}
