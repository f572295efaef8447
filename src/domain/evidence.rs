//! Claims and their evidence: records that say where a quote is from, so that anybody can check it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::canonical::{canonical_sha256, sha256_hex};
use super::report::{ClaimKind, ProposedStatus};
use super::words::words;

/// Longest quote in bytes.
pub const LONGEST_QUOTE: usize = 2048;

/// A statement of the run's report, and what the evidence gate decided about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Unique in the run: `c2.1` is the first claim of visit 2, `c0.n` are agentd's own.
    pub claim_id: String,
    /// One sentence.
    pub statement: String,
    /// What kind of statement.
    pub kind: ClaimKind,
    /// What the model proposed.
    pub proposed_status: ProposedStatus,
    /// What it is worth; only the gate says `verified`.
    pub status: ClaimStatus,
    /// Records that back it; at least one of a verified claim.
    pub evidence_ids: Vec<String>,
    /// Why it is not verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The step whose report made it; empty for agentd's own.
    pub step_id: String,
    /// 1-based visit; 0 for agentd's own.
    pub visit: u32,
}

impl Claim {
    /// Whether evidence backs it.
    pub fn is_verified(&self) -> bool {
        self.status == ClaimStatus::Verified
    }

    /// Whether agentd makes it itself, of what it knows; its statement is no model's.
    pub fn is_agentds_own(&self) -> bool {
        self.visit == 0
    }
}

/// What a claim is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClaimStatus {
    /// Backed by evidence that agentd looked at and that fits the kind. Of `tests_pass`: agentd ran the verify commands on the
    /// final tree, and they pass. Of `change_made`: the branch has a change. Of every other kind: what is cited stands there, no
    /// more. Whether the statement's words follow from it, agentd does not judge.
    Verified,
    /// Not backed.
    Unverified,
    /// Taken back by who made it.
    Retracted,
}

/// What backs a claim: a quote, where it stands, and where that is from. A line of `evidence.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvidenceRecord {
    /// See [`evidence_id`].
    pub evidence_id: String,
    /// What the provenance is of.
    pub kind: EvidenceKind,
    /// At most [`LONGEST_QUOTE`] bytes, redacted.
    pub quote: String,
    /// Hash of the whole quoted text of the source, normalised (see [`normalised_quote`]), before it was cut or
    /// redacted. So it can be compared again.
    pub quote_sha256: String,
    /// Where the quote stands in its source.
    pub span: Span,
    /// Where it is from.
    pub provenance: Provenance,
    /// Who put it forward.
    pub captured_by: CapturedBy,
    /// RFC 3339, UTC, milliseconds.
    pub captured_at: String,
    /// The tree of the worktree at the time of capture. Empty when the source is not about the worktree.
    pub tree: String,
    /// Whether the worktree changed after it was captured.
    pub stale: bool,
    /// Whether it comes from a program that agentd cannot look into (C-24).
    pub opaque: bool,
    /// What came of looking.
    pub verification: Verification,
}

impl EvidenceRecord {
    /// Whether it can back a claim: it was checked, it is fresh, and it is more than somebody's statement.
    pub fn holds(&self) -> bool {
        self.verification.state == VerificationState::Ok && !self.stale && !self.opaque
    }
}

words! {
    /// What a record is of.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum EvidenceKind {
        /// Lines of a file of the worktree.
        FileSpan = "file_span",
        /// A process that agentd ran.
        Command = "command",
        /// A change on the run's branch.
        Git = "git",
        /// What a tool answered.
        ToolResult = "tool_result",
        /// What the issue says.
        IssueText = "issue_text",
        /// What a server answered.
        Http = "http",
    }
}

/// First and last line or byte, both counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// What is counted.
    pub unit: SpanUnit,
    /// First; lines count from 1, bytes from 0.
    pub start: u64,
    /// Last.
    pub end: u64,
}

impl Span {
    /// Lines from 1.
    pub fn lines(start: u64, end: u64) -> Self {
        Self { unit: SpanUnit::Line, start, end }
    }
}

/// What a span counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpanUnit {
    /// Lines.
    Line,
    /// Bytes.
    Byte,
}

/// Who put evidence forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CapturedBy {
    /// agentd itself.
    Agentd,
    /// The model, by a cite that agentd followed.
    ModelCited,
}

/// What came of looking at the source again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verification {
    /// The result.
    pub state: VerificationState,
    /// How it was looked at: `reread`, `run`, `git`, `recorded`.
    pub method: String,
    /// RFC 3339, UTC, milliseconds.
    pub checked_at: String,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Whether the source says what the quote says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerificationState {
    /// It does.
    Ok,
    /// It does not, or cannot be looked at.
    Failed,
}

/// Where a quote is from, one form a kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Provenance {
    /// Of [`EvidenceKind::FileSpan`].
    FileSpan(FileSpanSource),
    /// Of [`EvidenceKind::Command`].
    Command(CommandSource),
    /// Of [`EvidenceKind::Git`].
    Git(GitSource),
    /// Of [`EvidenceKind::ToolResult`].
    ToolResult(ToolResultSource),
    /// Of [`EvidenceKind::IssueText`].
    IssueText(IssueTextSource),
    /// Of [`EvidenceKind::Http`].
    Http(HttpSource),
}

impl Provenance {
    /// Its kind.
    pub fn kind(&self) -> EvidenceKind {
        match self {
            Self::FileSpan(_) => EvidenceKind::FileSpan,
            Self::Command(_) => EvidenceKind::Command,
            Self::Git(_) => EvidenceKind::Git,
            Self::ToolResult(_) => EvidenceKind::ToolResult,
            Self::IssueText(_) => EvidenceKind::IssueText,
            Self::Http(_) => EvidenceKind::Http,
        }
    }

    /// What the id is computed from. It is the same for one source in two runs at one commit.
    fn locator(&self) -> serde_json::Value {
        match self {
            Self::FileSpan(file) => json!([file.path, file.blob_sha]),
            Self::Command(command) => json!([command.argv, command.cwd, command.tree_after]),
            Self::Git(git) => json!([git.patch_sha256, git.tree]),
            Self::ToolResult(tool) => json!([tool.mcp_server, tool.command, tool.args_sha256]),
            Self::IssueText(issue) => json!([issue.url, issue.body_sha256]),
            Self::Http(http) => json!([http.url, http.body_sha256]),
        }
    }
}

/// Lines of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSpanSource {
    /// `owner/name`.
    pub repo: String,
    /// The commit that has it, or `worktree`.
    pub commit: String,
    /// The tree that has it.
    pub tree: String,
    /// Relative to the worktree.
    pub path: String,
    /// Git's id of the content.
    pub blob_sha: String,
    /// Lines of the whole file.
    pub lines_total: u64,
}

/// A process that agentd ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandSource {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Relative to the worktree.
    pub cwd: String,
    /// Names of the variables it got; never values.
    pub env_names: Vec<String>,
    /// `null`: it did not end by itself.
    pub exit_code: Option<i32>,
    /// How it ended otherwise: `signal 9`, `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// RFC 3339, UTC, milliseconds.
    pub started_at: String,
    /// Milliseconds.
    pub duration_ms: u64,
    /// Lower-case hexadecimal, redacted stream.
    pub stdout_sha256: String,
    /// Lower-case hexadecimal, redacted stream.
    pub stderr_sha256: String,
    /// Size.
    pub stdout_bytes: u64,
    /// Where the output is kept, relative to the run directory.
    pub output_handle: String,
    /// Tree before it ran.
    pub tree_before: String,
    /// Tree after it ran.
    pub tree_after: String,
    /// The sandbox it ran in: `none`, or the name of the kind.
    pub sandbox: String,
    /// Files that it executed and that the run itself changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_by_run: Vec<String>,
}

/// A change on the run's branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GitSource {
    /// Head of the branch.
    pub commit: String,
    /// The origin's commit it is compared with.
    pub parent: String,
    /// Tree of the head.
    pub tree: String,
    /// Over the unified diff.
    pub patch_sha256: String,
    /// Files, by path.
    pub files: Vec<GitFile>,
}

/// One changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GitFile {
    /// Relative to the worktree.
    pub path: String,
    /// Lines.
    pub added: u64,
    /// Lines.
    pub removed: u64,
}

/// What a tool answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolResultSource {
    /// Server, or `agentd`.
    pub mcp_server: String,
    /// Tool name.
    pub command: String,
    /// Id of the call.
    pub call_id: String,
    /// Over the canonical arguments.
    pub args_sha256: String,
    /// Over the answer, redacted.
    pub output_sha256: String,
    /// Where a long answer is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_handle: Option<String>,
}

/// What the issue says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IssueTextSource {
    /// Web address; empty for an issue from a file.
    pub url: String,
    /// GitHub's node id; empty for an issue from a file.
    pub node_id: String,
    /// As GitHub gave it.
    pub updated_at: String,
    /// Over the body as recorded.
    pub body_sha256: String,
}

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpSource {
    /// Without query and user part.
    pub url: String,
    /// HTTP status.
    pub status: u16,
    /// Over the body, redacted.
    pub body_sha256: String,
    /// RFC 3339, UTC, milliseconds.
    pub fetched_at: String,
}

/// Two sides that cannot both be true, with evidence on each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Conflict {
    /// Unique in the run.
    pub conflict_id: String,
    /// For people.
    pub description: String,
    /// Evidence ids; not empty.
    pub side_a: Vec<String>,
    /// Evidence ids; not empty.
    pub side_b: Vec<String>,
}

impl Conflict {
    /// `None` unless there is evidence on both sides.
    pub fn new(description: impl Into<String>, side_a: &[String], side_b: &[String]) -> Option<Self> {
        if side_a.is_empty() || side_b.is_empty() {
            return None;
        }
        let id = sha256_hex(format!("{}\n{}", side_a.join(" "), side_b.join(" ")).as_bytes());
        Some(Self {
            conflict_id: format!("cf_{}", &id[..12]),
            description: description.into(),
            side_a: side_a.to_vec(),
            side_b: side_b.to_vec(),
        })
    }
}

/// `ev_` and 20 hexadecimal digits over `{repo, kind, locator, span, quote_sha256}`: the same cite in two runs at one
/// commit has the same id.
pub fn evidence_id(repo: &str, provenance: &Provenance, span: Span, quote_sha256: &str) -> String {
    let over = json!({
        "repo": repo,
        "kind": provenance.kind().as_str(),
        "locator": provenance.locator(),
        "span": { "unit": span.unit, "start": span.start, "end": span.end },
        "quote_sha256": quote_sha256,
    });
    // It has no floating-point number, so it always has a canonical form.
    let hash = canonical_sha256(&over).unwrap_or_else(|_| sha256_hex(over.to_string().as_bytes()));
    format!("ev_{}", &hash[..20])
}

/// The form in which quotes are compared: line ends are `\n`; spaces at line ends and empty lines at the end do not
/// count.
pub fn normalised_quote(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_end().to_owned()
}

/// Lines `start..=end` (from 1) of a text; the error says what is wrong with the span.
pub fn quoted_lines(text: &str, start: u64, end: u64) -> Result<String, String> {
    let total = text.lines().count() as u64;
    if start == 0 || end < start {
        return Err(format!("{start}-{end} is not a range of lines"));
    }
    if end > total {
        return Err(format!("line {end} does not exist, there are {total}"));
    }
    let wanted = text.lines().skip(start as usize - 1).take((end - start + 1) as usize);
    let quote = wanted.collect::<Vec<_>>().join("\n");
    if quote.trim().is_empty() {
        return Err(format!("lines {start}-{end} are empty"));
    }
    Ok(quote)
}

/// Hash of a quote, over its normalised form.
pub fn quote_sha256(quote: &str) -> String {
    sha256_hex(normalised_quote(quote).as_bytes())
}

/// At most [`LONGEST_QUOTE`] bytes of a quote, cut at a character.
pub fn short_quote(quote: &str) -> String {
    let mut end = quote.len().min(LONGEST_QUOTE);
    while !quote.is_char_boundary(end) {
        end -= 1;
    }
    quote[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(commit: &str) -> Provenance {
        Provenance::FileSpan(FileSpanSource {
            repo: "o/n".into(),
            commit: commit.into(),
            tree: "t".into(),
            path: "src/x.rs".into(),
            blob_sha: "b".into(),
            lines_total: 3,
        })
    }

    #[test]
    fn x_027_the_same_cite_has_the_same_id_and_another_has_another() {
        let id =
            |repo: &str, span: Span, quote: &str| evidence_id(repo, &file("c1"), span, &quote_sha256(quote));
        let first = id("o/n", Span::lines(1, 2), "a  \r\nb\n");
        assert_eq!(first, id("o/n", Span::lines(1, 2), "a\nb"), "line ends do not count");
        assert_eq!(first.len(), 23);
        assert_ne!(first, id("o/m", Span::lines(1, 2), "a\nb"));
        assert_ne!(first, id("o/n", Span::lines(1, 3), "a\nb"));
        assert_ne!(first, id("o/n", Span::lines(1, 2), "a\n b"));
    }

    #[test]
    fn x_008_a_span_must_be_inside_the_text_and_say_something() {
        let text = "one\ntwo\n\n";
        assert_eq!(quoted_lines(text, 1, 2).unwrap(), "one\ntwo");
        for (start, end) in [(0, 1), (2, 1), (1, 4), (3, 3)] {
            assert!(quoted_lines(text, start, end).is_err(), "{start}-{end}");
        }
    }

    #[test]
    fn x_028_a_conflict_has_evidence_on_both_sides() {
        let side = |id: &str| vec![id.to_owned()];
        assert!(Conflict::new("x", &side("a"), &[]).is_none());
        assert!(Conflict::new("x", &[], &side("a")).is_none());
        assert_eq!(Conflict::new("x", &side("a"), &side("b")).unwrap().side_b, ["b"]);
    }

    #[test]
    fn a_record_is_read_back_as_what_it_was() {
        let json = serde_json::to_value(file("c1")).unwrap();
        assert_eq!(serde_json::from_value::<Provenance>(json).unwrap().kind(), EvidenceKind::FileSpan);
    }
}
