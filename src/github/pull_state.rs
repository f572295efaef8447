//! Checks and state of a pull request. Reading an unchanged one again costs nothing.

use super::checks::{HeadState, runs_of, statuses_of};
use super::client::Client;
use super::error::{Error, ErrorKind};
use super::pulls::Pull;
use super::request::{Ask, Reply};
use super::rest_wire::PullWire;
use crate::domain::head_check::{CheckOutcome, HeadCheck};
use crate::domain::name::RepoName;

/// The state of a pull request, kept with the tags that make reading an unchanged one free.
#[derive(Debug, Clone, Default)]
pub struct PullState {
    head: String,
    checks: Tagged<Vec<HeadCheck>>,
    statuses: Tagged<Vec<HeadCheck>>,
    mergeable: Tagged<Option<bool>>,
}

#[derive(Debug, Clone, Default)]
struct Tagged<T> {
    etag: Option<String>,
    value: T,
    /// The token may not read it: it is not asked again.
    denied: bool,
}

impl PullState {
    /// Check runs, then commit statuses, of the head.
    pub fn checks(&self) -> impl Iterator<Item = &HeadCheck> {
        self.checks.value.iter().chain(&self.statuses.value)
    }

    /// Whether something is expected of its checks.
    pub fn is_unsettled(&self) -> bool {
        self.checks().any(|check| check.outcome == CheckOutcome::Running)
    }

    /// Takes what was read with others. True = it differs.
    pub fn take(&mut self, found: &HeadState) -> bool {
        let same = self.head == found.head
            && self.checks.value == found.checks
            && self.statuses.value.is_empty()
            && self.mergeable.value == found.mergeable;
        if !same {
            *self = Self {
                head: found.head.clone(),
                checks: Tagged { value: found.checks.clone(), ..Tagged::default() },
                mergeable: Tagged { value: found.mergeable, ..Tagged::default() },
                ..Self::default()
            };
        }
        !same
    }

    /// Whether it can be merged; `None` = GitHub does not know yet.
    pub fn mergeable(&self) -> Option<bool> {
        self.mergeable.value
    }
}

impl Client {
    /// Reads the state of a pull request. True = something has changed.
    pub async fn look_at_pull(
        &self,
        repo: &RepoName,
        pull: &Pull,
        known: &mut PullState,
    ) -> Result<bool, Error> {
        let (number, head) = (pull.number, &pull.head_sha);
        let mut changed = known.head != *head;
        if changed {
            *known = PullState { head: head.clone(), ..PullState::default() };
        }
        let doing = format!("reading the checks of {head} of {repo}");
        let path = format!("/repos/{repo}/commits/{head}/check-runs?per_page=100");
        changed |= optional(
            self.again(&mut known.checks, &path, &doing, "checks: read", checks).await,
            &mut known.checks,
        )?;
        if let Err(error) = self.tell_time_outs(repo, &mut known.checks.value).await {
            // It is read again with the next look.
            known.checks.etag = None;
            return Err(error);
        }
        let doing = format!("reading the commit statuses of {head} of {repo}");
        let path = format!("/repos/{repo}/commits/{head}/status?per_page=100");
        changed |= optional(
            self.again(&mut known.statuses, &path, &doing, "commit statuses: read", statuses).await,
            &mut known.statuses,
        )?;
        let doing = format!("reading pull request {number} of {repo}");
        let path = format!("/repos/{repo}/pulls/{number}");
        changed |= self.again(&mut known.mergeable, &path, &doing, "pull requests: read", mergeable).await?;
        Ok(changed)
    }

    /// Reads every page, unless the only one is as it was. True = it was read.
    async fn again<T: Default>(
        &self,
        held: &mut Tagged<T>,
        path: &str,
        doing: &str,
        needs: &'static str,
        take: impl Fn(&mut T, &Reply) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        if held.denied {
            return Ok(false);
        }
        let mut url = self.url(path);
        let mut tag = held.etag.take();
        let mut value = T::default();
        let mut pages = 0;
        loop {
            let reply = self.send(Ask::get(url.clone(), doing, needs).etag(tag.as_deref())).await?;
            if reply.unchanged() {
                held.etag = tag;
                return Ok(false);
            }
            tag = None;
            pages += 1;
            take(&mut value, &reply)?;
            match self.next_page(&reply, &url)? {
                Some(next) => url = next,
                None => {
                    // A page's tag says nothing of the others.
                    held.etag = reply.etag().filter(|_| pages == 1);
                    held.value = value;
                    return Ok(true);
                }
            }
        }
    }
}

/// Without the permission there is nothing to follow.
fn optional<T: Default>(read: Result<bool, Error>, held: &mut Tagged<T>) -> Result<bool, Error> {
    match read {
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Forbidden { .. }) => {
            tracing::debug!(%error, "not followed");
            *held = Tagged { denied: true, ..Tagged::default() };
            Ok(false)
        }
        other => other,
    }
}

fn checks(found: &mut Vec<HeadCheck>, reply: &Reply) -> Result<(), Error> {
    found.extend(runs_of(reply.json()?));
    Ok(())
}

fn statuses(found: &mut Vec<HeadCheck>, reply: &Reply) -> Result<(), Error> {
    found.extend(statuses_of(reply.json()?));
    Ok(())
}

fn mergeable(known: &mut Option<bool>, reply: &Reply) -> Result<(), Error> {
    *known = reply.json::<PullWire>()?.mergeable;
    Ok(())
}
