//! The credentials for GitHub: a token, or a GitHub App whose installation token is minted once and renewed before it
//! expires.

use std::time::Duration;

use http::HeaderMap;
use octocrab::auth::{EncodingKey, create_jwt};
use octocrab::models::AppId;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::breaker::date_of;
use super::error::{Error, ErrorKind};
use super::rest_wire::AccessTokenWire;
use crate::config::Credentials;
use crate::domain::canonical::sha256_hex;

/// A minted token is not used in its last minutes, so that it does not end in the middle of a push.
const MARGIN: Duration = Duration::from_secs(5 * 60);
/// How long a minted token is taken to live when GitHub does not say.
const UNSAID: Duration = Duration::from_secs(30 * 60);

/// What git needs to fetch and push over HTTP (D28).
#[derive(Debug, Clone)]
pub struct GitToken {
    /// User name; GitHub takes this one with every kind of token.
    pub user: &'static str,
    /// The password.
    pub token: SecretString,
}

pub(super) enum Auth {
    Token(SecretString),
    App { id: AppId, installation_id: u64, key: EncodingKey, minted: Mutex<Option<Minted>> },
}

pub(super) struct Minted {
    token: SecretString,
    renew_at: Instant,
}

impl Auth {
    pub fn new(credentials: Credentials) -> Result<Self, Error> {
        let setup = |problem: &str| {
            Error::new(ErrorKind::Setup { problem: problem.to_owned() }, "reading the credentials", "")
        };
        match credentials {
            Credentials::Token(token) => {
                let text = token.expose_secret().trim();
                // A newline from a file is common. Anything else that a header cannot have is a mistake.
                if text.is_empty()
                    || text.chars().any(|c| c.is_whitespace() || c.is_control() || !c.is_ascii())
                {
                    return Err(setup(
                        "github.token is empty or holds characters that no token has; set it to the token alone",
                    ));
                }
                Ok(Self::Token(SecretString::from(text.to_owned())))
            }
            Credentials::App { id, installation_id, private_key } => {
                // Keys in environment variables often carry "\n" as two characters.
                let pem = private_key.expose_secret().replace("\\n", "\n");
                let key = EncodingKey::from_rsa_pem(pem.as_bytes()).map_err(|_| {
                    setup("github.app.private_key is not an RSA private key in PEM form; download one from the App's settings page")
                })?;
                Ok(Self::App { id: AppId(id), installation_id, key, minted: Mutex::new(None) })
            }
        }
    }

    /// The App's own credentials, valid for a few minutes; `None` with a plain token.
    pub fn app_jwt(&self) -> Option<Result<SecretString, Error>> {
        let Self::App { id, key, .. } = self else { return None };
        Some(create_jwt(*id, key).map(SecretString::from).map_err(|error| {
            let problem =
                "github.app.private_key cannot sign; download a new key from the App's settings page";
            Error::new(
                ErrorKind::Setup { problem: problem.to_owned() },
                "signing in as the GitHub App",
                error.to_string(),
            )
        }))
    }

    /// The path that mints an installation token; `None` with a plain token.
    pub fn mint_path(&self) -> Option<String> {
        match self {
            Self::Token(_) => None,
            Self::App { installation_id, .. } => {
                Some(format!("/app/installations/{installation_id}/access_tokens"))
            }
        }
    }

    /// Stands for the credential at this GitHub, and does not tell it.
    pub fn credential_id(&self, origin: impl std::fmt::Display) -> String {
        match self {
            Self::Token(token) => {
                let hash =
                    sha256_hex(format!("agentd quota\n{origin}\n{}", token.expose_secret()).as_bytes());
                hash.chars().take(24).collect()
            }
            Self::App { installation_id, .. } => format!("installation-{installation_id}"),
        }
    }

    /// The App's id; `None` with a plain token.
    pub fn app_id(&self) -> Option<u64> {
        match self {
            Self::Token(_) => None,
            Self::App { id, .. } => Some(id.0),
        }
    }

    /// The token to use now, minting one with `mint` where that is needed; callers at the same time share one minting.
    pub async fn token<F, R>(&self, mint: F) -> Result<SecretString, Error>
    where
        F: FnOnce() -> R,
        R: Future<Output = Result<Minted, Error>>,
    {
        match self {
            Self::Token(token) => Ok(token.clone()),
            Self::App { minted, .. } => {
                let mut held = minted.lock().await;
                if let Some(minted) = held.as_ref().filter(|minted| minted.renew_at > Instant::now()) {
                    return Ok(minted.token.clone());
                }
                let fresh = mint().await?;
                let token = fresh.token.clone();
                *held = Some(fresh);
                Ok(token)
            }
        }
    }

    /// Forgets `refused` if it is the minted token, so that the next request mints another one. False = nothing to
    /// renew.
    pub async fn forget(&self, refused: &SecretString) -> bool {
        let Self::App { minted, .. } = self else { return false };
        let mut held = minted.lock().await;
        if held.as_ref().is_some_and(|minted| minted.token.expose_secret() == refused.expose_secret()) {
            *held = None;
        }
        true
    }
}

impl Minted {
    /// Reads the answer of the minting request; its life is measured by GitHub's own clock.
    pub fn read(body: &str, headers: &HeaderMap) -> Result<Self, serde_json::Error> {
        let answer: AccessTokenWire = serde_json::from_str(body)?;
        let life = match (answer.expires_at, date_of(headers)) {
            (Some(end), Some(now)) => (end - now).to_std().unwrap_or_default(),
            _ => UNSAID,
        };
        let renew_at = Instant::now() + life.saturating_sub(MARGIN);
        Ok(Self { token: SecretString::from(answer.token), renew_at })
    }
}
