//! What is really tried: the verify commands on the origin branch, a push that pushes nothing, the smallest request to
//! each model, and each permission by the request that needs it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use super::{Finding, refused};
use crate::cli::context::Context;
use crate::config::config_file::Publish;
use crate::conversation::briefing::template;
use crate::domain::flow::Sandbox;
use crate::domain::issue::IssueKey;
use crate::domain::mapping::branch_of;
use crate::domain::message::{Message, Messages};
use crate::domain::model_target::ModelTarget;
use crate::domain::name::{BranchName, CommitId};
use crate::engine::model::{Model as _, ModelErrorClass, ModelRequest, ToolChoice};
use crate::engine::stop::{StopHandle, StopSignal};
use crate::git::RemotePlace;
use crate::llm::Providers;
use crate::record::summary_text::command_line;
use crate::repository::base_tree::BaseTree;
use crate::repository::context::RepositoryContext;
use crate::repository::resources;
use crate::sandbox::run_sandbox::RunSandbox;
use crate::sys::files;
use crate::sys::paths::AbsPath;
use crate::sys::process::{Exit, ProcessError};
use crate::sys::sandbox;

const VERIFY: &str = "verify";
/// Tokens that a model may answer with. Some wires take no fewer.
const SMALLEST_REPLY: u64 = 16;
/// The smallest request.
const QUESTION: &str = "Answer with the word ok.";
/// Lines of a failed command's output that are shown.
const LINES: usize = 10;

/// A signature, where git's configuration has commits signed.
pub async fn signing(site: &RepositoryContext) -> Option<Finding> {
    const SIGNING: &str = "signing";
    let tried = async {
        match site.checkout.signs_commits().await? {
            true => site.checkout.try_signing(&site.identity().await?).await.map(Some),
            false => Ok(None),
        }
    };
    match tried.await {
        Ok(Some(())) => Some(Finding::ok(SIGNING, "a commit can be signed (commit.gpgSign)")),
        Ok(None) => None,
        Err(error) => Some(Finding::problem(
            SIGNING,
            error.to_string(),
            "agentd must find the key without asking for a password; or set commit.gpgSign=false",
        )),
    }
}

/// The operator's program that redacts, on a text of no secret.
pub async fn redaction(site: &RepositoryContext) -> Option<Finding> {
    const REDACTION: &str = "redaction";
    let program = site.redaction_program()?;
    let gone = resources::programs_gone(&site.config, site.checkout.root(), &site.env);
    if gone.iter().any(|gone| gone.key == "redaction.program") {
        // That is said by itself.
        return None;
    }
    Some(match program.redact("agentd doctor").await {
        Some(_) => Finding::ok(REDACTION, "redaction.program answers"),
        None => Finding::problem(
            REDACTION,
            format!("{}: texts of a run would be withheld", program.failure().unwrap_or_default()),
            "mend it: it reads a text, writes what may be kept, and ends with 0 within 5 seconds; or take it out of agentd.toml",
        ),
    })
}

/// The pull request template that the configuration names, on the origin's commit.
pub async fn template(site: &RepositoryContext, branch: &BranchName) -> Option<Finding> {
    const TEMPLATE: &str = "template";
    if site.config.conversation.pull_request_template.trim().is_empty() {
        return None;
    }
    let read = async {
        let Some(commit) = site.origin_commit(branch).await? else { return Ok(None) };
        template::read((branch, &commit), site).await
    };
    match read.await {
        Ok(found) => found.map(|(path, _)| Finding::ok(TEMPLATE, format!("{path} is on {branch}"))),
        Err(refusal) => Some(refused(TEMPLATE, refusal.into())),
    }
}

/// Set-up and verify commands, as a run has them, on the origin's commit.
pub async fn verify(
    context: &Context,
    site: &RepositoryContext,
    branch: &BranchName,
    sandbox: &Sandbox,
) -> Vec<Finding> {
    let commands = &site.config.verify.commands;
    if commands.is_empty() && site.config.worktree.setup.is_empty() {
        return Vec::new();
    }
    let not_tried = |why: String| {
        let what = format!("not tried on {branch}: {why}");
        vec![Finding::problem(VERIFY, what, "mend that first; then agentd doctor tries them")]
    };
    let commit = match site.origin_commit(branch).await {
        Ok(Some(commit)) => commit,
        Ok(None) => return not_tried("there is no such branch".to_owned()),
        Err(refusal) => return not_tried(refusal.to_string()),
    };
    let folder = site.state.repo(&site.repo).join("doctor");
    if let Err(error) = files::create_private_dir(&folder) {
        return not_tried(error.to_string());
    }
    let scratch = match tempfile::Builder::new().prefix("try-").tempdir_in(&folder) {
        Ok(scratch) => scratch,
        Err(error) => return not_tried(error.to_string()),
    };
    context.output.note(format!("trying the verify commands on {branch} …"));
    match try_all(site, branch, &commit, sandbox, scratch.path().to_owned()).await {
        Ok(findings) => findings,
        Err(why) => not_tried(why),
    }
}

async fn try_all(
    site: &RepositoryContext,
    branch: &BranchName,
    commit: &CommitId,
    sandbox: &Sandbox,
    scratch: PathBuf,
) -> Result<Vec<Finding>, String> {
    // Nobody asks for a stop; the signal holds as long as its handle.
    let (_handle, stop): (StopHandle, StopSignal) = StopHandle::new();
    let left = || site.config.worktree.setup_timeout.0;
    let mut tree =
        BaseTree::prepare(site, (commit, commit), scratch.join("tree"), None, (&stop, &left)).await?;
    let place = AbsPath::new(scratch.join("cage")).map_err(|error| error.to_string())?;
    let opened = RunSandbox::for_trial(site, tree.worktree(), place, sandbox).await?;
    let commands = opened.of_commands(sandbox);
    tree.confine(commands, site);
    let place = match sandbox::name(commands) {
        "none" => format!("on {branch}, without a sandbox"),
        name => format!("on {branch}, in {name}"),
    };
    let mut findings = Vec::new();
    for argv in &site.config.verify.commands {
        let longest = site.config.verify.timeout.0;
        let before = tree.worktree().tree().await.map_err(|error| error.to_string())?;
        let ended = tree.run(argv, site.child_environment(), longest, &stop).await;
        let line = command_line(argv);
        findings.push(told(&line, &place, ended, longest));
        if tree.worktree().tree().await.map_err(|error| error.to_string())? != before {
            findings.push(Finding::warning(
                VERIFY,
                format!("`{line}` leaves files that git does not ignore, or changes some that it tracks"),
                "add them to .gitignore, or let the command change nothing: a run relies on tests of the very tree that is published",
            ));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok("worktree", format!("worktree.setup works {place}")));
    }
    Ok(findings)
}

fn told(line: &str, place: &str, ended: Result<Exit, ProcessError>, longest: Duration) -> Finding {
    let exit = match ended {
        Ok(exit) if exit.success() => {
            let seconds = exit.duration.as_secs_f64();
            return Finding::ok(VERIFY, format!("`{line}` passes {place} ({seconds:.1} s)"));
        }
        Ok(exit) => exit,
        Err(error) => return could_not_run(line, place, "it was not started", &error.to_string()),
    };
    let said = last_lines(&format!("{}{}", exit.stdout.text(), exit.stderr.text()));
    match exit.code {
        Some(code @ (126 | 127)) if !exit.timed_out() => {
            could_not_run(line, place, &format!("exit {code}"), &said)
        }
        code => {
            let end = match code {
                _ if exit.timed_out() => format!("no end within {longest:?} (verify.timeout)"),
                Some(code) => format!("exit {code}"),
                None => "a signal ended it".to_owned(),
            };
            let told = format!("`{line}` fails {place} ({end})\n{said}");
            let remedy = "a run is a success only once it passes: mend it on that branch, have a run mend it, or correct verify.commands and worktree.setup";
            Finding::problem(VERIFY, told.trim_end(), remedy)
        }
    }
}

fn could_not_run(line: &str, place: &str, end: &str, said: &str) -> Finding {
    let told = format!("`{line}` could not run {place} ({end})\n{said}");
    let remedy = "install the program for the whole machine, or into the worktree by worktree.setup; of your home the sandbox shows the folders of tool managers (pyenv, nvm, asdf, mise, rustup, ~/.local/bin) and what sandbox.readable lists";
    Finding::problem(VERIFY, told.trim_end(), remedy)
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join("\n")
}

/// Whether the remote would take a branch of agentd's, from the origin branch.
pub async fn push(site: &RepositoryContext, origin: &BranchName) -> Option<Finding> {
    if site.repository.publish == Publish::None {
        return None;
    }
    let commit = async { site.origin_commit(origin).await.map_err(|refusal| refusal.to_string()) };
    push_of(site, commit).await
}

/// The same from a commit.
pub async fn push_of(
    site: &RepositoryContext,
    commit: impl Future<Output = Result<Option<CommitId>, String>>,
) -> Option<Finding> {
    let what = "push";
    site.remote.as_ref()?;
    let tried = async {
        let remote = site.authorised_remote().await.map_err(|refusal| refusal.to_string())?;
        let (Some(remote), Some(commit)) = (remote, commit.await?) else { return Ok(None) };
        let branch = BranchName::parse("agentd-doctor/never-pushed").map_err(|error| error.to_string())?;
        site.checkout.try_push(&remote, &branch, &commit).await.map_err(|error| error.to_string())?;
        Ok::<_, String>(Some(remote.display()))
    };
    match tried.await {
        Ok(None) => None,
        Ok(Some(remote)) => {
            Some(Finding::ok(what, format!("{remote} takes branches (tried; nothing was pushed)")))
        }
        Err(error) => {
            let remedy = "give the token or key: contents, read and write";
            Some(Finding::problem(what, format!("a push would fail: {error}"), remedy))
        }
    }
}

/// What stands where the branches and worktrees of issues are to be.
pub async fn places(site: &RepositoryContext) -> Vec<Finding> {
    let mut findings = Vec::new();
    let root = site.worktree_root();
    if root.as_path().symlink_metadata().is_ok() && !root.as_path().is_dir() {
        let remedy = format!("move it away, or set worktree.root to another place than {root}");
        findings.push(Finding::problem("worktrees", format!("{root} is no folder"), remedy));
    } else if let Some(error) = files::unwritable(root.as_path()) {
        let remedy = "make it a place that agentd may write to, or set worktree.root to another one";
        let told = format!("no worktree can be made in {root}: {error}");
        findings.push(Finding::problem("worktrees", told, remedy));
    }
    // Any issue's will do: what stands in the way of one stands in the way of all.
    let branch = branch_of(&IssueKey::Number(0));
    let remedy = "do so; the branches of all issues are below that name";
    if let Ok(Some(conflict)) = site.checkout.ref_conflict(&branch).await {
        findings.push(Finding::problem("branches", conflict.to_string(), remedy));
    }
    if site.repository.publish != Publish::None
        && let Ok(Some(remote)) = site.authorised_remote().await
        && let Ok(RemotePlace::Impossible(conflict)) = site.checkout.remote_place(&remote, &branch).await
    {
        findings.push(Finding::problem("branches", conflict.to_string(), remedy));
    }
    findings
}

/// The smallest request to each model.
pub async fn models(
    providers: &Providers,
    targets: &[ModelTarget],
    timeout: Duration,
) -> Vec<(ModelTarget, Result<String, (ModelErrorClass, String)>)> {
    let asked = targets.iter().map(|target| async move {
        let target = ModelTarget { max_output_tokens: SMALLEST_REPLY, ..target.clone() };
        let request = ModelRequest {
            messages: Messages::from(vec![Message::User { content: QUESTION.to_owned() }]),
            images: Arc::from([]),
            tools: Arc::from([]),
            tool_choice: ToolChoice::Auto,
            stream: false,
            timeout,
            target,
        };
        let answer = match providers.complete(&request).await {
            Ok(reply) => Ok(reply.usage.map_or_else(String::new, |tokens| {
                let all = tokens.input_tokens + tokens.output_tokens;
                let cost = request.target.price.map(|price| format!(", {}", price.cost(&tokens)));
                format!(" ({all} tokens{})", cost.unwrap_or_default())
            })),
            Err(error) => {
                let status = error.status.map(|status| format!(" ({status})")).unwrap_or_default();
                let words: String =
                    error.message.lines().next().unwrap_or_default().chars().take(200).collect();
                Err((error.class, format!("{words}{status}")))
            }
        };
        (request.target, answer)
    });
    join_all(asked).await
}
