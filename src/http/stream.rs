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
use tokio::time::{Interval, MissedTickBehavior};

use super::reply::failure;
use super::shared::Shared;
use crate::daemon::status_format::{LogLine, Status};

/// Changes in this time become one event.
const TOGETHER: Duration = Duration::from_millis(150);
/// What other nodes say is looked at this often.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A sign of life for proxies in between.
const ALIVE: Duration = Duration::from_secs(15);

struct Listener {
    shared: Arc<Shared>,
    status: watch::Receiver<Option<Arc<Status>>>,
    progress: watch::Receiver<u64>,
    recent: VecDeque<Arc<LogLine>>,
    lines: broadcast::Receiver<Arc<LogLine>>,
    /// In a cluster: what runs on other nodes say.
    elsewhere: Option<broadcast::Receiver<Arc<LogLine>>>,
    looks: Interval,
    /// What was told last, where it is looked again and again.
    told: Option<Status>,
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
    let mut looks = tokio::time::interval(LOOK_AGAIN);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let listener = Listener {
        looks,
        recent,
        lines,
        elsewhere: shared.lines_elsewhere(),
        told: None,
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
                && let Some(event) = self.status_now().await
            {
                return Some(event);
            }
            if let Some(line) = self.recent.pop_front() {
                return Event::default().event("log").json_data(line.as_ref()).ok();
            }
            let has_others = self.elsewhere.is_some();
            tokio::select! {
                biased;
                line = self.lines.recv() => match line {
                    Ok(line) => return Event::default().event("log").json_data(line.as_ref()).ok(),
                    Err(RecvError::Lagged(_)) => continue,
                    Err(RecvError::Closed) => return None,
                },
                line = heard(&mut self.elsewhere) => match line {
                    Ok(line) => return Event::default().event("log").json_data(line.as_ref()).ok(),
                    Err(_) => continue,
                },
                () = again(has_others, &mut self.looks) => {}
                changed = self.status.changed() => changed.ok()?,
                changed = self.progress.changed() => {
                    changed.ok()?;
                    tokio::time::sleep(TOGETHER).await;
                }
            }
            self.first = true;
        }
    }

    /// The status of now; `None` = it was told already.
    async fn status_now(&mut self) -> Option<Event> {
        self.status.mark_unchanged();
        self.progress.mark_unchanged();
        let status = self.shared.status().await?;
        if self.elsewhere.is_some() {
            if self.told.as_ref() == Some(&status) {
                return None;
            }
            self.told = Some(status.clone());
        }
        Event::default().event("status").json_data(status).ok()
    }
}

/// What runs on other nodes say; never an answer where there are none.
async fn heard(elsewhere: &mut Option<broadcast::Receiver<Arc<LogLine>>>) -> Result<Arc<LogLine>, RecvError> {
    match elsewhere {
        Some(lines) => lines.recv().await,
        None => std::future::pending().await,
    }
}

/// When it is looked again what other nodes say.
async fn again(has_others: bool, looks: &mut Interval) {
    if !has_others {
        std::future::pending::<()>().await;
    }
    looks.tick().await;
}
