//! What only others can answer: GitHub about the token, the remote about the origin branch, the providers about the
//! models, MCP servers about their tools; and the agent. Only a request of a few tokens to each model costs money.
//! Nothing is written except to remove the running label of a killed run.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::tracker::{self, Tracker};
use super::{Finding, PROGRAM, disk, mcp, refused, rest, tried};
use crate::cli::context::Context;
use crate::cli::remote;
use crate::config::Config;
use crate::definition::{self, Loaded, Severity};
use crate::domain::agent_program::AgentProgram;
use crate::domain::egress::Egress;
use crate::domain::flow::Sandbox;
use crate::domain::model_target::ModelTarget;
use crate::domain::name::{BranchName, RepoName};
use crate::engine::model::ModelErrorClass;
use crate::issue::cut_off_runs::{Left, clear_left};
use crate::lifecycle::plan::{handoffs, step_executors_here};
use crate::llm::Providers;
use crate::llm::availability::Availability;
use crate::record::summary_text::counted;
use crate::repository::context::RepositoryContext;
use crate::repository::open::{Opening, open};
use crate::repository::resources;
use crate::store::run_dir::StateDir;
use crate::sys::clock::Clock;
use crate::sys::sandbox;

/// Asks everyone.
pub async fn look(context: &Context, config: Config) -> Vec<Finding> {
    let config = Arc::new(config);
    // A managed clone is checked as such, because its files decide less than those of a checkout.
    if context.in_clone {
        let mut findings = models(&config, None).await;
        findings.extend(tracker::of_clone(context, &config).await);
        return findings;
    }
    let (Ok(base), Ok(state)) = (context.base_path(), context.state_place()) else {
        return models(&config, None).await;
    };
    let opening = Opening {
        config: Arc::clone(&config),
        base: &base,
        repo: context.global.repo.as_ref(),
        state: &StateDir::new(state.as_path().to_owned()),
        needs_github: false,
        github: None,
        env: &context.env,
        cancel: CancellationToken::new(),
    };
    match open(opening).await {
        Ok(site) => {
            let (agent, programs, only_programs, sandbox) = agent(&site).await;
            let mut findings = models(&config, only_programs.as_deref()).await;
            findings.push(agent);
            findings.extend(programs);
            findings.extend(mcp::look(&site).await);
            findings.extend(rest::look(&site.config).await);
            findings.push(disk::used(&site).await);
            let nameless = nameless(context, &site);
            let tracker = Tracker::of(&site).filter(|_| nameless.is_none());
            findings.extend(nameless);
            let mut answers = false;
            if let Some(tracker) = &tracker {
                match tracker.look().await {
                    Ok((found, repository)) => {
                        answers = true;
                        findings.extend(found);
                        findings.extend(tracker.renamed(&repository));
                        findings.extend(left(&site).await);
                    }
                    Err(unreadable) => findings.push(unreadable),
                }
            }
            let (told, branch) = origin(&site).await;
            findings.extend(told);
            findings.extend(token_elsewhere(&site));
            let Some(branch) = branch else {
                if !site.config.verify.commands.is_empty() {
                    findings.push(Finding::warning(
                        "verify",
                        "not tried: there is no origin branch to try them on",
                        "set origin_branch to a branch that exists",
                    ));
                }
                return findings;
            };
            if let Some(tracker) = tracker.filter(|_| answers) {
                findings.extend(tracker.rights(&branch).await);
            }
            findings.extend(tried::push(&site, &branch).await);
            findings.extend(tried::places(&site).await);
            findings.extend(tried::signing(&site).await);
            findings.extend(tried::redaction(&site).await);
            findings.extend(tried::template(&site, &branch).await);
            findings.extend(tried::verify(context, &site, &branch, &sandbox).await);
            findings
        }
        Err(refusal) => {
            let mut findings = models(&config, None).await;
            // What git says against the place is told beside it.
            let base = context.base_path().ok();
            let by_git = match &base {
                Some(base) => remote::refused(base, &context.env).await,
                None => None,
            };
            if context.stands_in_checkout() && by_git.is_none() {
                let remedy = refusal.hints.first().cloned();
                let remedy = remedy.unwrap_or_else(|| "correct it where the message says".to_owned());
                findings.push(Finding::problem("repository", refusal.stop.message, remedy));
            }
            findings
        }
    }
}

/// The agent, the programs that work on its steps, and its name if agentd's own session works on none.
async fn agent(site: &RepositoryContext) -> (Finding, Vec<Finding>, Option<String>, Sandbox) {
    let (finding, loaded) = definition_of(site).await;
    let Some(loaded) = loaded else { return (finding, Vec::new(), None, usual_sandbox()) };
    let sandbox = loaded.definition.boundaries.sandbox.clone();
    let mut findings = denied_handoffs(&loaded, site).await;
    match step_executors_here(&loaded, site).await {
        Ok(executors) => {
            let alone = !executors.leave_a_step_to_the_session(&loaded.definition);
            findings.extend(executors.programs().iter().map(|program| program_found(program, site)));
            (finding, findings, alone.then(|| loaded.definition.name.clone()), sandbox)
        }
        Err(refusal) => {
            findings.push(refused(PROGRAM, refusal.into()));
            (finding, findings, None, sandbox)
        }
    }
}

/// The handoffs of its flow that the policy denies. A policy that cannot be read is told by itself.
async fn denied_handoffs(loaded: &Loaded, site: &RepositoryContext) -> Vec<Finding> {
    let policy = resources::policy(&site.config, site.checkout.root(), site.child_environment()).await;
    let denied = policy.map(|policy| handoffs::denied(loaded, &policy)).unwrap_or_default();
    let told = denied.into_iter().map(|denied| match denied.severity {
        Severity::Warning => Finding::warning("policy", denied.to_string(), denied.remedy()),
        Severity::Defect | Severity::Error => Finding::problem("policy", denied.to_string(), denied.remedy()),
    });
    told.collect()
}

/// The sandbox of a definition that cannot be read: closed.
fn usual_sandbox() -> Sandbox {
    Sandbox { enabled: true, network: Egress::Nothing, allowed_paths: Vec::new() }
}

/// Whether a program is where it is looked for.
fn program_found(program: &AgentProgram, site: &RepositoryContext) -> Finding {
    let word = program.backend.as_str();
    let named = program.argv.first().map(String::as_str).unwrap_or_default();
    let path = OsString::from(site.env.get("PATH").unwrap_or_default());
    let below = Path::new(named).components().count() > 1 && Path::new(named).is_relative();
    let found = if below { Some(named.into()) } else { sandbox::which(named.as_ref(), &path) };
    match found {
        Some(found) if program.sandboxed => {
            Finding::ok(PROGRAM, format!("{word}: {}, in the sandbox", found.display()))
        }
        Some(found) => Finding::warning(
            PROGRAM,
            format!("{word}: {}, with your own rights", found.display()),
            "take `sandbox` out of its `program`: then it runs in the sandbox",
        ),
        None => Finding::problem(
            PROGRAM,
            format!("{word}: there is no program {named} in the PATH"),
            "install it, or name it in argv of its `program`",
        ),
    }
}

/// The definition, and what is to be said of it.
async fn definition_of(site: &RepositoryContext) -> (Finding, Option<Loaded>) {
    let name = site.repository.agent.clone();
    let project = site.checkout.root().as_path().to_owned();
    let folder = project.join(".agent").join(&name);
    if !folder.is_dir() {
        let none = Finding::problem(
            "agent",
            format!("there is no agent \"{name}\" in .agent/"),
            format!("agentd init writes one, agentd agents new {name} an empty one"),
        );
        return (none, None);
    }
    let loaded = tokio::task::spawn_blocking(move || definition::load(&project, &folder, &BTreeSet::new()));
    match loaded.await {
        Ok(Ok(loaded)) => {
            let steps = counted(loaded.definition.flow.steps.len(), "step");
            let left = loaded.left_to_whoever_asks();
            let finding = match loaded.diagnostics.len() {
                _ if !left.is_empty() => Finding::warning(
                    "agent",
                    format!(
                        "{name}, {steps}: a daemon can start no run of it, which has to be given {}",
                        left.join(", ")
                    ),
                    "give each a default in agent.json; `agentd run --uv NAME=…` gives it by hand",
                ),
                0 => Finding::ok("agent", format!("{name}, {steps}")),
                found => Finding::warning(
                    "agent",
                    format!("{name}, {steps}, {}", counted(found, "warning")),
                    format!("agentd agents check {name} shows them"),
                ),
            };
            (finding, Some(loaded))
        }
        Ok(Err(refused)) => {
            let finding = Finding::problem(
                "agent",
                format!("{name} cannot be used: {refused}"),
                format!("correct it; agentd agents check {name} says when it is right"),
            );
            (finding, None)
        }
        Err(panic) => {
            (Finding::problem("agent", panic.to_string(), "this is a defect of agentd; report it"), None)
        }
    }
}

/// Where nothing says what the repository is called on GitHub: its name here is made from its folder's, and may be a stranger's there.
fn nameless(context: &Context, site: &RepositoryContext) -> Option<Finding> {
    let of_remote = || site.remote.as_deref().and_then(RepoName::from_remote_url);
    if context.global.repo.is_some() || site.repository.name.is_some() || of_remote().is_some() {
        return None;
    }
    let told = format!(
        "nothing says what {} is called on GitHub, which is asked for nothing: only --issue-file works",
        site.checkout.root()
    );
    let remedy = "write `name = \"owner/name\"` under [[repositories]] in agentd.toml, or which remote names it: `remote = \"NAME\"`";
    Some(Finding::warning("github", told, remedy))
}

/// What runs on the command line that were killed left on their issues.
async fn left(site: &RepositoryContext) -> Vec<Finding> {
    let what = "killed runs";
    let told = |left: Left| match left.still_shown {
        None => Finding::ok(
            what,
            format!("the killed run {} no longer shows as working on #{}", left.instance, left.number),
        ),
        Some(why) => Finding::warning(
            what,
            format!("the killed run {} still shows as working on #{}: {why}", left.instance, left.number),
            "run `agentd doctor` again once GitHub takes it",
        ),
    };
    clear_left(site).await.into_iter().map(told).collect()
}

/// A remote over HTTP that is not on GitHub's host: the token goes there only where the operator names it.
fn token_elsewhere(site: &RepositoryContext) -> Option<Finding> {
    let url = site.is_without_token()?.split_once("://")?.1;
    let place = url.split('/').next().unwrap_or_default();
    let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
    let told = format!(
        "the remote is on {host}, and GitHub is asked at {}: github.token is not sent to it, so git's own credentials have to do",
        site.config.github.api_url
    );
    let name = &site.repository.remote;
    let remedy = format!(
        "set github.api_url if that host is your GitHub; else, to send the token there, write remote = \"{name}\" under [[repositories]]"
    );
    Some(Finding::warning("remote", told, remedy))
}

async fn origin(site: &RepositoryContext) -> (Option<Finding>, Option<BranchName>) {
    let what = "origin";
    let Some(branch) = &site.repository.origin_branch else {
        let told = Finding::warning(
            what,
            "origin_branch is not set: each issue has to name its branch, or its start is refused",
            "set origin_branch of the repository's entry in agentd.toml",
        );
        return (Some(told), None);
    };
    let branch = &match BranchName::parse(branch.strip_prefix("refs/heads/").unwrap_or(branch)) {
        Ok(branch) => branch,
        Err(error) => {
            let told = Finding::problem(what, error.to_string(), "set origin_branch to a branch's name");
            return (Some(told), None);
        }
    };
    let found = match site.authorised_remote().await {
        Ok(Some(remote)) => {
            site.checkout.remote_branch(&remote, branch).await.map_err(|error| error.to_string())
        }
        Ok(None) => site.checkout.local_branch(branch).await.map_err(|error| error.to_string()),
        Err(refusal) => Err(refusal.to_string()),
    };
    let told = match found {
        Ok(Some(_)) => {
            let told = Finding::ok(what, format!("{branch} is {}", site.origin_place()));
            return (Some(told), Some(branch.clone()));
        }
        Ok(None) => Finding::problem(
            what,
            format!("there is no branch {branch} {}", site.origin_place()),
            "push it, or set origin_branch to one that exists",
        ),
        Err(error) => {
            Finding::problem(what, error, "see that `git ls-remote` works with the same credentials")
        }
    };
    (Some(told), None)
}

/// `only_programs` = the agent whose steps are programs' alone: it needs no model.
async fn models(config: &Config, only_programs: Option<&str>) -> Vec<Finding> {
    let what = "models";
    let read = if only_programs.is_some() { config.session_of_programs() } else { config.session() };
    let session = match read {
        Ok(session) => session,
        Err(error) => {
            // What is there `agentd init` leaves as it is.
            let remedy = match config.layers().next() {
                Some(_) => "write that into agentd.toml; `agentd config schema config` lists every key",
                None => "`agentd init` writes one; `agentd config schema config` lists every key",
            };
            return vec![Finding::problem(what, error.to_string(), remedy)];
        }
    };
    if let Some(agent) = only_programs.filter(|_| session.settings.targets.is_empty()) {
        return vec![Finding::ok(what, format!("none is needed: programs work on every step of {agent}"))];
    }
    let names: BTreeSet<&str> =
        session.settings.targets.iter().map(|target| target.provider.as_str()).collect();
    let used = names.iter().map(|name| config.provider(name)).collect::<Result<Vec<_>, _>>();
    let providers = used
        .map_err(|error| error.to_string())
        .and_then(|used| Providers::new(used, &Clock::system()).map_err(|error| error.to_string()));
    let providers = match providers {
        Ok(providers) => providers,
        Err(error) => {
            return vec![Finding::problem(what, error, "set the variable or the key that is named")];
        }
    };
    let mut targets: Vec<ModelTarget> = Vec::new();
    for target in &session.settings.targets {
        if !targets.iter().any(|known| (&known.provider, &known.model) == (&target.provider, &target.model)) {
            targets.push(target.clone());
        }
    }
    let mut findings = Vec::new();
    for (target, answer) in tried::models(&providers, &targets, session.settings.llm_timeout).await {
        findings.push(match answer {
            Ok(told) => Finding::ok(what, format!("{} of {} answers{told}", target.model, target.provider)),
            Err(failed) => silent_model(config, &providers, &target, failed).await,
        });
    }
    findings
}

/// What is wrong with a model that does not answer.
async fn silent_model(
    config: &Config,
    providers: &Providers,
    target: &ModelTarget,
    (class, words): (ModelErrorClass, String),
) -> Finding {
    let what = "models";
    let (name, model) = (&target.provider, &target.model);
    match class {
        ModelErrorClass::Auth => Finding::problem(
            what,
            format!("{name} refuses the key for {model}: {words}"),
            format!("set providers.{name}.api_key to a key that is valid"),
        ),
        ModelErrorClass::Quota => {
            Finding::problem(what, format!("{name}: {words}"), "look at the account's credit and limits")
        }
        ModelErrorClass::Network | ModelErrorClass::Timeout => {
            let url = config.provider(name).map(|provider| provider.base_url).unwrap_or_default();
            Finding::problem(
                what,
                format!("{name} does not answer at {url}: {words}"),
                format!("check the network and providers.{name}.base_url"),
            )
        }
        ModelErrorClass::RateLimited { .. } | ModelErrorClass::Server { .. } => Finding::warning(
            what,
            format!("{model} of {name} could not be tried: {words}"),
            "try again later",
        ),
        _ => {
            let listed = match providers.availability(name).await {
                Some(Availability::Answers(Some(known))) => format!("; {name} lists: {}", some_of(&known)),
                _ => String::new(),
            };
            Finding::problem(
                what,
                format!("{model} of {name} cannot be used: {words}"),
                format!("check its name and settings in [[session.targets]]{listed}"),
            )
        }
    }
}

/// The first names of a list, so that a line stays a line.
fn some_of(names: &[String]) -> String {
    let shown: Vec<&str> = names.iter().take(8).map(String::as_str).collect();
    let rest = if names.len() > shown.len() { ", …" } else { "" };
    shown.join(", ") + rest
}
