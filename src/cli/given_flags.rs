//! The flags that this command was given, in the commands that it tells people to type next: without them another
//! configuration and another state directory would be meant.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::PathBuf;

use super::global::Global;
use crate::domain::shell_words;

/// How the program is called.
const PROGRAM: &str = "agentd";

/// The flags of this command, and the commands that take them.
#[derive(Debug)]
pub struct GivenFlags {
    /// As words of a command line.
    flags: String,
    /// `run`, `runs resume`, …
    commands: BTreeSet<String>,
}

impl GivenFlags {
    /// Which configuration, state and repository the command is about; `None` = as usual. `program`: all of its commands.
    pub fn of(global: &Global, program: &clap::Command) -> Option<Self> {
        let path = |flag: &str, path: &Option<PathBuf>| {
            path.as_ref().map(|path| shell_words::line(&[flag, &path.display().to_string()]))
        };
        let repo = global.repo.as_ref().map(|repo| shell_words::line(&["--repo", &repo.to_string()]));
        let given = [path("--config", &global.config), path("--state-dir", &global.state_dir), repo];
        let flags = given.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let named = |command: &clap::Command| match command.has_subcommands() {
            true => command
                .get_subcommands()
                .map(|one| format!("{} {}", command.get_name(), one.get_name()))
                .collect(),
            false => vec![command.get_name().to_owned()],
        };
        (!flags.is_empty())
            .then(|| Self { flags, commands: program.get_subcommands().flat_map(named).collect() })
    }

    /// A text of agentd's own whose commands have these flags.
    pub fn told<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if !text.contains(PROGRAM) {
            return Cow::Borrowed(text);
        }
        let (mut told, mut rest) = (String::with_capacity(text.len() + self.flags.len()), text);
        while let Some(at) = rest.find(PROGRAM) {
            let (before, after) = rest.split_at(at + PROGRAM.len());
            let behind = before[..at].chars().next_back().or(told.chars().next_back());
            told.push_str(before);
            if behind.is_none_or(|c| c.is_whitespace() || "`(".contains(c)) && self.is_command(after) {
                told.push(' ');
                told.push_str(&self.flags);
            }
            rest = after;
        }
        told.push_str(rest);
        Cow::Owned(told)
    }

    /// Whether what follows the program's name is one of its commands, and no sentence about it.
    fn is_command(&self, after: &str) -> bool {
        let Some(after) = after.strip_prefix(' ') else { return false };
        let is_of_name = |c: char| c.is_ascii_lowercase() || c == '-';
        let mut words =
            after.split(' ').map(|word| word.split(|c| !is_of_name(c)).next().unwrap_or_default());
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        self.commands.contains(first) || self.commands.contains(&format!("{first} {second}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_flags_and_sentences_stay() {
        let commands = ["answer", "run", "runs resume"].map(str::to_owned).into();
        let given = GivenFlags { flags: "--config '../over lay.toml'".to_owned(), commands };
        for (text, told) in [
            (
                "Answer, or `agentd answer 7 TEXT`.",
                "Answer, or `agentd --config '../over lay.toml' answer 7 TEXT`.",
            ),
            ("agentd runs resume 1", "agentd --config '../over lay.toml' runs resume 1"),
            ("agentd runs commands as you", "agentd runs commands as you"),
            ("agentd has a defect", "agentd has a defect"),
            (
                "the label `agentd`, `/agentd approve`, my-agentd run",
                "the label `agentd`, `/agentd approve`, my-agentd run",
            ),
            ("Then: agentd run 7", "Then: agentd --config '../over lay.toml' run 7"),
        ] {
            assert_eq!(given.told(text), told);
        }
    }
}
