//! Which backend works on which step of a run: a program that the definition or the configuration names, or agentd's
//! session.

use std::collections::BTreeMap;

use super::agent_program::{AgentProgram, Backend, StepExecutor};
use super::flow::{Definition, Step, StepId};

/// The programs of a run and the steps that each works on. agentd's session works on every other step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepExecutors {
    programs: Vec<AgentProgram>,
    steps: BTreeMap<StepId, usize>,
}

/// A backend that is named and has no program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the step \"{step}\" is the backend \"{}\"'s, and nothing says which program that is", .backend.as_str())]
pub struct NoProgram {
    /// The step.
    pub step: StepId,
    /// The backend.
    pub backend: Backend,
}

impl StepExecutors {
    /// Finds the backend of each step: the one that the step names, else the agent's, else the configuration's. A
    /// backend that is named alone means the program that the agent or the configuration has for it, else the usual
    /// one.
    ///
    /// # Errors
    /// A backend without a usual program is named alone, and neither the agent nor the configuration has a program for
    /// it.
    pub fn of(definition: &Definition, configured: Option<&AgentProgram>) -> Result<Self, NoProgram> {
        let agents = definition.agentd.executor.as_ref();
        let written = |executor: Option<&StepExecutor>| match executor {
            Some(StepExecutor::Program(program)) => Some(program.as_ref().clone()),
            _ => None,
        };
        let mut found = Self::default();
        for step in definition.flow.steps.iter().filter(|step| step.runner.is_none()) {
            let program = match step.executor.as_ref().or(agents) {
                Some(StepExecutor::Session) => None,
                Some(StepExecutor::Program(program)) => Some(program.as_ref().clone()),
                Some(StepExecutor::Named(backend)) => {
                    let known = [written(agents), configured.cloned()];
                    let known = known.into_iter().flatten().find(|program| program.backend == *backend);
                    let none = || NoProgram { step: step.id.clone(), backend: *backend };
                    Some(known.or_else(|| AgentProgram::usual(*backend)).ok_or_else(none)?)
                }
                None => configured.cloned(),
            };
            if let Some(program) = program {
                found.assign(step, program);
            }
        }
        Ok(found)
    }

    fn assign(&mut self, step: &Step, program: AgentProgram) {
        let known = self.programs.iter().position(|known| *known == program);
        let index = known.unwrap_or(self.programs.len());
        if known.is_none() {
            self.programs.push(program);
        }
        self.steps.insert(step.id.clone(), index);
    }

    /// The programs, each once, in the order of the steps.
    pub fn programs(&self) -> &[AgentProgram] {
        &self.programs
    }

    /// Steps with the place of their program in [`StepExecutors::programs`].
    pub fn steps(&self) -> impl Iterator<Item = (&StepId, usize)> {
        self.steps.iter().map(|(step, index)| (step, *index))
    }

    /// Whether agentd itself asks a model for the definition.
    pub fn leave_a_step_to_the_session(&self, definition: &Definition) -> bool {
        definition
            .flow
            .steps
            .iter()
            .any(|step| step.check.is_some() || step.runner.is_none() && !self.steps.contains_key(&step.id))
    }
}
