//! People and Apps: whose token this is, and what somebody may do in a repository.

use super::account::{Actor, Viewer};
use super::client::Client;
use super::error::{Error, ErrorKind};
use super::graphql::Query;
use super::request::Ask;
use super::rest_wire::{AppWire, PermissionWire, UserWire};
use crate::domain::name::RepoName;
use crate::domain::percent::percent_encoded;
use crate::domain::policy::ActorPermission;

/// Permissions that are remembered with their tags at most, so that strangers cannot fill the memory.
const MOST_REMEMBERED: usize = 1_000;

impl Client {
    /// What `login` may do in the repository; an account that GitHub does not know may do nothing.
    pub async fn permission(&self, repo: &RepoName, login: &str) -> Result<ActorPermission, Error> {
        let doing = format!("reading what {login} may do in {repo}");
        let url = self.url(&format!("/repos/{repo}/collaborators/{}/permission", percent_encoded(login)));
        let key = (repo.clone(), login.to_ascii_lowercase());
        let known = self.memory().permissions.lock().await.get(&key).cloned();
        let ask = Ask::get(url, doing, "metadata: read, with push access")
            .etag(known.as_ref().map(|(etag, _)| etag.as_str()));
        let reply = match self.send(ask).await {
            Ok(reply) => reply,
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(ActorPermission::None),
            Err(error) => return Err(error),
        };
        // Asked each time, because rights can be withdrawn. An unchanged answer costs nothing.
        if let (true, Some((_, permission))) = (reply.unchanged(), known) {
            return Ok(permission);
        }
        let wire: PermissionWire = reply.json()?;
        // `permission` knows four levels; `role_name` tells maintain and triage apart, and names custom roles.
        let coarse = ActorPermission::parse(&wire.permission).unwrap_or(ActorPermission::None);
        let permission = match ActorPermission::parse(&wire.role_name) {
            Some(fine @ (ActorPermission::Maintain | ActorPermission::Triage)) => fine,
            _ => coarse,
        };
        if let Some(etag) = reply.etag() {
            let mut permissions = self.memory().permissions.lock().await;
            if permissions.len() >= MOST_REMEMBERED {
                permissions.clear();
            }
            permissions.insert(key, (etag, permission));
        }
        Ok(permission)
    }

    /// Who the credentials are; asked once and kept.
    pub async fn viewer(&self) -> Result<&Viewer, Error> {
        self.memory().viewer.get_or_try_init(|| self.ask_viewer()).await
    }

    async fn ask_viewer(&self) -> Result<Viewer, Error> {
        let doing = "reading whose credentials these are";
        if self.app_id().is_some() {
            let reply = self.send_as_app(Ask::get(self.url("/app"), doing, "the App's own key")).await?;
            let app: AppWire = reply.json()?;
            if app.slug.is_empty() {
                return Err(Error::malformed(doing, "the App has no slug"));
            }
            let actor = Actor { login: format!("{}[bot]", app.slug), id: 0, bot: true };
            return Ok(Viewer { actor, scopes: None });
        }
        let reply = match self.send(Ask::get(self.url("/user"), doing, "a user's token")).await {
            Ok(reply) => reply,
            // An installation token, as workflows get it, has no user; GraphQL still knows whose it is.
            Err(error) if matches!(error.kind, ErrorKind::Forbidden { .. } | ErrorKind::NotFound) => {
                return match self.ask_viewer_by_graphql().await {
                    Err(error) if !error.is_transient() => {
                        tracing::info!(%error, "GitHub does not say whose credentials these are");
                        Ok(Viewer { actor: Actor { login: String::new(), id: 0, bot: false }, scopes: None })
                    }
                    other => other,
                };
            }
            Err(error) => return Err(error),
        };
        let scopes = reply.header("x-oauth-scopes").map(|scopes| {
            scopes.split(',').map(|scope| scope.trim().to_owned()).filter(|scope| !scope.is_empty()).collect()
        });
        let user: UserWire = reply.json()?;
        if user.login.is_empty() {
            return Err(Error::malformed(doing, "the user has no login"));
        }
        Ok(Viewer { actor: Actor::from(user), scopes })
    }

    async fn ask_viewer_by_graphql(&self) -> Result<Viewer, Error> {
        let doing = "reading whose credentials these are";
        let query = Query::new(
            "query { viewer { login databaseId } }",
            serde_json::json!({}),
            doing,
            "metadata: read",
        );
        let data = self.graphql(query).await?.whole()?;
        let login = data["viewer"]["login"].as_str().unwrap_or_default().to_owned();
        if login.is_empty() {
            return Err(Error::malformed(doing, "the viewer has no login"));
        }
        let actor = Actor {
            bot: login.ends_with("[bot]"),
            id: data["viewer"]["databaseId"].as_u64().unwrap_or(0),
            login,
        };
        Ok(Viewer { actor, scopes: None })
    }
}
