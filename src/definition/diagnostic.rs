//! What is wrong with a definition: code, place, meaning and fix, all in one report.

use std::fmt;

use super::position::Position;
use crate::domain::words::words;
use crate::prompt::PromptError;

words! {
    /// What a finding does.
    #[derive(PartialOrd, Ord)]
    pub enum Severity {
        /// It is told; nothing stops.
        Warning = "warning",
        /// `agents check` fails; a run goes on (N20).
        Defect = "defect",
        /// Nothing runs with it.
        Error = "error",
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Stable code.
    pub code: &'static str,
    /// What it does.
    pub severity: Severity,
    /// File as people know it, relative to the project.
    pub file: String,
    /// JSON pointer in the file, as the file is written; empty for other formats and whole files.
    pub pointer: String,
    /// Line and column, where known.
    pub place: Option<Position>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub fix: String,
    /// The file breaks its JSON Schema: exit 5 instead of 4 (D48).
    pub schema: bool,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(place) = self.place {
            write!(f, ":{}:{}", place.line, place.column)?;
        }
        write!(f, ": {} {}: {}", self.severity.as_str(), self.code, self.message)?;
        if !self.pointer.is_empty() {
            write!(f, " (at {})", self.pointer)?;
        }
        if !self.fix.is_empty() {
            write!(f, "\n    fix: {}", self.fix)?;
        }
        Ok(())
    }
}

/// A definition that cannot run: every finding, errors first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(pub Vec<Diagnostic>);

impl Refused {
    /// 5 when an error says that a file breaks its schema, else 4.
    pub fn exit_code(&self) -> u8 {
        exit_code(&self.0, Severity::Error)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors: Vec<String> = self
            .0
            .iter()
            .filter(|found| found.severity == Severity::Error)
            .map(ToString::to_string)
            .collect();
        f.write_str(&errors.join("\n"))
    }
}

impl std::error::Error for Refused {}

/// Exit code of a report in which findings of `fatal` and above fail: 0, 4, or 5 for a broken schema.
pub fn exit_code(findings: &[Diagnostic], fatal: Severity) -> u8 {
    let failing = || findings.iter().filter(|found| found.severity >= fatal);
    if failing().any(|found| found.schema) {
        5
    } else if failing().next().is_some() {
        4
    } else {
        0
    }
}

/// A finding in a prompt file.
pub fn in_prompt(severity: Severity, error: &PromptError, shown: &str) -> Diagnostic {
    Diagnostic {
        code: error.code,
        severity,
        file: error.file.clone().unwrap_or_else(|| shown.to_owned()),
        pointer: String::new(),
        place: error.line.map(|line| Position { line, column: 1 }),
        message: error.message.clone(),
        fix: String::new(),
        schema: false,
    }
}
