//! What says of a commit whether it is good: commit statuses, check runs, and the jobs behind them with their logs.

use chrono::{DateTime, Utc};

/// A commit status or a check run.
#[derive(Debug, Clone, Default)]
pub struct Check {
    /// Database id; of a check run that a job made, the job's id as well.
    pub id: u64,
    /// Commit id or branch name it stands on.
    pub on: String,
    /// Context of the status or name of the run.
    pub name: String,
    /// Whether it is a check run (else a commit status).
    pub run: bool,
    /// A status' state, or a run's conclusion (`None` while it runs).
    pub outcome: Option<String>,
    /// A status' longer text, a run's title.
    pub description: Option<String>,
    /// When it changed.
    pub at: DateTime<Utc>,
    /// Whether the base branch wants it before a merge.
    pub required: bool,
    /// What a run says at length, Markdown.
    pub summary: Option<String>,
    /// Still more.
    pub text: Option<String>,
    /// What a run says of single lines.
    pub annotations: Vec<Annotation>,
    /// Where another service shows it.
    pub details_url: Option<String>,
    /// The job of GitHub Actions behind it.
    pub job: Option<Job>,
}

/// What a check run says of a line.
#[derive(Debug, Clone, Default)]
pub struct Annotation {
    /// The file.
    pub path: String,
    /// The line, from 1.
    pub line: u64,
    /// `notice`, `warning` or `failure`.
    pub level: String,
    /// What is wrong.
    pub message: String,
    /// In short.
    pub title: Option<String>,
}

/// A job of GitHub Actions.
#[derive(Debug, Clone, Default)]
pub struct Job {
    /// The workflow run's id.
    pub run: u64,
    /// The workflow's name.
    pub workflow: String,
    /// What the workflow was started by.
    pub event: String,
    /// Which attempt of the workflow run it is of, from 1.
    pub attempt: u64,
    /// The runner's name; empty: it never had one.
    pub runner: String,
    /// Its steps: name and conclusion.
    pub steps: Vec<(String, String)>,
    /// Its log.
    pub log: Log,
    /// Conclusions of the next attempts in order; `running` = it does not end.
    pub reruns: Vec<String>,
}

/// A log that may be longer than anybody wants to hold: a text, lines of filling, another text.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// Its start.
    pub head: String,
    /// How many bytes of filling follow.
    pub filling: u64,
    /// Its end.
    pub tail: String,
    /// 404 or 410: there is none.
    pub refused: Option<u16>,
}

impl Check {
    /// Whether it stands in the place of another one: of one name, and not of another run of its workflow.
    pub fn replaces(&self, other: &Self) -> bool {
        let run = |check: &Self| check.job.as_ref().map(|job| job.run);
        let beside = run(self).zip(run(other)).is_some_and(|(one, other)| one != other);
        (&self.name, self.run) == (&other.name, other.run) && !beside
    }
}

const FILLING: &[u8] =
    b"2026-01-01T00:00:00.0000000Z filling, line after line, of a log that says nothing.\n";

impl Log {
    /// Bytes in all.
    pub fn length(&self) -> u64 {
        self.head.len() as u64 + self.filling + self.tail.len() as u64
    }

    /// At most `most` bytes from `start` on.
    pub fn part(&self, start: u64, most: usize) -> Vec<u8> {
        let mut part = Vec::new();
        let mut at = start;
        while part.len() < most && at < self.length() {
            let left = most - part.len();
            let (head, filled) = (self.head.len() as u64, self.head.len() as u64 + self.filling);
            let piece = if at < head {
                &self.head.as_bytes()[place(at)..]
            } else if at < filled {
                let inside = place((at - head) % FILLING.len() as u64);
                let rest = place(filled - at);
                &FILLING[inside..FILLING.len().min(inside + rest)]
            } else {
                &self.tail.as_bytes()[place(at - filled)..]
            };
            let piece = &piece[..piece.len().min(left)];
            part.extend_from_slice(piece);
            at += piece.len() as u64;
        }
        part
    }
}

/// Positions in texts that are held in memory.
fn place(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_a_log_is_the_same_part_of_the_whole() {
        let log = Log { head: "head\n".to_owned(), filling: 500, tail: "tail\n".to_owned(), refused: None };
        let whole = log.part(0, 10_000);
        assert_eq!(whole.len() as u64, log.length());
        assert!(whole.starts_with(b"head\n2026-") && whole.ends_with(b"tail\n"));
        for start in [0, 3, 5, 88, 200, 504, 507, 510] {
            let wanted = &whole[place(start).min(whole.len())..];
            assert_eq!(log.part(start, 70), wanted[..wanted.len().min(70)]);
        }
    }
}
