//! What the daemon answers over HTTP: its address, its secrets, the chat, and what it shows, as the configuration in force says.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::{Mutex, watch};

use super::context::Context;
#[cfg(feature = "nats")]
use super::elsewhere;
use super::error::CommandError;
use super::tools_command;
use crate::config::Config;
use crate::daemon::{Daemon, Hints, Progress, Waiting};
use crate::domain::money::Money;
use crate::http::{self, Chat, Front, Listening};
use crate::service::Service;

/// Who may ask, under which names.
struct Settings {
    webhook: Option<SecretString>,
    token: Option<SecretString>,
    hosts: Vec<String>,
}

impl Settings {
    fn is_same(&self, other: &Self) -> bool {
        let said = |secret: &Option<SecretString>| {
            secret.as_ref().map(|secret| secret.expose_secret().to_owned()).unwrap_or_default()
        };
        said(&self.webhook) == said(&other.webhook)
            && said(&self.token) == said(&other.token)
            && self.hosts == other.hosts
    }
}

/// The address of `daemon.listen`, and the settings of whoever answers there.
fn settings(config: &Config) -> Result<Option<(SocketAddr, Settings)>, CommandError> {
    let settings = Settings {
        webhook: config.webhook_secret()?,
        token: config.front_token()?,
        hosts: config.daemon.hosts.clone(),
    };
    if let Some(address) = config.daemon.listen {
        return Ok(Some((address, settings)));
    }
    let without = [
        (settings.webhook.is_some(), "daemon.webhook_secret is set"),
        (!config.chat.users.is_empty(), "chat.users are set"),
    ];
    match without.into_iter().find(|(set, _)| *set) {
        Some((_, what)) => Err(CommandError::invalid(format!("{what}, and there is no daemon.listen"))
            .hint("listen = \"127.0.0.1:7878\" under [daemon]")),
        None => Ok(None),
    }
}

/// A server at work, and what it was begun with.
struct Serving {
    listening: Listening,
    /// As the configuration names it; port 0 is any free one.
    named: SocketAddr,
    settings: Settings,
}

impl Serving {
    /// Takes the address, before anything is done.
    async fn begin(
        (named, settings): (SocketAddr, Settings),
        before: Option<&Self>,
    ) -> Result<Self, CommandError> {
        let listening = http::listen(named).await.map_err(|error| {
            let what = format!("daemon.listen: cannot listen on {named}: {error}");
            let own = before.is_some_and(|before| before.listening.address.port() == named.port());
            match own {
                true => CommandError::failed(format!("{what}; this daemon has that port itself"))
                    .hint("start the daemon again"),
                false => CommandError::failed(what)
                    .hint("stop what listens there, or choose another port (0 = any free one)"),
            }
        })?;
        Ok(Self { listening, named, settings })
    }
}

/// The front of a process.
pub struct DaemonFront {
    context: Context,
    serving: Mutex<Option<Serving>>,
    /// What a daemon that works shows; who may ask is in the settings.
    shown: OnceLock<Front>,
    chats: watch::Sender<Option<Arc<Chat>>>,
    /// What all runs and conversations of a day may cost.
    day_caps: watch::Sender<Option<Money>>,
}

impl DaemonFront {
    /// That of a process that answers nobody.
    pub fn closed(context: &Context) -> Arc<Self> {
        Arc::new(Self {
            context: context.clone(),
            serving: Mutex::new(None),
            shown: OnceLock::new(),
            chats: watch::channel(None).0,
            day_caps: watch::channel(None).0,
        })
    }

    /// Takes the address that `daemon.listen` names, where it names one.
    pub async fn begin(context: &Context) -> Result<Arc<Self>, CommandError> {
        let front = Self::closed(context);
        if let Some(named) = settings(&context.config()?)? {
            *front.serving.lock().await = Some(Serving::begin(named, None).await?);
        }
        Ok(front)
    }

    /// Where it listens.
    pub async fn address(&self) -> Option<String> {
        self.serving.lock().await.as_ref().map(|serving| serving.listening.address.to_string())
    }

    /// Answers for a daemon that waits for the cluster's store: its word, and what this node has of runs.
    pub async fn answer_waiting(&self, waiting: &Waiting) -> Result<(), CommandError> {
        let front = Front {
            token: None,
            hosts: Vec::new(),
            status: waiting.statuses(),
            progress: Progress::default(),
            state: self.context.state()?,
            // What is delivered meanwhile is found by the first look.
            hints: Arc::<Hints>::default(),
            webhook_secret: None,
            chat: watch::channel(None).1,
            day_cap: self.day_cap()?,
            #[cfg(feature = "nats")]
            others: None,
        };
        self.serve(&front).await;
        Ok(())
    }

    /// Answers for a daemon that works.
    pub async fn answer_for(&self, daemon: &Daemon) -> Result<(), CommandError> {
        if self.serving.lock().await.is_some() {
            self.chats.send_replace(chat(&self.context).await?);
        }
        let front = Front {
            token: None,
            hosts: Vec::new(),
            status: daemon.statuses(),
            progress: daemon.progress(),
            state: daemon.state().clone(),
            hints: daemon.hints(),
            webhook_secret: None,
            chat: self.chats.subscribe(),
            day_cap: self.day_cap()?,
            #[cfg(feature = "nats")]
            others: elsewhere::other_nodes(&self.context)?,
        };
        self.serve(&front).await;
        drop(self.shown.set(front));
        Ok(())
    }

    /// The cap of the day as the configuration says now, and as it will.
    fn day_cap(&self) -> Result<watch::Receiver<Option<Money>>, CommandError> {
        self.day_caps.send_replace(self.context.config()?.budgets.max_cost_per_day);
        Ok(self.day_caps.subscribe())
    }

    async fn serve(&self, front: &Front) {
        if let Some(serving) = self.serving.lock().await.as_mut() {
            self.context.output.note(format!("listening on http://{}/", serving.listening.address));
            serve(serving, front);
        }
    }

    /// Answers as the configuration says now. Where that cannot be, all stays as it was.
    pub async fn renew(&self) -> Result<(), CommandError> {
        let Some(shown) = self.shown.get() else { return Ok(()) };
        let config = self.context.config()?;
        let wanted = settings(&config)?;
        let new_chat = if wanted.is_some() { chat(&self.context).await? } else { None };
        let mut serving = self.serving.lock().await;
        match (wanted, &mut *serving) {
            (Some((named, settings)), Some(before)) if before.named == named => {
                // Connections end where it answers otherwise, so only then.
                if !before.settings.is_same(&settings) {
                    before.settings = settings;
                    serve(before, shown);
                }
            }
            (Some(wanted), before) => {
                let mut begun = Serving::begin(wanted, before.as_ref()).await?;
                serve(&mut begun, shown);
                tracing::info!(address = %begun.listening.address, "listening");
                *before = Some(begun);
            }
            (None, before) => *before = None,
        }
        self.day_caps.send_replace(config.budgets.max_cost_per_day);
        if let Some(old) = self.chats.send_replace(new_chat) {
            tokio::spawn(async move { old.close_when_idle().await });
        }
        Ok(())
    }

    /// Ends the conversations.
    pub async fn close(&self) {
        if let Some(chat) = self.chats.send_replace(None) {
            chat.close().await;
        }
    }
}

fn serve(serving: &mut Serving, front: &Front) {
    let Settings { webhook, token, hosts } = &serving.settings;
    let front = Front {
        webhook_secret: webhook.clone(),
        token: token.clone(),
        hosts: hosts.clone(),
        ..front.clone()
    };
    serving.listening.serve(front);
}

/// The chat endpoint's service, if there are users for it. A required MCP server that fails ends the start (exit code
/// 3).
async fn chat(context: &Context) -> Result<Option<Arc<Chat>>, CommandError> {
    let users = context.config()?.chat_users()?;
    if users.is_empty() {
        return Ok(None);
    }
    let service = Service::open(tools_command::setup(context)?).await?;
    service.ready()?;
    tools_command::tell_warnings(context, &service);
    Ok(Some(Arc::new(Chat::new(service, users))))
}
