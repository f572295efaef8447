//! Which tools of a server are let through: globs on their bare names (D25).

use globset::{Glob, GlobSet, GlobSetBuilder};

use super::error::McpError;
use super::server_config::ServerConfig;

/// `allow` and `deny` of one server.
pub(super) struct Filter {
    allow: GlobSet,
    deny: GlobSet,
}

impl Filter {
    pub(super) fn new(server: &str, config: &ServerConfig) -> Result<Self, McpError> {
        let set = |key: &'static str, patterns: &[String]| {
            let mut set = GlobSetBuilder::new();
            let refused = |error: globset::Error| McpError::Glob {
                server: server.to_owned(),
                key,
                message: error.to_string(),
            };
            for pattern in patterns {
                set.add(Glob::new(pattern).map_err(refused)?);
            }
            set.build().map_err(refused)
        };
        Ok(Self { allow: set("allow", &config.allow)?, deny: set("deny", &config.deny)? })
    }

    pub(super) fn lets_through(&self, tool: &str) -> bool {
        self.allow.is_match(tool) && !self.deny.is_match(tool)
    }
}
