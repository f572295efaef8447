//! GraphQL with our own types: an error's `type` is kept, and so is the data that came with it (D59).

use serde_json::{Value, json};

use super::client::Client;
use super::error::{Error, ErrorKind};
use super::graphql_wire::{AnswerWire, ErrorWire};
use super::request::Ask;

/// How often a query is sent again that GitHub fails to answer.
const AGAIN: u32 = 2;

/// A query, or a mutation that sets a state: sending it twice is the same as once.
pub(super) struct Query {
    text: String,
    variables: Value,
    doing: String,
    needs: &'static str,
}

impl Query {
    pub fn new(
        text: impl Into<String>,
        variables: Value,
        doing: impl Into<String>,
        needs: &'static str,
    ) -> Self {
        Self { text: text.into(), variables, doing: doing.into(), needs }
    }
}

/// An answer, possibly partial.
#[derive(Debug)]
pub(super) struct Answer {
    pub data: Value,
    pub errors: Vec<ErrorWire>,
    doing: String,
    needs: &'static str,
}

impl Answer {
    /// The data, if nothing of it is missing.
    pub fn whole(self) -> Result<Value, Error> {
        match self.errors.first() {
            None => Ok(self.data),
            Some(error) => Err(self.error(error)),
        }
    }

    /// Our form of one of the errors.
    pub fn error(&self, error: &ErrorWire) -> Error {
        let kind = match error.kind.as_deref() {
            Some("NOT_FOUND") => ErrorKind::NotFound,
            Some("FORBIDDEN" | "INSUFFICIENT_SCOPES") => {
                ErrorKind::Forbidden { needs: self.needs.to_owned() }
            }
            Some("UNPROCESSABLE") => ErrorKind::Validation,
            _ if error.message.contains("not accessible") => {
                ErrorKind::Forbidden { needs: self.needs.to_owned() }
            }
            _ if is_githubs_own(error) => ErrorKind::Unavailable { status: 200 },
            _ => ErrorKind::Malformed,
        };
        let place: Vec<String> = error.path.iter().flatten().map(Value::to_string).collect();
        let detail =
            format!("{}: {} at {}", error.kind.as_deref().unwrap_or("error"), error.message, place.join("."));
        Error::new(kind, &self.doing, detail)
    }
}

/// Whether GitHub failed by itself: it says so in words alone, without a type.
fn is_githubs_own(error: &ErrorWire) -> bool {
    let words = error.message.to_ascii_lowercase();
    error.kind.is_none() && (words.contains("something went wrong") || words.contains("timeout"))
}

impl Client {
    pub(super) async fn graphql(&self, query: Query) -> Result<Answer, Error> {
        let url = self.endpoint().graphql().to_owned();
        let body = json!({"query": query.text, "variables": query.variables});
        let doing = query.doing;
        let mut tried = 0;
        let body = loop {
            let (url, body) = (url.clone(), Some(body.clone()));
            let ask = Ask::write(http::Method::POST, url, body, doing.as_str(), query.needs);
            let ask = Ask { repeatable: true, resource: "graphql", ..ask };
            let answer: AnswerWire = self.send(ask).await?.json()?;
            // What failed so with status 200 is tried again as what failed with 502 is.
            if tried == AGAIN || !answer.errors.iter().any(is_githubs_own) {
                break answer;
            }
            tokio::time::sleep(self.retry_delay().saturating_mul(1 << tried)).await;
            tried += 1;
        };
        if body.data.is_null() && body.errors.is_empty() {
            return Err(Error::malformed(&doing, "neither data nor errors"));
        }
        Ok(Answer { data: body.data, errors: body.errors, doing, needs: query.needs })
    }
}
