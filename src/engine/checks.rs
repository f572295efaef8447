//! The checks of a validation step: validators run in the worktree, and the model is told which ones fail (E12…E14).

use std::path::PathBuf;

use regex::Regex;
use serde_json::{Map, Value, json};

use super::interrupt::Interrupts;
use super::not_done::NotDone;
use super::reader::{Question, ReaderAnswer};
use super::session_trace::SessionTrace;
use super::visit::{FlowPlan, FlowWorld};
use super::workplace::{Program, Ran};
use crate::domain::canonical::sha256_hex;
use crate::domain::check_output::CheckOutput;
use crate::domain::event::Event;
use crate::domain::flow::{
    FailurePattern, Flow, Step, SuccessWhen, ValidationCondition, ValidationStep, Validator, ValidatorKind,
};
use crate::domain::stop::Stop;
use crate::domain::trace::{CheckMoment, CheckRun, ChecksRun};
use crate::prompt::template::Template;

/// What the model reads about a failed check when the agent has no retry prompt.
const BUILT_IN_RETRY: &str = include_str!("../../prompts/steps/retry/checks/f_failed.md");

/// What the record says of a check about publishing.
const ONCE_PUBLISHED: &str = "holds once the work is pushed and merged";

/// Which checks, and around which visit.
#[derive(Clone, Copy)]
pub(super) struct CheckWork<'a> {
    /// The step that closes, or wants to.
    pub step: &'a Step,
    /// 1-based visit of the run.
    pub visit: u32,
    /// The checks.
    pub validation: &'a ValidationStep,
    /// Before or after the visit's own work.
    pub moment: CheckMoment,
    /// 1-based number of this attempt to pass them.
    pub attempt: u32,
    /// What the step put out, where it has.
    pub output: Option<&'a Map<String, Value>>,
}

/// What came of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Checked {
    /// Every check holds.
    Held,
    /// Some do not.
    Failed(FailedChecks),
}

/// What failed, for the engine and for the model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FailedChecks {
    /// One sentence for each failed check.
    pub sentences: Vec<String>,
    /// The retry prompts, one after the other.
    pub prompt: String,
    /// Why work on the issue cannot repair it: the check could not run, or it is declared not recoverable.
    pub beyond_repair: Option<String>,
}

/// One failed check.
struct Failure<'a> {
    validator: &'a Validator,
    name: &'a str,
    what: String,
    output: CheckOutput,
    /// What a semantic check, or a program of the agent, said besides its verdict.
    said: Map<String, Value>,
    could_not_run: bool,
    /// Whether the step, told of it, could make it hold.
    reparable: bool,
}

/// One validator's answer.
struct Answer {
    held: bool,
    what: String,
    output: CheckOutput,
    said: Map<String, Value>,
    could_not_run: bool,
    run: CheckRun,
}

impl FlowWorld {
    /// Asks every validator of a validation step, in order. Where it ends otherwise, the run was stopped meanwhile.
    pub(super) async fn check(&self, plan: &FlowPlan, work: CheckWork<'_>) -> Result<Checked, NotDone<Stop>> {
        if work.validation.asked(work.moment).next().is_none() {
            return Ok(Checked::Held);
        }
        let flow = &plan.definition().flow;
        let record = self.record_of(plan, work.step, work.visit);
        let mut runs = Vec::new();
        let mut failures = Vec::new();
        for (condition, reparable) in work.validation.asked(work.moment) {
            // A name that is not defined is refused when the definition is loaded (N22).
            let Some(validator) = flow.validators.get(&condition.validator) else { continue };
            let answer = self.ask(plan, work, condition, validator, &record).await?;
            runs.push(answer.run);
            if !answer.held {
                failures.push(Failure {
                    validator,
                    name: &condition.validator,
                    what: answer.what,
                    output: answer.output,
                    said: answer.said,
                    could_not_run: answer.could_not_run,
                    reparable,
                });
            }
        }
        let (checked, retry_prompts) = if failures.is_empty() {
            (Checked::Held, Vec::new())
        } else {
            let (failed, paths) = tell(plan, work.validation, &failures);
            (Checked::Failed(failed), paths)
        };
        self.record(Event::ChecksRun(Box::new(ChecksRun {
            visit: work.visit,
            step_id: work.step.id.clone(),
            validation: work.validation.id.clone(),
            moment: work.moment,
            attempt: work.attempt,
            checks: runs,
            retry_prompts,
        })))?;
        Ok(checked)
    }

    async fn ask(
        &self,
        plan: &FlowPlan,
        work: CheckWork<'_>,
        condition: &ValidationCondition,
        validator: &Validator,
        record: &SessionTrace,
    ) -> Result<Answer, NotDone<Stop>> {
        let params: Vec<&str> = condition.params.iter().map(|(_, value)| value.as_str()).collect();
        let name = condition.validator.as_str();
        let line;
        let (program, args, stdin) = match &validator.kind {
            ValidatorKind::File(path) => return Ok(file_answer(plan, name, path, &condition.params)),
            ValidatorKind::Semantic(check) => {
                let (step, visit, output) = (work.step, work.visit, work.output);
                let question = Question { check, validator: name, step, visit, output };
                return Ok(semantic_answer(name, self.judge(plan, question).await?));
            }
            ValidatorKind::Command(command) => {
                line = positional(command, &condition.params);
                (PathBuf::from("sh"), shell(&line, &params), Vec::new())
            }
            ValidatorKind::Custom(named) => {
                let state = json!({
                    "validator": name,
                    "params": Map::from_iter(condition.params.iter().map(|(name, value)| (name.clone(), value.as_str().into()))),
                    "step_id": work.step.id,
                    "visit": work.visit,
                    "output": work.output,
                });
                (plan.workplace.program(named), params, state.to_string().into_bytes())
            }
        };
        let workplace = &plan.workplace;
        if !validator.from_worktree {
            match workplace.changed_program(&program, &args).await {
                Ok(None) => {}
                Ok(Some(path)) => {
                    let what = format!(
                        "The check \"{name}\" was not asked: it runs {path}, which this run changed. Put the file back as it is on the origin branch."
                    );
                    return Ok(refused(name, what));
                }
                Err(why) => {
                    return Ok(refused(name, format!("The check \"{name}\" was not asked: {why}.")));
                }
            }
        }
        let run = |git_dir| {
            let (program, args, stdin) = (program.clone(), args.clone(), stdin.clone());
            let request = Program { program, args, stdin, time_limit: workplace.time_limit, git_dir };
            Box::pin(self.ran(plan, work.visit, request))
        };
        let answer = program_answer(name, validator, run(None).await?, record);
        let upstream = match &validator.kind {
            ValidatorKind::Command(command) if !answer.held => {
                workplace.upstream.as_ref().filter(|upstream| upstream.concerns(command))
            }
            _ => None,
        };
        let Some(upstream) = upstream else { return Ok(answer) };
        // Agents neither push nor merge here. The check is answered for the time after both (D105).
        let git_dir = match upstream.published().await {
            Ok(git_dir) => git_dir,
            Err(why) => {
                self.warn("check_not_asked", &format!("The check \"{name}\": {why}."))?;
                return Ok(answer);
            }
        };
        let then = program_answer(name, validator, run(Some(git_dir)).await?, record);
        if then.held {
            return Ok(Answer { run: CheckRun { found: ONCE_PUBLISHED.to_owned(), ..then.run }, ..then });
        }
        // climpt, for which these definitions were written, never asks it.
        if work.validation.id != plan.definition().completion.validation_step() {
            let text = format!(
                "{} It asks what only a published work can answer, and was passed over.",
                answer.what
            );
            self.warn("check_passed_over", &text)?;
            return Ok(held(name, &text));
        }
        Ok(answer)
    }

    pub(super) fn interrupts(&self) -> Interrupts {
        Interrupts {
            stop: self.0.stop.clone(),
            meter: std::sync::Arc::clone(&self.0.meter),
            whole_turns: false,
        }
    }
}

/// Owned arguments for a shell: `-c`, the fixed line, the name of the shell, then the parameters (D90).
fn shell<'a>(line: &'a str, params: &[&'a str]) -> Vec<&'a str> {
    ["-c", line, "sh"].into_iter().chain(params.iter().copied()).collect()
}

/// The command, with `${name}` of a parameter replaced by the shell's `${1}`. Values never become part of the line, so
/// nothing in them is run (D90).
fn positional(command: &str, params: &[(String, String)]) -> String {
    params.iter().enumerate().fold(command.to_owned(), |line, (index, (name, _))| {
        line.replace(&format!("${{{name}}}"), &format!("${{{}}}", index + 1))
    })
}

fn held(name: &str, why: &str) -> Answer {
    Answer {
        held: true,
        what: String::new(),
        output: CheckOutput::default(),
        said: Map::new(),
        could_not_run: false,
        run: CheckRun {
            validator: name.to_owned(),
            held: true,
            exit_code: None,
            duration_ms: 0,
            stdout_sha256: None,
            found: why.to_owned(),
        },
    }
}

fn refused(name: &str, what: String) -> Answer {
    let mut answer = held(name, &what);
    (answer.held, answer.run.held, answer.what) = (false, false, what);
    answer
}

/// A path in the worktree. Links that lead out of it do not count.
fn file_answer(plan: &FlowPlan, name: &str, path: &str, params: &[(String, String)]) -> Answer {
    let path = params
        .iter()
        .fold(path.to_owned(), |path, (name, value)| path.replace(&format!("${{{name}}}"), value));
    let what = match plan.workplace.root.resolve(&path) {
        Ok(found) if found.absolute().as_path().exists() => return held(name, &path),
        Ok(_) => format!("There is no \"{path}\" in the working tree."),
        Err(error) => format!("The check \"{name}\" does not hold: {error}."),
    };
    let mut answer = refused(name, what);
    answer.output.expected_path = Some(path);
    answer
}

fn semantic_answer(name: &str, judged: ReaderAnswer) -> Answer {
    let mut answer = held(name, &judged.summary);
    answer.held = judged.holds;
    answer.run.held = judged.holds;
    answer.what = judged.summary;
    answer.said = judged.said;
    answer
}

fn program_answer(name: &str, validator: &Validator, ran: Ran, record: &SessionTrace) -> Answer {
    let output = CheckOutput {
        stdout: record.redact(&ran.output.stdout),
        stderr: record.redact(&ran.output.stderr),
        ..ran.output
    };
    let ended = ran.end.is_none() && !ran.could_not_run;
    let holds = ended && holds(&validator.success, &output);
    let what = match (&ran.end, output.exit_code) {
        (Some(end), _) => format!("The check \"{name}\" did not come to an end: {end}."),
        (None, Some(code)) if ran.could_not_run => {
            format!("The check \"{name}\" could not be run (exit code {code}).")
        }
        (None, code) => {
            let code = code.map_or_else(String::new, |code| format!(" (exit code {code})"));
            format!("The check \"{name}\" does not hold: {}{code}.", wanted(&validator.success))
        }
    };
    // A program of the agent may print a JSON object. It becomes parameters of the retry prompt.
    let said = match (&validator.kind, serde_json::from_str(&output.stdout)) {
        (ValidatorKind::Custom(_), Ok(Value::Object(said))) => said,
        _ => Map::new(),
    };
    Answer {
        held: holds,
        run: CheckRun {
            validator: name.to_owned(),
            held: holds,
            exit_code: output.exit_code,
            duration_ms: ran.duration.as_millis() as u64,
            stdout_sha256: Some(sha256_hex(output.stdout.as_bytes())),
            found: if holds { String::new() } else { what.clone() },
        },
        what,
        output,
        said,
        could_not_run: ran.could_not_run,
    }
}

fn holds(success: &SuccessWhen, output: &CheckOutput) -> bool {
    match success {
        SuccessWhen::Empty => output.exit_code == Some(0) && output.stdout.trim().is_empty(),
        SuccessWhen::ExitCode(code) => output.exit_code == Some(*code),
        SuccessWhen::Contains(text) => output.stdout.contains(text),
        SuccessWhen::Matches(pattern) => {
            Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(&output.stdout))
        }
    }
}

fn wanted(success: &SuccessWhen) -> String {
    match success {
        SuccessWhen::Empty => "it should find nothing".to_owned(),
        SuccessWhen::ExitCode(code) => format!("it should end with exit code {code}"),
        SuccessWhen::Contains(text) => format!("its output should contain \"{text}\""),
        SuccessWhen::Matches(pattern) => format!("its output should match {pattern}"),
    }
}

/// The failed checks in the words for the model, and the prompt files that these words are from.
fn tell(
    plan: &FlowPlan,
    validation: &ValidationStep,
    failures: &[Failure<'_>],
) -> (FailedChecks, Vec<String>) {
    let flow = &plan.definition().flow;
    let mut failed = FailedChecks::default();
    let mut prompts = Vec::new();
    let mut paths = Vec::new();
    let mut untold = Vec::new();
    for failure in failures {
        failed.sentences.push(failure.what.clone());
        if failure.could_not_run {
            failed.beyond_repair.get_or_insert_with(|| failure.what.clone());
        } else if !failure.reparable {
            failed
                .beyond_repair
                .get_or_insert_with(|| format!("{} It has to hold before the step begins.", failure.what));
        } else if !failure.validator.recoverable {
            failed.beyond_repair.get_or_insert_with(|| {
                format!("{} The definition says that it cannot be repaired.", failure.what)
            });
        }
        let pattern = failure.validator.failure_pattern.clone().or_else(|| matching(flow, failure));
        match plan.loaded.retry_prompt(validation, pattern.as_deref(), &params(failure)) {
            Ok(Some(prompt)) => {
                prompts.push(prompt.text.trim().to_owned());
                paths.push(prompt.path);
            }
            // A retry prompt that cannot be made was reported when the definition was loaded.
            Ok(None) | Err(_) => untold.push(json!({
                "validator": failure.name,
                "what": failure.what,
                "output": failure.output.both(),
            })),
        }
    }
    if !untold.is_empty() {
        prompts.push(built_in(&untold));
    }
    failed.prompt = prompts.join("\n\n");
    (failed, paths)
}

fn built_in(checks: &[Value]) -> String {
    let body = Template::parse(BUILT_IN_RETRY).map(|template| template.body().to_owned()).unwrap_or_default();
    let text = crate::prompt::retry::render(&body, &json!({ "checks": checks })).unwrap_or_default();
    text.trim().to_owned()
}

/// The pattern whose `semanticMatch` is found in what the check said.
fn matching(flow: &Flow, failure: &Failure<'_>) -> Option<String> {
    let said =
        format!("{}\n{}\n{}", failure.what, failure.output.both(), Value::Object(failure.said.clone()));
    let fits = |pattern: &FailurePattern| {
        pattern.semantic_match.iter().any(|text| {
            match text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
                Some(pattern) => Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(&said)),
                None => said.contains(text),
            }
        })
    };
    flow.failure_patterns.iter().find(|(_, pattern)| fits(pattern)).map(|(name, _)| name.clone())
}

/// Parameters of a retry prompt: what the extractors find, and for general prompts the failure in words.
fn params(failure: &Failure<'_>) -> Value {
    let mut params = failure.said.clone();
    for (name, extractor) in &failure.validator.extract_params {
        let found = failure.output.extract(extractor).unwrap_or(Value::Null);
        params.insert(name.clone(), found);
    }
    let details: Vec<Value> = failure.output.both().lines().map(Value::from).collect();
    for (name, value) in [
        ("validator", json!(failure.name)),
        ("error", json!(failure.what)),
        ("details", Value::Array(details)),
    ] {
        params.entry(name).or_insert(value);
    }
    Value::Object(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d90_a_parameter_becomes_a_positional_one_and_never_part_of_the_line() {
        let params = [("base".to_owned(), "x; rm -rf /".to_owned()), ("path".to_owned(), "$(id)".to_owned())];
        assert_eq!(
            positional("git log \"${base}\"..HEAD -- ${path} ${HOME} $2", &params),
            "git log \"${1}\"..HEAD -- ${2} ${HOME} $2"
        );
    }

    #[test]
    fn the_built_in_words_name_every_failed_check_with_its_output() {
        let text = built_in(&[
            json!({"validator": "a", "what": "It fails.", "output": "line {{x}}"}),
            json!({"validator": "b", "what": "Gone.", "output": ""}),
        ]);
        assert!(text.contains("## a\n\nIt fails.\n\nIts output, from the end:\n\nline {{x}}\n"), "{text}");
        assert!(text.contains("## b\n\nGone.\n"), "{text}");
        assert!(!text.contains("title:"), "{text}");
    }
}
