//! What the signed seal of a run and the index of seals prove about the run, and what they cannot prove.

use std::path::Path;

use crate::domain::artifact::Artifact;
use crate::domain::event::Event;
use crate::domain::run::RunId;
use crate::domain::seal::{Proof, SEAL_SCHEMA, SealKeys, SignatureState, SignedSeal, files_sha256};
use crate::store::journal_file;
use crate::store::journal_format::JournalLine;
use crate::store::run_dir::{RunDir, StateDir};
use crate::store::seal_index::{Entries, INDEX, SealIndex};
use crate::store::seal_key::{self, KeyOwner, SEAL_KEYS, SealKey};
use crate::sys::files;

use super::seal::JOURNAL;

/// Largest list of other hosts' keys.
const LARGEST_LIST: u64 = 1 << 20;

/// A public key whose seals count, and whose it is.
#[derive(Debug, Clone)]
pub struct KnownKey {
    owner: KeyOwner,
    public_key: String,
}

impl KnownKey {
    /// The key, hexadecimal.
    pub fn public_key(&self) -> &str {
        &self.public_key
    }
}

/// The keys whose seals count here: the operator's, if one is named, the host's, and those that came from the cluster.
pub fn known_keys(state: &Path, operator: Option<&Path>) -> Result<Vec<KnownKey>, String> {
    let mut known = Vec::new();
    if let Some(path) = operator {
        known.push(SealKey::operator(path).map_err(|error| error.to_string())?);
    }
    known.extend(SealKey::of_host(state).map_err(|error| error.to_string())?);
    let own = known.into_iter().map(|key| KnownKey { owner: key.owner, public_key: key.public_key() });
    let mut known: Vec<KnownKey> = own.collect();
    let path = state.join(SEAL_KEYS);
    let text = files::read_plain(&path, LARGEST_LIST);
    let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let others = SealKeys::read(text.as_deref()).map_err(|error| format!("{}: {error}", path.display()))?;
    known.extend(of_cluster(others));
    Ok(known)
}

fn of_cluster(keys: SealKeys) -> impl Iterator<Item = KnownKey> {
    keys.keys.into_iter().map(|public_key| KnownKey { owner: KeyOwner::Cluster, public_key })
}

/// Compares a run with its seal and with the index. `lines`: of its journal, where the chain holds. Gives what it proves,
/// and what does not hold: file and problem.
pub fn check(
    dir: &RunDir,
    lines: Option<&[JournalLine]>,
    known: &[KnownKey],
) -> (Proof, Vec<(&'static str, String)>) {
    let state = dir.state();
    let entries = SealIndex::new(state.path()).read();
    let mut proof =
        Proof { journal_chain: lines.is_some(), index_lines: entries.seals.len(), ..Proof::default() };
    let mut found: Vec<(&'static str, String)> = Vec::new();
    found.extend(entries.problems.iter().map(|problem| (INDEX, problem.clone())));
    found.extend(of_index(&entries, known).map(|problem| (INDEX, problem)));
    let of_run = |seal: &&SignedSeal| seal.statement.run_id == dir.run_id;
    proof.index_line = entries.seals.iter().position(|seal| of_run(&seal)).map(|place| place + 1);
    let entry = entries.seals.iter().find(of_run);
    match (lines.and_then(sealed), entry) {
        (Some((line, files, Some(seal))), entry) => {
            (proof.signature, proof.key) = judged(&mut found, dir, (line, &files, &seal), known);
            match entry {
                Some(entry) if *entry == *seal => {}
                Some(_) => found.push((JOURNAL, format!("its seal is not the one that {INDEX} has"))),
                // The index is with the node that sealed it.
                None if state.only_reads() => {}
                None => found.push((
                    INDEX,
                    "has no line for this run, which was signed: its end was cut off".to_owned(),
                )),
            }
            proof.key_id = Some(seal.key_id.clone());
        }
        (_, Some(entry)) => {
            proof.signature = SignatureState::Gone;
            proof.key_id = Some(entry.key_id.clone());
            let line = proof.index_line.unwrap_or_default();
            found.push((JOURNAL, format!("its signed seal is gone: line {line} of {INDEX} has it")));
        }
        // Run ids sort by time: this one began when seals were signed already.
        (_, None) if entries.seals.iter().any(|seal| seal.statement.run_id < dir.run_id) => {
            found.push((JOURNAL, format!("is not signed, and {INDEX} has runs that are older")));
        }
        (_, None) => {}
    }
    let (gone, cut_off) = match state.only_reads() {
        true => (Vec::new(), None),
        false => of_others(state, &entries, dir.run_id),
    };
    proof.runs_gone = gone;
    found.extend(cut_off.map(|problem| (INDEX, problem)));
    proof.index_whole = !found.iter().any(|(file, _)| *file == INDEX);
    (proof, found)
}

/// A run that the index has and whose directory is gone, by the start of its id.
pub fn gone(state: &StateDir, asked: &str) -> Option<(usize, SignedSeal)> {
    let seals = SealIndex::new(state.path()).read().seals;
    let mut matching = seals.into_iter().enumerate().filter(|(_, seal)| {
        let statement = &seal.statement;
        statement.run_id.to_string().starts_with(asked) && !is_there(state, seal)
    });
    let (place, seal) = matching.next()?;
    matching.next().is_none().then_some((place + 1, seal))
}

fn is_there(state: &StateDir, seal: &SignedSeal) -> bool {
    state.run(&seal.statement.repo, seal.statement.run_id).path.is_dir()
}

/// The seal of a journal: its line, its files, its signature.
type Seal<'l> = (&'l JournalLine, Vec<Artifact>, Option<Box<SignedSeal>>);

fn sealed(lines: &[JournalLine]) -> Option<Seal<'_>> {
    let line = lines.iter().rev().find(|line| line.kind == "files_sealed")?;
    match line.event()? {
        Event::FilesSealed { files, signature } => Some((line, files, signature)),
        _ => None,
    }
}

/// What is wrong with the signed seal of a run that came from elsewhere. `keys`: the public keys whose seals count there.
/// `None`: nothing, or it has no seal.
pub fn wrong_seal(dir: &RunDir, lines: &[JournalLine], keys: SealKeys) -> Option<String> {
    let (line, files, seal) = sealed(lines)?;
    let mut found = Vec::new();
    judged(&mut found, dir, (line, &files, &*seal?), &of_cluster(keys).collect::<Vec<_>>());
    found.into_iter().next().map(|(_, problem)| problem)
}

/// The signed seal of a journal.
pub fn seal_of(lines: &[JournalLine]) -> Option<SignedSeal> {
    sealed(lines)?.2.map(|seal| *seal)
}

fn judged(
    found: &mut Vec<(&'static str, String)>,
    dir: &RunDir,
    (line, files, seal): (&JournalLine, &[Artifact], &SignedSeal),
    known: &[KnownKey],
) -> (SignatureState, Option<&'static str>) {
    let statement = &seal.statement;
    if !seal_key::is_signed(seal) || statement.schema_version != SEAL_SCHEMA {
        found.push((JOURNAL, "the signature of its seal is wrong".to_owned()));
        return (SignatureState::Invalid, None);
    }
    let same_run = statement.run_id == dir.run_id && statement.repo == dir.repo;
    let same_lines = statement.last_seq + 1 == line.seq && statement.last_hash == line.prev;
    let same_files = files_sha256(files).is_ok_and(|sha256| sha256 == statement.files_sha256);
    for (same, what) in [(same_run, "run"), (same_lines, "journal"), (same_files, "list of files")] {
        if !same {
            found.push((JOURNAL, format!("its signed seal is of another {what}")));
        }
    }
    if !(same_run && same_lines && same_files) {
        return (SignatureState::Invalid, None);
    }
    match known_key(known, seal) {
        Some(key) => (SignatureState::Valid, Some(key.owner.as_str())),
        None => {
            let problem = format!("its seal is signed by the key {}, which is not known here", seal.key_id);
            found.push((JOURNAL, problem));
            (SignatureState::UnknownKey, None)
        }
    }
}

/// The key that a seal names, where it is known here.
fn known_key<'k>(known: &'k [KnownKey], seal: &SignedSeal) -> Option<&'k KnownKey> {
    known.iter().find(|key| key.public_key == seal.public_key)
}

/// Lines of the index that nobody who is known signed.
fn of_index<'e>(entries: &'e Entries, known: &'e [KnownKey]) -> impl Iterator<Item = String> + 'e {
    entries.seals.iter().enumerate().filter_map(|(place, seal)| {
        let number = place + 1;
        if !seal_key::is_signed(seal) {
            return Some(format!("the signature of line {number} is wrong"));
        }
        let is_known = known_key(known, seal).is_some();
        (!is_known)
            .then(|| format!("line {number} is signed by the key {}, which is not known here", seal.key_id))
    })
}

/// Runs of the index that are gone, and what other runs show about an index that was cut off.
fn of_others(state: &StateDir, entries: &Entries, this: RunId) -> (Vec<RunId>, Option<String>) {
    let gone = entries.seals.iter().filter(|seal| !is_there(state, seal)).map(|seal| seal.statement.run_id);
    let runs = state.runs(None).unwrap_or_default();
    let cut_off = runs.iter().filter(|run| run.run_id != this).find_map(|run| {
        if entries.seals.iter().any(|seal| seal.statement.run_id == run.run_id) {
            return None;
        }
        let lines = journal_file::read(run).ok()?.lines;
        let (_, _, seal) = sealed(&lines)?;
        seal?;
        Some(format!("has no line for run {}, which was signed: its end was cut off", run.run_id))
    });
    (gone.collect(), cut_off)
}
