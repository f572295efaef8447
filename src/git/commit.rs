//! Committing a worktree's present state on its branch, as git's configuration says.

use super::error::GitError;
use super::program::Identity;
use super::snapshot::copy;
use super::worktree::Worktree;
use crate::domain::name::CommitId;

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
        self.return_to_branch().await?;
        self.release_changed().await?;
        let files = self.unresolved().await?;
        if !files.is_empty() {
            return Err(GitError::Unresolved { files });
        }
        let (tree, index) = self.record().await?;
        let head = self.head().await?;
        if let Some(head) = &head
            && self.checkout().tree_of_commit(head).await? == tree
            && !self.is_merging()
        {
            return Ok(None);
        }
        // The index of the worktree becomes the recorded one, whatever was staged in it.
        copy(&index, &self.git_dir().join("index")).await?;
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
            Some(made) if !hooks => self.committed(made, &tree).await?,
            _ => self.something_ran(),
        }
        made.map(Some)
            .ok_or_else(|| GitError::Missing { what: format!("the commit just made on {}", self.branch()) })
    }
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
