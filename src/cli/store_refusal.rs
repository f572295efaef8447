//! In a cluster: why a run of this process is not begun, as a daemon of this node would begin none.

use crate::daemon::status_format::ClockSkew;
use crate::domain::cluster::clock_skew::too_far;
use crate::domain::refusal::Refusal;
use crate::domain::stop::StopDetail;
use crate::repository::context::RepositoryContext;

/// Looks how the store is for this node. `None` = a run may begin, or there is no cluster. What cannot be told stands in nobody's way: a run
/// waits for the store by itself.
pub async fn refusal(site: &RepositoryContext) -> Option<Refusal> {
    let (state, clock) = (site.state.clone(), site.clock.clone());
    let looked = tokio::task::spawn_blocking(move || {
        let seen = state.store().servers();
        (clock.now(), seen)
    });
    let (now, seen) = match looked.await {
        Ok((now, Ok(Some(seen)))) => (now, seen),
        Ok((_, Ok(None))) => return None,
        Ok((_, Err(error))) => {
            tracing::debug!("it cannot be told how the store is: {error}");
            return None;
        }
        Err(panic) => {
            tracing::error!(%panic, "it cannot be told how the store is");
            return None;
        }
    };
    let most = site.config.cluster.max_clock_skew.0;
    let refused =
        |words: String| Refusal { transient: true, ..Refusal::new(StopDetail::StoreUnavailable, words) };
    if let Some(off) = seen.time.and_then(|time| too_far(now, time, seen.under_way, most)) {
        let skew = ClockSkew { since: now, seconds: off.num_seconds(), most_seconds: most.as_secs() };
        let told = refused(format!("clock_skew: {skew}; this node begins nothing."));
        return Some(told.hint("set the clocks of this host and of the servers by NTP"));
    }
    let full = seen.full?;
    let told = refused(format!("store_full: {full}; no run begins until there is more."));
    Some(told.hint("let the stream have more bytes, or make `cluster.retention` shorter"))
}
