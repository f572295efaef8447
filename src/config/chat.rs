//! `[[chat.users]]`, ready for use. Tokens are checked here, because only the chat endpoint needs them.

use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use super::error::ConfigError;
use super::settings::Config;

/// Shortest token that nobody guesses, in bytes.
const SHORTEST_TOKEN: usize = 16;

impl Config {
    /// Who may ask over HTTP, with their tokens.
    ///
    /// # Errors
    /// A token without a value, one that can be guessed, or one that two users share.
    pub fn chat_users(&self) -> Result<Vec<(Uuid, SecretString)>, ConfigError> {
        let mut users: Vec<(Uuid, SecretString)> = Vec::new();
        for (index, user) in self.file.chat.users.iter().enumerate() {
            let key = format!("chat.users[{index}].token");
            let token = self.tree.placeholder(&key, &user.token).secret()?;
            if token.expose_secret().len() < SHORTEST_TOKEN {
                let words = format!(
                    "is shorter than {SHORTEST_TOKEN} characters; make one with: openssl rand -hex 32"
                );
                return Err(self.invalid(&key, &words));
            }
            if users.iter().any(|(_, other)| other.expose_secret() == token.expose_secret()) {
                return Err(self.invalid(&key, "is another user's token too"));
            }
            users.push((Uuid::parse_str(&user.id).unwrap_or_default(), token));
        }
        Ok(users)
    }
}
