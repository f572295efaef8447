//! The evidence gate: decides by fixed rules, without a model, which claims are verified (X-008…X-010).

use serde::{Deserialize, Serialize};

use super::evidence::{
    Claim, ClaimStatus, Conflict, EvidenceKind, EvidenceRecord, Provenance, VerificationState,
};
use super::report::{ClaimKind, ProposedClaim, ProposedStatus, ReportOutcome};
use super::stop::{Stop, StopDetail};
use super::words::words;

/// A claim of a report with its citations looked up. Each gave a record, or the reason why there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct CitedClaim {
    /// As the model put it forward, redacted.
    pub claim: ProposedClaim,
    /// The step.
    pub step_id: String,
    /// 1-based visit.
    pub visit: u32,
    /// What its cites led to, in order.
    pub cites: Vec<Result<EvidenceRecord, String>>,
}

/// Everything the gate judges.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Case {
    /// Claims of all reports, in the order they were made.
    pub claims: Vec<CitedClaim>,
    /// agentd's own runs of the verify commands on the final tree.
    pub verification: Vec<EvidenceRecord>,
    /// How many verify commands are configured.
    pub verify_commands: usize,
    /// What the branch changes, if anything.
    pub change: Option<EvidenceRecord>,
    /// The final tree.
    pub head_tree: String,
    /// What the last report says came of it.
    pub outcome: Option<ReportOutcome>,
    /// Kinds of which a verified claim is required.
    pub requires: Vec<ClaimKind>,
    /// Whether at least one verified claim is required.
    pub evidence_required: bool,
}

/// What the gate says; part of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Claims with their status.
    pub claims: Vec<Claim>,
    /// The records that claims point to, and those that did not hold.
    pub evidence: Vec<EvidenceRecord>,
    /// Claims that cannot both be true.
    pub conflicts: Vec<Conflict>,
    /// One line for every claim that is not verified.
    pub limitations: Vec<String>,
    /// Required kinds without a verified claim.
    pub missing: Vec<ClaimKind>,
    /// Whether the run may be a success.
    pub outcome: GateOutcome,
}

words! {
    /// Whether a run may be a success.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum GateOutcome {
        /// It may.
        Pass = "pass",
        /// The report itself says that it is not enough.
        ModelAbstained = "model_abstained",
        /// A required claim is missing or not verified.
        RequiredClaimMissing = "required_claim_missing",
        /// Everything that was claimed as verified was rejected.
        ClaimsRejected = "claims_rejected",
    }
}

impl Judgement {
    /// The stop reason after the evidence was looked at. A success without evidence becomes `NO_EVIDENCE` (C-05,
    ///
    pub fn stop_after(&self, stop: Stop) -> Stop {
        if !stop.success() {
            return stop;
        }
        match self.outcome {
            GateOutcome::Pass => stop,
            GateOutcome::ModelAbstained => Stop::new(
                StopDetail::ModelAbstained,
                "The agent reports that it could not reach the objective or has not enough evidence for it.",
            ),
            GateOutcome::RequiredClaimMissing if self.missing.is_empty() => Stop::new(
                StopDetail::RequiredClaimMissing,
                "This agent needs at least one verified claim, and there is none.",
            ),
            GateOutcome::RequiredClaimMissing => {
                let kinds: Vec<&str> = self.missing.iter().map(|kind| kind.as_str()).collect();
                let message = format!("Required and not verified: {}.", kinds.join(", "));
                Stop::new(StopDetail::RequiredClaimMissing, message)
            }
            GateOutcome::ClaimsRejected => Stop::new(
                StopDetail::ClaimsRejected,
                "None of the report's claims is backed by what agentd found when it looked.",
            ),
        }
    }

    /// The first of these kinds that has no verified claim.
    pub fn unverified_of(&self, kinds: &[ClaimKind]) -> Option<ClaimKind> {
        kinds
            .iter()
            .copied()
            .find(|kind| !self.claims.iter().any(|claim| claim.kind == *kind && claim.is_verified()))
    }
}

/// Judges. The same case has the same judgement.
pub fn judge(case: Case) -> Judgement {
    let mut claims = Vec::new();
    let mut evidence: Vec<EvidenceRecord> = Vec::new();
    let proposed = latest(&case.claims);
    let mut place = 0;
    let mut visit = None;
    for cited in proposed {
        place = if visit == Some(cited.visit) { place + 1 } else { 1 };
        visit = Some(cited.visit);
        claims.push(weigh(cited, place, &case));
        keep(&mut evidence, cited.cites.iter().flatten());
    }
    let made_by_model = claims.len();
    own_claims(&case, &mut claims);
    keep(&mut evidence, case.verification.iter().chain(case.change.as_ref()));
    let conflicts = resolve_conflicts(&mut claims);
    let limitations = claims.iter().filter_map(limitation).collect();
    let verified = |kind: &ClaimKind| claims.iter().any(|claim| claim.kind == *kind && claim.is_verified());
    let missing: Vec<ClaimKind> = case.requires.iter().copied().filter(|kind| !verified(kind)).collect();
    let any_verified = claims.iter().any(Claim::is_verified);
    let of_model = claims.get(..made_by_model).unwrap_or_default();
    let asserted = of_model.iter().filter(|claim| claim.proposed_status == ProposedStatus::Verified);
    let rejected = asserted.clone().count() > 0 && !asserted.clone().any(Claim::is_verified);
    let outcome = match case.outcome {
        Some(ReportOutcome::InsufficientEvidence | ReportOutcome::NotAchieved) => GateOutcome::ModelAbstained,
        _ if !missing.is_empty() || (case.evidence_required && !any_verified) => {
            GateOutcome::RequiredClaimMissing
        }
        _ if rejected => GateOutcome::ClaimsRejected,
        _ => GateOutcome::Pass,
    };
    Judgement { claims, evidence, conflicts, limitations, missing, outcome }
}

/// The last report about each statement counts: it says it again, or takes it back.
fn latest(claims: &[CitedClaim]) -> Vec<&CitedClaim> {
    let same = |a: &CitedClaim, b: &CitedClaim| {
        a.claim.kind == b.claim.kind && words(&a.claim.statement) == words(&b.claim.statement)
    };
    let superseded = |index: usize| claims[index + 1..].iter().any(|later| same(later, &claims[index]));
    (0..claims.len()).filter(|index| !superseded(*index)).map(|index| &claims[index]).collect()
}

fn keep<'a>(evidence: &mut Vec<EvidenceRecord>, records: impl Iterator<Item = &'a EvidenceRecord>) {
    for record in records {
        if !evidence.iter().any(|known| known.evidence_id == record.evidence_id) {
            evidence.push(record.clone());
        }
    }
}

fn weigh(cited: &CitedClaim, place: usize, case: &Case) -> Claim {
    let backing = match cited.claim.status {
        ProposedStatus::Verified if blank(&cited.claim.statement) => Err("it says nothing".to_owned()),
        ProposedStatus::Retracted => Err("it was taken back".to_owned()),
        ProposedStatus::Unverified => Err("the agent itself does not call it verified".to_owned()),
        ProposedStatus::Verified => backing(cited, case),
    };
    let found = cited.cites.iter().flatten().map(|record| record.evidence_id.clone());
    let (status, evidence_ids, reason) = match backing {
        Ok(ids) => (ClaimStatus::Verified, ids, None),
        Err(reason) if cited.claim.status == ProposedStatus::Retracted => {
            (ClaimStatus::Retracted, found.collect(), Some(reason))
        }
        Err(reason) => (ClaimStatus::Unverified, found.collect(), Some(reason)),
    };
    Claim {
        claim_id: format!("c{}.{place}", cited.visit),
        statement: cited.claim.statement.clone(),
        kind: cited.claim.kind,
        proposed_status: cited.claim.status,
        status,
        evidence_ids,
        reason,
        step_id: cited.step_id.clone(),
        visit: cited.visit,
    }
}

/// Whether a statement has no letter and no digit.
fn blank(statement: &str) -> bool {
    !statement.chars().any(char::is_alphanumeric)
}

/// Ids of the records that back a claim, or why none do.
fn backing(cited: &CitedClaim, case: &Case) -> Result<Vec<String>, String> {
    let acceptable: &[EvidenceKind] = match cited.claim.kind {
        // What agentd knows itself decides.
        ClaimKind::TestsPass => return tests_pass(case),
        ClaimKind::ChangeMade => return change_cited(cited, case),
        ClaimKind::DefectLocation | ClaimKind::BehaviorObserved => {
            &[EvidenceKind::FileSpan, EvidenceKind::Command]
        }
        ClaimKind::RequirementMet | ClaimKind::Other => &[
            EvidenceKind::FileSpan,
            EvidenceKind::Command,
            EvidenceKind::Git,
            EvidenceKind::ToolResult,
            EvidenceKind::Http,
        ],
    };
    if cited.cites.is_empty() {
        return Err("it cites nothing".to_owned());
    }
    let mut ids = Vec::new();
    let mut unfit = None;
    for cite in &cited.cites {
        let record = cite.as_ref().map_err(Clone::clone)?;
        match unfitness(record, acceptable) {
            None => ids.push(record.evidence_id.clone()),
            Some(reason) => unfit = Some(reason),
        }
    }
    match (ids.is_empty(), unfit) {
        (false, _) => Ok(ids),
        (true, reason) => Err(reason.unwrap_or_else(|| "it cites nothing".to_owned())),
    }
}

fn unfitness(record: &EvidenceRecord, acceptable: &[EvidenceKind]) -> Option<String> {
    if record.verification.state == VerificationState::Failed {
        return Some(
            record.verification.reason.clone().unwrap_or_else(|| "its source says otherwise".to_owned()),
        );
    }
    if record.stale {
        return Some("the worktree may have changed after its evidence was captured".to_owned());
    }
    if record.opaque {
        return Some("it is the word of a program that agentd cannot look into".to_owned());
    }
    if !acceptable.contains(&record.kind) {
        return Some(match record.kind {
            EvidenceKind::IssueText => "what the issue says proves only that it was said".to_owned(),
            kind => format!("evidence of kind {} does not back a claim of its kind", kind.as_str()),
        });
    }
    None
}

fn tests_pass(case: &Case) -> Result<Vec<String>, String> {
    if case.verify_commands == 0 {
        return Err("no verify commands are configured (`verify.commands`), so agentd cannot know".to_owned());
    }
    if case.verification.len() < case.verify_commands {
        return Err("the verify commands were not all run on the final tree".to_owned());
    }
    let mut ids = Vec::new();
    for record in &case.verification {
        let Provenance::Command(run) = &record.provenance else { continue };
        let line = run.argv.join(" ");
        match run.exit_code {
            Some(0) => {}
            Some(code) => return Err(format!("`{line}` ended with exit code {code} when agentd ran it")),
            None => {
                let end = run.signal.as_deref().unwrap_or("without an exit code");
                return Err(format!("`{line}` did not end by itself when agentd ran it ({end})"));
            }
        }
        if run.tree_before != case.head_tree || run.tree_after != case.head_tree {
            return Err(format!("`{line}` did not run on the final tree, or changed it"));
        }
        ids.push(record.evidence_id.clone());
    }
    Ok(ids)
}

fn change_made(case: &Case) -> Result<Vec<String>, String> {
    match &case.change {
        Some(record) if record.holds() => Ok(vec![record.evidence_id.clone()]),
        _ => Err("the branch has no change against its origin".to_owned()),
    }
}

/// The change, where it is one of a file that the claim cites, if it cites any.
fn change_cited(cited: &CitedClaim, case: &Case) -> Result<Vec<String>, String> {
    let ids = change_made(case)?;
    let Some(Provenance::Git(git)) = case.change.as_ref().map(|change| &change.provenance) else {
        return Ok(ids);
    };
    let files = cited.cites.iter().flatten().filter_map(|record| match &record.provenance {
        Provenance::FileSpan(span) => Some(span.path.as_str()),
        _ => None,
    });
    let files: Vec<&str> = files.collect();
    let is_changed = |path: &&str| git.files.iter().any(|file| file.path == **path);
    match files.is_empty() || files.iter().any(is_changed) {
        true => Ok(ids),
        false => Err("the branch changes none of the files that it cites".to_owned()),
    }
}

/// Claims of agentd's own. A report that claims nothing does not hide them.
fn own_claims(case: &Case, claims: &mut Vec<Claim>) {
    let mut place = 0;
    let mut add = |kind: ClaimKind, statement: String, ids: Vec<String>| {
        if claims.iter().any(|claim| claim.kind == kind) {
            return;
        }
        place += 1;
        claims.push(Claim {
            claim_id: format!("c0.{place}"),
            statement,
            kind,
            proposed_status: ProposedStatus::Verified,
            status: ClaimStatus::Verified,
            evidence_ids: ids,
            reason: None,
            step_id: String::new(),
            visit: 0,
        });
    };
    if let (Ok(ids), Some(Provenance::Git(git))) =
        (change_made(case), case.change.as_ref().map(|c| &c.provenance))
    {
        let files = git.files.len();
        add(
            ClaimKind::ChangeMade,
            format!("{files} file{} changed.", if files == 1 { "" } else { "s" }),
            ids,
        );
    }
    if let Ok(ids) = tests_pass(case) {
        add(ClaimKind::TestsPass, "The verify commands pass on the final tree.".to_owned(), ids);
    }
}

/// Verified claims that contradict each other. Both become unverified.
fn resolve_conflicts(claims: &mut [Claim]) -> Vec<Conflict> {
    let mut found = Vec::new();
    for a in 0..claims.len() {
        for b in a + 1..claims.len() {
            let both = claims[a].is_verified() && claims[b].is_verified();
            if both && opposed(&claims[a].statement, &claims[b].statement) {
                found.push((a, b));
            }
        }
    }
    let mut conflicts = Vec::new();
    for (a, b) in found {
        let description = format!("\"{}\" against \"{}\"", claims[a].statement, claims[b].statement);
        let Some(conflict) = Conflict::new(description, &claims[a].evidence_ids, &claims[b].evidence_ids)
        else {
            continue;
        };
        for (this, other) in [(a, b), (b, a)] {
            let other = claims[other].claim_id.clone();
            claims[this].status = ClaimStatus::Unverified;
            claims[this].reason = Some(format!("it contradicts claim {other}"));
        }
        conflicts.push(conflict);
    }
    conflicts
}

/// Whether one statement is the other with a negation more.
fn opposed(a: &str, b: &str) -> bool {
    let (a, b) = (words(a), words(b));
    let negates = |word: &String| matches!(word.as_str(), "not" | "never" | "no" | "neither" | "without");
    let core = |words: &[String]| -> Vec<String> {
        let carried = |word: &&String| {
            !negates(word)
                && !matches!(
                    word.as_str(),
                    "do" | "does" | "did" | "is" | "are" | "longer" | "any" | "the" | "a"
                )
        };
        words.iter().filter(carried).map(|word| stem(word)).collect()
    };
    let odd = |words: &[String]| words.iter().filter(|word| negates(word)).count() % 2 == 1;
    odd(&a) != odd(&b) && core(&a) == core(&b)
}

fn stem(word: &str) -> String {
    let cut =
        ["ing", "es", "ed", "s"].iter().find_map(|end| word.strip_suffix(end).filter(|rest| rest.len() > 2));
    cut.unwrap_or(word).trim_end_matches('e').to_owned()
}

fn words(statement: &str) -> Vec<String> {
    let lower = statement.to_lowercase().replace(['\u{2019}', '`'], "'");
    let plain = lower.replace("cannot", "can not").replace("can't", "can not").replace("won't", "will not");
    let plain = plain.replace("n't", " not");
    let separates = |c: char| !(c.is_alphanumeric() || matches!(c, '_' | ':' | '/' | '.' | '-'));
    plain
        .split(separates)
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()))
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn limitation(claim: &Claim) -> Option<String> {
    if claim.is_verified() {
        return None;
    }
    let reason = claim.reason.as_deref().unwrap_or("nothing backs it");
    Some(format!("{}: {} ({reason})", claim.claim_id, claim.statement.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::evidence::{
        CapturedBy, CommandSource, FileSpanSource, GitFile, GitSource, IssueTextSource, Span, Verification,
    };

    fn record(id: &str, provenance: Provenance) -> EvidenceRecord {
        EvidenceRecord {
            evidence_id: id.into(),
            kind: provenance.kind(),
            quote: "q".into(),
            quote_sha256: "h".into(),
            span: Span::lines(1, 1),
            provenance,
            captured_by: CapturedBy::ModelCited,
            captured_at: "2026-01-01T00:00:00.000Z".into(),
            tree: "final".into(),
            stale: false,
            opaque: false,
            verification: Verification {
                state: VerificationState::Ok,
                method: "reread".into(),
                checked_at: "2026-01-01T00:00:00.000Z".into(),
                reason: None,
            },
        }
    }

    fn span(id: &str) -> EvidenceRecord {
        let file = FileSpanSource {
            repo: "o/n".into(),
            commit: "c".into(),
            tree: "final".into(),
            path: "src/x.rs".into(),
            blob_sha: "b".into(),
            lines_total: 9,
        };
        record(id, Provenance::FileSpan(file))
    }

    fn command(id: &str, exit_code: Option<i32>, tree_after: &str) -> EvidenceRecord {
        let run = CommandSource {
            argv: vec!["cargo".into(), "test".into()],
            cwd: ".".into(),
            env_names: vec![],
            exit_code,
            signal: exit_code.is_none().then(|| "timeout".into()),
            started_at: "t".into(),
            duration_ms: 1,
            stdout_sha256: "s".into(),
            stderr_sha256: "s".into(),
            stdout_bytes: 1,
            output_handle: "verify/1.txt".into(),
            tree_before: "final".into(),
            tree_after: tree_after.into(),
            sandbox: "none".into(),
            changed_by_run: Vec::new(),
        };
        record(id, Provenance::Command(run))
    }

    fn change(id: &str) -> EvidenceRecord {
        let git = GitSource {
            commit: "h".into(),
            parent: "b".into(),
            tree: "final".into(),
            patch_sha256: "p".into(),
            files: vec![GitFile { path: "a".into(), added: 1, removed: 0 }],
        };
        record(id, Provenance::Git(git))
    }

    fn claim(statement: &str, kind: ClaimKind, cites: Vec<Result<EvidenceRecord, String>>) -> CitedClaim {
        let claim = ProposedClaim {
            statement: statement.into(),
            kind,
            status: ProposedStatus::Verified,
            cites: vec![],
        };
        CitedClaim { claim, step_id: "s".into(), visit: 1, cites }
    }

    fn case(claims: Vec<CitedClaim>) -> Case {
        Case { claims, head_tree: "final".into(), ..Case::default() }
    }

    fn one(kind: ClaimKind, cites: Vec<Result<EvidenceRecord, String>>) -> Judgement {
        judge(case(vec![claim("x", kind, cites)]))
    }

    #[test]
    fn x_008_a_claim_needs_evidence_that_fits_its_kind() {
        let stale = EvidenceRecord { stale: true, ..span("e") };
        let opaque = EvidenceRecord { opaque: true, ..span("e") };
        let issue = IssueTextSource {
            url: String::new(),
            node_id: String::new(),
            updated_at: String::new(),
            body_sha256: "b".into(),
        };
        let said = record("e", Provenance::IssueText(issue));
        let table = [
            (ClaimKind::DefectLocation, vec![Ok(span("e"))], true),
            (ClaimKind::DefectLocation, vec![Ok(command("e", Some(1), "final"))], true),
            (ClaimKind::DefectLocation, vec![Ok(change("e"))], false),
            (ClaimKind::BehaviorObserved, vec![Ok(stale.clone())], false),
            (ClaimKind::BehaviorObserved, vec![Ok(stale), Ok(span("f"))], true),
            (ClaimKind::BehaviorObserved, vec![Ok(opaque)], false),
            (ClaimKind::Other, vec![Ok(said)], false),
            (ClaimKind::Other, vec![], false),
            (ClaimKind::Other, vec![Err("src/gone.rs does not exist".into())], false),
            (ClaimKind::Other, vec![Ok(span("e")), Err("line 9 does not exist".into())], false),
            (ClaimKind::RequirementMet, vec![Ok(change("e"))], true),
        ];
        for (kind, cites, verified) in table {
            let judged = one(kind, cites.clone());
            assert_eq!(judged.claims[0].is_verified(), verified, "{kind:?} {cites:?}");
            assert_eq!(judged.limitations.is_empty(), verified, "X-010: {:?}", judged.limitations);
            let outcome = if verified { GateOutcome::Pass } else { GateOutcome::ClaimsRejected };
            assert_eq!(judged.outcome, outcome);
        }
    }

    #[test]
    fn x_008_tests_pass_only_where_agentd_ran_all_commands_green_on_the_final_tree() {
        let with = |verification: Vec<EvidenceRecord>, configured: usize| {
            let mut case =
                case(vec![claim("green", ClaimKind::TestsPass, vec![Ok(command("m", Some(0), "final"))])]);
            (case.verification, case.verify_commands) = (verification, configured);
            judge(case).claims[0].clone()
        };
        assert_eq!(with(vec![command("v", Some(0), "final")], 1).evidence_ids, ["v"]);
        for (verification, configured, words) in [
            (vec![], 0, "no verify commands"),
            (vec![], 1, "not all run"),
            (vec![command("v", Some(0), "final")], 2, "not all run"),
            (vec![command("v", Some(3), "final")], 1, "exit code 3"),
            (vec![command("v", None, "final")], 1, "timeout"),
            (vec![command("v", Some(0), "other")], 1, "final tree"),
        ] {
            let judged = with(verification, configured);
            assert!(judged.reason.as_deref().unwrap_or_default().contains(words), "{judged:?}");
        }
    }

    #[test]
    fn a_claim_that_says_nothing_is_not_verified() {
        for (statement, verified) in [("", false), (" \u{200b}\n", false), ("—", false), ("it works", true)]
        {
            let said = claim(statement, ClaimKind::Other, vec![Ok(span("e"))]);
            assert_eq!(judge(case(vec![said])).claims[0].is_verified(), verified, "{statement:?}");
        }
    }

    #[test]
    fn a_change_is_no_proof_of_one_in_another_file() {
        let cites = |cites| {
            let mut case = case(vec![claim("I changed it.", ClaimKind::ChangeMade, cites)]);
            case.change = Some(change("g"));
            judge(case).claims[0].clone()
        };
        let of = |path: &str| {
            let mut record = span("e");
            if let Provenance::FileSpan(file) = &mut record.provenance {
                file.path = path.into();
            }
            Ok(record)
        };
        assert!(cites(vec![]).is_verified() && cites(vec![of("a")]).is_verified());
        assert!(cites(vec![of("src/x.rs"), of("a")]).is_verified(), "what is beside it may be named as well");
        let judged = cites(vec![of("src/x.rs")]);
        assert!(!judged.is_verified() && judged.reason.unwrap().contains("none of the files"));
    }

    #[test]
    fn x_013_what_agentd_knows_itself_is_claimed_without_a_model() {
        let mut known = case(vec![]);
        known.change = Some(change("g"));
        (known.verification, known.verify_commands) = (vec![command("v", Some(0), "final")], 1);
        known.requires = vec![ClaimKind::ChangeMade, ClaimKind::TestsPass];
        let judged = judge(known);
        let ids: Vec<&str> = judged.claims.iter().map(|claim| claim.claim_id.as_str()).collect();
        assert_eq!((ids.as_slice(), judged.outcome), (["c0.1", "c0.2"].as_slice(), GateOutcome::Pass));
        assert_eq!(judged.claims[0].statement, "1 file changed.");
    }

    #[test]
    fn x_015_the_outcome_follows_the_contract() {
        let nothing = judge(case(vec![]));
        assert_eq!(nothing.outcome, GateOutcome::Pass, "C-05: a report without claims passes");
        let mut needs = case(vec![]);
        needs.requires = vec![ClaimKind::TestsPass];
        let judged = judge(needs);
        assert_eq!(judged.outcome, GateOutcome::RequiredClaimMissing);
        let stop = judged.stop_after(Stop::new(StopDetail::Completed, "x"));
        assert_eq!(
            (stop.detail, stop.message.as_str()),
            (StopDetail::RequiredClaimMissing, "Required and not verified: tests_pass.")
        );
        let failed = Stop::new(StopDetail::MaxSteps, "x");
        assert_eq!(judged.stop_after(failed.clone()), failed, "a failure keeps its own reason");
        let required = judge(Case { evidence_required: true, ..case(vec![]) });
        assert_eq!(required.outcome, GateOutcome::RequiredClaimMissing);
        for outcome in [ReportOutcome::InsufficientEvidence, ReportOutcome::NotAchieved] {
            let abstained = judge(Case { outcome: Some(outcome), ..case(vec![]) });
            assert_eq!(
                abstained.stop_after(Stop::new(StopDetail::Completed, "x")).detail,
                StopDetail::ModelAbstained
            );
        }
        let partly = judge(case(vec![
            claim("a", ClaimKind::Other, vec![]),
            claim("b", ClaimKind::Other, vec![Ok(span("e"))]),
        ]));
        assert_eq!((partly.outcome, partly.limitations.len()), (GateOutcome::Pass, 1));
    }

    #[test]
    fn x_028_claims_that_contradict_each_other_both_fall() {
        let judged = judge(case(vec![
            claim("The parser crashes on empty input.", ClaimKind::Other, vec![Ok(span("a"))]),
            claim(
                "The parser doesn't crash on empty input",
                ClaimKind::BehaviorObserved,
                vec![Ok(span("b"))],
            ),
            claim("The lexer crashes on empty input.", ClaimKind::Other, vec![Ok(span("c"))]),
        ]));
        assert_eq!(judged.conflicts.len(), 1);
        assert_eq!(
            (&judged.conflicts[0].side_a[..], &judged.conflicts[0].side_b[..]),
            (&["a".to_owned()][..], &["b".to_owned()][..])
        );
        let status: Vec<bool> = judged.claims.iter().map(Claim::is_verified).collect();
        assert_eq!(status, [false, false, true]);
        let one_sided = judge(case(vec![
            claim("It works.", ClaimKind::Other, vec![Ok(span("a"))]),
            claim("It does not work.", ClaimKind::Other, vec![]),
        ]));
        assert!(one_sided.conflicts.is_empty() && one_sided.claims[0].is_verified());
    }

    #[test]
    fn x_029_a_later_report_replaces_or_takes_back_but_never_promotes() {
        let mut second = claim("X is  broken.", ClaimKind::Other, vec![]);
        second.visit = 2;
        let judged =
            judge(case(vec![claim("x is broken", ClaimKind::Other, vec![Ok(span("e"))]), second.clone()]));
        assert_eq!(judged.claims.len(), 1);
        assert_eq!((judged.claims[0].claim_id.as_str(), judged.claims[0].is_verified()), ("c2.1", false));
        second.claim.status = ProposedStatus::Retracted;
        second.cites = vec![Ok(span("e"))];
        let judged = judge(case(vec![second]));
        assert_eq!(judged.claims[0].status, ClaimStatus::Retracted);
        assert_eq!(judged.outcome, GateOutcome::Pass, "what is taken back was not rejected");
    }
}
