//! Runs of a repository's issues that were cut off: by the end of their process, or by a shutdown.

use serde::Deserialize as _;
use serde_json::Value;

use super::shown_lease;
use crate::domain::event::Effect;
use crate::domain::facts::RunFacts;
use crate::domain::issue::ObjectiveSource;
use crate::domain::mapping::InstanceId;
use crate::domain::run::RunId;
use crate::domain::stop::StopDetail;
use crate::record::{finish, run_facts};
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::{MappingRecord, mapping_of};
use crate::store::run_dir::RunDir;

/// A run of a daemon or a sweep whose process died or was stopped, and that nobody has continued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutOffRun {
    /// The issue.
    pub number: u64,
    /// What people want, according to the trigger label.
    pub begun: BegunBy,
}

/// How a run was begun, and how far it got with its issue's labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BegunBy {
    /// By the trigger label: where it is off, a person took it off.
    Labelled,
    /// By a sweep, without it.
    Swept,
    /// Without it, to put right what was wrong with the issue's pull request.
    FollowUp,
    /// It had begun to write the labels: it was agentd that took the trigger off.
    WritingLabels,
}

/// The runs of a repository whose processes died. Their ends are written, and those that can be continued are
/// given back.
pub async fn end_dead_runs(context: &RepositoryContext) -> Vec<CutOffRun> {
    let context = context.clone();
    let ended = tokio::task::spawn_blocking(move || {
        for dir in context.state.runs(Some(&context.repo)).unwrap_or_default() {
            if !dir.result().exists()
                && let Err(error) =
                    finish::ensure_ended(&dir, &context.clock, context.config.record.seal_key.as_deref())
            {
                tracing::warn!(run = %dir.run_id, %error, "an earlier run cannot be ended; it is left as it is");
            }
        }
        last_runs(&context).filter_map(|run| cut_off(&context, run)).collect()
    });
    ended.await.unwrap_or_default()
}

/// An issue whose run on the command line was killed while its label said that a run works on it.
pub struct Left {
    /// The issue.
    pub number: u64,
    /// The run's instance.
    pub instance: InstanceId,
    /// `None`: it says so no longer; else why it still does.
    pub still_shown: Option<String>,
}

/// Removes the running label from issues whose run on the command line was killed. Nobody else would before its lease
/// ends. Gives the issues that had it.
pub async fn clear_left(context: &RepositoryContext) -> Vec<Left> {
    if context.github.is_none() {
        return Vec::new();
    }
    let here = context.clone();
    let left =
        tokio::task::spawn_blocking(move || last_runs(&here).filter_map(left_by_hand).collect::<Vec<_>>());
    let mut found = Vec::new();
    for (number, instance, run_id) in left.await.unwrap_or_default() {
        let still_shown = match shown_lease::clear(context, number, (&instance, run_id)).await {
            Ok(true) => {
                tracing::info!(repo = %context.repo, number, %instance, "a killed run no longer shows as working");
                None
            }
            Ok(false) => continue,
            Err(error) => {
                tracing::warn!(repo = %context.repo, number, %error, "a killed run still shows as working on its issue");
                Some(error.to_string())
            }
        };
        found.push(Left { number, instance, still_shown });
    }
    found
}

/// A run on the command line that was killed before it had written back to its issue.
fn left_by_hand((last, facts): (MappingRecord, RunFacts)) -> Option<(u64, InstanceId, RunId)> {
    let began = facts.lease.as_ref()?;
    let killed = facts.end.as_ref().is_none_or(|end| end.detail == StopDetail::Interrupted);
    let written_back = facts.outcome(Effect::Labels).is_some();
    (killed && !written_back && began.source == ObjectiveSource::Cli).then_some(())?;
    Some((began.issue.key.number()?, last.instance, last.run_id))
}

/// The last run of each issue on which nobody works, with what its journal says, where it may have been cut off. Of the many
/// that came to an end of their own no journal is read.
fn last_runs(context: &RepositoryContext) -> impl Iterator<Item = (MappingRecord, RunFacts)> + '_ {
    context.leases().into_iter().filter_map(|lease| {
        let lease = context.state.store().look(&lease).filter(|lease| lease.holder.is_none())?;
        let last = mapping_of(&lease.record?)?;
        let dir = context.state.run(&context.repo, last.run_id);
        let facts = (!is_over(&dir)).then(|| run_facts::read(&dir))?.ok()?;
        Some((last, facts))
    })
}

/// Whether a run's result says that it was not cut off.
fn is_over(dir: &RunDir) -> bool {
    let result = std::fs::read(dir.result()).ok();
    let result = result.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    let detail = result.and_then(|result| StopDetail::deserialize(&result["stop_detail"]).ok());
    detail.is_some_and(|detail| !matches!(detail, StopDetail::Interrupted | StopDetail::Shutdown))
}

fn cut_off(context: &RepositoryContext, (last, facts): (MappingRecord, RunFacts)) -> Option<CutOffRun> {
    if last.given_up {
        return None;
    }
    let began = facts.lease.as_ref()?;
    let killed = facts.end.as_ref().is_none_or(|end| end.detail == StopDetail::Interrupted);
    let stopped = facts.end.as_ref().is_some_and(|end| end.detail == StopDetail::Shutdown);
    if !(killed || stopped) || began.source == ObjectiveSource::Cli {
        return None;
    }
    // A run that is told to stop with its daemon leaves the labels as they are.
    let writing_labels = killed && facts.effects.iter().any(|(effect, _)| *effect == Effect::Labels);
    let trigger = &context.config.github.labels.trigger;
    let labelled = began.issue.labels.iter().any(|label| label.eq_ignore_ascii_case(trigger));
    let begun = match () {
        () if writing_labels => BegunBy::WritingLabels,
        () if began.follow_up => BegunBy::FollowUp,
        () if began.source == ObjectiveSource::Sweep && !labelled => BegunBy::Swept,
        () => BegunBy::Labelled,
    };
    Some(CutOffRun { number: began.issue.key.number()?, begun })
}
