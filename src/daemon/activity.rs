//! Whether anything happens in a repository, and how often those are looked at where nothing does.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use crate::domain::name::RepoName;
use crate::github::{Client, Error, Fetched};

pub(super) const MINUTE: Duration = Duration::from_secs(60);
/// Requests in a minute that whole looks at repositories cost where nothing changes, at all of them together: with more of them
/// each one is looked at less often. Between its looks it is only asked whether anything changed.
const IDLE_A_MINUTE: u32 = 45;
/// A repository is asked whether anything changed no sooner than this after it was looked at or asked, where a credential may
/// send `USUAL_PACE`; where it may send more, sooner.
const ASKED_EACH: Duration = Duration::from_secs(30);
/// What `github.max_requests_per_minute` is unless it is set.
const USUAL_PACE: u32 = 300;
/// So long after a change a repository is looked at in each poll.
const LIVELY: Duration = Duration::from_secs(300);
/// So long it is looked at in each poll after one was heard of that no list showed: GitHub's lists may show it late.
const HEARD_OF: Duration = MINUTE;
/// So few repositories are looked at often enough: in each poll in the first minute, and then every half minute. They are not asked
/// between their looks.
const FEW: usize = 5;

/// When a repository was looked at, and what came of it.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Requests for lists that the last look made.
    pub requests: u32,
    /// When it was last looked at, whyever.
    pub seen_at: Option<Instant>,
    /// When one of its lists was last seen to change, after the first look.
    changed_at: Option<Instant>,
    /// Tag of its newest change; `None` = never asked.
    newest: Option<String>,
    /// When that was, if it has one.
    newest_at: Option<DateTime<Utc>>,
    /// When it was last asked whether anything changed.
    asked_at: Option<Instant>,
    /// When it last said so.
    heard_at: Option<Instant>,
}

impl Activity {
    /// A list is not as it was at the last look.
    pub fn changed(&mut self) {
        if self.seen_at.is_some() {
            self.changed_at = Some(Instant::now());
        }
    }

    /// Whether nothing has happened there for a while.
    pub fn is_idle(&self) -> bool {
        let rests = |at: Option<Instant>, time| at.is_none_or(|at: Instant| at.elapsed() >= time);
        self.seen_at.is_some() && rests(self.changed_at, LIVELY) && rests(self.heard_at, HEARD_OF)
    }

    /// Whether the pause after the last look is over.
    pub fn has_rested(&self, pause: Duration) -> bool {
        self.seen_at.is_none_or(|at| at.elapsed() >= pause)
    }

    /// Whether the newest change was read once.
    pub fn is_known(&self) -> bool {
        self.newest.is_some()
    }

    /// Whether it was ever asked for its newest change.
    pub fn was_asked(&self) -> bool {
        self.asked_at.is_some()
    }

    /// When something changed there last, as far as it was asked.
    pub fn newest_at(&self) -> Option<DateTime<Utc>> {
        self.newest_at
    }

    /// When it was last looked at or asked.
    pub fn last(&self) -> Option<Instant> {
        self.seen_at.max(self.asked_at)
    }

    /// Whether it is to be asked between two looks, which is done after such a pause.
    pub fn may_be_asked(&self, pause: Duration) -> bool {
        // Polls are never quite as far apart as they were to be.
        self.last().is_none_or(|at| at.elapsed() >= pause.mul_f64(0.95))
    }

    /// Asks whether anything changed since it was asked last; true the first time. One request, which costs nothing while
    /// nothing has.
    pub async fn ask(&mut self, client: &Client, repo: &RepoName) -> Result<bool, Error> {
        self.asked_at = Some(Instant::now());
        let changed = match client.newest_change(repo, self.newest.as_deref()).await? {
            Fetched::Unchanged => false,
            Fetched::Fresh(at, tag) => {
                self.newest_at = at;
                self.newest = Some(tag.unwrap_or_default());
                true
            }
        };
        if changed {
            self.heard_at = Some(Instant::now());
        }
        Ok(changed)
    }

    /// Reads the newest change before the first look, so that what comes after it is told from it.
    pub async fn begin(&mut self, client: &Client, repo: &RepoName) {
        self.asked_at = Some(Instant::now());
        if let Ok(Fetched::Fresh(at, tag)) = client.newest_change(repo, None).await {
            self.newest_at = at;
            self.newest = Some(tag.unwrap_or_default());
        }
    }
}

/// How long each idle repository is left alone, where one look at all of them makes so many requests.
pub(super) fn idle_pause(requests: u32) -> Duration {
    MINUTE * requests / IDLE_A_MINUTE
}

/// Whether there are so few repositories that each is looked at every half minute at least.
pub(super) fn are_few(repositories: usize) -> bool {
    repositories <= FEW
}

/// Whether all repositories are looked at in each poll: a daemon of a few that has just begun.
pub(super) fn is_new(repositories: usize, began: Duration) -> bool {
    are_few(repositories) && began < MINUTE
}

/// How long a repository is left alone before it is asked whether anything changed.
pub(super) fn question_pause(requests_per_minute: u32, interval: Duration) -> Duration {
    (ASKED_EACH * USUAL_PACE / requests_per_minute.max(USUAL_PACE)).max(interval)
}

/// How many repositories one poll asks whether anything changed. With the looks at idle ones that is less than half of what a
/// credential may send in a minute: the work waits for its requests once half of them are used up. `part` = this node's of all
/// repositories.
pub(super) fn asked_in_a_poll(requests_per_minute: u32, interval: Duration, part: f64) -> usize {
    let in_a_minute = f64::from(requests_per_minute.saturating_sub(IDLE_A_MINUTE)) * 0.4 * part;
    let asked = in_a_minute * interval.as_secs_f64() / MINUTE.as_secs_f64();
    // At least one, unless there is nothing left to ask with.
    if requests_per_minute <= IDLE_A_MINUTE { 0 } else { (asked as usize).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifty_repositories_are_asked_in_each_poll_two_hundred_in_every_fourth_and_half_of_all_requests_is_for_the_work()
     {
        let half = Duration::from_secs(30);
        let asked = asked_in_a_poll(300, half, 1.0);
        assert!(asked >= 50 && asked * 4 >= 200 && asked * 2 + 45 < 150, "{asked}");
        assert_eq!(asked_in_a_poll(300, half, 0.5), asked / 2, "a node's part");
        assert_eq!(asked_in_a_poll(300, Duration::from_secs(1), 1.0), 1);
        assert_eq!(asked_in_a_poll(60, Duration::from_secs(1), 1.0), 1, "one at least");
        assert_eq!(asked_in_a_poll(45, half, 1.0), 0, "the looks alone take all there is");
        let second = Duration::from_secs(1);
        assert_eq!(question_pause(300, second), half, "polls that are near each other do not ask each time");
        assert_eq!(question_pause(3_000, second), second * 3);
        assert_eq!((question_pause(100_000, second), question_pause(20, MINUTE)), (second, MINUTE));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_heard_of_is_looked_at_for_a_minute_and_what_changed_for_five() {
        let mut activity = Activity::default();
        activity.changed();
        assert!(!activity.is_idle(), "it was never looked at");
        activity.seen_at = Some(Instant::now());
        assert!(activity.is_idle(), "what the first look finds is no change");
        activity.heard_at = Some(Instant::now());
        assert!(!activity.is_idle());
        tokio::time::advance(HEARD_OF).await;
        assert!(activity.is_idle());
        activity.changed();
        tokio::time::advance(HEARD_OF).await;
        assert!(!activity.is_idle());
        tokio::time::advance(LIVELY).await;
        assert!(activity.is_idle() && activity.may_be_asked(MINUTE));
        activity.asked_at = Some(Instant::now());
        assert!(
            !activity.may_be_asked(Duration::from_secs(1)),
            "polls that are near each other do not ask each time"
        );
    }
}
