//! A stop in levels: go to where others can go on, finish the running work, or drop it.

use std::io;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::process;

/// How long a process that a signal told to end waits for one answer of a service that it shares with others: after the first
/// signal, and after the second, or once there was no answer.
const PATIENCE: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(1)];

/// What this process has left of it.
#[derive(Debug, Clone, Copy)]
struct Left {
    /// How long it waits for one answer; `None` = for as long as it takes, because no signal told it to end.
    most: Option<Duration>,
    given_up: bool,
}

static LEFT: LazyLock<watch::Sender<Left>> =
    LazyLock::new(|| watch::Sender::new(Left { most: None, given_up: false }));

/// Whether a wait of this length is too long for this process. Only one that a signal told to end has no time.
pub fn is_too_long(waited: Duration) -> bool {
    let is = LEFT.borrow().most.is_some_and(|most| waited > most);
    if is {
        give_up();
    }
    is
}

/// Ends once a wait that begins now is too long for this process, which is never before a signal told it to end. What it waited
/// for is given up then.
pub async fn too_long() {
    out_of_time().await;
    give_up();
}

/// Whether a signal told this process to end.
pub fn is_told_to_end() -> bool {
    LEFT.borrow().most.is_some()
}

/// As [`too_long`], of a service of whose next answer that says nothing.
pub async fn out_of_time() {
    let (begin, mut left) = (Instant::now(), LEFT.subscribe());
    loop {
        let most = left.borrow_and_update().most;
        let over = async {
            match most {
                Some(most) => tokio::time::sleep_until(begin + most).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = over => return,
            // The sender is never dropped.
            _ = left.changed() => {}
        }
    }
}

/// Whether this process ends without an answer that it has waited for. What needs such answers is not begun any more.
pub fn has_given_up() -> bool {
    LEFT.borrow().given_up
}

fn give_up() {
    LEFT.send_if_modified(|left| {
        left.most = Some(PATIENCE[1]);
        !std::mem::replace(&mut left.given_up, true)
    });
}

/// A stop that can be asked for and waited for. Clones are the same stop. A child hears its parent, but not the
/// reverse.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    drain: CancellationToken,
    stop: CancellationToken,
    abort: CancellationToken,
}

impl Shutdown {
    /// A stop that nobody asked for yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A stop for a part (one run): hears this one, and can be asked for alone.
    pub fn child(&self) -> Self {
        Self {
            drain: self.drain.child_token(),
            stop: self.stop.child_token(),
            abort: self.abort.child_token(),
        }
    }

    /// Before the first level: go to where others can go on with the work, and end there.
    pub fn request_drain(&self) {
        self.drain.cancel();
    }

    /// Ends when that is asked for.
    pub async fn drained(&self) {
        self.drain.cancelled().await;
    }

    /// First level: finish the turn, report, pause (D69).
    pub fn request_stop(&self) {
        self.stop.cancel();
    }

    /// Second level: cancel at once.
    pub fn request_abort(&self) {
        self.stop.cancel();
        self.abort.cancel();
    }

    /// Whether a stop was asked for, at any level.
    pub fn stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Whether everything must end now.
    pub fn aborting(&self) -> bool {
        self.abort.is_cancelled()
    }

    /// Ends when a stop of any level is asked for.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Ends when everything must end now.
    pub async fn aborted(&self) {
        self.abort.cancelled().await;
    }

    /// Token of the first level.
    pub fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }

    /// Token of the second level, for what runs processes.
    pub fn abort_token(&self) -> &CancellationToken {
        &self.abort
    }

    /// Listens to the signals of the process. The first one asks to stop; the second one aborts and kills every child
    /// process with its descendants; a hangup is never the second one. A hangup that is ignored already, as `nohup` has it, stays ignored. Needs a tokio runtime.
    #[cfg(unix)]
    pub fn on_signals() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let shutdown = Self::new();
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mut hangup = (!ignores_hangup(&status)).then(|| signal(SignalKind::hangup())).transpose()?;
        let heard = shutdown.clone();
        tokio::spawn(async move {
            let mut told = 0;
            loop {
                let hung_up = tokio::select! {
                    _ = interrupt.recv() => false,
                    _ = terminate.recv() => false,
                    () = async {
                        match &mut hangup {
                            Some(hangup) => drop(hangup.recv().await),
                            None => std::future::pending().await,
                        }
                    } => true,
                };
                // One terminal that is closed may send two: by the kernel, and by its shell.
                if !hung_up || told == 0 {
                    heard.take_signal(told);
                    told += 1;
                }
            }
        });
        Ok(shutdown)
    }

    /// Listens to Ctrl-C from now on. Needs a tokio runtime.
    #[cfg(not(unix))]
    pub fn on_signals() -> io::Result<Self> {
        let shutdown = Self::new();
        let heard = shutdown.clone();
        tokio::spawn(async move {
            for told in 0.. {
                if tokio::signal::ctrl_c().await.is_err() {
                    return;
                }
                heard.take_signal(told);
            }
        });
        Ok(shutdown)
    }

    /// `told`: signals that came before. Who is asked to stop in another way is not told a second time by the first one.
    fn take_signal(&self, told: usize) {
        let patience = PATIENCE[told.min(1)];
        LEFT.send_modify(|left| left.most = Some(left.most.unwrap_or(patience).min(patience)));
        if told > 0 {
            self.request_abort();
            process::kill_all();
        } else {
            self.request_stop();
        }
    }
}

/// Whether a process ignores hangups, as Linux tells of it.
#[cfg(unix)]
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_hangup_that_is_ignored_is_told_from_other_signals() {
        let of = |mask: &str| {
            ignores_hangup(&format!("Name:\tagentd\nSigIgn:\t{mask}\nSigCgt:\t0000000000000001\n"))
        };
        assert_eq!([of("0000000000001001"), of("0000000000001000")], [true, false]);
        assert!(!ignores_hangup(""));
    }

    #[test]
    fn a_child_hears_its_parent_and_not_the_reverse() {
        let all = Shutdown::new();
        let (one, two) = (all.child(), all.child());
        one.request_stop();
        assert!(one.stopping() && !two.stopping() && !all.stopping());
        all.request_abort();
        assert!(two.aborting() && two.stopping() && one.aborting());
    }
}
