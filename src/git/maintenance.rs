//! What lets git find commits, objects and refs faster in a repository that grows with each fetch and run. No object is removed.

use std::fs;
use std::path::Path;

use super::checkout::Checkout;
use super::error::GitError;
use crate::sys::files;

/// Fewer packs are found fast enough.
const MANY_PACKS: usize = 2;
/// Locks of the two files that are written. Only agentd maintains its clones, so what is there was left by a git that was
/// killed.
const LOCKS: [&str; 3] =
    ["info/commit-graph.lock", "info/commit-graphs/commit-graph-chain.lock", "pack/multi-pack-index.lock"];

/// More of them are made into few.
const MOST_PACKS: usize = 50;
/// The first git that makes few packs of many without reading those that are large.
const MERGES_PACKS: &str = "2.33.0";
/// As many objects with a file each has git pack them on its own, where it may (`gc.auto`).
const MANY_LOOSE: i64 = 6_700;
/// Their folders, by the first byte of their names.
const FOLDERS: usize = 256;
/// The folder in which they are counted for all, as git does.
const COUNTED: &str = "17";

/// Files of refs that are not yet too many.
const FEW_REFS: usize = 500;
/// The first git that packs the refs of one folder and leaves all others as they are.
const PACKS_A_FOLDER: &str = "2.42.0";

impl Checkout {
    /// Has git keep agentd's own refs, several of each run, in one file instead of one each, once there are many. Other refs stay as
    /// they are; so do all with an older git, which does it with its own `git gc`. Gives whether it did.
    pub async fn pack_own_refs(&self) -> Result<bool, GitError> {
        let own = self.common_dir().join("refs").join("agentd");
        let many = tokio::task::spawn_blocking(move || files_below(own.as_path(), FEW_REFS + 1) > FEW_REFS);
        let many = many.await.map_err(|error| GitError::Lost(error.to_string()))?;
        if !many || !self.program().is_at_least(PACKS_A_FOLDER).await? {
            return Ok(false);
        }
        self.call(["pack-refs", "--include", "refs/agentd/*"]).await?.done().await?;
        Ok(true)
    }

    /// Has git keep objects in packs instead of a file each, once there are as many as it would do that for on its own: each visit leaves
    /// some, and agentd's calls do nothing beside what they are for. An object that nothing names stays as it is. Not where `gc.auto` is 0.
    /// Gives whether it did.
    pub async fn pack_loose_objects(&self) -> Result<bool, GitError> {
        let counted = self.common_dir().join("objects").join(COUNTED);
        let most = self
            .library(|repository| Ok(repository.config()?.get_i64("gc.auto").unwrap_or(MANY_LOOSE)))
            .await?;
        let most = usize::try_from(most).unwrap_or_default().div_ceil(FOLDERS);
        let many = tokio::task::spawn_blocking(move || files_below(counted.as_path(), most + 1) > most);
        if most == 0 || !many.await.map_err(|error| GitError::Lost(error.to_string()))? {
            return Ok(false);
        }
        self.call(["repack", "-d", "-l", "-q"]).await?.may_take_long().done().await?;
        Ok(true)
    }

    /// Writes the graph of commits that are new in it, and one index over all packs, of which there are few. For clones that agentd
    /// manages; one process at a time.
    pub async fn maintain(&self) -> Result<(), GitError> {
        let objects = self.common_dir().join("objects");
        for lock in LOCKS {
            files::remove_file(objects.join(lock).as_path())?;
        }
        let graph = ["commit-graph", "write", "--reachable", "--changed-paths", "--split", "--no-progress"];
        self.call(graph).await?.done().await?;
        let packs = fs::read_dir(objects.join("pack").as_path()).into_iter().flatten().flatten();
        let packs = packs.filter(|file| file.path().extension().is_some_and(|kind| kind == "pack")).count();
        // Of a clone without all contents, the packs from the remote are told from the others by their names.
        if packs > MOST_PACKS
            && !self.is_blobless().await?
            && self.program().is_at_least(MERGES_PACKS).await?
        {
            self.call(["repack", "--geometric=2", "-d", "-l", "-q"]).await?.may_take_long().done().await?;
        }
        if packs >= MANY_PACKS {
            self.call(["multi-pack-index", "write", "--no-progress"]).await?.done().await?;
        }
        Ok(())
    }
}

/// Files in a folder and in those below it; not counted further than `most`.
fn files_below(folder: &Path, most: usize) -> usize {
    let mut found = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        found += match entry.file_type() {
            Ok(kind) if kind.is_dir() => files_below(&entry.path(), most - found),
            Ok(_) => 1,
            Err(_) => 0,
        };
        if found >= most {
            return most;
        }
    }
    found
}
