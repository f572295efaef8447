//! Accounts: people and Apps, who we are, how somebody stands to a repository.

use super::rest_wire::UserWire;

/// An account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// Login; an App's ends with `[bot]`.
    pub login: String,
    /// Database id; 0 = not said.
    pub id: u64,
    /// Whether it is an App or another machine account that says so.
    pub bot: bool,
}

/// How an author is related to the repository, according to the text that they wrote. It decides whom to look up first
/// and never admits anybody. People with a hidden membership look like strangers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Association {
    /// Owner, member or collaborator.
    Known,
    /// Anybody else.
    Stranger,
}

impl Association {
    pub(super) fn parse(word: &str) -> Self {
        match word {
            "OWNER" | "MEMBER" | "COLLABORATOR" => Self::Known,
            _ => Self::Stranger,
        }
    }
}

impl From<UserWire> for Actor {
    fn from(user: UserWire) -> Self {
        Self { bot: user.kind == "Bot" || user.login.ends_with("[bot]"), login: user.login, id: user.id }
    }
}

/// Who the credentials are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Viewer {
    /// The account; an empty login where GitHub does not say.
    pub actor: Actor,
    /// Scopes of a classic token; `None` = the token is of another kind.
    pub scopes: Option<Vec<String>>,
}
