//! New files that setting a worktree up left. Nobody of a run wrote them, so they are no part of its work. They are in
//! no commit for as long as they are as they were then; one that somebody changes is work like any other.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::GitError;
use super::exclude::escaped;
use super::worktree::Worktree;
use crate::domain::canonical::sha256_hex;
use crate::sys::files;

/// The list, beside git's own files of the worktree: paths with the hash of their content.
const FILE: &str = "agentd-set-up-files";
/// The most bytes of the list.
const LONGEST: u64 = 64 << 20;

type Listed = BTreeMap<String, String>;

impl Worktree {
    /// Keeps these new files out of commits as they are now.
    pub async fn leave_out(&self, paths: Vec<String>) -> Result<(), GitError> {
        let mut listed = self.listed_files().await?;
        let root = self.path().clone();
        let hashed = move || {
            let hash = |path: String| Some((path.clone(), hash_of(root.join(&path).as_path())?));
            paths.into_iter().filter_map(hash).collect::<Listed>()
        };
        listed.extend(on_disk(hashed).await?);
        self.list(listed).await
    }

    /// Puts files that HEAD has back to what they are there.
    pub async fn put_back_files(&self, paths: &[String]) -> Result<(), GitError> {
        let named: String = paths.iter().map(|path| format!(":(top,literal){path}\0")).collect();
        let checkout = ["checkout", "--quiet", "HEAD", "--pathspec-from-file=-", "--pathspec-file-nul"];
        self.call(checkout).await?.stdin(named).done().await?;
        self.something_ran();
        Ok(())
    }

    /// What somebody changed or removed since is left out no longer.
    pub(super) async fn release_changed(&self) -> Result<(), GitError> {
        let listed = self.listed_files().await?;
        if listed.is_empty() {
            return Ok(());
        }
        let root = self.path().clone();
        let before = listed.len();
        let look = move || {
            let same =
                |(path, hash): &(String, String)| hash_of(root.join(path).as_path()).as_ref() == Some(hash);
            listed.into_iter().filter(same).collect::<Listed>()
        };
        let same = on_disk(look).await?;
        if same.len() == before { Ok(()) } else { self.list(same).await }
    }

    /// Patterns of ignored files, a line each.
    pub(super) async fn set_up_patterns(&self) -> Result<String, GitError> {
        Ok(self.listed_files().await?.keys().map(|path| format!("/{}\n", escaped(path))).collect())
    }

    async fn listed_files(&self) -> Result<Listed, GitError> {
        let file = self.git_dir().join(FILE);
        let read = move || {
            let bytes = files::read_plain(file.as_path(), LONGEST);
            bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
        };
        on_disk(read).await
    }

    async fn list(&self, listed: Listed) -> Result<(), GitError> {
        let file = self.git_dir().join(FILE);
        let bytes = serde_json::to_vec(&listed).map_err(|error| GitError::Lost(error.to_string()))?;
        on_disk(move || files::write_private(file.as_path(), &bytes)).await??;
        self.write_exclude_file().await?;
        self.something_ran();
        Ok(())
    }
}

/// Of a file its content, of a link where it leads; `None` for anything else.
fn hash_of(path: &Path) -> Option<String> {
    let meta = path.symlink_metadata().ok()?;
    if meta.is_symlink() {
        let target = std::fs::read_link(path).ok()?;
        return Some(format!("link {}", sha256_hex(target.as_os_str().as_encoded_bytes())));
    }
    if !meta.is_file() {
        return None;
    }
    std::fs::read(path).ok().map(|bytes| sha256_hex(&bytes))
}

async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, GitError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| GitError::Lost(error.to_string()))
}
