//! Asks once more for the outcomes of threads that no report speaks of.

use serde_json::{Value, json};

use super::journal::JournalError;
use super::reader::ReaderRequest;
use super::visit::{FlowPlan, FlowWorld};
use crate::domain::answer::{ReportedOutcome, reported};
use crate::domain::canonical::sha256_hex;
use crate::domain::remark::ThreadOutcome;
use crate::prompt::library::ResolvedPrompt;
use crate::prompt::template::{Template, Values};

const PROMPT: &str = include_str!("../../prompts/steps/answers/f_missing.md");

impl FlowWorld {
    /// Asks, in a session that may only read, what came of `missing`. What is not answered then stays without an outcome.
    /// `step` and `visit` are the last ones of the flow. Where a program worked on that step, nobody is asked: a model that saw nothing of
    /// the work would only guess.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub async fn ask_outcomes(
        &self,
        plan: &FlowPlan,
        (step, visit): (&str, u32),
        missing: &[String],
    ) -> Result<Vec<ReportedOutcome>, JournalError> {
        let Some(step) = plan.definition().flow.step(step) else { return Ok(Vec::new()) };
        let is_programs = plan.agents.contains_key(&step.id);
        if missing.is_empty() || is_programs || plan.settings.targets.is_empty() {
            return Ok(Vec::new());
        }
        let list: Vec<String> = missing.iter().map(|id| format!("- `{id}`")).collect();
        let values: Values = [("missing", list.join("\n"))].into_iter().collect();
        let rendered = Template::parse(PROMPT).and_then(|template| Ok((template.render(&values)?, template)));
        let Ok((text, template)) = rendered else {
            tracing::error!("the prompt for missing answers cannot be made");
            return Ok(Vec::new());
        };
        let prompt = ResolvedPrompt {
            text_sha256: sha256_hex(text.as_bytes()),
            text,
            path: "steps/answers".to_owned(),
            fell_back: false,
            variables: template.variable_names(),
            template_sha256: template.sha256,
            template_blob: template.blob,
        };
        let asked = ReaderRequest { step, visit, name: "threads", prompt, schema: schema(missing) };
        match Box::pin(self.ask_reader(plan, asked)).await {
            Ok(answer) => Ok(reported(&answer)),
            Err(not_done) => {
                let stop = not_done.ended()?;
                tracing::info!(detail = stop.detail.as_str(), "answers that are missing stay missing");
                Ok(Vec::new())
            }
        }
    }
}

fn schema(missing: &[String]) -> Value {
    json!({
        "type": "object",
        "properties": {
            "threads": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "thread": { "enum": missing },
                        "outcome": { "enum": ThreadOutcome::ALL.map(ThreadOutcome::as_str) },
                        "text": { "type": "string" },
                    },
                    "required": ["thread", "outcome", "text"],
                    "additionalProperties": false,
                },
            },
        },
        "required": ["threads"],
        "additionalProperties": false,
    })
}
