//! What other nodes of a cluster need in order to go on with a run: its checkpoints as bundles, beside the journal that names them.

use super::super::run::Run;
use crate::domain::event::Bundle;
use crate::domain::name::CommitId;
use crate::engine::journal::JournalError;

/// The code of the warning that says that a run's last checkpoint is here alone.
const PINNED: &str = "pinned";

/// Keeps a checkpoint for other nodes. `None`: there are none, or it is too large for them; then the run says so, and is gone on with
/// elsewhere from the last one that was not.
pub(super) async fn bundle(
    run: &Run<'_>,
    visit: u32,
    reference: &str,
    commit: &CommitId,
) -> Result<Option<Bundle>, JournalError> {
    if run.context.state.shared().is_none() {
        return Ok(None);
    }
    // What did not change since the last border is there already.
    let last = run.journal.facts().bundled.clone().filter(|(_, last, _)| last == commit);
    if let Some((_, _, bundle)) = last {
        return Ok(Some(bundle));
    }
    let prerequisite = run.lease.mapping.origin.commit.clone();
    let most = run.context.config.cluster.checkpoint_max;
    let why = match run.context.checkout.bundle(reference, &prerequisite, most).await {
        Ok(Some(bytes)) => {
            let file = run.journal.keep(&format!("bundles/visit-{visit}.bundle"), bytes).await?;
            return Ok(Some(Bundle { file, prerequisite }));
        }
        Ok(None) => format!("it has more than {most} bytes (cluster.checkpoint_max)"),
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
