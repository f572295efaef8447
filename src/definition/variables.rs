//! The `uv-` variables that a run supplies by itself: the published list (D68). Their values are set by `with_facts` in
//! `lifecycle/instance/mod.rs` and by `engine/variables.rs`.

use crate::domain::completion::Completion;

/// One variable that a run supplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostVariable {
    /// Name without `uv-`.
    pub name: &'static str,
    /// What it holds.
    pub meaning: &'static str,
    /// When it has a value.
    pub when: Supply,
}

/// When a variable has a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supply {
    /// In every visit. It is a fact of the issue and may also be declared as a parameter of the same name.
    Fact,
    /// In every visit.
    Always,
    /// In every visit but the first.
    AfterFirstVisit,
    /// Where the completion condition has such a part.
    Completion(&'static str),
}

const fn variable(name: &'static str, when: Supply, meaning: &'static str) -> HostVariable {
    HostVariable { name, meaning, when }
}

/// Every variable that a run supplies.
pub const HOST_VARIABLES: [HostVariable; 34] = [
    variable("issue", Supply::Fact, "the issue's number (its word, for an issue from a file)"),
    variable("issue_number", Supply::Fact, "the same, under its older name"),
    variable("issue_title", Supply::Fact, "the issue's title, sanitised"),
    variable("issue_url", Supply::Fact, "the issue's web address; empty for an issue from a file"),
    variable("repository", Supply::Fact, "owner/name"),
    variable("branch", Supply::Fact, "the issue's branch"),
    variable("origin_branch", Supply::Fact, "the branch the work starts from"),
    variable("issue_body", Supply::Always, "the issue's title and body, fenced"),
    variable(
        "issue_links",
        Supply::Always,
        "what the issue is linked with, and issues that trusted texts name, fenced",
    ),
    variable("issue_remarks", Supply::Always, "the comments of the issue, fenced"),
    variable("pull_request", Supply::Always, "the comments and reviews of its pull request, fenced"),
    variable("review_threads", Supply::Always, "the unresolved threads of its pull request, fenced"),
    variable("failed_checks", Supply::Always, "what failed checks of its pull request say, fenced"),
    variable("new_remarks", Supply::Always, "the remarks that a follow-up run is about, fenced"),
    variable("answer", Supply::Always, "the answer to a question that an earlier run asked, fenced"),
    variable("repository_rules", Supply::Always, "the repository's own rules, fenced"),
    variable("pull_request_template", Supply::Always, "the form of pull requests of the repository, fenced"),
    variable("agent_name", Supply::Always, "the agent's name"),
    variable("iteration", Supply::Always, "number of the visit in the run, from 1"),
    variable("max_iterations", Supply::Always, "the definition's limit of visits, else budgets.max_steps"),
    variable("remaining", Supply::Always, "visits left under that limit, the running one not counted"),
    variable("check_count", Supply::Always, "completion checks asked so far, the coming one included"),
    variable("previous_summary", Supply::Always, "summary of the visit before; empty in the first"),
    variable("step_id", Supply::Always, "the step's id"),
    variable("step_name", Supply::Always, "the step's name"),
    variable("step_iteration", Supply::Always, "number of the visit of this step, from 1"),
    variable("verdict_criteria", Supply::Always, "what completes the run, in words"),
    variable("completion_criteria", Supply::Always, "the same, under its older name"),
    variable("completed_iterations", Supply::AfterFirstVisit, "visits finished"),
    variable("completion_keyword", Supply::Completion("keywordSignal"), "the word that completes the run"),
    variable(
        "max_checks",
        Supply::Completion("checkBudget"),
        "completion checks after which the run is done",
    ),
    variable("signal_type", Supply::Completion("structuredSignal"), "the signal that completes the run"),
    variable("required_fields", Supply::Completion("structuredSignal"), "fields that the signal must bring"),
    variable("operator", Supply::Completion("composite"), "and, or, or first"),
];

/// The variable of that name.
pub fn host_variable(name: &str) -> Option<&'static HostVariable> {
    HOST_VARIABLES.iter().find(|variable| variable.name == name)
}

/// The variables that follow from the completion condition, with their values.
pub fn completion_variables(completion: &Completion) -> Vec<(&'static str, String)> {
    use crate::domain::completion::CompositeMode;
    let mut found: Vec<(&'static str, String)> = Vec::new();
    match completion {
        Completion::KeywordSignal { keyword } => found.push(("completion_keyword", keyword.clone())),
        Completion::CheckBudget { checks } => found.push(("max_checks", checks.to_string())),
        Completion::StructuredSignal { signal, required } => {
            let fields: Vec<&str> = required
                .present
                .iter()
                .map(String::as_str)
                .chain(required.equal.iter().map(|(name, _)| name.as_str()))
                .collect();
            found.push(("signal_type", signal.clone()));
            found.push(("required_fields", fields.join(", ")));
        }
        Completion::Composite { mode, conditions } => {
            let word = match mode {
                CompositeMode::All => "and",
                CompositeMode::Any => "or",
                CompositeMode::First => "first",
            };
            found.push(("operator", word.to_owned()));
            for condition in conditions {
                for (name, value) in completion_variables(condition) {
                    if !found.iter().any(|(known, _)| *known == name) {
                        found.push((name, value));
                    }
                }
            }
        }
        _ => {}
    }
    found
}
