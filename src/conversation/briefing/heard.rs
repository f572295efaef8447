//! Reads remarks and decides which of them a run is told, and in which version.

use super::source::Source;
use crate::config::conversation_file::Outsiders;
use crate::conversation::issue_text::stood_then;
use crate::conversation::standing::{JudgedStanding, People};
use crate::domain::refusal::Refusal;
use crate::domain::remark::{Remark, RemarkKind, Standing};
use crate::github::{Bounded, Client, ReviewThread};
use crate::issue::reference::Asked;
use crate::repository::context::RepositoryContext;

/// A remark with its standing, in the version that counts.
pub struct JudgedRemark {
    /// The remark.
    pub remark: Remark,
    /// How it stands.
    pub judged: JudgedStanding,
    /// Why it is not told; `None` = it is.
    pub left_out: Option<&'static str>,
    /// Whether it was written after the run was asked for.
    pub after: bool,
    /// Whether its text was edited after the run was asked for, by somebody who counts.
    pub edited_after: bool,
    /// Whether it was written in the second in which the run was asked for, or later.
    pub since: bool,
}

/// A thread with its comments.
pub struct HeardThread {
    /// The thread; its comments are in `comments`.
    pub thread: ReviewThread,
    /// Its comments, oldest first.
    pub comments: Vec<JudgedRemark>,
}

/// Everything that was read.
#[derive(Default)]
pub struct AllHeard {
    /// Remarks without a thread, in the order of time.
    pub remarks: Vec<JudgedRemark>,
    /// Unresolved threads, and those that the run is about, by path and line.
    pub threads: Vec<HeardThread>,
    /// Reviews that say nothing by themselves: their words stand in threads.
    pub wordless: Vec<Remark>,
    /// The pull request, where there is one.
    pub pull: Option<u64>,
    /// Remarks without a thread that were not read, and between which times they were written.
    pub unread: usize,
    /// Threads that were not read.
    pub unread_threads: usize,
}

/// Reads the issue's remarks, and those of its pull request.
///
/// # Errors
/// GitHub could not be read.
pub async fn hear(
    source: &Source<'_>,
    (number, pull): (u64, Option<u64>),
    people: &mut People<'_>,
    context: &RepositoryContext,
) -> Result<AllHeard, Refusal> {
    let (github, pages) = (people.github(), context.config.conversation.max_pages);
    let mut read = vec![github.issue_remarks(&context.repo, number, pages).await?];
    let mut threads = Bounded { items: Vec::new(), unread: 0, before_gap: 0 };
    if let Some(pull) = pull {
        read.push(github.pull_remarks(&context.repo, pull, pages).await?);
        read.push(github.reviews(&context.repo, pull, pages).await?);
        threads = github.review_threads(&context.repo, pull, pages).await?;
    }
    let mut all = AllHeard { pull, unread_threads: threads.unread, ..AllHeard::default() };
    let mut judge = Judge { github, source, people, context, asked: moment(source, &read, &threads) };
    for list in read {
        all.unread += list.unread;
        for remark in list.items {
            // Most reviews have no body.
            if remark.kind == RemarkKind::Review && remark.text.trim().is_empty() {
                all.wordless.push(remark);
                continue;
            }
            all.remarks.push(judge.judge(remark).await?);
        }
    }
    all.remarks.extend(source.said.iter().cloned().map(said));
    all.remarks.sort_by_key(|heard| (heard.remark.created, heard.remark.id));
    // What somebody wrote in a thread that is resolved, and this run is about, is told as everything else.
    let wanted = |thread: &ReviewThread| {
        !thread.resolved || thread.comments.iter().any(|comment| source.about.contains(&comment.id))
    };
    for mut thread in threads.items.into_iter().filter(wanted) {
        let mut comments = Vec::new();
        for remark in std::mem::take(&mut thread.comments) {
            comments.push(judge.judge(remark).await?);
        }
        comments.sort_by_key(|heard| (heard.remark.created, heard.remark.id));
        all.threads.push(HeardThread { thread, comments });
    }
    all.threads.sort_by(|a, b| place(a).cmp(&place(b)));
    Ok(all)
}

/// Of an issue that is in no tracker: what was said of it on this machine.
pub fn here(source: &Source<'_>) -> AllHeard {
    let mut remarks: Vec<JudgedRemark> = source.said.iter().cloned().map(said).collect();
    remarks.sort_by_key(|heard| (heard.remark.created, heard.remark.id));
    AllHeard { remarks, ..AllHeard::default() }
}

/// What the local user said, who counts as trusted.
fn said(remark: Remark) -> JudgedRemark {
    let judged = JudgedStanding { standing: Standing::Trusted, permission: None };
    JudgedRemark { remark, judged, left_out: None, after: false, edited_after: false, since: false }
}

/// Threads of one line stand in the order of their first comments.
fn place(thread: &HeardThread) -> (&str, u64, Option<chrono::DateTime<chrono::Utc>>, &str) {
    let of = &thread.thread;
    let first = thread.comments.first().map(|heard| heard.remark.created);
    (&of.path, of.line.or(of.original_line).unwrap_or_default(), first, &of.id)
}

/// When the run was asked for: a follow-up run at the newest remark that it is about.
fn moment(source: &Source<'_>, read: &[Bounded<Remark>], threads: &Bounded<ReviewThread>) -> Option<Asked> {
    let mut asked = source.asked.cloned()?;
    let in_threads = threads.items.iter().flat_map(|thread| &thread.comments);
    let all = read.iter().flat_map(|list| &list.items).chain(in_threads);
    for remark in all.filter(|remark| source.about.contains(&remark.id)) {
        if remark.created > asked.at {
            asked = Asked { at: remark.created, by: remark.login.clone(), ..asked };
        }
    }
    Some(asked)
}

struct Judge<'a, 'b> {
    github: &'a Client,
    source: &'a Source<'a>,
    people: &'a mut People<'b>,
    context: &'a RepositoryContext,
    /// The moment at which remarks count.
    asked: Option<Asked>,
}

impl Judge<'_, '_> {
    async fn judge(&mut self, mut remark: Remark) -> Result<JudgedRemark, Refusal> {
        let asked = self.asked.clone();
        let asked = asked.as_ref();
        let judged = self.people.remark(&remark).await?;
        let mut left_out = self.left_out(&remark, judged.standing);
        let login = remark.login.as_deref();
        // What a run was started for is told, whenever it was written.
        let about = self.source.about.contains(&remark.id);
        let after = !about && asked.is_some_and(|asked| !stood_then(remark.created, login, asked));
        let mut edited_after = false;
        if left_out.is_none() && after && judged.standing != Standing::Trusted {
            left_out = Some("after_asked");
        }
        if let (None, false, Some(asked)) = (left_out, after, asked)
            && let Some(edited) = remark.edited
            && !stood_then(edited, remark.editor.as_deref(), asked)
        {
            let editor = self.people.account(remark.editor.as_deref(), remark.edited_by_bot).await?;
            if editor.standing == Standing::Trusted {
                edited_after = true;
            } else if !self.as_it_stood(&mut remark, asked).await? {
                left_out = Some("text_changed");
            }
        }
        // What was edited after the run was asked for is judged by who wrote the version that counts.
        let since = asked.is_some_and(|asked| remark.created.timestamp() >= asked.at.timestamp());
        Ok(JudgedRemark { remark, judged, left_out, after, edited_after, since })
    }

    fn left_out(&self, remark: &Remark, standing: Standing) -> Option<&'static str> {
        let rules = &self.context.config.conversation;
        if remark.minimized {
            return Some("minimized");
        }
        match (standing, rules.outsiders) {
            (Standing::Own, _) => Some("own"),
            (Standing::Bot, _) => {
                let told = remark.login.as_deref().is_some_and(|login| rules.tells_bot(login));
                (!told).then_some("bot_not_listed")
            }
            (Standing::Trusted, _) | (_, Outsiders::Quote) | (Standing::Author, Outsiders::Author) => None,
            (Standing::Author | Standing::Outsider, _) => Some("outsider"),
        }
    }

    /// Puts the text back that stood when the run was asked for. False = GitHub does not give it.
    async fn as_it_stood(&self, remark: &mut Remark, asked: &Asked) -> Result<bool, Refusal> {
        let Some(node_id) = &remark.node_id else { return Ok(false) };
        let edits = self.github.edits_of_remark(node_id).await?;
        let stood = edits
            .iter()
            .rfind(|edit| edit.at <= remark.created || stood_then(edit.at, edit.by.as_deref(), asked));
        let Some(edit) = stood else { return Ok(false) };
        let Some(text) = self.github.text_of_edit(&edit.id).await? else { return Ok(false) };
        remark.text = text;
        remark.edited = (edit.at > remark.created).then_some(edit.at);
        remark.editor.clone_from(&edit.by);
        Ok(true)
    }
}
