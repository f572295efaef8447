//! New files that setting a worktree up left. Nobody of a run wrote them, so they are no part of its work. They are in
//! no commit for as long as they are as they were then; one that somebody changes is work like any other.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::GitError;
use super::exclude::escaped;
use super::worktree::Worktree;
use crate::domain::canonical::sha256_hex;
use crate::domain::name::CommitId;
use crate::sys::files;

/// The list, beside git's own files of the worktree: paths with the hash of their content.
const FILE: &str = "agentd-set-up-files";
/// The most bytes of the list.
const LONGEST: u64 = 64 << 20;

/// There while the files are those of the base branch's commit, and the branch has others.
const SHOWN: &str = "agentd-set-up-base";

/// Whose files a worktree has while it is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownForSetUp {
    /// The branch's, which are those of the base branch.
    Already,
    /// Those of the base branch, until [`Worktree::show_again`].
    Base,
    /// The branch's, and somebody has changed some.
    Edited,
}

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

    /// Makes the files those of `base` for as long as it is set up, where the branch has commits of its own: an agent may have written
    /// what the set-up's commands run. Files that differ from the branch are in the way, and then nothing is done.
    pub async fn show_for_set_up(&self, base: &CommitId) -> Result<ShownForSetUp, GitError> {
        self.end_cut_off_set_up().await?;
        let Some(head) = self.head().await? else { return Ok(ShownForSetUp::Already) };
        let checkout = self.checkout();
        if head == *base || checkout.tree_of_commit(&head).await? == checkout.tree_of_commit(base).await? {
            return Ok(ShownForSetUp::Already);
        }
        if !self.is_clean().await? {
            return Ok(ShownForSetUp::Edited);
        }
        let shown = self.git_dir().join(SHOWN);
        on_disk(move || files::write_private(shown.as_path(), b"")).await??;
        self.read_tree(base.as_str()).await?;
        Ok(ShownForSetUp::Base)
    }

    /// Makes the files those of the branch again where a set-up was cut off.
    pub async fn end_cut_off_set_up(&self) -> Result<(), GitError> {
        match self.git_dir().join(SHOWN).as_path().exists() {
            true => self.show_again().await,
            false => Ok(()),
        }
    }

    /// Makes the files those of the branch again. What the set-up made beside them stays, unless it is in their way.
    pub async fn show_again(&self) -> Result<(), GitError> {
        self.clear_stale_locks()?;
        self.read_tree("HEAD").await?;
        let shown = self.git_dir().join(SHOWN);
        on_disk(move || files::remove_file(shown.as_path())).await??;
        Ok(())
    }

    async fn read_tree(&self, tree: &str) -> Result<(), GitError> {
        self.call(["read-tree", "--reset", "-u", tree]).await?.done().await?;
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
