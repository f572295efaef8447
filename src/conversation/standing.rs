//! Who counts as what: the standing of people and machine accounts by what they may do in the repository now.

use std::collections::BTreeMap;

use crate::config::conversation_file::ConversationTable;
use crate::domain::name::RepoName;
use crate::domain::policy::ActorPermission;
use crate::domain::remark::{Remark, Standing};
use crate::github::{Client, Error, ErrorKind};
use crate::repository::context::RepositoryContext;

/// How each of agentd's own texts begins.
pub const OWN_MARKER: &str = "<!-- agentd:";

/// Accounts and how they stand to one issue. Each is looked up once.
pub struct People<'a> {
    github: &'a Client,
    repo: &'a RepoName,
    rules: &'a ConversationTable,
    least: ActorPermission,
    issue_author: Option<String>,
    /// Whether several nodes work, which may have accounts of their own.
    has_nodes: bool,
    known: BTreeMap<String, Option<ActorPermission>>,
}

/// A standing and the permission that it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JudgedStanding {
    /// The standing.
    pub standing: Standing,
    /// What the author may do in the repository; `None` = it was not asked for, or could not be read.
    pub permission: Option<ActorPermission>,
}

impl<'a> People<'a> {
    /// Nobody is known yet. `issue_author` opened the issue.
    pub fn new(github: &'a Client, context: &'a RepositoryContext, issue_author: Option<&str>) -> Self {
        let config = &context.config;
        let least = config.conversation.trusted_from(config.github.min_permission);
        let has_nodes = context.state.shared().is_some();
        Self { has_nodes, ..Self::under(github, &context.repo, (&config.conversation, least), issue_author) }
    }

    /// The same for a repository whose rules are known, and the least permission of trusted people.
    pub fn under(
        github: &'a Client,
        repo: &'a RepoName,
        (rules, least): (&'a ConversationTable, ActorPermission),
        issue_author: Option<&str>,
    ) -> Self {
        Self {
            github,
            repo,
            rules,
            least,
            issue_author: issue_author.map(str::to_ascii_lowercase),
            has_nodes: false,
            known: BTreeMap::new(),
        }
    }

    /// Where they are looked up.
    pub fn github(&self) -> &'a Client {
        self.github
    }

    /// The permission of an account.
    ///
    /// # Errors
    /// GitHub does not say. It is asked again at the next call.
    pub async fn permission(&mut self, login: &str) -> Result<ActorPermission, Error> {
        let key = login.to_ascii_lowercase();
        if let Some(Some(permission)) = self.known.get(&key) {
            return Ok(*permission);
        }
        let permission = self.github.permission(self.repo, login).await?;
        self.known.insert(key, Some(permission));
        Ok(permission)
    }

    /// Whether a person's words are part of the task. A machine account's never are, and nor are those of an account that
    /// is gone.
    ///
    /// # Errors
    /// GitHub does not say what the person may do.
    pub async fn trusts(&mut self, login: Option<&str>) -> Result<bool, Error> {
        let Some(login) = login.filter(|login| !login.is_empty() && !is_bot(login)) else { return Ok(false) };
        Ok(self.rules.trusts(login) || self.permission(login).await? >= self.least)
    }

    /// How an account stands. Whoever's permission these credentials may not read is an outsider.
    ///
    /// # Errors
    /// GitHub did not say, and may at the next call: nobody is an outsider because a request failed.
    pub async fn account(&mut self, login: Option<&str>, bot: bool) -> Result<JudgedStanding, Error> {
        let outsider = JudgedStanding { standing: Standing::Outsider, permission: None };
        let Some(login) = login.filter(|login| !login.is_empty()) else { return Ok(outsider) };
        if bot || is_bot(login) {
            return Ok(JudgedStanding { standing: Standing::Bot, permission: None });
        }
        let key = login.to_ascii_lowercase();
        let permission = match self.known.get(&key) {
            Some(known) => *known,
            None => match self.github.permission(self.repo, login).await {
                Ok(permission) => Some(permission),
                Err(error) if may_be_read_yet(&error) && !self.rules.trusts(login) => return Err(error),
                Err(error) => {
                    tracing::warn!(login, %error, "a permission could not be read: the person counts as an outsider");
                    None
                }
            },
        };
        self.known.insert(key.clone(), permission);
        let standing = match permission {
            _ if self.rules.trusts(login) => Standing::Trusted,
            None => Standing::Outsider,
            Some(permission) if permission >= self.least => Standing::Trusted,
            Some(_) if self.issue_author.as_deref() == Some(&key) => Standing::Author,
            Some(_) => Standing::Outsider,
        };
        Ok(JudgedStanding { standing, permission })
    }

    /// How a remark stands: as its author, or as its editor where that is less.
    ///
    /// # Errors
    /// As [`People::account`].
    pub async fn remark(&mut self, remark: &Remark) -> Result<JudgedStanding, Error> {
        if self.wrote_itself(remark).await? {
            return Ok(JudgedStanding { standing: Standing::Own, permission: None });
        }
        let author = self.account(remark.login.as_deref(), remark.bot).await?;
        // Another node's account. Nobody gains a standing by a marker.
        if self.has_nodes && is_marked(remark) && matches!(author.standing, Standing::Trusted | Standing::Bot)
        {
            return Ok(JudgedStanding { standing: Standing::Own, permission: None });
        }
        let edited_by_other = remark.edited.is_some()
            && !matches!((&remark.editor, &remark.login), (Some(a), Some(b)) if a.eq_ignore_ascii_case(b));
        if !edited_by_other {
            return Ok(author);
        }
        let editor = self.account(remark.editor.as_deref(), remark.edited_by_bot).await?;
        Ok(JudgedStanding { standing: author.standing.min(editor.standing), ..author })
    }

    /// Whether agentd wrote it: its account, which may be the operator's own, and one of its markers at the beginning.
    async fn wrote_itself(&self, remark: &Remark) -> Result<bool, Error> {
        if !is_marked(remark) {
            return Ok(false);
        }
        match self.github.viewer().await {
            // Where nobody can say who agentd is, the marker alone has to do: its own words must never come back.
            Ok(viewer) if viewer.actor.login.is_empty() => Ok(true),
            Ok(viewer) => {
                let own = &viewer.actor.login;
                Ok(remark.login.as_deref().is_some_and(|login| login.eq_ignore_ascii_case(own)))
            }
            Err(error) if may_be_read_yet(&error) => Err(error),
            Err(_) => Ok(true),
        }
    }
}

/// Whether a text begins as each of agentd's own does.
fn is_marked(remark: &Remark) -> bool {
    remark.text.trim_start().starts_with(OWN_MARKER)
}

/// Whether something that could not be read may be read later: GitHub is busy or away, or the token is over and will be replaced.
fn may_be_read_yet(error: &Error) -> bool {
    error.is_transient() || error.kind == ErrorKind::Unauthorized
}

/// Whether a login is an App's.
fn is_bot(login: &str) -> bool {
    login.ends_with("[bot]")
}
