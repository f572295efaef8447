//! `agentd doctor`: tries everything that a run needs, names a remedy for each problem, and clears what killed runs
//! left on their issues. It never says "ok" about what it did not try.

mod disk;
mod local;
mod mcp;
mod site;
mod tried;
mod weak;

use serde_json::{Value, json};

use super::context::Context;
use super::error::CommandError;
use super::output::{Output, Tone};
use crate::record::summary_text::counted;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ok,
    Warning,
    Problem,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone)]
pub(super) struct Finding {
    state: State,
    what: &'static str,
    told: String,
    remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(what: &'static str, told: impl Into<String>) -> Self {
        Self { state: State::Ok, what, told: told.into(), remedy: None }
    }

    pub(super) fn warning(what: &'static str, told: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Warning, what, told: told.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn problem(what: &'static str, told: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Problem, ..Self::warning(what, told, remedy) }
    }

    pub(super) fn document(&self) -> Value {
        json!({ "state": self.state.word(), "what": self.what, "told": self.told, "remedy": self.remedy })
    }
}

/// Looks at everything; exit 1 if there is a problem.
pub fn run(context: &Context) -> Result<u8, CommandError> {
    let findings = context.block_on(look(context))?;
    let (problems, warnings) = counted_states(&findings);
    if context.output.json() {
        let findings: Vec<Value> = findings.iter().map(Finding::document).collect();
        context.output.document(&json!({
            "ok": problems == 0,
            "problems": problems,
            "warnings": warnings,
            "findings": findings,
        }))?;
    } else {
        tell(context.output, &findings, problems, warnings)?;
    }
    Ok(u8::from(problems > 0))
}

async fn look(context: &Context) -> Vec<Finding> {
    let mut findings =
        vec![local::git(context).await, local::repository(context).await, local::sandbox(context).await];
    findings.push(weak::state(context));
    match context.config() {
        Ok(config) => {
            findings.extend(weak::look(context, &config).await);
            findings.extend(local::configuration(context, &config));
            findings.extend(site::look(context, config).await);
        }
        Err(error) => findings.push(Finding::problem(
            "configuration",
            error.message,
            error.hints.first().cloned().unwrap_or_else(|| "correct it where the message says".to_owned()),
        )),
    }
    findings
}

/// How many problems and warnings there are.
pub(super) fn counted_states(findings: &[Finding]) -> (usize, usize) {
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    (count(State::Problem), count(State::Warning))
}

pub(super) fn tell(
    output: Output,
    findings: &[Finding],
    problems: usize,
    warnings: usize,
) -> Result<(), CommandError> {
    for finding in findings {
        let tone = match finding.state {
            State::Ok => Tone::Good,
            State::Warning => Tone::Warn,
            State::Problem => Tone::Bad,
        };
        let word = format!("{:<8}", finding.state.word());
        output.entry(&format!("{} {:<13}", output.toned(&word, tone), finding.what), &finding.told)?;
        if let Some(remedy) = &finding.remedy {
            let arrow = output.toned("→", Tone::Strong);
            output.entry(&format!("                       {arrow}"), remedy)?;
        }
    }
    output.line(format!("\n{}, {}.", counted(problems, "problem"), counted(warnings, "warning")))
}
