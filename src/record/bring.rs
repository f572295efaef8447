//! A run of a cluster as a directory: its journal, and every file that it names, each checked by its hash before anybody sees it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::journals::{self, Two, joined};
use super::seal;
use super::seal_check;
use crate::domain::artifact::Artifact;
use crate::domain::canonical::sha256_hex;
use crate::domain::facts::RunFacts;
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::store::journal_file;
use crate::store::journal_format::{JournalLine, is_inside, named_in};
use crate::store::port::StoreError;
use crate::store::run_dir::{RunDir, StateDir};
use crate::store::seal_key;
use crate::sys::clock::Stopwatch;
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
    // What is past its time goes from the front.
    if bytes.is_empty() || journal_file::is_a_tail(&bytes) {
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
    // A log that is opened is there, and a directory with an empty journal would be taken for a run without lines.
    let here = if dir.events().exists() { to.store().log(&dir)?.read(0)?.0 } else { Vec::new() };
    missing_here(&bytes, &here)?;
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
        // One that died at its very beginning names no file.
        files::create_private_dir(&dir.path)?;
        files::write_private(&dir.accounting(), &journal_file::ledger_of(&read.lines))?;
    }
    target.sync()?;
    if let Some(sealed) = sealed.filter(|_| to.only_reads()) {
        only_sealed(&dir, sealed)?;
    }
    // What a line names is there before the line is.
    let log = to.store().log(&dir)?;
    let (here, end) = log.read(0)?;
    journals::append(&*log, end, missing_here(&bytes, &here)?)?;
    log.sync()?;
    Ok(Brought { dir, facts, missing })
}

/// Removes from a copy what the run did not leave. A look at it while it worked brought what its lines name, and of a run before it
/// they name files that are not its own.
fn only_sealed(dir: &RunDir, sealed: &[Artifact]) -> Result<(), NotBrought> {
    if !dir.path.exists() {
        return Ok(());
    }
    let found = seal::files(&dir.path).map_err(|error| NotBrought::Broken(error.to_string()))?;
    for file in found.iter().filter(|file| !sealed.iter().any(|of| of.path == file.path)) {
        files::remove_file(&dir.path.join(&file.path))?;
    }
    Ok(())
}

/// What of a journal is not here yet.
fn missing_here<'a>(there: &'a [u8], here: &'a [u8]) -> Result<&'a [u8], NotBrought> {
    joined(there, here).map_err(|Two { first, second }| NotBrought::TwoChains { here: second, there: first })
}

/// How long a store that does not answer is asked again.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(500);

/// Sees to it that this node has a run, and the runs that it goes on with, as the store has them: for whoever has the lease of
/// its issue. Lines that were written here when another node had the run already are kept beside it. Blocks. Without a cluster there is
/// nothing to bring.
///
/// # Errors
/// A run is broken, or store or disk failed.
pub fn to_node(state: &StateDir, repo: &RepoName, run_id: RunId) -> Result<(), NotBrought> {
    let Some(shared) = state.shared() else { return Ok(()) };
    let files = StateDir::new(state.path().to_owned());
    let mut next = Some(run_id);
    while let Some(run_id) = next {
        next = match answered(|| bring_over(&shared, repo, run_id, &files)) {
            Ok(facts) => facts.lease.and_then(|lease| lease.previous_run),
            // Nothing of it was published, or it is past its time.
            Err(NotBrought::NotThere) => None,
            Err(error) => return Err(error),
        };
    }
    Ok(())
}

fn answered<T>(mut ask: impl FnMut() -> Result<T, NotBrought>) -> Result<T, NotBrought> {
    let begin = Stopwatch::start();
    loop {
        match ask() {
            Err(NotBrought::Store(_)) if begin.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
}

fn bring_over(
    from: &StateDir,
    repo: &RepoName,
    run_id: RunId,
    to: &StateDir,
) -> Result<RunFacts, NotBrought> {
    // Its seal counts here as in the store, also without the store.
    seal_key::count(&**to.store(), seal_key::that_count(&**from.store())?.keys)?;
    match bring(from, repo, run_id, to) {
        Err(NotBrought::TwoChains { .. }) => {
            set_aside(&from.run(repo, run_id), &to.run(repo, run_id))?;
            bring(from, repo, run_id, to).map(|brought| brought.facts)
        }
        brought => brought.map(|brought| brought.facts),
    }
}

/// Moves the lines that only this node has out of its journal, with what was made of them.
fn set_aside(there: &RunDir, here: &RunDir) -> Result<(), NotBrought> {
    let (shared, _) = there.store().log(there)?.read(0)?;
    let (own, _) = here.store().log(here)?.read(0)?;
    let lines =
        |bytes: &[u8]| bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let same =
        lines(&shared).iter().zip(&lines(&own)).take_while(|(a, b)| a == b).map(|(a, _)| a.len()).sum();
    let (kept, beyond): (&[u8], &[u8]) = own.split_at(same);
    let mut aside = std::fs::read(here.overtaken()).unwrap_or_default();
    if !aside.ends_with(beyond) {
        aside.extend_from_slice(beyond);
        files::write_private(&here.overtaken(), &aside)?;
    }
    for made in [here.result(), here.record(), here.report()] {
        files::remove_file(&made)?;
    }
    Ok(files::write_private(&here.events(), kept)?)
}

/// The files that a journal names, the last one of each path.
fn named(lines: &[JournalLine]) -> Vec<Artifact> {
    let mut found = BTreeMap::new();
    for line in lines {
        named_in(&line.data, &mut |file| drop(found.insert(file.path.clone(), file)));
    }
    found.into_values().collect()
}
