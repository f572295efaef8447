//! How far a journal is published, as its writer and the thread that publishes it tell each other.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::store::port::Place;
use crate::sys::clock::Stopwatch;

/// How long lines wait for more of them.
const TOGETHER: Duration = Duration::from_millis(250);
/// How many bytes do not wait any longer.
const ENOUGH: u64 = 64 * 1024;
/// How long the row of a run may be behind its journal.
const ROW_BEHIND: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Progress {
    state: Mutex<State>,
    changed: Condvar,
    overtaken: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    /// Where the file ends, and up to where it is published.
    written: Place,
    sent: Place,
    /// Since when lines wait.
    waiting: Option<Stopwatch>,
    /// Somebody waits until they are published.
    asked: bool,
    /// Nothing more comes.
    closed: bool,
}

/// What the thread does next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It publishes what stands in the file from this place on.
    Lines(Place),
    /// It writes the row, which is behind.
    Row,
    /// It ends.
    Over,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), overtaken: watch::Sender::new(false) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file ends here now.
    pub(super) fn written(&self, end: Place) {
        let mut state = self.state();
        state.written = end;
        state.waiting.get_or_insert_with(Stopwatch::start);
        self.changed.notify_all();
    }

    /// So many bytes more are published.
    pub(super) fn sent(&self, bytes: u64) {
        let mut state = self.state();
        state.sent += bytes;
        state.waiting = (state.sent < state.written).then(Stopwatch::start);
        state.asked &= state.waiting.is_some();
        self.changed.notify_all();
    }

    /// Only so many bytes are published after all.
    pub(super) fn set_back(&self, bytes: u64) {
        let mut state = self.state();
        state.sent = bytes;
        state.waiting = (state.sent < state.written).then(Stopwatch::start);
        self.changed.notify_all();
    }

    pub(super) fn overtake(&self) {
        self.overtaken.send_replace(true);
        self.changed.notify_all();
    }

    pub(super) fn is_overtaken(&self) -> bool {
        *self.overtaken.borrow()
    }

    /// Nothing more comes.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Whether there is nothing that is not published.
    pub(super) fn is_whole(&self) -> bool {
        let state = self.state();
        state.sent == state.written
    }

    /// What is to be done next; waits for it. `row_behind`: since when the row is.
    pub(super) fn next(&self, row_behind: Option<Stopwatch>) -> Next {
        let mut state = self.state();
        loop {
            if self.is_overtaken() {
                return Next::Over;
            }
            let waited = state.waiting.map(Stopwatch::elapsed);
            let left = waited.map(|waited| TOGETHER.saturating_sub(waited));
            let hurry = state.asked || state.closed || state.written - state.sent >= ENOUGH;
            if let Some(left) = left
                && (hurry || left.is_zero())
            {
                return Next::Lines(state.sent);
            }
            if state.closed {
                return if row_behind.is_some() { Next::Row } else { Next::Over };
            }
            let row_left = row_behind.map(|since| ROW_BEHIND.saturating_sub(since.elapsed()));
            if row_left.is_some_and(|left| left.is_zero()) {
                return Next::Row;
            }
            let left = left.into_iter().chain(row_left).min();
            state = match left {
                Some(left) => {
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Waits until all that was written before this call is published, for so long at most. False = it is not.
    pub(super) fn wait(&self, most: Duration) -> bool {
        let mut state = self.state();
        let (target, begin) = (state.written, Stopwatch::start());
        while state.sent < target && !self.is_overtaken() {
            state.asked = true;
            self.changed.notify_all();
            let left = most.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.sent >= target
    }

    /// Ends once it is known that another has written there.
    pub(super) fn overtaking(&self) -> BoxFuture<'static, ()> {
        let mut overtaken = self.overtaken.subscribe();
        async move {
            if overtaken.wait_for(|overtaken| *overtaken).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        .boxed()
    }
}
