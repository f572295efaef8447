//! A run of a cluster as a directory: its journal, and every file that it names, each checked by its hash before anybody sees it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::seal_check;
use super::journals::{self, Two, joined};
use crate::domain::artifact::Artifact;
use crate::domain::canonical::sha256_hex;
use crate::domain::facts::RunFacts;
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::store::journal_file;
use crate::store::journal_format::JournalLine;
use crate::store::port::StoreError;
use crate::store::run_dir::{RunDir, StateDir};
use crate::store::seal_key;
use crate::sys::files::{self, FileError};

/// A run that is a directory now.
#[derive(Debug)]
pub struct Brought {
    /// Where.
    pub dir: RunDir,
    /// What its journal says.
    pub facts: RunFacts,
    /// Files that a run without an end names and the store does not have yet, or any more.
    pub missing: Vec<String>,
}

/// Why a run is not brought.
#[derive(Debug, thiserror::Error)]
pub enum NotBrought {
    /// The store has no line of it.
    #[error("the store has no journal of it")]
    NotThere,
    /// The store did not answer, or the disk failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It is not what its node wrote.
    #[error("{0}")]
    Broken(String),
    /// Another journal of the same run is here.
    #[error("it has two chains: in the store it ends with {there}, and here with {here}")]
    TwoChains {
        /// Here.
        here: String,
        /// In the store.
        there: String,
    },
}

impl From<FileError> for NotBrought {
    fn from(error: FileError) -> Self {
        Self::Store(error.into())
    }
}

/// Brings a run of a store into a state directory of files. What is there already is gone on with. A run whose
/// chain, hashes or seal do not hold gets no journal here, and so is no run. Blocks.
///
/// # Errors
/// It is not there, it is broken, or store or disk failed.
pub fn bring(from: &StateDir, repo: &RepoName, run_id: RunId, to: &StateDir) -> Result<Brought, NotBrought> {
    let source = from.run(repo, run_id);
    let (bytes, _) = from.store().log(&source)?.read(0)?;
    if bytes.is_empty() {
        return Err(NotBrought::NotThere);
    }
    let read = journal_file::parse(&bytes).map_err(|error| NotBrought::Broken(error.to_string()))?;
    if let Some(line) = read.lines.iter().find(|line| line.run_id != run_id) {
        let problem = format!("line {} of its journal is of another run: {}", line.seq, line.run_id);
        return Err(NotBrought::Broken(problem));
    }
    let facts = journal_file::facts_of(&read.lines);
    // A subject has no capital letters; the journal has the name as GitHub writes it.
    let spelled = facts.lease.as_ref().map(|lease| &lease.issue.repo).filter(|spelled| *spelled == repo);
    let dir = to.run(spelled.unwrap_or(repo), run_id);
    let keys = seal_key::that_count(&**from.store())?;
    if let Some(problem) = seal_check::wrong_seal(&dir, &read.lines, keys) {
        return Err(NotBrought::Broken(problem));
    }
    let log = to.store().log(&dir)?;
    let (here, end) = log.read(0)?;
    let rest = match joined(&bytes, &here) {
        Ok(rest) => rest,
        Err(Two { first, second }) => return Err(NotBrought::TwoChains { here: second, there: first }),
    };
    let sealed = facts.sealed.as_ref();
    let named = sealed.map_or_else(|| named(&read.lines), Clone::clone);
    let (blobs, target) = (from.store().blobs(&source), to.store().blobs(&dir));
    let mut missing = Vec::new();
    for file in &named {
        let path = dir.path.join(&file.path);
        if !is_inside(&file.path) {
            return Err(NotBrought::Broken(format!(
                "it names a file outside of its directory: {}",
                file.path
            )));
        }
        if std::fs::read(&path).is_ok_and(|bytes| sha256_hex(&bytes) == file.sha256) {
            continue;
        }
        match blobs.get(file) {
            Ok(bytes) => drop(target.put(&file.path, &bytes)?),
            // A run that works names files before they are in the store.
            Err(_) if sealed.is_none() => missing.push(file.path.clone()),
            Err(error) => return Err(error.into()),
        }
    }
    if sealed.is_none() {
        files::write_private(&dir.accounting(), &journal_file::ledger_of(&read.lines))?;
    }
    target.sync()?;
    // What a line names is there before the line is.
    journals::append(&*log, end, rest)?;
    log.sync()?;
    Ok(Brought { dir, facts, missing })
}

/// Whether a path stays in the directory that it is relative to.
fn is_inside(path: &str) -> bool {
    use std::path::{Component, Path};
    !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

/// The files that a journal names, the last one of each path.
fn named(lines: &[JournalLine]) -> Vec<Artifact> {
    fn gather(value: &Value, into: &mut BTreeMap<String, Artifact>) {
        match value {
            Value::Object(members) => {
                if members.len() == 3
                    && let Ok(artifact) = serde_json::from_value::<Artifact>(value.clone())
                {
                    into.insert(artifact.path.clone(), artifact);
                }
                members.values().for_each(|member| gather(member, into));
            }
            Value::Array(items) => items.iter().for_each(|item| gather(item, into)),
            _ => {}
        }
    }
    let mut found = BTreeMap::new();
    lines.iter().for_each(|line| gather(&line.data, &mut found));
    found.into_values().collect()
}
