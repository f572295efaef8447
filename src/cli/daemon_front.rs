//! What the daemon's front answers with: its address, its secrets, the chat, and what it shows.

use std::sync::Arc;

use secrecy::SecretString;
use tokio::sync::watch;

use super::context::Context;
#[cfg(feature = "nats")]
use super::elsewhere;
use super::error::CommandError;
use super::tools_command;
use crate::daemon::Daemon;
use crate::http::{self, Chat, Front, Listening};
use crate::service::Service;

/// Of the webhooks, and of everyone who asks.
pub struct Secrets {
    pub webhook: Option<SecretString>,
    pub token: Option<SecretString>,
}

/// The address that `daemon.listen` names, taken before anything is done, and the front's secrets.
pub async fn listening(context: &Context) -> Result<Option<(Listening, Secrets)>, CommandError> {
    let config = context.config()?;
    let secret = config.webhook_secret()?;
    let token = config.front_token()?;
    let Some(address) = config.daemon.listen else {
        if secret.is_some() {
            return Err(CommandError::invalid("daemon.webhook_secret is set, and there is no daemon.listen")
                .hint("listen = \"127.0.0.1:7878\" under [daemon]"));
        }
        if !config.chat.users.is_empty() {
            return Err(CommandError::invalid("chat.users are set, and there is no daemon.listen")
                .hint("listen = \"127.0.0.1:7878\" under [daemon]"));
        }
        return Ok(None);
    };
    let listening = http::listen(address).await.map_err(|error| {
        CommandError::failed(format!("daemon.listen: cannot listen on {address}: {error}"))
            .hint("stop what listens there, or choose another port (0 = any free one)")
    })?;
    Ok(Some((listening, Secrets { webhook: secret, token })))
}

/// The chat endpoint's service, if there are users for it. A required MCP server that fails ends the start (exit code
/// 3).
pub async fn chat(context: &Context) -> Result<Option<Arc<Chat>>, CommandError> {
    let users = context.config()?.chat_users()?;
    if users.is_empty() {
        return Ok(None);
    }
    let service = Service::open(tools_command::setup(context)?).await?;
    service.ready()?;
    tools_command::tell_warnings(context, &service);
    Ok(Some(Arc::new(Chat::new(service, users))))
}

/// The front of a daemon that works.
pub fn of_daemon(
    context: &Context,
    daemon: &Daemon,
    secrets: Secrets,
    chat: watch::Receiver<Option<Arc<Chat>>>,
) -> Result<Front, CommandError> {
    Ok(Front {
        token: secrets.token,
        hosts: context.config()?.daemon.hosts.clone(),
        status: daemon.statuses(),
        progress: daemon.progress(),
        state: daemon.state().clone(),
        hints: daemon.hints(),
        webhook_secret: secrets.webhook,
        chat,
        #[cfg(feature = "nats")]
        others: elsewhere::other_nodes(context)?,
    })
}
