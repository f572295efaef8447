//! The journal of a run as a file that is published. A new one is written here first, and a thread publishes it behind the writer; one
//! that was begun before, by whoever, is gone on with in the store first, so that what is refused there is never here.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::progress::{Next, Progress};
use super::sender::{NotSent, Sender};
use crate::store::files::FileStore;
use crate::store::nats::{NatsStore, Session};
use crate::store::port::{Appended, Log, Place, Store as _, StoreError};
use crate::store::run_dir::RunDir;
use crate::sys::clock::Stopwatch;
use crate::sys::shutdown;

/// First pause after a failed attempt; it doubles up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long the store is asked for a journal before that is given up.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a writer that waits looks whether it may go on.
const LOOK: Duration = Duration::from_millis(50);
/// How long a writer waits before it is said that it does.
const TELL_AFTER: Duration = Duration::from_secs(5);

pub(super) struct PublishedLog {
    place: String,
    file: Arc<dyn Log>,
    /// Under which this process holds its leases; `None` = it holds none.
    session: Option<Arc<Session>>,
    way: Way,
}

enum Way {
    /// Here first.
    Behind { progress: Arc<Progress>, thread: Mutex<Option<JoinHandle<()>>> },
    /// In the store first.
    Ahead(Box<Mutex<Sender>>),
}

impl PublishedLog {
    /// Opens the journal of a run of this node, made where there is none yet.
    pub(super) fn open(files: &FileStore, nats: &NatsStore, run: &RunDir) -> Result<Self, StoreError> {
        let file = files.log(run)?;
        let place = run.events().display().to_string();
        let (here, _) = file.read(0)?;
        let (there, end) = patiently(|| nats.journal(run).read(0))?;
        let Some(rest) = here.strip_prefix(there.as_slice()).filter(|_| end == 0 || !there.is_empty()) else {
            return Err(overtaken(&place));
        };
        let mut sender = Sender::new(nats, run, &there, end);
        let session = nats.session();
        if !there.is_empty() || !here.is_empty() {
            let mut rest = rest;
            while !rest.is_empty() {
                rest = match sender.send(rest) {
                    Ok(sent) => &rest[sent..],
                    Err(NotSent::Overtaken) => return Err(overtaken(&place)),
                    Err(NotSent::Failed(error)) => return Err(error),
                };
            }
            return Ok(Self { place, file, session, way: Way::Ahead(Box::new(Mutex::new(sender))) });
        }
        let progress = Arc::new(Progress::new());
        let (work, from) = (Arc::clone(&progress), Arc::clone(&file));
        let thread =
            Builder::new().name("agentd-publish".into()).spawn(move || publish(&work, &*from, sender));
        let thread = thread.map_err(|error| StoreError::Failed {
            action: "publish",
            place: place.clone(),
            words: error.to_string(),
        })?;
        let way = Way::Behind { progress, thread: Mutex::new(Some(thread)) };
        Ok(Self { place, file, session, way })
    }

    fn is_overtaken(&self) -> bool {
        let there = match &self.way {
            Way::Behind { progress, .. } => progress.is_overtaken(),
            Way::Ahead(_) => false,
        };
        there || self.session.as_ref().is_some_and(|session| session.has_expired())
    }
}

fn overtaken(place: &str) -> StoreError {
    StoreError::Failed {
        action: "go on with",
        place: place.to_owned(),
        words: "another node has the run now".to_owned(),
    }
}

/// The process ends without the store: from then on the journal is as after its death, also if the store comes back. What is written is
/// on this disk, and whoever goes on with the run publishes it.
fn left(place: &str) -> StoreError {
    StoreError::Failed {
        action: "publish",
        place: place.to_owned(),
        words: "the cluster's store has not answered, and this process is to end".to_owned(),
    }
}

/// Asks the store until it answers.
fn patiently<T>(mut ask: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let begin = Stopwatch::start();
    loop {
        match ask() {
            Err(error)
                if begin.elapsed() > PATIENCE
                    || shutdown::is_too_long(begin.elapsed())
                    || error.to_string().contains("not permitted") =>
            {
                return Err(error);
            }
            Err(_) => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
}

/// Publishes a journal behind its writer, for as long as there is one.
fn publish(progress: &Progress, file: &dyn Log, mut sender: Sender) {
    let (mut pause, mut told) = (PAUSE, false);
    loop {
        let done = match progress.next(sender.row_behind()) {
            Next::Over => return,
            Next::Row => sender.write_row().map_err(NotSent::Failed),
            Next::Lines(from) => publish_from(from, progress, file, &mut sender),
        };
        let done = match done {
            Err(NotSent::Overtaken) => go_on_behind(progress, file, &mut sender),
            done => done,
        };
        match done {
            Ok(()) => (pause, told) = (PAUSE, false),
            Err(NotSent::Overtaken) => {
                tracing::warn!("another node has written to this run's journal");
                return progress.overtake();
            }
            Err(NotSent::Failed(error)) => {
                match std::mem::replace(&mut told, true) {
                    true => tracing::debug!("a journal is not published: {error}"),
                    false => tracing::warn!("a journal is not published, and is tried again: {error}"),
                }
                // It is on this disk. Whoever goes on with the run publishes it.
                if progress.is_closed() {
                    return;
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// The journal ends elsewhere than it did: in an older copy of the store it is gone on with. The next attempt names where it ends.
fn go_on_behind(progress: &Progress, file: &dyn Log, sender: &mut Sender) -> Result<(), NotSent> {
    let (journal, _) = file.read(0)?;
    let there = sender.set_back(&journal)?.ok_or(NotSent::Overtaken)?;
    tracing::warn!(
        "the store has less of this run's journal than before: what is missing is published again"
    );
    progress.set_back(there as u64);
    Ok(())
}

fn publish_from(
    from: Place,
    progress: &Progress,
    file: &dyn Log,
    sender: &mut Sender,
) -> Result<(), NotSent> {
    let (lines, _) = file.read(from)?;
    let sent = sender.send(&lines)?;
    // A run is shown from its first lines on.
    if !sender.has_row()
        && let Err(error) = sender.write_row()
    {
        tracing::debug!("a run's row is not written: {error}");
    }
    // The end of a run counts as published once its row tells of it.
    while sender.has_ended()
        && let Err(error) = sender.write_row()
    {
        tracing::debug!("a run's row is not written: {error}");
        if progress.is_closed() {
            break;
        }
        std::thread::sleep(LONGEST_PAUSE);
    }
    progress.sent(sent as u64);
    Ok(())
}

impl Log for PublishedLog {
    fn append(&self, after: Place, lines: &[u8]) -> Appended {
        if self.is_overtaken() {
            return Appended::Overtaken;
        }
        if shutdown::has_given_up() {
            return Appended::Unknown(left(&self.place));
        }
        match &self.way {
            Way::Behind { progress, .. } => {
                let appended = self.file.append(after, lines);
                if let Appended::At(end) = appended
                    && !lines.is_empty()
                {
                    progress.written(end);
                }
                appended
            }
            Way::Ahead(sender) => {
                let mut sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
                let mut rest = lines;
                while !rest.is_empty() {
                    match sender.send(rest) {
                        Ok(sent) => rest = &rest[sent..],
                        Err(NotSent::Overtaken) => return Appended::Overtaken,
                        Err(NotSent::Failed(error)) => return Appended::Unknown(error),
                    }
                }
                if let Err(error) = sender.write_row() {
                    tracing::warn!("a run's row is not written: {error}");
                }
                self.file.append(after, lines)
            }
        }
    }

    fn read(&self, from: Place) -> Result<(Vec<u8>, Place), StoreError> {
        self.file.read(from)
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.file.sync()?;
        let begin = Stopwatch::start();
        let mut told = false;
        loop {
            let whole = match &self.way {
                Way::Behind { progress, .. } => progress.wait(LOOK),
                Way::Ahead(_) => true,
            };
            if self.is_overtaken() {
                return Err(overtaken(&self.place));
            }
            let valid = self.session.as_ref().is_none_or(|session| session.holds());
            if shutdown::has_given_up() {
                return Err(left(&self.place));
            }
            if whole && valid {
                return Ok(());
            }
            if shutdown::is_too_long(begin.elapsed()) {
                continue;
            }
            if begin.elapsed() > TELL_AFTER && !told {
                told = true;
                tracing::warn!("waiting for the cluster's store: nothing begins until it answers again");
            }
            if whole {
                std::thread::sleep(LOOK);
            }
        }
    }

    fn overtaken(&self) -> BoxFuture<'static, ()> {
        let expired = match &self.session {
            Some(session) => session.expiry().boxed(),
            None => futures::future::pending().boxed(),
        };
        match &self.way {
            Way::Behind { progress, .. } => {
                let overtaken = progress.overtaking();
                async move {
                    tokio::select! {
                        () = overtaken => {}
                        () = expired => {}
                    }
                }
                .boxed()
            }
            Way::Ahead(_) => expired,
        }
    }
}

impl Drop for PublishedLog {
    /// What is written is published yet, if the store is there; it is waited for where that takes no time.
    fn drop(&mut self) {
        let Way::Behind { progress, thread } = &mut self.way else { return };
        let is_whole = progress.is_whole();
        progress.close();
        let thread = thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread.filter(|_| is_whole) {
            drop(thread.join());
        }
    }
}
