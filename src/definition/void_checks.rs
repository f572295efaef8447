//! Checks that can never hold, or hold whatever was done: they are told before a model is paid for.

use super::diagnostic::Severity;
use super::position::child;
use super::source::Findings;
use crate::domain::flow::{SuccessWhen, ValidatorKind};
use crate::sys::worktree_path;

/// What is void about a validator.
struct Void {
    severity: Severity,
    key: &'static str,
    why: String,
    fix: &'static str,
}

impl Void {
    fn never(key: &'static str, why: impl Into<String>, fix: &'static str) -> Self {
        Self { severity: Severity::Error, key, why: why.into(), fix }
    }

    fn always(key: &'static str, why: impl Into<String>, fix: &'static str) -> Self {
        Self { severity: Severity::Warning, ..Self::never(key, why, fix) }
    }
}

/// Tells what is void about a validator.
pub(super) fn tell(
    name: &str,
    kind: &ValidatorKind,
    success: &SuccessWhen,
    at: &str,
    findings: &mut Findings<'_>,
) {
    let is_program = matches!(kind, ValidatorKind::Command(_) | ValidatorKind::Custom(_));
    let of_success = is_program.then(|| of_success(success)).flatten();
    for Void { severity, key, why, fix } in of_kind(kind, success).into_iter().chain(of_success) {
        let (code, what) = match severity {
            Severity::Error | Severity::Defect => ("SR-CHECK-001", "can never hold"),
            Severity::Warning => ("SR-CHECK-002", "holds whatever was done"),
        };
        findings.add(severity, code, &child(at, key), format!("the check \"{name}\" {what}: {why}"), fix);
    }
}

fn of_kind(kind: &ValidatorKind, success: &SuccessWhen) -> Option<Void> {
    match kind {
        // What a parameter brings is known when it is asked.
        ValidatorKind::File(path) if path.contains("${") => None,
        ValidatorKind::File(path) => worktree_path::outside(path).map(|error| {
            Void::never("path", error.to_string(), "name a file of the repository, from its root")
        }),
        ValidatorKind::Command(line) if does_nothing(line) => {
            let fix = "write the command";
            match success {
                SuccessWhen::Empty | SuccessWhen::ExitCode(0) => {
                    Some(Void::always("command", "its command does nothing", fix))
                }
                _ => Some(Void::never("command", "its command does nothing", fix)),
            }
        }
        ValidatorKind::Custom(program) if program.trim().is_empty() => {
            Some(Void::never("path", "it names no program", "name a program of the agent's folder"))
        }
        ValidatorKind::Semantic(question) if question.trim().is_empty() => Some(Void::never(
            "semanticConfig",
            "its checkType asks nothing",
            "write commit-message, coverage-check, file-relevance, or a question",
        )),
        ValidatorKind::Command(_) | ValidatorKind::Custom(_) | ValidatorKind::Semantic(_) => None,
    }
}

/// Whether a line for the shell has nothing but comments.
fn does_nothing(line: &str) -> bool {
    line.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#'))
}

fn of_success(success: &SuccessWhen) -> Option<Void> {
    let key = "successWhen";
    match success {
        SuccessWhen::ExitCode(code) if !(0..=255).contains(code) => Some(Void::never(
            key,
            format!("no program ends with exit code {code}"),
            "write a code from 0 to 255",
        )),
        SuccessWhen::Contains(text) if text.is_empty() => {
            Some(Void::always(key, "every output contains nothing", "write contains:TEXT"))
        }
        SuccessWhen::Matches(pattern) if pattern.is_empty() => {
            Some(Void::always(key, "every output matches an empty pattern", "write matches:REGEX"))
        }
        _ => None,
    }
}
