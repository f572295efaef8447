//! The port's cells, each by its subject.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use uuid::Uuid;

use super::cell_stream::{CellStream, Found, Write, Written};
use super::shared::{NatsStore, Shared};
use crate::domain::cluster::names::{StreamKind, last_tokens};
use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::store::port::{Cell, CellChange, Cells, CommitOutcome, MOST_CHANGES, Revision, StoreError};

/// Most bytes of what a node says of itself.
const LARGEST_STATUS: usize = 256 * 1024;

impl NatsStore {
    pub(super) fn subject(&self, cell: &Cell) -> String {
        let names = self.names();
        match cell {
            Cell::Approval { repo, proposal_hash } => names.cell_of("grant", repo, &[proposal_hash]),
            Cell::Denial { repo, proposal_hash } => names.cell_of("denial", repo, &[proposal_hash]),
            Cell::Spend(day) => names.cell("spend", &[&day.to_string()]),
            Cell::IssueSpend { repo, issue } => names.cell_of("issue_spend", repo, &[&issue.to_string()]),
            Cell::Stop { repo, run_id } => names.cell_of("stop", repo, &[&run_id.to_string()]),
            Cell::Inbox { repo, issue } => names.cell_of("inbox", repo, &[&issue.to_string()]),
            Cell::Parked { repo, issue } => names.cell_of("parked", repo, &[&issue.to_string()]),
            // These two are a node's own.
            Cell::Daemon => names.cell("daemon", &[&self.shared.node.name]),
            Cell::Status => names.status(&self.shared.node.name),
            Cell::SealKeys => names.cell("seal_keys", &["all"]),
            Cell::Quota(credential) => names.cell("quota", &[credential]),
        }
    }

    /// The stream that a cell is in: what a node says of itself has one of its own, which forgets.
    pub(super) fn stream_of(&self, cell: &Cell) -> CellStream {
        match cell {
            Cell::Status => {
                let stream = self.names().stream(StreamKind::Status);
                CellStream::new(self.shared.connection.link(), stream).of_up_to(LARGEST_STATUS)
            }
            _ => self.shared.node.cells.clone(),
        }
    }

    /// The cell of a subject; `None` where it is none of the port's, or another node's own.
    fn cell_of(&self, subject: &str) -> Option<Cell> {
        let of_repo = || -> Option<(RepoName, String)> {
            let [owner, name, rest] = last_tokens(subject)?;
            Some((RepoName::parse(&format!("{owner}/{name}")).ok()?, rest))
        };
        let kind = subject.split('.').nth(3)?;
        let cell = match kind {
            "grant" => of_repo().map(|(repo, proposal_hash)| Cell::Approval { repo, proposal_hash })?,
            "denial" => of_repo().map(|(repo, proposal_hash)| Cell::Denial { repo, proposal_hash })?,
            "spend" => Cell::Spend(last_tokens::<1>(subject)?[0].parse().ok()?),
            "issue_spend" => {
                of_repo().map(|(repo, key)| Cell::IssueSpend { repo, issue: IssueKey::of_text(&key) })?
            }
            "stop" => {
                let (repo, run) = of_repo()?;
                Cell::Stop { repo, run_id: RunId(Uuid::parse_str(&run).ok()?) }
            }
            "inbox" => of_repo().map(|(repo, key)| Cell::Inbox { repo, issue: IssueKey::of_text(&key) })?,
            "parked" => of_repo().map(|(repo, key)| Cell::Parked { repo, issue: IssueKey::of_text(&key) })?,
            "daemon" => Cell::Daemon,
            "seal_keys" => Cell::SealKeys,
            "quota" => Cell::Quota(last_tokens::<1>(subject)?[0].clone()),
            _ => return None,
        };
        (self.subject(&cell) == subject).then_some(cell)
    }
}

/// Does something with cells. A holder waits for as long as it may be one.
async fn with<T, F: Future<Output = Result<T, StoreError>>>(
    shared: Arc<Shared>,
    waits: bool,
    cells: CellStream,
    work: impl FnOnce(CellStream) -> F,
) -> Result<T, StoreError> {
    let session = if waits { shared.session.lock().await.clone() } else { None };
    let Some(session) = session.filter(|session| !session.has_expired()) else { return work(cells).await };
    tokio::select! {
        done = work(cells.patient_for(Duration::MAX)) => done,
        () = session.expiry() => {
            Err(CellStream::failed("change", "the cells", "this node's session has expired".to_owned()))
        }
    }
}

impl Cells for NatsStore {
    fn get(&self, cell: &Cell) -> Result<(Revision, Option<String>), StoreError> {
        let (cells, subject) = (self.stream_of(cell), self.subject(cell));
        let (shared, waits) = (Arc::clone(&self.shared), self.waits);
        let found = self.shared.connection.call(async move {
            with(shared, waits, cells, |cells| async move { cells.get(&subject).await }).await
        })??;
        Ok((revision(&found), found.value))
    }

    fn commit(&self, changes: &[CellChange]) -> Result<CommitOutcome, StoreError> {
        if changes.len() > MOST_CHANGES {
            let words = format!("{} cells are more than {MOST_CHANGES}", changes.len());
            return Err(CellStream::failed("change", "the cells", words));
        }
        let cells = match changes {
            [only] => self.stream_of(&only.cell),
            several if several.iter().any(|change| change.cell == Cell::Status) => {
                let words = "what a node says of itself changes alone".to_owned();
                return Err(CellStream::failed("change", "the cells", words));
            }
            _ => self.shared.node.cells.clone(),
        };
        let changes: Vec<(String, CellChange)> =
            changes.iter().map(|change| (self.subject(&change.cell), change.clone())).collect();
        let (shared, waits) = (Arc::clone(&self.shared), self.waits);
        let commit = async move |cells: CellStream| {
            let mut writes = Vec::new();
            for (subject, change) in changes {
                let after = match change.after.number() {
                    // Emptied or never there: the message that says so is what the value follows.
                    0 => {
                        let now = cells.get(&subject).await?;
                        if now.value.is_some() {
                            return Ok(CommitOutcome::Overtaken);
                        }
                        now.sequence
                    }
                    sequence => sequence,
                };
                writes.push(Write { subject, after, value: change.value });
            }
            // What is empty and stays so alone needs no message.
            if let [only] = writes.as_slice()
                && only.value.is_none()
            {
                let now = cells.get(&only.subject).await?;
                if now.value.is_none() {
                    return Ok(if now.sequence == only.after {
                        CommitOutcome::Done
                    } else {
                        CommitOutcome::Overtaken
                    });
                }
            }
            Ok(match cells.commit(&writes).await? {
                Written::At(_) => CommitOutcome::Done,
                Written::Overtaken => CommitOutcome::Overtaken,
            })
        };
        self.shared.connection.call(with(shared, waits, cells, commit))?
    }

    fn watch(&self, cell: &Cell) -> BoxStream<'static, Option<String>> {
        // The watch is worked on by whoever reads it; its connection's tasks are the store's.
        self.stream_of(cell).watch(self.subject(cell)).map(|(_, value)| value).boxed()
    }

    fn cells(&self) -> Result<Vec<Cell>, StoreError> {
        let cells = self.shared.node.cells.clone();
        let filter = self.names().subjects(StreamKind::Cells).concat();
        let subjects = self.shared.connection.call(async move { cells.subjects(&filter).await })??;
        let mut found = Vec::new();
        for cell in subjects.iter().filter_map(|subject| self.cell_of(subject)) {
            // An emptied one has a message as well.
            if self.get(&cell)?.1.is_some() {
                found.push(cell);
            }
        }
        if self.get(&Cell::Status)?.1.is_some() {
            found.push(Cell::Status);
        }
        Ok(found)
    }

    fn parked(&self) -> Result<Vec<(RepoName, IssueKey)>, StoreError> {
        let cells = self.shared.node.cells.clone();
        let filter = format!("{}.>", self.names().cell("parked", &[]));
        let subjects = self.shared.connection.call(async move { cells.subjects(&filter).await })??;
        let of_subject = |subject: &String| match self.cell_of(subject) {
            Some(Cell::Parked { repo, issue }) => Some((repo, issue)),
            _ => None,
        };
        Ok(subjects.iter().filter_map(of_subject).collect())
    }

    fn place(&self, cell: &Cell) -> PathBuf {
        PathBuf::from(self.subject(cell))
    }
}

fn revision(found: &Found) -> Revision {
    match found.value {
        Some(_) => Revision::numbered(found.sequence),
        None => Revision::ABSENT,
    }
}
