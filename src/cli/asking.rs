//! How a command asks something of an issue or its run: it carries it out by itself; with the key of somebody who may change nothing of the
//! cluster, it sends it to the node that polls the repository.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::context::Context;
#[cfg(feature = "nats")]
use super::elsewhere;
use super::error::CommandError;
#[cfg(feature = "nats")]
use super::remote::Remote;
#[cfg(feature = "nats")]
use crate::config::cluster_file::StoreKind;
use crate::domain::cluster::person_request::{
    Asker, HEARD_WITHIN_DAYS, LONGEST_REQUEST, PersonAsks, PersonRequest, RequestMessage,
};
use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;
use crate::lifecycle::carry_out::NotCarriedOut;
use crate::store::requests::Requests;
use crate::store::run_dir::StateDir;
use crate::sys::clock::{Clock, Stopwatch};
use crate::sys::host::Host;

/// How long it is waited for a node that says that it has heard.
const HEARD_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(200);

/// A cluster in which this user changes nothing, and the repository that is meant.
pub struct Afar {
    /// The repository.
    pub repo: RepoName,
    /// How they are asked.
    pub nodes: Arc<dyn Requests>,
    /// What the nodes share, as this user reads it.
    pub state: StateDir,
}

/// What is asked now, by the user of this process.
pub fn request(repo: &RepoName, issue: &IssueKey, what: PersonAsks) -> PersonRequest {
    let host = Host::current();
    PersonRequest {
        id: Uuid::new_v4(),
        repository: repo.clone(),
        issue: issue.clone(),
        by: Asker::new(host.uid, &host.user, &host.name),
        at: Clock::system().now(),
        what,
    }
}

/// How the nodes are asked where this user may change nothing of what they share; `None` = it does it by itself. Blocks.
pub fn nodes_to_ask(state: &StateDir) -> Result<Option<Arc<dyn Requests>>, CommandError> {
    let Some(nodes) = state.store().requests() else { return Ok(None) };
    let may = nodes.may_write().map_err(|error| CommandError::of_store(&error))?;
    Ok(Some(nodes).filter(|_| !may))
}

/// Refuses who may change nothing of what the nodes of a cluster share, before anything is done. Blocks.
pub fn needs_nodes_key(state: &StateDir, cluster: &str) -> Result<(), CommandError> {
    match nodes_to_ask(state)? {
        None => Ok(()),
        Some(_) => Err(CommandError::invalid(format!(
            "this key is no node's: it may not take an issue (not permitted: agentd.{cluster}.cell.>)"
        ))
        .hint("take a node's key; `agentd cluster doctor` says what this one may")),
    }
}

/// The cluster and the repository, where this user may change nothing; no checkout is needed then.
#[cfg(feature = "nats")]
pub fn from_afar(context: &Context) -> Result<Option<Afar>, CommandError> {
    let config = context.config()?;
    if config.cluster.store == StoreKind::Files {
        return Ok(None);
    }
    let state = elsewhere::node_state(context, &config)?;
    let Some(nodes) = nodes_to_ask(&state)? else { return Ok(None) };
    let named = match (&context.global.repo, config.repositories.as_slice()) {
        (Some(repo), _) => Some(repo.clone()),
        (None, [only]) => only.name.clone(),
        (None, _) => None,
    };
    let of_checkout = || -> Result<Option<RepoName>, CommandError> {
        let base = context.base_path()?;
        let remote = context.block_on(Remote::find(&base, &context.env))?;
        Ok(remote.and_then(|remote| remote.repo))
    };
    let repo = match named {
        Some(repo) => Some(repo),
        None => of_checkout()?,
    };
    let repo = repo.ok_or_else(|| {
        CommandError::invalid("it is not said which repository the issue is of")
            .hint("name it: OWNER/NAME#N, or --repo OWNER/NAME")
    })?;
    Ok(Some(Afar { repo, nodes, state }))
}

/// Without clusters nobody is asked.
#[cfg(not(feature = "nats"))]
pub fn from_afar(_context: &Context) -> Result<Option<Afar>, CommandError> {
    Ok(None)
}

/// Sends a request, and waits a while for the node that hears it. Gives its name; `None` = none has yet. Blocks.
///
/// # Errors
/// It could not be sent, or the node that heard it does not do it.
pub fn send(nodes: &dyn Requests, request: &PersonRequest) -> Result<Option<String>, CommandError> {
    let bytes = serde_json::to_vec(&RequestMessage::new(request.clone(), None)).map_or(0, |text| text.len());
    if bytes > LONGEST_REQUEST {
        let told =
            format!("what is asked has {bytes} bytes as a message, and {LONGEST_REQUEST} are the most");
        return Err(CommandError::invalid(told).hint("say less at a time, or write it on the issue"));
    }
    nodes.send(request).map_err(|error| CommandError::of_store(&error))?;
    let begin = Stopwatch::start();
    loop {
        let answer = nodes.answer(request).map_err(|error| CommandError::of_store(&error))?;
        match answer {
            Some(answer) => {
                return match answer.refused {
                    None => Ok(Some(answer.heard_by)),
                    Some(why) => Err(CommandError::invalid(format!(
                        "node {} has heard it and does not do it: {why}",
                        answer.heard_by
                    ))),
                };
            }
            None if begin.elapsed() > HEARD_WITHIN => return Ok(None),
            None => std::thread::sleep(LOOK),
        }
    }
}

/// What is told where nobody has heard it.
pub fn nobody_yet(repo: &RepoName) -> String {
    format!(
        "Nobody has heard it yet: the next node that polls {repo} does, if one comes within {HEARD_WITHIN_DAYS} days."
    )
}

/// Why nothing was done of what was asked.
pub fn not_done(error: &NotCarriedOut) -> CommandError {
    match error {
        NotCarriedOut::Store(error) => CommandError::of_store(error),
        error if error.is_transient() => CommandError::failed(error.to_string()),
        error => CommandError::invalid(error.to_string()),
    }
}
