//! A run: one execution of a flow for an instance, its id, its principal and its visits.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::artifact::Artifact;
use super::output_schema::ExtractionStrategy;
use super::stop::Stop;

/// UUIDv7 of a run; its first milliseconds are the start.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct RunId(pub Uuid);

impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// For whom a run works. Only an authenticator makes one (S-045).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Principal {
    /// Stable id: UUIDv5 of what `source` names (`github:<actor id>`, `local:<uid>@<host>`).
    pub id: Uuid,
    /// GitHub login or local user name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// Who authenticated it.
    pub source: PrincipalSource,
}

impl Principal {
    /// The principal that `source` knows under `name`.
    pub fn new(source: PrincipalSource, name: &str, login: Option<String>) -> Self {
        let kind = match source {
            PrincipalSource::Github => "github",
            PrincipalSource::Local => "local",
            PrincipalSource::Bearer => "bearer",
            PrincipalSource::Sweep => "sweep",
        };
        Self { id: Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("{kind}:{name}").as_bytes()), login, source }
    }
}

/// Who authenticated a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PrincipalSource {
    /// GitHub: the actor of the trigger.
    Github,
    /// The operating system: the local operator.
    Local,
    /// A bearer token of the HTTP front.
    Bearer,
    /// The schedule.
    Sweep,
}

/// One finished step visit, as the journal keeps it and a successor run imports it (D61).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VisitRecord {
    /// 1-based, over the whole run.
    pub visit: u32,
    /// The step.
    pub step_id: String,
    /// Word for people and JSON: the intent, or why there is none (`next`, `repeat`, `closing`, `failed`, …).
    pub verdict: String,
    /// Where it went; `None` = the flow ended here.
    pub next: Option<String>,
    /// Why the flow ended here, where it did not end well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Stop>,
    /// Accepted turns.
    pub turns: u32,
    /// Model requests.
    pub attempts: u32,
    /// Why the final turn was forced, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced_final: Option<ForcedFinal>,
    /// Start.
    pub started_at: DateTime<Utc>,
    /// End.
    pub ended_at: DateTime<Utc>,
    /// Validated output, as StepContext holds it.
    pub output: Map<String, Value>,
    /// SHA-256 over the output's canonical JSON.
    pub output_sha256: String,
    /// How the output was found, where the model wrote it as text (D5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extraction: Option<ExtractionStrategy>,
    /// What `previous_summary` will be.
    pub summary: String,
    /// The conversation, where a session ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<Artifact>,
    /// What the next visit goes on from, beside the outputs.
    #[serde(default, skip_serializing_if = "Carried::is_nothing")]
    pub carried: Carried,
}

impl VisitRecord {
    /// Where a handoff that waited for an approval was made since: the flow goes on to its step.
    pub fn leads_on(&mut self) {
        if let Some(held) = self.carried.handoff.take() {
            self.next = Some(held.to);
            self.carried.handoffs_denied = 0;
        }
    }
}

/// What a flow carries from one visit to the next. A successor run goes on counting where its predecessor was killed
/// (E23).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Carried {
    /// How often the checks before closing failed in a row.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed_checks: u32,
    /// The step whose checks those are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_step: Option<String>,
    /// How often the step's own check said no in a row.
    #[serde(skip_serializing_if = "is_zero")]
    pub turned_down: u32,
    /// Whether a handoff that lacked an input sent its step back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sent_back: bool,
    /// How often a handoff was denied softly in a row.
    #[serde(skip_serializing_if = "is_zero")]
    pub handoffs_denied: u32,
    /// Parts of the completion condition that have held, where all of them must.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub met: BTreeSet<String>,
    /// What the next visit of a step begins with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// The visit whose plan people have approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved_plan: Option<u32>,
    /// The handoff that waits for a person's approval. It is proposed again as it was, and its step is not visited again for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handoff: Option<HeldHandoff>,
}

/// A handoff that waits for an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldHandoff {
    /// The step that it leads to.
    pub to: String,
    /// What crosses over. The approval is of exactly this.
    pub payload: Map<String, Value>,
}

/// Words that a step hears when it is visited again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// The step.
    pub step_id: String,
    /// The words.
    pub words: String,
}

impl Carried {
    /// The checks hold, or their failure does not matter: the next failure is the first one.
    pub fn checks_are_over(&mut self) {
        (self.failed_checks, self.failed_step) = (0, None);
    }

    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Why a session's final turn was forced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForcedFinal {
    /// The context guard.
    Context,
    /// The last permitted turn.
    MaxTurns,
    /// Attempts of a turn were used up by unusable replies.
    RetryExhaustion,
    /// A person asked to stop (C-26).
    UserStop,
    /// What is left of the money covers the last report alone (D98).
    MaxCost,
    /// The model says by `agent__task_status` that it is done.
    TaskStatus,
}

/// A note that does not end a run: `warnings[]` of the run output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Warning {
    /// Stable code.
    pub code: String,
    /// Milliseconds since 1970.
    pub at: i64,
    /// For people.
    pub text: String,
}
