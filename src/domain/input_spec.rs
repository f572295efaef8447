//! What a step takes from earlier steps.

use serde_json::Value;

/// Inputs of a step in the order of the file, whatever form they have there.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InputSpec {
    /// One entry a variable.
    pub inputs: Vec<Input>,
}

/// One value of an earlier step's output.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// The step whose output it is.
    pub step: String,
    /// Key of the output.
    pub key: String,
    /// Whether the step cannot run without it.
    pub required: bool,
    /// Value where there is none.
    pub default: Option<Value>,
    /// What happens where there is none.
    pub on_missing: OnMissing,
}

/// What happens when an input is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnMissing {
    /// A required one is an error.
    #[default]
    Error,
    /// The default is used.
    Default,
    /// The variable is left out.
    Skip,
}

impl OnMissing {
    /// Reads `onMissing`.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "error" => Self::Error,
            "default" => Self::Default,
            "skip" => Self::Skip,
            _ => return None,
        })
    }
}

impl Input {
    /// A required input as `"step.key": true` writes it. The last dot splits; `None` when there is no dot.
    pub fn required(reference: &str) -> Option<Self> {
        let (step, key) = split_reference(reference)?;
        Some(Self {
            step: step.into(),
            key: key.into(),
            required: true,
            default: None,
            on_missing: OnMissing::Error,
        })
    }

    /// Name of its variable, without `uv-`.
    pub fn variable(&self) -> String {
        variable_name(&self.step, &self.key)
    }

    /// Whether the variable may be absent from the resolved map.
    pub fn may_be_absent(&self) -> bool {
        match self.on_missing {
            OnMissing::Skip => true,
            OnMissing::Default => false,
            OnMissing::Error => !self.required && self.default.is_none(),
        }
    }
}

/// Splits `initial.issue.summary` into step `initial.issue` and key `summary`: step ids contain dots, keys do not.
pub fn split_reference(reference: &str) -> Option<(&str, &str)> {
    reference.rsplit_once('.').filter(|(step, key)| !step.is_empty() && !key.is_empty())
}

/// The variable's name without its `uv-`: `{stepId}_{key}`, with the dots of the step id replaced.
pub fn variable_name(step: &str, key: &str) -> String {
    format!("{}_{key}", step.replace('.', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_dot_splits_the_step_id_from_the_key() {
        assert_eq!(split_reference("initial.issue.summary"), Some(("initial.issue", "summary")));
        assert_eq!(split_reference("measure.height"), Some(("measure", "height")));
        assert_eq!(split_reference("measure"), None);
        assert_eq!(split_reference("measure."), None);
        assert_eq!(variable_name("initial.issue", "summary"), "initial_issue_summary");
    }
}
