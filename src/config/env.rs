//! The process environment: the one place that reads it, and the table of every variable that agentd reads.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// One variable that agentd itself reads; `${VAR}` placeholders may name any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Name.
    pub name: &'static str,
    /// What it does, for people.
    pub about: &'static str,
}

/// Every variable that agentd reads by itself.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "AGENTD_MCP_SOCKET",
        about: "Where `agentd mcp` finds the run that it serves, unless --socket is given.",
    },
    Variable { name: "AGENTD_STATE_DIR", about: "State directory, unless --state-dir is given." },
    Variable { name: "GITHUB_API_URL", about: "Default of github.api_url." },
    Variable { name: "GITHUB_GRAPHQL_URL", about: "Default of github.graphql_url." },
    Variable { name: "GITHUB_TOKEN", about: "Default of github.token." },
    Variable { name: "HOME", about: "Home directory, from which the XDG directories derive." },
    Variable { name: "NO_COLOR", about: "Not empty: no colours." },
    Variable { name: "PATH", about: "Where git and the verify commands are found." },
    Variable {
        name: "XDG_CONFIG_HOME",
        about: "Holds agentd/agentd.toml, a configuration layer; default ~/.config.",
    },
    Variable { name: "XDG_STATE_HOME", about: "Holds agentd/, the state directory; default ~/.local/state." },
];

/// A copy of the environment, taken once at the start and passed on; cheap to clone.
#[derive(Clone)]
pub struct Env {
    variables: Arc<BTreeMap<String, String>>,
    working_dir: PathBuf,
    program: Option<PathBuf>,
}

impl std::fmt::Debug for Env {
    // Values may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").field("working_dir", &self.working_dir).finish_non_exhaustive()
    }
}

impl Env {
    /// Reads variables, working directory and the program's own path. Variables that are not UTF-8 are left out.
    ///
    /// # Errors
    /// When the working directory does not exist any more.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads them")]
    pub fn capture() -> std::io::Result<Self> {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Ok(Self {
            variables: Arc::new(variables),
            working_dir: std::env::current_dir()?,
            program: std::env::current_exe().ok(),
        })
    }

    /// An environment made of the given variables, standing in `working_dir`.
    pub fn new<N: Into<String>, V: Into<String>>(
        working_dir: impl Into<PathBuf>,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        Self {
            variables: Arc::new(variables.into_iter().map(|(n, v)| (n.into(), v.into())).collect()),
            working_dir: working_dir.into(),
            program: None,
        }
    }

    /// Everything, for the git program, which takes what it needs of it.
    pub fn all(&self) -> impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)> {
        self.variables.iter().map(|(name, value)| (name.into(), value.into()))
    }

    /// A variable's value, as it is (possibly empty).
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// A variable's value if it is not empty.
    pub fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// Absolute path of the working directory.
    pub fn working_dir(&self) -> &std::path::Path {
        &self.working_dir
    }

    /// Absolute path of the running program, where the system tells.
    pub fn program(&self) -> Option<&std::path::Path> {
        self.program.as_deref()
    }

    /// The home directory, if `HOME` is set and absolute.
    pub fn home(&self) -> Option<PathBuf> {
        self.absolute("HOME")
    }

    /// `$XDG_CONFIG_HOME`, else `~/.config`. A relative value is ignored, as XDG asks.
    pub fn config_home(&self) -> Option<PathBuf> {
        self.absolute("XDG_CONFIG_HOME").or_else(|| Some(self.home()?.join(".config")))
    }

    /// The state directory: the flag, else `$AGENTD_STATE_DIR`, else `$XDG_STATE_HOME/agentd`, else
    /// `~/.local/state/agentd`; a relative one starts at the working directory. `None` when nothing says where.
    pub fn state_dir(&self, flag: Option<&std::path::Path>) -> Option<PathBuf> {
        if let Some(chosen) =
            flag.map(PathBuf::from).or_else(|| self.filled("AGENTD_STATE_DIR").map(PathBuf::from))
        {
            return Some(self.working_dir.join(chosen));
        }
        let base =
            self.absolute("XDG_STATE_HOME").or_else(|| Some(self.home()?.join(".local").join("state")))?;
        Some(base.join("agentd"))
    }

    /// What a tool of the operator (git, a policy program) needs to find itself: allow-listed names, no secrets.
    pub fn for_tools(&self) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
        ["PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "USER", "XDG_CONFIG_HOME", "SSH_AUTH_SOCK"]
            .into_iter()
            .filter_map(|name| Some((name.into(), self.get(name)?.into())))
            .collect()
    }

    fn absolute(&self, name: &str) -> Option<PathBuf> {
        self.filled(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_state_directory_is_flag_then_variable_then_xdg_then_home() {
        let all = [("AGENTD_STATE_DIR", "/v"), ("XDG_STATE_HOME", "/x"), ("HOME", "/h")];
        let at = |skip: usize, flag: Option<&str>| {
            Env::new("/w", all[skip..].to_vec())
                .state_dir(flag.map(Path::new))
                .map(|p| p.display().to_string())
        };
        assert_eq!(at(0, Some("here")).as_deref(), Some("/w/here"));
        assert_eq!(at(0, None).as_deref(), Some("/v"));
        assert_eq!(at(1, None).as_deref(), Some("/x/agentd"));
        assert_eq!(at(2, None).as_deref(), Some("/h/.local/state/agentd"));
        assert_eq!(at(3, None), None);
    }

    #[test]
    fn s_047_an_environment_does_not_print_its_values() {
        let env = Env::new("/w", [("TOKEN", "sentinel")]);
        assert!(!format!("{env:?}").contains("sentinel"));
    }
}
