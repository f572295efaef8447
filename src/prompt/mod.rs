//! Prompts: C3L addresses, frontmatter, one pass of substitution, and what a resolved prompt was made from.

pub mod address;
pub mod frontmatter;
pub mod template;
pub mod retry;
pub mod library;
pub mod breakdown;

use std::fmt;

/// Why a prompt cannot be had; every variant has a stable code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptError {
    /// Stable code, `PR-…`.
    pub code: &'static str,
    /// File the error is in, as people know it, where there is one.
    pub file: Option<String>,
    /// 1-based line of the file.
    pub line: Option<u32>,
    /// What is wrong and what to do.
    pub message: String,
}

impl PromptError {
    /// An error that belongs to no file.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, file: None, line: None, message: message.into() }
    }

    /// The same error, placed in a file.
    #[must_use]
    pub fn in_file(mut self, file: &str) -> Self {
        self.file.get_or_insert_with(|| file.to_owned());
        self
    }

    /// What is wrong, and in which file: for a report that shows the code elsewhere.
    pub fn told(&self) -> String {
        match &self.file {
            Some(file) => format!("{file}: {}", self.message),
            None => self.message.clone(),
        }
    }

    /// The same error, placed on a line.
    #[must_use]
    pub fn on_line(mut self, line: u32) -> Self {
        self.line = Some(line);
        self
    }
}

impl fmt::Display for PromptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.code)?;
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{file}:{line}: ")?,
            (Some(file), None) => write!(f, "{file}: ")?,
            _ => {}
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for PromptError {}
