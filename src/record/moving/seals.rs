//! The index of seals and the keys that signed them: each host's chain goes as a whole, and comes back as a whole.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;

use super::super::journals::{self, joined};
use super::super::seal_check;
use crate::domain::canonical::sha256_hex;
use crate::domain::seal::SignedSeal;
use crate::store::journal_format::GENESIS;
use crate::store::nats::NatsStore;
use crate::store::port::StoreError;
use crate::store::run_dir::StateDir;
use crate::store::seal_index::SealIndex;
use crate::store::seal_key;

/// What became of seals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SealsMoved {
    /// Lines of the index that are there now.
    pub lines: usize,
    /// What did not move, and why.
    pub problems: Vec<String>,
}

/// Brings the public keys that sign in a state directory into a store, before the runs that they signed: nobody reads a run
/// there whose key does not count. Gives what is wrong with them. Blocks.
///
/// `operator`: the operator's key, if there is one.
///
/// # Errors
/// The store failed.
pub fn put_keys(
    from: &StateDir,
    to: &NatsStore,
    operator: Option<&Path>,
    dry_run: bool,
) -> Result<Option<String>, StoreError> {
    let known = seal_check::known_keys(from.path(), operator);
    if let Some((path, why)) = known.unreadable {
        return Ok(Some(format!("{}: {why}", path.display())));
    }
    if !dry_run {
        seal_key::count(to, known.keys.iter().map(|key| key.public_key().to_owned()))?;
    }
    Ok(None)
}

/// Brings the index of a state directory into a store. Blocks.
///
/// # Errors
/// Store or disk failed.
pub fn put_seals(from: &StateDir, to: &NatsStore, dry_run: bool) -> Result<SealsMoved, StoreError> {
    let index = SealIndex::new(from.path());
    let mut moved = SealsMoved { lines: 0, problems: index.read().problems };
    if !moved.problems.is_empty() {
        return Ok(moved);
    }
    for chain in chains(&index.lines()?) {
        let own = chain.concat();
        let log = to.seal_chain(&sha256_hex(chain[0].trim_ascii_end())[..16]);
        let (there, end) = log.read(0)?;
        match joined(&own, &there) {
            Ok(rest) if !rest.is_empty() && !dry_run => journals::append(&*log, end, rest)?,
            Ok(_) => {}
            Err(_) => {
                moved.problems.push("the store has another end of the same index".to_owned());
                continue;
            }
        }
        moved.lines += chain.len();
    }
    Ok(moved)
}

/// Writes the index of a state directory from the chains of a store and the seals of the journals that came from it, with the
/// public keys that sign them. What the index has already stays in front. Blocks.
///
/// # Errors
/// Store or disk failed.
pub fn gather_seals(
    from: &NatsStore,
    to: &StateDir,
    journals: &[SignedSeal],
) -> Result<SealsMoved, StoreError> {
    let index = SealIndex::new(to.path());
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let mut all = index.lines()?;
    for chain in from.seal_chains()? {
        all.extend(chain.read(0)?.0);
    }
    for seal in journals {
        all.extend(serde_json::to_vec(seal).unwrap_or_default());
        all.push(b'\n');
    }
    let mut known = BTreeSet::new();
    for line in all.split_inclusive(|byte| *byte == b'\n') {
        if known.insert(line) {
            lines.push(line.to_vec());
        }
    }
    let written = chained(lines);
    index.write(&written)?;
    seal_key::count(&**to.store(), seal_key::that_count(from)?.keys)?;
    let problems = index.read().problems;
    Ok(SealsMoved { lines: written.iter().filter(|byte| **byte == b'\n').count(), problems })
}

fn previous(line: &[u8]) -> Option<String> {
    serde_json::from_slice::<SignedSeal>(line).ok().map(|seal| seal.statement.previous)
}

/// The chains of an index: each begins with a line that follows none.
fn chains(index: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut chains: Vec<Vec<&[u8]>> = Vec::new();
    for line in index.split_inclusive(|byte| *byte == b'\n') {
        match chains.last_mut() {
            Some(chain) if previous(line).as_deref() != Some(GENESIS) => chain.push(line),
            _ => chains.push(vec![line]),
        }
    }
    chains
}

/// Lines in the order of their chains, one chain behind the other. What follows nothing that is there comes last.
fn chained(lines: Vec<Vec<u8>>) -> Vec<u8> {
    let (mut heads, mut rest): (VecDeque<Vec<u8>>, Vec<Vec<u8>>) = (VecDeque::new(), Vec::new());
    for line in lines {
        match previous(&line).as_deref() {
            Some(GENESIS) => heads.push_back(line),
            _ => rest.push(line),
        }
    }
    let mut written = Vec::new();
    loop {
        let Some(mut line) = heads.pop_front() else {
            if rest.is_empty() {
                return written;
            }
            heads.push_back(rest.remove(0));
            continue;
        };
        loop {
            written.extend_from_slice(&line);
            let hash = sha256_hex(line.trim_ascii_end());
            let Some(next) = rest.iter().position(|next| previous(next).as_deref() == Some(hash.as_str()))
            else {
                break;
            };
            line = rest.remove(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::name::RepoName;
    use crate::domain::run::RunId;
    use crate::domain::seal::{SEAL_SCHEMA, SealStatement};

    fn line(run: u128, previous: &str) -> Vec<u8> {
        let statement = SealStatement {
            schema_version: SEAL_SCHEMA.to_owned(),
            repo: RepoName::parse("o/n").unwrap(),
            run_id: RunId(Uuid::from_u128(run)),
            last_seq: 1,
            last_hash: String::new(),
            files_sha256: String::new(),
            previous: previous.to_owned(),
            sealed_at: 1,
        };
        let seal = SignedSeal {
            statement,
            key_id: String::new(),
            public_key: String::new(),
            signature: String::new(),
        };
        [serde_json::to_vec(&seal).unwrap(), b"\n".to_vec()].concat()
    }

    fn hash(line: &[u8]) -> String {
        sha256_hex(line.trim_ascii_end())
    }

    #[test]
    fn chains_come_one_behind_the_other_in_whatever_order_their_lines_are_found() {
        let a1 = line(1, GENESIS);
        let a2 = line(2, &hash(&a1));
        let a3 = line(3, &hash(&a2));
        let b1 = line(4, GENESIS);
        let b2 = line(5, &hash(&b1));
        let lost = line(6, "of a line that is gone");
        let index = chained(vec![a3.clone(), lost.clone(), a1.clone(), b1.clone(), b2.clone(), a2.clone()]);
        assert_eq!(index, [&a1, &a2, &a3, &b1, &b2, &lost].map(|line| line.as_slice()).concat());
        let lengths: Vec<usize> = chains(&index).iter().map(Vec::len).collect();
        assert_eq!(lengths, [3, 3], "what follows nothing is found by whoever checks the chain");
    }
}
