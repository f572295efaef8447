//! The port's cells, each by its subject.

use std::path::PathBuf;

use futures::StreamExt as _;
use futures::stream::BoxStream;

use super::cell_stream::{CellStream, Found, Write, Written};
use super::shared::NatsStore;
use crate::store::port::{Cell, Cells, Change, Committed, MOST_CHANGES, Revision, StoreError};

impl NatsStore {
    fn subject(&self, cell: &Cell) -> String {
        let names = self.names();
        match cell {
            Cell::Approval { repo, proposal_hash } => names.cell_of("grant", repo, &[proposal_hash]),
            Cell::Denial { repo, proposal_hash } => names.cell_of("denial", repo, &[proposal_hash]),
            Cell::Spend(day) => names.cell("spend", &[&day.to_string()]),
            Cell::IssueSpend { repo, issue } => names.cell_of("issue_spend", repo, &[&issue.to_string()]),
            Cell::Stop { repo, run_id } => names.cell_of("stop", repo, &[&run_id.to_string()]),
            Cell::Inbox { repo, number } => names.cell_of("inbox", repo, &[&number.to_string()]),
            Cell::Parked { repo, issue } => names.cell_of("parked", repo, &[&issue.to_string()]),
            // These two are a node's own.
            Cell::Daemon => names.cell("daemon", &[&self.shared.node.name]),
            Cell::Status => names.cell("status", &[&self.shared.node.name]),
        }
    }
}

impl Cells for NatsStore {
    fn get(&self, cell: &Cell) -> Result<(Revision, Option<String>), StoreError> {
        let (cells, subject) = (self.shared.node.cells.clone(), self.subject(cell));
        let found = self.shared.connection.call(async move { cells.get(&subject).await })??;
        Ok((revision(&found), found.value))
    }

    fn commit(&self, changes: &[Change]) -> Result<Committed, StoreError> {
        if changes.len() > MOST_CHANGES {
            let words = format!("{} cells are more than {MOST_CHANGES}", changes.len());
            return Err(CellStream::failed("change", "the cells", words));
        }
        let cells = self.shared.node.cells.clone();
        let changes: Vec<(String, Change)> =
            changes.iter().map(|change| (self.subject(&change.cell), change.clone())).collect();
        self.shared.connection.call(async move {
            let mut writes = Vec::new();
            for (subject, change) in changes {
                let after = match change.after.number() {
                    // Emptied or never there: the message that says so is what the value follows.
                    0 => {
                        let now = cells.get(&subject).await?;
                        if now.value.is_some() {
                            return Ok(Committed::Overtaken);
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
                        Committed::Done
                    } else {
                        Committed::Overtaken
                    });
                }
            }
            Ok(match cells.commit(&writes).await? {
                Written::At(_) => Committed::Done,
                Written::Overtaken => Committed::Overtaken,
            })
        })?
    }

    fn watch(&self, cell: &Cell) -> BoxStream<'static, Option<String>> {
        // The watch is worked on by whoever reads it; its connection's tasks are the store's.
        self.shared.node.cells.clone().watch(self.subject(cell)).map(|(_, value)| value).boxed()
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
