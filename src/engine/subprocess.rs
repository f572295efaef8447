//! A step that a program does instead of a model (E19), and programs that decide completion (N24).

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::not_done::NotDone;
use super::visit::{Failed, FlowPlan, FlowWorld, StepResult, StepWork};
use super::workplace::{Program, Ran};
use crate::domain::check_output::CheckOutput;
use crate::domain::completion::CompletionResult;
use crate::domain::event::Event;
use crate::domain::flow::Subprocess;
use crate::domain::output_schema::OutputValidator;
use crate::domain::report::{FinalReport, ReportFormat, ReportSource};
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::trace::ReportCaptured;
use crate::prompt::template::Values;

/// How often a completion program is tried before the answer counts as "not yet".
const COMPLETION_ATTEMPTS: u32 = 2;

/// The standard output of a program as the output of a step: its JSON object, else its text under `raw`. A list is
/// under `parsed` as well.
fn put_out(stdout: &str) -> Map<String, Value> {
    match serde_json::from_str(stdout) {
        Ok(Value::Object(output)) => output,
        other => {
            let raw = ("raw".to_owned(), Value::from(stdout.trim_end()));
            let list = other.ok().filter(Value::is_array).map(|list| ("parsed".to_owned(), list));
            std::iter::once(raw).chain(list).collect()
        }
    }
}

impl FlowWorld {
    /// Runs the program of a step. If its standard output is a JSON object, that is the output of the step; otherwise
    /// it is under `raw`.
    pub(super) async fn run_program(
        &self,
        plan: &FlowPlan,
        work: StepWork<'_>,
        program: &Subprocess,
    ) -> Result<StepResult, NotDone<Failed>> {
        let failed = |detail: StopDetail, message: String| {
            Err(Stop::new(detail, format!("The step \"{}\": {message}.", work.step.id)).into())
        };
        let args = match program
            .args
            .iter()
            .map(|arg| interpolated(arg, work.values))
            .collect::<Result<Vec<_>, _>>()
        {
            Ok(args) => args,
            Err(missing) => {
                return failed(
                    StopDetail::SchemaInvalid,
                    format!(
                        "PR-RESOLVE-005: ${{context.{missing}}} has no value; declare a parameter, or take it from a step with inputs"
                    ),
                );
            }
        };
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let file = plan.workplace.program(&program.command);
        if !program.from_worktree {
            match plan.workplace.changed_program(&file, &args).await {
                Ok(None) => {}
                Ok(Some(path)) => {
                    return failed(
                        StopDetail::PolicyDenied,
                        format!(
                            "its program {path} was changed by this run and is not executed; `fromWorktree: true` beside `command` would allow it"
                        ),
                    );
                }
                Err(why) => return failed(StopDetail::GitError, why),
            }
        }
        let request =
            Program { program: file, args, stdin: Vec::new(), time_limit: program.timeout, git_dir: None };
        let ran = match self.ran(plan, work.visit, request).await {
            Ok(ran) => ran,
            Err(error) => return Err(error.ended()?.into()),
        };
        let record = self.record_of(plan, work.step, work.visit);
        if let Some(end) = &ran.end {
            return failed(
                StopDetail::AgentCliFailed,
                format!("the program {} failed: {end}", program.command),
            );
        }
        if ran.output.exit_code != Some(0) {
            let code = ran.output.exit_code.unwrap_or_default();
            let said = record.redact(&tail(&ran.output));
            let message = format!("the program {} ended with exit code {code}{said}", program.command);
            return failed(StopDetail::AgentCliFailed, message);
        }
        let mut output = put_out(&ran.output.stdout);
        plan.definition().flow.normalise(work.step, &mut output);
        if let Some(schema) = &work.step.output_schema {
            let problems = match OutputValidator::new(schema) {
                Ok(validator) => validator.validate(&mut output),
                Err(broken) => return failed(StopDetail::SchemaInvalid, broken.to_string()),
            };
            if let Some(problem) = problems.first() {
                return failed(
                    StopDetail::SchemaInvalid,
                    format!("the output of {} does not fit its schema: {problem}", program.command),
                );
            }
        }
        let output = record.redact_object(&output);
        // The run's report where this step is the last one (D89).
        self.record(Event::ReportCaptured(Box::new(ReportCaptured {
            session: Uuid::now_v7(),
            visit: work.visit,
            turn: 0,
            source: ReportSource::Synthetic,
            report: Some(FinalReport {
                format: ReportFormat::Json,
                content: None,
                content_json: Some(output.clone()),
                metadata: None,
                ts: self.now().timestamp_millis(),
            }),
            kept: None,
            outcome: None,
            claims: Vec::new(),
        })))?;
        let text = Value::Object(output.clone()).to_string();
        Ok(StepResult {
            summary: super::visit::summary(&output, &text),
            output,
            text,
            ..StepResult::default()
        })
    }

    /// Asks the programs of a completion condition. One that fails twice counts as "not yet", and a note says so.
    pub(super) async fn ask_completion(
        &self,
        plan: &FlowPlan,
        step_id: &str,
        visit: u32,
        result: &mut StepResult,
    ) -> Result<(), NotDone<Stop>> {
        for named in plan.definition().completion.programs() {
            let state = json!({
                "agent": plan.definition().name,
                "issue": plan.scope.issue.to_string(),
                "visits": visit,
                "step_id": step_id,
                "output": result.output,
                "text": result.text,
            });
            let mut answer = Err(String::new());
            for _ in 0..COMPLETION_ATTEMPTS {
                let request = Program {
                    program: plan.workplace.agent_folder.join(named),
                    args: Vec::new(),
                    stdin: state.to_string().into_bytes(),
                    time_limit: plan.workplace.time_limit,
                    git_dir: None,
                };
                let ran = Box::pin(self.ran(plan, visit, request)).await?;
                answer = completion_answer(&ran);
                if answer.is_ok() {
                    break;
                }
            }
            match answer {
                Ok(answer) => result.programs.push((named.to_owned(), answer)),
                Err(why) => self.warn("completion_program_failed", &format!("{named}: {why}"))?,
            }
        }
        Ok(())
    }
}

/// Reads `{"complete": bool, "reason": text}`.
fn completion_answer(ran: &Ran) -> Result<CompletionResult, String> {
    if let Some(end) = &ran.end {
        return Err(end.clone());
    }
    if ran.output.exit_code != Some(0) {
        return Err(format!("exit code {}{}", ran.output.exit_code.unwrap_or_default(), tail(&ran.output)));
    }
    let wrong = "its output is no {\"complete\": true or false, \"reason\": text}";
    let said: Value = serde_json::from_str(&ran.output.stdout).map_err(|_| wrong.to_owned())?;
    let complete = said.get("complete").and_then(Value::as_bool).ok_or_else(|| wrong.to_owned())?;
    let reason = said.get("reason").and_then(Value::as_str).unwrap_or_default().trim();
    if complete && reason.is_empty() {
        return Err("it says complete, but gives no reason".to_owned());
    }
    let reason = if reason.is_empty() { "the completion program says not yet" } else { reason };
    Ok(CompletionResult { complete, reason: reason.to_owned() })
}

/// An argument with each `${context.name}` as the variable's value. The error is a name without a value.
fn interpolated(arg: &str, values: &Values) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = arg;
    while let Some((before, after)) = rest.split_once("${context.") {
        let Some((name, behind)) = after.split_once('}') else { break };
        text.push_str(before);
        text.push_str(values.get(name).ok_or_else(|| name.to_owned())?);
        rest = behind;
    }
    Ok(text + rest)
}

/// The last words of a program that failed.
fn tail(output: &CheckOutput) -> String {
    let said = output.both();
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    if last.is_empty() { String::new() } else { format!(": {}", last.chars().take(300).collect::<String>()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e19_arguments_take_variables_once_and_name_what_is_missing() {
        let values: Values = [("issue", "42"), ("title", "${context.issue}; rm")].into_iter().collect();
        let take = |arg: &str| interpolated(arg, &values);
        assert_eq!(take("--pr=${context.issue}/${context.title}").unwrap(), "--pr=42/${context.issue}; rm");
        assert_eq!(take("${context.prNumber}").unwrap_err(), "prNumber");
        assert_eq!(take("${HOME} ${context.x").unwrap(), "${HOME} ${context.x");
    }
}
