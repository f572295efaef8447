//! Takes the final report: the protocol tool for it, and its three sources (A-058…A-071).

use std::sync::Arc;

use jsonschema::Validator;
use serde_json::{Map, Value, json};

use super::{arguments, slack_blocks};
use crate::domain::answer::OUTCOMES;
use crate::domain::message::ToolSpec;
use crate::domain::output_schema::{ExtractionStrategy, compiled, extract};
use crate::domain::remark::ThreadOutcome;
use crate::domain::report::{FinalReport, ProposedClaim, ReportFormat, ReportOutcome, ReportSource};
use crate::domain::run::ForcedFinal;
use crate::domain::untrusted::is_blank;

/// Name of the protocol tool.
pub const FINAL_REPORT: &str = "agent__final_report";

/// Puts the output of a step in order before its schema is checked: aliases, letter case, defaults (D21, D74). The
/// error says why it cannot be used, whatever the schema says.
pub type Prepare = Arc<dyn Fn(&mut Map<String, Value>) -> Result<PreparedOutput, String> + Send + Sync>;

/// What a prepared output still has to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreparedOutput {
    /// Its schema.
    ForSchema,
    /// Nothing: a model that gives up need not fit the schema (E10).
    GivenUp,
}

/// What a session's report must be.
#[derive(Clone)]
pub struct ReportShape {
    format: ReportFormat,
    validator: Option<Arc<Validator>>,
    /// The schema of the validator. A text is searched for its fields.
    schema: Arc<Value>,
    prepare: Option<Prepare>,
    tool: Arc<ToolSpec>,
}

impl std::fmt::Debug for ReportShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReportShape").field("format", &self.format).finish_non_exhaustive()
    }
}

/// A step's schema that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the output schema is not a valid JSON Schema: {0}")]
pub struct InvalidSchema(pub String);

/// A report as the model gave it, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelReport {
    /// Where it came from.
    pub source: ReportSource,
    /// Text formats.
    pub content: Option<String>,
    /// Structured formats.
    pub content_json: Option<Map<String, Value>>,
    /// How it was found, where the model wrote it as text (D5).
    pub extraction: Option<ExtractionStrategy>,
    /// The model's own.
    pub metadata: Map<String, Value>,
    /// What it says came of it.
    pub outcome: Option<ReportOutcome>,
    /// What it claims.
    pub claims: Vec<ProposedClaim>,
    /// The format it named, where that is not the session's (A-067).
    pub other_format: Option<String>,
    /// The token limit cut it (A-069).
    pub truncated: bool,
}

/// Why a report is not accepted; the model is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportProblem {
    /// Whether a schema is broken (a lasting failure has exit code 5, A-043).
    pub schema: bool,
    /// For the model.
    pub message: String,
}

impl ReportProblem {
    /// The same without the words that only a model does something with.
    pub(super) fn for_people(&self) -> String {
        self.message.replace("ExtractionFailed: ", "").replace(&call_instead(), "")
    }

    fn shape(message: impl Into<String>) -> Self {
        Self { schema: true, message: message.into() }
    }

    /// Not a matter of schemas.
    pub fn plain(message: impl Into<String>) -> Self {
        Self { schema: false, message: message.into() }
    }
}

impl ReportShape {
    /// A shape; a schema (self-contained, of an object) makes the format `json`.
    pub fn new(format: ReportFormat, schema: Option<Value>) -> Result<Self, InvalidSchema> {
        let validator = match &schema {
            Some(schema) => {
                let built = compiled(schema).map_err(|error| InvalidSchema(error.to_string()))?;
                Some(Arc::new(built))
            }
            None => None,
        };
        let format = if schema.is_some() { ReportFormat::Json } else { format };
        let tool = Arc::new(tool(format, schema.as_ref()));
        let schema = Arc::new(schema.unwrap_or_default());
        Ok(Self { format, validator, schema, prepare: None, tool })
    }

    /// Puts the output in order before the schema is checked. What is stored stays as the model wrote it.
    #[must_use]
    pub fn prepared_by(self, prepare: Prepare) -> Self {
        Self { prepare: Some(prepare), ..self }
    }

    /// The same, for a session that has to say what came of threads and remarks: also in a text, or beside an object whose
    /// schema has no place for that.
    #[must_use]
    pub fn with_outcomes(self) -> Self {
        let mut tool = self.tool.as_ref().clone();
        if let Some(properties) = tool.parameters["properties"].as_object_mut() {
            properties.insert(OUTCOMES.to_owned(), outcomes_schema());
        }
        Self { tool: Arc::new(tool), ..self }
    }

    /// The format.
    pub fn format(&self) -> ReportFormat {
        self.format
    }

    /// The protocol tool as it is offered.
    pub fn tool(&self) -> &Arc<ToolSpec> {
        &self.tool
    }

    /// Source 1: the arguments of a call (A-058). `truncated`: the token limit cut the reply.
    pub fn from_call(
        &self,
        arguments: &Map<String, Value>,
        truncated: bool,
    ) -> Result<ModelReport, ReportProblem> {
        let named = arguments.get("report_format").and_then(Value::as_str);
        let mut report = ModelReport {
            source: ReportSource::Tool,
            content: None,
            content_json: None,
            extraction: None,
            metadata: match arguments.get("metadata") {
                None | Some(Value::Null) => Map::new(),
                Some(Value::Object(metadata)) => metadata.clone(),
                Some(_) => return Err(ReportProblem::shape("/metadata: an object is expected")),
            },
            outcome: read(arguments, "outcome")?,
            claims: read(arguments, "claims")?.unwrap_or_default(),
            other_format: named.filter(|named| *named != self.format.as_str()).map(str::to_owned),
            truncated,
        };
        if let Some(outcomes @ Value::Array(_)) = arguments.get(OUTCOMES) {
            report.metadata.entry(OUTCOMES).or_insert_with(|| outcomes.clone());
        }
        if self.format.is_structured() {
            match (arguments.get("content_json"), arguments.get("content")) {
                (Some(Value::Object(object)), _) => {
                    self.check(object, "/content_json")?;
                    report.content_json = Some(object.clone());
                }
                (Some(Value::String(text)), _) => self.extract(&mut report, text, "/content_json")?,
                (Some(_), _) => return Err(ReportProblem::shape("/content_json: an object is expected")),
                (None, Some(Value::String(text))) => self.extract(&mut report, text, "/content")?,
                (None, _) => {
                    return Err(ReportProblem::shape("/content_json: it is required in this format"));
                }
            }
        } else {
            match arguments.get("content").and_then(Value::as_str) {
                Some(text) if !is_blank(text) => report.content = Some(text.to_owned()),
                _ => return Err(ReportProblem::plain("/content: a text that is not blank is required")),
            }
        }
        Ok(report)
    }

    /// Source 2: the text of a final turn, or of a chat reply (A-059). No claims.
    pub fn from_text(&self, text: &str, truncated: bool) -> Result<ModelReport, ReportProblem> {
        let mut report = ModelReport {
            source: ReportSource::Text,
            content: None,
            content_json: None,
            extraction: None,
            metadata: Map::new(),
            outcome: None,
            claims: Vec::new(),
            other_format: None,
            truncated,
        };
        if is_blank(text) {
            return Err(ReportProblem::plain("the text is blank"));
        }
        if self.format.is_structured() {
            self.extract(&mut report, text, "")?;
        } else {
            report.content = Some(text.to_owned());
        }
        Ok(report)
    }

    /// Whether a reply that the token limit cut can be a report at all (A-069).
    pub fn survives_truncation(&self) -> bool {
        !self.format.is_structured()
    }

    /// Finds the object in a text (D5).
    fn extract(&self, report: &mut ModelReport, text: &str, at: &str) -> Result<(), ReportProblem> {
        let found = extract(text, &self.schema)
            .map_err(|error| ReportProblem::shape(located(at, &format!("{error}{}", call_instead()))))?;
        self.check(&found.data, at)?;
        report.content_json = Some(found.data);
        report.extraction = Some(found.strategy);
        Ok(())
    }

    fn check(&self, object: &Map<String, Value>, at: &str) -> Result<(), ReportProblem> {
        let problem = |message: String| ReportProblem::shape(located(at, &message));
        if self.format == ReportFormat::SlackBlockKit {
            slack_blocks::check(object).map_err(problem)?;
        }
        if let Some(validator) = &self.validator {
            let mut prepared = object.clone();
            if let Some(prepare) = &self.prepare
                && prepare(&mut prepared).map_err(ReportProblem::shape)? == PreparedOutput::GivenUp
            {
                return Ok(());
            }
            arguments::check(validator, &Value::Object(prepared)).map_err(problem)?;
        }
        Ok(())
    }
}

/// What is wrong, and where; a text as a whole has no place.
/// What a model can do in place of a report in words.
fn call_instead() -> String {
    format!("; call {FINAL_REPORT}")
}

fn located(at: &str, message: &str) -> String {
    if at.is_empty() { message.to_owned() } else { format!("{at}: {message}") }
}

fn read<T: serde::de::DeserializeOwned>(
    arguments: &Map<String, Value>,
    key: &str,
) -> Result<Option<T>, ReportProblem> {
    match arguments.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => serde_path_to_error::deserialize(value.clone()).map(Some).map_err(|error| {
            let within: String = error.path().iter().map(pointer_part).collect();
            ReportProblem::shape(format!("/{key}{within}: {}", error.inner()))
        }),
    }
}

/// A step of a JSON pointer; empty if the place is not known.
fn pointer_part(segment: &serde_path_to_error::Segment) -> String {
    use serde_path_to_error::Segment;
    match segment {
        Segment::Seq { index } => format!("/{index}"),
        Segment::Map { key } | Segment::Enum { variant: key } => format!("/{key}"),
        Segment::Unknown => String::new(),
    }
}

/// The protocol tool that takes a report of this shape.
fn tool(format: ReportFormat, schema: Option<&Value>) -> ToolSpec {
    let mut properties = Map::new();
    properties.insert("report_format".into(), json!({ "type": "string", "enum": [format] }));
    let payload = if format.is_structured() {
        let schema = schema.cloned().unwrap_or_else(|| match format {
            ReportFormat::SlackBlockKit => json!({
                "type": "object",
                "description": "Slack Block Kit: {\"blocks\": [...]}",
                "properties": { "blocks": { "type": "array", "items": { "type": "object" } } },
                "required": ["blocks"],
            }),
            _ => json!({ "type": "object" }),
        });
        properties.insert("content_json".into(), schema);
        "content_json"
    } else {
        let description = format!("The whole report, as {format}.");
        properties.insert("content".into(), json!({ "type": "string", "description": description }));
        "content"
    };
    properties.insert("metadata".into(), json!({ "type": "object" }));
    properties.insert(
        "outcome".into(),
        json!({ "type": "string", "enum": ["achieved", "not_achieved", "insufficient_evidence"] }),
    );
    properties.insert("claims".into(), claims_schema());
    ToolSpec {
        name: FINAL_REPORT.to_owned(),
        description: "Ends this session with your report. Call it exactly once, when the work is done or cannot be \
                      done. Claim only what your cites show: path:line, a tool_output handle with lines, or a call id."
            .to_owned(),
        parameters: json!({
            "type": "object",
            "properties": properties,
            "required": ["report_format", payload],
            "additionalProperties": false,
        }),
    }
}

fn outcomes_schema() -> Value {
    json!({
        "type": "array",
        "description": "What came of each thread, and of each remark that is in none.",
        "items": {
            "type": "object",
            "properties": {
                "thread": { "type": "string", "description": "Its id." },
                "outcome": { "type": "string", "enum": ThreadOutcome::ALL.map(ThreadOutcome::as_str) },
                "text": { "type": "string", "description": "For the person who wrote it." },
            },
            "required": ["thread", "outcome", "text"],
        },
    })
}

fn claims_schema() -> Value {
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "statement": { "type": "string" },
                "kind": { "type": "string", "enum": [
                    "tests_pass", "defect_location", "change_made", "behavior_observed", "requirement_met", "other",
                ] },
                "status": { "type": "string", "enum": ["verified", "unverified", "retracted"] },
                "cites": { "type": "array", "items": { "anyOf": [
                    { "type": "string" },
                    { "type": "object", "properties": {
                        "handle": { "type": "string" }, "lines": { "type": "string" }, "quote": { "type": "string" } },
                      "required": ["handle", "lines"] },
                    { "type": "object", "properties": {
                        "path": { "type": "string" }, "start": { "type": "integer" }, "end": { "type": "integer" },
                        "quote": { "type": "string" } },
                      "required": ["path", "start"] },
                ] } },
            },
            "required": ["statement", "kind", "cites"],
        },
    })
}

impl ModelReport {
    /// The stored form. agentd's keys are under `metadata.agentd` (A-064). `metadata.source` is beside them, unless the
    /// model has a key of that name (A-058). `limit` is the token limit, for the notice in a cut text (A-069).
    pub fn store(
        self,
        format: ReportFormat,
        forced: Option<ForcedFinal>,
        limit: u64,
        ts: i64,
    ) -> FinalReport {
        let mut agentd = Map::new();
        agentd.insert("source".into(), json!(self.source));
        if let Some(forced) = forced {
            agentd.insert("forced_final".into(), json!(forced));
        }
        if self.truncated {
            agentd.insert("truncated".into(), true.into());
        }
        let mut metadata = self.metadata;
        metadata.entry("source").or_insert_with(|| json!(self.source));
        metadata.insert("agentd".into(), Value::Object(agentd));
        let mut content = self.content;
        if let Some(text) = content.as_mut().filter(|_| self.truncated) {
            text.push_str(&format!("\n\n[truncated: the reply reached its limit of {limit} output tokens]"));
        }
        FinalReport { format, content, content_json: self.content_json, metadata: Some(metadata), ts }
    }
}

/// What agentd itself knows of a session that has no report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFacts {
    /// The step.
    pub step_id: String,
    /// 1-based visit.
    pub visit: u32,
    /// Accepted turns, and their ceiling.
    pub turns: (u32, u32),
    /// Model requests.
    pub attempts: u32,
    /// Tools that ran.
    pub tools_run: u32,
    /// Classes of the last errors, oldest first.
    pub last_errors: Vec<String>,
    /// The agent program that worked in place of agentd's own session.
    pub program: Option<String>,
}

/// Source 3: a failure report from agentd's own facts, never from the model (A-060).
pub fn synthetic(
    format: ReportFormat,
    failure: &crate::domain::trace::SessionFailure,
    facts: &SessionFacts,
    forced: Option<ForcedFinal>,
    ts: i64,
) -> FinalReport {
    let reason = failure.stop.detail.as_str();
    let mut agentd = Map::new();
    agentd.insert("source".into(), json!(ReportSource::Synthetic));
    agentd.insert("reason".into(), reason.into());
    if let Some(forced) = forced {
        agentd.insert("forced_final".into(), json!(forced));
    }
    let mut metadata = Map::new();
    metadata.insert("source".into(), json!(ReportSource::Synthetic));
    metadata.insert("reason".into(), reason.into());
    metadata.insert("agentd".into(), Value::Object(agentd));
    let (turns, ceiling) = facts.turns;
    let (content, content_json) = if format == ReportFormat::Json {
        let object = json!({
            "stop_reason": failure.stop.reason(), "stop_detail": reason, "message": failure.stop.message,
            "step": facts.step_id, "visit": facts.visit, "turns": turns, "max_turns": ceiling,
            "attempts": facts.attempts, "tools_run": facts.tools_run, "last_errors": facts.last_errors,
        });
        (None, object.as_object().cloned())
    } else {
        // Of a program agentd knows how often it was started, and what it says itself of its turns.
        let (whose, counts) = match &facts.program {
            None => (
                "the model".to_owned(),
                format!(
                    "Turns: {turns} of {ceiling}; requests to models: {}; tools run: {}",
                    facts.attempts, facts.tools_run
                ),
            ),
            Some(program) => (
                program.clone(),
                format!("Launches of {program}: {}; turns that it told: {turns}", facts.attempts),
            ),
        };
        let mut lines = vec![
            format!("The session ended without a report by {whose}."),
            String::new(),
            format!("- Stop reason: {} ({reason})", failure.stop.reason()),
            format!("- What happened: {}", failure.stop.message),
            format!("- Step: {} (visit {})", facts.step_id, facts.visit),
            format!("- {counts}"),
        ];
        if !facts.last_errors.is_empty() {
            lines.push(format!("- Last errors: {}", facts.last_errors.join(", ")));
        }
        let text = lines.join("\n");
        if format == ReportFormat::SlackBlockKit {
            let block = json!({ "type": "section", "text": { "type": "mrkdwn", "text": text } });
            (None, json!({ "blocks": [block] }).as_object().cloned())
        } else {
            (Some(text), None)
        }
    };
    FinalReport { format, content, content_json, metadata: Some(metadata), ts }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    fn shape(format: ReportFormat) -> ReportShape {
        ReportShape::new(format, None).unwrap()
    }

    #[test]
    fn what_is_wrong_with_a_whole_text_has_no_place_before_it() {
        let wrong = shape(ReportFormat::Json).from_text("words", false).unwrap_err().message;
        assert!(wrong.starts_with("ExtractionFailed: "), "{wrong}");
        let within = json!({ "content": "words" });
        let wrong = shape(ReportFormat::Json).from_call(&arguments(within), false).unwrap_err().message;
        assert!(wrong.starts_with("/content: ExtractionFailed: "), "{wrong}");
    }

    #[test]
    fn a_062_json_wants_an_object_and_an_array_is_refused() {
        let json_shape = shape(ReportFormat::Json);
        let good =
            json_shape.from_call(&arguments(json!({ "content_json": { "a": [1] }, "content": "x" })), false);
        let stored = good.unwrap().store(ReportFormat::Json, None, 1, 5);
        assert_eq!(stored.content, None);
        assert_eq!(stored.content_json, arguments(json!({ "a": [1] })).into());
        for bad in
            [json!({ "content_json": [1] }), json!({ "content": "text" }), json!({ "content_json": "[1]" })]
        {
            assert!(json_shape.from_call(&arguments(bad), false).unwrap_err().schema);
        }
        assert!(
            json_shape.from_call(&arguments(json!({ "content_json": "{\"a\":1}" })), false).is_ok(),
            "A-068"
        );
    }

    #[test]
    fn a_063_a_blank_text_is_refused() {
        let problem = shape(ReportFormat::Markdown).from_call(&arguments(json!({ "content": " \n" })), false);
        assert!(!problem.unwrap_err().schema);
    }

    #[test]
    fn a_064_the_models_metadata_stays_and_agentds_stands_under_its_own_key() {
        let call =
            arguments(json!({ "content": "x", "metadata": { "deep": { "a": 1 }, "status": "failure" } }));
        let report = shape(ReportFormat::Markdown).from_call(&call, false).unwrap();
        let metadata = Value::Object(report.store(ReportFormat::Markdown, None, 1, 0).metadata.unwrap());
        assert_eq!(metadata["deep"], json!({ "a": 1 }));
        assert_eq!(metadata["status"], "failure");
        assert_eq!(metadata["agentd"]["source"], "tool");
    }

    #[test]
    fn a_067_another_format_with_a_fitting_payload_is_accepted_as_the_sessions() {
        let call = arguments(json!({ "report_format": "json", "content": "x" }));
        let report = shape(ReportFormat::Markdown).from_call(&call, false).unwrap();
        assert_eq!(report.other_format.as_deref(), Some("json"));
    }

    #[test]
    fn a_068_the_schema_is_asked_after_the_output_was_put_in_order() {
        let schema = json!({ "type": "object", "required": ["intent"],
            "properties": { "intent": { "enum": ["next"] } } });
        let lower: Prepare = Arc::new(|output| {
            if let Some(Value::String(intent)) = output.get_mut("intent") {
                intent.make_ascii_lowercase();
            }
            Ok(PreparedOutput::ForSchema)
        });
        let shape = ReportShape::new(ReportFormat::Markdown, Some(schema)).unwrap();
        let call = arguments(json!({ "content_json": { "intent": "NEXT" } }));
        let problem = shape.from_call(&call, false).unwrap_err();
        assert!(problem.message.starts_with("/content_json: /intent: "), "{}", problem.message);
        let report = shape.prepared_by(lower).from_call(&call, false).unwrap();
        assert_eq!(report.content_json.unwrap()["intent"], "NEXT", "stored as the model wrote it");
    }

    #[test]
    fn a_069_a_cut_text_is_marked() {
        let report = shape(ReportFormat::Text).from_text("half", true).unwrap();
        let stored = report.store(ReportFormat::Text, Some(ForcedFinal::MaxTurns), 99, 0);
        assert!(stored.content.unwrap().ends_with("limit of 99 output tokens]"));
        let metadata = Value::Object(stored.metadata.unwrap());
        assert_eq!(metadata["agentd"]["truncated"], true);
        assert_eq!(metadata["agentd"]["forced_final"], "max_turns");
    }

    #[test]
    fn a_059_text_counts_for_json_only_if_it_is_one_object() {
        let json_shape = shape(ReportFormat::Json);
        assert!(json_shape.from_text("```json\n{\"a\":1}\n```", false).is_ok());
        assert!(json_shape.from_text("{\"a\":1} and more", false).unwrap_err().schema);
    }

    #[test]
    fn c_06_claims_are_read_or_named_as_wrong() {
        let read = |claim: Value| {
            let right = json!({ "statement": "s", "kind": "other" });
            let call = arguments(json!({ "content": "x", "claims": [right, claim] }));
            shape(ReportFormat::Markdown).from_call(&call, false)
        };
        let wrong = [
            (json!({ "statement": "s", "kind": "nonsense" }), "/claims/1/kind: "),
            (json!({ "statement": "s", "kind": "other", "status": "sure" }), "/claims/1/status: "),
            (json!({ "kind": "other" }), "/claims/1: "),
        ];
        for (claim, place) in wrong {
            let problem = read(claim).unwrap_err();
            assert!(problem.message.starts_with(place), "{}", problem.message);
        }
        let candidate =
            json!({ "statement": "s", "kind": "other", "status": "candidate", "cites": [7, "a:1"] });
        assert_eq!(read(candidate).unwrap().claims[1].cites.len(), 2, "a cite that is none spoils no report");
    }
}
