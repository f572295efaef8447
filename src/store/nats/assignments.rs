//! Runs that are given to other nodes. An assignment is a cell of its own; it is made and taken back in one commit with the issue's cell, so
//! that one issue has one assignment, and whoever takes the issue's lease takes what was offered.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use serde_json::Value;

use super::cell_stream::{Write, Written};
use super::connection::PAUSE;
use super::control::Heard;
use super::holders::session_lives;
use super::node::{document, failed, issue_cell, node_cells, text_of};
use super::session::Session;
use super::shared::{NatsStore, Shared, session};
use super::slots;
use crate::domain::cluster::assignment::{ASSIGNMENT_SCHEMA, AssignmentAnswer, AssignmentCell, Requested};
use crate::domain::cluster::cells::{Hold, IssueCell, NodeCell, NodeState, RunKey, SessionId};
use crate::domain::cluster::control::{ControlMessage, NodeRequest};
use crate::domain::cluster::lease;
use crate::domain::cluster::names::{BESIDE, Names, last_tokens};
use crate::domain::name::RepoName;
use crate::store::assignments::{
    AssignmentId, Assignments, CapOfAll, Control, LastHolder, NodeRoom, Room, RoomNow, Wake,
};
use crate::store::port::StoreError;

fn subject_of(names: &Names, id: &AssignmentId) -> String {
    names.cell("assignment", &[&id.node, id.repo.owner(), id.repo.name(), &id.number.to_string()])
}

fn id_of(subject: &str) -> Option<AssignmentId> {
    let [node, owner, name, number] = last_tokens(subject)?;
    let repo = RepoName::parse(&format!("{owner}/{name}")).ok()?;
    Some(AssignmentId { node, repo, number: number.parse().ok()? })
}

fn issue_subject(names: &Names, repo: &RepoName, number: u64) -> String {
    names.cell_of("issue", repo, &[&number.to_string()])
}

async fn assignment_cell(
    shared: &Shared,
    subject: &str,
) -> Result<(u64, Option<AssignmentCell>), StoreError> {
    document(&shared.node.cells, subject, ASSIGNMENT_SCHEMA).await
}

/// The issue's cell without what was offered under this key; `None`: it has something else.
fn without(cell: &IssueCell, key: &RunKey) -> Option<IssueCell> {
    let is_of = matches!(&cell.hold, Hold::Offered { key: offered, .. } if offered == key);
    is_of.then(|| lease::withdrawn(cell)).flatten()
}

/// The daemon that a node's cell speaks of; `None`: it takes no runs of others.
fn room_of(cell: &NodeCell) -> Option<Room> {
    let serves = cell.serves.iter().filter_map(|repo| RepoName::parse(repo).ok()).collect();
    let takes = cell.state == NodeState::Live && cell.capacity > 0;
    let github_fails = cell.github_fails;
    takes.then_some(Room {
        capacity: cell.capacity,
        runs: cell.runs,
        serves,
        github_fails,
        configuration: None,
        drains: false,
    })
}

async fn nodes(
    shared: Arc<Shared>,
    looks_beside: bool,
) -> Result<(Vec<NodeRoom>, Vec<SessionId>), StoreError> {
    let own = session(&shared).await?;
    let (mut found, mut gone) = (Vec::new(), Vec::new());
    for (node, _, cell) in node_cells(&shared.node.cells, &shared.node.names).await? {
        let by = SessionId { node: node.clone(), session: cell.session };
        if looks_beside && node.contains(BESIDE) {
            let is_gone = match cell.state {
                NodeState::Live | NodeState::Draining => !own.sees_alive(&by).await?,
                NodeState::Expired => true,
                NodeState::Left => false,
            };
            gone.extend(is_gone.then_some(by));
            continue;
        }
        let Some(room) = room_of(&cell) else { continue };
        let is_own = by == own.id;
        if is_own || own.sees_alive(&by).await? {
            found.push(NodeRoom { node, by, is_own, room });
        }
    }
    Ok((found, gone))
}

/// Makes the assignment, with this node's own cell, so that a session that has expired assignments nothing.
async fn assign(
    shared: Arc<Shared>,
    id: AssignmentId,
    request: Value,
) -> Result<Option<AssignmentCell>, StoreError> {
    let own = session(&shared).await?;
    let names = &shared.node.names;
    let (subject, issue) = (subject_of(names, &id), issue_subject(names, &id.repo, id.number));
    let key = RunKey::asked_once();
    let made = AssignmentCell::new(key.clone(), own.id.clone(), request);
    loop {
        tokio::time::sleep(own.waits_for_others()).await;
        let (after, cell) = issue_cell(&shared.node.cells, &issue).await?;
        let Some(next) = lease::offered(&cell, &key, Some(&id.node)) else { return Ok(None) };
        let before = assignment_cell(&shared, &subject).await?.0;
        let writes = vec![
            Write { subject: issue.clone(), after, value: Some(text_of(&next, &issue)?) },
            Write { subject: subject.clone(), after: before, value: Some(text_of(&made, &subject)?) },
        ];
        if own.commit(writes).await? != Written::Overtaken {
            return Ok(Some(made));
        }
        still_lives(&own, &subject)?;
    }
}

fn still_lives(own: &Session, subject: &str) -> Result<(), StoreError> {
    match own.has_expired() {
        true => Err(failed(subject, "this node's session has expired")),
        false => Ok(()),
    }
}

/// Changes an assignment, and with it the issue where the assignment stands no longer. `change` gives what it is to say, `None` = as it is.
async fn change(
    shared: &Shared,
    own: &Session,
    (id, key): (&AssignmentId, &RunKey),
    frees_issue: bool,
    mut next: impl FnMut(&AssignmentCell) -> Option<Option<AssignmentCell>>,
) -> Result<Option<AssignmentCell>, StoreError> {
    let names = &shared.node.names;
    let (subject, issue) = (subject_of(names, id), issue_subject(names, &id.repo, id.number));
    loop {
        let (after, Some(cell)) = assignment_cell(shared, &subject).await? else { return Ok(None) };
        let Some(next) = next(&cell).filter(|_| cell.key == *key) else { return Ok(None) };
        let value = next.as_ref().map(|next| text_of(next, &subject)).transpose()?;
        let mut writes = vec![Write { subject: subject.clone(), after, value }];
        if frees_issue {
            let (after, now) = issue_cell(&shared.node.cells, &issue).await?;
            if let Some(free) = without(&now, &cell.key) {
                writes.push(Write { subject: issue.clone(), after, value: Some(text_of(&free, &issue)?) });
            }
        }
        if own.commit(writes).await? != Written::Overtaken {
            return Ok(Some(next.unwrap_or(cell)));
        }
        still_lives(own, &subject)?;
    }
}

async fn withdraw(shared: Arc<Shared>, id: AssignmentId, key: RunKey) -> Result<bool, StoreError> {
    let own = session(&shared).await?;
    let subject = subject_of(&shared.node.names, &id);
    let (_, Some(cell)) = assignment_cell(&shared, &subject).await? else { return Ok(true) };
    let lives = match &cell.answer {
        AssignmentAnswer::Taken { by, .. } => own.sees_alive(by).await?,
        _ => true,
    };
    let freed = change(&shared, &own, (&id, &key), true, |now| {
        (*now == cell && now.is_free(|_| lives)).then_some(None)
    });
    Ok(freed.await?.is_some())
}

/// Makes an assignment anew that is there no more although nobody has taken it away: the store has begun anew, and who works on the run
/// still does. False: this session has expired.
async fn made_anew(shared: &Shared, subject: &str, last: &str) -> bool {
    loop {
        let own = shared.session.lock().await.clone();
        let Some(own) = own.filter(|own| !own.has_expired()) else { return false };
        let write = Write { subject: subject.to_owned(), after: 0, value: Some(last.to_owned()) };
        match own.commit(vec![write]).await {
            Ok(Written::At(_)) => return true,
            Ok(Written::Overtaken) => match shared.node.cells.get(subject).await {
                Ok(now) if now.sequence > 0 => return true,
                Ok(_) => {}
                Err(error) => tracing::debug!("an assignment is not made anew yet: {error}"),
            },
            Err(error) => tracing::debug!("an assignment is not made anew yet: {error}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl NatsStore {
    /// Does something with this node's session.
    fn with_session<T: Send + 'static, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        work: impl FnOnce(Arc<Shared>, Arc<Session>) -> F + Send + 'static,
    ) -> Result<T, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.shared.connection.call(async move {
            let own = session(&shared).await?;
            work(shared, own).await
        })?
    }
}

impl Assignments for NatsStore {
    fn serve(&self, room: RoomNow) {
        self.shared.node.room.set(room);
    }

    fn nodes(&self) -> Result<Vec<NodeRoom>, StoreError> {
        Ok(self.shared.connection.call(nodes(Arc::clone(&self.shared), false))??.0)
    }

    fn nodes_and_gone(&self) -> Result<(Vec<NodeRoom>, Vec<SessionId>), StoreError> {
        self.shared.connection.call(nodes(Arc::clone(&self.shared), true))?
    }

    fn cap_of_all(&self, beside: &[(RepoName, u64)]) -> Result<Option<CapOfAll>, StoreError> {
        let subjects = beside.iter().map(|(repo, number)| issue_subject(self.names(), repo, *number));
        let beside: Vec<String> = subjects.collect();
        self.with_session(move |shared, own| async move { slots::of_all(&shared.node, &own, &beside).await })
    }

    fn announce(&self) -> Result<(), StoreError> {
        self.with_session(|_, own| async move { own.commit(Vec::new()).await.map(drop) })
    }

    fn controls(&self) -> BoxStream<'static, Control> {
        let shared = Arc::clone(&self.shared);
        let heard = self.control_messages().filter_map(move |heard| {
            let shared = Arc::clone(&shared);
            async move {
                let ControlMessage { by, asked, .. } = match heard {
                    Heard::Control(message) => message,
                    Heard::Request(message) => return Some(Control::Request(message)),
                };
                match asked {
                    NodeRequest::Move(asked) => Some(Control::Move(asked)),
                    NodeRequest::Drain { session } => {
                        let own = shared.session.lock().await.as_ref().map(|own| own.id.clone());
                        (own == Some(session)).then_some(Control::Drain { by })
                    }
                }
            }
        });
        heard.boxed()
    }

    fn last_holder(&self, repo: &RepoName, number: u64) -> Result<LastHolder, StoreError> {
        let (shared, issue) = (Arc::clone(&self.shared), issue_subject(self.names(), repo, number));
        self.shared.connection.call(async move {
            let cell = issue_cell(&shared.node.cells, &issue).await?.1;
            Ok(LastHolder { node: cell.worktree_on, record: cell.record })
        })?
    }

    fn assign(&self, id: &AssignmentId, request: Value) -> Result<Option<AssignmentCell>, StoreError> {
        self.shared.connection.call(assign(Arc::clone(&self.shared), id.clone(), request))?
    }

    fn hand_over(
        &self,
        id: &AssignmentId,
        key: &RunKey,
        request: Value,
        run_id: Option<String>,
    ) -> Result<(), StoreError> {
        let (id, key) = (id.clone(), key.clone());
        self.with_session(move |shared, own| async move {
            let subject = subject_of(&shared.node.names, &id);
            let answer = AssignmentAnswer::Taken { by: own.id.clone(), run_id };
            let made = AssignmentCell { answer, ..AssignmentCell::new(key, own.id.clone(), request) };
            loop {
                let after = assignment_cell(&shared, &subject).await?.0;
                let value = Some(text_of(&made, &subject)?);
                if own.commit(vec![Write { subject: subject.clone(), after, value }]).await?
                    != Written::Overtaken
                {
                    return Ok(());
                }
                still_lives(&own, &subject)?;
            }
        })
    }

    fn take_back(&self, id: &AssignmentId, key: &RunKey) -> Result<bool, StoreError> {
        let (id, key) = (id.clone(), key.clone());
        self.with_session(move |shared, own| async move {
            let is_own = |cell: &AssignmentCell| {
                matches!(&cell.answer, AssignmentAnswer::Taken { by, .. } if *by == own.id).then_some(None)
            };
            Ok(change(&shared, &own, (&id, &key), false, is_own).await?.is_some())
        })
    }

    fn withdraw(&self, id: &AssignmentId, key: &RunKey) -> Result<bool, StoreError> {
        self.shared.connection.call(withdraw(Arc::clone(&self.shared), id.clone(), key.clone()))?
    }

    fn ask(&self, id: &AssignmentId, key: &RunKey, requested: Requested) -> Result<(), StoreError> {
        let (id, key) = (id.clone(), key.clone());
        self.with_session(move |shared, own| async move {
            let next = |cell: &AssignmentCell| {
                let mut next = cell.clone();
                next.requested.stop = next.requested.stop.or_else(|| requested.stop.clone());
                next.requested.extended_by.extend(requested.extended_by.clone());
                Some(Some(next))
            };
            change(&shared, &own, (&id, &key), false, next).await.map(drop)
        })
    }

    fn accept(&self, id: &AssignmentId, key: &RunKey) -> Result<bool, StoreError> {
        let (id, key) = (id.clone(), key.clone());
        self.with_session(move |shared, own| async move {
            let next = |cell: &AssignmentCell| cell.taken(&own.id).map(Some);
            Ok(change(&shared, &own, (&id, &key), false, next).await?.is_some())
        })
    }

    fn name(&self, id: &AssignmentId, key: &RunKey, run_id: &str) -> Result<(), StoreError> {
        let (id, key, run_id) = (id.clone(), key.clone(), Some(run_id.to_owned()));
        self.with_session(move |shared, own| async move {
            let named = AssignmentAnswer::Taken { by: own.id.clone(), run_id };
            let next = |cell: &AssignmentCell| cell.answered(&own.id, named.clone()).map(Some);
            change(&shared, &own, (&id, &key), false, next).await.map(drop)
        })
    }

    fn answer(&self, id: &AssignmentId, key: &RunKey, answer: AssignmentAnswer) -> Result<bool, StoreError> {
        let (id, key) = (id.clone(), key.clone());
        self.with_session(move |shared, own| async move {
            let next = |cell: &AssignmentCell| match (&answer, &cell.answer) {
                (AssignmentAnswer::Declined { .. }, AssignmentAnswer::Open) => {
                    Some(AssignmentCell { answer: answer.clone(), ..cell.clone() })
                }
                _ => cell.answered(&own.id, answer.clone()),
            };
            Ok(change(&shared, &own, (&id, &key), true, |cell| next(cell).map(Some)).await?.is_some())
        })
    }

    fn forget(&self, id: &AssignmentId, key: &RunKey) -> Result<(), StoreError> {
        let (id, key) = (id.clone(), key.clone());
        self.with_session(move |shared, own| async move {
            let is_read = |cell: &AssignmentCell| {
                matches!(cell.answer, AssignmentAnswer::Ended { .. } | AssignmentAnswer::Declined { .. })
                    .then_some(None)
            };
            change(&shared, &own, (&id, &key), true, is_read).await.map(drop)
        })
    }

    fn follow(&self, id: &AssignmentId) -> BoxStream<'static, Option<AssignmentCell>> {
        let (shared, subject) = (Arc::clone(&self.shared), subject_of(self.names(), id));
        let values = self.shared.node.cells.clone().watch(subject.clone());
        let begun = (values, None::<String>);
        let cells = stream::unfold(begun, move |(mut values, mut last)| {
            let (shared, subject) = (Arc::clone(&shared), subject.clone());
            async move {
                loop {
                    let (sequence, value) = values.next().await?;
                    if sequence == 0
                        && let Some(last) = &last
                        && made_anew(&shared, &subject, last).await
                    {
                        continue;
                    }
                    last.clone_from(&value);
                    return Some((value.and_then(|text| read(&text)), (values, last)));
                }
            }
        });
        cells.boxed()
    }

    fn to_this_node(&self) -> BoxStream<'static, (AssignmentId, Option<AssignmentCell>)> {
        let filter = format!("{}.*.*.*", self.names().cell("assignment", &[&self.shared.node.name]));
        let cells = self.shared.node.cells.clone();
        let changed = cells.clone().changes(filter);
        changed
            .filter_map(move |subject| {
                let cells = cells.clone();
                async move {
                    let id = id_of(&subject)?;
                    let value = cells.get(&subject).await.ok()?.value;
                    Some((id, value.and_then(|text| read(&text))))
                }
            })
            .boxed()
    }

    fn of_repository(&self, repo: &RepoName) -> Result<Vec<(AssignmentId, AssignmentCell)>, StoreError> {
        let of_node = self.names().cell_of("assignment.*", repo, &[]);
        let (shared, filter) = (Arc::clone(&self.shared), format!("{of_node}.*"));
        self.shared.connection.call(async move {
            let mut found = Vec::new();
            for subject in shared.node.cells.subjects(&filter).await? {
                let cell = assignment_cell(&shared, &subject).await?.1;
                found.extend(id_of(&subject).zip(cell));
            }
            Ok(found)
        })?
    }

    fn wake(&self, wakes: Vec<Wake>) {
        self.send_wakes(wakes);
    }

    fn wakes(&self) -> BoxStream<'static, Wake> {
        self.hear_wakes()
    }

    fn session_lives(&self, session: &SessionId) -> Result<bool, StoreError> {
        let by = session.clone();
        self.with_session(move |shared, own| async move {
            match own.id == by {
                true => Ok(true),
                // What its host sees at once counts as well.
                false => Ok(session_lives(&shared, &by).await? && own.sees_alive(&by).await?),
            }
        })
    }
}

/// An assignment of a version that is not known here is nobody's business here.
fn read(text: &str) -> Option<AssignmentCell> {
    crate::domain::cluster::cells::read(text, ASSIGNMENT_SCHEMA)
        .inspect_err(|error| tracing::warn!("an assignment cannot be read: {error}"))
        .ok()
}
