//! How a command comes to the cluster's store: as which node, with which key, and what is wrong with that before any connection.

use std::path::{Path, PathBuf};

use super::context::Context;
use super::error::CommandError;
use crate::config::Config;
use crate::config::cluster_file::StoreKind;
use crate::domain::canonical::sha256_hex;
use crate::domain::cluster::forms::Forms;
use crate::domain::cluster::names::Names;
use crate::domain::shell_words;
use crate::store::nats::{Access, Caps, Credentials, NatsStore, Tls};
use crate::store::port::StoreError;
use crate::sys::host::Host;

/// The configuration, if it is that of a cluster.
pub(super) fn configured(context: &Context) -> Result<Config, CommandError> {
    let config = context.config()?;
    match config.cluster.store {
        StoreKind::Nats => Ok(config),
        StoreKind::Files => Err(CommandError::invalid("there is no cluster: cluster.store is \"files\"")
            .hint("set store = \"nats\" and urls under [cluster]; docs/cluster.md begins with it")),
    }
}

/// The cluster's names. The configuration has been checked.
pub(super) fn names(config: &Config) -> Result<Names, CommandError> {
    Names::of(&config.cluster.name)
        .ok_or_else(|| CommandError::invalid("cluster.name is no name of a cluster"))
}

/// This node's name: as configured, else the host's in lower case.
pub(super) fn node(config: &Config) -> String {
    match config.cluster.node.as_str() {
        "" => Host::current().name.to_lowercase(),
        name => name.to_owned(),
    }
}

/// Stands for the state directory on this host, and tells nobody where that is.
fn place(context: &Context) -> Result<String, CommandError> {
    let (host, dir) = (Host::current().name, context.state_place()?);
    let real = dir.as_path().canonicalize().unwrap_or_else(|_| dir.as_path().to_owned());
    Ok(sha256_hex(format!("{host}\n{}", real.display()).as_bytes())[..16].to_owned())
}

/// Everything that is needed to connect; what is wrong with the files is told before any connection.
pub(super) fn access(context: &Context, config: &Config) -> Result<Access, CommandError> {
    let table = &config.cluster;
    let file = |key: &str, text: &str| -> Result<Option<PathBuf>, CommandError> {
        if text.is_empty() {
            return Ok(None);
        }
        let path = config.paths_start(key, &context.base).join(text);
        match path.metadata() {
            Ok(found) if found.is_file() => Ok(Some(path)),
            Ok(_) => Err(CommandError::invalid(format!("{key}: {} is not a file", path.display()))),
            Err(error) => {
                Err(CommandError::invalid(format!("{key}: cannot read {}: {error}", path.display())))
            }
        }
    };
    let credentials = match (file("cluster.credentials", &table.credentials)?, config.cluster_nkey()?) {
        (Some(path), _) => {
            private("cluster.credentials", &path)?;
            Credentials::File(path)
        }
        (None, Some(seed)) => Credentials::Nkey(seed),
        (None, None) => Credentials::None,
    };
    let key = if table.credentials.is_empty() { "cluster.nkey" } else { "cluster.credentials" };
    credentials.check().map_err(|told| CommandError::invalid(format!("{key}: {told}")))?;
    let certificate = file("cluster.tls_cert", &table.tls_cert)?;
    let key = file("cluster.tls_key", &table.tls_key)?;
    if let Some(key) = &key {
        private("cluster.tls_key", key)?;
    }
    Ok(Access {
        urls: table.urls.clone(),
        credentials,
        tls: Tls {
            ca: file("cluster.tls_ca", &table.tls_ca)?,
            client: certificate.zip(key),
            required: table.urls.iter().all(|url| url.starts_with("tls://")),
        },
        names: names(config)?,
        node: node(config),
        place: place(context)?,
        lease: table.lease.0,
        beside: false,
        caps: Caps::default(),
        forms: Forms::default(),
    })
}

/// A file with a secret that others may read is refused.
#[cfg(unix)]
fn private(key: &str, path: &Path) -> Result<(), CommandError> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = path.metadata().map(|found| found.permissions().mode() & 0o777).unwrap_or_default();
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(CommandError::invalid(format!(
            "{key}: {} may be read by others (mode {mode:03o})",
            path.display()
        ))
        .hint(shell_words::line(&["chmod", "600", &path.display().to_string()]))),
    }
}

#[cfg(not(unix))]
fn private(_key: &str, _path: &Path) -> Result<(), CommandError> {
    Ok(())
}

pub(super) fn failed(error: &StoreError) -> CommandError {
    CommandError::of_store(error).hint("`agentd cluster doctor` says what the cluster needs")
}

/// The cluster, for commands that need it.
pub(super) fn connect(context: &Context, config: &Config) -> Result<NatsStore, CommandError> {
    NatsStore::connect(&access(context, config)?).map_err(|error| failed(&error))
}
