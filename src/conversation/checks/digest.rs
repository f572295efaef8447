//! A log on its way from the network: cleaned, without secrets, kept in parts, and with an excerpt of it. It runs on a thread
//! that may block.

use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::mpsc::Receiver;

use super::excerpt::Excerpt;
use super::log_lines::{Line, LogLines};
use crate::domain::artifact::Artifact;
use crate::domain::redaction::Redactor;
use crate::github::Step;
use crate::store::port::{Blobs, StoreError};

/// Bytes of lines that are searched for secrets at a time.
const BLOCK: usize = 64 << 10;
/// The most, where the end of a key is waited for.
const LONGEST_BLOCK: usize = 256 << 10;
/// Bytes of one kept part of a log.
const PART: usize = 4 << 20;
/// What stands in the place of lines that could not be searched.
const WITHHELD: &str = "[withheld: these lines could not be searched for secrets]";

/// Where parts of clean logs are kept.
#[derive(Clone)]
pub struct Keep {
    /// The run's.
    pub blobs: Arc<dyn Blobs>,
    /// The log's name among those of the run.
    pub name: String,
}

/// What became of a log.
#[derive(Debug)]
pub struct Digest {
    /// What is told of it.
    pub excerpt: String,
    /// The lines that say what went wrong.
    pub errors: Vec<String>,
    /// Handles of its parts in order.
    pub parts: Vec<(String, Artifact)>,
}

/// How a log is read.
pub struct Reading {
    /// Takes secrets out; `None` = nothing of it is kept or told.
    pub redactor: Option<Arc<Redactor>>,
    /// Where it is kept; `None` = nowhere.
    pub keep: Option<Keep>,
    /// The step that failed.
    pub step: Option<Step>,
    /// Bytes of the excerpt.
    pub budget: usize,
    /// Whether the first piece may begin within a line.
    pub headless: bool,
}

impl Reading {
    /// Reads to the end.
    pub fn run(self, mut pieces: Receiver<Bytes>) -> Result<Digest, StoreError> {
        let mut lines = LogLines::new(self.headless);
        let mut work = Work {
            step: window(self.step.as_ref()),
            whole: Excerpt::new(self.budget),
            of_step: Excerpt::new(self.budget),
            block: String::new(),
            in_step: false,
            part: String::new(),
            parts: Vec::new(),
            reading: self,
            failed: None,
        };
        while let Some(piece) = pieces.blocking_recv() {
            lines.push(&piece, &mut |line| work.line(line));
            if let Some(error) = work.failed.take() {
                return Err(error);
            }
        }
        lines.finish(&mut |line| work.line(line));
        work.finish()
    }
}

/// From when to when the failed step wrote; times of steps are in whole seconds.
fn window(step: Option<&Step>) -> Option<(DateTime<Utc>, DateTime<Utc>)> {
    let (from, to) = (step?.started_at?, step?.completed_at?);
    (from < to).then_some((from, to + TimeDelta::seconds(1)))
}

struct Work {
    reading: Reading,
    step: Option<(DateTime<Utc>, DateTime<Utc>)>,
    whole: Excerpt,
    of_step: Excerpt,
    block: String,
    /// Whether the lines of the block are the failed step's.
    in_step: bool,
    part: String,
    parts: Vec<(String, Artifact)>,
    failed: Option<StoreError>,
}

impl Work {
    fn line(&mut self, line: Line) {
        let in_step = match (line.at, self.step) {
            (Some(at), Some((from, to))) => at >= from && at < to,
            // A line without a time goes with the one before it.
            (None, Some(_)) => self.in_step,
            (_, None) => false,
        };
        if in_step != self.in_step {
            self.search();
            self.in_step = in_step;
        }
        self.block.push_str(&line.text);
        self.block.push('\n');
        // A key that goes over several lines is searched as a whole.
        let waits = |block: &str| block.contains("-----BEGIN") && !block.contains("-----END");
        if self.block.len() >= LONGEST_BLOCK || (self.block.len() >= BLOCK && !waits(&self.block)) {
            self.search();
        }
    }

    /// Takes the secrets out of the block, and gives it on.
    fn search(&mut self) {
        let block = std::mem::take(&mut self.block);
        if block.is_empty() {
            return;
        }
        let clean = match &self.reading.redactor {
            Some(redactor) => match redactor.redact(&block) {
                Ok(clean) => clean.into_owned(),
                Err(_) => format!("{WITHHELD}\n"),
            },
            None => block,
        };
        for line in clean.lines() {
            self.whole.push(line);
            if self.in_step {
                self.of_step.push(line);
            }
        }
        if self.reading.keep.is_some() {
            self.part.push_str(&clean);
            if self.part.len() >= PART {
                self.keep();
            }
        }
    }

    fn keep(&mut self) {
        let Some(keep) = &self.reading.keep else { return };
        let part = std::mem::take(&mut self.part);
        let number = self.parts.len() + 1;
        let handle = if number == 1 { keep.name.clone() } else { format!("{}-part-{number}", keep.name) };
        match keep.blobs.put(&format!("{handle}.log"), part.as_bytes()) {
            Ok(artifact) => self.parts.push((handle, artifact)),
            Err(error) => self.failed = Some(error),
        }
    }

    fn finish(mut self) -> Result<Digest, StoreError> {
        self.search();
        if !self.part.is_empty() {
            self.keep();
        }
        if let Some(error) = self.failed {
            return Err(error);
        }
        if let Some(keep) = &self.reading.keep {
            keep.blobs.sync()?;
        }
        let told = if self.of_step.is_empty() { &self.whole } else { &self.of_step };
        Ok(Digest { excerpt: told.text(), errors: told.errors().to_vec(), parts: self.parts })
    }
}
