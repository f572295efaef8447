//! Admission: who asks for a run, and what they may (C-28, D7, D71).

use chrono::{DateTime, Utc};

use crate::domain::issue::ObjectiveSource;
use crate::domain::policy::ActorPermission;
use crate::domain::run::{Principal, PrincipalSource};
use crate::domain::text_revision::AskedHow;
use crate::github::{Actor, Client, Error, IssueSnapshot, Labelling};
use crate::issue::reference::Asked;

/// Who asks for a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// Who put the label on last, else the author; `None` = nobody is known.
    pub actor: Option<Actor>,
    /// What they may in the repository.
    pub permission: ActorPermission,
    /// The event that added the label. `None` = no label asked for the run, or it is not known.
    pub labelled: Option<u64>,
    /// How and when they asked; the issue's text counts as it stood then.
    pub asked: Asked,
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
        if let Some(Labelling { event, at, by }) = labelling {
            // A deleted account cannot ask for a run, and the author did not add the label.
            let asked = (AskedHow::Label, at);
            let of = match by {
                Some(actor) => Self::of(client, of, actor, asked).await?,
                None => Self::nobody(of, asked),
            };
            return Ok(Self { labelled: Some(event), ..of });
        }
        let author = of.issue.author.as_ref().map(|login| Actor {
            login: login.clone(),
            id: of.author_id.unwrap_or(0),
            bot: login.ends_with("[bot]"),
        });
        let asked = (AskedHow::Author, of.created_at);
        match author {
            Some(actor) => Self::of(client, of, actor, asked).await,
            None => Ok(Self::nobody(of, asked)),
        }
    }

    fn nobody(of: &IssueSnapshot, asked: (AskedHow, Option<DateTime<Utc>>)) -> Self {
        Self {
            actor: None,
            permission: ActorPermission::None,
            labelled: None,
            asked: Self::asked(of, None, asked),
        }
    }

    /// Where it is not known when, the issue counts as it was opened.
    fn asked(of: &IssueSnapshot, by: Option<String>, (how, at): (AskedHow, Option<DateTime<Utc>>)) -> Asked {
        Asked { by, how, at: at.or(of.created_at).unwrap_or(DateTime::<Utc>::UNIX_EPOCH) }
    }

    /// Somebody who is known to ask.
    pub async fn of(
        client: &Client,
        of: &IssueSnapshot,
        actor: Actor,
        asked: (AskedHow, Option<DateTime<Utc>>),
    ) -> Result<Self, Error> {
        let permission = client.permission(&of.issue.repo, &actor.login).await?;
        let asked = Self::asked(of, Some(actor.login.clone()), asked);
        Ok(Self { actor: Some(actor), permission, labelled: None, asked })
    }

    /// For whom the run works (S-045): the actor whom GitHub authenticated, or the schedule.
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
