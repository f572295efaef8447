//! `agentd runs log`: the dialogue of a run, step by step.

use std::time::Duration;

use serde_json::{Value, json};

use super::finished;
use crate::cli::args::{LogArgs, RunRef};
use crate::cli::context::Context;
use crate::cli::error::CommandError;
use crate::cli::output::reader_went_away;
use crate::cli::transcript::{Detail, Line, Transcript};
use crate::record::finish::RunState;
use crate::store::journal_file;
use crate::store::journal_format::JournalLine;
use crate::store::run_dir::RunDir;

/// How often a run that works is looked at.
const PAUSE: Duration = Duration::from_millis(400);

/// Prints what was asked for; with `--follow` until the run ends or nobody reads any more.
pub(super) fn print(context: &Context, dir: &RunDir, args: &LogArgs) -> Result<(), CommandError> {
    let read_kept = {
        let path = dir.path.clone();
        move |name: &str| std::fs::read_to_string(path.join(name)).ok()
    };
    let mut log = Log {
        context,
        args,
        transcript: Transcript::new(Detail::Dialogue, Box::new(read_kept)),
        shown: 0,
        heading: None,
        steps: Vec::new(),
        lines: Vec::new(),
        printed: false,
    };
    loop {
        // The end is looked for first: what comes before it is in the journal then.
        super::brought_again(context, dir)?;
        let ended = finished(dir)?.1 == RunState::Ended;
        log.read(dir)?;
        if ended || !args.follow || reader_went_away() {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    log.close()
}

/// Prints a run from its start and follows it to its end.
pub fn follow(context: &Context, dir: &RunDir) -> Result<(), CommandError> {
    let run = RunRef { run: dir.run_id.to_string() };
    print(context, dir, &LogArgs { run, follow: true, failed: false, step: None })
}

struct Log<'a> {
    context: &'a Context,
    args: &'a LogArgs,
    transcript: Transcript,
    /// Lines of the journal that were read.
    shown: usize,
    /// The line that begins the visit under way, until something of it is shown.
    heading: Option<Line>,
    /// Steps that there were.
    steps: Vec<String>,
    /// What one JSON document is made of.
    lines: Vec<Value>,
    printed: bool,
}

impl Log<'_> {
    fn read(&mut self, dir: &RunDir) -> Result<(), CommandError> {
        let read = journal_file::read(dir).map_err(|error| CommandError::failed(error.to_string()))?;
        let new = self.shown;
        self.shown = read.lines.len();
        for event in read.lines.iter().skip(new).filter_map(JournalLine::event) {
            for line in self.transcript.take(&event) {
                self.show(line)?;
            }
        }
        Ok(())
    }

    fn show(&mut self, line: Line) -> Result<(), CommandError> {
        if let Some((_, step)) = line.step.as_ref().filter(|(_, step)| !self.steps.contains(step)) {
            self.steps.push(step.clone());
        }
        let wanted = match (&self.args.step, &line.step) {
            (None, _) => true,
            (Some(wanted), Some((_, step))) => wanted == step,
            (Some(_), None) => false,
        };
        if !wanted {
            return Ok(());
        }
        if line.heads && self.args.failed {
            self.heading = Some(line);
            return Ok(());
        }
        if self.args.failed && !line.failed {
            return Ok(());
        }
        if let Some(heading) = self.heading.take() {
            self.say(&heading)?;
        }
        self.say(&line)
    }

    fn say(&mut self, line: &Line) -> Result<(), CommandError> {
        let output = self.context.output;
        self.printed = true;
        if output.json() {
            let told = json!({
                "visit": line.step.as_ref().map(|(visit, _)| visit),
                "step": line.step.as_ref().map(|(_, step)| step),
                "failed": line.failed,
                "text": line.text.trim(),
            });
            if self.args.follow {
                return output.json_line(&told);
            }
            self.lines.push(told);
            return Ok(());
        }
        let gap = if line.heads { "\n" } else { "" };
        let text = match line.tone() {
            // Only its first line is in colours: what a tool answered is not ours.
            Some(tone) => match line.text.split_once('\n') {
                Some((first, rest)) => format!("{}\n{rest}", output.toned(first, tone)),
                None => output.toned(&line.text, tone),
            },
            None => line.text.clone(),
        };
        output.line(format!("{gap}{text}"))
    }

    fn close(self) -> Result<(), CommandError> {
        let output = self.context.output;
        if let Some(step) = self.args.step.as_ref().filter(|step| !self.steps.contains(step)) {
            let error = CommandError::invalid(format!("the run visited no step \"{step}\""));
            return Err(match self.steps.as_slice() {
                [] => error.hint("it visited none"),
                steps => error.hint(format!("it visited {}", steps.join(", "))),
            });
        }
        if output.json() && !self.args.follow {
            return output.document(&self.lines);
        }
        if !self.printed && !output.json() {
            output.note("Nothing failed.");
        }
        Ok(())
    }
}
