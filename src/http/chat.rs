//! The chat endpoint: a bearer token is a user, and a user has conversations that nobody else reaches (S-043, S-045, D52).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use secrecy::{ExposeSecret as _, SecretString};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::domain::canonical::sha256_hex;
use crate::domain::run::{Principal, PrincipalSource};
use crate::service::Service;

/// How long requests under way may take when the daemon ends.
const GRACE: Duration = Duration::from_secs(10);

/// The service for those who have a token.
pub struct Chat {
    pub(super) service: Arc<Service>,
    /// The user of a token, by its hash. Comparing hashes shows nothing about the token.
    users: BTreeMap<String, Principal>,
    /// Requests under way; they end in their conversation even if the client is gone.
    pub(super) under_way: TaskTracker,
}

impl Chat {
    /// `users`: id and token of everyone who may ask.
    pub fn new(service: Service, users: Vec<(Uuid, SecretString)>) -> Self {
        let user = |(id, token): (Uuid, SecretString)| {
            let user = Principal { id, login: None, source: PrincipalSource::Bearer };
            (sha256_hex(token.expose_secret().as_bytes()), user)
        };
        let users = users.into_iter().map(user).collect();
        Self { service: Arc::new(service), users, under_way: TaskTracker::new() }
    }

    /// Accepts nothing new, lets running requests end for a while, then ends them and closes the service.
    pub async fn close(&self) {
        self.under_way.close();
        self.service.ask_to_stop();
        if tokio::time::timeout(GRACE, self.under_way.wait()).await.is_err() {
            self.service.abort();
            self.under_way.wait().await;
        }
        self.service.close().await;
    }

    /// Accepts nothing new and closes the service when running requests have ended. Another service has taken its
    /// place.
    pub async fn close_when_idle(&self) {
        self.under_way.close();
        self.under_way.wait().await;
        self.service.close().await;
    }

    /// Whose token a request has.
    pub(super) fn authenticated(&self, headers: &HeaderMap) -> Option<&Principal> {
        let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = value.split_once(' ')?;
        self.users.get(&sha256_hex(token.trim().as_bytes())).filter(|_| scheme.eq_ignore_ascii_case("bearer"))
    }
}
