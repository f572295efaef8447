//! A check that only judgement can answer: one read-only session with a question about the change (step-flow §2.6).

use serde_json::{Map, Value, json};

use super::journal::JournalError;
use super::report::ReportShape;
use super::session::{PromptIdentity, SessionMode, SessionRequest, run_session};
use super::visit::{FlowPlan, FlowWorld};
use crate::domain::canonical::sha256_hex;
use crate::domain::flow::{PermissionMode, Step};
use crate::domain::message::Message;
use crate::domain::stop::{Stop, StopDetail};
use crate::prompt::template::{Template, Values};

const PROMPT: &str = include_str!("../../prompts/steps/validation/semantic/f_default.md");

/// What is asked.
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
pub(super) struct Judged {
    /// Whether the change passes.
    pub holds: bool,
    /// Why, in the judge's words.
    pub summary: String,
    /// `summary`, `rootCause`, `suggestedAction`, `relatedFiles`, `severity`: parameters of retry prompts.
    pub said: Map<String, Value>,
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
    /// Asks. `Err` inside: the session failed, and with it the run.
    pub(super) async fn judge(
        &self,
        plan: &FlowPlan,
        asked: Question<'_>,
    ) -> Result<Result<Judged, Stop>, JournalError> {
        let said = asked.output.and_then(|output| output.get("summary")).and_then(Value::as_str);
        let values: Values =
            [("question", question(asked.check)), ("summary", said.unwrap_or("(nothing yet)").to_owned())]
                .into_iter()
                .collect();
        let rendered =
            Template::parse(PROMPT).and_then(|template| Ok((template.render(&values)?, template.sha256)));
        let (prompt, template_sha256) = match rendered {
            Ok(rendered) => rendered,
            Err(error) => {
                return Ok(Err(Stop::new(StopDetail::Internal, format!("The check's prompt: {error}."))));
            }
        };
        let shape = match ReportShape::new(plan.format, Some(answer_schema())) {
            Ok(shape) => shape,
            Err(error) => {
                return Ok(Err(Stop::new(StopDetail::Internal, format!("The check's schema: {error}."))));
            }
        };
        let mut ids = self.ids(plan, asked.step, asked.visit);
        // Its report is about the work, not of it: the step's name says so.
        ids.step_id = format!("{}#{}", asked.step.id, asked.validator);
        ids.call_path = format!("{}#{}", ids.call_path, asked.validator);
        let request = SessionRequest {
            ids,
            scope: plan.scope.clone(),
            mode: SessionMode::Task,
            system: plan.loaded.system_prompt().text,
            prompt: PromptIdentity {
                prompt_hash: sha256_hex(prompt.as_bytes()),
                template_hash: template_sha256,
                version: Some("steps/validation/semantic".to_owned()),
                include_text: plan.include_prompt_text,
            },
            opening: vec![Message::User { content: format!("{}\n\n{}", prompt.trim(), plan.task) }],
            aside: None,
            report: shape,
            settings: plan.settings.clone(),
            tools: plan.tools.clone(),
            turn_timeout: None,
        };
        let outcome = run_session(request, &self.session_world(plan, PermissionMode::Plan)).await;
        if let Some(failure) = outcome.failure {
            return Ok(Err(failure.stop));
        }
        let said = outcome.report.content_json.unwrap_or_default();
        Ok(Ok(Judged {
            holds: said.get("holds") == Some(&Value::Bool(true)),
            summary: said.get("summary").and_then(Value::as_str).unwrap_or_default().to_owned(),
            said,
        }))
    }
}

fn answer_schema() -> Value {
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
