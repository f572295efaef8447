//! What people ask of issues and runs: messages beside what operators ask of nodes, each on a subject of its own, where its answer follows.

use super::shared::NatsStore;
use crate::domain::cluster::cells;
use crate::domain::cluster::names::StreamKind;
use crate::domain::cluster::person_request::{PersonRequest, REQUEST_SCHEMA, RequestAnswer, RequestMessage};
use crate::store::port::StoreError;
use crate::store::requests::Requests;

/// Most bytes of the words with which a request is refused: the answer has the request in it, too.
const LONGEST_WORDS: usize = 1024;

impl NatsStore {
    fn subject_of(&self, request: &PersonRequest) -> String {
        self.names().request(&request.repository, &request.issue, request.id)
    }
}

impl Requests for NatsStore {
    fn may_write(&self) -> Result<bool, StoreError> {
        self.may_send(&self.names().cell("request", &[]))
    }

    fn send(&self, request: &PersonRequest) -> Result<(), StoreError> {
        let subject = self.subject_of(request);
        let text = written(&RequestMessage::new(request.clone(), None), &subject)?;
        self.send_until_kept(subject, text)
    }

    fn answer(&self, request: &PersonRequest) -> Result<Option<RequestAnswer>, StoreError> {
        let (subject, stream) = (self.subject_of(request), self.names().stream(StreamKind::Ctl));
        let (link, asked) = (self.shared.connection.link(), subject.clone());
        let last = self.shared.connection.call(async move { link.last(&stream, &asked).await })?;
        let failed = |words: String| StoreError::Failed { action: "read", place: subject.clone(), words };
        let Some(last) = last.map_err(failed)? else { return Ok(None) };
        let message: Result<RequestMessage, _> =
            cells::read(&String::from_utf8_lossy(&last.payload), REQUEST_SCHEMA);
        message.map(|message| message.answer).map_err(|error| failed(error.to_string()))
    }

    fn say_heard(&self, request: &PersonRequest, refused: Option<String>) -> Result<(), StoreError> {
        let refused = refused.map(|words| words.chars().take(LONGEST_WORDS / 4).collect());
        let answer = RequestAnswer { heard_by: self.shared.node.name.clone(), refused };
        let subject = self.subject_of(request);
        let text = written(&RequestMessage::new(request.clone(), Some(answer)), &subject)?;
        self.send_until_kept(subject, text)
    }
}

fn written(message: &RequestMessage, subject: &str) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(message).map_err(|error| StoreError::Failed {
        action: "send to",
        place: subject.to_owned(),
        words: error.to_string(),
    })
}
