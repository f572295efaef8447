//! Merges another branch into the files of a worktree. The merge is committed with the work that follows.

use super::error::GitError;
use super::output;
use super::program::{Identity, failure};
use super::worktree::Worktree;
use crate::domain::name::CommitId;
use crate::sys::files;

/// How git marks the beginning of lines that both sides changed.
pub(super) const MARKER: &[u8] = b"<<<<<<< ";
/// Larger files are no text that anyone works a conflict out in.
const LARGEST_CONFLICT: u64 = 64 << 20;

/// How a branch stands to a commit that it is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forward {
    /// It has the commit.
    HasIt,
    /// It was only behind, and went forward to it.
    Went,
    /// It has commits that the other has not.
    Apart,
}

impl Worktree {
    /// Merges a commit into the files without committing. The next [`Worktree::commit_all`] has both as parents. Lines
    /// that both sides changed stay between git's markers for the agent. Gives the files that have them.
    pub async fn merge_base_in(&self, commit: &CommitId, author: &Identity) -> Result<Vec<String>, GitError> {
        if !self.is_merging() {
            self.merge(commit, author).await?;
        }
        self.unmerged().await
    }

    pub(super) async fn merge(&self, commit: &CommitId, author: &Identity) -> Result<(), GitError> {
        let args = ["merge", "--no-commit", "--no-ff", "--quiet", commit.as_str()];
        // Before a merge git looks for changes, also in submodules.
        let alone = self.submodules_left_alone(commit).await?;
        self.something_ran();
        let head = self.head().await?;
        let exit = self.call(args).await?.config(alone).identity(author, author).exit().await?;
        if let Some(head) = &head {
            self.leave_behind(head, commit).await?;
        }
        // If both sides changed the same lines, git fails and waits for the commit of the merge.
        if exit.success() || self.is_merging() { Ok(()) } else { Err(failure("merge", &exit, None)) }
    }

    /// A commit that says that `tip` has what `merged` has, as where a pull request was squashed; its files are those of `tip`. Merged in, it
    /// brings what `tip` has beside that, and nothing of it conflicts.
    pub async fn squashed_into(
        &self,
        (merged, tip): (&CommitId, &CommitId),
        subject: &str,
        author: &Identity,
    ) -> Result<CommitId, GitError> {
        let tree = self.checkout().tree_of_commit(tip).await?;
        let sign = if self.checkout().signs_commits().await? { "-S" } else { "--no-gpg-sign" };
        let args = ["commit-tree", sign, &tree, "-p", merged.as_str(), "-p", tip.as_str(), "-m", subject];
        let id = self.call(args).await?.identity(author, author).text().await?;
        CommitId::parse(id.trim()).map_err(|error| GitError::Lost(error.to_string()))
    }

    /// Moves a branch that is only behind forward to newer commits. Uncommitted changes stay, or it fails without a
    /// change.
    pub async fn forward(&self, tip: &CommitId) -> Result<Forward, GitError> {
        let Some(head) = self.head().await? else { return Ok(Forward::Apart) };
        if self.checkout().is_ancestor(tip, &head).await? {
            return Ok(Forward::HasIt);
        }
        if !self.checkout().is_ancestor(&head, tip).await? {
            return Ok(Forward::Apart);
        }
        self.go_over_to(&head, tip).await?;
        Ok(Forward::Went)
    }

    /// Moves the branch, which stands on `head`, and the files with it. Uncommitted changes stay, or it fails without a change.
    pub(super) async fn go_over_to(&self, head: &CommitId, tip: &CommitId) -> Result<(), GitError> {
        self.something_ran();
        self.call(["reset", "--keep", "--quiet", tip.as_str()]).await?.done().await?;
        self.leave_behind(head, tip).await
    }

    /// Gives up a merge that waits for its commit: the files are as they were before it.
    pub async fn leave_merge(&self) -> Result<(), GitError> {
        self.something_ran();
        self.call(["merge", "--abort"]).await?.done().await
    }

    /// Gives up a merge in whose files somebody worked: the files are those of HEAD again. Their state is kept on
    /// `reference` first.
    pub async fn abandon_merge(&self, reference: &str) -> Result<(), GitError> {
        self.something_ran();
        self.put_back(reference).await?;
        self.drop_unfinished_operations()?;
        self.call(["reset", "--mixed", "--quiet", "--no-refresh"]).await?.done().await
    }

    /// Whether a merge waits for its commit.
    pub(super) fn is_merging(&self) -> bool {
        self.merge_head().is_some()
    }

    /// The commit that is being merged in.
    pub fn merge_head(&self) -> Option<CommitId> {
        let text = std::fs::read_to_string(self.git_dir().join("MERGE_HEAD").as_path()).ok()?;
        CommitId::parse(text.lines().next()?).ok()
    }

    /// Submodules of an unfinished merge for which both sides chose another commit. No file shows that.
    pub async fn conflicting_submodules(&self) -> Result<Vec<String>, GitError> {
        let mut paths: Vec<String> = output::submodule_entries(&self.listed_unmerged().await?)
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        paths.dedup();
        Ok(paths)
    }

    /// Files of an unfinished merge that still have git's markers.
    pub async fn unresolved(&self) -> Result<Vec<String>, GitError> {
        if !self.is_merging() {
            return Ok(Vec::new());
        }
        let marked = |file: &String| {
            let bytes =
                files::read_plain(self.path().join(file).as_path(), LARGEST_CONFLICT).unwrap_or_default();
            bytes.split(|byte| *byte == b'\n').any(|line| line.starts_with(MARKER))
        };
        Ok(self.unmerged().await?.into_iter().filter(marked).collect())
    }

    async fn unmerged(&self) -> Result<Vec<String>, GitError> {
        Ok(output::unmerged(&self.listed_unmerged().await?))
    }

    async fn listed_unmerged(&self) -> Result<String, GitError> {
        // Not `diff`: that looks for changes inside of submodules, by running git there.
        let listed = self.call(["ls-files", "--unmerged", "-z"]).await?.text().await?;
        Ok(listed)
    }
}
