//! Remotes: their URL, their credentials, what they have, and how commits are fetched from them.

use base64::Engine as _;
use secrecy::{ExposeSecret as _, SecretString};

use super::checkout::{Checkout, RefConflict, conflict};
use super::error::GitError;
use super::output;
use super::program::{Call, Protocols, failure};
use crate::domain::name::{BranchName, CommitId};

/// Another process moves the ref at this moment. The next try finds it where it should be.
const MOST_TRIES: usize = 5;

/// What every fetch begins with; the last one ends the options.
pub(super) const FETCH: [&str; 7] = [
    "fetch",
    "--quiet",
    "--no-write-fetch-head",
    "--no-tags",
    "--no-auto-maintenance",
    "--no-recurse-submodules",
    "--",
];

/// What leaves the contents of files out of a fetch.
pub(super) const WITHOUT_CONTENTS: &str = "--filter=blob:none";

/// How to prove oneself to a remote (D28).
#[derive(Debug, Clone)]
pub enum RemoteAuth {
    /// As the user's git does: SSH agent, credential helpers, what the URL holds.
    User,
    /// A token over HTTP, sent only to this remote's URL, through the environment.
    Token(SecretString),
}

/// What a remote has where a branch is to be.
#[derive(Debug)]
pub enum RemotePlace {
    /// Nothing.
    Free,
    /// The branch, at this commit.
    Taken(CommitId),
    /// A branch that makes it impossible.
    Impossible(RefConflict),
}

/// A remote as it was when the run began.
#[derive(Debug, Clone)]
pub struct Remote {
    name: String,
    url: String,
    auth: RemoteAuth,
}

impl Remote {
    /// A remote with a name and a URL; a token is used over HTTP only.
    pub fn new(name: &str, url: &str, auth: RemoteAuth) -> Self {
        Self { name: name.to_owned(), url: url.to_owned(), auth }
    }

    /// Its name in the repository's configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its URL as configured; may hold credentials, so show [`Remote::display`].
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its URL without credentials.
    pub fn display(&self) -> String {
        without_credentials(&self.url)
    }

    fn is_http(&self) -> bool {
        self.url.starts_with("https://") || self.url.starts_with("http://")
    }

    /// The URL for the program. A token replaces credentials in the URL, because those would win over it.
    pub(super) fn target(&self) -> String {
        match self.auth {
            RemoteAuth::Token(_) if self.is_http() => self.display(),
            _ => self.url.clone(),
        }
    }

    /// Where agentd keeps what it last saw of a branch there.
    pub(super) fn seen_ref(&self, branch: &BranchName) -> String {
        format!("refs/agentd/remotes/{}/{branch}", self.ref_name())
    }

    /// Where agentd keeps what it last pushed to a branch there.
    pub(super) fn pushed_ref(&self, branch: &BranchName) -> String {
        format!("refs/agentd/pushed/{}/{branch}", self.ref_name())
    }

    /// Its name where one is part of a ref's.
    pub(super) fn ref_name(&self) -> &str {
        if BranchName::parse(&self.name).is_ok() { &self.name } else { "remote" }
    }

    /// The token as a header for exactly this URL. Helpers are off, because they would answer a refused token with
    /// other credentials.
    fn credentials(&self) -> Vec<(String, String)> {
        let RemoteAuth::Token(token) = &self.auth else { return Vec::new() };
        if !self.is_http() {
            return Vec::new();
        }
        let pair = format!("x-access-token:{}", token.expose_secret());
        let header =
            format!("Authorization: Basic {}", base64::engine::general_purpose::STANDARD.encode(pair));
        let key = format!("http.{}.extraHeader", self.target());
        // Git sends a header on to wherever it is redirected.
        let follow = ("http.followRedirects".into(), "false".into());
        vec![("credential.helper".into(), String::new()), (key.clone(), String::new()), (key, header), follow]
    }
}

/// Removes `user:password@` from a URL.
pub(super) fn without_credentials(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) if scheme.starts_with("http") => {
            let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            format!("{scheme}://{host}{path}")
        }
        _ => url.to_owned(),
    }
}

impl Checkout {
    /// A remote by name, with its present URL and its credentials. Keep this value, because an agent could change the
    /// URL later.
    pub async fn remote(&self, name: &str, auth: RemoteAuth) -> Result<Remote, GitError> {
        match self.remote_url(name).await? {
            Some(url) => Ok(Remote::new(name, &url, auth)),
            None => Err(GitError::NoRemote { name: name.to_owned() }),
        }
    }

    /// The commit of a branch on the remote, as of the last fetch or push.
    pub async fn last_seen(
        &self,
        remote: &Remote,
        branch: &BranchName,
    ) -> Result<Option<CommitId>, GitError> {
        self.reference(&remote.seen_ref(branch)).await
    }

    /// The commit that agentd pushed last to a branch on the remote.
    pub async fn last_pushed(
        &self,
        remote: &Remote,
        branch: &BranchName,
    ) -> Result<Option<CommitId>, GitError> {
        self.reference(&remote.pushed_ref(branch)).await
    }

    /// A call that talks to a remote with exactly its credentials.
    pub(super) async fn remote_call(&self, remote: &Remote, args: Vec<String>) -> Result<Call, GitError> {
        let hardening = self.hardening(self.common_dir()).await?;
        hardening.check_network()?;
        let protocols = hardening.rewritten_to.iter().fold(Protocols::usual(), |all, to| all.and_of(to));
        let protocols = protocols.and_of(&remote.target());
        let mut call =
            self.call(args).await?.config(remote.credentials()).network(&remote.display(), protocols);
        if !remote.is_http() {
            // A question on a terminal that nobody watches counts as a refusal.
            call = call.env("GIT_SSH_VARIANT", "auto").env("SSH_ASKPASS_REQUIRE", "never");
        }
        Ok(call)
    }

    /// The commit of a branch on the remote, asked now; `None` where it has none.
    pub async fn remote_branch(
        &self,
        remote: &Remote,
        branch: &BranchName,
    ) -> Result<Option<CommitId>, GitError> {
        let heads = self.remote_heads(remote, &[branch.full()]).await?;
        let commit = heads.into_iter().find(|(name, _)| *name == branch.full()).map(|(_, commit)| commit);
        Ok(commit)
    }

    /// The commit of a branch on the remote, asked now, or a branch there that makes it impossible (D34).
    pub async fn remote_place(&self, remote: &Remote, branch: &BranchName) -> Result<RemotePlace, GitError> {
        let mut patterns = vec![branch.full(), format!("{}/*", branch.full())];
        let mut shorter = branch.as_str();
        while let Some((parent, _)) = shorter.rsplit_once('/') {
            patterns.push(format!("refs/heads/{parent}"));
            shorter = parent;
        }
        let heads = self.remote_heads(remote, &patterns).await?;
        if let Some((_, commit)) = heads.iter().find(|(name, _)| *name == branch.full()) {
            return Ok(RemotePlace::Taken(commit.clone()));
        }
        let names = heads.iter().filter_map(|(name, _)| name.strip_prefix("refs/heads/"));
        Ok(conflict(branch, names, Some(remote.name())).map_or(RemotePlace::Free, RemotePlace::Impossible))
    }

    async fn remote_heads(
        &self,
        remote: &Remote,
        patterns: &[String],
    ) -> Result<Vec<(String, CommitId)>, GitError> {
        let mut args = vec!["ls-remote".to_owned(), "--quiet".into(), "--".into(), remote.target()];
        args.extend(patterns.iter().cloned());
        let text = self.remote_call(remote, args).await?.text().await?;
        Ok(output::heads(&text))
    }

    /// Fetches a branch of the remote and gives its commit; `None` where it has none of that name. The user's branches,
    /// remote-tracking branches and `FETCH_HEAD` do not change. Other runs and commands may fetch the same branch.
    pub async fn fetch(&self, remote: &Remote, branch: &BranchName) -> Result<Option<CommitId>, GitError> {
        let seen = remote.seen_ref(branch);
        let mut args: Vec<String> = FETCH.map(str::to_owned).to_vec();
        if self.is_blobless().await? {
            args.insert(1, WITHOUT_CONTENTS.to_owned());
        }
        args.extend([remote.target(), format!("+{}:{seen}", branch.full())]);
        for tried in 1..=MOST_TRIES {
            let exit = self.fetch_call(remote, args.clone()).await?.exit().await?;
            if exit.success() {
                break;
            }
            let told = exit.stderr.text();
            if told.contains(&format!("couldn't find remote ref {}", branch.full())) {
                return Ok(None);
            }
            if tried == MOST_TRIES || !told.contains("cannot lock ref") {
                return Err(failure("fetch", &exit, Some(&remote.display())));
            }
        }
        let commit = self.reference(&seen).await?;
        if let Some(commit) = &commit {
            self.bring_contents(remote, commit).await?;
        }
        Ok(commit)
    }

    /// Brings the commits of a pull request as GitHub keeps them, also where its branch is gone. No ref changes.
    pub async fn fetch_pull(&self, remote: &Remote, number: u64) -> Result<(), GitError> {
        let mut args: Vec<String> = FETCH.map(str::to_owned).to_vec();
        if self.is_blobless().await? {
            args.insert(1, WITHOUT_CONTENTS.to_owned());
        }
        args.extend([remote.target(), format!("refs/pull/{number}/head")]);
        self.fetch_call(remote, args).await?.done().await
    }

    /// A call that brings objects.
    pub(super) async fn fetch_call(&self, remote: &Remote, args: Vec<String>) -> Result<Call, GitError> {
        let call = self.remote_call(remote, args).await?;
        Ok(if remote.is_http() { call.may_take_long() } else { call })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d28_a_token_is_sent_to_its_url_alone_and_never_shown() {
        let token = RemoteAuth::Token(SecretString::from("s3cret"));
        let remote = Remote::new("origin", "https://user:old@github.com/o/n.git", token.clone());
        assert_eq!(remote.target(), "https://github.com/o/n.git");
        let credentials = remote.credentials();
        assert_eq!(credentials[1].0, "http.https://github.com/o/n.git.extraHeader");
        assert!(!format!("{remote:?}").contains("s3cret"));
        let ssh = Remote::new("origin", "git@github.com:o/n.git", token);
        assert!(ssh.credentials().is_empty());
        assert_eq!(ssh.target(), "git@github.com:o/n.git");
    }
}
