//! What a person asks of an issue or of its run. It is the same whether a command carries it out by itself, or sends it as a message to
//! the node that polls the repository.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::domain::issue::IssueKey;
use crate::domain::money::Money;
use crate::domain::name::RepoName;
use crate::domain::run::{Principal, PrincipalSource, RunId};

/// Version of [`RequestMessage`].
pub const REQUEST_SCHEMA: &str = "agentd.request.v1";
/// Most bytes of a message that asks.
pub const LONGEST_REQUEST: usize = 16 * 1024;
/// For how many days it is there to be heard, as the stream keeps it.
pub const HEARD_WITHIN_DAYS: i64 = 7;
/// How far the clock of who asks may be ahead.
const MOST_AHEAD: TimeDelta = TimeDelta::minutes(5);
/// Longest name of a user or a host, in bytes.
const LONGEST_NAME: usize = 64;
/// Least and most digits of a hash that names a proposal.
const DIGITS: std::ops::RangeInclusive<usize> = 8..=64;
/// What a cent has of the least part of [`Money`].
const CENT: u64 = 10_000;

/// One request. Its id tells it from every other one: carried out again, it changes nothing more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PersonRequest {
    /// New for each.
    pub id: Uuid,
    /// The issue's repository.
    pub repository: RepoName,
    /// The issue.
    pub issue: IssueKey,
    /// Who asks.
    pub by: Asker,
    /// When, by the clock of their host.
    pub at: DateTime<Utc>,
    /// What is asked.
    #[serde(flatten)]
    pub what: PersonAsks,
}

/// Who asks, as the host of the command knows its user. Nobody vouches for it but who has a key that may send requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Asker {
    /// Number of the user.
    pub uid: u32,
    /// Its name.
    pub user: String,
    /// The host.
    pub host: String,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PersonAsks {
    /// A run is to end.
    Stop {
        /// Which. Where it was cut off, the one that goes on with it is meant.
        run_id: RunId,
        /// Without a last report.
        at_once: bool,
    },
    /// The issue may cost more.
    Extend {
        /// So much more.
        amount: Money,
    },
    /// The agent is to be told something.
    Say {
        /// What.
        text: String,
    },
    /// The question for which the issue waits is answered.
    Answer {
        /// The run that asked.
        run_id: RunId,
        /// The answer, or an option's number.
        text: String,
    },
    /// The plan for which the issue waits may be carried out, as its comment reads.
    ApprovePlan {
        /// The run that proposed it.
        run_id: RunId,
        /// Of the plan as it was posted.
        sha256: String,
    },
    /// The plan for which the issue waits is made again.
    RejectPlan {
        /// The run that proposed it.
        run_id: RunId,
        /// Why.
        text: String,
    },
    /// A call that waits may run, once.
    Approve {
        /// The run that left it.
        run_id: RunId,
        /// Its hash, or the first digits.
        proposal: String,
        /// How long the approval holds, from when it was asked for.
        holds_ms: u64,
        /// When the decision was made that stood then; this one takes its place.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instead_of: Option<DateTime<Utc>>,
    },
    /// A call that waits may not run.
    Deny {
        /// The run that left it.
        run_id: RunId,
        /// Its hash, or the first digits.
        proposal: String,
        /// When the decision was made that stood then; this one takes its place.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instead_of: Option<DateTime<Utc>>,
    },
}

/// A request as a message, and later on the same subject with what became of it: the last one counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RequestMessage {
    /// [`REQUEST_SCHEMA`].
    pub schema_version: String,
    /// What is asked.
    #[serde(flatten)]
    pub request: PersonRequest,
    /// What became of it; `None` = nobody has heard it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<RequestAnswer>,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RequestAnswer {
    /// The node that heard it.
    pub heard_by: String,
    /// Why it was not carried out; `None` = it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl Asker {
    /// The name by which this user asks, as its own host knows it. Characters that no such name has are left out.
    pub fn new(uid: u32, user: &str, host: &str) -> Self {
        let plain =
            |text: &str| -> String { text.chars().filter(|c| is_plain(*c)).take(LONGEST_NAME).collect() };
        Self { uid, user: plain(user), host: plain(host) }
    }

    /// For approvals.
    pub fn principal(&self) -> Principal {
        let name = format!("{}@{}", self.uid, self.host);
        Principal::new(PrincipalSource::Local, &name, Some(self.user.clone()))
    }

    /// As records name it: on its own host without the host.
    pub fn login(&self, here: &str) -> String {
        match self.host == here {
            true => format!("local:{}", self.uid),
            false => format!("local:{}@{}", self.uid, self.host),
        }
    }
}

/// One that has nothing in it that a text for people could take for something else.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

impl PersonRequest {
    /// Why this cannot be carried out, whatever the issue is like; for one that came as a message, which may say anything.
    pub fn fault(&self, now: DateTime<Utc>) -> Option<String> {
        let names = [&self.by.user, &self.by.host];
        if names.iter().any(|name| name.len() > LONGEST_NAME || !name.chars().all(is_plain)) {
            return Some("it does not say who asks".to_owned());
        }
        if self.at > now + MOST_AHEAD {
            return Some(format!("the clock of {} is ahead: it was asked at {}", self.by.host, self.at));
        }
        if now - self.at > TimeDelta::days(HEARD_WITHIN_DAYS) {
            return Some(format!("nobody heard it within {HEARD_WITHIN_DAYS} days"));
        }
        match (&self.what, self.issue.number()) {
            (PersonAsks::Extend { amount }, _) if amount.micros() == 0 || amount.micros() % CENT != 0 => {
                Some(format!("{amount} is no amount in whole cents above zero"))
            }
            (
                PersonAsks::Say { .. }
                | PersonAsks::Extend { .. }
                | PersonAsks::Answer { .. }
                | PersonAsks::ApprovePlan { .. }
                | PersonAsks::RejectPlan { .. },
                None | Some(0),
            ) => Some(format!("{} is no issue's number", self.issue)),
            (PersonAsks::Answer { text, .. } | PersonAsks::RejectPlan { text, .. }, _)
                if text.trim().is_empty() =>
            {
                Some("it has no words".to_owned())
            }
            (PersonAsks::ApprovePlan { sha256, .. }, _)
                if sha256.len() != *DIGITS.end() || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
            {
                Some("no plan has such a hash".to_owned())
            }
            (PersonAsks::Say { text }, _) if text.trim().is_empty() => Some("nothing is said".to_owned()),
            (PersonAsks::Approve { proposal, .. } | PersonAsks::Deny { proposal, .. }, _)
                if !DIGITS.contains(&proposal.len())
                    || !proposal.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
            {
                Some("no call has such a hash".to_owned())
            }
            (PersonAsks::Approve { .. }, _) if self.expires_at().is_none_or(|end| end <= now) => {
                Some("the approval has expired before anybody heard it".to_owned())
            }
            _ => None,
        }
    }

    /// How long an approval that is asked for holds; `None` where the time is out of range, or something else is asked.
    fn expires_at(&self) -> Option<DateTime<Utc>> {
        let PersonAsks::Approve { holds_ms, .. } = &self.what else { return None };
        self.at.checked_add_signed(TimeDelta::milliseconds(i64::try_from(*holds_ms).ok()?))
    }
}

impl RequestMessage {
    /// A message that asks, or answers.
    pub fn new(request: PersonRequest, answer: Option<RequestAnswer>) -> Self {
        Self { schema_version: REQUEST_SCHEMA.to_owned(), request, answer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::cluster::cells::read;

    fn asked(what: PersonAsks) -> PersonRequest {
        PersonRequest {
            id: Uuid::nil(),
            repository: RepoName::parse("demo/shop").unwrap(),
            issue: IssueKey::Number(7),
            by: Asker::new(1000, "anna", "laptop"),
            at: DateTime::UNIX_EPOCH,
            what,
        }
    }

    #[test]
    fn a_message_is_read_as_it_was_written_with_its_answer_and_a_later_version_is_refused() {
        let decided = Some(DateTime::UNIX_EPOCH);
        let run_id = RunId(Uuid::nil());
        for what in [
            PersonAsks::Stop { run_id, at_once: true },
            PersonAsks::Extend { amount: Money::from_micros(2_500_000) },
            PersonAsks::Say { text: "keep the name".into() },
            PersonAsks::Answer { run_id, text: "2".into() },
            PersonAsks::ApprovePlan { run_id, sha256: "ab".repeat(32) },
            PersonAsks::RejectPlan { run_id, text: "round half up".into() },
            PersonAsks::Approve { run_id, proposal: "ab".repeat(32), holds_ms: 1, instead_of: decided },
            PersonAsks::Deny { run_id, proposal: "ab".repeat(32), instead_of: None },
        ] {
            for refused in [None, Some("why".to_owned())] {
                let answer = RequestAnswer { heard_by: "a".into(), refused };
                for answer in [None, Some(answer)] {
                    let message = RequestMessage::new(asked(what.clone()), answer);
                    let text = serde_json::to_string(&message).unwrap();
                    assert_eq!(read::<RequestMessage>(&text, REQUEST_SCHEMA), Ok(message));
                    let later = text.replace("request.v1", "request.v2");
                    assert!(read::<RequestMessage>(&later, REQUEST_SCHEMA).is_err());
                }
            }
        }
    }

    #[test]
    fn what_a_message_says_is_looked_at_before_anything_is_done() {
        let now = DateTime::UNIX_EPOCH + TimeDelta::hours(1);
        let run_id = RunId(Uuid::nil());
        let approve = |proposal: &str, holds_ms| PersonAsks::Approve {
            run_id,
            proposal: proposal.into(),
            holds_ms,
            instead_of: None,
        };
        let money = |micros| PersonAsks::Extend { amount: Money::from_micros(micros) };
        let said = |text: &str| PersonAsks::Say { text: text.into() };
        let hour = 3_600_000;
        for good in [money(10_000), said("x"), approve("0123abcd", 2 * hour)] {
            assert_eq!(asked(good).fault(now), None);
        }
        let bad = [
            (money(0), "amount"),
            (money(15_000), "amount"),
            (said("  \n"), "nothing is said"),
            (PersonAsks::Answer { run_id, text: " ".into() }, "no words"),
            (PersonAsks::RejectPlan { run_id, text: String::new() }, "no words"),
            (PersonAsks::ApprovePlan { run_id, sha256: "ab".repeat(4) }, "hash"),
            (PersonAsks::ApprovePlan { run_id, sha256: "xy".repeat(32) }, "hash"),
            (approve("0123abc", 2 * hour), "hash"),
            (approve("../../../../x", 2 * hour), "hash"),
            (approve(&"ab".repeat(33), 2 * hour), "hash"),
            (approve("0123abcd", hour), "expired"),
            (approve("0123abcd", u64::MAX), "expired"),
        ];
        for (what, words) in bad {
            let fault = asked(what).fault(now).unwrap();
            assert!(fault.contains(words), "{fault}");
        }
        let word = PersonRequest { issue: IssueKey::Word("abc".into()), ..asked(said("x")) };
        assert!(word.fault(now).is_some());
        let ahead = PersonRequest { at: now + TimeDelta::minutes(6), ..asked(said("x")) };
        assert!(ahead.fault(now).unwrap().contains("ahead"));
        assert!(asked(said("x")).fault(now + TimeDelta::days(8)).unwrap().contains("7 days"));
        let by = Asker { uid: 0, user: "@everyone `x`".into(), host: "h".into() };
        assert!(PersonRequest { by, ..asked(said("x")) }.fault(now).is_some());
        assert_eq!(
            Asker::new(0, "@every one", "h\n1"),
            Asker { uid: 0, user: "everyone".into(), host: "h1".into() }
        );
    }
}
