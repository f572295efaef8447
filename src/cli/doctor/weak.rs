//! What works but is weak: secrets that can be guessed, files that others can read or write, and what managed clones
//! ask for. It is a problem if somebody else could decide what runs here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Finding, PROGRAM};
use crate::cli::clones;
use crate::cli::context::{Context, is_below};
use crate::cli::remote;
use crate::config::placeholder::ENV_FILE;
use crate::config::sandbox_file::SandboxMode;
use crate::config::{Config, McpTransport};
use crate::daemon::{DaemonFiles, StateError};
use crate::definition;
use crate::domain::money::Money;
use crate::domain::shell_words;
use crate::engine::shared_cap::SharedCap;
use crate::github::Viewer;
use crate::mcp;
use crate::record::seal;
use crate::repository::{managed, resources};
use crate::sandbox::run_sandbox;
use crate::store::seal_key::{self, SealKey};
use crate::sys::clock::Clock;
use crate::sys::files;
use crate::sys::paths::AbsPath;
use crate::sys::private_place;

/// Scopes that agentd has a use for.
const USEFUL_SCOPES: [&str; 6] =
    ["repo", "public_repo", "read:org", "read:project", "read:user", "user:email"];

/// The state directory.
pub fn state(context: &Context) -> Finding {
    let what = "state";
    let dir = match context.state_place() {
        Ok(dir) => dir,
        Err(error) => return Finding::problem(what, error.message, "pass --state-dir DIR"),
    };
    match private_place::fault(dir.as_path()) {
        None => match unusable(context, &dir) {
            None => shown_key(&dir).unwrap_or_else(|| Finding::ok(what, format!("{dir} is yours alone"))),
            Some((error, remedy)) => Finding::problem(what, error, remedy),
        },
        Some(fault) if fault.is_mended_by_mode() => Finding::warning(
            what,
            format!("{dir} {fault}"),
            format!(
                "`{}`; the next run does it, too",
                shell_words::line(&["chmod", "700", &dir.to_string()])
            ),
        ),
        Some(fault) => Finding::problem(what, format!("{dir} {fault}"), fault.remedy(dir.as_path())),
    }
}

/// Why nothing can be kept there, or what is kept there cannot be used; and what helps.
fn unusable(context: &Context, dir: &AbsPath) -> Option<(String, String)> {
    if let Some(error) = files::unwritable(dir.as_path()) {
        let remedy = "make it writable for agentd, or name another state directory, by --state-dir";
        return Some((format!("{error}: no run starts"), remedy.to_owned()));
    }
    unreadable_state(context).or_else(|| unreadable_spending(context, dir)).or_else(|| unusable_key(dir))
}

/// Why no daemon starts with what the last one remembered.
fn unreadable_state(context: &Context) -> Option<(String, String)> {
    let error = DaemonFiles::of(&context.state().ok()?).look().err()?;
    let remedy = match error {
        StateError::Newer { .. } => "install that version, or name another state directory, by --state-dir",
        StateError::Store(_) | StateError::File(_) => "see that its files can be read and written",
    };
    Some((format!("{error}: no daemon starts"), remedy.to_owned()))
}

/// Why nobody can tell what was spent today, and what helps: each run ends at its first request then.
fn unreadable_spending(context: &Context, dir: &AbsPath) -> Option<(String, String)> {
    let state = context.state().ok()?;
    let caps = SharedCap::of_days(state.store().clone(), Money::ZERO);
    let error = caps.used(Clock::system().now()).err()?;
    let remedy = format!(
        "put that file of {dir}/spend back from a backup, or move it away: then nothing was spent today"
    );
    Some((error.to_string(), remedy))
}

/// The host's key where others may read it: whoever has it could sign in agentd's place.
fn shown_key(dir: &AbsPath) -> Option<Finding> {
    let key = dir.as_path().join(seal_key::HOST_KEY);
    let mode = seal_key::readable_by_others(&key)?;
    let problem = format!("{} can be read by others (mode {mode:04o})", key.display());
    let closed = shell_words::line(&["chmod", "600", &key.display().to_string()]);
    Some(Finding::warning("state", problem, format!("`{closed}`; the next run does it, too")))
}

/// Why this host's key cannot sign what runs leave, and what helps: they are sealed without a signature then.
fn unusable_key(dir: &AbsPath) -> Option<(String, String)> {
    if seal_key::readable_by_others(&dir.as_path().join(seal_key::HOST_KEY)).is_some() {
        return None;
    }
    let error = SealKey::of_host(dir.as_path()).err()?;
    let closed = shell_words::line(&["chmod", "600", &error.path.display().to_string()]);
    let remedy = format!("`{closed}`, or put it back from a backup");
    Some((format!("{error}; runs are not signed, and those that were cannot be verified"), remedy))
}

/// What a configuration tells of this machine.
pub async fn look(context: &Context, config: &Config) -> Vec<Finding> {
    let mut findings = front(config);
    findings.extend(of_clones(context, config).await);
    findings
}

/// What stands beside the configuration of one repository.
pub async fn files_and_programs(context: &Context, config: &Config) -> Vec<Finding> {
    let mut findings = files(context, config);
    findings.extend(secrets_in_git(context, config).await);
    findings.extend(programs(context, config));
    findings.extend(of_each_run(context, config));
    findings.extend(servers(config));
    findings
}

/// The secrets of the HTTP front. A public address without a token is refused when the file is read.
fn front(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Err(error) = config.webhook_secret() {
        let remedy = "make a long one (openssl rand -hex 32), for GitHub's webhook and for agentd";
        findings.push(Finding::problem("webhooks", error.to_string(), remedy));
    } else if config.has_weak_webhook_secret() {
        let remedy = "make a long one (openssl rand -hex 32), for GitHub's webhook and for agentd";
        findings.push(Finding::warning(
            "webhooks",
            "daemon.webhook_secret is short, and may be guessed",
            remedy,
        ));
    }
    if let Err(error) = config.front_token() {
        findings.push(Finding::problem("listen", error.to_string(), "make a long one: openssl rand -hex 32"));
    } else if let Some(address) = config.daemon.listen.filter(|address| !address.ip().is_loopback()) {
        findings.push(Finding::warning(
            "listen",
            format!("{address} is not loopback: reports and journals go over the network, for whoever has the token"),
            "listen on 127.0.0.1 behind a proxy with TLS, or see that only you reach the address",
        ));
    }
    findings
}

/// Files that decide what runs, and files with secrets.
fn files(context: &Context, config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let start = config.paths_start("policy.files", &context.base);
    let policies = config.policy.files.iter().map(|file| start.join(file));
    let layers: Vec<PathBuf> = config.layers().map(Path::to_path_buf).collect();
    let env_files: BTreeSet<PathBuf> = layers.iter().map(|layer| layer.with_file_name(ENV_FILE)).collect();
    let deciding = layers.iter().cloned().map(|path| ("configuration", path));
    let deciding = deciding.chain(policies.map(|path| ("policy", path)));
    for (what, path) in deciding.chain(env_files.iter().cloned().map(|path| ("secrets", path))) {
        if let Some(mode) = others(&path).filter(|mode| mode & 0o022 != 0) {
            findings.push(Finding::problem(
                what,
                format!(
                    "{} can be written by others (mode {mode:04o}): they decide what runs",
                    path.display()
                ),
                format!(
                    "look whether it says what you wrote, then: {}",
                    shell_words::line(&["chmod", "go-w", &path.display().to_string()])
                ),
            ));
        }
    }
    for path in env_files {
        if let Some(mode) = others(&path).filter(|mode| mode & 0o044 != 0) {
            findings.push(Finding::warning(
                "secrets",
                format!("{} can be read by others (mode {mode:04o})", path.display()),
                shell_words::line(&["chmod", "600", &path.display().to_string()]),
            ));
        }
    }
    findings
}

/// The files with the values of placeholders, where git has one, or would take it.
async fn secrets_in_git(context: &Context, config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let files: BTreeSet<PathBuf> = config.layers().map(|layer| layer.with_file_name(ENV_FILE)).collect();
    for file in files.into_iter().filter(|file| file.is_file()) {
        let Some(Ok(folder)) = file.parent().map(AbsPath::new) else {
            continue;
        };
        let asks = async |args: &[&str]| remote::git(&folder, &context.env, args).await;
        if asks(&["ls-files", "--error-unmatch", "--", ENV_FILE]).await.is_some() {
            findings.push(Finding::problem(
                "secrets",
                format!("{} is in git: whoever has the repository has its secrets", file.display()),
                format!(
                    "`{}`, ignore it, and replace the secrets by new ones",
                    shell_words::line(&["git", "rm", "--cached", &file.display().to_string()])
                ),
            ));
        } else if asks(&["rev-parse", "--is-inside-work-tree"]).await.as_deref() == Some("true")
            && asks(&["check-ignore", "--", ENV_FILE]).await.is_none()
        {
            findings.push(Finding::warning(
                "secrets",
                format!("{} is not ignored by git: `git add` of all files takes it", file.display()),
                format!("write /{ENV_FILE} into the .gitignore beside it"),
            ));
        }
    }
    findings
}

/// The mode of a file that is there.
#[cfg(unix)]
fn others(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;
    Some(path.metadata().ok().filter(std::fs::Metadata::is_file)?.mode() & 0o777)
}

/// Rights of others are not known here.
#[cfg(not(unix))]
fn others(_path: &Path) -> Option<u32> {
    None
}

/// Programs and policy files of the operator at places that anybody who can push can write.
fn programs(context: &Context, config: &Config) -> Vec<Finding> {
    let Ok(state) = context.state_place() else { return Vec::new() };
    let clones = state.as_path().join("repos");
    let first = |argv: &[String]| argv.first().map(PathBuf::from);
    let named = [
        ("policy.program", first(&config.policy.program)),
        ("redaction.program", first(&config.redaction.program)),
    ];
    let sinks = config.record.sinks.iter().map(|argv| ("record.sinks", first(argv)));
    let files = config.policy.files.iter().map(|file| ("policy.files", Some(file.clone())));
    let all = named.into_iter().chain(sinks).chain(files);
    let within = all
        .filter_map(|(key, path)| Some((key, path?)))
        .filter(|(_, path)| path.is_absolute() && is_below(path, &clones));
    within
        .map(|(key, path)| {
            Finding::problem(
                "policy",
                format!("{key} names {}, which whoever can push to the repository writes", path.display()),
                "copy it to a place of your own, and name that",
            )
        })
        .collect()
}

/// MCP servers whose command runs what stands in the worktree.
fn servers(config: &Config) -> Vec<Finding> {
    let by_command = config.mcp_servers.iter().filter_map(|(name, server)| {
        let McpTransport::Stdio { command, args, .. } = &server.transport else { return None };
        let args: Vec<String> = args.iter().map(|arg| arg.raw().to_owned()).collect();
        Some((name, mcp::runs_what_is_there(command.raw(), &args)?))
    });
    by_command
        .map(|(name, why)| {
            Finding::warning(
                "mcp",
                format!(
                    "the MCP server {name} starts in the worktree, outside of the sandbox, where {why}: a file of an agent's would run \
                     with your rights"
                ),
                format!("install it, and name its program by a path of your own in mcp.servers.{name}"),
            )
        })
        .collect()
}

/// The operator's key and programs that each run needs, and that are not to be had.
fn of_each_run(context: &Context, config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Err(error) = seal::check(config.record.seal_key.as_deref()) {
        findings.push(Finding::problem(
            "seal key",
            format!("record.seal_key cannot be used: {error}: no run starts"),
            "put the key back, for its owner alone to read, or take record.seal_key out of agentd.toml",
        ));
    }
    let Ok(checkout) = context.base_path() else { return findings };
    for gone in resources::programs_gone(config, &checkout, &context.env) {
        let remedy = format!("install it, or correct {} in agentd.toml", gone.key);
        findings.push(Finding::problem(PROGRAM, gone.to_string(), remedy));
    }
    findings
}

/// What clones ask for and do not get, and whether there is a sandbox for them.
async fn of_clones(context: &Context, config: &Config) -> Vec<Finding> {
    let what = "clones";
    let mut findings = Vec::new();
    let Some(name) = config.repositories.iter().find(|entry| entry.path.is_none()).map(|entry| &entry.name)
    else {
        return findings;
    };
    let name = name.as_ref().map_or_else(|| "a repository".to_owned(), ToString::to_string);
    match run_sandbox::find(&context.env, &config.sandbox).await {
        Err(_) if config.sandbox.mode == SandboxMode::Off => findings.push(Finding::warning(
            what,
            format!("sandbox.mode is \"off\", and agentd clones {name} itself: whoever can push there runs commands as you"),
            "take sandbox.mode out of agentd.toml",
        )),
        Err(why) => findings.push(Finding::problem(
            what,
            format!("agentd clones {name} itself, and there is no sandbox ({why}): its runs do not start"),
            "on Linux install bubblewrap, or give the repository a `path`",
        )),
        Ok(_) => {}
    }
    let clones = match clones::of(context, config, None) {
        Ok(clones) => clones,
        Err(error) => {
            findings.push(Finding::problem(what, error.message, "pass --state-dir DIR"));
            return findings;
        }
    };
    for clone in clones {
        let agent = clone.config.repository(Some(&clone.repo), None).agent;
        let folder = clone.dir.join(".agent").join(agent);
        let linked = managed::stays_inside(&clone.dir).err();
        let definition = linked.is_none().then(|| definition::load(&clone.dir, &folder, &BTreeSet::new()));
        let refused = match definition {
            Some(Ok(mut loaded)) => managed::narrow(&mut loaded.definition, &clone.config),
            // What cannot be read is told by the run, and by `agents check`.
            _ => Vec::new(),
        };
        let told = managed::refused(&clone.config).into_iter().chain(refused);
        let told: Vec<String> = told.map(|told| format!("{}: {told}", clone.repo)).collect();
        if let Some(refusal) = linked {
            let remedy = "whoever pushed it wanted a file of this machine: ask them";
            findings.push(Finding::problem(what, format!("{}: {refusal}", clone.repo), remedy));
        }
        findings.push(match told.is_empty() {
            true => Finding::ok(what, format!("{} says nothing that is not its to say", clone.repo)),
            false => Finding::warning(
                what,
                told.join("\n"),
                "what you want of it, write into your own agentd.toml; `agentd config explain` lists it all",
            ),
        });
    }
    findings
}

/// A classic token that could do far more than agentd asks of it.
pub fn token(viewer: &Viewer) -> Option<Finding> {
    let scopes: Vec<&str> = viewer.scopes.as_ref()?.iter().map(String::as_str).collect();
    if scopes.is_empty() {
        return None;
    }
    let remedy = "make a fine-grained token for these repositories alone: contents, issues and pull requests, read and write";
    let beyond: Vec<&str> = scopes.iter().copied().filter(|scope| !USEFUL_SCOPES.contains(scope)).collect();
    let told = match beyond.as_slice() {
        [] => format!(
            "a classic token ({}): it reaches every repository that its owner does",
            scopes.join(", ")
        ),
        beyond => format!("a classic token that may do what agentd never does: {}", beyond.join(", ")),
    };
    Some(Finding::warning("token", told, remedy))
}
