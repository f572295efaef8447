//! `runs verify`: whether the files of a run are unchanged. It reads everything and changes nothing.

use std::path::{Path, PathBuf};

use super::evidence;
use super::run_facts::lines_missing;
use super::seal::{self, JOURNAL};
use super::seal_check::{self, KnownKeys};
use crate::domain::artifact::Artifact;
use crate::domain::facts::RunFacts;
use crate::domain::ledger_entry::AccountingEntry;
use crate::domain::name::CommitId;
use crate::domain::run_output::{OutputTotals, RunOutput};
use crate::domain::run_record::RunRecord;
use crate::domain::seal::{Proof, SealKeys};
use crate::git::Checkout;
use crate::store::journal_file;
use crate::store::journal_format::JournalLine;
use crate::store::run_dir::RunDir;

/// Kind of the seal's event, and of the only one that may follow it.
const SEAL: &str = "files_sealed";
const EMITTED: &str = "record_emitted";

/// Something that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditFinding {
    /// The file it was found in, relative to the run directory; of keys the whole path.
    pub file: String,
    /// What is wrong.
    pub problem: String,
}

/// What was looked at, and what was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Lines of the journal.
    pub events: usize,
    /// Other files.
    pub files: usize,
    /// Verified claims whose evidence was looked at again.
    pub claims: usize,
    /// Why none was, where the run is another node's and its repository is not here.
    pub not_looked_at: Option<String>,
    /// What is proven by what.
    pub proof: Proof,
    /// Empty = everything holds.
    pub findings: Vec<AuditFinding>,
}

impl Inspection {
    fn found(&mut self, file: &str, problem: impl Into<String>) {
        self.findings.push(AuditFinding { file: file.to_owned(), problem: problem.into() });
    }
}

/// Inspects a run that has ended. `checkout`: the repository, or why it cannot be read. `seal_key`: the operator's key,
/// if one is named. `shared`: the keys that count in the cluster's store.
pub async fn verify(
    dir: &RunDir,
    checkout: Result<&Checkout, String>,
    (seal_key, shared): (Option<PathBuf>, SealKeys),
) -> Inspection {
    let place = dir.clone();
    let looked = tokio::task::spawn_blocking(move || of_files(&place, seal_key.as_deref(), shared)).await;
    let (mut inspection, output) = match looked {
        Ok(looked) => looked,
        Err(panic) => {
            let mut broken = Inspection::default();
            broken.found(JOURNAL, format!("cannot be inspected: {panic}"));
            return broken;
        }
    };
    if let Some(output) = output {
        of_claims(&mut inspection, &output, dir, checkout).await;
    }
    inspection
}

/// The same without the evidence, which needs the repository. Blocks.
pub fn verify_files(dir: &RunDir, seal_key: Option<&Path>) -> Inspection {
    of_files(dir, seal_key, SealKeys::default()).0
}

/// Chain, seal, totals, and the shape of result and record.
fn of_files(dir: &RunDir, seal_key: Option<&Path>, shared: SealKeys) -> (Inspection, Option<RunOutput>) {
    let mut inspection = Inspection::default();
    let lines = chain(&mut inspection, dir);
    let facts = lines.as_deref().map(journal_file::facts_of);
    let known = seal_check::known_keys(dir.state().path(), seal_key).and(shared);
    signed(&mut inspection, dir, lines.as_deref(), &known);
    match seal::files(&dir.path) {
        Ok(files) => {
            inspection.files = files.len();
            if let Some(facts) = &facts {
                sealed(&mut inspection, facts, &files);
            }
        }
        Err(error) => inspection.found("", error.to_string()),
    }
    let output: Option<RunOutput> = read(&mut inspection, &dir.result(), "result.json");
    if let Some(output) = &output {
        for broken in output.check() {
            inspection.found("result.json", format!("breaks a rule: {broken}"));
        }
        totals(&mut inspection, output, dir);
        let artifacts = &output.artifacts;
        let known = [&artifacts.report_md, &artifacts.accounting, &artifacts.evidence];
        for artifact in known.into_iter().flatten() {
            named(&mut inspection, dir, artifact);
        }
    }
    // The record is a best effort (C-10). A missing one is not a finding; the seal says whether it was written.
    if dir.record().exists()
        && let Some(record) = read::<RunRecord>(&mut inspection, &dir.record(), "run.json")
    {
        for broken in record.check() {
            inspection.found("run.json", format!("breaks a rule: {broken}"));
        }
    }
    inspection.findings.dedup();
    (inspection, output)
}

/// The signature over journal and files, and the index of seals.
fn signed(inspection: &mut Inspection, dir: &RunDir, lines: Option<&[JournalLine]>, known: &KnownKeys) {
    let (proof, found) = seal_check::check(dir, lines, known);
    for (file, problem) in found {
        inspection.found(&file, problem);
    }
    inspection.proof = proof;
}

fn chain(inspection: &mut Inspection, dir: &RunDir) -> Option<Vec<JournalLine>> {
    let read = match journal_file::read(dir) {
        Ok(read) => read,
        Err(error) => {
            inspection.found(JOURNAL, error.message);
            return None;
        }
    };
    inspection.events = read.lines.len();
    let size = std::fs::metadata(dir.events()).map_or(0, |found| found.len());
    if size != read.sound_bytes {
        inspection.found(JOURNAL, "the last line is torn");
    }
    if let Some(line) = read.lines.iter().find(|line| line.run_id != dir.run_id) {
        inspection.found(JOURNAL, format!("line {} is of another run: {}", line.seq, line.run_id));
    }
    let facts = journal_file::facts_of(&read.lines);
    if let Some(missing) = lines_missing(dir, read.lines.len() as u64) {
        inspection.found(JOURNAL, missing);
    }
    if facts.sealed.is_none() {
        inspection.found(JOURNAL, "its last event, the seal over the other files, is missing");
    }
    let behind = read.lines.iter().skip_while(|line| line.kind != SEAL).skip(1);
    for line in behind.filter(|line| line.kind != EMITTED) {
        inspection.found(JOURNAL, format!("line {} stands behind the seal: {}", line.seq, line.kind));
    }
    Some(read.lines)
}

fn sealed(inspection: &mut Inspection, facts: &RunFacts, files: &[Artifact]) {
    let Some(sealed) = &facts.sealed else { return };
    for was in sealed {
        match files.iter().find(|file| file.path == was.path) {
            None => inspection.found(&was.path, "is gone"),
            Some(is) if is == was => inspection.proof.files += 1,
            Some(is) if is.bytes != was.bytes => {
                inspection.found(&was.path, format!("has {} bytes and had {}", is.bytes, was.bytes));
            }
            Some(_) => inspection.found(&was.path, "was changed: its hash is not the one that was sealed"),
        }
    }
    for file in files.iter().filter(|file| !sealed.iter().any(|was| was.path == file.path)) {
        inspection.found(&file.path, "was not left by the run");
    }
}

fn named(inspection: &mut Inspection, dir: &RunDir, artifact: &Artifact) {
    let bytes = std::fs::read(dir.path.join(&artifact.path)).unwrap_or_default();
    if crate::domain::canonical::sha256_hex(&bytes) != artifact.sha256 {
        inspection.found(&artifact.path, "is not the file that result.json names");
    }
}

fn totals(inspection: &mut Inspection, output: &RunOutput, dir: &RunDir) {
    let text = std::fs::read_to_string(dir.accounting()).unwrap_or_default();
    let mut facts = RunFacts::default();
    for (index, line) in text.lines().enumerate() {
        match serde_json::from_str::<AccountingEntry>(line) {
            Ok(entry) => facts.ledger.push(entry),
            Err(error) => {
                let problem = format!("line {} is not a ledger line: {error}", index + 1);
                inspection.found("accounting.jsonl", problem);
            }
        }
    }
    if OutputTotals::new(&facts.totals(), output.totals.denied) != output.totals {
        inspection.found("accounting.jsonl", "its sums are not the totals of result.json");
    }
}

fn read<T: serde::de::DeserializeOwned>(inspection: &mut Inspection, path: &Path, name: &str) -> Option<T> {
    let read = std::fs::read(path).map_err(|error| error.to_string());
    match read.and_then(|bytes| serde_json::from_slice(&bytes).map_err(|error| error.to_string())) {
        Ok(value) => Some(value),
        Err(problem) => {
            inspection.found(name, format!("cannot be read: {problem}"));
            None
        }
    }
}

/// Every verified claim's evidence, looked at again at the commit it names.
async fn of_claims(
    inspection: &mut Inspection,
    output: &RunOutput,
    dir: &RunDir,
    checkout: Result<&Checkout, String>,
) {
    let verified = || output.claims.iter().filter(|claim| claim.is_verified());
    inspection.claims = verified().count();
    if inspection.claims == 0 {
        return;
    }
    let checkout = match checkout {
        Ok(checkout) => checkout,
        // A run of another node: its repository may be on that node alone.
        Err(problem) if dir.state().only_reads() => {
            inspection.claims = 0;
            inspection.not_looked_at = Some(problem);
            return;
        }
        Err(problem) => {
            inspection.found("evidence.jsonl", format!("cannot be looked at again: {problem}"));
            return;
        }
    };
    if let Some(head) = output.artifacts.head_commit.as_deref().and_then(|head| CommitId::parse(head).ok()) {
        match checkout.tree_of_commit(&head).await {
            Ok(tree) if Some(&tree) == output.artifacts.head_tree.as_ref() => {}
            Ok(_) => inspection.found("result.json", format!("commit {head} has another tree than recorded")),
            Err(error) => inspection.found("result.json", format!("commit {head} is gone: {error}")),
        }
    }
    for claim in verified() {
        for id in &claim.evidence_ids {
            let Some(record) = output.evidence.iter().find(|record| record.evidence_id == *id) else {
                inspection
                    .found("result.json", format!("claim {} names {id}, which is not there", claim.claim_id));
                continue;
            };
            if let Err(problem) = evidence::recheck(record, checkout, &dir.path).await {
                inspection.found("evidence.jsonl", format!("{id} of claim {}: {problem}", claim.claim_id));
            }
        }
    }
}
