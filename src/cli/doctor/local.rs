//! What can be checked on this machine: git, the repository, the configuration, the policy.

use tokio_util::sync::CancellationToken;

use super::{Finding, policy};
use crate::cli::context::{Context, main_checkout};
use crate::cli::remote::{self, Remote};
use crate::config::sandbox_file::SandboxMode;
use crate::config::{Config, Credentials};
use crate::git::program::MINIMUM_VERSION;
use crate::git::{GitError, GitProgram};

pub async fn git(context: &Context) -> Finding {
    let remedy = format!("install git {MINIMUM_VERSION} or newer");
    match GitProgram::new(context.env.all(), CancellationToken::new()).version().await {
        Ok(version) => Finding::ok("git", format!("version {version}")),
        Err(error) => Finding::problem("git", error.to_string(), remedy),
    }
}

/// Whether commands can run in a sandbox here.
pub async fn sandbox(context: &Context) -> Finding {
    let table = context.config().map(|config| config.sandbox).unwrap_or_default();
    match crate::sandbox::run_sandbox::find(&context.env, &table).await {
        Ok(mechanism) => {
            let mut told = format!("{} works: commands and agent programs run in it", mechanism.name());
            for lack in mechanism.lacks() {
                told.push_str("\nbut ");
                told.push_str(&lack);
            }
            match mechanism.name() {
                "bubblewrap" => Finding::ok("sandbox", told),
                _ => Finding::warning("sandbox", told, "install bubblewrap: it holds more"),
            }
        }
        Err(why) if table.mode == SandboxMode::Off => Finding::warning(
            "sandbox",
            format!("{why}: commands and agent programs run with your own rights"),
            "take sandbox.mode out of agentd.toml",
        ),
        Err(why) if table.mode != SandboxMode::Auto => Finding::problem(
            "sandbox",
            format!("there is none as sandbox.mode asks for: {why}: no run starts"),
            "make it possible, or set sandbox.mode = \"auto\"",
        ),
        Err(why) => Finding::warning(
            "sandbox",
            format!("{why}; commands run with your own rights, and agent programs are refused"),
            "on Linux install bubblewrap and allow user namespaces; elsewhere allow only commands you would run yourself",
        ),
    }
}

pub async fn repository(context: &Context) -> Finding {
    let what = "repository";
    if context.in_clone && context.stands_at.is_some() {
        return clone(context);
    }
    let refused = match context.base_path() {
        Ok(base) => remote::refused(&base, &context.env).await,
        Err(_) => None,
    };
    let root = match (main_checkout(&context.base), refused) {
        (_, Some(error @ (GitError::Bare { .. } | GitError::WorktreeOfBare { .. }))) => {
            return Finding::problem(what, error.to_string(), error.remedy().unwrap_or_default());
        }
        (None, _) => {
            let remedy = match context.stands_at {
                Some(_) => "correct the `path` of its [[repositories]] entry",
                None => "go to the repository, or start one with `git init`",
            };
            let told = format!("{} is not in a git repository", context.base.display());
            return Finding::problem(what, told, remedy);
        }
        // What it has, a remote among it, is not known then.
        (Some(root), Some(error)) => {
            let remedy = error.remedy().unwrap_or_else(|| remedy_of(&error));
            return Finding::problem(what, format!("{} cannot be read: {error}", root.display()), remedy);
        }
        (Some(root), None) => root,
    };
    let (mut remote, mut names) = (None, Vec::new());
    let configured = context.config().ok().map(|config| config.repository(None, Some(&root)).remote);
    if let Ok(base) = context.base_path() {
        remote = match &configured {
            Some(name) => Remote::named(&base, &context.env, name).await,
            None => Remote::find(&base, &context.env).await,
        };
        names = Remote::names(&base, &context.env).await;
    }
    let counts = configured.as_deref().unwrap_or("origin");
    match (remote, names.first()) {
        (None, Some(first)) => Finding::warning(
            what,
            format!(
                "{} has the remote{} {}, and none of them is called {counts}",
                root.display(),
                if names.len() == 1 { "" } else { "s" },
                names.join(", ")
            ),
            format!("write which one counts under [[repositories]] in agentd.toml: remote = \"{first}\""),
        ),
        (Some(remote), _) => Finding::ok(
            what,
            format!("{}, remote {} = {}", root.display(), remote.name, without_user(&remote.url)),
        ),
        (None, None) => Finding::warning(
            what,
            format!("{} has no remote", root.display()),
            "add one with `git remote add origin URL`; without it only --issue-file works",
        ),
    }
}

/// What helps where git itself says why it cannot work.
fn remedy_of(error: &GitError) -> String {
    match error {
        GitError::Process(_) | GitError::TooOld { .. } => format!("install git {MINIMUM_VERSION} or newer"),
        _ => "correct it where the message says".to_owned(),
    }
}

/// Of a repository that agentd clones itself what needs a checkout is tried by its runs alone.
fn clone(context: &Context) -> Finding {
    let place = context.base.display();
    let made = match context.base.is_dir() {
        true => format!("agentd's clone is {place}"),
        false => format!("agentd has not cloned it yet (to {place})"),
    };
    let told = format!("{made}; its agent, origin branch, pushes and verify commands are not tried here");
    Finding::warning("repository", told, "to try them: agentd doctor in a checkout of your own")
}

/// An address without what stands before `@`: that may be a secret.
fn without_user(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}

pub fn configuration(context: &Context, config: &Config) -> Vec<Finding> {
    let layers: Vec<String> = config.layers().map(|layer| layer.display().to_string()).collect();
    let mut findings = vec![if layers.is_empty() {
        Finding::warning("configuration", "there is no agentd.toml; defaults are used", "run `agentd init`")
    } else {
        Finding::ok("configuration", layers.join(", "))
    }];
    findings.push(match config.github_credentials() {
        Ok(Credentials::Token(_)) => {
            Finding::ok("credentials", format!("a token for {} is set", config.github.api_url))
        }
        Ok(Credentials::App { id, .. }) => Finding::ok("credentials", format!("GitHub App {id} is set")),
        Err(error) => Finding::problem(
            "credentials",
            error.to_string(),
            "make a token with read and write access to contents, issues and pull requests",
        ),
    });
    findings.push(policy::look(context, config));
    if config.verify.commands.is_empty() {
        findings.push(Finding::warning(
            "verify",
            "no verify commands: nothing shows that a change works, and every pull request is ready at once",
            "set verify.commands to what runs the tests, for example [[\"make\", \"test\"]]",
        ));
    }
    findings
}
