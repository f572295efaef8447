//! A session that may only read. It answers a question about the work and changes nothing.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::nearest_rules::Background;
use super::not_done::NotDone;
use super::report::ReportShape;
use super::session::{PromptIdentity, SessionMode, SessionRequest, SessionWorld, run_session};
use super::visit::{FlowPlan, FlowWorld};
use crate::domain::canonical::sha256_hex;
use crate::domain::flow::{PermissionMode, Step};
use crate::domain::message::{Message, Messages};
use crate::domain::step_check::StepCheck;
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::untrusted::{LONGEST_INCOMING, fence, plain};
use crate::prompt::library::ResolvedPrompt;
use crate::prompt::template::{Template, Values};

const PROMPT: &str = include_str!("../../prompts/steps/validation/semantic/f_default.md");

/// What is asked of a semantic validator.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    /// `checkType`.
    pub check: &'a str,
    /// Name of the validator.
    pub validator: &'a str,
    /// The step that closes, or wants to.
    pub step: &'a Step,
    /// 1-based visit of the run.
    pub visit: u32,
    /// What the step put out, where it has.
    pub output: Option<&'a Map<String, Value>>,
}

/// The answer.
pub(super) struct ReaderAnswer {
    /// Whether the change passes.
    pub holds: bool,
    /// Why, in the judge's words.
    pub summary: String,
    /// `summary`, `rootCause`, `suggestedAction`, `relatedFiles`, `severity`: parameters of retry prompts.
    pub said: Map<String, Value>,
}

/// One question to a reader.
pub(super) struct ReaderRequest<'a> {
    /// The step that it is about.
    pub step: &'a Step,
    /// 1-based visit of the run.
    pub visit: u32,
    /// Told apart from the step's own sessions by this.
    pub name: &'a str,
    /// The question.
    pub prompt: ResolvedPrompt,
    /// Of the answer.
    pub schema: Value,
}

/// The question behind a `checkType`.
fn question(check: &str) -> String {
    match check {
        "commit-message" => {
            "Does the author's summary say truly and completely what the change does and why?".to_owned()
        }
        "coverage-check" => {
            "Is every change of behaviour covered by a test that would fail without it?".to_owned()
        }
        "file-relevance" => {
            "Does every changed file belong to the issue, and is none of them there by accident?".to_owned()
        }
        other => format!("{other}?"),
    }
}

impl FlowWorld {
    /// Asks a semantic validator's question. Where it ends otherwise, the session failed, and with it the run.
    pub(super) async fn judge(
        &self,
        plan: &FlowPlan,
        asked: Question<'_>,
    ) -> Result<ReaderAnswer, NotDone<Stop>> {
        let said = asked.output.and_then(|output| output.get("summary")).and_then(Value::as_str);
        let values: Values =
            [("question", question(asked.check)), ("summary", said.unwrap_or("(nothing yet)").to_owned())]
                .into_iter()
                .collect();
        let rendered = Template::parse(PROMPT).and_then(|template| Ok((template.render(&values)?, template)));
        let (text, template) = match rendered {
            Ok(rendered) => rendered,
            Err(error) => {
                return Err(Stop::new(StopDetail::Internal, format!("The check's prompt: {error}.")).into());
            }
        };
        let prompt = ResolvedPrompt {
            text_sha256: sha256_hex(text.as_bytes()),
            text,
            path: "steps/validation/semantic".to_owned(),
            fell_back: false,
            variables: template.variable_names(),
            template_sha256: template.sha256,
            template_blob: template.blob,
        };
        let schema = judgement_schema();
        let asked =
            ReaderRequest { step: asked.step, visit: asked.visit, name: asked.validator, prompt, schema };
        let said = self.ask_reader(plan, asked).await?;
        Ok(ReaderAnswer {
            holds: said.get("holds") == Some(&Value::Bool(true)),
            summary: said.get("summary").and_then(Value::as_str).unwrap_or_default().to_owned(),
            said,
        })
    }

    /// Asks a step's check: whether it is ok, and why (not).
    pub(super) async fn ask_step_check(
        &self,
        plan: &FlowPlan,
        (step, visit): (&Step, u32),
        check: &StepCheck,
        values: &Values,
        said: &str,
    ) -> Result<(bool, String), NotDone<Stop>> {
        let mut prompt = match plan.loaded.resolve_check(step, check, values) {
            Ok(prompt) => prompt,
            Err(error) => {
                let message = format!("The check of the step \"{}\" cannot be asked: {error}.", step.id);
                return Err(Stop::new(StopDetail::SchemaInvalid, message).into());
            }
        };
        // The words of the step are judged. They are no instructions for the judge.
        let report = fence("report of the step", &plain(said, LONGEST_INCOMING));
        prompt.text = format!("{}\n\n{report}", prompt.text.trim_end());
        let schema = json!({
            "type": "object",
            "properties": {"result": {"enum": ["ok", "ng"]}, "reason": {"type": "string"}},
            "required": ["result"],
            "additionalProperties": false
        });
        let asked = ReaderRequest { step, visit, name: "check", prompt, schema };
        let answer = self.ask_reader(plan, asked).await?;
        let text = |key: &str| answer.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok((text("result") == "ok", text("reason")))
    }

    pub(super) async fn ask_reader(
        &self,
        plan: &FlowPlan,
        asked: ReaderRequest<'_>,
    ) -> Result<Map<String, Value>, NotDone<Stop>> {
        let shape = match ReportShape::new(plan.format, Some(asked.schema)) {
            Ok(shape) => shape,
            Err(error) => {
                return Err(Stop::new(StopDetail::Internal, format!("The check's schema: {error}.")).into());
            }
        };
        let mut ids = self.ids(plan, asked.step, asked.visit);
        // Its report is about the work and is not the report of the work. The name of the step says so.
        ids.step_id = format!("{}#{}", asked.step.id, asked.name);
        ids.call_path = format!("{}#{}", ids.call_path, asked.name);
        let request = SessionRequest {
            ids,
            scope: plan.scope.clone(),
            mode: SessionMode::Task,
            system: plan.loaded.system_prompt().text.clone(),
            prompt: PromptIdentity {
                version: Some(asked.prompt.version()),
                prompt_hash: asked.prompt.text_sha256,
                template_hash: asked.prompt.template_sha256,
                include_text: plan.include_prompt_text,
            },
            opening: Messages::from(vec![Message::User {
                content: plan.task.around(&asked.prompt.text, &asked.prompt.variables),
            }]),
            aside: None,
            report: shape,
            settings: plan.settings.clone(),
            tools: plan.tools.clone(),
            turn_timeout: None,
            // It reads no issue.
            background: Arc::new(Background { images: Arc::default(), ..plan.background.as_ref().clone() }),
        };
        // What people say meanwhile is for who works.
        let world = SessionWorld { new_remarks: None, ..self.session_world(plan, PermissionMode::Plan) };
        let outcome = run_session(request, &world).await;
        match outcome.failure {
            Some(failure) => Err(failure.stop.into()),
            None => Ok(outcome.report.content_json.unwrap_or_default()),
        }
    }
}

fn judgement_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "holds": {"type": "boolean"},
            "summary": {"type": "string"},
            "rootCause": {"type": "string"},
            "suggestedAction": {"type": "string"},
            "relatedFiles": {"type": "array", "items": {"type": "string"}},
            "severity": {"enum": ["low", "medium", "high"]}
        },
        "required": ["holds", "summary"],
        "additionalProperties": false
    })
}
