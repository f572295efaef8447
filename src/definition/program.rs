//! An agent's own programs: they exist in its folder, are executable, and are hashed with the definition (N24).

use std::path::Path;

use super::diagnostic::Severity;
use super::graph::ReachableSteps;
use super::position::child;
use super::registry::ReadRegistry;
use super::source::{Files, Findings, below};
use crate::domain::completion::Completion;
use crate::domain::flow::ValidatorKind;

/// Where an agent's programs lie.
pub struct AgentPrograms<'a> {
    /// The agent's folder.
    pub folder: &'a Path,
    /// The folder as people know it.
    pub shown: &'a str,
    /// Takes their hashes.
    pub files: &'a Files,
}

impl AgentPrograms<'_> {
    /// Programs that decide completion.
    pub fn of_completion(&self, completion: Option<&Completion>, findings: &mut Findings<'_>) {
        for program in completion.map(Completion::programs).unwrap_or_default() {
            if let Some((code, why)) = self.problem(program) {
                findings.add(
                    Severity::Error,
                    code,
                    "/runner/verdict/config",
                    format!("handlerPath \"{program}\" {why}"),
                    "name an executable program below the agent's folder; it gets the run's state as JSON on stdin and answers {\"complete\": bool, \"reason\": text}",
                );
            }
        }
    }

    /// Programs of custom validators, and of steps that name a program in the agent's folder.
    pub fn of_registry(&self, registry: &ReadRegistry, reach: &ReachableSteps, findings: &mut Findings<'_>) {
        for (name, validator) in &registry.flow.validators {
            let ValidatorKind::Custom(program) = &validator.kind else { continue };
            if let Some((_, why)) = self.problem(program) {
                findings.add(
                    Severity::Error,
                    "SR-REF-005",
                    &child("/validators", name),
                    format!("the program \"{program}\" of the validator \"{name}\" {why}"),
                    "name an executable program below the agent's folder; it runs in the worktree with the parameters as arguments",
                );
            }
        }
        for read in &registry.steps {
            let Some(runner) = &read.step.runner else { continue };
            // A program of the system or of the worktree is looked for when it is run.
            let own = below(self.folder, &runner.command).is_some_and(|path| path.is_file());
            if own && let Some((_, why)) = self.problem(&runner.command) {
                findings.add(
                    reach.severity(&read.step.id),
                    "SR-REF-005",
                    &format!("{}/runner/command", read.at),
                    format!("the program \"{}\" of step \"{}\" {why}", runner.command, read.step.id),
                    "make it executable",
                );
            }
        }
    }

    /// What is wrong with a program; one that is in order is hashed.
    fn problem(&self, program: &str) -> Option<(&'static str, &'static str)> {
        let real = below(self.folder, program).and_then(|path| path.canonicalize().ok());
        let inside = real
            .as_ref()
            .zip(self.folder.canonicalize().ok())
            .is_some_and(|(path, folder)| path.starts_with(folder));
        match real {
            Some(path) if inside && path.is_file() => {
                if let Ok(bytes) = std::fs::read(&path) {
                    self.files.keep(&format!("{}/{program}", self.shown), &bytes);
                }
                (!is_executable(&path)).then_some(("AC-VERDICT-006", "is not executable"))
            }
            _ => Some(("AC-VERDICT-007", "is no file of the agent's folder")),
        }
    }
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(_path: &Path) -> bool {
    true
}
