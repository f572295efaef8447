//! Where a run's work comes from and where it goes, for checks and programs of a definition (D105). Agents neither push
//! nor merge; agentd and people do that afterwards. A file that the run changed does not judge the run (D108).

use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::run_sandbox::RunSandbox;
use crate::engine::workplace;
use crate::git::blob::LARGEST_FILE;
use crate::git::sandbox_git::Base;
use crate::sys::files;
use crate::sys::paths::AbsPath;

/// What is known of it.
#[derive(Debug)]
pub struct Upstream {
    /// Where the work starts from and returns to.
    pub base: Base,
    /// Where the run's programs stand.
    pub sandbox: Arc<RunSandbox>,
}

impl workplace::Upstream for Upstream {
    fn concerns(&self, command: &str) -> bool {
        let of_ref = |c: char| c.is_alphanumeric() || "_./@{}-^~".contains(c);
        let mut words = command.split(|c| !of_ref(c)).flat_map(|word| word.split("..")).map(|word| {
            word.trim_start_matches(['.', '^'])
                .trim_start_matches("refs/remotes/")
                .trim_start_matches("refs/heads/")
        });
        let remote = self.base.remote.as_ref().map(|remote| format!("{}/", remote.name()));
        words.any(|word| {
            ["@{u", "@{push}"].iter().any(|upstream| word.contains(upstream))
                || remote.as_ref().is_some_and(|remote| word.starts_with(remote.as_str()))
                || word == self.base.branch.as_str()
                || word == "gh"
        })
    }

    fn published(&self) -> BoxFuture<'_, Result<AbsPath, String>> {
        Box::pin(async { self.sandbox.published_git(&self.base).await.map_err(|error| error.to_string()) })
    }

    fn differs<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async move {
            let worktree = self.sandbox.worktree();
            let before = worktree.checkout().blob(&self.base.commit, path).await;
            let before = before.map_err(|error| error.to_string())?;
            let place = worktree.path().join(path);
            let now = tokio::task::spawn_blocking(move || content(place.as_path())).await;
            let now = now.map_err(|error| error.to_string())?;
            Ok(match (before, now) {
                (Some(before), Some(now)) => before != now && lines(&before) != lines(&now),
                (before, now) => before.is_some() || now.is_some(),
            })
        })
    }
}

/// A file's bytes, or where a link leads, as git keeps them.
fn content(file: &Path) -> Option<Vec<u8>> {
    match file.read_link() {
        Ok(target) => Some(target.into_os_string().into_encoded_bytes()),
        Err(_) => files::read_plain(file, LARGEST_FILE),
    }
}

/// A checkout may end lines in another way than the repository.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect()
}
