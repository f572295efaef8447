//! What the signed seal of a run and the index of seals prove about the run, and what they cannot prove.

use std::path::{Path, PathBuf};

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

/// The keys whose seals count here, as far as they can be read.
#[derive(Debug, Clone, Default)]
pub struct KnownKeys {
    /// Those that were read.
    pub keys: Vec<KnownKey>,
    /// A file of keys that cannot be read, and why. Whether a seal that no other key fits is by one of them, nobody can say.
    pub unreadable: Option<(PathBuf, String)>,
}

impl KnownKeys {
    /// With those of a cluster.
    #[must_use]
    pub fn and(mut self, shared: SealKeys) -> Self {
        self.keys.extend(of_cluster(shared));
        self
    }
}

/// The keys whose seals count here: the operator's, if one is named, the host's, and those that came from the cluster.
pub fn known_keys(state: &Path, operator: Option<&Path>) -> KnownKeys {
    let mut known = KnownKeys::default();
    for key in [operator.map(SealKey::operator), SealKey::of_host(state).transpose()].into_iter().flatten() {
        match key {
            Ok(key) => known.keys.push(KnownKey { owner: key.owner, public_key: key.public_key() }),
            Err(error) => known.unreadable = known.unreadable.or(Some((error.path, error.problem))),
        }
    }
    let path = state.join(SEAL_KEYS);
    let text = files::read_plain(&path, LARGEST_LIST);
    let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    match SealKeys::read(text.as_deref()) {
        Ok(others) => known.keys.extend(of_cluster(others)),
        Err(error) => known.unreadable = known.unreadable.or(Some((path, error.to_string()))),
    }
    known
}

fn of_cluster(keys: SealKeys) -> impl Iterator<Item = KnownKey> {
    keys.keys.into_iter().map(|public_key| KnownKey { owner: KeyOwner::Cluster, public_key })
}

/// Compares a run with its seal and with the index. `lines`: of its journal, where the chain holds. Gives what it proves,
/// and what does not hold: file and problem.
pub fn check(
    dir: &RunDir,
    lines: Option<&[JournalLine]>,
    known: &KnownKeys,
) -> (Proof, Vec<(String, String)>) {
    let state = dir.state();
    let entries = SealIndex::new(state.path()).read();
    let mut proof =
        Proof { journal_chain: lines.is_some(), index_lines: entries.seals.len(), ..Proof::default() };
    let mut found: Vec<(String, String)> = Vec::new();
    let of = |file: &str, problem: String| (file.to_owned(), problem);
    found.extend(entries.problems.iter().map(|problem| of(INDEX, problem.clone())));
    found.extend(of_index(&entries, known).map(|problem| of(INDEX, problem)));
    let of_run = |seal: &&SignedSeal| seal.statement.run_id == dir.run_id;
    proof.index_line = entries.seals.iter().position(|seal| of_run(&seal)).map(|place| place + 1);
    let entry = entries.seals.iter().find(of_run);
    match (lines.and_then(sealed), entry) {
        (Some((line, files, Some(seal))), entry) => {
            (proof.signature, proof.key) = judged(&mut found, dir, (line, &files, &seal), known);
            match entry {
                Some(entry) if *entry == *seal => {}
                Some(_) => found.push(of(JOURNAL, format!("its seal is not the one that {INDEX} has"))),
                // The index is with the node that sealed it.
                None if state.only_reads() => {}
                None => found.push(of(
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
            found.push(of(JOURNAL, format!("its signed seal is gone: line {line} of {INDEX} has it")));
        }
        // Run ids sort by time: this one began when seals were signed already.
        (_, None) if entries.seals.iter().any(|seal| seal.statement.run_id < dir.run_id) => {
            found.push(of(JOURNAL, format!("is not signed, and {INDEX} has runs that are older")));
        }
        (_, None) => {}
    }
    let (gone, cut_off) = match state.only_reads() {
        true => (Vec::new(), None),
        false => of_others(state, &entries, dir.run_id),
    };
    proof.runs_gone = gone;
    found.extend(cut_off.map(|problem| of(INDEX, problem)));
    proof.index_whole = !found.iter().any(|(file, _)| file == INDEX);
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
    let known = KnownKeys { keys: of_cluster(keys).collect(), unreadable: None };
    judged(&mut found, dir, (line, &files, &*seal?), &known);
    found.into_iter().next().map(|(_, problem)| problem)
}

/// The signed seal of a journal.
pub fn seal_of(lines: &[JournalLine]) -> Option<SignedSeal> {
    sealed(lines)?.2.map(|seal| *seal)
}

fn judged(
    found: &mut Vec<(String, String)>,
    dir: &RunDir,
    (line, files, seal): (&JournalLine, &[Artifact], &SignedSeal),
    known: &KnownKeys,
) -> (SignatureState, Option<&'static str>) {
    let statement = &seal.statement;
    if !seal_key::is_signed(seal) || statement.schema_version != SEAL_SCHEMA {
        found.push((JOURNAL.to_owned(), "the signature of its seal is wrong".to_owned()));
        return (SignatureState::Invalid, None);
    }
    let same_run = statement.run_id == dir.run_id && statement.repo == dir.repo;
    let same_lines = statement.last_seq + 1 == line.seq && statement.last_hash == line.prev;
    let same_files = files_sha256(files).is_ok_and(|sha256| sha256 == statement.files_sha256);
    for (same, what) in [(same_run, "run"), (same_lines, "journal"), (same_files, "list of files")] {
        if !same {
            found.push((JOURNAL.to_owned(), format!("its signed seal is of another {what}")));
        }
    }
    if !(same_run && same_lines && same_files) {
        return (SignatureState::Invalid, None);
    }
    match (known_key(known, seal), &known.unreadable) {
        (Some(key), _) => (SignatureState::Valid, Some(key.owner.as_str())),
        (None, Some((path, why))) => {
            let problem =
                format!("{why}; so whether the seal, by the key {}, counts here is not known", seal.key_id);
            found.push((path.display().to_string(), problem));
            (SignatureState::NotChecked, None)
        }
        (None, None) => {
            let problem = format!("its seal is signed by the key {}, which is not known here", seal.key_id);
            found.push((JOURNAL.to_owned(), problem));
            (SignatureState::UnknownKey, None)
        }
    }
}

/// The key that a seal names, where it is known here.
fn known_key<'k>(known: &'k KnownKeys, seal: &SignedSeal) -> Option<&'k KnownKey> {
    known.keys.iter().find(|key| key.public_key == seal.public_key)
}

/// Lines of the index that nobody who is known signed. Where a key cannot be read, that cannot be told.
fn of_index<'e>(entries: &'e Entries, known: &'e KnownKeys) -> impl Iterator<Item = String> + 'e {
    entries.seals.iter().enumerate().filter_map(|(place, seal)| {
        let number = place + 1;
        if !seal_key::is_signed(seal) {
            return Some(format!("the signature of line {number} is wrong"));
        }
        let is_known = known.unreadable.is_some() || known_key(known, seal).is_some();
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
