//! Writes the blocks of remarks: in order, within their budget, with a line for what is left out.

use std::collections::BTreeSet;

use super::drafting::Drafting;
use super::folding::{self, ReadyRemark};
use super::heard::{AllHeard, HeardThread, JudgedRemark};
use super::source::{Source, shown as time_shown};
use crate::conversation::answers;
use crate::domain::briefing::{Block, BriefedThread, UNTOLD};
use crate::domain::command::Command;
use crate::domain::fold;
use crate::domain::remark::{RemarkId, RemarkKind, Standing};
use crate::domain::untrusted::{fence, plain, visible};
use crate::github::ReviewThread;
use crate::repository::context::RepositoryContext;

/// The longest diff hunk that is told, in characters from its end.
const LONGEST_HUNK: usize = 1_500;
/// Lines around a thread's place that are told as they are now.
const AROUND: u64 = 3;
/// The longest such part, in characters.
const LONGEST_PRESENT: usize = 1_000;

/// What of the remarks a run has to answer.
#[derive(Default)]
pub struct Received {
    /// Threads that want an answer.
    pub threads: Vec<BriefedThread>,
    /// Remarks without a thread that want one.
    pub about: Vec<RemarkId>,
    /// The pull request, where there is one.
    pub pull: Option<u64>,
}

/// A thread ready to be told.
struct ReadyThread {
    thread: HeardThread,
    /// What stands before its comments: its place and the code.
    head: String,
    comments: Vec<ReadyRemark>,
    /// Whether somebody who counts waits for an answer.
    waits: bool,
}

/// Writes everything that was heard.
pub async fn write(
    draft: &mut Drafting<'_>,
    source: &Source<'_>,
    heard: AllHeard,
    context: &RepositoryContext,
) -> Received {
    let rules = &context.config.conversation;
    let (each, budget) = (rules.max_chars_each, rules.max_chars);
    let AllHeard { remarks, threads, wordless, pull, unread, unread_threads } = heard;
    let mut about: BTreeSet<RemarkId> = source.about.iter().copied().collect();
    if pull.is_some() {
        // No other run is told them: they have their answers from this one.
        about.extend(source.waiting);
        about.extend(remarks.iter().filter(|heard| comes_in(source, heard)).map(|heard| heard.remark.id));
    }
    // Who is told its threads is told all of it.
    wordless.iter().for_each(|review| draft.tells(review));
    let mut hidden = Hidden::default();
    let remarks: Vec<ReadyRemark> =
        remarks.into_iter().filter_map(|heard| ready(draft, heard, each, &mut hidden)).collect();
    let mut told_threads = Vec::new();
    for mut thread in threads {
        let comments = std::mem::take(&mut thread.comments);
        // A remark that came while an answer was on its way is older than that.
        let is_about = comments.iter().any(|heard| about.contains(&heard.remark.id));
        let waits = is_about || waits(&comments);
        let comments: Vec<ReadyRemark> =
            comments.into_iter().filter_map(|heard| ready(draft, heard, each, &mut hidden)).collect();
        // A thread in which nobody who counts says anything is nobody's wish.
        if comments.is_empty() {
            continue;
        }
        let head = place(draft, source, &thread, context).await;
        told_threads.push(ReadyThread { thread, head, comments, waits });
    }
    let folded = over_budget(&remarks, &told_threads, budget, unread);
    let mut received = Received { pull, ..Received::default() };
    one_list(draft, (Block::IssueRemarks, &remarks, &about), &folded, |kind| {
        kind == RemarkKind::IssueComment
    });
    one_list(draft, (Block::PullRequest, &remarks, &about), &folded, |kind| kind != RemarkKind::IssueComment);
    if unread > 0 {
        draft.add(Block::IssueRemarks, &format!("[… {unread} more remarks, between these, were not read …]"));
    }
    for told in &remarks {
        let id = told.heard().remark.id;
        let new = about.contains(&id);
        let is_told = !folded.has(id);
        if new && is_told {
            draft.add(Block::NewRemarks, &told.fenced);
            received.about.push(id);
        }
        told.note(draft, !is_told);
    }
    for thread in told_threads {
        if let Some(pull) = pull
            && let Some(wanted) = one_thread(draft, &thread, (&folded, &about), pull)
        {
            received.threads.push(wanted);
        }
    }
    if unread_threads > 0 {
        draft.add(Block::ReviewThreads, &format!("[… {unread_threads} threads were not read …]"));
    }
    hidden.say(draft);
    received
}

/// Whether somebody trusted wrote it since the run was asked for, or since the last one was, and nobody was told it. A command has its own
/// answer.
fn comes_in(source: &Source<'_>, heard: &JudgedRemark) -> bool {
    (heard.since || source.last_asked.is_some_and(|last| heard.remark.created >= last))
        && !source.known.contains(&heard.remark.id)
        && heard.left_out.is_none()
        && heard.judged.standing == Standing::Trusted
        && Command::of(&heard.remark.text).is_none()
}

/// A remark that is told; one that is left out is noted and counted.
fn ready(
    draft: &mut Drafting<'_>,
    heard: JudgedRemark,
    each: usize,
    hidden: &mut Hidden,
) -> Option<ReadyRemark> {
    if let Some(why) = heard.left_out {
        let entry = folding::left_out(draft, &heard, why);
        draft.note(entry);
        hidden.count(&heard, why);
        return None;
    }
    Some(ReadyRemark::new(draft, heard, each))
}

/// How many remarks are not told because of who wrote them.
#[derive(Default)]
struct Hidden {
    issue: usize,
    pull: usize,
}

impl Hidden {
    fn count(&mut self, heard: &JudgedRemark, why: &str) {
        // agentd's own words and those of other machines are not the conversation.
        if matches!(why, "own" | "bot_not_listed") {
            return;
        }
        match heard.remark.kind {
            RemarkKind::IssueComment => self.issue += 1,
            _ => self.pull += 1,
        }
    }

    fn say(&self, draft: &mut Drafting<'_>) {
        for (count, block) in [(self.issue, Block::IssueRemarks), (self.pull, Block::PullRequest)] {
            if count > 0 {
                draft.add(
                    block,
                    &format!(
                        "({count} left out: of people whose words do not count here, hidden, or too new.)"
                    ),
                );
            }
        }
    }
}

/// Which remarks are over the budget of all.
struct Folded {
    ids: BTreeSet<RemarkId>,
    people: usize,
    from: String,
    to: String,
}

fn over_budget(remarks: &[ReadyRemark], threads: &[ReadyThread], budget: usize, unread: usize) -> Folded {
    let mut all: Vec<(&JudgedRemark, usize)> =
        remarks.iter().map(|told| (told.heard(), told.size())).collect();
    for thread in threads {
        for (place, told) in thread.comments.iter().enumerate() {
            let head = if place == 0 { thread.head.chars().count() + 2 } else { 0 };
            all.push((told.heard(), told.size() + head));
        }
    }
    all.sort_by_key(|(heard, _)| (heard.remark.created, heard.remark.id));
    let sizes: Vec<usize> = all.iter().map(|(_, size)| *size).collect();
    // The line about what is left out takes room as well.
    let budget =
        budget.saturating_sub(if sizes.iter().sum::<usize>() > budget || unread > 0 { 400 } else { 0 });
    let range = fold::left_out(&sizes, budget);
    let out = &all[range];
    let people: BTreeSet<_> = out.iter().filter_map(|(heard, _)| heard.remark.login.as_deref()).collect();
    let time = |heard: Option<&(&JudgedRemark, usize)>| {
        heard.map(|(heard, _)| time_shown(heard.remark.created)).unwrap_or_default()
    };
    Folded {
        ids: out.iter().map(|(heard, _)| heard.remark.id).collect(),
        people: people.len(),
        from: time(out.first()),
        to: time(out.last()),
    }
}

impl Folded {
    fn has(&self, id: RemarkId) -> bool {
        self.ids.contains(&id)
    }

    /// The line in the place of what is left out.
    fn line(&self, count: usize) -> String {
        format!(
            "[… {count} remarks of {} people, {} to {}, left out …]\n(tool_output reads the trusted ones by the handle {UNTOLD}.)",
            self.people, self.from, self.to
        )
    }
}

/// A list of remarks in the order of time; those that the run is about stand in a block of their own.
fn one_list(
    draft: &mut Drafting<'_>,
    (block, remarks, about): (Block, &[ReadyRemark], &BTreeSet<RemarkId>),
    folded: &Folded,
    wanted: impl Fn(RemarkKind) -> bool,
) {
    let mine: Vec<&ReadyRemark> = remarks.iter().filter(|told| wanted(told.heard().remark.kind)).collect();
    let gone = mine.iter().filter(|told| folded.has(told.heard().remark.id)).count();
    let mut said = false;
    for told in mine {
        let id = told.heard().remark.id;
        if folded.has(id) {
            if !std::mem::replace(&mut said, true) {
                draft.add(block, &folded.line(gone));
            }
        } else if !about.contains(&id) {
            draft.add(block, &told.fenced);
        }
    }
}

/// A thread with its comments. Gives it, if somebody who counts waits for an answer in it.
fn one_thread(
    draft: &mut Drafting<'_>,
    thread: &ReadyThread,
    (folded, about): (&Folded, &BTreeSet<RemarkId>),
    pull: u64,
) -> Option<BriefedThread> {
    let is_told = |told: &&ReadyRemark| !folded.has(told.heard().remark.id);
    let gone = thread.comments.iter().filter(|told| !is_told(told)).count();
    for told in &thread.comments {
        told.note(draft, !is_told(&told));
    }
    let of = &thread.thread.thread;
    if gone == thread.comments.len() {
        draft.add(
            Block::ReviewThreads,
            &format!("[… a thread about {} with {gone} remarks left out …]", visible(&of.path)),
        );
        return None;
    }
    let mut text = thread.head.clone();
    let (mut unread, mut gone) = (of.unread, gone);
    for told in &thread.comments {
        // The first comment of a thread answers none; those that were not read stand behind it.
        if told.heard().remark.in_reply_to.is_some() && std::mem::take(&mut unread) > 0 {
            text.push_str(&format!("\n[… {} more remarks of the thread were not read …]", of.unread));
        }
        if !is_told(&told) {
            if let gone @ 1.. = std::mem::take(&mut gone) {
                text.push_str(&format!("\n[… {gone} remarks left out …]"));
            }
            continue;
        }
        text.push_str(&format!("\n{}", told.fenced));
        let id = told.heard().remark.id;
        if about.contains(&id) {
            draft.add(Block::NewRemarks, &format!("{id} in the thread {} (its text stands there)", of.id));
        }
    }
    draft.add(Block::ReviewThreads, &text);
    let first = thread.comments.first()?;
    let number = |told: &ReadyRemark| told.heard().remark.id.number();
    let opener = first.heard().remark.in_reply_to.unwrap_or_else(|| number(first));
    thread.waits.then(|| BriefedThread {
        id: of.id.clone(),
        first_comment: opener,
        last_comment: thread.comments.last().map_or(opener, number),
        pull,
        path: of.path.clone(),
        by_bot: first.heard().judged.standing == Standing::Bot,
        may_resolve: of.may_resolve,
        resolved: of.resolved,
    })
}

/// Whether somebody who counts wrote after agentd's last answer in a thread. An answer that says that nothing was done yet
/// is none.
fn waits(comments: &[JudgedRemark]) -> bool {
    let counts = |heard: &JudgedRemark| {
        heard.left_out.is_none() && matches!(heard.judged.standing, Standing::Trusted | Standing::Bot)
    };
    let answers = |heard: &JudgedRemark| {
        heard.judged.standing == Standing::Own && !answers::is_unanswered(&heard.remark.text)
    };
    let since = comments.iter().rposition(answers).map_or(0, |place| place + 1);
    comments[since..].iter().any(counts)
}

/// What a thread is about, in words: its file and line.
pub fn standing_at(of: &ReviewThread) -> String {
    let line = match (of.on_file, of.line, of.original_line) {
        (true, ..) => "the whole file".to_owned(),
        (false, Some(line), _) => format!("line {line}"),
        (false, None, Some(line)) => format!("line {line} as it was then"),
        (false, None, None) => "no line".to_owned(),
    };
    let outdated = if of.outdated { ", outdated" } else { "" };
    let resolved = if of.resolved { ", resolved" } else { "" };
    format!("about {}, {line}{outdated}{resolved}", visible(&of.path))
}

/// The diff that a thread was written on, fenced; `clean` takes secrets out. Empty where there is none.
pub fn written_on(of: &ReviewThread, clean: impl Fn(&str) -> String) -> String {
    if of.hunk.is_empty() {
        return String::new();
    }
    let hunk = clean(&from_the_end(&of.hunk, LONGEST_HUNK));
    format!("\n{}", fence("the diff that it was written on", &plain(&hunk, LONGEST_HUNK)))
}

/// Where a thread stands: path and line, the diff that it was written on, and what is there now.
async fn place(
    draft: &Drafting<'_>,
    source: &Source<'_>,
    thread: &HeardThread,
    context: &RepositoryContext,
) -> String {
    let of = &thread.thread;
    let mut text = format!("Thread {} {}:", visible(&of.id), standing_at(of));
    text.push_str(&written_on(of, |hunk| draft.redacted(hunk)));
    let present = match (&source.head, of.on_file) {
        (Some(head), false) => context.checkout.blob(head, &of.path).await.ok(),
        _ => return text,
    };
    match present {
        Some(Some(bytes)) => {
            let lines = String::from_utf8_lossy(&bytes).into_owned();
            if let Some(line) = of.line.or(of.original_line) {
                let now = draft.redacted(&around(&lines, line));
                text.push_str(&format!(
                    "\n{}",
                    fence("what stands there now", &plain(&now, LONGEST_PRESENT))
                ));
            }
        }
        Some(None) => text.push_str("\n(The file is not there any more.)"),
        None => {}
    }
    text
}

fn from_the_end(text: &str, longest: usize) -> String {
    let skipped = text.chars().count().saturating_sub(longest);
    text.chars().skip(skipped).collect()
}

/// The lines around a line, with their numbers.
fn around(text: &str, line: u64) -> String {
    let (first, last) = (line.saturating_sub(AROUND).max(1), line + AROUND);
    let numbered = (1..).zip(text.lines());
    let wanted = numbered.filter(|(number, _)| (first..=last).contains(number));
    wanted.map(|(number, line)| format!("{number}: {line}\n")).collect()
}
