//! Whether commits can be signed here, found out before anything is spent on them.

use super::checkout::Checkout;
use super::error::GitError;
use super::program::{Call, Identity};

impl Checkout {
    /// Whether git's configuration has commits signed.
    pub async fn signs_commits(&self) -> Result<bool, GitError> {
        if !self.hardening(self.common_dir()).await?.signs {
            return Ok(false);
        }
        // What was read before may be older than the operator's configuration.
        let asked = self.call(["config", "--type=bool", "--get", "commit.gpgSign"]).await?.exit().await?;
        Ok(asked.stdout.text().trim() == "true")
    }

    /// Signs a commit that nobody sees, as `who`. Nothing of it stays.
    ///
    /// # Errors
    /// [`GitError::Signing`]: the key is not to be had, or wants a password that nobody types.
    pub async fn try_signing(&self, who: &Identity) -> Result<(), GitError> {
        let made = tokio::task::spawn_blocking(tempfile::tempdir).await;
        let place = made
            .map_err(|panic| GitError::Lost(panic.to_string()))?
            .map_err(|error| GitError::Lost(format!("no temporary folder can be made: {error}")))?;
        let objects = |call: Call| call.env("GIT_OBJECT_DIRECTORY", place.path());
        let tree = objects(self.call(["mktree"]).await?).text().await?;
        let sign = ["commit-tree", "-S", tree.trim(), "-m", "agentd tries to sign"];
        objects(self.call(sign).await?).identity(who, who).done().await
    }
}
