//! What the configuration says of one MCP server.

use std::collections::BTreeMap;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use crate::engine::tool::BoundParameter;

/// One entry of `[mcp.servers]`, resolved.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// How it is reached.
    pub transport: ServerTransport,
    /// Whether a run can do without it.
    pub required: bool,
    /// Globs on the tools' bare names (D25).
    pub allow: Vec<String>,
    /// Globs on the tools' bare names; these win over `allow`.
    pub deny: Vec<String>,
    /// Bare names of tools that are known to change nothing (D78).
    pub reads: Vec<String>,
    /// Parameters that agentd sets if a tool declares them or gets them (D79).
    pub bind: Vec<BoundParameter>,
    /// Take the parameters that agentd sets out of what models see (C-18).
    pub hide_bound_params: bool,
    /// Queue its calls wait in.
    pub queue: Option<String>,
    /// Longest wait for each of connecting, initializing, and listing tools.
    pub start_timeout: Duration,
}

impl ServerConfig {
    /// Enough for a package runner that has to fetch the server first.
    pub const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(60);

    /// A required server with the defaults: all tools, `user_id` and `issue` bound.
    pub fn new(transport: ServerTransport) -> Self {
        Self {
            transport,
            required: true,
            allow: vec!["*".to_owned()],
            deny: Vec::new(),
            reads: Vec::new(),
            bind: vec![BoundParameter::UserId, BoundParameter::Issue],
            hide_bound_params: false,
            queue: None,
            start_timeout: Self::DEFAULT_START_TIMEOUT,
        }
    }
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub enum ServerTransport {
    /// A child process that speaks on its standard streams.
    Stdio {
        /// A name looked up in `PATH`, or a path.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// The variables it gets beside `PATH`, `HOME` and `LANG`.
        env: BTreeMap<String, SecretString>,
    },
    /// Streamable HTTP.
    Http {
        /// Where.
        url: String,
        /// Sent with every request.
        headers: BTreeMap<String, SecretString>,
    },
}

/// Programs that start others which they find in the folder where they are started, or by settings there.
const STARTERS: [&str; 12] =
    ["npx", "npm", "pnpm", "yarn", "bunx", "uv", "uvx", "pipx", "poetry", "bundle", "make", "just"];
/// Programs that run the file that they are given.
const INTERPRETERS: [&str; 9] = ["node", "deno", "bun", "tsx", "python", "ruby", "perl", "sh", "bash"];

/// What a server that is started in a worktree would run of it, though it was not meant: an agent may have written it. `None`: nothing
/// that can be seen by its command.
pub fn runs_what_is_there(command: &str, args: &[String]) -> Option<String> {
    let name = command.rsplit('/').next().unwrap_or(command);
    if STARTERS.contains(&name) {
        return Some(format!("{name} looks for programs and settings"));
    }
    if command.contains('/') && !command.starts_with('/') {
        return Some(format!("{command} is looked for"));
    }
    let is_interpreter = INTERPRETERS.iter().any(|known| {
        let rest = name.strip_prefix(known);
        rest.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
    });
    let file = args.iter().find(|arg| !arg.starts_with('-'))?;
    // What is given as a text names files by what it does, and not by its words.
    let by_c = ["python", "sh", "bash"].iter().any(|known| name.starts_with(known));
    let texts: &[&str] = if by_c { &["-c"] } else { &["-e", "--eval", "-p", "--print"] };
    let is_text = |arg: &String| texts.contains(&arg.as_str());
    if is_interpreter && args.iter().take_while(|arg| *arg != file).any(is_text) {
        return Some(format!("the text that {name} is given may run what it finds"));
    }
    (is_interpreter && !loads_a_module(command, args) && !file.starts_with('/'))
        .then(|| format!("{name} looks for {file}"))
}

/// Whether it is Python that is to load a module, for which it looks in the folder where it is started first.
pub(super) fn loads_a_module(command: &str, args: &[String]) -> bool {
    let name = command.rsplit('/').next().unwrap_or(command);
    (name.starts_with("python") || name.starts_with("pypy"))
        && args
            .iter()
            .take_while(|arg| arg.starts_with('-'))
            .any(|arg| arg.ends_with('m') && !arg.starts_with("--"))
}

impl ServerTransport {
    /// What a message must not have: variables, headers, and parts of a URL that may be secret.
    pub(super) fn secrets(&self) -> Vec<String> {
        let (values, url) = match self {
            Self::Stdio { env, .. } => (env.values(), None),
            Self::Http { url, headers } => (headers.values(), reqwest::Url::parse(url).ok()),
        };
        let mut secrets: Vec<String> = values.map(|value| value.expose_secret().to_owned()).collect();
        if let Some(url) = url {
            let parts = [Some(url.username()), url.password(), url.query()];
            secrets.extend(parts.into_iter().flatten().map(str::to_owned));
        }
        secrets.retain(|secret| !secret.is_empty());
        secrets
    }

    /// A text of the server without the secrets that it was given, on one line, of bounded length.
    pub(super) fn clean(&self, text: &str) -> String {
        let mut clean = text.to_owned();
        for secret in self.secrets() {
            clean = clean.replace(&secret, "[redacted]");
        }
        clean.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(600).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_runs_of_the_folder_where_it_starts_is_seen_by_its_command() {
        let said = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            runs_what_is_there(&words[0], &words[1..])
        };
        for there in [
            "npx -y @scope/server .",
            "/usr/bin/uvx x",
            "node server.js",
            "./server",
            "python3.12 tools/s.py",
            "sh -c ./server",
        ] {
            assert!(said(there).is_some(), "{there}");
        }
        assert_eq!(said("sh -c exit").as_deref(), Some("the text that sh is given may run what it finds"));
        for own in [
            "/opt/server .",
            "server",
            "node /opt/s.js --root .",
            "python3 -m shop .",
            "python3 -u -m shop",
            "nodemon x",
        ] {
            assert_eq!(said(own), None, "{own}");
        }
        let loads =
            |line: &str| loads_a_module("python3", &line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert!(loads("-m shop") && loads("-um shop") && !loads("/opt/s.py -m") && !loads("-u s.py"));
    }
}
