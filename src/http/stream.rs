//! `GET /api/v1/events`: one stream of server-sent events for everything: `status` when something changes, `log` for what runs say.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast, watch};

use super::reply::failure;
use super::shared::Shared;
use crate::daemon::status_format::{LogLine, Status};

/// Changes in this time become one event.
const TOGETHER: Duration = Duration::from_millis(150);
/// A sign of life for proxies in between.
const ALIVE: Duration = Duration::from_secs(15);

struct Listener {
    shared: Arc<Shared>,
    status: watch::Receiver<Option<Arc<Status>>>,
    progress: watch::Receiver<u64>,
    recent: VecDeque<Arc<LogLine>>,
    lines: broadcast::Receiver<Arc<LogLine>>,
    first: bool,
    _place: OwnedSemaphorePermit,
}

/// Begins with the status of now; never ends by itself.
pub async fn stream(State(shared): State<Arc<Shared>>) -> Response {
    let Ok(place) = Arc::clone(&shared.streams).try_acquire_owned() else {
        let words = "the event stream has as many listeners as it takes; ask again later";
        return failure(StatusCode::SERVICE_UNAVAILABLE, "too_many_listeners", words);
    };
    let (recent, lines) = shared.front.progress.lines();
    let listener = Listener {
        recent,
        lines,
        status: shared.front.status.clone(),
        progress: shared.front.progress.changes(),
        first: true,
        _place: place,
        shared,
    };
    let events = futures::stream::unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        Some((Ok::<_, Infallible>(event), listener))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE)).into_response()
}

impl Listener {
    /// `None` = the daemon is gone.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if std::mem::take(&mut self.first)
                && let Some(event) = self.status_now()
            {
                return Some(event);
            }
            if let Some(line) = self.recent.pop_front() {
                return Event::default().event("log").json_data(line.as_ref()).ok();
            }
            tokio::select! {
                biased;
                line = self.lines.recv() => match line {
                    Ok(line) => return Event::default().event("log").json_data(line.as_ref()).ok(),
                    Err(RecvError::Lagged(_)) => continue,
                    Err(RecvError::Closed) => return None,
                },
                changed = self.status.changed() => changed.ok()?,
                changed = self.progress.changed() => {
                    changed.ok()?;
                    tokio::time::sleep(TOGETHER).await;
                }
            }
            self.first = true;
        }
    }

    fn status_now(&mut self) -> Option<Event> {
        self.status.mark_unchanged();
        self.progress.mark_unchanged();
        Event::default().event("status").json_data(self.shared.status()?).ok()
    }
}
