//! `agentd shell N`: the user's shell in an issue's worktree, without any token.

use super::context::Context;
use super::error::CommandError;
use super::issue_arg::IssueArg;
use super::repositories::{self, OpenOptions};
use crate::domain::mapping::worktree_of;
use crate::git::sandbox_git::Taken;
use crate::repository::mapping_format::mapping_of;
use crate::sandbox::run_sandbox::RunSandbox;
use crate::sys::files;
use crate::sys::paths::AbsPath;
use crate::sys::process::ProcessSpec;
use crate::sys::shutdown::Shutdown;
use crate::sys::terminal;

/// Opens it: in the sandbox, read-only while a run works. Gives the shell's exit code.
pub fn shell(context: &Context, issue: &IssueArg) -> Result<u8, CommandError> {
    let context = &context.for_issue(issue)?;
    let key = issue.key.clone();
    context.block_on(async {
        // Ctrl-C is the shell's.
        let _signals = Shutdown::on_signals();
        let site = repositories::one(context, &OpenOptions::default()).await?;
        repositories::check_host(issue, &site)?;
        let lease = site.look(site.lease(&key)).await?;
        let works = lease.as_ref().and_then(|lease| lease.holder.as_ref());
        let mapping = lease.as_ref().and_then(|lease| mapping_of(lease.record.as_ref()?));
        let root = site.worktree_root();
        let missing = || {
            CommandError::invalid(format!("issue {key} has no worktree here"))
                .hint(format!("{} begins the work", key.run_command()))
        };
        let mapping = mapping.ok_or_else(missing)?;
        let found = site.checkout.worktree_as_it_is((&root, &worktree_of(&key)), &mapping.branch);
        let worktree = found.map_err(|error| CommandError::failed(error.to_string()))?.ok_or_else(missing)?;
        let folder = site.state.repo(&site.repo).join("shells").join(std::process::id().to_string());
        let folder = AbsPath::new(folder).map_err(|error| CommandError::failed(error.to_string()))?;
        let sandbox = RunSandbox::for_shell(&site, &worktree, folder.clone(), &mapping.origin).await;
        let program = site.env.get("SHELL").filter(|shell| !shell.is_empty()).unwrap_or("/bin/sh");
        let spec = ProcessSpec::new(program, worktree.path()).envs(site.child_environment());
        let (spec, sandbox) = match (sandbox, works) {
            (Ok(sandbox), works) => (sandbox.shell(spec, works.is_some()), Some(sandbox)),
            (Err(why), Some(holder)) => {
                drop(files::remove_dir(folder.as_path()));
                let error = format!(
                    "{holder} works in the worktree, and there is no sandbox to look in it from: {why}"
                );
                return Err(CommandError::invalid(error).hint(format!(
                    "agentd take {key} hands the work over; agentd doctor says more of the sandbox"
                )));
            }
            (Err(why), None) => {
                context.output.note(format!("the shell has your own rights, without a sandbox: {why}"));
                (spec, None)
            }
        };
        if works.is_some() {
            context.output.note("a run works in the worktree: it is read-only here");
        }
        let ended = terminal::run(&spec).await;
        if let Some(sandbox) = &sandbox {
            if works.is_none() {
                match sandbox.take_commits().await {
                    Ok(Taken::None) => {}
                    Ok(Taken::Commits(head)) => {
                        context.output.note(format!("{} is at {} now", mapping.branch, head.short()));
                    }
                    Ok(Taken::Left(why)) => {
                        context.output.note(format!("your commits are not taken over: {why}"));
                    }
                    Err(error) => {
                        context.output.note(format!("your commits could not be taken over: {error}"));
                    }
                }
            }
            sandbox.close();
        }
        drop(files::remove_dir(folder.as_path()));
        ended.map_err(|error| CommandError::failed(format!("{program} cannot be run: {error}")))
    })?
}
