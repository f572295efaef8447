//! The run that works on an issue beside the daemon's loop, such as that of `agentd run`: which it is, and asking it to end.

use super::stop_request::{self, StopRequest};
use super::taken::unreadable;
use crate::domain::issue::IssueKey;
use crate::domain::refusal::Refusal;
use crate::domain::run::RunId;
use crate::domain::stop::StopDetail;
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::{MappingRecord, mapping_of};
use crate::repository::resources::blocking;
use crate::store::run_dir::RunDir;
use crate::sys::holder_format::Holder;
use crate::sys::host::Host;

/// What is to be done with that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BesideRequest {
    /// Only to know it.
    Know,
    /// One last report, then the end.
    Stop,
    /// The same of a run of this process, which was told already: where the process dies before that, whoever goes on with it hears it.
    KeepStop,
}

/// The run of whoever else works on an issue; `None` = nobody does, or not yet with a run.
///
/// # Errors
/// What is asked of it does not reach it from here: it is on another machine, or has another state directory.
pub async fn look(
    context: &RepositoryContext,
    key: &IssueKey,
    request: BesideRequest,
) -> Result<Option<RunId>, Refusal> {
    let lease = context.look(context.lease(key)).await?;
    let mapping = lease.as_ref().and_then(|lease| mapping_of(lease.record.as_ref()?));
    let of_this_process = request == BesideRequest::KeepStop;
    let holder = lease.and_then(|lease| lease.holder).filter(|holder| is_own(holder) == of_this_process);
    let Some(holder) = holder else { return Ok(None) };
    let is_shared = context.state.shared().is_some();
    let Some(dir) = run_of(context, (key, mapping.as_ref()), &holder, is_shared)? else { return Ok(None) };
    let run_id = dir.run_id;
    if matches!(request, BesideRequest::Stop | BesideRequest::KeepStop) {
        blocking(move || stop_request::ask(&dir, &StopRequest::LastReport)).await?.map_err(unreadable)?;
    }
    Ok(Some(run_id))
}

/// Where that run hears what is asked of it; `None` = it has not begun.
pub(super) fn run_of(
    context: &RepositoryContext,
    (key, mapping): (&IssueKey, Option<&MappingRecord>),
    holder: &Holder,
    is_anywhere: bool,
) -> Result<Option<RunDir>, Refusal> {
    let busy = |what: &str| {
        let message = format!("Issue {key} is being worked on by {holder}, {what}.");
        Err(Refusal::new(StopDetail::BranchBusy, message).hint("ask for it where that one works"))
    };
    if !is_anywhere && holder.host != Host::current().name {
        return busy("on another machine");
    }
    let Some(mapping) = mapping.filter(|mapping| mapping.instance.as_str() == holder.instance) else {
        return Ok(None);
    };
    let dir = context.state.run(&context.repo, mapping.run_id);
    if !is_anywhere && !dir.path.exists() {
        return busy("with another state directory");
    }
    Ok(Some(dir))
}

/// Whether this process holds it itself, for a run that is on its way out.
fn is_own(holder: &Holder) -> bool {
    let here = Host::current();
    holder.pid == std::process::id() && holder.host == here.name && holder.boot_id == here.boot_id
}
