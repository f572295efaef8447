//! Committing a worktree's present state on its branch, as git's configuration says.

use std::collections::BTreeMap;

use super::error::GitError;
use super::last_snapshot::INDEX;
use super::program::Identity;
use super::snapshot::copy;
use super::worktree::Worktree;
use crate::domain::name::CommitId;
use crate::sys::files;
use crate::sys::paths::AbsPath;

/// What a commit says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitMessage {
    /// First line.
    pub subject: String,
    /// The rest, possibly empty.
    pub body: String,
    /// `(key, value)`, such as `Agentd-Run` (D13).
    pub trailers: Vec<(String, String)>,
}

impl CommitMessage {
    /// As git stores it.
    fn text(&self) -> String {
        let mut text = self.subject.lines().next().unwrap_or_default().trim().to_owned();
        text.push('\n');
        if !self.body.trim().is_empty() {
            text.push_str(&format!("\n{}\n", self.body.trim()));
        }
        let trailers: String = self.trailers.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
        if !trailers.is_empty() {
            text.push_str(&format!("\n{trailers}"));
        }
        text
    }
}

impl Worktree {
    /// Commits everything that is not ignored; `None` if nothing differs from HEAD. The commit is signed if git's
    /// configuration says so. Hooks run only if the operator allowed them. Commits that the agent made stay as they
    /// are.
    pub async fn commit_all(
        &self,
        message: &CommitMessage,
        author: &Identity,
    ) -> Result<Option<CommitId>, GitError> {
        self.commit_since(None, message, author).await
    }

    /// The same for what has changed since `before`, a checkpoint. What was uncommitted then, and is as it was, stays so.
    pub async fn commit_since(
        &self,
        before: Option<&CommitId>,
        message: &CommitMessage,
        author: &Identity,
    ) -> Result<Option<CommitId>, GitError> {
        self.return_to_branch().await?;
        self.release_changed().await?;
        let files = self.unresolved().await?;
        if !files.is_empty() {
            return Err(GitError::Unresolved { files });
        }
        let (mut tree, mut index) = self.record().await?;
        let head = self.head().await?;
        let rest = match (before, &head) {
            (Some(before), Some(head)) => self.without(before, head, (&tree, &index)).await?,
            _ => None,
        };
        let is_whole = rest.is_none();
        if let Some(rest) = rest {
            (tree, index) = rest;
        }
        if let Some(head) = &head
            && self.checkout().tree_of_commit(head).await? == tree
            && !self.is_merging()
        {
            if !is_whole {
                files::remove_file(index.as_path())?;
            }
            return Ok(None);
        }
        // The index of the worktree becomes the recorded one, whatever was staged in it.
        copy(&index, &self.git_dir().join("index")).await?;
        if !is_whole {
            files::remove_file(index.as_path())?;
        }
        let mut args = vec!["commit", "--quiet", "--allow-empty-message", "--cleanup=whitespace", "--file=-"];
        let hooks = self.checkout().hooks();
        if !hooks {
            args.push("--no-verify");
        }
        if head.is_none() {
            args.push("--allow-empty");
        }
        let call = self.call(args).await?.stdin(message.text()).identity(author, author).with_hooks(hooks);
        call.done().await?;
        let made = self.head().await?;
        match &made {
            // What was committed is what is there.
            Some(made) if !hooks && is_whole => self.committed(made, &tree).await?,
            _ => self.something_ran(),
        }
        made.map(Some)
            .ok_or_else(|| GitError::Missing { what: format!("the commit just made on {}", self.branch()) })
    }

    /// The present state, with what differed from `head` in the same way at `before` as it is in `head`: its tree and its index. `None` =
    /// there is nothing like that.
    async fn without(
        &self,
        before: &CommitId,
        head: &CommitId,
        (tree, index): (&str, &AbsPath),
    ) -> Result<Option<(String, AbsPath)>, GitError> {
        let (then, now) =
            (self.raw_changes(head, before.as_str()).await?, self.raw_changes(head, tree).await?);
        let mut lines = Vec::new();
        for (path, change) in &now {
            if then.get(path).is_some_and(|then| then.now == change.now) {
                lines.extend([change.former.as_bytes(), b"\t", path, b"\0"].concat());
            }
        }
        if lines.is_empty() {
            return Ok(None);
        }
        let work = self.git_dir().join(format!("{INDEX}-{}", uuid::Uuid::new_v4().simple()));
        copy(index, &work).await?;
        self.call(["update-index", "-z", "--index-info"]).await?.index(&work).stdin(lines).done().await?;
        let tree = self.call(["write-tree"]).await?.index(&work).text().await?.trim().to_owned();
        Ok(Some((tree, work)))
    }

    /// What differs between two trees, by path, as `mode object`.
    async fn raw_changes(&self, from: &CommitId, to: &str) -> Result<BTreeMap<Vec<u8>, RawChange>, GitError> {
        let args = ["diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", from.as_str(), to];
        let listed = self.call(args).await?.bytes().await?;
        let mut found = BTreeMap::new();
        let mut fields = listed.split(|byte| *byte == 0);
        while let (Some(change), Some(path)) = (fields.next(), fields.next()) {
            let change = String::from_utf8_lossy(change);
            let mut words = change.trim_start_matches(':').split(' ');
            if let (Some(old_mode), Some(mode), Some(old), Some(object)) =
                (words.next(), words.next(), words.next(), words.next())
            {
                let change =
                    RawChange { former: format!("{old_mode} {old}"), now: format!("{mode} {object}") };
                found.insert(path.to_vec(), change);
            }
        }
        Ok(found)
    }
}

/// One path's two sides.
struct RawChange {
    former: String,
    now: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_subject_body_and_trailers_apart() {
        let message = CommitMessage {
            subject: "fix: a\nb".into(),
            body: "why\n\n".into(),
            trailers: vec![("Agentd-Run".into(), "01".into()), ("Closes".into(), "#7".into())],
        };
        assert_eq!(message.text(), "fix: a\n\nwhy\n\nAgentd-Run: 01\nCloses: #7\n");
        let short = CommitMessage { subject: "s".into(), body: String::new(), trailers: Vec::new() };
        assert_eq!(short.text(), "s\n");
    }
}
