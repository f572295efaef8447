//! What people see while a run works: the step and turn, tools as they run, tokens and cost, time.

use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use terminal_size::{Height, Width, terminal_size_of};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;

use super::output::{Output, harmless};
use super::transcript::{Detail, Transcript};
use crate::lifecycle::run_observer::Lines;
use crate::store::journal_file;
use crate::store::journal_format::HeardLine;
use crate::store::run_dir::RunDir;

/// Follows one run: a live line on a terminal, plain lines elsewhere, JSON Lines with `--stream`.
#[derive(Clone)]
pub struct View {
    output: Output,
    stream: bool,
    detail: Detail,
    bar: Option<ProgressBar>,
    following: Arc<Mutex<Option<oneshot::Receiver<()>>>>,
}

impl View {
    /// A view that follows nothing yet.
    pub fn new(output: Output, stream: bool, detail: Detail) -> Self {
        let bar = output.is_live().then(|| {
            let bar = ProgressBar::with_draw_target(
                None,
                ProgressDrawTarget::term_like(Box::new(Narrowed::default())),
            );
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise} {wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { output, stream, detail, bar, following: Arc::default() }
    }

    /// Writes something that is not from the journal, without disturbing the live line.
    pub fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.output.note(text)),
            None => self.output.note(text),
        }
    }

    /// Shows the lines of a run's journal until it ends, on a thread of its own: whoever reads them may be slow.
    pub fn follow(&self, lines: Lines, dir: RunDir) {
        let (shown, following) = oneshot::channel();
        let view = self.clone();
        let work = move || {
            show(view, lines, &dir);
            // Nobody waits for it any more.
            let _ = shown.send(());
        };
        if let Err(error) = std::thread::Builder::new().name("agentd-view".into()).spawn(work) {
            tracing::warn!(%error, "the run's progress cannot be shown");
        }
        *self.following.lock().unwrap_or_else(PoisonError::into_inner) = Some(following);
    }

    /// Waits until everything was shown. A screen may miss the end; a stream may not.
    pub async fn finish(&self) {
        let following = self.following.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(following) = following else { return };
        // It fails only by a panic, which was told.
        if self.stream {
            let _ = following.await;
        } else {
            let _ = tokio::time::timeout(Duration::from_secs(2), following).await;
        }
    }
}

fn show(view: View, mut lines: Lines, dir: &RunDir) {
    let (output, stream) = (view.output, view.stream);
    let mut screen = Screen::new(view, dir);
    let mut shown = 0;
    // The first lines were there before anybody listened.
    let mut next = missed(dir, shown);
    'run: loop {
        for line in next {
            if line.seq <= shown {
                continue;
            }
            shown = line.seq;
            if stream && output.json_lines(line.text.as_bytes()).is_err() {
                break 'run;
            }
            screen.take(&line);
            if line.kind == "run_ended" {
                break 'run;
            }
        }
        next = match lines.blocking_recv() {
            Ok(line) => vec![line],
            Err(RecvError::Lagged(_)) => missed(dir, shown),
            Err(RecvError::Closed) => break,
        };
    }
    screen.close();
}

/// The lines after `shown`, from the file: the run did not wait for us. Blocks.
fn missed(dir: &RunDir, shown: u64) -> Vec<Arc<HeardLine>> {
    let lines = journal_file::read(dir).map(|read| read.lines).unwrap_or_default();
    lines.into_iter().filter(|line| line.seq > shown).map(|line| Arc::new(line.into())).collect()
}

/// Columns of the live line beside its text: the spinner and the time.
const BESIDE: usize = 11;
/// Columns that the live line leaves free.
const MARGIN: u16 = 3;

/// Place, cost and what is done now, with the tokens where there is room for them. Of what has none, the end is left out.
fn in_one_line([place, spent, doing]: [String; 3], tokens: &str, room: usize) -> String {
    let joined = |parts: &[&str]| {
        let said: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
        harmless(&said.join(" · ")).replace('\n', " ")
    };
    let least = joined(&[&place, &spent]);
    let all = [joined(&[&place, tokens, &spent, &doing]), joined(&[&place, &spent, &doing]), least.clone()];
    let cut = || least.chars().take(room.saturating_sub(1)).chain(['…']).collect();
    all.into_iter().find(|line| line.chars().count() <= room).unwrap_or_else(cut)
}

/// The terminal of stderr, some columns narrower than it is. The live line is then one line, and what the terminal itself writes at its end
/// for Ctrl-C is cleared with it: of a line that went on below, a copy would stay.
#[derive(Debug, Default)]
struct Narrowed {
    /// What was not written yet: a line is drawn at once.
    pending: Mutex<String>,
}

impl Narrowed {
    fn size() -> (u16, u16) {
        terminal_size_of(io::stderr()).map_or((80, 24), |(Width(columns), Height(rows))| (columns, rows))
    }

    fn columns() -> u16 {
        Self::size().0.saturating_sub(MARGIN).max(1)
    }

    fn put(&self, text: &str) -> io::Result<()> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
        Ok(())
    }

    fn steer(&self, count: usize, direction: char) -> io::Result<()> {
        if count == 0 { Ok(()) } else { self.put(&format!("\u{1b}[{count}{direction}")) }
    }
}

impl TermLike for Narrowed {
    fn width(&self) -> u16 {
        Self::columns()
    }

    fn height(&self) -> u16 {
        Self::size().1
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.steer(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.steer(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.steer(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.steer(n, 'D')
    }

    fn write_line(&self, s: &str) -> io::Result<()> {
        self.put(s)?;
        self.put("\n")
    }

    fn write_str(&self, s: &str) -> io::Result<()> {
        self.put(s)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.put("\r\u{1b}[2K")
    }

    fn flush(&self) -> io::Result<()> {
        let pending = std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        let mut stderr = io::stderr().lock();
        stderr.write_all(pending.as_bytes())?;
        stderr.flush()
    }
}

/// What is on the screen.
struct Screen {
    view: View,
    transcript: Transcript,
}

impl Screen {
    fn new(view: View, dir: &RunDir) -> Self {
        if let Some(bar) = &view.bar {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        let dir = dir.path.clone();
        let read_kept = move |path: &str| std::fs::read_to_string(dir.join(path)).ok();
        let transcript = Transcript::new(view.detail, Box::new(read_kept));
        Self { view, transcript }
    }

    fn take(&mut self, line: &HeardLine) {
        let Some(event) = &line.event else { return };
        for line in self.transcript.take(event) {
            // Each warning is told once.
            if line.logged && self.view.output.is_log() {
                continue;
            }
            self.view.say(&line.text);
        }
        self.now();
    }

    /// What happens now: goes with the next thing.
    fn now(&self) {
        if let Some(bar) = &self.view.bar {
            let told = &self.transcript;
            let turn = if told.turn > 0 { format!(", turn {}", told.turn) } else { String::new() };
            let place = Some(told.place()).filter(|place| !place.is_empty()).map(|place| place + &turn);
            let parts = [place.unwrap_or_default(), told.spent(), told.doing.clone()];
            let room = usize::from(Narrowed::columns()).saturating_sub(BESIDE);
            bar.set_message(in_one_line(parts, &format!("{} tokens", told.tokens), room));
        }
    }

    fn close(&self) {
        if let Some(bar) = &self.view.bar {
            bar.finish_and_clear();
        }
    }
}
