//! The final report of a session: its formats, its stored form, and the claims a model proposes with it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::words::words;

words! {
    /// The closed list of formats.
    #[derive(Default, Serialize, Deserialize, schemars::JsonSchema)]
    pub enum ReportFormat {
        /// An object in `content_json`.
        #[serde(rename = "json")]
        Json = "json",
        /// Markdown text; the default.
        #[default]
        #[serde(rename = "markdown")]
        Markdown = "markdown",
        /// Markdown with Mermaid diagrams.
        #[serde(rename = "markdown+mermaid")]
        MarkdownMermaid = "markdown+mermaid",
        /// `{blocks: [...]}` in `content_json` (D53).
        #[serde(rename = "slack-block-kit")]
        SlackBlockKit = "slack-block-kit",
        /// Text with ANSI colours.
        #[serde(rename = "tty")]
        Tty = "tty",
        /// Plain text for a pipe.
        #[serde(rename = "pipe")]
        Pipe = "pipe",
        /// Text for a calling agent.
        #[serde(rename = "sub-agent")]
        SubAgent = "sub-agent",
        /// Plain text.
        #[serde(rename = "text")]
        Text = "text",
    }
}

impl ReportFormat {
    /// Whether the payload is `content_json` (else it is `content`).
    pub fn is_structured(self) -> bool {
        matches!(self, Self::Json | Self::SlackBlockKit)
    }
}

impl std::str::FromStr for ReportFormat {
    type Err = UnknownFormat;
    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        Self::ALL
            .into_iter()
            .find(|format| format.as_str() == text)
            .ok_or_else(|| UnknownFormat(text.to_owned()))
    }
}

/// A word that names no format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not a report format; use json, markdown, markdown+mermaid, slack-block-kit, tty, pipe, sub-agent or text"
)]
pub struct UnknownFormat(pub String);

/// The report as it is stored: exactly one of `content` and `content_json` (A-061…A-065).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FinalReport {
    /// The session's format, whatever the model wrote.
    pub format: ReportFormat,
    /// Text formats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Structured formats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_json: Option<Map<String, Value>>,
    /// The model's own keys, and agentd's under `agentd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// Milliseconds since 1970.
    pub ts: i64,
}

/// Where a report came from (A-058…A-060).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReportSource {
    /// The model called `agent__final_report`.
    Tool,
    /// Text of a final turn, or of a chat reply.
    Text,
    /// agentd itself, from its own facts.
    Synthetic,
}

/// What the model says came of it; diagnostic only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportOutcome {
    /// The objective is reached.
    Achieved,
    /// It is not; counts as an abstention.
    NotAchieved,
    /// There is not enough evidence to say.
    InsufficientEvidence,
}

/// A statement that the model proposes. Only the evidence gate decides whether it is verified.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProposedClaim {
    /// One sentence.
    pub statement: String,
    /// What kind of statement; fixes which evidence can back it.
    pub kind: ClaimKind,
    /// What the model thinks of it.
    #[serde(default)]
    pub status: ProposedStatus,
    /// Where to look.
    #[serde(default)]
    pub cites: Vec<Cite>,
}

words! {
    /// Kinds of claims.
    #[derive(Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum ClaimKind {
        /// The verify commands pass on the final tree; agentd runs them itself.
        TestsPass = "tests_pass",
        /// A defect is at a place; verified where the lines or the command that it cites are there.
        DefectLocation = "defect_location",
        /// A change was made on the run's branch; agentd looks itself.
        ChangeMade = "change_made",
        /// Something was observed; verified where the lines or the command that it cites are there.
        BehaviorObserved = "behavior_observed",
        /// A requirement of the issue is met; verified where what it cites is there.
        RequirementMet = "requirement_met",
        /// Anything else; verified where what it cites is there.
        Other = "other",
    }
}

impl ClaimKind {
    /// Whether agentd knows by itself what such a claim is about. Of all others it only finds what they cite.
    pub fn is_known_to_agentd(self) -> bool {
        matches!(self, Self::TestsPass | Self::ChangeMade)
    }
}

/// What a model proposes a claim to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProposedStatus {
    /// Backed by its cites.
    // A candidate is what the gate shall look at, and so is this.
    #[default]
    #[serde(alias = "candidate")]
    Verified,
    /// Not backed.
    Unverified,
    /// Taken back.
    Retracted,
}

/// A pointer to evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum Cite {
    /// `path:line`, `path:line-line`, a call id or an evidence id.
    Locator(String),
    /// Lines of a stored tool output.
    Output(OutputCite),
    /// Lines of a file.
    File(FileCite),
    /// None of these. The claim is not verified; the rest of the report counts.
    Unreadable(Value),
}

/// See [`Cite::Output`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputCite {
    /// `session-<uuid>/<file-uuid>`.
    pub handle: String,
    /// `12` or `12-20`.
    pub lines: String,
    /// What stands there; agentd compares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
}

/// See [`Cite::File`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileCite {
    /// Relative to the worktree.
    pub path: String,
    /// First line, from 1.
    pub start: u32,
    /// Last line; the first where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<u32>,
    /// What stands there; agentd compares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_061_every_format_is_read_back_from_its_word_and_other_words_are_refused() {
        for format in ReportFormat::ALL {
            assert_eq!(format.as_str().parse(), Ok(format));
            assert_eq!(serde_json::to_value(format).unwrap(), format.as_str());
        }
        assert_eq!("html".parse::<ReportFormat>(), Err(UnknownFormat("html".into())));
    }

    #[test]
    fn x_008_a_claim_may_cite_by_locator_by_handle_and_by_span() {
        let claim: ProposedClaim = serde_json::from_value(json!({
            "statement": "the bug is here", "kind": "defect_location",
            "cites": ["src/x.rs:42", { "handle": "session-a/b", "lines": "1-3" }, { "path": "a", "start": 1, "end": 2 }],
        }))
        .unwrap();
        assert_eq!(claim.status, ProposedStatus::Verified);
        assert!(matches!(claim.cites[..], [Cite::Locator(_), Cite::Output(_), Cite::File(_)]));
        for (cite, readable) in [
            (json!({ "path": "a", "start": 1 }), true),
            (json!({ "path": "a", "start": 1, "quote": "x" }), true),
            (json!({ "handle": "a/b", "lines": "1", "quote": "x" }), true),
            (json!({ "path": "a" }), false),
            (json!({ "path": "a", "start": "one" }), false),
            (json!(7), false),
        ] {
            let read: Cite = serde_json::from_value(cite.clone()).unwrap();
            assert_eq!(!matches!(read, Cite::Unreadable(_)), readable, "{cite}");
            assert_eq!(serde_json::to_value(read).unwrap(), cite, "written as it was read");
        }
    }
}
