//! What other nodes of a cluster need in order to go on with an issue: a run's checkpoints as bundles, beside the journal that names
//! them, and the commits that its end leaves unpushed, as a bundle that the issue's cell names.

use std::time::Duration;

use super::parked;
use super::run::Run;
use super::stage::Workspace;
use crate::domain::artifact::Artifact;
use crate::domain::event::Bundle;
use crate::domain::name::CommitId;
use crate::domain::run::RunId;
use crate::engine::journal::JournalError;
use crate::git::error::GitError;
use crate::git::worktree::Worktree;
use crate::git::worktree_plan::Elsewhere;
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::{MappingRecord, Unpushed};
use crate::store::port::StoreError;
use crate::sys::clock::Stopwatch;

/// The code of the warning that says that some of the work is on one node alone.
const PINNED: &str = "pinned";
/// The code of the same warning where it speaks of commits that the end of the run leaves; people are told of these on the issue.
const PINNED_COMMITS: &str = "pinned_commits";
/// How long the store is asked to take, or to give, a bundle at the end and at the beginning of a run.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(500);

/// An issue's repository and mapping.
type Issue<'i> = (&'i RepositoryContext, &'i MappingRecord);

/// Keeps a checkpoint for other nodes. `None`: there are none, or it cannot be brought to them whole; then the run says so, and is
/// gone on with elsewhere from the last one that could.
pub(super) async fn bundle(
    run: &Run<'_>,
    worktree: &Worktree,
    visit: u32,
    (reference, commit): (&str, &CommitId),
) -> Result<Option<Bundle>, JournalError> {
    if run.context.state.shared().is_none() {
        return Ok(None);
    }
    // What did not change since the last border is there already.
    let last = run.journal.facts().bundled.clone().filter(|(_, last, _)| last == commit);
    if let Some((_, _, bundle)) = last {
        return Ok(Some(bundle));
    }
    let why = match bytes_of((run.context, &run.lease.mapping), worktree, (reference, commit)).await {
        Ok(Ok((bytes, prerequisite))) => {
            let file = run.journal.keep(&format!("bundles/visit-{visit}.bundle"), bytes).await?;
            return Ok(Some(Bundle { file, prerequisite }));
        }
        Ok(Err(why)) => why,
        Err(error) => error.to_string(),
    };
    let is_said = run.journal.facts().warnings.iter().any(|warning| warning.code == PINNED);
    if !is_said {
        run.journal.warn(
            PINNED,
            format!(
                "The work after visit {visit} is on this node alone, because {why}: another node would go on behind the last \
                 visit whose work it can have."
            ),
        );
    }
    Ok(None)
}

/// The bundle of a commit and the commit that it stands on, or why it cannot be brought to other nodes whole.
async fn bytes_of(
    (context, mapping): Issue<'_>,
    worktree: &Worktree,
    (reference, commit): (&str, &CommitId),
) -> Result<Result<(Vec<u8>, CommitId), String>, GitError> {
    let origin = &mapping.origin;
    let mut known = vec![origin.commit.clone()];
    for branch in [worktree.branch(), &origin.branch] {
        known.extend(context.last_seen(branch).await?);
    }
    if let Some(why) = worktree.not_in_a_bundle(commit, &known).await? {
        return Ok(Err(why));
    }
    let most = context.config.cluster.checkpoint_max;
    Ok(match context.checkout.bundle(reference, &origin.commit, most.0).await? {
        Some(bytes) => Ok((bytes, origin.commit.clone())),
        None => Err(format!("it has more than {most} (cluster.checkpoint_max)")),
    })
}

/// At the end of a run, in a cluster: what the branch has and the remote does not is kept for the next run, wherever that works. What
/// cannot be kept for other nodes is told, and stays here.
pub(super) async fn leave(run: &Run<'_>, workspace: &Workspace) {
    let Some(node) = run.context.state.store().node() else { return };
    let known = &run.lease.mapping.unpushed;
    let of = (run.context, &run.lease.mapping);
    let unpushed = match unpushed(of, &workspace.worktree).await {
        Ok(None) => None,
        Ok(Some((commit, _)))
            if known.as_ref().is_some_and(|left| left.commit == commit && left.bundle.is_some()) =>
        {
            // It made none of its own.
            return;
        }
        Ok(Some((commit, pushed))) => {
            let bundle = match upload(of, run.lease.run_id, &workspace.worktree, &commit).await {
                Ok(bundle) => Some(bundle),
                Err(why) => {
                    tell_pinned(run, &node, &commit, &why);
                    None
                }
            };
            Some(Unpushed { run_id: run.lease.run_id, node, commit, pushed, bundle })
        }
        Err(error) => {
            run.journal.warn(
                PINNED,
                format!("Whether this run leaves commits that are not pushed cannot be told: {error}."),
            );
            return;
        }
    };
    if unpushed == *known {
        return;
    }
    let left = unpushed.clone();
    if let Err(error) = run.lease.note(move |mapping| mapping.unpushed = left).await
        && let Some(left) = &unpushed
    {
        tell_pinned(run, &left.node, &left.commit, &error.to_string());
    }
}

/// What a person made of an issue's work on this node and the remote does not have, kept for the run that goes on with it, wherever that
/// works. `None` = there is nothing, or no cluster.
pub(super) async fn of_person(
    (context, mapping): Issue<'_>,
    worktree: &Worktree,
) -> Result<Option<Unpushed>, GitError> {
    let Some(node) = context.state.store().node() else { return Ok(None) };
    let Some((commit, pushed)) = unpushed((context, mapping), worktree).await? else { return Ok(None) };
    let run_id = mapping.run_id;
    let bundle = upload((context, mapping), run_id, worktree, &commit).await;
    if let Err(why) = &bundle {
        tracing::warn!(%run_id, "what was given back is on this node alone, because {why}");
    }
    Ok(Some(Unpushed { run_id, node, commit, pushed, bundle: bundle.ok() }))
}

fn tell_pinned(run: &Run<'_>, node: &str, commit: &CommitId, why: &str) {
    let text = format!(
        "The commits that are not pushed ({}) are on the node {node} alone, because {why}: a run on another node begins without them.",
        commit.short()
    );
    run.journal.warn(PINNED_COMMITS, text);
}

/// The branch's commit, if the remote does not have it, with what the remote has of the branch below it.
async fn unpushed(
    (context, mapping): Issue<'_>,
    worktree: &Worktree,
) -> Result<Option<(CommitId, Option<CommitId>)>, GitError> {
    let Some(head) = worktree.head().await? else { return Ok(None) };
    let seen = context.last_seen(worktree.branch()).await?;
    for known in std::iter::once(&mapping.origin.commit).chain(&seen) {
        if context.checkout.is_ancestor(&head, known).await? {
            return Ok(None);
        }
    }
    let below = match seen {
        Some(seen) if context.checkout.is_ancestor(&seen, &head).await? => Some(seen),
        _ => context.last_pushed(worktree.branch()).await?,
    };
    Ok(Some((head, below)))
}

/// Brings the branch's commits to the store; `Err` = why they are here alone.
async fn upload(
    (context, mapping): Issue<'_>,
    run_id: RunId,
    worktree: &Worktree,
    commit: &CommitId,
) -> Result<Bundle, String> {
    let made = bytes_of((context, mapping), worktree, (&mapping.branch.full(), commit)).await;
    let (bytes, prerequisite) = made.map_err(|error| error.to_string())??;
    let shared = context.state.shared().ok_or("there is no cluster")?;
    let blobs = shared.store().blobs(&shared.run(&context.repo, run_id));
    let file = asked(move || blobs.put("bundles/unpushed.bundle", &bytes)).await?;
    Ok(Bundle { file, prerequisite })
}

/// Asks the store, for a while.
async fn asked<T: Send + 'static>(
    mut ask: impl FnMut() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, String> {
    let work = tokio::task::spawn_blocking(move || {
        let begin = Stopwatch::start();
        loop {
            match ask() {
                Err(_) if begin.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
                done => return done,
            }
        }
    });
    work.await.map_err(|panic| panic.to_string())?.map_err(|error| error.to_string())
}

/// What another node made of the issue's branch, with what it left unpushed brought here, for the run that goes on from it. `None` = what
/// is here counts.
pub(super) async fn elsewhere(run: &Run<'_>) -> Result<Option<Elsewhere>, GitError> {
    let rescue = format!("refs/agentd/rescue/{}", run.lease.run_id);
    let unpushed = match &run.lease.mapping.unpushed {
        Some(left) if goes_on_from(run, left).await? => match bring(run, left).await {
            Ok(()) => Some(left.commit.clone()),
            Err(why) => {
                run.journal.warn(
                    PINNED,
                    format!(
                        "Run {} left commits that are not pushed ({}) on the node {}, and they are not here, because {why}: this \
                         run begins without them.",
                        left.run_id,
                        left.commit.short(),
                        left.node
                    ),
                );
                None
            }
        },
        _ => None,
    };
    Ok((run.lease.elsewhere || unpushed.is_some()).then_some(Elsewhere { unpushed, rescue }))
}

/// Whether the branch here lacks the commits and is to have them.
async fn goes_on_from(run: &Run<'_>, left: &Unpushed) -> Result<bool, GitError> {
    let before = run.lease.predecessor.as_ref().map(|before| &before.facts);
    if before.is_some_and(|facts| facts.checkpoint.is_some() || facts.committed.is_some())
        && !parked::is_given_back(run, left.run_id).await
    {
        // What is gone on with has them; what a person made of that since, it has not.
        return Ok(false);
    }
    if !run.lease.elsewhere && run.context.state.store().node().as_ref() == Some(&left.node) {
        // It left them and worked last: where the branch does not have them, a person has taken them out.
        return Ok(false);
    }
    let checkout = &run.context.checkout;
    let Some(here) = checkout.local_branch(&run.lease.mapping.branch).await? else { return Ok(true) };
    Ok(!checkout.has_commit(&left.commit).await? || !checkout.is_ancestor(&left.commit, &here).await?)
}

/// Sees to it that the commits are here, or says why they are not.
async fn bring(run: &Run<'_>, left: &Unpushed) -> Result<(), String> {
    let (context, checkout) = (run.context, &run.context.checkout);
    let told = |error: GitError| error.to_string();
    let reference = format!("refs/agentd/unpushed/{}", left.run_id);
    let remote = context.authorised_remote().await.map_err(|refusal| refusal.stop.message)?;
    if checkout.has_commit(&left.commit).await.map_err(told)? {
        checkout.keep_at(&reference, &left.commit).await.map_err(told)?;
    } else {
        let bundle = left.bundle.as_ref().ok_or("that node could not bring them to the others")?;
        if !checkout.has_commit(&bundle.prerequisite).await.map_err(told)? {
            let origin = &run.lease.mapping.origin.branch;
            context.origin_tip(origin, true).await.map_err(|refusal| refusal.stop.message)?;
        }
        let bytes = fetched(run, left, bundle.file.clone()).await?;
        let builds_on = (&bundle.prerequisite, remote.as_ref());
        checkout.take_bundle_of(bytes, builds_on, (&reference, &left.commit)).await.map_err(told)?;
    }
    if let (Some(pushed), Some(remote)) = (&left.pushed, &remote) {
        let branch = &run.lease.mapping.branch;
        context.remote_tip(remote, branch, true).await.map_err(|refusal| refusal.stop.message)?;
        checkout.note_pushed(remote, branch, pushed).await.map_err(told)?;
    }
    Ok(())
}

async fn fetched(run: &Run<'_>, left: &Unpushed, file: Artifact) -> Result<Vec<u8>, String> {
    let shared = run.context.state.shared().ok_or("there is no cluster")?;
    let blobs = shared.store().blobs(&shared.run(&run.context.repo, left.run_id));
    asked(move || blobs.get(&file)).await
}
