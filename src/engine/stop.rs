//! The stop signal of a run: nothing, then an end before the next visit, then one last report, then at once.

use tokio::sync::watch;

use crate::domain::stop::Stop;

/// How far a run was asked to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopState {
    /// Not at all.
    Running,
    /// The visit under way is finished, and no other one is begun.
    BeforeNextVisit(Stop),
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

    /// Asks for an end before the next visit, so that nothing is done twice by who goes on with the run.
    pub fn ask_before_next_visit(&self, stop: Stop) {
        self.change(|state| *state == StopState::Running, StopState::BeforeNextVisit(stop));
    }

    /// Asks for one last report. A later request that is not stronger changes nothing.
    pub fn ask(&self, stop: Stop) {
        let is_weaker =
            |state: &StopState| matches!(state, StopState::Running | StopState::BeforeNextVisit(_));
        self.change(is_weaker, StopState::Graceful(stop));
    }

    /// Ends everything at once.
    pub fn abort(&self, stop: Stop) {
        self.change(|state| !matches!(state, StopState::Abort(_)), StopState::Abort(stop));
    }

    fn change(&self, is_weaker: impl FnOnce(&StopState) -> bool, next: StopState) {
        self.0.send_if_modified(|state| {
            let changes = is_weaker(state);
            if changes {
                *state = next;
            }
            changes
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

    /// The stop that a visit under way has to heed.
    pub fn asked(&self) -> Option<Stop> {
        match self.state() {
            StopState::Running | StopState::BeforeNextVisit(_) => None,
            StopState::Graceful(stop) | StopState::Abort(stop) => Some(stop),
        }
    }

    /// The stop that keeps the next visit from being begun.
    pub fn asked_before_visit(&self) -> Option<Stop> {
        match self.state() {
            StopState::Running => None,
            StopState::BeforeNextVisit(stop) | StopState::Graceful(stop) | StopState::Abort(stop) => {
                Some(stop)
            }
        }
    }

    /// Whether a person takes the work over, and nothing stronger was asked for.
    pub fn is_taken(&self) -> bool {
        matches!(self.state(), StopState::Graceful(stop) if stop.is_taken())
    }

    /// Waits until a visit under way has to stop. Waits for ever when nobody is left who could ask.
    pub async fn wait_asked(&self) {
        self.wait(|state| matches!(state, StopState::Graceful(_) | StopState::Abort(_))).await;
    }

    /// Does what nothing is lost of when it is left before its end: it is left when a stop is asked for, which is the error then.
    pub async fn unless_asked<T, E: From<Stop>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        tokio::select! {
            biased;
            done = work => done,
            stop = self.wait_stop() => Err(stop.into()),
        }
    }

    async fn wait_stop(&self) -> Stop {
        loop {
            self.wait_asked().await;
            if let Some(stop) = self.asked() {
                return stop;
            }
        }
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
        handle.ask_before_next_visit(Stop::new(StopDetail::Shutdown, "before the next visit"));
        assert_eq!(
            (signal.asked(), signal.asked_before_visit().unwrap().detail),
            (None, StopDetail::Shutdown)
        );
        handle.ask(Stop::new(StopDetail::UserStop, "first"));
        handle.ask(Stop::new(StopDetail::Shutdown, "second"));
        handle.ask_before_next_visit(Stop::new(StopDetail::Shutdown, "weaker"));
        signal.wait_asked().await;
        assert_eq!(signal.asked().unwrap().detail, StopDetail::UserStop);
        handle.abort(Stop::new(StopDetail::UserAbort, "now"));
        handle.ask(Stop::new(StopDetail::Shutdown, "third"));
        assert_eq!(signal.wait_aborted().await.detail, StopDetail::UserAbort);
    }
}
