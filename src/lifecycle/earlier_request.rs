//! What the newest run of an issue was asked for, where another one goes on with its work or follows on it: nobody says it a second
//! time.

use serde_json::{Map, Value};

use super::request::RunRequest;
use crate::config::config_file::Publish;
use crate::domain::event::RequestOptions;
use crate::domain::facts::RunFacts;
use crate::domain::issue::IssueKey;
use crate::domain::stop::{Stop, StopDetail};
use crate::record::run_facts;
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::mapping_of;

/// What counts of the earlier request.
#[derive(Debug, Default)]
pub struct EarlierRequest {
    /// What no configuration knows. Of a run that is only followed on, its publishing and its flags are left out: the pull request is
    /// there, and each round has the configured caps.
    pub options: RequestOptions,
    /// `--meta`.
    pub metadata: Map<String, Value>,
}

impl EarlierRequest {
    /// Of the issue's newest run, for a run that nobody gave options of its own. `request`: what asks for that.
    pub async fn of(request: &RunRequest, key: &IssueKey, context: &RepositoryContext) -> Self {
        let Some(facts) = newest(key, context).await else { return Self::default() };
        let Some(started) = &facts.started else { return Self::default() };
        let options = started.asked.clone();
        if request.resume.is_some() || may_be_gone_on_with(&facts) {
            return Self { options, metadata: started.metadata.clone() };
        }
        if request.follow_up.is_none() {
            return Self::default();
        }
        let options = RequestOptions { publish: None, flags: Default::default(), ..options };
        Self { options, metadata: Map::new() }
    }

    /// The request with them.
    pub fn merged_into(self, request: RunRequest) -> RunRequest {
        let Self { options, metadata } = self;
        RunRequest {
            agent: options.agent,
            publish: options.publish.as_deref().and_then(Publish::parse),
            format: options.format,
            parameters: options.parameters,
            metadata,
            ..request
        }
    }
}

async fn newest(key: &IssueKey, context: &RepositoryContext) -> Option<RunFacts> {
    let lease = context.look(context.lease(key)).await.ok().flatten()?;
    let mapping = mapping_of(&lease.record?).filter(|mapping| !mapping.given_up)?;
    let dir = context.state.run(&context.repo, mapping.run_id);
    let read = tokio::task::spawn_blocking(move || run_facts::read_anywhere(&dir)).await;
    read.ok()?.ok().flatten()
}

/// Whether a run that begins by itself may go on with this one: it was cut off, could not publish, or waits for people.
fn may_be_gone_on_with(facts: &RunFacts) -> bool {
    let ended = |end: &Stop| {
        !end.parks()
            && !end.detail.is_gone_on_with()
            && !matches!(
                end.detail,
                StopDetail::ApprovalPending | StopDetail::GithubError | StopDetail::GitError
            )
    };
    !facts.end.as_ref().is_some_and(ended)
}
