//! A plan that people approve before it is carried out.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::canonical::sha256_hex;
use super::policy::ActorPermission;
use super::run::{Retry, RunId, VisitRecord};

/// Where the plan stands in a step's output.
const KEY: &str = "plan";
/// Fewest digits of a hash that name a plan.
const LEAST_DIGITS: usize = 8;

/// The plan that a visit put out, as people are shown it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ProposedPlan {
    /// The visit.
    pub visit: u32,
    /// Its step.
    pub step_id: String,
    /// Markdown of a model; redacted.
    pub text: String,
    /// Of the text: by its first digits a person names it.
    pub sha256: String,
}

/// A plan that was posted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanPosted {
    /// The visit that put it out.
    pub visit: u32,
    /// Its step.
    pub step_id: String,
    /// Of its text.
    pub sha256: String,
    /// The comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// A plan that somebody approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanApproved {
    /// The run that proposed it.
    pub run_id: RunId,
    /// The visit of it.
    pub visit: u32,
    /// The plan as it read when it was approved.
    pub text: String,
    /// Of that text.
    pub sha256: String,
    /// Whether a person had changed it.
    pub edited: bool,
    /// Who approved it.
    pub by: String,
    /// What they may do in the repository; absent = it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<ActorPermission>,
    /// When.
    pub at: DateTime<Utc>,
}

/// What a person decided on a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanVerdict {
    /// It is carried out as it was proposed.
    Approved,
    /// It is carried out as people changed it.
    Edited,
    /// It is made again.
    Rejected,
}

impl ProposedPlan {
    /// The plan of a visit, whose text is given as `shown`.
    pub fn new(visit: &VisitRecord, shown: String) -> Self {
        let sha256 = sha256_hex(shown.as_bytes());
        Self { visit: visit.visit, step_id: visit.step_id.clone(), text: shown, sha256 }
    }

    /// Whether a hash, or its first digits, names it.
    pub fn is_named(&self, hash: &str) -> bool {
        hash.len() >= LEAST_DIGITS && self.sha256.starts_with(&hash.to_ascii_lowercase())
    }

    /// Its hash as people write it.
    pub fn short(&self) -> &str {
        &self.sha256[..LEAST_DIGITS.min(self.sha256.len())]
    }

    /// Puts what was decided on it into the visit that proposed it, if that is the last one: the approved text in the place of
    /// its plan, or the way back to its step with the reason. `text` is the plan that people wrote, or their reason.
    pub fn decide(&self, visits: &mut [VisitRecord], verdict: PlanVerdict, text: &str) {
        let last = visits.last_mut().filter(|last| last.visit == self.visit && last.step_id == self.step_id);
        let Some(last) = last else { return };
        match verdict {
            PlanVerdict::Rejected => {
                last.next = Some(self.step_id.clone());
                last.carried.retry = Some(Retry { step_id: self.step_id.clone(), words: text.to_owned() });
            }
            PlanVerdict::Approved => last.carried.approved_plan = Some(self.visit),
            PlanVerdict::Edited => {
                last.carried.approved_plan = Some(self.visit);
                last.output.insert(KEY.to_owned(), Value::String(text.to_owned()));
                if let Ok(sha256) = super::canonical::canonical_sha256(&last.output) {
                    last.output_sha256 = sha256;
                }
            }
        }
    }
}

/// The plan in a step's output, as Markdown; `None` = there is none.
pub fn plan_of(output: &Map<String, Value>) -> Option<String> {
    let text = match output.get(KEY)? {
        Value::String(text) => text.trim().to_owned(),
        Value::Array(parts) if parts.iter().all(Value::is_string) => {
            let lines = parts.iter().filter_map(Value::as_str).map(|line| format!("- {line}"));
            lines.collect::<Vec<_>>().join("\n")
        }
        Value::Null => return None,
        other => format!("```json\n{}\n```", serde_json::to_string_pretty(other).unwrap_or_default()),
    };
    Some(text).filter(|text| !text.is_empty())
}
