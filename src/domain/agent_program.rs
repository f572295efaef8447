//! An agent program that works on a step: which one it is, how it is started, and what it may reach.

use std::time::Duration;

use super::egress::Egress;

/// How names of tools that start an agent program begin; its own word follows.
pub const TOOL_PREFIX: &str = "exec_agent__";

/// The longest time without output of a program that reports while it works.
pub const STALL_LIMIT: Duration = Duration::from_secs(300);

/// What is known of a backend.
#[derive(Debug)]
pub struct BackendFacts {
    /// Its name for people.
    pub title: &'static str,
    /// What is started where the definition names no program.
    pub program: Option<&'static str>,
    /// How the program can ask before it does something; `None` = it cannot.
    pub asks: Option<Asks>,
    /// Who answers then, if the definition does not say.
    pub permissions: Permissions,
    /// Whether a visit may continue the conversation of an earlier visit of the same program.
    pub resumes: bool,
    /// Whether it tells of its work as it goes, rather than at its end alone.
    pub tells: bool,
    /// Whether the model is asked for by its command line.
    pub takes_model: bool,
    /// Whether its command line knows a limit of turns.
    pub takes_turn_limit: bool,
    /// What `init` writes for it; `None` = it has to be written by hand.
    pub init: Option<InitModel>,
}

/// How a program asks before it does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// By a tool that agentd serves for that.
    PermissionTool,
    /// By its protocol.
    Protocol,
}

/// The model that `init` writes for a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitModel {
    /// Name of the provider.
    pub provider: &'static str,
    /// Whether the program's name for a model begins with the provider's.
    pub by_provider: bool,
}

macro_rules! backends {
    ($($(#[$doc:meta])* $backend:ident = $word:literal $facts:tt)+) => {
        /// How agentd talks to the program.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Backend {
            $($(#[$doc])* $backend,)+
        }

        impl Backend {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$backend,)+];

            /// The word in a definition.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$backend => $word,)+ }
            }

            /// What is known of it.
            pub fn facts(self) -> &'static BackendFacts {
                match self { $(Self::$backend => &BackendFacts $facts,)+ }
            }
        }
    };
}

backends! {
    /// Prompt on standard input, result on standard output.
    Command = "command" {
        title: "a command",
        program: None,
        asks: None,
        permissions: Permissions::Sandbox,
        resumes: false,
        tells: false,
        takes_model: false,
        takes_turn_limit: false,
        init: None,
    }
    /// Claude Code's headless mode.
    ClaudeCode = "claude-code" {
        title: "Claude Code",
        program: Some("claude"),
        asks: Some(Asks::PermissionTool),
        permissions: Permissions::Sandbox,
        resumes: true,
        tells: true,
        takes_model: true,
        takes_turn_limit: true,
        init: Some(InitModel { provider: "anthropic", by_provider: false }),
    }
    /// Codex's headless mode.
    Codex = "codex" {
        title: "Codex",
        program: Some("codex"),
        asks: None,
        permissions: Permissions::Sandbox,
        resumes: true,
        tells: true,
        takes_model: true,
        takes_turn_limit: false,
        init: Some(InitModel { provider: "openai", by_provider: false }),
    }
    /// Gemini CLI's headless mode.
    Gemini = "gemini" {
        title: "Gemini CLI",
        program: Some("gemini"),
        asks: None,
        permissions: Permissions::Sandbox,
        resumes: true,
        tells: true,
        takes_model: true,
        takes_turn_limit: false,
        init: Some(InitModel { provider: "gemini", by_provider: false }),
    }
    /// OpenCode's headless mode.
    OpenCode = "opencode" {
        title: "OpenCode",
        program: Some("opencode"),
        asks: None,
        permissions: Permissions::Sandbox,
        resumes: true,
        tells: true,
        takes_model: true,
        takes_turn_limit: false,
        init: Some(InitModel { provider: "anthropic", by_provider: true }),
    }
    /// The Agent Client Protocol over standard input and output.
    Acp = "acp" {
        title: "the Agent Client Protocol",
        program: None,
        asks: Some(Asks::Protocol),
        permissions: Permissions::Policy,
        resumes: true,
        tells: true,
        takes_model: false,
        takes_turn_limit: false,
        init: None,
    }
}

impl Backend {
    /// The backend of a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|backend| backend.as_str() == word)
    }
}

/// What works on a step, as somebody wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepExecutor {
    /// agentd's own session.
    Session,
    /// A program that is named by its backend alone. What it may reach is written elsewhere, if at all.
    Named(Backend),
    /// A program as it stands there.
    Program(Box<AgentProgram>),
}

impl StepExecutor {
    /// The backend; `None` = agentd's own session.
    pub fn backend(&self) -> Option<Backend> {
        match self {
            Self::Session => None,
            Self::Named(backend) => Some(*backend),
            Self::Program(program) => Some(program.backend),
        }
    }
}

/// Who answers when the program asks for permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permissions {
    /// The policy, by the rules of agentd's own tools.
    Policy,
    /// Nobody. Only the sandbox limits it.
    Sandbox,
}

/// One program as a definition asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentProgram {
    /// How it is talked to.
    pub backend: Backend,
    /// Program and arguments that come first; never empty.
    pub argv: Vec<String>,
    /// Model to ask for; `None` = the program's own choice.
    pub model: Option<String>,
    /// Variables of agentd's environment that it is given.
    pub environment: Vec<String>,
    /// Files and folders of the user's home that are copied into its private one.
    pub home: Vec<String>,
    /// Further paths that it may read.
    pub readable: Vec<String>,
    /// Endpoints that it reaches by name. agentd adds the credentials on the way.
    pub endpoints: Vec<String>,
    /// Whether it runs in the sandbox. Where there is no sandbox, it starts only with `false`.
    pub sandboxed: bool,
    /// Who answers what it asks for.
    pub permissions: Permissions,
    /// Whether agentd's own tools are served to it.
    pub tools: bool,
    /// What it reaches of the network.
    pub network: Egress,
    /// Longest time of one visit; `None` = what is left of the run's.
    pub time_limit: Option<Duration>,
    /// Longest silence.
    pub stall_limit: Duration,
    /// The most turns of its own in one visit, if the program has such a limit.
    pub max_turns: Option<u32>,
    /// Most requests to models by its endpoints in one visit.
    pub max_requests: Option<u32>,
    /// Most tokens of one visit.
    pub max_tokens: Option<u64>,
}

impl AgentProgram {
    /// A backend's usual program, which reaches nothing but the worktree; `None` = the backend has none.
    pub fn usual(backend: Backend) -> Option<Self> {
        Some(Self {
            backend,
            argv: vec![backend.facts().program?.to_owned()],
            model: None,
            environment: Vec::new(),
            home: Vec::new(),
            readable: Vec::new(),
            endpoints: Vec::new(),
            sandboxed: true,
            permissions: Permissions::Sandbox,
            tools: true,
            network: Egress::Nothing,
            time_limit: None,
            stall_limit: STALL_LIMIT,
            max_turns: None,
            max_requests: None,
            max_tokens: None,
        })
    }

    /// What it wants to reach besides the worktree and agentd's tools. The names are the keys of a definition.
    pub fn reaches(&self) -> impl Iterator<Item = &'static str> {
        [
            ("sandbox", !self.sandboxed),
            ("environment", !self.environment.is_empty()),
            ("home", !self.home.is_empty()),
            ("readable", !self.readable.is_empty()),
            ("endpoints", !self.endpoints.is_empty()),
            ("network", self.network != Egress::Nothing),
        ]
        .into_iter()
        .filter_map(|(key, asked)| asked.then_some(key))
    }

    /// Name of the tool that starts it (C-24).
    pub fn tool_name(&self) -> String {
        format!("{TOOL_PREFIX}{}", self.backend.as_str())
    }

    /// Whether a tool of that name starts an agent program.
    pub fn is_tool(name: &str) -> bool {
        name.starts_with(TOOL_PREFIX)
    }
}
