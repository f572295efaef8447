//! Hearing: what people wrote since the last look is in the inboxes on disk before the next look begins later.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};

use super::poll::Watch;
use super::pulls::issue_of;
use super::state_format::{CommentsRead, RepositoryState};
use crate::config::conversation_file::ConversationTable;
use crate::conversation::inbox::inbox_format::Inbox;
use crate::conversation::inbox::{Author, Inboxes, News};
use crate::conversation::standing::OWN_MARKER;
use crate::domain::command::Command;
use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;
use crate::domain::remark::{RemarkKind, ReviewState};
use crate::github::{Association, Client, Error, Fetched, From, Listed, Pull, Written};
use crate::issue::cut_off_runs::BegunBy;
use crate::record::rendering;

/// What was written last is read twice: GitHub's lists may show it late.
const READ_TWICE: TimeDelta = TimeDelta::seconds(60);
/// GitHub's times are whole seconds.
const SECOND: TimeDelta = TimeDelta::seconds(1);
/// Pages of a list that one look reads at most. What is left comes with the next look.
const MOST_PAGES: usize = 10;
/// Pull requests whose reviews one look reads at most. The others come with the next looks.
const MOST_REVIEWED: usize = 5;

/// What hearing depends on beside the repository.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ears<'a> {
    pub client: &'a Client,
    pub table: &'a ConversationTable,
    pub inboxes: &'a Inboxes,
    /// Issues of this repository whose runs work.
    pub busy: &'a BTreeMap<u64, BegunBy>,
    pub now: DateTime<Utc>,
    /// In a cluster nodes may have accounts of their own: what is marked as agentd's is, whoever of them wrote it.
    pub has_nodes: bool,
}

impl Watch {
    /// Reads what was written since the last look. A list that cannot be read moves no cursor; an unchanged one costs nothing.
    pub(super) async fn hear(&mut self, ears: Ears<'_>) {
        let fresh = self.is_fresh();
        let is_first = self.state.comments.is_none() && self.state.review_comments.is_none();
        let begin = ears.client.now();
        for list in [Written::Comments, Written::ReviewComments] {
            // Where listening begins is noted even while other lists cannot be read: what comes from now on is heard.
            let begins = cursor(&mut self.state, list).is_none();
            if !self.unread.may_ask(list) || !(fresh || begins) {
                continue;
            }
            let read = self.hear_list(ears, list).await;
            if read.is_ok() {
                self.unread.given(&self.watched.name, list);
            }
            if let Err(error) = read {
                // Where nothing of the repository can be read, that is told.
                if fresh {
                    self.unread.failed(&self.watched.name, list, &error);
                }
                tracing::debug!(repo = %self.watched.name, ?list, %error, "what people wrote could not be read");
            }
        }
        if is_first && self.state.listens_since.is_none() {
            // By GitHub's clock, which the first answer tells.
            self.state.listens_since = begin.or_else(|| ears.client.now()).map(|begin| begin - SECOND);
        }
        if fresh && let Err(error) = self.hear_reviews(ears).await {
            tracing::debug!(repo = %self.watched.name, %error, "the reviews could not be read");
        }
    }

    async fn hear_list(&mut self, ears: Ears<'_>, list: Written) -> Result<(), Error> {
        let repo = self.watched.name.clone();
        let read = match cursor(&mut self.state, list).clone() {
            Some(read) => read,
            None => {
                // By GitHub's own ids and times: this machine's clock may be another.
                let newest = ears.client.newest_written(&repo, list).await?;
                self.activity.requests += 1;
                let read = CommentsRead {
                    since: newest.as_ref().map_or(ears.now - TimeDelta::days(1), |one| one.updated),
                    last_id: newest.map_or(0, |one| one.remark.id.number()),
                    etag: None,
                };
                *cursor(&mut self.state, list) = Some(read.clone());
                read
            }
        };
        // Within a second that is too long for one look, it is read on from the page that was read last: pages move up where
        // something of them is edited.
        let mut stayed = self.stayed.get(&list.into()).cloned().unwrap_or_default();
        let goes_on = !stayed.page.is_empty();
        let mut from = match goes_on {
            true => From::Next(&stayed.page),
            false => From::Since(read.since, read.etag.as_deref()),
        };
        let (mut next, mut newest, mut pages) = (String::new(), read.since, 0);
        let (mut news, mut unkept) = (stayed.news, stayed.unkept);
        let (whole, etag) = loop {
            self.activity.requests += 1;
            let Fetched::Fresh(page, etag) = ears.client.written(&repo, list, from).await? else {
                return Ok(());
            };
            self.activity.changed();
            pages += 1;
            if matches!(list, Written::Comments) {
                keep_one_status_comment(ears.client, &repo, &page.remarks).await;
            }
            newest = page.remarks.iter().map(|one| one.updated).max().unwrap_or(newest).max(newest);
            let kept = self.keep(ears, page.remarks, |one| one.remark.id.number() <= read.last_id).await?;
            news |= kept.news;
            unkept = unkept.into_iter().chain(kept.unkept).min();
            match page.next {
                Some(after) if pages < MOST_PAGES => next = after,
                // The rest of a list that is too long comes with the next look.
                Some(_) => break (false, None),
                None if pages == 1 && !goes_on => break (true, etag),
                None => break (true, None),
            }
            from = From::Next(&next);
        };
        // What was written in the newest second may not be all of it yet.
        let over = ears.client.now().is_some_and(|now| now - newest > SECOND * 2);
        let since = match (whole, news) {
            // Once more, until it brings nothing new.
            (true, true) => newest - READ_TWICE,
            // A second that fills more than a page would be read again and again.
            (true, false) if (pages > 1 || goes_on) && over => newest + SECOND,
            _ => newest,
        };
        self.stayed.remove(&list.into());
        if !whole && since == read.since {
            stayed = Stayed { page: next, news, unkept };
            self.stayed.insert(list.into(), stayed);
        }
        // What an inbox did not take is read again. A list that is too long goes on all the same: others wait there.
        let again = unkept.filter(|_| whole);
        let since = again.map_or(since, |unkept| since.min(unkept));
        let read = CommentsRead {
            since,
            // The tag belongs to the address, and the address holds `since`.
            etag: etag.filter(|_| since == read.since && again.is_none()),
            ..read
        };
        *cursor(&mut self.state, list) = Some(read);
        Ok(())
    }

    /// The reviews of pull requests that changed since these were read last: no list of a repository has them.
    async fn hear_reviews(&mut self, ears: Ears<'_>) -> Result<(), Error> {
        let repo = self.watched.name.clone();
        let now = ears.client.now().unwrap_or(ears.now);
        // Another change may come in the second of the last one, and show in no list.
        let is_young = |pull: &Pull| {
            let at = pull.updated_at.as_deref().and_then(|at| DateTime::parse_from_rfc3339(at).ok());
            at.is_some_and(|at| now - at.with_timezone(&Utc) <= SECOND * 3)
        };
        let mut due = Vec::new();
        for (issue, pull) in self.pulls.followed() {
            let read = self.state.issues.get(&issue).and_then(|memory| memory.reviews_read.as_ref());
            // One that is as it was opened may have been reviewed in the very second in which it was.
            let is_new = read.is_none_or(|read| *read != pull.updated_at.clone().unwrap_or_default());
            let again = self.pulls.read_young.contains(&pull.number);
            if is_new || again || is_young(pull) {
                due.push((issue, pull.number, pull.updated_at.clone(), is_young(pull)));
            }
        }
        for (issue, pull, updated_at, young) in due.into_iter().take(MOST_REVIEWED) {
            let reviews = ears.client.reviews_sent(&repo, pull).await?;
            let begin = self.state.listens_since;
            let is_old = |one: &Listed| begin.is_some_and(|begin| one.remark.created < begin);
            if self.keep(ears, reviews, is_old).await?.unkept.is_some() {
                continue;
            }
            self.state.issues.entry(issue).or_default().reviews_read = Some(updated_at.unwrap_or_default());
            match young {
                true => self.pulls.read_young.insert(pull),
                false => self.pulls.read_young.remove(&pull),
            };
        }
        Ok(())
    }

    /// The reviews of a pull request that is over, where no look has read them since it last changed. True = they were read.
    pub(super) async fn hear_last_reviews(&mut self, ears: Ears<'_>, issue: u64) -> Result<bool, Error> {
        let Some(pull) = self.state.issues.get(&issue).and_then(|memory| memory.pull) else {
            return Ok(false);
        };
        let repo = self.watched.name.clone();
        let reviews = match ears.client.reviews_sent(&repo, pull).await {
            Err(error) if error.is_absent() => return Ok(false),
            reviews => reviews?,
        };
        let begin = self.state.listens_since;
        let is_old = |one: &Listed| begin.is_some_and(|begin| one.remark.created < begin);
        self.keep(ears, reviews, is_old).await?;
        Ok(true)
    }

    /// Puts remarks into the inboxes of their issues. An inbox that does not take them holds back no other.
    async fn keep(
        &mut self,
        ears: Ears<'_>,
        remarks: Vec<Listed>,
        is_old: impl Fn(&Listed) -> bool,
    ) -> Result<Kept, Error> {
        let mut by_issue: BTreeMap<u64, Vec<Found>> = BTreeMap::new();
        for listed in remarks {
            let old = is_old(&listed);
            // An edit makes no command; an answer may be edited until it holds.
            let command = !old
                && match Command::of(&listed.remark.text) {
                    None => false,
                    Some(Command::Answer(_)) => true,
                    Some(_) => listed.remark.edited.is_none(),
                };
            let Some(issue) = self.issue_of_remark(ears.client, &listed, command).await? else { continue };
            if (command || self.is_business(issue, ears.busy)) && !never_counts(ears, &listed).await? {
                by_issue.entry(issue).or_default().push(Found { listed, command, old });
            }
        }
        let (mut kept, now) = (Kept::default(), ears.now);
        for (issue, found) in by_issue {
            let oldest = found.iter().map(|one| one.listed.updated).min();
            let hear = move |inbox: &mut Inbox| {
                // What was written before anybody listened is heard only where it is known already.
                let heeded = |inbox: &Inbox, one: &Found| {
                    !one.old || inbox.remarks.contains_key(&one.listed.remark.id)
                };
                let mut news = false;
                for one in &found {
                    if heeded(inbox, one) {
                        let author = Author {
                            id: one.listed.author_id,
                            member: one.listed.association == Association::Known,
                        };
                        news |=
                            inbox.hear(one.listed.remark.clone(), author, one.command, now) != News::Known;
                    }
                }
                news
            };
            let cell = ears.inboxes.of(issue);
            let inbox = match cell.update(hear).await {
                Ok((inbox, new)) => {
                    self.unheard.remove(&issue);
                    kept.news |= new;
                    inbox
                }
                Err(error) => {
                    kept.unkept = kept.unkept.into_iter().chain(oldest).min();
                    if self.unheard.insert(issue, error.to_string()).is_none() {
                        let repo = &self.watched.name;
                        tracing::error!(%repo, issue, %error, "what people wrote on the issue cannot be kept; it is tried again");
                    }
                    continue;
                }
            };
            // What a killed daemon heard and did nothing about waits there as well.
            if !inbox.remarks.is_empty() {
                self.state.attend.insert(issue);
            }
        }
        Ok(kept)
    }

    /// The issue that a remark is about: for a pull request that agentd opened, the issue of that. Only for a command one
    /// that is not known is asked for.
    async fn issue_of_remark(
        &self,
        client: &Client,
        one: &Listed,
        command: bool,
    ) -> Result<Option<u64>, Error> {
        let number = one.remark.number;
        let followed = self.state.issues.iter().find(|(_, memory)| memory.pull == Some(number));
        if let Some((issue, _)) = followed {
            return Ok(Some(*issue));
        }
        if one.on_pull == Some(false) && one.remark.kind == RemarkKind::IssueComment {
            return Ok(Some(number));
        }
        if !command {
            return Ok(None);
        }
        match client.pull(&self.watched.name, number).await {
            Ok(pull) => Ok(issue_of(&pull)),
            Err(error) if error.is_absent() => Ok(one.on_pull.is_none().then_some(number)),
            Err(error) => Err(error),
        }
    }

    /// Whether agentd has something to do with an issue.
    fn is_business(&self, issue: u64, busy: &BTreeMap<u64, BegunBy>) -> bool {
        let memory = self.state.issues.get(&issue);
        busy.contains_key(&issue)
            || self.candidate(issue).is_some()
            || memory.is_some_and(|memory| memory.pull.is_some() || memory.parked.is_some())
    }
}

/// A look that all its pages brought no further than the second with which it began: the next one goes on there.
#[derive(Debug, Clone, Default)]
pub(super) struct Stayed {
    /// Address of the page that was read last.
    page: String,
    /// What became of the pages so far; see [`Kept`].
    news: bool,
    unkept: Option<DateTime<Utc>>,
}

/// What became of remarks of a list.
#[derive(Debug, Default)]
struct Kept {
    /// There was something new.
    news: bool,
    /// When the oldest of those changed that an inbox did not take.
    unkept: Option<DateTime<Utc>>,
}

/// A remark of a list, for the inbox of its issue.
#[derive(Clone)]
struct Found {
    listed: Listed,
    command: bool,
    /// Written before anybody listened.
    old: bool,
}

/// Whether agentd wrote it itself, or a bot that is not listed, or an account that is gone.
async fn never_counts(ears: Ears<'_>, one: &Listed) -> Result<bool, Error> {
    let remark = &one.remark;
    let Some(login) = &remark.login else { return Ok(true) };
    // A reply in a thread comes in a review of its own, which says nothing.
    let says_nothing = remark.kind == RemarkKind::Review && remark.text.trim().is_empty();
    let holds_a_reply = says_nothing && remark.state == Some(ReviewState::Commented);
    let is_marked = remark.text.trim_start().starts_with(OWN_MARKER);
    if is_marked && ears.has_nodes {
        return Ok(true);
    }
    if holds_a_reply || is_marked {
        let own = &ears.client.viewer().await?.actor.login;
        if own.eq_ignore_ascii_case(login) || (own.is_empty() && !holds_a_reply) {
            return Ok(true);
        }
    }
    Ok(remark.bot && !ears.table.tells_bot(login))
}

/// A request that was cut off may arrive after the process that sent it is gone, and after another has done its work. What others copied
/// costs nothing.
async fn keep_one_status_comment(client: &Client, repo: &RepoName, remarks: &[Listed]) {
    let marked = |one: &&Listed| one.remark.text.trim_start().starts_with(OWN_MARKER);
    let marked: Vec<&Listed> = remarks.iter().filter(marked).collect();
    if marked.is_empty() {
        return;
    }
    let Ok(viewer) = client.viewer().await else { return };
    let own = |one: &&Listed| {
        let login = one.remark.login.as_deref();
        login.is_some_and(|login| login.eq_ignore_ascii_case(&viewer.actor.login))
    };
    for one in marked.into_iter().filter(own) {
        let (number, id) = (one.remark.number, one.remark.id.number());
        let marker = rendering::marker(&IssueKey::Number(number));
        let first = one.remark.text.trim_start().lines().next().unwrap_or_default();
        if first.trim_end() == marker
            && let Err(error) = client.heed_comment(repo, number, &marker, id).await
        {
            tracing::debug!(%repo, number, id, %error, "the comments of an issue could not be read");
        }
    }
}

fn cursor(state: &mut RepositoryState, list: Written) -> &mut Option<CommentsRead> {
    match list {
        Written::Comments => &mut state.comments,
        Written::ReviewComments => &mut state.review_comments,
    }
}
