//! When what waits in an inbox starts a follow-up run: a pure rule of what people did, when, and how often before.

use chrono::{DateTime, TimeDelta, Utc};

use super::inbox_format::{Fate, Heard, Inbox};
use crate::config::conversation_file::{ConversationTable, StartOn};
use crate::domain::remark::{RemarkId, RemarkKind, ReviewState, Standing};

/// How long the review of a comment is waited for.
const UNKNOWN_REVIEW: TimeDelta = TimeDelta::seconds(60);

/// What the rules depend on beside the inbox.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// `[conversation]`.
    pub table: &'a ConversationTable,
    /// The name by which agentd is mentioned; empty = nobody can.
    pub name: &'a str,
}

/// Who starts a follow-up run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starter {
    /// A person whose words count.
    Person,
    /// Only bots that are listed.
    Bot,
}

/// A follow-up run that is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Due {
    /// Not before this time, by GitHub's clock.
    pub at: DateTime<Utc>,
    /// Who starts it.
    pub by: Starter,
    /// The newest remark that counts: whoever wrote it asks for the run.
    pub asked: Box<Heard>,
}

impl Rules<'_> {
    /// The follow-up run that what waits asks for; `None` = nothing that counts waits. It starts when nothing that counts
    /// has come for the quiet period, at the latest when the first one has waited for the longest time.
    pub fn due(&self, inbox: &Inbox) -> Option<Due> {
        let waiting = inbox.to_be_told();
        let counting: Vec<&&Heard> = waiting.iter().filter(|heard| self.counts(heard, inbox)).collect();
        let came: Vec<DateTime<Utc>> = counting.iter().map(|heard| came(heard, inbox)).collect();
        let (first, last) = (came.iter().min()?, came.iter().max()?);
        let span = |of: crate::config::Span| TimeDelta::from_std(of.0).unwrap_or(TimeDelta::MAX);
        let after =
            |at: &DateTime<Utc>, span| at.checked_add_signed(span).unwrap_or(DateTime::<Utc>::MAX_UTC);
        let at = after(last, span(self.table.quiet_period)).min(after(first, span(self.table.max_wait)));
        let last = counting.last()?;
        let person = counting.iter().rev().find(|heard| heard.standing == Some(Standing::Trusted));
        let by = if person.is_some() { Starter::Person } else { Starter::Bot };
        Some(Due { at, by, asked: Box::new((**person.unwrap_or(last)).clone()) })
    }

    /// Whether a remark that waits starts a follow-up run, rather than wait for one.
    pub fn counts(&self, heard: &Heard, inbox: &Inbox) -> bool {
        self.actions(heard, inbox).iter().any(|action| self.table.start_on.contains(action))
    }

    fn actions(&self, heard: &Heard, inbox: &Inbox) -> Vec<StartOn> {
        let remark = &heard.remark;
        let mut actions = Vec::new();
        match (remark.kind, remark.state) {
            (RemarkKind::Review, Some(ReviewState::ChangesRequested)) => {
                if !withdrawn(heard, inbox) && !has_nothing_left(heard, inbox) {
                    actions.push(StartOn::ChangesRequested);
                }
            }
            (RemarkKind::Review, Some(ReviewState::Approved)) => actions.push(StartOn::Approval),
            (RemarkKind::ReviewComment, _) => {
                let review = remark.review.and_then(|id| inbox.remarks.get(&RemarkId::Review(id)));
                let approved =
                    review.is_some_and(|review| review.remark.state == Some(ReviewState::Approved));
                actions.push(if approved { StartOn::Approval } else { StartOn::ReviewComments });
            }
            // A review that says nothing by itself only holds its comments together.
            (RemarkKind::Review, _) if remark.text.trim().is_empty() => {}
            _ => actions.push(StartOn::Comment),
        }
        if mentions(&remark.text, self.name) {
            actions.push(StartOn::Mention);
        }
        actions
    }
}

/// When a remark came. A comment whose review was not read yet may be one of an approving review: it is given time.
fn came(heard: &Heard, inbox: &Inbox) -> DateTime<Utc> {
    let review = heard.remark.review.map(RemarkId::Review);
    let known = review.is_none_or(|review| inbox.remarks.contains_key(&review));
    if known { heard.remark.created } else { heard.remark.created + UNKNOWN_REVIEW }
}

/// Whether whoever asked for changes has approved since.
fn withdrawn(heard: &Heard, inbox: &Inbox) -> bool {
    inbox.remarks.values().any(|other| {
        other.remark.state == Some(ReviewState::Approved)
            && other.remark.login == heard.remark.login
            && (other.remark.created, other.remark.id) > (heard.remark.created, heard.remark.id)
    })
}

/// Whether a review without words has only comments that are never told: they were resolved, deleted or hidden.
fn has_nothing_left(heard: &Heard, inbox: &Inbox) -> bool {
    let is_of = |other: &&Heard| other.remark.review.map(RemarkId::Review) == Some(heard.remark.id);
    let mut comments = inbox.remarks.values().filter(is_of).peekable();
    heard.remark.text.trim().is_empty()
        && comments.peek().is_some()
        && comments.all(|comment| comment.fate == Fate::Dropped)
}

/// Whether a text mentions somebody: `@name`, outside of quotes and code.
pub fn mentions(text: &str, name: &str) -> bool {
    let name = name.trim().trim_start_matches('@').to_ascii_lowercase();
    let name = name.strip_suffix("[bot]").unwrap_or(&name);
    if name.is_empty() {
        return false;
    }
    let mut fenced = false;
    text.lines().any(|line| {
        let line = line.trim_start();
        if line.starts_with("```") || line.starts_with("~~~") {
            fenced = !fenced;
            return false;
        }
        if fenced || line.starts_with('>') {
            return false;
        }
        // Every second part is between back quotes.
        line.split('`').step_by(2).any(|part| is_in(&part.to_ascii_lowercase(), name))
    })
}

fn is_in(part: &str, name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    part.match_indices('@').any(|(at, _)| {
        let before = part[..at].chars().next_back();
        let after = part[at + 1..].strip_prefix(name);
        !before.is_some_and(|c| word(c) || c == '/')
            && after.is_some_and(|rest| !rest.chars().next().is_some_and(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::inbox::Author;
    use crate::domain::remark::Remark;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::<Utc>::UNIX_EPOCH + TimeDelta::days(20_000) + TimeDelta::seconds(seconds)
    }

    fn remark(kind: RemarkKind, id: u64, seconds: i64, text: &str) -> Remark {
        let json = serde_json::json!({
            "kind": kind, "id": RemarkId::new(kind, id), "number": 8, "login": "ada", "created": at(seconds), "text": text,
        });
        serde_json::from_value(json).unwrap()
    }

    fn inbox(remarks: Vec<Remark>) -> Inbox {
        let mut inbox = Inbox::default();
        for remark in remarks {
            let id = remark.id;
            inbox.hear(remark, Author::default(), false, at(0));
            inbox.remarks.get_mut(&id).unwrap().standing = Some(Standing::Trusted);
        }
        inbox
    }

    fn due(inbox: &Inbox) -> Option<i64> {
        let table = ConversationTable::default();
        let due = Rules { table: &table, name: "robo" }.due(inbox)?;
        Some((due.at - at(0)).num_seconds())
    }

    fn review(id: u64, seconds: i64, state: ReviewState) -> Remark {
        Remark { state: Some(state), ..remark(RemarkKind::Review, id, seconds, "words") }
    }

    #[test]
    fn what_people_do_starts_a_run_or_waits() {
        use RemarkKind::{IssueComment, PullRequestComment, ReviewComment};
        assert_eq!(due(&inbox(vec![review(1, 0, ReviewState::ChangesRequested)])), Some(90));
        assert_eq!(due(&inbox(vec![remark(ReviewComment, 1, 0, "why?")])), Some(90));
        assert_eq!(due(&inbox(vec![remark(IssueComment, 1, 0, "hey @robo, look")])), Some(90));
        for waits in [
            review(1, 0, ReviewState::Approved),
            review(1, 0, ReviewState::Commented),
            remark(PullRequestComment, 1, 0, "nice"),
            remark(PullRequestComment, 1, 0, "> @robo look"),
        ] {
            assert_eq!(due(&inbox(vec![waits.clone()])), None, "{waits:?}");
        }
        let nit = Remark { review: Some(1), ..remark(ReviewComment, 5, 0, "a nit") };
        assert_eq!(due(&inbox(vec![nit.clone()])), Some(150), "its review may be an approval");
        let approved = inbox(vec![review(1, 0, ReviewState::Approved), nit.clone()]);
        assert_eq!((due(&approved), approved.to_be_told().len()), (None, 2));
        let asked = inbox(vec![review(1, 0, ReviewState::Commented), nit]);
        assert_eq!(due(&asked), Some(90));
        let wordless = Remark { text: String::new(), ..review(1, 0, ReviewState::ChangesRequested) };
        let line = |id: u64| Remark { review: Some(1), ..remark(ReviewComment, id, 0, "why?") };
        let mut resolved = inbox(vec![wordless.clone(), line(5), line(6)]);
        resolved.leave_out(RemarkId::ReviewComment(5), "resolved");
        assert_eq!(due(&resolved), Some(90));
        resolved.leave_out(RemarkId::ReviewComment(6), "deleted");
        assert_eq!((due(&resolved), due(&inbox(vec![wordless]))), (None, Some(90)));
        let taken_back =
            inbox(vec![review(1, 0, ReviewState::ChangesRequested), review(2, 30, ReviewState::Approved)]);
        assert_eq!(due(&taken_back), None);
    }

    #[test]
    fn it_starts_after_the_quiet_period_and_never_later_than_the_longest_wait() {
        let comment = |id: u64, seconds| remark(RemarkKind::ReviewComment, id, seconds, "x");
        assert_eq!(due(&inbox(vec![comment(1, 0), comment(2, 60), comment(3, 120)])), Some(210));
        let many = (0..20).map(|count| comment(count, i64::try_from(count).unwrap() * 60)).collect();
        assert_eq!(due(&inbox(many)), Some(600));
        // What does not count holds nothing up.
        let mut one = vec![comment(1, 0)];
        one.push(remark(RemarkKind::PullRequestComment, 9, 80, "nice"));
        assert_eq!(due(&inbox(one)), Some(90));
    }

    #[test]
    fn nobody_but_those_whose_words_count_starts_one() {
        for (standing, expected) in [
            (None, None),
            (Some(Standing::Outsider), None),
            (Some(Standing::Author), None),
            (Some(Standing::Own), None),
            (Some(Standing::Bot), Some(Starter::Bot)),
            (Some(Standing::Trusted), Some(Starter::Person)),
        ] {
            let mut inbox = inbox(vec![remark(RemarkKind::ReviewComment, 1, 0, "x")]);
            inbox.remarks.values_mut().for_each(|heard| heard.standing = standing);
            let table = ConversationTable::default();
            let found = Rules { table: &table, name: "" }.due(&inbox).map(|due| due.by);
            assert_eq!(found, expected, "{standing:?}");
        }
    }

    #[test]
    fn a_mention_is_a_whole_name_outside_of_quotes_and_code() {
        for yes in ["@robo", "hi @Robo!", "(@robo) x", "a\n@robo[bot] b", "x `code` @robo"] {
            assert!(mentions(yes, "robo[bot]"), "{yes}");
        }
        for no in [
            "robo",
            "@robot",
            "me@robo.org x@robo",
            "`@robo`",
            "> @robo",
            "```\n@robo\n```",
            "@robo-two",
            "o/@robo",
        ] {
            assert!(!mentions(no, "robo"), "{no}");
        }
        assert!(!mentions("@", "") && !mentions("@x", " "));
    }

    #[test]
    fn a_version_is_heard_once_and_an_edit_of_what_waits_replaces_it() {
        use super::super::News;
        use super::super::inbox_format::Fate;
        let first = remark(RemarkKind::IssueComment, 1, 0, "a");
        let mut inbox = Inbox::default();
        assert_eq!(inbox.hear(first.clone(), Author::default(), false, at(0)), News::New);
        assert_eq!(inbox.hear(first.clone(), Author::default(), false, at(1)), News::Known);
        let edited = Remark { edited: Some(at(5)), text: "b".into(), ..first.clone() };
        assert_eq!(inbox.hear(edited.clone(), Author::default(), false, at(6)), News::Changed);
        assert_eq!(inbox.waiting()[0].remark.text, "b");
        inbox.tell(&[(first.id, None)].into());
        assert_eq!((inbox.waiting().len(), inbox.remarks[&first.id].fate), (0, Fate::Told));
        assert_eq!(inbox.hear(edited, Author::default(), false, at(7)), News::Known);
        let again = Remark { edited: Some(at(9)), text: "c".into(), ..first.clone() };
        assert_eq!(inbox.hear(again, Author::default(), false, at(9)), News::ChangedAfterTold);
        assert!(inbox.remarks[&first.id].changed && inbox.waiting().is_empty());
        // An edit makes no command of a command that was followed, and none of talk.
        let command = remark(RemarkKind::IssueComment, 2, 0, "/agentd extend 5");
        assert_eq!(inbox.hear(command.clone(), Author::default(), true, at(0)), News::New);
        let more = Remark { edited: Some(at(3)), text: "/agentd extend 50".into(), ..command };
        assert_eq!(inbox.hear(more, Author::default(), false, at(4)), News::Known);
    }

    #[test]
    fn what_a_run_was_told_before_it_was_heard_is_that_run_s_if_it_says_the_same() {
        use super::super::inbox_format::Fate;
        use super::super::words;
        let review = review(1, 0, ReviewState::ChangesRequested);
        let briefed = |remark: &Remark| [(remark.id, (remark.created, words(remark)))].into();
        let hears = |inbox: &mut Inbox, remark: &Remark, command| {
            // A list says another time of the edit.
            let listed = Remark { edited: Some(at(3)), ..remark.clone() };
            inbox.hear(listed, Author::default(), command, at(4));
            let heard = &inbox.remarks[&remark.id];
            (heard.fate, heard.taken, inbox.waiting().len())
        };
        let held = || {
            let mut inbox = Inbox::default();
            inbox.hold(&briefed(&review));
            inbox
        };
        let mut works = held();
        assert_eq!(hears(&mut works, &review, false), (Fate::Waiting, true, 0));
        works.give_back(true);
        assert_eq!(works.remarks[&review.id].fate, Fate::Told);
        let mut ended = held();
        ended.give_back(true);
        // A later run that was told it too, and was killed, changes nothing of that.
        ended.hold(&briefed(&review));
        ended.give_back(false);
        assert_eq!(hears(&mut ended, &review, false), (Fate::Told, false, 0));
        let mut killed = held();
        killed.give_back(false);
        let mut gone_on_with = killed.clone();
        assert_eq!(hears(&mut killed, &review, false), (Fate::Waiting, false, 1));
        gone_on_with.tell(&[(review.id, None)].into());
        assert_eq!(hears(&mut gone_on_with, &review, false), (Fate::Told, false, 0));
        let edited = Remark { text: "other words".into(), ..review.clone() };
        assert_eq!(hears(&mut held(), &edited, false), (Fate::Waiting, false, 1));
        let command = remark(RemarkKind::IssueComment, 9, 0, "/agentd stop");
        let mut told = Inbox::default();
        told.hold(&briefed(&command));
        assert_eq!(hears(&mut told, &command, true), (Fate::Command, false, 0));
    }
}
