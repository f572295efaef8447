//! The sandbox of a person's shell in an issue's worktree: what the programs of a run see there, with git.

use super::run_sandbox::{RunSandbox, find};
use crate::domain::egress::Egress;
use crate::domain::flow::Sandbox;
use crate::domain::origin::Origin;
use crate::git::worktree::Worktree;
use crate::repository::context::RepositoryContext;
use crate::sys::files;
use crate::sys::paths::AbsPath;
use crate::sys::process::ProcessSpec;

impl RunSandbox {
    /// Makes it, in `folder`. The error says in a sentence why there is none.
    pub async fn for_shell(
        context: &RepositoryContext,
        worktree: &Worktree,
        folder: AbsPath,
        origin: &Origin,
    ) -> Result<Self, String> {
        let mechanism = find(&context.env, &context.config.sandbox).await?;
        for name in ["home", "tmp", "readable"] {
            files::create_private_dir(folder.join(name).as_path()).map_err(|error| error.to_string())?;
        }
        let person = worktree.person(|name| context.env.get(name).map(str::to_owned)).await;
        let person = match person.map_err(|error| error.to_string())? {
            Some(person) => person,
            None => context.identity().await.map_err(|error| error.to_string())?,
        };
        let mut made = Self::around(folder, worktree);
        let objects = made.show_git(&mechanism, &person, origin, context).await?;
        let wanted = Sandbox { enabled: true, network: Egress::Nothing, allowed_paths: Vec::new() };
        made.confine(context, mechanism, objects, &wanted).await.map_err(|stop| stop.message)?;
        Ok(made)
    }

    /// A program of a person at the terminal, inside; `reads_only` = a run works on the files.
    pub fn shell(&self, spec: ProcessSpec, reads_only: bool) -> ProcessSpec {
        let Some(mut confined) = self.confined() else { return spec };
        confined.walls.terminal = true;
        let confined = if reads_only { self.reading(confined) } else { confined };
        confined.of_configured().wrap(spec)
    }
}
