//! What lets git find commits and objects faster in a clone that grows with each fetch. Nothing is removed.

use std::fs;

use super::checkout::Checkout;
use super::error::GitError;
use crate::sys::files;

/// Fewer packs are found fast enough.
const MANY_PACKS: usize = 2;
/// Locks of the two files that are written. Only agentd maintains its clones, so what is there was left by a git that was
/// killed.
const LOCKS: [&str; 3] =
    ["info/commit-graph.lock", "info/commit-graphs/commit-graph-chain.lock", "pack/multi-pack-index.lock"];

impl Checkout {
    /// Writes the graph of commits that are new in it, and one index over all packs. For clones that agentd manages; one
    /// process at a time.
    pub async fn maintain(&self) -> Result<(), GitError> {
        let objects = self.common_dir().join("objects");
        for lock in LOCKS {
            files::remove_file(objects.join(lock).as_path())?;
        }
        let graph = ["commit-graph", "write", "--reachable", "--changed-paths", "--split", "--no-progress"];
        self.call(graph).await?.done().await?;
        let packs = fs::read_dir(objects.join("pack").as_path()).into_iter().flatten().flatten();
        let packs = packs.filter(|file| file.path().extension().is_some_and(|kind| kind == "pack")).count();
        if packs >= MANY_PACKS {
            self.call(["multi-pack-index", "write", "--no-progress"]).await?.done().await?;
        }
        Ok(())
    }
}
