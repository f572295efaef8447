//! What an issue waits for: open issues that block it, open sub-issues.

use super::client::Client;
use super::error::Error;
use super::listing_format::IssueSnapshot;
use super::rest_wire::IssueWire;

/// An open issue that another one waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// Web address, or `#N`: it may be in another repository.
    pub name: String,
    /// Whether it is a sub-issue rather than a blocker.
    pub sub_issue: bool,
}

impl Client {
    /// The open issues that `of` waits for. It costs nothing if the issue's own JSON has none, or if this GitHub has
    /// neither dependencies nor sub-issues. A declared dependency that cannot be read is an error, so that the issue
    /// does not start (I64).
    pub async fn waits_for(&self, of: &IssueSnapshot) -> Result<Vec<Dependency>, Error> {
        let (repo, key) = (&of.issue.repo, &of.issue.key);
        let mut found = Vec::new();
        for (open, path, sub_issue) in
            [(of.open_blockers, "dependencies/blocked_by", false), (of.open_sub_issues, "sub_issues", true)]
        {
            let Some(declared @ 1..) = open else { continue };
            let doing = format!("reading what issue {key} of {repo} waits for");
            let path = format!("/repos/{repo}/issues/{key}/{path}?per_page=100");
            let wires: Vec<IssueWire> = self.pages(&path, &doing, "issues: read").await?;
            let before = found.len();
            found.extend(wires.into_iter().filter(|wire| wire.state != "closed").map(|wire| Dependency {
                name: wire.html_url.unwrap_or_else(|| format!("#{}", wire.number)),
                sub_issue,
            }));
            // The list leaves out what the token cannot see; the count does not.
            if found.len() == before {
                let name = format!("{declared} that the token cannot see");
                found.push(Dependency { name, sub_issue });
            }
        }
        Ok(found)
    }
}
