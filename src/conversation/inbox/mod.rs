//! The inbox of an issue: everything that was heard of it and of its pull request, on disk before anything is made of it.
//!
//! A remark is heard once for each of its versions. What becomes of it is its fate: it waits, was told, was a command, or
//! was dropped. The daemon hears and starts follow-up runs; a run takes what is said to it while it works.

pub mod inbox_format;
pub mod rounds;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use self::inbox_format::{Fate, Heard, Inbox, SCHEMA, Unheard};
use crate::domain::canonical::sha256_hex;
use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;
use crate::domain::remark::{Remark, RemarkId, Standing};
use crate::store::port::{Cell, Store, StoreError};
use crate::store::run_dir::StateDir;

/// Most bytes of one remark that are kept.
const LONGEST_KEPT: usize = 256 * 1024;
/// Finished entries that an inbox keeps; the oldest go first.
const MOST_FINISHED: usize = 500;
/// Remarks of a briefing that are known before they are heard; what is older was heard, or is heard no more.
const MOST_UNHEARD: usize = 500;
/// People without permission are answered this often, an issue.
const REFUSED_AGAIN: TimeDelta = TimeDelta::hours(24);

/// The inboxes of one repository.
#[derive(Debug, Clone)]
pub struct Inboxes {
    store: Arc<dyn Store>,
    repo: RepoName,
}

/// The inbox of one issue.
#[derive(Debug, Clone)]
pub struct InboxCell {
    store: Arc<dyn Store>,
    cell: Cell,
}

impl Inboxes {
    /// Makes nothing yet.
    pub fn new(state: &StateDir, repo: &RepoName) -> Self {
        Self { store: Arc::clone(state.store()), repo: repo.clone() }
    }

    /// That of an issue.
    pub fn of(&self, issue: impl Into<IssueKey>) -> InboxCell {
        let cell = Cell::Inbox { repo: self.repo.clone(), issue: issue.into() };
        InboxCell { store: Arc::clone(&self.store), cell }
    }
}

impl InboxCell {
    /// What it says; one that is not there is empty.
    ///
    /// # Errors
    /// It cannot be read, or a newer agentd wrote it.
    pub async fn read(&self) -> Result<Inbox, StoreError> {
        let (store, cell) = (Arc::clone(&self.store), self.cell.clone());
        let work = move || parsed(&*store, &cell, store.get(&cell)?.1);
        joined(tokio::task::spawn_blocking(work).await, self)
    }

    /// Changes it, whoever else does, and gives it as it is then with what `change` gave. It is on disk afterwards.
    ///
    /// # Errors
    /// As [`InboxCell::read`], and it cannot be written.
    pub async fn update<T: Send + 'static>(
        &self,
        mut change: impl FnMut(&mut Inbox) -> T + Send + 'static,
    ) -> Result<(Inbox, T), StoreError> {
        let (store, cell) = (Arc::clone(&self.store), self.cell.clone());
        let work = move || {
            let mut made = None;
            store.update(&cell, |value| {
                let before = parsed(&*store, &cell, value.clone())?;
                let mut inbox = before.clone();
                let given = change(&mut inbox);
                inbox.forget_oldest();
                let unchanged = inbox == before;
                let text = match unchanged {
                    true => value,
                    false => Some(
                        serde_json::to_string_pretty(&inbox)
                            .map_err(|error| failed(&*store, &cell, "write", &error))?,
                    ),
                };
                made = Some((inbox, given));
                Ok::<_, StoreError>(text)
            })?;
            made.ok_or_else(|| failed(&*store, &cell, "write", &"nothing was made"))
        };
        joined(tokio::task::spawn_blocking(work).await, self)
    }

    /// Where it is, for messages.
    pub fn place(&self) -> String {
        self.store.place(&self.cell).display().to_string()
    }
}

fn joined<T>(
    done: Result<Result<T, StoreError>, tokio::task::JoinError>,
    of: &InboxCell,
) -> Result<T, StoreError> {
    done.unwrap_or_else(|panic| Err(failed(&*of.store, &of.cell, "change", &panic)))
}

fn parsed(store: &dyn Store, cell: &Cell, text: Option<String>) -> Result<Inbox, StoreError> {
    let Some(text) = text else { return Ok(Inbox::default()) };
    let inbox: Inbox = serde_json::from_str(&text).map_err(|error| {
        let words = format!("{error}; mend it, or move it away: what waits in it is then not told");
        failed(store, cell, "read", &words)
    })?;
    match inbox.schema_version == SCHEMA {
        true => Ok(inbox),
        false => Err(failed(
            store,
            cell,
            "read",
            &format!("it was written by another agentd ({}); use that one", inbox.schema_version),
        )),
    }
}

fn failed(store: &dyn Store, cell: &Cell, action: &'static str, words: &dyn std::fmt::Display) -> StoreError {
    StoreError::Failed { action, place: store.place(cell).display().to_string(), words: words.to_string() }
}

/// Who wrote a remark, beside the login.
#[derive(Debug, Clone, Copy, Default)]
pub struct Author {
    /// Database id; 0 = not said.
    pub id: u64,
    /// Whether GitHub says that they belong to the repository: then they are asked about first.
    pub member: bool,
}

/// What hearing a remark came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// It was never heard before.
    New,
    /// It waits, and now has another text or state.
    Changed,
    /// It was told already, and was changed after that.
    ChangedAfterTold,
    /// This version was heard.
    Known,
}

impl Inbox {
    /// Hears a remark as a list has it. A command is one only as it was first written.
    pub fn hear(&mut self, mut remark: Remark, author: Author, command: bool, now: DateTime<Utc>) -> News {
        let (version, words) = (version(&remark), words(&remark));
        cut(&mut remark.text);
        // Told before it was heard; what was changed since is new. A list may say late how it was before.
        let is_briefed = self.unheard.get(&remark.id).is_some_and(|unheard| unheard.words == words);
        let unheard = is_briefed.then(|| self.unheard.remove(&remark.id)).flatten();
        let Some(known) = self.remarks.get_mut(&remark.id) else {
            let fate = if command { Fate::Command } else { Fate::Waiting };
            let id = remark.id;
            let heard =
                Heard { version, fate, author_id: author.id, member: author.member, ..Heard::of(remark) };
            let mut heard = Heard { heard_at: now, ..heard };
            if let Some(unheard) = unheard.filter(|_| !command) {
                heard.taken = unheard.taken;
                if unheard.fate == Fate::Told {
                    heard.finish(Fate::Told);
                }
            }
            self.remarks.insert(id, heard);
            return News::New;
        };
        if known.version == version {
            return News::Known;
        }
        known.version = version;
        if known.said {
            return News::Known;
        }
        match known.fate {
            Fate::Waiting => {
                // The list may only say later what the run was told already.
                let is_told = is_briefed || words == self::words(&known.remark);
                known.changed |= known.taken && !is_told;
                known.remark = remark;
                News::Changed
            }
            Fate::Told if is_briefed => News::Known,
            Fate::Told => {
                known.remark = remark;
                known.changed = true;
                News::ChangedAfterTold
            }
            Fate::Command | Fate::Dropped => News::Known,
        }
    }

    /// What waits and no run has been started with, in the order of writing.
    pub fn waiting(&self) -> Vec<&Heard> {
        let mut waiting: Vec<&Heard> =
            self.remarks.values().filter(|heard| heard.fate == Fate::Waiting && !heard.taken).collect();
        waiting.sort_by_key(|heard| (heard.remark.created, heard.remark.id));
        waiting
    }

    /// What waits of people whose words count, and of listed bots.
    pub fn to_be_told(&self) -> Vec<&Heard> {
        let mut waiting = self.waiting();
        waiting.retain(|heard| matches!(heard.standing, Some(Standing::Trusted | Standing::Bot)));
        waiting
    }

    /// What a run that begins is to be told: also what it was started with.
    pub fn untold(&self) -> Vec<&Heard> {
        let counts = |heard: &&Heard| matches!(heard.standing, Some(Standing::Trusted | Standing::Bot));
        let waits = |heard: &&Heard| heard.fate == Fate::Waiting && !heard.told;
        self.remarks.values().filter(counts).filter(waits).collect()
    }

    /// What the run that works is still to be told: what waits, and what was changed after it was told.
    pub fn said_meanwhile(&self) -> Vec<&Heard> {
        let counts = |heard: &&Heard| matches!(heard.standing, Some(Standing::Trusted | Standing::Bot));
        let open = |heard: &&Heard| heard.changed || (heard.fate == Fate::Waiting && !heard.taken);
        let mut waiting: Vec<&Heard> = self.remarks.values().filter(counts).filter(open).collect();
        waiting.sort_by_key(|heard| (heard.remark.created, heard.remark.id));
        waiting
    }

    /// Makes the command that this remark is a remark with this text, which an edit does not change.
    pub fn say(&mut self, id: RemarkId, text: &str) {
        if let Some(heard) = self.remarks.get_mut(&id) {
            heard.fate = Fate::Waiting;
            heard.said = true;
            text.clone_into(&mut heard.remark.text);
        }
    }

    /// A run is about to be started with all that waits on GitHub. What was said otherwise it takes when it begins.
    pub fn take(&mut self) {
        let waits = |heard: &&mut Heard| heard.fate == Fate::Waiting && !heard.said;
        for heard in self.remarks.values_mut().filter(waits) {
            heard.taken = true;
        }
    }

    /// The run that works was told these when it began, also what is heard only later.
    pub fn hold(&mut self, told: &BriefedWords) {
        let before = std::mem::take(&mut self.unheard);
        let mut unheard: Vec<_> = told.iter().collect();
        unheard.sort_by_key(|(id, (created, _))| std::cmp::Reverse((*created, **id)));
        let mut room = MOST_UNHEARD;
        for (id, (_, said)) in unheard {
            if let Some(heard) = self.remarks.get_mut(id) {
                heard.taken |= heard.fate == Fate::Waiting;
                if heard.fate != Fate::Waiting || heard.said || words(&heard.remark) == *said {
                    continue;
                }
            }
            if room > 0 {
                room -= 1;
                let known = before.get(id).filter(|known| known.fate == Fate::Told && known.words == *said);
                let new = || Unheard { words: said.clone(), fate: Fate::Waiting, taken: true };
                self.unheard.insert(*id, known.cloned().unwrap_or_else(new));
            }
        }
    }

    /// A run begins: what was said otherwise is told by no other run, also where one that was killed had been told it.
    pub fn release_said(&mut self) {
        let waits = |heard: &&mut Heard| heard.said && heard.fate == Fate::Waiting && !heard.told;
        for heard in self.remarks.values_mut().filter(waits) {
            heard.taken = false;
        }
    }

    /// The run that begins keeps the visits in which these were told, by a run that was cut off. Where it is cut off as well, they wait again.
    pub fn keep_told(&mut self, told: &BTreeSet<RemarkId>) {
        let waits = |heard: &&mut Heard| heard.fate == Fate::Waiting && told.contains(&heard.remark.id);
        for heard in self.remarks.values_mut().filter(waits) {
            (heard.taken, heard.told) = (true, true);
        }
        for (_, unheard) in self.unheard.iter_mut().filter(|(id, _)| told.contains(id)) {
            unheard.taken = true;
        }
    }

    /// The run that was started with what is taken ended: `told` = it was told them, else they wait on.
    pub fn give_back(&mut self, told: bool) {
        for heard in self.remarks.values_mut().filter(|heard| heard.taken) {
            (heard.taken, heard.told) = (false, false);
            if told {
                heard.finish(Fate::Told);
            }
        }
        for unheard in self.unheard.values_mut().filter(|unheard| unheard.taken) {
            unheard.taken = false;
            if told {
                unheard.fate = Fate::Told;
            }
        }
    }

    /// These were told, in this version or in whatever they have.
    pub fn tell(&mut self, told: &BTreeMap<RemarkId, Option<String>>) {
        for heard in self.remarks.values_mut() {
            let open = heard.fate == Fate::Waiting || heard.changed;
            let version = told.get(&heard.remark.id);
            if open
                && version.is_some_and(|version| version.as_ref().is_none_or(|told| *told == heard.version))
            {
                (heard.taken, heard.told) = (false, false);
                heard.finish(Fate::Told);
            }
        }
        for (_, unheard) in self.unheard.iter_mut().filter(|(id, _)| told.get(id) == Some(&None)) {
            *unheard = Unheard { words: unheard.words.clone(), fate: Fate::Told, taken: false };
        }
    }

    /// What waits was read again: this is how it is now, and how it stands as its last editor.
    pub fn refresh(&mut self, mut remark: Remark, standing: Standing) {
        cut(&mut remark.text);
        let waits =
            self.remarks.get_mut(&remark.id).filter(|heard| heard.fate == Fate::Waiting && !heard.said);
        if let Some(heard) = waits {
            heard.remark = remark;
            heard.stands(standing);
        }
    }

    /// This one is never told. False = it was not waiting.
    pub fn leave_out(&mut self, id: RemarkId, why: &str) -> bool {
        let Some(heard) = self.remarks.get_mut(&id).filter(|heard| heard.fate == Fate::Waiting) else {
            return false;
        };
        heard.why = Some(why.to_owned());
        (heard.taken, heard.told) = (false, false);
        heard.finish(Fate::Dropped);
        true
    }

    /// Nothing that waits is told any more.
    pub fn leave_all_out(&mut self, why: &str) {
        let waiting: Vec<RemarkId> = self.waiting().iter().map(|heard| heard.remark.id).collect();
        for id in waiting {
            self.leave_out(id, why);
        }
    }

    /// Whether somebody without permission is answered now; notes that they are.
    pub fn may_refuse(&mut self, now: DateTime<Utc>) -> bool {
        // A clock that was set back must not make it mute.
        let holds = |at: DateTime<Utc>| at <= now && now - at < REFUSED_AGAIN;
        if self.refused_at.is_some_and(holds) {
            return false;
        }
        self.refused_at = Some(now);
        true
    }

    fn forget_oldest(&mut self) {
        let finished = |heard: &&Heard| heard.fate != Fate::Waiting;
        let mut ids: Vec<(DateTime<Utc>, RemarkId)> =
            self.remarks.values().filter(finished).map(|heard| (heard.heard_at, heard.remark.id)).collect();
        let over = ids.len().saturating_sub(MOST_FINISHED);
        ids.sort();
        for (_, id) in ids.into_iter().take(over) {
            self.remarks.remove(&id);
        }
    }
}

impl Heard {
    fn of(remark: Remark) -> Self {
        Self {
            heard_at: remark.created,
            remark,
            author_id: 0,
            member: false,
            version: String::new(),
            fate: Fate::Waiting,
            standing: None,
            acknowledged: false,
            taken: false,
            told: false,
            said: false,
            changed: false,
            why: None,
        }
    }

    /// How its author stands. The text of nobody's words that count is not kept.
    pub fn stands(&mut self, standing: Standing) {
        self.standing = Some(standing);
        if self.fate == Fate::Waiting && !matches!(standing, Standing::Trusted | Standing::Bot) {
            self.remark.text.clear();
        }
    }

    /// Its text is not needed any more.
    fn finish(&mut self, fate: Fate) {
        self.fate = fate;
        self.changed = false;
        self.remark.text.clear();
    }

    /// A remark that somebody said on this machine, or by a command: nobody has to be asked about them.
    pub fn said(remark: Remark, now: DateTime<Utc>) -> Self {
        let version = version(&remark);
        Self {
            standing: Some(Standing::Trusted),
            acknowledged: true,
            said: true,
            version,
            heard_at: now,
            ..Self::of(remark)
        }
    }
}

/// When each remark of a briefing was written, and its [`words`].
pub type BriefedWords = BTreeMap<RemarkId, (DateTime<Utc>, String)>;

/// What a remark says, however it was read: lists and single answers of GitHub have different times of an edit.
pub fn words(remark: &Remark) -> String {
    let text = remark.text.replace("\r\n", "\n");
    let text = serde_json::to_string(&(remark.state.map(|state| state.as_str()), text.trim()));
    sha256_hex(text.unwrap_or_default().as_bytes())[..16].to_owned()
}

/// What tells two versions of a remark apart.
fn version(remark: &Remark) -> String {
    let parts = (remark.edited, remark.state.map(|state| state.as_str()), &remark.text);
    let text = serde_json::to_string(&parts).unwrap_or_default();
    sha256_hex(text.as_bytes())[..16].to_owned()
}

fn cut(text: &mut String) {
    if text.len() > LONGEST_KEPT {
        let end = (0..=LONGEST_KEPT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
}
