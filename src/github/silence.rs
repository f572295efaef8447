//! Repositories that do not answer. Who looks at many in turn asks such a one nothing for a while, so that the others do not wait
//! for it each time.

use std::time::Duration;

use tokio::time::Instant;

use super::client::Client;
use super::error::{Error, ErrorKind};
use super::request::Ask;

/// The longest time for an answer in passing. GitHub itself gives up after ten seconds.
const PATIENCE: Duration = Duration::from_secs(15);
/// A server's failure after so long is no answer: asked at once again, it would take as long.
const SLOW: Duration = Duration::from_secs(5);

/// The repository that a request is about, in lower case: by its path, or by a query's variables.
fn repository(ask: &Ask, rest: &str) -> Option<String> {
    let name = match ask.url.strip_prefix(rest) {
        Some(path) => {
            let mut parts = path.strip_prefix("/repos/")?.split(['/', '?']);
            format!("{}/{}", parts.next()?, parts.next()?)
        }
        None => {
            let variables = ask.body.as_ref()?.get("variables")?;
            format!("{}/{}", variables["owner"].as_str()?, variables["name"].as_str()?)
        }
    };
    Some(name.to_ascii_lowercase())
}

impl Client {
    /// The same client for who looks at many repositories in turn: it waits a second for a rate limit and some for an answer, and
    /// a repository that did not answer is asked nothing for the better part of a minute, which is an error at once.
    pub fn in_passing(&self) -> Self {
        let mut client = self.patient(Duration::from_secs(1));
        client.passing = true;
        client
    }

    /// The longest time for an answer.
    pub(super) fn answer_time(&self) -> Duration {
        if self.passing { PATIENCE.min(self.timeout()) } else { self.timeout() }
    }

    /// Refuses what is asked in passing of a repository that did not answer a moment ago.
    pub(super) fn refuse_silent(&self, ask: &Ask) -> Result<(), Error> {
        let held = |repo: String| self.memory().silences.holds(&repo, Instant::now());
        if self.passing && repository(ask, &self.url("")).is_some_and(held) {
            return Err(Error::new(
                ErrorKind::Unreachable,
                &ask.doing,
                "the repository did not answer a moment ago",
            ));
        }
        Ok(())
    }

    /// Takes how a request that began then failed. True: it took so long that in passing nobody waits as long again.
    pub(super) fn note_silence(&self, ask: &Ask, began: Instant) -> bool {
        if !self.passing || began.elapsed() < SLOW {
            return false;
        }
        if let Some(repo) = repository(ask, &self.url("")) {
            self.memory().silences.note(repo, Instant::now());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_names_its_repository_by_path_or_by_variables() {
        let rest = "https://github.example/api/v3";
        let of = |path: &str| repository(&Ask::get(format!("{rest}{path}"), "", ""), rest);
        assert_eq!(of("/repos/Acme/Shop/issues?page=2").as_deref(), Some("acme/shop"));
        assert_eq!(of("/repos/acme/shop?x").as_deref(), Some("acme/shop"));
        assert_eq!((of("/user"), of("/repos/acme")), (None, None));
        let query = |variables| {
            let body = Some(json!({ "query": "", "variables": variables }));
            repository(
                &Ask { body, ..Ask::get("https://github.example/api/graphql".to_owned(), "", "") },
                rest,
            )
        };
        assert_eq!(query(json!({ "owner": "Acme", "name": "shop" })).as_deref(), Some("acme/shop"));
        assert_eq!(query(json!({ "id": "x" })), None);
    }
}
