//! What a rule looks at beside its name: read from the file, and refused where no call could ever meet it.

use serde::Deserialize;

use crate::domain::policy::{ActorPermission, Decision, ProposalKind, WORKTREE_TOOLS};
use crate::domain::rules::{GlobError, Globs, When};

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WhenEntry {
    /// Globs on the paths of the call, relative to the worktree; `*` stays in a folder, `**` does not.
    path: Option<OneOrMany>,
    /// Beginnings of the command: `[["cargo", "test"]]` fits `cargo test --lib`.
    argv: Option<Vec<Vec<String>>>,
    /// Globs on hosts, without scheme and port.
    host: Option<OneOrMany>,
    /// Most bytes of the arguments; in rules that allow.
    max_bytes: Option<u64>,
    /// Globs on the steps that a handoff leaves.
    from: Option<OneOrMany>,
    /// Globs on the steps that a handoff enters.
    to: Option<OneOrMany>,
    /// Least permission on GitHub of whoever asked for the run; in rules that allow.
    actor_permission: Option<ActorPermission>,
}

#[derive(Debug, Clone, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    fn list(&self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one.clone()],
            Self::Many(many) => many.clone(),
        }
    }
}

impl WhenEntry {
    /// The conditions of a rule; an error is what is wrong with them.
    pub(super) fn read(&self, kind: ProposalKind, effect: Decision, name: &str) -> Result<When, String> {
        let wrong = |message: &str| Err(message.to_owned());
        let tool_only =
            self.path.is_some() || self.argv.is_some() || self.host.is_some() || self.max_bytes.is_some();
        let handoff_only = self.from.is_some() || self.to.is_some();
        if tool_only && kind != ProposalKind::Tool {
            return wrong("path, argv, host and max_bytes look at tool calls; use kind = \"tool\"");
        }
        if handoff_only && kind != ProposalKind::Handoff {
            return wrong("from and to look at handoffs; use kind = \"handoff\"");
        }
        if effect == Decision::Deny && (self.max_bytes.is_some() || self.actor_permission.is_some()) {
            return wrong(
                "max_bytes and actor_permission say what is allowed; use them in a rule that allows, the rest is denied",
            );
        }
        let empty = |list: &Option<OneOrMany>| list.as_ref().is_some_and(|list| list.list().is_empty());
        let lists = [&self.path, &self.host, &self.from, &self.to];
        if lists.into_iter().any(empty) || self.argv.as_ref().is_some_and(Vec::is_empty) {
            return wrong("an empty list matches nothing; remove the key or name something");
        }
        let argv_broken =
            |prefix: &Vec<String>| prefix.first().is_none_or(|program| program.trim().is_empty());
        if self.argv.iter().flatten().any(argv_broken) {
            return wrong(
                "an argv beginning is empty or names no program; write it like [\"cargo\", \"test\"]",
            );
        }
        if let Some(words) = self.argv.iter().flatten().find_map(|prefix| one_word(prefix)) {
            return Err(format!(
                "no program is called \"{}\"; each word stands by itself: [{}]",
                words.join(" "),
                words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ")
            ));
        }
        type Compile = fn(&[String]) -> Result<Globs, GlobError>;
        let globs = |list: &Option<OneOrMany>, compile: Compile| -> Result<Option<Globs>, String> {
            let Some(list) = list else { return Ok(None) };
            compile(&list.list()).map(Some).map_err(|error| error.to_string())
        };
        let read = When {
            path: globs(&self.path, Globs::paths)?,
            argv: self.argv.clone(),
            host: globs(&self.host, Globs::hosts)?,
            max_bytes: self.max_bytes,
            from: globs(&self.from, Globs::names)?,
            to: globs(&self.to, Globs::names)?,
            actor_permission: self.actor_permission,
        };
        never_holds(name, self).map_or(Ok(read), Err)
    }
}

/// The words of a command that was written as one; a path may have a space in it.
fn one_word(prefix: &[String]) -> Option<Vec<&str>> {
    let program = prefix.first().filter(|program| !program.contains('/'))?;
    let words: Vec<&str> = program.split_whitespace().collect();
    (words.len() > 1).then_some(words)
}

/// Why a condition on calls of a built-in tool never holds: their arguments have nothing of the kind.
fn never_holds(tool: &str, when: &WhenEntry) -> Option<String> {
    if !WORKTREE_TOOLS.contains(&tool) {
        return None;
    }
    match tool {
        "run_command" => when.path.as_ref().map(|_| {
            "a call of run_command names no path, so that this rule decides nothing; a rule knows a command by its argv".to_owned()
        }),
        _ if when.argv.is_some() => {
            Some(format!("a call of {tool} has no argv, so that this rule decides nothing; argv is for run_command"))
        }
        _ if when.host.is_some() => {
            Some(format!("no argument of {tool} is a host; host is for run_command and for tools of servers"))
        }
        "git_status" if when.path.is_some() => {
            Some("a call of git_status names no path, so that this rule decides nothing".to_owned())
        }
        _ => None,
    }
}
