//! Admission: who asks for a run, and what they may (C-28, D7, D71).

use crate::domain::issue::ObjectiveSource;
use crate::domain::name::RepoName;
use crate::domain::policy::ActorPermission;
use crate::domain::run::{Principal, PrincipalSource};
use crate::github::{Actor, Client, Error, IssueSnapshot};

/// Who asks for a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// Who put the label on last, else the author; `None` = nobody is known.
    pub actor: Option<Actor>,
    /// What they may in the repository.
    pub permission: ActorPermission,
    /// The event that put on the label that asks; `None` = not a label asks, or nobody knows.
    pub labelled: Option<u64>,
}

impl Admission {
    /// Asks GitHub: one request for the labeller, one for the permission. `label` is what asks for the run: the trigger, or
    /// the label a sweep filters by; without one the author asks.
    pub async fn ask(client: &Client, of: &IssueSnapshot, label: Option<&str>) -> Result<Self, Error> {
        let repo = &of.issue.repo;
        let number = of.issue.key.number().unwrap_or_default();
        let labelling = match label {
            Some(label) => client.last_labelling(repo, number, label).await?,
            None => None,
        };
        let labelled = labelling.as_ref().map(|labelling| labelling.event);
        let author = of.issue.author.as_ref().map(|login| Actor {
            login: login.clone(),
            id: of.author_id.unwrap_or(0),
            bot: login.ends_with("[bot]"),
        });
        let Some(actor) = labelling.and_then(|labelling| labelling.by).or(author) else {
            return Ok(Self { actor: None, permission: ActorPermission::None, labelled });
        };
        Ok(Self { labelled, ..Self::of(client, repo, actor).await? })
    }

    /// Somebody who is known to ask.
    pub async fn of(client: &Client, repo: &RepoName, actor: Actor) -> Result<Self, Error> {
        let permission = client.permission(repo, &actor.login).await?;
        Ok(Self { actor: Some(actor), permission, labelled: None })
    }

    /// On whose behalf the run works (S-045): the actor whom GitHub authenticated, or the schedule.
    pub fn principal(&self, source: ObjectiveSource) -> Principal {
        match (&self.actor, source) {
            (_, ObjectiveSource::Sweep) | (None, _) => {
                Principal::new(PrincipalSource::Sweep, "schedule", None)
            }
            (Some(actor), _) => Self::principal_of(&actor.login, actor.id),
        }
    }

    /// An account of GitHub's; one whose id is not known goes by its login.
    pub fn principal_of(login: &str, id: u64) -> Principal {
        let key = if id > 0 { id.to_string() } else { login.to_owned() };
        Principal::new(PrincipalSource::Github, &key, Some(login.to_owned()))
    }
}
