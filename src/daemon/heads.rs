//! Many open pull requests: how their checks stand is asked for fifty at a time, and those of which nothing is expected at
//! growing intervals.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::poll::Watch;
use super::pulls::PullLook;
use crate::github::{Client, Error, HEADS_AT_ONCE, Pull};

/// The longest time that a pull request is left alone.
const LONGEST: Duration = Duration::from_secs(600);

impl Watch {
    /// Looks at pull requests whose time has come; `pause` = how long one is left alone of which something is expected.
    pub(super) async fn look_at_heads(
        &mut self,
        client: &Client,
        due: &[Pull],
        pause: Duration,
        now: DateTime<Utc>,
    ) -> Result<(), Error> {
        for some in due.chunks(HEADS_AT_ONCE) {
            let numbers: Vec<u64> = some.iter().map(|pull| pull.number).collect();
            let heads = client.heads(&self.watched.name, &numbers).await?;
            for pull in some {
                let looked = self.pulls.looked.entry(pull.number).or_insert_with(|| PullLook::nothing(now));
                looked.at = now;
                let changed = heads.get(&pull.number).is_some_and(|head| looked.state.take(head));
                if changed {
                    looked.answered = false;
                }
                looked.rest = match changed || looked.state.is_unsettled() {
                    true => pause,
                    false => (looked.rest * 2).clamp(pause, LONGEST.max(pause)),
                };
            }
        }
        Ok(())
    }
}
