//! What is done to what people write: added, edited, deleted, reacted to, resolved, and found again.

use super::bare;
use super::remark::{Comment, Edit, NewThread, Reaction, Review, TextPlace, Thread, ThreadComment};
use super::resource::{Issue, Pull, Repository};
use super::world::World;

impl Thread {
    /// The line as it is at `head`; `None` = it is not there any more, or the thread is on a whole file.
    pub fn line_at(&self, repo: &Repository, pull: &Pull) -> Option<u64> {
        let line = self.line?;
        let now = if self.left { &pull.base_sha } else { &pull.head_sha };
        if *now == self.commit || self.left {
            return Some(line);
        }
        bare::follow_line(&repo.git_dir, (&self.commit, now), &self.path, line)
    }

    /// Whether what it is about has changed since.
    pub fn is_outdated(&self, repo: &Repository, pull: &Pull) -> bool {
        match self.line {
            Some(_) => self.line_at(repo, pull).is_none(),
            None => bare::file(&repo.git_dir, &pull.head_sha, &self.path).is_none(),
        }
    }
}

impl Repository {
    /// Where the text of that id stands.
    pub fn find_text(&self, id: u64) -> Option<TextPlace> {
        self.issues.values().find_map(|issue| {
            let number = issue.number;
            if let Some(place) = issue.comments.iter().position(|one| one.id == id) {
                return Some(TextPlace::Comment(number, place));
            }
            let pull = issue.pull.as_ref()?;
            if let Some(place) = pull.reviews.iter().position(|one| one.comment.id == id) {
                return Some(TextPlace::Review(number, place));
            }
            pull.threads.iter().enumerate().find_map(|(thread, found)| {
                let place = found.comments.iter().position(|one| one.comment.id == id)?;
                Some(TextPlace::Thread(number, thread, place))
            })
        })
    }

    /// The text there; `None` for a body, which is the issue's own.
    pub fn text(&self, place: TextPlace) -> Option<&Comment> {
        let issue = self.issues.get(&place.number())?;
        let pull = || issue.pull.as_ref();
        match place {
            TextPlace::Body(_) => None,
            TextPlace::Comment(_, place) => issue.comments.get(place),
            TextPlace::Review(_, place) => pull()?.reviews.get(place).map(|one| &one.comment),
            TextPlace::Thread(_, thread, place) => {
                pull()?.threads.get(thread)?.comments.get(place).map(|one| &one.comment)
            }
        }
    }

    /// The same, to change.
    pub fn text_mut(&mut self, place: TextPlace) -> Option<&mut Comment> {
        let Issue { comments, pull, .. } = self.issues.get_mut(&place.number())?;
        match place {
            TextPlace::Body(_) => None,
            TextPlace::Comment(_, place) => comments.get_mut(place),
            TextPlace::Review(_, place) => pull.as_mut()?.reviews.get_mut(place).map(|one| &mut one.comment),
            TextPlace::Thread(_, thread, place) => {
                pull.as_mut()?.threads.get_mut(thread)?.comments.get_mut(place).map(|one| &mut one.comment)
            }
        }
    }

    /// The revisions of the text there.
    pub fn edits(&self, place: TextPlace) -> &[Edit] {
        match place {
            TextPlace::Body(number) => self.issues.get(&number).map_or(&[], |issue| &issue.edits),
            _ => self.text(place).map_or(&[], |text| &text.edits),
        }
    }

    /// The reactions to the text there.
    pub fn reactions(&self, place: TextPlace) -> &[Reaction] {
        match place {
            TextPlace::Body(number) => self.issues.get(&number).map_or(&[], |issue| &issue.reactions),
            _ => self.text(place).map_or(&[], |text| &text.reactions),
        }
    }

    /// The same, to change.
    pub fn reactions_mut(&mut self, place: TextPlace) -> Option<&mut Vec<Reaction>> {
        match place {
            TextPlace::Body(number) => self.issues.get_mut(&number).map(|issue| &mut issue.reactions),
            _ => self.text_mut(place).map(|text| &mut text.reactions),
        }
    }

    /// The thread of that id: pull request and place.
    pub fn find_thread(&self, id: u64) -> Option<(u64, usize)> {
        self.issues.values().find_map(|issue| {
            let threads = &issue.pull.as_ref()?.threads;
            Some((issue.number, threads.iter().position(|thread| thread.id == id)?))
        })
    }
}

impl World {
    /// A text written now, with a new id.
    fn comment(&mut self, author: &str, body: &str) -> Comment {
        let (id, at) = (self.new_id(), self.now());
        let (author, body) = (author.to_owned(), body.to_owned());
        Comment { id, author, body, created_at: at, updated_at: at, ..Comment::default() }
    }

    fn touched(&mut self, repo: usize, number: u64) {
        let at = self.now();
        if let Some(issue) = self.repositories.get_mut(repo).and_then(|repo| repo.issues.get_mut(&number)) {
            issue.updated_at = at;
        }
    }

    fn pull_mut(&mut self, repo: usize, number: u64) -> Option<&mut Pull> {
        self.repositories.get_mut(repo)?.issues.get_mut(&number)?.pull.as_mut()
    }

    /// Adds a comment and returns its id; `None` when there is no such issue.
    pub fn add_comment(&mut self, repo: usize, number: u64, author: &str, body: &str) -> Option<u64> {
        let comment = self.comment(author, body);
        let id = comment.id;
        self.repositories.get_mut(repo)?.issues.get_mut(&number)?.comments.push(comment);
        self.touched(repo, number);
        Some(id)
    }

    /// Reviews a pull request, with the threads that the review begins; gives its id and those of the threads' comments.
    pub fn add_review(
        &mut self,
        (repo, number): (usize, u64),
        author: &str,
        state: &str,
        body: &str,
        threads: &[NewThread],
    ) -> Option<(u64, Vec<u64>)> {
        let comment = self.comment(author, body);
        let review = comment.id;
        let pull = self.pull_mut(repo, number)?;
        let (commit, base) = (pull.head_sha.clone(), pull.base_sha.clone());
        pull.requested_reviewers.retain(|login| !login.eq_ignore_ascii_case(author));
        pull.reviews.push(Review { comment, state: state.to_owned(), commit: commit.clone() });
        let mut ids = Vec::new();
        for new in threads {
            let comment = self.comment(author, &new.body);
            ids.push(comment.id);
            let git_dir = &self.repositories[repo].git_dir;
            let hunk =
                new.line.and_then(|line| bare::hunk(git_dir, (&base, &commit), &new.path, line, new.left));
            let thread = Thread {
                id: self.new_id(),
                path: new.path.clone(),
                line: new.line,
                start_line: new.start_line,
                left: new.left,
                commit: commit.clone(),
                hunk: hunk.unwrap_or_default(),
                resolved_by: None,
                comments: vec![ThreadComment { comment, review, in_reply_to: None }],
            };
            self.pull_mut(repo, number)?.threads.push(thread);
        }
        self.touched(repo, number);
        Some((review, ids))
    }

    /// Answers in a thread, as GitHub does with a review of its own; gives the comment's id.
    pub fn add_reply(
        &mut self,
        (repo, number): (usize, u64),
        thread: usize,
        author: &str,
        body: &str,
    ) -> Option<u64> {
        let (review, _) = self.add_review((repo, number), author, "COMMENTED", "", &[])?;
        let comment = self.comment(author, body);
        let id = comment.id;
        let thread = self.pull_mut(repo, number)?.threads.get_mut(thread)?;
        let in_reply_to = thread.comments.first().map(|first| first.in_reply_to.unwrap_or(first.comment.id));
        thread.comments.push(ThreadComment { comment, review, in_reply_to });
        Some(id)
    }

    /// Changes a text as `editor`, with the history that GitHub keeps; a body goes by [`World::edit_text`].
    pub fn edit_remark(&mut self, repo: usize, place: TextPlace, editor: &str, body: &str) -> bool {
        let (ids, at) = ([self.new_id(), self.new_id()], self.now());
        let text = self.repositories.get_mut(repo).and_then(|repo| repo.text_mut(place));
        let Some(text) = text else { return false };
        if text.edits.is_empty() {
            let (editor, body) = (text.author.clone(), Some(text.body.clone()));
            text.edits.push(Edit { id: ids[0], editor, body, at: text.created_at });
        }
        text.body = body.to_owned();
        text.updated_at = at;
        text.edits.push(Edit { id: ids[1], editor: editor.to_owned(), body: Some(body.to_owned()), at });
        self.touched(repo, place.number());
        true
    }

    /// Deletes a text; a thread goes with its last comment. Reviews that were sent cannot be deleted.
    pub fn delete_remark(&mut self, repo: usize, place: TextPlace) -> bool {
        let issue = self.repositories.get_mut(repo).and_then(|repo| repo.issues.get_mut(&place.number()));
        let Some(issue) = issue else { return false };
        match place {
            TextPlace::Comment(_, place) => drop(issue.comments.remove(place)),
            TextPlace::Thread(_, thread, place) => {
                let Some(pull) = &mut issue.pull else { return false };
                pull.threads[thread].comments.remove(place);
                pull.threads.retain(|thread| !thread.comments.is_empty());
            }
            TextPlace::Body(_) | TextPlace::Review(..) => return false,
        }
        self.touched(repo, place.number());
        true
    }

    /// Reacts to a text; gives the reaction, and whether it is new.
    pub fn react(
        &mut self,
        repo: usize,
        place: TextPlace,
        login: &str,
        content: &str,
    ) -> Option<(Reaction, bool)> {
        let (id, at) = (self.new_id(), self.now());
        let reactions = self.repositories.get_mut(repo)?.reactions_mut(place)?;
        if let Some(known) = reactions.iter().find(|one| one.login == login && one.content == content) {
            return Some((known.clone(), false));
        }
        let reaction = Reaction { id, login: login.to_owned(), content: content.to_owned(), at };
        reactions.push(reaction.clone());
        Some((reaction, true))
    }

    /// Resolves a thread, or opens it again; false: there is none.
    pub fn resolve(&mut self, repo: usize, (number, place): (u64, usize), by: Option<&str>) -> bool {
        let thread = self.pull_mut(repo, number).and_then(|pull| pull.threads.get_mut(place));
        let Some(thread) = thread else { return false };
        thread.resolved_by = by.map(str::to_owned);
        true
    }
}
